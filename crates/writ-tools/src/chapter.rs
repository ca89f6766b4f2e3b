//! `chapter_open`: an agent of the autopilot says what it turns to. The harness itself notes it; only attempts are offered it.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use writ_types::chat::ToolSpec;

use crate::arguments::{check_arguments, invalid_arguments, parse_arguments};
use crate::def::{ActionDraft, AgentRole, OutputKind, PathState, ToolContext, ToolDef, needs_nothing};
use crate::error::ToolError;
use crate::schema::schema_of;
use crate::source::Tool as _;

/// The longest name, in characters.
pub const MAX_NAME_CHARS: usize = 80;

static CHAPTER_OPEN: ToolDef = ToolDef {
    name: "chapter_open",
    description: "Opens a chapter of your work: call it when you turn to another intent, such as finding a cause after writing code.",
    usage: r#"{"name": "find out why the test fails"}"#,
    sinks: &[],
    idempotent: false,
    output: OutputKind::Confirmation,
    // No action follows from it.
    actions: &[],
    roles: &[AgentRole::Executor],
    schema: schema_of::<ChapterArgs>,
    needs: needs_nothing,
    prepare: refuse_action,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ChapterArgs {
    /// What it is about, in a few words.
    name: String,
}

/// Returns the description of the tool for models.
pub fn chapter_tool() -> ToolSpec {
    (&CHAPTER_OPEN).spec(CHAPTER_OPEN.name)
}

/// Reads the name of the chapter that a call opens; none if its tool is another one.
///
/// # Errors
///
/// Everything that is wrong with its arguments.
pub fn read_chapter(tool: &str, arguments: &Value) -> Result<Option<String>, ToolError> {
    if tool != CHAPTER_OPEN.name {
        return Ok(None);
    }
    let args: ChapterArgs = parse_arguments(&CHAPTER_OPEN, &check_arguments(&CHAPTER_OPEN, arguments)?)?;
    let name = args.name.trim();
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || name.chars().any(char::is_control) {
        let problem = format!("'name' is one line of 1 to {MAX_NAME_CHARS} characters");
        return Err(invalid_arguments(&CHAPTER_OPEN, &problem));
    }
    Ok(Some(name.to_owned()))
}

/// The harness notes it itself: there is no action to prepare.
fn refuse_action(_: &Value, _: Option<&PathState>, _: &ToolContext<'_>) -> Result<ActionDraft, ToolError> {
    Err(invalid_arguments(&CHAPTER_OPEN, "it is answered within a turn only"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_read_and_bounded() {
        let read = |arguments: Value| read_chapter("chapter_open", &arguments);
        assert_eq!(read(json!({"name": " find it "})).expect("reads"), Some("find it".to_owned()));
        assert_eq!(read_chapter("file_read", &json!({})).expect("another tool"), None);
        for wrong in [
            json!({}),
            json!({"name": ""}),
            json!({"name": " \n"}),
            json!({"name": "two\nlines"}),
            json!({"name": "x".repeat(MAX_NAME_CHARS + 1)}),
            json!({"name": 7}),
            json!({"name": "a", "more": 1}),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
        let spec = chapter_tool();
        assert_eq!(spec.name, "chapter_open");
        assert!(read_chapter(&spec.name, &serde_json::from_str(CHAPTER_OPEN.usage).expect("JSON")).is_ok());
    }
}
