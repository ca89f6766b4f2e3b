//! What happens to work items beside their plan: people stop them, turns end because of something outside, executors cheat.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use writ_runtime::engine::Answer;
use writ_store::reads::{PlanReads as _, UsageReads as _};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::action::Action;
use writ_types::api::work::{StepState, WorkDetails, WorkState};
use writ_types::entry::{Decision, Fact};
use writ_types::error::Exit;
use writ_types::id::AskId;
use writ_types::taint::Taint;
use writ_types::unit::{MicroUsd, Tokens};

use crate::harness::{BEGIN, OWNER, TestEngine};
use crate::work::{PATIENCE, PYTHON, approve, begin, failed_before, read, repository, show, until_at_rest};

/// A plan with one step, whose file must say «done».
fn one_file(budget: &str) -> String {
    format!(
        "---\nid: one\ntype: task\ntitle: One file\nbudget: {budget}\nverify:\n  - name: done\n    run: cat one.txt\n    expect: {{ contains: done }}\non_stuck: ask_person\n---\n\n# What to do\n\nWrite one.txt.\n"
    )
}

const GOAL: &str = "---\nid: kept\ntype: goal\ntitle: The file is there\nevery_minutes: 60\non_failure: spawn_task\nverify:\n  - name: there\n    expect: { file_exists: kept.txt }\n---\n\n# What to do\n\nWrite kept.txt.\n";

fn write(path: &str, content: &str) -> Reply {
    Reply::call("file_write", json!({ "path": path, "content": content }))
}

fn verdicts(shown: &WorkDetails) -> Vec<&str> {
    shown.steps[0].attempts.iter().map(|attempt| attempt.verdict.as_str()).collect()
}

/// Waits until something is so.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("never: {what}"))
}

async fn items(engine: &TestEngine) -> Vec<Value> {
    let listed = engine.call("work.list", json!({})).await.expect("a list");
    listed["items"].as_array().expect("a list").clone()
}

async fn child_of(engine: &TestEngine, goal: &str) -> Option<Value> {
    items(engine).await.into_iter().find(|item| item["goal"] == goal)
}

/// Approves the plan of an item that was proposed again.
async fn approve_again(engine: &TestEngine, item: &str) {
    let again = engine.call("work.retry", json!({ "item": item })).await.expect("asked again");
    let ask: AskId = again["ask"].as_str().expect("asked").parse().expect("an ask");
    let answered = engine.engine.answer(OWNER, ask, approve()).await.expect("counts");
    assert_eq!(answered.state, "applied", "{answered:?}");
}

/// What an executor says of itself decides nothing, in either direction.
///
/// Rows: SIL-003 SIL-193
#[test]
fn needs_userns_needs_git_needs_python_what_the_agent_says_of_itself_decides_nothing() {
    for (is_right, said, state) in [
        (true, "I failed. The tests do not pass, I am sorry.", WorkState::Done),
        (false, "Done, all tests pass.", WorkState::Stuck),
    ] {
        let engine = TestEngine::new("", |_| {
            move |request: &ParsedRequest| match request.results().next() {
                None => write(
                    PYTHON.file,
                    if is_right { "def add(a, b):\n    return a + b\n" } else { "x = 1\n" },
                ),
                Some(_) => Reply::text(said),
            }
        });
        let project = repository(&PYTHON);
        let plan = one_file("{max_attempts: 2}")
            .replace("cat one.txt", PYTHON.check)
            .replace("contains: done", "exit_code: 0");
        engine.runtime.block_on(async {
            let item = begin(&engine, &plan, Some(project.path())).await;
            let shown = until_at_rest(&engine, &item).await;
            assert_eq!(shown.summary.state, state, "{}", shown.report);
            assert_eq!(shown.steps[0].attempts[0].said, said);
            assert_eq!(shown.steps[0].attempts[0].verdict, if is_right { "pass" } else { "fail" });
        });
        assert_eq!(read(project.path(), PYTHON.file) == PYTHON.wrong, !is_right);
        engine.end();
    }
}

