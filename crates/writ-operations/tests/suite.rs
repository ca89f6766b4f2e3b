//! Operations at real databases, an API over HTTP and a mail server.

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on ends")]

#[path = "suite/declarations.rs"]
mod declarations;
#[path = "suite/http.rs"]
mod http;
#[path = "suite/mail.rs"]
mod mail;
#[path = "suite/needs_postgres.rs"]
mod needs_postgres;
#[path = "suite/sqlite.rs"]
mod sqlite;
#[path = "suite/tls.rs"]
mod tls;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use writ_egress::trust::ExtraRoots;
use writ_egress::upstream::ProxyRoutes;
use writ_egress::{Egress, EgressConfig};
use writ_operations::{OperationResult, OperationSet, PerformError, Scope, Targets, TargetsConfig};
use writ_testdoor as door;
use writ_types::action::{Action, Operate};

/// A folder with operations, and targets.
struct World {
    operations: OperationSet,
    targets: Targets,
    _folder: TempDir,
}

impl World {
    /// Reads operations, and a configuration in which `FOLDER` stands for the folder.
    fn new(operations: &str, config: &str) -> Self {
        Self::within(TempDir::new().expect("a folder"), operations, config, Duration::from_secs(20))
    }

    fn within(folder: TempDir, operations: &str, config: &str, limit: Duration) -> Self {
        Self::trusting(folder, operations, config, limit, "")
    }

    /// As [`Self::within`], with certificates in PEM that are trusted besides the system's.
    fn trusting(folder: TempDir, operations: &str, config: &str, limit: Duration, pem: &str) -> Self {
        let declared = folder.path().join("operations");
        std::fs::create_dir_all(&declared).expect("a folder");
        std::fs::write(declared.join("all.toml"), operations).expect("a file");
        let operations = OperationSet::load(&declared).unwrap_or_else(|errors| panic!("{errors:#?}"));
        let secrets = |name: &str| (name == "planted").then(|| SecretString::from("pl4nted-s3cret"));
        let config = TargetsConfig::read_text(&folder.path().join("proxy.toml"), config, &secrets);
        let config = config.unwrap_or_else(|errors| panic!("{errors:#?}")).with_time_limit(limit);
        let mut egress = Egress::new(&EgressConfig::default(), folder.path()).expect("a way out");
        if !pem.is_empty() {
            let mut roots = ExtraRoots::default();
            roots.add_pem(pem.as_bytes()).expect("a certificate");
            let routes = ProxyRoutes::default();
            egress = egress.with_network(routes, roots, &ExtraRoots::default()).expect("a way out");
        }
        let targets = Targets::open(config, Arc::new(egress));
        assert_eq!(targets.find_missing(&operations), []);
        Self { operations, targets, _folder: folder }
    }

    /// Performs an operation with a permit of the real door.
    async fn perform(
        &self,
        name: &str,
        customer: &str,
        parameters: Value,
    ) -> Result<OperationResult, PerformError> {
        let operation = self.operations.get(name).expect("a declared operation");
        let Value::Object(parameters) = parameters else { panic!("parameters are an object") };
        let mut parameters = operation.check_parameters(&parameters).expect("good parameters");
        parameters.extend(tokens());
        let action = Action::Operate(Operate { operation: name.to_owned(), parameters });
        let permit = door::permit_action(door::prepare_action(action)).await;
        self.targets
            .perform(permit, door::NOW, operation, &scope(customer), "key-1", &|_, text| {
                Some(text.to_owned())
            })
            .await
    }

    /// The rows of a result, as JSON without kinds.
    async fn read(&self, name: &str, customer: &str, parameters: Value) -> Vec<Vec<Value>> {
        values(&self.perform(name, customer, parameters).await.expect("a result"))
    }
}

/// The tokens of the case, which the key of a request names.
fn tokens() -> [(String, String); 2] {
    [("customer_token", "cust_tk_1"), ("case_token", "case_tk_1")].map(|(a, b)| (a.to_owned(), b.to_owned()))
}

fn scope(customer: &str) -> Scope {
    Scope { customer: customer.to_owned(), case: "case-1".to_owned() }
}

fn values(result: &OperationResult) -> Vec<Vec<Value>> {
    result.rows.iter().map(|row| row.iter().map(|(_, value, _)| value.clone()).collect()).collect()
}

fn not_performed(result: Result<OperationResult, PerformError>) -> String {
    match result {
        Err(PerformError::NotPerformed { what }) => what,
        other => panic!("{other:?}"),
    }
}

fn unknown(result: Result<OperationResult, PerformError>) -> String {
    match result {
        Err(PerformError::Unknown { what }) => what,
        other => panic!("{other:?}"),
    }
}

