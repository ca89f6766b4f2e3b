//! Settings, plans and models of the autopilot while it works: what is in force, from when on, and for whom.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;
use writ_models::ModelRole;
use writ_store::units::{ChoiceRow, UnitKey};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::api::pilot::{PilotBenchmark, PilotStatus, PilotUnitLine};

use crate::autopilot::{DONE, Scene, git, moves, plan_of};
use crate::autopilot_hooks::{commit_script, hook_runs};
use crate::autopilot_limits::{
    GATE, SHORT, TASK, TWO_SLICES, coder, done, first_run, project, scene, writes,
};
use crate::harness::TestEngine;

/// The task of the second slice.
const OTHER: &str = "task/m1/s2/t1";
/// A gate that passes on every tree.
const THERE: &str = "\n[[gate]]\nname = \"there\"\nrun = [\"test\", \"-f\", \"package.json\"]\n";
/// The plan of one task.
const ONE_TASK: &str = "\
- [ ] A library of sums <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * add adds
    - [ ] add <!-- task/m1/s1/t1 -->
      Write add in add.mjs.
";

fn unit_of(status: &PilotStatus, id: &str) -> PilotUnitLine {
    status.units.iter().find(|unit| unit.id == id).unwrap_or_else(|| panic!("{id}: {status:#?}")).clone()
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The text of a request's first message, which is the prompt of an attempt.
fn prompt_of(request: &ParsedRequest) -> String {
    let first = request.messages.iter().find(|message| !message.text.is_empty());
    first.map(|message| message.text.clone()).unwrap_or_default()
}

/// The words of a prompt's heading: the part and the unit.
fn heading_of(request: &ParsedRequest) -> (String, String) {
    let text = prompt_of(request);
    let heading = text.lines().find(|line| line.starts_with("# ")).unwrap_or_default();
    let unit = heading.split(' ').find(|word| word.contains("/m")).unwrap_or_default();
    let part = heading.split(' ').nth(1).unwrap_or_default();
    let part = if heading.starts_with("# Plan a goal") { "Goal" } else { part };
    (part.to_owned(), unit.trim_end_matches([',', '.']).to_owned())
}

/// Takes the settings out of the repository, so that a test may change them while the checkout moves.
fn untrack_settings(dir: &Path) {
    git(dir, &["rm", "-q", "--cached", ".writ/pilot.toml"]);
    git(dir, &["commit", "-qm", "Leave the settings out"]);
}

/// Has the loop look at its settings, until the status is as wanted.
async fn until(scene: &Scene, is_so: impl Fn(&PilotStatus) -> bool) -> PilotStatus {
    loop {
        // It wakes the loop, as a person's other orders do.
        scene.reload(false).await;
        let status = scene.status().await;
        if is_so(&status) {
            return status;
        }
        scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
    }
}

fn value_of(status: &PilotStatus, key: &str) -> String {
    status.settings.iter().find(|line| line.key == key).map(|line| line.value.clone()).unwrap_or_default()
}

/// A file that is changed while a unit is at work governs what is handed out next, and leaves that unit alone. One with a mistake
/// changes nothing. What is fixed for a session stays as it is until a restart, with a line for each in the status.
///
/// Rows: SF-321 (in part: without the warning in the log) SF-320 (in part: dispatches and limits; hooks are files of the home)
/// Rows: SF-322 SF-324
#[test]
fn needs_userns_needs_git_a_changed_file_governs_what_is_handed_out_next() {
    let settings = |pilot: &str, execute: u32| {
        format!(
            "[pilot]\ndefault_workflow = \"own\"\n{pilot}\n[pilot.concurrency.max_agents_by_phase]\nexecute = {execute}\n{THERE}"
        )
    };
    let dir = project("", THERE, SHORT);
    untrack_settings(dir.path());
    let file = dir.path().join(".writ/pilot.toml");
    // By a rename, so that no look reads half of it.
    let write = |text: &str| {
        let fresh = dir.path().join(".writ/fresh");
        std::fs::write(&fresh, text).expect("written");
        std::fs::rename(&fresh, &file).expect("renamed");
    };
    write(&settings("", 1));
    let held = ReplyGate::new();
    let gate = held.clone();
    let outline = TWO_SLICES_APART.as_str();
    let script = coder(outline, move |_, asked| match (asked.has_results, asked.name.as_str()) {
        (true, _) => done(),
        (false, "add") => writes("add", "a + b").with_fault(ReplyFault::SlowFirstByte(gate.clone())),
        (false, name) => writes(name, "a * b"),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        until(&scene, |status| unit_of(status, TASK).is_running).await;
        let first = scene.unit(TASK).await.runs;
        for broken in ["[pilot", "[pilot]\nmax_agents = 3\n"] {
            write(broken);
            let fault = |line: &String| line.starts_with("the settings are not in force: .writ/pilot.toml, line ");
            let status = until(&scene, |status| status.warnings.iter().any(fault)).await;
            assert_eq!(unit_of(&status, OTHER).attempt, 0, "the earlier limit holds");
            assert_eq!(value_of(&status, "pilot.concurrency.max_agents_by_phase.execute"), "1");
            write(&settings("", 1));
            until(&scene, |status| status.warnings.is_empty()).await;
        }
        let fixed = "max_attempts = 9\nworktree_mode = \"milestone-per-worktree\"\ncontext_compact_at = 0.5\ncontext_hard_limit = 0.9";
        write(&settings(fixed, 2));
        let status = until(&scene, |status| unit_of(status, OTHER).attempt > 0).await;
        let now = scene.unit(TASK).await.runs;
        assert_eq!(now, first, "it is neither ended nor begun anew");
        let drift: Vec<&str> = status
            .warnings
            .iter()
            .filter_map(|line| line.strip_prefix("config drift detected, restart to apply: "))
            .collect();
        let expected = [
            "worktree_mode: branch-per-slice in use, milestone-per-worktree in the file",
            "context_compact_at: 0.8 in use, 0.5 in the file",
            "context_hard_limit: 0.95 in use, 0.9 in the file",
        ];
        assert_eq!(drift, expected, "{status:#?}");
        let in_force = ["pilot.max_attempts", "pilot.worktree_mode", "pilot.context_compact_at"];
        assert_eq!(in_force.map(|key| value_of(&status, key)), ["9", "branch-per-slice", "0.8"]);
        assert_eq!(value_of(&status, "pilot.context_hard_limit"), "0.95");
        held.open();
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        write(&settings("", 2));
        let status = scene.run().await;
        assert!(!status.warnings.iter().any(|line| line.starts_with("config drift")), "{status:#?}");
        write(&settings(fixed, 2));
    });
    // A restart takes them over, and nothing differs any more.
    let scene = scene.restarted();
    let status = scene.engine.runtime.block_on(scene.status());
    let in_force = ["pilot.worktree_mode", "pilot.context_compact_at", "pilot.context_hard_limit"];
    assert_eq!(in_force.map(|key| value_of(&status, key)), ["milestone-per-worktree", "0.5", "0.9"]);
    assert!(!status.warnings.iter().any(|line| line.starts_with("config drift")), "{status:#?}");
    scene.end();
}

/// The plan of two slices that do not wait for each other.
static TWO_SLICES_APART: std::sync::LazyLock<String> =
    std::sync::LazyLock::new(|| TWO_SLICES.replace(" code_depends_on=m1/s1", ""));

/// A plan without one of its fields or sections is no plan: its attempt fails with the field named, the unit stays in its phase, and
/// the next attempt reads why. A right one lies in the unit's folder, and the later phases read it. Each new plan has the next
/// version, which the harness counts, whatever a model writes.
///
/// Rows: SF-330 SF-331 SF-332 SF-333
/// Rows: SF-334 (in part: the version, and that later phases go on with any)
#[test]
fn needs_userns_needs_git_a_plan_has_all_its_parts_before_its_phase_is_left() {
    let rest = format!("[pilot.supervisor]\nsilent_turns = 50\nfruitless_turns = 50\nrepeats = 50\n{THERE}");
    let workflow =
        "phases = [\"plan\", \"execute\", \"verify\", \"merge\", \"complete\"]\nmax_reassess = 2\n";
    let dir = project("max_attempts = 20", &rest, workflow);
    let file = dir.path().join(".writ/active/task_m1_s1_t1/plan.md");
    let right = plan_of(TASK);
    // Each with the words that its refusal has.
    let mistakes = [
        ("unit_id: ", "", "'unit_id' is missing"),
        ("created_at: ", "", "'created_at' is missing"),
        ("written_by: ", "", "'written_by' is missing"),
        ("plan_version: ", "", "'plan_version' is missing"),
        ("plan_version: ", "plan_version: x", "'x' is no right value of 'plan_version'"),
        ("# Goal", "", "`# Goal` is missing"),
        ("# Deliverables", "", "`# Deliverables` is missing"),
    ];
    let wrong = |line: &str, instead: &str| -> String {
        let lines = right.lines().map(|one| if one.starts_with(line) { instead } else { one });
        lines
            .filter(|one| !(one.is_empty() && instead.is_empty() && line.ends_with(": ")))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let answers: Vec<String> = mistakes.iter().map(|(line, instead, _)| wrong(line, instead)).collect();
    let (plans, works) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (noted_plans, noted_works, at_work) = (Arc::clone(&plans), Arc::clone(&works), file.clone());
    let mut last = right.clone();
    let script = move |request: &ParsedRequest| {
        let (part, unit) = heading_of(request);
        let is_answer = request.results().next().is_some();
        match part.as_str() {
            "Goal" => Reply::text(ONE_TASK),
            "Plan" => {
                let mut seen = lock(&noted_plans);
                seen.push(prompt_of(request));
                if let Some(wrong) = answers.get(seen.len() - 1) {
                    return Reply::text(&format!("{wrong}\n{DONE}"));
                }
                Reply::text(&format!("{last}\n{DONE}"))
            }
            "Decision" if unit == TASK => {
                last = last.replace("# Approach\n", "# Approach\nAnother way. ");
                Reply::text(
                    &json!({ "decision": "replan", "plan": last, "reason": "another way" }).to_string(),
                )
            }
            "Decision" => Reply::text(r#"{"decision":"escalate","questions":["?"]}"#),
            _ if is_answer => done(),
            _ => {
                let mut seen = lock(&noted_works);
                let plan = std::fs::read_to_string(&at_work).unwrap_or_default();
                seen.push((prompt_of(request), plan));
                if seen.len() < 3 {
                    return Reply::text("I cannot.\n<turn_status>giving_up</turn_status>");
                }
                writes("add", "a + b")
            }
        }
    };
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let task = scene.unit(TASK).await;
        let first: Vec<String> = task
            .runs
            .iter()
            .take(mistakes.len() + 1)
            .map(|run| format!("{} {} {}", run.phase, run.outcome.as_deref().unwrap_or("-"), run.error))
            .collect();
        let failed = "plan failure pilot.unit_plan".to_owned();
        let expected = [vec![failed; mistakes.len()], vec!["plan success ".to_owned()]].concat();
        assert_eq!(first, expected, "{task:#?}");
        let way = ["plan>execute", "execute>reassess", "reassess>plan", "plan>execute"];
        assert_eq!(moves(&task).get(..4).map(<[String]>::to_vec), Some(way.map(str::to_owned).to_vec()));
    });
    let plans = lock(&plans);
    for ((_, _, words), prompt) in mistakes.iter().zip(plans.iter().skip(1)) {
        assert!(prompt.contains(words), "{words}: {prompt}");
    }
    let works = lock(&works);
    let versions: Vec<&str> = works
        .iter()
        .filter_map(|(_, plan)| plan.lines().find(|line| line.starts_with("plan_version")))
        .collect();
    assert_eq!(versions, ["plan_version: 1", "plan_version: 2", "plan_version: 3"]);
    for (prompt, plan) in works.iter() {
        let deliverables = plan.split("# Deliverables\n").nth(1).and_then(|rest| rest.lines().next());
        let item = deliverables.expect("a list");
        assert!(item.starts_with("- [ ] ") && prompt.contains(item), "{item}: {prompt}");
        let unit = writ_autopilot::unit_id::UnitId::Task(1, 1, 1);
        let read = writ_autopilot::unit_plan::read_unit_plan(plan, unit).expect("all its fields");
        assert_eq!((read.sections.len(), read.deliverables.len()), (5, 1));
    }
    assert!(!file.exists(), "archived with its unit");
    scene.end();
}

/// Each phase has the tier of the table, and of the tier the first model; phases that decide ask for reasoning, and others do not.
/// What an agent writes about it changes nothing.
///
/// Rows: SF-316 SF-345 SF-344
#[test]
fn needs_userns_needs_git_each_phase_has_the_tier_of_the_table() {
    let rest = format!(
        "[routing]\nverify = \"standard\"\n[tiers.fast]\nmodels = [\"test/quick\"]\n[tiers.standard]\nmodels = [\"test/plain\", \"test/spare\"]\n[tiers.reasoning]\nmodels = [\"test/deep\"]\n{GATE}"
    );
    let workflow = "phases = [\"research\", \"plan\", \"execute\", \"tdd\", \"verify\", \"review\", \"merge\", \"complete\"]\nrequire_review = true\n";
    let dir = project("escalate_after = 9", &rest, workflow);
    let asked_models = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked_models);
    let mut worked = 0_usize;
    let script = move |request: &ParsedRequest| {
        let (part, unit) = heading_of(request);
        let is_answer = request.results().next().is_some();
        if !is_answer && part != "Goal" {
            let effort = request.raw.get("reasoning_effort").and_then(serde_json::Value::as_str);
            lock(&noted).push(format!("{part} {} {}", request.model, effort.unwrap_or("-")));
        }
        let boast = "Use test/deep with high effort for me.";
        match part.as_str() {
            "Goal" => Reply::text(ONE_TASK),
            "Research" => Reply::text(&format!("Nothing is there. {boast}\n{DONE}")),
            "Plan" => Reply::text(&format!("{}\n{DONE}", plan_of(&unit))),
            "Review" => Reply::text(&json!({ "verdict": "pass", "findings": [] }).to_string()),
            "Decision" => {
                let plan = plan_of(&unit).replace("Write it.", "Write it in another way.");
                Reply::text(&json!({ "decision": "replan", "plan": plan, "reason": boast }).to_string())
            }
            _ if is_answer => Reply::text(&format!("{boast}\n{DONE}")),
            "Work" => {
                worked += 1;
                if worked == 1 {
                    return Reply::text(&format!("{boast}\n<turn_status>giving_up</turn_status>"));
                }
                writes("add", "a + b")
            }
            _ => Reply::call("file_write", json!({ "path": "add.test.txt", "content": "2 + 3 = 5\n" })),
        }
    };
    let names = ["usual", "plain", "spare", "deep", "quick"];
    let roles = [
        (ModelRole::Executor, names[0]),
        (ModelRole::Scorer, names[1]),
        (ModelRole::Observer, names[2]),
        (ModelRole::Oracle, names[3]),
        (ModelRole::Quarantine, names[4]),
    ];
    let scene = scene(dir.path(), TestEngine::with_roles(&roles, |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let of = |phase: &str| value_of(&status, &format!("routing.{phase}"));
        let table =
            ["research", "plan", "reassess", "execute", "tdd", "review", "verify", "merge", "complete"]
                .map(of);
        let (reasoning, standard, fast) = ("reasoning", "standard", "fast");
        let expected = [reasoning, reasoning, reasoning, standard, standard, standard, standard, fast, fast];
        assert_eq!(table, expected, "one was changed, and no other");
    });
    let mut asked = lock(&asked_models).clone();
    asked.sort();
    asked.dedup();
    let expected = [
        "Decision deep medium",
        "Plan deep medium",
        "Research deep medium",
        "Review plain -",
        "Tests plain -",
        "Work plain -",
    ];
    assert_eq!(asked, expected);
    scene.end();
}

