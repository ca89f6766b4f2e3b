//! JSON Schemas that others wrote, in one plain form: references in their places, within bounds.

use serde_json::{Map, Value, json};

/// The most values of a schema with its references in their places: references to references grow by powers.
pub const MAX_EXPANDED: usize = 20_000;
/// The deepest nesting of a schema with its references in their places.
const MAX_DEPTH: usize = 96;
/// The number of times that a part may stand within itself before it is cut, in the order in which this is
/// tried.
const NESTINGS: [usize; 3] = [2, 1, 0];
/// The depth at which shortening begins.
const MAX_SHORTENED: usize = 6;
/// Maps from names to the schemas of parts of a value.
const PART_MAPS: [&str; 2] = ["properties", "patternProperties"];
/// Keywords with a schema, or a list of schemas, of parts of a value.
const PARTS: [&str; 9] = [
    "items",
    "prefixItems",
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contains",
    "propertyNames",
    "contentSchema",
];
/// Keywords with a schema, or a list of schemas, of the same value.
const SAME: [&str; 7] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];
/// Keywords that only describe a value.
const ANNOTATIONS: [&str; 8] =
    ["title", "description", "default", "example", "examples", "deprecated", "readOnly", "writeOnly"];
/// The names of types.
const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];

/// The reason that references cannot be expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// A reference that leaves the schema, or that is of another form.
    #[error("it refers to something other than a part of itself")]
    Reference,
    /// A part that is nothing but itself.
    #[error("its references go in a circle")]
    Circle,
    /// Too large or too deep.
    #[error("it has more than {MAX_EXPANDED} values, or is too deep, with its references in their places")]
    TooLarge,
}

/// Puts every reference in its place. A part that stands within itself, as in a tree, is cut after a few levels: below,
/// anything is taken. What generators of schemas get wrong in harmless ways is mended: an empty list for a map, keywords
/// that are `null`, `nullable` of OpenAPI, names of types in capitals.
///
/// # Errors
///
/// If a reference leads out of the schema or to nothing but itself, or the result would be beyond a bound.
pub fn expand_references(schema: &Value) -> Result<Value, ExpandError> {
    let mut result = Err(ExpandError::TooLarge);
    // The first nesting that fits wins: the schema is cut only as far as needed.
    for nesting in NESTINGS {
        let mut expansion = Expansion { root: schema, open: Vec::new(), nesting, left: MAX_EXPANDED };
        result = expansion.expand_schema(schema, (0, 0));
        if result != Err(ExpandError::TooLarge) {
            return result;
        }
    }
    result
}

/// Shortens an expanded schema until it takes at most so many bytes as JSON, or cannot be made shorter: parts that lie
/// deep are reduced to their types. Which arguments there are stays.
pub fn shorten_schema(schema: Value, most: usize) -> Value {
    let is_short = |schema: &Value| schema.to_string().len() <= most;
    // Most schemas are short and stay unchanged.
    if is_short(&schema) {
        return schema;
    }
    let mut shorter = schema.clone();
    // From the deepest on, so that as much as possible stays.
    for depth in (1..=MAX_SHORTENED).rev() {
        shorter = reduce_depth(&schema, depth);
        if is_short(&shorter) {
            break;
        }
    }
    shorter
}

struct Expansion<'a> {
    root: &'a Value,
    /// The references that are being followed, each with its level.
    open: Vec<(&'a str, usize)>,
    nesting: usize,
    /// Values that may still be written.
    left: usize,
}

/// The depth of a place: in the schema that is written, and in the values that it describes.
type Depth = (usize, usize);

impl<'a> Expansion<'a> {
    fn count_nodes(&mut self, values: usize) -> Result<(), ExpandError> {
        // A budget for the whole expansion: references can multiply a small schema.
        self.left = self.left.checked_sub(values).ok_or(ExpandError::TooLarge)?;
        Ok(())
    }

