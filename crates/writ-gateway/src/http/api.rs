//! The API under `/api/v1`, and `/sessions` for clients that know no more.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use writ_policy::approval::Signed;
use writ_policy::principal::Evidence;
use writ_runtime::engine::{Along, Answer, Answered, Join, PAGE, Surface};
use writ_types::credential::Reference;
use writ_types::digest::Digest;
use writ_types::entry::{ApprovalScope, Decision};
use writ_types::id::{AskId, AttemptId, EntrySeq, SessionId};
use writ_types::taint::Taint;

use super::Shared;
use super::guard::Speaker;
use super::reply::{Refusal, answer, bytes, ok, read, read_or_default};
use crate::connection::named;

/// The largest secret that is taken in, in bytes: a private key with its certificates.
const MAX_SECRET_BYTES: usize = 64 * 1024;

/// What every handler is given.
pub(super) type App = State<Arc<Shared>>;
/// What every handler answers.
pub(super) type Reply = Result<Response, Refusal>;

/// Who asks; nobody has no evidence.
pub(super) fn evidence(request: &Request) -> Evidence {
    request.extensions().get::<Speaker>().map_or(Evidence::None, |speaker| speaker.evidence)
}

/// Asks the engine, in the name of who asks.
pub(super) async fn ask(
    shared: &Shared,
    evidence: Evidence,
    method: &str,
    params: Value,
) -> Result<Value, Refusal> {
    Ok(shared.engine.call(evidence, None, method, params).await?)
}

/// A session's id from a path.
pub(super) fn session_id(text: &str) -> Result<SessionId, Refusal> {
    text.parse().map_err(|_| Refusal::malformed("this is not the id of a session"))
}

pub(super) fn ask_id(text: &str) -> Result<AskId, Refusal> {
    text.parse().map_err(|_| Refusal::malformed("this is not the id of an ask"))
}

fn entry(text: &str) -> Result<EntrySeq, Refusal> {
    text.parse().map(EntrySeq).map_err(|_| Refusal::malformed("this is not the number of an entry"))
}

/// The query as fields; numbers and truth values as such. A name that is not listed is refused.
pub(super) fn query(request: &Request, names: &[&str]) -> Result<Map<String, Value>, Refusal> {
    let pairs = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
    pairs
        .map(|(name, value)| {
            if !names.contains(&name.as_ref()) {
                let text = format!("unknown parameter '{}'; known: {}", crop(&name), names.join(", "));
                return Err(Refusal::malformed(&text));
            }
            let texts = ["event", "session", "q"];
            let typed = match value.parse::<u64>() {
                Ok(number) if !texts.contains(&name.as_ref()) => number.into(),
                Ok(_) | Err(_) => match value.as_ref() {
                    "true" => Value::Bool(true),
                    "false" => Value::Bool(false),
                    text => text.into(),
                },
            };
            Ok((name.into_owned(), typed))
        })
        .collect()
}

fn crop(text: &str) -> String {
    text.chars().take(40).collect()
}

/// `GET /api/v1/state`
pub(super) async fn state(State(shared): App, request: Request) -> Reply {
    query(&request, &[])?;
    Ok(ok(&ask(&shared, evidence(&request), "status", Value::Null).await?))
}

/// `GET /api/v1/sessions`
pub(super) async fn sessions(State(shared): App, request: Request) -> Reply {
    query(&request, &[])?;
    Ok(ok(&ask(&shared, evidence(&request), "sessions.list", Value::Null).await?))
}

/// How a session is opened.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct Opening {
    project: Option<String>,
    write: bool,
    dry_run: bool,
    relayed: bool,
}

/// `POST /api/v1/sessions`
pub(super) async fn open_session(State(shared): App, request: Request) -> Reply {
    open(&shared, request, Surface::Page).await
}

/// `POST /sessions`
pub(super) async fn open_plain_session(State(shared): App, request: Request) -> Reply {
    open(&shared, request, Surface::Api).await
}

async fn open(shared: &Shared, request: Request, surface: Surface) -> Reply {
    let evidence = evidence(&request);
    let Opening { project, write, dry_run, relayed } =
        read_or_default(request, shared.config.max_message_bytes).await?;
    // A page's session by its project name alone is the newest; here a new one is asked for.
    let session = shared
        .engine
        .open(evidence, Join { project, write, dry_run, relayed, surface, ..Join::default() })
        .await?;
    let mut shown =
        shared.engine.call(evidence, None, "sessions.show", json!({ "session": session })).await?;
    add_id(&mut shown);
    Ok(answer(StatusCode::CREATED, &shown))
}

/// Programs of other makers look for `session_id`.
fn add_id(shown: &mut Value) {
    if let Some(fields) = shown.as_object_mut()
        && let Some(session) = fields.get("session").cloned()
    {
        fields.insert("session_id".to_owned(), session);
    }
}

