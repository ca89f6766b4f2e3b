//! The project's `plan.md`: a checklist of milestones, slices and tasks that a person reads and edits.
//!
//! ```text
//! - [ ] Sign in with OAuth <!-- milestone/m1 priority=2 -->
//!   - [x] The page <!-- slice/m1/s1 -->
//!     - [x] The form <!-- task/m1/s1/t1 -->
//!       More about it, as Markdown.
//! ```
//!
//! The comment at the end of an item holds its id and its fields. A new item of a person has none; it is numbered when the
//! plan is read ([`crate::reconcile`]). Other text is no part of the plan.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use writ_types::error::{Exit, Report, ToReport};
use writ_types::similar::nearest_name;

use crate::unit_id::{UnitId, UnitType};
use crate::units::{MAX_DESCRIPTION_BYTES, MAX_TITLE_BYTES, MAX_UNITS};

/// The largest plan that is read, in bytes.
pub const MAX_OUTLINE_BYTES: usize = 8 * 1024 * 1024;
/// Spaces of one level.
const INDENT: usize = 2;
/// The names of fields in a comment.
const FIELDS: [&str; 4] = ["priority", "workflow", "blocked_by", "code_depends_on"];

/// The fields of a unit that a person can edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutlineFields {
    /// Set if the unit is complete. The harness sets it: a person's mark is no proof.
    pub is_done: bool,
    /// Its purpose.
    pub title: String,
    /// More about it.
    pub description: String,
    /// From 1 to 4.
    pub priority: Option<u8>,
    /// Its workflow.
    pub workflow: Option<String>,
    /// Units that it waits for.
    pub blocked_by: BTreeSet<UnitId>,
    /// Slices that are merged before it.
    pub code_depends_on: BTreeSet<UnitId>,
}

/// An item of the checklist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlineItem {
    /// Its line, counted from one.
    pub line: usize,
    /// The type, which is its level.
    pub unit_type: UnitType,
    /// Its id; none for a new one.
    pub id: Option<UnitId>,
    /// Its fields.
    pub fields: OutlineFields,
}

/// A plan that cannot be read. Nothing of it is taken over then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("plan.md, line {line}: {problem}")]
pub struct OutlineError {
    /// The line, counted from one.
    pub line: usize,
    /// The mistake.
    pub problem: String,
    /// The next thing to do.
    pub hint: String,
}

impl ToReport for OutlineError {
    fn report(&self) -> Report {
        Report::new(Exit::Usage, "pilot.plan_file", self.to_string()).with_hint(self.hint.clone())
    }
}

fn fail<T>(line: usize, problem: impl Into<String>, hint: impl Into<String>) -> Result<T, OutlineError> {
    Err(OutlineError { line, problem: problem.into(), hint: hint.into() })
}

/// Reads the items of a plan.
///
/// # Errors
///
/// The first mistake, with its line and a hint.
pub fn read_outline(text: &str) -> Result<Vec<OutlineItem>, OutlineError> {
    if text.len() > MAX_OUTLINE_BYTES {
        return fail(1, format!("it has more than {MAX_OUTLINE_BYTES} bytes"), "archive finished milestones");
    }
    let mut items: Vec<OutlineItem> = Vec::new();
    for (line, raw) in (1..).zip(text.lines()) {
        let raw = raw.trim_end();
        let body = raw.trim_start_matches(' ');
        let spaces = raw.len() - body.len();
        if let Some(item) = body.strip_prefix("- [") {
            let item = read_item(line, spaces, item, items.last())?;
            // The most frequent slip: a line that was copied with its comment.
            if item.id.is_some() && items.iter().rev().take(1).any(|last| last.id == item.id) {
                return fail(line, "the item above has the same id", "leave the id of a new unit out");
            }
            items.push(item);
            if items.len() > MAX_UNITS {
                return fail(line, format!("more than {MAX_UNITS} units"), "archive finished milestones");
            }
        } else if body.starts_with('\t') {
            return fail(line, "a tab at the beginning", "indent with two spaces for each level");
        } else if let Some(last) = items.last_mut() {
            add_description(line, spaces, body, raw, last)?;
        }
    }
    for item in &mut items {
        let end = item.fields.description.trim_end().len();
        item.fields.description.truncate(end);
    }
    Ok(items)
}

/// Adds a line to the description of the item above, if it is indented below its text.
fn add_description(
    line: usize,
    spaces: usize,
    body: &str,
    raw: &str,
    last: &mut OutlineItem,
) -> Result<(), OutlineError> {
    let inside = (level_of(last.unit_type) + 1) * INDENT;
    let description = &mut last.fields.description;
    if body.is_empty() {
        // An empty line inside a description; at its end it is cut again.
        if !description.is_empty() {
            description.push('\n');
        }
    } else if spaces >= inside {
        description.push_str(raw.get(inside..).unwrap_or(body));
        description.push('\n');
    }
    if description.len() > MAX_DESCRIPTION_BYTES {
        return fail(
            line,
            format!("the description has more than {MAX_DESCRIPTION_BYTES} bytes"),
            "put it into a file of the project, and name the file",
        );
    }
    Ok(())
}

const fn level_of(unit_type: UnitType) -> usize {
    match unit_type {
        UnitType::Milestone => 0,
        UnitType::Slice => 1,
        UnitType::Task => 2,
    }
}

