//! `writ keys approver …`: who may approve. Leave to enrol a passkey is signed here, in a terminal.

use serde_json::{Value, json};
use writ_inspect::show::escape_line;
use writ_inspect::webauthn::Passkey;
use writ_policy::enrolment::{ENROLMENT_TTL, EnrolmentClaims, EnrolmentGrant};
use writ_runtime::methods::Method;
use writ_store::approvals::ApproverKey;
use writ_types::digest::Digest;
use writ_types::id::KeyId;

use crate::approve;
use crate::args::ApproverCommand;
use crate::client::EngineClient;
use crate::clock;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use crate::keyring::{KeyRole, open_approver_key};
use crate::ledger::open_to_read;
use crate::page;

/// Runs `writ keys approver …`.
pub(crate) fn run_approver(context: &Context, command: &ApproverCommand) -> Result<(), Failure> {
    match command {
        ApproverCommand::List => list_approvers(context),
        ApproverCommand::Enrol { name } => block_on(enrol_passkey(context, name)),
        ApproverCommand::Rotate => super::rotate::rotate_key(context, KeyRole::Approver),
        ApproverCommand::Remove { key } => block_on(remove_approver(context, *key)),
    }
}

fn list_approvers(context: &Context) -> Result<(), Failure> {
    let keys = open_to_read(context, &context.load_ready_config()?)?.blocking().approver_keys()?;
    let rows: Vec<Value> = keys.iter().map(approver_value).collect();
    context.out.print_either(&json!({ "approvers": rows }), |_| keys.iter().map(describe_approver).collect())
}

/// Describes the reach of a key: the rung of the risk ladder, and the surfaces where it can be used.
fn approver_value(key: &ApproverKey) -> Value {
    let passkey = Passkey::from_bytes(&key.public_key);
    json!({
        "id": key.id,
        "kind": key.kind,
        "name": key.label,
        "site": passkey.as_ref().map(Passkey::site_id),
        "enrolled_at": key.enrolled_at.to_string(),
        "removed_at": key.revoked_at.map(|at| at.to_string()),
    })
}

fn describe_approver(key: &ApproverKey) -> String {
    let state = match key.revoked_at {
        None => format!("since {}", key.enrolled_at),
        Some(at) => format!("removed {at}"),
    };
    format!("{}  {:<8} {}  {state}", key.id, key.kind, escape_line(&key.label))
}

/// Signs leave to enrol one passkey, and prints the link that uses it. The code in it never reaches a server: it
/// stands behind the `#`, and the page shows it when its person adds the passkey.
async fn enrol_passkey(context: &Context, name: &str) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    // The page must be served: the passkey is added there.
    let (port, mut client) = page::find_served(context).await?;
    let ((installation, epoch), now) = approve::here_and_now(&mut client).await?;
    let key = open_approver_key(context, &config)?.signing_key()?;
    let code = hex::encode(clock::random_bytes());
    let claims = EnrolmentClaims {
        installation,
        epoch,
        code: Digest::of_bytes(code.as_bytes()),
        name: name.to_owned(),
        nonce: hex::encode(clock::random_bytes()),
        issued_at: now,
        expires_at: now.plus_duration(ENROLMENT_TTL),
        approver: hex::encode(key.verifying_key().as_bytes()),
    };
    let grant = EnrolmentGrant::sign_claims(claims, &key)
        .map_err(|error| Failure::internal_error("signing the leave", error))?;
    let given = client.call_method(Method::ApproversPermit, json!({ "grant": grant })).await?;
    let link = page::create_link(context, config.server.host, port)?;
    // Behind the number sign, where no server sees it.
    let link = format!("{link}#/review?enrol={code}");
    let result = json!({ "link": link, "code": code, "expires_at": given.get("expires_at") });
    context.out.print_either(&result, |_| {
        vec![
            format!("open this within ten minutes, and add the passkey there: {link}"),
            format!("in a page that is open already, the code is: {code}"),
        ]
    })
}

async fn remove_approver(context: &Context, key: KeyId) -> Result<(), Failure> {
    let removed = EngineClient::ensure(context)
        .await?
        .call_method(Method::ApproversRemove, json!({ "key": key }))
        .await?;
    context.out.print_either(&removed, |removed| {
        let name = removed.get("name").and_then(Value::as_str).map(escape_line).unwrap_or_default();
        vec![format!("removed {key} ({name}); it approves nothing from now on")]
    })
}
