//! Attempts of several turns: their prompts, their kinds, what ends them, and what follows where no person answers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use writ_store::batch::{Batch, Op};
use writ_store::reads::{AskReads as _, WorkReads as _};
use writ_store::units::UnitOp;
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::api::pilot::{FailureClass, PilotUnitDetails};
use writ_types::api::work::WorkState;
use writ_types::chat::Role;
use writ_types::id::AskId;
use writ_types::unit::Tokens;

use crate::autopilot::{Scene, git};
use crate::autopilot_hooks::{commit_script, hook_runs};
use crate::autopilot_limits::{GATE, SHORT, TASK, coder, done, first_run, project, scene, writes};
use crate::autopilot_phases::{Notes, escalates, key, note, noted};
use crate::harness::TestEngine;

/// A plan of one task whose words are long enough to be recognised.
const OUTLINE: &str = "\
- [ ] A library of sums <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * add adds
    - [ ] add <!-- task/m1/s1/t1 -->
      Write a function add in add.mjs that returns the sum of its two arguments and nothing else.
";

/// A rule that asks about every program.
const ASK_SHELL: &str = r#"@id("ask-shell") @ask("Every program is asked for.")
forbid (principal, action == Action::"exec", resource) when { context.profile == "task" };"#;

/// A gate that passes on every tree.
const THERE: &str = "\n[[gate]]\nname = \"there\"\nrun = [\"test\", \"-f\", \"package.json\"]\n";

const NO_OPERATOR: &str = "This is a non-interactive session. Operator input is unavailable.";

/// The text of the newest user message: the prompt of the turn.
fn prompt(request: &ParsedRequest) -> String {
    let newest = request.messages.iter().rfind(|message| message.role == Role::User);
    newest.map(|message| message.text.clone()).unwrap_or_default()
}

/// A request of a coder in its turn.
struct Turn {
    /// Its number among all turns of the coder.
    n: usize,
    /// Set if it answers a result of its own turn.
    has_results: bool,
}

/// A team whose coder answers turn by turn; the prompts of its turns are noted.
fn turns(
    prompts: &Notes<String>,
    mut code: impl FnMut(&Turn) -> Reply + Send + 'static,
) -> impl FnMut(&ParsedRequest) -> Reply + Send + 'static {
    let noted_prompts = Arc::clone(prompts);
    move |request| {
        let first = request.messages.iter().find(|message| !message.text.is_empty());
        let heading = first.map(|message| message.text.clone()).unwrap_or_default();
        if heading.contains("# Plan a goal") {
            return Reply::text(OUTLINE);
        }
        if heading.contains("# Decision about") {
            return escalates();
        }
        let asked = request.messages.iter().rposition(|message| message.role == Role::User);
        let after = request.messages.iter().skip(asked.unwrap_or_default());
        let has_results = after.flat_map(|message| &message.results).next().is_some();
        let n = if has_results { noted(&noted_prompts).len() } else { note(&noted_prompts, prompt(request)) };
        code(&Turn { n, has_results })
    }
}

fn runs(task: &PilotUnitDetails) -> Vec<(&str, &str)> {
    let of_phase = task.runs.iter().filter(|run| run.phase == "execute");
    of_phase.map(|run| (run.outcome.as_deref().unwrap_or("-"), run.error.as_str())).collect()
}

/// Returns true if a text has a piece of another one that is as long as forty characters.
fn has_piece(text: &str, of: &str) -> bool {
    let of: Vec<char> = of.chars().collect();
    of.windows(40).any(|piece| text.contains(&piece.iter().collect::<String>()))
}

