//! Cases from the front end to the shop, with everything real: `writ proxy`, `writ start` with its case router, deployed agents
//! that run locked in, and their keys.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Instant;

use ed25519_dalek::SigningKey;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use writ_policy::keys::{KeyToken, Verifier, mint_task};
use writ_store::store::Store;

use super::engine::{Engine, Link, PATIENCE, stop_engine_of};
use super::proxy::{RunningProxy, Shop, send};
use super::{Home, code, text};

const AGENT: &str = include_str!("case_agent.py");

/// A home with a shop, two deployed agents, and everything that runs.
struct Desk {
    shop: Shop,
    token: String,
    /// The last guest's order; each case has a name of its own.
    opened: usize,
}

fn deploy_agent(home: &Home, name: &str, roles: &str, most: u64) {
    let folder = home.dir.path().join("sources").join(name);
    fs::create_dir_all(&folder).expect("a folder");
    let manifest = format!(
        "name = \"{name}\"\nversion = \"1\"\nprogram = [\"python3\", \"agent.py\", \"{name}\"]\nroles = [{roles}]\nmax_cases = 4\n\
         [capabilities]\nrefund = {{ max_amount = {most} }}\nescalate_to = [\"manager\", \"human\"]\n"
    );
    fs::write(folder.join("agent.toml"), manifest).expect("written");
    fs::write(folder.join("agent.py"), AGENT).expect("written");
    let folder = folder.to_str().expect("UTF-8");
    for args in [&["agent", "bless", folder, "--yes"][..], &["agent", "deploy", folder]] {
        let done = home.run(args);
        assert_eq!(code(&done), 0, "{args:?}: {}", text(&done));
    }
}

impl Desk {
    fn new(rules: &str) -> Self {
        let shop = Shop::new();
        let home = &shop.home;
        deploy_agent(home, "refund-agent", "", 500);
        deploy_agent(home, "senior", "\"manager\"", 5_000);
        // The commands have started one, without the router.
        stop_engine_of(home);
        let mut config = fs::read_to_string(home.root().join("config.toml")).expect("is there");
        config.push_str(&format!("\n[fleet]\ncases = true\nrules = [{rules}]\n"));
        fs::write(home.root().join("config.toml"), config).expect("written");
        let token = home.json(&["fleet", "token"])["token"].as_str().expect("a token").to_owned();
        assert_eq!(code(&home.run(&["fleet", "token"])), 2, "one is given out");
        Self { shop, token, opened: 0 }
    }

    fn home(&self) -> &Home {
        &self.shop.home
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let bearer = format!("Bearer {}", self.token);
        let socket = self.home().root().join("runtime/cases.sock");
        send(socket, method, path, &[("authorization", &bearer)], body)
    }

    fn open(&mut self, customer: &str, message: &str) -> String {
        self.opened += 1;
        let case = format!("case {}", self.opened);
        let body = json!({ "customer": customer, "case": case, "capability": "refund", "message": message });
        let (status, opened) = self.ask("POST", "/cases", &body);
        assert_eq!(status, 201, "{opened}");
        opened["id"].as_str().expect("an id").to_owned()
    }

    fn say(&self, case: &str, message: &str) {
        let (status, said) =
            self.ask("POST", &format!("/cases/{case}/messages"), &json!({ "text": message }));
        assert_eq!(status, 202, "{said}");
    }

    /// Waits for a message with this text.
    fn until_said(&self, case: &str, text: &str) {
        let seen = || self.ask("GET", &format!("/cases/{case}/messages"), &Value::Null).1;
        let is_said = || {
            let seen = seen();
            let mut messages = seen["messages"].as_array().into_iter().flatten();
            messages.any(|one| one["text"].as_str().is_some_and(|said| said.contains(text)))
        };
        wait_for(is_said, || format!("no '{text}' in {}", seen()));
    }

    fn fleet(&self) -> Value {
        self.call("fleet.status", json!({}))
    }

    fn call(&self, method: &str, params: Value) -> Value {
        let mut client = Link::open(self.home()).expect("connects");
        client.call(method, params).unwrap_or_else(|| panic!("{method} is refused"))
    }

