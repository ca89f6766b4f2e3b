//! Errors of preparing a call, in words that help the model to correct it.

use writ_types::error::{Exit, Report, ToReport};
use writ_types::similar::nearest_name;

use crate::text::{cut_end, one_line};

/// The longest message to a model about a wrong call, in characters.
pub const MAX_MESSAGE_CHARS: usize = 2_000;

/// The longest foreign name that is repeated in a message, in characters.
const MAX_NAME_CHARS: usize = 60;

/// The longest line of a file that is quoted in a message, in characters.
const MAX_QUOTED_CHARS: usize = 160;

/// The reason that a call could not be prepared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// There is no such tool.
    #[error(
        "there is no tool '{}'{}; the tools are: {offered}",
        shorten_name(name),
        suggest_name(name, offered)
    )]
    Unknown {
        /// The name in the call.
        name: String,
        /// The tools that are offered.
        offered: String,
    },
    /// The tool is there, but not for this agent or session.
    #[error("the tool '{name}' is not available here; the tools are: {offered}")]
    NotOffered {
        /// The tool.
        name: String,
        /// The tools that are offered.
        offered: String,
    },
    /// The arguments are over a bound.
    #[error("{tool}: {what} is over the limit of {limit}")]
    TooLarge {
        /// The tool.
        tool: &'static str,
        /// The part that is too large.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The arguments are wrong.
    #[error("{tool}: {}; right would be for example {usage}", problems.join("; "))]
    Invalid {
        /// The tool.
        tool: &'static str,
        /// Everything that is wrong.
        problems: Vec<String>,
        /// An example of right arguments.
        usage: &'static str,
    },
    /// The arguments of a foreign tool do not fit its schema.
    #[error("{tool}: {}", problems.join("; "))]
    Foreign {
        /// The tool.
        tool: String,
        /// The problems, in our own words.
        problems: Vec<String>,
    },
    /// The file is not one that the tool can work on.
    #[error("{tool}: '{path}' {reason}")]
    Target {
        /// The tool.
        tool: &'static str,
        /// The file, relative to the work folder.
        path: String,
        /// The reason.
        reason: &'static str,
    },
    /// The text to replace is not in the file.
    #[error("file_patch: the old text is not in '{path}'{}{}", hint.map(|hint| format!(" ({hint})")).unwrap_or_default(), quote_lines(nearest))]
    NoMatch {
        /// The file, relative to the work folder.
        path: String,
        /// A possible cause.
        hint: Option<&'static str>,
        /// The lines that are most like it, with their numbers. Content of the file.
        nearest: Vec<(u64, String)>,
    },
    /// The text to replace is in the file more than once.
    #[error(
        "file_patch: the old text is in '{path}' {count} times, at lines {}; add lines around it, or set \"all\": true",
        list_lines(lines)
    )]
    Ambiguous {
        /// The file, relative to the work folder.
        path: String,
        /// The number of places.
        count: usize,
        /// The lines at which the first of them begin.
        lines: Vec<u64>,
    },
    /// The caller did not look at the file that the call needs: a bug of the harness.
    #[error("{tool}: the file was not looked at")]
    NotPeeked {
        /// The tool.
        tool: &'static str,
    },
}

impl ToolError {
    /// Returns the message for the model: one bounded text.
    pub fn model_message(&self) -> String {
        // A message may quote arguments, which can be long.
        cut_end(&self.to_string(), MAX_MESSAGE_CHARS).into_owned()
    }

    /// Returns the file whose content the message quotes, if it does: the message is then external.
    pub fn quoted_file(&self) -> Option<&str> {
        match self {
            Self::NoMatch { path, nearest, .. } if !nearest.is_empty() => Some(path),
            Self::NoMatch { .. }
            | Self::Unknown { .. }
            | Self::NotOffered { .. }
            | Self::TooLarge { .. }
            | Self::Invalid { .. }
            | Self::Foreign { .. }
            | Self::Target { .. }
            | Self::Ambiguous { .. }
            | Self::NotPeeked { .. } => None,
        }
    }

    fn error_code(&self) -> (Exit, &'static str) {
        match self {
            Self::Unknown { .. } => (Exit::Model, "tools.unknown"),
            Self::NotOffered { .. } => (Exit::Denied, "tools.not_offered"),
            Self::TooLarge { .. } => (Exit::Model, "tools.too_large"),
            Self::Invalid { .. } | Self::Foreign { .. } => (Exit::Model, "tools.invalid_arguments"),
            Self::Target { .. } => (Exit::Model, "tools.wrong_target"),
            Self::NoMatch { .. } => (Exit::Model, "tools.no_match"),
            Self::Ambiguous { .. } => (Exit::Model, "tools.ambiguous"),
            Self::NotPeeked { .. } => (Exit::Bug, "tools.not_peeked"),
        }
    }
}

impl ToReport for ToolError {
    fn report(&self) -> Report {
        let (exit, code) = self.error_code();
        Report::new(exit, code, self.model_message())
    }
}

/// The tool that a wrong name may mean, as a question.
fn suggest_name(name: &str, offered: &str) -> String {
    let offered: Vec<&str> = offered.split(", ").collect();
    nearest_name(name, &offered).map(|name| format!(" (did you mean '{name}'?)")).unwrap_or_default()
}

/// A name as the model wrote it, short and on one line.
pub(crate) fn shorten_name(name: &str) -> String {
    one_line(name, MAX_NAME_CHARS)
}

fn list_lines(lines: &[u64]) -> String {
    lines.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

fn quote_lines(nearest: &[(u64, String)]) -> String {
    if nearest.is_empty() {
        return String::new();
    }
    let lines: Vec<_> = nearest
        .iter()
        .map(|(number, line)| format!("{number}: {}", one_line(line, MAX_QUOTED_CHARS)))
        .collect();
    format!("; the nearest lines are\n{}", lines.join("\n"))
}
