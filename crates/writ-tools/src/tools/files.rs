//! `file_read` and `file_write`.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use writ_types::action::{Action, ActionKind, ChangeKind, FileChange, Place, ReadFile, ReadMode, WriteFile};
use writ_types::digest::Digest;
use writ_types::encoding::decode_text;

use super::{describe_intent, edit};
use crate::arguments::{invalid_arguments, parse_arguments};
use crate::def::{ActionDraft, AgentRole, OutputKind, PathState, ToolContext, ToolDef, needs_nothing};
use crate::error::ToolError;
use crate::path::{WORK_ROOT, WorkPath};
use crate::schema::schema_of;
use crate::tools::edit::FileText;

/// The number of lines read when the model names none.
const DEFAULT_LINES: u64 = 400;

/// The most lines read at once.
const MAX_LINES: u64 = 2_000;

pub(super) static FILE_READ: ToolDef = ToolDef {
    name: "file_read",
    description: "Reads a text file of the work folder, with line numbers. A path that ends with '/' lists that folder.",
    usage: r#"{"path": "src/lib.rs", "first_line": 1, "lines": 200}"#,
    sinks: &["path"],
    idempotent: true,
    output: OutputKind::FileContent,
    actions: &[ActionKind::ReadFile],
    roles: &[AgentRole::Proxy, AgentRole::Planner, AgentRole::Executor],
    schema: schema_of::<ReadArgs>,
    needs: needs_nothing,
    prepare: prepare_read,
};

