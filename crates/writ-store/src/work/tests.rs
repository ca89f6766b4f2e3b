use writ_policy::budget::{BudgetFacts, Ceilings, Exhausted, PlanCeilings};
use writ_policy::permit::{Durability, Journal as _, RedeemError, Redemption, Reservation};
use writ_types::action::{Action, ModelCall};
use writ_types::chat::Usage;
use writ_types::digest::Digest;
use writ_types::entry::Entry;
use writ_types::unit::MicroUsd;

use super::*;
use crate::batch::{Op, UsageDelta, UsageShare};
use crate::testing::{TestHome, at, attempt, intent, session};
use writ_types::work::MAX_DOMAINS;

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
        domains: Vec::new(),
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
        is_held: false,
        holds: 0,
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

/// Cancelled during a turn and retried: the turn that ends late is none of the new round's.
#[test]
fn a_turn_of_an_earlier_round_ends_nothing_of_the_next_one() {
    let (home, id) = proposed();
    home.commit(work([begin(id, 1, 1)]));
    home.commit(work([WorkOp::Renew { item: id, attempts: 3 }]));
    let read = home.store.blocking();
    let seen = || {
        let (_, steps, attempts) = read.whole_work_item(id).expect("reads").expect("is there");
        let ends = attempts.into_iter().map(|attempt| (attempt.n, attempt.state, attempt.verdict)).collect();
        (steps[0].state, ends)
    };
    let closed = (1, AttemptState::Judged, "not_run".to_owned());
    assert_eq!(seen(), (StepState::Waiting, vec![closed.clone()]));
    home.commit(work([begin(id, 2, 2), end(1)]));
    let running = (2, AttemptState::Running, String::new());
    assert_eq!(seen(), (StepState::Running, vec![closed, running]), "the late end changes nothing");
}

/// An attempt that waits for a person is the same one when it goes on.
#[test]
fn a_held_attempt_goes_on_under_its_own_number() {
    let (home, id) = proposed();
    let hold = || WorkOp::Hold { item: id, step: 0, n: 1 };
    let go_on = |n| WorkOp::GoOn { item: id, step: 0, n: 1, message: message(n) };
    home.commit(work([begin(id, 1, 1)]));
    assert!(home.try_commit(work([hold()])).is_err(), "its turn runs");
    home.commit(work([end(1)]));
    assert!(home.try_commit(work([go_on(2)])).is_err(), "it is not held");
    home.commit(work([hold()]));
    assert!(home.try_commit(work([judge(id, 1, StepState::Done)])).is_err(), "nothing is checked meanwhile");
    assert!(home.try_commit(work([hold()])).is_err());
    let read = home.store.blocking();
    let seen = || {
        let (_, steps, mut attempts) = read.whole_work_item(id).expect("reads").expect("is there");
        assert_eq!(attempts.len(), 1);
        let attempt = attempts.remove(0);
        (steps[0].state, attempt.state, attempt.message, attempt.is_held, attempt.holds)
    };
    assert_eq!(seen(), (StepState::Running, AttemptState::Ended, Some(message(1)), true, 1));
    home.commit(work([go_on(2)]));
    assert_eq!(seen(), (StepState::Running, AttemptState::Running, Some(message(2)), false, 1));
    home.commit(work([end(1)]));
    assert_eq!(seen().1, AttemptState::Running, "its first turn is over");
    home.commit(work([end(2), judge(id, 1, StepState::Done)]));
    assert_eq!(seen().0, StepState::Done);
}

/// An attempt has another turn only after its last one has ended and before it is judged, under its own number.
#[test]
fn an_attempt_has_another_turn_after_the_end_of_the_last() {
    let (home, id) = proposed();
    let next = |n| WorkOp::NextTurn { item: id, step: 0, n: 1, message: message(n) };
    home.commit(work([begin(id, 1, 1)]));
    assert!(home.try_commit(work([next(2)])).is_err(), "its turn runs");
    home.commit(work([end(1)]));
    home.commit(work([next(2)]));
    let read = home.store.blocking();
    let seen = || {
        let (_, steps, mut attempts) = read.whole_work_item(id).expect("reads").expect("is there");
        assert_eq!(attempts.len(), 1);
        let attempt = attempts.remove(0);
        (steps[0].state, attempt.state, attempt.message, attempt.exit, attempt.said)
    };
    let running = (StepState::Running, AttemptState::Running, Some(message(2)), None, String::new());
    assert_eq!(seen(), running, "nothing of the turn before is left");
    home.commit(work([end(1)]));
    assert_eq!(seen().1, AttemptState::Running, "its first turn is over");
    home.commit(work([end(2), WorkOp::Hold { item: id, step: 0, n: 1 }]));
    assert!(home.try_commit(work([next(3)])).is_err(), "it is held");
    home.commit(work([WorkOp::GoOn { item: id, step: 0, n: 1, message: message(3) }, end(3)]));
    home.commit(work([judge(id, 1, StepState::Done)]));
    assert!(home.try_commit(work([next(4)])).is_err(), "it was judged");
}

