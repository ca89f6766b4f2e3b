//! The autopilot on a real repository: a goal is planned, approved once, worked on by scripted coders, checked by the real test
//! runner of Node, reviewed, and merged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::AbortHandle;
use writ_pilot::pilots::{OwnerFiles, Pilots};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::api::pilot::{
    FindingVerdict, PilotChanges, PilotFinding, PilotFindings, PilotLog, PilotPlanned, PilotReloaded,
    PilotReport, PilotResolved, PilotRevertPlan, PilotReverted, PilotStatus, PilotUnitDetails, ResolveState,
    RevertEnd,
};
use writ_types::id::AskId;

use crate::harness::{OWNER, TestEngine};
use crate::work::approve;

mod coding;

/// The longest wait for a run of the autopilot.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);
/// The clock goes on by as much as the system's.
const STEP: Duration = Duration::from_millis(20);

const GATES: &str = r#"
[[gate]]
name = "unit"
run = ["node", "--test", "--test-reporter=tap"]
at = "task"
runs_tests = true
report = "tap"

[[gate]]
name = "slice"
run = ["node", "--test", "--test-reporter=tap"]
at = "slice"
runs_tests = true
report = "tap"

[[gate]]
name = "merged"
run = ["node", "--test", "--test-reporter=tap"]
at = "merge"
runs_tests = true
report = "tap"
"#;

pub(crate) const DONE: &str = "<turn_status>complete</turn_status>";

/// The plan of the goal: two slices and three tasks.
const OUTLINE: &str = "\
- [ ] A library of sums <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * node --test passes
    - [ ] add <!-- task/m1/s1/t1 -->
      Write add in add.mjs.
    - [ ] sub <!-- task/m1/s1/t2 blocked_by=task/m1/s1/t1 -->
      Write sub in sub.mjs.
  - [ ] Products <!-- slice/m1/s2 code_depends_on=m1/s1 -->
    Acceptance:
    * node --test passes
    - [ ] mul <!-- task/m1/s2/t1 -->
      Write mul in mul.mjs.
";

/// A coder that gives up.
pub(crate) const GIVES_UP: &str = "gives up";

pub(crate) fn plan_of(unit: &str) -> String {
    format!(
        "---\nunit_id: {unit}\ncreated_at: 2026-01-01T00:00:00Z\nwritten_by: \"m\"\nplan_version: 1\n---\n\n# Goal\nIt works.\n\n# Approach\nWrite it.\n\n# Deliverables\n- [ ] the function\n\n# Verification\n\n# Notes\n"
    )
}

