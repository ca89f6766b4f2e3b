//! `writ policy` and `writ taint`.

use std::path::PathBuf;

use clap::Subcommand;
use writ_types::id::EntrySeq;

/// `writ policy …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check the rules, and list them
    Check {
        /// A project with additional rules; they can only forbid
        #[arg(long, value_name = "DIR")]
        project: Option<PathBuf>,
    },
    /// Show which rules decided about an entry of the ledger, and what they say now
    Explain {
        /// The number of an entry: denied, asked or intent
        #[arg(value_parser = super::parse_entry)]
        entry: EntrySeq,
    },
    /// Find past asks that a rule or a standing approval could have answered
    Suggest {
        /// Days to look back: 30 or 30d
        #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = parse_days)]
        since: u32,
    },
    /// Show how rules on trial (in policies/shadow) would have changed past decisions
    Shadow {
        /// Days to look back: 30 or 30d
        #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = parse_days)]
        since: u32,
    },
    /// Put rules on trial into force
    Promote {
        /// The name of their file in policies/shadow, without .cedar
        name: String,
    },
    /// Decide the cases of a file by the rules, and compare the decisions with the expected ones
    Test {
        /// A TOML file of `[[case]]` tables
        file: PathBuf,
        /// A project with additional rules
        #[arg(long, value_name = "DIR")]
        project: Option<PathBuf>,
    },
}

/// Reads a number of days, with or without a `d`.
fn parse_days(text: &str) -> Result<u32, std::num::ParseIntError> {
    text.strip_suffix('d').unwrap_or(text).parse()
}

/// `writ taint …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TaintCommand {
    /// Show which earlier entries have influenced an entry of the ledger, and how far each is trusted
    Explain {
        /// The number of an entry: received, intent, outcome or replied
        #[arg(value_parser = super::parse_entry)]
        entry: EntrySeq,
    },
}
