//! What the autopilot promises of phases, decisions, gates, reviews and merges, each on a real repository with a scripted team.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::json;
use writ_autopilot::phase::{MoveCause, PilotPhase, check_move};
use writ_store::batch::{Batch, Op};
use writ_store::reads::UnitReads as _;
use writ_store::store::Store;
use writ_store::units::{UnitKey, UnitOp};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::error::Exit;

use crate::autopilot::{DONE, Scene, git, moves, plan_of, repository};
use crate::autopilot_limits::{GATE, ONE_TASK, TASK, TWO_SLICES, done, first_run, project, scene, writes};
use crate::autopilot_plan::edit;
use crate::harness::TestEngine;

const SLICE: &str = "slice/m1/s1";
/// Far longer than any limit of the autopilot.
const TEN_DAYS: Duration = Duration::from_secs(10 * 24 * 60 * 60);

/// A request to one of the team.
pub(crate) struct Heard {
    /// The first word of the prompt's heading: `Research`, `Plan`, `Work`, `Tests`, `Review`, `Decision`; `Goal` for the planner.
    pub(crate) part: String,
    /// The unit.
    pub(crate) unit: String,
    /// The prompt.
    pub(crate) text: String,
    /// The results of tools that it answers.
    pub(crate) results: usize,
    /// The model.
    pub(crate) model: String,
}

pub(crate) fn hear(request: &ParsedRequest) -> Heard {
    let first = request.messages.iter().find(|message| !message.text.is_empty());
    let text = first.map(|message| message.text.clone()).unwrap_or_default();
    let heading = text.lines().find(|line| line.starts_with("# ")).unwrap_or_default().to_owned();
    let unit = heading.split(' ').find(|word| word.contains("/m")).unwrap_or_default();
    let part = heading.split(' ').nth(1).unwrap_or_default();
    let part = if heading.starts_with("# Plan a goal") { "Goal" } else { part };
    Heard {
        part: part.to_owned(),
        unit: unit.trim_end_matches([',', '.']).to_owned(),
        text,
        results: request.results().count(),
        model: request.model.clone(),
    }
}

/// A team that plans, researches and ends its work by itself; `answer` says what it does otherwise.
pub(crate) fn team(
    outline: &'static str,
    mut answer: impl FnMut(&Heard) -> Reply + Send + 'static,
) -> impl FnMut(&ParsedRequest) -> Reply + Send + 'static {
    move |request| {
        let heard = hear(request);
        match heard.part.as_str() {
            "Goal" => Reply::text(outline),
            _ if heard.results > 0 => done(),
            "Research" => Reply::text(&format!("Nothing is there yet.\n{DONE}")),
            "Plan" => Reply::text(&format!("{}\n{DONE}", plan_of(&heard.unit))),
            _ => answer(&heard),
        }
    }
}

/// What a script has noted.
pub(crate) type Notes<T> = Arc<Mutex<Vec<T>>>;

pub(crate) fn note<T>(notes: &Notes<T>, one: T) -> usize {
    let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
    notes.push(one);
    notes.len()
}

pub(crate) fn noted<T: Clone>(notes: &Notes<T>) -> Vec<T> {
    notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

pub(crate) fn review(verdict: &str, findings: serde_json::Value) -> Reply {
    Reply::text(&json!({ "verdict": verdict, "findings": findings }).to_string())
}

pub(crate) fn abandons() -> Reply {
    Reply::text(r#"{"decision":"abandon","reason":"it cannot be done"}"#)
}

pub(crate) fn escalates() -> Reply {
    Reply::text(r#"{"decision":"escalate","questions":["which sum is meant?"]}"#)
}

/// Plans and approves, and takes the task out of the slice, which is worked on itself then.
async fn plan_without_tasks(scene: &Scene) {
    let planned = scene.plan("a library of sums").await;
    scene.approve(&planned.ask).await;
    assert!(scene.reload(false).await.written);
    edit(scene, |text| text[..text.find("    - [ ] add").expect("the task")].to_owned()).await;
}

pub(crate) fn key(scene: &Scene, id: &str) -> UnitKey {
    UnitKey { project: scene.project.to_str().expect("UTF-8").to_owned(), id: id.to_owned() }
}

/// The folder of a unit among those of `.writ/archive`.
fn archived(dir: &Path, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join(".writ/archive")).expect("is there").flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| path.file_name().is_some_and(|own| own.to_string_lossy().contains(name)));
    found.sort();
    found
}

fn inode(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|found| found.ino())
}

