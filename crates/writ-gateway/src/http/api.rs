//! Handlers of the API that do more than call one method of the engine.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use writ_policy::approval::SignedAnswer;
use writ_runtime::engine::{Answer, Answered};
use writ_runtime::methods::{LedgerProof, Status};
use writ_types::api::NoParams;
use writ_types::api::ledger::EntryName;
use writ_types::api::project::AnswerOutcome;
use writ_types::credential::Reference;
use writ_types::digest::Digest;
use writ_types::entry::{ApprovalScope, Decision};

use super::query::check_query;
use super::reply::{Refusal, json_ok, read_bytes};
use super::route::{ApiRequest, Needed, NoBody, call_method, entry_seq, request_evidence};
use super::{ServerState, SettingRow};

/// The largest secret that is accepted, in bytes: a private key with its certificates.
const MAX_SECRET_BYTES: usize = 64 * 1024;

/// The state that raw handlers are given.
pub(super) type App = State<Arc<ServerState>>;
/// The response of a raw handler.
pub(super) type Reply = Result<Response, Refusal>;

/// An answer to an ask.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AskAnswer {
    decision: Decision,
    /// The reach of an approval.
    #[serde(default)]
    scope: ApprovalScope,
    /// The reason, in the person's words.
    #[serde(default)]
    reason: String,
    /// The signed approval; absent if the page itself proves the person.
    #[serde(default)]
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    signature: Option<Value>,
    /// Hash of the text that the person was shown.
    #[serde(default)]
    shown_hash: Option<Digest>,
}

/// `POST /api/v1/approvals/{id}`
pub(super) async fn answer_ask(request: ApiRequest<Needed<AskAnswer>>) -> Result<AnswerOutcome, Refusal> {
    let (ask, shared, evidence) = (request.ask_id()?, request.shared.clone(), request.evidence());
    // The body is read after the path was checked, so that a wrong address costs nothing.
    let AskAnswer { decision, scope, reason, signature, shown_hash } = request.into_body().await?;
    let signed = signature.map(SignedAnswer::read_signed).transpose();
    let signed = signed.map_err(|error| Refusal::malformed(&format!("not an approval: {error}")))?;
    let answer = Answer { decision, scope, signed, shown: shown_hash, reason };
    let Answered { state, reason, text, exit } = shared.engine.answer(evidence, ask, answer).await?;
    Ok(AnswerOutcome { state, reason, text, exit })
}

/// The settings in force.
#[derive(Serialize, JsonSchema)]
pub(super) struct SettingList {
    settings: Vec<SettingRow>,
}

/// `GET /api/v1/settings`: as they were when the server started.
pub(super) async fn list_settings(request: ApiRequest<NoBody>) -> Result<SettingList, Refusal> {
    request.read_query(&[])?;
    // The engine alone knows whether the request comes from the owner.
    call_method::<Status>(&request.shared, request.evidence(), &NoParams {}).await?;
    Ok(SettingList { settings: request.shared.settings.clone() })
}

/// `GET /api/v1/ledger/{seq}/proof`
pub(super) async fn prove_entry(State(shared): App, Path(seq): Path<String>, request: Request) -> Reply {
    // The number is checked before the engine is asked.
    let seq = entry_seq(&seq)?;
    check_query(request.uri(), &[])?;
    let proof = call_method::<LedgerProof>(&shared, request_evidence(&request), &EntryName { seq }).await?;
    let mut response = json_ok(&json!(proof));
    // Saved and not shown: a proof is a file to be verified elsewhere.
    let name = format!("attachment; filename=\"writ-proof-{seq}.json\"");
    if let Ok(name) = HeaderValue::from_str(&name) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// `POST /secrets/{ref}`: the body is the value. It is stored and never shown again.
pub(super) async fn store_secret(State(shared): App, Path(name): Path<String>, request: Request) -> Reply {
    let name: Reference = name.parse().map_err(|error| Refusal::malformed(&format!("{error}")))?;
    let Some(secrets) = shared.secrets.clone() else { return Err(Refusal::not_found()) };
    // The engine alone knows whether the request comes from the owner.
    call_method::<Status>(&shared, request_evidence(&request), &NoParams {}).await?;
    // Read after the proof: a stranger cannot make the server take in 64 KiB.
    let body = read_bytes(request.into_body(), MAX_SECRET_BYTES).await?;
    let value = match String::from_utf8(body.to_vec()) {
        Ok(value) if !value.is_empty() => value.into(),
        Ok(_) | Err(_) => return Err(Refusal::malformed("the body is the value, as text")),
    };
    // A keyring may ask its person, which must not block other requests.
    let stored = tokio::task::spawn_blocking(move || secrets.store(&name, value)).await;
    stored.map_err(|_| {
        let (text, hint) =
            ("it was not stored", "`writ doctor` looks at the keys folder; then send it again");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "secret.failed", text, hint)
    })??;
    // From now on every output masks it.
    shared.engine.secrets_changed().await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
