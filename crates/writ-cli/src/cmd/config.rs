//! `writ config`: what is in force, and what is wrong. The home need not be set up.

use std::path::Path;

use serde_json::{Map, json};

use crate::args::ConfigCommand;
use crate::config::layer::Origin;
use crate::config::schema::{Place, dotted, place};
use crate::config::{load, policies, servers};
use crate::context::Context;
use crate::failure::Failure;
use writ_types::error::{Exit, ToReport as _};

/// Runs `writ config …`.
pub(crate) fn run(context: &Context, command: &ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check { project } => check(context, project.as_deref()),
        ConfigCommand::Show { project } => show(context, project.as_deref()),
    }
}

fn check(context: &Context, project: Option<&Path>) -> Result<(), Failure> {
    let mut findings = match load(&context.sources(project)) {
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
    let rules = policies::load(&context.home, project).err().map(|error| ("rules", error.report()));
    let servers = servers::load(&context.home).err().map(|error| ("mcp", error.report()));
    findings.extend([rules, servers].into_iter().flatten().map(|(place, report)| {
        json!({ "where": place, "text": report.outside, "hint": report.advice(), "shown": report.outside })
    }));
    let result = json!({ "valid": findings.is_empty(), "findings": findings });
    context.out.either(&result, |_| {
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

fn show(context: &Context, project: Option<&Path>) -> Result<(), Failure> {
    let config = load(&context.sources(project))?;
    if context.out.json {
        let values: Map<String, serde_json::Value> = config
            .effective
            .iter()
            .map(|(path, in_force)| {
                (dotted(path), json!({ "value": in_force.value, "origin": in_force.origin.to_string() }))
            })
            .collect();
        return context.out.json(&values);
    }
    for (path, in_force) in config.effective.iter() {
        let value = in_force.value.to_string();
        let origin = match &in_force.origin {
            Origin::Default => String::new(),
            origin @ (Origin::File { .. } | Origin::Env(_) | Origin::Flag) => format!("   # {origin}"),
        };
        // Every path is a key of the schema: only those are read.
        if matches!(place(path), Place::Key(_)) {
            context.out.line(format!("{} = {value}{origin}", dotted(path)))?;
        }
    }
    context.out.remark("values without a remark are defaults; keys that are not shown have none");
    Ok(())
}
