//! A goal becomes a plan that a person is asked about, and units that wait for the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use writ_autopilot::ceiling::CeilingScope;
use writ_autopilot::unit_id::UnitId;
use writ_autopilot::units::PilotUnit;
use writ_autopilot::workflow::{PhaseFlow, built_in_workflows, choose_workflow, parse_workflow};
use writ_plan::machine::WorkEvent;
use writ_runtime::pilot::{NewPilotPlan, PlannerQuestion};
use writ_sandbox::git::GitFault;
use writ_sandbox::git::refs::read_ref;
use writ_store::batch::Op;
use writ_store::units::{NewUnit, UnitOp};
use writ_types::api::pilot::{PilotDispatched, PilotGoal, PilotPlanned, PilotUnitLine};
use writ_types::error::ToReport as _;
use writ_types::id::ItemId;
use writ_types::unit::MicroUsd;
use writ_types::work::{WorkBudget, WorkKind};

use crate::drive;
use crate::error::{AutopilotError, PilotGitError};
use crate::files::ProjectFiles;
use crate::planning::{GoalPlan, MAX_GOAL_UNITS, next_milestone, next_question, read_goal_plan};
use crate::project::OpenProject;
use crate::prompts::GoalPrompt;
use crate::repo_map::draw_map;
use crate::standing::{UnitFacts, first_phase, write_facts};

/// The folder of a project's own workflows.
const WORKFLOWS: &str = ".writ/workflows";
/// The most workflows of a project.
const MAX_WORKFLOWS: usize = 64;

/// Has a goal planned, and asks a person about the plan.
///
/// # Errors
///
/// If the planner writes no plan, no workflow can be used, or the engine or store refuse.
pub(crate) async fn plan_goal(
    project: &Arc<OpenProject>,
    asked: &PilotGoal,
) -> Result<PilotPlanned, AutopilotError> {
    project.settings.refresh();
    // Before a model is paid: a broken workflow would refuse the plan afterwards.
    let flows = read_workflows(project, asked.workflow.as_deref())?;
    let goal = asked.goal.as_str();
    let plan = ask_planner(project, goal).await?;
    // Numbered after the answer, and held until it is stored: another goal that was planned meanwhile has numbers of its own.
    let _plans = project.hold_plans().await;
    let first = next_milestone(project.taken_ids().await?);
    let wrong = |why: String| AutopilotError::NoOutline { why };
    let plan = plan.renumber_units(first).map_err(|error| wrong(error.to_string()))?;
    propose(project, &plan, (goal, CeilingScope::Milestone), (&flows, asked.link_issue)).await
}

/// Proposes one task that a person asks for in words, without a milestone around it. No planner is asked.
///
/// # Errors
///
/// If no number is left or the words are too long, no workflow can be used, or the engine or store refuse.
pub(crate) async fn plan_task(
    project: &Arc<OpenProject>,
    words: &str,
) -> Result<PilotDispatched, AutopilotError> {
    project.settings.refresh();
    let flows = read_workflows(project, None)?;
    let _plans = project.hold_plans().await;
    let taken = project.taken_ids().await?;
    let last = taken.into_iter().filter(|id| id.is_ad_hoc()).map(UnitId::number).max().unwrap_or(0);
    let plan = GoalPlan::of_task(last.saturating_add(1), words).map_err(|error| error.report())?;
    let planned = propose(project, &plan, (words, CeilingScope::Unit), (&flows, None)).await?;
    let (unit, ask) = (Some(planned.milestone), Some(planned.ask));
    Ok(PilotDispatched { unit, ask, warnings: Vec::new(), note: String::new() })
}

