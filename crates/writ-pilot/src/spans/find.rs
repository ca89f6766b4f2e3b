//! Finding spans: by the index, and by one look into a file for each.

use std::time::Duration;

use writ_autopilot::unit_id::UnitId;
use writ_store::reads::UnitReads as _;
use writ_store::units::SpanFilter;
use writ_types::api::pilot::{PilotTrace, PilotTraceQuery};

use super::file::TraceFiles;
use super::trace_id;
use crate::chapters::read_chapters;
use crate::error::AutopilotError;
use crate::project::OpenProject;

/// The most spans of one answer.
const MAX_SPANS: usize = 2_000;
/// The longest that a look waits for spans to be written.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Finds the spans of a unit, a run or a session.
///
/// # Errors
///
/// If there is nothing of that id, or the index cannot be read.
pub(crate) async fn find_spans(
    project: &OpenProject,
    query: &PilotTraceQuery,
) -> Result<PilotTrace, AutopilotError> {
    let store = project.hands.store();
    let id: String = query.id.chars().filter(|c| !c.is_control()).take(100).collect();
    let limit = if query.last == 0 { MAX_SPANS } else { query.last.min(MAX_SPANS) };
    let unit = id.parse::<UnitId>().ok();
    let mut unreadable = Vec::new();
    if let Some(unit) = unit {
        if store.unit(project.key_of(unit)).await?.is_none() {
            return Err(AutopilotError::NoUnit { unit: id });
        }
        // What the task in the background has not come to yet is shown, too: a look writes nothing, and has that task do it.
        let written = tokio::time::timeout(MAX_WAIT, project.trace.write_next(unit)).await;
        if let Err(why) = written.unwrap_or_else(|_| Err("it takes long".to_owned())) {
            unreadable.push(format!("{unit}: spans that are not written yet: {why}"));
        }
    }
    // While a file is moved the index says where it was.
    let _still = project.trace.files.read().await;
    let rows = if let Some(unit) = unit {
        let trace = trace_id(&project.name, &unit.to_string());
        store.trace_spans(&project.name, SpanFilter::Trace(trace), limit).await?
    } else if id == project.session().to_string() {
        store.trace_spans(&project.name, SpanFilter::Project(project.name.clone()), limit).await?
    } else {
        let rows = store.trace_spans(&project.name, SpanFilter::Run(id.clone()), limit).await?;
        if rows.is_empty() {
            return Err(AutopilotError::NoTrace { id });
        }
        rows
    };
    let files = TraceFiles::of_project(project.git.project().top_dir());
    let chapters = unit.map(|unit| read_chapters(&project.files, unit)).transpose()?.unwrap_or_default();
    let chapters = chapters.chapters().to_vec();
    let mut found = PilotTrace { id, spans: Vec::new(), chapters, unreadable, read_bytes: 0 };
    for row in rows {
        let read = files.read_at(&row.file, row.offset);
        found.read_bytes = found.read_bytes.saturating_add(read.bytes);
        match read.span {
            Ok(span) => found.spans.push(span),
            Err(why) => found.unreadable.push(format!("{}: {why}", row.span)),
        }
    }
    for span in &found.spans {
        let chapter = span.attrs.get("chapter").and_then(serde_json::Value::as_str);
        let chapter = found.chapters.iter_mut().find(|one| Some(one.id.as_str()) == chapter);
        chapter.into_iter().for_each(|chapter| chapter.span_ids.push(span.span_id.clone()));
    }
    Ok(found)
}
