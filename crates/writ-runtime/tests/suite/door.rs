//! The door as a service of its own: asked with a store and keys alone, without an engine, a session or a hub.

use std::borrow::Cow;
use std::sync::Arc;

use ed25519_dalek::SigningKey;
use tempfile::TempDir;
use writ_inspect::egress::EgressScope;
use writ_inspect::origin::Origins;
use writ_inspect::prepared::Prepared;
use writ_inspect::redact::Redactor;
use writ_inspect::scope::{Dimension, WORK};
use writ_policy::budget::{BudgetConfig, Spent};
use writ_policy::door::Mode;
use writ_policy::keys::grants::Grants;
use writ_policy::keys::{
    Authority, BaseClaims, KeyToken, TASK_KEY_TTL, TaskClaims, Verifier, mint_base, mint_task,
};
use writ_policy::rules::{Authorship, RuleSet, RuleSource, Shadow};
use writ_runtime::clock::{Clock, Ids, SystemClock};
use writ_runtime::door::{Circumstances, Door, DoorConfig, Passage, RequestContext};
use writ_runtime::journal::Journal;
use writ_runtime::keys::{EngineKeys, Keys};
use writ_store::batch::{Batch, Op};
use writ_store::config::StoreConfig;
use writ_store::ledger::row::LedgerQuery;
use writ_store::store::Store;
use writ_types::action::{Action, ActionKind, ReadFile, ReadMode};
use writ_types::entry::{DenyReason, Fact};
use writ_types::id::InstallationId;
use writ_types::taint::{Label, Taint};

/// An installation without an engine: a store, keys and a door.
struct Installation {
    store: Store,
    door: Door,
    rules: Arc<RuleSet>,
    home_rules: Arc<RuleSet>,
    base: KeyToken,
    base_claims: BaseClaims,
    root: SigningKey,
    harness: SigningKey,
    _folder: TempDir,
}

impl Installation {
    async fn new() -> Self {
        let (root, harness) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let folder = tempfile::tempdir().expect("a folder");
        let signer = Arc::new(harness.clone());
        let store = Store::open(&StoreConfig::new(folder.path().join("writ.db")), signer).expect("opens");
        let rules =
            Arc::new(RuleSet::load_rules(&[RuleSource::shipped_rules()]).expect("the shipped rules load"));
        let now = SystemClock.now();
        let base_claims = BaseClaims {
            key: Ids.key(now),
            installation: InstallationId::from_parts(now, 1),
            epoch: 1,
            agent: "worker".to_owned(),
            policy: rules.digest(),
            expires_at: now.plus_duration(TASK_KEY_TTL),
            grants: grants(),
        };
        let base = mint_base(&base_claims, &root).expect("mints");
        let held = EngineKeys {
            harness: harness.clone(),
            base: base.clone(),
            base_claims: base_claims.clone(),
            root: root.verifying_key(),
        };
        let (clock, budget) = (Arc::new(SystemClock), BudgetConfig::default());
        let journal = Journal::new(store.clone(), clock, Redactor::default(), budget).await.expect("reads");
        let journal = Arc::new(journal);
        let keys = Keys::new(Arc::clone(&journal), held, base_claims.installation, base_claims.epoch);
        let door = Door::alone(journal, Arc::new(keys), DoorConfig::default());
        Self {
            store,
            door,
            home_rules: Arc::clone(&rules),
            rules,
            base,
            base_claims,
            root,
            harness,
            _folder: folder,
        }
    }

    /// A task key of the worker, verified.
    fn authority(&self) -> Authority {
        let now = SystemClock.now();
        let task = TaskClaims {
            key: Ids.key(now),
            base: self.base_claims.key,
            session: Ids.session(now),
            not_before: now,
            expires_at: now.plus_duration(TASK_KEY_TTL),
            grants: grants(),
            case: None,
            under: Default::default(),
            plan: None,
        };
        let (root, router) = (self.root.verifying_key(), self.harness.verifying_key());
        let token = mint_task(&self.base, &task, &root, &self.harness).expect("mints");
        let BaseClaims { installation, epoch, .. } = self.base_claims;
        Verifier { root, router, installation, epoch }.verify_task(&token).expect("was just minted")
    }

    async fn pass(&self, prepared: Prepared, authority: &Authority) -> Passage {
        let standing = RequestContext {
            authority,
            spent: Spent::default(),
            approval: None,
            task: true,
            mode: Mode::Execute,
            origins: None,
            request: None,
        };
        let circumstances = Circumstances {
            rules: Arc::clone(&self.rules),
            home_rules: Arc::clone(&self.home_rules),
            egress: EgressScope::default(),
            origins: Cow::Owned(Origins::default()),
            limits: BudgetConfig::default(),
            work: None,
        };
        self.door.pass(prepared, standing, &circumstances).await.expect("the ledger can be written")
    }

