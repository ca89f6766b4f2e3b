use proptest::prelude::*;

use super::*;

fn plan(after: &[&[usize]], writes: &[&str]) -> Vec<WorkStep> {
    let name = |n: &usize| format!("s{n}");
    let step = |(n, (after, writes)): (usize, (&&[usize], &&str))| WorkStep {
        id: name(&n),
        instructions: "do it".to_owned(),
        after: after.iter().map(name).collect(),
        writes: writes.split_whitespace().map(str::to_owned).collect(),
        ..WorkStep::default()
    };
    after.iter().zip(writes).enumerate().map(step).collect()
}

fn one() -> Vec<WorkStep> {
    plan(&[&[]], &[""])
}

fn step(state: StepState) -> StepView {
    StepView { state, max_attempts: 3, ends: Vec::new() }
}

fn item(plan: &[WorkStep], steps: impl IntoIterator<Item = StepView>) -> WorkView<'_> {
    WorkView {
        state: WorkState::Running,
        plan,
        steps: steps.into_iter().collect(),
        on_stuck: OnStuck::ConsultPlanner,
        consultations: 0,
        is_spent: false,
    }
}

fn end(verdict: Verdict, trace: &str) -> AttemptEnd {
    AttemptEnd { verdict, trace: Digest::of_bytes(trace.as_bytes()) }
}

/// Every pair of state and event, as a table: what is not listed changes nothing.
#[test]
fn every_pair_of_state_and_event_is_decided() {
    use WorkEvent as On;
    use WorkState as Is;
    let table: Vec<(Is, On, Is)> = vec![
        (Is::Proposed, On::Approve, Is::Running),
        (Is::Proposed, On::Deny, Is::Denied),
        (Is::Proposed, On::Cancel, Is::Cancelled),
        (Is::Running, On::Pause, Is::Paused),
        (Is::Running, On::Cancel, Is::Cancelled),
        (Is::Running, On::Consult, Is::Consulting),
        (Is::Running, On::Stick, Is::Stuck),
        (Is::Running, On::SpendOut, Is::OverBudget),
        (Is::Running, On::Finish, Is::Done),
        (Is::Running, On::Fail, Is::Failed),
        (Is::Paused, On::Resume, Is::Running),
        (Is::Paused, On::Cancel, Is::Cancelled),
        (Is::Paused, On::Stick, Is::Stuck),
        (Is::Paused, On::SpendOut, Is::OverBudget),
        (Is::Consulting, On::Pause, Is::Paused),
        (Is::Consulting, On::Cancel, Is::Cancelled),
        (Is::Consulting, On::Advise, Is::Running),
        (Is::Consulting, On::Replan, Is::Proposed),
        (Is::Consulting, On::Stick, Is::Stuck),
        (Is::Consulting, On::SpendOut, Is::OverBudget),
        (Is::Consulting, On::Fail, Is::Failed),
        (Is::Stuck, On::Cancel, Is::Cancelled),
        (Is::Stuck, On::Retry, Is::Proposed),
        (Is::OverBudget, On::Retry, Is::Proposed),
        (Is::Failed, On::Retry, Is::Proposed),
        (Is::Cancelled, On::Retry, Is::Proposed),
        (Is::Denied, On::Retry, Is::Proposed),
    ];
    let mut listed = 0;
    for state in Is::ALL {
        for event in On::ALL {
            let wanted = table.iter().find(|(from, on, _)| (*from, *on) == (state, event)).map(|row| row.2);
            assert_eq!(next_state(state, event), wanted, "{state:?} {event:?}");
            listed += usize::from(wanted.is_some());
        }
    }
    assert_eq!(listed, table.len(), "no row of the table stands twice");
}

