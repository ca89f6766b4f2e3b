//! Reads a plan from what a planner has written.

use serde_json::Value;
use writ_types::action::Free;
use writ_types::interaction::InteractionMode;
use writ_types::unit::Tokens;
use writ_types::work::{
    Check, GoalCycle, JsonExpectation, OnFailure, OnStuck, PlanDocument, PlannedCall, Predicate, WorkBudget,
    WorkKind, WorkStep,
};

use crate::body::{self, Fences};
use crate::check::{MAX_CALLS, MAX_CHECKS, MAX_EXPECTATIONS, MAX_STEPS, check_plan};
use crate::error::{PlanError, PlanProblem, quoted};
use crate::fields::{PlanFields, check_count, describe, join, text_of, wrong};
use crate::yaml::{NodeValue, YamlNode, read_yaml};

/// The most bytes of a plan: 200 steps of a page each, and small enough to be shown to a person as a whole.
pub const MAX_PLAN_BYTES: usize = 256 * 1024;

const PLAN_KEYS: &[&str] = &[
    "id",
    "type",
    "title",
    "skills",
    "budget",
    "steps",
    "verify",
    "gates",
    "on_stuck",
    "interaction",
    "every_minutes",
    "on_failure",
];
const STEP_KEYS: &[&str] = &[
    "id",
    "title",
    "do",
    "after",
    "artifacts_from",
    "tools",
    "skills",
    "interaction",
    "writes",
    "budget",
    "verify",
    "calls",
];
const CHECK_KEYS: &[&str] = &["name", "run", "dir", "timeout_secs", "expect"];
const BUDGET_KEYS: &[&str] = &["max_tokens", "max_cost_usd", "max_attempts"];
const CALL_KEYS: &[&str] = &["tool", "arguments", "times", "free"];
const EXPECT_KEYS: &[&str] = &[
    "exit_code",
    "equals",
    "contains",
    "regex",
    "output_lt",
    "output_gt",
    "file_exists",
    "not_empty",
    "json",
];

/// Reads the one plan of an answer, and checks it.
///
/// A code fence around the whole answer is taken off, since many models put one there.
///
/// # Errors
///
/// The first mistake, with its line and a hint.
pub fn read_plan(text: &str) -> Result<PlanDocument, PlanError> {
    if text.len() > MAX_PLAN_BYTES {
        let problem = PlanProblem::TooLarge { bytes: text.len(), most: MAX_PLAN_BYTES };
        return Err(PlanError { line: Some(1), field: String::new(), problem });
    }
    // Line breaks of Windows must not make another text of the same plan.
    let text = text.replace("\r\n", "\n");
    let parts = split_front_matter(&text)?;
    let front = read_yaml(parts.front, parts.front_line)?;
    // A mistake is found by its field; the line of the field is looked up afterwards.
    let at_line = |error: PlanError| PlanError {
        line: error.line.or_else(|| Some(front.find_deepest(&error.field).line)),
        ..error
    };
    let mut plan = read_front(&front).map_err(at_line)?;
    let body = body::read_body(parts.body, parts.body_line)?;
    (plan.context, plan.instructions) = (body.context, body.instructions);
    check_plan(&plan).map_err(at_line)?;
    Ok(plan)
}

/// A document in its two parts, with the numbers of their first lines.
#[derive(Debug)]
struct Parts<'a> {
    front: &'a str,
    front_line: u32,
    body: &'a str,
    body_line: u32,
}

