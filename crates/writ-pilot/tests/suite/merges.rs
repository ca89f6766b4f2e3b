//! Merges: checked, serial, in order, by compare-and-swap.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use writ_pilot::PilotGit;
use writ_pilot::PilotGitError;
use writ_pilot::events::GitEvent;
use writ_pilot::merge::{BASE_MOVES_MAX, MergeResult, MergedTree, TreeCheck, TreeVerdict};
use writ_pilot::resolve::{ResolveStart, begin_resolve, finish_resolve};
use writ_sandbox::git::commits::{Committer, tree_of, write_commit};
use writ_sandbox::git::refs::{RefChange, change_refs, read_ref};

use super::fixture::*;

/// The check sees the files of the merged tree, of both sides, and the target moves to that commit alone.
#[tokio::test]
async fn the_merged_tree_is_checked_and_the_target_moves_to_it() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    let slice_commit = work_on(&service, 1, &[("README.md", "ONE\ntwo\nthree\n")]).await;
    repo.write("README.md", "one\ntwo\nTHREE\n");
    repo.commit_all("the user goes on").await;
    let before = repo.at("main").await;
    let check = Check::new(|tree: &MergedTree| {
        let text = fs::read_to_string(tree.folder.join("README.md")).unwrap();
        if text == "ONE\ntwo\nTHREE\n" { TreeVerdict::Pass } else { TreeVerdict::Fail(text) }
    });
    let results = merge(&service, &[request(1, &[])], &check).await;
    let MergeResult::Merged { commit } = &results["m1/s1"] else { panic!("{results:?}") };
    assert_eq!(repo.at("main").await, commit.as_str());
    assert_eq!(repo.git(&["log", "-1", "--format=%P", "main"]).await, format!("{before} {slice_commit}"));
    let seen = check.seen.lock().unwrap().clone();
    assert_eq!((seen[0].commit.clone(), seen[0].base.to_string()), (commit.clone(), before));
    assert!(!seen[0].folder.exists(), "the work tree of the check is removed");
    assert_eq!(repo.git(&["status", "--porcelain"]).await, "");
    assert_eq!(repo.read("README.md"), "ONE\ntwo\nTHREE\n", "the user's work tree moved with it");
    // Once more does nothing.
    assert_eq!(kinds(&merge(&service, &[request(1, &[])], &check).await)["m1/s1"], "already in");
    assert_eq!(check.count(), 1);
}

/// A person moves the target to the slice's commits, or merges them: no gate has seen what that has made, so the target is checked as
/// it is, with the slice's own change and no other. Only a pass is a merge.
#[tokio::test]
async fn work_that_others_have_merged_is_checked_where_it_is() {
    for by in ["--ff-only", "--no-ff"] {
        let repo = Repo::new().await;
        let service = repo.open().await;
        let began = repo.at("main").await;
        let tip = work_on(&service, 1, &[("one", "1\n")]).await;
        repo.git(&["merge", "-q", by, "-m", "by hand", tip.as_str()]).await;
        repo.write("other", "a later change of others\n");
        repo.commit_all("the user goes on").await;
        let at = repo.at("main").await;
        let why = || "it is wrong".to_owned();
        for (verdict, kind) in [
            (TreeVerdict::Fail(why()), "failed"),
            (TreeVerdict::Block(why()), "blocked"),
            (TreeVerdict::NotRun(why()), "not run"),
            (TreeVerdict::Pass, "already in"),
        ] {
            let check = Check::new(|tree: &MergedTree| {
                let has_both = tree.folder.join("one").exists() && tree.folder.join("other").exists();
                if has_both { verdict.clone() } else { TreeVerdict::Pass }
            });
            assert_eq!(kinds(&merge(&service, &[request(1, &[])], &check).await)["m1/s1"], kind, "{by}");
            let seen = check.seen.lock().unwrap().clone();
            let [tree] = seen.as_slice() else { panic!("{seen:?}") };
            assert_eq!(
                [&tree.base, &tree.tip, &tree.commit].map(|id| id.to_string()),
                [&began, tip.as_str(), &at]
            );
            assert_eq!(
                (repo.at("main").await, repo.git(&["worktree", "list"]).await.lines().count()),
                (at.clone(), 2)
            );
        }
    }
}