/// `GET /api/v1/sessions/{id}` and `GET /sessions/{id}`
pub(super) async fn session(State(shared): App, Path(id): Path<String>, request: Request) -> Reply {
    let session = session_id(&id)?;
    let query = query(&request, &["after"])?;
    let mut shown = ask(&shared, evidence(&request), "sessions.show", json!({ "session": session })).await?;
    let last = shown.get("seq").and_then(Value::as_u64).unwrap_or(0);
    let after = match query.get("after") {
        None => last.saturating_sub(u64::try_from(PAGE).unwrap_or(u64::MAX)),
        Some(after) => after.as_u64().ok_or_else(|| Refusal::malformed("'after' is a number"))?,
    };
    let frames = shared.engine.frames_after(session, after)?;
    add_id(&mut shown);
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("frames".to_owned(), json!(frames));
    }
    Ok(ok(&shown))
}

/// `DELETE /api/v1/sessions/{id}` and `DELETE /sessions/{id}`
pub(super) async fn close_session(State(shared): App, Path(id): Path<String>, request: Request) -> Reply {
    let session = session_id(&id)?;
    Ok(ok(&ask(&shared, evidence(&request), "sessions.close", json!({ "session": session })).await?))
}

/// A message.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewMessage {
    #[serde(alias = "content")]
    text: String,
    #[serde(default)]
    client_id: String,
    #[serde(default)]
    signature: Option<Value>,
    #[serde(default)]
    sender: Option<String>,
}

/// `POST /api/v1/sessions/{id}/messages`
pub(super) async fn message(State(shared): App, Path(id): Path<String>, request: Request) -> Reply {
    let session = session_id(&id)?;
    let evidence = evidence(&request);
    let NewMessage { text, client_id, signature, sender } =
        read(request, shared.config.max_message_bytes).await?;
    let client_id = named(client_id);
    let along = Along { text_taint: Taint::Owner, signature, sender };
    let entry = shared.engine.receive_with(evidence, session, client_id.clone(), text, along).await?;
    Ok(answer(StatusCode::ACCEPTED, &json!({ "client_id": client_id, "entry": entry })))
}

/// `GET /api/v1/sessions/{id}/diff`
pub(super) async fn diff(State(shared): App, Path(id): Path<String>, request: Request) -> Reply {
    let session = session_id(&id)?;
    query(&request, &[])?;
    Ok(ok(&ask(&shared, evidence(&request), "diff", json!({ "session": session })).await?))
}

/// `POST /api/v1/sessions/{id}/apply`
pub(super) async fn apply(State(shared): App, Path(id): Path<String>, request: Request) -> Reply {
    let session = session_id(&id)?;
    query(&request, &[])?;
    Ok(ok(&ask(&shared, evidence(&request), "apply", json!({ "session": session })).await?))
}

/// `GET /api/v1/sessions/{id}/files/{file}`: a file that the agent has sent. It is handed out as bytes to keep, whatever
/// it is: nothing that an agent has made is shown by the page's own server.
pub(super) async fn sent_file(
    State(shared): App,
    Path((id, file)): Path<(String, String)>,
    request: Request,
) -> Reply {
    let session = session_id(&id)?;
    let file = entry(&file)?;
    query(&request, &[])?;
    let sent = shared.engine.sent_file(evidence(&request), session, file).await?;
    let name = form_urlencoded::byte_serialize(sent.name.as_bytes()).collect::<String>().replace('+', "%20");
    let disposition = format!("attachment; filename*=UTF-8''{name}");
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_DISPOSITION, disposition.as_str()),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, sent.content).into_response())
}

/// `GET /api/v1/approvals`
pub(super) async fn approvals(State(shared): App, request: Request) -> Reply {
    let query = query(&request, &["all"])?;
    Ok(ok(&ask(&shared, evidence(&request), "approvals.list", Value::Object(query)).await?))
}

/// `GET /api/v1/approvals/{id}`
pub(super) async fn approval(State(shared): App, Path(id): Path<String>, request: Request) -> Reply {
    let ask_id = ask_id(&id)?;
    query(&request, &[])?;
    Ok(ok(&ask(&shared, evidence(&request), "approvals.show", json!({ "ask": ask_id })).await?))
}

/// `GET /api/v1/approvals/{id}/rests-on`
pub(super) async fn approval_rests_on(State(shared): App, Path(id): Path<String>, request: Request) -> Reply {
    let ask_id = ask_id(&id)?;
    query(&request, &[])?;
    Ok(ok(&ask(&shared, evidence(&request), "approvals.rests_on", json!({ "ask": ask_id })).await?))
}

/// `GET /api/v1/approvals/review`
pub(super) async fn review(State(shared): App, request: Request) -> Reply {
    query(&request, &[])?;
    Ok(ok(&ask(&shared, evidence(&request), "approvals.review", Value::Null).await?))
}

