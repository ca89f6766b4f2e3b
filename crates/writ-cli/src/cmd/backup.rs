//! `writ backup`: making, listing and restoring backups of the home.
//!
//! Restoring puts the database and the agent's own files back. It raises the epoch, so that earlier approvals
//! and task keys are void, and writes into the ledger how many entries are gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use writ_secrets::store::EngineKey;
use writ_store::backup::{Copied, copy_database, fold_log, inspect_copy};
use writ_store::config::StoreConfig;
use writ_store::store::Store;
use writ_types::error::Exit;

use crate::args::{BackupArgs, BackupCommand};
use crate::clock::now;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::keyring::open_secrets;
use crate::ledger::{lock, require};
use set::{AGENT, BackupSet, DATABASE};

mod agent;
mod set;

/// A backup, as it is told.
#[derive(Serialize)]
struct Told<'a> {
    number: usize,
    name: &'a str,
    made_at: String,
    entries: u64,
    epoch: u64,
    bytes: u64,
    reason: &'a str,
}

/// Runs `writ backup …`.
pub(crate) fn run(context: &Context, args: &BackupArgs) -> Result<(), Failure> {
    let config = context.ready()?;
    match &args.command {
        None => {
            require(&config.database())?;
            let made = make(context, &config, "asked for")?;
            for gone in set::prune(&folder(context), args.keep)? {
                context.out.remark(format!("removed the old backup {gone}"));
            }
            context.out.either(&told(1, &made), |told| {
                vec![format!("backup {} made: {} entries, {} bytes", told.name, told.entries, told.bytes)]
            })
        }
        Some(BackupCommand::List) => {
            let sets = set::list(&folder(context))?;
            let all: Vec<Told<'_>> =
                sets.iter().enumerate().map(|(at, set)| told(at.saturating_add(1), set)).collect();
            context.out.either(&serde_json::json!({ "backups": all }), |_| match all.as_slice() {
                [] => vec!["no backup yet; `writ backup` makes one".to_owned()],
                all => all.iter().map(line).collect(),
            })
        }
        Some(BackupCommand::Restore { number }) => restore(context, &config, *number),
    }
}

fn folder(context: &Context) -> PathBuf {
    context.home.root().join("backups")
}

fn told(number: usize, set: &BackupSet) -> Told<'_> {
    Told {
        number,
        name: &set.name,
        made_at: set.manifest.made_at.to_string(),
        entries: set.manifest.entries,
        epoch: set.manifest.epoch,
        bytes: set.manifest.files.iter().map(|file| file.bytes).sum(),
        reason: &set.manifest.reason,
    }
}

fn line(told: &Told<'_>) -> String {
    format!(
        "{:>3}  {}  {} entries  {} bytes  {}",
        told.number, told.made_at, told.entries, told.bytes, told.reason
    )
}

/// Makes a backup; the engine may run meanwhile.
fn make(context: &Context, config: &Config, reason: &str) -> Result<BackupSet, Failure> {
    let draft = set::Draft::begin(&folder(context), now())?;
    let copied = copy_database(&config.database(), &draft.path(DATABASE))?;
    agent::bundle(&context.home.agent_git(), &draft.path(AGENT))?;
    let owner = [context.home.config_file(), context.home.rules_file()];
    for file in owner.iter().filter(|file| file.is_file()) {
        draft.keep(file)?;
    }
    draft.keep_folder(&context.home.policies())?;
    draft.finish(&copied, reason)
}

fn restore(context: &Context, config: &Config, number: usize) -> Result<(), Failure> {
    let locks = lock(context, config)?;
    let sets = set::list(&folder(context))?;
    let chosen = number.checked_sub(1).and_then(|at| sets.get(at)).ok_or_else(|| {
        let text = format!("there is no backup {number}; there are {}", sets.len());
        Failure::new(Exit::Usage, "backup.unknown", text, "`writ backup list` shows them, newest first")
    })?;
    chosen.check()?;
    let held = inspect_copy(&chosen.path(DATABASE))?;
    let secrets = open_secrets(context, config)?;
    let harness = Arc::new(secrets.signing_key(EngineKey::Harness)?);
    let database = config.database();
    let present = set_aside(context, config, &held)?;
    let staged = database.with_extension("db.restoring");
    clear(&staged)?;
    copy_database(&chosen.path(DATABASE), &staged)?;
    let known = sets.iter().map(|set| set.manifest.epoch).chain(present.map(|present| present.epoch));
    let epoch = known.max().unwrap_or_default().max(held.epoch).saturating_add(1);
    let lost = present.map(|present| present.entries.saturating_sub(held.entries));
    let from = {
        let store = Store::open(&StoreConfig::new(staged.clone()), harness)?;
        store.mark_restored(lost, epoch, now())?
    };
    fold_log(&staged)?;
    clear_logs(&staged)?;
    // From here on the restored database is the home's: it knows of its restore already.
    fs::rename(&staged, &database).map_err(|error| unwritable(&database, &error))?;
    agent::restore(&context.home, &chosen.path(AGENT))?;
    drop(locks);
    let said = serde_json::json!({
        "restored": chosen.name, "entry": from, "lost": lost, "epoch": epoch,
    });
    context.out.either(&said, |_| {
        vec![
            format!("restored {}: entry {from} says so; {}", chosen.name, gone(lost)),
            "approvals and task keys from before are void".to_owned(),
            format!(
                "config.toml, RULES.md and policies/ stay as they are; those of the backup lie in backups/{}",
                chosen.name
            ),
        ]
    })
}

fn gone(lost: Option<u64>) -> String {
    match lost {
        Some(lost) => format!("{lost} later entries are given up"),
        None => "how many later entries are given up is not known".to_owned(),
    }
}

/// Keeps the present database before another takes its place: as a backup, or, damaged, under another name.
/// What it held, if it could be read.
fn set_aside(context: &Context, config: &Config, held: &Copied) -> Result<Option<Copied>, Failure> {
    let database = config.database();
    if !database.exists() {
        return Ok(None);
    }
    if fold_log(&database).is_ok()
        && let Ok(kept) = make(context, config, "before a restore")
    {
        let present = Copied {
            installation: kept.manifest.installation,
            epoch: kept.manifest.epoch,
            entries: kept.manifest.entries,
        };
        if present.installation != held.installation {
            return Err(Failure::new(
                Exit::Config,
                "backup.foreign",
                "the backup belongs to another installation",
                "restore it into a home of its own: WRIT_HOME",
            ));
        }
        clear_logs(&database)?;
        return Ok(Some(present));
    }
    let aside = database.with_extension(format!("db.damaged-{}", now().as_millis()));
    fs::rename(&database, &aside).map_err(|error| unwritable(&aside, &error))?;
    clear_logs(&database)?;
    context.out.remark(format!("the damaged database was kept as {}", aside.display()));
    Ok(None)
}

fn clear(path: &Path) -> Result<(), Failure> {
    remove(path)?;
    clear_logs(path)
}

/// Removes the log files beside a database that nobody has open; what they held is in the file.
fn clear_logs(path: &Path) -> Result<(), Failure> {
    for suffix in ["-wal", "-shm"] {
        let mut log = path.as_os_str().to_owned();
        log.push(suffix);
        remove(Path::new(&log))?;
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(unwritable(path, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    let text = format!("{} cannot be written: {error}", path.display());
    Failure::new(Exit::Config, "backup.unwritable", text, "check the owner, mode and space of the folder")
}
