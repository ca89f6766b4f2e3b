//! Values of structured results that the owner asked for, and the fields that they were found in.

use std::collections::{BTreeMap, BTreeSet};

use writ_types::chat::Field;

use super::given::GivenTexts;
use super::mention::WantedValue;
use super::{giver_of, is_id, name_of};

/// The most field values that are stored; later ones are unknown, so an action with one of them asks.
pub const MAX_KNOWN_FIELDS: usize = 20_000;

/// A field that a value was found in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FieldSource {
    /// The last name of its path.
    name: String,
    /// The server, or the tool, that returned it.
    giver: String,
    /// True if only the owner may be assumed to be able to read it.
    private: bool,
}

/// The known values, each with the fields that it was found in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownFields(BTreeMap<String, BTreeSet<FieldSource>>);

impl KnownFields {
    pub(super) const fn nothing() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MAX_KNOWN_FIELDS
    }

    pub(super) fn has_value(&self, value: &str) -> bool {
        self.0.contains_key(value)
    }

    /// Adds the values of a result, except those that the server may have taken from texts that the agent gave it.
    pub(super) fn add_fields(&mut self, giver: &str, private: bool, fields: &[Field], given: &GivenTexts) {
        for field in fields.iter().filter(|field| !given.has_value(giver, &field.value)) {
            if self.is_full() {
                return;
            }
            let name = name_of(&field.path).to_owned();
            let source = FieldSource { name, giver: giver.to_owned(), private };
            self.0.entry(field.value.clone()).or_default().insert(source);
        }
    }

    /// Returns true if a value may be the argument `name` of `tool`: it was found in a field of the same name,
    /// in an id field where the argument is an id, or in a field of `from`, which the owner has configured. A
    /// private value may only go to the server that returned it, unless `from` names its field.
    pub(super) fn may_go(&self, tool: &str, name: &str, value: &str, from: &[&String]) -> bool {
        self.sources_of(value).any(|known| {
            let is_own = known.giver == giver_of(tool);
            let is_taken = from.iter().any(|field| match field.split_once('.') {
                Some((server, field)) => known.giver == server && known.name == field,
                None => is_own && known.name == **field,
            });
            let fits = known.name == name || (is_id(&known.name) && is_id(name));
            // A configuration that names another server's field also permits passing it on.
            is_taken || (fits && (!known.private || is_own))
        })
    }

    /// Returns true if a value was found in a result of this server or tool.
    pub(super) fn is_from(&self, value: &str, giver: &str) -> bool {
        self.sources_of(value).any(|known| known.giver == giver)
    }

    /// Calls `look` with a known value and the names and givers of its fields; `None` if it is unknown.
    pub(super) fn with_known<T>(&self, value: &str, look: impl FnOnce(&WantedValue<'_>) -> T) -> Option<T> {
        let known = self.0.get(value)?;
        let fits = |name: &str| known.iter().any(|known| known.name == name);
        let is_of = |giver: &str| known.iter().any(|known| known.giver == giver);
        Some(look(&WantedValue { value, fits: &fits, is_of: &is_of }))
    }

    fn sources_of(&self, value: &str) -> impl Iterator<Item = &FieldSource> {
        self.0.get(value).into_iter().flatten()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
