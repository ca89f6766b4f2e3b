//! The end that a client sets for an answer: words to stop at, and a length.

use serde_json::Value;
use writ_types::chat::estimate_tokens_of_chars;

use super::fields::{Fields, invalid_field};
use crate::http::reply::Refusal;

/// The most stop words; the format allows four.
const MAX_STOPS: usize = 4;
/// The longest word to stop at, in bytes. So much of a stream is held back at most.
const MAX_STOP_BYTES: usize = 256;

/// The reason why an answer was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// One of the words to stop at came.
    Stop,
    /// It became too long.
    Length,
}

/// Cuts the text of an answer, whole or in pieces. It cuts what a client reads; the agent's turn goes on to its end.
#[derive(Clone, Debug, Default)]
pub(super) struct TextLimit {
    stops: Vec<String>,
    max_tokens: Option<u64>,
    /// Text that may be the beginning of a word to stop at.
    held: String,
    passed_chars: usize,
    cut: Option<Cut>,
}

impl TextLimit {
    /// Reads the limits of a request. The lowest number of tokens counts.
    ///
    /// # Errors
    ///
    /// If a field is not of its type, or there are too many or too long words to stop at.
    pub(super) fn read(fields: &mut Fields, counts: &[&str]) -> Result<Self, Refusal> {
        let stops = match fields.take_field("stop") {
            None => Vec::new(),
            Some(Value::String(stop)) => vec![stop],
            Some(Value::Array(stops)) => stops
                .into_iter()
                .map(|stop| match stop {
                    Value::String(stop) => Ok(stop),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                        Err(invalid_field("stop", "must be a text or a list of texts"))
                    }
                })
                .collect::<Result<_, _>>()?,
            Some(_) => return Err(invalid_field("stop", "must be a text or a list of texts")),
        };
        // As much text is held back as the longest stop sequence, so their length is bounded.
        if stops.len() > MAX_STOPS || stops.iter().any(|stop| stop.len() > MAX_STOP_BYTES) {
            return Err(invalid_field(
                "stop",
                &format!("has more than {MAX_STOPS} texts or {MAX_STOP_BYTES} bytes in one"),
            ));
        }
        let mut max_tokens: Option<u64> = None;
        for name in counts {
            if let Some(count) = fields.take_count(name)? {
                // The format has two names for the same limit.
                max_tokens = Some(max_tokens.map_or(count, |max| max.min(count)));
            }
        }
        // An empty word would cut every answer to nothing.
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        Ok(Self { stops, max_tokens, ..Self::default() })
    }

    /// The reason of the cut, if there was one.
    pub(super) const fn cut(&self) -> Option<Cut> {
        self.cut
    }

    /// Takes more text and returns what may be shown of it now.
    pub(super) fn push_text(&mut self, text: &str) -> String {
        if self.cut.is_some() {
            return String::new();
        }
        self.held.push_str(text);
        // The first word in the text counts, not the first in the list.
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.held.truncate(at);
            self.cut = Some(Cut::Stop);
            let rest = std::mem::take(&mut self.held);
            return self.shorten_text(rest);
        }
        // The end may be the beginning of a stop word, so it waits for more text.
        let ready = self.held.len().saturating_sub(self.pending_bytes());
        let held = self.held.split_off(ready);
        let ready = std::mem::replace(&mut self.held, held);
        self.shorten_text(ready)
    }

    /// Returns what was held back, at the end of the text.
    pub(super) fn finish_text(&mut self) -> String {
        let rest = std::mem::take(&mut self.held);
        self.shorten_text(rest)
    }

    /// A whole text, cut.
    pub(super) fn limit_text(&mut self, text: &str) -> String {
        let shown = self.push_text(text);
        shown + &self.finish_text()
    }

    /// The length of the longest end of the text that may grow into a word to stop at.
    fn pending_bytes(&self) -> usize {
        let begins = |stop: &String| {
            let ends = stop.char_indices().map(|(at, _)| at).filter(|at| *at > 0);
            let mut ends: Vec<usize> = ends.collect();
            ends.reverse();
            ends.into_iter().find(|at| stop.get(..*at).is_some_and(|start| self.held.ends_with(start)))
        };
        self.stops.iter().filter_map(begins).max().unwrap_or_default()
    }

    fn shorten_text(&mut self, text: String) -> String {
        let Some(max) = self.max_tokens else { return text };
        // The same estimate as everywhere else, so that the count fits the usage that is reported.
        let fits = |chars: usize| estimate_tokens_of_chars(chars).get() <= max;
        let mut shown = String::new();
        for letter in text.chars() {
            if !fits(self.passed_chars.saturating_add(1)) {
                self.cut = Some(Cut::Length);
                break;
            }
            self.passed_chars = self.passed_chars.saturating_add(1);
            shown.push(letter);
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fields::CHAT;
    use super::*;

    fn limit(fields: Value) -> TextLimit {
        let mut fields = Fields::check(fields, CHAT).expect("fields");
        TextLimit::read(&mut fields, &["max_tokens", "max_completion_tokens"]).expect("a limit")
    }

    fn in_pieces(mut limit: TextLimit, text: &str) -> (String, Option<Cut>) {
        let mut shown: String = text.chars().map(|letter| limit.push_text(&letter.to_string())).collect();
        shown.push_str(&limit.finish_text());
        (shown, limit.cut())
    }

    #[test]
    fn a_text_is_cut_the_same_whole_and_in_pieces() {
        for (fields, text, shown, cut) in [
            (json!({}), "one two", "one two", None),
            (json!({ "stop": "two" }), "one two three", "one ", Some(Cut::Stop)),
            (json!({ "stop": ["three", "two"] }), "one two three", "one ", Some(Cut::Stop)),
            (json!({ "stop": "END" }), "one EN", "one EN", None),
            (json!({ "stop": "aab" }), "aaab", "a", Some(Cut::Stop)),
            (json!({ "stop": "ü!" }), "grün ü!x", "grün ", Some(Cut::Stop)),
            (json!({ "stop": ["", "x"] }), "axb", "a", Some(Cut::Stop)),
            (json!({ "stop": [] }), "a", "a", None),
        ] {
            let mut whole = limit(fields.clone());
            assert_eq!((whole.limit_text(text), whole.cut()), (shown.to_owned(), cut), "{fields}");
            assert_eq!(in_pieces(limit(fields.clone()), text), (shown.to_owned(), cut), "{fields}");
        }
    }

    #[test]
    fn the_lowest_number_of_tokens_counts() {
        let text = "x".repeat(1_000);
        let (shown, cut) = in_pieces(limit(json!({ "max_tokens": 90, "max_completion_tokens": 10 })), &text);
        assert_eq!(cut, Some(Cut::Length));
        assert!(estimate_tokens_of_chars(shown.len()).get() == 10, "{}", shown.len());
        let (shown, cut) = in_pieces(limit(json!({ "max_completion_tokens": 4_000 })), &text);
        assert_eq!((shown.len(), cut), (1_000, None));
    }

    #[test]
    fn limits_that_cannot_be_understood_are_refused_by_name() {
        for (fields, name) in [
            (json!({ "stop": 1 }), "stop"),
            (json!({ "stop": [1] }), "stop"),
            (json!({ "stop": ["a", "b", "c", "d", "e"] }), "stop"),
            (json!({ "stop": "x".repeat(257) }), "stop"),
            (json!({ "max_tokens": -1 }), "max_tokens"),
            (json!({ "max_completion_tokens": "many" }), "max_completion_tokens"),
        ] {
            let mut fields = Fields::check(fields, CHAT).expect("fields");
            let read = TextLimit::read(&mut fields, &["max_tokens", "max_completion_tokens"]);
            assert_eq!(read.expect_err("refused").param(), Some(name));
        }
    }
}