pub(crate) fn git(dir: &Path, arguments: &[&str]) -> String {
    #[expect(clippy::disallowed_types, reason = "a real repository is made by the real program")]
    let done = std::process::Command::new("git").args(arguments).current_dir(dir).output().expect("git runs");
    assert!(done.status.success(), "{arguments:?}: {done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

pub(crate) fn repository(gates: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("temp dir");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    write("package.json", "{\"name\": \"sums\", \"type\": \"module\"}\n");
    write("base.test.mjs", "import test from 'node:test';\ntest('base', () => {});\n");
    write(".writ/pilot.toml", gates);
    git(dir.path(), &["init", "-q", "-b", "main"]);
    git(dir.path(), &["config", "user.name", "t"]);
    git(dir.path(), &["config", "user.email", "t@example.org"]);
    git(dir.path(), &["add", "."]);
    git(dir.path(), &["commit", "-q", "-m", "first"]);
    dir
}

/// The behaviour of the coder of one function, by the number of its try.
type Tries = BTreeMap<&'static str, Vec<&'static str>>;

/// A scripted team: planner, researcher, coder, reviewer.
struct Team {
    /// What each coder writes at each try: an expression in `a` and `b`.
    tries: Tries,
    made: Mutex<BTreeMap<String, usize>>,
    reviews: Mutex<Vec<&'static str>>,
    /// The decisions about units; any other unit is abandoned.
    replans: BTreeMap<&'static str, ()>,
    /// Called before the coder of a function writes, with its name.
    before_code: Option<Box<BeforeCode>>,
}

/// What happens before a coder writes.
type BeforeCode = dyn Fn(&str) + Send + Sync;

impl Team {
    fn new(tries: Tries, reviews: Vec<&'static str>) -> Arc<Self> {
        Arc::new(Self::plain(tries, reviews))
    }

    fn plain(tries: Tries, reviews: Vec<&'static str>) -> Self {
        let (made, reviews) = (Mutex::default(), Mutex::new(reviews));
        Self { tries, made, reviews, replans: BTreeMap::new(), before_code: None }
    }

    fn answer(&self, request: &ParsedRequest) -> Reply {
        let first = request.messages.iter().find(|message| !message.text.is_empty());
        let text = first.map(|message| message.text.clone()).unwrap_or_default();
        let heading = text.lines().find(|line| line.starts_with("# ")).unwrap_or_default().to_owned();
        if heading.starts_with("# Plan a goal") {
            return Reply::text(OUTLINE);
        }
        let unit = heading.split(' ').find(|word| word.contains("/m")).unwrap_or_default();
        let unit = unit.trim_end_matches([',', '.']).to_owned();
        match heading.split(' ').nth(1).unwrap_or_default() {
            "Research" => Reply::text(&format!("Nothing is there yet.\n{DONE}")),
            "Plan" => Reply::text(&format!("{}\n{DONE}", plan_of(&unit))),
            "Work" => self.code(&unit, &text, request),
            "Tests" => self.test(&unit, &text, request),
            "Review" => {
                let mut reviews = self.reviews.lock().unwrap_or_else(PoisonError::into_inner);
                let verdict = if reviews.is_empty() { "pass" } else { reviews.remove(0) };
                let findings = if verdict == "pass" {
                    json!([])
                } else {
                    json!([{ "path": "add.mjs", "line": 1, "severity": "high", "text": "say what it adds" }])
                };
                Reply::text(&json!({ "verdict": verdict, "findings": findings }).to_string())
            }
            "Decision" if self.replans.contains_key(unit.as_str()) => Reply::text(
                &json!({ "decision": "replan", "plan": plan_of(&unit), "reason": "another way" }).to_string(),
            ),
            "Decision" => Reply::text(r#"{"decision":"abandon","reason":"it cannot be done"}"#),
            other => Reply::text(&format!("I do not know '{other}'.")),
        }
    }

    /// The name of the function of a task.
    fn name_of(text: &str) -> String {
        let task = text.lines().find_map(|line| line.strip_prefix("Task: ")).unwrap_or_default();
        task.trim().trim_matches('"').to_owned()
    }

    fn code(&self, unit: &str, text: &str, request: &ParsedRequest) -> Reply {
        if request.results().next().is_some() {
            return Reply::text(&format!("Written.\n{DONE}"));
        }
        let name = Self::name_of(text);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let count = made.entry(unit.to_owned()).or_default();
        let tries = self.tries.get(name.as_str()).cloned().unwrap_or_else(|| vec!["0"]);
        let body = tries.get(*count).or(tries.last()).copied().unwrap_or("0");
        *count += 1;
        if let Some(before_code) = &self.before_code {
            before_code(&name);
        }
        if body == GIVES_UP {
            return Reply::text("I cannot do it.\n<turn_status>giving_up</turn_status>");
        }
        let content = format!("// try {count}\nexport const {name} = (a, b) => {body};\n");
        Reply::call("file_write", json!({ "path": format!("{name}.mjs"), "content": content }))
    }

    fn test(&self, _: &str, text: &str, request: &ParsedRequest) -> Reply {
        if request.results().next().is_some() {
            return Reply::text(&format!("Tested.\n{DONE}"));
        }
        let name = Self::name_of(text);
        let right = match name.as_str() {
            "add" => 5,
            "sub" => -1,
            _ => 6,
        };
        let content = format!(
            "import test from 'node:test';\nimport assert from 'node:assert';\nimport {{ {name} }} from './{name}.mjs';\ntest('{name}', () => assert.equal({name}(2, 3), {right}));\n"
        );
        Reply::call("file_write", json!({ "path": format!("{name}.test.mjs"), "content": content }))
    }
}

fn right() -> Tries {
    BTreeMap::from([("add", vec!["a + b"]), ("sub", vec!["a - b"]), ("mul", vec!["a * b"])])
}

/// An engine with the autopilot, whose model is the team.
pub(crate) struct Scene {
    pub(crate) engine: TestEngine,
    pilots: Arc<Pilots>,
    pub(crate) project: PathBuf,
    ticking: AbortHandle,
    /// Set while the clock stands still.
    is_held: Arc<AtomicBool>,
}

impl Scene {
    fn new(project: &Path, team: Arc<Team>) -> Self {
        let engine = TestEngine::new("", |_| move |request: &ParsedRequest| team.answer(request));
        let project = std::fs::canonicalize(project).expect("is there");
        Self::of_engine(engine, project)
    }

    /// The autopilot of an engine whose clock goes on as the system's: its waits are short.
    pub(crate) fn of_engine(engine: TestEngine, project: PathBuf) -> Self {
        Self::with_owner_files(engine, project, OwnerFiles::default())
    }

    /// The same, with files of the owner.
    pub(crate) fn with_owner_files(engine: TestEngine, project: PathBuf, owner: OwnerFiles) -> Self {
        let pilots = Pilots::new(engine.engine.pilot_hands(), owner);
        engine.engine.open_autopilot(pilots.clone());
        let (clock, is_held) = (Arc::clone(&engine.clock), Arc::new(AtomicBool::new(false)));
        let held = Arc::clone(&is_held);
        let ticking = engine.runtime.spawn(async move {
            let mut steps = tokio::time::interval(STEP);
            loop {
                steps.tick().await;
                if !held.load(Ordering::SeqCst) {
                    clock.go_on(STEP);
                }
            }
        });
        Self { engine, pilots, project, ticking: ticking.abort_handle(), is_held }
    }

    /// Ends the engine where it stands, and starts another on its home, which goes on by itself.
    pub(crate) fn restarted(self) -> Self {
        self.ticking.abort();
        let Self { engine, pilots, project, .. } = self;
        // The tasks of the engine that has ended let go of the repository, as those of a process do.
        engine.runtime.block_on(async {
            engine.engine.drain(Duration::ZERO).await;
            pilots.close_projects().await;
        });
        let scene = Self::of_engine(engine.restarted(), project);
        scene.engine.runtime.block_on(scene.pilots.resume_projects());
        scene
    }

    /// Lets the clock stand still, or go on again.
    pub(crate) fn hold_clock(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::SeqCst);
    }

    pub(crate) fn end(self) {
        self.engine.runtime.block_on(self.pilots.close_projects());
        self.ticking.abort();
        self.engine.end();
    }

    pub(crate) async fn order(&self, unit: &str, order: &str, reason: &str) -> PilotUnitDetails {
        let params = json!({ "project": self.project, "unit": unit, "order": order, "reason": reason });
        let done = self.engine.call("pilot.order", params).await.unwrap_or_else(|error| panic!("{error:?}"));
        serde_json::from_value(done).expect("reads")
    }

    pub(crate) fn params(&self) -> serde_json::Value {
        json!({ "project": self.project })
    }

    pub(crate) async fn plan(&self, goal: &str) -> PilotPlanned {
        let params = json!({ "project": self.project, "goal": goal });
        let planned =
            self.engine.call("pilot.plan", params).await.unwrap_or_else(|error| panic!("{error:?}"));
        serde_json::from_value(planned).expect("reads")
    }

    /// Calls a method about the project with more parameters.
    pub(crate) async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        method: &str,
        more: serde_json::Value,
    ) -> T {
        let mut params = self.params();
        if let (Some(all), Some(more)) = (params.as_object_mut(), more.as_object()) {
            all.extend(more.clone());
        }
        let done =
            self.engine.call(method, params).await.unwrap_or_else(|error| panic!("{method}: {error:?}"));
        serde_json::from_value(done).expect("reads")
    }

    /// Reads the edited plan; with `apply` the edits that were shown are carried out.
    pub(crate) async fn reload(&self, apply: bool) -> PilotReloaded {
        let shown: PilotReloaded = self.ask("pilot.reload", json!({})).await;
        if !apply {
            return shown;
        }
        self.ask("pilot.reload", json!({ "apply": true, "digest": shown.digest })).await
    }

    pub(crate) async fn approve(&self, ask: &AskId) {
        self.engine.engine.answer(OWNER, ask.clone(), approve()).await.expect("approved");
    }

    pub(crate) async fn status(&self) -> PilotStatus {
        let shown = self.engine.call("pilot.status", self.params()).await.expect("shown");
        serde_json::from_value(shown).expect("reads")
    }

    pub(crate) async fn unit(&self, unit: &str) -> PilotUnitDetails {
        let params = json!({ "project": self.project, "unit": unit });
        let shown = self.engine.call("pilot.unit", params).await.expect("shown");
        serde_json::from_value(shown).expect("reads")
    }

    /// Runs the loop until it has ended.
    pub(crate) async fn run(&self) -> PilotStatus {
        self.engine.call("pilot.run", self.params()).await.expect("runs");
        self.end_of_loop().await
    }

    pub(crate) async fn end_of_loop(&self) -> PilotStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            let status = self.status().await;
            if status.state != "running" && status.state != "idle" {
                return status;
            }
            assert!(Instant::now() < until, "it does not end: {status:#?}");
            self.engine.clock.wait_until_moved(self.engine.clock.now()).await;
        }
    }
}

