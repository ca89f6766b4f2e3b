//! `writ mcp`: servers of tools. What a server says of its tools is shown before it is trusted, and pinned.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use writ_inspect::show::{escape_line, escape_text, is_plain};
use writ_mcp::config::{ServerName, ServerSpec};
use writ_mcp::definition::{Definition, Drift, Pins};
use writ_mcp::listing::Listing;
use writ_runtime::methods::params::ReloadRequest;
use writ_runtime::methods::{self as m, McpReload, Method};
use writ_runtime::servers::{Server, row};
use writ_tools::foreign::called_all;
use writ_types::api::NoParams;
use writ_types::api::tool::{ToolHealth, ToolReview};
use writ_types::error::Exit;

use super::serve_mcp;
use crate::args::{AddServer, McpCommand};
use crate::client::EngineClient;
use crate::config::servers;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use crate::terminal;

/// Runs `writ mcp …`.
pub(crate) fn run_mcp(context: &Context, command: &McpCommand) -> Result<(), Failure> {
    context.load_ready_config()?;
    match command {
        McpCommand::Add(args) => add_server(context, args),
        McpCommand::List => list(context),
        McpCommand::Review => review(context),
        McpCommand::Trust { name, tool, yes } => trust(context, name, tool.as_deref(), *yes),
        McpCommand::Serve { project } => serve_mcp::serve(context, project),
        McpCommand::Remove { name } => remove_server(context, name),
    }
}

/// Runs `writ mcp review`.
fn review(context: &Context) -> Result<(), Failure> {
    block_on(async {
        let mut client = EngineClient::ensure(context).await?;
        let review = client.ask::<m::ToolsReview>(&NoParams {}).await?;
        context.out.print_either(&review, describe_review)
    })
}

fn describe_review(review: &ToolReview) -> Vec<String> {
    let mut lines: Vec<String> = review.summary.iter().map(|line| escape_line(line)).collect();
    lines.extend(review.tools.iter().map(|tool| {
        let last = tool.last_run.as_deref().unwrap_or("never");
        let ToolHealth { tool, runs, failures, average_ms, .. } = tool;
        format!(
            "{}: {runs} runs, {failures} failed, {average_ms} ms on average, last {last}",
            escape_line(tool)
        )
    }));
    lines
}

/// Runs `writ mcp add`.
fn add_server(context: &Context, args: &AddServer) -> Result<(), Failure> {
    // A second `add` must not replace the declarations and pins of the first.
    if servers::read_server(&context.home, &args.name)?.is_some() {
        let text = format!("there is a server '{}' already", args.name);
        let hint = format!("change mcp/{0}.toml and run `writ mcp trust {0}`, or remove it first", args.name);
        return Err(Failure::new(Exit::Usage, "mcp.exists", text, hint));
    }
    let spec = spec_of(args)?;
    let listing = offered_by(context, &args.name, &spec)?;
    let mut server = Server { name: args.name.clone(), spec, pins: Pins::default() };
    let (usable, left_out) = usable_tools(&server, listing);
    if !context.out.json {
        for tool in &usable {
            describe_tool(tool).iter().try_for_each(|line| context.out.print_line(line))?;
        }
    }
    remark_left_out(context, &left_out);
    confirm_trust(
        context,
        args.yes,
        &format!("Trust these {} tools, as they are described here?", usable.len()),
    )?;
    server.pins.tools = usable.into_iter().map(|tool| (tool.name.clone(), tool)).collect();
    servers::write_new(&context.home, &server)?;
    match reload_servers(context, true, None) {
        // Tools that are trusted and still not offered, mostly for want of room.
        Ok(left_out) => remark_left_out(context, &left_out),
        Err(failure) => {
            // It cannot stand beside the others.
            servers::remove_server(&context.home, &server.name)?;
            return Err(failure);
        }
    }
    context.out.print_either(&shown(&server, &left_out), |_| {
        vec![format!(
            "added: {} tools, each a question until mcp/{}.toml says what it does",
            server.pins.tools.len(),
            server.name
        )]
    })
}

