//! Streamed text on a terminal: shown as it comes, wrapped at words, with the marks of Markdown as colour.
//!
//! A line that is not whole yet stands on the last row, and is written over when more of it comes. That holds also above the
//! line that a person is typing, which takes whole rows alone.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::renderer::Paint;

/// Goes back to the row above and clears it.
const OVERWRITE: &str = "\u{1b}[A\r\u{1b}[2K";

/// The columns of a terminal that does not say how many it has.
pub const USUAL_COLUMNS: usize = 80;

/// The fewest columns that text is wrapped to.
const MIN_COLUMNS: usize = 20;

/// The terminal's view of the streamed text.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    /// The line that is not whole yet, as far as it stands on no row of its own.
    partial: String,
    /// The partial line, or the sign of life, stands on the last row.
    is_shown: bool,
    /// True while the progress sign is shown.
    is_waiting: bool,
    /// A row of the partial line stands above already.
    is_continued: bool,
    /// Within a block of code.
    in_code: bool,
}

impl Screen {
    /// Takes more text; returns what is to be written.
    pub(crate) fn push_text(&mut self, text: &str, paint: Paint, columns: usize) -> String {
        // The last column stays free: some terminals wrap there.
        let columns = columns.max(MIN_COLUMNS).saturating_sub(1);
        let mut out = self.overwrite_line();
        self.partial.push_str(text);
        while let Some(end) = self.partial.find('\n') {
            let rest = self.partial.split_off(end.saturating_add(1));
            let line = std::mem::replace(&mut self.partial, rest);
            self.wrap_line(line.trim_end_matches('\n'), true, paint, columns, &mut out);
        }
        let line = std::mem::take(&mut self.partial);
        self.partial = self.wrap_line(&line, false, paint, columns, &mut out);
        if !self.partial.is_empty() {
            out.push_str(&self.style_row(&self.partial, paint));
            out.push('\n');
            self.is_shown = true;
        }
        out
    }

    /// Shows that something is worked on; returns what is to be written.
    pub(crate) fn show_wait(&mut self, seconds: u64, paint: Paint) -> String {
        if !self.partial.is_empty() {
            return String::new();
        }
        let out = self.overwrite_line();
        (self.is_shown, self.is_waiting) = (true, true);
        out + &paint.dim(&format!("… {seconds} s")) + "\n"
    }

    /// Ends the line, before something else is written; returns what is to be written first.
    pub(crate) fn end_text(&mut self) -> String {
        let out = if self.is_waiting { self.overwrite_line() } else { String::new() };
        let line = std::mem::take(&mut self.partial);
        self.note_code(&line);
        (self.is_shown, self.is_waiting, self.is_continued) = (false, false, false);
        out
    }

    /// Notes that the person has ended a row below: what is shown stays, and more of it goes on a row of its own.
    pub(crate) fn leave_line(&mut self) {
        if self.is_shown && !self.is_waiting {
            self.partial.clear();
            self.is_continued = true;
        }
        (self.is_shown, self.is_waiting) = (false, false);
    }

    fn overwrite_line(&mut self) -> String {
        let is_shown = std::mem::take(&mut self.is_shown);
        self.is_waiting = false;
        if is_shown { OVERWRITE.to_owned() } else { String::new() }
    }

    /// Writes the rows of a line that are full, and the last one of a whole line; returns what is left.
    fn wrap_line(
        &mut self,
        line: &str,
        is_whole: bool,
        paint: Paint,
        columns: usize,
        out: &mut String,
    ) -> String {
        let mut rest = line;
        // Code is not wrapped, so that it can be copied.
        while !self.in_code && rest.width() > columns {
            let at = break_at(rest, columns);
            let (row, after) = rest.split_at(at);
            out.push_str(&self.style_row(row.trim_end(), paint));
            out.push('\n');
            self.is_continued = true;
            rest = after.trim_start();
        }
        if !is_whole {
            return rest.to_owned();
        }
        if !(rest.is_empty() && self.is_continued) {
            out.push_str(&self.style_row(rest, paint));
            out.push('\n');
        }
        self.note_code(line);
        self.is_continued = false;
        String::new()
    }

    fn note_code(&mut self, line: &str) {
        // A wrapped row that happens to begin with backticks opens no code block.
        if !self.is_continued && line.trim_start().starts_with("```") {
            self.in_code = !self.in_code;
        }
    }

    /// A row with its marks as colour.
    fn style_row(&self, row: &str, paint: Paint) -> String {
        let start = row.trim_start();
        if start.starts_with("```") {
            return paint.dim(row);
        }
        if self.in_code {
            return paint.cyan(row);
        }
        if !self.is_continued {
            let heading = start.trim_start_matches('#');
            let level = start.len().saturating_sub(heading.len());
            if (1..=6).contains(&level) && heading.starts_with(' ') {
                return paint.bold(heading.trim());
            }
            if start.starts_with("> ") {
                return paint.dim(row);
            }
            let indent = row.len().saturating_sub(start.len());
            if let Some(item) = start.strip_prefix("- ").or_else(|| start.strip_prefix("* ")) {
                return format!("{}• {}", " ".repeat(indent), style_inline(item, paint));
            }
        }
        style_inline(row, paint)
    }
}

