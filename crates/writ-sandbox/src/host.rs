//! The few processes that run on the host itself: our own engine, and git on repositories that only we write.
//!
//! There is no function here that runs anything else, and none that runs in a folder that a sandbox could write.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt as _};
use writ_types::error::{Exit, Report, ToReport};

/// The most output that is read of git, in bytes, of each stream.
pub const GIT_OUTPUT_MAX: u64 = 64 * 1024 * 1024;
/// The longest that git may run.
pub const GIT_TIME_MAX: Duration = Duration::from_secs(120);

/// Settings that stop git from running anything, against any configuration of the repository.
const GIT_SETTINGS: [&str; 12] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.editor=false",
    "core.pager=cat",
    "core.sshCommand=false",
    "core.attributesFile=/dev/null",
    "core.symlinks=false",
    "protocol.allow=never",
    "protocol.file.allow=user",
    "gc.auto=0",
    "commit.gpgSign=false",
];
/// Variables that do the same.
const GIT_ENV: [(&str, &str); 9] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "false"),
    ("GIT_EDITOR", "false"),
    ("GIT_PAGER", "cat"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("LC_ALL", "C.UTF-8"),
];
/// The programs' path for git.
const GIT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The largest `/etc/passwd` that is read, in bytes.
const MAX_PASSWD_BYTES: u64 = 16 * 1024 * 1024;

/// The home folder of a user, as `/etc/passwd` has it. The file is read as it is: the C library would load modules for
/// other sources, which a static binary cannot.
pub fn home_of(uid: u32) -> Option<PathBuf> {
    use std::io::Read as _;
    let mut text = Vec::new();
    File::open("/etc/passwd").ok()?.take(MAX_PASSWD_BYTES).read_to_end(&mut text).ok()?;
    home_in(&String::from_utf8_lossy(&text), uid)
}

fn home_in(passwd: &str, uid: u32) -> Option<PathBuf> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, id, _, _, home, _] = fields.as_slice() else { return None };
        (id.parse() == Ok(uid) && home.starts_with('/')).then(|| PathBuf::from(home))
    })
}

/// The reason why a process on the host was not started or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// It could not be started.
    #[error("{program} could not be started: {source}")]
    Start {
        /// The program.
        program: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// It ran too long or wrote too much.
    #[error("git was stopped: {why}")]
    Stopped {
        /// The limit that it hit.
        why: &'static str,
    },
    /// The repository's own configuration names programs to run, and it is not one of ours.
    #[error("the repository's configuration holds '{key}', which ours never do")]
    Foreign {
        /// The setting.
        key: String,
    },
}

impl ToReport for HostError {
    fn report(&self) -> Report {
        let inside = self.to_string();
        match self {
            Self::Start { program, .. } => {
                Report::new(Exit::Blocked, "host.start", format!("{program} could not be started"))
                    .with_hint("`writ doctor` shows which programs are missing")
            }
            Self::Stopped { .. } => Report::new(Exit::Budget, "host.stopped", inside.clone()),
            Self::Foreign { .. } => Report::new(Exit::Denied, "host.foreign_repository", inside.clone()),
        }
        .with_inside(inside)
    }
}

/// Starts our own binary as a process of its own, which outlives this one: in a session of its own, without a
/// terminal, with nothing of ours open, and with these variables only. Returns its process id.
///
/// # Errors
///
/// If it cannot be started, or the log cannot be opened.
#[cfg(unix)]
#[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
pub fn spawn_engine(args: &[String], env: &BTreeMap<String, String>, log: &Path) -> Result<u32, HostError> {
    let start = |source| HostError::Start { program: "the engine", source };
    let exe = std::env::current_exe().map_err(start)?;
    let log = File::options().create(true).append(true).open(log).map_err(start)?;
    let mut command = std::process::Command::new(exe);
    command
        .args(args)
        // Nothing of the caller's environment gets into the engine but what it is given.
        .env_clear()
        .envs(env)
        // The caller's folder would be in use, and could not be unmounted, for as long as the engine runs.
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::from(log.try_clone().map_err(start)?))
        .stderr(Stdio::from(log));
    detach(&mut command);
    Ok(command.spawn().map_err(start)?.id())
}

/// A session of its own, and nothing inherited but the three streams.
#[cfg(all(target_os = "linux", not(writ_other_system)))]
#[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
fn detach(command: &mut std::process::Command) {
    crate::linux::detach_command(command);
}

/// Elsewhere a group of its own must do; descriptors are close-on-exec as the standard library opens them.
#[cfg(all(unix, any(not(target_os = "linux"), writ_other_system)))]
#[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
fn detach(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}

/// Our own binary as a child with two pipes. Dropping it kills it.
#[derive(Debug)]
pub struct OwnChild {
    /// Its standard input.
    pub input: tokio::process::ChildStdin,
    /// Its standard output.
    pub output: tokio::process::ChildStdout,
    /// The process itself.
    pub process: OwnProcess,
}

/// A process of our own binary. Dropping it kills it.
#[derive(Debug)]
pub struct OwnProcess {
    _child: tokio::process::Child,
}