fn spec_of(args: &AddServer) -> Result<ServerSpec, Failure> {
    let wrong = |why: String| Failure::new(Exit::Usage, "mcp.spec", why, "see `writ mcp add --help`");
    let mut spec = match (&args.url, args.argv.split_first()) {
        (Some(url), _) => ServerSpec::of_url(url.clone()),
        (None, Some((command, rest))) => ServerSpec::of_command(command.clone(), rest.to_vec()),
        (None, None) => return Err(wrong("there is no program".to_owned())),
    };
    spec.token.clone_from(&args.token);
    spec.hosts.clone_from(&args.hosts);
    spec.start_timeout_secs = args.start_timeout.unwrap_or(spec.start_timeout_secs);
    // A value may name a secret, which is resolved when the server starts.
    for variable in &args.env {
        // The error does not repeat the argument, which may be a secret.
        let (name, value) = variable
            .split_once('=')
            .ok_or_else(|| wrong("--env is NAME=VALUE or NAME=secret:REF".to_owned()))?;
        spec.env.insert(name.to_owned(), value.to_owned());
    }
    spec.check_settings().map_err(|error| wrong(error.to_string()))?;
    Ok(spec)
}

/// The engine's answer to `mcp.probe`.
#[derive(Deserialize)]
struct ProbeResult {
    tools: Vec<Definition>,
    #[serde(default)]
    left_out: Vec<String>,
}

/// Returns the tools of a server, started in the sandbox for this. Hidden characters in them end everything:
/// they are there to deceive.
pub(super) fn offered_by(
    context: &Context,
    name: &ServerName,
    spec: &ServerSpec,
) -> Result<Listing, Failure> {
    let params = json!({ "name": name, "spec": spec });
    let found = block_on(probe_server(context, (name, spec), params))?;
    let ProbeResult { tools, left_out } =
        serde_json::from_value(found).map_err(|error| Failure::internal_error("reading the tools", error))?;
    for tool in &tools {
        // Hidden characters in a description can carry orders that a person does not see.
        let seen = is_plain(&tool.name) && is_plain(&tool.description);
        let hidden = tool.hidden_characters().or_else(|| (!seen).then_some("text"));
        if let Some(place) = hidden {
            let text = format!(
                "the {place} of the tool '{}' has characters that cannot be seen: {}",
                escape_line(&tool.name),
                escape_line(&schema_excerpt(tool, place))
            );
            let hint = "nothing of this server was trusted; ask its author what they are for";
            return Err(Failure::new(Exit::Denied, "mcp.hidden", text, hint));
        }
    }
    Ok(Listing { tools, left_out })
}

/// The time between two messages that a server is still starting.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Asks the engine for a server's tools, and says meanwhile how long it takes to start.
async fn probe_server(
    context: &Context,
    (name, spec): (&ServerName, &ServerSpec),
    params: Value,
) -> Result<Value, Failure> {
    let mut client = EngineClient::ensure(context).await?;
    let began = Instant::now();
    let mut ticks = tokio::time::interval_at(began + TELL_EVERY, TELL_EVERY);
    let asking = client.call_method(Method::McpProbe, params);
    tokio::pin!(asking);
    loop {
        tokio::select! {
            // Biased: an answer that is there is not preceded by a message about waiting.
            biased;
            found = &mut asking => return found,
            _ = ticks.tick() => context.out.print_remark(format!(
                "the server '{name}' is starting: {} of at most {} seconds (start_timeout_secs)",
                began.elapsed().as_secs(),
                spec.start_timeout_secs
            )),
        }
    }
}

/// Says what is left out, line by line.
pub(super) fn remark_left_out(context: &Context, left_out: &[String]) {
    for why in left_out {
        context.out.print_remark(format!("left out: {}", escape_line(why)));
    }
}

/// The text around the first character that cannot be seen, in characters.
const EXCERPT_CHARS: usize = 60;

fn schema_excerpt(tool: &Definition, place: &str) -> String {
    let text = match place {
        "name" => tool.name.clone(),
        "schema" => tool.schema.to_string(),
        _description => tool.description.clone(),
    };
    // Around the hidden character, so that a long text is not printed whole.
    let at = text.chars().position(|c| !is_plain(&c.to_string())).unwrap_or_default();
    text.chars().skip(at.saturating_sub(EXCERPT_CHARS / 2)).take(EXCERPT_CHARS).collect()
}

