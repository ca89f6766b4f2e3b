//! `writ work`: items of work, from their plans to the evidence of their checks.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use writ_inspect::show::escape_line;
use writ_runtime::methods::{
    EngineMethod, WorkCancel, WorkList, WorkPause, WorkPropose, WorkResume, WorkRetry, WorkShow, WorkTag,
    WorkUntag,
};
use writ_types::api::work::{
    self, AttemptDetails, DomainChange, ItemName, PlanProposal, StepDetails, WorkDetails, WorkQuery,
    WorkState, WorkSummary,
};
use writ_types::error::Exit;

use crate::approve::{self, ApprovalChoice};
use crate::args::{DomainArgs, WorkArgs, WorkCommand};
use crate::client::EngineClient;
use crate::cmd::approvals::print_answer;
use crate::cmd::chat::end_with;
use crate::cmd::project::project_path;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

/// The time between two looks at an item that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The kind of the autopilot's plans.
const PILOT_KIND: &str = "pilot";
/// The largest plan that is read from a file, in bytes: more than any plan may have.
const MAX_PLAN_FILE: u64 = 1024 * 1024;

/// Runs `writ work …`.
pub(crate) fn run_work(context: &Context, command: &WorkCommand) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    block_on(async {
        let mut client = EngineClient::ensure(context).await?;
        match command {
            WorkCommand::List { all, domain } => {
                let query = WorkQuery { domain: domain.clone() };
                let mut listed = client.ask::<WorkList>(&query).await?;
                if !all {
                    leave_attempts_out(&mut listed);
                }
                context.out.print_either(&listed, |listed| {
                    let lines: Vec<String> = listed.items.iter().map(describe_item).collect();
                    if lines.is_empty() { vec!["there is no work item".to_owned()] } else { lines }
                })
            }
            WorkCommand::Show(args) => show_item(context, &mut client, args).await,
            WorkCommand::Propose { file, project } => {
                propose(context, &mut client, file, project.as_deref()).await
            }
            WorkCommand::Approve { item, yes, reason } => {
                let name = ItemName { item: item.item.clone() };
                let shown = client.ask::<WorkShow>(&name).await?;
                let ask = match (shown.summary.state, shown.summary.ask) {
                    (WorkState::Proposed, Some(ask)) => ask,
                    (state, _) => return Err(nothing_asked(&item.item, state)),
                };
                let card = approve::load_card(&mut client, &ask).await?;
                let once = ApprovalChoice::Once;
                let answered =
                    approve::approve_ask(context, &config, &mut client, (&card, &once), *yes, reason).await?;
                if !item.wait || context.out.json {
                    print_answer(context, &answered)?;
                }
                // The answer starts the item: its end is what `--wait` is about.
                if item.wait { show_item(context, &mut client, item).await } else { Ok(()) }
            }
            WorkCommand::Pause { item } => change::<WorkPause>(context, &mut client, item).await,
            WorkCommand::Resume(args) => {
                change::<WorkResume>(context, &mut client, &args.item).await?;
                if args.wait { show_item(context, &mut client, args).await } else { Ok(()) }
            }
            WorkCommand::Cancel { item } => change::<WorkCancel>(context, &mut client, item).await,
            WorkCommand::Tag(args) => change_domain::<WorkTag>(context, &mut client, args).await,
            WorkCommand::Untag(args) => change_domain::<WorkUntag>(context, &mut client, args).await,
            WorkCommand::Retry { item } => change::<WorkRetry>(context, &mut client, item).await,
        }
    })
}

/// Leaves out the attempts of the autopilot: one of its plans has hundreds.
fn leave_attempts_out(listed: &mut work::WorkList) {
    let plans: Vec<_> =
        listed.items.iter().filter(|item| item.kind == PILOT_KIND).map(|item| item.item).collect();
    listed.items.retain(|item| item.goal.is_none_or(|goal| !plans.contains(&goal)));
}

fn nothing_asked(item: &str, state: WorkState) -> Failure {
    Failure::new(
        Exit::Usage,
        "work.not_proposed",
        format!("the plan of '{}' waits for no answer: the item is {}", escape_line(item), state.name()),
        "`writ work retry ITEM` asks about it again",
    )
}

/// Changes an item and prints its new state.
async fn change<M>(context: &Context, client: &mut EngineClient, item: &str) -> Result<(), Failure>
where
    M: EngineMethod<Params = ItemName, Answer = WorkSummary>,
{
    let changed = client.ask::<M>(&ItemName { item: item.to_owned() }).await?;
    context.out.print_either(&changed, |item| vec![describe_item(item)])
}

/// Changes the domains of an item and prints it.
async fn change_domain<M>(
    context: &Context,
    client: &mut EngineClient,
    args: &DomainArgs,
) -> Result<(), Failure>
where
    M: EngineMethod<Params = DomainChange, Answer = WorkSummary>,
{
    let change = DomainChange { item: args.item.clone(), domain: args.domain.clone() };
    let changed = client.ask::<M>(&change).await?;
    context.out.print_either(&changed, |item| vec![describe_item(item)])
}