fn split_front_matter(text: &str) -> Result<Parts<'_>, PlanError> {
    let whole = |line, problem| PlanError { line: Some(line), field: String::new(), problem };
    let lines: Vec<(usize, &str)> = line_starts(text);
    let is_blank = |line: &str| line.trim_start_matches('\u{feff}').trim().is_empty();
    let mut first = lines.iter().position(|(_, line)| !is_blank(line)).unwrap_or(lines.len());
    let mut end = lines.len();
    let opens_fence = |line: &str| {
        let name = line.trim().strip_prefix("```");
        name.is_some_and(|name| matches!(name.trim(), "" | "markdown" | "md" | "yaml" | "text"))
    };
    if lines.get(first).is_some_and(|(_, line)| opens_fence(line)) {
        first = first.saturating_add(1);
        // A fence that is not closed, as in an answer that was cut, is no reason to refuse a whole plan.
        let last = lines.iter().rposition(|(_, line)| !line.trim().is_empty()).unwrap_or(0);
        if lines.get(last).is_some_and(|(_, line)| line.trim() == "```") {
            end = last;
        }
    }
    let is_rule = |at: usize| {
        lines.get(at).is_some_and(|(_, line)| line.trim_end().trim_start_matches('\u{feff}') == "---")
    };
    let number = |at: usize| u32::try_from(at.saturating_add(1)).unwrap_or(u32::MAX);
    // Counted before anything is read: of two plans nothing tells which one is meant.
    let count = count_plans(&lines, first..end);
    if count > 1 {
        return Err(whole(number(first), PlanProblem::Several { count }));
    }
    if !is_rule(first) {
        return Err(whole(number(first.min(end.saturating_sub(1))), PlanProblem::NoFrontMatter));
    }
    let start = first.saturating_add(1);
    let close =
        (start..end).find(|at| is_rule(*at)).ok_or_else(|| whole(number(first), PlanProblem::Unclosed))?;
    let byte = |at: usize| lines.get(at).map_or(text.len(), |(byte, _)| *byte);
    let after = close.saturating_add(1);
    Ok(Parts {
        front: text.get(byte(start)..byte(close)).unwrap_or_default(),
        front_line: number(start),
        body: text.get(byte(after)..byte(end)).unwrap_or_default(),
        body_line: number(after),
    })
}

/// Returns the lines with the byte at which each begins.
fn line_starts(text: &str) -> Vec<(usize, &str)> {
    let mut at = 0_usize;
    text.split_inclusive('\n')
        .map(|line| {
            let start = at;
            at = at.saturating_add(line.len());
            (start, line.trim_end_matches('\n'))
        })
        .collect()
}

/// Counts the places where front matter begins: a rule followed by a key that only front matter has.
fn count_plans(lines: &[(usize, &str)], range: std::ops::Range<usize>) -> usize {
    let mut fences = Fences::default();
    let begins = |at: usize| {
        let next = lines.get(at.saturating_add(1)).map_or("", |(_, line)| line);
        ["id:", "type:", "title:"].iter().any(|key| next.starts_with(key))
    };
    range
        .filter(|at| {
            let line = lines.get(*at).map_or("", |(_, line)| line);
            !fences.is_code(line) && line.trim_end() == "---" && begins(*at)
        })
        .count()
}

/// The kinds that a document can have: plans of the autopilot are made of its units.
const DOCUMENT_KINDS: [WorkKind; 3] = [WorkKind::Task, WorkKind::Project, WorkKind::Goal];

fn read_front(front: &YamlNode) -> Result<PlanDocument, PlanError> {
    let fields = PlanFields::open(front, "", PLAN_KEYS)?;
    if fields.text("type")?.as_deref() == Some(WorkKind::Pilot.name()) {
        return Err(PlanError::new("type", PlanProblem::Pilot));
    }
    let kind = fields.choice("type", &DOCUMENT_KINDS, WorkKind::name)?;
    let kind = kind.ok_or_else(|| PlanError::new("", PlanProblem::Missing("type")))?;
    let every: Option<u32> = fields.number("every_minutes")?;
    let on_failure = fields.choice("on_failure", &OnFailure::ALL, OnFailure::name)?;
    let cycle = match (kind, every) {
        (WorkKind::Goal, Some(every_minutes)) => {
            Some(GoalCycle { every_minutes, on_failure: on_failure.unwrap_or_default() })
        }
        (WorkKind::Goal, None) => return Err(PlanError::new("", PlanProblem::Missing("every_minutes"))),
        (WorkKind::Task | WorkKind::Project | WorkKind::Pilot, _) => {
            // A rhythm on what runs once would be dropped silently.
            for (key, is_there) in [("every_minutes", every.is_some()), ("on_failure", on_failure.is_some())]
            {
                if is_there {
                    let problem = PlanProblem::UnknownKey {
                        key: format!("{key}' of a {}", kind.name()),
                        nearest: None,
                    };
                    return Err(PlanError::new(key, problem));
                }
            }
            None
        }
    };
    Ok(PlanDocument {
        id: fields.need_text("id")?,
        kind,
        title: fields.need_text("title")?,
        skills: fields.texts("skills")?,
        budget: read_budget(&fields)?,
        steps: fields.items("steps", ("steps", MAX_STEPS), read_step)?,
        checks: fields.items("verify", ("checks", MAX_CHECKS), read_check)?,
        gates: fields.texts("gates")?,
        on_stuck: fields.choice("on_stuck", &OnStuck::ALL, OnStuck::name)?.unwrap_or_default(),
        interaction: read_interaction(&fields)?,
        cycle,
        context: String::new(),
        instructions: String::new(),
    })
}

