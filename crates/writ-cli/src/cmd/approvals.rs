//! `writ approvals`: what the agent asks, and the person's answers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use writ_inspect::show::escape_line;
use writ_policy::pattern::standing::StandingLimits;
use writ_runtime::methods::{ApprovalsCadence, Method};
use writ_types::api::NoParams;
use writ_types::entry::Decision;
use writ_types::frame::Card;
use writ_types::id::AskId;
use writ_types::unit::Timestamp;

use crate::approve::{self, AnswerResult, ApprovalChoice};
use crate::args::ApprovalsCommand;
use crate::client::EngineClient;
use crate::cmd::chat::end_with;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

mod cadence;

mod review;

/// Runs `writ approvals …`.
pub(crate) fn run_approvals(context: &Context, command: &ApprovalsCommand) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    block_on(async {
        let mut client = EngineClient::ensure(context).await?;
        match command {
            ApprovalsCommand::List => list_approvals(context, &mut client).await,
            ApprovalsCommand::Show { ask } => {
                let card = approve::load_card(&mut client, ask).await?;
                context.out.print_either(&card, approve::describe_card)
            }
            ApprovalsCommand::Revoke { ask } => {
                let answer = client.call_method(Method::ApprovalsRevoke, json!({ "ask": ask })).await?;
                context.out.print_either(&answer, |_| vec![format!("the approval of {ask} is taken back")])
            }
            ApprovalsCommand::Review { approve: None, .. } => {
                let groups = review::load_groups(&mut client).await?;
                context.out.print_either(&json!({ "groups": groups }), |_| review::describe_groups(&groups))
            }
            ApprovalsCommand::Review { approve: Some(group), yes, reason } => {
                review::approve_group(context, &config, &mut client, (*group, *yes), reason).await
            }
            ApprovalsCommand::Cadence => {
                let measured = client.ask::<ApprovalsCadence>(&NoParams {}).await?;
                context.out.print_either(&measured, cadence::describe_cadence)
            }
            ApprovalsCommand::Standing => list_standing(context, &mut client).await,
            ApprovalsCommand::Hosts => list_hosts(context, &mut client).await,
            ApprovalsCommand::Approve {
                ask,
                task,
                values,
                host,
                set,
                standing,
                uses,
                days,
                total,
                yes,
                reason,
            } => {
                let set = set.iter().cloned().collect();
                // An id may be of a gate's question, which is answered unsigned.
                if answer_gate(context, &mut client, ask, (Decision::Approve, *yes), (reason, &set)).await? {
                    return Ok(());
                }
                let card = approve::load_card(&mut client, ask).await?;
                let given = match (task, standing) {
                    // The flags exclude each other, which the parser checks.
                    _ if *values => ApprovalChoice::Values,
                    _ if *host => ApprovalChoice::Host,
                    (_, true) => ApprovalChoice::Standing(StandingLimits {
                        uses: *uses,
                        ttl: Duration::from_secs(u64::from(*days).saturating_mul(24 * 60 * 60)),
                        total: total.clone(),
                    }),
                    (true, false) => ApprovalChoice::Task,
                    (false, false) => ApprovalChoice::Once,
                };
                let approving =
                    approve::approve_ask(context, &config, &mut client, (&card, &given), *yes, reason);
                let answered = approving.await?;
                print_answer(context, &answered)
            }
            ApprovalsCommand::Deny { ask, reason } => deny_ask(context, &mut client, ask, reason).await,
        }
    })
}

/// Denies an ask, or what a gate asks.
async fn deny_ask(
    context: &Context,
    client: &mut EngineClient,
    ask: &AskId,
    reason: &str,
) -> Result<(), Failure> {
    let none = BTreeMap::new();
    // A denial needs no confirmation: it lets nothing happen.
    if answer_gate(context, client, ask, (Decision::Deny, true), (reason, &none)).await? {
        return Ok(());
    }
    let answered = approve::send_answer(client, ask, Decision::Deny, None, reason).await?;
    print_answer(context, &answered)
}