/// The most bytes of one child's standard error that go into a log.
const MAX_ERROR_BYTES: u64 = 256 * 1024;
/// The size of a log, in bytes, above which the next child begins another one; the one before stays beside it.
const MAX_LOG_BYTES: u64 = 8 * 1024 * 1024;

/// Starts our own binary as a child that speaks over its standard input and output, with these variables only. The first
/// 256 KiB of its standard error go into the log.
///
/// # Errors
///
/// If it cannot be started, or the log cannot be opened.
#[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
pub fn spawn_piped(
    args: &[String],
    env: &BTreeMap<String, String>,
    log: &Path,
) -> Result<OwnChild, HostError> {
    let start = |source| HostError::Start { program: "the launcher", source };
    let exe = std::env::current_exe().map_err(start)?;
    let log = open_log(log).map_err(start)?;
    let mut child = tokio::process::Command::new(exe)
        .args(args)
        .env_clear()
        .envs(env)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // A pipe: through the file itself an agent could empty the log, or fill the disk.
        .stderr(Stdio::piped())
        // An agent does not outlive its case.
        .kill_on_drop(true)
        .spawn()
        .map_err(start)?;
    let pipe = || start(io::Error::other("it has no pipe"));
    let (input, output) = (child.stdin.take().ok_or_else(pipe)?, child.stdout.take().ok_or_else(pipe)?);
    tokio::spawn(copy_errors(child.stderr.take().ok_or_else(pipe)?, log));
    Ok(OwnChild { input, output, process: OwnProcess { _child: child } })
}

fn open_log(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path).is_ok_and(|log| log.len() > MAX_LOG_BYTES) {
        std::fs::rename(path, path.with_extension("old.log"))?;
    }
    File::options().create(true).append(true).open(path)
}

/// Copies the beginning of a child's standard error into a log, and reads on until its end.
async fn copy_errors(errors: tokio::process::ChildStderr, log: File) {
    let (mut log, mut first) = (tokio::fs::File::from_std(log), errors.take(MAX_ERROR_BYTES));
    let copied = match tokio::io::copy(&mut first, &mut log).await {
        Ok(_) => log.flush().await,
        Err(error) => Err(error),
    };
    if let Err(error) = copied {
        tracing::warn!(%error, "the errors of a child could not be written into its log");
    }
    // A child that writes on must not wait for a reader.
    let _ = tokio::io::copy(&mut first.into_inner(), &mut tokio::io::sink()).await;
}

/// The process that has started this one, watched until its end.
#[derive(Debug)]
pub struct ParentWatch(AsyncFd<OwnedFd>);

impl ParentWatch {
    /// Watches the parent, if that is the process with this id; called in an async runtime.
    ///
    /// # Errors
    ///
    /// If the parent is another one: then it has ended. Also if it cannot be watched.
    pub fn open_watch(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let handle = open_process(pid)?;
        // Asked with the handle open: as long as it is our parent, its number is given to no other process.
        if nix::unistd::getppid().as_raw() == pid {
            Ok(Self(handle))
        } else {
            Err(io::Error::new(io::ErrorKind::NotFound, "it is not the parent of this one"))
        }
    }

    /// Waits for its end.
    pub async fn until_ended(&self) {
        // An error means that it cannot be watched any more: then this is its end as well.
        let _ = self.0.readable().await;
    }
}

#[cfg(all(target_os = "linux", not(writ_other_system)))]
fn open_process(pid: i32) -> io::Result<AsyncFd<OwnedFd>> {
    crate::linux::watch_pid(pid)
}

#[cfg(all(unix, any(not(target_os = "linux"), writ_other_system)))]
fn open_process(_pid: i32) -> io::Result<AsyncFd<OwnedFd>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The output of git.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitOutput {
    /// Its exit code; 128 + signal when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error, as text.
    pub stderr: String,
}

/// Settings of a repository that make git run programs or read other configuration.
fn runs_programs(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let ends = |suffix: &str| key.ends_with(suffix);
    // An included file could set any of the other keys.
    key.starts_with("include")
        || key.starts_with("filter.")
        || key.starts_with("alias.")
        || key.starts_with("credential.")
        || ends(".command")
        || ends(".textconv")
        || ends(".driver")
        || ends(".cmd")
        || ends(".program")
        || ends("command")
        || ends(".uploadpack")
        || ends(".receivepack")
        || matches!(key.as_str(), "core.worktree" | "core.alternaterefscommand" | "extensions.worktreeconfig")
}

/// Runs git in a repository that only the harness writes: no hooks, no monitors, no filters, no pager, no editor, no
/// network, no configuration but ours.
///
/// # Errors
///
/// If git cannot be started, if it runs too long or writes too much, or if the repository's configuration names
/// programs: then it is not one of ours.
pub async fn host_git(repository: &Path, args: &[String]) -> Result<GitOutput, HostError> {
    // The configuration is listed with our own settings on, so listing runs nothing either.
    let listed =
        run_git(repository, &["config", "--local", "--name-only", "--list", "-z"].map(str::to_owned)).await?;
    let keys = String::from_utf8_lossy(&listed.stdout).into_owned();
    if let Some(key) = keys.split('\0').find(|key| runs_programs(key)) {
        return Err(HostError::Foreign { key: key.chars().take(100).collect() });
    }
    run_git(repository, args).await
}