/// A unit goes through the phases of its workflow, one after another and no other. Where a person has to accept, nothing is merged
/// before; where there is no review and no gate, none is run.
///
/// Rows: SF-077 SF-090 SF-091
#[test]
fn needs_userns_needs_git_a_unit_goes_through_the_phases_of_its_workflow_and_no_other() {
    use PilotPhase::{Complete, Execute, Merge, Plan, Research, Review, Tdd, Uat, Verify};
    let feature = vec![Research, Plan, Execute, Tdd, Verify, Review, Merge, Complete];
    let mut release = feature.clone();
    release.insert(6, Uat);
    assert!(check_move(&feature, Execute, Verify, MoveCause::Advance).is_err());
    for (workflow, phases) in
        [("feature", feature), ("release", release), ("spike", vec![Research, Plan, Execute, Complete])]
    {
        let dir = repository(&format!("[pilot]\ndefault_workflow = \"{workflow}\"\n{GATE}"));
        let asked = Notes::default();
        let parts = Arc::clone(&asked);
        let script = team(ONE_TASK, move |heard| {
            note(&parts, heard.part.clone());
            match heard.part.as_str() {
                "Work" => writes("add", "a + b"),
                "Review" => review("pass", json!([])),
                _ => done(),
            }
        });
        let scene = scene(dir.path(), TestEngine::new("", |_| script));
        scene.engine.runtime.block_on(async {
            plan_without_tasks(&scene).await;
            let mut status = scene.run().await;
            if workflow == "release" {
                assert_eq!(status.state, "paused", "{status:#?}");
                let waiting = status.blockers.first().expect("one");
                assert_eq!((waiting.event.as_str(), waiting.unit.as_str()), ("UATPending", SLICE));
                assert_eq!(git(dir.path(), &["ls-tree", "--name-only", "main", "add.mjs"]), "");
                let slice = scene.unit(SLICE).await;
                assert!(!slice.runs.iter().any(|run| ["uat", "merge"].contains(&run.phase.as_str())));
                scene.order(SLICE, "accept", "").await;
                status = scene.end_of_loop().await;
            }
            assert_eq!(status.state, "complete", "{workflow}: {status:#?}");
            let slice = scene.unit(SLICE).await;
            let expected: Vec<String> =
                phases.windows(2).map(|pair| format!("{}>{}", pair[0], pair[1])).collect();
            assert_eq!(moves(&slice), expected, "{workflow}");
            assert_eq!(slice.gates.iter().any(|gate| gate.gate == "sum"), workflow != "spike", "{workflow}");
        });
        let parts = noted(&asked);
        assert_eq!(parts.iter().any(|part| part == "Review"), workflow != "spike", "{parts:?}");
        let merged = git(dir.path(), &["ls-tree", "--name-only", "main", "add.mjs"]);
        assert_eq!(merged.is_empty(), workflow == "spike", "{workflow}");
        scene.end();
    }
}

/// A result that waits for a person's acceptance pauses the loop and waits as long as it takes: no time ends it, and no look.
///
/// Rows: SF-094
#[test]
fn needs_userns_needs_git_an_acceptance_is_waited_for_without_an_end() {
    let workflow =
        "phases = [\"execute\", \"verify\", \"uat\", \"merge\", \"complete\"]\nrequire_uat = true\n";
    let dir = project("", GATE, workflow);
    let script = team(ONE_TASK, |_| writes("add", "a + b"));
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let first = first_run(&scene).await;
        let before = scene.unit(SLICE).await;
        assert_eq!((before.unit.phase.as_str(), before.unit.status.as_str()), ("uat", "pending"));
        scene.engine.clock.go_on(TEN_DAYS);
        let later = scene.run().await;
        for status in [first, later] {
            assert_eq!(status.state, "paused", "{status:#?}");
            let [waiting] = &status.blockers[..] else { panic!("one: {status:#?}") };
            assert_eq!((waiting.event.as_str(), waiting.unit.as_str()), ("UATPending", SLICE));
        }
        assert_eq!(scene.unit(SLICE).await, before, "nothing has happened");
    });
    assert_eq!(git(dir.path(), &["ls-tree", "--name-only", "main", "add.mjs"]), "");
    scene.end();
}

