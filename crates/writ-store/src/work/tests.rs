use super::*;
use crate::batch::Op;
use crate::testing::{TestHome, at, session};

fn item(n: u128) -> WorkItem {
    WorkItem {
        id: ItemId::from_parts(at(0), n),
        name: format!("task-{n}"),
        kind: "task".into(),
        title: "mend it".into(),
        session: session(n),
        origin: None,
        goal: None,
        project: Some("/p".into()),
        state: WorkState::Proposed,
        version: 0,
        reason: String::new(),
        document: "{}".into(),
        taint: Taint::Owner,
        ask: None,
        round: 0,
        consultations: 0,
        report: String::new(),
        max_tokens: Some(Tokens::new(9)),
        max_cost: None,
        created_at: at(0),
        changed_at: at(0),
    }
}

fn step(name: &str, after: &[usize]) -> WorkStepRow {
    WorkStepRow {
        name: name.into(),
        title: name.into(),
        after: after.to_vec(),
        has_executor: true,
        max_attempts: 3,
        advice: String::new(),
        state: StepState::Waiting,
    }
}

fn work(ops: impl IntoIterator<Item = WorkOp>) -> Vec<Op> {
    ops.into_iter().map(Op::Work).collect()
}

fn proposed() -> (TestHome, ItemId) {
    let (home, item) = (TestHome::new(), item(1));
    let id = item.id;
    home.commit(work([WorkOp::Propose(Box::new((item, vec![step("a", &[]), step("b", &[0])])))]));
    (home, id)
}

fn message(n: u128) -> MessageId {
    MessageId::from_parts(at(0), n)
}

fn begin(item: ItemId, n: u32, id: u128) -> WorkOp {
    WorkOp::Begin { item, step: 0, n, message: Some(message(id)), at: at(1) }
}

fn judge(item: ItemId, n: u32, state: StepState) -> WorkOp {
    let (verdict, trace, evidence) = ("fail".into(), "t".into(), "[]".into());
    WorkOp::Judge { item, step: 0, n, verdict, trace, evidence, state, at: at(3) }
}

fn end(id: u128) -> WorkOp {
    WorkOp::EndTurn { message: message(id), exit: 0, said: "done".into(), at: at(2) }
}

/// What was stored is read again after the store was closed, whole.
///
/// Rows: SIL-011 (in part: work items are in the database)
#[test]
fn an_item_with_its_steps_and_attempts_is_read_as_it_was_written() {
    let (home, id) = proposed();
    home.commit(work([begin(id, 1, 1)]));
    home.commit(work([end(1)]));
    home.commit(work([judge(id, 1, StepState::Waiting)]));
    let home = home.reopened();
    let whole = home.store.blocking().whole_work_item(id).expect("reads");
    let attempt = WorkAttempt {
        item: id,
        step: 0,
        n: 1,
        message: Some(message(1)),
        state: AttemptState::Judged,
        began_at: at(1),
        ended_at: Some(at(3)),
        exit: Some(0),
        said: "done".into(),
        verdict: "fail".into(),
        trace: "t".into(),
        evidence: "[]".into(),
    };
    assert_eq!(whole, Some((item(1), vec![step("a", &[]), step("b", &[0])], vec![attempt])));
}

/// A step is begun once, its turn ends once, and it is judged once, however often a crash has them written again.
///
/// Rows: SIL-041 (in part: a step that has ended is not run again)
#[test]
fn an_attempt_is_begun_ended_and_judged_once() {
    let (home, id) = proposed();
    home.commit(work([begin(id, 1, 1)]));
    assert!(home.try_commit(work([begin(id, 1, 2)])).is_err(), "it runs");
    assert!(home.try_commit(work([begin(id, 2, 2)])).is_err(), "whatever its number");
    assert!(home.try_commit(work([judge(id, 1, StepState::Done)])).is_err(), "it has not ended");
    home.commit(work([end(7)]));
    let state = |home: &TestHome| home.store.blocking().work_steps(id).expect("reads")[0].state;
    assert_eq!(state(&home), StepState::Running, "another message ends nothing");
    home.commit(work([end(1), end(1)]));
    assert_eq!(state(&home), StepState::Checking);
    assert!(home.try_commit(work([begin(id, 2, 2)])).is_err(), "its checks come first");
    home.commit(work([judge(id, 1, StepState::Waiting)]));
    assert!(home.try_commit(work([judge(id, 1, StepState::Done)])).is_err());
    assert_eq!(state(&home), StepState::Waiting);
    assert!(home.try_commit(work([begin(id, 2, 1)])).is_err(), "a message is the work of one attempt");
    home.commit(work([begin(id, 2, 2)]));
}