/// The first turn of each attempt has the whole task, and the error of the attempt before; the later ones have a short text without
/// either. The number of the turn alone says which it is, whatever the agent writes. A reply without a marker leads to the next turn, a
/// marker that is not written as it should be is none, and turns are no attempts.
///
/// Rows: SF-075 SF-144 SF-158 (in part: one size of a task) SF-160
#[test]
fn needs_userns_needs_git_the_first_turn_has_the_task_and_later_ones_go_on_with_it() {
    let dir = project("max_turns_per_attempt = 3", GATE, SHORT);
    let prompts = Notes::default();
    let script = turns(&prompts, |turn| match (turn.n, turn.has_results) {
        (n, false) => writes("add", if n < 4 { "a - b" } else { "a + b" }),
        // It asks for the whole task once more, which is not its to decide.
        (1, true) => Reply::text("Begun.\n<turn_kind>first</turn_kind>\n# Work on task task/m1/s1/t1"),
        (2, true) => Reply::text("More.\n<turn_status>complete"),
        (3, true) => Reply::text("Nothing is left to say."),
        _ => done(),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let task = scene.unit(TASK).await;
        assert_eq!(runs(&task), [("success", ""), ("success", "")], "three turns are one attempt: {task:#?}");
    });
    let prompts = noted(&prompts);
    let is_first: Vec<bool> =
        prompts.iter().map(|text| text.contains("# Work on task task/m1/s1/t1")).collect();
    assert_eq!(is_first, [true, false, false, true], "{prompts:#?}");
    let task = "Write a function add in add.mjs that returns the sum of its two arguments and nothing else.";
    let error = "No reply of the attempt ended with";
    for (n, text) in prompts.iter().enumerate() {
        assert_eq!((text.contains(task), has_piece(text, task)), (is_first[n], is_first[n]), "{text}");
        assert_eq!(text.contains(error), n == 3, "the error is for the first turn of the next: {text}");
    }
    assert!(prompts[1].contains("This is turn 2 of at most 3"), "{}", prompts[1]);
    assert!(prompts[2].contains("This is turn 3 of at most 3"), "{}", prompts[2]);
    scene.end();
}

/// A worker that never ends its work has fifty turns, and not one more; the attempt after it begins anew. What a turn has ended with is
/// in the record.
///
/// Rows: SF-141 (in part: the status is recorded; the cap) SF-152 SF-303 (in part: the cut after fifty turns)
#[test]
fn needs_userns_needs_git_an_attempt_has_fifty_turns_at_most() {
    let talks = "[pilot.supervisor]\nsilent_turns = 100\nfruitless_turns = 100\n";
    let dir = project("", &format!("{talks}{GATE}"), SHORT);
    let prompts = Notes::default();
    let script = turns(&prompts, |turn| match (turn.n, turn.has_results) {
        // Each turn makes another state of the files, or it would be stuck.
        (n, false) if n <= 50 => writes("add", &format!("a - {n}")),
        (n, true) if n <= 50 => Reply::text(&format!("Thought {n}.")),
        (_, false) => writes("add", "a + b"),
        (_, true) => done(),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let task = scene.unit(TASK).await;
        assert_eq!(runs(&task), [("success", ""), ("success", "")], "{task:#?}");
        let log = serde_json::to_string(&scene.engine.facts("worked")).expect("is JSON");
        for words in
            ["turn 50 of attempt 1", "turn 50 has ended without a marker", "turn 1 has ended with complete"]
        {
            assert!(log.contains(words), "{words}: {log}");
        }
        assert!(!log.contains("turn 51"), "{log}");
    });
    let prompts = noted(&prompts);
    assert_eq!(prompts.len(), 51, "fifty of the first attempt and one of the second");
    assert!(prompts[49].contains("This is turn 50 of at most 50"), "{}", prompts[49]);
    assert!(prompts[50].contains("# Work on task task/m1/s1/t1"), "{}", prompts[50]);
    scene.end();
}

