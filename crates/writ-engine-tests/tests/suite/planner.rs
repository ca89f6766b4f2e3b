//! The planner: a request of the agent goes through the queue, and its plan comes back as one card.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use writ_models::Models;
use writ_models::config::{ModelRole, ModelsConfig, ProviderKind, ProviderTable};
use writ_policy::principal::Inbound;
use writ_runtime::engine::{Along, Join, Joined};
use writ_store::batch::{Batch, NewMemory, NewMessageRow, Op};
use writ_store::memory::{MemorySource, MemoryTraits};
use writ_store::queue::{EXECUTOR, MessageState, PROXY};
use writ_store::reads::{QueueReads as _, WorkReads as _};
use writ_testkit::model_server::{ModelServer, ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::action::{Action, MemoryKind, MemoryTrust, Remember};
use writ_types::api::work::WorkState;
use writ_types::digest::Digest;
use writ_types::entry::{Entry, Fact, InboundRecord, TurnPhase};
use writ_types::error::Exit;
use writ_types::frame::ServerFrame;
use writ_types::id::{AskId, ItemId, MemoryId, MessageId, SessionId};
use writ_types::taint::Taint;

use crate::harness::{ASK_REMEMBER, BEGIN, NoSecrets, OWNER, TestEngine};
use crate::work::{PATIENCE, approve, begin, show, until_at_rest};

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

/// Says something in a new conversation that is handed to the planner. Returns what [`say_in`] returns.
async fn say(engine: &TestEngine) -> Vec<(Exit, String)> {
    let mut joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
    say_in(engine, &mut joined, "one", "note the port").await
}

/// Says something that is handed to the planner. Returns the last messages of two turns: that of the agent, then that of the
/// planner, which waits for an approval. They run side by side, so either may end first.
async fn say_in(engine: &TestEngine, joined: &mut Joined, id: &str, text: &str) -> Vec<(Exit, String)> {
    let (session, text) = (joined.session, text.to_owned());
    engine.engine.receive(OWNER, session, id.to_owned(), text, Taint::Owner).await.expect("stored");
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
    ended.sort_by_key(|(exit, _)| exit.code());
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

/// Work that a conversation has begun needs what it came from: the erasure of the conversation names it, says how to end it, and waits
/// for nothing after that.
#[test]
fn an_erasure_names_the_work_that_it_waits_for() {
    let engine = engine(&Seen::default(), |_| Reply::text(PLAN));
    engine.runtime.block_on(async {
        say(&engine).await;
        let listed = engine.call("work.list", json!({})).await.expect("a list");
        let (item, session) = (&listed["items"][0]["item"], &listed["items"][0]["origin"]);
        engine.engine.answer(OWNER, newest_ask(&engine), approve()).await.expect("counts");
        engine.call("work.pause", json!({ "item": item })).await.expect("paused");
        engine.call("sessions.delete", json!({ "session": session })).await.expect("deleted");
        let erased = engine.call("sessions.erase", json!({ "session": session })).await.expect("begun");
        assert_eq!(erased["items"], json!([item]), "{erased}");
        let id = item.as_str().expect("an id");
        let hint = erased["hint"].as_str().expect("a hint");
        assert!(hint.contains(&format!("`writ work cancel {id}` ends it")), "{hint}");
        engine.call("work.cancel", json!({ "item": item })).await.expect("ended");
        let erased = engine.call("sessions.erase", json!({ "session": session })).await.expect("goes on");
        assert_eq!((&erased["items"], &erased["hint"]), (&json!(null), &json!(null)), "{erased}");
    });
    engine.end();
}

/// The planner tries to run something and answers with prose first. It gets no tool but those that read, is asked once more with
/// the error, and its plan is one card. The agent's history has the plan, and nothing of how it was found.
///
/// Rows: SIL-221
/// Rows: SIL-215 (in part: a turn that asks for a plan) SIL-031 (in part: the plan waits for an approval)
/// Rows: SIL-050 (in part: its output is read as a plan) SIL-291 (in part: prose is asked for once more)
/// Rows: SIL-052 (in part: what it has reads files and memory; a call of the shell is refused)
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
    // Three messages in the ledger: the person's, the harness's to the planner, and the plan on its way back.
    assert_eq!(engine.facts("received").len(), 3);
    let started = engine.facts("phase").into_iter();
    let started = started.filter(|fact| matches!(fact, Fact::Phase { phase: TurnPhase::Started, .. }));
    assert_eq!(started.count(), 2);
    let asked = engine.facts("asked");
    let [Fact::Asked { action: Action::Plan(plan), .. }] = asked.as_slice() else {
        panic!("one card: {asked:?}")
    };
    assert_eq!((plan.title.as_str(), plan.steps.len()), ("Note the port", 1));
    // The card is that of the whole plan: its approval runs the steps, and the checks decide.
    let document = &plan.work.as_ref().expect("a work item").document;
    assert_eq!(document.steps[0].instructions, "Remember the port.");
    assert_eq!(document.checks[0].name, "there");
    engine.end();
}

/// Research reads and changes nothing, and nobody is asked for it; afterwards the same conversation acts on no more than before.
///
/// Rows: SIL-220 SIL-222
/// Rows: SIL-217 (in part: research never has tools that write)
#[test]
fn needs_userns_research_reads_without_an_approval_and_changes_nothing() {
    let seen = Seen::default();
    let planner = Arc::clone(&seen);
    let engine = TestEngine::new(ASK_REMEMBER, |_| {
        move |request: &ParsedRequest| {
            if is_planner(request) {
                return match note(&planner, request) {
                    1 => Reply::call("file_read", json!({ "path": "note.txt" })),
                    2 => Reply::call("file_write", json!({ "path": "note.txt", "content": "swan" })),
                    _ => Reply::text(PLAN),
                };
            }
            let is_new = request.messages.last().is_some_and(|last| last.results.is_empty());
            match request.last_user_text() {
                "write" if is_new => {
                    Reply::call("file_write", json!({ "path": "note.txt", "content": "heron" }))
                }
                "read" if is_new => Reply::call("file_read", json!({ "path": "note.txt" })),
                "read" => Reply::text(&request.results().next_back().expect("a result").text),
                "remember" if is_new => Reply::call("memory_store", json!({ "text": "a heron was seen" })),
                "plan" if is_new => {
                    Reply::call("plan", json!({ "request": "Note the port", "reason": "so" }))
                }
                _ => Reply::text("Good."),
            }
        }
    });
    engine.runtime.block_on(async {
        let mut joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
        engine.send_in(&mut joined, "one", "write").await;
        let planned = tokio::time::timeout(PATIENCE, say_in(&engine, &mut joined, "two", "plan")).await;
        let planned = planned.expect("a card");
        assert!(matches!(planned.as_slice(), [(Exit::Done, _), (Exit::Waiting, _)]), "{planned:?}");
        let asked = engine.facts("asked");
        let [Fact::Asked { action: Action::Plan(_), .. }] = asked.as_slice() else {
            panic!("the plan's card alone: {asked:?}")
        };
        let (_, text) = engine.send_in(&mut joined, "three", "read").await;
        assert!(text.contains("heron") && !text.contains("swan"), "{text}");
        engine.send_in(&mut joined, "four", "remember").await;
        let asked = engine.facts("asked");
        assert!(
            matches!(asked.as_slice(), [_, Fact::Asked { action: Action::Remember(_), .. }]),
            "what needs an approval needs one as before: {asked:?}"
        );
    });
    let requests = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let result =
        |n: usize| requests[n].results().next_back().map(|result| result.text.clone()).unwrap_or_default();
    assert!(result(1).contains("heron"), "it reads: {}", result(1));
    assert!(result(2).contains("file_write"), "a call that would write is refused: {}", result(2));
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
    assert!(
        text.contains("> Note the port of the service") && text.contains("waits for your approval"),
        "{text}"
    );
    assert_eq!(seen.lock().unwrap_or_else(PoisonError::into_inner).len(), 2);
    engine.end();
}

/// What a planner says is shown to nobody, so an answer that breaks off is asked of the next model instead.
#[test]
fn a_planner_whose_answer_breaks_off_is_replaced_by_the_next_model() {
    let (seen, shape) = (Seen::default(), |models: &mut ModelsConfig| {
        models.models.fallback = vec!["test/other".to_owned()];
    });
    let asked = Arc::clone(&seen);
    let engine = TestEngine::shaped(
        shape,
        |_| {},
        |_| {
            move |request: &ParsedRequest| match is_planner(request) {
                true if note(&asked, request) == 1 => {
                    Reply::text("I think about the port.").with_fault(ReplyFault::CutAfter(2))
                }
                true => Reply::text(PLAN),
                false => agent(request),
            }
        },
    );
    let ended = engine.runtime.block_on(say(&engine));
    let text = ended.last().map(|(_, text)| text.clone()).unwrap_or_default();
    assert!(text.contains("Remember the port of the service."), "{text}");
    let models: Vec<String> = seen
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
        .map(|request| request.model.clone())
        .collect();
    assert_eq!(models, ["scripted", "other"]);
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

/// Has the request planned, once for each message of the person that begins with a verb of work.
fn plan_requests(request: &ParsedRequest) -> Reply {
    let is_new = request.messages.last().is_some_and(|last| last.results.is_empty());
    let said = request.last_user_text().to_owned();
    match said.starts_with("Plan ") {
        true if is_new => Reply::call("plan", json!({ "request": said, "reason": "it is a task" })),
        true => Reply::text("A plan is being made."),
        false => Reply::text("Hello."),
    }
}

/// What a turn hands on waits in the planner's queue under its kind, and in no other; a direct turn puts nothing there. The planner
/// works for one request of a conversation at a time, so the second one is seen waiting.
///
/// Rows: SIL-215
#[test]
fn a_routed_turn_puts_a_plan_request_into_the_planners_queue_and_a_direct_one_puts_none() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            if is_planner(request) {
                return Reply::text(PLAN).with_fault(ReplyFault::SlowFirstByte(held.clone()));
            }
            plan_requests(request)
        }
    });
    engine.runtime.block_on(async {
        let mut joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
        let session = joined.session;
        let waiting =
            async |consumer: &str| engine.store.pending_for(consumer, session).await.expect("reads");
        engine.send_in(&mut joined, "one", "Plan the first move.").await;
        while engine.server.connections_waiting() < 1 {
            tokio::task::yield_now().await;
        }
        engine.send_in(&mut joined, "two", "Hello?").await;
        assert!(waiting("planner").await.is_empty(), "a direct turn hands nothing on");
        engine.send_in(&mut joined, "three", "Plan the second move.").await;
        let queued = waiting("planner").await;
        let [message] = queued.as_slice() else { panic!("one request: {queued:?}") };
        assert!(message.client_id.starts_with("plan_request/"), "{}", message.client_id);
        assert_eq!((message.text.as_str(), message.consumer.as_str()), ("Plan the second move.", "planner"));
        engine.send_in(&mut joined, "four", "Hello again?").await;
        assert_eq!(waiting("planner").await, queued, "nor does this one");
        assert!(waiting(EXECUTOR).await.is_empty());
        gate.open();
    });
    engine.end();
}

