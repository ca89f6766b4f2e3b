//! Replays a conversation: calls that were made are answered from it, others are made now.

use serde_json::{Value, json};
use writ_types::chat::Role;

use super::NOT_FIXED;
use super::text::{NumberedLines, first_line};
use crate::model_server::{ParsedCall, ParsedRequest, Reply};

/// The beginning of results that the harness marks as data.
const MARKED: &str = "\u{27e6}external data from ";

/// Their end.
const MARK_END: &str = "\n\u{27e6}end of external data\u{27e7}";

/// The reason for a script to pause now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Halt {
    /// It needs a tool's result.
    Call { say: String, name: &'static str, arguments: Value },
    /// It cannot go on.
    Stop(String),
}

impl Halt {
    pub(crate) fn stop(why: impl Into<String>) -> Self {
        Self::Stop(why.into())
    }
}

/// The calls since the user's last words, with their results.
#[derive(Debug)]
pub(crate) struct Replay<'a> {
    done: std::vec::IntoIter<(&'a ParsedCall, String)>,
}

/// Runs a script over a request. Its text closes the turn.
pub(crate) fn reply(
    request: &ParsedRequest,
    tools: &[&str],
    script: impl FnOnce(&mut Replay<'_>) -> Result<String, Halt>,
) -> Reply {
    if let Some(missing) = tools.iter().find(|tool| !request.offers_tool(tool)) {
        return Reply::text(&format!("{NOT_FIXED} the tool {missing} is not offered."));
    }
    match script(&mut Replay::new(request)) {
        Ok(closing) => Reply::text(&closing),
        Err(Halt::Call { say, name, arguments }) => Reply::text(&say).and_call(name, arguments),
        Err(Halt::Stop(why)) => Reply::text(&format!("{NOT_FIXED} {why}")),
    }
}

impl<'a> Replay<'a> {
    pub(crate) fn new(request: &'a ParsedRequest) -> Self {
        let said = request.messages.iter().rposition(|m| m.role == Role::User && !m.text.is_empty());
        let since = request.messages.get(said.unwrap_or(0)..).unwrap_or_default();
        let results = || since.iter().flat_map(|message| &message.results);
        let calls = since.iter().flat_map(|message| &message.calls);
        let done = calls.map_while(|call| {
            let result = results().find(|result| result.call_id == call.id)?;
            Some((call, unmarked(&result.text).to_owned()))
        });
        Self { done: done.collect::<Vec<_>>().into_iter() }
    }

    /// The result of a call: from the conversation, or by halting for it.
    pub(crate) fn call(&mut self, say: &str, name: &'static str, arguments: &Value) -> Result<String, Halt> {
        match self.done.next() {
            None => Err(Halt::Call { say: say.to_owned(), name, arguments: arguments.clone() }),
            Some((call, text)) if call.name == name && call.arguments == *arguments => Ok(text),
            Some((call, _)) => Err(Halt::stop(format!(
                "the conversation has a call of {} where I would have called {name}.",
                call.name
            ))),
        }
    }

    /// Reads a file as numbered lines.
    pub(crate) fn read(&mut self, path: &str) -> Result<NumberedLines, Halt> {
        let shown = self.call(&format!("I read {path}."), "file_read", &json!({"path": path}))?;
        NumberedLines::parse(&shown)
            .ok_or_else(|| Halt::stop(format!("{path} could not be read: {}", first_line(&shown))))
    }
}

/// A result without the marks of external data.
fn unmarked(text: &str) -> &str {
    if !text.starts_with(MARKED) {
        return text;
    }
    let inside = text.split_once('\n').map_or("", |(_, rest)| rest);
    inside.strip_suffix(MARK_END).unwrap_or(inside)
}
