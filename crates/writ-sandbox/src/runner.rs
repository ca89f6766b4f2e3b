//! The port through which programs run. A workspace says what is run, in which folders and within which limits; a
//! [`Runner`] confines it, streams its output and ends it. Projects, diffs and applying are not its concern: what a
//! program has changed lies in the session's folder on the host when the run is over.
//!
//! A runner that starts containers would mount [`Folders`] (the work folder as the layout says, the home, the git
//! directory), set the variables and the limits, lend the container's listener as [`Listener`](crate::exec::Listener),
//! copy the streams to [`ExecOptions::output`], kill the container when `cancel` says so, and answer
//! [`RunJob::File`] with our own binary started in the container.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe;
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::config::ShownFolder;
use crate::error::SandboxError;
use crate::exec::{Ending, ExecOptions, ExecResult, Output};
use crate::file_request::FileRequest;
use crate::project::view::Layout;
use crate::status::{Rung, SandboxStatus};

/// The stage of [`SandboxError::Setup`] by which a runner says that it cannot lay an overlay over this project. The
/// workspace copies the project then.
pub(crate) const OVERLAY_STAGE: &str = "overlay";

/// A future of a runner: one of several types, known at run time.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs what sessions ask for, each run confined apart from all others.
///
/// Every runner guarantees:
/// - What it cannot confine it refuses with [`SandboxError::Refused`], before a process starts or a file changes.
/// - A run sees the folders of its request, system folders and toolchains, and no other file of the host; it has no
///   variable that the request or the runner does not name, and no network but a listener that was asked for.
/// - A run ends with everything that it has started: at its limits, when it is cancelled, when its future is dropped,
///   and when this process dies.
/// - `hold` is dropped after the last process of the run has ended, and not before.
pub(crate) trait Runner: fmt::Debug + Send + Sync {
    /// Returns what this machine allows, found once by running a program.
    fn status(&self) -> Pending<'_, SandboxStatus>;

    /// Returns how runs are confined here: [`Rung::Full`] or [`Rung::Reduced`].
    ///
    /// # Errors
    ///
    /// [`SandboxError::Refused`] if nothing can be run.
    fn rung(&self) -> Pending<'_, Result<Rung, SandboxError>>;

    /// Returns the number of sandboxes that are made and wait for a run.
    fn ready(&self) -> usize;

    /// Returns the path at which programs see the work folder.
    fn root(&self, rung: Rung, folders: &Folders) -> PathBuf;

    /// Runs a program or a file request to its end.
    ///
    /// # Errors
    ///
    /// If the run cannot be confined, or its folders cannot be mounted.
    fn run(&self, request: RunRequest) -> Pending<'_, Result<RunResult, SandboxError>>;
}

/// One run: a program, or a request for files.
#[derive(Debug)]
pub(crate) struct RunRequest {
    pub(crate) job: RunJob,
    pub(crate) folders: Folders,
    pub(crate) access: FolderAccess,
    /// The working directory, as programs on the first rung see it.
    pub(crate) cwd: String,
    /// The command's own variables.
    pub(crate) variables: BTreeMap<String, String>,
    /// True if a listener for the way out is made and sent to [`ExecOptions::network`].
    pub(crate) network: bool,
    pub(crate) stdin: Option<Vec<u8>>,
    pub(crate) limits: RunLimits,
    pub(crate) options: ExecOptions,
    /// True if more of this kind will be asked for soon: a sandbox may be made ahead of it.
    pub(crate) expect_more: bool,
    /// Held until every process of the run has ended: nothing mounts its folders from then on.
    pub(crate) hold: Option<OwnedMutexGuard<()>>,
    /// Receives the run's standard input and output while it goes on; nothing of the output is captured then.
    pub(crate) talk: Option<oneshot::Sender<Talk>>,
}

/// The work of a run.
#[derive(Debug)]
pub(crate) enum RunJob {
    /// A program and its arguments.
    Program(Vec<String>),
    /// A file request, answered by our own worker.
    File(FileRequest),
}

/// The folders of the host that a run sees.
#[derive(Clone, Debug)]
pub(crate) struct Folders {
    /// The session's folder, with the parts that [`FOLDERS`](crate::project::view::FOLDERS) names.
    pub(crate) session: PathBuf,
    pub(crate) project: Option<PathBuf>,
    /// A folder of the host, read-only, for programs with [`FolderAccess::Write`].
    pub(crate) shown: Option<ShownFolder>,
    pub(crate) layout: Layout,
    /// The owner's git directory, where it does not lie in the project.
    pub(crate) git: Option<GitMount>,
}

impl Folders {
    /// Returns the path at which programs on the first rung see the project besides `/work`.
    pub(crate) fn own_place(&self) -> Option<PathBuf> {
        self.project.as_deref().and_then(crate::inside::own_path)
    }
}

/// A git directory of the host, with a layer for what the session's programs write there.
#[derive(Clone, Debug)]
pub(crate) struct GitMount {
    /// The path at which programs see it.
    pub(crate) at: PathBuf,
    /// The work tree's root on the host, where the project is a subfolder of it.
    pub(crate) top: Option<PathBuf>,
    /// The file at the root of such a work tree that leads to the git directory, where that is not in it: path and content.
    pub(crate) dot: Option<(PathBuf, String)>,
    /// The git directory.
    pub(crate) lower: PathBuf,
    /// The folder with the layer: `upper` and `work`.
    pub(crate) layers: PathBuf,
}

/// The use of the work folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FolderAccess {
    /// Changes stay in the session's folder.
    Write,
    /// No changes.
    Read,
    /// Changes end with the run, and the home is an empty one.
    Scratch,
}

/// The bounds of a run, besides those of the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunLimits {
    pub(crate) time: Duration,
    /// The stored beginning of each stream, in bytes.
    pub(crate) keep: u64,
    /// Bytes of one stream above which the run is killed.
    pub(crate) kill_above: u64,
    /// True if the session's folder is measured while the run goes on.
    pub(crate) disk: bool,
}

/// The other ends of a run's standard input and output.
#[derive(Debug)]
pub(crate) struct Talk {
    pub(crate) input: pipe::Sender,
    pub(crate) output: pipe::Receiver,
}

/// The end of a run.
#[derive(Debug)]
pub(crate) struct RunResult {
    pub(crate) ending: Ending,
    pub(crate) stdout: StreamCapture,
    pub(crate) stderr: StreamCapture,
    pub(crate) duration: Duration,
}

impl RunResult {
    /// Returns the result of a program.
    pub(crate) fn exec_result(&self, rung: Rung) -> ExecResult {
        ExecResult {
            ending: self.ending,
            stdout: self.stdout.text_output(),
            stderr: self.stderr.text_output(),
            duration_ms: u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX),
            rung,
        }
    }
}

/// The captured beginning of a stream.
#[derive(Debug, Default)]
pub(crate) struct StreamCapture {
    pub(crate) bytes: Vec<u8>,
    /// Everything that was written, in bytes.
    pub(crate) total: u64,
}

impl StreamCapture {
    /// Returns the capture as text.
    pub(crate) fn text_output(&self) -> Output {
        let truncated = self.total > u64::try_from(self.bytes.len()).unwrap_or(u64::MAX);
        Output { text: String::from_utf8_lossy(&self.bytes).into_owned(), bytes: self.total, truncated }
    }
}
