//! `writ keys`: the public halves of the home's keys, and the keys that it gives out. Private halves are never printed.

use serde_json::json;
use writ_secrets::record::recorded;

use crate::args::{BaseCommand, KeysCommand, RotateCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use crate::keyring::{Role, public_keys};

mod approver;

mod given;

mod in_force;

mod order;

mod rotate;

mod sign;

/// Runs `writ keys …`.
pub(crate) fn run(context: &Context, command: &KeysCommand) -> Result<(), Failure> {
    context.home.check_set_up()?;
    match command {
        KeysCommand::Root { command: None } => one(context, Role::Root),
        KeysCommand::Root { command: Some(RotateCommand::Rotate) } => rotate::run(context, Role::Root),
        KeysCommand::Harness { command: None } => one(context, Role::Harness),
        KeysCommand::Harness { command: Some(RotateCommand::Rotate) } => rotate::run(context, Role::Harness),
        KeysCommand::Approver { command: None } => one(context, Role::Approver),
        KeysCommand::Approver { command: Some(command) } => approver::run(context, command),
        KeysCommand::Inspect { file: None, .. } => inspect(context),
        KeysCommand::Inspect { file: Some(file), base } => given::inspect(context, file, base.as_deref()),
        KeysCommand::Base(BaseCommand::Issue { file, out }) => given::issue(context, file, out),
        KeysCommand::Task(command) => given::task(context, command),
        KeysCommand::Order(command) => order::run(context, command),
        KeysCommand::Sign(args) => sign::run(context, args),
        KeysCommand::Seal { file, out } => given::seal(context, file, out),
        KeysCommand::Check(args) => given::check(context, args),
        KeysCommand::List => block_on(in_force::list(context)),
        KeysCommand::Revoke { key, reason } => block_on(in_force::revoke(context, *key, reason)),
    }
}

fn hexadecimal(context: &Context, role: Role) -> Result<Vec<String>, Failure> {
    let keys = public_keys(&context.home, role)?;
    Ok(keys.iter().map(|key| hex::encode(key.as_bytes())).collect())
}

fn one(context: &Context, role: Role) -> Result<(), Failure> {
    let keys = hexadecimal(context, role)?;
    // The newest key comes first.
    let newest = keys.first().cloned().unwrap_or_default();
    let result =
        json!({ "role": role.as_str(), "public_key": newest, "earlier": keys.get(1..).unwrap_or_default() });
    context.out.either(&result, |_| vec![newest])
}

fn inspect(context: &Context) -> Result<(), Failure> {
    let backend = recorded(&context.home.keys())?;
    let mut keys = Vec::new();
    for role in Role::ALL {
        // Only the newest key of a role signs; the others verify older entries.
        for (n, key) in hexadecimal(context, role)?.into_iter().enumerate() {
            keys.push(json!({ "role": role.as_str(), "public_key": key, "current": n == 0 }));
        }
    }
    let warning = backend.and_then(|backend| backend.warning());
    let result = json!({
        "backend": backend.map(|backend| backend.as_str()),
        "warning": warning,
        "keys": keys,
    });
    context.out.either(&result, |_| {
        let mut lines = vec![format!("kept in: {}", backend.map_or("nowhere", |backend| backend.as_str()))];
        lines.extend(keys.iter().map(|key| {
            let text = |name: &str| key.get(name).and_then(|text| text.as_str()).unwrap_or_default();
            format!("{:<9} {}", text("role"), text("public_key"))
        }));
        lines.extend(warning.map(|warning| format!("warning: {warning}")));
        lines
    })
}
