//! Skills: folders with a `SKILL.md`, front matter and instructions, after the open standard Agent Skills (agentskills.io).
//!
//! Each key is read by itself. A description that strict YAML refuses, most often for a colon in it, is what people have written in many
//! of these files, and is read as the text that they meant.

use serde_json::{Map, Value};
use writ_types::visible::acts_unseen;

use crate::error::quoted;
use crate::yaml::{NodeValue, YamlNode, read_yaml, split_key};

/// The name of the file in a skill's folder.
pub const SKILL_FILE: &str = "SKILL.md";
/// The most bytes of a skill's file: the standard advises 5,000 tokens.
pub const MAX_SKILL_BYTES: usize = 128 * 1024;
/// The longest name, in characters (the standard's own limit, as are the next ones).
pub const MAX_NAME_CHARS: usize = 64;
/// The longest description, in characters.
pub const MAX_DESCRIPTION_CHARS: usize = 1_024;
/// The longest text about what a skill requires, in characters.
pub const MAX_REQUIREMENTS_CHARS: usize = 500;
/// The most keys of one file: the standard has six, and each product adds some.
const MAX_KEYS: usize = 64;

/// The way in which a skill comes into use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// An agent that reads its description decides.
    #[default]
    Auto,
    /// A person asks for it.
    Manual,
    /// It is in use without being asked for.
    Background,
}

impl Activation {
    const ALL: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("manual", Self::Manual), ("background", Self::Background)];

    fn parse_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(one, _)| *one == name).map(|(_, activation)| activation)
    }
}

/// A skill as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Its name, on one line.
    pub name: String,
    /// What it does, and when it is of use; on one line.
    pub description: String,
    /// The name of its licence, or of the file that has it.
    pub license: Option<String>,
    /// What it needs: `requirements`, or the standard's `compatibility`; on one line.
    pub requirements: Option<String>,
    /// The way in which it comes into use.
    pub activation: Activation,
    /// The arguments of its scripts, as they stand there; null where none are named.
    pub script_args: Value,
    /// What products show of it, as it stands there; null where nothing is named.
    pub ui: Value,
    /// Further facts.
    pub metadata: Map<String, Value>,
    /// The instructions: the text below the front matter.
    pub instructions: String,
    /// The mistakes in keys that decide nothing: each such key counts as absent.
    pub remarks: Vec<SkillError>,
}

/// A mistake in a skill's file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct SkillError {
    /// The line, counted from one.
    pub line: u32,
    /// The mistake.
    pub problem: SkillProblem,
}

/// The mistake itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkillProblem {
    /// The file is too large.
    #[error("the file has {0} bytes; at most {MAX_SKILL_BYTES} are read")]
    TooLarge(usize),
    /// The file does not begin with front matter.
    #[error("no front matter: the file begins with a line `---`")]
    NoFrontMatter,
    /// The front matter does not end.
    #[error("the front matter is not closed by a second line `---`")]
    Unclosed,
    /// A line that is not in the part of YAML that is read.
    #[error("{0}")]
    Syntax(String),
    /// A key that must be there and not empty.
    #[error("'{0}' is missing or empty")]
    Missing(&'static str),
    /// A key that is there more than once.
    #[error("'{0}' is there twice")]
    Duplicate(String),
    /// More keys than are read.
    #[error("more than {MAX_KEYS} keys")]
    TooManyKeys,
    /// A value of the wrong form.
    #[error("'{key}' is {found}, and should be {expected}")]
    Wrong {
        /// The key.
        key: String,
        /// The value, cut.
        found: String,
        /// The form, as a phrase such as «a text».
        expected: &'static str,
    },
    /// A text that is too long.
    #[error("'{key}' has {chars} characters; at most {most} are read")]
    TooLong {
        /// The key.
        key: &'static str,
        /// Its characters.
        chars: usize,
        /// The limit.
        most: usize,
    },
    /// A character that a reader of the file would not see.
    #[error("an invisible character U+{0:04X}")]
    Unseen(u32),
}

/// One key of the front matter with its lines.
#[derive(Debug)]
struct FrontKey<'a> {
    line: u32,
    key: String,
    rest: &'a str,
    lines: Vec<&'a str>,
}

