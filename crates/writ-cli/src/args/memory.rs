//! The words of `writ memory`.

use clap::Subcommand;
use writ_types::id::MemoryId;

/// `writ memory …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    /// Find what is remembered
    Search {
        /// The words
        query: String,
        /// Number of memories
        #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
        limit: u32,
    },
    /// Remember something
    Add {
        /// Text
        text: String,
        /// Kind of memory
        #[arg(long, default_value = "fact", value_parser = ["fact", "episode", "preference", "procedure", "profile"])]
        kind: String,
    },
    /// Forget something
    Forget {
        /// Its id
        id: MemoryId,
    },
}