    /// Waits until a case has a state.
    fn until_state(&self, case: &str, state: &str) {
        wait_for(
            || {
                let fleet = self.fleet();
                let mut cases = fleet["cases"].as_array().into_iter().flatten();
                cases.any(|one| one["case"] == case && one["state"] == state)
            },
            || format!("{case} is not {state}: {}", self.fleet()),
        );
    }

    /// The key files of the agents that run: base key and task key of each.
    fn keys(&self) -> Vec<(String, String)> {
        let folder = self.home().root().join("runtime/agents");
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder).expect("reads").map(|entry| entry.expect("an entry").path()).collect();
        files.sort();
        let ending = |end: &str| {
            let found = files.iter().filter(|path| path.to_string_lossy().ends_with(end));
            found.map(|path| fs::read_to_string(path).expect("reads")).collect::<Vec<_>>()
        };
        ending("-base.jwt").into_iter().zip(ending("-task.jwt")).collect()
    }

    /// Asks for a refund as one who has found both keys.
    fn refund_with(&self, (base, task): &(String, String), amount: u64) -> (u16, Value) {
        let headers = [("writ-base-key", base.trim()), ("writ-task-key", task.trim())];
        let body = json!({ "order": "A-1", "amount": amount });
        send(self.shop.proxy("agents.sock"), "POST", "/v1/operations/refund", &headers, &body)
    }

    fn refunded(&self) -> i64 {
        let sql = "SELECT refunded FROM orders WHERE id = 'A-1'";
        self.shop.database().query_row(sql, [], |row| row.get(0)).expect("is there")
    }

    /// The task keys that were made for cases, by the ledger.
    fn minted(&self) -> usize {
        let export = self.home().run(&["audit", "export"]);
        assert_eq!(code(&export), 0, "{}", text(&export));
        let export = String::from_utf8(export.stdout).expect("UTF-8");
        let entries = export.lines().map(|line| serde_json::from_str::<Value>(line).expect("a row"));
        entries.filter(|entry| entry["event"] == "keyed" && entry["payload"]["change"] == "minted").count()
    }

    /// The ways out that agents have tried, as the ledger has them: the number of attempts at what their network does not have,
    /// and the names of others that they asked for.
    fn ways_out(&self) -> (u64, Vec<String>) {
        let store = Store::open_read_only(&self.home().database(), [0; 32]).expect("opens");
        let mut export = Vec::new();
        store.blocking().export_entries(&mut export).expect("exported");
        let export = String::from_utf8(export).expect("UTF-8");
        let entries = export.lines().map(|line| serde_json::from_str::<Value>(line).expect("a row"));
        let (mut attempts, mut names) = (0, Vec::new());
        for entry in entries.filter(|entry| entry["payload"]["rule"] == "way_out") {
            let by = &entry["payload"]["requester"];
            assert!(
                by["agent"] == "refund-agent" && by["base"].is_string() && by["task"].is_string(),
                "{entry}"
            );
            let (_, tried) =
                entry["payload"]["text"].as_str().and_then(|text| text.split_once(": ")).expect("a text");
            let (counts, named) = tried.split_once("; names: ").unwrap_or((tried, ""));
            let counts = counts
                .split(", ")
                .filter_map(|count| count.strip_suffix(" at what its network does not have"));
            attempts += counts.map(|count| count.parse::<u64>().expect("a number")).sum::<u64>();
            names.extend((!named.is_empty()).then(|| named.to_owned()));
        }
        (attempts, names)
    }

    /// The claims of a task key, signed again with the key that the proxy signs its ledger with.
    fn sign_as_proxy(&self, (base, task): &(String, String)) -> String {
        let token = |text: &str| KeyToken::try_from(text.trim().to_owned()).expect("a token");
        let signer = |path: PathBuf, name: &str| {
            let document: Value = serde_json::from_slice(&fs::read(path).expect("reads")).expect("JSON");
            let seed = hex::decode(document["keys"][name].as_str().expect("a key")).expect("hexadecimal");
            SigningKey::from_bytes(&seed.try_into().expect("32 bytes"))
        };
        let own = self.home().root().join("keys/secrets.json");
        let (root, router) =
            (signer(own.clone(), "root").verifying_key(), signer(own, "harness").verifying_key());
        let store = Store::open_read_only(&self.home().database(), [0; 32]).expect("opens");
        let (installation, epoch) = (store.installation(), store.blocking().epoch().expect("reads"));
        let verifier = Verifier { root, router, installation, epoch };
        let authority = verifier.verify_task(&token(task)).expect("the router's");
        let proxy = signer(self.shop.proxy("keys/secrets.json"), "harness");
        String::from(mint_task(&token(base), authority.task(), &root, &proxy).expect("signs"))
    }

    /// The holders of a case, from the ledger, and whether one had it at every moment.
    fn holders(&self, case: &str) -> Vec<String> {
        let access = self.home().json(&["fleet", "access", case]);
        assert_eq!(access["contradictions"], json!([]), "{access}");
        let holders = access["holders"].as_array().expect("a list").iter();
        holders.map(|one| one["holder"]["name"].as_str().expect("a name").to_owned()).collect()
    }
}