/// The number of messages that were received, as the ledger has them.
fn received(engine: &TestEngine) -> usize {
    engine.facts("received").len()
}

/// Waits until one request is open at the model's server.
async fn until_asked(engine: &TestEngine) {
    let asked = async {
        while engine.server.connections_waiting() < 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("a request");
}

/// Waits for the last word of a planner that has made a plan.
async fn until_planned(joined: &mut Joined) {
    let planned = async {
        loop {
            let frame = joined.live.recv().await.expect("a frame").frame.clone();
            if matches!(frame, ServerFrame::Message { exit: Exit::Waiting, last: true, .. }) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, planned).await.expect("a card");
}

/// A message of the harness's making, as the store holds it, for which the loops alone decide if it counts.
fn forged(session: SessionId, consumer: &str, id: &str, text: &str) -> [Op; 2] {
    let record = InboundRecord {
        message: MessageId::from_parts(BEGIN, 7_000 + id.bytes().map(u128::from).sum::<u128>()),
        session,
        turn_number: 1,
        principal: "harness:planner".to_owned(),
        taint: Taint::Owner,
        text: Digest::of_bytes(text.as_bytes()),
        at: BEGIN,
    };
    let fact = Fact::Received { record: record.clone(), text: text.to_owned(), signature: String::new() };
    let entry = Entry { at: BEGIN, session: Some(session), turn: None, turn_number: 1, fact };
    let row = NewMessageRow { record, client_id: id.to_owned(), text: text.to_owned() };
    let message = Box::new(row);
    [Op::Append(Box::new(entry)), Op::EnqueueFor { consumer: consumer.to_owned(), message }]
}

/// The request goes to the planner's queue, and the plan comes back by the queue of the person, each taken once and done once. While the
/// planner works nothing has come back.
///
/// Rows: SIL-216 SIL-225
#[test]
fn a_plan_request_is_taken_by_the_planner_and_its_result_by_the_loop_for_the_person() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            if is_planner(request) {
                return Reply::text(PLAN).with_fault(ReplyFault::SlowFirstByte(held.clone()));
            }
            plan_requests(request)
        }
    });
    engine.runtime.block_on(async {
        let mut joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
        let session = joined.session;
        // A result without a request waits already: the loop takes it before the one that was asked for.
        let stray = forged(session, PROXY, "plan_result/stray/call", PLAN);
        engine.store.commit(Batch::synced(stray.into())).await.expect("written");
        engine.send_in(&mut joined, "one", "Plan the move.").await;
        until_asked(&engine).await;
        let facts = engine.facts("received");
        let Some(Fact::Received { record: request, .. }) = facts.last() else { panic!("{facts:?}") };
        let ids = engine.store.client_ids(&[request.message]).await.expect("reads");
        let trace = ids[0].strip_prefix("plan_request/").expect("a request for a plan").to_owned();
        let result = format!("plan_result/{trace}");
        let state = async |id: &str| engine.store.message_state(session, id).await.expect("reads");
        assert_eq!(state(&ids[0]).await, Some(MessageState::Leased), "the planner has taken it");
        assert_eq!(state(&result).await, None, "and has not answered");
        gate.open();
        until_planned(&mut joined).await;
        assert_eq!(state(&ids[0]).await, Some(MessageState::Acked));
        assert_eq!(state(&result).await, Some(MessageState::Acked));
        let row = async |id: &str| {
            let found = engine.store.message_by_client_id(session, id).await.expect("reads");
            found.map(|row| (row.consumer, row.attempts)).expect("is there")
        };
        assert_eq!(row(&ids[0]).await, ("planner".to_owned(), 1));
        assert_eq!(row(&result).await, (PROXY.to_owned(), 1));
        // The other one reached no person.
        assert_eq!(state("plan_result/stray/call").await, Some(MessageState::Dead));
        let dead = engine.store.dead_letters(9).await.expect("reads");
        assert!(dead[0].error.contains("requested no plan under this trace"), "{dead:?}");
        assert_eq!(engine.facts("asked").len(), 1, "one card, that of the plan that was asked for");
    });
    engine.end();
}

