//! The words of `writ service`.

use clap::{Args, Subcommand};

/// `writ service …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// Write the unit that starts the engine with your session, or with the machine if you are root
    Install(ServiceArgs),
    /// Remove the unit
    Uninstall,
    /// Show whether the unit is there and the engine runs
    Status,
    /// Print the AppArmor profile that lets the sandbox use user namespaces, where the system restricts them
    Apparmor,
}

/// `writ service install`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServiceArgs {
    /// Print the unit, and write nothing
    #[arg(long)]
    pub(crate) print: bool,
    /// Service manager to write it for; without it, this system's
    #[arg(long, value_name = "MANAGER")]
    pub(crate) manager: Option<Manager>,
    /// The user that the engine of a system unit runs as
    #[arg(long, value_name = "USER")]
    pub(crate) run_as: Option<String>,
}

/// A manager of services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Manager {
    /// Linux
    Systemd,
    /// macOS
    Launchd,
}
