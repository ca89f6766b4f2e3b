//! The security proxy over its socket: operations at SQLite with its ledger written, beside the bare statements.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ed25519_dalek::SigningKey;
use rusqlite::Connection;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use writ_egress::{Egress, EgressConfig};
use writ_operations::{Targets, TargetsConfig};
use writ_policy::keys::document::{read_base, read_task};
use writ_policy::keys::{BaseClaims, TaskClaims, Verifier, mint_base, mint_task, seal_token};
use writ_proxy::proxy::{Proxy, ProxyParts};
use writ_proxy::secret::{ProxySecret, SECRET_BYTES};
use writ_proxy::server::{ProxyServer, ServerPlaces};
use writ_proxy::trust::Trust;
use writ_runtime::clock::{Clock as _, Ids, SystemClock};
use writ_store::config::StoreConfig;
use writ_store::store::Store;
use writ_types::digest::Digest;
use writ_types::id::InstallationId;

use crate::measured::{Measured, nanos, since};

/// Clients at once.
const CLIENTS: u32 = 16;
/// The time for which task keys live: that of a measurement.
const TTL: Duration = Duration::from_secs(30 * 60);
/// The statement that changes something, as an operation and on its own.
const REFUND: &str = "UPDATE orders SET refunded = refunded + :amount WHERE id = :order";
/// The statement that reads.
const READ: &str = "SELECT id, note, refunded FROM orders";

