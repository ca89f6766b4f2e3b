//! The arguments of `writ memory`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use writ_types::id::MemoryId;

/// `writ memory …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    /// Find memories by words, meaning and time
    Search {
        /// The words; "last week" or "in March" limit the time
        query: String,
        /// Number of memories
        #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
        limit: u32,
    },
    /// Show a memory with its causes, effects and names
    Show {
        /// Its id
        id: MemoryId,
    },
    /// Store a memory
    Add {
        /// Text
        text: String,
        /// Kind of memory
        #[arg(long, default_value = "fact", value_parser = ["fact", "episode", "preference", "procedure", "profile"])]
        kind: String,
        /// Importance, from 0 to 1000
        #[arg(long, default_value_t = 700, value_parser = clap::value_parser!(u16).range(0..=1000), value_name = "N")]
        importance: u16,
        /// Never put it aside
        #[arg(long)]
        pinned: bool,
        /// The id of a memory that caused it; may be given several times
        #[arg(long, value_name = "ID")]
        cause: Vec<MemoryId>,
    },
    /// Change a memory
    Edit {
        /// Its id
        id: MemoryId,
        /// Another text
        #[arg(long)]
        text: Option<String>,
        /// Another importance, from 0 to 1000
        #[arg(long, value_parser = clap::value_parser!(u16).range(0..=1000), value_name = "N")]
        importance: Option<u16>,
        /// Never put it aside
        #[arg(long, conflicts_with = "unpinned")]
        pinned: bool,
        /// Put it aside when it is stale
        #[arg(long)]
        unpinned: bool,
        /// The id of a memory that caused it, in place of the present ones; may be given several times
        #[arg(long, value_name = "ID")]
        cause: Vec<MemoryId>,
    },
    /// Delete a memory
    Forget {
        /// Its id
        id: MemoryId,
    },
    /// List the memories that wait for your confirmation
    Pending,
    /// Confirm a memory; memories that contradict it are put aside
    Confirm {
        /// Its id
        id: MemoryId,
        /// Reject it instead: it is put aside
        #[arg(long)]
        no: bool,
    },
    /// Show the profile of you that stands in every context
    Profile {
        /// Forget it; the memories stay, and the next digest writes it anew
        #[arg(long)]
        clear: bool,
    },
    /// Have a model distil the memories into the profile now
    Digest,
    /// Undo changes: an edit, a confirmation, a consolidation
    Undo {
        /// The name of the changes, from "writ memory stats"; without it, the last changes
        changes: Option<String>,
    },
    /// Write all memories as lines of JSON
    Export {
        /// The file; without it, standard output
        file: Option<PathBuf>,
    },
    /// Read memories from lines of JSON
    Import {
        /// File
        file: PathBuf,
        /// With "merge", existing memories stay; with "replace", only those of the file remain
        #[arg(long, value_enum, default_value_t = ImportMode::Merge)]
        mode: ImportMode,
    },
    /// Count memories, vectors and questions
    Stats,
}

/// The treatment of existing memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportMode {
    /// They stay.
    Merge,
    /// Only those of the file remain.
    Replace,
}
