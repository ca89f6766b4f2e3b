//! `writ backup`: making, listing and restoring backups of the home.
//!
//! Restoring puts the database and the agent's own files back. It raises the epoch, so that earlier approvals
//! and task keys are void, and records in the ledger the number of missing entries.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ed25519_dalek::VerifyingKey;
use serde::Serialize;
use writ_inspect::show::escape_line;
use writ_runtime::config::LEFT_BEHIND;
use writ_secrets::store::EngineKey;
use writ_store::backup::{
    DatabaseCopy, RestoreMark, WithdrawnKeys, copy_database, fold_log, inspect_copy, mark_restored,
};
use writ_store::error::StoreError;
use writ_store::store::Store;
use writ_types::error::Exit;

use crate::args::{BackupArgs, BackupCommand};
use crate::clock::now;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::keyring::{KeyRole, open_secrets, public_keys};
use crate::ledger::{require_database, store_config, take_locks};
use set::{AGENT, BackupSet, DATABASE};

mod agent;
mod epoch;
mod set;

/// A backup as printed.
#[derive(Serialize)]
struct BackupRow<'a> {
    number: usize,
    name: &'a str,
    made_at: String,
    entries: u64,
    epoch: u64,
    bytes: u64,
    reason: &'a str,
}

/// Runs `writ backup …`.
pub(crate) fn run_backup(context: &Context, args: &BackupArgs) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    match &args.command {
        None => {
            require_database(&config.database())?;
            let (made, missing) = make_backup(context, &config, "asked for")?;
            for gone in set::prune_sets(&backups_folder(context), args.keep)? {
                context.out.print_remark(format!("removed the old backup {gone}"));
            }
            context.out.print_either(&printed_backup(1, &made), |told| {
                vec![format!("backup {} made: {} entries, {} bytes", told.name, told.entries, told.bytes)]
            })?;
            // A backup without the agent's history is made, and its failure is reported after the success.
            missing.map_or(Ok(()), Err)
        }
        Some(BackupCommand::List) => {
            let sets = list_backups(context)?;
            let all: Vec<BackupRow<'_>> =
                sets.iter().enumerate().map(|(at, set)| printed_backup(at.saturating_add(1), set)).collect();
            context.out.print_either(&serde_json::json!({ "backups": all }), |_| match all.as_slice() {
                [] => vec!["no backup yet; `writ backup` makes one".to_owned()],
                all => all.iter().map(describe_backup).collect(),
            })
        }
        Some(BackupCommand::Restore { number }) => restore_backup(context, &config, *number),
    }
}

/// Returns every backup, newest first; damaged ones are reported and left out.
fn list_backups(context: &Context) -> Result<Vec<BackupSet>, Failure> {
    let (sets, damaged) = set::list_sets(&backups_folder(context))?;
    // A damaged backup must not hide the others.
    for why in damaged {
        context.out.print_remark(format!("left out: {why}"));
    }
    Ok(sets)
}

fn backups_folder(context: &Context) -> PathBuf {
    context.home.root().join("backups")
}

fn printed_backup(number: usize, set: &BackupSet) -> BackupRow<'_> {
    BackupRow {
        number,
        name: &set.name,
        made_at: set.manifest.made_at.to_string(),
        entries: set.manifest.entries,
        epoch: set.manifest.epoch,
        bytes: set.manifest.files.iter().map(|file| file.bytes).sum(),
        reason: &set.manifest.reason,
    }
}

fn describe_backup(told: &BackupRow<'_>) -> String {
    format!(
        "{:>3}  {}  {} entries  {} bytes  {}",
        told.number, told.made_at, told.entries, told.bytes, told.reason
    )
}

