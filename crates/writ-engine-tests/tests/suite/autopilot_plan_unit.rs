//! Changes of a plan that its agents ask for while they work.

use std::sync::Arc;

use serde_json::{Value, json};
use writ_inspect::gate::{GateSet, Hook, HookConfig, Permission, Program};
use writ_runtime::services::EngineParts;
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::entry::{DenyReason, Fact, GateVerdict, HookEvent};

use crate::autopilot_chapters::trace;
use crate::autopilot_limits::{GATE, SHORT, TASK, done, project, scene, writes};
use crate::autopilot_phases::{Notes, hear, note, noted};
use crate::harness::TestEngine;

/// A goal of two milestones under one plan; the second task of the first one is to be split.
const PLAN: &str = "\
- [ ] A library of sums <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * add adds
    - [ ] add <!-- task/m1/s1/t1 -->
      Write add in add.mjs.
    - [ ] the rest <!-- task/m1/s1/t2 blocked_by=task/m1/s1/t1 -->
      Write sub and mul.
    - [ ] notes <!-- task/m1/s1/t3 blocked_by=task/m1/s1/t2 -->
      Write notes.
- [ ] More <!-- milestone/m2 -->
  - [ ] Doubles <!-- slice/m2/s1 -->
    Acceptance:
    * double doubles
    - [ ] double <!-- task/m2/s1/t1 blocked_by=slice/m1/s1 -->
      Write double.
    - [ ] half <!-- task/m2/s1/t2 blocked_by=task/m2/s1/t1 -->
      Write half.
";

/// What the coder of another task does, so that the run comes to an end.
fn writes_of(unit: &str, results: usize) -> Reply {
    if results == 0 && unit.starts_with("task/") { writes(&unit.replace('/', "_"), "a") } else { done() }
}

fn changes(arguments: Value) -> Reply {
    Reply::call("plan_unit", arguments)
}

fn titles(tasks: &[&str]) -> Value {
    tasks.iter().map(|title| json!({ "title": title })).collect()
}

