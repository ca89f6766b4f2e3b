//! Every route of the server but the files of the page.

use axum::http::StatusCode;
use axum::routing::{get, post};
use schemars::SchemaGenerator;
use writ_runtime::methods::Verb::{Get, Post};
use writ_types::api::ledger::EntryProof;

use super::openai::schemas::{
    AgentModel, AgentModels, ChatAnswer, ChatCompletion, CreateResponse, ModelResponse,
};
use super::query::QueryField;
use super::route::{Body, HttpRoute, SchemaOf, Success};
use super::{
    api, methods, openai, openapi, passkeys, pilot, schema, sessions, show_health, show_metrics, socket,
};
use super::{end_session, link_route};

const JSON: &[&str] = &["application/json"];
/// An answer at once, or in pieces if the request asks for a stream.
const JSON_OR_STREAM: &[&str] = &["application/json", "text/event-stream"];
/// There is nothing of that name.
const MISSING: &[u16] = &[404];
/// A field of the request cannot be served, or there is no such model or session.
const UNSUPPORTED: &[u16] = &[404, 422];

/// Returns the routes.
pub(super) fn all_routes() -> Vec<HttpRoute> {
    let groups = [
        server_routes(),
        session_routes(),
        history_routes(),
        approval_routes(),
        program_routes(),
        pilot_routes(),
        methods::method_routes(),
    ];
    groups.into_iter().flatten().collect()
}

/// Returns the routes of the server itself.
fn server_routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::from_handler(
            (Get, "/health"),
            "Says that the server is up, and how many WebSockets it serves.",
            StatusCode::OK,
            show_health,
        )
        .open_to_all(),
        HttpRoute::from_router(
            (Get, "/openapi.json"),
            "Shows this document.",
            get(openapi::serve_document),
            Success::without_schema(200, JSON),
        )
        .open_to_all(),
        HttpRoute::from_router(
            (Get, "/schemas/{name}"),
            "Shows the JSON Schema of frames: client-frame.json, server-frame.json.",
            get(schema::serve_schema),
            Success::without_schema(200, JSON),
        )
        .open_to_all()
        .or_refuses(&[400, 404]),
        HttpRoute::from_router(
            (Get, "/link/{code}"),
            "Begins a session of the page, once; a used link answers 403 with a page.",
            link_route(),
            Success::without_schema(303, &[]),
        )
        .open_to_all()
        .or_refuses(&[400, 405, 503]),
        HttpRoute::from_router(
            (Get, "/metrics"),
            "Shows measurements for Prometheus.",
            get(show_metrics),
            Success::without_schema(200, &["text/plain"]),
        )
        .without_engine(),
        HttpRoute::from_router(
            (Get, "/ws"),
            "Opens a WebSocket of frames; the proof may come as the first frame.",
            get(socket::open_socket),
            Success::without_schema(101, &[]),
        )
        .open_to_all()
        .or_refuses(&[401, 426]),
        HttpRoute::from_router(
            (Get, "/ws/{id}"),
            "Opens a WebSocket of the frames of one session.",
            get(socket::open_session),
            Success::without_schema(101, &[]),
        )
        .or_refuses(&[404, 426]),
    ]
}

/// Returns the routes that open sessions and send into them.
fn session_routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::from_handler(
            (Post, "/api/v1/sessions"),
            "Opens a session.",
            StatusCode::CREATED,
            sessions::open_for_page,
        ),
        HttpRoute::from_handler(
            (Post, "/sessions"),
            "Opens a session.",
            StatusCode::CREATED,
            sessions::open_for_program,
        ),
        HttpRoute::from_handler(
            (Post, "/api/v1/sessions/{id}/messages"),
            "Sends a message to a session.",
            StatusCode::ACCEPTED,
            sessions::send_message,
        )
        .or_refuses(MISSING),
        HttpRoute::from_router(
            (Get, "/api/v1/sessions/{id}/files/{file}"),
            "Fetches a file that the agent has sent.",
            get(sessions::sent_file),
            Success::without_schema(200, &["application/octet-stream"]),
        )
        .or_refuses(UNSUPPORTED),
    ]
}

/// Returns the routes that show a session with its frames.
fn history_routes() -> Vec<HttpRoute> {
    let paths = ["/api/v1/sessions/{id}", "/sessions/{id}"];
    let routes = paths.map(|path| {
        HttpRoute::from_handler(
            (Get, path),
            "Shows a session and its frames.",
            StatusCode::OK,
            sessions::show_session,
        )
        .with_query(vec![QueryField::number_field(sessions::AFTER)])
        .or_refuses(MISSING)
    });
    routes.into()
}

