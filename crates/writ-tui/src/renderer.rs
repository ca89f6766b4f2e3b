//! Renders the engine's frames.

use std::io::{self, Write};

use writ_types::entry::Decision;
use writ_types::error::Exit;
use writ_types::frame::{Choice, Numbered, ServerFrame, WorkNews};
use writ_types::id::TurnId;
use writ_types::taint::Taint;
use writ_types::visible::{escape_line, escape_text};

use crate::card;
use crate::config::{Color, Surroundings};
use crate::screen::Screen;

/// The most streamed text that is remembered to compare it with the complete message, in bytes.
const MAX_STREAMED_BYTES: usize = 1024 * 1024;

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenderMode {
    /// For people.
    Text(Paint),
    /// Each frame as one line of JSON, unchanged.
    Json,
}

impl RenderMode {
    /// The mode for people, with colour where it is wanted and possible.
    pub const fn text_mode(color: Color, surroundings: Surroundings) -> Self {
        Self::Text(if color.applies_to(surroundings) { Paint::Color } else { Paint::Plain })
    }
}

/// The use of colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// With ANSI colours.
    Color,
    /// Without.
    Plain,
}

/// Writes frames.
#[derive(Debug)]
pub struct Renderer<W> {
    out: W,
    mode: RenderMode,
    /// The turn that streams its text, and the text written of it since its last complete message.
    streamed: Option<(TurnId, String)>,
    /// The reasoning that came last, which is shown folded.
    reasoning: String,
    /// True if the last line is open.
    open_line: bool,
    /// A terminal that can write over its last row, and how many columns it has now.
    screen: Option<(Screen, fn() -> usize)>,
}

/// The characters of a reasoning that its line shows.
const FOLDED_CHARS: usize = 60;

/// Returns the line that stands for a reasoning: its length and its beginning.
fn fold_reasoning(text: &str) -> String {
    let words = text.split_whitespace().count();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let begin: String = line.chars().take(FOLDED_CHARS).collect();
    let more = if begin.len() < line.len() { "…" } else { "" };
    format!("reasoned in {words} words: {}{more}", escape_line(&begin))
}

impl<W: Write> Renderer<W> {
    /// A renderer that writes to `out`.
    pub const fn new(out: W, mode: RenderMode) -> Self {
        Self { out, mode, streamed: None, reasoning: String::new(), open_line: false, screen: None }
    }

    /// The same on a terminal: streamed text is shown as it comes, wrapped and in colour. Without colour, where a terminal may
    /// be able to do nothing else either, text is written as it is.
    #[must_use]
    pub fn on_screen(mut self, columns: fn() -> usize) -> Self {
        // Only a colour terminal can be overwritten; other outputs get each text once.
        self.screen =
            matches!(self.mode, RenderMode::Text(Paint::Color)).then(|| (Screen::default(), columns));
        self
    }

    /// Shows that something is worked on, and for how long, where nothing else is shown.
    ///
    /// # Errors
    ///
    /// If the writer fails.
    pub fn show_wait(&mut self, seconds: u64) -> io::Result<()> {
        let (Some((screen, _)), RenderMode::Text(paint)) = (&mut self.screen, self.mode) else {
            return Ok(());
        };
        self.out.write_all(screen.show_wait(seconds, paint).as_bytes())?;
        self.out.flush()
    }

    /// Notes that the person has ended the line that was being typed below.
    pub fn leave_row(&mut self) {
        if let Some((screen, _)) = &mut self.screen {
            screen.leave_line();
        }
    }

    /// Returns the lines of the reasoning that came last, escaped; none: no reasoning was shown.
    pub fn unfold_reasoning(&self) -> Vec<String> {
        escape_text(&self.reasoning).lines().map(str::to_owned).collect()
    }

    /// Gives the writer back.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Writes a frame and flushes.
    ///
    /// # Errors
    ///
    /// If the writer fails.
    pub fn write_frame(&mut self, numbered: &Numbered) -> io::Result<()> {
        match self.mode {
            RenderMode::Json => {
                serde_json::to_writer(&mut self.out, numbered)?;
                self.out.write_all(b"\n")?;
            }
            RenderMode::Text(paint) => self.write_text(paint, &numbered.frame)?,
        }
        self.out.flush()
    }

