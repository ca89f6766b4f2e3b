//! The autopilot of an engine: its open projects, and what people ask of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Mutex;
use writ_autopilot::unit_id::UnitId;
use writ_runtime::fleet::DeskAnswer;
use writ_runtime::pilot::PilotHands;
use writ_runtime::pilot_desk::{BranchPush, UnitChangeOrder};
use writ_sandbox::git::{GitFault, GitProject};
use writ_store::reads::UnitReads as _;
use writ_store::units::{PilotSession, UnitKey};
use writ_types::api::pilot::{
    PilotBenchmark, PilotBenchmarkOrder, PilotChanges, PilotCheckup, PilotCircuitsReset, PilotCleaned,
    PilotCleaning, PilotDispatchOrder, PilotDispatched, PilotFindings, PilotGoal, PilotHistory,
    PilotHistoryQuery, PilotLog, PilotLogQuery, PilotPlanned, PilotProject, PilotRate, PilotRated,
    PilotRefreshed, PilotReload, PilotReloaded, PilotReport, PilotResolved, PilotRevert, PilotRevertPlan,
    PilotReverted, PilotScope, PilotSessionEnded, PilotSessionQuery, PilotSnapshots, PilotState, PilotStatus,
    PilotTrace, PilotTraceQuery, PilotTrials, PilotUnitDetails, PilotUnitName, PilotUnitOrder,
    PilotUnitQuery, PilotUnitSnapshots, PilotUnitState, ResolveState,
};
use writ_types::error::ToReport as _;
use writ_types::id::PilotId;

use crate::error::{AutopilotError, PilotGitError};
use crate::orders::carry_out;
pub use crate::project::OwnerFiles;
use crate::project::{OpenProject, name_project};
use crate::refresh::RefreshAnswer;
use crate::{
    account, checkup, circuits, drive, goal, history, rating, regret, reload, session, show, spans, state,
    trace, trial,
};

mod desk;

/// The longest wait at a start for the lock of a repository: a git that outlives its engine writes files to its end.
const LOCK_WAIT: Duration = Duration::from_secs(30);
/// The time between two looks at it.
const LOCK_LOOK: Duration = Duration::from_millis(100);

/// The autopilot of one engine.
#[derive(Debug)]
pub struct Pilots {
    hands: PilotHands,
    owner: OwnerFiles,
    projects: Mutex<BTreeMap<String, Arc<OpenProject>>>,
    own: Weak<Self>,
}

impl Pilots {
    /// Makes the autopilot of an engine.
    pub fn new(hands: PilotHands, owner: OwnerFiles) -> Arc<Self> {
        Arc::new_cyclic(|own| Self { hands, owner, projects: Mutex::default(), own: own.clone() })
    }

    /// Goes on with the projects that ran when an earlier engine ended. One that cannot be opened stays as it is, with a line in the log.
    pub async fn resume_projects(&self) {
        let sessions = match self.hands.store().pilot_sessions("running").await {
            Ok(sessions) => sessions,
            Err(error) => return tracing::error!(%error, "the autopilot's sessions cannot be read"),
        };
        // One that cannot be opened holds up none of the others.
        for session in sessions {
            match self.resume(&session.project).await {
                Ok(()) => {}
                Err(error) if is_in_use(&error) => self.resume_later(session.project),
                Err(error) => tracing::error!(project = session.project, %error, "an autopilot cannot go on"),
            }
        }
    }

