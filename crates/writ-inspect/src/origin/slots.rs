//! Values of slots: arguments that an approved plan has left open, each with a kind and a source.
//!
//! The plan was approved before anything external was read, so nobody outside had a say in its kinds and sources. A value fits
//! only where its source leaves no choice: the one value of its kind in the named results, or the one value of a named
//! field. Two candidates make none, so who writes a second one into the source makes a person look, and no more.

use std::collections::BTreeSet;
use std::str::FromStr as _;

use serde_json::Value;
use writ_types::action::{Slot, SlotKind, SlotSource};
use writ_types::chat::{Field, MAX_FIELD_BYTES, MAX_FIELDS, MAX_FIELDS_BYTES, ToolResult};
use writ_types::unit::Amount;

use super::designated::DesignationSources;
use super::link::gather_texts;
use super::{Origins, name_of};
use crate::owner::MIN_TOKEN_CHARS;
use crate::show::is_plain;

/// The most results that are searched for the values of slots.
const MAX_SLOT_RESULTS: usize = 1_000;
/// The most bytes of them; beyond, no value fits.
const MAX_SLOT_BYTES: usize = 16 * 1024 * 1024;
/// The longest quotation, in characters: a paragraph.
const MAX_QUOTED_CHARS: usize = 2_000;
/// Marks of a text that was cut before the model read it.
const CUTS: [&str; 2] = ["characters left out ...]", "more characters]"];

/// The results of a conversation, with the calls that brought them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotResults {
    results: Vec<SlotResult>,
    bytes: usize,
    is_full: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SlotResult {
    tool: String,
    /// The texts among the arguments of the call.
    named: BTreeSet<String>,
    texts: Vec<String>,
    fields: Vec<Field>,
}

impl SlotResults {
    pub(super) const fn nothing() -> Self {
        Self { results: Vec::new(), bytes: 0, is_full: false }
    }

    /// Takes in a result and the arguments of its call.
    pub(super) fn add_result(&mut self, result: &ToolResult, arguments: &Value) {
        let texts: Vec<String> = result.all_texts().map(str::to_owned).collect();
        let fields: usize =
            result.fields.iter().map(|field| field.path.len().saturating_add(field.value.len())).sum();
        let texts_bytes: usize = texts.iter().map(String::len).sum();
        self.bytes = self.bytes.saturating_add(texts_bytes).saturating_add(fields);
        if self.bytes > MAX_SLOT_BYTES || self.results.len() >= MAX_SLOT_RESULTS {
            self.is_full = true;
            return;
        }
        let mut named = Vec::new();
        gather_texts(arguments, &mut named);
        self.results.push(SlotResult {
            tool: result.name.clone(),
            named: named.into_iter().map(str::to_owned).collect(),
            texts,
            fields: result.fields.clone(),
        });
    }

    /// Returns true if a value is of the kind of a slot and the only one that its source has.
    fn has_value(&self, slot: &Slot, value: &str) -> bool {
        // If not everything was read, the rest may contain a second value.
        if self.is_full || !is_within_kind(slot.kind, value) {
            return false;
        }
        let mut results = self.results.iter().filter(|result| result.tool == slot.tool);
        match &slot.source {
            SlotSource::Field { name, of } => {
                let mut values = BTreeSet::new();
                for result in results {
                    // What was left out may be the record that is meant, or a second value.
                    if !result.is_whole() {
                        return false;
                    }
                    result.collect_values(name, of.as_deref(), &mut values);
                }
                let is_kind = slot.kind == SlotKind::Text || is_of_kind(slot.kind, value);
                is_kind && values.len() == 1 && values.contains(value)
            }
            SlotSource::Result { named } if slot.kind == SlotKind::Text => {
                results.any(|result| result.named.contains(named) && result.quotes(value))
            }
            SlotSource::Result { named } => {
                let mut sources = DesignationSources::nothing();
                results
                    .filter(|result| result.named.contains(named))
                    .flat_map(|result| &result.texts)
                    .for_each(|text| sources.add_source(text));
                sources.is_only_one(value, slot.kind)
            }
            SlotSource::Sum { name, named } => {
                let columns = self.columns_of(slot, (name, named.as_deref()));
                let sum = columns.as_deref().and_then(one_sum);
                sum.is_some_and(|sum| Amount::from_str(value) == Ok(sum))
            }
            // A list stands there, and no value alone.
            SlotSource::All { .. } => false,
        }
    }

    /// Returns true if a list has all values of the field of a slot, each once, and no others.
    fn has_list(&self, slot: &Slot, values: &[&str]) -> bool {
        let SlotSource::All { name, named, most } = &slot.source else { return false };
        let is_bounded = u32::try_from(values.len()).is_ok_and(|count| (1..=*most).contains(&count));
        if self.is_full || !is_bounded {
            return false;
        }
        let listed: BTreeSet<&str> = values.iter().copied().collect();
        let is_kind = |value: &&str| {
            is_within_kind(slot.kind, value) && (slot.kind == SlotKind::Text || is_of_kind(slot.kind, value))
        };
        let is_whole = |column: &Vec<&str>| column.iter().copied().collect::<BTreeSet<&str>>() == listed;
        let columns = self.columns_of(slot, (name, named.as_deref()));
        let has_all = columns.is_some_and(|columns| !columns.is_empty() && columns.iter().all(is_whole));
        listed.len() == values.len() && values.iter().all(is_kind) && has_all
    }

