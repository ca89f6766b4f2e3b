//! The home: where everything of one installation lies (design 3.1), and whether it may be used.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access, geteuid};
use writ_sandbox::host::home_of;
use writ_types::error::{Exit, Report, ToReport};

use crate::env::Env;

/// The first content of `RULES.md`.
pub(crate) const RULES: &str = "\
# Rules

What stands here is told to the agent in every turn and survives every compaction. You alone write it: no
agent can change this file. What must be *enforced* belongs to policies/*.cedar and to [[gates]] instead.
";

/// The first content of `agent/AGENTS.md`.
pub(crate) const NOTES: &str =
    "# Notes of the agent\n\nThe agent may change this folder; every change is recorded.\n";

/// The permission bits of the home and of every folder in it.
pub(crate) const FOLDER_MODE: u32 = 0o700;
/// Bits that give others access.
const OTHERS: u32 = 0o077;
/// The longest path of a Unix socket: `sun_path` has 108 bytes on Linux and 104 on macOS, with the final NUL.
const MAX_SOCKET_PATH: usize = 103;

/// A home folder. Nothing is known of what is in it until [`Home::check_permissions`] was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    root: PathBuf,
}

/// The reason that a home cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HomeError {
    /// Its path is unknown.
    #[error("your home folder is not known: HOME is not set")]
    Unknown,
    /// The current folder was removed, so a relative path means nothing.
    #[error("the current folder cannot be found: {0}")]
    NoCurrentFolder(io::Error),
    /// There is none.
    #[error("there is no home at {0}")]
    Missing(PathBuf),
    /// It was not set up, or not completely.
    #[error("the home {root} is not set up: {what} is missing")]
    NotSetUp {
        /// The home.
        root: PathBuf,
        /// The missing file or folder.
        what: &'static str,
    },
    /// Something else is in its place.
    #[error("{0} is not a folder")]
    NotAFolder(PathBuf),
    /// It belongs to another user.
    #[error("{path} belongs to user {owner}")]
    WrongOwner {
        /// The folder.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
    },
    /// Others may look into it.
    #[error("{path} has mode {mode:04o}; others could read or change it")]
    WrongMode {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It cannot be read.
    #[error("{path} cannot be read: {source}")]
    Unreadable {
        /// The folder or file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It cannot be written.
    #[error("{path} cannot be written: {source}")]
    Unwritable {
        /// The folder or file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Its path is too long for a socket.
    #[error("the path of {0} is too long for a socket ({MAX_SOCKET_PATH} bytes at most)")]
    TooLong(PathBuf),
}

impl ToReport for HomeError {
    fn report(&self) -> Report {
        let (code, hint) = match self {
            Self::Unknown => ("home.unknown", "set WRIT_HOME, or give --home DIR".to_owned()),
            Self::NoCurrentFolder(_) => ("home.no_current_folder", "change into a folder that exists".into()),
            Self::Missing(_) | Self::NotSetUp { .. } => ("home.not_set_up", "run `writ init` first".into()),
            Self::NotAFolder(path) => {
                ("home.not_a_folder", format!("move {} away, or set WRIT_HOME", path.display()))
            }
            Self::WrongOwner { path, .. } => {
                ("home.wrong_owner", format!("chown {} to yourself, or set WRIT_HOME", path.display()))
            }
            Self::WrongMode { path, .. } => {
                ("home.wrong_mode", format!("chmod {FOLDER_MODE:04o} {}", path.display()))
            }
            Self::Unreadable { path, .. } => {
                ("home.unreadable", format!("check the owner and mode of {}", path.display()))
            }
            Self::Unwritable { path, .. } => {
                ("home.unwritable", format!("check the owner, mode and file system of {}", path.display()))
            }
            Self::TooLong(_) => ("home.path_too_long", "set WRIT_HOME to a shorter path".into()),
        };
        Report::new(Exit::Config, code, self.to_string()).with_hint(hint)
    }
}

impl Home {
    /// Finds the home: `--home`, else `WRIT_HOME`, else `~/.writ`, from `folder` on if it is relative. Touches nothing.
    pub(crate) fn find_home_from(folder: &Path, flag: Option<&Path>, env: &Env) -> Result<Self, HomeError> {
        // The flag overrides the variable.
        let given = flag.map(Path::to_owned).or_else(|| env.path_of("WRIT_HOME"));
        let root = match given {
            Some(path) => path,
            None => user_home(env).ok_or(HomeError::Unknown)?.join(".writ"),
        };
        // Made absolute at once, since the engine changes its folder.
        Ok(Self { root: std::path::absolute(folder.join(root)).map_err(HomeError::NoCurrentFolder)? })
    }

    /// The same from the current folder of the process.
    #[cfg(test)]
    pub(crate) fn find_home(flag: Option<&Path>, env: &Env) -> Result<Self, HomeError> {
        Self::find_home_from(Path::new(""), flag, env)
    }

    /// Checks the home folder itself: there, ours, closed to others, readable, writable.
    pub(crate) fn check_permissions(&self) -> Result<(), HomeError> {
        check_folder(&self.root)?;
        // The kernel's limit for socket paths is short, and its own error names no path.
        if self.socket().as_os_str().len() > MAX_SOCKET_PATH {
            return Err(HomeError::TooLong(self.socket()));
        }
        Ok(())
    }

    /// Checks that `writ init` has been through with it.
    pub(crate) fn check_set_up(&self) -> Result<(), HomeError> {
        self.check_permissions()?;
        for (path, what) in [(self.config_file(), "config.toml"), (self.keys().join("backend.toml"), "keys")]
        {
            // Links are not followed here: a dangling one still counts as set up, and its use reports the
            // error.
            match fs::symlink_metadata(&path) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(HomeError::NotSetUp { root: self.root.clone(), what });
                }
                Err(source) => return Err(HomeError::Unreadable { path, source }),
            }
        }
        Ok(())
    }

    /// The home folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The owner's configuration.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.root.join("config.toml")
    }

    /// The owner's rules in words, pinned into every context.
    pub(crate) fn rules_file(&self) -> PathBuf {
        self.root.join("RULES.md")
    }

    /// The owner's Cedar rules.
    pub(crate) fn policies(&self) -> PathBuf {
        self.root.join("policies")
    }

    /// The owner's servers of tools, and what was pinned of them.
    pub(crate) fn servers(&self) -> PathBuf {
        self.root.join("mcp")
    }

    /// The files of plugins, by name.
    pub(crate) fn plugins(&self) -> PathBuf {
        self.root.join("plugins")
    }

    /// The work tree that the agent may change.
    pub(crate) fn agent(&self) -> PathBuf {
        self.root.join("agent")
    }

    /// The agent's documents.
    pub(crate) fn documents(&self) -> PathBuf {
        self.agent().join(writ_types::action::DOCUMENTS)
    }

    /// The git directory of [`Home::agent`], outside of everything that a sandbox sees.
    pub(crate) fn agent_git(&self) -> PathBuf {
        self.root.join("agent.git")
    }

    /// Returns the folder of the deployed agents of a fleet.
    pub(crate) fn agents(&self) -> PathBuf {
        self.root.join("agents")
    }

    /// Tests of the owner's that no agent sees, in a folder for each name that a project's gates may have for them.
    pub(crate) fn hidden_tests(&self) -> PathBuf {
        self.root.join("hidden-tests")
    }

    /// Keys and secrets.
    pub(crate) fn keys(&self) -> PathBuf {
        self.root.join("keys")
    }

    /// Returns the folder of the declared operations of the security proxy.
    pub(crate) fn operations(&self) -> PathBuf {
        self.root.join("operations")
    }

    /// Returns the folder of a running engine's files for clients.
    pub(crate) fn runtime(&self) -> PathBuf {
        self.root.join("runtime")
    }

    /// Returns the path of the engine's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.runtime().join("control.sock")
    }

    /// The socket of the model router, which locked agents are led to.
    pub(crate) fn model_socket(&self) -> PathBuf {
        self.runtime().join("llm-router.sock")
    }

    /// The socket of the case router for its front end.
    pub(crate) fn cases_socket(&self) -> PathBuf {
        self.runtime().join("cases.sock")
    }

    /// Returns the file with the digest of the front end's token.
    pub(crate) fn front_end_token(&self) -> PathBuf {
        self.keys().join("front-end.sha256")
    }

    /// The lock that the engine holds.
    pub(crate) fn lock(&self) -> PathBuf {
        self.runtime().join("lock")
    }

    /// Returns the folder of the engine's logs.
    pub(crate) fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Every folder that `init` makes, the home first. `data` and what is in it follow the configuration.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let mut folders = vec![
            self.root.clone(),
            self.policies(),
            self.agent(),
            self.documents(),
            self.keys(),
            self.runtime(),
            self.logs(),
        ];
        let plain = ["generated", "workspace", "workspace/inbox", "backups"];
        folders.extend(plain.iter().map(|name| self.root.join(name)));
        folders
    }
}

fn user_home(env: &Env) -> Option<PathBuf> {
    // The variable first, then the system's list of users.
    env.path_of("HOME").or_else(|| home_of(geteuid().as_raw()))
}

/// Returns the free space of the disk of a folder, in bytes; `None`: unknown.
pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    let found = statvfs(folder).ok()?;
    #[expect(clippy::useless_conversion, reason = "the types differ between platforms")]
    Some(u64::from(found.blocks_available()).saturating_mul(u64::from(found.fragment_size())))
}

/// Checks that a folder is there, ours, closed to others, readable and writable.
pub(crate) fn check_folder(path: &Path) -> Result<(), HomeError> {
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(HomeError::Missing(path.to_owned()));
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(HomeError::NotAFolder(path.to_owned()));
        }
        Err(source) => return Err(HomeError::Unreadable { path: path.to_owned(), source }),
    };
    if !meta.is_dir() {
        return Err(HomeError::NotAFolder(path.to_owned()));
    }
    if meta.uid() != geteuid().as_raw() {
        return Err(HomeError::WrongOwner { path: path.to_owned(), owner: meta.uid() });
    }
    let mode = meta.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(HomeError::WrongMode { path: path.to_owned(), mode });
    }
    let _entries =
        fs::read_dir(path).map_err(|source| HomeError::Unreadable { path: path.to_owned(), source })?;
    access(path, AccessFlags::W_OK | AccessFlags::X_OK)
        .map_err(|errno| HomeError::Unwritable { path: path.to_owned(), source: errno.into() })
}

/// Makes a folder (0700) with the folders above it; `false`: it was there already.
pub(crate) fn make_folder(path: &Path) -> Result<bool, HomeError> {
    match fs::symlink_metadata(path) {
        Ok(_) if path.is_dir() => return Ok(false),
        Ok(_) => return Err(HomeError::NotAFolder(path.to_owned())),
        Err(_) => {}
    }
    let made = fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path);
    match made {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            let blocker = path.ancestors().find(|above| above.exists()).unwrap_or(path);
            Err(HomeError::NotAFolder(blocker.to_owned()))
        }
        Err(source) => Err(HomeError::Unwritable { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn home_in(dir: &Path) -> Home {
        Home::find_home(Some(dir), &Env::default()).expect("found")
    }

    #[test]
    fn the_flag_wins_over_the_variable_and_that_over_home() {
        let env = Env::from_pairs(&[("WRIT_HOME", "/b"), ("HOME", "/c")]);
        assert_eq!(Home::find_home(Some(Path::new("/a")), &env).expect("found").root(), Path::new("/a"));
        assert_eq!(Home::find_home(None, &env).expect("found").root(), Path::new("/b"));
        let env = Env::from_pairs(&[("WRIT_HOME", ""), ("HOME", "/c")]);
        assert_eq!(Home::find_home(None, &env).expect("found").root(), Path::new("/c/.writ"));
        let here = std::env::current_dir().expect("there");
        assert_eq!(Home::find_home(Some(Path::new("x/./y")), &env).expect("found").root(), here.join("x/y"));
    }

    #[test]
    fn a_missing_home_variable_falls_back_to_the_users_entry() {
        let known = home_of(geteuid().as_raw()).map(|home| home.join(".writ"));
        match (Home::find_home(None, &Env::default()), known) {
            (Ok(home), Some(expected)) => assert_eq!(home.root(), expected),
            (Err(HomeError::Unknown), None) => {}
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn a_home_that_others_can_read_is_refused_with_the_command_that_mends_it() {
        let dir = tempfile::tempdir().expect("temp dir");
        let home = home_in(dir.path());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("closed");
        home.check_permissions().expect("usable");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o750)).expect("opened");
        let report = home.check_permissions().expect_err("refused").report();
        assert_eq!((report.exit, report.code.as_str()), (Exit::Config, "home.wrong_mode"));
        assert!(report.hint.starts_with("chmod 0700 "));
    }

    #[test]
    fn what_is_not_there_or_no_folder_is_named() {
        let dir = tempfile::tempdir().expect("temp dir");
        let missing = home_in(&dir.path().join("none"));
        let report = missing.check_set_up().expect_err("missing").report();
        assert_eq!((report.exit, report.hint.as_str()), (Exit::Config, "run `writ init` first"));
        let file = dir.path().join("file");
        fs::write(&file, "").expect("written");
        assert!(
            matches!(home_in(&file).check_permissions(), Err(HomeError::NotAFolder(path)) if path == file)
        );
        assert!(matches!(make_folder(&file), Err(HomeError::NotAFolder(path)) if path == file));
        let below = file.join("deeper/still");
        assert!(matches!(make_folder(&below), Err(HomeError::NotAFolder(path)) if path == file));
    }

    #[test]
    fn a_home_too_deep_for_its_socket_is_refused_before_anything_starts() {
        let dir = tempfile::tempdir().expect("temp dir");
        let deep = dir.path().join("d".repeat(MAX_SOCKET_PATH));
        make_folder(&deep).expect("made");
        assert!(matches!(home_in(&deep).check_permissions(), Err(HomeError::TooLong(_))));
    }

    #[test]
    fn folders_are_made_closed_to_others_and_only_once() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("a/b");
        assert!(make_folder(&path).expect("made"));
        assert!(!make_folder(&path).expect("there"));
        for made in [dir.path().join("a"), path] {
            assert_eq!(made.metadata().expect("there").mode() & 0o777, FOLDER_MODE);
        }
    }
}
