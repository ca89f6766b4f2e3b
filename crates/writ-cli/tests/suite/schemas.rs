//! The schemas of all tools of our own against the rules of every provider; and calls as local models write them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use writ_models::schema::Dialect;
use writ_testbed::schema_rules::{ProviderRules, broken_name, broken_rules};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_tools::def::AgentRole;
use writ_tools::registry::{AllowList, Registry};
use writ_types::quarantine::Quarantine;

use super::turns::Bench;
use super::{code, text};

/// Every tool there is is sent to every provider, in words that it takes.
#[test]
fn every_provider_takes_the_schema_of_every_tool_of_our_own() {
    let kept = BTreeMap::from([("web_fetch".to_owned(), Quarantine::External)]);
    let registry = Registry::core_tools().with_search().with_quarantine(kept);
    let specs = registry.toolset_of(&AgentRole::ALL, &AllowList::All).specs();
    assert_eq!(specs.len(), registry.tools().count(), "all of them");
    assert!(specs.len() >= 17, "{}", specs.len());
    for dialect in Dialect::ALL {
        let rules = match dialect {
            Dialect::OpenAi => ProviderRules::OpenAi,
            Dialect::OpenAiStrict => ProviderRules::OpenAiStrict,
            Dialect::Gemini => ProviderRules::Gemini,
            Dialect::Anthropic => ProviderRules::Anthropic,
        };
        for tool in specs.iter() {
            let written =
                dialect.adapt_schema(&tool.schema).expect("it can be sent").expect("it has arguments");
            assert_eq!(broken_rules(rules, &written), [""; 0], "{dialect:?} {}: {written:#}", tool.name);
            assert_eq!(broken_name(rules, &tool.name), None);
            let names = |schema: &serde_json::Value| -> Vec<String> {
                schema["properties"].as_object().expect("properties").keys().cloned().collect()
            };
            assert_eq!(names(&written), names(&tool.schema), "{dialect:?}: no argument is left out");
        }
    }
}

/// A call with a prefix, in a wrapper, encoded twice, with an object for a text, is done as what it means; the ledger has
/// what was done. What is not clear is refused in words from which the model can mend it.
#[test]
fn needs_userns_calls_as_local_models_write_them_are_done_or_refused_by_name() {
    for kind in ["openai", "ollama", "gemini"] {
        let written = json!({"path": "a.json", "content": {"x": 1}});
        let steps = [
            ("functions.File_Write:0", json!({"arguments": written.to_string()})),
            ("default_api.file_read", json!({"path": "a.json", "lines": "5", "first_line": null})),
            ("file_reed", json!({"path": "a.json"})),
            ("file_read", json!({"path": "a.json", "lines": "many"})),
        ];
        let script = move |request: &ParsedRequest| match steps.get(request.results().count()) {
            Some((name, arguments)) => Reply::call(name, arguments.clone()),
            None => Reply::text("done"),
        };
        let bench = Bench::new(kind, script);
        let done = bench.chat("write it", &["--new"]);
        assert_eq!(code(&done), 5, "its change waits: {kind}: {}", text(&done));
        assert!(text(&done).contains("+{\"x\":1}"), "{kind}: {}", text(&done));
        let requests = bench.server.recorded_requests();
        let told = requests.last().expect("a request").body.to_string();
        for expected in
            ["created a.json", "Did you mean 'file_read'?", "'lines' must be of type integer, not string"]
        {
            assert!(told.contains(expected), "{kind}: {expected}: {told}");
        }
        let intents = bench.events("intent");
        let of = |kind: &str| -> Vec<&Value> {
            intents
                .iter()
                .map(|row| &row["payload"]["action"])
                .filter(|action| action["kind"] == kind)
                .collect()
        };
        assert_eq!((of("write_file").len(), of("read_file").len()), (1, 1), "{kind}: {intents:?}");
    }
}