/// A proxy that is served, and what its clients show.
struct World {
    socket: PathBuf,
    /// The head of the requests of each client, up to the operation.
    keys: Vec<String>,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

/// A lasting connection of one client.
struct Client {
    stream: UnixStream,
    keys: String,
    answer: Vec<u8>,
}

/// Measures requests of one client and of many, and the bare statements between those of the one.
pub(crate) fn run(folder: &Path, rounds: u32) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    make_shop(&folder.join("bare.db"))?;
    make_shop(&folder.join("shop.db"))?;
    let bare = Connection::open(folder.join("bare.db"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let world = runtime.block_on(World::new(folder))?;
    let mut client = runtime.block_on(world.client(0))?;
    for (operation, body) in [("refund", r#"{"order":"A-1","amount":1}"#), ("orders", "{}")] {
        let (mut direct, mut asked) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            direct.push(run_bare(&bare, operation)?);
            let start = Instant::now();
            runtime.block_on(client.ask(operation, body))?;
            asked.push(since(start));
        }
        Measured { what: &format!("bare {operation}"), nanos: direct, rows: 0, took_nanos: 0 }.print()?;
        Measured { what: operation, nanos: asked, rows: 0, took_nanos: 0 }.print()?;
        let each = rounds.div_ceil(2);
        let start = Instant::now();
        let nanos = runtime.block_on(world.ask_at_once(operation, body, each))?;
        let (rows, took_nanos) = (u64::from(each) * u64::from(CLIENTS), since(start));
        Measured { what: &format!("{operation} at once"), nanos, rows, took_nanos }.print()?;
    }
    runtime.block_on(async {
        world.stop.cancel();
        world.serving.await
    })?;
    Ok(())
}

/// How long the statement of an operation takes on its own, in a transaction of its own as in the proxy.
fn run_bare(shop: &Connection, operation: &str) -> Result<u64> {
    let start = Instant::now();
    if operation == "refund" {
        shop.execute_batch("BEGIN IMMEDIATE")?;
        let sql = format!("{REFUND} AND customer_id = :customer");
        let changed = shop.prepare_cached(&sql)?.execute(rusqlite::named_params! {
            ":amount": 1, ":order": "A-1", ":customer": "c-0",
        })?;
        ensure!(changed == 1, "{changed} orders were changed");
        shop.execute_batch("COMMIT")?;
    } else {
        let sql = format!("{READ} WHERE customer_id = :customer");
        let mut statement = shop.prepare_cached(&sql)?;
        let rows = statement
            .query_map(rusqlite::named_params! { ":customer": "c-0" }, |row| row.get::<_, String>(0))?;
        ensure!(rows.count() == 1, "one order is c-0's");
    }
    Ok(since(start))
}

fn make_shop(path: &Path) -> Result<()> {
    let shop = Connection::open(path)?;
    shop.execute_batch(
        "PRAGMA journal_mode = WAL;
         CREATE TABLE orders (id TEXT, customer_id TEXT, refunded INTEGER, note TEXT);
         CREATE INDEX orders_of ON orders (customer_id);",
    )?;
    for n in 0..CLIENTS {
        let note = "Paid by card, to be delivered before the end of the week.";
        shop.execute(
            "INSERT INTO orders VALUES ('A-1', ?1, 0, ?2)",
            rusqlite::params![format!("c-{n}"), note],
        )?;
    }
    Ok(())
}

fn write_operations(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let target = |statement: &str| {
        format!(
            "[target.sql]\ndatabase = \"shop\"\nstatement = \"{statement}\"\ntables.orders.customer = \"customer_id\"\n"
        )
    };
    let refund = "name = \"refund\"\nparameters = { order = {}, amount = { role = \"amount\" } }\n";
    std::fs::write(folder.join("refund.toml"), format!("{refund}{}", target(REFUND)))?;
    let orders = format!("name = \"orders\"\n{}[personal]\nnote = \"text\"\n", target(READ));
    std::fs::write(folder.join("orders.toml"), orders)?;
    Ok(())
}

impl World {
    async fn new(folder: &Path) -> Result<Self> {
        write_operations(&folder.join("operations"))?;
        let (root, router) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let installation = InstallationId::from_parts(SystemClock.now(), 1);
        let proxy = open_proxy(folder, (&root, &router), installation).await?;
        let document = read_base(json!({
            "agent": "bench", "expires": "2099-01-01T00:00:00Z",
            "capabilities": { "refund": { "max_amount": 500, "daily_amount": 100_000_000 }, "orders": {} },
        }))?;
        let now = SystemClock.now();
        let base_claims = BaseClaims {
            key: Ids.key(now),
            installation,
            epoch: 1,
            agent: document.agent,
            policy: Digest::of_bytes(b"rules"),
            expires_at: document.expires,
            grants: document.grants,
        };
        let base = mint_base(&base_claims, &root)?;
        let root = root.verifying_key();
        let mut keys = Vec::new();
        for n in 0..CLIENTS {
            let tokens = proxy.open_case(None, &format!("c-{n}"), "case", &BTreeMap::new()).await?;
            let task = TaskClaims {
                key: Ids.key(now),
                base: base_claims.key,
                session: Ids.session(now),
                not_before: now,
                expires_at: now.plus_duration(TTL),
                grants: base_claims.grants.clone(),
                case: Some(
                    read_task(json!({
                        "task_id": "chat", "customer_token": tokens.customer_token, "case_token": tokens.case_token,
                        "granted_by": "router", "expires": "2099-01-01T00:00:00Z",
                    }))?
                    .case,
                ),
                under: Default::default(),
                plan: None,
            };
            let task = mint_task(&base, &task, &root, &router)?;
            keys.push(format!(
                "writ-base-key: {}\r\nwrit-task-key: {}\r\n",
                String::from(seal_token(&base, &root)?),
                String::from(seal_token(&task, &root)?)
            ));
        }
        let socket = folder.join("agents.sock");
        let places = ServerPlaces {
            socket: socket.clone(),
            shared: false,
            tls: None,
            router: folder.join("router.sock"),
            router_token: "bench".into(),
        };
        let stop = CancellationToken::new();
        let serving = tokio::spawn(ProxyServer::bind(places).await?.serve(proxy, stop.clone()));
        Ok(Self { socket, keys, stop, serving })
    }

    async fn client(&self, n: usize) -> Result<Client> {
        let keys = self.keys.get(n).context("a client without keys")?.clone();
        Ok(Client { stream: UnixStream::connect(&self.socket).await?, keys, answer: Vec::new() })
    }

    /// All clients at once, each with `each` requests after one another; how long each request took.
    async fn ask_at_once(&self, operation: &'static str, body: &'static str, each: u32) -> Result<Vec<u64>> {
        let mut asking = tokio::task::JoinSet::new();
        for n in 0..self.keys.len() {
            let mut client = self.client(n).await?;
            asking.spawn(async move {
                let mut took = Vec::new();
                for _ in 0..each {
                    let start = Instant::now();
                    client.ask(operation, body).await?;
                    took.push(nanos(start.elapsed()));
                }
                anyhow::Ok(took)
            });
        }
        let mut all = Vec::new();
        while let Some(took) = asking.join_next().await {
            all.extend(took??);
        }
        Ok(all)
    }
}

async fn open_proxy(
    folder: &Path,
    (root, router): (&SigningKey, &SigningKey),
    installation: InstallationId,
) -> Result<Proxy> {
    let signer = SigningKey::from_bytes(&[3; 32]);
    let config = "databases.shop = { kind = \"sqlite\", path = \"shop.db\" }";
    let targets = TargetsConfig::read_text(&folder.join("proxy.toml"), config, &|_| None);
    let Ok(targets) = targets else { bail!("the targets are malformed") };
    let egress = Arc::new(Egress::new(&EgressConfig::default(), folder)?);
    let parts = ProxyParts {
        store: Store::open(&StoreConfig::new(folder.join("proxy/proxy.db")), Arc::new(signer.clone()))?,
        signer,
        clock: Arc::new(SystemClock),
        secret: ProxySecret::from_bytes([4; SECRET_BYTES]),
        trust: Trust::Fixed(Verifier {
            root: root.verifying_key(),
            router: router.verifying_key(),
            installation,
            epoch: 1,
        }),
        operations: folder.join("operations"),
        targets: Targets::open(targets, egress),
        agents: BTreeMap::new(),
    };
    Ok(Proxy::open(parts).await?)
}

impl Client {
    /// Asks for an operation and reads the whole answer, which must be one.
    async fn ask(&mut self, operation: &str, body: &str) -> Result<()> {
        let request = format!(
            "POST /v1/operations/{operation} HTTP/1.1\r\nhost: proxy\r\n{}content-length: {}\r\n\r\n{body}",
            self.keys,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.answer.clear();
        loop {
            ensure!(self.stream.read_buf(&mut self.answer).await? > 0, "the proxy has hung up");
            let text = std::str::from_utf8(&self.answer)?;
            let Some((head, rest)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if rest.len() >= length.context("an answer without a length")?.parse::<usize>()? {
                ensure!(head.starts_with("HTTP/1.1 200"), "{text}");
                return Ok(());
            }
        }
    }
}
