//! The requests of a front end and of people, apart from how they come in: a server hands over method, path, token and
//! body, and writes the answer. Run each as a task of its own, so that a client that goes away cuts nothing off.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use writ_runtime::error::EngineError;
use writ_store::error::StoreError;
use writ_store::fleet::MAX_CASE_MESSAGE_BYTES;
use writ_types::api::fleet::HolderList;
use writ_types::error::ToReport as _;
use writ_types::id::SessionId;

use super::access::{CaseAccess, read_access};
use super::error::CaseError;
use super::ports::GuestNames;
use super::readings::{list_for_person, list_messages};
use super::router::{CaseRouter, NewCase};
use super::status::live_status;

/// The largest body, in bytes: a message as JSON.
pub const MAX_BODY_BYTES: usize = 4 * MAX_CASE_MESSAGE_BYTES;

/// The kinds of personal data that a front end can name of its customer.
const KNOWN_KINDS: [&str; 7] = ["name", "address", "email", "phone", "card", "iban", "number"];
/// The most values that it can name.
const MAX_KNOWN: usize = 64;
/// The longest of them, in bytes.
const MAX_KNOWN_BYTES: usize = 1_024;

/// The one who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseCaller {
    /// The trusted front end, by its token.
    FrontEnd,
    /// A person, by the principal that the surface has proven.
    Person(String),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseAnswer {
    /// The status of HTTP.
    pub status: u16,
    /// The body.
    pub body: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenBody {
    customer: String,
    case: String,
    tenant: Option<String>,
    capability: String,
    message: String,
    #[serde(default)]
    known: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextBody {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BackBody {
    target: Option<String>,
    #[serde(default)]
    note: String,
}

impl CaseAnswer {
    pub(super) fn refuse_with(status: u16, why: &str) -> Self {
        Self { status, body: json!({ "error": why }) }
    }

    pub(super) fn fail_with(error: &CaseError) -> Self {
        let status = match error {
            CaseError::Unknown(_) => 404,
            CaseError::IsOpen(_)
            | CaseError::Fault(_)
            | CaseError::NoAgent(_)
            | CaseError::Store(StoreError::Conflict(_))
            | CaseError::Engine(EngineError::Store(StoreError::Conflict(_))) => 409,
            CaseError::Text { .. } => 422,
            CaseError::TooLarge { .. } => 429,
            CaseError::Damaged(_) => 500,
            CaseError::Proxy(_) | CaseError::Engine(_) | CaseError::Store(_) => 503,
        };
        let report = error.report();
        let mut body = json!({ "error": report.outside, "code": report.code, "hint": report.advice() });
        if let (CaseError::IsOpen(id), Some(fields)) = (error, body.as_object_mut()) {
            fields.insert("id".to_owned(), Value::String(id.to_string()));
        }
        Self { status, body }
    }
}

/// The routes of a router.
#[derive(Clone, Debug)]
pub struct CaseRoutes(pub CaseRouter);

impl CaseRoutes {
    /// Answers a request.
    ///
    /// | request | who | answer |
    /// | --- | --- | --- |
    /// | `POST /cases` | front end | 201 `{"id"}`; 409 with the `id` of the case of this name that is open |
    /// | `GET /cases` | person | 200 `{"cases"}` |
    /// | `GET /cases/{id}/messages?after=N` | both; a person's reading is an entry | 200 `{"messages"}` |
    /// | `POST /cases/{id}/messages` | front end: the guest's; person: an answer | 202 |
    /// | `POST /cases/{id}/close` | both | 200 |
    /// | `POST /cases/{id}/take`, `/approve`, `/back` | person | 200 |
    /// | `GET /cases/{id}/access` | person | 200 `{"holders", "readings"}` |
    pub async fn answer_request(
        &self,
        caller: &CaseCaller,
        (method, path): (&str, &str),
        query: Option<&str>,
        body: &[u8],
    ) -> CaseAnswer {
        if body.len() > MAX_BODY_BYTES {
            return CaseAnswer::refuse_with(413, "the body is too large");
        }
        // A slash at the end changes nothing.
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let answered = match (method, parts.as_slice()) {
            ("POST", ["cases"]) => self.answer_open(caller, body).await,
            ("GET", ["cases"]) => match caller {
                CaseCaller::Person(_) => {
                    live_status(&self.0).await.map(|cases| ok(json!({ "cases": cases })))
                }
                CaseCaller::FrontEnd => Ok(CaseAnswer::refuse_with(403, "a person's request")),
            },
            (_, ["cases", id, rest @ ..]) => match id.parse() {
                Ok(id) => self.answer_one(caller, id, (method, rest), (query, body)).await,
                Err(_) => Ok(CaseAnswer::refuse_with(404, "there is no such case")),
            },
            (_, _) => Ok(CaseAnswer::refuse_with(404, "there is no such path")),
        };
        answered.unwrap_or_else(|error| {
            tracing::warn!(%error, "a request about a case failed");
            CaseAnswer::fail_with(&error)
        })
    }

    async fn answer_open(&self, caller: &CaseCaller, body: &[u8]) -> Result<CaseAnswer, CaseError> {
        // A person has no guest to speak for.
        if *caller != CaseCaller::FrontEnd {
            return Ok(CaseAnswer::refuse_with(403, "only the front end opens cases"));
        }
        let Ok(body) = serde_json::from_slice::<OpenBody>(body) else {
            return Ok(CaseAnswer::refuse_with(
                422,
                "the body is no case: customer, case, capability, message",
            ));
        };
        let OpenBody { customer, case, tenant, capability, message, known } = body;
        if !is_known(&known) {
            return Ok(CaseAnswer::refuse_with(
                422,
                "known has up to 64 values of up to 1024 bytes, under name, address, email, phone, card, iban or number",
            ));
        }
        let names = GuestNames { customer, case, tenant, known };
        let id = self.0.open_case(NewCase { names, capability, message }).await?;
        Ok(CaseAnswer { status: 201, body: json!({ "id": id.to_string() }) })
    }

    async fn answer_one(
        &self,
        caller: &CaseCaller,
        id: SessionId,
        (method, rest): (&str, &[&str]),
        (query, body): (Option<&str>, &[u8]),
    ) -> Result<CaseAnswer, CaseError> {
        match (method, rest, caller) {
            ("GET", ["messages"], caller) => {
                let after = query.and_then(|query| query.strip_prefix("after=")).unwrap_or("0");
                let Ok(after) = after.parse() else {
                    return Ok(CaseAnswer::refuse_with(422, "after must be a number"));
                };
                let page = match caller {
                    CaseCaller::FrontEnd => list_messages(&self.0, id, after).await,
                    CaseCaller::Person(person) => list_for_person(&self.0, person, id, after).await,
                };
                page.map(|page| ok(json!(page)))
            }
            ("POST", ["messages"], caller) => {
                let Ok(TextBody { text }) = serde_json::from_slice(body) else {
                    return Ok(CaseAnswer::refuse_with(422, "the body must be {\"text\": …}"));
                };
                match caller {
                    CaseCaller::FrontEnd => self.0.add_message(id, &text).await?,
                    CaseCaller::Person(person) => self.0.answer_case(id, person, &text).await?,
                }
                Ok(CaseAnswer { status: 202, body: json!({}) })
            }
            // A front end that repeats it gets 404: the case has ended.
            ("POST", ["close"], caller) => {
                let reason = match caller {
                    CaseCaller::FrontEnd => "closed by the front end".to_owned(),
                    CaseCaller::Person(person) => format!("closed by {person}"),
                };
                self.0.close_case(id, &reason).await?;
                Ok(ok(json!({})))
            }
            ("POST", ["take"], CaseCaller::Person(person)) => {
                self.0.take_case(id, person).await?;
                Ok(ok(json!({})))
            }
            ("POST", ["approve" | "back"], CaseCaller::Person(person)) => {
                let Ok(BackBody { target, note }) = serde_json::from_slice(body) else {
                    return Ok(CaseAnswer::refuse_with(422, "the body must be {\"target\": …, \"note\": …}"));
                };
                let note = match (rest, note.is_empty()) {
                    (["approve"], true) => "approved".to_owned(),
                    (_, true) => "handed back".to_owned(),
                    (_, false) => note,
                };
                self.0.hand_back(id, (person, target.as_deref()), &note).await?;
                Ok(ok(json!({})))
            }
            ("GET", ["access"], CaseCaller::Person(_)) => {
                let access = read_access(self.0.0.keys.store(), &id.to_string()).await?;
                let CaseAccess { intervals: holders, readings, contradictions } = access;
                Ok(ok(json!(HolderList { holders, readings, contradictions })))
            }
            (_, ["take" | "approve" | "back" | "access"], CaseCaller::FrontEnd) => {
                Ok(CaseAnswer::refuse_with(403, "a person's request"))
            }
            (_, _, _) => Ok(CaseAnswer::refuse_with(404, "there is no such path")),
        }
    }
}

/// Returns true if the proxy takes these values of a customer.
fn is_known(known: &BTreeMap<String, Vec<String>>) -> bool {
    let mut values = known.values().flatten();
    known.keys().all(|kind| KNOWN_KINDS.contains(&kind.as_str()))
        && known.values().map(Vec::len).sum::<usize>() <= MAX_KNOWN
        && values.all(|value| !value.trim().is_empty() && value.len() <= MAX_KNOWN_BYTES)
}

const fn ok(body: Value) -> CaseAnswer {
    CaseAnswer { status: 200, body }
}
