//! The port for files that the engine writes into the home for people to read.

use std::pin::Pin;

use writ_types::error::Report;

/// The generated files of a home.
pub trait HomeFiles: std::fmt::Debug + Send + Sync {
    /// Writes the profile of the owner whole, or leaves the file as it is, and records a change with git. The answer is the reason
    /// why nothing was recorded, if it was not.
    fn write_profile<'a>(&'a self, text: &'a str) -> HomeFileFuture<'a>;
}

/// The future of a write; the error says why the file could not be written.
pub type HomeFileFuture<'a> = Pin<Box<dyn Future<Output = Result<Option<String>, Report>> + Send + 'a>>;

/// A home without files, such as that of an engine inside a test.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHomeFiles;

impl HomeFiles for NoHomeFiles {
    fn write_profile<'a>(&'a self, _: &'a str) -> HomeFileFuture<'a> {
        Box::pin(std::future::ready(Ok(None)))
    }
}
