//! The state of a project's autopilot, as a person reads it.

use std::time::Duration;

use writ_inspect::show::escape_line;
use writ_types::api::pilot::{PilotSettingLine, PilotStatus, PilotUnitLine};
use writ_types::unit::Timestamp;

use super::{changes, cut};
use crate::clock;

/// The kinds of units, with their name in a list.
const KINDS: [(&str, &str); 3] = [("milestone/", "milestones"), ("slice/", "slices"), ("task/", "tasks")];
/// The last phase of a unit.
const COMPLETE: &str = "complete";
/// Stands for nothing.
const NONE: &str = "none";
/// The seconds of a minute, and the minutes of an hour.
const SIXTY: u64 = 60;

/// Describes a unit in one line, indented by its level.
pub(super) fn describe_line(unit: &PilotUnitLine) -> String {
    let depth = unit.id.matches('/').count().saturating_sub(1);
    let state = match (unit.is_over, unit.phase.as_str()) {
        (true, _) => unit.status.as_str(),
        // A milestone has no phase but its end, which it waits for: "complete" would read as if it were there.
        (false, COMPLETE) => "open",
        (false, phase) => phase,
    };
    let running = if unit.is_running { ", running" } else { "" };
    format!(
        "{}{}  {state}{running}  {}  ({})",
        "  ".repeat(depth),
        escape_line(&unit.id),
        escape_line(&unit.title),
        unit.cost
    )
}

/// Describes the end of a gate: its verdict, and its own words if it has any.
pub(super) fn describe_gate_end(verdict: &str, words: &str) -> String {
    let words = cut(words);
    if words.is_empty() { verdict.to_owned() } else { format!("{verdict}: {words}") }
}

/// Describes the state of a project: where it stands, then plans, units, circuits and warnings.
pub(super) fn describe_status(status: &PilotStatus) -> Vec<String> {
    describe_at(status, clock::now())
}

fn describe_at(status: &PilotStatus, now: Timestamp) -> Vec<String> {
    // The first lines have a fixed form, so that a person finds them with half an eye.
    let mut lines = vec![
        format!("Project: {}, {}", escape_line(&status.project), status.state),
        format!("Phase: {}", describe_phase(status)),
        format!("Next: {}", describe_next(status)),
    ];
    if status.blockers.is_empty() {
        lines.push(format!("Blocker: {NONE}"));
    }
    lines.extend(status.blockers.iter().map(|blocker| {
        format!("Blocker: {} {}: {}", blocker.event, escape_line(&blocker.unit), cut(blocker.need()))
    }));
    lines.push(format!("Progress: {}", KINDS.map(|kind| describe_count(status, kind)).join(", ")));
    // Of an engine that does not say it yet: no time at all.
    let time = status.since.map(|since| now.time_since(since)).unwrap_or_default();
    let model = if status.model.is_empty() { "the engine's model" } else { status.model.as_str() };
    lines.push(format!("Session: {}, {}, {}", describe_time(time), status.cost, escape_line(model)));
    for plan in &status.plans {
        lines.push(format!("plan of {}: {} ({})", plan.milestone, plan.state.name(), cut(&plan.reason)));
    }
    lines.extend(status.units.iter().map(describe_line));
    lines.extend(status.circuits.iter().map(changes::describe_circuit));
    lines.extend(status.rate_limits.iter().map(|one| format!("limits: {}", cut(&one.describe_line()))));
    lines.extend(status.warnings.iter().map(|warning| cut(warning)));
    lines
}

/// Describes the unit at work: its phase, its id and its title.
fn describe_phase(status: &PilotStatus) -> String {
    // Slices and milestones wait for their parts, so one line is enough for most projects.
    let mut running = status.units.iter().filter(|unit| unit.is_running);
    let Some(first) = running.next() else { return NONE.to_owned() };
    let more = running.count();
    let rest = if more == 0 { String::new() } else { format!(" (and {more} more)") };
    format!("{}, {}{rest}", escape_line(&first.phase), name_unit(first))
}

fn describe_next(status: &PilotStatus) -> String {
    let next = status.next.as_ref().and_then(|id| status.units.iter().find(|unit| unit.id == *id));
    next.map_or_else(|| NONE.to_owned(), name_unit)
}

fn name_unit(unit: &PilotUnitLine) -> String {
    format!("{}: {}", escape_line(&unit.id), escape_line(&unit.title))
}

/// Counts the units of one kind that are over.
fn describe_count(status: &PilotStatus, (prefix, name): (&str, &str)) -> String {
    let all = status.units.iter().filter(|unit| unit.id.starts_with(prefix));
    let (count, over) = (all.clone().count(), all.filter(|unit| unit.is_over).count());
    // Without any unit nothing is done of nothing.
    let percent = over.saturating_mul(100).checked_div(count).unwrap_or(0);
    format!("{name} {over} / {count} ({percent}%)")
}

fn describe_time(time: Duration) -> String {
    let minutes = time.as_secs() / SIXTY;
    format!("{}h {:02}m", minutes / SIXTY, minutes % SIXTY)
}

pub(super) fn describe_settings(settings: &[PilotSettingLine]) -> Vec<String> {
    let line = |one: &PilotSettingLine| {
        format!("{} = {}  ({})", escape_line(&one.key), escape_line(&one.value), escape_line(&one.source))
    };
    settings.iter().map(line).collect()
}

