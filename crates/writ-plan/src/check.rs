//! What must be true of every plan, however it was made.

use std::collections::BTreeSet;

use regex::RegexBuilder;
use writ_types::similar::nearest_name;
use writ_types::work::{Check, JsonExpectation, PlanDocument, Predicate, WorkBudget, WorkKind, WorkStep};

use crate::body::has_heading;
use crate::error::{PlanError, PlanProblem, quoted};
use crate::fields::{MAX_NAMES, check_count, join, wrong};
use crate::json_path::JsonPath;
use crate::order::order_steps;

/// The most steps of a plan.
pub const MAX_STEPS: usize = 200;
/// The most checks of a plan or step.
pub const MAX_CHECKS: usize = 64;
/// The most expectations of a check.
pub const MAX_EXPECTATIONS: usize = 16;
/// The most calls of all steps that a plan has approved: as many as the door's plans have steps.
pub const MAX_CALLS: usize = 24;
/// The longest id of a plan or step, in characters.
pub const MAX_ID_CHARS: usize = 64;
/// The longest title, in characters: one line on a card.
pub const MAX_TITLE_CHARS: usize = 120;
/// The longest name, argument, path or pattern, in bytes.
pub const MAX_TEXT_BYTES: usize = 4_096;
/// The longest time limit of a check, in seconds: an hour.
pub const MAX_CHECK_SECS: u32 = 3_600;
/// The most attempts of an item.
pub const MAX_ATTEMPTS: u32 = 100;
/// The longest rhythm of a goal, in minutes: a year.
pub const MAX_EVERY_MINUTES: u32 = 366 * 24 * 60;
/// The most memory that a compiled pattern of a check may take, in bytes.
pub(crate) const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Checks a plan.
///
/// # Errors
///
/// The first mistake, without a line.
pub fn check_plan(plan: &PlanDocument) -> Result<(), PlanError> {
    check_id(&plan.id, "id")?;
    check_title(&plan.title, "title")?;
    check_names(&plan.skills, "skills")?;
    check_names(&plan.gates, "gates")?;
    check_budget(&plan.budget, "budget")?;
    check_checks(&plan.checks, "verify")?;
    check_count("steps", plan.steps.len(), MAX_STEPS, "steps")?;
    match (plan.kind, plan.cycle) {
        (WorkKind::Goal, Some(cycle)) if (1..=MAX_EVERY_MINUTES).contains(&cycle.every_minutes) => {}
        (WorkKind::Goal, Some(cycle)) => {
            let expected = format!("a number of minutes from 1 to {MAX_EVERY_MINUTES}");
            return Err(wrong("every_minutes", &cycle.every_minutes.to_string(), &expected));
        }
        (WorkKind::Goal, None) => return Err(PlanError::new("", PlanProblem::Missing("every_minutes"))),
        (WorkKind::Task | WorkKind::Project | WorkKind::Pilot, None) => {}
        (WorkKind::Task | WorkKind::Project | WorkKind::Pilot, Some(_)) => {
            let problem = PlanProblem::UnknownKey { key: "every_minutes".to_owned(), nearest: None };
            return Err(PlanError::new("every_minutes", problem));
        }
    }
    if plan.kind == WorkKind::Goal && plan.checks.is_empty() {
        // A goal is its checks.
        return Err(PlanError::new("", PlanProblem::Missing("verify")));
    }
    if matches!(plan.kind, WorkKind::Project | WorkKind::Pilot) && plan.steps.is_empty() {
        return Err(PlanError::new("", PlanProblem::Missing("steps")));
    }
    let calls = plan.steps.iter().map(|step| step.calls.len()).sum();
    check_count("calls", calls, MAX_CALLS, "steps")?;
    check_steps(&plan.steps)?;
    for (text, name) in [(&plan.context, "# Context"), (&plan.instructions, "# What to do")] {
        // Such a text could not be read again from the document.
        let is_section = text.trim_matches('\n') == text && !has_heading(text) && !text.contains('\r');
        if !is_section {
            return Err(wrong("", name, "a section without the headings of a plan and with closed fences"));
        }
    }
    if plan.instructions.trim().is_empty() {
        return Err(PlanError::new("", PlanProblem::Missing("# What to do")));
    }
    Ok(())
}

