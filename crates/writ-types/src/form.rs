//! Forms: what a server of tools asks a person to fill in, and what they have filled in.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The most fields of one form: more are no question.
pub const MAX_FORM_FIELDS: usize = 16;
/// The longest text that is filled in, in characters.
pub const MAX_FORM_CHARS: u32 = 2_000;

/// One field of a form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FormField {
    /// Its name in the answer.
    pub name: String,
    /// The field's title, in the server's words, escaped.
    pub title: String,
    /// Its purpose, in the server's words, escaped. May be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The accepted values.
    pub takes: FormValue,
    /// True if it must be filled in.
    #[serde(default)]
    pub required: bool,
}

/// The values that a field accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FormValue {
    /// A text.
    Text {
        /// The fewest characters.
        min: u32,
        /// The most characters.
        max: u32,
    },
    /// A number.
    Number,
    /// A whole number.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// One of these.
    Choice {
        /// The choices.
        choices: Vec<String>,
    },
}

/// The reason that an entered value does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// There is no such field.
    #[error("the form has no field '{0}'")]
    Unknown(String),
    /// A field that must be filled in is not.
    #[error("the field '{0}' must be filled in")]
    Missing(String),
    /// A value is of another kind.
    #[error("'{0}' takes {1}")]
    Misfit(String, String),
}

impl FormValue {
    /// In words.
    pub fn describe_values(&self) -> String {
        match self {
            Self::Text { min: 0, max } => format!("a text of at most {max} characters"),
            Self::Text { min, max } => format!("a text of {min} to {max} characters"),
            Self::Number => "a number".to_owned(),
            Self::Integer => "a whole number".to_owned(),
            Self::Boolean => "true or false".to_owned(),
            Self::Choice { choices } => format!("one of: {}", choices.join(", ")),
        }
    }

    fn read_value(&self, text: &str) -> Option<Value> {
        match self {
            Self::Text { min, max } => {
                // Counted in characters, as the form says.
                let chars = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
                (*min..=*max).contains(&chars).then(|| text.into())
            }
            // As it is written: a number may exceed every machine type.
            Self::Number => text.trim().parse::<serde_json::Number>().ok().map(Value::Number),
            Self::Integer => text.trim().parse::<i64>().ok().map(Into::into),
            Self::Boolean => text.trim().parse::<bool>().ok().map(Into::into),
            // Word for word: the server compares the answer with its own list.
            Self::Choice { choices } => choices.iter().any(|choice| choice == text).then(|| text.into()),
        }
    }
}

/// Converts the entered values to the kinds that their fields take.
///
/// # Errors
///
/// If a value fits no field, or a required one is missing.
pub fn filled_in(
    fields: &[FormField],
    answers: &BTreeMap<String, String>,
) -> Result<Map<String, Value>, FormError> {
    // A name that the form lacks is a mistake: left out, it would look like an answer that was sent.
    if let Some(unknown) = answers.keys().find(|name| fields.iter().all(|field| field.name != **name)) {
        // Cut, since the name is foreign text that goes into an error.
        return Err(FormError::Unknown(unknown.chars().take(64).collect()));
    }
    let mut content = Map::new();
    for field in fields {
        let name = field.name.clone();
        match answers.get(&name) {
            Some(text) => {
                let value = field.takes.read_value(text);
                let value =
                    value.ok_or_else(|| FormError::Misfit(name.clone(), field.takes.describe_values()))?;
                content.insert(name, value);
            }
            None if field.required => return Err(FormError::Missing(name)),
            None => {}
        }
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(name: &str, takes: FormValue, required: bool) -> FormField {
        FormField { name: name.into(), title: name.into(), description: String::new(), takes, required }
    }

    #[test]
    fn what_is_filled_in_fits_its_fields_or_is_refused() {
        let choice = FormValue::Choice { choices: vec!["red".into(), "blue".into()] };
        let fields = [
            field("who", FormValue::Text { min: 1, max: 5 }, true),
            field("many", FormValue::Integer, false),
            field("price", FormValue::Number, false),
            field("sure", FormValue::Boolean, false),
            field("colour", choice, false),
        ];
        let filled = |answers: &[(&str, &str)]| {
            let answers =
                answers.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
            filled_in(&fields, &answers).map(Value::Object)
        };
        let all = [("who", "Ann"), ("many", "3"), ("price", "1.50"), ("sure", "true"), ("colour", "red")];
        let expected = json!({ "who": "Ann", "many": 3, "price": 1.5, "sure": true, "colour": "red" });
        assert_eq!(filled(&all), Ok(expected));
        assert_eq!(filled(&[("who", "Ann")]), Ok(json!({ "who": "Ann" })));
        assert_eq!(filled(&[]), Err(FormError::Missing("who".into())));
        assert_eq!(filled(&[("who", "Ann"), ("x", "")]), Err(FormError::Unknown("x".into())));
        for (name, text) in [
            ("who", ""),
            ("who", "too long"),
            ("many", "3.5"),
            ("price", "NaN"),
            ("sure", "yes"),
            ("colour", "green"),
        ] {
            let said = filled(&[("who", "Ann"), (name, text)]);
            assert!(matches!(said, Err(FormError::Misfit(at, _)) if at == name), "{name} {text}");
        }
    }
}
