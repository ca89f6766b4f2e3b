//! The autopilot on a real repository: a goal is planned, approved once, worked on by scripted coders, checked by the real test
//! runner of Node, reviewed, and merged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use writ_pilot::pilots::Pilots;
use writ_runtime::clock::Clock;
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::api::pilot::{PilotPlanned, PilotStatus, PilotUnitDetails};
use writ_types::id::AskId;
use writ_types::unit::Timestamp;

use crate::harness::{BEGIN, OWNER, TestEngine};
use crate::work::approve;

/// The longest wait for a run of the autopilot.
const PATIENCE: Duration = Duration::from_secs(240);

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

const DONE: &str = "<turn_status>complete</turn_status>";

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

fn git(dir: &Path, arguments: &[&str]) -> String {
    #[expect(clippy::disallowed_types, reason = "a real repository is made by the real program")]
    let done = std::process::Command::new("git").args(arguments).current_dir(dir).output().expect("git runs");
    assert!(done.status.success(), "{arguments:?}: {done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn repository(gates: &str) -> tempfile::TempDir {
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
}

impl Team {
    fn new(tries: Tries, reviews: Vec<&'static str>) -> Arc<Self> {
        Arc::new(Self { tries, made: Mutex::default(), reviews: Mutex::new(reviews) })
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
            "Plan" => Reply::text(&format!(
                "---\nunit_id: {unit}\ncreated_at: 2026-01-01T00:00:00Z\nwritten_by: \"m\"\nplan_version: 1\n---\n\n# Goal\nIt works.\n\n# Approach\nWrite it.\n\n# Deliverables\n- [ ] the function\n\n# Verification\n\n# Notes\n\n{DONE}"
            )),
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
            "Decision" => Reply::text("{\"decision\":\"abandon\",\"reason\":\"it cannot be done\"}"),
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

/// A clock that begins with the keys of the test and goes on as the system's: waits of the autopilot are short.
#[derive(Debug)]
struct Ticking(Instant);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        BEGIN.plus_duration(self.0.elapsed())
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// An engine with the autopilot, whose model is the team.
struct Scene {
    engine: TestEngine,
    pilots: Arc<Pilots>,
    project: PathBuf,
}

impl Scene {
    fn new(project: &Path, team: Arc<Team>) -> Self {
        let engine = TestEngine::with(
            |parts| parts.clock = Arc::new(Ticking(Instant::now())),
            |_| move |request: &ParsedRequest| team.answer(request),
        );
        let pilots = Pilots::new(engine.engine.pilot_hands());
        engine.engine.open_autopilot(pilots.clone());
        let project = std::fs::canonicalize(project).expect("is there");
        Self { engine, pilots, project }
    }

    fn params(&self) -> serde_json::Value {
        json!({ "project": self.project })
    }

    async fn plan(&self, goal: &str) -> PilotPlanned {
        let params = json!({ "project": self.project, "goal": goal });
        let planned =
            self.engine.call("pilot.plan", params).await.unwrap_or_else(|error| panic!("{error:?}"));
        serde_json::from_value(planned).expect("reads")
    }

    async fn approve(&self, ask: &AskId) {
        self.engine.engine.answer(OWNER, ask.clone(), approve()).await.expect("approved");
    }

    async fn status(&self) -> PilotStatus {
        let shown = self.engine.call("pilot.status", self.params()).await.expect("shown");
        serde_json::from_value(shown).expect("reads")
    }

    async fn unit(&self, unit: &str) -> PilotUnitDetails {
        let params = json!({ "project": self.project, "unit": unit });
        let shown = self.engine.call("pilot.unit", params).await.expect("shown");
        serde_json::from_value(shown).expect("reads")
    }

    /// Runs the loop until it has ended.
    async fn run(&self) -> PilotStatus {
        self.engine.call("pilot.run", self.params()).await.expect("runs");
        let until = Instant::now() + PATIENCE;
        loop {
            let status = self.status().await;
            if status.state != "running" && status.state != "idle" {
                return status;
            }
            assert!(Instant::now() < until, "it does not end: {status:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn moves(details: &PilotUnitDetails) -> Vec<String> {
    details.moves.iter().map(|one| format!("{}>{}", one.from, one.to)).collect()
}

/// A goal goes in, and merged commits come out: all phases of every unit, each slice merged after its gates on the merged tree.
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
    scene.pilots.close_projects();
    scene.engine.end();
}

/// A wrong try is caught by the gate and sent back with its output; a finding of the review is mended before the merge.
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
    scene.pilots.close_projects();
    scene.engine.end();
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
    scene.pilots.close_projects();
    scene.engine.end();
}
