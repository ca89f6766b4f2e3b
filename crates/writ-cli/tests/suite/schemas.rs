//! The schemas of all tools of our own against the rules of every provider.

use std::collections::BTreeMap;

use writ_models::schema::Dialect;
use writ_testkit::schema_rules::{Rules, broken, broken_name};
use writ_tools::def::AgentRole;
use writ_tools::registry::{AllowList, Registry};
use writ_types::quarantine::Quarantine;

/// Every tool there is is sent to every provider, in words that it takes.
#[test]
fn every_provider_takes_the_schema_of_every_tool_of_our_own() {
    let kept = BTreeMap::from([("web_fetch".to_owned(), Quarantine::External)]);
    let registry = Registry::core().with_search().with_quarantine(kept);
    let specs = registry.toolset_of(&AgentRole::ALL, &AllowList::All).specs();
    assert_eq!(specs.len(), registry.tools().count(), "all of them");
    assert!(specs.len() >= 17, "{}", specs.len());
    for dialect in Dialect::ALL {
        let rules = match dialect {
            Dialect::OpenAi => Rules::OpenAi,
            Dialect::OpenAiStrict => Rules::OpenAiStrict,
            Dialect::Gemini => Rules::Gemini,
            Dialect::Anthropic => Rules::Anthropic,
        };
        for tool in specs.iter() {
            let written = dialect.adapt(&tool.schema).expect("it can be sent").expect("it has arguments");
            assert_eq!(broken(rules, &written), [""; 0], "{dialect:?} {}: {written:#}", tool.name);
            assert_eq!(broken_name(rules, &tool.name), None);
            let names = |schema: &serde_json::Value| -> Vec<String> {
                schema["properties"].as_object().expect("properties").keys().cloned().collect()
            };
            assert_eq!(names(&written), names(&tool.schema), "{dialect:?}: no argument is left out");
        }
    }
}
