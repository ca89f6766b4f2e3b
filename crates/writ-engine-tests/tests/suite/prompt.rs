//! The requests of a turn: what the model reads, and what the store does for it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use writ_agent::effect::Effect;
use writ_agent::event::{Event, StoredEvent};
use writ_agent::turn::Turn;
use writ_runtime::engine::{Join, Surface};
use writ_store::batch::{Batch, NewMemory, Op};
use writ_store::store::{Store, StoreActivity};
use writ_testkit::model_server::{ParsedMessage, ParsedRequest, Reply};
use writ_types::action::{MemoryKind, MemoryTrust, Remember};
use writ_types::chat::{ChatMessage, ModelRequest, Part, Role};
use writ_types::error::Exit;
use writ_types::id::{MemoryId, TurnId};
use writ_types::taint::Taint;

use crate::harness::{BEGIN, OWNER, TestEngine};
use crate::tool_review::OneServer;

/// Remembers something in each turn, and ends.
fn remembering(request: &ParsedRequest) -> Reply {
    match request.messages.last().map(|message| message.role) {
        Some(Role::Tool) => Reply::text("Done."),
        _ => Reply::call("memory_store", json!({ "text": "The key is under the mat." })),
    }
}

/// What a model reads of a message: its role, its text, its calls and its results.
type Read = (Role, String, Vec<(String, Value)>, Vec<String>);

fn read_of(message: &ChatMessage) -> Read {
    let (mut text, mut calls, mut results) = (String::new(), Vec::new(), Vec::new());
    for part in &message.parts {
        match part {
            Part::Text { text: more } => text.push_str(more),
            Part::Call(call) => calls.push((call.name.clone(), call.arguments.clone())),
            Part::Result(result) => results.push(result.text.clone()),
            Part::Reasoning(_) | Part::File(_) => {}
        }
    }
    (message.role, text, calls, results)
}

fn sent_as(message: &ParsedMessage) -> Read {
    let calls = message.calls.iter().map(|call| (call.name.clone(), call.arguments.clone()));
    let results = message.results.iter().map(|result| result.text.clone());
    (message.role, message.text.clone(), calls.collect(), results.collect())
}

/// The requests that the pure machine of a turn makes of its stored events.
fn assembled(store: &Store, turn: TurnId) -> Vec<ModelRequest> {
    let (mut machine, mut requests) = (Turn::new(), Vec::new());
    for event in store.blocking().turn_events(turn).expect("reads") {
        let mut stored = StoredEvent::decode_json(&event).expect("an event");
        if let Event::Opened(opened) = &mut stored.event
            && let Some(rows) = opened.seed.history_rows
        {
            let count = usize::try_from(rows.count).expect("few");
            let rows = store.blocking().recent_until(opened.session, rows.last, count).expect("reads");
            opened.seed.history = rows.into_iter().map(|row| Arc::new(row.message)).collect();
        }
        let mut effects = Vec::new();
        machine.handle_event(stored.event, stored.at, &mut effects).expect("fits");
        for effect in effects {
            if let Effect::CallModel { request, .. } = effect {
                requests.push(*request);
            }
        }
    }
    requests
}

/// A profile memory, a conversation with history, and a step with its result are in the request as the context manager has put
/// them; the shell around it adds nothing.
///
/// Rows: SIL-066
#[test]
fn the_model_reads_what_the_context_manager_assembled_and_nothing_else() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sent);
    let script = |_| {
        move |request: &ParsedRequest| {
            seen.lock().expect("no panic").push(request.clone());
            remembering(request)
        }
    };
    let handed = TestEngine::new("", script);
    handed.runtime.block_on(async {
        let item = Remember {
            text: "The owner is called Ann.".to_owned(),
            memory_kind: MemoryKind::Profile,
            trust: MemoryTrust::Verified,
            taint: Taint::Owner,
            secret: false,
            session: None,
        };
        let memory =
            NewMemory { id: MemoryId::from_parts(BEGIN, 1), item, at: BEGIN, traits: Default::default() };
        let remember = Batch::relaxed(vec![Op::Remember(Box::new(memory))]);
        handed.store.commit(remember).await.expect("written");
        let (session, ..) = handed.send(None, "one", "Where is the key?").await;
        handed.clock.go_on(Duration::from_secs(1));
        handed.send(Some(session), "two", "And the key of the shed?").await;
        let turn = handed.store.blocking().newest_turn(Some(session)).expect("reads").expect("a turn").id;
        let expected = assembled(&handed.store, turn);
        let requests = sent.lock().expect("no panic").clone();
        assert_eq!((requests.len(), expected.len()), (4, 2));
        for (sent, request) in requests[2..].iter().zip(&expected) {
            // This format has one text of the system, which its messages join.
            let (system, others): (Vec<_>, Vec<_>) = request
                .messages
                .iter()
                .map(|message| read_of(message))
                .partition(|read| read.0 == Role::System);
            let system = std::iter::once(request.system.as_str())
                .chain(system.iter().map(|(_, text, ..)| text.as_str()))
                .filter(|text| !text.is_empty());
            assert_eq!(sent.system, system.collect::<Vec<_>>().join("\n\n"));
            let messages: Vec<Read> = others;
            assert_eq!(sent.messages.iter().map(sent_as).collect::<Vec<_>>(), messages);
            let tools: Vec<_> = request.tools.iter().map(|tool| (&tool.name, &tool.description)).collect();
            let offered: Vec<_> = sent.tools.iter().map(|tool| (&tool.name, &tool.description)).collect();
            assert_eq!(offered, tools);
            assert_eq!(sent.max_output_tokens, Some(request.max_output_tokens.get()));
        }
        let all = requests[3].raw.to_string();
        for text in ["called Ann", "Where is the key?", "And the key of the shed?", "under the mat"] {
            assert!(all.contains(text), "{text}");
        }
    });
    handed.end();
}

