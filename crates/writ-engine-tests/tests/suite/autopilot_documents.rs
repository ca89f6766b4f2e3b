//! Documents of a project that a change makes out of date: asked about once before the merge, and changed by a person's word.

use std::path::Path;
use std::sync::Arc;

use writ_models::ModelRole;
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::api::pilot::PilotStatus;

use crate::autopilot::{Scene, git, moves};
use crate::autopilot_limits::{GATE, ONE_TASK, SHORT, done, first_run, project, scene, writes};
use crate::autopilot_phases::{Heard, Notes, hear, note, noted};
use crate::harness::TestEngine;

const SLICE: &str = "slice/m1/s1";
const DOCUMENT: &str = "# Parts\n\nThere is no sum.\n";
/// A change of the document that fits.
const DIFF: &str = "--- a/ARCHITECTURE.md\n+++ b/ARCHITECTURE.md\n@@ -1,3 +1,3 @@\n # Parts\n \n-There is no sum.\n+`add` sums.\n";
const TIERS: &str = "[tiers.standard]\nmodels = [\"test/plain\"]\n[tiers.fast]\nmodels = [\"test/quick\"]\n";

/// A repository with documents, as its settings name what becomes of them.
fn with_documents(setting: &str) -> tempfile::TempDir {
    let dir = project(setting, &format!("{TIERS}{GATE}"), SHORT);
    std::fs::write(dir.path().join("ARCHITECTURE.md"), DOCUMENT).expect("written");
    std::fs::write(dir.path().join("STACK.md"), "Node.\n").expect("written");
    git(dir.path(), &["add", "."]);
    git(dir.path(), &["commit", "-q", "-m", "documents"]);
    dir
}

/// A team whose agent answers with this about documents; its requests about them are noted.
fn team(
    answer: &'static str,
    asked: &Notes<(String, String)>,
) -> impl FnMut(&ParsedRequest) -> Reply + Send + 'static {
    let asked = Arc::clone(asked);
    move |request| {
        let heard: Heard = hear(request);
        match (heard.part.as_str(), heard.results) {
            ("Goal", _) => Reply::text(ONE_TASK),
            ("Documents", _) => {
                note(&asked, (heard.text, heard.model));
                Reply::text(answer)
            }
            ("Work", 0) => writes("add", "a + b"),
            _ => done(),
        }
    }
}

fn begin(dir: &Path, answer: &'static str, asked: &Notes<(String, String)>) -> Scene {
    let roles = [(ModelRole::Executor, "plain"), (ModelRole::Scorer, "quick")];
    scene(dir, TestEngine::with_roles(&roles, |_| team(answer, asked)))
}

fn document(dir: &Path) -> String {
    git(dir, &["show", "main:ARCHITECTURE.md"])
}

/// The subjects of the commits about documents, on whatever branch.
fn commits(dir: &Path) -> Vec<String> {
    let all = git(dir, &["log", "--all", "--format=%s"]);
    all.lines().filter(|line| line.starts_with("docs:")).map(str::to_owned).collect()
}

fn assert_waits(status: &PilotStatus) {
    assert_eq!(status.state, "paused", "{status:#?}");
    let [blocker] = &status.blockers[..] else { panic!("one blocker: {status:#?}") };
    assert_eq!((blocker.unit.as_str(), blocker.event.as_str()), (SLICE, "Paused"));
    assert!(blocker.detail.contains("a change of ARCHITECTURE.md is proposed"), "{blocker:?}");
}

