use std::sync::Barrier;

use rusqlite::Connection;

use super::*;
use crate::batch::{Batch, Op};
use crate::error::{Conflict, StoreError};
use crate::testing::{TestHome, at};

const PROJECT: &str = "/p";

fn pilot(n: u128) -> PilotId {
    PilotId::from_parts(at(0), n)
}

fn run(n: u128) -> UnitRunId {
    UnitRunId::from_parts(at(0), n)
}

fn key(id: &str) -> UnitKey {
    UnitKey { project: PROJECT.into(), id: id.into() }
}

fn planned(id: &str, blocked_by: &[&str]) -> NewUnit {
    NewUnit {
        id: id.into(),
        title: "mend it".into(),
        description: "mend the clock of the tower".into(),
        metadata: r#"{"gh_issue":42}"#.into(),
        workflow: "feature".into(),
        workflow_hash: Digest::of_bytes(b"phases"),
        phase: "research".into(),
        priority: None,
        blocked_by: blocked_by.iter().map(|id| (*id).to_owned()).collect(),
    }
}

fn units(ops: impl IntoIterator<Item = UnitOp>) -> Vec<Op> {
    ops.into_iter().map(Op::Units).collect()
}

fn add(plan: Vec<NewUnit>) -> Vec<Op> {
    units([UnitOp::Add { session: pilot(1), units: plan, at: at(1) }])
}

fn home() -> TestHome {
    let home = TestHome::new();
    let session = PilotSession {
        id: pilot(1),
        project: PROJECT.into(),
        status: "running".into(),
        created_at: at(0),
        updated_at: at(0),
    };
    home.commit(units([UnitOp::OpenSession(Box::new(session))]));
    home
}

/// A milestone with a slice of two tasks, of which the second waits for the first.
fn planned_home() -> TestHome {
    let home = home();
    home.commit(add(vec![
        planned("milestone/m1", &["slice/m1/s1"]),
        planned("slice/m1/s1", &["task/m1/s1/t1", "task/m1/s1/t2"]),
        planned("task/m1/s1/t1", &[]),
        planned("task/m1/s1/t2", &["task/m1/s1/t1"]),
    ]));
    home
}

fn claim(id: &str, fence: u64, n: u128, now: i64) -> UnitOp {
    UnitOp::Claim(Box::new(RunStart {
        key: key(id),
        fence,
        holder: "here#7".into(),
        until: at(now + 60_000),
        run: run(n),
        host: "local".into(),
        workspace: "/p/.writ/workspaces/x".into(),
        is_forced: false,
        now: at(now),
    }))
}

fn transition(id: &str, fence: u64, (from, to): (&str, &str), is_over: bool) -> UnitOp {
    UnitOp::Transition(Box::new(UnitTransition {
        key: key(id),
        fence,
        from: from.into(),
        to: to.into(),
        status: if is_over { "succeeded" } else { "running" }.into(),
        is_over,
        reason: "done".into(),
        at: at(9),
    }))
}

fn release(id: &str, fence: u64, status: &str, not_before: i64) -> UnitOp {
    UnitOp::Release { key: key(id), fence, status: status.into(), not_before: at(not_before), at: at(9) }
}

fn end(n: u128, outcome: &str) -> UnitOp {
    UnitOp::EndRun(Box::new(UnitRunEnd {
        run: run(n),
        outcome: outcome.into(),
        error_code: String::new(),
        input: Tokens::new(7),
        output: Tokens::new(3),
        cost: MicroUsd::new(11),
        at: at(10),
    }))
}

fn swept(live: &[(&str, u64)], now: i64) -> ClaimSweep {
    ClaimSweep {
        project: PROJECT.into(),
        live: live.iter().map(|(id, fence)| ((*id).to_owned(), *fence)).collect(),
        until: at(now + 60_000),
        now: at(now),
    }
}

fn sweep(live: &[(&str, u64)], now: i64) -> UnitOp {
    UnitOp::Sweep(Box::new(swept(live, now)))
}

fn read(home: &TestHome, id: &str) -> UnitRow {
    home.store.blocking().unit(key(id)).expect("reads").expect("there")
}

fn ready_ids(home: &TestHome, now: i64) -> Vec<String> {
    let ready = home.store.blocking().ready_units(PROJECT, at(now)).expect("reads");
    ready.into_iter().map(|line| line.id).collect()
}

fn is_missing(done: Result<crate::batch::Receipt, StoreError>) -> bool {
    matches!(done, Err(StoreError::Conflict(Conflict::Missing { .. })))
}