    fn facts(&self, event: &str) -> Vec<Fact> {
        let query = LedgerQuery { event: Some(event.to_owned()), limit: 10, ..LedgerQuery::default() };
        let rows = self.store.blocking().ledger_search(&query).expect("reads");
        rows.iter().map(|row| row.entry().expect("has its payload").fact).collect()
    }
}

fn grants() -> Grants {
    Grants::default().allow_kind(ActionKind::ReadFile, [(Dimension::Path, WORK)])
}

/// Reading a file in the task of a key.
fn reading(path: &str, authority: &Authority) -> Prepared {
    let mode = ReadMode::Text { first_line: 1, lines: 10 };
    Prepared {
        action: Action::ReadFile(ReadFile { path: path.to_owned(), mode }),
        agent: "worker".to_owned(),
        // The task that the key is bound to. No engine has a session of this id.
        session: Some(authority.task().session),
        turn: None,
        turn_number: 0,
        call: None,
        tool: "read".to_owned(),
        sinks: Vec::new(),
        label: Label::new(Taint::Owner),
        bindings: Default::default(),
        idempotent: true,
        intent: "read a file".to_owned(),
    }
}

/// What is granted gets a permit, and its intent is in the ledger before the permit is returned.
#[tokio::test]
async fn the_door_permits_with_a_store_and_keys_alone() {
    let here = Installation::new().await;
    let authority = here.authority();
    let passage = here.pass(reading("/work/a.txt", &authority), &authority).await;
    let Passage::Permit(permit) = passage else { panic!("{passage:?}") };
    let intents = here.facts("intent");
    assert!(
        matches!(&intents[..], [Fact::Intent { attempt, action: Action::ReadFile(_), .. }] if *attempt == permit.attempt()),
        "{intents:?}"
    );
}

/// What the key does not reach is refused, and the refusal is in the ledger.
#[tokio::test]
async fn the_door_refuses_with_a_store_and_keys_alone() {
    let here = Installation::new().await;
    let authority = here.authority();
    let passage = here.pass(reading("/etc/shadow", &authority), &authority).await;
    assert!(matches!(passage, Passage::Denied(_)), "{passage:?}");
    assert_eq!((here.facts("denied").len(), here.facts("intent").len()), (1, 0));
}

/// A key that was revoked counts from the next request on.
#[tokio::test]
async fn a_revoked_key_is_refused_with_the_next_request() {
    let here = Installation::new().await;
    let authority = here.authority();
    assert!(
        matches!(here.pass(reading("/work/a.txt", &authority), &authority).await, Passage::Permit(_)),
        "twin"
    );
    let id = authority.revocation_ids().last().cloned().expect("a key has an id");
    let revoked = Op::Revoke { id, at: SystemClock.now(), expires_at: None };
    here.store.commit(Batch::synced(vec![revoked])).await.expect("commits");
    let passage = here.pass(reading("/work/a.txt", &authority), &authority).await;
    let Passage::Denied(denial) = passage else { panic!("{passage:?}") };
    assert_eq!(denial.reason, DenyReason::Revoked);
}

/// Rules that are tried beside those of the home are compared with an action also where a project has rules of its own.
#[tokio::test]
async fn tried_rules_of_the_home_are_compared_in_every_project() {
    let mut here = Installation::new().await;
    let tried = r#"@id("tried") forbid (principal, action == Action::"read_file", resource);"#;
    let tried =
        RuleSource { origin: "tried.cedar".to_owned(), authorship: Authorship::Home, text: tried.to_owned() };
    let in_force = [RuleSource::shipped_rules()];
    let shadow = Shadow::load_shadow("tried".to_owned(), &in_force, tried).expect("the tried rules stand");
    let home = RuleSet::load_rules(&in_force).expect("the shipped rules load").with_shadows(vec![shadow]);
    // `rules` stay as they are: those of a project, beside which nothing is tried.
    here.home_rules = Arc::new(home);
    let authority = here.authority();
    let passage = here.pass(reading("/work/a.txt", &authority), &authority).await;
    assert!(matches!(passage, Passage::Permit(_)), "what is tried decides nothing: {passage:?}");
    let noted = here.facts("shadowed");
    assert!(matches!(&noted[..], [Fact::Shadowed { set, .. }] if set == "tried"), "{noted:?}");
}
