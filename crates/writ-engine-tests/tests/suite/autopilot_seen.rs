//! The autopilot as programs see it: its state at a moment, requests to look at once, and its trace.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use writ_store::batch::Op;
use writ_store::reads::UnitReads as _;
use writ_store::units::{
    ChoiceRow, NewUnit, RunStart, SpanFilter, SpanRow, UnitKey, UnitOp, UnitRunEnd, UnitTransition,
};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::api::pilot::{
    PilotCleaned, PilotHistory, PilotLog, PilotRefreshed, PilotSnapshot, PilotSpan, PilotState, PilotTrace,
    PilotUnitDetails, PilotUnitState, SpanOperation,
};
use writ_types::digest::Digest;
use writ_types::id::{PilotId, UnitRunId};
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use crate::autopilot::{DONE, Scene, plan_of};
use crate::autopilot_limits::{
    GATE, ONE_TASK, SHORT, TASK, TWO_SLICES, coder, done, first_run, project, scene, writes,
};
use crate::harness::TestEngine;

/// The task of the second slice.
const OTHER: &str = "task/m1/s2/t1";
/// A gate that passes on every tree.
const THERE: &str = "\n[[gate]]\nname = \"there\"\nrun = [\"test\", \"-f\", \"package.json\"]\n";
/// A short workflow with a plan.
const PLANNED: &str = "phases = [\"plan\", \"execute\", \"verify\", \"merge\", \"complete\"]\n";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn all_states(scene: &Scene) -> Vec<PilotSnapshot> {
    let state = scene.engine.call("pilot.state", json!({})).await.expect("shown");
    match serde_json::from_value(state).expect("of its form") {
        PilotState::All(all) => all.sessions,
        PilotState::One(one) => panic!("one: {one:?}"),
    }
}

async fn state_of(scene: &Scene, session: &Value) -> PilotSnapshot {
    let state = scene.engine.call("pilot.state", json!({ "session": session })).await.expect("shown");
    assert!(state.get("sessions").is_none(), "{state}");
    match serde_json::from_value(state).expect("of its form") {
        PilotState::One(one) => *one,
        PilotState::All(all) => panic!("all: {all:?}"),
    }
}

/// The words of a prompt's heading: the part and the unit.
fn heading_of(request: &ParsedRequest) -> (String, String) {
    let first = request.messages.iter().find(|message| !message.text.is_empty());
    let text = first.map(|message| message.text.clone()).unwrap_or_default();
    let heading = text.lines().find(|line| line.starts_with("# ")).unwrap_or_default();
    let unit = heading.split(' ').find(|word| word.contains("/m")).unwrap_or_default();
    let part = if heading.starts_with("# Plan a goal") {
        "Goal"
    } else {
        heading.split(' ').nth(1).unwrap_or_default()
    };
    (part.to_owned(), unit.trim_end_matches([',', '.']).to_owned())
}

