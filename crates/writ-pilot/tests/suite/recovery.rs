//! kill -9, and what the next start finds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use writ_pilot::PilotGit;
use writ_pilot::PilotGitError;
use writ_pilot::events::{GitEvent, GitEvents};
use writ_pilot::merge::{MergedTree, TreeCheck, TreeVerdict};
use writ_pilot::service::RecoveryReport;
use writ_sandbox::git::GitFault;
use writ_sandbox::host::spawn_piped;

use super::fixture::*;

/// The variable that makes a test of this binary the child of another.
const FOLDER: &str = "WRIT_PILOT_TEST_FOLDER";

/// Says each event on standard output.
#[derive(Debug)]
struct Speaker;

impl GitEvents for Speaker {
    fn take_event(&self, event: GitEvent) {
        let name = format!("{event:?}");
        say(name.split([' ', '{']).next().unwrap());
    }
}

impl TreeCheck for Speaker {
    async fn check_tree(&self, tree: &MergedTree) -> TreeVerdict {
        say(&format!("check {}", tree.commit));
        TreeVerdict::Pass
    }
}

fn say(line: &str) {
    use std::io::Write;
    // The harness of tests would hold back what is printed.
    let mut out = fs::File::options().append(true).open("/proc/self/fd/1").unwrap();
    writeln!(out, "writ {line}").unwrap();
}

/// The child: slices are made, committed, merged and removed until it is killed. As a test by itself it has nothing to do.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "this is how the parent tells its child what it is")]
async fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let events = Arc::new(Speaker);
    let (service, _) = PilotGit::open_service(Path::new(&folder), Default::default(), events).await.unwrap();
    let is_new = |number: &u32| !Path::new(&folder).join(format!("f{number}")).exists();
    for number in (1..).filter(is_new) {
        let name = format!("f{number}");
        let text = format!("{number}\n");
        let commit = work_on(&service, number, &[(&name, &text), ("README.md", &text)]).await;
        say(&format!("commit {commit}"));
        let results = merge(&service, &[request(number, &[])], &Speaker).await;
        assert_eq!(kinds(&results)[format!("m1/s{number}").as_str()], "merged", "{results:?}");
        service.remove_workspace(&slice(number), &main_branch()).await.unwrap();
        say("removed");
    }
}

/// Runs the child until it has said so many lines, and kills it. Returns its commits.
async fn run_and_kill(repo: &Repo, lines: usize) -> BTreeSet<String> {
    let args = ["recovery::child", "--exact", "--nocapture", "--test-threads=1"].map(str::to_owned);
    let env = BTreeMap::from([(FOLDER.to_owned(), repo.dir.display().to_string())]);
    let mut child = spawn_piped(&args, &env, &repo.beside("child.log")).unwrap();
    let mut output = BufReader::new(&mut child.output).lines();
    let (mut commits, mut seen) = (BTreeSet::new(), 0);
    while seen < lines {
        let line = output.next_line().await.unwrap();
        let Some(line) = line else {
            panic!(
                "the child has ended: {}",
                fs::read_to_string(repo.beside("child.log")).unwrap_or_default()
            )
        };
        let Some(line) = line.strip_prefix("writ ") else { continue };
        seen += 1;
        commits.extend(line.strip_prefix("commit ").map(str::to_owned));
    }
    // Dropped, it is killed.
    drop(child);
    commits
}

/// Opens the project when every git of the killed process has ended: until then it is in use.
async fn reopen(repo: &Repo) -> (PilotGit, RecoveryReport) {
    loop {
        match repo.try_open().await {
            Err(PilotGitError::Git(GitFault::InUse { .. })) => tokio::task::yield_now().await,
            other => return other.unwrap(),
        }
    }
}

