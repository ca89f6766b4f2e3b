//! The arguments of `writ models` and `writ doctor`.

use clap::{Args, Subcommand};

/// `writ models …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// List the models of the configuration, with their sizes, prices and abilities
    List,
    /// Send small requests to a model, and report which features work; its provider bills them
    Test {
        /// The model, as PROVIDER/NAME; without it, the one that answers you
        model: Option<String>,
    },
    /// List the prices by which the cost of calls is computed, your own first
    Prices {
        /// Only models whose name contains this text
        model: Option<String>,
    },
}

/// `writ doctor`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Send small requests to the model that answers you, too; its provider bills them
    #[arg(long)]
    pub(crate) models: bool,
}