/// A goal is planned, coded, checked, reviewed and merged, and the only question is the one about its plan. Its files move to the
/// archive as they are, at the end or at the next start; a session belongs to the project over restarts, and looking makes none.
///
/// Rows: SF-001 SF-116 SF-261
/// Rows: SF-337 (in part: the folder of a unit, which is moved as it is) SF-336 (in part: the folder is gone at the end)
/// Rows: SF-023 (in part: a session is that of a project, also after a restart; looking makes none)
#[test]
fn needs_userns_needs_git_a_goal_is_merged_with_no_question_but_the_one_about_its_plan() {
    let dir = repository(GATE);
    let active = dir.path().join(".writ/active");
    let (place, folders) = (active.join("slice_m1_s1"), Notes::default());
    let seen = Arc::clone(&folders);
    let script = team(ONE_TASK, move |heard| match heard.part.as_str() {
        "Work" if heard.unit == TASK => writes("add", "a + b"),
        "Review" => match note(&seen, inode(&place)) {
            1 => review(
                "request_changes",
                json!([{ "path": "add.mjs", "line": 1, "severity": "low", "text": "why" }]),
            ),
            _ => review("pass", json!([])),
        },
        _ => done(),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let session = scene.engine.runtime.block_on(async {
        let store = scene.engine.store.clone();
        let name = key(&scene, TASK).project;
        scene.engine.call("pilot.status", scene.params()).await.expect_err("nothing is planned");
        let empty = json!({ "project": scene.project, "goal": " \n" });
        let refused = scene.engine.call("pilot.plan", empty).await.expect_err("no goal");
        assert_eq!((refused.code.as_str(), refused.exit), ("pilot.no_goal", Exit::Usage));
        assert_eq!(store.pilot_session(&name).await.expect("reads"), None);
        assert_eq!(store.unit_ids(&name).await.expect("reads"), Vec::<String>::new());
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        assert_eq!(scene.engine.facts("asked").len(), 1, "the plan");
        status.session
    });
    git(dir.path(), &["cat-file", "-e", "main:add.mjs"]);
    let folder = noted(&folders).last().copied().flatten().expect("the slice has files");
    let found = archived(dir.path(), "slice_m1_s1");
    assert_eq!(found.iter().filter_map(|path| inode(path)).collect::<Vec<u64>>(), [folder]);
    assert!(!active.join("slice_m1_s1").exists());
    // As a crash leaves it: a folder of a unit that is over, beside one of a unit that is not.
    scene.engine.runtime.block_on(scene.plan("the same once more"));
    for left in ["slice_m1_s1", "slice_m2_s1"] {
        std::fs::create_dir(active.join(left)).expect("made");
        std::fs::write(active.join(left).join("note.md"), "a note").expect("written");
    }
    let left = inode(&active.join("slice_m1_s1"));
    let scene = scene.restarted();
    let status = scene.engine.runtime.block_on(scene.status());
    assert_eq!(status.session, session, "the same session");
    assert!(!active.join("slice_m1_s1").exists() && active.join("slice_m2_s1/note.md").is_file());
    let found = archived(dir.path(), "slice_m1_s1");
    assert!(found.len() == 2 && found.iter().any(|path| inode(path) == left), "{found:?}");
    scene.end();
}

/// What a prompt and the store say of a phase at the same moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SeenPhase {
    part: String,
    phase: String,
    last_move: String,
    attempt: u32,
    is_resumed: bool,
}

/// An engine that dies within a phase begins it again, and one that dies after a move begins the next: a move is written before
/// anything of the next phase. The next attempt learns that the one before was cut off, and has a number of its own; every place is
/// free again, although all were taken.
///
/// Rows: SF-083 SF-110 SF-117
#[test]
fn needs_userns_needs_git_a_crash_before_or_after_a_move_goes_on_in_the_phase_that_is_written() {
    let workflow =
        "phases = [\"execute\", \"tdd\", \"verify\", \"merge\", \"complete\"]\nrequire_tdd = true\n";
    let agents = "[pilot.concurrency]\nmax_agents = 1\n";
    let dir = project("", &format!("{agents}{GATE}"), workflow);
    let (seen, never): (Notes<SeenPhase>, _) = (Notes::default(), ReplyGate::new());
    let store: Arc<OnceLock<(Store, UnitKey)>> = Arc::new(OnceLock::new());
    let (notes, held, reads) = (Arc::clone(&seen), never.clone(), Arc::clone(&store));
    let script = move |request: &ParsedRequest| {
        let heard = hear(request);
        if heard.part == "Goal" {
            return Reply::text(ONE_TASK);
        }
        let silent = || done().with_fault(ReplyFault::SlowFirstByte(held.clone()));
        let count = |part: &str| noted(&notes).iter().filter(|one| one.part == part).count();
        if heard.results > 0 {
            // The engine dies before the first attempt's end.
            return if heard.part == "Work" && count("Work") == 1 { silent() } else { done() };
        }
        let (store, key) = reads.get().expect("is set");
        let row = store.blocking().unit(key.clone()).expect("reads").expect("is there");
        let all = store.blocking().unit_transitions(key.clone()).expect("reads");
        let last_move = all.last().map(|one| format!("{}>{}", one.from, one.to)).unwrap_or_default();
        let is_resumed = heard.text.contains("resumed_after_crash");
        let (part, phase) = (heard.part.clone(), row.phase);
        note(&notes, SeenPhase { part, phase, last_move, attempt: row.attempt, is_resumed });
        match heard.part.as_str() {
            "Work" => writes("add", "a + b"),
            // And right after the move to the tests.
            _ if count("Tests") == 1 => silent(),
            _ => done(),
        }
    };
    let mut scene = scene(dir.path(), TestEngine::new("", |_| script));
    store.set((scene.engine.store.clone(), key(&scene, TASK))).expect("once");
    let until = async |scene: &Scene, part: &str| {
        while !noted(&seen).iter().any(|one| one.part == part)
            || scene.engine.server.connections_waiting() == 0
        {
            scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
        }
    };
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
    });
    for part in ["Work", "Tests"] {
        scene.engine.runtime.block_on(async {
            until(&scene, part).await;
            // It does not go on by itself, so that what the start has done is seen.
            let session = scene.status().await.session;
            let paused =
                UnitOp::MoveSession { session, status: "paused".to_owned(), at: scene.engine.clock.now() };
            scene.engine.store.commit(Batch::synced(vec![Op::Units(paused)])).await.expect("written");
        });
        scene = scene.restarted();
        scene.engine.runtime.block_on(async {
            let status = scene.status().await;
            assert!(status.units.iter().all(|unit| !unit.is_running), "{status:#?}");
            let row = scene.engine.store.unit(key(&scene, TASK)).await.expect("reads").expect("is there");
            assert_eq!((row.claim, row.phase_status.as_str()), (None, "interrupted"));
            scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        });
    }
    let status = scene.engine.runtime.block_on(scene.end_of_loop());
    assert_eq!(status.state, "complete", "{status:#?}");
    let one = |part: &str, phase: &str, last_move: &str, attempt, is_resumed| SeenPhase {
        part: part.to_owned(),
        phase: phase.to_owned(),
        last_move: last_move.to_owned(),
        attempt,
        is_resumed,
    };
    let expected = [
        one("Work", "execute", "", 1, false),
        one("Work", "execute", "", 2, true),
        one("Tests", "tdd", "execute>tdd", 3, false),
        one("Tests", "tdd", "execute>tdd", 4, true),
    ];
    // The engine goes on with a turn that it finds, and asks once more, until the autopilot ends it.
    let mut seen = noted(&seen);
    seen.dedup();
    assert_eq!(seen, expected);
    never.open();
    scene.end();
}