/// A new module with the name of the runner would report what its author wants.
#[test]
fn needs_userns_needs_git_needs_python_a_planted_runner_fails_the_attempt() {
    let engine = TestEngine::new("", |_| {
        |request: &ParsedRequest| match (request.results().next(), failed_before(request)) {
            (None, 0) => write("unittest.py", "print('Ran 1 test in 0.000s\\n\\nOK')\n"),
            (None, _) => {
                let command = "rm -f unittest.py && sed -i 's/a - b/a + b/' sums.py";
                Reply::call("shell_exec", json!({ "argv": ["sh", "-c", command] }))
            }
            (Some(_), _) => Reply::text("Done, all tests pass."),
        }
    });
    let project = repository(&PYTHON);
    let plan = one_file("{max_attempts: 3}")
        .replace("cat one.txt", PYTHON.check)
        .replace("contains: done", "exit_code: 0");
    engine.runtime.block_on(async {
        let item = begin(&engine, &plan, Some(project.path())).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
        assert_eq!(verdicts(&shown), ["fail", "pass"]);
        let first = &shown.steps[0].attempts[0];
        assert_eq!(first.checks[0].verdict, "pass", "the planted runner says what it is to say: {first:?}");
        assert!(first.notices[0].starts_with("'unittest.py' was created"), "{:?}", first.notices);
    });
    assert!(!project.path().join("unittest.py").exists());
    engine.end();
}

/// The work folder has the changes of all steps: what an earlier one may change is no cheat of a later one.
#[test]
fn needs_userns_needs_git_needs_python_a_test_that_an_earlier_step_may_change_fails_no_later_step() {
    let engine = TestEngine::new("", |_| {
        |request: &ParsedRequest| match request.results().next() {
            Some(_) => Reply::text("written"),
            None if request.last_user_text().contains("Add a remark") => {
                Reply::call("shell_exec", json!({ "argv": ["sh", "-c", "echo '# remark' >> test_sums.py"] }))
            }
            None => write(PYTHON.file, "def add(a, b):\n    return a + b\n"),
        }
    });
    let project = repository(&PYTHON);
    let plan = format!(
        "---\nid: two\ntype: task\ntitle: Two steps\nsteps:\n  - id: a\n    title: A\n    do: Add a remark to the test.\n    writes: [test_sums.py]\n  - id: b\n    title: B\n    do: Mend add.\n    writes: [sums.py]\n    verify:\n      - name: tests\n        run: {}\n        expect: {{ exit_code: 0 }}\n---\n\n# What to do\n\nBoth.\n",
        PYTHON.check
    );
    engine.runtime.block_on(async {
        let item = begin(&engine, &plan, Some(project.path())).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
        assert_eq!(shown.steps[1].attempts.len(), 1, "{}", shown.report);
    });
    assert!(read(project.path(), "test_sums.py").ends_with("# remark\n"));
    engine.end();
}

/// The first request of a model that waits behind a gate.
fn gated(gate: &ReplyGate, calls: &AtomicUsize, reply: Reply) -> Reply {
    if calls.fetch_add(1, Ordering::SeqCst) == 0 {
        return reply.with_fault(ReplyFault::SlowFirstByte(gate.clone()));
    }
    reply
}

/// An engine with a goal whose task waits for its model.
async fn goal_with_waiting_task(engine: &TestEngine) -> String {
    let goal = begin(engine, GOAL, None).await;
    until("the task asks its model", async || (engine.server.connections_waiting() > 0).then_some(())).await;
    goal
}

fn goal_engine(gate: &ReplyGate) -> TestEngine {
    let (gate, calls) = (gate.clone(), AtomicUsize::new(0));
    TestEngine::new("", |_| {
        move |request: &ParsedRequest| match request.results().next() {
            None => gated(&gate, &calls, write("kept.txt", "kept")),
            Some(_) => Reply::text("written"),
        }
    })
}

