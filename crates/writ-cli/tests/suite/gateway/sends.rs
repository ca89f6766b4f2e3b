//! `send_file`: from the work folder to the page as a download, and to the command line as a path.

use serde_json::{Value, json};

use super::super::turns::{Bench, calls};
use super::super::{code, text};
use super::Web;

fn send(path: &str) -> (&'static str, Value) {
    ("send_file", json!({ "path": path }))
}

/// The frames of a kind in the newest session.
fn frames(web: &Web, kind: &str) -> (String, Vec<Value>) {
    let bearer = web.bearer();
    let get = |path: &str| web.ask("GET", path, &[("Authorization", &bearer)], "").json();
    let sessions = get("/api/v1/sessions");
    let session = sessions["sessions"][0]["session"].as_str().expect("a session").to_owned();
    let shown = get(&format!("/api/v1/sessions/{session}?after=0"));
    let all = shown["frames"].as_array().expect("frames").clone();
    (session, all.into_iter().filter(|frame| frame["type"] == kind).collect())
}

/// A file that an agent has made goes out as bytes to keep, also if it is a page; who is not its owner gets nothing.
#[test]
fn needs_userns_a_sent_file_is_a_download_of_the_page_and_a_path_of_the_command_line() {
    let page = "<script>document.title = 'owned'</script>\n";
    let list = vec![
        ("file_write", json!({ "path": "out/re port.html", "content": page })),
        send("out/re port.html"),
        send("given.txt"),
    ];
    let bench = Bench::new("openai", calls(list, "Sent."));
    std::fs::write(bench.project().join("given.txt"), "from the project\n").expect("written");
    let web = Web::over(bench, &[]);
    let done = web.bench.chat("please send me both", &[]);
    assert_eq!(code(&done), 5, "the diff waits: {}", text(&done));
    let sent = web.bench.home.root().join("data/sent");
    let said = text(&done);
    assert!(
        said.contains("file re port.html (42 bytes") && said.contains(&sent.display().to_string()),
        "{said}"
    );
    let (session, files) = frames(&web, "file");
    assert_eq!(files.len(), 2, "{files:?}");
    let digest = writ_types::digest::Digest::of_bytes(page.as_bytes()).to_string();
    assert_eq!((&files[0]["name"], &files[0]["digest"]), (&json!("re port.html"), &json!(digest)));
    let path = files[0]["path"].as_str().expect("a path");
    assert_eq!(std::fs::read_to_string(path).expect("there"), page, "it outlives the work folder");
    let url = |n: usize| format!("/api/v1/sessions/{session}/files/{}", files[n]["file"]);
    let bearer = web.bearer();
    let answer = web.ask("GET", &url(0), &[("Authorization", &bearer)], "");
    assert_eq!((answer.status, answer.body.as_str()), (200, page));
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("content-disposition", "attachment; filename*=UTF-8''re%20port.html"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    assert_eq!(web.ask("GET", &url(1), &[("Authorization", &bearer)], "").body, "from the project\n");
    // Nobody, another session, an entry that sent nothing, and what is no number.
    assert_eq!(web.ask("GET", &url(0), &[], "").status, 401);
    let other = web.ask("POST", "/api/v1/sessions", &[("Authorization", &bearer)], "").json();
    let other = other["session"].as_str().expect("a session");
    for (path, status) in [
        (format!("/api/v1/sessions/{other}/files/{}", files[0]["file"]), 404),
        (format!("/api/v1/sessions/{session}/files/1"), 404),
        (format!("/api/v1/sessions/{session}/files/99999"), 404),
        (format!("/api/v1/sessions/{session}/files/x"), 400),
        (format!("/api/v1/sessions/{session}/files/..%2f..%2fwrit.db"), 400),
    ] {
        let answer = web.ask("GET", &path, &[("Authorization", &bearer)], "");
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
    // What somebody has changed is not handed out as what was sent.
    std::fs::write(path, "another\n").expect("written");
    let answer = web.ask("GET", &url(0), &[("Authorization", &bearer)], "");
    assert_eq!((answer.status, answer.code().as_str()), (422, "outbox.changed"));
    assert_eq!(code(&web.bench.home.run(&["audit", "verify", "--every-signature"])), 0);
}

/// Twin of the last one: an ordinary file.
#[test]
fn needs_userns_what_is_no_file_of_the_work_folder_or_is_stopped_by_a_gate_is_not_sent() {
    let list = vec![
        send("../outside.txt"),
        send("/etc/passwd"),
        send("way/passwd"),
        send("folder"),
        send("none.txt"),
        send("falcon.txt"),
        send("fine.txt"),
    ];
    let bench = Bench::new("openai", calls(list, "Sent."));
    let gate = "[[gates]]\nname = \"no-codename\"\non = \"output\"\nprovider = \"predicate\"\ncontains = [\"Project Falcon\"]\n\
                action = \"replace\"\nreplacement = \"the project\"\n";
    std::fs::write(bench.home.root().join("config.toml"), gate).expect("written");
    let project = bench.project();
    std::os::unix::fs::symlink("/etc", project.join("way")).expect("linked");
    std::fs::create_dir(project.join("folder")).expect("made");
    std::fs::write(project.join("falcon.txt"), "about Project Falcon\n").expect("written");
    std::fs::write(project.join("fine.txt"), "about nothing\n").expect("written");
    let web = Web::over(bench, &[]);
    let done = web.bench.chat("send it all", &[]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    let (_, files) = frames(&web, "file");
    let names: Vec<&str> = files.iter().filter_map(|file| file["name"].as_str()).collect();
    assert_eq!(names, ["fine.txt"]);
    let request = web.bench.requests().pop().expect("a request");
    for told in [
        "leads out of the work folder",
        "is a folder",
        "does not exist",
        "not sent: a gate would have to change it",
        "the user has fine.txt (14 bytes)",
    ] {
        assert!(request.contains(told), "{told}: {request}");
    }
    let kept = std::fs::read_dir(web.bench.home.root().join("data/sent")).expect("reads").count();
    assert_eq!(kept, 1, "of one session");
}