pub(crate) fn moves(details: &PilotUnitDetails) -> Vec<String> {
    details.moves.iter().map(|one| format!("{}>{}", one.from, one.to)).collect()
}

/// A goal goes in, and merged commits come out: all phases of every unit, each slice merged after its gates on the merged tree.
///
/// Rows: SF-077 (in part: the phases of a task and of its slice) SF-231 (in part: complete after the merge)
/// Rows: SF-236 (in part: a slice waits for the one that it depends on) SF-262 (in part: nothing is left after a full run)
#[test]
fn needs_userns_needs_git_needs_node_a_goal_becomes_merged_commits() {
    let dir = repository(GATES);
    let scene = Scene::new(dir.path(), Team::new(right(), Vec::new()));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        assert_eq!(planned.units.len(), 6);
        let before = scene.status().await;
        assert!(before.units.iter().all(|unit| !unit.is_over && unit.attempt == 0));
        scene.approve(&planned.ask).await;
        let status = scene.run().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        assert!(status.units.iter().all(|unit| unit.is_over && unit.status == "succeeded"), "{status:#?}");
        let task = scene.unit("task/m1/s1/t1").await;
        assert_eq!(
            moves(&task),
            ["research>plan", "plan>execute", "execute>tdd", "tdd>verify", "verify>complete"]
        );
        let slice = scene.unit("slice/m1/s1").await;
        assert_eq!(moves(&slice), ["verify>review", "review>merge", "merge>complete"]);
    });
    for name in ["add", "sub", "mul"] {
        git(dir.path(), &["cat-file", "-e", &format!("main:{name}.mjs")]);
    }
    // The user's own checkout moved with its branch, and nothing is left.
    assert!(dir.path().join("mul.mjs").is_file());
    assert_eq!(git(dir.path(), &["worktree", "list"]).lines().count(), 1);
    assert_eq!(git(dir.path(), &["status", "--porcelain"]), "");
    assert_eq!(git(dir.path(), &["branch", "--list", "writ/*"]), "");
    let active = std::fs::read_dir(dir.path().join(".writ/active")).expect("is there").flatten();
    let left: Vec<_> = active.map(|entry| entry.file_name()).filter(|name| *name != ".gitignore").collect();
    assert!(left.is_empty(), "archived: {left:?}");
    scene.end();
}

/// A wrong try is caught by the gate and sent back with its output; a finding of the review is mended before the merge.
///
/// Rows: SF-078 (in part: back to execute) SF-079 (in part: changes are requested)
#[test]
fn needs_userns_needs_git_needs_node_wrong_tries_and_findings_are_mended() {
    let dir = repository(GATES);
    let tries =
        BTreeMap::from([("add", vec!["a - b", "a + b"]), ("sub", vec!["a - b"]), ("mul", vec!["a * b"])]);
    let scene = Scene::new(dir.path(), Team::new(tries, vec!["request_changes"]));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        let status = scene.run().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let task = scene.unit("task/m1/s1/t1").await;
        assert!(moves(&task).contains(&"verify>execute".to_owned()), "{:#?}", task.moves);
        assert!(task.gates.iter().any(|gate| !gate.passed && gate.gate == "unit"), "{:#?}", task.gates);
    });
    assert_eq!(
        git(dir.path(), &["show", "main:add.mjs"]).lines().last(),
        Some("export const add = (a, b) => a + b;")
    );
    scene.end();
}

