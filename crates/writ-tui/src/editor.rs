//! The line editor of `writ chat`.
//!
//! Keys: Enter sends; a backslash at the end of a line continues the message on the next one (it is taken away);
//! pasted text keeps its line breaks; Ctrl-C keeps the line for the next prompt (the client cancels a running turn); Esc does so
//! too, and never ends; Ctrl-D on an empty line ends; Tab completes `@` and a path of the project, and `/` and a command;
//! arrows and Ctrl-R go through the history.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use nix::sys::termios::{self, SetArg, Termios};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    Cmd, CompletionType, ConditionalEventHandler, Context, Editor, Event, EventContext, EventHandler,
    ExternalPrinter, KeyCode, KeyEvent, Modifiers, RepeatCount,
};

use crate::complete::complete_word;
use crate::config::TerminalConfig;
use crate::error::EditorError;
use crate::history::{self, History};
use crate::lines::{continues_below, read_plain};

/// The longest message that is read, in bytes: well below the largest frame.
pub const MAX_INPUT_BYTES: usize = 1024 * 1024;

/// The longest text without a line break that a [`Printer`] holds back, in bytes.
const MAX_HELD_BYTES: usize = 16 * 1024;

/// Resets the terminal's bracketed paste mode.
const BRACKETED_PASTE_OFF: &[u8] = b"\x1b[?2004l";

/// The input of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A message, possibly of several lines.
    Line(String),
    /// Ctrl-C.
    Interrupted,
    /// Esc.
    Stopped,
    /// Ctrl-D, or the end of the input.
    End,
}

/// The texts that Tab completes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completions {
    /// The project's folder; its files follow an `@`.
    pub project: Option<PathBuf>,
    /// The commands, with their slash.
    pub commands: Vec<String>,
}

/// Reads lines in a thread of its own.
///
/// The thread ends when the editor is dropped and the line under way is finished, at the latest with the process;
/// the terminal's mode is put back at once.
#[derive(Debug)]
pub struct LineEditor {
    prompts: mpsc::SyncSender<String>,
    inputs: tokio::sync::mpsc::Receiver<Result<Input, EditorError>>,
    pending: bool,
    _mode: Option<SavedMode>,
}

impl LineEditor {
    /// Starts the editor. `history` is the file that keeps what was typed, made with mode 0600.
    ///
    /// Where input or output is no terminal, lines are read as they are, without a prompt.
    ///
    /// # Errors
    ///
    /// If the terminal cannot be set up.
    pub fn start_editor(
        config: &TerminalConfig,
        history: Option<PathBuf>,
        completions: Completions,
    ) -> Result<(Self, Printer), EditorError> {
        let (prompts, requests) = mpsc::sync_channel(1);
        let (sender, inputs) = tokio::sync::mpsc::channel(1);
        // Both ends must be a terminal: with redirected output an editor's prompt would corrupt it.
        let (mode, printer) = if io::stdin().is_terminal() && io::stdout().is_terminal() {
            let mode = SavedMode::save_mode();
            let mut terminal = Terminal::new(config, history, completions)?;
            let printer = terminal.external_printer()?;
            spawn_reader(requests, sender, move |prompt| terminal.read_line(prompt))?;
            (mode, printer)
        } else {
            spawn_reader(requests, sender, |_| read_plain(&mut io::stdin().lock()))?;
            (None, Printer::plain_printer())
        };
        Ok((Self { prompts, inputs, pending: false, _mode: mode }, printer))
    }

    /// Reads a line. Safe to be cancelled: the next call goes on with the same line, under its first prompt.
    ///
    /// # Errors
    ///
    /// If the terminal cannot be read, or the line is too long or not text. Reading may go on afterwards.
    pub async fn read_input(&mut self, prompt: &str) -> Result<Input, EditorError> {
        if !self.pending {
            // Cannot block: the thread takes a prompt before it answers, and there is one at a time.
            self.prompts.try_send(prompt.to_owned()).map_err(|_| EditorError::Ended)?;
            self.pending = true;
        }
        let input = self.inputs.recv().await;
        // Only after the answer: a read that was dropped while it waited finds its line in the next call.
        self.pending = false;
        input.unwrap_or(Err(EditorError::Ended))
    }
}

fn spawn_reader(
    prompts: mpsc::Receiver<String>,
    inputs: tokio::sync::mpsc::Sender<Result<Input, EditorError>>,
    mut read: impl FnMut(&str) -> Result<Input, EditorError> + Send + 'static,
) -> Result<(), EditorError> {
    let run = move || {
        while let Ok(prompt) = prompts.recv() {
            // The receiver is dropped at the end of the conversation.
            if inputs.blocking_send(read(&prompt)).is_err() {
                break;
            }
        }
    };
    thread::Builder::new().name("writ-editor".into()).spawn(run).map_err(EditorError::Terminal)?;
    Ok(())
}

