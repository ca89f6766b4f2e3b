//! The `plan.md` of one unit: written in the phase plan, read by all later ones.

use std::collections::BTreeMap;

use writ_types::error::{Exit, Report, ToReport};
use writ_types::unit::Timestamp;

use crate::unit_id::UnitId;

/// The largest `plan.md` of a unit, in bytes.
pub const MAX_UNIT_PLAN_BYTES: usize = 256 * 1024;
/// The headings, all of which must be there (SF 14.5).
const HEADINGS: [&str; 5] = ["Goal", "Approach", "Deliverables", "Verification", "Notes"];
/// The keys of the front matter.
const KEYS: [&str; 4] = ["unit_id", "created_at", "written_by", "plan_version"];
/// The longest quotation in a message, in characters.
const MAX_SHOWN_CHARS: usize = 60;

/// A unit's plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitPlan {
    /// The unit.
    pub unit_id: UnitId,
    /// The time at which it was written.
    pub created_at: Timestamp,
    /// The model that wrote it.
    pub written_by: String,
    /// From one on; rises with each new plan.
    pub plan_version: u32,
    /// The texts below the headings, by heading.
    pub sections: BTreeMap<&'static str, String>,
    /// The items of the checklist of deliverables, each with true if it is ticked.
    pub deliverables: Vec<(bool, String)>,
}

/// A mistake in a unit's plan: the phase plan is not left with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("plan.md, line {line}: {problem}")]
pub struct UnitPlanError {
    /// The line, counted from one.
    pub line: usize,
    /// The mistake, with the field or heading.
    pub problem: String,
}

impl ToReport for UnitPlanError {
    fn report(&self) -> Report {
        let headings = HEADINGS.map(|heading| format!("`# {heading}`")).join(", ");
        let hint =
            format!("begin with `---`, the keys {}, `---`, then the headings {headings}", KEYS.join(", "));
        Report::new(Exit::Model, "pilot.unit_plan", self.to_string()).with_hint(hint)
    }
}

fn fail<T>(line: usize, problem: impl Into<String>) -> Result<T, UnitPlanError> {
    Err(UnitPlanError { line, problem: problem.into() })
}

/// Reads the plan of a unit.
///
/// # Errors
///
/// The first mistake: a missing or wrong field, a missing heading, an empty goal, no deliverable.
pub fn read_unit_plan(text: &str, unit: UnitId) -> Result<UnitPlan, UnitPlanError> {
    if text.len() > MAX_UNIT_PLAN_BYTES {
        return fail(1, format!("it has more than {MAX_UNIT_PLAN_BYTES} bytes"));
    }
    let mut lines = (1..).zip(text.lines().map(str::trim_end));
    if lines.next().map(|(_, line)| line) != Some("---") {
        return fail(1, "it does not begin with front matter: a line `---`");
    }
    let mut fields: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    // Without a second line `---`, the whole text would be front matter.
    let mut is_closed = false;
    for (line, text) in lines.by_ref() {
        if text == "---" {
            is_closed = true;
            break;
        }
        let Some((key, value)) = text.split_once(':') else {
            return fail(line, "a line of the front matter is no `key: value`");
        };
        let value = value.trim().trim_matches('"');
        if fields.insert(key.trim(), (line, value)).is_some() {
            return fail(line, format!("'{}' is there twice", cut(key)));
        }
    }
    if !is_closed {
        return fail(1, "the front matter is not closed by a second line `---`");
    }
    if let Some((key, (line, _))) = fields.iter().find(|(key, _)| !KEYS.contains(key)) {
        return fail(*line, format!("unknown key '{}'", cut(key)));
    }
    let (sections, places) = read_sections(lines)?;
    let plan = UnitPlan {
        unit_id: read_field(&fields, "unit_id", |value| value.parse().ok().filter(|id| *id == unit))?,
        created_at: read_field(&fields, "created_at", Timestamp::from_rfc_3339)?,
        written_by: read_field(&fields, "written_by", |value| (!value.is_empty()).then(|| cut(value)))?,
        plan_version: read_field(&fields, "plan_version", |value| value.parse().ok().filter(|n| *n > 0))?,
        deliverables: read_checklist(sections.get("Deliverables").map_or("", String::as_str)),
        sections,
    };
    // The other three sections may be empty, but their headings must be there.
    let line_of = |heading: &str| places.get(heading).copied().unwrap_or(1);
    if plan.sections.get("Goal").is_none_or(|goal| goal.trim().is_empty()) {
        return fail(line_of("Goal"), "`# Goal` is empty");
    }
    if plan.deliverables.is_empty() {
        return fail(line_of("Deliverables"), "`# Deliverables` has no item `- [ ] …`");
    }
    Ok(plan)
}

