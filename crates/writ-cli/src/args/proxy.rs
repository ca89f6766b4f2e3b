//! Arguments of `writ proxy`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::SecretsCommand;

/// `writ proxy`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ProxyArgs {
    /// Operation; without one, the proxy runs
    #[command(subcommand)]
    pub(crate) command: Option<ProxyCommand>,
    /// The socket for agents, instead of proxy/agents.sock in the home
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Serve TLS on this address as well, with the certificate of proxy/proxy.toml
    #[arg(long, value_name = "ADDR")]
    pub(crate) tls: Option<SocketAddr>,
    /// End when the process with this id ends, the one that started this command
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) parent: Option<u32>,
}

/// An operation on the proxy of this home.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ProxyCommand {
    /// Store, list and remove the secrets of its databases and servers, which the engine cannot read
    #[command(subcommand)]
    Secrets(SecretsCommand),
}