fn read_interaction(fields: &PlanFields<'_>) -> Result<Option<InteractionMode>, PlanError> {
    fields.choice("interaction", &InteractionMode::ALL, InteractionMode::name)
}

fn read_budget(fields: &PlanFields<'_>) -> Result<WorkBudget, PlanError> {
    let Some(node) = fields.find("budget") else { return Ok(WorkBudget::default()) };
    let path = fields.path("budget");
    let budget = PlanFields::open(node, &path, BUDGET_KEYS)?;
    Ok(WorkBudget {
        max_tokens: budget.number("max_tokens")?.map(Tokens::new),
        max_cost: budget.dollars("max_cost_usd")?,
        max_attempts: budget.number("max_attempts")?,
    })
}

fn read_step(node: &YamlNode, at: &str) -> Result<WorkStep, PlanError> {
    let fields = PlanFields::open(node, at, STEP_KEYS)?;
    Ok(WorkStep {
        id: fields.need_text("id")?,
        title: fields.need_text("title")?,
        instructions: fields.need_text("do")?,
        after: fields.texts("after")?,
        artifacts_from: fields.texts("artifacts_from")?,
        tools: fields.texts("tools")?,
        skills: fields.texts("skills")?,
        interaction: read_interaction(&fields)?,
        writes: fields.texts("writes")?,
        budget: read_budget(&fields)?,
        checks: fields.items("verify", ("checks", MAX_CHECKS), read_check)?,
        calls: fields.items("calls", ("calls", MAX_CALLS), read_call)?,
    })
}

fn read_call(node: &YamlNode, at: &str) -> Result<PlannedCall, PlanError> {
    let fields = PlanFields::open(node, at, CALL_KEYS)?;
    let arguments = match fields.find("arguments").map(|node| (node, node.to_json())) {
        None => serde_json::Map::new(),
        Some((_, Value::Object(arguments))) => arguments,
        Some((node, _)) => return Err(wrong(&fields.path("arguments"), describe(node), "a mapping")),
    };
    let name = |free: Free| match free {
        Free::Nothing => "nothing",
        Free::Content => "content",
        Free::Page => "page",
    };
    Ok(PlannedCall {
        tool: fields.need_text("tool")?,
        arguments,
        times: fields.number("times")?.unwrap_or(1),
        free: fields.choice("free", &[Free::Nothing, Free::Content, Free::Page], name)?,
    })
}

fn read_check(node: &YamlNode, at: &str) -> Result<Check, PlanError> {
    let fields = PlanFields::open(node, at, CHECK_KEYS)?;
    let run = match fields.find("run").map(|node| (&node.value, node)) {
        None => Vec::new(),
        Some((NodeValue::Text { text, .. }, _)) => {
            // One fixed rule (that of POSIX words, without expansions) makes the arguments; no shell is run.
            shlex::split(text)
                .ok_or_else(|| wrong(&fields.path("run"), text, "a command with closed quotation marks"))?
        }
        Some((NodeValue::List(_) | NodeValue::Map(_), _)) => fields.texts("run")?,
    };
    let Some(expect) = fields.find("expect") else {
        return Err(PlanError::new(at, PlanProblem::NoExpectation));
    };
    Ok(Check {
        name: fields.need_text("name")?,
        run,
        dir: fields.text("dir")?,
        timeout_secs: fields.number("timeout_secs")?,
        expect: read_expectations(expect, &fields.path("expect"))?,
    })
}

