//! Sessions over HTTP: `/api/v1/sessions`, and `/sessions` for simple clients.

use axum::extract::{Path, Request, State};
use axum::http::header;
use axum::response::IntoResponse as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use writ_runtime::engine::{Along, Join, PAGE, Surface};
use writ_runtime::methods::SessionsShow;
use writ_types::api::session::{SessionDetails, SessionName};
use writ_types::frame::Numbered;
use writ_types::id::{EntrySeq, SessionId};
use writ_types::taint::Taint;

use super::api::{App, Reply};
use super::query::{QueryField, check_query};
use super::reply::Refusal;
use super::route::{
    ApiRequest, Needed, NoBody, Optional, call_method, entry_seq, request_evidence, session_id,
};
use crate::connection::named_or_new;

/// The field of the query that names the last frame that a client has seen.
pub(super) const AFTER: &str = "after";

/// The options of a new session.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Opening")]
pub(super) struct SessionOptions {
    /// The project folder to work in.
    project: Option<String>,
    /// True if changes go to the project as they are made.
    write: bool,
    /// True if actions are decided and recorded but not performed.
    dry_run: bool,
    /// True if its messages come from people other than the owner.
    relayed: bool,
    /// The customer of a relayed session: the records of `customer_context_dir` about them are in its context.
    customer: Option<String>,
}

/// A session as programs of other makers expect it: its id stands in `session_id`, too.
#[derive(Serialize, JsonSchema)]
pub(super) struct NewSession {
    #[serde(flatten)]
    details: SessionDetails,
    session_id: SessionId,
}

/// `POST /api/v1/sessions`
pub(super) async fn open_for_page(
    request: ApiRequest<Optional<SessionOptions>>,
) -> Result<NewSession, Refusal> {
    open_session(request, Surface::Page).await
}

/// `POST /sessions`
pub(super) async fn open_for_program(
    request: ApiRequest<Optional<SessionOptions>>,
) -> Result<NewSession, Refusal> {
    open_session(request, Surface::Api).await
}

async fn open_session(
    request: ApiRequest<Optional<SessionOptions>>,
    surface: Surface,
) -> Result<NewSession, Refusal> {
    let (shared, evidence) = (request.shared.clone(), request.evidence());
    let SessionOptions { project, write, dry_run, relayed, customer } = request.into_body().await?;
    if customer.is_some() && !relayed {
        return Err(Refusal::malformed("'customer' is for a session with 'relayed'"));
    }
    // Joining by the project alone would mean its newest session; here a new one is asked for.
    let join = Join { project, write, dry_run, relayed, customer, surface, ..Join::default() };
    let session = shared.engine.open(evidence, join).await?;
    let details = call_method::<SessionsShow>(&shared, evidence, &SessionName { session }).await?;
    Ok(NewSession { details, session_id: session })
}

/// A session with its frames.
#[derive(Serialize, JsonSchema)]
pub(super) struct SessionHistory {
    #[serde(flatten)]
    details: SessionDetails,
    session_id: SessionId,
    /// The frames after the one that was seen last; the latest ones, if none is named.
    frames: Vec<Numbered>,
}

/// `GET /api/v1/sessions/{id}` and `GET /sessions/{id}`
pub(super) async fn show_session(request: ApiRequest<NoBody>) -> Result<SessionHistory, Refusal> {
    let session = request.session()?;
    let query = request.read_query(&[QueryField::number_field(AFTER)])?;
    let details =
        call_method::<SessionsShow>(&request.shared, request.evidence(), &SessionName { session }).await?;
    let after = match query.get(AFTER) {
        // Without a number the newest page is wanted, not the oldest.
        None => details.summary.seq.saturating_sub(u64::try_from(PAGE).unwrap_or(u64::MAX)),
        Some(after) => after.as_u64().ok_or_else(|| Refusal::malformed("'after' is a number"))?,
    };
    let frames = request.shared.engine.frames_after(session, after).await?;
    Ok(SessionHistory { details, session_id: session, frames })
}

/// A message for a session.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Message")]
pub(super) struct NewMessage {
    /// The text; `content` is another name for it.
    #[serde(alias = "content")]
    text: String,
    /// Unique per session; a duplicate returns the entry of the first. Without one, the engine chooses it.
    #[serde(default)]
    client_id: String,
    /// The owner's signature, as `writ keys sign` makes it.
    #[serde(default)]
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    signature: Option<Value>,
    /// The person who sent it, as the relay has verified.
    #[serde(default)]
    sender: Option<String>,
}

/// A message that was stored.
#[derive(Serialize, JsonSchema)]
pub(super) struct StoredMessage {
    client_id: String,
    /// The entry that recorded it.
    entry: EntrySeq,
}

/// `POST /api/v1/sessions/{id}/messages`
pub(super) async fn send_message(request: ApiRequest<Needed<NewMessage>>) -> Result<StoredMessage, Refusal> {
    let (session, shared, evidence) = (request.session()?, request.shared.clone(), request.evidence());
    let NewMessage { text, client_id, signature, sender } = request.into_body().await?;
    // Without an id of its own a message could not be recognised when it is sent twice.
    let client_id = named_or_new(client_id);
    let along = Along { text_taint: Taint::Owner, signature, sender };
    let entry = shared.engine.receive_with(evidence, session, client_id.clone(), text, along).await?;
    Ok(StoredMessage { client_id, entry })
}

/// `GET /api/v1/sessions/{id}/files/{file}`: a file that the agent has sent. It is sent as bytes to save, since the page's own
/// server must not show anything that an agent has made.
pub(super) async fn sent_file(
    State(shared): App,
    Path((id, file)): Path<(String, String)>,
    request: Request,
) -> Reply {
    let session = session_id(&id)?;
    let file = entry_seq(&file)?;
    check_query(request.uri(), &[])?;
    let sent = shared.engine.sent_file(request_evidence(&request), session, file).await?;
    // The name comes from the agent, so every special character is encoded.
    let name = form_urlencoded::byte_serialize(sent.name.as_bytes()).collect::<String>().replace('+', "%20");
    let disposition = format!("attachment; filename*=UTF-8''{name}");
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_DISPOSITION, disposition.as_str()),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, sent.content).into_response())
}