/// Request and result have one trace and one conversation; a result in another conversation and a message of an unknown kind are set
/// aside. What the planner has read decides about the trust of its plan: its research is its own reading, so what an external source says
/// there comes as a result of its tool, and not as a message.
///
/// Rows: SIL-206
#[test]
fn a_result_counts_in_its_own_conversation_and_an_unknown_kind_in_none() {
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            if !is_planner(request) {
                return plan_requests(request);
            }
            // The conversation before it has results of its own.
            match request.messages.last().is_some_and(|last| last.results.is_empty()) {
                true => Reply::call("memory_search", json!({ "query": "harbour" })),
                false => Reply::text(PLAN),
            }
        }
    });
    engine.runtime.block_on(async {
        let mut first = engine.engine.join(OWNER, Join::default()).await.expect("joined");
        assert_eq!(route_of(&engine, &mut first, "one", "Plan the first move.").await, Route::Planner);
        let results = results_of(&engine, first.session).await;
        let [(trace, Taint::Owner)] = results.as_slice() else { panic!("one, of the owner: {results:?}") };
        let second = engine.engine.open(OWNER, Join::default()).await.expect("opened");
        let moved = format!("plan_result/{trace}");
        let rows = [forged(second, PROXY, &moved, PLAN), forged(second, "planner", "odd/trace", "Plan it.")];
        engine.store.commit(Batch::synced(rows.concat())).await.expect("written");
        let found = found_outside("The harbour opens at six.");
        engine.store.commit(Batch::synced(vec![found])).await.expect("written");
        // Another plan wakes both loops; it rests on external content now.
        assert_eq!(route_of(&engine, &mut first, "two", "Plan the second move.").await, Route::Planner);
        let results = results_of(&engine, first.session).await;
        assert!(matches!(results.as_slice(), [_, (_, Taint::External)]), "{results:?}");
        let set_aside = async {
            while engine.store.dead_letters(9).await.expect("reads").len() < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, set_aside).await.expect("both are set aside");
        for (id, state) in [(moved.as_str(), MessageState::Dead), ("odd/trace", MessageState::Dead)] {
            assert_eq!(engine.store.message_state(second, id).await.expect("reads"), Some(state), "{id}");
        }
        let listed = engine.call("work.list", json!({})).await.expect("a list");
        let items: Vec<&Value> = listed["items"].as_array().expect("items").iter().collect();
        assert_eq!(items.len(), 2, "{listed}");
        assert!(items.iter().all(|item| item["origin"] == json!(first.session.to_string())), "{listed}");
        let mut taints = Vec::new();
        for item in items {
            let id: ItemId = item["item"].as_str().expect("an id").parse().expect("an id");
            taints.push(engine.store.work_item(id).await.expect("reads").expect("is there").taint);
        }
        taints.sort();
        assert_eq!(taints, [Taint::Owner, Taint::External]);
    });
    engine.end();
}

