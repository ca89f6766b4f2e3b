//! Commits: merged, written, compared. None of this touches a work tree.

use std::path::PathBuf;

use super::process::{GitProcess, split_nul, to_line, to_path};
use super::{CommitId, GitFault, GitProject, TreeId};

/// The most commits that are listed at once.
pub const COMMITS_MAX: usize = 10_000;
/// The most bytes of a commit's message.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// A person or program that commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committer {
    /// The name.
    pub name: String,
    /// The address.
    pub email: String,
}

/// The result of merging two commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeMerge {
    /// The merged tree.
    Clean(TreeId),
    /// The files that both have changed in ways that exclude each other, each once, as git orders them.
    Conflict(Vec<PathBuf>),
}

/// One commit, as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitLine {
    /// Its id.
    pub id: CommitId,
    /// Its parents.
    pub parents: Vec<CommitId>,
    /// Its date, in seconds since 1970.
    pub seconds: i64,
    /// The first line of its message.
    pub subject: String,
    /// The value of its trailer `Writ-Unit`.
    pub unit: Option<String>,
}

/// One path that differs between two trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// The path.
    pub path: PathBuf,
    /// Its mode before, in octal digits; `000000`: not there.
    pub mode_before: String,
    /// Its mode afterwards.
    pub mode_after: String,
    /// The id of its content afterwards.
    pub content_after: String,
}

/// The tree of a merge as it would be shown to a person: conflicts stand in it as markers. It is never committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeDraft {
    /// The tree.
    pub tree: TreeId,
    /// The files that conflict.
    pub conflicts: Vec<PathBuf>,
}

/// Merges two commits by their common ancestors, with renames, into a tree.
///
/// # Errors
///
/// If they have no common ancestor, or the objects cannot be read or written.
pub async fn merge_trees(
    project: &GitProject,
    ours: &CommitId,
    theirs: &CommitId,
) -> Result<TreeMerge, GitFault> {
    Ok(match run_merge(project, ours, theirs).await? {
        (true, draft) => TreeMerge::Clean(draft.tree),
        (false, draft) => TreeMerge::Conflict(draft.conflicts),
    })
}

/// Merges two commits for a person who resolves their conflicts.
///
/// # Errors
///
/// As [`merge_trees`].
pub async fn merge_draft(
    project: &GitProject,
    ours: &CommitId,
    theirs: &CommitId,
) -> Result<MergeDraft, GitFault> {
    Ok(run_merge(project, ours, theirs).await?.1)
}

/// Merges two commits; true: nothing conflicts.
async fn run_merge(
    project: &GitProject,
    ours: &CommitId,
    theirs: &CommitId,
) -> Result<(bool, MergeDraft), GitFault> {
    let doing = "merge two commits";
    let mut git = GitProcess::in_own(project, doing);
    if project.reads_attributes() {
        // Of the side that was checked: the other one could switch its own conflicts off.
        git = git.with_args([format!("--attr-source={ours}")]);
    }
    let flags = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages"];
    let output = git.with_args(flags).with_args([ours.as_str(), theirs.as_str()]).run_to_end().await?;
    let mut parts = split_nul(&output.stdout);
    let (code @ (0 | 1), Some(tree)) = (output.code, parts.next()) else {
        return Err(GitFault::from_message(doing, output.code, &output.stderr));
    };
    let tree = TreeId::parse_id(&to_line(tree))?;
    let mut conflicts: Vec<PathBuf> = parts.map(to_path).collect();
    conflicts.dedup();
    Ok((code == 0, MergeDraft { tree, conflicts }))
}

/// Returns the tree without files.
///
/// # Errors
///
/// If it cannot be written.
pub async fn empty_tree(project: &GitProject) -> Result<TreeId, GitFault> {
    let written = GitProcess::in_own(project, "write a tree").with_args(["mktree"]).run_well().await?;
    TreeId::parse_id(&to_line(&written))
}

/// Writes a commit; no reference is moved.
///
/// # Errors
///
/// If it cannot be written.
pub async fn write_commit(
    project: &GitProject,
    tree: &TreeId,
    parents: &[&CommitId],
    message: &str,
    committer: &Committer,
) -> Result<CommitId, GitFault> {
    let mut message = message.replace('\0', " ");
    if message.len() > MESSAGE_BYTES_MAX {
        let end = (0..=MESSAGE_BYTES_MAX).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or(0));
    }
    let mut args = vec!["commit-tree".to_owned(), tree.to_string(), "-F".to_owned(), "-".to_owned()];
    // The order is part of the meaning: the first is the line of the branch.
    for parent in parents {
        args.extend(["-p".to_owned(), parent.to_string()]);
    }
    let written = GitProcess::in_own(project, "write a commit")
        .with_variable("GIT_AUTHOR_NAME", &committer.name)
        .with_variable("GIT_AUTHOR_EMAIL", &committer.email)
        .with_variable("GIT_COMMITTER_NAME", &committer.name)
        .with_variable("GIT_COMMITTER_EMAIL", &committer.email)
        .with_args(args)
        .with_input(message.into_bytes())
        .run_well()
        .await?;
    CommitId::parse_id(&to_line(&written))
}

