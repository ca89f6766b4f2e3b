//! Changes of a plan that its own agents ask for while they work: tasks are added to a slice, one is split, or put after another.
//!
//! No new card is asked for: paths, programs, hosts and money stay those of the plan that a person has approved, and new tasks pass the same
//! gates. What has begun stays as it is, and no unit of another milestone is touched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use writ_autopilot::outline::{OutlineFields, read_outline, write_outline};
use writ_autopilot::reconcile::PlanChange;
use writ_autopilot::unit_id::{UnitId, UnitType};
use writ_autopilot::units::PilotUnit;
use writ_runtime::pilot_desk::{NewTask, UnitChange, UnitChangeOrder};
use writ_types::error::ToReport as _;

use super::{
    BASE_FILE, FRESH_FILE, PLAN_FILE, StoredPlan, apply, check_result, fields_by_id, read_text, replace_file,
    replace_same, units_after,
};
use crate::error::AutopilotError;
use crate::planning::{read_acceptance, read_allowed_paths, read_kept_paths};
use crate::project::OpenProject;

/// The most tasks of a slice after an agent has changed it: one that adds without end comes to a stop.
const MAX_TASKS: usize = 30;

fn refuse(why: String, hint: &'static str) -> AutopilotError {
    AutopilotError::UnitChange { why, hint }
}

/// Changes the open part of a plan, as an agent asks. Returns what has changed.
///
/// # Errors
///
/// If the change is none of the agent's own milestone, a unit of it has begun, the plan could not be worked on afterwards, or the store
/// cannot be written. Then nothing is changed.
pub(crate) async fn change_by_agent(
    project: &Arc<OpenProject>,
    order: &UnitChangeOrder,
) -> Result<String, AutopilotError> {
    if !project.config().agents_change_plan {
        let why = "agents change no plan here (`pilot.agents_change_plan`)".to_owned();
        return Err(refuse(why, "Do the task itself."));
    }
    let _alone = project.hold_plans().await;
    let plan = StoredPlan::read(project).await?;
    // The plan of a goal may have several milestones: an agent changes that of its own unit.
    let root = order.unit.parse::<UnitId>().ok().map(UnitId::root);
    let is_in_force =
        |id: &UnitId| plan.rows.get(id).is_some_and(|(_, facts)| facts.plan == Some(order.plan));
    let milestone = root.filter(is_in_force).ok_or_else(|| {
        refuse("this task has no plan that can be changed".to_owned(), "Do the task itself.")
    })?;
    let own = OwnPlan { plan: &plan, milestone, taken: project.taken_ids().await? };
    let changes = own.make_changes(&order.change)?;
    // Before anything is written: a circle, or a text that reads as a mark, would hold up all that follows.
    check_result(&plan, &changes)?;
    check_texts(&plan, &changes)?;
    apply::carry_out_in_plan(project, &plan, &changes, (milestone, order.plan)).await?;
    if let Err(error) = refresh_file(project, &changes).await {
        // The change stands; the next reload shows where file and plan differ.
        tracing::warn!(%milestone, %error, "the plan's file has not followed a change of an agent");
    }
    let text = describe(&changes);
    tracing::info!(%milestone, text, "an agent has changed its plan");
    // A new task may be ready at once.
    project.looping.wake.notify_one();
    Ok(text)
}

/// Brings the plan's file up to a change, where no edit of a person stands in it: an edit is theirs, and the next reload shows both.
async fn refresh_file(project: &OpenProject, changes: &[PlanChange]) -> Result<(), AutopilotError> {
    let top = project.git.project().top_dir();
    let [file, base, fresh] = [PLAN_FILE, BASE_FILE, FRESH_FILE].map(|name| top.join(name));
    let (Some(text), Some(was)) = (read_text(&file)?, read_text(&base)?) else { return Ok(()) };
    if text != was {
        return Ok(());
    }
    // What the file does not show stays out of it, but for the new tasks.
    let items = read_outline(&text).map_err(|error| error.report())?;
    let added = changes.iter().filter_map(|change| match change {
        PlanChange::Add(id, _) => Some(*id),
        PlanChange::Edit(..) | PlanChange::Archive(_) => None,
    });
    let shown = items.iter().filter_map(|item| item.id).chain(added).collect();
    let now = StoredPlan::read(project).await?.write(&shown);
    if replace_same(&file, &fresh, (&text, &now))? {
        replace_file(&base, &fresh, &now)?;
    }
    Ok(())
}

/// The plan that an agent works on.
struct OwnPlan<'a> {
    plan: &'a StoredPlan,
    milestone: UnitId,
    taken: BTreeSet<UnitId>,
}