/// A memory that a tool has found outside.
fn found_outside(text: &str) -> Op {
    let item = Remember {
        text: text.to_owned(),
        memory_kind: MemoryKind::Fact,
        trust: MemoryTrust::Working,
        taint: Taint::External,
        secret: false,
        session: None,
    };
    let traits = MemoryTraits { source: MemorySource::Agent, ..MemoryTraits::default() };
    let id = MemoryId::from_parts(BEGIN, 1);
    Op::Remember(Box::new(NewMemory { id, item, at: BEGIN, traits }))
}

/// The traces of the plans that came back in a session, each with the trust of the plan.
async fn results_of(engine: &TestEngine, session: SessionId) -> Vec<(String, Taint)> {
    let mut results = Vec::new();
    for fact in engine.facts("received") {
        let Fact::Received { record, .. } = fact else { continue };
        let ids = engine.store.client_ids(&[record.message]).await.expect("reads");
        let trace = ids.first().and_then(|id| id.strip_prefix("plan_result/"));
        if let Some(trace) =
            trace.filter(|_| record.session == session && record.principal == "harness:planner")
        {
            let asked = format!("plan_request/{trace}");
            let request = engine.store.message_by_client_id(session, &asked).await.expect("reads");
            if request.is_some() {
                results.push((trace.to_owned(), record.taint));
            }
        }
    }
    results
}

