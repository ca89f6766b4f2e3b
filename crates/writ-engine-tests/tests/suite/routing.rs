//! The proxy: a cheaper model that reads each message first, where the owner has named one.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use writ_models::ModelRole;
use writ_models::config::ModelTier;
use writ_runtime::metrics::MetricsFormat;
use writ_store::reads::TurnReads as _;
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::action::Action;
use writ_types::api::work::WorkState;
use writ_types::entry::Fact;
use writ_types::error::Exit;
use writ_types::frame::ServerFrame;
use writ_types::interaction::{InteractionMode, InteractionRegister};
use writ_types::taint::Taint;

use crate::harness::{OWNER, TestEngine};
use crate::work::{approve, begin, until_at_rest};

const PROXY: &[(ModelRole, &str)] = &[(ModelRole::Proxy, "small"), (ModelRole::Planner, "deep")];

const PLAN: &str = "---\nid: move\ntype: task\ntitle: Move the shop\nsteps:\n  - id: one\n    title: Look\n    do: Look at the shop.\nverify:\n  - name: there\n    expect: { file_exists: shop }\n---\n\n# What to do\n\nMove it.\n";

const OTHER: &str = "---\nid: stall\ntype: task\ntitle: Move the stall\nverify:\n  - name: there\n    expect: { file_exists: stall }\n---\n\n# What to do\n\nMove the stall.\n";

fn decision(route: &str, response: Value) -> Reply {
    let decision =
        json!({ "route": route, "reason": "because", "response": response, "context_profile": null });
    Reply::text(&decision.to_string())
}

/// Decides by the first word of the message.
fn proxy(request: &ParsedRequest) -> Reply {
    match request.last_user_text().split(' ').next() {
        Some("hello") => decision("direct", json!("Hello yourself.")),
        Some("send") => decision("clarify", json!("To whom?")),
        Some("move") => decision("planner", Value::Null),
        Some(_) | None => decision("act", Value::Null),
    }
}

/// The models that were asked, in their order.
fn asked(engine: &TestEngine) -> Vec<String> {
    let requests = engine.server.recorded_requests().into_iter();
    requests.map(|request| request.body["model"].as_str().expect("a model").to_owned()).collect()
}

/// Each message is routed by the proxy's model; it answers what needs no work, and the executor and the planner get what it
/// sends on. Its calls are paid for and counted by its role.
///
/// Rows: SIL-029 SIL-030 SIL-046
/// Rows: SIL-031 (in part: the plan waits for its approval) SIL-049 (in part: the counters report the share)
#[test]
fn each_message_takes_the_way_that_the_proxy_chooses() {
    let engine = TestEngine::with_roles(PROXY, |_| {
        |request: &ParsedRequest| match request.model.as_str() {
            "small" => proxy(request),
            "deep" => Reply::text(PLAN),
            _ => Reply::text("Two files."),
        }
    });
    engine.runtime.block_on(async {
        let mut joined = engine.engine.join(OWNER, Default::default()).await.expect("joined");
        let said = engine.send_in(&mut joined, "a", "hello there").await;
        assert_eq!(said, (Exit::Done, "Hello yourself.".to_owned()));
        assert_eq!(asked(&engine), ["small"], "one call of one model");
        let said = engine.send_in(&mut joined, "b", "list the files").await;
        assert_eq!(said, (Exit::Done, "Two files.".to_owned()));
        assert_eq!(asked(&engine)[1..], ["small", "scripted"]);
        let said = engine.send_in(&mut joined, "c", "send it").await;
        assert_eq!(said, (Exit::Done, "To whom?".to_owned()));
        assert_eq!(asked(&engine)[3..], ["small"]);
        let text = "move the shop".to_owned();
        engine
            .engine
            .receive(OWNER, joined.session, "d".to_owned(), text, Taint::Owner)
            .await
            .expect("stored");
        let mut ended = Vec::new();
        while ended.len() < 2 {
            let frame = joined.live.recv().await.expect("a frame").frame.clone();
            if let ServerFrame::Message { text, exit, last: true, .. } = frame {
                ended.push((exit, text));
            }
        }
        assert_eq!(ended[0].0, Exit::Done);
        assert!(ended[0].1.starts_with("This is being planned."), "{ended:?}");
        assert!(ended[1].1.starts_with("The plan 'Move the shop' waits for your approval"), "{ended:?}");
        assert_eq!(asked(&engine)[4..], ["small", "deep"], "no other model is asked");
        let planner = engine.server.recorded_requests().pop().expect("asked").body.to_string();
        assert!(planner.contains("move the shop"), "it is handed the person's words: {planner}");
        let asked = engine.facts("asked");
        assert!(matches!(asked.as_slice(), [Fact::Asked { action: Action::Plan(_), .. }]), "{asked:?}");
        let report = engine.call("budget.report", json!({ "by": "role" })).await.expect("a report");
        let calls: BTreeMap<&str, u64> = report["rows"]
            .as_array()
            .expect("rows")
            .iter()
            .map(|row| {
                (row["name"].as_str().expect("a role"), row["model_calls"].as_u64().expect("a number"))
            })
            .collect();
        assert_eq!(calls, BTreeMap::from([("executor", 1), ("planner", 1), ("proxy", 4)]), "{report}");
        let metrics = engine.engine.metrics(MetricsFormat::Prometheus).await;
        for line in [
            "writ_routes_total{route=\"direct\"} 1",
            "writ_routes_total{route=\"act\"} 1",
            "writ_routes_total{route=\"clarify\"} 1",
            "writ_routes_total{route=\"planner\"} 1",
            "writ_agent_calls_total{role=\"proxy\"} 4",
        ] {
            assert!(metrics.contains(line), "{line}: {metrics}");
        }
    });
    // The question is a small one: no tools, and the proxy's alone to answer.
    let question = engine.server.recorded_requests().swap_remove(0).body;
    assert!(question["tools"].as_array().is_none_or(Vec::is_empty), "{question}");
    assert!(question.to_string().len() < 8_000, "{} bytes", question.to_string().len());
    engine.end();
}

