//! Tests of every tool through the set that an agent is offered.

use proptest::prelude::*;
use serde_json::{Value, json};
use writ_types::action::{
    Action, ActionKind, ChangeKind, Exec, ExecProfile, MemoryTrust, Place, ReadMode, Subscribe,
};
use writ_types::digest::Digest;
use writ_types::encoding::TextEncoding;
use writ_types::id::SessionId;
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use super::*;
use crate::config::ToolTimeouts;
use crate::error::MAX_MESSAGE_CHARS;

fn call(name: &str, arguments: Value) -> ToolCall {
    ToolCall { id: "call-1".into(), name: name.into(), arguments }
}

fn label() -> Label {
    let source = Source { origin: "file_read".into(), detail: "README.md".into(), entry: None };
    Label::from_source(Taint::External, source)
}

fn prepare_as(
    role: AgentRole,
    name: &str,
    arguments: Value,
    peeked: Option<&PathState>,
) -> Result<Prepared, ToolError> {
    let registry = Registry::core_tools();
    let label = label();
    let config = ToolTimeouts::default();
    let context = ToolContext {
        agent: "main",
        session: Some(SessionId::from_parts(Timestamp::from_millis(1), 1)),
        turn: None,
        turn_number: 3,
        label: &label,
        config: &config,
        search: None,
    };
    registry.toolset_of(&[role], &AllowList::All).prepare_call(&call(name, arguments), peeked, &context)
}

fn prepare(name: &str, arguments: Value) -> Result<Prepared, ToolError> {
    prepare_as(AgentRole::Executor, name, arguments, None)
}

fn refused(name: &str, arguments: Value) -> String {
    let error = prepare(name, arguments).expect_err("refused");
    let message = error.model_message();
    assert!(message.chars().count() <= MAX_MESSAGE_CHARS + 40, "{message}");
    message
}

fn exec(prepared: Prepared) -> Exec {
    let Action::Exec(exec) = prepared.action else { panic!("not a program: {prepared:?}") };
    exec
}

fn names(role: AgentRole) -> Vec<String> {
    Registry::core_tools().toolset_of(&[role], &AllowList::All).names().map(str::to_owned).collect()
}

/// Part of SIL-103, 104, 106, 107, 108, 109, 110, 111, 112: who has which tool.
///
/// Rows: SIL-111 (an executor by itself lacks it) SIL-106 (who has it)
#[test]
fn each_role_has_its_tools() {
    assert_eq!(
        names(AgentRole::Proxy),
        [
            "context_subscribe",
            "context_unsubscribe",
            "file_read",
            "memory_search",
            "memory_store",
            "plan",
            "result_read",
            "search",
            "web_fetch"
        ]
    );
    assert_eq!(names(AgentRole::Planner), ["file_read", "memory_search", "result_read", "search"]);
    assert_eq!(names(AgentRole::Verification), [""; 0]);
    let all: Vec<_> = Registry::core_tools().tools().map(|tool| tool.name().to_owned()).collect();
    let own = |name: &&String| name.starts_with("context_") || name.as_str() == "plan";
    assert_eq!(names(AgentRole::Executor), all.iter().filter(|name| !own(name)).cloned().collect::<Vec<_>>());
    let both = [AgentRole::Proxy, AgentRole::Executor];
    assert_eq!(Registry::core_tools().toolset_of(&both, &AllowList::All).names().collect::<Vec<_>>(), all);
    for (name, arguments) in [
        ("shell_exec", json!({"command": "true"})),
        ("file_write", json!({"path": "a", "content": ""})),
        ("tell_user", json!({"text": "hi"})),
    ] {
        let refused = prepare_as(AgentRole::Proxy, name, arguments, None).expect_err("refused");
        assert!(matches!(refused, ToolError::NotOffered { .. }), "{refused:?}");
    }
}

/// No shell is chosen, so none can be missing; that Windows is not supported is said in the known limitations.
///
/// Rows: SCL-174
#[test]
fn a_command_is_its_own_words_and_no_shell_is_assumed() {
    let program = exec(prepare("shell_exec", json!({"command": "cargo test --quiet"})).expect("prepared"));
    assert_eq!(program.argv, ["cargo", "test", "--quiet"]);
    let limits = include_str!("../../../../docs/known-limitations.md");
    assert!(limits.contains("Windows is not supported"), "stated");
}

/// Rows: SCL-102 (in part: which limit counts)
#[test]
fn a_time_limit_is_that_of_the_call_of_the_tool_or_of_all() {
    let config =
        ToolTimeouts { default_ms: 500, max_ms: 2_000, tools: [("python_exec".to_owned(), 60_000)].into() };
    let label = label();
    let context = ToolContext {
        agent: "main",
        session: None,
        turn: None,
        turn_number: 1,
        label: &label,
        config: &config,
        search: None,
    };
    let time = |name: &str, arguments: Value| {
        let prepared = Registry::core_tools()
            .toolset_of(&[AgentRole::Executor], &AllowList::All)
            .prepare_call(&call(name, arguments), None, &context);
        prepared.map(|prepared| exec(prepared).timeout_ms).ok()
    };
    assert_eq!(time("shell_exec", json!({"command": "true"})), Some(500));
    assert_eq!(time("shell_exec", json!({"command": "true", "timeout_secs": 2})), Some(2_000));
    assert_eq!(time("shell_exec", json!({"command": "true", "timeout_secs": 3})), None);
    assert_eq!(time("python_exec", json!({"script": "pass"})), Some(60_000));
    assert_eq!(time("python_exec", json!({"script": "pass", "timeout_secs": 1})), Some(1_000));
}