/// Before its merge a model of the fast tier is asked once about the documents that are there, with the whole change. What it proposes is
/// shown and waits; accepted it is a commit of its own on the branch, and the gates judge the merge with it. Nothing is asked about that
/// commit, and it is no move between phases.
///
/// Rows: SF-214 (in part: a workflow with a merge) SF-215 (in part: prompt and tier) SF-216 (in part: the commit on the branch)
/// Rows: SF-219 (in part: no commit before the approval)
#[test]
fn needs_userns_needs_git_documents_wait_for_a_person_and_are_merged_with_the_change() {
    let dir = with_documents("");
    let asked = Notes::default();
    let scene = begin(dir.path(), DIFF, &asked);
    scene.engine.runtime.block_on(async {
        assert_waits(&first_run(&scene).await);
        assert_eq!(commits(dir.path()), [""; 0]);
        let slice = scene.unit(SLICE).await;
        assert_eq!(slice.documents, DIFF);
        // An order to go on is no answer: it waits again, and nothing is asked.
        scene.order(SLICE, "resume", "").await;
        assert_waits(&scene.end_of_loop().await);
        let before = git(dir.path(), &["rev-parse", "main"]);
        scene.order(SLICE, "accept", "").await;
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        assert_ne!(git(dir.path(), &["rev-parse", "main"]), before);
        let slice = scene.unit(SLICE).await;
        assert_eq!(slice.documents, "");
        assert_eq!(moves(&slice), ["verify>merge", "merge>complete"]);
    });
    assert_eq!(document(dir.path()), "# Parts\n\n`add` sums.\n");
    assert_eq!(commits(dir.path()), [format!("docs: sync after {SLICE}")]);
    let [(prompt, model)] = &noted(&asked)[..] else { panic!("asked once: {:?}", noted(&asked)) };
    assert_eq!(model, "quick");
    for part in [
        "# Documents after slice slice/m1/s1",
        "ARCHITECTURE.md, STACK.md.",
        "> +export const add = (a, b) => a + b;",
    ] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    assert!(!prompt.contains("CONVENTIONS.md"), "it is not there: {prompt}");
    scene.end();
}

/// A rejected change leaves no commit, and the merge goes on without it; no reason is needed.
///
/// Rows: SF-216 (in part: a rejection leaves no commit)
#[test]
fn needs_userns_needs_git_a_rejected_change_of_documents_leaves_no_commit() {
    let dir = with_documents("");
    let asked = Notes::default();
    let scene = begin(dir.path(), DIFF, &asked);
    scene.engine.runtime.block_on(async {
        assert_waits(&first_run(&scene).await);
        scene.order(SLICE, "reject", "").await;
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
    });
    assert_eq!((document(dir.path()).as_str(), commits(dir.path()).len()), (DOCUMENT, 0));
    assert_eq!(noted(&asked).len(), 1);
    git(dir.path(), &["cat-file", "-e", "main:add.mjs"]);
    scene.end();
}

/// By a setting a change is committed without a question, or no agent is asked. An answer without a change, and one that is none, leave no
/// commit and ask nobody; the second is reported with the merge. None of them holds the merge up.
///
/// Rows: SF-215 SF-217 SF-218 SF-219
#[test]
fn needs_userns_needs_git_documents_follow_their_settings_and_only_a_diff_changes_them() {
    const FOREIGN: &str = "--- a/package.json\n+++ b/package.json\n@@ -1 +1 @@\n-{\n+[\n";
    const NOWHERE: &str = "--- a/STACK.md\n+++ b/STACK.md\n@@ -1 +1 @@\n-Rust.\n+Go.\n";
    const REFUSED: &str = "the documents stay as they are, since the proposed change is none";
    for (setting, answer, calls, end) in [
        ("doc_sync_auto_approve = true", DIFF, 1, Ok("docs")),
        ("doc_sync = false", DIFF, 0, Ok("")),
        ("", " \n\n", 1, Ok("")),
        ("", "```diff\n```", 1, Ok("")),
        ("", FOREIGN, 1, Ok(REFUSED)),
        ("", NOWHERE, 1, Ok(REFUSED)),
        ("", "All is well.", 1, Ok(REFUSED)),
        ("", DIFF, 1, Err("waits")),
    ] {
        let dir = with_documents(setting);
        let asked = Notes::default();
        let scene = begin(dir.path(), answer, &asked);
        scene.engine.runtime.block_on(async {
            let status = first_run(&scene).await;
            let Ok(report) = end else { return assert_waits(&status) };
            assert_eq!(status.state, "complete", "{answer}: {status:#?}");
            let slice = scene.unit(SLICE).await;
            let merged = slice.moves.iter().find(|one| one.to == "complete").expect("merged");
            assert!(merged.reason.contains("merged as"), "{merged:?}");
            assert_eq!(merged.reason.contains(REFUSED), report == REFUSED, "{merged:?}");
        });
        let asked = noted(&asked);
        assert_eq!(asked.len(), calls, "{setting}");
        assert!(asked.iter().all(|(prompt, model)| model == "quick" && prompt.contains("ARCHITECTURE.md")));
        let has_commit = end == Ok("docs");
        assert_eq!(document(dir.path()) != DOCUMENT, has_commit, "{answer}");
        let subjects: Vec<String> =
            has_commit.then(|| format!("docs: sync after {SLICE}")).into_iter().collect();
        assert_eq!(commits(dir.path()), subjects, "{answer}");
        assert_eq!(git(dir.path(), &["show", "main:STACK.md"]), "Node.\n");
        scene.end();
    }
}
