//! Shared parts of this crate's tests: keys, one action of every kind with the values of the design's tables,
//! a world to decide in, and a journal in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use ed25519_dalek::SigningKey;
use writ_types::action::*;
use writ_types::digest::Digest;
use writ_types::entry::{Decision, Risk};
use writ_types::id::{AskId, InstallationId, KeyId};
use writ_types::taint::{Label, Taint};
use writ_types::unit::Timestamp;

use crate::approval::{
    Approval, ApprovalClaims, ApprovalError, ApprovalToken, Approver, Approvers, Expected, verify_approval,
};
use crate::budget::BudgetFacts;
use crate::door::{Ask, Decided, Denial, Facts, Grant, Verdicts, decide, precheck};
use crate::keys::grants::Grants;
use crate::keys::limits::UsedToday;
use crate::keys::{
    Authority, BaseClaims, Case, ROUTER, TASK_KEY_TTL, TaskClaims, Verifier, mint_base, mint_task,
};
use crate::plan::{ApprovedPlan, Planned};
use crate::rules::{Authorship, RuleSet, RuleSource};
use writ_inspect::egress::EgressScope;
use writ_inspect::origin::Origins;
use writ_inspect::prepared::Prepared;
use writ_inspect::scope::Dimension;

#[path = "../../writ-inspect/src/fixture.rs"]
mod actions;

pub(crate) use actions::*;

pub(crate) const EPOCH: u64 = 3;

pub(crate) fn later(millis: i64) -> Timestamp {
    Timestamp::from_millis(NOW.as_millis() + millis)
}

pub(crate) fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

pub(crate) fn root() -> SigningKey {
    key(1)
}

pub(crate) fn router() -> SigningKey {
    key(2)
}

pub(crate) fn approver() -> SigningKey {
    key(3)
}

pub(crate) fn harness() -> SigningKey {
    key(4)
}

pub(crate) fn installation() -> InstallationId {
    InstallationId::from_parts(NOW, 1)
}

pub(crate) fn verifier() -> Verifier {
    Verifier {
        root: root().verifying_key(),
        router: router().verifying_key(),
        installation: installation(),
        epoch: EPOCH,
    }
}

/// The case that the task key of the tests is for.
pub(crate) fn case() -> Case {
    Case {
        task: "chat-session-abc123".into(),
        customer: CUSTOMER_ID.into(),
        case: CASE_ID.into(),
        granted_by: ROUTER.into(),
    }
}

/// A sample, and what the design's tables say of its kind at the door, written by hand.
pub(crate) struct Sample {
    pub(crate) action: Action,
    pub(crate) touches: Vec<(Dimension, &'static str)>,
    pub(crate) leaves: bool,
    pub(crate) asked: bool,
    pub(crate) risk: Risk,
    pub(crate) synced: bool,
}

const FREE: [bool; 3] = [false, false, true];
const READ: [bool; 3] = [false, false, false];
const STORE: [bool; 3] = [true, true, false];
const OUT: [bool; 3] = [true, true, true];
const PLAN: [bool; 3] = [false, true, true];

/// Leaves or outlasts the session, is asked about, is synced. Any other kind is [`OUT`], the strictest row.
const AT_THE_DOOR: [(ActionKind, [bool; 3]); 11] = [
    (ActionKind::Exec, FREE),
    (ActionKind::ReadFile, READ),
    (ActionKind::Recall, READ),
    (ActionKind::Remember, READ),
    (ActionKind::Forget, STORE),
    (ActionKind::Say, READ),
    (ActionKind::Subscribe, FREE),
    (ActionKind::ModelCall, READ),
    (ActionKind::Search, [true, false, true]),
    (ActionKind::Plan, PLAN),
    (ActionKind::ReadResult, READ),
];

/// One action of every kind, in the order of [`ActionKind::ALL`].
pub(crate) fn samples() -> Vec<Sample> {
    let at_the_door = BTreeMap::from(AT_THE_DOOR);
    let rows = action_samples().into_iter().map(|ActionSample { action, touches, risk }| {
        let kind = action.kind();
        let [leaves, asked, synced] = at_the_door.get(&kind).copied().unwrap_or(OUT);
        assert_eq!(kind.row().is_synced, synced, "{kind:?}");
        Sample { action, touches, leaves, asked, risk, synced }
    });
    rows.collect()
}

pub(crate) fn tainted(action: Action, taint: Taint) -> Prepared {
    Prepared { label: Label::new(taint), ..prepared(action) }
}

/// Grants that cover all samples, each in exactly what it touches.
pub(crate) fn all_grants() -> Grants {
    samples().iter().fold(Grants::default(), |grants, sample| {
        grants.allow_kind(sample.action.kind(), sample.touches.iter().copied())
    })
}

pub(crate) fn rules(text: &str) -> RuleSet {
    RuleSet::load_rules(&[home_rules(text)]).expect("the test's rules are valid")
}

pub(crate) fn home_rules(text: &str) -> RuleSource {
    RuleSource { origin: "home".into(), authorship: Authorship::Home, text: text.into() }
}

pub(crate) const PERMIT_ALL: &str = r#"@id("all") permit (principal, action, resource);"#;

macro_rules! shared_rules {
    ($name:ident, $load:expr) => {
        pub(crate) fn $name() -> &'static RuleSet {
            static RULES: OnceLock<RuleSet> = OnceLock::new();
            RULES.get_or_init(|| $load)
        }
    };
}

