//! Questions to the person at the terminal, and secrets that are typed or piped in.

use std::io::{self, BufRead as _, Read as _, Write as _};
use std::os::fd::AsFd as _;

use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use secrecy::SecretString;
use writ_secrets::store::MAX_VALUE_BYTES;
use writ_types::error::Exit;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::host::Streams;

/// The longest answer that is read, in bytes: a line that a person types.
const MAX_ANSWER_BYTES: u64 = 4096;

/// Asks a question that is answered with y or n; anything but yes is no.
pub(crate) fn confirm_yes(streams: &Streams, question: &str) -> Result<bool, Failure> {
    if !streams.is_interactive() {
        return Err(Failure::new(
            Exit::Usage,
            "cli.no_terminal",
            "this needs an answer, and there is no terminal to ask on",
            "answer in advance with --yes",
        ));
    }
    let mut err = io::stderr().lock();
    write!(err, "{question} [y/N] ")
        .and_then(|()| err.flush())
        .map_err(|error| Failure::output_error(&error))?;
    let mut answer = String::new();
    let read = io::stdin().lock().take(MAX_ANSWER_BYTES).read_line(&mut answer);
    read.map_err(|error| Failure::internal_error("reading the answer", error))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Asks for a number from 1 to `count`, again after any other answer; `None` if the input ends first.
pub(crate) fn ask_number(question: &str, count: usize) -> Result<Option<usize>, Failure> {
    read_number(&mut io::stdin().lock(), &mut io::stderr().lock(), (question, count))
}

fn read_number(
    input: &mut impl io::BufRead,
    out: &mut impl io::Write,
    (question, count): (&str, usize),
) -> Result<Option<usize>, Failure> {
    loop {
        write!(out, "{question} [1-{count}] ")
            .and_then(|()| out.flush())
            .map_err(|error| Failure::output_error(&error))?;
        let mut answer = String::new();
        let read = input.by_ref().take(MAX_ANSWER_BYTES).read_line(&mut answer);
        if read.map_err(|error| Failure::internal_error("reading the answer", error))? == 0 {
            return Ok(None);
        }
        match answer.trim().parse() {
            Ok(number) if (1..=count).contains(&number) => return Ok(Some(number)),
            // What was meant is not guessed: the next answer may undo work.
            Ok(_) | Err(_) => {}
        }
    }
}

/// Reads a secret's value: typed without echo at a terminal, else from the pipe. One line ending is dropped.
pub(crate) fn read_value(streams: &Streams, prompt: &str) -> Result<SecretString, Failure> {
    // A piped value is read as it is, without a prompt.
    if streams.input.is_terminal() {
        return prompt_hidden(prompt);
    }
    let limit = MAX_VALUE_BYTES + 3;
    // The whole capacity at once: a growing buffer would leave copies behind that are not wiped.
    let mut bytes = Zeroizing::new(Vec::with_capacity(limit));
    let most = u64::try_from(limit).unwrap_or(u64::MAX);
    let read = streams.input.clone().take(most).read_to_end(&mut bytes);
    read.map_err(|error| Failure::internal_error("reading the value", error))?;
    let text = str::from_utf8(&bytes).map_err(|_| {
        Failure::new(
            Exit::Usage,
            "cli.not_text",
            "the value is not UTF-8 text",
            "encode it, for example as base64",
        )
    })?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    Ok(SecretString::from(text.strip_suffix('\r').unwrap_or(text)))
}

/// Asks for something that is not shown while it is typed.
pub(crate) fn prompt_hidden(prompt: &str) -> Result<SecretString, Failure> {
    let typed = rpassword::prompt_password(prompt);
    typed.map(SecretString::from).map_err(|error| {
        Failure::new(
            Exit::Blocked,
            "cli.no_terminal",
            format!("there is no terminal to ask on: {error}"),
            "run the command in a terminal",
        )
    })
}

/// The terminal's settings at the start of the process; restored when it is interrupted while typing is
/// hidden.
pub(crate) struct Settings(Option<Termios>);

impl Settings {
    /// Remembers the terminal's settings.
    pub(crate) fn save_settings() -> Self {
        Self(tcgetattr(io::stdin().as_fd()).ok())
    }

    /// Puts them back.
    pub(crate) fn restore_settings(&self) {
        if let Some(settings) = &self.0 {
            // A closed terminal needs no settings.
            let _restored = tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, settings);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SF-541 (in part: what is no number of the menu is asked again)
    #[test]
    fn a_number_that_is_not_on_the_list_is_asked_again() {
        let ask = |typed: &str| {
            let mut out = Vec::new();
            let chosen = read_number(&mut typed.as_bytes(), &mut out, ("which?", 3)).expect("reads");
            (chosen, String::from_utf8(out).expect("UTF-8").matches("which? [1-3] ").count())
        };
        assert_eq!(ask("2\n"), (Some(2), 1));
        assert_eq!(ask("0\n4\none\n\n-1\n 3 \n"), (Some(3), 6));
        assert_eq!(ask("9\n"), (None, 2), "the input ends");
        assert_eq!(ask(""), (None, 1));
    }
}