async fn propose(
    context: &Context,
    client: &mut EngineClient,
    file: &Path,
    project: Option<&Path>,
) -> Result<(), Failure> {
    let unread = |why: String| {
        let text = format!("the plan '{}' cannot be read: {why}", escape_line(&file.to_string_lossy()));
        Failure::new(Exit::Usage, "work.file", text, "name a file of text")
    };
    // Looked at first, so that a huge file is refused before it is read into memory.
    let size = std::fs::metadata(file).map_err(|error| unread(error.to_string()))?.len();
    if size > MAX_PLAN_FILE {
        return Err(unread(format!("it has {size} bytes")));
    }
    let plan = std::fs::read_to_string(file).map_err(|error| unread(error.to_string()))?;
    let project = Some(project_path(context, project.unwrap_or(Path::new(".")))?);
    let proposed = client.ask::<WorkPropose>(&PlanProposal { plan, project }).await?;
    context.out.print_either(&proposed, |item| {
        vec![describe_item(item), format!("`writ work approve {}` shows the plan and signs it", item.item)]
    })?;
    end_with(proposed.state.exit())
}

/// Shows an item, after its end if that is waited for. The exit code says how it stands.
async fn show_item(context: &Context, client: &mut EngineClient, args: &WorkArgs) -> Result<(), Failure> {
    let name = ItemName { item: args.item.clone() };
    let mut shown = client.ask::<WorkShow>(&name).await?;
    let mut told = String::new();
    while args.wait && !is_settled(&shown) {
        let progress = describe_progress(&shown);
        // Only what has changed, so that a long wait does not fill the screen.
        if progress != told {
            context.out.print_remark(&progress);
            told = progress;
        }
        sleep(LOOK_EVERY).await;
        shown = client.ask::<WorkShow>(&name).await?;
    }
    let exit = shown.summary.state.exit();
    if context.out.json {
        let mut value = json!(shown);
        if let Some(fields) = value.as_object_mut() {
            // Programs read the code here too: a pipe hides that of the command.
            fields.insert("exit".to_owned(), exit.code().into());
        }
        context.out.print_json(&value)?;
    } else {
        for line in describe_details(&shown) {
            context.out.print_line(line)?;
        }
    }
    end_with(exit)
}

/// Returns true if nothing more comes without a person, or if that will not end: a goal goes on for ever.
fn is_settled(shown: &WorkDetails) -> bool {
    shown.summary.state.is_at_rest() || shown.summary.kind == "goal"
}

fn describe_progress(shown: &WorkDetails) -> String {
    let running =
        shown.steps.iter().filter(|step| step.state.name() != "waiting" && step.state.name() != "done");
    let steps: Vec<String> = running
        .map(|step| {
            format!("{} {} (attempt {})", escape_line(&step.step), step.state.name(), step.attempts.len())
        })
        .collect();
    let WorkSummary { steps_done, steps: count, .. } = &shown.summary;
    format!("{steps_done} of {count} steps done; {}", steps.join(", "))
}

fn describe_item(item: &WorkSummary) -> String {
    let reason =
        if item.reason.is_empty() { String::new() } else { format!(" ({})", escape_line(&item.reason)) };
    let domains: String = item.domains.iter().map(|domain| format!(" #{domain}")).collect();
    format!(
        "{}  {:<11} {}/{} {} {}: {}{domains}{reason}",
        item.item,
        item.state.name(),
        item.steps_done,
        item.steps,
        escape_line(&item.kind),
        escape_line(&item.name),
        escape_line(&item.title),
    )
}

fn describe_details(shown: &WorkDetails) -> Vec<String> {
    let mut lines = vec![describe_item(&shown.summary)];
    let spent = &shown.summary.spending;
    let of_tokens = spent.max_tokens.map(|most| format!(" of {most}")).unwrap_or_default();
    let of_cost = spent.max_cost_micro_usd.map(|most| format!(" of {most}")).unwrap_or_default();
    lines.push(format!("used {}{of_tokens}, {}{of_cost}", spent.tokens, spent.cost_micro_usd));
    if let (WorkState::Proposed, Some(ask)) = (shown.summary.state, &shown.summary.ask) {
        lines.push(format!("its plan waits for you: `writ work approve {}` (ask {ask})", shown.summary.item));
    }
    lines.extend(shown.steps.iter().flat_map(describe_step));
    if !shown.report.is_empty() {
        lines.push("report:".to_owned());
        lines.extend(shown.report.lines().map(|line| format!("  {}", escape_line(line))));
    }
    lines
}

fn describe_step(step: &StepDetails) -> Vec<String> {
    let mut lines =
        vec![format!("{} {}: {}", step.state.name(), escape_line(&step.step), escape_line(&step.title))];
    lines.extend(step.attempts.iter().flat_map(describe_attempt));
    lines
}

fn describe_attempt(attempt: &AttemptDetails) -> Vec<String> {
    let verdict = if attempt.verdict.is_empty() { "not checked yet" } else { &attempt.verdict };
    let mut lines = vec![format!("  attempt {}: {}", attempt.attempt, escape_line(verdict))];
    if let Some(output) = &attempt.output {
        // As one line: it is the executor's own, and no evidence.
        let summary = output.summary.split_whitespace().collect::<Vec<_>>().join(" ");
        lines.push(format!("    it said: {}", escape_line(&summary)));
        lines.extend(output.artifacts.iter().map(|one| format!("    it names: {}", escape_line(one))));
        lines.extend(output.next_steps.iter().map(|one| format!("    it suggests: {}", escape_line(one))));
    }
    lines.extend(attempt.notices.iter().map(|notice| format!("    noticed: {}", escape_line(notice))));
    for check in &attempt.checks {
        let run: Vec<String> = check.run.iter().map(|argument| escape_line(argument)).collect();
        lines.push(format!("    {}: {} ({})", escape_line(&check.name), check.verdict, run.join(" ")));
        lines.extend(check.findings.iter().map(|finding| format!("      {}", escape_line(finding))));
    }
    lines
}
