//! The checks, from the ground up: what stands on something broken is not checked.

use std::collections::BTreeMap;
use std::path::Path;

use writ_inspect::webauthn::Passkey;
use writ_models::provider::{ModelsConfigError, Routes};
use writ_runtime::methods::{JobsList, Method};
use writ_sandbox::host::{HostError, host_git};
use writ_sandbox::status::Rung;
use writ_secrets::backend::Backend;
use writ_secrets::record::recorded_backend;
use writ_store::approvals::ApproverKey;
use writ_types::api::NoParams;
use writ_types::api::job::{JobList, JobSummary};
use writ_types::credential::CredentialRef;
use writ_types::error::ToReport as _;
use writ_types::unit::Timestamp;

use super::{DoctorCheck, network};
use crate::advice;
use crate::approve::clock_behind;
use crate::client::EngineClient;
use crate::clock;
use crate::cmd::sandbox::{probe_sandbox, ready_count};
use crate::config::{Config, policies, servers};
use crate::context::Context;
use crate::home::{check_folder, free_bytes};
use crate::interrupt::block_on;
use crate::keyring::{KeyRole, open_secrets, public_keys};
use crate::ledger::open_to_read;

/// 2026-01-01: a clock before it is wrong, because this program is younger.
const EARLIEST: Timestamp = Timestamp::from_millis(1_767_225_600_000);
/// Below this much free space, in bytes, there is a warning: an overlay may take as much.
const LOW_SPACE: u64 = 2 * 1024 * 1024 * 1024;
/// Below this much free space, in bytes, nothing will work for long.
const NO_SPACE: u64 = 64 * 1024 * 1024;

/// Runs every check that can be run.
pub(super) fn run_checks(context: &Context) -> Vec<DoctorCheck> {
    let mut checks = vec![clock_check(), check_home(context)];
    let config = match context.load_config(None) {
        Ok(config) => {
            checks.push(DoctorCheck::passed_check("config", "the configuration is valid"));
            config
        }
        Err(failure) => {
            checks.push(DoctorCheck::check_of_failure("config", failure));
            // Without a valid configuration the other checks would only repeat the error.
            return checks;
        }
    };
    checks.push(time_zone(&config));
    checks.push(match policies::load_rules(&context.home, None) {
        Ok(rules) => DoctorCheck::passed_check("rules", format!("valid ({})", rules.digest())),
        Err(error) => DoctorCheck::check_of_failure("rules", error.into()),
    });
    match servers::load_servers(&context.home) {
        Ok(servers) if servers.is_empty() => {}
        Ok(servers) => {
            checks.push(DoctorCheck::passed_check("servers", format!("{} of tools", servers.len())))
        }
        Err(error) => checks.push(DoctorCheck::check_of_failure("servers", error.into())),
    }
    checks.extend(check_sandbox(&config));
    checks.push(check_git(context));
    if let Err(failure) = context.home.check_set_up() {
        checks.push(DoctorCheck::check_of_failure("set up", failure.into()));
        return checks;
    }
    checks.extend(check_folders(context, &config));
    checks.push(check_space(&config.data_dir()));
    checks.extend(check_keys(context));
    checks.extend(check_database(context, &config));
    checks.extend(check_models(context, &config));
    checks.extend(network::run_network_checks(context, &config));
    checks.extend(check_engine(context));
    checks
}

fn clock_check() -> DoctorCheck {
    let now = clock::now();
    // A clock before the program's own date is certainly wrong.
    if now < EARLIEST {
        let text = format!("the clock says {now}, before this program was made");
        return DoctorCheck::failed_check("clock", text, "set the clock: approvals and keys expire by it");
    }
    DoctorCheck::passed_check("clock", now.to_string())
}

/// The time zone of the owner, and whether programs in the sandbox find it.
fn time_zone(config: &Config) -> DoctorCheck {
    const NAME: &str = "time zone";
    let set = "write `time_zone = \"Europe/Berlin\"`, or the one that you live in, into config.toml";
    match (&config.time_zone, &config.sandbox.time_zone) {
        (Err(unknown), _) => {
            DoctorCheck::warning_check(NAME, format!("the variable TZ: {unknown}; UTC is used"), set)
        }
        (Ok(zone), None) => DoctorCheck::warning_check(
            NAME,
            format!("it has no name; programs have UTC: {}", zone.format_moment(clock::now())),
            set,
        ),
        (Ok(zone), Some(name)) if !writ_sandbox::config::has_time_zone(name) => {
            let text = format!("{}; programs have UTC", zone.format_moment(clock::now()));
            DoctorCheck::warning_check(
                NAME,
                text,
                "install the package tzdata: this machine has no files of time zones",
            )
        }
        (Ok(zone), Some(_)) => DoctorCheck::passed_check(NAME, zone.format_moment(clock::now())),
    }
}

