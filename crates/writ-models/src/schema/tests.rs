use serde_json::json;
use writ_testbed::schema_rules::{ProviderRules, broken_rules};

use super::*;

const fn rules(dialect: Dialect) -> ProviderRules {
    match dialect {
        Dialect::OpenAi => ProviderRules::OpenAi,
        Dialect::OpenAiStrict => ProviderRules::OpenAiStrict,
        Dialect::Gemini => ProviderRules::Gemini,
        Dialect::Anthropic => ProviderRules::Anthropic,
    }
}

fn adapted(dialect: Dialect, schema: &Value) -> Value {
    let written = dialect.adapt_schema(schema).expect("an object").expect("with arguments");
    assert_eq!(broken_rules(rules(dialect), &written), [""; 0], "{dialect:?}: {schema}\n{written:#}");
    written
}

/// The arguments as a dialect has them.
fn properties(dialect: Dialect, properties: Value) -> Value {
    adapted(dialect, &json!({"type": "object", "properties": properties}))["properties"].clone()
}

/// Shapes that servers of others list, each from a public report of a request that was refused.
#[test]
fn what_strict_providers_have_refused_is_sent_in_words_that_each_takes() {
    let node =
        json!({"type": "object", "properties": {"name": {"type": "string"}, "in": {"$ref": "#/$defs/node"}}});
    let shapes = [
        json!({"mode": {"type": "string", "enum": ["a", "b", null]}}),
        json!({"guide": {"anyOf": [{"type": "string", "enum": ["javascript", "python"]}, {"type": "null"}], "default": null}}),
        json!({"settings": {"type": ["object", "null"], "properties": {"a": {"type": "string"}}, "required": ["a", "b"]}}),
        json!({"values": {"type": "array", "items": {"anyOf": [{"type": "array", "items": {}}, {"type": "string"}]}}}),
        json!({"cells": {"type": "array"}, "pair": {"type": "array", "items": [{"type": "string"}, {"type": "number"}]}}),
        json!({"kind": {"const": "fixed"}, "level": {"enum": [1, 2, 3]}, "mixed": {"enum": ["a", 1, true, null]}}),
        json!({"state": {"type": "string", "enum": ["", "eq", "neq"]}, "only": {"type": "string", "enum": [""]}}),
        json!({"size": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 10, "multipleOf": 5}}),
        json!({"map": {"type": "object", "additionalProperties": {"type": "string"}, "propertyNames": {"pattern": "^a"}}}),
        json!({"free": {"type": "object"}, "empty": {"type": "object", "properties": {}}, "odd": {"description": "anything"}}),
        json!({"url": {"type": "string", "format": "uri", "pattern": "^https?://"}, "at": {"type": "string", "format": "date-time"}}),
        json!({"root": {"$ref": "#/$defs/node", "description": "where it begins"}}),
        json!({"step": {"oneOf": [{"type": "object", "properties": {"do": {"const": "go"}}}, {"type": "object", "properties": {"do": {"const": "stop"}}}], "description": "what is done"}}),
        json!({"all": {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "integer"}}}]}}),
        json!({"if": {"type": "object", "properties": {"a": {"type": "string"}}, "if": {}, "then": {}, "dependentRequired": {}, "unevaluatedProperties": false}}),
        json!({"cell": {"type": ["string", "number", "boolean"]}, "truth": true, "x": {"type": "string", "title": "X", "examples": ["a"], "x-order": 1}}),
        json!({"when": {"type": "string", "nullable": true, "enum": ["now"], "deprecated": true}}),
    ];
    for shape in shapes {
        let required: Vec<String> = shape.as_object().expect("names").keys().cloned().collect();
        for top in [
            json!({}),
            json!({"required": required}),
            json!({"additionalProperties": false, "$schema": "http://json-schema.org/draft-07/schema#"}),
        ] {
            let mut schema = json!({"type": "object", "properties": shape, "$defs": {"node": node}});
            schema.as_object_mut().expect("fields").extend(top.as_object().expect("fields").clone());
            for dialect in Dialect::ALL {
                let written = adapted(dialect, &schema);
                for name in &required {
                    assert!(written["properties"].get(name).is_some(), "{name} stays: {written}");
                }
            }
        }
    }
}

#[test]
fn an_enum_with_null_is_one_of_texts() {
    let schema = json!({"how": {"type": "string", "enum": ["a", "b", null], "description": "how"}});
    for dialect in [Dialect::OpenAi, Dialect::Gemini, Dialect::Anthropic] {
        let expected = json!({"how": {"type": "string", "enum": ["a", "b"], "description": "how"}});
        assert_eq!(properties(dialect, schema.clone()), expected);
    }
    let strict = json!({"how": {"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}], "description": "how"}});
    assert_eq!(properties(Dialect::OpenAiStrict, schema), strict);
}

/// Rules of Anthropic: unions of whole records are folded into one, whose branches are checked when it is called.
#[test]
fn unions_at_the_top_become_one_record() {
    let shapes = [
        json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        json!({"type": "object", "anyOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
        ]}),
        json!({"oneOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
        ]}),
        json!({"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "string"}}}]}),
    ];
    for schema in shapes {
        for dialect in [Dialect::OpenAi, Dialect::Gemini, Dialect::Anthropic] {
            let written = adapted(dialect, &schema);
            let expected =
                json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
            assert_eq!(written, expected, "{schema}");
        }
    }
}

#[test]
fn what_cannot_be_sent_is_refused_by_itself() {
    for schema in [
        json!({"type": "string"}),
        json!({"type": "array", "items": {}}),
        json!({"anyOf": [{"type": "string"}, {"type": "object"}]}),
    ] {
        assert_eq!(Dialect::OpenAi.adapt_schema(&schema), Err(SchemaError::NotObject), "{schema}");
    }
    let foreign = json!({"type": "object", "properties": {"a": {"$ref": "https://example.org/a"}}});
    assert_eq!(Dialect::Gemini.adapt_schema(&foreign), Err(SchemaError::Expand(ExpandError::Reference)));
    let named = |required: &[&str]| json!({"type": "object", "properties": {"$filter": {"type": "string"}, "a": {"type": "string"}}, "required": required});
    assert_eq!(
        Dialect::Anthropic.adapt_schema(&named(&["$filter"])),
        Err(SchemaError::Name("$filter".to_owned()))
    );
    let kept = adapted(Dialect::Anthropic, &named(&["a"]));
    assert_eq!(kept["properties"], json!({"a": {"type": "string"}}), "what may be left out is");
    for nothing in
        [json!({}), json!({"type": "object"}), json!({"type": "object", "properties": {}, "required": []})]
    {
        assert_eq!(Dialect::Gemini.adapt_schema(&nothing), Ok(None), "{nothing}");
        let empty = json!({"type": "object", "properties": {}});
        assert_eq!(Dialect::OpenAi.adapt_schema(&nothing), Ok(Some(empty)), "{nothing}");
    }
}
