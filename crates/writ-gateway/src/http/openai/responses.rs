//! `POST /v1/responses`

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::stream;
use serde_json::{Value, json};
use writ_policy::principal::Evidence;
use writ_runtime::clock::{Clock as _, SystemClock};

use super::fields::{Fields, RESPONSES, invalid};
use super::limit::{Cut, Limit};
use super::messages::read_messages;
use super::{ChatRequest, MAX_BODY_BYTES, News, PendingMessage, begin, ended, follow, rest, usage, whole};
use crate::http::Shared;
use crate::http::api::App;
use crate::http::reply::{Refusal, ok, read};
use crate::http::route::{evidence, session_id};

/// `POST /v1/responses`
pub(in crate::http) async fn create(State(shared): App, request: Request) -> Response {
    respond(&shared, request).await.unwrap_or_else(Refusal::into_response)
}

async fn respond(shared: &Arc<Shared>, request: Request) -> Result<Response, Refusal> {
    let evidence = evidence(&request);
    let headers = request.headers().clone();
    let mut fields = Fields::check(read(request, MAX_BODY_BYTES).await?, RESPONSES)?;
    let model = fields.needed_text("model")?;
    let mut messages = match fields.take("input") {
        None => return Err(invalid("input", "is missing")),
        Some(Value::String(text)) => vec![("user".to_owned(), text)],
        Some(list) => read_messages(list, "input")?,
    };
    if let Some(instructions) = fields.text("instructions")? {
        messages.insert(0, ("system".to_owned(), instructions));
    }
    let (user, stream) = (fields.text("user")?, fields.flag("stream")?);
    let previous = fields.text("previous_response_id")?;
    let mut limit = Limit::read(&mut fields, &["max_output_tokens"])?;
    let mut wanted = ChatRequest { model, messages, session: None, conversation: None };
    wanted.place(&headers, user)?;
    if let Some(previous) = &previous {
        // An id of ours begins with the session.
        let session = previous.strip_prefix("resp_").and_then(|rest| rest.split('_').next());
        let session = session_id(session.unwrap_or_default());
        wanted.session = Some(session.map_err(|refusal| refusal.about("previous_response_id".to_owned()))?);
    }
    let asked = begin(shared, evidence, &wanted).await?;
    let head = Head::of(&asked, wanted.model, previous);
    if stream {
        return Ok(streamed(Arc::clone(shared), evidence, asked, head, limit));
    }
    let (session, entry) = (asked.session, asked.entry);
    let (text, _) = whole(follow(shared.engine.clone(), asked)).await?;
    let usage = usage(shared, evidence, session, entry).await;
    let text = limit.whole(&text);
    Ok(ok(&head.ended(&text, usage, limit.cut())))
}

/// The fields that every event of an answer has.
#[derive(Clone, Debug)]
struct Head {
    id: String,
    item: String,
    created: i64,
    model: String,
    previous: Option<String>,
}

impl Head {
    fn of(asked: &PendingMessage, model: String, previous: Option<String>) -> Self {
        let created = SystemClock.now().as_millis() / 1000;
        let name = format!("{}_{}", asked.session, asked.entry);
        Self { id: format!("resp_{name}"), item: format!("msg_{name}"), created, model, previous }
    }

    fn item(&self, status: &str, text: Option<&str>) -> Value {
        let content: Vec<Value> = text.into_iter().map(part).collect();
        json!({ "id": self.item, "type": "message", "role": "assistant", "status": status, "content": content })
    }

