//! The one place of this crate that starts processes and reads the environment.

#![expect(clippy::disallowed_types, reason = "a build tool runs cargo, git and what it measures")]

use std::fmt;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Returns an environment variable that is set, not empty and UTF-8.
#[expect(clippy::disallowed_methods, reason = "a build tool is configured by its environment")]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns true in continuous integration, where nothing may be left out.
pub fn on_ci() -> bool {
    variable("CI").is_some_and(|value| value != "false" && value != "0")
}

/// Returns true if `PATH` has a program of this name.
pub fn exists(program: &str) -> bool {
    let path = variable("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns the folder that cargo builds in: `WRIT_TARGET_DIR`, else `CARGO_TARGET_DIR`, else `target` in the workspace.
pub fn target_directory(root: &Path) -> PathBuf {
    let set = variable("WRIT_TARGET_DIR").or_else(|| variable("CARGO_TARGET_DIR"));
    set.map_or_else(|| root.join("target"), PathBuf::from)
}

/// A program ended that was to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended(
    /// The name of the program.
    pub String,
);

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has ended", self.0)
    }
}

impl std::error::Error for Ended {}

/// The output of a program that has ended.
#[derive(Debug)]
pub struct Output {
    /// Set if it ended with 0.
    pub success: bool,
    /// `None`: a signal ended it.
    pub code: Option<i32>,
    /// Standard output, with replacements for what is not UTF-8.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
}

/// A program to run.
#[derive(Debug)]
pub struct Program {
    name: String,
    command: Command,
}

impl Program {
    /// Names a program and its arguments.
    pub fn new(name: impl AsRef<Path>, arguments: &[&str]) -> Self {
        let name = name.as_ref();
        let mut command = Command::new(name);
        command.args(arguments);
        Self { name: name.display().to_string(), command }
    }

