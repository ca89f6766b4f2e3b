//! `file_patch`: replaces a text in a file, exactly.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use writ_types::action::ActionKind;
use writ_types::digest::Digest;
use writ_types::encoding::decode_text;

use super::files::{NOT_REGULAR, file_path, target_error, write_draft};
use super::{describe_intent, edit};
use crate::arguments::{MAX_ARGUMENT_BYTES, invalid_arguments, parse_arguments};
use crate::def::{ActionDraft, AgentRole, OutputKind, PathState, ToolContext, ToolDef};
use crate::error::ToolError;
use crate::path::WorkPath;
use crate::schema::schema_of;
use crate::tools::edit::FileText;

/// The largest file after a patch, in bytes: as large as `file_write` can make one.
const MAX_RESULT_BYTES: usize = MAX_ARGUMENT_BYTES;

/// The most lines that are compared when a text is not found.
const MAX_COMPARED_LINES: usize = 5_000;

/// The longest line that is compared, in bytes.
const MAX_COMPARED_BYTES: usize = 200;

/// The most lines that are quoted when a text is not found.
const MAX_NEAREST: usize = 3;

/// The least similarity of a line that is quoted: more than half of it.
const MIN_LIKENESS: f32 = 0.6;

/// The most places named when a text is found more than once.
const MAX_PLACES: usize = 10;