#[test]
fn a_change_on_an_old_view_is_refused() {
    let (home, id) = proposed();
    let change = |version, state: WorkState| {
        let is_active = !state.is_over();
        WorkOp::Move(ItemMove { item: id, version, state, is_active, reason: "r".into(), at: at(5) })
    };
    home.commit(work([change(0, WorkState::Running)]));
    assert!(home.try_commit(work([change(0, WorkState::Cancelled)])).is_err());
    let read = home.store.blocking();
    assert_eq!(read.active_work(9).expect("reads").len(), 1);
    home.commit(work([change(1, WorkState::Done)]));
    assert!(read.active_work(9).expect("reads").is_empty());
    let done = read.work_item_named("task-1").expect("reads").expect("is there");
    assert_eq!((done.state, done.version, done.changed_at), (WorkState::Done, 2, at(5)));
    assert_eq!(read.work_item_of(session(1)).expect("reads").map(|item| item.id), Some(id));
}

/// A retry keeps what is done, and counts attempts on.
#[test]
fn a_renewed_item_keeps_what_is_done_and_has_its_attempts_again() {
    let (home, id) = proposed();
    home.commit(work([begin(id, 1, 1), end(1), judge(id, 1, StepState::Failed)]));
    home.commit(work([WorkOp::Advise { item: id, step: 0, advice: "look".into() }]));
    let read = home.store.blocking();
    let first = || read.work_steps(id).expect("reads").remove(0);
    assert_eq!(
        (first().state, first().max_attempts, first().advice.as_str()),
        (StepState::Waiting, 4, "look")
    );
    home.commit(work([begin(id, 2, 2), end(2), judge(id, 2, StepState::Failed)]));
    home.commit(work([WorkOp::Renew { item: id, attempts: 3 }]));
    assert_eq!((first().state, first().max_attempts), (StepState::Waiting, 5), "two were made");
    home.commit(work([begin(id, 3, 3), end(3), judge(id, 3, StepState::Done)]));
    home.commit(work([WorkOp::Renew { item: id, attempts: 3 }]));
    assert_eq!(first().state, StepState::Done);
    assert_eq!(read.work_item(id).expect("reads").expect("is there").round, 2);
}

/// Steps change their places, and their attempts go with them; those of steps that are gone are gone.
#[test]
fn another_plan_has_the_attempts_of_the_steps_that_stay() {
    let (home, id) = proposed();
    home.commit(work([begin(id, 1, 1), end(1), judge(id, 1, StepState::Done)]));
    let second = |n, id_of| WorkOp::Begin { item: id, step: 1, n, message: Some(message(id_of)), at: at(4) };
    home.commit(work([second(1, 2), end(2)]));
    let done = WorkStepRow { state: StepState::Done, ..step("a", &[]) };
    let another = |steps| {
        let (document, taint) = ("{\"id\": \"new\"}".to_owned(), Taint::External);
        WorkOp::Replan(Box::new(NewCourse { item: id, document, taint, steps }))
    };
    // The old second step comes first, the done one second, and a third is new.
    let steps = vec![(step("b", &[]), Some(1)), (done.clone(), Some(0)), (step("c", &[0]), None)];
    home.commit(work([another(steps)]));
    let read = || home.store.blocking().whole_work_item(id).expect("reads").expect("is there");
    let of = |attempts: &[WorkAttempt]| {
        attempts.iter().map(|attempt| (attempt.step, attempt.message)).collect::<Vec<_>>()
    };
    let (item, rows, attempts) = read();
    assert_eq!((item.round, item.taint, item.ask), (1, Taint::External, None));
    assert_eq!(item.document, "{\"id\": \"new\"}");
    assert_eq!(rows, [step("b", &[]), done.clone(), step("c", &[0])]);
    assert_eq!(of(&attempts), [(0, Some(message(2))), (1, Some(message(1)))]);
    home.commit(work([another(vec![(done.clone(), Some(1))])]));
    let (item, rows, attempts) = read();
    assert_eq!((item.round, rows), (2, vec![done]));
    assert_eq!(of(&attempts), [(0, Some(message(1)))]);
    let many = (0..=MAX_STEPS).map(|n| (step(&n.to_string(), &[]), None)).collect();
    assert!(home.try_commit(work([another(many)])).is_err());
}

#[test]
fn what_is_too_large_is_refused_and_words_are_cut() {
    let (home, id) = proposed();
    let many = (0..=MAX_STEPS).map(|n| step(&n.to_string(), &[])).collect();
    assert!(home.try_commit(work([WorkOp::Propose(Box::new((item(2), many)))])).is_err());
    let large = WorkItem { document: "x".repeat(MAX_DOCUMENT_BYTES + 1), ..item(2) };
    assert!(home.try_commit(work([WorkOp::Propose(Box::new((large, vec![])))])).is_err());
    home.commit(work([WorkOp::Report { item: id, report: "ö".repeat(MAX_WORDS_CHARS + 1) }]));
    let report = home.store.blocking().work_item(id).expect("reads").expect("is there").report;
    assert_eq!(report.chars().count(), MAX_WORDS_CHARS);
    assert!(home.try_commit(work([WorkOp::Consult { item: item(9).id }])).is_err(), "no such item");
}
