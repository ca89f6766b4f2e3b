//! The commands around a run: settings that are found, a conflict, hooks, report, log, diff, an edited plan, and work that is undone.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply};

use crate::hooks::hook;
use crate::turns::Bench;
use crate::{code, text};

use super::team::git;

/// A workflow with the fewest phases, and a gate that is content with the repository as it was.
const SETTINGS: &str = "[pilot]\ntarget_branch = \"main\"\ndefault_workflow = \"own\"\n\n[[gate]]\nname = \"there\"\nrun = [\"test\", \"-f\", \"base.txt\"]\n";
const WORKFLOW: &str = "phases = [\"execute\", \"verify\", \"merge\", \"complete\"]\n";
const OUTLINE: &str = "\
- [ ] Arithmetic <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * add adds
    - [ ] add <!-- task/m1/s1/t1 -->
      Write add.
  - [ ] Products <!-- slice/m1/s2 blocked_by=slice/m1/s1 -->
    Acceptance:
    * mul multiplies
    - [ ] mul <!-- task/m1/s2/t1 blocked_by=slice/m1/s1 -->
      Write mul.
";
/// The second slice, and the file of its task.
const PRODUCTS: &str = "slice/m1/s2";
const MUL: &str = "mul.sh";

/// A planner and a coder; the user commits another version of the product while the coder writes its own.
fn answer(request: &ParsedRequest, project: &OnceLock<PathBuf>) -> Reply {
    let mut lines = request.messages.iter().flat_map(|message| message.text.lines());
    let heading = lines.find(|line| line.starts_with("# Plan a goal") || line.starts_with("# Work on "));
    let heading = heading.unwrap_or_default();
    if heading.starts_with("# Plan a goal") {
        return Reply::text(OUTLINE);
    }
    if request.results().next().is_some() {
        return Reply::text("Written.\n<turn_status>complete</turn_status>");
    }
    let name = match heading {
        _ if heading.contains("task/m1/s2") => MUL,
        _ if heading.contains("task/m0/s0/t1") => "one.sh",
        _ => "add.sh",
    };
    if name == MUL {
        let project = project.get().expect("is set");
        std::fs::write(project.join(MUL), "# mine\n").expect("written");
        git(project, &["add", MUL]);
        git(project, &["commit", "-q", "-m", "mine"]);
    }
    Reply::call("file_write", json!({ "path": name, "content": "# of the coder\n" }))
}

struct Desk {
    bench: Bench,
    project: PathBuf,
}

impl Desk {
    fn new() -> Self {
        let place = Arc::new(OnceLock::new());
        let own = Arc::clone(&place);
        let bench = Bench::new("anthropic", move |request: &ParsedRequest| answer(request, &own));
        let project = std::fs::canonicalize(bench.project()).expect("is there");
        place.set(project.clone()).expect("once");
        write(&project, "base.txt", "base\n");
        write(
            &project,
            "test_base.py",
            "import unittest\n\n\nclass Base(unittest.TestCase):\n    def test_base(self):\n        self.assertTrue(True)\n",
        );
        write(&project, "Makefile", "test:\n\ttrue\n");
        for arguments in [
            &["init", "-q", "-b", "main"][..],
            &["config", "user.name", "t"],
            &["config", "user.email", "t@example.org"],
            &["add", "."],
            &["commit", "-q", "-m", "first"],
        ] {
            git(&project, arguments);
        }
        Self { bench, project }
    }

    /// Runs a command of the autopilot, which has to end so. Returns what it says.
    fn run(&self, arguments: &[&str], exit: i32) -> String {
        let project = self.project.to_str().expect("UTF-8");
        let done = self.bench.home.run(&[&["pilot"], arguments, &["--project", project]].concat());
        assert_eq!(code(&done), exit, "{arguments:?}: {}", text(&done));
        text(&done)
    }

    /// Runs a command, and reads each line of its output as JSON.
    fn lines(&self, arguments: &[&str]) -> Vec<Value> {
        let project = self.project.to_str().expect("UTF-8");
        let done = self.bench.home.run(&[&["pilot"], arguments, &["--json", "--project", project]].concat());
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{said}"))).collect()
    }

