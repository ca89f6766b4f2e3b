//! The OpenAI API, which many programs speak: `/v1/models`, `/v1/chat/completions` and `/v1/responses`.
//!
//! A request sends one message to the agent and returns its answer. The other texts of the request (earlier messages,
//! instructions) are quoted in that message, and are not rules of the owner.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc};
use writ_policy::principal::Evidence;
use writ_runtime::engine::{Engine, Join, Surface};
use writ_runtime::methods::{FilesAdd, LedgerList, SessionsShow, Status};
use writ_types::api::NoParams;
use writ_types::api::file::NewFile;
use writ_types::api::ledger::LedgerFilter;
use writ_types::api::session::SessionName;
use writ_types::error::{Exit, Report};
use writ_types::frame::ServerFrame;
use writ_types::id::{EntrySeq, SessionId, TurnId};
use writ_types::taint::Taint;

use super::ServerState;
use super::api::{App, Reply};
use super::reply::{Refusal, ResponseError, json_ok};
use super::route::{call_method, request_evidence, session_id};
use crate::connection::named_or_new;
use fields::invalid_field;
use messages::ChatFile;

pub(super) mod chat;

mod fields;

mod limit;

mod messages;

pub(super) mod responses;

pub(super) mod schemas;

/// The root of this interface's paths.
pub(super) const ROOT: &str = "/v1";
/// The largest body of a request, in bytes: programs send a whole conversation each time, with its files as base64.
const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
/// The most messages of one request.
const MAX_MESSAGES: usize = 1_000;
/// The longest name of a conversation, in bytes.
const MAX_NAME_BYTES: usize = 128;
/// The most pieces of an answer that are queued for a slow program.
const PIECES: usize = 64;
/// The header that names a session by its id.
const SESSION_HEADER: &str = "x-writ-session";
/// The header that names a conversation by the program's own name for it.
const CONVERSATION_HEADER: &str = "x-conversation-id";
/// The fixed name of the model, which is accepted besides the agent's own name.
const MODEL: &str = "writ";

/// Returns the models of `/v1/models`: one agent under two names.
async fn list_models(shared: &ServerState, evidence: Evidence) -> Result<Vec<Value>, Refusal> {
    let agent = call_method::<Status>(shared, evidence, &NoParams {}).await?.agent;
    let model = |id: &str| json!({ "id": id, "object": "model", "created": 0, "owned_by": "writ" });
    Ok(vec![model(MODEL), model(&agent)])
}

/// `GET /v1/models`
pub(super) async fn answer_models(State(shared): App, request: Request) -> Reply {
    let models = list_models(&shared, request_evidence(&request)).await?;
    Ok(json_ok(&json!({ "object": "list", "data": models })))
}

/// `GET /v1/models/{id}`
pub(super) async fn answer_model(State(shared): App, Path(id): Path<String>, request: Request) -> Reply {
    let models = list_models(&shared, request_evidence(&request)).await?;
    let found = models.into_iter().find(|model| model.get("id").and_then(Value::as_str) == Some(&id));
    Ok(json_ok(&found.ok_or_else(unknown_model)?))
}

fn unknown_model() -> Refusal {
    let text = format!("there is no model of this name; use '{MODEL}'");
    let hint = "GET /v1/models lists the models";
    Refusal::new(StatusCode::NOT_FOUND, "model.unknown", &text, hint).about_field("model".to_owned())
}

/// A request in either format: chat completions or responses.
#[derive(Debug)]
struct ChatRequest {
    /// The model's name.
    model: String,
    /// The role and text of each message, oldest first.
    messages: Vec<(String, String)>,
    /// The session that the request names by its id.
    session: Option<SessionId>,
    /// The conversation that the request names.
    conversation: Option<String>,
    /// The images and PDF files of the last message.
    files: Vec<ChatFile>,
}

impl ChatRequest {
    /// Reads the place of the answer: a session, a named conversation, or neither for a new session.
    fn read_place(&mut self, request: &axum::http::HeaderMap, user: Option<String>) -> Result<(), Refusal> {
        let header = |name: &str| request.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        // A session id takes precedence over a name, since it is exact.
        if let Some(session) = header(SESSION_HEADER) {
            self.session = Some(session_id(&session)?);
        }
        self.conversation = header(CONVERSATION_HEADER).or(user).filter(|name| !name.is_empty());
        if self.conversation.as_ref().is_some_and(|name| name.len() > MAX_NAME_BYTES) {
            return Err(invalid_field(
                "user",
                &format!("names a conversation with more than {MAX_NAME_BYTES} bytes"),
            ));
        }
        Ok(())
    }