/// The place where a text is broken: after the last blank that fits, or within a word that is too long.
fn break_at(text: &str, columns: usize) -> usize {
    let (mut width, mut blank) = (0_usize, None);
    for (at, letter) in text.char_indices() {
        width = width.saturating_add(letter.width().unwrap_or(0));
        if width > columns {
            // Without a blank the word itself is cut; at least one character, so that the loop ends.
            return blank.filter(|at| *at > 0).unwrap_or(at).max(1);
        }
        if letter == ' ' {
            blank = Some(at.saturating_add(1));
        }
    }
    text.len()
}

/// Code and bold text within a row.
fn style_inline(row: &str, paint: Paint) -> String {
    let mut out = String::new();
    let mut rest = row;
    while let Some(at) = rest.find(['`', '*']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let (mark, is_code) = if from.starts_with('`') { ("`", true) } else { ("**", false) };
        let inner = from.strip_prefix(mark).and_then(|inner| inner.split_once(mark));
        // Marks around blanks are ordinary characters, as in a multiplication.
        match inner.filter(|(text, _)| !text.is_empty() && text.trim() == *text) {
            Some((text, after)) => {
                out.push_str(&if is_code { paint.cyan(text) } else { paint.bold(text) });
                rest = after;
            }
            None => {
                let (letter, after) = from.split_at(1);
                out.push_str(letter);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows that a terminal shows after these writings.
    fn rows(writings: &[String]) -> Vec<String> {
        let mut rows: Vec<String> = Vec::new();
        for writing in writings {
            let mut rest = writing.as_str();
            while let Some(after) = rest.strip_prefix(OVERWRITE) {
                rows.pop();
                rest = after;
            }
            assert!(rest.is_empty() || rest.ends_with('\n'), "{writing:?}");
            rows.extend(rest.lines().map(str::to_owned));
        }
        rows
    }

    #[test]
    fn pieces_are_shown_at_once_and_a_line_once() {
        let mut screen = Screen::default();
        let first = screen.push_text("Hello, ", Paint::Plain, 80);
        assert_eq!(first, "Hello, \n", "it waits for no line end");
        let all = vec![
            first,
            screen.push_text("you\nand", Paint::Plain, 80),
            screen.push_text(" me\n", Paint::Plain, 80),
        ];
        assert_eq!(rows(&all), ["Hello, you", "and me"]);
    }

    #[test]
    fn lines_are_wrapped_at_words_by_their_width() {
        let text = "one two three four five six seven";
        for pieces in [vec![text], text.split_inclusive(' ').collect(), text.split("").collect()] {
            let mut screen = Screen::default();
            let mut all: Vec<String> =
                pieces.iter().map(|piece| screen.push_text(piece, Paint::Plain, 21)).collect();
            all.push(screen.push_text("\n", Paint::Plain, 21));
            assert_eq!(rows(&all), ["one two three four", "five six seven"]);
        }
        let mut screen = Screen::default();
        let wide = screen.push_text(&"漢字".repeat(12), Paint::Plain, 21);
        assert!(wide.lines().all(|row| row.width() <= 20), "{wide}");
        let long = "x".repeat(50);
        assert_eq!(rows(&[Screen::default().push_text(&long, Paint::Plain, 21)]).concat(), long);
    }

    #[test]
    fn a_person_who_types_and_a_sign_of_life_take_nothing_away() {
        let mut screen = Screen::default();
        let mut all = vec![screen.show_wait(2, Paint::Plain), screen.show_wait(3, Paint::Plain)];
        all.push(screen.push_text("Half a ", Paint::Plain, 80));
        assert_eq!(rows(&all), ["Half a "]);
        screen.leave_line();
        let more = screen.push_text("line\n", Paint::Plain, 80);
        assert_eq!(more, "line\n", "the row that was typed is not written over");
        screen.show_wait(4, Paint::Plain);
        assert_eq!((screen.end_text(), screen.end_text()), (OVERWRITE.to_owned(), String::new()));
    }

    #[test]
    fn marks_become_colour() {
        let shown = |text: &str| Screen::default().push_text(&format!("{text}\n"), Paint::Color, 80);
        assert_eq!(shown("# Title"), "\u{1b}[1mTitle\u{1b}[0m\n");
        assert_eq!(shown("- a `b` **c**"), "• a \u{1b}[36mb\u{1b}[0m \u{1b}[1mc\u{1b}[0m\n");
        assert_eq!(shown("2 * 3 ** 4 `"), "2 * 3 ** 4 `\n");
        assert_eq!(shown("#hash"), "#hash\n");
        let code = shown("```rust\nlet a = **b;\n```\n**c**");
        assert!(
            code.contains("\u{1b}[36mlet a = **b;\u{1b}[0m") && code.contains("\u{1b}[1mc\u{1b}[0m"),
            "{code:?}"
        );
    }
}
