//! The shop: customers and orders in SQLite, and a log of every change that the database writes itself.

use std::path::Path;

use rusqlite::Connection;

/// The number of customers.
pub const CUSTOMERS: u32 = 50;
/// The number of the first customer.
pub const FIRST_CUSTOMER: u32 = 101;
/// The number of orders of each customer.
pub const ORDERS_EACH: u32 = 2;

const FIRST_NAMES: [&str; 10] =
    ["Ada", "Bela", "Cara", "Dora", "Enno", "Fritz", "Greta", "Hedda", "Ida", "Jonas"];
const LAST_NAMES: [&str; 5] = ["Ahrens", "Brook", "Castle", "Dorn", "Elster"];
const STREETS: [&str; 5] = ["Mill Lane", "Station Road", "High Street", "Orchard Way", "Harbour Row"];
const ITEMS: [&str; 4] = ["kettle", "lamp", "chair", "radio"];

/// The tables, and the triggers that write the log: what a program says about itself counts for nothing there.
const SCHEMA: &str = "
    CREATE TABLE customers (id TEXT PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL, address TEXT NOT NULL);
    CREATE TABLE orders (id TEXT PRIMARY KEY, customer_id TEXT NOT NULL REFERENCES customers, item TEXT NOT NULL,
                         price INTEGER NOT NULL, refunded INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE changes (n INTEGER PRIMARY KEY, subject TEXT NOT NULL, customer_id TEXT NOT NULL, amount INTEGER NOT NULL);
    CREATE TRIGGER note_refund AFTER UPDATE OF refunded ON orders BEGIN
        INSERT INTO changes (subject, customer_id, amount) VALUES (new.id, new.customer_id, new.refunded - old.refunded);
    END;
    CREATE TRIGGER note_address AFTER UPDATE OF address ON customers BEGIN
        INSERT INTO changes (subject, customer_id, amount) VALUES ('address', new.id, 0);
    END;";

/// A customer of the shop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShopCustomer {
    /// Its number.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its address of mail.
    pub email: String,
    /// Its postal address.
    pub address: String,
}

/// A change that the database has noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShopChange {
    /// The order, or `address`.
    pub subject: String,
    /// The customer whose row changed.
    pub customer: String,
    /// The amount by which the refund of the order rose.
    pub amount: i64,
}

/// Returns a customer by its place, from 0.
pub fn customer_at(place: u32) -> ShopCustomer {
    let pick = |list: &[&str], at: u32| {
        let at = usize::try_from(at).unwrap_or(0);
        list.get(at.checked_rem(list.len()).unwrap_or(0)).map(|&text| text.to_owned()).unwrap_or_default()
    };
    let (first, last) = (pick(&FIRST_NAMES, place), pick(&LAST_NAMES, place / 10));
    let street = pick(&STREETS, place.wrapping_mul(3));
    ShopCustomer {
        id: (FIRST_CUSTOMER.wrapping_add(place)).to_string(),
        email: format!("{}.{}@example.org", first.to_lowercase(), last.to_lowercase()),
        name: format!("{first} {last}"),
        address: format!("{} {street}", place.wrapping_add(1)),
    }
}

/// Returns the number of an order of a customer, both by their places.
pub fn order_of(place: u32, order: u32) -> String {
    // A letter in front: the number of the customer is no word of its own in it.
    format!("O{}{}", FIRST_CUSTOMER.wrapping_add(place), order.wrapping_add(1))
}

/// Makes the database of the shop.
///
/// # Errors
///
/// If it cannot be written.
pub fn make_shop(path: &Path) -> Result<(), rusqlite::Error> {
    let mut database = Connection::open(path)?;
    database.execute_batch(SCHEMA)?;
    let filling = database.transaction()?;
    for place in 0..CUSTOMERS {
        let ShopCustomer { id, name, email, address } = customer_at(place);
        filling.execute("INSERT INTO customers VALUES (?1, ?2, ?3, ?4)", [&id, &name, &email, &address])?;
        for order in 0..ORDERS_EACH {
            let item = usize::try_from(place.wrapping_add(order)).unwrap_or(0);
            let item = ITEMS.get(item.checked_rem(ITEMS.len()).unwrap_or(0)).copied().unwrap_or_default();
            filling.execute(
                "INSERT INTO orders (id, customer_id, item, price) VALUES (?1, ?2, ?3, 9000)",
                [order_of(place, order).as_str(), &id, item],
            )?;
        }
    }
    filling.commit()
}

/// Returns the changes that the database has noted, oldest first.
///
/// # Errors
///
/// If it cannot be read.
pub fn read_changes(path: &Path) -> Result<Vec<ShopChange>, rusqlite::Error> {
    let database = Connection::open(path)?;
    let mut statement =
        database.prepare("SELECT subject, customer_id, amount FROM changes ORDER BY n LIMIT 100000")?;
    let rows = statement.query_map([], |row| {
        Ok(ShopChange { subject: row.get(0)?, customer: row.get(1)?, amount: row.get(2)? })
    })?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log is the database's own: it holds each change once, and its amount.
    #[test]
    fn fifty_customers_differ_and_every_change_is_noted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("shop.db");
        make_shop(&path).expect("made");
        let all: Vec<ShopCustomer> = (0..CUSTOMERS).map(customer_at).collect();
        let fields: [fn(&ShopCustomer) -> String; 3] =
            [|one| one.id.clone(), |one| one.name.clone(), |one| one.email.clone()];
        for field in fields {
            let different: std::collections::BTreeSet<String> = all.iter().map(field).collect();
            assert_eq!(different.len(), all.len());
        }
        assert_eq!(read_changes(&path).expect("reads"), []);
        let database = Connection::open(&path).expect("opens");
        database
            .execute_batch(
                "UPDATE orders SET refunded = refunded + 5 WHERE id = 'O1011'; UPDATE orders SET refunded = refunded - 2 WHERE id = 'O1011';
                 UPDATE customers SET address = 'x' WHERE id = '102';",
            )
            .expect("changes");
        let change = |subject: &str, customer: &str, amount| ShopChange {
            subject: subject.into(),
            customer: customer.into(),
            amount,
        };
        assert_eq!(
            read_changes(&path).expect("reads"),
            [change("O1011", "101", 5), change("O1011", "101", -2), change("address", "102", 0)]
        );
    }
}
