//! The model router of locked agents: over its socket, with keys of an agent, to a scripted model server.

use std::path::PathBuf;
use std::sync::mpsc::Receiver;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use writ_fleet::models::server::{MAX_BODY_BYTES, RouterSocket};
use writ_inspect::scope::{ANY, Dimension};
use writ_policy::keys::grants::Grants;
use writ_policy::keys::limits::{AmountLimit, OperationLimits};
use writ_policy::keys::{BaseClaims, Case, ROUTER, TASK_KEY_TTL, TaskClaims, mint_base, mint_task};
use writ_runtime::routed::{CallCount, CallReport};
use writ_secrets::contents::{SEALED_PROMPT, SEALED_REPLY};
use writ_store::batch::{Batch, Op};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate, list_of_replies};
use writ_types::action::{Action, ActionKind};
use writ_types::chat::{ModelReply, ModelRequest, Part};
use writ_types::digest::Digest;
use writ_types::entry::{DenyReason, Fact};
use writ_types::id::KeyId;
use writ_types::taint::Clearance;
use writ_types::unit::Tokens;

use crate::harness::{BEGIN, TestEngine, contents, keys};

/// Text with what formats escape and count differently.
const ODD: &str = "¶ \u{1F980} \"quoted\" \\ back\nline\ttab \u{7f}\u{1} \u{2028} e\u{301} </data> \r\n end ";

/// The reports that may wait: more than a test makes calls.
const REPORTS: usize = 100;

/// An engine with its model router, and the keys of an agent.
struct Fleet {
    handed: TestEngine,
    socket: PathBuf,
    keys: (String, String),
    task: KeyId,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    /// What the router reports.
    reported: mpsc::Receiver<CallReport>,
    _folder: tempfile::TempDir,
}

impl Fleet {
    fn new(script: impl FnMut(&ParsedRequest) -> Reply + Send + 'static) -> Self {
        Self::with_grants(grants(), script)
    }

    fn with_grants(grants: Grants, script: impl FnMut(&ParsedRequest) -> Reply + Send + 'static) -> Self {
        Self::cleared(Clearance::default(), grants, script)
    }

    fn cleared(
        clearance: Clearance,
        grants: Grants,
        script: impl FnMut(&ParsedRequest) -> Reply + Send + 'static,
    ) -> Self {
        let handed = TestEngine::cleared(clearance, |_| script);
        let [root, router, _] = keys();
        let (installation, epoch) =
            (handed.store.installation(), handed.store.blocking().epoch().expect("reads"));
        let ends = BEGIN.plus_duration(TASK_KEY_TTL);
        let claims = BaseClaims {
            key: KeyId::from_parts(BEGIN, 11),
            installation,
            epoch,
            agent: "refund-agent".to_owned(),
            policy: Digest::of_bytes(b"policy"),
            expires_at: ends,
            grants: grants.clone(),
        };
        let base = mint_base(&claims, &root).expect("mints");
        let task = TaskClaims {
            key: KeyId::from_parts(BEGIN, 12),
            base: claims.key,
            session: writ_types::id::SessionId::from_parts(BEGIN, 13),
            not_before: BEGIN,
            expires_at: ends,
            grants,
            case: Some(Case {
                task: "chat-1".to_owned(),
                customer: "cust_tk_1".to_owned(),
                case: "case_tk_1".to_owned(),
                granted_by: ROUTER.to_owned(),
            }),
            under: Default::default(),
            plan: None,
        };
        let token = mint_task(&base, &task, &root.verifying_key(), &router).expect("mints");
        let folder = tempfile::tempdir().expect("a folder");
        let (socket, stop) = (folder.path().join("r.sock"), CancellationToken::new());
        let (observer, reported) = mpsc::channel(REPORTS);
        let serving = {
            let _in_runtime = handed.runtime.enter();
            let bound = RouterSocket::bind(&socket).expect("binds").with_observer(observer);
            tokio::spawn(bound.serve_agents(handed.engine.clone(), stop.clone()))
        };
        let keys = (String::from(base), String::from(token));
        Self { handed, socket, keys, task: task.key, stop, serving, reported, _folder: folder }
    }

