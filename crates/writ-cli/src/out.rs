//! The output of a command: plain lines for people, JSON for programs. A closed pipe ends the command
//! quietly.

use std::io::Write as _;

use serde::Serialize;

use crate::failure::Failure;
use crate::host::Streams;

/// The output of a command.
#[derive(Clone, Debug)]
pub(crate) struct CommandOutput {
    /// True if results are JSON.
    pub(crate) json: bool,
    /// True if remarks are left out.
    pub(crate) quiet: bool,
    /// The streams it is written to.
    pub(crate) streams: Streams,
}

impl CommandOutput {
    /// Prints one line to standard output.
    pub(crate) fn print_line(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        let line = format!("{}\n", text.as_ref());
        self.print_bytes(line.as_bytes())
    }

    /// Prints bytes as they are to standard output.
    pub(crate) fn print_bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = self.streams.output.clone();
        // Flushed here, since a broken pipe must show as one.
        out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| Failure::output_error(&error))
    }

    /// Prints a value as one JSON document, indented.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::internal_error("writing JSON", error))?;
        self.print_line(text)
    }

    /// Prints a value as one line of JSON.
    pub(crate) fn json_line(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text =
            serde_json::to_string(value).map_err(|error| Failure::internal_error("writing JSON", error))?;
        self.print_line(text)
    }

    /// Prints the value as JSON where that was asked for, else what `people` says of it.
    pub(crate) fn print_either<T: Serialize>(
        &self,
        value: &T,
        people: impl FnOnce(&T) -> Vec<String>,
    ) -> Result<(), Failure> {
        // JSON is one document; lines are for people.
        if self.json {
            return self.print_json(value);
        }
        people(value).into_iter().try_for_each(|line| self.print_line(line))
    }

    /// A remark for people, on standard error: not part of the result.
    pub(crate) fn print_remark(&self, text: impl AsRef<str>) {
        if !self.quiet {
            let line = format!("{}\n", text.as_ref());
            // A remark that cannot be printed is no failure of the command.
            let _printed = self.streams.errors.clone().write_all(line.as_bytes());
        }
    }

    /// Prints a failure to standard error, as people read it.
    pub(crate) fn print_failure(&self, failure: &Failure) {
        failure.print_failure(&mut self.streams.errors.clone(), false, false);
    }
}
