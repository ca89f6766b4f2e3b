//! A shop with two customers and their cases, agents with keys, and the proxy between them.

use std::sync::{Arc, Mutex};

use ed25519_dalek::SigningKey;
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;
use writ_egress::perform::{Egress, EgressConfig};
use writ_operations::{Targets, TargetsConfig};
use writ_policy::keys::document::{read_base, read_task};
use writ_policy::keys::{
    BaseClaims, KeyToken, TASK_KEY_TTL, TaskClaims, Verifier, mint_base, mint_task, seal_token,
};
use writ_proxy::proxy::{Peer, Proxy, ProxyAnswer, ProxyParts, ProxyRequest};
use writ_proxy::secret::ProxySecret;
use writ_proxy::trust::Trust;
use writ_runtime::clock::{Clock, ClockWait, Ids};
use writ_store::config::StoreConfig;
use writ_store::ledger::row::LedgerQuery;
use writ_store::store::Store;
use writ_testbed::clock::Hand;
use writ_types::digest::Digest;
use writ_types::entry::{Fact, Requester};
use writ_types::id::InstallationId;
use writ_types::unit::Timestamp;

/// The moment at which every test begins.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

/// What the customers are called and have: none of it may reach an agent.
pub(crate) const PERSONAL: [&str; 10] = [
    "Ann Example",
    "Example",
    "ann@example.com",
    "+44 20 7946 0958",
    "4111 1111 1111 1111",
    "Bob Sample",
    "Sample",
    "bob@example.com",
    "+44 20 7946 0123",
    "5500 0000 0000 0004",
];

/// A clock that a test moves.
#[derive(Debug)]
pub(crate) struct HandClock(pub(crate) Hand);

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn elapsed(&self) -> std::time::Duration {
        self.0.elapsed()
    }

    fn wait(&self, now: Timestamp, _: std::time::Duration) -> ClockWait<'_> {
        Box::pin(self.0.wait_until_moved(now))
    }
}

/// Both keys of an agent, as texts, and their ids.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) base: String,
    pub(crate) task: String,
    pub(crate) task_id: String,
    pub(crate) base_id: String,
    pub(crate) base_token: KeyToken,
    pub(crate) base_claims: BaseClaims,
    pub(crate) task_claims: TaskClaims,
}

/// A server with an interface that operations call. What it is asked for is recorded; `/hold` is never answered, and `/charge`
/// fails every other time.
pub(crate) struct Desk {
    address: std::net::SocketAddr,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Desk {
    async fn start() -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let record = {
            let asked = Arc::clone(&asked);
            move |body: axum::Json<Value>| async move {
                asked.lock().expect("not poisoned").push(body.0);
                axum::Json(json!({}))
            }
        };
        let charge = {
            let asked = Arc::clone(&asked);
            move |head: axum::http::HeaderMap| async move {
                let key = head.get("idempotency-key").and_then(|key| key.to_str().ok()).expect("a key");
                let mut asked = asked.lock().expect("not poisoned");
                asked.push(json!(key));
                // Every other time, whatever came of it.
                if asked.len() % 2 == 1 {
                    axum::http::StatusCode::BAD_GATEWAY
                } else {
                    axum::http::StatusCode::OK
                }
            }
        };
        let hold = || std::future::pending::<axum::Json<Value>>();
        let routes = axum::Router::new()
            .route("/send_email", axum::routing::post(record))
            .route("/charge", axum::routing::post(charge))
            .route("/profile", axum::routing::post(show_profile))
            .route("/hold", axum::routing::post(hold));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let address = listener.local_addr().expect("has one");
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { address, asked }
    }

    /// The bodies of the requests that it got.
    pub(crate) fn asked(&self) -> Vec<Value> {
        self.asked.lock().expect("not poisoned").clone()
    }
}

