//! Permits for tests of performers, from the real door: keys are minted and verified, the shipped rules
//! decide, an enrolled key approves what they ask, and a journal in memory writes the intent.
//!
//! ```
//! # use writ_testdoor as door;
//! # use writ_types::action::{Action, ExecProfile, Exec};
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! # let action = Action::Exec(Exec { argv: vec!["true".into()], cwd: "/work".into(), env: Default::default(),
//! #     stdin: None, timeout_ms: 1_000, profile: ExecProfile::Task, hosts: vec![] });
//! let permit = door::permit_action(door::prepare_action(action)).await;
//! let opened = permit.open(door::NOW).unwrap();
//! # assert_eq!(opened.prepared.tool, "test");
//! # });
//! ```
//!
//! # Panics
//!
//! Everything here panics when a test asks for what the door refuses: the message names the refusal. Time
//! stands still at [`NOW`]; permits are opened at that time or up to a minute later.

#![expect(clippy::expect_used, clippy::panic, reason = "a test that prepares nonsense is to fail at once")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use ed25519_dalek::SigningKey;
use writ_inspect::egress::EgressScope;
use writ_inspect::origin::Origins;
use writ_inspect::prepared::Prepared;
use writ_inspect::scope;
use writ_inspect::show::ShownText;
use writ_policy::approval::{
    Approval, ApprovalClaims, ApprovalError, ApprovalToken, Approver, Approvers, Expected, verify_approval,
};
use writ_policy::budget::BudgetFacts;
use writ_policy::door::{Ask, Decided, Denial, Facts, Grant, Verdicts, decide, precheck};
use writ_policy::keys::grants::Grants;
use writ_policy::keys::limits;
use writ_policy::keys::{
    Authority, BaseClaims, Case, TASK_KEY_TTL, TaskClaims, Verifier, mint_base, mint_task,
};
use writ_policy::permit::{Journal, Permit, RedeemError, Redemption};
use writ_policy::plan::Planned;
use writ_policy::rules::{RuleSet, RuleSource};
use writ_types::action::Action;
use writ_types::entry::Decision;
use writ_types::id::{AskId, AttemptId, EntrySeq, InstallationId, KeyId, SessionId, TurnId};
use writ_types::taint::{Label, Taint};
use writ_types::unit::Timestamp;

/// The time at which everything here happens: 15 June 2025.
pub const NOW: Timestamp = Timestamp::from_millis(1_750_000_000_000);
/// The agent of [`prepare_action`].
pub const AGENT: &str = "assistant";
/// The life of keys and approvals, in milliseconds: a day.
const DAY_MS: i64 = 86_400_000;

/// The session of [`prepare_action`].
pub fn session() -> SessionId {
    SessionId::from_parts(NOW, 1)
}

/// The turn of [`prepare_action`].
pub fn turn() -> TurnId {
    TurnId::from_parts(NOW, 1)
}

/// An action as the model of [`session`] requested it in [`turn`] by the tool `test`, on the owner's word.
pub fn prepare_action(action: Action) -> Prepared {
    Prepared {
        action,
        agent: AGENT.into(),
        session: Some(session()),
        turn: Some(turn()),
        turn_number: 1,
        call: Some("call-1".into()),
        tool: "test".into(),
        sinks: Vec::new(),
        label: Label::new(Taint::Owner),
        bindings: BTreeMap::new(),
        idempotent: false,
        intent: "a test".into(),
    }
}

/// A permit for an action, from a [`Fixture`] of its own.
///
/// # Panics
///
/// If the door refuses the action.
pub async fn permit_action(prepared: Prepared) -> Permit {
    Fixture::default().permit(prepared).await
}

/// Returns the door's refusal of an action.
///
/// # Panics
///
/// If it does not.
pub fn deny_action(prepared: Prepared) -> Denial {
    let fixture = Fixture::default();
    match fixture.decide(prepared.clone(), &fixture.authority(&prepared), None) {
        Decided::Deny(denial) => *denial,
        Decided::Grant(_) | Decided::Ask(_) => panic!("the door does not refuse {:?}", prepared.action),
    }
}