/// Handing a read over wakes two threads in a row. A turn does it for its history with the pinned memories, for its search
/// in the memory, to compare a new memory with older ones, and for the queues of its agents; its message, its beginning, each
/// call, each action and its end are one commit each.
#[test]
fn a_turn_that_remembers_hands_few_reads_over_and_commits_six_times() {
    let handed = TestEngine::new("", |_| remembering);
    handed.runtime.block_on(async {
        let mut joined = handed.engine.join(OWNER, Join::default()).await.expect("joined");
        assert_eq!(handed.send_in(&mut joined, "one", "Remember it.").await.0, Exit::Done);
        for id in ["two", "three"] {
            // The turn before still runs for a moment after its answer is shown.
            while handed.call("status", json!({})).await.expect("answered")["running"] != json!([]) {
                tokio::task::yield_now().await;
            }
            let before = handed.store.activity();
            handed.send_in(&mut joined, id, "Remember it.").await;
            let StoreActivity { handed_over, transactions, .. } = handed.store.activity();
            let done = (handed_over - before.handed_over, transactions - before.transactions);
            // A read that finds both connections in use is handed over as well, and two small commits may become one.
            assert!((2..=6).contains(&done.0) && (4..=6).contains(&done.1), "{id}: {done:?}");
        }
    });
    handed.end();
}

/// The introduction stands in a conversation of a home that has neither memories nor tools of its owner's own, and in none after the
/// first memory, or where there is a tool. A program over HTTP and other people get none.
///
/// Rows: WIN-343
#[test]
fn the_introduction_is_there_until_the_first_memory_or_the_first_tool() {
    let systems = Arc::new(Mutex::new(Vec::new()));
    let start = |has_tool: bool| {
        let seen = Arc::clone(&systems);
        let change = move |parts: &mut writ_runtime::services::EngineParts| {
            parts.config.first_run = "Introduce yourself.".to_owned();
            if has_tool {
                parts.servers = Arc::new(OneServer(vec![("weather", "Fetches the weather.")]));
            }
        };
        TestEngine::with(change, move |_| {
            move |request: &ParsedRequest| {
                seen.lock().expect("no panic").push(request.system.clone());
                Reply::text("Yes.")
            }
        })
    };
    let is_introduced = || {
        let last = systems.lock().expect("no panic").last().cloned().expect("a request");
        last.contains("# First run\n\nIntroduce yourself.")
    };
    let engine = start(false);
    engine.runtime.block_on(async {
        engine.say(None, "hello").await;
        assert!(is_introduced(), "on an empty home");
        for join in
            [Join { surface: Surface::Api, ..Join::default() }, Join { relayed: true, ..Join::default() }]
        {
            let session = Some(engine.engine.open(OWNER, join).await.expect("opened"));
            let mut joined =
                engine.engine.join(OWNER, Join { session, ..Join::default() }).await.expect("joined");
            engine.send_in(&mut joined, "one", "hello").await;
            assert!(!is_introduced());
        }
        engine.call("memory.add", json!({ "text": "The owner is called Ann." })).await.expect("stored");
        engine.say(None, "hello again").await;
        assert!(!is_introduced(), "after the first memory");
    });
    engine.end();
    let engine = start(true);
    engine.runtime.block_on(async {
        engine.say(None, "hello").await;
        assert!(!is_introduced(), "with a tool");
    });
    engine.end();
}
