//! The owner's coding agent takes the attempts that write code: a program that speaks the Agent Client Protocol, in the sandbox.

use serde_json::Value;
use writ_acp::client::TurnTimes;
use writ_agent::event::{SystemSource, SystemText};
use writ_fleet::models::within::ListenerModels;
use writ_models::ModelRole;
use writ_runtime::coding_agent::CodingAgent;
use writ_runtime::services::EngineParts;
use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::LedgerReads as _;
use writ_testkit::model_server::{ReplyFault, ReplyGate};
use writ_types::taint::{Label, Taint};
use writ_types::unit::Tokens;

use super::*;
use crate::autopilot_limits::{GATE, ONE_TASK, SHORT, TASK, project};

/// The agent, with its faults. It looks into the home of its owner, too, which is there outside.
fn agent(engine: &TestEngine, faults: &str) -> CodingAgent {
    let command = ["python3", "-c", include_str!("coding_agent.py"), faults];
    CodingAgent {
        command: command.map(str::to_owned).into(),
        variables: BTreeMap::from([
            ("OWNER_HOME".to_owned(), engine.folder().display().to_string()),
            // Something listens there, outside.
            ("HOST_PORT".to_owned(), port_of(&engine.server.base_url())),
        ]),
        login: None,
        times: TurnTimes { start: Duration::from_secs(30), cancel: Duration::from_millis(500) },
        models: Arc::new(ListenerModels),
    }
}

fn port_of(url: &str) -> String {
    let (_, rest) = url.rsplit_once(':').expect("has a port");
    rest.chars().take_while(char::is_ascii_digit).collect()
}

/// The owner's rules.
fn set_rules(parts: &mut EngineParts) {
    let (source, label) = (SystemSource::Rules, Label::new(Taint::Owner));
    parts.config.system.push(SystemText { source, text: "Sums are sums.".to_owned(), label });
}

/// An autopilot whose coder is the agent. The team does the rest, and fails the test where it is asked to write code.
fn scene(dir: &Path, faults: &str) -> Scene {
    let team = Team::new(right(), Vec::new());
    let answer = move |request: &ParsedRequest| {
        let text = request.messages.first().map(|message| message.text.clone()).unwrap_or_default();
        if let Some(asked) = text.strip_prefix("the body of ") {
            return Reply::text(&format!("as the model of {asked} says"));
        }
        if text.starts_with("never answered") {
            return Reply::text("late").with_fault(ReplyFault::SlowFirstByte(ReplyGate::new()));
        }
        assert!(!text.starts_with("# Work") && !text.starts_with("# Tests"), "the agent's work: {text}");
        team.answer(request)
    };
    scene_of(dir, TestEngine::with(set_rules, |_| answer), faults)
}

fn scene_of(dir: &Path, engine: TestEngine, faults: &str) -> Scene {
    engine.engine.open_coding_agent(agent(&engine, faults));
    Scene::of_engine(engine, std::fs::canonicalize(dir).expect("is there"))
}

/// The model of an agent that has one task; it notes the models that were asked, and the texts.
fn model_of_one_task(
    asked: &Arc<Mutex<Vec<(String, String)>>>,
) -> impl FnMut(&ParsedRequest) -> Reply + use<> {
    let (noted, mut is_busy) = (Arc::clone(asked), true);
    move |request: &ParsedRequest| {
        let first = request.messages.first().map(|message| message.text.clone()).unwrap_or_default();
        if first.starts_with("# Plan a goal") {
            return Reply::text(ONE_TASK);
        }
        assert!(first.starts_with("the body of "), "the agent's work: {first}");
        let text = format!("{:?}", request.messages);
        noted.lock().unwrap_or_else(PoisonError::into_inner).push((request.model.clone(), text));
        // The first call of all meets a provider that is busy.
        if std::mem::take(&mut is_busy) {
            return Reply::too_many_requests("1");
        }
        Reply::text("as the model of add says")
    }
}

fn runs_of(task: &PilotUnitDetails) -> Vec<String> {
    let of_phase = task.runs.iter().filter(|run| run.phase == "execute");
    of_phase.map(|run| format!("{}:{}", run.outcome.as_deref().unwrap_or("-"), run.error)).collect()
}

impl Scene {
    /// The entries about answers of models of a role.
    async fn answers(&self, role: &str) -> Vec<Value> {
        let event = Some("model_called".to_owned());
        let query = LedgerQuery { limit: 10_000, event, ..LedgerQuery::default() };
        let entries = self.engine.store.ledger_search(&query).await.expect("reads");
        let payloads = entries.into_iter().filter_map(|row| row.payload);
        payloads.filter(|payload| payload["role"].as_str().unwrap_or_default() == role).collect()
    }

    /// What the ledger says about the turns of the coding agent.
    async fn words_of_agent(&self) -> Vec<Value> {
        self.answers("coding_agent").await
    }
}

