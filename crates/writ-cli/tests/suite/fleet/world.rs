//! A shop with 50 customers behind a real proxy, and keys of a real engine.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;
use serde_json::{Value, json};
use writ_store::store::Store;
use writ_testkit::fleet::shop::{self, ShopChange};
use writ_testkit::fleet::write_operations;
use writ_testkit::mail_sink::{MailFault, MailSink};

use crate::engine::Link;
use crate::keys::soon;
use crate::verifier::Verdict;
use crate::{Home, code, text};

use super::logged::LoggedShop;

/// The keys of one case.
#[derive(Clone, Debug)]
pub(super) struct CaseKeys {
    pub(super) base: String,
    pub(super) task: String,
    pub(super) customer_token: String,
    pub(super) case_token: String,
}

/// An answer of the proxy; `None`: the connection ended without one.
pub(super) type ProxyReply = Option<(u16, Value)>;

/// A home with the shop, its operations and the configuration of a proxy.
pub(super) struct World {
    pub(super) home: Home,
    pub(super) sink: MailSink,
    /// The shop at a server of PostgreSQL; `None`: in a file of SQLite.
    pub(super) logged: Option<LoggedShop>,
    /// The sink's task is one of it.
    _runtime: tokio::runtime::Runtime,
}

impl World {
    pub(super) fn new() -> Self {
        let world = Self::with_shop("kind = \"sqlite\"\npath = \"shop.db\"", None);
        shop::make_shop(&world.proxy("shop.db")).expect("a shop");
        world
    }

    /// The same with its shop at a server that logs every statement.
    pub(super) fn logged() -> Self {
        let shop = LoggedShop::start();
        Self::with_shop(&shop.settings(), Some(shop))
    }

    fn with_shop(settings: &str, logged: Option<LoggedShop>) -> Self {
        let home = Home::ready().in_processes();
        write_operations(&home.root().join("operations")).expect("written");
        // The folder of the proxy is made by its first command.
        let listed = home.run(&["proxy", "secrets", "list"]);
        assert_eq!(code(&listed), 0, "{}", text(&listed));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let sink = runtime.block_on(MailSink::start(MailFault::None)).expect("a sink");
        let world = Self { home, sink, logged, _runtime: runtime };
        let config = format!(
            "[targets.databases.shop]\n{settings}\n\
             [targets.mail.outgoing]\nserver = \"{}\"\ntls = \"none\"\nfrom = \"shop@example.org\"\n",
            world.sink.address()
        );
        std::fs::write(world.proxy("proxy.toml"), config).expect("written");
        world
    }

    pub(super) fn proxy(&self, name: &str) -> PathBuf {
        self.home.root().join("proxy").join(name)
    }

    /// Gives out a base key, in a file that only its owner reads.
    pub(super) fn issue_base(&self, agent: &str, capabilities: &Value) -> (String, PathBuf) {
        let file = |name: &str| self.home.dir.path().join(format!("{agent}.{name}"));
        let document = json!({ "agent": agent, "capabilities": capabilities, "expires": soon(86_400) });
        std::fs::write(file("json"), document.to_string()).expect("written");
        let (given, out) = (file("json"), file("jwt"));
        let path = |path: &Path| path.to_str().expect("text").to_owned();
        let done = self.home.run(&["keys", "base", "issue", &path(&given), "--out", &path(&out)]);
        assert_eq!(code(&done), 0, "{}", text(&done));
        (std::fs::read_to_string(&out).expect("a key").trim().to_owned(), out)
    }

    /// Opens a case at the proxy, and has the engine mint its key.
    pub(super) fn open_case(&self, link: &mut Link, base: &str, names: (&str, &str)) -> CaseKeys {
        self.open_minted(link, base, names).0
    }

    /// Opens a case whose task key is revoked at once.
    pub(super) fn open_revoked(&self, link: &mut Link, base: &str, names: (&str, &str)) -> CaseKeys {
        let (keys, minted) = self.open_minted(link, base, names);
        let revoked = link.call("keys.revoke", json!({ "key": minted["key"], "reason": "it misbehaves" }));
        assert_eq!(revoked.expect("the engine answers")["state"], "revoked");
        keys
    }

    fn open_minted(&self, link: &mut Link, base: &str, (customer, case): (&str, &str)) -> (CaseKeys, Value) {
        let token = std::fs::read_to_string(self.proxy("router.token")).expect("is there");
        let bearer = format!("Bearer {token}");
        let body = json!({ "customer": customer, "case": case });
        let opened =
            send(&self.proxy("router.sock"), "/v1/cases", &[("authorization", &bearer)], &body.to_string());
        let (201, tokens) = opened.expect("the proxy answers") else { panic!("no case was opened") };
        let text = |name: &str| tokens[name].as_str().expect("a token").to_owned();
        let document = json!({ "task_id": case, "customer_token": text("customer_token"),
            "case_token": text("case_token"), "granted_by": "router", "expires": soon(1_700) });
        let minted = link.call("keys.mint", json!({ "base": base, "document": document }));
        let minted = minted.expect("the engine answers");
        let task = minted["token"].as_str().expect("a key").to_owned();
        let (customer_token, case_token) = (text("customer_token"), text("case_token"));
        (CaseKeys { base: base.to_owned(), task, customer_token, case_token }, minted)
    }