/// A state has what runs, what waits for another try and what all of it has cost: one snapshot for each session that is not over, or the
/// one that is named and never another's. A unit is shown with its last events, its workspace, its tries and its error, in each session
/// that has one of its id. What is unknown is an error. (The routes over HTTP lie below `/api/v1/pilot/`, since `/api/v1/state` is
/// the engine's own.)
///
/// Rows: SF-470 SF-471 (in part: all but the seconds)
/// Rows: SF-469 (in part: the method; the routes are shown elsewhere)
#[test]
fn needs_userns_needs_git_a_state_shows_what_runs_what_waits_and_what_it_costs() {
    let dir = project("", THERE, PLANNED);
    // With the pauses that are the default: twenty seconds after the first failure.
    let settings = format!("[pilot]\ndefault_workflow = \"own\"\n{THERE}");
    std::fs::write(dir.path().join(".writ/pilot.toml"), settings).expect("written");
    crate::autopilot::git(dir.path(), &["commit", "-qam", "Leave the pauses as they are"]);
    let elsewhere = project("", THERE, PLANNED);
    let (held, held_plan, asked_last) = (ReplyGate::new(), ReplyGate::new(), Arc::new(Mutex::new(false)));
    let (gate, plan_gate, noted) = (held.clone(), held_plan.clone(), Arc::clone(&asked_last));
    let outline = TWO_SLICES.replace(" code_depends_on=m1/s1", "");
    let mut plans = 0_usize;
    let script = move |request: &ParsedRequest| {
        let (part, unit) = heading_of(request);
        match part.as_str() {
            "Goal" => Reply::text(&outline),
            "Plan" if unit == TASK => {
                plans += 1;
                if plans > 1 {
                    return Reply::text(&format!("{}\n{DONE}", plan_of(&unit)));
                }
                Reply::text(&format!("no plan\n{DONE}"))
                    .with_fault(ReplyFault::SlowFirstByte(plan_gate.clone()))
            }
            "Plan" => Reply::text(&format!("{}\n{DONE}", plan_of(&unit))),
            _ if unit == TASK && request.results().next().is_some() => done(),
            _ if unit == TASK => writes("add", "a + b"),
            // Its first call is answered, and its last words wait.
            _ if request.results().next().is_some() => {
                *noted.lock().unwrap_or_else(PoisonError::into_inner) = true;
                done().with_fault(ReplyFault::SlowFirstByte(gate.clone()))
            }
            _ => writes("mul", "a * b"),
        }
    };
    let scene = scene(dir.path(), TestEngine::priced(|_| {}, |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        let other = std::fs::canonicalize(elsewhere.path()).expect("is there");
        let params = json!({ "project": other, "goal": "sums elsewhere" });
        scene.engine.call("pilot.plan", params).await.expect("planned");
        let session = json!(scene.status().await.session);
        let ready = state_of(&scene, &session).await.counts;
        assert_eq!((ready.running, ready.retrying, ready.queued), (0, 0, 2));
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        loop {
            if *asked_last.lock().unwrap_or_else(PoisonError::into_inner) {
                break;
            }
            scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
        }
        // From here on, so that the pause after the failure is not over before it is looked at.
        scene.hold_clock(true);
        held_plan.open();
        while !scene.unit(TASK).await.runs.iter().any(|run| run.outcome.is_some()) {
            scene.engine.clock.go_on(Duration::from_millis(1));
        }
        let shown = state_of(&scene, &session).await;
        let counts = (shown.counts.running, shown.counts.retrying, shown.counts.queued);
        assert_eq!((shown.state.as_str(), counts), ("running", (1, 1, 0)), "{shown:#?}");
        let [running] = shown.running.as_slice() else { panic!("{shown:#?}") };
        assert_eq!((running.unit_id.as_str(), running.phase.as_str()), (OTHER, "execute"));
        assert!(running.turn_count >= 1 && !running.last_event.is_empty(), "{running:#?}");
        let tokens = running.tokens;
        assert!(tokens.input.get() > 0 && tokens.output.get() > 0, "{tokens:?}");
        assert_eq!(tokens.total.get(), tokens.input.get() + tokens.output.get());
        let begun = scene.unit(OTHER).await.runs.pop().expect("one");
        assert_eq!((running.started_at, begun.outcome), (begun.started_at, None));
        let [retrying] = shown.retrying.as_slice() else { panic!("{shown:#?}") };
        assert_eq!((retrying.unit_id.as_str(), retrying.attempt), (TASK, 1));
        assert_eq!(retrying.error, "pilot.unit_plan");
        assert!(retrying.due_at > shown.generated_at, "{retrying:?}");
        let mut micros = 0;
        for unit in [TASK, OTHER] {
            micros += scene.unit(unit).await.runs.iter().map(|run| run.cost.get()).sum::<u64>();
        }
        let agent = running.session_id.expect("an agent works");
        let used = scene.engine.store.blocking().session_usage(agent).expect("reads");
        micros += used.cost.get();
        assert!(used.cost.get() > 0);
        let expected = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        assert_eq!(format!("{:.6}", shown.totals.cost_usd), expected);
        assert!(shown.totals.input_tokens > tokens.input && shown.totals.output_tokens > tokens.output);
        let all = all_states(&scene).await;
        let projects: Vec<&str> = all.iter().map(|one| one.project.as_str()).collect();
        assert_eq!(projects, [scene.project.to_str().expect("UTF-8"), other.to_str().expect("UTF-8")]);
        let second = state_of(&scene, &json!(all[1].session)).await;
        assert_eq!((second.project.as_str(), second.state.as_str()), (projects[1], "idle"));
        assert!(second.running.is_empty() && second.retrying.is_empty(), "{second:#?}");
        let unknown = json!({ "session": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "unit": TASK });
        for method in ["pilot.state", "pilot.refresh", "pilot.unit_state"] {
            let mut params = unknown.clone();
            if method != "pilot.unit_state" {
                params.as_object_mut().expect("an object").remove("unit");
            }
            let refused = scene.engine.call(method, params).await.expect_err(method);
            assert_eq!(refused.code, "pilot.no_session", "{method}");
        }
        look_at_unit(&scene, &session).await;
        scene.hold_clock(false);
        held.open();
        scene.engine.clock.go_on(Duration::from_secs(20));
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let left: Vec<String> = all_states(&scene).await.into_iter().map(|one| one.project).collect();
        assert_eq!(left, [other.to_str().expect("UTF-8")], "one that is over is not listed");
        let over = state_of(&scene, &session).await;
        assert_eq!((over.counts.running, over.counts.retrying, over.counts.queued), (0, 0, 0));
    });
    scene.end();
}

