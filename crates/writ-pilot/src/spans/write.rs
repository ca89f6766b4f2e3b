//! Writing the spans of units, and the index of the files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use serde_json::Value;
use writ_autopilot::unit_id::UnitId;
use writ_store::batch::Op;
use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::{LedgerReads as _, UnitReads as _};
use writ_store::units::{MAX_ASKED_SPANS, MAX_INDEXED_SPANS, RunRow, SpanRow, UnitOp};
use writ_types::api::pilot::{PilotSpan, SpanOperation};
use writ_types::entry::Entry;
use writ_types::id::{EntrySeq, SessionId};
use writ_types::unit::Timestamp;

use super::file::{ARCHIVE, PlacedSpan, TRACE, TraceFiles};
use super::make::SpanNames;
use super::trace_id;
use crate::chapters::read_chapters;
use crate::error::AutopilotError;
use crate::project::OpenProject;
use crate::trace::attempts_of;

/// The entries of an attempt that are read at once.
const PAGE: usize = 2_000;
/// The most pages of one attempt.
const MAX_PAGES: usize = 500;

/// Writes the spans of a unit that are not written yet.
///
/// # Errors
///
/// If store, ledger or file cannot be read or written.
pub(super) async fn write_unit(project: &OpenProject, id: UnitId) -> Result<(), AutopilotError> {
    let _alone = project.trace.writing.lock().await;
    if !project.trace.is_indexed.load(Ordering::SeqCst) {
        index_files(project).await?;
    }
    let (store, key) = (project.hands.store(), project.key_of(id));
    let (unit, session) = (id.to_string(), project.session().to_string());
    let trace = trace_id(&project.name, &unit);
    let names = SpanNames { trace: &trace, session: &session, unit: &unit };
    let runs = store.unit_runs(key.clone()).await?;
    let moves = store.unit_transitions(key.clone()).await?;
    let gates = store.unit_gates(key).await?;
    let mut spans = names.spans_of_moves(&runs, &moves);
    spans.extend(names.spans_of_gates(&runs, &gates));
    let mut ended: Vec<&RunRow> = runs.iter().filter(|run| run.end.is_some()).collect();
    let marks: Vec<String> = ended.iter().map(|run| run.id.to_string()).collect();
    let marks = written_ids(project, &trace, &marks).await?;
    // The span of a run is written with all that has happened in it.
    ended.retain(|run| !marks.contains(&run.id.to_string()));
    for run in ended {
        for session in sessions_of(project, id, (&runs, run)).await? {
            spans.extend(names.spans_of_entries(run, &read_entries(project, session).await?));
        }
        spans.extend(names.span_of_run(run));
    }
    let chapters = read_chapters(&project.files, id)?;
    for span in &mut spans {
        if let Some(chapter) = chapters.find_chapter(&span.run_id, span.started_at) {
            span.attrs.insert("chapter".to_owned(), chapter.into());
        }
    }
    let ids: Vec<String> = spans.iter().map(|span| span.span_id.clone()).collect();
    let mut written = written_ids(project, &trace, &ids).await?;
    spans.retain(|span| written.insert(span.span_id.clone()));
    order_spans(&mut spans);
    for part in spans.chunks(MAX_INDEXED_SPANS) {
        append(project, part).await?;
    }
    Ok(())
}

/// Returns those of the ids that the index has for a trace. All are asked for, however many there are: one that is left out would be
/// written again each time.
async fn written_ids(
    project: &OpenProject,
    trace: &str,
    ids: &[String],
) -> Result<BTreeSet<String>, AutopilotError> {
    let mut written = BTreeSet::new();
    for part in ids.chunks(MAX_ASKED_SPANS) {
        written.extend(project.hands.store().written_spans(trace, part).await?);
    }
    Ok(written)
}

/// Orders spans by their begins, those of runs behind all others: the span of a run says that all of the run is written, so it comes
/// last.
fn order_spans(spans: &mut [PilotSpan]) {
    spans.sort_by_key(|span| (span.operation == SpanOperation::Run, span.started_at));
}

