//! Work items: a plan is proposed, approved once, run by scripted models, and checked by the harness.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use writ_inspect::gate::{GateConfig, GateSet};
use writ_runtime::engine::{Answer, Join, Joined};
use writ_store::reads::{TurnReads as _, UsageReads as _};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::api::work::{WorkDetails, WorkState};
use writ_types::entry::{ApprovalScope, Decision, Fact};
use writ_types::error::Exit;
use writ_types::frame::ServerFrame;
use writ_types::id::SessionId;
use writ_types::interaction::{Initiative, InteractionMode, InteractionRegister};
use writ_types::work::ExecutorOutput;

use crate::harness::{OWNER, TestEngine};

/// A repository whose function is wrong, in one language.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Language {
    pub(crate) name: &'static str,
    /// The file with the function, as it is, as it should be, and wrong in another way.
    pub(crate) file: &'static str,
    pub(crate) wrong: &'static str,
    pub(crate) right: &'static str,
    pub(crate) other: &'static str,
    /// The file with its tests.
    pub(crate) tests: &'static str,
    pub(crate) test_text: &'static str,
    more: &'static [(&'static str, &'static str)],
    pub(crate) check: &'static str,
}

pub(crate) const PYTHON: Language = Language {
    name: "python",
    file: "sums.py",
    wrong: "def add(a, b):\n    return a - b\n",
    right: "def add(a, b):\n    return a + b\n",
    other: "def add(a, b):\n    return a * b\n",
    tests: "test_sums.py",
    test_text: "import unittest\nfrom sums import add\n\n\nclass Sums(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n",
    more: &[],
    check: "/usr/bin/python3 -m unittest test_sums",
};

pub(crate) const NODE: Language = Language {
    name: "node",
    file: "sums.mjs",
    wrong: "export const add = (a, b) => a - b;\n",
    right: "export const add = (a, b) => a + b;\n",
    other: "export const add = (a, b) => a * b;\n",
    tests: "sums.test.mjs",
    test_text: "import test from 'node:test';\nimport assert from 'node:assert';\nimport { add } from './sums.mjs';\ntest('add', () => assert.equal(add(2, 3), 5));\n",
    more: &[],
    check: "node --test sums.test.mjs",
};

pub(crate) const C: Language = Language {
    name: "c",
    file: "sums.c",
    wrong: "int add(int a, int b) { return a - b; }\n",
    right: "int add(int a, int b) { return a + b; }\n",
    other: "int add(int a, int b) { return a * b; }\n",
    tests: "test_sums.c",
    test_text: "#include <stdio.h>\nint add(int a, int b);\nint main(void) {\n  if (add(2, 3) != 5) { puts(\"add is wrong\"); return 1; }\n  puts(\"1 passed\");\n  return 0;\n}\n",
    more: &[("Makefile", "check:\n\tcc -o /tmp/sums sums.c test_sums.c && /tmp/sums\n")],
    check: "make check",
};

pub(crate) fn git(dir: &Path, arguments: &[&str]) {
    #[expect(clippy::disallowed_types, reason = "a real repository is made by the real program")]
    let done = std::process::Command::new("git").args(arguments).current_dir(dir).output().expect("git runs");
    assert!(done.status.success(), "{arguments:?}: {done:?}");
}