/// Reads a skill's file.
///
/// Keys that are not known are those of other products, and are passed over.
///
/// # Errors
///
/// The first mistake, with its line.
pub fn read_skill(text: &str) -> Result<Skill, SkillError> {
    if text.len() > MAX_SKILL_BYTES {
        return Err(SkillError { line: 1, problem: SkillProblem::TooLarge(text.len()) });
    }
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let lines: Vec<&str> = text.lines().collect();
    check_seen(&lines)?;
    let (front, body) = split_front(&lines)?;
    let entries = split_entries(front)?;
    let find = |key: &str| entries.iter().find(|entry| entry.key == key);
    let need = |key: &'static str, most| {
        let missing = SkillError { line: 1, problem: SkillProblem::Missing(key) };
        find(key).map(|entry| entry.read_line(key, most)).transpose()?.flatten().ok_or(missing)
    };
    let (name, description) = (need("name", MAX_NAME_CHARS)?, need("description", MAX_DESCRIPTION_CHARS)?);
    let line_of = |key: &'static str, most| {
        find(key).map(|entry| entry.read_line(key, most)).transpose().map(Option::flatten)
    };
    // A mistake in a key that decides nothing costs that key alone. `activation` decides who may choose the skill.
    let mut remarks = Vec::new();
    let license = or_remark(line_of("license", MAX_REQUIREMENTS_CHARS), &mut remarks);
    let requirements = or_remark(line_of("requirements", MAX_REQUIREMENTS_CHARS), &mut remarks)
        .or_else(|| or_remark(line_of("compatibility", MAX_REQUIREMENTS_CHARS), &mut remarks));
    let value_of = |key| find(key).map(FrontKey::read_value).transpose().map(Option::unwrap_or_default);
    let metadata = match (find("metadata"), or_remark(value_of("metadata"), &mut remarks)) {
        (_, Value::Object(metadata)) => metadata,
        (None, _) | (_, Value::Null) => Map::new(),
        (Some(entry), other) => {
            remarks.push(entry.wrong(other.to_string(), "a mapping of keys and values"));
            Map::new()
        }
    };
    Ok(Skill {
        name,
        description,
        license,
        requirements,
        activation: read_activation(find("activation"), find("disable-model-invocation"))?,
        script_args: or_remark(value_of("script_args"), &mut remarks),
        ui: or_remark(value_of("ui"), &mut remarks),
        metadata,
        instructions: body.join("\n").trim().to_owned(),
        remarks,
    })
}

/// Returns what was read, or nothing with a remark.
fn or_remark<T: Default>(read: Result<T, SkillError>, remarks: &mut Vec<SkillError>) -> T {
    read.unwrap_or_else(|remark| {
        remarks.push(remark);
        T::default()
    })
}

/// Returns true for what a person who looks at the file does not see. The joiner of emoji is allowed: texts have them.
fn is_unseen(c: char) -> bool {
    acts_unseen(c) && !matches!(c, '\t' | '\u{200d}')
}

/// Refuses a file with something that no one sees.
fn check_seen(lines: &[&str]) -> Result<(), SkillError> {
    for (line, text) in (1..).zip(lines) {
        if let Some(c) = text.chars().find(|c| is_unseen(*c)) {
            return Err(SkillError { line, problem: SkillProblem::Unseen(u32::from(c)) });
        }
    }
    Ok(())
}

/// Splits the lines into those of the front matter and those below it.
fn split_front<'a>(lines: &'a [&'a str]) -> Result<(&'a [&'a str], &'a [&'a str]), SkillError> {
    let fault = |problem| SkillError { line: 1, problem };
    let is_rule = |line: &&str| line.trim_end() == "---";
    let Some((_, rest)) = lines.split_first().filter(|(first, _)| is_rule(first)) else {
        return Err(fault(SkillProblem::NoFrontMatter));
    };
    let close = rest.iter().position(is_rule).ok_or_else(|| fault(SkillProblem::Unclosed))?;
    let (front, body) = rest.split_at(close);
    Ok((front, body.get(1..).unwrap_or_default()))
}

/// Splits front matter at the keys that are not indented. A short form may be closed at the margin.
fn split_entries<'a>(front: &[&'a str]) -> Result<Vec<FrontKey<'a>>, SkillError> {
    let mut entries: Vec<FrontKey<'a>> = Vec::new();
    for (line, text) in (2_u32..).zip(front) {
        let fault = |problem| SkillError { line, problem };
        let begins = !text.is_empty() && !text.starts_with([' ', '\t', '#', '-']) && !is_close(text);
        match (begins, entries.last_mut()) {
            (false, Some(entry)) => entry.lines.push(text),
            // Blank lines and comments before the first key.
            (false, None) if text.trim().is_empty() || text.trim_start().starts_with('#') => {}
            (false, None) => return Err(fault(SkillProblem::Syntax(not_a_key(text)))),
            (true, _) => {
                let (key, rest) =
                    split_key(text.trim_end()).ok_or_else(|| fault(SkillProblem::Syntax(not_a_key(text))))?;
                // Readers disagree which of two values counts.
                if entries.iter().any(|entry| entry.key == key) {
                    return Err(fault(SkillProblem::Duplicate(quoted(&key))));
                }
                if entries.len() == MAX_KEYS {
                    return Err(fault(SkillProblem::TooManyKeys));
                }
                entries.push(FrontKey { line, key, rest, lines: vec![text] });
            }
        }
    }
    Ok(entries)
}

