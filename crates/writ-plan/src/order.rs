//! The order of steps: dependencies, and steps that must not run at the same time.

use std::collections::{BTreeMap, BTreeSet};

use writ_types::work::WorkStep;

use crate::error::{PlanError, PlanProblem};

/// The most steps of one plan that run at the same time (SIL-403).
pub const MAX_PARALLEL: usize = 8;

/// Returns the indexes of the steps in an order in which each comes after its dependencies; among those that are free,
/// the order of the document counts.
///
/// # Errors
///
/// If steps wait for one another, with their ids. Names that no step has are passed over; `check_plan` refuses them.
pub fn order_steps(steps: &[WorkStep]) -> Result<Vec<usize>, PlanError> {
    let places: BTreeMap<&str, usize> =
        steps.iter().enumerate().map(|(n, step)| (step.id.as_str(), n)).collect();
    let needs: Vec<BTreeSet<usize>> = steps
        .iter()
        .map(|step| dependencies(step).filter_map(|name| places.get(name).copied()).collect())
        .collect();
    let (mut order, mut done) = (Vec::new(), BTreeSet::new());
    while order.len() < steps.len() {
        // From the beginning each time: among those that are free the order of the document decides.
        let free = (0..steps.len())
            .find(|n| !done.contains(n) && needs.get(*n).is_some_and(|needs| needs.is_subset(&done)));
        let Some(free) = free else { return Err(find_cycle(steps, &needs, &done)) };
        done.insert(free);
        order.push(free);
    }
    Ok(order)
}

/// Returns the ids of the steps that a step waits for.
pub fn dependencies(step: &WorkStep) -> impl Iterator<Item = &str> {
    step.after.iter().chain(&step.artifacts_from).map(String::as_str)
}

/// Follows unmet dependencies until a step comes again.
fn find_cycle(steps: &[WorkStep], needs: &[BTreeSet<usize>], done: &BTreeSet<usize>) -> PlanError {
    let id = |n: usize| steps.get(n).map_or_else(String::new, |step| step.id.clone());
    let mut path: Vec<usize> = Vec::new();
    let mut at = (0..steps.len()).find(|n| !done.contains(n)).unwrap_or(0);
    // Each step that is not done waits for one that is not done either, so a step comes again.
    while !path.contains(&at) && path.len() <= steps.len() {
        path.push(at);
        at = needs.get(at).and_then(|needs| needs.difference(done).next().copied()).unwrap_or(at);
    }
    let start = path.iter().position(|n| *n == at).unwrap_or(0);
    let names = path.get(start..).unwrap_or_default().iter().map(|n| id(*n)).chain([id(at)]).collect();
    PlanError::new(format!("steps.{at}.after"), PlanProblem::Cycle(names))
}

/// The state of a step, as far as the order of others depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepPhase {
    /// It has not begun.
    Waiting,
    /// It is under way.
    Running,
    /// It is done and its checks pass.
    Done,
    /// It has ended otherwise; steps that depend on it cannot begin.
    Ended,
}

/// Returns the indexes of the steps that may begin now, in the order of the document: their dependencies are done, at most
/// `most` run at once, and none changes what another one that runs changes.
pub fn steps_to_begin(steps: &[WorkStep], states: &[StepPhase], most: usize) -> Vec<usize> {
    let state = |n: usize| states.get(n).copied().unwrap_or(StepPhase::Waiting);
    let is_done = |name: &str| {
        let place = steps.iter().position(|step| step.id == name);
        place.is_some_and(|place| state(place) == StepPhase::Done)
    };
    let mut running: Vec<&WorkStep> = steps
        .iter()
        .enumerate()
        .filter(|(n, _)| state(*n) == StepPhase::Running)
        .map(|(_, step)| step)
        .collect();
    let mut begins = Vec::new();
    for (n, step) in steps.iter().enumerate() {
        let is_free = state(n) == StepPhase::Waiting && dependencies(step).all(is_done);
        if is_free
            && running.len() < most.min(MAX_PARALLEL)
            && !running.iter().any(|other| is_conflict(step, other))
        {
            // The next ones must not conflict with this one either.
            running.push(step);
            begins.push(n);
        }
    }
    begins
}

