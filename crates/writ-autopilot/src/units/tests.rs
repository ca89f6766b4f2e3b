use proptest::prelude::*;

use super::*;

fn unit(id: &str) -> PilotUnit {
    PilotUnit {
        id: id.parse().unwrap(),
        title: format!("the unit {id}"),
        description: String::new(),
        priority: None,
        workflow: None,
        blocked_by: BTreeSet::new(),
        code_depends_on: BTreeSet::new(),
        archived_at: None,
    }
}

fn ids(texts: &[&str]) -> BTreeSet<UnitId> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A milestone with two slices of two tasks.
fn plan() -> Vec<PilotUnit> {
    ["milestone/m1", "slice/m1/s1", "task/m1/s1/t1", "task/m1/s1/t2", "slice/m1/s2", "task/m1/s2/t1"]
        .map(unit)
        .to_vec()
}

fn at<'a>(units: &'a mut [PilotUnit], id: &str) -> &'a mut PilotUnit {
    let id: UnitId = id.parse().unwrap();
    units.iter_mut().find(|unit| unit.id == id).unwrap()
}

/// Rows: SF-037 (the levels; the row needs the store)
#[test]
fn a_unit_belongs_to_a_unit_of_the_plan() {
    assert_eq!(check_units(&plan()), Ok(()));
    let mut orphan = plan();
    orphan.push(unit("task/m1/s3/t1"));
    let error = check_units(&orphan).unwrap_err();
    assert_eq!(error.to_string(), "task/m1/s3/t1 belongs to slice/m1/s3, which is not there");
    assert_eq!(error.report().code, "pilot.units");
    let mut twice = plan();
    twice.push(unit("slice/m1/s2"));
    assert_eq!(check_units(&twice), Err(UnitsError::Duplicate(UnitId::Slice(1, 2))));
    // A deleted slice has no new tasks, and a task that was asked for directly needs no slice.
    let mut archived = plan();
    archive_unit(&mut archived, UnitId::Slice(1, 2), Timestamp::from_millis(5));
    archived.push(unit("task/m1/s2/t9"));
    assert!(matches!(check_units(&archived), Err(UnitsError::NoParent { .. })));
    assert_eq!(check_units(&[unit("task/m0/s0/t1")]), Ok(()));
}

#[test]
fn fields_have_limits() {
    let broken = |change: &dyn Fn(&mut PilotUnit)| {
        let mut units = plan();
        change(&mut units[2]);
        check_units(&units).unwrap_err().to_string()
    };
    for priority in [0, 5, 255] {
        let text = broken(&|unit| unit.priority = Some(priority));
        assert_eq!(text, format!("task/m1/s1/t1: priority {priority} is not one of 1 to 4"));
    }
    assert!(broken(&|unit| unit.title = "two\nlines".to_owned()).contains("one line"));
    assert!(broken(&|unit| unit.title = " ".to_owned()).contains("one line"));
    assert!(broken(&|unit| unit.title = "é".repeat(101)).contains("200 bytes"));
    assert!(broken(&|unit| unit.description = "x".repeat(MAX_DESCRIPTION_BYTES + 1)).contains("description"));
    assert!(
        broken(&|unit| unit.blocked_by = (0..65).map(|n| UnitId::Task(1, 1, n)).collect()).contains("64")
    );
}

/// Rows: SF-236 (an unknown or circular reference is refused) SF-239 (both lists are apart)
#[test]
fn dependencies_lead_to_other_units_and_never_in_a_circle() {
    let mut units = plan();
    at(&mut units, "slice/m1/s2").code_depends_on = ids(&["slice/m1/s1"]);
    at(&mut units, "task/m1/s2/t1").blocked_by = ids(&["task/m1/s1/t1"]);
    assert_eq!(check_units(&units), Ok(()));
    // In opposite directions the two lists are no circle: one holds work, the other a merge.
    at(&mut units, "slice/m1/s1").blocked_by = ids(&["slice/m1/s2"]);
    assert_eq!(check_units(&units), Ok(()));
    at(&mut units, "slice/m1/s1").code_depends_on = ids(&["slice/m1/s2"]);
    let cycle = check_units(&units).unwrap_err();
    assert_eq!(
        cycle.to_string(),
        "these units wait for one another: slice/m1/s1 → slice/m1/s2 → slice/m1/s1"
    );

    let refused = |id: &str, blocked: &[&str], code: &[&str]| {
        let mut units = plan();
        (at(&mut units, id).blocked_by, at(&mut units, id).code_depends_on) = (ids(blocked), ids(code));
        check_units(&units).unwrap_err().to_string()
    };
    assert_eq!(
        refused("slice/m1/s2", &[], &["slice/m9/s9"]),
        "slice/m1/s2 waits for slice/m9/s9, which is not there"
    );
    assert!(refused("slice/m1/s1", &["slice/m1/s1"], &[]).contains("a part of the other"));
    assert!(refused("task/m1/s1/t1", &["slice/m1/s1"], &[]).contains("a part of the other"));
    assert!(refused("milestone/m1", &["task/m1/s1/t1"], &[]).contains("a part of the other"));
    assert!(refused("task/m1/s1/t1", &[], &["slice/m1/s2"]).contains("only slices have branches"));
    assert!(refused("slice/m1/s1", &[], &["task/m1/s2/t1"]).contains("only slices have branches"));
}

