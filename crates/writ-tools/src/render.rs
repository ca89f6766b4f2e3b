//! From an outcome to what the model reads: bounded text, a label, and whether it worked.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::json;
use writ_inspect::prepared::Prepared;
use writ_inspect::redact::{Clean, Redactor};
use writ_types::action::{Action, ChangeKind, MemoryKind, MemoryTrust, ReadFile};
use writ_types::chat::{Field, ToolOutcome};
use writ_types::error::Report;
use writ_types::taint::{Label, Source, Taint};

use crate::outcome::{ExecEnd, Listed, ListedKind, PerformedOutcome, RecalledMemory};
use crate::text::{cut_end, cut_middle, one_line};

mod foreign;

pub(crate) mod html;

mod lines;

pub(crate) mod web;

/// The longest text of a result, in characters: about 6,000 tokens, so that a few results do not fill a context.
pub const MAX_RESULT_CHARS: usize = 24_000;

/// The longest text of what a URL answered, in bytes, with its head (WIN-212).
pub const MAX_FETCHED_BYTES: usize = 100_000;

/// The longest line of a file or match, in characters; minified files have lines of a megabyte.
pub const MAX_LINE_CHARS: usize = 2_000;

/// The longest path or name that is shown, in characters.
const MAX_NAME_CHARS: usize = 512;

/// The longest detail of a source, in characters.
const MAX_DETAIL_CHARS: usize = 200;

/// Explains an unknown outcome.
pub const UNKNOWN: &str = "whether it was done is not known: find out before you repeat it";

/// A result as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The text; at most [`MAX_RESULT_CHARS`] characters, or what a URL answered in at most [`MAX_FETCHED_BYTES`] bytes.
    pub text: Clean,
    /// Its trust label. Entries are filled in when they are recorded.
    pub label: Label,
    /// The outcome.
    pub outcome: ToolOutcome,
}

/// Renders what came of a permitted action, without the secrets in it: they are masked in what was performed, too, and
/// before anything is cut, so that no half of one is left.
pub fn render_result(prepared: &Prepared, performed: &mut PerformedOutcome, redactor: &Redactor) -> Rendered {
    render_bounded(prepared, performed, redactor, MAX_RESULT_CHARS).0
}

/// Works as [`render_result`], with at most `most_chars` characters. Returns the whole text beside it where that is longer;
/// what a URL answered has its own limit.
pub fn render_bounded(
    prepared: &Prepared,
    performed: &mut PerformedOutcome,
    redactor: &Redactor,
    most_chars: usize,
) -> (Rendered, Option<Clean>) {
    // Secrets are masked before anything is formatted, so that no format can break them apart.
    let masked = performed.scrub_secrets(redactor);
    let performed = &*performed;
    let label = result_label(prepared, performed);
    let (text, outcome) = render_text(prepared, performed, usize::MAX);
    // The text of the network has its own limit.
    let fetched = matches!(performed, PerformedOutcome::Fetched { .. });
    let most = if fetched { usize::MAX } else { most_chars };
    // Rendering can reveal a secret that was encoded before, for instance as entities of a page.
    let clean = |text: String| redactor.clean_text(text).with_masked(masked.clone());
    if text.len() <= most || text.chars().count() <= most {
        return (Rendered { text: clean(text), label, outcome }, None);
    }
    let whole = clean(text);
    let (short, _) = render_text(prepared, performed, most);
    let short = clean(cut_middle(&short, most).into_owned());
    (Rendered { text: short, label, outcome }, Some(whole))
}

