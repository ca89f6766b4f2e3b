//! What the tests of this crate share: keys, one action of every kind with what the tables of the design say
//! of it, a world to decide in, and a journal in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use ed25519_dalek::SigningKey;
use writ_types::action::*;
use writ_types::digest::Digest;
use writ_types::entry::{Decision, Risk};
use writ_types::id::{AskId, InstallationId, KeyId, MemoryId, SessionId, TurnId};
use writ_types::taint::{Label, Taint};
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use crate::approval::{
    Approval, ApprovalClaims, ApprovalError, ApprovalToken, Approver, Approvers, Expected, verify,
};
use crate::budget::BudgetFacts;
use crate::door::{Ask, Decided, Denial, Facts, Grant, Verdicts, decide, precheck};
use crate::egress::EgressScope;
use crate::keys::grants::Grants;
use crate::keys::limits::{CASE, CUSTOMER, Used};
use crate::keys::{
    Authority, BaseClaims, Case, ROUTER, TASK_KEY_TTL, TaskClaims, Verifier, mint_base, mint_task,
};
use crate::origin::Origins;
use crate::plan::{InForce, Planned};
use crate::prepared::{Prepared, Sink};
use crate::rules::{Authorship, RuleSet, RuleSource};
use crate::scope::Dimension;

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_750_000_000_000);
pub(crate) const EPOCH: u64 = 3;
pub(crate) const AGENT: &str = "assistant";

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