    fn write_text(&mut self, paint: Paint, frame: &ServerFrame) -> io::Result<()> {
        match frame {
            ServerFrame::Hello { session, turn: 0, .. } => {
                self.write_line(&paint.dim(&format!("session {session}")))
            }
            ServerFrame::Hello { session, turn, .. } => {
                self.write_line(&paint.dim(&format!("session {session}, after turn {turn}")))
            }
            ServerFrame::Accepted { .. } => Ok(()),
            ServerFrame::Delta { turn, text } => self.write_delta(*turn, text),
            ServerFrame::Text { turn, text } => self.write_message(*turn, text),
            ServerFrame::Reasoning { text, .. } => {
                text.clone_into(&mut self.reasoning);
                self.write_line(&paint.dim(&fold_reasoning(text)))
            }
            ServerFrame::Tool { tool, state, summary, .. } => {
                // Text before a step is not part of the closing message.
                self.streamed = None;
                let step = format!("* {} {}", escape_line(tool), escape_line(state));
                let step =
                    if summary.is_empty() { step } else { format!("{step}: {}", escape_line(summary)) };
                self.write_line(&paint.paint_step(state, &step))
            }
            ServerFrame::Message { turn, text, last, exit, .. } => {
                self.write_message(*turn, text)?;
                if *last { self.write_end(paint, *exit) } else { Ok(()) }
            }
            ServerFrame::File { name, bytes, path, taint, .. } => {
                let from = if *taint == Taint::External { ", depends on external content" } else { "" };
                let (name, path) = (escape_line(name), escape_line(path));
                self.write_line(&paint.bold(&format!("file {name} ({bytes} bytes{from}): {path}")))
            }
            ServerFrame::GateApproval { gate, point, reason, shown, choices, .. } => {
                self.write_question(paint, [gate, point, reason, shown], choices)
            }
            ServerFrame::Checkpoint { name, .. } => {
                self.write_line(&paint.dim(&format!("checkpoint {}", escape_line(name))))
            }
            ServerFrame::Reset { text } => self.write_line(&paint.dim(&escape_line(text))),
            ServerFrame::ApprovalRequest(request) => {
                self.close_line()?;
                card::write_card(&mut self.out, paint, request)
            }
            ServerFrame::ApprovalResolved { ask_id, state, text, undo, .. } => {
                let resolved = format!("approval {ask_id} {}: {}", escape_line(state), escape_line(text));
                self.write_line(&paint.dim(&resolved))?;
                match undo {
                    Some(_) => {
                        self.write_line(&paint.dim("within 5 minutes, `writ apply --undo` takes it back"))
                    }
                    None => Ok(()),
                }
            }
            ServerFrame::Status { text } => self.write_line(&paint.dim(&escape_line(text))),
            ServerFrame::Work(news) => self.write_work(paint, news),
            ServerFrame::Answer { result, .. } => {
                let pretty = serde_json::to_string_pretty(result)?;
                self.write_line(&escape_text(&pretty))
            }
            ServerFrame::Error { code, text, hint, .. } => {
                let error = format!("error: {} ({})", escape_line(text), escape_line(code));
                self.write_line(&paint.red(&error))?;
                if hint.is_empty() { Ok(()) } else { self.write_line(&format!("  {}", escape_line(hint))) }
            }
        }
    }

    /// Writes the progress of a work: one line with its step, and its text below, indented.
    fn write_work(&mut self, paint: Paint, news: &WorkNews) -> io::Result<()> {
        let step =
            if news.step.is_empty() { String::new() } else { format!(", {}", escape_line(&news.step)) };
        let (done, steps, name) = (news.steps_done, news.steps, escape_line(&news.name));
        let head = format!("work {name} ({done}/{steps}{step}): {}", news.state.name());
        self.write_line(&paint.bold(&head))?;
        // Line by line: the text is the agent's, and must not look like a head of its own.
        for line in news.text.lines() {
            self.write_line(&format!("  {}", escape_line(line)))?;
        }
        Ok(())
    }

    fn write_delta(&mut self, turn: TurnId, text: &str) -> io::Result<()> {
        let streamed = match &mut self.streamed {
            Some((streaming, streamed)) if *streaming == turn => streamed,
            other => &mut other.insert((turn, String::new())).1,
        };
        // Beyond the bound the closing message is printed in full.
        if streamed.len() + text.len() <= MAX_STREAMED_BYTES {
            streamed.push_str(text);
        }
        if let (Some((screen, columns)), RenderMode::Text(paint)) = (&mut self.screen, self.mode) {
            let shown = screen.push_text(&escape_text(text), paint, columns());
            return self.out.write_all(shown.as_bytes());
        }
        self.out.write_all(escape_text(text).as_bytes())?;
        if !text.is_empty() {
            self.open_line = !text.ends_with('\n');
        }
        Ok(())
    }