    /// Sends a request; returns status and body.
    fn send(&self, head: &str, body: &[u8]) -> (u16, String) {
        self.handed.runtime.block_on(async {
            let mut stream = UnixStream::connect(&self.socket).await.expect("connects");
            let length = body.len();
            let head = format!("{head}\r\nhost: r\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.expect("writes");
            // A request that is refused early is not read to its end.
            let _ = stream.write_all(body).await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            let answer = String::from_utf8(answer).expect("UTF-8");
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
            let status = head.get(9..12).and_then(|status| status.parse().ok()).expect("a status");
            let body = if head.to_lowercase().contains("transfer-encoding: chunked") {
                dechunk(body)
            } else {
                body.to_owned()
            };
            (status, body)
        })
    }

    fn post(&self, path: &str, body: &Value) -> (u16, String) {
        let (base, task) = &self.keys;
        let head = format!("POST {path} HTTP/1.1\r\nwrit-base-key: {base}\r\nwrit-task-key: {task}");
        self.send(&head, body.to_string().as_bytes())
    }

    /// Sends a request, and hangs up when the model was asked and, where a text is given, that has come of the answer.
    fn hang_up(&self, body: &Value, asked: &Receiver<()>, text: Option<&str>) {
        let (base, task) = &self.keys;
        let body = body.to_string();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\nwrit-base-key: {base}\r\nwrit-task-key: {task}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.handed.runtime.block_on(async {
            let mut stream = UnixStream::connect(&self.socket).await.expect("connects");
            stream.write_all(request.as_bytes()).await.expect("writes");
            asked.recv().expect("the model was asked");
            let (mut read, mut buffer) = (String::new(), [0; 4_096]);
            while text.is_some_and(|text| !read.contains(text)) {
                let count = stream.read(&mut buffer).await.expect("reads");
                assert!(count > 0, "ended: {read}");
                read.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
    }

    /// Returns the status of a list of the models.
    fn list(&self) -> u16 {
        let (base, task) = &self.keys;
        let head = format!("GET /v1/models HTTP/1.1\r\nwrit-base-key: {base}\r\nwrit-task-key: {task}");
        self.send(&head, b"").0
    }

    fn chat(&self, body: &Value) -> (u16, Value) {
        let (status, body) = self.post("/v1/chat/completions", body);
        (status, serde_json::from_str(&body).expect("JSON"))
    }

    /// The prompts and answers of the ledger, oldest first.
    fn recorded(&self) -> (Vec<ModelRequest>, Vec<ModelReply>) {
        let prompt = |fact| {
            let Fact::Intent { requester: Some(requester), action: Action::ModelCall(_), .. } = fact else {
                return None;
            };
            assert_eq!(requester.agent, "refund-agent");
            assert_eq!(requester.base, Some(Digest::of_bytes(self.keys.0.as_bytes())));
            assert_eq!(requester.task, Some(Digest::of_bytes(self.keys.1.as_bytes())));
            let plain = contents().open_content(SEALED_PROMPT, &requester.sealed_prompt?).expect("opens");
            let mut prompt: Value = serde_json::from_slice(&plain).expect("JSON");
            Some(serde_json::from_value(prompt["sent"].take()).expect("a prompt"))
        };
        let reply = |fact| {
            let Fact::ModelCalled { sealed_reply, .. } = fact else { return None };
            let plain = contents().open_content(SEALED_REPLY, &sealed_reply?).expect("opens");
            Some(serde_json::from_slice(&plain).expect("a reply"))
        };
        let prompts = self.handed.facts("intent").into_iter().filter_map(prompt).collect();
        (prompts, self.handed.facts("model_called").into_iter().filter_map(reply).collect())
    }

    /// What the provider was not told, by the marks of the first prompt.
    fn withheld(&self) -> Value {
        let facts = self.handed.facts("intent");
        let Some(Fact::Intent { requester: Some(requester), .. }) = facts.first() else {
            panic!("{facts:?}")
        };
        let sealed = requester.sealed_prompt.as_ref().expect("a prompt");
        let plain = contents().open_content(SEALED_PROMPT, sealed).expect("opens");
        serde_json::from_slice::<Value>(&plain).expect("JSON")["withheld"].take()
    }

    fn asked(&self) -> usize {
        self.handed.server.recorded_requests().len()
    }

    fn end(self) {
        self.stop.cancel();
        self.handed.runtime.block_on(self.serving).expect("ends");
        self.handed.end();
    }
}

fn grants() -> Grants {
    Grants::default().allow_kind(ActionKind::ModelCall, [(Dimension::Provider, ANY)])
}

/// Grants with a quota of tokens.
fn with_quota(max: i64) -> Grants {
    let tokens = AmountLimit { min: 1, max, daily: None };
    let limits =
        OperationLimits { amounts: [("tokens".to_owned(), tokens)].into(), ..OperationLimits::default() };
    let mut limited = grants();
    limited.limits.insert("model_call".to_owned(), limits);
    limited
}

fn dechunk(mut rest: &str) -> String {
    let mut whole = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        whole.push_str(after.get(..size).expect("a chunk"));
        rest = after.get(size..).and_then(|rest| rest.strip_prefix("\r\n")).unwrap_or_default();
    }
    whole
}

fn asking(text: &str) -> Value {
    json!({ "model": "default", "messages": [{ "role": "user", "content": text }] })
}

/// The data of a stream's events, and their names where they have one.
fn events(stream: &str) -> Vec<(String, String)> {
    let event = |block: &str| {
        let field = |name: &str| {
            block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
        };
        (field("event: "), field("data: "))
    };
    stream.split("\n\n").filter(|block| !block.is_empty()).map(event).collect()
}

/// The texts of a prompt in their order: instructions, messages, arguments, results.
fn texts_of(prompt: &ModelRequest) -> Vec<String> {
    let parts = prompt.messages.iter().flat_map(|message| &message.parts);
    let texts = parts.filter_map(|part| match part {
        Part::Text { text } => Some(text.clone()),
        Part::Call(call) => Some(call.arguments.to_string()),
        Part::Result(result) => Some(result.text.clone()),
        Part::Reasoning(_) | Part::File(_) => None,
    });
    [prompt.system.clone()].into_iter().chain(texts).collect()
}

/// What the ledger has of a call are the bytes that the model was sent and has answered.
///
/// Rows: SLO-056 SLO-064
#[test]
fn prompt_and_answer_are_in_the_ledger_byte_for_byte() {
    let answer = format!("I see: {ODD}");
    let said = answer.clone();
    let fleet = Fleet::new(move |_: &ParsedRequest| {
        Reply::text(&said).and_call("refund", json!({ "note": ODD })).with_usage(321, 45)
    });
    let call = json!({ "id": "call_1", "type": "function", "function": { "name": "look", "arguments": json!({ "q": ODD }).to_string() } });
    let (status, body) = fleet.chat(&json!({
        "model": "test/scripted", "temperature": 0.2, "seed": 7, "user": null, "a_field_of_tomorrow": { "x": 1 }, "stop": null,
        "max_completion_tokens": 900,
        "messages": [
            { "role": "system", "content": format!("Rules. {ODD}") },
            { "role": "user", "content": [{ "type": "text", "text": ODD }, { "type": "text", "text": "more" }] },
            { "role": "assistant", "content": null, "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "call_1", "content": format!("seen {ODD}") },
        ],
        "tools": [{ "type": "function", "function": { "name": "refund", "description": ODD, "parameters": { "type": "object", "properties": { "note": { "type": "string" } } } } }],
    }));
    assert_eq!(status, 200, "{body}");
    let message = &body["choices"][0]["message"];
    assert_eq!(
        (message["content"].as_str(), &body["choices"][0]["finish_reason"]),
        (Some(answer.as_str()), &json!("tool_calls"))
    );
    let arguments = message["tool_calls"][0]["function"]["arguments"].as_str().expect("a text");
    assert_eq!(serde_json::from_str::<Value>(arguments).expect("JSON"), json!({ "note": ODD }));
    assert_eq!(
        body["usage"],
        json!({ "prompt_tokens": 321, "completion_tokens": 45, "total_tokens": 366, "prompt_tokens_details": { "cached_tokens": 0 } })
    );
    let (prompts, replies) = fleet.recorded();
    let ([prompt], [reply]) = (&prompts[..], &replies[..]) else {
        panic!("one call: {prompts:?} {replies:?}")
    };
    let sent = &fleet.handed.server.recorded_requests()[0].body;
    let text = |place: &str| sent.pointer(place).and_then(Value::as_str).expect(place).to_owned();
    let on_the_wire = [
        text("/messages/0/content"),
        text("/messages/1/content"),
        serde_json::from_str::<Value>(&text("/messages/2/tool_calls/0/function/arguments"))
            .expect("JSON")
            .to_string(),
        text("/messages/3/content"),
    ];
    assert_eq!(texts_of(prompt), on_the_wire);
    assert_eq!(on_the_wire[1], format!("{ODD}more"), "what the agent wrote");
    assert_eq!(prompt.tools[0].description, text("/tools/0/function/description"));
    assert_eq!((reply.text.as_str(), &reply.calls[0].arguments), (answer.as_str(), &json!({ "note": ODD })));
    assert_eq!((reply.usage.input, reply.usage.output), (Tokens::new(321), Tokens::new(45)));
    fleet.end();
}

/// A call that the ledger cannot take is not made; its twin is.
///
/// Rows: SLO-056
#[test]
fn a_call_that_cannot_be_recorded_is_not_made() {
    let fleet = Fleet::new(|_: &ParsedRequest| Reply::text("Hello."));
    // With its label each of these results is seven times as long in the ledger: the entry would be too large.
    let result = r#"{"type":"tool_result","tool_use_id":"a"}"#;
    let results = vec![result; 60_000].join(",");
    let body = format!(
        r#"{{"model":"default","max_tokens":9,"messages":[{{"role":"user","content":[{results}]}}]}}"#
    );
    assert!(body.len() < MAX_BODY_BYTES);
    let (base, task) = &fleet.keys;
    let head = format!("POST /v1/messages HTTP/1.1\r\nwrit-base-key: {base}\r\nwrit-task-key: {task}");
    let (status, said) = fleet.send(&head, body.as_bytes());
    assert_eq!((status, fleet.asked()), (503, 0), "{said}");
    assert_eq!(fleet.chat(&asking("x")).0, 200, "twin");
    assert_eq!((fleet.asked(), fleet.recorded().0.len()), (1, 1));
    fleet.end();
}

/// Rows: SLO-067 (in part: a key that is revoked between two requests of models)
#[test]
fn keys_that_are_revoked_between_two_requests_refuse_the_second() {
    let fleet = Fleet::new(|_: &ParsedRequest| Reply::text("Hello."));
    assert_eq!(fleet.list(), 200);
    assert_eq!(fleet.chat(&asking("one")).0, 200);
    let revoked = Op::Revoke { id: fleet.task.to_string(), at: BEGIN, expires_at: None };
    fleet.handed.runtime.block_on(fleet.handed.store.commit(Batch::synced(vec![revoked]))).expect("written");
    let (status, body) = fleet.chat(&asking("two"));
    assert_eq!((status, &body["error"]["type"]), (403, &json!("permission_error")), "{body}");
    assert_eq!((fleet.asked(), fleet.handed.denials()), (1, vec![("model_call", DenyReason::Revoked)]));
    assert_eq!(fleet.list(), 403);
    assert_eq!(fleet.handed.denials(), [("model_call", DenyReason::Revoked); 2]);
    fleet.end();
}

#[test]
fn keys_that_have_ended_refuse() {
    let fleet = Fleet::new(|_: &ParsedRequest| Reply::text("Hello."));
    fleet.handed.clock.go_on(TASK_KEY_TTL);
    assert_eq!(fleet.chat(&asking("late")).0, 403);
    assert_eq!((fleet.asked(), fleet.handed.denials()), (0, vec![("model_call", DenyReason::Expired)]));
    assert_eq!(fleet.list(), 403);
    fleet.end();
}

/// Without two genuine keys that belong together nothing is asked, and the ledger has the attempt without the keys.
#[test]
fn keys_that_prove_nothing_are_refused_and_recorded() {
    let fleet = Fleet::new(|_: &ParsedRequest| Reply::text("Hello."));
    let (base, task) = fleet.keys.clone();
    // In the middle, where every bit of a letter counts.
    let (first, rest) = task.split_at(task.len() / 2);
    let other = if rest.starts_with('A') { "B" } else { "A" };
    let forged = [first, other, &rest[1..]].concat();
    let shown = [
        String::new(),
        format!("\r\nwrit-base-key: {base}"),
        format!("\r\nwrit-task-key: {task}"),
        format!("\r\nwrit-base-key: {base}\r\nwrit-task-key: {forged}"),
        format!("\r\nwrit-base-key: {task}\r\nwrit-task-key: {base}"),
        format!("\r\nwrit-base-key: {base}\r\nwrit-task-key: {task}\r\nwrit-task-key: {task}"),
    ];
    for (n, keys) in shown.iter().enumerate() {
        for path in ["POST /v1/chat/completions", "POST /v1/messages", "GET /v1/models"] {
            let (status, body) =
                fleet.send(&format!("{path} HTTP/1.1{keys}"), asking("x").to_string().as_bytes());
            assert_eq!(status, 401, "{n} {path}: {body}");
        }
    }
    let denied = fleet.handed.facts("denied");
    assert_eq!((denied.len(), fleet.asked()), (3 * shown.len(), 0));
    for fact in denied {
        let text = serde_json::to_string(&fact).expect("JSON");
        assert!(!text.contains(&base) && !text.contains(&task) && !text.contains(&forged), "{text}");
    }
    fleet.end();
}

#[test]
fn bodies_are_bounded() {
    let fleet = Fleet::new(|_: &ParsedRequest| Reply::text("Hello."));
    let (status, body) = fleet.chat(&asking(&"x".repeat(MAX_BODY_BYTES)));
    assert_eq!((status, fleet.asked()), (413, 0), "{body}");
    let (status, body) = fleet.chat(&asking(&"x".repeat(MAX_BODY_BYTES - 1_000)));
    assert_eq!((status, fleet.asked()), (200, 1), "twin: {}", body["error"]);
    fleet.end();
}

/// No quota of the installation stops an agent; one of its base key does.
///
/// Rows: SLO-064
#[test]
fn only_the_base_key_sets_a_quota() {
    let large = |_: &ParsedRequest| Reply::text("Yes.").with_usage(4_000_000, 10);
    let fleet = Fleet::new(large);
    for n in 0..3 {
        assert_eq!(fleet.chat(&asking("again")).0, 200, "call {n} of 12 million tokens");
    }
    assert_eq!((fleet.asked(), fleet.recorded().1.len()), (3, 3));
    fleet.end();
    let fleet = Fleet::with_grants(with_quota(1_000), large);
    assert_eq!(fleet.chat(&asking("one")).0, 200);
    let (status, body) = fleet.chat(&asking("two"));
    assert_eq!((status, &body["error"]["code"], fleet.asked()), (403, &json!("quota_used_up"), 1), "{body}");
    fleet.end();
}

/// A loop of refused calls with long prompts fills no disk: of each the beginning is recorded, and a rule can count them.
#[test]
fn a_refused_call_is_counted_and_leaves_the_beginning_of_its_prompt() {
    let begins = "Who is the customer? ";
    let long = asking(&format!("{begins}{}", "x".repeat(1_000_000)));
    let refused = |mut fleet: Fleet, status: u16| {
        assert_eq!(fleet.chat(&long).0, status);
        let denied = fleet.handed.facts("denied");
        let [fact] = denied.as_slice() else { panic!("one refusal: {denied:?}") };
        assert!(serde_json::to_string(fact).expect("JSON").len() < 10_000, "not the whole prompt");
        let Fact::Denied { requester: Some(requester), .. } = fact else { panic!("{fact:?}") };
        let sealed = requester.sealed_prompt.as_ref().expect("a prompt");
        let plain = contents().open_content(SEALED_PROMPT, sealed).expect("opens");
        let mut prompt: Value = serde_json::from_slice(&plain).expect("JSON");
        assert!(prompt["whole"].as_u64() > Some(100_000), "{}", prompt["whole"]);
        let sent: ModelRequest = serde_json::from_value(prompt["sent"].take()).expect("a prompt");
        let texts = texts_of(&sent);
        assert!(texts.iter().any(|text| text.starts_with(begins) && text.len() == 2_000), "{texts:?}");
        let mut reported = Vec::new();
        while let Ok(report) = fleet.reported.try_recv() {
            reported.push((report.case.expect("a case"), report.count));
        }
        assert_eq!(reported, [("case_tk_1".to_owned(), CallCount::Refused)]);
        assert_eq!(fleet.asked(), 0);
        fleet.end();
    };
    let answer = |_: &ParsedRequest| Reply::text("Yes.");
    // By its quota, and by the door.
    refused(Fleet::with_grants(with_quota(1_000), answer), 403);
    refused(Fleet::with_grants(Grants::default(), answer), 403);
}

/// What a call may use is set aside before it: a second one at the same time does not pass the quota. What is left over
/// counts again afterwards.
#[test]
fn calls_at_the_same_time_do_not_pass_a_quota_together() {
    let (gate, (asked, was_asked)) = (ReplyGate::new(), std::sync::mpsc::sync_channel(REPORTS));
    let slow = gate.clone();
    let fleet = Fleet::with_grants(with_quota(1_000), move |_: &ParsedRequest| {
        asked.send(()).expect("the test waits");
        Reply::text("Yes.").with_usage(30, 4).with_fault(ReplyFault::SlowFirstByte(slow.clone()))
    });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| fleet.chat(&asking("one")));
        was_asked.recv().expect("the first was asked");
        let (status, body) = fleet.chat(&asking("two"));
        assert_eq!((status, &body["error"]["code"]), (403, &json!("quota_used_up")), "{body}");
        gate.open();
        assert_eq!(first.join().expect("ends").0, 200);
    });
    assert_eq!((fleet.chat(&asking("three")).0, fleet.asked()), (200, 2), "966 are left");
    let most =
        |n: usize| fleet.handed.server.recorded_requests()[n].body["max_tokens"].as_u64().expect("a number");
    assert!(
        most(0) < 1_000 && most(1) < 966,
        "no answer may be longer than what is left: {} {}",
        most(0),
        most(1)
    );
    let prompts = fleet.recorded().0;
    assert_eq!([prompts[0].max_output_tokens.get(), prompts[1].max_output_tokens.get()], [most(0), most(1)]);
    assert_eq!(fleet.handed.denials(), [("model_call", DenyReason::UsedUp)]);
    fleet.end();
}

/// A program that hangs up before the provider has said what it used pays for what was set aside, and the ledger says so.
#[test]
fn hanging_up_does_not_evade_a_quota() {
    for streams in [false, true] {
        let (asked, was_asked) = std::sync::mpsc::sync_channel(REPORTS);
        let fleet = Fleet::with_grants(with_quota(1_000), move |_: &ParsedRequest| {
            asked.send(()).expect("the test waits");
            let fault = match streams {
                true => ReplyFault::SilenceAfter(100),
                false => ReplyFault::SlowFirstByte(ReplyGate::new()),
            };
            Reply::text(&"word ".repeat(400)).with_usage(30, 400).with_fault(fault)
        });
        let mut fleet = fleet;
        let mut body = asking("one");
        body["stream"] = json!(streams);
        fleet.hang_up(&body, &was_asked, streams.then_some("word"));
        let used = fleet.reported.blocking_recv().expect("reported");
        assert_eq!(used.count, CallCount::Tokens(Tokens::new(1_000)), "streams: {streams}");
        let called = fleet.handed.facts("model_called");
        let [Fact::ModelCalled { usage, error, .. }] = &called[..] else { panic!("{called:?}") };
        // What came of the answer is recorded, too: the program may have read it.
        let text = fleet.recorded().1.pop().map(|reply| reply.text).unwrap_or_default();
        assert_eq!(text.starts_with("word word"), streams, "{text}");
        assert_eq!((usage.total_tokens(), error.is_empty()), (Tokens::new(1_000), false));
        let (status, body) = fleet.chat(&asking("two"));
        assert_eq!((status, &body["error"]["code"]), (403, &json!("quota_used_up")), "{body}");
        fleet.end();
    }
}

/// What names persons leaves as marks where the provider may read public content alone, and comes back in the answer; a
/// cleared one reads it. Tokens of the security proxy name no one, whatever digits they have.
#[test]
fn personal_data_leaves_as_marks_where_the_provider_is_not_cleared() {
    const SAID: &str = "Write to ann@mail.example.org (ann@mail.example.org), +49 30 7654321, about IBAN DE89 3704 0044 0532 0130 00 \
        and card 4111 1111 1111 1111 of cust_tk_41111111111111111111111111111111 in case_tk_00447946095800000000000000000000.";
    const MARKED: &str = "Write to [withheld:1] ([withheld:1]), [withheld:2], about IBAN [withheld:3] \
        and card [withheld:4] of cust_tk_41111111111111111111111111111111 in case_tk_00447946095800000000000000000000.";
    let echo = |request: &ParsedRequest| {
        let said = request.last_user_text();
        let first = said.split_whitespace().nth(2).unwrap_or_default();
        Reply::text(&format!("I read: {said}")).and_call("send", json!({ "to": first }))
    };
    for (clearance, sent) in [(Clearance::Public, MARKED), (Clearance::Personal, SAID)] {
        let fleet = Fleet::cleared(clearance, grants(), echo);
        let (status, body) = fleet.chat(&asking(SAID));
        let message = &body["choices"][0]["message"];
        assert_eq!((status, &message["content"]), (200, &json!(format!("I read: {SAID}"))), "{body}");
        assert_eq!(
            message["tool_calls"][0]["function"]["arguments"],
            json!(r#"{"to":"ann@mail.example.org"}"#)
        );
        let mut streamed = asking(SAID);
        streamed["stream"] = json!(true);
        let (_, stream) = fleet.post("/v1/chat/completions", &streamed);
        let chunks =
            events(&stream).into_iter().filter_map(|(_, data)| serde_json::from_str::<Value>(&data).ok());
        let text: String = chunks
            .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
            .collect();
        assert_eq!(text, format!("I read: {SAID}"));
        let (prompts, replies) = fleet.recorded();
        for (n, request) in fleet.handed.server.recorded_requests().iter().enumerate() {
            let user = request.body.pointer("/messages").and_then(Value::as_array).and_then(|all| all.last());
            assert_eq!(user.expect("a message")["content"], json!(sent), "{clearance}");
            // The ledger has what went over the wire, and beside it what the marks stand for.
            assert_eq!(texts_of(&prompts[n]).last().map(String::as_str), Some(sent));
            assert_eq!(replies[n].text, format!("I read: {sent}"));
        }
        let known = json!({ "1": "ann@mail.example.org", "2": "+49 30 7654321", "3": "DE89 3704 0044 0532 0130 00", "4": "4111 1111 1111 1111" });
        let hidden = clearance == Clearance::Public;
        assert_eq!(fleet.withheld(), if hidden { known } else { Value::Null });
        fleet.end();
    }
}

/// Each attempt is reported with agent, case and tokens, a failed one too; an observer that is gone holds nothing up.
#[test]
fn the_tokens_of_every_attempt_are_reported() {
    let mut script = list_of_replies([
        Reply::text("One.").with_usage(30, 4),
        Reply::status(503),
        Reply::text("Two.").with_usage(5, 6),
        Reply::text("Three."),
    ]);
    let mut fleet = Fleet::new(move |request: &ParsedRequest| {
        writ_testkit::model_server::Script::reply(&mut script, request)
    });
    assert_eq!([fleet.chat(&asking("one")).0, fleet.chat(&asking("two")).0], [200, 200]);
    let mut reported = Vec::new();
    while let Ok(used) = fleet.reported.try_recv() {
        assert_eq!(
            (used.at, used.agent.as_str(), used.case.as_deref()),
            (BEGIN, "refund-agent", Some("case_tk_1"))
        );
        reported.push(used.count);
    }
    assert_eq!(reported, [34, 0, 11].map(|tokens| CallCount::Tokens(Tokens::new(tokens))));
    fleet.reported.close();
    assert_eq!(fleet.chat(&asking("three")).0, 200);
    fleet.end();
}

/// Clients of OpenAI's format read: a role first, text, calls by index, the reason, the usage in a chunk without choices, the end.
#[test]
fn a_stream_of_openais_format_is_as_its_clients_read_it() {
    let fleet = Fleet::new(|_: &ParsedRequest| {
        Reply::text("One two three.").and_call("a", json!({ "n": 1 })).and_call("b", json!({}))
    });
    let mut body = asking("stream");
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true });
    let (status, stream) = fleet.post("/v1/chat/completions", &body);
    let mut data: Vec<String> = events(&stream).into_iter().map(|(_, data)| data).collect();
    assert_eq!((status, data.pop().as_deref()), (200, Some("[DONE]")));
    let chunks: Vec<Value> = data.iter().map(|data| serde_json::from_str(data).expect("JSON")).collect();
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
    let texts: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(texts, "One two three.");
    let calls: Vec<&Value> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"].get("tool_calls"))
        .map(|calls| &calls[0])
        .collect();
    let named = |call: &Value| {
        (call["index"].clone(), call["function"]["name"].clone(), call["function"]["arguments"].clone())
    };
    assert_eq!(
        calls.into_iter().map(named).collect::<Vec<_>>(),
        [(json!(0), json!("a"), json!("{\"n\":1}")), (json!(1), json!("b"), json!("{}"))]
    );
    let [.., reason, usage] = &chunks[..] else { panic!("{stream}") };
    assert_eq!(
        (&reason["choices"][0]["finish_reason"], &reason["usage"]),
        (&json!("tool_calls"), &Value::Null)
    );
    assert_eq!((&usage["choices"], usage["usage"]["total_tokens"].is_u64()), (&json!([]), true));
    assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"]), "one id");
    fleet.end();
}

