//! The review of the tools that other programs offer: once a month as a job, which sends its summary to the owner, and at any time
//! on request. It changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use writ_store::batch::{Batch, Op};
use writ_store::reads::ToolReads as _;
use writ_store::tools::{MAX_COUNTED_TOOLS, ToolOp, ToolRuns};
use writ_tools::review::{MAX_REVIEWED, ReviewedTool, review_tools};
use writ_types::api::tool::{ToolHealth, ToolPair, ToolReview};
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use crate::error::EngineError;
use crate::jobs::Progress;
use crate::services::Services;

/// The subject of the message to the owner.
const TITLE: &str = "Review of tools";

/// The summary where there is nothing to review.
const NO_TOOLS: &str = "There are no tools of servers to review.";

/// The time after which the counters of a tool that is gone are forgotten.
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
    let summary = review_of(rows, offered, now).summary.join("\n");
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
