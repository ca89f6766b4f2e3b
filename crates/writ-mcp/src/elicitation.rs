//! Questions of a server to a person (MCP, `elicitation/create`): read strictly, and answered by the person alone.

use serde_json::{Map, Value, json};
use writ_inspect::show::{escape_line, escape_text};
use writ_types::form::{FormField, FormValue, MAX_FORM_CHARS, MAX_FORM_FIELDS};

/// The longest question, in characters.
pub const MAX_QUESTION_CHARS: usize = 2_000;
/// The longest name of a field, in characters.
const MAX_NAME_CHARS: usize = 64;
/// The longest title, description or choice, in characters.
const MAX_WORDS: usize = 300;
/// The most choices of one field.
const MAX_CHOICES: usize = 64;

/// A question of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Elicitation {
    /// The id that its answer must name.
    pub(crate) id: Value,
    /// Its text, escaped.
    pub message: String,
    /// The fields to fill in.
    pub fields: Vec<FormField>,
}

/// A person's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitationReply {
    /// Yes, with what was filled in.
    Accept(Map<String, Value>),
    /// No.
    Decline,
    /// No answer: no person was there, or the question is moot.
    Cancel,
}

impl ElicitationReply {
    /// The result that the server is sent.
    pub(crate) fn result(self) -> Value {
        match self {
            Self::Accept(content) => json!({ "action": "accept", "content": content }),
            Self::Decline => json!({ "action": "decline" }),
            Self::Cancel => json!({ "action": "cancel" }),
        }
    }
}

impl Elicitation {
    /// Reads the parameters of a request with this id.
    ///
    /// # Errors
    ///
    /// If it is not a flat form of bounded size, in words for the server.
    pub fn read(id: Value, params: &Value) -> Result<Self, &'static str> {
        // A link could lead a person to a page that asks for a password.
        if params.get("mode").is_some_and(|mode| mode != "form") {
            return Err("only forms are shown, and no links");
        }
        let message = params.get("message").and_then(|message| bound_text(message, MAX_QUESTION_CHARS));
        // Escaped at once: a terminal or page shows it to a person.
        let message = escape_text(message.ok_or("the message is missing or too long")?);
        let schema = params.get("requestedSchema").and_then(Value::as_object);
        let fields = schema.map(read_form).transpose()?.unwrap_or_default();
        Ok(Self { id, message, fields })
    }
}

/// A text that is short enough.
fn bound_text(value: &Value, most: usize) -> Option<&str> {
    value.as_str().filter(|text| text.chars().count() <= most)
}

/// The fields of a form.
fn read_form(schema: &Map<String, Value>) -> Result<Vec<FormField>, &'static str> {
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    // A person reads the whole form, so it is short.
    if properties.len() > MAX_FORM_FIELDS {
        return Err("the form has too many fields");
    }
    let required = schema.get("required").and_then(Value::as_array);
    let required: Vec<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
    // Such a form could never be answered.
    if required.iter().any(|name| !properties.contains_key(*name)) {
        return Err("a field is required that the form does not have");
    }
    properties.iter().map(|(name, property)| read_field(name, property, &required)).collect()
}

fn read_field(name: &str, property: &Value, required: &[&str]) -> Result<FormField, &'static str> {
    // A plain name, since the answer is an object with it as key.
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if !is_plain || name.is_empty() || name.len() > MAX_NAME_CHARS {
        return Err("a field has no plain name");
    }
    let words = |of: &str| -> Result<String, &'static str> {
        let Some(said) = property.get(of) else { return Ok(String::new()) };
        let said = bound_text(said, MAX_WORDS).ok_or("a field says too much of itself")?;
        Ok(escape_line(said))
    };
    let (title, description) = (words("title")?, words("description")?);
    Ok(FormField {
        name: name.to_owned(),
        title: if title.is_empty() { name.to_owned() } else { title },
        description,
        takes: accepted_value(property)?,
        required: required.contains(&name),
    })
}