/// What the model is told must not change by itself: providers cache it.
///
/// Rows: SCL-025
#[test]
fn specs_are_sorted_and_byte_stable() {
    let registry = Registry::core_tools();
    let both = [AgentRole::Proxy, AgentRole::Executor];
    let specs = registry.toolset_of(&both, &AllowList::All).specs();
    let offered: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert!(offered.is_sorted());
    assert_eq!(offered, registry.tools().map(Tool::name).collect::<Vec<_>>());
    let bytes = serde_json::to_string_pretty(&specs).expect("JSON");
    assert_eq!(
        serde_json::to_string_pretty(&Registry::core_tools().toolset_of(&both, &AllowList::All).specs()).ok(),
        Some(bytes.clone())
    );
    insta::assert_snapshot!("specs", bytes);
    // The first request of a turn is at most 16 KB: the tools leave room for the rest.
    assert!(serde_json::to_string(&specs).expect("JSON").len() < 9 * 1024 + 512);
}

/// Calls of a tool that between them name everything that it can name: its own example, unless that leaves something out.
fn calls_in_full(name: &str, usage: &str) -> Vec<Value> {
    match name {
        "context_subscribe" => {
            vec![json!({"path": "a.txt", "turns": 1}), json!({"url": "https://docs.rs/a", "turns": 1})]
        }
        "python_exec" => vec![json!({"script": "pass", "cwd": "src", "hosts": ["docs.rs"]})],
        "shell_exec" => vec![json!({"command": "true", "cwd": "src", "hosts": ["docs.rs"]})],
        "web_request" => {
            let url = "https://docs.rs/a";
            vec![json!({"method": "POST", "url": url, "body": "x", "content_type": "application/x-unusual"})]
        }
        _ => vec![serde_json::from_str(usage).expect("an example")],
    }
}

#[test]
fn every_row_of_the_table_is_consistent() {
    for tool in CORE {
        let schema = (tool.schema)();
        assert_eq!(schema["additionalProperties"], json!(false), "{}", tool.name);
        for sink in tool.sinks {
            assert!(!schema["properties"][sink].is_null(), "{}: {sink}", tool.name);
        }
        for (name, property) in schema["properties"].as_object().expect("an object") {
            assert!(property["description"].is_string(), "{}: {name}", tool.name);
        }
        if tool.name == "plan" {
            // The turn answers it itself: it is never an action.
            continue;
        }
        let example: Value = serde_json::from_str(tool.usage).expect("an example");
        let old = PathState::File { bytes: b"a - b".to_vec(), executable: false };
        let role = tool.roles.last().copied().expect("a role");
        let prepared = prepare_as(role, tool.name, example, Some(&old)).expect("prepared");
        assert!(tool.actions.contains(&prepared.action.kind()), "{}", tool.name);
        let sinks = calls_in_full(tool.name, tool.usage).into_iter().flat_map(|arguments| {
            prepare_as(role, tool.name, arguments, Some(&old)).expect("prepared").sinks
        });
        let sinks: Vec<String> = sinks.map(|sink| sink.argument).collect();
        assert_eq!(sinks, tool.sinks, "{}", tool.name);
        assert_eq!(prepared.idempotent, tool.idempotent);
        assert_eq!(prepared.call.as_deref(), Some("call-1"));
        assert_eq!(prepared.label, label());
        assert!(!prepared.intent.is_empty());
    }
}

/// Part of SIL-113: a filtered tool never reaches preparation, so it never reaches an ask.
///
/// Rows: SCL-034
/// Rows: SCL-138 SCL-141 (in part: a tool that `tools` does not name is not offered, and a call of it is refused)
#[test]
fn a_tool_outside_the_allow_list_is_neither_offered_nor_prepared() {
    let registry = Registry::core_tools();
    let only = registry.allow_list(&["file_read".into()], EmptyMeans::All).expect("known");
    let tools = registry.toolset_of(&[AgentRole::Executor], &only);
    assert_eq!(tools.names().collect::<Vec<_>>(), ["file_read"]);
    assert_eq!(tools.specs().len(), 1);
    // Not even its arguments are looked at.
    let error = tools.needed_file(&call("file_write", json!({"nonsense": 1}))).expect_err("refused");
    assert_eq!(error, ToolError::NotOffered { name: "file_write".into(), offered: "file_read".into() });
    let rendered = tools.render_refusal(&error, &label(), &Redactor::default());
    assert_eq!(rendered.outcome, ToolOutcome::Denied);
    assert!(rendered.text.contains("file_read"));
    assert!(tools.needed_file(&call("file_read", json!({"path": "a"}))).is_ok());
}

