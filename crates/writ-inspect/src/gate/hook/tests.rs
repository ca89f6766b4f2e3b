//! What hooks say, and what counts of it.

use std::collections::BTreeSet;

use serde_json::json;
use writ_types::action::Action;
use writ_types::entry::GatePoint;

use super::*;
use crate::fixture::{exec, prepared};
use crate::gate::{Due, GateAction, Judgement, Subject};

fn hook(name: &str, on: HookEvent) -> Hook {
    let config = HookConfig {
        name: name.into(),
        on,
        run: "h.sh".into(),
        permissions: read_permission(),
        ..HookConfig::default()
    };
    Hook { config, program: Ok(Program::new("echo '{}'".into())) }
}

fn set(hooks: Vec<Hook>) -> GateSet {
    GateSet::default().with_hooks(hooks).expect("valid")
}

/// What comes of a call, where the hooks end and speak so, one after the other.
fn judged(gates: &GateSet, said: &[(ScriptEnd, &str)]) -> Judgement {
    let subject = Subject::action(GatePoint::Execution, &prepared(Action::Exec(exec())));
    let mut judging = gates.begin_judging(GatePoint::Execution, subject, Some(json!({"command": "ls"})));
    for (end, text) in said {
        assert!(matches!(judging.next_due(), Some(Due::Script(_))), "each is called, in order");
        judging.script_said(end, text);
    }
    assert_eq!(judging.next_due(), None, "and no other");
    judging.end_judging()
}

const DONE: ScriptEnd = ScriptEnd::Code(0);

fn say(word: &str) -> String {
    format!("{{\"verdict\": \"{word}\", \"reason\": \"because\"}}")
}

/// What is called is the owner's configuration, in its order: a hook that wants to bring another one along is not heard in that.
///
/// Rows: SF-017 (in part) SCL-048
#[test]
fn all_hooks_are_heard_in_order_and_the_strictest_counts() {
    let two = set(vec![hook("a", HookEvent::BeforeToolCall), hook("b", HookEvent::BeforeToolCall)]);
    for (first, second, expected) in [
        ("allow", "allow", GateVerdict::Pass),
        ("abstain", "allow", GateVerdict::Pass),
        ("allow", "ask", GateVerdict::RequireApproval),
        ("allow", "deny", GateVerdict::Block),
        ("deny", "allow", GateVerdict::Block),
        ("ask", "deny", GateVerdict::Block),
        ("deny", "ask", GateVerdict::Block),
        ("deny", "halt", GateVerdict::Halt),
    ] {
        let found = judged(&two, &[(DONE, &say(first)), (DONE, &say(second))]);
        assert_eq!(found.worst_verdict(), expected, "{first}, {second}");
        let names: Vec<&str> = found.verdicts.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["hook a", "hook b"], "both are on record");
    }
    let more =
        json!({ "verdict": "allow", "hooks": [{ "name": "c", "on": "before_tool_call", "run": "c.sh" }] });
    let found = judged(&two, &[(DONE, &more.to_string()), (DONE, &say("allow"))]);
    let dropped = found.verdicts.iter().any(|(name, _, why)| name == "hook a" && why.contains("'hooks'"));
    assert!(dropped && found.worst_verdict() == GateVerdict::Advise, "{:?}", found.verdicts);
    // What ends the turn needs no second word.
    assert_eq!(judged(&two, &[(DONE, &say("halt"))]).worst_verdict(), GateVerdict::Halt);
    let none = two.begin_judging(GatePoint::Input, Subject::text("x"), None).next_due();
    assert_eq!(none, None, "they are called at their event alone");
}

