//! The decision of a reassessment, as an agent hands it in.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The largest answer that is read, in bytes of JSON.
pub const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// The most questions to a person.
pub const MAX_QUESTIONS: usize = 10;

/// One of the three decisions (SF 4.6). It is an argument of a tool call, never read out of prose, which may speak of all three.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub enum ReassessDecision {
    /// Another plan.
    Replan {
        /// The text of the new `plan.md`.
        plan: String,
        /// The reason.
        reason: String,
    },
    /// The end of the unit.
    Abandon {
        /// The reason.
        reason: String,
    },
    /// Questions to a person.
    Escalate {
        /// The questions.
        questions: Vec<String>,
    },
}

/// An answer that is none of the three decisions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// More than is read.
    #[error("the answer is larger than {MAX_ANSWER_BYTES} bytes")]
    TooLarge,
    /// Another form.
    #[error("the answer is no decision: {0}")]
    Form(String),
    /// A part without content.
    #[error("'{0}' is empty")]
    Empty(&'static str),
    /// More questions than a person should have to answer.
    #[error("more than {MAX_QUESTIONS} questions")]
    TooManyQuestions,
}

/// Reads the arguments of the tool call.
///
/// # Errors
///
/// If they are no decision, have an empty part, or are too large.
pub fn parse_answer(arguments: &str) -> Result<ReassessDecision, AnswerError> {
    if arguments.len() > MAX_ANSWER_BYTES {
        return Err(AnswerError::TooLarge);
    }

    // A value first: then only the form can be wrong, and its message names the part.
    let value: Value =
        serde_json::from_str(arguments).map_err(|error| AnswerError::Form(error.to_string()))?;
    let decision =
        ReassessDecision::deserialize(value).map_err(|error| AnswerError::Form(error.to_string()))?;
    // A person reads the reason later, so a decision without one is refused while its writer can still answer.
    let is_empty = |text: &String| text.trim().is_empty();
    match &decision {
        ReassessDecision::Replan { plan, .. } if is_empty(plan) => Err(AnswerError::Empty("plan")),
        ReassessDecision::Replan { reason, .. } | ReassessDecision::Abandon { reason }
            if is_empty(reason) =>
        {
            Err(AnswerError::Empty("reason"))
        }
        ReassessDecision::Escalate { questions } if questions.len() > MAX_QUESTIONS => {
            Err(AnswerError::TooManyQuestions)
        }
        ReassessDecision::Escalate { questions }
            if questions.is_empty() || questions.iter().any(is_empty) =>
        {
            Err(AnswerError::Empty("questions"))
        }
        ReassessDecision::Replan { .. }
        | ReassessDecision::Abandon { .. }
        | ReassessDecision::Escalate { .. } => Ok(decision),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SF-102 (the three answers; the failed attempt needs the shell)
    #[test]
    fn only_three_decisions_are_read() {
        let read = |text: &str| parse_answer(text);
        assert_eq!(
            read(r##"{"decision":"replan","plan":"# Goal","reason":"the other way"}"##),
            Ok(ReassessDecision::Replan { plan: "# Goal".to_owned(), reason: "the other way".to_owned() })
        );
        assert_eq!(
            read(r#"{"decision":"abandon","reason":"not possible"}"#),
            Ok(ReassessDecision::Abandon { reason: "not possible".to_owned() })
        );
        assert_eq!(
            read(r#"{"decision":"escalate","questions":["Which?"]}"#),
            Ok(ReassessDecision::Escalate { questions: vec!["Which?".to_owned()] })
        );
        for text in [
            "",
            "abandon",
            r#""abandon""#,
            r#"{"decision":"continue","reason":"x"}"#,
            r#"{"decision":"Abandon","reason":"x"}"#,
            r#"{"decision":"abandon"}"#,
            r#"{"decision":"abandon","reason":"x","phase":"complete"}"#,
            r#"{"decision":"replan","reason":"x"}"#,
        ] {
            assert!(matches!(read(text), Err(AnswerError::Form(_))), "{text}");
        }
        assert_eq!(read(r#"{"decision":"abandon","reason":" "}"#), Err(AnswerError::Empty("reason")));
        assert_eq!(read(r#"{"decision":"replan","plan":"","reason":"x"}"#), Err(AnswerError::Empty("plan")));
        assert_eq!(read(r#"{"decision":"escalate","questions":[]}"#), Err(AnswerError::Empty("questions")));
        let many = serde_json::json!({ "decision": "escalate", "questions": vec!["?"; 11] });
        assert_eq!(read(&many.to_string()), Err(AnswerError::TooManyQuestions));
        assert_eq!(read(&" ".repeat(MAX_ANSWER_BYTES + 1)), Err(AnswerError::TooLarge));
    }
}
