//! The autopilots of a home over HTTP: their state, their units, and requests to look at once.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};

use super::{Bench, PATIENCE, Web};
use crate::{code, text};

const SETTINGS: &str = "[pilot]\ntarget_branch = \"main\"\ndefault_workflow = \"own\"\n\n[[gate]]\nname = \"there\"\nrun = [\"test\", \"-f\", \"base.txt\"]\n";
const WORKFLOW: &str = "phases = [\"execute\", \"verify\", \"merge\", \"complete\"]\n";
const OUTLINE: &str = "\
- [ ] Arithmetic <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * add adds
    - [ ] add <!-- task/m1/s1/t1 -->
      Write add.
";
const TASK: &str = "task/m1/s1/t1";

fn git(folder: &Path, arguments: &[&str]) {
    #[expect(clippy::disallowed_types, reason = "a real repository is made by the real program")]
    let done =
        std::process::Command::new("git").args(arguments).current_dir(folder).output().expect("git runs");
    assert!(done.status.success(), "{arguments:?}: {done:?}");
}

fn make_repository(folder: &Path) {
    for (name, content) in
        [("base.txt", "base\n"), (".writ/pilot.toml", SETTINGS), (".writ/workflows/own.toml", WORKFLOW)]
    {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, content).expect("written");
    }
    for arguments in [
        &["init", "-q", "-b", "main"][..],
        &["config", "user.name", "t"],
        &["config", "user.email", "t@example.org"],
        &["add", "."],
        &["commit", "-q", "-m", "first"],
    ] {
        git(folder, arguments);
    }
}

fn get(web: &Web, path: &str) -> Value {
    let answer = web.api("GET", path, &Value::Null);
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json()
}

/// Every route takes a session: without one the answer has a snapshot of each that is not over, with one it is that one's alone, and an
/// unknown one is not found. Units are found with the slashes of their ids. Requests to look at once are taken in and become few looks.
/// (The routes lie below `/api/v1/pilot/`: `/api/v1/state` is the engine's own.)
///
/// Rows: SF-469 (in part: state and refresh of two sessions; a unit of each) SF-472 (in part: the first run has no trace yet)
/// Rows: SF-473 (in part: the answers)
#[test]
fn needs_userns_needs_git_autopilots_are_watched_over_http() {
    let held = ReplyGate::new();
    let gate = held.clone();
    let bench = Bench::new("anthropic", move |request: &ParsedRequest| {
        let is_goal = request
            .messages
            .iter()
            .any(|message| message.text.lines().any(|line| line.starts_with("# Plan a goal")));
        if is_goal {
            return Reply::text(OUTLINE);
        }
        if request.results().next().is_some() {
            let last = Reply::text("Written.\n<turn_status>complete</turn_status>");
            return last.with_fault(ReplyFault::SlowFirstByte(gate.clone()));
        }
        Reply::call("file_write", json!({ "path": "add.sh", "content": "# add\n" }))
    });
    let elsewhere = tempfile::tempdir().expect("a folder");
    let projects = [bench.project().to_owned(), elsewhere.path().to_owned()]
        .map(|folder| std::fs::canonicalize(folder).expect("is there"));
    projects.iter().for_each(|project| make_repository(project));
    let names = projects.each_ref().map(|project| project.to_str().expect("UTF-8"));
    // As many as it takes: how many a client may send is another test's.
    let env = [("WRIT_SERVER__REQUESTS_PER_SEC", "100000"), ("WRIT_SERVER__BURST", "100000")];
    let web = Web::over(bench, &env);
    let run = |arguments: &[&str], project: &str, exit: i32| {
        let done = web.bench.home.run(&[&["pilot"], arguments, &["--project", project]].concat());
        assert_eq!(code(&done), exit, "{arguments:?}: {}", text(&done));
    };
    run(&["plan", "Sums."], names[0], 5);
    run(&["approve", "--yes"], names[0], 0);
    run(&["plan", "Sums."], names[1], 5);
    run(&["auto", "--detach"], names[0], 0);
    let until = Instant::now() + PATIENCE;
    let all = loop {
        let all = get(&web, "/api/v1/pilot/state");
        // Its first call is answered, and its last words wait.
        if all["sessions"][0]["running"][0]["turn_count"].as_u64() >= Some(1) {
            break all;
        }
        assert!(Instant::now() < until, "{all:#}");
        std::thread::yield_now();
    };
    assert!(!all["generated_at"].is_null());
    let sessions = all["sessions"].as_array().expect("a list");
    let shown: Vec<&str> = sessions.iter().map(|one| one["project"].as_str().expect("text")).collect();
    assert_eq!(shown, names);
    let ids: Vec<&str> = sessions.iter().map(|one| one["session"].as_str().expect("text")).collect();
    for (id, name) in ids.iter().zip(names) {
        let one = get(&web, &format!("/api/v1/pilot/state?session={id}"));
        assert_eq!((&one["project"], &one["session"]), (&json!(name), &json!(id)));
        assert!(one.get("sessions").is_none(), "{one:#}");
        let unit = get(&web, &format!("/api/v1/pilot/units/{TASK}?session={id}"));
        assert_eq!((&unit["project"], &unit["unit"]["id"]), (&json!(name), &json!(TASK)));
        let asked = web.api("POST", &format!("/api/v1/pilot/refresh?session={id}"), &Value::Null);
        assert_eq!(asked.status, 202, "{asked:?}");
    }
    let running = &sessions[0]["running"][0];
    assert_eq!((&running["unit_id"], &running["phase"]), (&json!(TASK), &json!("execute")));
    look_at_units(&web, names);
    refuse_unknown(&web);
    let mut taken = 0;
    for _ in 0..50 {
        let answer = web.api("POST", "/api/v1/pilot/refresh", &Value::Null);
        assert_eq!(answer.status, 202, "{answer:?}");
        let answer = answer.json();
        taken +=
            ["queued", "coalesced"].map(|name| answer[name].as_u64().expect("a number")).iter().sum::<u64>();
    }
    // Only a project that is open can look, and that is the first one at least.
    assert!((50..=100).contains(&taken), "{taken}");
    assert_eq!(web.api("GET", "/api/v1/pilot/refresh", &Value::Null).status, 405);
    held.open();
    let until = Instant::now() + PATIENCE;
    while get(&web, "/api/v1/pilot/state")["sessions"].as_array().map(Vec::len) != Some(1) {
        assert!(Instant::now() < until, "{:#}", get(&web, "/api/v1/pilot/state"));
        std::thread::yield_now();
    }
    assert_eq!(web.engine.stop().code, Some(0));
}

