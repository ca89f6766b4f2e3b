//! Small programming exercises of our own, as practice sets have them, in four languages: the autopilot has each one solved by a
//! scripted coder in a repository of its own, with given tests, and with hidden ones that no coder sees. A third of the coders are
//! wrong first, and a good part cheat. All of it ends merged and green, or is reported with the reason; no cheat passes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use writ_pilot::pilots::{OwnerFiles, Pilots};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::api::pilot::{PilotGateLine, PilotPlanned, PilotStatus, PilotUnitDetails};

use crate::autopilot::{DONE, GIVES_UP, git};
use crate::harness::{OWNER, TestEngine};
use crate::work::approve;

#[path = "exercises/generator.rs"]
mod generator;

#[path = "exercises/go.rs"]
mod go;

#[path = "exercises/javascript.rs"]
mod javascript;

#[path = "exercises/python.rs"]
mod python;

#[path = "exercises/rust.rs"]
mod rust;

use generator::{Exercise, Language};

/// The longest wait for all exercises of a language.
const PATIENCE: Duration = Duration::from_secs(300);
/// The clock goes on by as much as the system's.
const STEP: Duration = Duration::from_millis(20);

/// Few phases, since the exercises are about gates: what is written is checked twice, and once more as it would be merged.
const WORKFLOW: &str = "phases = [\"execute\", \"verify\", \"merge\", \"complete\"]\nrequire_tdd = false\nrequire_review = false\nmax_retries = 3\nmax_reassess = 0\n";

/// A change of a file: its whole text, or nothing where it is removed.
pub(crate) type ExerciseEdit = (String, Option<String>);

/// One try of a coder.
#[derive(Clone, Debug)]
pub(crate) enum Try {
    /// It changes files, and says that it is done.
    Edits(Vec<ExerciseEdit>),
    /// It gives up.
    GivesUp,
}

/// The end that an exercise has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is merged, as its right solution and nothing else.
    Merged,
    /// It is given up, and the target is as it was.
    Reported,
}

/// The coders of all exercises.
struct Coders {
    exercises: BTreeMap<&'static str, Exercise>,
    begun: Mutex<BTreeMap<&'static str, usize>>,
    /// Exercises with hidden tests that stood in a request.
    leaked: Mutex<Vec<&'static str>>,
}

impl Coders {
    fn answer(&self, request: &ParsedRequest) -> Reply {
        let raw = request.raw.to_string();
        let leaked = self.exercises.values().filter(|one| raw.contains(&one.secret())).map(|one| one.name);
        self.leaked.lock().unwrap_or_else(PoisonError::into_inner).extend(leaked);
        let first = request.messages.iter().find(|message| !message.text.is_empty());
        let text = first.map(|message| message.text.as_str()).unwrap_or_default();
        let exercise = self.exercises.values().find(|one| text.contains(&one.marker()));
        let Some(exercise) = exercise else { return Reply::text("I know no such exercise.") };
        let heading = text.lines().find(|line| line.starts_with("# ")).unwrap_or_default();
        if heading.starts_with("# Plan a goal") {
            return Reply::text(&exercise.outline());
        }
        match heading.split(' ').nth(1).unwrap_or_default() {
            "Work" => self.code(exercise, request),
            "Decision" => Reply::text(r#"{"decision":"abandon","reason":"it cannot be done"}"#),
            other => Reply::text(&format!("I do not know '{other}'.")),
        }
    }

    /// The next change of a try. Each call of the model after the first has the results of the calls before it.
    fn code(&self, exercise: &Exercise, request: &ParsedRequest) -> Reply {
        let done = request.results().count();
        let count = {
            let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
            let count = begun.entry(exercise.name).or_default();
            *count += usize::from(done == 0);
            count.saturating_sub(1)
        };
        match exercise.tries.get(count).or(exercise.tries.last()) {
            None | Some(Try::GivesUp) => {
                Reply::text(&format!("I cannot: {GIVES_UP}.\n<turn_status>giving_up</turn_status>"))
            }
            Some(Try::Edits(edits)) => match edits.get(done) {
                None => Reply::text(&format!("Written.\n{DONE}")),
                Some((path, Some(text))) => {
                    Reply::call("file_write", json!({ "path": path, "content": text }))
                }
                Some((path, None)) => Reply::call("shell_exec", json!({ "argv": ["rm", "-r", path] })),
            },
        }
    }
}

/// An engine with the autopilot, and the repositories of the exercises.
struct ExerciseCourse {
    engine: TestEngine,
    /// The repositories by the names of their exercises.
    places: BTreeMap<&'static str, tempfile::TempDir>,
    /// What no coder sees.
    hidden: tempfile::TempDir,
    coders: Arc<Coders>,
}

impl ExerciseCourse {
    fn new(exercises: &[Exercise]) -> Self {
        let hidden = tempfile::tempdir().expect("temp dir");
        let places = exercises.iter().map(|one| (one.name, repository(one, hidden.path()))).collect();
        let coders = Arc::new(Coders {
            exercises: exercises.iter().map(|one| (one.name, one.clone())).collect(),
            begun: Mutex::default(),
            leaked: Mutex::default(),
        });
        let team = Arc::clone(&coders);
        let engine = TestEngine::new("", |_| move |request: &ParsedRequest| team.answer(request));
        Self { engine, places, hidden, coders }
    }