/// What is done needs no approval and what is not approved is not run: only an approval leads out of `proposed` into
/// `running`, and from every state that is over the only way on is a new proposal.
///
/// Rows: SIL-001 (in part: an item runs after an approval alone)
#[test]
fn nothing_runs_without_an_approval() {
    for event in WorkEvent::ALL.into_iter().filter(|event| *event != WorkEvent::Approve) {
        assert_ne!(next_state(WorkState::Proposed, event), Some(WorkState::Running), "{event:?}");
    }
    for state in WorkState::ALL.into_iter().filter(|state| state.is_over()) {
        for event in WorkEvent::ALL {
            let next = next_state(state, event);
            assert!(next.is_none() || next == Some(WorkState::Proposed), "{state:?} {event:?}");
        }
    }
}

/// A diamond: the two in the middle run together, the last waits for both.
///
/// Rows: SIL-179 (in part: each child is begun, in the order of the edges)
#[test]
fn a_diamond_is_run_in_the_order_of_its_edges() {
    use StepState::{Done, Running, Waiting};
    let plan = plan(&[&[], &[0], &[0], &[1, 2]], &["a", "b", "c", "d"]);
    let diamond = |states: [StepState; 4]| item(&plan, states.map(step));
    assert_eq!(next_moves(&diamond([Waiting; 4])), [Move::Start(0)]);
    assert_eq!(next_moves(&diamond([Running, Waiting, Waiting, Waiting])), []);
    assert_eq!(next_moves(&diamond([Done, Waiting, Waiting, Waiting])), [Move::Start(1), Move::Start(2)]);
    assert_eq!(next_moves(&diamond([Done, Done, Running, Waiting])), []);
    assert_eq!(next_moves(&diamond([Done, Done, Done, Waiting])), [Move::Start(3)]);
    assert_eq!(next_moves(&diamond([Done; 4])), [Move::Finish]);
}

/// Rows: SIL-404
/// Rows: SIL-403 (in part: of one item; no number bounds the steps of all items)
#[test]
fn steps_that_change_the_same_place_do_not_run_together() {
    let two = |one: &str, other: &str| {
        let plan = plan(&[&[], &[]], &[one, other]);
        next_moves(&item(&plan, [StepState::Waiting; 2].map(step))).len()
    };
    assert_eq!(two("src/a.py", "src/b.py"), 2);
    assert_eq!(two("src/a.py", "src/a.py"), 1);
    assert_eq!(two("src", "src/a.py"), 1, "a folder covers what is in it");
    assert_eq!(two("", "src/a.py"), 1, "no paths: it may change anything");
    let names: Vec<String> = (0..20).map(|n| format!("{n}.py")).collect();
    let writes: Vec<&str> = names.iter().map(String::as_str).collect();
    let many = plan(&[&[] as &[usize]; 20], &writes);
    assert_eq!(next_moves(&item(&many, many.iter().map(|_| step(StepState::Waiting)))).len(), 8);
}

/// Checks look at a tree that stands still.
#[test]
fn checks_wait_until_no_executor_works_and_hold_up_the_next_steps() {
    use StepState::{Checking, Done, Running, Waiting};
    let plan = plan(&[&[], &[], &[]], &["a", "b", "c"]);
    let moves = |states: [StepState; 3]| next_moves(&item(&plan, states.map(step)));
    assert_eq!(moves([Checking, Running, Waiting]), []);
    assert_eq!(moves([Checking, Checking, Waiting]), [Move::Check(0), Move::Check(1)]);
    assert_eq!(moves([Done, Done, Waiting]), [Move::Start(2)]);
}