/// The failed task, in both sessions and in its own.
async fn look_at_unit(scene: &Scene, session: &Value) {
    let shown = scene.engine.call("pilot.unit_state", json!({ "unit": TASK })).await.expect("shown");
    let PilotUnitState::All(all) = serde_json::from_value(shown).expect("reads") else { panic!("one") };
    assert_eq!(all.sessions.len(), 2, "{all:#?}");
    assert!(all.sessions[1].workspace_path.is_none());
    let params = json!({ "unit": TASK, "session": session });
    let unit = loop {
        let shown = scene.engine.call("pilot.unit_state", params.clone()).await.expect("shown");
        let PilotUnitState::One(one) = serde_json::from_value(shown).expect("reads") else { panic!("all") };
        // Spans are written behind the work.
        if one.log_path.is_some() {
            break one;
        }
        scene.engine.clock.go_on(Duration::from_millis(1));
    };
    assert_eq!((unit.project.as_str(), unit.retry_count), (scene.project.to_str().expect("UTF-8"), 1));
    assert!(unit.last_error.contains("plan"), "{unit:#?}");
    assert!(unit.recent_events.iter().any(|event| event.kind == "end"), "{unit:#?}");
    assert!(unit.workspace_path.as_deref().is_some_and(|path| Path::new(path).starts_with(&scene.project)));
    let log = std::fs::read_to_string(unit.log_path.expect("is there")).expect("reads");
    assert!(log.contains(TASK), "{log}");
    for unknown in ["task/m9/s1/t1", "no unit"] {
        let refused = scene.engine.call("pilot.unit_state", json!({ "unit": unknown })).await;
        assert_eq!(refused.expect_err("there is none").code, "pilot.no_unit", "{unknown}");
    }
}

/// Fifty requests at once bring about two looks: each is answered, and all but two join the look that is due.
///
/// Rows: SF-473 (in part: the looks)
#[test]
fn needs_userns_needs_git_a_burst_of_requests_is_few_looks() {
    let dir = project("", THERE, SHORT);
    let script = coder(ONE_TASK, |_, _| done());
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        scene.plan("a library of sums").await;
        // Its loop waits for the answer about the plan.
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        let session = json!(scene.status().await.session);
        while state_of(&scene, &session).await.ticks == 0 {
            scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
        }
        scene.hold_clock(true);
        let before = state_of(&scene, &session).await.ticks;
        let asks = (0..50).map(|_| scene.engine.call("pilot.refresh", json!({})));
        let answers = join_all(asks)
            .await
            .into_iter()
            .map(|answer| serde_json::from_value::<PilotRefreshed>(answer.expect("taken")).expect("reads"));
        let (mut queued, mut coalesced) = (0, 0);
        for answer in answers {
            queued += answer.queued;
            coalesced += answer.coalesced;
        }
        // The clock stands, so one brings about a look at once, one a look a second later, and all others join that.
        assert_eq!((queued, coalesced), (2, 48));
        while state_of(&scene, &session).await.ticks == before {
            scene.engine.clock.go_on(Duration::from_millis(1));
        }
        // Once that look has begun a request brings about another one.
        scene.engine.clock.go_on(Duration::from_secs(1));
        loop {
            let answer: PilotRefreshed = scene
                .engine
                .call("pilot.refresh", json!({}))
                .await
                .map(|answer| serde_json::from_value(answer).expect("reads"))
                .expect("taken");
            if answer.queued == 1 {
                break;
            }
            tokio::task::yield_now().await;
        }
    });
    scene.end();
}

/// The spans of a unit, once all of its runs have theirs.
async fn spans_of(scene: &Scene, unit: &PilotUnitDetails) -> PilotTrace {
    loop {
        let trace: PilotTrace = scene.ask("pilot.forensics", json!({ "id": unit.unit.id })).await;
        let runs = trace.spans.iter().filter(|span| span.operation == SpanOperation::Run).count();
        if runs == unit.runs.len() {
            assert!(trace.unreadable.is_empty(), "{trace:#?}");
            return trace;
        }
        scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
    }
}

fn count(spans: &[PilotSpan], operation: SpanOperation) -> usize {
    spans.iter().filter(|span| span.operation == operation).count()
}

/// The span whose line begins at the place that the index names.
fn span_at(project: &Path, row: &SpanRow) -> PilotSpan {
    let text = std::fs::read_to_string(project.join(&row.file)).expect("reads");
    let offset = usize::try_from(row.offset).expect("small");
    let line = text[offset..].lines().next().expect("a line");
    serde_json::from_str(line).unwrap_or_else(|_| panic!("no span: {line}"))
}

fn trace_files(project: &Path, below: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(project.join(below)) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("trace-")).collect();
    names.sort();
    names
}

