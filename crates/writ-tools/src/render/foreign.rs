//! Renders the answer of a foreign tool for the model.

use serde_json::Value;
use writ_types::chat::{STRUCTURED, ToolOutcome};

/// Renders an answer: its text, and its structured result where the text does not repeat it.
pub(super) fn render_answer(text: &str, structured: Option<&Value>, is_error: bool) -> (String, ToolOutcome) {
    let said = match structured {
        Some(structured) if text.trim().is_empty() => format!("{structured:#}"),
        // Servers often repeat the structured result as text; the model needs it once.
        Some(structured) if !repeats_structured(text, structured) => {
            format!("{text}{STRUCTURED}{structured:#}")
        }
        Some(_) | None => text.to_owned(),
    };
    match (is_error, said.trim().is_empty()) {
        (false, false) => (said, ToolOutcome::Done),
        (false, true) => ("(the tool answered nothing)".to_owned(), ToolOutcome::Done),
        (true, false) => (format!("the tool says that it failed:\n{said}"), ToolOutcome::Failed),
        (true, true) => ("the tool says that it failed, and nothing more".to_owned(), ToolOutcome::Failed),
    }
}

/// Returns true if a text says what the structured result says: as JSON, or as servers made with the Python library do,
/// which put what is no object into `result`, and give each item of a list as a text of its own.
fn repeats_structured(text: &str, structured: &Value) -> bool {
    let is = |text: &str, value: &Value| {
        value.as_str() == Some(text) || serde_json::from_str::<Value>(text).is_ok_and(|said| said == *value)
    };
    if is(text, structured) {
        return true;
    }
    let Some(result) =
        structured.as_object().filter(|fields| fields.len() == 1).and_then(|one| one.get("result"))
    else {
        return false;
    };
    let items = |items: &Vec<Value>| {
        let all: Vec<Value> = serde_json::Deserializer::from_str(text)
            .into_iter()
            .map_while(Result::ok)
            .take(items.len() + 1)
            .collect();
        let lines = || text.lines().map(Value::from).collect::<Vec<_>>();
        all == *items || lines() == *items
    };
    is(text, result) || result.as_array().is_some_and(items)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_structured_reaches_the_model_beside_a_text_and_beside_an_error() {
        let both = render_answer("found one", Some(&json!({"id": 7})), false);
        assert_eq!(both, ("found one\n[structured result]\n{\n  \"id\": 7\n}".to_owned(), ToolOutcome::Done));
        let (error, outcome) = render_answer("no such id", Some(&json!({"nearest": 8})), true);
        assert!(error.contains("no such id") && error.contains("\"nearest\": 8"), "{error}");
        assert_eq!(outcome, ToolOutcome::Failed);
        let alone = render_answer("", Some(&json!({"id": 7})), false);
        assert_eq!(alone.0, "{\n  \"id\": 7\n}");
    }

    #[test]
    fn what_a_text_repeats_is_told_once() {
        for (text, structured) in [
            (r#"{"a": 1, "b": [2]}"#, json!({"b": [2], "a": 1})),
            ("five", json!({"result": "five"})),
            ("5", json!({"result": 5})),
            ("[1,2]", json!({"result": [1, 2]})),
            ("1\n2", json!({"result": [1, 2]})),
            ("one\ntwo", json!({"result": ["one", "two"]})),
            ("{\"a\":1}\n{\"a\":2}", json!({"result": [{"a": 1}, {"a": 2}]})),
        ] {
            assert_eq!(render_answer(text, Some(&structured), false).0, text);
        }
        for (text, structured) in [("5", json!({"result": 6})), ("1\n2\n3", json!({"result": [1, 2]}))] {
            assert!(render_answer(text, Some(&structured), false).0.contains(STRUCTURED), "{text}");
        }
    }

    #[test]
    fn an_empty_result_is_an_empty_result() {
        for structured in [None, Some(&json!({"result": ""}))] {
            let (text, outcome) = render_answer("", structured, false);
            assert_eq!(outcome, ToolOutcome::Done);
            assert_eq!(text == "(the tool answered nothing)", structured.is_none());
        }
        assert_eq!(render_answer(" ", None, true).0, "the tool says that it failed, and nothing more");
    }
}
