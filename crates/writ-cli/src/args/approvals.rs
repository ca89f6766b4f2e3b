//! `writ approvals …`.

use clap::Subcommand;
use writ_policy::pattern::standing;
use writ_types::id::AskId;
use writ_types::unit::Amount;

/// `writ approvals …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List what is asked
    List,
    /// Show one ask completely
    Show {
        /// Its id
        ask: AskId,
    },
    /// Approve an ask: signs exactly what is shown
    Approve {
        /// Its id
        ask: AskId,
        /// For the task: also what is alike, in this conversation, for an hour; `show` says what that covers
        #[arg(long)]
        task: bool,
        /// This, and what it names counts in its conversation as if you had written it; `show` says what that is
        #[arg(long, conflicts_with_all = ["task", "standing"])]
        values: bool,
        /// This, and the host that it names is trusted from now on, in every conversation; `hosts` lists them
        #[arg(long, conflicts_with_all = ["task", "standing", "values"])]
        host: bool,
        /// A field that a server of tools asks for, and its value: `--set account=main`; once for each field
        #[arg(long, value_name = "NAME=VALUE", value_parser = parse_field)]
        set: Vec<(String, String)>,
        /// A standing approval: also what is alike, in every conversation and unattended; `show` says what that covers
        #[arg(long, conflicts_with = "task")]
        standing: bool,
        /// Number of uses of a standing approval
        #[arg(long, value_name = "N", requires = "standing", default_value_t = standing::USES)]
        uses: u32,
        /// For how many days a standing approval is good
        #[arg(long, value_name = "N", requires = "standing", default_value_t = 7)]
        days: u32,
        /// An argument that may vary, and the most that all uses may come to: `--total amount=500`
        #[arg(long, value_name = "ARGUMENT=MAX", requires = "standing", value_parser = parse_total)]
        total: Option<(String, Amount)>,
        /// Sign without being asked again; the text is still printed
        #[arg(long)]
        yes: bool,
        /// Reason, for the record
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
    },
    /// Show how questions were answered in the last 30 days, and offers to be asked less or more
    Cadence,
    /// Review what is asked in groups of what is alike, with what is unusual about each
    Review {
        /// Approve the asks of a group that have no mark, each signed by itself
        #[arg(long, value_name = "GROUP")]
        approve: Option<usize>,
        /// Sign without being asked again; the texts are still printed
        #[arg(long, requires = "approve")]
        yes: bool,
        /// Reason, for the record
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
    },
    /// List the standing approvals that are in force
    Standing,
    /// List the hosts of your configuration and those that you trust, and how each stands
    Hosts,
    /// Take an approval for the task, a standing one or trust in a host back; what runs on an approval is stopped
    Revoke {
        /// The ask that it was given for, as listed
        ask: AskId,
    },
    /// Deny an ask
    Deny {
        /// Its id
        ask: AskId,
        /// Reason, for the record and for the agent
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
    },
}

/// Reads a field and its value: `account=main`.
fn parse_field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, as in account=main")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// An argument and the most that it may come to: `amount=500`.
fn parse_total(text: &str) -> Result<(String, Amount), String> {
    let (argument, most) = text.split_once('=').ok_or("write ARGUMENT=MAX, as in amount=500")?;
    let most = most.parse::<Amount>().map_err(|error| error.to_string())?;
    if argument.is_empty() { Err("name the argument".to_owned()) } else { Ok((argument.to_owned(), most)) }
}
