//! The reasons why a forge has no request for review to show.

use serde_json::Value;
use writ_types::error::{Exit, Report, ToReport};

use super::ForgeAnswer;

/// The longest message of a forge that is shown, in characters.
const MAX_SAID_CHARS: usize = 300;
/// The most messages of one answer that are joined.
const MAX_SAID: usize = 5;
/// How deep a message may lie in the answer.
const MAX_DEPTH: usize = 4;

/// The reason why a request was not opened. The work stays merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForgeError {
    /// There is no token.
    #[error("there is no value for the forge's token '{0}'")]
    NoToken(String),
    /// The forge does not take the token.
    #[error("the forge refused the token (HTTP 401)")]
    Token,
    /// The token may not do this.
    #[error("the forge does not permit it (HTTP 403): {said}")]
    Forbidden {
        /// The forge's words.
        said: String,
    },
    /// There is no such repository, or the token may not see it.
    #[error("the forge knows no such repository, or the token may not see it (HTTP 404)")]
    NoProject,
    /// There is a request for these branches that the list does not show.
    #[error("the forge says that there is a request for these branches already: {said}")]
    Exists {
        /// The forge's words.
        said: String,
    },
    /// The base has everything that the branch has.
    #[error("the forge finds nothing in the branch that the base lacks: {said}")]
    NothingNew {
        /// The forge's words.
        said: String,
    },
    /// The forge does not take the request as it is.
    #[error("the forge does not take the request (HTTP {status}): {said}")]
    Invalid {
        /// The HTTP status.
        status: u16,
        /// The forge's words.
        said: String,
    },
    /// The forge wants to be asked less often.
    #[error("the forge's limit of requests is reached (HTTP {status})")]
    Limited {
        /// The HTTP status.
        status: u16,
        /// The time for which it asks not to be called again, in seconds.
        wait_secs: Option<u64>,
    },
    /// The forge has a fault of its own.
    #[error("the forge has a fault of its own (HTTP {status})")]
    Down {
        /// The HTTP status.
        status: u16,
        /// The time for which it asks not to be called again, in seconds.
        wait_secs: Option<u64>,
    },
    /// The answer leads elsewhere.
    #[error("the forge sends the request to another address (HTTP {status}), which is not followed")]
    Moved {
        /// The HTTP status.
        status: u16,
    },
    /// The answer is not in the format of the forge.
    #[error("the answer is not in the format of this kind of forge")]
    Format,
    /// Nothing was sent.
    #[error("the forge was not reached: {why}")]
    NotSent {
        /// The reason.
        why: String,
    },
    /// The request may have arrived.
    #[error("the forge gave no whole answer: {why}")]
    Unanswered {
        /// The reason.
        why: String,
    },
    /// A person or the engine has stopped it.
    #[error("it was stopped")]
    Stopped,
}

impl ForgeError {
    /// Makes the error of an answer with another status than was wanted.
    pub(super) fn from_answer(answer: ForgeAnswer<'_>) -> Self {
        let (status, wait_secs) = (answer.status, answer.wait_secs);
        let said = read_message(answer.body);
        let lower = said.to_lowercase();
        let is_limit = wait_secs.is_some() || lower.contains("rate limit") || lower.contains("abuse");
        match status {
            // Gitea says 401 to a token that was deleted, GitHub also to one that has expired.
            401 => Self::Token,
            // GitHub says 403 where too much was created in a short time.
            403 if is_limit => Self::Limited { status, wait_secs },
            403 => Self::Forbidden { said },
            // A repository that the token may not see looks like one that is not there.
            404 | 410 => Self::NoProject,
            429 => Self::Limited { status, wait_secs },
            409 | 422 if lower.contains("already exists") => Self::Exists { said },
            409 | 422 if lower.contains("no commits between") || lower.contains("no changes") => {
                Self::NothingNew { said }
            }
            // GitLab and Gitea have no other conflict at this call, and may translate their words.
            409 => Self::Exists { said },
            300..=399 => Self::Moved { status },
            500..=599 => Self::Down { status, wait_secs },
            200..=299 => Self::Format,
            _ => Self::Invalid { status, said },
        }
    }

    /// Returns true if another try a little later may succeed.
    pub const fn can_pass(&self) -> bool {
        matches!(
            self,
            Self::Limited { .. } | Self::Down { .. } | Self::NotSent { .. } | Self::Unanswered { .. }
        )
    }

