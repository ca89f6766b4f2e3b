//! `/openapi.json`: every route, for programs that make clients.

use std::collections::BTreeSet;

use axum::response::Response;
use serde_json::{Map, Value, json};

use super::reply::ok;

/// A route.
struct Route {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    /// Names of parameters in the query.
    query: &'static [&'static str],
    /// The body: its schema's name, or the type of its content.
    body: Option<Body>,
    /// The status of success and what it answers.
    success: (&'static str, &'static str),
    /// The statuses of refusals that are its own, beside those of its kind.
    refusals: &'static [&'static str],
    /// Whether nobody gets in without proof.
    guarded: bool,
    /// Whether the engine is asked.
    asks: bool,
}

/// What any request may be answered: it comes from where nobody may ask, or is one too many.
const ANYWHERE: [&str; 2] = ["403", "429"];
/// What a route that asks the engine may answer besides: it does not understand the request, the database is broken, or
/// it stops or cannot write.
const OF_THE_ENGINE: [&str; 3] = ["400", "500", "503"];
/// What a route with a body may answer besides: it is not understood, did not come in time, or is too long.
const WITH_BODY: [&str; 3] = ["400", "408", "413"];
/// The body is not of the type that is expected.
const MEDIA_TYPE: &str = "415";
/// There is nothing of that name.
const NOTHING: &[&str] = &["404"];
/// There is nothing of that name, or it was settled before.
const SETTLED: &[&str] = &["404", "409"];

/// What a request carries.
enum Body {
    Json(&'static str),
    Text,
}

const fn get(path: &'static str, summary: &'static str) -> Route {
    let success = ("200", "application/json");
    Route {
        method: "get",
        path,
        summary,
        query: &[],
        body: None,
        success,
        refusals: &[],
        guarded: true,
        asks: true,
    }
}

const fn post(path: &'static str, summary: &'static str, body: Body) -> Route {
    Route { method: "post", body: Some(body), ..get(path, summary) }
}

impl Route {
    const fn query(mut self, query: &'static [&'static str]) -> Self {
        self.query = query;
        self
    }

    const fn answers(mut self, status: &'static str, kind: &'static str) -> Self {
        self.success = (status, kind);
        self
    }

    const fn open(mut self) -> Self {
        self.guarded = false;
        self.asks = false;
        self
    }

    const fn without_engine(mut self) -> Self {
        self.asks = false;
        self
    }

    const fn refuses(mut self, refusals: &'static [&'static str]) -> Self {
        self.refusals = refusals;
        self
    }

    /// Every status of a refusal or failure that it may answer.
    fn errors(&self) -> BTreeSet<&'static str> {
        let mut errors: BTreeSet<&str> = ANYWHERE.iter().chain(self.refusals).copied().collect();
        if self.guarded {
            errors.insert("401");
        }
        if self.asks {
            errors.extend(OF_THE_ENGINE);
        }
        match self.body {
            Some(Body::Json(_)) => errors.extend(WITH_BODY.into_iter().chain([MEDIA_TYPE])),
            Some(Body::Text) => errors.extend(WITH_BODY),
            None => {}
        }
        errors
    }

    const fn without_body(mut self) -> Self {
        self.body = None;
        self
    }

    const fn method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }
}

