//! The chapters of units, in a file of each: begun with each run, opened by its agents, and ended with it.
//!
//! They are notes about the work and decide nothing, so what fails here is in the log and holds nothing up.

use writ_autopilot::chapter::{ChapterList, ChapterUnit};
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::unit_id::UnitId;
use writ_runtime::pilot::PilotHands;
use writ_types::api::pilot::{ChapterOutcome, PilotChapter};
use writ_types::id::SessionId;
use writ_types::unit::Timestamp;

use crate::error::AutopilotError;
use crate::prompts::PromptName;
use crate::unit_files::{UnitFile, UnitFiles};

/// A run of a unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunOfUnit<'a> {
    pub(crate) id: UnitId,
    pub(crate) title: &'a str,
    pub(crate) run: &'a str,
}

/// What chapters are written with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChapterDesk<'a> {
    pub(crate) files: &'a UnitFiles,
    pub(crate) hands: &'a PilotHands,
}

/// Reads the chapters of a unit, also of one that was archived.
///
/// # Errors
///
/// If the file cannot be read.
pub(crate) fn read_chapters(files: &UnitFiles, id: UnitId) -> Result<ChapterList, AutopilotError> {
    let text = files.read_newest(id, UnitFile::Chapters)?;
    // A list that cannot be read is begun anew.
    let chapters: Vec<PilotChapter> = serde_json::from_str(&text).unwrap_or_default();
    Ok(ChapterList::of_chapters(chapters))
}

impl ChapterDesk<'_> {
    /// Begins the first chapter of a run.
    pub(crate) fn begin_run(self, of: RunOfUnit<'_>, phase: &str) {
        let begun = read_chapters(self.files, of.id).and_then(|mut list| {
            let id = of.id.to_string();
            list.begin_run(&ChapterUnit { id: &id, title: of.title }, (of.run, phase), self.hands.now());
            self.write_chapters(of.id, &list)
        });
        if let Err(error) = begun {
            tracing::warn!(unit = %of.id, %error, "a chapter cannot be written");
        }
    }

    /// Adds the chapters that the agents of a run have opened, ends the last one, and has those that are over remembered. `attempts`: the
    /// sessions of the unit with their begins.
    pub(crate) async fn end_run(
        self,
        of: RunOfUnit<'_>,
        is_success: bool,
        attempts: Result<Vec<(SessionId, Timestamp)>, AutopilotError>,
    ) {
        let ended = match attempts {
            Ok(attempts) => self.try_end(of, is_success, &attempts).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::warn!(unit = %of.id, %error, "the chapters of a run cannot be written");
        }
    }

    async fn try_end(
        self,
        of: RunOfUnit<'_>,
        is_success: bool,
        attempts: &[(SessionId, Timestamp)],
    ) -> Result<(), AutopilotError> {
        let mut list = read_chapters(self.files, of.id)?;
        let id = of.id.to_string();
        let unit = ChapterUnit { id: &id, title: of.title };
        let Some(began) = list.of_run(of.run).next().map(|first| first.opened_at) else { return Ok(()) };
        // The sessions of this run alone: those before it have ended with theirs.
        let mut marks = Vec::new();
        for (session, _) in attempts.iter().filter(|(_, at)| *at >= began) {
            marks.extend(self.hands.read_chapters(*session).await?);
        }
        // Attempts of a review run beside each other.
        marks.sort_by_key(|(_, at)| *at);
        for (name, at) in marks {
            list.declare(&unit, (of.run, &name), at);
        }
        let outcome = if is_success { ChapterOutcome::Success } else { ChapterOutcome::Failure };
        list.close_run(&unit, (of.run, outcome), self.hands.now());
        // Written first: a memory that fails loses no chapter.
        self.write_chapters(of.id, &list)?;
        let notes: Vec<String> = list.of_run(of.run).filter(|one| is_of_agent(one)).map(describe).collect();
        if !notes.is_empty() {
            self.hands.remember(notes).await?;
        }
        Ok(())
    }

    fn write_chapters(self, id: UnitId, list: &ChapterList) -> Result<(), AutopilotError> {
        let text = serde_json::to_string(list.chapters()).unwrap_or_default();
        self.files.write_file(id, UnitFile::Chapters, &text)
    }
}

/// Returns true for work of an agent: what the harness has checked and merged is in the trace alone.
fn is_of_agent(chapter: &PilotChapter) -> bool {
    chapter.is_declared
        || PilotPhase::parse_name(&chapter.name).is_ok_and(|phase| PromptName::of_phase(phase).is_some())
}

/// Describes a chapter for the memory.
fn describe(chapter: &PilotChapter) -> String {
    let outcome = chapter.outcome.map_or("", ChapterOutcome::name);
    format!("Chapter of the autopilot ({outcome}): {}", chapter.intent)
}
