//! The parameters of operations.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use serde_json::{Map, Value};
use writ_policy::keys::limits;

use crate::error::ParameterError;

/// The most parameters of an operation.
pub(crate) const MAX_PARAMETERS: usize = 64;
/// The longest text where a declaration sets no bound, in bytes.
pub(crate) const DEFAULT_MAX_BYTES: usize = 1024;
/// The longest text that a declaration can allow, in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 64 * 1024;
/// The most bytes of a customer's or a case's token.
const MAX_TOKEN_BYTES: usize = 256;
/// The most characters of a foreign name in an error.
const MAX_SHOWN: usize = 64;

/// The type of a parameter's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ValueType {
    #[default]
    Text,
    Integer,
    Number,
    Boolean,
}

/// The role of a parameter for keys: they limit amounts, and choose among templates and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParameterRole {
    /// A whole number that keys bound.
    Amount,
    /// The name of a mail's template.
    Template,
    /// A value that keys can restrict to a list.
    Value,
}

/// The declaration of one parameter.
#[derive(Clone, Debug)]
pub struct Parameter {
    pub(crate) kind: ValueType,
    pub(crate) role: Option<ParameterRole>,
    pub(crate) is_optional: bool,
    pub(crate) description: String,
    pub(crate) min_bytes: usize,
    pub(crate) max_bytes: usize,
    pub(crate) minimum: Option<i64>,
    pub(crate) maximum: Option<i64>,
    pub(crate) choices: BTreeSet<String>,
    pub(crate) pattern: Option<Regex>,
}

/// The parameters of an operation, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters(pub(crate) BTreeMap<String, Parameter>);

impl Parameters {
    /// The type that a name's values have; text for a name of the proxy's own.
    pub(crate) fn value_type(&self, name: &str) -> ValueType {
        self.0.get(name).map_or(ValueType::Text, |parameter| parameter.kind)
    }

    /// Returns true if a text may be the value of a name; names of the proxy's own have any.
    pub(crate) fn allows_text(&self, name: &str, text: &str) -> bool {
        self.0.get(name).is_none_or(|parameter| parameter.allows_text(text))
    }

    /// Checks given values and writes each in its one canonical form.
    pub(crate) fn check_values(
        &self,
        given: &Map<String, Value>,
    ) -> Result<BTreeMap<String, String>, ParameterError> {
        let mut checked = BTreeMap::new();
        for (name, value) in given {
            let wrong = |what: String, hint: &str| ParameterError {
                parameter: name.chars().take(MAX_SHOWN).collect(),
                what,
                hint: hint.to_owned(),
            };
            let text = if [limits::CUSTOMER, limits::CASE].contains(&name.as_str()) {
                // Of which case it is, is the proxy's to decide; here they are data.
                let token = value.as_str().filter(|token| token.len() <= MAX_TOKEN_BYTES);
                Some(
                    token
                        .ok_or_else(|| wrong("is no token".to_owned(), "give the token of the key"))?
                        .to_owned(),
                )
            } else {
                let Some(parameter) = self.0.get(name) else {
                    let names = self.0.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                    let hint = format!("the operation takes: {names}");
                    return Err(wrong("is none of this operation".to_owned(), &hint));
                };
                parameter.check_value(value).map_err(|(what, hint)| wrong(what, hint))?
            };
            if let Some(text) = text {
                checked.insert(name.clone(), text);
            }
        }
        let missing = self.0.iter().find(|(name, one)| !one.is_optional && !checked.contains_key(*name));
        if let Some((name, _)) = missing {
            return Err(ParameterError {
                parameter: name.clone(),
                what: "is missing".to_owned(),
                hint: "give it a value".to_owned(),
            });
        }
        Ok(checked)
    }
}

impl Parameter {
    /// Returns true if a text is a value of it, in its canonical form.
    fn allows_text(&self, text: &str) -> bool {
        let value = match self.kind {
            ValueType::Text => Some(Value::String(text.to_owned())),
            ValueType::Integer | ValueType::Number | ValueType::Boolean => serde_json::from_str(text).ok(),
        };
        value.is_some_and(|value| {
            // Keys compare texts, and would take another form for another value.
            self.check_value(&value).is_ok_and(|checked| checked.as_deref() == Some(text))
        })
    }

    /// The parameter's role for keys.
    pub const fn role(&self) -> Option<ParameterRole> {
        self.role
    }

    /// Returns true if its values are texts.
    pub const fn is_text(&self) -> bool {
        matches!(self.kind, ValueType::Text)
    }

    /// A text for the agent's author.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The canonical text of a value; `None`: it is not given.
    fn check_value(&self, value: &Value) -> Result<Option<String>, (String, &'static str)> {
        let kind = |what: &str| (format!("is no {what}"), "give a value of the declared type");
        let text = match (self.kind, value) {
            (_, Value::Null) if self.is_optional => return Ok(None),
            (ValueType::Text, Value::String(text)) => {
                self.check_text(text)?;
                text.clone()
            }
            (ValueType::Integer, Value::Number(number)) => {
                let number = number.as_i64().ok_or_else(|| kind("whole number of 64 bits"))?;
                self.check_range(number)?;
                number.to_string()
            }
            (ValueType::Number, Value::Number(number)) => {
                let float =
                    number.as_f64().filter(|float| float.is_finite()).ok_or_else(|| kind("number"))?;
                #[expect(clippy::cast_precision_loss, reason = "bounds are compared as the value is")]
                let below = self.minimum.is_some_and(|least| float < least as f64);
                #[expect(clippy::cast_precision_loss, reason = "bounds are compared as the value is")]
                let above = self.maximum.is_some_and(|most| float > most as f64);
                if below || above {
                    return Err((
                        "is out of its range".to_owned(),
                        "see the declaration's minimum and maximum",
                    ));
                }
                number.to_string()
            }
            (ValueType::Boolean, Value::Bool(flag)) => flag.to_string(),
            (ValueType::Text, _) => return Err(kind("text")),
            (ValueType::Integer, _) => return Err(kind("whole number")),
            (ValueType::Number, _) => return Err(kind("number")),
            (ValueType::Boolean, _) => return Err(kind("true or false")),
        };
        if !self.choices.is_empty() && !self.choices.contains(&text) {
            return Err(("is none of the allowed values".to_owned(), "see the declaration's enum"));
        }
        Ok(Some(text))
    }

    fn check_text(&self, text: &str) -> Result<(), (String, &'static str)> {
        if text.len() > self.max_bytes {
            return Err((format!("has more than {} bytes", self.max_bytes), "shorten it"));
        }
        if text.len() < self.min_bytes {
            return Err((format!("has fewer than {} bytes", self.min_bytes), "give more"));
        }
        // PostgreSQL stores none, and C programs end at it.
        if text.contains('\0') {
            return Err(("has a zero byte".to_owned(), "leave it out"));
        }
        if self.pattern.as_ref().is_some_and(|pattern| !pattern.is_match(text)) {
            return Err(("does not have its declared form".to_owned(), "see the declaration's pattern"));
        }
        Ok(())
    }

    fn check_range(&self, number: i64) -> Result<(), (String, &'static str)> {
        let below = self.minimum.is_some_and(|least| number < least);
        if below || self.maximum.is_some_and(|most| number > most) {
            return Err(("is out of its range".to_owned(), "see the declaration's minimum and maximum"));
        }
        Ok(())
    }
}
