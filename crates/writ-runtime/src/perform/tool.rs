//! Performs calls of the tools of MCP servers.

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use writ_mcp::client::Client;
use writ_mcp::config::Readers;
use writ_mcp::elicitation::ElicitationReply;
use writ_mcp::error::McpError;
use writ_mcp::readers;
use writ_mcp::result::CallResult;
use writ_policy::permit::Permit;
use writ_store::batch::Op;
use writ_store::tools::{MAX_TOOL_NAME_BYTES, ToolOp};
use writ_tools::foreign::PIN;
use writ_tools::outcome::PerformedOutcome;
use writ_tools::render::UNKNOWN;
use writ_types::action::CallTool;
use writ_types::error::{Exit, Report, ToReport as _};
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use crate::error::EngineError;
use crate::mcp;
use crate::mcp::elicit::{self, MAX_QUESTIONS};
use crate::mcp::remote::{self, not_trusted};
use crate::pending::Pending;
use crate::place::CallPlace;
use crate::servers::Server;

/// Calls a tool of a server; starts the server if it does not run. The call is made only if the tool has the same pin as
/// when the call was requested.
///
/// # Errors
///
/// If the ledger cannot be written, or the sandbox cannot be used at all.
async fn call(
    place: &CallPlace,
    permit: Permit,
    call: &CallTool,
    cancel: &CancellationToken,
) -> Result<PerformedOutcome, EngineError> {
    let failed = |report| Ok(PerformedOutcome::Failed { report });
    let Some(server) = place.services.servers.known(&call.server) else {
        let text = format!("there is no server '{}' any more", call.server);
        return failed(Report::new(Exit::Usage, "mcp.unknown", text));
    };
    if !server.spec.tool_rule(&call.tool).allow {
        return failed(not_trusted());
    }
    if server.spec.url.is_some() {
        let visited = match remote::visit(&place.services, place, &server, permit, cancel).await? {
            Ok(visited) => visited,
            Err(unvisited) if unvisited.called => return Ok(broken(unvisited.report, call)),
            Err(unvisited) => return failed(unvisited.report),
        };
        mcp::note_tools(&place.services, place, &server, &visited.live.tools).await?;
        return match visited.answer {
            Some(answer) => Ok(answer_outcome(&server, call, answer)),
            None => failed(not_trusted()),
        };
    }
    let busy = match mcp::server(&place.services, place, &server, cancel).await? {
        Ok(busy) => busy,
        // The hint quotes the server: the owner may read it, the model may not.
        Err(report) => return failed(Report { hint: String::new(), ..report }),
    };
    if !busy.0.is_pinned(&call.tool, permit.prepared().bindings.get(PIN)) {
        return failed(not_trusted());
    }
    if permit.open(place.services.journal.clock.now()).is_err() {
        return failed(started_late(&server));
    }
    let answer = ask_and_call(place, &server, &busy.0.client, call, cancel).await?;
    if answer.as_ref().is_err_and(McpError::is_final) {
        busy.0.give_up();
    }
    Ok(answer_outcome(&server, call, answer))
}

/// Makes a call as [`call`] does, and counts it among the runs of its tool.
///
/// # Errors
///
/// As [`call`].
pub(super) async fn call_counted(
    place: &CallPlace,
    permit: Permit,
    (requested, cancel): (&CallTool, &CancellationToken),
    ops: &mut Pending,
) -> Result<PerformedOutcome, EngineError> {
    let (clock, tool) = (&place.services.journal.clock, permit.prepared().tool.clone());
    let began = clock.now();
    let outcome = call(place, permit, requested, cancel).await?;
    ops.push(count_run(&tool, (began, clock.now()), &outcome));
    Ok(outcome)
}

/// Returns the operation that counts a run of a tool.
fn count_run(tool: &str, (began, ended): (Timestamp, Timestamp), outcome: &PerformedOutcome) -> Op {
    let failed = matches!(
        outcome,
        PerformedOutcome::Failed { .. }
            | PerformedOutcome::Doubtful { .. }
            | PerformedOutcome::Called { is_error: true, .. }
    );
    let took_ms = u64::try_from(ended.time_since(began).as_millis()).unwrap_or(u64::MAX);
    // A longer name could not be counted, and the turn must not fail for that.
    let tool = tool.get(..tool.floor_char_boundary(MAX_TOOL_NAME_BYTES)).unwrap_or_default().to_owned();
    Op::Tools(ToolOp::Ran { tool, at: ended, took_ms, failed })
}

/// Returns the report for a call with a permit that expired while its server started.
fn started_late(server: &Server) -> Report {
    let text = format!(
        "the server '{}' took longer to start than a permission lasts. It runs now: make the call again",
        server.name
    );
    Report::new(Exit::Blocked, "mcp.started_late", text)
}

/// Makes a call, and passes questions that the server asks during it to a person.
///
/// # Errors
///
/// If the store cannot be written.
async fn ask_and_call(
    place: &CallPlace,
    server: &Server,
    client: &Client,
    call: &CallTool,
    cancel: &CancellationToken,
) -> Result<Result<CallResult, McpError>, EngineError> {
    let calling = client.call_tool(&call.tool, &call.arguments, server.spec.call_time(), cancel);
    let Some(mut listening) = client.listen_for_questions() else { return Ok(calling.await) };
    tokio::pin!(calling);
    let mut asked = 0_usize;
    loop {
        let question = tokio::select! {
            // After an answer no question matters any more.
            biased;
            answer = &mut calling => return Ok(answer),
            question = listening.next_question() => question,
        };
        asked += 1;
        let reply = if asked > MAX_QUESTIONS {
            ElicitationReply::Cancel
        } else {
            elicit::elicit(place, server, &question, client.connect_over(), cancel).await?
        };
        listening.reply(&question, reply);
    }
}

/// Maps the server's answer to the outcome of the call.
fn answer_outcome(
    server: &Server,
    call: &CallTool,
    answer: Result<CallResult, McpError>,
) -> PerformedOutcome {
    let rule = server.spec.tool_rule(&call.tool);
    let called = |text: String, structured: Option<Value>, is_error| PerformedOutcome::Called {
        readers: readers::of(&rule.readers, &text, structured.as_ref(), is_error),
        server: call.server.clone(),
        tool: call.tool.clone(),
        text,
        structured,
        is_error,
        taint: Taint::from(server.spec.taint),
        public: rule.readers == Readers::Public,
        secret: rule.readers == Readers::Secret,
    };
    match answer {
        Ok(result) => called(result.text, result.structured, result.is_error),
        Err(McpError::Refused { code, message, .. }) => {
            called(format!("error {code}: {message}"), None, true)
        }
        Err(error) => broken(error.report(), call),
    }
}

/// Maps an interrupted call to its outcome: unknown if the tool may have changed something, and failed
/// otherwise.
fn broken(report: Report, call: &CallTool) -> PerformedOutcome {
    match call.effect {
        true => PerformedOutcome::Doubtful { report: report.with_hint(UNKNOWN) },
        false => PerformedOutcome::Failed { report },
    }
}
