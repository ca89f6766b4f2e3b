//! What a fetch brings: pages as text, files into the work folder, and how many hosts the owner's word opens.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::json;

use super::super::turns::{Bench, calls};
use super::super::{code, text};
use super::last_request;
use super::mirror::Mirror;

/// Bytes that are no text, more than one message of the worker holds.
fn noise(bytes: usize) -> Vec<u8> {
    (0..=255_u8).rev().cycle().take(bytes).collect()
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(folder.join(name), bytes).expect("written");
}

/// Rows: WIN-211 (40 MB saved; 60 MB are not without a question) WIN-213 WIN-214 WIN-215
#[test]
fn needs_userns_a_fetch_saves_a_whole_answer_in_the_work_folder_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "data.bin", &noise(40_000_000));
    write(folder.path(), "huge.bin", &noise(60_000_000));
    let mirror = Mirror::of(folder.path());
    let url = |path: &str| mirror.url("depot", path);
    let save = |path: &str, to: &str| ("web_fetch", json!({ "url": url(path), "save_to": to }));
    let list = vec![
        save("/data.bin", "got/data.bin"),
        save("/data.bin", "../out.bin"),
        save("/data.bin", "/etc/out.bin"),
        save("/data.bin", "way/out.bin"),
        save("/huge.bin", "huge.bin"),
        save("/none.bin", "none.bin"),
        ("shell_exec", json!({ "argv": ["sh", "-c", "wc -c got/*; sha256sum < got/data.bin; ls"] })),
    ];
    let bench = Bench::new("openai", calls(list, "Done."));
    mirror.list_in(&bench);
    std::os::unix::fs::symlink("/etc", bench.project().join("way")).expect("linked");
    // The owner's own words: what an earlier answer brought would make the next URL a composed one.
    let done =
        bench.chat(&format!("get {} {} {}", url("/data.bin"), url("/huge.bin"), url("/none.bin")), &[]);
    assert_eq!(code(&done), 10, "40 MB cannot be shown, so they stay inside: {}", text(&done));
    let said = last_request(&bench);
    for told in [
        "saved to got/data.bin (40000000 bytes, application/octet-stream)",
        "'save_to' leads out of the work folder",
        "symbolic link",
        "nothing was saved",
        "which a person must approve",
        "HTTP 404 from",
        "40000000 got/data.bin",
        writ_types::digest::Digest::of_bytes(&noise(40_000_000)).to_string().as_str(),
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    assert!(!said.contains("none.bin\\nhuge") && !said.contains("\\nhuge.bin"), "no other file: {said}");
    let here = std::fs::read_dir(bench.project()).expect("reads").count();
    assert_eq!((here, bench.count("asked")), (1, 0), "the project is as it was, and nobody was asked");
}

/// A small file goes on as any change does: it is in the diff, and comes into the project with the approval.
#[test]
fn needs_userns_a_saved_file_is_part_of_the_diff() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "small.bin", &noise(300));
    let mirror = Mirror::of(folder.path());
    let url = mirror.url("depot", "/small.bin");
    let list = vec![("web_fetch", json!({ "url": url, "save_to": "small.bin" }))];
    let bench = Bench::new("openai", calls(list, "Done."));
    mirror.list_in(&bench);
    let done = bench.chat("get it", &[]);
    assert_eq!(code(&done), 5, "{}", text(&done));
    let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    assert_eq!(std::fs::read(bench.project().join("small.bin")).expect("there"), noise(300));
}

/// Rows: SIL-106 (the text of a page, external)
#[test]
fn a_page_is_read_as_text_and_its_scripts_are_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let page =
        "<html><title>News</title><script>steal()</script><h1>Head</h1><p>One <a href='/b'>two</a></p>";
    write(folder.path(), "page", page.as_bytes());
    let mirror = Mirror::of(folder.path());
    let url = mirror.url("depot", "/page");
    let bench = Bench::new("openai", calls(vec![("web_fetch", json!({ "url": url }))], "Done."));
    mirror.list_in(&bench);
    let done = bench.chat(&format!("read {url}"), &[]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    let said = last_request(&bench);
    assert!(said.contains(r"News\n\n# Head\n\nOne two (/b)\n") && !said.contains("steal"), "{said}");
    assert!(said.contains("external data from web_fetch"), "{said}");
}

