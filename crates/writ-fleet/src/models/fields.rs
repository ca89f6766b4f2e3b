//! Reading the fields of a request. Unknown fields are ignored: clients send new ones with every version.

use serde_json::{Map, Value};

use super::refusal::Refusal;

/// The most messages of a request.
pub(super) const MAX_MESSAGES: usize = 10_000;
/// The most tools of a request.
pub(super) const MAX_TOOLS: usize = 1_024;

/// How a request is read that has a part which cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leniency {
    /// It is refused.
    Strict,
    /// The part is left out or replaced, where the request still makes sense without it.
    Lenient,
}

impl Leniency {
    /// The text in the place of a part of a message that is no text.
    pub(super) const OMITTED: &'static str =
        "[a part that is no text, such as a picture; this model is not shown it]";

    /// Refuses a part, or passes over it.
    ///
    /// # Errors
    ///
    /// If nothing is passed over.
    pub(super) fn pass_over<T>(self, refusal: Refusal, instead: T) -> Result<T, Refusal> {
        match self {
            Self::Strict => Err(refusal),
            Self::Lenient => Ok(instead),
        }
    }
}

/// A JSON object of a request, with its place for errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    object: &'a Map<String, Value>,
    place: &'a str,
}

impl<'a> Fields<'a> {
    /// Wraps an object; `place` is its path in the request, empty for the request itself.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub(super) fn of(value: &'a Value, place: &'a str) -> Result<Self, Refusal> {
        match value.as_object() {
            Some(object) => Ok(Self { object, place }),
            None => Err(Refusal::invalid(place, "must be an object")),
        }
    }

    fn path(&self, name: &str) -> String {
        if self.place.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place) }
    }

    /// Returns a field; `null` counts as missing, as clients write it for what is not set.
    pub(super) fn find(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// Returns a text.
    ///
    /// # Errors
    ///
    /// If it is there and no text.
    pub(super) fn find_text(&self, name: &str) -> Result<Option<&'a str>, Refusal> {
        match self.find(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Refusal::invalid(&self.path(name), "must be a text")),
        }
    }

    /// Returns a text that must be there.
    ///
    /// # Errors
    ///
    /// If it is missing or no text.
    pub(super) fn need_text(&self, name: &str) -> Result<&'a str, Refusal> {
        self.find_text(name)?.ok_or_else(|| Refusal::invalid(&self.path(name), "is missing"))
    }

    /// Returns a flag; a missing one is `false`.
    ///
    /// # Errors
    ///
    /// If it is neither true nor false.
    pub(super) fn find_flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.find(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(Refusal::invalid(&self.path(name), "must be true or false")),
        }
    }

    /// Returns a count of at least one.
    ///
    /// # Errors
    ///
    /// If it is there and none.
    pub(super) fn find_count(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let Some(value) = self.find(name) else { return Ok(None) };
        let count = value.as_u64().filter(|count| *count > 0);
        count
            .map(Some)
            .ok_or_else(|| Refusal::invalid(&self.path(name), "must be a whole number of at least 1"))
    }

    /// Returns a list of at most `most` items; a missing one is empty.
    ///
    /// # Errors
    ///
    /// If it is no list, or longer.
    pub(super) fn find_list(&self, name: &str, most: usize) -> Result<&'a [Value], Refusal> {
        match self.find(name) {
            None => Ok(&[]),
            Some(Value::Array(list)) if list.len() <= most => Ok(list),
            Some(Value::Array(_)) => {
                Err(Refusal::invalid(&self.path(name), &format!("has more than {most} items")))
            }
            Some(_) => Err(Refusal::invalid(&self.path(name), "must be a list")),
        }
    }

    /// Refuses a field that would change the answer and that cannot be passed on to every provider.
    ///
    /// # Errors
    ///
    /// If it is set and not empty.
    pub(super) fn refuse_set(&self, name: &str, why: &str) -> Result<(), Refusal> {
        match self.find(name) {
            None => Ok(()),
            Some(Value::Array(list)) if list.is_empty() => Ok(()),
            Some(_) => Err(Refusal::unsupported(&self.path(name), why)),
        }
    }
}