    /// Returns the text for the agent, and the highest trust that it may have. In a new session the text quotes
    /// the other messages; a session that continues has them already.
    fn message_text(&self, is_new: bool) -> Result<(String, Taint), Refusal> {
        // The last message that is no instruction is the request, so it must be the user's.
        let last = self.messages.iter().rposition(|(role, _)| !is_instruction(role));
        let own = last.and_then(|last| self.messages.get(last)).filter(|(role, _)| role == "user");
        let Some(((_, own), last)) = own.zip(last) else {
            return Err(invalid_field("messages", "must end with a message of the role 'user'"));
        };
        if own.trim().is_empty() {
            return Err(invalid_field("messages", "must end with a message that has text"));
        }
        let others = || self.messages.iter().enumerate().filter(|(n, _)| *n != last).map(|(_, one)| one);
        // A session that continues has the earlier messages already.
        if self.messages.len() == 1 || !is_new {
            return Ok((own.to_owned(), Taint::Owner));
        }
        let quoted = |(role, text): &(String, String)| {
            let lines: Vec<String> = text.lines().map(|line| format!("> {line}")).collect();
            format!("{role}:\n{}", lines.join("\n"))
        };
        // The least trusted of the quoted messages limits the trust in the whole text, since all are parts of it.
        let taint = others().map(|(role, _)| trust_of(role)).fold(Taint::Owner, Taint::join);
        let quoted: Vec<String> = others().map(quoted).collect();
        let text = format!(
            "The program that sends this message quotes what came before:\n\n{}\n\nThe message:\n\n{own}",
            quoted.join("\n\n")
        );
        Ok((text, taint))
    }
}

/// Returns the trust in a quoted message. Instructions come from the program, which has proven its identity by its
/// token. Any other message may come from anywhere, since no author of it was verified.
fn trust_of(role: &str) -> Taint {
    if is_instruction(role) { Taint::Auth } else { Taint::External }
}

/// Returns true for the roles in which a program instructs a model.
fn is_instruction(role: &str) -> bool {
    role == "system" || role == "developer"
}

/// A message that is on its way through the agent.
struct PendingMessage {
    session: SessionId,
    entry: EntrySeq,
    /// The client's id of the message: the frame that ends its turn repeats it.
    own: String,
    /// The turn that was already running: its text is not for this program.
    other: Option<TurnId>,
    live: broadcast::Receiver<Arc<writ_types::frame::Numbered>>,
}

/// A piece of an answer.
#[derive(Debug)]
enum News {
    /// More text.
    Text(String),
    /// The end: the whole text, and the exit code of the turn.
    End(String, Exit),
    /// The failure of the turn.
    Failed(Box<Report>),
}

/// Sends the message to its session, which begins a turn for it.
async fn begin_turn(
    shared: &Arc<ServerState>,
    evidence: Evidence,
    wanted: &ChatRequest,
) -> Result<PendingMessage, Refusal> {
    let agent = call_method::<Status>(shared, evidence, &NoParams {}).await?.agent;
    // The agent's own name and the fixed name mean the same model.
    if wanted.model != MODEL && wanted.model != agent {
        return Err(unknown_model());
    }
    let engine = &shared.engine;
    let joined = engine
        .join(
            evidence,
            Join {
                session: wanted.session,
                after_seq: u64::MAX,
                surface: Surface::Api,
                conversation: wanted.conversation.clone(),
                ..Join::default()
            },
        )
        .await?;
    let shown =
        call_method::<SessionsShow>(shared, evidence, &SessionName { session: joined.session }).await?;
    let other = shown.summary.running;
    // A session without frames counts as new, even if another client has opened it.
    let (text, taint) = wanted.message_text(joined.seq == 0)?;
    // The frame that ends the turn repeats this id, which distinguishes the answer from others in the session.
    let own = named_or_new(String::new());
    let text = store_files(shared, evidence, joined.session, (&wanted.files, text)).await?;
    let entry = engine.receive(evidence, joined.session, own.clone(), text, taint).await?;
    Ok(PendingMessage { session: joined.session, entry, own, other, live: joined.live })
}

