//! A command of the autopilot that is typed in a conversation: `/pilot status`.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser as _;
use writ_inspect::show::escape_line;
use writ_types::error::Exit;

use crate::args::{Cli, Command, PilotCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::host::{InputStream, OutputStream, Streams};

/// The most bytes of a command's output that a conversation shows.
const MAX_OUTPUT: usize = 256 * 1024;

/// The output of a command, in memory, up to a limit.
#[derive(Debug, Default)]
struct Captured(Vec<u8>);

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = MAX_OUTPUT.saturating_sub(self.0.len());
        self.0.extend(bytes.iter().take(left));
        // More is left out, which is no error of the command.
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs a command as `writ pilot` would, and returns what it says. The conversation answers no question of it, and waits for no work:
/// `auto`, `next` and `dispatch` start that and return.
///
/// # Errors
///
/// If the words are no command, or the command fails.
pub(crate) async fn run_typed(context: &Context, words: &str) -> Result<Vec<String>, Failure> {
    let words = shlex::split(words).ok_or_else(|| {
        let text = "a quote of the command is not closed";
        Failure::new(Exit::Usage, "pilot.quote", text, "close it, as in a shell")
    })?;
    let line = ["writ", "pilot"].into_iter().map(str::to_owned).chain(words);
    let mut cli = match Cli::try_parse_from(line) {
        Ok(cli) => cli,
        // Usage and help are what is asked for, or what helps.
        Err(error) => return Ok(lines_of(&error.render().to_string())),
    };
    // As the process does with its own arguments.
    cli.locate_paths(&context.host.folder);
    let Command::Pilot(mut command) = cli.command else { return Ok(Vec::new()) };
    // They would hold the conversation up for as long as the work takes.
    if let PilotCommand::Auto { detach, .. } = &mut command {
        *detach = true;
    } else if let PilotCommand::Status { watch, .. } = &mut command {
        *watch = false;
    } else if let PilotCommand::Step(step) = &mut command {
        step.detach();
    }
    let captured: Arc<Mutex<Captured>> = Arc::default();
    let writer = || OutputStream::Writer(captured.clone());
    let streams = Streams { input: InputStream::of_bytes(b""), output: writer(), errors: writer() };
    // Without a terminal it asks nothing: the line editor has that.
    let ended = super::run_command(&context.with_streams(streams, cli.global.json), &command).await;
    match ended {
        // The output says how it has ended.
        Ok(()) | Err(Failure::Code(_) | Failure::ReaderGone) => {}
        Err(failure @ (Failure::Report(_) | Failure::Interrupted)) => return Err(failure),
    }
    let bytes = std::mem::take(&mut captured.lock().unwrap_or_else(PoisonError::into_inner).0);
    Ok(lines_of(&String::from_utf8_lossy(&bytes)))
}

fn lines_of(text: &str) -> Vec<String> {
    text.lines().map(escape_line).collect()
}