/// A turn asks its model as often as the engine's limit says and no more: it is cut there, and the next turn goes on. After the last turn
/// the attempt fails with the reason, without a ceiling that was not reached, and the next one may succeed.
#[test]
fn needs_userns_needs_git_a_turn_without_an_end_is_cut_and_the_next_goes_on() {
    let dir = project(
        "max_turns_per_attempt = 2",
        &format!("[pilot.ceilings]\nunit_micro_usd = 900_000_000\n{GATE}"),
        SHORT,
    );
    let asked_in_first = Arc::new(Mutex::new(0_usize));
    let noted = Arc::clone(&asked_in_first);
    let script = coder(ONE_TASK, move |n, asked| {
        if n > 2 {
            return if asked.has_results { done() } else { writes("add", "a + b") };
        }
        let mut count = lock(&noted);
        *count += 1;
        Reply::call("file_read", json!({ "path": format!("file-{count}") }))
    });
    let few = |parts: &mut writ_runtime::services::EngineParts| {
        parts.config.begun.agent_config.limits.max_model_calls_per_turn = 5;
    };
    let scene = scene(dir.path(), TestEngine::priced(few, |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let task = scene.unit(TASK).await;
        let runs: Vec<(&str, &str)> = task
            .runs
            .iter()
            .filter(|run| run.phase == "execute")
            .map(|run| (run.outcome.as_deref().unwrap_or("-"), run.error.as_str()))
            .collect();
        assert_eq!(runs, [("failure", "turn_failed"), ("success", "")], "{task:#?}");
    });
    assert_eq!(*lock(&asked_in_first), 10, "two turns of five calls");
    scene.end();
}

