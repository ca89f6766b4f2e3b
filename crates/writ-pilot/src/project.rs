//! One project with its autopilot: repository, settings, session, and the units that are worked on now.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::schedule::{RunningUnit, workspace_of};
use writ_autopilot::unit_id::UnitId;
use writ_autopilot::workflow::{PhaseFlow, parse_workflow};
use writ_runtime::clock::Ids;
use writ_runtime::pilot::{AttemptLook, PilotHands};
use writ_sandbox::git::BranchName;
use writ_store::batch::Op;
use writ_store::reads::{UnitReads as _, WorkReads as _};
use writ_store::units::{MAX_UNITS, PilotSession, UnitKey, UnitOp, UnitRunEnd};
use writ_types::error::ToReport as _;
use writ_types::id::{ItemId, PilotId};
use writ_types::unit::{MicroUsd, Tokens};

use crate::config::{PilotConfig, load_config};
use crate::error::{AutopilotError, PilotGitError};
use crate::events::NoEvents;
use crate::prompts::PromptSet;
use crate::service::{PilotGit, PilotGitConfig, UnitWork};
use crate::standing::{UnitRecord, key_of, read_unit};
use crate::unit_files::UnitFiles;

/// A unit that a worker of this process has.
#[derive(Clone, Debug)]
pub(crate) struct LiveUnit {
    pub(crate) phase: PilotPhase,
    /// Ends the attempt.
    pub(crate) stop: CancellationToken,
}

/// A project that is open in this process.
#[derive(Debug)]
pub(crate) struct OpenProject {
    /// Its folder, as rows name it.
    pub(crate) name: String,
    pub(crate) hands: PilotHands,
    pub(crate) git: PilotGit,
    pub(crate) config: PilotConfig,
    pub(crate) prompts: PromptSet,
    pub(crate) files: UnitFiles,
    pub(crate) session: PilotId,
    /// The branch that work is merged into.
    pub(crate) target: BranchName,
    /// Wakes the loop.
    pub(crate) wake: Notify,
    live: Mutex<BTreeMap<UnitId, LiveUnit>>,
    /// The loop, while it runs.
    looping: Mutex<Option<RunningLoop>>,
    /// The loop and the workers of this process.
    pub(crate) tasks: TaskTracker,
}

/// A loop that runs.
#[derive(Debug)]
struct RunningLoop {
    /// Stops it after the attempts that run.
    stop: CancellationToken,
    /// Set if it was wanted again meanwhile: it goes on at its end.
    is_wanted: bool,
}

/// Returns the canonical folder of a project, and its name in rows.
///
/// # Errors
///
/// If there is no such folder, or its path cannot be shown.
pub(crate) fn name_project(folder: &str) -> Result<(PathBuf, String), AutopilotError> {
    let shown: String = folder.chars().take(200).filter(|c| !c.is_control()).collect();
    let unusable = |why: String| AutopilotError::NoFolder { folder: shown.clone(), why };
    // A relative one would begin at the folder in which the engine was started.
    if !Path::new(folder).is_absolute() {
        return Err(unusable("it is no whole path".to_owned()));
    }
    let path = std::fs::canonicalize(folder).map_err(|error| unusable(error.to_string()))?;
    let name = path.to_str().filter(|name| !name.chars().any(char::is_control)).map(str::to_owned);
    let name = name.ok_or_else(|| unusable("its path has characters that cannot be shown".to_owned()))?;
    Ok((path, name))
}

