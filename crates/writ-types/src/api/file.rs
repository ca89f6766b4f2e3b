//! Files of messages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chat::FileRef;
use crate::id::SessionId;

/// A file for a message of a session.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewFile {
    /// The session.
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// Its bytes as base64.
    pub content: String,
}

impl std::fmt::Debug for NewFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the bytes: a file may hold secrets, and a log is no place for megabytes.
        f.debug_struct("NewFile")
            .field("session", &self.session)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A file that was stored. A message brings it along by having its line in its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoredFile {
    /// The file.
    pub file: FileRef,
    /// The line for the text of the message.
    pub line: String,
}