/// The task of a goal is paused, goes on and ends with it.
#[test]
fn needs_userns_a_paused_goal_pauses_its_task_and_a_resumed_one_lets_it_go_on() {
    let gate = ReplyGate::new();
    let engine = goal_engine(&gate);
    engine.runtime.block_on(async {
        let goal = goal_with_waiting_task(&engine).await;
        let name = json!({ "item": goal });
        let paused = engine.call("work.pause", name.clone()).await.expect("paused");
        assert_eq!(paused["state"], "paused");
        let child = child_of(&engine, &goal).await.expect("a task");
        assert_eq!(child["state"], "paused", "in the same commit");
        gate.open();
        let child = child["item"].as_str().expect("an id").to_owned();
        // The turn that ran ends and is judged; the task does not end by itself.
        let judged = async || (show(&engine, &child).await.summary.steps_done == 1).then_some(());
        until("its attempt is judged", judged).await;
        assert_eq!(show(&engine, &child).await.summary.state, WorkState::Paused);
        engine.call("work.resume", name).await.expect("goes on");
        let done = until_at_rest(&engine, &child).await;
        assert_eq!(done.summary.state, WorkState::Done, "{}", done.report);
    });
    engine.end();
}

/// Nothing of a goal goes on that was cancelled: not its task, not its job, not its key.
#[test]
fn needs_userns_a_cancelled_goal_cancels_its_task_with_it() {
    let gate = ReplyGate::new();
    let engine = goal_engine(&gate);
    engine.runtime.block_on(async {
        let goal = goal_with_waiting_task(&engine).await;
        let session = show(&engine, &goal).await.summary.session;
        let keys = async || engine.store.plans(Some(session), BEGIN, 9).await.expect("reads").len();
        assert_eq!(keys().await, 1);
        engine.call("work.cancel", json!({ "item": goal })).await.expect("ended");
        let child = child_of(&engine, &goal).await.expect("a task");
        assert_eq!(child["state"], "cancelled", "in the same commit");
        assert_eq!(keys().await, 0, "its approval and its key were taken back");
        let jobs = engine.call("jobs.list", json!({})).await.expect("a list");
        let names: Vec<&str> =
            jobs["jobs"].as_array().expect("a list").iter().filter_map(|job| job["name"].as_str()).collect();
        assert!(!names.iter().any(|name| name.starts_with("goal.")), "{names:?}");
        gate.open();
        let child = child["item"].as_str().expect("an id").to_owned();
        let ended = async || {
            let shown = show(&engine, &child).await;
            (shown.steps[0].state != StepState::Running).then_some(shown)
        };
        let shown = until("its turn has ended", ended).await;
        assert_eq!((shown.summary.state, shown.steps[0].attempts.len()), (WorkState::Cancelled, 1));
    });
    assert_eq!(engine.facts("model_called").len(), 1, "the call that was cut off, and none after it");
    engine.end();
}

/// Cancelled while a turn runs, and retried: the old turn is no result of the new round.
#[test]
fn needs_userns_an_item_that_was_cancelled_during_a_turn_is_retried_from_there() {
    let (gate, calls) = (ReplyGate::new(), AtomicUsize::new(0));
    let held = gate.clone();
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| match request.results().next() {
            None => gated(&held, &calls, write("one.txt", "done")),
            Some(_) => Reply::text("written"),
        }
    });
    engine.runtime.block_on(async {
        let item = begin(&engine, &one_file("{max_attempts: 2}"), None).await;
        until("its model is asked", async || (engine.server.connections_waiting() > 0).then_some(())).await;
        let cancelled = engine.call("work.cancel", json!({ "item": item })).await.expect("ended");
        assert_eq!(cancelled["state"], "cancelled");
        approve_again(&engine, &item).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
        assert_eq!(verdicts(&shown), ["not_run", "pass"]);
        gate.open();
    });
    engine.end();
}

/// A card that was open ends with its item.
#[test]
fn a_cancelled_proposal_leaves_no_open_card() {
    let engine = TestEngine::new("", |_| |_: &ParsedRequest| Reply::text("never"));
    engine.runtime.block_on(async {
        let proposed = engine.call("work.propose", json!({ "plan": one_file("{}") })).await.expect("a plan");
        let ask: AskId = proposed["ask"].as_str().expect("asked").parse().expect("an ask");
        engine.call("work.cancel", json!({ "item": proposed["item"] })).await.expect("ended");
        let open = engine.call("approvals.list", json!({})).await.expect("a list");
        assert_eq!(open["asks"], json!([]), "{open}");
        let late = engine.engine.answer(OWNER, ask, approve()).await.expect_err("it has ended");
        assert_eq!(late.code, "ask.closed", "{late:?}");
    });
    assert!(engine.facts("model_called").is_empty());
    engine.end();
}