    fn expand_schema(&mut self, schema: &'a Value, (depth, level): Depth) -> Result<Value, ExpandError> {
        self.count_nodes(1)?;
        // A bound on recursion, independent of the budget.
        if depth > MAX_DEPTH {
            return Err(ExpandError::TooLarge);
        }
        // `true` and `false` are schemas, too.
        let Value::Object(fields) = schema else { return Ok(schema.clone()) };
        let mut written = Map::new();
        for (name, value) in fields {
            if let Some(value) = self.expand_keyword(name, value, (depth, level))? {
                written.insert(name.clone(), value);
            }
        }
        make_nullable(&mut written);
        // Keywords beside a reference apply, too.
        match fields.get("$ref") {
            Some(Value::String(to)) => {
                let target = self.follow_reference(to, (depth, level))?;
                Ok(merge_beside(target, written))
            }
            Some(_) | None => Ok(Value::Object(written)),
        }
    }

    /// Writes one keyword; `None`: it is left out.
    fn expand_keyword(
        &mut self,
        name: &str,
        value: &'a Value,
        (depth, level): Depth,
    ) -> Result<Option<Value>, ExpandError> {
        // In these, null is a value.
        let is_kept_null = matches!(name, "default" | "const" | "example");
        match (name, value) {
            ("$ref" | "$id" | "id" | "$anchor" | "$dynamicAnchor", Value::String(_)) => {
                // An id inside the schema changes the base of references, which is not supported.
                let is_foreign = name.ends_with("id") && depth > 0 && has_references(self.root);
                return if is_foreign { Err(ExpandError::Reference) } else { Ok(None) };
            }
            // Dynamic references depend on the path of evaluation.
            ("$dynamicRef" | "$recursiveRef", _) => return Err(ExpandError::Reference),
            ("$defs" | "definitions", _) => return Ok(None),
            (_, Value::Null) if !is_kept_null => return Ok(None),
            // Forms of older drafts.
            ("required", Value::Bool(_)) | ("exclusiveMinimum" | "exclusiveMaximum", Value::Bool(_)) => {
                return Ok(None);
            }
            // Some generators write this for any type; no keyword means the same.
            ("type", Value::String(kind)) if kind == "any" => return Ok(None),
            ("type", _) => return Ok(Some(lower_case(value))),
            _ => {}
        }
        if PART_MAPS.contains(&name) || name == "dependentSchemas" {
            // Dependent schemas describe the same value, so the level stays.
            let below = if name == "dependentSchemas" { level } else { level + 1 };
            return self.expand_map(value, (depth + 2, below)).map(Some);
        }
        if PARTS.contains(&name) {
            return self.one_or_all(value, (depth + 1, level + 1)).map(Some);
        }
        if SAME.contains(&name) {
            return self.one_or_all(value, (depth + 1, level)).map(Some);
        }
        self.count_nodes(count_values(value))?;
        Ok(Some(value.clone()))
    }

    fn expand_map(&mut self, value: &'a Value, at: Depth) -> Result<Value, ExpandError> {
        match value {
            // PHP writes an empty map so.
            Value::Array(items) if items.is_empty() => Ok(json!({})),
            Value::Object(fields) => {
                let mut written = Map::new();
                for (name, schema) in fields {
                    written.insert(name.clone(), self.expand_schema(schema, at)?);
                }
                Ok(Value::Object(written))
            }
            Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.count_nodes(count_values(value))?;
                Ok(value.clone())
            }
        }
    }

    fn one_or_all(&mut self, value: &'a Value, at: Depth) -> Result<Value, ExpandError> {
        match value {
            Value::Array(items) => {
                let items: Result<Vec<_>, _> =
                    items.iter().map(|item| self.expand_schema(item, at)).collect();
                items.map(Value::Array)
            }
            Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.expand_schema(value, at)
            }
        }
    }

    fn follow_reference(&mut self, to: &'a str, (depth, level): Depth) -> Result<Value, ExpandError> {
        let before = self.open.iter().filter(|(open, _)| *open == to).count();
        let is_same =
            // The same reference at the same level is a circle without a value in between.
            self.open.iter().rev().find(|(open, _)| *open == to).is_some_and(|(_, at)| *at == level);
        if is_same {
            return Err(ExpandError::Circle);
        }
        // Deeper nesting is cut: any value is allowed there.
        if before > self.nesting {
            return Ok(json!({}));
        }
        // Only references into the same document.
        let pointer = to.strip_prefix('#').ok_or(ExpandError::Reference)?;
        let pointer = decode_pointer(pointer).ok_or(ExpandError::Reference)?;
        let part = self.root.pointer(&pointer).ok_or(ExpandError::Reference)?;
        self.open.push((to, level));
        let written = self.expand_schema(part, (depth + 1, level));
        self.open.pop();
        written
    }
}

