//! `writ proxy` as a process, with keys that the commands give out.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::keys::soon;
use crate::{Home, code, mode, text};

/// A proxy that serves.
pub(super) struct RunningProxy {
    child: Child,
}

/// Ends the proxy of a test that has failed.
impl Drop for RunningProxy {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl RunningProxy {
    #[expect(clippy::disallowed_types, reason = "the test starts the binary that it tests")]
    pub(super) fn start(home: &Home) -> Self {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_writ"))
            .arg("proxy")
            .env_clear()
            .envs(home.variables(&[]))
            .current_dir(home.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut said = String::new();
        while !said.contains("proxy ready") {
            assert!(lines.read_line(&mut said).expect("reads") > 0, "{said}");
        }
        // Later lines are of no interest, and must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Self { child }
    }

    pub(super) fn end(mut self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).expect("a process id")), signal)
            .expect("it is there");
        self.child.wait().expect("waits");
    }
}

/// Sends one request on a connection of its own.
pub(super) fn send(
    socket: PathBuf,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> (u16, Value) {
    let mut stream = UnixStream::connect(socket).expect("connects");
    let body = body.to_string();
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nhost: p\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).expect("sends");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("reads");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    (head[9..12].parse().expect("a status"), serde_json::from_str(body).unwrap_or(Value::Null))
}

pub(super) struct Shop {
    pub(super) home: Home,
}

/// The keys of a case.
pub(super) struct CaseKeys {
    pub(super) base: String,
    pub(super) task: String,
    id: String,
}

impl Shop {
    pub(super) fn new() -> Self {
        let home = Home::ready().in_processes();
        let operations = home.root().join("operations");
        std::fs::create_dir(&operations).expect("a folder");
        let refund = "name = \"refund\"\n[parameters.order]\ntype = \"string\"\n[parameters.amount]\nrole = \"amount\"\n\
                      [target.sql]\ndatabase = \"shop\"\n\
                      statement = \"UPDATE orders SET refunded = refunded + :amount WHERE id = :order\"\n\
                      [target.sql.tables.orders]\ncustomer = \"customer_id\"\n";
        std::fs::write(operations.join("refund.toml"), refund).expect("writes");
        let shop = Self { home };
        // The folder of the proxy is made by its first command.
        let listed = shop.home.run(&["proxy", "secrets", "list"]);
        assert_eq!(code(&listed), 0, "{}", text(&listed));
        let config = "[targets.databases.shop]\nkind = \"sqlite\"\npath = \"shop.db\"\n";
        std::fs::write(shop.proxy("proxy.toml"), config).expect("writes");
        shop.database()
            .execute_batch(
                "CREATE TABLE orders (id TEXT, customer_id TEXT, refunded INTEGER);
                 INSERT INTO orders VALUES ('A-1', '101', 0), ('B-1', '102', 0);",
            )
            .expect("makes a shop");
        shop
    }

    pub(super) fn proxy(&self, name: &str) -> PathBuf {
        self.home.root().join("proxy").join(name)
    }

    pub(super) fn database(&self) -> Connection {
        Connection::open(self.proxy("shop.db")).expect("opens")
    }

    fn refunded(&self, order: &str) -> i64 {
        let sql = "SELECT refunded FROM orders WHERE id = ?1";
        self.database().query_row(sql, [order], |row| row.get(0)).expect("is there")
    }

