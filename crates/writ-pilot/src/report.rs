//! The report of a project as one HTML file, without scripts and external resources.

use std::fmt::Write as _;

pub use writ_types::api::pilot::{
    PilotReport, ReportCommit, ReportGate, ReportMove, ReportReview, ReportRun, ReportUnit,
};
use writ_types::visible::escape_line;

/// The most rows of one table.
pub const MAX_ROWS: usize = 5_000;
/// The longest text of one cell, in characters.
const MAX_CELL_CHARS: usize = 500;

/// The style sheet, for light and dark screens and for print.
const STYLE: &str = include_str!("report/style.css");

/// Writes the report as HTML.
pub fn write_html(report: &PilotReport) -> String {
    let project = escape_html(&report.project);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{project}: autopilot</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{project}</h1>\n"
    );
    write_summary(&mut html, report);
    write_table(&mut html, "Work", &["unit", "title", "phase", "status", "cost"], &report.units, |unit| {
        // Depths above 3 get the same indent.
        let indent = "&emsp;".repeat(usize::try_from(unit.depth.min(3)).unwrap_or(0));
        let mut status = unit.status.clone();
        if !unit.blocker.is_empty() {
            status = format!("{status}: {}", unit.blocker);
        }
        if !unit.request.is_empty() {
            status = format!("{status}; request: {}", unit.request);
        }
        vec![
            format!("{indent}{}", escape_html(&unit.id)),
            escape_html(&unit.title),
            escape_html(&unit.phase),
            mark_cell(&unit.status, &status),
            unit.cost.to_string(),
        ]
    });
    write_table(
        &mut html,
        "Gates",
        &["unit", "gate", "attempt", "verdict", "seconds", "summary"],
        &report.gates,
        |gate| {
            vec![
                escape_html(&gate.unit),
                escape_html(&gate.name),
                gate.attempt.to_string(),
                mark_cell(&gate.verdict, &gate.verdict),
                show_seconds(gate.millis),
                escape_html(&gate.summary),
            ]
        },
    );
    let heads = ["unit", "phase", "attempt", "end", "error", "began", "seconds", "tokens", "cost"];
    write_table(&mut html, "Attempts", &heads, &report.runs, |run| {
        vec![
            escape_html(&run.unit),
            escape_html(&run.phase),
            run.attempt.to_string(),
            mark_cell(&run.end, if run.end.is_empty() { "running" } else { &run.end }),
            escape_html(&run.error),
            run.started_at.to_string(),
            show_seconds(run.millis),
            run.tokens.get().to_string(),
            run.cost.to_string(),
        ]
    });
    write_table(&mut html, "Phases", &["time", "unit", "from", "to", "cause"], &report.moves, |change| {
        let texts = [&change.unit, &change.from, &change.to, &change.cause].map(|text| escape_html(text));
        std::iter::once(change.at.to_string()).chain(texts).collect()
    });
    write_reviews(&mut html, report);
    html.push_str("</body>\n</html>\n");
    html
}

fn write_reviews(html: &mut String, report: &PilotReport) {
    write_table(html, "Reviews", &["unit", "findings"], &report.reviews, |review| {
        vec![escape_html(&review.unit), escape_html(&review.findings)]
    });
    write_table(html, "Commits", &["commit", "unit", "date", "message"], &report.commits, |commit| {
        vec![
            escape_html(&commit.id),
            escape_html(&commit.unit),
            commit.at.to_string(),
            escape_html(&commit.subject),
        ]
    });
}

fn show_seconds(millis: u64) -> String {
    format!("{}.{}", millis / 1_000, millis % 1_000 / 100)
}

fn write_summary(html: &mut String, report: &PilotReport) {
    let done = report.units.iter().filter(|unit| unit.phase == "complete").count();
    let blocked = report.units.iter().filter(|unit| !unit.blocker.is_empty()).count();
    let passed = report.gates.iter().filter(|gate| gate.verdict == "pass").count();
    let _ = writeln!(
        html,
        "<p>{done} of {} units complete, {blocked} blocked; {passed} of {} gates passed; {} attempts, {}. Made {}.</p>",
        report.units.len(),
        report.gates.len(),
        report.runs.len(),
        report.cost,
        report.made_at
    );
}

/// Writes a table; its cells are HTML already.
fn write_table<T>(
    html: &mut String,
    title: &str,
    heads: &[&str],
    rows: &[T],
    cells: impl Fn(&T) -> Vec<String>,
) {
    let heads: String = heads.iter().map(|head| format!("<th>{head}</th>")).collect();
    let _ = write!(html, "<h2>{title}</h2>\n<div><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n");
    for row in rows.iter().take(MAX_ROWS) {
        let cells: String = cells(row).iter().map(|cell| format!("<td>{cell}</td>")).collect();
        let _ = writeln!(html, "<tr>{cells}</tr>");
    }
    html.push_str("</tbody>\n</table></div>\n");
    let left_out = rows.len().saturating_sub(MAX_ROWS);
    // An empty table could be taken for an error of the report.
    if rows.is_empty() {
        html.push_str("<p>None.</p>\n");
    } else if left_out > 0 {
        let _ = writeln!(html, "<p>{left_out} more rows are left out.</p>");
    }
}

/// Returns a text in the colour of a status word. Colour is never the only sign: the text has the word, too.
fn mark_cell(word: &str, text: &str) -> String {
    let class = match word {
        "pass" | "success" | "succeeded" | "complete" => "good",
        "fail" | "block" | "failure" | "failed" | "abandoned" | "stalled" | "unit_timeout"
        | "turn_timeout" => "bad",
        "" | "skip" | "pending" | "running" | "canceled" => "quiet",
        _ => "open",
    };
    format!("<span class=\"{class}\">{}</span>", escape_html(text))
}

/// Escapes text for HTML content and attributes, shows invisible characters as escapes, and cuts long text.
fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let visible: String = text.chars().take(MAX_CELL_CHARS).collect();
    for c in escape_line(&visible).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(c),
        }
    }
    if text.chars().nth(MAX_CELL_CHARS).is_some() {
        escaped.push('…');
    }
    escaped
}

#[cfg(test)]
mod tests;
