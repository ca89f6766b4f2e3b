//! The arguments of `writ plugins`.

use std::path::PathBuf;

use clap::Subcommand;
use writ_mcp::config::ServerName;

/// `writ plugins …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PluginsCommand {
    /// List the plugins and their tools
    List,
    /// Copy a plugin into the home, start it in the sandbox, show its tools, and use it after your approval
    Load {
        /// The folder with its `plugin.toml`
        folder: PathBuf,
        /// Hosts that it may reach, separated by commas; without it, none
        #[arg(long, value_name = "HOST", value_delimiter = ',')]
        hosts: Vec<String>,
        /// Trust without being asked; the tools are still printed
        #[arg(long)]
        yes: bool,
    },
    /// Stop using a plugin, and remove its files from the home
    Unload {
        /// Its name
        name: ServerName,
    },
}
