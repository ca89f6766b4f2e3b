//! Every route of the server but the files of the page.

use axum::http::StatusCode;
use axum::routing::{get, post};
use schemars::SchemaGenerator;
use writ_runtime::methods::Verb::{Get, Post};
use writ_types::api::ledger::EntryProof;

use super::openai::schemas::{
    AgentModel, AgentModels, ChatAnswer, ChatCompletion, CreateResponse, ModelResponse,
};
use super::query::Field;
use super::route::{Body, Route, SchemaOf, Success};
use super::{api, health, methods, metrics, openai, openapi, passkeys, schema, sessions, socket};
use super::{link_route, logout};

const JSON: &[&str] = &["application/json"];
/// An answer at once, or in pieces if the request asks for a stream.
const JSON_OR_STREAM: &[&str] = &["application/json", "text/event-stream"];
/// There is nothing of that name.
const MISSING: &[u16] = &[404];
/// A field of the request cannot be served, or there is no such model or session.
const UNSUPPORTED: &[u16] = &[404, 422];

/// Returns the routes.
pub(super) fn all() -> Vec<Route> {
    let groups = [
        server_routes(),
        session_routes(),
        history_routes(),
        approval_routes(),
        program_routes(),
        methods::routes(),
    ];
    groups.into_iter().flatten().collect()
}

/// Returns the routes of the server itself.
fn server_routes() -> Vec<Route> {
    vec![
        Route::typed(
            (Get, "/health"),
            "Says that the server is up, and how many WebSockets it serves.",
            StatusCode::OK,
            health,
        )
        .open(),
        Route::raw(
            (Get, "/openapi.json"),
            "Shows this document.",
            get(openapi::document),
            Success::plain(200, JSON),
        )
        .open(),
        Route::raw(
            (Get, "/schemas/{name}"),
            "Shows the JSON Schema of frames: client-frame.json, server-frame.json.",
            get(schema::schema),
            Success::plain(200, JSON),
        )
        .open()
        .or(&[400, 404]),
        Route::raw(
            (Get, "/link/{code}"),
            "Begins a session of the page, once; a used link answers 403 with a page.",
            link_route(),
            Success::plain(303, &[]),
        )
        .open()
        .or(&[400, 405, 503]),
        Route::raw(
            (Get, "/metrics"),
            "Shows measurements for Prometheus.",
            get(metrics),
            Success::plain(200, &["text/plain"]),
        )
        .without_engine(),
        Route::raw(
            (Get, "/ws"),
            "Opens a WebSocket of frames; the proof may come as the first frame.",
            get(socket::open),
            Success::plain(101, &[]),
        )
        .open()
        .or(&[401, 426]),
        Route::raw(
            (Get, "/ws/{id}"),
            "Opens a WebSocket of the frames of one session.",
            get(socket::open_session),
            Success::plain(101, &[]),
        )
        .or(&[404, 426]),
    ]
}

/// Returns the routes that open sessions and send into them.
fn session_routes() -> Vec<Route> {
    vec![
        Route::typed(
            (Post, "/api/v1/sessions"),
            "Opens a session.",
            StatusCode::CREATED,
            sessions::open_for_page,
        ),
        Route::typed(
            (Post, "/sessions"),
            "Opens a session.",
            StatusCode::CREATED,
            sessions::open_for_program,
        ),
        Route::typed(
            (Post, "/api/v1/sessions/{id}/messages"),
            "Sends a message to a session.",
            StatusCode::ACCEPTED,
            sessions::send_message,
        )
        .or(MISSING),
        Route::raw(
            (Get, "/api/v1/sessions/{id}/files/{file}"),
            "Fetches a file that the agent has sent.",
            get(sessions::sent_file),
            Success::plain(200, &["application/octet-stream"]),
        )
        .or(UNSUPPORTED),
    ]
}