    fn run(&self, args: &[&str]) -> Value {
        let output = self.home.run(&[args, &["--json"]].concat());
        assert_eq!(code(&output), 0, "{args:?}: {}", text(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn write(&self, name: &str, content: &Value) -> String {
        let path = self.home.dir.path().join(name);
        std::fs::write(&path, content.to_string()).expect("writes");
        path.to_str().expect("text").to_owned()
    }

    /// A case, and both keys for it, as the router hands them over.
    fn keys(&self, customer: &str, case: &str) -> CaseKeys {
        let grants = json!({ "refund": { "max_amount": 500, "daily_amount": 1_000 } });
        self.keys_of("refund-agent", &grants, customer, case)
    }

    /// The same for an agent and its capabilities.
    pub(super) fn keys_of(&self, agent: &str, grants: &Value, customer: &str, case: &str) -> CaseKeys {
        let token = std::fs::read_to_string(self.proxy("router.token")).expect("is there");
        let bearer = format!("Bearer {token}");
        let body = json!({ "customer": customer, "case": case });
        let (status, case) =
            send(self.proxy("router.sock"), "POST", "/v1/cases", &[("authorization", &bearer)], &body);
        assert_eq!(status, 201, "{case}");
        let base = json!({ "agent": agent, "expires": soon(86_400), "capabilities": grants });
        let base = self.run(&["keys", "base", "issue", &self.write("base.json", &base)]);
        let base_file = self.write("base.key", &json!(null));
        let base = base["token"].as_str().expect("a token").to_owned();
        std::fs::write(&base_file, &base).expect("writes");
        let task = json!({ "task_id": "chat-1", "customer_token": case["customer_token"],
            "case_token": case["case_token"], "granted_by": "router", "expires": soon(1_700) });
        let task = self.run(&["keys", "task", "mint", &self.write("task.json", &task), "--base", &base_file]);
        let id = task["key"].as_str().expect("an id").to_owned();
        CaseKeys { base, task: task["token"].as_str().expect("a token").to_owned(), id }
    }

    fn refund(&self, keys: &CaseKeys, amount: i64) -> (u16, Value) {
        let headers = [("writ-base-key", keys.base.as_str()), ("writ-task-key", keys.task.as_str())];
        let body = json!({ "order": "A-1", "amount": amount });
        send(self.proxy("agents.sock"), "POST", "/v1/operations/refund", &headers, &body)
    }
}

/// Keys of the commands pass, the engine's revocation counts with the next request, and what was counted survives kill -9.
///
/// Rows: SLO-047 (in part: through the proxy) SLO-026 SLO-062 (in part: through the proxy)
#[test]
fn keys_of_the_home_reach_the_shop_through_the_proxy() {
    let shop = Shop::new();
    let proxy = RunningProxy::start(&shop.home);
    for name in ["agents.sock", "router.sock", "router.token", "proxy.db"] {
        assert_eq!(mode(&shop.proxy(name)), 0o600, "{name}");
    }
    let keys = shop.keys("101", "C-1");
    assert_eq!(shop.refund(&keys, 500).0, 200);
    assert_eq!(shop.refund(&keys, 501).0, 403);
    proxy.end(Signal::SIGKILL);
    let proxy = RunningProxy::start(&shop.home);
    assert_eq!(shop.refund(&keys, 500).0, 200, "the rest of the day");
    assert_eq!(shop.refund(&keys, 1).0, 409, "it was counted over kill -9");
    assert_eq!((shop.refunded("A-1"), shop.refunded("B-1")), (1_000, 0));
    let other = shop.keys("101", "C-2");
    assert_eq!(shop.refund(&other, 1).0, 200);
    shop.run(&["keys", "revoke", &other.id, "--reason", "it misbehaves"]);
    assert_eq!(shop.refund(&other, 1), (401, json!({ "error": "a key was revoked" })));
    // One proxy for each home.
    let second = shop.home.run(&["proxy"]);
    assert_ne!(code(&second), 0, "{}", text(&second));
    proxy.end(Signal::SIGTERM);
    assert!(!shop.proxy("agents.sock").exists());
    assert_eq!(shop.refunded("A-1"), 1_001);
}

/// What is wrong with the proxy's files is named, with the line where there is one.
#[test]
fn malformed_files_of_the_proxy_are_named() {
    let shop = Shop::new();
    for (file, content, named) in [
        ("proxy/proxy.toml", "[targets.databases.shop]\nkind = \"mysql\"\n", "MySQL"),
        ("proxy/proxy.toml", "[nonsense]\n", "nonsense"),
        ("operations/refund.toml", "name = \"refund\"\n", "refund.toml"),
    ] {
        let path = shop.home.root().join(file);
        let before = std::fs::read(&path).expect("is there");
        std::fs::write(&path, content).expect("writes");
        let refused = shop.home.run(&["proxy"]);
        assert_eq!(code(&refused), 3, "{file}: {}", text(&refused));
        assert!(text(&refused).contains(named), "{}", text(&refused));
        std::fs::write(&path, before).expect("writes");
    }
    let refused = shop.home.run(&["proxy", "--tls", "127.0.0.1:0"]);
    assert_eq!(code(&refused), 2, "{}", text(&refused));
    let own = shop.home.run(&["proxy", "secrets", "remove", "proxy-tokens"]);
    assert_eq!(code(&own), 2, "{}", text(&own));
}