/// A message of a person is one message in the queue of the agent that answers people, and no other queue takes one.
///
/// Rows: SIL-214
#[test]
fn a_message_of_a_person_is_one_message_of_one_queue() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let engine = TestEngine::new("", |_| {
        move |_: &ParsedRequest| Reply::text("Hello.").with_fault(ReplyFault::SlowFirstByte(held.clone()))
    });
    engine.runtime.block_on(async {
        let mut joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
        let session = joined.session;
        for consumer in ["planner", PROXY, "work-0", "unknown"] {
            let inbound = Inbound { session, client_id: "one".to_owned(), text: "Hello?".to_owned() };
            let along = Along { text_taint: Taint::Owner, signature: None, sender: None };
            let refused = engine.engine.receive_for(OWNER, consumer, inbound, along).await;
            assert_eq!(refused.expect_err("is refused").exit, Exit::Usage, "{consumer}");
        }
        assert_eq!(received(&engine), 0);
        engine
            .engine
            .receive(OWNER, session, "one".to_owned(), "Hello?".to_owned(), Taint::Owner)
            .await
            .expect("stored");
        until_asked(&engine).await;
        assert_eq!(received(&engine), 1);
        let row = engine.store.message_by_client_id(session, "one").await.expect("reads").expect("is there");
        assert_eq!((row.consumer.as_str(), row.text.as_str()), (EXECUTOR, "Hello?"));
        assert_eq!(engine.store.message_state(session, "one").await, Ok(Some(MessageState::Leased)));
        assert_eq!(engine.store.pending_for_session(session).await, Ok(Vec::new()), "nothing else waits");
        gate.open();
        let answered = async {
            loop {
                let frame = joined.live.recv().await.expect("a frame").frame.clone();
                if matches!(frame, ServerFrame::Message { last: true, .. }) {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, answered).await.expect("an answer");
        assert_eq!(
            (received(&engine), engine.store.message_state(session, "one").await),
            (1, Ok(Some(MessageState::Acked)))
        );
    });
    engine.end();
}

/// The kinds of the harness's own messages come from the harness alone.
#[test]
fn an_id_of_the_harness_is_refused_from_a_client() {
    let engine = TestEngine::new("", |_| |_: &ParsedRequest| Reply::text("never"));
    engine.runtime.block_on(async {
        let session = engine.engine.open(OWNER, Join::default()).await.expect("opened");
        for id in [
            "consult_planner/x/0/1",
            "replan_request/x/0/2",
            "plan_request/x",
            "plan_result/x",
            "pilot_question/x",
        ] {
            let sent = engine
                .engine
                .receive(OWNER, session, id.to_owned(), "Plan it.".to_owned(), Taint::Owner)
                .await;
            let refused = sent.expect_err("is refused");
            assert!(
                refused.exit == Exit::Usage && refused.outside.contains("only the harness sends"),
                "{refused:?}"
            );
        }
        assert_eq!(received(&engine), 0);
    });
    engine.end();
}

/// The planner has the model of its role; its answer is an item with the plan's steps. A greeting asks it nothing.
///
/// Rows: SIL-050
#[test]
fn the_planner_is_the_model_of_its_role_and_a_greeting_does_not_ask_it() {
    let runtime = Runtime::new().expect("a runtime");
    let script = |request: &ParsedRequest| {
        if request.model == "deep" {
            assert!(is_planner(request), "the model of the planner answers nothing else");
            return Reply::text(PLAN);
        }
        plan_requests(request)
    };
    let server = runtime.block_on(ModelServer::start(script)).expect("serves");
    let mut config = ModelsConfig::default();
    config.models.default = Some("test/plain".to_owned());
    config.models.roles.insert(ModelRole::Planner, "test/deep".to_owned());
    let base_url = Some(server.base_url());
    let table = ProviderTable { kind: Some(ProviderKind::OpenAi), base_url, ..ProviderTable::default() };
    config.providers.insert("test".to_owned(), table);
    let engine = TestEngine::with(
        |parts| {
            let models = Models::new(&config, Arc::new(NoSecrets), Arc::clone(&parts.egress));
            parts.models = Some(models.expect("models"));
        },
        |_| |_: &ParsedRequest| Reply::text("It is not asked."),
    );
    let asked = || -> Vec<String> {
        let models = server.recorded_requests().into_iter();
        models.map(|sent| sent.body["model"].as_str().unwrap_or_default().to_owned()).collect()
    };
    engine.runtime.block_on(async {
        let mut joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
        engine.send_in(&mut joined, "one", "Hello?").await;
        assert_eq!(asked(), ["plain"], "a greeting is answered at once");
        assert_eq!(route_of(&engine, &mut joined, "two", "Plan the move.").await, Route::Planner);
        let mut models = asked();
        models.sort();
        assert_eq!(models, ["deep", "plain", "plain", "plain"]);
        let listed = engine.call("work.list", json!({})).await.expect("a list");
        let item = listed["items"][0]["item"].as_str().expect("an item").to_owned();
        let shown = show(&engine, &item).await;
        assert_eq!(
            (shown.summary.title.as_str(), shown.summary.state),
            ("Note the port", WorkState::Proposed)
        );
        assert_eq!(shown.steps[0].step, "note");
    });
    let called = engine.facts("model_called").into_iter();
    let called =
        called.filter(|fact| matches!(fact, Fact::ModelCalled { requested, .. } if requested == "test/deep"));
    assert_eq!(called.count(), 1, "in the ledger too");
    engine.end();
}

/// The way that a message has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// The first answer is the response.
    Direct,
    /// The planner has made a plan, which waits for its approval.
    Planner,
}

/// Says something and follows it to its end.
async fn route_of(engine: &TestEngine, joined: &mut Joined, id: &str, text: &str) -> Route {
    let (session, text) = (joined.session, text.to_owned());
    engine.engine.receive(OWNER, session, id.to_owned(), text, Taint::Owner).await.expect("stored");
    let (mut is_handed_on, mut exits) = (false, Vec::new());
    let ended = async {
        loop {
            let frame = joined.live.recv().await.expect("a frame").frame.clone();
            if let ServerFrame::Error { code, text, .. } = &frame {
                panic!("{code}: {text}");
            }
            // The call comes before both answers.
            is_handed_on |=
                matches!(&frame, ServerFrame::Tool { tool, state, .. } if tool == "plan" && state == "done");
            if let ServerFrame::Message { exit, last: true, .. } = frame {
                exits.push(exit);
            }
            if exits.len() == 1 + usize::from(is_handed_on) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("it is answered");
    exits.sort_by_key(|exit| exit.code());
    match exits.as_slice() {
        [Exit::Done] => Route::Direct,
        [Exit::Done, Exit::Waiting] => Route::Planner,
        other => panic!("neither an answer nor a plan: {other:?}"),
    }
}

/// Messages as people send them, with the way that each should take.
const SAMPLES: [(&str, Route); 15] = [
    ("Hi!", Route::Direct),
    ("Good morning, how are you?", Route::Direct),
    ("Thanks, that is all for today.", Route::Direct),
    ("What is the capital of Portugal?", Route::Direct),
    ("How many metres are in a nautical mile?", Route::Direct),
    ("What does HTTP status 429 mean?", Route::Direct),
    ("Translate 'good night' into French.", Route::Direct),
    ("Which day of the week was 1 December 2025?", Route::Direct),
    ("Remind me what we call the main branch.", Route::Direct),
    ("Is a tomato a fruit?", Route::Direct),
    ("Say that more shortly, please.", Route::Direct),
    ("What is 17 times 23?", Route::Direct),
    ("Refactor the parser so that its tests pass, and update the guide.", Route::Planner),
    ("Move our scripts from Python 3.8 to 3.12 and check that each still runs.", Route::Planner),
    ("Compare three suppliers, write a table, and draft a letter to the best one.", Route::Planner),
];

/// Sends each sample in a conversation of its own to a model that plans what `plans` says. Returns the samples that took another way
/// than their label.
fn misrouted(plans: fn(&str) -> bool) -> Vec<&'static str> {
    let seen = Seen::default();
    let planner = Arc::clone(&seen);
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            if is_planner(request) {
                note(&planner, request);
                return Reply::text(PLAN);
            }
            let said = request.last_user_text().to_owned();
            match request.results().next() {
                None if plans(&said) => {
                    Reply::call("plan", json!({ "request": said, "reason": "it is a task" }))
                }
                None => Reply::text("Gladly."),
                Some(_) => Reply::text("A plan is being made."),
            }
        }
    });
    let wrong = engine.runtime.block_on(async {
        let mut wrong = Vec::new();
        for (text, label) in SAMPLES {
            let before = seen.lock().unwrap_or_else(PoisonError::into_inner).len();
            let mut joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
            let route = route_of(&engine, &mut joined, "one", text).await;
            let asked = seen.lock().unwrap_or_else(PoisonError::into_inner).split_off(before);
            assert_eq!(asked.len(), usize::from(route == Route::Planner), "{text}: {asked:?}");
            assert!(asked.iter().all(|request| request.last_user_text().contains(text)), "{text}: {asked:?}");
            if route != label {
                wrong.push(text);
            }
        }
        wrong
    });
    engine.end();
    wrong
}