#[test]
fn hooks_come_before_gates_and_a_no_of_theirs_is_all_that_a_gate_would_hear() {
    let gate = GateConfig {
        name: "g".into(),
        on: Point::Execution,
        action: GateAction::Ask,
        contains: vec!["ls".into()],
        ..GateSet::shipped_gate()
    };
    let gates = GateSet::new(vec![gate]).expect("valid");
    let gates = gates.with_hooks(vec![hook("h", HookEvent::BeforeToolCall)]).expect("valid");
    let names = |found: &Judgement| found.verdicts.iter().map(|(name, ..)| name.clone()).collect::<Vec<_>>();
    let allowed = judged(&gates, &[(DONE, &say("allow"))]);
    assert_eq!(
        (names(&allowed), allowed.worst_verdict()),
        (vec!["hook h".to_owned(), "g".to_owned()], GateVerdict::Pass)
    );
    assert_eq!(names(&judged(&gates, &[(DONE, &say("deny"))])), ["hook h"]);
    assert!(!gates.has_gate("hook h"), "no level of access rests on a hook");
    let listed: Vec<&str> = gates.hooks().map(|hook| hook.config.name.as_str()).collect();
    assert_eq!(listed, ["h"], "a gate is none");
}

/// Rows: SCL-060
#[test]
fn a_critical_hook_that_fails_stops_and_another_one_is_noted() {
    let broken = ScriptEnd::Broken("was ended by a limit: time".into());
    let too_much = "x".repeat(MAX_SAID_BYTES + 1);
    let failures: [(ScriptEnd, &str); 8] = [
        (broken, ""),
        (ScriptEnd::Code(1), ""),
        (ScriptEnd::Code(1), "{\"verdict\": \"allow\"}"),
        (DONE, "all is well"),
        (DONE, "[]"),
        (DONE, "{\"verdict\": \"permit\"}"),
        (DONE, "{\"verdict\": true}"),
        (DONE, &too_much),
    ];
    for (end, said) in failures {
        for critical in [None, Some(true), Some(false)] {
            let mut one = hook("h", HookEvent::BeforeToolCall);
            one.config.critical = critical;
            let found = judged(&set(vec![one]), &[(end.clone(), said)]);
            let expected = if critical == Some(false) { GateVerdict::Advise } else { GateVerdict::Block };
            assert_eq!(found.worst_verdict(), expected, "{end:?} {critical:?}");
        }
    }
    // Whoever says no is heard, however it ends.
    let mut mild = hook("h", HookEvent::BeforeToolCall);
    mild.config.critical = Some(false);
    assert_eq!(
        judged(&set(vec![mild]), &[(ScriptEnd::Code(3), &say("deny"))]).worst_verdict(),
        GateVerdict::Block
    );
    let mut none = hook("h", HookEvent::BeforeToolCall);
    none.program = Err("'h.sh' cannot be read".into());
    assert_eq!(judged(&set(vec![none]), &[]).worst_verdict(), GateVerdict::Block, "without a program, too");
    assert!(!hook("h", HookEvent::AfterToolCall).config.is_critical(), "what has happened is not stopped");
}

/// Rows: SCL-061
///
/// Rows: SCL-062 SCL-065 (in part)
#[test]
fn what_a_hook_may_see_and_change_is_said_by_its_owner_alone() {
    let asks = json!({
        "tool_args": {"command": "pwd"}, "state": {"n": 1}, "permissions": ["write"], "critical": false,
    });
    let with = |permissions: Vec<Permission>| {
        let mut one = hook("h", HookEvent::BeforeToolCall);
        one.config.permissions = permissions;
        set(vec![one])
    };
    let told = |gates: &GateSet| {
        let subject = Subject::action(GatePoint::Execution, &prepared(Action::Exec(exec())));
        let mut judging = gates.begin_judging(GatePoint::Execution, subject, Some(json!({"command": "ls"})));
        let Some(Due::Script(due)) = judging.next_due() else { panic!("a program") };
        due.input.expect("it reads").keys().cloned().collect::<BTreeSet<_>>()
    };
    let reads = with(vec![Permission::Read]);
    let keys = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(told(&reads), keys(&["action", "arguments", "event", "hook", "tool", "version"]));
    let found = judged(&reads, &[(DONE, &asks.to_string())]);
    assert_eq!(
        (found.arguments.clone(), found.states.clone(), found.worst_verdict()),
        (None, vec![], GateVerdict::Advise)
    );
    for key in ["tool_args", "state", "permissions", "critical"] {
        let dropped = |(_, _, why): &(String, GateVerdict, String)| why.contains(&format!("'{key}'"));
        assert!(found.verdicts.iter().any(dropped), "{key}: {:?}", found.verdicts);
    }
    let writes = judged(&with(vec![Permission::Read, Permission::Write]), &[(DONE, &asks.to_string())]);
    assert_eq!(writes.arguments, Some(json!({"command": "pwd"})));
    assert_eq!(writes.states, [("hook h".to_owned(), json!({"n": 1}))]);
    let blind = with(Vec::new());
    assert_eq!(told(&blind), keys(&["event", "hook", "tool", "version"]));
    // The quotes of a text count.
    for (length, expected) in [(4_094, (GateVerdict::Pass, 1)), (4_095, (GateVerdict::Block, 0))] {
        let state = json!({ "state": "x".repeat(length) }).to_string();
        let found = judged(&with(vec![Permission::Write]), &[(DONE, &state)]);
        assert_eq!((found.worst_verdict(), found.states.len()), expected, "{length}");
    }
}

