//! References: read, listed, and moved in transactions by compare-and-swap.

use std::collections::BTreeMap;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::process::{GitProcess, to_line};
use super::{CommitId, GitFault, GitProject, RefName};
use crate::host::{self, HostError};

/// The most references of the harness that are listed.
pub const REFS_MAX: usize = 100_000;

/// One change of a reference. In a transaction all are made, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefChange {
    /// A new one; one that exists is an error.
    Create {
        /// The reference.
        name: RefName,
        /// Its commit.
        to: CommitId,
    },
    /// From one commit to another; at any third it is an error.
    Move {
        /// The reference.
        name: RefName,
        /// Its commit now.
        from: CommitId,
        /// Its commit afterwards.
        to: CommitId,
    },
    /// Removed; at another commit it is an error.
    Delete {
        /// The reference.
        name: RefName,
        /// Its commit now.
        from: CommitId,
    },
}

impl RefChange {
    /// The line of `git update-ref --stdin`.
    fn to_line(&self) -> String {
        match self {
            Self::Create { name, to } => format!("create {name} {to}\n"),
            Self::Move { name, from, to } => format!("update {name} {to} {from}\n"),
            Self::Delete { name, from } => format!("delete {name} {from}\n"),
        }
    }
}

/// Returns the commit of a reference. `None`: there is no such reference, or it has no commit.
///
/// # Errors
///
/// If git cannot be run.
pub async fn read_ref(project: &GitProject, name: &RefName) -> Result<Option<CommitId>, GitFault> {
    let git = GitProcess::in_repository(project, "read a reference");
    let asked = format!("{name}^{{commit}}");
    let output = git.with_args(["rev-parse", "--verify", "--quiet", &asked]).run_to_end().await?;
    if output.code != 0 {
        return Ok(None);
    }
    CommitId::parse_id(&to_line(&output.stdout)).map(Some)
}

/// Lists the references with names that begin with `refs/writ/KIND/` or, for `heads/NAME`, `refs/heads/NAME/`.
///
/// # Errors
///
/// If git cannot be run, or if there are more than [`REFS_MAX`].
pub async fn list_refs(project: &GitProject, below: &str) -> Result<BTreeMap<RefName, CommitId>, GitFault> {
    let git = GitProcess::in_repository(project, "list the references");
    let (format, most) = ("--format=%(objectname) %(refname)", format!("--count={REFS_MAX}"));
    let listed = git.with_args(["for-each-ref", format, &most, below]).run_well().await?;
    let mut found = BTreeMap::new();
    for line in String::from_utf8_lossy(&listed).lines() {
        // A branch of the user's may have a name that we would not take; none of ours has.
        let Some((id, name)) = line.split_once(' ') else { continue };
        // Names of tags and remotes are not asked for.
        if let (Ok(id), Ok(name)) = (CommitId::parse_id(id), RefName::parse_full(name)) {
            found.insert(name, id);
        }
    }
    Ok(found)
}

/// Makes several changes at once. `why` stands in the reflog.
///
/// # Errors
///
/// [`GitFault::Moved`], [`GitFault::Taken`] or [`GitFault::Locked`] if one of them cannot be made; then none is.
pub async fn change_refs(project: &GitProject, changes: &[RefChange], why: &str) -> Result<(), GitFault> {
    RefTransaction::prepare(project, changes, why).await?.commit().await
}

/// Changes that git has verified and locked. Dropping it makes none of them.
#[derive(Debug)]
pub struct RefTransaction {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl RefTransaction {
    /// Locks the references and verifies that they are where the changes say.
    ///
    /// # Errors
    ///
    /// As [`change_refs`].
    pub async fn prepare(project: &GitProject, changes: &[RefChange], why: &str) -> Result<Self, GitFault> {
        let start = |source| HostError::Start { program: "git", source };
        let git = GitProcess::in_repository(project, "change references");
        let reason: String = why.chars().filter(|c| !c.is_control()).take(200).collect();
        let mut command = git.with_args(["update-ref", "-m", &reason, "--stdin"]).into_command();
        // Killed, it would leave its lock files: at the end of its input it removes them.
        let mut child = command.kill_on_drop(false).spawn().map_err(start)?;
        let pipe = || start(std::io::Error::other("it has no pipe"));
        let mut input = child.stdin.take().ok_or_else(pipe)?;
        let mut output = BufReader::new(child.stdout.take().ok_or_else(pipe)?);
        let lines: String = changes.iter().map(RefChange::to_line).collect();
        // If git refuses a line, its message is read below.
        let _ = input.write_all(format!("start\n{lines}prepare\n").as_bytes()).await;
        if await_line(&mut output, "prepare: ok").await? {
            return Ok(Self { child, input, output });
        }
        drop(input);
        Err(refusal_of(child).await)
    }

    /// Makes the changes.
    ///
    /// # Errors
    ///
    /// If git was ended meanwhile, or the disk cannot be written.
    pub async fn commit(mut self) -> Result<(), GitFault> {
        let _ = self.input.write_all(b"commit\n").await;
        let done = await_line(&mut self.output, "commit: ok").await?;
        drop(self.input);
        if done {
            let ended = self.child.wait().await;
            ended.map_err(|source| HostError::Start { program: "git", source })?;
            return Ok(());
        }
        Err(refusal_of(self.child).await)
    }
}

/// Reads lines until one; false at the end.
async fn await_line(output: &mut BufReader<ChildStdout>, wanted: &str) -> Result<bool, GitFault> {
    let all = async {
        // Git answers each command with one short line.
        let mut lines = output.take(4_096).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if line == wanted {
                return true;
            }
        }
        false
    };
    let ran = tokio::time::timeout(host::GIT_TIME_MAX, all).await;
    ran.map_err(|_| HostError::Stopped { why: "it ran too long" }.into())
}

/// The reason why a transaction ended.
async fn refusal_of(child: Child) -> GitFault {
    match host::collect_output(child).await {
        Ok(output) => GitFault::from_message("change references", output.code, &output.stderr),
        Err(error) => error.into(),
    }
}
