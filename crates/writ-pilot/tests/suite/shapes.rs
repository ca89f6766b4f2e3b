//! Repositories of every shape.

use std::fs;

use writ_pilot::PilotGitError;
use writ_sandbox::git::{BranchName, GitFault};

use super::fixture::*;

async fn refusal_of(dir: &std::path::Path) -> GitFault {
    let opened =
        writ_pilot::PilotGit::open_service(dir, Default::default(), std::sync::Arc::new(Recorder::default()))
            .await;
    match opened {
        Err(PilotGitError::Git(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_no_repository_that_can_be_worked_on_is_refused() {
    let repo = Repo::new().await;
    let bare = repo.beside("bare.git");
    repo.git(&["clone", "--quiet", "--bare", ".", bare.to_str().unwrap()]).await;
    assert!(matches!(refusal_of(&bare).await, GitFault::Bare { .. }));
    let empty = repo.beside("empty");
    fs::create_dir(&empty).unwrap();
    assert!(matches!(refusal_of(&empty).await, GitFault::NotRepository { .. }));
    assert!(matches!(refusal_of(&repo.beside("nowhere")).await, GitFault::NotRepository { .. }));
    for inside in ["src", ".git"] {
        assert!(
            matches!(refusal_of(&repo.dir.join(inside)).await, GitFault::NotRepository { .. }),
            "{inside}"
        );
    }
    let partial = repo.beside("partial");
    fs::create_dir(&partial).unwrap();
    git_in(&partial, &["init", "--quiet", "--template="]).await;
    let config = partial.join(".git/config");
    let text = fs::read_to_string(&config).unwrap() + "[remote \"origin\"]\n\tpromisor = true\n";
    fs::write(&config, text).unwrap();
    assert!(matches!(refusal_of(&partial).await, GitFault::PartialClone { remote } if remote == "origin"));
    // Another user's, where this one can be given away.
    if nix_is_root() {
        std::os::unix::fs::chown(repo.dir.join(".git"), Some(65_533), None).unwrap();
        std::os::unix::fs::chown(&repo.dir, Some(65_533), None).unwrap();
        assert!(matches!(refusal_of(&repo.dir).await, GitFault::ForeignOwner { .. }));
    }
}

fn nix_is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").unwrap().uid() == 0
}

#[tokio::test]
async fn an_unborn_target_is_an_error_and_a_detached_head_is_none() {
    let repo = Repo::new().await;
    let unborn = repo.beside("unborn");
    fs::create_dir(&unborn).unwrap();
    git_in(&unborn, &["init", "--quiet", "--template=", "--initial-branch=main"]).await;
    let (service, _) =
        writ_pilot::PilotGit::open_service(&unborn, Default::default(), repo.events.clone()).await.unwrap();
    let refused = service.ensure_workspace(&slice(1), &main_branch()).await;
    assert!(matches!(refused, Err(PilotGitError::Git(GitFault::NoCommit { .. }))), "{refused:?}");
    assert!(!unborn.join(".git/refs/heads/writ").exists());
    assert_eq!(service.project().current_branch().await.unwrap(), Some(main_branch()));

    repo.git(&["checkout", "--quiet", "--detach"]).await;
    let service = repo.open().await;
    assert_eq!(service.project().current_branch().await.unwrap(), None);
    work_on(&service, 1, &[("one", "1\n")]).await;
    assert_eq!(kinds(&merge(&service, &[request(1, &[])], &passing()).await)["m1/s1"], "merged");
    assert!(!repo.dir.join("one").exists(), "a detached work tree does not move");
}

/// The target is the one that was named, whatever it is called and whatever is checked out.
#[tokio::test]
async fn the_target_is_the_branch_that_was_named() {
    let repo = Repo::new().await;
    repo.git(&["branch", "--move", "main", "trunk/größe"]).await;
    repo.git(&["switch", "--quiet", "-c", "feature"]).await;
    let target = BranchName::parse_name("trunk/größe").unwrap();
    let service = repo.open().await;
    let place = service.ensure_workspace(&slice(1), &target).await.unwrap();
    fs::write(place.folder.join("one"), "1\n").unwrap();
    service.commit_workspace(&slice(1), "one").await.unwrap();
    let before = repo.at("feature").await;
    let results =
        service.merge_slices(&target, &[request(1, &[])], &Default::default(), &passing()).await.unwrap();
    assert_eq!(kinds(&results)["m1/s1"], "merged");
    assert_eq!((repo.at("feature").await, repo.show("trunk/größe", "one").await), (before, "1".into()));
    let none =
        service.merge_slices(&main_branch(), &[request(1, &[])], &Default::default(), &passing()).await;
    assert!(matches!(none, Err(PilotGitError::Git(GitFault::NoCommit { .. }))), "{none:?}");
}

/// In a shallow clone, a clone with borrowed objects, a linked work tree and a submodule the same is done.
#[tokio::test]
async fn clones_links_and_submodules_are_worked_on_like_others() {
    let origin = Repo::new().await;
    for number in 0..3 {
        origin.write("README.md", &format!("{number}\n"));
        origin.commit_all("more").await;
    }
    let from = format!("file://{}", origin.dir.display());
    let (shallow, borrowed, linked) =
        (origin.beside("shallow"), origin.beside("borrowed"), origin.beside("linked"));
    origin.git(&["clone", "--quiet", "--depth=1", &from, shallow.to_str().unwrap()]).await;
    origin.git(&["clone", "--quiet", "--shared", ".", borrowed.to_str().unwrap()]).await;
    origin.git(&["worktree", "add", "--quiet", "-b", "side", linked.to_str().unwrap()]).await;
    // A submodule, as `git submodule add` makes it, and its work tree on a branch.
    let outer = Repo::new().await;
    fs::create_dir_all(outer.dir.join(".git/modules")).unwrap();
    let (inner, modules) = (outer.dir.join("inner"), outer.dir.join(".git/modules/inner"));
    let args =
        ["clone", "--quiet", "--separate-git-dir", modules.to_str().unwrap(), &from, inner.to_str().unwrap()];
    outer.git(&args).await;
    let config = modules.join("config");
    let text = fs::read_to_string(&config).unwrap() + "[core]\n\tworktree = ../../../inner\n";
    fs::write(&config, text).unwrap();
    outer.write(".gitmodules", "[submodule \"inner\"]\n\tpath = inner\n\turl = ../origin\n");
    outer.commit_all("a submodule").await;
    for dir in [&shallow, &borrowed, &linked, &inner] {
        let (service, _) =
            writ_pilot::PilotGit::open_service(dir, Default::default(), origin.events.clone()).await.unwrap();
        let target = if dir == &linked { BranchName::parse_name("side").unwrap() } else { main_branch() };
        let place = service.ensure_workspace(&slice(1), &target).await.unwrap();
        fs::write(place.folder.join("one"), "1\n").unwrap();
        service.commit_workspace(&slice(1), "one").await.unwrap();
        let results =
            service.merge_slices(&target, &[request(1, &[])], &Default::default(), &passing()).await;
        assert_eq!(kinds(&results.unwrap())["m1/s1"], "merged", "{dir:?}");
        assert!(dir.join("one").exists(), "{dir:?}");
        if dir != &inner {
            assert_eq!(git_in(dir, &["status", "--porcelain"]).await, "", "{dir:?}");
        }
        assert_eq!(service.remove_workspace(&slice(1), &target).await.unwrap().archived, [], "{dir:?}");
    }
    // The repository around it has the submodule in its tree, and its slices leave it as it is.
    outer.git(&["add", "inner"]).await;
    outer.git(&["commit", "--quiet", "-m", "inner moved"]).await;
    let service = outer.open().await;
    work_on(&service, 1, &[("one", "1\n")]).await;
    assert_eq!(kinds(&merge(&service, &[request(1, &[])], &passing()).await)["m1/s1"], "merged");
    assert!(outer.git(&["ls-tree", "main", "inner"]).await.starts_with("160000"));
    assert!(inner.join("one").exists());
    assert_eq!(outer.git(&["status", "--porcelain"]).await, "");
}

/// The content of a file is written as the user's configuration has it, line ends and modes alike.
#[tokio::test]
async fn line_ends_are_those_of_the_repository() {
    let repo = Repo::new().await;
    repo.write(".gitattributes", "*.bat text eol=crlf\n");
    repo.write("run.bat", "one\r\ntwo\r\n");
    repo.commit_all("a batch file").await;
    let service = repo.open().await;
    let folder = service.ensure_workspace(&slice(1), &main_branch()).await.unwrap().folder;
    assert_eq!(fs::read(folder.join("run.bat")).unwrap(), b"one\r\ntwo\r\n");
    fs::write(folder.join("run.bat"), "one\r\ntwo\r\nthree\r\n").unwrap();
    service.commit_workspace(&slice(1), "three").await.unwrap();
    assert_eq!(repo.show("writ/m1-s1-some-work", "run.bat").await, "one\ntwo\nthree");
    assert_eq!(kinds(&merge(&service, &[request(1, &[])], &passing()).await)["m1/s1"], "merged");
    assert_eq!(fs::read(repo.dir.join("run.bat")).unwrap(), b"one\r\ntwo\r\nthree\r\n");
    assert_eq!(repo.git(&["status", "--porcelain"]).await, "");
}
