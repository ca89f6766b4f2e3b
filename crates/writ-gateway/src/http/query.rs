//! The query of an address, by the fields that it may have.

use axum::http::Uri;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use writ_runtime::methods::{MethodRoute, Verb};

use super::reply::Refusal;

/// The longest name of an unknown field that a refusal repeats, in characters.
const MAX_SHOWN_NAME: usize = 40;

/// A field of a query.
#[derive(Clone, Debug)]
pub(super) struct QueryField {
    pub(super) name: String,
    /// The schema of its value, which is never null.
    pub(super) schema: Value,
}

impl QueryField {
    /// Returns a field that is a whole number.
    pub(super) fn number_field(name: &str) -> Self {
        Self { name: name.to_owned(), schema: serde_json::json!({ "type": "integer", "minimum": 0 }) }
    }

    /// Returns a field that is a text.
    pub(super) fn text_field(name: &str) -> Self {
        Self { name: name.to_owned(), schema: serde_json::json!({ "type": "string" }) }
    }

    fn is_text(&self) -> bool {
        self.schema.get("type").is_some_and(|kind| kind == "string")
    }

    /// Reads a value. What does not fit the type is left as a text, which the reader of the parameters refuses.
    fn read_value(&self, text: &str) -> Value {
        if self.is_text() {
            // Everything else is tried as a number and a truth value; the method's own types decide.
            return text.into();
        }
        match (text.parse::<u64>(), text) {
            (Ok(number), _) => number.into(),
            (Err(_), "true") => true.into(),
            (Err(_), "false") => false.into(),
            (Err(_), text) => text.into(),
        }
    }
}

/// Returns true if the parameters of a method's route are its body.
pub(super) const fn takes_body(route: &MethodRoute) -> bool {
    // With a subject the path says everything.
    matches!(route.verb, Verb::Post) && route.subject.is_none()
}

/// Returns the fields that the query of a method's route may have: its parameters, unless the path names a subject or
/// they are the body.
// With a subject the path names what is asked for, so there is nothing left to choose.
pub(super) fn fields_of(route: &MethodRoute) -> Vec<QueryField> {
    if route.subject.is_some() || takes_body(route) {
        return Vec::new();
    }
    // Parameters stand in the query one by one, so their schemas must stand alone.
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = (route.params)(&mut SchemaGenerator::new(settings)).to_value();
    let Some(Value::Object(properties)) = schema.get_mut("properties").map(Value::take) else {
        return Vec::new();
    };
    properties.into_iter().map(|(name, schema)| QueryField { name, schema: without_null(schema) }).collect()
}

/// Takes `null` out of a schema: a query has no word for it.
fn without_null(mut schema: Value) -> Value {
    if let Some(fields) = schema.as_object_mut() {
        if let Some(Value::Array(kinds)) = fields.get_mut("type") {
            kinds.retain(|kind| kind != "null");
            if let [kind] = kinds.as_slice() {
                let kind = kind.clone();
                fields.insert("type".to_owned(), kind);
            }
        }
        if fields.get("default") == Some(&Value::Null) {
            fields.remove("default");
        }
    }
    schema
}

/// Reads a query into parameters. A name that is not listed is refused.
pub(super) fn check_query(uri: &Uri, fields: &[QueryField]) -> Result<Map<String, Value>, Refusal> {
    let pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    pairs
        .map(|(name, value)| {
            let Some(field) = fields.iter().find(|field| field.name == name) else {
                let known: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
                let name: String = name.chars().take(MAX_SHOWN_NAME).collect();
                let text = format!("unknown parameter '{name}'; known: {}", known.join(", "));
                return Err(Refusal::malformed(&text));
            };
            Ok((name.into_owned(), field.read_value(&value)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use writ_runtime::methods::Method;

    use super::*;

    fn read(query: &str, fields: &[QueryField]) -> Result<Value, String> {
        let uri: Uri = format!("/x?{query}").parse().expect("an address");
        check_query(&uri, fields).map(Value::Object).map_err(|refusal| refusal.report().outside.clone())
    }

    #[test]
    fn the_fields_of_a_query_are_the_parameters_of_the_method() {
        let ledger = fields_of(&Method::LedgerList.route().expect("a route"));
        let names: Vec<&str> = ledger.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["before", "after", "limit", "event", "session", "q"]);
        assert_eq!(
            read("before=7&limit=x&q=7&event=true", &ledger),
            Ok(json!({ "before": 7, "limit": "x", "q": "7", "event": "true" }))
        );
        let unknown = "unknown parameter 'none'; known: before, after, limit, event, session, q".to_owned();
        assert_eq!(read("none=1", &ledger), Err(unknown));
        let asks = fields_of(&Method::ApprovalsList.route().expect("a route"));
        assert_eq!(read("all=true", &asks), Ok(json!({ "all": true })));
        assert!(fields_of(&Method::Diff.route().expect("a route")).is_empty(), "the path names the session");
        assert!(fields_of(&Method::Status.route().expect("a route")).is_empty());
        assert!(ledger.iter().chain(&asks).all(|field| field.schema["type"].is_string()), "{ledger:?}");
    }
}
