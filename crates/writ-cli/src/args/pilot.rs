//! The arguments of `writ pilot`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `writ pilot …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PilotCommand {
    /// Find the test, lint and build commands of a project, try each in the sandbox, write `.writ/pilot.toml`, and report what files and history show
    Init {
        #[command(flatten)]
        place: PilotPlace,
        /// Do not try the commands in the sandbox: all are written as gates
        #[arg(long)]
        untried: bool,
        /// Write the settings alone: look through neither files nor history for the report
        #[arg(long)]
        quick: bool,
    },
    /// Plan a goal: milestones, slices and tasks with their checks; nothing runs before you approve it
    Plan {
        /// The goal, in words
        goal: String,
        #[command(flatten)]
        place: PilotPlace,
        /// The workflow of its units, instead of the project's usual one
        #[arg(long, value_name = "NAME")]
        workflow: Option<String>,
        /// The number of the issue that it is about; hooks read it with each of its units
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        link_issue: Option<u64>,
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
    /// Work on the approved plan, and wait until it is done or needs you
    Auto {
        #[command(flatten)]
        place: PilotPlace,
        /// Only start the work, which continues in the engine
        #[arg(long)]
        detach: bool,
    },
    /// Begin no further attempts; those that run are finished
    Pause {
        #[command(flatten)]
        place: PilotPlace,
    },
    /// Show plans, units, costs, and why units wait
    Status {
        #[command(flatten)]
        place: PilotPlace,
        /// Go on showing it: on a terminal as a view with keys (q leaves), else the state again whenever it changes, until Ctrl-C
        #[arg(short, long)]
        watch: bool,
        /// Show the settings in force instead, each with the file and the line that it comes from
        #[arg(long, conflicts_with = "watch")]
        settings: bool,
    },
    /// Show a unit: its runs, its moves from phase to phase, its gates, its last error
    Show(PilotUnitArgs),
    #[command(flatten)]
    Look(PilotLook),
    #[command(flatten)]
    Step(PilotStep),
    /// Accept the result of a unit, or the change of documents that it proposes
    #[command(visible_alias = "uat-approve")]
    Accept(PilotUnitArgs),
    /// Reject the result of a unit, saying why, since the next plan reads it; or its change of documents
    #[command(visible_alias = "uat-reject")]
    Reject(PilotReasonArgs),
    /// Let a unit go on after a pause, or after you have resolved its conflict; with a reason, its next attempt reads your answer. Without
    /// a unit: all that are paused, and the work with them
    #[command(visible_alias = "reassess-resolve")]
    Resume(PilotResumeArgs),
    /// Remove the blocker of a unit, and let the planner reassess the unit
    ForceClear(PilotUnitArgs),
    /// End a unit; its commits stay below `refs/writ/archive/`
    #[command(visible_alias = "abandon")]
    Cancel(PilotReasonArgs),
    /// Push the merged work of a unit, and open a request for it at the forge of `[pilot.ship]`, if that has not been done; you are asked first
    Ship(PilotUnitArgs),
    /// Report on all units, or on one with its parts: costs, attempts, gates, reviews, moves and commits
    #[command(visible_alias = "session-report")]
    Report {
        /// The unit; without it: all
        unit: Option<String>,
        #[command(flatten)]
        place: PilotPlace,
        /// Write it as one HTML file, to look at and to share
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Show everything that happened to a unit, with times, tokens and money; with --json one object a line
    Logs {
        #[command(flatten)]
        unit: PilotUnitArgs,
        /// Only this attempt
        #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
        attempt: u32,
        /// Only the last lines
        #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
        last: usize,
        /// Pass over the newest lines, to read the ones before them
        #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
        skip: usize,
    },
    /// Rate the newest run, or the newest of a unit: later choices of a model rest on it
    Rate {
        /// More than needed, right, or not good enough: such a model is not asked for units like it any more
        rating: RatingArg,
        /// The unit; without it: the newest run of all
        unit: Option<String>,
        #[command(flatten)]
        place: PilotPlace,
    },
    /// Ask models again that were passed over since they had failed in a row
    ResetCircuits {
        #[command(flatten)]
        place: PilotPlace,
    },
    /// End the session of the project, in which nothing may be open; the next work begins another one
    #[command(visible_alias = "session-end")]
    EndSession {
        #[command(flatten)]
        place: PilotPlace,
    },
    /// Show the changes on a unit's branch that are not merged
    Diff(PilotUnitArgs),
    /// Apply your edits of the plan in `.writ/plan.md`; the file is written first if there is none
    Reload {
        #[command(flatten)]
        place: PilotPlace,
        /// Apply them without being asked; they are still printed
        #[arg(long)]
        yes: bool,
    },
    /// Undo a merged slice: shows its commits, and undoes them newest first once you have confirmed them
    Revert {
        /// The slice; without it: one of a list
        unit: Option<String>,
        #[command(flatten)]
        place: PilotPlace,
        /// Undo without being asked; the list is still printed
        #[arg(long)]
        yes: bool,
    },
    /// Resolve a conflict: first brings both sides into the workspace; after you have edited the files commits them and merges
    MergeResolve(PilotUnitArgs),
    /// Find problems with git, settings, gates, work trees, locks and branches, each with its remedy
    Doctor {
        #[command(flatten)]
        place: PilotPlace,
        /// Repair the problems that can be repaired without losing anything
        #[arg(long)]
        fix: bool,
    },
}

impl PilotCommand {
    /// Returns the project that the command works on.
    pub(crate) fn place(&mut self) -> &mut PilotPlace {
        match self {
            Self::Init { place, .. }
            | Self::Report { place, .. }
            | Self::Rate { place, .. }
            | Self::Revert { place, .. }
            | Self::Reload { place, .. }
            | Self::Doctor { place, .. }
            | Self::Plan { place, .. }
            | Self::Approve { place, .. }
            | Self::Auto { place, .. }
            | Self::Pause { place }
            | Self::ResetCircuits { place }
            | Self::EndSession { place }
            | Self::Status { place, .. } => place,
            Self::Look(look) => look.place(),
            Self::Step(step) => step.place(),
            Self::Show(args)
            | Self::Accept(args)
            | Self::ForceClear(args)
            | Self::Ship(args)
            | Self::Diff(args)
            | Self::MergeResolve(args) => &mut args.place,
            Self::Logs { unit, .. } => &mut unit.place,
            Self::Reject(args) | Self::Cancel(args) => &mut args.unit.place,
            Self::Resume(args) => &mut args.place,
        }
    }
}

/// Commands that look back.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PilotLook {
    /// Show the spans of a unit, a run or a session in the order of their times: runs, moves, tool calls, model requests, gates, hooks
    Forensics {
        /// The unit, as `task/m1/s2/t3`, or the id of a run or of the project's session
        id: String,
        #[command(flatten)]
        place: PilotPlace,
        /// Only the last spans
        #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
        last: usize,
    },
    /// List the units that are over, the newest first; filters are joined
    History {
        #[command(flatten)]
        place: PilotPlace,
        #[command(flatten)]
        filter: HistoryArgs,
    },
    /// Move trace files that are older than 30 days to the archive, where `forensics` still finds them
    Clean {
        #[command(flatten)]
        place: PilotPlace,
        /// Only list what would be moved
        #[arg(long)]
        dry_run: bool,
    },
    /// Measure the models of all tiers: each plans tasks of the project that are done, which is paid for. The models of a tier are ordered by it
    Benchmark {
        #[command(flatten)]
        place: PilotPlace,
        /// The number of tasks, at most 10
        #[arg(long, value_name = "N", default_value_t = 3)]
        samples: usize,
    },
}