/// Clients of Anthropic's format refuse blocks in another order, a start without content, and calls without input.
#[test]
fn a_stream_of_anthropics_format_is_as_its_clients_read_it() {
    let fleet = Fleet::new(|_: &ParsedRequest| Reply::text("One two.").and_call("a", json!({ "n": 1 })));
    let (status, stream) = fleet.post("/v1/messages", &json!({
        "model": "default", "max_tokens": 100, "stream": true, "metadata": { "user_id": "x" },
        "system": [{ "type": "text", "text": "Be brief.", "cache_control": { "type": "ephemeral" } }],
        "messages": [
            { "role": "user", "content": "hi" },
            { "role": "assistant", "content": [{ "type": "thinking", "thinking": "…", "signature": "s" }, { "type": "tool_use", "id": "toolu_1", "name": "look", "input": { "q": 1 } }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "toolu_1", "content": [{ "type": "text", "text": "seen" }] }, { "type": "text", "text": "go on" }] },
        ],
    }));
    let events = events(&stream);
    assert_eq!(status, 200, "{stream}");
    let mut names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    names.dedup();
    assert_eq!(
        names,
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    let data: Vec<Value> = events.iter().map(|(_, data)| serde_json::from_str(data).expect("JSON")).collect();
    assert!(events.iter().zip(&data).all(|((name, _), data)| data["type"] == name.as_str()));
    let start = &data[0]["message"];
    assert_eq!(
        (&start["content"], &start["stop_reason"], &start["role"]),
        (&json!([]), &Value::Null, &json!("assistant"))
    );
    let call = data.iter().find(|data| data["content_block"]["type"] == "tool_use").expect("a call");
    assert_eq!((&call["index"], &call["content_block"]["input"]), (&json!(1), &json!({})));
    let end = data.iter().find(|data| data["type"] == "message_delta").expect("an end");
    assert_eq!(end["delta"], json!({ "stop_reason": "tool_use", "stop_sequence": null }));
    let (prompts, _) = fleet.recorded();
    assert_eq!(texts_of(&prompts[0]), ["Be brief.", "hi", "{\"q\":1}", "seen", "go on"]);
    fleet.end();
}

