//! The shop at a server of PostgreSQL that logs every statement with its values, and the customers whose rows they touch.

use std::collections::{BTreeMap, BTreeSet};

use writ_testbed::postgres_server::PostgresServer;
use writ_testkit::fleet::shop::{CUSTOMERS, ORDERS_EACH, ShopChange, ShopCustomer, customer_at, order_of};

use super::random::Asked;

/// Every statement is logged with the name of its client; a parameter is never cut.
const SETTINGS: [&str; 3] = ["log_statement=all", "log_parameter_max_length=-1", "log_line_prefix=%a:"];
/// The name of the proxy's connections, as the log begins their lines.
const PROXY: &str = "writ:";
/// The tables, and the triggers that note changes, as the shop has them at SQLite.
const SCHEMA: &str = "
    CREATE TABLE customers (id text PRIMARY KEY, name text NOT NULL, email text NOT NULL, address text NOT NULL);
    CREATE TABLE orders (id text PRIMARY KEY, customer_id text NOT NULL REFERENCES customers, item text NOT NULL,
                         price bigint NOT NULL, refunded bigint NOT NULL DEFAULT 0);
    CREATE TABLE changes (n bigint GENERATED ALWAYS AS IDENTITY, subject text, customer_id text, amount bigint);
    CREATE FUNCTION note_refund() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO changes (subject, customer_id, amount) VALUES (new.id, new.customer_id, new.refunded - old.refunded);
        RETURN NULL; END $$;
    CREATE TRIGGER note_refund AFTER UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION note_refund();
    CREATE FUNCTION note_address() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO changes (subject, customer_id, amount) VALUES ('address', new.id, 0);
        RETURN NULL; END $$;
    CREATE TRIGGER note_address AFTER UPDATE ON customers FOR EACH ROW EXECUTE FUNCTION note_address();";
/// Each operation, by words that its statement alone has; the first that fits counts.
const STATEMENTS: [(&str, &str); 4] = [
    ("UPDATE orders", "refund"),
    ("FROM orders", "read_orders"),
    ("address", "read_customer"),
    ("FROM customers", "send_email"),
];
/// What ends or begins a transaction, or sets something up.
const FRAMES: [&str; 4] = ["BEGIN", "COMMIT", "ROLLBACK", "SET"];

/// A shop whose server logs.
pub(super) struct LoggedShop {
    server: PostgresServer,
}

/// A statement, as the server has logged it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LoggedStatement {
    sql: String,
    values: Vec<String>,
}

/// An operation at the database: its name, the customer that it is held to, and its other values.
type Deed = (String, String, Vec<String>);

impl LoggedShop {
    pub(super) fn start() -> Self {
        let server = PostgresServer::start(&SETTINGS).expect("a server");
        let mut filling = SCHEMA.to_owned();
        for place in 0..CUSTOMERS {
            let ShopCustomer { id, name, email, address } = customer_at(place);
            filling.push_str(&format!(
                "INSERT INTO customers VALUES ('{id}', '{name}', '{email}', '{address}');"
            ));
            for order in 0..ORDERS_EACH {
                let order = order_of(place, order);
                filling.push_str(&format!("INSERT INTO orders VALUES ('{order}', '{id}', 'lamp', 9000, 0);"));
            }
        }
        server.query(&filling).expect("a shop");
        Self { server }
    }

    /// The settings of the proxy's database.
    pub(super) fn settings(&self) -> String {
        let socket = self.server.socket_folder().display();
        format!("kind = \"postgres\"\nsocket = \"{socket}\"\ndatabase = \"writ\"\nuser = \"writ\"")
    }

    /// The changes that the triggers have noted, oldest first.
    pub(super) fn changes(&self) -> Vec<ShopChange> {
        let rows = self.server.query("SELECT subject, customer_id, amount FROM changes ORDER BY n");
        let rows = rows.expect("rows");
        rows.lines()
            .map(|row| {
                let [subject, customer, amount] =
                    row.split('|').collect::<Vec<_>>().try_into().expect("columns");
                let amount = amount.parse().expect("a number");
                ShopChange { subject: subject.to_owned(), customer: customer.to_owned(), amount }
            })
            .collect()
    }

    pub(super) fn read_log(&self) -> String {
        self.server.read_log().expect("reads")
    }

    /// Lists what the log has and should not: a statement without the scope of one customer, one that touches rows of another than its
    /// scope's, one that no answered request of that customer's case explains; and an answered request that it has no statement of.
    pub(super) fn find_strays(&self, log: &str, asked: &[Asked]) -> Vec<String> {
        let (statements, mut strays) = read_statements(log);
        let mut logged: BTreeMap<Deed, usize> = BTreeMap::new();
        for statement in &statements {
            match statement.deed() {
                Some(deed) => *logged.entry(deed).or_default() += 1,
                None => strays.push(format!("no scope: {statement:?}")),
            }
        }
        let different: BTreeSet<&LoggedStatement> = statements.iter().collect();
        for statement in different.into_iter().filter(|one| one.sql.starts_with("SELECT ")) {
            let scope = statement.deed().map(|(_, customer, _)| customer);
            let owners = self.find_owners(statement);
            if owners.iter().any(|owner| Some(owner) != scope.as_ref()) {
                strays.push(format!("rows of {owners:?}: {statement:?}"));
            }
        }
        let answered = answered_deeds(asked);
        let all: BTreeSet<&Deed> = logged.keys().chain(answered.keys()).collect();
        let differing = all.into_iter().filter(|deed| logged.get(deed) != answered.get(deed));
        strays.extend(differing.map(|deed| {
            format!("{deed:?}: logged {:?}, answered {:?}", logged.get(deed), answered.get(deed))
        }));
        strays
    }