/// Answers a gate that asks, if the ask is one of a gate, after showing the text that it asks about.
async fn answer_gate(
    context: &Context,
    client: &mut EngineClient,
    ask: &AskId,
    (decision, yes): (Decision, bool),
    (reason, set): (&str, &BTreeMap<String, String>),
) -> Result<bool, Failure> {
    let shown = client.call_method(Method::GatesShow, json!({ "ask": ask })).await?;
    if shown.is_null() {
        return Ok(false);
    }
    let text = shown.get("shown").and_then(Value::as_str).unwrap_or_default();
    for line in std::iter::once(describe_gate(&shown)).chain(text.lines().map(escape_line)) {
        if context.out.json { context.out.print_remark(line) } else { context.out.print_line(line)? }
    }
    if !yes {
        approve::confirm_ask(
            &context.host.streams,
            ask,
            if server_of(&shown).is_some() { "Tell it this?" } else { "Let it pass?" },
        )?;
    }
    let params = json!({ "ask": ask, "decision": decision, "reason": reason, "answers": set });
    let answer = client.call_method(Method::GatesAnswer, params).await?;
    let answered = answer.get("answered").and_then(Value::as_bool).unwrap_or(false);
    if answered {
        context
            .out
            .print_either(&json!({ "state": "answered" }), |_| vec!["it has its answer".to_owned()])?;
    }
    Ok(answered)
}

/// The server of tools that asks, if it is no gate.
fn server_of(asks: &Value) -> Option<&str> {
    let field = |name: &str| asks.get(name).and_then(Value::as_str).unwrap_or_default();
    // Questions of servers share the frames of gates and are recognised by their name.
    field("gate").strip_prefix("mcp:").filter(|_| field("point") == "server")
}

/// Returns the line that names the gate and its reason.
fn describe_gate(asks: &Value) -> String {
    let field = |name: &str| asks.get(name).and_then(Value::as_str).unwrap_or_default();
    escape_line(&match server_of(asks) {
        Some(server) => format!("the server '{}' asks you; {}", escape_line(server), field("reason")),
        None => format!("gate '{}' asks: {}", field("gate"), field("reason")),
    })
}

/// Prints what came of an answer.
///
/// # Errors
///
/// If what was approved did not succeed: how it ended.
pub(crate) fn print_answer(context: &Context, answered: &AnswerResult) -> Result<(), Failure> {
    let AnswerResult { state, reason, text, exit } = answered;
    let result = json!({ "state": state, "reason": reason, "text": text, "exit": exit.code() });
    context.out.print_either(&result, |_| {
        // How it ended comes first: the text may be long, or that of a program.
        let ending =
            if reason.is_empty() { state.clone() } else { format!("{state}: {}", escape_line(reason)) };
        let lines = text.lines().filter(|line| *line != ending).map(escape_line);
        std::iter::once(ending.clone()).chain(lines).collect::<Vec<_>>()
    })?;
    end_with(answered.exit)
}

/// Returns the approvals that cover more than one action.
async fn in_force(client: &mut EngineClient) -> Result<Vec<Value>, Failure> {
    let in_force = client.call_method(Method::ApprovalsInForce, json!({})).await?.get("approvals").cloned();
    Ok(in_force.and_then(|list| list.as_array().cloned()).unwrap_or_default())
}

/// One of them in a line.
fn describe_approval(approval: &Value) -> String {
    let text = |name: &str| approval.get(name).and_then(Value::as_str).unwrap_or_default();
    let left = approval.get("uses_left").and_then(Value::as_u64).unwrap_or(0);
    let total = approval.get("total_left").and_then(Value::as_str);
    let total = total.map(|total| format!(", {total} of the total")).unwrap_or_default();
    let scope = match text("scope") {
        "standing" => "standing",
        "plan" => "plan",
        "host" => return format!("{}  trusted: {}", text("ask_id"), text("covers")),
        "values" => return format!("{}  yours: {}", text("ask_id"), text("covers")),
        _ => "for the task",
    };
    format!(
        "{}  {scope}: {} ({left} times{total} left, until {})",
        text("ask_id"),
        text("covers"),
        text("expires_at")
    )
}

