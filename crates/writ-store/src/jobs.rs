//! Jobs: work that is done again and again, by name, with its next run and its last result.
//!
//! The store does not read schedules and starts nothing: the engine asks for the jobs that are due, runs each, and
//! records the run with the next time in one batch.

use rusqlite::{Connection, Row, params};
use writ_types::unit::Timestamp;

use crate::codec::{self, execute, query, query_one};
use crate::error::{Conflict, StoreError};

/// The most jobs: chores of the engine, and a few hundred of an owner.
pub const MAX_JOBS: usize = 1_000;

/// The longest name of a job, in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// The longest schedule, in bytes.
pub const MAX_SCHEDULE_BYTES: usize = 1_024;

/// The longest result that is stored with a job, in characters.
pub const MAX_RESULT_CHARS: usize = 2_000;

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// Its schedule, in the words of its owner.
    pub schedule: String,
    /// The time of its next run; `None`: it does not run.
    pub next_run: Option<Timestamp>,
    /// The time of its last run.
    pub last_run: Option<Timestamp>,
    /// The result of its last run, for people; empty before the first.
    pub last_result: String,
}

/// A change to the jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOp {
    /// Adds a job, or gives it another schedule; its last run stays. Too many jobs are refused.
    Schedule {
        /// Its name.
        name: String,
        /// Its schedule.
        schedule: String,
        /// The time of its next run; `None`: it does not run.
        next_run: Option<Timestamp>,
    },
    /// Records a run. Conflict if there is no such job.
    Finish {
        /// The job.
        name: String,
        /// The time of the run.
        at: Timestamp,
        /// The result, for people; cut to [`MAX_RESULT_CHARS`].
        result: String,
        /// The time of the next run; `None`: it does not run again.
        next_run: Option<Timestamp>,
    },
    /// Removes a job. Removing a missing one is no error.
    Remove {
        /// The job.
        name: String,
    },
}

pub(crate) fn apply_job(conn: &Connection, op: &JobOp) -> Result<(), StoreError> {
    match op {
        JobOp::Schedule { name, schedule, next_run } => schedule_job(conn, name, schedule, *next_run),
        JobOp::Finish { name, at, result, next_run } => finish_job(conn, name, *at, result, *next_run),
        JobOp::Remove { name } => execute(conn, "DELETE FROM job WHERE name = ?1", [name]).map(drop),
    }
}

fn schedule_job(
    conn: &Connection,
    name: &str,
    schedule: &str,
    next_run: Option<Timestamp>,
) -> Result<(), StoreError> {
    codec::check_bytes("name of a job", name, MAX_NAME_BYTES)?;
    codec::check_bytes("schedule of a job", schedule, MAX_SCHEDULE_BYTES)?;
    let next_run = next_run.map(Timestamp::as_millis);
    let sql = "UPDATE job SET schedule = ?2, next_run = ?3 WHERE name = ?1";
    if execute(conn, sql, params![name, schedule, next_run])? > 0 {
        return Ok(());
    }
    // A known job was changed above, so the bound stops new ones only.
    let jobs = query_one(conn, "SELECT count(*) AS n FROM job", [], |row| codec::get_uint(row, "n"))?;
    if usize::try_from(jobs.unwrap_or_default()).is_ok_and(|jobs| jobs >= MAX_JOBS) {
        return Err(StoreError::TooLarge { what: "number of jobs", limit: MAX_JOBS });
    }
    let sql = "INSERT INTO job (name, schedule, next_run) VALUES (?1, ?2, ?3)";
    execute(conn, sql, params![name, schedule, next_run])?;
    Ok(())
}

fn finish_job(
    conn: &Connection,
    name: &str,
    at: Timestamp,
    result: &str,
    next_run: Option<Timestamp>,
) -> Result<(), StoreError> {
    let result: String = result.chars().take(MAX_RESULT_CHARS).collect();
    let sql = "UPDATE job SET last_run = ?2, last_result = ?3, next_run = ?4 WHERE name = ?1";
    let next_run = next_run.map(Timestamp::as_millis);
    if execute(conn, sql, params![name, at.as_millis(), result, next_run])? == 0 {
        return Err(Conflict::Missing { what: "job", id: name.to_owned() }.into());
    }
    Ok(())
}

fn decode_job(row: &Row<'_>) -> Result<Job, StoreError> {
    Ok(Job {
        name: row.get("name")?,
        schedule: row.get("schedule")?,
        next_run: row.get::<_, Option<i64>>("next_run")?.map(Timestamp::from_millis),
        last_run: row.get::<_, Option<i64>>("last_run")?.map(Timestamp::from_millis),
        last_result: row.get("last_result")?,
    })
}

pub(crate) fn read_job(conn: &Connection, name: &str) -> Result<Option<Job>, StoreError> {
    query_one(conn, "SELECT * FROM job WHERE name = ?1", [name], decode_job)
}

pub(crate) fn read_jobs(conn: &Connection, limit: usize) -> Result<Vec<Job>, StoreError> {
    query(conn, "SELECT * FROM job ORDER BY name LIMIT ?1", [codec::limit(limit)], decode_job)
}

pub(crate) fn due_jobs(conn: &Connection, now: Timestamp, limit: usize) -> Result<Vec<Job>, StoreError> {
    let sql = "SELECT * FROM job WHERE next_run <= ?1 ORDER BY next_run, name LIMIT ?2";
    query(conn, sql, params![now.as_millis(), codec::limit(limit)], decode_job)
}

pub(crate) fn next_job_due(conn: &Connection) -> Result<Option<Timestamp>, StoreError> {
    let sql = "SELECT min(next_run) FROM job WHERE next_run IS NOT NULL";
    let due: Option<Option<i64>> = query_one(conn, sql, [], |row| Ok(row.get(0)?))?;
    Ok(due.flatten().map(Timestamp::from_millis))
}

#[cfg(test)]
mod tests;
