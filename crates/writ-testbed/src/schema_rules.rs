//! Rules of providers about the schemas of tools, from their documents and public reports. Written apart from
//! the code that makes the schemas, so that neither forgives the other.

use serde_json::Value;

/// A provider's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderRules {
    /// The rules of OpenAI and the strictest servers of its format: Moonshot wants a type in each part and
    /// none beside `anyOf`; llama.cpp refuses expressions without anchors; several refuse references and
    /// lists of types.
    OpenAi,
    /// OpenAI's structured outputs.
    OpenAiStrict,
    /// Gemini's function declarations.
    Gemini,
    /// Anthropic's tools.
    Anthropic,
}

/// The words that a provider takes in a part.
fn words(rules: ProviderRules) -> &'static [&'static str] {
    match rules {
        ProviderRules::OpenAi | ProviderRules::Anthropic => &[
            "type",
            "description",
            "enum",
            "properties",
            "required",
            "items",
            "anyOf",
            "additionalProperties",
            "format",
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
        ],
        ProviderRules::OpenAiStrict => &[
            "type",
            "description",
            "enum",
            "properties",
            "required",
            "items",
            "anyOf",
            "additionalProperties",
            "format",
        ],
        ProviderRules::Gemini => &[
            "type",
            "description",
            "enum",
            "properties",
            "required",
            "items",
            "anyOf",
            "format",
            "minimum",
            "maximum",
            "minItems",
            "maxItems",
        ],
    }
}

/// Everything that a provider refuses in the schema of a tool's arguments; empty: it takes it.
pub fn broken_rules(rules: ProviderRules, schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if schema["type"] != "object" {
        found.push("the top is not of an object".to_owned());
    }
    if !schema["properties"].is_object() {
        found.push("the top has no properties".to_owned());
    }
    for union in ["anyOf", "oneOf", "allOf", "enum", "not"] {
        if schema.get(union).is_some() {
            found.push(format!("{union} at the top"));
        }
    }
    part(rules, schema, "", 1, &mut found);
    found
}

fn part(rules: ProviderRules, schema: &Value, at: &str, depth: usize, found: &mut Vec<String>) {
    let mut refuse = |why: String| found.push(format!("{at}: {why}"));
    let Some(fields) = schema.as_object() else { return refuse("a part that is no object".to_owned()) };
    for (word, value) in fields {
        if !words(rules).contains(&word.as_str()) {
            refuse(format!("the word {word}"));
        }
        if value.is_null() {
            refuse(format!("{word} is null"));
        }
    }
    let kind = fields.get("type").map(|kind| kind.as_str().unwrap_or("no single type"));
    let (is_union, is_typed) = (fields.contains_key("anyOf"), kind.is_some());
    if is_union && is_typed {
        refuse("a type beside anyOf".to_owned());
    }
    if !is_union && !is_typed && rules != ProviderRules::Anthropic {
        refuse("no type".to_owned());
    }
    let is_null_branch = kind == Some("null") && rules == ProviderRules::OpenAiStrict;
    let known = ["string", "number", "integer", "boolean", "array", "object"];
    if kind.is_some_and(|kind| !known.contains(&kind)) && !is_null_branch {
        refuse(format!("the type {}", fields["type"]));
    }
    if rules == ProviderRules::Gemini && is_union && fields.len() > 1 {
        refuse("something beside anyOf".to_owned());
    }
    if rules == ProviderRules::OpenAiStrict && depth > 10 {
        refuse("more than ten levels".to_owned());
    }
    values(rules, fields, kind, &mut refuse);
    lists_and_objects(rules, fields, kind, &mut refuse);
    let below = fields.get("properties").and_then(Value::as_object).into_iter().flatten();
    for (name, below) in below {
        part(rules, below, &format!("{at}/{name}"), depth + 1, found);
    }
    for (name, below) in fields
        .iter()
        .filter(|(name, value)| *name == "items" || (*name == "additionalProperties" && !value.is_boolean()))
    {
        part(rules, below, &format!("{at}/{name}"), depth + 1, found);
    }
    for (number, branch) in fields.get("anyOf").and_then(Value::as_array).into_iter().flatten().enumerate() {
        part(rules, branch, &format!("{at}/anyOf/{number}"), depth, found);
    }
}

/// Values that are named, and formats.
fn values(
    rules: ProviderRules,
    fields: &serde_json::Map<String, Value>,
    kind: Option<&str>,
    refuse: &mut impl FnMut(String),
) {
    if let Some(named) = fields.get("enum") {
        let named = named.as_array().cloned().unwrap_or_default();
        let fits = |value: &Value| match kind {
            Some("string") => value.is_string(),
            Some("integer") => value.is_i64() || value.is_u64(),
            Some("number") => value.is_number(),
            _ => false,
        };
        if named.is_empty() || !named.iter().all(fits) {
            refuse(format!("the values {named:?} are not of the type {kind:?}"));
        }
        if rules == ProviderRules::Gemini && (kind != Some("string") || named.contains(&Value::from(""))) {
            refuse("an enum that is not of texts, or holds an empty one".to_owned());
        }
    }
    if let Some(format) = fields.get("format").and_then(Value::as_str) {
        let openai = ["date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];
        let gemini = ["date-time", "enum", "float", "double", "int32", "int64"];
        if !(if rules == ProviderRules::Gemini { gemini.contains(&format) } else { openai.contains(&format) })
        {
            refuse(format!("the format {format}"));
        }
    }
}

fn lists_and_objects(
    rules: ProviderRules,
    fields: &serde_json::Map<String, Value>,
    kind: Option<&str>,
    refuse: &mut impl FnMut(String),
) {
    if (kind == Some("array")) != fields.contains_key("items") {
        refuse("items without a list, or a list without them".to_owned());
    }
    if kind != Some("object") {
        for word in ["properties", "required", "additionalProperties"] {
            if fields.contains_key(word) {
                refuse(format!("{word} without an object"));
            }
        }
        return;
    }
    let Some(properties) = fields.get("properties").and_then(Value::as_object) else {
        return refuse("an object without properties".to_owned());
    };
    if rules == ProviderRules::Gemini && properties.is_empty() {
        refuse("an object with no properties".to_owned());
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let mut names: Vec<&str> = properties.keys().map(String::as_str).collect();
    if rules == ProviderRules::Anthropic
        && names.iter().any(|name| !(1..=64).contains(&name.len()) || !name.chars().all(is_plain))
    {
        refuse(format!("a name among {names:?}"));
    }
    let required = fields.get("required").and_then(Value::as_array).cloned();
    let mut wanted: Vec<&str> = required.iter().flatten().filter_map(Value::as_str).collect();
    if wanted.iter().any(|name| !properties.contains_key(*name))
        || (required.is_some() && wanted.is_empty() && rules == ProviderRules::Gemini)
    {
        refuse(format!("{wanted:?} are required"));
    }
    if rules == ProviderRules::OpenAiStrict {
        names.sort_unstable();
        wanted.sort_unstable();
        if names != wanted || fields.get("additionalProperties") != Some(&Value::Bool(false)) {
            refuse("an object that is not closed, or whose names are not all required".to_owned());
        }
    }
}

/// Everything that a provider refuses in the name of a tool.
pub fn broken_name(rules: ProviderRules, name: &str) -> Option<String> {
    let most = if rules == ProviderRules::Gemini { 63 } else { 64 };
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let begins =
        rules != ProviderRules::Gemini || name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_taken = (1..=most).contains(&name.len()) && is_plain && begins;
    (!is_taken).then(|| format!("the name '{name}'"))
}
