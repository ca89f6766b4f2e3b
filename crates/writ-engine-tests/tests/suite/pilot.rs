//! The hands of the autopilot: its plan is approved once, its attempts work on real work trees, and whatever ends the plan ends
//! them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio_util::sync::CancellationToken;
use writ_plan::machine::WorkEvent;
use writ_runtime::engine::Answer;
use writ_runtime::pilot::{
    AttemptLook, AttemptOutcome, AttemptTerms, GateProgram, NewAttempt, NewPilotPlan, PilotHands,
    PlannerQuestion, Share,
};
use writ_store::batch::Op;
use writ_store::reads::{AskReads as _, WorkReads as _};
use writ_store::work::WorkOp;
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::api::work::WorkState;
use writ_types::entry::Decision;
use writ_types::error::Exit;
use writ_types::id::{AskId, ItemId};
use writ_types::unit::{MicroUsd, Tokens};
use writ_types::work::{Check, CheckEnd, OnStuck, PlanDocument, Predicate, WorkBudget, WorkKind, WorkStep};

use crate::harness::{OWNER, TestEngine};
use crate::work::{PATIENCE, PYTHON, approve, git, read, repository};

fn plan(max_cost: Option<u64>) -> PlanDocument {
    let check = Check {
        name: "tests".to_owned(),
        run: vec!["make".to_owned(), "check".to_owned()],
        dir: None,
        timeout_secs: None,
        expect: vec![Predicate::ExitCode { code: 0 }],
    };
    PlanDocument {
        id: "m1".to_owned(),
        kind: WorkKind::Pilot,
        title: "Sums that are right".to_owned(),
        skills: Vec::new(),
        budget: WorkBudget { max_cost: max_cost.map(MicroUsd::new), ..WorkBudget::default() },
        steps: vec![WorkStep {
            id: "m1-s1-t1".to_owned(),
            title: "Add correctly".to_owned(),
            instructions: "Mend add(), the secret word is heron.".to_owned(),
            checks: vec![check],
            ..WorkStep::default()
        }],
        checks: Vec::new(),
        gates: Vec::new(),
        on_stuck: OnStuck::Stop,
        interaction: None,
        cycle: None,
        context: String::new(),
        instructions: "Sums are right for every pair of numbers.".to_owned(),
    }
}

/// A repository with a work tree of one slice.
struct Place {
    project: tempfile::TempDir,
    tree: PathBuf,
}

fn place() -> Place {
    let project = repository(&PYTHON);
    let tree = project.path().join(".writ/workspaces/m1-s1");
    git(project.path(), &["worktree", "add", "-q", "-b", "writ/m1-s1", ".writ/workspaces/m1-s1"]);
    Place { project, tree }
}

async fn propose(hands: &PilotHands, place: &Place, max_cost: Option<u64>) -> (ItemId, AskId) {
    let new = NewPilotPlan {
        document: plan(max_cost),
        project: place.project.path().to_owned(),
        origin: None,
        branch: "main".to_owned(),
    };
    hands.propose_plan(new).await.expect("a plan")
}

/// A plan that was approved.
async fn approved(engine: &TestEngine, place: &Place, max_cost: Option<u64>) -> (PilotHands, ItemId) {
    let hands = engine.engine.pilot_hands();
    let (plan, ask) = propose(&hands, place, max_cost).await;
    let answered = engine.engine.answer(OWNER, ask, approve()).await.expect("counts");
    assert_eq!(answered.exit, Exit::Done, "{answered:?}");
    (hands, plan)
}

fn attempt(plan: ItemId, place: &Place) -> NewAttempt {
    NewAttempt {
        plan,
        folder: place.tree.clone(),
        unit: "m1-s1-t1".to_owned(),
        title: "Add correctly".to_owned(),
        instructions: "Mend add().".to_owned(),
        max_tokens: None,
        max_cost: None,
        reads_only: false,
        model: None,
        terms: AttemptTerms::default(),
    }
}

