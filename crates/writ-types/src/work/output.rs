//! The output of an executor that has worked on a step.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most artifacts and the most suggestions of one output: each is a line of a report.
const MAX_LISTED: usize = 16;

/// The most characters of each of them, such as a long path.
const MAX_LISTED_CHARS: usize = 500;

/// The most objects that one text is searched for.
const MAX_OBJECTS: usize = 8;

/// The output of an executor: its own words, which prove nothing. Checks decide, and what has changed is seen by the harness.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecutorOutput {
    /// A summary of what was done.
    pub summary: String,
    /// References to what holds the result: files, entries, links.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
    /// Suggestions for what to do next; nothing begins by them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next_steps: Vec<String>,
}

/// The reason that a text is no output of an executor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecutorOutputError {
    /// It does not end with a JSON object.
    #[error("the text does not end with a JSON object")]
    NoObject,
    /// A field is missing, unknown, or of another type.
    #[error("the object is no output of an executor: {0}")]
    Form(String),
    /// There is nothing in the summary.
    #[error("'summary' is empty")]
    NoSummary,
    /// A list has too many entries, or one that is too long.
    #[error("'{0}' has more than {MAX_LISTED} entries, or one with more than {MAX_LISTED_CHARS} characters")]
    TooLarge(&'static str),
}

impl ExecutorOutput {
    /// The form as executors are asked for it.
    pub const FORM: &str = r#"{"summary": "what was done", "artifacts": ["files or links that hold the result"], "next_steps": ["suggestions"]}"#;

    /// Reads the object at the end of an executor's last words.
    ///
    /// # Errors
    ///
    /// If there is none, or it has not this form.
    pub fn read_words(said: &str) -> Result<Self, ExecutorOutputError> {
        let said = said.trim().trim_end_matches("```").trim_end();
        let starts: Vec<usize> = line_starts(said).filter(|start| said[*start..].starts_with('{')).collect();
        // The earliest of the last ones, so that an object within another is not taken for the whole.
        let mut objects = starts.iter().rev().take(MAX_OBJECTS).rev();
        let found = objects.find_map(|start| serde_json::from_str::<Value>(&said[*start..]).ok());
        let value = found.ok_or(ExecutorOutputError::NoObject)?;
        let output: Self =
            serde_json::from_value(value).map_err(|error| ExecutorOutputError::Form(error.to_string()))?;
        if output.summary.trim().is_empty() {
            return Err(ExecutorOutputError::NoSummary);
        }
        for (name, list) in [("artifacts", &output.artifacts), ("next_steps", &output.next_steps)] {
            let is_long = |text: &String| text.chars().count() > MAX_LISTED_CHARS;
            if list.len() > MAX_LISTED || list.iter().any(is_long) {
                return Err(ExecutorOutputError::TooLarge(name));
            }
        }
        Ok(output)
    }

    /// Returns the output that an executor's last words stand for: that at their end, or else all of them as the summary.
    #[must_use]
    pub fn of_words(said: &str) -> Self {
        Self::read_words(said).unwrap_or_else(|_| Self {
            summary: said.trim().to_owned(),
            artifacts: Vec::new(),
            next_steps: Vec::new(),
        })
    }
}

/// The places in a text at which its lines begin.
fn line_starts(text: &str) -> impl Iterator<Item = usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(place, _)| place + 1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A whole sample is read, also behind prose and in a fence; one without a summary, with an unknown field or of another type is
    /// refused, and the schema says the same.
    ///
    /// Rows: SIL-058
    #[test]
    fn an_output_has_a_summary_artifacts_and_suggestions() {
        let sample = json!({
            "summary": "Added add() and its test.",
            "artifacts": ["src/add.rs", "https://example.org/run/7"],
            "next_steps": ["Run the benchmarks."],
        });
        let text = serde_json::to_string_pretty(&sample).expect("JSON");
        let whole = ExecutorOutput {
            summary: "Added add() and its test.".to_owned(),
            artifacts: vec!["src/add.rs".to_owned(), "https://example.org/run/7".to_owned()],
            next_steps: vec!["Run the benchmarks.".to_owned()],
        };
        for said in [text.clone(), format!("All is done.\n{text}\n"), format!("Done:\n```json\n{text}\n```")]
        {
            assert_eq!(ExecutorOutput::read_words(&said), Ok(whole.clone()), "{said}");
        }
        let short =
            ExecutorOutput::read_words(r#"{"summary": "Nothing was to do."}"#).expect("lists may be empty");
        assert_eq!((short.artifacts.len(), short.next_steps.len()), (0, 0));
        let refused = |value: Value| ExecutorOutput::read_words(&value.to_string());
        for (wrong, named) in [
            (json!({ "artifacts": ["a"], "next_steps": [] }), "summary"),
            (json!({ "summary": 7 }), "expected a string"),
            (json!({ "summary": "a", "verdict": "pass" }), "verdict"),
            (json!({ "summary": "a", "artifacts": "b" }), "sequence"),
        ] {
            let error = refused(wrong.clone()).expect_err("has another form");
            assert!(
                matches!(&error, ExecutorOutputError::Form(why) if why.contains(named)),
                "{wrong}: {error}"
            );
        }
        assert_eq!(refused(json!({ "summary": " " })), Err(ExecutorOutputError::NoSummary));
        let many = vec!["a"; MAX_LISTED + 1];
        assert_eq!(
            refused(json!({ "summary": "a", "next_steps": many })),
            Err(ExecutorOutputError::TooLarge("next_steps"))
        );
        let long = "a".repeat(MAX_LISTED_CHARS + 1);
        assert_eq!(
            refused(json!({ "summary": "a", "artifacts": [long] })),
            Err(ExecutorOutputError::TooLarge("artifacts"))
        );
        let schema = serde_json::to_value(schemars::schema_for!(ExecutorOutput)).expect("JSON");
        assert_eq!(
            (&schema["required"], &schema["additionalProperties"]),
            (&json!(["summary"]), &json!(false))
        );
        assert_eq!(
            ExecutorOutput::read_words(ExecutorOutput::FORM).expect("its own form").artifacts.len(),
            1
        );
    }

    #[test]
    fn words_without_an_output_are_the_summary() {
        for said in
            ["", "Done.", "{", "a { b }", "{\"summary\": \"a\"} and more", "{\"summary\": \"cut o", "é\n{é"]
        {
            assert_eq!(ExecutorOutput::read_words(said), Err(ExecutorOutputError::NoObject), "{said}");
            let output = ExecutorOutput::of_words(said);
            assert_eq!((output.summary.as_str(), output.artifacts.len()), (said.trim(), 0));
        }
    }
}
