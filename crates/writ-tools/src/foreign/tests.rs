use proptest::prelude::*;
use serde_json::json;
use writ_inspect::prepared::Prepared;
use writ_types::chat::ToolCall;
use writ_types::schema::ExpandError;
use writ_types::taint::Label;

use super::*;
use crate::config::ToolTimeouts;
use crate::def::AgentRole;
use crate::registry::AllowList;
use crate::source::tests::offering;

pub(crate) fn known(tool: &str, schema: Value) -> ForeignTool {
    ForeignTool {
        server: "crm".into(),
        tool: tool.into(),
        host: None,
        description: "Sends a letter.".into(),
        schema,
        pin: Digest::of_bytes(b"pin"),
        effect: true,
        sinks: None,
        content: Vec::new(),
        free: Vec::new(),
        whom: Vec::new(),
        named: Vec::new(),
        takes: BTreeMap::new(),
        public: false,
        idempotent: false,
        risk: Risk::High,
        taint: Taint::External,
        quarantine: Quarantine::Never,
    }
}

fn letter() -> Value {
    json!({
        "type": "object",
        "properties": {
            "to": {"type": "array", "items": {"$ref": "#/$defs/address"}},
            "text": {"type": "string", "maxLength": 20},
            "copies": {"type": "integer", "minimum": 1},
            "urgent": {"type": "boolean"},
        },
        "required": ["to"],
        "additionalProperties": false,
        "$defs": {"address": {"type": "object", "properties": {"mail": {"type": "string", "pattern": "^[a-z]+@"}}}},
    })
}

fn row(change: impl FnOnce(&mut ForeignTool)) -> ForeignRow {
    let mut known = known("send", letter());
    change(&mut known);
    ForeignRow::from_tool(known).expect("usable")
}

fn prepared(row: &ForeignRow, arguments: Value) -> Result<Prepared, ToolError> {
    let (label, config) = (Label::new(Taint::Owner), ToolTimeouts::default());
    let context = ToolContext {
        agent: "main",
        session: None,
        turn: None,
        turn_number: 1,
        label: &label,
        config: &config,
        search: None,
    };
    let registry = offering([row.clone()]);
    let toolset = registry.toolset_of(&[AgentRole::Executor], &AllowList::All);
    let call = ToolCall { id: "c".into(), name: row.name.clone(), arguments };
    assert_eq!(toolset.needed_file(&call)?, None);
    toolset.prepare_call(&call, None, &context)
}

fn told(sinks: &[Sink]) -> Vec<(&str, &str)> {
    sinks.iter().map(|sink| (sink.argument.as_str(), sink.value.as_str())).collect()
}

#[test]
fn a_call_becomes_an_action_with_the_owners_word_and_the_pin() {
    let arguments = json!({"to": [{"mail": "ann@x"}], "text": "hi", "copies": 2, "urgent": true});
    let request = prepared(&row(|_| {}), arguments.clone()).expect("fits");
    let Action::CallTool(call) = &request.action else { panic!("{request:?}") };
    assert_eq!((call.server.as_str(), call.tool.as_str(), &call.arguments), ("crm", "send", &arguments));
    assert_eq!((call.effect, call.declared, call.risk), (true, false, Risk::High));
    assert_eq!((request.tool.as_str(), request.idempotent), ("crm__send", false));
    assert_eq!(request.bindings, [("pin".to_owned(), Digest::of_bytes(b"pin"))].into());
    assert_eq!(
        told(&request.sinks),
        [("to.0.mail", "ann@x"), ("text", "hi"), ("copies", "2")],
        "undeclared: all"
    );
}