impl OwnPlan<'_> {
    fn make_changes(&self, change: &UnitChange) -> Result<Vec<PlanChange>, AutopilotError> {
        match change {
            UnitChange::Add { slice, tasks } => {
                let slice = self.find_open(slice, UnitType::Slice)?;
                self.add_tasks(slice, (tasks, None), &BTreeSet::new())
            }
            UnitChange::Split { task, tasks } => {
                let task = self.find_open(task, UnitType::Task)?;
                self.split(task, tasks)
            }
            UnitChange::Reorder { task, after } => {
                let task = self.find_open(task, UnitType::Task)?;
                let after = self.find(after)?;
                let mut fields = self.fields_of(task)?;
                if after == task || !fields.blocked_by.insert(after) {
                    return Err(refuse(format!("{task} is after {after} already"), "Name another task."));
                }
                Ok(vec![PlanChange::Edit(task, fields)])
            }
        }
    }

    /// Finds a unit of the milestone.
    fn find(&self, name: &str) -> Result<UnitId, AutopilotError> {
        let id = name.parse::<UnitId>().ok().filter(|id| self.plan.rows.contains_key(id));
        let unknown =
            || refuse(format!("there is no unit {name} in this plan"), "Name one of your own milestone.");
        let id = id.ok_or_else(unknown)?;
        if id.root() == self.milestone {
            Ok(id)
        } else {
            let why = format!("{id} is no part of {}", self.milestone);
            Err(refuse(why, "Only units of your own milestone can be changed."))
        }
    }

    /// Finds a unit of the milestone that no worker has had yet.
    fn find_open(&self, name: &str, unit_type: UnitType) -> Result<UnitId, AutopilotError> {
        let id = self.find(name)?;
        if id.unit_type() != unit_type {
            return Err(refuse(format!("{id} is no {}", unit_type.name()), "Name a unit of the other kind."));
        }
        self.require_unbegun(id)?;
        Ok(id)
    }

    fn require_unbegun(&self, id: UnitId) -> Result<(), AutopilotError> {
        // A fence says that a worker has had it, also one that was interrupted.
        let has_begun = self
            .plan
            .rows
            .get(&id)
            .is_none_or(|(row, _)| row.fence > 0 || row.claim.is_some() || row.is_over);
        if has_begun {
            return Err(refuse(
                format!("work on {id} has begun"),
                "What has begun stays as it is: add tasks instead.",
            ));
        }
        Ok(())
    }

    fn fields_of(&self, id: UnitId) -> Result<OutlineFields, AutopilotError> {
        let missing =
            || refuse(format!("there is no unit {id} in this plan"), "Name one of your own milestone.");
        self.plan.fields_of(id).ok_or_else(missing)
    }

    /// Makes new tasks of a slice, each after the one before it, and the first one after these.
    fn add_tasks(
        &self,
        slice: UnitId,
        (tasks, priority): (&[NewTask], Option<u8>),
        after: &BTreeSet<UnitId>,
    ) -> Result<Vec<PlanChange>, AutopilotError> {
        let UnitId::Slice(milestone, number) = slice else {
            return Err(refuse(format!("{slice} is no slice"), "Name a slice."));
        };
        // Those that are over count, too: the limit is on what agents bring about.
        let parts = self.plan.rows.keys().filter(|id| id.parent() == Some(slice)).count();
        if parts.saturating_add(tasks.len()) > MAX_TASKS {
            let why = format!("{slice} would have more than {MAX_TASKS} tasks");
            return Err(refuse(why, "Put what belongs together into one task."));
        }
        // Numbers of removed tasks are not given again: their rows stay.
        let last = self.taken.iter().filter_map(|id| match id {
            UnitId::Task(of, part, task) if (*of, *part) == (milestone, number) => Some(*task),
            UnitId::Milestone(_) | UnitId::Slice(..) | UnitId::Task(..) => None,
        });
        let mut next = last.max().unwrap_or(0);
        let mut waits = after.clone();
        let mut changes = Vec::new();
        for task in tasks {
            next = next.saturating_add(1);
            let id = UnitId::Task(milestone, number, next);
            let fields = OutlineFields {
                title: task.title.clone(),
                description: task.text.clone(),
                priority,
                blocked_by: std::mem::replace(&mut waits, BTreeSet::from([id])),
                ..OutlineFields::default()
            };
            changes.push(PlanChange::Add(id, fields));
        }
        Ok(changes)
    }

    /// Puts tasks in the place of one: what waited for it waits for the last of them.
    fn split(&self, task: UnitId, tasks: &[NewTask]) -> Result<Vec<PlanChange>, AutopilotError> {
        let fields = self.fields_of(task)?;
        let slice = task.parent().ok_or_else(|| refuse(format!("{task} is in no slice"), "Name a task."))?;
        // A slice that is being judged is judged with this task.
        self.require_unbegun(slice)?;
        if has_sections(&fields.description) {
            let why = format!(
                "{task} says which files may change, or how it is accepted, as a person has approved it"
            );
            return Err(refuse(why, "Add tasks instead: it stays as it is."));
        }
        let mut changes = self.add_tasks(slice, (tasks, fields.priority), &fields.blocked_by)?;
        let last = changes.iter().rev().find_map(|change| match change {
            PlanChange::Add(id, _) => Some(*id),
            PlanChange::Edit(..) | PlanChange::Archive(_) => None,
        });
        let waiting = self
            .plan
            .rows
            .iter()
            .filter(|(_, (row, facts))| !row.is_over && facts.blocked_by.contains(&task));
        for id in waiting.map(|(id, _)| *id) {
            if id.root() != self.milestone {
                return Err(refuse(
                    format!("{id} waits for {task}"),
                    "Add tasks instead: it stays as it is.",
                ));
            }
            let mut fields = self.fields_of(id)?;
            fields.blocked_by.remove(&task);
            fields.blocked_by.extend(last);
            changes.push(PlanChange::Edit(id, fields));
        }
        changes.push(PlanChange::Archive(task));
        Ok(changes)
    }
}

