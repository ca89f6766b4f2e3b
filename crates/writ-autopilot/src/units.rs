//! Units with their dependencies: what a plan may say, and which units a change reaches.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use writ_types::error::{Exit, Report, ToReport};
use writ_types::unit::{MicroUsd, Timestamp};

use crate::unit_id::{UnitId, UnitType};

/// The most units of a project that are not archived.
pub const MAX_UNITS: usize = 100_000;
/// The most dependencies of one unit.
pub const MAX_EDGES: usize = 64;
/// The longest title, in bytes.
pub const MAX_TITLE_BYTES: usize = 200;
/// The longest description, in bytes.
pub const MAX_DESCRIPTION_BYTES: usize = 32 * 1024;

/// A unit, as it is planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PilotUnit {
    /// Its id, which says where it belongs.
    pub id: UnitId,
    /// Its purpose, in one line.
    pub title: String,
    /// More about it, as Markdown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// From 1, urgent, to 4, low; none comes last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// The workflow, if it is another one than the project's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Units that must have ended before this one is handed out.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub blocked_by: BTreeSet<UnitId>,
    /// Slices with branches that must be merged before this one's. Work goes on meanwhile (SF 12.3).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub code_depends_on: BTreeSet<UnitId>,
    /// Set once it is deleted. Its row stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_at: Option<Timestamp>,
}

/// A plan that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitsError {
    /// More than the harness looks at.
    #[error("{count} units; at most {MAX_UNITS} are planned at a time")]
    TooMany {
        /// Their number.
        count: usize,
    },
    /// One id twice.
    #[error("{0} is there twice")]
    Duplicate(UnitId),
    /// A part of nothing.
    #[error("{id} belongs to {parent}, which is not there")]
    NoParent {
        /// The unit.
        id: UnitId,
        /// The unit that it belongs to.
        parent: UnitId,
    },
    /// A field beyond its limits.
    #[error("{id}: {problem}")]
    Field {
        /// The unit.
        id: UnitId,
        /// The mistake.
        problem: String,
    },
    /// A dependency on nothing.
    #[error("{id} waits for {other}, which is not there")]
    UnknownUpstream {
        /// The unit.
        id: UnitId,
        /// The unit that it names.
        other: UnitId,
    },
    /// A dependency that can never end.
    #[error("{id} waits for {other}, and one of them is a part of the other")]
    OwnPart {
        /// The unit.
        id: UnitId,
        /// The unit that it names.
        other: UnitId,
    },
    /// Units that wait for one another.
    #[error("these units wait for one another: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(" → "))]
    Cycle(Vec<UnitId>),
    /// A merge that waits for something that has no branch.
    #[error("{id}: `code_depends_on` names {other}; only slices have branches")]
    NoBranch {
        /// The unit.
        id: UnitId,
        /// The unit that it names.
        other: UnitId,
    },
}

impl ToReport for UnitsError {
    fn report(&self) -> Report {
        let hint = match self {
            Self::TooMany { .. } => "archive finished milestones with `writ pilot clean`",
            Self::Duplicate(_) => "leave the id of a new unit out: it is numbered when the plan is read",
            Self::NoParent { .. } => "plan the slice before its tasks, and the milestone before its slices",
            Self::Field { .. } => "correct the field in the plan, and reload it",
            Self::UnknownUpstream { .. } => "name a unit of the plan, or remove the dependency",
            Self::OwnPart { .. } => "a unit is done after its parts anyway: remove the dependency",
            Self::Cycle(_) => "remove one of these dependencies",
            Self::NoBranch { .. } => "name the slice, such as `m1/s2`",
        };
        Report::new(Exit::Usage, "pilot.units", self.to_string()).with_hint(hint)
    }
}

/// Checks all units of a project together.
///
/// # Errors
///
/// The first mistake, in the order of the units; a circle comes last.
pub fn check_units(units: &[PilotUnit]) -> Result<(), UnitsError> {
    let live: Vec<&PilotUnit> = units.iter().filter(|unit| unit.archived_at.is_none()).collect();
    if live.len() > MAX_UNITS {
        return Err(UnitsError::TooMany { count: live.len() });
    }
    // Archived ones are ended, so that waiting for them is no mistake.
    let mut known = BTreeSet::new();
    for unit in units {
        if !known.insert(unit.id) {
            return Err(UnitsError::Duplicate(unit.id));
        }
    }
    let live_ids: BTreeSet<UnitId> = live.iter().map(|unit| unit.id).collect();
    // Each alone first, so that a circle is one of units that exist.
    for unit in &live {
        check_unit(unit, &known, &live_ids)?;
    }
    let waits = |unit: &&PilotUnit| (unit.id, unit.blocked_by.iter().copied().collect::<Vec<_>>());
    let merges = |unit: &&PilotUnit| (unit.id, unit.code_depends_on.iter().copied().collect::<Vec<_>>());
    for edges in [live.iter().map(waits).collect::<BTreeMap<_, _>>(), live.iter().map(merges).collect()] {
        if let Some(cycle) = find_cycle(&edges) {
            return Err(UnitsError::Cycle(cycle));
        }
    }
    Ok(())
}