/// A check that passes for work that is not wanted any more.
struct Stopped(Check<fn(&MergedTree) -> TreeVerdict>);

impl TreeCheck for Stopped {
    async fn check_tree(&self, tree: &MergedTree) -> TreeVerdict {
        self.0.check_tree(tree).await
    }

    async fn is_wanted(&self) -> bool {
        false
    }
}

/// A merge that is not wanted any more when everything is ready is not made: the target, the user's files and the locks are as they were.
#[tokio::test]
async fn a_merge_that_was_stopped_meanwhile_is_not_made() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    work_on(&service, 1, &[("README.md", "ONE\ntwo\nthree\n"), ("one", "1\n")]).await;
    let before = (repo.at("main").await, repo.read("README.md"));
    let stopped = Stopped(passing());
    assert_eq!(kinds(&merge(&service, &[request(1, &[])], &stopped).await)["m1/s1"], "withdrawn");
    assert_eq!(stopped.0.count(), 1, "it has passed");
    assert_eq!((repo.at("main").await, repo.read("README.md")), before);
    assert!(!repo.dir.join("one").exists());
    assert_eq!(repo.git(&["status", "--porcelain"]).await, "");
    // Nothing is locked, and nothing is left that a start would take for a move.
    repo.write("other", "of the user\n");
    repo.commit_all("the user goes on").await;
    assert_eq!(kinds(&merge(&service, &[request(1, &[])], &passing()).await)["m1/s1"], "merged");
}

/// A branch that is where it began is an ancestor of the target, and yet no merge: nothing is checked, and nothing counts as merged.
#[tokio::test]
async fn a_branch_without_work_is_not_merged() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    service.ensure_workspace(&slice(1), &main_branch()).await.unwrap();
    work_on(&service, 2, &[("two", "2\n")]).await;
    let check = passing();
    let results = merge(&service, &[request(1, &[]), request(2, &[]), request(3, &["m1/s1"])], &check).await;
    assert_eq!(kinds(&results)["m1/s1"], "unchanged");
    assert_eq!((kinds(&results)["m1/s2"], kinds(&results)["m1/s3"]), ("merged", "waits"));
    assert_eq!(check.seen.lock().unwrap()[0].units, ["m1/s2"]);
}

/// Only a pass moves the target: not a failure, not a block, and not a check that did not run.
#[tokio::test]
async fn nothing_but_a_pass_moves_the_target() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    work_on(&service, 1, &[("one", "1\n")]).await;
    work_on(&service, 2, &[("two", "2\n")]).await;
    let before = repo.at("main").await;
    let why = || "for a reason".to_owned();
    for (verdict, kind) in [
        (TreeVerdict::Fail(why()), "failed"),
        (TreeVerdict::Block(why()), "blocked"),
        (TreeVerdict::NotRun(why()), "not run"),
    ] {
        let check = Check::new(|_: &MergedTree| verdict.clone());
        let results = merge(&service, &[request(1, &[]), request(2, &[])], &check).await;
        assert_eq!(kinds(&results), [("m1/s1", kind), ("m1/s2", kind)].into());
        assert_eq!(repo.at("main").await, before);
        assert_eq!(
            (repo.read("one"), repo.git(&["status", "--porcelain"]).await),
            (String::new(), String::new())
        );
    }
}

