//! Looks at the autopilot: its report, the log of a unit, what a unit changes, and what is wrong.

use std::path::Path;

use writ_inspect::show::{escape_line, escape_text};
use writ_pilot::report::write_html;
use writ_runtime::methods::{PilotChangesOf, PilotDoctor, PilotLogOf, PilotReportOf};
use writ_types::api::pilot::{
    FindingVerdict, PilotChanges, PilotCheckup, PilotFinding, PilotLogLine, PilotLogQuery, PilotProject,
    PilotReport, PilotScope, PilotUnitName,
};
use writ_types::error::Exit;

use super::cut;
use super::view::describe_gate_end;
use crate::client::EngineClient;
use crate::cmd::chat::end_with;
use crate::context::Context;
use crate::failure::Failure;

/// Prints a report, or writes it as HTML.
pub(super) async fn report(
    context: &Context,
    client: &mut EngineClient,
    (scope, html): (&PilotScope, Option<&Path>),
) -> Result<(), Failure> {
    let report = client.ask::<PilotReportOf>(scope).await?;
    if let Some(path) = html {
        std::fs::write(path, write_html(&report)).map_err(|error| {
            let text = format!("'{}' cannot be written: {error}", escape_line(&path.to_string_lossy()));
            Failure::new(
                Exit::Usage,
                "pilot.report_file",
                text,
                "name a file in a folder that can be written",
            )
        })?;
        context.out.print_remark(format!("written: {}", escape_line(&path.to_string_lossy())));
        // A program that asks for JSON has it on standard output as well.
        if !context.out.json {
            return Ok(());
        }
    }
    context.out.print_either(&report, describe_report)
}

fn describe_report(report: &PilotReport) -> Vec<String> {
    let mut lines = vec![format!(
        "{}: {} units, {} attempts, {}, {}",
        escape_line(&report.project),
        report.units.len(),
        report.runs.len(),
        report.tokens,
        report.cost
    )];
    for unit in &report.units {
        // The same indentation as in `status`, so that both read alike.
        let indent = "  ".repeat(usize::try_from(unit.depth).unwrap_or(0));
        let (id, title) = (escape_line(&unit.id), escape_line(&unit.title));
        lines.push(format!("{indent}{id}  {} {}  {title}  ({})", unit.phase, unit.status, unit.cost));
        if !unit.request.is_empty() {
            lines.push(format!("{indent}  request: {}", cut(&unit.request)));
        }
        if !unit.blocker.is_empty() {
            lines.push(format!("{indent}  {}", cut(&unit.blocker)));
        }
        for run in report.runs.iter().filter(|run| run.unit == unit.id) {
            // A run without an end is under way.
            let end = if run.end.is_empty() { "runs" } else { run.end.as_str() };
            let error =
                if run.error.is_empty() { String::new() } else { format!(" ({})", escape_line(&run.error)) };
            lines.push(format!(
                "{indent}  attempt {}: {} {end}{error}, {} ms, {}, {}",
                run.attempt, run.phase, run.millis, run.tokens, run.cost
            ));
        }
        for gate in report.gates.iter().filter(|gate| gate.unit == unit.id) {
            let name = escape_line(&gate.name);
            let end = describe_gate_end(&gate.verdict, &gate.summary);
            lines.push(format!("{indent}  gate {name}, try {}: {end}", gate.attempt));
        }
        for review in report.reviews.iter().filter(|review| review.unit == unit.id) {
            lines.push(format!("{indent}  review:"));
            lines.extend(review.findings.lines().map(|line| format!("{indent}    {}", escape_line(line))));
        }
    }
    for commit in &report.commits {
        // As many digits as git needs in a repository of this size.
        let id: String = commit.id.chars().take(12).collect();
        lines.push(format!("commit {id} {}  {}", commit.at, escape_line(&commit.subject)));
    }
    lines
}

/// Prints the log of a unit: for programs one object of JSON a line.
pub(super) async fn print_log(
    context: &Context,
    client: &mut EngineClient,
    query: &PilotLogQuery,
) -> Result<(), Failure> {
    let log = client.ask::<PilotLogOf>(query).await?;
    // Said first, since the lines may run off the screen.
    if log.left_out > 0 {
        let more = query.skip.saturating_add(log.lines.len());
        let text = format!("at least {} older lines are left out: `--skip {more}` shows them", log.left_out);
        context.out.print_remark(text);
    }
    // One line each, so that a long log can be read by programs as it comes.
    for line in &log.lines {
        if context.out.json {
            let text = serde_json::to_string(line)
                .map_err(|error| Failure::internal_error("writing a line of a log", error))?;
            context.out.print_line(text)?;
        } else {
            context.out.print_line(describe_line(line))?;
        }
    }
    Ok(())
}

fn describe_line(line: &PilotLogLine) -> String {
    let mut text = format!("{}  {:>3}  {:<6}  {}", line.at, line.attempt, line.kind, escape_line(&line.text));
    if let Some(took) = line.took_ms {
        text.push_str(&format!("  {took} ms"));
    }
    if let Some(tokens) = line.tokens {
        text.push_str(&format!("  {tokens}"));
    }
    if let Some(cost) = line.cost {
        text.push_str(&format!("  {cost}"));
    }
    text
}

/// Prints what a unit changes that is not in the target.
pub(super) async fn print_changes(
    context: &Context,
    client: &mut EngineClient,
    unit: &PilotUnitName,
) -> Result<(), Failure> {
    let changes = client.ask::<PilotChangesOf>(unit).await?;
    context.out.print_either(&changes, describe_changes)
}

fn describe_changes(changes: &PilotChanges) -> Vec<String> {
    if changes.branch.is_empty() {
        return vec![format!("{} has no branch: nothing waits to be merged", escape_line(&changes.unit))];
    }
    let mut lines =
        vec![format!("{} against {}", escape_line(&changes.branch), escape_line(&changes.target))];
    lines.extend(changes.pending.iter().map(|path| format!("not committed: {}", escape_line(path))));
    lines.extend(escape_text(&changes.diff).lines().map(str::to_owned));
    if changes.is_cut {
        lines.push("the rest is left out".to_owned());
    }
    lines
}

/// Prints the findings: ends with 0 if all is well, and with 1 if anything is wrong or doubtful.
pub(super) async fn check_up(
    context: &Context,
    client: &mut EngineClient,
    (project, fix): (&PilotProject, bool),
) -> Result<(), Failure> {
    let order = PilotCheckup { project: project.project.clone(), fix };
    let found = client.ask::<PilotDoctor>(&order).await?;
    context.out.print_either(&found, |found| found.checks.iter().flat_map(describe_finding).collect())?;
    if found.healthy { Ok(()) } else { end_with(Exit::Bug) }
}

fn describe_finding(found: &PilotFinding) -> Vec<String> {
    let mark = match (found.fixed, found.verdict) {
        (true, _) => "done",
        (false, FindingVerdict::Good) => "ok  ",
        (false, FindingVerdict::Warn) => "warn",
        (false, FindingVerdict::Bad) => "BAD ",
    };
    let mut lines = vec![format!("{mark}  {:<12} {}", escape_line(&found.name), escape_line(&found.text))];
    if !found.hint.is_empty() {
        lines.push(format!("      {:<12} hint: {}", "", escape_line(&found.hint)));
    }
    lines
}