pub(super) fn wait_for(mut is_so: impl FnMut() -> bool, what: impl Fn() -> String) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{}", what());
        std::thread::yield_now();
    }
}

/// The processes that a process has started, by the kernel's lists.
fn children(pid: u32) -> BTreeSet<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    lists
        .flat_map(|list| {
            list.split_whitespace().map(|pid| pid.parse().expect("a number")).collect::<Vec<_>>()
        })
        .collect()
}

/// The launchers of agents that an engine has started.
pub(super) fn launchers(engine: &Engine) -> BTreeSet<u32> {
    let runs = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"run")
    };
    children(engine.pid()).into_iter().filter(runs).collect()
}

fn end_process(pid: u32) {
    kill(Pid::from_raw(i32::try_from(pid).expect("a process id")), Signal::SIGKILL).expect("it is there");
}

/// A case from its opening to its end: an agent performs, escalates and is killed, people take over, and a key that has ended
/// reaches nothing.
///
/// Rows: SLO-040 SLO-041 SLO-042 SLO-048 SLO-049 SLO-050 SLO-051 SLO-052 SLO-053 SLO-054
#[test]
fn needs_userns_a_case_goes_from_hand_to_hand_and_its_last_key_ends_with_it() {
    let mut desk = Desk::new("");
    let proxy = RunningProxy::start(desk.home());
    let mut engine = Engine::start(desk.home(), &[]).expect("starts");
    let stranger = send(desk.home().root().join("runtime/cases.sock"), "POST", "/cases", &[], &json!({}));
    assert_eq!(stranger.0, 401, "{}", stranger.1);
    let case = desk.open("101", "refund 500");
    desk.until_said(&case, "refund-agent refund 500: 200");
    assert_eq!(desk.refunded(), 500);
    desk.say(&case, "refund 501");
    desk.until_said(&case, "refund-agent refund 501: 403");
    let keys = desk.keys();
    let [first] = keys.as_slice() else { panic!("one agent runs: {}", keys.len()) };
    let first = first.clone();
    // Refused to agents that their base keys do not name, and given to those they do.
    desk.say(&case, "escalate nobody please");
    desk.until_said(&case, "refund-agent is refused");
    desk.say(&case, "escalate manager over the limit");
    desk.until_said(&case, "senior has");
    assert_eq!(desk.refund_with(&first, 1).0, 401, "its time is over");
    desk.say(&case, "refund 600");
    desk.until_said(&case, "senior refund 600: 200");
    assert_eq!(desk.refunded(), 1_100);
    // Its process dies: the case goes on without it.
    // The one before may not be quite over.
    wait_for(|| launchers(&engine).len() == 1, || format!("one runs: {:?}", launchers(&engine)));
    launchers(&engine).into_iter().for_each(end_process);
    desk.until_said(&case, "because crash");
    desk.say(&case, "escalate human wants a person");
    desk.until_state(&case, "queued");
    desk.call("fleet.take", json!({ "case": case }));
    desk.until_state(&case, "held by a person");
    desk.call("fleet.answer", json!({ "case": case, "text": "good evening" }));
    desk.until_said(&case, "good evening");
    desk.call("fleet.back", json!({ "case": case, "target": null, "note": "go on with it" }));
    desk.until_said(&case, "because by owner");
    // The router is killed: its agents end with it, and the next one takes the case up under a fresh key.
    let held = desk.keys();
    engine.signal(Signal::SIGKILL);
    engine.wait();
    let engine = Engine::start(desk.home(), &[]).expect("starts");
    desk.until_said(&case, "because restart");
    assert_eq!(desk.refund_with(&held[0], 1).0, 401);
    let last = desk.keys();
    assert_eq!(desk.refund_with(&last[0], 1).0, 200, "twin: the key in force");
    assert_eq!(desk.ask("POST", &format!("/cases/{case}/close"), &Value::Null).0, 200);
    let refused = desk.refund_with(&last[0], 1);
    assert_eq!(refused.0, 401, "{}", refused.1);
    assert_eq!(desk.refunded(), 1_101);
    wait_for(|| launchers(&engine).is_empty() && desk.keys().is_empty(), || "an agent is left".to_owned());
    let expected = ["refund-agent", "senior", "refund-agent", "owner", "refund-agent", "refund-agent"];
    assert_eq!(desk.holders(&case), expected);
    assert_eq!(engine.stop().code, Some(0));
    proxy.end(Signal::SIGTERM);
}

