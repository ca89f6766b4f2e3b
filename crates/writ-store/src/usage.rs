//! Totals of what was used, what is set aside, and named counters.

use rusqlite::{Connection, Row, params};
use writ_policy::budget::{SharedAmounts, UsedAmounts};
use writ_types::chat::Usage;
use writ_types::id::SessionId;
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use crate::codec::{self, execute, get_uint, int, query_one, uint};
use crate::error::{Conflict, StoreError};
use writ_policy::permit::Redemption;

/// The most counters that one read returns.
pub const MAX_COUNTERS: usize = 1_000;

/// The usage of a session or a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Tokens.
    pub usage: Usage,
    /// Money.
    pub cost: MicroUsd,
    /// Tool calls.
    pub tool_calls: u64,
    /// Model calls.
    pub model_calls: u64,
}

/// The usage of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageDelta {
    /// The session, if there is one.
    pub session: Option<SessionId>,
    /// When: decides the day, in UTC.
    pub at: Timestamp,
    /// Tokens.
    pub usage: Usage,
    /// Money.
    pub cost: MicroUsd,
    /// Tool calls.
    pub tool_calls: u64,
    /// Model calls.
    pub model_calls: u64,
}

/// The usage of one step by what it was for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageShare {
    /// The usage.
    pub delta: UsageDelta,
    /// The role that called the model.
    pub role: String,
    /// The model, as `provider/model`.
    pub model: String,
    /// The work item that it belongs to.
    pub item: Option<String>,
}

/// What totals can be asked for by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageKind {
    /// By UTC day.
    Day,
    /// By month.
    Month,
    /// By session.
    Session,
    /// By day and role.
    Role,
    /// By day and model.
    Model,
    /// By work item.
    Item,
}

impl UsageKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
            Self::Session => "session",
            Self::Role => "role",
            Self::Model => "model",
            Self::Item => "item",
        }
    }
}

/// The most rows of totals that one read returns.
pub const MAX_TOTALS: usize = 10_000;

/// The changes to usage of operations that are not written yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingUsage {
    pub(crate) used: Vec<UsageDelta>,
    /// The attempts that end, which frees what is set aside for them.
    pub(crate) ended: Vec<String>,
}

/// The reservations of attempts without an outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    /// Tokens.
    pub tokens: Tokens,
    /// Money.
    pub cost: MicroUsd,
    /// Tool calls.
    pub tool_calls: u64,
}

/// The usage and reservations that budgets are compared with, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetState {
    /// The usage of the session since it was opened.
    pub session: UsageTotals,
    /// The reservations of the session.
    pub session_reserved: Reservations,
    /// The usage of all sessions on the day.
    pub day: UsageTotals,
    /// The usage of all sessions in the month.
    pub month: UsageTotals,
    /// All reservations: of attempts that run, also if they began on another day.
    pub reserved: Reservations,
}

impl UsageTotals {
    /// Adds other totals; saturates.
    pub fn add_totals(&mut self, other: &Self) {
        self.usage += other.usage;
        self.cost = self.cost.saturating_add(other.cost);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
        self.model_calls = self.model_calls.saturating_add(other.model_calls);
    }

    fn add(&mut self, delta: &UsageDelta) {
        self.usage += delta.usage;
        self.cost = self.cost.saturating_add(delta.cost);
        self.tool_calls = self.tool_calls.saturating_add(delta.tool_calls);
        self.model_calls = self.model_calls.saturating_add(delta.model_calls);
    }
}

impl Reservations {
    fn add(&mut self, more: Self) {
        self.tokens = self.tokens.saturating_add(more.tokens);
        self.cost = self.cost.saturating_add(more.cost);
        self.tool_calls = self.tool_calls.saturating_add(more.tool_calls);
    }
}

/// The UTC date of a time, as totals are keyed: `2026-01-31`.
pub(crate) fn date_of(at: Timestamp) -> String {
    at.to_string().chars().take(10).collect()
}

