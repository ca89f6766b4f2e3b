//! Operations at a server of PostgreSQL.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use writ_testbed::postgres_server::PostgresServer;

use super::tls::Identity;
use super::*;

const NUMBERS: &str =
    "CREATE TABLE numbers AS SELECT n, '7'::text AS customer_id FROM generate_series(1, 1000) AS n;";

fn start(sql: &str) -> PostgresServer {
    let server = PostgresServer::start(&[]).expect("a server");
    server.query(sql).expect("tables");
    server
}

fn world(server: &PostgresServer, operations: &str, limit: Duration) -> World {
    let socket = server.socket_folder().display();
    let config = format!(
        "databases.shop = {{ kind = \"postgres\", socket = \"{socket}\", database = \"writ\", user = \"writ\" }}"
    );
    World::within(TempDir::new().expect("a folder"), operations, &config, limit)
}

/// The same as at SQLite, and its types: customers are numbers in one table and texts in another.
///
/// Rows: SLO-022
/// Rows: SLO-025 (in part: no data of another customer)
#[tokio::test]
async fn statements_stay_in_their_scope() {
    let server = start(&[TABLES, NUMBERS].concat());
    let world = world(&server, SHOP, Duration::from_secs(20));
    let rows = |sql: &str| server.query(sql).expect("rows");
    shows_trial(&world, rows).await;
    shows_bounds(&world).await;
    shows_scope(&world, rows).await;
    // An id that is no number is no row's, and no error of the server is repeated.
    let what = not_performed(world.perform("orders", "7 OR 1=1", json!({})).await);
    assert!(what.contains("22P02") && !what.contains("OR 1=1"), "{what}");
}

/// Every type of the server has a form here, NULL everywhere included.
#[tokio::test]
async fn values_of_every_type_come_out() {
    let server = start(
        "CREATE TYPE mood AS ENUM ('fine', 'bad');
         CREATE TABLE t (customer varchar(10), n numeric(40, 20), f float8, b bool, d date, z timestamptz, j jsonb, a int[], y bytea, m mood, u uuid, i inet, c char(4));
         INSERT INTO t VALUES ('7', 1234567890.12345678901234567890, 'NaN', true, '2026-02-28', '2026-02-28 12:00:00+00', '{\"a\": [1, null]}', '{1,2,NULL}', '\\x00ff', 'bad', '00000000-0000-0000-0000-000000000001', '10.0.0.1/8', 'ab');
         INSERT INTO t (customer) VALUES ('7'); INSERT INTO t (customer, n) VALUES (NULL, 1);",
    );
    let operations = r#"
[[operation]]
name = "all"
target.sql = { database = "shop", statement = "SELECT n, f, b, d, z, j, a, y, m, u, i, c, 'x' AS x FROM t ORDER BY b", tables.t.customer = "customer" }
[[operation]]
name = "find"
parameters = { m = {}, n = { type = "number" }, b = { type = "boolean" }, d = { optional = true } }
target.sql = { database = "shop", statement = "SELECT count(*) AS n FROM t WHERE m = :m AND n > :n AND b = :b AND (d = :d OR :d IS NULL)", tables.t.customer = "customer" }
"#;
    let world = world(&server, operations, Duration::from_secs(20));
    let rows = world.read("all", "7", json!({})).await;
    let full = json!([
        "1234567890.12345678901234567890", "NaN", true, "2026-02-28", "2026-02-28T12:00:00+00:00", { "a": [1, null] },
        [1, 2, null], "\\x00ff", "bad", "00000000-0000-0000-0000-000000000001", "10.0.0.1/8", "ab  ", "x"
    ]);
    let mut empty = vec![json!(null); 12];
    empty.push(json!("x"));
    assert_eq!(json!(rows), json!([full, empty]));
    let given = |m: &str| json!({ "m": m, "n": 0.5, "b": true, "d": "2026-02-28" });
    assert_eq!(world.read("find", "7", given("bad")).await, [[json!(1)]]);
    assert_eq!(world.read("find", "7", json!({ "m": "bad", "n": 1, "b": true })).await, [[json!(1)]]);
    let what = not_performed(world.perform("find", "7", given("s3cret")).await);
    assert!(what.contains("22P02") && !what.contains("s3cret"), "{what}");
}

