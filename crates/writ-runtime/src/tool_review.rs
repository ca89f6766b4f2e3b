//! The review of the tools that other programs offer: once a month as a job, which sends its summary to the owner, and at any time
//! on request. It changes nothing: a clean-up is one question in a session of its own, and is done if the owner approves it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use writ_inspect::prepared::Prepared;
use writ_policy::budget::Spent;
use writ_store::batch::{Batch, Op};
use writ_store::reads::ToolReads as _;
use writ_store::tools::{MAX_COUNTED_TOOLS, ToolOp, ToolRuns};
use writ_tools::review::{MAX_REVIEWED, ReviewedTool, review_tools};
use writ_types::action::{Action, ModifySelf, TOOL_LIST};
use writ_types::api::tool::{ToolHealth, ToolPair, ToolReview};
use writ_types::digest::Digest;
use writ_types::taint::{Label, Taint};
use writ_types::unit::Timestamp;

use crate::door::RequestContext;
use crate::error::EngineError;
use crate::jobs::Progress;
use crate::passage::QuestionResult;
use crate::perform::tool_list::base_line;
use crate::services::Services;
use crate::session::{Session, Surface};
use crate::{asks, opening, passage, place};

/// The subject of the message to the owner.
const TITLE: &str = "Review of tools";

/// The harness's own word for what sets tools aside.
const CLEANUP: &str = "cleanup";

/// The most tools that the purpose of a clean-up names; its card has all of them.
const MAX_NAMED: usize = 8;

/// The summary where there is nothing to review.
const NO_TOOLS: &str = "There are no tools of servers to review.";

/// The time after which the counters of a removed tool are forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Reviews the tools as a job: notes which there are, and sends the summary to the owner.
///
/// # Errors
///
/// If the store cannot be used.
pub(crate) async fn run_review(services: &Arc<Services>) -> Result<Progress, EngineError> {
    let now = services.journal.clock.now();
    let rows = services.journal.store.tool_runs(MAX_COUNTED_TOOLS).await?;
    let offered = offered_tools(services);
    let mut ops: Vec<Op> =
        offered.keys().map(|tool| Op::Tools(ToolOp::Seen { tool: tool.clone(), at: now })).collect();
    let is_old = |row: &&ToolRuns| now.time_since(row.last_run.unwrap_or(row.first_seen)) > FORGOTTEN_AFTER;
    let gone = rows.iter().filter(|row| !offered.contains_key(&row.tool)).filter(is_old);
    ops.extend(gone.map(|row| Op::Tools(ToolOp::Forget { tool: row.tool.clone() })));
    let review = review_of(rows, offered, now);
    let mut summary = review.summary.join("\n");
    if let Some(question) = propose_cleanup(services, &review).await? {
        summary.push('\n');
        summary.push_str(&question);
    }
    // Names and descriptions are those of other programs.
    let message = services.journal.outbox.append_report((TITLE, &summary, Taint::External), now);
    let has_message = !message.is_empty();
    ops.extend(message);
    if !ops.is_empty() {
        services.journal.store.commit(Batch::relaxed(ops)).await?;
    }
    if has_message {
        services.journal.outbox.call_for_delivery();
    }
    Ok(Progress::Complete)
}

/// Reviews the tools as they are now.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn review_now(services: &Services) -> Result<ToolReview, EngineError> {
    let rows = services.journal.store.tool_runs(MAX_COUNTED_TOOLS).await?;
    Ok(review_of(rows, offered_tools(services), services.journal.clock.now()))
}

/// Asks about setting aside the tools that are unused or fail, in a session of its own. Returns the sentence about the question for the
/// summary; `None`: there is nothing to clean up.
async fn propose_cleanup(
    services: &Arc<Services>,
    review: &ToolReview,
) -> Result<Option<String>, EngineError> {
    let found: BTreeSet<&String> = review.unused.iter().chain(&review.failing).collect();
    if found.is_empty() {
        return Ok(None);
    }
    let before = services.servers.set_aside();
    let mut aside = before.clone();
    aside.extend(found.iter().map(|name| (*name).clone()));
    let session = opening::open_session(services, None, false, false, Surface::Local).await?;
    let place = place::outside_turn(services, Arc::clone(&session)).await?;
    let standing = RequestContext::of(&place.authority, Spent::default());
    let prepared = prepare_list(services, &session, (&before, &aside), &found);
    let passage = passage::pass_to_person(services, prepared, standing).await?;
    let asked = match passage {
        QuestionResult::Ask(ask) => asks::open_ask(services, &session, *ask, "").await?,
        QuestionResult::Denied(denial) => Err(denial.text),
        QuestionResult::Unasked => Err("a rule of yours asks nobody about it".to_owned()),
    };
    Ok(Some(match asked {
        Ok(ask) => format!(
            "Clean-up: {} of them can be set aside, which `writ approvals show {ask}` shows; without an answer nothing changes.",
            found.len()
        ),
        Err(why) => format!("No clean-up is asked about: {why}"),
    }))
}