/// Words of a guest reach agents with tokens in place of personal data, and are stored so; the guest reads the words
/// themselves, and the agent's answer with the value in place of its token. No ledger has any of it in a reason.
#[test]
fn needs_userns_agents_read_tokens_in_what_a_guest_writes_and_the_guest_reads_words() {
    const MAIL: &str = "ozwin.ab@threlkeld.example";
    const CUSTOMER: &str = "KD-7431-07";
    let mut desk = Desk::new("");
    let proxy = RunningProxy::start(desk.home());
    let engine = Engine::start(desk.home(), &[]).expect("starts");
    let case = desk.open(CUSTOMER, &format!("spell {MAIL}"));
    desk.until_said(&case, "refund-agent spells: e-m-a-i-l-_-t-k-_");
    desk.say(&case, &format!("spell I am {CUSTOMER}"));
    desk.until_said(&case, "refund-agent spells: I- -a-m- -c-u-s-t-_-t-k-_");
    desk.say(&case, &format!("hello, {MAIL} again"));
    desk.until_said(&case, &format!("refund-agent says: hello, {MAIL} again"));
    desk.until_said(&case, &format!("spell I am {CUSTOMER}"));
    // The reason is an agent's own text, and goes to the ledger and to the next agent.
    desk.say(&case, &format!("escalate manager {MAIL} of {CUSTOMER} wants more"));
    desk.until_said(&case, "senior has");
    let recorded = text(&desk.home().run(&["audit", "export"]));
    assert!(recorded.contains("wants more") && recorded.contains("email_tk_"), "{recorded}");
    let name = desk.call("fleet.messages", json!({ "case": case }));
    assert!(name.to_string().contains(MAIL), "people read the words: {name}");
    // What the front end knows of its customer is found from the first message on.
    let mut body = json!({ "customer": CUSTOMER, "case": "known", "capability": "refund", "message": "spell I am Hesper Voss",
                           "known": { "nonsense": ["Hesper Voss"] } });
    assert_eq!(desk.ask("POST", "/cases", &body).0, 422);
    body["known"] = json!({ "name": ["Hesper Voss"] });
    let (status, opened) = desk.ask("POST", "/cases", &body);
    assert_eq!(status, 201, "{opened}");
    let named = opened["id"].as_str().expect("an id");
    desk.until_said(named, "refund-agent spells: I- -a-m- -n-a-m-e-_-t-k-_");
    desk.until_said(named, "spell I am Hesper Voss");
    // Without the proxy no word reaches an agent unsearched, and none is stored.
    proxy.end(Signal::SIGKILL);
    let (status, refused) =
        desk.ask("POST", &format!("/cases/{case}/messages"), &json!({ "text": "spell Ozwin" }));
    assert_eq!((status, &refused["code"]), (503, &json!("case.proxy")), "{refused}");
    assert_eq!(engine.stop().code, Some(0));
    let home = desk.home();
    let mut stored = fs::read(home.database()).expect("reads");
    stored.extend(fs::read(home.database().with_extension("db-wal")).unwrap_or_default());
    for word in [MAIL, CUSTOMER, "spell Ozwin", "Hesper", "Voss"] {
        assert!(!recorded.contains(word), "{word} in the ledger");
        assert!(!stored.windows(word.len()).any(|part| part == word.as_bytes()), "{word} in the database");
    }
}

