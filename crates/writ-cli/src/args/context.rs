//! The arguments of `writ context` and `writ budget`.

use clap::{Args, Subcommand, ValueEnum};
use writ_types::api::budget::BudgetBy;
use writ_types::id::SessionId;

/// `writ context …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Show what the model of a session sees, and what each part costs
    Show(SessionChoice),
    /// Show which messages of a session its context shortens, summarises or leaves out
    Diff(SessionChoice),
    /// Pin a message: it stays in the context even if others have to be left out
    Pin {
        /// Its number, as `show` and `diff` print it
        row: u64,
        /// The session
        #[command(flatten)]
        choice: SessionChoice,
    },
    /// Remove the pin of a message
    Unpin {
        /// Its number
        row: u64,
        /// The session
        #[command(flatten)]
        choice: SessionChoice,
    },
    /// Show the topics of a session, or change to one; messages of other topics are left out of the context
    Topic {
        /// The topic of the messages that follow; a new name makes a new topic
        name: Option<String>,
        /// The messages that follow belong to no topic
        #[arg(long, conflicts_with = "name")]
        none: bool,
        /// The session
        #[command(flatten)]
        choice: SessionChoice,
    },
    /// Replace everything but the newest turn by a summary in the context; the history stays
    Compact(SessionChoice),
}

/// The session that a command is about.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SessionChoice {
    /// The session; without it, the one that was used last
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<SessionId>,
}

/// `writ budget`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BudgetArgs {
    /// Group the sums by this
    #[arg(long, value_enum, default_value = "day")]
    pub(crate) by: By,
    /// Number of days, including today; a session or item counts with all its costs
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3660))]
    pub(crate) days: u32,
    /// Change a session's budget, instead of showing the sums
    #[command(subcommand)]
    pub(crate) command: Option<BudgetCommand>,
}

/// `writ budget …`.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum BudgetCommand {
    /// Pause a session: it calls no model until you renew it
    Pause(SessionChoice),
    /// Give a session a new budget and let it continue
    Renew(SessionChoice),
}

/// The grouping of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    Day,
    Month,
    Session,
    Role,
    Model,
    Item,
}

impl By {
    /// Returns the grouping by the engine's name.
    pub(crate) const fn as_query(self) -> BudgetBy {
        match self {
            Self::Day => BudgetBy::Day,
            Self::Month => BudgetBy::Month,
            Self::Session => BudgetBy::Session,
            Self::Role => BudgetBy::Role,
            Self::Model => BudgetBy::Model,
            Self::Item => BudgetBy::Item,
        }
    }
}