/// Every route but the files of the page.
const ROUTES: &[Route] = &[
    get("/health", "Whether the server is up, and how many WebSockets it serves").open(),
    get("/openapi.json", "This document").open(),
    get("/schemas/{name}", "JSON Schemas of frames: client-frame.json, server-frame.json")
        .open()
        .refuses(&["400", "404"]),
    get("/link/{code}", "Begins a session of the page, once")
        .answers("303", "")
        .open()
        .refuses(&["400", "405", "503"]),
    get("/metrics", "What is measured, for Prometheus").answers("200", "text/plain").without_engine(),
    get("/ws", "Frames over a WebSocket; proof may come as the first frame")
        .answers("101", "")
        .open()
        .refuses(&["401", "426"]),
    get("/ws/{id}", "Frames of one session over a WebSocket").answers("101", "").refuses(&["404", "426"]),
    get("/api/v1/state", "What the engine does"),
    get("/api/v1/sessions", "All sessions"),
    post("/api/v1/sessions", "Opens a session", Body::Json("Opening")).answers("201", "application/json"),
    get("/api/v1/sessions/{id}", "A session and its frames").query(&["after"]).refuses(NOTHING),
    get("/api/v1/sessions/{id}", "Closes a session").method("delete").refuses(NOTHING),
    post("/api/v1/sessions/{id}/messages", "Says something", Body::Json("Message"))
        .answers("202", "application/json")
        .refuses(NOTHING),
    get("/api/v1/sessions/{id}/diff", "What a session changed in its project").refuses(NOTHING),
    post("/api/v1/sessions/{id}/apply", "Applies what a session changed, or asks whether to", Body::Text)
        .without_body()
        .refuses(&["404", "409", "422"]),
    get("/api/v1/sessions/{id}/files/{file}", "A file that the agent has sent")
        .answers("200", "application/octet-stream")
        .refuses(&["404", "422"]),
    get("/api/v1/approvals", "What is asked").query(&["all"]),
    get("/api/v1/approvals/{id}", "One ask, completely").refuses(NOTHING),
    post("/api/v1/approvals/{id}", "Answers an ask", Body::Json("Decision")).refuses(&["404", "409", "422"]),
    get("/api/v1/approvals/{id}", "Takes an approval for the task back").method("delete").refuses(NOTHING),
    get("/api/v1/approvals/in-force", "The approvals for tasks that are in force"),
    get("/api/v1/approvals/review", "What is asked, in groups of what is alike, with what is unusual"),
    get("/api/v1/approvals/{id}/rests-on", "What an ask rests on, entry by entry").refuses(NOTHING),
    get("/api/v1/undo", "What one tap undoes now"),
    post("/api/v1/undo/{attempt}", "Undoes what an attempt did, or asks whether to", Body::Text)
        .without_body()
        .refuses(&["404", "409", "422"]),
    post(
        "/api/v1/approvals/{id}/challenge",
        "What a passkey signs to approve an ask",
        Body::Json("Challenge"),
    )
    .refuses(SETTLED),
    get("/api/v1/passkeys", "The passkeys that may approve"),
    post(
        "/api/v1/passkeys/begin",
        "Begins to enrol a passkey, with a code from a terminal",
        Body::Json("Begin"),
    ),
    post("/api/v1/passkeys/finish", "Takes in the passkey that was made", Body::Json("Finish")),
    get("/api/v1/ledger", "Entries of the ledger, newest first")
        .query(&["before", "after", "limit", "event", "session", "q"]),
    get("/api/v1/ledger/{seq}/proof", "A proof that an entry is in the ledger").refuses(NOTHING),
    get("/api/v1/ledger/{seq}/rests-on", "What an entry rests on, entry by entry; empty: it has no label")
        .refuses(NOTHING),
    post("/api/v1/logout", "Ends the session of the page", Body::Text)
        .without_body()
        .answers("204", "")
        .without_engine()
        .refuses(&["503"]),
    get("/sessions", "All sessions"),
    post("/sessions", "Opens a session", Body::Json("Opening")).answers("201", "application/json"),
    get("/sessions/{id}", "A session and its frames").query(&["after"]).refuses(NOTHING),
    get("/sessions/{id}", "Closes a session").method("delete").refuses(NOTHING),
    post("/secrets/{ref}", "Stores a secret; it is never shown again", Body::Text)
        .answers("204", "")
        .refuses(NOTHING),
    get("/v1/models", "The agent, as a model"),
    get("/v1/models/{id}", "The agent by one of its names as a model").refuses(NOTHING),
    post("/v1/chat/completions", "A message to the agent and its answer", Body::Json("ChatCompletion"))
        .refuses(&["404", "422"]),
    post("/v1/responses", "A message to the agent and its answer", Body::Json("CreateResponse"))
        .refuses(&["404", "422"]),
];

