//! Configuration, hooks, attributes and work trees that would run something, or lead elsewhere.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use writ_pilot::workspace::CommitResult;

use writ_autopilot::names::branch_name;
use writ_autopilot::unit_id::UnitId;
use writ_pilot::resolve::begin_resolve;

use writ_pilot::revert::{plan_revert, revert_unit};

use writ_sandbox::git::BranchName;

use super::fixture::*;

/// Nothing that a repository's configuration, hooks or attributes name is run, in any operation; the same work is done.
#[tokio::test]
async fn nothing_that_a_repository_names_is_run() {
    let repo = Repo::new().await;
    repo.write("data.txt", "x\n");
    repo.commit_all("more").await;
    let ran = repo.beside("ran");
    let program = repo.beside("program.sh");
    fs::write(&program, format!("#!/bin/sh\necho \"$0 $@\" >> {}\ncat\n", ran.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for hook in [
        "post-checkout",
        "pre-commit",
        "commit-msg",
        "prepare-commit-msg",
        "post-commit",
        "pre-merge-commit",
        "post-merge",
        "reference-transaction",
        "post-index-change",
        "fsmonitor-watchman",
        "post-rewrite",
        "pre-auto-gc",
    ] {
        let file = repo.dir.join(".git/hooks").join(hook);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::copy(&program, file).unwrap();
    }
    let place = program.display();
    let config = format!(
        "[core]\n\tfsmonitor = {place}\n\tsshCommand = {place}\n\teditor = {place}\n\tpager = {place}\n\
         \thooksPath = {hooks}\n\tattributesFile = {attributes}\n\talternateRefsCommand = {place}\n\
         [filter \"evil\"]\n\tclean = {place}\n\tsmudge = {place}\n\tprocess = {place}\n\trequired = true\n\
         [filter \"lfs\"]\n\tclean = {place}\n\tsmudge = {place}\n\tprocess = {place}\n\trequired = true\n\
         [merge \"evil\"]\n\tdriver = {place} %A %O %B\n[diff \"evil\"]\n\tcommand = {place}\n\ttextconv = {place}\n\
         [diff]\n\texternal = {place}\n[gpg]\n\tprogram = {place}\n[commit]\n\tgpgSign = true\n[log]\n\tshowSignature = true\n\
         [alias]\n\tadd = !{place}\n\tworktree = !{place}\n[credential]\n\thelper = {place}\n\
         [include]\n\tpath = {included}\n[submodule]\n\trecurse = true\n[gc]\n\tauto = 1\n",
        hooks = repo.dir.join(".git/hooks").display(),
        attributes = repo.beside("attributes").display(),
        included = repo.beside("included").display(),
    );
    fs::write(repo.beside("attributes"), "* filter=evil diff=evil merge=evil\n").unwrap();
    fs::write(repo.beside("included"), format!("[core]\n\tfsmonitor = {place}\n")).unwrap();
    let file = repo.dir.join(".git/config");
    let harmless = fs::read_to_string(&file).unwrap();
    fs::write(&file, harmless.clone() + &config).unwrap();

    let service = repo.open().await;
    let attributes = "*.txt filter=evil diff=evil merge=evil\n";
    work_on(&service, 1, &[(".gitattributes", attributes), ("data.txt", "x\ny\n"), ("more.txt", "z\n")])
        .await;
    work_on(&service, 2, &[("data.txt", "other\n"), ("three.txt", "3\n")]).await;
    let results = merge(&service, &[request(1, &[]), request(2, &[])], &passing()).await;
    // The user's work tree cannot follow, since its filter would have to write the files.
    assert_eq!(kinds(&results), [("m1/s1", "held"), ("m1/s2", "conflict")].into(), "{results:?}");
    fs::write(repo.dir.join(".git/HEAD"), "ref: refs/heads/elsewhere\n").unwrap();
    let results = merge(&service, &[request(1, &[])], &passing()).await;
    assert_eq!(kinds(&results)["m1/s1"], "merged", "{results:?}");
    begin_resolve(&service, &slice(2), &main_branch()).await.unwrap();
    service.remove_workspace(&slice(1), &main_branch()).await.unwrap();
    service.remove_workspace(&slice(2), &main_branch()).await.unwrap();
    let plan = plan_revert(&service, &main_branch(), "m1/s1").await.unwrap();
    revert_unit(&service, &plan, &passing()).await.unwrap();
    drop(service);
    repo.open().await;
    assert!(!ran.exists(), "{}", fs::read_to_string(ran).unwrap());
}

/// What an agent does to `.git` in its work tree leads the harness nowhere else.
#[tokio::test]
async fn a_work_tree_s_own_git_file_is_not_trusted() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    let folder = service.ensure_workspace(&slice(1), &main_branch()).await.unwrap().folder;
    let (evil, ran) = (repo.beside("evil"), repo.beside("ran"));
    fs::create_dir(&evil).unwrap();
    git_in(&evil, &["init", "--quiet", "--template="]).await;
    let config = format!("[core]\n\tfsmonitor = touch {}\n", ran.display());
    let config = fs::read_to_string(evil.join(".git/config")).unwrap() + &config;
    fs::write(evil.join(".git/config"), config).unwrap();
    for by_file in [true, false] {
        let dot = folder.join(".git");
        fs::remove_file(&dot).unwrap();
        if by_file {
            fs::write(&dot, format!("gitdir: {}/.git\n", evil.display())).unwrap();
        } else {
            std::os::unix::fs::symlink(evil.join(".git"), &dot).unwrap();
        }
        fs::write(folder.join("work"), format!("{by_file}\n")).unwrap();
        let done = service.commit_workspace(&slice(1), "work").await.unwrap();
        assert!(matches!(done, CommitResult::Committed { .. }));
        assert_eq!(repo.show("writ/m1-s1-some-work", "work").await, by_file.to_string());
    }
    // A link in the place of a folder is content: nothing is written or removed through it.
    let outside = repo.beside("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a.rs"), "the user's").unwrap();
    fs::remove_dir_all(folder.join("src")).unwrap();
    std::os::unix::fs::symlink(&outside, folder.join("src")).unwrap();
    service.commit_workspace(&slice(1), "a link").await.unwrap();
    service.remove_workspace(&slice(1), &main_branch()).await.unwrap();
    assert_eq!(fs::read_to_string(outside.join("a.rs")).unwrap(), "the user's");
    assert!(!ran.exists() && !folder.exists());
}

/// Titles and ids of a plan are names, and never options or paths.
#[tokio::test]
async fn titles_and_ids_are_no_options_and_no_paths() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    let name = branch_name(UnitId::Slice(1, 1), "--upload-pack=/bin/sh ../../x\n\0");
    let branch = BranchName::parse_name(&name).unwrap();
    let work = writ_pilot::service::UnitWork { unit: "../../m1/s1 --force\n".into(), branch };
    let place = service.ensure_workspace(&work, &main_branch()).await.unwrap();
    assert_eq!(place.folder, repo.dir.join(".writ/workspaces/.._.._m1_s1_--force_"));
    fs::write(place.folder.join("-rf"), "x").unwrap();
    fs::write(place.folder.join(":(top)x"), "x").unwrap();
    let done = service.commit_workspace(&work, "-m\n\nSigned-off-by: x\0y").await.unwrap();
    assert!(matches!(done, CommitResult::Committed { paths, .. } if paths.len() == 2));
    service.remove_workspace(&work, &main_branch()).await.unwrap();
}
