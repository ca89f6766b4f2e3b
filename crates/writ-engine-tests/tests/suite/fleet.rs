//! A fleet as people watch it: the case router behind an engine's methods and measures, with agents that are ends of pipes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{DuplexStream, duplex};
use tokio_util::sync::CancellationToken;
use writ_fleet::anomalies::{FleetEvent, Measure};
use writ_fleet::cases::config::{CasesConfig, FleetAgent};
use writ_fleet::cases::desk::CaseDesk;
use writ_fleet::cases::front_end::TokenFile;
use writ_fleet::cases::ports::{
    AgentHost, AgentProcess, CaseTokenSource, GuestNames, PortFault, StartOrder, StartedAgent, TokenPair,
};
use writ_fleet::cases::router::{CaseRouter, NewCase};
use writ_fleet::cases::server::CasePlaces;
use writ_fleet::cases::service::{CaseParts, CaseService};
use writ_policy::keys::document::read_base;
use writ_policy::keys::{BaseClaims, KeyToken, mint_base};
use writ_runtime::metrics::MetricsFormat;
use writ_testkit::model_server::Reply;
use writ_types::digest::Digest;
use writ_types::id::{KeyId, SessionId};

use crate::harness::{BEGIN, TestEngine, keys};

const FAR: &str = "2030-01-01T00:00:00Z";

/// Tokens that are other texts than the names.
#[derive(Debug)]
struct Tokens;

impl CaseTokenSource for Tokens {
    fn open_tokens<'a>(&'a self, names: &'a GuestNames) -> BoxFuture<'a, Result<TokenPair, PortFault>> {
        let token = |name: &str| Digest::of_bytes(name.as_bytes()).to_string()[..16].to_owned();
        let pair = TokenPair {
            customer_token: format!("cust_tk_{}", token(&names.customer)),
            case_token: format!("case_tk_{}", token(&names.case)),
            fingerprint: String::new(),
        };
        async move { Ok(pair) }.boxed()
    }

    fn mask_text<'a>(&'a self, _: &'a str, text: &'a str) -> BoxFuture<'a, Result<String, PortFault>> {
        async move { Ok(text.to_owned()) }.boxed()
    }

    fn restore_text<'a>(&'a self, _: &'a str, text: &'a str) -> BoxFuture<'a, Result<String, PortFault>> {
        async move { Ok(text.to_owned()) }.boxed()
    }

    fn close_tokens<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), PortFault>> {
        async { Ok(()) }.boxed()
    }

    fn revoke_keys(&self, _: &[KeyId]) {}
}

/// Starts agents that read and say nothing.
#[derive(Debug, Default)]
struct Pipes(Mutex<Vec<[DuplexStream; 2]>>);

#[derive(Debug)]
struct Nothing;

impl AgentProcess for Nothing {
    fn replace_key(&mut self, _: &KeyToken) -> Result<(), PortFault> {
        Ok(())
    }
}

impl AgentHost for Pipes {
    fn start_agent(&self, _: StartOrder) -> BoxFuture<'_, Result<StartedAgent, PortFault>> {
        let ([input, theirs], [output, others]) = (duplex(1 << 16).into(), duplex(1 << 16).into());
        self.0.lock().expect("no panic").push([theirs, others]);
        let started =
            StartedAgent { input: Box::new(input), output: Box::new(output), process: Box::new(Nothing) };
        async move { Ok(started) }.boxed()
    }
}

/// An engine with a router of two agents, which hold one case each.
struct Watched {
    handed: TestEngine,
    router: CaseRouter,
    cases: [SessionId; 2],
}

fn agent(handed: &TestEngine, name: &str, n: u128) -> FleetAgent {
    let [root, ..] = keys();
    let document = json!({
        "agent": name, "capabilities": { "refund": { "max_amount": 500 }, "escalate_to": ["human"] }, "expires": FAR,
    });
    let document = read_base(document).expect("a document");
    let claims = BaseClaims {
        key: KeyId::from_parts(BEGIN, n),
        installation: handed.store.installation(),
        epoch: handed.store.blocking().epoch().expect("reads"),
        agent: name.into(),
        policy: Digest::of_bytes(b"policies"),
        expires_at: document.expires,
        grants: document.grants,
    };
    FleetAgent {
        name: name.into(),
        roles: vec![format!("{name}-role")],
        base: mint_base(&claims, &root).expect("mints"),
        command: vec!["agent".into()],
        max_cases: 1,
        version: None,
        folder: None,
        limits: Default::default(),
    }
}

