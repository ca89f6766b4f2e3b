//! What is known of the work of agents beside its results: the chapters that they have opened, and memories of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use writ_store::batch::Batch;
use writ_store::memory::MemoryTraits;
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
/// The importance of what an autopilot has done, in thousandths: below what a person says.
const IMPORTANCE: u16 = 200;

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

    /// Stores texts as memories of what has happened: all of them or none.
    ///
    /// # Errors
    ///
    /// If the store cannot be read or written.
    pub async fn remember(&self, notes: Vec<String>) -> Result<(), Report> {
        self.reported(remember(&self.services, notes).await)
    }
}

/// Stores texts as memories of what has happened, each as one of its own: all of them or none.
async fn remember(services: &Arc<Services>, notes: Vec<String>) -> Result<(), EngineError> {
    let mut ops = Vec::new();
    for text in notes.into_iter().take(MAX_NOTES) {
        let now = services.journal.clock.now();
        let id = services.journal.ids.memory(now);
        let item = Remember {
            text: services.journal.redactor.clean_text(text).into_string(),
            memory_kind: MemoryKind::Episode,
            trust: MemoryTrust::Working,
            // Agents have chosen words of it, after they have read the project.
            taint: Taint::External,
            secret: false,
            session: None,
        };
        let traits = MemoryTraits { importance: IMPORTANCE, ..MemoryTraits::default() };
        ops.push(services.journal.own_entry(remembered(id, &item, false)));
        ops.extend(remember_ops(services, (id, item), traits, now).await?.0);
        services.life.metrics.memory("store");
    }
    services.journal.store.commit(Batch::synced(ops)).await?;
    services.memories.added.fetch_add(1, Ordering::Release);
    Ok(())
}
