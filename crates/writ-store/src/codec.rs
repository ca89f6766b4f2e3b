//! Between our types and SQLite's.

use rusqlite::Row;
use serde::Serialize;
use serde::de::DeserializeOwned;
use writ_types::unit::Timestamp;

use crate::bounds::{MAX_READ_ROWS, MAX_TEXT_BYTES};
use crate::error::StoreError;

/// A count as SQLite keeps it; saturates at its largest integer.
pub(crate) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A count as we keep it; a negative one, which we never write, reads as zero.
pub(crate) fn uint(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// A read's limit, within the bound of all reads.
pub(crate) fn limit(rows: usize) -> i64 {
    i64::try_from(rows.min(MAX_READ_ROWS)).unwrap_or(i64::MAX)
}

/// A value as JSON text, within the bound of one row.
pub(crate) fn to_json<T: Serialize>(what: &'static str, value: &T) -> Result<String, StoreError> {
    let text = serde_json::to_string(value)
        .map_err(|error| StoreError::Encode { what, message: error.to_string() })?;
    check_size(what, &text)?;
    Ok(text)
}

/// A value from JSON text.
pub(crate) fn from_json<T: DeserializeOwned>(what: &'static str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Decode { what, message: error.to_string() })
}

/// The name of a unit variant, as serde writes it.
pub(crate) fn to_name<T: Serialize>(what: &'static str, value: &T) -> Result<String, StoreError> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => Ok(name),
        Ok(_) => Err(StoreError::Encode { what, message: "not a name".to_owned() }),
        Err(error) => Err(StoreError::Encode { what, message: error.to_string() }),
    }
}

/// The unit variant with this name.
pub(crate) fn from_name<T: DeserializeOwned>(what: &'static str, name: String) -> Result<T, StoreError> {
    serde_json::from_value(serde_json::Value::String(name))
        .map_err(|error| StoreError::Decode { what, message: error.to_string() })
}

/// Parses an id or digest of a row.
pub(crate) fn parse<T>(what: &'static str, text: &str) -> Result<T, StoreError>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| StoreError::Decode { what, message: error.to_string() })
}

/// Parses an optional id of a row.
pub(crate) fn parse_option<T>(what: &'static str, text: Option<String>) -> Result<Option<T>, StoreError>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.map(|text| parse(what, &text)).transpose()
}

/// A count in a row.
pub(crate) fn get_uint(row: &Row<'_>, column: &str) -> Result<u64, StoreError> {
    Ok(uint(row.get(column)?))
}

/// A time in a row.
pub(crate) fn get_time(row: &Row<'_>, column: &str) -> Result<Timestamp, StoreError> {
    Ok(Timestamp::from_millis(row.get(column)?))
}

/// Refuses a text beyond the bound of one row.
pub(crate) fn check_size(what: &'static str, text: &str) -> Result<(), StoreError> {
    if text.len() > MAX_TEXT_BYTES {
        Err(StoreError::TooLarge { what, limit: MAX_TEXT_BYTES })
    } else {
        Ok(())
    }
}

/// Refuses a text beyond a bound in bytes.
pub(crate) fn check_bytes(what: &'static str, text: &str, limit: usize) -> Result<(), StoreError> {
    if text.len() > limit { Err(StoreError::TooLarge { what, limit }) } else { Ok(()) }
}

/// Runs a query and decodes each row.
pub(crate) fn query<T>(
    conn: &rusqlite::Connection,
    sql: &str,
    params: impl rusqlite::Params,
    mut decode: impl FnMut(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    // Statements are cached per connection: parsing and planning cost more than most reads.
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(decode(row)?);
    }
    Ok(found)
}

/// Runs a query and decodes its first row.
pub(crate) fn query_one<T>(
    conn: &rusqlite::Connection,
    sql: &str,
    params: impl rusqlite::Params,
    decode: impl FnOnce(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    rows.next()?.map(decode).transpose()
}

/// Runs several reads on one snapshot.
pub(crate) fn snapshot<T>(
    conn: &rusqlite::Connection,
    read: impl FnOnce(&rusqlite::Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    execute(conn, "BEGIN", [])?;
    let done = read(conn);
    // A transaction that has only read has nothing to undo, so it ends the same way after an error.
    execute(conn, "COMMIT", [])?;
    done
}

/// Runs a statement and tells how many rows it changed.
pub(crate) fn execute(
    conn: &rusqlite::Connection,
    sql: &str,
    params: impl rusqlite::Params,
) -> Result<usize, StoreError> {
    Ok(conn.prepare_cached(sql)?.execute(params)?)
}
