//! The proxy's own answers: a short plain text and a stable code.

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::ext::ReasonPhrase;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use writ_inspect::egress::credential::Misuse;

use super::body::Passed;
use super::head::HeadFault;
use super::request::Malformed;
use crate::gatekeeper::Refusal;

/// The header with the stable code of an answer of the proxy's own.
pub const CODE_HEADER: &str = "x-writ-code";
/// The header with the id of the ask that is open for a host.
pub const ASK_HEADER: &str = "x-writ-ask";

/// A body: the proxy's own words, or what a host sends.
pub(crate) type Body = Either<Full<Bytes>, Passed>;

/// An answer in the proxy's own words. The reason stands in the status line, too: few programs show more of a
/// refused tunnel.
fn own_answer(status: u16, code: &'static str, text: &str) -> Response<Body> {
    let line: String = text.chars().filter(|c| c.is_ascii() && !c.is_ascii_control()).take(200).collect();
    let mut answer = Response::new(Either::Left(Full::from(format!("writ: {text}\n"))));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(reason) = ReasonPhrase::try_from(line) {
        answer.extensions_mut().insert(reason);
    }
    let headers = answer.headers_mut();
    headers.insert(CODE_HEADER, HeaderValue::from_static(code));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

/// The answer to a connection that was not made.
pub(crate) fn refusal_answer(refusal: &Refusal) -> Response<Body> {
    let status = match refusal {
        Refusal::Asked { .. } | Refusal::NotAsked { .. } | Refusal::Denied { .. } | Refusal::Misused(_) => {
            403
        }
        Refusal::Rate { .. } => 429,
        Refusal::Unresolved { .. } | Refusal::Unreachable { .. } | Refusal::Proxy { .. } => 502,
        Refusal::ConnectTimeout { .. } => 504,
    };
    let mut answer = own_answer(status, refusal.refusal_code(), &refusal.to_string());
    match refusal {
        Refusal::Asked { ask, .. } => insert_header(&mut answer, ASK_HEADER, ask.as_str()),
        Refusal::Rate { retry_secs, .. } => {
            insert_header(&mut answer, RETRY_AFTER.as_str(), &retry_secs.to_string())
        }
        Refusal::NotAsked { .. }
        | Refusal::Denied { .. }
        | Refusal::Misused(_)
        | Refusal::Unresolved { .. }
        | Refusal::Unreachable { .. }
        | Refusal::Proxy { .. }
        | Refusal::ConnectTimeout { .. } => {}
    }
    answer
}

fn insert_header(answer: &mut Response<Body>, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
}

/// The answer to a request that is none. Nothing after it on the connection is believed.
pub(crate) fn malformed_answer(fault: Malformed) -> Response<Body> {
    let mut answer = own_answer(400, fault.fault_code(), &fault.to_string());
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// The answer when the host sent no proper one.
pub(crate) fn bad_gateway(code: &'static str) -> Response<Body> {
    own_answer(502, code, "the host sent no proper answer")
}

/// Returns the answer to a request with a placeholder in its body.
pub(crate) fn placeholder_in_body() -> Response<Body> {
    own_answer(
        403,
        Misuse::Place.as_str(),
        "a placeholder stands in the body: it may stand in its own header and nowhere else",
    )
}

/// The beginning of a tunnel.
pub(crate) fn tunnel_answer() -> Response<Body> {
    Response::new(Either::Left(Full::default()))
}

/// The same for a head that no parser has seen, as bytes.
pub(crate) fn head_fault(fault: HeadFault) -> Vec<u8> {
    let (status, code, body) = (fault.fault_status(), fault.fault_code(), format!("writ: {fault}\n"));
    let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let reason = reason.unwrap_or("Refused");
    format!(
        "HTTP/1.1 {status} {reason}\r\n{CODE_HEADER}: {code}\r\ncontent-type: text/plain; charset=utf-8\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