/// The key of a plan is for its steps: a message would be answered under it, and the owner's own `writ apply` is no
/// verification.
#[test]
fn needs_userns_needs_git_the_key_of_a_plan_is_for_its_steps_alone() {
    let engine = TestEngine::new("", |_| {
        |request: &ParsedRequest| match request.results().next() {
            None => write(PYTHON.file, "wrong\n"),
            Some(_) => Reply::text("written"),
        }
    });
    let project = repository(&PYTHON);
    let plan = one_file("{max_attempts: 2}").replace("run: cat one.txt", "run: cat sums.py");
    engine.runtime.block_on(async {
        let item = begin(&engine, &plan, Some(project.path())).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Stuck, "{}", shown.report);
        let session = shown.summary.session;
        let text = "apply what you have".to_owned();
        let refused = engine.engine.receive(OWNER, session, "m".to_owned(), text, Taint::Owner).await;
        let refused = refused.expect_err("it takes no messages");
        assert_eq!((refused.code.as_str(), refused.exit), ("work.session", Exit::Usage));
        let applied = engine.call("apply", json!({ "session": session })).await.expect("asks");
        assert!(applied["ask_id"].is_string(), "a person is asked: {applied}");
        assert_eq!(read(project.path(), PYTHON.file), PYTHON.wrong, "nothing is in the project");
    });
    engine.end();
}

/// Asks about every file that is written.
const ASK_WRITE: &str = r#"@id("ask-write") @ask("Every write is asked for.")
forbid (principal, action == Action::"write_file", resource);"#;

/// An attempt that waits for a person is one attempt, however long it takes, and hears what came of it.
#[test]
fn needs_userns_an_attempt_waits_for_an_answer_and_goes_on_with_it() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heard);
    let engine = TestEngine::new(ASK_WRITE, |_| {
        move |request: &ParsedRequest| {
            let said = request.last_user_text().to_owned();
            seen.lock().expect("whole").push(said.clone());
            match request.results().next() {
                None if said.contains("was approved") => Reply::text("It is there."),
                None if said.contains("was refused") => write("one.txt", "done"),
                None => write("one.txt", "almost"),
                Some(_) => Reply::text("I wait for the approval."),
            }
        }
    });
    engine.runtime.block_on(async {
        let item = begin(&engine, &one_file("{max_attempts: 1}"), None).await;
        for decision in [Decision::Deny, Decision::Approve] {
            let held = async || {
                let open = engine.call("approvals.list", json!({})).await.expect("a list");
                let ask = open["asks"].as_array().expect("a list").first().cloned()?;
                let facts = engine.facts("worked");
                let held = |fact: &&writ_types::entry::Fact| {
                    matches!(fact, writ_types::entry::Fact::Worked { state, .. } if state == "held")
                };
                let count = facts.iter().filter(held).count();
                (count == if decision == Decision::Deny { 1 } else { 2 }).then_some(ask)
            };
            let ask = until("the attempt is held", held).await;
            let shown = show(&engine, &item).await;
            assert_eq!((shown.summary.state, verdicts(&shown)), (WorkState::Running, vec![""]));
            let ask: AskId = ask["ask_id"].as_str().expect("an id").parse().expect("an ask");
            let answer = Answer { decision, reason: "say done".to_owned(), ..approve() };
            engine.engine.answer(OWNER, ask, answer).await.expect("counts");
        }
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
        assert_eq!(verdicts(&shown), ["pass"], "one attempt");
    });
    let heard = heard.lock().expect("whole").clone();
    assert!(heard.iter().any(|said| said.contains("was refused by a person (say done)")), "{heard:?}");
    engine.end();
}