/// Without a session each project's unit of that id is shown.
fn look_at_units(web: &Web, names: [&str; 2]) {
    for path in [TASK.to_owned(), TASK.replace('/', "%2F")] {
        let found = get(web, &format!("/api/v1/pilot/units/{path}"));
        let sessions = found["sessions"].as_array().expect("a list");
        let shown: Vec<&str> = sessions.iter().map(|one| one["project"].as_str().expect("text")).collect();
        assert_eq!(shown, names);
        let first = &sessions[0];
        assert!(!first["recent_events"].as_array().expect("a list").is_empty(), "{first:#}");
        assert!(first["workspace_path"].as_str().is_some_and(|path| path.starts_with(names[0])), "{first:#}");
        assert_eq!((&first["retry_count"], &first["last_error"]), (&json!(0), &json!("")));
        // Its first run has not ended, so none of its spans is in a file yet.
        assert!(first.as_object().expect("an object").contains_key("log_path"), "{first:#}");
        assert!(sessions[1]["workspace_path"].is_null(), "{found:#}");
    }
}

fn refuse_unknown(web: &Web) {
    let unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    for (method, path, error) in [
        ("GET", format!("/api/v1/pilot/state?session={unknown}"), "pilot.no_session"),
        ("GET", format!("/api/v1/pilot/units/{TASK}?session={unknown}"), "pilot.no_session"),
        ("POST", format!("/api/v1/pilot/refresh?session={unknown}"), "pilot.no_session"),
        ("GET", "/api/v1/pilot/units/task/m9/s1/t1".to_owned(), "pilot.no_unit"),
        ("GET", "/api/v1/pilot/units/no/unit".to_owned(), "pilot.no_unit"),
    ] {
        let answer = web.api(method, &path, &Value::Null);
        assert_eq!((answer.status, answer.code().as_str()), (404, error), "{path}");
    }
    for path in ["state?session=x", "units/task/m1/s1/t1?session=x", "state?sessions=x"] {
        assert_eq!(web.api("GET", &format!("/api/v1/pilot/{path}"), &Value::Null).status, 400, "{path}");
    }
}