/// Returns the value that fits into a property of the form's schema: a primitive, by the protocol.
fn accepted_value(property: &Value) -> Result<FormValue, &'static str> {
    if let Some(choices) = property.get("enum") {
        let choices = choices.as_array().filter(|choices| (1..=MAX_CHOICES).contains(&choices.len()));
        let choice = |choice: &Value| {
            let choice = choice.as_str().filter(|choice| choice.chars().count() <= MAX_WORDS)?;
            // The text that a person sees must be the text that is sent, so a choice that would be escaped is refused.
            (escape_line(choice) == choice).then(|| choice.to_owned())
        };
        let choices = choices.and_then(|choices| choices.iter().map(choice).collect::<Option<Vec<_>>>());
        return Ok(FormValue::Choice { choices: choices.ok_or("the choices of a field are none")? });
    }
    let bound = |name: &str, otherwise: u32| {
        let bound =
            property.get(name).and_then(Value::as_u64).map(|bound| u32::try_from(bound).unwrap_or(u32::MAX));
        bound.unwrap_or(otherwise)
    };
    match property.get("type").and_then(Value::as_str) {
        Some("string") => {
            // A longer bound of the server is cut to ours, so that a form cannot ask for a document.
            let (min, max) = (bound("minLength", 0), bound("maxLength", MAX_FORM_CHARS).min(MAX_FORM_CHARS));
            if min > max { Err("nothing fits into a field") } else { Ok(FormValue::Text { min, max }) }
        }
        Some("number") => Ok(FormValue::Number),
        Some("integer") => Ok(FormValue::Integer),
        Some("boolean") => Ok(FormValue::Boolean),
        Some(_) | None => Err("a field takes something other than a text, a number or a choice"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(params: Value) -> Result<Elicitation, &'static str> {
        Elicitation::read(json!(7), &params)
    }

    #[test]
    fn a_question_is_a_flat_form_of_bounded_size() {
        let asked = read(json!({
            "message": "Which \u{202e}account?",
            "requestedSchema": { "type": "object", "required": ["account"], "properties": {
                "account": { "type": "string", "title": "Account", "minLength": 1, "maxLength": 20 },
                "kind": { "type": "string", "enum": ["one", "two"], "description": "which kind" },
                "many": { "type": "integer" }, "price": { "type": "number" }, "sure": { "type": "boolean" },
            } },
        }));
        let asked = asked.expect("a form");
        assert!(!asked.message.contains('\u{202e}'), "{}", asked.message);
        let field = |name: &str| asked.fields.iter().find(|field| field.name == name).expect("a field");
        assert_eq!(field("account").takes, FormValue::Text { min: 1, max: 20 });
        assert!(field("account").required && !field("kind").required);
        assert_eq!((field("account").title.as_str(), field("many").title.as_str()), ("Account", "many"));
        assert_eq!(field("kind").takes, FormValue::Choice { choices: vec!["one".into(), "two".into()] });
        assert_eq!(read(json!({ "message": "Go on?" })).expect("a form").fields, []);
        let form =
            |properties: Value| json!({ "message": "m", "requestedSchema": { "properties": properties } });
        let many: Map<String, Value> =
            (0..=MAX_FORM_FIELDS).map(|n| (format!("f{n}"), json!({ "type": "string" }))).collect();
        for odd in [
            json!({}),
            json!({ "message": "x".repeat(MAX_QUESTION_CHARS + 1) }),
            json!({ "message": "m", "mode": "url", "url": "https://evil.example" }),
            json!({ "message": "m", "requestedSchema": { "required": ["x"], "properties": {} } }),
            form(json!(many)),
            form(json!({ "a b": { "type": "string" } })),
            form(json!({ "": { "type": "string" } })),
            form(json!({ "a": { "type": "object" } })),
            form(json!({ "a": { "type": "array" } })),
            form(json!({ "a": {} })),
            form(json!({ "a": { "type": "string", "minLength": 5, "maxLength": 4 } })),
            form(json!({ "a": { "enum": [] } })),
            form(json!({ "a": { "enum": ["\u{202e}x"] } })),
            form(json!({ "a": { "enum": [1] } })),
            form(json!({ "a": { "type": "string", "title": "x".repeat(MAX_WORDS + 1) } })),
        ] {
            assert!(read(odd.clone()).is_err(), "{odd}");
        }
    }

    #[test]
    fn replies_are_those_of_the_protocol() {
        let content = Map::from_iter([("a".to_owned(), json!(1))]);
        assert_eq!(
            ElicitationReply::Accept(content).result(),
            json!({ "action": "accept", "content": { "a": 1 } })
        );
        assert_eq!(ElicitationReply::Decline.result(), json!({ "action": "decline" }));
        assert_eq!(ElicitationReply::Cancel.result(), json!({ "action": "cancel" }));
    }
}
