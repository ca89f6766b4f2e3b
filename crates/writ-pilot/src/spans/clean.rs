//! Moving old trace files to the archive.

use std::time::Duration;

use writ_store::batch::Op;
use writ_store::reads::UnitReads as _;
use writ_store::units::{TraceMove, UnitOp};
use writ_types::api::pilot::{PilotCleaned, PilotCleaning};

use super::file::{ARCHIVE, TRACE, TraceFiles, day_of};
use crate::error::AutopilotError;
use crate::project::OpenProject;

/// The time that a trace file stays in its place.
const TRACE_TIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Moves the trace files that are older than thirty days to the archive, or only lists them. A move that was cut off earlier is
/// brought to its end.
///
/// # Errors
///
/// If a file cannot be moved, or the index cannot be written.
pub(crate) async fn clean_up(
    project: &OpenProject,
    order: &PilotCleaning,
) -> Result<PilotCleaned, AutopilotError> {
    // Until both are done, so that no one finds a place where the file is not.
    let _alone = project.trace.files.write().await;
    let files = TraceFiles::of_project(project.git.project().top_dir());
    let oldest = project.hands.date_at(project.hands.now().minus_duration(TRACE_TIME));
    let is_old = |file: &String| {
        let name = file.rsplit('/').next().unwrap_or_default();
        // Days of this form are in the order of their letters.
        day_of(name).is_some_and(|day| day < oldest.as_str())
    };
    let old: Vec<String> = files.list(TRACE)?.into_iter().filter(is_old).collect();
    let mut cut_off = Vec::new();
    let indexed = project.hands.store().indexed_files(&project.name).await?;
    for file in files.list(ARCHIVE)? {
        let place = file.replacen(ARCHIVE, TRACE, 1);
        if indexed.iter().any(|one| one.file == place) && !old.contains(&place) {
            cut_off.push((place, file));
        }
    }
    let repaired = cut_off.iter().map(|(_, file)| file.clone()).collect();
    if !order.dry_run {
        for (from, to) in cut_off {
            note_move(project, from, to).await?;
        }
        for file in &old {
            let to = files.archive(file)?;
            note_move(project, file.clone(), to).await?;
        }
        if !old.is_empty() {
            files.write_list()?;
        }
    }
    Ok(PilotCleaned { dry_run: order.dry_run, archived: old, repaired })
}

async fn note_move(project: &OpenProject, from: String, to: String) -> Result<(), AutopilotError> {
    let moved = TraceMove { project: project.name.clone(), from, to };
    Ok(project.hands.commit(vec![Op::Units(UnitOp::MoveTrace(Box::new(moved)))]).await?)
}
