//! The autopilot of an engine: its open projects, and what people ask of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;

use tokio::sync::Mutex;
use writ_autopilot::blocker::{Blocker, BlockerKind, BlockerResolver, PauseCause};
use writ_autopilot::machine::{UnitEvent, apply_event};
use writ_autopilot::unit_id::UnitId;
use writ_runtime::fleet::DeskAnswer;
use writ_runtime::pilot::PilotHands;
use writ_runtime::pilot_desk::PilotDesk;
use writ_sandbox::git::refs::read_ref;
use writ_sandbox::git::{GitFault, GitProject};
use writ_store::batch::Op;
use writ_store::reads::UnitReads as _;
use writ_store::units::UnitOp;
use writ_types::api::pilot::{
    PilotGoal, PilotOrder, PilotPlanned, PilotProject, PilotStatus, PilotUnitDetails, PilotUnitName,
    PilotUnitOrder,
};
use writ_types::error::ToReport as _;

use crate::config::CONFIG_FILE;
use crate::drive::{self, commit_move};
use crate::error::{AutopilotError, PilotGitError};
use crate::files::ProjectFiles;
use crate::probe::{TriedGate, propose_gates, save_config, write_config};
use crate::project::{OpenProject, name_project};
use crate::standing::UnitRecord;
use crate::unit_files::UnitFile;
use crate::{goal, show};

/// The longest wait at a start for the lock of a repository: a git that outlives its engine writes files to its end.
const LOCK_WAIT: Duration = Duration::from_secs(30);
/// The time between two looks at it.
const LOCK_LOOK: Duration = Duration::from_millis(100);

/// The autopilot of one engine.
#[derive(Debug)]
pub struct Pilots {
    hands: PilotHands,
    projects: Mutex<BTreeMap<String, Arc<OpenProject>>>,
    own: Weak<Self>,
}

impl Pilots {
    /// Makes the autopilot of an engine.
    pub fn new(hands: PilotHands) -> Arc<Self> {
        Arc::new_cyclic(|own| Self { hands, projects: Mutex::default(), own: own.clone() })
    }

    /// Goes on with the projects that ran when an earlier engine ended. One that cannot be opened stays as it is, with a line in the log.
    pub async fn resume_projects(&self) {
        let sessions = match self.hands.store().pilot_sessions("running").await {
            Ok(sessions) => sessions,
            Err(error) => return tracing::error!(%error, "the autopilot's sessions cannot be read"),
        };
        for session in sessions {
            match self.resume(&session.project).await {
                Ok(()) => {}
                Err(error) if is_in_use(&error) => self.resume_later(session.project),
                Err(error) => tracing::error!(project = session.project, %error, "an autopilot cannot go on"),
            }
        }
    }

    /// Goes on with a project whose repository is in use once it no longer is: a git that outlives its engine has the lock until it ends.
    fn resume_later(&self, project: String) {
        let Some(own) = self.own.upgrade() else { return };
        let draining = self.hands.draining();
        self.hands.spawn(async move {
            let until = tokio::time::Instant::now() + LOCK_WAIT;
            loop {
                tokio::select! {
                    () = draining.cancelled() => return,
                    () = tokio::time::sleep(LOCK_LOOK) => {}
                }
                match own.resume(&project).await {
                    Err(error) if is_in_use(&error) && tokio::time::Instant::now() < until => {}
                    Err(error) => return tracing::error!(project, %error, "an autopilot cannot go on"),
                    Ok(()) => return,
                }
            }
        });
    }

    async fn resume(&self, project: &str) -> Result<(), AutopilotError> {
        start_loop(&self.open(project).await?).await
    }

    /// Ends all loops, waits for their attempts, and lets go of the projects.
    pub async fn close_projects(&self) {
        for project in std::mem::take(&mut *self.projects.lock().await).values() {
            project.end_loop();
            project.tasks.close();
            project.tasks.wait().await;
        }
    }

    async fn open(&self, folder: &str) -> Result<Arc<OpenProject>, AutopilotError> {
        let (path, name) = name_project(folder)?;
        // Held over the opening, so that a project is opened once.
        let mut projects = self.projects.lock().await;
        if let Some(project) = projects.get(&name) {
            return Ok(Arc::clone(project));
        }
        let project = Arc::new(OpenProject::open(self.hands.clone(), &path, name.clone()).await?);
        drive::make_up_ends(&project).await?;
        projects.insert(name, Arc::clone(&project));
        Ok(project)
    }

    /// Opens a project that was planned in before. Looking at any other folder makes nothing in it.
    async fn open_known(&self, folder: &str) -> Result<Arc<OpenProject>, AutopilotError> {
        let (_, name) = name_project(folder)?;
        if self.hands.store().pilot_session(&name).await?.is_none() {
            return Err(AutopilotError::NoPlan { project: name });
        }
        self.open(folder).await
    }