pub(crate) fn add_usage(conn: &Connection, delta: &UsageDelta) -> Result<(), StoreError> {
    let date = date_of(delta.at);
    add_to(conn, "day", &date, delta)?;
    add_to(conn, "month", month_of(&date), delta)?;
    match delta.session {
        Some(session) => add_to(conn, "session", &session.to_string(), delta),
        None => Ok(()),
    }
}

/// The month of a UTC date: `2026-01`.
fn month_of(date: &str) -> &str {
    date.get(..7).unwrap_or(date)
}

/// The longest name of a role, a model or an item in a total, in characters.
const MAX_SHARE_CHARS: usize = 200;

pub(crate) fn add_share(conn: &Connection, share: &UsageShare) -> Result<(), StoreError> {
    let date = date_of(share.delta.at);
    let name = |name: &str| name.chars().take(MAX_SHARE_CHARS).collect::<String>();
    for (kind, of) in [(UsageKind::Role, &share.role), (UsageKind::Model, &share.model)] {
        add_to(conn, kind.as_str(), &format!("{date} {}", name(of)), &share.delta)?;
    }
    match &share.item {
        Some(item) => add_to(conn, UsageKind::Item.as_str(), &name(item), &share.delta),
        None => Ok(()),
    }
}

/// Returns the totals of a kind with keys that are at least `from` and below `below`, in the order of their keys.
pub(crate) fn read_all_totals(
    conn: &Connection,
    kind: UsageKind,
    (from, below): (&str, &str),
) -> Result<Vec<(String, UsageTotals)>, StoreError> {
    let sql = "SELECT * FROM usage WHERE kind = ?1 AND key >= ?2 AND key < ?3 ORDER BY key DESC LIMIT ?4";
    codec::query(conn, sql, params![kind.as_str(), from, below, codec::limit(MAX_TOTALS)], |row| {
        Ok((row.get("key")?, decode_totals(row)?))
    })
}

fn add_to(conn: &Connection, kind: &str, key: &str, delta: &UsageDelta) -> Result<(), StoreError> {
    // Read and written in the one writer's transaction, so no other addition comes between.
    let mut totals = read_totals(conn, kind, key)?;
    totals.add(delta);
    let usage = totals.usage;
    execute(
        conn,
        "INSERT OR REPLACE INTO usage
         (kind, key, input, output, cache_read, cache_write, cost, tool_calls, model_calls)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            kind,
            key,
            int(usage.input.get()),
            int(usage.output.get()),
            int(usage.cache_read.get()),
            int(usage.cache_write.get()),
            int(totals.cost.get()),
            int(totals.tool_calls),
            int(totals.model_calls),
        ],
    )?;
    Ok(())
}

fn read_totals(conn: &Connection, kind: &str, key: &str) -> Result<UsageTotals, StoreError> {
    let sql = "SELECT * FROM usage WHERE kind = ?1 AND key = ?2";
    Ok(query_one(conn, sql, [kind, key], decode_totals)?.unwrap_or_default())
}

fn decode_totals(row: &Row<'_>) -> Result<UsageTotals, StoreError> {
    Ok(UsageTotals {
        usage: Usage {
            input: Tokens::new(get_uint(row, "input")?),
            output: Tokens::new(get_uint(row, "output")?),
            cache_read: Tokens::new(get_uint(row, "cache_read")?),
            cache_write: Tokens::new(get_uint(row, "cache_write")?),
        },
        cost: MicroUsd::new(get_uint(row, "cost")?),
        tool_calls: get_uint(row, "tool_calls")?,
        model_calls: get_uint(row, "model_calls")?,
    })
}

