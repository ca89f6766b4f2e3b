//! Conversations with scripted agents: honest, broken and hostile ones.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, duplex,
};
use tokio_util::sync::CancellationToken;
use writ_types::error::ToReport as _;

use crate::bounds::*;
use crate::client::{AcpTurn, TurnTimes, drive_agent};
use crate::error::{AcpError, Flood, Moment};
use crate::permission::{ToolKind, is_inside};
use crate::talk::{AcpTalk, TurnOrder};
use crate::transcript::AcpStop;

fn order() -> TurnOrder {
    TurnOrder { folder: "/work".to_owned(), prompt: "Do it.".to_owned(), login: Some("key".to_owned()) }
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn read(line: Option<Vec<u8>>) -> Value {
    let line = line.expect("an answer");
    assert_eq!(line.last(), Some(&b'\n'));
    serde_json::from_slice(&line).unwrap()
}

/// Answers the newest request.
fn answer(talk: &mut AcpTalk, id: u64, result: Value) -> Result<Option<Vec<u8>>, AcpError> {
    talk.take_line(&bytes(&json!({ "jsonrpc": "2.0", "id": id, "result": result })))
}

/// A conversation whose prompt was sent.
fn at_work() -> AcpTalk {
    let (mut talk, _) = AcpTalk::begin_talk(order());
    answer(
        &mut talk,
        1,
        json!({ "protocolVersion": 1, "agentInfo": { "name": "scripted", "version": "2" } }),
    )
    .unwrap();
    answer(&mut talk, 2, json!({ "sessionId": "s1" })).unwrap();
    talk
}

fn update(update: Value) -> Vec<u8> {
    bytes(
        &json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "s1", "update": update } }),
    )
}

fn words(text: &str) -> Vec<u8> {
    update(json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } }))
}

/// A question about a tool call, with the usual answers.
fn question(call: Value) -> Vec<u8> {
    let options = json!([
        { "optionId": "ever", "kind": "allow_always" },
        { "optionId": "yes", "kind": "allow_once" },
        { "optionId": "no", "kind": "reject_once" },
    ]);
    let params = json!({ "sessionId": "s1", "toolCall": call, "options": options });
    bytes(&json!({ "jsonrpc": "2.0", "id": "q", "method": "session/request_permission", "params": params }))
}

fn asked(call: Value) -> String {
    let answer = read(at_work().take_line(&question(call)).unwrap());
    assert_eq!(answer["id"], "q");
    assert_eq!(answer["result"]["outcome"]["outcome"], "selected");
    answer["result"]["outcome"]["optionId"].as_str().unwrap().to_owned()
}

#[test]
fn a_turn_goes_from_greeting_to_stop_reason() {
    let (mut talk, first) = AcpTalk::begin_talk(order());
    let greeting = read(Some(first));
    assert_eq!(greeting["params"]["protocolVersion"], 1);
    assert_eq!(
        greeting["params"]["clientCapabilities"],
        json!({ "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false })
    );
    let opening = read(answer(&mut talk, 1, json!({ "protocolVersion": 1 })).unwrap());
    assert_eq!(opening["method"], "session/new");
    assert_eq!(opening["params"], json!({ "cwd": "/work", "mcpServers": [] }));
    let prompt = read(answer(&mut talk, 2, json!({ "sessionId": "s1" })).unwrap());
    assert_eq!(prompt["method"], "session/prompt");
    assert_eq!(prompt["params"]["prompt"], json!([{ "type": "text", "text": "Do it." }]));
    talk.take_line(&words("First I look. ")).unwrap();
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "kind": "edit", "title": "Edit a\nb", "status": "pending" });
    talk.take_line(&update(call)).unwrap();
    talk.take_line(&update(
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed" }),
    ))
    .unwrap();
    talk.take_line(&words("It is ")).unwrap();
    talk.take_line(&words("done.")).unwrap();
    talk.take_line(&update(json!({ "sessionUpdate": "of_a_later_version", "x": 1 }))).unwrap();
    assert_eq!(talk.stop_reason(), None);
    assert_eq!(answer(&mut talk, 3, json!({ "stopReason": "end_turn" })).unwrap(), None);
    assert_eq!(talk.stop_reason(), Some(AcpStop::EndTurn));
    let transcript = talk.into_transcript();
    assert_eq!(transcript.last_words, "It is done.");
    assert_eq!(transcript.calls.len(), 1);
    let call = &transcript.calls[0];
    assert_eq!(
        (call.kind, call.title.as_str(), call.status.as_str()),
        (ToolKind::Edit, "Edit a b", "completed")
    );
}