/// A pointer without percent-encoding, as some generators write `$` of `$defs`.
fn decode_pointer(pointer: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = pointer.bytes();
    while let Some(byte) = rest.next() {
        // Pointers in references are percent-encoded.
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// Merges the target of a reference with the keywords beside it.
fn merge_beside(target: Value, mut beside: Map<String, Value>) -> Value {
    let Value::Object(mut target) = target else {
        // A boolean schema holds no keywords that could be merged.
        return if beside.is_empty() { target } else { Value::Object(beside) };
    };
    let is_annotation = |name: &String| ANNOTATIONS.contains(&name.as_str()) || name.starts_with("x-");
    // Annotations do not restrict, so they can simply be added.
    if beside.keys().all(is_annotation) {
        target.extend(beside);
        return Value::Object(target);
    }
    let target = Value::Object(target);
    // Both may restrict the same keyword: neither is overwritten, and both must hold.
    match beside.get_mut("allOf").and_then(Value::as_array_mut) {
        Some(all) => all.push(target),
        None => {
            beside.insert("allOf".to_owned(), json!([target]));
        }
    }
    Value::Object(beside)
}

/// Writes `nullable` of OpenAPI as JSON Schema has it.
fn make_nullable(schema: &mut Map<String, Value>) {
    if schema.get("nullable") != Some(&Value::Bool(true)) {
        return;
    }
    let Some(Value::String(kind)) = schema.get("type").cloned() else { return };
    schema.shift_remove("nullable");
    schema.insert("type".to_owned(), json!([kind, "null"]));
    // A list of values without null would forbid what `nullable` allows.
    if let Some(values) = schema.get_mut("enum").and_then(Value::as_array_mut)
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
}

/// Names of types as they are written in JSON Schema; others as they are.
fn lower_case(kind: &Value) -> Value {
    match kind {
        Value::String(name) => {
            let lower = name.to_ascii_lowercase();
            if TYPES.contains(&lower.as_str()) { lower.into() } else { kind.clone() }
        }
        Value::Array(names) => names.iter().map(lower_case).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => kind.clone(),
    }
}

fn has_references(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.contains_key("$ref") || fields.values().any(has_references),
        Value::Array(items) => items.iter().any(has_references),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The number of values in one.
fn count_values(value: &Value) -> usize {
    let inside: usize = match value {
        Value::Array(values) => values.iter().map(count_values).sum(),
        Value::Object(fields) => fields.values().map(count_values).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    };
    inside.saturating_add(1)
}

/// The schema down to a depth of its values; below, only the types stay.
fn reduce_depth(schema: &Value, depth: usize) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    if depth == 0 {
        // With the type, a model still knows which kind of value to give.
        let kept = fields.iter().filter(|(name, _)| *name == "type");
        return Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect());
    }
    let below = |value: &Value| {
        let Value::Array(items) = value else { return reduce_depth(value, depth - 1) };
        items.iter().map(|item| reduce_depth(item, depth - 1)).collect()
    };
    let keyword = |(name, value): (&String, &Value)| {
        let is_parts = PART_MAPS.contains(&name.as_str());
        let is_schema = PARTS.contains(&name.as_str()) || SAME.contains(&name.as_str());
        let value = match value.as_object().filter(|_| is_parts) {
            Some(parts) => {
                let parts = parts.iter().map(|(name, part)| (name.clone(), reduce_depth(part, depth - 1)));
                Value::Object(parts.collect())
            }
            None if is_schema => below(value),
            None => value.clone(),
        };
        (name.clone(), value)
    };
    Value::Object(fields.iter().map(keyword).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_stand_in_their_places() {
        let schema = json!({
            "$id": "https://example.org/tool",
            "type": "object",
            "properties": {
                "to": {"$ref": "#/$defs/address", "description": "who"},
                "cc": {"type": "array", "items": {"$ref": "#/%24defs/address"}},
                "$ref": {"type": "string"},
                "odd": {"enum": [{"$ref": "#/nowhere"}]},
                "both": {"$ref": "#/$defs/address", "required": ["mail"]},
            },
            "$defs": {"address": {"type": "object", "properties": {"mail": {"type": "string"}}}},
        });
        let address = json!({"type": "object", "properties": {"mail": {"type": "string"}}});
        let mut named = address.clone();
        named["description"] = json!("who");
        let expected = json!({
            "type": "object",
            "properties": {
                "to": named,
                "cc": {"type": "array", "items": address},
                "$ref": {"type": "string"},
                "odd": {"enum": [{"$ref": "#/nowhere"}]},
                "both": {"required": ["mail"], "allOf": [address]},
            },
        });
        assert_eq!(expand_references(&schema), Ok(expected));
    }

    #[test]
    fn a_tree_is_cut_and_a_circle_is_refused() {
        let tree = json!({
            "$ref": "#/$defs/node",
            "$defs": {"node": {"properties": {"left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}}}},
        });
        let expanded = expand_references(&tree).expect("a tree");
        assert!(!has_references(&expanded) && count_values(&expanded) < 100, "{expanded}");
        assert_eq!(expanded.pointer("/properties/left/properties/right/properties/left"), Some(&json!({})));
        for circle in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}}),
        ] {
            assert_eq!(expand_references(&circle), Err(ExpandError::Circle), "{circle}");
        }
    }

    #[test]
    fn traps_end_at_a_bound() {
        let doubling = |deep: usize| -> Value {
            let parts: Map<String, Value> = (0..deep)
                .map(|n| {
                    let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
                    (format!("d{n}"), json!({"allOf": [next, next]}))
                })
                .chain([(format!("d{deep}"), json!({}))])
                .collect();
            json!({"$ref": "#/$defs/d0", "$defs": parts})
        };
        assert_eq!(expand_references(&doubling(64)), Err(ExpandError::TooLarge));
        let chain: Map<String, Value> =
            (0..2_000).map(|n| (format!("d{n}"), json!({"$ref": format!("#/$defs/d{}", n + 1)}))).collect();
        assert_eq!(
            expand_references(&json!({"$ref": "#/$defs/d0", "$defs": chain})),
            Err(ExpandError::TooLarge)
        );
        for foreign in
            ["https://example.org/x", "file:///etc/passwd", "other", "#missing", "#/%2", "#/nowhere"]
        {
            assert_eq!(
                expand_references(&json!({"$ref": foreign})),
                Err(ExpandError::Reference),
                "{foreign}"
            );
        }
        let nested = json!({"properties": {"a": {"$id": "https://example.org/", "$ref": "#/$defs/a"}}, "$defs": {"a": {}}});
        assert_eq!(expand_references(&nested), Err(ExpandError::Reference));
    }

    #[test]
    fn harmless_mistakes_are_mended() {
        let schema = json!({
            "type": "OBJECT",
            "title": null,
            "properties": {
                "a": {"type": "string", "nullable": true, "enum": ["x"], "required": true},
                "b": {"type": "any"},
                "c": {"type": "object", "properties": []},
                "d": {"type": "integer", "minimum": 0, "exclusiveMinimum": true, "default": null},
            },
        });
        let expected = json!({
            "type": "object",
            "properties": {
                "a": {"type": ["string", "null"], "enum": ["x", null]},
                "b": {},
                "c": {"type": "object", "properties": {}},
                "d": {"type": "integer", "minimum": 0, "default": null},
            },
        });
        assert_eq!(expand_references(&schema), Ok(expected));
    }

    #[test]
    fn what_is_too_long_keeps_its_arguments_and_their_types() {
        let deep = json!({"type": "object", "description": "d".repeat(1_000), "properties": {"x": {"type": "string"}}});
        let schema =
            json!({"type": "object", "properties": {"a": deep, "b": {"type": "array", "items": deep}}});
        assert_eq!(shorten_schema(schema.clone(), 10_000), schema);
        let short = shorten_schema(schema, 500);
        let expected =
            json!({"type": "object", "properties": {"a": {"type": "object"}, "b": {"type": "array"}}});
        assert_eq!(short, expected);
    }
}