/// A task that is cancelled in the middle of its attempt is over with the reason and the code of its end: no further request is made
/// for it, its hook runs, its place is free, nothing tries it again, and an order about it is refused afterwards.
///
/// Rows: SF-532 SF-533
#[test]
fn needs_userns_needs_git_a_cancelled_task_makes_no_further_request() {
    let dir = project("", &format!("[pilot.hooks]\nafter_run = [\"tools/after.sh\"]\n{THERE}"), SHORT);
    commit_script(dir.path(), "tools/after.sh", "exit 0\n");
    let (held, asked_of) = (ReplyGate::new(), Arc::new(Mutex::new(Vec::new())));
    let (gate, noted) = (held.clone(), Arc::clone(&asked_of));
    let script = coder(TWO_SLICES_APART.as_str(), move |_, asked| {
        lock(&noted).push(asked.name.clone());
        match (asked.has_results, asked.name.as_str()) {
            (true, "add") => writes("more", "a").with_fault(ReplyFault::SlowFirstByte(gate.clone())),
            (true, _) => done(),
            (false, name) => writes(name, "a + b"),
        }
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let asks = |name: &str| lock(&asked_of).iter().filter(|one| *one == name).count();
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        while asks("add") < 2 {
            scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
        }
        scene.order("slice/m1/s1", "cancel", "another library has it").await;
        held.open();
        let status = scene.end_of_loop().await;
        assert_eq!(unit_of(&status, "slice/m1/s2").status, "succeeded", "{status:#?}");
        let task = scene.unit(TASK).await;
        assert_eq!(
            (task.unit.status.as_str(), task.unit.is_over, task.unit.is_running),
            ("canceled", true, false)
        );
        assert!(
            task.last_error.starts_with("cancel by ")
                && task.last_error.ends_with(": another library has it"),
            "{task:#?}"
        );
        let ends: Vec<(Option<&str>, &str)> =
            task.runs.iter().map(|run| (run.outcome.as_deref(), run.error.as_str())).collect();
        assert_eq!(ends, [(Some("canceled"), "canceled_by_operator")], "no try follows");
        for unit in [TASK, "task/m7/s1/t1"] {
            let params = json!({ "project": scene.project, "unit": unit, "order": "cancel", "reason": "" });
            assert!(scene.engine.call("pilot.order", params).await.is_err(), "{unit}");
        }
    });
    assert_eq!(asks("add"), 2, "no third request");
    let after: Vec<String> = hook_runs(&scene, TASK).into_iter().map(|row| row.outcome).collect();
    assert_eq!(after, ["passed"]);
    assert!(!Path::new(&scene.project).join(".writ/active/task_m1_s1_t1").exists());
    let _ = git(dir.path(), &["cat-file", "-e", "main:mul.mjs"]);
    scene.end();
}

