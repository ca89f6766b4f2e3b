//! Values for the tests of this crate and of the door: one action of every kind, with what it touches and its risk.
//!
//! The door's crate reads this file, too.

use std::collections::{BTreeMap, BTreeSet};

use writ_inspect::prepared::{Prepared, Sink};
use writ_inspect::scope::Dimension;
use writ_types::action::*;
use writ_types::digest::Digest;
use writ_types::entry::Risk;
use writ_types::id::{MemoryId, SessionId, TurnId};
use writ_types::taint::{Label, Taint};
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_750_000_000_000);
pub(crate) const AGENT: &str = "assistant";

pub(crate) fn session(n: u128) -> SessionId {
    SessionId::from_parts(NOW, n)
}

/// An action, what it touches and its risk, written by hand from the tables of the design.
pub(crate) struct ActionSample {
    pub(crate) action: Action,
    pub(crate) touches: Vec<(Dimension, &'static str)>,
    pub(crate) risk: Risk,
}

fn sample(action: Action, touches: &[(Dimension, &'static str)], risk: Risk) -> ActionSample {
    ActionSample { action, touches: touches.to_vec(), risk }
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
        after: Some(Digest::of_bytes(b"new")),
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
    PlanStep {
        tool,
        action,
        sinks,
        bindings,
        times: 2,
        free,
        external: BTreeSet::new(),
        slots: BTreeMap::new(),
    }
}

pub(crate) fn plan() -> Plan {
    let steps = vec![
        step(Action::Exec(exec()), Free::Nothing),
        step(Action::Fetch(fetch("https://docs.rs/a")), Free::Nothing),
    ];
    Plan { title: "tidy up".into(), steps, minutes: 30, max_cost: None, branch: None, work: None }
}

pub(crate) fn model_call() -> ModelCall {
    ModelCall {
        provider: "local".into(),
        model: "m".into(),
        host: "127.0.0.1:11434".into(),
        request: Digest::of_bytes(b"request"),
        input_tokens: Tokens::new(100),
        max_output_tokens: Tokens::new(50),
        ceiling: Some(MicroUsd::new(10)),
        clearance: Default::default(),
        why: String::new(),
    }
}

/// The customer and the case that the task key of the door's tests is for.
pub(crate) const CUSTOMER_ID: &str = "cust_tk_789xyz";
pub(crate) const CASE_ID: &str = "case_tk_456def";

/// A refund in that case.
pub(crate) fn refund(amount: i64) -> Operate {
    let amount = amount.to_string();
    let parameters = [("customer_token", CUSTOMER_ID), ("case_token", CASE_ID), ("amount", amount.as_str())];
    let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Operate { operation: "refund".into(), parameters }
}

/// A call of a foreign tool for which the owner has configured nothing.
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
        takes: BTreeMap::new(),
        risk: Risk::Medium,
    }
}

/// One action of every kind, in the order of [`ActionKind::ALL`].
#[rustfmt::skip]
pub(crate) fn action_samples() -> Vec<ActionSample> {
    use Dimension::{Host, Memory, Name, Path, Place as Where, Profile, Provider, Recipient};
    let digest = Digest::of_bytes(b"x");
    let name = || "n".to_owned();
    let (low, medium, high) = (Risk::Low, Risk::Medium, Risk::High);
    vec![
        sample(Action::Exec(exec()), &[(Profile, "task")], low),
        sample(Action::ReadFile(ReadFile { path: "src/.././a.txt".into(), mode: ReadMode::List }), &[(Path, "/work/a.txt")], low),
        sample(Action::WriteFile(project_write(&["b.txt"])), &[(Where, "project"), (Path, "/home/me/p/b.txt")], medium),
        sample(Action::Fetch(fetch("https://Docs.RS:443/x?y")), &[(Host, "docs.rs")], medium),
        sample(Action::Browse(Browse { operation: "open".into(), url: "https://docs.rs/".into(), target: String::new() }), &[(Host, "docs.rs")], medium),
        sample(Action::Recall(Recall { query: "dog".into(), limit: 5 }), &[(Memory, "session")], low),
        sample(Action::Remember(remember(MemoryTrust::Working, Taint::External)), &[(Memory, "session")], low),
        sample(Action::Forget(Forget { memory: MemoryId::from_parts(NOW, 1) }), &[(Memory, "session")], medium),
        sample(Action::Say(Say { to: writ_types::recipient::Recipient::Owner, text: "hi".into() }), &[(Recipient, "owner")], low),
        sample(Action::SendFile(SendFile { to: "ann".parse().expect("a name"), path: "a.txt".into(), digest }), &[(Recipient, "ann"), (Path, "/work/a.txt")], Risk::Irreversible),
        sample(Action::CallTool(call_tool()), &[(Name, "crm/look")], medium),
        sample(Action::CreateTool(CreateTool { name: name(), digest }), &[(Name, "n")], high),
        sample(Action::InstallSkill(InstallSkill { name: name(), origin: "o".into(), digest }), &[(Name, "n")], high),
        sample(Action::Docker(Docker { operation: "run".into(), image: name() }), &[(Name, "n")], high),
        sample(Action::Subscribe(Subscribe { target: name(), lines: None, turns: 5, stop: false }), &[(Path, "/work/n")], medium),
        sample(Action::Message(AgentMessage { to: "ann".into(), text: "t".into() }), &[(Recipient, "ann")], medium),
        sample(Action::Handoff(Handoff { to: "ann".into(), task: "t".into() }), &[(Recipient, "ann")], medium),
        sample(Action::Spawn(Spawn { agent: name(), task: "t".into(), budget: MicroUsd::new(1) }), &[(Name, "n")], medium),
        sample(Action::Escalate(Escalate { to: "person".into(), question: "q".into() }), &[(Recipient, "person")], medium),
        sample(Action::ModelCall(model_call()), &[(Provider, "local")], low),
        sample(Action::Vcs(Vcs { operation: "push".into(), repository: "/home/me/p".into(), target: "main".into(), request: None }), &[(Path, "/home/me/p"), (Name, "main")], high),
        sample(Action::ModifySelf(ModifySelf { path: "AGENTS.md".into(), digest, content: None }), &[(Path, "/agent/AGENTS.md")], high),
        sample(Action::Operate(refund(100)), &[(Name, "refund")], high),
        sample(Action::Connect(Connect { host: "docs.rs".into(), port: 443 }), &[(Host, "docs.rs")], medium),
        sample(Action::Search(search()), &[(Host, "api.search.example")], medium),
        sample(Action::Plan(plan()), &[], medium),
        sample(Action::ReadResult(ReadResult { result: 7, from: 1, chars: 100, find: "x".into() }), &[(Memory, "session")], low),
    ]
}

/// An action as the model's first call of a session requested it, resting on the owner's words.
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
        bindings: BTreeMap::from([("script".into(), Digest::of_bytes(b"script"))]),
        idempotent: false,
        intent: "do it".into(),
    }
}
