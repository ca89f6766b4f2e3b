//! Rows of the ledger: their canonical header, commitment, signature and leaf, and how they are read.

use std::fmt::Write as _;

use rusqlite::{Connection, ToSql};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use writ_types::digest::Digest;
use writ_types::entry::{Entry, Fact};
use writ_types::id::{EntrySeq, SessionId, TurnId};
use writ_types::unit::Timestamp;

use super::head::verify_signature;
use super::tree::{Hash, leaf_hash};
use crate::codec::{self, int};
use crate::error::StoreError;

/// Length of the salt of a payload: 128 bits, so that no short payload can be guessed from its commitment.
pub const SALT_BYTES: usize = 16;

/// Domain of payload commitments.
const PAYLOAD_DOMAIN: &[u8] = b"writ-payload-v1\n";

/// First line of a header.
const HEADER_DOMAIN: &str = "writ-entry-v1";

/// The commitment to a payload under a salt.
pub fn commitment(salt: &[u8], payload: &[u8]) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update(PAYLOAD_DOMAIN);
    hasher.update(salt);
    hasher.update(payload);
    hasher.finalize().into()
}

/// Returns the text that the harness signs when it erases the payload of a row.
pub(crate) fn erasure_text(seq: u64, leaf: &[u8], at: i64) -> String {
    format!("writ-erased-v1\n{seq}\n{}\n{at}\n", hex::encode(leaf))
}

/// The signed part of a row, in raw columns: a damaged database may hold anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowHeader<'a> {
    pub(crate) seq: u64,
    pub(crate) at: i64,
    pub(crate) session: &'a [u8],
    pub(crate) turn: &'a [u8],
    pub(crate) turn_number: i64,
    pub(crate) event: &'a [u8],
    pub(crate) commitment: &'a [u8],
}

impl RowHeader<'_> {
    /// The canonical text.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut head = String::with_capacity(256);
        // Writing to a string does not fail.
        let _ = write!(head, "{HEADER_DOMAIN}\n{}\n{}\n", self.seq, self.at);
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(self.session);
        bytes.push(b'\n');
        bytes.extend_from_slice(self.turn);
        bytes.extend_from_slice(format!("\n{}\n", self.turn_number).as_bytes());
        bytes.extend_from_slice(self.event);
        bytes.push(b'\n');
        bytes.extend_from_slice(hex::encode(self.commitment).as_bytes());
        bytes.push(b'\n');
        bytes
    }
}

/// The leaf of a header and its signature.
pub(crate) fn leaf_of(header: &[u8], signature: &[u8]) -> Hash {
    leaf_hash(&[header, signature])
}

/// One row, as people and programs read it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LedgerRow {
    /// Its position.
    pub seq: EntrySeq,
    /// When it happened.
    pub at: Timestamp,
    /// The session, if any.
    pub session: Option<SessionId>,
    /// The turn, if any.
    pub turn: Option<TurnId>,
    /// The turn's number; zero outside turns.
    pub turn_number: u64,
    /// The kind of fact.
    pub event: String,
    /// The fact; `None` if it was erased.
    pub payload: Option<Value>,
    /// The salt of its commitment, hexadecimal; empty if it was erased.
    pub salt: String,
    /// The commitment to it.
    pub commitment: Digest,
    /// The harness's signature over the header, hexadecimal.
    pub signature: String,
    /// The leaf of the tree.
    pub leaf: Digest,
    /// True if commitment, signature and leaf fit each other and the harness's key.
    pub intact: bool,
}

impl LedgerRow {
    /// The entry, if it was not erased and this version knows its kind.
    pub fn entry(&self) -> Option<Entry> {
        let fact: Fact = serde_json::from_value(self.payload.clone()?).ok()?;
        Some(Entry {
            at: self.at,
            session: self.session,
            turn: self.turn,
            turn_number: self.turn_number,
            fact,
        })
    }
}

/// A search of the ledger; everything that is set must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerQuery {
    /// The kind of fact, as [`Fact::event_name`] names it.
    pub event: Option<String>,
    /// The session.
    pub session: Option<SessionId>,
    /// The turn.
    pub turn: Option<TurnId>,
    /// The turn's number.
    pub turn_number: Option<u64>,
    /// A text that the payload contains, ASCII letters in either case.
    pub text: Option<String>,
    /// Not before this time.
    pub since: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
    /// Only entries before this one: for reading page by page, newest first.
    pub before: Option<EntrySeq>,
    /// Only entries after this one.
    pub after: Option<EntrySeq>,
    /// The most rows, up to [`crate::bounds::MAX_READ_ROWS`].
    pub limit: usize,
}

pub(crate) const COLUMNS: &str = "l.seq, l.at, l.session, l.turn, l.turn_number, l.event, l.commitment, \
     l.signature, l.leaf, p.salt, p.payload FROM ledger l LEFT JOIN ledger_payload p ON p.seq = l.seq";

