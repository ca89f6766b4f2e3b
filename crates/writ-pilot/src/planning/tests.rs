use writ_autopilot::outline::OutlineError;
use writ_types::unit::{MicroUsd, Timestamp};

use super::*;

const PLAN: &str = "- [ ] Sign in <!-- milestone/m1 -->
  - [x] The page <!-- slice/m1/s1 priority=2 -->
    Why.

    **Acceptance:**
    * an unknown visitor is sent to it
      and comes back
    - `npm test` passes
    - [ ] The form <!-- task/m1/s1/t1 -->
      Its fields.
    - [ ] Its errors <!-- task/m1/s1/t2 blocked_by=task/m1/s1/t1 -->
      Acceptance:
      * a wrong password shows one
  - [ ] The callback <!-- slice/m1/s2 code_depends_on=m1/s1 blocked_by=slice/m1/s1 -->
    Acceptance:
    * a wrong state is refused
    - [ ] The handler <!-- workflow=bugfix -->
";

fn ids(plan: &GoalPlan) -> Vec<String> {
    plan.units.iter().map(|unit| unit.id.to_string()).collect()
}

#[test]
fn an_answer_in_prose_a_block_or_a_list_gives_the_same_units() {
    let plain = read_goal_plan(PLAN).unwrap();
    let expected =
        ["milestone/m1", "slice/m1/s1", "task/m1/s1/t1", "task/m1/s1/t2", "slice/m1/s2", "task/m1/s2/t1"];
    assert_eq!(ids(&plain), expected);
    let indented: String = PLAN.lines().map(|line| format!("   {line}\n")).collect();
    for answer in [
        format!("Here it is:\n\n```markdown\n{PLAN}```\nI hope that helps."),
        format!("~~~\n{PLAN}~~~"),
        format!("````\n{PLAN}````\n\n```sh\nnpm test\n```"),
        format!("1. The plan:\n\n   ```\n{indented}   ```\n"),
        format!("Sure.\r\n```\r\n{}```\r\n", PLAN.replace('\n', "\r\n")),
        format!("Prose - [ ] that is no item.\n\n{PLAN}\nMore prose."),
    ] {
        assert_eq!(read_goal_plan(&answer).unwrap(), plain, "{answer}");
    }
    let slice = &plain.units[1];
    assert_eq!((slice.title.as_str(), slice.priority), ("The page", Some(2)));
    assert_eq!(
        plain.acceptance[&slice.id],
        ["an unknown visitor is sent to it and comes back", "`npm test` passes"]
    );
    assert_eq!(plain.acceptance[&UnitId::Task(1, 1, 2)], ["a wrong password shows one"]);
    assert_eq!(plain.acceptance.len(), 3);
    assert_eq!(plain.units[5].workflow.as_deref(), Some("bugfix"));
    assert_eq!(plain.units[4].code_depends_on, [UnitId::Slice(1, 1)].into());
}

#[test]
fn a_goal_gets_the_next_free_milestone_and_its_dependencies_follow() {
    assert_eq!(next_milestone([]), 1);
    let taken = [UnitId::Task(0, 0, 9), UnitId::Task(4, 1, 1), UnitId::Milestone(2)];
    assert_eq!(next_milestone(taken), 5);
    let plan = read_goal_plan(PLAN).unwrap().renumber_units(5).unwrap();
    let expected =
        ["milestone/m5", "slice/m5/s1", "task/m5/s1/t1", "task/m5/s1/t2", "slice/m5/s2", "task/m5/s2/t1"];
    assert_eq!(ids(&plan), expected);
    assert_eq!(plan.units[3].blocked_by, [UnitId::Task(5, 1, 1)].into());
    assert_eq!(plan.units[4].blocked_by, [UnitId::Slice(5, 1)].into());
    assert_eq!(plan.units[4].code_depends_on, [UnitId::Slice(5, 1)].into());
    assert!(plan.acceptance.contains_key(&UnitId::Slice(5, 2)));
    assert_eq!(check_units(&plan.units), Ok(()));
    // Ids that a planner counts on from the project's own are names like all others.
    let counted = PLAN.replace("m1", "m7").replace("s2", "s9");
    assert_eq!(read_goal_plan(&counted).unwrap().renumber_units(5).unwrap(), plan);
    let same = read_goal_plan(PLAN).unwrap();
    assert_eq!(same.clone().renumber_units(1).unwrap(), same);
    assert_eq!(same.clone().renumber_units(0), Err(NoMilestoneLeft));
    assert_eq!(same.clone().renumber_units(10_000_000), Err(NoMilestoneLeft));
    assert!(same.renumber_units(9_999_999).is_ok());
}