    /// Goes on with a project once its repository is no longer in use: a git that outlives its engine has the lock until it ends.
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
            // In this order: a loop that goes on would hand out more while its attempts are waited for.
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
        let project =
            Arc::new(OpenProject::open(self.hands.clone(), (&path, &self.owner), name.clone()).await?);
        // Before anything runs: a half-ended unit would be looked at as if it were whole.
        drive::make_up_ends(&project).await?;
        if let Err(error) = reload::end_removed_plans(&project).await {
            tracing::error!(%error, "the plan of a removed milestone is not ended; the next start tries again");
        }
        spans::begin_trace(&project).await;
        drive::resume_ships(&project).await;
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
        // Before a model is paid, and before anything is made in the project.
        if goal.goal.trim().is_empty() {
            return Err(AutopilotError::NoGoal);
        }
        let project = self.open(&goal.project).await?;
        session::renew_session(&project).await?;
        goal::plan_goal(&project, &goal).await
    }

    async fn run(&self, asked: PilotProject) -> Result<PilotStatus, AutopilotError> {
        let project = self.open_known(&asked.project).await?;
        if project.plans().await?.is_empty() {
            return Err(AutopilotError::NoPlan { project: project.name.clone() });
        }
        session::renew_session(&project).await?;
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
        go_on(&project).await?;
        show::show_unit(&project, id).await
    }

    async fn hand_out(&self, order: PilotDispatchOrder) -> Result<PilotDispatched, AutopilotError> {
        let words = order.unit.trim();
        // A task in words is the first thing that may be wanted of a project; whatever is no such text has to be an id.
        if words.contains(char::is_whitespace) {
            let project = self.open(&order.project).await?;
            session::renew_session(&project).await?;
            return goal::plan_task(&project, words).await;
        }
        let project = self.open_known(&order.project).await?;
        match words {
            "" => drive::dispatch_next(&project).await,
            unit => drive::dispatch_unit(&project, read_id(unit)?).await,
        }
    }

    async fn report(&self, asked: PilotScope) -> Result<PilotReport, AutopilotError> {
        let project = self.open_known(&asked.project).await?;
        let scope = if asked.unit.is_empty() { None } else { Some(read_id(&asked.unit)?) };
        account::make_report(&project, scope).await
    }

    async fn log(&self, asked: PilotLogQuery) -> Result<PilotLog, AutopilotError> {
        let project = self.open_known(&asked.project).await?;
        trace::read_log(&project, read_id(&asked.unit)?, &asked).await
    }

    async fn changes(&self, asked: PilotUnitName) -> Result<PilotChanges, AutopilotError> {
        let project = self.open_known(&asked.project).await?;
        account::show_changes(&project, read_id(&asked.unit)?).await
    }

    async fn revert_plan(&self, asked: PilotUnitName) -> Result<PilotRevertPlan, AutopilotError> {
        let project = self.open_known(&asked.project).await?;
        regret::show_revert(&project, read_id(&asked.unit)?).await
    }

    async fn undo(&self, order: PilotRevert) -> Result<PilotReverted, AutopilotError> {
        let project = self.open_known(&order.project).await?;
        regret::revert(&project, read_id(&order.unit)?, &order.at).await
    }

    async fn resolve_conflict(
        &self,
        person: &str,
        asked: PilotUnitName,
    ) -> Result<PilotResolved, AutopilotError> {
        let project = self.open_known(&asked.project).await?;
        let resolved = regret::resolve(&project, read_id(&asked.unit)?, (person, &asked.unit)).await?;
        if resolved.state == ResolveState::Resolved {
            go_on(&project).await?;
        }
        Ok(resolved)
    }

    async fn rate(&self, order: PilotRate) -> Result<PilotRated, AutopilotError> {
        let project = self.open_known(&order.project).await?;
        let unit = if order.unit.is_empty() { None } else { Some(read_id(&order.unit)?) };
        rating::rate_run(&project, unit, &order).await
    }

    async fn measure(&self, order: PilotBenchmarkOrder) -> Result<PilotBenchmark, AutopilotError> {
        drive::measure_models(&*self.open_known(&order.project).await?, &order).await
    }

    async fn end_session(&self, asked: PilotProject) -> Result<PilotSessionEnded, AutopilotError> {
        session::end_session(&*self.open_known(&asked.project).await?).await
    }

    async fn reset_circuits(&self, asked: PilotProject) -> Result<PilotCircuitsReset, AutopilotError> {
        let project = self.open_known(&asked.project).await?;
        circuits::reset_circuits(&project).await
    }

    async fn read_plan(&self, order: PilotReload) -> Result<PilotReloaded, AutopilotError> {
        let project = self.open_known(&order.project).await?;
        let reloaded = reload::reload(&project, &order).await?;
        project.looping.wake.notify_one();
        Ok(reloaded)
    }

    async fn look_for_faults(&self, order: PilotCheckup) -> Result<PilotFindings, AutopilotError> {
        let (path, name) = name_project(&order.project)?;
        // Held, so that the project is not opened while its repository is looked at.
        let projects = self.projects.lock().await;
        let open = projects.get(&name).cloned();
        let looked = checkup::check_project(&self.hands, (&path, &name), open, order.fix).await;
        // Other projects do not wait for gates.
        drop(projects);
        Ok(checkup::check_programs(&self.hands, (&path, &self.owner), looked).await)
    }

    async fn trials(&self, asked: PilotProject) -> Result<PilotTrials, AutopilotError> {
        let (path, name) = name_project(&asked.project)?;
        let open = self.projects.lock().await.get(&name).cloned();
        let gates = match &open {
            Some(project) => trial::find_gates(project.git.project()).await?,
            None => {
                let git = GitProject::open_project(&path).await.map_err(PilotGitError::from)?;
                trial::find_gates(&git).await?
            }
        };
        Ok(PilotTrials { gates: trial::try_gates(&self.hands, &path, gates).await })
    }

    /// Returns a session, or without an id all that are not over.
    async fn sessions(&self, id: Option<PilotId>) -> Result<Vec<PilotSession>, AutopilotError> {
        let store = self.hands.store();
        match id {
            None => Ok(store.active_pilot_sessions().await?),
            Some(id) => match store.pilot_session_of(id).await? {
                Some(session) => Ok(vec![session]),
                None => Err(AutopilotError::NoSession { session: id.to_string() }),
            },
        }
    }

    async fn state(&self, query: PilotSessionQuery) -> Result<PilotState, AutopilotError> {
        let mut sessions = Vec::new();
        for session in self.sessions(query.session).await? {
            let open = self.projects.lock().await.get(&session.project).cloned();
            let ticks = open.map_or(0, |project| project.looping.ticks());
            sessions.push(state::show_session(&self.hands, &session, ticks).await?);
        }
        match (query.session, sessions.pop()) {
            (Some(_), Some(one)) => Ok(PilotState::One(Box::new(one))),
            (_, last) => {
                sessions.extend(last);
                Ok(PilotState::All(PilotSnapshots { generated_at: self.hands.now(), sessions }))
            }
        }
    }

    async fn unit_state(&self, query: PilotUnitQuery) -> Result<PilotUnitState, AutopilotError> {
        let id = read_id(&query.unit)?;
        let mut sessions = Vec::new();
        for session in self.sessions(query.session).await? {
            let key = UnitKey { project: session.project.clone(), id: id.to_string() };
            if self.hands.store().unit(key).await?.is_some() {
                sessions.push(state::show_unit(&*self.open(&session.project).await?, id).await?);
            }
        }
        let Some(last) = sessions.pop() else { return Err(AutopilotError::NoUnit { unit: id.to_string() }) };
        if query.session.is_some() {
            return Ok(PilotUnitState::One(Box::new(last)));
        }
        sessions.push(last);
        Ok(PilotUnitState::All(PilotUnitSnapshots { generated_at: self.hands.now(), sessions }))
    }

    async fn refresh_loops(&self, query: PilotSessionQuery) -> Result<PilotRefreshed, AutopilotError> {
        let now = self.hands.now();
        let mut done = PilotRefreshed { requested_at: now, queued: 0, coalesced: 0 };
        let sessions = self.sessions(query.session).await?;
        let open: Vec<Arc<OpenProject>> = {
            let projects = self.projects.lock().await;
            sessions.iter().filter_map(|session| projects.get(&session.project).cloned()).collect()
        };
        for project in open {
            match project.looping.refreshes.ask(now) {
                RefreshAnswer::Now => project.looping.wake.notify_one(),
                RefreshAnswer::After(wait) => project.refresh_later(wait),
                RefreshAnswer::Joined => {
                    done.coalesced += 1;
                    continue;
                }
            }
            done.queued += 1;
        }
        Ok(done)
    }

    async fn spans(&self, query: PilotTraceQuery) -> Result<PilotTrace, AutopilotError> {
        spans::find_spans(&*self.open_known(&query.project).await?, &query).await
    }

    async fn history(&self, query: PilotHistoryQuery) -> Result<PilotHistory, AutopilotError> {
        history::list_history(&*self.open_known(&query.project).await?, &query).await
    }

    async fn clean(&self, order: PilotCleaning) -> Result<PilotCleaned, AutopilotError> {
        spans::clean_up(&*self.open_known(&order.project).await?, &order).await
    }

    async fn change_units_of(&self, order: UnitChangeOrder) -> Result<String, AutopilotError> {
        reload::change_by_agent(&self.open_known(&order.project).await?, &order).await
    }

    async fn push(&self, push: BranchPush) -> Result<(), AutopilotError> {
        drive::push_branch(&*self.open_known(&push.project).await?, &push).await
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
    // What a person has changed before this order is in force with it.
    project.settings.refresh();
    let _whole = project.looping.hold_status().await;
    begin_loop(project).await
}

