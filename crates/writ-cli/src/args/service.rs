//! The arguments of `writ service`.

use clap::{Args, Subcommand};

/// `writ service …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// Write the service file that starts the engine when you log in, or with the machine if you are root
    Install(ServiceArgs),
    /// Remove the service file
    Uninstall,
    /// Show if the service file exists and the engine runs
    Status,
    /// Print the AppArmor profile that lets the sandbox use user namespaces, where the system restricts them
    Apparmor,
}

/// `writ service install`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServiceArgs {
    /// Print the service file, and write nothing
    #[arg(long)]
    pub(crate) print: bool,
    /// The service manager; without it, this system's
    #[arg(long, value_name = "MANAGER")]
    pub(crate) manager: Option<Manager>,
    /// The user that the engine of a system service runs as
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