/// The owner's word opens thirty hosts that no list names in a session; the thirty-first asks, also after a restart.
/// Twin: one of the thirty, again.
#[test]
fn a_session_reads_from_thirty_new_hosts_and_asks_about_more() {
    let mirror = Mirror::start();
    let url = |n: usize| format!("http://n{n}.many.test:{}/{n}", mirror.port);
    let rounds: Vec<Vec<usize>> = vec![(1..=15).collect(), (16..=30).collect(), vec![31, 7]];
    let script = {
        let urls: Vec<Vec<String>> =
            rounds.iter().map(|round| round.iter().copied().map(url).collect()).collect();
        let (mut round, mut next) = (0, 0);
        move |_: &writ_testkit::model_server::ParsedRequest| {
            let Some(url) = urls.get(round).and_then(|urls| urls.get(next)) else {
                (round, next) = (round + 1, 0);
                return writ_testkit::model_server::Reply::text("Done.");
            };
            next += 1;
            writ_testkit::model_server::Reply::call("web_fetch", json!({ "url": url }))
        }
    };
    let bench = Bench::new("openai", script);
    let port = mirror.port;
    // Listed for their port, and asked about each time: to the door, they are hosts that no list opens.
    let mut config =
        format!("[egress]\nallowed = [\"*.many.test:{port}\"]\nalways_ask = [\"*.many.test\"]\n");
    for n in 1..=31 {
        write!(config, "[[egress.pin]]\nhost = \"n{n}.many.test\"\naddress = \"127.0.0.1\"\n")
            .expect("written");
    }
    std::fs::write(bench.home.root().join("config.toml"), config).expect("written");
    for round in &rounds {
        super::super::engine::stop_engine_of(&bench.home);
        let urls: Vec<String> = round.iter().copied().map(url).collect();
        let done = bench.chat(&format!("read {}", urls.join(" ")), &[]);
        let expected = if round.contains(&31) { 5 } else { 0 };
        assert_eq!(code(&done), expected, "{}", text(&done));
    }
    let asked = mirror.asked();
    assert_eq!(asked.len(), 31, "{asked:?}");
    assert_eq!(
        asked.last().map(String::as_str),
        Some("GET /7 HTTP/1.1"),
        "a host of the thirty is no new one"
    );
    let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    assert_eq!(mirror.asked().last().map(String::as_str), Some("GET /31 HTTP/1.1"));
}

/// Rows: WIN-211 (more than 50 MB waits for a person, and comes as asked for) WIN-239 (in part: files over 50 MB)
#[test]
fn needs_userns_a_large_answer_waits_for_a_person_and_is_saved_then() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "huge.bin", &noise(60_000_000));
    let mirror = Mirror::of(folder.path());
    let url = mirror.url("depot", "/huge.bin");
    let list = vec![
        ("web_fetch", json!({ "url": url, "large": true })),
        ("web_fetch", json!({ "url": url, "save_to": "huge.bin", "large": true })),
    ];
    let bench = Bench::new("openai", calls(list, "Done."));
    mirror.list_in(&bench);
    let done = bench.chat(&format!("get {url}"), &[]);
    assert_eq!(code(&done), 5, "{}", text(&done));
    assert!(mirror.asked().is_empty(), "nothing leaves before the answer");
    assert!(last_request(&bench).contains("'large' is for 'save_to'"));
    let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    assert!(text(&approved).contains("saved to huge.bin (60000000 bytes"), "{}", text(&approved));
}