    /// Returns the cargo that runs this task; it builds where `WRIT_TARGET_DIR` says, if it is set.
    pub fn cargo(arguments: &[&str]) -> Self {
        let cargo = variable("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
        let program = Self::new(cargo, arguments);
        match variable("WRIT_TARGET_DIR") {
            Some(folder) => program.env("CARGO_TARGET_DIR", folder),
            None => program,
        }
    }

    /// Adds an argument.
    pub fn argument(mut self, argument: impl AsRef<Path>) -> Self {
        self.command.arg(argument.as_ref());
        self
    }

    /// Sets a variable of the program's environment.
    pub fn env(mut self, name: &str, value: impl AsRef<Path>) -> Self {
        self.command.env(name, value.as_ref());
        self
    }

    /// Gives it an environment of `PATH` alone.
    pub fn clean(mut self) -> Self {
        self.command.env_clear().env("PATH", variable("PATH").unwrap_or_default());
        self
    }

    /// Sets the folder that it runs in.
    pub fn directory(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Runs it with our terminal; returns true if it succeeded.
    ///
    /// # Errors
    ///
    /// If it cannot be run.
    pub fn status(mut self) -> Result<bool> {
        let status = self.command.status().with_context(|| format!("cannot run {}", self.name))?;
        Ok(status.success())
    }

    /// Runs it with our terminal and returns its exit code.
    ///
    /// # Errors
    ///
    /// If it cannot be run, or a signal ended it.
    pub fn exit_code(mut self) -> Result<i32> {
        let status = self.command.status().with_context(|| format!("cannot run {}", self.name))?;
        status.code().with_context(|| format!("{} was ended by a signal", self.name))
    }

    /// Runs it and returns its output.
    ///
    /// # Errors
    ///
    /// If it cannot be run.
    pub fn output(mut self) -> Result<Output> {
        let output = self
            .command
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run {}", self.name))?;
        Ok(Output {
            success: output.status.success(),
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs it and hands each line of its standard output to `each`; returns true if it succeeded.
    ///
    /// # Errors
    ///
    /// If it cannot be run, or its output cannot be read.
    pub fn lines(mut self, mut each: impl FnMut(&str)) -> Result<bool> {
        let mut child = self
            .command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", self.name))?;
        if let Some(stdout) = child.stdout.take() {
            let mut stdout = BufReader::new(stdout);
            let mut line = Vec::new();
            while stdout.read_until(b'\n', &mut line)? > 0 {
                each(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
                line.clear();
            }
        }
        Ok(child.wait()?.success())
    }

    /// Starts it, with pipes for its standard input and output.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn spawn(mut self) -> Result<Running> {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = self.command.spawn().with_context(|| format!("cannot run {}", self.name))?;
        let input = child.stdin.take();
        let output = child.stdout.take().map(BufReader::new).context("no standard output")?;
        Ok(Running { name: self.name, child, input, output: Some(output) })
    }

    /// Starts it, with a socket to accept on as its standard input; its standard error is ours.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn accepting(mut self, listener: std::net::TcpListener) -> Result<Running> {
        self.command.stdin(OwnedFd::from(listener)).stdout(Stdio::piped());
        let mut child = self.command.spawn().with_context(|| format!("cannot run {}", self.name))?;
        let output = child.stdout.take().map(BufReader::new);
        Ok(Running { name: self.name, child, input: None, output })
    }

    /// Runs it silently; returns the time from before the start to after the end.
    ///
    /// # Errors
    ///
    /// If it cannot be run, or fails.
    pub fn timed(mut self) -> Result<Duration> {
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let status = self.command.status().with_context(|| format!("cannot run {}", self.name))?;
        let took = start.elapsed();
        anyhow::ensure!(status.success(), "{} failed: {status}", self.name);
        Ok(took)
    }
}

/// A child process. Dropping it ends it.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    /// `None` once the rest is discarded.
    output: Option<BufReader<ChildStdout>>,
}

impl Running {
    /// Returns the id of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads the next line of its standard output.
    ///
    /// # Errors
    ///
    /// [`Ended`] if it prints no further line.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let output = self.output.as_mut().context("its output is discarded")?;
        if output.read_line(&mut line)? == 0 {
            return Err(Ended(self.name.clone()).into());
        }
        Ok(line)
    }

    /// Discards the rest of its output as it comes: a program with a full pipe blocks.
    pub fn pass_over(&mut self) {
        if let Some(mut output) = self.output.take() {
            std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        }
    }

    /// Closes its standard input, for a program that reads it to the end.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Writes a line to its standard input.
    ///
    /// # Errors
    ///
    /// If its standard input is closed.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("its standard input is closed")?;
        writeln!(input, "{line}").with_context(|| format!("{} does not listen", self.name))
    }

    /// Waits for its end; returns the signal that ended it, if one did.
    ///
    /// # Errors
    ///
    /// If it cannot be waited for.
    pub fn ended_by(&mut self) -> Result<Option<i32>> {
        self.input = None;
        Ok(self.child.wait()?.signal())
    }

    /// Waits for its end; returns true if it succeeded.
    ///
    /// # Errors
    ///
    /// If it cannot be waited for.
    pub fn wait(&mut self) -> Result<bool> {
        self.input = None;
        self.pass_over();
        Ok(self.child.wait()?.success())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.input = None;
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // Asked to end, an engine ends what it runs; the standard library can only kill.
        let asked = Program::new("kill", &["-TERM", &self.child.id().to_string()]).output();
        if !asked.is_ok_and(|asked| asked.success) {
            let _killed = self.child.kill();
        }
        let _waited = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_streamed_even_if_they_are_not_text() {
        let mut seen = Vec::new();
        let program = Program::new("printf", &["one\\n\\377\\ntwo"]);
        let success = program.lines(|line| seen.push(line.to_owned())).unwrap();
        assert!(success);
        assert_eq!(seen, ["one", "\u{fffd}", "two"]);
    }

    #[test]
    fn what_runs_beside_us_listens_answers_and_ends() {
        let mut cat = Program::new("cat", &[]).clean().spawn().unwrap();
        cat.say("one").unwrap();
        assert_eq!(cat.line().unwrap(), "one\n");
        assert!(cat.wait().unwrap());
        let endless = Program::new("sleep", &["1000"]).spawn().unwrap();
        let pid = endless.pid().to_string();
        let runs = || Program::new("kill", &["-0", &pid]).output().unwrap().success;
        assert!(runs());
        drop(endless);
        assert!(!runs());
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Program::new("no-such-program", &[]).status().unwrap_err();
        assert_eq!(error.to_string(), "cannot run no-such-program");
    }
}
