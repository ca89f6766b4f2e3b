//! Chapters that agents of the autopilot open in their attempts: marks in the metadata of the session, which the autopilot reads.

use serde::{Deserialize, Serialize};
use writ_store::batch::Op;
use writ_store::reads::SessionReads as _;
use writ_tools::chapter::{chapter_tool, read_chapter};
use writ_tools::error::ToolError;
use writ_tools::render::Rendered;
use writ_types::chat::{ToolCall, ToolOutcome, ToolSpecs};
use writ_types::id::SessionId;
use writ_types::taint::Label;
use writ_types::unit::Timestamp;

use crate::error::EngineError;
use crate::outcome::Acted;
use crate::pending::Pending;
use crate::place::CallPlace;
use crate::services::Services;
use crate::session::Session;

/// The key of the session's metadata.
const CHAPTERS: &str = "chapters";
/// The most chapters of one attempt.
const MAX_CHAPTERS: usize = 40;

/// The begin of a chapter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChapterMark {
    pub(crate) name: String,
    pub(crate) at: Timestamp,
}

/// Adds the tool that opens chapters to those of an attempt of the autopilot. Other sessions have no chapters.
pub(crate) fn with_tool(session: &Session, specs: ToolSpecs) -> ToolSpecs {
    if session.plan_above().is_none() {
        return specs;
    }
    specs.with_spec(chapter_tool())
}

/// Reads the name of the chapter that a call opens; none if it is another call, or the session is no attempt.
///
/// # Errors
///
/// Everything that is wrong with its arguments.
pub(crate) fn read_call(place: &CallPlace, call: &ToolCall) -> Result<Option<String>, ToolError> {
    if place.session.plan_above().is_none() { Ok(None) } else { read_chapter(&call.name, &call.arguments) }
}

/// Opens a chapter.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn open_chapter(
    place: &CallPlace,
    first: &mut Pending,
    (call, label): (&ToolCall, &Label),
    name: String,
) -> Result<Acted, EngineError> {
    let services = &place.services;
    services.life.metrics.tool(&call.name);
    let mut marks = read_marks(services, place.session.id).await?;
    let done = |text: &str, outcome| Rendered {
        text: services.journal.redactor.clean_text(text.to_owned()),
        label: label.clone(),
        outcome,
    };
    if marks.len() >= MAX_CHAPTERS {
        let full =
            done("This attempt has as many chapters as it may: go on in the last one.", ToolOutcome::Failed);
        return Ok(place.result(call, full, "open a chapter", std::mem::take(first)));
    }
    let name = services.journal.redactor.clean_text(name).into_string();
    marks.push(ChapterMark { name, at: services.journal.clock.now() });
    let value = serde_json::to_value(&marks).map_err(|error| EngineError::Machine(error.to_string()))?;
    let mut ops = std::mem::take(first);
    ops.push(Op::SetSessionMetadata {
        session: place.session.id,
        key: CHAPTERS.to_owned(),
        value: Some(value),
    });
    let opened = done("The chapter is open.", ToolOutcome::Done);
    Ok(place.result(call, opened, "open a chapter", ops))
}

/// Reads the marks of a session, the oldest first; none for one that is not there.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn read_marks(
    services: &Services,
    session: SessionId,
) -> Result<Vec<ChapterMark>, EngineError> {
    let row = services.journal.store.session(session).await?;
    let marks = row.and_then(|row| row.metadata.get(CHAPTERS).cloned());
    Ok(marks.and_then(|marks| serde_json::from_value(marks).ok()).unwrap_or_default())
}
