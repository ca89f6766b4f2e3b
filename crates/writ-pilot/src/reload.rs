//! The plan as a file: what a person edits in `.writ/plan.md` is compared with the units, shown, and carried out on their word.
//!
//! Either all edits are carried out or none. What changes the words of a plan, or adds to it, is asked about with a new card:
//! a signature covers what its person has seen. Order, priority and removal need none: they add no work.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use writ_autopilot::outline::{MAX_OUTLINE_BYTES, OutlineFields, OutlineItem, read_outline, write_outline};
use writ_autopilot::reconcile::{ConflictReason, PlanChange, StoredUnit, reconcile_plan};
use writ_autopilot::unit_id::{UnitId, UnitType};
use writ_autopilot::units::{PilotUnit, check_units};
use writ_store::reads::UnitReads as _;
use writ_store::units::{MAX_UNITS, UnitRow};
use writ_types::api::pilot::{PilotReload, PilotReloaded, PlanEdit, PlanEditConflict};
use writ_types::digest::Digest;
use writ_types::error::ToReport as _;

use crate::error::AutopilotError;
use crate::goal::read_workflows;
use crate::project::OpenProject;
use crate::standing::{UnitFacts, read_facts};

mod agent;
mod apply;

pub(crate) use agent::change_by_agent;
pub(crate) use apply::end_removed_plans;

/// The plan of a project, for people.
const PLAN_FILE: &str = ".writ/plan.md";
/// The plan as it was when it was read or written last: only a difference from it is an edit.
const BASE_FILE: &str = ".writ/active/plan.base.md";
/// A text before it takes the place of one of both, in a folder of the harness: beside the plan it could be a person's file.
const FRESH_FILE: &str = ".writ/active/plan.fresh.md";

/// All units of a project with their rows.
pub(crate) struct StoredPlan {
    rows: BTreeMap<UnitId, (UnitRow, UnitFacts)>,
    /// The workflow of milestones that name none.
    workflow: String,
}

impl StoredPlan {
    async fn read(project: &OpenProject) -> Result<Self, AutopilotError> {
        let mut rows = BTreeMap::new();
        for row in project.hands.store().whole_units(&project.name, MAX_UNITS).await? {
            // A task that was asked for directly stands in no plan.
            if let Some(id) = row.key.id.parse::<UnitId>().ok().filter(|id| !id.is_ad_hoc()) {
                let facts = read_facts(&row)?;
                rows.insert(id, (row, facts));
            }
        }
        Ok(Self { rows, workflow: read_workflows(project, None)?.default })
    }

    fn fields_of(&self, id: UnitId) -> Option<OutlineFields> {
        let (row, facts) = self.rows.get(&id)?;
        // Named where it is another one than that of the unit above alone, as the planner writes it.
        let above = id.parent().and_then(|parent| self.rows.get(&parent));
        let inherited = above.map_or(&self.workflow, |(row, _)| &row.workflow);
        Some(OutlineFields {
            is_done: row.is_over && !facts.is_reverted,
            title: row.title.clone(),
            description: row.description.trim_end().to_owned(),
            priority: row.priority,
            workflow: (*inherited != row.workflow).then(|| row.workflow.clone()),
            blocked_by: facts.blocked_by.iter().copied().collect(),
            code_depends_on: facts.code_depends_on.iter().copied().collect(),
        })
    }

    fn stored(&self) -> BTreeMap<UnitId, StoredUnit> {
        let stored = |id: &UnitId| {
            let (row, _) = self.rows.get(id)?;
            let fields = self.fields_of(*id)?;
            Some((*id, StoredUnit { fields, has_begun: row.fence > 0 || row.is_over }))
        };
        self.rows.keys().filter_map(stored).collect()
    }

    /// Writes units as people read them: each before its parts.
    fn write(&self, shown: &BTreeSet<UnitId>) -> String {
        let rows = self.rows.keys().filter(|id| shown.contains(id));
        let mut units: Vec<(UnitId, OutlineFields)> =
            rows.filter_map(|id| Some((*id, self.fields_of(*id)?))).collect();
        units.sort_by_key(|(id, _)| match *id {
            UnitId::Milestone(milestone) => (milestone, 0, 0),
            UnitId::Slice(milestone, slice) => (milestone, slice, 0),
            UnitId::Task(milestone, slice, task) => (milestone, slice, task),
        });
        write_outline(&units)
    }
}