    /// The events of units that hooks were notified of, with the unit in what the hook has said.
    fn hooked(&self, event: &str) -> Vec<String> {
        let rows = self.bench.events("hooked");
        let own = rows.iter().rev().filter(|row| row["payload"]["on"] == event);
        own.map(|row| row["payload"]["reason"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

fn write(folder: &Path, name: &str, content: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    std::fs::write(path, content).expect("written");
}

/// `init` finds the gates of a project, tries them in the sandbox, and switches off what proves nothing.
fn begin(desk: &Desk) {
    let said = desk.run(&["init"], 0);
    assert!(said.contains("gate python-unittest: python3 -m unittest discover  (passes)"), "{said}");
    let settings = desk.project.join(".writ/pilot.toml");
    let written = std::fs::read_to_string(&settings).expect("is there");
    assert!(
        written.contains("target_branch = \"main\"") && written.contains("report = \"unittest\""),
        "{written}"
    );
    for part in ["languages: Python 1", "the only commit changes: ./ 1", "by: t 1"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let quick = desk.run(&["init", "--untried", "--quick"], 0);
    assert!(!quick.contains("languages: "), "{quick}");
    let again = desk.run(&["init", "--untried"], 0);
    assert!(again.contains("is there already, and stays as it is"), "{again}");
    assert_eq!(std::fs::read_to_string(&settings).expect("is there"), written);
    write(&desk.project, ".writ/pilot.toml", SETTINGS);
    write(&desk.project, ".writ/workflows/own.toml", WORKFLOW);
    git(&desk.project, &["add", "."]);
    git(&desk.project, &["commit", "-q", "-m", "settings"]);
}

/// A conflict stops the run; its branch is shown, and a person resolves it.
fn resolve(desk: &Desk) {
    let said = desk.run(&["auto"], 10);
    assert!(said.contains("MergeConflict slice/m1/s2 needs you"), "{said}");
    assert!(desk.run(&["status"], 0).contains("paused"), "the loop has stopped");
    let diff = desk.run(&["diff", PRODUCTS], 0);
    assert!(diff.contains("writ/m1-s2-") && diff.contains("+# of the coder"), "{diff}");
    assert!(desk.run(&["diff", "slice/m1/s1"], 0).contains("nothing waits to be merged"));
    let begun = desk.run(&["merge-resolve", PRODUCTS], 10);
    assert!(begun.contains(MUL) && begun.contains("`writ pilot merge-resolve slice/m1/s2`"), "{begun}");
    let early = desk.run(&["merge-resolve", PRODUCTS], 8);
    assert!(early.contains("conflict markers are left in mul.sh"), "{early}");
    write(&desk.project, &format!(".writ/workspaces/slice_m1_s2/{MUL}"), "# of both\n");
    let done = desk.run(&["merge-resolve", PRODUCTS], 0);
    assert!(done.contains("slice/m1/s2 is resolved"), "{done}");
    let said = desk.run(&["auto"], 0);
    assert!(said.contains("everything is done"), "{said}");
    assert_eq!(git(&desk.project, &["show", &format!("main:{MUL}")]), "# of both\n");
    let marked = git(&desk.project, &["log", "--all", "-S<<<<<<<", "--format=%H"]);
    assert_eq!(marked, "", "no marker of a conflict is committed");
}

/// Report and log say what has happened.
fn look(desk: &Desk) {
    let report = desk.run(&["report"], 0);
    for part in ["slice/m1/s1", "gate there", "attempt 1: execute success", "commit "] {
        assert!(report.contains(part), "{part}: {report}");
    }
    let file = desk.bench.home.dir.path().join("report.html");
    let said = desk.run(&["report", PRODUCTS, "--html", file.to_str().expect("UTF-8")], 0);
    let page = std::fs::read_to_string(&file).expect("is written");
    assert!(said.contains("written: ") && page.contains("Products") && !page.contains("Sums"), "{said}");
    let log = desk.lines(&["logs", "task/m1/s1/t1"]);
    let kinds: Vec<&str> = log.iter().filter_map(|line| line["kind"].as_str()).collect();
    assert!(["begin", "tool", "model", "move", "gate"].iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    let page = desk.lines(&["logs", "task/m1/s1/t1", "--last", "2", "--skip", "2"]);
    assert_eq!(page, log[log.len() - 4..log.len() - 2]);
    assert!(
        desk.run(&["logs", "task/m1/s1/t1", "--last", "2"], 0)
            .contains("older lines are left out: `--skip 2`")
    );
    // From a folder within the project, and from one that is in none.
    let within = desk.project.join("src/deep");
    std::fs::create_dir_all(&within).expect("made");
    let status = |folder: &Path| {
        desk.bench.home.run(&["pilot", "status", "--project", folder.to_str().expect("UTF-8")])
    };
    let (above, below) = (status(&desk.project), status(&within));
    assert_eq!((code(&below), &below.stdout), (code(&above), &above.stdout), "{}", text(&below));
    let outside = tempfile::tempdir().expect("temp dir");
    let none = status(outside.path());
    assert!(code(&none) == 2 && text(&none).contains("nothing is planned in"), "{}", text(&none));
    let rated = desk.run(&["rate", "ok", "task/m1/s1/t1"], 0);
    assert!(
        rated.contains("task/m1/s1/t1, execute, attempt 1: the engine's model is rated 'ok' for execute/"),
        "{rated}"
    );
    let newest = desk.run(&["rate", "over"], 0);
    assert!(newest.contains("task/m1/s2/t1, execute, ") && newest.contains("is rated 'over'"), "{newest}");
    desk.run(&["rate", "great"], 2);
    let reset = desk.run(&["reset-circuits"], 0);
    assert!(reset.contains("none: no circuit was open"), "{reset}");
    assert!(desk.run(&["next"], 0).contains("nothing was handed out"));
    let over = desk.run(&["dispatch", "task/m1/s1/t1"], 10);
    assert!(over.contains("task/m1/s1/t1 cannot be handed out: it is over"), "{over}");
    look_back(desk);
    let missing = desk.run(&["logs", "task/m7/s1/t1"], 2);
    assert!(missing.contains("task/m7/s1/t1"), "{missing}");
    check_up(desk);
}

/// A look for faults ends with 0 only where all is well: something doubtful ends it with 1, as something bad does.
fn check_up(desk: &Desk) {
    let found = desk.run(&["doctor"], 0);
    assert!(found.contains("gate there") && found.contains("passes today"), "{found}");
    git(&desk.project, &["branch", "writ/m9-s9-of-a-person"]);
    assert!(desk.run(&["doctor"], 1).contains("warn  branches"));
    let project = desk.project.to_str().expect("UTF-8");
    let report = desk.bench.home.json(&["pilot", "doctor", "--project", project]);
    let checks = report["checks"].as_array().expect("a list");
    let has_parts =
        |check: &&Value| ["name", "verdict", "text"].iter().all(|part| check[*part].as_str().is_some());
    assert_eq!(checks.iter().filter(has_parts).count(), checks.len(), "{report:#}");
    let warned: Vec<&Value> = checks.iter().filter(|check| check["verdict"] != "good").collect();
    assert!(warned.len() == 1 && warned[0]["verdict"] == "warn" && report["healthy"] == false, "{report:#}");
    git(&desk.project, &["branch", "-D", "writ/m9-s9-of-a-person"]);
    write(&desk.project, ".writ/pilot.toml", "[pilot]\nmax_attempt = 1\n");
    assert!(desk.run(&["doctor"], 1).contains("BAD   settings"));
    write(&desk.project, ".writ/pilot.toml", SETTINGS);
    desk.run(&["doctor"], 0);
}

/// Spans and the units that are over are found again, and nothing is old enough to be moved.
fn look_back(desk: &Desk) {
    let spans = desk.run(&["forensics", "task/m1/s1/t1"], 0);
    for part in [
        "run  task/m1/s1/t1 execute 1 success",
        "tool_call  write add.sh",
        "phase_transition",
        "gate  there 1",
    ] {
        assert!(spans.contains(part), "{part}: {spans}");
    }
    assert!(desk.run(&["forensics", "task/m7/s1/t1"], 2).contains("task/m7/s1/t1"));
    assert!(desk.run(&["forensics", "x"], 2).contains("neither a run nor a session 'x'"));
    for flags in [&["clean", "--dry-run"][..], &["clean"]] {
        assert!(desk.run(flags, 0).contains("nothing is old enough"), "{flags:?}");
    }
    let history = desk.run(&["history"], 0);
    let lines: Vec<&str> = history.lines().filter(|line| line.contains("/m1/s")).collect();
    assert_eq!(lines.len(), 4, "{history}");
    assert!(lines[0].contains(PRODUCTS) && lines[0].contains("succeeded"), "{history}");
    let merged = desk.run(&["history", "--phase", "merge", "--verdict", "succeeded", "--limit", "1"], 0);
    assert!(merged.contains(PRODUCTS) && !merged.contains("slice/m1/s1"), "{merged}");
    assert!(desk.run(&["history", "--workflow", "feature"], 0).contains("none"));
    for wrong in [["--since", "2026-13-01"], ["--phase", "lunch"], ["--verdict", "good"], ["--limit", "x"]] {
        desk.run(&[&["history"], &wrong[..]].concat(), 2);
    }
}

/// Merged work is undone on a person's word alone.
fn undo(desk: &Desk) {
    let before = git(&desk.project, &["rev-parse", "main"]);
    let menu = desk.run(&["revert"], 10);
    let entries: Vec<&str> = menu.lines().filter(|line| line.contains(": slice/")).collect();
    let newest = ["1: slice/m1/s2 (done)  Products", "2: slice/m1/s1 (done)  Sums"];
    assert_eq!(entries, newest, "{menu}");
    assert!(menu.contains("`writ pilot revert SLICE`"), "{menu}");
    assert!(desk.run(&["revert", "slice/m9/s9"], 2).contains("slice/m9/s9"), "there is none");
    let shown = desk.run(&["revert", "slice/m1/s1"], 10);
    assert!(
        shown.contains("slice/m1/s1 in main:") && shown.contains("no person can be asked here"),
        "{shown}"
    );
    assert_eq!(git(&desk.project, &["rev-parse", "main"]), before);
    let done = desk.run(&["revert", "slice/m1/s1", "--yes"], 0);
    assert!(done.contains("slice/m1/s1 is undone in main"), "{done}");
    let left = git(&desk.project, &["ls-tree", "--name-only", "main"]);
    assert!(left.contains(MUL) && !left.contains("add.sh"), "{left}");
}

/// The plan is a file: edited, shown, carried out on a person's word, and asked about anew.
fn change(desk: &Desk) {
    assert!(desk.run(&["reload"], 0).contains("plan.md is written"));
    let file = desk.project.join(".writ/plan.md");
    let text = std::fs::read_to_string(&file).expect("is there");
    std::fs::write(&file, format!("{text}- [ ] Later\n  - [ ] Differences\n    - [ ] sub\n"))
        .expect("written");
    let shown = desk.run(&["reload"], 10);
    assert!(shown.contains("add task/m2/s1/t1: sub  (to be approved anew)"), "{shown}");
    let done = desk.run(&["reload", "--yes"], 5);
    assert!(done.contains("3 edits are carried out"), "{done}");
    assert!(std::fs::read_to_string(&file).expect("is there").contains("- [ ] sub <!-- task/m2/s1/t1 -->"));
    assert!(desk.run(&["reload", "--yes"], 0).contains("nothing is to be done"));
    let cancelled = desk.run(&["abandon", "milestone/m2", "--reason", "not now"], 0);
    assert!(cancelled.contains("milestone/m2"), "{cancelled}");
    let shown = desk.run(&["show", "task/m2/s1/t1"], 0);
    assert!(shown.contains("cancel by ") && shown.contains(": not now"), "{shown}");
    assert!(desk.run(&["abandon", "milestone/m2"], 2).contains("does not fit"), "it is over");
    let status = desk.run(&["status"], 0);
    assert!(status.contains("task/m2/s1/t1") && status.contains("canceled"), "{status}");
}

/// Every command around a run of the autopilot, on one engine: each does what it says, ends with its code, and changes nothing
/// without a person's word. Hooks of the owner are notified of what becomes of units.
///
/// Rows: SF-020 SF-213 SF-232 SF-529 SF-550
/// Rows: SF-541 (in part: the list, without a terminal, and an unknown unit) SF-549 (in part: the command) SF-557 (in part: the command) SF-553 (in part: the command, page by page)
#[test]
fn needs_userns_needs_git_needs_python_the_commands_around_a_run() {
    let desk = Desk::new();
    let notes = "#!/usr/bin/env python3\nimport json, sys\nread = json.load(sys.stdin)\nwords = read['unit'] + ' ' + read['phase'] if read['metadata'] == {'gh_issue': 42} else 'no issue'\nprint(json.dumps({'verdict': 'abstain', 'reason': words}))\n";
    for event in ["unit_started", "unit_blocked", "unit_merged", "unit_done"] {
        hook(&desk.bench, event, &format!("on = \"{event}\""), notes);
    }
    begin(&desk);
    for issue in ["--link-issue=abc", "--link-issue=0"] {
        desk.run(&["plan", "Sums and products.", issue], 2);
    }
    assert!(desk.run(&["status"], 2).contains("nothing is planned in"));
    desk.run(&["plan", "Sums and products.", "--link-issue=42"], 5);
    let database = rusqlite::Connection::open(desk.bench.home.database()).expect("opens");
    let row = "SELECT json_extract(metadata, '$.gh_issue') FROM unit WHERE id = 'milestone/m1'";
    assert_eq!(database.query_row(row, [], |row| row.get::<_, i64>(0)).expect("reads"), 42);
    drop(database);
    assert!(desk.run(&["next"], 0).contains("nothing was handed out: no unit is ready"));
    desk.run(&["approve", "--yes"], 0);
    let next = desk.run(&["next"], 0);
    assert!(next.contains("task/m1/s1/t1  verify  add") && next.contains("execute 1: success, "), "{next}");
    resolve(&desk);
    assert_eq!(desk.hooked("unit_blocked"), ["slice/m1/s2 merge"]);
    assert_eq!(desk.hooked("unit_merged"), ["slice/m1/s1 complete", "slice/m1/s2 complete"]);
    let started = desk.hooked("unit_started");
    let first = ["task/m1/s1/t1 execute", "task/m1/s1/t1 verify", "slice/m1/s1 verify", "slice/m1/s1 merge"];
    assert_eq!(started.get(..4), Some(&first.map(str::to_owned)[..]), "{started:?}");
    let done = desk.hooked("unit_done");
    for unit in ["task/m1/s1/t1", "slice/m1/s1", "task/m1/s2/t1", PRODUCTS, "milestone/m1"] {
        let own = done.iter().filter(|line| **line == format!("{unit} complete")).count();
        assert_eq!(own, 1, "{unit}: {done:?}");
    }
    look(&desk);
    undo(&desk);
    change(&desk);
    let verified = desk.bench.home.run(&["audit", "verify"]);
    assert_eq!(code(&verified), 0, "{}", text(&verified));
}

/// A task in words has a card and a plan of its own and no milestone; with the approval it is done to its end, and merged. One that is
/// not approved at once is done by the loop. A text that looks like a unit's id is one, and no text at all is a mistake.
///
/// Rows: SF-066 SF-537
#[test]
fn needs_userns_needs_git_a_task_in_words_is_done_by_itself() {
    let desk = Desk::new();
    write(&desk.project, ".writ/pilot.toml", SETTINGS);
    write(&desk.project, ".writ/workflows/own.toml", WORKFLOW);
    git(&desk.project, &["add", "."]);
    git(&desk.project, &["commit", "-q", "-m", "settings"]);
    assert!(desk.run(&["dispatch", "  "], 2).contains("there is no task"));
    assert!(desk.run(&["dispatch", "task/m0/s0/t1"], 2).contains("nothing is planned"));

    let waits = desk.run(&["dispatch", "Write one.sh."], 5);
    assert!(waits.contains("task/m0/s0/t1 waits"), "{waits}");
    let early = desk.run(&["dispatch", "task/m0/s0/t1"], 10);
    assert!(early.contains("its plan is not approved"), "{early}");
    let done = desk.run(&["dispatch", "Write add.sh,\nand nothing else.", "--yes"], 0);
    assert!(
        done.contains("and nothing else.") && done.contains("task/m0/s0/t2"),
        "the card shows all: {done}"
    );
    assert_eq!(git(&desk.project, &["show", "main:add.sh"]), "# of the coder\n");
    desk.run(&["approve", "--yes"], 0);
    desk.run(&["auto"], 0);
    assert_eq!(git(&desk.project, &["show", "main:one.sh"]), "# of the coder\n");

    let project = desk.project.to_str().expect("UTF-8");
    let status = desk.bench.home.json(&["pilot", "status", "--project", project]);
    let units = status["units"].as_array().expect("units").iter();
    let seen: Vec<(&Value, &Value)> = units.map(|unit| (&unit["id"], &unit["is_over"])).collect();
    let [one, two] = [json!("task/m0/s0/t1"), json!("task/m0/s0/t2")];
    assert_eq!(seen, [(&one, &json!(true)), (&two, &json!(true))], "no milestone, and no other unit");
    let states: Vec<&str> =
        status["plans"].as_array().expect("plans").iter().filter_map(|plan| plan["state"].as_str()).collect();
    assert_eq!((states, status["state"].as_str()), (vec!["done", "done"], Some("complete")), "{status:#}");
}

/// Another agent plans, hands out and looks through `writ mcp serve`, with the person's approval between; a tool that is not there and
/// arguments that are none are errors of the protocol, after which the server goes on.
///
/// Rows: SF-004
#[test]
fn needs_userns_needs_git_another_agent_drives_the_autopilot_through_mcp() {
    let desk = Desk::new();
    let desk = Desk { bench: desk.bench.in_processes(), project: desk.project };
    write(&desk.project, ".writ/pilot.toml", SETTINGS);
    write(&desk.project, ".writ/workflows/own.toml", WORKFLOW);
    git(&desk.project, &["add", "."]);
    git(&desk.project, &["commit", "-q", "-m", "settings"]);
    let project = desk.project.to_str().expect("UTF-8").to_owned();
    let talk = |requests: &[(&str, Value)]| -> Vec<Value> {
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let all = [("initialize", hello)].into_iter().chain(requests.iter().cloned());
        let line = |(id, (method, params)): (usize, (&str, Value))| {
            format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
        };
        let input: String = all.enumerate().map(line).collect();
        let done = desk.bench.home.run_with(&["mcp", "serve", "--project", &project], input.as_bytes());
        assert_eq!(code(&done), 0, "{}", text(&done));
        let said = String::from_utf8(done.stdout).expect("UTF-8");
        let mut heard: Vec<Value> = said
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{said}")))
            .collect();
        heard.sort_by_key(|answer| answer["id"].as_u64());
        assert_eq!(heard.len(), requests.len() + 1, "{said}");
        heard.split_off(1)
    };
    let call = |name: &str, arguments: Value| ("tools/call", json!({ "name": name, "arguments": arguments }));

    let heard = talk(&[
        ("tools/list", json!({})),
        call("plan", json!({ "goal": 5 })),
        call("plan", json!({ "goal": " " })),
        call("merge", json!({})),
        call("status", json!({ "all": true })),
    ]);
    let tools = heard[0]["result"]["tools"].as_array().expect("tools");
    let names: Vec<&Value> = tools.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["plan", "dispatch", "status"]);
    assert_eq!([1, 3, 4].map(|n| heard[n]["error"]["code"].as_i64()), [Some(-32602); 3], "{heard:#?}");
    assert_eq!(heard[2]["result"]["isError"], true, "no goal: {heard:#?}");

    let planned = talk(&[call("plan", json!({ "goal": "Sums and products." }))]).remove(0);
    assert_eq!(planned["result"]["structuredContent"]["milestone"], "milestone/m1", "{planned:#}");
    let early = talk(&[call("dispatch", json!({ "task": "task/m1/s1/t1" }))]).remove(0);
    let why = early["result"]["content"][0]["text"].as_str().expect("a text");
    assert!(early["result"]["isError"] == true && why.contains("its plan is not approved"), "{early:#}");
    desk.run(&["approve", "--yes"], 0);
    let begun = talk(&[call("dispatch", json!({}))]).remove(0);
    assert_eq!(begun["result"]["structuredContent"]["unit"], "task/m1/s1/t1", "{begun:#}");
    let status = talk(&[call("status", json!({}))]).remove(0);
    let units = status["result"]["structuredContent"]["units"].as_array().expect("units");
    assert!(units.iter().any(|unit| unit["id"] == "milestone/m1"), "{status:#}");
}
