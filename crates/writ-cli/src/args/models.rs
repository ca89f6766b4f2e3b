//! The words of `writ models` and `writ doctor`.

use clap::{Args, Subcommand};

/// `writ models …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// List the models of the configuration, and what is known of them
    List,
    /// Send small requests to a model, and say what works with it; a provider bills them
    Test {
        /// The model, as PROVIDER/NAME; without it, the one that answers you
        model: Option<String>,
    },
    /// List the prices that calls are counted with, your own first
    Prices {
        /// Models whose name has this text
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
