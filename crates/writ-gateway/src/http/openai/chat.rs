//! `POST /v1/chat/completions`

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use writ_policy::principal::Evidence;
use writ_runtime::clock::{Clock as _, SystemClock};
use writ_types::error::Exit;

use super::{Asked, MAX_BODY_BYTES, News, Said, Wish, begin, ended, follow, rest, told, usage, whole};
use crate::http::Shared;
use crate::http::api::{App, evidence};
use crate::http::reply::{Refusal, ok, read};

/// A request. What else it says changes nothing here.
#[derive(Debug, Deserialize)]
struct Body {
    model: String,
    messages: Vec<Said>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    n: Option<u32>,
    #[serde(default)]
    tools: Vec<Value>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// `POST /v1/chat/completions`
pub(in crate::http) async fn completions(State(shared): App, request: Request) -> Response {
    complete(&shared, request).await.unwrap_or_else(told)
}

async fn complete(shared: &Arc<Shared>, request: Request) -> Result<Response, Refusal> {
    let evidence = evidence(&request);
    let headers = request.headers().clone();
    let body: Body = read(request, MAX_BODY_BYTES).await?;
    if body.n.is_some_and(|n| n != 1) {
        return Err(Refusal::malformed("'n' can only be 1"));
    }
    if !body.tools.is_empty() {
        return Err(Refusal::malformed("the agent has its own tools; it cannot use those of the request"));
    }
    let messages = Wish::messages(body.messages)?;
    let mut wish = Wish { model: body.model, messages, session: None, conversation: None };
    wish.place(&headers, body.user)?;
    let asked = begin(shared, evidence, &wish).await?;
    let head = Head::of(&asked, wish.model);
    if body.stream {
        let with_usage = body.stream_options.unwrap_or_default().include_usage;
        return Ok(streamed(Arc::clone(shared), evidence, asked, head, with_usage));
    }
    let (session, entry) = (asked.session, asked.entry);
    let (text, exit) = whole(follow(shared.engine.clone(), asked)).await?;
    let usage = usage(shared, evidence, session, entry).await;
    let message = json!({ "role": "assistant", "content": text });
    let choice = json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": reason(exit) });
    let mut answer = head.object("chat.completion", &choice);
    answer["usage"] = counted(usage);
    Ok(ok(&answer))
}

/// What every chunk of an answer says.
#[derive(Clone, Debug)]
struct Head {
    id: String,
    created: i64,
    model: String,
}

impl Head {
    fn of(asked: &Asked, model: String) -> Self {
        let created = SystemClock.now().as_millis() / 1000;
        Self { id: format!("chatcmpl-{}-{}", asked.session, asked.entry), created, model }
    }

    fn object(&self, object: &str, choice: &Value) -> Value {
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "choices": [choice],
        })
    }

    fn chunk(&self, delta: &Value, reason: Option<&str>) -> Value {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason });
        self.object("chat.completion.chunk", &choice)
    }
}

const fn reason(exit: Exit) -> &'static str {
    match exit {
        Exit::Budget => "length",
        Exit::Denied => "content_filter",
        Exit::Done
        | Exit::Waiting
        | Exit::Bug
        | Exit::Usage
        | Exit::Config
        | Exit::Model
        | Exit::Verification
        | Exit::Ledger
        | Exit::Blocked
        | Exit::Interrupted => "stop",
    }
}

fn counted((input, output): (u64, u64)) -> Value {
    let total = input.saturating_add(output);
    json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": total })
}

/// The answer as it comes.
fn streamed(shared: Arc<Shared>, evidence: Evidence, asked: Asked, head: Head, with_usage: bool) -> Response {
    let (session, entry) = (asked.session, asked.entry);
    let pieces = follow(shared.engine.clone(), asked);
    let first = vec![head.chunk(&json!({ "role": "assistant", "content": "" }), None)];
    let start = (pieces, String::new(), Some(first));
    let chunks = stream::unfold(start, move |(mut pieces, mut said, first)| {
        let (head, shared) = (head.clone(), Arc::clone(&shared));
        async move {
            if let Some(first) = first {
                return Some((events(first, false), (pieces, said, None)));
            }
            let mut out = Vec::new();
            match pieces.recv().await? {
                News::Text(text) => {
                    out.push(head.chunk(&json!({ "content": text }), None));
                    said.push_str(&text);
                    return Some((events(out, false), (pieces, said, None)));
                }
                News::End(text, exit) => match ended(text, exit) {
                    Ok((text, exit)) => {
                        let rest = rest(&said, &text);
                        if !rest.is_empty() {
                            out.push(head.chunk(&json!({ "content": rest }), None));
                        }
                        out.push(head.chunk(&json!({}), Some(reason(exit))));
                        if with_usage {
                            let mut last = head.chunk(&json!({}), None);
                            last["choices"] = json!([]);
                            last["usage"] = counted(usage(&shared, evidence, session, entry).await);
                            out.push(last);
                        }
                    }
                    Err(refusal) => out.push(failed(&refusal)),
                },
                News::Failed(report) => out.push(failed(&(*report).into())),
            }
            pieces.close();
            Some((events(out, true), (pieces, said, None)))
        }
    });
    let events = futures::StreamExt::flat_map(chunks, stream::iter);
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

fn failed(refusal: &Refusal) -> Value {
    let report = refusal.report();
    json!({ "error": { "message": report.outside, "type": "server_error", "code": report.code } })
}

fn events(chunks: Vec<Value>, done: bool) -> Vec<Result<Event, Infallible>> {
    let mut events: Vec<_> =
        chunks.into_iter().map(|chunk| Ok(Event::default().data(chunk.to_string()))).collect();
    if done {
        events.push(Ok(Event::default().data("[DONE]")));
    }
    events
}
