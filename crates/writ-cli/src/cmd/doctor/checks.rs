//! The checks, from the ground up: what stands on something broken is not checked.

use std::collections::BTreeMap;
use std::path::Path;

use writ_inspect::webauthn::Passkey;
use writ_models::provider::{ModelsConfigError, Routes};
use writ_runtime::methods::Method;
use writ_sandbox::host::{HostError, host_git};
use writ_sandbox::status::Rung;
use writ_secrets::backend::Backend;
use writ_secrets::record::recorded;
use writ_store::approvals::ApproverKey;
use writ_types::credential::CredentialRef;
use writ_types::error::ToReport as _;
use writ_types::unit::Timestamp;

use super::{Check, network};
use crate::advice;
use crate::approve::clock_behind;
use crate::client::Client;
use crate::clock;
use crate::cmd::sandbox::{probe, ready};
use crate::config::{Config, policies, servers};
use crate::context::Context;
use crate::home::{check_folder, free_bytes};
use crate::interrupt::block_on;
use crate::keyring::{Role, open_secrets, public_keys};
use crate::ledger::open_to_read;

/// 2026-01-01: a clock before it is wrong, because this program is younger.
const EARLIEST: Timestamp = Timestamp::from_millis(1_767_225_600_000);
/// Below this much free space, in bytes, there is a warning: an overlay may take as much.
const LOW_SPACE: u64 = 2 * 1024 * 1024 * 1024;
/// Below this much free space, in bytes, nothing will work for long.
const NO_SPACE: u64 = 64 * 1024 * 1024;

/// Runs every check that can be run.
pub(super) fn all(context: &Context) -> Vec<Check> {
    let mut checks = vec![clock_check(), home(context)];
    let config = match context.config(None) {
        Ok(config) => {
            checks.push(Check::good("config", "the configuration is valid"));
            config
        }
        Err(failure) => {
            checks.push(Check::failed("config", failure));
            // Without a valid configuration the other checks would only repeat the error.
            return checks;
        }
    };
    checks.push(time_zone(&config));
    checks.push(match policies::load(&context.home, None) {
        Ok(rules) => Check::good("rules", format!("valid ({})", rules.digest())),
        Err(error) => Check::failed("rules", error.into()),
    });
    match servers::load(&context.home) {
        Ok(servers) if servers.is_empty() => {}
        Ok(servers) => checks.push(Check::good("servers", format!("{} of tools", servers.len()))),
        Err(error) => checks.push(Check::failed("servers", error.into())),
    }
    checks.extend(sandbox(&config));
    checks.push(git(context));
    if let Err(failure) = context.home.check_set_up() {
        checks.push(Check::failed("set up", failure.into()));
        return checks;
    }
    checks.extend(folders(context, &config));
    checks.push(space(&config.data_dir()));
    checks.extend(keys(context));
    checks.extend(database(context, &config));
    checks.extend(models(context, &config));
    checks.extend(network::all(context, &config));
    checks.extend(engine(context));
    checks
}

fn clock_check() -> Check {
    let now = clock::now();
    // A clock before the program's own date is certainly wrong.
    if now < EARLIEST {
        let text = format!("the clock says {now}, before this program was made");
        return Check::bad("clock", text, "set the clock: approvals and keys expire by it");
    }
    Check::good("clock", now.to_string())
}

/// The time zone of the owner, and whether programs in the sandbox find it.
fn time_zone(config: &Config) -> Check {
    const NAME: &str = "time zone";
    let set = "write `time_zone = \"Europe/Berlin\"`, or the one that you live in, into config.toml";
    match (&config.time_zone, &config.sandbox.time_zone) {
        (Err(unknown), _) => Check::warn(NAME, format!("the variable TZ: {unknown}; UTC is used"), set),
        (Ok(zone), None) => Check::warn(
            NAME,
            format!("it has no name; programs have UTC: {}", zone.moment(clock::now())),
            set,
        ),
        (Ok(zone), Some(name)) if !writ_sandbox::config::has_time_zone(name) => {
            let text = format!("{}; programs have UTC", zone.moment(clock::now()));
            Check::warn(NAME, text, "install the package tzdata: this machine has no files of time zones")
        }
        (Ok(zone), Some(_)) => Check::good(NAME, zone.moment(clock::now())),
    }
}

fn home(context: &Context) -> Check {
    match context.home.check() {
        Ok(()) => Check::good("home", context.home.root().display().to_string()),
        Err(error) => Check::failed("home", error.into()),
    }
}

fn folders(context: &Context, config: &Config) -> Vec<Check> {
    let mut folders = context.home.folders();
    folders.extend([config.data_dir(), config.overlays(), config.verify_dir()]);
    let bad: Vec<Check> = folders
        .iter()
        .filter_map(|folder| check_folder(folder).err())
        .map(|error| {
            let report = error.report();
            Check::bad("folders", report.outside, report.hint)
        })
        .collect();
    // One good line for all folders, but a line for each bad one.
    if bad.is_empty() { vec![Check::good("folders", "all are there and closed to others")] } else { bad }
}

