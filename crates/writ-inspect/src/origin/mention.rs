//! Values that external texts point at.
//!
//! A value of a structured result is one of many, and an injection may choose among them. Where it does so by
//! name, the name stands in its text: a mail that says «file m-17 away, too» points at m-17. The record that
//! holds a value as its own may name it in its own texts, and so may the answer to a call that named it
//! alone; a mention in any other text is a choice by others, and the owner sees it first. A choice that
//! describes a value (but see [`super::choice`]), has it as the whole of another field, or writes it in a
//! code of its own (JSON inside a text, entities of HTML, in pieces) names nothing here.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use serde_json::Value;
use writ_types::chat::Field;

use super::text::{TextNode, fold_lines, fold_text, is_leaf, mentions, read_json};
use super::{THEN, name_of};
use crate::owner::MIN_TOKEN_CHARS;

/// The most text of one conversation that is searched, in bytes; beyond, every value counts as pointed at.
pub const MAX_TOLD_BYTES: usize = 16 * 1024 * 1024;

/// The external texts that a model has read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExternalTexts {
    texts: Vec<Text>,
    bytes: usize,
    is_full: bool,
}

/// An answer of a tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceAnswer<'a> {
    /// The arguments of the call.
    pub(super) asked: Option<&'a Value>,
    /// The server, or the tool, that returned it.
    pub(super) giver: &'a str,
    /// The values of the structured result that stands beside the text; none, if it has no structure.
    pub(super) fields: &'a [Field],
}

/// A value that is looked for.
pub(super) struct WantedValue<'a> {
    pub(super) value: &'a str,
    /// Returns true if a field of this name may be taken for it.
    pub(super) fits: &'a dyn Fn(&str) -> bool,
    /// Returns true if it stood in a structured result of this giver: only such a one has records that are
    /// excused.
    pub(super) is_of: &'a dyn Fn(&str) -> bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Text {
    raw: String,
    /// The same, folded.
    folded: String,
    /// The one value that the call named, folded, if this is its answer.
    asked: BTreeSet<String>,
    giver: String,
    /// The leaves of the structured result: their names, and they themselves folded.
    leaves: Vec<(String, String)>,
    /// The text as JSON, if it is some; read when it is first looked at.
    read: OnceLock<Option<TextNode>>,
}

impl ExternalTexts {
    pub(super) const fn nothing() -> Self {
        Self { texts: Vec::new(), bytes: 0, is_full: false }
    }

    /// Takes in a text; if a tool has answered with it, how.
    pub(super) fn add_text(&mut self, raw: &str, answer: Option<SourceAnswer<'_>>) {
        self.bytes = self.bytes.saturating_add(raw.len());
        if self.bytes > MAX_TOLD_BYTES {
            self.is_full = true;
            return;
        }
        let mut asked = BTreeSet::new();
        if let Some(named) = answer.and_then(|answer| answer.asked) {
            gather_named(named, &mut asked);
        }
        // The answer about several has several texts, and one of them could name another.
        if asked.len() > 1 {
            asked.clear();
        }
        // The names and values of the structured result are those that a worded text may repeat.
        let leaf = |field: &Field| (name_of(&field.path).to_owned(), fold_text(&field.value));
        self.texts.push(Text {
            raw: raw.to_owned(),
            folded: fold_text(raw),
            asked,
            giver: answer.map(|answer| answer.giver.to_owned()).unwrap_or_default(),
            leaves: answer.into_iter().flat_map(|answer| answer.fields).map(leaf).collect(),
            read: OnceLock::new(),
        });
    }

    /// Returns true if a text names a value elsewhere than in the record that holds it under a name that
    /// fits.
    pub(super) fn points_at(&self, wanted: &WantedValue<'_>) -> bool {
        // A shorter value occurs in almost any text, so its occurrence means nothing.
        if wanted.value.chars().count() < MIN_TOKEN_CHARS {
            return false;
        }
        let value = fold_text(wanted.value);
        self.is_full || self.texts.iter().any(|told| told.points_at(&value, wanted))
    }
}

impl Text {
    fn points_at(&self, value: &str, wanted: &WantedValue<'_>) -> bool {
        // JSON can write any letter in another way, with a backslash.
        let may_name = self.folded.contains(value) || self.raw.contains('\\');
        if self.asked.contains(value) || !may_name {
            return false;
        }
        let read = self.read.get_or_init(|| read_json(&self.raw)).as_ref();
        if self.leaves.is_empty() || !(wanted.is_of)(&self.giver) {
            // Without a structure of its own there is no record that could excuse a mention.
            let written = mentions(&self.folded, value).next().is_some();
            return written || read.is_some_and(|node| node.find_mentions(value));
        }
        match read {
            Some(node) => in_record(node, value, false, wanted.fits),
            None => self.worded_points_at(value, wanted),
        }
    }

    /// A list of records may be cut, or be worded as a text: its leaves stand in quotes, or alone in a line.
    /// As many mentions as leaves are allowed; an injected line that looks like a leaf is one more.
    fn worded_points_at(&self, value: &str, wanted: &WantedValue<'_>) -> bool {
        let is_json = self.raw.trim_start().starts_with(['{', '[']);
        let own = self.leaves.iter().filter(|(name, leaf)| leaf == value && (wanted.fits)(name)).count();
        let lines = fold_lines(&self.raw);
        let excused =
            mentions(&lines, value).filter(|(before, after)| is_leaf(before, after, is_json)).count();
        let named = mentions(&self.folded, value).count();
        // More mentions than leaves, or more leaves in the text than in the result: others have added the rest.
        named > excused || excused > own
    }
}

/// Returns true if a text below a record names a value; `is_own` if that record holds it. Where an id is
/// looked for, a record with an `id` is identified by it, even if it refers to other ids; any other one is a
/// part of the record around it, or that of a field with a fitting name.
fn in_record(node: &TextNode, value: &str, is_own: bool, fits: &dyn Fn(&str) -> bool) -> bool {
    match node {
        TextNode::Leaf(text) => !is_own && text != value && mentions(text, value).next().is_some(),
        TextNode::List(items) => items.iter().any(|item| in_record(item, value, is_own, fits)),
        TextNode::Record(fields) => {
            let id = fields.iter().find(|field| field.name.eq_ignore_ascii_case("id") && fits(&field.name));
            let is_own = match id {
                Some(id) => id.node.holds_value(value),
                None => {
                    is_own || fields.iter().any(|field| fits(&field.name) && field.node.holds_value(value))
                }
            };
            fields.iter().any(|field| {
                let in_name = field.folded != value && mentions(&field.folded, value).next().is_some();
                in_name || in_record(&field.node, value, is_own, fits)
            })
        }
    }
}

/// The most values of a call that are gathered: from two on they do not count.
const MAX_ASKED: usize = 2;

/// The values of a call's arguments, folded.
fn gather_named(value: &Value, named: &mut BTreeSet<String>) {
    if named.len() >= MAX_ASKED {
        return;
    }
    match value {
        Value::String(text) => drop(named.insert(fold_text(text))),
        Value::Number(number) => drop(named.insert(number.to_string())),
        Value::Array(items) => items.iter().for_each(|item| gather_named(item, named)),
        // The tools named in `then` are not values of this call.
        Value::Object(fields) => {
            fields.iter().filter(|(name, _)| *name != THEN).for_each(|(_, field)| gather_named(field, named));
        }
        Value::Null | Value::Bool(_) => {}
    }
}
