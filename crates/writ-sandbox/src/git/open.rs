//! Finding a repository, and judging if it can be worked on.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::lock::ProjectLock;
use super::process::{split_nul, to_line, to_path};
use super::{GitFault, names::BranchName};
use crate::host;
use crate::project::copy;

/// The oldest git that merges without a work tree.
const VERSION_MIN: (u32, u32) = (2, 38);
/// The first git that reads attributes from a tree.
const ATTRIBUTES_FROM_TREE: (u32, u32) = (2, 41);
/// The folder of the harness in the git directory.
const OWN_FOLDER: &str = "writ";
/// Settings of a repository that say how its content is written, and can run nothing.
const CONTENT_KEYS: [&str; 5] =
    ["core.autocrlf", "core.eol", "core.filemode", "core.ignorecase", "core.precomposeunicode"];

/// A user's repository, locked for this process.
#[derive(Debug)]
pub struct GitProject {
    top: PathBuf,
    common: PathBuf,
    settings: Vec<String>,
    version: (u32, u32),
    lock: ProjectLock,
    /// Held while git reads or changes its list of work trees: an `add` that meets another one half written fails («failed to read
    /// …/commondir: Success»). Other processes of ours are shut out by `lock`.
    trees: tokio::sync::Mutex<()>,
}

impl GitProject {
    /// Opens the repository of the work tree with this folder as its top, takes its lock, and prepares our own git directory in it.
    ///
    /// # Errors
    ///
    /// If it is no such folder, is bare, a partial clone or another user's; if git is too old; if another process has it.
    pub async fn open_project(folder: &Path) -> Result<Self, GitFault> {
        let not = |why: String| GitFault::NotRepository { folder: folder.to_owned(), why };
        let top = folder.canonicalize().map_err(|error| not(error.to_string()))?;
        let version = read_version(&top).await?;
        if version < VERSION_MIN {
            return Err(GitFault::TooOld { found: format!("{}.{}", version.0, version.1) });
        }
        let (common, format) = find_repository(&top).await?;
        let listed = ask_repository(&top, &["config", "--local", "--list", "-z"]).await?;
        let settings = judge_settings(&listed.stdout)?;
        let own = common.join(OWN_FOLDER);
        make_folder(&own)?;
        let lock = ProjectLock::take_lock(&own.join("lock"))?;
        let trees = tokio::sync::Mutex::default();
        let project = Self { top, common, settings, version, lock, trees };
        project.prepare_own(&format)?;
        Ok(project)
    }

    /// Returns the top of the user's work tree.
    pub fn top_dir(&self) -> &Path {
        &self.top
    }

    /// Returns the git directory that all work trees share.
    pub fn common_dir(&self) -> &Path {
        &self.common
    }

    /// Returns true if the history of the repository is cut off.
    pub fn is_shallow(&self) -> bool {
        self.common.join("shallow").is_file()
    }

    /// Returns the branch that the user's work tree has checked out. `None`: it is detached.
    ///
    /// # Errors
    ///
    /// If git cannot be run, or the branch has a name that ours cannot have.
    pub async fn current_branch(&self) -> Result<Option<BranchName>, GitFault> {
        let output = ask_repository(&self.top, &["symbolic-ref", "--quiet", "HEAD"]).await?;
        let name = to_line(&output.stdout);
        name.strip_prefix("refs/heads/").map(BranchName::parse_name).transpose()
    }

    /// Our own git directory.
    pub(crate) fn own_dir(&self) -> PathBuf {
        self.common.join(OWN_FOLDER).join("git")
    }

    /// A folder for files that live as long as one operation.
    pub(crate) fn temporary_dir(&self) -> PathBuf {
        self.common.join(OWN_FOLDER).join("tmp")
    }

    /// The file of our own that has this name.
    pub(crate) fn own_file(&self, name: &str) -> PathBuf {
        self.common.join(OWN_FOLDER).join(name)
    }

    /// The user's settings about content, and the user's own list of ignored files.
    pub(crate) fn content_settings(&self) -> Vec<String> {
        let excluded = self.common.join("info/exclude");
        let mut settings = self.settings.clone();
        settings.push(format!("core.excludesFile={}", excluded.display()));
        settings
    }

    /// Returns true if git can read attributes from a tree.
    pub(crate) fn reads_attributes(&self) -> bool {
        self.version >= ATTRIBUTES_FROM_TREE
    }

    /// Returns the first two numbers of git's version.
    pub const fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Waits for the list of work trees.
    pub(crate) async fn hold_trees(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.trees.lock().await
    }

    #[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
    pub(crate) fn lend_lock(&self, command: &mut tokio::process::Command) {
        self.lock.lend_to(command);
    }