/// Describes how far the units are, and which are at work.
pub(super) fn describe_progress(status: &PilotStatus) -> String {
    let over = status.units.iter().filter(|unit| unit.is_over).count();
    let running: Vec<String> = status
        .units
        .iter()
        .filter(|unit| unit.is_running)
        .map(|unit| format!("{} {}", escape_line(&unit.id), unit.phase))
        .collect();
    let text = format!("{over} of {} units are over", status.units.len());
    if running.is_empty() { text } else { format!("{text}; {}", running.join(", ")) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use writ_types::api::model::{ProviderLimits, StatedLimit, StatedLimits};
    use writ_types::api::pilot::PilotBlockerLine;
    use writ_types::id::PilotId;
    use writ_types::unit::MicroUsd;

    use super::*;

    fn empty() -> PilotStatus {
        PilotStatus {
            project: "/p".to_owned(),
            session: PilotId::from_parts(Timestamp::from_millis(0), 1),
            state: "idle".to_owned(),
            plans: Vec::new(),
            units: Vec::new(),
            blockers: Vec::new(),
            cost: MicroUsd::ZERO,
            circuits: Vec::new(),
            rate_limits: Vec::new(),
            settings: Vec::new(),
            warnings: Vec::new(),
            next: None,
            since: Some(Timestamp::from_millis(0)),
            model: String::new(),
        }
    }

    fn unit(id: &str, phase: &str, is_over: bool, is_running: bool) -> PilotUnitLine {
        let status = if is_over { "succeeded" } else { "pending" };
        PilotUnitLine {
            id: id.to_owned(),
            title: format!("work on {}", &id[id.len() - 2..]),
            phase: phase.to_owned(),
            status: status.to_owned(),
            attempt: 1,
            is_over,
            is_running,
            cost: MicroUsd::new(1_000),
        }
    }

    /// What providers have stated of their limits stands below the units, one line for each of them.
    ///
    /// Rows: SF-475 (in part: the line of each provider)
    #[test]
    fn a_status_shows_the_limits_of_each_provider() {
        let now = Timestamp::from_millis(0);
        let stated = |provider: &str, left| ProviderLimits {
            provider: provider.to_owned(),
            stated: StatedLimits::new(
                now,
                StatedLimit::new(Some(60), Some(left), None),
                StatedLimit::default(),
                BTreeMap::new(),
            ),
        };
        let status = PilotStatus { rate_limits: vec![stated("a", 0), stated("b\u{1b}[2J", 9)], ..empty() };
        let lines = describe_at(&status, now);
        assert_eq!(
            lines[6..],
            [
                format!("limits: a said at {now}: 0 requests left of 60"),
                format!("limits: b\\u{{1b}}[2J said at {now}: 9 requests left of 60"),
            ]
        );
    }

    /// The lines say where a project stands; one without units has zeros.
    ///
    /// Rows: SF-539
    #[test]
    fn a_status_names_phase_next_blockers_progress_time_cost_and_model() {
        let now = Timestamp::from_millis(3_725_000);
        let zeros = [
            "Project: /p, idle",
            "Phase: none",
            "Next: none",
            "Blocker: none",
            "Progress: milestones 0 / 0 (0%), slices 0 / 0 (0%), tasks 0 / 0 (0%)",
            "Session: 1h 02m, $0.000000, the engine's model",
        ];
        assert_eq!(describe_at(&empty(), now), zeros);
        let acceptance = PilotBlockerLine {
            unit: "slice/m1/s1".to_owned(),
            event: PilotBlockerLine::ACCEPTANCE.to_owned(),
            detail: String::new(),
            since: now,
        };
        assert_eq!(acceptance.need(), "`writ pilot accept` or `writ pilot reject` it");
        let worded = PilotBlockerLine { detail: "look at the page".to_owned(), ..acceptance };
        assert_eq!(worded.need(), "look at the page");
        let blocker = PilotBlockerLine {
            unit: "slice/m1/s1".to_owned(),
            event: "GateBlocked".to_owned(),
            detail: "the gate has failed".to_owned(),
            since: now,
        };
        let status = PilotStatus {
            state: "running".to_owned(),
            units: vec![
                unit("milestone/m1", "execute", false, false),
                unit("slice/m1/s1", "complete", true, false),
                unit("task/m1/s1/t1", "complete", true, false),
                unit("slice/m1/s2", "execute", false, false),
                unit("task/m1/s2/t1", "verify", false, true),
                unit("task/m1/s2/t2", "execute", false, true),
                unit("task/m1/s2/t3", "execute", false, false),
            ],
            blockers: vec![blocker],
            cost: MicroUsd::new(2_500_000),
            next: Some("task/m1/s2/t3".to_owned()),
            model: "test/plain".to_owned(),
            ..empty()
        };
        let shown = [
            "Project: /p, running",
            "Phase: verify, task/m1/s2/t1: work on t1 (and 1 more)",
            "Next: task/m1/s2/t3: work on t3",
            "Blocker: GateBlocked slice/m1/s1: the gate has failed",
            "Progress: milestones 0 / 1 (0%), slices 1 / 2 (50%), tasks 1 / 4 (25%)",
            "Session: 1h 02m, $2.500000, test/plain",
        ];
        assert_eq!(describe_at(&status, now)[..6], shown);
    }
}
