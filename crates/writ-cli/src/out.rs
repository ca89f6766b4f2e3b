//! The output of a command: plain lines for people, JSON for programs. A closed pipe ends the command
//! quietly.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::failure::Failure;

/// The output of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandOutput {
    /// True if results are JSON.
    pub(crate) json: bool,
    /// True if remarks are left out.
    pub(crate) quiet: bool,
}

impl CommandOutput {
    /// Prints one line to standard output.
    pub(crate) fn print_line(self, text: impl AsRef<str>) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", text.as_ref()).map_err(|error| Failure::output_error(&error))
    }

    /// Prints a value as one JSON document, indented.
    pub(crate) fn print_json(self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::internal_error("writing JSON", error))?;
        self.print_line(text)
    }

    /// Prints a value as one line of JSON.
    pub(crate) fn json_line(self, value: &impl Serialize) -> Result<(), Failure> {
        let text =
            serde_json::to_string(value).map_err(|error| Failure::internal_error("writing JSON", error))?;
        self.print_line(text)
    }

    /// Prints the value as JSON where that was asked for, else what `people` says of it.
    pub(crate) fn print_either<T: Serialize>(
        self,
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
    pub(crate) fn print_remark(self, text: impl AsRef<str>) {
        if !self.quiet {
            let mut err = io::stderr().lock();
            // A remark that cannot be printed is no failure of the command.
            let _told = writeln!(err, "{}", text.as_ref());
        }
    }
}