/// An installation: its keys, the rules in force, and a journal.
#[derive(Debug)]
pub struct Fixture {
    /// Signs base keys.
    pub root: SigningKey,
    /// Signs task keys.
    pub router: SigningKey,
    /// Signs for sessions.
    pub harness: SigningKey,
    /// The enrolled approver key.
    pub approver: SigningKey,
    /// The installation that all tokens name.
    pub installation: InstallationId,
    /// The epoch in force.
    pub epoch: u64,
    /// The record of [`Fixture::permit`].
    pub journal: MemoryJournal,
    counter: AtomicU64,
}

impl Default for Fixture {
    fn default() -> Self {
        let key = |seed| SigningKey::from_bytes(&[seed; 32]);
        Self {
            root: key(1),
            router: key(2),
            harness: key(3),
            approver: key(4),
            installation: InstallationId::from_parts(NOW, 1),
            epoch: 1,
            journal: MemoryJournal::default(),
            counter: AtomicU64::new(1),
        }
    }
}

/// The rules that Writ ships.
///
/// # Panics
///
/// If they do not load, which the door's own tests exclude.
pub fn shipped_rules() -> &'static RuleSet {
    static RULES: OnceLock<RuleSet> = OnceLock::new();
    RULES.get_or_init(|| RuleSet::load_rules(&[RuleSource::shipped_rules()]).expect("the shipped rules load"))
}

/// The case that an operation names, for its task key.
fn case_of(action: &Action) -> Option<Case> {
    let Action::Operate(operate) = action else { return None };
    let token = |name: &str| operate.parameters.get(name).cloned();
    Some(Case {
        customer: token(limits::CUSTOMER)?,
        case: token(limits::CASE)?,
        task: "test".to_owned(),
        granted_by: writ_policy::keys::ROUTER.to_owned(),
    })
}

impl Fixture {
    /// Base and task key for the agent and session of a prepared action, which grant exactly what it touches.
    ///
    /// # Panics
    ///
    /// If the action has no session, or its scopes do not fit into a key.
    pub fn authority(&self, prepared: &Prepared) -> Authority {
        let touched = scope::attributes_of(&prepared.action);
        let scopes = touched.iter().map(|(dimension, value)| (*dimension, value.as_str()));
        let grants = Grants::default().allow_kind(prepared.action.kind(), scopes);
        let base = BaseClaims {
            key: KeyId::from_parts(NOW, 1),
            installation: self.installation,
            epoch: self.epoch,
            agent: prepared.agent.clone(),
            policy: shipped_rules().digest(),
            expires_at: Timestamp::from_millis(NOW.as_millis() + DAY_MS),
            grants: grants.clone(),
        };
        let task = TaskClaims {
            key: KeyId::from_parts(NOW, 2),
            base: base.key,
            session: prepared.session.expect("a prepared action needs a session"),
            not_before: NOW,
            expires_at: NOW.plus_duration(TASK_KEY_TTL),
            grants,
            case: case_of(&prepared.action),
            under: Default::default(),
            plan: None,
        };
        let (root, router) = (self.root.verifying_key(), self.router.verifying_key());
        let base = mint_base(&base, &self.root).expect("the base key can be minted");
        let token = mint_task(&base, &task, &root, &self.router).expect("the task key can be minted");
        let verifier = Verifier { root, router, installation: self.installation, epoch: self.epoch };
        verifier.verify_task(&token).expect("keys that were just minted are good")
    }

    /// Both pure stages, without gates and with a fresh budget.
    pub fn decide(
        &self,
        prepared: Prepared,
        authority: &Authority,
        approval: Option<&Result<Approval, ApprovalError>>,
    ) -> Decided {
        let (revoked, budget) = (BTreeSet::new(), BudgetFacts::default());
        let facts = Facts {
            lost: false,
            authority,
            revoked: &revoked,
            rules: shipped_rules(),
            budget: &budget,
            egress: &EgressScope::default(),
            origins: &Origins::default(),
            strict: false,
            plan: Planned::default(),
            approval,
            used: None,
        };
        match precheck(prepared, &facts, NOW) {
            Ok(checked) => decide(checked, &Verdicts::default(), &facts, NOW),
            Err(denial) => Decided::Deny(denial),
        }
    }

