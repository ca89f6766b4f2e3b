//! A person between runs: a unit that needs them, a status without an engine, a pause that they end, and a command that dies.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, Reply};

use super::kills::KillScene;
use super::team::git;
use crate::engine::stop_engine_of;
use crate::turns::Bench;
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
/// The most times that a first request is waited for.
pub(super) const MOST_WAITS: usize = 60;
/// The names of commands that the design of the autopilot uses.
const NAMES: [&str; 24] = [
    "init",
    "plan",
    "auto",
    "pause",
    "resume",
    "status",
    "reload",
    "abandon",
    "revert",
    "rate",
    "benchmark",
    "doctor",
    "history",
    "forensics",
    "reset-circuits",
    "reassess-resolve",
    "force-clear",
    "merge-resolve",
    "uat-approve",
    "uat-reject",
    "clean",
    "report",
    "session-report",
    "session-end",
];
/// The outline of a second goal.
const LATER: &str = "\
- [ ] Arithmetic once more <!-- milestone/m1 -->
  - [ ] Products <!-- slice/m1/s1 -->
    Acceptance:
    * mul multiplies
    - [ ] mul <!-- task/m1/s1/t1 -->
      Write mul.
";

/// A project whose coder needs a person in its first attempt, and writes its file in every later one.
struct Steered {
    bench: Bench,
    project: PathBuf,
}