/// Reads the plan that a person has edited; with `apply` set its edits are carried out, if none of them is in conflict.
///
/// # Errors
///
/// If the file cannot be read, the units that it asks for cannot be, a worker has one of them, or the store cannot be written.
pub(crate) async fn reload(
    project: &Arc<OpenProject>,
    order: &PilotReload,
) -> Result<PilotReloaded, AutopilotError> {
    // From the reading of the file to its writing: of two that are given the order at once, the second sees what the first has done.
    let _alone = project.hold_plans().await;
    let top = project.git.project().top_dir().to_owned();
    let [file, base, fresh] = [PLAN_FILE, BASE_FILE, FRESH_FILE].map(|name| top.join(name));
    let plan = StoredPlan::read(project).await?;
    let mut shown = PilotReloaded {
        file: file.to_string_lossy().into_owned(),
        digest: String::new(),
        written: false,
        edits: Vec::new(),
        conflicts: Vec::new(),
        applied: false,
        asks: Vec::new(),
    };
    let Some(text) = read_text(&file)? else {
        let text = plan.write(&plan.rows.keys().copied().collect());
        replace_file(&base, &fresh, &text)?;
        create_file(&file, &text)?;
        return Ok(PilotReloaded { written: true, digest: digest_of(&text), ..shown });
    };
    shown.digest = digest_of(&text);
    if order.apply && order.digest != shown.digest {
        return Err(AutopilotError::PlanChanged { file: shown.file });
    }
    let items = read_outline(&text).map_err(|error| error.report())?;
    let was = match read_text(&base)? {
        Some(text) => fields_by_id(&read_outline(&text).map_err(|error| error.report())?),
        // Without the state before, everything that differs is an edit.
        None => BTreeMap::new(),
    };
    let made = reconcile_plan(&was, &items, &plan.stored(), &project.taken_ids().await?);
    shown.conflicts = made
        .conflicts
        .iter()
        .map(|one| PlanEditConflict {
            line: one.line,
            unit: one.id.to_string(),
            reason: reason_words(one.reason),
            hint: one.reason.hint().to_owned(),
        })
        .collect();
    shown.edits = made.changes.iter().map(|change| edit_of(&plan, change)).collect();
    // Ids that a reload before has not noted are noted also without an order: they change nothing.
    let is_rest = made.changes.is_empty() && items.iter().any(|item| item.id.is_none());
    if !shown.conflicts.is_empty() || !(order.apply || is_rest) {
        return Ok(shown);
    }
    if !made.changes.is_empty() {
        check_result(&plan, &made.changes)?;
        shown.asks = apply::carry_out(project, &plan, &made.changes).await?;
    }
    // The person's own text stays, down to its remarks: only ids and marks are added.
    let after = StoredPlan::read(project).await?;
    let noted = note_ids(&text, &items, &made.ids, &after);
    // The file first: where the other one is behind, its edits are made already, and nothing is made twice.
    let digest = if replace_same(&file, &fresh, (&text, &noted))? {
        replace_file(&base, &fresh, &after.write(&made.ids.iter().copied().collect()))?;
        digest_of(&noted)
    } else {
        // What was saved meanwhile is the person's; the next reload finds the new units by their titles.
        shown.digest
    };
    Ok(PilotReloaded { applied: order.apply, digest, ..shown })
}

fn digest_of(text: &str) -> String {
    Digest::of_bytes(text.as_bytes()).to_string()
}

fn fields_by_id(items: &[OutlineItem]) -> BTreeMap<UnitId, OutlineFields> {
    items.iter().filter_map(|item| Some((item.id?, item.fields.clone()))).collect()
}

/// Returns true if a change affects what a person signs: new units and changed words.
fn changes_words(plan: &StoredPlan, change: &PlanChange) -> bool {
    match change {
        PlanChange::Add(..) => true,
        PlanChange::Edit(id, fields) => plan.fields_of(*id).is_none_or(|old| {
            old.title != fields.title
                || old.description != fields.description
                || old.workflow != fields.workflow
        }),
        PlanChange::Archive(_) => false,
    }
}

