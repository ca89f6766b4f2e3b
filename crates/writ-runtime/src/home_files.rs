//! The port for files that the engine writes into the home: the profile, for people to read, and the agent's documents.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;

use writ_types::error::{Exit, Report};
use writ_types::taint::Taint;

/// The files of a home that the engine writes.
pub trait HomeFiles: std::fmt::Debug + Send + Sync {
    /// Writes the profile of the owner whole, or leaves the file as it is, and records a change with git. The answer is the reason
    /// why nothing was recorded, if it was not.
    fn write_profile<'a>(&'a self, text: &'a str) -> HomeFileFuture<'a, Option<String>>;

    /// Returns the folder of the agent's documents; `None`: the home has none.
    fn documents(&self) -> Option<PathBuf> {
        None
    }

    /// Writes the index of the agent's documents anew, since the owner may have added some.
    fn index_documents(&self) -> HomeFileFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Writes one of the agent's documents whole, with the index, and records the change with git.
    fn write_document<'a>(&'a self, _: DocumentText<'a>) -> HomeFileFuture<'a, WrittenDocument> {
        Box::pin(std::future::ready(Err(no_documents())))
    }

    /// Reads the owner's records about a customer, by the customer's name; empty: there are none.
    fn customer_context<'a>(&'a self, _: &'a str) -> HomeFileFuture<'a, BTreeMap<String, String>> {
        Box::pin(std::future::ready(Ok(BTreeMap::new())))
    }

    /// Writes the list of the tools of servers that are not offered, whole, and records the change with git. The answer is the reason
    /// why nothing was recorded, if it was not.
    fn write_tool_list<'a>(&'a self, _: ToolListText<'a>) -> HomeFileFuture<'a, Option<String>> {
        Box::pin(std::future::ready(Err(no_documents())))
    }
}

/// The future of a write; the error says why the file could not be written.
pub type HomeFileFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Report>> + Send + 'a>>;

/// A document to be written.
#[derive(Clone, Copy, Debug)]
pub struct DocumentText<'a> {
    /// The name of its file, which passed [`ModifySelf::document`](writ_types::action::ModifySelf::document).
    pub name: &'a str,
    /// Its text, with its front matter.
    pub text: &'a str,
    /// The trust level of what the text rests on, which is recorded with the change.
    pub taint: Taint,
}

/// A document that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenDocument {
    /// True if there was none of this name.
    pub is_new: bool,
    /// The reason why the change is not recorded, if it is not.
    pub note: Option<String>,
}

/// The list of the tools that are not offered, to be written.
#[derive(Clone, Copy, Debug)]
pub struct ToolListText<'a> {
    /// The whole text of the file.
    pub text: &'a str,
    /// The subject of the change, in one line.
    pub subject: &'a str,
}

/// A home without files, such as that of an engine inside a test.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHomeFiles;

impl HomeFiles for NoHomeFiles {
    fn write_profile<'a>(&'a self, _: &'a str) -> HomeFileFuture<'a, Option<String>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// Brings the index of the documents up to date, and returns their folder. A session begins without an index rather than not at all.
pub(crate) async fn documents_of(files: &dyn HomeFiles) -> Option<PathBuf> {
    let folder = files.documents()?;
    if let Err(report) = files.index_documents().await {
        tracing::warn!(why = %report.outside, "the index of the documents stays as it is");
    }
    Some(folder)
}

fn no_documents() -> Report {
    Report::new(Exit::Usage, "document.none", "this home has no documents").with_hint("run `writ init`")
}