fn check_home(context: &Context) -> DoctorCheck {
    match context.home.check_permissions() {
        Ok(()) => DoctorCheck::passed_check("home", context.home.root().display().to_string()),
        Err(error) => DoctorCheck::check_of_failure("home", error.into()),
    }
}

fn check_folders(context: &Context, config: &Config) -> Vec<DoctorCheck> {
    let mut folders = context.home.folders();
    folders.extend([config.data_dir(), config.overlays(), config.verify_dir()]);
    let bad: Vec<DoctorCheck> = folders
        .iter()
        .filter_map(|folder| check_folder(folder).err())
        .map(|error| {
            let report = error.report();
            DoctorCheck::failed_check("folders", report.outside, report.hint)
        })
        .collect();
    // One good line for all folders, but a line for each bad one.
    if bad.is_empty() {
        vec![DoctorCheck::passed_check("folders", "all are there and closed to others")]
    } else {
        bad
    }
}

fn check_space(folder: &Path) -> DoctorCheck {
    let Some(free) = free_bytes(folder) else {
        return DoctorCheck::warning_check("space", "the free space is not known", "");
    };
    let text = format!("{} MiB free", free / (1024 * 1024));
    match free {
        0..NO_SPACE => {
            DoctorCheck::failed_check("space", text, "free some space; nothing is performed on a full disk")
        }
        NO_SPACE..LOW_SPACE => DoctorCheck::warning_check("space", text, "an overlay may take 2 GiB"),
        _ => DoctorCheck::passed_check("space", text),
    }
}

fn check_keys(context: &Context) -> Vec<DoctorCheck> {
    let mut checks = Vec::new();
    match recorded_backend(&context.home.keys()) {
        Ok(Some(backend)) => checks.push(match backend.warning_text() {
            None => DoctorCheck::passed_check("secrets", format!("kept in: {backend}")),
            Some(warning) => {
                let hint = "for a keyring or a passphrase, set secrets.backend and make the home anew";
                DoctorCheck::warning_check("secrets", warning, hint)
            }
        }),
        Ok(None) => checks.push(DoctorCheck::failed_check("secrets", "there are none", "run `writ init`")),
        Err(error) => checks.push(DoctorCheck::check_of_failure("secrets", error.into())),
    }
    for role in KeyRole::ALL {
        match public_keys(&context.home, role) {
            Ok(_) => {}
            Err(error) => checks.push(DoctorCheck::check_of_failure("keys", error.into())),
        }
    }
    checks
}

/// The database with its migrations, its file system, the end of its ledger, and the enrolled approver.
fn check_database(context: &Context, config: &Config) -> Vec<DoctorCheck> {
    let store = match open_to_read(context, config) {
        Ok(store) => store,
        Err(failure) => return vec![DoctorCheck::check_of_failure("database", failure)],
    };
    let mut checks = Vec::new();
    match (store.blocking().ledger_size(), store.blocking().not_before()) {
        (Ok(size), Ok(not_before)) => {
            checks
                .push(DoctorCheck::passed_check("database", format!("opens; {size} entries in the ledger")));
            // The ledger's time is proof that the clock was set back.
            if not_before > clock::now() {
                let text = format!("behind the ledger, by whose latest entries it is past {not_before}");
                let hint = "set the clock and start the engine again; if the clock is right, plans, standing \
                            approvals and those for the task wait until then";
                checks.push(DoctorCheck::failed_check("clock", text, hint));
            }
        }
        (Err(error), _) | (_, Err(error)) => {
            checks.push(DoctorCheck::check_of_failure("database", error.into()))
        }
    }
    match store.blocking().approver_keys() {
        Ok(keys) => checks.extend(check_approvers(context, &keys)),
        Err(error) => checks.push(DoctorCheck::check_of_failure("approver", error.into())),
    }
    checks
}