/// Returns the text of an outcome, in which each stream of a program has at most half of `most_chars`.
fn render_text(
    prepared: &Prepared,
    performed: &PerformedOutcome,
    most_chars: usize,
) -> (String, ToolOutcome) {
    match performed {
        PerformedOutcome::Exec { end, stdout, stderr, dropped_bytes } => {
            let outcome = exec_outcome(*end, reaches_out(&prepared.action));
            (render_exec((*end, outcome), (stdout, stderr), *dropped_bytes, most_chars), outcome)
        }
        PerformedOutcome::Text { first_line, text, total_lines, form } => {
            let conventions = lines::describe_conventions(*form);
            (lines::number_lines(*first_line, text, *total_lines) + &conventions, ToolOutcome::Done)
        }
        PerformedOutcome::Listing { entries, more } => (render_listing(entries, *more), ToolOutcome::Done),
        PerformedOutcome::Matches { matches, more } => {
            (lines::render_matches(matches, *more), ToolOutcome::Done)
        }
        PerformedOutcome::Written { files } => (render_written(files), ToolOutcome::Done),
        PerformedOutcome::Memories { hits, note } => {
            (render_memories(hits, note.as_deref()), ToolOutcome::Done)
        }
        PerformedOutcome::Remembered { id } => (format!("remembered as {id}"), ToolOutcome::Done),
        PerformedOutcome::Fetched { status, url, media, body, truncated } => {
            // An error page is shown, and counts as a failure.
            let outcome = if *status < 400 { ToolOutcome::Done } else { ToolOutcome::Failed };
            (web::render_fetched(*status, url, media, body, *truncated), outcome)
        }
        PerformedOutcome::Saved { status, url, media, path, bytes } => {
            (web::render_saved(*status, url, media, path, *bytes), ToolOutcome::Done)
        }
        PerformedOutcome::Searched { hits } => (web::render_hits(hits), ToolOutcome::Done),
        PerformedOutcome::Subscribed { id, turns } => (
            format!("subscription {id}: in the context from the next turn on, for {turns} turns"),
            ToolOutcome::Done,
        ),
        PerformedOutcome::Unsubscribed { id } => (format!("subscription {id} has ended"), ToolOutcome::Done),
        PerformedOutcome::Reachable { host, port } => {
            (format!("{host}:{port} can be reached now; try again"), ToolOutcome::Done)
        }
        PerformedOutcome::Called { text, structured, is_error, .. } => {
            foreign::render_answer(text, structured.as_ref(), *is_error)
        }
        PerformedOutcome::Part { tool, text, from, total, .. } => {
            (render_part((tool, text), *from, *total), ToolOutcome::Done)
        }
        PerformedOutcome::Planned { steps, until } => {
            // A plan of the autopilot has units in place of steps.
            let done = match steps {
                0 => "its work is done without asking".to_owned(),
                steps => format!("its {steps} steps are done without asking, each call as its step says"),
            };
            let text = format!("the plan is approved until {until}: {done}");
            (text, ToolOutcome::Done)
        }
        PerformedOutcome::Said => ("the message was sent".to_owned(), ToolOutcome::Done),
        PerformedOutcome::Sent { name, bytes } => {
            (format!("the user has {} ({bytes} bytes)", one_line(name, MAX_NAME_CHARS)), ToolOutcome::Done)
        }
        PerformedOutcome::Failed { report } => (render_failure(report), ToolOutcome::Failed),
        PerformedOutcome::Doubtful { report } => (render_failure(report), ToolOutcome::Unknown),
    }
}

/// Says which part of a result it is, and where the next one begins.
fn render_part((tool, text): (&str, &str), from: u64, total: u64) -> String {
    let count = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
    let last = from.saturating_add(count).saturating_sub(1);
    if count == 0 {
        return format!(
            "(nothing there: the result of {} has {total} characters)",
            one_line(tool, MAX_NAME_CHARS)
        );
    }
    let more =
        if last < total { format!("\n[it goes on: from {}]", last.saturating_add(1)) } else { String::new() };
    format!(
        "[characters {from} to {last} of {total} of what {} returned]\n{text}{more}",
        one_line(tool, MAX_NAME_CHARS)
    )
}

/// The values of a structured result without a secret in them: an argument that is one of these was not composed. Of a
/// search, the addresses.
pub fn result_fields(performed: &PerformedOutcome, redactor: &Redactor) -> Vec<Field> {
    let mut fields = collect_leaves(performed);
    // A field with a masked value could be a wrong value, so it is left out.
    let is_clean = |text: &str| matches!(redactor.mask_text(text), Cow::Borrowed(_));
    fields.retain(|field| is_clean(&field.value) && is_clean(&field.path));
    fields
}

fn collect_leaves(performed: &PerformedOutcome) -> Vec<Field> {
    match performed {
        PerformedOutcome::Searched { hits } => {
            let urls: Vec<_> = hits.iter().map(|hit| json!({ "url": hit.url })).collect();
            // Only the URLs of hits are fields: titles and excerpts are text.
            Field::fields_of(&urls.into())
        }
        PerformedOutcome::Called { structured: Some(structured), is_error: false, .. } => {
            Field::fields_of(structured)
        }
        PerformedOutcome::Called { .. }
        | PerformedOutcome::Exec { .. }
        | PerformedOutcome::Text { .. }
        | PerformedOutcome::Listing { .. }
        | PerformedOutcome::Matches { .. }
        | PerformedOutcome::Written { .. }
        | PerformedOutcome::Memories { .. }
        | PerformedOutcome::Remembered { .. }
        | PerformedOutcome::Fetched { .. }
        | PerformedOutcome::Saved { .. }
        | PerformedOutcome::Subscribed { .. }
        | PerformedOutcome::Unsubscribed { .. }
        | PerformedOutcome::Reachable { .. }
        | PerformedOutcome::Planned { .. }
        | PerformedOutcome::Part { .. }
        | PerformedOutcome::Said
        | PerformedOutcome::Sent { .. }
        | PerformedOutcome::Failed { .. }
        | PerformedOutcome::Doubtful { .. } => Vec::new(),
    }
}

