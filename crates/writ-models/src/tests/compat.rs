//! Answers of foreign servers, byte for byte as their documents and public reports show them.
//!
//! Each file of `compat/` is one server, each `[[case]]` in it one behaviour; the fields are those of [`Case`]. Every case is
//! played over real HTTP on loopback, whole and in small chunks. `docs/compatibility.md` lists them; after a change of
//! the files, `cargo xtask compatibility` writes that list anew.

mod page;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use writ_testbed::raw_server::{RawAnswer, RawRequest, RawServer};
use writ_types::chat::{
    ChatMessage, ModelReply, Part, Role, StopReason, ToolOutcome, ToolResult, assistant_parts,
};
use writ_types::error::ToReport as _;
use writ_types::taint::{Label, Taint};
use writ_types::unit::Tokens;

use super::bench::{message, models, request, table, text, tool, user};
use super::door::{NOW, permit};
use crate::call::Models;
use crate::config::{ModelRole, ModelsConfig, ProviderKind};
use crate::error::{Failure, ModelError};

/// The bytes of a body that are sent in one HTTP chunk: all of them, and few enough to split every word.
const CHUNKS: [usize; 2] = [usize::MAX, 7];

/// One server, and how it speaks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Server {
    /// The name on the page.
    server: String,
    /// The wire format that it is configured with.
    kind: ProviderKind,
    case: Vec<Case>,
}

/// One behaviour of a server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// The subject.
    topic: Topic,
    /// One plain sentence that says what the server does.
    behaviour: String,
    /// Where this is documented or reported: a `https` address.
    source: String,
    /// When it was reported: year and month, or with the day; `undated` for a page that carries no date.
    seen: String,
    /// The HTTP status.
    #[serde(default = "ok")]
    status: u16,
    /// More headers than `content-type`, or another one.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The body. A line feed right after the opening quotes is no part of it; `\r\n` can be written in `"""` strings.
    body: String,
    /// Breaks the connection off after the body.
    #[serde(default)]
    cut: bool,
    /// Fields that the request has, by JSON pointer.
    #[serde(default)]
    sent: BTreeMap<String, Value>,
    /// JSON pointers to what the request does not have.
    #[serde(default)]
    not_sent: Vec<String>,
    /// The same for the next request, which follows when all calls of the reply were answered.
    #[serde(default)]
    sent_next: BTreeMap<String, Value>,
    #[serde(default)]
    not_sent_next: Vec<String>,
    /// The expected outcome.
    expect: Outcome,
}

const fn ok() -> u16 {
    200
}

/// What a behaviour is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Topic {
    Stream,
    ToolCalls,
    Reasoning,
    Usage,
    ContextLength,
    Errors,
    Requests,
}

/// The outcome of a call. Fields that a case leaves out are not compared.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Outcome {
    /// The text of the reply.
    text: Option<String>,
    /// Its tool calls; none where it is left out.
    calls: Vec<ExpectedCall>,
    /// Why it stopped. Left out: the end of the turn, or for tools where there are calls.
    stop: Option<StopReason>,
    /// Tokens of the request and of the reply.
    usage: Option<[u64; 2]>,
    /// The failure, as its code without `model.`; then there is no reply.
    failure: Option<String>,
    /// Part of what the error says.
    says: Option<String>,
    /// The size of the model's window, as read from the error.
    window: Option<u64>,
    /// Seconds after which the provider wants the next try.
    retry_after: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedCall {
    /// The id. Left out: any that is not empty.
    id: Option<String>,
    name: String,
    /// The arguments.
    #[serde(default = "no_arguments")]
    arguments: Value,
}

fn no_arguments() -> Value {
    Value::Object(serde_json::Map::new())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/compat")
}

/// Reads every file, in the order of the servers' names.
fn servers() -> Vec<Server> {
    let files = std::fs::read_dir(folder()).expect("the folder of the cases");
    let mut servers: Vec<Server> = files
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("readable");
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        })
        .collect();
    servers.sort_by_key(|server| server.server.to_lowercase());
    servers
}