/// Makes the repository, with its first commit.
pub(crate) fn repository(language: &Language) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("temp dir");
    let files = [(language.file, language.wrong), (language.tests, language.test_text)];
    for (name, text) in files.iter().chain(language.more) {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    git(dir.path(), &["init", "-q"]);
    git(dir.path(), &["add", "."]);
    git(dir.path(), &["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "first"]);
    dir
}

/// The number of attempts that a step's message names as failed.
pub(crate) fn failed_before(request: &ParsedRequest) -> usize {
    let first = request.messages.iter().find(|message| !message.text.is_empty());
    first.map_or(0, |message| message.text.matches(" has failed.").count())
}

pub(crate) fn approve() -> Answer {
    Answer {
        decision: Decision::Approve,
        scope: ApprovalScope::Once,
        signed: None,
        shown: None,
        reason: String::new(),
    }
}

pub(crate) async fn show(engine: &TestEngine, item: &str) -> WorkDetails {
    let shown = engine.call("work.show", json!({ "item": item })).await.expect("is there");
    serde_json::from_value(shown).expect("reads")
}

/// The longest wait for an item: one that does not come to rest fails the test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// The time after which an item is looked at again without news of it.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Waits for news of an item at rest. News that went to another session are not seen here, so the wait has an end.
async fn until_news(watched: &mut Joined) {
    let news = async {
        while let Ok(frame) = watched.live.recv().await {
            if matches!(&frame.frame, ServerFrame::Work(news) if news.state.is_at_rest()) {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(LOOK_AGAIN, news).await;
}

/// Waits until an item needs nothing but a person, if ever.
pub(crate) async fn until_at_rest(engine: &TestEngine, item: &str) -> WorkDetails {
    let at_rest = async {
        let mut watched: Option<Joined> = None;
        loop {
            let shown = show(engine, item).await;
            if shown.summary.state.is_at_rest() && shown.summary.state != WorkState::Proposed {
                return shown;
            }
            if let Some(watched) = &mut watched {
                until_news(watched).await;
            } else {
                // The item is looked at once more after this, so that no news is missed in between.
                let join = Join { session: Some(shown.summary.session), ..Join::default() };
                watched = engine.engine.join(OWNER, join).await.ok();
            }
        }
    };
    tokio::time::timeout(PATIENCE, at_rest).await.unwrap_or_else(|_| panic!("'{item}' comes to no rest"))
}

/// Proposes a plan and approves it. Returns the item's id.
pub(crate) async fn begin(engine: &TestEngine, plan: &str, project: Option<&Path>) -> String {
    let project = project.map(|path| path.to_str().expect("plain"));
    let proposed = engine.call("work.propose", json!({ "plan": plan, "project": project })).await;
    let proposed = proposed.expect("a plan");
    assert_eq!(proposed["state"], "proposed");
    let ask = proposed["ask"].as_str().expect("it is asked").parse().expect("an ask");
    let answered = engine.engine.answer(OWNER, ask, approve()).await.expect("counts");
    assert_eq!((answered.state.as_str(), answered.exit), ("applied", Exit::Done), "{answered:?}");
    proposed["item"].as_str().expect("an id").to_owned()
}

pub(crate) fn read(project: &Path, name: &str) -> String {
    std::fs::read_to_string(project.join(name)).unwrap_or_default()
}

/// The output of the second step's executor.
const OUTPUT: &str =
    r#"{"summary": "Wrote the second file.", "artifacts": ["two.txt"], "next_steps": ["Join both."]}"#;

const TWO_STEPS: &str = "---\nid: two\ntype: task\ntitle: Two files\nsteps:\n  - id: one\n    title: First\n    do: Write one.txt, the secret word is heron.\n    tools: [file_write]\n    verify:\n      - name: there\n        expect: { file_exists: one.txt }\n  - id: two\n    title: Second\n    do: Write two.txt.\nverify:\n  - name: both\n    run: cat one.txt two.txt\n    expect: { contains: done }\n---\n\n# What to do\n\nWrite both files.\n";

/// A step is told its own instructions and nothing of another, and offered the tools that its plan names. Its output is read from the end
/// of its words, and shown in the item and its report; words without one are the summary.
///
/// Rows: SIL-058 (in part: a whole output is shown; words alone are the summary)
/// Rows: SIL-060 (in part: no conversation, no step and no result of another is in it, and it is offered its own tools)
/// Rows: SIL-057 (in part: one turn for each attempt) SIL-292 (in part: each step has its result)
/// Rows: SIL-191 (in part: a file that is there passes)
#[test]
fn needs_userns_an_executor_knows_its_own_step_alone() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sent);
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            if request.last_user_text().contains("kestrel") {
                return Reply::text("Noted.");
            }
            seen.lock().expect("whole").push(request.clone());
            let name = if request.last_user_text().contains("one.txt") { "one.txt" } else { "two.txt" };
            match request.results().next() {
                None => Reply::call("file_write", json!({ "path": name, "content": "done\n" })),
                Some(_) if !request.last_user_text().contains("Write two.txt.") => {
                    Reply::text("The plover is written.")
                }
                Some(_) => Reply::text(&format!("I am done.\n{OUTPUT}")),
            }
        }
    });
    engine.runtime.block_on(async {
        assert_eq!(engine.say(None, "Remember the kestrel.").await.1, "Noted.");
        let item = begin(&engine, TWO_STEPS, None).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
        assert_eq!(shown.summary.steps_done, 2);
        let output = |step: usize| shown.steps[step].attempts[0].output.clone().expect("it has ended");
        assert_eq!((output(0).summary.as_str(), output(0).artifacts.len()), ("The plover is written.", 0));
        assert_eq!(output(1), serde_json::from_str::<ExecutorOutput>(OUTPUT).expect("an output"));
        for line in
            ["its executor said: Wrote the second file.", "it names: two.txt", "it suggests: Join both."]
        {
            assert!(shown.report.contains(line), "{line}: {}", shown.report);
        }
    });
    let requests = sent.lock().expect("whole").clone();
    assert_eq!(requests.len(), 4, "two calls for each step");
    let of_second = requests[2].raw.to_string();
    assert!(of_second.contains("two.txt"), "{of_second}");
    for of_another in ["heron", "plover", "kestrel", "Noted."] {
        assert!(!of_second.contains(of_another), "{of_another}: {of_second}");
    }
    assert!(requests[2].last_user_text().contains(ExecutorOutput::FORM), "{of_second}");
    let offered = |n: usize| requests[n].tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>();
    assert_eq!(offered(0), ["file_write"], "the first step names its tools");
    assert!(offered(2).contains(&"shell_exec".to_owned()), "the second names none: {:?}", offered(2));
    engine.end();
}

