//! One project with its autopilot: the repository, the settings, the session, and the units that are being worked on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;
use writ_autopilot::schedule::workspace_of;
use writ_autopilot::unit_id::UnitId;
use writ_autopilot::workflow::{PhaseFlow, parse_workflow};
use writ_runtime::clock::Ids;
use writ_runtime::pilot::{AttemptLook, AttemptRest, PilotHands};
use writ_sandbox::git::BranchName;
use writ_store::batch::Op;
use writ_store::reads::{UnitReads as _, WorkReads as _};
use writ_store::units::{MAX_UNITS, PilotSession, UnitKey, UnitOp, UnitRow, UnitRunEnd, UnitTexts};
use writ_types::error::ToReport as _;
use writ_types::id::{ItemId, PilotId};
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use crate::chapters::{ChapterDesk, RunOfUnit};
use crate::config::{CONFIG_FILE, PilotConfig, WorktreeMode};
use crate::drive::{Baselines, SeenState};
use crate::error::{AutopilotError, PilotGitError};
use crate::events::NoEvents;
use crate::loop_control::LoopControl;
use crate::prompts::PromptSet;
use crate::service::{PilotGit, PilotGitConfig, UnitWork};
use crate::settings::LiveSettings;
use crate::span_queue::SpanQueue;
use crate::standing::{UnitFacts, UnitRecord, key_of, read_facts, read_unit, write_facts};
use crate::start::StartStep;
use crate::trace::attempts_of;
use crate::unit_files::{UnitFile, UnitFiles};

mod at_work;

mod looping;

use at_work::UnitsAtWork;
pub(crate) use at_work::{DispatchHold, LiveUnit};

/// The most attempts at one unit whose costs are added up when the project is opened.
const MAX_STARTED: usize = 10_000;

/// The note for the next attempt at a unit after a crash has cut off the last one (SF 4.8).
pub(crate) const RESUMED: &str = "resumed_after_crash: the engine has ended in the middle of the attempt before this one. That is no failure of the work: go on from the files as they are.";

/// The paths in the owner's home that the autopilot reads; each may be absent.
#[derive(Clone, Debug, Default)]
pub struct OwnerFiles {
    /// The file of the owner's settings for all projects.
    pub settings: Option<PathBuf>,
    /// The folder of hidden tests, which no project and no agent can read.
    pub hidden_tests: Option<PathBuf>,
}

/// A project that is open in this process.
#[derive(Debug)]
pub(crate) struct OpenProject {
    /// The path of its folder, by which the store's rows name the project.
    pub(crate) name: String,
    pub(crate) hands: PilotHands,
    pub(crate) git: PilotGit,
    pub(crate) settings: LiveSettings,
    pub(crate) prompts: PromptSet,
    pub(crate) files: UnitFiles,
    session: Mutex<PilotId>,
    /// The numbers of tests before the units changed anything.
    pub(crate) baselines: Baselines,
    /// The owner's folder of hidden tests, if there is one.
    pub(crate) hidden_tests: Option<PathBuf>,
    /// The branch that work is merged into.
    pub(crate) target: BranchName,
    /// The spans that are to be written.
    pub(crate) trace: SpanQueue,
    work: UnitsAtWork,
    /// The branches and models that this process has last seen.
    pub(crate) seen: SeenState,
    /// The scheduling loop.
    pub(crate) looping: LoopControl,
    /// The tasks of the loop and of the workers.
    pub(crate) tasks: TaskTracker,
}

/// Returns the canonical folder of a project, and the name of the project in the store's rows.
///
/// # Errors
///
/// If there is no such folder, or its path cannot be shown.
pub(crate) fn name_project(folder: &str) -> Result<(PathBuf, String), AutopilotError> {
    let shown: String = folder.chars().take(200).filter(|c| !c.is_control()).collect();
    let unusable = |why: String| AutopilotError::NoFolder { folder: shown.clone(), why };
    // A relative path would depend on the folder in which the engine was started.
    if !Path::new(folder).is_absolute() {
        return Err(unusable("it is not an absolute path".to_owned()));
    }
    let path = std::fs::canonicalize(folder).map_err(|error| unusable(error.to_string()))?;
    let name = path.to_str().filter(|name| !name.chars().any(char::is_control)).map(str::to_owned);
    let name = name.ok_or_else(|| unusable("its path has characters that cannot be shown".to_owned()))?;
    Ok((path, name))
}