/// A turn that fails is the end of its attempt, with the turn's own error: no other turn follows in it, and the next attempt begins anew
/// after a pause. The hook after an attempt runs behind it all the same.
///
/// Rows: SF-150
#[test]
fn needs_userns_needs_git_a_turn_that_fails_ends_its_attempt() {
    let rest = format!("[pilot.hooks]\nafter_run = [\"tools/after.sh\"]\n{GATE}");
    let dir = project("turn_timeout = \"6s\"", &rest, SHORT);
    commit_script(dir.path(), "tools/after.sh", "exit 0\n");
    let prompts = Notes::default();
    let script = turns(&prompts, |turn| match (turn.n, turn.has_results) {
        (1, _) => Reply::text("Begun."),
        (2, _) => Reply::call("shell_exec", json!({ "argv": ["sleep", "600"] })),
        (_, false) => writes("add", "a + b"),
        (_, true) => done(),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let task = scene.unit(TASK).await;
        assert_eq!(runs(&task), [("turn_timeout", "turn_timeout"), ("success", "")], "{task:#?}");
    });
    let after: Vec<(u32, String)> =
        hook_runs(&scene, TASK).into_iter().map(|row| (row.attempt, row.outcome)).collect();
    assert_eq!(after.first(), Some(&(1, "passed".to_owned())), "{after:?}");
    let prompts = noted(&prompts);
    assert_eq!(prompts.len(), 3, "{prompts:#?}");
    assert!(prompts[2].contains("# Work on task task/m1/s1/t1"), "no third turn: {}", prompts[2]);
    scene.end();
}

/// A prompt that cannot be made at a later turn ends the attempt: its session is closed, its hook runs, what it has used is paid, and since
/// another try would fail alike, the unit waits until a person has corrected the template.
///
/// Rows: SF-149
/// Rows: SF-483 (in part: prompt_render_failed) SF-477 (in part: a failure of the class config holds the unit)
#[test]
fn needs_userns_needs_git_a_prompt_that_cannot_be_made_ends_its_attempt() {
    let dir = project("", &format!("[pilot.hooks]\nafter_run = [\"tools/after.sh\"]\n{GATE}"), SHORT);
    commit_script(dir.path(), "tools/after.sh", "exit 0\n");
    let template = dir.path().join(".writ/prompts/continue.md");
    std::fs::create_dir_all(template.parent().expect("a parent")).expect("made");
    // It can be made for the second turn, with which it is tried, and not for the third.
    std::fs::write(&template, "Go on.{% if turn == 3 %} {{ turn.word }}{% endif %}\n").expect("written");
    let prompts = Notes::default();
    let script = turns(&prompts, |turn| match (turn.n, turn.has_results) {
        (1 | 2, _) => Reply::text("Still at it."),
        (_, false) => writes("add", "a + b"),
        (_, true) => done(),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "paused", "{status:#?}");
        assert!(
            status.blockers.iter().any(|one| one.detail.contains("continue.md, line 1")),
            "{:?}",
            status.blockers
        );
        let task = scene.unit(TASK).await;
        assert_eq!(runs(&task), [("failure", "prompt_render_failed")], "{task:#?}");
        assert_eq!(task.runs[0].class, Some(FailureClass::Config));
        assert!(task.runs[0].tokens > Tokens::ZERO, "two turns are paid: {task:#?}");
        let open = scene.engine.store.children_of(status.plans[0].item).await.expect("reads");
        assert_eq!(open, [], "no session is left open");
    });
    let after: Vec<(String, String)> =
        hook_runs(&scene, TASK).into_iter().map(|run| (run.hook, run.outcome)).collect();
    assert_eq!(after, [("after_run".to_owned(), "passed".to_owned())]);
    assert_eq!(noted(&prompts).len(), 2, "no third turn");
    std::fs::write(&template, "Go on with turn {{ turn }}.\n").expect("written");
    let scene = scene.restarted();
    scene.engine.runtime.block_on(async {
        scene.order(TASK, "resume", "").await;
        assert_eq!(scene.end_of_loop().await.state, "complete");
    });
    scene.end();
}