/// Plays a case and says where its outcome is another than expected.
async fn play(server: &Server, case: &Case, chunk: usize) -> Result<(), String> {
    let kind = if server.kind == ProviderKind::Ollama { "application/x-ndjson" } else { "text/event-stream" };
    let kind = if case.status == 200 { kind } else { "application/json" };
    let mut headers = BTreeMap::from([("content-type".to_owned(), kind.to_owned())]);
    headers.extend(case.headers.clone());
    let (headers, body) = (headers.into_iter().collect(), case.body.clone().into_bytes());
    let answer = RawAnswer { status: case.status, headers, body, chunk, cut: case.cut };
    let raw = RawServer::start(answer).await.expect("a server");
    let mut config = ModelsConfig::default();
    config.providers.insert("foreign".into(), table(server.kind, format!("http://{}/v1/", raw.address())));
    config.models.default = Some("foreign/some-model-high".into());
    let (models, _runtime) = models(&config);
    let history = vec![user("the first message")];
    let outcome = ask(&models, history.clone()).await;
    case.expect.compare(&outcome)?;
    sent(&raw.requests(), 0, &case.sent, &case.not_sent)?;
    if case.sent_next.is_empty() && case.not_sent_next.is_empty() {
        return Ok(());
    }
    let (reply, _) = outcome.map_err(|_| "a case with a next request must expect a reply".to_owned())?;
    let next = history.into_iter().chain(answered(&reply)).collect();
    case.expect.compare(&ask(&models, next).await)?;
    sent(&raw.requests(), 1, &case.sent_next, &case.not_sent_next)
}

/// One attempt with two tools; the reply and the text that was streamed.
async fn ask(models: &Models, history: Vec<ChatMessage>) -> Result<(ModelReply, String), ModelError> {
    let mut wanted = request(history);
    wanted.tools = vec![tool("file_read"), tool("search")].into();
    let planned = models.plan(ModelRole::Proxy, Arc::new(wanted), NOW).expect("a plan");
    let (sender, mut receiver) = mpsc::channel(4);
    let permit = permit(planned.action()).await;
    let call = models.call(permit, &planned, sender, CancellationToken::new(), NOW);
    let collect = async {
        let mut deltas = Vec::new();
        while let Some(delta) = receiver.recv().await {
            deltas.push(delta);
        }
        deltas
    };
    let (reply, deltas) = tokio::join!(call, collect);
    reply.map(|reply| (reply, text(&deltas)))
}

/// A reply and the results of its calls, as they are sent back.
fn answered(reply: &ModelReply) -> Vec<ChatMessage> {
    let results = reply.calls.iter().map(|call| {
        Part::Result(ToolResult {
            call_id: call.id.clone(),
            name: call.name.clone(),
            outcome: ToolOutcome::Done,
            text: "a result".into(),
            label: Label::new(Taint::External),
            fields: Vec::new(),
            kept: None,
        })
    });
    let parts = assistant_parts(reply.reasoning.clone(), reply.text.clone(), reply.calls.iter().cloned());
    let results: Vec<Part> = results.collect();
    let last = if results.is_empty() { user("go on") } else { message(Role::Tool, results) };
    vec![message(Role::Assistant, parts), last]
}

/// Compares one of the requests with what it must and must not have.
fn sent(
    requests: &[RawRequest],
    number: usize,
    has: &BTreeMap<String, Value>,
    lacks: &[String],
) -> Result<(), String> {
    let Some(request) = requests.get(number) else { return Err(format!("request {number} was not sent")) };
    for (pointer, expected) in has {
        let found = request.body.pointer(pointer);
        if found != Some(expected) {
            return Err(format!("request {number}: {pointer} is {found:?} in {}", request.body));
        }
    }
    match lacks.iter().find(|pointer| request.body.pointer(pointer).is_some()) {
        Some(pointer) => Err(format!("request {number} has {pointer}: {}", request.body)),
        None => Ok(()),
    }
}

impl Outcome {
    fn compare(&self, found: &Result<(ModelReply, String), ModelError>) -> Result<(), String> {
        match (found, &self.failure) {
            (Ok((reply, streamed)), None) => self.compare_reply(reply, streamed),
            (Err(error), Some(code)) => self.compare_failure(error, code),
            (Ok((reply, _)), Some(code)) => Err(format!("expected {code}, found {reply:?}")),
            (Err(error), None) => Err(format!("expected a reply, found {error}")),
        }
    }

    fn compare_reply(&self, reply: &ModelReply, streamed: &str) -> Result<(), String> {
        let differs = |what: &str| Err(format!("{what} differs: {reply:?}"));
        if self.text.as_deref().unwrap_or_default() != reply.text || streamed != reply.text {
            return differs("the text");
        }
        let same = |(expected, call): (&ExpectedCall, &writ_types::chat::ToolCall)| {
            expected.id.as_ref().map_or(!call.id.is_empty(), |id| *id == call.id)
                && expected.name == call.name
                && expected.arguments == call.arguments
        };
        if self.calls.len() != reply.calls.len() || !self.calls.iter().zip(&reply.calls).all(same) {
            return differs("a call");
        }
        let ids: std::collections::BTreeSet<&str> = reply.calls.iter().map(|call| call.id.as_str()).collect();
        if ids.len() != reply.calls.len() {
            return differs("the number of ids");
        }
        let usual = if self.calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
        if *self.stop.as_ref().unwrap_or(&usual) != reply.stop {
            return differs("the stop reason");
        }
        let counted = [reply.usage.input.get(), reply.usage.output.get()];
        if self.usage.is_some_and(|usage| usage != counted) {
            return differs("the usage");
        }
        Ok(())
    }