/// Reads expectations: one mapping, or a list of mappings where one kind is there more than once.
fn read_expectations(node: &YamlNode, at: &str) -> Result<Vec<Predicate>, PlanError> {
    let maps: Vec<(&YamlNode, String)> = match &node.value {
        NodeValue::List(items) => {
            check_count("expectations", items.len(), MAX_EXPECTATIONS, at)?;
            (0_usize..).zip(items).map(|(n, item)| (item, join(at, &n.to_string()))).collect()
        }
        NodeValue::Map(_) => vec![(node, at.to_owned())],
        NodeValue::Text { text, .. } => return Err(wrong(at, text, "a mapping such as { exit_code: 0 }")),
    };
    let mut read = Vec::new();
    for (map, path) in maps {
        PlanFields::open(map, &path, EXPECT_KEYS)?;
        let NodeValue::Map(entries) = &map.value else { continue };
        for (key, node) in entries {
            read.push(read_predicate(key, node, &join(&path, key))?);
        }
    }
    check_count("expectations", read.len(), MAX_EXPECTATIONS, at)?;
    Ok(read)
}

fn read_predicate(key: &str, node: &YamlNode, at: &str) -> Result<Predicate, PlanError> {
    let text = || text_of(node, at);
    Ok(match key {
        "exit_code" => {
            let code = text()?;
            Predicate::ExitCode {
                code: code.parse().map_err(|_| wrong(at, &code, "an exit status such as 0"))?,
            }
        }
        "equals" => Predicate::Equals { text: text()? },
        "contains" => Predicate::Contains { text: text()? },
        "regex" => Predicate::Regex { pattern: text()? },
        "output_lt" => Predicate::OutputLt { limit: text()? },
        "output_gt" => Predicate::OutputGt { limit: text()? },
        "file_exists" => Predicate::FileExists { path: text()? },
        // `not_empty: false` would expect no output, which `equals: ""` says.
        "not_empty" => match node.to_json() == Value::Bool(true) {
            true => Predicate::NotEmpty,
            false => return Err(wrong(at, describe(node), "true")),
        },
        "json" => read_json(node, at)?,
        other => {
            let problem = PlanProblem::UnknownKey { key: quoted(other), nearest: None };
            return Err(PlanError::new(at, problem));
        }
    })
}

fn read_json(node: &YamlNode, at: &str) -> Result<Predicate, PlanError> {
    let fields = PlanFields::open(node, at, &["path", "equals", "lt", "gt", "exists"])?;
    let path = fields.need_text("path")?;
    let NodeValue::Map(entries) = &node.value else { return Err(wrong(at, describe(node), "a mapping")) };
    let mut others = entries.iter().filter(|(key, _)| key != "path");
    let (Some((key, inner)), None) = (others.next(), others.next()) else {
        return Err(wrong(at, "json", "a path with one of equals, lt, gt, exists"));
    };
    let limit = || text_of(inner, &join(at, key));
    let value = match key.as_str() {
        "equals" => JsonExpectation::Equals { value: inner.to_json() },
        "lt" => JsonExpectation::Lt { limit: limit()? },
        "gt" => JsonExpectation::Gt { limit: limit()? },
        // `PlanFields::open` lets no other key through than `exists`.
        _other => match inner.to_json() == Value::Bool(true) {
            true => JsonExpectation::Exists,
            false => return Err(wrong(&join(at, key), describe(inner), "true")),
        },
    };
    Ok(Predicate::Json { path, value })
}

#[cfg(test)]
mod tests;
