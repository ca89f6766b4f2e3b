use std::fmt::Write as _;

use proptest::prelude::*;
use writ_types::unit::MicroUsd;

use super::*;
use crate::order::order_steps;
use crate::write::write_plan;

const TASK: &str = include_str!("golden/task.md");
const PROJECT: &str = include_str!("golden/project.md");
const GOAL: &str = include_str!("golden/goal.md");

fn read(text: &str) -> PlanDocument {
    read_plan(text).unwrap_or_else(|error| panic!("{error}"))
}

/// The examples of a document: what stands in its blocks of Markdown.
fn examples(document: &str) -> Vec<&str> {
    let blocks = document.split("\n```markdown\n").skip(1);
    blocks.map(|block| block.split_once("\n```").expect("the block is closed").0).collect()
}

/// The plans of the guide and of the reference are read, one of each kind among them; a broken one would be noticed.
///
/// Rows: SIL-285
#[test]
fn the_plans_of_the_documents_are_read() {
    let reference = include_str!("../../../../docs/reference/plans.md");
    let guide = include_str!("../../../../docs/guides/work.md");
    let read_all = |text: &str| examples(text).into_iter().map(read_plan).collect::<Result<Vec<_>, _>>();
    let kinds: Vec<WorkKind> =
        read_all(reference).expect("all are plans").iter().map(|plan| plan.kind).collect();
    assert_eq!(kinds, [WorkKind::Task, WorkKind::Project, WorkKind::Goal]);
    assert_eq!(read_all(guide).expect("all are plans").len(), 1);
    for broken in [
        ("type: goal", "type: gaol"),
        ("on_failure: spawn_task", "on_failure: panic"),
        ("    title: Build\n", ""),
    ] {
        assert!(reference.contains(broken.0), "{broken:?}");
        assert!(read_all(&reference.replace(broken.0, broken.1)).is_err(), "{broken:?}");
    }
}

/// Rows: SIL-053 SIL-054 SIL-055 SIL-056
/// Rows: SIL-051 (in part: names of skills are not compared with skills, of which there are none yet)
#[test]
fn the_sample_plan_is_read_as_a_work_item() {
    let plan = read(TASK);
    assert_eq!(
        (plan.id.as_str(), plan.kind, plan.title.as_str()),
        ("task-6f1c", WorkKind::Task, "Retry failed downloads")
    );
    assert_eq!(
        (plan.skills.as_slice(), plan.on_stuck),
        (&["coding".to_owned()][..], OnStuck::ConsultPlanner)
    );
    let budget = WorkBudget {
        max_tokens: Some(Tokens::new(200_000)),
        max_cost: Some(MicroUsd::new(2_000_000)),
        max_attempts: None,
    };
    assert_eq!(plan.budget, budget);
    let [check] = plan.checks.as_slice() else { panic!("one check") };
    assert_eq!((check.name.as_str(), check.run.join("|")), ("tests_pass", "pytest|tests/|-x".to_owned()));
    assert_eq!(check.expect, [Predicate::ExitCode { code: 0 }]);
    assert!(plan.context.starts_with("Downloads fail") && plan.instructions.starts_with("Add a retry"));
    assert!(crate::run::run_steps(&plan)[0].instructions.contains("Add a retry"), "the executor's text");
    for (from, to, named) in [
        ("---\nid: task-6f1c", "id: task-6f1c", "no front matter"),
        ("id: task-6f1c\n", "", "'id' is missing"),
        ("type: task\n", "", "'type' is missing"),
        ("title: Retry failed downloads\n", "", "'title' is missing"),
        ("type: task", "type: epic", "type: 'epic'"),
        ("type: task", "type: pilot", "type: a plan of the autopilot is not written as a document"),
        ("on_stuck: consult_planner", "on_stuck: panic", "on_stuck: 'panic'"),
        ("max_tokens: 200000", "max_tokens: -1", "budget.max_tokens"),
        ("max_cost_usd: 2.00", "max_cost_usd: two", "budget.max_cost_usd"),
        ("    expect: { exit_code: 0 }\n", "", "verify.0: the check expects nothing"),
        ("# What to do", "# What was done", "What"),
    ] {
        assert!(TASK.contains(from), "{from}");
        let error = read_plan(&TASK.replace(from, to)).expect_err(to);
        assert!(error.to_string().contains(named), "{from}: {error}");
    }
}

/// The documents of all kinds, as they are read and as they are written.
#[test]
fn plans_are_read_and_written() {
    for (name, text) in [("task", TASK), ("project", PROJECT), ("goal", GOAL)] {
        let plan = read(text);
        let written = write_plan(&plan);
        assert_eq!(read(&written), plan, "{written}");
        insta::assert_snapshot!(name, written);
        let json = serde_json::to_string(&plan).expect("is JSON");
        assert_eq!(serde_json::from_str::<PlanDocument>(&json).expect("is a plan"), plan);
    }
    assert_eq!(order_steps(&read(PROJECT).steps).expect("has an order"), [0, 1, 2]);
}

/// Each mistake with its line and its hint.
///
/// Rows: SIL-055 SIL-056 SIL-189 (in part: a mistake is refused where it stands)
#[test]
fn mistakes_are_named_with_line_and_hint() {
    let mut reports = String::new();
    for case in include_str!("golden/mistakes.txt").split("=== ").filter(|case| !case.is_empty()) {
        let (name, text) = case.split_once('\n').expect("a name and a text");
        let error = read_plan(text).expect_err(name);
        assert!(error.line.is_some(), "{name}: {error}");
        writeln!(reports, "{name}\n    {}", error.model_message()).expect("a text");
    }
    insta::assert_snapshot!("mistakes", reports);
}