/// Runs git with our settings, in a repository that may be a foreign one: for commands that no configuration makes run anything.
#[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
pub(crate) async fn run_git(repository: &Path, args: &[String]) -> Result<GitOutput, HostError> {
    let start = |source| HostError::Start { program: "git", source };
    let ceiling: PathBuf = repository.parent().map(Path::to_owned).unwrap_or_default();
    let mut command = tokio::process::Command::new("git");
    harden_git(&mut command);
    let child = command
        .args(["--no-pager", "--literal-pathspecs", "--no-replace-objects"])
        .args(args)
        .env("GIT_CEILING_DIRECTORIES", ceiling)
        .current_dir(repository)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A caller that gives up leaves no git behind.
        .kill_on_drop(true)
        .spawn()
        .map_err(start)?;
    collect_output(child).await
}

/// Gives a git command our settings and variables, and nothing of this process's environment.
#[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
pub(crate) fn harden_git(command: &mut tokio::process::Command) {
    command
        .args(GIT_SETTINGS.iter().flat_map(|setting| ["-c", setting]))
        .env_clear()
        .envs(GIT_ENV)
        .env("PATH", GIT_PATH)
        .env("HOME", "/nonexistent");
}

/// Waits for a git, with what it writes, within the bounds.
pub(crate) async fn collect_output(mut child: tokio::process::Child) -> Result<GitOutput, HostError> {
    let start = |source| HostError::Start { program: "git", source };
    let (stdout, stderr) = (read_bounded(child.stdout.take()), read_bounded(child.stderr.take()));
    let all = async { tokio::join!(stdout, stderr, child.wait()) };
    let (stdout, stderr, status) = tokio::time::timeout(GIT_TIME_MAX, all)
        .await
        .map_err(|_| HostError::Stopped { why: "it ran too long" })?;
    let status = status.map_err(start)?;
    let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
        return Err(HostError::Stopped { why: "it wrote too much" });
    };
    let code = status.code().unwrap_or(137);
    Ok(GitOutput { code, stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() })
}

/// Reads a stream to its end; one that the caller reads is empty here. `None`: it has more than [`GIT_OUTPUT_MAX`]; closing it ends the
/// writer.
async fn read_bounded(stream: Option<impl AsyncRead + Unpin>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let Some(stream) = stream else { return Some(bytes) };
    let read = stream.take(GIT_OUTPUT_MAX + 1).read_to_end(&mut bytes).await.ok()?;
    (u64::try_from(read).ok()? <= GIT_OUTPUT_MAX).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that floods its log goes on, and the log holds the beginning alone.
    #[tokio::test]
    #[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
    async fn a_log_takes_the_beginning_of_a_child_s_errors_and_is_begun_anew_when_it_is_large() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agents.log");
        let mut child = tokio::process::Command::new("head")
            .args(["-c", "1000000", "/dev/zero", "/missing"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let errors = child.stderr.take().expect("a pipe");
        copy_errors(errors, open_log(&path).expect("opens")).await;
        child.wait().await.expect("waits");
        let short = std::fs::read_to_string(&path).expect("reads");
        assert!(short.contains("missing"), "{short}");
        let mut child = tokio::process::Command::new("sh")
            .args(["-c", "head -c 1000000 /dev/zero >&2 && echo done"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let errors = child.stderr.take().expect("a pipe");
        copy_errors(errors, open_log(&path).expect("opens")).await;
        assert_eq!(child.wait_with_output().await.expect("waits").stdout, b"done\n");
        let length = |path: &Path| std::fs::metadata(path).expect("is there").len();
        assert_eq!(length(&path), MAX_ERROR_BYTES + u64::try_from(short.len()).expect("fits"));
        File::options()
            .write(true)
            .open(&path)
            .and_then(|log| log.set_len(MAX_LOG_BYTES + 1))
            .expect("grown");
        drop(open_log(&path).expect("opens"));
        assert_eq!((length(&path), length(&folder.path().join("agents.old.log"))), (0, MAX_LOG_BYTES + 1));
    }

    #[test]
    fn a_user_s_home_is_read_from_the_list_of_users() {
        let list = "root:x:0:0:root:/root:/bin/bash\nbroken:x:7\n# note\nann:x:1000:1000:Ann,,,:/home/ann:/bin/sh\n\
                    relative:x:8:8::home:/bin/sh\n";
        assert_eq!(home_in(list, 1000), Some(PathBuf::from("/home/ann")));
        assert_eq!([7, 8, 9].map(|uid| home_in(list, uid)), [None, None, None]);
        let known = nix::unistd::User::from_uid(nix::unistd::getuid()).expect("reads").map(|user| user.dir);
        assert_eq!(home_of(nix::unistd::getuid().as_raw()), known);
    }
}