/// Adds spans to the file of today, and to the index once they are on disk.
async fn append(project: &OpenProject, spans: &[PilotSpan]) -> Result<(), AutopilotError> {
    let _alone = project.trace.files.write().await;
    let files = TraceFiles::of_project(project.git.project().top_dir());
    let now = project.hands.now();
    // Until both are done, also where this ends with an error between them.
    project.trace.is_indexed.store(false, Ordering::SeqCst);
    let (file, offsets) = files.append((&project.hands.date_at(now), now), spans)?;
    let rows = spans.iter().zip(offsets).map(|(span, offset)| index_row(project, &file, (span, offset)));
    let rows = UnitOp::IndexSpans(rows.collect());
    project.hands.commit(vec![Op::Units(rows)]).await?;
    project.trace.is_indexed.store(true, Ordering::SeqCst);
    Ok(())
}

fn index_row(project: &OpenProject, file: &str, (span, offset): (&PilotSpan, u64)) -> SpanRow {
    SpanRow {
        run: span.run_id.clone(),
        span: span.span_id.clone(),
        parent: span.parent_span_id.clone(),
        trace: span.trace_id.clone(),
        operation: span.operation.name().to_owned(),
        started_at: span.started_at,
        duration_ms: span.duration_ms,
        project: project.name.clone(),
        file: file.to_owned(),
        offset,
    }
}

/// The owners of spans: runs with their units, and sessions, which have none.
type Owners = BTreeMap<String, Option<String>>;

/// Brings the index up to date with the files: what a crash has left out, or all of it after its loss. A file that cannot be read is
/// left out, with a line in the log, and so is a span of no run and no session of this project: agents may have merged files.
///
/// # Errors
///
/// If the store or a folder cannot be read.
pub(super) async fn index_files(project: &OpenProject) -> Result<(), AutopilotError> {
    let _alone = project.trace.files.write().await;
    let files = TraceFiles::of_project(project.git.project().top_dir());
    let indexed = project.hands.store().indexed_files(&project.name).await?;
    let name_of = |file: &str| file.rsplit('/').next().unwrap_or_default().to_owned();
    let archived = files.list(ARCHIVE).unwrap_or_else(|error| {
        tracing::warn!(%error, "the archive of a trace is not indexed");
        Vec::new()
    });
    for file in [files.list(TRACE)?, archived].concat() {
        // By the name alone: a move that was cut off has left the old place in the index.
        let last = indexed.iter().find(|one| name_of(&one.file) == name_of(&file));
        let place = last.map_or(&file, |one| &one.file);
        let mut after = last.map(|one| one.last_offset);
        loop {
            let found = match files.read_after(&file, after) {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(file, %error, "a trace file is not indexed");
                    break;
                }
            };
            let Some(newest) = found.last() else { break };
            after = Some(newest.offset);
            index_found(project, place, &found).await?;
        }
    }
    project.trace.is_indexed.store(true, Ordering::SeqCst);
    Ok(())
}

/// Indexes those spans of a part of a file that can be of this project.
async fn index_found(project: &OpenProject, place: &str, found: &[PlacedSpan]) -> Result<(), AutopilotError> {
    for part in found.chunks(MAX_INDEXED_SPANS) {
        let owners = owners_of(project, part).await?;
        let own = part.iter().filter(|one| is_own(&project.name, &owners, &one.span));
        let rows: Vec<SpanRow> = own.map(|one| index_row(project, place, (&one.span, one.offset))).collect();
        if !rows.is_empty() {
            project.hands.commit(vec![Op::Units(UnitOp::ReindexSpans(rows))]).await?;
        }
    }
    Ok(())
}

async fn owners_of(project: &OpenProject, spans: &[PlacedSpan]) -> Result<Owners, AutopilotError> {
    let ids: BTreeSet<&String> = spans.iter().map(|one| &one.span.run_id).collect();
    let ids: Vec<String> = ids.into_iter().cloned().collect();
    let mut owners = Owners::new();
    for part in ids.chunks(MAX_ASKED_SPANS) {
        owners.extend(project.hands.store().span_owners(&project.name, part).await?);
    }
    Ok(owners)
}

