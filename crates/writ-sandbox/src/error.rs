//! Errors: the reasons why nothing could be run.

use writ_policy::permit::PermitExpired;
use writ_types::action::ActionKind;
use writ_types::error::{Exit, Report, ToReport};

use crate::config::RunnerKind;
use crate::file::FileFault;

/// The reason why no runner was started.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The configuration names a runner that this system does not have.
    #[error("this system has no sandbox of the kind '{}'", runner.as_str())]
    Unavailable {
        /// The runner.
        runner: RunnerKind,
    },
    /// It could not be started.
    #[error(transparent)]
    Start(#[from] SandboxError),
}

impl ToReport for RunnerError {
    fn report(&self) -> Report {
        match self {
            Self::Unavailable { .. } => Report::new(Exit::Config, "sandbox.runner", self.to_string())
                .with_hint(
                    "set sandbox.runner to \"refuse\", or leave it out; the native one is made of Linux",
                ),
            Self::Start(error) => error.report(),
        }
    }
}

/// The reason why a sandbox could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// This machine cannot confine commands.
    #[error("commands cannot be confined here: {}", .reasons.join("; "))]
    Refused {
        /// The reason.
        reasons: Vec<String>,
    },
    /// The permit is too old.
    #[error(transparent)]
    Expired(#[from] PermitExpired),
    /// The permit is for something else.
    #[error("a permit for {} cannot be used here", found.as_str())]
    WrongAction {
        /// The action that it is for.
        found: ActionKind,
    },
    /// The command cannot be started as it is written.
    #[error("the command cannot be started: {why}")]
    BadCommand {
        /// The mistake in it.
        why: String,
    },
    /// Making the sandbox failed.
    #[error("the sandbox could not be made ({stage}): {why}")]
    Setup {
        /// The step that failed.
        stage: String,
        /// The error of the system.
        why: String,
    },
    /// The zygote has ended and cannot be started again, or its messages make no sense.
    #[error("the sandbox's helper process failed ({doing}): {why}")]
    Helper {
        /// The step that failed.
        doing: &'static str,
        /// The error of the system.
        why: String,
    },
    /// A file request was not done.
    #[error(transparent)]
    File(#[from] FileFault),
    /// A file request took too long or asked for too much.
    #[error("the file request was stopped: {why}")]
    Stopped {
        /// The limit that it hit.
        why: String,
    },
    /// It waited for another use of the work folder and was cancelled before it began.
    #[error("cancelled while another use of the work folder went on")]
    Cancelled,
    /// The project cannot be worked on.
    #[error("this folder cannot be worked on: {why}")]
    Project {
        /// The reason.
        why: String,
    },
    /// The workspace's own folder on the host.
    #[error("the workspace's folder: {doing}: {source}")]
    Workspace {
        /// The step that failed.
        doing: String,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl ToReport for SandboxError {
    fn report(&self) -> Report {
        let inside = self.to_string();
        match self {
            Self::Refused { .. } => Report::new(Exit::Blocked, "sandbox.refused", inside.clone())
                .with_hint("`writ sandbox status` says what is missing here, and what can be done about it"),
            Self::Expired(_) => Report::new(Exit::Denied, "sandbox.permit_expired", "the permit has expired"),
            Self::WrongAction { .. } => Report::new(Exit::Bug, "sandbox.wrong_action", inside.clone()),
            Self::BadCommand { .. } => Report::new(Exit::Usage, "sandbox.bad_command", inside.clone()),
            Self::Setup { stage, .. } => Report::new(
                Exit::Blocked,
                "sandbox.setup",
                format!("the sandbox could not be made ({stage})"),
            )
            .with_hint("`writ doctor` shows what this machine lacks"),
            Self::Helper { doing, .. } => Report::new(
                Exit::Blocked,
                "sandbox.helper",
                format!("the sandbox's helper process failed ({doing})"),
            ),
            Self::File(fault) => fault.report(),
            Self::Stopped { .. } => Report::new(Exit::Budget, "sandbox.stopped", inside.clone())
                .with_hint("ask for less: a narrower folder, pattern or range"),
            Self::Cancelled => Report::new(Exit::Interrupted, "sandbox.cancelled", inside.clone()),
            Self::Project { .. } => Report::new(Exit::Usage, "sandbox.project", inside.clone()).with_hint(
                "name a project's own folder with --project DIR, below your home and not the home of Writ",
            ),
            Self::Workspace { .. } => {
                Report::new(Exit::Blocked, "sandbox.workspace", "the workspace's folder cannot be used")
                    .with_hint("look for free space and rights in the home's data folder")
            }
        }
        .with_inside(inside)
    }
}

impl ToReport for FileFault {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            Self::NotFound { .. } => Report::new(Exit::Usage, "file.not_found", text),
            Self::Outside { .. } => Report::new(Exit::Denied, "file.outside", text)
                .with_hint("paths are relative to the work folder"),
            Self::Link { .. } => Report::new(Exit::Denied, "file.link", text),
            Self::Kind { .. } => Report::new(Exit::Usage, "file.kind", text),
            Self::TooLarge { .. } => Report::new(Exit::Budget, "file.too_large", text),
            Self::Pattern { .. } => Report::new(Exit::Usage, "file.pattern", text),
            Self::Conflict { .. } => {
                Report::new(Exit::Verification, "file.conflict", text).with_hint("read it again")
            }
            Self::Content { .. } => Report::new(Exit::Verification, "file.content", text),
            Self::Unsupported { .. } => Report::new(Exit::Usage, "file.unsupported", text),
            Self::Io { .. } => Report::new(Exit::Blocked, "file.io", text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_texts_hold_no_host_path_and_codes_are_those_of_the_design() {
        let source = || std::io::Error::other("/home/owner/.writ: no space");
        let refused = SandboxError::Refused { reasons: vec!["no Landlock".into()] }.report();
        assert_eq!((refused.exit, refused.code.as_str()), (Exit::Blocked, "sandbox.refused"));
        let workspace = SandboxError::Workspace { doing: "read".into(), source: source() }.report();
        assert!(!workspace.outside.contains("/home") && workspace.inside.contains("/home"));
        let setup = SandboxError::Setup { stage: "overlay".into(), why: "/home/owner".into() }.report();
        assert!(!setup.outside.contains("/home"));
        let expired =
            SandboxError::Expired(PermitExpired(writ_types::unit::Timestamp::from_millis(0))).report();
        assert_eq!(expired.exit, Exit::Denied);
        let file = SandboxError::File(FileFault::Outside { path: "../x".into() }).report();
        assert_eq!((file.exit, file.code.as_str()), (Exit::Denied, "file.outside"));
    }
}