    /// Returns the time for which the forge asks not to be called again, in seconds.
    pub const fn wait_secs(&self) -> Option<u64> {
        match self {
            Self::Limited { wait_secs, .. } | Self::Down { wait_secs, .. } => *wait_secs,
            Self::NoToken(_)
            | Self::Token
            | Self::Forbidden { .. }
            | Self::NoProject
            | Self::Exists { .. }
            | Self::NothingNew { .. }
            | Self::Invalid { .. }
            | Self::Moved { .. }
            | Self::Format
            | Self::NotSent { .. }
            | Self::Unanswered { .. }
            | Self::Stopped => None,
        }
    }
}

/// Reads the forge's own words: GitHub has them in `message` and `errors`, GitLab in `message` or `error` as text, list or table, Gitea in
/// `message`.
fn read_message(body: &[u8]) -> String {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else {
        return "its answer is no JSON".to_owned();
    };
    let mut said = Vec::new();
    for key in ["message", "error", "errors"] {
        if let Some(value) = answer.get(key) {
            collect_texts(value, 0, &mut said);
        }
    }
    let joined = said.join("; ");
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let cut: String = joined.chars().take(MAX_SAID_CHARS).map(plain).collect();
    if cut.is_empty() { "it gives no reason".to_owned() } else { cut }
}

fn collect_texts(value: &Value, depth: usize, said: &mut Vec<String>) {
    // The answer is another's: it may be nested and long without end.
    if depth > MAX_DEPTH || said.len() >= MAX_SAID {
        return;
    }
    match value {
        Value::String(text) => said.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, depth + 1, said)),
        // Of GitHub's errors only the message is for people.
        Value::Object(fields) => match fields.get("message") {
            Some(message) => collect_texts(message, depth + 1, said),
            None => fields.values().for_each(|field| collect_texts(field, depth + 1, said)),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl ToReport for ForgeError {
    // tidy: table
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            Self::NoToken(_) => Report::new(Exit::Config, "forge.no_token", text)
                .with_hint("store it with `writ secrets set NAME`, then `writ pilot ship UNIT`"),
            Self::Token => Report::new(Exit::Config, "forge.token", text)
                .with_hint("make a new token, store it with `writ secrets set`, then `writ pilot ship UNIT`"),
            Self::Forbidden { .. } => Report::new(Exit::Denied, "forge.forbidden", text)
                .with_hint("give the token the right to write requests of this repository"),
            Self::NoProject => Report::new(Exit::Config, "forge.no_project", text)
                .with_hint("correct `pilot.ship.repository`, or give the token this repository"),
            Self::Exists { .. } => Report::new(Exit::Blocked, "forge.exists", text)
                .with_hint("look at the forge: the branch is pushed, so its open request shows the work"),
            Self::NothingNew { .. } => Report::new(Exit::Blocked, "forge.nothing_new", text)
                .with_hint("nothing has to be done: the forge has this work"),
            Self::Invalid { .. } => Report::new(Exit::Blocked, "forge.invalid", text)
                .with_hint("look if `pilot.ship.base` is a branch at the forge"),
            Self::Limited { .. } => Report::new(Exit::Budget, "forge.limited", text)
                .with_hint("`writ pilot ship UNIT` tries it again later"),
            Self::Down { .. } => Report::new(Exit::Blocked, "forge.down", text)
                .with_hint("`writ pilot ship UNIT` tries it again later"),
            Self::Moved { .. } => Report::new(Exit::Config, "forge.moved", text)
                .with_hint("write the new address as `pilot.ship.api`, or the new name of the repository"),
            Self::Format => Report::new(Exit::Config, "forge.format", text).with_hint(
                "look if `pilot.ship.api` is the address of the API, and `pilot.ship.forge` its kind",
            ),
            Self::NotSent { .. } => Report::new(Exit::Blocked, "forge.unreachable", text)
                .with_hint("`writ doctor` shows what is wrong with the network"),
            Self::Unanswered { .. } => Report::new(Exit::Blocked, "forge.unanswered", text)
                .with_hint("`writ pilot ship UNIT` looks first if the request is there"),
            Self::Stopped => Report::new(Exit::Interrupted, "forge.stopped", text)
                .with_hint("`writ pilot ship UNIT` tries it again"),
        }
    }
}
