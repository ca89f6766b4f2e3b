//! From the plain tree to what a provider takes.

use serde_json::{Map, Number, Value, json};

use super::read::{Kind, Node, Object, Others, Range, add_note};
use super::{Dialect, SchemaError};

/// Formats of texts that OpenAI names; others, which a server could refuse, go into the description.
const FORMATS: [&str; 9] =
    ["date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];
/// The longest name of an argument that Anthropic takes, in bytes.
const MAX_KEY: usize = 64;
/// The description of a part that a dialect has no keyword for.
const AS_TEXT: &str = "a JSON object, written as a text";
/// The same of a part that may be anything.
const ANY_AS_TEXT: &str = "any JSON value, written as a text";

/// Writes the schema of a tool's arguments.
pub(super) fn write_arguments(dialect: Dialect, object: &Object) -> Result<Option<Value>, SchemaError> {
    let object = with_names(dialect, object)?;
    match dialect {
        // It has no word for an object without properties.
        Dialect::Gemini if object.properties.is_empty() => Ok(None),
        Dialect::OpenAi | Dialect::OpenAiStrict | Dialect::Gemini | Dialect::Anthropic => {
            Ok(Some(Value::Object(write_record(dialect, &object))))
        }
    }
}

/// Returns the object without the arguments that have a name which a dialect does not take.
fn with_names(dialect: Dialect, object: &Object) -> Result<Object, SchemaError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let is_taken = |name: &str| match dialect {
        Dialect::Anthropic => (1..=MAX_KEY).contains(&name.len()) && name.chars().all(is_plain),
        Dialect::OpenAi | Dialect::OpenAiStrict | Dialect::Gemini => true,
    };
    // A required argument cannot be left out, so the tool cannot be offered at all.
    if let Some(name) = object.required.iter().find(|name| !is_taken(name)) {
        return Err(SchemaError::Name(
            writ_types::visible::escape_line(name).chars().take(MAX_KEY).collect(),
        ));
    }
    let mut object = object.clone();
    object.properties.retain(|(name, _)| is_taken(name));
    Ok(object)
}

/// A part in the words of a dialect.
fn write_part(dialect: Dialect, node: &Node) -> Map<String, Value> {
    let mut description = node.description.clone();
    let mut written = Map::new();
    match &node.kind {
        Kind::Any => match dialect {
            Dialect::Anthropic => {}
            Dialect::Gemini => {
                add_note(&mut description, ANY_AS_TEXT);
                written.insert("type".to_owned(), json!("string"));
            }
            Dialect::OpenAi | Dialect::OpenAiStrict => {
                drop(written.insert("anyOf".to_owned(), any_value(dialect)))
            }
        },
        Kind::Text { values, format, length } => {
            write_text(dialect, (values, format.as_deref(), length), &mut written, &mut description)
        }
        Kind::Number { is_integer, values, range } => {
            written.insert("type".to_owned(), json!(if *is_integer { "integer" } else { "number" }));
            // This dialect has enums of texts alone.
            if !values.is_empty() && dialect == Dialect::Gemini {
                let values: Vec<String> = values.iter().map(Number::to_string).collect();
                add_note(&mut description, &format!("one of {}", values.join(", ")));
            } else if !values.is_empty() {
                written.insert("enum".to_owned(), json!(values));
            }
            write_bounds(dialect, range, ["minimum", "maximum"], &mut written);
        }
        Kind::Truth => drop(written.insert("type".to_owned(), json!("boolean"))),
        Kind::List { items, length } => {
            written.insert("type".to_owned(), json!("array"));
            written.insert("items".to_owned(), Value::Object(write_part(dialect, items)));
            write_bounds(dialect, length, ["minItems", "maxItems"], &mut written);
        }
        Kind::Object(object) if is_writable(dialect, object) => {
            // A name that is not taken is a name at the top alone.
            written = write_record(dialect, object);
        }
        Kind::Object(_) => {
            add_note(&mut description, AS_TEXT);
            written.insert("type".to_owned(), json!("string"));
        }
        Kind::Choice(nodes) => {
            let mut branches: Vec<Map<String, Value>> =
                nodes.iter().map(|node| write_part(dialect, node)).collect();
            // Here nothing may stand beside a union.
            if dialect == Dialect::Gemini
                && !description.is_empty()
                && let Some(first) = branches.first_mut()
            {
                first.entry("description").or_insert_with(|| json!(std::mem::take(&mut description)));
                description.clear();
            }
            written.insert("anyOf".to_owned(), branches.into_iter().map(Value::Object).collect());
        }
    }
    if !description.is_empty() {
        written.insert("description".to_owned(), json!(description));
    }
    written
}

