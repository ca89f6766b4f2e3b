//! Many conversations at once, in which everything comes at a bad moment.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use writ_runtime::engine::{Engine, Join};
use writ_store::ledger::verify::VerifyOptions;
use writ_store::reads::{LedgerReads as _, QueueReads as _, TurnReads as _};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::chat::Role;
use writ_types::error::Exit;
use writ_types::frame::{Card, ServerFrame};
use writ_types::id::SessionId;
use writ_types::taint::Taint;

use crate::harness::{ASK_REMEMBER, BEGIN, OWNER, TestEngine};
use crate::set_back::approve;

/// The longest wait for the end of everything that was sent.
const PATIENCE: Duration = Duration::from_secs(120);
const SESSIONS: u64 = 12;
const MESSAGES: u64 = 8;
/// Messages that each ask for as many approvals as a turn may make calls: two hundred together.
const BATCHES: usize = 10;
const BATCH: usize = 20;

/// Remembers something in each turn, and ends.
fn remembering(request: &ParsedRequest) -> Reply {
    match request.messages.last().map(|message| message.role) {
        Some(Role::Tool) => Reply::text("Done."),
        _ => Reply::call("memory_store", json!({ "text": "The key is under the mat." })),
    }
}

/// A generator that needs no state of the system: the same moments with every run.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Sends messages into a session, stops its turns, revokes its keys, and at times closes it. Returns the session, and true if
/// it was closed.
async fn converse(engine: Engine, number: u64) -> (SessionId, bool) {
    let mut seed = number;
    let mut joined = engine.join(OWNER, Join::default()).await.expect("joined");
    let session = joined.session;
    let closes = number.is_multiple_of(3);
    for message in 0..MESSAGES {
        let (id, text) = (format!("{message}"), format!("Message {message}."));
        match engine.receive(OWNER, session, id, text, Taint::Owner).await {
            Ok(_) => {}
            Err(report) => {
                assert!(closes && report.code == "session.closed", "{report:?}");
                return (session, true);
            }
        }
        for _ in 0..next(&mut seed) % 4 {
            let frame = tokio::select! {
                biased;
                frame = joined.live.recv() => frame.expect("a frame").frame.clone(),
                // Its turns have nothing to show now.
                () = pass_turns(next(&mut seed) % 500) => continue,
            };
            let (ServerFrame::Delta { turn, .. } | ServerFrame::Message { turn, .. }) = frame else {
                continue;
            };
            if next(&mut seed).is_multiple_of(3) {
                engine.cancel(OWNER, turn).await.expect("there is such a turn");
            }
        }
        if next(&mut seed).is_multiple_of(5) {
            revoke_keys(&engine, session).await;
        }
        if closes && message == 5 {
            let params = json!({ "session": session });
            engine.call(OWNER, None, "sessions.close", params).await.expect("closed");
            return (session, true);
        }
    }
    (session, false)
}

/// Lets other tasks go first, so many times.
async fn pass_turns(times: u64) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

/// Revokes every task key that a session holds now.
async fn revoke_keys(engine: &Engine, session: SessionId) {
    let listed = engine.call(OWNER, None, "keys.list", json!({})).await.expect("listed");
    let tasks = listed["tasks"].as_array().expect("a list").clone();
    for task in tasks.iter().filter(|task| task["session"] == json!(session)) {
        let params = json!({ "key": task["key"], "reason": "a test" });
        // Its session may have let go of it meanwhile.
        if let Err(report) = engine.call(OWNER, None, "keys.revoke", params).await {
            assert_eq!(report.code, "key.not_in_force", "{report:?}");
        }
    }
}

/// Each message is answered or set aside, no attempt stays open, no turn hangs, and the ledger is whole; conversations that were
/// not closed go on.
#[test]
fn what_is_stopped_revoked_and_closed_at_any_moment_leaves_nothing_open() {
    let handed = TestEngine::new("", |_| remembering);
    handed.runtime.block_on(async {
        let mut conversations = JoinSet::new();
        for number in 0..SESSIONS {
            conversations.spawn(converse(handed.engine.clone(), number));
        }
        let ended = conversations.join_all().await;
        let quiet = async {
            loop {
                let depth = handed.store.queue_depth().await.expect("reads");
                if (depth.ready, depth.leased) == (0, 0) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, quiet).await.expect("every message comes to an end");
        assert_eq!(handed.store.unfinished_turns().await.expect("reads"), []);
        assert_eq!(handed.store.open_intents().await.expect("reads"), []);
        for (session, was_closed) in ended {
            if was_closed {
                continue;
            }
            let (_, exit, text) = handed.send(Some(session), "last", "Go on.").await;
            assert_eq!((exit, text.as_str()), (Exit::Done, "Done."), "{session}");
        }
        let report = handed.store.verify_ledger(&VerifyOptions::default()).await.expect("reads");
        assert!(report.is_good(), "{report:?}");
    });
    handed.end();
}

/// The clock stands still: what waited for a while, or for a quieter time, would never come.
///
/// Rows: SIL-331
#[test]
fn two_hundred_approvals_are_open_at_once_and_each_is_performed_when_it_is_given() {
    let script = |request: &ParsedRequest| match request.messages.last().map(|message| message.role) {
        Some(Role::Tool) => Reply::text("It waits."),
        _ => (0..BATCH).fold(Reply::default(), |reply, n| {
            let text = format!("{} {n}", request.last_user_text());
            reply.and_call("memory_store", json!({ "text": text }))
        }),
    };
    let handed = TestEngine::new(ASK_REMEMBER, |_| script);
    handed.runtime.block_on(async {
        let mut joined = handed.engine.join(OWNER, Join::default()).await.expect("joined");
        for n in 0..BATCHES {
            let (exit, text) = handed.send_in(&mut joined, &format!("{n}"), &format!("batch {n}")).await;
            assert_eq!(exit, Exit::Waiting, "{text}");
        }
        let cards = async || {
            let listed = handed.call("approvals.list", json!({ "all": true })).await.expect("listed");
            serde_json::from_value::<Vec<Card>>(listed["asks"].clone()).expect("cards")
        };
        let open = cards().await;
        assert_eq!(open.len(), BATCHES * BATCH);
        for card in &open {
            let said = approve(&handed, card.ask_id.clone()).await.expect("answered");
            assert_eq!(said.state, "applied");
        }
        assert!(cards().await.iter().all(|card| card.state == "used"));
        assert_eq!(handed.engine.call(OWNER, None, "status", json!({})).await.expect("told")["open_asks"], 0);
    });
    assert_eq!(handed.clock.now(), BEGIN, "no time has passed");
    handed.end();
}