    fn response(&self, status: &str, text: Option<&str>, usage: Option<(u64, u64)>) -> Value {
        let output: Vec<Value> = text.into_iter().map(|text| self.item("completed", Some(text))).collect();
        let usage = usage.map(|(input, output)| {
            json!({
                "input_tokens": input, "input_tokens_details": { "cached_tokens": 0 },
                "output_tokens": output, "output_tokens_details": { "reasoning_tokens": 0 },
                "total_tokens": input.saturating_add(output),
            })
        });
        json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status,
            "model": self.model, "output": output, "usage": usage, "error": null,
            "incomplete_details": null, "instructions": null, "metadata": {}, "parallel_tool_calls": false,
            "previous_response_id": self.previous,
            "temperature": null, "tool_choice": "auto", "tools": [], "top_p": null,
        })
    }

    /// The whole response; one that was cut says why it is incomplete.
    fn ended(&self, text: &str, usage: (u64, u64), cut: Option<Cut>) -> Value {
        let is_cut = cut.is_some();
        let status = if is_cut { "incomplete" } else { "completed" };
        let mut response = self.response(status, Some(text), Some(usage));
        if is_cut {
            response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        }
        response
    }

    /// Returns the events that begin an answer.
    fn opening(&self) -> Vec<Value> {
        let place = json!({ "item_id": self.item, "output_index": 0, "content_index": 0 });
        vec![
            json!({ "type": "response.created", "response": self.response("in_progress", None, None) }),
            json!({ "type": "response.in_progress", "response": self.response("in_progress", None, None) }),
            json!({
                "type": "response.output_item.added", "output_index": 0, "item": self.item("in_progress", None),
            }),
            with("response.content_part.added", &place, "part", part("")),
        ]
    }

    fn delta(&self, text: &str) -> Value {
        let place = json!({ "item_id": self.item, "output_index": 0, "content_index": 0, "logprobs": [] });
        with("response.output_text.delta", &place, "delta", text.into())
    }

    /// Returns the events that end an answer.
    fn closing(&self, text: &str, usage: (u64, u64), cut: Option<Cut>) -> Vec<Value> {
        let place = json!({ "item_id": self.item, "output_index": 0, "content_index": 0 });
        let kind = if cut.is_some() { "response.incomplete" } else { "response.completed" };
        vec![
            with("response.output_text.done", &place, "text", text.into()),
            with("response.content_part.done", &place, "part", part(text)),
            json!({
                "type": "response.output_item.done", "output_index": 0,
                "item": self.item("completed", Some(text)),
            }),
            json!({ "type": kind, "response": self.ended(text, usage, cut) }),
        ]
    }

    fn failure(&self, refusal: &Refusal) -> Value {
        let mut response = self.response("failed", None, None);
        let report = refusal.report();
        response["error"] = json!({ "code": report.code, "message": report.outside });
        json!({ "type": "response.failed", "response": response })
    }
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn with(kind: &str, place: &Value, name: &str, value: Value) -> Value {
    let mut event = place.clone();
    event["type"] = kind.into();
    event[name] = value;
    event
}

/// The progress of a stream.
struct Progress {
    pieces: tokio::sync::mpsc::Receiver<News>,
    /// The text that came, before any cut.
    said: String,
    /// The text that was shown.
    shown: String,
    limit: Limit,
    number: u64,
    opening: Option<Vec<Value>>,
}

impl Progress {
    /// An event with more text, if there is any.
    fn show(&mut self, head: &Head, text: &str) -> Option<Value> {
        self.shown.push_str(text);
        (!text.is_empty()).then(|| head.delta(text))
    }
}

/// The answer as it comes.
fn streamed(
    shared: Arc<Shared>,
    evidence: Evidence,
    asked: PendingMessage,
    head: Head,
    limit: Limit,
) -> Response {
    let (session, entry) = (asked.session, asked.entry);
    let pieces = follow(shared.engine.clone(), asked);
    let (said, shown, opening) = (String::new(), String::new(), Some(head.opening()));
    let start = Progress { pieces, said, shown, limit, number: 0, opening };
    let events = stream::unfold(start, move |mut at| {
        let (head, shared) = (head.clone(), Arc::clone(&shared));
        async move {
            if let Some(opening) = at.opening.take() {
                return Some((numbered(opening, &mut at.number), at));
            }
            let mut out = Vec::new();
            match at.pieces.recv().await? {
                News::Text(text) => {
                    at.said.push_str(&text);
                    let shown = at.limit.push(&text);
                    out.extend(at.show(&head, &shown));
                    return Some((numbered(out, &mut at.number), at));
                }
                News::End(text, exit) => match ended(text, exit) {
                    Ok((text, _)) => {
                        let shown = at.limit.push(&rest(&at.said, &text)) + &at.limit.finish();
                        out.extend(at.show(&head, &shown));
                        let usage = usage(&shared, evidence, session, entry).await;
                        out.extend(head.closing(&at.shown, usage, at.limit.cut()));
                    }
                    Err(refusal) => out.push(head.failure(&refusal)),
                },
                News::Failed(report) => out.push(head.failure(&(*report).into())),
            }
            at.pieces.close();
            Some((numbered(out, &mut at.number), at))
        }
    });
    let events = futures::StreamExt::flat_map(events, stream::iter);
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// Events with their names and numbers.
fn numbered(events: Vec<Value>, number: &mut u64) -> Vec<Result<Event, Infallible>> {
    let named = events.into_iter().map(|mut event| {
        event["sequence_number"] = (*number).into();
        *number = number.saturating_add(1);
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Event::default().event(kind).data(event.to_string()))
    });
    named.collect()
}