fn check_steps(steps: &[WorkStep]) -> Result<(), PlanError> {
    let mut ids = BTreeSet::new();
    for (n, step) in steps.iter().enumerate() {
        let at = |key: &str| format!("steps.{n}.{key}");
        check_id(&step.id, &at("id"))?;
        if !ids.insert(step.id.as_str()) {
            return Err(PlanError::new(at("id"), PlanProblem::Duplicate(step.id.clone())));
        }
        check_title(&step.title, &at("title"))?;
        if step.instructions.trim().is_empty() {
            return Err(PlanError::new(format!("steps.{n}"), PlanProblem::Missing("do")));
        }
        for (names, key) in [(&step.tools, "tools"), (&step.skills, "skills")] {
            check_names(names, &at(key))?;
        }
        check_count("paths", step.writes.len(), MAX_NAMES, &at("writes"))?;
        for (m, path) in step.writes.iter().enumerate() {
            check_path(path, &join(&at("writes"), &m.to_string()))?;
        }
        check_budget(&step.budget, &at("budget"))?;
        check_checks(&step.checks, &at("verify"))?;
        for (m, call) in step.calls.iter().enumerate() {
            let path = format!("steps.{n}.calls.{m}");
            check_name(&call.tool, &join(&path, "tool"))?;
            if !(1..=100).contains(&call.times) {
                return Err(wrong(&join(&path, "times"), &call.times.to_string(), "a number from 1 to 100"));
            }
        }
    }
    // In a second pass, since a step may name one that comes later in the document.
    for (n, step) in steps.iter().enumerate() {
        for (key, names) in [("after", &step.after), ("artifacts_from", &step.artifacts_from)] {
            check_count("steps", names.len(), MAX_STEPS, &format!("steps.{n}.{key}"))?;
            for (m, name) in names.iter().enumerate() {
                if !ids.contains(name.as_str()) {
                    let known: Vec<&str> = ids.iter().copied().collect();
                    let nearest = nearest_name(name, &known).map(str::to_owned);
                    let problem = PlanProblem::UnknownStep { name: quoted(name), nearest };
                    return Err(PlanError::new(format!("steps.{n}.{key}.{m}"), problem));
                }
            }
        }
    }
    // Only a cycle is looked for here; the order itself is made again when the plan runs.
    order_steps(steps).map(|_| ())
}

fn check_id(id: &str, at: &str) -> Result<(), PlanError> {
    let is_part =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    let is_id =
        (1..=MAX_ID_CHARS).contains(&id.len()) && id.bytes().all(is_part) && !id.starts_with(['-', '_']);
    let expected = format!("a name of 1 to {MAX_ID_CHARS} lower-case letters, digits and hyphens");
    if is_id { Ok(()) } else { Err(wrong(at, id, &expected)) }
}

fn check_title(title: &str, at: &str) -> Result<(), PlanError> {
    let is_line = !title.trim().is_empty() && title.trim() == title && !title.chars().any(char::is_control);
    let is_title = is_line && title.chars().count() <= MAX_TITLE_CHARS;
    if is_title {
        Ok(())
    } else {
        Err(wrong(at, title, &format!("one line of 1 to {MAX_TITLE_CHARS} characters")))
    }
}

fn check_name(name: &str, at: &str) -> Result<(), PlanError> {
    let is_name =
        !name.trim().is_empty() && name.len() <= MAX_TEXT_BYTES && !name.chars().any(char::is_control);
    if is_name { Ok(()) } else { Err(wrong(at, name, "a name")) }
}

fn check_names(names: &[String], at: &str) -> Result<(), PlanError> {
    check_count("names", names.len(), MAX_NAMES, at)?;
    names.iter().enumerate().try_for_each(|(n, name)| check_name(name, &join(at, &n.to_string())))
}