/// Returns true for a span that can be of this project: its run is there and of the unit that it names, or, outside of runs, its session is
/// there. Any other one could stand in the place of a span that is still to come.
fn is_own(project: &str, owners: &Owners, span: &PilotSpan) -> bool {
    let named = span.attrs.get("unit_id").and_then(Value::as_str);
    let (Some(owner), Some(named)) = (owners.get(&span.run_id), named) else { return false };
    let fits = match owner {
        Some(unit) => {
            unit == named && (span.operation == SpanOperation::Run) == (span.span_id == span.run_id)
        }
        None => matches!(span.operation, SpanOperation::PhaseTransition | SpanOperation::Gate),
    };
    fits && span.trace_id == trace_id(project, named)
}

/// Returns the sessions in which agents have worked in a run.
async fn sessions_of(
    project: &OpenProject,
    id: UnitId,
    (runs, run): (&[RunRow], &RunRow),
) -> Result<Vec<SessionId>, AutopilotError> {
    let next = runs.iter().map(|other| other.started_at).filter(|at| *at > run.started_at).min();
    let attempts = attempts_of(project, id).await?;
    let is_in = |began: &Timestamp| *began >= run.started_at && next.is_none_or(|next| *began < next);
    Ok(attempts.into_iter().filter(|(_, began)| is_in(began)).map(|(session, _)| session).collect())
}

/// Reads the entries of a session, the oldest first.
async fn read_entries(
    project: &OpenProject,
    session: SessionId,
) -> Result<Vec<(EntrySeq, Entry)>, AutopilotError> {
    let (mut entries, mut before) = (Vec::new(), None);
    for _ in 0..MAX_PAGES {
        let query = LedgerQuery { session: Some(session), before, limit: PAGE, ..LedgerQuery::default() };
        let rows = project.hands.store().ledger_search(&query).await?;
        before = rows.last().map(|row| row.seq);
        let is_last = rows.len() < PAGE;
        entries.extend(rows.into_iter().filter_map(|row| Some((row.seq, row.entry()?))));
        if is_last {
            break;
        }
    }
    entries.reverse();
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    const UNIT: &str = "task/m1/s1/t1";

    fn span(run: &str, id: &str, at: i64) -> PilotSpan {
        PilotSpan {
            trace_id: trace_id("/p", UNIT),
            span_id: id.to_owned(),
            parent_span_id: (run != id).then(|| run.to_owned()),
            run_id: run.to_owned(),
            operation: if run == id { SpanOperation::Run } else { SpanOperation::ToolCall },
            started_at: Timestamp::from_millis(at),
            duration_ms: 1,
            attrs: Map::from_iter([("unit_id".to_owned(), UNIT.into())]),
            error: None,
        }
    }

    /// A run begins before all that happens in it, and is written after it: what is cut off between them is written at the next try.
    #[test]
    fn a_run_is_written_after_what_has_happened_in_it() {
        let mut spans = [
            span("r1", "r1", 1),
            span("r1", "b", 3),
            span("r2", "r2", 4),
            span("r2", "c", 5),
            span("r1", "a", 2),
        ];
        order_spans(&mut spans);
        let ids: Vec<&str> = spans.iter().map(|span| span.span_id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "c", "r1", "r2"]);
    }

    /// A span of a file counts if its run or session is there and everything in it fits that; a run of another unit, a run that is not there
    /// yet, and a trace of another project do not.
    #[test]
    fn a_span_of_a_foreign_file_is_not_taken() {
        let run = |id: &str, unit: &str| (id.to_owned(), Some(unit.to_owned()));
        let owners =
            Owners::from_iter([run("r1", UNIT), run("r2", "task/m1/s1/t2"), ("session".to_owned(), None)]);
        let is_own = |span: &PilotSpan| is_own("/p", &owners, span);
        assert!(is_own(&span("r1", "r1", 1)) && is_own(&span("r1", "a", 1)));
        let moved = PilotSpan { operation: SpanOperation::PhaseTransition, ..span("session", "move", 1) };
        assert!(is_own(&moved));
        for foreign in [
            span("r2", "a", 1),
            span("r3", "a", 1),
            span("session", "a", 1),
            PilotSpan { trace_id: trace_id("/q", UNIT), ..span("r1", "a", 1) },
            PilotSpan { attrs: Map::new(), ..span("r1", "a", 1) },
            PilotSpan { operation: SpanOperation::ToolCall, ..span("r1", "r1", 1) },
        ] {
            assert!(!is_own(&foreign), "{foreign:?}");
        }
    }
}
