//! The settings of the autopilot, each with what it does: ceilings, times, tiers, the supervisor's checks, work trees and reports.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use writ_models::ModelRole;
use writ_pilot::pilots::OwnerFiles;
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::action::Action;
use writ_types::api::pilot::{PilotStatus, PilotUnitDetails};
use writ_types::api::work::WorkState;
use writ_types::chat::Role;
use writ_types::entry::Fact;
use writ_types::unit::MicroUsd;

use crate::autopilot::{DONE, Scene, git, moves, plan_of, repository};
use crate::harness::TestEngine;

/// The plan of one task.
pub(crate) const ONE_TASK: &str = "\
- [ ] A library of sums <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * add adds
    - [ ] add <!-- task/m1/s1/t1 -->
      Write add in add.mjs.
";

/// The plan of two slices with one task each.
pub(crate) const TWO_SLICES: &str = "\
- [ ] A library of sums <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * add adds
    - [ ] add <!-- task/m1/s1/t1 -->
      Write add in add.mjs.
  - [ ] Products <!-- slice/m1/s2 code_depends_on=m1/s1 -->
    Acceptance:
    * mul multiplies
    - [ ] mul <!-- task/m1/s2/t1 -->
      Write mul in mul.mjs.
";

/// A workflow with the fewest phases, and one with a plan, too.
pub(crate) const SHORT: &str = "phases = [\"execute\", \"verify\", \"merge\", \"complete\"]\n";
const PLANNED: &str = "phases = [\"plan\", \"execute\", \"verify\", \"merge\", \"complete\"]\n";

/// A gate that wants a right sum.
pub(crate) const GATE: &str =
    "\n[[gate]]\nname = \"sum\"\nrun = [\"grep\", \"-q\", \"a + b\", \"add.mjs\"]\n";

pub(crate) const TASK: &str = "task/m1/s1/t1";

/// A repository whose settings begin with those of `[pilot]`, with a workflow.
pub(crate) fn project(pilot: &str, rest: &str, workflow: &str) -> tempfile::TempDir {
    let dir = repository(&format!(
        "[pilot]\ndefault_workflow = \"own\"\nmax_retry_backoff = \"1s\"\n{pilot}\n{rest}"
    ));
    std::fs::create_dir_all(dir.path().join(".writ/workflows")).expect("made");
    std::fs::write(dir.path().join(".writ/workflows/own.toml"), workflow).expect("written");
    dir
}

/// A request to one of the team.
pub(crate) struct Asked<'a> {
    /// `Plan` for the goal, otherwise the first word of the prompt's heading: `Work`, `Decision`, `Goal`.
    pub(crate) part: &'static str,
    /// The unit.
    pub(crate) unit: String,
    /// The name of the task.
    pub(crate) name: String,
    /// Set if it answers results of tools of its turn.
    pub(crate) has_results: bool,
    request: &'a ParsedRequest,
}

impl Asked<'_> {
    /// Returns the text of the newest message of a person: the prompt of the turn.
    pub(crate) fn prompt(&self) -> String {
        let newest = self.request.messages.iter().rfind(|message| message.role == Role::User);
        newest.map(|message| message.text.clone()).unwrap_or_default()
    }
}

fn read(request: &ParsedRequest) -> Asked<'_> {
    let first = request.messages.iter().find(|message| !message.text.is_empty());
    let text = first.map(|message| message.text.as_str()).unwrap_or_default();
    let heading = text.lines().find(|line| line.starts_with("# ")).unwrap_or_default();
    let unit = heading.split(' ').find(|word| word.contains("/m")).unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("Task: ")).unwrap_or_default();
    let part = match heading.split(' ').nth(1).unwrap_or_default() {
        "Plan" if heading.starts_with("# Plan a goal") => "Goal",
        "Plan" => "Plan",
        "Decision" => "Decision",
        _ => "Work",
    };
    let asked = request.messages.iter().rposition(|message| message.role == Role::User);
    let of_turn = request.messages.iter().skip(asked.unwrap_or_default());
    Asked {
        part,
        unit: unit.trim_end_matches([',', '.']).to_owned(),
        name: name.trim().trim_matches('"').to_owned(),
        has_results: of_turn.flat_map(|message| &message.results).next().is_some(),
        request,
    }
}