/// Each run, move, gate, tool call and model request of a unit is a span in the file of its day, with its error if it has failed. The index
/// leads to each record without a search, and is made anew from the files after it was lost. A day without work has no file. After
/// thirty days a file goes to the archive, and not one day earlier; looks meanwhile find every span, a move that was cut off is
/// brought to its end by the next order, and a look at what would be done changes nothing.
///
/// Rows: SF-459 (in part: looks beside it, in one process) SF-460 (in part: a move that was cut off, played by the file's name)
/// Rows: SF-452 (in part: all but the hooks of the home) SF-453 (in part: after midnight, and no file on a quiet day)
/// Rows: SF-553 (in part: of a unit, a run and the session)
/// Rows: SF-566 (in part: trace files) SF-567 (in part: trace files)
/// Rows: SF-445 (in part: the fields of units, moves and gates) SF-055 (in part: spans and costs have the id of their run)
#[test]
fn needs_userns_needs_git_spans_lie_in_a_file_of_their_day_and_are_found_by_the_index() {
    let dir = project("", GATE, SHORT);
    let mut goals = 0;
    let mut work = coder(ONE_TASK, |tried, asked| match (tried, asked.has_results) {
        (1, false) => Reply::call("file_read", json!({ "path": "no-such-file" })),
        (_, true) => done(),
        // Another text for the second goal, so that something is to be merged.
        (_, false) => writes("add", if asked.unit.contains("m2") { "a + b + 0" } else { "a + b" }),
    });
    let script = move |request: &ParsedRequest| {
        if heading_of(request).0 == "Goal" {
            goals += 1;
            return Reply::text(&ONE_TASK.replace("m1", &format!("m{goals}")));
        }
        work(request)
    };
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let day = || scene.engine.clock.now().to_string().chars().take(10).collect::<String>();
    let first_day = day();
    let (task, trace) = scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let task = scene.unit(TASK).await;
        let trace = spans_of(&scene, &task).await;
        check_spans(&scene, &task, &trace.spans).await;
        (task, trace)
    });
    assert_eq!(trace_files(&scene.project, ".writ/trace"), [format!("trace-{first_day}.jsonl")]);
    let rows = {
        let id = SpanFilter::Trace(trace.spans[0].trace_id.clone());
        let project = scene.project.to_str().expect("UTF-8");
        scene.engine.store.blocking().trace_spans(project, id, 1_000).expect("reads")
    };
    assert_eq!(rows.len(), trace.spans.len());
    for (row, span) in rows.iter().zip(&trace.spans) {
        assert_eq!(&span_at(&scene.project, row), span);
    }
    // The lines that were asked for, and the first line of the file each time.
    let lengths: usize =
        trace.spans.iter().map(|span| serde_json::to_string(span).expect("writes").len()).sum();
    assert!(
        trace.read_bytes < u64::try_from(lengths + rows.len() * 300).expect("small"),
        "{}",
        trace.read_bytes
    );
    // As if it had never been written.
    let database = rusqlite::Connection::open(scene.engine.folder().join("writ.db")).expect("opens");
    assert!(database.execute("DELETE FROM trace_index", []).expect("deletes") > 0);
    drop(database);
    let scene = scene.restarted();
    scene.engine.runtime.block_on(async {
        assert_eq!(spans_of(&scene, &task).await, trace, "it is made anew");
        // A quiet day between them.
        scene.engine.clock.go_on(DAY * 2);
        let planned = scene.plan("another library").await;
        scene.approve(&planned.ask).await;
        let status = scene.run().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let second = scene.unit("task/m2/s1/t1").await;
        spans_of(&scene, &second).await;
    });
    let second_day: String = scene.engine.clock.now().to_string().chars().take(10).collect();
    let names = [format!("trace-{first_day}.jsonl"), format!("trace-{second_day}.jsonl")];
    assert_eq!(trace_files(&scene.project, ".writ/trace"), names);
    scene.engine.runtime.block_on(clean(&scene, &names, (&task, &trace)));
    scene.end();
}

async fn check_spans(scene: &Scene, task: &PilotUnitDetails, spans: &[PilotSpan]) {
    let log: PilotLog = scene.ask("pilot.log", json!({ "unit": TASK })).await;
    let lines = |kind: &str| log.lines.iter().filter(|line| line.kind == kind).count();
    assert_eq!(count(spans, SpanOperation::PhaseTransition), task.moves.len());
    assert_eq!(count(spans, SpanOperation::Gate), task.gates.len());
    assert_eq!(count(spans, SpanOperation::ModelRequest), lines("model"));
    assert_eq!(count(spans, SpanOperation::ToolCall), lines("tool"));
    assert!(spans.is_sorted_by_key(|span| span.started_at), "{spans:#?}");
    let ids: BTreeSet<(&str, &str)> =
        spans.iter().map(|span| (span.run_id.as_str(), span.span_id.as_str())).collect();
    assert_eq!(ids.len(), spans.len(), "each once");
    let traces: BTreeSet<&str> = spans.iter().map(|span| span.trace_id.as_str()).collect();
    assert_eq!(traces.len(), 1);
    let lacks = |span: &&PilotSpan| {
        let names: &[&str] = match span.operation {
            SpanOperation::PhaseTransition => &["unit_id", "from", "to", "reason"],
            SpanOperation::Gate => &["unit_id", "gate", "attempt", "passed"],
            SpanOperation::Run => &["unit_id", "attempt", "phase", "outcome", "cost_micro_usd"],
            SpanOperation::ToolCall | SpanOperation::ModelRequest | SpanOperation::Hook => &["unit_id"],
        };
        !names.iter().all(|name| span.attrs.contains_key(*name))
    };
    assert_eq!(spans.iter().find(lacks), None, "each has the fields of its kind");
    let call = |text: &str| {
        let is_it = |span: &&PilotSpan| span.attrs.get("call").is_some_and(|call| call == text);
        spans.iter().find(is_it).unwrap_or_else(|| panic!("{text}: {spans:#?}"))
    };
    assert!(call("read no-such-file").error.is_some(), "{spans:#?}");
    let run = spans.iter().find(|span| span.operation == SpanOperation::Run).expect("one");
    assert_eq!((&run.run_id, &run.parent_span_id, &run.error), (&run.span_id, &None, &None));
    assert_eq!(call("read no-such-file").parent_span_id.as_ref(), Some(&run.span_id));
    // By the run alone, by the session, and by an id of neither.
    let of_run: PilotTrace = scene.ask("pilot.forensics", json!({ "id": run.run_id })).await;
    let own: Vec<&PilotSpan> = spans.iter().filter(|span| span.run_id == run.run_id).collect();
    assert_eq!(of_run.spans.iter().collect::<Vec<_>>(), own);
    let session = scene.status().await.session;
    let of_session: PilotTrace = scene.ask("pilot.forensics", json!({ "id": session })).await;
    assert!(spans.iter().all(|span| of_session.spans.contains(span)));
    let last: PilotTrace = scene.ask("pilot.forensics", json!({ "id": TASK, "last": 2 })).await;
    assert_eq!(last.spans, spans[spans.len() - 2..]);
    for (id, code) in [("task/m9/s1/t1", "pilot.no_unit"), ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "pilot.no_trace")] {
        let refused =
            scene.engine.call("pilot.forensics", json!({ "project": scene.project, "id": id })).await;
        assert_eq!(refused.expect_err(id).code, code);
    }
}