/// The work of a coding agent goes through gates, review and merge as any other. It is locked in: it reaches its models and
/// nothing else, and its questions are answered by rule. Its calls are counted, and its words are in the ledger. A call that it leaves
/// ends, and the next one is made.
#[test]
fn needs_userns_needs_git_needs_node_needs_python_a_coding_agent_does_the_work() {
    let dir = repository(GATES);
    let scene = scene(dir.path(), "execute:add=leaves");
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        let status = scene.run().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        assert!(status.units.iter().all(|unit| unit.status == "succeeded"), "{status:#?}");
        let task = scene.unit("task/m1/s1/t1").await;
        let runs: Vec<_> = task.runs.iter().filter(|run| run.phase == "execute").collect();
        assert_eq!(runs.len(), 1, "{:#?}", task.runs);
        // The calls that it has made itself.
        assert!(runs.iter().all(|run| run.tokens > Tokens::ZERO), "{runs:#?}");
        assert!(task.gates.iter().any(|gate| gate.passed && gate.gate == "unit"), "{:#?}", task.gates);
        let words = scene.words_of_agent().await;
        let is_sealed =
            |payload: &Value| payload["actual"] == "scripted 1" && !payload["sealed_reply"].is_null();
        assert!(words.iter().any(is_sealed), "{words:#?}");
        // The call that it left costs as much as it may have cost, and the answers that it got are sealed.
        let calls = scene.answers("").await;
        let is_left = |call: &&Value| call["error"].as_str().is_some_and(|error| error.contains("cancelled"));
        let left: Vec<&Value> = calls.iter().filter(is_left).collect();
        assert_eq!(left.len(), 1, "{calls:#?}");
        let tokens = |name: &str| left[0]["usage"][name].as_u64().unwrap_or_default();
        assert!(tokens("input") > 0 && tokens("output") > 1_000, "{left:#?}");
        assert!(runs.iter().any(|run| run.tokens.get() >= tokens("input") + tokens("output")), "{runs:#?}");
        assert!(calls.iter().any(|call| !call["sealed_reply"].is_null()), "{calls:#?}");
    });
    assert_eq!(
        git(dir.path(), &["show", "main:add.mjs"]),
        "// as the model of add says\nexport const add = (a, b) => a + b;\n"
    );
    let said = git(dir.path(), &["log", "--format=%B", "main"]);
    assert!(
        said.contains("inside yes, outside no; rules yes; etc no; network no; loopback no; owner no; keys ."),
        "{said}"
    );
    scene.end();
}

/// An agent that dies or hangs costs one attempt, and one that says that it is done and is not costs a round of the gates: the next
/// attempt does the work.
#[test]
fn needs_userns_needs_git_needs_node_needs_python_a_faulty_coding_agent_costs_attempts_alone() {
    let quick = "[pilot]\nmax_retry_backoff = \"1s\"\n[pilot.unit_timeout_by_phase]\nexecute = \"10s\"\n";
    let dir = repository(&format!("{quick}{GATES}"));
    let scene = scene(dir.path(), "execute:add=dies,execute:sub=lies,execute:mul=hangs");
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        let status = scene.run().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let expected = [
            ("task/m1/s1/t1", &["execute agent_session_startup"][..]),
            ("task/m1/s1/t2", &["verify gate_failed"]),
            ("task/m1/s2/t1", &["execute unit_timeout"]),
        ];
        for (unit, errors) in expected {
            let task = scene.unit(unit).await;
            let failed = task.runs.iter().filter(|run| run.outcome.as_deref() != Some("success"));
            let failed: Vec<String> = failed.map(|run| format!("{} {}", run.phase, run.error)).collect();
            assert_eq!(failed, errors, "{:#?}", task.runs);
        }
        // The gate has found out the one that lies.
        let lied = scene.unit("task/m1/s1/t2").await;
        assert!(lied.gates.iter().any(|gate| !gate.passed && gate.gate == "unit"), "{:#?}", lied.gates);
        assert_eq!(lied.runs.iter().filter(|run| run.phase == "execute").count(), 2, "{:#?}", lied.runs);
        let words = scene.words_of_agent().await;
        let died = "(its exit code was 7; its errors ended with: out of luck)";
        assert!(words.iter().any(|payload| payload["error"].to_string().contains(died)), "{words:#?}");
    });
    for name in ["add", "sub", "mul"] {
        git(dir.path(), &["cat-file", "-e", &format!("main:{name}.mjs")]);
    }
    scene.end();
}