/// A request for work goes from the proxy to the planner, whose plan is one item; the executor runs it once it is approved, and not
/// before. What is no plan runs nothing either.
///
/// Rows: SIL-031 SIL-065 SIL-291
/// Rows: SIL-045 (in part: three models in one planned task)
#[test]
fn needs_userns_work_is_routed_planned_approved_and_run_by_a_model_each() {
    let engine = TestEngine::with_roles(PROXY, |_| {
        |request: &ParsedRequest| match request.model.as_str() {
            "small" => decision("planner", Value::Null),
            "deep" if request.raw.to_string().contains("sing a song") => Reply::text("La la la."),
            "deep" => Reply::text(if request.raw.to_string().contains("function Y") { OTHER } else { PLAN }),
            _ => match request.results().next() {
                None => Reply::call("file_write", json!({ "path": "shop", "content": "moved" })),
                Some(_) => Reply::text("It is written."),
            },
        }
    });
    engine.runtime.block_on(async {
        let mut joined = engine.engine.join(OWNER, Default::default()).await.expect("joined");
        for (id, text, title) in [
            ("a", "refactor function X", "Move the shop"),
            ("b", "refactor function Y", "Move the stall"),
            ("c", "sing a song", ""),
        ] {
            engine
                .engine
                .receive(OWNER, joined.session, id.to_owned(), text.to_owned(), Taint::Owner)
                .await
                .expect("stored");
            let mut said = String::new();
            while !said.contains("waits for your approval") {
                let frame = joined.live.recv().await.expect("a frame").frame.clone();
                if let ServerFrame::Message { text, last: true, .. } = frame {
                    said = text;
                }
            }
            assert!(said.contains(title), "{said}");
        }
        // The prose was asked for once more; then the fallback is a card like the others.
        let models = asked(&engine);
        assert_eq!(models, ["small", "deep", "small", "deep", "small", "deep", "deep"]);
        let listed = engine.call("work.list", json!({})).await.expect("a list");
        let items = listed["items"].as_array().expect("items");
        assert_eq!(items.len(), 3);
        assert!(items.iter().all(|item| item["state"] == "proposed"), "nothing is run: {items:?}");
        let first = items.iter().find(|item| item["title"] == "Move the shop").expect("the first");
        let (item, ask) =
            (first["item"].as_str().expect("an id"), first["ask"].as_str().expect("a question"));
        let ask = ask.parse().expect("an id");
        engine.engine.answer(OWNER, ask, approve()).await.expect("counts");
        let shown = until_at_rest(&engine, item).await;
        assert_eq!(shown.summary.state, WorkState::Done, "{}", shown.report);
        assert_eq!(asked(&engine)[models.len()..], ["scripted", "scripted"], "the executor alone");
        let listed = engine.call("work.list", json!({})).await.expect("a list");
        let waiting = listed["items"].as_array().expect("items").iter();
        assert_eq!(waiting.filter(|item| item["state"] == "proposed").count(), 2, "the others still wait");
    });
    engine.end();
}