/// Returns the text of a plan that was read, with another version in its front matter: the harness counts new plans, not a model.
pub fn set_plan_version(text: &str, version: u32) -> String {
    let mut is_set = false;
    let lines = text.split_inclusive('\n').map(|line| {
        let is_version = !is_set && line.split_once(':').is_some_and(|(key, _)| key.trim() == "plan_version");
        is_set |= is_version;
        if is_version { format!("plan_version: {version}\n") } else { line.to_owned() }
    });
    lines.collect()
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn read_field<T>(
    fields: &BTreeMap<&str, (usize, &str)>,
    key: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<T, UnitPlanError> {
    let Some((line, value)) = fields.get(key) else { return fail(1, format!("'{key}' is missing")) };
    read(value).map_or_else(|| fail(*line, format!("'{}' is no right value of '{key}'", cut(value))), Ok)
}

/// The texts below the headings, and the line of each heading.
type Sections = (BTreeMap<&'static str, String>, BTreeMap<&'static str, usize>);

/// Reads the text below each heading. Other headings of the first level are part of the section that they are in.
fn read_sections<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Result<Sections, UnitPlanError> {
    let (mut sections, mut places): Sections = Default::default();
    let (mut current, mut is_code, mut last) = (None, false, 1);
    for (line, text) in lines {
        last = line;
        // A `# comment` inside a block of code is no heading.
        is_code ^= text.trim_start().starts_with("```");
        let heading = text.strip_prefix("# ").map(str::trim).filter(|_| !is_code);
        if let Some(found) = heading.and_then(|text| HEADINGS.into_iter().find(|known| *known == text)) {
            if sections.insert(found, String::new()).is_some() {
                return fail(line, format!("`# {found}` is there twice"));
            }
            places.insert(found, line);
            current = Some(found);
        } else if let Some(section) = current.and_then(|heading| sections.get_mut(heading)) {
            section.push_str(text);
            section.push('\n');
        }
    }
    match HEADINGS.into_iter().find(|heading| !sections.contains_key(heading)) {
        Some(missing) => fail(last, format!("`# {missing}` is missing")),
        None => Ok((sections, places)),
    }
}

fn read_checklist(text: &str) -> Vec<(bool, String)> {
    let read = |line: &str| {
        let line = line.trim_start();
        let open = line.strip_prefix("- [ ] ").map(|item| (false, item));
        let done =
            || line.strip_prefix("- [x] ").or_else(|| line.strip_prefix("- [X] ")).map(|item| (true, item));
        open.or_else(done).map(|(mark, item)| (mark, item.trim().to_owned()))
    };
    text.lines().filter_map(read).filter(|(_, item)| !item.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAN: &str = "---\nunit_id: task/m1/s1/t1\ncreated_at: 2026-03-01T12:00:00Z\nwritten_by: \"a-model\"\n\
        plan_version: 2\n---\n\n# Goal\nA form.\n\n# Approach\n```sh\n# Notes are no heading here\n```\n\
        # Deliverables\n- [ ] the form\n- [x] its test\n- no item\n# Verification\ncargo test\n# Notes\n";

    const UNIT: UnitId = UnitId::Task(1, 1, 1);

    /// Rows: SF-331 SF-332 (what is read; the phase: the machine's conditions)
    #[test]
    fn a_plan_has_its_fields_and_sections() {
        let plan = read_unit_plan(PLAN, UNIT).unwrap();
        assert_eq!((plan.unit_id, plan.plan_version, plan.written_by.as_str()), (UNIT, 2, "a-model"));
        assert_eq!(plan.created_at.to_string(), "2026-03-01T12:00:00.000Z");
        assert_eq!(plan.sections.len(), 5);
        assert_eq!(plan.sections["Goal"], "A form.\n\n");
        assert!(plan.sections["Approach"].contains("# Notes are no heading here"));
        assert_eq!(plan.deliverables, [(false, "the form".to_owned()), (true, "its test".to_owned())]);
    }

    /// The version of a plan is set in its front matter alone, and every other line stays as it is.
    #[test]
    fn the_version_of_a_plan_is_the_harness_s() {
        let text = format!("{PLAN}\nplan_version: 2\n");
        let set = set_plan_version(&text, 3);
        assert_eq!(read_unit_plan(&set, UNIT).unwrap().plan_version, 3);
        assert_eq!(set, text.replacen("plan_version: 2", "plan_version: 3", 1));
    }

    /// Rows: SF-333 (what is refused)
    #[test]
    fn a_plan_with_a_mistake_names_its_line_and_the_field() {
        let mistake = |from: &str, to: &str| {
            let text = PLAN.replacen(from, to, 1);
            assert_ne!(text, PLAN);
            let error = read_unit_plan(&text, UNIT).unwrap_err();
            assert!(error.report().hint.contains("# Deliverables"));
            (error.line, error.problem)
        };
        let seen = |line: usize, problem: &str| (line, problem.to_owned());
        for key in KEYS {
            let row = PLAN.lines().find(|line| line.starts_with(key)).unwrap();
            assert_eq!(mistake(&format!("{row}\n"), ""), seen(1, &format!("'{key}' is missing")));
        }
        assert_eq!(
            mistake("plan_version: 2", "plan_version: x"),
            seen(5, "'x' is no right value of 'plan_version'")
        );
        assert_eq!(
            mistake("plan_version: 2", "plan_version: 0"),
            seen(5, "'0' is no right value of 'plan_version'")
        );
        assert_eq!(
            mistake("task/m1/s1/t1", "task/m1/s1/t2"),
            seen(2, "'task/m1/s1/t2' is no right value of 'unit_id'")
        );
        assert_eq!(
            mistake("2026-03-01T", "01.03.2026 "),
            seen(3, "'01.03.2026 12:00:00Z' is no right value of 'created_at'")
        );
        assert_eq!(mistake("written_by", "author: a\nwritten_by"), seen(4, "unknown key 'author'"));
        assert_eq!(
            mistake("---\nunit_id", "unit_id"),
            seen(1, "it does not begin with front matter: a line `---`")
        );
        assert_eq!(mistake("2\n---", "2\n----"), seen(6, "a line of the front matter is no `key: value`"));
        for heading in HEADINGS {
            let (_, problem) = mistake(&format!("\n# {heading}\n"), "\n");
            assert_eq!(problem, format!("`# {heading}` is missing"));
        }
        assert_eq!(mistake("A form.", ""), seen(8, "`# Goal` is empty"));
        assert_eq!(
            mistake("- [ ] the form\n- [x] its test\n", ""),
            seen(15, "`# Deliverables` has no item `- [ ] …`")
        );
        assert_eq!(mistake("# Notes\n", "# Notes\n# Goal\n").1, "`# Goal` is there twice");
        assert!(read_unit_plan(&"x".repeat(MAX_UNIT_PLAN_BYTES + 1), UNIT).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn reading_never_panics(text in "(---\n|# Goal|# |- \\[ \\] |unit_id: |é|`{3}|\n|x){0,40}") {
            let _ = read_unit_plan(&text, UNIT);
        }
    }
}