/// Rows: SIL-175 (in part: a failed verification begins another attempt)
#[test]
fn attempts_end_with_a_pass_with_the_last_one_or_with_the_same_failure_twice() {
    use Verdict::{Fail, NotRun, Pass};
    let after = |ends: &[AttemptEnd], last| {
        judged_state(&one()[0], &StepView { ends: ends.to_vec(), ..step(StepState::Checking) }, last)
    };
    assert_eq!(after(&[], end(Pass, "a")), StepState::Done);
    assert_eq!(after(&[], end(Fail, "a")), StepState::Waiting);
    assert_eq!(after(&[], end(NotRun, "a")), StepState::Waiting, "nothing proven is no pass");
    assert_eq!(after(&[end(Fail, "a")], end(Fail, "b")), StepState::Waiting);
    assert_eq!(after(&[end(Fail, "a")], end(Fail, "a")), StepState::Failed, "stuck");
    assert_eq!(after(&[end(Fail, "a"), end(Fail, "b")], end(Fail, "c")), StepState::Failed, "the last one");
    assert_eq!(after(&[end(Fail, "a"), end(Fail, "b")], end(Pass, "c")), StepState::Done);
    let checks_alone = WorkStep::default();
    let failed = judged_state(&checks_alone, &step(StepState::Checking), end(Fail, "a"));
    assert_eq!(failed, StepState::Failed, "no executor would mend it");
}

/// Rows: SIL-176 (in part: a step that is not stuck asks for no advice)
/// Rows: SIL-223 (in part: the planner is asked once) SIL-224 (in part: a person comes after the planner)
#[test]
fn a_failed_step_asks_for_advice_then_for_another_plan_and_then_a_person() {
    let failed = |ends: &[AttemptEnd]| StepView { ends: ends.to_vec(), ..step(StepState::Failed) };
    let stuck = failed(&[end(Verdict::Fail, "a"), end(Verdict::Fail, "a")]);
    let plan = one();
    let tried = failed(&[end(Verdict::Fail, "a"), end(Verdict::Fail, "b"), end(Verdict::Fail, "c")]);
    let moves = |step: &StepView, on_stuck, consultations| {
        next_moves(&WorkView { on_stuck, consultations, ..item(&plan, [step.clone()]) })
    };
    assert_eq!(moves(&stuck, OnStuck::ConsultPlanner, 0), [Move::Consult(0)]);
    assert_eq!(moves(&stuck, OnStuck::ConsultPlanner, 1), [Move::Replan(0)]);
    assert_eq!(moves(&tried, OnStuck::ConsultPlanner, 1), [Move::Replan(0)]);
    assert_eq!(moves(&stuck, OnStuck::ConsultPlanner, 2), [Move::Stick(0)]);
    assert_eq!(
        moves(&tried, OnStuck::ConsultPlanner, 2),
        [Move::Stick(0)],
        "a person is asked, whatever failed"
    );
    assert_eq!(moves(&stuck, OnStuck::AskPerson, 0), [Move::Stick(0)]);
    assert_eq!(moves(&stuck, OnStuck::Stop, 0), [Move::Fail(0)]);
    let spent = WorkView { is_spent: true, ..item(&plan, [stuck.clone()]) };
    assert_eq!(next_moves(&spent), [Move::Stick(0)], "the planner's answer could not be paid");
    let checks_alone = [WorkStep::default()];
    let whole = WorkView { ..item(&checks_alone, [stuck.clone()]) };
    assert_eq!(next_moves(&whole), [Move::Replan(0)], "advice would reach no executor");
    let good = step(StepState::Waiting);
    assert_eq!(moves(&good, OnStuck::ConsultPlanner, 0), [Move::Start(0)]);
}

/// Rows: SIL-174 (in part: further attempts are not begun)
#[test]
fn an_item_without_budget_begins_nothing_but_checks() {
    let mut plan = plan(&[&[], &[0]], &["", ""]);
    let moves = |plan: &[WorkStep], states: [StepState; 2]| {
        next_moves(&WorkView { is_spent: true, ..item(plan, states.map(step)) })
    };
    use StepState::{Checking, Done, Waiting};
    assert_eq!(moves(&plan, [Waiting, Waiting]), [Move::SpendOut]);
    assert_eq!(moves(&plan, [Checking, Waiting]), [Move::Check(0)]);
    assert_eq!(moves(&plan, [Done, Done]), [Move::Finish]);
    plan[1].instructions = String::new();
    assert_eq!(moves(&plan, [Done, Waiting]), [Move::Start(1)], "checks cost nothing");
}