/// Returns the routes of people: answers to asks, passkeys, proofs.
fn approval_routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::from_handler(
            (Post, "/api/v1/approvals/{id}"),
            "Answers an ask.",
            StatusCode::OK,
            api::answer_ask,
        )
        .or_refuses(&[404, 409, 422]),
        HttpRoute::from_handler(
            (Post, "/api/v1/approvals/{id}/challenge"),
            "Makes the challenge that a passkey signs to approve an ask.",
            StatusCode::OK,
            passkeys::make_challenge,
        )
        .or_refuses(&[404, 409]),
        HttpRoute::from_handler(
            (Post, "/api/v1/passkeys/begin"),
            "Begins to enrol a passkey, with a code from a terminal.",
            StatusCode::OK,
            passkeys::begin_passkey,
        ),
        HttpRoute::from_handler(
            (Post, "/api/v1/passkeys/finish"),
            "Takes in the passkey that was made.",
            StatusCode::OK,
            passkeys::finish_passkey,
        ),
        HttpRoute::from_router(
            (Get, "/api/v1/ledger/{seq}/proof"),
            "Proves that an entry is in the ledger.",
            get(api::prove_entry),
            Success::json_body(SchemaGenerator::subschema_for::<EntryProof>),
        )
        .or_refuses(MISSING),
        HttpRoute::from_router(
            (Post, "/api/v1/logout"),
            "Ends the session of the page.",
            post(end_session),
            Success::without_schema(204, &[]),
        )
        .without_engine()
        .or_refuses(&[503]),
    ]
}

/// Returns the routes of programs: secrets, and the agent as a model.
fn program_routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::from_router(
            (Post, "/secrets/{ref}"),
            "Stores a secret; it is never shown again.",
            post(api::store_secret),
            Success::without_schema(204, &[]),
        )
        .with_body(Body::Text)
        .or_refuses(MISSING),
        HttpRoute::from_handler(
            (Get, "/api/v1/settings"),
            "Lists the settings in force, each with its explanation.",
            StatusCode::OK,
            api::list_settings,
        ),
        HttpRoute::from_router(
            (Get, "/v1/models"),
            "Lists the agent by its names as a model.",
            get(openai::answer_models),
            Success::json_body(SchemaGenerator::subschema_for::<AgentModels>),
        ),
        HttpRoute::from_router(
            (Get, "/v1/models/{id}"),
            "Shows the agent by one of its names as a model.",
            get(openai::answer_model),
            Success::json_body(SchemaGenerator::subschema_for::<AgentModel>),
        )
        .or_refuses(MISSING),
        HttpRoute::from_router(
            (Post, "/v1/chat/completions"),
            "Sends a message to the agent and answers with its reply.",
            post(openai::chat::serve_completion),
            streamed_answer(SchemaGenerator::subschema_for::<ChatAnswer>),
        )
        .with_body(needed_body(SchemaGenerator::subschema_for::<ChatCompletion>))
        .or_refuses(UNSUPPORTED),
        HttpRoute::from_router(
            (Post, "/v1/responses"),
            "Sends a message to the agent and answers with its reply.",
            post(openai::responses::create_response),
            streamed_answer(SchemaGenerator::subschema_for::<ModelResponse>),
        )
        .with_body(needed_body(SchemaGenerator::subschema_for::<CreateResponse>))
        .or_refuses(UNSUPPORTED),
    ]
}

/// Returns the routes of autopilots that are not those of one method.
fn pilot_routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::from_handler(
            (Get, "/api/v1/pilot/units/{*unit}"),
            "Shows a unit of an autopilot at this moment.",
            StatusCode::OK,
            pilot::show_unit,
        )
        .with_query(pilot::session_fields())
        .or_refuses(MISSING),
        HttpRoute::from_handler(
            (Post, "/api/v1/pilot/refresh"),
            "Lets the loop of an autopilot, or of all, look at its units now; many requests become few looks.",
            StatusCode::ACCEPTED,
            pilot::refresh,
        )
        .with_query(pilot::session_fields())
        .or_refuses(MISSING),
    ]
}

const fn streamed_answer(schema: SchemaOf) -> Success {
    Success { status: 200, content: JSON_OR_STREAM, schema: Some(schema) }
}

const fn needed_body(schema: SchemaOf) -> Body {
    Body::Json { schema, is_required: true }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The router takes each route once, so that none hides another.
    #[test]
    fn no_route_is_there_twice() {
        let routes = all_routes();
        let names: BTreeSet<String> =
            routes.iter().map(|route| format!("{:?} {}", route.verb, route.path)).collect();
        assert_eq!(names.len(), routes.len());
        assert!(names.len() >= 40, "{}", names.len());
    }
}