fn check_budget(budget: &WorkBudget, at: &str) -> Result<(), PlanError> {
    match budget.max_attempts {
        Some(attempts) if !(1..=MAX_ATTEMPTS).contains(&attempts) => {
            let expected = format!("a number from 1 to {MAX_ATTEMPTS}");
            Err(wrong(&join(at, "max_attempts"), &attempts.to_string(), &expected))
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses a path that is absolute, empty, leaves its folder, or could not be a path.
fn check_path(path: &str, at: &str) -> Result<(), PlanError> {
    let parts_stay = path.split('/').all(|part| part != "..");
    // Refused, not resolved: people read the path on the card as it stands.
    let is_inside = !path.trim().is_empty()
        && path.len() <= MAX_TEXT_BYTES
        && !path.starts_with(['/', '~'])
        && !path.chars().any(|c| c.is_control() || c == '\\')
        && parts_stay;
    if is_inside { Ok(()) } else { Err(PlanError::new(at, PlanProblem::Path(quoted(path)))) }
}

fn check_checks(checks: &[Check], at: &str) -> Result<(), PlanError> {
    check_count("checks", checks.len(), MAX_CHECKS, at)?;
    let mut names = BTreeSet::new();
    for (n, check) in checks.iter().enumerate() {
        let path = join(at, &n.to_string());
        check_name(&check.name, &join(&path, "name"))?;
        if !names.insert(check.name.as_str()) {
            return Err(PlanError::new(join(&path, "name"), PlanProblem::Duplicate(quoted(&check.name))));
        }
        check_check(check, &path)?;
    }
    Ok(())
}

/// Checks one check at a path.
fn check_check(check: &Check, at: &str) -> Result<(), PlanError> {
    check_count("arguments", check.run.len(), MAX_NAMES, &join(at, "run"))?;
    for argument in &check.run {
        // The kernel ends an argument at its first NUL: the rest would be shown and not run.
        if argument.len() > MAX_TEXT_BYTES || argument.contains('\0') {
            return Err(wrong(&join(at, "run"), argument, "an argument of a command"));
        }
    }
    if check.run.first().is_some_and(|program| program.trim().is_empty()) {
        return Err(wrong(&join(at, "run"), "", "a command"));
    }
    if let Some(dir) = &check.dir {
        check_path(dir, &join(at, "dir"))?;
    }
    if let Some(secs) = check.timeout_secs.filter(|secs| !(1..=MAX_CHECK_SECS).contains(secs)) {
        let expected = format!("a number of seconds from 1 to {MAX_CHECK_SECS}");
        return Err(wrong(&join(at, "timeout_secs"), &secs.to_string(), &expected));
    }
    if check.expect.is_empty() {
        return Err(PlanError::new(at, PlanProblem::NoExpectation));
    }
    check_count("expectations", check.expect.len(), MAX_EXPECTATIONS, &join(at, "expect"))?;
    for predicate in &check.expect {
        // Without a command there is no output to compare, and the check could never pass.
        if check.run.is_empty() && !predicate.is_about_files() {
            return Err(PlanError::new(at, PlanProblem::NoCommand(predicate.name())));
        }
        check_predicate(predicate, &join(&join(at, "expect"), predicate.name()))?;
    }
    Ok(())
}

fn check_predicate(predicate: &Predicate, at: &str) -> Result<(), PlanError> {
    let check_limit = |limit: &str| match read_number(limit) {
        Some(_) => Ok(()),
        None => Err(wrong(at, limit, "a decimal number")),
    };
    match predicate {
        Predicate::ExitCode { .. } | Predicate::NotEmpty => Ok(()),
        Predicate::Equals { text } => check_text(text, at),
        // An empty text is contained in everything, so it would prove nothing.
        Predicate::Contains { text } if text.is_empty() => Err(wrong(at, text, "a text that is not empty")),
        Predicate::Contains { text } => check_text(text, at),
        Predicate::Regex { pattern } => {
            check_text(pattern, at)?;
            compile_pattern(pattern).map(|_| ()).map_err(|error| {
                let reason = error.to_string();
                let last = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                wrong(at, pattern, &format!("a regular expression: {}", quoted(&last)))
            })
        }
        Predicate::OutputLt { limit } | Predicate::OutputGt { limit } => check_limit(limit),
        Predicate::FileExists { path } => check_path(path, at),
        Predicate::Json { path, value } => {
            if JsonPath::read(path).is_none() {
                return Err(wrong(&join(at, "path"), path, "a path such as $.tests[0].failed"));
            }
            match value {
                JsonExpectation::Equals { .. } | JsonExpectation::Exists => Ok(()),
                JsonExpectation::Lt { limit } | JsonExpectation::Gt { limit } => check_limit(limit),
            }
        }
    }
}

fn check_text(text: &str, at: &str) -> Result<(), PlanError> {
    let most = MAX_TEXT_BYTES;
    if text.len() <= most {
        Ok(())
    } else {
        Err(PlanError::new(at, PlanProblem::TooMany { what: "bytes", count: text.len(), most }))
    }
}

/// Compiles a pattern within a bound of memory.
pub(crate) fn compile_pattern(pattern: &str) -> Result<regex::Regex, regex::Error> {
    // A short pattern with nested repetitions can compile into a huge program.
    RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES).build()
}

/// Reads a decimal number: digits, a sign, a point, an exponent; no infinity and no «not a number».
pub(crate) fn read_number(text: &str) -> Option<f64> {
    let text = text.trim();
    let is_decimal = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
        && text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E'));
    text.parse::<f64>().ok().filter(|number| is_decimal && number.is_finite())
}