#[test]
fn what_is_neither_content_nor_free_is_a_sink() {
    let arguments = json!({"to": [{"mail": "ann@x"}, {"mail": "bob@x"}], "text": "hi", "copies": 2});
    let sinks = |paths: &[&str], content: &str, free: &[&str]| {
        let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
        let row = row(|known| {
            (known.sinks, known.content, known.free) = (Some(owned(paths)), owned(&[content]), owned(free));
        });
        let request = prepared(&row, arguments.clone()).expect("fits");
        assert!(matches!(&request.action, Action::CallTool(call) if call.declared));
        told(&request.sinks).iter().map(|(at, value)| format!("{at}={value}")).collect::<Vec<_>>()
    };
    let both = ["to.0.mail=ann@x", "to.1.mail=bob@x"];
    assert_eq!(sinks(&["to.mail"], "text", &["copies"]), both);
    assert_eq!(sinks(&["to"], "text", &["copies"]), both);
    assert_eq!(
        sinks(&["to", "text"], "text", &["copies"]),
        [both[0], both[1], "text=hi"],
        "a sink stays one"
    );
    assert_eq!(sinks(&["to"], "text", &[]), [both[0], both[1], "copies=2"], "nobody has spoken of it");
    assert!(sinks(&[], "text", &[]).is_empty(), "the owner has said that there is none");
    for path in ["cc", "nothing.deeper"] {
        let mut known = known("send", letter());
        known.sinks = Some(vec![path.to_owned()]);
        assert!(matches!(ForeignRow::from_tool(known), Err(ForeignError::Declared { .. })), "{path}");
    }
    let then = json!({"type": "object", "properties": {"then": {"type": "string"}}});
    assert!(matches!(ForeignRow::from_tool(known("send", then)), Err(ForeignError::Then(_))));
}

/// Undeclared, whatever can carry something is a sink.
#[test]
fn names_that_the_schema_does_not_have_and_lists_of_truth_values_are_sinks() {
    let open = json!({"type": "object", "properties": {"q": {}, "deep": {"properties": {"a": {}}}}});
    let row = ForeignRow::from_tool(known("look", open)).expect("usable");
    let arguments = json!({"q": true, "deep": {"a": 1, "secret": null}, "x": [true, null]});
    let request = prepared(&row, arguments).expect("fits");
    let found = told(&request.sinks);
    assert_eq!(
        found,
        [("deep.a", "1"), ("deep.secret", "secret"), ("x", "x"), ("x.0", "true"), ("x.1", "null")]
    );
}

#[test]
fn arguments_that_do_not_fit_are_told_by_place_and_without_the_servers_words() {
    let row = row(|_| {});
    let told = |arguments: Value| match prepared(&row, arguments) {
        Err(ToolError::Foreign { tool, problems }) if tool == "crm__send" => problems.join("; "),
        other => panic!("{other:?}"),
    };
    assert_eq!(told(json!({"to": [], "copies": "2"})), "'/copies' must be of type integer");
    assert_eq!(told(json!({})), "the arguments: 'to' is missing");
    assert_eq!(told(json!({"to": [], "cc": 1})), "the arguments: 'cc' is unknown");
    assert_eq!(told(json!({"to": [{"mail": "ANN"}]})), "'/to/0/mail' does not fit 'pattern' of the schema");
    assert_eq!(told(json!("nonsense")), "the arguments are not an object");
    assert_eq!(told(json!([1])), "the arguments are not an object");
    assert!(told(json!({"to": [], "text": "x".repeat(MAX_ARGUMENT_BYTES)})).contains("bytes"));
    assert!(prepared(&row, json!("{\"to\": []}")).is_ok(), "some providers send text");
}

/// Trees are common in schemas of documents and filters; zod and pydantic write them with references.
#[test]
fn a_tree_is_told_without_references_and_checked_as_deep_as_it_is_followed() {
    let node = json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "required": ["name"],
    });
    let schema =
        json!({"type": "object", "properties": {"root": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}});
    let row = ForeignRow::from_tool(known("send", schema)).expect("usable");
    assert!(!row.spec(&row.name).schema.to_string().contains("$"), "{}", row.spec(&row.name).schema);
    assert!(
        row.checked_arguments(&json!({"root": {"name": "a", "children": [{"name": "b", "children": []}]}}))
            .is_ok()
    );
    assert!(row.checked_arguments(&json!({"root": {"name": "a", "children": [{"name": 5}]}})).is_err());
    let sinks = row.find_sinks(&json!({"root": {"name": "a", "children": [{"name": "b"}]}}));
    assert_eq!(told(&sinks), [("root.name", "a"), ("root.children.0.name", "b")]);
}