/// A workflow with acceptance by a person, without a review.
const ACCEPTED: &str =
    "phases = [\"plan\", \"execute\", \"verify\", \"uat\", \"merge\", \"complete\"]\nrequire_uat = true\n";

/// A result that waits for a person goes to the merge once it is accepted, and to a decision that reads the reason once it is
/// rejected. Neither fits a unit that does not wait, and a rejection needs its reason.
///
/// Rows: SF-558 SF-559
#[test]
fn needs_userns_needs_git_a_result_is_accepted_or_rejected_with_a_reason() {
    let slice = "slice/m1/s1";
    let dir = project("", THERE, ACCEPTED);
    let decisions = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&decisions);
    let script = move |request: &ParsedRequest| {
        let (part, unit) = heading_of(request);
        match part.as_str() {
            "Goal" => Reply::text(ONE_TASK),
            "Plan" => Reply::text(&format!("{}\n{DONE}", plan_of(&unit))),
            "Decision" => {
                lock(&noted).push(prompt_of(request));
                let plan = plan_of(&unit);
                Reply::text(&json!({ "decision": "replan", "plan": plan, "reason": "as wanted" }).to_string())
            }
            _ if request.results().next().is_some() => done(),
            _ if unit == slice => writes("add", "b + a"),
            _ => writes("add", "a + b"),
        }
    };
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let refused = async |unit: &str, order: &str, reason: &str| {
        let params = json!({ "project": scene.project, "unit": unit, "order": order, "reason": reason });
        scene.engine.call("pilot.order", params).await.expect_err("it does not fit")
    };
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        let waits = |status: &PilotStatus| -> Vec<String> {
            status.blockers.iter().map(|blocker| format!("{} {}", blocker.event, blocker.unit)).collect()
        };
        assert_eq!((status.state.as_str(), waits(&status)), ("paused", vec![format!("UATPending {slice}")]));
        for order in ["accept", "reject"] {
            refused(TASK, order, "why").await;
        }
        assert_eq!(refused(slice, "reject", " ").await.code, "pilot.no_reason");
        assert_eq!(waits(&scene.status().await), waits(&status), "it waits still");
        scene.order(slice, "reject", "the arguments stand in the wrong order").await;
        let status = scene.end_of_loop().await;
        assert_eq!(waits(&status), [format!("UATPending {slice}")], "{status:#?}");
        let unit = scene.unit(slice).await;
        assert!(moves(&unit).starts_with(&["verify>uat".to_owned(), "uat>reassess".to_owned()]), "{unit:#?}");
        scene.order(slice, "accept", "").await;
        let status = scene.end_of_loop().await;
        assert_eq!((status.state.as_str(), status.blockers.len()), ("complete", 0), "{status:#?}");
        let unit = scene.unit(slice).await;
        assert!(moves(&unit).ends_with(&["uat>merge".to_owned(), "merge>complete".to_owned()]), "{unit:#?}");
        refused(slice, "accept", "").await;
    });
    let decisions = lock(&decisions);
    assert_eq!(decisions.len(), 1);
    assert!(decisions[0].contains("the arguments stand in the wrong order"), "{}", decisions[0]);
    assert!(git(dir.path(), &["show", "main:add.mjs"]).contains("b + a"));
    scene.end();
}

