//! One approval and eight that want it at once: each checks the signature and redeems; one gets it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ed25519_dalek::SigningKey;
use tokio::sync::Barrier;
use writ_inspect::prepared::Prepared;
use writ_policy::approval::{
    Approval, ApprovalClaims, ApprovalToken, Approver, Approvers, Expected, verify_approval,
};
use writ_policy::budget::Ceilings;
use writ_policy::permit::{ApprovalUse, Durability, Journal as _, Redemption, Reservation};
use writ_store::approvals::AskState;
use writ_store::batch::{Batch, NewApproval, NewAsk, Op};
use writ_store::config::StoreConfig;
use writ_store::store::Store;
use writ_types::action::{Action, Recall};
use writ_types::digest::Digest;
use writ_types::entry::{ApprovalScope, Decision, Entry, Fact, Risk};
use writ_types::frame::{Card, Choice};
use writ_types::id::{AskId, AttemptId, InstallationId};
use writ_types::taint::{Label, Taint};
use writ_types::unit::Timestamp;

use crate::measured::{Measured, since};

/// The time at which everything here happens.
const NOW: Timestamp = Timestamp::from_millis(1_750_000_000_000);
/// How many want each approval.
const RACERS: u64 = 8;
/// How long the asks live.
const TTL: Duration = Duration::from_secs(86_400);

/// Races for one approval after the other.
pub(crate) fn run(folder: &Path, rounds: u32) -> Result<()> {
    let store = Store::open(
        &StoreConfig::new(folder.join("data/writ.db")),
        Arc::new(SigningKey::from_bytes(&[3; 32])),
    )?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let signer = SigningKey::from_bytes(&[4; 32]);
    let mut nanos = Vec::new();
    for round in 0..u64::from(rounds) {
        let held = Arc::new(Held::new(round, &signer)?);
        nanos.push(runtime.block_on(async {
            store.commit(Batch::synced(held.opened()?)).await?;
            race(&store, &held, round).await
        })?);
    }
    Measured { what: "raced", nanos, rows: 0, took_nanos: 0 }.print()
}

/// From the moment when all begin until all have their answer, in nanoseconds.
async fn race(store: &Store, held: &Arc<Held>, round: u64) -> Result<u64> {
    let barrier = Arc::new(Barrier::new(usize::try_from(RACERS)? + 1));
    let racers = (0..RACERS).map(|racer| {
        let (store, held, barrier) = (store.clone(), Arc::clone(held), Arc::clone(&barrier));
        tokio::spawn(async move {
            barrier.wait().await;
            let approval = verify_approval(&held.token, &held.expected, &held.approvers, NOW)?;
            let redemption = held.redemption(round * RACERS + racer, &approval);
            anyhow::Ok(store.redeem(redemption).await.is_ok())
        })
    });
    let racers: Vec<_> = racers.collect();
    barrier.wait().await;
    let start = Instant::now();
    let mut won = 0;
    for racer in racers {
        won += u32::from(racer.await??);
    }
    let took = since(start);
    ensure!(won == 1, "{won} of {RACERS} got the approval");
    Ok(took)
}

/// An approval that is there once.
struct Held {
    action: Action,
    token: ApprovalToken,
    expected: Expected,
    approvers: Approvers,
}