impl OpenProject {
    /// Opens a project: takes the lock of its repository, and ends the claims and attempts that an earlier process has left open.
    ///
    /// # Errors
    ///
    /// If its repository or settings cannot be used, or another process has it.
    pub(crate) async fn open(
        hands: PilotHands,
        (folder, owner): (&Path, &OwnerFiles),
        name: String,
    ) -> Result<Self, AutopilotError> {
        let settings = LiveSettings::open(owner.settings.clone(), folder).map_err(|error| error.report())?;
        let config = settings.config();
        let prompts = PromptSet::load_for(folder).map_err(|error| error.report())?;
        let git_config =
            PilotGitConfig { workspace_root: config.workspace_root.clone(), ..PilotGitConfig::default() };
        let (git, _) = PilotGit::open_service(folder, git_config, Arc::new(NoEvents)).await?;
        StartStep::Lock.log_step(&name);
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
            settings,
            prompts,
            files,
            session: Mutex::new(session),
            baselines: Baselines::default(),
            hidden_tests: owner.hidden_tests.clone(),
            target,
            trace: SpanQueue::default(),
            work: UnitsAtWork::default(),
            seen: SeenState::default(),
            looping: LoopControl::default(),
            tasks: TaskTracker::new(),
        };
        project.check_worktree_mode().await?;
        project.end_earlier().await?;
        StartStep::MarkInterrupted.log_step(&project.name);
        Ok(project)
    }

    /// Refuses a change of `worktree_mode` while work that was begun in the other mode is open: it would be looked for on the
    /// wrong branch, and not be found.
    async fn check_worktree_mode(&self) -> Result<(), AutopilotError> {
        let rows = self.hands.store().whole_units(&self.name, MAX_UNITS).await?;
        let mut bound = BTreeSet::new();
        let mut begun = BTreeSet::new();
        for row in &rows {
            let Ok(id) = row.key.id.parse::<UnitId>() else { continue };
            if read_facts(row)?.branch.is_some() {
                bound.insert(id);
            }
            if row.workspace.is_some() {
                begun.insert(workspace_of(id));
            }
        }
        let open = rows.iter().filter(|row| !row.is_over).filter_map(|row| row.key.id.parse::<UnitId>().ok());
        let is_elsewhere = |id: &UnitId| match (self.config().worktree_mode, *id) {
            (WorktreeMode::MilestonePerWorktree, UnitId::Slice(milestone, _)) => {
                milestone != 0 && bound.contains(id)
            }
            // With a branch for each slice, the slice is bound to its branch when the first of its units is handed out.
            (WorktreeMode::BranchPerSlice, UnitId::Slice(milestone, _)) => {
                !bound.contains(id) && begun.contains(id) && bound.contains(&UnitId::Milestone(milestone))
            }
            (_, UnitId::Milestone(_) | UnitId::Task(..)) => false,
        };
        match open.into_iter().find(is_elsewhere) {
            None => Ok(()),
            Some(id) => Err(AutopilotError::File {
                path: self.git.project().top_dir().join(CONFIG_FILE),
                why: format!(
                    "{id} was begun with another `worktree_mode`: set it back until that unit is over"
                ),
            }),
        }
    }

    /// Ends the claims and attempts of an earlier process. It is dead, since this one has got the lock of the repository.
    async fn end_earlier(&self) -> Result<(), AutopilotError> {
        // An interrupted attempt is not continued: a new conversation is worth more than half of an old one.
        let mut ending = JoinSet::new();
        for (_, plan) in self.all_plans().await? {
            for child in self.hands.store().children_of(plan).await? {
                let hands = self.hands.clone();
                // All at once, since each may have to wait until a turn has stopped.
                ending
                    .spawn(async move { hands.end_attempt(child, "the engine that ran it has ended").await });
            }
        }
        for ended in ending.join_all().await {
            ended?;
        }
        let mut ops = self.end_paid_runs().await?;
        ops.push(Op::Units(UnitOp::Abandon { project: self.name.clone(), at: self.hands.now() }));
        self.hands.commit(ops).await?;
        Ok(())
    }

    /// Ends the open runs, and records the tokens and costs of their attempts: they are paid for, even without a result.
    async fn end_paid_runs(&self) -> Result<Vec<Op>, AutopilotError> {
        let (store, plans) = (self.hands.store(), self.all_plans().await?);
        let mut ops = Vec::new();
        for line in store.unit_lines(&self.name, MAX_UNITS).await? {
            let Ok(id) = line.id.parse::<UnitId>() else { continue };
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
                let mut started = Vec::new();
                for (_, plan) in plans.iter().filter(|(milestone, _)| id.is_within(*milestone)) {
                    started.extend(store.started_by(*plan, &line.id, MAX_STARTED).await?);
                }
                for (item, _, _) in started.into_iter().filter(|(_, _, began)| *began >= run.started_at) {
                    match self.hands.look_at_attempt(item).await? {
                        AttemptLook::Ended(used) => {
                            end.input = end.input.saturating_add(used.input);
                            end.output = end.output.saturating_add(used.output);
                            end.cost = end.cost.saturating_add(used.cost);
                        }
                        // It has not ended after all. Only the sum of its tokens is known, and counts as input.
                        AttemptLook::Running { tokens, cost, .. }
                        | AttemptLook::Resting(AttemptRest { tokens, cost, .. }) => {
                            end.input = end.input.saturating_add(tokens);
                            end.cost = end.cost.saturating_add(cost);
                        }
                    }
                }
                let (title, run) = (line.title.as_str(), run.id.to_string());
                let desk = ChapterDesk { files: &self.files, hands: &self.hands };
                let attempts = attempts_of(self, id).await;
                desk.end_run(RunOfUnit { id, title, run: &run }, false, attempts).await;
                self.note_crash(id)?;
                ops.push(Op::Units(UnitOp::EndRun(Box::new(end))));
            }
        }
        Ok(ops)
    }

    /// Tells the next attempt at a unit that the one before it was cut off, above what it had to mend.
    fn note_crash(&self, id: UnitId) -> Result<(), AutopilotError> {
        let before = self.files.read_file(id, UnitFile::LastError)?;
        if before.starts_with(RESUMED) {
            return Ok(());
        }
        let text = format!("{RESUMED}\n\n{before}");
        self.files.write_error(id, text.trim_end())
    }

    /// Returns the settings in force.
    pub(crate) fn config(&self) -> Arc<PilotConfig> {
        self.settings.config()
    }

    /// Returns the unit that owns the workspace of another one: its slice, or its milestone where slices share one.
    pub(crate) fn workspace_owner(&self, id: UnitId) -> UnitId {
        let own = workspace_of(id);
        match (self.config().worktree_mode, own) {
            (WorktreeMode::MilestonePerWorktree, UnitId::Slice(milestone, _)) if milestone != 0 => {
                UnitId::Milestone(milestone)
            }
            (WorktreeMode::MilestonePerWorktree | WorktreeMode::BranchPerSlice, _) => own,
        }
    }

    /// Returns the work items of the plans, by milestone.
    pub(crate) async fn plans(&self) -> Result<BTreeMap<UnitId, ItemId>, AutopilotError> {
        let rows = self.hands.store().top_units(&self.name).await?;
        let mut plans = BTreeMap::new();
        for row in &rows {
            let facts = read_facts(row)?;
            if let (Ok(id), Some(plan)) = (row.key.id.parse(), facts.plan) {
                plans.insert(id, plan);
            }
        }
        Ok(plans)
    }

    /// Returns the plans of all milestones, also those that others have replaced: an attempt may have run under one when a crash came.
    async fn all_plans(&self) -> Result<Vec<(UnitId, ItemId)>, AutopilotError> {
        let mut plans = Vec::new();
        for row in &self.hands.store().top_units(&self.name).await? {
            let facts = read_facts(row)?;
            if let Ok(id) = row.key.id.parse::<UnitId>() {
                plans.extend(facts.earlier_plans.into_iter().chain(facts.plan).map(|plan| (id, plan)));
            }
        }
        Ok(plans)
    }

    /// Returns all ids that units of the project have ever had: those of archived units are not used again.
    pub(crate) async fn taken_ids(&self) -> Result<BTreeSet<UnitId>, AutopilotError> {
        let ids = self.hands.store().unit_ids(&self.name).await?;
        Ok(ids.iter().filter_map(|id| id.parse().ok()).collect())
    }

    /// Reads a unit.
    ///
    /// # Errors
    ///
    /// If there is no such unit, or its rows cannot be read.
    pub(crate) async fn read_unit(&self, id: UnitId) -> Result<UnitRecord, AutopilotError> {
        let (store, key) = (self.hands.store(), self.key_of(id));
        let row =
            store.unit(key.clone()).await?.ok_or_else(|| AutopilotError::NoUnit { unit: id.to_string() })?;
        let counters = store.unit_counters(key).await?;
        let blockers = store.open_blockers(self.session()).await?;
        read_unit(row, &counters, &blockers)
    }

    pub(crate) fn key_of(&self, id: UnitId) -> UnitKey {
        key_of(&self.name, id)
    }

    /// Returns the workflow that a unit is bound to.
    ///
    /// # Errors
    ///
    /// If the text of the workflow is not stored, or cannot be parsed.
    pub(crate) async fn flow_of(&self, unit: &UnitRecord) -> Result<PhaseFlow, AutopilotError> {
        let missing = |why: String| AutopilotError::Unreadable { unit: unit.row.key.id.clone(), why };
        let text = self.hands.store().workflow_pin(unit.row.workflow_hash).await?;
        let text = text.ok_or_else(|| missing("its workflow is not stored".to_owned()))?;
        let flow = parse_workflow(&unit.row.workflow, &text).map_err(|error| missing(error.to_string()))?;
        let flow = crate::standing::flow_of(&flow, unit.id);
        let own = self
            .config()
            .gates
            .iter()
            .filter_map(|gate| Some((gate.name.clone(), gate.max_retries?)))
            .collect();
        Ok(PhaseFlow { gate_retries: own, ..flow })
    }

    /// Returns the branch and workspace of a unit: those of its slice, or of its milestone where slices share one.
    ///
    /// # Errors
    ///
    /// If its slice cannot be read.
    pub(crate) async fn work_of(&self, id: UnitId) -> Result<UnitWork, AutopilotError> {
        let owner = self.workspace_owner(id);
        let row = self.hands.store().unit(self.key_of(owner)).await?;
        let row = row.ok_or_else(|| AutopilotError::NoUnit { unit: owner.to_string() })?;
        let branch = branch_of(owner, &row)?;
        Ok(UnitWork { unit: owner.to_string(), branch })
    }

    /// Returns the operation that binds a unit's slice to the branch name that it has now; `None` if the slice is bound already, or
    /// is over.
    ///
    /// # Errors
    ///
    /// If its slice cannot be read.
    pub(crate) async fn bind_branch(&self, id: UnitId) -> Result<Option<UnitOp>, AutopilotError> {
        let owner = self.workspace_owner(id);
        let row = self.hands.store().unit(self.key_of(owner)).await?;
        let row = row.ok_or_else(|| AutopilotError::NoUnit { unit: owner.to_string() })?;
        let facts = read_facts(&row)?;
        if facts.branch.is_some() || row.is_over {
            return Ok(None);
        }
        let facts = UnitFacts { branch: Some(branch_of(owner, &row)?.to_string()), ..facts };
        let texts = UnitTexts {
            metadata: write_facts(owner, &facts)?,
            key: row.key,
            fence: row.fence,
            title: row.title,
            description: row.description,
            priority: row.priority,
            blocked_by: None,
            at: self.hands.now(),
        };
        Ok(Some(UnitOp::Revise(Box::new(texts))))
    }

    /// Returns the session.
    pub(crate) fn session(&self) -> PilotId {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on in another session, which is stored already.
    pub(crate) fn change_session(&self, session: PilotId) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = session;
    }

    /// Changes the status of the session.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    pub(crate) async fn set_status(&self, status: &str) -> Result<(), AutopilotError> {
        let (session, status, at) = (self.session(), status.to_owned(), self.hands.now());
        self.hands.commit(vec![Op::Units(UnitOp::MoveSession { session, status, at })]).await?;
        Ok(())
    }
}

/// Returns the branch of a unit that owns one: the bound name, or the name that its title gives.
fn branch_of(id: UnitId, row: &UnitRow) -> Result<BranchName, AutopilotError> {
    let bound = read_facts(row)?.branch;
    let name = bound.unwrap_or_else(|| writ_autopilot::names::branch_name(id, &row.title));
    Ok(BranchName::parse_name(&name).map_err(PilotGitError::from)?)
}

/// Returns the session of a project; where it has none one is opened.
///
/// # Errors
///
/// If the store cannot be read or written.
async fn open_session(hands: &PilotHands, project: &str) -> Result<PilotId, AutopilotError> {
    if let Some(session) = hands.store().pilot_session(project).await? {
        return Ok(session.id);
    }
    let session = new_session(project, hands.now());
    let id = session.id;
    hands.commit(vec![Op::Units(UnitOp::OpenSession(Box::new(session)))]).await?;
    Ok(id)
}

/// A session of a project that begins now.
pub(crate) fn new_session(project: &str, at: Timestamp) -> PilotSession {
    PilotSession {
        id: Ids.pilot(at),
        project: project.to_owned(),
        status: "idle".to_owned(),
        created_at: at,
        updated_at: at,
    }
}