/// Two steps that wait for a person once each: the message that lets the first go on has not the name of the second's.
#[test]
fn needs_userns_each_of_two_steps_waits_for_an_answer_and_goes_on() {
    let engine = TestEngine::new(ASK_WRITE, |_| {
        |request: &ParsedRequest| match request.results().next() {
            None if request.last_user_text().contains("was approved") => Reply::text("It is there."),
            None if request.last_user_text().contains("two.txt") => write("two.txt", "done"),
            None => write("one.txt", "done"),
            Some(_) => Reply::text("I wait for the approval."),
        }
    });
    let step = |name: &str, after: &str| {
        format!(
            "  - id: {name}\n    title: {name}\n    do: Write {name}.txt now\n    writes: [{name}.txt]\n{after}    verify:\n      - name: {name}\n        run: cat {name}.txt\n        expect: {{ contains: done }}\n"
        )
    };
    let plan = format!(
        "---\nid: both\ntype: project\ntitle: Two files\nsteps:\n{}{}---\n\n# What to do\n\nBoth.\n",
        step("one", ""),
        step("two", "    after: [one]\n")
    );
    engine.runtime.block_on(async {
        let item = begin(&engine, &plan, None).await;
        for _ in 0..2 {
            let open = async || {
                let open = engine.call("approvals.list", json!({})).await.expect("a list");
                open["asks"].as_array().expect("a list").first().cloned()
            };
            let ask = until("a question", open).await;
            let ask: AskId = ask["ask_id"].as_str().expect("an id").parse().expect("an ask");
            engine.engine.answer(OWNER, ask, approve()).await.expect("counts");
        }
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
        assert!(shown.steps.iter().all(|step| step.attempts.len() == 1), "one attempt at each");
    });
    engine.end();
}

/// However an item ends, what its turns have asked ends with it: no card stays open, and a late approval performs nothing.
#[test]
fn needs_userns_no_card_outlives_its_item() {
    let engine = TestEngine::new(ASK_WRITE, |_| {
        |request: &ParsedRequest| {
            let said = request.last_user_text().to_owned();
            match request.results().next() {
                // Its next call has no room left.
                None if said.contains("is spent") => write("one.txt", "done").with_usage(49_500, 1_000),
                None => write("one.txt", "done"),
                Some(_) if said.contains("is cancelled") => Reply::text("I wait for the approval."),
                // A turn that fails waits for nothing.
                Some(_) => {
                    let refused = ReplyFault::Status { status: 401, retry_after: None };
                    Reply::text("never").with_fault(refused)
                }
            }
        }
    });
    let ends = [
        (WorkState::Failed, "{max_attempts: 1}", "cat one.txt"),
        (WorkState::Done, "{max_attempts: 1}", "echo done"),
        (WorkState::OverBudget, "{max_attempts: 2, max_tokens: 50000}", "cat one.txt"),
        (WorkState::Cancelled, "{max_attempts: 1}", "cat one.txt"),
    ];
    engine.runtime.block_on(async {
        for (n, (end, budget, check)) in ends.into_iter().enumerate() {
            let way = if end == WorkState::OverBudget { "spent" } else { end.name() };
            let plan = one_file(budget)
                .replace("run: cat one.txt", &format!("run: {check}"))
                .replace("Write one.txt.", &format!("Write one.txt. This one is {way}."));
            let item = begin(&engine, &plan, None).await;
            let asked = async || {
                let of_write = |fact| {
                    let Fact::Asked { ask, action: Action::WriteFile(_), .. } = fact else { return None };
                    Some(ask)
                };
                engine.facts("asked").into_iter().filter_map(of_write).nth(n)
            };
            let ask = until("its turn asks", asked).await;
            if end == WorkState::Cancelled {
                engine.call("work.cancel", json!({ "item": item })).await.expect("ended");
            }
            let shown = until_at_rest(&engine, &item).await;
            assert_eq!(shown.summary.state, end, "{}", shown.report);
            let open = engine.call("approvals.list", json!({})).await.expect("a list");
            assert_eq!(open["asks"], json!([]), "{end:?}: {open}");
            let late = engine.engine.answer(OWNER, ask, approve()).await.expect_err("it has ended");
            assert_eq!(late.code, "ask.closed", "{end:?}: {late:?}");
        }
    });
    let is_write = |fact: &Fact| matches!(fact, Fact::Intent { action: Action::WriteFile(_), .. });
    assert_eq!(engine.facts("intent").iter().filter(|fact| is_write(fact)).count(), 0);
    engine.end();
}