/// A document with personal data in the names of its fields as well, and a long one.
async fn show_profile() -> axum::Json<Value> {
    axum::Json(
        json!({ "data": { "Ann Example": { "street": "1 High Street" } }, "address": "a".repeat(2_000) }),
    )
}

/// A proxy over a shop.
pub(crate) struct Bed {
    pub(crate) folder: TempDir,
    pub(crate) clock: Arc<HandClock>,
    pub(crate) root: SigningKey,
    pub(crate) router: SigningKey,
    pub(crate) installation: InstallationId,
    pub(crate) store: Store,
    pub(crate) proxy: Proxy,
    pub(crate) desk: Desk,
    /// The tokens of customer 101's case C-1.
    pub(crate) ann: (String, String),
    /// The tokens of customer 102's case C-2.
    pub(crate) bob: (String, String),
}

/// A base key's document as an owner writes it.
pub(crate) fn refund_agent() -> Value {
    json!({
        "agent": "refund-agent",
        "capabilities": {
            "refund": { "max_amount": 500, "daily_amount": 1000 },
            "credit": { "max_amount": 500 },
            "customer": {}, "notes": {}, "hold": {}, "profile": {}, "owners": {}, "history": {}, "ticket": {},
            "send_email": { "templates": ["confirmation", "apology"] }
        },
        "expires": "2026-12-31T00:00:00Z"
    })
}

impl Bed {
    pub(crate) async fn new() -> Self {
        let (root, router) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let trust = fixed_trust(&root, &router, InstallationId::from_parts(NOW, 1));
        Self::with_trust(tempfile::tempdir().expect("a folder"), (root, router), trust).await
    }

