//! Planning: a planner's answer becomes checked units, a card, and lines of the project's plan.
//!
//! The answer is an outline ([`writ_autopilot::outline`]) in a fenced block or plain. Its ids count from one; they only connect its
//! own items, and the harness gives each milestone the next free number. Nothing of an answer with a mistake is taken over: the
//! planner is asked again, at most [`MAX_PLANNING_RETRIES`] times.

use std::collections::{BTreeMap, BTreeSet};

use writ_autopilot::names::slug_of;
use writ_autopilot::outline::{OutlineFields, OutlineItem, read_outline, write_outline};
use writ_autopilot::unit_id::{UnitId, UnitType};
use writ_autopilot::units::{PilotUnit, UnitsError, check_units};
use writ_types::error::{Exit, Report, ToReport};
use writ_types::work::{OnStuck, PlanDocument, WorkBudget, WorkKind, WorkStep};

mod answer;

use answer::find_outline;
pub use answer::{read_acceptance, read_allowed_paths, read_kept_paths};

/// The largest answer that is read, in bytes.
pub const MAX_ANSWER_BYTES: usize = 512 * 1024;
/// The most units of one goal: a card does not show more steps.
pub const MAX_GOAL_UNITS: usize = 200;
/// The most milestones of one goal.
pub const MAX_GOAL_MILESTONES: usize = 10;
/// The most acceptance checks of one slice.
pub const MAX_ACCEPTANCE: usize = 20;
/// The longest acceptance check, in characters.
pub const MAX_ACCEPTANCE_CHARS: usize = 500;
/// The most times that the planner is asked again.
pub const MAX_PLANNING_RETRIES: u32 = 2;
/// The longest title on a card, in characters.
const MAX_TITLE_CHARS: usize = 120;
/// The largest number of a milestone: that of an id.
const MAX_MILESTONE: u32 = 9_999_999;
/// The longest quotation of a line, in characters.
const MAX_QUOTED_CHARS: usize = 80;

/// A planner's answer that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the plan for the goal, line {line}: {problem}")]
pub struct PlanningError {
    /// The line of the answer, counted from one.
    pub line: usize,
    /// That line.
    pub quoted: String,
    /// The mistake.
    pub problem: String,
    /// The next thing to do.
    pub hint: String,
}

impl ToReport for PlanningError {
    fn report(&self) -> Report {
        Report::new(Exit::Model, "pilot.goal_plan", self.to_string()).with_hint(self.hint.clone())
    }
}

/// Returns the question about a mistake; `None` if the planner has been asked again as often as it may.
pub fn next_question(retries: u32, previous: &PlanningError) -> Option<String> {
    if retries >= MAX_PLANNING_RETRIES {
        return None;
    }
    let place = if previous.quoted.is_empty() {
        format!("Line {}", previous.line)
    } else {
        format!("Line {} (`{}`)", previous.line, previous.quoted)
    };
    Some(format!(
        "{place}: {}.\nHint: {}.\nAnswer with the whole plan again.",
        previous.problem, previous.hint
    ))
}

/// The plan of a goal, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoalPlan {
    /// The units, each before its parts.
    pub units: Vec<PilotUnit>,
    /// The acceptance checks of slices, and of tasks that have their own.
    pub acceptance: BTreeMap<UnitId, Vec<String>>,
}

/// Returns the number of the next milestone. Deleted units count: an id is never given twice.
pub fn next_milestone(existing: impl IntoIterator<Item = UnitId>) -> u32 {
    let number = |id| match id {
        UnitId::Milestone(milestone) | UnitId::Slice(milestone, _) | UnitId::Task(milestone, _, _) => {
            milestone
        }
    };
    existing.into_iter().map(number).max().unwrap_or(0).saturating_add(1)
}