/// Separates the tools that can be offered to models from the reasons against the others.
pub(super) fn usable_tools(server: &Server, listing: Listing) -> (Vec<Definition>, Vec<String>) {
    let (mut usable, mut left_out) = (Vec::new(), listing.left_out);
    for tool in listing.tools {
        match row(server, &tool) {
            Ok(_) => usable.push(tool),
            Err(error) => left_out.push(error.to_string()),
        }
    }
    (usable, left_out)
}

/// A tool as people read it: everything that its server says of it.
pub(super) fn describe_tool(tool: &Definition) -> Vec<String> {
    let mut lines = vec![format!("tool {}", escape_line(&tool.name))];
    lines.extend(tool_words(tool).into_iter().map(|line| format!("  | {line}")));
    lines
}

/// The server's words about a tool, line by line, escaped.
fn tool_words(tool: &Definition) -> Vec<String> {
    // The schema is printed as it is pinned, in full.
    let schema = serde_json::to_string_pretty(&tool.schema).unwrap_or_default();
    let text = format!("{}\narguments:\n{schema}", tool.description);
    escape_text(&text).lines().map(str::to_owned).collect()
}

pub(super) fn confirm_trust(context: &Context, yes: bool, question: &str) -> Result<(), Failure> {
    // A person cannot trust what was not shown.
    if context.out.json && !yes {
        let text = "with --json nothing is shown that could be approved";
        return Err(Failure::new(Exit::Usage, "mcp.json", text, "look at it without --json, or give --yes"));
    }
    if yes || terminal::confirm_yes(&context.host.streams, question)? {
        return Ok(());
    }
    let hint = "what is not trusted is not used; `writ mcp trust NAME` asks again";
    Err(Failure::new(Exit::Denied, "mcp.not_trusted", "nothing was trusted", hint))
}

/// Has the engine read the files anew, and returns what it does not offer; without an engine, the next one reads them.
pub(super) fn reload_servers(
    context: &Context,
    start: bool,
    trusted: Option<&ServerName>,
) -> Result<Vec<String>, Failure> {
    let answer = block_on(async {
        let client =
            // `list` starts no engine: without one, nothing is offered anyway.
            if start { Some(EngineClient::ensure(context).await?) } else { EngineClient::connect(context).await? };
        let Some(mut client) = client else { return Ok(None) };
        client.ask::<McpReload>(&ReloadRequest { trusted: trusted.cloned() }).await.map(Some)
    })?;
    Ok(answer.map(|answer| answer.left_out).unwrap_or_default())
}

fn shown(server: &Server, left_out: &[String]) -> Value {
    // The names under which models call the tools, which can differ from the server's own.
    let called = called_all(server.name.as_str(), server.pins.tools.keys().map(String::as_str));
    let tools: Vec<Value> = server
        .pins
        .tools
        .values()
        .map(|tool| {
            let rule = server.spec.tool_rule(&tool.name);
            json!({
                "name": tool.name,
                "called": called.get(tool.name.as_str()),
                "description": tool.description,
                "pin": tool.digest(),
                "effect": rule.effect,
                "declared": rule.sinks.is_some(),
                "offered": rule.allow,
            })
        })
        .collect();
    json!({
        "name": server.name,
        "command": server.spec.command,
        "url": server.spec.url,
        "args": server.spec.args,
        "hosts": server.spec.hosts,
        "taint": server.spec.taint,
        "tools": tools,
        "left_out": left_out,
    })
}

/// Runs `writ mcp list`. An engine that runs reads the files first, so that what is listed is in force.
fn list(context: &Context) -> Result<(), Failure> {
    let servers = servers::load_servers(&context.home)?;
    let left_out = reload_servers(context, false, None)?;
    remark_left_out(context, &left_out);
    let all: Vec<Value> = servers.iter().map(|server| shown(server, &[])).collect();
    context.out.print_either(&json!({ "servers": all, "left_out": left_out }), |_| {
        if servers.is_empty() {
            return vec!["no servers; `writ mcp add NAME -- CMD` adds one".to_owned()];
        }
        servers.iter().flat_map(server_lines).collect()
    })
}

fn server_lines(server: &Server) -> Vec<String> {
    if let Some(url) = &server.spec.url {
        return [format!("{}  {}", server.name, escape_line(url))]
            .into_iter()
            .chain(tool_lines(server))
            .collect();
    }
    let words: Vec<String> =
        [&server.spec.command].into_iter().chain(&server.spec.args).map(|word| escape_line(word)).collect();
    let hosts =
        if server.spec.hosts.is_empty() { "no network".to_owned() } else { server.spec.hosts.join(" ") };
    let first = format!("{}  {}  ({hosts})", server.name, words.join(" "));
    [first].into_iter().chain(tool_lines(server)).collect()
}