impl Steered {
    fn new() -> Self {
        let (mut goals, mut tries) = (0, 0);
        let bench = Bench::new("anthropic", move |request: &ParsedRequest| {
            let mut lines = request.messages.iter().flat_map(|message| message.text.lines());
            if lines.any(|line| line.starts_with("# Plan a goal")) {
                goals += 1;
                return Reply::text(if goals == 1 { OUTLINE } else { LATER });
            }
            if request.results().next().is_some() {
                return Reply::text("Written.\n<turn_status>complete</turn_status>");
            }
            tries += 1;
            match tries {
                1 => Reply::text("Which sum is meant?\n<turn_status>blocked</turn_status>"),
                _ => Reply::call("file_write", json!({ "path": "add.sh", "content": "# sums\n" })),
            }
        });
        let project = std::fs::canonicalize(bench.project()).expect("is there");
        for (name, content) in
            [("base.txt", "base\n"), (".writ/pilot.toml", SETTINGS), (".writ/workflows/own.toml", WORKFLOW)]
        {
            let path = project.join(name);
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

    /// The commands that have resolved the pauses, in their order; none for one that is open.
    fn resolved(&self) -> Vec<Option<String>> {
        let database = rusqlite::Connection::open(self.bench.home.database()).expect("opens");
        let sql = "SELECT resolved_by FROM pilot_blocker WHERE event = 'Paused' ORDER BY id";
        let mut rows = database.prepare(sql).expect("prepares");
        let found = rows.query_map([], |row| row.get(0)).expect("reads");
        found.map(|row| row.expect("a row")).collect()
    }
}

/// The names in a folder, in their order.
fn names_in(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("reads").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A worker that needs a person pauses the work. The status says so also after the engine has ended, since it is read from the store;
/// one order lets everything go on, and then nothing is named any more. A second goal, in the same words, is a milestone of its own, and
/// the report has the sums of all of it.
///
/// Rows: SF-540
/// Rows: SF-539 (in part: on the rows of a run) SF-142 (in part: there is no other mode)
/// Rows: SF-568 (in part: `resume` and `session-report`)
/// Rows: SF-335 (in part: what is in the project, and nothing elsewhere in it)
/// Rows: SF-064 SF-528 (in part: the milestone is there at once; the same goal makes another; no goal is refused)
#[test]
fn needs_userns_needs_git_a_pause_is_seen_without_an_engine_and_ended_by_one_order() {
    let steered = Steered::new();
    steered.run(&["plan", "  "], 2);
    steered.run(&["plan", "Sums."], 5);
    let planned = steered.run(&["status"], 0);
    assert!(planned.contains("milestones 0 / 1 (0%)"), "{planned}");
    steered.run(&["approve", "--yes"], 0);
    let said = steered.run(&["auto"], 10);
    assert!(said.contains("Paused task/m1/s1/t1 needs you"), "{said}");
    stop_engine_of(&steered.bench.home);
    assert_eq!(steered.resolved(), [None]);
    let status = steered.run(&["status"], 0);
    let head: Vec<&str> = status.lines().take(5).collect();
    let project = format!("Project: {}, paused", steered.project.display());
    let [first, phase, next, blocker, progress] = head[..] else { panic!("{status}") };
    assert_eq!([first, phase, next], [project.as_str(), "Phase: none", "Next: none"], "{status}");
    assert!(blocker.starts_with("Blocker: Paused task/m1/s1/t1: "), "{status}");
    assert_eq!(progress, "Progress: milestones 0 / 1 (0%), slices 0 / 1 (0%), tasks 0 / 1 (0%)");
    assert!(status.contains("\nSession: 0h ") && status.contains(", the engine's model\n"), "{status}");

    steered.run(&["resume"], 0);
    let said = steered.run(&["auto"], 0);
    assert!(said.contains("everything is done"), "{said}");
    assert_eq!(steered.resolved(), [Some("user".to_owned())]);
    stop_engine_of(&steered.bench.home);
    let status = steered.run(&["status"], 0);
    assert!(status.contains("\nBlocker: none\n") && !status.contains("Paused"), "{status}");
    assert!(status.contains("milestones 1 / 1 (100%), slices 1 / 1 (100%), tasks 1 / 1 (100%)"), "{status}");

    assert_eq!(names_in(&steered.project), [".git", ".writ", "add.sh", "base.txt"]);
    let own = names_in(&steered.project.join(".writ"));
    for name in ["active", "archive", "pilot.toml", "trace", "workflows", "workspaces"] {
        assert!(own.iter().any(|one| one == name), "{name}: {own:?}");
    }
    assert!(!own.iter().any(|name| name.contains(".db") || name.contains("lock")), "{own:?}");

    steered.run(&["plan", "Sums."], 5);
    let status = steered.run(&["status"], 0);
    assert!(status.contains("milestones 1 / 2 (50%)"), "{status}");
    assert!(status.contains("milestone/m1  succeeded  Arithmetic  "), "the first one stays: {status}");
    assert!(status.contains("milestone/m2  ") && status.contains("Arithmetic once more"), "{status}");
    let report = steered.run(&["session-report"], 0);
    let sums = report.lines().next().unwrap_or_default();
    for part in [": 6 units, ", " attempts, ", " tokens, $"] {
        assert!(sums.contains(part), "{part}: {report}");
    }
}

/// A command that dies while it waits for the work takes nothing with it: the loop is the engine's, which has the same number before
/// and after, and the work ends merged.
///
/// Rows: SF-003 (in part: a command that needs an engine starts one)
#[test]
#[expect(clippy::disallowed_types, reason = "the test kills the command that it starts")]
fn needs_userns_needs_git_a_command_that_dies_leaves_the_loop_running() {
    let scene = KillScene::new();
    let engine = scene.begin_plan();
    while scene.wait_for(1) {}
    let number = || std::fs::read_to_string(scene.bench.home.root().join("runtime/lock")).expect("reads");
    let before = number();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_writ"))
        .args(["pilot", "auto", "--project"])
        .arg(&scene.project)
        .env_clear()
        .envs(scene.bench.home.variables(&[]))
        .current_dir(scene.bench.home.dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    assert!((0..MOST_WAITS).any(|_| scene.wait_for(1)), "the work begins");
    command.kill().expect("it waits for the end of the work");
    assert_eq!(command.wait().expect("waits").code(), None, "it has not ended by itself");
    assert_eq!(code(&scene.run_pilot(&["status"])), 0);
    assert_eq!(number(), before, "the same engine answers");
    scene.until_complete();
    assert_eq!(number(), before);
    engine.stop();
}

/// The help lists every command of the autopilot with its other names, and the guide has each. A command that is none ends with 2 and
/// the usage.
///
/// Rows: SF-569 (in part: the commands that are there; in a conversation: the terminal's tests)
#[test]
fn every_command_of_the_autopilot_is_in_its_help_and_its_guide() {
    let home = crate::Home::new();
    let help = home.run(&["pilot", "--help"]);
    assert_eq!(code(&help), 0, "{}", text(&help));
    let help = text(&help);
    let (_, rest) = help.split_once("Commands:").expect("a list");
    let (list, _) = rest.split_once("Options:").expect("its end");
    let mut names = Vec::new();
    for line in list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
        names.extend(line.split_whitespace().next().map(str::to_owned));
    }
    names.retain(|name| name != "help");
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/pilot.md"));
    let guide = guide.expect("the guide");
    for name in &names {
        assert!(guide.contains(&format!("writ pilot {name}")), "{name} is not in the guide");
    }
    // «alias» of one, «aliases» of several; a line may be broken within.
    let joined = list.split_whitespace().collect::<Vec<_>>().join(" ");
    let others = joined.split("[alias").skip(1).filter_map(|rest| rest.split_once(": ")?.1.split_once(']'));
    for name in others.flat_map(|(inside, _)| inside.split(", ")) {
        assert!(guide.contains(&format!("`{name}`")), "{name} is not in the guide");
        names.push(name.to_owned());
    }
    let missing: Vec<&&str> = NAMES.iter().filter(|name| !names.iter().any(|own| own == *name)).collect();
    assert!(missing.is_empty(), "{missing:?}: {names:?}");
    let unknown = home.run(&["pilot", "lunch"]);
    assert!(code(&unknown) == 2 && text(&unknown).contains("Usage: writ pilot"), "{}", text(&unknown));
}
