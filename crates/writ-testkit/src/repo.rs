//! Generated git repositories, each with exactly one failing test.
//!
//! [`generate_repository`] makes a project of at least [`MIN_FILES`] files in Rust, Python or JavaScript: modules in areas,
//! tests, docs, data. One function or constant has one small bug, and one test shows it. The same seed gives the
//! same files. Neither the seed nor the answer is in the repository; [`Generated::expected_fix`] holds it for the
//! test that asks. Tests run without a network and without third-party packages.

use std::io;
use std::path::{Path, PathBuf};

use writ_sandbox::host::{HostError, host_git};

mod rng;

mod code;

mod render;

mod templates;

mod bugs;

mod plan;

mod layout;

/// The fewest files of a generated repository.
pub const MIN_FILES: usize = 50;

/// A language to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// A crate without dependencies, tested by cargo.
    Rust,
    /// A package, tested by `unittest`.
    Python,
    /// A package of ES modules, tested by Node's own runner.
    JavaScript,
}

impl Language {
    /// Every language.
    pub const ALL: [Self; 3] = [Self::Rust, Self::Python, Self::JavaScript];

    /// The command that runs the tests.
    pub const fn test_argv(self) -> &'static [&'static str] {
        match self {
            Self::Rust => &["cargo", "test", "--offline"],
            Self::Python => &["python3", "-m", "unittest"],
            Self::JavaScript => &["node", "--test"],
        }
    }
}

/// A kind of mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BugFamily {
    /// Another operator, or the smaller for the greater.
    WrongOperator,
    /// A bound that is included or left out, wrongly.
    OffByOne,
    /// Two arguments in each other's place.
    SwappedArguments,
    /// Another number.
    WrongConstant,
    /// A case that was forgotten.
    MissingBranch,
    /// A field of another name.
    WrongKey,
}

impl BugFamily {
    /// Every family.
    pub const ALL: [Self; 6] = [
        Self::WrongOperator,
        Self::OffByOne,
        Self::SwappedArguments,
        Self::WrongConstant,
        Self::MissingBranch,
        Self::WrongKey,
    ];
}

/// The answer, for tests only. It is not in the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedFix {
    /// The kind of mistake.
    pub family: BugFamily,
    /// The only wrong file, relative to the repository.
    pub path: String,
    /// The wrong text in the file.
    pub wrong: String,
    /// The right text.
    pub right: String,
}

/// A generated repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// Its folder.
    pub dir: PathBuf,
    /// Its language.
    pub language: Language,
    /// The number of its files.
    pub files: usize,
    /// The command that runs its tests, in its folder.
    pub test_argv: Vec<String>,
    /// The answer, for tests only.
    pub expected_fix: ExpectedFix,
}

/// The reason for making no repository.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// A file could not be written.
    #[error("'{path}' could not be written: {source}")]
    Write {
        /// The file, relative to the repository.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// git could not be run.
    #[error("git could not be run: {0}")]
    Git(#[from] HostError),
    /// git refused.
    #[error("git {command} ended with code {code}: {said}")]
    GitFailed {
        /// The command.
        command: String,
        /// Its exit code.
        code: i32,
        /// Its output.
        said: String,
    },
    /// No bug could be placed that a test shows.
    #[error("the seed {0} gives no bug that a test shows")]
    NoBug(u64),
}

/// Makes a repository with one commit in a folder, which is made if needed. The files depend on the seed and the
/// language only; the commit carries the time.
///
/// # Errors
///
/// If a file cannot be written, or git cannot be run.
pub async fn generate_repository(
    seed: u64,
    language: Language,
    dir: &Path,
) -> Result<Generated, GenerateError> {
    let plan = plan::plan(seed).ok_or(GenerateError::NoBug(seed))?;
    let project = layout::lay_out(&plan, language).ok_or(GenerateError::NoBug(seed))?;
    for (path, content) in &project.files {
        write(dir, path, content)?;
    }
    commit(dir, "Import the project").await?;
    Ok(Generated {
        dir: dir.to_owned(),
        language,
        files: project.files.len(),
        test_argv: language.test_argv().iter().map(|&word| word.to_owned()).collect(),
        expected_fix: project.fix,
    })
}

/// Writes one file of a new repository.
pub(crate) fn write(dir: &Path, path: &str, content: &str) -> Result<(), GenerateError> {
    let fault = |source| GenerateError::Write { path: path.to_owned(), source };
    let file = dir.join(path);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(fault)?;
    }
    std::fs::write(file, content).map_err(fault)
}

/// Makes a folder a git repository and commits everything in it.
pub(crate) async fn commit(dir: &Path, message: &str) -> Result<(), GenerateError> {
    let author = ["-c", "user.name=Writ", "-c", "user.email=writ@localhost"];
    let commands: [Vec<&str>; 3] = [
        vec!["init", "--quiet", "--initial-branch=main", "--template="],
        vec!["add", "--all"],
        [&author[..], &["commit", "--quiet", "--no-verify", "--message", message]].concat(),
    ];
    for command in commands {
        let arguments: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        let output = host_git(dir, &arguments).await?;
        if output.code != 0 {
            let command = command.join(" ");
            return Err(GenerateError::GitFailed { command, code: output.code, said: output.stderr });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