impl OpenProject {
    /// Opens a project: takes the lock of its repository, and ends what an earlier process has left.
    ///
    /// # Errors
    ///
    /// If its repository or settings cannot be used, or another process has it.
    pub(crate) async fn open(hands: PilotHands, folder: &Path, name: String) -> Result<Self, AutopilotError> {
        let config = load_config(None, folder).map_err(|error| error.report())?;
        let prompts = PromptSet::load_for(folder).map_err(|error| error.report())?;
        let git_config =
            PilotGitConfig { workspace_root: config.workspace_root.clone(), ..PilotGitConfig::default() };
        let (git, _) = PilotGit::open_service(folder, git_config, Arc::new(NoEvents)).await?;
        let files = UnitFiles::open_files(git.project().top_dir())?;
        let target = match &config.target_branch {
            Some(name) => BranchName::parse_name(name).map_err(PilotGitError::from)?,
            None => git.project().current_branch().await.map_err(PilotGitError::from)?.ok_or_else(|| {
                AutopilotError::File {
                    path: folder.to_owned(),
                    why: "no branch is checked out: name one as `target_branch`".to_owned(),
                }
            })?,
        };
        // After the lock of the repository, so that one process at a time is responsible for the session.
        let session = open_session(&hands, &name).await?;
        let project = Self {
            name,
            hands,
            git,
            config,
            prompts,
            files,
            session,
            target,
            wake: Notify::new(),
            live: Mutex::default(),
            looping: Mutex::default(),
            tasks: TaskTracker::new(),
        };
        project.end_earlier().await?;
        Ok(project)
    }

    /// Ends the claims and attempts of a process that is dead, as the lock of the repository says.
    async fn end_earlier(&self) -> Result<(), AutopilotError> {
        // An attempt that ran is begun anew: half of its conversation is worth less than a fresh one.
        for plan in self.plans().await?.values() {
            for child in self.hands.store().children_of(*plan).await? {
                self.hands.end_attempt(child, "the engine that ran it has ended").await?;
            }
        }
        let mut ops = self.end_paid_runs().await?;
        ops.push(Op::Units(UnitOp::Abandon { project: self.name.clone(), at: self.hands.now() }));
        self.hands.commit(ops).await?;
        Ok(())
    }

    /// Ends the runs that are open with what their attempts have used: it is paid for, also without a result.
    async fn end_paid_runs(&self) -> Result<Vec<Op>, AutopilotError> {
        let (store, plans) = (self.hands.store(), self.plans().await?);
        let mut ops = Vec::new();
        for line in store.unit_lines(&self.name, MAX_UNITS).await? {
            let Ok(id) = line.id.parse::<UnitId>() else { continue };
            let Some((_, plan)) = plans.iter().find(|(milestone, _)| id.is_within(**milestone)) else {
                continue;
            };
            for run in store.unit_runs(self.key_of(id)).await?.into_iter().filter(|run| run.end.is_none()) {
                let mut end = UnitRunEnd {
                    run: run.id,
                    outcome: "interrupted".to_owned(),
                    error_code: String::new(),
                    input: Tokens::ZERO,
                    output: Tokens::ZERO,
                    cost: MicroUsd::ZERO,
                    at: self.hands.now(),
                };
                for item in store.children_since(*plan, &line.id, run.started_at).await? {
                    if let AttemptLook::Ended(used) = self.hands.look_at_attempt(item).await? {
                        end.input = end.input.saturating_add(used.input);
                        end.output = end.output.saturating_add(used.output);
                        end.cost = end.cost.saturating_add(used.cost);
                    }
                }
                ops.push(Op::Units(UnitOp::EndRun(Box::new(end))));
            }
        }
        Ok(ops)
    }

    /// Returns the work items of the plans, by milestone.
    pub(crate) async fn plans(&self) -> Result<BTreeMap<UnitId, ItemId>, AutopilotError> {
        let rows = self.hands.store().milestones(&self.name).await?;
        let mut plans = BTreeMap::new();
        for row in &rows {
            let facts = crate::standing::read_facts(row)?;
            if let (Ok(id), Some(plan)) = (row.key.id.parse(), facts.plan) {
                plans.insert(id, plan);
            }
        }
        Ok(plans)
    }

    /// Reads a unit.
    ///
    /// # Errors
    ///
    /// If there is none, or its rows cannot be read.
    pub(crate) async fn read_unit(&self, id: UnitId) -> Result<UnitRecord, AutopilotError> {
        let (store, key) = (self.hands.store(), self.key_of(id));
        let row =
            store.unit(key.clone()).await?.ok_or_else(|| AutopilotError::NoUnit { unit: id.to_string() })?;
        let counters = store.unit_counters(key).await?;
        let blockers = store.open_blockers(self.session).await?;
        read_unit(row, &counters, &blockers)
    }