/// Writes above the line that is being typed.
///
/// While a line is being typed, text appears line by line: a text without a line break waits for one. Clones of
/// the terminal's printer do not exist: one writer keeps the order.
#[derive(Debug)]
pub struct Printer {
    terminal: Option<Above>,
    held: Vec<u8>,
}

impl Printer {
    fn plain_printer() -> Self {
        Self { terminal: None, held: Vec::new() }
    }

    /// Prints the first `len` bytes that are held.
    fn print(&mut self, len: usize) -> io::Result<()> {
        let text: Vec<u8> = self.held.drain(..len).collect();
        match &self.terminal {
            Some(above) => above.print_above(String::from_utf8_lossy(&text).into_owned()),
            None => io::stdout().lock().write_all(&text),
        }
    }
}

/// The most texts that wait for the terminal before the printer waits too.
const MAX_WAITING_TEXTS: usize = 1024;

/// The time that the end of a conversation waits for texts that the terminal has not taken.
const LAST_TEXTS: Duration = Duration::from_millis(500);

/// The thread that prints above the line.
///
/// The editor takes texts only while it reads a line, and reads the next line only when it is asked to. Who asks
/// must therefore never wait for the editor: a second text at the very moment of Enter would stop both for ever.
#[derive(Debug)]
struct Above {
    texts: Option<mpsc::SyncSender<String>>,
    failed: Arc<OnceLock<String>>,
    done: mpsc::Receiver<()>,
}

impl Above {
    fn start_printer(mut printer: impl ExternalPrinter + Send + 'static) -> Result<Self, EditorError> {
        let (texts, waiting) = mpsc::sync_channel::<String>(MAX_WAITING_TEXTS);
        // The thread's end is signalled, so that the last texts can be awaited.
        let (ended, done) = mpsc::sync_channel(1);
        let failed = Arc::new(OnceLock::new());
        let failure = Arc::clone(&failed);
        let run = move || {
            for text in waiting {
                if let Err(error) = printer.print(text) {
                    let _first = failure.set(error.to_string());
                    break;
                }
            }
            let _heard = ended.send(());
        };
        thread::Builder::new().name("writ-printer".into()).spawn(run).map_err(EditorError::Terminal)?;
        Ok(Self { texts: Some(texts), failed, done })
    }

    fn print_above(&self, text: String) -> io::Result<()> {
        let sent = self.texts.as_ref().is_some_and(|texts| texts.send(text).is_ok());
        // A failure of an earlier text is reported with the next one.
        match self.failed.get() {
            Some(error) => Err(io::Error::other(error.clone())),
            None if sent => Ok(()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Drop for Above {
    fn drop(&mut self) {
        self.texts = None;
        // A terminal that has stopped reading must not block the end.
        let _all = self.done.recv_timeout(LAST_TEXTS);
    }
}

impl Write for Printer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        // Only whole lines go to the terminal: the editor redraws its prompt below each text.
        match self.held.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => self.print(last + 1)?,
            None if self.terminal.is_none() || self.held.len() > MAX_HELD_BYTES => {
                self.print(self.held.len())?
            }
            None => {}
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.terminal.is_none() {
            self.print(self.held.len())?;
            io::stdout().lock().flush()?;
        }
        Ok(())
    }
}

/// The editor on a terminal.
struct Terminal {
    editor: Editor<Continuation, DefaultHistory>,
    history: History,
    /// The text being typed when Ctrl-C was pressed: it is put into the next line again.
    draft: String,
    /// Set by Esc, which ends the reading of a line as Ctrl-C does.
    escaped: Arc<AtomicBool>,
}

/// The time after Esc in which another key makes it a part of that key's sequence, in milliseconds: terminals send both at
/// once.
const ESC_ALONE_MS: u16 = 60;

/// Notes Esc, and ends the reading of the line.
struct StopKey(Arc<AtomicBool>);

impl ConditionalEventHandler for StopKey {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, _: &EventContext<'_>) -> Option<Cmd> {
        self.0.store(true, Ordering::Relaxed);
        Some(Cmd::Interrupt)
    }
}

impl Terminal {
    fn new(
        config: &TerminalConfig,
        history: Option<PathBuf>,
        completions: Completions,
    ) -> Result<Self, EditorError> {
        let lines = config.history_lines.min(history::MAX_LINES);
        let settings = rustyline::Config::builder()
            .max_history_size(lines)
            .and_then(|builder| builder.history_ignore_dups(true))
            // Duplicates and lines that begin with a blank stay out of the history.
            .map_err(read_failure)?
            .history_ignore_space(true)
            .auto_add_history(false)
            .bracketed_paste(true)
            .keyseq_timeout(Some(ESC_ALONE_MS))
            .completion_type(CompletionType::List)
            .build();
        let mut editor = Editor::with_config(settings).map_err(read_failure)?;
        editor.set_helper(Some(Continuation { completions, ..Continuation::default() }));
        let escaped = Arc::new(AtomicBool::new(false));
        let stop = EventHandler::Conditional(Box::new(StopKey(Arc::clone(&escaped))));
        editor.bind_sequence(KeyEvent(KeyCode::Esc, Modifiers::NONE), stop);
        let history = History::load_history(&mut editor, history.filter(|_| lines > 0));
        Ok(Self { editor, history, draft: String::new(), escaped })
    }