/// Sets aside what an attempt may take, if the limits that turns share still admit it; its outcome frees it.
pub(crate) fn reserve_budget(conn: &Connection, redemption: &Redemption) -> Result<(), StoreError> {
    let reservation = redemption.reservation;
    let ceilings = &redemption.ceilings;
    // Most homes have no shared limits, and are spared three reads.
    if !ceilings.is_empty() {
        let session = match redemption.intent.session {
            Some(id) => {
                let id = id.to_string();
                sum_taken(read_totals(conn, "session", &id)?, read_reserved(conn, "session", &id)?)
            }
            None => UsedAmounts::default(),
        };
        let plan = match ceilings.plan() {
            Some(plan) => {
                let id = plan.item.to_string();
                sum_taken(read_totals(conn, UsageKind::Item.as_str(), &id)?, read_plan_reserved(conn, &id)?)
            }
            None => UsedAmounts::default(),
        };
        let date = date_of(ceilings.start_of_day(redemption.intent.at));
        // An attempt that runs counts today even if it began yesterday: it is booked on the day on which it
        // ends.
        let reserved = read_reserved(conn, "'all'", "all")?;
        let used = SharedAmounts {
            session,
            day: sum_taken(read_totals(conn, "day", &date)?, reserved),
            month: sum_taken(read_totals(conn, "month", month_of(&date))?, reserved),
            plan,
        };
        ceilings.admit_call(&used, reservation.cost).map_err(Conflict::Exhausted)?;
    }
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO reservation (attempt, session, day, tokens, cost, tool_calls)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            redemption.attempt.to_string(),
            redemption.intent.session.map(|id| id.to_string()),
            date_of(redemption.intent.at),
            int(reservation.tokens.get()),
            int(reservation.cost.get()),
            int(reservation.tool_calls),
        ],
    )?;
    if added == 0 {
        return Err(Conflict::Exists { what: "attempt", id: redemption.attempt.to_string() }.into());
    }
    Ok(())
}

fn sum_taken(used: UsageTotals, reserved: Reservations) -> UsedAmounts {
    UsedAmounts {
        tokens: used.usage.total_tokens().saturating_add(reserved.tokens),
        cost: used.cost.saturating_add(reserved.cost),
    }
}

fn read_reserved(conn: &Connection, condition: &str, value: &str) -> Result<Reservations, StoreError> {
    let sql = format!("SELECT tokens, cost, tool_calls FROM reservation WHERE {condition} = ?1");
    sum_reserved(conn, &sql, value)
}

/// Returns what the sessions under a plan have set aside together.
fn read_plan_reserved(conn: &Connection, plan: &str) -> Result<Reservations, StoreError> {
    let sql = "SELECT tokens, cost, tool_calls FROM reservation
               WHERE session IN (SELECT session FROM work_item WHERE goal = ?1)";
    sum_reserved(conn, sql, plan)
}

fn sum_reserved(conn: &Connection, sql: &str, value: &str) -> Result<Reservations, StoreError> {
    let rows = codec::query(conn, sql, [value], decode_reserved)?;
    Ok(rows.into_iter().fold(Reservations::default(), |mut sum, row| {
        sum.add(row);
        sum
    }))
}

fn decode_reserved(row: &Row<'_>) -> Result<Reservations, StoreError> {
    Ok(Reservations {
        tokens: Tokens::new(get_uint(row, "tokens")?),
        cost: MicroUsd::new(get_uint(row, "cost")?),
        tool_calls: get_uint(row, "tool_calls")?,
    })
}

/// Returns the reservations of a session and of all, without those of the attempts that have ended.
fn reserved_without(
    conn: &Connection,
    session: &str,
    ended: &[String],
) -> Result<(Reservations, Reservations), StoreError> {
    let sql = "SELECT attempt, session, tokens, cost, tool_calls FROM reservation";
    let rows = codec::query(conn, sql, [], |row| {
        let (attempt, of): (String, Option<String>) = (row.get("attempt")?, row.get("session")?);
        Ok((ended.contains(&attempt), of.as_deref() == Some(session), decode_reserved(row)?))
    })?;
    let (mut own, mut all) = (Reservations::default(), Reservations::default());
    for (_, is_own, row) in rows.into_iter().filter(|(has_ended, ..)| !has_ended) {
        all.add(row);
        if is_own {
            own.add(row);
        }
    }
    Ok((own, all))
}

