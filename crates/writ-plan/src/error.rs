//! Mistakes in plan documents: the line, the field, the problem, and a hint.

use std::fmt;

use writ_types::error::{Exit, Report, ToReport};

/// The longest quotation of a document in an error, in characters.
pub(crate) const MAX_QUOTED_CHARS: usize = 60;

/// A mistake in a plan document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PlanError {
    /// The line of the document, counted from one; none for a document that was not read from text.
    pub line: Option<u32>,
    /// The field, as its keys and numbers from the outermost on, joined by dots. Empty: the document as a whole.
    pub field: String,
    /// The mistake.
    pub problem: PlanProblem,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        self.problem.fmt(f)
    }
}

/// The mistake itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanProblem {
    /// The document is too large to be read.
    #[error("the plan has {bytes} bytes; at most {most} are read")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The text does not begin with front matter.
    #[error("no front matter: a plan begins with a line `---`")]
    NoFrontMatter,
    /// The front matter does not end.
    #[error("the front matter is not closed by a second line `---`")]
    Unclosed,
    /// The text holds more than one plan.
    #[error("{count} plans in one answer; exactly one is read")]
    Several {
        /// The number found.
        count: usize,
    },
    /// The front matter is not in the part of YAML that is read.
    #[error("{0}")]
    Syntax(String),
    /// A key that plans do not have.
    #[error("unknown key '{key}'")]
    UnknownKey {
        /// The key.
        key: String,
        /// The key that was probably meant.
        nearest: Option<&'static str>,
    },
    /// A key that must be there.
    #[error("'{0}' is missing")]
    Missing(&'static str),
    /// A value of the wrong form.
    #[error("'{found}' is not {expected}")]
    Wrong {
        /// The value, cut.
        found: String,
        /// The form, as a phrase such as «a whole number».
        expected: String,
    },
    /// More of something than is read.
    #[error("{count} {what}; at most {most} are read")]
    TooMany {
        /// The things, in plural.
        what: &'static str,
        /// Their number.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// A plan of the autopilot, which is not written as Markdown.
    #[error("a plan of the autopilot is not written as a document")]
    Pilot,
    /// Two things with one name.
    #[error("'{0}' is there twice")]
    Duplicate(String),
    /// A step that is not in the plan.
    #[error("there is no step '{name}'")]
    UnknownStep {
        /// The name.
        name: String,
        /// The step that was probably meant.
        nearest: Option<String>,
    },
    /// Steps that wait for one another.
    #[error("the steps {} wait for one another", .0.join(" → "))]
    Cycle(Vec<String>),
    /// A check without an expectation.
    #[error("the check expects nothing")]
    NoExpectation,
    /// A check with an expectation about output, but without a command.
    #[error("'{0}' needs a command to run")]
    NoCommand(&'static str),
    /// A path that leaves the work.
    #[error("'{0}' is not a path inside the work")]
    Path(String),
}

impl PlanProblem {
    /// Returns the next thing to do, for the planner and for people.
    pub fn hint(&self) -> String {
        match self {
            Self::TooLarge { .. } => "shorten the prose, or plan the first part alone".to_owned(),
            Self::NoFrontMatter | Self::Unclosed => {
                "answer with the plan alone: `---`, the keys, `---`, then `# What to do`".to_owned()
            }
            Self::Several { .. } => {
                "make one plan of type `project` whose steps are the several plans".to_owned()
            }
            Self::Syntax(_) => {
                "write plain YAML: `key: value`, lists with `- `, long texts with `|`".to_owned()
            }
            Self::UnknownKey { nearest: Some(nearest), .. } => format!("'{nearest}' is probably meant"),
            Self::UnknownKey { nearest: None, .. } => "leave it out, or say it in the prose".to_owned(),
            Self::Missing(key) => format!("add '{key}'"),
            Self::Wrong { expected, .. } => format!("write {expected}"),
            Self::TooMany { what, .. } => format!("plan fewer {what}"),
            Self::Pilot => "`writ pilot plan GOAL` makes one; write `task` or `project` here".to_owned(),
            Self::Duplicate(_) => "give each a name of its own".to_owned(),
            Self::UnknownStep { nearest: Some(nearest), .. } => format!("'{nearest}' is probably meant"),
            Self::UnknownStep { nearest: None, .. } => "name the `id` of a step of this plan".to_owned(),
            Self::Cycle(_) => "remove one of the dependencies in `after`".to_owned(),
            Self::NoExpectation => "say what proves success, such as `expect: { exit_code: 0 }`".to_owned(),
            Self::NoCommand(_) => "add `run: COMMAND`, or expect `file_exists` alone".to_owned(),
            Self::Path(_) => "use a relative path without `..`".to_owned(),
        }
    }
}

impl PlanError {
    /// Creates an error about a field; its line is added where the text is known.
    pub(crate) fn new(field: impl Into<String>, problem: PlanProblem) -> Self {
        Self { line: None, field: field.into(), problem }
    }

    /// Returns the mistake and the hint in one text, for the planner.
    pub fn model_message(&self) -> String {
        format!("{self}. {}", capitalise(&self.problem.hint()))
    }
}

impl ToReport for PlanError {
    fn report(&self) -> Report {
        Report::new(Exit::Model, "plan.document", self.to_string()).with_hint(self.problem.hint())
    }
}

/// Cuts a value of a document to what an error may quote.
pub(crate) fn quoted(text: &str) -> String {
    // A control character of a document could forge lines of a terminal.
    let cut: String =
        text.chars().take(MAX_QUOTED_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if cut.len() < text.len() { format!("{cut}…") } else { cut }
}

fn capitalise(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
