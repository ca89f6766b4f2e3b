//! The history of a branch: who has changed which files, and when.

use super::process::GitProcess;
use super::{CommitId, GitFault, GitProject};

/// The most commits of a history that are read, the newest ones.
pub const HISTORY_MAX: usize = 500;
/// Begins the line of a commit. In the line of a path git puts such a character into quotes.
const COMMIT_MARK: char = '\u{1}';
/// Stands between the fields of a commit.
const FIELD_MARK: char = '\u{1f}';

/// A commit with the files that it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryCommit {
    /// Its date, in seconds since 1970.
    pub seconds: i64,
    /// The name of its author.
    pub author: String,
    /// The first line of its message.
    pub subject: String,
    /// The paths that it changes, as git shows them: one with characters that act unseen stands in quotes.
    pub paths: Vec<String>,
}

/// Reads the newest commits of a history without its merges, the newest first.
///
/// # Errors
///
/// If the commit is not there, or the commits change more files than git's output may have bytes for.
pub async fn read_history(project: &GitProject, tip: &CommitId) -> Result<Vec<HistoryCommit>, GitFault> {
    let format = format!("--format={COMMIT_MARK}%ct{FIELD_MARK}%an{FIELD_MARK}%s");
    let most = format!("--max-count={HISTORY_MAX}");
    let args = ["log", "--no-merges", "--no-renames", "--name-only", "--no-color", &most, &format];
    let git = GitProcess::in_own(project, "read the history");
    let listed = git.with_args(args).with_args([tip.as_str(), "--"]).run_well().await?;
    Ok(read_commits(&String::from_utf8_lossy(&listed)))
}

fn read_commits(listed: &str) -> Vec<HistoryCommit> {
    let mut commits: Vec<HistoryCommit> = Vec::new();
    for line in listed.split('\n').filter(|line| !line.is_empty()) {
        if let Some(head) = line.strip_prefix(COMMIT_MARK) {
            let mut fields = head.splitn(3, FIELD_MARK);
            let mut next = || fields.next().unwrap_or_default().to_owned();
            let (seconds, author, subject) = (next(), next(), next());
            let seconds = seconds.parse().unwrap_or(0);
            commits.push(HistoryCommit { seconds, author, subject, paths: Vec::new() });
        } else if let Some(commit) = commits.last_mut() {
            commit.paths.push(line.to_owned());
        }
    }
    commits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that begins like a commit is one in quotes, and a subject may have the mark of fields.
    #[test]
    fn commits_and_paths_are_not_mixed_up() {
        let commit = |author: &str, subject: &str, paths: &[&str]| HistoryCommit {
            seconds: 5,
            author: author.to_owned(),
            subject: subject.to_owned(),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        };
        let listed = "\u{1}5\u{1f}Ann\u{1f}one\u{1f}two\n\nsrc/a.rs\n\"\\001x\"\n\u{1}5\u{1f}Bob\u{1f}\n";
        assert_eq!(
            read_commits(listed),
            [commit("Ann", "one\u{1f}two", &["src/a.rs", "\"\\001x\""]), commit("Bob", "", &[])]
        );
        assert_eq!(read_commits(""), []);
    }
}
