//! The arguments of `writ work`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use writ_types::work::DomainTag;

/// `writ work …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum WorkCommand {
    /// List the work items and how far each has come
    List {
        /// List the autopilot's attempts, too, which `writ pilot status` shows
        #[arg(long)]
        all: bool,
        /// List those with this domain
        #[arg(long, value_name = "NAME")]
        domain: Option<DomainTag>,
    },
    /// Show an item: its steps, its attempts, and the results of its checks
    Show(WorkArgs),
    /// Propose a plan from a file; nothing runs before you approve it
    Propose {
        /// The plan: Markdown with front matter
        file: PathBuf,
        /// Work on this folder instead of the current one
        #[arg(long, value_name = "DIR")]
        project: Option<PathBuf>,
    },
    /// Approve the plan of an item: signs exactly what is shown
    Approve {
        #[command(flatten)]
        item: WorkArgs,
        /// Sign without being asked again; the text is still printed
        #[arg(long)]
        yes: bool,
        /// Reason, for the record
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
    },
    /// Pause an item: its running attempt is stopped, and no other begins
    Pause {
        /// Its id, or its name
        item: String,
    },
    /// Let a paused item continue
    Resume(WorkArgs),
    /// End an item
    Cancel {
        /// Its id, or its name
        item: String,
    },
    /// Give an item a domain, a tag such as home: it is listed under each of its domains
    Tag(DomainArgs),
    /// Take a domain from an item
    Untag(DomainArgs),
    /// Propose an item again; its finished steps stay finished
    Retry {
        /// Its id, or its name
        item: String,
    },
}

/// The item of a command, and a domain.
#[derive(Clone, Debug, Args)]
pub(crate) struct DomainArgs {
    /// Its id, or its name
    pub(crate) item: String,
    /// The domain: letters a-z, digits and '-', at most 32
    pub(crate) domain: DomainTag,
}

/// The item of a command, and the choice to wait for it.
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkArgs {
    /// Its id, or its name
    pub(crate) item: String,
    /// Show its progress until it is over or needs a person
    #[arg(long)]
    pub(crate) wait: bool,
}