fn any_plan() -> impl Strategy<Value = Vec<WorkStep>> {
    let path = prop::sample::select(vec!["a", "a/b", "c", "d/e", "d"]);
    let one = (prop::collection::vec(path, 0..3), prop::collection::vec(any::<prop::sample::Index>(), 0..3));
    prop::collection::vec(one, 1..24).prop_map(|steps| {
        let steps = steps.into_iter().enumerate().map(|(n, (writes, after))| WorkStep {
            id: format!("s{n}"),
            instructions: "do it".to_owned(),
            writes: writes.into_iter().map(str::to_owned).collect(),
            after: after.into_iter().filter(|_| n > 0).map(|at| format!("s{}", at.index(n.max(1)))).collect(),
            ..WorkStep::default()
        });
        steps.collect()
    })
}

/// Plays an item to its end, and returns how it ended.
fn play(plan: &[WorkStep], mut verdicts: impl Iterator<Item = u8>) -> Result<Move, TestCaseError> {
    let mut item = item(plan, plan.iter().map(|_| step(StepState::Waiting)));
    for _ in 0..1_000 {
        let next = next_moves(&item);
        if next.is_empty() {
            // Nothing can be moved: an executor works, and ends now.
            let running = item.steps.iter_mut().find(|step| step.state == StepState::Running);
            let Some(running) = running else { return Err(TestCaseError::fail("it waits for nothing")) };
            running.state = StepState::Checking;
        }
        for one in next {
            match one {
                Move::Start(n) => {
                    let is_done = |name: &str| {
                        let place = plan.iter().position(|step| step.id == name);
                        place.is_some_and(|place| item.steps[place].state == StepState::Done)
                    };
                    prop_assert!(order::dependencies(&plan[n]).all(is_done));
                    item.steps[n].state = StepState::Running;
                    let running: Vec<&WorkStep> = plan
                        .iter()
                        .zip(&item.steps)
                        .filter(|(_, step)| step.state == StepState::Running)
                        .map(|(plan, _)| plan)
                        .collect();
                    prop_assert!(running.len() <= MAX_PARALLEL);
                    for (i, one) in running.iter().enumerate() {
                        prop_assert!(running[i + 1..].iter().all(|other| !order::is_conflict(one, other)));
                    }
                }
                Move::Check(n) => {
                    prop_assert!(item.steps.iter().all(|step| step.state != StepState::Running));
                    let verdict = if verdicts.next() == Some(0) { Verdict::Fail } else { Verdict::Pass };
                    let last = end(verdict, &format!("{}", item.steps[n].ends.len()));
                    item.steps[n].state = judged_state(&plan[n], &item.steps[n], last);
                    item.steps[n].ends.push(last);
                    let (made, most) = (item.steps[n].ends.len(), item.steps[n].max_attempts);
                    prop_assert!(u32::try_from(made).is_ok_and(|made| made <= most));
                }
                Move::Consult(n) => {
                    item.consultations += 1;
                    item.steps[n].max_attempts += 1;
                    item.steps[n].state = StepState::Waiting;
                }
                Move::Replan(n) => {
                    item.consultations = MAX_QUESTIONS;
                    item.steps[n].max_attempts += 1;
                    item.steps[n].state = StepState::Waiting;
                }
                over @ (Move::Stick(_) | Move::Fail(_) | Move::SpendOut | Move::Finish) => return Ok(over),
            }
        }
    }
    Err(TestCaseError::fail("it does not end"))
}

proptest! {
    /// Whatever the plan and the verdicts: dependencies are done before, what runs together has no conflict and is at most
    /// eight, every attempt is within the plan's number, and the item comes to an end.
    #[test]
    fn any_plan_comes_to_an_end_within_its_attempts(plan in any_plan(), verdicts in prop::collection::vec(0..4_u8, 1..64)) {
        let is_good = verdicts.iter().all(|verdict| *verdict != 0);
        let over = play(&plan, verdicts.into_iter().cycle())?;
        prop_assert!(!is_good || over == Move::Finish, "{over:?}");
    }
}
