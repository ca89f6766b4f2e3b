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
}