impl PilotLook {
    const fn place(&mut self) -> &mut PilotPlace {
        match self {
            Self::Forensics { place, .. }
            | Self::History { place, .. }
            | Self::Clean { place, .. }
            | Self::Benchmark { place, .. } => place,
        }
    }
}

/// Commands that hand out one unit.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PilotStep {
    /// Hand out the unit that is next, once: one run of its phase. Wait for its end, and print it
    Next {
        #[command(flatten)]
        place: PilotPlace,
        /// Do not wait for the end of its run
        #[arg(long)]
        detach: bool,
    },
    /// Hand out this unit once, past the order and past units that it waits for, with a warning for each; wait for the end of the run.
    /// With a task in words: ask about that task alone, without a milestone around it, and have it done
    Dispatch {
        /// The unit, as `task/m1/s2/t3`, or a task in several words
        unit: String,
        #[command(flatten)]
        place: PilotPlace,
        /// Approve a task in words without asking
        #[arg(long)]
        yes: bool,
        /// Do not wait for the end of its run
        #[arg(long)]
        detach: bool,
    },
}

impl PilotStep {
    const fn place(&mut self) -> &mut PilotPlace {
        match self {
            Self::Next { place, .. } => place,
            Self::Dispatch { place, .. } => place,
        }
    }

    /// Has the command not wait for the end of the run.
    pub(crate) const fn detach(&mut self) {
        match self {
            Self::Next { detach, .. } | Self::Dispatch { detach, .. } => *detach = true,
        }
    }
}

/// The filters of the history.
#[derive(Clone, Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Ended on this day or later, as 2026-01-31
    #[arg(long, default_value = "", hide_default_value = true, value_name = "DAY")]
    pub(crate) since: String,
    /// With a run in this phase
    #[arg(long, default_value = "", hide_default_value = true, value_name = "PHASE")]
    pub(crate) phase: String,
    /// With this verdict: succeeded, failed, canceled or interrupted
    #[arg(long, default_value = "", hide_default_value = true, value_name = "VERDICT")]
    pub(crate) verdict: String,
    /// With this workflow
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME")]
    pub(crate) workflow: String,
    /// With a run for which this model was chosen
    #[arg(long, default_value = "", hide_default_value = true, value_name = "MODEL")]
    pub(crate) model: String,
    /// At most so many; without it: 20
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
    pub(crate) limit: usize,
}

/// A rating of a run.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum RatingArg {
    /// A weaker model would have done
    Over,
    /// Right for it
    Ok,
    /// Not good enough
    Under,
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

/// What is to go on, and a reason.
#[derive(Clone, Debug, Args)]
pub(crate) struct PilotResumeArgs {
    /// The unit; without it: all that are paused
    pub(crate) unit: Option<String>,
    #[command(flatten)]
    pub(crate) place: PilotPlace,
    /// Reason, for the record
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub(crate) reason: String,
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