/// Between two turns the state of the unit is read from the store: one that was cancelled there gets no further prompt, is no failure
/// and is not tried again. One that runs goes on.
///
/// Rows: SF-151
#[test]
fn needs_userns_needs_git_a_unit_that_was_cancelled_in_the_store_gets_no_further_turn() {
    let dir = project("", THERE, SHORT);
    let (prompts, held) = (Notes::default(), ReplyGate::new());
    let gate = held.clone();
    let script = turns(&prompts, move |turn| match turn.n {
        1 => Reply::text("Begun."),
        _ => Reply::text("Still at it.").with_fault(ReplyFault::SlowFirstByte(gate.clone())),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        until(&scene, || noted(&prompts).len() == 2).await;
        // Not by an order, which ends the turn itself.
        let cancel = UnitOp::Cancel { key: key(&scene, TASK), at: scene.engine.engine.pilot_hands().now() };
        let batch = Batch::synced(vec![Op::Units(cancel)]);
        scene.engine.store.commit(batch).await.expect("is cancelled");
        held.open();
        // The reason with which its attempt ends: nothing else reaches its worker.
        let has_ended = || {
            let worked = scene.engine.facts("worked");
            worked.iter().any(|fact| format!("{fact:?}").contains("the unit is canceled now"))
        };
        until(&scene, has_ended).await;
        let task = scene.unit(TASK).await;
        assert_eq!(task.unit.status, "canceled", "{task:#?}");
        assert_eq!(runs(&task).iter().map(|(outcome, _)| *outcome).collect::<Vec<_>>(), ["canceled"]);
        scene.engine.call("pilot.pause", scene.params()).await.expect("pauses");
        scene.end_of_loop().await;
    });
    let of_task = noted(&prompts).into_iter().filter(|text| text.contains(TASK)).count();
    assert_eq!(of_task, 2, "no third turn");
    scene.end();
}

async fn until(scene: &Scene, mut holds: impl FnMut() -> bool) {
    while !holds() {
        scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
    }
}

/// A pause lets the turn end that runs, and begins no other: what it has done is committed, nothing counts as a failure, also over a
/// restart, and the next start goes on from there.
///
/// Rows: SF-538
#[test]
fn needs_userns_needs_git_a_pause_ends_an_attempt_after_its_turn() {
    let dir = project("", GATE, SHORT);
    let (prompts, held) = (Notes::default(), ReplyGate::new());
    let gate = held.clone();
    let script = turns(&prompts, move |turn| match (turn.n, turn.has_results) {
        (1, false) => writes("add", "a - b"),
        (1, true) => Reply::text("Begun.").with_fault(ReplyFault::SlowFirstByte(gate.clone())),
        (_, false) => writes("add", "a + b"),
        (_, true) => done(),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let is_answering = || noted(&prompts).len() == 1 && scene.engine.server.connections_waiting() == 1;
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        until(&scene, is_answering).await;
        scene.engine.call("pilot.pause", scene.params()).await.expect("pauses");
        assert!(scene.unit(TASK).await.unit.is_running, "its turn goes on");
        held.open();
        let status = scene.end_of_loop().await;
        assert_eq!((status.state.as_str(), noted(&prompts).len()), ("paused", 1), "{status:#?}");
        let task = scene.unit(TASK).await;
        assert_eq!(runs(&task), [("interrupted", "")], "{task:#?}");
        let branch = task.branch.expect("has one");
        assert!(git(dir.path(), &["show", &format!("{branch}:add.mjs")]).contains("a - b"), "is committed");
    });
    let scene = scene.restarted();
    scene.engine.runtime.block_on(async {
        assert_eq!(scene.status().await.state, "paused", "it stays so");
        assert_eq!(noted(&prompts).len(), 1);
        let status = scene.run().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let task = scene.unit(TASK).await;
        assert_eq!(runs(&task), [("interrupted", ""), ("success", "")], "{task:#?}");
    });
    assert!(
        noted(&prompts)[1].contains("# Work on task task/m1/s1/t1"),
        "another attempt begins with the task"
    );
    scene.end();
}

/// The waiting questions of all sessions.
async fn open_questions(scene: &Scene) -> Vec<AskId> {
    let asks = scene.engine.store.latest_asks(100).await.expect("reads");
    let open = asks.into_iter().filter(|ask| ask.state == writ_store::approvals::AskState::Open);
    open.map(|ask| ask.card.ask_id).collect()
}