fn edit_of(plan: &StoredPlan, change: &PlanChange) -> PlanEdit {
    let needs_approval = changes_words(plan, change);
    let edit = |id: &UnitId, kind: &str, text: String| PlanEdit {
        unit: id.to_string(),
        kind: kind.to_owned(),
        text,
        needs_approval,
    };
    match change {
        PlanChange::Add(id, fields) => edit(id, "add", fields.title.clone()),
        PlanChange::Archive(id) => {
            edit(id, "remove", plan.fields_of(*id).map(|fields| fields.title).unwrap_or_default())
        }
        PlanChange::Edit(id, fields) => {
            let old = plan.fields_of(*id).unwrap_or_default();
            let mut parts = Vec::new();
            if old.title != fields.title {
                parts.push(format!("title: {}", fields.title));
            }
            let list =
                |ids: &BTreeSet<UnitId>| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            parts.extend((old.description != fields.description).then(|| "description".to_owned()));
            let priority =
                || fields.priority.map_or_else(|| "none".to_owned(), |priority| priority.to_string());
            parts.extend((old.priority != fields.priority).then(|| format!("priority: {}", priority())));
            let workflow = || fields.workflow.clone().unwrap_or_default();
            parts.extend((old.workflow != fields.workflow).then(|| format!("workflow: {}", workflow())));
            let (waits, merges) = (&fields.blocked_by, &fields.code_depends_on);
            parts.extend((old.blocked_by != *waits).then(|| format!("blocked_by: {}", list(waits))));
            parts.extend(
                (old.code_depends_on != *merges).then(|| format!("code_depends_on: {}", list(merges))),
            );
            edit(id, "edit", parts.join("; "))
        }
    }
}

fn reason_words(reason: ConflictReason) -> String {
    match reason {
        ConflictReason::BothChanged(field) => {
            format!("the file and the autopilot have both changed it: {field:?}")
        }
        ConflictReason::MarkByHand => "its mark was changed by hand".to_owned(),
        ConflictReason::WorkflowPinned => "work on it has begun with another workflow".to_owned(),
        ConflictReason::RemovedAfterBegin => "it was removed, and work on it has begun".to_owned(),
        ConflictReason::RemovedAndChanged => "it was removed, and the autopilot has changed it".to_owned(),
        ConflictReason::UnknownId => "there is no unit with this id".to_owned(),
        ConflictReason::IdTwice => "its id is there twice".to_owned(),
        ConflictReason::MovedTo(Some(parent)) => format!("it was moved to {parent}"),
        ConflictReason::MovedTo(None) => "it was moved to the top".to_owned(),
        ConflictReason::NotShown => "it is a part of the plan, and the file does not show it".to_owned(),
    }
}

/// Returns the units as they would be after the changes, without those that are removed.
fn units_after(plan: &StoredPlan, changes: &[PlanChange]) -> Vec<PilotUnit> {
    let mut all: BTreeMap<UnitId, OutlineFields> =
        plan.rows.keys().filter_map(|id| Some((*id, plan.fields_of(*id)?))).collect();
    for change in changes {
        match change {
            PlanChange::Add(id, fields) | PlanChange::Edit(id, fields) => {
                all.insert(*id, fields.clone());
            }
            PlanChange::Archive(id) => {
                all.remove(id);
            }
        }
    }
    let unit = |(id, fields): (UnitId, OutlineFields)| PilotUnit {
        id,
        title: fields.title,
        description: fields.description,
        priority: fields.priority,
        workflow: fields.workflow,
        blocked_by: fields.blocked_by,
        code_depends_on: fields.code_depends_on,
        archived_at: None,
    };
    all.into_iter().map(unit).collect()
}

/// Checks that the units as they would be after the changes can be worked on.
fn check_result(plan: &StoredPlan, changes: &[PlanChange]) -> Result<(), AutopilotError> {
    let after = units_after(plan, changes);
    check_units(&after).map_err(|error| error.report())?;
    // A slice without tasks is one unit of work; a milestone without slices is none.
    let empty = after.iter().find(|unit| {
        unit.id.unit_type() == UnitType::Milestone
            && !plan.rows.get(&unit.id).is_some_and(|(row, _)| row.is_over)
            && !after.iter().any(|part| part.id.parent() == Some(unit.id))
    });
    match empty {
        Some(unit) => Err(AutopilotError::NoOutline { why: format!("{} has no slice", unit.id) }),
        None => Ok(()),
    }
}