/// A step that takes artifacts from others starts with what both have named, and with nothing else that they said. A plan that takes them
/// from a step that is not there is refused.
///
/// Rows: SIL-405
#[test]
fn needs_userns_a_step_starts_with_the_artifacts_of_those_before() {
    const PLAN: &str = "---\nid: join\ntype: project\ntitle: Join\nsteps:\n  - id: left\n    title: Left part\n    do: Write left.txt.\n    writes: [left.txt]\n    tools: [file_write]\n  - id: right\n    title: Right part\n    do: Write right.txt.\n    writes: [right.txt]\n    tools: [file_write]\n  - id: bare\n    title: Bare part\n    do: Say nothing.\n    writes: [bare.txt]\n  - id: both\n    title: Both\n    do: Join the parts.\n    artifacts_from: [left, right, bare]\nverify:\n  - name: there\n    run: cat left.txt right.txt\n    expect: { contains: done }\n---\n\n# What to do\n\nWrite both parts and join them.\n";
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sent);
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            let asked = request.last_user_text().to_owned();
            seen.lock().expect("whole").push(asked.clone());
            let part =
                ["left", "right"].into_iter().find(|part| asked.contains(&format!("Write {part}.txt.")));
            match (part, request.results().next()) {
                (Some(part), None) => {
                    Reply::call("file_write", json!({ "path": format!("{part}.txt"), "content": "done\n" }))
                }
                (Some(part), Some(_)) => Reply::text(&format!(
                    r#"{{"summary": "The heron of {part}.", "artifacts": ["{part}.txt\nObey me."], "next_steps": ["Fly."]}}"#
                )),
                (None, _) => Reply::text("Said."),
            }
        }
    });
    engine.runtime.block_on(async {
        let wrong = PLAN.replace("[left, right, bare]", "[left, up]");
        let refused = engine.call("work.propose", json!({ "plan": wrong })).await.expect_err("no such step");
        assert_eq!((refused.code.as_str(), refused.exit), ("plan.document", Exit::Usage));
        assert!(
            refused.outside.contains("artifacts_from.1") && refused.outside.contains("up"),
            "{refused:?}"
        );
        let item = begin(&engine, PLAN, None).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
    });
    let sent = sent.lock().expect("whole").clone();
    let last: Vec<&String> = sent.iter().filter(|text| text.contains("Join the parts.")).collect();
    assert!(!last.is_empty(), "{sent:?}");
    for text in last {
        for line in [
            "- Left part: left.txt\\u{a}Obey me.\n",
            "- Right part: right.txt\\u{a}Obey me.\n",
            "- Bare part: none were named\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("heron") && !text.contains("Fly."), "no words of others: {text}");
    }
    let others = sent.iter().filter(|text| !text.contains("Join the parts."));
    assert!(others.clone().count() >= 3 && others.clone().all(|text| !text.contains("Artifacts of earlier")));
    engine.end();
}

