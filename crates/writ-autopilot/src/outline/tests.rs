use proptest::prelude::*;

use super::*;

const PLAN: &str = "# Plan

Some words of a person.

- [ ] Sign in with OAuth <!-- milestone/m1 priority=2 workflow=feature -->
  All providers, one page.

  A second paragraph.
  - [x] The page <!-- slice/m1/s1 -->
    - [X] The form <!-- task/m1/s1/t1 -->
  - [ ] The server <!-- slice/m1/s2 code_depends_on=m1/s1 -->
    - [ ] Tokens <!-- task/m1/s2/t1 blocked_by=task/m1/s1/t1 -->
        an indented line
    - [ ] A new one -- of mine
";

fn mistake(text: &str) -> (usize, String, String) {
    let error = read_outline(text).unwrap_err();
    assert_eq!(error.report().code, "pilot.plan_file");
    (error.line, error.problem, error.hint)
}

#[test]
fn a_plan_is_read_with_its_levels_fields_and_texts() {
    let items = read_outline(PLAN).unwrap();
    let heads: Vec<(usize, &str, Option<String>, bool)> = items
        .iter()
        .map(|item| {
            (item.line, item.fields.title.as_str(), item.id.map(|id| id.to_string()), item.fields.is_done)
        })
        .collect();
    let id = |text: &str| Some(text.to_owned());
    assert_eq!(
        heads,
        [
            (5, "Sign in with OAuth", id("milestone/m1"), false),
            (9, "The page", id("slice/m1/s1"), true),
            (10, "The form", id("task/m1/s1/t1"), true),
            (11, "The server", id("slice/m1/s2"), false),
            (12, "Tokens", id("task/m1/s2/t1"), false),
            (14, "A new one -- of mine", None, false),
        ]
    );
    assert_eq!(items[0].fields.description, "All providers, one page.\n\nA second paragraph.");
    assert_eq!((items[0].fields.priority, items[0].fields.workflow.as_deref()), (Some(2), Some("feature")));
    assert_eq!(items[3].fields.code_depends_on, BTreeSet::from([UnitId::Slice(1, 1)]));
    assert_eq!(items[4].fields.blocked_by, BTreeSet::from([UnitId::Task(1, 1, 1)]));
    assert_eq!(items[4].fields.description, "  an indented line");
    assert_eq!(read_outline(""), Ok(Vec::new()));
}

/// Rows: SF-065 (a bad file names its line; no row changes, since nothing is returned)
#[test]
fn a_broken_plan_is_refused_with_its_line_and_a_hint() {
    for (text, line, problem, hint) in [
        ("- [ ] A\n    - [ ] B", 2, "a task without the level above it", "add the item"),
        ("  - [ ] A", 1, "a slice without the level above it", "add the item"),
        ("- [ ] A\n - [ ] B", 2, "1 spaces before the item", "slices two"),
        ("- [ ] A\n  - [ ] B\n    - [ ] C\n      - [ ] D", 4, "6 spaces before the item", "tasks four"),
        ("- [ ] A\n\t- [ ] B", 2, "a tab at the beginning", "two spaces"),
        ("- [-] A", 1, "a mark that is neither `[ ]` nor `[x]`", "- [ ]"),
        ("- [ ]", 1, "a title has 1 to 200 bytes", "shorten"),
        ("- [ ] A <!-- milestone/m1", 1, "the comment is not closed at the end of the line", "-->"),
        ("- [ ] A <!-- milestone/m1 --> more", 1, "the comment is not closed at the end of the line", "-->"),
        ("- [ ] A <!-- slice/m1/s1 -->", 1, "slice/m1/s1 is indented as a milestone", "move it back"),
        ("- [ ] A <!-- milestone/m1 milestone/m2 -->", 1, "two ids", "one unit"),
        ("- [ ] A <!-- milestone/m1 prioritty=2 -->", 1, "unknown field 'prioritty'", "'priority'"),
        ("- [ ] A <!-- milestone/m1 priority=5 -->", 1, "priority is one of 1 to 4", "urgent"),
        ("- [ ] A <!-- milestone/m1 blocked_by=m1 -->", 1, "a dependency that is no unit", "blocked_by="),
        (
            "- [ ] A <!-- milestone/m1 -->\n- [ ] B <!-- milestone/m1 -->",
            2,
            "the item above has the same id",
            "leave",
        ),
    ] {
        let (found_line, found, found_hint) = mistake(text);
        assert_eq!((found_line, found.as_str()), (line, problem), "{text}");
        assert!(found_hint.contains(hint), "{found_hint}");
    }
    assert!(mistake("- [ ] A <!-- epic/m1 -->").1.contains("is no unit"));
    let long = format!("- [ ] A\n{}", "  word word word word\n".repeat(2_000));
    assert!(mistake(&long).1.contains("description"));
    assert!(mistake(&"x".repeat(MAX_OUTLINE_BYTES + 1)).1.contains("bytes"));
}

fn fields() -> impl Strategy<Value = OutlineFields> {
    let title = "[a-zA-Zé\\-\\[\\]]{1,12}( [a-z<>!]{1,6}){0,2}";
    // Lines of text; empty ones inside are kept, those at the ends are not.
    let description = "([a-z][a-z \\-\\[\\]]{0,10}[a-z](\n\n?[a-z][a-z]{0,8}){0,3})?";
    (any::<bool>(), title, description, prop::option::of(1..=4_u8), any::<bool>(), any::<bool>()).prop_map(
        |(is_done, title, description, priority, waits, merges)| OutlineFields {
            is_done,
            title: title.trim().to_owned(),
            description,
            priority,
            workflow: waits.then(|| "docs".to_owned()),
            blocked_by: if waits {
                BTreeSet::from([UnitId::Task(9, 9, 9), UnitId::Milestone(3)])
            } else {
                BTreeSet::new()
            },
            code_depends_on: if merges { BTreeSet::from([UnitId::Slice(9, 9)]) } else { BTreeSet::new() },
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_the_same(
        each in prop::collection::vec(fields(), 6),
    ) {
        let ids = [
            UnitId::Milestone(1), UnitId::Slice(1, 1), UnitId::Task(1, 1, 1), UnitId::Task(1, 1, 2),
            UnitId::Slice(1, 2), UnitId::Milestone(2),
        ];
        let units: Vec<(UnitId, OutlineFields)> = ids.into_iter().zip(each).collect();
        let text = write_outline(&units);
        let read = read_outline(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        let read: Vec<(UnitId, OutlineFields)> = read.into_iter().map(|item| (item.id.unwrap(), item.fields)).collect();
        prop_assert_eq!(read, units, "{}", text);
    }

    #[test]
    fn reading_never_panics(text in "([ \t\\-\\[\\]xé<>!=/]|task|m1|priority|\n){0,60}") {
        let _ = read_outline(&text);
    }
}