/// Rows: WIN-211 (30 a minute, saved or read)
/// Rows: WIN-041 (thirty pass and the next is told why)
/// Rows: WIN-090 (in part: thirty a minute)
#[test]
fn a_session_fetches_thirty_times_a_minute_and_is_told_when_it_may_again() {
    let mirror = Mirror::start();
    let list =
        (0..32).map(|n| ("web_fetch", json!({ "url": mirror.url("depot", &format!("/{n}")) }))).collect();
    let bench = Bench::new("openai", calls(list, "Done."));
    mirror.list_in(&bench);
    let urls: Vec<String> = (0..32).map(|n| mirror.url("depot", &format!("/{n}"))).collect();
    let more = "[budget]\nmax_tool_calls_per_turn = 40\n";
    let config = bench.home.root().join("config.toml");
    let listed = std::fs::read_to_string(&config).expect("reads");
    std::fs::write(&config, format!("{more}{listed}")).expect("written");
    let done = bench.chat(&format!("read {}", urls.join(" ")), &[]);
    assert_eq!(mirror.asked().len(), 30, "{}", text(&done));
    let said = last_request(&bench);
    assert!(said.contains("30 fetches a minute are the limit") && said.contains("or wait"), "{said}");
    // Twin: another session has thirty of its own.
    let fresh = bench.chat(&format!("read {}", urls.join(" ")), &["--new"]);
    assert!(mirror.asked().len() > 30, "{}", text(&fresh));
}

/// A person's yes is not used up for nothing: what they approve goes out, however much was fetched before.
///
/// Rows: WIN-041 (the number is a setting)
#[test]
fn the_limit_of_fetches_is_a_setting_and_a_persons_yes_is_not_refused_for_it() {
    let mirror = Mirror::start();
    let url = |path: &str| mirror.url("depot", path);
    let fetch = |path: &str| ("web_fetch", json!({ "url": url(path) }));
    let list = vec![
        ("web_request", json!({ "method": "POST", "url": url("/post"), "body": "x" })),
        fetch("/1"),
        fetch("/2"),
        fetch("/1"),
        fetch("/composed"),
    ];
    let bench = Bench::new("openai", calls(list, "Done."));
    mirror.list_in(&bench);
    let config = bench.home.root().join("config.toml");
    let listed = std::fs::read_to_string(&config).expect("reads");
    std::fs::write(&config, format!("{listed}\n[egress.limits]\nfetches_per_minute = 2\n")).expect("written");
    let done = bench.chat(&format!("read {} and {}", url("/1"), url("/2")), &[]);
    assert_eq!(code(&done), 5, "{}", text(&done));
    let asked = ["POST /post", "GET /1", "GET /2"].map(|line| format!("{line} HTTP/1.1"));
    assert_eq!(mirror.asked(), asked, "a request is no fetch: {}", text(&done));
    assert!(last_request(&bench).contains("2 fetches a minute are the limit"));
    let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    assert_eq!(mirror.asked().last().map(String::as_str), Some("GET /composed HTTP/1.1"));
}

/// The variables that HTTP clients commonly obey name a proxy that must not be asked: neither by the call of the model nor by
/// the fetch, whose hosts are judged by the addresses that they have.
///
/// Rows: WIN-218
#[test]
fn needs_userns_proxies_of_the_environment_get_no_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "page.txt", b"plain words");
    let mirror = Mirror::of(folder.path());
    let url = mirror.url("depot", "/page.txt");
    let list = vec![("web_fetch", json!({ "url": url }))];
    let mut bench = Bench::new("openai", calls(list, "Done."));
    mirror.list_in(&bench);
    // Clients read these variables of their own process.
    bench.home = bench.home.in_processes();
    let trap = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    trap.set_nonblocking(true).expect("set");
    let proxy = format!("http://{}", trap.local_addr().expect("bound"));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        bench.home.env.push((name.to_owned(), proxy.clone()));
    }
    let done = bench.chat(&format!("read {url}"), &[]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    assert!(last_request(&bench).contains("plain words"), "{}", last_request(&bench));
    let asked = trap.accept().map(|(_, address)| address);
    assert!(asked.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "{asked:?}");
}