#[test]
fn no_more_executors_work_than_may_over_all_items() {
    let home = TestHome::new();
    let all = u32::try_from(MAX_EXECUTORS).expect("small") + 1;
    for n in 1..=all {
        let steps = vec![step("a", &[])];
        home.commit(work([WorkOp::Propose(Box::new((item(u128::from(n)), steps)))]));
    }
    let begin_of = |n: u32| begin(item(u128::from(n)).id, 1, u128::from(n));
    home.commit(work((1..all).map(begin_of)));
    let refused = home.try_commit(work([begin_of(all)])).expect_err("sixteen work");
    assert!(matches!(refused, StoreError::Conflict(Conflict::Executors(MAX_EXECUTORS))), "{refused}");
    let checks = WorkOp::Begin { item: item(u128::from(all)).id, step: 0, n: 1, message: None, at: at(1) };
    home.commit(work([checks]));
    home.commit(work([end(1)]));
    let held = WorkOp::Hold { item: item(1).id, step: 0, n: 1 };
    home.commit(work([held]));
    let next = item(u128::from(all) + 1);
    home.commit(work([
        WorkOp::Propose(Box::new((next.clone(), vec![step("a", &[])]))),
        begin(next.id, 1, 99),
    ]));
    let go_on = WorkOp::GoOn { item: item(1).id, step: 0, n: 1, message: message(100) };
    assert!(home.try_commit(work([go_on])).is_err(), "one that goes on is one more");
}

/// An item is listed under each of its domains; one that is removed leaves the others, and there are no more than eight.
///
/// Rows: SIL-336 (in part: in the store)
#[test]
fn an_item_is_found_under_each_of_its_domains() {
    let (home, id) = proposed();
    home.commit(work([WorkOp::Propose(Box::new((item(2), vec![])))]));
    let tag = |name: &str| name.parse::<DomainTag>().expect("a domain");
    let set = |item, name: &str, is_set| WorkOp::Domain { item, domain: tag(name), is_set };
    let found = |name: &str| -> Vec<ItemId> {
        let lines = home.store.blocking().work_lines(Some(tag(name)), 10).expect("reads");
        lines.into_iter().map(|line| line.item.id).collect()
    };
    home.commit(work([set(id, "tax", true), set(id, "home", true), set(id, "home", true)]));
    assert_eq!([found("home"), found("tax"), found("hom")], [vec![id], vec![id], Vec::new()]);
    let domains = |id| home.store.blocking().work_item(id).expect("reads").expect("is there").domains;
    assert_eq!(domains(id), [tag("home"), tag("tax")]);
    home.commit(work([set(id, "home", false), set(id, "never", false), set(item(2).id, "home", true)]));
    assert_eq!([found("home"), found("tax")], [vec![item(2).id], vec![id]]);
    assert_eq!(home.store.blocking().work_lines(None, 10).expect("reads").len(), 2, "nothing is hidden");
    for n in 1..MAX_DOMAINS {
        home.commit(work([set(id, &format!("d{n}"), true)]));
    }
    assert!(matches!(home.try_commit(work([set(id, "more", true)])), Err(StoreError::TooLarge { .. })));
    home.commit(work([set(id, "tax", true)]));
    assert_eq!(domains(id).len(), MAX_DOMAINS);
    let missing = home.try_commit(work([set(item(9).id, "home", true)]));
    assert!(matches!(missing, Err(StoreError::Conflict(Conflict::Missing { .. }))), "{missing:?}");
}