/// Returns the label of the result: output of programs and files is external, even where the owner asked for
/// it.
fn result_label(prepared: &Prepared, performed: &PerformedOutcome) -> Label {
    let source = |detail: &str| {
        let detail = one_line(detail, MAX_DETAIL_CHARS);
        Label::from_source(Taint::External, Source { origin: prepared.tool.clone(), detail, entry: None })
    };
    let kind = prepared.action.kind();
    let from_action = if let Action::Exec(exec) = &prepared.action {
        let label = source(exec.argv.first().map_or("", String::as_str));
        // Others may have sent something to a program that reaches a host.
        Some(if exec.hosts.is_empty() { label.mark_inside() } else { label })
    } else if let Action::ReadFile(read) = &prepared.action {
        Some(source(read_detail(read)).mark_inside())
    } else if let Action::Fetch(fetch) = &prepared.action {
        Some(source(&fetch.url).mark_public())
    } else if let Action::Search(search) = &prepared.action {
        Some(source(&search.query).mark_public())
    } else {
        // Results that the table does not call external rest on the label of the request.
        kind.row().returns_external.then(|| source(kind.as_str()))
    };
    let mut label = from_action.unwrap_or_else(|| prepared.label.clone());
    if let PerformedOutcome::Called { server, tool, taint, public, readers, secret, .. } = performed {
        let detail = one_line(&format!("{server}/{tool}"), MAX_DETAIL_CHARS);
        let source = Source { origin: prepared.tool.clone(), detail, entry: None };
        label = Label::from_source(*taint, source);
        // The server's declaration replaces the default: external, private, without readers.
        label.private = !*public;
        label = label.read_by(readers.iter().cloned());
        label.secret = *secret;
    }
    if let PerformedOutcome::Part { label: whole, .. } = performed {
        label = (**whole).clone();
    }
    if let PerformedOutcome::Memories { hits, note: _ } = performed {
        // No readers are known for a memory, even where those of the text that it is searched for are known.
        label = label.read_by([]);
        for hit in hits {
            let source = Source { origin: prepared.tool.clone(), detail: hit.id.to_string(), entry: None };
            label.join(&Label { secret: hit.secret, ..Label::from_source(hit.taint, source) });
        }
    }
    label
}

fn read_detail(read: &ReadFile) -> &str {
    if read.path.is_empty() { "." } else { &read.path }
}

/// Returns true if a program may change things outside its sandbox.
const fn reaches_out(action: &Action) -> bool {
    matches!(action, Action::Exec(exec) if !exec.hosts.is_empty())
}

/// The outcome of a program that was cut off is unknown if it could reach hosts.
const fn exec_outcome(end: ExecEnd, reaches_out: bool) -> ToolOutcome {
    match end {
        ExecEnd::Code(0) => ToolOutcome::Done,
        ExecEnd::Code(_) => ToolOutcome::Failed,
        // The program may have changed something at a host before it was stopped.
        ExecEnd::Signal(_) | ExecEnd::TimedOut(_) | ExecEnd::Limit(_) | ExecEnd::Cancelled if reaches_out => {
            ToolOutcome::Unknown
        }
        ExecEnd::Signal(_) | ExecEnd::TimedOut(_) | ExecEnd::Limit(_) => ToolOutcome::Failed,
        ExecEnd::Cancelled => ToolOutcome::Cancelled,
    }
}