    /// A proxy beside the database of an engine, which it reads.
    pub(crate) async fn beside_engine() -> (Self, Store) {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, router) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let path = folder.path().join("data/writ.db");
        let engine = Store::open(&StoreConfig::new(&path), Arc::new(router.clone())).expect("opens");
        let trust = Trust::Engine {
            database: Store::open_read_only(&path, engine.public_key()).expect("opens to read"),
            root: root.verifying_key(),
            router: router.verifying_key(),
        };
        (Self::with_trust(folder, (root, router), trust).await, engine)
    }

    async fn with_trust(folder: TempDir, (root, router): (SigningKey, SigningKey), trust: Trust) -> Self {
        make_shop(&folder.path().join("shop.db"));
        let desk = Desk::start().await;
        let targets = format!(
            "[databases.shop]\nkind = \"sqlite\"\npath = \"shop.db\"\n[apis.desk]\nurl = \"http://{}\"\n",
            desk.address
        );
        std::fs::write(folder.path().join("targets.toml"), targets).expect("writes");
        write_operations(&folder.path().join("operations"));
        let clock = Arc::new(HandClock(Hand::at(NOW)));
        let installation = trust.installation();
        let (store, proxy) = open_proxy(&folder, &clock, trust).await;
        let open = async |customer, case| {
            let tokens =
                proxy.open_case(Some("shop"), customer, case, &Default::default()).await.expect("opens");
            (tokens.customer_token, tokens.case_token)
        };
        let (ann, bob) = (open("101", "C-1").await, open("102", "C-2").await);
        Self { folder, clock, root, router, installation, store, proxy, desk, ann, bob }
    }

    /// Ends the proxy and starts it again over the same files.
    pub(crate) async fn restarted(self) -> Self {
        let Self { folder, clock, root, router, installation, store, proxy, desk, ann, bob } = self;
        drop((proxy, store));
        let trust = fixed_trust(&root, &router, installation);
        let (store, proxy) = open_proxy(&folder, &clock, trust).await;
        Self { folder, clock, root, router, installation, store, proxy, desk, ann, bob }
    }

    /// Keys of an agent for a case, for half an hour from now.
    pub(crate) fn keys(&self, document: Value, case: &(String, String)) -> Pair {
        let document = read_base(document).expect("a base key's document");
        let now = self.clock.now();
        let base_claims = BaseClaims {
            key: Ids.key(now),
            installation: self.installation,
            epoch: 1,
            agent: document.agent,
            policy: Digest::of_bytes(b"rules"),
            expires_at: document.expires,
            grants: document.grants,
        };
        let base = mint_base(&base_claims, &self.root).expect("mints");
        self.task_key(&base, &base_claims, case)
    }

    /// A task key over a base key.
    pub(crate) fn task_key(&self, base: &KeyToken, claims: &BaseClaims, case: &(String, String)) -> Pair {
        let now = self.clock.now();
        let document = json!({
            "task_id": "chat-1", "customer_token": case.0, "case_token": case.1, "granted_by": "router",
            "expires": "2026-12-31T00:00:00Z",
        });
        let task = TaskClaims {
            key: Ids.key(now),
            base: claims.key,
            session: Ids.session(now),
            not_before: now,
            expires_at: now.plus_duration(TASK_KEY_TTL),
            grants: claims.grants.clone(),
            case: Some(read_task(document).expect("a task key's document").case),
            under: Default::default(),
            plan: None,
        };
        self.pair(base, claims, task)
    }

    /// Signs a task key with these claims, and seals what is handed out.
    pub(crate) fn pair(&self, base: &KeyToken, claims: &BaseClaims, task: TaskClaims) -> Pair {
        let root = self.root.verifying_key();
        let token = mint_task(base, &task, &root, &self.router).expect("mints");
        let seal = |token| String::from(seal_token(token, &root).expect("seals"));
        Pair {
            base: seal(base),
            task: seal(&token),
            task_id: task.key.to_string(),
            base_id: claims.key.to_string(),
            base_token: base.clone(),
            base_claims: claims.clone(),
            task_claims: task,
        }
    }

    /// Asks with both keys.
    pub(crate) async fn ask(&self, pair: &Pair, operation: &str, body: Value) -> ProxyAnswer {
        self.proxy.operate(request(Some(&pair.base), Some(&pair.task), operation, &body)).await
    }

    /// Asks with both keys under a name.
    pub(crate) async fn ask_once(
        &self,
        pair: &Pair,
        operation: &str,
        body: Value,
        name: &str,
    ) -> ProxyAnswer {
        let once = Some(name.to_owned());
        let request = request(Some(&pair.base), Some(&pair.task), operation, &body);
        self.proxy.operate(ProxyRequest { once, ..request }).await
    }

    /// The facts of one kind, oldest first.
    pub(crate) fn facts(&self, event: &str) -> Vec<Fact> {
        let query = LedgerQuery { event: Some(event.to_owned()), limit: 10_000, ..LedgerQuery::default() };
        let rows = self.store.blocking().ledger_search(&query).expect("reads");
        rows.iter().rev().map(|row| row.entry().expect("has its payload").fact).collect()
    }

    /// The decisions about requests.
    pub(crate) fn decisions(&self) -> Vec<Requester> {
        let requester = |fact: Fact| {
            let (Fact::Intent { requester: Some(by), .. }
            | Fact::Denied { requester: Some(by), .. }
            | Fact::Served { requester: by, .. }) = fact
            else {
                panic!("no decision that names who asked: {fact:?}")
            };
            *by
        };
        ["intent", "denied", "served"]
            .into_iter()
            .flat_map(|event| self.facts(event))
            .map(requester)
            .collect()
    }

    /// The rule of the newest refusal.
    pub(crate) fn last_rule(&self) -> String {
        match self.facts("denied").pop() {
            Some(Fact::Denied { rule, .. }) => rule,
            other => panic!("no refusal: {other:?}"),
        }
    }

    /// The operation of the newest refusal.
    pub(crate) fn last_operation(&self) -> String {
        match self.facts("denied").pop() {
            Some(Fact::Denied { requester: Some(by), .. }) => by.operation,
            other => panic!("no refusal of a request: {other:?}"),
        }
    }

    /// How much of each order was refunded.
    pub(crate) fn refunded(&self, order: &str) -> i64 {
        let shop = Connection::open(self.folder.path().join("shop.db")).expect("opens");
        shop.query_row("SELECT refunded FROM orders WHERE id = ?1", [order], |row| row.get(0))
            .expect("is there")
    }
}

