//! `writ init`: makes the home, or completes it. Nothing that is there is changed.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use writ_secrets::approver::open_approver;
use writ_secrets::backend::Backend;
use writ_secrets::error::SecretsError;
use writ_secrets::record::recorded_backend;
use writ_secrets::store::{EngineKey, SecretStore};
use writ_store::approvals::ApproverKey;
use writ_store::batch::{Batch, Op};
use writ_store::store::Store;
use writ_types::entry::{Entry, Fact};
use writ_types::error::Exit;
use writ_types::id::KeyId;

use crate::args::InitArgs;
use crate::clock;
use crate::config::{Config, EXAMPLE, policies};
use crate::context::Context;
use crate::documents::seed_documents;
use crate::failure::Failure;
use crate::home::{self, HomeError, check_folder, make_folder};
use crate::keyring::{KeyRole, ask_passphrase, passphrase_credential, record_public};
use crate::ledger::open_to_write;
use crate::terminal;

mod agent;

/// The content of `policies/README.md`.
const POLICIES: &str = "\
# Rules that are enforced

Files `*.cedar` in this folder add to the rules that Writ ships; `forbid` wins over `permit`. Every rule has
an `@id` of its own; `@ask(\"reason\")` before a `forbid` asks you instead of refusing. `writ config check`
says what is wrong with them.
";

/// A finished step.
#[derive(Debug, Serialize)]
struct InitReport {
    home: String,
    installation: String,
    backend: String,
    made: Vec<String>,
    warnings: Vec<String>,
}

/// Runs `writ init`.
pub(crate) fn run_init(context: &Context, args: &InitArgs) -> Result<(), Failure> {
    let done = set_up(context, args.yes)?;
    context.out.print_either(&done, describe_steps)
}

/// Makes what is missing and says nothing, for the demo.
///
/// # Errors
///
/// As [`run_init`].
pub(super) fn init_quietly(context: &Context, args: &InitArgs) -> Result<(), Failure> {
    set_up(context, args.yes).map(drop)
}

/// Makes what is missing; also for `chat`, which offers it.
///
/// # Errors
///
/// If the home cannot be made, its configuration is not valid, or the keys cannot be opened.
fn set_up(context: &Context, yes: bool) -> Result<InitReport, Failure> {
    let mut made = Vec::new();
    for folder in context.home.folders() {
        create_folder(context, &folder, &mut made)?;
    }
    context.home.check_permissions()?;
    write_new(context, &context.home.config_file(), &first_config(), &mut made)?;
    write_new(context, &context.home.rules_file(), home::RULES, &mut made)?;
    write_new(context, &context.home.policies().join("README.md"), POLICIES, &mut made)?;
    let config = context.load_config(None)?;
    policies::load_rules(&context.home, None)?;
    for folder in [config.data_dir(), config.overlays(), config.verify_dir(), config.customer_context_dir()] {
        create_folder(context, &folder, &mut made)?;
    }
    // Before the first commit of the agent's folder, so that they are in it.
    let seeded = seed_documents(&context.home.documents())?;
    made.extend(seeded.iter().map(|name| format!("agent/docs/{name}")));
    let mut warnings = Vec::new();
    let (backend, installation) = keys_and_store(context, &config, yes, &mut made)?;
    warnings.extend(backend.warning_text().map(str::to_owned));
    match agent::set_up(&context.home) {
        Ok(true) => made.push("agent.git".into()),
        Ok(false) => {}
        Err(warning) => warnings.push(warning),
    }
    Ok(InitReport {
        home: context.home.root().display().to_string(),
        installation,
        backend: backend.to_string(),
        made,
        warnings,
    })
}

fn create_folder(context: &Context, folder: &Path, made: &mut Vec<String>) -> Result<(), Failure> {
    if make_folder(folder)? {
        made.push(short_path(context, folder));
    }
    Ok(check_folder(folder)?)
}

/// Shortens a path for printing: relative to the home if it is below it.
fn short_path(context: &Context, path: &Path) -> String {
    // Paths below the home are easier to read relative to it.
    let below = path.strip_prefix(context.home.root()).unwrap_or(path);
    if below.as_os_str().is_empty() { path.display().to_string() } else { below.display().to_string() }
}

fn write_new(context: &Context, path: &Path, text: &str, made: &mut Vec<String>) -> Result<(), Failure> {
    let unwritable = |source| HomeError::Unwritable { path: path.to_owned(), source };
    // Never over a file that exists: it may be the owner's.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(unwritable)?;
            made.push(short_path(context, path));
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(unwritable(error).into()),
    }
}

/// Returns the first configuration of a home: the version that has written it, and every setting as a comment.
fn first_config() -> String {
    format!("# Written by writ {}.\n{}", env!("CARGO_PKG_VERSION"), comment_out(EXAMPLE))
}

/// Returns the example with every setting behind a `#`: the defaults stay in force, also those of later versions.
fn comment_out(example: &str) -> String {
    let line = |line: &str| match line {
        "" => "\n".to_owned(),
        comment if comment.starts_with('#') => format!("{comment}\n"),
        // Every setting is shown and none is in force.
        setting => format!("#{setting}\n"),
    };
    example.lines().map(line).collect()
}

