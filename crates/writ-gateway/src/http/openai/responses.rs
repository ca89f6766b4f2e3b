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

use super::fields::{Fields, RESPONSES, invalid_field};
use super::limit::{Cut, TextLimit};
use super::messages::read_messages;
use super::{
    ChatRequest, MAX_BODY_BYTES, News, PendingMessage, begin_turn, check_end, follow_turn, token_usage,
    unsent_rest, whole_answer,
};
use crate::http::ServerState;
use crate::http::api::App;
use crate::http::reply::{Refusal, json_ok, read_json};
use crate::http::route::{request_evidence, session_id};

/// `POST /v1/responses`
pub(in crate::http) async fn create_response(State(shared): App, request: Request) -> Response {
    respond_to(&shared, request).await.unwrap_or_else(Refusal::into_response)
}

async fn respond_to(shared: &Arc<ServerState>, request: Request) -> Result<Response, Refusal> {
    let evidence = request_evidence(&request);
    let headers = request.headers().clone();
    let mut fields = Fields::check(read_json(request, MAX_BODY_BYTES).await?, RESPONSES)?;
    let model = fields.needed_text("model")?;
    let (mut messages, files) = match fields.take_field("input") {
        None => return Err(invalid_field("input", "is missing")),
        Some(Value::String(text)) => (vec![("user".to_owned(), text)], Vec::new()),
        Some(list) => read_messages(list, "input")?,
    };
    // Instructions come first, as the format has them.
    if let Some(instructions) = fields.take_text("instructions")? {
        messages.insert(0, ("system".to_owned(), instructions));
    }
    let (user, stream) = (fields.take_text("user")?, fields.take_flag("stream")?);
    let previous = fields.take_text("previous_response_id")?;
    let mut limit = TextLimit::read(&mut fields, &["max_output_tokens"])?;
    let mut wanted = ChatRequest { model, messages, session: None, conversation: None, files };
    wanted.read_place(&headers, user)?;
    if let Some(previous) = &previous {
        // An id of ours begins with the session.
        let session = previous.strip_prefix("resp_").and_then(|rest| rest.split('_').next());
        let session = session_id(session.unwrap_or_default());
        wanted.session =
            Some(session.map_err(|refusal| refusal.about_field("previous_response_id".to_owned()))?);
    }
    let asked = begin_turn(shared, evidence, &wanted).await?;
    let head = Head::of(&asked, wanted.model, previous);
    if stream {
        return Ok(stream_response(Arc::clone(shared), evidence, asked, head, limit));
    }
    let (session, entry) = (asked.session, asked.entry);
    let (text, _) = whole_answer(follow_turn(shared.engine.clone(), asked)).await?;
    let usage = token_usage(shared, evidence, session, entry).await;
    let text = limit.limit_text(&text);
    Ok(json_ok(&head.ended_response(&text, usage, limit.cut())))
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

    fn output_item(&self, status: &str, text: Option<&str>) -> Value {
        let content: Vec<Value> = text.into_iter().map(text_part).collect();
        json!({ "id": self.item, "type": "message", "role": "assistant", "status": status, "content": content })
    }

    fn response_object(&self, status: &str, text: Option<&str>, usage: Option<(u64, u64)>) -> Value {
        let output: Vec<Value> =
            text.into_iter().map(|text| self.output_item("completed", Some(text))).collect();
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
    fn ended_response(&self, text: &str, usage: (u64, u64), cut: Option<Cut>) -> Value {
        let is_cut = cut.is_some();
        let status = if is_cut { "incomplete" } else { "completed" };
        let mut response = self.response_object(status, Some(text), Some(usage));
        // The format has one word for both kinds of cuts.
        if is_cut {
            response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        }
        response
    }

    /// Returns the events that begin an answer.
    fn opening_events(&self) -> Vec<Value> {
        let place = json!({ "item_id": self.item, "output_index": 0, "content_index": 0 });
        vec![
            json!({ "type": "response.created", "response": self.response_object("in_progress", None, None) }),
            json!({ "type": "response.in_progress", "response": self.response_object("in_progress", None, None) }),
            json!({
                "type": "response.output_item.added", "output_index": 0, "item": self.output_item("in_progress", None),
            }),
            with_field("response.content_part.added", &place, "part", text_part("")),
        ]
    }

    fn delta_event(&self, text: &str) -> Value {
        let place = json!({ "item_id": self.item, "output_index": 0, "content_index": 0, "logprobs": [] });
        with_field("response.output_text.delta", &place, "delta", text.into())
    }

    /// Returns the events that end an answer.
    fn closing_events(&self, text: &str, usage: (u64, u64), cut: Option<Cut>) -> Vec<Value> {
        let place = json!({ "item_id": self.item, "output_index": 0, "content_index": 0 });
        let kind = if cut.is_some() { "response.incomplete" } else { "response.completed" };
        // The order of the events is that of the format; clients rely on it.
        vec![
            with_field("response.output_text.done", &place, "text", text.into()),
            with_field("response.content_part.done", &place, "part", text_part(text)),
            json!({
                "type": "response.output_item.done", "output_index": 0,
                "item": self.output_item("completed", Some(text)),
            }),
            json!({ "type": kind, "response": self.ended_response(text, usage, cut) }),
        ]
    }

    fn failure_event(&self, refusal: &Refusal) -> Value {
        let mut response = self.response_object("failed", None, None);
        let report = refusal.report();
        response["error"] = json!({ "code": report.code, "message": report.outside });
        json!({ "type": "response.failed", "response": response })
    }
}

fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn with_field(kind: &str, place: &Value, name: &str, value: Value) -> Value {
    let mut event = place.clone();
    event["type"] = kind.into();
    event[name] = value;
    event
}

/// The progress of a stream.
struct ResponseProgress {
    pieces: tokio::sync::mpsc::Receiver<News>,
    /// The text that came, before any cut.
    said: String,
    /// The text that was shown.
    shown: String,
    limit: TextLimit,
    number: u64,
    opening: Option<Vec<Value>>,
}

impl ResponseProgress {
    /// An event with more text, if there is any.
    fn show_news(&mut self, head: &Head, text: &str) -> Option<Value> {
        self.shown.push_str(text);
        (!text.is_empty()).then(|| head.delta_event(text))
    }
}

/// The answer as it comes.
fn stream_response(
    shared: Arc<ServerState>,
    evidence: Evidence,
    asked: PendingMessage,
    head: Head,
    limit: TextLimit,
) -> Response {
    let (session, entry) = (asked.session, asked.entry);
    let pieces = follow_turn(shared.engine.clone(), asked);
    let (said, shown, opening) = (String::new(), String::new(), Some(head.opening_events()));
    let start = ResponseProgress { pieces, said, shown, limit, number: 0, opening };
    let events = stream::unfold(start, move |mut at| {
        let (head, shared) = (head.clone(), Arc::clone(&shared));
        async move {
            if let Some(opening) = at.opening.take() {
                return Some((number_event(opening, &mut at.number), at));
            }
            let mut out = Vec::new();
            match at.pieces.recv().await? {
                News::Text(text) => {
                    at.said.push_str(&text);
                    let shown = at.limit.push_text(&text);
                    out.extend(at.show_news(&head, &shown));
                    return Some((number_event(out, &mut at.number), at));
                }
                News::End(text, exit) => match check_end(text, exit) {
                    Ok((text, _)) => {
                        let shown =
                            at.limit.push_text(&unsent_rest(&at.said, &text)) + &at.limit.finish_text();
                        out.extend(at.show_news(&head, &shown));
                        let usage = token_usage(&shared, evidence, session, entry).await;
                        out.extend(head.closing_events(&at.shown, usage, at.limit.cut()));
                    }
                    Err(refusal) => out.push(head.failure_event(&refusal)),
                },
                News::Failed(report) => out.push(head.failure_event(&(*report).into())),
            }
            at.pieces.close();
            Some((number_event(out, &mut at.number), at))
        }
    });
    let events = futures::StreamExt::flat_map(events, stream::iter);
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// Events with their names and numbers.
fn number_event(events: Vec<Value>, number: &mut u64) -> Vec<Result<Event, Infallible>> {
    let named = events.into_iter().map(|mut event| {
        event["sequence_number"] = (*number).into();
        *number = number.saturating_add(1);
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Event::default().event(kind).data(event.to_string()))
    });
    named.collect()
}
