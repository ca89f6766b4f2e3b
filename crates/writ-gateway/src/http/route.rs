//! A route of the server. The router and `/openapi.json` are both made from it, so that what is served is documented.

use std::collections::BTreeSet;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::{RawPathParams, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use writ_policy::principal::Evidence;
use writ_runtime::methods::{EngineMethod, Method, Verb};
use writ_types::error::{Exit, Report};
use writ_types::id::{AskId, EntrySeq, SessionId};

use super::ServerState;
use super::guard::Speaker;
use super::query::{QueryField, check_query};
use super::reply::{Refusal, json_response, read_json, read_or_default};

/// Writes the schema of a type, and of the types that it names.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Refusals of every route: a foreign origin, or one request too many.
const ALWAYS: [u16; 2] = [403, 429];
/// Refusals of routes that ask the engine: the request is wrong, the database is broken, or the engine stops.
const OF_ENGINE: [u16; 3] = [400, 500, 503];
/// Refusals of routes with a body: it is wrong, came too slowly, or is too long.
const OF_BODY: [u16; 3] = [400, 408, 413];
/// The body is not of the type that is expected.
const MEDIA_TYPE: u16 = 415;

/// A route, with the types of everything that goes in and out.
pub(super) struct HttpRoute {
    pub(super) verb: Verb,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    /// The name of the engine's method, if the route stands for one.
    pub(super) method: Option<&'static str>,
    pub(super) served: MethodRouter<Arc<ServerState>>,
    pub(super) query: Vec<QueryField>,
    pub(super) body: Option<Body>,
    pub(super) success: Success,
    /// True if a request must show the token or the page's cookie.
    pub(super) is_guarded: bool,
    asks_engine: bool,
    refusals: &'static [u16],
}

/// The body of a request.
#[derive(Clone, Copy)]
pub(super) enum Body {
    /// JSON of this schema.
    Json { schema: SchemaOf, is_required: bool },
    /// Text.
    Text,
}

/// The answer of a request that succeeds.
#[derive(Clone, Copy)]
pub(super) struct Success {
    pub(super) status: u16,
    /// The media types, the usual one first; none: there is no body.
    pub(super) content: &'static [&'static str],
    /// The schema of a JSON body.
    pub(super) schema: Option<SchemaOf>,
}

impl Success {
    pub(super) const fn json_body(schema: SchemaOf) -> Self {
        Self { status: 200, content: &["application/json"], schema: Some(schema) }
    }

    pub(super) const fn without_schema(status: u16, content: &'static [&'static str]) -> Self {
        Self { status, content, schema: None }
    }
}