/// A unit whose gates fail for good is decided about with its whole trail: another answer than the three decisions is a failed
/// attempt, questions wait for a person, another plan counts once, and none is left then; an end leaves its reason.
///
/// Rows: SF-101 SF-102 SF-103 SF-105 SF-106
/// Rows: SF-104 (in part: the file, the end and the outcome; hooks: the commands' test)
#[test]
fn needs_userns_needs_git_a_unit_that_fails_for_good_is_decided_about_with_its_trail() {
    let gate = "\n[[gate]]\nname = \"sum\"\nrun = [\"sh\", \"-c\", \"echo wrong in $WRIT_UNIT_ID; grep -q 'a + b' *.mjs\"]\n";
    let workflow = "phases = [\"plan\", \"execute\", \"verify\", \"merge\", \"complete\"]\nmax_retries = 0\nmax_reassess = 1\n";
    let dir = project("", gate, workflow);
    let decisions: Notes<String> = Notes::default();
    let trail = Arc::clone(&decisions);
    let replans = |unit: &str, how: &str| {
        let plan = plan_of(unit).replace("Write it.", how);
        Reply::text(&json!({ "decision": "replan", "plan": plan, "reason": "another way" }).to_string())
    };
    let (plans, file) = (Notes::default(), dir.path().join(".writ/active/task_m1_s1_t1/plan.md"));
    let made = Arc::clone(&plans);
    let mut rest = team(TWO_SLICES, move |heard| match (heard.part.as_str(), heard.unit.as_str()) {
        ("Work", TASK) => {
            writes("add", if heard.text.contains("The second way.") { "a * b" } else { "a - b" })
        }
        ("Work", _) => writes("mul", "a / b"),
        ("Decision", TASK) => match note(&trail, heard.text.clone()) {
            1 => Reply::text("Let us carry on."),
            2 | 5 => escalates(),
            3 => replans(TASK, "The second way."),
            4 => replans(TASK, "The third way."),
            _ => abandons(),
        },
        _ => abandons(),
    });
    // The planner of a unit takes over the plan of the decision, which is its file by then.
    let script = move |request: &ParsedRequest| {
        let heard = hear(request);
        let plan = std::fs::read_to_string(&file).unwrap_or_default();
        if (heard.part.as_str(), heard.unit.as_str()) != ("Plan", TASK) {
            return rest(request);
        }
        note(&made, plan.clone());
        if plan.is_empty() { rest(request) } else { Reply::text(&format!("{plan}\n{DONE}")) }
    };
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let active = dir.path().join(".writ/active/task_m1_s1_t1");
    let plan_file = || std::fs::read_to_string(active.join("plan.md")).expect("is there");
    let counters = || {
        let all = scene.engine.store.blocking().unit_counters(key(&scene, TASK)).expect("reads");
        all.into_iter().find(|(name, _)| name == "replans").map_or(0, |(_, count)| count)
    };
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "paused", "{status:#?}");
        let task = scene.unit(TASK).await;
        assert_eq!(task.unit.phase, "reassess", "words that are no decision move nothing: {task:#?}");
        let decided: Vec<String> =
            task.runs.iter().filter(|run| run.phase == "reassess").map(|run| run.error.clone()).collect();
        assert_eq!(decided, ["pilot.reassess", ""], "{task:#?}");
        assert_eq!(
            std::fs::read_to_string(active.join("human-question.md")).expect("is there"),
            "- which sum is meant?\n"
        );
        scene.engine.clock.go_on(Duration::from_secs(60 * 60));
        let status = scene.run().await;
        assert!(status.state == "paused" && noted(&decisions).len() == 2, "no wait answers it: {status:#?}");
        assert_eq!(counters(), 0, "a question is no other plan");
        scene.order(TASK, "resume", "").await;
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "paused", "{status:#?}");
        // The second plan was worked on; the third was refused, and the question after it taken.
        assert_eq!((counters(), noted(&decisions).len()), (1, 5));
        assert!(plan_file().contains("The second way."), "{}", plan_file());
        let plans = noted(&plans);
        assert!(
            plans.len() == 2 && plans[1].contains("The second way."),
            "the decision writes it: {plans:#?}"
        );
        let task = scene.unit(TASK).await;
        assert!(task.runs.iter().any(|run| run.error == "pilot.no_replan_left"), "{task:#?}");
        assert_eq!(
            moves(&task).iter().filter(|one| *one == "reassess>plan").count(),
            1,
            "{:?}",
            moves(&task)
        );
        assert_eq!(task.unit.phase, "reassess");
        scene.order(TASK, "resume", "").await;
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let task = scene.unit(TASK).await;
        assert_eq!((task.unit.phase.as_str(), task.unit.status.as_str()), ("complete", "failed"));
        assert_eq!(task.runs.last().and_then(|run| run.outcome.as_deref()), Some("abandoned"));
        assert_eq!(counters(), 1);
    });
    let [folder] = &archived(dir.path(), "task_m1_s1_t1")[..] else { panic!("one folder") };
    assert_eq!(std::fs::read_to_string(folder.join("decision.md")).expect("is there"), "it cannot be done");
    let prompts = noted(&decisions);
    let own = [
        "Write add in add.mjs.",
        "> # Approach",
        "> Write it.",
        "wrong in task/m1/s1/t1",
        "Its last commits:",
    ];
    for part in own {
        assert!(prompts[0].contains(part), "{part}: {}", prompts[0]);
    }
    assert!(prompts[1].contains("pilot.reassess"), "the failed attempt: {}", prompts[1]);
    assert!(prompts[3].contains("The second way."), "{}", prompts[3]);
    assert!(prompts.iter().all(|text| !text.contains("task/m1/s2")), "of this unit alone");
    scene.end();
}