/// A model that fails is tried again where that helps; each try is an intent and an outcome. What has begun to be streamed ends
/// with an error that clients find.
#[test]
fn failures_are_recorded_and_said() {
    let replies = [
        Reply::status(503),
        Reply::text("Now."),
        Reply::text("One two three four.").with_fault(ReplyFault::ErrorEventAfter(4)),
    ];
    let mut script = list_of_replies(replies);
    let fleet = Fleet::new(move |request: &ParsedRequest| {
        writ_testkit::model_server::Script::reply(&mut script, request)
    });
    let (status, body) = fleet.chat(&asking("one"));
    assert_eq!((status, &body["choices"][0]["message"]["content"]), (200, &json!("Now.")), "{body}");
    assert_eq!((fleet.recorded().0.len(), fleet.handed.facts("model_called").len()), (2, 2));
    let mut streamed = asking("two");
    streamed["stream"] = json!(true);
    let (status, stream) = fleet.post("/v1/chat/completions", &streamed);
    let last = events(&stream).pop().expect("an event").1;
    let last: Value = serde_json::from_str(&last).expect("JSON");
    assert_eq!((status, &last["error"]["type"]), (200, &json!("server_error")), "{stream}");
    assert!(!stream.contains("[DONE]"));
    assert_eq!(fleet.handed.facts("model_called").len(), 3);
    fleet.end();
}

