//! The arguments of `writ backup`.

use clap::{Args, Subcommand};

/// `writ backup …`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BackupArgs {
    /// Operation; without one, a backup is made
    #[command(subcommand)]
    pub(crate) command: Option<BackupCommand>,
    /// Number of backups to keep; older ones are removed
    #[arg(long, default_value_t = 30, value_name = "N")]
    pub(crate) keep: usize,
}

/// An operation on backups.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// List the backups, newest first
    List,
    /// Restore a backup. Earlier approvals and keys become void
    Restore {
        /// Its number in the list
        number: usize,
    },
}
