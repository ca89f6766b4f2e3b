//! The state of the security proxy: what is used of limits, requests that are performed once, and the sealed map of
//! tokens.
//!
//! What is personal comes sealed and stays so: the store has no key.

use rusqlite::{Connection, Row, params};
use writ_policy::keys::limits::{LimitSpan, LimitUse};
use writ_policy::permit::{OnceName, Redemption};
use writ_types::action::Action;
use writ_types::digest::Digest;
use writ_types::entry::Fact;
use writ_types::id::AttemptId;
use writ_types::unit::Timestamp;

use crate::codec::{self, execute, get_time, query, query_one};
use crate::error::{Conflict, StoreError};
use crate::ledger::lost;
use crate::usage::date_of;

/// The most open cases: ten thousand agents with ten cases each.
pub const MAX_CASES: usize = 100_000;
/// The most values behind the tokens of one case: more is no work on a case, but a copy of a database.
pub const MAX_CASE_VALUES: usize = 10_000;
/// The most bytes of these values, sealed.
pub const MAX_CASE_VALUE_BYTES: usize = 1024 * 1024;
/// The most bytes of the answers that one case has stored, sealed. Later ones are stored without their rows.
pub const MAX_CASE_ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// The longest sealed value or answer, in bytes.
pub const MAX_SEALED_BYTES: usize = 1024 * 1024;
/// The time for which a name of a request is remembered, in milliseconds: 30 days.
pub const ONCE_MS: i64 = 30 * DAY_MS;
/// The time for which used amounts are stored, in milliseconds: a clock that is set back for some days resets no limit.
const USED_MS: i64 = 7 * DAY_MS;
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
/// The answer of a request whose name is open to the same request. None that is sealed is empty.
const OPEN_NAME: &[u8] = &[];

/// A case of a customer, as the proxy knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseRow {
    /// The token of the case.
    pub token: String,
    /// The token of its customer.
    pub customer_token: String,
    /// The tenant that both belong to.
    pub tenant: String,
    /// The names of customer and case, sealed.
    pub sealed: Vec<u8>,
    /// When it was opened.
    pub opened_at: Timestamp,
}

/// A value behind a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedValue {
    /// The token.
    pub token: String,
    /// The kind of personal data.
    pub kind: String,
    /// The value, sealed.
    pub sealed: Vec<u8>,
}

/// A request that was begun under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnceRow {
    /// The hash of the request.
    pub request: Digest,
    /// Its attempt.
    pub attempt: AttemptId,
    /// The answer, sealed; `None`: it runs, has failed, or has an unknown outcome.
    pub answer: Option<Vec<u8>>,
    /// The same request may be made again under its name.
    pub is_open: bool,
}

/// A change to the state of the security proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationOp {
    /// Opens a case. Opening it again changes nothing; too many are refused.
    OpenCase(CaseRow),
    /// Closes a case and deletes the values of its tokens and its answers. Its names stay taken: a case that is opened
    /// again performs nothing twice. Conflict if there is none.
    CloseCase {
        /// The token of the case.
        token: String,
    },
    /// Stores values behind tokens of an open case; known ones stay. Too many are refused.
    KeepValues {
        /// The token of the case.
        case: String,
        /// The values.
        values: Vec<SealedValue>,
    },
    /// Stores the answer of a request that has a name. Without a name it is left out.
    KeepAnswer {
        /// The attempt.
        attempt: AttemptId,
        /// The token of its case.
        case: String,
        /// The answer, sealed.
        answer: Vec<u8>,
        /// The answer without its rows, sealed, for a case that has no room for more.
        short: Vec<u8>,
    },
    /// Leaves the name of an attempt to the same request: its target does nothing twice under it. Without a name it is left out.
    OpenName {
        /// The attempt.
        attempt: AttemptId,
    },
    /// Gives back what an attempt has counted, and its name if that was not opened: nothing was performed.
    Return {
        /// The attempt.
        attempt: AttemptId,
        /// The amounts.
        uses: Vec<LimitUse>,
        /// A time on the day on which they were counted.
        at: Timestamp,
    },
}

pub(crate) fn apply_operation(conn: &Connection, op: &OperationOp) -> Result<(), StoreError> {
    match op {
        OperationOp::OpenCase(case) => open_case(conn, case),
        OperationOp::CloseCase { token } => close_case(conn, token),
        OperationOp::KeepValues { case, values } => store_values(conn, case, values),
        OperationOp::KeepAnswer { attempt, case, answer, short } => {
            check_sealed(answer)?;
            check_sealed(short)?;
            let has_room = answer_bytes(conn, case)?.saturating_add(answer.len()) <= MAX_CASE_ANSWER_BYTES;
            let sql = "UPDATE once SET answer = ?2 WHERE attempt = ?1";
            execute(conn, sql, params![attempt.to_string(), if has_room { answer } else { short }]).map(drop)
        }
        OperationOp::OpenName { attempt } => {
            let sql = "UPDATE once SET answer = ?2 WHERE attempt = ?1";
            execute(conn, sql, params![attempt.to_string(), OPEN_NAME]).map(drop)
        }
        OperationOp::Return { attempt, uses, at } => return_uses(conn, *attempt, uses, *at),
    }
}

