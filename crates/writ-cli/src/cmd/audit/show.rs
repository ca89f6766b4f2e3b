//! `writ audit show`: an entry in full. What is sealed in it is opened with the home's key of contents.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use writ_inspect::show::{escape_line, escape_text};
use writ_secrets::contents::{ContentKey, SEALED_PROMPT, SEALED_REPLY};
use writ_store::ledger::row::LedgerRow;
use writ_types::chat::{ModelReply, ModelRequest, Part, Role, ToolCall, ToolOutcome};
use writ_types::entry::SealedText;
use writ_types::error::Exit;
use writ_types::id::EntrySeq;
use writ_types::unit::Tokens;

use super::no_entry;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::keyring::open_secrets;
use crate::ledger::open_to_read;

/// The places of sealed contents in a payload, as JSON Pointers (RFC 6901).
const PROMPT_PLACE: &str = "/requester/sealed_prompt";
const REPLY_PLACE: &str = "/sealed_reply";

/// The prompt of a call, as it was sealed.
#[derive(Serialize, Deserialize)]
struct ShownPrompt {
    sent: ModelRequest,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    withheld: BTreeMap<usize, String>,
    /// The estimated tokens of the whole prompt, where a refusal has its beginning alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    whole: Option<Tokens>,
}

/// An entry with what was sealed in it.
#[derive(Serialize)]
struct ShownEntry<'a> {
    entry: &'a LedgerRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<ShownPrompt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<ModelReply>,
}

/// Shows an entry.
pub(super) fn show_entry(context: &Context, config: &Config, entry: EntrySeq) -> Result<(), Failure> {
    let store = open_to_read(context, config)?;
    let row = store.blocking().ledger_row(entry)?;
    let row = row.map_or_else(|| Err(no_entry(entry, store.blocking().ledger_size()?)), Ok)?;
    let sealed = |place| row.payload.as_ref()?.pointer(place).and_then(Value::as_str);
    let (prompt, reply) = (sealed(PROMPT_PLACE), sealed(REPLY_PLACE));
    // A passphrase costs a person's time and half a second: without a need it is not asked for.
    let key = match (prompt, reply) {
        (None, None) => None,
        _ => Some(content_key(context, config, entry)?),
    };
    let shown = ShownEntry {
        entry: &row,
        prompt: open_as(key.as_ref(), SEALED_PROMPT, prompt, entry)?,
        reply: open_as(key.as_ref(), SEALED_REPLY, reply, entry)?,
    };
    context.out.print_either(&shown, |shown| {
        let mut lines = entry_lines(shown.entry);
        if let Some(prompt) = &shown.prompt {
            lines.extend(prompt_lines(prompt));
        }
        if let Some(reply) = &shown.reply {
            lines.extend(reply_lines(reply));
        }
        lines
    })
}

fn content_key(context: &Context, config: &Config, entry: EntrySeq) -> Result<ContentKey, Failure> {
    open_secrets(context, config)?.find_content_key()?.ok_or_else(|| {
        let text = format!("the content of entry {entry} is sealed, and this home has no key for it");
        sealed_failure(text)
    })
}

fn open_as<T: for<'a> Deserialize<'a>>(
    key: Option<&ContentKey>,
    place: &str,
    sealed: Option<&str>,
    entry: EntrySeq,
) -> Result<Option<T>, Failure> {
    let (Some(key), Some(sealed)) = (key, sealed) else { return Ok(None) };
    let failed = |why: &dyn std::fmt::Display| {
        sealed_failure(format!("the content of entry {entry} cannot be opened: {why}"))
    };
    // An entry that verifies holds what was sealed, so a seal that does not open has another key.
    let plain = key.open_content(place, &SealedText(sealed.to_owned())).map_err(|error| failed(&error))?;
    serde_json::from_slice(&plain).map(Some).map_err(|error| failed(&error))
}

fn sealed_failure(text: String) -> Failure {
    let hint = "it opens on the machine, and with the keys folder, where it was written; the entry itself verifies without a key";
    Failure::new(Exit::Config, "ledger.sealed", text, hint)
}

fn entry_lines(row: &LedgerRow) -> Vec<String> {
    let mark = if row.intact { "" } else { "  NOT INTACT" };
    let head = format!("entry {}  {}  {}{mark}", row.seq, row.at, row.event);
    // Erased on purpose, which is no damage: the entry verifies without its payload.
    let Some(mut payload) = row.payload.clone() else { return vec![head, "(erased)".to_owned()] };
    // Megabytes of base 64 would bury the rest.
    for place in [PROMPT_PLACE, REPLY_PLACE] {
        if let Some(sealed) = payload.pointer_mut(place) {
            *sealed = Value::from("(below)");
        }
    }
    vec![head, escape_text(&format!("{payload:#}"))]
}

fn prompt_lines(prompt: &ShownPrompt) -> Vec<String> {
    let sent = &prompt.sent;
    let mut lines = vec![format!("--- prompt: at most {} of answer", sent.max_output_tokens)];
    if let Some(whole) = &prompt.whole {
        lines.push(format!("--- refused: the beginning of the newest message, of about {whole}"));
    }
    if !sent.system.is_empty() {
        lines.extend(["--- system".to_owned(), escape_text(&sent.system)]);
    }
    for message in &sent.messages {
        for part in &message.parts {
            lines.extend(part_lines(message.role, part));
        }
    }
    // Names and descriptions come from servers, so each stays within its line.
    for tool in sent.tools.iter() {
        lines.push(format!("--- tool {}: {}", escape_line(&tool.name), escape_line(&tool.description)));
        lines.push(escape_line(&tool.schema.to_string()));
    }
    // Below the prompt, since in its text a mark stands for each value, as the model has read it.
    let mark = |(number, value): (&usize, &String)| format!("--- withheld {number}: {}", escape_line(value));
    lines.extend(prompt.withheld.iter().map(mark));
    lines
}

fn part_lines(role: Role, part: &Part) -> Vec<String> {
    let role = match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    // Texts are escaped: a prompt may hold what an attacker wrote to deceive a terminal.
    match part {
        Part::Text { text } => vec![format!("--- {role}"), escape_text(text)],
        Part::Call(call) => call_lines(call),
        Part::Result(result) => {
            let failed = if result.outcome == ToolOutcome::Failed { " (failed)" } else { "" };
            vec![format!("--- result of {}{failed}", escape_line(&result.call_id)), escape_text(&result.text)]
        }
        Part::Reasoning(_) => vec![format!("--- {role}: reasoning, in its provider's form")],
        Part::File(attached) => vec![format!("--- {role}: {}", escape_line(&attached.file.to_line()))],
    }
}

fn call_lines(call: &ToolCall) -> Vec<String> {
    let head = format!("--- call {} of {}", escape_line(&call.id), escape_line(&call.name));
    vec![head, escape_line(&call.arguments.to_string())]
}

fn reply_lines(reply: &ModelReply) -> Vec<String> {
    let usage = &reply.usage;
    let mut lines = vec![format!(
        "--- answer of {}: {} read, {} written",
        escape_line(&reply.model),
        usage.input,
        usage.output
    )];
    if !reply.text.is_empty() {
        lines.push(escape_text(&reply.text));
    }
    lines.extend(reply.calls.iter().flat_map(call_lines));
    lines
}
