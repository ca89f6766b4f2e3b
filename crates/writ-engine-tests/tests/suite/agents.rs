//! Several agents in one engine: their turns run side by side in one session.

use serde_json::json;
use writ_agent::config::Summaries;
use writ_policy::principal::Inbound;
use writ_runtime::engine::{Along, Cancelled, Join, Joined};
use writ_runtime::profile::AgentProfile;
use writ_store::queue::EXECUTOR;
use writ_store::reads::QueueReads as _;
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::entry::{Fact, TurnPhase};
use writ_types::error::Exit;
use writ_types::frame::ServerFrame;
use writ_types::id::TurnId;
use writ_types::taint::Taint;

use crate::harness::{OWNER, TestEngine};
use crate::work::PATIENCE;

const REVIEWER: &str = "reviewer";

/// As many turns run at once as are set, over all conversations; the rest wait in the queue, and each is answered.
///
/// Rows: SCL-136 (in part: with 4, never more than 4; 64 where nothing is set)
#[test]
fn no_more_turns_run_at_once_than_are_set() {
    const MOST: usize = 4;
    let gate = ReplyGate::new();
    let held = gate.clone();
    let engine = TestEngine::with(
        |parts| parts.config.max_parallel = MOST,
        |_| {
            move |_: &ParsedRequest| Reply::text("Heard.").with_fault(ReplyFault::SlowFirstByte(held.clone()))
        },
    );
    engine.runtime.block_on(async {
        let mut all = Vec::new();
        for _ in 0..2 * MOST {
            let id = engine.engine.open(OWNER, Join::default()).await.expect("opened");
            let join = Join { session: Some(id), ..Join::default() };
            let joined = engine.engine.join(OWNER, join).await.expect("joined");
            let text = "Hello?".to_owned();
            engine.engine.receive(OWNER, id, "one".to_owned(), text, Taint::Owner).await.expect("stored");
            all.push(joined);
        }
        // A message takes its place with the commit that stores it: what has none now waits for the end of a turn.
        let depth = engine.store.queue_depth().await.expect("reads");
        assert_eq!((depth.leased, depth.ready), (4, 4));
        let asked = async {
            while engine.server.connections_waiting() < MOST {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("four at once");
        let depth = engine.store.queue_depth().await.expect("reads");
        assert_eq!((engine.server.connections_waiting(), depth.leased, depth.ready), (MOST, 4, 4));
        gate.open();
        for joined in &mut all {
            let answered = async {
                loop {
                    let frame = joined.live.recv().await.expect("a frame").frame.clone();
                    if let ServerFrame::Message { text, last: true, .. } = frame {
                        return text;
                    }
                }
            };
            let text = tokio::time::timeout(PATIENCE, answered).await.expect("an answer");
            assert_eq!(text, "Heard.");
        }
    });
    engine.end();
}

/// An engine with two agents, whose model repeats each message once the gate is open.
fn engine(gate: &ReplyGate) -> TestEngine {
    let gate = gate.clone();
    TestEngine::with(
        |parts| {
            let reviewer =
                AgentProfile { consumer: REVIEWER.to_owned(), ..AgentProfile::executor(&parts.config) };
            parts.agents.push(reviewer);
        },
        |_| {
            move |request: &ParsedRequest| {
                let said = request.last_user_text().lines().last().unwrap_or_default().to_owned();
                Reply::text(&said).with_fault(ReplyFault::SlowFirstByte(gate.clone()))
            }
        },
    )
}

async fn send(engine: &TestEngine, joined: &Joined, consumer: &str, text: &str) {
    let inbound =
        Inbound { session: joined.session, client_id: text.replace(' ', "-"), text: text.to_owned() };
    let along = Along { text_taint: Taint::Owner, signature: None, sender: None };
    engine.engine.receive_for(OWNER, consumer, inbound, along).await.expect("stored");
}

/// The turns that run, by number.
async fn running(engine: &TestEngine) -> Vec<(TurnId, u64)> {
    let status = engine.call("status", json!({})).await.expect("answered");
    let turns = status["running"].as_array().expect("a list").iter();
    let mut turns: Vec<(TurnId, u64)> = turns
        .map(|one| {
            let turn: TurnId = serde_json::from_value(one["turn"].clone()).expect("an id");
            (turn, one["number"].as_u64().expect("a number"))
        })
        .collect();
    turns.sort_by_key(|(_, number)| *number);
    turns
}

/// Waits until as many requests wait for the model.
async fn until_waiting(engine: &TestEngine, count: usize) {
    while engine.server.connections_waiting() < count {
        tokio::task::yield_now().await;
    }
}

/// The last messages of so many turns: how each ended, and its text.
async fn ended(joined: &mut Joined, turns: usize) -> Vec<(TurnId, Exit, String)> {
    let mut ended = Vec::new();
    while ended.len() < turns {
        let frame = joined.live.recv().await.expect("a frame").frame.clone();
        if let ServerFrame::Error { code, text, .. } = &frame {
            panic!("{code}: {text}");
        }
        if let ServerFrame::Message { turn, text, exit, last: true, .. } = frame {
            ended.push((turn, exit, text));
        }
    }
    ended
}

/// Rows: SCL-030 (in part: two agents work at once in one engine)
#[test]
fn turns_of_two_agents_run_at_once_in_one_session_and_a_stop_reaches_the_one_it_names() {
    let gate = ReplyGate::new();
    let engine = engine(&gate);
    engine.runtime.block_on(async {
        let mut joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
        send(&engine, &joined, EXECUTOR, "first").await;
        // Two that begin at once may get their numbers in either order.
        until_waiting(&engine, 1).await;
        send(&engine, &joined, REVIEWER, "second").await;
        until_waiting(&engine, 2).await;
        let turns = running(&engine).await;
        let [(of_first, 1), (of_second, 2)] = turns[..] else { panic!("two turns: {turns:?}") };
        assert_eq!(engine.engine.cancel(OWNER, of_first).await.ok(), Some(Cancelled::Stopped));
        let stopped = ended(&mut joined, 1).await;
        assert_eq!(
            stopped.first().map(|(turn, exit, _)| (*turn, *exit)),
            Some((of_first, Exit::Interrupted))
        );
        // A turn is over a moment after its last frame; the other goes on.
        while running(&engine).await != [(of_second, 2)] {
            tokio::task::yield_now().await;
        }
        gate.open();
        assert_eq!(ended(&mut joined, 1).await, [(of_second, Exit::Done, "second".to_owned())]);
    });
    let started = engine.facts("phase").into_iter();
    let started = started.filter(|fact| matches!(fact, Fact::Phase { phase: TurnPhase::Started, .. }));
    assert_eq!(started.count(), 2);
    engine.end();
}

/// The second message of an agent joins its turn, or waits for it; the other agent's does neither.
#[test]
fn an_agent_has_one_turn_at_a_time_in_a_session() {
    let gate = ReplyGate::new();
    let engine = engine(&gate);
    engine.runtime.block_on(async {
        let mut joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
        for text in ["first", "also first"] {
            send(&engine, &joined, EXECUTOR, text).await;
        }
        for text in ["second", "also second"] {
            send(&engine, &joined, REVIEWER, text).await;
        }
        until_waiting(&engine, 2).await;
        assert_eq!(running(&engine).await.len(), 2);
        gate.open();
        let mut said: Vec<String> = Vec::new();
        while !["also first", "also second"].iter().all(|text| said.iter().any(|said| said == text)) {
            said.extend(ended(&mut joined, 1).await.into_iter().map(|(_, _, text)| text));
        }
        let inbound = Inbound {
            session: joined.session,
            client_id: "lost".to_owned(),
            text: "is anybody there?".to_owned(),
        };
        let along = Along { text_taint: Taint::Owner, signature: None, sender: None };
        let refused = engine.engine.receive_for(OWNER, "planner", inbound, along).await;
        assert_eq!(refused.map_err(|report| report.code), Err("agent.unknown".to_owned()));
    });
    engine.end();
}

/// While a model summarises the history for one turn, another turn of the session begins and ends.
#[test]
fn no_turn_waits_for_the_summary_of_another() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let engine = TestEngine::with(
        |parts| {
            let reviewer =
                AgentProfile { consumer: REVIEWER.to_owned(), ..AgentProfile::executor(&parts.config) };
            parts.agents.push(reviewer);
            parts.config.max_chronicle_entries = 6;
            parts.config.begun.agent_config.context.summaries = Summaries::Always;
        },
        |_| {
            move |request: &ParsedRequest| {
                if request.system.contains("You summarise the older part of a conversation") {
                    let output = json!({ "summary": "They count.", "keep_groups": [], "evict_groups": [] });
                    return Reply::text(&output.to_string())
                        .with_fault(ReplyFault::SlowFirstByte(held.clone()));
                }
                Reply::text("heard")
            }
        },
    );
    engine.runtime.block_on(async {
        let mut joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
        for n in 0_u32.. {
            assert!(n < 20, "it is never summarised");
            send(&engine, &joined, EXECUTOR, &format!("number {n}")).await;
            tokio::select! {
                _ = ended(&mut joined, 1) => {}
                () = until_waiting(&engine, 1) => break,
            }
        }
        send(&engine, &joined, REVIEWER, "and you?").await;
        let ended_first = ended(&mut joined, 1);
        let reviewed = tokio::time::timeout(PATIENCE, ended_first).await.expect("it does not wait");
        assert_eq!(engine.server.connections_waiting(), 1, "the summary is not there yet");
        gate.open();
        let summarised = ended(&mut joined, 1).await;
        assert_ne!(reviewed[0].0, summarised[0].0);
        assert_eq!([reviewed[0].1, summarised[0].1], [Exit::Done; 2]);
    });
    assert_eq!(engine.facts("compacted").len(), 1, "one summary");
    engine.end();
}
