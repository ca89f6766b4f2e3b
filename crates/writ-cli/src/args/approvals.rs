//! The arguments of `writ approvals`.

use clap::Subcommand;
use writ_policy::pattern::standing;
use writ_types::id::AskId;
use writ_types::unit::Amount;

/// `writ approvals …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List the open asks: actions that wait for your approval
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
        /// Approve similar actions too, in this conversation, for an hour; `show` says which
        #[arg(long)]
        task: bool,
        /// Approve this action, and treat the values that it names as written by you, in its conversation; `show` lists them
        #[arg(long, conflicts_with_all = ["task", "standing"])]
        values: bool,
        /// Approve this action, and trust its host from now on, in every conversation; `hosts` lists trusted hosts
        #[arg(long, conflicts_with_all = ["task", "standing", "values"])]
        host: bool,
        /// The value of a field that a server of tools asks for: `--set account=main`; once for each field
        #[arg(long, value_name = "NAME=VALUE", value_parser = parse_field)]
        set: Vec<(String, String)>,
        /// Give a standing approval: similar actions in every conversation, also unattended; `show` says which
        #[arg(long, conflicts_with = "task")]
        standing: bool,
        /// Number of uses of a standing approval
        #[arg(long, value_name = "N", requires = "standing", default_value_t = standing::USES)]
        uses: u32,
        /// Number of days that a standing approval is valid
        #[arg(long, value_name = "N", requires = "standing", default_value_t = 7)]
        days: u32,
        /// An argument that may vary, and the limit for its sum over all uses: `--total amount=500`
        #[arg(long, value_name = "ARGUMENT=MAX", requires = "standing", value_parser = parse_total)]
        total: Option<(String, Amount)>,
        /// Sign without being asked again; the text is still printed
        #[arg(long)]
        yes: bool,
        /// Reason, for the record
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
    },
    /// Show how you answered in the last 30 days, and ways to be asked less or more often
    Cadence,
    /// Review the open asks in groups of similar ones; unusual asks are marked with the reason
    Review {
        /// Approve the asks of a group that are not marked as unusual; each gets its own signature
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
    /// List the hosts of your configuration and those that you trust, each with its state
    Hosts,
    /// Revoke an approval for the task, a standing approval or trust in a host; actions that run under it are stopped
    Revoke {
        /// The ask for which it was given, as listed
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

/// Reads an argument and the limit of its sum: `amount=500`.
fn parse_total(text: &str) -> Result<(String, Amount), String> {
    let (argument, most) = text.split_once('=').ok_or("write ARGUMENT=MAX, as in amount=500")?;
    let most = most.parse::<Amount>().map_err(|error| error.to_string())?;
    if argument.is_empty() { Err("name the argument".to_owned()) } else { Ok((argument.to_owned(), most)) }
}
