//! The history file of the line editor.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::libc;
use rustyline::Editor;
use rustyline::history::DefaultHistory;

use crate::editor::Continuation;

/// The most lines that a history may be set to keep.
pub(crate) const MAX_LINES: usize = 10_000;

/// The largest history file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// The longest line that is stored, in bytes.
const MAX_ENTRY_BYTES: usize = 16 * 1024;

/// Only the owner reads what was typed.
const MODE: u32 = 0o600;

/// The history and its file.
#[derive(Debug)]
pub(crate) struct History {
    file: Option<PathBuf>,
}

impl History {
    /// Loads the history. A file that is no regular file, too large or unreadable is left alone and not used:
    /// a chat goes on without a history.
    pub(crate) fn load_history(
        editor: &mut Editor<Continuation, DefaultHistory>,
        file: Option<PathBuf>,
    ) -> Self {
        // A file that cannot be used costs the history only, never the conversation.
        let usable = file.filter(|file| prepare_file(file).is_ok());
        let file = usable.filter(|file| editor.load_history(file).is_ok());
        Self { file }
    }

    /// Adds a line and writes it to the file.
    pub(crate) fn add_line(&self, editor: &mut Editor<Continuation, DefaultHistory>, line: &str) {
        if line.trim().is_empty() || line.len() > MAX_ENTRY_BYTES {
            return;
        }
        let added = editor.add_history_entry(line).unwrap_or(false);
        if let (true, Some(file)) = (added, &self.file) {
            // A history that cannot be written (a full disk) must not end the chat.
            let _best_effort = editor.append_history(file);
        }
    }
}

/// Makes the file if it is not there, and sees to its mode.
fn prepare_file(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(MODE)
        // A link could lead to any file of the user; a pipe would block.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > MAX_FILE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    file.set_permissions(fs::Permissions::from_mode(MODE))
}
