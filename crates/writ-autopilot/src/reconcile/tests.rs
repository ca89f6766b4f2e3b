use super::*;
use crate::outline::{read_outline, write_outline};

/// The plan as it was written last.
const BASE: &str = "\
- [ ] Sign in <!-- milestone/m1 -->
  - [x] The page <!-- slice/m1/s1 -->
  - [ ] The server <!-- slice/m1/s2 priority=2 -->
    - [ ] Tokens <!-- task/m1/s2/t1 -->
";

fn base() -> BTreeMap<UnitId, OutlineFields> {
    read_outline(BASE).unwrap().into_iter().map(|item| (item.id.unwrap(), item.fields)).collect()
}

/// The units of the base; those with these ids have begun.
fn store(begun: &[UnitId]) -> BTreeMap<UnitId, StoredUnit> {
    let unit =
        |(id, fields): (UnitId, OutlineFields)| (id, StoredUnit { fields, has_begun: begun.contains(&id) });
    base().into_iter().map(unit).collect()
}

fn reconcile(file: &str, store: &BTreeMap<UnitId, StoredUnit>) -> Reconciliation {
    reconcile_plan(&base(), &read_outline(file).unwrap(), store, &BTreeSet::new())
}

const SERVER: UnitId = UnitId::Slice(1, 2);

/// Returns true if nothing is to be done.
fn is_quiet(made: &Reconciliation) -> bool {
    made.changes.is_empty() && made.conflicts.is_empty()
}

#[test]
fn an_unchanged_plan_asks_for_nothing() {
    let mut stored = store(&[]);
    assert!(is_quiet(&reconcile(BASE, &stored)));
    // What the harness has changed meanwhile is no edit of the person.
    stored.get_mut(&SERVER).unwrap().fields.priority = Some(1);
    stored.get_mut(&SERVER).unwrap().fields.is_done = true;
    assert!(is_quiet(&reconcile(BASE, &stored)));
}

/// Rows: SF-065 (new milestones appear; without a reload nothing is read)
#[test]
fn edits_new_items_and_removed_ones_become_changes() {
    let file = "\
- [ ] Sign in with OAuth <!-- milestone/m1 -->
  - [x] The page <!-- slice/m1/s1 -->
    - [x] A copied line
  - [ ] The server <!-- slice/m1/s2 -->
  - [ ] A third slice
    - [ ] Its task
- [ ] Another goal
  - [ ] Its slice
";
    let made = reconcile(file, &store(&[]));
    assert_eq!(made.conflicts, []);
    let names: Vec<String> = made
        .changes
        .iter()
        .map(|change| match change {
            PlanChange::Add(id, fields) => format!("add {id} {} {}", fields.title, fields.is_done),
            PlanChange::Edit(id, fields) => format!("edit {id} {} {:?}", fields.title, fields.priority),
            PlanChange::Archive(id) => format!("archive {id}"),
        })
        .collect();
    assert_eq!(
        names,
        [
            "edit milestone/m1 Sign in with OAuth None",
            "add task/m1/s1/t1 A copied line false",
            "edit slice/m1/s2 The server None",
            "add slice/m1/s3 A third slice false",
            "add task/m1/s3/t1 Its task false",
            "add milestone/m2 Another goal false",
            "add slice/m2/s1 Its slice false",
            "archive task/m1/s2/t1",
        ]
    );
}

/// A number names one unit for ever, also one that was archived before.
#[test]
fn numbers_are_not_used_again() {
    let mut stored = store(&[]);
    stored.remove(&UnitId::Task(1, 2, 1));
    let file = BASE.replace("Tokens <!-- task/m1/s2/t1 -->", "Tokens again");
    let made = reconcile(&file, &stored);
    assert!(matches!(made.changes.as_slice(), [PlanChange::Add(UnitId::Task(1, 2, 2), _)]), "{made:?}");
}

/// The last unit of each level was archived, and neither the file nor the units that are there know of it any more.
#[test]
fn numbers_of_archived_units_are_not_used_again() {
    let taken = BTreeSet::from([UnitId::Milestone(2), UnitId::Slice(1, 3), UnitId::Task(1, 2, 2)]);
    let file = format!("{BASE}    - [ ] A task\n  - [ ] A slice\n- [ ] A milestone\n  - [ ] Its slice\n");
    let made = reconcile_plan(&base(), &read_outline(&file).unwrap(), &store(&[]), &taken);
    let added: Vec<UnitId> = made
        .changes
        .iter()
        .filter_map(|change| if let PlanChange::Add(id, _) = change { Some(*id) } else { None })
        .collect();
    let expected = [UnitId::Task(1, 2, 3), UnitId::Slice(1, 4), UnitId::Milestone(3), UnitId::Slice(3, 1)];
    assert_eq!(added, expected);
}

