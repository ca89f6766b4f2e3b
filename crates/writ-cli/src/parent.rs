//! The process that has started this one, where a hidden flag names it: nothing goes on without it, also if it was killed.

use writ_sandbox::host::ParentWatch;
use writ_types::error::Exit;

use crate::failure::Failure;

/// The named parent; `None`: none was named.
pub(crate) struct NamedParent(Option<ParentWatch>);

impl NamedParent {
    /// Watches the process with this id; called in an async runtime.
    ///
    /// # Errors
    ///
    /// If that is not the parent of this one: then it has ended.
    pub(crate) fn open_watch(pid: Option<u32>) -> Result<Self, Failure> {
        pid.map(ParentWatch::open_watch).transpose().map(Self).map_err(|_| orphaned())
    }

    /// Waits for its end; without one, for ever.
    pub(crate) async fn until_ended(&self) {
        match &self.0 {
            Some(parent) => parent.until_ended().await,
            None => std::future::pending().await,
        }
    }
}

/// Returns the failure of a process after its parent has ended.
pub(crate) fn orphaned() -> Failure {
    Failure::new(
        Exit::Blocked,
        "run.parent",
        "the process that has started it has ended",
        "leave --parent out where it is to run on its own",
    )
}