/// Asks a person about a plan, and stores its units.
async fn propose(
    project: &Arc<OpenProject>,
    plan: &GoalPlan,
    (goal, scope): (&str, CeilingScope),
    (flows, issue): (&Workflows, Option<u64>),
) -> Result<PilotPlanned, AutopilotError> {
    let max_cost = project.config().ceilings.get(&scope).copied();
    let budget = WorkBudget { max_cost, ..WorkBudget::default() };
    let (item, ask) = project
        .hands
        .propose_plan(NewPilotPlan {
            document: plan.make_document(goal, WorkKind::Pilot, budget),
            project: project.git.project().top_dir().to_owned(),
            origin: None,
            branch: project.target.to_string(),
        })
        .await?;
    if let Err(error) = add_units(project, (plan, item), (flows, issue)).await {
        // A card without units could be approved, and nothing would come of it.
        project.hands.move_plan(item, WorkEvent::Cancel, "its units could not be stored").await?;
        return Err(error);
    }
    project.looping.wake.notify_one();
    let milestone = plan.units.first().map(|unit| unit.id.to_string()).unwrap_or_default();
    let units = plan.units.iter().map(|unit| line_of(unit, flows, has_parts(plan, unit.id))).collect();
    Ok(PilotPlanned { item, ask, milestone, units })
}

fn line_of(unit: &PilotUnit, flows: &Workflows, has_parts: bool) -> PilotUnitLine {
    let phase = flows.of_unit(unit).map(|(flow, _)| first_phase(flow, unit.id, has_parts).name());
    PilotUnitLine {
        id: unit.id.to_string(),
        title: unit.title.clone(),
        phase: phase.unwrap_or_default().to_owned(),
        status: "pending".to_owned(),
        attempt: 0,
        is_over: false,
        is_running: false,
        cost: MicroUsd::ZERO,
    }
}

fn has_parts(plan: &GoalPlan, id: UnitId) -> bool {
    plan.units.iter().any(|unit| unit.id.parent() == Some(id))
}

/// Asks the planner until its answer can be used, or as often as it may be asked.
async fn ask_planner(project: &Arc<OpenProject>, goal: &str) -> Result<GoalPlan, AutopilotError> {
    let map = draw_map(&read_files(project).await?);
    let gates: Vec<String> = project.config().gates.iter().map(|gate| gate.name.clone()).collect();
    let session = project.session().to_string();
    let max_cost = drive::allow_question(project).await?;
    // A planner that writes prose is asked again with its mistake; it is never guessed what it meant.
    let (mut retries, mut previous) = (0, None);
    loop {
        let prompt = GoalPrompt {
            session_id: &session,
            goal,
            repo_map: &map,
            project_plan: None,
            gates: &gates,
            max_units: MAX_GOAL_UNITS,
            previous_error: previous.as_deref(),
        };
        let text = project.prompts.render_goal(&prompt).map_err(|error| error.report())?;
        let question =
            PlannerQuestion { project: project.git.project().top_dir().to_owned(), text, max_cost };
        let reply = project.hands.ask_planner(question, &project.hands.draining()).await?;
        match read_goal_plan(&reply.text) {
            Ok(plan) => return Ok(plan),
            Err(error) => match next_question(retries, &error) {
                Some(question) => previous = Some(question),
                None => return Err(AutopilotError::NoOutline { why: error.to_string() }),
            },
        }
        retries += 1;
    }
}

/// Reads the files of the target, as they are committed.
async fn read_files(project: &OpenProject) -> Result<ProjectFiles, AutopilotError> {
    let (git, target) = (project.git.project(), &project.target);
    let tip = read_ref(git, &target.to_ref()).await.map_err(PilotGitError::from)?;
    let tip = tip.ok_or_else(|| PilotGitError::from(GitFault::NoCommit { branch: target.to_string() }))?;
    Ok(ProjectFiles::read_commit(git, &tip).await.map_err(PilotGitError::from)?)
}

/// The workflows of a project, with their texts.
#[derive(Debug)]
pub(crate) struct Workflows {
    flows: BTreeMap<String, (PhaseFlow, String)>,
    /// The name of that of units that name none.
    pub(crate) default: String,
}

impl Workflows {
    pub(crate) fn of_unit(&self, unit: &PilotUnit) -> Option<&(PhaseFlow, String)> {
        self.flows.get(unit.workflow.as_deref().unwrap_or(&self.default))
    }
}