    fn compare_failure(&self, error: &ModelError, code: &str) -> Result<(), String> {
        if error.failure.code().strip_prefix("model.") != Some(code) {
            return Err(format!("expected {code}, found {error:?}"));
        }
        let report = error.report();
        let shown = format!("{} {}", report.outside, report.hint);
        if let Some(says) = self.says.as_ref().filter(|says| !shown.contains(says.as_str())) {
            return Err(format!("'{says}' is not in: {shown}"));
        }
        let window = if let Failure::ContextLength { sizes, .. } = &error.failure {
            sizes.window.map(Tokens::get)
        } else {
            None
        };
        if self.window.is_some() && self.window != window {
            return Err(format!("the window is {window:?}"));
        }
        let wait = error.failure.retry_after().map(|wait| wait.as_secs());
        if self.retry_after.is_some() && self.retry_after != wait {
            return Err(format!("the next try is after {wait:?} seconds"));
        }
        Ok(())
    }
}

/// Rows: SCL-011 SCL-022 SCL-026
#[tokio::test]
async fn every_server_is_understood_as_it_speaks() {
    let servers = servers();
    let mut wrong = Vec::new();
    for server in &servers {
        for case in &server.case {
            for chunk in CHUNKS {
                if let Err(difference) = play(server, case, chunk).await {
                    let Server { server, .. } = server;
                    wrong.push(format!("{server}: {} (chunks of {chunk}): {difference}", case.behaviour));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for line in page::generated(&servers).lines() {
        println!("{}{line}", page::PRINTED);
    }
}

/// Forms of Chat Completions that some server may send, each played like the reported ones.
///
/// Rows: SCL-011
#[tokio::test]
async fn every_form_of_an_answer_is_understood() {
    let forms: Server = toml::from_str(include_str!("forms.toml")).expect("cases");
    let mut wrong = Vec::new();
    for case in &forms.case {
        for chunk in CHUNKS {
            if let Err(difference) = play(&forms, case, chunk).await {
                wrong.push(format!("{} (chunks of {chunk}): {difference}", case.behaviour));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Rows: SCL-011
#[tokio::test]
async fn lines_of_ollama_may_end_with_crlf_and_stand_apart() {
    let lines =
        "\r\n{'message':{'content':'Hi'},'done':false}\r\n\r\n\n{'done':true,'done_reason':'stop'}\r\n\r\n";
    let case = format!(
        "topic = 'stream'\nbehaviour = ''\nsource = ''\nseen = ''\nbody = {}\nexpect = {{ text = 'Hi' }}",
        Value::from(lines.replace('\'', "\""))
    );
    let case: Case = toml::from_str(&case).expect("a case");
    let ollama = Server { server: "Any".into(), kind: ProviderKind::Ollama, case: Vec::new() };
    for chunk in CHUNKS {
        play(&ollama, &case, chunk).await.expect("the text");
    }
}

#[test]
fn every_case_names_where_it_was_seen() {
    for server in servers() {
        for case in &server.case {
            let Case { behaviour, source, seen, .. } = case;
            assert!(source.starts_with("https://") && !source.contains(' '), "{behaviour}: {source}");
            let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
            let parts: Vec<&str> = seen.split('-').collect();
            let dated = parts.len() >= 2 && parts.iter().all(|part| digits(part));
            assert!(dated || seen == "undated", "{behaviour}: {seen}");
            assert!(behaviour.ends_with('.') && !behaviour.contains('|'), "{behaviour}");
        }
    }
}

/// The formats and servers that the page promises.
#[test]
fn every_promised_server_has_cases() {
    let servers = servers();
    let names: Vec<&str> = servers.iter().map(|server| server.server.as_str()).collect();
    for promised in [
        "Anthropic",
        "OpenAI Chat",
        "OpenAI Responses",
        "Gemini",
        "Gemini (compatible)",
        "OpenRouter",
        "Ollama",
        "Ollama (compatible)",
        "vLLM",
        "llama.cpp",
        "LM Studio",
        "Mistral",
        "DeepSeek",
        "Groq",
        "LiteLLM",
    ] {
        assert!(names.contains(&promised), "{promised} is not in {names:?}");
    }
}
