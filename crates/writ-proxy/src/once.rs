//! Requests with a name, which are performed once.

use serde_json::Value;
use writ_policy::permit::OnceName;
use writ_store::reads::OperationReads as _;
use writ_store::store::Store;
use writ_types::digest::Digest;
use writ_types::id::AttemptId;

use crate::error::ProxyError;
use crate::refusal::{ProxyRefusal, UNDER_WAY};
use crate::secret::{ProxySecret, SealError};

/// The longest name of a request, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 128;

/// What is known of a request with a name.
pub(crate) enum Earlier {
    /// It was not made before, or its target knows it again.
    New,
    /// It was performed, with this answer.
    Done(AttemptId, Value),
    /// It is not performed again.
    Refused(ProxyRefusal),
}

/// Returns the name under which a request is performed once. `request` is everything that it asks for.
pub(crate) fn once_name(secret: &ProxySecret, scope: String, name: &str, request: &[&str]) -> OnceName {
    OnceName { scope, name: name.to_owned(), request: Digest::from_bytes(secret.fingerprint(request)) }
}

/// Finds what is known of a request.
pub(crate) async fn find_earlier(
    store: &Store,
    secret: &ProxySecret,
    once: &OnceName,
) -> Result<Earlier, ProxyError> {
    let Some(row) = store.once(&once.scope, &once.name).await? else { return Ok(Earlier::New) };
    // A name that is used twice would give one request the answer of another.
    if row.request != once.request {
        let error = "this idempotency key was used for another request";
        return Ok(Earlier::Refused(ProxyRefusal::refuse_repeated(error)));
    }
    if row.is_open {
        return Ok(Earlier::New);
    }
    let Some(sealed) = row.answer else {
        return Ok(Earlier::Refused(ProxyRefusal::refuse_repeated(UNDER_WAY)));
    };
    let plain = secret.open(&answer_place(row.attempt), &sealed)?;
    let answer = serde_json::from_slice(&plain).map_err(|_| SealError::Damaged)?;
    Ok(Earlier::Done(row.attempt, answer))
}

/// The place that an answer is sealed for.
pub(crate) fn answer_place(attempt: AttemptId) -> String {
    format!("answer {attempt}")
}

/// Returns true for a name that a request can have.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(|byte| byte.is_ascii_graphic())
}