#[test]
fn ten_plans_and_a_megabyte_are_refused() {
    let ten = TASK.repeat(10);
    let error = read_plan(&ten).expect_err("ten plans");
    assert_eq!(error.problem, PlanProblem::Several { count: 10 });
    let large = format!("{TASK}{}", "a\n".repeat(500_000));
    let error = read_plan(&large).expect_err("too large");
    assert!(matches!(error.problem, PlanProblem::TooLarge { bytes, .. } if bytes > 1_000_000));
    let many = "  - { id: a, title: T, do: x }\n".repeat(MAX_STEPS + 1);
    let text = format!("---\nid: a\ntype: project\ntitle: T\nsteps:\n{many}---\n# What to do\nx\n");
    assert!(matches!(read_plan(&text).expect_err("too many").problem, PlanProblem::TooMany { .. }));
}

#[test]
fn a_rule_in_the_prose_is_no_second_plan() {
    let text =
        TASK.replace("Add a retry", "First.\n\n---\n\nThen:\n\n```yaml\n---\nid: x\n```\n\nAdd a retry");
    assert!(read(&text).instructions.contains("id: x"));
    let windows = TASK.replace('\n', "\r\n");
    assert_eq!(read(&format!("\u{feff}{windows}")), read(TASK));
}

fn word() -> impl Strategy<Value = String> {
    "[ -~é]{0,12}[a-z\"'#:{}]"
}

fn any_check() -> impl Strategy<Value = Check> {
    let predicate = prop_oneof![
        any::<i32>().prop_map(|code| Predicate::ExitCode { code }),
        "\\PC{1,20}(\n\\PC{0,9})?".prop_map(|text| Predicate::Equals { text }),
        word().prop_map(|text| Predicate::Contains { text }),
        Just(Predicate::NotEmpty),
        (-99..99_i32).prop_map(|n| Predicate::OutputLt { limit: n.to_string() }),
        any::<i64>().prop_map(|n| Predicate::Json {
            path: "$.a".into(),
            value: JsonExpectation::Equals {
                value: serde_json::json!([n, n.to_string(), {"k y": null}, true])
            },
        }),
    ];
    let arguments = proptest::collection::vec("[!-~]{1,5}[ -~\n\t]{0,5}", 1..4);
    (arguments, proptest::collection::vec(predicate, 1..4), proptest::option::of(1..3_600_u32)).prop_map(
        |(run, expect, timeout_secs)| Check { name: "check".into(), run, dir: None, timeout_secs, expect },
    )
}

fn any_plan() -> impl Strategy<Value = PlanDocument> {
    let step =
        (word(), "[ -~\n]{0,40}[a-z]", proptest::option::of(any_check()), proptest::option::of(word()));
    let steps = proptest::collection::vec(step, 0..4);
    let budget = (proptest::option::of(any::<u64>()), proptest::option::of(any::<u32>()));
    (
        "[a-z][a-z0-9-]{0,9}",
        word(),
        steps,
        budget,
        "[a-zA-Z][ -~\n]{0,60}[a-z]",
        proptest::option::of(any_check()),
    )
        .prop_map(|(id, title, steps, (tokens, cost), text, check)| {
            let steps = (0_usize..).zip(steps).map(|(n, (title, text, check, argument))| WorkStep {
                id: format!("s{n}"),
                title: title.trim().to_owned(),
                instructions: text,
                after: if n > 0 { vec!["s0".into()] } else { Vec::new() },
                checks: check.into_iter().collect(),
                calls: argument
                    .into_iter()
                    .map(|value| PlannedCall {
                        tool: "message_send".into(),
                        arguments: serde_json::Map::from_iter([(value.clone(), Value::String(value))]),
                        times: 1,
                        free: Some(Free::Content),
                    })
                    .collect(),
                ..WorkStep::default()
            });
            PlanDocument {
                id,
                kind: WorkKind::Task,
                title: title.trim().to_owned(),
                skills: Vec::new(),
                budget: WorkBudget {
                    max_tokens: tokens.map(Tokens::new),
                    max_cost: cost.map(|cost| MicroUsd::new(cost.into())),
                    max_attempts: None,
                },
                steps: steps.collect(),
                checks: check.into_iter().collect(),
                gates: Vec::new(),
                on_stuck: OnStuck::Stop,
                interaction: None,
                cycle: None,
                context: String::new(),
                instructions: text,
            }
        })
}

proptest! {
    /// A plan that meets the rules is the same after writing and reading.
    #[test]
    fn what_is_written_is_read_again(plan in any_plan()) {
        prop_assume!(check_plan(&plan).is_ok());
        let text = write_plan(&plan);
        let read = read_plan(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(read, plan, "{}", text);
    }

    /// No change of a document makes the reader panic, and what it accepts meets the rules.
    #[test]
    fn a_changed_document_is_read_or_refused(at in 0..PROJECT.len(), len in 0_usize..40, new in "[-a-z:#\\[\\]{}\"'|\n ]{0,8}") {
        let end = (at + len).min(PROJECT.len());
        let text = format!("{}{new}{}", &PROJECT[..at], &PROJECT[end..]);
        match read_plan(&text) {
            Ok(plan) => prop_assert!(check_plan(&plan).is_ok()),
            Err(error) => prop_assert!(error.line.is_some_and(|line| line >= 1), "{error}"),
        }
    }
}