/// Counts what an operation uses, and takes its name: both, or an error and the caller rolls back.
pub(crate) fn count_operation(conn: &Connection, redemption: &Redemption) -> Result<(), StoreError> {
    let operation = &redemption.operation;
    // Of two that were decided at the same moment, each has found that none is under way.
    if let Fact::Intent { action: Action::Operate(operate), idempotent: false, .. } = &redemption.intent.fact
        && lost::is_under_way(conn, operate)?
    {
        return Err(Conflict::Repeated(operate.operation.clone()).into());
    }
    if let Some(once) = &operation.once {
        take_name(conn, once, redemption.attempt, redemption.intent.at)?;
    }
    let at = redemption.ceilings.start_of_day(redemption.intent.at);
    for limit in &operation.uses {
        add_use(conn, limit, at)?;
    }
    Ok(())
}

fn take_name(
    conn: &Connection,
    once: &OnceName,
    attempt: AttemptId,
    at: Timestamp,
) -> Result<(), StoreError> {
    let old = at.as_millis().saturating_sub(ONCE_MS);
    execute(conn, "DELETE FROM once WHERE at < ?1", [old])?;
    let added = execute(
        conn,
        "INSERT INTO once (scope, name, request, attempt, at) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (scope, name) DO UPDATE SET attempt = excluded.attempt, at = excluded.at, answer = NULL
         WHERE once.answer = ?6 AND once.request = excluded.request",
        params![
            once.scope,
            once.name,
            once.request.as_bytes(),
            attempt.to_string(),
            at.as_millis(),
            OPEN_NAME
        ],
    )?;
    // Of two equal requests at the same moment one gets here first, and the other is not performed. An open name is taken by the
    // same request alone.
    if added == 0 { Err(Conflict::Repeated(once.name.clone()).into()) } else { Ok(()) }
}

fn add_use(conn: &Connection, limit: &LimitUse, at: Timestamp) -> Result<(), StoreError> {
    let old = Timestamp::from_millis(at.as_millis().saturating_sub(USED_MS));
    execute(conn, "DELETE FROM used_limit WHERE day < ?1", [date_of(old)])?;
    // Read again in the transaction that adds to it: others may have used it since the decision.
    let sum = read_use(conn, limit, &span_of(limit, at))?.saturating_add(limit.amount);
    if sum > limit.most {
        return Err(Conflict::UsedUp(limit.parameter.clone()).into());
    }
    write_use(conn, limit, at, sum)
}

fn write_use(conn: &Connection, limit: &LimitUse, at: Timestamp, used: i64) -> Result<(), StoreError> {
    let sql = "INSERT OR REPLACE INTO used_limit (counter, day, operation, parameter, used)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    execute(conn, sql, params![limit.counter, span_of(limit, at), limit.operation, limit.parameter, used])
        .map(drop)
}

/// The place of a use among the days. What adds up over all of them is older than none, and is not deleted.
fn span_of(limit: &LimitUse, at: Timestamp) -> String {
    match limit.span {
        LimitSpan::Day => date_of(at),
        LimitSpan::Key => "always".to_owned(),
    }
}

fn return_uses(
    conn: &Connection,
    attempt: AttemptId,
    uses: &[LimitUse],
    at: Timestamp,
) -> Result<(), StoreError> {
    for limit in uses {
        let left = read_use(conn, limit, &span_of(limit, at))?.saturating_sub(limit.amount);
        // The count of that day may have been deleted since.
        write_use(conn, limit, at, left.max(0))?;
    }
    let sql = "DELETE FROM once WHERE attempt = ?1 AND answer IS NULL";
    execute(conn, sql, [attempt.to_string()]).map(drop)
}

fn open_case(conn: &Connection, case: &CaseRow) -> Result<(), StoreError> {
    check_sealed(&case.sealed)?;
    let open: i64 =
        conn.prepare_cached("SELECT count(*) FROM proxy_case")?.query_row([], |row| row.get(0))?;
    if !usize::try_from(open).is_ok_and(|open| open < MAX_CASES) {
        return Err(StoreError::TooLarge { what: "number of open cases", limit: MAX_CASES });
    }
    let sql = "INSERT OR IGNORE INTO proxy_case (token, customer_token, tenant, sealed, opened_at)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    let opened = case.opened_at.as_millis();
    execute(conn, sql, params![case.token, case.customer_token, case.tenant, case.sealed, opened]).map(drop)
}

/// The names of a case's requests begin with its token and a space. `!` follows the space.
const OF_CASE: &str = "scope >= ?1 || ' ' AND scope < ?1 || '!'";

