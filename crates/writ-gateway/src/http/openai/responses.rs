//! `POST /v1/responses`

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

use super::{Asked, MAX_BODY_BYTES, News, Said, Wish, begin, ended, follow, rest, told, usage, whole};
use crate::http::Shared;
use crate::http::api::{App, evidence, session_id};
use crate::http::reply::{Refusal, ok, read};

/// What is asked.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Messages(Vec<Said>),
}

/// A request. What else it says changes nothing here.
#[derive(Debug, Deserialize)]
struct Body {
    model: String,
    input: Input,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(default)]
    previous_response_id: Option<String>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    tools: Vec<Value>,
}

/// `POST /v1/responses`
pub(in crate::http) async fn create(State(shared): App, request: Request) -> Response {
    respond(&shared, request).await.unwrap_or_else(told)
}

async fn respond(shared: &Arc<Shared>, request: Request) -> Result<Response, Refusal> {
    let evidence = evidence(&request);
    let headers = request.headers().clone();
    let body: Body = read(request, MAX_BODY_BYTES).await?;
    if !body.tools.is_empty() {
        return Err(Refusal::malformed("the agent has its own tools; it cannot use those of the request"));
    }
    let mut messages = match body.input {
        Input::Text(text) => vec![("user".to_owned(), text)],
        Input::Messages(said) => Wish::messages(said)?,
    };
    if let Some(instructions) = body.instructions {
        messages.insert(0, ("system".to_owned(), instructions));
    }
    let mut wish = Wish { model: body.model, messages, session: None, conversation: None };
    wish.place(&headers, body.user)?;
    if let Some(previous) = &body.previous_response_id {
        // An id of ours begins with the session.
        let session = previous.strip_prefix("resp_").and_then(|rest| rest.split('_').next());
        wish.session = Some(session_id(session.unwrap_or_default())?);
    }
    let asked = begin(shared, evidence, &wish).await?;
    let head = Head::of(&asked, wish.model, body.previous_response_id);
    if body.stream {
        return Ok(streamed(Arc::clone(shared), evidence, asked, head));
    }
    let (session, entry) = (asked.session, asked.entry);
    let (text, _) = whole(follow(shared.engine.clone(), asked)).await?;
    let usage = usage(shared, evidence, session, entry).await;
    Ok(ok(&head.response("completed", Some(&text), Some(usage))))
}

/// What every event of an answer says.
#[derive(Clone, Debug)]
struct Head {
    id: String,
    item: String,
    created: i64,
    model: String,
    previous: Option<String>,
}

impl Head {
    fn of(asked: &Asked, model: String, previous: Option<String>) -> Self {
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

    /// What an answer begins with.
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

    /// What an answer ends with.
    fn closing(&self, text: &str, usage: (u64, u64)) -> Vec<Value> {
        let place = json!({ "item_id": self.item, "output_index": 0, "content_index": 0 });
        vec![
            with("response.output_text.done", &place, "text", text.into()),
            with("response.content_part.done", &place, "part", part(text)),
            json!({
                "type": "response.output_item.done", "output_index": 0,
                "item": self.item("completed", Some(text)),
            }),
            json!({
                "type": "response.completed", "response": self.response("completed", Some(text), Some(usage)),
            }),
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

/// How far a stream has come.
struct Progress {
    pieces: tokio::sync::mpsc::Receiver<News>,
    said: String,
    number: u64,
    opening: Option<Vec<Value>>,
}

/// The answer as it comes.
fn streamed(shared: Arc<Shared>, evidence: Evidence, asked: Asked, head: Head) -> Response {
    let (session, entry) = (asked.session, asked.entry);
    let pieces = follow(shared.engine.clone(), asked);
    let start = Progress { pieces, said: String::new(), number: 0, opening: Some(head.opening()) };
    let events = stream::unfold(start, move |mut at| {
        let (head, shared) = (head.clone(), Arc::clone(&shared));
        async move {
            if let Some(opening) = at.opening.take() {
                return Some((numbered(opening, &mut at.number), at));
            }
            let mut out = Vec::new();
            match at.pieces.recv().await? {
                News::Text(text) => {
                    out.push(head.delta(&text));
                    at.said.push_str(&text);
                    return Some((numbered(out, &mut at.number), at));
                }
                News::End(text, exit) => match ended(text, exit) {
                    Ok((text, _)) => {
                        let rest = rest(&at.said, &text);
                        if !rest.is_empty() {
                            out.push(head.delta(&rest));
                            at.said.push_str(&rest);
                        }
                        out.extend(head.closing(&at.said, usage(&shared, evidence, session, entry).await));
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
