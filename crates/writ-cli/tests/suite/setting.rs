//! Where and when a turn takes place: the project's own path, the owner's time zone, and files as they lie there.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex, OnceLock};

use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, Reply};

use super::turns::Bench;
use super::{Home, code, text};

/// What the last request has of results.
fn results(bench: &Bench) -> String {
    bench.requests().pop().expect("a request")
}

/// An installed script of a Python environment and a compile database name the project's own path.
#[test]
#[expect(clippy::disallowed_types, reason = "the environment is made on the host, as its owner does")]
fn needs_userns_needs_python_what_names_the_projects_own_path_works_inside() {
    static PROJECT: OnceLock<String> = OnceLock::new();
    let script = |request: &ParsedRequest| {
        let project = PROJECT.get().expect("set").clone();
        match request.results().count() {
            0 => Reply::call("shell_exec", json!({"argv": [".venv/bin/hello"]})),
            1 => Reply::call("shell_exec", json!({"argv": ["pwd"]})),
            2 => Reply::call("shell_exec", json!({"argv": ["pwd"], "cwd": format!("{project}/src")})),
            3 => Reply::call("file_read", json!({"path": format!("{project}/src/a.txt")})),
            4 => Reply::call(
                "file_patch",
                json!({"path": format!("{project}/src/a.txt"), "old": "one", "new": "two"}),
            ),
            _ => Reply::text("Done."),
        }
    };
    let bench = Bench::new("openai", script).in_processes();
    let project = bench.project().canonicalize().expect("is there");
    PROJECT.set(project.display().to_string()).expect("once");
    let made = std::process::Command::new("python3")
        .args(["-m", "venv", "--without-pip"])
        .arg(project.join(".venv"))
        .status()
        .expect("runs");
    assert!(made.success());
    let hello = project.join(".venv/bin/hello");
    let text_of =
        format!("#!{}/.venv/bin/python3\nimport sys; print('prefix', sys.prefix)\n", project.display());
    std::fs::write(&hello, text_of).expect("written");
    std::fs::set_permissions(&hello, std::fs::Permissions::from_mode(0o755)).expect("set");
    std::fs::create_dir(project.join("src")).expect("made");
    std::fs::write(project.join("src/a.txt"), "one\n").expect("written");
    let done = bench.chat("please", &[]);
    assert_eq!(code(&done), 5, "{}", text(&done));
    let told = results(&bench);
    let own = project.display();
    assert!(told.contains(&format!("prefix {own}/.venv")), "{told}");
    assert!(told.contains(&format!("{own}/src\\n")), "{told}");
    let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    assert_eq!(std::fs::read_to_string(project.join("src/a.txt")).expect("reads"), "two\n");
}

/// A request's system text at its head, and the rest of the conversation as it was sent.
fn flat(request: &ParsedRequest) -> (String, String) {
    let raw = &request.raw;
    let mut said = raw.get("messages").or_else(|| raw.get("contents")).cloned().expect("a conversation");
    let said = said.as_array_mut().expect("a list");
    let head = match raw.get("system").or_else(|| raw.get("systemInstruction")) {
        Some(head) => head.clone(),
        None => said.remove(0),
    };
    (head.to_string(), said.iter().map(|message| format!("{message}\n")).collect())
}

/// The date stands behind all that stays the same from one turn to the next: what a provider has cached of it holds.
#[test]
fn needs_userns_the_model_is_told_the_date_behind_what_stays_and_programs_have_the_zone() {
    for kind in ["openai", "anthropic", "gemini"] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&seen);
        let mut bench = Bench::new(kind, move |request: &ParsedRequest| {
            all.lock().expect("whole").push(flat(request));
            match request.messages.last().expect("one").results.len() {
                0 => Reply::call("shell_exec", json!({"argv": ["date", "+%Z %z"]})),
                _ => Reply::text("Done."),
            }
        })
        .in_processes();
        bench.home = bench.home.with("WRIT_TIME_ZONE", "Asia/Kolkata");
        for message in ["first", "second"] {
            let done = bench.chat(message, &[]);
            assert_eq!(code(&done), 0, "{}", text(&done));
        }
        let seen = seen.lock().expect("whole");
        let [(system, first), (_, again), (_, second), (_, last)] = seen.as_slice() else {
            panic!("{seen:?}")
        };
        for (one, _) in seen.iter() {
            assert_eq!(one, system, "{kind}");
        }
        assert!(!system.contains("Kolkata"), "{kind}: {system}");
        for (_, flat) in seen.iter() {
            assert_eq!(flat.matches("[Now] ").count(), 1, "{kind}: {flat}");
            assert!(flat.contains("(+05:30, Asia/Kolkata). The project is the folder"), "{kind}: {flat}");
        }
        // The messages behind it have marks of their own for what is cached.
        let now = |flat: &str| flat.lines().find(|line| line.contains("[Now] ")).map(str::to_owned);
        assert_eq!(now(first), now(again), "{kind}: it stays within a turn");
        let before = |flat: &str| flat.split("[Now] ").next().unwrap_or_default().to_owned();
        assert_eq!(before(second), before(last), "{kind}");
        assert!(before(second).contains("first") && before(second).contains("IST +0530"), "{kind}: {second}");
    }
}

/// What was read of a file with line ends of Windows, a mark and no last newline can be patched in one call.
#[test]
fn needs_userns_what_was_read_of_a_windows_file_can_be_patched() {
    let script = |request: &ParsedRequest| match request.results().count() {
        0 => Reply::call("file_read", json!({"path": "a.ini"})),
        1 => {
            let read = request.results().last().expect("one").text.clone();
            let told = |line: &str| read.lines().any(|told| told.ends_with(line));
            assert!(told("[one]") && told("a=1"), "{read}");
            Reply::call(
                "file_patch",
                json!({"path": "a.ini", "old": "[one]\na=1\n", "new": "[one]\na=2\nb=3\n"}),
            )
        }
        _ => Reply::text("Done."),
    };
    let bench = Bench::new("openai", script).in_processes();
    std::fs::write(bench.project().join("a.ini"), "\u{feff}[one]\r\na=1\r\n[two]\r\nc=1").expect("written");
    let done = bench.chat("please", &[]);
    assert_eq!(code(&done), 5, "{}", text(&done));
    let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    let file = std::fs::read_to_string(bench.project().join("a.ini")).expect("reads");
    assert_eq!(file, "\u{feff}[one]\r\na=2\r\nb=3\r\n[two]\r\nc=1");
}

/// A time zone that is none is named with the setting and a hint; one in the variable of the shell is a warning.
#[test]
fn a_time_zone_that_is_none_is_named() {
    let home = Home::ready().in_processes().with("WRIT_TIME_ZONE", "Europe/Berlim");
    let refused = home.run(&["config", "check"]);
    let said = text(&refused);
    assert_eq!(code(&refused), 3, "{said}");
    assert!(said.contains("'Europe/Berlim' is no time zone") && said.contains("Europe/Berlin"), "{said}");
    let home = Home::ready().in_processes().with("TZ", "Europe/Berlim");
    let checked = text(&home.run(&["doctor"]));
    assert!(checked.contains("the variable TZ: 'Europe/Berlim' is no time zone; UTC is used"), "{checked}");
    let home = Home::ready().in_processes().with("TZ", "Asia/Kolkata");
    assert!(text(&home.run(&["doctor"])).contains("(+05:30, Asia/Kolkata)"));
}