pub(crate) fn request(base: Option<&str>, task: Option<&str>, operation: &str, body: &Value) -> ProxyRequest {
    ProxyRequest {
        peer: Peer::Local(0),
        base: base.map(ToOwned::to_owned),
        task: task.map(ToOwned::to_owned),
        once: None,
        operation: operation.to_owned(),
        body: Ok(body.to_string().into_bytes()),
    }
}

/// Returns the error of an answer, which holds nothing else.
pub(crate) fn error_of(answer: &ProxyAnswer) -> &str {
    let fields = answer.body.as_object().expect("an object");
    assert_eq!(fields.len(), 1, "the reason and nothing else: {answer:?}");
    fields["error"].as_str().expect("a text")
}

fn fixed_trust(root: &SigningKey, router: &SigningKey, installation: InstallationId) -> Trust {
    let (root, router) = (root.verifying_key(), router.verifying_key());
    Trust::Fixed(Verifier { root, router, installation, epoch: 1 })
}

pub(crate) async fn open_proxy(folder: &TempDir, clock: &Arc<HandClock>, trust: Trust) -> (Store, Proxy) {
    let signer = SigningKey::from_bytes(&[3; 32]);
    let config = StoreConfig::new(folder.path().join("proxy/proxy.db"));
    let store = Store::open(&config, Arc::new(signer.clone())).expect("opens");
    let parts = ProxyParts {
        store: store.clone(),
        signer,
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        secret: ProxySecret::from_bytes([4; 32]),
        trust,
        operations: folder.path().join("operations"),
        targets: open_targets(folder),
        agents: [("guarded-agent".to_owned(), agent_of(7_001))].into(),
    };
    (store, Proxy::open(parts).await.expect("starts"))
}

fn agent_of(uid: u32) -> writ_proxy::config::AgentConfig {
    writ_proxy::config::AgentConfig { uids: [uid].into() }
}

fn open_targets(folder: &TempDir) -> Targets {
    let text = std::fs::read_to_string(folder.path().join("targets.toml")).expect("is there");
    let file = folder.path().join("targets.toml");
    let config = TargetsConfig::read_text(&file, &text, &|_| None).expect("a configuration");
    let egress = Egress::new(&EgressConfig::default(), folder.path()).expect("a way out");
    Targets::open(config, Arc::new(egress))
}

fn make_shop(path: &std::path::Path) {
    let shop = Connection::open(path).expect("opens");
    shop.execute_batch(
        "PRAGMA journal_mode = WAL;
         CREATE TABLE customers (customer_id TEXT, name TEXT, email TEXT, phone TEXT, card TEXT);
         INSERT INTO customers VALUES
             ('101', 'Ann Example', 'ann@example.com', '+44 20 7946 0958', '4111 1111 1111 1111'),
             ('102', 'Bob Sample', 'bob@example.com', '+44 20 7946 0123', '5500 0000 0000 0004');
         CREATE TABLE orders (id TEXT, customer_id TEXT, refunded INTEGER, note TEXT);
         INSERT INTO orders VALUES
             ('A-1', '101', 0, 'Mrs Example (ANN@example.com) paid with 4111111111111111, call 020 7946 0958'),
             ('A-2', '101', 0, NULL),
             ('B-1', '102', 0, 'Bob lives near Ann Example');
         CREATE TABLE tickets (id TEXT PRIMARY KEY, customer_id TEXT);
         INSERT INTO tickets VALUES ('T-1', '101'), ('T-2', '102');
         CREATE TABLE history (customer_id TEXT, case_id TEXT, line TEXT);
         INSERT INTO history VALUES
             ('101', 'C-1', 'the kettle leaks'),
             ('101', 'C-9', 'the lamp flickers'),
             ('102', 'C-2', 'the mug broke');",
    )
    .expect("makes a shop");
}

