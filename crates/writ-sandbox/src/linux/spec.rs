//! What the host tells a sandbox to be, and what the sandbox tells the host. JSON with a length before it.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::worker::Request;

/// The largest message in either direction: a file of [`FILE_MAX`](crate::file::FILE_MAX) bytes as JSON text.
pub(crate) const MESSAGE_MAX: u32 = 64 * 1024 * 1024;

/// How a sandbox is walled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Walls {
    /// By namespaces of its own, and everything below.
    Full,
    /// By Landlock and seccomp alone.
    Reduced,
}

/// One sandbox: made for one job, gone after it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) walls: Walls,
    pub(crate) job: Job,
    pub(crate) work: Work,
    /// The folder on the host that is the home inside; `None`: an empty one in memory.
    pub(crate) home: Option<PathBuf>,
    /// The scratch folder on the second rung, where no `/tmp` can be mounted.
    pub(crate) scratch: PathBuf,
    /// Host folders that are seen inside, read-only, at the same paths.
    pub(crate) binds: Vec<PathBuf>,
    /// Host folders that are seen inside, read-only, below the home.
    pub(crate) home_binds: Vec<(PathBuf, String)>,
    pub(crate) cwd: PathBuf,
    pub(crate) env: Vec<(String, String)>,
    /// Whether a listener for the way out is made and handed to the host.
    pub(crate) network: bool,
    pub(crate) limits: Limits,
    /// The user and group that the host knows us by.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// What is done inside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    /// A program is run.
    Exec(Vec<String>),
    /// Our own file worker.
    Worker(Request),
    /// System calls of our tests.
    #[cfg(test)]
    Probe(String),
}

/// What is seen at `/work`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    /// An overlay of a project; `layers` has `upper` and `work`.
    Overlay { project: PathBuf, layers: PathBuf, access: Access },
    /// A plain folder.
    Folder { path: PathBuf, access: Access },
}

/// What may be done with `/work`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Access {
    /// Changes stay in the session's upper directory.
    Write,
    /// No changes.
    Read,
    /// Changes are lost with the sandbox.
    Scratch,
}

/// What one job may use.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) processes: u64,
    pub(crate) open_files: u64,
    pub(crate) file_bytes: u64,
    /// Writable memory of one process, where no control group limits all of them together.
    pub(crate) data_bytes: Option<u64>,
    pub(crate) tmp_bytes: u64,
}

/// What the sandbox tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event {
    /// It could not be made.
    SetupFailed(Fault),
    /// It was made and the program could not be executed.
    ExecFailed(i32),
    /// The program ended by itself.
    Exited(i32),
    /// The program ended by a signal.
    Signalled(i32),
}

/// A step of the recipe that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// Which step.
    pub(crate) stage: String,
    /// What the system said.
    pub(crate) why: String,
    /// The system's error number; 0: none.
    pub(crate) errno: i32,
}

impl Fault {
    pub(crate) fn new(stage: impl Into<String>, why: impl Into<String>) -> Self {
        Self { stage: stage.into(), why: why.into(), errno: 0 }
    }
}

/// Names the step in which something failed.
pub(crate) trait Stage<T> {
    fn stage(self, stage: &str) -> Result<T, Fault>;
}

impl<T> Stage<T> for io::Result<T> {
    fn stage(self, stage: &str) -> Result<T, Fault> {
        self.map_err(|error| Fault {
            stage: stage.to_owned(),
            why: error.to_string(),
            errno: error.raw_os_error().unwrap_or(0),
        })
    }
}

impl<T> Stage<T> for nix::Result<T> {
    fn stage(self, stage: &str) -> Result<T, Fault> {
        self.map_err(io::Error::from).stage(stage)
    }
}

/// The bytes of a message, with its length before it.
pub(crate) fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).ok().filter(|length| *length <= MESSAGE_MAX);
    let length =
        length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"))?;
    let mut bytes = Vec::with_capacity(body.len() + 4);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// Reads one message.
pub(crate) fn read_message<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MESSAGE_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
    }
    let mut body = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

/// Writes one message.
pub(crate) fn write_message<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    to.write_all(&encode(message)?)
}