/// Only the output where a program did well and wrote nothing else; else how it ended and both streams.
fn render_exec(
    (end, outcome): (ExecEnd, ToolOutcome),
    (stdout, stderr): (&str, &str),
    dropped_bytes: u64,
    most_chars: usize,
) -> String {
    let (stdout, stderr) = (trim_end_line(stdout), trim_end_line(stderr));
    let dropped = match dropped_bytes {
        0 => String::new(),
        bytes => format!("\n[{bytes} bytes of output were over the limit and are missing]"),
    };
    let mut ended = match end {
        ExecEnd::Code(code) => format!("exit code {code}"),
        ExecEnd::Signal(signal) => format!("killed by signal {signal}"),
        ExecEnd::TimedOut(ms) => format!("killed: it took longer than {} seconds", ms.div_ceil(1_000)),
        ExecEnd::Limit(limit) => format!("killed: over the limit of {limit}"),
        ExecEnd::Cancelled => "stopped before it ended".to_owned(),
    };
    if outcome == ToolOutcome::Unknown {
        push_text(&mut ended, format_args!("; {UNKNOWN}"));
    }
    let well = end == ExecEnd::Code(0);
    match (stdout.is_empty(), stderr.is_empty()) {
        (true, true) => format!("({ended}, no output){dropped}"),
        (false, true) if well => format!("{stdout}{dropped}"),
        (false, true) => format!("({ended})\n{stdout}{dropped}"),
        (true, false) => format!("({ended})\nstandard error:\n{stderr}{dropped}"),
        (false, false) => {
            // Each stream keeps its half, so that a long output cannot push the error message out.
            let half = (most_chars / 2).saturating_sub(MAX_NAME_CHARS);
            let (stdout, stderr) = (cut_middle(stdout, half), cut_middle(stderr, half));
            format!("({ended})\nstandard output:\n{stdout}\nstandard error:\n{stderr}{dropped}")
        }
    }
}

fn trim_end_line(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

fn render_listing(entries: &[Listed], more: u64) -> String {
    if entries.is_empty() {
        return "(the folder is empty)".to_owned();
    }
    let mut out = String::new();
    for entry in entries {
        let name = one_line(&entry.name, MAX_NAME_CHARS);
        match entry.kind {
            ListedKind::File(bytes) => push_text(&mut out, format_args!("{name}  {bytes} bytes\n")),
            ListedKind::Folder => push_text(&mut out, format_args!("{name}/\n")),
            ListedKind::Link => push_text(&mut out, format_args!("{name}  (link)\n")),
            ListedKind::Other => push_text(&mut out, format_args!("{name}  (special file)\n")),
        }
    }
    if more > 0 {
        push_text(&mut out, format_args!("[{more} more entries]\n"));
    }
    trim_end_line(&out).to_owned()
}

fn render_written(files: &[(String, ChangeKind, u64)]) -> String {
    let mut out = String::new();
    for (path, kind, bytes) in files {
        let path = one_line(path, MAX_NAME_CHARS);
        match kind {
            ChangeKind::Create => push_text(&mut out, format_args!("created {path} ({bytes} bytes)\n")),
            ChangeKind::Modify => push_text(&mut out, format_args!("changed {path} (now {bytes} bytes)\n")),
            ChangeKind::Delete => push_text(&mut out, format_args!("deleted {path}\n")),
        }
    }
    trim_end_line(&out).to_owned()
}

fn render_memories(hits: &[RecalledMemory], note: Option<&str>) -> String {
    let mut out = String::new();
    if let Some(note) = note {
        push_text(&mut out, format_args!("({note})\n"));
    } else if hits.is_empty() {
        push_text(&mut out, format_args!("(nothing is remembered about this)\n"));
    }
    for RecalledMemory { id, text, kind, trust, taint, secret: _ } in hits {
        let text = cut_end(text, MAX_LINE_CHARS);
        let (kind, trust) = (kind_name(*kind), trust_name(*trust));
        push_text(&mut out, format_args!("[{id}] ({kind}, {trust}, {taint}) {text}\n"));
    }
    trim_end_line(&out).to_owned()
}

const fn kind_name(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Fact => "fact",
        MemoryKind::Episode => "episode",
        MemoryKind::Preference => "preference",
        MemoryKind::Procedure => "procedure",
        MemoryKind::Profile => "profile",
    }
}

const fn trust_name(trust: MemoryTrust) -> &'static str {
    match trust {
        MemoryTrust::Working => "working",
        MemoryTrust::Verified => "verified",
        MemoryTrust::Constitutional => "constitutional",
    }
}

fn render_failure(report: &Report) -> String {
    if report.hint.is_empty() {
        format!("failed: {}", report.outside)
    } else {
        format!("failed: {} ({})", report.outside, report.hint)
    }
}

fn push_text(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _infallible = out.write_fmt(text);
}

#[cfg(test)]
mod tests;