    /// Writes our own git directory anew, so that nothing of an earlier state counts.
    fn prepare_own(&self, format: &str) -> Result<(), GitFault> {
        let (own, temporary) = (self.own_dir(), self.temporary_dir());
        // Removes what a killed process has left; no process uses it, because this one holds the lock.
        copy::remove_tree(&temporary).map_err(|error| GitFault::from_io(&temporary, error))?;
        for folder in [own.clone(), own.join("objects"), own.join("refs"), temporary] {
            make_folder(&folder)?;
        }
        let mut config = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n".to_owned();
        if format != "sha1" {
            config = config.replace("version = 0", "version = 1");
            config.push_str(&format!("[extensions]\n\tobjectformat = {format}\n"));
        }
        for (name, text) in [("config", config.as_str()), ("HEAD", "ref: refs/heads/none\n")] {
            let path = own.join(name);
            fs::write(&path, text).map_err(|error| GitFault::from_io(path, error))?;
        }
        Ok(())
    }
}

/// Makes a folder of our own if it is not there; a link in its place is an error.
fn make_folder(path: &Path) -> Result<(), GitFault> {
    let failed = |error: io::Error| GitFault::from_io(path, error);
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    if fs::symlink_metadata(path).map_err(failed)?.is_dir() {
        return Ok(());
    }
    Err(failed(io::ErrorKind::NotADirectory.into()))
}

/// Runs git where the user's repository is found by its work tree.
async fn ask_repository(top: &Path, args: &[&str]) -> Result<host::GitOutput, GitFault> {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    Ok(host::run_git(top, &args).await?)
}

/// The first two numbers of git's version.
async fn read_version(top: &Path) -> Result<(u32, u32), GitFault> {
    let output = ask_repository(top, &["--version"]).await?;
    let text = to_line(&output.stdout);
    let mut numbers = text.trim_start_matches("git version ").split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => Err(GitFault::TooOld { found: text }),
    }
}

/// The shared git directory and the format of its ids.
async fn find_repository(top: &Path) -> Result<(PathBuf, String), GitFault> {
    let not = |why: &str| GitFault::NotRepository { folder: top.to_owned(), why: why.to_owned() };
    let asked = ["rev-parse", "--is-bare-repository", "--is-inside-git-dir", "--show-object-format"];
    let output = ask_repository(top, &asked).await?;
    if output.code != 0 {
        if output.stderr.contains("dubious ownership") {
            return Err(GitFault::ForeignOwner { folder: top.to_owned() });
        }
        return Err(not(output.stderr.lines().next().unwrap_or("git does not know it")));
    }
    let text = to_line(&output.stdout);
    let [is_bare, is_inside, format] = text.lines().collect::<Vec<_>>()[..] else {
        return Err(not("git says nothing that can be read"));
    };
    // Of a linked work tree git says that it is none, also where the repository itself is bare.
    if is_bare == "true" {
        return Err(GitFault::Bare { folder: top.to_owned() });
    }
    if is_inside == "true" {
        return Err(not("it is a git directory"));
    }
    let asked = ["rev-parse", "--path-format=absolute", "--show-toplevel"];
    // `core.worktree` may lead elsewhere.
    let shown = ask_repository(top, &asked).await?.stdout;
    let shown = to_path(shown.strip_suffix(b"\n").unwrap_or(&shown));
    if shown.canonicalize().ok().as_deref() != Some(top) {
        return Err(not("the top is another folder"));
    }
    let common =
        ask_repository(top, &["rev-parse", "--path-format=absolute", "--git-common-dir"]).await?.stdout;
    let common = to_path(common.strip_suffix(b"\n").unwrap_or(&common));
    let common = common.canonicalize().map_err(|error| GitFault::from_io(&common, error))?;
    Ok((common, format.to_owned()))
}

/// The settings about content, if nothing else speaks against the repository.
fn judge_settings(listed: &[u8]) -> Result<Vec<String>, GitFault> {
    let mut settings = Vec::new();
    for entry in split_nul(listed) {
        let entry = String::from_utf8_lossy(entry);
        let (key, value) = entry.split_once('\n').unwrap_or((&entry, "true"));
        let lower = key.to_ascii_lowercase();
        if let Some(remote) = lower.strip_prefix("remote.").and_then(|key| key.strip_suffix(".promisor"))
            && value.eq_ignore_ascii_case("true")
        {
            return Err(GitFault::PartialClone { remote: remote.to_owned() });
        }
        let is_plain = value.len() <= 16 && value.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if CONTENT_KEYS.contains(&lower.as_str()) && is_plain {
            settings.push(format!("{lower}={value}"));
        }
    }
    Ok(settings)
}