/// Returns the tree of a commit.
///
/// # Errors
///
/// If there is no such commit.
pub async fn tree_of(project: &GitProject, commit: &CommitId) -> Result<TreeId, GitFault> {
    let git = GitProcess::in_own(project, "read a commit");
    let read = git.with_args(["rev-parse", "--verify", &format!("{commit}^{{tree}}")]).run_well().await?;
    TreeId::parse_id(&to_line(&read))
}

/// Returns true if the first commit is an ancestor of the second, or the same.
///
/// # Errors
///
/// If one of them is not there.
pub async fn is_ancestor(project: &GitProject, ancestor: &CommitId, of: &CommitId) -> Result<bool, GitFault> {
    let doing = "compare two commits";
    let git = GitProcess::in_own(project, doing);
    let output =
        git.with_args(["merge-base", "--is-ancestor", ancestor.as_str(), of.as_str()]).run_to_end().await?;
    match output.code {
        0 => Ok(true),
        1 => Ok(false),
        code => Err(GitFault::from_message(doing, code, &output.stderr)),
    }
}

/// Lists the commits of `tip` that are not proven to be in `target`: neither is an ancestor of it, nor has one of its commits the
/// same patch.
///
/// # Errors
///
/// If one of them is not there.
pub async fn missing_commits(
    project: &GitProject,
    target: &CommitId,
    tip: &CommitId,
) -> Result<Vec<CommitId>, GitFault> {
    let git = GitProcess::in_own(project, "compare two histories");
    let (range, most) = (format!("{target}...{tip}"), format!("--max-count={COMMITS_MAX}"));
    let args = ["rev-list", "--cherry-pick", "--right-only", &most, &range, "--"];
    let listed = git.with_args(args).run_well().await?;
    String::from_utf8_lossy(&listed).lines().map(CommitId::parse_id).collect()
}

/// Lists the commits of `tip` that are not in `since`, newest first.
///
/// # Errors
///
/// If one of them is not there.
pub async fn list_commits(
    project: &GitProject,
    since: Option<&CommitId>,
    tip: &CommitId,
) -> Result<Vec<CommitLine>, GitFault> {
    // Fields end with a unit separator, commits with NUL: neither can stand in a subject.
    let format = "--format=%H%x1f%P%x1f%ct%x1f%(trailers:key=Writ-Unit,valueonly,separator=%x20)%x1f%s";
    let mut args = vec!["log".to_owned(), "-z".to_owned(), "--topo-order".to_owned(), format.to_owned()];
    args.extend([format!("--max-count={COMMITS_MAX}"), tip.to_string()]);
    args.extend(since.map(|since| format!("^{since}")));
    args.push("--".to_owned());
    let listed = GitProcess::in_own(project, "list commits").with_args(args).run_well().await?;
    split_nul(&listed).map(|line| read_line(&String::from_utf8_lossy(line))).collect()
}

fn read_line(line: &str) -> Result<CommitLine, GitFault> {
    let fields: Vec<&str> = line.trim_matches('\n').splitn(5, '\x1f').collect();
    let [id, parents, seconds, unit, subject] = fields[..] else {
        return Err(GitFault::Failed { doing: "list commits", code: 0, said: "a line has no fields".into() });
    };
    Ok(CommitLine {
        id: CommitId::parse_id(id)?,
        parents: parents
            .split(' ')
            .filter(|id| !id.is_empty())
            .map(CommitId::parse_id)
            .collect::<Result<_, _>>()?,
        seconds: seconds.parse().unwrap_or(0),
        subject: subject.to_owned(),
        unit: Some(unit.trim()).filter(|unit| !unit.is_empty()).map(str::to_owned),
    })
}

/// Lists the paths that differ between two commits or trees, renames as two paths.
///
/// # Errors
///
/// If one of them is not there.
pub async fn changed_paths(
    project: &GitProject,
    before: &str,
    after: &str,
) -> Result<Vec<PathChange>, GitFault> {
    let git = GitProcess::in_own(project, "compare two trees");
    let args = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", before, after, "--"];
    let listed = git.with_args(args).run_well().await?;
    let mut changes = Vec::new();
    let mut parts = split_nul(&listed);
    while let (Some(about), Some(path)) = (parts.next(), parts.next()) {
        let about = String::from_utf8_lossy(about);
        let fields: Vec<&str> = about.trim_start_matches(':').split(' ').collect();
        let [mode_before, mode_after, _, content, _] = fields[..] else { continue };
        changes.push(PathChange {
            path: to_path(path),
            mode_before: mode_before.to_owned(),
            mode_after: mode_after.to_owned(),
            content_after: content.to_owned(),
        });
    }
    Ok(changes)
}

/// Returns the differences of two commits or trees as a patch, without what the repository's configuration would make of it.
///
/// # Errors
///
/// If one of them is not there, or the patch is larger than an answer of git may be.
pub async fn diff_text(project: &GitProject, before: &str, after: &str) -> Result<String, GitFault> {
    let git = GitProcess::in_own(project, "compare two trees");
    // Programs that the repository names for showing files are not started.
    let args = [
        "diff-tree",
        "-r",
        "-p",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        "--no-renames",
        before,
        after,
        "--",
    ];
    let patch = git.with_args(args).run_well().await?;
    Ok(String::from_utf8_lossy(&patch).into_owned())
}
