//! `POST /v1/chat/completions`

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::stream;
use serde_json::{Value, json};
use writ_policy::principal::Evidence;
use writ_runtime::clock::{Clock as _, SystemClock};
use writ_types::error::Exit;

use super::fields::{CHAT, Fields, invalid_field};
use super::limit::{Cut, TextLimit};
use super::messages::read_messages;
use super::{
    ChatRequest, MAX_BODY_BYTES, News, PendingMessage, begin_turn, check_end, follow_turn, token_usage,
    unsent_rest, whole_answer,
};
use crate::http::ServerState;
use crate::http::api::App;
use crate::http::reply::{Refusal, json_ok, read_json};
use crate::http::route::request_evidence;

/// `POST /v1/chat/completions`
pub(in crate::http) async fn serve_completion(State(shared): App, request: Request) -> Response {
    complete_chat(&shared, request).await.unwrap_or_else(Refusal::into_response)
}

async fn complete_chat(shared: &Arc<ServerState>, request: Request) -> Result<Response, Refusal> {
    let evidence = request_evidence(&request);
    let headers = request.headers().clone();
    // Every field is checked first: what cannot be served is refused before the turn begins.
    let mut fields = Fields::check(read_json(request, MAX_BODY_BYTES).await?, CHAT)?;
    let model = fields.needed_text("model")?;
    let list = fields.take_field("messages").ok_or_else(|| invalid_field("messages", "is missing"))?;
    let (user, stream, with_usage) =
        (fields.take_text("user")?, fields.take_flag("stream")?, fields.include_usage()?);
    let mut limit = TextLimit::read(&mut fields, &["max_tokens", "max_completion_tokens"])?;
    let (messages, files) = read_messages(list, "messages")?;
    let mut wanted = ChatRequest { model, messages, session: None, conversation: None, files };
    wanted.read_place(&headers, user)?;
    let asked = begin_turn(shared, evidence, &wanted).await?;
    // The head is made before the answer, so that all chunks have the same id and time.
    let head = ChunkHead::of(&asked, wanted.model);
    if stream {
        let head = ChunkHead { with_usage, ..head };
        return Ok(stream_answer(Arc::clone(shared), evidence, asked, head, limit));
    }
    let (session, entry) = (asked.session, asked.entry);
    let (text, exit) = whole_answer(follow_turn(shared.engine.clone(), asked)).await?;
    let usage = token_usage(shared, evidence, session, entry).await;
    let message = json!({ "role": "assistant", "content": limit.limit_text(&text) });
    let reason = finish_reason(exit, limit.cut());
    let choice = json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": reason });
    let mut answer = head.chunk_object("chat.completion", &choice);
    answer["usage"] = usage_object(usage);
    Ok(json_ok(&answer))
}

/// The fields that every chunk of an answer has.
#[derive(Clone, Debug)]
struct ChunkHead {
    id: String,
    created: i64,
    model: String,
    /// True if the last chunk says the usage; the others then say that theirs is not known yet.
    with_usage: bool,
}

impl ChunkHead {
    fn of(asked: &PendingMessage, model: String) -> Self {
        let created = SystemClock.now().as_millis() / 1000;
        Self { id: format!("chatcmpl-{}-{}", asked.session, asked.entry), created, model, with_usage: false }
    }

    fn chunk_object(&self, object: &str, choice: &Value) -> Value {
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "choices": [choice],
        })
    }

    /// A chunk with more text, if there is any.
    fn text_chunk(&self, text: &str) -> Option<Value> {
        (!text.is_empty()).then(|| self.make_chunk(&json!({ "content": text }), None))
    }

    fn make_chunk(&self, delta: &Value, reason: Option<&str>) -> Value {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason });
        let mut chunk = self.chunk_object("chat.completion.chunk", &choice);
        if self.with_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}

const fn finish_reason(exit: Exit, cut: Option<Cut>) -> &'static str {
    match cut {
        Some(Cut::Stop) => return "stop",
        // A cut of this interface counts before the turn's own end.
        Some(Cut::Length) => return "length",
        None => {}
    }
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

fn usage_object((input, output): (u64, u64)) -> Value {
    let total = input.saturating_add(output);
    json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": total })
}

/// The progress of a stream.
struct ChunkProgress {
    pieces: tokio::sync::mpsc::Receiver<News>,
    /// The text that came, before any cut.
    said: String,
    limit: TextLimit,
    opening: Option<Value>,
}

/// The answer as it comes.
fn stream_answer(
    shared: Arc<ServerState>,
    evidence: Evidence,
    asked: PendingMessage,
    head: ChunkHead,
    limit: TextLimit,
) -> Response {
    let (session, entry) = (asked.session, asked.entry);
    let pieces = follow_turn(shared.engine.clone(), asked);
    let opening = Some(head.make_chunk(&json!({ "role": "assistant", "content": "" }), None));
    let start = ChunkProgress { pieces, said: String::new(), limit, opening };
    let chunks = stream::unfold(start, move |mut at| {
        let (head, shared) = (head.clone(), Arc::clone(&shared));
        async move {
            // The format begins with a chunk that has a role and no text.
            if let Some(opening) = at.opening.take() {
                return Some((stream_events(vec![opening], false), at));
            }
            let mut out = Vec::new();
            match at.pieces.recv().await? {
                News::Text(text) => {
                    out.extend(head.text_chunk(&at.limit.push_text(&text)));
                    at.said.push_str(&text);
                    return Some((stream_events(out, false), at));
                }
                News::End(text, exit) => match check_end(text, exit) {
                    Ok((text, exit)) => {
                        // The end may bring text that no delta had.
                        let shown =
                            at.limit.push_text(&unsent_rest(&at.said, &text)) + &at.limit.finish_text();
                        out.extend(head.text_chunk(&shown));
                        out.push(head.make_chunk(&json!({}), Some(finish_reason(exit, at.limit.cut()))));
                        if head.with_usage {
                            let mut last = head.make_chunk(&json!({}), None);
                            // The format has the usage in a chunk without choices.
                            last["choices"] = json!([]);
                            last["usage"] =
                                usage_object(token_usage(&shared, evidence, session, entry).await);
                            out.push(last);
                        }
                    }
                    Err(refusal) => out.push(failed_event(&refusal)),
                },
                News::Failed(report) => out.push(failed_event(&(*report).into())),
            }
            // The sender ends its task when it finds this closed.
            at.pieces.close();
            Some((stream_events(out, true), at))
        }
    });
    let events = futures::StreamExt::flat_map(chunks, stream::iter);
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

fn failed_event(refusal: &Refusal) -> Value {
    let report = refusal.report();
    json!({ "error": { "message": report.outside, "type": "server_error", "code": report.code, "param": null } })
}

fn stream_events(chunks: Vec<Value>, done: bool) -> Vec<Result<Event, Infallible>> {
    let mut events: Vec<_> =
        chunks.into_iter().map(|chunk| Ok(Event::default().data(chunk.to_string()))).collect();
    if done {
        events.push(Ok(Event::default().data("[DONE]")));
    }
    events
}