/// The first file is thirty-one days old, the second twenty-nine.
async fn clean(scene: &Scene, names: &[String; 2], (task, trace): (&PilotUnitDetails, &PilotTrace)) {
    scene.engine.clock.go_on(DAY * 29);
    let [first, second] = names.each_ref().map(|name| format!(".writ/trace/{name}"));
    let place = |below: &str| trace_files(&scene.project, below);
    let bytes = std::fs::read(scene.project.join(&first)).expect("reads");
    let shown: PilotCleaned = scene.ask("pilot.clean", json!({ "dry_run": true })).await;
    assert_eq!((shown.dry_run, &shown.archived), (true, &vec![first.clone()]), "{shown:?}");
    assert_eq!((place(".writ/trace"), place(".writ/archive/trace")), (names.to_vec(), Vec::new()));
    let looks = (0..20).map(|_| scene.ask::<PilotTrace>("pilot.forensics", json!({ "id": TASK })));
    let (cleaned, looks) = tokio::join!(scene.ask::<PilotCleaned>("pilot.clean", json!({})), join_all(looks));
    assert_eq!((cleaned.archived, cleaned.repaired), (shown.archived, Vec::new()));
    assert!(looks.iter().all(|look| look == trace), "no look misses a span");
    assert_eq!(
        (place(".writ/trace"), place(".writ/archive/trace")),
        (names[1..].to_vec(), names[..1].to_vec())
    );
    let archived = scene.project.join(".writ/archive/trace").join(&names[0]);
    assert_eq!(std::fs::read(&archived).expect("reads"), bytes, "it is the same file");
    assert_eq!(&spans_of(scene, task).await, trace);
    // As a crash between the rename and the index leaves it.
    std::fs::rename(scene.project.join(&second), scene.project.join(".writ/archive/trace").join(&names[1]))
        .expect("moved");
    let lost: PilotTrace = scene.ask("pilot.forensics", json!({ "id": "task/m2/s1/t1" })).await;
    assert!(lost.spans.is_empty() && !lost.unreadable.is_empty(), "{lost:?}");
    let mended: PilotCleaned = scene.ask("pilot.clean", json!({})).await;
    assert_eq!(mended.repaired, [format!(".writ/archive/trace/{}", names[1])]);
    let found: PilotTrace = scene.ask("pilot.forensics", json!({ "id": "task/m2/s1/t1" })).await;
    assert!(found.unreadable.is_empty() && !found.spans.is_empty(), "{found:?}");
    let again: PilotCleaned = scene.ask("pilot.clean", json!({})).await;
    assert!(again.archived.is_empty() && again.repaired.is_empty(), "{again:?}");
}