/// The coder's call that writes a function.
pub(crate) fn writes(name: &str, body: &str) -> Reply {
    let content = format!("export const {name} = (a, b) => {body};\n");
    Reply::call("file_write", json!({ "path": format!("{name}.mjs"), "content": content }))
}

pub(crate) fn done() -> Reply {
    Reply::text(&format!("Written.\n{DONE}"))
}

/// A team whose coder answers by the number of its try.
pub(crate) fn coder(
    outline: &'static str,
    mut code: impl FnMut(usize, &Asked<'_>) -> Reply + Send + 'static,
) -> impl FnMut(&ParsedRequest) -> Reply + Send + 'static {
    let mut tries = 0_usize;
    move |request| {
        let asked = read(request);
        match asked.part {
            "Goal" => Reply::text(outline),
            "Plan" => Reply::text(&format!("{}\n{DONE}", plan_of(&asked.unit))),
            "Decision" => Reply::text(r#"{"decision":"escalate","questions":["which sum is meant?"]}"#),
            _ if asked.has_results => code(tries, &asked),
            _ => {
                tries += 1;
                code(tries, &asked)
            }
        }
    }
}

pub(crate) fn scene(dir: &Path, engine: TestEngine) -> Scene {
    Scene::of_engine(engine, std::fs::canonicalize(dir).expect("is there"))
}

/// Plans, approves and runs until the loop ends.
pub(crate) async fn first_run(scene: &Scene) -> PilotStatus {
    let planned = scene.plan("a library of sums").await;
    scene.approve(&planned.ask).await;
    scene.run().await
}

async fn resume(scene: &Scene, unit: &str) -> PilotStatus {
    scene.order(unit, "resume", "").await;
    scene.end_of_loop().await
}

fn outcomes(task: &PilotUnitDetails, phase: &str) -> Vec<String> {
    let of_phase = task.runs.iter().filter(|run| run.phase == phase);
    of_phase.map(|run| format!("{}:{}", run.outcome.as_deref().unwrap_or("-"), run.error)).collect()
}

fn words(status: &PilotStatus) -> String {
    assert_eq!(status.state, "paused", "{status:#?}");
    let paused = status.blockers.iter().find(|blocker| blocker.event == "Paused");
    paused.unwrap_or_else(|| panic!("{:?}", status.blockers)).detail.clone()
}

/// A ceiling of the owner's own file ends the attempt that would pass it, lets no other begin, and is a pause that is lifted by
/// raising it: nothing is restarted, and nothing counts as a failure.
///
/// Rows: SF-301 (in part: the owner's file holds below the project's) SF-320 (in part: a changed file governs later dispatches)
/// Rows: SF-483 (in part: budget_exhausted)
#[test]
fn needs_userns_needs_git_a_ceiling_pauses_and_is_lifted_by_raising_it() {
    let (dir, home) = (project("", GATE, SHORT), tempfile::tempdir().expect("temp dir"));
    let owner = home.path().join("pilot.toml");
    let ceiling = |micro: u64| {
        let text = format!("[pilot.ceilings]\nunit_micro_usd = {micro}\n");
        std::fs::write(&owner, text).expect("written");
    };
    let wasteful = Arc::new(Mutex::new(true));
    let mood = Arc::clone(&wasteful);
    let script = coder(ONE_TASK, move |_, asked| {
        if *mood.lock().unwrap_or_else(PoisonError::into_inner) {
            return Reply::call("file_read", json!({ "path": "package.json" })).with_usage(2_000, 200);
        }
        if asked.has_results { done() } else { writes("add", "a + b") }
    });
    // Enough for the first request, of which most is the description of the tools, and for a few answers.
    ceiling(75_000);
    let engine = TestEngine::priced(
        |parts| {
            parts.config.begun.agent_config.limits.max_output_tokens = writ_types::unit::Tokens::new(1_000);
        },
        |_| script,
    );
    let path = std::fs::canonicalize(dir.path()).expect("is there");
    let scene = Scene::with_owner_files(
        engine,
        path,
        OwnerFiles { settings: Some(owner.clone()), hidden_tests: None },
    );
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert!(words(&status).contains("it might spend $0.075000"), "{status:#?}");
        let task = scene.unit(TASK).await;
        assert_eq!(outcomes(&task, "execute"), ["failure:budget_exhausted"], "{task:#?}");
        let spent = task.unit.cost;
        assert!(spent > MicroUsd::ZERO && spent <= MicroUsd::new(75_000), "{spent}");
        let line = status.settings.iter().find(|line| line.key == "pilot.ceilings.unit_micro_usd");
        let line = line.expect("is listed");
        assert_eq!((line.value.as_str(), line.source.clone()), ("75000", format!("{}:2", owner.display())));
        // Below what is spent: no attempt begins at all.
        ceiling(1);
        let status = resume(&scene, TASK).await;
        assert!(words(&status).contains("the ceiling of the unit is $0.000001"), "{status:#?}");
        assert_eq!(scene.unit(TASK).await.runs.len(), 1, "no try is counted");
        ceiling(10_000_000);
        *wasteful.lock().unwrap_or_else(PoisonError::into_inner) = false;
        let status = resume(&scene, TASK).await;
        assert_eq!(status.state, "complete", "{status:#?}");
    });
    git(dir.path(), &["cat-file", "-e", "main:add.mjs"]);
    scene.end();
}