/// Nothing runs before the plan is approved, and a refused one never does.
#[test]
fn needs_userns_needs_git_needs_node_nothing_runs_without_an_approval() {
    let dir = repository(GATES);
    let scene = Scene::new(dir.path(), Team::new(right(), Vec::new()));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.engine.call("pilot.run", scene.params()).await.expect("waits");
        let denied =
            writ_runtime::engine::Answer { decision: writ_types::entry::Decision::Deny, ..approve() };
        scene.engine.engine.answer(OWNER, planned.ask.clone(), denied).await.expect("denied");
        let status = scene.run().await;
        assert!(status.units.iter().all(|unit| unit.attempt == 0), "{status:#?}");
    });
    assert_eq!(git(dir.path(), &["log", "--oneline"]).lines().count(), 1);
    scene.end();
}

/// A workflow with acceptance by a person.
const ACCEPTED: &str = r#"
phases = ["plan", "execute", "verify", "review", "uat", "merge", "complete"]
require_review = true
require_uat = true
"#;

/// A result waits for a person, is rejected once with a reason, is planned anew, and is merged once it was accepted.
///
/// Rows: SF-095
/// Rows: SF-103 (in part: back to plan) SF-094 (in part: the loop pauses)
#[test]
fn needs_userns_needs_git_needs_node_a_rejected_result_is_planned_anew() {
    let gates = format!("[pilot]\ndefault_workflow = \"accepted\"\n{GATES}");
    let dir = repository(&gates);
    std::fs::create_dir_all(dir.path().join(".writ/workflows")).expect("made");
    std::fs::write(dir.path().join(".writ/workflows/accepted.toml"), ACCEPTED).expect("written");
    let tries = BTreeMap::from([("Sums", vec!["a * b"]), ("Products", vec!["a * b"])]);
    let replans = BTreeMap::from([("slice/m1/s1", ())]);
    let team = Team { replans, ..Team::plain(tries, Vec::new()) };
    let scene = Scene::new(dir.path(), Arc::new(team));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        let (mut rejected, mut accepted) = (0, 0);
        let status = loop {
            let status = scene.run().await;
            let Some(waiting) = status.blockers.iter().find(|blocker| blocker.event == "UATPending") else {
                break status;
            };
            assert_eq!(status.state, "paused");
            let early =
                json!({ "project": scene.project, "unit": "task/m1/s1/t1", "order": "accept", "reason": "" });
            let refused =
                scene.engine.call("pilot.order", early).await.expect_err("it waits for no acceptance");
            assert!(refused.code.starts_with("pilot."), "{refused:?}");
            let in_target = git(dir.path(), &["ls-tree", "--name-only", "main"]);
            if waiting.unit == "slice/m1/s1" && rejected == 0 {
                assert!(!in_target.contains("add.mjs"), "nothing is merged before: {in_target}");
                rejected += 1;
                scene.order(&waiting.unit, "reject", "the names are too short").await;
            } else {
                accepted += 1;
                scene.order(&waiting.unit, "accept", "").await;
            }
        };
        assert_eq!((rejected, accepted, status.state.as_str()), (1, 2, "complete"), "{status:#?}");
        let slice = scene.unit("slice/m1/s1").await;
        let all = moves(&slice);
        let ways = ["uat>reassess", "reassess>plan", "review>uat", "uat>merge", "merge>complete"];
        assert!(ways.iter().all(|way| all.contains(&(*way).to_owned())), "{all:?}");
        let rejection = slice.moves.iter().find(|one| one.to == "reassess").expect("one");
        assert!(rejection.reason.contains("the names are too short"), "{rejection:?}");
    });
    git(dir.path(), &["cat-file", "-e", "main:Sums.mjs"]);
    scene.end();
}

/// A task that a coder gives up is abandoned; its slice is planned anew without it, and what does not depend on it goes on.
///
/// Rows: SF-102 (in part: two of three decisions) SF-143 (in part: reassess is next)
#[test]
fn needs_userns_needs_git_needs_node_dependants_of_an_abandoned_task_are_planned_anew() {
    let dir = repository(GATES);
    let tries = BTreeMap::from([
        ("add", vec![GIVES_UP]),
        ("sub", vec!["a - b"]),
        ("mul", vec!["a * b"]),
        ("Sums", vec!["a * b"]),
    ]);
    let replans = BTreeMap::from([("slice/m1/s1", ())]);
    let team = Team { replans, ..Team::plain(tries, Vec::new()) };
    let scene = Scene::new(dir.path(), Arc::new(team));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        let status = scene.run().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let task = scene.unit("task/m1/s1/t1").await;
        assert_eq!((task.unit.is_over, task.unit.status.as_str()), (true, "failed"));
        assert!(moves(&task).contains(&"reassess>complete".to_owned()), "{:?}", moves(&task));
        let slice = scene.unit("slice/m1/s1").await;
        assert!(moves(&slice).contains(&"reassess>plan".to_owned()), "{:?}", slice.moves);
        assert!(
            slice.moves.iter().any(|one| one.reason.starts_with("upstream_abandoned")),
            "{:?}",
            slice.moves
        );
    });
    assert_eq!(git(dir.path(), &["ls-tree", "--name-only", "main", "add.mjs"]), "");
    git(dir.path(), &["cat-file", "-e", "main:mul.mjs"]);
    scene.end();
}