#[test]
fn a_text_goes_on_as_a_hook_that_may_write_has_it() {
    for (on, point, key) in [
        (HookEvent::MessageReceived, GatePoint::Input, "message"),
        (HookEvent::ResponseGenerated, GatePoint::Output, "response"),
    ] {
        let mut one = hook("h", on);
        one.config.permissions = vec![Permission::Read, Permission::Write];
        let gates = set(vec![one]);
        assert_eq!(gates.holds_output(), on == HookEvent::ResponseGenerated);
        let run = |said: &str| {
            let mut judging = gates.begin_judging(point, Subject::text("before"), None);
            let Some(Due::Script(due)) = judging.next_due() else { panic!("a program") };
            assert_eq!(due.input.expect("it reads").get("text"), Some(&json!("before")));
            judging.script_said(&DONE, said);
            judging.end_judging()
        };
        let changed = run(&json!({ key: "after" }).to_string());
        assert_eq!(
            (changed.text.as_deref(), changed.worst_verdict()),
            (Some("after"), GateVerdict::Transform)
        );
        for wrong in [json!({ key: "" }), json!({ key: 3 })] {
            assert_eq!(run(&wrong.to_string()).text, None, "{wrong}");
        }
    }
    let gates = set(vec![hook("h", HookEvent::MessageReceived)]);
    let mut long = gates.begin_judging(GatePoint::Input, Subject::text("x".repeat(MAX_VALUE_BYTES)), None);
    assert_eq!(long.next_due(), None, "what it cannot be told is not told in part");
    assert_eq!(long.end_judging().worst_verdict(), GateVerdict::Block);
}

/// What is run for a program is the text that was read, in the shell or in what its first line names.
#[test]
fn a_program_is_run_as_it_was_read() {
    let argv = |text: &str| Program::new(text.to_owned()).build_argv();
    for text in ["exit 0", "#!/bin/sh\nexit 0", "#! /bin/sh -e\nexit 0", "#!\nexit 0"] {
        assert_eq!(argv(text), ["/bin/sh", "-c", text]);
    }
    let python = argv("#!/usr/bin/python3\nprint()");
    assert_eq!(python[3..], ["hook", "#!/usr/bin/python3\nprint()", "/usr/bin/python3"]);
    let env = argv("#!/usr/bin/env  python3 \nprint()");
    assert_eq!(env[5..], ["/usr/bin/env", "python3"]);
}

#[test]
fn a_hook_takes_its_time_and_is_known_by_its_program() {
    let mut one = hook("h", HookEvent::BeforeToolCall);
    assert_eq!(one.config.time_ms(), SCRIPT_MS);
    one.config.timeout_ms = Some(70);
    assert_eq!(one.config.time_ms(), 70);
    assert_eq!(one.digest(), Some(Digest::of_bytes(b"echo '{}'")));
    assert_eq!(Hook { program: Err("gone".into()), ..one.clone() }.digest(), None);
    let gates = set(vec![hook("a", HookEvent::BeforeToolCall), one.clone()]);
    assert_eq!(gates.hook("hook h"), Some(&one));
    assert_eq!((gates.hook("h"), gates.hook("hook b")), (None, None));
    assert!(!gates.has_gate("hook h") && !gates.hears_people("hook h"), "a hook is no gate of that name");
    let listening = set(vec![hook("m", HookEvent::MessageReceived)]);
    assert!(!listening.hears_people("hook m"));
}

