//! `writ keys list` and `writ keys revoke`: what agents act under now.

use serde_json::{Value, json};
use writ_runtime::methods::Method;
use writ_types::id::KeyId;

use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;

/// Lists the base key and the task keys of sessions.
pub(super) async fn list_keys(context: &Context) -> Result<(), Failure> {
    let mut client = EngineClient::ensure(context).await?;
    let keys = client.call_method(Method::KeysList, json!({})).await?;
    context.out.print_either(&keys, |keys| {
        let base = keys.get("base").unwrap_or(&Value::Null);
        let state = if base.get("revoked") == Some(&json!(true)) { "REVOKED" } else { "until" };
        let text = |value: &Value, name: &str| {
            value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let mut lines = vec![format!(
            "{}  base  agent {}  {state} {}",
            text(base, "key"),
            text(base, "agent"),
            text(base, "expires_at")
        )];
        let tasks = keys.get("tasks").and_then(Value::as_array);
        lines.extend(tasks.into_iter().flatten().map(|task| {
            let running = if task.get("running") == Some(&json!(true)) { "  a turn runs" } else { "" };
            let (key, session, until) = (text(task, "key"), text(task, "session"), text(task, "expires_at"));
            format!("{key}  task  session {session}  until {until}{running}")
        }));
        let issued = keys.get("issued").and_then(Value::as_array);
        lines.extend(issued.into_iter().flatten().map(|key| {
            let state = if key.get("revoked") == Some(&json!(true)) { "REVOKED" } else { "until" };
            let (id, role, agent) = (text(key, "key"), text(key, "role"), text(key, "agent"));
            let (about, until) = (text(key, "about"), text(key, "expires_at"));
            format!("{id}  {role:<4}  agent {agent}  {state} {until}  given out: {about}")
        }));
        lines
    })
}

/// Revokes one.
pub(super) async fn revoke_key(context: &Context, key: KeyId, reason: &str) -> Result<(), Failure> {
    let mut client = EngineClient::ensure(context).await?;
    let done = client.call_method(Method::KeysRevoke, json!({ "key": key, "reason": reason })).await?;
    context.out.print_either(&done, |done| {
        let stopped = done.get("stopped").and_then(Value::as_array).map_or(0, Vec::len);
        vec![format!("revoked; {stopped} turns are being stopped")]
    })
}
