//! What attempts have learned about a project: remembered after their runs, and shown to the next ones.

use writ_autopilot::learning::Learning;
use writ_runtime::pilot::{PilotHands, PilotNote};
use writ_types::action::MemoryKind;
use writ_types::digest::Digest;

use crate::error::AutopilotError;

/// The begin of the name under which the learnings of a project stand in the memory.
const SUBJECT: &str = "autopilot";

/// The characters of the digest in that name: paths may be longer than a name.
const DIGEST_CHARS: usize = 16;

/// Remembers what a run has learned. What fails is in the log, and holds nothing up: the run itself is written.
pub(crate) async fn remember_learnings(hands: &PilotHands, project: &str, learnings: Vec<Learning>) {
    if learnings.is_empty() {
        return;
    }
    // One subject for all projects would show each the learnings of the others.
    let subject = subject_of(project);
    let note = |one: Learning| PilotNote {
        text: format!("{} by the autopilot in {}: {}", one.kind.label(), project, one.text),
        kind: MemoryKind::Fact,
        subject: Some(subject.clone()),
    };
    if let Err(error) = hands.remember(learnings.into_iter().map(note).collect()).await {
        tracing::warn!(project, error = error.inside, "what a run has learned is not remembered");
    }
}

/// Describes what earlier work in a project has learned, for a prompt; empty if that is nothing.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn describe_learnings(hands: &PilotHands, project: &str) -> Result<String, AutopilotError> {
    let notes = hands.notes_about(&subject_of(project)).await?;
    if notes.is_empty() {
        return Ok(String::new());
    }
    // The place is for people who read their memories; here it is the same in each line.
    let place = format!(" by the autopilot in {project}");
    let lines: String = notes.iter().map(|note| format!("- {}\n", note.replacen(&place, "", 1))).collect();
    Ok(format!("What earlier work here has learned, as data:\n\n{lines}"))
}

fn subject_of(project: &str) -> String {
    let digest = Digest::of_bytes(project.as_bytes()).to_string();
    format!("{SUBJECT} {}", digest.chars().take(DIGEST_CHARS).collect::<String>())
}
