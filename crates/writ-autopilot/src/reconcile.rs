//! Reconciles the plan that a person has edited with the units of the store.
//!
//! Three sides meet: the plan as it was last written (base), the plan as it is now (file), and the units as they are now
//! (store). A field that only the person has changed becomes a change; one that both have changed becomes a conflict, and
//! neither side is overwritten.

use std::collections::{BTreeMap, BTreeSet};

use crate::outline::{OutlineFields, OutlineItem};
use crate::unit_id::{UnitId, UnitType};

/// A field of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutlineField {
    /// The mark of a finished unit.
    Mark,
    /// The title.
    Title,
    /// The description.
    Description,
    /// The priority.
    Priority,
    /// The workflow.
    Workflow,
    /// The units that it waits for.
    BlockedBy,
    /// The slices that are merged before it.
    CodeDependsOn,
}

impl OutlineField {
    /// Every field.
    const ALL: [Self; 7] = [
        Self::Mark,
        Self::Title,
        Self::Description,
        Self::Priority,
        Self::Workflow,
        Self::BlockedBy,
        Self::CodeDependsOn,
    ];

    fn is_same(self, one: &OutlineFields, other: &OutlineFields) -> bool {
        match self {
            Self::Mark => one.is_done == other.is_done,
            Self::Title => one.title == other.title,
            Self::Description => one.description == other.description,
            Self::Priority => one.priority == other.priority,
            Self::Workflow => one.workflow == other.workflow,
            Self::BlockedBy => one.blocked_by == other.blocked_by,
            Self::CodeDependsOn => one.code_depends_on == other.code_depends_on,
        }
    }

    fn copy_to(self, from: &OutlineFields, to: &mut OutlineFields) {
        match self {
            // The harness alone says what is done.
            Self::Mark => {}
            Self::Title => to.title.clone_from(&from.title),
            Self::Description => to.description.clone_from(&from.description),
            Self::Priority => to.priority = from.priority,
            Self::Workflow => to.workflow.clone_from(&from.workflow),
            Self::BlockedBy => to.blocked_by.clone_from(&from.blocked_by),
            Self::CodeDependsOn => to.code_depends_on.clone_from(&from.code_depends_on),
        }
    }
}

/// A unit of the store, as the plan shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredUnit {
    /// Its fields.
    pub fields: OutlineFields,
    /// Set if a worker has had it, or it is done: it cannot be removed any more by an edit, nor get another workflow.
    pub has_begun: bool,
}

/// A change of the store that the person's edit asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanChange {
    /// A new unit with its number.
    Add(UnitId, OutlineFields),
    /// New values of a unit.
    Edit(UnitId, OutlineFields),
    /// The unit is deleted: marked, as always.
    Archive(UnitId),
}

/// An edit that is not taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanConflict {
    /// The line of the file; none for an item that is missing there.
    pub line: Option<usize>,
    /// The unit.
    pub id: UnitId,
    /// The reason, for people.
    pub reason: ConflictReason,
}

/// The reason for which an edit is not taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictReason {
    /// The file and the store have both changed the field, to different values.
    BothChanged(OutlineField),
    /// A mark was set or removed by hand.
    MarkByHand,
    /// The workflow of a unit that has begun is pinned.
    WorkflowPinned,
    /// The item was removed, and work on it has begun.
    RemovedAfterBegin,
    /// The item was removed, and the store has changed it.
    RemovedAndChanged,
    /// No unit has this id.
    UnknownId,
    /// The id is there twice.
    IdTwice,
    /// It lies below another item than its id says.
    MovedTo(Option<UnitId>),
    /// A unit of what the file shows, which the file has never shown: a reload that was cut off has made it, and its item has another
    /// title by now or is removed.
    NotShown,
}

