//! Issued keys, and standing orders. Of a key, its purpose and its hash are stored, never the key.

use rusqlite::{Connection, Row, params};
use writ_types::digest::Digest;
use writ_types::id::KeyId;
use writ_types::unit::Timestamp;

use crate::codec::{self, execute, get_time, query, query_one};
use crate::error::{Conflict, StoreError};

/// The most keys that are in force at once besides those of sessions: a hundred agents with a hundred cases each.
pub const MAX_ISSUED_KEYS: usize = 10_000;
/// The most standing orders: more cannot be overseen.
pub const MAX_ORDERS: usize = 1_000;

/// A key that was given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedKey {
    /// Its id.
    pub id: KeyId,
    /// `base` or `task`.
    pub role: String,
    /// The agent that it is for.
    pub agent: String,
    /// Its purpose, in words.
    pub about: String,
    /// The hash of the token.
    pub hash: Digest,
    /// When it was given out.
    pub issued_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// A standing order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderRow {
    /// Its id.
    pub id: KeyId,
    /// The order as its owner signed it, as JSON.
    pub token: String,
    /// When it ends.
    pub expires_at: Timestamp,
    /// The latest time at which it was looked at.
    pub seen_at: Timestamp,
}

/// A change to keys and orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOp {
    /// A key is given out. Conflict if there is one with its id; too many are refused.
    Issue(IssuedKey),
    /// Stores a standing order. Conflict if there is one with its id; too many are refused.
    Keep(OrderRow),
    /// A standing order was looked at; the latest time stays. Conflict if there is none.
    See {
        /// The order.
        order: KeyId,
        /// When.
        at: Timestamp,
    },
}

pub(crate) fn apply_key_op(conn: &Connection, op: &KeyOp) -> Result<(), StoreError> {
    match op {
        KeyOp::Issue(key) => issue_key(conn, key),
        KeyOp::Keep(order) => keep_order(conn, order),
        KeyOp::See { order, at } => see_order(conn, *order, *at),
    }
}

/// Makes room by deleting rows that have ended, and refuses if there are still too many.
fn make_room(
    conn: &Connection,
    (forget, count): (&str, &str),
    now: Timestamp,
    (what, limit): (&'static str, usize),
) -> Result<(), StoreError> {
    // Ended rows are of no use, and deleting them here needs no sweep.
    execute(conn, forget, [now.as_millis()])?;
    let held: i64 = conn.prepare_cached(count)?.query_row([], |row| row.get(0))?;
    if usize::try_from(held).is_ok_and(|held| held < limit) {
        return Ok(());
    }
    Err(StoreError::TooLarge { what, limit })
}

fn issue_key(conn: &Connection, key: &IssuedKey) -> Result<(), StoreError> {
    let sql = ("DELETE FROM issued_key WHERE expires_at <= ?1", "SELECT count(*) FROM issued_key");
    make_room(conn, sql, key.issued_at, ("number of keys in force", MAX_ISSUED_KEYS))?;
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO issued_key (id, role, agent, about, hash, issued_at, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            key.id.to_string(),
            key.role,
            key.agent,
            key.about,
            key.hash.to_string(),
            key.issued_at.as_millis(),
            key.expires_at.as_millis(),
        ],
    )?;
    if added == 0 { Err(Conflict::Exists { what: "key", id: key.id.to_string() }.into()) } else { Ok(()) }
}

fn keep_order(conn: &Connection, order: &OrderRow) -> Result<(), StoreError> {
    codec::check_size("standing order", &order.token)?;
    let sql = ("DELETE FROM standing_order WHERE expires_at <= ?1", "SELECT count(*) FROM standing_order");
    make_room(conn, sql, order.seen_at, ("number of standing orders", MAX_ORDERS))?;
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO standing_order (id, token, expires_at, seen_at) VALUES (?1, ?2, ?3, ?4)",
        params![order.id.to_string(), order.token, order.expires_at.as_millis(), order.seen_at.as_millis()],
    )?;
    if added == 0 {
        return Err(Conflict::Exists { what: "standing order", id: order.id.to_string() }.into());
    }
    Ok(())
}

fn see_order(conn: &Connection, order: KeyId, at: Timestamp) -> Result<(), StoreError> {
    // The largest time wins, so that a clock set back revives no order.
    let sql = "UPDATE standing_order SET seen_at = max(seen_at, ?2) WHERE id = ?1";
    if execute(conn, sql, params![order.to_string(), at.as_millis()])? == 0 {
        return Err(Conflict::Missing { what: "standing order", id: order.to_string() }.into());
    }
    Ok(())
}

