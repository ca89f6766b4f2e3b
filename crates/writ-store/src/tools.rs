//! The runs of tools that other programs offer: counters for the review of tools, not a record. What ran is in the ledger.

use rusqlite::{Connection, Row, params};
use writ_types::unit::Timestamp;

use crate::codec::{self, execute, query, query_one};
use crate::error::StoreError;

/// The most tools that are counted; of more, those that were seen last are not.
pub const MAX_COUNTED_TOOLS: usize = 20_000;

/// The longest name of a tool that is counted, in bytes.
pub const MAX_TOOL_NAME_BYTES: usize = 256;

/// The counters of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRuns {
    /// The name that models call.
    pub tool: String,
    /// When it was first run or reviewed.
    pub first_seen: Timestamp,
    /// The end of its last run.
    pub last_run: Option<Timestamp>,
    /// The number of runs.
    pub runs: u64,
    /// Those of them that have failed.
    pub failures: u64,
    /// The time that all of them took together, in milliseconds.
    pub total_ms: u64,
}

/// A change to the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolOp {
    /// Counts a run.
    Ran {
        /// The tool.
        tool: String,
        /// The end of the run.
        at: Timestamp,
        /// The time that it took, in milliseconds.
        took_ms: u64,
        /// True if it has failed.
        failed: bool,
    },
    /// Notes that a tool is there, unless it is known.
    Seen {
        /// The tool.
        tool: String,
        /// When.
        at: Timestamp,
    },
    /// Forgets the counters of a tool.
    Forget {
        /// The tool.
        tool: String,
    },
}

pub(crate) fn apply_tool_op(conn: &Connection, op: &ToolOp) -> Result<(), StoreError> {
    match op {
        ToolOp::Ran { tool, at, took_ms, failed } => {
            if !see_tool(conn, tool, *at)? {
                return Ok(());
            }
            let sql = "UPDATE tool_runs SET last_run = max(coalesce(last_run, 0), ?2), runs = runs + 1,
                       failures = failures + ?3, total_ms = total_ms + ?4 WHERE tool = ?1";
            // A run of more than a year would be a clock that was moved.
            let took = i64::try_from((*took_ms).min(MAX_RUN_MS)).unwrap_or(i64::MAX);
            execute(conn, sql, params![tool, at.as_millis(), i64::from(*failed), took]).map(drop)
        }
        ToolOp::Seen { tool, at } => see_tool(conn, tool, *at).map(drop),
        ToolOp::Forget { tool } => execute(conn, "DELETE FROM tool_runs WHERE tool = ?1", [tool]).map(drop),
    }
}

/// The longest run that is counted as such, in milliseconds: a year.
const MAX_RUN_MS: u64 = 366 * 24 * 60 * 60 * 1_000;

/// Makes the row of a tool, if it has none and there is room. Returns true if there is one.
fn see_tool(conn: &Connection, tool: &str, at: Timestamp) -> Result<bool, StoreError> {
    codec::check_bytes("name of a tool", tool, MAX_TOOL_NAME_BYTES)?;
    let known = query_one(conn, "SELECT 1 FROM tool_runs WHERE tool = ?1", [tool], |_| Ok(()))?;
    if known.is_some() {
        return Ok(true);
    }
    let tools = query_one(conn, "SELECT count(*) AS n FROM tool_runs", [], |row| codec::get_uint(row, "n"))?;
    if usize::try_from(tools.unwrap_or_default()).is_ok_and(|tools| tools >= MAX_COUNTED_TOOLS) {
        // A counter is no reason to refuse the turn that would add to it.
        return Ok(false);
    }
    execute(conn, "INSERT INTO tool_runs (tool, first_seen) VALUES (?1, ?2)", params![tool, at.as_millis()])?;
    Ok(true)
}

fn decode_runs(row: &Row<'_>) -> Result<ToolRuns, StoreError> {
    Ok(ToolRuns {
        tool: row.get("tool")?,
        first_seen: Timestamp::from_millis(row.get("first_seen")?),
        last_run: row.get::<_, Option<i64>>("last_run")?.map(Timestamp::from_millis),
        runs: codec::get_uint(row, "runs")?,
        failures: codec::get_uint(row, "failures")?,
        total_ms: codec::get_uint(row, "total_ms")?,
    })
}

pub(crate) fn read_tool_runs(conn: &Connection, limit: usize) -> Result<Vec<ToolRuns>, StoreError> {
    query(conn, "SELECT * FROM tool_runs ORDER BY tool LIMIT ?1", [codec::limit(limit)], decode_runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Op;
    use crate::testing::{TestHome, at};

    #[test]
    fn runs_add_up_and_a_tool_that_was_seen_stays_as_it_is() {
        let home = TestHome::new();
        let ran = |tool: &str, time, took_ms, failed| {
            Op::Tools(ToolOp::Ran { tool: tool.to_owned(), at: at(time), took_ms, failed })
        };
        let seen = |tool: &str, time| Op::Tools(ToolOp::Seen { tool: tool.to_owned(), at: at(time) });
        home.commit(vec![seen("b", 1), ran("a", 2, 100, false), ran("a", 5, 50, true), seen("a", 9)]);
        // A clock that was set back moves no last run.
        home.commit(vec![ran("a", 4, 0, false)]);
        let row = |tool: &str, first, last: Option<i64>, (runs, failures, total_ms)| ToolRuns {
            tool: tool.to_owned(),
            first_seen: at(first),
            last_run: last.map(at),
            runs,
            failures,
            total_ms,
        };
        let reads = home.store.blocking();
        let rows = [row("a", 2, Some(5), (3, 1, 150)), row("b", 1, None, (0, 0, 0))];
        assert_eq!(reads.tool_runs(10).expect("reads"), rows);
        home.commit(vec![Op::Tools(ToolOp::Forget { tool: "a".to_owned() })]);
        assert_eq!(reads.tool_runs(10).expect("reads"), rows[1..]);
    }
}
