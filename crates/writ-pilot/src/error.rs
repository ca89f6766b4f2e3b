//! The reasons why the git service did not do something.

use std::path::PathBuf;

use writ_autopilot::machine::MachineError;
use writ_sandbox::git::{BranchName, GitFault, RefName};
use writ_store::error::StoreError;
use writ_types::error::{Exit, Report, ToReport};

use crate::prompts::PromptError;

/// The reason why something was not done. Nothing of the user's was changed, and no commit was removed.
#[derive(Debug, thiserror::Error)]
pub enum PilotGitError {
    /// Git or the files of the repository.
    #[error(transparent)]
    Git(#[from] GitFault),
    /// A branch of that name exists, and is not the autopilot's.
    #[error("the branch '{branch}' exists, and is not the autopilot's")]
    BranchExists {
        /// The branch.
        branch: String,
    },
    /// The branch of a slice is not there any longer.
    #[error("the branch '{branch}' of the slice was deleted")]
    BranchMissing {
        /// The branch.
        branch: BranchName,
    },
    /// The work tree of a slice is at something else than its branch.
    #[error("the workspace {} is at {found}, not at '{branch}'", folder.display())]
    Elsewhere {
        /// The folder.
        folder: PathBuf,
        /// Its branch.
        branch: BranchName,
        /// Its state.
        found: String,
    },
    /// Something that is no workspace lies in the place of one.
    #[error("{} holds files, and is no workspace", folder.display())]
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
    /// Slices depend on each other's code in a circle, or on one that does not exist.
    #[error("the code of '{unit}' depends on {on}")]
    Dependency {
        /// The unit.
        unit: String,
        /// The circle, or the unit that does not exist.
        on: String,
    },
    /// The target has moved at each try.
    #[error("the branch '{target}' has moved {times} times while a merge was checked")]
    MovesAlways {
        /// The target.
        target: BranchName,
        /// The number of tries.
        times: usize,
    },
    /// No commit of the unit was found.
    #[error("no commit of '{unit}' is in '{target}'")]
    NoCommits {
        /// The unit.
        unit: String,
        /// The branch that was searched.
        target: BranchName,
    },
    /// The branch has moved since the plan was shown.
    #[error("the branch '{target}' has moved since the list was shown")]
    PlanOutdated {
        /// The branch.
        target: BranchName,
    },
    /// Conflict markers are still in files.
    #[error("conflict markers are left in {}", show_files(files))]
    MarkersLeft {
        /// The files.
        files: Vec<PathBuf>,
    },
    /// No merge is being resolved in this workspace.
    #[error("no conflict of '{unit}' is being resolved")]
    NoConflict {
        /// The unit.
        unit: String,
    },
    /// An archive of the same name holds another commit.
    #[error("'{name}' exists, at another commit")]
    ArchiveExists {
        /// The reference.
        name: RefName,
    },
}

fn show_files(files: &[PathBuf]) -> String {
    files.iter().take(20).map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
}

impl ToReport for PilotGitError {
    // tidy: table
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            Self::Git(fault) => fault.report(),
            Self::BranchExists { .. } => Report::new(Exit::Blocked, "pilot.branch_exists", text)
                .with_hint("rename that branch or remove it: the autopilot overwrites none"),
            Self::BranchMissing { .. } => Report::new(Exit::Blocked, "pilot.branch_missing", text)
                .with_hint("restore it from `git reflog`, or abandon the slice"),
            Self::Elsewhere { .. } => Report::new(Exit::Blocked, "pilot.elsewhere", text)
                .with_hint("switch the workspace back to its branch, with the commits that it should have"),
            Self::Occupied { .. } => Report::new(Exit::Blocked, "pilot.occupied", text)
                .with_hint("move its files elsewhere, and remove the folder"),
            Self::Dependency { .. } => Report::new(Exit::Usage, "pilot.code_dependency", text)
                .with_hint("correct `code_depends_on` in the plan"),
            Self::MovesAlways { .. } => Report::new(Exit::Blocked, "pilot.target_moves", text)
                .with_hint("try again when less is merged by others, or with a faster check"),
            Self::NoCommits { .. } => Report::new(Exit::Usage, "pilot.no_commits", text)
                .with_hint("`git log --grep=UNIT` searches every branch"),
            Self::PlanOutdated { .. } => Report::new(Exit::Blocked, "pilot.plan_outdated", text)
                .with_hint("look at the list anew, and confirm it again"),
            Self::MarkersLeft { .. } => Report::new(Exit::Verification, "pilot.markers_left", text)
                .with_hint("resolve these files, then try again"),
            Self::NoConflict { .. } => Report::new(Exit::Usage, "pilot.no_conflict", text)
                .with_hint("merge it: there is nothing to resolve"),
            Self::ArchiveExists { .. } => Report::new(Exit::Blocked, "pilot.archive_exists", text)
                .with_hint("rename that reference with `git update-ref`"),
        }
    }
}

