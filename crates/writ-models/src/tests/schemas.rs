//! Schemas of tools as they are sent to providers, in every format.

use serde_json::{Value, json};
use writ_testbed::schema_rules::{ProviderRules, broken_name, broken_rules};
use writ_testkit::model_server::{Reply, list_of_replies};
use writ_types::chat::ToolSpec;

use super::bench::{ALL, Bench, request, user};
use crate::config::ProviderKind;

const fn rules(kind: ProviderKind) -> ProviderRules {
    match kind {
        ProviderKind::Anthropic => ProviderRules::Anthropic,
        ProviderKind::Gemini => ProviderRules::Gemini,
        ProviderKind::OpenAi
        | ProviderKind::OpenAiResponses
        | ProviderKind::OpenRouter
        | ProviderKind::Ollama => ProviderRules::OpenAi,
    }
}

/// Returns the names and schemas of the tools in a request's body.
fn sent(kind: ProviderKind, body: &Value) -> Vec<(String, Value)> {
    let tools = &body["tools"];
    let tools = if kind == ProviderKind::Gemini { &tools[0]["functionDeclarations"] } else { tools };
    let one = |tool: &Value| {
        let tool = tool.get("function").unwrap_or(tool);
        let schema =
            ["parameters", "parametersJsonSchema", "input_schema"].iter().find_map(|name| tool.get(*name));
        (tool["name"].as_str().expect("a name").to_owned(), schema.cloned().unwrap_or_default())
    };
    tools.as_array().expect("tools").iter().map(one).collect()
}

/// A tool that a provider would refuse is left out; the request is sent with the other tools.
///
/// The rules are those of OpenAI, Moonshot, Gemini and Anthropic, from their documents and from public reports.
#[tokio::test]
async fn tools_are_sent_in_the_dialect_of_each_provider_or_left_out_one_by_one() {
    let tool = |name: &str, schema: Value| ToolSpec { name: name.into(), description: "does".into(), schema };
    let how = json!({"type": "string", "enum": ["a", "b", null]});
    let tools = || {
        vec![
            tool("fine", json!({"type": "object", "properties": {"how": how}, "required": ["how"]})),
            tool("untyped", json!({})),
            tool(
                "union",
                json!({"type": "object", "anyOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {}}}]}),
            ),
            tool(
                "tree",
                json!({"type": "object", "properties": {"of": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}}),
            ),
            tool("text", json!({"type": "string"})),
            tool(
                "foreign",
                json!({"type": "object", "properties": {"a": {"$ref": "https://example.org/a"}}}),
            ),
            tool(
                "a.b",
                json!({"type": "object", "properties": {"a": {"type": ["string", "null"], "format": "uri"}}}),
            ),
            tool("a b", json!({"type": "object"})),
        ]
    };
    for kind in ALL {
        let bench = Bench::new(kind, list_of_replies([Reply::text("ok")])).await;
        let mut asked = request(vec![user("hi")]);
        asked.tools = tools().into();
        bench.ask(asked).await.0.expect("an answer");
        let tools = sent(kind, &bench.server.recorded_requests()[0].body);
        let names: Vec<&str> = tools.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["fine", "untyped", "union", "tree", "a_b"], "{kind:?}");
        for (name, schema) in &tools {
            assert_eq!(broken_name(rules(kind), name), None);
            // For a tool without arguments Gemini gets no schema at all.
            if !(kind == ProviderKind::Gemini && name == "untyped" && schema.is_null()) {
                assert_eq!(broken_rules(rules(kind), schema), [""; 0], "{kind:?} {name}: {schema:#}");
            }
        }
    }
}
