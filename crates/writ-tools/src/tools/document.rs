//! `docs_write`: a document for later sessions, beside those about Writ and those of the owner.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use writ_types::action::{Action, ActionKind, DOCUMENTS, MAX_DOCUMENT_BYTES, ModifySelf, is_document_name};
use writ_types::digest::Digest;

use super::describe_intent;
use crate::arguments::{invalid_arguments, no_nul, parse_arguments};
use crate::def::{ActionDraft, AgentRole, OutputKind, PathState, ToolContext, ToolDef, needs_nothing};
use crate::error::ToolError;
use crate::schema::schema_of;

/// The longest summary, and the longest text about when to read it, in bytes: each is one line of the index.
const MAX_LINE_BYTES: usize = 200;

pub(super) static DOCS_WRITE: ToolDef = ToolDef {
    name: "docs_write",
    description: "Writes a document of yours to $WRIT_DOCS.",
    usage: r##"{"name": "boat.md", "summary": "How the boat is built", "read_when": "working on it", "text": "# Boat"}"##,
    sinks: &[],
    idempotent: true,
    output: OutputKind::Confirmation,
    actions: &[ActionKind::ModifySelf],
    roles: &[AgentRole::Executor],
    schema: schema_of::<DocumentArgs>,
    needs: needs_nothing,
    prepare: prepare_document,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DocumentArgs {
    /// Like boat.md.
    name: String,
    /// A line.
    summary: String,
    /// A line.
    read_when: String,
    /// Markdown.
    text: String,
}

fn prepare_document(
    arguments: &Value,
    _: Option<&PathState>,
    context: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: DocumentArgs = parse_arguments(&DOCS_WRITE, arguments)?;
    let wrong = |problem: &str| invalid_arguments(&DOCS_WRITE, problem);
    if !is_document_name(&args.name) {
        return Err(wrong(
            "'name' is a file name such as boat.md: lower case, no folder, at most 64 characters, and not readme.md",
        ));
    }
    for (argument, line) in [("summary", &args.summary), ("read_when", &args.read_when)] {
        let is_line = !line.trim().is_empty() && !line.chars().any(char::is_control);
        if !is_line || line.len() > MAX_LINE_BYTES {
            return Err(wrong(&format!("'{argument}' is one line of at most {MAX_LINE_BYTES} bytes")));
        }
    }
    no_nul(&DOCS_WRITE, "text", &args.text)?;
    // A document is read in every session, also by models that are not cleared for secrets.
    if context.label.secret {
        return Err(wrong("this rests on text that is marked secret, which stands in no document"));
    }
    // The harness writes the front matter: the level is never the model's word.
    let content = format!(
        "---\nsummary: {}\nread_when: {}\nwritten_by: agent\nrests_on: {}\n---\n\n{}\n",
        quote_line(&args.summary),
        quote_line(&args.read_when),
        context.label.taint.as_str(),
        args.text.trim_end()
    );
    if content.len() > MAX_DOCUMENT_BYTES {
        return Err(ToolError::TooLarge {
            tool: DOCS_WRITE.name,
            what: "the size of the document in bytes",
            limit: MAX_DOCUMENT_BYTES,
        });
    }
    let purpose = describe_intent("write the document", &args.name);
    let modify = ModifySelf {
        path: format!("{DOCUMENTS}/{}", args.name),
        digest: Digest::of_bytes(content.as_bytes()),
        content: Some(content),
    };
    Ok(ActionDraft::new_draft(Action::ModifySelf(modify), purpose))
}

/// Returns a line as a double-quoted value of YAML.
fn quote_line(line: &str) -> String {
    format!("\"{}\"", line.trim().replace('\\', "\\\\").replace('"', "\\\""))
}