/// Threat 23, as far as a schema can carry an attack: on our time, our memory, or the network.
#[test]
fn schemas_that_are_traps_are_refused() {
    let doubling: serde_json::Map<String, Value> = (0..64)
        .map(|n| {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            (format!("d{n}"), json!({"allOf": [next, next]}))
        })
        .chain([("d64".to_owned(), json!({}))])
        .collect();
    let traps = [
        (json!({"$ref": "#"}), ForeignSchemaError::Expand(ExpandError::Circle)),
        (
            json!({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}}),
            ForeignSchemaError::Expand(ExpandError::Circle),
        ),
        (json!({"$ref": "#/$defs/d0", "$defs": doubling}), ForeignSchemaError::Expand(ExpandError::TooLarge)),
        (json!({"$ref": "https://evil.example/schema"}), ForeignSchemaError::Expand(ExpandError::Reference)),
        (json!({"$ref": "file:///etc/passwd"}), ForeignSchemaError::Expand(ExpandError::Reference)),
        (json!({"$ref": "#missing"}), ForeignSchemaError::Expand(ExpandError::Reference)),
        (
            json!({"$id": "https://evil.example/", "$ref": "other"}),
            ForeignSchemaError::Expand(ExpandError::Reference),
        ),
        (json!({"$dynamicRef": "#x"}), ForeignSchemaError::Expand(ExpandError::Reference)),
        (json!({"type": "elephant"}), ForeignSchemaError::NotObject),
        (json!({"type": ["string", "null"]}), ForeignSchemaError::NotObject),
        (json!({"properties": {"a": {"type": "elephant"}}}), ForeignSchemaError::Invalid),
        (json!({"properties": {"a": {"pattern": "(?=a)*+"}}}), ForeignSchemaError::Invalid),
        (json!({"properties": {"a": {"pattern": "(((a{1000}){1000}){1000})"}}}), ForeignSchemaError::Invalid),
        (json!({"$schema": "https://evil.example/meta"}), ForeignSchemaError::Invalid),
    ];
    for (schema, expected) in traps {
        let refused = ForeignRow::from_tool(known("send", schema.clone())).expect_err("a trap");
        let expected = ForeignError::Schema { name: "crm__send".into(), why: expected };
        assert_eq!(refused, expected, "{schema:.200}");
    }
    let evil = json!({"properties": {"a": {"pattern": "^(a+)+$"}}});
    let slow = ForeignRow::from_tool(known("send", evil)).expect("linear here");
    assert!(
        slow.checked_arguments(&json!({"a": format!("{}!", "a".repeat(50_000))})).is_err(),
        "and at once"
    );
}

/// Two tools whose names become equal in the form that models are given stay apart.
#[test]
fn two_tools_that_would_be_called_the_same_are_both_found_by_their_calls() {
    let long = "x".repeat(80);
    let rows =
        ["a.b", "a_b", "c", &long].map(|tool| ForeignRow::from_tool(known(tool, json!({}))).expect("usable"));
    let registry = offering(rows);
    let toolset = registry.toolset_of(&[AgentRole::Executor], &AllowList::All);
    let called: Vec<_> = toolset
        .specs()
        .iter()
        .filter_map(|spec| registry.find_tool(&spec.name).filter(|tool| tool.origin().is_some()))
        .map(|tool| tool.name().to_owned())
        .collect();
    assert_eq!(
        called.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        BTreeSet::from(["a.b", "a_b", "c", &long])
    );
    assert!(toolset.specs().iter().all(|spec| spec.name.len() <= MAX_CALLED_NAME));
    assert_eq!(registry.find_tool("crm__a_b").map(Tool::name), Some("a_b"));
}

#[test]
fn models_are_told_whose_words_they_read_within_a_bound() {
    let tool = row(|known| known.description = "y".repeat(3 * MAX_TOLD_CHARS));
    let spec = tool.spec(&tool.name);
    assert!(spec.description.starts_with("[A tool of the server 'crm'; these are its words] yyy"));
    assert!(spec.description.len() < MAX_TOLD_CHARS + 120, "{}", spec.description.len());
    let big = json!({"description": "z".repeat(MAX_TOLD_BYTES / 3)});
    let rows =
        ["a", "b", "c", "d"].map(|name| ForeignRow::from_tool(known(name, big.clone())).expect("usable"));
    let registry = offering(rows);
    assert_eq!(registry.without_room(&AllowList::All), ["crm__c", "crm__d"]);
    let specs = registry.toolset_of(&[AgentRole::Executor], &AllowList::All).specs();
    let names: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert!(names.contains(&"crm__b") && !names.contains(&"crm__c"));
    assert!(names.is_sorted(), "{names:?}");
    let last = AllowList::Only(["crm__d".to_owned()].into());
    let specs = registry.toolset_of(&[AgentRole::Executor], &last).specs();
    assert_eq!(
        specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(),
        ["crm__d"],
        "what is not allowed takes no room"
    );
    assert!(registry.without_room(&last).is_empty());
}