/// Returns the routes that show a session with its frames.
fn history_routes() -> Vec<Route> {
    let paths = ["/api/v1/sessions/{id}", "/sessions/{id}"];
    let routes = paths.map(|path| {
        Route::typed((Get, path), "Shows a session and its frames.", StatusCode::OK, sessions::show)
            .query(vec![Field::number(sessions::AFTER)])
            .or(MISSING)
    });
    routes.into()
}

/// Returns the routes of people: answers to asks, passkeys, proofs.
fn approval_routes() -> Vec<Route> {
    vec![
        Route::typed((Post, "/api/v1/approvals/{id}"), "Answers an ask.", StatusCode::OK, api::decide)
            .or(&[404, 409, 422]),
        Route::typed(
            (Post, "/api/v1/approvals/{id}/challenge"),
            "Makes the challenge that a passkey signs to approve an ask.",
            StatusCode::OK,
            passkeys::challenge,
        )
        .or(&[404, 409]),
        Route::typed(
            (Post, "/api/v1/passkeys/begin"),
            "Begins to enrol a passkey, with a code from a terminal.",
            StatusCode::OK,
            passkeys::begin,
        ),
        Route::typed(
            (Post, "/api/v1/passkeys/finish"),
            "Takes in the passkey that was made.",
            StatusCode::OK,
            passkeys::finish,
        ),
        Route::raw(
            (Get, "/api/v1/ledger/{seq}/proof"),
            "Proves that an entry is in the ledger.",
            get(api::proof),
            Success::json(SchemaGenerator::subschema_for::<EntryProof>),
        )
        .or(MISSING),
        Route::raw(
            (Post, "/api/v1/logout"),
            "Ends the session of the page.",
            post(logout),
            Success::plain(204, &[]),
        )
        .without_engine()
        .or(&[503]),
    ]
}

/// Returns the routes of programs: secrets, and the agent as a model.
fn program_routes() -> Vec<Route> {
    vec![
        Route::raw(
            (Post, "/secrets/{ref}"),
            "Stores a secret; it is never shown again.",
            post(api::secret),
            Success::plain(204, &[]),
        )
        .body(Body::Text)
        .or(MISSING),
        Route::raw(
            (Get, "/v1/models"),
            "Lists the agent by its names as a model.",
            get(openai::models),
            Success::json(SchemaGenerator::subschema_for::<AgentModels>),
        ),
        Route::raw(
            (Get, "/v1/models/{id}"),
            "Shows the agent by one of its names as a model.",
            get(openai::model),
            Success::json(SchemaGenerator::subschema_for::<AgentModel>),
        )
        .or(MISSING),
        Route::raw(
            (Post, "/v1/chat/completions"),
            "Sends a message to the agent and answers with its reply.",
            post(openai::chat::completions),
            streamed(SchemaGenerator::subschema_for::<ChatAnswer>),
        )
        .body(needed(SchemaGenerator::subschema_for::<ChatCompletion>))
        .or(UNSUPPORTED),
        Route::raw(
            (Post, "/v1/responses"),
            "Sends a message to the agent and answers with its reply.",
            post(openai::responses::create),
            streamed(SchemaGenerator::subschema_for::<ModelResponse>),
        )
        .body(needed(SchemaGenerator::subschema_for::<CreateResponse>))
        .or(UNSUPPORTED),
    ]
}

const fn streamed(schema: SchemaOf) -> Success {
    Success { status: 200, content: JSON_OR_STREAM, schema: Some(schema) }
}

const fn needed(schema: SchemaOf) -> Body {
    Body::Json { schema, is_required: true }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The router takes each route once, so that none hides another.
    #[test]
    fn no_route_is_there_twice() {
        let routes = all();
        let names: BTreeSet<String> =
            routes.iter().map(|route| format!("{:?} {}", route.verb, route.path)).collect();
        assert_eq!(names.len(), routes.len());
        assert!(names.len() >= 40, "{}", names.len());
    }
}
