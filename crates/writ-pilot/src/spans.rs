//! The trace of a project: a span for each run, move, tool call, model request, gate and hook of its units, in one file a day.
//!
//! Spans are made of what store and ledger have, so each can be made again: what could not be written is written at the next start. The files
//! are the truth of a trace, and the index in the store says where in them each span lies; it is filled after a file is on disk, and
//! made anew from the files if it is behind them.

use std::sync::{Arc, Weak};

use writ_autopilot::failure::FailureCode;
use writ_store::reads::UnitReads as _;
use writ_types::digest::Digest;

use crate::error::AutopilotError;
use crate::project::OpenProject;

mod clean;

mod file;

mod find;

mod make;

mod write;

pub(crate) use clean::clean_up;
pub(crate) use find::find_spans;

/// The characters of a trace's id.
const TRACE_ID_CHARS: usize = 32;
/// The most units with missing spans that are written at a start.
const MAX_UNTRACED: usize = 1_000;

/// Returns the trace of a unit.
pub(crate) fn trace_id(project: &str, unit: &str) -> String {
    let digest = Digest::of_bytes(format!("{project}\n{unit}").as_bytes()).to_string();
    digest.chars().take(TRACE_ID_CHARS).collect()
}

/// Begins the trace of a project that was opened: brings the index up to date with the files, and has missing spans written. What fails
/// is in the log, and holds up nothing.
pub(crate) async fn begin_trace(project: &Arc<OpenProject>) {
    let own = Arc::downgrade(project);
    project.trace.set_writer(Box::new(move || start_writer(&own)));
    if let Err(error) = resume(project).await {
        tracing::warn!(%error, "the trace of a project cannot be read now");
    }
}

async fn resume(project: &OpenProject) -> Result<(), AutopilotError> {
    write::index_files(project).await?;
    for unit in project.hands.store().untraced_units(&project.name, MAX_UNTRACED).await? {
        if let Ok(unit) = unit.parse() {
            project.trace.emit(unit);
        }
    }
    Ok(())
}

fn start_writer(project: &Weak<OpenProject>) {
    let Some(own) = project.upgrade() else { return };
    let (hands, tasks) = (own.hands.clone(), own.tasks.clone());
    hands.spawn(tasks.track_future(async move {
        while let Some(unit) = own.trace.take() {
            // A full disk or a broken index never holds up the work that is traced.
            if let Err(error) = write::write_unit(&own, unit).await {
                let code = FailureCode::TraceFailed;
                let (code, class) = (code.name(), code.class().name());
                tracing::warn!(%unit, %error, code, class, "spans cannot be written now; they are written later");
                return own.trace.put_back(unit, error.to_string());
            }
        }
    }));
}
