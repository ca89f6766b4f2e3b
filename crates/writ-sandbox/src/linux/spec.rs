//! The messages between the host and a sandbox: JSON with a length before it.

use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::file_request::FileRequest;
use crate::runner::FolderAccess;

/// The largest message in either direction: a file of [`FILE_MAX`](crate::file::FILE_MAX) bytes as JSON text.
pub(crate) const MESSAGE_MAX: u32 = 64 * 1024 * 1024;

/// The byte by which the host asks a running sandbox to end: all of its processes get the signal to terminate.
pub(crate) const TERMINATE: u8 = b'T';

/// Bytes of the length before a message.
pub(crate) const LENGTH: usize = 4;
/// The room that is set aside for a message before its first byte is there: most are smaller.
const BODY_GUESS: usize = 16 * 1024;

/// The means by which a sandbox is walled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Walls {
    /// By namespaces of its own, and everything below.
    Full,
    /// By Landlock and seccomp alone.
    Reduced,
}

/// The part that all sandboxes of a kind share, without anything of a session or a command: it can be made
/// ahead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SandboxBase {
    pub(crate) walls: Walls,
    /// Host folders that are seen inside, read-only, at the same paths.
    pub(crate) binds: Vec<PathBuf>,
    /// True if the home is an empty one in memory, and not a folder of the session.
    pub(crate) empty_home: bool,
    /// True if `/tmp` is the only folder that can be written: the home and the shared memory are links to it.
    pub(crate) one_place: bool,
    /// True if it has a user namespace of its own.
    pub(crate) own_users: bool,
    /// True if Unix sockets come in pairs alone, so that no path leads to one.
    pub(crate) only_pairs: bool,
    pub(crate) limits: Limits,
    /// The user and group that the host knows us by.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The part that a session adds. Read by the first process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) work: WorkMount,
    /// The path at which the work folder is seen besides `/work`.
    pub(crate) own: Option<PathBuf>,
    /// The owner's git directory, where it does not lie in the project.
    pub(crate) git: Option<GitOverlay>,
    /// The folder on the host that is the home inside, where that is not an empty one.
    pub(crate) home: Option<HostFolder>,
    /// Host folders that are seen inside, read-only, below the home.
    pub(crate) home_binds: Vec<(PathBuf, String)>,
    /// The ports of the listeners that are the ways out; each is handed to the host. Empty: there is no network.
    pub(crate) ports: Vec<u16>,
    /// Names that lead to those listeners.
    pub(crate) names: Vec<String>,
    /// A certificate that programs are to trust besides the system's, in PEM.
    pub(crate) trust: Option<String>,
}

/// The one job. Read by the job's process when the first process says that everything is in its place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobOrder {
    pub(crate) job: SandboxJob,
    pub(crate) cwd: PathBuf,
    /// The path besides `/work` at which it begins, where that is the same folder.
    pub(crate) own: Option<PathBuf>,
    pub(crate) env: Environment,
    /// Folders of the host that may be read on the second rung, where nothing is mounted.
    pub(crate) readable: Vec<PathBuf>,
    /// Folders that may be written besides the usual ones: of the host on the second rung, on the first what is mounted there.
    pub(crate) writable: Vec<PathBuf>,
    /// The AppArmor profile that the program is executed under.
    pub(crate) apparmor: Option<ProfileOrder>,
}

/// An AppArmor profile for a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProfileOrder {
    pub(crate) profile: String,
    /// True if the program is not started without it.
    pub(crate) required: bool,
}

/// The variables of a program. Their values may be secret: they are not in its `Debug`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Environment(pub(crate) Vec<(String, String)>);

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// One sandbox: made for one job, removed after it.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) base: SandboxBase,
    pub(crate) setup: Setup,
    pub(crate) order: JobOrder,
}

/// A folder of the host, and which one it is: a sandbox that was made earlier may see something else at its path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostFolder {
    pub(crate) path: PathBuf,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl HostFolder {
    /// Looks at it.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let meta = std::fs::metadata(path)?;
        Ok(Self { path: path.to_owned(), device: meta.dev(), inode: meta.ino() })
    }
}

/// The job inside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum SandboxJob {
    /// A program is run.
    Exec(Vec<String>),
    /// Our own file worker.
    Worker(FileRequest),
    /// System calls of our tests.
    #[cfg(test)]
    Probe(String),
}