/// A user commits to the target meanwhile what conflicts: the work pauses with the files named, and goes on once a person has
/// resolved it in the workspace.
///
/// Rows: SF-232 (in part: blocker and pause)
#[test]
fn needs_userns_needs_git_needs_node_a_conflict_waits_for_a_person() {
    let dir = repository(GATES);
    let project = dir.path().to_owned();
    let user_commits = move |name: &str| {
        if name == "mul" {
            std::fs::write(project.join("mul.mjs"), "// mine\n").expect("written");
            git(&project, &["add", "mul.mjs"]);
            git(&project, &["commit", "-q", "-m", "mine"]);
        }
    };
    let team = Team { before_code: Some(Box::new(user_commits)), ..Team::plain(right(), Vec::new()) };
    let scene = Scene::new(dir.path(), Arc::new(team));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        let status = scene.run().await;
        assert_eq!(status.state, "paused", "{status:#?}");
        let blocker = status.blockers.first().expect("one");
        assert_eq!((blocker.event.as_str(), blocker.unit.as_str()), ("MergeConflict", "slice/m1/s2"));
        assert!(blocker.detail.contains("mul.mjs"), "{blocker:?}");
        assert_eq!(git(dir.path(), &["show", "main:mul.mjs"]), "// mine\n");
        let workspace = dir.path().join(".writ/workspaces/slice_m1_s2");
        git(&workspace, &["merge", "-q", "-X", "ours", "-m", "both", "main"]);
        scene.order("slice/m1/s2", "resume", "").await;
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
    });
    assert!(
        git(dir.path(), &["log", "--format=%s", "main"]).lines().any(|line| line == "mine"),
        "it is still there"
    );
    assert!(git(dir.path(), &["show", "main:mul.mjs"]).contains("a * b"));
    scene.end();
}

/// The engine ends in the middle of attempts, again and again; each start goes on by itself, and every commit is there once.
///
/// Rows: SF-110 (in part: dispatched afresh) SF-117 (in part: claims end at the start)
#[test]
fn needs_userns_needs_git_needs_node_it_goes_on_after_the_engine_has_ended_at_any_moment() {
    let dir = repository(GATES);
    let mut scene = Scene::new(dir.path(), Team::new(right(), Vec::new()));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
    });
    // At moments of its own progress: so many units have begun.
    for begun in [1, 2, 3, 4] {
        scene.engine.runtime.block_on(async {
            let until = Instant::now() + PATIENCE;
            loop {
                let status = scene.status().await;
                let count = status.units.iter().filter(|unit| unit.attempt > 0).count();
                if count >= begun || status.state == "complete" {
                    return;
                }
                assert!(Instant::now() < until, "it does not go on: {status:#?}");
                scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
            }
        });
        scene = scene.restarted();
    }
    scene.engine.runtime.block_on(async {
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        assert!(status.units.iter().all(|unit| unit.status == "succeeded"), "{status:#?}");
    });
    let merges = git(dir.path(), &["log", "--merges", "--format=%s", "main"]);
    assert_eq!(merges.lines().count(), 2, "each slice once: {merges}");
    assert_eq!(git(dir.path(), &["worktree", "list"]).lines().count(), 1);
    assert_eq!(git(dir.path(), &["branch", "--list", "writ/*"]), "");
    // As a crash leaves it between the commit of an end and what follows from it.
    let left = dir.path().join(".writ/active/slice_m1_s1");
    std::fs::create_dir(&left).expect("made");
    let scene = scene.restarted();
    scene.engine.runtime.block_on(scene.status());
    assert!(!left.exists(), "the next start makes up for it");
    scene.end();
}