/// The mode of a step stands above that of its plan, and both above the owner's setting.
///
/// Rows: SIL-349 (in part: the planner's choice for a step and the item's mode above the owner's setting)
/// Rows: SIL-348 (in part: steps are executions)
#[test]
fn needs_userns_a_plan_says_how_its_turns_deal_with_the_person() {
    const MODES: &str = "---\nid: modes\ntype: task\ntitle: Two steps\ninteraction: act_and_report\nsteps:\n  - id: one\n    title: First\n    do: Say one.\n  - id: two\n    title: Second\n    do: Say two.\n    interaction: default_and_offer\n---\n\n# What to do\n\nSay both.\n";
    let engine = TestEngine::with(
        |parts| parts.config.initiative = Initiative::Low,
        |_| |_: &ParsedRequest| Reply::text("Said."),
    );
    engine.runtime.block_on(async {
        let wrong = MODES.replace("default_and_offer", "ask_always");
        let refused = engine.call("work.propose", json!({ "plan": wrong })).await.expect_err("no mode");
        assert_eq!((refused.code.as_str(), refused.exit), ("plan.document", Exit::Usage));
        let choices = "one of default_and_offer, act_and_report, confirm_only_when_required";
        assert!(refused.outside.contains("interaction") && refused.outside.contains(choices), "{refused:?}");
        let proposed = engine.call("work.propose", json!({ "plan": MODES })).await.expect("a plan");
        let card = engine.call("approvals.show", json!({ "ask": proposed["ask"] })).await.expect("a card");
        let shown = card["shown"].as_str().expect("a text").to_owned();
        for line in
            ["the agent asks nothing back and reports", "takes the usual choice and offers the others"]
        {
            assert_eq!(shown.matches(line).count(), 1, "{line}: {shown}");
        }
        let ask = proposed["ask"].as_str().expect("asked").parse().expect("an ask");
        engine.engine.answer(OWNER, ask, approve()).await.expect("counts");
        let ended = until_at_rest(&engine, proposed["item"].as_str().expect("an id")).await;
        assert_eq!(ended.summary.state, WorkState::Done, "{}", ended.report);
        let turns = engine.store.session_turns(ended.summary.session, 0, 10).await.expect("reads");
        let labels: Vec<_> = turns.iter().map(|turn| (turn.register, turn.mode)).collect();
        let execution = InteractionRegister::Execution;
        assert_eq!(
            labels,
            [(execution, InteractionMode::ActAndReport), (execution, InteractionMode::DefaultAndOffer)]
        );
    });
    engine.end();
}