/// A conflict names its files, pauses by its event, and leaves everything as it was: no marker is in a commit or a file of the user.
/// Resolved in the slice's workspace, it is merged; with markers it is refused.
///
/// Rows: SF-232 SF-557 (in part: the blocker and the pause are the store's and the scheduler's)
#[tokio::test]
async fn a_conflict_changes_nothing_and_is_resolved_in_the_workspace() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    work_on(&service, 1, &[("README.md", "slice\ntwo\nthree\n"), ("src/b.rs", "fn b() {}\n")]).await;
    repo.write("README.md", "user\ntwo\nthree\n");
    repo.commit_all("the user goes on").await;
    let refs = repo.git(&["for-each-ref"]).await;
    let check = passing();
    let results = merge(&service, &[request(1, &[])], &check).await;
    let MergeResult::Conflict { files, .. } = &results["m1/s1"] else { panic!("{results:?}") };
    assert_eq!(files, &["README.md".into()] as &[std::path::PathBuf]);
    assert_eq!((repo.git(&["for-each-ref"]).await, check.count()), (refs, 0));
    assert_eq!(
        (repo.read("README.md"), repo.git(&["status", "--porcelain"]).await),
        ("user\ntwo\nthree\n".into(), String::new())
    );
    let conflict = GitEvent::MergeConflict { unit: "m1/s1".into(), files: files.clone() };
    assert_eq!(repo.events.0.lock().unwrap().last(), Some(&conflict));

    let nothing = finish_resolve(&service, &slice(1)).await;
    assert!(matches!(nothing, Err(PilotGitError::NoConflict { .. })), "{nothing:?}");
    let begun = begin_resolve(&service, &slice(1), &main_branch()).await.unwrap();
    assert_eq!(begun, ResolveStart::Begun { files: files.clone() });
    let file = repo.dir.join(".writ/workspaces/m1_s1/README.md");
    assert!(fs::read_to_string(&file).unwrap().contains("<<<<<<< "));
    let refused = finish_resolve(&service, &slice(1)).await;
    assert!(
        matches!(&refused, Err(PilotGitError::MarkersLeft { files }) if files == &[std::path::PathBuf::from("README.md")]),
        "{refused:?}"
    );
    fs::write(&file, "both\ntwo\nthree\n").unwrap();
    finish_resolve(&service, &slice(1)).await.unwrap();
    let results = merge(&service, &[request(1, &[])], &check).await;
    assert_eq!(kinds(&results)["m1/s1"], "merged", "{results:?}");
    assert_eq!(
        (repo.read("README.md"), repo.read("src/b.rs")),
        ("both\ntwo\nthree\n".into(), "fn b() {}\n".into())
    );
    assert_eq!(repo.refs("refs/writ/resolving").await, [""; 0]);
}

/// In a batch that fails, halves are tried until the culprit is alone; the rest is merged, and what needs the culprit waits.
#[tokio::test]
async fn a_batch_that_fails_is_bisected() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    for number in 1..=6 {
        let name = format!("f{number}");
        work_on(&service, number, &[(&name, if number == 4 { "bad\n" } else { "good\n" })]).await;
    }
    let check = Check::new(|tree: &MergedTree| {
        let is_bad = fs::read_to_string(tree.folder.join("f4")).is_ok();
        if is_bad { TreeVerdict::Fail("f4 is bad".to_owned()) } else { TreeVerdict::Pass }
    });
    let mut requests: Vec<_> = (1..=6).map(|number| request(number, &[])).collect();
    requests[4].code_depends_on = vec!["m1/s4".to_owned()];
    let results = merge(&service, &requests, &check).await;
    let wanted = [
        ("m1/s1", "merged"),
        ("m1/s2", "merged"),
        ("m1/s3", "merged"),
        ("m1/s4", "failed"),
        ("m1/s5", "waits"),
        ("m1/s6", "merged"),
    ];
    assert_eq!(kinds(&results), wanted.into());
    assert!(repo.dir.join("f6").exists() && !repo.dir.join("f4").exists() && !repo.dir.join("f5").exists());
    // 6 fail; 3 pass; of the other 3 the first fails alone, and with the rest: 1 2 3 | 4 | 6.
    assert!(check.count() <= 6, "{}", check.count());
    // Every commit on the target's own line has passed a check.
    let passed: BTreeSet<String> =
        check.seen.lock().unwrap().iter().map(|tree| tree.commit.to_string()).collect();
    let line = repo.git(&["rev-list", "--first-parent", "-1", "main"]).await;
    assert!(passed.contains(&line));
}