/// The descriptor of a folder that was handed over: standard error, which neither zygote nor first process has.
pub(crate) const FOLDER_FD: i32 = 2;

/// The folder at `/work`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum WorkMount {
    /// An overlay of a project; `layers` has `upper` and `work`.
    Overlay { project: HostFolder, layers: HostFolder, access: FolderAccess },
    /// There is nothing at `/work`.
    Nothing,
    /// A plain folder.
    Folder { path: HostFolder, access: FolderAccess },
    /// A plain folder that the starter has taken for the zygote, whose user may not be able to reach it.
    Handed { path: HostFolder, access: FolderAccess },
}

/// A git directory of the host with what the session's programs write there; `layers` has `upper` and `work`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GitOverlay {
    /// The path at which it is seen.
    pub(crate) at: PathBuf,
    /// The work tree's root on the host, where the project is a subfolder of it.
    pub(crate) top: Option<PathBuf>,
    /// The file at the root of such a work tree that leads to the git directory, where that is not in it: path and content.
    pub(crate) dot: Option<(PathBuf, String)>,
    pub(crate) lower: HostFolder,
    pub(crate) layers: HostFolder,
    pub(crate) access: FolderAccess,
}

/// The limits of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) processes: u64,
    pub(crate) open_files: u64,
    pub(crate) file_bytes: u64,
    /// Writable memory of one process, where no control group limits all of them together.
    pub(crate) data_bytes: Option<u64>,
    pub(crate) tmp_bytes: u64,
    /// The job's processes are killed before the first one when memory runs out.
    pub(crate) first_victim: bool,
}

/// A message of the first process to the host, over the control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum InitMessage {
    /// The sandbox is made and waits for something to do.
    Ready,
    /// Here is a listener for a way out: it travels with this message.
    Listener,
    /// The count of attempts to reach what is not there, of a sandbox that has names.
    Unreached(u64),
    /// The job is over, and every process of it has ended.
    Done(JobEnd),
}

/// The end of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum JobEnd {
    /// It could not be made.
    SetupFailed(SetupFault),
    /// It was made and the program could not be executed.
    ExecFailed(i32),
    /// The program ended on its own.
    Exited(i32),
    /// The program ended by a signal.
    Signalled(i32),
}

/// A step of the recipe that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SetupFault {
    /// The step.
    pub(crate) stage: String,
    /// The error of the system.
    pub(crate) why: String,
    /// The system's error number; 0: none.
    pub(crate) errno: i32,
}

impl SetupFault {
    /// The step that finds other folders on the host than those that were meant: nothing was begun.
    pub(crate) const MOVED: &str = "find the folders";

    pub(crate) fn new(stage: impl Into<String>, why: impl Into<String>) -> Self {
        Self { stage: stage.into(), why: why.into(), errno: 0 }
    }
}

/// Names the step in which something failed.
pub(crate) trait Stage<T> {
    fn stage(self, stage: &str) -> Result<T, SetupFault>;
}

impl<T> Stage<T> for io::Result<T> {
    fn stage(self, stage: &str) -> Result<T, SetupFault> {
        self.map_err(|error| SetupFault {
            stage: stage.to_owned(),
            why: error.to_string(),
            errno: error.raw_os_error().unwrap_or(0),
        })
    }
}

impl<T> Stage<T> for nix::Result<T> {
    fn stage(self, stage: &str) -> Result<T, SetupFault> {
        self.map_err(io::Error::from).stage(stage)
    }
}

/// The bytes of a message, with its length before it.
pub(crate) fn encode_message<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).ok().filter(|length| *length <= MESSAGE_MAX);
    let length =
        length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"))?;
    let mut bytes = Vec::with_capacity(body.len() + LENGTH);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// Reads one message.
pub(crate) fn read_message<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut length = [0; LENGTH];
    from.read_exact(&mut length)?;
    read_body(from, length)
}

/// Reads what follows a length.
pub(crate) fn read_body<T: DeserializeOwned>(from: &mut impl Read, length: [u8; LENGTH]) -> io::Result<T> {
    let length = u32::from_le_bytes(length);
    // The length is the other side's word: no memory is set aside for it.
    if length > MESSAGE_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
    }
    let mut body = Vec::with_capacity(usize::try_from(length).unwrap_or(0).min(BODY_GUESS));
    from.take(u64::from(length)).read_to_end(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

/// Writes one message.
pub(crate) fn write_message<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    to.write_all(&encode_message(message)?)
}
