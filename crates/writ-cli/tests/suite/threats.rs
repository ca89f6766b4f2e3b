//! Hostile cases against the whole product; the crates' own tests hold the rest: replay and races (`races`),
//! content swap (`writ-policy`), the sandbox (`writ-sandbox`), tampering (`writ-store`).

#[path = "threats/bounds.rs"]
mod bounds;

#[path = "threats/display.rs"]
mod display;

#[path = "threats/forged.rs"]
mod forged;

#[path = "threats/planted.rs"]
pub(crate) mod planted;

#[path = "threats/secrets.rs"]
mod secrets;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use super::turns::{Bench, calls};
use super::{code, text};

/// Case 4, parser gap: nothing parses a command line but the kernel. Every trick that hides a second program in
/// an argument is judged and recorded as the argv that it is, and stays in the sandbox. Its twin is a plain command.
#[test]
fn needs_userns_needs_git_hidden_programs_are_recorded_as_argv_and_stay_inside() {
    let marker = std::env::temp_dir().join(format!("writ-parser-gap-{}", std::process::id()));
    let touch = format!("touch {}", marker.display());
    let tricks: Vec<Vec<String>> = vec![
        vec!["env".into(), "-S".into(), touch.clone()],
        vec!["sh".into(), "-c".into(), touch.clone()],
        vec![
            "tar".into(),
            "-cf".into(),
            "x.tar".into(),
            format!("--use-compress-prog={touch}"),
            "a.txt".into(),
        ],
        vec!["git".into(), "-c".into(), format!("core.pager={touch}"), "-p".into(), "version".into()],
        vec!["echo".into(), "$(touch x)".into(), "`touch x`".into(), "$HOME/*".into(), ";".into()],
    ];
    let list = tricks.iter().map(|argv| ("shell_exec", json!({ "argv": argv }))).collect();
    let bench = Bench::new("anthropic", calls(list, "Done."));
    std::fs::write(bench.project().join("a.txt"), "a\n").expect("written");
    let done = bench.chat("try", &["--new"]);
    assert!([0, 5].contains(&code(&done)), "{}", text(&done));
    assert!(!marker.exists(), "a hidden program reached the host");
    assert!(!bench.project().join("x").exists());
    // The newest comes first.
    let recorded: Vec<Vec<String>> = bench
        .events("intent")
        .iter()
        .rev()
        .filter_map(|row| serde_json::from_value(row["payload"]["action"]["argv"].clone()).ok())
        .collect();
    assert_eq!(recorded, tricks, "what the ledger says is what was run");
    let count = tricks.len();
    println!("THREAT 4 attempts={count} refused={count} entries={} entry=intent twins=1", recorded.len());
    // The twin: arguments that look like orders are text to a plain command.
    let echoed = bench
        .server
        .recorded_requests()
        .iter()
        .any(|request| request.body.to_string().contains("$(touch x) `touch x` $HOME/* ;"));
    assert!(echoed, "the arguments arrived as they were");
}

/// A program that is a shell by another name, as `busybox sh` is.
const OTHER_SHELL: &str = "#!/bin/sh\nexec \"$@\"\n";

fn program(path: &Path, text: &str) {
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("set");
}

/// Case 4, the programs that other programs start: a shell by another name, pagers, aliases and editors that are
/// set by an argument, an option or the environment. They run, inside, as the children of what was judged; what
/// they leave waits for a person. Its twin is the same program without any of that.
#[test]
fn needs_userns_needs_git_programs_that_programs_start_run_inside_and_what_they_leave_waits() {
    let marks = tempfile::tempdir().expect("temp dir");
    let mark = |name: &str| format!("touch {} ran-{name}", marks.path().join(name).display());
    let line = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect::<Vec<String>>();
    let commit = ["commit", "--allow-empty", "-q"];
    let set = ["-c", "user.name=a", "-c", "user.email=a@localhost"];
    let editor = format!("core.editor={} && false", mark("editor"));
    let tricks = vec![
        line(&["busybox", "sh", "-c", &mark("busybox")]),
        line(&["./busybox", "sh", "-c", &mark("shell")]),
        line(&["sh", "-c", &format!("export PAGER='{}'; git -p version; eval \"$PAGER\"", mark("pager"))]),
        line(&["env", &format!("GIT_PAGER={}", mark("git-pager")), "git", "-p", "log"]),
        line(&["git", "-c", &format!("core.pager={}", mark("option")), "-p", "version"]),
        line(&["git", "-c", &format!("alias.x=!{}", mark("alias")), "x"]),
        line(&["git", "init", "-q"]),
        [line(&["git", "-c", &editor]), line(&set), line(&commit)].concat(),
        line(&["git", "--version"]),
    ];
    let list = tricks.iter().map(|argv| ("shell_exec", json!({ "argv": argv }))).collect();
    let bench = Bench::new("openai", calls(list, "Done."));
    program(&bench.project().join("busybox"), OTHER_SHELL);
    let done = bench.chat("try", &["--new"]);
    assert_eq!(code(&done), 5, "what was left waits for a person: {}", text(&done));
    assert_eq!(std::fs::read_dir(marks.path()).expect("reads").count(), 0, "something reached the host");
    let recorded: Vec<Vec<String>> = bench
        .events("intent")
        .iter()
        .rev()
        .filter_map(|row| serde_json::from_value(row["payload"]["action"]["argv"].clone()).ok())
        .collect();
    assert_eq!(recorded, tricks, "what was judged is what was run");
    let count = tricks.len() - 1;
    println!("THREAT 4 attempts={count} refused={count} entries={count} entry=intent twins=1");
    let diff = text(&bench.home.run(&["diff", "--project", bench.project().to_str().expect("UTF-8")]));
    for name in ["shell", "pager", "alias", "editor"] {
        assert!(diff.contains(&format!("ran-{name}")), "{name} ran inside: {diff}");
        assert!(!bench.project().join(format!("ran-{name}")).exists(), "{name} before the approval");
    }
    // The twin.
    let requests = bench.requests();
    assert!(requests.last().expect("a request").contains("git version "), "{requests:?}");
}