/// Begins the loop while its status is held, or has the one that runs look once more before it ends.
async fn begin_loop(project: &Arc<OpenProject>) -> Result<(), AutopilotError> {
    let Some(stop) = project.begin_loop() else { return Ok(()) };
    if let Err(error) = project.set_status("running").await {
        // Nothing runs: the next start has its place.
        drop(project.finish_loop());
        return Err(error);
    }
    project.hands.spawn(project.tasks.track_future(drive::run_loop(Arc::clone(project), stop)));
    Ok(())
}

/// Lets what waited for a person's answer go on; what else holds the loop is seen by its first look.
async fn go_on(project: &Arc<OpenProject>) -> Result<(), AutopilotError> {
    let _whole = project.looping.hold_status().await;
    let session = project.hands.store().pilot_session(&project.name).await?;
    // The look of a loop that runs may have seen what was answered since then, and end for it.
    if !project.looping.ask_for_round() && session.is_some_and(|one| one.status == "paused") {
        project.settings.refresh();
        begin_loop(project).await?;
    }
    project.looping.wake.notify_one();
    Ok(())
}

fn read_id(text: &str) -> Result<UnitId, AutopilotError> {
    text.parse().map_err(|_| AutopilotError::NoUnit { unit: text.chars().take(60).collect() })
}