/// A slice is merged after the slices whose code it needs, however early it is finished, and waits while they are not there.
///
/// Rows: SF-236 (in part: the plan's refusal is shown in `order`)
/// Rows: SF-239 (in part: a merge waits; there is no scheduler beside it)
#[tokio::test]
async fn a_slice_waits_for_the_code_that_it_needs() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    work_on(&service, 1, &[("one", "1\n")]).await;
    let needs_two = request(1, &["m1/s2"]);
    let alone = merge(&service, std::slice::from_ref(&needs_two), &passing()).await;
    assert_eq!(alone["m1/s1"], MergeResult::Waits { on: vec!["m1/s2".into()] });
    work_on(&service, 2, &[("two", "2\n")]).await;
    let check = passing();
    let results = merge(&service, &[needs_two, request(2, &[])], &check).await;
    assert_eq!(kinds(&results), [("m1/s1", "merged"), ("m1/s2", "merged")].into());
    assert_eq!(check.seen.lock().unwrap()[0].units, ["m1/s2", "m1/s1"]);
    let line = repo.git(&["log", "--first-parent", "--format=%s", "-2", "main"]).await;
    assert!(line.lines().last().unwrap().contains("m1-s2"), "{line}");
}

/// A check during which the target moves.
struct MovingBase<'a> {
    service: &'a PilotGit,
    moves: AtomicUsize,
    bases: std::sync::Mutex<Vec<String>>,
}

impl TreeCheck for MovingBase<'_> {
    async fn check_tree(&self, tree: &MergedTree) -> TreeVerdict {
        self.bases.lock().unwrap().push(tree.base.to_string());
        if self.moves.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            let (project, name) = (self.service.project(), main_branch().to_ref());
            let from = read_ref(project, &name).await.unwrap().unwrap();
            let who = Committer { name: "Ann".into(), email: "ann@example.org".into() };
            let same = tree_of(project, &from).await.unwrap();
            let to = write_commit(project, &same, &[&from], "others push", &who).await.unwrap();
            change_refs(project, &[RefChange::Move { name, from, to }], "others push").await.unwrap();
        }
        TreeVerdict::Pass
    }
}

/// A target that moves while a merge is checked is merged and checked anew, from where it is then; if it always moves, that is said.
#[tokio::test]
async fn a_target_that_moves_is_merged_anew_from_the_newest_base() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    work_on(&service, 1, &[("one", "1\n")]).await;
    let check = MovingBase { service: &service, moves: AtomicUsize::new(2), bases: Default::default() };
    let results = merge(&service, &[request(1, &[])], &check).await;
    assert_eq!(kinds(&results)["m1/s1"], "merged", "{results:?}");
    let bases = check.bases.lock().unwrap().clone();
    assert_eq!(bases.len(), 3);
    let line = repo.git(&["log", "--first-parent", "--format=%s", "main"]).await;
    assert_eq!(
        line.lines().filter(|subject| *subject == "others push").count(),
        2,
        "no push of others is gone"
    );
    assert_eq!(repo.git(&["rev-parse", "main^"]).await, bases[2]);
    work_on(&service, 2, &[("two", "2\n")]).await;
    let always =
        MovingBase { service: &service, moves: AtomicUsize::new(usize::MAX), bases: Default::default() };
    let refused = service.merge_slices(&main_branch(), &[request(2, &[])], &BTreeSet::new(), &always).await;
    assert!(matches!(refused, Err(PilotGitError::MovesAlways { times: BASE_MOVES_MAX, .. })), "{refused:?}");
    assert!(repo.dir.join(".writ/workspaces/m1_s2/two").exists());
}

