//! The planner: a request of the agent goes through the queue, and its plan comes back as one card.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use writ_runtime::engine::Join;
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::action::Action;
use writ_types::entry::{Fact, TurnPhase};
use writ_types::error::Exit;
use writ_types::frame::ServerFrame;
use writ_types::taint::Taint;

use crate::harness::{OWNER, TestEngine};

const PLAN: &str = r#"---
id: task-notes
type: task
title: Note the port
steps:
  - id: note
    title: Note it
    do: Remember the port.
    calls:
      - tool: memory_store
        arguments: { text: the port is 8420 }
verify:
  - name: there
    run: test -e notes
    expect: { exit_code: 0 }
---

# What to do

Remember the port of the service.
"#;

/// The planner is known by its system text; it is also the only one with the planner's tools.
fn is_planner(request: &ParsedRequest) -> bool {
    request.system.contains("You are the planner")
}

fn agent(request: &ParsedRequest) -> Reply {
    match request.results().next() {
        None => Reply::call(
            "plan",
            json!({ "request": "Note the port of the service", "reason": "it is a task" }),
        ),
        Some(_) => Reply::text("A plan is being made."),
    }
}

/// The last messages of two turns: that of the agent, then that of the planner.
async fn say(engine: &TestEngine) -> Vec<(Exit, String)> {
    let mut joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
    let text = "note the port".to_owned();
    engine.engine.receive(OWNER, joined.session, "one".to_owned(), text, Taint::Owner).await.expect("stored");
    let mut ended = Vec::new();
    while ended.len() < 2 {
        let frame = joined.live.recv().await.expect("a frame").frame.clone();
        if let ServerFrame::Error { code, text, .. } = &frame {
            panic!("{code}: {text}");
        }
        if let ServerFrame::Message { text, exit, last: true, .. } = frame {
            ended.push((exit, text));
        }
    }
    ended
}

/// The requests of the planner, as the model's server has read them.
type Seen = Arc<Mutex<Vec<ParsedRequest>>>;

/// Notes a request; returns how many there are now.
fn note(seen: &Seen, request: &ParsedRequest) -> usize {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.push(request.clone());
    seen.len()
}

/// An engine whose planner answers by the number of its request.
fn engine(seen: &Seen, planner: impl Fn(usize) -> Reply + Send + 'static) -> TestEngine {
    let seen = Arc::clone(seen);
    TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            if is_planner(request) { planner(note(&seen, request)) } else { agent(request) }
        }
    })
}

/// The planner tries to run something and answers with prose first. It gets no tool but those that read, is asked once more with
/// the error, and its plan is one card. The agent's history has the plan, and nothing of how it was found.
///
/// Rows: SIL-221
/// Rows: SIL-215 (in part: a turn that asks for a plan) SIL-031 (in part: the plan waits for an approval)
/// Rows: SIL-050 (in part: its output is read as a plan) SIL-291 (in part: prose is asked for once more)
/// Rows: SIL-052 (in part: what it has reads files and memory; a call of the shell is refused)
/// Rows: SIL-204 SIL-225 (in part: agent and planner; the plan comes back as a card and not by a queue)
/// Rows: SIL-220 (in part: a call that would write is refused)
#[test]
fn a_request_for_a_plan_goes_through_the_queue_and_comes_back_as_one_card() {
    let seen = Seen::default();
    let engine = engine(&seen, |asked| match asked {
        1 => Reply::call("shell_exec", json!({ "command": "touch planned" })),
        2 => Reply::text("Sure! I would note it."),
        _ => Reply::text(PLAN),
    });
    let ended = engine.runtime.block_on(say(&engine));
    let [(Exit::Done, first), (Exit::Waiting, second)] = ended.as_slice() else {
        panic!("two turns: {ended:?}")
    };
    assert_eq!(first, "A plan is being made.");
    assert!(second.starts_with("The plan 'Note the port' waits for your approval (ask "), "{second}");
    let planner = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(planner.len(), 3, "one for the call that is refused, one for the prose, one for the plan");
    let tools: Vec<&str> = planner[0].tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(tools, ["file_read", "memory_search", "search"]);
    assert!(planner[0].last_user_text().contains("Note the port of the service"));
    let refused = planner[1].results().next_back().map(|result| result.text.clone()).unwrap_or_default();
    assert!(refused.contains("shell_exec"), "{refused}");
    let again = planner[2].raw.to_string();
    assert!(again.contains("no front matter"), "the error is named: {again}");
    // Two messages in the ledger: the person's, and the harness's to the planner.
    assert_eq!(engine.facts("received").len(), 2);
    let started = engine.facts("phase").into_iter();
    let started = started.filter(|fact| matches!(fact, Fact::Phase { phase: TurnPhase::Started, .. }));
    assert_eq!(started.count(), 2);
    let asked = engine.facts("asked");
    let [Fact::Asked { action: Action::Plan(plan), .. }] = asked.as_slice() else {
        panic!("one card: {asked:?}")
    };
    assert_eq!((plan.title.as_str(), plan.steps.len()), ("Note the port", 1));
    engine.end();
}

/// A planner that never writes a plan costs two requests, and the fallback is a plan that says what was asked.
///
/// Rows: SIL-064 (in part: of the planner) SIL-291 (in part: garbage goes to the fallback)
#[test]
fn a_planner_that_writes_prose_twice_gives_the_fallback() {
    let seen = Seen::default();
    let engine = engine(&seen, |_| Reply::text("Sure!"));
    let ended = engine.runtime.block_on(say(&engine));
    let text = ended.last().map(|(_, text)| text.clone()).unwrap_or_default();
    assert!(text.contains("> Note the port of the service") && text.contains("needs no approval"), "{text}");
    assert_eq!(seen.lock().unwrap_or_else(PoisonError::into_inner).len(), 2);
    engine.end();
}

/// A conversation that needs no plan costs one call of a model: no other agent runs.
///
/// Rows: SIL-050 SIL-215 (in part: a direct answer asks no planner)
/// Rows: SIL-030 (in part: the first answer is the response; there is no decision of its own)
#[test]
fn a_conversation_without_a_plan_costs_one_call() {
    let engine = TestEngine::new("", |_| |_: &ParsedRequest| Reply::text("hello"));
    let said = engine.runtime.block_on(engine.say(None, "hi"));
    assert_eq!(said, (Exit::Done, "hello".to_owned()));
    assert_eq!(engine.server.recorded_requests().len(), 1);
    engine.end();
}