/// Makes a backup; the engine may run meanwhile. Says what is not in it, if anything is missing.
fn make_backup(
    context: &Context,
    config: &Config,
    reason: &str,
) -> Result<(BackupSet, Option<Failure>), Failure> {
    let draft = set::BackupDraft::begin_draft(&backups_folder(context), now())?;
    let copied = copy_database(&config.database(), &draft.draft_path(DATABASE))?;
    // The agent's files may be missing or broken; the database is backed up in any case.
    let missing = agent::bundle_repository(&context.home.agent_git(), &draft.draft_path(AGENT)).err();
    let owner = [context.home.config_file(), context.home.rules_file()];
    for file in owner.iter().filter(|file| file.is_file()) {
        draft.copy_file(file)?;
    }
    draft.keep_folder(&context.home.policies())?;
    if context.home.servers().is_dir() {
        draft.keep_folder(&context.home.servers())?;
    }
    Ok((draft.finish_draft(&copied, reason)?, missing))
}

fn restore_backup(context: &Context, config: &Config, number: usize) -> Result<(), Failure> {
    // No engine may run during a restore.
    let locks = take_locks(context, config)?;
    let sets = list_backups(context)?;
    let chosen = number.checked_sub(1).and_then(|at| sets.get(at)).ok_or_else(|| {
        let text = format!("there is no backup {number}; there are {}", sets.len());
        Failure::new(Exit::Usage, "backup.unknown", text, "`writ backup list` shows them, newest first")
    })?;
    chosen.check_files()?;
    let held = inspect_copy(&chosen.file_path(DATABASE))?;
    // Everything that can fail is made ready beside what it replaces, before anything is touched.
    let staged = StagedBackup::stage_backup(context, config, chosen)?;
    let present = copy_present(config, &held)?;
    // The epoch rises before the exchange, so that no approval of the old life can be used after a crash.
    let epoch = epoch::raise_epoch(config, &sets, &held)?;
    let lost = present.map(|present| present.entries.saturating_sub(held.entries));
    let withdrawn = removed_approvers(context, config);
    let RestoreMark { from, removed } =
        mark_restored(&staged.store, lost, epoch, LEFT_BEHIND, &withdrawn, now())?;
    if present.is_some()
        && let (_, Some(missing)) = make_backup(context, config, "before a restore")?
    {
        context.out.print_failure(&missing);
    }
    staged.swap_database(context, config, present.is_none())?;
    drop(locks);
    let said = serde_json::json!({
        "restored": chosen.name, "entry": from, "lost": lost, "epoch": epoch, "removed_keys": removed,
    });
    context.out.print_either(&said, |_| {
        let mut lines = vec![
            format!("restored {}: entry {from} says so; {}", chosen.name, describe_missing(lost)),
            "approvals, keys, open questions and waiting messages from before are void; so are the page's links"
                .to_owned(),
            format!(
                "config.toml, RULES.md, policies/ and mcp/ stay as they are; those of the backup lie in backups/{}",
                chosen.name
            ),
        ];
        lines.extend(removed.iter().map(|key| format!("approver key {} stays removed", escape_line(key))));
        lines
    })
}

/// The database and the agent's history of a backup, ready to take their places. What a restore
/// leaves unfinished is cleared by the next one.
struct StagedBackup {
    database: PathBuf,
    store: Store,
    history: Option<PathBuf>,
}

impl StagedBackup {
    fn stage_backup(context: &Context, config: &Config, chosen: &BackupSet) -> Result<Self, Failure> {
        let secrets = open_secrets(context, config)?;
        let harness = Arc::new(secrets.signing_key(EngineKey::Harness)?);
        // Beside the database, on the same file system, so that the exchange is one rename.
        let database = config.database().with_extension("db.restoring");
        clear_database(&database)?;
        copy_database(&chosen.file_path(DATABASE), &database)?;
        // The ledger's key and its last head are checked here.
        let store = Store::open(&store_config(context, &database)?, harness)?;
        let history = agent::stage_repository(&context.home, &chosen.file_path(AGENT))?;
        Ok(Self { database, store, history })
    }

