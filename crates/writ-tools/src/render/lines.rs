//! Lines of files: those that were read, and those that match a search.

use writ_types::encoding::{LineEnds, TextForm};

use super::{MAX_LINE_CHARS, MAX_NAME_CHARS, push_text, trim_end_line};
use crate::outcome::{LineWindow, Matched};
use crate::text::{cut_end, one_line};

/// Numbered lines of a file.
pub(super) fn number_lines(first_line: u64, text: &str, total_lines: u64) -> String {
    let mut out = String::new();
    let mut next = first_line;
    for line in text.lines() {
        push_text(&mut out, format_args!("{next:>6}  {}\n", cut_end(line, MAX_LINE_CHARS)));
        next = next.saturating_add(1);
    }
    if total_lines == 0 {
        return "(the file is empty)".to_owned();
    }
    if next == first_line {
        return format!("(the file has {total_lines} lines; there is no line {first_line})");
    }
    if next <= total_lines {
        push_text(
            &mut out,
            format_args!("[{} more lines; go on with \"first_line\": {next}]\n", total_lines - next + 1),
        );
    }
    trim_end_line(&out).to_owned()
}

/// Says which conventions a file has, where they are not the usual ones; an edit keeps them.
pub(super) fn describe_conventions(form: TextForm) -> String {
    let mut said = Vec::new();
    if !form.encoding.is_utf8() {
        said.push(format!("encoding {}", form.encoding.as_str()));
    }
    if form.mark {
        said.push("begins with a byte order mark".to_owned());
    }
    match form.ends {
        LineEnds::Lf => {}
        LineEnds::Crlf => said.push("lines end with \\r\\n".to_owned()),
        LineEnds::Mixed => said.push("some lines end with \\r\\n, others with \\n".to_owned()),
    }
    if !form.last_end {
        said.push("the last line has no end".to_owned());
    }
    if said.is_empty() {
        return String::new();
    }
    format!("\n[{}; edits keep this]", said.join("; "))
}

/// Lines that match a search; of a long line the part around the match, with its column.
pub(super) fn render_matches(matches: &[Matched], more: bool) -> String {
    if matches.is_empty() {
        return "(no match)".to_owned();
    }
    let mut out = String::new();
    for Matched { path, line, text, window } in matches {
        let (path, text) = (one_line(path, MAX_NAME_CHARS), cut_end(text, MAX_LINE_CHARS));
        match window {
            None => push_text(&mut out, format_args!("{path}:{line}: {text}\n")),
            Some(LineWindow { column, cut_before, cut_after }) => {
                let mark = |cut: bool| if cut { "…" } else { "" };
                let (before, after) = (mark(*cut_before), mark(*cut_after));
                push_text(&mut out, format_args!("{path}:{line}:{column}: {before}{text}{after}\n"));
            }
        }
    }
    if more {
        out.push_str("[there may be more matches; narrow the search]\n");
    }
    trim_end_line(&out).to_owned()
}
