//! Routes that stand for one method of the engine each, as the table of methods gives them.

use std::sync::Arc;

use axum::extract::{RawPathParams, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::on;
use serde_json::{Map, Value, json};
use writ_runtime::methods::{Method, MethodRoute, PathSubject};
use writ_types::frame::MAX_FRAME_BYTES;
use writ_types::id::AttemptId;

use super::ServerState;
use super::query::{QueryField, check_query, fields_of, takes_body};
use super::reply::{Refusal, json_response, read_json};
use super::route::{
    Body, HttpRoute, Success, ask_id, entry_seq, method_filter, request_evidence, session_id,
};

/// Returns the routes of all methods that have one.
pub(super) fn method_routes() -> Vec<HttpRoute> {
    let methods = Method::ALL.iter().filter_map(|method| Some((*method, method.route()?)));
    let routes = methods.flat_map(|(method, route)| {
        // The fields are read once for each route, and shared by its requests.
        let fields: Arc<[QueryField]> = fields_of(&route).into();
        route.paths.iter().map(move |path| route_of(method, route, path, &fields))
    });
    routes.collect()
}

fn route_of(method: Method, route: MethodRoute, path: &'static str, fields: &Arc<[QueryField]>) -> HttpRoute {
    let known = Arc::clone(fields);
    let served = move |State(shared): State<Arc<ServerState>>, path: RawPathParams, request: Request| {
        let known = Arc::clone(&known);
        async move { serve_method(&shared, (method, &route), &path, &known, request).await }
    };
    let has_body = takes_body(&route);
    let success = Success::json_body(route.answer);
    let served = HttpRoute::from_router(
        (route.verb, path),
        method.summary(),
        on(method_filter(route.verb), served),
        success,
    );
    let served = served.calls_method(method).with_query(fields.to_vec()).or_refuses(route.refusals);
    match has_body {
        true => served.with_body(Body::Json { schema: route.params, is_required: true }),
        false => served,
    }
}

async fn serve_method(
    shared: &ServerState,
    (method, route): (Method, &MethodRoute),
    path: &RawPathParams,
    fields: &[QueryField],
    request: Request,
) -> Result<Response, Refusal> {
    let subject = route.subject.map(|subject| path_subject(subject, path)).transpose()?;
    // Parameters come from the query, and a name that is not known is refused.
    let mut params = check_query(request.uri(), fields)?;
    // The path wins over the query, which cannot have this name.
    params.extend(subject);
    let evidence = request_evidence(&request);
    if takes_body(route) {
        // A file is larger than any message, and bounded by itself.
        let limit =
            if method == Method::FilesAdd { MAX_FRAME_BYTES } else { shared.config.max_message_bytes };
        let body: Map<String, Value> = read_json(request, limit).await?;
        params.extend(body);
    }
    let found = shared.engine.call(evidence, None, method.name(), Value::Object(params)).await?;
    Ok(json_response(StatusCode::OK, &found))
}

/// Reads the subject that a path names, as a parameter of the method.
fn path_subject(subject: PathSubject, path: &RawPathParams) -> Result<(String, Value), Refusal> {
    // Each of these paths has one variable part.
    let text = path.iter().next().map_or("", |(_, value)| value);
    let value = match subject {
        PathSubject::Session => json!(session_id(text)?),
        PathSubject::Ask => json!(ask_id(text)?),
        PathSubject::Attempt => json!(attempt_id(text)?),
        PathSubject::Entry => json!(entry_seq(text)?),
        // An id or a name: the engine finds it or not.
        PathSubject::Item => json!(text),
    };
    Ok((subject.field().to_owned(), value))
}

fn attempt_id(text: &str) -> Result<AttemptId, Refusal> {
    text.parse().map_err(|_| Refusal::malformed("this is not the id of an attempt"))
}
