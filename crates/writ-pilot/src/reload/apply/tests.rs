use writ_autopilot::outline::OutlineFields;
use writ_store::units::UnitKey;
use writ_types::digest::Digest;
use writ_types::id::PilotId;
use writ_types::unit::Timestamp;

use super::*;

fn row(id: UnitId, is_over: bool) -> (UnitId, (UnitRow, UnitFacts)) {
    let at = Timestamp::from_millis(0);
    let row = UnitRow {
        key: UnitKey { project: "/p".to_owned(), id: id.to_string() },
        session: PilotId::from_parts(at, 1),
        parent: id.parent().map(|parent| parent.to_string()),
        kind: id.unit_type().name().to_owned(),
        title: "mend it".to_owned(),
        description: String::new(),
        metadata: "{}".to_owned(),
        workflow: "feature".to_owned(),
        workflow_hash: Digest::of_bytes(b"phases"),
        phase: "verify".to_owned(),
        phase_status: "pending".to_owned(),
        attempt: 1,
        is_over,
        open_blockers: 0,
        fence: 7,
        claim: None,
        not_before: at,
        priority: None,
        worker_host: "local".to_owned(),
        workspace: None,
        archived_at: None,
        created_at: at,
        updated_at: at,
    };
    (id, (row, UnitFacts::default()))
}

/// Everything that an edit rests on must be as it was read: units that are removed, those of a milestone that is asked about anew, and
/// those with other parts. What is over, and what an edit does not touch, is no condition.
#[test]
fn edits_rest_on_units_as_they_were_read() {
    let (first, second) = (UnitId::Milestone(1), UnitId::Milestone(2));
    let done = UnitId::Task(1, 1, 1);
    let units = [
        row(first, false),
        row(UnitId::Slice(1, 1), false),
        row(done, true),
        row(UnitId::Task(1, 1, 2), false),
        row(second, false),
        row(UnitId::Slice(2, 1), false),
        row(UnitId::Task(2, 1, 1), false),
        row(UnitId::Task(2, 1, 2), false),
        row(UnitId::Slice(2, 2), false),
    ];
    let plan = StoredPlan { rows: units.into(), workflow: "feature".to_owned() };
    let required = |changes: &[PlanChange], renewed: &[UnitId]| -> Vec<String> {
        let ops = require_free(&plan, changes, &renewed.iter().copied().collect());
        ops.into_iter()
            .map(|op| {
                let UnitOp::Require { key, fence: 7, phase } = op else { panic!("{op:?}") };
                assert_eq!(phase, "verify");
                key.id
            })
            .collect()
    };
    let gone = [PlanChange::Archive(UnitId::Task(2, 1, 2))];
    assert_eq!(required(&gone, &[]), ["slice/m2/s1", "task/m2/s1/t2"]);
    let edited = [PlanChange::Edit(UnitId::Slice(1, 1), OutlineFields::default())];
    assert_eq!(required(&edited, &[]), [""; 0], "order and priority rest on nothing");
    assert_eq!(required(&edited, &[first]), ["milestone/m1", "slice/m1/s1", "task/m1/s1/t2"]);
}

/// Another first phase is taken only by a unit that stands at its first one.
#[test]
fn a_unit_that_is_being_reassessed_is_not_sent_back_to_its_start() {
    let firsts = (PilotPhase::Verify, PilotPhase::Execute);
    assert_eq!(phase_after("verify", firsts), "execute");
    assert_eq!(phase_after("reassess", firsts), "reassess");
}
