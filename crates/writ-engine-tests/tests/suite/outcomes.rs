//! The ends of work items, as the checks of the harness decide them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use writ_store::reads::UsageReads as _;
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::api::work::{StepState, WorkState};
use writ_types::entry::Fact;
use writ_types::error::Exit;
use writ_types::unit::{MicroUsd, Tokens};

use crate::harness::TestEngine;
use crate::work::{PATIENCE, begin, failed_before, show, until_at_rest};

/// The period of the goals here.
const HOUR: Duration = Duration::from_secs(3_600);

/// The first name of a text file in the last words to an executor.
fn named_file(request: &ParsedRequest) -> String {
    let words = request.last_user_text().split(|letter: char| letter.is_whitespace() || letter == ',');
    let mut names = words.filter(|word| word.ends_with(".txt"));
    names.next().unwrap_or("none.txt").to_owned()
}

/// An executor that writes the file that its step names, and says so; one of the names in `skips` it does not write.
fn writer(request: &ParsedRequest, skips: &[&str]) -> Reply {
    let name = named_file(request);
    match request.results().next() {
        None if skips.contains(&name.as_str()) => Reply::text("I have written it."),
        None => Reply::call("file_write", json!({ "path": name, "content": "heron" })),
        Some(_) => Reply::text("I have written it."),
    }
}

/// A step that writes the file of its name.
fn step(id: &str, after: &str) -> String {
    format!(
        "  - id: {id}\n    title: {id}\n    do: Write {id}.txt now\n    writes: [{id}.txt]\n{after}    verify:\n      - name: there\n        expect: {{ file_exists: {id}.txt }}\n"
    )
}

/// A plan that nobody is asked about once it is stuck.
fn plan(name: &str, kind: &str, more: &str) -> String {
    format!(
        "---\nid: {name}\ntype: {kind}\ntitle: Some files\non_stuck: stop\nbudget: {{max_attempts: 1}}\n{more}---\n\n# What to do\n\nAll of it.\n"
    )
}

async fn items(engine: &TestEngine) -> Vec<Value> {
    let listed = engine.call("work.list", json!({})).await.expect("a list");
    listed["items"].as_array().expect("a list").clone()
}

/// Waits until a goal has so many runs of its checks that are judged, and its job waits for the next.
async fn until_checked(engine: &TestEngine, goal: &str, runs: usize) {
    let checked = async {
        loop {
            let shown = show(engine, goal).await;
            let attempts = shown.steps[0].attempts.iter();
            let judged = attempts.filter(|attempt| attempt.judged_at.is_some()).count();
            if judged >= runs && shown.steps[0].state == StepState::Waiting {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, checked).await.unwrap_or_else(|_| panic!("{runs} runs are never there"));
}

/// The children of a project pass their own checks, and the project is not completed: the check of the whole fails.
///
/// Rows: SIL-180
#[test]
fn needs_userns_a_project_whose_parts_pass_is_not_done_before_the_whole_passes() {
    for (expected, state) in [("heron", WorkState::Done), ("swan", WorkState::Failed)] {
        let engine = TestEngine::new("", |_| |request: &ParsedRequest| writer(request, &[]));
        let whole = format!(
            "verify:\n  - name: whole\n    run: cat a.txt b.txt\n    expect: {{ contains: {expected} }}\n"
        );
        let plan = plan("whole", "project", &format!("steps:\n{}{}{whole}", step("a", ""), step("b", "")));
        engine.runtime.block_on(async {
            let item = begin(&engine, &plan, None).await;
            let shown = until_at_rest(&engine, &item).await;
            assert_eq!(shown.summary.state, state, "{}", shown.report);
            let states: Vec<StepState> = shown.steps.iter().map(|step| step.state).collect();
            let last = if state == WorkState::Done { StepState::Done } else { StepState::Failed };
            assert_eq!(states, [StepState::Done, StepState::Done, last]);
            let checks = &shown.steps[2].attempts.last().expect("an attempt").checks;
            assert_eq!(checks[0].verdict, if state == WorkState::Done { "pass" } else { "fail" });
        });
        engine.end();
    }
}

/// Every step has its result: what was done and what its checks have shown, also where they have not passed.
///
/// Rows: SIL-292 SIL-191
#[test]
fn needs_userns_each_step_has_its_result_and_a_file_that_is_only_claimed_is_missing() {
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            seen.fetch_add(1, Ordering::SeqCst);
            writer(request, &["b.txt"])
        }
    });
    engine.runtime.block_on(async {
        for outside in ["../a.txt", "/etc/passwd", "x/../../a.txt"] {
            let refused = plan("out", "task", &format!("steps:\n{}", step("a", "")))
                .replace("file_exists: a.txt", &format!("file_exists: {outside}"));
            let refused = engine.call("work.propose", json!({ "plan": refused })).await.expect_err("no plan");
            assert_eq!((refused.code.as_str(), refused.exit), ("plan.document", Exit::Usage), "{outside}");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        let plan = plan("two", "task", &format!("steps:\n{}{}", step("a", ""), step("b", "")));
        let item = begin(&engine, &plan, None).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Failed, "{}", shown.report);
        let results: Vec<(&str, StepState, &str, &str, &str)> = shown
            .steps
            .iter()
            .map(|step| {
                let attempt = step.attempts.first().expect("an attempt");
                let check = attempt.checks.first().expect("a check");
                (step.step.as_str(), step.state, &*attempt.said, &*attempt.verdict, &*check.verdict)
            })
            .collect();
        assert_eq!(
            results,
            [
                ("a", StepState::Done, "I have written it.", "pass", "pass"),
                ("b", StepState::Failed, "I have written it.", "fail", "fail"),
            ]
        );
    });
    engine.end();
}