    /// Returns the values of a field in each result of a slot's tool that has it; none if one of the results may have more of
    /// them. The agent chooses what it calls, and how often, so results are never put together.
    fn columns_of(&self, slot: &Slot, (name, named): (&str, Option<&str>)) -> Option<Vec<Vec<&str>>> {
        let is_source = |result: &&SlotResult| {
            result.tool == slot.tool && named.is_none_or(|named| result.named.contains(named))
        };
        let columns = self.results.iter().filter(is_source).map(|result| {
            let fields = result.fields.iter().filter(|field| name_of(&field.path) == name);
            result.is_whole().then(|| fields.map(|field| field.value.as_str()).collect::<Vec<_>>())
        });
        let columns: Vec<Vec<&str>> = columns.collect::<Option<_>>()?;
        Some(columns.into_iter().filter(|column| !column.is_empty()).collect())
    }
}

/// Returns the sum of each column, if all are the same.
fn one_sum(columns: &[Vec<&str>]) -> Option<Amount> {
    let mut sums = columns.iter().map(|column| add_amounts(column));
    let first = sums.next()??;
    sums.all(|sum| sum == Some(first)).then_some(first)
}

/// Adds amounts; none if one of the values is none: what cannot be read might be a part of the sum.
fn add_amounts(values: &[&str]) -> Option<Amount> {
    let is_zero = |value: &str| value.contains('0') && value.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    let sum = values
        .iter()
        .filter(|value| !is_zero(value))
        .try_fold(0_u64, |sum, value| sum.checked_add(Amount::from_str(value).ok()?.millionths()));
    Amount::from_millionths(sum?).ok()
}

impl SlotResult {
    /// Adds the values of a field, of the records that hold `of` beside it, if that is given.
    fn collect_values<'a>(&'a self, name: &str, of: Option<&str>, values: &mut BTreeSet<&'a str>) {
        let record_of = |field: &'a Field| field.path.rsplit_once('/').map_or("", |(record, _)| record);
        let is_record = |record: &str| {
            of.is_none_or(|of| {
                self.fields.iter().any(|field| field.value == of && record_of(field) == record)
            })
        };
        let named = self.fields.iter().filter(|field| name_of(&field.path) == name);
        values.extend(named.filter(|field| is_record(record_of(field))).map(|field| field.value.as_str()));
    }

    /// Returns true if a text stands in the result as it is, and the result was not cut.
    fn quotes(&self, value: &str) -> bool {
        !self.is_cut() && self.texts.iter().any(|text| text.contains(value))
    }

    fn is_cut(&self) -> bool {
        self.texts.iter().any(|text| CUTS.iter().any(|cut| text.contains(cut)))
    }

    /// Returns true if all fields of the result are there: near a bound of [`Field::fields_of`] one may have been left out.
    fn is_whole(&self) -> bool {
        let bytes: usize = self.fields.iter().map(|field| field.path.len() + field.value.len()).sum();
        let has_room = self.fields.len() < MAX_FIELDS && bytes + 2 * MAX_FIELD_BYTES <= MAX_FIELDS_BYTES;
        has_room && !self.is_cut()
    }
}

/// Checks what a value must be whatever its source is.
fn is_within_kind(kind: SlotKind, value: &str) -> bool {
    let chars = value.chars().count();
    match kind {
        SlotKind::Account | SlotKind::Address | SlotKind::Link => {
            chars <= MAX_QUOTED_CHARS && is_plain(value)
        }
        SlotKind::Amount { max } => Amount::from_str(value).is_ok_and(|amount| amount <= max),
        // A quotation with a link or an address would direct somebody who reads it.
        SlotKind::Text => {
            let mut inside = DesignationSources::nothing();
            inside.add_source(value);
            (MIN_TOKEN_CHARS..=MAX_QUOTED_CHARS).contains(&chars)
                && is_plain(value)
                && inside.directs_nowhere()
        }
    }
}

/// Returns true if a value is one of a kind, and nothing else.
fn is_of_kind(kind: SlotKind, value: &str) -> bool {
    let mut alone = DesignationSources::nothing();
    alone.add_source(value);
    alone.is_only_one(value, kind)
}

impl Origins {
    /// Returns true if a value may stand for a slot of an approved plan: it has the slot's kind, is the only one in its
    /// source, and the agent has written it nowhere since it read something from outside.
    pub fn fits_slot(&self, slot: &Slot, value: &str) -> bool {
        // A strict home takes no value from outside without a look.
        !self.owner.is_narrow && !self.given.any_has_value(value) && self.results.has_value(slot, value)
    }

    /// Returns true if a list may stand for a slot of an approved plan: it has all values of the slot's field and no others, and
    /// the agent has written none of them anywhere since it read something from outside.
    pub fn fits_list_slot(&self, slot: &Slot, values: &[&str]) -> bool {
        let is_given = values.iter().any(|value| self.given.any_has_value(value));
        !self.owner.is_narrow && !is_given && self.results.has_list(slot, values)
    }
}