async fn list_standing(context: &Context, client: &mut EngineClient) -> Result<(), Failure> {
    // Trusted hosts and plans are listed elsewhere.
    let stands = |approval: &Value| approval.get("scope").and_then(Value::as_str) == Some("standing");
    let standing: Vec<Value> = in_force(client).await?.into_iter().filter(stands).collect();
    context.out.print_either(&json!({ "approvals": standing }), |_| {
        let lines: Vec<String> =
            standing.iter().map(|approval| escape_line(&describe_approval(approval))).collect();
        if lines.is_empty() { vec!["no approval stands".to_owned()] } else { lines }
    })
}

/// Lists the hosts that may be reached without a question.
async fn list_hosts(context: &Context, client: &mut EngineClient) -> Result<(), Failure> {
    let answer = client.call_method(Method::ApprovalsHosts, json!({})).await?;
    context.out.print_either(&answer, |_| {
        let hosts = answer.get("hosts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let lines: Vec<String> = hosts.iter().map(describe_host).collect();
        if lines.is_empty() { vec!["no host is listed, and none is trusted".to_owned()] } else { lines }
    })
}

fn describe_host(host: &Value) -> String {
    let text = |name: &str| host.get(name).and_then(Value::as_str).unwrap_or_default();
    // An unknown state of a newer engine is shown without words.
    let state = match text("state") {
        "asks" => "; asked about each time",
        "refused" => "; refused",
        _ => "",
    };
    escape_line(&match text("ask_id") {
        "" => format!("{}  (your configuration{})", text("domain"), state),
        ask => {
            let at =
                host.get("approved_at").cloned().and_then(|at| serde_json::from_value::<Timestamp>(at).ok());
            let at = at.map(|at| at.to_string()).unwrap_or_default();
            format!(
                "{}  (approved {at} by {}; `writ approvals revoke {ask}` takes it back{state})",
                text("domain"),
                text("by")
            )
        }
    })
}

async fn list_approvals(context: &Context, client: &mut EngineClient) -> Result<(), Failure> {
    let mut answer = client.call_method(Method::ApprovalsList, json!({})).await?;
    let in_force = in_force(client).await?;
    // People see what is in force only where something is; programs always get the field.
    if let Some(fields) = answer.as_object_mut().filter(|_| context.out.json) {
        fields.insert("in_force".to_owned(), in_force.into());
        return context.out.print_json(&answer);
    }
    for approval in &in_force {
        context.out.print_line(escape_line(&describe_approval(approval)))?;
    }
    let asks = answer.get("asks").cloned().unwrap_or(Value::Array(Vec::new()));
    let cards: Vec<Card> =
        serde_json::from_value(asks).map_err(|error| Failure::internal_error("reading the asks", error))?;
    let gates = answer.get("gates").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if cards.is_empty() && gates.is_empty() {
        return context.out.print_line("nothing is asked");
    }
    gates.iter().try_for_each(|gate| {
        let ask = gate.get("ask_id").and_then(Value::as_str).unwrap_or_default();
        context.out.print_line(format!("{ask}  {}", describe_gate(gate)))
    })?;
    cards.iter().try_for_each(|card| {
        let intent = escape_line(&card.intent);
        context.out.print_line(format!(
            "{}  {:<12} {intent}   (until {})",
            card.ask_id, card.action, card.expires_at
        ))
    })?;
    match answer.get("more").and_then(Value::as_u64) {
        Some(more) if more > 0 => {
            context.out.print_line(format!("and {more} more; they are listed when these are answered"))
        }
        Some(_) | None => Ok(()),
    }
}