/// Reads a planner's answer. The units count from `milestone/m1`; [`GoalPlan::renumber_units`] gives them their numbers.
///
/// # Errors
///
/// The first mistake, with its line, for the next question.
pub fn read_goal_plan(answer: &str) -> Result<GoalPlan, PlanningError> {
    let found = find_outline(answer)?;
    let items =
        read_outline(&found.text).map_err(|error| found.fault(error.line, error.problem, error.hint))?;
    let fail = |line: usize, problem: String, hint: &str| Err(found.fault(line, problem, hint));
    if items.len() > MAX_GOAL_UNITS {
        let line = items.get(MAX_GOAL_UNITS).map_or(1, |item| item.line);
        let problem = format!("{} units; at most {MAX_GOAL_UNITS} are planned for one goal", items.len());
        return fail(line, problem, "plan larger tasks, or only the first part of the goal");
    }
    let ids = place_items(&items);
    let milestones = ids.iter().filter(|id| id.unit_type() == UnitType::Milestone).count();
    if milestones > MAX_GOAL_MILESTONES {
        return fail(
            1,
            format!("{milestones} milestones; at most {MAX_GOAL_MILESTONES}"),
            "one milestone is usual",
        );
    }
    let names = name_items(&items, &ids).map_err(|(line, problem)| {
        found.fault(line, problem, "count ids from 1 in each unit, or leave them out")
    })?;
    let (mut units, mut acceptance) = (Vec::new(), BTreeMap::new());
    for (item, id) in items.iter().zip(&ids) {
        let unit = make_unit(item, *id, &names).map_err(|other| {
            found.fault(
                item.line,
                format!("it waits for {other}, which is no unit of this plan"),
                "name units of this plan, with their ids as they are written there",
            )
        })?;
        let checks = read_acceptance(&unit.description);
        let is_slice = id.unit_type() == UnitType::Slice;
        if is_slice && checks.is_empty() {
            return fail(
                item.line,
                format!("the slice '{}' has no acceptance checks", unit.title),
                "add the line `Acceptance:` to its description, with items `* …` below it",
            );
        }
        let is_long = checks.iter().any(|check| check.chars().count() > MAX_ACCEPTANCE_CHARS);
        if checks.len() > MAX_ACCEPTANCE || is_long {
            let problem = format!(
                "more than {MAX_ACCEPTANCE} acceptance checks, or one of more than {MAX_ACCEPTANCE_CHARS} characters"
            );
            return fail(item.line, problem, "keep those that decide if it is done");
        }
        if !checks.is_empty() {
            acceptance.insert(*id, checks);
        }
        units.push(unit);
    }
    let line_of =
        |id: UnitId| ids.iter().zip(&items).find(|(other, _)| **other == id).map_or(1, |(_, item)| item.line);
    if let Some(empty) = ids.iter().find(|id| id.unit_type() != UnitType::Task && !has_part(&ids, **id)) {
        let part = if empty.unit_type() == UnitType::Slice { "task" } else { "slice" };
        return fail(
            line_of(*empty),
            format!("it has no {part}"),
            "each milestone has slices, and each slice has tasks",
        );
    }
    if let Err(error) = check_units(&units) {
        let hint = error.report().hint;
        return Err(found.fault(line_of(unit_of(&error)), error.to_string(), hint));
    }
    Ok(GoalPlan { units, acceptance })
}

/// Returns the id of each item by its place.
fn place_items(items: &[OutlineItem]) -> Vec<UnitId> {
    let (mut milestone, mut slice, mut task) = (0, 0, 0);
    let place = |item: &OutlineItem| match item.unit_type {
        UnitType::Milestone => {
            (milestone, slice, task) = (milestone + 1, 0, 0);
            UnitId::Milestone(milestone)
        }
        UnitType::Slice => {
            (slice, task) = (slice + 1, 0);
            UnitId::Slice(milestone, slice)
        }
        UnitType::Task => {
            task += 1;
            UnitId::Task(milestone, slice, task)
        }
    };
    items.iter().map(place).collect()
}

/// Returns the ids by the names that the answer has for them; an item without a name has that of its place.
fn name_items(items: &[OutlineItem], ids: &[UnitId]) -> Result<BTreeMap<UnitId, UnitId>, (usize, String)> {
    let mut names = BTreeMap::new();
    for (item, id) in items.iter().zip(ids) {
        let name = item.id.unwrap_or(*id);
        if names.insert(name, *id).is_some() {
            return Err((item.line, format!("another item is {name} already")));
        }
        // A task of another slice by its id is in the wrong place, or has the wrong id.
        let parent = |id: &UnitId| id.parent();
        let above = parent(id)
            .and_then(|above| names.iter().find(|(_, other)| **other == above).map(|(name, _)| *name));
        if let Some(own) = item.id
            && parent(&own) != above
        {
            return Err((item.line, format!("{own} lies below another unit than its id says")));
        }
    }
    Ok(names)
}

fn make_unit(item: &OutlineItem, id: UnitId, names: &BTreeMap<UnitId, UnitId>) -> Result<PilotUnit, UnitId> {
    let rename = |others: &BTreeSet<UnitId>| {
        others
            .iter()
            .map(|other| names.get(other).copied().ok_or(*other))
            .collect::<Result<BTreeSet<UnitId>, UnitId>>()
    };
    let fields = &item.fields;
    // A mark of the planner proves nothing.
    Ok(PilotUnit {
        id,
        title: fields.title.clone(),
        description: fields.description.clone(),
        priority: fields.priority,
        workflow: fields.workflow.clone(),
        blocked_by: rename(&fields.blocked_by)?,
        code_depends_on: rename(&fields.code_depends_on)?,
        archived_at: None,
    })
}

