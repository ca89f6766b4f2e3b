//! `writ gates`.

use std::path::PathBuf;

use clap::Subcommand;

/// `writ gates …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum GatesCommand {
    /// Judge the cases of a file by the gates, and compare with what is expected
    Test {
        /// A TOML file of `[[case]]` tables
        file: PathBuf,
    },
}