    pub(crate) fn key_of(&self, id: UnitId) -> UnitKey {
        key_of(&self.name, id)
    }

    /// Returns the workflow that a unit is bound to.
    ///
    /// # Errors
    ///
    /// If its text is not there or cannot be read.
    pub(crate) async fn flow_of(&self, unit: &UnitRecord) -> Result<PhaseFlow, AutopilotError> {
        let missing = |why: String| AutopilotError::Unreadable { unit: unit.row.key.id.clone(), why };
        let text = self.hands.store().workflow_pin(unit.row.workflow_hash).await?;
        let text = text.ok_or_else(|| missing("its workflow is not stored".to_owned()))?;
        let flow = parse_workflow(&unit.row.workflow, &text).map_err(|error| missing(error.to_string()))?;
        Ok(crate::standing::flow_of(&flow, unit.id))
    }

    /// Returns the branch and workspace of a unit: those of its slice.
    ///
    /// # Errors
    ///
    /// If its slice cannot be read.
    pub(crate) async fn work_of(&self, id: UnitId) -> Result<UnitWork, AutopilotError> {
        let owner = workspace_of(id);
        let row = self.hands.store().unit(self.key_of(owner)).await?;
        let title =
            row.map(|row| row.title).ok_or_else(|| AutopilotError::NoUnit { unit: owner.to_string() })?;
        let name = writ_autopilot::names::branch_name(owner, &title);
        let branch = BranchName::parse_name(&name).map_err(PilotGitError::from)?;
        Ok(UnitWork { unit: owner.to_string(), branch })
    }

    pub(crate) fn live(&self) -> MutexGuard<'_, BTreeMap<UnitId, LiveUnit>> {
        // A panic elsewhere cannot leave it half-written.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn running(&self) -> Vec<RunningUnit> {
        self.live().iter().map(|(id, live)| RunningUnit { id: *id, phase: live.phase }).collect()
    }

    /// Returns the token of a loop that begins now; `None` if one runs, which goes on then instead of ending.
    pub(crate) fn begin_loop(&self) -> Option<CancellationToken> {
        let mut looping = self.looping.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = looping.as_mut() {
            running.is_wanted = true;
            self.wake.notify_one();
            return None;
        }
        let stop = self.hands.draining().child_token();
        *looping = Some(RunningLoop { stop: stop.clone(), is_wanted: false });
        Some(stop)
    }

    /// Ends the loop that has nothing more to do; returns the token of its next round if it was wanted again meanwhile.
    pub(crate) fn finish_loop(&self) -> Option<CancellationToken> {
        let mut looping = self.looping.lock().unwrap_or_else(PoisonError::into_inner);
        let running = looping.take().filter(|running| running.is_wanted)?;
        let stop =
            if running.stop.is_cancelled() { self.hands.draining().child_token() } else { running.stop };
        *looping = Some(RunningLoop { stop: stop.clone(), is_wanted: false });
        Some(stop)
    }

    /// Stops the loop after the attempts that run.
    pub(crate) fn end_loop(&self) {
        let mut looping = self.looping.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = looping.as_mut() {
            running.is_wanted = false;
            running.stop.cancel();
        }
        self.wake.notify_one();
    }

    /// Changes the status of the session.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    pub(crate) async fn set_status(&self, status: &str) -> Result<(), AutopilotError> {
        let (session, status, at) = (self.session, status.to_owned(), self.hands.now());
        self.hands.commit(vec![Op::Units(UnitOp::MoveSession { session, status, at })]).await?;
        Ok(())
    }
}

async fn open_session(hands: &PilotHands, project: &str) -> Result<PilotId, AutopilotError> {
    if let Some(session) = hands.store().pilot_session(project).await? {
        return Ok(session.id);
    }
    let now = hands.now();
    let session = PilotSession {
        id: Ids.pilot(now),
        project: project.to_owned(),
        status: "idle".to_owned(),
        created_at: now,
        updated_at: now,
    };
    let id = session.id;
    hands.commit(vec![Op::Units(UnitOp::OpenSession(Box::new(session)))]).await?;
    Ok(id)
}