/// A unit whose decision is a question waits until a person answers it: the next decision reads the answer. A bare unit has nothing
/// to be answered.
///
/// Rows: SF-555 (in part: the answer is read by another decision, which plans anew)
#[test]
fn needs_userns_needs_git_an_answer_to_a_question_is_read() {
    let dir = project("", &format!("{GATE}max_retries = 0\n"), SHORT_PLANNED);
    let decisions = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&decisions);
    let script = move |request: &ParsedRequest| {
        let (part, unit) = heading_of(request);
        let is_asked = !lock(&noted).is_empty();
        match part.as_str() {
            "Goal" => Reply::text(ONE_TASK),
            "Plan" => Reply::text(&format!("{}\n{DONE}", plan_of(&unit))),
            "Decision" => {
                lock(&noted).push(prompt_of(request));
                if !is_asked {
                    return Reply::text(r#"{"decision":"escalate","questions":["which sum is meant?"]}"#);
                }
                let plan = plan_of(&unit);
                Reply::text(
                    &json!({ "decision": "replan", "plan": plan, "reason": "as answered" }).to_string(),
                )
            }
            _ if request.results().next().is_some() => done(),
            _ => writes("add", if is_asked { "a + b" } else { "a - b" }),
        }
    };
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        let blocker = status.blockers.iter().find(|blocker| blocker.event == "Paused").expect("one");
        assert!(blocker.detail.contains("which sum is meant?"), "{blocker:?}");
        assert_eq!(blocker.unit, TASK);
        let other =
            json!({ "project": scene.project, "unit": "slice/m1/s1", "order": "resume", "reason": "yes" });
        assert!(scene.engine.call("pilot.order", other).await.is_err(), "it has asked nothing");
        scene.order(&blocker.unit, "resume", "the sum of both arguments").await;
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
    });
    let decisions = lock(&decisions);
    assert_eq!(decisions.len(), 2);
    assert!(decisions[1].contains("A person has answered: the sum of both arguments"), "{}", decisions[1]);
    scene.end();
}