/// Adds to a counter and returns its new value.
pub(crate) fn add_counter(conn: &Connection, name: &str, by: u64) -> Result<u64, StoreError> {
    write_counter(conn, name, read_counter(conn, name)?.saturating_add(by))
}

/// Adds to a counter unless it would exceed `most`.
pub(crate) fn reserve_counter(conn: &Connection, name: &str, by: u64, most: u64) -> Result<(), StoreError> {
    // Read in the transaction that adds to it: others may have used it since the caller looked.
    let value = read_counter(conn, name)?.saturating_add(by);
    if value > most {
        return Err(Conflict::UsedUp(name.to_owned()).into());
    }
    write_counter(conn, name, value).map(drop)
}

/// Replaces what was reserved of a counter by what was used, and returns its new value.
pub(crate) fn settle_counter(
    conn: &Connection,
    name: &str,
    reserved: u64,
    used: u64,
) -> Result<u64, StoreError> {
    let value = read_counter(conn, name)?.saturating_sub(reserved);
    write_counter(conn, name, value.saturating_add(used))
}

fn write_counter(conn: &Connection, name: &str, value: u64) -> Result<u64, StoreError> {
    execute(conn, "INSERT OR REPLACE INTO counter (name, value) VALUES (?1, ?2)", params![name, int(value)])?;
    // As it is stored: the column ends before the type does.
    Ok(uint(int(value)))
}

pub(crate) fn read_counter(conn: &Connection, name: &str) -> Result<u64, StoreError> {
    let sql = "SELECT value FROM counter WHERE name = ?1";
    Ok(query_one(conn, sql, [name], |row| get_uint(row, "value"))?.unwrap_or(0))
}

pub(crate) fn read_standing(
    conn: &Connection,
    session: SessionId,
    at: Timestamp,
    pending: &PendingUsage,
) -> Result<BudgetState, StoreError> {
    let (id, date) = (session.to_string(), date_of(at));
    let mut standing = codec::snapshot(conn, |conn| {
        let (session_reserved, reserved) = reserved_without(conn, &id, &pending.ended)?;
        let (session, day) = (read_totals(conn, "session", &id)?, read_totals(conn, "day", &date)?);
        let month = read_totals(conn, "month", month_of(&date))?;
        Ok(BudgetState { session, session_reserved, day, month, reserved })
    })?;
    for delta in &pending.used {
        if delta.session == Some(session) {
            standing.session.add(delta);
        }
        if date_of(delta.at) == date {
            standing.day.add(delta);
        }
        if month_of(&date_of(delta.at)) == month_of(&date) {
            standing.month.add(delta);
        }
    }
    Ok(standing)
}

pub(crate) fn session_usage(conn: &Connection, session: SessionId) -> Result<UsageTotals, StoreError> {
    read_totals(conn, "session", &session.to_string())
}

pub(crate) fn day_usage(conn: &Connection, at: Timestamp) -> Result<UsageTotals, StoreError> {
    read_totals(conn, "day", &date_of(at))
}

pub(crate) fn session_reserved(conn: &Connection, session: SessionId) -> Result<Reservations, StoreError> {
    read_reserved(conn, "session", &session.to_string())
}

pub(crate) fn day_reserved(conn: &Connection, at: Timestamp) -> Result<Reservations, StoreError> {
    read_reserved(conn, "day", &date_of(at))
}

pub(crate) fn read_counters(conn: &Connection, prefix: &str) -> Result<Vec<(String, u64)>, StoreError> {
    let sql = "SELECT name, value FROM counter WHERE name >= ?1 AND name < ?1 || char(1114111) ORDER BY name LIMIT ?2";
    codec::query(conn, sql, params![prefix, codec::limit(MAX_COUNTERS)], |row| {
        Ok((row.get("name")?, get_uint(row, "value")?))
    })
}
