//! The words of `writ pilot`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `writ pilot …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PilotCommand {
    /// Find the test, lint and build commands of a project, and write `.writ/pilot.toml`
    Init {
        #[command(flatten)]
        place: PilotPlace,
    },
    /// Plan a goal: milestones, slices and tasks with their checks; nothing runs before you approve it
    Plan {
        /// The goal, in words
        goal: String,
        #[command(flatten)]
        place: PilotPlace,
    },
    /// Approve the newest plan: signs exactly what is shown
    Approve {
        #[command(flatten)]
        place: PilotPlace,
        /// Sign without being asked again; the text is still printed
        #[arg(long)]
        yes: bool,
        /// Reason, for the record
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
    },
    /// Work on what was approved, and wait until it is done or needs you
    Auto {
        #[command(flatten)]
        place: PilotPlace,
        /// Only start it: it goes on in the engine
        #[arg(long)]
        detach: bool,
    },
    /// Stop after the attempts that run
    Pause {
        #[command(flatten)]
        place: PilotPlace,
    },
    /// Show plans, units, costs, and what holds them up
    Status {
        #[command(flatten)]
        place: PilotPlace,
        /// Go on, and show it again whenever it has changed, until Ctrl-C
        #[arg(short, long)]
        watch: bool,
        /// Show the settings in force instead, each with the file and the line that it comes from
        #[arg(long, conflicts_with = "watch")]
        settings: bool,
    },
    /// Show a unit: its runs, its moves from phase to phase, its gates, its last error
    #[command(visible_alias = "forensics")]
    Show(PilotUnitArgs),
    /// Accept the result of a unit that waits for it
    Accept(PilotUnitArgs),
    /// Reject the result of a unit; say why, since the next plan reads it
    Reject(PilotReasonArgs),
    /// Let a unit go on after a pause, or after you have resolved its conflict
    Resume(PilotUnitArgs),
    /// Give what holds a unit up to a reassessment
    ForceClear(PilotUnitArgs),
    /// End a unit; what it has committed stays below `refs/writ/archive/`
    Cancel(PilotReasonArgs),
}

impl PilotCommand {
    /// Returns the project that is meant.
    pub(crate) fn place(&mut self) -> &mut PilotPlace {
        match self {
            Self::Init { place }
            | Self::Plan { place, .. }
            | Self::Approve { place, .. }
            | Self::Auto { place, .. }
            | Self::Pause { place }
            | Self::Status { place, .. } => place,
            Self::Show(args) | Self::Accept(args) | Self::Resume(args) | Self::ForceClear(args) => {
                &mut args.place
            }
            Self::Reject(args) | Self::Cancel(args) => &mut args.unit.place,
        }
    }
}

/// The project.
#[derive(Clone, Debug, Args)]
pub(crate) struct PilotPlace {
    /// Work on this folder instead of the current one
    #[arg(long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
}

/// A unit of a project.
#[derive(Clone, Debug, Args)]
pub(crate) struct PilotUnitArgs {
    /// The unit: `milestone/m1`, `slice/m1/s2` or `task/m1/s2/t3`
    pub(crate) unit: String,
    #[command(flatten)]
    pub(crate) place: PilotPlace,
}

/// A unit, and a reason.
#[derive(Clone, Debug, Args)]
pub(crate) struct PilotReasonArgs {
    #[command(flatten)]
    pub(crate) unit: PilotUnitArgs,
    /// Reason, for the record
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub(crate) reason: String,
}