/// `GET /openapi.json`
pub(super) async fn document() -> Response {
    ok(&written())
}

fn written() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[route.method] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Writ",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs AI agents that can only do what a signed order allows.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "page": { "type": "apiKey", "in": "cookie", "name": super::guard::COOKIE },
            },
            "schemas": schemas(),
        },
    })
}

fn operation(route: &Route) -> Value {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let named = |name: &str, place: &str| json!({ "name": name, "in": place, "required": place == "path", "schema": { "type": "string" } });
    let mut parameters: Vec<Value> = in_path.map(|name| named(name, "path")).collect();
    parameters.extend(route.query.iter().map(|name| named(name, "query")));
    let (status, kind) = route.success;
    let mut success = json!({ "description": "done" });
    if !kind.is_empty() {
        success["content"] = json!({ kind: { "schema": {} } });
    }
    let error = json!({
        "description": "refused or failed",
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
    });
    let mut responses: Map<String, Value> =
        route.errors().into_iter().map(|status| (status.to_owned(), error.clone())).collect();
    responses.insert(status.to_owned(), success);
    let mut operation = json!({
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
        "security": if route.guarded { json!([{ "token": [] }, { "page": [] }]) } else { json!([]) },
    });
    match &route.body {
        None => {}
        Some(Body::Json(name)) => {
            let schema = json!({ "$ref": format!("#/components/schemas/{name}") });
            operation["requestBody"] = json!({ "content": { "application/json": { "schema": schema } } });
        }
        Some(Body::Text) => {
            let schema = json!({ "type": "string" });
            operation["requestBody"] =
                json!({ "required": true, "content": { "text/plain": { "schema": schema } } });
        }
    }
    operation
}

fn schemas() -> Value {
    let text = json!({ "type": "string" });
    let flag = json!({ "type": "boolean" });
    let scope = json!({ "enum": ["once", "task"] });
    let object = |fields: Value, required: &[&str], more: bool| {
        json!({
            "type": "object", "properties": fields, "required": required, "additionalProperties": more,
        })
    };
    let error = object(json!({ "code": text, "text": text, "hint": text }), &["code", "text", "hint"], true);
    json!({
        "Error": object(json!({ "error": error }), &["error"], false),
        "Opening": object(json!({ "project": text, "write": flag, "dry_run": flag, "relayed": flag }), &[], false),
        "Message": object(
            json!({
                "text": text,
                "client_id": text,
                "signature": { "type": ["object", "null"] },
                "sender": { "type": ["string", "null"] },
            }),
            &["text"],
            false,
        ),
        "Decision": object(
            json!({
                "decision": { "enum": ["approve", "deny"] },
                "scope": scope,
                "reason": text,
                "signature": { "type": ["object", "null"] },
                "shown_hash": { "type": ["string", "null"] },
            }),
            &["decision"],
            false,
        ),
        "Challenge": object(
            json!({ "shown_hash": { "type": ["string", "null"] }, "scope": scope }),
            &[],
            false,
        ),
        "Begin": object(json!({ "code": text }), &["code"], false),
        "Finish": object(json!({ "credential": { "type": "object" } }), &["credential"], false),
        "ChatCompletion": object(
            json!({
                "model": text, "messages": { "type": "array" }, "stream": flag, "user": text,
                "stream_options": { "type": ["object", "null"] }, "stop": { "type": ["string", "array", "null"] },
                "max_completion_tokens": { "type": ["integer", "null"] },
            }),
            &["model", "messages"],
            true,
        ),
        "CreateResponse": object(
            json!({
                "model": text, "input": { "type": ["string", "array"] }, "instructions": text,
                "previous_response_id": text, "stream": flag, "user": text,
            }),
            &["model", "input"],
            true,
        ),
    })
}