async fn until_ended(hands: &PilotHands, item: ItemId) -> AttemptOutcome {
    let ended = async {
        loop {
            let woken = hands.wake();
            if let AttemptLook::Ended(outcome) = hands.look_at_attempt(item).await.expect("is there") {
                return outcome;
            }
            woken.await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("the attempt ends")
}

/// A model that mends the file, and then says so.
fn mends(request: &ParsedRequest) -> Reply {
    match request.results().next() {
        None => Reply::call("file_write", json!({ "path": PYTHON.file, "content": PYTHON.right })),
        Some(_) => Reply::text("TURN_DONE: mended"),
    }
}

/// One card shows all of the plan; after its approval an attempt changes its work tree, and nothing else.
#[test]
fn needs_userns_an_attempt_of_an_approved_plan_changes_its_work_tree() {
    let engine = TestEngine::priced(|_| {}, |_| mends);
    let place = place();
    engine.runtime.block_on(async {
        let hands = engine.engine.pilot_hands();
        let (plan, ask) = propose(&hands, &place, Some(5_000_000)).await;
        let card = engine.call("approvals.show", json!({ "ask": ask })).await.expect("a card");
        let shown = card["shown"].as_str().expect("a text");
        for part in ["heron", "make check", "exit status 0", "main", "$5.00", "Sums are right", "work tree"] {
            assert!(shown.contains(part), "the card shows all of it: {part}\n{shown}");
        }
        let early = hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect_err("not approved");
        assert_eq!(early.code, "pilot.not_in_force");
        engine.engine.answer(OWNER, ask, approve()).await.expect("counts");
        let standing = hands.plan_state(plan).await.expect("reads").expect("is there");
        assert_eq!((standing.state, standing.branch.as_deref()), (WorkState::Running, Some("main")));
        let item = hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect("begins");
        let outcome = until_ended(&hands, item).await;
        assert_eq!((outcome.state, outcome.exit), (WorkState::Done, Some(Exit::Done)), "{outcome:?}");
        assert_eq!(outcome.said, "TURN_DONE: mended");
        assert!(outcome.cost > MicroUsd::ZERO, "{outcome:?}");
        assert_eq!(read(&place.tree, PYTHON.file), PYTHON.right);
        assert_eq!(read(place.project.path(), PYTHON.file), PYTHON.wrong, "the project is as it was");
        let standing = hands.plan_state(plan).await.expect("reads").expect("is there");
        assert_eq!((standing.state, standing.cost), (WorkState::Running, outcome.cost));
    });
    assert_eq!(engine.facts("asked").len(), 1, "one card");
    engine.end();
}

/// Nothing begins under a plan that was refused, and none of its text becomes work.
#[test]
fn no_attempt_begins_under_a_plan_that_was_refused() {
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let engine = TestEngine::new("", |_| {
        move |_: &ParsedRequest| {
            seen.fetch_add(1, Ordering::SeqCst);
            Reply::text("never")
        }
    });
    let place = place();
    engine.runtime.block_on(async {
        let hands = engine.engine.pilot_hands();
        let task = NewPilotPlan {
            document: PlanDocument { kind: WorkKind::Task, ..self::plan(None) },
            project: place.project.path().to_owned(),
            origin: None,
            branch: "main".to_owned(),
        };
        assert_eq!(hands.propose_plan(task).await.expect_err("another kind").code, "pilot.kind");
        let (plan, ask) = propose(&hands, &place, None).await;
        let deny = Answer { decision: Decision::Deny, reason: "no".to_owned(), ..approve() };
        engine.engine.answer(OWNER, ask, deny).await.expect("counts");
        until_plan(&hands, plan, WorkState::Denied).await;
        let refused = hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect_err("refused");
        assert_eq!((refused.code.as_str(), refused.exit), ("pilot.not_in_force", Exit::Waiting));
        // The autopilot approves nothing itself.
        for event in [WorkEvent::Approve, WorkEvent::Retry] {
            hands.move_plan(plan, event, "go on").await.expect_err("a person's alone");
        }
        let text = "---\nid: own\ntype: pilot\ntitle: Own\nsteps:\n  - {id: a, title: A, do: A}\n---\n\n# What to do\n\nAll.\n";
        let written = engine.call("work.propose", json!({ "plan": text })).await.expect_err("no document");
        assert_eq!(written.code, "plan.document");
        assert!(written.hint.contains("writ pilot plan"), "{written:?}");
    });
    assert_eq!(asked.load(Ordering::SeqCst), 0, "no model was asked");
    engine.end();
}

async fn until_plan(hands: &PilotHands, plan: ItemId, state: WorkState) {
    let there = async {
        loop {
            let woken = hands.wake();
            let standing = hands.plan_state(plan).await.expect("reads").expect("is there");
            if standing.state == state {
                return;
            }
            woken.await;
        }
    };
    tokio::time::timeout(PATIENCE, there).await.unwrap_or_else(|_| panic!("the plan is never {state:?}"));
}

/// A model whose first answers wait until the gate opens, then mend the file.
fn waits_first(gate: &ReplyGate) -> impl FnMut(&ParsedRequest) -> Reply + Send + 'static {
    let gate = gate.clone();
    move |request: &ParsedRequest| match request.results().next() {
        None => mends(request).with_fault(ReplyFault::SlowFirstByte(gate.clone())),
        Some(_) => mends(request),
    }
}

async fn until_asked(engine: &TestEngine, count: usize) {
    let asked = async {
        while engine.server.connections_waiting() < count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("the model is asked");
}

/// A pause holds the end of what runs back, and lets nothing begin; a person lets both go on.
#[test]
fn needs_userns_a_paused_plan_begins_nothing_and_goes_on_where_it_was() {
    let gate = ReplyGate::new();
    let engine = TestEngine::new("", |_| waits_first(&gate));
    let place = place();
    engine.runtime.block_on(async {
        let (hands, plan) = approved(&engine, &place, None).await;
        let item = hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect("begins");
        until_asked(&engine, 1).await;
        hands.move_plan(plan, WorkEvent::Pause, "a person reads").await.expect("paused");
        let refused = hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect_err("paused");
        assert_eq!(refused.code, "pilot.not_in_force");
        gate.open();
        let ended = async {
            let name = item.to_string();
            while crate::work::show(&engine, &name).await.steps[0]
                .attempts
                .iter()
                .all(|attempt| attempt.judged_at.is_none())
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("its turn ends");
        assert!(matches!(hands.look_at_attempt(item).await, Ok(AttemptLook::Running { .. })));
        assert_eq!(read(&place.tree, PYTHON.file), PYTHON.wrong, "nothing comes out in a pause");
        hands.move_plan(plan, WorkEvent::Resume, "read").await.expect("goes on");
        assert_eq!(until_ended(&hands, item).await.state, WorkState::Done);
        assert_eq!(read(&place.tree, PYTHON.file), PYTHON.right);
    });
    engine.end();
}

/// Whatever ends the plan ends what runs under it: nothing of it comes into the work tree, and nothing else begins.
#[test]
fn needs_userns_the_end_of_a_plan_ends_its_attempts() {
    for way in ["cancelled", "revoked", "attempt"] {
        let gate = ReplyGate::new();
        let engine = TestEngine::new("", |_| waits_first(&gate));
        let place = place();
        engine.runtime.block_on(async {
            let (hands, plan) = approved(&engine, &place, None).await;
            let item = hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect("begins");
            until_asked(&engine, 1).await;
            match way {
                "cancelled" => drop(hands.move_plan(plan, WorkEvent::Cancel, "enough").await.expect("ends")),
                "revoked" => {
                    let ask = hands.plan_state(plan).await.expect("reads").expect("is there").ask;
                    engine.call("approvals.revoke", json!({ "ask": ask })).await.expect("taken back");
                    gate.open();
                }
                _ => hands.end_attempt(item, "it stalls").await.expect("ends"),
            }
            let outcome = until_ended(&hands, item).await;
            let expected = if way == "revoked" { WorkState::Failed } else { WorkState::Cancelled };
            assert_eq!(outcome.state, expected, "{way}: {outcome:?}");
            assert_eq!(read(&place.tree, PYTHON.file), PYTHON.wrong, "{way}");
            gate.open();
            let next = hands.start_attempt(attempt(plan, &place), Vec::new()).await;
            match way {
                "attempt" => {
                    // The plan goes on: another attempt does.
                    let outcome = until_ended(&hands, next.expect("begins")).await;
                    assert_eq!(outcome.state, WorkState::Done, "{outcome:?}");
                }
                _ => assert_eq!(next.expect_err("not in force").code, "pilot.not_in_force", "{way}"),
            }
        });
        engine.end();
    }
}

/// The attempt and what the shell writes with it are one commit.
#[test]
fn needs_userns_an_attempt_and_its_claim_are_there_together_or_not_at_all() {
    let engine = TestEngine::new("", |_| mends);
    let place = place();
    engine.runtime.block_on(async {
        let (hands, plan) = approved(&engine, &place, None).await;
        let wrong = Op::Work(WorkOp::Require { item: plan, version: 99 });
        hands
            .start_attempt(attempt(plan, &place), vec![wrong])
            .await
            .expect_err("a claim that does not hold");
        assert_eq!(hands.store().children_of(plan).await.expect("reads"), [], "and nothing of it is there");
        let item = hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect("begins");
        assert_eq!(until_ended(&hands, item).await.state, WorkState::Done);
        // Neither the project itself, nor a folder that calls itself a work tree, nor one of another project.
        let (other, fake) = (self::place(), place.project.path().join("fake"));
        std::fs::create_dir(&fake).expect("made");
        std::fs::copy(place.tree.join(".git"), fake.join(".git")).expect("copied");
        for folder in [place.project.path().to_owned(), fake, other.tree.clone()] {
            let new = NewAttempt { folder, ..attempt(plan, &place) };
            let refused = hands.start_attempt(new, Vec::new()).await.expect_err("no work tree of it");
            assert_eq!(refused.code, "pilot.folder", "{refused:?}");
        }
    });
    engine.end();
}

/// What only reads leaves its folder as it was, whatever it has changed in its own copy.
#[test]
fn needs_userns_nothing_comes_out_of_an_attempt_that_only_reads() {
    let engine = TestEngine::new("", |_| {
        |request: &ParsedRequest| match request.results().count() {
            0 => Reply::call("file_write", json!({ "path": "by_file.txt", "content": "x" })),
            1 => Reply::call("shell_exec", json!({ "argv": ["touch", "by_shell.txt"] })),
            _ => Reply::text("{\"verdict\": \"pass\"}"),
        }
    });
    let place = place();
    engine.runtime.block_on(async {
        let (hands, plan) = approved(&engine, &place, None).await;
        let new = NewAttempt { reads_only: true, ..attempt(plan, &place) };
        let item = hands.start_attempt(new, Vec::new()).await.expect("begins");
        let outcome = until_ended(&hands, item).await;
        assert_eq!((outcome.state, outcome.exit), (WorkState::Done, Some(Exit::Done)), "{outcome:?}");
        assert_eq!(outcome.said, "{\"verdict\": \"pass\"}");
        for name in ["by_file.txt", "by_shell.txt"] {
            assert!(!place.tree.join(name).exists(), "{name}");
        }
    });
    let denied = engine.denials();
    assert!(denied.iter().any(|(kind, _)| *kind == "write_file"), "its key has no writing: {denied:?}");
    engine.end();
}

/// A gate runs what the work tree has, with its variables and its text, and changes nothing; what cannot end well is not passed.
#[test]
fn needs_userns_gates_judge_the_work_tree_and_change_nothing() {
    let engine = TestEngine::new("", |_| mends);
    let place = place();
    engine.runtime.block_on(async {
        let (hands, plan) = approved(&engine, &place, None).await;
        let stop = CancellationToken::new();
        let gate = |argv: &[&str]| GateProgram {
            plan,
            folder: place.tree.clone(),
            name: "tests".to_owned(),
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            env: BTreeMap::new(),
            stdin: None,
            secs: 60,
        };
        let run = async |gate: GateProgram| hands.run_gate(gate, &stop).await.expect("can be run");
        let tests = ["/usr/bin/python3", "-m", "unittest", "test_sums"];
        let failed = run(gate(&tests)).await.expect("runs");
        assert_eq!(failed.end, CheckEnd::Exited { code: 1 }, "{failed:?}");
        assert!(failed.stderr.contains("AssertionError"), "{failed:?}");
        let item = hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect("begins");
        assert_eq!(until_ended(&hands, item).await.state, WorkState::Done);
        let passed = run(gate(&tests)).await.expect("runs");
        assert_eq!(passed.end, CheckEnd::Exited { code: 0 }, "it sees the tree as it is now: {passed:?}");
        let script = "echo x > made.txt && cat made.txt && echo $UNIT $(cat)";
        let both = GateProgram {
            env: BTreeMap::from([("UNIT".to_owned(), "m1-s1".to_owned())]),
            stdin: Some("from outside".to_owned()),
            ..gate(&["sh", "-c", script])
        };
        let said = run(both.clone()).await.expect("runs");
        assert_eq!(said.stdout, "x\nm1-s1 from outside\n", "{said:?}");
        assert!(!place.tree.join("made.txt").exists(), "what a gate writes is gone");
        for env in [BTreeMap::new(), both.env.clone()] {
            let missing = GateProgram { env, ..gate(&["no-such-program"]) };
            let missing = run(missing).await.expect("is looked for");
            assert!(matches!(missing.end, CheckEnd::NotRun { .. }), "{missing:?}");
        }
        let slow = GateProgram { secs: 1, ..gate(&["sleep", "1000"]) };
        assert_eq!(run(slow).await.expect("runs").end, CheckEnd::TimedOut);
        let wrong = GateProgram { env: BTreeMap::from([("A=B".to_owned(), String::new())]), ..both };
        assert_eq!(hands.run_gate(wrong, &stop).await.expect_err("no name").code, "pilot.variable");
        stop.cancel();
        let stopped = run(gate(&["sleep", "1000"])).await.expect("is begun");
        assert!(matches!(stopped.end, CheckEnd::NotRun { .. }), "{stopped:?}");
        hands.move_plan(plan, WorkEvent::Cancel, "enough").await.expect("ends");
        let over = hands.run_gate(gate(&tests), &stop).await.expect_err("the plan is over");
        assert_eq!(over.code, "pilot.not_in_force");
    });
    engine.end();
}

/// The planner reads the project and answers; it can write nothing, and no plan is proposed of its answer.
#[test]
fn needs_userns_the_planner_answers_the_autopilot_and_writes_nothing() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sent);
    let engine = TestEngine::priced(
        |_| {},
        |_| {
            move |request: &ParsedRequest| {
                seen.lock().expect("whole").push(request.clone());
                match request.results().count() {
                    0 => Reply::call("file_write", json!({ "path": "x.txt", "content": "x" })),
                    1 => Reply::call("file_read", json!({ "path": PYTHON.file })),
                    _ => Reply::text("# M1\n\nUnits, and no plan document."),
                }
            }
        },
    );
    let place = place();
    engine.runtime.block_on(async {
        let hands = engine.engine.pilot_hands();
        let question = PlannerQuestion {
            project: place.project.path().to_owned(),
            text: "Which milestones are there?".to_owned(),
            max_cost: None,
        };
        let reply = hands.ask_planner(question, &CancellationToken::new()).await.expect("answers");
        assert_eq!(reply.text, "# M1\n\nUnits, and no plan document.");
        assert!(reply.cost > MicroUsd::ZERO && reply.output.get() > 0, "{reply:?}");
        assert!(!place.project.path().join("x.txt").exists());
        let listed = engine.call("work.list", json!({})).await.expect("a list");
        assert_eq!(listed["items"], json!([]), "nothing was proposed");
    });
    let sent = sent.lock().expect("whole").clone();
    assert!(sent.iter().any(|request| request.raw.to_string().contains("return a - b")), "it has read");
    assert!(sent.iter().all(|request| request.tools.iter().all(|tool| tool.name != "file_write")));
    assert_eq!(engine.facts("asked").len(), 0);
    engine.end();
}

/// An engine with a model that reads for ever: each call costs the same.
fn reads_for_ever() -> TestEngine {
    TestEngine::priced(
        |parts| parts.config.begun.agent_config.limits.max_output_tokens = Tokens::new(1_000),
        |_| {
            let mut lines = 0_u32;
            move |_: &ParsedRequest| {
                lines += 1;
                let argv = ["echo".to_owned(), lines.to_string()];
                Reply::call("shell_exec", json!({ "argv": argv })).with_usage(2_000, 200)
            }
        },
    )
}

/// What all attempts cost counts to the plan: the one that would exceed it ends, and no other begins.
#[test]
fn needs_userns_the_budget_of_a_plan_ends_its_attempts() {
    let engine = reads_for_ever();
    let place = place();
    engine.runtime.block_on(async {
        let (hands, plan) = approved(&engine, &place, Some(200_000)).await;
        let small = NewAttempt { max_cost: Some(MicroUsd::new(60_000)), ..attempt(plan, &place) };
        let item = hands.start_attempt(small, Vec::new()).await.expect("begins");
        let first = until_ended(&hands, item).await;
        assert_eq!((first.state, first.exit), (WorkState::Failed, Some(Exit::Budget)), "{first:?}");
        let standing = hands.plan_state(plan).await.expect("reads").expect("is there");
        assert_eq!((standing.state, standing.cost), (WorkState::Running, first.cost), "its own limit alone");
        assert!(first.cost > MicroUsd::ZERO && first.cost <= MicroUsd::new(60_000), "{first:?}");
        let item = hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect("begins");
        let outcome = until_ended(&hands, item).await;
        assert_eq!((outcome.state, outcome.exit), (WorkState::Failed, Some(Exit::Budget)), "{outcome:?}");
        until_plan(&hands, plan, WorkState::OverBudget).await;
        let standing = hands.plan_state(plan).await.expect("reads").expect("is there");
        assert_eq!(standing.cost, first.cost.saturating_add(outcome.cost), "their cost is the plan's");
        assert!(standing.cost <= MicroUsd::new(200_000), "{standing:?}");
        let listed = engine.call("work.list", json!({})).await.expect("a list");
        let listed = listed["items"].as_array().expect("a list").iter().find(|item| item["kind"] == "pilot");
        let spent = listed.map(|plan| plan["spending"]["cost_micro_usd"].clone());
        assert_eq!(spent, Some(json!(standing.cost)), "the list says the same");
        let refused = hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect_err("used up");
        assert_eq!((refused.code.as_str(), refused.exit), ("pilot.budget", Exit::Budget));
        // Another approval is for as much again, and shows the same branch.
        let again = engine.call("work.retry", json!({ "item": plan })).await.expect("asked again");
        let ask = again["ask"].as_str().expect("asked").parse().expect("an ask");
        engine.engine.answer(OWNER, ask, approve()).await.expect("counts");
        let standing = hands.plan_state(plan).await.expect("reads").expect("is there");
        assert_eq!((standing.state, standing.branch.as_deref()), (WorkState::Running, Some("main")));
        assert_eq!((standing.cost, standing.cost_left), (MicroUsd::ZERO, Some(MicroUsd::new(200_000))));
        let item = hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect("begins");
        let outcome = until_ended(&hands, item).await;
        assert_eq!(outcome.exit, Some(Exit::Budget), "{outcome:?}");
        assert!(outcome.cost > MicroUsd::new(100_000), "{outcome:?}");
    });
    engine.end();
}

/// Attempts that run beside one another share what is left of the plan, though each alone could use all of it.
#[test]
fn needs_userns_attempts_beside_one_another_share_the_budget_of_their_plan() {
    let engine = reads_for_ever();
    let place = place();
    engine.runtime.block_on(async {
        let (hands, plan) = approved(&engine, &place, Some(200_000)).await;
        let mut items = Vec::new();
        for _ in 0..3 {
            items.push(hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect("begins"));
        }
        let mut most = 0;
        for item in &items {
            let outcome = until_ended(&hands, *item).await;
            assert_ne!(outcome.state, WorkState::Done, "{outcome:?}");
            most = most.max(outcome.cost.get());
        }
        until_plan(&hands, plan, WorkState::OverBudget).await;
        let all = hands.plan_state(plan).await.expect("reads").expect("is there").cost.get();
        let calls = u64::try_from(engine.facts("model_called").len()).expect("few");
        assert!(most < all, "one alone has not used it up: {most} of {all}");
        // Calls that are decided at the same moment exceed it by one each at most.
        assert!(all <= 200_000 + 2 * (all / calls), "{all} in {calls} calls");
        let listed = engine.call("work.list", json!({})).await.expect("a list");
        assert_eq!(
            listed["items"].as_array().map(Vec::len),
            Some(1),
            "the plan, without attempts that are over"
        );
    });
    engine.end();
}

/// An attempt that a restart cuts off is over, although nobody has opened its project yet: its half turn is not resumed, its model is not
/// asked once more, and the tool call that was made is not repeated. Another attempt begins anew.
///
/// Rows: SF-111
#[test]
fn needs_userns_a_restart_ends_an_attempt_and_resumes_nothing() {
    let (gate, asked) = (ReplyGate::new(), Arc::new(AtomicUsize::new(0)));
    let (held, seen) = (gate.clone(), Arc::clone(&asked));
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| match seen.fetch_add(1, Ordering::SeqCst) {
            1 => mends(request).with_fault(ReplyFault::SlowFirstByte(held.clone())),
            _ => mends(request),
        }
    });
    let place = place();
    let calls = |engine: &TestEngine| engine.facts("intent").len();
    let (plan, item) = engine.runtime.block_on(async {
        let (hands, plan) = approved(&engine, &place, None).await;
        let item = hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect("begins");
        // The first call has written the file, and the second is under way.
        while asked.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        (plan, item)
    });
    let before = calls(&engine);
    let engine = engine.restarted();
    assert_eq!(calls(&engine), before, "the start alone asks no model");
    engine.runtime.block_on(async {
        let hands = engine.engine.pilot_hands();
        // At once: the start itself has ended it.
        let Ok(AttemptLook::Ended(outcome)) = hands.look_at_attempt(item).await else { panic!("it goes on") };
        assert_eq!(outcome.state, WorkState::Cancelled, "{outcome:?}");
        assert_eq!(read(&place.tree, PYTHON.file), PYTHON.wrong, "nothing of it comes out");
        let standing = hands.plan_state(plan).await.expect("reads").expect("is there");
        assert_eq!(standing.state, WorkState::Running, "its plan goes on");
        let next = hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect("begins");
        assert_eq!(until_ended(&hands, next).await.state, WorkState::Done);
        assert_eq!(read(&place.tree, PYTHON.file), PYTHON.right);
    });
    gate.open();
    assert_eq!(asked.load(Ordering::SeqCst), 4, "two calls of each attempt");
    assert!(calls(&engine) > before, "those of the second attempt");
    let resumed = engine.facts("phase").iter().filter(|fact| format!("{fact:?}").contains("Resumed")).count();
    assert_eq!(resumed, 0, "no turn was resumed");
    engine.end();
}

