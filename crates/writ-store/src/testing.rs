//! Helpers of the tests of this crate: a store in a temporary folder and small facts to put into it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ed25519_dalek::SigningKey;
use tempfile::TempDir;
use writ_inspect::prepared::Prepared;
use writ_types::action::{Action, MemoryKind, MemoryTrust, Recall, Remember};
use writ_types::chat::ToolOutcome;
use writ_types::digest::Digest;
use writ_types::entry::{ApprovalScope, Decision, Entry, Fact, InboundRecord, Risk, TurnPhase};
use writ_types::frame::{Card, Choice};
use writ_types::id::{AskId, AttemptId, MemoryId, MessageId, SessionId, TurnId};
use writ_types::interaction::InteractionMode;
use writ_types::taint::{Label, Taint};
use writ_types::unit::Timestamp;

use crate::batch::{Batch, NewAsk, NewMemory, NewMessageRow, NewSessionRow, NewTurn, Op, Receipt};
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::ledger::head::HeadSigner as _;
use crate::memory::MemoryTraits;
use crate::store::Store;

/// The start of time in tests, in milliseconds.
const START: i64 = 1_700_000_000_000;

/// A time, `millis` after the start.
pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(START + millis)
}

/// The harness's key in tests.
pub(crate) fn signer() -> Arc<SigningKey> {
    Arc::new(SigningKey::from_bytes(&[42; 32]))
}

/// Its public half, as verifiers take it.
pub(crate) fn keys() -> Vec<[u8; 32]> {
    vec![signer().public_key()]
}

/// A store in a temporary folder.
pub(crate) struct TestHome {
    pub(crate) dir: TempDir,
    pub(crate) store: Store,
}

impl TestHome {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let store = open_store(dir.path().join("data/writ.db")).expect("opens");
        Self { dir, store }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("data/writ.db")
    }

    /// Closes the store and opens it again.
    pub(crate) fn reopened(self) -> Self {
        let Self { dir, store } = self;
        drop(store);
        let store = open_store(dir.path().join("data/writ.db")).expect("opens again");
        Self { dir, store }
    }

    pub(crate) fn try_commit(&self, ops: Vec<Op>) -> Result<Receipt, StoreError> {
        self.store.commit_blocking(Batch::synced(ops))
    }

    pub(crate) fn commit(&self, ops: Vec<Op>) -> Receipt {
        self.try_commit(ops).expect("commits")
    }

    /// Opens session number `n`.
    pub(crate) fn with_session(self, n: u128) -> Self {
        self.commit(vec![new_session(n)]);
        self
    }

    /// Appends `count` small entries, one commit each.
    pub(crate) fn append(&self, count: u64) {
        for n in 0..count {
            self.commit(vec![phase(&format!("entry {n}"))]);
        }
    }
}

pub(crate) fn open_store(path: PathBuf) -> Result<Store, StoreError> {
    Store::open(&StoreConfig::new(path), signer())
}

pub(crate) fn session(n: u128) -> SessionId {
    SessionId::from_parts(at(0), n)
}

pub(crate) fn turn(n: u128) -> TurnId {
    TurnId::from_parts(at(0), n)
}

pub(crate) fn message(n: u128) -> MessageId {
    MessageId::from_parts(at(0), n)
}

pub(crate) fn attempt(n: u128) -> AttemptId {
    AttemptId::from_parts(at(0), n)
}

pub(crate) fn entry(fact: Fact) -> Entry {
    Entry { at: at(0), session: Some(session(1)), turn: None, turn_number: 0, fact }
}

pub(crate) fn phase(reason: &str) -> Op {
    Op::Append(Box::new(entry(Fact::Phase { phase: TurnPhase::Started, reason: reason.to_owned() })))
}

pub(crate) fn new_session(n: u128) -> Op {
    Op::OpenSession(NewSessionRow {
        id: session(n),
        created_at: at(0),
        project: None,
        metadata: BTreeMap::new(),
    })
}

