//! The news of units, as hooks are notified of them. A hook cannot stop anything here: what it fails at is in the log.

use serde_json::{Map, Value};
use writ_autopilot::machine::UnitMove;
use writ_autopilot::phase::PilotPhase;
use writ_types::entry::HookEvent;

use super::notices::notify_receivers;
use super::plan_of;
use crate::project::OpenProject;
use crate::standing::{UnitRecord, status_name};

/// The longest reason that a hook reads, in characters.
const MAX_REASON_CHARS: usize = 500;

/// A unit as a hook reads of it.
#[derive(Debug)]
pub(crate) struct UnitNews<'a> {
    pub(super) unit: &'a UnitRecord,
    pub(super) phase: PilotPhase,
    pub(super) status: &'a str,
    reason: &'a str,
}

impl<'a> UnitNews<'a> {
    /// Makes the news of a unit in the phase that it is in.
    pub(crate) const fn of_unit(unit: &'a UnitRecord, status: &'a str, reason: &'a str) -> Self {
        Self { unit, phase: unit.stand.phase, status, reason }
    }

    /// The reason in one line.
    pub(super) fn short_reason(&self) -> String {
        self.reason.lines().next().unwrap_or_default().chars().take(MAX_REASON_CHARS).collect()
    }
}

/// Returns what a person has linked a unit with.
fn metadata_of(unit: &UnitRecord) -> Value {
    let issue = unit.facts.gh_issue.map(|issue| ("gh_issue".to_owned(), Value::from(issue)));
    Value::Object(issue.into_iter().collect())
}

/// Notifies the hooks and the receivers of notices of an event of a unit.
pub(crate) async fn tell_hooks(project: &OpenProject, event: HookEvent, news: &UnitNews<'_>) {
    notify_receivers(project, event, news);
    let about: Map<String, Value> = Map::from_iter([
        ("project".to_owned(), project.name.clone().into()),
        ("unit".to_owned(), news.unit.row.key.id.clone().into()),
        ("title".to_owned(), news.unit.row.title.clone().into()),
        ("phase".to_owned(), news.phase.name().into()),
        ("attempt".to_owned(), news.unit.stand.counters.dispatches.into()),
        ("status".to_owned(), news.status.into()),
        ("reason".to_owned(), news.short_reason().into()),
        ("metadata".to_owned(), metadata_of(news.unit)),
    ]);
    let told = match plan_of(project, news.unit.id).await {
        Ok(plan) => project.hands.tell_hooks(plan, event, about).await.map_err(|report| report.inside),
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = told {
        tracing::warn!(unit = %news.unit.id, event = event.as_str(), error, "hooks were not notified");
    }
}

/// Notifies the hooks of what a move of a unit has brought about.
pub(super) async fn tell_of_move(project: &OpenProject, unit: &UnitRecord, made: &UnitMove, reason: &str) {
    let status = status_name(made.stand.status);
    let news = UnitNews { unit, phase: made.stand.phase, status, reason };
    if !made.opened.is_empty() {
        tell_hooks(project, HookEvent::UnitBlocked, &news).await;
    }
    // From the phase merge a unit completes with its work in the target alone, unless it was given up.
    let is_merged = unit.stand.phase == PilotPhase::Merge && made.stand.phase == PilotPhase::Complete;
    if is_merged && !made.stand.is_abandoned {
        tell_hooks(project, HookEvent::UnitMerged, &news).await;
    }
    if made.stand.is_terminal() && !unit.stand.is_terminal() {
        tell_hooks(project, HookEvent::UnitDone, &news).await;
    }
}