fn tool_lines(server: &Server) -> Vec<String> {
    let line = |tool: &Definition| {
        let rule = server.spec.tool_rule(&tool.name);
        // An undeclared effect asks each time, and the list says so.
        let how = match (rule.allow, rule.effect, rule.sinks.is_some()) {
            (false, ..) => "not offered",
            (true, false, _) => "no effect",
            (true, true, true) => "effect, sinks declared",
            (true, true, false) => "effect, each call asks",
        };
        format!("  {} ({how})", escape_line(&tool.name))
    };
    server.pins.tools.values().map(line).collect()
}

/// Runs `writ mcp trust`.
fn trust(context: &Context, name: &ServerName, tool: Option<&str>, yes: bool) -> Result<(), Failure> {
    let Some(mut server) = servers::read_server(&context.home, name)? else {
        return Err(unknown_server(name));
    };
    let (offered, left_out) = usable_tools(&server, offered_by(context, name, &server.spec)?);
    remark_left_out(context, &left_out);
    // Compared with the pins: only differences need a decision.
    let mut drift = server.pins.compare_offer(&offered);
    drift.retain(|name, drift| *drift != Drift::None && tool.is_none_or(|tool| tool == name));
    if drift.is_empty() {
        // A running engine may not know the file's present settings yet.
        remark_left_out(context, &reload_servers(context, true, Some(name))?);
        let nothing = json!({ "name": name, "changed": {} });
        return context.out.print_either(&nothing, |_| vec!["everything is as it was pinned".to_owned()]);
    }
    let offered: BTreeMap<String, Definition> =
        offered.into_iter().map(|tool| (tool.name.clone(), tool)).collect();
    if !context.out.json {
        for (name, drift) in &drift {
            let texts = describe_difference(*drift, server.pins.tools.get(name), offered.get(name));
            context.out.print_line(format!("tool {} ({})", escape_line(name), drift.as_str()))?;
            texts.iter().try_for_each(|line| context.out.print_line(line))?;
        }
    }
    confirm_trust(context, yes, "Trust them as they are described now?")?;
    for name in drift.keys() {
        match offered.get(name) {
            Some(tool) => server.pins.tools.insert(name.clone(), tool.clone()),
            None => server.pins.tools.remove(name),
        };
    }
    servers::write_pins(&context.home, name, &server.pins)?;
    remark_left_out(context, &reload_servers(context, true, Some(name))?);
    let changed: BTreeMap<&String, &str> = drift.iter().map(|(name, drift)| (name, drift.as_str())).collect();
    context.out.print_either(&json!({ "name": name, "changed": changed }), |_| {
        vec![format!("pinned: {} tools", changed.len())]
    })
}

/// Returns the differences line by line: `-` was pinned, `+` is the current text.
fn describe_difference(drift: Drift, before: Option<&Definition>, after: Option<&Definition>) -> Vec<String> {
    let (before, after) =
        (before.map(tool_words).unwrap_or_default(), after.map(tool_words).unwrap_or_default());
    if drift == Drift::None {
        return Vec::new();
    }
    let same = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let rest = (before.len().min(after.len())).saturating_sub(same);
    let same_end = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let middle = |lines: &[String], sign: char| {
        let count = lines.len().saturating_sub(same).saturating_sub(same_end);
        lines.iter().skip(same).take(count).map(|line| format!("{sign} {line}")).collect::<Vec<_>>()
    };
    [middle(&before, '-'), middle(&after, '+')].concat()
}

/// Runs `writ mcp remove`.
fn remove_server(context: &Context, name: &ServerName) -> Result<(), Failure> {
    if !servers::remove_server(&context.home, name)? {
        return Err(unknown_server(name));
    }
    reload_servers(context, false, None)?;
    context.out.print_either(&json!({ "removed": name }), |_| vec![format!("removed {name}")])
}

fn unknown_server(name: &ServerName) -> Failure {
    Failure::new(Exit::Usage, "mcp.no_server", format!("there is no server '{name}'"), "see `writ mcp list`")
}
