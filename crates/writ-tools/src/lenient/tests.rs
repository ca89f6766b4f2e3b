use serde_json::json;

use super::*;
use crate::def::AgentRole;
use crate::foreign::tests::known;
use crate::foreign::{ForeignRow, ForeignTool};
use crate::registry::{AllowList, Registry};
use crate::source::tests::offering;

/// Our tools, and one of another program.
fn registry(schema: Value) -> Registry {
    let row = ForeignRow::from_tool(ForeignTool { ..known("send", schema) }).expect("usable");
    offering([row])
}

/// A call as it is understood where all tools are offered.
fn understood(registry: &Registry, name: &str, arguments: Value) -> (String, Value) {
    let toolset = registry.toolset_of(&[AgentRole::Executor], &AllowList::All);
    let offered: Vec<&str> = toolset.names().collect();
    let mut call = ToolCall { id: "c".into(), name: name.into(), arguments };
    toolset.understand_call(&mut call, &offered, Some("/home/ann/notes"));
    (call.name, call.arguments)
}

/// Names as gpt-oss, Kimi, Gemini and small local models write them.
#[test]
fn a_name_that_means_one_tool_is_that_tool() {
    let registry = registry(json!({"type": "object"}));
    let name = |name: &str| understood(&registry, name, json!({})).0;
    for written in [
        "file_read",
        " file_read ",
        "`file_read`",
        "\"file_read\"",
        "file_read()",
        "functions.file_read",
        "functions.file_read:0",
        "default_api.file_read",
        "tool.file_read",
        "tools/file_read",
        "Functions.File_Read",
        "file-read",
        "File Read",
        "file.read",
        "file_read<|channel|>commentary",
        "functions.tools.file_read",
        "FILE_READ",
        "functions.file_readjson",
        "file_read json",
    ] {
        assert_eq!(name(written), "file_read", "{written}");
    }
    assert_eq!(name("functions.crm__send"), "crm__send");
    // Nothing is guessed: another tool's name is never made of a wrong one.
    for wrong in [
        "file_reed",
        "read",
        "send",
        "toolbox.web.answer",
        "rm -rf /",
        "",
        "functions.",
        "fileread2",
        "filesystem.file_read",
    ] {
        assert_eq!(name(wrong), wrong, "{wrong}");
    }
}

#[test]
fn a_call_that_fits_is_never_touched() {
    let registry =
        registry(json!({"type": "object", "properties": {"input": {"type": "string"}, "note": {}}}));
    for (name, arguments) in [
        ("file_write", json!({"path": "a", "content": "{\"a\": 1}"})),
        ("file_read", json!({"path": "5", "first_line": null})),
        ("crm__send", json!({"input": "{\"note\": \"5\"}", "note": "5"})),
        ("crm__send", json!({"note": {"arguments": {}}, "then": ["file_read"]})),
    ] {
        assert_eq!(understood(&registry, name, arguments.clone()), (name.to_owned(), arguments));
    }
}