/// What was planned is read as it was written, after the store was opened again; the id says the kind and the parent.
///
/// Rows: SF-034 SF-035
/// Rows: SF-019 (in part: columns and their bounds; the planner is not here)
#[test]
fn a_plan_is_read_as_it_was_written() {
    let home = planned_home().reopened();
    let task = read(&home, "task/m1/s1/t2");
    assert_eq!((task.kind.as_str(), task.parent.as_deref()), ("task", Some("slice/m1/s1")));
    assert_eq!((task.attempt, task.phase_status.as_str(), task.fence), (1, "pending", 0));
    assert_eq!((task.title.as_str(), task.metadata.as_str()), ("mend it", r#"{"gh_issue":42}"#));
    assert_eq!(
        (task.workflow_hash, task.priority, task.open_blockers),
        (Digest::of_bytes(b"phases"), None, 1)
    );
    assert_eq!((task.session, task.created_at, task.updated_at), (pilot(1), at(1), at(1)));
    assert_eq!(task.description, "mend the clock of the tower");
    let unknown = UnitOp::Add { session: pilot(9), units: vec![planned("milestone/m9", &[])], at: at(2) };
    assert!(home.try_commit(units([unknown])).is_err(), "a session that is not there");
    let parents: Vec<_> = home.store.blocking().unit_lines(PROJECT, 10).expect("reads");
    let kinds: Vec<&str> = parents.iter().map(|line| line.id.split_once('/').expect("a kind").0).collect();
    assert_eq!(kinds, ["milestone", "slice", "task", "task"]);
    let parents: Vec<_> = parents.into_iter().map(|line| (line.id, line.parent)).collect();
    assert_eq!(parents[0], ("milestone/m1".into(), None));
    assert_eq!(parents[1], ("slice/m1/s1".into(), Some("milestone/m1".into())));
    let conn = Connection::open(home.path()).expect("opens");
    for wrong in [
        "phase_status = 'done'",
        "phase = 'writing'",
        "priority = 0",
        "priority = 5",
        "workflow_hash = NULL",
        "kind = 'epic'",
    ] {
        let sql = format!("UPDATE unit SET {wrong}");
        assert!(conn.execute(&sql, []).is_err(), "{wrong}");
    }
}

/// Ids that do not fit, parents and blockers that are not there, and circles are refused, and nothing of the plan is stored.
///
/// Rows: SF-037
#[test]
fn a_plan_that_does_not_fit_is_refused_whole() {
    let home = planned_home();
    for id in [
        "epic/m1",
        "milestone/1",
        "milestone/m1/s1",
        "slice/m1",
        "task/m1/s1/t1/t1",
        "task/m1/s1",
        "task/m01/s1/t1",
        "task/m1/s1/t-1",
        "task/m1/s1/tx",
        "task/m1/s9/t1",
        "slice/m9/s1",
        "task/../s1/t1",
        "",
        "task//s1/t1",
    ] {
        let plan = add(vec![planned("task/m1/s1/t9", &[]), planned(id, &[])]);
        assert!(home.try_commit(plan).is_err(), "{id}");
    }
    assert!(home.try_commit(add(vec![planned("task/m1/s1/t1", &[])])).is_err(), "it is there");
    assert!(home.try_commit(add(vec![planned("task/m1/s1/t9", &["task/m1/s1/t8"])])).is_err());
    let circle = add(vec![
        planned("task/m1/s1/t7", &["task/m1/s1/t9"]),
        planned("task/m1/s1/t8", &["task/m1/s1/t7"]),
        planned("task/m1/s1/t9", &["task/m1/s1/t8"]),
    ]);
    assert!(home.try_commit(circle).expect_err("refused").to_string().contains("circle"));
    assert!(home.try_commit(add(vec![planned("task/m1/s1/t9", &["task/m1/s1/t9"])])).is_err(), "itself");
    assert_eq!(home.store.blocking().unit_lines(PROJECT, 10).expect("reads").len(), 4);
    home.commit(add(vec![planned("task/m0/s0/t1", &[])]));
    assert_eq!(read(&home, "task/m0/s0/t1").parent, None, "a task of its own");
}

/// Of those that claim a unit at once exactly one gets it, and its run begins in the same transaction.
///
/// Rows: SF-129 SF-133
#[test]
fn one_of_many_gets_the_claim() {
    let home = planned_home();
    let barrier = Barrier::new(50);
    let winners: usize = std::thread::scope(|scope| {
        let tries: Vec<_> = (0..50)
            .map(|n| {
                let (store, barrier) = (&home.store, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    store.commit_blocking(Batch::synced(units([claim("task/m1/s1/t1", 0, n, 2)]))).is_ok()
                })
            })
            .collect();
        tries.into_iter().map(|tried| usize::from(tried.join().expect("ends"))).sum()
    });
    assert_eq!(winners, 1);
    let runs = home.store.blocking().unit_runs(key("task/m1/s1/t1")).expect("reads");
    assert_eq!((runs.len(), runs[0].attempt, runs[0].end.clone()), (1, 1, None));
    let unit = read(&home, "task/m1/s1/t1");
    assert_eq!((unit.fence, unit.phase_status.as_str(), unit.attempt), (1, "running", 1));
    assert_eq!(unit.claim, Some(("here#7".into(), at(60_002))));
    // The run's id is taken: neither half is written.
    home.commit(units([release("task/m1/s1/t1", 1, "failed", 0)]));
    let UnitOp::Claim(mut again) = claim("task/m1/s1/t1", 1, 0, 3) else { panic!("a claim") };
    again.run = runs[0].id;
    assert!(home.try_commit(units([UnitOp::Claim(again)])).is_err());
    let unit = read(&home, "task/m1/s1/t1");
    assert_eq!((unit.fence, unit.attempt, unit.claim), (1, 1, None));
    home.commit(units([claim("task/m1/s1/t1", 1, 99, 3)]));
    assert_eq!(read(&home, "task/m1/s1/t1").attempt, 2);
}

/// A unit waits for others until they are over, for its time, and for its claim; the most urgent comes first.
#[test]
fn the_ready_set_is_what_can_be_dispatched_now() {
    let home = planned_home();
    let urgent = NewUnit { priority: Some(1), ..planned("task/m0/s0/t2", &[]) };
    home.commit(add(vec![planned("task/m0/s0/t1", &[]), urgent]));
    assert_eq!(ready_ids(&home, 2), ["task/m0/s0/t2", "task/m0/s0/t1", "task/m1/s1/t1"]);
    assert!(is_missing(home.try_commit(units([claim("task/m1/s1/t2", 0, 1, 2)]))), "it waits for another");
    let UnitOp::Claim(mut forced) = claim("task/m1/s1/t2", 0, 50, 2) else { panic!("a claim") };
    forced.is_forced = true;
    home.commit(units([UnitOp::Claim(forced.clone())]));
    assert!(is_missing(home.try_commit(units([UnitOp::Claim(forced)]))), "another has it");
    home.commit(units([release("task/m1/s1/t2", 1, "failed", 0)]));
    assert_eq!(home.store.blocking().unit_waits_for(key("task/m1/s1/t2")), Ok(vec!["task/m1/s1/t1".into()]));
    home.commit(units([claim("task/m1/s1/t1", 0, 1, 2), claim("task/m0/s0/t2", 0, 2, 2)]));
    assert_eq!(ready_ids(&home, 2), ["task/m0/s0/t1"]);
    home.commit(units([
        transition("task/m1/s1/t1", 1, ("research", "complete"), true),
        release("task/m1/s1/t1", 1, "succeeded", 0),
        release("task/m0/s0/t2", 1, "failed", 5_000),
    ]));
    assert_eq!(ready_ids(&home, 4_999), ["task/m0/s0/t1", "task/m1/s1/t2"]);
    assert!(is_missing(home.try_commit(units([claim("task/m0/s0/t2", 1, 3, 4_999)]))), "too early");
    assert_eq!(ready_ids(&home, 5_000)[0], "task/m0/s0/t2");
    assert!(
        home.try_commit(units([UnitOp::Archive { key: key("task/m1/s1/t2"), at: at(9) }])).is_err(),
        "not over"
    );
    home.commit(units([UnitOp::Archive { key: key("task/m1/s1/t1"), at: at(9) }]));
    assert_eq!(home.store.blocking().unit_lines(PROJECT, 10).expect("reads").len(), 5);
    assert!(read(&home, "task/m1/s1/t1").archived_at.is_some(), "the row stays");
    let ids = home.store.blocking().unit_ids(PROJECT).expect("reads");
    assert!(ids.len() == 6 && ids.contains(&"task/m1/s1/t1".to_owned()), "an id is taken for ever: {ids:?}");
    home.commit(units([UnitOp::Cancel { key: key("task/m0/s0/t1"), at: at(9) }]));
    let lines = home.store.blocking().unit_lines(PROJECT, 10).expect("reads");
    let begun = |id: &str| lines.iter().find(|line| line.id == id).map(|line| (line.fence, line.has_begun));
    assert_eq!((begun("task/m0/s0/t1"), begun("task/m0/s0/t2")), (Some((1, false)), Some((1, true))));
}

/// The words of a unit change as long as it is open, what it waits for is counted anew, and a circle is refused.
#[test]
fn the_words_of_a_unit_change_under_its_fence() {
    let home = planned_home();
    let texts = |id: &str, fence: u64, blocked_by: Option<&[&str]>| {
        let blocked_by = blocked_by.map(|ids| ids.iter().map(|id| (*id).to_owned()).collect());
        UnitOp::Revise(Box::new(UnitTexts {
            key: key(id),
            fence,
            title: "wind it".into(),
            description: "wind the clock".into(),
            metadata: "{}".into(),
            priority: Some(2),
            blocked_by,
            at: at(7),
        }))
    };
    home.commit(units([texts("task/m1/s1/t2", 0, None)]));
    let row = read(&home, "task/m1/s1/t2");
    assert_eq!((row.title.as_str(), row.priority, row.open_blockers), ("wind it", Some(2), 1));
    home.commit(units([texts("task/m1/s1/t2", 0, Some(&[]))]));
    assert_eq!(read(&home, "task/m1/s1/t2").open_blockers, 0);
    home.commit(units([texts("task/m1/s1/t2", 0, Some(&["task/m1/s1/t1"]))]));
    assert_eq!(read(&home, "task/m1/s1/t2").open_blockers, 1);
    let circle = home.try_commit(units([texts("task/m1/s1/t1", 0, Some(&["task/m1/s1/t2"]))]));
    assert!(matches!(circle, Err(StoreError::Conflict(Conflict::Order(_)))), "{circle:?}");
    assert_eq!(read(&home, "task/m1/s1/t1").title, "mend it", "nothing of a refused change stays");
    assert!(is_missing(home.try_commit(units([texts("task/m1/s1/t1", 1, None)]))), "another fence");
    home.commit(units([UnitOp::Cancel { key: key("task/m1/s1/t1"), at: at(8) }]));
    assert!(is_missing(home.try_commit(units([texts("task/m1/s1/t1", 0, None)]))), "over");
}

/// What is upstream and is worked on again is waited for again.
#[test]
fn a_unit_that_is_opened_again_is_waited_for_again() {
    let home = planned_home();
    home.commit(units([
        claim("task/m1/s1/t1", 0, 1, 2),
        transition("task/m1/s1/t1", 1, ("research", "complete"), true),
    ]));
    assert_eq!(read(&home, "task/m1/s1/t2").open_blockers, 0);
    home.commit(units([transition("task/m1/s1/t1", 1, ("complete", "reassess"), false)]));
    assert_eq!(read(&home, "task/m1/s1/t2").open_blockers, 1);
    assert!(is_missing(home.try_commit(units([claim("task/m1/s1/t2", 0, 2, 3)]))));
}

/// Every write of a worker carries its fence: once the claim has ended it writes nothing.
///
/// Rows: SF-038 SF-082
#[test]
fn a_worker_without_its_claim_writes_nothing() {
    let home = planned_home();
    home.commit(units([claim("task/m1/s1/t1", 0, 1, 2)]));
    home.commit(units([transition("task/m1/s1/t1", 1, ("research", "plan"), false)]));
    assert!(
        is_missing(home.try_commit(units([transition("task/m1/s1/t1", 1, ("research", "execute"), false)]))),
        "stale"
    );
    // Its time runs out, and another has it.
    assert!(is_missing(home.try_commit(units([claim("task/m1/s1/t1", 1, 2, 60_002)]))), "at the last moment");
    home.commit(units([claim("task/m1/s1/t1", 1, 2, 60_003)]));
    let counter =
        |fence| UnitOp::SetCounter { key: key("task/m1/s1/t1"), fence, counter: "gate".into(), value: 2 };
    let late = [
        transition("task/m1/s1/t1", 1, ("plan", "execute"), false),
        release("task/m1/s1/t1", 1, "succeeded", 0),
        UnitOp::Renew { key: key("task/m1/s1/t1"), fence: 1, until: at(999_999) },
        counter(1),
        end(1, "success"),
    ];
    for op in late {
        assert!(is_missing(home.try_commit(units([op.clone()]))), "{op:?}");
    }
    home.commit(units([counter(2), transition("task/m1/s1/t1", 2, ("plan", "execute"), false)]));
    let moves = home.store.blocking().unit_transitions(key("task/m1/s1/t1")).expect("reads");
    let moves: Vec<_> = moves.iter().map(|row| (row.from.as_str(), row.to.as_str())).collect();
    assert_eq!(moves, [("research", "plan"), ("plan", "execute")], "refused ones leave no row");
    assert_eq!(home.store.blocking().unit_counters(key("task/m1/s1/t1")), Ok(vec![("gate".into(), 2)]));
    let runs = home.store.blocking().unit_runs(key("task/m1/s1/t1")).expect("reads");
    assert_eq!(runs[0].end.as_ref().map(|end| end.outcome.as_str()), Some("interrupted"));
}

/// Claims that have run out end at the sweep, with their runs; one that has a moment left does not. A worker that ends lets go of
/// its own, in the last phase like in every other; one that works on renews it.
///
/// Rows: SF-131 SF-132
#[test]
fn claims_that_have_run_out_are_swept() {
    let home = planned_home();
    home.commit(add(vec![planned("task/m0/s0/t1", &[])]));
    home.commit(units([claim("task/m1/s1/t1", 0, 1, 0), claim("task/m0/s0/t1", 0, 2, 1)]));
    home.commit(units([sweep(&[], 60_001)]));
    let (ended, held) = (read(&home, "task/m1/s1/t1"), read(&home, "task/m0/s0/t1"));
    assert_eq!((ended.claim, ended.phase_status.as_str()), (None, "interrupted"));
    assert_eq!((held.claim.is_some(), held.phase_status.as_str()), (true, "running"));
    let outcome = |id: &str| home.store.blocking().unit_runs(key(id)).expect("reads")[0].end.clone();
    assert_eq!(outcome("task/m1/s1/t1").map(|end| end.outcome), Some("interrupted".into()));
    assert_eq!(outcome("task/m0/s0/t1"), None);
    let renew = UnitOp::Renew { key: key("task/m0/s0/t1"), fence: 1, until: at(200_000) };
    home.commit(units([renew, sweep(&[], 100_000)]));
    assert!(read(&home, "task/m0/s0/t1").claim.is_some(), "its worker lives");
    home.commit(units([end(2, "failure"), release("task/m0/s0/t1", 1, "failed", 0)]));
    assert_eq!(read(&home, "task/m0/s0/t1").claim, None, "the worker has ended");
    home.commit(units([claim("task/m1/s1/t1", 1, 3, 100_001)]));
    home.commit(units([
        transition("task/m1/s1/t1", 2, ("research", "complete"), true),
        end(3, "success"),
        release("task/m1/s1/t1", 2, "succeeded", 0),
    ]));
    assert_eq!(read(&home, "task/m1/s1/t1").claim, None, "nothing follows");
}

/// A clock that jumps ends no claim of a worker that lives, and it goes on with its fence; one that another has by now is not its own any
/// more. The claims of another project are not looked at.
#[test]
fn the_claim_of_a_living_worker_outlasts_a_jump_of_the_clock() {
    let home = planned_home();
    home.commit(add(vec![planned("task/m0/s0/t1", &[]), planned("task/m0/s0/t2", &[])]));
    home.commit(units([
        claim("task/m1/s1/t1", 0, 1, 0),
        claim("task/m0/s0/t1", 0, 2, 0),
        claim("task/m0/s0/t2", 0, 3, 0),
    ]));
    let hour = 3_600_000;
    home.commit(units([UnitOp::Sweep(Box::new(ClaimSweep { project: "/q".into(), ..swept(&[], hour) }))]));
    assert!(read(&home, "task/m0/s0/t2").claim.is_some(), "it is a unit of another project");
    // The second one says a fence that is not that of the claim.
    home.commit(units([sweep(&[("task/m1/s1/t1", 1), ("task/m0/s0/t1", 2)], hour)]));
    let live = read(&home, "task/m1/s1/t1");
    assert_eq!(live.claim, Some(("here#7".into(), at(hour + 60_000))));
    assert_eq!((live.fence, live.phase_status.as_str()), (1, "running"));
    for id in ["task/m0/s0/t1", "task/m0/s0/t2"] {
        assert_eq!(read(&home, id).claim, None, "{id}");
    }
    home.commit(units([transition("task/m1/s1/t1", 1, ("research", "plan"), false), end(1, "success")]));
    // It is not made shorter, and one that was cancelled does not come back.
    home.commit(units([sweep(&[("task/m1/s1/t1", 1)], 5)]));
    assert_eq!(read(&home, "task/m1/s1/t1").claim, Some(("here#7".into(), at(hour + 60_000))));
    home.commit(units([UnitOp::Cancel { key: key("task/m1/s1/t1"), at: at(hour) }]));
    home.commit(units([sweep(&[("task/m1/s1/t1", 1)], hour)]));
    assert_eq!(read(&home, "task/m1/s1/t1").claim, None);
}

/// What rests on a unit that no worker has is refused as a whole once one has it, or it has moved on.
#[test]
fn a_change_that_rests_on_a_free_unit_is_refused_when_it_is_not() {
    let require =
        |fence: u64, phase: &str| UnitOp::Require { key: key("task/m1/s1/t1"), fence, phase: phase.into() };
    let home = planned_home();
    let archived = |ops: Vec<UnitOp>| {
        let end = UnitOp::Cancel { key: key("task/m1/s1/t1"), at: at(5) };
        let gone = UnitOp::Archive { key: key("task/m1/s1/t1"), at: at(5) };
        home.try_commit(units(ops.into_iter().chain([end, gone])))
    };
    for (fence, phase) in [(0, "plan"), (1, "research")] {
        assert!(is_missing(archived(vec![require(fence, phase)])), "{fence} {phase}");
    }
    home.commit(units([claim("task/m1/s1/t1", 0, 1, 2)]));
    for fence in [0, 1] {
        assert!(is_missing(archived(vec![require(fence, "research")])), "a worker has it");
    }
    assert_eq!(read(&home, "task/m1/s1/t1").archived_at, None);
    home.commit(units([end(1, "success"), release("task/m1/s1/t1", 1, "pending", 0)]));
    assert!(is_missing(archived(vec![require(0, "research")])), "one has had it since it was read");
    archived(vec![require(1, "research")]).expect("it is free");
    assert!(is_missing(home.try_commit(units([require(2, "research")]))), "it is over");
}

/// A unit that an operator cancels has its phase still and no claim, and others do not wait for it; it is not dispatched again.
///
/// Rows: SF-080
/// Rows: SF-532 (in part: the columns, and that a unit that is over is not cancelled)
#[test]
fn a_unit_is_cancelled_in_any_phase() {
    let home = planned_home();
    home.commit(units([
        claim("task/m1/s1/t1", 0, 1, 2),
        transition("task/m1/s1/t1", 1, ("research", "tdd"), false),
    ]));
    let reason = || UnitOp::NoteCancel { key: key("task/m1/s1/t1"), reason: "not \"wanted\"".to_owned() };
    assert!(is_missing(home.try_commit(units([reason()]))), "it is not cancelled");
    home.commit(units([UnitOp::Cancel { key: key("task/m1/s1/t1"), at: at(5) }, reason()]));
    let unit = read(&home, "task/m1/s1/t1");
    let metadata: serde_json::Value = serde_json::from_str(&unit.metadata).expect("JSON");
    assert_eq!(metadata["cancelled"], "not \"wanted\"");
    let runs = home.store.blocking().unit_runs(key("task/m1/s1/t1")).expect("reads");
    let end = runs.last().and_then(|run| run.end.clone()).expect("ended");
    assert_eq!((end.outcome.as_str(), end.error_code.as_str()), ("canceled", "canceled_by_operator"));
    let again = home.try_commit(units([UnitOp::Cancel { key: key("task/m1/s1/t1"), at: at(6) }]));
    assert!(is_missing(again), "it is over");
    home.commit(units([UnitOp::NoteRevert { key: key("task/m1/s1/t1") }]));
    let metadata: serde_json::Value =
        serde_json::from_str(&read(&home, "task/m1/s1/t1").metadata).expect("JSON");
    assert_eq!(metadata["reverted"], true);
    let open = home.try_commit(units([UnitOp::NoteRevert { key: key("slice/m1/s1") }]));
    assert!(is_missing(open), "it is not over");
    assert_eq!((unit.phase.as_str(), unit.phase_status.as_str(), unit.claim), ("tdd", "canceled", None));
    assert_eq!(home.store.blocking().unit_transitions(key("task/m1/s1/t1")).expect("reads").len(), 1);
    assert!(is_missing(home.try_commit(units([transition("task/m1/s1/t1", 1, ("tdd", "verify"), false)]))));
    assert!(is_missing(home.try_commit(units([claim("task/m1/s1/t1", 2, 2, 6)]))), "never retried");
    assert_eq!(ready_ids(&home, 9), ["task/m1/s1/t2"]);
}

/// The eight outcomes are stored, with what a run has used, once; other words and rows that say neither whose they are are refused.
///
/// Rows: SF-048 SF-049 SF-050 SF-051
#[test]
fn runs_are_ended_once_with_what_they_have_used() {
    let home = planned_home();
    let outcomes = [
        "success",
        "failure",
        "abandoned",
        "canceled",
        "interrupted",
        "unit_timeout",
        "turn_timeout",
        "stalled",
    ];
    for (n, outcome) in outcomes.iter().enumerate() {
        let (fence, n) = (u64::try_from(n).expect("small"), u128::try_from(n).expect("small"));
        home.commit(units([claim("task/m1/s1/t1", fence, n, 2)]));
        assert!(home.try_commit(units([end(n, "done")])).is_err(), "no word of the list");
        let runs = home.store.blocking().unit_runs(key("task/m1/s1/t1")).expect("reads");
        assert_eq!(runs.last().map(|run| run.end.clone()), Some(None));
        home.commit(units([end(n, outcome), release("task/m1/s1/t1", fence + 1, "failed", 0)]));
        assert!(is_missing(home.try_commit(units([end(n, "success")]))), "once");
    }
    let runs = home.store.blocking().unit_runs(key("task/m1/s1/t1")).expect("reads");
    let ends: Vec<_> =
        runs.iter().filter_map(|run| run.end.as_ref()).map(|end| end.outcome.as_str()).collect();
    assert_eq!(ends, outcomes);
    let used = runs[7].end.as_ref().map(|end| (end.input, end.output, end.cost));
    assert_eq!(used, Some((Tokens::new(7), Tokens::new(3), MicroUsd::new(11))));
    let costs = |since: i64| {
        let costs = home.store.blocking().unit_costs("/p", Timestamp::from_millis(since)).expect("reads");
        costs.into_iter().map(|one| (one.unit, one.cost.get(), one.since.get())).collect::<Vec<_>>()
    };
    assert_eq!(costs(0), [("task/m1/s1/t1".to_owned(), 8 * 11, 8 * 11)]);
    assert_eq!(costs(i64::MAX), [("task/m1/s1/t1".to_owned(), 8 * 11, 0)], "none has ended so late");
    let conn = Connection::open(home.path()).expect("opens");
    let row = |values: &str| {
        let sql = format!(
            "INSERT INTO unit_run (id, project, kind, unit_snap, agent_snap, attempt, phase, worker_host, workspace, started_at)
             VALUES (hex(randomblob(9)), '/p', {values}, 'plan', 'local', '/w', 0)"
        );
        conn.execute(&sql, []).is_ok()
    };
    assert!(row("'unit_attempt', 'u', NULL, 1") && row("'agent_run', NULL, 'a', NULL"));
    for wrong in [
        "'unit_attempt', 'u', 'a', 1",
        "'unit_attempt', 'u', NULL, NULL",
        "'agent_run', 'u', 'a', NULL",
        "'agent_run', NULL, 'a', 1",
        "'job', 'u', NULL, 1",
    ] {
        assert!(!row(wrong), "{wrong}");
    }
    conn.pragma_update(None, "foreign_keys", false).expect("set");
    conn.execute("DELETE FROM unit WHERE id = 'task/m1/s1/t1'", []).expect("by hand");
    let left = "SELECT count(*) FROM unit_run WHERE unit IS NULL AND unit_snap = 'task/m1/s1/t1'";
    assert_eq!(conn.query_row(left, [], |row| row.get::<_, i64>(0)), Ok(8), "the runs stay, with their name");
}

/// Gates have one row each; what they write is cut to 8 KB, and no letter in two.
///
/// Rows: SF-040 SF-254
#[test]
fn results_of_gates_are_stored_and_cut() {
    let home = planned_home();
    let result = GateRow {
        key: key("slice/m1/s1"),
        gate: "tests".into(),
        passed: false,
        attempt: 2,
        max_retries: 3,
        output: "ä".repeat(10_000),
        duration_ms: 17,
        at: at(3),
    };
    let passed = GateRow { passed: true, output: "fine".into(), ..result.clone() };
    home.commit(units([
        UnitOp::RecordGate(Box::new(result.clone())),
        UnitOp::RecordGate(Box::new(passed.clone())),
    ]));
    let gates = home.store.blocking().unit_gates(key("slice/m1/s1")).expect("reads");
    assert_eq!(gates[0], GateRow { output: "ä".repeat(4_096), ..result });
    assert_eq!(gates[1], passed);
}

/// What holds a session up is open until it is resolved, with the name of who did it.
///
/// Rows: SF-033
/// Rows: SF-041 (in part: the four events are stored; who raises them is not here)
#[test]
fn what_holds_a_session_up_is_resolved_by_name() {
    let home = planned_home();
    for (n, event) in ["GateBlocked", "MergeConflict", "Paused", "UATPending"].into_iter().enumerate() {
        let id = BlockerId::from_parts(at(0), u128::try_from(n).expect("small"));
        let (event, unit) = (event.to_owned(), "slice/m1/s1".to_owned());
        let blocker =
            PilotBlocker { id, session: pilot(1), event, unit, detail: "why".into(), created_at: at(2) };
        home.commit(units([UnitOp::Raise(Box::new(blocker))]));
    }
    let resolve = |event: &str| UnitOp::Resolve {
        session: pilot(1),
        event: event.into(),
        unit: "slice/m1/s1".into(),
        by: "user".into(),
        at: at(3),
    };
    home.commit(units([resolve("Paused")]));
    assert!(is_missing(home.try_commit(units([resolve("Paused")]))), "it is resolved");
    let open = home.store.blocking().open_blockers(pilot(1)).expect("reads");
    let open: Vec<_> = open.iter().map(|blocker| blocker.event.as_str()).collect();
    assert_eq!(open, ["GateBlocked", "MergeConflict", "UATPending"]);
    let conn = Connection::open(home.path()).expect("opens");
    assert!(conn.execute("UPDATE pilot_blocker SET resolved_at = 1, resolved_by = NULL", []).is_err());
    for status in ["idle", "running", "paused", "interrupted", "complete", "failed"] {
        home.commit(units([UnitOp::MoveSession { session: pilot(1), status: status.into(), at: at(4) }]));
        let session = home.store.blocking().pilot_session(PROJECT).expect("reads").expect("there");
        assert_eq!((session.status.as_str(), session.updated_at), (status, at(4)));
    }
    let lost = UnitOp::MoveSession { session: pilot(1), status: "lost".into(), at: at(4) };
    assert!(home.try_commit(units([lost])).is_err());
}

/// The text of a workflow is pinned by its SHA-256, once, and a unit that was dispatched stays with its own.
///
/// Rows: SF-057
/// Rows: SF-097 SF-098 (in part: the store's part)
#[test]
fn a_workflow_is_pinned_until_the_unit_was_dispatched() {
    let home = planned_home();
    let pin = |content: &str| UnitOp::Pin { name: "bugfix".into(), content: content.into(), at: at(2) };
    let choose = |text: &str| UnitOp::Choose {
        key: key("task/m1/s1/t1"),
        workflow: "bugfix".into(),
        hash: Digest::of_bytes(text.as_bytes()),
        phase: "execute".into(),
    };
    home.commit(units([pin("short"), pin("short")]));
    assert!(is_missing(home.try_commit(units([choose("another")]))), "it is not pinned");
    home.commit(units([choose("short"), claim("task/m1/s1/t1", 0, 1, 2), pin("longer")]));
    assert!(is_missing(home.try_commit(units([choose("longer")]))), "it was dispatched");
    let unit = read(&home, "task/m1/s1/t1");
    assert_eq!((unit.workflow.as_str(), unit.phase.as_str()), ("bugfix", "execute"));
    assert_eq!(home.store.blocking().workflow_pin(unit.workflow_hash), Ok(Some("short".into())));
    let conn = Connection::open(home.path()).expect("opens");
    assert_eq!(conn.query_row("SELECT count(*) FROM workflow_pin", [], |row| row.get::<_, i64>(0)), Ok(2));
}

/// Money is whole micro-dollars, and no statement of the program deletes a unit.
///
/// Rows: SF-053
/// Rows: SF-054 (in part: units; there are no agents yet)
#[test]
fn money_is_whole_and_units_are_never_deleted() {
    let home = planned_home();
    let conn = Connection::open(home.path()).expect("opens");
    let mut tables = conn.prepare("SELECT sql FROM sqlite_master WHERE sql LIKE '%cost%'").expect("reads");
    let tables: Vec<String> =
        tables.query_map([], |row| row.get(0)).expect("reads").map(|sql| sql.expect("text")).collect();
    assert!(!tables.is_empty());
    for sql in tables {
        assert!(sql.lines().filter(|line| line.contains("cost")).all(|line| !line.contains("REAL")), "{sql}");
    }
    for source in [include_str!("changes.rs"), include_str!("claims.rs"), include_str!("stored.rs")] {
        // What a unit waits for can change; the unit itself stays.
        assert_eq!(
            source.matches("DELETE").count(),
            source.matches("DELETE FROM unit_blocker WHERE").count()
        );
    }
}

/// The scheduler's candidates of a hundred thousand units are found by the index, without a sort.
///
/// Rows: SF-128 (in part: what waits is not read)
#[test]
fn the_ready_set_is_read_by_its_index() {
    let home = planned_home();
    let conn = Connection::open(home.path()).expect("opens");
    let plan = "EXPLAIN QUERY PLAN SELECT id FROM unit WHERE project = '/p' AND is_over = 0 AND open_blockers = 0
        AND claim_holder IS NULL AND archived_at IS NULL AND not_before <= 5 ORDER BY coalesce(priority, 5), created_at, id LIMIT 1000";
    let mut steps = conn.prepare(plan).expect("plans");
    let steps: Vec<String> = steps
        .query_map([], |row| row.get("detail"))
        .expect("reads")
        .map(|step| step.expect("text"))
        .collect();
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(steps[0].contains("USING INDEX unit_ready"), "{steps:?}");
}

/// A claim writes who has the unit, until when, and where; a priority is one of four, and a unit that is archived stays.
///
/// Rows: SF-036
#[test]
fn a_dispatch_writes_who_has_a_unit_until_when_and_where() {
    let home = planned_home();
    home.commit(add(vec![NewUnit { priority: Some(4), ..planned("task/m0/s0/t1", &[]) }]));
    let before = read(&home, "task/m0/s0/t1");
    assert_eq!((before.claim, before.workspace, before.worker_host.as_str()), (None, None, "local"));
    let UnitOp::Claim(mut far) = claim("task/m0/s0/t1", 0, 1, 2) else { panic!("a claim") };
    (far.holder, far.host) = ("ssh:build#7".into(), "build".into());
    home.commit(units([UnitOp::Claim(far)]));
    let home = home.reopened();
    let held = read(&home, "task/m0/s0/t1");
    assert_eq!(held.claim, Some(("ssh:build#7".into(), at(60_002))));
    assert_eq!((held.priority, held.worker_host.as_str()), (Some(4), "build"));
    assert_eq!((held.workspace.as_deref(), held.archived_at), (Some("/p/.writ/workspaces/x"), None));
    for priority in [0, 5] {
        let wrong = NewUnit { priority: Some(priority), ..planned("task/m0/s0/t2", &[]) };
        assert!(home.try_commit(add(vec![wrong])).is_err(), "{priority}");
    }
    home.commit(units([
        transition("task/m0/s0/t1", 1, ("research", "complete"), true),
        release("task/m0/s0/t1", 1, "succeeded", 0),
        UnitOp::Archive { key: key("task/m0/s0/t1"), at: at(9) },
    ]));
    let archived = read(&home, "task/m0/s0/t1");
    assert_eq!((archived.archived_at, archived.worker_host.as_str()), (Some(at(9)), "build"));
}

/// A unit waits for another once, for none that is not there, and for none that was removed by hand.
///
/// Rows: SF-039
#[test]
fn what_a_unit_waits_for_is_one_row_for_each_and_goes_with_either_of_both() {
    let home = planned_home();
    let conn = Connection::open(home.path()).expect("opens");
    conn.pragma_update(None, "foreign_keys", true).expect("set");
    let waits = |unit: &str, on: &str| {
        conn.execute("INSERT INTO unit_blocker (project, unit, blocked_by) VALUES ('/p', ?1, ?2)", [unit, on])
    };
    assert!(waits("task/m1/s1/t2", "task/m1/s1/t1").is_err(), "it is there");
    assert!(waits("task/m1/s1/t2", "task/m1/s1/t9").is_err(), "no unit");
    assert!(waits("task/m1/s1/t9", "task/m1/s1/t1").is_err(), "no unit");
    let count = || conn.query_row("SELECT count(*) FROM unit_blocker", [], |row| row.get::<_, i64>(0));
    assert_eq!(count(), Ok(4));
    // Two edges lead to it, one from it.
    conn.execute("DELETE FROM unit WHERE id = 'task/m1/s1/t2'", []).expect("by hand");
    assert_eq!(count(), Ok(2));
}

/// A unit whose upstream is in any phase but the end waits, and is as it was after many ticks; at the end of the upstream it is ready.
///
/// Rows: SF-125 SF-128
#[test]
fn a_unit_that_waits_is_as_it_was_however_often_it_is_looked_at() {
    let home = planned_home();
    home.commit(units([claim("task/m1/s1/t1", 0, 1, 2)]));
    let waiting = "task/m1/s1/t2";
    let before = read(&home, waiting);
    let phases =
        ["research", "plan", "execute", "tdd", "verify", "review", "merge", "reassess", "uat", "verify"];
    for (n, pair) in phases.windows(2).enumerate() {
        home.commit(units([transition("task/m1/s1/t1", 1, (pair[0], pair[1]), false)]));
        for tick in 0..12 {
            let now = 3 + i64::try_from(n * 12 + tick).expect("small");
            home.commit(units([sweep(&[], now)]));
            assert_eq!(ready_ids(&home, now), Vec::<String>::new(), "its upstream is in {}", pair[1]);
            assert!(is_missing(home.try_commit(units([claim(waiting, 0, 2, now)]))));
        }
    }
    assert_eq!(read(&home, waiting), before, "no attempt, no time of a next try");
    assert_eq!(home.store.blocking().unit_runs(key(waiting)), Ok(Vec::new()));
    assert_eq!(home.store.blocking().unit_transitions(key(waiting)), Ok(Vec::new()));
    // A try that failed is no end.
    home.commit(units([end(1, "failure"), release("task/m1/s1/t1", 1, "failed", 500)]));
    assert_eq!(ready_ids(&home, 499), Vec::<String>::new());
    home.commit(units([
        claim("task/m1/s1/t1", 1, 3, 500),
        transition("task/m1/s1/t1", 2, ("verify", "complete"), true),
        release("task/m1/s1/t1", 2, "succeeded", 0),
    ]));
    assert_eq!(ready_ids(&home, 501), [waiting]);
}

/// An engine that begins interrupts what another has left running, and touches nothing else: neither what is over nor any other
/// column. What was cancelled meanwhile stays cancelled.
///
/// Rows: SF-108 SF-112
#[test]
fn a_start_interrupts_what_ran_and_touches_nothing_else() {
    let home = planned_home();
    let ad_hoc = ["task/m0/s0/t1", "task/m0/s0/t2", "task/m0/s0/t3"];
    home.commit(add(ad_hoc.iter().map(|id| planned(id, &[])).collect()));
    home.commit(units([
        claim("task/m1/s1/t1", 0, 1, 2),
        transition("task/m1/s1/t1", 1, ("research", "tdd"), false),
        claim("task/m0/s0/t1", 0, 2, 2),
        claim("task/m0/s0/t2", 0, 3, 2),
        transition("task/m0/s0/t2", 1, ("research", "complete"), true),
        end(3, "success"),
        release("task/m0/s0/t2", 1, "succeeded", 0),
        claim("task/m0/s0/t3", 0, 4, 2),
        UnitOp::Cancel { key: key("task/m0/s0/t3"), at: at(5) },
    ]));
    let all =
        ["milestone/m1", "slice/m1/s1", "task/m1/s1/t1", "task/m1/s1/t2", ad_hoc[0], ad_hoc[1], ad_hoc[2]];
    let home = home.reopened();
    let before = all.map(|id| read(&home, id));
    home.commit(units([UnitOp::Abandon { project: PROJECT.into(), at: at(20) }]));
    for (id, was) in all.iter().zip(before) {
        let is = read(&home, id);
        if !["task/m1/s1/t1", "task/m0/s0/t1"].contains(id) {
            assert_eq!(is, was, "{id}");
            continue;
        }
        assert_eq!((was.phase_status.as_str(), was.claim.is_some()), ("running", true), "{id}");
        let expected = UnitRow { claim: None, phase_status: "interrupted".into(), updated_at: at(20), ..was };
        assert_eq!(is, expected, "{id}");
    }
    assert_eq!(read(&home, ad_hoc[2]).phase_status, "canceled");
    let mut ready = ready_ids(&home, 21);
    ready.sort();
    assert_eq!(
        ready,
        ["task/m0/s0/t1", "task/m1/s1/t1"],
        "every place is free, and neither of those that are over is"
    );
    assert!(is_missing(home.try_commit(units([claim(ad_hoc[2], 2, 9, 21)]))), "cancelled is cancelled");
}

/// Two engines on one database, without a lock between them: no unit is worked on twice, and a claim that holds is not taken over.
///
/// Rows: SF-130
#[test]
fn two_engines_without_a_lock_never_work_on_one_unit_together() {
    let home = home();
    let ids: Vec<String> = (1..=20).map(|n| format!("task/m0/s0/t{n}")).collect();
    home.commit(add(ids.iter().map(|id| planned(id, &[])).collect()));
    let other = crate::testing::open_store(home.path()).expect("opens beside the first");
    let barrier = Barrier::new(2);
    let race = |store: &crate::store::Store, engine: u128| {
        barrier.wait();
        let mut taken = 0_usize;
        for (n, id) in ids.iter().enumerate() {
            let n = engine * 1_000 + u128::try_from(n).expect("small");
            taken += usize::from(store.commit_blocking(Batch::synced(units([claim(id, 0, n, 2)]))).is_ok());
        }
        taken
    };
    let (one, two) = std::thread::scope(|scope| {
        let first = scope.spawn(|| race(&home.store, 1));
        (race(&other, 2), first.join().expect("ends"))
    });
    assert_eq!(one + two, ids.len());
    for id in &ids {
        let runs = other.blocking().unit_runs(key(id)).expect("reads");
        assert_eq!(runs.iter().filter(|run| run.end.is_none()).count(), 1, "{id}");
        let late = claim(id, 1, 5_000, 60_002);
        assert!(is_missing(other.commit_blocking(Batch::synced(units([late])))), "{id} is held still");
    }
}

/// Every choice of a model leaves a row, also one that raises nothing, and is there after the store was opened again; ratings are read
/// by their class, and words that are no rating are refused.
///
/// Rows: SF-046 (in part: the row of each measured run, with one of three ratings in place of a number)
#[test]
fn choices_and_ratings_are_stored() {
    let home = planned_home();
    let choice = |n, score_milli, is_raised| ChoiceRow {
        key: key("task/m1/s1/t1"),
        run: run(n),
        phase: "execute".to_owned(),
        fingerprint: "execute/many/across".to_owned(),
        score_milli,
        is_raised,
        tier: if is_raised { "reasoning" } else { "standard" }.to_owned(),
        model: "test/plain".to_owned(),
        at: at(3),
    };
    let all = [choice(1, 1_000, true), choice(2, 125, false)];
    home.commit(units(all.clone().map(|row| UnitOp::NoteChoice(Box::new(row)))));
    let result = |rating: &str, fingerprint: &str| ResultRow {
        key: key("task/m1/s1/t1"),
        run: run(1),
        model: "test/plain".to_owned(),
        fingerprint: fingerprint.to_owned(),
        rating: rating.to_owned(),
        is_human: rating == "ok",
        took_ms: 1_234,
        cost: MicroUsd::new(56),
        at: at(4),
    };
    let (first, other) = (result("ok", "a"), result("under", "b"));
    home.commit(units(
        [first.clone(), other, result("over", "a")].map(|row| UnitOp::AddResult(Box::new(row))),
    ));
    assert!(home.try_commit(units([UnitOp::AddResult(Box::new(result("great", "a")))])).is_err());
    let store = home.store.blocking();
    assert_eq!(store.unit_choices(key("task/m1/s1/t1")).expect("reads"), all);
    let project = key("x").project;
    assert_eq!(store.model_results(&project, "a").expect("reads"), [first, result("over", "a")]);
    assert_eq!(store.model_results("another", "a").expect("reads"), []);
}

/// The run that a rating is about is the newest of its session that has succeeded or failed: none that was interrupted, none of another
/// session, none that a model was not chosen for, and with a unit none of another unit.
///
/// Rows: SF-546
#[test]
fn a_rating_is_about_the_newest_run_that_was_decided() {
    let home = planned_home();
    home.commit(add(vec![planned("task/m0/s0/t1", &[])]));
    let session = read(&home, "task/m1/s1/t1").session;
    let mut clock = 2;
    let mut runs = |id: &str, fence: u64, n: u128, outcome: &str| {
        let end = UnitRunEnd {
            run: run(n),
            outcome: outcome.to_owned(),
            error_code: String::new(),
            input: Tokens::ZERO,
            output: Tokens::ZERO,
            cost: MicroUsd::new(7),
            at: at(clock + 1),
        };
        let choice = ChoiceRow {
            key: key(id),
            run: run(n),
            phase: "research".to_owned(),
            fingerprint: format!("class {n}"),
            score_milli: 1,
            is_raised: false,
            tier: "standard".to_owned(),
            model: format!("test/{n}"),
            at: at(clock),
        };
        let (status, again) = ("pending".to_owned(), at(clock + 1));
        home.commit(units([
            claim(id, fence, n, clock),
            UnitOp::NoteChoice(Box::new(choice)),
            UnitOp::EndRun(Box::new(end)),
            UnitOp::Release { key: key(id), fence: fence + 1, status, not_before: again, at: again },
        ]));
        clock += 2;
    };
    runs("task/m1/s1/t1", 0, 1, "success");
    runs("task/m0/s0/t1", 0, 2, "failure");
    runs("task/m1/s1/t1", 1, 3, "interrupted");
    runs("task/m1/s1/t1", 2, 4, "turn_timeout");
    let found = |session, unit: &str| {
        let found = home.store.blocking().newest_choice(PROJECT, session, unit).expect("reads");
        found.map(|(run, choice)| (run.end.expect("ended").outcome, choice.model))
    };
    assert_eq!(found(session, ""), Some(("failure".to_owned(), "test/2".to_owned())));
    assert_eq!(found(session, "task/m1/s1/t1"), Some(("success".to_owned(), "test/1".to_owned())));
    assert_eq!(found(session, "task/m1/s1/t2"), None);
    assert_eq!(found(pilot(77), ""), None, "another session");
}

/// A circuit is one row of its model, which a second failure changes; those of another project stay where all are removed.
///
/// Rows: SF-047 (in part: the row, by its project and its model)
#[test]
fn a_circuit_is_one_row_of_its_model() {
    let home = home();
    let day = 24 * 3_600_000;
    let circuit = |project: &str, model: &str, tripped: Option<i64>, fail_count| CircuitRow {
        project: project.into(),
        model: model.into(),
        tier: "standard".into(),
        tripped: tripped.map(|from| (at(from), at(from + day))),
        failed_at: at(tripped.unwrap_or(1)),
        fail_count,
        reason: "the request is not accepted".into(),
    };
    let set = |row: &CircuitRow| UnitOp::SetCircuit(Box::new(row.clone()));
    let (first, opened) = (circuit(PROJECT, "a/one", None, 2), circuit(PROJECT, "a/one", Some(5), 3));
    let (again, two) = (circuit(PROJECT, "a/one", Some(9), 4), circuit(PROJECT, "a/two", Some(7), 3));
    let other = circuit("/other", "a/one", Some(7), 3);
    home.commit(units([set(&first), set(&two), set(&other)]));
    let store = home.store.blocking();
    let read = |project: &str| store.circuits(project).expect("reads");
    assert_eq!(read(PROJECT), [first, two.clone()]);
    home.commit(units([set(&opened)]));
    let (from, until) = read(PROJECT)[0].tripped.expect("is open");
    assert_eq!(until.time_since(from).as_secs(), 24 * 3_600);
    home.commit(units([set(&again)]));
    assert_eq!(read(PROJECT), [again, two.clone()]);
    let clear = |model: Option<&str>| UnitOp::ClearCircuits {
        project: PROJECT.into(),
        model: model.map(str::to_owned),
    };
    home.commit(units([clear(Some("a/one"))]));
    assert_eq!(read(PROJECT), [two]);
    home.commit(units([clear(None)]));
    assert_eq!((read(PROJECT), read("/other")), (Vec::new(), vec![other]));
}

/// Of the runs of a unit's hooks the newest stay, in their order.
#[test]
fn runs_of_hooks_are_bounded() {
    let home = planned_home();
    let row = |id: &str, n: usize, outcome: &str| HookRunRow {
        key: key(id),
        attempt: u32::try_from(n).expect("small"),
        hook: "before_run".into(),
        script: "tools/before.sh".into(),
        outcome: outcome.into(),
        reason: "x".repeat(MAX_REASON_CHARS + 9),
        output: String::new(),
        began_at: at(1),
        ended_at: at(2),
    };
    let add = |row: HookRunRow| UnitOp::AddHookRun(Box::new(row));
    home.commit(units((0..MAX_HOOK_RUNS + 3).map(|n| add(row("task/m1/s1/t1", n, "passed")))));
    home.commit(units([add(row("task/m1/s1/t2", 1, "timed_out"))]));
    assert!(home.try_commit(units([add(row("task/m1/s1/t2", 2, "odd"))])).is_err());
    let store = home.store.blocking();
    let rows = store.unit_hook_runs(key("task/m1/s1/t1")).expect("reads");
    assert_eq!((rows.len(), rows[0].attempt), (MAX_HOOK_RUNS, 3));
    assert_eq!(rows[0].reason.chars().count(), MAX_REASON_CHARS);
    assert_eq!(store.unit_hook_runs(key("task/m1/s1/t2")).expect("reads").len(), 1);
}

fn span(run: &str, span: &str, started_at: i64, offset: u64) -> SpanRow {
    SpanRow {
        run: run.to_owned(),
        span: span.to_owned(),
        parent: (span != run).then(|| run.to_owned()),
        trace: "unit one".to_owned(),
        operation: if span == run { "run" } else { "tool_call" }.to_owned(),
        started_at: at(started_at),
        duration_ms: 5,
        project: PROJECT.to_owned(),
        file: ".writ/trace/trace-2026-01-01.jsonl".to_owned(),
        offset,
    }
}

/// The index of a trace has the columns, the key and the indexes of its design. A span that is there twice in a run is refused, with all
/// that came with it; the same name in another run is another span. Spans are found by run, trace and project, in the order of their
/// begins, and have the new place once their file was moved.
///
/// Rows: SF-457
#[test]
fn the_index_of_a_trace_has_each_span_of_a_run_once() {
    let home = planned_home();
    let conn = Connection::open(home.path()).expect("opens");
    let names = |sql: &str| -> Vec<String> {
        let mut found = conn.prepare(sql).expect("reads");
        found.query_map([], |row| row.get(0)).expect("reads").map(|name| name.expect("text")).collect()
    };
    let columns = names("SELECT name FROM pragma_table_info('trace_index') ORDER BY cid");
    let expected = [
        "run_id",
        "span_id",
        "parent_span_id",
        "trace_id",
        "operation",
        "started_at",
        "duration_ms",
        "project",
        "file_path",
        "file_offset",
    ];
    assert_eq!(columns, expected);
    let key = names("SELECT name FROM pragma_table_info('trace_index') WHERE pk > 0 ORDER BY pk");
    assert_eq!(key, ["run_id", "span_id"]);
    for column in ["started_at", "trace_id"] {
        let of_column = format!(
            "SELECT i.name FROM pragma_index_list('trace_index') i, pragma_index_info(i.name) c WHERE c.seqno = 0 AND c.name = '{column}'"
        );
        assert_eq!(names(&of_column).len(), 1, "{column}");
    }
    let all = [span("r1", "r1", 1, 90), span("r1", "a", 2, 200), span("r2", "a", 3, 300)];
    home.commit(units([UnitOp::IndexSpans(all.to_vec())]));
    let again = [span("r2", "b", 4, 400), span("r1", "a", 9, 500)];
    assert!(home.try_commit(units([UnitOp::IndexSpans(again.to_vec())])).is_err(), "it is there");
    let odd = SpanRow { operation: "thought".to_owned(), ..span("r2", "c", 4, 400) };
    assert!(home.try_commit(units([UnitOp::IndexSpans(vec![odd])])).is_err(), "no such operation");
    // Files that are read again, also those of a copy of the project, change nothing that is there.
    let copied = SpanRow { project: "/q".to_owned(), ..span("r1", "a", 9, 500) };
    let long = span("r2", &"x".repeat(MAX_TITLE_BYTES + 1), 4, 400);
    let found = [all.to_vec(), vec![copied, long]].concat();
    home.commit(units([UnitOp::ReindexSpans(found)]));
    let find = |filter: SpanFilter, limit: usize| {
        home.store.blocking().trace_spans(PROJECT, filter, limit).expect("reads")
    };
    assert_eq!(find(SpanFilter::Trace("unit one".to_owned()), 10), all);
    assert_eq!(find(SpanFilter::Run("r1".to_owned()), 10), all[..2]);
    assert_eq!(find(SpanFilter::Project(PROJECT.to_owned()), 2), all[1..], "the newest");
    assert!(find(SpanFilter::Run("r9".to_owned()), 10).is_empty());
    let written = |trace: &str, ids: &[&str]| {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        home.store.blocking().written_spans(trace, &ids)
    };
    assert_eq!(written("unit one", &["b", "a", "r2", "r1"]).expect("reads"), ["a", "r1"]);
    assert!(written("unit two", &["a"]).expect("reads").is_empty());
    assert!(written("unit one", &[]).expect("reads").is_empty());
    assert!(written("unit one", &["a"; MAX_ASKED_SPANS + 1]).is_err(), "none is left out without a word");
    let elsewhere = home.store.blocking().trace_spans("/q", SpanFilter::Run("r1".to_owned()), 10);
    assert!(elsewhere.expect("reads").is_empty(), "another project's are not shown");
    let file = |name: &str| IndexedFile { file: name.to_owned(), spans: 3, last_offset: 300 };
    let (from, to) = (all[0].file.as_str(), ".writ/archive/trace/trace-2026-01-01.jsonl");
    assert_eq!(home.store.blocking().indexed_files(PROJECT).expect("reads"), [file(from)]);
    let moved = TraceMove { project: PROJECT.to_owned(), from: from.to_owned(), to: to.to_owned() };
    home.commit(units([UnitOp::MoveTrace(Box::new(moved))]));
    assert_eq!(home.store.blocking().indexed_files(PROJECT).expect("reads"), [file(to)]);
}

/// Sums count each run once, and units that wait for another try have its time and the code of the last error.
#[test]
fn the_state_of_a_session_is_read_from_its_rows() {
    let home = planned_home();
    let read = || home.store.blocking();
    assert_eq!(
        read().pilot_session_of(pilot(1)).expect("reads").map(|one| one.project),
        Some(PROJECT.into())
    );
    assert_eq!(read().pilot_session_of(pilot(9)).expect("reads"), None);
    home.commit(units([claim("task/m1/s1/t1", 0, 1, 2)]));
    let claimed =
        || read().claimed_units(PROJECT).expect("reads").into_iter().map(|line| line.id).collect::<Vec<_>>();
    assert_eq!(claimed(), ["task/m1/s1/t1"]);
    let end = UnitRunEnd {
        run: run(1),
        outcome: "failure".to_owned(),
        error_code: "pilot.unit_plan".to_owned(),
        input: Tokens::new(30),
        output: Tokens::new(12),
        cost: MicroUsd::new(1_500_000),
        at: at(4_002),
    };
    assert_eq!(read().untraced_units(PROJECT, 10).expect("reads"), Vec::<String>::new(), "it runs");
    home.commit(units([UnitOp::EndRun(Box::new(end)), release("task/m1/s1/t1", 1, "failed", 20_000)]));
    let sums = read().pilot_sums(PROJECT).expect("reads");
    let expected = PilotSums {
        input: Tokens::new(30),
        output: Tokens::new(12),
        cost: MicroUsd::new(1_500_000),
        millis: 4_000,
    };
    assert_eq!(sums, expected);
    assert!(claimed().is_empty());
    let retry = RetryRow {
        unit: "task/m1/s1/t1".to_owned(),
        attempt: 1,
        due_at: at(20_000),
        error: "pilot.unit_plan".to_owned(),
    };
    assert_eq!(read().unit_retries(PROJECT, at(5_000)).expect("reads"), [retry]);
    assert!(read().unit_retries(PROJECT, at(20_000)).expect("reads").is_empty(), "it is ready again");
    assert_eq!(read().untraced_units(PROJECT, 10).expect("reads"), ["task/m1/s1/t1"]);
    let id = run(1).to_string();
    // The session has the id of the run, too, as a text.
    assert_eq!(id, pilot(1).to_string());
    let asked = [id.clone(), run(9).to_string()];
    let owners = [(id.clone(), Some("task/m1/s1/t1".to_owned())), (id.clone(), None)];
    assert_eq!(read().span_owners(PROJECT, &asked).expect("reads"), owners);
    assert!(read().span_owners("/q", &asked).expect("reads").is_empty(), "of another project");
    home.commit(units([UnitOp::IndexSpans(vec![span(&id, &id, 2, 90)])]));
    assert!(read().untraced_units(PROJECT, 10).expect("reads").is_empty());
    let states = |status: &str| {
        home.commit(units([UnitOp::MoveSession { session: pilot(1), status: status.into(), at: at(9) }]));
        read().active_pilot_sessions().expect("reads").len()
    };
    assert_eq!(["paused", "interrupted", "idle", "complete", "failed"].map(states), [1, 1, 1, 0, 0]);
}

/// A request that is open at a forge stays noted as open, however late an earlier state is written down.
///
/// Rows: SF-518 (in part: the state of a request)
#[test]
fn a_request_that_is_open_stays_open() {
    let home = planned_home();
    let note = |state: &str| {
        let ship = format!("{{\"state\":\"{state}\",\"at\":1}}");
        home.commit(units([UnitOp::NoteShip { key: key("slice/m1/s1"), ship }]));
        let metadata: serde_json::Value =
            serde_json::from_str(&read(&home, "slice/m1/s1").metadata).expect("JSON");
        metadata["ship"]["state"].as_str().map(str::to_owned)
    };
    let states = ["pending", "asked", "failed", "asked", "opened", "asked", "failed", "opened"];
    let noted: Vec<_> = states.into_iter().filter_map(note).collect();
    assert_eq!(noted, ["pending", "asked", "failed", "asked", "opened", "opened", "opened", "opened"]);
    home.commit(units([UnitOp::NoteShip { key: key("slice/m9/s9"), ship: "{}".to_owned() }]));
}
