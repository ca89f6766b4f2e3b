//! Permits from the real door, under the shipped rules, with a journal in memory.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ed25519_dalek::SigningKey;
use writ_inspect::egress::EgressScope;
use writ_inspect::origin::Origins;
use writ_inspect::prepared::Prepared;
use writ_inspect::scope::Dimension;
use writ_policy::budget::BudgetFacts;
use writ_policy::door::{Decided, Facts, Verdicts, decide, precheck};
use writ_policy::keys::grants::Grants;
use writ_policy::keys::{Authority, BaseClaims, TASK_KEY_TTL, TaskClaims, Verifier, mint_base, mint_task};
use writ_policy::permit::{Journal, Permit, RedeemError, Redemption};
use writ_policy::plan::Planned;
use writ_policy::rules::{RuleSet, RuleSource};
use writ_types::action::{Action, ActionKind};
use writ_types::id::{AttemptId, EntrySeq, InstallationId, KeyId, SessionId};
use writ_types::taint::{Label, Taint};
use writ_types::unit::Timestamp;

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_793_000_000_000);

/// The journal's port in memory: counts entries.
struct Memory(AtomicU64);

impl Journal for Memory {
    async fn redeem(&self, _: Redemption) -> Result<EntrySeq, RedeemError> {
        Ok(EntrySeq(self.0.fetch_add(1, Ordering::SeqCst)))
    }
}

fn rules() -> &'static RuleSet {
    static RULES: OnceLock<RuleSet> = OnceLock::new();
    RULES.get_or_init(|| RuleSet::load_rules(&[RuleSource::shipped_rules()]).expect("the shipped rules load"))
}

fn authority(provider: &str) -> Authority {
    let (root, router) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
    let installation = InstallationId::from_parts(NOW, 1);
    let grants = Grants::default().allow_kind(ActionKind::ModelCall, [(Dimension::Provider, provider)]);
    let base = BaseClaims {
        key: KeyId::from_parts(NOW, 1),
        installation,
        epoch: 0,
        agent: "assistant".into(),
        policy: rules().digest(),
        expires_at: Timestamp::from_millis(NOW.as_millis() + 86_400_000),
        grants: grants.clone(),
    };
    let task = TaskClaims {
        key: KeyId::from_parts(NOW, 2),
        base: base.key,
        session: SessionId::from_parts(NOW, 1),
        not_before: NOW,
        expires_at: NOW.plus_duration(TASK_KEY_TTL),
        grants,
        case: None,
        under: Default::default(),
        plan: None,
    };
    let base = mint_base(&base, &root).expect("mints");
    let token = mint_task(&base, &task, &root.verifying_key(), &router).expect("mints");
    let verifier =
        Verifier { root: root.verifying_key(), router: router.verifying_key(), installation, epoch: 0 };
    verifier.verify_task(&token).expect("verifies")
}

/// Takes a model call through every stage of the door.
pub(crate) async fn permit(action: Action) -> Permit {
    let Action::ModelCall(call) = &action else { panic!("only model calls are tested here") };
    let authority = authority(&call.provider);
    let prepared = Prepared {
        action,
        agent: "assistant".into(),
        session: Some(SessionId::from_parts(NOW, 1)),
        turn: None,
        turn_number: 1,
        call: None,
        tool: "model".into(),
        sinks: Vec::new(),
        label: Label::new(Taint::Owner),
        bindings: std::collections::BTreeMap::new(),
        idempotent: false,
        intent: "ask the model".into(),
    };
    let (revoked, budget) = (BTreeSet::new(), BudgetFacts::default());
    let facts = Facts {
        authority: &authority,
        revoked: &revoked,
        rules: rules(),
        lost: false,
        budget: &budget,
        egress: &EgressScope::default(),
        origins: &Origins::default(),
        strict: false,
        plan: Planned::default(),
        approval: None,
        used: None,
    };
    let checked = precheck(prepared, &facts, NOW).expect("passes the first stage");
    let Decided::Grant(grant) = decide(checked, &Verdicts::default(), &facts, NOW) else {
        panic!("the shipped rules permit model calls")
    };
    let attempt = AttemptId::from_parts(NOW, 9);
    grant.redeem(&Memory(AtomicU64::new(0)), attempt, NOW).await.expect("the journal is in memory")
}