    /// Has the server run a query again with the same values, and returns the customers whose rows it gives.
    fn find_owners(&self, LoggedStatement { sql, values }: &LoggedStatement) -> BTreeSet<String> {
        let quoted: Vec<String> =
            values.iter().map(|value| format!("'{}'", value.replace('\'', "''"))).collect();
        let given = if quoted.is_empty() { String::new() } else { format!("({})", quoted.join(", ")) };
        let rows = self.server.query(&format!("PREPARE again AS {sql}; EXECUTE again{given}"));
        let rows = rows.expect("it runs again");
        let is_there =
            |value: String| rows.contains(&format!("\"{value}\"")) || rows.lines().any(|row| row == value);
        (0..CUSTOMERS)
            .filter(|place| {
                let ShopCustomer { name, email, .. } = customer_at(*place);
                let orders = (0..ORDERS_EACH).map(|order| order_of(*place, order));
                orders.chain([name, email]).any(is_there)
            })
            .map(|place| customer_at(place).id)
            .collect()
    }
}

impl LoggedStatement {
    /// `None`: it is not held to a customer.
    fn deed(&self) -> Option<Deed> {
        // Some names are quoted.
        let plain = self.sql.replace('"', "");
        let (_, operation) = STATEMENTS.iter().find(|(words, _)| plain.contains(words))?;
        let column = if self.sql.contains("customers") { ".\"id\" = $" } else { ".\"customer_id\" = $" };
        // One table each: a second one would need a scope of its own.
        let [_, rest] = self.sql.split(column).collect::<Vec<_>>().try_into().ok()?;
        let number: usize = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
        let mut values = self.values.clone();
        let scope = number.checked_sub(1).filter(|at| *at < values.len()).map(|at| values.remove(at))?;
        Some(((*operation).to_owned(), scope, values))
    }
}

/// The operations at the database that the answers and the cases speak of.
fn answered_deeds(asked: &[Asked]) -> BTreeMap<Deed, usize> {
    let mut deeds = BTreeMap::new();
    for one in asked.iter().filter(|one| one.is_performed()) {
        let values = match one.operation {
            "refund" => {
                let amount = one.body["amount"].as_i64().expect("a number").to_string();
                vec![amount, one.body["order"].as_str().expect("a text").to_owned()]
            }
            _ => Vec::new(),
        };
        let deed = (one.operation.to_owned(), customer_at(one.customer).id, values);
        *deeds.entry(deed).or_default() += 1;
    }
    // The proxy itself reads of its customer once for each case.
    let cases: BTreeSet<(&str, u32)> = asked.iter().map(|one| (one.case.as_str(), one.customer)).collect();
    for (_, customer) in cases {
        let deed = ("read_customer".to_owned(), customer_at(customer).id, Vec::new());
        *deeds.entry(deed).or_default() += 1;
    }
    deeds
}

/// The statements of the proxy, and its lines that are not understood. A line that begins with a tab goes on with the one before.
fn read_statements(log: &str) -> (Vec<LoggedStatement>, Vec<String>) {
    let (mut statements, mut strays) = (Vec::<LoggedStatement>::new(), Vec::new());
    let whole = log.replace("\n\t", " ");
    for line in whole.lines().filter_map(|line| line.strip_prefix(PROXY)) {
        if let Some(frame) = line.strip_prefix("LOG:  statement: ") {
            let is_frame = |part: &str| FRAMES.iter().any(|word| part.trim().starts_with(word));
            if !frame.split(';').all(is_frame) {
                strays.push(line.to_owned());
            }
        } else if let Some((_, sql)) =
            line.strip_prefix("LOG:  execute ").and_then(|rest| rest.split_once(": "))
        {
            statements.push(LoggedStatement { sql: sql.to_owned(), values: Vec::new() });
        } else if let (Some(given), Some(last)) =
            (line.strip_prefix("DETAIL:  parameters: "), statements.last_mut())
        {
            last.values = read_values(given);
        } else {
            strays.push(line.to_owned());
        }
    }
    (statements, strays)
}

/// The values of `$1 = 'a', $2 = 'it''s'`.
fn read_values(given: &str) -> Vec<String> {
    let mut values = Vec::new();
    let mut rest = given;
    while let Some((_, from)) = rest.split_once(" = '") {
        let mut value = String::new();
        let mut chars = from.char_indices().peekable();
        let mut end = from.len();
        while let Some((at, c)) = chars.next() {
            if c != '\'' {
                value.push(c);
            } else if chars.next_if(|(_, next)| *next == '\'').is_some() {
                value.push('\'');
            } else {
                end = at + 1;
                break;
            }
        }
        values.push(value);
        rest = &from[end..];
    }
    values
}