/// The owner's pause of the session, and a limit of the day, are none of the item's: its attempt goes on afterwards.
#[test]
fn needs_userns_an_attempt_goes_on_after_its_owner_s_pause() {
    let engine = TestEngine::new("", |_| {
        |request: &ParsedRequest| match request.results().next() {
            None => write("one.txt", "done"),
            Some(_) => Reply::text("written"),
        }
    });
    engine.runtime.block_on(async {
        let plan = one_file("{max_attempts: 1}");
        let proposed = engine.call("work.propose", json!({ "plan": plan })).await.expect("a plan");
        let (item, session) = (proposed["item"].as_str().expect("an id"), proposed["session"].clone());
        engine.call("budget.pause", json!({ "session": session })).await.expect("paused");
        let ask: AskId = proposed["ask"].as_str().expect("asked").parse().expect("an ask");
        engine.engine.answer(OWNER, ask, approve()).await.expect("counts");
        let held = async || {
            let is_held = |fact: writ_types::entry::Fact| {
                matches!(fact, writ_types::entry::Fact::Worked { state, .. } if state == "held")
            };
            engine.facts("worked").into_iter().any(is_held).then_some(())
        };
        until("the attempt is held", held).await;
        let shown = show(&engine, item).await;
        assert_eq!((shown.summary.state, shown.steps[0].state), (WorkState::Running, StepState::Running));
        engine.call("budget.renew", json!({ "session": session })).await.expect("goes on");
        let shown = until_at_rest(&engine, item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
        assert_eq!(verdicts(&shown), ["pass"], "one attempt");
    });
    engine.end();
}

/// An attempt has the money of one turn, in however many turns it is made: neither an end because of that money nor an owner's pause
/// gives it as much again.
#[test]
fn needs_userns_an_attempt_has_the_money_of_one_turn() {
    const LIMIT: MicroUsd = MicroUsd::new(200_000);
    let (gate, calls) = (ReplyGate::new(), AtomicUsize::new(0));
    let held = gate.clone();
    let engine = TestEngine::priced(
        |parts| {
            parts.config.begun.agent_config.limits.max_output_tokens = Tokens::new(1_000);
            parts.config.budget.max_cost_per_turn = Some(LIMIT);
        },
        |_| {
            move |_: &ParsedRequest| {
                // Two calls of this usage cost less than the limit, three cost more.
                let reply = write("one.txt", "wrong").with_usage(10_000, 1_000);
                let is_held = calls.fetch_add(1, Ordering::SeqCst) == 3;
                if is_held { reply.with_fault(ReplyFault::SlowFirstByte(held.clone())) } else { reply }
            }
        },
    );
    engine.runtime.block_on(async {
        let cost_of = async |shown: &WorkDetails| {
            engine.store.session_usage(shown.summary.session).await.expect("reads").cost
        };
        let item = begin(&engine, &one_file("{max_attempts: 1}"), None).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!((shown.summary.state, verdicts(&shown)), (WorkState::Failed, vec!["fail"]));
        let cost = cost_of(&shown).await;
        assert!(cost > MicroUsd::ZERO && cost <= LIMIT, "{cost}");

        let item = begin(&engine, &one_file("{max_attempts: 1}"), None).await;
        // The pause cuts off its second call, which costs nothing then.
        until("its model is asked", async || (engine.server.connections_waiting() > 0).then_some(())).await;
        let session = show(&engine, &item).await.summary.session;
        engine.call("budget.pause", json!({ "session": session })).await.expect("paused");
        gate.open();
        let is_held = |fact: Fact| matches!(fact, Fact::Worked { state, .. } if state == "held");
        until("it is held", async || engine.facts("worked").into_iter().any(is_held).then_some(())).await;
        engine.call("budget.renew", json!({ "session": session })).await.expect("goes on");
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!((shown.summary.state, verdicts(&shown)), (WorkState::Failed, vec!["fail"]));
        assert_eq!(cost_of(&shown).await, cost, "what it has spent before the pause counts after it");
    });
    engine.end();
}

/// Executors work for eight steps of an item at a time, and for sixteen of all.
///
/// Rows: SIL-403
#[test]
fn executors_are_eight_for_an_item_and_sixteen_for_all() {
    const STEPS: usize = 20;
    let (gate, working) = (ReplyGate::new(), Arc::new(Mutex::new(BTreeMap::<char, usize>::new())));
    let (held, seen) = (gate.clone(), Arc::clone(&working));
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            let said = request.last_user_text().to_owned();
            let name = said.split("in project ").nth(1).and_then(|rest| rest.chars().next()).unwrap_or('?');
            *seen.lock().expect("whole").entry(name).or_default() += 1;
            Reply::text("done").with_fault(ReplyFault::SlowFirstByte(held.clone()))
        }
    });
    let plan = |name: char| {
        let steps: String = (0..STEPS)
            .map(|n| {
                format!("  - id: s{n}\n    title: Step {n}\n    do: Say done in project {name}\n    writes: [f{n}]\n")
            })
            .collect();
        format!(
            "---\nid: p{name}\ntype: project\ntitle: Project\nbudget: {{max_tokens: 400000000}}\nsteps:\n{steps}---\n\n# What to do\n\nAll.\n"
        )
    };
    engine.runtime.block_on(async {
        let first = begin(&engine, &plan('a'), None).await;
        until("eight work", async || (engine.server.connections_waiting() >= 8).then_some(())).await;
        let running = async |item: &str| {
            let shown = show(&engine, item).await;
            shown.steps.iter().filter(|step| step.state == StepState::Running).count()
        };
        assert_eq!(running(&first).await, 8);
        let mut all = vec![first];
        for name in ['b', 'c'] {
            all.push(begin(&engine, &plan(name), None).await);
        }
        until("sixteen work", async || (engine.server.connections_waiting() >= 16).then_some(())).await;
        let mut counts = Vec::new();
        for item in &all {
            counts.push(running(item).await);
        }
        assert_eq!(counts.iter().sum::<usize>(), 16, "{counts:?}");
        assert!(counts.iter().all(|count| *count <= 8), "{counts:?}");
        gate.open();
        for item in &all {
            let shown = until_at_rest(&engine, item).await;
            assert_eq!(
                (shown.summary.state, shown.summary.steps_done),
                (WorkState::Done, STEPS),
                "{}",
                shown.report
            );
        }
    });
    let calls = working.lock().expect("whole").clone();
    assert_eq!(calls, BTreeMap::from([('a', STEPS), ('b', STEPS), ('c', STEPS)]), "each step once");
    engine.end();
}

