//! The arguments of `writ agent`.

use std::path::PathBuf;

use clap::Subcommand;

/// `writ agent …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Show what the agent in a folder may do, ask you to approve it, and sign a base key for the folder as it is now
    #[command(after_help = BLESS_HELP)]
    Bless {
        /// The folder with its agent.toml
        dir: PathBuf,
        /// Approve it without being asked; what it may do is still printed
        #[arg(long)]
        yes: bool,
    },
    /// Put an approved agent into this home, in place of its earlier version
    Deploy {
        /// The folder that was approved
        dir: PathBuf,
        /// Revoke the base keys of its other versions and all its task keys, so that other agents take its cases at once
        #[arg(long)]
        revoke_earlier: bool,
    },
    /// List the agents of this home, and whether each is unchanged since its approval
    List,
    /// Show what an agent of this home may do, and under which key
    Inspect {
        /// The agent
        name: String,
    },
    /// Revoke an agent's keys, and take it out of this home
    Retire {
        /// The agent
        name: String,
        /// Reason, for the ledger
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
    },
    /// Show from the ledger which agents were approved, deployed and retired, by whom, and under which keys
    History {
        /// Only this agent
        name: Option<String>,
    },
}

/// Text at the end of the help.
const BLESS_HELP: &str = "\
The key is written to DIR/.keys/base.jwt, which only you can read. The same version of the same folder keeps its key;
a changed folder needs another `version` in its agent.toml, and your approval.";