/// The ceiling of a day holds for the planner's questions, too: what is spent today by one goal is not there for the next.
#[test]
fn needs_userns_needs_git_the_ceiling_of_a_day_holds_for_every_goal() {
    let dir = project("", &format!("[pilot.ceilings]\nday_micro_usd = 900_000\n{GATE}"), SHORT);
    let script = coder(ONE_TASK, |_, asked| {
        let reply = if asked.has_results { done() } else { writes("add", "a + b") };
        reply.with_usage(20_000, 100)
    });
    let scene = scene(dir.path(), TestEngine::priced(|_| {}, |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let spent = status.cost;
        assert!(spent > MicroUsd::ZERO && spent < MicroUsd::new(900_000), "{spent}");
        let settings = std::fs::read_to_string(dir.path().join(".writ/pilot.toml")).expect("reads");
        let lowered = settings.replace("900_000", &spent.get().to_string());
        std::fs::write(dir.path().join(".writ/pilot.toml"), lowered).expect("written");
        let params = json!({ "project": scene.project, "goal": "another library" });
        let refused = scene.engine.call("pilot.plan", params).await.expect_err("nothing is left for today");
        assert_eq!(refused.code, "pilot.ceiling");
        assert!(refused.outside.contains("day"), "{refused:?}");
    });
    scene.end();
}