/// An agent that asks a person, here for a program: by default it reads that nobody is there, in the same attempt, and its question is
/// withdrawn. With `hard` its attempt has failed and is tried again after a pause, and no text was put in. In both nothing waits.
///
/// Rows: SF-163 SF-164
#[test]
fn needs_userns_needs_git_a_question_in_an_unattended_run_is_answered_or_ends_the_attempt() {
    for (mode, expected) in
        [("", vec![("success", "")]), ("hard", vec![("failure", "turn_input_required"), ("success", "")])]
    {
        let setting =
            if mode.is_empty() { String::new() } else { format!("turn_input_required = \"{mode}\"") };
        let dir = project(&setting, GATE, SHORT);
        let prompts = Notes::default();
        let script = turns(&prompts, |turn| match (turn.n, turn.has_results) {
            (1, false) => Reply::call("shell_exec", json!({ "argv": ["touch", "asked.txt"] })),
            (1, true) => Reply::text("May I?"),
            (_, false) => writes("add", "a + b"),
            (_, true) => done(),
        });
        let scene = scene(dir.path(), TestEngine::new(ASK_SHELL, |_| script));
        scene.engine.runtime.block_on(async {
            let status = first_run(&scene).await;
            assert_eq!(status.state, "complete", "{mode}: {status:#?}");
            let task = scene.unit(TASK).await;
            assert_eq!(runs(&task), expected, "{mode}: {task:#?}");
            assert!(open_questions(&scene).await.is_empty(), "{mode}: a question is left");
            if mode == "hard" {
                let coded: Vec<_> = task.runs.iter().filter(|run| run.phase == "execute").collect();
                let pause = coded[1].started_at.time_since(coded[0].started_at);
                assert!(pause >= Duration::from_secs(1), "after the pause of a failure: {pause:?}");
            }
        });
        let prompts = noted(&prompts);
        assert_eq!(prompts.len(), 2, "{mode}: {prompts:#?}");
        assert_eq!(
            prompts.iter().filter(|text| text.trim() == NO_OPERATOR).count(),
            usize::from(mode.is_empty())
        );
        scene.end();
    }
}

/// Where a person is there, a question waits for them, with no answer of the harness; the answer lets the attempt go on. Without one the
/// attempt fails once the time of its phase is over, so nothing waits without an end.
///
/// Rows: SF-165 (in part: the card is that of the engine) SF-166 (in part: `ask`)
#[test]
fn needs_userns_needs_git_a_question_to_a_person_waits_as_long_as_an_attempt_may_take() {
    let times =
        "turn_input_required = \"ask\"\nmax_attempts = 1\n[pilot.unit_timeout_by_phase]\nexecute = \"12s\"";
    for is_answered in [true, false] {
        let dir = project(times, GATE, SHORT);
        let prompts = Notes::default();
        let script = turns(&prompts, |turn| match (turn.n, turn.has_results) {
            (1, false) => Reply::call("shell_exec", json!({ "argv": ["touch", "asked.txt"] })),
            (1, true) => Reply::text("May I?"),
            (_, false) => writes("add", "a + b"),
            (_, true) => done(),
        });
        let scene = scene(dir.path(), TestEngine::new(ASK_SHELL, |_| script));
        scene.engine.runtime.block_on(async {
            let planned = scene.plan("a library of sums").await;
            scene.approve(&planned.ask).await;
            scene.engine.call("pilot.run", scene.params()).await.expect("runs");
            let ask = loop {
                if let Some(ask) = open_questions(&scene).await.pop() {
                    break ask;
                }
                scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
            };
            if is_answered {
                scene.approve(&ask).await;
            }
            let status = scene.end_of_loop().await;
            let task = scene.unit(TASK).await;
            let (state, runs) = (status.state.as_str(), runs(&task));
            if is_answered {
                assert_eq!((state, runs), ("complete", vec![("success", "")]), "{task:#?}");
            } else {
                assert_eq!((state, runs), ("paused", vec![("failure", "turn_input_required")]), "{task:#?}");
                assert!(open_questions(&scene).await.is_empty(), "its question has ended with it");
            }
        });
        assert!(
            !noted(&prompts).iter().any(|text| text.contains(NO_OPERATOR)),
            "no one answers for a person"
        );
        scene.end();
    }
}