/// Returns true if two steps must not run at the same time: one may change what the other changes. A step that does not
/// say what it changes may change everything.
pub fn is_conflict(one: &WorkStep, other: &WorkStep) -> bool {
    if one.writes.is_empty() || other.writes.is_empty() {
        return true;
    }
    one.writes
        .iter()
        .any(|path| other.writes.iter().any(|other| is_inside(path, other) || is_inside(other, path)))
}

/// Returns true if a path is a folder or lies in it. The work's own folder (`.`) contains everything.
pub(crate) fn is_inside(path: &str, folder: &str) -> bool {
    let parts = |path: &str| -> Vec<String> {
        path.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect()
    };
    parts(path).starts_with(&parts(folder))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn step(id: &str, after: &[&str], writes: &[&str]) -> WorkStep {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        WorkStep { id: id.to_owned(), after: texts(after), writes: texts(writes), ..WorkStep::default() }
    }

    /// Rows: SIL-179 (in part: the order, and that a cycle has none; running them is the harness's)
    #[test]
    fn a_diamond_is_ordered_by_its_edges_and_a_cycle_is_named() {
        let diamond = [
            step("d", &["b", "c"], &[]),
            step("b", &["a"], &[]),
            step("c", &["a"], &[]),
            step("a", &[], &[]),
        ];
        assert_eq!(order_steps(&diamond).expect("has an order"), [3, 1, 2, 0]);
        let cycle =
            [step("x", &[], &[]), step("a", &["b"], &[]), step("b", &["c"], &[]), step("c", &["a"], &[])];
        let error = order_steps(&cycle).expect_err("a cycle");
        assert_eq!(error.problem, PlanProblem::Cycle(["a", "b", "c", "a"].map(str::to_owned).to_vec()));
        assert!(matches!(
            order_steps(&[step("a", &["a"], &[])]),
            Err(PlanError { problem: PlanProblem::Cycle(_), .. })
        ));
    }

    #[test]
    fn steps_that_change_the_same_do_not_run_at_once() {
        let steps = [
            step("a", &[], &["src/a.rs"]),
            step("b", &[], &["src"]),
            step("c", &[], &["docs/"]),
            step("d", &[], &[]),
            step("e", &["a"], &["x"]),
        ];
        use StepPhase::{Done, Ended, Running, Waiting};
        let begin = |states: [StepPhase; 5], most| steps_to_begin(&steps, &states, most);
        assert_eq!(
            begin([Waiting; 5], 8),
            [0, 2],
            "b conflicts with a; d may change everything; e waits for a"
        );
        assert_eq!(begin([Waiting; 5], 1), [0]);
        assert_eq!(begin([Done, Waiting, Waiting, Waiting, Waiting], 8), [1, 2, 4]);
        assert_eq!(
            begin([Ended, Done, Done, Done, Waiting], 8),
            [0_usize; 0],
            "what it waits for has failed"
        );
        assert_eq!(begin([Done, Running, Running, Waiting, Done], 8), [0_usize; 0]);
        assert!(
            is_conflict(&steps[0], &step("f", &[], &["."]))
                && !is_conflict(&steps[0], &step("f", &[], &["src/a"]))
        );
    }

    proptest! {
        /// Any graph gets an order in which every edge holds, or a cycle whose edges are all there.
        #[test]
        fn an_order_keeps_every_edge(edges in proptest::collection::vec((0_usize..8, 0_usize..8), 0..16)) {
            let steps: Vec<WorkStep> = (0..8_usize)
                .map(|n| {
                    let after: Vec<String> =
                        edges.iter().filter(|(from, _)| *from == n).map(|(_, to)| format!("s{to}")).collect();
                    WorkStep { id: format!("s{n}"), after, ..WorkStep::default() }
                })
                .collect();
            match order_steps(&steps) {
                Ok(order) => {
                    let place = |n: usize| order.iter().position(|m| *m == n).expect("each is there");
                    prop_assert!(edges.iter().all(|(from, to)| place(*to) < place(*from)));
                }
                Err(PlanError { problem: PlanProblem::Cycle(names), .. }) => {
                    prop_assert!(names.len() >= 2 && names.first() == names.last());
                    for pair in names.windows(2) {
                        let from = steps.iter().find(|step| step.id == pair[0]).expect("is there");
                        prop_assert!(from.after.contains(&pair[1]));
                    }
                }
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            }
        }
    }
}