fn space(folder: &Path) -> Check {
    let Some(free) = free_bytes(folder) else {
        return Check::warn("space", "the free space is not known", "");
    };
    let text = format!("{} MiB free", free / (1024 * 1024));
    match free {
        0..NO_SPACE => Check::bad("space", text, "free some space; nothing is performed on a full disk"),
        NO_SPACE..LOW_SPACE => Check::warn("space", text, "an overlay may take 2 GiB"),
        _ => Check::good("space", text),
    }
}

fn keys(context: &Context) -> Vec<Check> {
    let mut checks = Vec::new();
    match recorded(&context.home.keys()) {
        Ok(Some(backend)) => checks.push(match backend.warning() {
            None => Check::good("secrets", format!("kept in: {backend}")),
            Some(warning) => {
                let hint = "for a keyring or a passphrase, set secrets.backend and make the home anew";
                Check::warn("secrets", warning, hint)
            }
        }),
        Ok(None) => checks.push(Check::bad("secrets", "there are none", "run `writ init`")),
        Err(error) => checks.push(Check::failed("secrets", error.into())),
    }
    for role in Role::ALL {
        match public_keys(&context.home, role) {
            Ok(_) => {}
            Err(error) => checks.push(Check::failed("keys", error.into())),
        }
    }
    checks
}

/// The database with its migrations, its file system, the end of its ledger, and the enrolled approver.
fn database(context: &Context, config: &Config) -> Vec<Check> {
    let store = match open_to_read(context, config) {
        Ok(store) => store,
        Err(failure) => return vec![Check::failed("database", failure)],
    };
    let mut checks = Vec::new();
    match (store.ledger_size(), store.not_before()) {
        (Ok(size), Ok(not_before)) => {
            checks.push(Check::good("database", format!("opens; {size} entries in the ledger")));
            // The ledger's time is proof that the clock was set back.
            if not_before > clock::now() {
                let text = format!("behind the ledger, by whose latest entries it is past {not_before}");
                let hint = "set the clock and start the engine again; if the clock is right, plans, standing \
                            approvals and those for the task wait until then";
                checks.push(Check::bad("clock", text, hint));
            }
        }
        (Err(error), _) | (_, Err(error)) => checks.push(Check::failed("database", error.into())),
    }
    match store.approver_keys() {
        Ok(keys) => checks.extend(approvers(context, &keys)),
        Err(error) => checks.push(Check::failed("approver", error.into())),
    }
    checks
}

/// Checks the kinds of approval that the enrolled keys allow.
fn approvers(context: &Context, keys: &[ApproverKey]) -> Vec<Check> {
    let own = public_keys(&context.home, Role::Approver).unwrap_or_default();
    // Removed keys stay in the list, for the history.
    let mut in_force = keys.iter().filter(|key| key.revoked_at.is_none());
    let cli = in_force.clone().any(|key| own.iter().any(|own| own.as_bytes().as_slice() == key.public_key));
    let passkeys = in_force.by_ref().filter(|key| Passkey::from_bytes(&key.public_key).is_some()).count();
    let terminal = if cli {
        Check::good("approver", "the approver key is enrolled: `writ approvals approve` reaches high risks")
    } else {
        let text = "no approver key is enrolled: high risks cannot be approved in a terminal";
        Check::bad("approver", text, "run `writ init`: it enrols the key")
    };
    let page = match passkeys {
        0 => {
            let text = "none is enrolled: the page approves medium risks at most, and what cannot be undone \
                        cannot be approved";
            Check::warn("passkey", text, "`writ keys approver enrol` begins to enrol one")
        }
        1 => Check::good("passkey", "one is enrolled: every risk can be approved in the page"),
        many => {
            Check::good("passkey", format!("{many} are enrolled: every risk can be approved in the page"))
        }
    };
    vec![terminal, page]
}

fn sandbox(config: &Config) -> Vec<Check> {
    let status = match probe(config.sandbox.clone()) {
        Ok(status) => status,
        Err(failure) => return vec![Check::failed("sandbox", failure)],
    };
    let hint = status.hints.join("; ");
    let reduced = status.reduced.join("; ");
    let mut checks = vec![match status.rung {
        Rung::Full if reduced.is_empty() => Check::good("sandbox", "full"),
        Rung::Full => Check::warn("sandbox", format!("full; {reduced}"), hint),
        Rung::Reduced => Check::warn("sandbox", format!("reduced: {reduced}"), hint),
        Rung::Refuse => Check::bad("sandbox", format!("commands cannot be confined here: {reduced}"), hint),
    }];
    // Slower, but no less safe.
    if !status.overlay {
        checks.push(Check::warn("overlay", "projects are copied: slower, and they need space", ""));
    }
    let toolchains =
        if status.toolchains.is_empty() { "none found".into() } else { status.toolchains.join(", ") };
    checks.push(Check::good("toolchains", toolchains));
    checks
}

