//! The plan of a work item as a person reads it: everything that is run and checked under it.

use writ_types::action::WorkOrder;
use writ_types::interaction::InteractionMode;
use writ_types::work::{
    Check, GoalCycle, JsonExpectation, OnFailure, OnStuck, PlanDocument, PlannedCall, Predicate, WorkBudget,
    WorkKind, WorkStep,
};

use super::{Page, escape_line, quote_argument};

pub(super) fn describe_order(order: &WorkOrder, page: &mut Page) {
    // Each field is named, so that one that is added has to be shown, too.
    let WorkOrder { item, round, session, project, document } = order;
    let PlanDocument {
        id,
        kind,
        title: _,
        skills,
        budget,
        steps,
        checks,
        gates,
        on_stuck,
        interaction,
        cycle,
        context,
        instructions,
    } = document;
    page.add_line("work", &format!("{} {} ({item}, in session {session})", kind.name(), quote_argument(id)));
    if *round > 0 {
        page.add_line("again", &format!("it was proposed {round} times before; what is done stays done"));
    }
    page.add_line(
        "runs",
        "programs and changes of files, in a sandbox of its own; what leaves the sandbox asks as always",
    );
    page.add_line("then", &describe_end(*kind, project.as_deref()));
    describe_cycle(cycle.as_ref(), page);
    add_names("skills", skills, page);
    add_names("gates", gates, page);
    describe_budget(budget, page);
    let stuck = match on_stuck {
        OnStuck::ConsultPlanner => "the planner is asked for advice once, then you are asked",
        OnStuck::AskPerson => "you are asked",
        OnStuck::Stop => "it ends with a report",
    };
    page.add_line("if stuck", stuck);
    describe_interaction(*interaction, page);
    if !context.is_empty() {
        page.add_block("context", context);
    }
    page.add_block("to do", instructions);
    for (n, step) in (1_u64..).zip(steps) {
        page.0.push('\n');
        describe_step((n, steps.len()), *kind, step, page);
    }
    if !steps.is_empty() {
        page.0.push('\n');
    }
    for check in checks {
        describe_check(check, page);
    }
    if *kind == WorkKind::Pilot {
        page.add_line("check", "the gates of the project, each time before a part of it counts as done");
    } else if checks.is_empty() && steps.iter().all(|step| step.checks.is_empty()) {
        page.add_line("check", "none: nothing will be proven");
    }
}

/// Describes where the changes come that pass.
fn describe_end(kind: WorkKind, project: Option<&str>) -> String {
    match project.map(quote_argument) {
        Some(project) if kind == WorkKind::Pilot => format!(
            "each unit is built in a work tree of {project}, into which its changes are put without another question; what is \
             built is merged once its checks have passed"
        ),
        Some(project) => {
            format!(
                "once every check has passed, its changes are put into {project} without another question"
            )
        }
        None => "its changes stay in its own folder".to_owned(),
    }
}

fn describe_cycle(cycle: Option<&GoalCycle>, page: &mut Page) {
    let Some(GoalCycle { every_minutes, on_failure }) = cycle else { return };
    let failure = match on_failure {
        OnFailure::Report => "you are told if one does not pass",
        OnFailure::SpawnTask => {
            "if one does not pass, a task that does what stands below begins without another question"
        }
    };
    page.add_line("repeats", &format!("the checks run every {every_minutes} minutes; {failure}"));
}

fn describe_interaction(mode: Option<InteractionMode>, page: &mut Page) {
    let Some(mode) = mode else { return };
    let text = match mode {
        InteractionMode::DefaultAndOffer => "the agent takes the usual choice and offers the others",
        InteractionMode::ActAndReport => "the agent asks nothing back and reports",
        InteractionMode::ConfirmOnlyWhenRequired => "the agent asks where consent is needed",
    };
    page.add_line("with you", text);
}