/// Returns true for a line that closes short forms and says nothing else.
fn is_close(text: &str) -> bool {
    text.trim_end().chars().all(|c| matches!(c, ']' | '}' | ','))
}

fn not_a_key(text: &str) -> String {
    format!("'{}' is not `key: value`", quoted(text.trim()))
}

fn read_activation(
    activation: Option<&FrontKey<'_>>,
    disable: Option<&FrontKey<'_>>,
) -> Result<Activation, SkillError> {
    let named = match activation.map(|entry| entry.read_value().map(|value| (entry, value))).transpose()? {
        None | Some((_, Value::Null)) => Activation::default(),
        Some((entry, Value::String(name))) => Activation::parse_name(&name)
            .ok_or_else(|| entry.wrong(format!("'{}'", quoted(&name)), "auto, manual or background"))?,
        Some((entry, other)) => return Err(entry.wrong(other.to_string(), "auto, manual or background")),
    };
    // Another product's key. Whatever else stands there was meant as a yes, such as `True`; and of two keys the stricter one counts.
    let disabled = disable.map(FrontKey::read_value).transpose()?.unwrap_or_default();
    let is_disabled = !matches!(disabled, Value::Null | Value::Bool(false));
    Ok(if is_disabled { Activation::Manual } else { named })
}

impl FrontKey<'_> {
    fn wrong(&self, found: String, expected: &'static str) -> SkillError {
        let problem =
            SkillProblem::Wrong { key: quoted(&self.key), found: found.chars().take(80).collect(), expected };
        SkillError { line: self.line, problem }
    }

    fn read_node(&self) -> Result<Option<YamlNode>, crate::error::PlanError> {
        let node = read_yaml(&self.lines.join("\n"), self.line)?;
        let NodeValue::Map(entries) = node.value else { return Ok(None) };
        // Lines that belong to a key cannot name another one.
        Ok(entries.into_iter().next().map(|(_, value)| value))
    }

    /// Reads a value of any form.
    fn read_value(&self) -> Result<Value, SkillError> {
        let node = self.read_node().map_err(|error| SkillError {
            line: error.line.unwrap_or(self.line),
            problem: SkillProblem::Syntax(error.problem.to_string()),
        })?;
        Ok(node.map(|node| node.to_json()).unwrap_or_default())
    }

    /// Reads a text as one line; nothing if it is empty.
    fn read_line(&self, key: &'static str, most: usize) -> Result<Option<String>, SkillError> {
        let text = match self.read_node() {
            Ok(Some(YamlNode { value: NodeValue::Text { text, is_quoted }, .. })) => {
                let is_null = !is_quoted && matches!(text.as_str(), "~" | "null");
                if is_null { String::new() } else { text }
            }
            Ok(Some(YamlNode { value: NodeValue::List(_), .. })) => {
                return Err(self.wrong("a list".to_owned(), "a text"));
            }
            Ok(Some(YamlNode { value: NodeValue::Map(_), .. })) if self.rest.starts_with('{') => {
                return Err(self.wrong("a mapping".to_owned(), "a text"));
            }
            Ok(Some(_) | None) | Err(_) => self.plain_text(),
        };
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // An escape of a quoted text may stand for one that the file itself does not have.
        if let Some(c) = text.chars().find(|c| is_unseen(*c)) {
            return Err(SkillError { line: self.line, problem: SkillProblem::Unseen(u32::from(c)) });
        }
        let chars = text.chars().count();
        if chars > most {
            let problem = SkillProblem::TooLong { key, chars, most };
            return Err(SkillError { line: self.line, problem });
        }
        Ok((!text.is_empty()).then_some(text))
    }

    /// The text as it stands there, over all of its lines.
    fn plain_text(&self) -> String {
        // A mark of a block with a width, such as `>2-`.
        let is_mark = self.rest.starts_with(['|', '>']) && self.rest.len() <= 3;
        let first = if is_mark { "" } else { self.rest };
        let more = self.lines.iter().skip(1).filter(|line| !line.starts_with('#')).copied();
        std::iter::once(first).chain(more).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests;