fn decode_key(row: &Row<'_>) -> Result<IssuedKey, StoreError> {
    Ok(IssuedKey {
        id: codec::parse("key id", &row.get::<_, String>("id")?)?,
        role: row.get("role")?,
        agent: row.get("agent")?,
        about: row.get("about")?,
        hash: codec::parse("hash", &row.get::<_, String>("hash")?)?,
        issued_at: get_time(row, "issued_at")?,
        expires_at: get_time(row, "expires_at")?,
    })
}

fn decode_order(row: &Row<'_>) -> Result<OrderRow, StoreError> {
    Ok(OrderRow {
        id: codec::parse("key id", &row.get::<_, String>("id")?)?,
        token: row.get("token")?,
        expires_at: get_time(row, "expires_at")?,
        seen_at: get_time(row, "seen_at")?,
    })
}

pub(crate) fn issued_key(conn: &Connection, id: KeyId) -> Result<Option<IssuedKey>, StoreError> {
    let sql = "SELECT * FROM issued_key WHERE id = ?1";
    query_one(conn, sql, [id.to_string()], decode_key)
}

pub(crate) fn issued_keys(
    conn: &Connection,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<IssuedKey>, StoreError> {
    let sql = "SELECT * FROM issued_key WHERE expires_at > ?1 ORDER BY id DESC LIMIT ?2";
    query(conn, sql, params![now.as_millis(), codec::limit(limit)], decode_key)
}

pub(crate) fn standing_order(conn: &Connection, id: KeyId) -> Result<Option<OrderRow>, StoreError> {
    let sql = "SELECT * FROM standing_order WHERE id = ?1";
    query_one(conn, sql, [id.to_string()], decode_order)
}

pub(crate) fn standing_orders(conn: &Connection, limit: usize) -> Result<Vec<OrderRow>, StoreError> {
    let sql = "SELECT * FROM standing_order ORDER BY id DESC LIMIT ?1";
    query(conn, sql, [codec::limit(limit)], decode_order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Op;
    use crate::testing::{TestHome, at};

    fn key(n: u128, issued: i64, expires: i64) -> IssuedKey {
        IssuedKey {
            id: KeyId::from_parts(at(issued), n),
            role: "task".into(),
            agent: "refund-agent".into(),
            about: "case_tk_1".into(),
            hash: Digest::of_bytes(b"token"),
            issued_at: at(issued),
            expires_at: at(expires),
        }
    }

    #[test]
    fn keys_that_were_given_out_are_known_until_they_end() {
        let home = TestHome::new();
        home.commit(vec![Op::Keys(KeyOp::Issue(key(1, 0, 10))), Op::Keys(KeyOp::Issue(key(2, 5, 20)))]);
        assert!(home.try_commit(vec![Op::Keys(KeyOp::Issue(key(1, 0, 10)))]).is_err(), "each once");
        let ids = |now| home.store.blocking().issued_keys(at(now), 10).expect("reads").len();
        assert_eq!((ids(9), ids(10), ids(20)), (2, 1, 0));
        // The next one makes room: what has ended is forgotten, and can be revoked no longer.
        home.commit(vec![Op::Keys(KeyOp::Issue(key(3, 15, 30)))]);
        assert_eq!(home.store.blocking().issued_key(key(1, 0, 10).id).expect("reads"), None);
        assert_eq!(home.store.blocking().issued_key(key(2, 5, 20).id).expect("reads"), Some(key(2, 5, 20)));
    }

    #[test]
    fn the_time_of_an_order_does_not_go_back() {
        let home = TestHome::new();
        let order = OrderRow {
            id: KeyId::from_parts(at(0), 1),
            token: "{}".into(),
            expires_at: at(100),
            seen_at: at(0),
        };
        home.commit(vec![Op::Keys(KeyOp::Keep(order.clone()))]);
        for (seen, latest) in [(50, 50), (20, 50), (60, 60)] {
            home.commit(vec![Op::Keys(KeyOp::See { order: order.id, at: at(seen) })]);
            let kept = home.store.blocking().standing_order(order.id).expect("reads").expect("known");
            assert_eq!(kept.seen_at, at(latest));
        }
        let home = home.reopened();
        assert_eq!(home.store.blocking().standing_orders(10).expect("reads").len(), 1);
        let unknown = Op::Keys(KeyOp::See { order: KeyId::from_parts(at(0), 2), at: at(0) });
        assert!(home.try_commit(vec![unknown]).is_err());
    }
}