/// Checks the kinds of approval that the enrolled keys allow.
fn check_approvers(context: &Context, keys: &[ApproverKey]) -> Vec<DoctorCheck> {
    let own = public_keys(&context.home, KeyRole::Approver).unwrap_or_default();
    // Removed keys stay in the list, for the history.
    let mut in_force = keys.iter().filter(|key| key.revoked_at.is_none());
    let cli = in_force.clone().any(|key| own.iter().any(|own| own.as_bytes().as_slice() == key.public_key));
    let passkeys = in_force.by_ref().filter(|key| Passkey::from_bytes(&key.public_key).is_some()).count();
    let terminal = if cli {
        DoctorCheck::passed_check(
            "approver",
            "the approver key is enrolled: `writ approvals approve` reaches high risks",
        )
    } else {
        let text = "no approver key is enrolled: high risks cannot be approved in a terminal";
        DoctorCheck::failed_check("approver", text, "run `writ init`: it enrols the key")
    };
    let page = match passkeys {
        0 => {
            let text = "none is enrolled: the page approves medium risks at most, and what cannot be undone \
                        cannot be approved";
            DoctorCheck::warning_check("passkey", text, "`writ keys approver enrol` begins to enrol one")
        }
        1 => DoctorCheck::passed_check("passkey", "one is enrolled: every risk can be approved in the page"),
        many => DoctorCheck::passed_check(
            "passkey",
            format!("{many} are enrolled: every risk can be approved in the page"),
        ),
    };
    vec![terminal, page]
}

fn check_sandbox(config: &Config) -> Vec<DoctorCheck> {
    let status = match probe_sandbox(config.sandbox.clone()) {
        Ok(status) => status,
        Err(failure) => return vec![DoctorCheck::check_of_failure("sandbox", failure)],
    };
    let hint = status.hints.join("; ");
    let reduced = status.reduced.join("; ");
    let mut checks = vec![match status.rung {
        Rung::Full if reduced.is_empty() => DoctorCheck::passed_check("sandbox", "full"),
        Rung::Full => DoctorCheck::warning_check("sandbox", format!("full; {reduced}"), hint),
        Rung::Reduced => DoctorCheck::warning_check("sandbox", format!("reduced: {reduced}"), hint),
        Rung::Refuse => {
            DoctorCheck::failed_check("sandbox", format!("commands cannot be confined here: {reduced}"), hint)
        }
    }];
    // Slower, but no less safe.
    if !status.overlay {
        checks.push(DoctorCheck::warning_check(
            "overlay",
            "projects are copied: slower, and they need space",
            "",
        ));
    }
    let toolchains =
        if status.toolchains.is_empty() { "none found".into() } else { status.toolchains.join(", ") };
    checks.push(DoctorCheck::passed_check("toolchains", toolchains));
    checks
}