/// The operations that both databases are tried with.
const SHOP: &str = r#"
[[operation]]
name = "orders"
target.sql = { database = "shop", statement = "SELECT id, note, refunded FROM orders ORDER BY id", tables.orders.customer = "customer_id" }
personal.note = "text"

[[operation]]
name = "order"
parameters.order = { type = "integer" }
target.sql = { database = "shop", statement = "SELECT id FROM orders WHERE id = :order OR 1 = 1", tables.orders.customer = "customer_id" }

[[operation]]
name = "items"
[operation.target.sql]
database = "shop"
statement = """
    SELECT i.name AS item, o.id AS id, (SELECT count(*) FROM items) AS n
    FROM items AS i JOIN orders AS o ON o.id = i.order_id
    WHERE EXISTS (SELECT 1 FROM orders WHERE orders.id = i.order_id)
    UNION ALL SELECT name, 0, 0 FROM items WHERE name LIKE 'x%' ORDER BY 1 """
tables = { items = { customer = "owner" }, orders = { customer = "customer_id" } }

[[operation]]
name = "refund"
parameters.order = { type = "integer" }
parameters.amount = { role = "amount", minimum = 1 }
target.sql = { database = "shop", statement = "UPDATE orders SET refunded = refunded + :amount WHERE id = :order OR 1 = 1", tables.orders.customer = "customer_id" }

[[operation]]
name = "remark"
parameters.order = { type = "integer" }
parameters.note = { type = "string", optional = true }
target.sql = { database = "shop", statement = "UPDATE orders SET note = :note WHERE id = :order RETURNING id, note", tables.orders.customer = "customer_id" }

[[operation]]
name = "forget"
target.sql = { database = "shop", statement = "DELETE FROM orders WHERE refunded > - - 0 OR id IN (SELECT order_id FROM items)", tables = { orders = { customer = "customer_id" }, items = { customer = "owner" } } }

[[operation]]
name = "open"
parameters.note = {}
idempotency = "request"
target.sql = { database = "shop", statement = "INSERT INTO orders (id, note, refunded, request) SELECT 50, :note, 0, :request RETURNING id", tables.orders = { customer = "customer_id", case = "case_id" } }

[[operation]]
name = "pay"
parameters.id = { type = "integer" }
parameters.amount = { role = "amount" }
target.sql = { database = "shop", statement = "INSERT INTO payments (id, amount) VALUES (:id, :amount)", tables.payments.customer = "customer_id" }

[[operation]]
name = "cases"
target.sql = { database = "shop", statement = "SELECT id, case_id FROM orders ORDER BY id", tables.orders = { customer = "customer_id", case = "case_id" } }

[[operation]]
name = "many"
target.sql = { database = "shop", statement = "SELECT a.n AS n FROM numbers AS a, numbers AS b", tables.numbers.customer = "customer_id" }

[[operation]]
name = "slow"
target.sql = { database = "shop", statement = "SELECT count(*) AS n FROM numbers AS a, numbers AS b, numbers AS c, numbers AS d WHERE a.n + b.n + c.n + d.n = 0", tables.numbers.customer = "customer_id" }

[[operation]]
name = "leak"
target.sql = { database = "shop", statement = "SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM bare WHERE bare.name = 'other')", tables = { orders = { customer = "customer_id" }, bare = { customer = "customer_id" } } }
"#;

/// The same tables in both databases: two customers, and numbers for a million rows.
const TABLES: &str = "
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, case_id TEXT, note TEXT, refunded INTEGER NOT NULL, request TEXT UNIQUE);
    CREATE TABLE items (order_id INTEGER, owner TEXT, name TEXT);
    CREATE TABLE bare (name TEXT);
    CREATE TABLE payments (id INTEGER PRIMARY KEY, customer_id INTEGER, amount INTEGER CHECK (amount <> 13));
    INSERT INTO orders VALUES (1, 7, 'case-1', 'mine', 0, NULL), (2, 7, 'case-2', NULL, 5, NULL), (3, 8, 'case-1', 'theirs', 0, NULL);
    INSERT INTO items VALUES (1, '7', 'book'), (3, '8', 'xylophone');
    INSERT INTO bare VALUES ('other');";

/// What an agent puts into texts to get out of them.
const HOSTILE: [&str; 10] = [
    "'; DROP TABLE orders; --",
    "' OR '1'='1",
    "1; DELETE FROM orders",
    "\\'; DELETE FROM orders; --",
    "a\r\nBcc: evil@example.org\r\n\r\n.\r\nMAIL FROM:<x@y>",
    "{{order}} {order} ${order} :order $1 ?1",
    "",
    "/* x */ UNION SELECT 1",
    "\u{202e}\u{feff}𝕏 漢字",
    "%' --\n",
];

