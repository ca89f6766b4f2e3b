//! A plan as it is run: which steps there are, what each waits for, and which checks decide about it.

use writ_types::work::{PlanDocument, WorkKind, WorkStep};

use crate::order::dependencies;

/// Attempts at a step where the plan names no number: the first, and two that know what the checks have shown.
pub const DEFAULT_ATTEMPTS: u32 = 3;

/// The name of the step that a task without steps is.
pub const ONLY_STEP: &str = "task";

/// The name of the step that has the checks of the whole alone.
pub const WHOLE_STEP: &str = "the-whole";

/// Returns the steps of a plan as they are run. Those of a task come one after the other, and the last has the checks of
/// the whole, so that a failure is mended. A project ends with a step of those checks alone; a goal is such a step. A plan of the
/// autopilot has none of its own.
pub fn run_steps(plan: &PlanDocument) -> Vec<WorkStep> {
    let mut steps = plan.steps.clone();
    match plan.kind {
        WorkKind::Goal => return vec![checks_alone(plan, Vec::new())],
        // The autopilot says which of its units is worked on, and how often.
        WorkKind::Pilot => return Vec::new(),
        WorkKind::Project => {
            let all = steps.iter().map(|step| step.id.clone()).collect();
            // Without checks of the whole, those of the steps decide.
            if !plan.checks.is_empty() {
                steps.push(checks_alone(plan, all));
            }
        }
        WorkKind::Task => {
            if steps.is_empty() {
                steps.push(only_step(plan));
            }
            let names: Vec<String> = steps.iter().map(|step| step.id.clone()).collect();
            // Each step of a task waits for the one before it.
            for (step, before) in steps.iter_mut().skip(1).zip(names) {
                // The plan may name it already.
                if !step.after.contains(&before) {
                    step.after.push(before);
                }
            }
            // In a step of their own they would find a failure that no executor is there to mend.
            if let Some(last) = steps.last_mut() {
                last.checks.extend(plan.checks.iter().cloned());
            }
        }
    }
    steps
}

fn checks_alone(plan: &PlanDocument, after: Vec<String>) -> WorkStep {
    // A step of the plan may have that name already.
    let is_taken = |name: &str| plan.steps.iter().any(|step| step.id == name);
    let mut id = WHOLE_STEP.to_owned();
    while is_taken(&id) {
        id.push('-');
    }
    let title = "the checks of the whole".to_owned();
    WorkStep { id, title, after, checks: plan.checks.clone(), ..WorkStep::default() }
}

fn only_step(plan: &PlanDocument) -> WorkStep {
    let context = match plan.context.as_str() {
        "" => String::new(),
        context => format!("Context:\n{context}\n\nWhat to do:\n"),
    };
    WorkStep {
        id: ONLY_STEP.to_owned(),
        title: plan.title.clone(),
        instructions: format!("{context}{}", plan.instructions),
        ..WorkStep::default()
    }
}

/// Returns true if an executor works on a step; else it has checks alone.
pub const fn has_executor(step: &WorkStep) -> bool {
    !step.instructions.is_empty()
}

/// Returns the most attempts at a step: its own number, or that of the plan.
pub fn attempts_of(plan: &PlanDocument, step: &WorkStep) -> u32 {
    step.budget.max_attempts.or(plan.budget.max_attempts).unwrap_or(DEFAULT_ATTEMPTS).max(1)
}

/// Returns the numbers of the steps that each step waits for, in rising order.
pub fn dependency_numbers(steps: &[WorkStep]) -> Vec<Vec<usize>> {
    let number = |name: &str| steps.iter().position(|other| other.id == name);
    let numbers = |step: &WorkStep| {
        let mut after: Vec<usize> = dependencies(step).filter_map(number).collect();
        after.sort_unstable();
        after.dedup();
        after
    };
    steps.iter().map(numbers).collect()
}

#[cfg(test)]
mod tests {
    use writ_types::work::Check;

    use super::*;

    fn document(kind: WorkKind, steps: &[(&str, &[&str])], checks: usize) -> PlanDocument {
        let step = |(id, after): &(&str, &[&str])| WorkStep {
            id: (*id).to_owned(),
            instructions: "do it".to_owned(),
            after: after.iter().map(|name| (*name).to_owned()).collect(),
            ..WorkStep::default()
        };
        let check = |n: usize| Check {
            name: format!("check-{n}"),
            run: vec!["true".to_owned()],
            dir: None,
            timeout_secs: None,
            expect: Vec::new(),
        };
        PlanDocument {
            id: "mend".to_owned(),
            kind,
            title: "mend it".to_owned(),
            skills: Vec::new(),
            budget: Default::default(),
            steps: steps.iter().map(step).collect(),
            checks: (0..checks).map(check).collect(),
            gates: Vec::new(),
            on_stuck: Default::default(),
            interaction: None,
            cycle: None,
            context: "why".to_owned(),
            instructions: "how".to_owned(),
        }
    }

    fn shape(plan: &PlanDocument) -> Vec<(String, Vec<usize>, bool, usize)> {
        let steps = run_steps(plan);
        let after = dependency_numbers(&steps);
        let row =
            |(step, after): (WorkStep, _)| (step.id.clone(), after, has_executor(&step), step.checks.len());
        steps.into_iter().zip(after).map(row).collect()
    }

    /// The step that would mend a failure has the checks: the last one of a task. The whole of a project is checked alone.
    ///
    /// Rows: SIL-180 (in part: the whole is checked after all children)
    #[test]
    fn each_kind_of_plan_has_its_own_order_and_place_of_its_checks() {
        let (task, project) = (WorkKind::Task, WorkKind::Project);
        let row = |name: &str, after: &[usize], executor, checks| {
            (name.to_owned(), after.to_vec(), executor, checks)
        };
        assert_eq!(shape(&document(task, &[], 2)), [row("task", &[], true, 2)]);
        let two = [("a", &[][..]), ("b", &[][..])];
        assert_eq!(
            shape(&document(task, &two, 1)),
            [row("a", &[], true, 0), row("b", &[0], true, 1)],
            "one after the other"
        );
        let diamond = [("a", &[][..]), ("b", &["a"][..]), ("c", &["a"][..]), ("d", &["b", "c"][..])];
        assert_eq!(
            shape(&document(project, &diamond, 1)),
            [
                row("a", &[], true, 0),
                row("b", &[0], true, 0),
                row("c", &[0], true, 0),
                row("d", &[1, 2], true, 0),
                row("the-whole", &[0, 1, 2, 3], false, 1),
            ]
        );
        assert_eq!(shape(&document(WorkKind::Goal, &[], 1)), [row("the-whole", &[], false, 1)]);
        let taken = [("the-whole", &[][..])];
        assert_eq!(shape(&document(project, &taken, 1))[1].0, "the-whole-");
        let only = run_steps(&document(task, &[], 0)).remove(0);
        assert_eq!(only.instructions, "Context:\nwhy\n\nWhat to do:\nhow");
    }

    #[test]
    fn the_number_of_attempts_is_that_of_the_step_or_of_the_plan() {
        let mut plan = document(WorkKind::Task, &[("a", &[])], 0);
        let attempts = |plan: &PlanDocument| attempts_of(plan, &plan.steps[0]);
        assert_eq!(attempts(&plan), DEFAULT_ATTEMPTS);
        plan.budget.max_attempts = Some(5);
        assert_eq!(attempts(&plan), 5);
        plan.steps[0].budget.max_attempts = Some(1);
        assert_eq!(attempts(&plan), 1);
    }
}
