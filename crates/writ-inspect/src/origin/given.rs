//! Values that the agent has handed to a server, and objects that it has made there.
//!
//! After external content was read, a server that is given composed text may return it as its own. So a value
//! of its later results counts only if it shares no word with that text, and none counts where the text was
//! written in a form that a server could decode into something else.
//!
//! An object that the agent makes has an id that the server chose. It stands alone in the answer to the call,
//! not in a list of others, and names only what the door has let be made.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use writ_types::chat::Field;

use super::link::find_links;
use super::text::fold_text;
use super::{is_id, name_of};
use crate::owner::MIN_TOKEN_CHARS;

/// The most different words stored per server: with more, none of its values counts.
const MAX_GIVEN: usize = 4_096;
/// The longest word that is one: what is longer may be an encoded text.
const MAX_WORD_CHARS: usize = 32;
/// The fewest characters of a word that is also found inside of longer ones.
const MIN_INNER_CHARS: usize = 4;
/// Encodings of letters: URLs, HTML, JSON and programs.
const ENCODES: [&str; 6] = ["%", "&#", "\\u", "\\x", "=?", "{{"];
/// The most ids of what one call has made.
const MAX_MADE: usize = 4;

/// The words that each server was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GivenTexts(BTreeMap<String, Words>);

/// The words that one server was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Words {
    words: BTreeSet<String>,
    /// They were too many, or could decode to something else.
    is_opaque: bool,
}

impl GivenTexts {
    pub(super) const fn nothing() -> Self {
        Self(BTreeMap::new())
    }

    /// Notes a text that a server was given.
    pub(super) fn add_text(&mut self, giver: &str, text: &str) {
        let given = self.0.entry(giver.to_owned()).or_default();
        let folded = fold_text(text);
        let is_encoded = ENCODES.iter().any(|code| folded.contains(code));
        for word in split_words(&folded) {
            given.is_opaque |= word.chars().count() > MAX_WORD_CHARS || given.words.len() >= MAX_GIVEN;
            if given.is_opaque {
                break;
            }
            given.words.insert(word.to_owned());
        }
        // A server that is given an address may answer with the content that lies there.
        given.is_opaque |= is_encoded || !find_links(text).is_empty();
    }

    /// Notes the values of a call that the model has composed: those that `is_known` refuses.
    pub(super) fn add_call(&mut self, giver: &str, arguments: &Value, is_known: impl Fn(&str) -> bool) {
        let mut texts = Vec::new();
        collect_leaves(arguments, &mut texts);
        texts.iter().filter(|text| !is_known(text)).for_each(|text| self.add_text(giver, text));
    }

    /// Returns true if any server may have taken a value from the agent's texts.
    pub(super) fn any_has_value(&self, value: &str) -> bool {
        self.0.values().any(|given| given.has_word_of(value))
    }

    /// Returns true if a server may have taken a value from the texts that it was given.
    pub(super) fn has_value(&self, giver: &str, value: &str) -> bool {
        self.0.get(giver).is_some_and(|given| given.has_word_of(value))
    }
}

impl Words {
    fn has_word_of(&self, value: &str) -> bool {
        if self.is_opaque {
            return true;
        }
        let value = fold_text(value);
        let is_long = |word: &&str| word.chars().count() >= MIN_TOKEN_CHARS;
        let mut long = split_words(&value).filter(is_long).peekable();
        if long.peek().is_none() {
            return split_words(&value).all(|word| self.words.contains(word));
        }
        long.any(|word| {
            let may_be_inside = word.chars().count() >= MIN_INNER_CHARS;
            self.words.contains(word)
                || (may_be_inside && self.words.iter().any(|given| given.contains(word)))
        })
    }
}

fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Returns the ids of what a call has made: those of its answer that stand in no list, and in nothing that it
/// was given.
pub(super) fn ids_made(giver: &str, arguments: &Value, fields: &[Field]) -> Vec<Field> {
    let mut given = GivenTexts::nothing();
    let mut texts = Vec::new();
    collect_leaves(arguments, &mut texts);
    texts.iter().for_each(|text| given.add_text(giver, text));
    // Encoded text makes other texts of this server doubtful, but not ids, so the mark is removed again here.
    if let Some(words) = given.0.get_mut(giver) {
        words.is_opaque = false;
    }
    let in_list =
        |path: &str| path.split('/').any(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()));
    let made = fields.iter().filter(|field| is_id(name_of(&field.path)) && !in_list(&field.path));
    made.take(MAX_MADE).filter(|field| !given.has_value(giver, &field.value)).cloned().collect()
}

/// Every text and number in a value, and its names.
fn collect_leaves(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Number(number) => texts.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| collect_leaves(item, texts)),
        Value::Object(fields) => {
            for (name, field) in fields.iter().filter(|(name, _)| *name != super::THEN) {
                collect_leaves(field, texts);
                if matches!(field, Value::Object(_)) {
                    texts.push(name.clone());
                }
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> GivenTexts {
        let mut given = GivenTexts::nothing();
        given.add_text("notes", text);
        given
    }

    #[test]
    fn a_value_with_a_word_of_what_was_given_may_be_handed_back() {
        let given = given("Ask eve@evil.test about plan 7, xxmalloryxx");
        for value in [
            "eve@evil.test",
            "EVE",
            "https://evil.test/?x",
            "e.v.e plan",
            "7",
            "mallory",
            "the plans of plan",
        ] {
            assert!(given.has_value("notes", value), "{value}");
        }
        for value in ["bob@example.org", "n-12", "17", "ev"] {
            assert!(!given.has_value("notes", value), "{value}");
        }
        assert!(!given.has_value("crm", "eve@evil.test"), "another server");
    }

    #[test]
    fn what_could_be_turned_into_something_else_spoils_everything() {
        let long = "a".repeat(MAX_WORD_CHARS + 1);
        let many: String = (0..=MAX_GIVEN).map(|n| format!("w{n} ")).collect();
        for text in
            ["%65vil", "&#101;vil", "\\u0065vil", "\\x65", "{{ name }}", "=?utf-8?q?x?=", &long, &many]
        {
            assert!(given(text).has_value("notes", "bob@example.org"), "{text}");
        }
    }
}
