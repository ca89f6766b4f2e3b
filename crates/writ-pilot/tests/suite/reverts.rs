//! Undoing a unit.

use writ_pilot::PilotGitError;
use writ_pilot::merge::TreeVerdict;
use writ_pilot::revert::{RevertResult, plan_revert, revert_unit};

use super::fixture::*;

/// The commits of a unit are found, listed as `git log` has them with merges apart, and undone newest first after a check.
///
/// Rows: SF-542 SF-543 SF-544 (in part: the question and the pause are the caller's)
#[tokio::test]
async fn a_merged_unit_is_undone_commit_by_commit_newest_first() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    let mut commits = Vec::new();
    for text in ["1\n", "1\n2\n", "1\n2\n3\n"] {
        commits.push(work_on(&service, 1, &[("README.md", text)]).await);
    }
    work_on(&service, 2, &[("other", "stays\n")]).await;
    merge(&service, &[request(1, &[]), request(2, &[])], &passing()).await;
    let before = repo.at("main").await;
    let plan = plan_revert(&service, &main_branch(), "m1/s1").await.unwrap();
    commits.reverse();
    assert_eq!(plan.commits.iter().map(|commit| commit.id.clone()).collect::<Vec<_>>(), commits);
    assert!(plan.commits.iter().all(|commit| commit.subject == "m1/s1: do some work" && commit.seconds > 0));
    assert_eq!(plan.merges.len(), 1, "the merge is shown apart");
    // Looking changes nothing, nor does a check that does not pass.
    let failing = Check::new(|_: &writ_pilot::merge::MergedTree| TreeVerdict::NotRun("no tests".into()));
    let refused = revert_unit(&service, &plan, &failing).await.unwrap();
    assert!(matches!(refused, RevertResult::Refused(TreeVerdict::NotRun(_))), "{refused:?}");
    assert_eq!(repo.at("main").await, before);
    let done = revert_unit(&service, &plan, &passing()).await.unwrap();
    let RevertResult::Reverted { commits: undone } = done else { panic!("{done:?}") };
    assert_eq!(undone.len(), 3);
    let log = repo.git(&["log", "--format=%s%n%b", "-3", "main"]).await;
    for (number, commit) in commits.iter().enumerate() {
        assert_eq!(undone[number].as_str(), repo.at(&format!("main~{}", 2 - number)).await);
        assert!(log.contains(&format!("This reverts commit {commit}.")), "{log}");
    }
    assert_eq!((repo.read("README.md"), repo.read("other")), ("one\ntwo\nthree\n".into(), "stays\n".into()));
    assert_eq!(repo.git(&["status", "--porcelain"]).await, "");
    let outdated = revert_unit(&service, &plan, &passing()).await;
    assert!(matches!(outdated, Err(PilotGitError::PlanOutdated { .. })), "{outdated:?}");
    // Its own commits are not found as work of the unit; once more there is nothing left.
    let again = plan_revert(&service, &main_branch(), "m1/s1").await.unwrap();
    assert_eq!(again.commits.len(), 3);
    let none = plan_revert(&service, &main_branch(), "m9/s9").await;
    assert!(matches!(none, Err(PilotGitError::NoCommits { .. })), "{none:?}");
}

/// Commits that a rebase has given other ids, and that have no trailer any longer, are found by their message; a later change that
/// excludes the undoing is a conflict, and changes nothing.
#[tokio::test]
async fn rewritten_commits_are_found_and_a_conflict_changes_nothing() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    let commit = work_on(&service, 1, &[("README.md", "one\nTWO\nthree\n")]).await;
    repo.git(&["cherry-pick", commit.as_str()]).await;
    repo.git(&["commit", "--quiet", "--amend", "-m", "m1/s1: squashed by a person"]).await;
    let plan = plan_revert(&service, &main_branch(), "m1/s1").await.unwrap();
    assert_eq!((plan.commits.len(), plan.merges.len()), (1, 0));
    assert_ne!(plan.commits[0].id, commit);
    repo.write("README.md", "one\nTWO and more\nthree\n");
    repo.commit_all("built upon it").await;
    let before = repo.git(&["for-each-ref"]).await;
    let plan = plan_revert(&service, &main_branch(), "m1/s1").await.unwrap();
    let result = revert_unit(&service, &plan, &passing()).await.unwrap();
    let RevertResult::Conflict { files, done, .. } = result else { panic!("{result:?}") };
    assert_eq!((files, done), (vec!["README.md".into()], vec![]));
    assert_eq!(repo.git(&["for-each-ref"]).await, before);
    assert_eq!(repo.read("README.md"), "one\nTWO and more\nthree\n");
}

/// Undone before, it is not undone again.
#[tokio::test]
async fn what_was_undone_is_not_undone_again() {
    let repo = Repo::new().await;
    let service = repo.open().await;
    work_on(&service, 1, &[("new", "1\n")]).await;
    merge(&service, &[request(1, &[])], &passing()).await;
    let plan = plan_revert(&service, &main_branch(), "m1/s1").await.unwrap();
    assert!(matches!(revert_unit(&service, &plan, &passing()).await.unwrap(), RevertResult::Reverted { .. }));
    let plan = plan_revert(&service, &main_branch(), "m1/s1").await.unwrap();
    assert_eq!(revert_unit(&service, &plan, &passing()).await.unwrap(), RevertResult::NothingLeft);
}
