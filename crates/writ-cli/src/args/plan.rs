//! The arguments of `writ plan`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `writ plan …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Run the tool calls of a plan, one after the other, and print their results as JSON; no model is asked
    Run(PlanRunArgs),
}

/// `writ plan run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlanRunArgs {
    /// The plan: JSON with `version` "1.0" and `steps` of `id`, `tool` and `input`
    pub(crate) file: PathBuf,
    /// Save the results in this new folder, for --replay
    #[arg(long, value_name = "DIR", conflicts_with = "replay")]
    pub(crate) record: Option<PathBuf>,
    /// Run nothing, and print the results that this folder has
    #[arg(long, value_name = "DIR", conflicts_with_all = ["project", "execution_mode"])]
    pub(crate) replay: Option<PathBuf>,
    /// Work on this folder; its changes wait for `writ apply`. Without it, a work folder of its own
    #[arg(long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// Perform the steps, or decide and record them only; `auto` is `execute`, since no setting makes runs dry
    #[arg(long, value_enum, default_value = "auto", value_name = "MODE")]
    pub(crate) execution_mode: ExecutionMode,
}

/// The mode in which the steps of a plan run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExecutionMode {
    /// Follows the settings: the steps are performed.
    Auto,
    /// Decides and records the steps, and performs none.
    DryRun,
    /// Performs the steps.
    Execute,
}