/// The children of a project are run in the order of their edges, each once; a plan with a cycle is refused before anything runs.
///
/// Rows: SIL-179
#[test]
fn needs_userns_a_diamond_is_executed_along_its_edges_and_a_cycle_not_at_all() {
    let begun = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&begun);
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            if request.results().next().is_none() {
                seen.lock().expect("whole").push(named_file(request));
            }
            writer(request, &[])
        }
    });
    let diamond = |first: &str| {
        // The order of the text is not that of the edges.
        let steps = [
            step("d", "    after: [b, c]\n"),
            step("c", "    after: [a]\n"),
            step("b", "    after: [a]\n"),
            step("a", first),
        ];
        plan("diamond", "project", &format!("steps:\n{}", steps.concat()))
    };
    engine.runtime.block_on(async {
        let cycle = diamond("    after: [d]\n");
        let refused = engine.call("work.propose", json!({ "plan": cycle })).await.expect_err("a cycle");
        assert_eq!(refused.code, "plan.document", "{refused:?}");
        assert_eq!(items(&engine).await, [] as [Value; 0]);
        assert!(begun.lock().expect("whole").is_empty());

        let item = begin(&engine, &diamond(""), None).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
        let order = begun.lock().expect("whole").clone();
        assert_eq!((order.len(), &*order[0], &*order[3]), (4, "a.txt", "d.txt"), "{order:?}");
        let mut between = [&*order[1], &*order[2]];
        between.sort_unstable();
        assert_eq!(between, ["b.txt", "c.txt"]);
    });
    engine.end();
}

fn goal(name: &str, on_failure: &str, check: &str) -> String {
    format!(
        "---\nid: {name}\ntype: goal\ntitle: All is well\nevery_minutes: 60\non_failure: {on_failure}\nverify:\n  - name: well\n{check}---\n\n# What to do\n\nWrite kept.txt now.\n"
    )
}

/// The check of a goal that always passes.
const PASSES: &str = "    run: cat /dev/null\n    expect: { exit_code: 0 }\n";

/// The checks of a goal run once in each period, and where they pass nothing else does.
///
/// Rows: SIL-181
#[test]
fn needs_userns_the_checks_of_a_goal_run_once_in_each_period() {
    const PERIODS: usize = 3;
    let engine = TestEngine::new("", |_| |_: &ParsedRequest| Reply::text("Hello."));
    engine.runtime.block_on(async {
        let item = begin(&engine, &goal("well", "spawn_task", PASSES), None).await;
        until_checked(&engine, &item, 1).await;
        for run in 0..PERIODS {
            engine.clock.go_on(HOUR - Duration::from_secs(1));
            // A turn in between: whatever was due has had its time.
            engine.send(None, &format!("m{run}"), "Hello?").await;
            assert_eq!(show(&engine, &item).await.steps[0].attempts.len(), run + 1, "not before");
            engine.clock.go_on(Duration::from_secs(1));
            until_checked(&engine, &item, run + 2).await;
        }
        let shown = show(&engine, &item).await;
        let attempts = &shown.steps[0].attempts;
        assert_eq!(attempts.len(), PERIODS + 1);
        for pair in attempts.windows(2) {
            assert_eq!(pair[1].began_at, pair[0].began_at.plus_duration(HOUR), "{attempts:?}");
        }
        assert!(attempts.iter().all(|attempt| attempt.verdict == "pass"));
        assert_eq!(items(&engine).await.len(), 1, "nothing was started");
    });
    assert_eq!(engine.facts("model_called").len(), PERIODS, "the turns in between alone");
    engine.end();
}