/// Evidence is read where it is needed: it is large.
#[test]
fn evidence_is_read_of_the_newest_attempts_alone() {
    let (home, id) = proposed();
    for n in 1..=10 {
        home.commit(work([
            begin(id, n, u128::from(n)),
            end(u128::from(n)),
            judge(id, n, StepState::Waiting),
        ]));
    }
    let read = home.store.blocking();
    let with_evidence = |whole: Option<WholeItem>| {
        let (_, _, attempts) = whole.expect("is there");
        assert_eq!(attempts.len(), 10);
        attempts.into_iter().filter(|attempt| !attempt.evidence.is_empty()).map(|attempt| attempt.n).collect()
    };
    let newest: Vec<u32> = with_evidence(read.whole_work_item(id).expect("reads"));
    assert_eq!(newest, [9, 10]);
    let shown: Vec<u32> = with_evidence(read.shown_work_item(id).expect("reads"));
    assert_eq!(shown, (3..=10).collect::<Vec<_>>());
    let lines = read.work_lines(None, 5).expect("reads");
    assert_eq!(lines.len(), 1);
    let line = &lines[0];
    assert_eq!((line.item.id, line.steps, line.steps_done, line.tokens), (id, 2, 0, Tokens::ZERO));
    assert!(read.dead_attempts(id).expect("reads").is_empty());
    let child = WorkItem { goal: Some(id), ..item(2) };
    home.commit(work([WorkOp::Propose(Box::new((child.clone(), vec![])))]));
    assert_eq!(read.children_of(id).expect("reads"), [child.id]);
    let started = |name: &str| read.started_by(id, name, 10).expect("reads");
    assert_eq!(started(&child.name), [(child.id, child.session, child.created_at)]);
    assert!(started("another").is_empty());
}

/// The sessions under a plan share its limits: what one has used or set aside is not there for another, however they are decided.
#[tokio::test]
async fn sessions_under_a_plan_share_its_limits() {
    let home = TestHome::new();
    let plan = item(9);
    home.commit(work([WorkOp::Propose(Box::new((plan.clone(), vec![])))]));
    for n in [1, 2] {
        home.commit(work([WorkOp::Propose(Box::new((WorkItem { goal: Some(plan.id), ..item(n) }, vec![])))]));
    }
    let call = ModelCall {
        provider: "p".to_owned(),
        model: "m".to_owned(),
        host: "h".to_owned(),
        request: Digest::of_bytes(b"request"),
        input_tokens: Tokens::new(60),
        max_output_tokens: Tokens::new(40),
        ceiling: Some(MicroUsd::new(10)),
        clearance: Default::default(),
        why: String::new(),
    };
    let redeem = async |n: u128, of: u128, (tokens, cost): (u64, u64)| {
        let mut facts = BudgetFacts::default();
        let (tokens, cost) = (Some(Tokens::new(tokens)), Some(MicroUsd::new(cost)));
        facts.spent.plan = Some(PlanCeilings { item: plan.id, tokens, cost });
        let request = Redemption {
            attempt: attempt(n),
            intent: Entry { session: Some(session(of)), ..intent(n) },
            approval: None,
            reservation: Reservation { tokens: Tokens::new(100), cost: MicroUsd::new(10), tool_calls: 0 },
            keys: Default::default(),
            ceilings: Ceilings::ceilings_of(&Action::ModelCall(call.clone()), &facts),
            operation: Default::default(),
            durability: Durability::Relaxed,
        };
        home.store.redeem(request).await.map(drop)
    };
    assert_eq!(redeem(1, 1, (1_000, 25)).await, Ok(()));
    assert_eq!(redeem(2, 2, (1_000, 19)).await, Err(RedeemError::Exhausted(Exhausted::SessionCost)));
    assert_eq!(redeem(3, 2, (100, 25)).await, Err(RedeemError::Exhausted(Exhausted::SessionTokens)));
    assert_eq!(redeem(4, 2, (1_000, 20)).await, Ok(()));
    let delta = UsageDelta {
        session: None,
        at: at(0),
        usage: Usage::default(),
        cost: MicroUsd::new(5),
        tool_calls: 0,
        model_calls: 1,
    };
    let share =
        UsageShare { role: "executor".into(), model: "m".into(), item: Some(plan.id.to_string()), delta };
    home.commit(vec![Op::AddUsageShare(Box::new(share))]);
    assert_eq!(redeem(5, 1, (1_000, 34)).await, Err(RedeemError::Exhausted(Exhausted::SessionCost)));
    assert_eq!(redeem(6, 1, (1_000, 35)).await, Ok(()), "20 set aside, 5 used");
}