    /// Writes a key into a file of its owner's.
    pub(super) fn write_key(&self, name: &str, key: &str) -> PathBuf {
        let path = self.home.dir.path().join(name);
        std::fs::write(&path, key).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("closed");
        path
    }

    /// What the database itself has noted.
    pub(super) fn changes(&self) -> Vec<ShopChange> {
        match &self.logged {
            Some(shop) => shop.changes(),
            None => shop::read_changes(&self.proxy("shop.db")).expect("reads"),
        }
    }

    /// The entries of the proxy's ledger, oldest first.
    pub(super) fn proxy_entries(&self) -> Vec<Value> {
        let lines = String::from_utf8(self.export_proxy()).expect("UTF-8");
        lines.lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
    }

    fn export_proxy(&self) -> Vec<u8> {
        let store =
            Store::open_read_only(&self.proxy("proxy.db"), self.proxy_key().verifying_key().to_bytes());
        let mut bytes = Vec::new();
        store.expect("opens").blocking().export_entries(&mut bytes).expect("exported");
        bytes
    }

    /// The private key of the proxy's ledger, as its owner could read it.
    fn proxy_key(&self) -> SigningKey {
        let document = std::fs::read(self.proxy("keys/secrets.json")).expect("reads");
        let document: Value = serde_json::from_slice(&document).expect("JSON");
        let seed = hex::decode(document["keys"]["harness"].as_str().expect("a key")).expect("hexadecimal");
        SigningKey::from_bytes(&seed.try_into().expect("32 bytes"))
    }

    /// Has the program of another language verify both ledgers, with their public keys alone.
    pub(super) fn verify_ledgers(&self) {
        let place = |name: &str| self.home.dir.path().join(name);
        let export = self.home.run(&["audit", "export"]);
        assert_eq!(code(&export), 0, "{}", text(&export));
        std::fs::write(place("engine.jsonl"), export.stdout).expect("written");
        std::fs::write(place("proxy.jsonl"), self.export_proxy()).expect("written");
        std::fs::write(place("proxy.pub"), hex::encode(self.proxy_key().verifying_key().to_bytes()))
            .expect("written");
        let engine = self.home.root().join("keys/harness.pub");
        for (export, key) in [("engine.jsonl", engine), ("proxy.jsonl", place("proxy.pub"))] {
            let told = Verdict::of_export(&place(export), &[key.to_str().expect("text")]);
            assert_eq!(told, (0, None), "{export}");
        }
    }
}

/// Asks for an operation; `once`: the name under which it is done once.
pub(super) fn operate(
    socket: &Path,
    (base, task): (&str, &str),
    (operation, body): (&str, &Value),
    once: Option<&str>,
) -> ProxyReply {
    let mut headers = vec![("writ-base-key", base), ("writ-task-key", task)];
    headers.extend(once.map(|name| ("idempotency-key", name)));
    send(socket, &format!("/v1/operations/{operation}"), &headers, &body.to_string())
}

/// Sends a request on a connection of its own.
pub(super) fn send(socket: &Path, path: &str, headers: &[(&str, &str)], body: &str) -> ProxyReply {
    let mut stream = UnixStream::connect(socket).ok()?;
    let mut head =
        format!("POST {path} HTTP/1.1\r\nhost: p\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.get(9..12)?.parse().ok()?, serde_json::from_str(body).ok()?))
}

/// An operation that was begun, as the ledger has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BegunOperation {
    pub(super) agent: String,
    pub(super) operation: String,
    pub(super) parameters: BTreeMap<String, String>,
    /// `done`, `failed` or `unknown`; `None`: it has no outcome.
    pub(super) outcome: Option<String>,
}

/// Reads the operations of a ledger.
pub(super) fn begun_operations(entries: &[Value]) -> Vec<BegunOperation> {
    let of = |event: &'static str| entries.iter().filter(move |entry| entry["event"] == event);
    let outcomes: BTreeMap<&str, &Value> = of("outcome")
        .map(|entry| {
            (entry["payload"]["attempt"].as_str().expect("an attempt"), &entry["payload"]["outcome"])
        })
        .collect();
    of("intent")
        .map(|entry| {
            let payload = &entry["payload"];
            let text = |path: &str| payload.pointer(path).and_then(Value::as_str).expect("a text").to_owned();
            let parameters = payload.pointer("/action/parameters").cloned().expect("parameters");
            BegunOperation {
                agent: text("/requester/agent"),
                operation: text("/action/operation"),
                parameters: serde_json::from_value(parameters).expect("texts"),
                outcome: outcomes.get(text("/attempt").as_str()).map(|outcome| outcome_name(outcome)),
            }
        })
        .collect()
}

fn outcome_name(outcome: &Value) -> String {
    let name = outcome.as_str().or_else(|| outcome.as_object()?.keys().next().map(String::as_str));
    name.expect("an outcome").to_owned()
}