/// An item whose money is used up is reported. It has as much again after another approval and goes on, and what it costs is known
/// to the millionth.
///
/// Rows: SIL-174 (in part: money beyond its budget stops further attempts)
#[test]
fn needs_userns_a_retry_is_for_as_much_money_again() {
    let mends = Arc::new(AtomicBool::new(false));
    let (seen, writes) = (Arc::clone(&mends), AtomicUsize::new(0));
    let engine = TestEngine::priced(
        |parts| parts.config.begun.agent_config.limits.max_output_tokens = Tokens::new(1_000),
        |_| {
            move |request: &ParsedRequest| {
                let reply = match request.results().next() {
                    None if seen.load(Ordering::SeqCst) => write("one.txt", "done"),
                    None => write("one.txt", &format!("bad {}", writes.fetch_add(1, Ordering::SeqCst))),
                    Some(_) => Reply::text("written"),
                };
                reply.with_usage(10_000, 1_000)
            }
        },
    );
    engine.runtime.block_on(async {
        let item = begin(&engine, &one_file("{max_cost_usd: 0.20, max_attempts: 9}"), None).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::OverBudget, "{}", shown.report);
        let session = shown.summary.session;
        let first = engine.store.session_usage(session).await.expect("reads").cost;
        assert_eq!(shown.summary.spending.cost_micro_usd, first);
        assert!(first > MicroUsd::new(100_000), "{first}");
        mends.store(true, Ordering::SeqCst);
        // A person reads the report first: what was refused before this approval says nothing about the time after it.
        engine.clock.go_on(Duration::from_secs(1));
        approve_again(&engine, &item).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
        let whole = engine.store.session_usage(session).await.expect("reads").cost;
        let again = shown.summary.spending.cost_micro_usd;
        assert_eq!(whole.get(), first.get() + again.get(), "the limit counts from the approval on");
        let listed = items(&engine).await;
        assert_eq!(listed[0]["spending"], json!(shown.summary.spending), "the list says the same");
        let calls = u64::try_from(engine.facts("model_called").len()).expect("few");
        assert_eq!(
            (whole.get() % calls, again.get()),
            (0, 2 * whole.get() / calls),
            "each call costs the same"
        );
    });
    engine.end();
}