/// Steps are the work of the executor's own model: one call for an attempt that uses no tool, and none for a direct answer.
///
/// Rows: SIL-057
#[test]
fn needs_userns_each_attempt_at_a_step_is_a_call_of_the_executors_model() {
    const STEPS: &str = "---\nid: steps\ntype: task\ntitle: Two steps\non_stuck: stop\nbudget: {max_attempts: 2}\nsteps:\n  - id: one\n    title: First\n    do: Say so.\n  - id: two\n    title: Second\n    do: Say it.\n    verify:\n      - name: never\n        expect: { file_exists: never }\n---\n\n# What to do\n\nSay it.\n";
    let roles = [(ModelRole::Proxy, "small"), (ModelRole::Planner, "deep"), (ModelRole::Executor, "cheap")];
    let engine = TestEngine::with_roles(&roles, |_| {
        |request: &ParsedRequest| match request.model.as_str() {
            "small" => proxy(request),
            "cheap" => Reply::text("It is said."),
            other => panic!("{other} has nothing to do here"),
        }
    });
    engine.runtime.block_on(async {
        let (exit, text) = engine.say(None, "hello there").await;
        assert_eq!((exit, text.as_str()), (Exit::Done, "Hello yourself."));
        assert_eq!(asked(&engine), ["small"], "a direct turn asks no executor");
        let item = begin(&engine, STEPS, None).await;
        let shown = until_at_rest(&engine, &item).await;
        assert_ne!(shown.summary.state, WorkState::Done);
        let attempts: Vec<usize> = shown.steps.iter().map(|step| step.attempts.len()).collect();
        assert_eq!(attempts, [1, 2], "{}", shown.report);
        assert_eq!(asked(&engine)[1..], ["cheap", "cheap", "cheap"], "one for each attempt");
    });
    engine.end();
}

/// The proxy's labels are on the record of the turn and in the request of its executor; a word that is no label is asked about once
/// more, and then the owner's setting counts.
///
/// Rows: SIL-348 (in part: from the proxy to the record, and another value is refused)
/// Rows: SIL-349 (in part: the proxy's mode stands above the owner's setting, and below the risk of foreign words)
#[test]
fn the_proxy_labels_a_turn_and_its_executor_reads_the_mode() {
    let labelled = |register: Value, mode: Value| {
        let decision = json!({
            "route": "act", "reason": "because", "response": null, "context_profile": null,
            "interaction_register": register, "interaction_mode": mode,
        });
        Reply::text(&decision.to_string())
    };
    let engine = TestEngine::with_roles(PROXY, |_| {
        move |request: &ParsedRequest| match (request.model.as_str(), request.last_user_text()) {
            ("small", "how far is it?") => labelled(json!("status"), json!("act_and_report")),
            ("small", "look at it") => labelled(json!("review"), Value::Null),
            ("small", _) => labelled(json!("gossip"), json!("act_and_report")),
            _ => Reply::text("Two files."),
        }
    });
    let (status, review) = (InteractionRegister::Status, InteractionRegister::Review);
    let (report, offer) = (InteractionMode::ActAndReport, InteractionMode::DefaultAndOffer);
    let confirm = InteractionMode::ConfirmOnlyWhenRequired;
    for (text, taint, register, mode, calls) in [
        ("how far is it?", Taint::Owner, status, report, 2),
        ("look at it", Taint::Owner, review, offer, 2),
        ("what now", Taint::Owner, InteractionRegister::Exploration, offer, 3),
        ("how far is it?", Taint::External, status, confirm, 2),
    ] {
        let before = asked(&engine).len();
        engine.runtime.block_on(async {
            let mut joined = engine.engine.join(OWNER, Default::default()).await.expect("joined");
            engine
                .engine
                .receive(OWNER, joined.session, "a".to_owned(), text.to_owned(), taint)
                .await
                .expect("stored");
            loop {
                let frame = joined.live.recv().await.expect("a frame").frame.clone();
                if let ServerFrame::Message { last: true, .. } = frame {
                    break;
                }
            }
            let turn = engine.store.newest_turn(Some(joined.session)).await.expect("reads").expect("a turn");
            assert_eq!((turn.register, turn.mode), (register, mode), "{text}");
        });
        assert_eq!(asked(&engine).len() - before, calls, "{text}: {:?}", asked(&engine));
        let request = engine.server.recorded_requests().pop().expect("asked").body.to_string();
        assert!(request.contains(mode.instruction()), "{text}: {request}");
        let others = InteractionMode::ALL.into_iter().filter(|other| *other != mode);
        assert_eq!(others.filter(|other| request.contains(other.instruction())).count(), 0, "{request}");
    }
    engine.end();
}