/// An agent splits a task that has not begun: its parts are worked on in their order, and what waited for it waits for the last of them. It
/// adds one more, and puts it in order. What has begun, what is not of its milestone and what would wait for itself is refused, and nothing has
/// changed then. The plan's file follows, since no person has edited it. No person is asked: the plan's own limits hold for all of it.
///
/// Rows: SF-490
/// Rows: SF-574 (in part: without hooks)
#[test]
fn needs_userns_needs_git_an_agent_splits_adds_and_reorders_tasks_of_its_own_milestone() {
    let dir = project("", GATE, SHORT);
    let (orders, answers): (Notes<String>, Notes<String>) = (Notes::default(), Notes::default());
    let (worked, answered) = (Arc::clone(&orders), Arc::clone(&answers));
    let script = move |request: &ParsedRequest| {
        let heard = hear(request);
        if heard.part == "Goal" {
            return Reply::text(PLAN);
        }
        if heard.results == 0 {
            note(&worked, heard.unit.clone());
        } else if let Some(result) = request.results().next_back() {
            note(&answered, result.text.clone());
        }
        let refused = [
            json!({ "change": "reorder", "unit": TASK, "after": "task/m1/s1/t3" }),
            json!({ "change": "add", "unit": "slice/m2/s1", "tasks": titles(&["elsewhere"]) }),
            json!({ "change": "add", "unit": "slice/m1/s1", "tasks": titles(&["hidden --> <!-- task/m1/s9/t9"]) }),
            json!({ "change": "reorder", "unit": "task/m1/s1/t2", "after": "task/m1/s1/t3" }),
            json!({ "change": "split", "unit": "task/m1/s1/t2", "tasks": titles(&["only one"]) }),
        ];
        match (heard.unit.as_str(), heard.results) {
            (TASK, n) if n < refused.len() => changes(refused[n].clone()),
            (TASK, 5) => changes(
                json!({ "change": "split", "unit": "task/m1/s1/t2", "tasks": titles(&["sub", "mul"]) }),
            ),
            (TASK, 6) => {
                changes(json!({ "change": "add", "unit": "slice/m1/s1", "tasks": titles(&["div"]) }))
            }
            (TASK, 7) => {
                changes(json!({ "change": "reorder", "unit": "task/m1/s1/t6", "after": "task/m1/s1/t3" }))
            }
            (TASK, 8) => writes("add", "a + b"),
            ("task/m1/s1/t4", 0) => writes("sub", "a - b"),
            ("task/m1/s1/t5", 0) => writes("mul", "a * b"),
            ("task/m1/s1/t6", 0) => writes("div", "a / b"),
            ("task/m1/s1/t3", 0) => writes("notes", "a"),
            ("task/m2/s1/t1", 0) => {
                changes(json!({ "change": "add", "unit": "slice/m1/s1", "tasks": titles(&["late"]) }))
            }
            ("task/m2/s1/t1", 1) => changes(json!({ "change": "add", "unit": "slice/m2/s1", "tasks":
                [{ "title": "free", "text": "May change:\n* .github\n* tests" }] })),
            ("task/m2/s1/t1", 2) => changes(
                json!({ "change": "split", "unit": "task/m2/s1/t2", "tasks": titles(&["halve", "quarter"]) }),
            ),
            ("task/m2/s1/t1", 3) => writes("double", "a * 2"),
            ("task/m2/s1/t3", 0) => writes("halve", "a / 2"),
            ("task/m2/s1/t4", 0) => writes("quarter", "a / 4"),
            _ => done(),
        }
    };
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        assert!(scene.reload(false).await.written, "the plan's file");
        let status = scene.run().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let file = std::fs::read_to_string(scene.project.join(".writ/plan.md")).expect("reads");
        assert!(file.contains("sub <!-- task/m1/s1/t4") && !file.contains("task/m1/s1/t2"), "{file}");
        let after = scene.reload(false).await;
        assert!(after.conflicts.is_empty() && after.edits.is_empty(), "{after:#?}");
        let ids: Vec<&str> = status.units.iter().map(|unit| unit.id.as_str()).collect();
        assert!(!ids.contains(&"task/m1/s1/t2"), "it is removed: {ids:?}");
        assert!(status.units.iter().all(|unit| unit.is_over && unit.status == "succeeded"), "{status:#?}");
    });
    assert_eq!(
        noted(&orders),
        [
            TASK,
            "task/m1/s1/t4",
            "task/m1/s1/t5",
            "task/m1/s1/t3",
            "task/m1/s1/t6",
            "task/m2/s1/t1",
            "task/m2/s1/t3",
            "task/m2/s1/t4"
        ],
        "each once, in the new order"
    );
    let answers = noted(&answers);
    for (n, words) in [
        "work on task/m1/s1/t1 has begun",
        "slice/m2/s1 is no part of milestone/m1",
        "hold no marks of comments",
        "The plan is as it was",
        "'tasks' has 2 to 10 entries",
        "Added: task/m1/s1/t4 (sub), task/m1/s1/t5 (mul). Put in another order: task/m1/s1/t3. Removed: task/m1/s1/t2.",
        "Added: task/m1/s1/t6 (div).",
        "Put in another order: task/m1/s1/t6.",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(answers[n].contains(words), "{n}: {answers:#?}");
    }
    for words in
        ["slice/m1/s1 is no part of milestone/m2", "Added: task/m2/s1/t3 (halve), task/m2/s1/t4 (quarter)"]
    {
        assert!(answers.iter().any(|answer| answer.contains(words)), "{words}: {answers:#?}");
    }
    assert_eq!(
        answers.iter().filter(|answer| answer.contains("cannot stand in a plan")).count(),
        1,
        "{answers:#?}"
    );
    let name = scene.project.to_string_lossy().into_owned();
    let mut units = scene.engine.store.blocking().unit_ids(&name).expect("reads");
    units.sort_unstable();
    let of = |part: &str, numbers: std::ops::RangeInclusive<u32>| {
        numbers.map(|n| format!("{part}{n}")).collect::<Vec<_>>()
    };
    let expected = [
        of("milestone/m", 1..=2),
        vec!["slice/m1/s1".to_owned(), "slice/m2/s1".to_owned()],
        of("task/m1/s1/t", 1..=6),
        of("task/m2/s1/t", 1..=4),
    ];
    assert_eq!(units, expected.concat(), "nothing was added by what was refused");
    let asked = scene.engine.facts("asked");
    assert_eq!(asked.len(), 1, "the plan's own card: {asked:#?}");
    scene.end();
}