/// A failing check starts one task under the goal's approval, which is run and mends it. A goal that reports starts none, and one
/// that nobody has approved is not even checked.
///
/// Rows: SIL-182
#[test]
fn needs_userns_a_failing_check_starts_a_task_only_where_the_plan_says_so_and_is_approved() {
    const MISSING: &str = "    expect: { file_exists: kept.txt }\n";
    let engine = TestEngine::new("", |_| |request: &ParsedRequest| writer(request, &[]));
    engine.runtime.block_on(async {
        let proposed = engine
            .call("work.propose", json!({ "plan": goal("unanswered", "spawn_task", MISSING) }))
            .await
            .expect("a plan");
        let unanswered = proposed["item"].as_str().expect("an id").to_owned();
        let reports = begin(&engine, &goal("reports", "report", MISSING), None).await;
        until_checked(&engine, &reports, 1).await;
        engine.clock.go_on(HOUR);
        until_checked(&engine, &reports, 2).await;
        let shown = show(&engine, &reports).await;
        assert!(shown.steps[0].attempts.iter().all(|attempt| attempt.verdict == "fail"));
        assert_eq!(show(&engine, &unanswered).await.steps[0].attempts.len(), 0);
        assert_eq!(items(&engine).await.len(), 2, "no task was started");
        assert_eq!(engine.facts("model_called").len(), 0);

        let mends = begin(&engine, &goal("mends", "spawn_task", MISSING), None).await;
        let child = async {
            loop {
                let listed = items(&engine).await;
                let child = listed.iter().find(|item| item["goal"] == *mends && item["state"] == "done");
                if let Some(child) = child {
                    return child["item"].as_str().expect("an id").to_owned();
                }
                tokio::task::yield_now().await;
            }
        };
        let child = tokio::time::timeout(PATIENCE, child).await.expect("the goal's task is done");
        let shown = show(&engine, &child).await;
        assert_eq!(shown.summary.kind, "task");
        assert_eq!(shown.steps[0].attempts[0].verdict, "pass");
        let children = items(&engine).await.into_iter().filter(|item| !item["goal"].is_null()).count();
        assert_eq!(children, 1);
    });
    assert_eq!(engine.facts("asked").len(), 3, "each goal's card, and none of the task");
    engine.end();
}

/// The task that a goal has started runs on the goal's approval, like any other; where that is taken back, its first step does
/// nothing any more.
///
/// Rows: SIL-155
#[test]
fn needs_userns_a_goals_task_runs_on_the_goals_approval_and_not_without_it() {
    for is_revoked in [false, true] {
        let gate = ReplyGate::new();
        let held = gate.clone();
        let engine = TestEngine::new("", |_| {
            move |request: &ParsedRequest| {
                let reply = writer(request, &[]);
                match request.results().next() {
                    None => reply.with_fault(ReplyFault::SlowFirstByte(held.clone())),
                    Some(_) => reply,
                }
            }
        });
        engine.runtime.block_on(async {
            let goal_text = goal("kept", "spawn_task", "    expect: { file_exists: kept.txt }\n");
            let item = begin(&engine, &goal_text, None).await;
            let begun = async {
                while engine.server.connections_waiting() < 1 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, begun).await.expect("its task is begun");
            if is_revoked {
                let ask = show(&engine, &item).await.summary.ask.expect("its approval");
                engine.call("approvals.revoke", json!({ "ask": ask })).await.expect("taken back");
            }
            gate.open();
            let child =
                items(&engine).await.into_iter().find(|other| other["goal"] == *item).expect("a task");
            let child = child["item"].as_str().expect("an id").to_owned();
            let ended = async {
                loop {
                    let shown = show(&engine, &child).await;
                    if shown.summary.state.is_at_rest() {
                        return shown;
                    }
                    // Its turn is tried again after some time; one that is still approved needs none, and its key does not
                    // outlast a clock that runs ahead of a busy machine.
                    if is_revoked {
                        engine.clock.go_on(Duration::from_secs(1));
                    }
                    tokio::task::yield_now().await;
                }
            };
            let shown = tokio::time::timeout(PATIENCE, ended).await.expect("it comes to rest");
            let done = usize::from(!is_revoked);
            assert_eq!(shown.summary.steps_done, done, "{is_revoked}: {}", shown.report);
            assert_eq!(shown.summary.state == WorkState::Done, !is_revoked, "{}", shown.report);
            // Where the clock goes on it may reach the goal's next check, whose task finds the file and changes it.
            let first = if is_revoked { "kept.txt" } else { "created kept.txt" };
            let wrote = engine
                .facts("outcome")
                .into_iter()
                .filter(|fact| matches!(fact, Fact::Outcome { summary, .. } if summary.contains(first)));
            assert_eq!(wrote.count(), done, "{is_revoked}: {:?}", engine.facts("outcome"));
        });
        engine.end();
    }
}

