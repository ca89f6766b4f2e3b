//! `writ keys order …`: leave for unattended work, signed in a terminal with the approver key.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use writ_inspect::show::escape_line;
use writ_policy::keys::document::DocumentError;
use writ_policy::order::{Capabilities, OrderClaims, OrderToken, check_content};
use writ_runtime::methods::Method;
use writ_types::error::Exit;
use writ_types::id::KeyId;
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use super::{given, in_force};
use crate::approve;
use crate::args::OrderCommand;
use crate::client::EngineClient;
use crate::clock;
use crate::cmd::project::project_path;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use crate::keyring::open_approver_key;
use crate::terminal;

/// The content of an order.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OrderDocument {
    name: String,
    capabilities: Capabilities,
    max_turns: u64,
    max_tokens: u64,
    /// In micro-USD.
    max_cost: Option<u64>,
    project: Option<String>,
    expires: String,
}

/// Runs `writ keys order …`.
pub(super) fn run_order(context: &Context, command: &OrderCommand) -> Result<(), Failure> {
    match command {
        OrderCommand::Issue { file, yes } => block_on(issue_order(context, file, *yes)),
        OrderCommand::List => block_on(list_orders(context)),
        OrderCommand::Revoke { order, reason } => block_on(in_force::revoke_key(context, *order, reason)),
    }
}

async fn issue_order(context: &Context, file: &Path, yes: bool) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    let wrong = |text: String| given::document_failure(file, &DocumentError(text));
    let document: OrderDocument =
        serde_json::from_value(given::read_document(file)?).map_err(|error| wrong(error.to_string()))?;
    let expires = Timestamp::from_rfc_3339(&document.expires)
        .ok_or_else(|| wrong("expires must be a time such as 2026-12-31T00:00:00Z".to_owned()))?;
    // Orders are bound to the real path of a project.
    let project =
        document.project.as_deref().map(|path| project_path(context, Path::new(path))).transpose()?;
    let mut client = EngineClient::ensure(context).await?;
    let (installation, epoch) = approve::load_installation(&mut client).await?;
    let key = open_approver_key(context, &config)?.signing_key()?;
    let now = clock::now();
    let claims = OrderClaims {
        installation,
        epoch,
        order: KeyId::from_parts(now, clock::random()),
        name: document.name,
        project,
        capabilities: document.capabilities,
        max_tokens: Tokens::new(document.max_tokens),
        max_cost: document.max_cost.map(MicroUsd::new),
        max_turns: document.max_turns,
        issued_at: now,
        expires_at: expires,
        approver: hex::encode(key.verifying_key().as_bytes()),
    };
    // Checked before the person reads it, and again by the engine.
    check_content(&claims).map_err(|error| wrong(error.to_string()))?;
    claims.describe_lines().iter().for_each(|line| context.out.print_remark(line));
    if !yes {
        ask_yes(context)?;
    }
    let token = OrderToken::sign_claims(claims, &key)
        .map_err(|error| Failure::internal_error("signing the order", error))?;
    let kept = client.call_method(Method::OrdersIssue, json!({ "token": token })).await?;
    context.out.print_either(&kept, |kept| {
        let order = kept.get("order").and_then(Value::as_str).unwrap_or_default();
        vec![order.to_owned()]
    })
}

fn ask_yes(context: &Context) -> Result<(), Failure> {
    if !context.host.streams.is_interactive() {
        let hint = "look at what is printed, then run it again with --yes";
        return Err(Failure::new(Exit::Blocked, "order.no_terminal", "no person can be asked here", hint));
    }
    if terminal::confirm_yes(&context.host.streams, "Sign this standing order?")? {
        return Ok(());
    }
    let hint = "nothing is in force; run it again to sign it";
    Err(Failure::new(Exit::Denied, "order.declined", "it was not signed", hint))
}

async fn list_orders(context: &Context) -> Result<(), Failure> {
    let listed = EngineClient::ensure(context).await?.call_method(Method::OrdersList, json!({})).await?;
    context.out.print_either(&listed, |listed| {
        let rows = listed.get("orders").and_then(Value::as_array);
        let line = |row: &Value| {
            let text = |name: &str| {
                row.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), escape_line))
            };
            let [order, name, state, turns, most, until] =
                ["order", "name", "state", "turns", "max_turns", "expires_at"]
                    .map(|name| text(name).unwrap_or_default());
            format!("{order}  {name}  {state}  {turns} of {most} turns  until {until}")
        };
        rows.into_iter().flatten().map(line).collect()
    })
}