/// Rows: SF-019
/// Rows: SF-236 (in part: unknown and cyclic references are refused at plan time)
#[test]
fn a_mistake_is_a_question_with_its_line() {
    let change = |from: &str, to: &str| {
        let answer = format!("Plan:\n```\n{}```\n", PLAN.replacen(from, to, 1));
        let error = read_goal_plan(&answer).unwrap_err();
        assert_eq!(error.report().exit, Exit::Model);
        assert!(!error.hint.is_empty());
        let question = next_question(0, &error).unwrap();
        assert!(
            question.contains(&format!("Line {}", error.line)) && question.contains(&error.hint),
            "{question}"
        );
        if !error.quoted.is_empty() {
            // The quoted line is the one of the answer with this number.
            let line = answer.lines().nth(error.line - 1).unwrap().trim();
            assert!(line.starts_with(&error.quoted), "{line} {}", error.quoted);
        }
        (error.line, error.problem)
    };
    let cases = [
        ("priority=2", "priority=9", 4, "priority is one of 1 to 4"),
        ("  - [x] The page", " - [x] The page", 4, "1 spaces before the item"),
        (
            "blocked_by=task/m1/s1/t1",
            "blocked_by=task/m1/s1/t9",
            13,
            "it waits for task/m1/s1/t9, which is no unit of this plan",
        ),
        (
            "code_depends_on=m1/s1",
            "code_depends_on=m3/s1",
            16,
            "it waits for slice/m3/s1, which is no unit of this plan",
        ),
        ("slice/m1/s1 priority=2", "slice/m1/s1 blocked_by=slice/m1/s2", 4, "wait for one another"),
        ("blocked_by=slice/m1/s1", "blocked_by=milestone/m1", 16, "one of them is a part of the other"),
        ("task/m1/s1/t2 ", "task/m1/s1/t1 ", 13, "the item above has the same id"),
        ("slice/m1/s2", "slice/m1/s1", 16, "another item is slice/m1/s1 already"),
        ("task/m1/s1/t1 ", "task/m1/s2/t1 ", 11, "lies below another unit"),
        ("    **Acceptance:**\n", "", 4, "the slice 'The page' has no acceptance checks"),
        ("    * a wrong state is refused\n", "", 16, "the slice 'The callback' has no acceptance checks"),
        ("    - [ ] The handler <!-- workflow=bugfix -->\n", "", 16, "it has no task"),
        ("    * a wrong state is refused\n", &"    * x\n".repeat(21), 16, "more than 20 acceptance checks"),
        ("an unknown visitor", &"x".repeat(501), 4, "one of more than 500 characters"),
    ];
    for (from, to, line, problem) in cases {
        let (seen, message) = change(from, to);
        assert_eq!(seen, line, "{message}");
        assert!(message.contains(problem), "{message}");
    }
    // Without a mistake each id has the pattern of its level, and lies below the unit that it names.
    let plan = read_goal_plan(PLAN).unwrap();
    for unit in &plan.units {
        let text = unit.id.to_string();
        let (kind, numbers) = text.split_once('/').unwrap();
        let letters: Vec<char> = numbers.split('/').map(|part| part.chars().next().unwrap()).collect();
        let expected = ["m", "ms", "mst"].into_iter().zip(["milestone", "slice", "task"]);
        let named: Vec<&str> = expected
            .filter(|(all, _)| all.chars().eq(letters.iter().copied()))
            .map(|(_, name)| name)
            .collect();
        assert_eq!(named, [kind], "{text}");
        let parent = unit.id.parent();
        assert!(parent.is_none() || plan.units.iter().any(|other| Some(other.id) == parent), "{text}");
    }
}

#[test]
fn answers_without_a_usable_plan_are_refused() {
    let cut = format!("```\n{PLAN}");
    let twice = format!("```\n{PLAN}```\n\n```\n{PLAN}```\n");
    let many_milestones: String =
        (1..=11).map(|n| format!("- [ ] m{n}\n  - [ ] s\n    Acceptance:\n    * a\n    - [ ] t\n")).collect();
    let many =
        format!("- [ ] m\n  - [ ] s\n    Acceptance:\n    * a\n{}", "    - [ ] t\n".repeat(MAX_GOAL_UNITS));
    let large = "x".repeat(MAX_ANSWER_BYTES + 1);
    for (answer, problem) in [
        ("", "it has no item"),
        ("I cannot plan that.", "it has no item"),
        (cut.as_str(), "the block with the plan is not closed"),
        (twice.as_str(), "a second block with a plan"),
        (many_milestones.as_str(), "11 milestones; at most 10"),
        (many.as_str(), "202 units; at most 200"),
        (large.as_str(), "more than 524288 bytes"),
        ("- [ ] alone", "it has no slice"),
        ("- [?] what", "neither `[ ]` nor `[x]`"),
    ] {
        let error = read_goal_plan(answer).unwrap_err();
        assert!(error.problem.contains(problem), "{}", error.problem);
    }
}

#[test]
fn the_planner_is_asked_again_twice() {
    let error = read_goal_plan("no").unwrap_err();
    let asked: Vec<bool> = (0..4).map(|retries| next_question(retries, &error).is_some()).collect();
    assert_eq!(asked, [true, true, false, false]);
    // A quotation cannot end its own quotation marks.
    let error = PlanningError { quoted: String::new(), ..error };
    assert!(next_question(0, &error).unwrap().starts_with("Line 1: it has no item"));
}