#[test]
fn an_empty_allow_list_means_what_the_caller_says() {
    let registry = Registry::core_tools();
    assert_eq!(registry.allow_list(&[], EmptyMeans::All), Ok(AllowList::All));
    assert_eq!(registry.allow_list(&["*".into()], EmptyMeans::None), Ok(AllowList::All));
    let none = registry.allow_list(&[], EmptyMeans::None).expect("valid");
    assert!(registry.toolset_of(&[AgentRole::Executor], &none).specs().is_empty());
    let unknown = registry.allow_list(&["file_raed".into(), "search".into()], EmptyMeans::All);
    assert_eq!(unknown, Err(UnknownTools(vec!["file_raed".into()])));
}

/// Part of SCL-044: unknown names.
///
/// Rows: SCL-202 (in part: the registered ones are named)
#[test]
fn an_unknown_tool_is_an_error_result() {
    let registry = Registry::core_tools();
    let tools = registry.toolset_of(&[AgentRole::Proxy], &AllowList::All);
    let hostile = format!("rm\u{1b}[2J\u{202e}{}", "x".repeat(10_000));
    let error = tools.needed_file(&call(&hostile, json!({}))).expect_err("refused");
    let rendered = tools.render_refusal(&error, &label(), &Redactor::default());
    assert_eq!(rendered.outcome, ToolOutcome::Failed);
    assert!(
        rendered.text.len() < 300 && !rendered.text.contains('\u{1b}') && !rendered.text.contains('\u{202e}')
    );
    assert!(rendered.text.contains("file_read, memory_search, memory_store, plan, result_read, search"));
}

/// Part of SIL-005: arguments.
///
/// Rows: WIN-090 (in part: a method or a body is rejected)
#[test]
fn no_argument_reaches_a_field_of_the_harness() {
    for (tool, arguments, field) in [
        ("shell_exec", json!({"command": "id", "network": true}), "network"),
        ("shell_exec", json!({"command": "id", "env": {"LD_PRELOAD": "x"}}), "env"),
        ("shell_exec", json!({"command": "id", "profile": "verification"}), "profile"),
        ("python_exec", json!({"script": "1", "stdin": "x"}), "stdin"),
        ("web_fetch", json!({"url": "https://a.example/", "method": "POST"}), "method"),
        ("web_fetch", json!({"url": "https://a.example/", "body": "x"}), "body"),
        ("memory_store", json!({"text": "x", "taint": "owner"}), "taint"),
        ("memory_store", json!({"text": "x", "trust": "verified"}), "trust"),
        ("memory_store", json!({"text": "x", "session": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}), "session"),
        ("file_write", json!({"path": "a", "content": "", "place": "project"}), "place"),
        ("tell_user", json!({"text": "x", "to": "someone"}), "to"),
        ("file_read", json!({"path": "a", "label": {}, "sinks": []}), "label"),
    ] {
        let message = refused(tool, arguments);
        assert!(message.contains(&format!("unknown argument '{field}'")), "{message}");
    }
    assert!(
        refused("shell_exec", json!({"command": "id", "cwd": "/etc"}))
            .contains("leads out of the work folder")
    );
    assert!(
        refused("shell_exec", json!({"command": "id", "cwd": "../.."}))
            .contains("leads out of the work folder")
    );
    let stored = prepare("memory_store", json!({"text": "x"})).expect("prepared");
    let Action::Remember(remember) = stored.action else { panic!("not a memory") };
    assert_eq!((remember.taint, remember.trust), (Taint::External, MemoryTrust::Working));
    assert_eq!(stored.label.taint, Taint::External);
}