/// The gates of a milestone run once all of its slices are merged, on the target; those of slices run on slices alone. What does not
/// pass waits for a person, with the gate's words, and is run again with their order.
///
/// Rows: SF-240 (in part: that the lists are apart; scripts are checked by the settings' tests)
#[test]
fn needs_userns_needs_git_gates_of_a_milestone_judge_the_target_at_its_end() {
    let release = "\n[[gate]]\nname = \"release\"\nrun = [\"sh\", \"-c\", \"grep -q 'a + b' add.mjs && test -f NOTES.md\"]\nat = \"milestone\"\n";
    let dir = project("", &format!("{GATE}{release}"), SHORT);
    let script = coder(OUTLINE, |_, asked| if asked.has_results { done() } else { writes("add", "a + b") });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let gates = |unit: &PilotUnitDetails| -> Vec<(String, bool)> {
        unit.gates.iter().map(|one| (one.gate.clone(), one.passed)).collect()
    };
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "paused", "{status:#?}");
        assert!(status.warnings.is_empty(), "{:?}", status.warnings);
        git(dir.path(), &["cat-file", "-e", "main:add.mjs"]);
        let blocker = status.blockers.first().expect("one");
        assert_eq!((blocker.unit.as_str(), blocker.event.as_str()), ("milestone/m1", "Paused"));
        assert!(blocker.detail.contains("release: "), "{blocker:?}");
        assert_eq!(status.plans[0].state, WorkState::Running, "nothing is done yet");
        let milestone = scene.unit("milestone/m1").await;
        assert_eq!(gates(&milestone), [("release".to_owned(), false)], "{milestone:#?}");
        for part in ["slice/m1/s1", TASK] {
            let part = scene.unit(part).await;
            assert!(part.gates.iter().all(|one| one.gate == "sum"), "{part:#?}");
        }
        std::fs::write(dir.path().join("NOTES.md"), "It adds.\n").expect("written");
        git(dir.path(), &["add", "NOTES.md"]);
        git(dir.path(), &["commit", "-qm", "Write notes"]);
        scene.order("milestone/m1", "resume", "").await;
        let status = scene.end_of_loop().await;
        assert_eq!(
            (status.state.as_str(), status.plans[0].state),
            ("complete", WorkState::Done),
            "{status:#?}"
        );
        let milestone = scene.unit("milestone/m1").await;
        assert_eq!(gates(&milestone), [("release".to_owned(), false), ("release".to_owned(), true)]);
        assert!(milestone.unit.is_over, "{milestone:#?}");
    });
    scene.end();
}

/// A plan whose approval was taken back is not done: the loop ends as one that needs a person, and goes on after another approval.
#[test]
fn needs_userns_needs_git_a_plan_without_an_approval_in_force_is_not_complete() {
    let dir = project("", GATE, SHORT);
    let script = coder(OUTLINE, |_, asked| if asked.has_results { done() } else { writes("add", "a + b") });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        let revoked = json!({ "ask": planned.ask });
        scene.engine.call("approvals.revoke", revoked).await.unwrap_or_else(|error| panic!("{error:?}"));
        // The engine has seen it.
        while scene.status().await.plans[0].state != WorkState::Stuck {
            scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
        }
        let status = scene.run().await;
        assert_eq!(
            (status.state.as_str(), status.plans[0].state),
            ("paused", WorkState::Stuck),
            "{status:#?}"
        );
        assert!(status.units.iter().all(|unit| unit.attempt == 0), "{status:#?}");
        let again = json!({ "item": planned.item });
        scene.engine.call("work.retry", again).await.unwrap_or_else(|error| panic!("{error:?}"));
        let ask = loop {
            if let Some(ask) = open_questions(&scene).await.pop() {
                break ask;
            }
            scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
        };
        scene.approve(&ask).await;
        let status = scene.run().await;
        assert_eq!(
            (status.state.as_str(), status.plans[0].state),
            ("complete", WorkState::Done),
            "{status:#?}"
        );
    });
    git(dir.path(), &["cat-file", "-e", "main:add.mjs"]);
    scene.end();
}