/// Returns true for the samples that are work in several steps.
fn is_work(text: &str) -> bool {
    SAMPLES.contains(&(text, Route::Planner))
}

/// What the model answers is the response, and what it hands on becomes one plan that waits; a model that decides wrongly is found
/// out by the labels.
///
/// Rows: SIL-290
/// Rows: SIL-049 (in part: four of five samples are answered directly)
#[test]
fn labelled_messages_take_the_way_of_their_label_and_a_wrong_way_is_seen() {
    assert_eq!(misrouted(is_work), [""; 0]);
    let all: Vec<&str> = SAMPLES.iter().map(|(text, _)| *text).collect();
    assert_eq!(misrouted(|text| !is_work(text)), all);
    let direct = SAMPLES.iter().filter(|(_, label)| *label == Route::Direct).count();
    assert_eq!((direct * 10 / SAMPLES.len(), SAMPLES.len() - direct), (8, 3));
}

/// A plan of two files. Nothing is said about what happens when it is stuck, so the planner is asked.
const TWO: &str = "---\nid: two\ntype: task\ntitle: Two files\nsteps:\n  - id: one\n    title: First\n    do: Write one.txt.\n    verify:\n      - name: one\n        expect: { file_exists: one.txt }\n  - id: two\n    title: Second\n    do: Write two.txt.\nverify:\n  - name: both\n    expect: { file_exists: two.txt }\n---\n\n# What to do\n\nWrite both files.\n";

/// Another plan for what is left of it.
const OTHER: &str = "---\nid: other\ntype: task\ntitle: Another way\nsteps:\n  - id: another\n    title: Another way\n    do: Write two.txt by another way.\n---\n\n# What to do\n\nWrite two.txt by another way.\n";

/// The advice that makes the executor write the right file.
const ADVICE: &str = "The file is two.txt, not three.txt.";

/// An executor that writes `one.txt` as it is told, and the second file wrongly until a text makes it right.
fn executor(request: &ParsedRequest, helps: &str) -> Reply {
    let told = request.messages.iter().map(|message| message.text.as_str()).collect::<String>();
    let name = match told.contains("Write one.txt.") {
        true => "one.txt",
        false if told.contains(helps) => "two.txt",
        false => "three.txt",
    };
    match request.results().next() {
        None => Reply::call("file_write", json!({ "path": name, "content": "x" })),
        Some(_) => Reply::text("written"),
    }
}

/// The kinds of the messages that the planner had, in their order.
fn asked_planner(seen: &Seen) -> Vec<&'static str> {
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let kind = |request: &ParsedRequest| {
        if request.last_user_text().contains("Give guidance for its next attempt") {
            "guidance"
        } else {
            "plan"
        }
    };
    seen.iter().map(kind).collect()
}

/// The messages of the planner's queue so far, each with its sender.
async fn planner_queue(engine: &TestEngine) -> Vec<(String, String)> {
    let mut queued = Vec::new();
    for fact in engine.facts("received") {
        let Fact::Received { record, .. } = fact else { continue };
        let ids = engine.store.client_ids(&[record.message]).await.expect("reads");
        let row = engine.store.message_by_client_id(record.session, &ids[0]).await.expect("reads");
        if row.expect("is there").consumer == "planner" {
            queued.push((ids[0].clone(), record.principal));
        }
    }
    queued
}

/// The newest question about a plan.
fn newest_ask(engine: &TestEngine) -> AskId {
    let asked = engine.facts("asked");
    let Some(Fact::Asked { ask, .. }) = asked.last() else { panic!("asked: {asked:?}") };
    ask.clone()
}

/// Waits until an item is in a state.
async fn until(engine: &TestEngine, item: &str, state: WorkState) {
    let reached = async {
        loop {
            let now = show(engine, item).await.summary.state;
            if now == state {
                return;
            }
            assert!(!now.is_over() && now != WorkState::Stuck, "{now:?} in place of {state:?}");
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("never {state:?}"));
}

/// A step that is stuck has the planner asked once; the next attempt reads the guidance, and the item goes on.
///
/// Rows: SIL-176
/// Rows: SIL-219 (in part: with an answer in time) SIL-223 (in part: with an answer in time)
#[test]
fn needs_userns_guidance_of_the_planner_mends_a_step_that_is_stuck() {
    let seen = Seen::default();
    let planner = Arc::clone(&seen);
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            if !is_planner(request) {
                return executor(request, ADVICE);
            }
            note(&planner, request);
            Reply::text(ADVICE)
        }
    });
    engine.runtime.block_on(async {
        let item = begin(&engine, TWO, None).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
        assert_eq!(shown.steps[1].attempts.len(), 3, "two that failed alike, and one with the guidance");
    });
    assert_eq!(asked_planner(&seen), ["guidance"]);
    let request = seen.lock().unwrap_or_else(PoisonError::into_inner)[0].last_user_text().to_owned();
    assert!(request.contains("Write two.txt.") && request.contains("Attempt 2 has failed."), "{request}");
    assert_eq!(engine.facts("asked").len(), 1, "guidance is no new plan, and needs no approval");
    engine.end();
}