#[test]
fn last_words_stand_where_a_call_comes_after_them() {
    let mut talk = at_work();
    talk.take_line(&words("All done.")).unwrap();
    talk.take_line(&update(json!({ "sessionUpdate": "tool_call", "toolCallId": "t" }))).unwrap();
    assert_eq!(talk.into_transcript().last_words, "All done.");
}

#[test]
fn logs_between_messages_are_passed_over_and_counted() {
    let mut talk = at_work();
    for line in [
        "[agent] ready",
        "",
        "{\"level\":\"info\"}",
        "[1,2]",
        "{\"id\":99,\"result\":{}}",
        "\u{1b}[2J",
        "null",
    ] {
        assert_eq!(talk.take_line(line.as_bytes()), Ok(None), "{line}");
    }
    assert_eq!(talk.clone().into_transcript().stray_lines, 7);
    for _ in 0..MAX_STRAY_LINES - 7 {
        talk.take_line(b"log").unwrap();
    }
    assert_eq!(talk.take_line(b"log"), Err(AcpError::Flooded(Flood::Lines)));
}

#[test]
fn other_versions_are_refused_with_their_number() {
    for version in [json!(2), json!("2025-06-18"), json!(null), json!(-1)] {
        let (mut talk, _) = AcpTalk::begin_talk(order());
        let error = answer(&mut talk, 1, json!({ "protocolVersion": version })).unwrap_err();
        assert_eq!(error, AcpError::Version(version.to_string()));
        assert_eq!(error.report().code, "acp.version");
    }
}

#[test]
fn a_login_is_made_once_and_only_where_its_owner_has_named_it() {
    let denied = |id: u64| {
        bytes(&json!({ "id": id, "error": { "code": -32_000, "message": "Authentication required" } }))
    };
    let offer = json!({ "protocolVersion": 1, "authMethods": [{ "id": "account" }, { "id": "key" }] });
    let (mut talk, _) = AcpTalk::begin_talk(order());
    answer(&mut talk, 1, offer.clone()).unwrap();
    let login = read(talk.take_line(&denied(2)).unwrap());
    assert_eq!((&login["method"], &login["params"]), (&json!("authenticate"), &json!({ "methodId": "key" })));
    assert_eq!(read(answer(&mut talk, 3, json!({})).unwrap())["method"], "session/new");
    // It demands it again: there is no other way.
    assert!(matches!(
        talk.take_line(&denied(4)),
        Err(AcpError::Refused { code: -32_000, at: Moment::Opening, .. })
    ));

    let (mut talk, _) = AcpTalk::begin_talk(TurnOrder { login: None, ..order() });
    answer(&mut talk, 1, offer).unwrap();
    assert_eq!(talk.take_line(&denied(2)), Err(AcpError::Login("account, key".to_owned())));
}