shared_rules!(
    shipped,
    RuleSet::load_rules(&[RuleSource::shipped_rules()]).expect("the shipped rules are valid")
);
shared_rules!(permit_all, rules(PERMIT_ALL));
shared_rules!(forbid_all, rules(&format!("{PERMIT_ALL} @id(\"no\") forbid (principal, action, resource);")));
shared_rules!(
    ask_all,
    rules(&format!("{PERMIT_ALL} @id(\"ask\") @ask(\"Sure?\") forbid (principal, action, resource);"))
);

/// The facts of a decision; a test changes the one that it is about.
pub(crate) struct World {
    pub(crate) base: BaseClaims,
    pub(crate) task: TaskClaims,
    pub(crate) revoked: BTreeSet<String>,
    pub(crate) rules: &'static RuleSet,
    pub(crate) budget: BudgetFacts,
    pub(crate) egress: EgressScope,
    pub(crate) origins: Origins,
    pub(crate) strict: bool,
    pub(crate) approval: Option<Result<Approval, ApprovalError>>,
    pub(crate) used: Option<UsedToday>,
    pub(crate) plan: Option<ApprovedPlan>,
    pub(crate) planned: bool,
    pub(crate) lost: bool,
    pub(crate) verdicts: Verdicts,
    pub(crate) now: Timestamp,
}

#[derive(Debug)]
pub(crate) enum DoorStop {
    Ask(Box<Ask>),
    Deny(Box<Denial>),
}

impl World {
    pub(crate) fn new(rules: &'static RuleSet) -> Self {
        let base = BaseClaims {
            key: KeyId::from_parts(NOW, 1),
            installation: installation(),
            epoch: EPOCH,
            agent: AGENT.into(),
            policy: rules.digest(),
            expires_at: later(86_400_000),
            grants: all_grants(),
        };
        let task = TaskClaims {
            key: KeyId::from_parts(NOW, 2),
            base: base.key,
            session: session(1),
            not_before: NOW,
            expires_at: NOW.plus_duration(TASK_KEY_TTL),
            grants: all_grants(),
            case: Some(case()),
            under: Default::default(),
            plan: None,
        };
        Self {
            base,
            task,
            revoked: BTreeSet::new(),
            rules,
            budget: BudgetFacts::default(),
            egress: EgressScope::default(),
            origins: Origins::default(),
            strict: false,
            approval: None,
            used: None,
            plan: None,
            planned: false,
            lost: false,
            verdicts: Verdicts::default(),
            now: NOW,
        }
    }

    /// Mints both keys and verifies them, as the engine does.
    pub(crate) fn authority(&self) -> Authority {
        let base = mint_base(&self.base, &root()).expect("mints");
        let token = mint_task(&base, &self.task, &root().verifying_key(), &router()).expect("mints");
        verifier().verify_task(&token).expect("verifies")
    }

    pub(crate) fn facts<'a>(&'a self, authority: &'a Authority) -> Facts<'a> {
        Facts {
            authority,
            revoked: &self.revoked,
            rules: self.rules,
            budget: &self.budget,
            egress: &self.egress,
            origins: &self.origins,
            strict: self.strict,
            plan: Planned { in_force: self.plan.as_ref(), only: self.planned },
            lost: self.lost,
            approval: self.approval.as_ref(),
            used: self.used.as_ref(),
        }
    }

    /// All stages up to the grant.
    pub(crate) fn decide(&self, prepared: Prepared) -> Result<Box<Grant>, DoorStop> {
        self.decide_under(prepared, &self.authority())
    }

    /// The same under keys that were verified before, which is the slow part.
    pub(crate) fn decide_under(
        &self,
        prepared: Prepared,
        authority: &Authority,
    ) -> Result<Box<Grant>, DoorStop> {
        let facts = self.facts(authority);
        let checked = precheck(prepared, &facts, self.now).map_err(DoorStop::Deny)?;
        match decide(checked, &self.verdicts, &facts, self.now) {
            Decided::Grant(grant) => Ok(grant),
            Decided::Ask(ask) => Err(DoorStop::Ask(ask)),
            Decided::Deny(denial) => Err(DoorStop::Deny(denial)),
        }
    }

    pub(crate) fn denial(&self, prepared: Prepared) -> Denial {
        match self.decide(prepared) {
            Err(DoorStop::Deny(denial)) => *denial,
            other => panic!("expected a denial, found {other:?}"),
        }
    }

    pub(crate) fn ask(&self, prepared: Prepared) -> Ask {
        match self.decide(prepared) {
            Err(DoorStop::Ask(ask)) => *ask,
            other => panic!("expected an ask, found {other:?}"),
        }
    }
}

/// Runs a future that never waits.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the journal in memory never waits"),
    }
}

pub(crate) use approvals::{approved, approvers, claims, expected, signed};
pub(crate) use journal::NonceJournal;

mod approvals;

mod journal;