/// Refuses what is hidden, halts at what is worse, asks about what is doubtful, and gives a chapter another name.
const HOOK: &str = r#"read=$(cat)
case "$read" in
  *'"action":null'*) ;;
  *) printf '{"verdict":"deny","reason":"an action"}'; exit ;;
esac
case "$read" in
  *hidden*) printf '{"verdict":"deny","reason":"nothing is hidden here"}' ;;
  *doubtful*) printf '{"verdict":"ask"}' ;;
  *worse*) printf '{"verdict":"halt","reason":"that is enough"}' ;;
  *'find out why'*) printf '{"tool_args":{"name":"by the hook"}}' ;;
esac
"#;

/// Adds to the name that the first hook gives, and would add to it for ever.
const SECOND: &str = r#"read=$(cat)
case "$read" in
  *'"name":"by the hook"'*) printf '{"tool_args":{"name":"by both hooks"}}' ;;
  *'"name":"once"'*) printf '{"tool_args":{"name":"twice"}}' ;;
  *'"name":"twice"'*) printf '{"tool_args":{"name":"thrice"}}' ;;
esac
"#;

fn hook(name: &str, on: HookEvent, tools: &[&str], program: &str) -> Hook {
    let config = HookConfig {
        name: name.to_owned(),
        on,
        run: "hook.sh".to_owned(),
        project: None,
        digest: None,
        tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
        permissions: vec![Permission::Read, Permission::Write],
        timeout_ms: None,
        critical: None,
    };
    Hook { config, program: Ok(Program::new(program.to_owned())) }
}

