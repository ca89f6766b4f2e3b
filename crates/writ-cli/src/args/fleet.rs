//! The words of `writ fleet`.

use clap::Subcommand;

/// `writ fleet …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// List the open cases, who holds each, and since when
    Status,
    /// Make the token that the front end shows, and print it once
    Token {
        /// Replace the one that there is, which is refused from then on
        #[arg(long)]
        new: bool,
    },
    /// Show who had access to a case when, from the ledger
    Access {
        /// The case: its id, or its token
        case: String,
    },
}
