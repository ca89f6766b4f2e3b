//! The prose below the front matter: its two sections.

use crate::error::{PlanError, PlanProblem, quoted};

/// The heading of the background.
pub(crate) const CONTEXT: &str = "Context";
/// The heading of the instructions.
pub(crate) const WHAT_TO_DO: &str = "What to do";

/// The sections of the prose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlanBody {
    pub(crate) context: String,
    pub(crate) instructions: String,
}

/// The state of code fences: headings inside them are code.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fences {
    open: Option<(char, usize)>,
}

impl Fences {
    /// Takes the next line; returns true if it is inside a fence, or one of its ends.
    pub(crate) fn is_code(&mut self, line: &str) -> bool {
        let line = line.trim_start();
        let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'));
        let length = mark.map_or(0, |mark| line.chars().take_while(|c| *c == mark).count());
        match (self.open, mark) {
            (None, Some(mark)) if length >= 3 => {
                self.open = Some((mark, length));
                true
            }
            (None, _) => false,
            // A shorter fence, or one of the other mark, is a line of the code.
            (Some((open, least)), Some(mark)) if mark == open && length >= least => {
                self.open = None;
                true
            }
            (Some(_), _) => true,
        }
    }
}

/// Returns the section that a line begins, if it is one of the two headings.
fn find_heading(line: &str) -> Option<&'static str> {
    let name = line.strip_prefix("# ")?.trim().trim_end_matches('#').trim_end();
    [CONTEXT, WHAT_TO_DO].into_iter().find(|heading| heading.eq_ignore_ascii_case(name))
}

/// Returns true if a text holds one of the headings, so that it could not be a section.
pub(crate) fn has_heading(text: &str) -> bool {
    let mut fences = Fences::default();
    text.lines().any(|line| !fences.is_code(line) && find_heading(line).is_some()) || fences.open.is_some()
}

/// Reads the prose; its first line has the number `first_line`.
///
/// # Errors
///
/// If text stands before the first heading, a heading is there twice, or the instructions are missing.
pub(crate) fn read_body(text: &str, first_line: u32) -> Result<PlanBody, PlanError> {
    let at_line = |line, problem| PlanError { line: Some(line), field: String::new(), problem };
    let mut sections: Vec<(&'static str, Vec<&str>)> = Vec::new();
    let mut fences = Fences::default();
    for (number, line) in (first_line..).zip(text.lines()) {
        let heading = if fences.is_code(line) { None } else { find_heading(line) };
        match (heading, sections.last_mut()) {
            (Some(heading), _) => {
                if sections.iter().any(|(earlier, _)| *earlier == heading) {
                    return Err(at_line(number, PlanProblem::Duplicate(format!("# {heading}"))));
                }
                sections.push((heading, Vec::new()));
            }
            (None, Some((_, lines))) => lines.push(line),
            (None, None) if line.trim().is_empty() => {}
            // Such text would belong to no section, and be dropped silently.
            (None, None) => {
                let problem = format!("'{}' stands before the first heading", quoted(line));
                return Err(at_line(number, PlanProblem::Syntax(problem)));
            }
        }
    }
    let mut section = |name| {
        let lines = sections.iter_mut().find(|(heading, _)| *heading == name).map(|(_, lines)| lines);
        lines.map(|lines| trim_lines(lines)).unwrap_or_default()
    };
    let body = PlanBody { context: section(CONTEXT), instructions: section(WHAT_TO_DO) };
    if body.instructions.is_empty() {
        let missing = PlanProblem::Missing("# What to do");
        return Err(at_line(first_line.saturating_sub(1), missing));
    }
    Ok(body)
}

/// Joins lines without the empty ones at both ends.
fn trim_lines(lines: &[&str]) -> String {
    let is_full = |line: &&str| !line.trim().is_empty();
    let first = lines.iter().position(is_full).unwrap_or(lines.len());
    let last = lines.iter().rposition(is_full).map_or(first, |last| last.saturating_add(1));
    lines.get(first..last).unwrap_or_default().join("\n")
}