/// A short workflow with a plan.
const SHORT_PLANNED: &str = "phases = [\"plan\", \"execute\", \"verify\", \"merge\", \"complete\"]\n";

/// A pause lets what runs come to its end, hands nothing more out, and outlives the engine; the loop then goes on to its end by itself.
///
/// Rows: SF-538
/// Rows: SF-534 (in part: until nothing is left, or a pause)
#[test]
fn needs_userns_needs_git_a_pause_lets_what_runs_end() {
    let dir = project("[pilot.concurrency]\nmax_agents = 1", THERE, SHORT);
    let (held, asked_of) = (ReplyGate::new(), Arc::new(Mutex::new(Vec::new())));
    let (gate, noted) = (held.clone(), Arc::clone(&asked_of));
    let script = coder(TWO_SLICES_APART.as_str(), move |_, asked| {
        lock(&noted).push(asked.name.clone());
        match (asked.has_results, asked.name.as_str()) {
            (true, _) => done(),
            (false, "add") => writes("add", "a + b").with_fault(ReplyFault::SlowFirstByte(gate.clone())),
            (false, name) => writes(name, "a * b"),
        }
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let asks = || lock(&asked_of).clone();
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        while asks().is_empty() {
            scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
        }
        scene.engine.call("pilot.pause", scene.params()).await.expect("pauses");
        held.open();
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "paused", "{status:#?}");
        let runs = scene.unit(TASK).await.runs;
        let ends: Vec<Option<&str>> = runs.iter().map(|run| run.outcome.as_deref()).collect();
        assert_eq!(ends, [Some("success")], "what ran has ended as it would have");
        assert_eq!(asks(), ["add", "add"], "its call and its last words, and nothing else");
    });
    let scene = scene.restarted();
    scene.engine.runtime.block_on(async {
        let status = scene.status().await;
        assert_eq!((status.state.as_str(), asks().len()), ("paused", 2), "{status:#?}");
        let status = scene.run().await;
        assert_eq!(status.state, "complete", "{status:#?}");
    });
    scene.end();
}

/// The time of the next try is a row: an engine that ends during the pause after a failure neither forgets nor shortens it.
///
/// Rows: SF-573 (in part: the time holds over a restart)
#[test]
fn needs_userns_needs_git_a_pause_after_a_failure_outlives_the_engine() {
    let dir = project("", THERE, SHORT_PLANNED);
    untrack_settings(dir.path());
    // With the pauses that are the default: twenty seconds after the first failure.
    let settings = format!("[pilot]\ndefault_workflow = \"own\"\n{THERE}");
    std::fs::write(dir.path().join(".writ/pilot.toml"), settings).expect("written");
    let mut plans = 0_usize;
    let script = move |request: &ParsedRequest| {
        let (part, unit) = heading_of(request);
        match part.as_str() {
            "Goal" => Reply::text(ONE_TASK),
            "Plan" => {
                plans += 1;
                let plan = if plans == 1 { "no plan".to_owned() } else { plan_of(&unit) };
                Reply::text(&format!("{plan}\n{DONE}"))
            }
            _ if request.results().next().is_some() => done(),
            _ => writes("add", "a + b"),
        }
    };
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        while !scene.unit(TASK).await.runs.iter().any(|run| run.outcome.is_some()) {
            scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
        }
    });
    let scene = scene.restarted();
    scene.engine.runtime.block_on(async {
        // Each wakes the loop.
        for _ in 0..10 {
            scene.reload(false).await;
        }
        assert_eq!(scene.unit(TASK).await.runs.len(), 1, "not at once");
        scene.engine.clock.go_on(std::time::Duration::from_secs(20));
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let runs = scene.unit(TASK).await.runs;
        let waited = runs[1].started_at.time_since(runs[0].started_at).as_secs();
        assert!(waited >= 20, "{waited} s");
    });
    scene.end();
}