#[test]
fn questions_are_answered_by_the_rule() {
    let call = |kind: &str, places: &Value| json!({ "toolCallId": "t", "kind": kind, "title": "x", "locations": places });
    for kind in ["edit", "delete", "move"] {
        let call = |places: &Value| call(kind, places);
        for path in ["/work/src/a.rs", "/work", "src/a.rs", "/tmp/x/y", "/home/agent/.cache/x"] {
            assert_eq!(asked(call(&json!([{ "path": path, "line": 3 }]))), "yes", "{kind} {path}");
        }
        // Its changes may come later; the sandbox is the wall.
        assert_eq!(asked(json!({ "toolCallId": "t", "kind": kind })), "yes", "{kind}");
        for path in [
            "/etc/passwd",
            "/work/../etc/passwd",
            "../x",
            "/workshop/a",
            "/home/user/.ssh/id",
            "~/x",
            "file:///etc/passwd",
            "",
        ] {
            assert_eq!(asked(call(&json!([{ "path": "/work/a" }, { "path": path }]))), "no", "{kind} {path}");
        }
        let many: Vec<Value> = (0..=MAX_PATHS).map(|n| json!({ "path": format!("/work/{n}") })).collect();
        assert_eq!(asked(call(&json!(many))), "no");
        assert_eq!(asked(call(&json!([{ "path": 7 }]))), "no");
    }
    let diff = |path: &str| json!({ "toolCallId": "t", "kind": "edit", "content": [{ "type": "diff", "path": path, "newText": "" }] });
    assert_eq!(asked(diff("/work/a")), "yes");
    assert_eq!(asked(diff("/srv/a")), "no");
    // A no would end the turn of many agents, and a yes lets them do nothing that the sandbox does not.
    for kind in ["read", "search", "execute", "think", "fetch", "other", "sudo"] {
        assert_eq!(asked(json!({ "toolCallId": "t", "kind": kind })), "yes", "{kind}");
        assert_eq!(asked(call(kind, &json!([{ "path": "/usr/include/a.h" }]))), "yes", "{kind}");
    }
    assert_eq!(asked(json!({ "toolCallId": "t", "kind": "switch_mode" })), "no");
}

/// Of two ways to say no the one is chosen that lets the turn go on.
#[test]
fn a_no_refuses_the_call_and_not_the_turn() {
    let refuse = |options: Value| {
        let call = json!({ "toolCallId": "t", "kind": "edit", "locations": [{ "path": "/etc/passwd" }] });
        let params = json!({ "sessionId": "s1", "toolCall": call, "options": options });
        let line = bytes(&json!({ "id": 7, "method": "session/request_permission", "params": params }));
        read(at_work().take_line(&line).unwrap())["result"]["outcome"]["optionId"].clone()
    };
    let (end, no) = (
        json!({ "optionId": "cancel", "kind": "reject_once" }),
        json!({ "optionId": "decline", "kind": "reject_once" }),
    );
    assert_eq!(refuse(json!([end, no])), "decline");
    assert_eq!(refuse(json!([no, end])), "decline");
    assert_eq!(refuse(json!([end])), "cancel");
}

/// A question in a line that is too long has an answer, so that its agent does not wait until its time is over.
#[test]
fn a_question_that_is_too_long_is_refused() {
    let head = |line: &str| {
        let answer = at_work().pass_over(5_000_000, line.as_bytes()).unwrap();
        answer.map(|line| read(Some(line)))
    };
    let asked = head(
        r#"{"jsonrpc":"2.0","id":"q-1","method":"session/request_permission","params":{"toolCall":{"content":[{"oldText":"x"#,
    );
    assert_eq!(
        asked.map(|answer| (answer["id"].clone(), answer["error"]["code"].clone())),
        Some((json!("q-1"), json!(-32_602)))
    );
    let asked = head(r#"{ "method" : "session/request_permission", "id" : 12, "params": {"toolCallId": "#);
    assert_eq!(asked.map(|answer| answer["id"].clone()), Some(json!(12)));
    for other in [
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"id":3,"x":""#,
        r#"{"id":3,"method":"fs/read_text_file","params":{"x":"\"method\":\"session/request_permission\""#,
        r#"{"method":"session/request_permission","params":{"toolCallId":"x"#,
        r#"{"method":"session/request_permission","id":{"a":1},"#,
        "",
    ] {
        assert_eq!(head(other), None, "{other}");
    }
}

#[test]
fn a_yes_for_ever_is_never_given() {
    let mut talk = at_work();
    let ask = |options: Value| {
        let call = json!({ "toolCallId": "t", "kind": "execute" });
        let params = json!({ "sessionId": "s1", "toolCall": call, "options": options });
        bytes(&json!({ "id": 7, "method": "session/request_permission", "params": params }))
    };
    let only = json!([{ "optionId": "ever", "kind": "allow_always" }, { "optionId": "never", "kind": "reject_always" }]);
    assert_eq!(read(talk.take_line(&ask(only)).unwrap())["result"]["outcome"]["optionId"], "never");
    let none = read(talk.take_line(&ask(json!([{ "optionId": "ever", "kind": "allow_always" }]))).unwrap());
    assert_eq!(none["error"]["code"], -32_602);
    let transcript = talk.into_transcript();
    assert_eq!(transcript.refused, 2);
    assert!(transcript.calls[0].asked.unwrap().is_err());
}

#[test]
fn a_question_uses_the_kind_and_the_paths_that_were_named_before() {
    for (kind, path, option) in
        [("edit", "/work/a", "yes"), ("edit", "/etc/passwd", "no"), ("switch_mode", "/work/a", "no")]
    {
        let mut talk = at_work();
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "kind": kind, "locations": [{ "path": path }] });
        talk.take_line(&update(call)).unwrap();
        let answer = read(talk.take_line(&question(json!({ "toolCallId": "t" }))).unwrap());
        assert_eq!(answer["result"]["outcome"]["optionId"], option, "{kind} {path}");
    }
}

