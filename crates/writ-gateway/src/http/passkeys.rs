//! Passkeys of the page: `/api/v1/passkeys`, and the challenges that they sign.

use axum::extract::{Path, Request, State};
use serde::Deserialize;
use serde_json::Value;
use writ_policy::webauthn::Registration;
use writ_types::digest::Digest;
use writ_types::entry::ApprovalScope;

use super::api::{App, Reply, ask, ask_id, evidence, query};
use super::guard::Speaker;
use super::reply::{Refusal, ok, read, read_or_default};

/// The origin of the page that asks. Passkeys are bound to it, so a program that names none cannot use them.
fn origin(request: &Request) -> Result<String, Refusal> {
    let speaker = request.extensions().get::<Speaker>();
    speaker
        .and_then(|speaker| speaker.origin.clone())
        .ok_or_else(|| Refusal::malformed("passkeys are used by the page of this server"))
}

/// `GET /api/v1/passkeys`
pub(super) async fn list(State(shared): App, request: Request) -> Reply {
    query(&request, &[])?;
    Ok(ok(&ask(&shared, evidence(&request), "approvers.list", Value::Null).await?))
}

/// What begins an enrolment.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    /// The code that a terminal has shown.
    code: String,
}

/// `POST /api/v1/passkeys/begin`
pub(super) async fn begin(State(shared): App, request: Request) -> Reply {
    query(&request, &[])?;
    let (evidence, origin) = (evidence(&request), origin(&request)?);
    let Begin { code } = read(request, shared.config.max_message_bytes).await?;
    Ok(ok(&shared.engine.begin_passkey(evidence, &code, &origin)?))
}

/// What ends an enrolment.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Finish {
    credential: Registration,
}

/// `POST /api/v1/passkeys/finish`
pub(super) async fn finish(State(shared): App, request: Request) -> Reply {
    query(&request, &[])?;
    let (evidence, origin) = (evidence(&request), origin(&request)?);
    let Finish { credential } = read(request, shared.config.max_message_bytes).await?;
    Ok(ok(&shared.engine.finish_passkey(evidence, &credential, &origin).await?))
}

/// What is to be signed.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Challenge {
    /// Hash of the text that the page shows.
    shown_hash: Option<Digest>,
    /// How far the approval would reach.
    scope: ApprovalScope,
}

/// `POST /api/v1/approvals/{id}/challenge`
pub(super) async fn challenge(State(shared): App, Path(id): Path<String>, request: Request) -> Reply {
    let ask = ask_id(&id)?;
    query(&request, &[])?;
    let (evidence, origin) = (evidence(&request), origin(&request)?);
    let Challenge { shown_hash, scope } = read_or_default(request, shared.config.max_message_bytes).await?;
    Ok(ok(&shared.engine.challenge(evidence, (&ask, scope), shown_hash, &origin)?))
}