#[test]
fn the_card_shows_the_tasks_with_their_checks() {
    let plan = read_goal_plan(PLAN).unwrap().renumber_units(3).unwrap();
    let budget = WorkBudget { max_cost: Some(MicroUsd::new(5_000_000)), ..WorkBudget::default() };
    let document = plan.make_document("add sign-in\n# What to do\n```", WorkKind::Project, budget);
    writ_plan::check::check_plan(&document).unwrap();
    assert_eq!((document.id.as_str(), document.title.as_str()), ("m3-sign-in", "Sign in"));
    assert_eq!((document.kind, document.budget), (WorkKind::Project, budget));
    let steps: Vec<(&str, &str)> =
        document.steps.iter().map(|step| (step.id.as_str(), step.title.as_str())).collect();
    assert_eq!(steps, [("m3-s1-t1", "The form"), ("m3-s1-t2", "Its errors"), ("m3-s2-t1", "The handler")]);
    assert!(document.steps[0].instructions.ends_with(
        "Its fields.\n\nAcceptance:\n* an unknown visitor is sent to it and comes back\n* `npm test` passes"
    ));
    assert_eq!(document.steps[1].instructions.matches("Acceptance").count(), 1);
    assert!(document.steps[1].instructions.contains("a wrong password shows one"));
    let after: Vec<Vec<&str>> =
        document.steps.iter().map(|step| step.after.iter().map(String::as_str).collect()).collect();
    assert_eq!(after, [vec![], vec!["m3-s1-t1"], vec!["m3-s1-t1", "m3-s1-t2"]]);
    assert!(document.instructions.contains("- The callback (slice/m3/s2)\n  - a wrong state is refused"));
    // A slice without tasks is one unit of work, and a person signs what is to be done there.
    let mut bare = plan.clone();
    bare.units.retain(|unit| unit.id.parent() != Some(UnitId::Slice(3, 2)));
    let document = bare.make_document("x", WorkKind::Task, budget);
    writ_plan::check::check_plan(&document).unwrap();
    let last = document.steps.last().unwrap();
    assert_eq!((last.id.as_str(), last.title.as_str()), ("m3-s2", "The callback"));
    assert!(last.instructions.contains("a wrong state is refused"), "{}", last.instructions);
    // The largest plan is a document, too.
    let tasks = "    - [ ] t\n".repeat(MAX_GOAL_UNITS - 2);
    let title = "é".repeat(100);
    let large =
        read_goal_plan(&format!("- [ ] {title}\n  - [ ] s\n    Acceptance:\n    * a\n{tasks}")).unwrap();
    writ_plan::check::check_plan(&large.make_document("x", WorkKind::Task, budget)).unwrap();
}

#[test]
fn the_plan_of_the_project_is_read_as_it_is_written() -> Result<(), OutlineError> {
    let first = read_goal_plan(PLAN).unwrap();
    let second = read_goal_plan(PLAN).unwrap().renumber_units(2).unwrap();
    let mut archived = first.units[5].clone();
    archived.id = UnitId::Task(1, 2, 2);
    archived.archived_at = Some(Timestamp::from_millis(1));
    let done = UnitId::Task(1, 1, 1);
    // In any order of the store.
    let all: Vec<&PilotUnit> =
        second.units.iter().chain([&archived]).chain(first.units.iter().rev()).collect();
    let text = write_plan(all.into_iter().map(|unit| (unit, unit.id == done)));
    let items = read_outline(&text)?;
    let read: Vec<(UnitId, bool)> =
        items.iter().map(|item| (item.id.unwrap(), item.fields.is_done)).collect();
    let expected: Vec<(UnitId, bool)> =
        first.units.iter().chain(&second.units).map(|unit| (unit.id, unit.id == done)).collect();
    assert_eq!(read, expected);
    for (item, unit) in items.iter().zip(first.units.iter().chain(&second.units)) {
        assert_eq!((&item.fields.title, &item.fields.description), (&unit.title, &unit.description));
        assert_eq!(
            (&item.fields.blocked_by, &item.fields.code_depends_on),
            (&unit.blocked_by, &unit.code_depends_on)
        );
        assert_eq!((item.fields.priority, &item.fields.workflow), (unit.priority, &unit.workflow));
    }
    Ok(())
}

#[test]
fn a_description_gives_and_protects_paths() {
    let text = "Bring CI up to date.\n\nMay change:\n* `.github/workflows/ci.yml` for the new job\n- conftest.py, since it is needed\n*\n\nLeave alone:\n* tests/test_a.py\n\nAcceptance:\n* it passes\n";
    assert_eq!(read_allowed_paths(text), [".github/workflows/ci.yml", "conftest.py"]);
    assert_eq!(read_kept_paths(text), ["tests/test_a.py"]);
    assert_eq!(read_acceptance(text), ["it passes"]);
    assert!(read_allowed_paths("It may change: .github\n* .github").is_empty(), "a sentence is no heading");
}
