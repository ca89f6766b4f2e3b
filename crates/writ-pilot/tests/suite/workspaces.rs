//! Workspaces of slices.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use writ_pilot::PilotGitError;
use writ_pilot::events::GitEvent;
use writ_pilot::workspace::CommitResult;
use writ_sandbox::git::GitFault;

use super::fixture::*;

/// A slice has a branch of its own from the target as it is now, and a work tree that its tasks share; the event comes first.
///
/// Rows: SF-230
#[tokio::test]
async fn a_slice_gets_a_branch_and_a_work_tree_and_takes_none_of_another() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    let work = slice(1);
    let made = service.ensure_workspace(&work, &main_branch()).await.unwrap();
    assert!(made.created && made.base == made.tip && made.base.as_str() == repo.at("main").await);
    assert_eq!(made.folder, repo.dir.join(".writ/workspaces/m1_s1"));
    assert_eq!(fs::read_to_string(made.folder.join("src/a.rs")).unwrap(), "fn a() {}\n");
    assert_eq!(git_in(&made.folder, &["symbolic-ref", "HEAD"]).await, "refs/heads/writ/m1-s1-some-work");
    assert_eq!(git_in(&made.folder, &["status", "--porcelain"]).await, "");
    assert_eq!(repo.git(&["status", "--porcelain"]).await, "", "the user sees none of it");
    let create =
        GitEvent::WorktreeCreate { unit: "m1/s1".into(), branch: work.branch.clone(), folder: made.folder };
    assert_eq!(*repo.events.0.lock().unwrap(), [create]);
    // Work in it stays when it is asked for again.
    fs::write(repo.dir.join(".writ/workspaces/m1_s1/new"), "work").unwrap();
    let again = service.ensure_workspace(&work, &main_branch()).await.unwrap();
    assert!(!again.created);
    assert_eq!(fs::read_to_string(again.folder.join("new")).unwrap(), "work");
    // The user's own branch of such a name, and one that excludes it.
    repo.git(&["branch", "writ/m1-s2-some-work"]).await;
    let before = repo.at("writ/m1-s2-some-work").await;
    let refused = service.ensure_workspace(&slice(2), &main_branch()).await;
    assert!(matches!(refused, Err(PilotGitError::BranchExists { .. })), "{refused:?}");
    assert_eq!(repo.at("writ/m1-s2-some-work").await, before);
    assert!(!repo.dir.join(".writ/workspaces/m1_s2").exists());
    let other = Repo::new().await;
    other.git(&["branch", "writ"]).await;
    let refused = other.open().await.ensure_workspace(&slice(1), &main_branch()).await;
    assert!(matches!(refused, Err(PilotGitError::BranchExists { .. })), "{refused:?}");
    assert_eq!(other.refs("refs/writ").await, [""; 0]);
}