/// Stores the files of a message, and returns its text with their lines.
async fn store_files(
    shared: &ServerState,
    evidence: Evidence,
    session: SessionId,
    (files, mut text): (&[ChatFile], String),
) -> Result<String, Refusal> {
    for ChatFile { name, content, place, .. } in files {
        let file = NewFile { session, name: name.clone(), content: content.clone() };
        let stored = call_method::<FilesAdd>(shared, evidence, &file).await;
        let stored = stored.map_err(|refusal| refusal.about_field(place.clone()))?;
        text.push('\n');
        text.push_str(&stored.line);
    }
    Ok(text)
}

/// Sends the news of a message until its turn has ended, or until the program has closed its connection.
fn follow_turn(engine: Engine, mut asked: PendingMessage) -> mpsc::Receiver<News> {
    let (out, pieces) = mpsc::channel(PIECES);
    tokio::spawn(async move {
        // The engine must not end while a program waits for the answer.
        let guest = engine.guest();
        let mut last = 0;
        let mut streamed = String::new();
        loop {
            let frame = tokio::select! {
                () = out.closed() => break,
                frame = asked.live.recv() => frame,
            };
            let frames = match frame {
                Ok(frame) => vec![Arc::unwrap_or_clone(frame)],
                // This task has fallen behind. Missed frames are read from the store. It has no deltas, but it has the frame with
                // their whole text.
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    engine.frames_after(asked.session, last).await.unwrap_or_default()
                }
                Err(broadcast::error::RecvError::Closed) => {
                    let text = "the engine has closed the session's stream before the answer was complete";
                    let report =
                        Report::new(Exit::Blocked, "watch.closed", text).with_hint("send the request again");
                    let _ = out.send(News::Failed(Box::new(report))).await;
                    break;
                }
            };
            for numbered in frames {
                last = last.max(numbered.seq);
                let news = asked.news_of(numbered.frame, &mut streamed);
                let ends = !matches!(news, None | Some(News::Text(_)));
                if let Some(news) = news
                    && (out.send(news).await.is_err() || ends)
                {
                    drop(guest);
                    return;
                }
            }
        }
        drop(guest);
    });
    pieces
}

impl PendingMessage {
    /// Translates a frame of the session into news of the message.
    fn news_of(&self, frame: ServerFrame, streamed: &mut String) -> Option<News> {
        match frame {
            // The text of a turn that was already running belongs to another program.
            ServerFrame::Delta { turn, text } if self.other != Some(turn) => {
                streamed.push_str(&text);
                Some(News::Text(text))
            }
            ServerFrame::Message { text, exit, last: true, answers, .. } if answers.contains(&self.own) => {
                Some(News::End(text, exit))
            }
            ServerFrame::Error { exit, code, text, hint, answers, .. } if answers.contains(&self.own) => {
                Some(News::Failed(Box::new(Report::new(exit, &code, text).with_hint(hint))))
            }
            ServerFrame::Delta { .. }
            | ServerFrame::Message { .. }
            | ServerFrame::Error { .. }
            | ServerFrame::Hello { .. }
            | ServerFrame::Accepted { .. }
            | ServerFrame::Text { .. }
            | ServerFrame::Tool { .. }
            | ServerFrame::File { .. }
            | ServerFrame::Work(_)
            | ServerFrame::GateApproval { .. }
            | ServerFrame::Checkpoint { .. }
            | ServerFrame::Reasoning { .. }
            | ServerFrame::Reset { .. }
            | ServerFrame::ApprovalRequest(_)
            | ServerFrame::ApprovalResolved { .. }
            | ServerFrame::Status { .. }
            | ServerFrame::Answer { .. } => None,
        }
    }
}

/// Returns the part of a whole answer that a stream has not sent yet.
fn unsent_rest(streamed: &str, whole: &str) -> String {
    // Usually the streamed text ends with the whole answer, and nothing is left to send.
    match streamed.trim_end().ends_with(whole.trim()) {
        true => String::new(),
        false if streamed.is_empty() => whole.to_owned(),
        false => format!("\n\n{whole}"),
    }
}

/// Waits for the whole answer. A turn that ends without one is an error.
async fn whole_answer(mut pieces: mpsc::Receiver<News>) -> Result<(String, Exit), Refusal> {
    while let Some(news) = pieces.recv().await {
        match news {
            News::Text(_) => {}
            News::End(text, exit) => return check_end(text, exit),
            News::Failed(report) => return Err((*report).into()),
        }
    }
    Err(Report::new(Exit::Blocked, "engine.stopping", "the engine stops")
        .with_hint("try again in a moment")
        .into())
}

