//! `/openapi.json`: the routes, for programs that make clients.

use std::sync::LazyLock;

use axum::response::Response;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use writ_runtime::methods::Verb;

use super::reply::{ErrorBody, json_ok};
use super::route::{Body, HttpRoute};
use super::routes;

/// The place of the schemas in the document.
const SCHEMAS: &str = "/components/schemas";

/// The document, written when it is first asked for.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| write_document(&routes::all_routes()));

/// `GET /openapi.json`
pub(super) async fn serve_document() -> Response {
    json_ok(&DOCUMENT)
}

fn write_document(routes: &[HttpRoute]) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = SCHEMAS.into();
        // The document itself names the dialect.
        settings.meta_schema = None;
    });
    let mut schemas = SchemaGenerator::new(settings);
    let error = schemas.subschema_for::<ErrorBody>();
    let mut paths: Map<String, Value> = Map::new();
    // Routes with the same path share an entry, one verb each.
    for route in routes {
        let verbs = paths.entry(documented_path(route.path)).or_insert_with(|| json!({}));
        verbs[verb_name(route.verb)] = write_operation(route, &error, &mut schemas);
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
            "schemas": schemas.take_definitions(true),
        },
    })
}

/// Returns a path as the document writes it: a part that takes in slashes has no mark there.
fn documented_path(path: &str) -> String {
    path.replace("{*", "{")
}

const fn verb_name(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "get",
        Verb::Post => "post",
        Verb::Delete => "delete",
    }
}

fn write_operation(route: &HttpRoute, error: &Schema, schemas: &mut SchemaGenerator) -> Value {
    let refusal = json!({
        "description": "refused or failed",
        "content": { "application/json": { "schema": error } },
    });
    let mut responses: Map<String, Value> =
        route.error_statuses().into_iter().map(|status| (status.to_string(), refusal.clone())).collect();
    responses.insert(route.success.status.to_string(), write_success(route, schemas));
    let mut operation = json!({
        "summary": route.summary.trim_end_matches('.'),
        "parameters": write_parameters(route),
        "responses": responses,
        "security": if route.is_guarded { json!([{ "token": [] }, { "page": [] }]) } else { json!([]) },
    });
    if let Some(method) = route.method {
        operation["description"] = json!(format!("Calls the method `{method}` of the engine."));
    }
    match route.body {
        None => {}
        Some(Body::Json { schema, is_required }) => {
            let schema = schema(schemas);
            operation["requestBody"] =
                json!({ "required": is_required, "content": { "application/json": { "schema": schema } } });
        }
        Some(Body::Text) => {
            let schema = json!({ "type": "string" });
            operation["requestBody"] =
                json!({ "required": true, "content": { "text/plain": { "schema": schema } } });
        }
    }
    operation
}

// The names of the path are those of the router's pattern.
fn write_parameters(route: &HttpRoute) -> Vec<Value> {
    let path = documented_path(route.path);
    let in_path = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
    let query = route
        .query
        .iter()
        .map(|field| json!({ "name": field.name, "in": "query", "required": false, "schema": field.schema }));
    in_path.chain(query).collect()
}

fn write_success(route: &HttpRoute, schemas: &mut SchemaGenerator) -> Value {
    let mut success = json!({ "description": "done" });
    let schema = route.success.schema.map(|schema| schema(schemas));
    for kind in route.success.content {
        // A stream has events of several forms, which JSON Schema has no word for.
        let schema = if *kind == "application/json" { json!(schema) } else { Value::Null };
        success["content"][*kind] = if schema.is_null() { json!({}) } else { json!({ "schema": schema }) };
    }
    success
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every `$ref` below a value.
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_route_is_documented_with_its_types_and_every_reference_leads_somewhere() {
        let (routes, document) = (routes::all_routes(), write_document(&routes::all_routes()));
        let documented = document["paths"].as_object().expect("paths").values();
        let documented: usize = documented.map(|verbs| verbs.as_object().expect("verbs").len()).sum();
        assert_eq!(documented, routes.len());
        for route in &routes {
            let operation = &document["paths"][documented_path(route.path)][verb_name(route.verb)];
            let success = &operation["responses"][route.success.status.to_string()];
            let schema = &success["content"]["application/json"]["schema"];
            assert_eq!(schema.is_object(), route.success.schema.is_some(), "{}: {success}", route.path);
            for status in route.error_statuses() {
                let schema =
                    &operation["responses"][status.to_string()]["content"]["application/json"]["schema"];
                assert_eq!(schema["$ref"], "#/components/schemas/Error", "{}: {status}", route.path);
            }
            let in_path = route.path.matches('{').count();
            assert_eq!(
                operation["parameters"].as_array().map(Vec::len),
                Some(in_path + route.query.len()),
                "{}",
                route.path
            );
        }
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        for reference in &found {
            let name =
                reference.strip_prefix("#/components/schemas/").unwrap_or_else(|| panic!("{reference}"));
            assert!(schemas.contains_key(name), "{reference}");
        }
        assert_eq!(found.len(), schemas.len(), "no schema is there that nothing names");
        let error = &schemas["Error"]["properties"]["error"];
        assert!(error.is_object(), "{error}");
    }
}
