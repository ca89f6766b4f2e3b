//! Chapters of units: one for each run, others that agents open, what they are good for after a crash, and what is remembered of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::api::pilot::{ChapterOutcome, PilotTrace, SpanOperation};

use crate::autopilot::Scene;
use crate::autopilot_limits::{GATE, ONE_TASK, SHORT, TASK, done, first_run, project, scene, writes};
use crate::autopilot_phases::{Notes, hear, note, noted};
use crate::harness::TestEngine;

const INTENT: &str = "put two numbers together";

fn opens(name: &str) -> Reply {
    Reply::call("chapter_open", json!({ "name": name }))
}

async fn found(scene: &Scene, query: &str) -> Vec<String> {
    let hits = scene.engine.call("memory.search", json!({ "query": query })).await.expect("searches");
    let text = |hit: &Value| hit["text"].as_str().expect("a text").to_owned();
    hits["hits"].as_array().expect("hits").iter().map(text).collect()
}

/// The trace of the task, once all of its runs have their spans.
pub(crate) async fn trace(scene: &Scene) -> PilotTrace {
    let runs = scene.unit(TASK).await.runs.len();
    loop {
        let trace: PilotTrace = scene.ask("pilot.forensics", json!({ "id": TASK })).await;
        if trace.spans.iter().filter(|span| span.operation == SpanOperation::Run).count() == runs {
            return trace;
        }
        scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
    }
}

/// Each run begins a chapter, and an agent opens another one by a tool that attempts alone are offered; a name that is none opens nothing.
/// Each span of a run is in one chapter. What an agent was up to is remembered once it is over, and found by its intent.
///
/// Rows: SF-461 SF-463 SF-465
#[test]
fn needs_userns_needs_git_spans_of_a_run_are_in_chapters_that_its_agent_opens() {
    let dir = project("", GATE, SHORT);
    let (offers, answers): (Notes<(String, bool)>, Notes<String>) = (Notes::default(), Notes::default());
    let (offered, answered) = (Arc::clone(&offers), Arc::clone(&answers));
    let script = move |request: &ParsedRequest| {
        let heard = hear(request);
        note(&offered, (heard.part.clone(), request.offers_tool("chapter_open")));
        if heard.part == "Goal" {
            return Reply::text(ONE_TASK);
        }
        if let Some(result) = request.results().next_back() {
            note(&answered, result.text.clone());
        }
        match heard.results {
            0 => Reply::call("file_read", json!({ "path": "package.json" })),
            1 => opens(" "),
            2 => opens(INTENT),
            3 => writes("add", "a + b"),
            _ => done(),
        }
    };
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let trace = trace(&scene).await;
        let chapters: Vec<_> = trace
            .chapters
            .iter()
            .map(|one| (one.name.as_str(), one.is_declared, one.outcome, one.intent.clone()))
            .collect();
        let of = |name: &str| format!("{TASK}: {name}, add.");
        let (pivot, success) = (Some(ChapterOutcome::Pivot), Some(ChapterOutcome::Success));
        assert_eq!(
            chapters,
            [
                ("execute", false, pivot, of("execute")),
                (INTENT, true, success, of(INTENT)),
                ("verify", false, success, of("verify")),
            ]
        );
        assert!(trace.chapters.iter().all(|one| one.unit_id == TASK && one.closed_at >= Some(one.opened_at)));
        let listed: Vec<&String> = trace.chapters.iter().flat_map(|one| &one.span_ids).collect();
        let of_runs: BTreeSet<&String> = trace
            .spans
            .iter()
            .filter(|span| span.operation != SpanOperation::PhaseTransition)
            .map(|span| &span.span_id)
            .collect();
        let all: BTreeSet<&String> = trace.spans.iter().map(|span| &span.span_id).collect();
        assert_eq!(listed.len(), listed.iter().collect::<BTreeSet<_>>().len(), "each once: {trace:#?}");
        assert!(of_runs.is_subset(&listed.iter().copied().collect()), "{trace:#?}");
        assert!(listed.iter().all(|id| all.contains(*id)));
        let in_chapter = |call: &str| {
            let span = trace.spans.iter().find(|span| span.attrs.get("call") == Some(&call.into()));
            let span = span.unwrap_or_else(|| panic!("no '{call}': {trace:#?}"));
            trace.chapters.iter().position(|one| one.span_ids.contains(&span.span_id))
        };
        assert_eq!((in_chapter("read package.json"), in_chapter("write add.mjs")), (Some(0), Some(1)));
        let known = found(&scene, INTENT).await;
        assert_eq!(known, [format!("Chapter of the autopilot (success): {}", of(INTENT))]);
    });
    assert!(noted(&offers).iter().all(|(part, is_offered)| (part == "Work") == *is_offered));
    let answers = noted(&answers);
    assert!(answers[1].contains("'name' is one line of 1 to 80 characters"), "{answers:#?}");
    assert!(answers[2].contains("The chapter is open."), "{answers:#?}");
    scene.end();
}

/// After a crash the first prompt begins with the chapters of the work so far, by their names and intents; a fresh unit has none. What was
/// open when the engine ended is remembered only after it is over.
///
/// Rows: SF-464
/// Rows: SF-465 (in part: an open chapter is not stored)
#[test]
fn needs_userns_needs_git_the_first_prompt_after_a_crash_begins_with_the_chapters() {
    let dir = project("", GATE, SHORT);
    let prompts: Notes<String> = Notes::default();
    let (notes, never) = (Arc::clone(&prompts), ReplyGate::new());
    let held = never.clone();
    let script = move |request: &ParsedRequest| {
        let heard = hear(request);
        if heard.part == "Goal" {
            return Reply::text(ONE_TASK);
        }
        let is_resumed = heard.text.contains("resumed_after_crash");
        match heard.results {
            0 => {
                note(&notes, heard.text);
                if is_resumed { writes("add", "a + b") } else { opens(INTENT) }
            }
            1 if !is_resumed => done().with_fault(ReplyFault::SlowFirstByte(held.clone())),
            _ => done(),
        }
    };
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        while scene.engine.server.connections_waiting() == 0 {
            scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
        }
        assert_eq!(found(&scene, INTENT).await, [""; 0], "it is open");
    });
    let scene = scene.restarted();
    scene.engine.runtime.block_on(async {
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let known = found(&scene, INTENT).await;
        assert_eq!(known, [format!("Chapter of the autopilot (failure): {TASK}: {INTENT}, add.")]);
    });
    // The line above it is the title of the attempt.
    let text_of = |prompt: &String| prompt.split_once("\n\n").expect("a title").1.to_owned();
    let prompts: Vec<String> = noted(&prompts).iter().map(text_of).collect();
    let (first, last) = (prompts.first().expect("one"), prompts.last().expect("another"));
    assert!(first.starts_with("# Work on task") && !first.contains("Chapters of this work"), "{first}");
    let begin = format!(
        "Chapters of this work so far, as data:\n\n- execute (pivot): {TASK}: execute, add.\n- {INTENT} (failure): {TASK}: {INTENT}, add.\n"
    );
    assert!(last.starts_with(&begin), "{last}");
    never.open();
    scene.end();
}
