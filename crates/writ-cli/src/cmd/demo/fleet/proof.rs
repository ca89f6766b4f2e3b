//! The end of the demo: who held which case when, and both ledgers, verified by a program of another language.

use std::fs;

use serde_json::{Value, json};
use writ_fleet::cases::access::read_access;
use writ_runtime::methods::Method;
use writ_secrets::store::{EngineKey, SecretStore};
use writ_types::error::ToReport as _;

use crate::context::Context;
use crate::failure::Failure;
use crate::home::make_folder;
use crate::keyring::{KeyRole, public_keys};

use super::super::{not_so, print_text};
use super::place::FleetPlace;
use super::story::Story;

/// The verifier, which was written from the format's description alone.
const VERIFIER: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/verify-ledger/verify_ledger.py"));

/// Returns the public key of the proxy's ledger.
pub(super) fn proxy_key(context: &Context, place: &FleetPlace) -> Result<[u8; 32], Failure> {
    let config = context.load_config(None)?;
    // The demo's home has no passphrase.
    let secrets = SecretStore::open(&place.proxy("keys"), None, &config.secrets)?;
    // Only the public half goes on: a verifier needs nothing secret.
    Ok(secrets.signing_key(EngineKey::Harness)?.verifying_key().to_bytes())
}

/// Prints who held each case when, from the ledger.
pub(super) async fn show_holders(story: &Story<'_>) -> Result<(), Failure> {
    print_text(story.context, "\nWho held which case when, from the ledger:")?;
    for (name, case) in &story.cases {
        let access = read_access(story.engine.store(), &case.to_string())
            .await
            .map_err(|error| Failure::Report(Box::new(error.report())))?;
        // The same reading as `writ fleet access`.
        if !access.contradictions.is_empty() || access.intervals.is_empty() {
            return Err(not_so("a case had two holders at once, or none"));
        }
        for interval in &access.intervals {
            let until = interval.until.map_or_else(|| "now".to_owned(), |until| until.to_string());
            let key = interval.holder.task.map_or_else(
                || "a person".to_owned(),
                |hash| format!("key {}…", hash.to_string().chars().take(12).collect::<String>()),
            );
            let change = interval.ended_by.map_or("", |change| change.as_str());
            print_text(
                story.context,
                format!(
                    "  {name}  {} to {until}  {:<14} {key:<18} {change}",
                    interval.since, interval.holder.name
                ),
            )?;
        }
    }
    Ok(())
}

/// Has the independent verifier verify both ledgers: in a sandbox without a network, with the public keys alone.
pub(super) async fn verify_ledgers(story: &mut Story<'_>, proxy_key: [u8; 32]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::internal_error("writing what the verifier reads", error);
    let folder = story.place.root().join("verify");
    make_folder(&folder)?;
    fs::write(folder.join("verify_ledger.py"), VERIFIER).map_err(failed)?;
    let engine_key = public_keys(&story.context.home, KeyRole::Harness)?;
    let engine_key: Vec<String> = engine_key.iter().map(|key| hex::encode(key.as_bytes())).collect();
    fs::write(folder.join("engine.pub"), engine_key.join("\n")).map_err(failed)?;
    fs::write(folder.join("proxy.pub"), hex::encode(proxy_key)).map_err(failed)?;
    // Both before the verifier runs: each run in the sandbox adds entries to the ledger of the engine.
    let counts = [
        story.engine.export_to(&folder.join("engine.jsonl"))?,
        story.proxy.export_to(&folder.join("proxy.jsonl"))?,
    ];
    print_text(
        story.context,
        "\nBoth ledgers, by examples/verify-ledger: a program in Python with the public keys alone:",
    )?;
    for (name, count) in ["engine", "proxy"].into_iter().zip(counts) {
        // A snapshot that it cannot change, and no network: it has nothing but what it is given.
        let argv = ["python3", "verify_ledger.py", &format!("{name}.jsonl"), "--key", &format!("{name}.pub")];
        let project = folder.display().to_string();
        let params = json!({ "argv": argv, "project": project, "verification": true });
        let result = story.client.call_method(Method::SandboxExec, params).await?;
        // A run without an exit code has verified nothing.
        if result.get("exit_code").and_then(Value::as_i64) != Some(0) {
            return Err(not_so(&format!("the ledger of the {name} does not verify: {result}")));
        }
        print_text(story.context, format!("  {name:<6} VERIFIED, {count} entries"))?;
    }
    Ok(())
}