/// What was merged is reported, traced and undone: report, log and revert say and do what the store, the ledger and git have.
///
/// Rows: SF-543 (in part: the list with its merges) SF-553 (in part: runs, turns, tools, moves and gates of a unit in their order)
/// Rows: SF-452 (in part: each tool call and model request of a unit is in its log) SF-545
#[test]
fn needs_userns_needs_git_needs_node_merged_work_is_reported_traced_and_undone() {
    let dir = repository(GATES);
    let scene = Scene::new(dir.path(), Team::new(right(), Vec::new()));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        let status = scene.run().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let report: PilotReport = scene.ask("pilot.report", json!({})).await;
        assert_eq!(report.units.len(), status.units.len());
        assert!(report.runs.iter().all(|run| !run.end.is_empty()), "{:#?}", report.runs);
        assert_eq!(report.cost, status.cost);
        assert!(report.gates.iter().any(|gate| gate.name == "unit" && gate.verdict == "pass"));
        assert!(report.commits.iter().any(|commit| commit.is_merge), "{:#?}", report.commits);
        let of_slice: PilotReport = scene.ask("pilot.report", json!({ "unit": "slice/m1/s2" })).await;
        let ids: Vec<&str> = of_slice.units.iter().map(|unit| unit.id.as_str()).collect();
        assert_eq!(ids, ["slice/m1/s2", "task/m1/s2/t1"]);
        assert!(
            of_slice.commits.iter().all(|commit| commit.unit == "slice/m1/s2"),
            "{:#?}",
            of_slice.commits
        );
        assert!(of_slice.runs.len() < report.runs.len());

        let log: PilotLog = scene.ask("pilot.log", json!({ "unit": "task/m1/s1/t1" })).await;
        let count = |kind: &str| log.lines.iter().filter(|line| line.kind == kind).count();
        let task = scene.unit("task/m1/s1/t1").await;
        assert_eq!((count("begin"), count("end")), (task.runs.len(), task.runs.len()));
        assert_eq!((count("move"), count("gate")), (task.moves.len(), task.gates.len()));
        assert!(log.lines.iter().any(|line| line.kind == "tool" && line.text == "write add.mjs"), "{log:#?}");
        assert!(log.lines.iter().any(|line| line.kind == "model" && line.took_ms.is_some()), "{log:#?}");
        assert!(log.lines.is_sorted_by_key(|line| line.at));
        let coded = task.runs.iter().find(|run| run.phase == "execute").expect("one").attempt;
        let one: PilotLog =
            scene.ask("pilot.log", json!({ "unit": "task/m1/s1/t1", "attempt": coded, "last": 3 })).await;
        assert_eq!(one.lines.len(), 3);
        assert!(one.left_out > 0 && one.lines.iter().all(|line| line.attempt == coded), "{one:#?}");

        assert!(scene.reload(false).await.written);
        let mark = |unit: &str| {
            let plan = std::fs::read_to_string(dir.path().join(".writ/plan.md")).expect("reads");
            let line = plan.lines().find(|line| line.contains(unit)).expect("its line").trim().to_owned();
            line.get(..5).expect("a mark").to_owned()
        };
        assert_eq!(mark("slice/m1/s2"), "- [x]");
        // A conflict with later work brings nothing back.
        std::fs::write(dir.path().join("mul.mjs"), "// mine\n").expect("written");
        git(dir.path(), &["commit", "-qam", "mine"]);
        let plan: PilotRevertPlan = scene.ask("pilot.revert_plan", json!({ "unit": "slice/m1/s2" })).await;
        let stopped: PilotReverted =
            scene.ask("pilot.revert", json!({ "unit": "slice/m1/s2", "at": plan.at })).await;
        assert_eq!(stopped.end, RevertEnd::Conflict, "{stopped:?}");
        assert_eq!(mark("slice/m1/s2"), "- [x]");
        assert!(!dir.path().join(".writ/active/slice_m1_s2").exists());
        git(dir.path(), &["reset", "-q", "--hard", "HEAD~1"]);
        let before = git(dir.path(), &["rev-parse", "main"]);
        let plan: PilotRevertPlan = scene.ask("pilot.revert_plan", json!({ "unit": "slice/m1/s2" })).await;
        assert_eq!((plan.at.as_str(), plan.merges.len()), (before.trim(), 1));
        let outdated = json!({ "project": scene.project, "unit": "slice/m1/s2", "at": "0".repeat(40) });
        assert!(
            scene.engine.call("pilot.revert", outdated).await.is_err(),
            "another commit than was looked at"
        );
        assert_eq!(git(dir.path(), &["rev-parse", "main"]), before);
        let done: PilotReverted =
            scene.ask("pilot.revert", json!({ "unit": "slice/m1/s2", "at": plan.at })).await;
        assert_eq!((done.end, done.reason.as_str()), (RevertEnd::Reverted, ""), "{done:?}");
        let marks = ["slice/m1/s2", "task/m1/s2/t1", "slice/m1/s1"].map(mark);
        assert_eq!(marks, ["- [ ]", "- [ ]", "- [x]"]);
        let seen = scene.reload(false).await;
        assert!(seen.edits.is_empty() && seen.conflicts.is_empty(), "the mark is no edit: {seen:#?}");
        // The first slice is what nothing passes without: its test stays, or goes with it.
        let none = json!({ "project": scene.project, "unit": "milestone/m1" });
        assert!(scene.engine.call("pilot.revert_plan", none).await.is_err(), "a milestone has no commits");
    });
    assert_eq!(git(dir.path(), &["ls-tree", "--name-only", "main", "mul.mjs"]), "");
    assert!(!dir.path().join("mul.mjs").exists(), "the checkout has moved with its branch");
    git(dir.path(), &["cat-file", "-e", "main:add.mjs"]);
    let active = |unit: &str| dir.path().join(".writ/active").join(unit);
    let archived = || {
        let all = std::fs::read_dir(dir.path().join(".writ/archive")).expect("lists").flatten();
        all.filter(|entry| entry.file_name().to_string_lossy().contains("_m1_s2")).count()
    };
    assert!(active("task_m1_s2_t1").join("plan.md").is_file() && active("slice_m1_s2").is_dir());
    assert!(!active("slice_m1_s1").exists());
    assert_eq!(archived(), 0);
    // The next start leaves them there.
    let scene = scene.restarted();
    let status = scene.engine.runtime.block_on(scene.status());
    assert!(status.warnings.is_empty(), "{status:#?}");
    assert!(active("task_m1_s2_t1").join("plan.md").is_file() && archived() == 0);
    scene.end();
}