fn reason(file: &str, stored: &BTreeMap<UnitId, StoredUnit>) -> (Option<usize>, UnitId, ConflictReason) {
    let made = reconcile(file, stored);
    assert_eq!(made.changes, [], "nothing is overwritten");
    let [conflict] = made.conflicts.as_slice() else { panic!("{made:?}") };
    assert!(!conflict.reason.hint().is_empty());
    (conflict.line, conflict.id, conflict.reason)
}

#[test]
fn an_edit_that_would_overwrite_something_is_a_conflict() {
    let mut stored = store(&[]);
    stored.get_mut(&SERVER).unwrap().fields.priority = Some(1);
    let edited = BASE.replace("priority=2", "priority=3");
    assert_eq!(
        reason(&edited, &stored),
        (Some(3), SERVER, ConflictReason::BothChanged(OutlineField::Priority))
    );
    // Both have made the same change.
    assert!(is_quiet(&reconcile(&BASE.replace("priority=2", "priority=1"), &stored)));

    let unedited = store(&[SERVER]);
    let marked = BASE.replace("- [ ] The server", "- [x] The server");
    assert_eq!(reason(&marked, &unedited), (Some(3), SERVER, ConflictReason::MarkByHand));
    let unmarked = BASE.replace("- [x] The page", "- [ ] The page");
    assert_eq!(reason(&unmarked, &unedited).2, ConflictReason::MarkByHand);
    let other = BASE.replace("priority=2", "priority=2 workflow=docs");
    assert_eq!(reason(&other, &unedited), (Some(3), SERVER, ConflictReason::WorkflowPinned));
    let unknown = format!("{BASE}- [ ] Mine <!-- milestone/m7 -->\n");
    assert_eq!(reason(&unknown, &unedited), (Some(5), UnitId::Milestone(7), ConflictReason::UnknownId));
    let twice = format!("{BASE}  - [ ] The server <!-- slice/m1/s2 priority=4 -->\n");
    assert_eq!(reason(&twice, &unedited), (Some(5), SERVER, ConflictReason::IdTwice));
    let moved = "- [ ] Sign in <!-- milestone/m1 -->\n  - [x] The page <!-- slice/m1/s1 -->\n    - [ ] Tokens <!-- task/m1/s2/t1 -->\n  - [ ] The server <!-- slice/m1/s2 priority=2 -->\n";
    assert_eq!(reason(moved, &unedited).2, ConflictReason::MovedTo(Some(UnitId::Slice(1, 1))));
}

#[test]
fn a_removed_item_is_a_conflict_once_work_has_begun_or_the_unit_has_changed() {
    let removed = BASE.replace("    - [ ] Tokens <!-- task/m1/s2/t1 -->\n", "");
    let token = UnitId::Task(1, 2, 1);
    assert_eq!(reason(&removed, &store(&[token])), (None, token, ConflictReason::RemovedAfterBegin));
    let mut stored = store(&[]);
    stored.get_mut(&token).unwrap().fields.title = "Tokens of all kinds".to_owned();
    assert_eq!(reason(&removed, &stored), (None, token, ConflictReason::RemovedAndChanged));
    assert_eq!(reconcile(&removed, &store(&[])).changes, [PlanChange::Archive(token)]);
}

/// A reload of the plan that is written after a reload asks for nothing.
#[test]
fn after_a_reload_both_sides_agree() {
    let file = format!("{BASE}- [ ] Another goal <!-- priority=1 -->\n  Described.\n");
    let mut stored = store(&[]);
    for change in reconcile(&file, &stored).changes {
        match change {
            PlanChange::Add(id, fields) | PlanChange::Edit(id, fields) => {
                stored.insert(id, StoredUnit { fields, has_begun: false });
            }
            PlanChange::Archive(id) => {
                stored.remove(&id);
            }
        }
    }
    let mut units: Vec<(UnitId, OutlineFields)> =
        stored.iter().map(|(id, unit)| (*id, unit.fields.clone())).collect();
    units.sort_by_key(|(id, _)| match *id {
        UnitId::Milestone(m) => (m, 0, 0),
        UnitId::Slice(m, s) => (m, s, 0),
        UnitId::Task(m, s, t) => (m, s, t),
    });
    let written = write_outline(&units);
    let base = units.into_iter().collect();
    let again = reconcile_plan(&base, &read_outline(&written).unwrap(), &stored, &BTreeSet::new());
    assert!(is_quiet(&again), "{written}");
}

