//! The steps of a start of a project, in the log. Their order is fixed (SF 4.8): nothing is handed out before what an earlier process has
//! left is put in order.

/// A step of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartStep {
    /// The repository belongs to this process alone.
    Lock,
    /// Runs of an earlier process are marked as interrupted.
    MarkInterrupted,
    /// Units that are over are in the archive, and their work trees are removed.
    CleanUp,
    /// The project goes on at the phases that are stored.
    Resume,
    /// The loop looks at the units.
    Poll,
}

impl StartStep {
    const fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::MarkInterrupted => "mark_interrupted",
            Self::CleanUp => "clean_up",
            Self::Resume => "resume",
            Self::Poll => "poll",
        }
    }

    /// Logs that the step is done, or with [`Self::Poll`] that it begins.
    pub(crate) fn log_step(self, project: &str) {
        tracing::info!(project, stage = self.name(), "a step of the start of an autopilot");
    }
}
