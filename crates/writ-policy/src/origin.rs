//! Where the arguments of an action come from, as far as the harness can prove it (design 3.3).
//!
//! A model that has read external content may have been told what to write. Two kinds of arguments it has not made up
//! all the same: *owner values*, which stand in the owner's own words ([`crate::owner`]), and *field values*, which are
//! leaves of a structured result that the owner asked for. And the tools that a request may use are fixed before it
//! reads anything from outside: those used until then, and those that their calls name beforehand in `then`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use unicode_normalization::UnicodeNormalization as _;
use writ_types::chat::{ChatMessage, Field, Part, ToolCall, ToolOutcome};
use writ_types::taint::Taint;

use crate::owner;
use crate::prepared::Sink;

/// The argument in which a call names the tools that come after it.
pub const THEN: &str = "then";
/// The most tools that one call names in [`THEN`].
pub const MAX_THEN: usize = 16;
/// The most field values that are known at once; what comes later is unknown, so it asks.
pub const MAX_KNOWN_FIELDS: usize = 20_000;
/// The largest whole number that says too little to direct anything: a page, a count.
const MAX_PLAIN_NUMBER: u64 = 1_000;

/// What the arguments of an action may be made of, and which tools may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// What the owner wrote, in NFC.
    words: Vec<String>,
    /// What else nothing external has gone into, in NFC: memories.
    trusted: Vec<String>,
    fields: BTreeSet<String>,
    tools: BTreeSet<String>,
}

impl Origins {
    /// Nothing.
    pub const fn nothing() -> Self {
        Self { words: Vec::new(), trusted: Vec::new(), fields: BTreeSet::new(), tools: BTreeSet::new() }
    }

    /// What the owner wrote, and nothing else.
    pub fn new(words: impl IntoIterator<Item = String>) -> Self {
        let words = words.into_iter().map(|text| text.nfc().collect()).collect();
        Self { words, ..Self::default() }
    }

    /// Adds texts that nothing external has gone into, though the owner has not written them just so.
    pub fn trust(&mut self, texts: impl IntoIterator<Item = String>) {
        self.trusted.extend(texts.into_iter().map(|text| text.nfc().collect::<String>()));
    }

    /// Takes in a conversation, oldest message first: its structured results, and the tools that were used or named
    /// before anything was read from outside.
    pub fn read<'a>(&mut self, messages: impl IntoIterator<Item = &'a ChatMessage>) {
        let mut made: BTreeMap<&str, Made> = BTreeMap::new();
        for message in messages {
            for part in &message.parts {
                match part {
                    Part::Text { .. } => {}
                    Part::Call(call) => {
                        let before = !message.label.outside;
                        if before {
                            self.tools.extend(named(call));
                        }
                        let asked = message.label.taint != Taint::External || self.is_taken_over(call);
                        made.insert(&call.id, Made { before, asked });
                    }
                    Part::Result(result) => {
                        let Some(made) = made.get(result.call_id.as_str()) else { continue };
                        if made.before && was_performed(result.outcome) {
                            self.tools.insert(result.name.clone());
                        }
                        if made.asked {
                            self.know(&result.fields);
                        }
                    }
                }
            }
        }
    }

    fn know(&mut self, fields: &[Field]) {
        let room = MAX_KNOWN_FIELDS.saturating_sub(self.fields.len());
        self.fields.extend(fields.iter().take(room).map(|field| field.value.clone()));
    }

    /// Adds a tool that the owner has approved a call of in this session.
    pub fn approve(&mut self, tool: String) {
        self.tools.insert(tool);
    }

    /// Whether a tool may be used after something was read from outside.
    pub fn offers(&self, tool: &str) -> bool {
        self.tools.contains(tool)
    }

    /// Whether a value stands in the owner's own words.
    pub fn is_owners(&self, value: &str) -> bool {
        self.words.iter().any(|text| owner::holds(text, value))
    }

    /// Whether a value was not composed: the owner's, or that of a field.
    pub fn is_known(&self, value: &str) -> bool {
        self.fields.contains(value) || self.is_owners(value)
    }

    /// Whether every sink is known, and there is one at all.
    pub fn knows(&self, sinks: &[Sink]) -> bool {
        !sinks.is_empty() && sinks.iter().all(|sink| self.is_known(&sink.value))
    }

    /// Whether a value stands in what nothing external has gone into.
    fn is_trusted(&self, value: &str) -> bool {
        self.is_owners(value) || self.trusted.iter().any(|text| owner::holds(text, value))
    }

    /// The first sink that is neither the owner's, nor of an untainted source, nor a field value.
    pub fn composed<'a>(&self, sinks: &'a [Sink]) -> Option<&'a Sink> {
        sinks.iter().find(|sink| !self.fields.contains(&sink.value) && !self.is_trusted(&sink.value))
    }

    /// The first sink that is neither the owner's nor of an untainted source.
    pub fn foreign<'a>(&self, sinks: &'a [Sink]) -> Option<&'a Sink> {
        sinks.iter().find(|sink| !self.is_trusted(&sink.value))
    }

    /// Whether nothing in a call was composed, so that it returns what the owner asked for.
    fn is_taken_over(&self, call: &ToolCall) -> bool {
        let Some(arguments) = call.arguments.as_object() else { return false };
        arguments.iter().all(|(name, value)| name == THEN || self.holds_leaves(value))
    }

    fn holds_leaves(&self, value: &Value) -> bool {
        match value {
            Value::Null | Value::Bool(_) => true,
            Value::Number(number) => {
                number.as_u64().is_some_and(|n| n <= MAX_PLAIN_NUMBER) || self.is_known(&number.to_string())
            }
            Value::String(text) => self.is_known(text),
            Value::Array(items) => items.iter().all(|item| self.holds_leaves(item)),
            // A name can be composed as a value can.
            Value::Object(map) => {
                map.iter().all(|(name, item)| self.is_known(name) && self.holds_leaves(item))
            }
        }
    }
}

/// What is known of a call when its result comes.
#[derive(Clone, Copy)]
struct Made {
    /// Whether nothing had been read from outside.
    before: bool,
    /// Whether the owner asked for what it returns.
    asked: bool,
}

/// Whether a tool was used with it: what was refused, or waits for a person, was not.
const fn was_performed(outcome: ToolOutcome) -> bool {
    match outcome {
        ToolOutcome::Done
        | ToolOutcome::Failed
        | ToolOutcome::Unknown
        | ToolOutcome::Simulated
        | ToolOutcome::Cancelled => true,
        ToolOutcome::Denied | ToolOutcome::Waiting => false,
    }
}

/// The tools that a call names for afterwards.
fn named(call: &ToolCall) -> impl Iterator<Item = String> + '_ {
    let names = call.arguments.get(THEN).and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).take(MAX_THEN).map(str::to_owned)
}

#[cfg(test)]
mod tests;