pub(crate) fn session(n: u128) -> SessionId {
    SessionId::from_parts(NOW, n)
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

/// An action, and what the design's tables say of it, written by hand.
pub(crate) struct Sample {
    pub(crate) action: Action,
    pub(crate) touches: Vec<(Dimension, &'static str)>,
    /// Whether its effect leaves or outlasts the session.
    pub(crate) leaves: bool,
    /// Whether the shipped rules ask.
    pub(crate) asked: bool,
    pub(crate) risk: Risk,
    /// Whether its intent must be on disk before it is performed.
    pub(crate) synced: bool,
}

fn sample(
    action: Action,
    touches: &[(Dimension, &'static str)],
    [leaves, asked, synced]: [bool; 3],
    risk: Risk,
) -> Sample {
    Sample { action, touches: touches.to_vec(), leaves, asked, risk, synced }
}

pub(crate) fn exec() -> Exec {
    Exec {
        argv: vec!["cargo".into(), "test".into()],
        cwd: "/work".into(),
        env: BTreeMap::from([("LANG".into(), "C".into())]),
        stdin: None,
        timeout_ms: 60_000,
        profile: ExecProfile::Task,
        hosts: Vec::new(),
    }
}

pub(crate) fn fetch(url: &str) -> Fetch {
    Fetch {
        method: "GET".into(),
        url: url.into(),
        body: None,
        content_type: None,
        save_to: None,
        large: false,
    }
}

pub(crate) fn change(path: &str) -> FileChange {
    FileChange {
        path: path.into(),
        kind: ChangeKind::Create,
        before: None,
        after: Some(Digest::of(b"new")),
        executable: false,
        bytes: 3,
    }
}

pub(crate) fn project_write(paths: &[&str]) -> WriteFile {
    WriteFile {
        place: Place::Project,
        root: "/home/me/p".into(),
        changes: paths.iter().map(|path| change(path)).collect(),
        content: None,
        encoding: Default::default(),
    }
}

pub(crate) fn remember(trust: MemoryTrust, taint: Taint) -> Remember {
    Remember {
        text: "the dog is called Rex".into(),
        memory_kind: MemoryKind::Fact,
        trust,
        taint,
        secret: false,
        session: Some(session(1)),
    }
}

pub(crate) fn search() -> Search {
    Search {
        provider: "brave".into(),
        host: "api.search.example:443".into(),
        query: "rust".into(),
        max_results: 5,
    }
}

/// A step that means `action` as [`prepared`] has it.
pub(crate) fn step(action: Action, free: Free) -> PlanStep {
    let Prepared { action, tool, sinks, bindings, .. } = prepared(action);
    let sinks = sinks.into_iter().map(|sink| (sink.argument, sink.value)).collect();
    PlanStep { tool, action, sinks, bindings, times: 2, free, external: BTreeSet::new() }
}

pub(crate) fn plan() -> Plan {
    let steps = vec![
        step(Action::Exec(exec()), Free::Nothing),
        step(Action::Fetch(fetch("https://docs.rs/a")), Free::Nothing),
    ];
    Plan { title: "tidy up".into(), steps, minutes: 30, max_cost: None, branch: None }
}

pub(crate) fn model_call() -> ModelCall {
    ModelCall {
        provider: "local".into(),
        model: "m".into(),
        host: "127.0.0.1:11434".into(),
        request: Digest::of(b"request"),
        input_tokens: Tokens::new(100),
        max_output_tokens: Tokens::new(50),
        ceiling: Some(MicroUsd::new(10)),
        clearance: Default::default(),
        why: String::new(),
    }
}

/// The case that the task key of the tests is for.
pub(crate) fn case() -> Case {
    Case {
        task: "chat-session-abc123".into(),
        customer: "cust_tk_789xyz".into(),
        case: "case_tk_456def".into(),
        granted_by: ROUTER.into(),
    }
}

/// A refund in that case.
pub(crate) fn refund(amount: i64) -> Operate {
    let case = case();
    let parameters = [(CUSTOMER, case.customer), (CASE, case.case), ("amount", amount.to_string())];
    let parameters = parameters.map(|(name, value)| (name.to_owned(), value)).into();
    Operate { operation: "refund".into(), parameters }
}

/// A call of a foreign tool about which nobody has said anything.
pub(crate) fn call_tool() -> CallTool {
    CallTool {
        server: "crm".into(),
        tool: "look".into(),
        arguments: serde_json::json!({"id": 7}),
        host: None,
        effect: true,
        declared: false,
        sends: true,
        whom: Vec::new(),
        named: Vec::new(),
        takes: std::collections::BTreeMap::new(),
        risk: Risk::Medium,
    }
}

/// One action of every kind, in the order of [`ActionKind::ALL`].
#[rustfmt::skip]
pub(crate) fn samples() -> Vec<Sample> {
    use Dimension::{Host, Memory, Name, Path, Place as Where, Profile, Provider, Recipient};
    const FREE: [bool; 3] = [false, false, true];
    const READ: [bool; 3] = [false, false, false];
    const STORE: [bool; 3] = [true, true, false];
    const OUT: [bool; 3] = [true, true, true];
    const PLAN: [bool; 3] = [false, true, true];
    let digest = Digest::of(b"x");
    let name = || "n".to_owned();
    let (low, medium, high) = (Risk::Low, Risk::Medium, Risk::High);
    vec![
        sample(Action::Exec(exec()), &[(Profile, "task")], FREE, low),
        sample(Action::ReadFile(ReadFile { path: "src/.././a.txt".into(), mode: ReadMode::List }), &[(Path, "/work/a.txt")], READ, low),
        sample(Action::WriteFile(project_write(&["b.txt"])), &[(Where, "project"), (Path, "/home/me/p/b.txt")], OUT, medium),
        sample(Action::Fetch(fetch("https://Docs.RS:443/x?y")), &[(Host, "docs.rs")], OUT, medium),
        sample(Action::Browse(Browse { operation: "open".into(), url: "https://docs.rs/".into(), target: String::new() }), &[(Host, "docs.rs")], OUT, medium),
        sample(Action::Recall(Recall { query: "dog".into(), limit: 5 }), &[(Memory, "session")], READ, low),
        sample(Action::Remember(remember(MemoryTrust::Working, Taint::External)), &[(Memory, "session")], READ, low),
        sample(Action::Forget(Forget { memory: MemoryId::from_parts(NOW, 1) }), &[(Memory, "session")], STORE, medium),
        sample(Action::Say(Say { to: "owner".into(), text: "hi".into() }), &[(Recipient, "owner")], READ, low),
        sample(Action::SendFile(SendFile { to: "ann".into(), path: "a.txt".into(), digest }), &[(Recipient, "ann"), (Path, "/work/a.txt")], OUT, Risk::Irreversible),
        sample(Action::CallTool(call_tool()), &[(Name, "crm/look")], OUT, medium),
        sample(Action::CreateTool(CreateTool { name: name(), digest }), &[(Name, "n")], OUT, high),
        sample(Action::InstallSkill(InstallSkill { name: name(), origin: "o".into(), digest }), &[(Name, "n")], OUT, high),
        sample(Action::Docker(Docker { operation: "run".into(), image: name() }), &[(Name, "n")], OUT, high),
        sample(Action::Subscribe(Subscribe { target: name(), lines: None, turns: 5, stop: false }), &[(Path, "/work/n")], FREE, medium),
        sample(Action::Message(AgentMessage { to: "ann".into(), text: "t".into() }), &[(Recipient, "ann")], OUT, medium),
        sample(Action::Handoff(Handoff { to: "ann".into(), task: "t".into() }), &[(Recipient, "ann")], OUT, medium),
        sample(Action::Spawn(Spawn { agent: name(), task: "t".into(), budget: MicroUsd::new(1) }), &[(Name, "n")], OUT, medium),
        sample(Action::Escalate(Escalate { to: "person".into(), question: "q".into() }), &[(Recipient, "person")], OUT, medium),
        sample(Action::ModelCall(model_call()), &[(Provider, "local")], READ, low),
        sample(Action::Vcs(Vcs { operation: "push".into(), repository: "/home/me/p".into(), target: "main".into() }), &[(Path, "/home/me/p"), (Name, "main")], OUT, high),
        sample(Action::ModifySelf(ModifySelf { path: "AGENTS.md".into(), digest }), &[(Path, "/agent/AGENTS.md")], OUT, high),
        sample(Action::Operate(refund(100)), &[(Name, "refund")], OUT, high),
        sample(Action::Connect(Connect { host: "docs.rs".into(), port: 443 }), &[(Host, "docs.rs")], OUT, medium),
        sample(Action::Search(search()), &[(Host, "api.search.example")], [true, false, true], medium),
        sample(Action::Plan(plan()), &[], PLAN, medium),
    ]
}

/// An action as the model's first call of a session wished it, resting on the owner's words.
pub(crate) fn prepared(action: Action) -> Prepared {
    Prepared {
        action,
        agent: AGENT.into(),
        session: Some(session(1)),
        turn: Some(TurnId::from_parts(NOW, 1)),
        turn_number: 1,
        call: Some("call-1".into()),
        tool: "tool".into(),
        sinks: vec![Sink { argument: "path".into(), value: "a".into() }],
        label: Label::new(Taint::Owner),
        bindings: BTreeMap::from([("script".into(), Digest::of(b"script"))]),
        idempotent: false,
        intent: "do it".into(),
    }
}

pub(crate) fn tainted(action: Action, taint: Taint) -> Prepared {
    Prepared { label: Label::new(taint), ..prepared(action) }
}

/// Grants that cover all samples, each in exactly what it touches.
pub(crate) fn all_grants() -> Grants {
    samples().iter().fold(Grants::default(), |grants, sample| {
        grants.allow(sample.action.kind(), sample.touches.iter().copied())
    })
}

pub(crate) fn rules(text: &str) -> RuleSet {
    RuleSet::load(&[home_rules(text)]).expect("the test's rules are valid")
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

shared_rules!(shipped, RuleSet::load(&[RuleSource::shipped()]).expect("the shipped rules are valid"));
shared_rules!(permit_all, rules(PERMIT_ALL));
shared_rules!(forbid_all, rules(&format!("{PERMIT_ALL} @id(\"no\") forbid (principal, action, resource);")));
shared_rules!(
    ask_all,
    rules(&format!("{PERMIT_ALL} @id(\"ask\") @ask(\"Sure?\") forbid (principal, action, resource);"))
);

/// Everything that the door is told; a test changes what it is about.
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
    pub(crate) used: Option<Used>,
    pub(crate) plan: Option<InForce>,
    pub(crate) planned: bool,
    pub(crate) lost: bool,
    pub(crate) verdicts: Verdicts,
    pub(crate) now: Timestamp,
}

/// Why there is no grant.
#[derive(Debug)]
pub(crate) enum Stop {
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
            expires_at: NOW.plus(TASK_KEY_TTL),
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
        verifier().verify(&token).expect("verifies")
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
    pub(crate) fn decide(&self, prepared: Prepared) -> Result<Box<Grant>, Stop> {
        self.decide_under(prepared, &self.authority())
    }

    /// The same under keys that were verified before, which is the slow part.
    pub(crate) fn decide_under(&self, prepared: Prepared, authority: &Authority) -> Result<Box<Grant>, Stop> {
        let facts = self.facts(authority);
        let checked = precheck(prepared, &facts, self.now).map_err(Stop::Deny)?;
        match decide(checked, &self.verdicts, &facts, self.now) {
            Decided::Grant(grant) => Ok(grant),
            Decided::Ask(ask) => Err(Stop::Ask(ask)),
            Decided::Deny(denial) => Err(Stop::Deny(denial)),
        }
    }

    pub(crate) fn denial(&self, prepared: Prepared) -> Denial {
        match self.decide(prepared) {
            Err(Stop::Deny(denial)) => *denial,
            other => panic!("expected a denial, found {other:?}"),
        }
    }

    pub(crate) fn ask(&self, prepared: Prepared) -> Ask {
        match self.decide(prepared) {
            Err(Stop::Ask(ask)) => *ask,
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
pub(crate) use journal::MemoryJournal;

mod approvals;

mod journal;
