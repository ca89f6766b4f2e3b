//! Settings of the owner.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// One mebibyte, in bytes.
const MIB: u64 = 1024 * 1024;

/// The most that [`SandboxConfig::ready_max`] may be: each takes a megabyte and three processes while it waits.
pub const READY_MOST: usize = 8;

/// A way of running programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunnerKind {
    /// Our own sandbox of Linux: namespaces, Landlock and seccomp.
    Native,
    /// Nothing is run. What sessions have changed earlier can be shown and applied.
    Refuse,
}

impl RunnerKind {
    /// Every kind, by the name that the configuration gives it.
    pub const NAMES: [&'static str; 2] = [Self::Native.as_str(), Self::Refuse.as_str()];

    /// Returns the name that the configuration gives it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Refuse => "refuse",
        }
    }

    /// Returns true if this system has it.
    pub const fn is_available(self) -> bool {
        match self {
            Self::Native => cfg!(all(target_os = "linux", not(writ_other_system))),
            Self::Refuse => true,
        }
    }
}

impl Default for RunnerKind {
    /// Returns the strongest that this system has.
    fn default() -> Self {
        if Self::Native.is_available() { Self::Native } else { Self::Refuse }
    }
}

/// Settings of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxConfig {
    /// The way in which programs are run. Default `native` on Linux, else `refuse`.
    pub runner: RunnerKind,
    /// The executable that is started again as zygote; `None`: the running one. Its `main` must call
    /// [`init_main`](crate::init_main) first.
    pub exe: Option<PathBuf>,
    /// The home with the toolchains; its credentials are out of reach; `None`: the home of the running user
    /// as the system knows it.
    pub host_home: Option<PathBuf>,
    /// More folders to show inside, read-only, at their own paths: toolchains outside the usual places.
    pub read_only: Vec<PathBuf>,
    /// Do without user namespaces even where there are some: the second rung. Default `false`.
    pub forbid_user_namespaces: bool,
    /// Memory of everything that one command starts, in bytes. Default 4 GiB: a linker needs 1 to 3.
    pub memory_max: u64,
    /// Processes and threads that one command may have at once. Default 1,024: a parallel build has hundreds.
    pub processes_max: u64,
    /// Size of `/tmp`, in bytes of memory. Default 1 GiB.
    pub tmp_max: u64,
    /// Open files of one process. Default 4,096.
    pub open_files_max: u64,
    /// The stored beginning of each of standard output and error, in bytes; the rest is read, counted and
    /// dropped. Default 1 MiB: more than any model reads.
    pub output_max: u64,
    /// The bytes that a command may write to one of them before it is killed. Default 4 GiB.
    pub output_kill: u64,
    /// The longest that any command may run, in milliseconds, even where its own limit is longer. Default 2
    /// hours.
    pub time_max_ms: u64,
    /// Size of a session's overlay and home together, in bytes; above it the command is killed. Default 2 GiB.
    pub overlay_max: u64,
    /// Sandboxes of each kind, for programs and for files, that are made ahead once the first was used, each
    /// for one use; 0: none, at most [`READY_MOST`]. Default 2: a change of a file takes two.
    pub ready_max: usize,
    /// The time zone of programs, set by the configuration's own `time_zone`, as a name of the IANA database; `None`: UTC. A verification has UTC always.
    #[serde(skip)]
    pub time_zone: Option<String>,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            runner: RunnerKind::default(),
            exe: None,
            host_home: None,
            read_only: Vec::new(),
            forbid_user_namespaces: false,
            memory_max: 4096 * MIB,
            processes_max: 1024,
            tmp_max: 1024 * MIB,
            open_files_max: 4096,
            output_max: MIB,
            output_kill: 4096 * MIB,
            time_max_ms: 2 * 60 * 60 * 1000,
            overlay_max: 2048 * MIB,
            ready_max: 2,
            time_zone: None,
        }
    }
}

/// The work folder of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceConfig {
    /// The session's own folder on the host, `data/overlays/ID`: made when it is not there, and the same for
    /// all commands and after restarts.
    pub data_dir: PathBuf,
    /// The project that is seen at `/work`; `None`: an empty folder.
    pub project: Option<PathBuf>,
    /// A folder of the host that the session's own programs see read-only below their home; `None`: none. One
    /// that is not there, or a link in its place, is left out.
    pub shown: Option<ShownFolder>,
}

/// A folder of the host that programs read and cannot change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownFolder {
    /// Its path on the host.
    pub path: PathBuf,
    /// Its use.
    pub kind: ShownKind,
}

/// The use of a folder that programs read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownKind {
    /// The agent's documents.
    Documents,
    /// The files of the plugin that runs.
    Plugin,
}

impl ShownKind {
    /// Returns its name below the home of programs.
    pub const fn folder_name(self) -> &'static str {
        match self {
            Self::Documents => "writ-docs",
            Self::Plugin => "writ-plugin",
        }
    }

    /// Returns the variable that says where it is: without namespaces it lies elsewhere.
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Documents => "WRIT_DOCS",
            Self::Plugin => "WRIT_PLUGIN",
        }
    }
}

/// The folder in which systems have the files of their time zones.
const ZONES: &str = "/usr/share/zoneinfo";

/// Tells if programs inside find a time zone: for one that is not there the C library takes UTC under its name.
pub fn has_time_zone(name: &str) -> bool {
    Path::new(ZONES).join(name).is_file()
}
