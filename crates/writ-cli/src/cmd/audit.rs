//! `writ audit`: reading and verifying the ledger, which needs no engine, and erasing, which does.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use writ_inspect::show::escape_line;
use writ_runtime::methods::Method;
use writ_store::ledger::export::{ExportError, read_heads};
use writ_store::ledger::head::Checkpoint;
use writ_store::ledger::row::{LedgerQuery, LedgerRow};
use writ_store::ledger::verify::{VerifyOptions, VerifyReport, verify_file};
use writ_types::error::{Exit, ToReport as _};
use writ_types::id::{EntrySeq, SessionId};

use crate::args::{AuditCommand, PublicKey};
use crate::client::EngineClient;
use crate::config::Config;
use crate::context::Context;
use crate::failure::{FREE_SPACE, Failure};
use crate::interrupt::block_on;
use crate::keyring::{KeyRole, public_keys};
use crate::ledger::{open_to_read, require_database};

mod show;

/// The largest file of saved heads that is read, in bytes: a million heads of half a kilobyte.
const MAX_HEADS_BYTES: u64 = 512 * 1024 * 1024;
/// Advice about the source of a file of heads.
const WRITES_HEADS: &str = "name a file that `writ audit export --heads FILE` has written";
/// The most characters of an entry's payload in one line.
const MAX_LINE_CHARS: usize = 160;

/// Runs `writ audit …`.
pub(crate) fn run_audit(context: &Context, command: &AuditCommand) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    match command {
        AuditCommand::Verify { heads, db, key, every_signature } => {
            // Another database is verified with the same code, read-only.
            let path = db.clone().unwrap_or_else(|| config.database());
            let keys = accepted_keys(context, key)?;
            // The heads that the engine copies belong to this home's own database.
            let copied = config.ledger.heads_file.clone().filter(|file| db.is_none() && file.is_file());
            let heads = heads.clone().or(copied);
            let held = heads.as_deref().map(|file| load_heads(file, &keys)).transpose()?.unwrap_or_default();
            require_database(&path)?;
            let options = VerifyOptions { keys, held, every_signature: *every_signature };
            print_report(context, &verify_file(&path, &options)?)
        }
        AuditCommand::Tail { lines } => {
            show_rows(context, &open_to_read(context, &config)?.blocking().ledger_tail(*lines)?)
        }
        AuditCommand::Search { text, event, session, lines } => {
            search_ledger(context, &config, text, event.as_deref(), *session, *lines)
        }
        AuditCommand::Erase { entries, reason } => erase_payloads(context, entries, reason),
        AuditCommand::Export { heads } => export_ledger(context, &config, heads.as_deref()),
        AuditCommand::Show { entry } => show::show_entry(context, &config, *entry),
        AuditCommand::Proof { entry } => print_proof(context, &config, *entry),
    }
}

/// Verifies the ledger of this home: its hashes and the signatures of its heads.
pub(crate) fn verify_home(context: &Context, config: &Config) -> Result<VerifyReport, Failure> {
    let keys = accepted_keys(context, &[])?;
    let copied = config.ledger.heads_file.clone().filter(|file| file.is_file());
    let held = copied.as_deref().map(|file| load_heads(file, &keys)).transpose()?.unwrap_or_default();
    let options = VerifyOptions { keys, held, every_signature: false };
    let report = verify_file(&config.database(), &options)?;
    match &report.problem {
        None => Ok(report),
        Some(problem) => Err(Failure::Report(Box::new(problem.report()))),
    }
}

/// Returns the keys that must have signed: the given ones, or those of this home.
fn accepted_keys(context: &Context, given: &[PublicKey]) -> Result<Vec<[u8; 32]>, Failure> {
    // Without given keys the home's own count, including replaced ones.
    if given.is_empty() {
        let keys = public_keys(&context.home, KeyRole::Harness)?;
        return Ok(keys.iter().map(|key| *key.as_bytes()).collect());
    }
    Ok(given.iter().map(|key| key.0).collect())
}

/// Returns the heads in a file. A file without heads is an error, because nothing would be compared.
fn load_heads(file: &Path, keys: &[[u8; 32]]) -> Result<Vec<Checkpoint>, Failure> {
    let held = read_heads(&read_text(file)?, keys).map_err(|error| {
        let hint = "the file was changed, or belongs to another ledger";
        Failure::new(Exit::Ledger, "ledger.held", error.to_string(), hint)
    })?;
    // An empty file would verify everything and prove nothing.
    if held.is_empty() {
        let text = format!("{} holds no head", file.display());
        return Err(Failure::new(Exit::Usage, "ledger.no_heads", text, WRITES_HEADS));
    }
    Ok(held)
}

fn print_report(context: &Context, report: &VerifyReport) -> Result<(), Failure> {
    context.out.print_either(report, |report| match &report.problem {
        None => {
            let verified = format!(
                "ledger verified: entries {}, signed heads {}, held heads {}, erased {}",
                report.rows, report.heads, report.held, report.erased
            );
            let restores = report.restores.iter().map(|restore| {
                let lost = restore.lost.map_or("an unknown number of".to_owned(), |lost| lost.to_string());
                format!("known restore at entry {}: {lost} later entries are missing", restore.from)
            });
            std::iter::once(verified).chain(restores).collect()
        }
        Some(problem) => vec![format!("first bad leaf: {}", problem.leaf)],
    })?;
    match &report.problem {
        None => Ok(()),
        Some(problem) => Err(Failure::Report(Box::new(problem.report()))),
    }
}