/// The reason why the autopilot did not do something.
#[derive(Debug, thiserror::Error)]
pub enum AutopilotError {
    /// Its git service.
    #[error(transparent)]
    Git(#[from] PilotGitError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A prompt.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// The engine refused.
    #[error("{}", .0.inside)]
    Refused(Box<Report>),
    /// A file of a unit.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A row that this version does not understand.
    #[error("{unit} cannot be read: {why}")]
    Unreadable {
        /// The unit.
        unit: String,
        /// The reason.
        why: String,
    },
    /// The folder of a project cannot be used.
    #[error("no project can be at '{folder}': {why}")]
    NoFolder {
        /// The folder that was named.
        folder: String,
        /// The reason.
        why: String,
    },
    /// A goal without a word.
    #[error("the goal is empty")]
    NoGoal,
    /// The project has no plan.
    #[error("nothing is planned in {project}")]
    NoPlan {
        /// The project's folder.
        project: String,
    },
    /// There is no such unit.
    #[error("there is no unit '{unit}'")]
    NoUnit {
        /// The id that was asked for.
        unit: String,
    },
    /// Another process works on the project, or the loop runs already.
    #[error("an attempt at {unit} runs: wait for its end, or cancel it")]
    Busy {
        /// The unit.
        unit: String,
    },
    /// A unit cannot be handed out now.
    #[error("{unit} cannot be handed out: {why}")]
    NotReady {
        /// The unit.
        unit: String,
        /// The reason.
        why: String,
    },
    /// The loop hands out what is next.
    #[error("the loop of the project runs, and hands out what is next by itself")]
    LoopRuns,
    /// No run can be rated: none has ended, or none had a model of its own.
    #[error("no run {} can be rated", if unit.is_empty() { "of this project".to_owned() } else { format!("of {unit}") })]
    NoRun {
        /// The unit; empty: any.
        unit: String,
    },
    /// A result was rejected without a reason, which its next plan would have to read.
    #[error("{unit} is rejected without a reason")]
    NoReason {
        /// The unit.
        unit: String,
    },
    /// The planner wrote no plan.
    #[error("the planner wrote no plan that can be used: {why}")]
    NoOutline {
        /// The last mistake.
        why: String,
    },
    /// The plan's file is not the one that the person has looked at.
    #[error("{file} was changed since its edits were shown")]
    PlanChanged {
        /// The file.
        file: String,
    },
    /// Units are not as they were when the plan's edits were compared with them.
    #[error("a unit was handed out or has moved on while {file} was read; nothing was changed")]
    UnitsMoved {
        /// The file.
        file: String,
    },
    /// No task of the project is done, by which models could be measured.
    #[error("no task of the project is done yet")]
    NoSample,
    /// The session of a project has open work.
    #[error("the session cannot end: {what} is open in it")]
    SessionOpen {
        /// The open work.
        what: String,
    },
    /// There is no such session of an autopilot.
    #[error("there is no session '{session}' of an autopilot")]
    NoSession {
        /// The id that was asked for.
        session: String,
    },
    /// A filter of the history has no such value.
    #[error("'{text}' is no {what}")]
    NoFilter {
        /// The kind of value.
        what: &'static str,
        /// The text that was given.
        text: String,
    },
    /// Nothing of that id is in the trace.
    #[error("there is neither a run nor a session '{id}' in the trace of this project")]
    NoTrace {
        /// The id that was asked for.
        id: String,
    },
    /// A change that an agent asks for is not one of its plan.
    #[error("{why}")]
    UnitChange {
        /// The reason.
        why: String,
        /// The next thing to do.
        hint: &'static str,
    },
    /// No request can be opened for a unit.
    #[error("no request is opened for {unit}: {why}")]
    Ship {
        /// The unit.
        unit: String,
        /// The reason.
        why: String,
        /// The next thing to do.
        hint: &'static str,
    },
    /// The machine refuses an event.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

impl From<Report> for AutopilotError {
    fn from(report: Report) -> Self {
        Self::Refused(Box::new(report))
    }
}

impl ToReport for AutopilotError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            Self::Git(error) => error.report(),
            Self::Store(error) => error.report(),
            Self::Prompt(error) => error.report(),
            Self::Refused(report) => report.as_ref().clone(),
            Self::Machine(error) => error.report(),
            Self::File { .. } => Report::new(Exit::Config, "pilot.file", text).with_hint(
                "`.writ/active` and `.writ/archive` must be folders of the project that can be written",
            ),
            Self::Unreadable { .. } => Report::new(Exit::Bug, "pilot.unreadable", text)
                .with_hint("it was written by another version: use that one"),
            Self::NoFolder { .. } => Report::new(Exit::Usage, "pilot.no_folder", text)
                .with_hint("name the folder of a git repository by its whole path"),
            Self::NoGoal => Report::new(Exit::Usage, "pilot.no_goal", text)
                .with_hint("say in words what is wanted: `writ pilot plan \"GOAL\"`"),
            Self::NoPlan { .. } => Report::new(Exit::Usage, "pilot.no_plan", text)
                .with_hint("`writ pilot plan \"GOAL\"` makes a plan"),
            Self::NoUnit { .. } => Report::new(Exit::Usage, "pilot.no_unit", text)
                .with_hint("`writ pilot status` lists the units"),
            Self::Busy { .. } => {
                Report::new(Exit::Blocked, "pilot.busy", text).with_hint("`writ pilot status` shows it")
            }
            Self::NotReady { .. } => Report::new(Exit::Blocked, "pilot.not_ready", text).with_hint(
                "`writ pilot show UNIT` names what holds it; `writ pilot resume UNIT` ends a pause",
            ),
            Self::LoopRuns => Report::new(Exit::Blocked, "pilot.loop_runs", text)
                .with_hint("`writ pilot pause` stops it after the attempts that run"),
            Self::NoRun { .. } => Report::new(Exit::Usage, "pilot.no_run", text)
                .with_hint("`writ pilot report` lists the runs; one that succeeded or failed can be rated"),
            Self::NoReason { .. } => Report::new(Exit::Usage, "pilot.no_reason", text)
                .with_hint("say what has to be different: its next plan reads it"),
            Self::PlanChanged { .. } => Report::new(Exit::Blocked, "pilot.plan_changed", text)
                .with_hint("look at the edits again, and confirm them"),
            Self::UnitsMoved { .. } => Report::new(Exit::Blocked, "pilot.units_moved", text)
                .with_hint("`writ pilot pause`, look at the edits again, and confirm them"),
            Self::NoSample => Report::new(Exit::Usage, "pilot.no_sample", text)
                .with_hint("models are measured by tasks that are done: `writ pilot auto` does some"),
            Self::SessionOpen { .. } => Report::new(Exit::Blocked, "pilot.session_open", text)
                .with_hint("`writ pilot status` lists it: let it come to its end, or cancel it"),
            Self::NoSession { .. } => Report::new(Exit::Usage, "pilot.no_session", text)
                .with_hint("`writ pilot status --json` names the session of a project"),
            Self::NoFilter { .. } => Report::new(Exit::Usage, "pilot.no_filter", text)
                .with_hint("a day is written as 2026-01-31; `writ pilot history --help` names the filters"),
            Self::NoTrace { .. } => Report::new(Exit::Usage, "pilot.no_trace", text).with_hint(
                "name a unit, as `writ pilot status` lists it, a run, or the session of the project",
            ),
            Self::UnitChange { hint, .. } => {
                Report::new(Exit::Usage, "pilot.unit_change", text).with_hint(*hint)
            }
            Self::Ship { hint, .. } => Report::new(Exit::Blocked, "pilot.ship", text).with_hint(*hint),
            Self::NoOutline { .. } => Report::new(Exit::Model, "pilot.no_outline", text)
                .with_hint("say the goal in other words, or use another model for the planner"),
        }
    }
}
