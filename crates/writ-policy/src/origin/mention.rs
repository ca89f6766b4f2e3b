//! Values that texts from outside point at.
//!
//! A value of a structured result is one of many, and an injection may choose among them. Where it does so by name, the
//! name stands in its text: a mail that says «file m-17 away, too» points at m-17. The record that holds a value as its
//! own may name it in its own texts, and so may the answer to a call that named it alone; what stands in any other text is
//! somebody's choice, and the owner sees it first.

use std::collections::BTreeSet;

use serde_json::Value;
use unicode_normalization::UnicodeNormalization as _;

use crate::owner::MIN_TOKEN_CHARS;

/// The most text of one conversation that is searched, in bytes; beyond, every value counts as pointed at.
pub const MAX_TOLD_BYTES: usize = 16 * 1024 * 1024;

/// What a model was told from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    texts: Vec<Text>,
    bytes: usize,
    is_full: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Text {
    text: String,
    /// The same in small letters.
    small: String,
    /// The one value that the call named whose answer it is, in small letters.
    asked: BTreeSet<String>,
    /// Whether a structured result stands beside it, so that quoted values in it may be its leaves.
    is_structured: bool,
}

impl Told {
    pub(super) const fn nothing() -> Self {
        Self { texts: Vec::new(), bytes: 0, is_full: false }
    }

    /// Takes in a text, and what the call named whose answer it is; whether that has given a structured one.
    pub(super) fn add(&mut self, text: &str, asked: Option<&Value>, is_structured: bool) {
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > MAX_TOLD_BYTES {
            self.is_full = true;
            return;
        }
        let mut named = BTreeSet::new();
        if let Some(asked) = asked {
            gather(asked, &mut named);
        }
        // The answer about several has several texts, and one of them could name another.
        if named.len() > 1 {
            named.clear();
        }
        let text: String = text.nfc().collect();
        self.texts.push(Text { small: text.to_lowercase(), text, asked: named, is_structured });
    }

    /// Whether a text names a value elsewhere than in the record that holds it under a name that fits.
    pub(super) fn points_at(&self, value: &str, fits: &dyn Fn(&str) -> bool) -> bool {
        // What is shorter stands in any text.
        if value.chars().count() < MIN_TOKEN_CHARS {
            return false;
        }
        let value = value.nfc().collect::<String>().to_lowercase();
        self.is_full || self.texts.iter().any(|told| told.points_at(&value, fits))
    }
}

impl Text {
    fn points_at(&self, value: &str, fits: &dyn Fn(&str) -> bool) -> bool {
        // JSON can write any letter in another way, with a backslash.
        let may_name = self.small.contains(value) || self.small.contains('\\');
        if self.asked.contains(value) || !may_name {
            return false;
        }
        match serde_json::from_str(&self.text) {
            Ok(structured @ (Value::Object(_) | Value::Array(_))) => {
                in_record(&structured, value, false, fits)
            }
            // A list of records may have been cut, or be worded as a text: its leaves stand in quotes, or alone in a line.
            _ if self.is_structured => names(&self.small, value, is_leaf),
            _ => names(&self.small, value, |_, _| false),
        }
    }
}

/// Whether a text below a record names a value; `is_own` if that record holds it.
fn in_record(record: &Value, value: &str, is_own: bool, fits: &dyn Fn(&str) -> bool) -> bool {
    match record {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => {
            !is_own && !is_same(text, value) && names(&text.to_lowercase(), value, |_, _| false)
        }
        Value::Array(items) => items.iter().any(|item| in_record(item, value, is_own, fits)),
        Value::Object(fields) => {
            let is_own = fields.iter().any(|(name, field)| fits(name) && holds(field, value));
            fields.iter().any(|(name, field)| {
                let in_name = !is_same(name, value) && names(&name.to_lowercase(), value, |_, _| false);
                in_name || in_record(field, value, is_own, fits)
            })
        }
    }
}

/// The most values of a call that are gathered: from two on they do not count.
const MAX_ASKED: usize = 2;

/// The values of a call's arguments, in small letters.
fn gather(value: &Value, named: &mut BTreeSet<String>) {
    if named.len() >= MAX_ASKED {
        return;
    }
    match value {
        Value::String(text) => drop(named.insert(text.nfc().collect::<String>().to_lowercase())),
        Value::Number(number) => drop(named.insert(number.to_string())),
        Value::Array(items) => items.iter().for_each(|item| gather(item, named)),
        Value::Object(fields) => fields.values().for_each(|field| gather(field, named)),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Whether a text is a value, which is in small letters.
fn is_same(text: &str, value: &str) -> bool {
    text.chars().flat_map(char::to_lowercase).eq(value.chars())
}

/// Whether a field is a value, or a list with it.
fn holds(field: &Value, value: &str) -> bool {
    match field {
        Value::String(text) => is_same(text, value),
        Value::Number(number) => number.to_string() == value,
        Value::Array(items) => items.iter().any(|item| holds(item, value)),
        Value::Null | Value::Bool(_) | Value::Object(_) => false,
    }
}

/// Whether a text has a value that is not a part of a longer word, where what stands before and after it is no excuse.
fn names(text: &str, value: &str, excuses: impl Fn(&str, &str) -> bool) -> bool {
    text.match_indices(value).any(|(at, _)| {
        let before = text.get(..at).unwrap_or_default();
        let after = text.get(at + value.len()..).unwrap_or_default();
        let ends_word = before.chars().next_back().is_none_or(|c| !c.is_alphanumeric());
        let begins_word = after.chars().next().is_none_or(|c| !c.is_alphanumeric());
        ends_word && begins_word && !excuses(before, after)
    })
}

/// Whether what stands between two texts is a leaf: a text in quotes that are not themselves quoted, or all of a line but its
/// name.
fn is_leaf(before: &str, after: &str) -> bool {
    let is_quoted =
        before.strip_suffix('"').is_some_and(|before| !before.ends_with('\\')) && after.starts_with('"');
    let line = before.rsplit('\n').next().unwrap_or_default().trim();
    let rest = after.split('\n').next().unwrap_or_default().trim();
    let is_name =
        |line: &str| line.is_empty() || line.strip_suffix(':').is_some_and(|name| !name.contains(' '));
    is_quoted || (is_name(line) && rest.is_empty())
}