/// Counts the checks that go on at the same time.
#[derive(Default)]
struct Overlap {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl TreeCheck for Overlap {
    async fn check_tree(&self, _: &MergedTree) -> TreeVerdict {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        self.now.fetch_sub(1, Ordering::SeqCst);
        TreeVerdict::Pass
    }
}

/// Merges of one project go on one after another, those of another at the same time; a second service on a project is refused.
///
/// Rows: SF-238
/// Rows: SF-107 (in part: a process that has the lock is named)
#[tokio::test]
async fn one_merge_at_a_time_in_a_project() {
    let (repo, other) = (Repo::new().await, Repo::new().await);
    let (service, beside) = (repo.open().await, other.open().await);
    for number in 1..=3 {
        work_on(&service, number, &[(&format!("f{number}"), "x\n")]).await;
    }
    work_on(&beside, 1, &[("f1", "x\n")]).await;
    let (own, others) = (Overlap::default(), Overlap::default());
    let (one, two, three) = ([request(1, &[])], [request(2, &[])], [request(3, &[])]);
    let other_one = [request(1, &[])];
    // The other project merges while this one's lock is held.
    let held = async {
        let (a, b, c) = tokio::join!(
            merge(&service, &one, &own),
            merge(&service, &two, &own),
            merge(&service, &three, &own)
        );
        [a, b, c].map(|results| kinds(&results).values().copied().collect::<Vec<_>>())
    };
    let (results, beside_results) = tokio::join!(held, merge(&beside, &other_one, &others));
    assert_eq!(results, [["merged"], ["merged"], ["merged"]]);
    assert_eq!(kinds(&beside_results)["m1/s1"], "merged");
    assert_eq!(own.most.load(Ordering::SeqCst), 1);
    let second = repo.try_open().await;
    let Err(PilotGitError::Git(writ_sandbox::git::GitFault::InUse { holder })) = second else {
        panic!("{second:?}")
    };
    assert!(holder.contains(&format!("process {}", std::process::id())), "{holder}");
}

/// Work that was not committed stops the merge of its slice, which would leave it out.
#[tokio::test]
async fn work_that_is_not_committed_is_not_left_behind() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    work_on(&service, 1, &[("one", "1\n")]).await;
    fs::write(repo.dir.join(".writ/workspaces/m1_s1/more"), "m\n").unwrap();
    let results = merge(&service, &[request(1, &[])], &passing()).await;
    assert_eq!(results["m1/s1"], MergeResult::Uncommitted { files: vec!["more".into()] });
}

/// An object store that cannot be written stops a merge before anything has moved, and the merge is made when it can.
#[tokio::test]
async fn a_disk_that_cannot_be_written_stops_a_merge_before_anything_moves() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    work_on(&service, 1, &[("one", "1\n")]).await;
    repo.write("README.md", "changed\n");
    repo.commit_all("the user goes on").await;
    let before = repo.git(&["for-each-ref"]).await;
    repo.git(&["gc", "--quiet", "--prune=now"]).await;
    // A file in the place of each folder that an object could be written into: a mode would not stop root.
    let objects = repo.dir.join(".git/objects");
    let blocked: Vec<_> = (0..=255).map(|byte| objects.join(format!("{byte:02x}"))).collect();
    for folder in &blocked {
        fs::write(folder, "").unwrap();
    }
    let refused =
        service.merge_slices(&main_branch(), &[request(1, &[])], &BTreeSet::new(), &passing()).await;
    let Err(PilotGitError::Git(fault)) = &refused else { panic!("{refused:?}") };
    assert!(matches!(fault, writ_sandbox::git::GitFault::Unwritable { .. }), "{fault:?}");
    assert_eq!(repo.git(&["for-each-ref"]).await, before);
    assert_eq!(repo.git(&["status", "--porcelain"]).await, "");
    for folder in blocked {
        fs::remove_file(folder).unwrap();
    }
    assert_eq!(kinds(&merge(&service, &[request(1, &[])], &passing()).await)["m1/s1"], "merged");
}