fn git(context: &Context) -> Check {
    let version = block_on(async {
        let folder = context.home.root().parent().unwrap_or(Path::new("/")).to_owned();
        Ok(host_git(&folder, &["--version".to_owned()]).await)
    });
    match version {
        Ok(Ok(output)) => Check::good("git", String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        Ok(Err(HostError::Start { .. })) => {
            Check::warn("git", "git is not installed: changes of agent/ are not recorded", "install git")
        }
        Ok(Err(HostError::Stopped { .. } | HostError::Foreign { .. })) => Check::good("git", "installed"),
        Err(failure) => Check::failed("git", failure),
    }
}

/// Checks that a model is configured and its key is there. Nothing is sent anywhere.
fn models(context: &Context, config: &Config) -> Vec<Check> {
    let routes = match Routes::new(&config.models) {
        Ok(routes) => routes,
        Err(ModelsConfigError::MissingDefault) => {
            let hint = "set models.default in config.toml; `writ chat` shows how";
            return vec![Check::warn("model", "no model is configured", hint)];
        }
        Err(error) => return vec![Check::failed("model", error.into())],
    };
    let mut checks = Vec::new();
    for (role, route) in routes.all() {
        let role = role.map_or("default".to_owned(), |role| role.to_string());
        checks.push(Check::good("model", format!("{role}: {}/{}", route.provider.name, route.model)));
    }
    if let Some(advice) = advice::main_model(config) {
        checks.push(Check::warn("model", advice, "set models.default to a more capable model"));
    }
    let keys: BTreeMap<&str, &CredentialRef> = routes
        .all()
        .filter_map(|(_, route)| Some((route.provider.name.as_str(), route.provider.key.as_ref()?)))
        .collect();
    checks.extend(keys.into_iter().map(|(name, key)| credential(context, config, name, key)));
    let told = "nothing was sent to a model; `writ models test` or `writ doctor --models` tries it";
    checks.push(Check::good("model", told));
    checks
}

fn credential(context: &Context, config: &Config, provider: &str, key: &CredentialRef) -> Check {
    let found = match key {
        CredentialRef::Env(name) => Ok(context.env.text(name).is_some()),
        CredentialRef::Secret(name) => match recorded(&context.home.keys()) {
            // A check asks no questions.
            Ok(Some(Backend::Age)) => {
                return Check::good(
                    "key",
                    format!("{provider}: {key} (not looked up: it needs the passphrase)"),
                );
            }
            Ok(Some(Backend::Keyring | Backend::Plain) | None) | Err(_) => open_secrets(context, config)
                .and_then(|store| {
                    let names = store.list()?;
                    Ok(names.contains(name))
                }),
        },
        // A check sends nothing away.
        CredentialRef::Vault { .. } if context.env.text("VAULT_ADDR").is_some() => {
            return Check::good("key", format!("{provider}: {key} (not looked up)"));
        }
        CredentialRef::Vault { .. } => Ok(false),
    };
    match found {
        Ok(true) => Check::good("key", format!("{provider}: {key}")),
        Ok(false) => {
            let hint = match key {
                CredentialRef::Secret(name) => format!("writ secrets set {name}"),
                CredentialRef::Env(name) => format!("export {name}=…"),
                CredentialRef::Vault { .. } => "export VAULT_ADDR=…".to_owned(),
            };
            Check::bad("key", format!("{provider}: {key} is not there"), hint)
        }
        Err(failure) => Check::failed("key", failure),
    }
}

fn engine(context: &Context) -> Vec<Check> {
    let asked = block_on(async {
        match Client::connect(context).await? {
            // A socket that takes a connection is no proof that anybody serves it.
            Some(mut client) => client.call(Method::Status, serde_json::json!({})).await.map(Some),
            None => Ok(None),
        }
    });
    let status = match asked {
        Ok(Some(status)) => status,
        Ok(None) => return vec![Check::good("engine", "not running; it starts when it is needed")],
        Err(failure) => return vec![Check::failed("engine", failure)],
    };
    let running = match ready(context) {
        Some(ready) => format!("running; sandboxes made and ready: {ready}"),
        None => "running".to_owned(),
    };
    let mut checks = vec![Check::good("engine", running)];
    let behind = clock_behind(&status).as_secs();
    if behind > 0 {
        let text = format!("{behind} seconds behind what the engine goes by: it was set back");
        checks.push(Check::warn("clock", text, "start the engine again once the clock is right"));
    }
    checks
}
