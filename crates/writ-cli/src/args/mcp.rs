//! The arguments of `writ mcp`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use writ_mcp::config::ServerName;

/// `writ mcp …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Start a server in the sandbox, show its tools, and pin their descriptions after your approval
    Add(AddServer),
    /// List the servers and their tools
    List,
    /// Review the tools: which are unused, failing, slow or alike
    Review,
    /// Show how the tools of a server differ from the pinned ones, and pin them as they are now after your approval
    Trust {
        /// Its name
        name: ServerName,
        /// Trust only this tool
        tool: Option<String>,
        /// Trust without being asked; the differences are still printed
        #[arg(long)]
        yes: bool,
    },
    /// Offer the autopilot of a project as tools to another agent, over standard input and output: plan, dispatch and status
    Serve {
        /// Folder of the project
        #[arg(long, default_value = ".", value_name = "FOLDER")]
        project: PathBuf,
    },
    /// Remove a server
    Remove {
        /// Its name
        name: ServerName,
    },
}

/// `writ mcp add`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AddServer {
    /// Name of the server: its tools are called NAME__TOOL
    pub(crate) name: ServerName,
    /// URL of a server over HTTP, instead of a program
    #[arg(long, value_name = "URL", conflicts_with_all = ["argv", "hosts", "env"])]
    pub(crate) url: Option<String>,
    /// Stored secret that is sent to it as a bearer token: secret:REF
    #[arg(long, value_name = "secret:REF")]
    pub(crate) token: Option<String>,
    /// Hosts that it may reach, separated by commas; without it, none
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub(crate) hosts: Vec<String>,
    /// Variable of its environment; NAME=secret:REF gives it a stored secret
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Time limit for its start, 1 to 600 seconds: at the first start npx and uvx download packages [default:
    /// 60]
    #[arg(long, value_name = "SECS")]
    pub(crate) start_timeout: Option<u64>,
    /// Trust without being asked; the tools are still printed
    #[arg(long)]
    pub(crate) yes: bool,
    /// The program that speaks MCP over its standard input and output, and its arguments
    #[arg(last = true, required_unless_present = "url", value_name = "CMD")]
    pub(crate) argv: Vec<String>,
}