pub(super) static FILE_PATCH: ToolDef = ToolDef {
    name: "file_patch",
    description: "Replaces text in a file of the work folder. The old text must match exactly, white space included, \
                  and be in the file once, unless all is true. Write line ends as \\n: the file keeps its own.",
    usage: r#"{"path": "src/lib.rs", "old": "a - b", "new": "a + b"}"#,
    sinks: &["path"],
    idempotent: true,
    output: OutputKind::Confirmation,
    actions: &[ActionKind::WriteFile],
    roles: &[AgentRole::Executor],
    schema: schema_of::<PatchArgs>,
    needs: needed_file,
    prepare: prepare_patch,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PatchArgs {
    /// File, relative to the work folder.
    path: String,
    /// The text to replace, without line numbers.
    old: String,
    /// The text to put in its place.
    new: String,
    /// Replace every occurrence.
    #[serde(default)]
    all: Option<bool>,
}

fn needed_file(arguments: &Value) -> Result<Option<WorkPath>, ToolError> {
    let args: PatchArgs = parse_arguments(&FILE_PATCH, arguments)?;
    patched_path(&args.path).map(Some)
}

/// A patch needs what the file holds, and what lies outside is not looked at.
fn patched_path(text: &str) -> Result<WorkPath, ToolError> {
    let path = file_path(&FILE_PATCH, text)?;
    if path.is_outside() {
        return Err(target_error(&FILE_PATCH, &path, "leads out of the work folder"));
    }
    Ok(path)
}

fn prepare_patch(
    arguments: &Value,
    peeked: Option<&PathState>,
    _: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: PatchArgs = parse_arguments(&FILE_PATCH, arguments)?;
    let path = patched_path(&args.path)?;
    // An empty text is found everywhere.
    if args.old.is_empty() {
        return Err(invalid_arguments(&FILE_PATCH, "'old' is empty; to write a whole file, use file_write"));
    }
    if args.old == args.new {
        return Err(invalid_arguments(&FILE_PATCH, "'old' and 'new' are the same"));
    }
    let (bytes, executable) = match peeked {
        None => return Err(ToolError::NotPeeked { tool: FILE_PATCH.name }),
        Some(PathState::File { bytes, executable }) => (bytes, *executable),
        Some(PathState::Missing) => return Err(target_error(&FILE_PATCH, &path, "does not exist")),
        Some(PathState::Large { .. }) => {
            return Err(target_error(&FILE_PATCH, &path, "is too large to be patched"));
        }
        Some(PathState::Folder) => return Err(target_error(&FILE_PATCH, &path, "is a folder")),
        Some(PathState::Other) => return Err(target_error(&FILE_PATCH, &path, NOT_REGULAR)),
    };
    let Some((text, encoding)) = decode_text(bytes) else {
        return Err(target_error(
            &FILE_PATCH,
            &path,
            "is not UTF-8 text, nor UTF-16 with a mark; file_read says what it is",
        ));
    };
    let content = FileText { text: apply_patch(&path, &text, &args)?, encoding };
    let after = content.to_bytes();
    let purpose = describe_intent("change", &format!("{path} (now {} bytes)", after.len()));
    Ok(write_draft(&path, (Some(Digest::of_bytes(bytes)), &after), content, executable, purpose))
}

/// The whole text with the old text replaced. Line ends count as equal, whichever way the call writes them.
fn apply_patch(path: &WorkPath, text: &str, args: &PatchArgs) -> Result<String, ToolError> {
    let edit = edit::find_places(text, &args.old, &args.new);
    let places = &edit.places;
    let all = args.all.unwrap_or(false);
    if places.is_empty() {
        return Err(no_match(path, text, &args.old));
    }
    // To change the first of several would be a guess; the model can name the place with more lines.
    if places.len() > 1 && !all {
        let lines = places.iter().take(MAX_PLACES).map(|place| line_number(text, place.start)).collect();
        return Err(ToolError::Ambiguous { path: path.as_str().to_owned(), count: places.len(), lines });
    }
    let mut result = String::with_capacity(text.len());
    let mut rest = 0;
    for place in places {
        result.push_str(text.get(rest..place.start).unwrap_or_default());
        result.push_str(&edit.text_for(text, place));
        rest = place.end;
        // Many short places can each grow by a long text, so the size is watched on the way.
        if result.len() > MAX_RESULT_BYTES {
            break;
        }
    }
    result.push_str(text.get(rest..).unwrap_or_default());
    if result.len() > MAX_RESULT_BYTES {
        return Err(ToolError::TooLarge {
            tool: FILE_PATCH.name,
            what: "the size of the file in bytes",
            limit: MAX_RESULT_BYTES,
        });
    }
    if result == text {
        return Err(invalid_arguments(
            &FILE_PATCH,
            "'old' and 'new' differ in line ends alone, and the file keeps its own",
        ));
    }
    Ok(result)
}

/// The number of the line that begins at or before a byte, counted from one.
fn line_number(text: &str, at: usize) -> u64 {
    let before = text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
    u64::try_from(before).unwrap_or(u64::MAX).saturating_add(1)
}

fn no_match(path: &WorkPath, text: &str, old: &str) -> ToolError {
    // Reported separately, since models often differ in white space only.
    let hint = if collapse_blanks(text).contains(&collapse_blanks(old)) {
        Some("it is there with other white space")
    } else {
        None
    };
    ToolError::NoMatch { path: path.as_str().to_owned(), hint, nearest: nearest_lines(text, old) }
}

fn collapse_blanks(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The lines that are most like the first line of `old` that says something.
fn nearest_lines(text: &str, old: &str) -> Vec<(u64, String)> {
    let Some(wanted) = old.lines().map(str::trim).find(|line| !line.is_empty()) else { return Vec::new() };
    if wanted.len() > MAX_COMPARED_BYTES {
        return Vec::new();
    }
    let lines: Vec<&str> = text
        .lines()
        .take(MAX_COMPARED_LINES)
        .map(|line| if line.len() > MAX_COMPARED_BYTES { "" } else { line.trim() })
        .collect();
    let close = similar::get_close_matches(wanted, &lines, MAX_NEAREST, MIN_LIKENESS);
    let numbered = (1..).zip(text.lines().zip(&lines));
    numbered
        .filter(|(_, (_, trimmed))| !trimmed.is_empty() && close.contains(*trimmed))
        .take(MAX_NEAREST)
        .map(|(number, (line, _))| (number, line.to_owned()))
        .collect()
}