/// Work is committed whole: new, changed, deleted and executable files, links, names of any bytes; ignored files are not.
#[tokio::test]
async fn everything_in_a_workspace_is_committed() {
    use std::os::unix::ffi::OsStrExt;
    let repo = Repo::new().await;
    repo.write(".gitignore", "target/\n");
    repo.commit_all("ignore").await;
    let service = repo.open().await;
    let place = service.ensure_workspace(&slice(1), &main_branch()).await.unwrap();
    let folder = place.folder.clone();
    assert_eq!(service.commit_workspace(&slice(1), "nothing").await.unwrap(), CommitResult::Unchanged);
    fs::remove_file(folder.join("src/a.rs")).unwrap();
    fs::create_dir_all(folder.join("target")).unwrap();
    fs::write(folder.join("target/big"), "ignored").unwrap();
    fs::write(folder.join("Case"), "upper").unwrap();
    fs::write(folder.join("case"), "lower").unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"odd \xff\"name\n");
    fs::write(folder.join(odd), "bytes").unwrap();
    symlink("README.md", folder.join("link")).unwrap();
    fs::write(folder.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(folder.join("run.sh"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let done = service.commit_workspace(&slice(1), "do\nmuch").await.unwrap();
    let CommitResult::Committed { commit, paths } = done else { panic!("{done:?}") };
    assert_eq!(paths.len(), 6, "{paths:?}");
    assert!(paths.iter().any(|path| path.as_os_str() == odd));
    let branch = "writ/m1-s1-some-work";
    assert_eq!(repo.at(branch).await, commit.as_str());
    let listed = repo.git(&["ls-tree", "-r", "-z", branch]).await;
    assert!(listed.contains("100755") && listed.contains("120000") && !listed.contains("target"), "{listed}");
    assert_eq!(repo.git(&["log", "-1", "--format=%s|%b", branch]).await, "m1/s1: do much|Writ-Unit: m1/s1");
    assert_eq!(git_in(&folder, &["status", "--porcelain"]).await, "");
    assert_eq!(service.commit_workspace(&slice(1), "again").await.unwrap(), CommitResult::Unchanged);
    // It all arrives in the target, and in the user's work tree.
    let results = merge(&service, &[request(1, &[])], &passing()).await;
    assert_eq!(kinds(&results)["m1/s1"], "merged", "{results:?}");
    assert_eq!(fs::read(repo.dir.join(odd)).unwrap(), b"bytes");
    assert_eq!((repo.read("Case"), repo.read("case")), ("upper".into(), "lower".into()));
    assert_eq!(fs::read_link(repo.dir.join("link")).unwrap().to_str(), Some("README.md"));
    assert!(!repo.dir.join("src/a.rs").exists());
    assert_eq!(repo.git(&["status", "--porcelain"]).await, "");
}

/// Files that a commit would silently leave out are an error: those of a repository within the work, and content in place of a pointer.
#[tokio::test]
async fn work_that_a_commit_would_not_hold_is_refused() {
    let repo = Repo::new().await;
    repo.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    repo.write("a.bin", pointer);
    repo.commit_all("large files").await;
    let service = repo.open().await;
    let folder = service.ensure_workspace(&slice(1), &main_branch()).await.unwrap().folder;
    assert_eq!(fs::read_to_string(folder.join("a.bin")).unwrap(), pointer, "a pointer stays one");
    let before = repo.at("writ/m1-s1-some-work").await;
    for with_commit in [false, true] {
        let nested = folder.join("vendor/lib");
        fs::create_dir_all(&nested).unwrap();
        git_in(&nested, &["init", "--quiet", "--template="]).await;
        fs::write(nested.join("file"), "work").unwrap();
        if with_commit {
            git_in(&nested, &["add", "file"]).await;
            git_in(&nested, &["commit", "--quiet", "-m", "nested"]).await;
        }
        let refused = service.commit_workspace(&slice(1), "nested").await;
        let path = match refused {
            Err(PilotGitError::Git(GitFault::NestedRepository { path })) => path,
            other => panic!("{other:?}"),
        };
        assert_eq!(path.to_str(), Some("vendor/lib"));
        // Nor is it removed.
        assert!(service.remove_workspace(&slice(1), &main_branch()).await.is_err());
        assert_eq!(fs::read_to_string(nested.join("file")).unwrap(), "work");
        fs::remove_dir_all(folder.join("vendor")).unwrap();
    }
    fs::write(folder.join("a.bin"), "content").unwrap();
    let refused = service.commit_workspace(&slice(1), "content").await;
    assert!(matches!(refused, Err(PilotGitError::Git(GitFault::LargeFile { .. }))), "{refused:?}");
    assert_eq!(repo.at("writ/m1-s1-some-work").await, before);
    fs::write(folder.join("a.bin"), pointer.replace("size 1", "size 2")).unwrap();
    assert!(matches!(
        service.commit_workspace(&slice(1), "pointer").await,
        Ok(CommitResult::Committed { .. })
    ));
}

/// Nothing is deleted before it is proven to be in the target; what is not stays below `refs/writ/archive/`, with what was not committed.
/// Each work tree that was made or removed has its event, in this order and with its own branch and folder.
///
/// Rows: SF-234 (in part: the events; the git service makes the calls, and the harness commits through it)
#[tokio::test]
async fn a_workspace_is_removed_without_losing_a_commit() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    // Merged: nothing needs to be archived.
    work_on(&service, 1, &[("one", "1\n")]).await;
    merge(&service, &[request(1, &[])], &passing()).await;
    assert_eq!(service.remove_workspace(&slice(1), &main_branch()).await.unwrap().archived, []);
    // Taken over by hand, with another id: the same patch.
    let second = work_on(&service, 2, &[("two", "2\n")]).await;
    repo.git(&["cherry-pick", second.as_str()]).await;
    assert_eq!(service.remove_workspace(&slice(2), &main_branch()).await.unwrap().archived, []);
    // Not merged, and with work that is not committed.
    let third = work_on(&service, 3, &[("three", "3\n")]).await;
    fs::write(repo.dir.join(".writ/workspaces/m1_s3/rest"), "unfinished\n").unwrap();
    let archived = service.remove_workspace(&slice(3), &main_branch()).await.unwrap().archived;
    assert_eq!(archived.len(), 2, "{archived:?}");
    assert_eq!(repo.at(archived[0].as_str()).await, third.as_str());
    assert_eq!(repo.show(archived[1].as_str(), "rest").await, "unfinished");
    // A commit that only the work tree has: its branch stayed behind.
    let place = service.ensure_workspace(&slice(4), &main_branch()).await.unwrap();
    git_in(&place.folder, &["checkout", "--quiet", "--detach"]).await;
    fs::write(place.folder.join("four"), "4\n").unwrap();
    git_in(&place.folder, &["add", "four"]).await;
    git_in(&place.folder, &["commit", "--quiet", "-m", "ahead"]).await;
    let ahead = git_in(&place.folder, &["rev-parse", "HEAD"]).await;
    let refused = service.commit_workspace(&slice(4), "x").await;
    assert!(matches!(refused, Err(PilotGitError::Elsewhere { .. })), "{refused:?}");
    let refused =
        service.merge_slices(&main_branch(), &[request(4, &[])], &Default::default(), &passing()).await;
    assert!(matches!(refused, Err(PilotGitError::Elsewhere { .. })), "{refused:?}");
    let archived = service.remove_workspace(&slice(4), &main_branch()).await.unwrap().archived;
    assert_eq!(archived.len(), 1);
    assert_eq!(repo.at(archived[0].as_str()).await, ahead);
    assert_eq!(repo.refs("refs/heads").await, ["refs/heads/main"]);
    assert_eq!(repo.refs("refs/writ/base").await, [""; 0]);
    assert_eq!(repo.git(&["worktree", "list", "--porcelain"]).await.matches("worktree ").count(), 1);
    assert_eq!(fs::read_dir(repo.dir.join(".writ/workspaces")).unwrap().count(), 1, "the .gitignore alone");
    let events = repo.events.0.lock().unwrap();
    let mut open: Vec<(String, PathBuf)> = Vec::new();
    let mut removed = Vec::new();
    for event in events.iter() {
        match event {
            GitEvent::WorktreeCreate { branch, folder, .. } => {
                open.push((branch.to_string(), folder.clone()))
            }
            GitEvent::WorktreeDelete { branch, folder, .. } => {
                let tree = (branch.to_string(), folder.clone());
                assert!(open.contains(&tree), "{tree:?} was never made, or removed twice: {events:#?}");
                open.retain(|one| *one != tree);
                removed.push(tree.1);
            }
            GitEvent::MergeReady { .. } | GitEvent::MergeConflict { .. } | GitEvent::TargetMoved { .. } => {}
        }
    }
    assert_eq!(open, [], "each one that was made is removed");
    let folders = [1, 2, 3, 4].map(|n| repo.dir.join(format!(".writ/workspaces/m1_s{n}")));
    assert_eq!(removed, folders);
}

/// A work tree whose folder was deleted is made again, with its commits; those of the user that are away stay registered.
#[tokio::test]
async fn a_deleted_work_tree_is_made_again_and_no_other_is_pruned() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    let usb = repo.beside("usb");
    repo.git(&["worktree", "add", "--quiet", "-b", "mine", usb.to_str().unwrap()]).await;
    fs::rename(&usb, repo.beside("away")).unwrap();
    work_on(&service, 1, &[("one", "1\n")]).await;
    let folder = repo.dir.join(".writ/workspaces/m1_s1");
    fs::remove_dir_all(&folder).unwrap();
    drop(service);
    let (service, report) = repo.try_open().await.unwrap();
    assert_eq!(report.workspaces_missing, [slice(1).branch]);
    let again = service.ensure_workspace(&slice(1), &main_branch()).await.unwrap();
    assert!(again.created);
    assert_eq!(fs::read_to_string(folder.join("one")).unwrap(), "1\n");
    // An empty or half-made folder of a killed process is in no way; files of unknown origin stay.
    fs::create_dir(repo.dir.join(".writ/workspaces/m1_s2")).unwrap();
    assert!(service.ensure_workspace(&slice(2), &main_branch()).await.unwrap().created);
    repo.write(".writ/workspaces/m1_s3/file", "whose?");
    let refused = service.ensure_workspace(&slice(3), &main_branch()).await;
    assert!(matches!(refused, Err(PilotGitError::Occupied { .. })), "{refused:?}");
    assert_eq!(repo.read(".writ/workspaces/m1_s3/file"), "whose?");
    // Killed between registering and filling.
    fs::remove_file(repo.dir.join(".git/worktrees/m1_s2/index")).unwrap();
    fs::remove_file(repo.dir.join(".writ/workspaces/m1_s2/README.md")).unwrap();
    service.ensure_workspace(&slice(2), &main_branch()).await.unwrap();
    assert!(repo.dir.join(".writ/workspaces/m1_s2/README.md").exists());
    // Killed before its branch was written: git names no commit for it then.
    let admin = repo.dir.join(".git/worktrees/m1_s2");
    let (head, tree) = (admin.join("HEAD"), repo.dir.join(".writ/workspaces/m1_s2"));
    fs::write(&head, format!("{}\n", "0".repeat(40))).unwrap();
    fs::remove_file(admin.join("index")).unwrap();
    // Not with a file in it, whose origin nothing says.
    let refused = service.ensure_workspace(&slice(2), &main_branch()).await;
    assert!(matches!(refused, Err(PilotGitError::Elsewhere { .. })), "{refused:?}");
    assert!(tree.join("README.md").exists());
    fs::remove_file(tree.join("README.md")).unwrap();
    fs::remove_dir_all(tree.join("src")).unwrap();
    assert!(service.ensure_workspace(&slice(2), &main_branch()).await.unwrap().created);
    assert_eq!(
        fs::read_to_string(admin.join("HEAD")).unwrap().trim(),
        format!("ref: refs/heads/{}", slice(2).branch)
    );
    assert!(tree.join("README.md").exists());
    let listed = repo.git(&["worktree", "list", "--porcelain"]).await;
    assert!(listed.contains("usb"), "{listed}");
}