/// The models of an agent are those of the tier of its attempt, and a busy one is waited for. It may send pictures and ask at the paths
/// and in the formats that its client library knows, and its last words may come after the end of its turn.
#[test]
fn needs_userns_needs_git_needs_python_a_coding_agent_has_the_model_of_its_tier() {
    let rest = format!("[tiers.standard]\nmodels = [\"test/none\", \"test/plain\"]\n{GATE}");
    let (dir, asked) = (project("", &rest, SHORT), Arc::default());
    let roles = [(ModelRole::Executor, "usual"), (ModelRole::Scorer, "plain")];
    let engine = TestEngine::with_roles(&roles, |_| model_of_one_task(&asked));
    let scene = scene_of(dir.path(), engine, "execute:add=shows");
    scene.engine.runtime.block_on(async {
        let status = crate::autopilot_limits::first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let task = scene.unit(TASK).await;
        assert_eq!(runs_of(&task), ["success:"], "{task:#?}");
        let asked = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // The refused one, the same again, the other format, and the agent's own.
        assert_eq!(asked.len(), 4, "{asked:#?}");
        assert!(asked.iter().all(|(model, _)| model == "plain"), "{asked:#?}");
        let shown = asked.iter().filter(|(_, text)| text.contains("this model is not shown it")).count();
        assert_eq!(shown, 3, "{asked:#?}");
    });
    assert!(git(dir.path(), &["log", "--format=%B", "main"]).contains("inside yes"));
    scene.end();
}

/// An agent whose own commands take long waits for no model. One that says nothing at the end is asked to go on, with its work in place.
/// One that writes without end costs one try.
#[test]
fn needs_userns_needs_git_needs_python_a_coding_agent_may_work_long_and_end_in_its_own_way() {
    for (fault, runs, errors) in
        [("waits", 1..=1, ""), ("mute", 2..=3, ""), ("floods", 2..=2, "agent_session_startup")]
    {
        // Less than the agent's own command takes.
        let times = "stall_timeout = \"6s\"\nturn_timeout = \"6s\"";
        let (dir, asked) = (project(times, GATE, SHORT), Arc::default());
        let engine = TestEngine::new("", |_| model_of_one_task(&asked));
        let scene = scene_of(dir.path(), engine, &format!("execute:add={fault}"));
        scene.engine.runtime.block_on(async {
            let status = crate::autopilot_limits::first_run(&scene).await;
            assert_eq!(status.state, "complete", "{fault}: {status:#?}");
            let task = scene.unit(TASK).await;
            assert!(runs.contains(&runs_of(&task).len()), "{fault}: {task:#?}");
            let failed: Vec<&str> =
                task.runs.iter().map(|run| run.error.as_str()).filter(|error| !error.is_empty()).collect();
            assert_eq!(failed.concat(), errors, "{fault}: {task:#?}");
            let words = scene.words_of_agent().await;
            let flooded = "more than 10000 lines that are no messages of the protocol";
            let is_flooded = words.iter().any(|payload| payload["error"].to_string().contains(flooded));
            assert_eq!(is_flooded, fault == "floods", "{words:#?}");
        });
        scene.end();
    }
}

/// A call for which a ceiling has no room ends the agent's turn, whatever the agent says: it is a pause, and no try is lost.
#[test]
fn needs_userns_needs_git_needs_python_a_ceiling_stops_a_coding_agent_and_pauses() {
    let (dir, asked) =
        (project("", &format!("[pilot.ceilings]\nunit_micro_usd = 300_000\n{GATE}"), SHORT), Arc::default());
    let engine = TestEngine::priced(|_| {}, |_| model_of_one_task(&asked));
    let scene = scene_of(dir.path(), engine, "execute:add=expensive");
    scene.engine.runtime.block_on(async {
        let status = crate::autopilot_limits::first_run(&scene).await;
        assert_eq!(status.state, "paused", "{status:#?}");
        let task = scene.unit(TASK).await;
        assert_eq!(runs_of(&task), ["failure:budget_exhausted"], "{task:#?}");
        let asked = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert!(asked.is_empty(), "{asked:#?}");
        let words = scene.words_of_agent().await;
        assert!(
            words.iter().all(|word| word["error"].to_string().contains("may ask its model no more")),
            "{words:#?}"
        );
    });
    scene.end();
}

/// An agent that is not there fails every attempt alike: its owner is asked after the first.
#[test]
fn needs_userns_needs_git_needs_python_a_coding_agent_that_is_not_there_pauses() {
    let (dir, asked) = (project("", GATE, SHORT), Arc::default());
    let engine = TestEngine::new("", |_| model_of_one_task(&asked));
    let missing = CodingAgent { command: vec!["/no/such/agent".to_owned()], ..agent(&engine, "") };
    engine.engine.open_coding_agent(missing);
    let scene = Scene::of_engine(engine, std::fs::canonicalize(dir.path()).expect("is there"));
    scene.engine.runtime.block_on(async {
        let status = crate::autopilot_limits::first_run(&scene).await;
        assert_eq!(status.state, "paused", "{status:#?}");
        let paused = status.blockers.iter().find(|blocker| blocker.event == "Paused").expect("is paused");
        assert!(paused.detail.contains("there is no such program in the sandbox"), "{paused:#?}");
        assert_eq!(runs_of(&scene.unit(TASK).await).len(), 1);
    });
    scene.end();
}