/// A conflict is resolved by command: both sides come into the workspace, markers that are left are refused, and what the person
/// has made of them is merged.
///
/// Rows: SF-557 (in part: refused with markers, merged without) SF-043 (in part: by this command)
#[test]
fn needs_userns_needs_git_needs_node_a_conflict_is_resolved_by_command() {
    let dir = repository(GATES);
    let project = dir.path().to_owned();
    let user_commits = move |name: &str| {
        if name == "mul" {
            std::fs::write(project.join("mul.mjs"), "// mine\n").expect("written");
            git(&project, &["add", "mul.mjs"]);
            git(&project, &["commit", "-q", "-m", "mine"]);
        }
    };
    let team = Team { before_code: Some(Box::new(user_commits)), ..Team::plain(right(), Vec::new()) };
    let scene = Scene::new(dir.path(), Arc::new(team));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        let status = scene.run().await;
        assert_eq!(status.state, "paused", "{status:#?}");
        let unit = json!({ "unit": "slice/m1/s2" });
        let changes: PilotChanges = scene.ask("pilot.changes", unit.clone()).await;
        assert!(
            changes.branch.starts_with("writ/m1-s2-") && changes.diff.contains("+export const mul"),
            "{changes:?}"
        );
        let other = json!({ "project": scene.project, "unit": "slice/m1/s1" });
        assert!(scene.engine.call("pilot.resolve", other).await.is_err(), "nothing conflicts there");
        let begun: PilotResolved = scene.ask("pilot.resolve", unit.clone()).await;
        assert_eq!(
            (begun.state, begun.files.as_slice()),
            (ResolveState::Begun, ["mul.mjs".to_owned()].as_slice())
        );
        let file = Path::new(&begun.folder).join("mul.mjs");
        let text = std::fs::read_to_string(&file).expect("both sides");
        assert!(text.contains("// mine") && text.contains("a * b") && text.contains("<<<<<<<"), "{text}");
        let early = scene
            .engine
            .call("pilot.resolve", json!({ "project": scene.project, "unit": "slice/m1/s2" }))
            .await;
        assert_eq!(early.expect_err("markers").code, "pilot.markers_left");
        std::fs::write(&file, "// mine\nexport const mul = (a, b) => a * b;\n").expect("written");
        let done: PilotResolved = scene.ask("pilot.resolve", unit).await;
        assert!(done.state == ResolveState::Resolved && done.commit.is_some(), "{done:?}");
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
    });
    assert_eq!(git(dir.path(), &["show", "main:mul.mjs"]), "// mine\nexport const mul = (a, b) => a * b;\n");
    scene.end();
}

/// What a person edits in the plan's file is shown, carried out on their word, and asked about where it has other words; a conflict
/// changes nothing, and another title is no other branch.
///
/// Rows: SF-065
/// Rows: SF-531 (in part: one is added, one removed, one begun is untouched, a second reload changes nothing)
#[test]
fn needs_userns_needs_git_needs_node_an_edited_plan_is_read_again() {
    let dir = repository(GATES);
    let scene = Scene::new(dir.path(), Team::new(right(), Vec::new()));
    let file = dir.path().join(".writ/plan.md");
    scene.engine.runtime.block_on(async {
        scene.plan("a library of sums").await;
        let written = scene.reload(false).await;
        assert!(written.written && file.is_file(), "{written:?}");
        let quiet = scene.reload(false).await;
        assert!(quiet.edits.is_empty() && quiet.conflicts.is_empty(), "{quiet:?}");
        let text = std::fs::read_to_string(&file).expect("reads");
        // A file that cannot be read changes nothing, and says its line.
        std::fs::write(&file, format!("{text}- [?] what\n")).expect("written");
        let units = scene.status().await.units;
        let bad = scene.engine.call("pilot.reload", json!({ "project": scene.project })).await;
        assert!(bad.expect_err("refused").outside.contains("plan.md, line "));
        assert_eq!(scene.status().await.units, units);
        // A mark by hand is a conflict: nothing else of the file is carried out either.
        let marked = text.replace("- [ ] Sums", "- [x] Sums").replace("Products", "Other products");
        std::fs::write(&file, marked).expect("written");
        let shown = scene.reload(true).await;
        assert_eq!((shown.conflicts.len(), shown.applied), (1, false), "{shown:?}");
        assert!(scene.status().await.units.iter().any(|unit| unit.title == "Products"), "nothing was changed");
        // One unit goes, one gets another title, and a milestone comes.
        let start = text.find("    - [ ] sub <!--").expect("is there");
        let end = start + text[start..].find("  - [ ] Products").expect("is there");
        let edited = format!("{}{}", &text[..start], &text[end..]).replace("Products", "Other products");
        let edited = format!("{edited}- [ ] Later\n  - [ ] Differences\n    Acceptance:\n    * node --test passes\n    - [ ] diff\n      Write diff in diff.mjs.\n");
        std::fs::write(&file, edited).expect("written");
        assert_eq!(scene.status().await.units, units, "nothing is read without a reload");
        let shown = scene.reload(false).await;
        let kinds: Vec<(&str, &str, bool)> =
            shown.edits.iter().map(|edit| (edit.kind.as_str(), edit.unit.as_str(), edit.needs_approval)).collect();
        assert!(kinds.contains(&("remove", "task/m1/s1/t2", false)), "{kinds:?}");
        assert!(kinds.contains(&("edit", "slice/m1/s2", true)), "{kinds:?}");
        assert!(kinds.contains(&("add", "task/m2/s1/t1", true)), "{kinds:?}");
        let stale = json!({ "project": scene.project, "apply": true, "digest": "x" });
        assert!(scene.engine.call("pilot.reload", stale).await.is_err(), "another file than was looked at");
        let done = scene.reload(true).await;
        assert!(done.applied && done.asks.len() == 2, "{done:?}");
        let again = scene.reload(true).await;
        assert!(again.edits.is_empty() && again.conflicts.is_empty(), "{again:?}");
        let status = scene.status().await;
        assert!(!status.units.iter().any(|unit| unit.id == "task/m1/s1/t2"), "{status:#?}");
        assert!(status.units.iter().any(|unit| unit.id == "milestone/m2"), "{status:#?}");
        for ask in &done.asks {
            scene.approve(ask).await;
        }
        let status = scene.run().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let by_id = |id: &str| status.units.iter().find(|unit| unit.id == id).expect("is there").clone();
        assert_eq!(by_id("slice/m1/s2").title, "Other products");
        assert_eq!(by_id("slice/m1/s2").status, "succeeded", "{status:#?}");
        let marked = scene.reload(true).await;
        assert!(marked.edits.is_empty() && marked.conflicts.is_empty(), "{marked:?}");
    });
    git(dir.path(), &["cat-file", "-e", "main:mul.mjs"]);
    assert_eq!(git(dir.path(), &["ls-tree", "--name-only", "main", "sub.mjs"]), "");
    scene.end();
}