fn add_names(what: &str, names: &[String], page: &mut Page) {
    if !names.is_empty() {
        let names: Vec<String> = names.iter().map(|name| quote_argument(name)).collect();
        page.add_line(what, &names.join(", "));
    }
}

fn describe_budget(budget: &WorkBudget, page: &mut Page) {
    let WorkBudget { max_tokens, max_cost, max_attempts } = budget;
    let tokens = max_tokens.map(|most| format!("{most}"));
    let cost = max_cost.map(|most| format!("{most}"));
    let attempts = max_attempts.map(|most| format!("{most} attempts at each step"));
    let limits: Vec<String> = [tokens, cost, attempts].into_iter().flatten().collect();
    if !limits.is_empty() {
        page.add_line("at most", &limits.join(", "));
    }
}

fn describe_step((n, count): (u64, usize), kind: WorkKind, step: &WorkStep, page: &mut Page) {
    let WorkStep {
        id,
        title,
        instructions,
        after,
        artifacts_from,
        tools,
        skills,
        interaction,
        writes,
        budget,
        checks,
        calls,
    } = step;
    page.add_line("step", &format!("{n} of {count}, {}: {}", quote_argument(id), escape_line(title)));
    add_names("after", after, page);
    add_names("uses", artifacts_from, page);
    if kind == WorkKind::Project && after.is_empty() && artifacts_from.is_empty() {
        page.add_line("after", "nothing: it may run beside others");
    }
    add_names("tools", tools, page);
    add_names("skills", skills, page);
    describe_interaction(*interaction, page);
    add_names("changes", writes, page);
    describe_budget(budget, page);
    page.add_block("to do", instructions);
    for check in checks {
        describe_check(check, page);
    }
    for PlannedCall { tool, arguments, times, free } in calls {
        // The exact steps of the plan follow in full; here stands which step they are for.
        let free = if free.is_some() { ", a part left open" } else { "" };
        let words = serde_json::to_string(arguments).unwrap_or_default();
        page.add_line(
            "call",
            &format!("{} {} (up to {times} times{free})", quote_argument(tool), quote_argument(&words)),
        );
    }
}

fn describe_check(check: &Check, page: &mut Page) {
    let Check { name, run, dir, timeout_secs, expect } = check;
    let command: Vec<String> = run.iter().map(|argument| quote_argument(argument)).collect();
    let place = dir.as_ref().map(|dir| format!(", in {}", quote_argument(dir))).unwrap_or_default();
    let limit = timeout_secs.map(|secs| format!(", at most {secs} s")).unwrap_or_default();
    let command = if command.is_empty() { "looks at files".to_owned() } else { command.join(" ") };
    page.add_line("check", &format!("{}: {command}{place}{limit}", quote_argument(name)));
    for predicate in expect {
        page.add_line("expects", &describe_predicate(predicate));
    }
}

fn describe_predicate(predicate: &Predicate) -> String {
    match predicate {
        Predicate::ExitCode { code } => format!("exit status {code}"),
        Predicate::Equals { text } => format!("the output {}", quote_argument(text)),
        Predicate::Contains { text } => format!("{} in the output", quote_argument(text)),
        Predicate::Regex { pattern } => format!("an output that matches {}", quote_argument(pattern)),
        Predicate::OutputLt { limit } => format!("a number below {}", quote_argument(limit)),
        Predicate::OutputGt { limit } => format!("a number above {}", quote_argument(limit)),
        Predicate::FileExists { path } => format!("the file {}", quote_argument(path)),
        Predicate::NotEmpty => "some output".to_owned(),
        Predicate::Json { path, value } => {
            let value = match value {
                JsonExpectation::Equals { value } => format!("is {}", quote_argument(&value.to_string())),
                JsonExpectation::Lt { limit } => format!("is below {}", quote_argument(limit)),
                JsonExpectation::Gt { limit } => format!("is above {}", quote_argument(limit)),
                JsonExpectation::Exists => "is there".to_owned(),
            };
            format!("JSON in which {} {value}", quote_argument(path))
        }
    }
}