fn answer_bytes(conn: &Connection, case: &str) -> Result<usize, StoreError> {
    let sql = format!("SELECT coalesce(sum(length(answer)), 0) FROM once WHERE {OF_CASE}");
    let bytes: i64 = conn.prepare_cached(&sql)?.query_row([case], |row| row.get(0))?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn close_case(conn: &Connection, token: &str) -> Result<(), StoreError> {
    execute(conn, &format!("UPDATE once SET answer = NULL WHERE {OF_CASE}"), [token])?;
    lost::forget_case(conn, token)?;
    // The values go with it: what is closed needs no personal data.
    if execute(conn, "DELETE FROM proxy_case WHERE token = ?1", [token])? == 0 {
        return Err(Conflict::Missing { what: "case", id: token.to_owned() }.into());
    }
    Ok(())
}

fn store_values(conn: &Connection, case: &str, values: &[SealedValue]) -> Result<(), StoreError> {
    for value in values {
        check_sealed(&value.sealed)?;
        // A case that was closed meanwhile gets no values.
        let sql = "INSERT OR IGNORE INTO sealed_value (case_token, token, kind, sealed)
                   SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM proxy_case WHERE token = ?1)";
        execute(conn, sql, params![case, value.token, value.kind, value.sealed])?;
    }
    // Counted after the inserts, which skip known values; an error takes the whole batch back.
    let sql = "SELECT count(*), coalesce(sum(length(sealed)), 0) FROM sealed_value WHERE case_token = ?1";
    let (held, bytes): (i64, i64) =
        conn.prepare_cached(sql)?.query_row([case], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if !usize::try_from(held).is_ok_and(|held| held <= MAX_CASE_VALUES) {
        return Err(StoreError::TooLarge { what: "number of values of a case", limit: MAX_CASE_VALUES });
    }
    if !usize::try_from(bytes).is_ok_and(|bytes| bytes <= MAX_CASE_VALUE_BYTES) {
        return Err(StoreError::TooLarge { what: "values of a case", limit: MAX_CASE_VALUE_BYTES });
    }
    Ok(())
}

fn check_sealed(sealed: &[u8]) -> Result<(), StoreError> {
    if sealed.len() > MAX_SEALED_BYTES {
        return Err(StoreError::TooLarge { what: "sealed value", limit: MAX_SEALED_BYTES });
    }
    Ok(())
}

fn read_use(conn: &Connection, limit: &LimitUse, day: &str) -> Result<i64, StoreError> {
    let sql =
        "SELECT used FROM used_limit WHERE counter = ?1 AND day = ?2 AND operation = ?3 AND parameter = ?4";
    let key = params![limit.counter, day, limit.operation, limit.parameter];
    Ok(query_one(conn, sql, key, |row| Ok(row.get("used")?))?.unwrap_or(0))
}

pub(crate) fn used_amounts(
    conn: &Connection,
    uses: &[LimitUse],
    at: Timestamp,
) -> Result<Vec<i64>, StoreError> {
    uses.iter().map(|limit| read_use(conn, limit, &span_of(limit, at))).collect()
}

pub(crate) fn read_once(conn: &Connection, scope: &str, name: &str) -> Result<Option<OnceRow>, StoreError> {
    let sql = "SELECT request, attempt, answer FROM once WHERE scope = ?1 AND name = ?2";
    query_one(conn, sql, [scope, name], |row| {
        let request: [u8; 32] = row.get("request")?;
        let attempt = codec::parse("attempt", &row.get::<_, String>("attempt")?)?;
        let answer: Option<Vec<u8>> = row.get("answer")?;
        let is_open = answer.as_deref() == Some(OPEN_NAME);
        let answer = answer.filter(|_| !is_open);
        Ok(OnceRow { request: Digest::from_bytes(request), attempt, answer, is_open })
    })
}

pub(crate) fn read_case(conn: &Connection, token: &str) -> Result<Option<CaseRow>, StoreError> {
    query_one(conn, "SELECT * FROM proxy_case WHERE token = ?1", [token], decode_case)
}

fn decode_case(row: &Row<'_>) -> Result<CaseRow, StoreError> {
    Ok(CaseRow {
        token: row.get("token")?,
        customer_token: row.get("customer_token")?,
        tenant: row.get("tenant")?,
        sealed: row.get("sealed")?,
        opened_at: get_time(row, "opened_at")?,
    })
}

pub(crate) fn case_values(conn: &Connection, case: &str) -> Result<Vec<SealedValue>, StoreError> {
    let sql = "SELECT token, kind, sealed FROM sealed_value WHERE case_token = ?1 ORDER BY token";
    query(conn, sql, [case], |row| {
        Ok(SealedValue { token: row.get("token")?, kind: row.get("kind")?, sealed: row.get("sealed")? })
    })
}

#[cfg(test)]
mod tests;