/// Returns true if a dialect has words for an object.
fn is_writable(dialect: Dialect, object: &Object) -> bool {
    match dialect {
        Dialect::OpenAi | Dialect::Anthropic => true,
        Dialect::Gemini => !object.properties.is_empty(),
        Dialect::OpenAiStrict => !object.properties.is_empty() && !matches!(object.others, Others::Of(_)),
    }
}

fn write_text(
    dialect: Dialect,
    (values, format, length): (&[String], Option<&str>, &Range),
    written: &mut Map<String, Value>,
    description: &mut String,
) {
    written.insert("type".to_owned(), json!("string"));
    // Gemini refuses an empty text among the values.
    let is_taken = |value: &&String| dialect != Dialect::Gemini || !value.is_empty();
    let taken: Vec<&String> = values.iter().filter(is_taken).collect();
    if taken.len() < values.len() {
        add_note(description, "or an empty text");
    }
    if !taken.is_empty() {
        written.insert("enum".to_owned(), json!(taken));
    }
    match format {
        Some("date-time") => drop(written.insert("format".to_owned(), json!("date-time"))),
        Some(format) if FORMATS.contains(&format) && dialect != Dialect::Gemini => {
            written.insert("format".to_owned(), json!(format));
        }
        Some(format) => add_note(description, &format!("format {format}")),
        None => {}
    }
    if dialect != Dialect::Gemini {
        write_bounds(dialect, length, ["minLength", "maxLength"], written);
    }
}

fn write_bounds(dialect: Dialect, range: &Range, names: [&str; 2], written: &mut Map<String, Value>) {
    // Strict schemas have no bounds; the tool itself checks them.
    if dialect == Dialect::OpenAiStrict {
        return;
    }
    for (name, bound) in names.into_iter().zip([&range.least, &range.most]) {
        if let Some(bound) = bound {
            written.insert(name.to_owned(), json!(bound));
        }
    }
}

/// Returns the schema that takes anything, where every part must have a type.
fn any_value(dialect: Dialect) -> Value {
    let simple = ["string", "number", "boolean"].map(|kind| json!({ "type": kind }));
    let mut all = simple.to_vec();
    // Strict schemas would have to name every field.
    if dialect != Dialect::OpenAiStrict {
        all.push(json!({ "type": "array", "items": { "type": "string" } }));
        all.push(json!({ "type": "object", "properties": {} }));
    }
    Value::Array(all)
}

fn write_record(dialect: Dialect, object: &Object) -> Map<String, Value> {
    let is_strict = dialect == Dialect::OpenAiStrict;
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, node) in &object.properties {
        let must = object.required.contains(name);
        let written = write_part(dialect, node);
        let may_be_null = is_strict && (node.nullable || !must);
        properties.insert(name.clone(), if may_be_null { or_null(written) } else { Value::Object(written) });
        // Only strict schemas can say «required, but may be null». In others the property is optional, and null is filled in.
        if is_strict || (must && !node.nullable) {
            required.push(name);
        }
    }
    let mut written = Map::new();
    written.insert("type".to_owned(), json!("object"));
    written.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() || is_strict {
        written.insert("required".to_owned(), json!(required));
    }
    match (dialect, &object.others) {
        // This dialect has no word for further fields.
        (Dialect::Gemini, _) => {}
        (Dialect::OpenAiStrict, _) | (Dialect::OpenAi | Dialect::Anthropic, Others::Closed) => {
            written.insert("additionalProperties".to_owned(), json!(false));
        }
        (Dialect::OpenAi | Dialect::Anthropic, Others::Of(node)) => {
            written.insert("additionalProperties".to_owned(), Value::Object(write_part(dialect, node)));
        }
        (Dialect::OpenAi | Dialect::Anthropic, Others::Open) => {}
    }
    written
}

/// A part of a strict schema that may be null.
fn or_null(mut written: Map<String, Value>) -> Value {
    let nothing = json!({ "type": "null" });
    // A union takes one more branch; any other part becomes a union.
    if let Some(Value::Array(branches)) = written.get_mut("anyOf") {
        branches.push(nothing);
        return Value::Object(written);
    }
    let description = written.shift_remove("description");
    let mut either = Map::new();
    either.insert("anyOf".to_owned(), json!([Value::Object(written), nothing]));
    if let Some(description) = description {
        either.insert("description".to_owned(), description);
    }
    Value::Object(either)
}
