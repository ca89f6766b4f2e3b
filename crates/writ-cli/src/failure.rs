//! Failures of commands: one report, one exit code.

use std::fmt;
use std::io;

use serde_json::{Value, json};
use writ_types::error::{Exit, Report, ToReport};

/// Advice where something cannot be written.
pub(crate) const FREE_SPACE: &str = "free some space, or write elsewhere; then run it again";

/// The reason that a command did not end with 0.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A reported error: code, text, hint.
    Report(Box<Report>),
    /// The person pressed Ctrl-C.
    Interrupted,
    /// The reader of our output has closed it (`writ … | head`): no failure.
    ReaderGone,
    /// The output says it all already; only the exit code is left to tell.
    Code(u8),
}

impl<E: ToReport> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Report(Box::new(error.report()))
    }
}

impl Failure {
    /// A failure with a text of its own.
    pub(crate) fn new(exit: Exit, code: &str, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Report(Box::new(Report::new(exit, code, text).with_hint(hint)))
    }

    /// A failure that only a bug in Writ explains.
    pub(crate) fn internal_error(doing: &str, error: impl std::fmt::Display) -> Self {
        let text = format!("{doing} failed");
        let hint = "this is a bug in Writ; run it again with -v and report what it says";
        let report =
            Report::new(Exit::Bug, "cli.bug", text).with_inside(format!("{doing}: {error}")).with_hint(hint);
        Self::Report(Box::new(report))
    }

    /// Writing to standard output failed.
    pub(crate) fn output_error(error: &io::Error) -> Self {
        // `head` and the like close the pipe early; that is their right.
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::ReaderGone;
        }
        Self::new(Exit::Blocked, "cli.output", format!("the output cannot be written: {error}"), FREE_SPACE)
    }

    /// Returns true if it is reported with this code.
    pub(crate) fn has_code(&self, code: &str) -> bool {
        matches!(self, Self::Report(report) if report.code == code)
    }

    /// The number that the process ends with.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Report(report) => report.exit.code(),
            Self::Interrupted => Exit::Interrupted.code(),
            Self::ReaderGone => Exit::Done.code(),
            Self::Code(code) => *code,
        }
    }

    /// It as an object, for programs; `null` where the exit code says it all.
    pub(crate) fn as_json(&self) -> Value {
        match self {
            Self::Report(report) => json!({
                "exit": report.exit.code(),
                "code": report.code,
                "text": report.outside,
                "hint": report.advice(),
            }),
            Self::Interrupted | Self::ReaderGone | Self::Code(_) => Value::Null,
        }
    }

    /// Tells it on standard error; as JSON where the command was asked for JSON.
    pub(crate) fn print_failure(&self, err: &mut impl io::Write, json: bool, verbose: bool) {
        // When standard error itself is closed, there is no place for a report.
        let _told = match self {
            Self::Report(_) if json => writeln!(err, "{}", json!({ "error": self.as_json() })),
            Self::Report(report) => tell_report(err, report, verbose),
            Self::Interrupted => writeln!(err, "{self}"),
            Self::ReaderGone | Self::Code(_) => Ok(()),
        };
    }
}

/// Prints the error without its hint.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Report(report) => f.write_str(&report.outside),
            Self::Interrupted => f.write_str("interrupted"),
            Self::ReaderGone => f.write_str("it is not read"),
            Self::Code(code) => write!(f, "it ended with {code}"),
        }
    }
}

fn tell_report(err: &mut impl io::Write, report: &Report, verbose: bool) -> io::Result<()> {
    writeln!(err, "error: {}", report.outside)?;
    // Internal details are for `-v` only: they may name paths.
    if verbose && report.inside != report.outside {
        writeln!(err, "detail: {}", report.inside)?;
    }
    writeln!(err, "hint: {}", report.advice())
}

/// Prints why a command failed, if it did, and returns the exit code.
pub(crate) fn finish_command(
    result: Result<(), Failure>,
    err: &mut impl io::Write,
    json: bool,
    verbose: bool,
) -> u8 {
    match result {
        Ok(()) => Exit::Done.code(),
        Err(failure) => {
            failure.print_failure(err, json, verbose);
            failure.code()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_code() {
        let failure = Failure::new(Exit::Blocked, "x.y", "text", "hint");
        assert_eq!(failure.code(), 10);
        assert_eq!(Failure::internal_error("opening", "x").code(), 1);
        assert_eq!(Failure::Interrupted.code(), 130);
        assert_eq!(Failure::output_error(&io::Error::from(io::ErrorKind::BrokenPipe)).code(), 0);
        assert_eq!(Failure::output_error(&io::Error::from(io::ErrorKind::StorageFull)).code(), 10);
    }

    #[test]
    fn what_only_the_log_may_know_needs_verbose() {
        let report =
            Report::new(Exit::Config, "a.b", "outside").with_inside("inside /home/ann").with_hint("do this");
        let told = |verbose| {
            let mut text = Vec::new();
            tell_report(&mut text, &report, verbose).expect("writes");
            String::from_utf8(text).expect("text")
        };
        assert_eq!(told(false), "error: outside\nhint: do this\n");
        assert_eq!(told(true), "error: outside\ndetail: inside /home/ann\nhint: do this\n");
        let bare = Report::new(Exit::Waiting, "a.b", "text");
        let mut text = Vec::new();
        tell_report(&mut text, &bare, false).expect("writes");
        let text = String::from_utf8(text).expect("text");
        assert!(text.contains("hint: `writ approvals list`"), "nobody is left without a hint: {text}");
    }
}
