//! Operations at a file of SQLite.

use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use super::*;

const CONFIG: &str = "databases.shop = { kind = \"sqlite\", path = \"shop.db\" }";

fn shop(limit: Duration) -> (World, Connection) {
    let folder = TempDir::new().expect("a folder");
    let connection = Connection::open(folder.path().join("shop.db")).expect("a database");
    connection.execute_batch(TABLES).expect("tables");
    connection
        .execute_batch(
            "CREATE TABLE numbers (n INTEGER, customer_id TEXT);
             WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 1000) INSERT INTO numbers SELECT n, '7' FROM r;",
        )
        .expect("numbers");
    (World::within(folder, SHOP, CONFIG, limit), connection)
}

fn rows_of(connection: &Connection, sql: &str) -> String {
    let mut statement = connection.prepare(sql).expect("a statement");
    let columns = statement.column_count();
    let mut rows = statement.query([]).expect("rows");
    let mut lines = Vec::new();
    while let Some(row) = rows.next().expect("a row") {
        let cell = |index| match row.get::<_, rusqlite::types::Value>(index).expect("a cell") {
            rusqlite::types::Value::Integer(number) => number.to_string(),
            rusqlite::types::Value::Text(text) => text,
            other @ (rusqlite::types::Value::Null
            | rusqlite::types::Value::Real(_)
            | rusqlite::types::Value::Blob(_)) => format!("{other:?}"),
        };
        lines.push((0..columns).map(cell).collect::<Vec<_>>().join("|"));
    }
    lines.join("\n")
}

/// A statement reads and changes rows of its customer alone, whatever its WHERE and its values say.
///
/// Rows: SLO-022
/// Rows: SLO-025 (in part: no data of another customer)
#[tokio::test]
async fn statements_stay_in_their_scope() {
    let (world, connection) = shop(Duration::from_secs(20));
    shows_scope(&world, |sql| rows_of(&connection, sql)).await;
}

/// A trial changes nothing, and a million rows are cut.
#[tokio::test]
async fn a_trial_is_taken_back_and_results_are_bounded() {
    let (world, connection) = shop(Duration::from_secs(20));
    shows_trial(&world, |sql| rows_of(&connection, sql)).await;
    shows_bounds(&world).await;
}

/// Two refunds of one order both pass: that it was refunded before is the agent's to know.
///
/// Rows: SLO-029
#[tokio::test]
async fn a_second_refund_is_performed_like_the_first() {
    let (world, connection) = shop(Duration::from_secs(20));
    for _ in 0..2 {
        let result =
            world.perform("refund", "8", json!({ "order": 3, "amount": 5 })).await.expect("a refund");
        assert_eq!(result.changed, 1);
    }
    assert_eq!(rows_of(&connection, "SELECT refunded FROM orders WHERE id = 3"), "10");
}

/// A database that is slow, held by another program, absent or none: nothing happened, within the time limit.
#[tokio::test]
async fn a_database_that_does_not_answer_has_done_nothing() {
    let (world, connection) = shop(Duration::from_secs(2));
    let slow = not_performed(world.perform("slow", "7", json!({})).await);
    assert!(slow.contains("took too long"), "{slow}");
    connection.execute_batch("BEGIN EXCLUSIVE").expect("a lock");
    let held = not_performed(world.perform("refund", "7", json!({ "order": 1, "amount": 1 })).await);
    assert!(held.contains("another program holds"), "{held}");
    connection.execute_batch("ROLLBACK").expect("an end");
    assert_eq!(
        world.perform("refund", "7", json!({ "order": 1, "amount": 1 })).await.expect("a refund").changed,
        2
    );

    let absent = World::new(SHOP, CONFIG);
    let what = not_performed(absent.perform("orders", "7", json!({})).await);
    assert!(what.contains("no such file"), "{what}");
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("shop.db"), "no database at all, but long enough".repeat(100))
        .expect("a file");
    let none = World::within(folder, SHOP, CONFIG, Duration::from_secs(5));
    let what = not_performed(none.perform("orders", "7", json!({})).await);
    assert!(what.contains("not a database"), "{what}");
}