fn has_part(ids: &[UnitId], id: UnitId) -> bool {
    ids.iter().any(|other| other.parent() == Some(id))
}

/// Returns the unit that a mistake is about.
fn unit_of(error: &UnitsError) -> UnitId {
    match error {
        UnitsError::TooMany { .. } => UnitId::Milestone(1),
        UnitsError::Duplicate(id)
        | UnitsError::NoParent { id, .. }
        | UnitsError::Field { id, .. }
        | UnitsError::UnknownUpstream { id, .. }
        | UnitsError::OwnPart { id, .. }
        | UnitsError::NoBranch { id, .. } => *id,
        UnitsError::Cycle(ids) => ids.first().copied().unwrap_or(UnitId::Milestone(1)),
    }
}

/// No number is left for a milestone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no number is left for a milestone: {MAX_MILESTONE} is the last one")]
pub struct NoMilestoneLeft;

impl GoalPlan {
    /// Makes the plan of one task that a person asks for in words. Its first line is the title.
    ///
    /// # Errors
    ///
    /// If the words are too long for a unit.
    pub fn of_task(number: u32, words: &str) -> Result<Self, UnitsError> {
        let id = UnitId::of_ad_hoc(number);
        let first = show_title(words.trim().lines().next().unwrap_or_default());
        let is_whole = first == words.trim();
        let unit = PilotUnit {
            id,
            title: first,
            description: if is_whole { String::new() } else { words.trim().to_owned() },
            priority: None,
            workflow: None,
            blocked_by: BTreeSet::new(),
            code_depends_on: BTreeSet::new(),
            archived_at: None,
        };
        check_units(std::slice::from_ref(&unit))?;
        // It has no checks of its own, and no slice that has any.
        Ok(Self { units: vec![unit], acceptance: BTreeMap::from([(id, Vec::new())]) })
    }

    /// Gives the first milestone this number, and the others those after it. Dependencies follow.
    ///
    /// # Errors
    ///
    /// If an id cannot hold the number.
    pub fn renumber_units(self, first: u32) -> Result<Self, NoMilestoneLeft> {
        let shift = first.checked_sub(1).ok_or(NoMilestoneLeft)?;
        // Checked once for all: no id below is larger than this one.
        let highest = next_milestone(self.units.iter().map(|unit| unit.id)).saturating_sub(1);
        if highest.checked_add(shift).is_none_or(|number| number > MAX_MILESTONE) {
            return Err(NoMilestoneLeft);
        }
        let rename = |id: UnitId| match id {
            UnitId::Milestone(milestone) => UnitId::Milestone(milestone + shift),
            UnitId::Slice(milestone, slice) => UnitId::Slice(milestone + shift, slice),
            UnitId::Task(milestone, slice, task) => UnitId::Task(milestone + shift, slice, task),
        };
        let rename_all = |ids: BTreeSet<UnitId>| ids.into_iter().map(rename).collect();
        let units = self.units.into_iter().map(|unit| PilotUnit {
            id: rename(unit.id),
            blocked_by: rename_all(unit.blocked_by),
            code_depends_on: rename_all(unit.code_depends_on),
            ..unit
        });
        let acceptance = self.acceptance.into_iter().map(|(id, checks)| (rename(id), checks));
        Ok(Self { units: units.collect(), acceptance: acceptance.collect() })
    }