/// A person removes the line of work that is done, and asks for work of the same name: that is another unit, and not the one that is
/// done already.
#[test]
fn new_work_of_an_old_name_is_new_work() {
    let task = UnitId::Task(1, 2, 1);
    let mut stored = store(&[task]);
    stored.get_mut(&task).unwrap().fields.is_done = true;
    let made = reconcile(&BASE.replace("Tokens <!-- task/m1/s2/t1 -->", "Tokens"), &stored);
    assert!(matches!(made.changes.as_slice(), [PlanChange::Add(UnitId::Task(1, 2, 2), _)]), "{made:?}");
    assert!(
        matches!(made.conflicts.as_slice(), [one] if one.reason == ConflictReason::RemovedAfterBegin),
        "{made:?}"
    );
}

/// A reload was cut off between its commit and its file: the new lines have no ids, and the plan of before is what is known as written.
/// Once more makes nothing a second time.
#[test]
fn a_reload_that_was_cut_off_is_not_made_twice() {
    let file = format!(
        "{BASE}    - [ ] Twins\n    - [x] Twins\n  - [ ] A slice <!-- priority=1 -->\n- [ ] A goal\n  - [ ] Its slice\n"
    );
    let mut stored = store(&[]);
    let first = reconcile(&file, &stored);
    assert_eq!(first.changes.len(), 5);
    for change in first.changes {
        let PlanChange::Add(id, fields) = change else { panic!("{change:?}") };
        stored.insert(id, StoredUnit { fields, has_begun: false });
    }
    // It was even done meanwhile.
    stored.get_mut(&UnitId::Task(1, 2, 2)).unwrap().fields.is_done = true;
    let again = reconcile(&file, &stored);
    assert!(is_quiet(&again), "{again:?}");
    assert_eq!(again.ids, first.ids);
    // What the person has changed since is an edit of the unit that there is, and what they add is new.
    let edited = file.replace("priority=1", "priority=3") + "    - [ ] Its task\n";
    let edited = edited.replace("Its slice\n", "Its slice\n  - [ ] Its slice\n");
    let changes = reconcile(&edited, &stored).changes;
    assert!(
        matches!(
            changes.as_slice(),
            [
                PlanChange::Edit(UnitId::Slice(1, 3), fields),
                PlanChange::Add(UnitId::Slice(2, 2), _),
                PlanChange::Add(UnitId::Task(2, 2, 1), _),
            ] if fields.priority == Some(3)
        ),
        "{changes:?}"
    );
    // Another place or another title is another unit.
    let moved =
        reconcile(&BASE.replace("    - [ ] Tokens <!-- task/m1/s2/t1 -->", "  - [ ] Tokens"), &store(&[]));
    assert!(matches!(moved.changes.first(), Some(PlanChange::Add(UnitId::Slice(1, 3), _))), "{moved:?}");
}

/// A reload was cut off, and the person has given the new item another title since, or taken it away: the unit that was made is not
/// worked on without any line that says so. One that is over, and one of another goal, need no line.
#[test]
fn a_part_that_no_line_shows_is_said() {
    let made = UnitId::Slice(1, 3);
    let mut stored = store(&[]);
    let fields = OutlineFields { title: "A third slice".to_owned(), ..OutlineFields::default() };
    stored.insert(made, StoredUnit { fields: fields.clone(), has_begun: false });
    stored.insert(UnitId::Milestone(2), StoredUnit { fields: fields.clone(), has_begun: false });
    stored.insert(UnitId::Slice(2, 1), StoredUnit { fields, has_begun: false });
    for file in [BASE.to_owned(), format!("{BASE}  - [ ] The third one\n")] {
        let found = reconcile(&file, &stored).conflicts;
        assert!(
            matches!(found.as_slice(), [one] if one.id == made && one.reason == ConflictReason::NotShown),
            "{found:?}"
        );
    }
    assert!(is_quiet(&reconcile(&format!("{BASE}  - [ ] A third slice\n"), &stored)), "its title names it");
    stored.get_mut(&made).unwrap().fields.is_done = true;
    assert!(is_quiet(&reconcile(BASE, &stored)));
}