#[test]
fn all_problems_are_named_at_once_with_the_right_form() {
    let message = refused("file_read", json!({"pth": "a", "lines": "ten", "first_line": 1.5}));
    insta::assert_snapshot!(message, @r#"file_read: unknown argument 'pth' (there are 'path', 'first_line', 'lines'); 'lines' must be of type integer, not string; 'first_line' must be of type integer, not number; missing argument 'path'; right would be for example {"path": "src/lib.rs", "first_line": 1, "lines": 200}"#);
    assert!(refused("memory_store", json!({"text": "x", "kind": "profile"})).contains("expected one of"));
    assert!(refused("file_read", json!({"path": "a", "lines": -1})).contains("-1"));
    assert!(refused("file_read", json!({"path": null})).contains("null"));
    assert!(refused("shell_exec", json!({"argv": ["a", 1]})).contains("string"));
}

#[test]
fn arguments_may_come_as_text_and_broken_text_is_no_panic() {
    let read = prepare("file_read", json!("{\"path\": \"a.txt\"}")).expect("prepared");
    assert_eq!(read.sinks, [writ_inspect::prepared::Sink { argument: "path".into(), value: "a.txt".into() }]);
    for broken in ["", "{", "[1]", "\"x\"", r#"{"path": "\ud800"}"#, r#"{"path": "\udc00\ud800"}"#, "\u{0}"] {
        assert!(refused("file_read", json!(broken)).contains("arguments are not"), "{broken}");
    }
    for wrong in [json!(7), json!(true), json!(["a"])] {
        assert!(refused("file_read", wrong).contains("not an object"));
    }
    assert!(refused("file_read", Value::Null).contains("missing argument 'path'"));
}

#[test]
fn sizes_are_bounded() {
    let too_large = |name: &str, arguments: Value| {
        let error = prepare(name, arguments).expect_err("refused");
        assert!(matches!(error, ToolError::TooLarge { .. }), "{error:?}");
    };
    let megabyte = "x".repeat(1024 * 1024);
    too_large("file_write", json!({"path": "a", "content": megabyte}));
    too_large("file_write", json!(megabyte));
    too_large("tell_user", json!({"text": "x".repeat(17_000)}));
    too_large("shell_exec", json!({"argv": vec!["a"; 1_025]}));
    too_large("shell_exec", json!({"argv": ["a", "x".repeat(128 * 1024)]}));
    too_large("memory_store", json!({"text": "x".repeat(9_000)}));
    too_large("memory_search", json!({"query": "x".repeat(2_000)}));
    too_large("search", json!({"pattern": "x".repeat(5_000)}));
    assert!(refused("file_read", json!({"path": "a/".repeat(3_000)})).contains("longer than"));
    assert!(refused("file_read", json!({"path": "x".repeat(300)})).contains("longer than"));
    let many: serde_json::Map<_, _> = (0..5_000).map(|n| (format!("k{n}"), json!(1))).collect();
    assert!(refused("file_read", Value::Object(many)).contains("unknown argument"));
}

#[test]
fn nul_and_control_characters_are_refused() {
    for (tool, arguments) in [
        ("shell_exec", json!({"argv": ["a", "b\0c"]})),
        ("shell_exec", json!({"command": "a b\0c"})),
        ("python_exec", json!({"script": "print(1)\0"})),
        ("python_exec", json!({"script": "1", "args": ["\0"]})),
        ("search", json!({"pattern": "a\0"})),
        ("search", json!({"pattern": "a", "glob": "\0"})),
        ("memory_store", json!({"text": "a\0"})),
        ("memory_search", json!({"query": "a\0"})),
        ("tell_user", json!({"text": "a\0"})),
    ] {
        assert!(refused(tool, arguments).contains("NUL"), "{tool}");
    }
    assert!(refused("file_read", json!({"path": "a\nb"})).contains("control characters"));
    assert!(
        refused("file_write", json!({"path": "a\u{1b}[2J", "content": ""})).contains("control characters")
    );
}

/// Part of SIL-107: preparation.
///
/// Rows: SIL-195
#[test]
fn commands_are_argument_lists() {
    let literal =
        exec(prepare("shell_exec", json!({"argv": ["echo", "$(touch x)", "; rm -rf /"]})).expect("prepared"));
    assert_eq!(literal.argv, ["echo", "$(touch x)", "; rm -rf /"]);
    let line = exec(prepare("shell_exec", json!({"command": "echo \"$(touch x)\" *"})).expect("prepared"));
    assert_eq!(line.argv, ["echo", "$(touch x)", "*"]);
    assert!(refused("shell_exec", json!({"command": "ls | sh"})).contains("no shell runs it"));
    let shell = exec(prepare("shell_exec", json!({"argv": ["sh", "-c", "ls | wc -l"]})).expect("prepared"));
    assert_eq!(shell.argv, ["sh", "-c", "ls | wc -l"]);

    let prepared = prepare("shell_exec", json!({"command": "make -j2", "cwd": "sub/dir", "timeout_secs": 5}))
        .expect("prepared");
    assert_eq!(prepared.intent, "run make -j2");
    let made = exec(prepared);
    assert_eq!(
        (made.cwd.as_str(), made.timeout_ms, made.profile),
        ("/work/sub/dir", 5_000, ExecProfile::Task)
    );
    assert!(made.env.is_empty() && made.hosts.is_empty() && made.stdin.is_none());

    for arguments in [
        json!({}),
        json!({"command": "a", "argv": ["b"]}),
        json!({"command": "   "}),
        json!({"argv": []}),
        json!({"argv": [""]}),
        json!({"command": "a", "timeout_secs": 0}),
        json!({"command": "a", "timeout_secs": 601}),
        json!({"command": "a", "timeout_secs": u64::MAX}),
    ] {
        let message = refused("shell_exec", arguments);
        assert!(message.contains("right would be"), "{message}");
    }
}

/// Part of SIL-201: preparation.
#[test]
fn a_script_goes_to_an_isolated_python_and_is_bound() {
    let script = "import sys\nprint(42)\n";
    let prepared =
        prepare("python_exec", json!({"script": script, "args": ["-c", "x y"]})).expect("prepared");
    assert_eq!(prepared.bindings.get("script"), Some(&Digest::of_bytes(script.as_bytes())));
    assert_eq!(prepared.intent, "run a Python script: import sys");
    let made = exec(prepared);
    assert_eq!(made.argv, ["python3", "-I", "-", "-c", "x y"]);
    assert_eq!(made.stdin.as_deref(), Some(script));
    assert!(refused("python_exec", json!({"script": " \n"})).contains("empty"));
}

/// Part of SIL-108: names that lead out.
#[test]
fn files_are_read_by_window_and_folders_are_listed() {
    let mode = |arguments| {
        let prepared = prepare("file_read", arguments).expect("prepared");
        let Action::ReadFile(read) = prepared.action else { panic!("not a read") };
        (read.path, read.mode)
    };
    assert_eq!(mode(json!({"path": "./a//b"})), ("a/b".into(), ReadMode::Text { first_line: 1, lines: 400 }));
    assert_eq!(
        mode(json!({"path": "/work/a", "first_line": 7, "lines": 3})),
        ("a".into(), ReadMode::Text { first_line: 7, lines: 3 })
    );
    assert_eq!(mode(json!({"path": "src/"})), ("src".into(), ReadMode::List));
    assert_eq!(mode(json!({"path": "."})), (String::new(), ReadMode::List));
    // What leads out is named as what it is, for the door to refuse.
    for (path, named) in [("../x", "/x"), ("/etc/passwd", "/etc/passwd"), ("a/../../b", "/b")] {
        assert_eq!(mode(json!({ "path": path })).0, named);
    }
    assert!(refused("file_read", json!({"path": "~/.ssh/id"})).contains("begins with '~'"));
    assert!(refused("file_read", json!({"path": "a", "first_line": 0})).contains("counts from 1"));
    assert!(refused("file_read", json!({"path": "a", "lines": 2_001})).contains("1 to 2000"));
}

/// Part of SIL-109: preparation.
#[test]
fn a_write_is_bound_to_what_was_there() {
    let registry = Registry::core_tools();
    let tools = registry.toolset_of(&[AgentRole::Executor], &AllowList::All);
    let arguments = json!({"path": "src/new.rs", "content": "fn main() {}\n"});
    let needed = tools.needed_file(&call("file_write", arguments.clone())).expect("valid");
    assert_eq!(needed, Some(WorkPath::parse_path("src/new.rs").expect("a path")));

    let write = |peeked: &PathState| match prepare_as(
        AgentRole::Executor,
        "file_write",
        arguments.clone(),
        Some(peeked),
    ) {
        Ok(Prepared { action: Action::WriteFile(write), .. }) => Ok(write),
        Ok(other) => panic!("not a write: {other:?}"),
        Err(error) => Err(error),
    };
    let created = write(&PathState::Missing).expect("prepared");
    assert_eq!((created.place, created.root.as_str()), (Place::Overlay, "/work"));
    assert_eq!(created.content.as_deref(), Some("fn main() {}\n"));
    let change = created.changes.first().expect("one");
    assert_eq!(
        (change.kind, change.before, change.executable, change.bytes),
        (ChangeKind::Create, None, false, 13)
    );
    assert_eq!(change.after, Some(Digest::of_bytes(b"fn main() {}\n")));

    let modified = write(&PathState::File { bytes: b"old".to_vec(), executable: true }).expect("prepared");
    let change = modified.changes.first().expect("one");
    assert_eq!(
        (change.kind, change.before, change.executable),
        (ChangeKind::Modify, Some(Digest::of_bytes(b"old")), true)
    );
    let large =
        PathState::Large { digest: Digest::of_bytes(b"big"), bytes: 9, executable: false, form: None };
    assert_eq!(
        write(&large).expect("prepared").changes.first().and_then(|c| c.before),
        Some(Digest::of_bytes(b"big"))
    );

    assert!(matches!(write(&PathState::Folder), Err(ToolError::Target { .. })));
    assert!(matches!(write(&PathState::Other), Err(ToolError::Target { .. })));
    assert!(matches!(prepare("file_write", arguments.clone()), Err(ToolError::NotPeeked { .. })));
    for path in ["", ".", "src/", "/work"] {
        assert!(
            refused("file_write", json!({"path": path, "content": ""})).contains("names a folder"),
            "{path}"
        );
    }
    // What leads out is not looked at; the door is told where it points.
    let outside = json!({"path": "../x", "content": ""});
    assert_eq!(tools.needed_file(&call("file_write", outside.clone())).expect("valid"), None);
    let prepared = prepare("file_write", outside).expect("prepared");
    let Action::WriteFile(write) = prepared.action else { panic!("not a write") };
    assert_eq!(write.changes.first().map(|change| change.path.as_str()), Some("/x"));
}

fn patch(file: &str, arguments: Value) -> Result<String, ToolError> {
    let mut arguments = arguments;
    arguments["path"] = json!("a.txt");
    let peeked = PathState::File { bytes: file.into(), executable: false };
    let prepared = prepare_as(AgentRole::Executor, "file_patch", arguments, Some(&peeked))?;
    let Action::WriteFile(write) = prepared.action else { panic!("not a write") };
    Ok(write.content.expect("content"))
}

#[test]
fn a_patch_replaces_exactly_once_unless_all() {
    assert_eq!(patch("one two three", json!({"old": "two", "new": "2"})).as_deref(), Ok("one 2 three"));
    assert_eq!(patch("a a a", json!({"old": "a", "new": "b", "all": true})).as_deref(), Ok("b b b"));
    assert_eq!(patch("ä€", json!({"old": "€", "new": ""})).as_deref(), Ok("ä"));
    let twice = patch("x\ny\nx\n", json!({"old": "x", "new": "z"})).expect_err("refused");
    assert_eq!(twice, ToolError::Ambiguous { path: "a.txt".into(), count: 2, lines: vec![1, 3] });
    assert!(twice.model_message().contains("2 times, at lines 1, 3"));
    assert!(matches!(patch("a", json!({"old": "", "new": "b"})), Err(ToolError::Invalid { .. })));
    assert!(matches!(patch("a", json!({"old": "a", "new": "a"})), Err(ToolError::Invalid { .. })));
    let growing = patch(&"a".repeat(2_000), json!({"old": "a", "new": "b".repeat(1_000), "all": true}));
    assert!(matches!(growing, Err(ToolError::TooLarge { .. })));
}

#[test]
fn a_patch_that_does_not_match_shows_the_nearest_lines_as_external_content() {
    let file = "fn add(a: i32, b: i32) -> i32 {\n    a - b\n}\n\nfn sub() {}\n";
    let error =
        patch(file, json!({"old": "fn add(a: i64, b: i64) -> i64 {", "new": ""})).expect_err("refused");
    let registry = Registry::core_tools();
    let mut owner = Label::new(Taint::Owner);
    let rendered = registry.toolset_of(&[AgentRole::Executor], &AllowList::All).render_refusal(
        &error,
        &owner,
        &Redactor::default(),
    );
    insta::assert_snapshot!(rendered.text, @r"
    file_patch: the old text is not in 'a.txt'; the nearest lines are
    1: fn add(a: i32, b: i32) -> i32 {
    ");
    assert_eq!(rendered.label.taint, Taint::External, "it quotes the file");
    let indented = patch(file, json!({"old": "{\n  a - b\n}", "new": ""})).expect_err("refused");
    assert!(indented.model_message().contains("other white space"), "{}", indented.model_message());
    let nothing = patch("", json!({"old": "zzz", "new": ""})).expect_err("refused");
    owner = registry
        .toolset_of(&[AgentRole::Executor], &AllowList::All)
        .render_refusal(&nothing, &owner, &Redactor::default())
        .label;
    assert_eq!(owner.taint, Taint::Owner, "it quotes nothing");
}

/// What the model reads has line feeds alone; what it sends back fits the file as it is.
#[test]
fn edits_keep_encoding_mark_line_ends_and_last_line_end() {
    let written = |tool, arguments, bytes: &[u8]| {
        let peeked = PathState::File { bytes: bytes.to_vec(), executable: false };
        let prepared = prepare_as(AgentRole::Executor, tool, arguments, Some(&peeked)).expect("prepared");
        let Action::WriteFile(write) = prepared.action else { panic!("not a write") };
        let bytes = write.encoding.encode_text(write.content.as_deref().unwrap_or_default());
        let change = write.changes.first().expect("one");
        assert_eq!((change.after, change.bytes), (Some(Digest::of_bytes(&bytes)), bytes.len() as u64));
        bytes
    };
    let patch = json!({"path": "a.cs", "old": "b\nc\n", "new": "B\nnew\nc\n"});
    let whole = json!({"path": "a.cs", "content": "x\ny\n"});
    for (before, patched, rewritten) in [
        ("a\r\nb\r\nc\r\n", "a\r\nB\r\nnew\r\nc\r\n", "x\r\ny\r\n"),
        ("\u{feff}a\r\nb\r\nc", "\u{feff}a\r\nB\r\nnew\r\nc", "\u{feff}x\r\ny"),
        ("a\nb\nc", "a\nB\nnew\nc", "x\ny"),
    ] {
        assert_eq!(written("file_patch", patch.clone(), before.as_bytes()), patched.as_bytes(), "{before:?}");
        assert_eq!(
            written("file_write", whole.clone(), before.as_bytes()),
            rewritten.as_bytes(),
            "{before:?}"
        );
    }
    for encoding in [TextEncoding::Utf16Le, TextEncoding::Utf16Be] {
        let before = encoding.encode_text("\u{feff}a\r\nb\r\nc\r\n");
        let after = encoding.encode_text("\u{feff}a\r\nB\r\nnew\r\nc\r\n");
        assert_eq!(written("file_patch", patch.clone(), &before), after);
        assert_eq!(written("file_write", whole.clone(), &before), encoding.encode_text("\u{feff}x\r\ny\r\n"));
    }
    // A text in an older encoding would change it with the first new character beyond ASCII.
    let latin = PathState::File { bytes: b"caf\xe9\n".to_vec(), executable: false };
    let write = |content: &str| {
        let arguments = json!({"path": "a.txt", "content": content});
        prepare_as(AgentRole::Executor, "file_write", arguments, Some(&latin))
    };
    let refused = write("cafés\n").expect_err("refused").model_message();
    assert!(refused.contains("another encoding"), "{refused}");
    assert!(write("coffee\n").is_ok());
}

#[test]
fn a_patch_needs_a_text_file() {
    let arguments = json!({"path": "a.txt", "old": "a", "new": "b"});
    let binary = PathState::File { bytes: vec![0xff, 0xfe, b'a'], executable: false };
    let large = PathState::Large { digest: Digest::of_bytes(b""), bytes: 9, executable: false, form: None };
    for (peeked, reason) in [
        (PathState::Missing, "does not exist"),
        (PathState::Folder, "is a folder"),
        (PathState::Other, "link"),
        (large, "too large"),
        (binary, "is not UTF-8"),
    ] {
        let error = prepare_as(AgentRole::Executor, "file_patch", arguments.clone(), Some(&peeked));
        let message = error.expect_err("refused").model_message();
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn searches_are_checked_before_they_run() {
    let prepared =
        prepare("search", json!({"pattern": "fn \\w+", "glob": "*.rs", "path": "src"})).expect("prepared");
    let Action::ReadFile(read) = prepared.action else { panic!("not a read") };
    let mode = ReadMode::Search { pattern: "fn \\w+".into(), glob: "*.rs".into(), max_matches: 100 };
    assert_eq!((read.path.as_str(), read.mode), ("src", mode));
    assert!(prepare("search", json!({"pattern": "a"})).is_ok(), "glob and path are optional");
    for arguments in [
        json!({"pattern": ""}),
        json!({"pattern": "("}),
        json!({"pattern": "a\\nb"}),
        json!({"pattern": "(\\w{1000}){1000}"}),
        json!({"pattern": "a", "glob": "[a"}),
        json!({"pattern": "a", "max_matches": 501}),
        json!({"pattern": "a", "path": "~"}),
    ] {
        assert!(refused("search", arguments.clone()).contains("right would be"), "{arguments}");
    }
}

/// Part of SIL-103, 104, 110: preparation.
#[test]
fn memories_and_messages_become_actions() {
    let kind = |name: &str, arguments| prepare(name, arguments).expect("prepared").action.kind();
    assert_eq!(kind("memory_store", json!({"text": "x", "kind": "preference"})), ActionKind::Remember);
    assert_eq!(kind("memory_search", json!({"query": "x"})), ActionKind::Recall);
    let here = prepare("memory_store", json!({"text": "x", "this_session": true})).expect("prepared");
    let Action::Remember(remember) = here.action else { panic!("not a memory") };
    assert_eq!(remember.session, here.session);
    let Action::Say(say) = prepare("tell_user", json!({"text": "hi"})).expect("prepared").action else {
        panic!("not a message")
    };
    assert_eq!((say.to.as_str(), say.text.as_str()), ("owner", "hi"));
    for (name, arguments) in [
        ("memory_store", json!({"text": "  "})),
        ("memory_search", json!({"query": ""})),
        ("memory_search", json!({"query": "x", "limit": 51})),
        ("tell_user", json!({"text": "\n"})),
    ] {
        assert!(refused(name, arguments).contains("right would be"), "{name}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        "[a-z_]{1,6}",
        Just("path".to_owned()),
        Just("command".to_owned()),
        Just("argv".to_owned()),
        Just("old".to_owned()),
        Just("new".to_owned()),
        Just("pattern".to_owned()),
        Just("text".to_owned()),
        Just("script".to_owned()),
    ];
    leaf.prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Whatever a model sends: an action or a bounded message, never a panic.
    #[test]
    fn no_arguments_make_a_panic(arguments in any_json(), file in ".{0,40}") {
        let peeked = PathState::File { bytes: file.into(), executable: false };
        for tool in CORE {
            match prepare_as(AgentRole::Executor, tool.name, arguments.clone(), Some(&peeked)) {
                Ok(prepared) => prop_assert!(tool.actions.contains(&prepared.action.kind())),
                Err(error) => prop_assert!(error.model_message().chars().count() <= MAX_MESSAGE_CHARS + 40),
            }
        }
    }
}

/// Rows: SIL-111 (what is refused) SIL-112
#[test]
fn subscriptions_name_a_file_its_lines_or_a_url() {
    let subscribe = |arguments: Value| {
        let prepared = prepare_as(AgentRole::Proxy, "context_subscribe", arguments, None);
        prepared.map(|prepared| prepared.action)
    };
    let made = |target: &str, lines, turns| {
        let target = target.to_owned();
        Action::Subscribe(Subscribe { target, lines, turns, stop: false })
    };
    assert_eq!(subscribe(json!({"path": "./a/b.txt"})).ok(), Some(made("a/b.txt", None, 10)));
    let some = json!({"path": "a", "first_line": 2, "last_line": 3, "turns": 1});
    assert_eq!(subscribe(some).ok(), Some(made("a", Some((2, 3)), 1)));
    let url = "https://example.org/status";
    assert_eq!(subscribe(json!({"url": url})).ok(), Some(made(url, None, 10)));
    for wrong in [
        json!({}),
        json!({"path": "a", "url": url}),
        json!({"path": "a", "type": "mail"}),
        json!({"path": ""}),
        json!({"path": "a/"}),
        json!({"path": "../a"}),
        json!({"path": "a", "first_line": 2}),
        json!({"path": "a", "first_line": 3, "last_line": 2}),
        json!({"path": "a", "first_line": 0, "last_line": 2}),
        json!({"url": url, "first_line": 1, "last_line": 2}),
        json!({"path": "a", "turns": 0}),
        json!({"path": "a", "turns": 101}),
        json!({"url": "example.org"}),
        json!({"url": "file:///etc/passwd"}),
        json!({"url": "https://u:p@example.org/"}),
    ] {
        assert!(subscribe(wrong.clone()).is_err(), "{wrong}");
    }
    let stop = |id: &str| {
        let prepared = prepare_as(AgentRole::Proxy, "context_unsubscribe", json!({ "id": id }), None);
        prepared.is_ok_and(
            |prepared| matches!(prepared.action, Action::Subscribe(one) if one.stop && one.target == id),
        )
    };
    assert!(stop("s1") && !stop("") && !stop("../s1") && !stop(&"s".repeat(65)));
}

/// Rows: WIN-214 (what is refused before anything is asked of the network)
#[test]
fn an_answer_is_saved_below_the_work_folder_only() {
    let saved = |path: &str| {
        let arguments = json!({"url": "https://example.org/a", "save_to": path});
        let Action::Fetch(fetch) = prepare("web_fetch", arguments).ok()?.action else { panic!("no fetch") };
        fetch.save_to
    };
    assert_eq!(saved("/work/a/b.bin").as_deref(), Some("a/b.bin"));
    assert_eq!(saved("a/../b.bin").as_deref(), Some("b.bin"));
    for path in ["", ".", "a/", "../x", "/work/../x", "/etc/x", "~/x", "a\0b"] {
        assert_eq!(saved(path), None, "{path:?}");
    }
}

/// A media type that nobody uses can say as much as a body: it is judged as one.
#[test]
fn a_media_type_that_is_not_usual_is_a_sink() {
    let sinks = |media: &str| {
        let arguments =
            json!({"method": "POST", "url": "https://example.org/a", "body": "ok", "content_type": media});
        let sinks = prepare("web_request", arguments).expect("prepared").sinks;
        sinks.into_iter().map(|sink| sink.argument).collect::<Vec<_>>()
    };
    assert_eq!(sinks("application/json"), ["method", "url", "body"]);
    for media in ["text/plain; a=4711", "application/JSON", "text/x-4711"] {
        assert_eq!(sinks(media), ["method", "url", "body", "content_type"], "{media}");
    }
}

/// Rows: SIL-105 (who has it)
#[test]
fn searching_is_there_with_a_provider_only_and_its_words_are_a_sink() {
    let (core, with) = (Registry::core_tools(), Registry::core_tools().with_search());
    assert!(
        core.find_tool("web_search").is_none()
            && core.knows_name("web_search")
            && !core.knows_name("web_searches")
    );
    let named = ["web_search".to_owned()];
    assert!(core.allow_list(&named, EmptyMeans::None).is_ok(), "it is only not there");
    for role in [AgentRole::Proxy, AgentRole::Planner, AgentRole::Executor] {
        assert!(
            with.toolset_of(&[role], &AllowList::All).names().any(|name| name == "web_search"),
            "{role:?}"
        );
        assert!(
            core.toolset_of(&[role], &AllowList::All).names().all(|name| name != "web_search"),
            "{role:?}"
        );
    }
    let (label, config) = (label(), ToolTimeouts::default());
    let target = crate::def::SearchTarget { provider: "brave", host: "s.example:443", max_results: 5 };
    let prepare = |arguments: Value, search| {
        let context = ToolContext {
            agent: "main",
            session: None,
            turn: None,
            turn_number: 1,
            label: &label,
            config: &config,
            search,
        };
        let toolset = with.toolset_of(&[AgentRole::Executor], &AllowList::All);
        toolset.prepare_call(&call("web_search", arguments), None, &context)
    };
    let prepared =
        prepare(json!({ "query": "two words", "max_results": 9 }), Some(target)).expect("prepared");
    let Action::Search(search) = &prepared.action else { panic!("{prepared:?}") };
    assert_eq!(
        (search.host.as_str(), search.max_results),
        ("s.example:443", 5),
        "as many as the owner has set"
    );
    assert_eq!(prepared.sinks.len(), 1);
    assert_eq!(
        (prepared.sinks[0].argument.as_str(), prepared.sinks[0].value.as_str()),
        ("query", "two words")
    );
    assert!(prepare(json!({ "query": "two words" }), None).is_err());
    for wrong in [
        json!({ "query": " " }),
        json!({ "query": "a\u{0}b" }),
        json!({ "query": "x".repeat(401) }),
        json!({ "query": "a", "max_results": 0 }),
        json!({ "query": "a", "taint": "owner" }),
        json!({}),
    ] {
        assert!(prepare(wrong.clone(), Some(target)).is_err(), "{wrong}");
    }
}

/// What the door knows and no tool leads to, nor the harness itself.
#[test]
fn kinds_of_action_that_nobody_performs_yet_are_these() {
    let own = [
        ActionKind::Connect,
        ActionKind::ModelCall,
        ActionKind::CallTool,
        ActionKind::Plan,
        ActionKind::Forget,
    ];
    let registry = Registry::core_tools().with_search();
    let led: Vec<ActionKind> = registry.tools().flat_map(Tool::actions).copied().chain(own).collect();
    let nobody: Vec<&str> =
        ActionKind::ALL.iter().filter(|kind| !led.contains(kind)).map(|kind| kind.as_str()).collect();
    let expected = [
        "browse",
        "create_tool",
        "install_skill",
        "docker",
        "message",
        "handoff",
        "spawn",
        "escalate",
        "vcs",
        "operate",
    ];
    assert_eq!(nobody, expected);
}