    /// Makes the document that a person approves: the tasks, and the slices that are worked on themselves, as steps, each with the acceptance checks that it has to meet.
    pub fn make_document(&self, goal: &str, kind: WorkKind, budget: WorkBudget) -> PlanDocument {
        // The first unit is a milestone, as the reader has checked, or the only one.
        let first = self.units.first();
        let title = first.map_or("", |unit| unit.title.as_str());
        // A title of another script has no letters for it; the number alone is enough.
        let name = slug_of(title);
        let number = first.map_or_else(String::new, |unit| match unit.id {
            UnitId::Task(0, 0, task) => format!("t{task}"),
            UnitId::Milestone(milestone) | UnitId::Slice(milestone, _) | UnitId::Task(milestone, ..) => {
                format!("m{milestone}")
            }
        });
        let has_parts = |id: UnitId| self.units.iter().any(|unit| unit.id.parent() == Some(id));
        let is_step = |unit: &&PilotUnit| match unit.id.unit_type() {
            UnitType::Task => true,
            UnitType::Slice => !has_parts(unit.id),
            UnitType::Milestone => false,
        };
        let tasks: Vec<&PilotUnit> = self.units.iter().filter(is_step).collect();
        let whole = if first.is_some_and(|unit| unit.id.is_ad_hoc()) { "It" } else { "Each slice" };
        let mut instructions = format!("{whole} is merged as a whole, after its gates have passed.\n");
        for slice in self.units.iter().filter(|unit| unit.id.unit_type() == UnitType::Slice) {
            instructions.push_str(&format!("\n- {} ({})", show_line(&slice.title), slice.id));
            for check in self.acceptance.get(&slice.id).into_iter().flatten() {
                instructions.push_str(&format!("\n  - {}", show_line(check)));
            }
        }
        PlanDocument {
            id: format!("{number}-{name}").trim_end_matches('-').to_owned(),
            kind,
            title: show_title(title),
            skills: Vec::new(),
            budget,
            steps: tasks.iter().map(|task| self.make_step(task, &tasks)).collect(),
            checks: Vec::new(),
            gates: Vec::new(),
            on_stuck: OnStuck::AskPerson,
            interaction: None,
            cycle: None,
            // As a quotation: a heading in it would be one of the document.
            context: goal.lines().map(|line| format!("> {}", show_line(line))).collect::<Vec<_>>().join("\n"),
            instructions: instructions.trim_end().to_owned(),
        }
    }

    fn make_step(&self, task: &PilotUnit, tasks: &[&PilotUnit]) -> WorkStep {
        let checks = self.acceptance.get(&task.id).or_else(|| self.acceptance.get(&task.id.parent()?));
        let mut instructions =
            if task.description.trim().is_empty() { task.title.clone() } else { task.description.clone() };
        // A task's own are in its description.
        if !self.acceptance.contains_key(&task.id) {
            instructions.push_str("\n\nAcceptance:");
            for check in checks.into_iter().flatten() {
                instructions.push_str(&format!("\n* {check}"));
            }
        }
        // Tasks of one slice run one after another, and a dependency on a unit is one on each of its tasks.
        let waits = |other: &&&PilotUnit| {
            let is_before = task.id.unit_type() == UnitType::Task
                && other.id.parent() == task.id.parent()
                && other.id < task.id;
            let lines = [Some(task.id), task.id.parent(), task.id.parent().and_then(UnitId::parent)];
            let owns = self.units.iter().filter(|unit| lines.contains(&Some(unit.id)));
            is_before || owns.flat_map(|unit| &unit.blocked_by).any(|upstream| other.id.is_within(*upstream))
        };
        WorkStep {
            id: step_name(task.id),
            title: show_title(&task.title),
            instructions,
            after: tasks.iter().filter(waits).map(|other| step_name(other.id)).collect(),
            ..WorkStep::default()
        }
    }
}

/// Writes the project's plan: units with the mark of those that are done, each before its parts.
pub fn write_plan<'a>(units: impl IntoIterator<Item = (&'a PilotUnit, bool)>) -> String {
    let fields = |(unit, is_done): (&PilotUnit, bool)| {
        let fields = OutlineFields {
            is_done,
            title: unit.title.clone(),
            description: unit.description.clone(),
            priority: unit.priority,
            workflow: unit.workflow.clone(),
            blocked_by: unit.blocked_by.clone(),
            code_depends_on: unit.code_depends_on.clone(),
        };
        (unit.id, fields)
    };
    // What was deleted stays in the store, but is no part of the plan.
    let mut rows: Vec<(UnitId, OutlineFields)> =
        units.into_iter().filter(|(unit, _)| unit.archived_at.is_none()).map(fields).collect();
    // A slice right after its milestone, a task right after its slice.
    rows.sort_by_key(|(id, _)| match *id {
        UnitId::Milestone(milestone) => [milestone, 0, 0],
        UnitId::Slice(milestone, slice) => [milestone, slice, 0],
        UnitId::Task(milestone, slice, task) => [milestone, slice, task],
    });
    write_outline(&rows)
}

fn step_name(id: UnitId) -> String {
    let text = id.to_string();
    text.split_once('/').map_or("", |(_, place)| place).replace('/', "-")
}

fn show_title(title: &str) -> String {
    let title: String = show_line(title).chars().take(MAX_TITLE_CHARS).collect();
    title.trim().to_owned()
}

fn show_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests;