/// Each assignment makes one key, and the router alone makes it: an agent finds no way to ask for one, and what the proxy signs
/// with the key that it has is none.
///
/// Rows: SLO-015
#[test]
fn needs_userns_the_router_alone_makes_keys_one_for_each_assignment() {
    let mut desk = Desk::new("");
    let proxy = RunningProxy::start(desk.home());
    let engine = Engine::start(desk.home(), &[]).expect("starts");
    let before = desk.minted();
    let case = desk.open("101", "refund 1");
    desk.until_said(&case, "refund-agent refund 1: 200");
    assert_eq!(desk.minted() - before, 1, "one case, one key");
    for path in ["/v1/cases", "/cases", "/v1/revocations", "/v1/keys", "/keys/mint"] {
        let address = format!("https://security-proxy.silo.internal{path}");
        desk.say(&case, &format!("ask {address}"));
        desk.until_said(&case, &format!("refund-agent asks {address}: 404"));
    }
    let control = desk.home().root().join("runtime/control.sock");
    let control = control.to_str().expect("text").to_owned();
    desk.say(&case, &format!("connect {control}"));
    desk.until_said(&case, &format!("refund-agent connects to {control}: PermissionError"));
    assert!(Link::open(desk.home()).is_some(), "twin: its owner does");
    let keys = desk.keys();
    let [own] = keys.as_slice() else { panic!("one agent runs: {}", keys.len()) };
    let forged = (own.0.clone(), desk.sign_as_proxy(own));
    let refused = desk.refund_with(&forged, 1);
    assert_eq!(refused.0, 401, "{}", refused.1);
    assert_eq!(desk.refund_with(own, 1).0, 200, "twin: the router's");
    assert_eq!(desk.minted() - before, 1, "nothing of all that made a key");
    desk.say(&case, "escalate manager over the limit");
    desk.until_said(&case, "senior has");
    assert_eq!(desk.minted() - before, 2, "the next holder has one of its own");
    assert_eq!(desk.refunded(), 2);
    assert_eq!(engine.stop().code, Some(0));
    proxy.end(Signal::SIGTERM);
}

/// Reaches a server, as a program that is no agent does.
#[expect(clippy::disallowed_types, reason = "the test is a client of a server of its own")]
fn reach_server(server: &TcpListener) {
    std::net::TcpStream::connect(server.local_addr().expect("an address")).expect("others reach it");
    server.accept().expect("it is reached");
}