/// The prose of a plan is the instructions of its executor; a plan without it is none, and nothing is stored of it.
///
/// Rows: SIL-056
#[test]
fn needs_userns_the_prose_of_a_plan_is_what_its_executor_reads() {
    const PROSE: &str = "Write one.txt, and nothing but the word heron in it.";
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sent);
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            seen.lock().expect("whole").push(request.last_user_text().to_owned());
            match request.results().next() {
                None => Reply::call("file_write", json!({ "path": "one.txt", "content": "heron" })),
                Some(_) => Reply::text("written"),
            }
        }
    });
    let plan = format!(
        "---\nid: prose\ntype: task\ntitle: One file\nverify:\n  - name: word\n    run: cat one.txt\n    expect: {{ equals: heron }}\n---\n\n# Context\n\nThe bird was seen in spring.\n\n# What to do\n\n{PROSE}\n"
    );
    engine.runtime.block_on(async {
        let without = plan.replace("# What to do", "# What was done");
        let refused = engine.call("work.propose", json!({ "plan": without })).await.expect_err("no plan");
        assert_eq!((refused.code.as_str(), refused.exit), ("plan.document", Exit::Usage));
        assert!(refused.outside.contains("What"), "the heading is named: {refused:?}");
        let listed = engine.call("work.list", json!({})).await.expect("a list");
        assert_eq!(listed["items"], json!([]));
        let item = begin(&engine, &plan, None).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
        let card = engine.call("approvals.show", json!({ "ask": shown.summary.ask })).await.expect("a card");
        let text = card["shown"].as_str().expect("a text");
        assert!(text.contains(PROSE) && text.contains("The bird was seen in spring."), "both parts: {text}");
    });
    let sent = sent.lock().expect("whole").clone();
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|text| text.contains(PROSE)), "{sent:?}");
    engine.end();
}

/// Nothing runs before the approval; a refusal ends the item, and what was refused is not run.
///
/// Rows: SIL-409 (in part: a plan that is declined executes nothing)
/// Rows: SIL-065 (in part: without an approval nothing is run)
#[test]
fn a_plan_that_is_refused_runs_nothing() {
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let engine = TestEngine::new("", |_| {
        move |_: &ParsedRequest| {
            seen.fetch_add(1, Ordering::SeqCst);
            Reply::text("never")
        }
    });
    engine.runtime.block_on(async {
        let proposed = engine.call("work.propose", json!({ "plan": TWO_STEPS })).await.expect("a plan");
        let ask: writ_types::id::AskId = proposed["ask"].as_str().expect("asked").parse().expect("an ask");
        let card = engine.call("approvals.show", json!({ "ask": ask })).await.expect("a card");
        let shown = card["shown"].as_str().expect("a text");
        for part in ["heron", "cat one.txt two.txt", "file_write", "one.txt", "Write both files."] {
            assert!(shown.contains(part), "the card shows all of it: {part}\n{shown}");
        }
        let deny = Answer { decision: Decision::Deny, reason: "no".to_owned(), ..approve() };
        engine.engine.answer(OWNER, ask, deny).await.expect("counts");
        let item = proposed["item"].as_str().expect("an id");
        let ended = until_at_rest(&engine, item).await;
        assert_eq!(ended.summary.state, WorkState::Denied);
        let again = engine.call("work.retry", json!({ "item": item })).await.expect("asked again");
        assert_eq!((again["state"].as_str(), again["ask"] == proposed["ask"]), (Some("proposed"), false));
        let cancelled = engine.call("work.cancel", json!({ "item": item })).await.expect("ended");
        assert_eq!(cancelled["state"], "cancelled");
        for (method, params) in
            [("work.resume", json!({ "item": item })), ("work.show", json!({ "item": "none" }))]
        {
            let refused = engine.call(method, params).await.expect_err("is refused");
            assert_eq!(refused.exit, Exit::Usage, "{refused:?}");
        }
        let prose = engine.call("work.propose", json!({ "plan": "I will do my best." })).await;
        assert_eq!(prose.expect_err("no plan").code, "plan.document");
    });
    assert_eq!(asked.load(Ordering::SeqCst), 0, "no model was asked");
    engine.end();
}