/// Without an open case, an engine that a command has started ends as any other; with one it stays for the guest.
#[test]
fn an_engine_ends_idle_while_no_case_is_open() {
    let handed = TestEngine::new("", |_| |_: &_| Reply::text(""));
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let engine = handed.engine.clone();
    let is_idle =
        async |limit| tokio::time::timeout(limit, engine.idle(Duration::from_millis(10))).await.is_ok();
    handed.runtime.block_on(async {
        let (config, host) = (CasesConfig::default(), Arc::new(Pipes::default()));
        let router = CaseRouter::start(engine.case_keys(), config.clone(), Arc::new(Tokens), host.clone());
        let case = open(&router.await.expect("starts"), "order 1").await;
        let places = CasePlaces { socket: path("cases.sock"), listen: None, token: TokenFile(path("token")) };
        let parts = CaseParts { config, agents: path("agents"), proxy: path("proxy"), host, places };
        let service = CaseService::start(&engine, parts).await.expect("starts");
        let stop = CancellationToken::new();
        let serving = tokio::spawn(service.serve_cases(engine.clone(), stop.clone()));
        assert!(!is_idle(Duration::from_millis(1_500)).await, "the guest may write");
        handed.call("fleet.close", json!({ "case": case, "reason": "done" })).await.expect("closes");
        assert!(is_idle(Duration::from_secs(60)).await, "it has ended");
        stop.cancel();
        serving.await.expect("ends");
    });
    handed.end();
}

impl Watched {
    fn new() -> Self {
        let handed = TestEngine::new("", |_| |_: &_| Reply::text(""));
        let agents = vec![agent(&handed, "first-agent", 21), agent(&handed, "second-agent", 22)];
        let rules = vec!["refused > 5 in 1 min then revoke".parse().expect("a rule")];
        let config = CasesConfig { agents, rules, ..CasesConfig::default() };
        let (router, cases) = handed.runtime.block_on(async {
            let keys = handed.engine.case_keys();
            let router = CaseRouter::start(keys, config, Arc::new(Tokens), Arc::new(Pipes::default()));
            let router = router.await.expect("starts");
            let one = open(&router, "order 1").await;
            let two = open(&router, "order 2").await;
            (router, [one, two])
        });
        handed.engine.open_fleet(Arc::new(CaseDesk(router.clone())));
        Self { handed, router, cases }
    }

    fn call(&self, method: &str, params: Value) -> Value {
        self.handed.runtime.block_on(self.handed.call(method, params)).expect(method)
    }

    fn refused(&self, method: &str, params: Value) -> String {
        self.handed.runtime.block_on(self.handed.call(method, params)).expect_err(method).code
    }

    fn status(&self) -> Value {
        self.call("fleet.status", json!({}))
    }

    /// What the proxy or the model router says about an agent of a case, so often.
    fn happens(&self, case: SessionId, agent: &str, measure: Measure, (times, amount): (usize, u64)) {
        let status = self.status();
        let case_token = find(&status, case)["case_token"].as_str().expect("a token").to_owned();
        for _ in 0..times {
            let event = FleetEvent {
                at: self.handed.clock.now(),
                agent: agent.into(),
                case: case_token.clone(),
                customer: String::new(),
                measure,
                amount,
            };
            self.handed.runtime.block_on(self.router.observe_event(&event)).expect("taken in");
        }
    }

    /// One series of the measures.
    fn measured(&self, series: &str) -> Option<f64> {
        let text = self.handed.runtime.block_on(self.handed.engine.metrics(MetricsFormat::Prometheus));
        let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == series))?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

async fn open(router: &CaseRouter, case: &str) -> SessionId {
    let names = GuestNames {
        customer: format!("guest of {case}"),
        case: case.into(),
        tenant: None,
        known: BTreeMap::new(),
    };
    let wanted = NewCase { names, capability: "refund".into(), message: format!("about {case}") };
    router.open_case(wanted).await.expect("opened")
}

fn find(status: &Value, case: SessionId) -> &Value {
    let cases = status["cases"].as_array().expect("cases");
    cases.iter().find(|one| one["case"] == case.to_string()).unwrap_or(&Value::Null)
}

