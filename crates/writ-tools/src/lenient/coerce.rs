//! Values of the wrong type that can only mean one of the right type.

use serde_json::{Map, Number, Value};

use super::fold_name;
use super::json::parse_layers;

/// The deepest value that is looked at.
const MAX_DEPTH: usize = 16;
/// The longest text that is read as another type, in bytes.
const MAX_TEXT_BYTES: usize = 1024 * 1024;

/// The value with everything that does not fit its schema, and can only mean one thing, in the form that it means.
pub(crate) fn coerce_value(schema: &Value, value: &Value) -> Value {
    coerce_part(schema, value, 0)
}

/// The arguments with `null` for what must be given, may be `null`, and was left out.
pub(crate) fn with_nulls(schema: &Value, mut value: Value) -> Value {
    let required =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    if let Some(fields) = value.as_object_mut() {
        for name in required {
            let property = schema.get("properties").and_then(|all| all.get(name));
            // A missing field is added only where null is a value of its own.
            if !fields.contains_key(name)
                && property.is_some_and(|property| schema_types(property).contains(&"null"))
            {
                fields.insert(name.to_owned(), Value::Null);
            }
        }
    }
    value
}

/// The types that a part of a schema takes; none: it does not say.
fn schema_types(schema: &Value) -> Vec<&str> {
    let mut found = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind.as_str()],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        Some(_) | None => Vec::new(),
    };
    if found.is_empty() {
        // A union lists its types in branches.
        for branch in ["anyOf", "oneOf"].iter().filter_map(|name| schema.get(*name)?.as_array()).flatten() {
            found.extend(schema_types(branch));
        }
    }
    found
}

fn coerce_part(schema: &Value, value: &Value, depth: usize) -> Value {
    if depth > MAX_DEPTH {
        return value.clone();
    }
    let kinds: Vec<&str> = schema_types(schema).into_iter().filter(|kind| *kind != "null").collect();
    // Of several types, none is meant more than another.
    let [kind] = kinds.as_slice() else { return value.clone() };
    match (*kind, value) {
        ("object", Value::Object(fields)) => coerce_object(schema, fields, depth),
        ("array", Value::Array(items)) => coerce_list(schema, items, depth),
        ("object" | "array", Value::String(text)) => match read_json(text) {
            Some(Value::Object(fields)) if *kind == "object" => coerce_object(schema, &fields, depth),
            Some(Value::Array(items)) if *kind == "array" => coerce_list(schema, &items, depth),
            Some(_) | None => value.clone(),
        },
        ("string", Value::String(text)) => one_of(schema, text).unwrap_or_else(|| value.clone()),
        // A list could be one of lines, of words or of records: its text form is ambiguous.
        ("string", Value::Object(_) | Value::Number(_) | Value::Bool(_)) => Value::String(value.to_string()),
        ("integer" | "number", Value::String(text)) => parse_number(text.trim())
            .filter(|found| *kind == "number" || is_whole(found))
            .map_or_else(|| value.clone(), whole_number),
        ("integer", Value::Number(number)) => whole_number(number.clone()),
        ("boolean", Value::String(text)) => match text.trim().to_ascii_lowercase().as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _other => value.clone(),
        },
        _fits_or_not => value.clone(),
    }
}

fn read_json(text: &str) -> Option<Value> {
    if text.len() > MAX_TEXT_BYTES { None } else { parse_layers(text.trim()) }
}

/// The number that a text is, written as JSON writes it.
fn parse_number(text: &str) -> Option<Number> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'.' | b'e' | b'E' | b'+'));
    if is_plain { serde_json::from_str(text).ok() } else { None }
}

fn is_whole(number: &Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// A number without a fraction as an integer, as `5` for `5.0`.
fn whole_number(number: Number) -> Value {
    /// Beyond this, a fraction cannot be represented.
    const MOST: f64 = 9_007_199_254_740_992.0;
    let written =
        number.as_f64().filter(|value| number.is_f64() && value.fract() == 0.0 && value.abs() < MOST);
    let integer = written.and_then(|value| format!("{value:.0}").parse::<i64>().ok());
    integer.map_or(Value::Number(number), Value::from)
}

/// The one of the named texts that a text means, but for case and blanks.
fn one_of(schema: &Value, text: &str) -> Option<Value> {
    let named = schema.get("enum")?.as_array()?;
    if named.iter().any(|value| value.as_str() == Some(text)) {
        return None;
    }
    let wanted = fold_name(text);
    let mut found =
        named.iter().filter(|value| value.as_str().is_some_and(|value| fold_name(value) == wanted));
    found.next().filter(|_| found.next().is_none()).cloned()
}

fn coerce_list(schema: &Value, items: &[Value], depth: usize) -> Value {
    match schema.get("items") {
        Some(of) => items.iter().map(|item| coerce_part(of, item, depth + 1)).collect(),
        None => items.to_vec().into(),
    }
}

fn coerce_object(schema: &Value, fields: &Map<String, Value>, depth: usize) -> Value {
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
    let mut written = Map::new();
    for (name, value) in fields {
        let known = rename_fields(properties, fields, name);
        let Some(property) = properties.get(known) else {
            written.insert(name.clone(), value.clone());
            continue;
        };
        // Nothing is what was left out, where it may be.
        if value.is_null() && !is_required(known) && !schema_types(property).contains(&"null") {
            continue;
        }
        written.insert(known.to_owned(), coerce_part(property, value, depth + 1));
    }
    Value::Object(written)
}

/// The property that a name means: its own, or the only one that is the same but for case, blanks and how its words are
/// joined, where that is not given besides.
fn rename_fields<'a>(
    properties: &'a Map<String, Value>,
    fields: &Map<String, Value>,
    name: &'a str,
) -> &'a str {
    if properties.contains_key(name) {
        return name;
    }
    let joined = |name: &str| fold_name(name).replace('_', "");
    let wanted = joined(name);
    let mut found = properties.keys().filter(|own| joined(own) == wanted && !fields.contains_key(*own));
    let one = found.next().filter(|_| found.next().is_none());
    let is_meant_twice = fields.keys().filter(|other| joined(other) == wanted).count() > 1;
    one.filter(|_| !is_meant_twice).map_or(name, String::as_str)
}