/// What is true of both databases.
async fn shows_scope(world: &World, rows: impl Fn(&str) -> String) {
    assert_eq!(
        world.read("orders", "7", json!({})).await,
        [[json!(1), json!("mine"), json!(0)], [json!(2), Value::Null, json!(5)]]
    );
    assert_eq!(world.read("orders", "9", json!({})).await, Vec::<Vec<Value>>::new());
    assert_eq!(
        world.read("order", "7", json!({ "order": 3 })).await,
        [[json!(1)], [json!(2)]],
        "OR 1 = 1 stays inside"
    );
    assert_eq!(world.read("items", "7", json!({})).await, [[json!("book"), json!(1), json!(1)]]);
    assert_eq!(
        world.read("cases", "7", json!({})).await,
        [[json!(1), json!("case-1")]],
        "another case of the customer"
    );
    // A refund of everything is one of the customer's own rows.
    let refunded = world.perform("refund", "7", json!({ "order": 3, "amount": 10 })).await.expect("a refund");
    assert_eq!((refunded.changed, refunded.rows.len(), refunded.truncated), (2, 0, false));
    assert_eq!(rows("SELECT refunded FROM orders ORDER BY id"), "10\n15\n0");
    let other = world.perform("remark", "7", json!({ "order": 3, "note": "x" })).await.expect("a result");
    assert_eq!((other.changed, other.rows.len()), (0, 0), "a row of another customer");
    for text in HOSTILE {
        let result =
            world.perform("remark", "7", json!({ "order": 1, "note": text })).await.expect("a result");
        assert_eq!((result.changed, values(&result)), (1, vec![vec![json!(1), json!(text)]]), "{text:?}");
    }
    let empty = world.perform("remark", "7", json!({ "order": 1 })).await.expect("a result");
    assert_eq!(values(&empty), [[json!(1), Value::Null]]);
    // The inserted row is the scope's, and the key of the request is used once.
    let opened = world.perform("open", "7", json!({ "note": "n" })).await.expect("a result");
    assert_eq!((opened.changed, values(&opened)), (1, vec![vec![json!(50)]]));
    assert_eq!(rows("SELECT customer_id, case_id, request FROM orders WHERE id = 50"), "7|case-1|key-1");
    let again = world.perform("open", "7", json!({ "note": "n" })).await;
    assert!(matches!(&again, Err(PerformError::Taken { what }) if what.contains("constraint")), "{again:?}");
    // A value that the table does not take says nothing of another row.
    let unfit = not_performed(world.perform("pay", "7", json!({ "id": 1, "amount": 13 })).await);
    assert!(unfit.contains("constraint"), "{unfit}");
    // A minus before a minus is no comment that the scope would be in.
    let forgotten = world.perform("forget", "8", json!({})).await.expect("a result");
    assert_eq!((forgotten.changed, rows("SELECT id FROM orders ORDER BY id")), (1, "1\n2\n50".to_owned()));
    // The column of an outer query does not stand in for a missing one.
    let leak = not_performed(world.perform("leak", "7", json!({})).await);
    assert!(leak.contains("customer_id"), "{leak}");
}

/// What a trial leaves.
async fn shows_trial(world: &World, rows: impl Fn(&str) -> String) {
    let operation = world.operations.get("refund").expect("a declared operation");
    let parameters =
        BTreeMap::from([("order", "1"), ("amount", "9")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    let tried = world
        .targets
        .rehearse(operation, &parameters, &scope("7"), Duration::from_secs(20))
        .await
        .expect("a trial");
    assert_eq!(tried.changed, 2);
    assert_eq!(rows("SELECT sum(refunded) FROM orders"), "5", "taken back");
}

/// What is bounded.
async fn shows_bounds(world: &World) {
    let many = world.perform("many", "7", json!({})).await.expect("a result");
    assert_eq!((many.rows.len(), many.truncated), (1_000, true), "a million rows");
}

fn load(operations: &str) -> Vec<(usize, String)> {
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("a.toml"), operations).expect("a file");
    load_folder(folder.path())
}

fn load_folder(folder: &Path) -> Vec<(usize, String)> {
    let errors = OperationSet::load(folder).map(|_| Vec::new()).unwrap_or_else(|errors| errors);
    assert!(errors.iter().all(|error| !error.hint.is_empty()), "{errors:?}");
    errors.into_iter().map(|error| (error.line, error.what)).collect()
}

fn object(value: Value) -> Map<String, Value> {
    if let Value::Object(map) = value { map } else { panic!("an object") }
}
