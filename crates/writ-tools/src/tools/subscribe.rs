//! `context_subscribe` and `context_unsubscribe`: files and URLs that stay in the context, as they are at each turn.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use writ_inspect::egress::host::Target;
use writ_policy::door::MAX_SUBSCRIBED_TURNS;
use writ_types::action::{Action, ActionKind, Subscribe};

use super::describe_intent;
use crate::arguments::{invalid_arguments, no_nul, parse_arguments};
use crate::def::{ActionDraft, AgentRole, OutputKind, PathState, ToolContext, ToolDef, needs_nothing};
use crate::error::ToolError;
use crate::path::WorkPath;
use crate::schema::schema_of;

/// The turns that a subscription lasts when the model gives no number.
const DEFAULT_TURNS: u64 = 10;
/// The longest id of a subscription, in bytes.
const MAX_ID_BYTES: usize = 64;

pub(super) static CONTEXT_SUBSCRIBE: ToolDef = ToolDef {
    name: "context_subscribe",
    description: "Keeps a file of the work folder, some of its lines, or a URL in the context: each next turn begins with what \
                  it says then.",
    usage: r#"{"path": "src/lib.rs", "first_line": 10, "last_line": 20, "turns": 5}"#,
    sinks: &["path", "url"],
    idempotent: true,
    output: OutputKind::Confirmation,
    actions: &[ActionKind::Subscribe],
    roles: &[AgentRole::Proxy],
    schema: schema_of::<SubscribeArgs>,
    needs: needs_nothing,
    prepare: prepare_subscribe,
};

pub(super) static CONTEXT_UNSUBSCRIBE: ToolDef = ToolDef {
    name: "context_unsubscribe",
    description: "Ends a subscription.",
    usage: r#"{"id": "s1"}"#,
    sinks: &[],
    idempotent: true,
    output: OutputKind::Confirmation,
    actions: &[ActionKind::Subscribe],
    roles: &[AgentRole::Proxy],
    schema: schema_of::<UnsubscribeArgs>,
    needs: needs_nothing,
    prepare: prepare_unsubscribe,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SubscribeArgs {
    /// A file, relative to the work folder. Give this or url.
    path: Option<String>,
    /// An http or https URL.
    url: Option<String>,
    /// First line of the file, counted from 1.
    first_line: Option<u64>,
    /// Last line of the file.
    last_line: Option<u64>,
    /// For how many turns, 10 if not given.
    turns: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UnsubscribeArgs {
    /// The subscription's id.
    id: String,
}

fn prepare_subscribe(
    arguments: &Value,
    _: Option<&PathState>,
    _: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: SubscribeArgs = parse_arguments(&CONTEXT_SUBSCRIBE, arguments)?;
    let wrong = |problem: &str| invalid_arguments(&CONTEXT_SUBSCRIBE, problem);
    let turns = args.turns.unwrap_or(DEFAULT_TURNS);
    if !(1..=MAX_SUBSCRIBED_TURNS).contains(&turns) {
        return Err(wrong(&format!("'turns' must be from 1 to {MAX_SUBSCRIBED_TURNS}")));
    }
    let lines = match (args.first_line, args.last_line) {
        (None, None) => None,
        (Some(first), Some(last)) if first >= 1 && last >= first => Some((first, last)),
        (_, _) => return Err(wrong("give both 'first_line' and 'last_line', counted from 1")),
    };
    let (argument, target) = match (args.path, args.url) {
        (Some(path), None) => ("path", file_path(&path)?),
        (None, Some(_)) if lines.is_some() => return Err(wrong("a URL has no lines")),
        (None, Some(url)) => {
            no_nul(&CONTEXT_SUBSCRIBE, "url", &url)?;
            Target::from_url(&url).map_err(|problem| wrong(&format!("'url': {problem}")))?;
            if !(url.starts_with("http://") || url.starts_with("https://")) {
                return Err(wrong("'url' begins with http:// or https://"));
            }
            ("url", url)
        }
        (None, None) | (Some(_), Some(_)) => return Err(wrong("give either 'path' or 'url'")),
    };
    let purpose = describe_intent("keep in the context:", &target);
    let action = Action::Subscribe(Subscribe { target: target.clone(), lines, turns, stop: false });
    Ok(ActionDraft::new_draft(action, purpose).with_sink(argument, target))
}

/// A path that can name a file of the work folder, and is no URL.
fn file_path(text: &str) -> Result<String, ToolError> {
    let wrong = |problem: &str| invalid_arguments(&CONTEXT_SUBSCRIBE, &format!("'path' {problem}"));
    let path = WorkPath::parse_path(text).map_err(|problem| wrong(&problem.to_string()))?;
    if path.is_root() || text.ends_with('/') {
        return Err(wrong("names a folder, not a file"));
    }
    if path.is_outside() {
        return Err(wrong("leads out of the work folder"));
    }
    Ok(path.as_str().to_owned())
}

fn prepare_unsubscribe(
    arguments: &Value,
    _: Option<&PathState>,
    _: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let UnsubscribeArgs { id } = parse_arguments(&CONTEXT_UNSUBSCRIBE, arguments)?;
    // Ids are made by the harness: another form was never given out.
    let named = !id.is_empty() && id.len() <= MAX_ID_BYTES && id.bytes().all(|b| b.is_ascii_alphanumeric());
    if !named {
        return Err(invalid_arguments(
            &CONTEXT_UNSUBSCRIBE,
            "'id' is the id that context_subscribe returned",
        ));
    }
    let purpose = describe_intent("end the subscription", &id);
    let action = Action::Subscribe(Subscribe { target: id, lines: None, turns: 0, stop: true });
    Ok(ActionDraft::new_draft(action, purpose))
}