pub(super) static FILE_WRITE: ToolDef = ToolDef {
    name: "file_write",
    description: "Writes a whole text file of the work folder, making its folders if needed. \
                  To change a part of a file, use file_patch. A file that is there keeps its encoding, byte order \
                  mark, line ends and last line end; text with \\r\\n in it is written as it stands.",
    usage: r#"{"path": "src/lib.rs", "content": "..."}"#,
    sinks: &["path"],
    idempotent: true,
    output: OutputKind::Confirmation,
    actions: &[ActionKind::WriteFile],
    roles: &[AgentRole::Executor],
    schema: schema_of::<WriteArgs>,
    needs: needs_write,
    prepare: prepare_write,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadArgs {
    /// File, relative to the work folder.
    path: String,
    /// First line, counted from 1.
    first_line: Option<u64>,
    /// Number of lines, 400 if not given.
    lines: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteArgs {
    /// File, relative to the work folder.
    path: String,
    /// The whole new text.
    content: String,
    /// Whether the file is executable; as before if not given.
    executable: Option<bool>,
}

fn prepare_read(
    arguments: &Value,
    _: Option<&PathState>,
    _: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: ReadArgs = parse_arguments(&FILE_READ, arguments)?;
    let path = work_path(&FILE_READ, &args.path)?;
    let first_line = args.first_line.unwrap_or(1);
    let lines = args.lines.unwrap_or(DEFAULT_LINES);
    if first_line == 0 {
        return Err(invalid_arguments(&FILE_READ, "'first_line' counts from 1"));
    }
    if !(1..=MAX_LINES).contains(&lines) {
        return Err(invalid_arguments(&FILE_READ, &format!("'lines' must be from 1 to {MAX_LINES}")));
    }
    let list = path.is_root() || args.path.ends_with('/');
    let mode = if list { ReadMode::List } else { ReadMode::Text { first_line, lines } };
    let purpose = describe_intent(if list { "list" } else { "read" }, &path.to_string());
    let action = Action::ReadFile(ReadFile { path: path.as_str().to_owned(), mode });
    Ok(ActionDraft::new_draft(action, purpose).with_sink("path", path.as_str()))
}

fn needs_write(arguments: &Value) -> Result<Option<WorkPath>, ToolError> {
    let args: WriteArgs = parse_arguments(&FILE_WRITE, arguments)?;
    let path = file_path(&FILE_WRITE, &args.path)?;
    // A path outside the work folder is not looked at.
    Ok(Some(path).filter(|path| !path.is_outside()))
}

fn prepare_write(
    arguments: &Value,
    peeked: Option<&PathState>,
    _: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: WriteArgs = parse_arguments(&FILE_WRITE, arguments)?;
    let path = file_path(&FILE_WRITE, &args.path)?;
    let (before, was_executable, content) = match peeked {
        None if !path.is_outside() => return Err(ToolError::NotPeeked { tool: FILE_WRITE.name }),
        None | Some(PathState::Missing) => (None, false, args.content.into()),
        Some(PathState::File { bytes, executable }) => {
            let content = match decode_text(bytes) {
                Some((text, encoding)) => edit::rewrite_text(&text, encoding, &args.content),
                // A file that is no text is replaced as a whole.
                None => replace_text(&path, bytes, args.content)?,
            };
            (Some(Digest::of_bytes(bytes)), *executable, content)
        }
        Some(PathState::Large { digest, executable, form, .. }) => {
            (Some(*digest), *executable, edit::rewrite_large(*form, &args.content))
        }
        Some(PathState::Folder) => return Err(target_error(&FILE_WRITE, &path, "is a folder")),
        Some(PathState::Other) => return Err(target_error(&FILE_WRITE, &path, NOT_REGULAR)),
    };
    let executable = args.executable.unwrap_or(was_executable);
    let bytes = content.to_bytes();
    let purpose = describe_intent("write", &format!("{path} ({} bytes)", bytes.len()));
    Ok(write_draft(&path, (before, &bytes), content, executable, purpose))
}

/// Text in the place of a file that is no UTF-8 or UTF-16 text. A file in an older encoding would change its encoding with
/// the first character beyond ASCII, so that is refused; other bytes are replaced as a whole.
fn replace_text(path: &WorkPath, bytes: &[u8], content: String) -> Result<FileText, ToolError> {
    let is_text = !bytes.contains(&0);
    // Writing non-ASCII text as UTF-8 would change the encoding of the whole file.
    if is_text && !content.is_ascii() {
        return Err(target_error(
            &FILE_WRITE,
            path,
            "is text in another encoding than UTF-8 or UTF-16, which this would change; convert it with a program \
             first (iconv), or write it with one",
        ));
    }
    Ok(content.into())
}

/// The message about links, devices and the like.
pub(super) const NOT_REGULAR: &str = "is a link or a special file, or leads through one";

/// A write of one file in the overlay.
pub(super) fn write_draft(
    path: &WorkPath,
    (before, bytes): (Option<Digest>, &[u8]),
    content: FileText,
    executable: bool,
    purpose: String,
) -> ActionDraft {
    let change = FileChange {
        path: path.as_str().to_owned(),
        kind: if before.is_some() { ChangeKind::Modify } else { ChangeKind::Create },
        before,
        after: Some(Digest::of_bytes(bytes)),
        executable,
        bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
    };
    let write = WriteFile {
        place: Place::Overlay,
        root: WORK_ROOT.to_owned(),
        changes: vec![change],
        content: Some(content.text),
        encoding: content.encoding,
    };
    ActionDraft::new_draft(Action::WriteFile(write), purpose).with_sink("path", path.as_str())
}

/// A path of the work folder.
pub(super) fn work_path(tool: &'static ToolDef, text: &str) -> Result<WorkPath, ToolError> {
    WorkPath::parse_path(text).map_err(|problem| invalid_arguments(tool, &format!("'path' {problem}")))
}

/// A path that can name a file.
pub(super) fn file_path(tool: &'static ToolDef, text: &str) -> Result<WorkPath, ToolError> {
    let path = work_path(tool, text)?;
    if path.is_root() || text.ends_with('/') {
        return Err(invalid_arguments(tool, "'path' names a folder, not a file"));
    }
    Ok(path)
}

/// The file is not one that the tool can work on.
pub(super) fn target_error(tool: &'static ToolDef, path: &WorkPath, reason: &'static str) -> ToolError {
    ToolError::Target { tool: tool.name, path: path.as_str().to_owned(), reason }
}
