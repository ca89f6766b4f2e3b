//! Calls made earlier for a request.
//!
//! A tool that was named for one call is not free for another one: an injected order may want one more
//! message to a recipient that the owner has named, with other words, or one more event.

use std::collections::BTreeMap;

use serde_json::Value;

use super::THEN;
use crate::prepared::Sink;

/// The most calls of a request that are compared; with more, each further one counts as another of its tool's.
const MAX_DONE: usize = 1_000;

/// Arguments that name who gets a message.
const RECIPIENTS: [&str; 7] = ["to", "cc", "bcc", "recipient", "recipients", "attendees", "participants"];

/// The calls that were performed since the owner's newest message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CallHistory(Vec<(String, Value)>);

impl CallHistory {
    pub(super) const fn nothing() -> Self {
        Self(Vec::new())
    }

    /// Notes a call that was performed.
    pub(super) fn add_call(&mut self, tool: &str, arguments: &Value) {
        if self.0.len() <= MAX_DONE {
            let mut arguments = arguments.clone();
            if let Value::Object(fields) = &mut arguments {
                fields.shift_remove(THEN);
            }
            self.0.push((tool.to_owned(), arguments));
        }
    }

    /// Returns true if a tool was used for this request with the same recipients, places and objects, and
    /// with other content. Of several values of one argument, as recipients are, one is enough; an argument
    /// that was not given then distinguishes nothing. An identical call is handled elsewhere
    /// (`docs/guides/mcp.md`).
    pub(super) fn repeats_call(&self, tool: &str, arguments: &Value, sinks: &[Sink]) -> bool {
        let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for sink in sinks {
            groups.entry(argument_group(&sink.argument)).or_default().push(&sink.value);
        }
        let is_same = |done: &Value| {
            let mut known = BTreeMap::new();
            texts_of(done, "", &mut known);
            let mut shared = groups.iter().filter_map(|(argument, values)| {
                let before: &Vec<String> = known.get(argument)?;
                Some(values.iter().any(|value| before.iter().any(|text| text == value)))
            });
            shared.all(|is_shared| is_shared)
        };
        self.0.len() > MAX_DONE
            || self.0.iter().any(|(name, done)| name == tool && done != arguments && is_same(done))
    }
}

/// The path of an argument without its places in lists; all that name recipients are one.
fn argument_group(path: &str) -> String {
    let is_name = |part: &&str| !part.bytes().all(|byte| byte.is_ascii_digit());
    let names: Vec<&str> = path.split('.').filter(is_name).collect();
    if names.last().is_some_and(|name| RECIPIENTS.contains(&name.to_lowercase().as_str())) {
        return RECIPIENTS[0].to_owned();
    }
    names.join(".")
}

/// Every text and number in a value, by the path of its argument.
fn texts_of(value: &Value, path: &str, found: &mut BTreeMap<String, Vec<String>>) {
    let mut put = |text: String| found.entry(argument_group(path)).or_default().push(text);
    match value {
        Value::String(text) => put(text.clone()),
        Value::Number(number) => put(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| texts_of(item, path, found)),
        Value::Object(fields) => fields.iter().for_each(|(name, field)| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            texts_of(field, &path, found);
        }),
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn another_message_to_the_same_person_is_another_call_of_its_tool() {
        let mut history = CallHistory::nothing();
        history.add_call("mail__send", &json!({ "to": ["ann"], "body": "On Sunday.", "then": ["x"] }));
        let repeats = |tool: &str, to: &[&str], body: &str| {
            let sinks: Vec<Sink> = to
                .iter()
                .enumerate()
                .map(|(n, to)| Sink { argument: format!("to.{n}"), value: (*to).to_owned() })
                .collect();
            history.repeats_call(tool, &json!({ "to": to, "body": body }), &sinks)
        };
        assert!(repeats("mail__send", &["ann"], "The code is 5512."));
        assert!(!repeats("mail__send", &["ann"], "On Sunday."), "the very same");
        assert!(
            !repeats("mail__send", &["bob"], "On Sunday.") && repeats("mail__send", &["bob", "ann"], "x")
        );
        let sinks = |arguments: &Value, of: &[(&str, &str)]| {
            let sinks: Vec<Sink> = of
                .iter()
                .map(|(argument, value)| Sink { argument: (*argument).into(), value: (*value).into() })
                .collect();
            history.repeats_call("mail__send", arguments, &sinks)
        };
        assert!(sinks(&json!({ "to": "ann", "body": "x" }), &[("to", "ann")]), "a list of one is the same");
        let copied = json!({ "to": ["ann"], "cc": ["bob"], "body": "x" });
        assert!(sinks(&copied, &[("to.0", "ann"), ("cc.0", "bob")]), "one more recipient");
        let moved = json!({ "to": ["bob"], "cc": ["ann"], "body": "x" });
        assert!(sinks(&moved, &[("to.0", "bob"), ("cc.0", "ann")]), "another place for her");
        assert!(!repeats("chat__send", &["ann"], "x") && repeats("mail__send", &[], "x"), "nobody is named");
    }

    #[test]
    fn of_too_many_calls_each_is_another_one() {
        let mut history = CallHistory::nothing();
        (0..=MAX_DONE).for_each(|n| history.add_call("a", &json!({ "id": n })));
        assert!(history.repeats_call("b", &json!({}), &[]));
    }
}