/// The plan of a unit that touches one file, and of one that touches many in many folders.
const NARROW_AND_WIDE: &str = "\
- [ ] Two sizes <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * add adds
    - [ ] add <!-- task/m1/s1/t1 -->
      Write add in add.mjs.
  - [ ] Products <!-- slice/m1/s2 -->
    Acceptance:
    * mul multiplies
    - [ ] mul <!-- task/m1/s2/t1 -->
      Write mul in mul.mjs, and name it in src/a.mjs, src/b.mjs, web/c.mjs, web/d.css, docs/e.md, tests/f.mjs and tools/g.sh.
";

/// The plan of the second goal: one file again, and three in one folder.
const NARROW_AND_FEW: &str = "\
- [ ] More sizes <!-- milestone/m2 -->
  - [ ] Differences <!-- slice/m2/s1 -->
    Acceptance:
    * sub subtracts
    - [ ] sub <!-- task/m2/s1/t1 -->
      Write sub in sub.mjs.
  - [ ] Quotients <!-- slice/m2/s2 -->
    Acceptance:
    * div divides
    - [ ] div <!-- task/m2/s2/t1 -->
      Write div in div.mjs with one.mjs and two.mjs.
";

/// A unit that reaches far has the next higher tier, and its thinking; one of a single file has not. Each choice is a row that outlives
/// the engine, also one that raises nothing. A model that a person has rated as not good enough is not asked for units of that class;
/// for those of another it is the first of its list still. A run may rate itself: an odd rating is none, and fails nothing. What runs is not rated, and what has no run cannot be.
///
/// Rows: SF-346 SF-347 SF-349 SF-351
/// Rows: SF-352 SF-547 (in part: a person's rating is stored as one, and refused while the unit is at work)
#[test]
fn needs_userns_needs_git_reach_and_ratings_choose_the_model() {
    let rest = format!(
        "[tiers.standard]\nmodels = [\"test/plain\", \"test/spare\"]\n[tiers.reasoning]\nmodels = [\"test/deep\"]\n{THERE}"
    );
    let dir = project("escalate_after = 9", &rest, SHORT);
    let (held, asked_models) = (ReplyGate::new(), Arc::new(Mutex::new(Vec::new())));
    let (gate, noted) = (held.clone(), Arc::clone(&asked_models));
    let mut goals = 0_usize;
    let script = move |request: &ParsedRequest| {
        let (part, _) = heading_of(request);
        if part == "Goal" {
            goals += 1;
            return Reply::text(if goals == 1 { NARROW_AND_WIDE } else { NARROW_AND_FEW });
        }
        let text = prompt_of(request);
        let name = text.lines().find_map(|line| line.strip_prefix("Task: ")).unwrap_or_default();
        let name = name.trim().trim_matches('"').to_owned();
        if request.results().next().is_some() {
            let rating = match name.as_str() {
                "add" => "<self_rating>ok</self_rating>",
                "mul" => "<self_rating>great</self_rating>",
                _ => "",
            };
            return Reply::text(&format!("Written. {rating}\n{DONE}"));
        }
        let effort = request.raw.get("reasoning_effort").and_then(serde_json::Value::as_str);
        lock(&noted).push(format!("{name} {} {}", request.model, effort.unwrap_or("-")));
        let reply = writes(&name, "a + b");
        if name == "add" { reply.with_fault(ReplyFault::SlowFirstByte(gate.clone())) } else { reply }
    };
    let roles = [
        (ModelRole::Executor, "usual"),
        (ModelRole::Scorer, "plain"),
        (ModelRole::Observer, "spare"),
        (ModelRole::Oracle, "deep"),
    ];
    let scene = scene(dir.path(), TestEngine::with_roles(&roles, |_| script));
    let rate = async |unit: &str, rating: &str| {
        let params = json!({ "project": scene.project, "unit": unit, "rating": rating });
        scene.engine.call("pilot.rate", params).await
    };
    let key = |id: &str| UnitKey { project: scene.project.to_string_lossy().into_owned(), id: id.to_owned() };
    let results = |class: &str| {
        let found = scene.engine.store.blocking().model_results(&key("").project, class).expect("reads");
        found.into_iter().map(|row| (row.model, row.rating, row.is_human)).collect::<Vec<_>>()
    };
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("two sizes").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        while !lock(&asked_models).iter().any(|line| line.starts_with("add ")) {
            scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
        }
        assert_eq!(rate(TASK, "under").await.expect_err("it runs").code, "pilot.busy");
        assert_eq!(rate("slice/m1/s1", "ok").await.expect_err("it has no run").code, "pilot.no_run");
        assert!(results("execute/one/within").is_empty());
        held.open();
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        assert_eq!(results("execute/one/within"), [("test/plain".to_owned(), "ok".to_owned(), false)]);
        assert!(results("execute/many/across").is_empty(), "an odd rating is none");
        let rated = rate(TASK, "under").await.expect("rated");
        assert_eq!((&rated["model"], &rated["class"]), (&json!("test/plain"), &json!("execute/one/within")));
        assert!(rate(TASK, "great").await.is_err(), "no such rating");
        let planned = scene.plan("more sizes").await;
        scene.approve(&planned.ask).await;
        let status = scene.run().await;
        assert_eq!(status.state, "complete", "{status:#?}");
    });
    let mut asked = lock(&asked_models).clone();
    asked.sort();
    assert_eq!(asked, ["add plain -", "div plain -", "mul deep medium", "sub spare -"]);
    let row = |rating: &str, is_human| ("test/plain".to_owned(), rating.to_owned(), is_human);
    assert_eq!(results("execute/one/within"), [row("ok", false), row("under", true)]);
    let choices = |scene: &Scene, id: &str| {
        let rows = scene.engine.store.blocking().unit_choices(key(id)).expect("reads");
        let line = |row: &ChoiceRow| {
            format!("{} {} {} {} {}", row.fingerprint, row.score_milli, row.is_raised, row.tier, row.model)
        };
        rows.iter().map(line).collect::<Vec<_>>()
    };
    let expected = [
        (TASK, "execute/one/within 125 false standard test/plain"),
        (OTHER, "execute/many/across 1000 true reasoning test/deep"),
        ("task/m2/s1/t1", "execute/one/within 125 false standard test/spare"),
        ("task/m2/s2/t1", "execute/few/within 225 false standard test/plain"),
    ];
    for (id, row) in expected {
        assert_eq!(choices(&scene, id), [row], "{id}");
    }
    let project = scene.project.clone();
    let scene = scene.restarted();
    let key = UnitKey { project: project.to_string_lossy().into_owned(), id: OTHER.to_owned() };
    let rows = scene.engine.store.blocking().unit_choices(key).expect("reads");
    assert_eq!(rows.len(), 1, "it is there after a restart");
    scene.end();
}

