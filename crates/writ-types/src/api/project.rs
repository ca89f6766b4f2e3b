//! The changes of a session, and commands of the owner in its sandbox.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::action::FileChange;
use crate::error::Exit;
use crate::id::{AskId, AttemptId, SessionId};
use crate::unit::Timestamp;

/// Names a session directly or by its project. Without either, the session that the client has joined; else the latest one
/// with a project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionOrProject {
    /// The session.
    #[serde(default)]
    pub session: Option<SessionId>,
    /// A project folder; means its latest session.
    #[serde(default)]
    pub project: Option<String>,
}

/// Changes of a session that its project does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectDiff {
    /// The session.
    pub session: SessionId,
    /// Its project folder.
    pub project: Option<PathBuf>,
    /// The unified diff, with what is left out and why.
    pub text: String,
    /// The changed files.
    pub changes: Vec<FileChange>,
    /// Files that are never applied.
    pub left_out: Vec<ExcludedFile>,
}

/// A changed file that is never applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExcludedFile {
    /// Its path, escaped.
    pub shown: String,
    /// The reason, such as `symbolic_link` or `too_large`.
    pub reason: String,
}

/// The outcome of applying a session's changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApplyOutcome {
    /// The session.
    pub session: SessionId,
    /// The ask that must be answered first.
    pub ask_id: Option<AskId>,
    /// The applied changes, in words; none if a person is asked.
    pub applied: Option<String>,
}

/// Names an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptName {
    /// The attempt.
    pub attempt: AttemptId,
}

/// The outcome of undoing an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum UndoOutcome {
    /// A person is asked first.
    Asked {
        /// `asked`.
        state: String,
        /// The ask.
        ask_id: AskId,
    },
    /// It was undone, or could not be.
    Settled(AnswerOutcome),
}

/// The outcome of an answer to an ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnswerOutcome {
    /// `applied`, `simulated`, `failed` or `unknown` after a yes, `denied` after a no, `open` while others must answer too.
    pub state: String,
    /// The reason why it was not done, in a few words; empty if it was.
    pub reason: String,
    /// The result in words.
    pub text: String,
    /// The exit code that a command ends with.
    pub exit: Exit,
}

/// The attempts that one tap undoes now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UndoOffers {
    /// At most 500, the latest first.
    pub undos: Vec<UndoOffer>,
}

/// An attempt that one tap undoes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UndoOffer {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its session.
    pub session: SessionId,
    /// When it was performed.
    pub at: Timestamp,
    /// Until when one tap is enough.
    pub until: Timestamp,
    /// The project folder, escaped.
    pub project: String,
    /// The number of files that change back.
    pub files: usize,
}

/// The latest attempt of a session that can be undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LatestUndo {
    /// The session.
    pub session: SessionId,
    /// The attempt; none if there is nothing to undo.
    pub attempt: Option<AttemptId>,
}

/// A command of the owner for the sandbox of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxRun {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The session; none opens one.
    #[serde(default)]
    pub session: Option<SessionId>,
    /// The project folder of a session that is opened.
    #[serde(default)]
    pub project: Option<String>,
    /// Runs on a read-only snapshot, with `PATH` and `HOME` only.
    #[serde(default)]
    pub verification: bool,
}

/// The outcome of a command in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SandboxOutcome {
    /// It ran.
    Ran {
        /// Its session.
        session: SessionId,
        /// The exit code as a shell gives it: 128 and the signal's number after a signal, 124 after its time, 137 at a limit.
        exit_code: i32,
        /// `exited`, `signal`, `time`, `cancelled` or the name of a limit.
        ended: String,
        /// Its standard output.
        stdout: String,
        /// Its standard error.
        stderr: String,
        /// Bytes of output that were dropped.
        dropped_bytes: u64,
    },
    /// The session only simulates.
    Simulated {
        /// True.
        simulated: bool,
    },
}
