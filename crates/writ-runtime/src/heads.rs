//! Copies of signed heads, stored in the place that the owner configures: if this database is replaced by an
//! older one, even with its key, it does not fit the copies.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use writ_sandbox::host::{HostError, host_git};
use writ_store::ledger::export::size_of_line;
use writ_store::reads::LedgerReads as _;
use writ_types::unit::Timestamp;

use crate::config::LedgerConfig;
use crate::error::{EngineError, HeadsError};
use crate::journal::Journal;

/// After so many entries a head is copied, whenever that is.
const AFTER_ENTRIES: u64 = 256;
/// After so long a head is copied, if there is any new entry: some 25 MB a year at most.
const AFTER_TIME: Duration = Duration::from_secs(10 * 60);
/// The longest time that a start and an end wait for a copy: on a mount that has disappeared, the copy never
/// finishes.
const COPY_TIME: Duration = Duration::from_secs(10);
/// The largest file that is added to, in bytes: what `audit verify --heads` reads.
const MAX_FILE_BYTES: u64 = 512 * 1024 * 1024;
/// The part of a file's end that is read, in bytes: more than one line.
const END_BYTES: u64 = 16 * 1024;
/// The file in a repository.
const IN_REPOSITORY: &str = "writ-heads.jsonl";

/// The head that was copied last: the ledger's size then, and the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    size: u64,
    at: Timestamp,
}

/// The reason that a head was not copied.
#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("git: {0}")]
    Git(#[from] HostError),
    #[error("git ended with {code}: {said}")]
    Refused { code: i32, said: String },
}

/// Copies the ledger's heads to where the owner says.
#[derive(Clone, Debug)]
pub(crate) struct Heads {
    journal: Arc<Journal>,
    config: LedgerConfig,
    /// The head that was copied last.
    last: Arc<Mutex<Option<Copied>>>,
    /// Held while heads are copied.
    copying: Arc<tokio::sync::Mutex<()>>,
}

impl Heads {
    pub(crate) fn new(journal: Arc<Journal>, config: LedgerConfig) -> Self {
        Self { journal, config, last: Arc::default(), copying: Arc::default() }
    }

    /// Copies the newest head as [`Self::copy_heads`], in a task of its own: a caller that no longer waits leaves the
    /// copy under way, so that a mount that has disappeared holds up one copy and not one more at each try.
    ///
    /// # Errors
    ///
    /// If a head cannot be copied, or an earlier copy is still under way.
    pub(crate) async fn copy_heads_aside(&self) -> Result<(), EngineError> {
        let heads = self.clone();
        let copied = tokio::spawn(async move { heads.copy_heads(false).await }).await;
        copied.unwrap_or_else(|error| Err(HeadsError::Refused(error.to_string()).into()))
    }

    /// As [`Self::copy_heads`] for anything new, and not waited for without end.
    pub(crate) async fn copy_last_heads(&self) {
        match tokio::time::timeout(COPY_TIME, self.copy_heads(true)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "see ledger.heads_file and ledger.heads_repository"),
            Err(_) => tracing::error!(
                "a head of the ledger could not be copied in time; see ledger.heads_file and ledger.heads_repository"
            ),
        }
    }

    /// Copies the newest head to the configured places, if enough is new since the last copy; with `anyway`,
    /// if anything is new. After a failure the next call tries again.
    async fn copy_heads(&self, anyway: bool) -> Result<(), EngineError> {
        let (file, repository) = (&self.config.heads_file, &self.config.heads_repository);
        if file.is_none() && repository.is_none() {
            return Ok(());
        }
        let copying = if anyway { Ok(self.copying.lock().await) } else { self.copying.try_lock() };
        // The copy that is under way takes the new entries, or the next call does.
        let Ok(_copying) = copying else { return Err(HeadsError::UnderWay.into()) };
        let Some((size, line)) = self.journal.store.newest_head().await? else { return Ok(()) };
        let now = self.journal.clock.now();
        let due = self.copied().is_none_or(|last| {
            let more = size.saturating_sub(last.size);
            size != last.size && (anyway || more >= AFTER_ENTRIES || now.time_since(last.at) >= AFTER_TIME)
        });
        if !due {
            return Ok(());
        }
        // Each place alone: one that fails withholds no head from the other.
        let mut failures = Vec::new();
        if let Some(file) = file.clone() {
            failures.extend(added(file, size, line.clone()).await.err());
        }
        if let Some(repository) = repository {
            failures.extend(committed(repository, size, line).await.err());
        }
        if failures.is_empty() {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Copied { size, at: now });
            return Ok(());
        }
        let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
        Err(HeadsError::Refused(failures.join("; ")).into())
    }

    fn copied(&self) -> Option<Copied> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn added(path: PathBuf, size: u64, line: String) -> Result<(), CopyError> {
    let name = path.clone();
    let added = tokio::task::spawn_blocking(move || add(&path, size, &line)).await;
    let added = added.unwrap_or_else(|error| Err(io::Error::other(error)));
    added.map_err(|source| CopyError::File { path: name, source })
}

/// Adds a line to a file, if it is not its last; on disk when it is done.
fn add(path: &Path, size: u64, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path)?;
    let length = file.metadata()?;
    if !length.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if length.len() > MAX_FILE_BYTES {
        return Err(io::Error::other("it is full: begin a new one, and keep the old one"));
    }
    let end = end_of(&mut file, length.len())?;
    let last = end.trim_end_matches('\n').rsplit('\n').next().unwrap_or_default();
    if last == line {
        return Ok(());
    }
    if size_of_line(last).is_some_and(|before| before > size) {
        tracing::error!(
            entries = size,
            "the copied heads cover more entries than the ledger has: is this an older copy of the database? \
             run `writ audit verify --heads FILE`"
        );
    }
    // A line that a full disk has cut must not spoil the next one.
    let begin = if end.is_empty() || end.ends_with('\n') { "" } else { "\n" };
    file.write_all(format!("{begin}{line}\n").as_bytes())?;
    file.sync_all()
}

fn end_of(file: &mut File, length: u64) -> io::Result<String> {
    file.seek(SeekFrom::Start(length.saturating_sub(END_BYTES)))?;
    let mut end = Vec::new();
    file.take(END_BYTES).read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

/// Adds a line to the file in a repository, and commits it.
async fn committed(repository: &Path, size: u64, line: String) -> Result<(), CopyError> {
    added(repository.join(IN_REPOSITORY), size, line).await?;
    git(repository, &["add", "--", IN_REPOSITORY]).await?;
    let message = format!("The ledger has {size} entries");
    let author = ["-c", "user.name=Writ", "-c", "user.email=writ@localhost"];
    // Where an earlier try has committed the line and failed after that, nothing is left to commit, which is no error.
    let commit = ["commit", "--quiet", "--allow-empty", "-m", &message, "--", IN_REPOSITORY];
    git(repository, &[author.as_slice(), &commit].concat()).await
}

async fn git(repository: &Path, args: &[&str]) -> Result<(), CopyError> {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let said = host_git(repository, &args).await?;
    match said.code {
        0 => Ok(()),
        code => Err(CopyError::Refused { code, said: said.stderr.chars().take(500).collect() }),
    }
}