/// A server that is slow or gone has done nothing; when it is back, operations work again.
#[tokio::test]
async fn a_server_that_does_not_answer_has_done_nothing() {
    let server = start(&[TABLES, NUMBERS].concat());
    let world = world(&server, SHOP, Duration::from_secs(4));
    let slow = not_performed(world.perform("slow", "7", json!({})).await);
    assert!(slow.contains("too long") || slow.contains("in time"), "{slow}");
    let orders = world.read("orders", "7", json!({})).await;
    server.stop().expect("an end");
    let gone = not_performed(world.perform("refund", "7", json!({ "order": 1, "amount": 1 })).await);
    assert!(gone.contains("database"), "{gone}");
    server.resume(&[]).expect("a start");
    assert_eq!(world.read("orders", "7", json!({})).await, orders);
}

/// A change that a constraint stops at its end was not performed.
#[tokio::test]
async fn a_commit_that_the_server_refuses_did_nothing() {
    let server = start(
        "CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE t (customer text, p int REFERENCES p DEFERRABLE INITIALLY DEFERRED);",
    );
    let operations = r#"
name = "add"
target.sql = { database = "shop", statement = "INSERT INTO t (p) VALUES (5)", tables.t.customer = "customer" }
"#;
    let world = world(&server, operations, Duration::from_secs(20));
    let what = not_performed(world.perform("add", "7", json!({})).await);
    assert!(what.contains("did not commit") && what.contains("23503"), "{what}");
    assert_eq!(server.query("SELECT count(*) FROM t").expect("rows"), "0");
}

/// Over the network it is TLS with a good certificate, or nothing.
///
/// Rows: SLO-022 (in part: TLS)
#[tokio::test]
async fn a_server_on_the_network_is_reached_over_tls_alone() {
    let (good, other) = (Identity::new(), Identity::new());
    let server = start(TABLES);
    let folder = server.socket_folder();
    let owner = std::fs::metadata(folder).expect("is there");
    let place = |name: &str, text: &str, mode: u32| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("writes");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("is its owner");
        std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).expect("may give it away");
        path
    };
    let certificate = place("tls.pem", &good.certificate, 0o644);
    let key = place("tls.key", &good.key, 0o600);
    // The server itself refuses everything but TLS.
    let rules = place("hba.conf", "local all all trust\nhostssl all all 127.0.0.1/32 trust\n", 0o600);
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("has one").port();
    server.stop().expect("an end");
    let settings = [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        "ssl=on".to_owned(),
        format!("ssl_cert_file={}", certificate.display()),
        format!("ssl_key_file={}", key.display()),
        format!("hba_file={}", rules.display()),
    ];
    server.resume(&settings.each_ref().map(String::as_str)).expect("a start");
    let orders = async |host: &str, tls: bool, pem: &str| {
        let config = format!(
            "databases.shop = {{ kind = \"postgres\", host = \"{host}:{port}\", tls = {tls}, database = \"writ\", user = \"writ\" }}"
        );
        let folder = TempDir::new().expect("a folder");
        let world = World::trusting(folder, SHOP, &config, Duration::from_secs(20), pem);
        world.perform("orders", "7", json!({})).await
    };
    assert_eq!(orders("localhost", true, &good.certificate).await.expect("rows").rows.len(), 2);
    for (host, tls, pem) in [
        ("localhost", true, &other.certificate),
        ("127.0.0.1", true, &good.certificate),
        ("localhost", false, &good.certificate),
    ] {
        let what = not_performed(orders(host, tls, pem).await);
        assert!(what.contains("database"), "{host} {tls}: {what}");
    }
}