fn check_unit(unit: &PilotUnit, known: &BTreeSet<UnitId>, live: &BTreeSet<UnitId>) -> Result<(), UnitsError> {
    let id = unit.id;
    let fail = |problem: String| Err(UnitsError::Field { id, problem });
    if let Some(parent) = id.parent().filter(|parent| !live.contains(parent)) {
        return Err(UnitsError::NoParent { id, parent });
    }
    if unit.title.trim().is_empty() || unit.title.len() > MAX_TITLE_BYTES || unit.title.contains(['\n', '\r'])
    {
        return fail(format!("a title is one line of at most {MAX_TITLE_BYTES} bytes"));
    }
    if unit.description.len() > MAX_DESCRIPTION_BYTES {
        return fail(format!("the description has more than {MAX_DESCRIPTION_BYTES} bytes"));
    }
    if let Some(priority) = unit.priority.filter(|priority| !(1..=4).contains(priority)) {
        return fail(format!("priority {priority} is not one of 1 to 4"));
    }
    if unit.blocked_by.len() > MAX_EDGES || unit.code_depends_on.len() > MAX_EDGES {
        return fail(format!("more than {MAX_EDGES} dependencies"));
    }
    if !unit.code_depends_on.is_empty() && id.unit_type() != UnitType::Slice {
        return Err(UnitsError::NoBranch { id, other: id });
    }
    for other in unit.blocked_by.iter().chain(&unit.code_depends_on) {
        if !known.contains(other) {
            return Err(UnitsError::UnknownUpstream { id, other: *other });
        }
        if id.is_within(*other) || other.is_within(id) {
            return Err(UnitsError::OwnPart { id, other: *other });
        }
    }
    let branchless = unit.code_depends_on.iter().find(|other| other.unit_type() != UnitType::Slice);
    branchless.map_or(Ok(()), |other| Err(UnitsError::NoBranch { id, other: *other }))
}

/// Finds units that wait for one another, in the order of their waiting; the first one again at the end.
///
/// Depth first with a stack of its own, since a chain of dependencies may be longer than the thread's stack.
pub fn find_cycle(edges: &BTreeMap<UnitId, Vec<UnitId>>) -> Option<Vec<UnitId>> {
    let mut done: BTreeSet<UnitId> = BTreeSet::new();
    for start in edges.keys() {
        // The path from the start, each with the number of its edges that were followed.
        let mut path: Vec<(UnitId, usize)> = vec![(*start, 0)];
        let mut on_path: BTreeSet<UnitId> = BTreeSet::from([*start]);
        while let Some((at, used)) = path.last_mut() {
            let next = edges.get(at).and_then(|targets| targets.get(*used)).copied();
            *used += 1;
            match next {
                Some(next) if on_path.contains(&next) => {
                    let ids: Vec<UnitId> = path.iter().map(|(id, _)| *id).collect();
                    let from = ids.iter().position(|id| *id == next).unwrap_or(0);
                    return Some(ids.into_iter().skip(from).chain([next]).collect());
                }
                Some(next) if !done.contains(&next) => {
                    on_path.insert(next);
                    path.push((next, 0));
                }
                Some(_) => {}
                None => {
                    let ended = *at;
                    on_path.remove(&ended);
                    done.insert(ended);
                    path.pop();
                }
            }
        }
    }
    None
}

/// Returns the units that wait for one, directly or through others: what is to be planned anew if it is abandoned.
pub fn list_dependants(units: &[PilotUnit], of: UnitId) -> Vec<UnitId> {
    let mut waiting: BTreeMap<UnitId, Vec<UnitId>> = BTreeMap::new();
    for unit in units.iter().filter(|unit| unit.archived_at.is_none()) {
        for upstream in unit.blocked_by.iter().chain(&unit.code_depends_on) {
            waiting.entry(*upstream).or_default().push(unit.id);
        }
    }
    let (mut found, mut open) = (BTreeSet::new(), vec![of]);
    while let Some(upstream) = open.pop() {
        for unit in waiting.get(&upstream).into_iter().flatten() {
            if *unit != of && found.insert(*unit) {
                open.push(*unit);
            }
        }
    }
    found.into_iter().collect()
}

/// Marks a unit and its parts as deleted; returns those that are new. No row goes away, and an earlier time stays.
pub fn archive_unit(units: &mut [PilotUnit], id: UnitId, now: Timestamp) -> Vec<UnitId> {
    let mut archived = Vec::new();
    for unit in units.iter_mut().filter(|unit| unit.id.is_within(id) && unit.archived_at.is_none()) {
        unit.archived_at = Some(now);
        archived.push(unit.id);
    }
    archived
}

/// Adds up the cost of runs for a unit with all of its parts, and for each of those above it.
///
/// In whole millionths of a dollar: a sum of fractions would drift.
pub fn sum_costs<'a>(runs: impl IntoIterator<Item = &'a (UnitId, MicroUsd)>) -> BTreeMap<UnitId, MicroUsd> {
    let mut sums: BTreeMap<UnitId, MicroUsd> = BTreeMap::new();
    for (unit, cost) in runs {
        let mut next = Some(*unit);
        while let Some(id) = next {
            let sum = sums.entry(id).or_default();
            *sum = sum.saturating_add(*cost);
            next = id.parent();
        }
    }
    sums
}

#[cfg(test)]
mod tests;