    /// Lets both take their places; a damaged database keeps all its files under another name.
    fn swap_database(self, context: &Context, config: &Config, damaged: bool) -> Result<(), Failure> {
        let Self { database: staged, store, history } = self;
        // Closed before its log is folded into the file.
        drop(store);
        fold_log(&staged)?;
        let database = config.database();
        if damaged && database.exists() {
            let aside = database.with_extension(format!("db.damaged-{}", now().as_millis()));
            for suffix in LOGS {
                move_if_there(&with_suffix(&database, suffix), &with_suffix(&aside, suffix))?;
            }
            move_if_there(&database, &aside)?;
            context.out.print_remark(format!("the damaged database was saved as {}", aside.display()));
        }
        // The content of the write-ahead logs is in the database file, or was moved away with it.
        clear_logs(&database)?;
        move_if_there(&staged, &database)?;
        clear_logs(&staged)?;
        // Sessions and tokens of the replaced database are void.
        for name in ["api.token", "page-sessions.json"] {
            remove_file(&context.home.runtime().join(name))?;
        }
        match history {
            Some(history) => agent::swap_repository(&context.home, &history),
            None => Ok(()),
        }
    }
}

/// Returns the approver keys removed since the backup was made; unknown for a database that is missing,
/// cannot be read or does not verify.
fn removed_approvers(context: &Context, config: &Config) -> WithdrawnKeys {
    let known = public_keys(&context.home, KeyRole::Harness).ok().and_then(|keys| {
        let keys = keys.iter().map(VerifyingKey::to_bytes).collect();
        WithdrawnKeys::of(&config.database(), keys).ok().flatten()
    });
    known.unwrap_or_else(|| {
        context.out.print_remark(
            "which approver keys were removed since the backup is not known, since there is no present database that \
             verifies: look with `writ keys approver list`",
        );
        WithdrawnKeys::default()
    })
}

/// Copies the content of the present database; `None`: there is none, or it is damaged. Nothing is changed
/// but that its log is folded into it.
fn copy_present(config: &Config, held: &DatabaseCopy) -> Result<Option<DatabaseCopy>, Failure> {
    let database = config.database();
    if !database.exists() {
        return Ok(None);
    }
    let present = match fold_log(&database).and_then(|()| inspect_copy(&database)) {
        Ok(present) => present,
        Err(StoreError::Corrupt(_)) => return Ok(None),
        Err(StoreError::Locked) => {
            let text = "another program reads or writes the database";
            return Err(Failure::new(Exit::Blocked, "backup.busy", text, "end it, then restore again"));
        }
        Err(error) => return Err(error.into()),
    };
    if present.installation != held.installation {
        return Err(Failure::new(
            Exit::Config,
            "backup.foreign",
            "the backup belongs to another installation",
            "restore it into a home of its own: WRIT_HOME",
        ));
    }
    Ok(Some(present))
}

fn describe_missing(lost: Option<u64>) -> String {
    match lost {
        Some(lost) => format!("{lost} later entries will be missing"),
        None => "how many later entries will be missing is not known".to_owned(),
    }
}

fn clear_database(path: &Path) -> Result<(), Failure> {
    remove_file(path)?;
    clear_logs(path)
}

/// The files that SQLite keeps beside a database.
const LOGS: [&str; 2] = ["-wal", "-shm"];

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Removes the log files beside a database that is not open; their content is in the file.
fn clear_logs(path: &Path) -> Result<(), Failure> {
    LOGS.iter().try_for_each(|suffix| remove_file(&with_suffix(path, suffix)))
}

fn move_if_there(from: &Path, to: &Path) -> Result<(), Failure> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(write_failure(to, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn remove_file(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(write_failure(path, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn write_failure(path: &Path, error: &std::io::Error) -> Failure {
    let text = format!("{} cannot be written: {error}", path.display());
    Failure::new(Exit::Config, "backup.unwritable", text, "check the owner, mode and space of the folder")
}