/// Servers of others leave out the type, or the whole schema.
#[test]
fn a_schema_that_says_nothing_is_told_as_one_of_an_object() {
    for schema in
        [json!({}), json!({"$schema": "http://json-schema.org/draft-07/schema#"}), json!({"properties": {}})]
    {
        let row = ForeignRow::from_tool(known("send", schema)).expect("usable");
        assert_eq!(
            (&row.spec(&row.name).schema["type"], row.spec(&row.name).schema["properties"].is_object()),
            (&json!("object"), true)
        );
        assert_eq!(row.checked_arguments(&json!({"a": 1})), Ok(json!({"a": 1})));
    }
}

#[test]
fn an_allow_list_holds_for_foreign_tools_too() {
    let registry = offering([row(|_| {})]);
    let only =
        registry.allow_list(&["file_read".to_owned()], crate::registry::EmptyMeans::All).expect("known");
    let toolset = registry.toolset_of(&[AgentRole::Executor], &only);
    let call = ToolCall { id: "c".into(), name: "crm__send".into(), arguments: json!({"to": []}) };
    assert!(matches!(toolset.needed_file(&call), Err(ToolError::NotOffered { .. })));
    let named = ["crm__send".to_owned()];
    let named = registry.allow_list(&named, crate::registry::EmptyMeans::All).expect("known");
    assert_eq!(registry.toolset_of(&[AgentRole::Executor], &named).needed_file(&call), Ok(None));
    assert_eq!(registry.toolset_of(&[AgentRole::Verification], &named).names().count(), 0);
}

proptest! {
    /// Undeclared, every text and number of the arguments is a sink.
    #[test]
    fn no_leaf_is_forgotten(texts in proptest::collection::vec("[a-z]{1,5}", 1..10), numbers in proptest::collection::vec(0..1000_i64, 1..10)) {
        let arguments = json!({"a": {"b": [texts, {"c": numbers}]}, "d": null, "e": true});
        let properties = json!({"a": {}, "b": {}, "c": {}, "d": {}, "e": {}});
        let row = ForeignRow::from_tool(known("look", json!({"type": "object", "properties": properties}))).expect("usable");
        let found = row.find_sinks(&arguments);
        prop_assert_eq!(found.len(), texts.len() + numbers.len());
        for text in texts.into_iter().chain(numbers.iter().map(ToString::to_string)) {
            prop_assert!(found.iter().any(|sink| sink.value == text));
        }
    }
}

/// Who gets it and what is taken from where go with the action; of a tool that it does not have an argument for, nothing is said.
#[test]
fn the_owners_word_about_who_gets_it_goes_with_the_call() {
    let declared = |whom: &str, takes: &str| {
        ForeignRow::from_tool(ForeignTool {
            sinks: Some(vec!["to".into()]),
            free: vec!["text".into(), "copies".into()],
            whom: vec![whom.into()],
            takes: BTreeMap::from([(takes.into(), vec!["from".into()])]),
            ..known("send", letter())
        })
    };
    let row = declared("to", "to").expect("usable");
    let request = prepared(&row, json!({"to": [{"mail": "ann@"}]})).expect("fits");
    let Action::CallTool(call) = &request.action else { panic!("a call") };
    assert!(call.sends, "whoever gets something is sent it");
    assert_eq!((&call.whom, &call.takes["to"]), (&vec!["to".to_owned()], &vec!["from".to_owned()]));
    for (whom, takes) in [("bcc", "to"), ("to", "bcc")] {
        assert!(matches!(declared(whom, takes), Err(ForeignError::Declared { path, .. }) if path == "bcc"));
    }
}