#[test]
fn arguments_that_can_mean_one_thing_are_taken() {
    let registry = registry(json!({"type": "object"}));
    let read = json!({"path": "a", "first_line": 3});
    for written in [
        json!(read.to_string()),
        json!(json!(read.to_string()).to_string()),
        json!(format!("```json\n{read}\n```")),
        json!(r#"{"path": "a", "first_line": 3,} // the third"#),
        json!({"arguments": read}),
        json!({"input": read.to_string()}),
        json!({"name": "file_read", "arguments": read}),
        json!({"path": "a", "first_line": "3"}),
        json!({"path": "a", "first_line": 3.0}),
        json!({"path": "a", "firstLine": " 3 ", "lines": null}),
        json!({" Path": "a", "FIRST_LINE": 3}),
    ] {
        assert_eq!(understood(&registry, "file_read", written.clone()).1, read, "{written}");
    }
    let write =
        |content: Value| understood(&registry, "file_write", json!({"path": "a.json", "content": content})).1;
    assert_eq!(write(json!({"a": [1, "x"]}))["content"], r#"{"a":[1,"x"]}"#, "an object in place of a text");
    assert_eq!(write(json!(5))["content"], "5");
    let exec = |argv: Value| understood(&registry, "shell_exec", json!({"argv": argv})).1;
    assert_eq!(exec(json!(r#"["ls", "-l"]"#)), json!({"argv": ["ls", "-l"]}));
    assert_eq!(exec(json!(["sleep", 5])), json!({"argv": ["sleep", "5"]}));
    let patch = json!({"path": "a", "old": "b", "new": "c", "all": "True"});
    assert_eq!(understood(&registry, "file_patch", patch).1["all"], true);
    // Gemini has no word for an object without properties, and is told of a text.
    let step = json!({"tool": "file_read", "arguments": {"path": "a"}});
    let plan = json!({"title": "read", "steps": [step.to_string()]});
    assert_eq!(understood(&registry, "plan_propose", plan).1["steps"], json!([step]));
    let kind = understood(&registry, "memory_store", json!({"text": "t", "kind": "Fact"})).1;
    assert_eq!(kind["kind"], "fact");
}

#[test]
fn what_is_not_clear_stays_as_it_is_and_is_refused_by_its_name() {
    let registry = registry(json!({"type": "object"}));
    let toolset = registry.toolset_of(&[AgentRole::Executor], &AllowList::All);
    for (name, arguments, expected) in [
        ("file_read", json!({"path": "a", "lines": "many"}), "'lines' must be of type integer, not string"),
        ("file_read", json!({"path": ["a"]}), "'path' must be of type string, not array"),
        ("file_read", json!({"path": "a", "lines": "1.5"}), "'lines' must be of type integer, not string"),
        ("file_read", json!({"file": "a"}), "unknown argument 'file'"),
        ("file_read", json!({"path": "a", "Path": "b"}), "unknown argument 'Path'"),
        (
            "file_patch",
            json!({"path": "a", "old": "b", "new": "c", "all": "1"}),
            "'all' must be of type boolean",
        ),
        ("shell_exec", json!({"argv": "ls -l"}), "'argv' must be of type array, not string"),
        (
            "file_read",
            json!({"arguments": {"path": "a"}, "input": {"path": "b"}}),
            "unknown argument 'arguments'",
        ),
    ] {
        let (_, written) = understood(&registry, name, arguments.clone());
        let call = ToolCall { id: "c".into(), name: name.into(), arguments: written };
        let refused = toolset.needed_file(&call).expect_err("refused").model_message();
        assert!(refused.contains(expected), "{arguments}: {refused}");
    }
    for unclear in [json!("read a"), json!([{"path": "a"}]), json!(5), json!("{'path': 'a'}")] {
        assert_eq!(understood(&registry, "file_read", unclear.clone()).1, unclear);
    }
    let wrong = ToolCall { id: "c".into(), name: "file_reed".into(), arguments: json!({}) };
    let refused = toolset.needed_file(&wrong).expect_err("refused").model_message();
    assert!(refused.contains("did you mean 'file_read'?"), "{refused}");
}

/// Validation is against the schema that the server gave.
#[test]
fn arguments_of_a_foreign_tool_are_fitted_to_its_own_schema() {
    let registry = registry(json!({
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "parent": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "filter": {"type": "object", "properties": {"deep": {"type": "boolean"}}, "additionalProperties": false},
            "either": {"type": ["string", "integer"]},
        },
        "required": ["id", "parent"],
        "additionalProperties": false,
    }));
    let expected = json!({"id": 7, "tags": ["a"], "filter": {"deep": true}, "parent": null});
    let written = json!({"id": "7", "tags": "[\"a\"]", "filter": "{\"deep\": \"true\"}"});
    assert_eq!(understood(&registry, "crm__send", written).1, expected);
    let either = json!({"id": 7, "parent": "p", "either": "5"});
    assert_eq!(understood(&registry, "crm__send", either.clone()).1, either, "both are right");
    let wrong = json!({"id": "seven", "parent": "p"});
    assert_eq!(understood(&registry, "crm__send", wrong.clone()).1, wrong);
}

/// Programs print the project's own path, and models then name files by it.
#[test]
fn a_path_below_the_project_is_one_of_the_work_folder() {
    let registry = registry(json!({"type": "object", "properties": {"path": {"type": "string"}}}));
    for (written, meant) in [
        ("/home/ann/notes/a/b.md", "a/b.md"),
        ("/home/ann/notes", "."),
        ("/home/ann/notes//a", "a"),
        ("/home/ann/notes2/a", "/home/ann/notes2/a"),
        ("/home/ann", "/home/ann"),
        ("a/home/ann/notes", "a/home/ann/notes"),
        ("/home/ann/notes/../other", "../other"),
    ] {
        let path = understood(&registry, "file_read", json!({ "path": written })).1;
        assert_eq!(path, json!({ "path": meant }), "{written}");
    }
    let foreign = json!({"path": "/home/ann/notes/a"});
    assert_eq!(
        understood(&registry, "crm__send", foreign.clone()).1,
        foreign,
        "what a server knows is its own"
    );
    let written = json!({"path": "a", "content": "/home/ann/notes/a"});
    assert_eq!(understood(&registry, "file_write", written.clone()).1, written, "a text is no path");
}
