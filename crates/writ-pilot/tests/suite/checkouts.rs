//! Work trees of the user that have the target checked out.

use std::fs;

use writ_pilot::merge::MergeResult;
use writ_sandbox::git::checkouts::CheckoutHold;

use super::fixture::*;

/// The reason why a merge is held.
async fn held(repo: &Repo, service: &writ_pilot::PilotGit) -> CheckoutHold {
    let before = repo.at("main").await;
    let results = merge(service, &[request(1, &[])], &passing()).await;
    let MergeResult::Held { at, commit, checkout, reason } = &results["m1/s1"] else { panic!("{results:?}") };
    assert_eq!(repo.at("main").await, before, "the target stays");
    assert_eq!(repo.at(at.as_str()).await, commit.as_str(), "the checked merge can be had");
    assert_eq!(checkout, &repo.dir);
    reason.clone()
}

/// Uncommitted work of the user, staged or not, is never touched: the target stays until it can move, and the checked merge has a name.
#[tokio::test]
async fn uncommitted_work_of_the_user_stays_to_the_byte() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    work_on(&service, 1, &[("README.md", "slice\ntwo\nthree\n"), ("new", "new\n")]).await;
    // Not even in a file that the slice does not touch.
    repo.write("src/a.rs", "fn a() { unfinished }\n");
    assert_eq!(held(&repo, &service).await, CheckoutHold::Changed(vec!["src/a.rs".into()]));
    repo.git(&["add", "src/a.rs"]).await;
    repo.write("src/a.rs", "fn a() { staged, and changed again }\n");
    let index = fs::read(repo.dir.join(".git/index")).unwrap();
    assert_eq!(held(&repo, &service).await, CheckoutHold::Changed(vec!["src/a.rs".into()]));
    assert_eq!(fs::read(repo.dir.join(".git/index")).unwrap(), index);
    assert_eq!(repo.read("src/a.rs"), "fn a() { staged, and changed again }\n");
    // Stashed by the user: then it moves, and the stash stays.
    repo.git(&["stash", "--quiet"]).await;
    let stash = repo.at("refs/stash").await;
    let results = merge(&service, &[request(1, &[])], &passing()).await;
    assert_eq!(kinds(&results)["m1/s1"], "merged", "{results:?}");
    assert_eq!((repo.at("refs/stash").await, repo.read("new")), (stash, "new\n".into()));
    repo.git(&["stash", "pop", "--quiet", "--index"]).await;
    assert_eq!(repo.read("src/a.rs"), "fn a() { staged, and changed again }\n");
}

/// A file of the user's that git does not know is never overwritten; one that is in no way does not matter.
#[tokio::test]
async fn untracked_files_of_the_user_are_not_overwritten() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    work_on(&service, 1, &[("new", "of the slice\n"), ("README.md", "slice\n")]).await;
    repo.write("new", "of the user\n");
    repo.write("other", "of the user\n");
    assert!(matches!(held(&repo, &service).await, CheckoutHold::Untracked(_)));
    assert_eq!(
        (repo.read("new"), repo.read("README.md")),
        ("of the user\n".into(), "one\ntwo\nthree\n".into())
    );
    assert!(!repo.dir.join(".git/index.lock").exists());
    assert_eq!(repo.git(&["status", "--porcelain"]).await, "?? new\n?? other");
    // An ignored one is the user's, too.
    fs::create_dir(repo.dir.join(".git/info")).unwrap();
    fs::write(repo.dir.join(".git/info/exclude"), "new\n").unwrap();
    assert!(matches!(held(&repo, &service).await, CheckoutHold::Untracked(_)));
    fs::remove_file(repo.dir.join("new")).unwrap();
    assert_eq!(kinds(&merge(&service, &[request(1, &[])], &passing()).await)["m1/s1"], "merged");
    assert_eq!((repo.read("new"), repo.read("other")), ("of the slice\n".into(), "of the user\n".into()));
}

/// A merge, rebase or other git of the user that is under way, a sparse work tree, and files that a filter writes: the target stays.
#[tokio::test]
async fn a_work_tree_that_cannot_follow_stays_with_its_branch() {
    let repo = Repo::new().await;
    repo.write("a.bin", "version https://git-lfs\n");
    repo.write(".gitattributes", "*.bin filter=lfs\n");
    repo.commit_all("large files").await;
    let service = repo.open().await;
    work_on(&service, 1, &[("a.bin", "version https://git-lfs 2\n")]).await;
    let lfs = CheckoutHold::Filtered { path: "a.bin".into(), filter: "lfs".into() };
    assert_eq!(held(&repo, &service).await, lfs);
    let marker = repo.dir.join(".git/MERGE_HEAD");
    fs::write(&marker, repo.at("main").await).unwrap();
    assert_eq!(held(&repo, &service).await, CheckoutHold::UnderWay("MERGE_HEAD".into()));
    fs::remove_file(marker).unwrap();
    let lock = repo.dir.join(".git/index.lock");
    fs::write(&lock, "").unwrap();
    assert_eq!(held(&repo, &service).await, CheckoutHold::Locked(lock.clone()));
    assert!(lock.exists(), "the lock is another's");
    fs::remove_file(lock).unwrap();
    // As `git sparse-checkout` leaves a file out.
    repo.git(&["update-index", "--skip-worktree", "src/a.rs"]).await;
    fs::remove_file(repo.dir.join("src/a.rs")).unwrap();
    assert_eq!(held(&repo, &service).await, CheckoutHold::Partial);
    assert!(!repo.dir.join("src/a.rs").exists());
    // Elsewhere, the target moves, and the workspaces are whole.
    repo.git(&["switch", "--quiet", "-c", "other"]).await;
    assert_eq!(kinds(&merge(&service, &[request(1, &[])], &passing()).await)["m1/s1"], "merged");
    let place = service.ensure_workspace(&slice(2), &main_branch()).await.unwrap();
    assert!(place.folder.join("src/a.rs").exists());
}

/// The target may be checked out in a linked work tree of the user, or in none; another branch of the user's is not touched.
#[tokio::test]
async fn work_trees_of_the_user_s_own_move_with_their_branch_alone() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    repo.git(&["switch", "--quiet", "-c", "mine"]).await;
    repo.write("README.md", "unfinished\n");
    let linked = repo.beside("linked");
    repo.git(&["worktree", "add", "--quiet", linked.to_str().unwrap(), "main"]).await;
    work_on(&service, 1, &[("new", "1\n")]).await;
    assert_eq!(kinds(&merge(&service, &[request(1, &[])], &passing()).await)["m1/s1"], "merged");
    assert_eq!(fs::read_to_string(linked.join("new")).unwrap(), "1\n");
    assert_eq!(git_in(&linked, &["status", "--porcelain"]).await, "");
    assert_eq!((repo.read("README.md"), repo.dir.join("new").exists()), ("unfinished\n".into(), false));
    // Deleted, without `git worktree prune`: in no way.
    fs::remove_dir_all(&linked).unwrap();
    work_on(&service, 2, &[("two", "2\n")]).await;
    assert_eq!(kinds(&merge(&service, &[request(2, &[])], &passing()).await)["m1/s2"], "merged");
}
