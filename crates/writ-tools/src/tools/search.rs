//! `search`: lines that match a regular expression.

use globset::Glob;
use grep_regex::RegexMatcherBuilder;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use writ_types::action::{Action, ActionKind, ReadFile, ReadMode};

use super::describe_intent;
use super::files::work_path;
use crate::arguments::{invalid_arguments, no_nul, parse_arguments};
use crate::def::{ActionDraft, AgentRole, OutputKind, PathState, ToolContext, ToolDef, needs_nothing};
use crate::error::ToolError;
use crate::schema::schema_of;
use crate::text::one_line;

/// The longest pattern or glob, in bytes.
const MAX_PATTERN_BYTES: usize = 4_096;

/// The most memory that a compiled pattern may take, in bytes: a tenth of ripgrep's own limit.
const MAX_PATTERN_MEMORY: usize = 10 * 1024 * 1024;

/// The number of matches when the model names none.
const DEFAULT_MATCHES: u64 = 100;

/// The most matches.
const MAX_MATCHES: u64 = 500;

/// The longest message of the expression's parser that is repeated, in characters.
const MAX_PARSER_CHARS: usize = 300;

pub(super) static SEARCH: ToolDef = ToolDef {
    name: "search",
    description: "Finds lines that match a regular expression (Rust syntax) in the files of the work folder. \
                  Files that git ignores are left out.",
    usage: r#"{"pattern": "fn main", "glob": "*.rs", "path": "src"}"#,
    sinks: &["path"],
    idempotent: true,
    output: OutputKind::FileContent,
    actions: &[ActionKind::ReadFile],
    roles: &[AgentRole::Proxy, AgentRole::Planner, AgentRole::Executor],
    schema: schema_of::<FileSearchArgs>,
    needs: needs_nothing,
    prepare: prepare_search,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FileSearchArgs {
    /// The regular expression.
    pattern: String,
    /// Folder or file to search, relative to the work folder; all of it if not given.
    path: Option<String>,
    /// Only files whose name matches this glob.
    glob: Option<String>,
    /// The most matches returned, 100 if not given.
    max_matches: Option<u64>,
}

fn prepare_search(
    arguments: &Value,
    _: Option<&PathState>,
    _: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: FileSearchArgs = parse_arguments(&SEARCH, arguments)?;
    let path = work_path(&SEARCH, args.path.as_deref().unwrap_or_default())?;
    let glob = args.glob.unwrap_or_default();
    check_pattern(&args.pattern)?;
    check_glob(&glob)?;
    let max_matches = args.max_matches.unwrap_or(DEFAULT_MATCHES);
    // Refused, not cut to the bound: the model would take the matches for all that there are.
    if !(1..=MAX_MATCHES).contains(&max_matches) {
        return Err(invalid_arguments(&SEARCH, &format!("'max_matches' must be from 1 to {MAX_MATCHES}")));
    }
    let purpose = describe_intent("search", &format!("{path} for {}", args.pattern));
    let mode = ReadMode::Search { pattern: args.pattern, glob, max_matches };
    let action = Action::ReadFile(ReadFile { path: path.as_str().to_owned(), mode });
    Ok(ActionDraft::new_draft(action, purpose).with_sink("path", path.as_str()))
}

fn check_pattern(pattern: &str) -> Result<(), ToolError> {
    no_nul(&SEARCH, "pattern", pattern)?;
    if pattern.is_empty() {
        return Err(invalid_arguments(&SEARCH, "'pattern' is empty"));
    }
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(too_long("the size of 'pattern' in bytes"));
    }
    // A mistake in the pattern is found before the call is decided, and not only in the sandbox.
    RegexMatcherBuilder::new()
        .size_limit(MAX_PATTERN_MEMORY)
        .line_terminator(Some(b'\n'))
        .build(pattern)
        .map_err(|error| {
            let problem = one_line(&error.to_string(), MAX_PARSER_CHARS);
            invalid_arguments(
                &SEARCH,
                &format!(
                    "'pattern' is not a regular expression that can be searched line by line: {problem}"
                ),
            )
        })?;
    Ok(())
}

fn check_glob(glob: &str) -> Result<(), ToolError> {
    no_nul(&SEARCH, "glob", glob)?;
    if glob.len() > MAX_PATTERN_BYTES {
        return Err(too_long("the size of 'glob' in bytes"));
    }
    Glob::new(glob).map_err(|error| {
        let problem = one_line(&error.to_string(), MAX_PARSER_CHARS);
        invalid_arguments(&SEARCH, &format!("'glob' is not a glob: {problem}"))
    })?;
    Ok(())
}

fn too_long(what: &'static str) -> ToolError {
    ToolError::TooLarge { tool: SEARCH.name, what, limit: MAX_PATTERN_BYTES }
}
