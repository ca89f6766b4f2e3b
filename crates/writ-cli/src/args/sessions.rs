//! The words of `writ sessions` and `writ replay`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use writ_types::id::SessionId;

/// `writ sessions …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List the conversations, the one used last first
    List {
        /// Those that were deleted and can be brought back
        #[arg(long)]
        deleted: bool,
        /// Number of conversations
        #[arg(short = 'n', long, default_value_t = 20, value_name = "N")]
        lines: usize,
    },
    /// Show one, with what was said in it
    Show {
        /// Its id
        session: SessionId,
    },
    /// Give one another name
    Rename {
        /// Its id
        session: SessionId,
        /// The name
        title: String,
    },
    /// Find messages by their words
    Search {
        /// The words: a message must contain all of them
        #[arg(required = true)]
        words: Vec<String>,
        /// Number of messages
        #[arg(short = 'n', long, default_value_t = 20, value_name = "N")]
        limit: usize,
    },
    /// Copy one, to go on from some point of it in another way
    Fork {
        /// Its id
        session: SessionId,
        /// The number of the last turn that is copied; without it, all
        #[arg(long, value_name = "N")]
        turn: Option<u64>,
    },
    /// Write one as a cassette: what models and tools were asked and answered, with secrets masked
    Export {
        /// Its id
        session: SessionId,
        /// The file; without it, standard output
        #[arg(short, long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Delete one: it can be brought back for 30 days
    Delete {
        /// Its id
        session: SessionId,
        /// Erase its content now; nothing brings it back
        #[arg(long)]
        erase: bool,
        /// Do not ask before erasing
        #[arg(long, requires = "erase")]
        yes: bool,
    },
    /// Bring a deleted one back; it stays closed, and a copy of it goes on
    Restore {
        /// Its id
        session: SessionId,
    },
}

/// `writ replay`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The conversation
    pub(crate) session: SessionId,
    /// Show every call, not only those that would be decided differently
    #[arg(long)]
    pub(crate) all: bool,
}