/// Reads the workflows of a project: its own files over the built-in ones.
///
/// # Errors
///
/// If a file is none, or the one that was asked for is not there.
pub(crate) fn read_workflows(
    project: &OpenProject,
    asked: Option<&str>,
) -> Result<Workflows, AutopilotError> {
    let mut flows = BTreeMap::new();
    for (flow, text) in built_in_workflows().map_err(|error| error.report())? {
        flows.insert(flow.name.clone(), (flow, text.to_owned()));
    }
    let folder = project.git.project().top_dir().join(WORKFLOWS);
    let failed = |path: &std::path::Path, why: String| AutopilotError::File { path: path.to_owned(), why };
    if folder.is_dir() {
        let entries = std::fs::read_dir(&folder).map_err(|error| failed(&folder, error.to_string()))?;
        for entry in entries.take(MAX_WORKFLOWS) {
            let path = entry.map_err(|error| failed(&folder, error.to_string()))?.path();
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if path.extension().is_none_or(|ending| ending != "toml") {
                continue;
            }
            let text = read_bounded(&path).map_err(|why| failed(&path, why))?;
            let flow = parse_workflow(&name, &text).map_err(|error| error.report())?;
            // The project's own text stands in for the built-in one of its name.
            flows.insert(name, (flow, text));
        }
    }
    let names: Vec<&str> = flows.keys().map(String::as_str).collect();
    let config = project.config();
    let default = choose_workflow(asked, config.default_workflow.as_deref(), &names);
    let default = default.map_err(|error| error.report())?.to_owned();
    Ok(Workflows { flows, default })
}

/// Reads a file that is not larger than a workflow may be.
fn read_bounded(path: &std::path::Path) -> Result<String, String> {
    use std::io::Read as _;
    let most = u64::try_from(writ_autopilot::workflow::MAX_WORKFLOW_BYTES).unwrap_or(u64::MAX);
    let mut text = String::new();
    let opened = std::fs::File::open(path).map_err(|error| error.to_string())?;
    // One byte more than it may have, so that the reader of the text refuses it.
    opened.take(most + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

/// Stores the units of a plan, bound to the texts of their workflows.
async fn add_units(
    project: &Arc<OpenProject>,
    (plan, item): (&GoalPlan, ItemId),
    (flows, issue): (&Workflows, Option<u64>),
) -> Result<(), AutopilotError> {
    let now = project.hands.now();
    let (mut ops, mut pinned, mut units) = (Vec::new(), BTreeSet::new(), Vec::new());
    for unit in &plan.units {
        let name = unit.workflow.clone().unwrap_or_else(|| flows.default.clone());
        let missing = || AutopilotError::NoOutline { why: format!("there is no workflow '{name}'") };
        let (flow, text) = flows.of_unit(unit).ok_or_else(missing)?;
        // A change of the file later concerns later units alone.
        if pinned.insert(flow.digest) {
            let (name, content) = (flow.name.clone(), text.clone());
            ops.push(Op::Units(UnitOp::Pin { name, content, at: now }));
        }
        units.push(new_unit(plan, (item, issue), unit, flow)?);
    }
    ops.push(Op::Units(UnitOp::Add { session: project.session(), units, at: now }));
    project.hands.commit(ops).await?;
    Ok(())
}

pub(crate) fn new_unit(
    plan: &GoalPlan,
    (item, gh_issue): (ItemId, Option<u64>),
    unit: &PilotUnit,
    flow: &PhaseFlow,
) -> Result<NewUnit, AutopilotError> {
    let facts = UnitFacts {
        plan: (unit.id.root() == unit.id).then_some(item),
        earlier_plans: Vec::new(),
        blocked_by: unit.blocked_by.iter().copied().collect(),
        code_depends_on: unit.code_depends_on.iter().copied().collect(),
        branch: None,
        cancelled: None,
        is_reverted: false,
        gh_issue,
        ship: None,
    };
    // What has parts waits for them.
    let parts = plan.units.iter().filter(|part| part.id.parent() == Some(unit.id)).map(|part| part.id);
    let waits: BTreeSet<UnitId> = parts.chain(unit.blocked_by.iter().copied()).collect();
    Ok(NewUnit {
        id: unit.id.to_string(),
        title: unit.title.clone(),
        description: unit.description.clone(),
        metadata: write_facts(unit.id, &facts)?,
        workflow: flow.name.clone(),
        workflow_hash: flow.digest,
        phase: first_phase(flow, unit.id, has_parts(plan, unit.id)).name().to_owned(),
        priority: unit.priority,
        blocked_by: waits.iter().map(ToString::to_string).collect(),
    })
}