/// Each model of each tier plans a task that is done, and is measured by its plan, its time and its cost: one row for each. One that fails
/// is named, and the others are measured all the same. Without a task that is done there is nothing to measure by.
///
/// Rows: SF-548
#[test]
fn needs_userns_needs_git_models_of_all_tiers_are_measured_by_tasks_that_are_done() {
    let tiers = "[tiers.fast]\nmodels = [\"test/plain\"]\n[tiers.standard]\nmodels = [\"test/usual\", \"test/spare\"]\n[tiers.reasoning]\nmodels = [\"test/deep\"]\n";
    // No phase of this workflow plans a unit, so what plans one is measured.
    let dir = project("", &format!("{tiers}{GATE}"), SHORT);
    let mut work =
        coder(ONE_TASK, |_, asked| if asked.has_results { done() } else { writes("add", "a + b") });
    let mut is_first = true;
    let script = move |request: &ParsedRequest| {
        let (part, unit) = heading_of(request);
        match (part.as_str(), request.model.as_str()) {
            ("Plan", "plain") if std::mem::take(&mut is_first) => Reply::text("I would write a sum."),
            ("Plan", "spare") => done().with_fault(ReplyFault::Status { status: 400, retry_after: None }),
            ("Plan", _) => Reply::text(&plan_of(&unit)),
            _ => work(request),
        }
    };
    let roles = [
        (ModelRole::Executor, "usual"),
        (ModelRole::Scorer, "plain"),
        (ModelRole::Observer, "spare"),
        (ModelRole::Oracle, "deep"),
    ];
    let scene = scene(dir.path(), TestEngine::with_roles(&roles, |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        let refused =
            scene.engine.call("pilot.benchmark", scene.params()).await.expect_err("nothing is done");
        assert_eq!(refused.code, "pilot.no_sample");
        scene.approve(&planned.ask).await;
        assert_eq!(scene.run().await.state, "complete");
        let measured: PilotBenchmark = scene.ask("pilot.benchmark", json!({ "samples": 5 })).await;
        let lines: Vec<(&str, &str, usize, usize, bool)> = measured
            .lines
            .iter()
            .map(|one| {
                (one.tier.as_str(), one.model.as_str(), one.samples, one.readable, one.error.is_empty())
            })
            .collect();
        assert_eq!(
            lines,
            [
                ("fast", "test/plain", 1, 0, true),
                ("standard", "test/usual", 1, 1, true),
                ("standard", "test/spare", 0, 0, false),
                ("reasoning", "test/deep", 1, 1, true),
            ],
            "{measured:#?}"
        );
        let again: PilotBenchmark = scene.ask("pilot.benchmark", json!({ "samples": 5 })).await;
        assert_eq!(again.lines.first().map(|one| one.readable), Some(1), "{again:#?}");
    });
    let name = scene.project.to_string_lossy().into_owned();
    let rows = scene.engine.store.blocking().model_results(&name, "plan/one/within").expect("reads");
    let rows: Vec<(&str, &str, bool)> =
        rows.iter().map(|row| (row.model.as_str(), row.rating.as_str(), row.is_human)).collect();
    assert_eq!(
        rows,
        [
            ("test/plain", "under", false),
            ("test/usual", "ok", false),
            ("test/deep", "ok", false),
            // It was barred, and a person has had it measured again.
            ("test/plain", "ok", true),
            ("test/usual", "ok", false),
            ("test/deep", "ok", false),
        ]
    );
    scene.end();
}