/// Translates the end of a turn into its text, or into the reason why there is no answer.
fn check_end(text: String, exit: Exit) -> Result<(String, Exit), Refusal> {
    match exit {
        // A turn that waits, was denied or has used up its budget has a text that says so, which is an answer.
        Exit::Done | Exit::Waiting | Exit::Denied | Exit::Budget => Ok((text, exit)),
        Exit::Bug
        | Exit::Usage
        | Exit::Config
        | Exit::Model
        | Exit::Verification
        | Exit::Ledger
        | Exit::Blocked
        | Exit::Interrupted => Err(Report::new(exit, "turn.failed", text).with_hint(exit.advice()).into()),
    }
}

/// Returns the tokens that the turn of a message has used: those sent, and those answered.
async fn token_usage(
    shared: &ServerState,
    evidence: Evidence,
    session: SessionId,
    after: EntrySeq,
) -> (u64, u64) {
    let wanted = LedgerFilter {
        event: Some("model_called".to_owned()),
        session: Some(session),
        after: Some(after),
        limit: Some(200),
        ..LedgerFilter::default()
    };
    let listed = call_method::<LedgerList>(shared, evidence, &wanted).await;
    let entries = listed.map(|page| page.entries).unwrap_or_default();
    let sum = |name: &str| {
        let path = format!("/usage/{name}");
        let counts = entries.iter().filter_map(|entry| entry.payload.as_ref()?.pointer(&path)?.as_u64());
        counts.fold(0_u64, u64::saturating_add)
    };
    (sum("input"), sum("output"))
}

/// Rewrites an error response in the form that clients of the OpenAI API read; other responses stay as they are.
pub(super) fn shape_error(response: Response) -> Response {
    // Only the responses of our own errors carry a `ResponseError`.
    let Some(ResponseError { report, param }) = response.extensions().get::<ResponseError>().cloned() else {
        return response;
    };
    let kind = match response.status().as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    };
    let error = json!({ "error": {
        "message": report.outside, "type": kind, "code": report.code, "param": param,
        "text": report.outside, "hint": report.advice(),
    } });
    let (mut head, _) = response.into_parts();
    // The header has the length of the replaced body.
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Body::from(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(messages: &[(&str, &str)]) -> ChatRequest {
        let messages = messages.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect();
        ChatRequest {
            model: MODEL.to_owned(),
            messages,
            session: None,
            conversation: None,
            files: Vec::new(),
        }
    }

    #[test]
    fn the_last_message_is_sent_and_earlier_ones_are_quoted_once() {
        let plain = wanted(&[("user", "hi")]);
        assert_eq!(plain.message_text(true).expect("a text"), ("hi".to_owned(), Taint::Owner));
        let long = wanted(&[("system", "Be\nbrief."), ("user", "one"), ("assistant", "1"), ("user", "two")]);
        let (text, taint) = long.message_text(true).expect("a text");
        assert!(text.contains("system:\n> Be\n> brief.") && text.ends_with("The message:\n\ntwo"), "{text}");
        assert_eq!(taint, Taint::External);
        let known = long.message_text(false).expect("a text");
        assert_eq!(known, ("two".to_owned(), Taint::Owner), "the session knows the rest");
        for refused in [
            &[("system", "x")][..],
            &[("user", " ")],
            &[],
            &[("user", "x"), ("assistant", "y")],
            &[("user", "x"), ("assistant", "(called look with {})"), ("tool", "y")],
        ] {
            let refusal = wanted(refused).message_text(true).expect_err("refused");
            assert_eq!(refusal.param(), Some("messages"), "{refused:?}");
        }
        // Some clients repeat their instructions at the end.
        let late = wanted(&[("user", "hi"), ("system", "Be brief.")]);
        let (text, taint) = late.message_text(true).expect("a text");
        assert!(text.contains("system:\n> Be brief.") && text.ends_with("\n\nhi"), "{text}");
        assert_eq!(taint, Taint::Auth);
    }

    #[test]
    fn the_end_sends_only_text_that_was_not_streamed() {
        assert_eq!(unsent_rest("I look. Done.", "Done."), "");
        assert_eq!(unsent_rest("", "Done."), "Done.");
        assert_eq!(unsent_rest("I look.", "Done."), "\n\nDone.");
    }
}