/// An engine that ends within two steps: at its start the one goes on at once, and the other does not, since its approval was taken
/// back. What was done is not done again.
///
/// Rows: SIL-041
#[test]
fn needs_userns_a_start_takes_up_what_was_under_way_and_is_still_approved() {
    /// Less than the wait after which everything is looked at without a call.
    const AT_ONCE: Duration = Duration::from_secs(25);
    let (gate, asked) = (ReplyGate::new(), Arc::new(Mutex::new(Vec::new())));
    let (held, seen) = (gate.clone(), Arc::clone(&asked));
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            let name = ["first.txt", "second.txt", "third.txt"]
                .into_iter()
                .find(|name| request.last_user_text().contains(&format!("Write {name}.")))
                .unwrap_or("none.txt");
            if request.results().next().is_some() {
                return Reply::text("written");
            }
            let mut seen = seen.lock().expect("whole");
            seen.push(name);
            let is_held = name != "first.txt" && seen.iter().filter(|seen| **seen == name).count() == 1;
            let reply = write(name, "done");
            if is_held { reply.with_fault(ReplyFault::SlowFirstByte(held.clone())) } else { reply }
        }
    });
    let plan = |name: &str| {
        one_file("{max_attempts: 1}")
            .replace("one.txt", name)
            .replace("id: one", &format!("id: {}", name.trim_end_matches(".txt")))
    };
    let [first, second, third] = engine.runtime.block_on(async {
        let first = begin(&engine, &plan("first.txt"), None).await;
        assert_eq!(until_at_rest(&engine, &first).await.summary.state, WorkState::Done);
        let second = begin(&engine, &plan("second.txt"), None).await;
        let third = begin(&engine, &plan("third.txt"), None).await;
        until("both ask their models", async || (engine.server.connections_waiting() >= 2).then_some(()))
            .await;
        let ask = show(&engine, &third).await.summary.ask.expect("its approval");
        engine.call("approvals.revoke", json!({ "ask": ask })).await.expect("taken back");
        [first, second, third]
    });
    let engine = engine.restarted();
    engine.runtime.block_on(async {
        let count = || asked.lock().expect("whole").iter().filter(|name| **name == "second.txt").count();
        let again = until("its model is asked again", async || (count() == 2).then_some(()));
        tokio::time::timeout(AT_ONCE, again).await.expect("it is taken up at once");
        let second = until_at_rest(&engine, &second).await;
        assert_eq!(
            (second.summary.state, verdicts(&second)),
            (WorkState::Done, vec!["pass"]),
            "{}",
            second.report
        );
        // Its turn is tried again some times before that is given up.
        let given_up = async || {
            engine.clock.go_on(Duration::from_secs(10));
            let shown = show(&engine, &third).await;
            shown.summary.state.is_at_rest().then_some(shown)
        };
        let third = until("the other is given up", given_up).await;
        assert_eq!(third.summary.state, WorkState::Stuck, "{}", third.report);
        assert!(third.report.contains("the approval of its plan has ended"), "{}", third.report);
        assert_eq!(show(&engine, &first).await.summary.state, WorkState::Done);
    });
    let asked = asked.lock().expect("whole").clone();
    assert_eq!(asked.iter().filter(|name| **name == "first.txt").count(), 1, "{asked:?}");
    assert_eq!(
        asked.iter().filter(|name| **name == "second.txt").count(),
        2,
        "the call that was cut off, again"
    );
    gate.open();
    engine.end();
}