/// Makes keys and database where they are missing, and enrols the approver key.
fn keys_and_store(
    context: &Context,
    config: &Config,
    yes: bool,
    made: &mut Vec<String>,
) -> Result<(Backend, String), Failure> {
    // A home that has keys is completed, never replaced.
    let opened = match recorded_backend(&context.home.keys())? {
        Some(_) => {
            let passphrase = ask_passphrase(context, "Passphrase of this home's keys: ")?;
            (SecretStore::open(&context.home.keys(), passphrase.clone(), &config.secrets)?, passphrase)
        }
        None => {
            let created = create_secrets(context, config, yes)?;
            made.push(format!("keys ({})", created.0.backend()));
            created
        }
    };
    let (secrets, passphrase) = opened;
    for (key, role) in [(EngineKey::Root, KeyRole::Root), (EngineKey::Harness, KeyRole::Harness)] {
        if is_generated(secrets.generate_key(key))? {
            made.push(format!("{} key", role.as_str()));
        }
        record_public(&context.home, role, &secrets.signing_key(key)?.verifying_key())?;
    }
    let approver = open_approver(&context.home.keys(), passphrase, &config.secrets)?;
    if is_generated(approver.generate_key())? {
        made.push("approver key".into());
    }
    let public = approver.signing_key()?.verifying_key();
    record_public(&context.home, KeyRole::Approver, &public)?;
    let fresh = !config.database().exists();
    let (lock, store) = open_to_write(context, config, secrets.signing_key(EngineKey::Harness)?)?;
    if fresh {
        made.push("database".into());
    }
    if enrol_key(&store, public.as_bytes())? {
        made.push("approver key enrolled".into());
    }
    drop(lock);
    Ok((secrets.backend(), store.installation().to_string()))
}

/// Returns true if a key was made now; an existing one stays.
fn is_generated<T>(result: Result<T, SecretsError>) -> Result<bool, SecretsError> {
    match result {
        Ok(_) => Ok(true),
        // A key that exists is not an error: `init` can run again.
        Err(SecretsError::KeyExists(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sets up the keys folder: where the configuration says, else in the keyring, else in a file with a
/// passphrase, or, with `--yes`, in plain files.
fn create_secrets(
    context: &Context,
    config: &Config,
    yes: bool,
) -> Result<(SecretStore, Option<SecretString>), Failure> {
    let keys = context.home.keys();
    let with = |backend, passphrase: Option<SecretString>| {
        SecretStore::create(&keys, backend, passphrase.clone(), &config.secrets)
            .map(|store| (store, passphrase))
    };
    // A configured backend is used as it is; otherwise the best available one is chosen.
    match config.backend {
        Some(backend @ (Backend::Keyring | Backend::Plain)) => return Ok(with(backend, None)?),
        Some(Backend::Age) => return Ok(with(Backend::Age, Some(new_passphrase(context)?))?),
        None => {}
    }
    match with(Backend::Keyring, None) {
        Ok(created) => Ok(created),
        Err(SecretsError::KeyringUnavailable(_)) if yes => Ok(with(Backend::Plain, None)?),
        Err(SecretsError::KeyringUnavailable(_)) => {
            context
                .out
                .print_remark("There is no keyring here; keys and secrets go to a file with a passphrase.");
            Ok(with(Backend::Age, Some(new_passphrase(context)?))?)
        }
        Err(error) => Err(error.into()),
    }
}

fn new_passphrase(context: &Context) -> Result<SecretString, Failure> {
    // A service has no terminal, so its manager supplies the passphrase.
    if let Some(passphrase) = passphrase_credential(context) {
        return Ok(passphrase);
    }
    if !context.host.streams.is_interactive() {
        return Err(Failure::new(
            Exit::Blocked,
            "init.no_terminal",
            "a passphrase is needed, and there is no terminal to ask on",
            "run `writ init` in a terminal, or `writ init --yes` to keep keys in files that only you can read",
        ));
    }
    let first = terminal::prompt_hidden("New passphrase: ")?;
    let second = terminal::prompt_hidden("The same again: ")?;
    if first.expose_secret() == second.expose_secret() {
        Ok(first)
    } else {
        Err(Failure::new(Exit::Usage, "init.passphrase", "the two passphrases differ", "run it again"))
    }
}

/// Makes the approver key's public half known to the engine; `false`: it is.
fn enrol_key(store: &Store, public: &[u8]) -> Result<bool, Failure> {
    // Enrolling the same key twice would list it twice.
    if store.blocking().approver_keys()?.iter().any(|key| key.public_key == public) {
        return Ok(false);
    }
    let at = clock::now();
    let id = KeyId::from_parts(at, clock::random());
    let fact = Fact::Keyed {
        key: id,
        role: KeyRole::Approver.as_str().to_owned(),
        change: "enrolled".to_owned(),
        grants: format!("answers asks with {}", hex::encode(public)),
    };
    let entry = Entry { at, session: None, turn: None, turn_number: 0, fact };
    let key = ApproverKey {
        id,
        kind: "cli".to_owned(),
        label: "command line".to_owned(),
        public_key: public.to_vec(),
        enrolled_at: at,
        revoked_at: None,
    };
    store.commit_blocking(Batch::synced(vec![Op::Append(Box::new(entry)), Op::EnrollKey(key)]))?;
    Ok(true)
}

fn describe_steps(done: &InitReport) -> Vec<String> {
    let mut lines = Vec::new();
    if done.made.is_empty() {
        lines.push(format!("{} is set up already; nothing was changed", done.home));
    } else {
        lines.push(format!("home {}", done.home));
        lines.push(format!("made {}", done.made.join(", ")));
    }
    lines.extend(done.warnings.iter().map(|warning| format!("warning: {warning}")));
    if !done.made.is_empty() {
        lines.push("next: `writ demo` shows how it works; `writ doctor` checks this machine".into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SCL-130 (in part: what is written)
    #[test]
    fn the_first_configuration_is_comments_only_and_keeps_every_setting() {
        let text = comment_out(EXAMPLE);
        assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')));
        assert_eq!(text.lines().count(), EXAMPLE.lines().count());
        assert!(text.contains("\n#max_tokens_per_day = 5000000\n"));
        assert!(text.contains("\n#[budget]\n"));
    }
}