#[test]
fn a_question_in_the_middle_of_a_cancel_is_answered_as_cancelled() {
    let mut talk = at_work();
    let cancel = read(talk.cancel_turn());
    assert_eq!(
        (&cancel["method"], &cancel["params"], cancel.get("id")),
        (&json!("session/cancel"), &json!({ "sessionId": "s1" }), None)
    );
    assert_eq!(talk.cancel_turn(), None);
    let answer = read(talk.take_line(&question(json!({ "toolCallId": "t", "kind": "read" }))).unwrap());
    assert_eq!(answer["result"], json!({ "outcome": { "outcome": "cancelled" } }));
    // An agent that has no answer to the request to end says so, and one whose work breaks off as well.
    talk.take_line(&bytes(&json!({ "id": null, "error": { "code": -32_601, "message": "session/cancel" } })))
        .unwrap();
    talk.take_line(&bytes(&json!({ "id": 3, "error": { "code": -32_603, "message": "aborted" } }))).unwrap();
    assert_eq!(talk.stop_reason(), Some(AcpStop::Cancelled));
}

#[test]
fn files_and_terminals_are_not_offered() {
    let mut talk = at_work();
    for method in ["fs/read_text_file", "fs/write_text_file", "terminal/create", "elicitation/create", "_own"]
    {
        let params = json!({ "sessionId": "s1", "path": "/etc/passwd", "content": "x", "command": "id" });
        let answer =
            read(talk.take_line(&bytes(&json!({ "id": 5, "method": method, "params": params }))).unwrap());
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(5), &json!(-32_601)), "{method}");
    }
    assert_eq!(talk.into_transcript().unoffered, 5);
}

#[test]
fn other_sessions_are_no_part_of_the_turn() {
    let mut talk = at_work();
    let params = json!({ "sessionId": "s2", "update": { "sessionUpdate": "agent_message_chunk", "content": { "text": "x" } } });
    talk.take_line(&bytes(&json!({ "method": "session/update", "params": params }))).unwrap();
    let params =
        json!({ "sessionId": "s2", "toolCall": { "toolCallId": "t", "kind": "read" }, "options": [] });
    let answer = read(
        talk.take_line(&bytes(&json!({ "id": 1, "method": "session/request_permission", "params": params })))
            .unwrap(),
    );
    assert_eq!(answer["error"]["code"], -32_602);
    assert_eq!(talk.into_transcript().last_words, "");
}