/// An answer to an ask.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decided {
    decision: Decision,
    #[serde(default)]
    scope: ApprovalScope,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    signature: Option<Value>,
    #[serde(default)]
    shown_hash: Option<Digest>,
}

/// `POST /api/v1/approvals/{id}`
pub(super) async fn decide(State(shared): App, Path(id): Path<String>, request: Request) -> Reply {
    let ask = ask_id(&id)?;
    let evidence = evidence(&request);
    let Decided { decision, scope, reason, signature, shown_hash } =
        read(request, shared.config.max_message_bytes).await?;
    let signed = signature.map(Signed::read).transpose();
    let signed = signed.map_err(|error| Refusal::malformed(&format!("not an approval: {error}")))?;
    let answer = Answer { decision, scope, signed, shown: shown_hash, reason };
    let Answered { state, reason, text, exit } = shared.engine.answer(evidence, ask, answer).await?;
    Ok(ok(&json!({ "state": state, "reason": reason, "text": text, "exit": exit })))
}

/// `GET /api/v1/approvals/in-force`
pub(super) async fn in_force(State(shared): App, request: Request) -> Reply {
    query(&request, &[])?;
    Ok(ok(&ask(&shared, evidence(&request), "approvals.in_force", Value::Null).await?))
}

/// `DELETE /api/v1/approvals/{id}`
pub(super) async fn revoke(State(shared): App, Path(id): Path<String>, request: Request) -> Reply {
    let ask_id = ask_id(&id)?;
    query(&request, &[])?;
    Ok(ok(&ask(&shared, evidence(&request), "approvals.revoke", json!({ "ask": ask_id })).await?))
}

/// `GET /api/v1/undo`
pub(super) async fn undos(State(shared): App, request: Request) -> Reply {
    query(&request, &[])?;
    Ok(ok(&ask(&shared, evidence(&request), "undo.list", Value::Null).await?))
}

/// `POST /api/v1/undo/{attempt}`
pub(super) async fn undo(State(shared): App, Path(attempt): Path<String>, request: Request) -> Reply {
    let attempt: AttemptId =
        attempt.parse().map_err(|_| Refusal::malformed("this is not the id of an attempt"))?;
    query(&request, &[])?;
    Ok(ok(&ask(&shared, evidence(&request), "undo", json!({ "attempt": attempt })).await?))
}

/// `GET /api/v1/ledger`
pub(super) async fn ledger(State(shared): App, request: Request) -> Reply {
    let query = query(&request, &["before", "after", "limit", "event", "session", "q"])?;
    Ok(ok(&ask(&shared, evidence(&request), "ledger.list", Value::Object(query)).await?))
}

/// `GET /api/v1/ledger/{seq}/proof`
pub(super) async fn proof(State(shared): App, Path(seq): Path<String>, request: Request) -> Reply {
    let seq = entry(&seq)?;
    query(&request, &[])?;
    let mut response = ok(&ask(&shared, evidence(&request), "ledger.proof", json!({ "seq": seq })).await?);
    let name = format!("attachment; filename=\"writ-proof-{seq}.json\"");
    if let Ok(name) = HeaderValue::from_str(&name) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// `GET /api/v1/ledger/{seq}/rests-on`
pub(super) async fn rests_on(State(shared): App, Path(seq): Path<String>, request: Request) -> Reply {
    let seq = entry(&seq)?;
    query(&request, &[])?;
    Ok(ok(&ask(&shared, evidence(&request), "ledger.rests_on", json!({ "seq": seq })).await?))
}

/// `POST /secrets/{ref}`: the body is the value. It is stored and never shown again.
pub(super) async fn secret(State(shared): App, Path(name): Path<String>, request: Request) -> Reply {
    let name: Reference = name.parse().map_err(|error| Refusal::malformed(&format!("{error}")))?;
    let Some(secrets) = shared.secrets.clone() else { return Err(Refusal::nothing()) };
    // The engine knows whether this is the owner.
    let _status = ask(&shared, evidence(&request), "status", Value::Null).await?;
    let body = bytes(request.into_body(), MAX_SECRET_BYTES).await?;
    let value = match String::from_utf8(body.to_vec()) {
        Ok(value) if !value.is_empty() => value.into(),
        Ok(_) | Err(_) => return Err(Refusal::malformed("the body is the value, as text")),
    };
    // A keyring may ask its person; that must not hold up others.
    let stored = tokio::task::spawn_blocking(move || secrets.store(&name, value)).await;
    stored.map_err(|_| {
        let (text, hint) =
            ("it was not stored", "`writ doctor` looks at the keys folder; then send it again");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "secret.failed", text, hint)
    })??;
    // From here on nothing that is said may hold it.
    shared.engine.secrets_changed().await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