impl HttpRoute {
    /// Makes a route from a handler, with the types of its body and its answer.
    pub(super) fn from_handler<B, A, F>(
        (verb, path): (Verb, &'static str),
        summary: &'static str,
        status: StatusCode,
        handler: fn(ApiRequest<B>) -> F,
    ) -> Self
    where
        B: ApiBody + 'static,
        A: Serialize + JsonSchema,
        F: Future<Output = Result<A, Refusal>> + Send + 'static,
    {
        let served = move |State(shared): State<Arc<ServerState>>, path: RawPathParams, request: Request| async move {
            // The status is that of the documentation.
            Ok::<Response, Refusal>(json_response(
                status,
                &handler(ApiRequest::new(shared, &path, request)).await?,
            ))
        };
        let success =
            Success { status: status.as_u16(), ..Success::json_body(SchemaGenerator::subschema_for::<A>) };
        let route = Self::from_router((verb, path), summary, on(method_filter(verb), served), success);
        Self { body: B::BODY, ..route }
    }

    /// Makes a route from a handler that makes its response itself.
    pub(super) fn from_router(
        (verb, path): (Verb, &'static str),
        summary: &'static str,
        served: MethodRouter<Arc<ServerState>>,
        success: Success,
    ) -> Self {
        Self {
            verb,
            path,
            summary,
            method: None,
            served,
            query: Vec::new(),
            body: None,
            success,
            is_guarded: true,
            asks_engine: true,
            refusals: &[],
        }
    }

    /// Is open to requests without proof, and does not ask the engine.
    pub(super) fn open_to_all(self) -> Self {
        Self { is_guarded: false, asks_engine: false, ..self }
    }

    /// Does not ask the engine.
    pub(super) fn without_engine(self) -> Self {
        Self { asks_engine: false, ..self }
    }

    /// Adds statuses of refusals.
    pub(super) fn or_refuses(self, refusals: &'static [u16]) -> Self {
        Self { refusals, ..self }
    }

    /// Stands for a method of the engine.
    pub(super) fn calls_method(self, method: Method) -> Self {
        Self { method: Some(method.name()), ..self }
    }

    pub(super) fn with_query(self, query: Vec<QueryField>) -> Self {
        Self { query, ..self }
    }

    pub(super) fn with_body(self, body: Body) -> Self {
        Self { body: Some(body), ..self }
    }

    /// Returns every status of a refusal or failure.
    pub(super) fn error_statuses(&self) -> BTreeSet<u16> {
        // The documentation is computed from the same facts as the checks.
        let mut errors: BTreeSet<u16> = ALWAYS.iter().chain(self.refusals).copied().collect();
        if self.is_guarded {
            errors.insert(401);
        }
        if self.asks_engine {
            errors.extend(OF_ENGINE);
        }
        match self.body {
            Some(Body::Json { .. }) => errors.extend(OF_BODY.into_iter().chain([MEDIA_TYPE])),
            Some(Body::Text) => errors.extend(OF_BODY),
            None => {}
        }
        errors
    }
}

/// The filter of the router for a verb.
pub(super) const fn method_filter(verb: Verb) -> MethodFilter {
    match verb {
        Verb::Get => MethodFilter::GET,
        Verb::Post => MethodFilter::POST,
        Verb::Delete => MethodFilter::DELETE,
    }
}

/// The body of a typed handler.
pub(super) trait ApiBody {
    /// The value that is read.
    type Value;
    /// Its documentation; none: no body is read.
    const BODY: Option<Body>;

    /// Reads at most `limit` bytes.
    fn read(request: Request, limit: usize) -> impl Future<Output = Result<Self::Value, Refusal>> + Send;
}

/// No body.
pub(super) struct NoBody;

impl ApiBody for NoBody {
    type Value = ();
    const BODY: Option<Body> = None;

    async fn read(_: Request, _: usize) -> Result<(), Refusal> {
        Ok(())
    }
}

/// A body of JSON.
pub(super) struct Needed<T>(PhantomData<T>);

impl<T: DeserializeOwned + JsonSchema> ApiBody for Needed<T> {
    type Value = T;
    const BODY: Option<Body> =
        Some(Body::Json { schema: SchemaGenerator::subschema_for::<T>, is_required: true });

    async fn read(request: Request, limit: usize) -> Result<T, Refusal> {
        read_json(request, limit).await
    }
}

/// A body of JSON that may be left out.
pub(super) struct Optional<T>(PhantomData<T>);

impl<T: DeserializeOwned + Default + JsonSchema> ApiBody for Optional<T> {
    type Value = T;
    const BODY: Option<Body> =
        Some(Body::Json { schema: SchemaGenerator::subschema_for::<T>, is_required: false });

    async fn read(request: Request, limit: usize) -> Result<T, Refusal> {
        read_or_default(request, limit).await
    }
}

/// A request to a typed handler.
pub(super) struct ApiRequest<B> {
    pub(super) shared: Arc<ServerState>,
    path: Vec<(String, String)>,
    request: Request,
    body: PhantomData<fn() -> B>,
}

impl<B: ApiBody> ApiRequest<B> {
    pub(super) fn new(shared: Arc<ServerState>, path: &RawPathParams, request: Request) -> Self {
        let path = path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { shared, path, request, body: PhantomData }
    }

    /// Returns the proof of who asks.
    pub(super) fn evidence(&self) -> Evidence {
        request_evidence(&self.request)
    }

    /// Returns the origin of the page of this server that asks. Passkeys are bound to it.
    ///
    /// # Errors
    ///
    /// If a program asks.
    pub(super) fn origin(&self) -> Result<String, Refusal> {
        let speaker = self.request.extensions().get::<Speaker>();
        speaker
            .and_then(|speaker| speaker.origin.clone())
            .ok_or_else(|| Refusal::malformed("passkeys are used by the page of this server"))
    }

    /// Returns a part of the path; empty if the path has none of this name.
    pub(super) fn segment(&self, name: &str) -> &str {
        self.path.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Returns the session that `{id}` names.
    pub(super) fn session(&self) -> Result<SessionId, Refusal> {
        session_id(self.segment("id"))
    }

    /// Returns the ask that `{id}` names.
    pub(super) fn ask_id(&self) -> Result<AskId, Refusal> {
        ask_id(self.segment("id"))
    }

    /// Reads the query; a name that is not listed is refused.
    pub(super) fn read_query(
        &self,
        fields: &[QueryField],
    ) -> Result<serde_json::Map<String, serde_json::Value>, Refusal> {
        check_query(self.request.uri(), fields)
    }

    /// Reads the body.
    pub(super) async fn into_body(self) -> Result<B::Value, Refusal> {
        B::read(self.request, self.shared.config.max_message_bytes).await
    }
}

/// Returns the proof of who sent a request.
pub(super) fn request_evidence(request: &Request) -> Evidence {
    request.extensions().get::<Speaker>().map_or(Evidence::None, |speaker| speaker.evidence)
}

/// Calls a method of the engine.
pub(super) async fn call_method<M: EngineMethod>(
    shared: &ServerState,
    evidence: Evidence,
    params: &M::Params,
) -> Result<M::Answer, Refusal> {
    // Types in and out are those of the method, so a change of it is found by the compiler.
    let params = serde_json::to_value(params).map_err(|error| unwritable_answer(&error))?;
    let answer = shared.engine.call(evidence, None, M::METHOD.name(), params).await?;
    serde_json::from_value(answer).map_err(|error| unwritable_answer(&error))
}

fn unwritable_answer(error: &serde_json::Error) -> Refusal {
    Report::new(Exit::Bug, "answer.unwritable", "the answer cannot be written")
        .with_inside(error.to_string())
        .with_hint(Exit::Bug.advice())
        .into()
}

/// Reads a session's id.
pub(super) fn session_id(text: &str) -> Result<SessionId, Refusal> {
    text.parse().map_err(|_| Refusal::malformed("this is not the id of a session"))
}

/// Reads an ask's id.
pub(super) fn ask_id(text: &str) -> Result<AskId, Refusal> {
    text.parse().map_err(|_| Refusal::malformed("this is not the id of an ask"))
}

/// Reads the number of an entry.
pub(super) fn entry_seq(text: &str) -> Result<EntrySeq, Refusal> {
    text.parse().map(EntrySeq).map_err(|_| Refusal::malformed("this is not the number of an entry"))
}
