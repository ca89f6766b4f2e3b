//! The index of the spans in an autopilot's trace files.

use rusqlite::{Connection, Row, params};
use writ_types::unit::Timestamp;

use super::MAX_TITLE_BYTES;
use crate::codec::{self, execute, get_time, get_uint, int, query};
use crate::error::{Conflict, StoreError};

/// The most spans that one commit indexes.
pub const MAX_INDEXED_SPANS: usize = 1_000;
/// The most ids that one read compares with the index.
pub const MAX_ASKED_SPANS: usize = 1_000;

/// The place of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanRow {
    /// The run; of a span outside of runs, the session.
    pub run: String,
    /// The span, unique within its run; that of the run itself has the run's id.
    pub span: String,
    /// The span around it.
    pub parent: Option<String>,
    /// The trace: all spans of one unit have the same.
    pub trace: String,
    /// `run`, `phase_transition`, `tool_call`, `model_request`, `gate` or `hook`.
    pub operation: String,
    /// Its begin.
    pub started_at: Timestamp,
    /// The time that it took, in milliseconds.
    pub duration_ms: u64,
    /// The project's folder.
    pub project: String,
    /// The file, below the project's folder.
    pub file: String,
    /// The first byte of its line.
    pub offset: u64,
}

/// A trace file that has another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceMove {
    /// The project's folder.
    pub project: String,
    /// The place before, below the project's folder.
    pub from: String,
    /// The place after.
    pub to: String,
}

/// A trace file, as far as it is indexed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedFile {
    /// The file, below the project's folder.
    pub file: String,
    /// The number of its spans.
    pub spans: u64,
    /// The first byte of the last of them.
    pub last_offset: u64,
}

/// The spans that are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanFilter {
    /// Those of a trace.
    Trace(String),
    /// Those of a run, or those of a session that are outside of runs.
    Run(String),
    /// Those of a project.
    Project(String),
}

/// Adds new spans: one that is there already is a conflict.
pub(super) fn index_spans(conn: &Connection, rows: &[SpanRow]) -> Result<(), StoreError> {
    for row in rows {
        check_row(row)?;
        if !add_row(conn, row)? {
            return Err(Conflict::Exists { what: "span of this run", id: row.span.clone() }.into());
        }
    }
    Ok(())
}

/// Adds spans that files have, where they are missing. A file may come from elsewhere, so what is odd in it holds up nothing.
pub(super) fn reindex_spans(conn: &Connection, rows: &[SpanRow]) -> Result<(), StoreError> {
    for row in rows.iter().filter(|row| check_row(row).is_ok()) {
        add_row(conn, row)?;
    }
    Ok(())
}

fn check_row(row: &SpanRow) -> Result<(), StoreError> {
    let parent = row.parent.as_ref().unwrap_or(&row.run);
    for text in [&row.run, &row.span, parent, &row.trace, &row.file] {
        codec::check_bytes("span of a trace", text, MAX_TITLE_BYTES)?;
    }
    Ok(())
}

/// Adds a row. Returns false if its span is there.
fn add_row(conn: &Connection, row: &SpanRow) -> Result<bool, StoreError> {
    let sql = "INSERT INTO trace_index (run_id, span_id, parent_span_id, trace_id, operation, started_at, duration_ms, project,
                                        file_path, file_offset)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING";
    let added = execute(
        conn,
        sql,
        params![
            row.run,
            row.span,
            row.parent,
            row.trace,
            row.operation,
            row.started_at.as_millis(),
            int(row.duration_ms),
            row.project,
            row.file,
            int(row.offset),
        ],
    )?;
    Ok(added > 0)
}

pub(super) fn move_trace(conn: &Connection, moved: &TraceMove) -> Result<(), StoreError> {
    let sql = "UPDATE trace_index SET file_path = ?3 WHERE project = ?1 AND file_path = ?2";
    execute(conn, sql, params![moved.project, moved.from, moved.to])?;
    Ok(())
}