/// The branch of a slice keeps its name when its title changes after its work was handed out.
#[test]
fn needs_userns_needs_git_needs_node_another_title_is_no_other_branch() {
    let dir = repository(GATES);
    let tries = BTreeMap::from([("add", vec![GIVES_UP]), ("Sums", vec!["a * b"]), ("mul", vec!["a * b"])]);
    let scene = Scene::new(dir.path(), Team::new(tries, Vec::new()));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        let before = scene.unit("slice/m1/s1").await.branch;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        loop {
            let status = scene.status().await;
            let is_begun = status.units.iter().any(|unit| unit.id == "task/m1/s1/t1" && unit.attempt > 0);
            if is_begun {
                break;
            }
            scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
        }
        scene.engine.call("pilot.pause", scene.params()).await.expect("pauses");
        scene.end_of_loop().await;
        scene.reload(false).await;
        let file = dir.path().join(".writ/plan.md");
        let text = std::fs::read_to_string(&file).expect("reads").replace("] Sums", "] Totals");
        std::fs::write(&file, text).expect("written");
        assert!(scene.reload(true).await.applied);
        let after = scene.unit("slice/m1/s1").await;
        assert_eq!((after.unit.title.as_str(), after.branch), ("Totals", before));
    });
    scene.end();
}

/// A look for faults names what is wrong with its remedy, and mends what loses nothing.
///
/// Rows: SF-549 (in part: settings, git, work trees, locks, branches and gates, each alone)
#[test]
fn needs_userns_needs_git_needs_node_faults_are_found_and_mended() {
    let gates = format!(
        "{GATES}\n[[gate]]\nname = \"gone\"\nrun = [\"no-such-tool\"]\nat = \"slice\"\nrequired = false\n"
    );
    let dir = repository(&gates);
    let scene = Scene::new(dir.path(), Team::new(right(), Vec::new()));
    scene.engine.runtime.block_on(async {
        scene.plan("a library of sums").await;
        let look = |fix: bool| scene.ask::<PilotFindings>("pilot.doctor", json!({ "fix": fix }));
        let of = |found: &PilotFindings, name: &str| -> Vec<PilotFinding> {
            found.checks.iter().filter(|one| one.name == name).cloned().collect()
        };
        let first = look(false).await;
        assert!(of(&first, "git").iter().all(|one| one.text.starts_with("git 2.")), "{first:#?}");
        assert_eq!(of(&first, "gate unit")[0].verdict, FindingVerdict::Good, "{first:#?}");
        let gone = of(&first, "gate gone");
        assert!(
            gone[0].verdict == FindingVerdict::Bad && gone[0].text.contains("does not start"),
            "{gone:?}"
        );
        assert!(!first.healthy);
        assert_eq!(of(&first, "branches")[0].verdict, FindingVerdict::Good);
        // A branch with the name of one of ours, and one that is: without a unit.
        git(dir.path(), &["branch", "writ/m9-s9-of-a-person"]);
        git(dir.path(), &["branch", "writ/m9-s1-left"]);
        let tip = git(dir.path(), &["commit-tree", "-p", "main", "-m", "left", "main^{tree}"]);
        git(dir.path(), &["update-ref", "refs/heads/writ/m9-s1-left", tip.trim()]);
        git(dir.path(), &["update-ref", "refs/writ/base/writ/m9-s1-left", "main"]);
        let found = look(false).await;
        let branches = of(&found, "branches");
        assert_eq!(branches.len(), 2, "{branches:#?}");
        assert!(branches.iter().all(|one| one.verdict == FindingVerdict::Warn && !one.hint.is_empty()));
        assert_eq!(branches.iter().filter(|one| one.can_fix).count(), 1, "a person's own is left alone");
        let mended = look(true).await;
        assert_eq!(of(&mended, "branches").iter().filter(|one| one.fixed).count(), 1, "{mended:#?}");
        let left = git(dir.path(), &["branch", "--list", "writ/*", "--format=%(refname:short)"]);
        assert_eq!(left.trim(), "writ/m9-s9-of-a-person");
        let archived = git(dir.path(), &["for-each-ref", "--format=%(objectname)", "refs/writ/archive"]);
        assert_eq!(archived.trim(), tip.trim(), "its commit is reachable");
        // Broken settings are a finding, and no end of the look.
        std::fs::write(dir.path().join(".writ/pilot.toml"), "[pilot]\nmax_attempt = 1\n").expect("written");
        let broken = look(false).await;
        assert!(of(&broken, "settings").iter().any(|one| one.verdict == FindingVerdict::Bad), "{broken:#?}");
        assert!(of(&broken, "gate unit").is_empty());
    });
    scene.end();
}