fn write_operations(folder: &std::path::Path) {
    std::fs::create_dir(folder).expect("a folder");
    let tables = |name: &str| format!("[target.sql.tables.{name}]\ncustomer = \"customer_id\"\n");
    let refund = |name: &str| {
        format!(
            "name = \"{name}\"\n[parameters.order]\ntype = \"string\"\n[parameters.amount]\nrole = \"amount\"\n\
             [target.sql]\ndatabase = \"shop\"\n\
             statement = \"UPDATE orders SET refunded = refunded + :amount WHERE id = :order\"\n{}",
            tables("orders")
        )
    };
    let read = |name: &str, statement: &str, table: &str, personal: &str| {
        format!(
            "name = \"{name}\"\n[target.sql]\ndatabase = \"shop\"\nstatement = \"{statement}\"\n{}\
             [personal]\n{personal}",
            tables(table)
        )
    };
    // Requests to the desk: `/hold` is never answered, and the other is recorded.
    let call = |name: &str, parameter: &str, role: &str| {
        format!(
            "name = \"{name}\"\n[parameters.order]\ntype = \"string\"\n[parameters.{parameter}]\n{role}\n\
             [target.http]\napi = \"desk\"\nmethod = \"POST\"\npath = \"/{name}\"\n\
             body = {{ order = \"{{order}}\", what = \"{{{parameter}}}\", customer = \"{{customer}}\" }}\n"
        )
    };
    let profile = "name = \"profile\"\n[target.http]\napi = \"desk\"\nmethod = \"POST\"\npath = \"/profile\"\n\
                   body = { customer = \"{customer}\" }\nresult = { data = \"/data\", address = \"/address\" }\n\
                   [personal]\ndata = \"address\"\naddress = \"address\"\n";
    let charge = "name = \"charge\"\nidempotency = \"request\"\n[parameters.amount]\nrole = \"amount\"\n\
                  [target.http]\napi = \"desk\"\nmethod = \"POST\"\npath = \"/charge\"\n\
                  body = { amount = \"{amount}\", request = \"{request}\", customer = \"{customer}\" }\n";
    let history = "name = \"history\"\n[target.sql]\ndatabase = \"shop\"\nstatement = \"SELECT line FROM history\"\n\
                   [target.sql.tables.history]\ncustomer = \"customer_id\"\ncase = \"case_id\"\n";
    let all = "SELECT customer_id, name, email, phone, card FROM customers";
    let kinds = "customer_id = \"customer\"\nname = \"name\"\nemail = \"email\"\nphone = \"phone\"\ncard = \"card\"\n";
    let ticket = format!(
        "name = \"ticket\"\n[parameters.id]\ntype = \"string\"\n[target.sql]\ndatabase = \"shop\"\n\
         statement = \"INSERT INTO tickets (id) VALUES (:id)\"\n{}",
        tables("tickets")
    );
    for (file, text) in [
        ("refund", refund("refund")),
        ("ticket", ticket),
        ("credit", refund("credit")),
        ("customer", read("customer", all, "customers", kinds)),
        ("notes", read("notes", "SELECT id, note FROM orders", "orders", "note = \"text\"\n")),
        ("owners", read("owners", "SELECT customer_id AS owner, id FROM orders", "orders", "")),
        ("profile", profile.to_owned()),
        ("charge", charge.to_owned()),
        ("history", history.to_owned()),
        ("hold", call("hold", "amount", "role = \"amount\"")),
        ("send_email", call("send_email", "template", "role = \"template\"")),
    ] {
        std::fs::write(folder.join(format!("{file}.toml")), text).expect("writes");
    }
}
