//! The web: `web_fetch` reads from a URL, `web_request` sends something to one.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use writ_inspect::egress::host::Target;
use writ_types::action::{Action, ActionKind, Fetch};

use super::describe_intent;
use crate::arguments::{invalid_arguments, no_nul, parse_arguments};
use crate::def::{ActionDraft, AgentRole, OutputKind, PathState, ToolContext, ToolDef, needs_nothing};
use crate::error::ToolError;
use crate::path::WorkPath;
use crate::schema::schema_of;

/// The methods of `web_request`, which change something at the host; `web_fetch` reads.
const METHODS: [&str; 4] = ["DELETE", "PATCH", "POST", "PUT"];
/// The media types that carry no information of the model's; any other is judged as a text like the body.
const USUAL_MEDIA: [&str; 8] = [
    "application/json",
    "application/json; charset=utf-8",
    "application/x-www-form-urlencoded",
    "application/xml",
    "text/csv",
    "text/plain",
    "text/plain; charset=utf-8",
    "text/xml",
];
/// The longest media type, in bytes.
const MAX_MEDIA_BYTES: usize = 256;

pub(super) static WEB_FETCH: ToolDef = ToolDef {
    name: "web_fetch",
    description: "Reads a URL (GET) and returns its text, or saves it unread with \"save_to\". A URL that the user wrote \
                  or a search gave passes; others may have to be approved.",
    usage: r#"{"url": "https://example.org/page"}"#,
    sinks: &["url"],
    idempotent: true,
    output: OutputKind::WebContent,
    actions: &[ActionKind::Fetch],
    roles: &[AgentRole::Proxy, AgentRole::Executor],
    schema: schema_of::<FetchArgs>,
    needs: needs_nothing,
    prepare: prepare_fetch,
};

pub(super) static WEB_REQUEST: ToolDef = ToolDef {
    name: "web_request",
    description: "Sends something to a URL and returns the text of the answer. Unless the user listed the host, \
                  a person must approve it.",
    usage: r#"{"method": "POST", "url": "https://example.org/api", "body": "{}", "content_type": "application/json"}"#,
    sinks: &["method", "url", "body", "content_type"],
    idempotent: false,
    output: OutputKind::WebContent,
    actions: &[ActionKind::Fetch],
    roles: &[AgentRole::Executor],
    schema: schema_of::<RequestArgs>,
    needs: needs_nothing,
    prepare: prepare_request,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FetchArgs {
    /// An http or https URL.
    url: String,
    /// A file of the work folder to save the answer to, unread.
    save_to: Option<String>,
    /// Save more than 50 MiB; asks.
    large: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RequestArgs {
    /// DELETE, PATCH, POST or PUT.
    method: String,
    /// An http or https URL.
    url: String,
    /// The body, as text.
    body: Option<String>,
    /// The body's media type.
    content_type: Option<String>,
}

fn prepare_fetch(
    arguments: &Value,
    _: Option<&PathState>,
    _: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: FetchArgs = parse_arguments(&WEB_FETCH, arguments)?;
    check_url(&WEB_FETCH, &args.url)?;
    let path = args.save_to.as_deref().map(save_path).transpose()?;
    let (purpose, url) = (describe_intent("read", &args.url), args.url.clone());
    // The file is not a sink: what is saved in the overlay does not leave the machine.
    let save_to = path.map(|path| path.as_str().to_owned());
    let large = args.large.unwrap_or(false);
    if large && save_to.is_none() {
        return Err(invalid_arguments(&WEB_FETCH, "'large' is for 'save_to'"));
    }
    let method = "GET".to_owned();
    let fetch = Fetch { method, url: args.url, body: None, content_type: None, save_to, large };
    Ok(ActionDraft::new_draft(Action::Fetch(fetch), purpose).with_sink("url", url))
}

/// Reads a path that can name a file of the work folder.
fn save_path(text: &str) -> Result<WorkPath, ToolError> {
    let wrong = |problem: &str| invalid_arguments(&WEB_FETCH, &format!("'save_to' {problem}"));
    let path = WorkPath::parse_path(text).map_err(|problem| wrong(&problem.to_string()))?;
    if path.is_root() || text.ends_with('/') {
        return Err(wrong("names a folder, not a file"));
    }
    if path.is_outside() { Err(wrong("leads out of the work folder")) } else { Ok(path) }
}

fn prepare_request(
    arguments: &Value,
    _: Option<&PathState>,
    _: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let RequestArgs { method, url, body, content_type } = parse_arguments(&WEB_REQUEST, arguments)?;
    check_url(&WEB_REQUEST, &url)?;
    if !METHODS.contains(&method.as_str()) {
        return Err(invalid_arguments(
            &WEB_REQUEST,
            &format!("'method' must be one of {}; web_fetch reads a URL", METHODS.join(", ")),
        ));
    }
    if let Some(media) = &content_type {
        let plain = media.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if media.is_empty() || media.len() > MAX_MEDIA_BYTES || !plain || body.is_none() {
            return Err(invalid_arguments(&WEB_REQUEST, "'content_type' is the media type of a 'body'"));
        }
    }
    let purpose = describe_intent(&method, &url);
    let sinks = ActionDraft::new_draft(
        Action::Fetch(Fetch {
            method: method.clone(),
            url: url.clone(),
            body: body.clone(),
            content_type: content_type.clone(),
            save_to: None,
            large: false,
        }),
        purpose,
    );
    let mut draft = sinks.with_sink("method", method).with_sink("url", url);
    if let Some(body) = body {
        draft = draft.with_sink("body", body);
    }
    // The usual types carry no information; a free text in their place could carry data out.
    if let Some(media) = content_type.filter(|media| !USUAL_MEDIA.contains(&media.as_str())) {
        draft = draft.with_sink("content_type", media);
    }
    Ok(draft)
}

fn check_url(tool: &'static ToolDef, url: &str) -> Result<(), ToolError> {
    no_nul(tool, "url", url)?;
    Target::from_url(url).map(|_| ()).map_err(|problem| invalid_arguments(tool, &format!("'url': {problem}")))
}