/// Returns true if a text of a unit has a section that decides about it: paths that may change or stay, and how it is accepted. On a card a
/// person has seen these; no agent may add or remove one.
fn has_sections(text: &str) -> bool {
    !read_allowed_paths(text).is_empty()
        || !read_kept_paths(text).is_empty()
        || !read_acceptance(text).is_empty()
}

/// Checks that new texts decide about nothing, and come back from the plan's file as they are: no text of an agent may read as a mark, an id or an item there.
fn check_texts(plan: &StoredPlan, changes: &[PlanChange]) -> Result<(), AutopilotError> {
    let fields = |unit: PilotUnit| {
        let PilotUnit { id, title, description, priority, workflow, blocked_by, code_depends_on, .. } = unit;
        let fields = OutlineFields {
            is_done: false,
            title,
            description,
            priority,
            workflow,
            blocked_by,
            code_depends_on,
        };
        (id, fields)
    };
    let mut units: Vec<(UnitId, OutlineFields)> =
        units_after(plan, changes).into_iter().map(fields).collect();
    // Each unit before its parts, as the file has them.
    units.sort_by_key(|(id, _)| match *id {
        UnitId::Milestone(milestone) => (milestone, 0, 0),
        UnitId::Slice(milestone, slice) => (milestone, slice, 0),
        UnitId::Task(milestone, slice, task) => (milestone, slice, task),
    });
    let read = read_outline(&write_outline(&units)).map(|items| fields_by_id(&items)).unwrap_or_default();
    let is_same = |change: &PlanChange| match change {
        PlanChange::Add(id, fields) => read.get(id) == Some(fields),
        PlanChange::Edit(..) | PlanChange::Archive(_) => true,
    };
    let is_free = |change: &PlanChange| match change {
        PlanChange::Add(_, fields) => !has_sections(&fields.description),
        PlanChange::Edit(..) | PlanChange::Archive(_) => true,
    };
    if read.len() == units.len() && changes.iter().all(|change| is_same(change) && is_free(change)) {
        return Ok(());
    }
    Err(refuse(
        "a title or text cannot stand in a plan".to_owned(),
        "Write plain sentences without lists and marks.",
    ))
}

fn describe(changes: &[PlanChange]) -> String {
    let mut lines: BTreeMap<u8, Vec<String>> = BTreeMap::new();
    for change in changes {
        let (part, text) = match change {
            PlanChange::Add(id, fields) => (0, format!("{id} ({})", fields.title)),
            PlanChange::Edit(id, _) => (1, id.to_string()),
            PlanChange::Archive(id) => (2, id.to_string()),
        };
        lines.entry(part).or_default().push(text);
    }
    let words = ["Added", "Put in another order", "Removed"];
    let parts = lines.iter().map(|(part, texts)| {
        format!("{}: {}.", words.get(usize::from(*part)).copied().unwrap_or_default(), texts.join(", "))
    });
    parts.collect::<Vec<_>>().join(" ")
}