#[test]
fn a_very_long_chain_is_looked_through_without_recursion() {
    let edges = |last: Vec<UnitId>| -> BTreeMap<UnitId, Vec<UnitId>> {
        let mut edges: BTreeMap<_, _> =
            (0..20_000).map(|n| (UnitId::Task(1, 1, n), vec![UnitId::Task(1, 1, n + 1)])).collect();
        edges.insert(UnitId::Task(1, 1, 20_000), last);
        edges
    };
    assert_eq!(find_cycle(&edges(Vec::new())), None);
    assert_eq!(find_cycle(&edges(vec![UnitId::Task(1, 1, 0)])).map(|cycle| cycle.len()), Some(20_002));
}

/// Rows: SF-054 (no unit goes away)
#[test]
fn deleting_marks_a_unit_with_its_parts() {
    let mut units = plan();
    at(&mut units, "task/m1/s1/t2").archived_at = Some(Timestamp::from_millis(1));
    let archived = archive_unit(&mut units, UnitId::Slice(1, 1), Timestamp::from_millis(9));
    assert_eq!(archived, [UnitId::Slice(1, 1), UnitId::Task(1, 1, 1)]);
    assert_eq!(units.len(), plan().len());
    assert_eq!(at(&mut units, "task/m1/s1/t2").archived_at, Some(Timestamp::from_millis(1)));
    assert_eq!(archive_unit(&mut units, UnitId::Slice(1, 1), Timestamp::from_millis(99)), []);
}

#[test]
fn dependants_are_found_through_others() {
    let mut units = plan();
    at(&mut units, "task/m1/s1/t2").blocked_by = ids(&["task/m1/s1/t1"]);
    at(&mut units, "task/m1/s2/t1").blocked_by = ids(&["task/m1/s1/t2"]);
    assert_eq!(
        list_dependants(&units, UnitId::Task(1, 1, 1)),
        [UnitId::Task(1, 1, 2), UnitId::Task(1, 2, 1)]
    );
    assert_eq!(list_dependants(&units, UnitId::Task(1, 2, 1)), []);
}

/// Rows: SF-053 (the sum; the schema needs the store)
#[test]
fn money_is_added_up_exactly() {
    let runs = vec![(UnitId::Task(1, 1, 1), MicroUsd::new(1)); 1_000_000];
    let sums = sum_costs(&runs);
    for id in [UnitId::Task(1, 1, 1), UnitId::Slice(1, 1), UnitId::Milestone(1)] {
        assert_eq!(sums.get(&id), Some(&MicroUsd::new(1_000_000)));
    }
    let ad_hoc = sum_costs(&[(UnitId::of_ad_hoc(1), MicroUsd::new(7))]);
    assert_eq!(ad_hoc.len(), 1, "it belongs to no milestone");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Against the slow way: taking away units that wait for none, again and again.
    #[test]
    fn a_circle_is_found_exactly_where_there_is_one(pairs in prop::collection::vec((0..8_u32, 0..8_u32), 0..16)) {
        let mut edges: BTreeMap<UnitId, Vec<UnitId>> = BTreeMap::new();
        for (from, to) in &pairs {
            edges.entry(UnitId::Milestone(*from)).or_default().push(UnitId::Milestone(*to));
        }
        let mut left = edges.clone();
        loop {
            let waits = |targets: &Vec<UnitId>| targets.iter().any(|target| left.contains_key(target));
            let free: Vec<UnitId> = left.iter().filter(|(_, targets)| !waits(targets)).map(|(id, _)| *id).collect();
            if free.is_empty() { break; }
            for id in free { left.remove(&id); }
        }
        let cycle = find_cycle(&edges);
        prop_assert_eq!(cycle.is_some(), !left.is_empty());
        if let Some(cycle) = cycle {
            prop_assert_eq!(cycle.first(), cycle.last());
            prop_assert!(cycle.windows(2).all(|pair| edges[&pair[0]].contains(&pair[1])));
        }
    }
}