/// Where no trace can be written the units complete all the same, and no place of a span is in the index that is in no file. What is
/// missing is written at the next start that can, and a record that was cut off by a kill has no place, also where the index is made
/// anew.
///
/// Rows: SF-458 (in part: a record that is cut off has no place; no process is killed before a flush)
/// Rows: SF-481 (in part: the trace)
#[test]
fn needs_userns_needs_git_units_complete_while_no_trace_can_be_written() {
    let dir = project("", GATE, SHORT);
    let script = coder(ONE_TASK, |_, asked| if asked.has_results { done() } else { writes("add", "a + b") });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    std::fs::write(dir.path().join(".writ/trace"), "in the way").expect("written");
    let task = scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let trace: PilotTrace = scene.ask("pilot.forensics", json!({ "id": TASK })).await;
        assert!(trace.spans.is_empty(), "{trace:?}");
        assert!(trace.unreadable.concat().contains("not written yet"), "{trace:?}");
        scene.unit(TASK).await
    });
    std::fs::remove_file(dir.path().join(".writ/trace")).expect("removed");
    let scene = scene.restarted();
    scene.engine.runtime.block_on(async {
        let trace = spans_of(&scene, &task).await;
        let project = scene.project.to_str().expect("UTF-8");
        while !scene.engine.store.untraced_units(project, 10).await.expect("reads").is_empty() {
            scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
        }
        check_rows(&scene, &trace);
    });
    // As a kill in the middle of a record and the loss of the index leave it.
    let file = scene.project.join(".writ/trace").join(&trace_files(&scene.project, ".writ/trace")[0]);
    let whole = std::fs::read_to_string(&file).expect("reads");
    let last = whole.lines().last().expect("a line").replace("\"span_id\":\"", "\"span_id\":\"x");
    std::fs::write(&file, format!("{whole}{}", &last[..last.len() - 9])).expect("written");
    let database = rusqlite::Connection::open(scene.engine.folder().join("writ.db")).expect("opens");
    let lost = database.execute("DELETE FROM trace_index", []).expect("deletes");
    drop(database);
    let scene = scene.restarted();
    scene.engine.runtime.block_on(async {
        let trace = spans_of(&scene, &task).await;
        assert_eq!(check_rows(&scene, &trace), lost, "each record that is whole, and no other");
    });
    scene.end();
}

/// Records that are in the file while their places cannot be noted are not written again, however often they are asked for, and have their
/// places once these can be noted. A look says what is missing.
#[test]
fn needs_userns_needs_git_no_record_is_written_twice_after_a_failed_index() {
    let dir = project("", GATE, SHORT);
    let script = coder(ONE_TASK, |_, asked| if asked.has_results { done() } else { writes("add", "a + b") });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let database = rusqlite::Connection::open(scene.engine.folder().join("writ.db")).expect("opens");
    let refuse =
        "CREATE TRIGGER refuse BEFORE INSERT ON trace_index BEGIN SELECT RAISE(ABORT, 'not now'); END";
    database.execute_batch(refuse).expect("made");
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        for _ in 0..3 {
            let trace: PilotTrace = scene.ask("pilot.forensics", json!({ "id": TASK })).await;
            assert!(trace.spans.is_empty() && !trace.unreadable.is_empty(), "{trace:?}");
        }
        database.execute_batch("DROP TRIGGER refuse").expect("dropped");
        let task = scene.unit(TASK).await;
        let trace = spans_of(&scene, &task).await;
        check_rows(&scene, &trace);
    });
    let file = scene.project.join(".writ/trace").join(&trace_files(&scene.project, ".writ/trace")[0]);
    let text = std::fs::read_to_string(&file).expect("reads");
    let spans: Vec<PilotSpan> =
        text.lines().skip(1).map(|line| serde_json::from_str(line).expect("a span")).collect();
    let ids: BTreeSet<(&str, &str)> =
        spans.iter().map(|span| (span.run_id.as_str(), span.span_id.as_str())).collect();
    assert_eq!(ids.len(), spans.len(), "each once");
    scene.end();
}

/// Checks that every place of the index is that of its record. Returns their number.
fn check_rows(scene: &Scene, trace: &PilotTrace) -> usize {
    let project = scene.project.to_str().expect("UTF-8");
    let filter = SpanFilter::Project(project.to_owned());
    let rows = scene.engine.store.blocking().trace_spans(project, filter, 1_000).expect("reads");
    assert!(rows.len() >= trace.spans.len());
    let all = rows.len();
    for row in rows {
        let span = span_at(&scene.project, &row);
        assert_eq!((span.run_id, span.span_id), (row.run, row.span));
    }
    all
}

/// A goal names the workflow of its units and the issue that it is about. A workflow that is not there is refused before a model is
/// asked, and nothing is planned. (The name stands in the row's own column.)
///
/// Rows: SF-530
#[test]
fn needs_userns_needs_git_a_goal_names_its_workflow() {
    let dir = project("", GATE, SHORT);
    std::fs::write(dir.path().join(".writ/workflows/planned.toml"), PLANNED).expect("written");
    let script = coder(ONE_TASK, |_, asked| if asked.has_results { done() } else { writes("add", "a + b") });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let goal = |workflow: &str| json!({ "project": scene.project, "goal": "sums", "workflow": workflow, "link_issue": 42 });
    scene.engine.runtime.block_on(async {
        let refused = scene.engine.call("pilot.plan", goal("none")).await.expect_err("there is none");
        assert_eq!(refused.code, "pilot.missing_workflow_file");
        assert!(scene.engine.server.recorded_requests().is_empty(), "no model was asked");
        let planned = scene.engine.call("pilot.plan", goal("planned")).await.expect("planned");
        for id in ["milestone/m1", "slice/m1/s1", TASK] {
            let key = UnitKey { project: scene.project.to_string_lossy().into_owned(), id: id.to_owned() };
            let row = scene.engine.store.unit(key).await.expect("reads").expect("is there");
            assert_eq!(row.workflow, "planned", "{id}");
            let metadata: Value = serde_json::from_str(&row.metadata).expect("an object");
            assert_eq!(metadata["gh_issue"], 42, "{id}");
        }
        let ask = serde_json::from_value(planned["ask"].clone()).expect("an ask");
        scene.approve(&ask).await;
        let status = scene.run().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let task = scene.unit(TASK).await;
        assert_eq!(crate::autopilot::moves(&task)[0], "plan>execute", "{task:#?}");
    });
    scene.end();
}