#[test]
fn what_is_remembered_has_bounds() {
    let mut talk = at_work();
    let long = "é".repeat(MAX_WORDS_BYTES);
    for _ in 0..4 {
        talk.take_line(&words(&long)).unwrap();
    }
    talk.take_line(&words("END")).unwrap();
    for n in 0..=MAX_TOOL_CALLS + 1 {
        let title = "x".repeat(1_000);
        talk.take_line(&update(
            json!({ "sessionUpdate": "tool_call", "toolCallId": n.to_string(), "title": title }),
        ))
        .unwrap();
    }
    let transcript = talk.into_transcript();
    assert!(transcript.last_words.len() <= MAX_WORDS_BYTES && transcript.last_words.ends_with("éEND"));
    assert_eq!((transcript.calls.len(), transcript.more_calls), (MAX_TOOL_CALLS, 2));
    assert!(transcript.calls.iter().all(|call| call.title.len() == MAX_TITLE_CHARS));
}

#[test]
fn a_turn_has_an_end_to_its_bytes_and_messages() {
    let mut talk = at_work();
    talk.pass_over(MAX_TURN_BYTES / 2, b"").unwrap();
    assert_eq!(talk.pass_over(MAX_TURN_BYTES / 2, b""), Err(AcpError::Flooded(Flood::Bytes)));
    let (mut talk, line) = (at_work(), br#"{"method":"_news"}"#);
    // Two answers came before.
    for _ in 0..MAX_MESSAGES - 2 {
        talk.take_line(line).unwrap();
    }
    assert_eq!(talk.take_line(line), Err(AcpError::Flooded(Flood::Messages)));
}

#[test]
fn wrong_answers_end_the_conversation_with_their_moment() {
    let (mut talk, _) = AcpTalk::begin_talk(order());
    answer(&mut talk, 1, json!({ "protocolVersion": 1 })).unwrap();
    for session in [
        json!({}),
        json!({ "sessionId": 7 }),
        json!({ "sessionId": "" }),
        json!({ "sessionId": "x".repeat(MAX_ID_BYTES + 1) }),
    ] {
        assert!(matches!(
            answer(&mut talk.clone(), 2, session),
            Err(AcpError::Wrong { at: Moment::Opening, .. })
        ));
    }
    for end in [json!({}), json!({ "stopReason": "bored" }), json!(null)] {
        assert!(matches!(answer(&mut at_work(), 3, end), Err(AcpError::Wrong { at: Moment::Work, .. })));
    }
}

/// A value of any shape, with the names and texts that the protocol reads.
fn any_value() -> impl Strategy<Value = Value> {
    let known = [
        "s1",
        "t",
        "session/update",
        "session/request_permission",
        "tool_call",
        "agent_message_chunk",
        "edit",
        "diff",
        "/work/a",
        "allow_once",
        "reject_once",
        "end_turn",
        "é\u{0}\"",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(known.to_vec()).prop_map(Value::from),
    ];
    let names = [
        "id",
        "method",
        "params",
        "result",
        "error",
        "code",
        "message",
        "sessionId",
        "update",
        "sessionUpdate",
        "content",
        "text",
        "type",
        "path",
        "locations",
        "toolCall",
        "toolCallId",
        "kind",
        "title",
        "status",
        "options",
        "optionId",
        "stopReason",
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        let field = (prop::sample::select(names.to_vec()), inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            prop::collection::vec(field, 0..6).prop_map(|fields| fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    /// Known methods with parameters of every shape, at work and after the end of the turn.
    #[test]
    fn no_message_ends_in_a_panic_or_in_a_line_that_is_no_message(
        method in prop::sample::select(&["session/update", "session/request_permission", "fs/read_text_file"][..]),
        id in any_value(),
        params in any_value(),
        call in any_value(),
        is_over in any::<bool>(),
    ) {
        let mut talk = at_work();
        if is_over {
            answer(&mut talk, 3, json!({ "stopReason": "end_turn" })).unwrap();
        }
        let ours = json!({ "sessionId": "s1", "update": params, "toolCall": call, "options": id });
        for params in [params.clone(), ours] {
            let line = bytes(&json!({ "id": id, "method": method, "params": params }));
            if let Ok(Some(answer)) = talk.take_line(&line) {
                let answer: Value = serde_json::from_slice(&answer).unwrap();
                prop_assert!(answer.get("result").is_some() != answer.get("error").is_some());
            }
        }
        let _ = talk.take_line(&bytes(&json!({ "id": 3, "result": params, "error": call })));
    }

    #[test]
    fn no_line_ends_in_a_panic_or_in_a_line_that_is_no_message(line in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(Some(answer)) = at_work().take_line(&line) {
            prop_assert!(serde_json::from_slice::<Value>(&answer).is_ok());
        }
    }

    #[test]
    fn a_path_that_is_inside_by_its_letters_never_leads_out(path in "[a./~]{0,12}") {
        let joined = std::path::Path::new("/work").join(&path);
        let mut depth = 0_i32;
        for part in joined.components().skip(2) {
            depth += if part == std::path::Component::ParentDir { -1 } else { 1 };
        }
        if is_inside("/work", &path) {
            prop_assert!(joined.starts_with("/work") && depth >= 0);
        }
    }
}

// === Over streams ===
//
// Their clock stands still while anything can go on, so no wait ends because the machine is busy.

fn soon() -> TurnTimes {
    TurnTimes { start: Duration::from_secs(2), cancel: Duration::from_millis(300) }
}

/// Drives an agent that is a function of its two streams.
async fn drive<F>(
    times: TurnTimes,
    cancel: &CancellationToken,
    agent: impl FnOnce(BufReader<DuplexStream>, DuplexStream) -> F,
) -> AcpTurn
where
    F: Future<Output = ()>,
{
    let ((near_in, far_out), (far_in, near_out)) = (duplex(4096), duplex(4096));
    let turn = drive_agent((near_in, near_out), order(), times, cancel);
    let agent = agent(BufReader::new(far_in), far_out);
    tokio::select! {
        turn = turn => turn,
        turn = async { agent.await; std::future::pending().await } => turn,
    }
}

/// Answers the greeting and the opening. Returns the number of the prompt's request.
async fn open(read: &mut BufReader<DuplexStream>, write: &mut DuplexStream) -> Value {
    for result in [json!({ "protocolVersion": 1 }), json!({ "sessionId": "s1" })] {
        let asked = next(read).await;
        tell(write, &json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result })).await;
    }
    next(read).await["id"].clone()
}

async fn next(read: &mut BufReader<DuplexStream>) -> Value {
    let mut line = String::new();
    read.read_line(&mut line).await.unwrap();
    serde_json::from_str(&line).unwrap()
}

async fn tell(write: &mut DuplexStream, message: &Value) {
    write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_update_of_a_hundred_megabytes_is_passed_over() {
    let turn = drive(soon(), &CancellationToken::new(), async |mut read, mut write| {
        let id = open(&mut read, &mut write).await;
        let block = vec![b'x'; 1024 * 1024];
        for _ in 0..100 {
            write.write_all(&block).await.unwrap();
        }
        write.write_all(b"\n").await.unwrap();
        tell(&mut write, &json!({ "id": id, "result": { "stopReason": "end_turn" } })).await;
        std::future::pending::<()>().await;
    })
    .await;
    assert_eq!(turn.end, Ok(AcpStop::EndTurn));
    assert!(turn.transcript.bytes > 100 * 1024 * 1024 && turn.transcript.long_lines > 0);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_writes_without_end_is_stopped() {
    let turn = drive(soon(), &CancellationToken::new(), async |mut read, mut write| {
        open(&mut read, &mut write).await;
        let block = vec![b'x'; 1024 * 1024];
        while write.write_all(&block).await.is_ok() {}
    })
    .await;
    assert_eq!(turn.end, Err(AcpError::Flooded(Flood::Bytes)));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_never_answers_its_greeting_is_not_waited_for() {
    let times = TurnTimes { start: Duration::from_millis(100), ..soon() };
    let turn = drive(times, &CancellationToken::new(), async |_read, mut write| {
        // It is busy with logs meanwhile.
        for _ in 0..100 {
            write.write_all(b"loading\n").await.unwrap();
        }
        std::future::pending::<()>().await;
    })
    .await;
    assert_eq!(turn.end, Err(AcpError::NotReady { at: Moment::Greeting, secs: 0 }));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_dies_is_named_with_the_moment() {
    let turn = drive(soon(), &CancellationToken::new(), async |_read, _write| {}).await;
    assert_eq!(turn.end, Err(AcpError::Gone(Moment::Greeting)));
    let turn = drive(soon(), &CancellationToken::new(), async |mut read, mut write| {
        open(&mut read, &mut write).await;
        write.write_all(&words("I go")).await.unwrap();
        write.write_all(b"\n{\"half\":").await.unwrap();
    })
    .await;
    assert_eq!(turn.end, Err(AcpError::Gone(Moment::Work)));
    assert_eq!(turn.transcript.last_words, "I go");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_end_its_turn_is_given_up() {
    let cancel = CancellationToken::new();
    let turn = drive(soon(), &cancel, async |mut read, mut write| {
        open(&mut read, &mut write).await;
        cancel.cancel();
        assert_eq!(next(&mut read).await["method"], "session/cancel");
        // It asks instead of ending.
        write.write_all(&question(json!({ "toolCallId": "t", "kind": "read" }))).await.unwrap();
        write.write_all(b"\n").await.unwrap();
        assert_eq!(next(&mut read).await["result"]["outcome"]["outcome"], "cancelled");
        std::future::pending::<()>().await;
    })
    .await;
    assert_eq!(turn.end, Err(AcpError::NotEnded));
}

#[tokio::test(start_paused = true)]
async fn an_agent_ends_its_turn_when_it_is_asked_to() {
    let cancel = CancellationToken::new();
    let turn = drive(soon(), &cancel, async |mut read, mut write| {
        let id = open(&mut read, &mut write).await;
        cancel.cancel();
        next(&mut read).await;
        tell(&mut write, &json!({ "id": id, "result": { "stopReason": "cancelled" } })).await;
        std::future::pending::<()>().await;
    })
    .await;
    assert_eq!(turn.end, Ok(AcpStop::Cancelled));
}

/// Some agents send the end of their turn first and the rest of their words after it.
#[tokio::test(start_paused = true)]
async fn words_after_the_end_of_a_turn_are_heard() {
    let turn = drive(soon(), &CancellationToken::new(), async |mut read, mut write| {
        let id = open(&mut read, &mut write).await;
        write.write_all(&words("All is ")).await.unwrap();
        write.write_all(b"\n").await.unwrap();
        tell(&mut write, &json!({ "id": id, "result": { "stopReason": "end_turn" } })).await;
        write.write_all(&words("done.")).await.unwrap();
        write.write_all(b"\n").await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    assert_eq!((turn.end, turn.transcript.last_words.as_str()), (Ok(AcpStop::EndTurn), "All is done."));
}

/// One that goes on writing has ended its turn all the same.
#[tokio::test(start_paused = true)]
async fn words_after_the_end_of_a_turn_have_an_end() {
    let began = tokio::time::Instant::now();
    let turn = drive(soon(), &CancellationToken::new(), async |mut read, mut write| {
        let id = open(&mut read, &mut write).await;
        tell(&mut write, &json!({ "id": id, "result": { "stopReason": "end_turn" } })).await;
        let mut pace = tokio::time::interval(Duration::from_millis(100));
        loop {
            pace.tick().await;
            write.write_all(&words("x")).await.unwrap();
            write.write_all(b"\n").await.unwrap();
        }
    })
    .await;
    assert_eq!(turn.end, Ok(AcpStop::EndTurn));
    assert!(began.elapsed() >= LATE_TIME && began.elapsed() < LATE_TIME * 2);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_reads_nothing_is_given_up() {
    let turn = drive(soon(), &CancellationToken::new(), async |mut read, mut write| {
        open(&mut read, &mut write).await;
        let asked = json!({ "id": 1, "method": "fs/read_text_file", "params": {} });
        for _ in 0..1_000 {
            tell(&mut write, &asked).await;
        }
        // Its input stays open.
        std::future::pending::<()>().await;
        let _ = read.read_u8().await;
    })
    .await;
    assert_eq!(turn.end, Err(AcpError::Deaf));
}