fn search_ledger(
    context: &Context,
    config: &Config,
    text: &str,
    event: Option<&str>,
    session: Option<SessionId>,
    limit: usize,
) -> Result<(), Failure> {
    let query = LedgerQuery {
        text: (!text.is_empty()).then(|| text.to_owned()),
        event: event.map(str::to_owned),
        session,
        limit,
        ..LedgerQuery::default()
    };
    show_rows(context, &open_to_read(context, config)?.blocking().ledger_search(&query)?)
}

fn show_rows(context: &Context, rows: &[LedgerRow]) -> Result<(), Failure> {
    // One JSON document a line, since the list may be long.
    if context.out.json {
        return rows.iter().try_for_each(|row| context.out.json_line(row));
    }
    rows.iter().try_for_each(|row| context.out.print_line(describe_row(row)))
}

/// One entry as one line that cannot deceive a terminal.
fn describe_row(row: &LedgerRow) -> String {
    let payload = match &row.payload {
        Some(payload) => escape_line(&payload.to_string()),
        None => "(erased)".to_owned(),
    };
    let mut short: String = payload.chars().take(MAX_LINE_CHARS).collect();
    // Compared in bytes: a cut text is always shorter.
    if short.len() < payload.len() {
        short.push('…');
    }
    let mark = if row.intact { "" } else { "  NOT INTACT" };
    format!("{:>6}  {}  {:<13} {short}{mark}", row.seq.0, row.at, row.event)
}

/// Lets the engine erase payloads of entries, because it knows which are still needed.
fn erase_payloads(context: &Context, entries: &[EntrySeq], reason: &str) -> Result<(), Failure> {
    let erased = block_on(async {
        let mut client = EngineClient::ensure(context).await?;
        client.call_method(Method::LedgerErase, json!({ "entries": entries, "reason": reason })).await
    })?;
    context.out.print_either(&erased, |erased| {
        let count = erased.get("erased").and_then(Value::as_u64).unwrap_or_default();
        vec![
            format!("erased the payloads of {count} entries; that they were written stays proven"),
            "the conversation and backups keep their own copies".to_owned(),
        ]
    })
}

fn export_ledger(context: &Context, config: &Config, heads: Option<&Path>) -> Result<(), Failure> {
    let store = open_to_read(context, config)?;
    // Without a file the entries go to standard output, for a pipe.
    let Some(file) = heads else {
        let mut out = BufWriter::new(context.host.streams.output.clone());
        store
            .blocking()
            .export_entries(&mut out)
            .map_err(|error| export_failure(error, "standard output"))?;
        return out.flush().map_err(|error| Failure::output_error(&error));
    };
    let name = file.display().to_string();
    let unwritable = |error: io::Error| export_failure(ExportError::Write(error), &name);
    // Never over a file that is there: it may hold the older heads that prove a rollback.
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .map_err(|error| file_failure(error, &name))?;
    let mut out = BufWriter::new(file);
    let written = store.blocking().export_heads(&mut out).map_err(|error| export_failure(error, &name))?;
    let file = out.into_inner().map_err(|error| unwritable(error.into_error()))?;
    // Written to the disk before success is reported: the file may be the only proof later.
    file.sync_all().map_err(unwritable)?;
    context.out.print_either(&json!({ "heads": written, "file": name }), |_| {
        vec![
            format!("{written} heads written to {name}"),
            "keep it where this machine cannot change it; verify with `writ audit verify --heads FILE`"
                .into(),
        ]
    })
}

/// The error that a file cannot be created. The hint asks for another path, unless the disk is the reason.
fn file_failure(error: io::Error, name: &str) -> Failure {
    use io::ErrorKind::{AlreadyExists, QuotaExceeded, StorageFull};
    // These errors have hints of their own.
    if matches!(error.kind(), AlreadyExists | StorageFull | QuotaExceeded) {
        return export_failure(ExportError::Write(error), name);
    }
    let text = format!("{name} cannot be made: {error}");
    let hint = "name a new file in a folder that is there and that you may write";
    Failure::new(Exit::Usage, "cli.unwritable", text, hint)
}

fn export_failure(error: ExportError, name: &str) -> Failure {
    match error {
        ExportError::Store(error) => error.into(),
        ExportError::Write(error) if error.kind() == io::ErrorKind::BrokenPipe => Failure::ReaderGone,
        ExportError::Write(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let hint = "choose another name: older heads are worth keeping";
            Failure::new(Exit::Usage, "cli.exists", format!("{name} is there already"), hint)
        }
        ExportError::Write(error) => Failure::new(
            Exit::Blocked,
            "cli.output",
            format!("{name} cannot be written: {error}"),
            FREE_SPACE,
        ),
    }
}

fn print_proof(context: &Context, config: &Config, entry: EntrySeq) -> Result<(), Failure> {
    let store = open_to_read(context, config)?;
    let size = store.blocking().ledger_size()?;
    if entry.0 >= size {
        return Err(no_entry(entry, size));
    }
    context.out.print_json(&store.blocking().ledger_proof(entry)?)
}

fn no_entry(entry: EntrySeq, size: u64) -> Failure {
    let text = format!("there is no entry {entry}; the ledger has {size}");
    Failure::new(Exit::Usage, "ledger.no_entry", text, "entries are counted from 0")
}

fn read_text(path: &Path) -> Result<String, Failure> {
    let unreadable = |error: io::Error| {
        let text = format!("{} cannot be read: {error}", path.display());
        Failure::new(Exit::Usage, "cli.unreadable", text, WRITES_HEADS)
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    // Bounded: the file may be any file.
    file.take(MAX_HEADS_BYTES).read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}
