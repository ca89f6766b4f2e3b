//! An autopilot that a person watches on a terminal.

use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};

use crate::tmux::Screen;
use crate::turns::Bench;
use crate::{code, text};

use super::team::git;

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

/// A person watches a project in a real terminal: the units stand there before anything runs, arrows select one with its last lines, work
/// and its end are seen as they come, and `q` leaves a terminal that is as it was. Where the output is no terminal, plain lines come instead.
#[test]
fn needs_tmux_needs_userns_needs_git_an_autopilot_is_watched_on_a_terminal() {
    let held = ReplyGate::new();
    let gate = held.clone();
    let bench = Bench::new("anthropic", move |request: &ParsedRequest| {
        let mut lines = request.messages.iter().flat_map(|message| message.text.lines());
        if lines.any(|line| line.starts_with("# Plan a goal")) {
            return Reply::text(OUTLINE);
        }
        if request.results().next().is_some() {
            let last = Reply::text("Written.\n<turn_status>complete</turn_status>");
            return last.with_fault(ReplyFault::SlowFirstByte(gate.clone()));
        }
        Reply::call("file_write", json!({ "path": "add.sh", "content": "# add\n" }))
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
    let run = |arguments: &[&str], exit: i32| {
        let place = project.to_str().expect("UTF-8");
        let done = bench.home.run(&[&["pilot"], arguments, &["--project", place]].concat());
        assert_eq!(code(&done), exit, "{arguments:?}: {}", text(&done));
    };
    run(&["plan", "Sums."], 5);
    let mut screen = Screen::start_in(&bench, &project, "pilot status --watch");
    screen.until("> milestone/m1");
    screen.until("plan of milestone/m1: proposed");
    screen.keys(&["Down"]);
    screen.until("last lines of slice/m1/s1");
    screen.keys(&["j"]);
    screen.until(">     task/m1/s1/t1");

    run(&["approve", "--yes"], 0);
    run(&["auto", "--detach"], 0);
    screen.until("task/m1/s1/t1 execute [runs: ");
    screen.until("write add.sh");
    held.open();
    screen.until("complete, $");
    screen.until("3 of 3 units are over");
    let shown = screen.tmux(&["capture-pane", "-p"]);
    assert!(shown.contains("verify -> complete"), "the moves of the selected unit: {shown}");

    screen.keys(&["q"]);
    // The next program of the shell gets a usual terminal: whole lines, each with its echo.
    screen.keys(&["as before", "Enter"]);
    screen.until("as before\nas before");
    let shown = screen.tmux(&["capture-pane", "-p"]);
    assert!(!shown.contains("milestone/m1"), "the view is gone: {shown}");
    drop(screen);

    let mut screen = Screen::start_in(&bench, &project, "pilot status --watch | cat");
    screen.until("milestone/m1  succeeded");
    let shown = screen.tmux(&["capture-pane", "-p"]);
    assert!(!shown.contains("q: leave") && !shown.contains("> milestone/m1"), "{shown}");
}
