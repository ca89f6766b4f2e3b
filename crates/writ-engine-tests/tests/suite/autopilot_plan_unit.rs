//! Changes of a plan that its agents ask for while they work.

use std::sync::Arc;

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply};

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
/// Rows: SF-574 (in part: no hook is asked, since no action follows from it)
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