/// Tokens and money of every attempt add up, and each of the two limits ends the attempts.
///
/// Rows: SIL-174
#[test]
fn needs_userns_either_limit_of_an_items_budget_ends_its_attempts() {
    /// Tokens of one call: 10,000 sent, 1,000 answered.
    const CALL: u64 = 11_000;
    for budget in ["{max_tokens: 60000, max_attempts: 9}", "{max_cost_usd: 0.40, max_attempts: 9}"] {
        let writes = AtomicUsize::new(0);
        let engine = TestEngine::priced(
            |parts| parts.config.begun.agent_config.limits.max_output_tokens = Tokens::new(1_000),
            |_| {
                move |request: &ParsedRequest| {
                    let reply = match request.results().next() {
                        None => {
                            // Another failure each time, so that nothing but the budget ends it.
                            let content = format!("bad {}", writes.fetch_add(1, Ordering::SeqCst));
                            Reply::call("file_write", json!({ "path": "one.txt", "content": content }))
                        }
                        Some(_) => Reply::text("written"),
                    };
                    reply.with_usage(10_000, 1_000)
                }
            },
        );
        let plan = format!(
            "---\nid: one\ntype: task\ntitle: One file\nbudget: {budget}\non_stuck: stop\nverify:\n  - name: done\n    run: cat one.txt\n    expect: {{ contains: done }}\n---\n\n# What to do\n\nWrite one.txt.\n"
        );
        engine.runtime.block_on(async {
            let item = begin(&engine, &plan, None).await;
            let shown = until_at_rest(&engine, &item).await;
            assert_eq!(shown.summary.state, WorkState::OverBudget, "{budget}: {}", shown.report);
            let attempts = shown.steps[0].attempts.len();
            assert!((2..9).contains(&attempts), "{budget}: {attempts}");
            let costs: Vec<MicroUsd> = engine
                .facts("model_called")
                .into_iter()
                .map(|fact| {
                    let Fact::ModelCalled { cost: Some(cost), .. } = fact else { panic!("without a cost") };
                    cost
                })
                .collect();
            let calls = u64::try_from(costs.len()).expect("few");
            // More than the calls of one attempt.
            assert!(calls > 2, "{budget}: {calls}");
            let spending = shown.summary.spending;
            assert_eq!(spending.tokens, Tokens::new(calls * CALL), "{budget}");
            assert_eq!(spending.cost_micro_usd.get(), costs.iter().map(|cost| cost.get()).sum::<u64>());
            let used = engine.store.session_usage(shown.summary.session).await.expect("reads");
            assert_eq!((used.usage.total_tokens(), used.cost), (spending.tokens, spending.cost_micro_usd));
            // The provider says afterwards what a call has used, so the last one may go beyond the limit, and none follows it.
            let before = (calls - 1) * CALL;
            assert!(spending.max_tokens.is_none_or(|most| before < most.get()), "{spending:?}");
            let before = spending.cost_micro_usd.saturating_sub(*costs.last().expect("a call"));
            assert!(spending.max_cost_micro_usd.is_none_or(|most| before < most), "{spending:?}");
        });
        engine.end();
    }
}

/// An attempt is a run of the executor whose calls are in the ledger, and a verification outside it; one that fails begins
/// another.
///
/// Rows: SIL-175 (in part: without a gate that is checked in between)
#[test]
fn needs_userns_an_attempt_is_run_recorded_and_verified_and_a_failed_one_is_followed() {
    let engine = TestEngine::new("", |_| {
        |request: &ParsedRequest| match request.results().next() {
            None => {
                let content = if failed_before(request) == 0 { "swan" } else { "heron" };
                Reply::call("file_write", json!({ "path": "one.txt", "content": content }))
            }
            Some(_) => Reply::text("I have written it."),
        }
    });
    let plan = "---\nid: one\ntype: task\ntitle: One file\non_stuck: stop\nverify:\n  - name: bird\n    run: cat one.txt\n    expect: { equals: heron }\n---\n\n# What to do\n\nWrite one.txt now.\n";
    let turns = engine.runtime.block_on(async {
        let item = begin(&engine, plan, None).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
        let attempts = &shown.steps[0].attempts;
        let verdicts: Vec<(u32, &str, &str)> = attempts
            .iter()
            .map(|attempt| (attempt.attempt, &*attempt.verdict, &*attempt.checks[0].verdict))
            .collect();
        assert_eq!(verdicts, [(1, "fail", "fail"), (2, "pass", "pass")]);
        attempts.len()
    });
    let wrote = engine
        .facts("intent")
        .into_iter()
        .filter(|fact| matches!(fact, Fact::Intent { action, .. } if action.kind().as_str() == "write_file"));
    assert_eq!(wrote.count(), turns, "the calls of both attempts");
    engine.end();
}
