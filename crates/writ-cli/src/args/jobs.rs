//! The arguments of `writ jobs`.

use clap::Subcommand;

/// `writ jobs …`.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List the jobs, when each runs next, and how its last run ended
    List,
}