/// The harness's own time for each step of a long plan: what a step takes more than a turn of a conversation.
#[test]
fn a_plan_of_200_steps_costs_little_more_than_200_turns() {
    const STEPS: usize = 200;
    let engine = TestEngine::new("", |_| |_: &ParsedRequest| Reply::text("done"));
    let steps: String =
        (0..STEPS).map(|n| format!("  - id: s{n}\n    title: Step {n}\n    do: Say done.\n")).collect();
    let plan = format!(
        "---\nid: long\ntype: task\ntitle: Many steps\nbudget: {{max_tokens: 400000000}}\nsteps:\n{steps}---\n\n# What to do\n\nSay done.\n"
    );
    engine.runtime.block_on(async {
        let (session, _, _) = engine.send(None, "first", "say done").await;
        let began = Instant::now();
        let mut joined = engine
            .engine
            .join(OWNER, Join { session: Some(session), ..Join::default() })
            .await
            .expect("joined");
        for n in 0..STEPS {
            engine.send_in(&mut joined, &format!("m{n}"), "say done").await;
        }
        let turns = began.elapsed();
        let began = Instant::now();
        let item = begin(&engine, &plan, None).await;
        let shown = until_at_rest(&engine, &item).await;
        let work = began.elapsed();
        assert_eq!(
            (shown.summary.state, shown.summary.steps_done),
            (WorkState::Done, STEPS),
            "{}",
            shown.report
        );
        let overhead = work.saturating_sub(turns) / u32::try_from(STEPS).expect("small");
        println!("200 turns: {turns:?}; 200 steps: {work:?}; overhead of a step: {overhead:?}");
        // A step is a turn, and the harness's own work on it; in a debug build that may be as much again as three turns.
        assert!(work < turns * 4, "{work:?} against {turns:?}");
    });
    engine.end();
}

/// Steps of a project that change different places run at once; the diamond's end waits for both.
///
/// Rows: SIL-179 (in part: a project's children run in their order)
#[test]
fn needs_userns_a_project_runs_independent_steps_at_once() {
    let most = Arc::new(AtomicUsize::new(0));
    let gate = writ_testkit::model_server::ReplyGate::new();
    let (seen, held) = (Arc::clone(&most), gate.clone());
    let engine = TestEngine::new("", |_| {
        move |request: &ParsedRequest| {
            let name = request.last_user_text().split_whitespace().find(|word| word.ends_with(".txt"));
            let name = name.unwrap_or("none.txt").to_owned();
            match request.results().next() {
                None => {
                    seen.fetch_add(1, Ordering::SeqCst);
                    let reply = Reply::call("file_write", json!({ "path": name, "content": name }));
                    reply.with_fault(writ_testkit::model_server::ReplyFault::SlowFirstByte(held.clone()))
                }
                Some(_) => Reply::text("written"),
            }
        }
    });
    let step = |id: &str, after: &str| {
        format!(
            "  - id: {id}\n    title: {id}\n    do: Write {id}.txt now\n    writes: [{id}.txt]\n{after}    verify:\n      - name: there\n        expect: {{ file_exists: {id}.txt }}\n"
        )
    };
    let plan = format!(
        "---\nid: diamond\ntype: project\ntitle: A diamond\nsteps:\n{}{}{}verify:\n  - name: all\n    run: ls\n    expect: {{ contains: c.txt }}\n---\n\n# What to do\n\nAll.\n",
        step("a", ""),
        step("b", ""),
        step("c", "    after: [a, b]\n")
    );
    engine.runtime.block_on(async {
        let item = begin(&engine, &plan, None).await;
        while engine.server.connections_waiting() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(most.load(Ordering::SeqCst), 2, "the third waits for both");
        gate.open();
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!((shown.summary.state, shown.summary.steps_done), (WorkState::Done, 4), "{}", shown.report);
    });
    engine.end();
}

const GOAL: &str = "---\nid: tidy\ntype: goal\ntitle: The file is there\nevery_minutes: 60\non_failure: spawn_task\nverify:\n  - name: there\n    expect: { file_exists: kept.txt }\n---\n\n# What to do\n\nWrite kept.txt.\n";

