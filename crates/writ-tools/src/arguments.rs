//! From what a model sent to typed arguments, with everything that is wrong in one message.

use std::io;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use writ_inspect::origin::THEN;

use crate::def::ToolDef;
use crate::error::{ToolError, shorten_name};

/// The largest arguments of a call, as JSON, in bytes.
pub(crate) const MAX_ARGUMENT_BYTES: usize = 1024 * 1024;

/// The most problems named in one message.
const MAX_PROBLEMS: usize = 8;

/// The longest text of the parser that is repeated, in characters.
const MAX_PARSER_CHARS: usize = 300;

/// Brings arguments into the form of an object that fits the schema, as far as names and types go.
///
/// Some providers send the object as text, and nothing at all for no arguments: both are read.
pub(crate) fn check_arguments(tool: &ToolDef, arguments: &Value) -> Result<Value, ToolError> {
    // Measured without serialising into memory: arguments may be hundreds of megabytes.
    if json_size(arguments).is_none() {
        return Err(too_large(tool));
    }
    let object = read_object(arguments).map_err(|problem| invalid_arguments(tool, &problem))?;
    let problems = find_problems(&tool.told_schema(), &object);
    if problems.is_empty() {
        // For the harness alone.
        let mut object = object;
        if tool.reads_outside() {
            object.shift_remove(THEN);
        }
        Ok(Value::Object(object))
    } else {
        Err(ToolError::Invalid { tool: tool.name, problems, usage: tool.usage })
    }
}

/// Reads the object that arguments are, in whichever of their forms a provider has sent them.
///
/// # Errors
///
/// In words, why they are none.
pub fn read_object(arguments: &Value) -> Result<Map<String, Value>, String> {
    match arguments {
        Value::Object(object) => Ok(object.clone()),
        Value::Null => Ok(Map::new()),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(Value::Object(object)) => Ok(object),
            Ok(_) => Err("the arguments are not an object".to_owned()),
            Err(error) => Err(format!("the arguments are not JSON: {error}")),
        },
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            Err("the arguments are not an object".to_owned())
        }
    }
}

/// Returns true if arguments fit the schema of a tool, as far as names and types go.
pub(crate) fn fits_schema(schema: &Value, arguments: &Value) -> bool {
    let has_nothing = |object: &Map<String, Value>| {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        // A required argument that is null is not given.
        required.filter_map(Value::as_str).any(|name| object.get(name).is_some_and(Value::is_null))
    };
    let object = arguments.as_object();
    object.is_some_and(|object| {
        find_problems(schema, object).is_empty() && values_fit(schema, object) && !has_nothing(object)
    })
}

/// Returns true if the items of lists have the type that the schema names for them, and texts are among the named ones.
fn values_fit(schema: &Value, object: &Map<String, Value>) -> bool {
    object.iter().all(|(name, value)| {
        let Some(property) = schema.get("properties").and_then(|all| all.get(name)) else { return true };
        let named = property.get("enum").and_then(Value::as_array);
        let items = property.get("items").zip(value.as_array());
        named.is_none_or(|named| value.is_null() || named.contains(value))
            && items
                .is_none_or(|(of, items)| items.iter().all(|item| describe_mistype(name, of, item).is_none()))
    })
}

/// Reads checked arguments into their type.
pub(crate) fn parse_arguments<T: DeserializeOwned>(
    tool: &'static ToolDef,
    arguments: &Value,
) -> Result<T, ToolError> {
    T::deserialize(arguments)
        // The parser's words can quote foreign text, so they are cut to one line.
        .map_err(|error| {
            invalid_arguments(tool, &crate::text::one_line(&error.to_string(), MAX_PARSER_CHARS))
        })
}

/// One problem with the arguments.
pub(crate) fn invalid_arguments(tool: &ToolDef, problem: &str) -> ToolError {
    ToolError::Invalid { tool: tool.name, problems: vec![problem.to_owned()], usage: tool.usage }
}

/// Refuses NUL characters: no program, file name or text for people has them.
pub(crate) fn no_nul(tool: &ToolDef, argument: &str, text: &str) -> Result<(), ToolError> {
    if text.contains('\0') {
        Err(invalid_arguments(tool, &format!("'{argument}' has a NUL character")))
    } else {
        Ok(())
    }
}

fn too_large(tool: &ToolDef) -> ToolError {
    ToolError::TooLarge {
        tool: tool.name,
        what: "the size of the arguments in bytes",
        limit: MAX_ARGUMENT_BYTES,
    }
}

/// The size as JSON; `None` when it is over the bound.
fn json_size(arguments: &Value) -> Option<usize> {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            if self.0 > MAX_ARGUMENT_BYTES {
                // The error ends the serialisation early.
                Err(io::ErrorKind::FileTooLarge.into())
            } else {
                Ok(bytes.len())
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, arguments).ok()?;
    Some(counter.0)
}

/// Unknown, missing and mistyped arguments.
fn find_problems(schema: &Value, object: &Map<String, Value>) -> Vec<String> {
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let known: Vec<_> = properties.keys().map(|name| format!("'{name}'")).collect();
    let mut problems = Vec::new();
    for (name, value) in object {
        match properties.get(name) {
            None => problems.push(format!(
                "unknown argument '{}' (there are {})",
                shorten_name(name),
                known.join(", ")
            )),
            Some(property) => problems.extend(describe_mistype(name, property, value)),
        }
        // One message with a few problems is enough for the next try.
        if problems.len() >= MAX_PROBLEMS {
            return problems;
        }
    }
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    for name in required.filter_map(Value::as_str) {
        if !object.contains_key(name) {
            problems.push(format!("missing argument '{name}'"));
        }
    }
    problems.truncate(MAX_PROBLEMS);
    problems
}

fn describe_mistype(name: &str, property: &Value, value: &Value) -> Option<String> {
    let wanted = property.get("type").and_then(Value::as_str)?;
    let found = match value {
        // An optional argument may be given as nothing; a required one fails when it is read.
        Value::Null => return None,
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    (found != wanted).then(|| format!("'{name}' must be of type {wanted}, not {found}"))
}