/// Prepares the list of the tools that are not offered.
fn prepare_list(
    services: &Services,
    session: &Session,
    (before, aside): (&BTreeSet<String>, &BTreeSet<String>),
    found: &BTreeSet<&String>,
) -> Prepared {
    let content = list_text(before, aside);
    let names: Vec<&str> = found.iter().take(MAX_NAMED).map(|name| name.as_str()).collect();
    let more = if found.len() > MAX_NAMED { ", …" } else { "" };
    Prepared {
        action: Action::ModifySelf(ModifySelf {
            path: TOOL_LIST.to_owned(),
            digest: Digest::of_bytes(content.as_bytes()),
            content: Some(content),
        }),
        agent: services.config.agent.clone(),
        session: Some(session.id),
        turn: None,
        turn_number: 0,
        call: None,
        tool: CLEANUP.to_owned(),
        sinks: Vec::new(),
        // The names are those of other programs.
        label: Label::new(Taint::External),
        bindings: BTreeMap::new(),
        idempotent: true,
        intent: format!("tools: set aside {}{more}", names.join(", ")),
    }
}

/// Writes the list as a file. Names of tools, as models know them, have no character that would have to be escaped.
fn list_text(before: &BTreeSet<String>, aside: &BTreeSet<String>) -> String {
    let mut text = base_line(before);
    text.push_str(
        "# Tools of servers that are not offered. A review of tools has proposed them, and you have approved it.\n\
         # Without its line a tool is offered again, from the next `writ mcp list` on.\nset_aside = [\n",
    );
    for name in aside {
        text.push_str(&format!("  \"{name}\",\n"));
    }
    text.push_str("]\n");
    text
}

/// Returns the tools of other programs with their descriptions.
fn offered_tools(services: &Services) -> BTreeMap<String, String> {
    services.servers.registry().foreign_descriptions().take(MAX_REVIEWED).collect()
}

fn review_of(rows: Vec<ToolRuns>, offered: BTreeMap<String, String>, now: Timestamp) -> ToolReview {
    let known: BTreeMap<String, ToolRuns> = rows.into_iter().map(|row| (row.tool.clone(), row)).collect();
    let tool = |(name, description): (String, String)| match known.get(&name) {
        Some(row) => ReviewedTool {
            name,
            description,
            first_seen: row.first_seen,
            last_run: row.last_run,
            runs: row.runs,
            failures: row.failures,
            total: Duration::from_millis(row.total_ms),
        },
        None => ReviewedTool {
            name,
            description,
            first_seen: now,
            last_run: None,
            runs: 0,
            failures: 0,
            total: Duration::ZERO,
        },
    };
    let tools: Vec<ReviewedTool> = offered.into_iter().map(tool).collect();
    let findings = review_tools(&tools, now);
    let summary = if tools.is_empty() { vec![NO_TOOLS.to_owned()] } else { findings.describe_groups() };
    ToolReview {
        at: now.to_string(),
        tools: tools.iter().map(health_of).collect(),
        unused: findings.unused,
        failing: findings.failing,
        slow: findings.slow,
        alike: findings.alike.into_iter().map(|(one, other)| ToolPair { one, other }).collect(),
        summary,
    }
}

fn health_of(tool: &ReviewedTool) -> ToolHealth {
    let average = tool.total.as_millis() / u128::from(tool.runs.max(1));
    ToolHealth {
        tool: tool.name.clone(),
        runs: tool.runs,
        failures: tool.failures,
        average_ms: u64::try_from(average).unwrap_or(u64::MAX),
        last_run: tool.last_run.map(|at| at.to_string()),
    }
}
