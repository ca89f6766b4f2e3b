//! The arguments of `writ fleet`.

use clap::{Args, Subcommand};

/// `writ fleet …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Show the agents, what each does, and the open cases with their holders
    Status(FleetStatusArgs),
    /// Make the token by which the front end is authenticated, and print it once
    Token {
        /// Replace the present token, which is refused from then on
        #[arg(long)]
        new: bool,
    },
    /// Show the conversation of a case
    Messages(MessagesArgs),
    /// Show from the ledger who had access to a case when, and who read it
    Access {
        /// The case: its id, or its token
        case: String,
    },
    /// Take a case over; an agent that holds it loses its key at once
    Take {
        /// The case: its id, or its token
        case: String,
    },
    /// Answer the guest of a case that no agent holds
    Answer {
        /// The case: its id, or its token
        case: String,
        /// The answer; without it, or with `-`, it is read from standard input
        text: Option<String>,
    },
    /// Give a case back to agents; with this you also approve an agent's request
    Back(BackArgs),
    /// Close a case; an agent that holds it loses its key at once
    Close {
        /// The case: its id, or its token
        case: String,
        /// Reason, for the record
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
    },
}

/// `writ fleet status`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FleetStatusArgs {
    /// Show the state again whenever it changes, until Ctrl-C
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Seconds between two checks for changes
    #[arg(long, value_name = "SECS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) every: u64,
}

/// `writ fleet messages`.
#[derive(Clone, Debug, Args)]
pub(crate) struct MessagesArgs {
    /// The case: its id, or its token
    pub(crate) case: String,
    /// Only messages after the one with this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) after: u64,
    /// Show new messages until the case ends, or until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// `writ fleet back`.
#[derive(Clone, Debug, Args)]
pub(crate) struct BackArgs {
    /// The case: its id, or its token
    pub(crate) case: String,
    /// The agent or role that takes the case next; without it, any agent that can
    #[arg(long, value_name = "AGENT")]
    pub(crate) to: Option<String>,
    /// Approve the agent's request
    #[arg(long)]
    pub(crate) approve: bool,
    /// A note for the agent
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub(crate) note: String,
}