/// A project's hook is called there and nowhere else; one without a project, everywhere.
#[test]
fn a_hook_of_a_project_is_called_in_it_alone() {
    let mut own = hook("own", HookEvent::BeforeToolCall);
    own.config.project = Some("/work/a".into());
    own.config.digest = own.digest();
    let gates = set(vec![own, hook("any", HookEvent::BeforeToolCall)]);
    let called = |project: Option<&str>| {
        let subject = Subject::action(GatePoint::Execution, &prepared(Action::Exec(exec())));
        let mut judging = gates.begin_judging(GatePoint::Execution, subject, None).of_project(project);
        let mut called = Vec::new();
        while let Some(Due::Script(due)) = judging.next_due() {
            called.push(due.gate);
            judging.script_said(&DONE, "");
        }
        called
    };
    assert_eq!(called(Some("/work/a")), ["hook own", "hook any"]);
    assert_eq!(called(Some("/work/b")), ["hook any"]);
    assert_eq!(called(None), ["hook any"]);
}

/// Hooks are told of what has happened by event and tool.
#[test]
fn those_are_told_that_are_called_at_an_event() {
    let mut one_tool = hook("one", HookEvent::AfterToolCall);
    one_tool.config.tools = vec!["shell_exec".into()];
    let gates =
        set(vec![one_tool, hook("all", HookEvent::AfterToolCall), hook("end", HookEvent::SessionClosed)]);
    let told = |event, tool: Option<&str>| {
        let mut judging = gates.notify_hooks(event, tool, Map::from_iter([("tool".to_owned(), json!(tool))]));
        let mut told = Vec::new();
        while let Some(Due::Script(due)) = judging.next_due() {
            assert!(
                due.input.is_some_and(|input| !input.contains_key("text")),
                "what has happened is no text"
            );
            told.push(due.gate);
            judging.script_said(&DONE, "");
        }
        told
    };
    assert_eq!(told(HookEvent::AfterToolCall, Some("shell_exec")), ["hook one", "hook all"]);
    assert_eq!(told(HookEvent::AfterToolCall, Some("file_read")), ["hook all"]);
    assert_eq!(told(HookEvent::SessionClosed, None), ["hook end"]);
    assert_eq!(told(HookEvent::SessionCreated, None), Vec::<String>::new());
}

/// What a hook is told and says is bounded to the byte.
#[test]
fn what_hooks_read_and_say_is_bounded_to_the_byte() {
    let one = hook("h", HookEvent::BeforeToolCall);
    let about = |bytes: usize| Map::from_iter([("a".to_owned(), json!("x".repeat(bytes)))]);
    let frame = Value::Object(one.build_call(about(0)).expect("fits").input).to_string().len();
    assert!(one.build_call(about(MAX_VALUE_BYTES - frame)).is_ok());
    assert!(one.build_call(about(MAX_VALUE_BYTES - frame + 1)).is_err());
    let frame = r#"{"reason": ""}"#.len();
    let said = |bytes: usize| format!("{{\"reason\": \"{}\"}}", "x".repeat(bytes - frame));
    assert_eq!(one.judge_output(&DONE, &said(MAX_SAID_BYTES)).verdict, GateVerdict::Pass);
    let much = one.judge_output(&DONE, &said(MAX_SAID_BYTES + 1));
    assert!(much.verdict == GateVerdict::Block && much.reason.contains("too long"), "{}", much.reason);
    let many = |count: usize| {
        let hooks = (0..count).map(|n| hook(&format!("h{n}"), HookEvent::BeforeToolCall)).collect();
        GateSet::default().with_hooks(hooks)
    };
    assert!(many(MAX_HOOKS).is_ok());
    assert!(matches!(many(MAX_HOOKS + 1), Err(GateError::TooMany(_))));
}

