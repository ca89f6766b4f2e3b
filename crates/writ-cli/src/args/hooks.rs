//! `writ hooks`.

use std::path::PathBuf;

use clap::Subcommand;

/// `writ hooks …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum HooksCommand {
    /// Show the hooks in their order, with the digests of their programs
    List,
    /// Call hooks on the cases of a file, and compare with what is expected
    Test {
        /// A TOML file of `[[case]]` tables
        file: PathBuf,
    },
}
