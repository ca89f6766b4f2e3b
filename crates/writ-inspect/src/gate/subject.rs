//! Subjects of gates: a text, or an action before it is performed.

use serde_json::{Map, Value};
use writ_types::action::Action;
use writ_types::entry::GatePoint;

use crate::prepared::Prepared;
use crate::scope::{self, Dimension, resolve_path};

/// A file that an action names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileSeen {
    /// Its path, absolute as the sandbox sees it.
    pub(super) path: String,
    /// The new size, where the action has it.
    pub(super) bytes: Option<u64>,
}

/// A subject of gates. Equal subjects get equal verdicts.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// The text that goes on; that of an action is made of its parts and goes nowhere.
    pub(super) text: String,
    /// The tool that an action is of; `None`: it is a text.
    pub(super) tool: Option<String>,
    /// The action by its parts; `null` for a text.
    pub(super) value: Value,
    pub(super) files: Vec<FileSeen>,
}

impl Subject {
    /// A text, at input or output.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), tool: None, value: Value::Null, files: Vec::new() }
    }

    /// A prepared action, as gates of a point see it: at execution all of it, at access what it touches.
    pub fn action(point: GatePoint, prepared: &Prepared) -> Self {
        let value = match point {
            GatePoint::Access => touched_values(&prepared.action),
            GatePoint::Input | GatePoint::Output | GatePoint::Execution => {
                serde_json::to_value(&prepared.action).unwrap_or_default()
            }
        };
        let text = collect_leaves(&value, None).join("\n");
        Self { text, tool: Some(prepared.tool.clone()), value, files: files_of(&prepared.action) }
    }

    /// The texts that a gate looks at: those below a field, or all.
    pub(super) fn seen_texts(&self, field: Option<&str>) -> Vec<String> {
        match (&self.tool, field) {
            // A text has no fields, so a gate for a field of actions sees all of it.
            (None, _) => vec![self.text.clone()],
            (Some(_), field) => collect_leaves(&self.value, field),
        }
    }

    /// The action's parts as JSON, for scripts.
    pub(super) fn to_json(&self) -> String {
        self.value.to_string()
    }
}

/// Lists the values that an action touches, by dimension.
fn touched_values(action: &Action) -> Value {
    let mut by_name: Map<String, Value> = Map::new();
    for (dimension, value) in scope::attributes_of(action) {
        // A dimension may have several values, as a command has hosts.
        let list = by_name.entry(dimension.as_str()).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(list) = list {
            list.push(Value::String(value));
        }
    }
    Value::Object(by_name)
}

/// The parts of an action with free names: the writer of a value also writes its name.
const FREE: [&str; 3] = ["arguments", "env", "headers"];

/// The texts, numbers and truth values of a value, in order; of a field, those below it. In [`FREE`] parts, names as well.
fn collect_leaves(value: &Value, field: Option<&str>) -> Vec<String> {
    let mut at = (Some(value), false);
    for name in field.into_iter().flat_map(|field| field.split('.')) {
        // In `arguments.0.to` a number is a place of a list, and a name of a field elsewhere.
        let below = at.0.and_then(|value| match name.parse::<usize>() {
            Ok(n) if value.is_array() => value.get(n),
            Ok(_) | Err(_) => value.get(name),
        });
        at = (below, at.1 || FREE.contains(&name));
    }
    // A stack instead of recursion: the depth of a value is that of foreign JSON.
    let mut found = Vec::new();
    let mut stack: Vec<(&Value, bool)> = at.0.into_iter().map(|value| (value, at.1)).collect();
    while let Some((value, free)) = stack.pop() {
        match value {
            Value::Null => {}
            Value::Bool(flag) => found.push(flag.to_string()),
            Value::Number(number) => found.push(number.to_string()),
            Value::String(text) => found.push(text.clone()),
            // In reverse, since the last one that is pushed is visited first.
            Value::Array(items) => stack.extend(items.iter().rev().map(|item| (item, free))),
            Value::Object(fields) => {
                // Elsewhere the names are those of our own types, which say nothing of the action.
                found.extend(fields.keys().filter(|_| free).cloned());
                let is_free = |name: &String| free || FREE.contains(&name.as_str());
                stack.extend(fields.iter().rev().map(|(name, value)| (value, is_free(name))));
            }
        }
    }
    found
}

/// The files that an action names: the paths by which its key is limited.
fn files_of(action: &Action) -> Vec<FileSeen> {
    if let Action::WriteFile(write) = action {
        let seen = write.changes.iter().map(|change| FileSeen {
            path: resolve_path(&write.root, &change.path),
            bytes: Some(change.bytes),
        });
        return seen.collect();
    }
    // A plan touches nothing itself; a gate about files must see what its steps will touch.
    if let Action::Plan(plan) = action {
        return plan.steps.iter().flat_map(|step| files_of(&step.action)).collect();
    }
    // The path of version control is a whole repository and no file.
    if matches!(action, Action::Vcs(_)) {
        return Vec::new();
    }
    let paths =
        scope::attributes_of(action).into_iter().filter(|(dimension, _)| *dimension == Dimension::Path);
    paths.map(|(_, path)| FileSeen { path, bytes: None }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use writ_types::action::Subscribe;

    use super::*;

    /// A field is found by name in records and by place in lists; names that look like places are names in records.
    #[test]
    fn parts_of_actions_are_found_by_their_paths() {
        let value = json!({ "argv": ["ls", "-l"], "arguments": { "0": "x", "to": ["ann"] } });
        for (field, expected) in [
            ("argv.1", vec!["-l"]),
            ("argv.2", vec![]),
            ("argv.to", vec![]),
            ("arguments.0", vec!["x"]),
            ("arguments.to.0", vec!["ann"]),
            ("arguments.1", vec![]),
            ("argv", vec!["ls", "-l"]),
        ] {
            assert_eq!(collect_leaves(&value, Some(field)), expected, "{field}");
        }
    }

    /// A subscription touches the file that it begins with, and none where it ends or is of a URL.
    #[test]
    fn a_subscription_names_its_file() {
        let named = |target: &str, stop| {
            let subscribe = Subscribe { target: target.to_owned(), lines: None, turns: 1, stop };
            files_of(&Action::Subscribe(subscribe)).into_iter().map(|file| file.path).collect::<Vec<_>>()
        };
        assert_eq!(named("notes.md", false), ["/work/notes.md"]);
        for (target, stop) in
            [("notes.md", true), ("https://a.example/", false), ("https://a.example/", true)]
        {
            assert!(named(target, stop).is_empty(), "{target} {stop}");
        }
    }
}