/// Where guidance does not help, one other plan is made: a new round with an approval of its own, in which what is done stays
/// done. Where that fails too, a person is asked. Both questions are messages of the planner's queue, put there by the harness; the same
/// messages from a client are refused, and reach no planner.
///
/// Rows: SIL-219 SIL-224
#[test]
fn needs_userns_another_plan_follows_guidance_and_a_person_follows_that() {
    let seen = Seen::default();
    let (planner, rounds) = (Arc::clone(&seen), Arc::new(AtomicUsize::new(0)));
    let helps = Arc::clone(&rounds);
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            if !is_planner(request) {
                let right =
                    if helps.load(Ordering::SeqCst) == 0 { "by another way" } else { "-- never said --" };
                return executor(request, right);
            }
            note(&planner, request);
            let is_guidance = request.last_user_text().contains("Give guidance for its next attempt");
            Reply::text(if is_guidance { "Try again." } else { OTHER })
        }
    });
    engine.runtime.block_on(async {
        let item = begin(&engine, TWO, None).await;
        until(&engine, &item, WorkState::Proposed).await;
        let planned = show(&engine, &item).await;
        let steps: Vec<(&str, &str, usize)> = planned
            .steps
            .iter()
            .map(|step| (step.step.as_str(), step.state.name(), step.attempts.len()))
            .collect();
        assert_eq!(steps, [("one", "done", 1), ("another", "waiting", 0)]);
        let queued = planner_queue(&engine).await;
        let kinds: Vec<&str> = queued.iter().filter_map(|(id, _)| id.split('/').next()).collect();
        assert_eq!(kinds, ["consult_planner", "replan_request"], "{queued:?}");
        assert!(queued.iter().all(|(_, sender)| sender.starts_with("harness")), "{queued:?}");
        let session = engine.engine.open(OWNER, Join::default()).await.expect("opened");
        for (id, _) in queued {
            let sent =
                engine.engine.receive(OWNER, session, id.clone(), "Help.".to_owned(), Taint::Owner).await;
            let refused = sent.expect_err("the harness alone sends it");
            assert!(refused.outside.contains("only the harness sends"), "{id}: {refused:?}");
        }
        let asked = async {
            while engine.facts("asked").len() < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("its plan is asked about");
        let answered = engine.engine.answer(OWNER, newest_ask(&engine), approve()).await.expect("counts");
        assert_eq!(answered.exit, Exit::Done, "{answered:?}");
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);

        // Now no plan helps: one consultation, one other plan, then a person.
        rounds.store(1, Ordering::SeqCst);
        let item = begin(&engine, &TWO.replace("id: two\ntype", "id: three\ntype"), None).await;
        until(&engine, &item, WorkState::Proposed).await;
        let asked = async {
            while engine.facts("asked").len() < 4 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("its plan is asked about");
        engine.engine.answer(OWNER, newest_ask(&engine), approve()).await.expect("counts");
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Stuck, "{}", shown.report);
        assert!(shown.report.contains("the planner could not help"), "{}", shown.report);
    });
    assert_eq!(asked_planner(&seen), ["guidance", "plan", "guidance", "plan"]);
    engine.end();
}

/// A step that is stuck suspends its item until the planner has answered: after ten seconds it goes on with the guidance. Without
/// guidance after 90 s, and not before, the wait ends: another plan is asked for, by a planner that is free for it.
///
/// Rows: SIL-223
#[test]
fn needs_userns_an_item_waits_for_guidance_up_to_90_seconds() {
    let seen = Seen::default();
    let (planner, gates) = (Arc::clone(&seen), [ReplyGate::new(), ReplyGate::new()]);
    let held = gates.clone();
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            if !is_planner(request) {
                return executor(request, ADVICE);
            }
            match note(&planner, request) {
                1 => Reply::text(ADVICE).with_fault(ReplyFault::SlowFirstByte(held[0].clone())),
                2 => Reply::text("Too late.").with_fault(ReplyFault::SlowFirstByte(held[1].clone())),
                _ => Reply::text(OTHER),
            }
        }
    });
    let asks = async || {
        while engine.server.connections_waiting() < 1 {
            tokio::task::yield_now().await;
        }
    };
    engine.runtime.block_on(async {
        let item = begin(&engine, TWO, None).await;
        until(&engine, &item, WorkState::Consulting).await;
        asks().await;
        engine.clock.go_on(Duration::from_secs(10));
        assert_eq!(show(&engine, &item).await.summary.state, WorkState::Consulting, "it is suspended");
        gates[0].open();
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
        assert_eq!(shown.steps[1].attempts.len(), 3, "the third has read the guidance");

        let item = begin(&engine, &TWO.replace("id: two\ntype", "id: three\ntype"), None).await;
        until(&engine, &item, WorkState::Consulting).await;
        asks().await;
        engine.clock.go_on(Duration::from_secs(90));
        asks().await;
        assert_eq!(show(&engine, &item).await.summary.state, WorkState::Consulting, "not before");
        engine.clock.go_on(Duration::from_millis(1));
        until(&engine, &item, WorkState::Proposed).await;
    });
    assert_eq!(asked_planner(&seen), ["guidance", "guidance", "plan"]);
    let worked = engine.facts("worked").into_iter();
    let late = worked.filter(
        |fact| matches!(fact, Fact::Worked { reason, .. } if reason.contains("not answered in time")),
    );
    assert_eq!(late.count(), 1);
    gates[1].open();
    engine.end();
}