/// A decision that cannot be read is asked for once more with the error; after that the executor answers, and nothing that the
/// proxy said is done or shown.
///
/// Rows: SIL-029
/// Rows: SIL-048 (in part: a forged call of a tool) SIL-064 (in part: of the proxy)
#[test]
fn a_proxy_that_decides_nothing_is_asked_twice_and_then_the_executor_answers() {
    for wrong in [0, 1, 2, 3] {
        let engine = TestEngine::with_roles(PROXY, move |_| {
            let mut tries = 0;
            move |request: &ParsedRequest| {
                if request.model != "small" {
                    return Reply::text("Two files.");
                }
                tries += 1;
                match (wrong, tries) {
                    (0, 1) => Reply::text("I would say: direct."),
                    (0, _) => decision("direct", json!("Hello.")),
                    (1, _) => Reply::call("shell_exec", json!({ "argv": ["touch", "forged"] })),
                    (2, _) => decision("executor", Value::Null),
                    (_, _) => decision("direct", json!("  ")),
                }
            }
        });
        let (exit, text) = engine.runtime.block_on(engine.say(None, "list the files"));
        assert_eq!(exit, Exit::Done);
        if wrong == 0 {
            assert_eq!((text.as_str(), asked(&engine)), ("Hello.", vec!["small".to_owned(); 2]));
            let second = engine.server.recorded_requests().pop().expect("asked").body.to_string();
            assert!(second.contains("I would say: direct.") && second.contains("Answer with the JSON alone"));
        } else {
            assert_eq!(text, "Two files.", "{wrong}");
            assert_eq!(asked(&engine), ["small", "small", "scripted"], "{wrong}");
        }
        let actions = engine.facts("intent").into_iter();
        let other = actions.filter(|fact| !matches!(fact, Fact::Intent { action: Action::ModelCall(_), .. }));
        assert_eq!(other.count(), 0, "nothing but models was asked: {wrong}");
        engine.end();
    }
}

/// A proxy that cannot be reached keeps no one waiting: the executor answers. A message that is too long for it, or that comes
/// with a file, is not shown to it; and a tier alone names no proxy, so the conversation costs one call.
#[test]
fn without_a_proxy_that_answers_a_turn_is_as_it_would_be_without_one() {
    let away = |request: &ParsedRequest| match request.model.as_str() {
        "small" => Reply::status(401),
        _ => Reply::text("Two files."),
    };
    let engine = TestEngine::with_roles(PROXY, |_| away);
    let said = engine.runtime.block_on(engine.say(None, "hello"));
    assert_eq!(said, (Exit::Done, "Two files.".to_owned()));
    assert_eq!(asked(&engine), ["small", "scripted"], "no other model decides in its place");
    let long = "word ".repeat(2_000);
    let said = engine.runtime.block_on(engine.say(None, &long));
    assert_eq!((said.0, asked(&engine).len()), (Exit::Done, 3), "too long to be routed");
    engine.end();
    let tiered = TestEngine::with_tiers(&[(ModelTier::Fast, "small")], |_| away);
    let said = tiered.runtime.block_on(tiered.say(None, "hello"));
    assert_eq!(said, (Exit::Done, "Two files.".to_owned()));
    assert_eq!(asked(&tiered), ["scripted"]);
    tiered.end();
}
