//! The tools that every agent has.

use crate::def::ToolDef;

mod edit;

mod exec;

mod files;

mod memory;

mod patch;

pub(crate) mod plan;

mod search;

mod send;

mod subscribe;

mod tell;

mod web;

mod web_search;

/// Every tool that needs no configuration, sorted by name.
pub(crate) static CORE: [&ToolDef; 15] = [
    &subscribe::CONTEXT_SUBSCRIBE,
    &subscribe::CONTEXT_UNSUBSCRIBE,
    &patch::FILE_PATCH,
    &files::FILE_READ,
    &files::FILE_WRITE,
    &memory::MEMORY_SEARCH,
    &memory::MEMORY_STORE,
    &plan::PLAN_PROPOSE,
    &exec::PYTHON_EXEC,
    &search::SEARCH,
    &send::SEND_FILE,
    &exec::SHELL_EXEC,
    &tell::TELL_USER,
    &web::WEB_FETCH,
    &web::WEB_REQUEST,
];

/// Tools that are there only where what they need is configured, sorted by name.
pub(crate) static OPTIONAL: [&ToolDef; 1] = [&web_search::WEB_SEARCH];

/// The longest statement of what a call is for, in characters.
const MAX_INTENT_CHARS: usize = 120;

/// Returns the purpose of a call, as one visible line.
fn describe_intent(verb: &str, what: &str) -> String {
    format!("{verb} {}", crate::text::one_line(what, MAX_INTENT_CHARS))
}
