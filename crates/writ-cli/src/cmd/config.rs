//! `writ config`: what is in force, and what is wrong. The home need not be set up.

use std::path::Path;

use serde_json::{Map, json};

use crate::args::ConfigCommand;
use crate::config::layer::SettingOrigin;
use crate::config::schema::{SchemaEntry, dotted_path, place_of};
use crate::config::{load_config, policies, servers};
use crate::context::Context;
use crate::failure::Failure;
use writ_types::error::{Exit, ToReport as _};

/// Runs `writ config …`.
pub(crate) fn run_config(context: &Context, command: &ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check { project } => check_config(context, project.as_deref()),
        ConfigCommand::Show { project } => show_config(context, project.as_deref()),
    }
}

fn check_config(context: &Context, project: Option<&Path>) -> Result<(), Failure> {
    let mut findings = match load_config(&context.config_sources(project)) {
        Ok(_) => Vec::new(),
        Err(error) => error
            .findings
            .iter()
            .map(|finding| {
                json!({
                    "where": finding.origin.to_string(),
                    "text": finding.text,
                    "hint": finding.advice(),
                    "shown": finding.to_string(),
                })
            })
            .collect(),
    };
    // Rules and servers are parts of the configuration and are checked with it.
    let rules = policies::load_rules(&context.home, project).err().map(|error| ("rules", error.report()));
    let servers = servers::load_servers(&context.home).err().map(|error| ("mcp", error.report()));
    findings.extend([rules, servers].into_iter().flatten().map(|(place, report)| {
        json!({ "where": place, "text": report.outside, "hint": report.advice(), "shown": report.outside })
    }));
    let result = json!({ "valid": findings.is_empty(), "findings": findings });
    context.out.print_either(&result, |_| {
        let told = findings.iter().flat_map(|finding| {
            let text =
                |name: &str| finding.get(name).and_then(|text| text.as_str()).unwrap_or_default().to_owned();
            [text("shown"), format!("  hint: {}", text("hint"))]
        });
        let lines: Vec<String> = told.collect();
        if lines.is_empty() { vec!["the configuration is valid".into()] } else { lines }
    })?;
    // A finding is a result, not an error message: the exit code alone differs.
    if findings.is_empty() { Ok(()) } else { Err(Failure::Code(Exit::Config.code())) }
}

fn show_config(context: &Context, project: Option<&Path>) -> Result<(), Failure> {
    let config = load_config(&context.config_sources(project))?;
    if context.out.json {
        let values: Map<String, serde_json::Value> = config
            .effective
            .iter()
            .map(|(path, in_force)| {
                (dotted_path(path), json!({ "value": in_force.value, "origin": in_force.origin.to_string() }))
            })
            .collect();
        return context.out.print_json(&values);
    }
    for (path, in_force) in config.effective.iter() {
        let value = in_force.value.to_string();
        let origin = match &in_force.origin {
            SettingOrigin::Default => String::new(),
            origin @ (SettingOrigin::File { .. } | SettingOrigin::Env(_) | SettingOrigin::Flag) => {
                format!("   # {origin}")
            }
        };
        // Every path is a key of the schema: only those are read.
        if matches!(place_of(path), SchemaEntry::Key(_)) {
            context.out.print_line(format!("{} = {value}{origin}", dotted_path(path)))?;
        }
    }
    context.out.print_remark("values without a remark are defaults; keys that are not shown have none");
    Ok(())
}
