//! Serves the JSON Schemas of the frames, generated from their types. `docs/schemas/` has the same texts.

use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use schemars::{Schema, schema_for};
use serde_json::json;
use writ_types::frame::{ClientFrame, Numbered};

use super::reply::{Refusal, json_ok};

/// The names of the schemas.
#[cfg(test)]
const NAMES: [&str; 2] = ["client-frame.json", "server-frame.json"];

/// `GET /schemas/{name}`
pub(super) async fn serve_schema(Path(name): Path<String>) -> Response {
    match schema_of(&name) {
        Some(schema) => json_ok(&json!(schema)),
        None => Refusal::not_found().into_response(),
    }
}

fn schema_of(name: &str) -> Option<Schema> {
    match name {
        "client-frame.json" => Some(schema_for!(ClientFrame)),
        "server-frame.json" => Some(schema_for!(Numbered)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_schemas_are_those_of_the_types() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
        for name in NAMES {
            let mut text = serde_json::to_string_pretty(&schema_of(name).expect("a schema")).expect("JSON");
            text.push('\n');
            let committed = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
            if text != committed {
                let right = std::env::temp_dir().join(name);
                std::fs::write(&right, text).expect("written");
                panic!("docs/schemas/{name} is out of date: replace it with {}", right.display());
            }
        }
        assert!(schema_of("other.json").is_none());
    }
}