    /// Writes the question of a gate, or of a server of tools.
    fn write_question(&mut self, paint: Paint, frame: [&String; 4], choices: &[Choice]) -> io::Result<()> {
        let [gate, point, reason, shown] = frame.map(String::as_str);
        let (gate, reason) = (escape_line(gate), escape_line(reason));
        let asks = match point {
            "server" => {
                format!("the server '{}' asks you; {reason}:", gate.trim_start_matches("mcp:"))
            }
            "output" => format!("gate '{gate}' asks about what the agent would say: {reason}"),
            _ => format!("gate '{gate}' asks about your message: {reason}"),
        };
        self.write_line(&paint.yellow(&asks))?;
        self.write_line(&escape_text(shown))?;
        for choice in choices {
            let word = match choice.decision {
                Decision::Approve => "y",
                Decision::Deny => "n",
            };
            self.write_line(&format!("  {word}: {}", escape_line(&choice.consequence)))?;
        }
        Ok(())
    }

    /// Writes a complete message, unless it has been streamed already, word for word.
    fn write_message(&mut self, turn: TurnId, text: &str) -> io::Result<()> {
        let streamed = self.streamed.take().filter(|(streaming, _)| *streaming == turn);
        let streamed = streamed.map(|(_, streamed)| streamed).unwrap_or_default();
        // A message that goes on after what was streamed is written from there on.
        let rest = text.trim().strip_prefix(streamed.trim()).unwrap_or(text).trim();
        self.close_line()?;
        if rest.is_empty() {
            return Ok(());
        }
        if let (Some((screen, columns)), RenderMode::Text(paint)) = (&mut self.screen, self.mode) {
            let shown = screen.push_text(&format!("{}\n", escape_text(rest)), paint, columns());
            return self.out.write_all(shown.as_bytes());
        }
        self.write_line(&escape_text(rest))
    }

    fn write_end(&mut self, paint: Paint, exit: Exit) -> io::Result<()> {
        // Every exit code has its words; a success needs none.
        let how = match exit {
            Exit::Done => return Ok(()),
            Exit::Waiting => "waits for an approval: `writ approvals list`",
            Exit::Denied => "ended: something it needed was denied",
            Exit::Budget => "ended: the budget or the number of tool calls is used up",
            Exit::Model => "ended: the model is unavailable or its output was not usable",
            Exit::Verification => "ended: a check failed",
            Exit::Interrupted => "cancelled",
            Exit::Blocked => "blocked: it needs a person; see `writ doctor`",
            Exit::Bug | Exit::Usage | Exit::Config | Exit::Ledger => "ended with an error",
        };
        self.write_line(&paint.yellow(&format!("[{how}]")))
    }

    /// Writes whole lines.
    fn write_line(&mut self, text: &str) -> io::Result<()> {
        self.close_line()?;
        writeln!(self.out, "{}", text.trim_end_matches('\n'))
    }

    fn close_line(&mut self) -> io::Result<()> {
        if let Some((screen, _)) = &mut self.screen {
            return self.out.write_all(screen.end_text().as_bytes());
        }
        if std::mem::take(&mut self.open_line) { self.out.write_all(b"\n") } else { Ok(()) }
    }
}

impl Paint {
    fn paint_with(self, code: &str, text: &str) -> String {
        match self {
            Self::Color => format!("\x1b[{code}m{text}\x1b[0m"),
            Self::Plain => text.to_owned(),
        }
    }

    pub(crate) fn plain_text(self, text: &str) -> String {
        match self {
            Self::Color | Self::Plain => text.to_owned(),
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint_with("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint_with("2", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.paint_with("31", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.paint_with("33", text)
    }

    pub(crate) fn cyan(self, text: &str) -> String {
        self.paint_with("36", text)
    }

    /// A tool step in the colour of its state.
    fn paint_step(self, state: &str, text: &str) -> String {
        match state {
            "failed" | "denied" => self.red(text),
            "waiting" | "unknown" => self.yellow(text),
            _ => self.dim(text),
        }
    }
}

#[cfg(test)]
mod tests;
