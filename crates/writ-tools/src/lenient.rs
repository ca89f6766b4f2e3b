//! Calls as models write them, brought into the form that they clearly mean.
//!
//! Small and local models wrap arguments once more, encode them twice, put them into fences, write numbers as texts, or give a
//! tool's name a prefix. What can only mean one thing is taken; everything else stays as it is, and is refused in words
//! from which the model can mend it. A call that fits as it is is never touched. It all happens before anything is decided:
//! the door and the ledger see what is done.

use serde_json::{Map, Value};
use writ_types::chat::ToolCall;

use crate::arguments::MAX_ARGUMENT_BYTES;
use crate::registry::Toolset;

mod coerce;

mod json;

pub(crate) use coerce::{coerce_value, with_nulls};
use json::object_of;

/// Prefixes of tool names, as written by models that have learned to write a tool as a function of a module.
const PREFIXES: [&str; 8] =
    ["functions", "function", "default_api", "tools", "tool", "api", "default", "assistant"];
/// Fields that hold the arguments where a model wraps them.
const WRAPPERS: [&str; 7] = ["arguments", "args", "input", "parameters", "params", "tool_input", "kwargs"];
/// The arguments of our own tools that name a file or folder.
const PATHS: [&str; 3] = ["path", "cwd", "save_to"];
/// The depth of paths: in the arguments of a step, in the steps of a plan.
const PATHS_DEPTH: usize = 4;
/// Fields that may stand beside these: they repeat which tool is called.
const BESIDE: [&str; 5] = ["name", "tool", "tool_name", "function", "type"];

impl Toolset<'_> {
    /// Brings a call into the form that it clearly means: its name is one of the tools that were `offered`, its arguments
    /// an object that fits, and its paths below the `project` on the host are relative to it. What is not clear stays as it is.
    pub fn understand_call(&self, call: &mut ToolCall, offered: &[&str], project: Option<&str>) {
        // The name comes first: the arguments are read by the schema of the tool meant.
        if let Some(name) = meant_tool(&call.name, offered) {
            name.clone_into(&mut call.name);
        }
        let Some(tool) = self.offered_tool(&call.name) else { return };
        let schema = tool.schema();
        let Some(object) = object_of(&call.arguments, MAX_ARGUMENT_BYTES) else { return };
        let fitting = |object: &Map<String, Value>| {
            let as_is = Value::Object(object.clone());
            // A call that fits is never changed.
            if tool.fits_arguments(&schema, &as_is) {
                return Some(as_is);
            }
            let coerced = tool.coerce_arguments(&schema, &as_is);
            tool.fits_arguments(&schema, &coerced).then_some(coerced)
        };
        // Some models wrap the arguments in an object with the tool's name.
        let unwrapped = unwrap_object(&call.name, &object, &schema);
        let found = fitting(&object).or_else(|| unwrapped.as_ref().and_then(fitting));
        // The error for an object names its problems; the error for a text is that it is no object.
        call.arguments = found.unwrap_or_else(|| Value::Object(unwrapped.unwrap_or(object)));
        // Only our own tools take paths of the work folder.
        if let (None, Some(project)) = (tool.origin(), project) {
            relate_paths(&mut call.arguments, project, PATHS_DEPTH);
        }
    }
}

/// Writes paths below the project on the host as paths of the work folder, also in the steps of a plan.
fn relate_paths(arguments: &mut Value, project: &str, depth: usize) {
    let Some(deeper) = depth.checked_sub(1) else { return };
    match arguments {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let (true, Value::String(text)) = (PATHS.contains(&name.as_str()), &mut *value) {
                    // Models that know the project's absolute path use it; the tools take paths relative to
                    // it.
                    match text.strip_prefix(project) {
                        Some("") => ".".clone_into(text),
                        Some(below) if below.starts_with('/') => *text = relative_path(below),
                        Some(_) | None => {}
                    }
                } else {
                    relate_paths(value, project, deeper);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| relate_paths(value, project, deeper)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the text after its leading slashes; the folder itself if that is empty.
fn relative_path(below: &str) -> String {
    let names = below.trim_start_matches('/');
    if names.is_empty() { ".".to_owned() } else { names.to_owned() }
}

/// The one tool that a name means: itself, or without blanks, quotes, a known prefix, marks of a template and the case of
/// its letters.
fn meant_tool<'a>(name: &str, offered: &[&'a str]) -> Option<&'a str> {
    if let Some(same) = offered.iter().find(|one| **one == name) {
        return Some(same);
    }
    // Templates of some models leave a mark of theirs behind, and others count their calls.
    let name = name.split("<|").next().unwrap_or_default();
    let name = match name.rsplit_once(':') {
        Some((before, count)) if !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit()) => before,
        Some(_) | None => name,
    };
    let quotes = |c: char| c.is_whitespace() || matches!(c, '`' | '"' | '\'' | '(' | ')' | ';' | ',');
    let mut name = name.trim_matches(quotes);
    let only = |name: &str| {
        let wanted = fold_name(name);
        let mut found = offered.iter().filter(|one| fold_name(one) == wanted);
        found.next().filter(|_| found.next().is_none()).copied()
    };
    for _ in 0..=PREFIXES.len() {
        // gpt-oss writes the form of its arguments behind the name, at times without a blank.
        let bare = name.strip_suffix("json").map(str::trim_end).filter(|bare| !bare.is_empty());
        if let Some(found) = only(name).or_else(|| bare.and_then(only)) {
            return Some(found);
        }
        name = PREFIXES.iter().find_map(|prefix| {
            let rest = name.get(prefix.len()..)?;
            let is_prefix = name.get(..prefix.len())?.eq_ignore_ascii_case(prefix);
            let rest = rest.trim_start_matches(['.', ':', '/']);
            (is_prefix && rest.len() < name.len() - prefix.len()).then_some(rest)
        })?;
    }
    None
}

/// A name without case, and with `_` for blanks, dashes and dots.
fn fold_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    name.trim().chars().map(plain).collect()
}

/// The arguments within arguments that are nothing but a wrapper, which the tool has no argument for.
fn unwrap_object(tool: &str, object: &Map<String, Value>, schema: &Value) -> Option<Map<String, Value>> {
    let has = |name: &str| schema.get("properties").is_some_and(|all| all.get(name).is_some());
    let mut inner = None;
    for (name, value) in object {
        // An object with a known argument is not a wrapper.
        if has(name) {
            return None;
        }
        if WRAPPERS.contains(&name.as_str()) && inner.is_none() {
            inner = Some(value);
        } else {
            let repeats = value
                .as_str()
                .is_some_and(|value| value == "function" || fold_name(value) == fold_name(tool));
            if !BESIDE.contains(&name.as_str()) || !repeats {
                return None;
            }
        }
    }
    object_of(inner?, MAX_ARGUMENT_BYTES)
}

#[cfg(test)]
mod tests;