/// A model that never answers and a program that hangs end their attempts: each is tried again after a pause, and named.
///
/// Rows: SF-121 (in part: a silent and a hanging worker) SF-480 (in part: stall and turn timeout) SF-483 (in part: stalled)
#[test]
fn needs_userns_needs_git_what_is_silent_or_hangs_is_ended_and_tried_again() {
    // Longer than an attempt of this test may take on a busy machine: the clock jumps once the model or the program is at it.
    let times = "stall_timeout = \"60s\"\nturn_timeout = \"120s\"\nsupervisor_interval = \"100ms\"";
    let dir = project(times, GATE, SHORT);
    let silence = ReplyGate::new();
    let gate = silence.clone();
    let script = coder(ONE_TASK, move |n, asked| match n {
        1 => done().with_fault(ReplyFault::SlowFirstByte(gate.clone())),
        2 => Reply::call("shell_exec", json!({ "argv": ["sleep", "600"] })),
        _ if asked.has_results => done(),
        _ => writes("add", "a + b"),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let clock = &scene.engine.clock;
    let jumps = async {
        while scene.engine.server.connections_waiting() == 0 {
            clock.wait_until_moved(clock.now()).await;
        }
        clock.go_on(Duration::from_secs(61));
        let is_program = |fact: &Fact| matches!(fact, Fact::Intent { action: Action::Exec(exec), .. } if exec.argv == ["sleep", "600"]);
        while !scene.engine.facts("intent").iter().any(is_program) {
            clock.wait_until_moved(clock.now()).await;
        }
        clock.go_on(Duration::from_secs(121));
    };
    scene.engine.runtime.block_on(async {
        let (status, ()) = tokio::join!(Box::pin(first_run(&scene)), jumps);
        assert_eq!(status.state, "complete", "{status:#?}");
        let task = scene.unit(TASK).await;
        let expected = ["stalled:stalled", "turn_timeout:turn_timeout", "success:"];
        assert_eq!(outcomes(&task, "execute"), expected, "{task:#?}");
        let waits = |n: usize| {
            let (one, other) = (&task.runs[n], &task.runs[n + 1]);
            other.started_at.time_since(one.started_at)
        };
        assert!(waits(0).as_secs() >= 61, "a minute of silence and a pause of one second: {:?}", waits(0));
        assert!(waits(1).as_secs() >= 121, "{:?}", waits(1));
    });
    silence.open();
    scene.end();
}

/// A coder that talks and does nothing, and one that does the same again and again, wait for a person after a few turns, which end the
/// attempt; a person's word lets them go on.
///
/// Rows: SF-178 (in part: pause) SF-179 (in part: the pause) SF-182
#[test]
fn needs_userns_needs_git_turns_without_progress_pause() {
    for (setting, check) in [("silent_turns = 2", "abandon_detect"), ("repeats = 2", "stuck_loop")] {
        let rest = format!("[pilot.supervisor]\n{setting}\n{GATE}");
        let dir = project("max_idle_ends = 9", &rest, SHORT);
        let is_mended = Arc::new(Mutex::new(false));
        let mended = Arc::clone(&is_mended);
        let script = coder(ONE_TASK, move |_, asked| {
            let works = *mended.lock().unwrap_or_else(PoisonError::into_inner);
            match (works, asked.has_results) {
                (true, true) => done(),
                (true, false) => writes("add", "a + b"),
                (false, false) if check == "stuck_loop" => {
                    Reply::call("file_read", json!({ "path": "package.json" }))
                }
                (false, _) => Reply::text("I think about it."),
            }
        });
        let scene = scene(dir.path(), TestEngine::new("", |_| script));
        scene.engine.runtime.block_on(async {
            let status = first_run(&scene).await;
            assert!(words(&status).starts_with(check), "{status:#?}");
            let task = scene.unit(TASK).await;
            assert_eq!(task.runs.len(), 1, "two turns of one attempt: {task:#?}");
            assert_eq!(task.runs[0].error, "canceled_by_supervisor");
            *is_mended.lock().unwrap_or_else(PoisonError::into_inner) = true;
            let status = resume(&scene, TASK).await;
            assert_eq!(status.state, "complete", "{status:#?}");
        });
        scene.end();
    }
}

/// A target whose history is rewritten, and a branch that someone else moves, wait for a person, with both commits named. A commit on
/// top of the target is none of both.
///
/// Rows: SF-183
#[test]
fn needs_userns_needs_git_branches_that_others_move_pause() {
    let dir = project("", GATE, SHORT);
    let path = dir.path().to_owned();
    let script = coder(ONE_TASK, move |n, asked| {
        if asked.has_results {
            return done();
        }
        match n {
            1 => {
                git(&path, &["commit", "-q", "--allow-empty", "-m", "daily work"]);
                writes("add", "a - b")
            }
            2 => {
                git(&path, &["commit", "-q", "--amend", "--allow-empty", "-m", "rewritten"]);
                writes("add", "a * b")
            }
            _ => writes("add", "a + b"),
        }
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        let why = words(&status);
        assert!(why.starts_with("git_divergence: the history of 'main' was rewritten"), "{why}");
        assert_eq!(scene.unit(TASK).await.runs.len(), 3, "a commit on top has paused nothing");
        // While it waits, someone moves its branch; what a person has seen before the word is right.
        let workspace = dir.path().join(".writ/workspaces/slice_m1_s1");
        git(&workspace, &["commit", "-q", "--allow-empty", "-m", "a person's"]);
        let status = resume(&scene, TASK).await;
        assert_eq!(status.state, "complete", "{status:#?}");
    });
    assert!(git(dir.path(), &["log", "--format=%s", "main"]).contains("rewritten"));
    scene.end();
}

/// Each phase has the model of its tier; a failed try raises the tier, a model that is not there is passed over, and what the
/// strongest cannot do comes to a person. A gate has retries of its own.
///
/// Rows: SF-244
/// Rows: SF-311 (in part: retries of one gate) SF-316 (in part: the tiers of two phases) SF-344
#[test]
fn needs_userns_needs_git_failed_tries_raise_the_tier_and_then_ask_a_person() {
    let rest = format!(
        "[tiers.standard]\nmodels = [\"test/none\", \"test/plain\"]\n[tiers.reasoning]\nmodels = [\"test/strong\"]\n{GATE}max_retries = 1\n"
    );
    let dir = project("escalate_after = 1", &rest, SHORT);
    let asked_models = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked_models);
    let script = move |request: &ParsedRequest| {
        let asked = read(request);
        if !asked.has_results && asked.part != "Goal" {
            let line = format!("{}:{}", asked.part, asked.request.model);
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
        match asked.part {
            "Goal" => Reply::text(ONE_TASK),
            "Decision" => Reply::text(r#"{"decision":"escalate","questions":["which sum is meant?"]}"#),
            _ if asked.has_results => Reply::text(&format!("Use test/best for me.\n{DONE}")),
            // Wrong in another way each time.
            _ => writes("add", if asked.request.model == "strong" { "a * b" } else { "a - b" }),
        }
    };
    let roles = [(ModelRole::Executor, "usual"), (ModelRole::Scorer, "plain"), (ModelRole::Oracle, "strong")];
    let scene = scene(dir.path(), TestEngine::with_roles(&roles, |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert!(words(&status).contains("which sum is meant?"), "{status:#?}");
        let models = asked_models.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert_eq!(models, ["Work:plain", "Work:strong", "Decision:strong"]);
        let task = scene.unit(TASK).await;
        let gates: Vec<bool> =
            task.gates.iter().filter(|gate| gate.gate == "sum").map(|gate| gate.passed).collect();
        assert_eq!(gates, [false, false], "one run and one more: {task:#?}");
    });
    // Elsewhere than in the gate itself no number can be given, so it cannot be one of a gate that is not there.
    let named = "[gates.max_retries]\nlint = 1\n";
    assert!(writ_pilot::config::read_config(&[("pilot.toml", named)]).is_err());
    let usual = writ_autopilot::workflow::parse_workflow("own", SHORT).expect("reads");
    assert_eq!(usual.retries_of("sum"), 3);
    scene.end();
}

/// Slices that share a work tree work in it one after another, each merged before the next begins.
#[test]
fn needs_userns_needs_git_slices_share_a_work_tree_where_the_settings_say_so() {
    let dir = project("worktree_mode = \"milestone-per-worktree\"", GATE, SHORT);
    let (path, seen) = (dir.path().to_owned(), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&seen);
    let script = coder(TWO_SLICES, move |_, asked| {
        if asked.has_results {
            return done();
        }
        let trees = git(&path, &["worktree", "list", "--porcelain"]);
        let names: Vec<String> = trees
            .lines()
            .filter_map(|line| line.strip_prefix("worktree ")?.split_once("/workspaces/"))
            .map(|(_, name)| name.to_owned())
            .collect();
        let merged = git(&path, &["ls-tree", "--name-only", "main"]).contains("add.mjs");
        let line = format!("{}:{}:{merged}", asked.name, names.join(","));
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        writes(&asked.name, "a + b")
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
    });
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(seen, ["add:milestone_m1:false", "mul:milestone_m1:true"]);
    git(dir.path(), &["cat-file", "-e", "main:mul.mjs"]);
    assert_eq!(git(dir.path(), &["branch", "--list", "writ/*"]), "");
    scene.end();
}

/// Work that was begun in one mode of work trees is never looked for in the other: its branch would seem to be empty, and nothing to be
/// merged would count as merged. The project opens again once the setting is as it was.
#[test]
fn needs_userns_needs_git_begun_work_keeps_its_mode_of_work_trees() {
    let modes = ["branch-per-slice", "milestone-per-worktree"];
    for (mode, other) in [(modes[0], modes[1]), (modes[1], modes[0])] {
        let dir = project(&format!("worktree_mode = \"{mode}\""), GATE, SHORT);
        let script =
            coder(ONE_TASK, |_, asked| if asked.has_results { done() } else { writes("add", "a - b") });
        let scene = scene(dir.path(), TestEngine::new("", |_| script));
        scene.engine.runtime.block_on(async {
            let status = first_run(&scene).await;
            assert_eq!(status.state, "paused", "{status:#?}");
        });
        let settings = dir.path().join(".writ/pilot.toml");
        let text = std::fs::read_to_string(&settings).expect("reads");
        std::fs::write(&settings, text.replace(mode, other)).expect("written");
        let scene = scene.restarted();
        let params = json!({ "project": scene.project });
        let refused = scene.engine.runtime.block_on(scene.engine.call("pilot.status", params));
        let refused = refused.expect_err("its branch is another");
        assert!(
            refused.outside.contains("slice/m1/s1 was begun with another `worktree_mode`"),
            "{refused:?}"
        );
        std::fs::write(&settings, text).expect("written");
        let status = scene.engine.runtime.block_on(scene.status());
        assert_eq!(status.state, "paused", "{status:#?}");
        scene.end();
    }
}

/// A gate's report is read from the file that it writes in its sandbox: one that was there before counts nothing.
#[test]
fn needs_userns_needs_git_a_report_is_the_file_that_the_gate_has_written() {
    let run = "grep -q 'a + b' add.mjs && mkdir -p out && printf 'TAP version 13\\n1..1\\nok 1 - add\\n' > out/report.tap; true";
    let gate = format!(
        "\n[[gate]]\nname = \"report\"\nrun = [\"sh\", \"-c\", \"{}\"]\nreport = \"tap\"\nreport_file = \"out/report.tap\"\n",
        run.replace('\\', "\\\\")
    );
    let dir = project("", &gate, SHORT);
    std::fs::create_dir(dir.path().join("out")).expect("made");
    std::fs::write(dir.path().join("out/report.tap"), "TAP version 13\n1..1\nok 1 - add\n").expect("written");
    git(dir.path(), &["add", "--force", "out/report.tap"]);
    git(dir.path(), &["commit", "-qm", "Leave a report"]);
    let script = coder(ONE_TASK, |n, asked| match (n, asked.has_results) {
        (_, true) => done(),
        (1, false) => writes("add", "a - b"),
        _ => writes("add", "a + b"),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let task = scene.unit(TASK).await;
        let gates: Vec<bool> =
            task.gates.iter().filter(|gate| gate.gate == "report").map(|gate| gate.passed).collect();
        assert_eq!(gates, [false, true], "{task:#?}");
    });
    scene.end();
}

/// A unit that works while the one that it rests on is abandoned is ended at once, without a failure, and is planned anew.
#[test]
fn needs_userns_needs_git_a_running_dependant_of_an_abandoned_unit_is_planned_anew() {
    let gate = "\n[[gate]]\nname = \"there\"\nrun = [\"test\", \"-f\", \"package.json\"]\n";
    let dir = project("", gate, PLANNED);
    let (never, at_work) = (ReplyGate::new(), ReplyGate::new());
    let (gate, mut held) = (never.clone(), false);
    let script = move |request: &ParsedRequest| {
        let asked = read(request);
        match asked.part {
            "Goal" => Reply::text(TWO_SLICES),
            "Plan" => Reply::text(&format!("{}\n{DONE}", plan_of(&asked.unit))),
            // Not before the dependant is at work.
            "Decision" if asked.unit.contains("/s1") => {
                Reply::text(r#"{"decision":"abandon","reason":"it cannot be done"}"#)
                    .with_fault(ReplyFault::SlowFirstByte(at_work.clone()))
            }
            "Decision" => Reply::text(
                &json!({ "decision": "replan", "plan": plan_of(&asked.unit), "reason": "without sums" })
                    .to_string(),
            ),
            _ if asked.has_results => done(),
            _ if asked.name == "add" => Reply::text("I cannot.\n<turn_status>giving_up</turn_status>"),
            // It is at work for as long as the other slice takes to be abandoned.
            _ if asked.name == "mul" && !held => {
                held = true;
                at_work.open();
                done().with_fault(ReplyFault::SlowFirstByte(gate.clone()))
            }
            _ => writes(&asked.name, "a * b"),
        }
    };
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let plan = status.plans.first().expect("one");
        assert_eq!((plan.state, plan.reason.as_str()), (WorkState::Failed, "not delivered: slice/m1/s1"));
        let task = scene.unit("task/m1/s2/t1").await;
        assert_eq!(outcomes(&task, "execute"), ["interrupted:interrupted", "success:"], "{task:#?}");
        let way = ["plan>execute", "execute>reassess", "reassess>plan", "plan>execute"];
        assert_eq!(moves(&task).get(..4).map(<[String]>::to_vec), Some(way.map(str::to_owned).to_vec()));
        let why = &task.moves[1].reason;
        assert!(why.starts_with("upstream_abandoned: slice/m1/s1 was abandoned"), "{why}");
    });
    git(dir.path(), &["cat-file", "-e", "main:mul.mjs"]);
    never.open();
    scene.end();
}
