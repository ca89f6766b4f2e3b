//! Repositories, and checks that are scripted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use writ_autopilot::names::branch_name;
use writ_autopilot::unit_id::UnitId;
use writ_pilot::PilotGit;
use writ_pilot::events::{GitEvent, GitEvents};
use writ_pilot::merge::{MergeRequest, MergeResult, MergeResults, MergedTree, TreeCheck, TreeVerdict};
use writ_pilot::service::{PilotGitConfig, RecoveryReport, UnitWork};
use writ_pilot::workspace::CommitResult;
use writ_sandbox::git::{BranchName, CommitId};
use writ_sandbox::host::host_git;

/// Remembers every event.
#[derive(Debug, Default)]
pub(crate) struct Recorder(pub(crate) Mutex<Vec<GitEvent>>);

impl GitEvents for Recorder {
    fn take_event(&self, event: GitEvent) {
        self.0.lock().unwrap().push(event);
    }
}

/// A repository of a user, with `main` checked out, and the service on it.
pub(crate) struct Repo {
    _temp: tempfile::TempDir,
    pub(crate) dir: PathBuf,
    pub(crate) events: Arc<Recorder>,
}

/// Runs git in a folder as a user would.
pub(crate) async fn git_in(dir: &Path, args: &[&str]) -> String {
    let who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"];
    let args: Vec<String> = who.iter().chain(args).map(|arg| (*arg).to_owned()).collect();
    let output = host_git(dir, &args).await.unwrap();
    assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

impl Repo {
    /// With one commit on `main`: `README.md` and `src/a.rs`.
    pub(crate) async fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap().join("project");
        fs::create_dir_all(dir.join("src")).unwrap();
        let repo = Self { _temp: temp, dir, events: Arc::default() };
        repo.git(&["init", "--quiet", "--initial-branch=main", "--template="]).await;
        repo.write("README.md", "one\ntwo\nthree\n");
        repo.write("src/a.rs", "fn a() {}\n");
        repo.commit_all("begin").await;
        repo
    }

    /// A folder beside the project.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.parent().unwrap().join(name)
    }

    pub(crate) async fn git(&self, args: &[&str]) -> String {
        git_in(&self.dir, args).await
    }

    pub(crate) async fn commit_all(&self, message: &str) {
        self.git(&["add", "--all"]).await;
        self.git(&["commit", "--quiet", "--message", message]).await;
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let file = self.dir.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.dir.join(path)).unwrap_or_default()
    }

    /// The commit of a reference.
    pub(crate) async fn at(&self, name: &str) -> String {
        self.git(&["rev-parse", name]).await
    }

    /// The content of a file in a reference.
    pub(crate) async fn show(&self, name: &str, path: &str) -> String {
        self.git(&["show", &format!("{name}:{path}")]).await
    }

    /// The references below a prefix.
    pub(crate) async fn refs(&self, below: &str) -> Vec<String> {
        let listed = self.git(&["for-each-ref", "--format=%(refname)", below]).await;
        listed.lines().map(str::to_owned).collect()
    }

    pub(crate) async fn try_open(&self) -> Result<(PilotGit, RecoveryReport), writ_pilot::PilotGitError> {
        PilotGit::open_service(&self.dir, PilotGitConfig::default(), self.events.clone()).await
    }

    pub(crate) async fn open(&self) -> PilotGit {
        let (service, report) = self.try_open().await.unwrap();
        assert_eq!(report, RecoveryReport::default());
        service
    }
}

pub(crate) fn main_branch() -> BranchName {
    BranchName::parse_name("main").unwrap()
}

/// The work of slice `m1/s{n}`.
pub(crate) fn slice(number: u32) -> UnitWork {
    UnitWork {
        unit: format!("m1/s{number}"),
        branch: BranchName::parse_name(&branch_name(UnitId::Slice(1, number), "Some work")).unwrap(),
    }
}

/// The request to merge it, planned in the order of the numbers.
pub(crate) fn request(number: u32, needs: &[&str]) -> MergeRequest {
    let UnitWork { unit, branch } = slice(number);
    MergeRequest {
        unit,
        branch,
        title: format!("Some work {number}"),
        code_depends_on: needs.iter().map(|on| (*on).to_owned()).collect(),
        created_at: i64::from(number),
    }
}

/// Writes files into the workspace of a slice, and commits them.
pub(crate) async fn work_on(service: &PilotGit, number: u32, files: &[(&str, &str)]) -> CommitId {
    let work = slice(number);
    let place = service.ensure_workspace(&work, &main_branch()).await.unwrap();
    for (path, text) in files {
        let file = place.folder.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    match service.commit_workspace(&work, "do some work").await.unwrap() {
        CommitResult::Committed { commit, .. } => commit,
        CommitResult::Unchanged => panic!("nothing was changed"),
    }
}

/// A check that is a function, and counts.
pub(crate) struct Check<F> {
    judge: F,
    pub(crate) seen: Mutex<Vec<MergedTree>>,
}

impl<F: Fn(&MergedTree) -> TreeVerdict + Sync> Check<F> {
    pub(crate) fn new(judge: F) -> Self {
        Self { judge, seen: Mutex::default() }
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

impl<F: Fn(&MergedTree) -> TreeVerdict + Sync> TreeCheck for Check<F> {
    async fn check_tree(&self, tree: &MergedTree) -> TreeVerdict {
        self.seen.lock().unwrap().push(tree.clone());
        (self.judge)(tree)
    }
}

pub(crate) fn passing() -> Check<fn(&MergedTree) -> TreeVerdict> {
    Check::new(|_| TreeVerdict::Pass)
}

/// Merges slices into `main`, by their numbers.
pub(crate) async fn merge(
    service: &PilotGit,
    requests: &[MergeRequest],
    check: &impl TreeCheck,
) -> MergeResults {
    service.merge_slices(&main_branch(), requests, &BTreeSet::new(), check).await.unwrap()
}

/// The names of the results, by unit.
pub(crate) fn kinds(results: &MergeResults) -> BTreeMap<&str, &'static str> {
    let kind = |result: &MergeResult| match result {
        MergeResult::Merged { .. } => "merged",
        MergeResult::AlreadyIn => "already in",
        MergeResult::Withdrawn => "withdrawn",
        MergeResult::Unchanged => "unchanged",
        MergeResult::Conflict { .. } => "conflict",
        MergeResult::Failed { .. } => "failed",
        MergeResult::Blocked { .. } => "blocked",
        MergeResult::NotRun { .. } => "not run",
        MergeResult::Waits { .. } => "waits",
        MergeResult::Uncommitted { .. } => "uncommitted",
        MergeResult::Held { .. } => "held",
    };
    results.iter().map(|(unit, result)| (unit.as_str(), kind(result))).collect()
}