    async fn plan(&self, goal: PilotGoal) -> Result<PilotPlanned, AutopilotError> {
        let project = self.open(&goal.project).await?;
        goal::plan_goal(&project, &goal.goal).await
    }

    async fn run(&self, asked: PilotProject) -> Result<PilotStatus, AutopilotError> {
        let project = self.open_known(&asked.project).await?;
        if project.plans().await?.is_empty() {
            return Err(AutopilotError::NoPlan { project: project.name.clone() });
        }
        start_loop(&project).await?;
        show::show_status(&project).await
    }

    async fn pause(&self, asked: PilotProject) -> Result<PilotStatus, AutopilotError> {
        let project = self.open_known(&asked.project).await?;
        project.end_loop();
        show::show_status(&project).await
    }

    async fn status(&self, asked: PilotProject) -> Result<PilotStatus, AutopilotError> {
        show::show_status(&*self.open_known(&asked.project).await?).await
    }

    async fn unit(&self, asked: PilotUnitName) -> Result<PilotUnitDetails, AutopilotError> {
        let project = self.open_known(&asked.project).await?;
        show::show_unit(&project, read_id(&asked.unit)?).await
    }

    async fn obey(&self, person: &str, order: PilotUnitOrder) -> Result<PilotUnitDetails, AutopilotError> {
        let project = self.open_known(&order.project).await?;
        let id = read_id(&order.unit)?;
        carry_out(&project, id, (person, &order)).await?;
        // What waited for this answer goes on; what else holds the loop is seen by its first look.
        if project.hands.store().pilot_session(&project.name).await?.is_some_and(|one| one.status == "paused")
        {
            start_loop(&project).await?;
        }
        project.wake.notify_one();
        show::show_unit(&project, id).await
    }

    /// Runs a request to its end, also if its caller goes away.
    fn answer<T, F>(&self, work: impl FnOnce(Arc<Self>) -> F) -> DeskAnswer<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, AutopilotError>> + Send + 'static,
    {
        let Some(own) = self.own.upgrade() else {
            return Box::pin(async { Err(AutopilotError::NoPlan { project: String::new() }.report()) });
        };
        let task = tokio::spawn(work(own));
        Box::pin(async move {
            match task.await {
                Ok(done) => done.map_err(|error| error.report()),
                Err(error) => {
                    Err(AutopilotError::Unreadable { unit: String::new(), why: error.to_string() }.report())
                }
            }
        })
    }
}

/// Returns true if another process has the repository.
const fn is_in_use(error: &AutopilotError) -> bool {
    matches!(error, AutopilotError::Git(PilotGitError::Git(GitFault::InUse { .. })))
}

/// Starts the loop of a project, or has the one that runs go on. Its status says so when this returns.
async fn start_loop(project: &Arc<OpenProject>) -> Result<(), AutopilotError> {
    if let Some(stop) = project.begin_loop() {
        project.set_status("running").await?;
        project.hands.spawn(project.tasks.track_future(drive::run_loop(Arc::clone(project), stop)));
    }
    Ok(())
}

/// The settings of a project, as they were written or found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BegunProject {
    /// The file.
    pub file: String,
    /// True if it was written now.
    pub created: bool,
    /// The gates that were found, each with its command.
    pub gates: Vec<String>,
}

/// Finds the test, lint and build commands of a project, and writes its settings if it has none. Nothing is run.
///
/// # Errors
///
/// If the folder is no repository with a commit, or the file cannot be written.
pub async fn begin_project(folder: &Path) -> Result<BegunProject, AutopilotError> {
    let git = GitProject::open_project(folder).await.map_err(PilotGitError::from)?;
    let branch = git.current_branch().await.map_err(PilotGitError::from)?;
    let no_commit = |branch: &str| PilotGitError::from(GitFault::NoCommit { branch: branch.to_owned() });
    let name = branch.as_ref().map(ToString::to_string).unwrap_or_else(|| "HEAD".to_owned());
    let branch = branch.ok_or_else(|| no_commit(&name))?;
    let tip = read_ref(&git, &branch.to_ref()).await.map_err(PilotGitError::from)?;
    let files = ProjectFiles::read_commit(&git, &tip.ok_or_else(|| no_commit(&name))?).await;
    let gates = propose_gates(&files.map_err(PilotGitError::from)?);
    let shown = gates.iter().map(|gate| format!("{}: {}", gate.name, gate.run.join(" "))).collect();
    let tried: Vec<TriedGate> = gates.into_iter().map(|gate| TriedGate { gate, problem: None }).collect();
    let path = git.top_dir().join(CONFIG_FILE);
    let failed = |error: std::io::Error| AutopilotError::File { path: path.clone(), why: error.to_string() };
    let created = save_config(git.top_dir(), &write_config(Some(&name), &tried)).map_err(failed)?;
    Ok(BegunProject { file: path.to_string_lossy().into_owned(), created, gates: shown })
}