#[test]
fn what_cannot_be_served_is_refused_by_name() {
    let fleet = Fleet::new(|_: &ParsedRequest| Reply::text("Hello."));
    let changed = |name: &str, value: Value| {
        let mut body = asking("x");
        body[name] = value;
        body
    };
    for (body, param) in [
        (changed("n", json!(2)), "n"),
        (changed("stop", json!(["END"])), "stop"),
        (changed("tool_choice", json!("required")), "tool_choice"),
        (changed("response_format", json!({ "type": "json_object" })), "response_format"),
        (changed("max_tokens", json!(0)), "max_tokens"),
        (changed("messages", json!([])), "messages"),
        (
            changed("messages", json!([{ "role": "user", "content": [{ "type": "image_url" }] }])),
            "messages[0].content[0].type",
        ),
        (json!([1]), ""),
    ] {
        let (status, said) = fleet.chat(&body);
        assert_eq!((status, &said["error"]["param"]), (400, &json!(param)), "{said}");
    }
    let (status, said) = fleet.chat(&changed("model", json!("gpt-9")));
    assert_eq!((status, &said["error"]["code"]), (404, &json!("model_not_found")), "{said}");
    let (status, said) = fleet.post("/v1/messages", &asking("no max_tokens"));
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(
        (status, &said["type"], &said["error"]["type"]),
        (400, &json!("error"), &json!("invalid_request_error"))
    );
    assert_eq!((fleet.asked(), fleet.recorded().0.len()), (0, 0));
    fleet.end();
}

/// The packages `openai` and `anthropic` read what the router writes: whole answers, streams, calls of tools, lists, errors.
///
/// Rows: SLO-066 (in part: models)
#[test]
#[expect(clippy::disallowed_types, reason = "the clients are programs of their own, as in an agent")]
fn needs_clients_both_vendors_read_what_the_router_writes() {
    let fleet = Fleet::new(|request: &ParsedRequest| match request.last_user_text() {
        "call" => Reply::call("add", json!({ "a": 1 })),
        _ => Reply::text("Hello there."),
    });
    let (base, task) = &fleet.keys;
    let ran = std::process::Command::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/clients/bin/python"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/clients.py"))
        .arg(&fleet.socket)
        .args([base, task])
        .output()
        .expect("python runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(fleet.recorded().0.len(), fleet.asked());
    fleet.end();
}