fn check_git(context: &Context) -> DoctorCheck {
    let version = block_on(async {
        let folder = context.home.root().parent().unwrap_or(Path::new("/")).to_owned();
        Ok(host_git(&folder, &["--version".to_owned()]).await)
    });
    match version {
        Ok(Ok(output)) => {
            DoctorCheck::passed_check("git", String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(Err(HostError::Start { .. })) => DoctorCheck::warning_check(
            "git",
            "git is not installed: changes of agent/ are not recorded",
            "install git",
        ),
        Ok(Err(HostError::Stopped { .. } | HostError::Foreign { .. })) => {
            DoctorCheck::passed_check("git", "installed")
        }
        Err(failure) => DoctorCheck::check_of_failure("git", failure),
    }
}

/// Checks that a model is configured and its key is there. Nothing is sent anywhere.
fn check_models(context: &Context, config: &Config) -> Vec<DoctorCheck> {
    let routes = match Routes::new(&config.models) {
        Ok(routes) => routes,
        Err(ModelsConfigError::MissingDefault) => {
            let hint = "set models.default in config.toml; `writ chat` shows how";
            return vec![DoctorCheck::warning_check("model", "no model is configured", hint)];
        }
        Err(error) => return vec![DoctorCheck::check_of_failure("model", error.into())],
    };
    let mut checks = Vec::new();
    for (role, route) in routes.all() {
        let role = role.map_or("default".to_owned(), |role| role.to_string());
        checks.push(DoctorCheck::passed_check(
            "model",
            format!("{role}: {}/{}", route.provider.name, route.model),
        ));
    }
    if let Some(advice) = advice::main_model(config) {
        checks.push(DoctorCheck::warning_check(
            "model",
            advice,
            "set models.default to a more capable model",
        ));
    }
    let keys: BTreeMap<&str, &CredentialRef> = routes
        .all()
        .filter_map(|(_, route)| Some((route.provider.name.as_str(), route.provider.key.as_ref()?)))
        .collect();
    checks.extend(keys.into_iter().map(|(name, key)| check_credential(context, config, name, key)));
    let told = "nothing was sent to a model; `writ models test` or `writ doctor --models` tries it";
    checks.push(DoctorCheck::passed_check("model", told));
    checks
}

fn check_credential(context: &Context, config: &Config, provider: &str, key: &CredentialRef) -> DoctorCheck {
    let found = match key {
        CredentialRef::Env(name) => Ok(context.env.text_of(name).is_some()),
        CredentialRef::Secret(name) => match recorded_backend(&context.home.keys()) {
            // A check asks no questions.
            Ok(Some(Backend::Age)) => {
                return DoctorCheck::passed_check(
                    "key",
                    format!("{provider}: {key} (not looked up: it needs the passphrase)"),
                );
            }
            Ok(Some(Backend::Keyring | Backend::Plain) | None) | Err(_) => open_secrets(context, config)
                .and_then(|store| {
                    let names = store.list_names()?;
                    Ok(names.contains(name))
                }),
        },
        // A check sends nothing away.
        CredentialRef::Vault { .. } if context.env.text_of("VAULT_ADDR").is_some() => {
            return DoctorCheck::passed_check("key", format!("{provider}: {key} (not looked up)"));
        }
        CredentialRef::Vault { .. } => Ok(false),
    };
    match found {
        Ok(true) => DoctorCheck::passed_check("key", format!("{provider}: {key}")),
        Ok(false) => {
            let hint = match key {
                CredentialRef::Secret(name) => format!("writ secrets set {name}"),
                CredentialRef::Env(name) => format!("export {name}=…"),
                CredentialRef::Vault { .. } => "export VAULT_ADDR=…".to_owned(),
            };
            DoctorCheck::failed_check("key", format!("{provider}: {key} is not there"), hint)
        }
        Err(failure) => DoctorCheck::check_of_failure("key", failure),
    }
}

fn check_engine(context: &Context) -> Vec<DoctorCheck> {
    let asked = block_on(async {
        match EngineClient::connect(context).await? {
            // A socket that takes a connection is no proof that anybody serves it.
            Some(mut client) => {
                let status = client.call_method(Method::Status, serde_json::json!({})).await?;
                // An engine of an older version does not know the method.
                Ok(Some((status, client.ask::<JobsList>(&NoParams {}).await.ok())))
            }
            None => Ok(None),
        }
    });
    let (status, jobs) = match asked {
        Ok(Some(answers)) => answers,
        Ok(None) => {
            return vec![DoctorCheck::passed_check("engine", "not running; it starts when it is needed")];
        }
        Err(failure) => return vec![DoctorCheck::check_of_failure("engine", failure)],
    };
    let running = match ready_count(context) {
        Some(ready) => format!("running; sandboxes made and ready: {ready}"),
        None => "running".to_owned(),
    };
    let mut checks = vec![DoctorCheck::passed_check("engine", running)];
    let behind = clock_behind(&status).as_secs();
    if behind > 0 {
        let text = format!("{behind} seconds behind what the engine goes by: it was set back");
        checks.push(DoctorCheck::warning_check(
            "clock",
            text,
            "start the engine again once the clock is right",
        ));
    }
    checks.extend(jobs.map(|listed| check_jobs(&listed)));
    checks
}

/// Names the jobs that failed in their last run.
fn check_jobs(listed: &JobList) -> DoctorCheck {
    let has_failed = |job: &&JobSummary| job.last_run.is_some() && !job.last_result.starts_with("ok");
    let failed = listed.jobs.iter().filter(has_failed);
    let failed: Vec<String> = failed.map(|job| format!("{}: {}", job.name, job.last_result)).collect();
    match failed.as_slice() {
        [] => DoctorCheck::passed_check("jobs", format!("{} of the engine", listed.jobs.len())),
        failed => DoctorCheck::warning_check(
            "jobs",
            failed.join("; "),
            "each is tried again at its time; `writ jobs list` shows when, the log names the reason",
        ),
    }
}