    /// A signed answer to an ask by the enrolled approver key, with what it must be for. Each has an ask id
    /// and a nonce of its own.
    ///
    /// # Panics
    ///
    /// If the action cannot be shown completely.
    pub fn answer(&self, ask: &Ask, decision: Decision) -> (ApprovalToken, Expected) {
        let number = self.next();
        let shown = ShownText::new(&ask.prepared, "").expect("short enough to be shown").hash();
        let expires_at = Timestamp::from_millis(NOW.as_millis() + DAY_MS);
        let expected = Expected {
            installation: self.installation,
            epoch: self.epoch,
            ask: AskId::from_random(number),
            prepared: ask.hash,
            shown,
            risk: ask.risk,
            expires_at,
            task: None,
            standing: Vec::new(),
            values: false,
            host: None,
            approvers: 1,
        };
        let claims = ApprovalClaims {
            installation: self.installation,
            epoch: self.epoch,
            ask: expected.ask.clone(),
            decision,
            prepared: ask.hash,
            shown,
            nonce: format!("{number:032x}"),
            issued_at: NOW,
            expires_at,
            approver: Approver::Key { public: hex::encode(self.approver.verifying_key().as_bytes()) },
            task: None,
            values: false,
            host: None,
        };
        (ApprovalToken::sign_claims(claims, &self.approver).expect("claims have a canonical form"), expected)
    }

    /// Returns the approvers with signatures that count here.
    pub fn approvers(&self) -> Approvers {
        let public = self.approver.verifying_key();
        Approvers {
            keys: BTreeMap::from([(hex::encode(public.as_bytes()), public)]),
            passkeys: BTreeMap::new(),
            harness: self.harness.verifying_key(),
        }
    }

    /// A grant for an action, approved by the enrolled key where the shipped rules ask. Redeem it in a journal.
    ///
    /// # Panics
    ///
    /// If the door refuses the action, or no key can approve it (what cannot be undone).
    pub fn grant_action(&self, prepared: Prepared) -> Grant {
        let authority = self.authority(&prepared);
        let ask = match self.decide(prepared, &authority, None) {
            Decided::Grant(grant) => return *grant,
            Decided::Ask(ask) => *ask,
            Decided::Deny(denial) => panic!("the door refuses it: {denial:?}"),
        };
        let (token, expected) = self.answer(&ask, Decision::Approve);
        let approval = verify_approval(&token, &expected, &self.approvers(), NOW);
        match self.decide(ask.prepared, &authority, Some(&approval)) {
            Decided::Grant(grant) => *grant,
            other @ (Decided::Ask(_) | Decided::Deny(_)) => panic!("the door refuses it approved: {other:?}"),
        }
    }

    /// A permit for an action, written into [`Fixture::journal`].
    ///
    /// # Panics
    ///
    /// As [`Fixture::grant_action`].
    pub async fn permit(&self, prepared: Prepared) -> Permit {
        let grant = self.grant_action(prepared);
        grant
            .redeem(&self.journal, self.next_attempt(), NOW)
            .await
            .expect("the journal in memory can be written")
    }

    /// An attempt that no other permit of this fixture has.
    pub fn next_attempt(&self) -> AttemptId {
        AttemptId::from_parts(NOW, u128::from(self.next()))
    }

    fn next(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }
}

/// A journal in memory: takes each approval once, like the store.
#[derive(Debug, Default)]
pub struct MemoryJournal {
    redeemed: Mutex<Vec<Redemption>>,
}

