//! The owner's coding agent takes the attempts that write code: a program that speaks the Agent Client Protocol, in the sandbox.

use serde_json::Value;
use writ_acp::client::TurnTimes;
use writ_fleet::models::within::ListenerModels;
use writ_runtime::coding_agent::CodingAgent;
use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::LedgerReads as _;
use writ_testkit::model_server::{ReplyFault, ReplyGate};
use writ_types::unit::Tokens;

use super::*;

/// The agent, with its faults. It looks into the home of its owner, too, which is there outside.
fn agent(home: &Path, faults: &str) -> CodingAgent {
    let command = ["python3", "-c", include_str!("coding_agent.py"), faults];
    CodingAgent {
        command: command.map(str::to_owned).into(),
        variables: BTreeMap::from([("OWNER_HOME".to_owned(), home.display().to_string())]),
        login: None,
        times: TurnTimes { start: Duration::from_secs(30), cancel: Duration::from_millis(500) },
        models: Arc::new(ListenerModels),
    }
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
    let engine = TestEngine::new("", |_| answer);
    engine.engine.open_coding_agent(agent(engine.folder(), faults));
    Scene::of_engine(engine, std::fs::canonicalize(dir).expect("is there"))
}

impl Scene {
    /// What the ledger says about the turns of the coding agent.
    async fn words_of_agent(&self) -> Vec<Value> {
        let query = LedgerQuery { limit: 10_000, ..LedgerQuery::default() };
        let entries = self.engine.store.ledger_search(&query).await.expect("reads");
        let payloads = entries.into_iter().filter_map(|row| row.payload);
        payloads.filter(|payload| payload["role"] == "coding_agent").collect()
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
    });
    assert_eq!(
        git(dir.path(), &["show", "main:add.mjs"]),
        "// as the model of add says\nexport const add = (a, b) => a + b;\n"
    );
    let said = git(dir.path(), &["log", "--format=%B", "main"]);
    assert!(
        said.contains("inside yes, outside no; etc no; network no; loopback no; owner no; keys ."),
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
        for (unit, code) in [("task/m1/s1/t1", "agent"), ("task/m1/s2/t1", "unit_timeout")] {
            let task = scene.unit(unit).await;
            let failed: Vec<_> =
                task.runs.iter().filter(|run| run.outcome.as_deref() != Some("success")).collect();
            assert!(failed.len() == 1 && failed.iter().all(|run| run.error == code), "{failed:#?}");
        }
        let words = scene.words_of_agent().await;
        let died = "(its exit code was 7; its errors ended with: out of luck)";
        assert!(words.iter().any(|payload| payload["error"].to_string().contains(died)), "{words:#?}");
    });
    for name in ["add", "sub", "mul"] {
        git(dir.path(), &["cat-file", "-e", &format!("main:{name}.mjs")]);
    }
    scene.end();
}