impl Held {
    fn new(round: u64, signer: &SigningKey) -> Result<Self> {
        let action = Action::Recall(Recall { query: format!("question {round}"), limit: 1 });
        let expires_at = NOW.plus_duration(TTL);
        let expected = Expected {
            installation: InstallationId::from_parts(NOW, 1),
            epoch: 1,
            ask: AskId::from_random(round),
            prepared: Digest::of_bytes(round.to_string().as_bytes()),
            shown: Digest::of_bytes(b"all of it"),
            risk: Risk::High,
            expires_at,
            values: false,
            host: None,
            approvers: 1,
            task: None,
            standing: Vec::new(),
        };
        let public = hex::encode(signer.verifying_key().as_bytes());
        let claims = ApprovalClaims {
            installation: expected.installation,
            epoch: expected.epoch,
            ask: expected.ask.clone(),
            decision: Decision::Approve,
            prepared: expected.prepared,
            shown: expected.shown,
            nonce: format!("{round:032x}"),
            issued_at: NOW,
            expires_at,
            approver: Approver::Key { public: public.clone() },
            task: None,
            values: false,
            host: None,
        };
        let token = ApprovalToken::sign_claims(claims, signer)?;
        let approvers = Approvers {
            keys: BTreeMap::from([(public, signer.verifying_key())]),
            passkeys: BTreeMap::new(),
            harness: SigningKey::from_bytes(&[5; 32]).verifying_key(),
        };
        Ok(Self { action, token, expected, approvers })
    }

    /// What the engine writes when it asks, and when it is answered.
    fn opened(&self) -> Result<Vec<Op>> {
        let ask = self.expected.ask.clone();
        Ok(vec![
            Op::OpenAsk(Box::new(self.ask())),
            Op::ResolveAsk {
                ask: ask.clone(),
                state: AskState::Approved,
                at: NOW,
                by: "owner".to_owned(),
                reason: String::new(),
            },
            Op::StoreApproval(NewApproval {
                ask,
                prepared: self.expected.prepared,
                nonce: self.token.claims.nonce.clone(),
                token: serde_json::to_value(&self.token)?,
                expires_at: self.expected.expires_at,
                task: None,
            }),
        ])
    }

    fn ask(&self) -> NewAsk {
        let Expected { ask, prepared, shown, risk, expires_at, .. } = &self.expected;
        let card = Card {
            ask_id: ask.clone(),
            session: None,
            action: "recall".to_owned(),
            intent: "look".to_owned(),
            risk: *risk,
            rationale: "a rule asks".to_owned(),
            choices: vec![Choice {
                decision: Decision::Deny,
                scope: ApprovalScope::Once,
                consequence: "nothing is read".to_owned(),
            }],
            shown: "all of it".to_owned(),
            prepared: *prepared,
            shown_hash: *shown,
            asked_at: NOW,
            expires_at: *expires_at,
            state: "open".to_owned(),
            task: None,
            standing: None,
            values: Vec::new(),
            host: None,
            approvers: 1,
            approved_by: Vec::new(),
            undo_secs: 0,
        };
        let fact = Fact::Asked {
            ask: ask.clone(),
            prepared: *prepared,
            action: self.action.clone(),
            risk: *risk,
            reason: "a rule asks".to_owned(),
            shown: *shown,
            expires_at: *expires_at,
        };
        let prepared = Prepared {
            action: self.action.clone(),
            agent: "assistant".to_owned(),
            session: None,
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
        NewAsk { card, prepared, entry: entry(fact) }
    }

    fn redemption(&self, attempt: u64, approval: &Approval) -> Redemption {
        let attempt = AttemptId::from_parts(NOW, u128::from(attempt));
        let (claims, prepared) = (approval.claims(), self.expected.prepared);
        Redemption {
            attempt,
            intent: entry(Fact::Intent {
                attempt,
                prepared,
                action: self.action.clone(),
                call: None,
                approval: Some(claims.ask.clone()),
                idempotent: true,
                label: Label::new(Taint::Owner),
                requester: None,
            }),
            approval: Some(ApprovalUse {
                ask: claims.ask.clone(),
                prepared,
                nonce: claims.nonce.clone(),
                task: None,
                amount: None,
                plan: None,
            }),
            keys: Default::default(),
            reservation: Reservation::default(),
            ceilings: Ceilings::default(),
            operation: Default::default(),
            durability: Durability::Synced,
        }
    }
}

fn entry(fact: Fact) -> Entry {
    Entry { at: NOW, session: None, turn: None, turn_number: 1, fact }
}
