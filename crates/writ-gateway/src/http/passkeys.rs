//! Passkeys of the page: `/api/v1/passkeys`, and the challenges that they sign.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use writ_inspect::webauthn::Registration;
use writ_types::digest::Digest;
use writ_types::entry::ApprovalScope;

use super::reply::Refusal;
use super::route::{ApiRequest, Needed, Optional};

/// Options for the browser's `navigator.credentials`, as WebAuthn defines them.
#[derive(Serialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct CredentialOptions {
    #[schemars(with = "Map<String, Value>")]
    options: Value,
}

/// Begins an enrolment.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Begin")]
pub(super) struct EnrolmentCode {
    /// The code that a terminal has shown.
    code: String,
}

/// `POST /api/v1/passkeys/begin`
pub(super) async fn begin_passkey(
    request: ApiRequest<Needed<EnrolmentCode>>,
) -> Result<CredentialOptions, Refusal> {
    request.read_query(&[])?;
    let (shared, evidence, origin) = (request.shared.clone(), request.evidence(), request.origin()?);
    let EnrolmentCode { code } = request.into_body().await?;
    Ok(CredentialOptions { options: shared.engine.begin_passkey(evidence, &code, &origin).await? })
}

/// Ends an enrolment.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Finish")]
pub(super) struct NewPasskey {
    /// The `PublicKeyCredential` that the browser has made, its bytes as base64url.
    #[schemars(with = "Map<String, Value>")]
    credential: Registration,
}

/// A passkey that was enrolled.
#[derive(Serialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct EnrolledPasskey {
    #[schemars(with = "Map<String, Value>")]
    passkey: Value,
}

/// `POST /api/v1/passkeys/finish`
pub(super) async fn finish_passkey(
    request: ApiRequest<Needed<NewPasskey>>,
) -> Result<EnrolledPasskey, Refusal> {
    request.read_query(&[])?;
    let (shared, evidence, origin) = (request.shared.clone(), request.evidence(), request.origin()?);
    let NewPasskey { credential } = request.into_body().await?;
    Ok(EnrolledPasskey { passkey: shared.engine.finish_passkey(evidence, &credential, &origin).await? })
}

/// The approval that is to be signed.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Challenge")]
pub(super) struct ChallengeRequest {
    /// Hash of the text that the page shows.
    shown_hash: Option<Digest>,
    /// The reach of the approval.
    scope: ApprovalScope,
}

/// `POST /api/v1/approvals/{id}/challenge`
pub(super) async fn make_challenge(
    request: ApiRequest<Optional<ChallengeRequest>>,
) -> Result<CredentialOptions, Refusal> {
    let ask = request.ask_id()?;
    request.read_query(&[])?;
    let (shared, evidence, origin) = (request.shared.clone(), request.evidence(), request.origin()?);
    let ChallengeRequest { shown_hash, scope } = request.into_body().await?;
    Ok(CredentialOptions {
        options: shared.engine.challenge(evidence, (&ask, scope), shown_hash, &origin).await?,
    })
}