/// A call that asks in the middle waits for its answer, and the attempt goes on after it.
#[test]
fn needs_userns_an_attempt_waits_for_an_answer_and_goes_on() {
    let engine = TestEngine::new(ASK_SHELL, |_| {
        |request: &ParsedRequest| match (
            request.results().next(),
            request.raw.to_string().contains("go on now"),
        ) {
            (None, false) => Reply::call("shell_exec", json!({ "argv": ["touch", "asked.txt"] })),
            (None, true) => Reply::text("done after the answer"),
            (Some(_), _) => Reply::text("waits"),
        }
    });
    let place = place();
    engine.runtime.block_on(async {
        let (hands, plan) = approved(&engine, &place, None).await;
        let item = hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect("begins");
        let session = crate::work::show(&engine, &item.to_string()).await.summary.session;
        let asked = async {
            loop {
                let open = hands.store().waiting_asks(session, 10).await.expect("reads");
                if let Some(ask) = open.first() {
                    return ask.card.ask_id.clone();
                }
                tokio::task::yield_now().await;
            }
        };
        let ask = tokio::time::timeout(PATIENCE, asked).await.expect("a card");
        assert!(matches!(hands.look_at_attempt(item).await, Ok(AttemptLook::Running { .. })));
        engine.engine.answer(OWNER, ask.clone(), approve()).await.expect("counts");
        let outcome = until_ended(&hands, item).await;
        assert_eq!((outcome.state, outcome.said.as_str()), (WorkState::Done, "done after the answer"));
        assert!(place.tree.join("asked.txt").exists(), "what was approved was done");
        // The question of an attempt that was ended ends with it.
        let item = hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect("begins");
        let session = crate::work::show(&engine, &item.to_string()).await.summary.session;
        let open = async || hands.store().waiting_asks(session, 10).await.expect("reads");
        let asked = async {
            while open().await.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("a card");
        hands.end_attempt(item, "enough").await.expect("ends");
        assert_eq!(open().await.len(), 0, "no card is left");
        assert_eq!(until_ended(&hands, item).await.state, WorkState::Cancelled);
    });
    engine.end();
}

/// Programs are asked about.
const ASK_SHELL: &str = r#"@id("ask-shell") @ask("Every program is asked for.")
forbid (principal, action == Action::"exec", resource) when { context.profile == "task" };"#;

/// The last words of an attempt are whole up to 64 KiB: the autopilot reads marks and answers in them.
#[test]
fn needs_userns_the_last_words_of_an_attempt_are_whole() {
    let long = format!("{}END", "ü".repeat(20_000));
    let said = long.clone();
    let engine = TestEngine::new("", |_| move |_: &ParsedRequest| Reply::text(&said));
    let place = place();
    engine.runtime.block_on(async {
        let (hands, plan) = approved(&engine, &place, None).await;
        let item = hands.start_attempt(attempt(plan, &place), Vec::new()).await.expect("begins");
        assert_eq!(until_ended(&hands, item).await.said, long);
    });
    engine.end();
}

/// The tokens that the scripted provider counts for the answer with this number.
fn counted_at(n: usize) -> u64 {
    [6_100, 7_300, 8_500, 12_400, 6_600, 6_900][n]
}

/// Returns true for a request for the summary of an older part.
fn is_summary(request: &ParsedRequest) -> bool {
    request.system.contains("You summarise the older part")
}

/// Requests as they came.
type Requests = Arc<Mutex<Vec<ParsedRequest>>>;

/// Waits until the model was asked so often.
async fn until_came(requests: &Requests, count: usize) {
    let asked = async {
        while requests.lock().expect("no panic").len() < count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("the model is asked");
}

/// The budget of a context is what the provider has counted for the newest answer and its request: it changes with each answer of a turn,
/// and with nothing else. A turn that crosses the first limit goes on with its context as it was, and only before the next turn the
/// older part is compacted, also where estimates are below that limit. (In part: where the estimate itself is above it, old results of tools
/// leave within the turn, which is no compaction; see the list of what is answered otherwise.)
///
/// Rows: SF-168
/// Rows: SF-169 (in part: a turn that the provider counts above the limit, and whose estimate is below it)
#[test]
fn needs_userns_a_context_is_counted_after_each_answer_and_compacted_between_turns() {
    const LIMIT: u64 = 12_000;
    let gates: Vec<ReplyGate> = (0..6).map(|_| ReplyGate::new()).collect();
    let held = gates.clone();
    let requests = Requests::default();
    let came = Arc::clone(&requests);
    let script = move |request: &ParsedRequest| {
        let mut came = came.lock().expect("no panic");
        came.push(request.clone());
        if is_summary(request) {
            let output = json!({ "summary": "Files one to three are written." });
            return Reply::text(&output.to_string()).with_usage(500, 20);
        }
        let n = came.iter().filter(|request| !is_summary(request)).count() - 1;
        let content = format!("text {n} {}", "word ".repeat(700));
        let reply = match n {
            3 | 5 => Reply::text("That is all for now."),
            _ => Reply::call("file_write", json!({ "path": format!("notes/{n}.txt"), "content": content })),
        };
        reply.with_usage(counted_at(n), 100).with_fault(ReplyFault::SlowFirstByte(held[n].clone()))
    };
    let change = |parts: &mut writ_runtime::services::EngineParts| {
        let context = &mut parts.config.begun.agent_config.context;
        context.total_tokens = Tokens::new(20_000);
    };
    let engine = TestEngine::with(change, |_| script);
    let place = place();
    engine.runtime.block_on(async {
        let (hands, plan) = approved(&engine, &place, None).await;
        let terms = AttemptTerms {
            max_turns: Some(9),
            evict_above: Share::try_from(0.60).ok(),
            end_above: Share::try_from(0.95).ok(),
            ..AttemptTerms::default()
        };
        let new = NewAttempt { terms, ..attempt(plan, &place) };
        let item = hands.start_attempt(new, Vec::new()).await.expect("begins");
        let budget = async |hands: &PilotHands| match hands.look_at_attempt(item).await.expect("is there") {
            AttemptLook::Running { context, .. } => context.expect("a turn has begun"),
            AttemptLook::Resting(rest) => rest.context.expect("a turn has begun"),
            AttemptLook::Ended(outcome) => panic!("{outcome:?}"),
        };
        for (n, gate) in gates.iter().enumerate().take(4) {
            until_came(&requests, n + 1).await;
            let before = n.checked_sub(1).map_or(0, |last| counted_at(last) + 100);
            let now = budget(&hands).await;
            assert_eq!((now.used().get(), now.should_compact()), (before, false), "before answer {n}");
            gate.open();
        }
        until_rests(&hands, item).await;
        let crossed = budget(&hands).await;
        assert_eq!((crossed.used().get(), crossed.max().get()), (counted_at(3) + 100, 20_000));
        assert!(crossed.used().get() >= LIMIT && crossed.should_compact() && !crossed.is_at_hard_limit());
        assert!(engine.facts("compacted").is_empty(), "a turn ends first");

        hands.continue_attempt(item, (2, "Go on.".to_owned()), "turn 1 has ended").await.expect("goes on");
        // The request for the summary, and the first of the next turn.
        until_came(&requests, 6).await;
        assert_eq!(engine.facts("compacted").len(), 1, "before the next turn");
        assert_eq!(budget(&hands).await.used(), Tokens::ZERO, "a fresh window, which nothing was counted of");
        gates[4].open();
        until_came(&requests, 7).await;
        assert_eq!(budget(&hands).await.used().get(), counted_at(4) + 100);
        gates[5].open();
        until_rests(&hands, item).await;
        hands.end_attempt(item, "seen").await.expect("ends");
    });
    let requests = requests.lock().expect("no panic");
    let kinds: Vec<bool> = requests.iter().map(is_summary).collect();
    assert_eq!(kinds, [false, false, false, false, true, false, false]);
    for (n, pair) in requests[..4].windows(2).enumerate() {
        assert!(
            pair[1].messages.starts_with(&pair[0].messages),
            "request {n} of the turn is in the next one"
        );
    }
    let next = serde_json::to_string(&requests[5].raw).expect("is JSON");
    assert!(next.contains("Files one to three are written.") && next.contains("Go on."), "{next}");
    assert!(!next.contains("text 0 word"), "{next}");
    drop(requests);
    engine.end();
}

/// Waits until a turn of an attempt has ended and the next one is to be decided.
async fn until_rests(hands: &PilotHands, item: ItemId) {
    let rests = async {
        loop {
            let woken = hands.wake();
            if let AttemptLook::Resting(_) = hands.look_at_attempt(item).await.expect("is there") {
                return;
            }
            woken.await;
        }
    };
    tokio::time::timeout(PATIENCE, rests).await.expect("its turn ends");
}