impl ConflictReason {
    /// Returns the next thing to do.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::BothChanged(_) => "take one of both values over by hand, and reload",
            Self::MarkByHand => "leave the mark: the harness sets it when the unit is complete",
            Self::WorkflowPinned => "abandon the unit, and plan a new one with this workflow",
            Self::RemovedAfterBegin => "use `writ pilot cancel`, or put the item back",
            Self::RemovedAndChanged => "put the item back, look at the change, and remove it again",
            Self::UnknownId => "leave the id of a new unit out",
            Self::IdTwice => "leave the id of the copy out",
            Self::NotShown => "give its id to its item, or end it with `writ pilot cancel`",
            Self::MovedTo(_) => "a unit stays where it is: remove it, and add a new one",
        }
    }
}

/// The result: changes that can be made at once, and edits that a person has to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciliation {
    /// Changes, each unit after the one that it belongs to.
    pub changes: Vec<PlanChange>,
    /// Edits that are not taken over.
    pub conflicts: Vec<PlanConflict>,
    /// The unit of each item of the file, in its order: also where the item has no id.
    pub ids: Vec<UnitId>,
}

/// Reconciles an edited plan with the store. An item without an id is the unit of its title below the same one above, if the file has
/// never shown that unit: a reload that was cut off, or that met another editor, has made it and not noted its id. `taken`: the ids that
/// the project has ever had, also those of archived units.
pub fn reconcile_plan(
    base: &BTreeMap<UnitId, OutlineFields>,
    file: &[OutlineItem],
    store: &BTreeMap<UnitId, StoredUnit>,
    taken: &BTreeSet<UnitId>,
) -> Reconciliation {
    let mut made = Reconciliation::default();
    let mut seen: BTreeSet<UnitId> = BTreeSet::new();
    let mut unnamed = UnnamedUnits::new(base, file, store);
    let mut numbers = NextNumbers::new(store.keys().chain(base.keys()).chain(taken).copied());
    // The unit at each level that the next item belongs to.
    let mut above: [Option<UnitId>; 2] = [None; 2];
    for item in file {
        let parent = match item.unit_type {
            UnitType::Milestone => None,
            UnitType::Slice => above[0],
            UnitType::Task => above[1],
        };
        let id = match item.id {
            Some(id) => {
                reconcile_item(&mut made, base, store, item, id, parent, !seen.insert(id));
                id
            }
            None => match unnamed.take(parent, &item.fields.title, store) {
                Some((id, stored)) => {
                    seen.insert(id);
                    // No one has marked a line that had no id yet.
                    let fields = OutlineFields { is_done: stored.fields.is_done, ..item.fields.clone() };
                    let item = OutlineItem { fields, ..item.clone() };
                    reconcile_item(&mut made, base, store, &item, id, parent, false);
                    id
                }
                None => {
                    let id = numbers.take_next(parent);
                    made.changes.push(PlanChange::Add(id, new_fields(&item.fields)));
                    id
                }
            },
        };
        made.ids.push(id);
        match item.unit_type {
            UnitType::Milestone => above = [Some(id), None],
            UnitType::Slice => above[1] = Some(id),
            UnitType::Task => {}
        }
    }
    for (id, was) in base.iter().filter(|(id, _)| !seen.contains(id)) {
        // Archived meanwhile: both sides agree.
        let Some(stored) = store.get(id) else { continue };
        let reason = if stored.has_begun {
            ConflictReason::RemovedAfterBegin
        } else if stored.fields != *was {
            ConflictReason::RemovedAndChanged
        } else {
            made.changes.push(PlanChange::Archive(*id));
            continue;
        };
        made.conflicts.push(PlanConflict { line: None, id: *id, reason });
    }
    // It would be worked on beside the one that has its new title, and no line would say so.
    for (id, stored) in store.iter().filter(|(id, _)| !seen.contains(id) && !base.contains_key(id)) {
        if !stored.fields.is_done && id.parent().is_some_and(|parent| seen.contains(&parent)) {
            made.conflicts.push(PlanConflict { line: None, id: *id, reason: ConflictReason::NotShown });
        }
    }
    made
}