    fn project(&self, name: &str) -> PathBuf {
        std::fs::canonicalize(self.places[name].path()).expect("is there")
    }

    async fn call(&self, method: &str, params: Value) -> Value {
        self.engine.call(method, params).await.unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// Plans all exercises, approves, and runs them beside one another to their ends.
    async fn solve(&self, exercises: &[Exercise]) -> BTreeMap<&'static str, PilotStatus> {
        for exercise in exercises {
            let project = self.project(exercise.name);
            let goal = json!({ "project": project, "goal": exercise.goal() });
            let planned = self.call("pilot.plan", goal).await;
            let planned: PilotPlanned = serde_json::from_value(planned).expect("reads");
            self.engine.engine.answer(OWNER, planned.ask, approve()).await.expect("approved");
            self.call("pilot.run", json!({ "project": project })).await;
        }
        let until = Instant::now() + PATIENCE;
        let mut ended = BTreeMap::new();
        for exercise in exercises {
            let params = json!({ "project": self.project(exercise.name) });
            loop {
                let status = self.call("pilot.status", params.clone()).await;
                let status: PilotStatus = serde_json::from_value(status).expect("reads");
                if status.state != "running" && status.state != "idle" {
                    ended.insert(exercise.name, status);
                    break;
                }
                assert!(Instant::now() < until, "{} does not end: {status:#?}", exercise.name);
                self.engine.clock.wait_until_moved(self.engine.clock.now()).await;
            }
        }
        ended
    }

