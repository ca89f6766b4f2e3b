//! `writ operations`.

use rusqlite::Connection;
use serde_json::json;

use super::{Home, code, text};

const REFUND: &str = r#"
name = "refund"
parameters.order = {}
parameters.amount = { role = "amount", maximum = 500 }
personal = { note = "text" }
[target.sql]
database = "shop"
statement = "UPDATE orders SET refunded = refunded + :amount WHERE id = :order RETURNING id, note, refunded"
tables.orders.customer = "customer_id"
"#;

fn shop() -> (Home, Connection) {
    let home = Home::ready();
    let (proxy, operations) = (home.root().join("proxy"), home.root().join("operations"));
    for folder in [&proxy, &operations] {
        std::fs::create_dir_all(folder).expect("a folder");
    }
    std::fs::write(operations.join("refund.toml"), REFUND).expect("a file");
    let config = "other = 1\ntargets.databases.shop = { kind = \"sqlite\", path = \"shop.db\" }\n";
    std::fs::write(proxy.join("proxy.toml"), config).expect("a file");
    let connection = Connection::open(proxy.join("shop.db")).expect("a database");
    let tables = "CREATE TABLE orders (id TEXT, customer_id INTEGER, note TEXT, refunded INTEGER);
                  INSERT INTO orders VALUES ('1', 7, 'mine', 0), ('2', 8, 'theirs', 0);";
    connection.execute_batch(tables).expect("tables");
    (home, connection)
}

/// A declared operation is checked, listed, and tried with the scope of a customer; what was tried is taken back.
#[test]
fn operations_are_checked_listed_and_tried() {
    let (home, connection) = shop();
    let checked = home.run(&["operations", "check"]);
    assert_eq!((code(&checked), text(&checked).as_str()), (0, "1 operations, no mistake\n"));
    let listed = home.json(&["operations", "list"]);
    let one = &listed["operations"][0];
    assert_eq!(one["name"], "refund");
    assert_eq!(one["target"], json!({ "kind": "sql", "name": "shop" }));
    assert_eq!(one["personal"], json!({ "note": "text" }));
    let tried = |customer: &str, amount: &str| {
        let amount = format!("amount={amount}");
        home.json(&["operations", "test", "refund", "--customer", customer, "-p", "order=1", "-p", &amount])
    };
    let own = tried("7", "500");
    assert_eq!(own["rows"], json!([{ "id": "1", "note": "mine", "refunded": 500 }]));
    assert_eq!((&own["changed"], &own["taken_back"]), (&json!(1), &json!(true)));
    assert_eq!(tried("8", "500")["changed"], 0, "an order of another customer");
    let over =
        home.run(&["operations", "test", "refund", "--customer", "7", "-p", "order=1", "-p", "amount=501"]);
    assert_eq!(code(&over), 2, "{}", text(&over));
    let sum: i64 =
        connection.query_row("SELECT sum(refunded) FROM orders", [], |row| row.get(0)).expect("a sum");
    assert_eq!(sum, 0);
}

/// Every mistake is named with its file and line, for people and programs.
#[test]
fn mistakes_are_named_by_line() {
    let (home, _connection) = shop();
    let folder = home.root().join("operations");
    let bad = REFUND.replace("refund\"", "other\"").replace("tables.orders.customer", "tables.orders.case");
    std::fs::write(folder.join("bad.toml"), bad).expect("a file");
    std::fs::write(folder.join("worse.toml"), "name = \"x\"\n\n[target.sql\n").expect("a file");
    let checked = home.run(&["operations", "check"]);
    assert_eq!(code(&checked), 3);
    let shown = text(&checked);
    for part in ["bad.toml:9: the table 'orders' has no scope column", "worse.toml:3: "] {
        assert!(shown.contains(part), "{shown}");
    }
    let failure = text(&home.run(&["operations", "list", "--json"]));
    assert!(failure.contains("\"operations.declaration\""), "{failure}");
}