fn decode_span(row: &Row<'_>) -> Result<SpanRow, StoreError> {
    Ok(SpanRow {
        run: row.get("run_id")?,
        span: row.get("span_id")?,
        parent: row.get("parent_span_id")?,
        trace: row.get("trace_id")?,
        operation: row.get("operation")?,
        started_at: get_time(row, "started_at")?,
        duration_ms: get_uint(row, "duration_ms")?,
        project: row.get("project")?,
        file: row.get("file_path")?,
        offset: get_uint(row, "file_offset")?,
    })
}

/// Returns the newest spans that fit, in the order of their begins.
pub(crate) fn spans(
    conn: &Connection,
    project: &str,
    filter: &SpanFilter,
    limit: usize,
) -> Result<Vec<SpanRow>, StoreError> {
    // Each by its own index, so that what is read does not grow with the trace.
    let (column, value) = match filter {
        SpanFilter::Trace(trace) => ("trace_id", trace),
        SpanFilter::Run(run) => ("run_id", run),
        SpanFilter::Project(project) => ("project", project),
    };
    let sql = format!(
        "SELECT * FROM (SELECT * FROM trace_index WHERE {column} = ?1 AND project = ?2
                        ORDER BY started_at DESC, file_offset DESC LIMIT ?3)
         ORDER BY started_at, file_path, file_offset"
    );
    query(conn, &sql, params![value, project, codec::limit(limit)], decode_span)
}

/// Returns ids as one value of a query. More than a read compares are an error: what is left out would seem not to be there.
fn asked(ids: &[String]) -> Result<String, StoreError> {
    if ids.len() > MAX_ASKED_SPANS {
        return Err(StoreError::TooLarge { what: "number of ids", limit: MAX_ASKED_SPANS });
    }
    codec::to_json("ids of spans", &ids)
}

/// Returns those of the ids that spans of a trace have, at most [`MAX_ASKED_SPANS`] of them.
pub(crate) fn written_spans(
    conn: &Connection,
    trace: &str,
    ids: &[String],
) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT j.value FROM json_each(?2) j
               WHERE EXISTS (SELECT 1 FROM trace_index t WHERE t.trace_id = ?1 AND t.span_id = j.value)";
    query(conn, sql, params![trace, asked(ids)?], |row| Ok(row.get(0)?))
}

/// Returns those of the ids that are runs of a project's units, each with its unit, and those that are sessions of the project. At most
/// [`MAX_ASKED_SPANS`] ids.
pub(crate) fn span_owners(
    conn: &Connection,
    project: &str,
    ids: &[String],
) -> Result<Vec<(String, Option<String>)>, StoreError> {
    let sql = "SELECT r.id, r.unit_snap FROM json_each(?2) j JOIN unit_run r ON r.id = j.value
               WHERE r.project = ?1 AND r.unit_snap IS NOT NULL
               UNION ALL
               SELECT s.id, NULL FROM json_each(?2) j JOIN pilot_session s ON s.id = j.value WHERE s.project = ?1";
    query(conn, sql, params![project, asked(ids)?], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Returns the trace files of a project, as far as they are indexed.
pub(crate) fn indexed_files(conn: &Connection, project: &str) -> Result<Vec<IndexedFile>, StoreError> {
    let sql = "SELECT file_path, count(*) AS spans, max(file_offset) AS last_offset FROM trace_index
               WHERE project = ?1 GROUP BY file_path ORDER BY file_path LIMIT ?2";
    query(conn, sql, params![project, codec::limit(usize::MAX)], |row| {
        Ok(IndexedFile {
            file: row.get("file_path")?,
            spans: get_uint(row, "spans")?,
            last_offset: get_uint(row, "last_offset")?,
        })
    })
}

/// Returns the units with runs that have ended and have no span, the oldest first.
pub(crate) fn untraced_units(
    conn: &Connection,
    project: &str,
    limit: usize,
) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT unit_snap FROM unit_run r WHERE project = ?1 AND unit_snap IS NOT NULL AND ended_at IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM trace_index t WHERE t.run_id = r.id AND t.span_id = r.id)
               GROUP BY unit_snap ORDER BY min(started_at) LIMIT ?2";
    query(conn, sql, params![project, codec::limit(limit)], |row| Ok(row.get(0)?))
}