/// A message of a session with the entry that records it.
pub(crate) fn receive(session_number: u128, n: u128, client_id: &str) -> Vec<Op> {
    let record = InboundRecord {
        message: message(n),
        session: session(session_number),
        turn_number: 1,
        principal: "owner".to_owned(),
        taint: Taint::Owner,
        text: Digest::of_bytes(b"hello"),
        at: at(0),
    };
    let fact =
        Fact::Received { record: record.clone(), text: "hello".to_owned(), signature: "00".to_owned() };
    vec![
        Op::Append(Box::new(entry(fact))),
        Op::EnqueueMessage(Box::new(NewMessageRow {
            record,
            client_id: client_id.to_owned(),
            text: "hello".to_owned(),
        })),
    ]
}

pub(crate) fn open_turn(session_number: u128, n: u128, number: u64) -> Op {
    Op::OpenTurn(NewTurn {
        id: turn(n),
        session: session(session_number),
        number,
        message: message(n),
        at: at(0),
        register: Default::default(),
        mode: InteractionMode::DefaultAndOffer,
    })
}

pub(crate) fn action(query: &str) -> Action {
    Action::Recall(Recall { query: query.to_owned(), limit: 1 })
}

pub(crate) fn intent(n: u128) -> Entry {
    entry(Fact::Intent {
        attempt: attempt(n),
        prepared: Digest::of_bytes(b"prepared"),
        action: action("x"),
        call: None,
        approval: None,
        idempotent: false,
        label: Label::new(Taint::Owner),
        requester: None,
    })
}

pub(crate) fn outcome(n: u128) -> Op {
    Op::Append(Box::new(entry(Fact::Outcome {
        attempt: attempt(n),
        outcome: ToolOutcome::Done,
        summary: "done".to_owned(),
        result: Digest::of_bytes(b"result"),
        label: Label::new(Taint::External),
    })))
}

pub(crate) fn ask_id(n: u64) -> AskId {
    AskId::from_random(n)
}

/// The answer that every question offers.
fn deny_choice() -> Choice {
    Choice { decision: Decision::Deny, scope: ApprovalScope::Once, consequence: "nothing is read".to_owned() }
}

/// An ask for `query`, opened at the start and ending a minute later.
pub(crate) fn ask(n: u64, query: &str) -> NewAsk {
    let prepared = Digest::of_bytes(query.as_bytes());
    let card = Card {
        ask_id: ask_id(n),
        session: Some(session(1)),
        action: "recall".to_owned(),
        intent: "look".to_owned(),
        risk: Risk::Medium,
        rationale: "rule".to_owned(),
        choices: vec![deny_choice()],
        shown: "all of it".to_owned(),
        prepared,
        shown_hash: Digest::of_bytes(b"all of it"),
        asked_at: at(0),
        expires_at: at(60_000),
        state: "open".to_owned(),
        task: None,
        standing: None,
        values: Vec::new(),
        host: None,
        approvers: 1,
        approved_by: Vec::new(),
        undo_secs: 0,
    };
    let entry = entry(Fact::Asked {
        ask: ask_id(n),
        prepared,
        action: action(query),
        risk: Risk::Medium,
        reason: "rule".to_owned(),
        shown: Digest::of_bytes(b"all of it"),
        expires_at: at(60_000),
    });
    let prepared = Prepared {
        action: action(query),
        agent: "main".to_owned(),
        session: Some(session(1)),
        turn: None,
        turn_number: 1,
        call: None,
        tool: "memory_search".to_owned(),
        sinks: Vec::new(),
        label: Label::new(Taint::Owner),
        bindings: BTreeMap::new(),
        idempotent: true,
        intent: "look".to_owned(),
    };
    NewAsk { card, prepared, entry }
}

pub(crate) fn memory(n: u128, text: &str, scope: Option<SessionId>) -> NewMemory {
    NewMemory {
        id: MemoryId::from_parts(at(0), n),
        item: Remember {
            text: text.to_owned(),
            memory_kind: MemoryKind::Fact,
            trust: MemoryTrust::Working,
            taint: Taint::Owner,
            secret: false,
            session: scope,
        },
        at: at(0),
        traits: MemoryTraits::default(),
    }
}