    fn external_printer(&mut self) -> Result<Printer, EditorError> {
        let printer = self.editor.create_external_printer().map_err(read_failure)?;
        Ok(Printer { terminal: Some(Above::start_printer(printer)?), held: Vec::new() })
    }

    fn read_line(&mut self, prompt: &str) -> Result<Input, EditorError> {
        let draft = std::mem::take(&mut self.draft);
        let typed = match self.editor.readline_with_initial(prompt, (&draft, "")) {
            Ok(typed) => typed,
            Err(ReadlineError::Interrupted) => {
                // The lines typed so far become the draft, not a part of the next message.
                self.take_continuation();
                self.draft = self.editor.helper().map(|helper| helper.line.take()).unwrap_or_default();
                let is_escape = self.escaped.swap(false, Ordering::Relaxed);
                return Ok(if is_escape { Input::Stopped } else { Input::Interrupted });
            }
            Err(ReadlineError::Eof) => return Ok(Input::End),
            Err(error) => return Err(read_failure(error)),
        };
        if let Some(helper) = self.editor.helper() {
            helper.line.take();
        }
        let message = join_lines(typed, &self.take_continuation());
        self.history.add_line(&mut self.editor, &message);
        if message.len() > MAX_INPUT_BYTES {
            return Err(EditorError::TooLong { limit: MAX_INPUT_BYTES });
        }
        Ok(Input::Line(message))
    }

    /// Takes the beginnings that were continued.
    fn take_continuation(&mut self) -> Vec<String> {
        self.editor.helper().map(|helper| helper.continued.take()).unwrap_or_default()
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum is non-exhaustive")]
fn read_failure(error: ReadlineError) -> EditorError {
    EditorError::Terminal(match error {
        ReadlineError::Io(error) => error,
        other => io::Error::other(other),
    })
}

/// Lets a line go on after a backslash, and remembers which backslashes did that: those in pasted text stay.
#[derive(Debug, Default)]
pub(crate) struct Continuation {
    continued: RefCell<Vec<String>>,
    /// The line as it was shown last.
    line: RefCell<String>,
    completions: Completions,
}

/// The most beginnings that are remembered; a message that is typed line by line is shorter.
const MAX_CONTINUED: usize = 256;

impl Validator for Continuation {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let input = context.input();
        if !continues_below(input) {
            return Ok(ValidationResult::Valid(None));
        }
        let mut continued = self.continued.borrow_mut();
        if continued.len() < MAX_CONTINUED {
            continued.push(input.to_owned());
        }
        Ok(ValidationResult::Incomplete)
    }
}

impl Completer for Continuation {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(complete_word(&self.completions, line, cursor))
    }
}

/// It gives no hints: it is shown every change of the line, which the editor does not hand over after Ctrl-C.
impl Hinter for Continuation {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<String> {
        line.clone_into(&mut self.line.borrow_mut());
        None
    }
}

impl Highlighter for Continuation {}

impl rustyline::Helper for Continuation {}

/// Takes away the backslashes that continued a line: those that stand at the end of a remembered beginning.
fn join_lines(mut typed: String, continued: &[String]) -> String {
    let mut ends: Vec<usize> = continued
        .iter()
        // Only a continuation that the final text still begins with: lines can be edited before they are sent.
        .filter(|start| typed.strip_prefix(start.as_str()).is_some_and(|rest| rest.starts_with('\n')))
        .map(|start| start.len() - 1)
        .collect();
    ends.sort_unstable();
    ends.dedup();
    // From the end, so that earlier places stay valid.
    for end in ends.into_iter().rev() {
        typed.remove(end);
    }
    typed
}

/// The terminal's mode before the editor changed it; put back when dropped.
struct SavedMode(Termios);

impl fmt::Debug for SavedMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SavedMode")
    }
}

impl SavedMode {
    fn save_mode() -> Option<Self> {
        termios::tcgetattr(io::stdin()).ok().map(Self)
    }
}

impl Drop for SavedMode {
    fn drop(&mut self) {
        // A terminal that was closed cannot be restored.
        let _restored = termios::tcsetattr(io::stdin(), SetArg::TCSANOW, &self.0);
        let mut out = io::stdout().lock();
        let _written = out.write_all(BRACKETED_PASTE_OFF).and_then(|()| out.flush());
    }
}

#[cfg(test)]
mod tests;