#[test]
fn a_hook_without_a_name_of_its_own_is_refused() {
    let nameless = GateSet::default().with_hooks(vec![hook("", HookEvent::BeforeToolCall)]);
    let twins = [hook("a", HookEvent::BeforeToolCall), hook("a", HookEvent::AfterToolCall)];
    for refused in [nameless, GateSet::default().with_hooks(twins.into())] {
        assert!(matches!(refused, Err(GateError::Name(_))), "{refused:?}");
    }
}

/// Each setting that cannot stand is named.
#[test]
fn settings_of_hooks_that_cannot_stand_are_named() {
    let bare = || hook("h", HookEvent::BeforeToolCall).config;
    let wrong = |config: HookConfig| misplaced_setting(&config).map_or("", |(key, _)| key);
    assert_eq!(wrong(bare()), "");
    for run in ["", ".h", "a/b", "a\0"] {
        assert_eq!(wrong(HookConfig { run: run.into(), ..bare() }), "run", "{run:?}");
    }
    let digest = Some(Digest::of_bytes(b"x"));
    let in_project = |folder: &str, digest| HookConfig { project: Some(folder.into()), digest, ..bare() };
    assert_eq!(wrong(in_project("work", digest)), "project");
    assert_eq!(wrong(in_project("/work", None)), "digest");
    assert_eq!(wrong(in_project("/work", digest)), "");
    let tools = |on| HookConfig { tools: vec!["a".into()], on, ..bare() };
    assert_eq!(
        (wrong(tools(HookEvent::AfterToolCall)), wrong(tools(HookEvent::MessageReceived))),
        ("", "tools")
    );
    let time = |ms| HookConfig { timeout_ms: Some(ms), ..bare() };
    assert_eq!((wrong(time(0)), wrong(time(1)), wrong(time(MAX_SCRIPT_MS))), ("timeout_ms", "", ""));
    assert_eq!(wrong(time(MAX_SCRIPT_MS + 1)), "timeout_ms");
    let critical = |on, critical| HookConfig { on, critical: Some(critical), ..bare() };
    assert_eq!(wrong(critical(HookEvent::SessionClosed, true)), "critical");
    assert_eq!(wrong(critical(HookEvent::SessionClosed, false)), "");
    assert_eq!(wrong(critical(HookEvent::AfterToolCall, true)), "");
}

/// A hook changes the text of its own event and no other, and only where it may write.
#[test]
fn a_hook_changes_the_text_of_its_own_event_where_it_may() {
    let mut one = hook("h", HookEvent::MessageReceived);
    let said = |one: &Hook, text: &str| {
        let said = one.judge_output(&DONE, text);
        (said.verdict, said.text, said.stripped)
    };
    let left_out = |key: &str| (GateVerdict::Pass, None, vec![key.to_owned()]);
    assert_eq!(said(&one, r#"{"message": "x"}"#), left_out("message"), "it may only read");
    one.config.permissions.push(Permission::Write);
    assert_eq!(said(&one, r#"{"message": "x"}"#), (GateVerdict::Pass, Some("x".to_owned()), vec![]));
    assert_eq!(said(&one, r#"{"response": "x"}"#), left_out("response"), "another event's");
    assert_eq!(said(&one, r#"{"message": " "}"#).0, GateVerdict::Block, "no text is none");
}

/// What can be a program: a text within the bound, that which was approved.
#[test]
fn a_program_is_bounded_and_the_one_that_was_approved() {
    let config = hook("h", HookEvent::BeforeToolCall).config;
    let read = |bytes: usize| check_program(&config, "x".repeat(bytes)).is_ok();
    assert!(read(1) && read(MAX_SCRIPT_BYTES) && !read(MAX_SCRIPT_BYTES + 1));
    for empty in ["", " \n", "exit\0"] {
        assert!(check_program(&config, empty.to_owned()).is_err(), "{empty:?}");
    }
    let approved = HookConfig { digest: Some(Digest::of_bytes(b"exit 0")), ..config };
    assert!(check_program(&approved, "exit 0".into()).is_ok());
    let other = check_program(&approved, "exit 1".into()).expect_err("another program");
    assert!(other.contains(&Digest::of_bytes(b"exit 1").to_string()), "{other}");
}
