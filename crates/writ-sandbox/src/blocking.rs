//! File work of the host, beside the async threads.

use std::io;

use crate::error::SandboxError;

/// Runs file work on a blocking thread; `doing` names it in an error.
pub(crate) async fn run_blocking<T: Send + 'static>(
    doing: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SandboxError> {
    let failed = |why: tokio::task::JoinError| folder_error(doing, why.into());
    tokio::task::spawn_blocking(work).await.map_err(failed)?.map_err(|why| folder_error(doing, why))
}

/// Returns the error of a session's folder.
pub(crate) fn folder_error(doing: &str, source: io::Error) -> SandboxError {
    SandboxError::Workspace { doing: doing.to_owned(), source }
}
