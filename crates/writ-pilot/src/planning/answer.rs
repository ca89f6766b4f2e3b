//! The outline inside a planner's answer.

use super::{MAX_ANSWER_BYTES, MAX_QUOTED_CHARS, PlanningError};

/// An outline with its place in the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundOutline {
    /// Its text, without the indentation of its block.
    pub(super) text: String,
    /// Lines of the answer before it.
    skipped: usize,
}

impl FoundOutline {
    /// Makes the error for a line of the outline.
    pub(super) fn fault(
        &self,
        line: usize,
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) -> PlanningError {
        let quoted = self.text.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim();
        let quoted =
            quoted.chars().take(MAX_QUOTED_CHARS).map(|c| if c.is_control() || c == '`' { ' ' } else { c });
        PlanningError {
            line: line + self.skipped,
            quoted: quoted.collect(),
            problem: problem.into(),
            hint: hint.into(),
        }
    }
}

/// Finds the outline: the one fenced block with items, else the answer itself from its first item on.
///
/// # Errors
///
/// If there is none, or several, or it is cut off.
pub(super) fn find_outline(answer: &str) -> Result<FoundOutline, PlanningError> {
    let whole = FoundOutline { text: String::new(), skipped: 0 };
    let fail = |line: usize, problem: &str, hint: &str| Err(whole.fault(line, problem, hint));
    if answer.len() > MAX_ANSWER_BYTES {
        return fail(
            1,
            &format!("the answer has more than {MAX_ANSWER_BYTES} bytes"),
            "plan fewer units, with shorter descriptions",
        );
    }
    // Line ends of any system, and spaces at them, say nothing.
    let lines: Vec<&str> = answer.lines().map(str::trim_end).collect();
    let mut blocks: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        // A fence inside a description is indented deeper than a list of a model ever is.
        let Some(fence) = fence_of(line) else { continue };
        let end =
            lines.iter().skip(at).position(|line| fence_of(line).is_some_and(|other| other.is_end_of(fence)));
        let has_items =
            |until: usize| lines.get(at..until).unwrap_or_default().iter().any(|line| is_item(line));
        let Some(end) = end.map(|end| at + end) else {
            if has_items(lines.len()) {
                return fail(
                    lines.len(),
                    "the block with the plan is not closed",
                    "answer with the whole plan, and shorter if it was cut off",
                );
            }
            break;
        };
        if has_items(end) {
            blocks.push((at, end));
        }
        at = end + 1;
    }
    let (from, until) = match blocks.as_slice() {
        [(from, until)] => (*from, *until),
        [] => match lines.iter().position(|line| line.starts_with("- [")) {
            Some(from) => (from, lines.len()),
            None => {
                return fail(
                    1,
                    "it has no item `- [ ] …`",
                    "answer with the plan in one fenced block, as the form shows",
                );
            }
        },
        [_, (second, _), ..] => {
            return fail(second + 1, "a second block with a plan", "answer with one block alone");
        }
    };
    let block = lines.get(from..until).unwrap_or_default();
    // A block that is indented as a whole is one of a list.
    let indent = block
        .iter()
        .find(|line| is_item(line))
        .map_or(0, |line| line.len() - line.trim_start_matches(' ').len());
    let cut = |line: &&str| {
        line.get(indent..).filter(|_| line.starts_with(&" ".repeat(indent))).unwrap_or(line).to_owned()
    };
    Ok(FoundOutline { text: block.iter().map(cut).collect::<Vec<_>>().join("\n"), skipped: from })
}

fn is_item(line: &str) -> bool {
    line.trim_start_matches(' ').starts_with("- [")
}

/// A line that begins or ends a block of code.
#[derive(Clone, Copy, Debug)]
struct BlockFence {
    sign: char,
    length: usize,
    is_bare: bool,
}

impl BlockFence {
    const fn is_end_of(self, opening: Self) -> bool {
        self.is_bare && self.sign as u32 == opening.sign as u32 && self.length >= opening.length
    }
}

fn fence_of(line: &str) -> Option<BlockFence> {
    let body = line.trim_start_matches(' ');
    let sign = body.chars().next().filter(|sign| matches!(sign, '`' | '~'))?;
    let rest = body.trim_start_matches(sign);
    let length = body.len() - rest.len();
    // More than three spaces are code already (CommonMark 0.31, 4.5).
    let is_fence = length >= 3 && line.len() - body.len() <= 3;
    is_fence.then(|| BlockFence { sign, length, is_bare: rest.trim().is_empty() })
}

/// Reads the acceptance checks of a description: the items below its line `Acceptance:`.
pub fn read_acceptance(description: &str) -> Vec<String> {
    read_items(description, "acceptance")
}

/// Reads the paths that a description gives to its agent although they are protected: the items below its line `May change:`.
pub fn read_allowed_paths(description: &str) -> Vec<String> {
    read_items(description, "may change").iter().filter_map(|item| path_of(item)).collect()
}

/// Reads the paths that a description protects: the items below its line `Leave alone:`.
pub fn read_kept_paths(description: &str) -> Vec<String> {
    read_items(description, "leave alone").iter().filter_map(|item| path_of(item)).collect()
}

/// Returns the path that an item begins with, with or without backquotes.
fn path_of(item: &str) -> Option<String> {
    let path = match item.strip_prefix('`') {
        Some(quoted) => quoted.split('`').next(),
        None => item.split_whitespace().next(),
    };
    path.map(|path| path.trim_end_matches([':', ',']).to_owned()).filter(|path| !path.is_empty())
}

/// Reads the items below a line that is a heading in words alone.
fn read_items(description: &str, heading: &str) -> Vec<String> {
    let is_heading = |line: &str| {
        let word = line.trim().trim_start_matches('#').trim().replace("**", "");
        word.trim_end_matches(':').eq_ignore_ascii_case(heading)
    };
    // From the heading on; what stands before it describes the unit.
    let mut items: Vec<String> = Vec::new();
    let below = description.lines().skip_while(|line| !is_heading(line)).skip(1);
    for line in below {
        let body = line.trim();
        let item = ["* ", "- "].into_iter().find_map(|sign| body.strip_prefix(sign));
        match (item, items.last_mut()) {
            (Some(item), _) => items.push(item.trim().to_owned()),
            (None, _) if body.is_empty() => {}
            // A line that goes on below its item.
            (None, Some(last)) if line.starts_with(' ') => {
                last.push(' ');
                last.push_str(body);
            }
            (None, _) => break,
        }
    }
    items.retain(|item| !item.is_empty());
    items
}