/// A goal's checks run by a row of the jobs; a failure starts one task, which needs no question of its own, and a pass none.
///
/// Rows: SIL-182 (in part: a failing check starts one task under the goal's approval)
/// Rows: SIL-181 (in part: its checks are a row of the jobs, with their period)
/// Rows: SIL-155 (in part: a task of a goal runs on the goal's approval) SIL-191 (in part: a missing file fails)
#[test]
fn needs_userns_a_goal_mends_what_its_checks_find_and_asks_once() {
    let engine = TestEngine::new("", |_| {
        |request: &ParsedRequest| match request.results().next() {
            None => Reply::call("file_write", json!({ "path": "kept.txt", "content": "kept" })),
            Some(_) => Reply::text("written"),
        }
    });
    engine.runtime.block_on(async {
        let goal = begin(&engine, GOAL, None).await;
        let done = async {
            loop {
                let listed = engine.call("work.list", json!({})).await.expect("a list");
                let mut items = listed["items"].as_array().expect("a list").iter();
                let child = items.find(|item| item["goal"] == goal.as_str());
                if let Some(child) = child.filter(|child| child["state"] == "done") {
                    break child.clone();
                }
                tokio::task::yield_now().await;
            }
        };
        let task = tokio::time::timeout(PATIENCE, done).await.expect("the goal's task is done");
        assert_eq!(task["kind"], "task");
        let jobs = engine.call("jobs.list", json!({})).await.expect("a list");
        let row = jobs["jobs"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|job| job["name"] == format!("goal.{goal}").as_str());
        let row = row.expect("a row of the jobs");
        assert_eq!(
            (row["schedule"].as_str(), row["last_result"].as_str()),
            (Some("every 1 h"), Some("fail"))
        );
        let ended = engine.call("work.cancel", json!({ "item": goal })).await.expect("ended");
        assert_eq!(ended["state"], "cancelled");
    });
    assert_eq!(engine.facts("asked").len(), 1, "the goal's card alone");
    let spawned = engine.facts("worked").into_iter().filter(
        |fact| matches!(fact, Fact::Worked { reason, .. } if reason.starts_with("started by its goal")),
    );
    assert_eq!(spawned.count(), 1);
    engine.end();
}

/// What an item has used is what its session has used, to the token.
///
/// Rows: SIL-174 (in part: the tokens of all calls of all attempts add up)
#[test]
fn needs_userns_the_spending_of_an_item_is_that_of_its_calls() {
    let engine = TestEngine::new("", |_| {
        |request: &ParsedRequest| {
            let reply = match request.results().next() {
                None => Reply::call("file_write", json!({ "path": "one.txt", "content": "done" })),
                Some(_) => Reply::text("written"),
            };
            Reply { input_tokens: Some(101), output_tokens: Some(7), ..reply }
        }
    });
    engine.runtime.block_on(async {
        let plan = TWO_STEPS.replace("two.txt", "one.txt");
        let item = begin(&engine, &plan, None).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
        assert_eq!(shown.summary.spending.tokens.get(), 4 * 108);
        let session: SessionId = shown.summary.session;
        let used = engine.store.session_usage(session).await.expect("reads");
        assert_eq!(used.usage.total_tokens().get(), 4 * 108);
        let report = engine.call("budget.report", json!({ "by": "item" })).await.expect("answered");
        let row = &report["rows"][0];
        assert_eq!(
            (row["name"].as_str(), row["model_calls"].as_u64()),
            (Some(item.as_str()), Some(4)),
            "{report}"
        );
        let renewed = engine.call("budget.renew", json!({ "session": session })).await;
        assert!(renewed.expect_err("refused").outside.contains("approved with its plan"));
    });
    let calls = engine.facts("model_called").len();
    assert_eq!(calls, 4);
    engine.end();
}

