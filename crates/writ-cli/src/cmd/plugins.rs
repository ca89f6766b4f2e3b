//! `writ plugins`: programs with a manifest, which offer tools. Each runs in the sandbox as a server of tools does, with its own folder to
//! read, and what it says of its tools is shown before it is trusted, and pinned.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use writ_inspect::show::escape_line;
use writ_mcp::config::{ServerName, ServerSpec};
use writ_mcp::definition::{Definition, Pins};
use writ_mcp::listing::Listing;
use writ_runtime::servers::Server;
use writ_types::error::Exit;

use super::mcp::{confirm_trust, describe_tool, offered_by, reload_servers, remark_left_out, usable_tools};
use crate::args::PluginsCommand;
use crate::config::plugins::{Plugin, copy_plugin, list_plugins, read_plugin, remove_plugin};
use crate::config::servers;
use crate::context::Context;
use crate::failure::Failure;

/// The variable with the settings of a plugin's manifest.
const CONFIG: &str = "WRIT_PLUGIN_CONFIG";
/// Starts a plugin's command in the plugin's folder.
const START: &str = "cd \"$WRIT_PLUGIN\" && exec \"$@\"";

/// Runs `writ plugins …`.
pub(crate) fn run_plugins(context: &Context, command: &PluginsCommand) -> Result<(), Failure> {
    context.load_ready_config()?;
    match command {
        PluginsCommand::List => list(context),
        PluginsCommand::Load { folder, hosts, yes } => load(context, folder, (hosts, *yes)),
        PluginsCommand::Unload { name } => unload(context, name),
    }
}

/// Runs `writ plugins list`.
fn list(context: &Context) -> Result<(), Failure> {
    let (plugins, left_out) = list_plugins(&context.home)?;
    remark_left_out(context, &left_out);
    for plugin in &plugins {
        remark_warnings(context, plugin);
    }
    // A load that was cut off leaves its files, and nothing that uses them.
    let loaded = plugins.iter().map(|plugin| is_loaded(context, &plugin.name));
    let loaded = loaded.collect::<Result<Vec<bool>, Failure>>()?;
    let shown: Vec<Value> =
        plugins.iter().zip(&loaded).map(|(plugin, is_loaded)| show_plugin(plugin, *is_loaded)).collect();
    context.out.print_either(&json!({ "plugins": shown, "left_out": left_out }), |_| {
        if plugins.is_empty() {
            return vec!["no plugins; `writ plugins load FOLDER` loads one".to_owned()];
        }
        let line = |(plugin, is_loaded): (&Plugin, &bool)| {
            format!("{}{}", describe_plugin(plugin), if *is_loaded { "" } else { " (not loaded)" })
        };
        plugins.iter().zip(&loaded).map(line).collect()
    })
}

/// Returns true if the tools of a plugin are used.
fn is_loaded(context: &Context, name: &ServerName) -> Result<bool, Failure> {
    Ok(servers::read_server(&context.home, name)?.is_some_and(|server| server.spec.plugin))
}

fn show_plugin(plugin: &Plugin, is_loaded: bool) -> Value {
    let head = &plugin.manifest.plugin;
    json!({
        "name": plugin.name,
        "version": head.version,
        "api_version": head.api_version,
        "description": head.description,
        "tools": plugin.manifest.tools,
        "loaded": is_loaded,
    })
}

fn describe_plugin(plugin: &Plugin) -> String {
    let head = &plugin.manifest.plugin;
    let tools: Vec<String> = plugin.manifest.tools.iter().map(|tool| escape_line(&tool.name)).collect();
    let tools = if tools.is_empty() { "none".to_owned() } else { tools.join(", ") };
    let (version, words) = (escape_line(&head.version), escape_line(&head.description));
    format!("{} {version} (api_version {}): {words}; tools: {tools}", plugin.name, head.api_version)
}

fn remark_warnings(context: &Context, plugin: &Plugin) {
    for warning in &plugin.warnings {
        context.out.print_remark(format!("{}: {warning}", plugin.name));
    }
}

/// Runs `writ plugins load`.
fn load(context: &Context, folder: &Path, (hosts, yes): (&[String], bool)) -> Result<(), Failure> {
    let plugin = read_plugin(folder)?;
    remark_warnings(context, &plugin);
    let name = &plugin.name;
    require_free(context, name)?;
    copy_plugin(&context.home, folder, name)?;
    let done = begin(context, &plugin, (hosts, yes));
    if done.is_err() {
        // Nothing of it is used, so nothing of it stays; a server that was added meanwhile is another's.
        if is_loaded(context, name)? {
            servers::remove_server(&context.home, name)?;
        }
        remove_plugin(&context.home, name)?;
    }
    done
}