/// A unit that is over, as the history finds it.
struct OverUnit {
    id: String,
    workflow: &'static str,
    phase: &'static str,
    verdict: &'static str,
    model: &'static str,
    ended_at: Timestamp,
}

impl OverUnit {
    fn of_number(n: u32, now: Timestamp) -> Self {
        // Five hours from one to the next, so that they lie in six days.
        let ended_at = now.minus_duration(Duration::from_secs(u64::from(25 - n) * 5 * 60 * 60));
        let pick = |every: u32, is: &'static str, other| if n.is_multiple_of(every) { is } else { other };
        Self {
            id: format!("task/m0/s0/t{n}"),
            workflow: pick(2, "own", "bugfix"),
            phase: pick(3, "verify", "execute"),
            verdict: pick(5, "failed", "succeeded"),
            model: pick(4, "test/deep", "test/plain"),
            ended_at,
        }
    }

    fn ops(&self, session: PilotId, project: &str, n: u32) -> Vec<Op> {
        let key = UnitKey { project: project.to_owned(), id: self.id.clone() };
        let run = UnitRunId::from_parts(self.ended_at, u128::from(n));
        let (phase, status, at) = (self.phase.to_owned(), self.verdict.to_owned(), self.ended_at);
        let unit = NewUnit {
            id: self.id.clone(),
            title: "mend it".to_owned(),
            description: String::new(),
            metadata: "{\"plan\":null}".to_owned(),
            workflow: self.workflow.to_owned(),
            workflow_hash: Digest::of_bytes(b"phases"),
            phase: phase.clone(),
            priority: None,
            blocked_by: Vec::new(),
        };
        let start = RunStart {
            key: key.clone(),
            fence: 0,
            holder: "here#7".to_owned(),
            until: at,
            run,
            host: "local".to_owned(),
            workspace: format!("{project}/.writ/workspaces/x"),
            is_forced: false,
            now: at,
        };
        let choice = ChoiceRow {
            key: key.clone(),
            run,
            phase: phase.clone(),
            fingerprint: "execute/one/within".to_owned(),
            score_milli: 1,
            is_raised: false,
            tier: "standard".to_owned(),
            model: self.model.to_owned(),
            at,
        };
        let end = UnitRunEnd {
            run,
            outcome: "success".to_owned(),
            error_code: String::new(),
            input: Tokens::ZERO,
            output: Tokens::ZERO,
            cost: MicroUsd::new(7),
            at,
        };
        let (to, reason) = ("complete".to_owned(), "done".to_owned());
        let over = UnitTransition {
            key: key.clone(),
            fence: 1,
            from: phase,
            to,
            status: status.clone(),
            is_over: true,
            reason,
            at,
        };
        let release = UnitOp::Release { key, fence: 1, status, not_before: at, at };
        let ops = [
            UnitOp::Add { session, units: vec![unit], at },
            UnitOp::Claim(Box::new(start)),
            UnitOp::NoteChoice(Box::new(choice)),
            UnitOp::EndRun(Box::new(end)),
            UnitOp::Transition(Box::new(over)),
            release,
        ];
        ops.into_iter().map(Op::Units).collect()
    }
}

