//! What is known of the work of agents beside its results: the chapters that they have opened, and notes of what they have done and learned.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use writ_store::batch::Batch;
use writ_store::memory::MemoryTraits;
use writ_store::reads::MemoryReads as _;
use writ_types::action::{MemoryKind, MemoryTrust, Remember};
use writ_types::error::Report;
use writ_types::id::SessionId;
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use super::PilotHands;
use crate::chapters;
use crate::error::EngineError;
use crate::remembering::{remember_ops, remembered};
use crate::services::Services;

/// The most memories of one call.
const MAX_NOTES: usize = 50;
/// The most notes of one subject that a new one is compared with.
const MAX_COMPARED: usize = 200;
/// The most notes of one subject that are read.
const MAX_READ: usize = 20;
/// The importance of what an autopilot has done, in thousandths: below what a person says.
const IMPORTANCE: u16 = 200;

/// Something about the work of agents that later work should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PilotNote {
    /// Its text.
    pub text: String,
    /// Its kind of memory.
    pub kind: MemoryKind,
    /// The subject under which it is found again; at most [`writ_store::memory::MAX_ENTITY_BYTES`] bytes.
    pub subject: Option<String>,
}

impl PilotHands {
    /// Returns the chapters that the agent of a session has opened, the oldest first, each with its time.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn read_chapters(&self, session: SessionId) -> Result<Vec<(String, Timestamp)>, Report> {
        let marks = chapters::read_marks(&self.services, session).await;
        self.reported(marks.map(|marks| marks.into_iter().map(|mark| (mark.name, mark.at)).collect()))
    }

    /// Stores notes as memories: all of them or none. One that is there under its subject is not stored again.
    ///
    /// # Errors
    ///
    /// If the store cannot be read or written.
    pub async fn remember(&self, notes: Vec<PilotNote>) -> Result<(), Report> {
        self.reported(remember(&self.services, notes).await)
    }

    /// Returns the texts of the notes of a subject, the newest first. What waits for the owner's word, or was forgotten, is not among them.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn notes_about(&self, subject: &str) -> Result<Vec<String>, Report> {
        let known = self.services.journal.store.memories_about(subject, MAX_READ).await;
        let texts = known.map(|known| known.into_iter().map(|one| one.item.text).collect());
        self.reported(texts.map_err(EngineError::from))
    }
}

/// Stores notes as memories, each as one of its own: all of them or none.
async fn remember(services: &Arc<Services>, notes: Vec<PilotNote>) -> Result<(), EngineError> {
    let mut ops = Vec::new();
    for note in notes.into_iter().take(MAX_NOTES) {
        let text = services.journal.redactor.clean_text(note.text).into_string();
        if let Some(subject) = &note.subject {
            let known = services.journal.store.memories_about(subject, MAX_COMPARED).await?;
            if known.iter().any(|one| one.item.text == text) {
                continue;
            }
        }
        let now = services.journal.clock.now();
        let id = services.journal.ids.memory(now);
        let item = Remember {
            text,
            memory_kind: note.kind,
            trust: MemoryTrust::Working,
            // Agents have chosen words of it, after they have read the project.
            taint: Taint::External,
            secret: false,
            session: None,
        };
        let entities = note.subject.into_iter().collect();
        let traits = MemoryTraits { importance: IMPORTANCE, entities, ..MemoryTraits::default() };
        ops.push(services.journal.own_entry(remembered(id, &item, false)));
        ops.extend(remember_ops(services, (id, item), traits, now).await?.0);
        services.life.metrics.memory("store");
    }
    if ops.is_empty() {
        return Ok(());
    }
    services.journal.store.commit(Batch::synced(ops)).await?;
    services.memories.added.fetch_add(1, Ordering::Release);
    Ok(())
}