/// A planner's plan is run after its one approval, and its end is in the conversation that it comes from: for the person as
/// news, for the agent as a note.
///
/// Rows: SIL-031 (in part: approved, run, and reported) SIL-065 (in part: approved, run, and reported)
#[test]
fn needs_userns_an_approved_plan_runs_and_its_end_is_in_the_conversation() {
    let seen = Seen::default();
    let asked = Arc::clone(&seen);
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            if is_planner(request) {
                return Reply::text("Sure!");
            }
            if request.raw.to_string().contains("and then?") {
                note(&asked, request);
                return Reply::text("It is done.");
            }
            if request.raw.to_string().contains("Do what was asked for") {
                return Reply::text("noted");
            }
            agent(request)
        }
    });
    engine.runtime.block_on(async {
        let mut joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
        let said = say_in(&engine, &mut joined, "one", "note the port");
        let said = tokio::time::timeout(PATIENCE, said).await.expect("a plan");
        let [(Exit::Done, text), (Exit::Waiting, _)] = said.as_slice() else { panic!("two turns: {said:?}") };
        assert_eq!(text, "A plan is being made.");
        assert_eq!(engine.facts("asked").len(), 1, "one card");
        let answered = engine.engine.answer(OWNER, newest_ask(&engine), approve()).await.expect("counts");
        assert_eq!(answered.exit, Exit::Done, "{answered:?}");
        let ended = async {
            loop {
                let frame = joined.live.recv().await.expect("a frame").frame.clone();
                if let ServerFrame::Work(news) = frame
                    && news.state == WorkState::Done
                {
                    return news.text;
                }
            }
        };
        let report =
            tokio::time::timeout(PATIENCE, ended).await.expect("its end is news of the conversation");
        assert!(report.contains("1 of 1 steps are done"), "{report}");
        engine.send_in(&mut joined, "two", "and then?").await;
    });
    let request = seen.lock().unwrap_or_else(PoisonError::into_inner)[0].raw.to_string();
    assert!(
        request.contains("of this conversation is done") && request.contains("1 of 1 steps"),
        "{request}"
    );
    engine.end();
}

/// Guidance is a message of the queue and the wait a time in the store: an engine that ends meanwhile asks nothing twice and
/// forgets nothing.
///
/// Rows: SIL-213 (in part: over a restart) SIL-223 (in part: over a restart)
#[test]
fn needs_userns_a_restart_forgets_neither_the_question_nor_its_answer() {
    let (seen, gate) = (Seen::default(), ReplyGate::new());
    let (planner, held) = (Arc::clone(&seen), gate.clone());
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            if !is_planner(request) {
                return executor(request, ADVICE);
            }
            match note(&planner, request) {
                1 => Reply::text("cut off").with_fault(ReplyFault::SlowFirstByte(held.clone())),
                _ => Reply::text(ADVICE),
            }
        }
    });
    let item = engine.runtime.block_on(async {
        let item = begin(&engine, TWO, None).await;
        until(&engine, &item, WorkState::Consulting).await;
        while engine.server.connections_waiting() < 1 {
            tokio::task::yield_now().await;
        }
        item
    });
    let engine = engine.restarted();
    engine.runtime.block_on(async {
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
    });
    assert_eq!(asked_planner(&seen), ["guidance", "guidance"], "the call that was cut off, made once more");
    let consulting = engine.facts("worked").into_iter();
    let consulting =
        consulting.filter(|fact| matches!(fact, Fact::Worked { state, .. } if state == "consulting"));
    assert_eq!(consulting.count(), 1);
    gate.open();
    engine.end();
}

/// A name that nothing here has is refused when the plan is proposed, not left out when it is run.
#[test]
fn unknown_tools_gates_and_skills_of_a_plan_are_refused() {
    let engine = TestEngine::new("", |_| |_: &ParsedRequest| Reply::text("never"));
    engine.runtime.block_on(async {
        for (line, named) in [
            (
                "    tools: [file_wirte]\n",
                "step 'one': there is no tool 'file_wirte' for its agent; 'file_write'",
            ),
            ("    tools: [file_write, plan]\n", "there is no tool 'plan'"),
            ("    skills: [coding]\n", "there is no skill 'coding'"),
        ] {
            let plan =
                TWO.replacen("    do: Write one.txt.\n", &format!("    do: Write one.txt.\n{line}"), 1);
            let refused = engine.call("work.propose", json!({ "plan": plan })).await.expect_err("is refused");
            assert_eq!((refused.exit, refused.code.as_str()), (Exit::Usage, "work.name"));
            assert!(refused.outside.contains(named), "{refused:?}");
        }
        let plan = TWO.replacen("title: Two files\n", "title: Two files\ngates: [nobody]\n", 1);
        let refused = engine.call("work.propose", json!({ "plan": plan })).await.expect_err("is refused");
        assert!(refused.outside.contains("there is no gate 'nobody'"), "{refused:?}");
        let listed = engine.call("work.list", json!({})).await.expect("a list");
        assert_eq!(listed["items"], json!([]), "nothing was stored");
    });
    engine.end();
}
