//! The ways back from applied changes: what is written down so that something can be undone, for how long.

use std::time::Duration;

use writ_inspect::prepared::Prepared;
use writ_sandbox::apply::AppliedChanges;
use writ_store::batch::{Batch, NewUndo, Op};
use writ_store::reads::UndoReads as _;
use writ_types::action::WriteFile;
use writ_types::frame::Undo;
use writ_types::id::{AttemptId, SessionId};

use crate::error::EngineError;
use crate::pending::Pending;
use crate::place::CallPlace;
use crate::services::Services;
/// For how long one tap undoes what was done (SIL-328).
pub(crate) const UNDO_WINDOW: Duration = Duration::from_secs(5 * 60);

/// The longest time in which an undo is possible at all: after a day it is unclear what else rests on the
/// change.
pub(crate) const UNDO_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The most ways back that one session keeps; one more ends the oldest.
pub(crate) const MAX_KEPT: usize = 8;

/// The most ways back that one look ends for their age.
pub(crate) const MAX_ENDED: usize = 100;

/// The sink that names what is undone.
pub(crate) const UNDOES: &str = "undoes";

/// Stores the data for an undo, and returns the offer to show if there is anything to undo.
pub(crate) fn keep(
    place: &CallPlace,
    attempt: AttemptId,
    write: &WriteFile,
    applied: AppliedChanges,
    ops: &mut Pending,
) -> Option<Undo> {
    let at = place.services.journal.valid_now();
    let until = at.plus_duration(UNDO_WINDOW);
    // Without a way back it is written down, too, so that what was done before is not taken for what was done last.
    let kept = !applied.back.is_empty();
    let way = WriteFile { changes: applied.back, ..write.clone() };
    let session = place.session.id;
    ops.push(Op::KeepUndo(Box::new(NewUndo { attempt, session, at, until, way })));
    kept.then_some(Undo { attempt, until })
}

/// Returns the attempt that an undo refers to.
pub(crate) fn undone_by(prepared: &Prepared) -> Option<AttemptId> {
    let named = prepared.sinks.iter().find(|sink| sink.argument == UNDOES)?;
    named.value.parse().ok()
}

/// Returns the latest attempt of a session that can still be undone.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn last_way_back(
    services: &Services,
    session: SessionId,
) -> Result<Option<AttemptId>, EngineError> {
    let ways = services.journal.store.undos(session, MAX_KEPT).await?;
    Ok(ways.into_iter().find(|way| way.undone_at.is_none()).map(|way| way.attempt))
}

/// Ends the ways back that are too old, or too many for a session.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn end_undos(services: &Services, session: Option<SessionId>) -> Result<(), EngineError> {
    let now = services.journal.clock.now();
    let before = now.minus_duration(UNDO_KEPT);
    let mut over = services.journal.store.old_undos(before, MAX_ENDED).await?;
    if let Some(session) = session {
        over.extend(services.journal.store.undos(session, MAX_ENDED).await?.into_iter().skip(MAX_KEPT));
    }
    for way in over {
        let kept =
            services.sessions.get(way.session).await?.workspace_config(&services.config.overlays).data_dir;
        if let Err(error) = writ_sandbox::forget_back(&kept, way.attempt).await {
            tracing::warn!(%error, attempt = %way.attempt, "the stored copies for undo were not removed");
        }
        services.journal.store.commit(Batch::relaxed(vec![Op::ForgetUndo { attempt: way.attempt }])).await?;
    }
    Ok(())
}