fn read_id(text: &str) -> Result<UnitId, AutopilotError> {
    text.parse().map_err(|_| AutopilotError::NoUnit { unit: text.chars().take(60).collect() })
}

/// Carries out a person's order about a unit.
async fn carry_out(
    project: &Arc<OpenProject>,
    id: UnitId,
    (person, order): (&str, &PilotUnitOrder),
) -> Result<(), AutopilotError> {
    let unit = project.read_unit(id).await?;
    if let PilotOrder::Cancel = order.order {
        return cancel(project, &unit).await;
    }
    // Two writers of one unit: the worker's result would be refused, and with it what it has cost.
    if unit.row.claim.is_some() {
        return Err(AutopilotError::Busy { unit: id.to_string() });
    }
    let event = event_of(&unit, order.order);
    let flow = project.flow_of(&unit).await?;
    let made = apply_event(&flow, &project.config.limits, &unit.stand, &event)?;
    let reason = match order.reason.trim() {
        "" => format!("{} by {person}", order.order.name()),
        reason => format!("{} by {person}: {reason}", order.order.name()),
    };
    if order.order == PilotOrder::Reject {
        project.files.write_file(
            id,
            UnitFile::LastError,
            &format!("A person has rejected the result: {}", order.reason),
        )?;
    }
    commit_move(project, &unit, &made, (None, &reason)).await?;
    if made.stand.is_terminal() {
        drive::end_unit(project, id).await?;
    }
    Ok(())
}

/// The event of an order: of the blocker that it is about.
fn event_of(unit: &UnitRecord, order: PilotOrder) -> UnitEvent {
    let has = |kind| unit.stand.blockers.iter().any(|blocker| blocker.kind == kind);
    let is_escalated = unit.stand.blockers.contains(&Blocker::of_pause(PauseCause::Escalated));
    match order {
        PilotOrder::Accept => UnitEvent::Resolve(BlockerKind::UatPending, BlockerResolver::UatApprove),
        PilotOrder::Reject => UnitEvent::Resolve(BlockerKind::UatPending, BlockerResolver::UatReject),
        PilotOrder::ForceClear if has(BlockerKind::MergeConflict) => {
            UnitEvent::Resolve(BlockerKind::MergeConflict, BlockerResolver::ForceClear)
        }
        PilotOrder::ForceClear => UnitEvent::Resolve(BlockerKind::GateBlocked, BlockerResolver::ForceClear),
        PilotOrder::Resume if has(BlockerKind::MergeConflict) => {
            UnitEvent::Resolve(BlockerKind::MergeConflict, BlockerResolver::MergeResolve)
        }
        // A person's word answers the questions of a reassessment, too.
        PilotOrder::Resume if is_escalated => {
            UnitEvent::Resolve(BlockerKind::Paused, BlockerResolver::ReassessResolve)
        }
        PilotOrder::Resume => UnitEvent::Resolve(BlockerKind::Paused, BlockerResolver::Resume),
        PilotOrder::Cancel => UnitEvent::Cancel,
    }
}

/// Ends a unit where it stands; an attempt that runs is ended first.
async fn cancel(project: &Arc<OpenProject>, unit: &UnitRecord) -> Result<(), AutopilotError> {
    // Refuses one that is over; the store ends the claim, too.
    apply_event(&project.flow_of(unit).await?, &project.config.limits, &unit.stand, &UnitEvent::Cancel)?;
    let stop = project.live().get(&unit.id).map(|live| live.stop.clone());
    let op = UnitOp::Cancel { key: unit.row.key.clone(), at: project.hands.now() };
    // First, so that its worker writes nothing more.
    project.hands.commit(vec![Op::Units(op)]).await?;
    match stop {
        // Its worker does what follows, once nothing works in the folder any more.
        Some(stop) => {
            stop.cancel();
            Ok(())
        }
        None => drive::end_unit(project, unit.id).await,
    }
}

impl PilotDesk for Pilots {
    fn plan_goal(&self, goal: PilotGoal) -> DeskAnswer<'_, PilotPlanned> {
        self.answer(|own| async move { own.plan(goal).await })
    }

    fn show_status(&self, project: PilotProject) -> DeskAnswer<'_, PilotStatus> {
        self.answer(|own| async move { own.status(project).await })
    }

    fn show_unit(&self, unit: PilotUnitName) -> DeskAnswer<'_, PilotUnitDetails> {
        self.answer(|own| async move { own.unit(unit).await })
    }

    fn run_project(&self, project: PilotProject) -> DeskAnswer<'_, PilotStatus> {
        self.answer(|own| async move { own.run(project).await })
    }

    fn pause_project(&self, project: PilotProject) -> DeskAnswer<'_, PilotStatus> {
        self.answer(|own| async move { own.pause(project).await })
    }

    fn obey_order(&self, person: String, order: PilotUnitOrder) -> DeskAnswer<'_, PilotUnitDetails> {
        self.answer(|own| async move { own.obey(&person, order).await })
    }
}