/// Adds the ids of new units and the marks of ended ones to a person's text. `ids`: the unit of each item.
fn note_ids(text: &str, items: &[OutlineItem], ids: &[UnitId], after: &StoredPlan) -> String {
    // With their ends, which an editor on another system has written.
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    for (item, id) in items.iter().zip(ids) {
        let Some(line) = lines.get_mut(item.line.saturating_sub(1)) else { continue };
        if item.id.is_none() {
            let words = line.trim_end();
            let rest = line.get(words.len()..).unwrap_or_default();
            *line = match words.strip_suffix("-->") {
                Some(head) => format!("{} {id} -->{rest}", head.trim_end()),
                None => format!("{words} <!-- {id} -->{rest}"),
            };
        }
        let is_done = after.fields_of(*id).is_some_and(|fields| fields.is_done);
        let (open, done) = ("- [ ]", "- [x]");
        *line = if is_done { line.replacen(open, done, 1) } else { line.replacen(done, open, 1) };
    }
    lines.concat()
}

/// Opens the lines of units in the plan of a project again, and in the state of it that edits are told from. A file that cannot be read as
/// a plan is the person's to mend.
///
/// # Errors
///
/// If a file cannot be read or written.
pub(crate) async fn open_lines(
    project: &OpenProject,
    units: &BTreeSet<UnitId>,
) -> Result<(), AutopilotError> {
    let _alone = project.hold_plans().await;
    let top = project.git.project().top_dir().to_owned();
    let [file, base, fresh] = [PLAN_FILE, BASE_FILE, FRESH_FILE].map(|name| top.join(name));
    for path in [file, base] {
        let Some(text) = read_text(&path)? else { continue };
        let Ok(items) = read_outline(&text) else { continue };
        let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        // The text of the person stays but for the marks.
        for item in items.iter().filter(|item| item.id.is_some_and(|id| units.contains(&id))) {
            if let Some(line) = lines.get_mut(item.line.saturating_sub(1)) {
                *line = line.replacen("- [x]", "- [ ]", 1);
            }
        }
        replace_same(&path, &fresh, (&text, &lines.concat()))?;
    }
    Ok(())
}

fn failed(path: &Path, error: &io::Error) -> AutopilotError {
    AutopilotError::File { path: path.to_owned(), why: error.to_string() }
}

/// Reads a text; `None`: there is no file. A link in its place is none of a person's.
fn read_text(path: &Path) -> Result<Option<String>, AutopilotError> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() => {}
        Ok(_) => return Err(failed(path, &io::Error::other("it is no file"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(path, &error)),
    }
    let mut bytes = Vec::new();
    let opened = fs::File::open(path).map_err(|error| failed(path, &error))?;
    // One byte more than it may have, so that the reader of the text refuses it.
    let most = u64::try_from(MAX_OUTLINE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    opened.take(most).read_to_end(&mut bytes).map_err(|error| failed(path, &error))?;
    let text = String::from_utf8(bytes).map_err(|_| failed(path, &io::Error::other("it is not UTF-8")))?;
    Ok(Some(text))
}

fn create_file(path: &Path, text: &str) -> Result<(), AutopilotError> {
    let write = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error| failed(path, &error))
}

/// Replaces a file as a whole.
fn replace_file(path: &Path, fresh: &Path, text: &str) -> Result<(), AutopilotError> {
    write_fresh(fresh, text)?;
    fs::rename(fresh, path).map_err(|error| failed(path, &error))
}

/// Replaces a file that has still the text that was read. Returns false if it has another one: an editor has saved it meanwhile.
fn replace_same(path: &Path, fresh: &Path, (was, text): (&str, &str)) -> Result<bool, AutopilotError> {
    // Written before the look, so that the time between look and rename is the shortest.
    write_fresh(fresh, text)?;
    let is_same = read_text(path).map(|now| now.as_deref() == Some(was));
    match is_same {
        Ok(true) => fs::rename(fresh, path).map(|()| true).map_err(|error| failed(path, &error)),
        Ok(false) | Err(_) => {
            let _ = fs::remove_file(fresh);
            is_same
        }
    }
}

/// Writes a text that is to take the place of another; what a killed engine has left there goes.
fn write_fresh(fresh: &Path, text: &str) -> Result<(), AutopilotError> {
    let _ = fs::remove_file(fresh);
    create_file(fresh, text)
}

#[cfg(test)]
mod tests;
