//! `writ keys`: the public halves of the home's keys, and the keys that it gives out. Private halves are never printed.

use serde_json::json;
use writ_secrets::record::recorded_backend;

use crate::args::{BaseCommand, KeysCommand, RotateCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use crate::keyring::{KeyRole, public_keys};

mod approver;

mod given;

mod in_force;

mod order;

mod rotate;

mod sign;

/// Runs `writ keys …`.
pub(crate) fn run_keys(context: &Context, command: &KeysCommand) -> Result<(), Failure> {
    context.home.check_set_up()?;
    match command {
        KeysCommand::Root { command: None } => print_key(context, KeyRole::Root),
        KeysCommand::Root { command: Some(RotateCommand::Rotate) } => {
            rotate::rotate_key(context, KeyRole::Root)
        }
        KeysCommand::Harness { command: None } => print_key(context, KeyRole::Harness),
        KeysCommand::Harness { command: Some(RotateCommand::Rotate) } => {
            rotate::rotate_key(context, KeyRole::Harness)
        }
        KeysCommand::Approver { command: None } => print_key(context, KeyRole::Approver),
        KeysCommand::Approver { command: Some(command) } => approver::run_approver(context, command),
        KeysCommand::Inspect { file: None, .. } => inspect_keys(context),
        KeysCommand::Inspect { file: Some(file), base } => given::inspect_key(context, file, base.as_deref()),
        KeysCommand::Base(BaseCommand::Issue { file, out }) => given::issue_base_key(context, file, out),
        KeysCommand::Task(command) => given::run_task_command(context, command),
        KeysCommand::Order(command) => order::run_order(context, command),
        KeysCommand::Sign(args) => sign::sign_message(context, args),
        KeysCommand::Seal { file, out } => given::seal_key(context, file, out),
        KeysCommand::Check(args) => given::check_key(context, args),
        KeysCommand::List => block_on(in_force::list_keys(context)),
        KeysCommand::Revoke { key, reason } => block_on(in_force::revoke_key(context, *key, reason)),
    }
}

fn public_keys_hex(context: &Context, role: KeyRole) -> Result<Vec<String>, Failure> {
    let keys = public_keys(&context.home, role)?;
    Ok(keys.iter().map(|key| hex::encode(key.as_bytes())).collect())
}

fn print_key(context: &Context, role: KeyRole) -> Result<(), Failure> {
    let keys = public_keys_hex(context, role)?;
    // The newest key comes first.
    let newest = keys.first().cloned().unwrap_or_default();
    let result =
        json!({ "role": role.as_str(), "public_key": newest, "earlier": keys.get(1..).unwrap_or_default() });
    context.out.print_either(&result, |_| vec![newest])
}

fn inspect_keys(context: &Context) -> Result<(), Failure> {
    let backend = recorded_backend(&context.home.keys())?;
    let mut keys = Vec::new();
    for role in KeyRole::ALL {
        // Only the newest key of a role signs; the others verify older entries.
        for (n, key) in public_keys_hex(context, role)?.into_iter().enumerate() {
            keys.push(json!({ "role": role.as_str(), "public_key": key, "current": n == 0 }));
        }
    }
    let warning = backend.and_then(|backend| backend.warning_text());
    let result = json!({
        "backend": backend.map(|backend| backend.as_str()),
        "warning": warning,
        "keys": keys,
    });
    context.out.print_either(&result, |_| {
        let mut lines = vec![format!("kept in: {}", backend.map_or("nowhere", |backend| backend.as_str()))];
        lines.extend(keys.iter().map(|key| {
            let text = |name: &str| key.get(name).and_then(|text| text.as_str()).unwrap_or_default();
            format!("{:<9} {}", text("role"), text("public_key"))
        }));
        lines.extend(warning.map(|warning| format!("warning: {warning}")));
        lines
    })
}