/// Killed at any moment of its work, the service leaves every commit reachable, the user's work tree at its branch, no work tree of a
/// check, and no lock; the next one goes on.
#[tokio::test]
async fn a_kill_at_any_moment_leaves_every_commit_reachable() {
    let repo = Repo::new().await;
    let mut commits = BTreeSet::new();
    for lines in 1..=16 {
        commits.extend(run_and_kill(&repo, lines).await);
        let (service, report) = reopen(&repo).await;
        assert_eq!(report.files_unclear, [] as [PathBuf; 0], "after {lines} lines");
        let listed = repo.git(&["worktree", "list", "--porcelain"]).await;
        assert!(!listed.contains("check-"), "{listed}");
        let reachable = repo.git(&["rev-list", "--all"]).await;
        let reachable: BTreeSet<&str> = reachable.lines().collect();
        for commit in &commits {
            assert!(reachable.contains(commit.as_str()), "{commit} is not reachable after {lines} lines");
        }
        assert_eq!(repo.git(&["status", "--porcelain"]).await, "", "after {lines} lines");
        repo.git(&["fsck", "--strict", "--no-dangling"]).await;
        // What is under way is finished or archived, and nothing is left over.
        for name in repo.refs("refs/heads/writ").await {
            let number: u32 = name.split("-s").nth(1).unwrap().split('-').next().unwrap().parse().unwrap();
            service.remove_workspace(&slice(number), &main_branch()).await.unwrap();
        }
        assert_eq!(repo.refs("refs/heads").await, ["refs/heads/main"]);
        assert_eq!(repo.refs("refs/writ/base").await, [""; 0]);
        assert!(
            !repo.dir.join(".git/index.lock").exists()
                && !repo.dir.join(".git/refs/heads/main.lock").exists()
        );
        // The files of the target are those that were merged, whole.
        let line = repo.git(&["log", "--first-parent", "--format=%s", "main"]).await;
        assert!(
            line.lines().all(|subject| subject.starts_with("Merge writ/") || subject == "begin"),
            "{line}"
        );
    }
}

/// A lock that a killed git has left in the middle of moving the target is known by the commit in it; any other lock stays.
#[tokio::test]
async fn locks_of_a_killed_move_are_removed_and_those_of_others_are_not() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    work_on(&service, 1, &[("one", "1\n")]).await;
    drop(service);
    let (old, new) = (repo.at("main").await, repo.at("writ/m1-s1-some-work").await);
    let note = || {
        let note = format!("{{\"target\": \"main\", \"old\": \"{old}\", \"new\": \"{new}\"}}");
        fs::write(repo.dir.join(".git/writ/move.json"), note).unwrap();
    };
    let locks =
        ["refs/heads/main.lock", "HEAD.lock", "index.lock"].map(|name| repo.dir.join(".git").join(name));
    // As they are when git and the service are killed between locking and moving, with half of the files written.
    note();
    fs::write(&locks[0], format!("{new}\n")).unwrap();
    fs::write(&locks[1], "").unwrap();
    fs::write(&locks[2], format!("writ moves this work tree to {new}\n")).unwrap();
    repo.write("one", "1\n");
    let (service, report) = repo.try_open().await.unwrap();
    assert_eq!(report.locks_removed, locks[..2]);
    assert!(locks.iter().all(|lock| !lock.exists()));
    assert!(!repo.dir.join("one").exists(), "moved back: the branch had not moved");
    assert_eq!(repo.git(&["status", "--porcelain"]).await, "");
    assert_eq!(kinds(&merge(&service, &[request(1, &[])], &passing()).await)["m1/s1"], "merged");
    drop(service);
    // Those of another git, in the same places.
    note();
    fs::write(&locks[0], format!("{old}\n")).unwrap();
    fs::write(&locks[2], "DIRC").unwrap();
    let (service, report) = repo.try_open().await.unwrap();
    assert_eq!((report, locks[0].exists(), locks[2].exists()), (RecoveryReport::default(), true, true));
    work_on(&service, 2, &[("two", "2\n")]).await;
    fs::remove_file(&locks[2]).unwrap();
    let refused =
        service.merge_slices(&main_branch(), &[request(2, &[])], &Default::default(), &passing()).await;
    assert!(
        matches!(&refused, Err(PilotGitError::Git(GitFault::Locked { path })) if path == &locks[0]),
        "{refused:?}"
    );
    fs::remove_file(&locks[0]).unwrap();
    assert_eq!(kinds(&merge(&service, &[request(2, &[])], &passing()).await)["m1/s2"], "merged");
}