/// Customers whose ids differ in case, or in the type they are stored as, are different customers; columns without a
/// type compare as they are stored.
#[tokio::test]
async fn customers_that_look_alike_are_not_one() {
    let folder = TempDir::new().expect("a folder");
    let connection = Connection::open(folder.path().join("shop.db")).expect("a database");
    connection
        .execute_batch(
            "CREATE TABLE a (v TEXT, customer TEXT COLLATE NOCASE); INSERT INTO a VALUES ('lower', 'anna'), ('upper', 'ANNA');
             CREATE TABLE b (v TEXT, customer); INSERT INTO b VALUES ('number', 7), ('text', '7'), ('null', NULL);
             CREATE TABLE c (v, customer TEXT); INSERT INTO c VALUES (NULL, '7'), (1.5, '7'), (x'00ff', '7'), ('t', '7'), (9223372036854775807, '7');",
        )
        .expect("tables");
    let operation = |table: &str| {
        format!(
            "[[operation]]\nname = \"{table}\"\ntarget.sql = {{ database = \"shop\", statement = \"SELECT v FROM {table}\", tables.{table}.customer = \"customer\" }}\n"
        )
    };
    let operations = ["a", "b", "c"].map(operation).concat();
    let world = World::within(folder, &operations, CONFIG, Duration::from_secs(20));
    assert_eq!(world.read("a", "anna", json!({})).await, [[json!("lower")]]);
    assert_eq!(world.read("b", "7", json!({})).await, [[json!("text")]]);
    let every = world.read("c", "7", json!({})).await;
    assert_eq!(every, [[json!(null)], [json!(1.5)], [json!("\\x00ff")], [json!("t")], [json!(i64::MAX)]]);
    for bad in ["", "a\0b", &"7".repeat(300)] {
        let what = not_performed(world.perform("a", bad, json!({})).await);
        assert!(what.contains("usable ids"), "{what}");
    }
}

/// A permit for another operation performs nothing, and neither does one that came too late.
#[tokio::test]
async fn a_permit_performs_its_own_operation_alone() {
    let (world, connection) = shop(Duration::from_secs(20));
    let mut parameters =
        BTreeMap::from([("order", "1"), ("amount", "1")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    parameters.extend(tokens());
    let same = |_: &str, text: &str| Some(text.to_owned());
    let permit = |operation: &str| {
        let action =
            Action::Operate(Operate { operation: operation.to_owned(), parameters: parameters.clone() });
        door::permit_action(door::prepare_action(action))
    };
    let refund = world.operations.get("refund").expect("an operation");
    let other =
        world.targets.perform(permit("orders").await, door::NOW, refund, &scope("7"), "k", &same).await;
    assert!(not_performed(other).contains("another operation"));
    let orders = world.operations.get("orders").expect("an operation");
    let late = writ_types::unit::Timestamp::from_millis(door::NOW.as_millis() + 86_400_000);
    let late = world.targets.perform(permit("orders").await, late, orders, &scope("7"), "k", &same).await;
    assert!(not_performed(late).contains("expired"));
    // Tokens become values; one of another case is none.
    let none = |_: &str, _: &str| None;
    let foreign =
        world.targets.perform(permit("orders").await, door::NOW, orders, &scope("7"), "k", &none).await;
    assert!(not_performed(foreign).contains("another case"));
    // What was put in place of a token is a value like any other.
    let long =
        |name: &str, text: &str| Some(if name == "order" { "1".repeat(70_000) } else { text.to_owned() });
    let outside =
        world.targets.perform(permit("refund").await, door::NOW, refund, &scope("7"), "k", &long).await;
    assert!(not_performed(outside).contains("outside its declaration"));
    assert_eq!(rows_of(&connection, "SELECT sum(refunded) FROM orders"), "5");
}