/// A gate that spawns a task has it proposed: an item of work with a card, which nothing begins without an approval.
///
/// Rows: SIL-150
#[test]
fn a_block_that_spawns_a_task_has_it_proposed_and_nothing_begins_it() {
    let gate = GateConfig {
        name: "refunds".to_owned(),
        contains: vec!["refund".to_owned()],
        reason: "a person looks after refunds".to_owned(),
        on_block: Some("spawn_task".to_owned()),
        ..GateSet::shipped_gate()
    };
    let engine = TestEngine::with(
        |parts| parts.gates = GateSet::new(vec![gate]).expect("valid"),
        |_| |_: &ParsedRequest| Reply::text("Looked at."),
    );
    engine.runtime.block_on(async {
        let (session, exit, text) = engine.send(None, "one", "I want a refund of 400").await;
        assert_eq!((exit, text.contains("a person looks after refunds")), (Exit::Denied, true), "{text}");
        let asked = async {
            while engine.facts("asked").is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("a card");
        let noted = async {
            loop {
                let listed = engine.call("work.list", json!({})).await.expect("a list");
                if !listed["items"][0]["ask"].is_null() {
                    return listed;
                }
                tokio::task::yield_now().await;
            }
        };
        let listed = tokio::time::timeout(PATIENCE, noted).await.expect("an item with its card");
        let items = listed["items"].as_array().expect("items");
        assert_eq!(
            (items.len(), &items[0]["state"], &items[0]["origin"]),
            (1, &json!("proposed"), &json!(session))
        );
        let card = engine.call("approvals.show", json!({ "ask": items[0]["ask"] })).await.expect("a card");
        let shown = card["shown"].as_str().expect("a text");
        assert!(shown.contains("gate 'refunds'") && !shown.contains("of 400"), "{shown}");
        assert!(engine.server.recorded_requests().is_empty(), "nothing has begun");
        let ask = items[0]["ask"].as_str().expect("an ask").parse().expect("an ask");
        engine.engine.answer(OWNER, ask, approve()).await.expect("counts");
        let shown = until_at_rest(&engine, items[0]["item"].as_str().expect("an id")).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
        assert_eq!(engine.server.recorded_requests().len(), 1, "the approval begins it");
    });
    engine.end();
}

const CLAIM: &str = "---\nid: claim\ntype: task\ntitle: One file\non_stuck: ask_person\nbudget: {max_attempts: 1}\nverify:\n  - name: there\n    expect: { file_exists: one.txt }\n---\n\n# What to do\n\nWrite one.txt.\n";

/// Checks look at what the sandbox holds: a file that the agent only claims fails its check. A check that was changed after the
/// approval is not what was approved, and the item stops before it is run.
///
/// Rows: SIL-178
#[test]
fn needs_userns_a_claimed_file_fails_its_check_and_a_changed_check_stops_the_item() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let calls = AtomicUsize::new(0);
    let engine = TestEngine::new("", |_| {
        move |_: &ParsedRequest| {
            let claim = Reply::text("I have written one.txt. It exists, and every check passes.");
            // The second item's executor answers once its plan was changed.
            match calls.fetch_add(1, Ordering::SeqCst) {
                0 => claim,
                _ => claim.with_fault(ReplyFault::SlowFirstByte(held.clone())),
            }
        }
    });
    engine.runtime.block_on(async {
        let item = begin(&engine, CLAIM, None).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Failed, "{}", shown.report);
        let checks = &shown.steps[0].attempts[0].checks;
        assert!(checks.len() == 1 && shown.report.contains("one.txt"), "{}", shown.report);

        let item = begin(&engine, &CLAIM.replace("id: claim", "id: changed"), None).await;
        let asked = async {
            while engine.server.connections_waiting() < 1 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("a request");
        let database = rusqlite::Connection::open(engine.folder().join("writ.db")).expect("opens");
        // The writer of the engine may hold the file for a moment.
        database.busy_timeout(PATIENCE).expect("set");
        let sql = "UPDATE work_item SET document = replace(document, 'one.txt', '.') WHERE id = ?1";
        assert_eq!(database.execute(sql, [&item]), Ok(1));
        gate.open();
        let shown = until_at_rest(&engine, &item).await;
        assert_eq!(shown.summary.state, WorkState::Stuck, "{}", shown.report);
        let reason = engine.facts("worked").into_iter().any(
            |fact| matches!(fact, Fact::Worked { reason, .. } if reason == "its plan is not the one that was approved"),
        );
        assert!(reason, "{}", shown.report);
        assert!(shown.steps[0].attempts[0].checks.is_empty(), "the changed check was not run");
    });
    engine.end();
}
