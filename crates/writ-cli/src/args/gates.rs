//! `writ gates`.

use std::path::PathBuf;

use clap::Subcommand;

/// `writ gates …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum GatesCommand {
    /// Let the gates judge the cases of a file, and compare the verdicts with the expected ones
    Test {
        /// A TOML file of `[[case]]` tables
        file: PathBuf,
    },
    /// Show the cases that gates have transferred to a queue, newest first
    Queue {
        /// The name of the queue, as in `[escalations.NAME]`
        queue: String,
        /// The most cases
        #[arg(long, default_value_t = 20)]
        lines: usize,
    },
}