    /// The results of the gates of the task and of its slice.
    async fn gates(&self, name: &str) -> Vec<PilotGateLine> {
        let mut all = Vec::new();
        for unit in ["task/m1/s1/t1", "slice/m1/s1"] {
            let params = json!({ "project": self.project(name), "unit": unit });
            let unit = self.call("pilot.unit", params).await;
            let unit: PilotUnitDetails = serde_json::from_value(unit).expect("reads");
            all.extend(unit.gates);
        }
        all
    }
}

fn write(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    std::fs::write(&path, text).expect("written");
    if name.ends_with(".sh") {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("made executable");
    }
}

/// The repository of an exercise: a stub, its given tests, and the settings. Its hidden tests lie outside.
fn repository(exercise: &Exercise, hidden: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("temp dir");
    for (name, text) in exercise.files() {
        write(dir.path(), &name, &text);
    }
    write(dir.path(), ".writ/pilot.toml", &exercise.settings());
    write(dir.path(), ".writ/workflows/exercise.toml", WORKFLOW);
    let (name, text) = exercise.hidden_tests();
    write(&hidden.join(exercise.folder()), &name, &text);
    git(dir.path(), &["init", "-q", "-b", "main"]);
    git(dir.path(), &["config", "user.name", "t"]);
    git(dir.path(), &["config", "user.email", "t@example.org"]);
    git(dir.path(), &["add", "."]);
    git(dir.path(), &["commit", "-q", "-m", "first"]);
    git(dir.path(), &["tag", "first"]);
    dir
}

/// Has all exercises of a language solved, and looks at the ends.
fn solve_all(language: Language, exercises: &[Exercise]) {
    assert!(exercises.iter().all(|one| one.language == language));
    let course = ExerciseCourse::new(exercises);
    let pilots = Pilots::new(
        course.engine.engine.pilot_hands(),
        OwnerFiles { settings: None, hidden_tests: Some(course.hidden.path().to_owned()) },
    );
    course.engine.engine.open_autopilot(pilots.clone());
    let clock = Arc::clone(&course.engine.clock);
    let ticking = course.engine.runtime.spawn(async move {
        let mut steps = tokio::time::interval(STEP);
        loop {
            steps.tick().await;
            clock.go_on(STEP);
        }
    });
    let runtime = &course.engine.runtime;
    let ended = runtime.block_on(course.solve(exercises));
    let mut problems = Vec::new();
    for exercise in exercises {
        let gates = runtime.block_on(course.gates(exercise.name));
        let place = course.places[exercise.name].path();
        let found = find_problems(exercise, place, &ended[exercise.name], &gates);
        problems.extend(found.into_iter().map(|problem| format!("{}: {problem}\n{gates:#?}", exercise.name)));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    let leaked = course.coders.leaked.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(leaked.is_empty(), "what is hidden was shown to a model: {leaked:?}");
    runtime.block_on(pilots.close_projects());
    ticking.abort();
    course.engine.end();
}

/// Compares the end of an exercise with the one that it has to have.
fn find_problems(
    exercise: &Exercise,
    place: &Path,
    status: &PilotStatus,
    gates: &[PilotGateLine],
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut check = |is_well: bool, problem: String| problems.extend((!is_well).then_some(problem));
    check(status.state == "complete", format!("{status:#?}"));
    let changed = git(place, &["diff", "--name-only", "first", "main"]);
    let slice = status.units.iter().find(|unit| unit.id == "slice/m1/s1").map(|unit| unit.status.as_str());
    match exercise.outcome {
        Outcome::Merged => {
            check(slice == Some("succeeded"), format!("it was not merged: {slice:?}"));
            check(changed.trim() == exercise.solution_path(), format!("more than its solution: {changed}"));
            let solution = git(place, &["show", &format!("main:{}", exercise.solution_path())]);
            check(solution == exercise.solution(), format!("another solution: {solution}"));
            let is_proven = gates.iter().any(|gate| gate.gate == "hidden" && gate.passed);
            check(is_proven, "without its hidden tests".to_owned());
        }
        Outcome::Reported => {
            check(slice == Some("failed"), format!("it was merged: {slice:?}"));
            check(changed.is_empty(), format!("the target is another: {changed}"));
        }
    }
    // Each failure that was to be found was found, and no other.
    let failed: Vec<&PilotGateLine> = gates.iter().filter(|gate| !gate.passed).collect();
    for (gate, words) in &exercise.findings {
        let is_found = failed.iter().any(|one| one.gate == *gate && one.output.contains(words));
        check(is_found, format!("'{gate}' does not say '{words}'"));
    }
    for one in &failed {
        let is_expected = exercise.findings.iter().any(|(gate, _)| one.gate == *gate);
        check(is_expected, format!("'{}' fails, too", one.gate));
    }
    for unseen in gates.iter().filter(|gate| gate.gate == "hidden") {
        check(unseen.output.len() < 100, "the words of hidden tests are stored".to_owned());
    }
    problems
}

/// Rows: SF-007 (in part: coders that skip tests or change what runs them move nothing)
#[test]
fn needs_userns_needs_git_needs_python_exercises_in_python_end_merged_or_reported() {
    solve_all(Language::Python, &python::exercises());
}

#[test]
fn needs_userns_needs_git_needs_node_exercises_in_javascript_end_merged_or_reported() {
    solve_all(Language::JavaScript, &javascript::exercises());
}

#[test]
fn needs_userns_needs_git_needs_go_exercises_in_go_end_merged_or_reported() {
    solve_all(Language::Go, &go::exercises());
}

#[test]
fn needs_userns_needs_git_exercises_in_rust_end_merged_or_reported() {
    solve_all(Language::Rust, &rust::exercises());
}

/// The set is as it has to be: 25 exercises in four languages, a third of the coders wrong first, and cheats of each kind.
#[test]
fn the_set_has_its_size_and_its_cheats() {
    let all: Vec<Exercise> =
        [python::exercises(), javascript::exercises(), go::exercises(), rust::exercises()].concat();
    assert_eq!(all.len(), 25);
    let names: std::collections::BTreeSet<&str> = all.iter().map(|one| one.name).collect();
    assert_eq!(names.len(), all.len());
    let wrong = all.iter().filter(|one| one.findings.iter().all(|(gate, _)| *gate == "given"));
    let wrong = wrong.filter(|one| !one.findings.is_empty() && one.is_honest).count();
    assert!(wrong * 3 >= all.len(), "{wrong} are wrong first");
    assert!(all.iter().filter(|one| !one.is_honest).count() >= 10);
    for one in &all {
        assert!(one.given.len() >= 3 && one.hidden.len() >= 2, "{}", one.name);
    }
}
