//! The arguments of `writ sessions` and `writ replay`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use writ_types::id::SessionId;

/// `writ sessions …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List the conversations, the one used last first
    List {
        /// List deleted conversations that can be restored
        #[arg(long)]
        deleted: bool,
        /// Number of conversations
        #[arg(short = 'n', long, default_value_t = 20, value_name = "N")]
        lines: usize,
    },
    /// Show a conversation with its messages
    Show {
        /// Its id
        session: SessionId,
    },
    /// Rename a conversation
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
    /// Copy a conversation, whole or up to a turn, and continue the copy
    Fork {
        /// Its id
        session: SessionId,
        /// The number of the last turn that is copied; without it, all
        #[arg(long, value_name = "N")]
        turn: Option<u64>,
    },
    /// Write a conversation as a cassette: a recording of the requests to models and tools and their answers, with secrets masked
    Export {
        /// Its id
        session: SessionId,
        /// The file; without it, standard output
        #[arg(short, long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Delete a conversation; it can be restored for 30 days
    Delete {
        /// Its id
        session: SessionId,
        /// Erase its content now; it cannot be restored
        #[arg(long)]
        erase: bool,
        /// Do not ask before erasing
        #[arg(long, requires = "erase")]
        yes: bool,
    },
    /// Restore a deleted conversation; it stays closed, but you can continue a copy of it (`fork`)
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