impl MemoryJournal {
    /// Everything that was written, in order.
    pub fn redeemed_permits(&self) -> Vec<Redemption> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Redemption>> {
        self.redeemed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal for MemoryJournal {
    async fn redeem(&self, redemption: Redemption) -> Result<EntrySeq, RedeemError> {
        let mut redeemed = self.lock();
        let used = redemption.approval.as_ref();
        if let Some(approval) =
            used.filter(|_| redeemed.iter().any(|earlier| earlier.approval.as_ref() == used))
        {
            return Err(RedeemError::ApprovalSpent(approval.ask.clone()));
        }
        redeemed.push(redemption);
        Ok(EntrySeq(u64::try_from(redeemed.len()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use writ_types::action::{ChangeKind, Exec, ExecProfile, FileChange, Place, SendFile, WriteFile};
    use writ_types::digest::Digest;
    use writ_types::entry::{DenyReason, Fact};

    use super::*;

    fn exec() -> Action {
        Action::Exec(Exec {
            argv: vec!["true".into()],
            cwd: "/work".into(),
            env: BTreeMap::new(),
            stdin: None,
            timeout_ms: 1_000,
            profile: ExecProfile::Task,
            hosts: Vec::new(),
        })
    }

    fn write() -> Action {
        let change = FileChange {
            path: "a".into(),
            kind: ChangeKind::Delete,
            before: Some(Digest::of_bytes(b"a")),
            after: None,
            executable: false,
            bytes: 0,
        };
        let (place, root) = (Place::Project, "/home/me/p".into());
        Action::WriteFile(WriteFile {
            place,
            root,
            changes: vec![change],
            content: None,
            encoding: Default::default(),
        })
    }

    #[tokio::test]
    async fn a_permit_is_for_what_was_prepared_and_is_written_down() {
        let fixture = Fixture::default();
        let (first, second) =
            (fixture.permit(prepare_action(exec())).await, fixture.permit(prepare_action(write())).await);
        assert_ne!(first.attempt(), second.attempt());
        assert_eq!((first.action(), second.action()), (&exec(), &write()));
        assert_eq!(second.open(NOW).map(|opened| opened.prepared), Ok(prepare_action(write())));
        let written = fixture.journal.redeemed_permits();
        assert_eq!(written.iter().map(|one| one.approval.is_some()).collect::<Vec<_>>(), [false, true]);
        assert!(written.iter().all(|one| matches!(one.intent.fact, Fact::Intent { .. })));
    }

    #[tokio::test]
    async fn one_approval_is_redeemed_once() {
        let fixture = Fixture::default();
        let authority = fixture.authority(&prepare_action(write()));
        let Decided::Ask(ask) = fixture.decide(prepare_action(write()), &authority, None) else {
            panic!("a write to the project is asked")
        };
        let (token, expected) = fixture.answer(&ask, Decision::Approve);
        let approval = verify_approval(&token, &expected, &fixture.approvers(), NOW);
        for first in [true, false] {
            let decided = fixture.decide(prepare_action(write()), &authority, Some(&approval));
            let Decided::Grant(grant) = decided else { panic!("approved") };
            let redeemed = grant.redeem(&fixture.journal, fixture.next_attempt(), NOW).await;
            assert_eq!(redeemed.is_ok(), first);
        }
    }

    #[test]
    fn what_no_key_can_approve_is_refused() {
        let send = Action::SendFile(SendFile {
            to: "ann".parse().expect("a name"),
            path: "a".into(),
            digest: Digest::of_bytes(b"a"),
        });
        let fixture = Fixture::default();
        let authority = fixture.authority(&prepare_action(send.clone()));
        let Decided::Ask(ask) = fixture.decide(prepare_action(send), &authority, None) else {
            panic!("asked")
        };
        let (token, expected) = fixture.answer(&ask, Decision::Approve);
        let refused = verify_approval(&token, &expected, &fixture.approvers(), NOW);
        assert_eq!(refused, Err(ApprovalError::TooRisky(ask.risk)));
    }

    #[test]
    fn a_denial_names_its_reason() {
        let Action::Exec(exec) = exec() else { panic!("an exec") };
        let nothing = Action::Exec(Exec { argv: Vec::new(), ..exec });
        assert_eq!(deny_action(prepare_action(nothing)).reason, DenyReason::Shape);
    }
}