/// Garbage collection while work is under way takes none of it.
#[tokio::test]
async fn garbage_collection_takes_no_work() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    work_on(&service, 1, &[("one", "1\n")]).await;
    let rest = repo.dir.join(".writ/workspaces/m1_s1/rest");
    fs::write(&rest, "not committed\n").unwrap();
    repo.git(&["gc", "--quiet", "--prune=now"]).await;
    assert!(matches!(
        service.commit_workspace(&slice(1), "rest").await.unwrap(),
        CommitResult::Committed { .. }
    ));
    let results = merge(&service, &[request(1, &[])], &passing()).await;
    assert_eq!(kinds(&results)["m1/s1"], "merged");
    repo.git(&["gc", "--quiet", "--prune=now"]).await;
    repo.git(&["fsck", "--strict"]).await;
    assert_eq!(repo.show("main", "rest").await, "not committed");
}

/// Eight slices of a repository of 10,000 files get their workspaces, side by side and whole; the time is printed.
#[tokio::test]
async fn eight_workspaces_of_ten_thousand_files() {
    let repo = Repo::new().await;
    for number in 0..10_000 {
        repo.write(&format!("d{}/f{number}", number / 100), &format!("line {number}\n").repeat(20));
    }
    repo.commit_all("many files").await;
    let service = repo.open().await;
    let began = std::time::Instant::now();
    let (works, main) = ([1, 2, 3, 4, 5, 6, 7, 8].map(slice), main_branch());
    let [a, b, c, d, e, f, g, h] = works.each_ref().map(|work| service.ensure_workspace(work, &main));
    let made = tokio::join!(a, b, c, d, e, f, g, h);
    println!("8 workspaces of 10,002 files: {} ms", began.elapsed().as_millis());
    for made in <[_; 8]>::from(made) {
        let folder = made.unwrap().folder;
        assert_eq!(git_in(&folder, &["status", "--porcelain"]).await, "");
        assert_eq!(fs::read_to_string(folder.join("d99/f9999")).unwrap(), "line 9999\n".repeat(20));
    }
}
