//! Foreign schemas: bounded before they are used, since checking against one is running it.

use std::sync::Arc;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;
use writ_types::schema::ExpandError;

use crate::text::one_line;

/// The most work of one check: values of the expanded schema times values of the arguments.
const MAX_WORK: usize = 20_000_000;
/// The largest compiled expression, in bytes.
const MAX_PATTERN_BYTES: usize = 256 * 1024;
/// The most problems named in one message.
const MAX_PROBLEMS: usize = 8;
/// The longest path or name in a problem, in characters.
const MAX_NAME_CHARS: usize = 80;

/// The reason that a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeignSchemaError {
    /// Its references cannot be put in their places.
    #[error(transparent)]
    Expand(#[from] ExpandError),
    /// It is of something else than an object, which arguments are.
    #[error("it is not the schema of an object")]
    NotObject,
    /// No schema.
    #[error("it is no JSON Schema, or has an expression that cannot be checked in bounded time")]
    Invalid,
}

/// A schema that can be checked against.
#[derive(Clone)]
pub(crate) struct ArgumentSchema {
    validator: Arc<Validator>,
    expanded: usize,
}

impl std::fmt::Debug for ArgumentSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArgumentSchema").field("expanded", &self.expanded).finish_non_exhaustive()
    }
}

impl ArgumentSchema {
    /// Compiles a schema that was expanded. Nothing is ever fetched for it.
    pub(crate) fn from_schema(schema: &Value) -> Result<Self, ForeignSchemaError> {
        // Arguments are always an object, so another schema could never fit.
        if !is_of_object(schema) {
            return Err(ForeignSchemaError::NotObject);
        }
        let expanded = count_values(schema);
        // A pattern is compiled with a bound on its size and runs in linear time.
        let patterns = PatternOptions::regex().size_limit(MAX_PATTERN_BYTES);
        let built = jsonschema::options()
            .with_pattern_options(patterns)
            // Formats are hints of the author; checking them would refuse calls that servers accept.
            .should_validate_formats(false)
            .with_retriever(Nothing)
            .build(schema);
        let validator = Arc::new(built.map_err(|_invalid| ForeignSchemaError::Invalid)?);
        Ok(Self { validator, expanded })
    }

    /// Checks arguments, and returns the problems in our own words.
    pub(crate) fn check_arguments(&self, arguments: &Value) -> Result<(), Vec<String>> {
        // The work of a check grows with both sizes, and the server chose one of them.
        if count_values(arguments).saturating_mul(self.expanded) > MAX_WORK {
            return Err(vec!["the arguments are too large to be checked".to_owned()]);
        }
        let problems: Vec<_> = self
            .validator
            .iter_errors(arguments)
            .take(MAX_PROBLEMS)
            .map(|error| describe_error(&error))
            .collect();
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

/// Returns true if a schema says nothing of a type, or that it is an object.
fn is_of_object(schema: &Value) -> bool {
    match schema.get("type") {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
    }
}

/// Fetches nothing.
struct Nothing;

impl jsonschema::Retrieve for Nothing {
    fn retrieve(
        &self,
        _: &jsonschema::Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err("nothing is fetched for a schema".into())
    }
}

/// Counts the values in one.
fn count_values(value: &Value) -> usize {
    let inside: usize = match value {
        Value::Array(values) => values.iter().map(count_values).sum(),
        Value::Object(fields) => fields.values().map(count_values).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    };
    inside.saturating_add(1)
}

/// A problem: where, and which word of the standard is not met. Texts of the schema are not repeated, but for names.
fn describe_error(error: &ValidationError<'_>) -> String {
    let at = error.instance_path.as_str();
    let at = if at.is_empty() {
        "the arguments".to_owned()
    } else {
        format!("'{}'", one_line(at, MAX_NAME_CHARS))
    };
    let named = |names: &[String]| {
        names
            .iter()
            .map(|name| format!("'{}'", one_line(name, MAX_NAME_CHARS)))
            .take(MAX_PROBLEMS)
            .collect::<Vec<_>>()
    };
    if let ValidationErrorKind::Required { property } = &error.kind {
        let name = property.as_str().unwrap_or_default();
        return format!("{at}: '{}' is missing", one_line(name, MAX_NAME_CHARS));
    }
    if let ValidationErrorKind::AdditionalProperties { unexpected } = &error.kind {
        return format!("{at}: {} is unknown", named(unexpected).join(", "));
    }
    if let ValidationErrorKind::Type { kind: TypeKind::Single(kind) } = &error.kind {
        return format!("{at} must be of type {kind}");
    }
    let keyword = error.schema_path.as_str().rsplit('/').next().unwrap_or_default();
    format!("{at} does not fit '{}' of the schema", one_line(keyword, MAX_NAME_CHARS))
}