/// Fails if the name is taken: servers and plugins offer tools as `NAME__TOOL`.
fn require_free(context: &Context, name: &ServerName) -> Result<(), Failure> {
    if servers::read_server(&context.home, name)?.is_none() {
        return Ok(());
    }
    let text = format!("there is a plugin or a server '{name}' already");
    let hint = format!("`writ plugins unload {name}` removes it first");
    Err(Failure::new(Exit::Usage, "plugins.exists", text, hint))
}

/// Starts a plugin whose files are there, and has the engine offer its tools once they are trusted.
fn begin(context: &Context, plugin: &Plugin, (hosts, yes): (&[String], bool)) -> Result<(), Failure> {
    let (name, spec) = (&plugin.name, spec_of(plugin, hosts)?);
    let listing = offered_by(context, name, &spec)?;
    let mut server = Server { name: name.clone(), spec, pins: Pins::default() };
    let (usable, left_out) = usable_tools(&server, within_manifest(plugin, listing)?);
    if !context.out.json {
        for tool in &usable {
            describe_tool(tool).iter().try_for_each(|line| context.out.print_line(line))?;
        }
    }
    remark_left_out(context, &left_out);
    let count = usable.len();
    confirm_trust(context, yes, &format!("Trust these {count} tools, as they are described here?"))?;
    // A person may have taken their time.
    require_free(context, name)?;
    server.pins.tools = usable.into_iter().map(|tool| (tool.name.clone(), tool)).collect();
    servers::write_new(&context.home, &server)?;
    remark_left_out(context, &reload_servers(context, true, None)?);
    context.out.print_either(&show_plugin(plugin, true), |_| {
        vec![format!(
            "loaded: {}; each of its tools is a question until mcp/{name}.toml says what it does",
            describe_plugin(plugin)
        )]
    })
}

fn spec_of(plugin: &Plugin, hosts: &[String]) -> Result<ServerSpec, Failure> {
    let wrong = |why: String| Failure::new(Exit::Config, "plugins.spec", why, "correct the manifest");
    let settings =
        serde_json::to_string(&plugin.manifest.config).map_err(|error| wrong(format!("config: {error}")))?;
    let words = ["-c", START, plugin.name.as_str()].map(str::to_owned).into_iter();
    let args = words.chain(plugin.manifest.plugin.command.iter().cloned()).collect();
    let mut spec = ServerSpec::of_command("sh".to_owned(), args);
    // So that the program finds its folder, wherever the sandbox shows it.
    spec.plugin = true;
    spec.hosts = hosts.to_vec();
    spec.env.insert(CONFIG.to_owned(), settings);
    spec.check_settings().map_err(|error| wrong(error.to_string()))?;
    Ok(spec)
}

/// Leaves out what the manifest does not name.
///
/// # Errors
///
/// If the program does not offer a tool that the manifest names.
fn within_manifest(plugin: &Plugin, listing: Listing) -> Result<Listing, Failure> {
    let named: BTreeSet<&str> = plugin.manifest.tools.iter().map(|tool| tool.name.as_str()).collect();
    let offered: BTreeSet<&str> = listing.tools.iter().map(|tool| tool.name.as_str()).collect();
    // A manifest that promises too much was not tried with its program.
    if let Some(missing) = named.difference(&offered).next() {
        let text = format!("the plugin does not offer the tool '{}' of its manifest", escape_line(missing));
        return Err(Failure::new(
            Exit::Config,
            "plugins.tool",
            text,
            "nothing of it was loaded; ask its author",
        ));
    }
    let (tools, others): (Vec<Definition>, Vec<Definition>) =
        listing.tools.into_iter().partition(|tool| named.contains(tool.name.as_str()));
    let mut left_out = listing.left_out;
    left_out.extend(
        others.iter().map(|tool| format!("{}: the manifest does not name it", escape_line(&tool.name))),
    );
    Ok(Listing { tools, left_out })
}

/// Runs `writ plugins unload`.
fn unload(context: &Context, name: &ServerName) -> Result<(), Failure> {
    let is_there = list_plugins(&context.home)?.0.iter().any(|plugin| plugin.name == *name);
    let is_loaded = is_loaded(context, name)?;
    if !is_loaded && !is_there {
        let text = format!("there is no plugin '{name}'");
        return Err(Failure::new(Exit::Usage, "plugins.unknown", text, "see `writ plugins list`"));
    }
    // A server of that name that is no plugin stays.
    if is_loaded {
        servers::remove_server(&context.home, name)?;
    }
    // The engine lets go of it before its files go.
    reload_servers(context, false, None)?;
    remove_plugin(&context.home, name)?;
    context.out.print_either(&json!({ "unloaded": name }), |_| vec![format!("unloaded {name}")])
}
