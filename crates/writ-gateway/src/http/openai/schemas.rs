//! Schemas of the interface that many programs speak. Its bodies are read field by field, so they are written by hand.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// Declares types that only have a schema.
macro_rules! schemas {
    ($($(#[doc = $doc:literal])+ $name:ident = $schema:tt;)+) => {
        $(
            $(#[doc = $doc])+
            pub(in crate::http) struct $name;

            impl JsonSchema for $name {
                fn schema_name() -> Cow<'static, str> {
                    stringify!($name).into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!($schema)
                }
            }
        )+
    };
}

schemas! {
    /// The body of `POST /v1/chat/completions`. Further fields are those of the interface; some are refused by name.
    ChatCompletion = {
        "type": "object",
        "properties": {
            "model": { "type": "string" }, "messages": { "type": "array" }, "stream": { "type": "boolean" },
            "user": { "type": "string" }, "stream_options": { "type": ["object", "null"] },
            "stop": { "type": ["string", "array", "null"] },
            "max_completion_tokens": { "type": ["integer", "null"] },
        },
        "required": ["model", "messages"],
        "additionalProperties": true,
    };
    /// The body of `POST /v1/responses`. Further fields are those of the interface; some are refused by name.
    CreateResponse = {
        "type": "object",
        "properties": {
            "model": { "type": "string" }, "input": { "type": ["string", "array"] },
            "instructions": { "type": "string" }, "previous_response_id": { "type": "string" },
            "stream": { "type": "boolean" }, "user": { "type": "string" },
        },
        "required": ["model", "input"],
        "additionalProperties": true,
    };
    /// The answer of `POST /v1/chat/completions` without a stream.
    ChatAnswer = {
        "type": "object",
        "properties": {
            "id": { "type": "string" }, "object": { "const": "chat.completion" },
            "created": { "type": "integer" }, "model": { "type": "string" },
            "choices": { "type": "array", "items": { "type": "object" } }, "usage": { "type": "object" },
        },
        "required": ["id", "object", "created", "model", "choices", "usage"],
    };
    /// The answer of `POST /v1/responses` without a stream.
    ModelResponse = {
        "type": "object",
        "properties": {
            "id": { "type": "string" }, "object": { "const": "response" }, "model": { "type": "string" },
            "output": { "type": "array", "items": { "type": "object" } },
        },
        "required": ["id", "object", "model", "output"],
    };
    /// The agent under one of its names as a model.
    AgentModel = {
        "type": "object",
        "properties": {
            "id": { "type": "string" }, "object": { "const": "model" }, "created": { "type": "integer" },
            "owned_by": { "type": "string" },
        },
        "required": ["id", "object", "created", "owned_by"],
    };
    /// The agent under all of its names as models.
    AgentModels = {
        "type": "object",
        "properties": {
            "object": { "const": "list" },
            "data": { "type": "array", "items": { "type": "object", "required": ["id", "object"] } },
        },
        "required": ["object", "data"],
    };
}