/// Reads an item behind its `- [`.
fn read_item(
    line: usize,
    spaces: usize,
    item: &str,
    above: Option<&OutlineItem>,
) -> Result<OutlineItem, OutlineError> {
    // The level says what the item is; an id only confirms it.
    let level = spaces / INDENT;
    let Some(unit_type) = UnitType::ALL.get(level).copied().filter(|_| spaces.is_multiple_of(INDENT)) else {
        return fail(
            line,
            format!("{spaces} spaces before the item"),
            "milestones have none, slices two, tasks four",
        );
    };
    // A task below a milestone would belong to no slice.
    if level > above.map_or(0, |above| level_of(above.unit_type) + 1) {
        return fail(
            line,
            format!("a {} without the level above it", unit_type.name()),
            "add the item that it belongs to",
        );
    }
    let Some((mark, rest)) = item.split_once(']').filter(|(mark, _)| matches!(*mark, " " | "x" | "X")) else {
        return fail(line, "a mark that is neither `[ ]` nor `[x]`", "write `- [ ] ` before the title");
    };
    let (title, comment) = match rest.rsplit_once("<!--") {
        Some((title, comment)) => match comment.split_once("-->") {
            Some((comment, "")) => (title, comment),
            Some(_) | None => {
                return fail(line, "the comment is not closed at the end of the line", "end it with `-->`");
            }
        },
        None => (rest, ""),
    };
    let mut fields =
        OutlineFields { is_done: mark != " ", title: title.trim().to_owned(), ..OutlineFields::default() };
    if fields.title.is_empty() || fields.title.len() > MAX_TITLE_BYTES {
        return fail(
            line,
            format!("a title has 1 to {MAX_TITLE_BYTES} bytes"),
            "shorten it, and write more below it",
        );
    }
    let id = read_comment(line, comment, &mut fields)?;
    if let Some(id) = id.filter(|id| id.unit_type() != unit_type) {
        return fail(
            line,
            format!("{id} is indented as a {}", unit_type.name()),
            "move it back, or remove its id",
        );
    }
    Ok(OutlineItem { line, unit_type, id, fields })
}

/// Reads the id and the fields of a comment.
fn read_comment(
    line: usize,
    comment: &str,
    fields: &mut OutlineFields,
) -> Result<Option<UnitId>, OutlineError> {
    let mut id = None;
    for word in comment.split_whitespace() {
        let Some((key, value)) = word.split_once('=') else {
            let found: UnitId = word.parse().or_else(|error: crate::unit_id::InvalidUnitId| {
                fail(line, error.to_string(), "leave the id of a new unit out")
            })?;
            if id.replace(found).is_some() {
                return fail(line, "two ids", "an item is one unit");
            }
            continue;
        };
        match key {
            "priority" => {
                let number = value.parse::<u8>().ok().filter(|number| (1..=4).contains(number));
                if number.is_none() {
                    return fail(
                        line,
                        "priority is one of 1 to 4",
                        "1 is urgent, 4 is low; leave it out for none",
                    );
                }
                fields.priority = number;
            }
            "workflow" => fields.workflow = Some(value.to_owned()),
            "blocked_by" => fields.blocked_by = read_units(line, value, |text| text.parse().ok())?,
            "code_depends_on" => fields.code_depends_on = read_units(line, value, UnitId::parse_slice)?,
            _ => {
                let near = nearest_name(key, &FIELDS).unwrap_or("priority");
                let shown: String = key.chars().take(40).collect();
                return fail(line, format!("unknown field '{shown}'"), format!("'{near}' is a field"));
            }
        }
    }
    Ok(id)
}

fn read_units(
    line: usize,
    value: &str,
    read: impl Fn(&str) -> Option<UnitId>,
) -> Result<BTreeSet<UnitId>, OutlineError> {
    let found: Option<BTreeSet<UnitId>> = value.split(',').map(read).collect();
    found.map_or_else(
        || {
            fail(
                line,
                "a dependency that is no unit",
                "write `blocked_by=task/m1/s1/t1` or `code_depends_on=m1/s2`",
            )
        },
        Ok,
    )
}

/// Writes the items of a plan, in the order in which they are given: each unit before its parts.
pub fn write_outline(units: &[(UnitId, OutlineFields)]) -> String {
    let mut text = String::from("# Plan\n\n");
    for (id, fields) in units {
        let indent = " ".repeat(level_of(id.unit_type()) * INDENT);
        let mark = if fields.is_done { 'x' } else { ' ' };
        let _ = write!(text, "{indent}- [{mark}] {} <!-- {id}", fields.title);
        if let Some(priority) = fields.priority {
            let _ = write!(text, " priority={priority}");
        }
        if let Some(workflow) = &fields.workflow {
            let _ = write!(text, " workflow={workflow}");
        }
        write_units(&mut text, "blocked_by", &fields.blocked_by, ToString::to_string);
        // The short form of the text (SF 12.3): `m1/s2`.
        let short = |id: &UnitId| id.to_string().trim_start_matches("slice/").to_owned();
        write_units(&mut text, "code_depends_on", &fields.code_depends_on, short);
        text.push_str(" -->\n");
        for line in fields.description.lines() {
            let is_empty = line.trim().is_empty();
            let _ = if is_empty { writeln!(text) } else { writeln!(text, "{indent}  {line}") };
        }
    }
    text
}

fn write_units(text: &mut String, key: &str, units: &BTreeSet<UnitId>, shown: impl Fn(&UnitId) -> String) {
    if !units.is_empty() {
        let names: Vec<String> = units.iter().map(shown).collect();
        let _ = write!(text, " {key}={}", names.join(","));
    }
}

#[cfg(test)]
mod tests;