/// Locks that a killed git has left on the autopilot's own references go at the next start, and a change of a branch and its base
/// that was cut in half is mended: git moves the references of one transaction one after another. Locks of the user stay.
#[tokio::test]
async fn locks_on_own_references_are_removed_and_halves_of_a_change_mended() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    work_on(&service, 1, &[("one", "1\n")]).await;
    drop(service);
    let git = repo.dir.join(".git");
    let branch = "writ/m1-s1-some-work";
    let (tip, main) = (repo.at(branch).await, repo.at("main").await);
    let lock = |name: &str, text: &str| {
        let path = git.join(format!("{name}.lock"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    };
    let (branch_ref, base_ref) = (format!("refs/heads/{branch}"), format!("refs/writ/base/{branch}"));
    let at_line = format!("{tip}\n");
    // Killed before the first of the two was written: the branch of another slice is made at the next try.
    let fresh = "writ/m1-s2-some-work";
    let main_line = format!("{main}\n");
    let cut = [
        lock(&format!("refs/heads/{fresh}"), &main_line),
        lock(&format!("refs/writ/base/{fresh}"), ""),
        lock(&branch_ref, &at_line),
    ];
    let foreign = [lock("refs/heads/topic", ""), lock("refs/heads/main", &main_line)];
    let (service, report) = repo.try_open().await.unwrap();
    let removed: BTreeSet<PathBuf> = report.locks_removed.into_iter().collect();
    assert_eq!(removed, BTreeSet::from(cut));
    assert!(foreign.iter().all(|path| path.exists()), "locks of others stay");
    foreign.iter().for_each(|path| fs::remove_file(path).unwrap());
    work_on(&service, 1, &[("one", "2\n")]).await;
    work_on(&service, 2, &[("two", "2\n")]).await;
    drop(service);

    // Killed between the two of a removal: the branch is gone, its base is there, and git has locked the packed references.
    for name in [&branch_ref, &base_ref] {
        lock(name, "");
    }
    let packed = lock("packed-refs", "");
    let tip = repo.at(branch).await;
    repo.git(&["update-ref", "refs/writ/archive/t", &tip]).await;
    fs::remove_file(git.join(&branch_ref)).unwrap();
    let (_, report) = repo.try_open().await.unwrap();
    assert!(report.locks_removed.len() == 3 && !packed.exists(), "{report:?}");
    assert_eq!(repo.refs("refs/writ/base").await, [format!("refs/writ/base/{fresh}")]);

    // Killed with a branch and without a base: it is the autopilot's again, and its commits are there.
    let fresh_base = format!("refs/writ/base/{fresh}");
    lock(&fresh_base, "");
    lock(&format!("refs/heads/{fresh}"), "");
    fs::remove_file(git.join(&fresh_base)).unwrap();
    let (service, _) = repo.try_open().await.unwrap();
    work_on(&service, 2, &[("two", "3\n")]).await;
    let removed = service.remove_workspace(&slice(2), &main_branch()).await.unwrap();
    assert_eq!(removed.archived.len(), 1);
    drop(service);

    // A lock of packed references that stands by itself may be the user's.
    let packed = lock("packed-refs", "");
    let (_, report) = repo.try_open().await.unwrap();
    assert!(report.locks_removed.is_empty() && packed.exists());
}

/// A lock that a killed git has left in a workspace is in no way of a commit.
#[tokio::test]
async fn a_lock_in_a_workspace_is_in_no_way() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    work_on(&service, 1, &[("one", "1\n")]).await;
    let lock = repo.dir.join(".git/worktrees/m1_s1/index.lock");
    fs::write(&lock, "").unwrap();
    work_on(&service, 1, &[("one", "2\n")]).await;
    drop(service);
    // Fresh, it may belong to a git that runs; old, it is removed.
    let (service, report) = repo.try_open().await.unwrap();
    assert!(report.locks_removed.is_empty() && lock.exists());
    drop(service);
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3_600);
    fs::File::options().write(true).open(&lock).unwrap().set_modified(hour_ago).unwrap();
    let (_, report) = repo.try_open().await.unwrap();
    assert!(report.locks_removed.len() == 1 && !lock.exists());
}

/// A folder for a check that a killed process has made and not filled goes; one that has files, and is no work tree, stays.
#[tokio::test]
async fn an_empty_folder_of_a_check_is_removed_and_no_other() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    work_on(&service, 1, &[("one", "1\n")]).await;
    drop(service);
    let empty = repo.dir.join(".writ/workspaces/check-0123456789ab");
    fs::create_dir(&empty).unwrap();
    repo.write(".writ/workspaces/check-whose/file", "whose?");
    let (_, report) = repo.try_open().await.unwrap();
    assert_eq!(report, RecoveryReport::default());
    assert!(!empty.exists());
    assert_eq!(repo.read(".writ/workspaces/check-whose/file"), "whose?");
}