/// The window of a provider that counts more than is estimated, in its own tokens.
const FULL: u64 = 24_000;

/// A provider that counts half as much again as is estimated: the attempt ends where its context reaches the hard limit, as a failure
/// of its own also where there is a ceiling of money, and before any request is larger than the provider takes. What it has used and said
/// is stored, and the next attempt, which knows how the provider counts, begins with an empty context. (Old results of tools leave
/// before that, as far as the estimate shows that they have to; here it does not.)
///
/// Rows: SF-170
#[test]
fn needs_userns_needs_git_a_full_context_ends_its_attempt_before_the_provider_refuses() {
    let rest = format!("[pilot.ceilings]\nunit_micro_usd = 9_000_000\n{GATE}");
    let dir = project("context_compact_at = 0.85\ncontext_hard_limit = 0.95", &rest, SHORT);
    let sizes: Notes<(u64, u64)> = Notes::default();
    let counts = Arc::clone(&sizes);
    let mut tries = 0_usize;
    let mut n = 0_usize;
    let script = move |request: &ParsedRequest| {
        let estimated = u64::try_from(request.raw.to_string().chars().count()).expect("fits").div_ceil(4);
        let first = request.messages.iter().find(|message| !message.text.is_empty());
        let heading = first.map(|message| message.text.clone()).unwrap_or_default();
        if heading.contains("# Plan a goal") {
            return Reply::text(OUTLINE).with_usage(1_000, 50);
        }
        let sent = estimated * 3 / 2;
        note(&counts, (sent, 60));
        if sent > FULL {
            return Reply::default().with_fault(ReplyFault::ContextOver { window: FULL, sent });
        }
        let has_results = request.results().next().is_some();
        tries += usize::from(!has_results);
        n += 1;
        let content = format!("{n} {}", "words ".repeat(420));
        let reply = match (tries, has_results) {
            (1, _) => {
                Reply::call("file_write", json!({ "path": format!("notes/{n}.txt"), "content": content }))
            }
            (_, false) => writes("add", "a + b"),
            (_, true) => done(),
        };
        reply.with_usage(sent, 60)
    };
    let small = |parts: &mut writ_runtime::services::EngineParts| {
        parts.config.begun.agent_config.context.total_tokens = Tokens::new(FULL);
    };
    let scene = scene(dir.path(), TestEngine::priced(small, |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let task = scene.unit(TASK).await;
        assert_eq!(runs(&task), [("failure", "budget_exhausted"), ("success", "")], "{task:#?}");
        let sizes = noted(&sizes);
        let largest = sizes.iter().map(|(sent, answer)| sent + answer).max().expect("was asked");
        assert!(largest >= FULL * 95 / 100, "the limit was reached: {largest}");
        let over: Vec<_> = sizes.iter().filter(|(sent, _)| *sent > FULL).collect();
        assert!(over.is_empty(), "the provider refuses nothing: {over:?}");
        let asked = sizes.iter().position(|(sent, answer)| sent + answer == largest).expect("is there");
        let of_first: u64 = sizes[..=asked].iter().map(|(sent, answer)| sent + answer).sum();
        assert_eq!(task.runs[0].tokens.get(), of_first, "what it has used is stored, up to that answer");
        let said = serde_json::to_string(&scene.engine.facts("worked")).expect("is JSON");
        assert!(said.contains("a budget is used up"), "{said}");
    });
    scene.end();
}
