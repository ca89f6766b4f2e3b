//! Files that are sent to the person.

use std::path::PathBuf;

use tokio_util::sync::CancellationToken;
use writ_policy::permit::Permit;
use writ_sandbox::outbox::{self, OutboxError};
use writ_store::batch::Op;
use writ_store::reads::LedgerReads as _;
use writ_tools::outcome::PerformedOutcome;
use writ_types::action::Action;
use writ_types::digest::Digest;
use writ_types::entry::Fact;
use writ_types::error::{Exit, Report, ToReport as _};
use writ_types::frame::ServerFrame;
use writ_types::id::{EntrySeq, SessionId};
use writ_types::taint::Taint;

use super::settle;
use crate::error::EngineError;
use crate::judging;
use crate::pending::Pending;
use crate::place::CallPlace;
use crate::services::Services;

/// Sends a file: takes it out of the work folder, checks it with the output gates, stores it in the home, and
/// notifies watching clients. Gates cannot rewrite a file, so a gate that would rewrite it stops it.
///
/// # Errors
///
/// If the sandbox cannot be used at all.
pub(super) async fn send(
    place: &CallPlace,
    permit: Permit,
    cancel: &CancellationToken,
    ops: &mut Pending,
) -> Result<PerformedOutcome, EngineError> {
    // The file is stored under the number of its intent, by which the ledger says where it came from and what it held.
    let entry = permit.entry();
    // Files of a project count as external, regardless of the permit's own label.
    let taint = match place.session.terms.project {
        Some(_) => Taint::External,
        None => permit.prepared().label.taint,
    };
    let Action::SendFile(send) = permit.action().clone() else {
        return Err(EngineError::Machine("a permit for something else".to_owned()));
    };
    // A call without a turn has no watching client.
    let Some(turn) = place.turn else {
        let text = "a file is sent in a turn only";
        return Ok(PerformedOutcome::Failed { report: Report::new(Exit::Usage, "send.no_turn", text) });
    };
    let workspace = place.services.workspace(&place.session).await?;
    let taken = match workspace.take_file(permit, place.services.journal.clock.now()).await {
        Ok(taken) => taken,
        Err(error) => return settle(Err(error)),
    };
    // A file of another kind is judged by what can be read of it.
    let secrets = place.services.journal.redactor.secrets_in(&String::from_utf8_lossy(taken.file_content()));
    if !secrets.is_empty() {
        let names = secrets.into_iter().collect::<Vec<_>>().join(", ");
        let text = format!("not sent: the file holds {names}");
        return Ok(PerformedOutcome::Failed { report: Report::new(Exit::Denied, "send.secret", text) });
    }
    let text = String::from_utf8_lossy(taken.file_content()).into_owned();
    if let Some(stopped) = stopped(place, &text, cancel, ops).await? {
        return Ok(PerformedOutcome::Failed { report: stopped });
    }
    let folder = sent_folder(&place.services, place.session.id);
    let kept = tokio::task::spawn_blocking(move || taken.store_file(&folder, entry.0)).await;
    let kept = match kept.map_err(|error| EngineError::Machine(error.to_string()))? {
        Ok(kept) => kept,
        Err(error) => return Ok(PerformedOutcome::Failed { report: error.report() }),
    };
    let frame = ServerFrame::File {
        turn,
        file: entry,
        name: kept.name.clone(),
        bytes: kept.bytes,
        digest: send.digest,
        path: kept.path.to_string_lossy().into_owned(),
        taint,
    };
    ops.push(Op::Frame { session: place.session.id, frame: Box::new(frame) });
    Ok(PerformedOutcome::Sent { name: kept.name, bytes: kept.bytes })
}

/// Returns the report if the output gates stop a text; `None` if it may go out unchanged.
async fn stopped(
    place: &CallPlace,
    text: &str,
    cancel: &CancellationToken,
    ops: &mut Pending,
) -> Result<Option<Report>, EngineError> {
    let ruled = judging::judge_said(place, text, cancel).await?;
    ops.extend(ruled.ops);
    if ruled.judged.text.as_deref() == Some(text) {
        return Ok(None);
    }
    let reason = ruled.judged.stop_reason().unwrap_or("a gate would have to change it");
    Ok(Some(Report::new(Exit::Denied, "gate.output", format!("not sent: {reason}"))))
}

/// A file that was sent, as it is handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentFile {
    /// Its name.
    pub name: String,
    /// Its content.
    pub content: Vec<u8>,
}

/// Folder of the files that a session has sent.
fn sent_folder(services: &Services, session: SessionId) -> PathBuf {
    services.config.sent.join(session.to_string())
}

/// A file that a session has sent.
///
/// # Errors
///
/// If there is none, it cannot be read, or it is not what was sent.
pub(crate) async fn sent_file(
    services: &Services,
    session: SessionId,
    file: EntrySeq,
) -> Result<SentFile, Report> {
    let missing = || OutboxError::Missing.report();
    let entry = services.journal.store.ledger_row(file).await.ok().flatten().and_then(|row| row.entry());
    let Some(entry) = entry.filter(|entry| entry.session == Some(session)) else {
        return Err(missing());
    };
    let Fact::Intent { action: Action::SendFile(sent), .. } = entry.fact else { return Err(missing()) };
    let folder = sent_folder(services, session);
    let read = tokio::task::spawn_blocking(move || outbox::read_stored(&folder, file.0)).await;
    let read = read.map_err(|error| {
        Report::new(Exit::Bug, "outbox.read", error.to_string()).with_hint(Exit::Bug.advice())
    })?;
    let (kept, content) = read.map_err(|error| error.report())?;
    if Digest::of_bytes(&content) != sent.digest {
        let text = "the file is not what was sent any more";
        let hint = "the folder data/sent was changed; ask the agent to send it again";
        return Err(Report::new(Exit::Verification, "outbox.changed", text).with_hint(hint));
    }
    Ok(SentFile { name: kept.name, content })
}
