//! The arguments of `writ hooks`.

use std::path::PathBuf;

use clap::Subcommand;

/// `writ hooks …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum HooksCommand {
    /// Show the hooks in their order, with the digests of their programs
    List,
    /// Call hooks with the cases of a file, and compare their verdicts with the expected ones
    Test {
        /// A TOML file of `[[case]]` tables
        file: PathBuf,
    },
}