/// Compares one item with its unit, field by field.
fn reconcile_item(
    made: &mut Reconciliation,
    base: &BTreeMap<UnitId, OutlineFields>,
    store: &BTreeMap<UnitId, StoredUnit>,
    item: &OutlineItem,
    id: UnitId,
    parent: Option<UnitId>,
    is_twice: bool,
) {
    let mut conflict = |reason| made.conflicts.push(PlanConflict { line: Some(item.line), id, reason });
    let Some(stored) = store.get(&id) else { return conflict(ConflictReason::UnknownId) };
    if is_twice {
        return conflict(ConflictReason::IdTwice);
    }
    if id.parent() != parent {
        return conflict(ConflictReason::MovedTo(parent));
    }
    // A unit that the plan has not shown yet: nothing of it was edited, but its line is there by chance or by hand.
    let was = base.get(&id).unwrap_or(&stored.fields);
    let mut next = stored.fields.clone();
    for field in OutlineField::ALL {
        // Only a difference from what was shown is an edit.
        let is_edited = !field.is_same(was, &item.fields);
        if !is_edited || field.is_same(&stored.fields, &item.fields) {
            continue;
        }
        let is_changed = !field.is_same(was, &stored.fields);
        if field == OutlineField::Mark {
            conflict(ConflictReason::MarkByHand);
        } else if field == OutlineField::Workflow && stored.has_begun {
            conflict(ConflictReason::WorkflowPinned);
        } else if is_changed {
            conflict(ConflictReason::BothChanged(field));
        } else {
            field.copy_to(&item.fields, &mut next);
        }
    }
    if next != stored.fields {
        made.changes.push(PlanChange::Edit(id, next));
    }
}

/// A new unit is open, also where its mark was copied from another one.
fn new_fields(fields: &OutlineFields) -> OutlineFields {
    OutlineFields { is_done: false, ..fields.clone() }
}

/// Units that no item of the file names and that the file has never shown, by what they are a part of and by their title, in the order of their numbers.
struct UnnamedUnits(BTreeMap<(Option<UnitId>, String), Vec<UnitId>>);

impl UnnamedUnits {
    fn new(
        base: &BTreeMap<UnitId, OutlineFields>,
        file: &[OutlineItem],
        store: &BTreeMap<UnitId, StoredUnit>,
    ) -> Self {
        let named: BTreeSet<UnitId> = file.iter().filter_map(|item| item.id).collect();
        let is_unnamed = |id: &UnitId| !named.contains(id) && !base.contains_key(id);
        let mut units: BTreeMap<(Option<UnitId>, String), Vec<UnitId>> = BTreeMap::new();
        for (id, stored) in store.iter().rev().filter(|(id, _)| is_unnamed(id)) {
            units.entry((id.parent(), stored.fields.title.clone())).or_default().push(*id);
        }
        Self(units)
    }

    fn take<'a>(
        &mut self,
        parent: Option<UnitId>,
        title: &str,
        store: &'a BTreeMap<UnitId, StoredUnit>,
    ) -> Option<(UnitId, &'a StoredUnit)> {
        let id = self.0.get_mut(&(parent, title.to_owned()))?.pop()?;
        Some((id, store.get(&id)?))
    }
}

/// The numbers of new units: above all that were ever used below their parent, since a number names one unit for ever.
struct NextNumbers(BTreeMap<Option<UnitId>, u32>);

impl NextNumbers {
    fn new(ids: impl Iterator<Item = UnitId>) -> Self {
        let mut numbers: BTreeMap<Option<UnitId>, u32> = BTreeMap::new();
        for id in ids.filter(|id| !matches!(id, UnitId::Task(0, 0, _))) {
            let most = numbers.entry(id.parent()).or_default();
            *most = (*most).max(id.number());
        }
        Self(numbers)
    }

    fn take_next(&mut self, parent: Option<UnitId>) -> UnitId {
        let most = self.0.entry(parent).or_default();
        *most = most.saturating_add(1);
        let number = *most;
        parent.and_then(|parent| parent.child(number)).unwrap_or(UnitId::Milestone(number))
    }
}

#[cfg(test)]
mod tests;