/// The history lists the units that are over, the newest first, twenty of them where no number is named. Every filter alone and all of
/// them together find what fits all of them; a day, phase or verdict that is none is a wrong use. Without a unit that is over it is
/// empty.
///
/// Rows: SF-551 SF-552
/// Rows: SF-263 (in part: a unit that is over is listed, and one at work is not)
#[test]
fn needs_userns_needs_git_the_history_finds_what_is_over() {
    let dir = project("", GATE, SHORT);
    let script = coder(ONE_TASK, |_, _| done());
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let now = scene.engine.clock.now();
    let all: Vec<OverUnit> = (1..=25).rev().map(|n| OverUnit::of_number(n, now)).collect();
    scene.engine.runtime.block_on(async {
        scene.plan("a library of sums").await;
        let session = scene.status().await.session;
        let empty: PilotHistory = scene.ask("pilot.history", json!({})).await;
        assert!(empty.units.is_empty(), "{empty:?}");
        let project = scene.project.to_str().expect("UTF-8");
        for (unit, n) in all.iter().zip((1..=25).rev()) {
            scene.engine.engine.pilot_hands().commit(unit.ops(session, project, n)).await.expect("written");
        }
        let find = async |filter: &Value| -> Vec<String> {
            let found: PilotHistory = scene.ask("pilot.history", filter.clone()).await;
            found.units.into_iter().map(|unit| unit.unit).collect()
        };
        let ids: Vec<&str> = all.iter().map(|unit| unit.id.as_str()).collect();
        assert_eq!(find(&json!({})).await, ids[..20]);
        assert_eq!(find(&json!({ "limit": 30 })).await, ids);
        let days = ["", &now.minus_duration(DAY * 2).to_string()[..10]].map(str::to_owned);
        let mut sizes = BTreeSet::new();
        for (since, phase, verdict, workflow, model) in combinations(&days) {
            let fits = |unit: &&OverUnit| {
                &unit.ended_at.to_string()[..10] >= since.as_str()
                    && (phase.is_empty() || unit.phase == phase)
                    && (verdict.is_empty() || unit.verdict == verdict)
                    && (workflow.is_empty() || unit.workflow == workflow)
                    && (model.is_empty() || unit.model == model)
            };
            let expected: Vec<&str> = all.iter().filter(fits).map(|unit| unit.id.as_str()).collect();
            let filter = json!({ "since": since, "phase": phase, "verdict": verdict, "workflow": workflow, "model": model, "limit": 30 });
            assert_eq!(find(&filter).await, expected, "{filter}");
            sizes.insert(expected.len());
        }
        assert!(sizes.len() > 5 && sizes.contains(&25), "{sizes:?}");
        for wrong in [json!({ "since": "2026-13-01" }), json!({ "phase": "lunch" }), json!({ "verdict": "good" })] {
            let mut params = wrong.clone();
            params["project"] = json!(scene.project);
            let refused = scene.engine.call("pilot.history", params).await.expect_err("it is none");
            assert_eq!((refused.code.as_str(), refused.exit), ("pilot.no_filter", writ_types::error::Exit::Usage));
        }
        let shown = scene.engine.call("pilot.history", scene.params()).await.expect("shown");
        let first = shown["units"][0].as_object().expect("an object");
        let fields: Vec<&str> = first.keys().map(String::as_str).collect();
        let expected =
            ["cost", "ended_at", "models", "phase", "runs", "title", "unit", "verdict", "workflow"];
        assert_eq!(fields.into_iter().collect::<BTreeSet<_>>(), expected.into());
    });
    scene.end();
}

type Filters<'a> = (&'a String, &'static str, &'static str, &'static str, &'static str);

/// Every way to set each filter or leave it out.
fn combinations(days: &[String; 2]) -> Vec<Filters<'_>> {
    let mut all = Vec::new();
    for since in days {
        for phase in ["", "verify"] {
            for verdict in ["", "failed"] {
                for workflow in ["", "own"] {
                    all.extend(["", "test/deep"].map(|model| (since, phase, verdict, workflow, model)));
                }
            }
        }
    }
    all
}

/// The requests of two slices one after another, the first of each refused with these headers; the runs; and what is shown of the provider's
/// limits in the end.
fn sequence_with(headers: &[(&'static str, &str)]) -> (Vec<String>, Vec<String>, Value) {
    let dir = project("worktree_mode = \"milestone-per-worktree\"", GATE, SHORT);
    let headers: Vec<(&'static str, String)> =
        headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&requests);
    let script = coder(TWO_SLICES, move |tried, asked| {
        let line = format!("{} {} {}", asked.unit, asked.name, asked.has_results);
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        match (tried, asked.has_results) {
            (1 | 3, false) => {
                let body = r#"{"error":{"message":"slow down","type":"rate_limit_error"}}"#.to_owned();
                let headers = headers.clone();
                done().with_fault(ReplyFault::Response { status: 429, headers, body })
            }
            (_, true) => done(),
            (_, false) => writes(&asked.name, "a + b"),
        }
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let (runs, shown) = scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let state = state_of(&scene, &json!(status.session)).await;
        assert_eq!(state.rate_limits, status.rate_limits);
        let mut runs = Vec::new();
        for unit in &status.units {
            let of_unit = scene.unit(&unit.id).await.runs.into_iter();
            runs.extend(
                of_unit.map(|run| format!("{} {} {:?} {}", unit.id, run.phase, run.outcome, run.error)),
            );
        }
        (runs, serde_json::to_value(status.rate_limits).expect("JSON"))
    });
    scene.end();
    let requests = requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (requests, runs, shown)
}

/// What is handed out, what is tried again and with which end does not depend on the limits that a provider states: a refusal that says that
/// nothing is left for an hour is treated as one that says nothing. What was stated last is shown.
///
/// Rows: SF-476
/// Rows: SF-475 (in part: of refusals, as the methods of the engine show it)
#[test]
fn needs_userns_needs_git_limits_that_a_provider_states_decide_nothing() {
    let spent = [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "1h0m0s"),
    ];
    let (requests, runs, shown) = sequence_with(&spent);
    let (requests_without, runs_without, shown_without) = sequence_with(&[]);
    assert_eq!((&requests, &runs), (&requests_without, &runs_without));
    assert_eq!(requests.len(), 6, "each task is refused once, asked again, and ends: {requests:#?}");
    assert_eq!(shown_without, json!([]));
    let [one] = shown.as_array().map(Vec::as_slice).expect("a list") else { panic!("{shown}") };
    assert_eq!(one["provider"], "test", "{shown}");
    assert_eq!(one["stated"]["requests"]["remaining"], 0, "{shown}");
    assert_eq!(one["stated"]["headers"]["x-ratelimit-reset-requests"], "1h0m0s", "{shown}");
}