pub(crate) fn decode_row(row: &rusqlite::Row<'_>, key: &[u8; 32]) -> Result<LedgerRow, StoreError> {
    let seq = codec::get_uint(row, "seq")?;
    let at: i64 = row.get("at")?;
    let session: Option<String> = row.get("session")?;
    let turn: Option<String> = row.get("turn")?;
    let turn_number: i64 = row.get("turn_number")?;
    let event: String = row.get("event")?;
    let committed: Vec<u8> = row.get("commitment")?;
    let signature: Vec<u8> = row.get("signature")?;
    let leaf: Vec<u8> = row.get("leaf")?;
    let salt: Option<Vec<u8>> = row.get("salt")?;
    let payload: Option<String> = row.get("payload")?;
    let header = RowHeader {
        seq,
        at,
        session: session.as_deref().unwrap_or_default().as_bytes(),
        turn: turn.as_deref().unwrap_or_default().as_bytes(),
        turn_number,
        event: event.as_bytes(),
        commitment: &committed,
    }
    .to_bytes();
    let fits = match (&salt, &payload) {
        (Some(salt), Some(payload)) => commitment(salt, payload.as_bytes())[..] == committed[..],
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    let intact =
        fits && leaf_of(&header, &signature)[..] == leaf[..] && verify_signature(key, &header, &signature);
    Ok(LedgerRow {
        seq: EntrySeq(seq),
        at: Timestamp::from_millis(at),
        session: codec::parse_option("session", session)?,
        turn: codec::parse_option("turn", turn)?,
        turn_number: codec::uint(turn_number),
        payload: payload.map(|text| codec::from_json("payload", &text)).transpose()?,
        salt: salt.map(hex::encode).unwrap_or_default(),
        commitment: to_digest("commitment", committed)?,
        signature: hex::encode(signature),
        leaf: to_digest("leaf", leaf)?,
        event,
        intact,
    })
}

pub(crate) fn to_digest(what: &'static str, bytes: Vec<u8>) -> Result<Digest, StoreError> {
    let bytes: Hash =
        bytes.try_into().map_err(|_| StoreError::Decode { what, message: "not 32 bytes".to_owned() })?;
    Ok(Digest::from_bytes(bytes))
}

/// Number of rows of the ledger.
pub(crate) fn count_rows(conn: &Connection) -> Result<u64, StoreError> {
    let last: Option<i64> = conn.query_row("SELECT max(seq) FROM ledger", [], |row| row.get(0))?;
    Ok(last.map_or(0, |last| codec::uint(last) + 1))
}

/// The attempts that are compared with the ledger when the store is opened, so that opening takes the same
/// time for any number: those with the largest ids, which are the newest unless the clock was set back.
/// Verification compares all.
pub(crate) const AT_OPENING: i64 = 64;
/// All attempts are asked.
pub(crate) const ALL: i64 = -1;

/// Returns the least number of entries that the rest of the database implies: attempts name their entries,
/// keys the size at which they came in, and nothing is received, asked or remembered without an entry.
pub(crate) fn least_size(conn: &Connection, attempts: i64) -> Result<u64, StoreError> {
    let sql = "SELECT max(
        (SELECT coalesce(max(max(entry, coalesce(closed_by, entry))) + 1, 0)
            FROM (SELECT entry, closed_by FROM intent ORDER BY attempt DESC LIMIT ?1)),
        (SELECT coalesce(max(from_size), 0) FROM ledger_key),
        EXISTS (SELECT 1 FROM turn) OR EXISTS (SELECT 1 FROM message)
            OR EXISTS (SELECT 1 FROM ask) OR EXISTS (SELECT 1 FROM memory))";
    let least: i64 = conn.query_row(sql, [attempts], |row| row.get(0))?;
    Ok(codec::uint(least))
}

pub(crate) fn ledger_row(
    conn: &Connection,
    key: &[u8; 32],
    entry: EntrySeq,
) -> Result<Option<LedgerRow>, StoreError> {
    codec::query_one(conn, &format!("SELECT {COLUMNS} WHERE l.seq = ?1"), [int(entry.0)], |row| {
        decode_row(row, key)
    })
}

pub(crate) fn ledger_tail(
    conn: &Connection,
    key: &[u8; 32],
    rows: usize,
) -> Result<Vec<LedgerRow>, StoreError> {
    let mut found = ledger_search(conn, key, &LedgerQuery { limit: rows, ..LedgerQuery::default() })?;
    found.reverse();
    Ok(found)
}

pub(crate) fn ledger_search(
    conn: &Connection,
    key: &[u8; 32],
    query: &LedgerQuery,
) -> Result<Vec<LedgerRow>, StoreError> {
    let mut conditions = vec!["1"];
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    let mut add = |condition: &'static str, value: Option<Box<dyn ToSql>>| {
        if let Some(value) = value {
            conditions.push(condition);
            values.push(value);
        }
    };
    fn boxed<T: ToSql + 'static>(value: T) -> Box<dyn ToSql> {
        Box::new(value)
    }
    add("l.event = ?", query.event.clone().map(boxed));
    add("l.session = ?", query.session.map(|id| boxed(id.to_string())));
    add("l.turn = ?", query.turn.map(|id| boxed(id.to_string())));
    add("l.turn_number = ?", query.turn_number.map(|number| boxed(int(number))));
    add("instr(lower(p.payload), lower(?)) > 0", query.text.clone().map(boxed));
    add("l.at >= ?", query.since.map(|at| boxed(at.as_millis())));
    add("l.at < ?", query.until.map(|at| boxed(at.as_millis())));
    add("l.seq < ?", query.before.map(|seq| boxed(int(seq.0))));
    add("l.seq > ?", query.after.map(|seq| boxed(int(seq.0))));
    values.push(boxed(codec::limit(query.limit)));
    let sql = format!("SELECT {COLUMNS} WHERE {} ORDER BY l.seq DESC LIMIT ?", conditions.join(" AND "));
    codec::query(conn, &sql, rusqlite::params_from_iter(values.iter()), |row| decode_row(row, key))
}