/// Requests to a server, a database and servers of mail: each is refused, and is in the ledger before the next one. All of
/// them are there for a program that is no agent.
///
/// Rows: SLO-039
#[test]
fn needs_userns_each_way_past_the_proxies_is_refused_and_logged() {
    let mut desk = Desk::new("");
    let proxy = RunningProxy::start(desk.home());
    let engine = Engine::start(desk.home(), &[]).expect("starts");
    // An address of this machine that no other run of this test has.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, high.saturating_add(39), middle, low);
    // With points it would look like a number of a telephone, and agents would read a token.
    let host = format!("{:#x}", u32::from(address));
    let mut servers = Vec::new();
    for port in [0, 5_432, 25, 587] {
        match TcpListener::bind((address, port)) {
            Ok(server) => servers.push(server),
            // Ports of mail are root's alone on most machines.
            Err(error) => assert_eq!((error.kind(), port < 1_024), (ErrorKind::PermissionDenied, true)),
        }
    }
    let port_of = |server: &TcpListener| server.local_addr().expect("an address").port();
    for server in &servers {
        reach_server(server);
        server.set_nonblocking(true).expect("asked whether more has come");
    }
    let case = desk.open("101", "hello");
    desk.until_said(&case, "refund-agent says: hello");
    let web = format!("http://{host}:{}/", port_of(&servers[0]));
    let tries = [
        (format!("fetch {web}"), format!("fetches {web}: ConnectionRefusedError")),
        (format!("reach {host} 5432"), format!("reaches {host} 5432: ConnectionRefusedError")),
        (format!("reach {host} 25"), format!("reaches {host} 25: ConnectionRefusedError")),
        (format!("reach {host} 587"), format!("reaches {host} 587: ConnectionRefusedError")),
    ];
    for (tried, (order, refused)) in (1..).zip(&tries) {
        desk.say(&case, order);
        desk.until_said(&case, &format!("refund-agent {refused}"));
        wait_for(|| desk.ways_out().0 >= tried, || format!("{order} is not logged: {:?}", desk.ways_out()));
        assert_eq!(desk.ways_out(), (tried, Vec::new()), "{order}");
    }
    // A request for another server on the way to one of the two.
    desk.say(&case, "fetch http://llm-router.silo.internal/ as other.example");
    desk.until_said(&case, "as other.example: 421");
    wait_for(|| !desk.ways_out().1.is_empty(), || format!("it is not logged: {:?}", desk.ways_out()));
    assert_eq!(desk.ways_out(), (4, vec!["other.example".to_owned()]));
    for server in servers {
        assert_eq!(server.accept().map(drop).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
    }
    assert_eq!(engine.stop().code, Some(0));
    proxy.end(Signal::SIGTERM);
}

/// What agents do at the proxy reaches the rules of the router.
///
/// Rows: SLO-046 SLO-060 SLO-048
#[test]
fn needs_userns_what_an_agent_does_at_the_proxy_meets_the_rules_of_the_router() {
    let rules = "\"refused > 2 in 1 min then revoke\", \"same customer from two cases then alert\"";
    let mut desk = Desk::new(rules);
    let proxy = RunningProxy::start(desk.home());
    let engine = Engine::start(desk.home(), &[]).expect("starts");
    let (one, two) = (desk.open("101", "refund 1"), desk.open("102", "refund 1"));
    desk.until_said(&one, "refund 1: 200");
    desk.until_said(&two, "refund 1: 200");
    let anomalies = |fleet: &Value| -> Vec<String> {
        let seen = fleet["anomalies"].as_array().expect("a list").iter();
        seen.map(|one| format!("{} {}", one["rule"], one["reaction"])).collect()
    };
    assert_eq!(anomalies(&desk.fleet()), [""; 0], "two customers");
    let again = desk.open("101", "refund 1");
    desk.until_said(&again, "refund 1: 200");
    let has = |desk: &Desk, word: &str| anomalies(&desk.fleet()).iter().any(|one| one.contains(word));
    wait_for(|| has(&desk, "same customer"), || desk.fleet().to_string());
    for _ in 0..3 {
        desk.say(&two, "refund 6000");
    }
    desk.until_said(&two, "because anomaly");
    let holders = desk.holders(&two);
    assert_eq!(holders.len(), 2, "{holders:?}");
    assert_eq!(engine.stop().code, Some(0));
    proxy.end(Signal::SIGTERM);
}

/// Without the proxy no case is opened, cases still end, and the proxy learns of it when it is there again.
///
/// Rows: SLO-047 (in part: the router)
#[test]
fn needs_userns_a_proxy_that_is_away_is_named_and_learns_later_what_has_ended() {
    let mut desk = Desk::new("");
    let proxy = RunningProxy::start(desk.home());
    let engine = Engine::start(desk.home(), &[]).expect("starts");
    let case = desk.open("101", "hello");
    desk.until_said(&case, "says: hello");
    proxy.end(Signal::SIGKILL);
    let body = json!({ "customer": "102", "case": "x", "capability": "refund", "message": "hello" });
    let (status, refused) = desk.ask("POST", "/cases", &body);
    assert_eq!((status, &refused["code"]), (503, &json!("case.proxy")), "{refused}");
    assert_eq!(desk.ask("POST", &format!("/cases/{case}/close"), &Value::Null).0, 200);
    let proxy = RunningProxy::start(desk.home());
    let open = || -> i64 {
        let database = rusqlite::Connection::open(desk.shop.proxy("proxy.db")).expect("opens");
        let sql = "SELECT count(*) FROM proxy_case";
        database.query_row(sql, [], |row| row.get(0)).expect("reads")
    };
    wait_for(|| open() == 0, || "the proxy still has the case".to_owned());
    assert_eq!(desk.ask("POST", "/cases", &body).0, 201, "it is there again");
    assert_eq!(engine.stop().code, Some(0));
    proxy.end(Signal::SIGTERM);
}