/// Rows: SLO-059
#[test]
fn two_agents_are_watched_with_their_tasks_rates_tokens_and_refusals() {
    let fleet = Watched::new();
    let [one, two] = fleet.cases;
    fleet.happens(one, "first-agent", Measure::Requests, (7, 1));
    fleet.happens(one, "first-agent", Measure::Refused, (2, 1));
    fleet.happens(two, "second-agent", Measure::Requests, (3, 1));
    fleet.happens(two, "second-agent", Measure::Tokens, (2, 620));
    let status = fleet.status();
    let agents = status["agents"].as_array().expect("agents");
    let seen = |agent: &Value| {
        ["name", "cases", "max_cases", "requests_per_minute", "refused", "tokens"]
            .map(|field| agent[field].clone())
    };
    let expected = [json!(["first-agent", 1, 1, 7, 2, 0]), json!(["second-agent", 1, 1, 3, 0, 1_240])];
    assert_eq!(agents.iter().map(|agent| json!(seen(agent))).collect::<Vec<_>>(), expected, "{status}");
    let task = find(&status, one);
    assert_eq!((&task["holder"], &task["requests_per_minute"]), (&json!("first-agent"), &json!(7)));
    assert_eq!(task["since"], json!(BEGIN), "{task}");
    // A rate is of the last minute, a sum of the whole case.
    fleet.handed.clock.go_on(Duration::from_secs(61));
    let agent = fleet.status()["agents"][0].clone();
    assert_eq!((&agent["requests_per_minute"], &agent["refused"]), (&json!(0), &json!(2)));
    assert_eq!(fleet.measured("writ_fleet_requests_total{agent=\"first-agent\"}"), Some(7.0));
    assert_eq!(fleet.measured("writ_fleet_refusals_total{agent=\"first-agent\"}"), Some(2.0));
    assert_eq!(fleet.measured("writ_fleet_tokens_total{agent=\"second-agent\"}"), Some(1_240.0));
    assert_eq!(fleet.measured("writ_fleet_open_cases{state=\"held\"}"), Some(2.0));
    assert_eq!(fleet.measured("writ_fleet_agents"), Some(2.0));
    // What has ended is gone, and what was counted stays counted.
    fleet.call("fleet.close", json!({ "case": two, "reason": "done" }));
    let status = fleet.status();
    assert_eq!((find(&status, two), &status["agents"][1]["cases"]), (&Value::Null, &json!(0)), "{status}");
    assert_eq!(fleet.measured("writ_fleet_open_cases{state=\"held\"}"), Some(1.0));
    assert_eq!(fleet.measured("writ_fleet_tokens_total{agent=\"second-agent\"}"), Some(1_240.0));
    fleet.handed.end();
}

/// Rows: SLO-060 SLO-046 (in part: normal traffic leaves the key alone)
#[test]
fn a_burst_of_refusals_is_an_anomaly_and_normal_traffic_is_none() {
    let fleet = Watched::new();
    let [one, two] = fleet.cases;
    fleet.happens(one, "first-agent", Measure::Requests, (50, 1));
    fleet.happens(one, "first-agent", Measure::Refused, (5, 1));
    assert_eq!(fleet.status()["anomalies"], json!([]));
    assert_eq!(
        fleet.measured("writ_fleet_anomalies_total{agent=\"first-agent\",reaction=\"revoke\"}"),
        Some(0.0)
    );
    fleet.happens(one, "first-agent", Measure::Refused, (1, 1));
    let status = fleet.status();
    let seen = status["anomalies"].as_array().expect("a list");
    let [anomaly] = seen.as_slice() else { panic!("one: {status}") };
    let said = ["agent", "rule", "reaction", "evidence"].map(|field| anomaly[field].clone());
    assert_eq!(json!(said), json!(["first-agent", "refused > 5 in 60 s then revoke", "revoke", "6 refused"]));
    // The other agent is busy with its own case: a person gets this one.
    assert_eq!(find(&status, one)["state"], "queued", "{status}");
    assert_eq!(find(&status, two)["holder"], "second-agent", "{status}");
    assert_eq!(
        fleet.measured("writ_fleet_anomalies_total{agent=\"first-agent\",reaction=\"revoke\"}"),
        Some(1.0)
    );
    assert_eq!(fleet.measured("writ_fleet_open_cases{state=\"queued\"}"), Some(1.0));
    fleet.handed.end();
}

/// Rows: SLO-048 (in part: a person) SLO-053 (in part: the page's and the terminal's methods)
#[test]
fn a_person_answers_takes_hands_back_and_closes_through_the_engine() {
    let fleet = Watched::new();
    let case = fleet.cases[0];
    let named = || json!({ "case": case });
    assert_eq!(fleet.refused("fleet.answer", json!({ "case": case, "text": "no" })), "case.state");
    fleet.call("fleet.take", named());
    assert_eq!(find(&fleet.status(), case)["state"], "held by a person");
    fleet.call("fleet.answer", json!({ "case": case, "text": "A person reads this." }));
    let said = fleet.call("fleet.messages", json!({ "case": case, "after": 1 }));
    assert_eq!(said["messages"][0]["text"], "A person reads this.", "{said}");
    fleet.call("fleet.back", json!({ "case": case, "target": "first-agent-role", "note": "approved" }));
    let access = fleet.call("fleet.access", named());
    let holders = access["holders"].as_array().expect("holders");
    assert_eq!(holders.first().map(|one| &one["holder"]["name"]), Some(&json!("first-agent")), "{access}");
    assert!(holders.get(1).is_some_and(|one| one["holder"]["task"].is_null()), "{access}");
    assert_eq!(access["contradictions"], json!([]));
    fleet.call("fleet.close", json!({ "case": case, "reason": "done" }));
    assert_eq!(fleet.call("fleet.messages", named())["is_open"], false);
    assert_eq!(fleet.refused("fleet.take", named()), "case.unknown");
    fleet.handed.end();
}