/// Tools that the harness answers itself pass the owner's hooks as others do, before and after: what one refuses changes no plan, however it
/// is spelt; what one changes is what the next one reads, and is read and judged anew, once; what one wants to ask a person is refused, since nothing of it can be
/// approved; and one may end the turn.
///
/// Rows: SF-574 (in part: the hooks)
/// Rows: SF-209 (in part: there is no tool `send_message` yet)
#[test]
fn needs_userns_needs_git_tools_of_the_harness_pass_the_hooks_of_the_owner() {
    let dir = project("", GATE, SHORT);
    let answers: Notes<String> = Notes::default();
    let answered = Arc::clone(&answers);
    let add = |title: &str| json!({ "change": "add", "unit": "slice/m1/s1", "tasks": titles(&[title]) });
    let mut attempts = 0_usize;
    let script = move |request: &ParsedRequest| {
        let heard = hear(request);
        if heard.part == "Goal" {
            return Reply::text(PLAN);
        }
        attempts += usize::from(heard.unit == TASK && heard.part == "Work" && heard.results == 0);
        if heard.unit != TASK || heard.part != "Work" || attempts > 1 {
            return writes_of(&heard.unit, heard.results);
        }
        if let Some(result) = request.results().next_back() {
            note(&answered, result.text.clone());
        }
        match heard.results {
            0 => changes(add("hidden")),
            // The same word, spelt so that its letters are not in what is sent.
            1 => {
                let text = add("TITLE").to_string().replace("TITLE", "\\u0068idden");
                Reply::default().and_raw_call("plan_unit", text)
            }
            2 => changes(add("doubtful")),
            3 => Reply::call("chapter_open", json!({ "name": "find out why" })),
            4 => changes(add("div")),
            5 => writes("add", "a + b"),
            6 => Reply::call("chapter_open", json!({ "name": "once" })),
            7 => Reply::call("chapter_open", json!({ "name": "worse" })),
            _ => done(),
        }
    };
    let own = ["plan_unit", "chapter_open"];
    let hooks = vec![
        hook("own", HookEvent::BeforeToolCall, &own, HOOK),
        hook("second", HookEvent::BeforeToolCall, &own, SECOND),
        hook("seen", HookEvent::AfterToolCall, &own, ""),
        hook("others", HookEvent::BeforeToolCall, &["file_read"], r#"printf '{"verdict":"deny"}'"#),
    ];
    let shape = |parts: &mut EngineParts| {
        let gates = GateSet::new(vec![GateSet::shipped_gate()]).expect("valid");
        parts.gates = gates.with_hooks(hooks).expect("hooks");
    };
    let scene = scene(dir.path(), TestEngine::priced(shape, |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.run().await;
        let names: Vec<String> = trace(&scene).await.chapters.into_iter().map(|one| one.name).collect();
        assert!(names.iter().any(|name| name == "by both hooks"), "{names:?}");
        assert!(!names.iter().any(|name| name == "find out why" || name == "by the hook"), "{names:?}");
    });
    let answers = noted(&answers);
    for (n, words) in [
        "nothing is hidden here",
        "nothing is hidden here",
        "nothing can be approved",
        "The chapter is open",
        "(div)",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(answers[n].contains(words), "{n}: {answers:#?}");
    }
    assert!(!answers.iter().any(|answer| answer.contains("that is enough")), "the turn ended: {answers:#?}");
    let denied: Vec<(DenyReason, String)> = scene
        .engine
        .facts("denied")
        .into_iter()
        .filter_map(|fact| {
            let Fact::Denied { reason, rule, .. } = fact else { return None };
            matches!(reason, DenyReason::Gate | DenyReason::Halt).then_some((reason, rule))
        })
        .collect();
    let of = |reason, rule: &str| (reason, rule.to_owned());
    let own = of(DenyReason::Gate, "hook own");
    let twice = of(DenyReason::Gate, "tool_args");
    assert_eq!(denied, [own.clone(), own.clone(), own, twice, of(DenyReason::Halt, "hook own")]);
    let hooked: Vec<(String, GateVerdict)> = scene
        .engine
        .facts("hooked")
        .into_iter()
        .filter_map(|fact| {
            let Fact::Hooked { hook, verdict, .. } = fact else { return None };
            Some((hook, verdict))
        })
        .collect();
    use GateVerdict::{Block, Halt, Pass, RequireApproval, Transform};
    let both = |first, second| vec![("own", first), ("second", second)];
    let seen = vec![("seen", Pass)];
    let expected = [
        both(Block, Pass),
        both(Block, Pass),
        both(RequireApproval, Pass),
        both(Transform, Transform),
        both(Pass, Pass),
        seen.clone(),
        both(Pass, Pass),
        seen,
        both(Pass, Transform),
        both(Pass, Transform),
        vec![("own", Halt)],
    ]
    .concat();
    let hooked: Vec<(&str, GateVerdict)> = hooked.iter().map(|(hook, said)| (hook.as_str(), *said)).collect();
    assert_eq!(hooked, expected);
    let name = scene.project.to_string_lossy().into_owned();
    let units = scene.engine.store.blocking().unit_ids(&name).expect("reads");
    assert!(units.contains(&"task/m1/s1/t4".to_owned()), "what no hook minds is added: {units:?}");
    assert!(!units.contains(&"task/m1/s1/t5".to_owned()), "nothing else: {units:?}");
    scene.end();
}
