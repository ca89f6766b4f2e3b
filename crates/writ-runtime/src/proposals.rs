//! Plans of work items: stored, asked about as one card, and announced.
//!
//! The card holds the whole plan, so what is approved is every step, check and limit of it. The approval mints the key
//! under which the item's session works ([`crate::plans`]).

use std::sync::Arc;

use writ_inspect::prepared::Prepared;
use writ_policy::budget::Spent;
use writ_policy::plan::{mark_external, most_minutes};
use writ_store::batch::{Batch, Op};
use writ_store::reads::{SessionReads as _, WorkReads as _};
use writ_store::work::{ItemMove, WorkItem, WorkOp, WorkStepRow};
use writ_types::action::{Action, Plan, WorkOrder};
use writ_types::api::work::{StepState, WorkState};
use writ_types::chat::ToolCall;
use writ_types::frame::{ServerFrame, WorkNews};
use writ_types::id::{AskId, ItemId, SessionId};
use writ_types::taint::{Label, Taint};
use writ_types::work::PlanDocument;

use crate::door::RequestContext;
use crate::error::{EngineError, WorkError};
use crate::passage::QuestionResult;
use crate::services::Services;
use crate::session::{AttemptTerms, BRANCH, Session, WorkTerms};
use crate::work_calls::worked;
use crate::{asks, opening, passage};

use steps::{planned_steps, step_rows};

pub(crate) mod steps;

/// The harness's own word for what proposes the plan of a work item.
pub(crate) const PROPOSE: &str = "work";

/// A plan to be proposed.
#[derive(Clone, Debug)]
pub(crate) struct NewWork {
    /// The plan.
    pub(crate) document: PlanDocument,
    /// The folder to work in.
    pub(crate) project: Option<String>,
    /// The conversation that it comes from, which shows its card and its news.
    pub(crate) origin: Option<SessionId>,
    /// The item that it becomes, where the same proposal may be made again; none: a new one.
    pub(crate) id: Option<ItemId>,
    /// The trust of what the plan rests on.
    pub(crate) taint: Taint,
    /// The branch that a plan of the autopilot is for.
    pub(crate) branch: Option<String>,
}

/// Stores a plan as a work item, and asks a person about it.
///
/// # Errors
///
/// If the plan cannot be shown completely or is refused, its folder cannot be used, or the store cannot be written.
pub(crate) async fn propose(services: &Arc<Services>, new: NewWork) -> Result<(ItemId, AskId), EngineError> {
    let now = services.journal.clock.now();
    let (document, id) = (&new.document, new.id.unwrap_or_else(|| services.journal.ids.item(now)));
    if let Some(item) = services.journal.store.work_item(id).await? {
        return proposed_before(services, &item).await;
    }
    steps::check_names(services, document)?;
    let (max_tokens, max_cost) = (document.budget.max_tokens, document.budget.max_cost);
    let terms = WorkTerms { item: id, max_tokens, max_cost, under: None, attempt: AttemptTerms::default() };
    let session = opening::open_for_work(services, new.project.as_deref(), terms).await?;
    let item = WorkItem {
        id,
        name: document.id.clone(),
        kind: document.kind.name().to_owned(),
        title: document.title.clone(),
        session: session.id,
        origin: new.origin,
        goal: None,
        project: session.project().map(str::to_owned),
        state: WorkState::Proposed,
        version: 0,
        reason: "its plan waits for an approval".to_owned(),
        document: to_json(document)?,
        taint: new.taint,
        ask: None,
        domains: Vec::new(),
        round: 0,
        consultations: 0,
        report: String::new(),
        max_tokens,
        max_cost,
        created_at: now,
        changed_at: now,
    };
    let steps = step_rows(document);
    let mut ops = vec![
        worked(&services.journal, &item, "", WorkState::Proposed.name(), "a plan was proposed"),
        Op::Work(WorkOp::Propose(Box::new((item.clone(), steps)))),
    ];
    ops.extend(new.branch.map(|branch| Op::SetSessionMetadata {
        session: item.session,
        key: BRANCH.to_owned(),
        value: Some(branch.into()),
    }));
    // Until its question is noted, no other task asks it.
    let asking = services.life.work.begin_asking(id);
    services.journal.store.commit(Batch::relaxed(ops)).await?;
    let asked = ask_about(services, &item).await;
    match asked {
        Ok(ask) => {
            drop(asking);
            services.life.work.call_item(id);
            Ok((id, ask))
        }
        Err(error) => {
            end_unasked(services, &item, &error).await?;
            Err(error)
        }
    }
}

/// Ends an item that no person could be asked about: it does not stay as if one could answer.
async fn end_unasked(services: &Services, item: &WorkItem, error: &EngineError) -> Result<(), EngineError> {
    let reason = services.journal.report(error).outside;
    let state = WorkState::Cancelled;
    let ended = Op::Work(WorkOp::Move(ItemMove {
        item: item.id,
        version: item.version,
        state,
        is_active: false,
        reason: reason.clone(),
        at: services.journal.clock.now(),
    }));
    let entry = worked(&services.journal, item, "", state.name(), &reason);
    services.journal.store.commit(Batch::relaxed(vec![entry, ended])).await?;
    Ok(())
}

/// Returns the question about an item that is there already: asked before, or now.
async fn proposed_before(services: &Arc<Services>, item: &WorkItem) -> Result<(ItemId, AskId), EngineError> {
    if item.state.is_over() {
        return Err(EngineError::Denied(item.reason.clone()));
    }
    let ask = match &item.ask {
        Some(ask) => ask.clone(),
        None => {
            let asking = services.life.work.begin_asking(item.id);
            let asked = ask_about(services, item).await;
            drop(asking);
            asked?
        }
    };
    services.life.work.call_item(item.id);
    Ok((item.id, ask))
}

/// Asks a person about the plan of an item. The same plan in the same round is the same question.
///
/// # Errors
///
/// If it cannot be shown completely, the door refuses it, or the store cannot be written.
pub(crate) async fn ask_about(services: &Arc<Services>, item: &WorkItem) -> Result<AskId, EngineError> {
    let own = services.sessions.open_one(item.session).await?;
    // A conversation that was closed meanwhile shows no card.
    let asking = match item.origin {
        Some(origin) => services.sessions.open_one(origin).await.unwrap_or_else(|_| Arc::clone(&own)),
        None => own,
    };
    let row = services.journal.store.session(item.session).await?;
    let branch = row.and_then(|row| row.metadata.get(BRANCH)?.as_str().map(str::to_owned));
    let prepared = prepared(services, item, &asking, branch)?;
    let authority = services.keys.grant(&asking, None).await?;
    let standing = RequestContext::of(&authority, Spent::default());
    let ask = match passage::pass_to_person(services, prepared, standing).await? {
        QuestionResult::Ask(ask) => *ask,
        QuestionResult::Denied(denial) => return Err(EngineError::Denied(denial.text)),
        QuestionResult::Unasked => {
            let text = "a plan is run only once a person has approved it; a rule of yours asks nobody";
            return Err(EngineError::Denied(text.to_owned()));
        }
    };
    let ask = asks::open_ask(services, &asking, ask, "").await?;
    let ask = ask.map_err(|why| EngineError::Work(WorkError::Unshowable(why)))?;
    // A crash before this asks once more, and the store merges that with the card that is open.
    let note = Op::Work(WorkOp::NoteAsk { item: item.id, ask: ask.clone() });
    services.journal.store.commit(Batch::relaxed(vec![note])).await?;
    Ok(ask)
}

/// Proposes an item again; the steps that are done stay done.
///
/// # Errors
///
/// As [`ask_about`], or if the item is in a state without a retry.
pub(crate) async fn propose_again(
    services: &Arc<Services>,
    item: &WorkItem,
    (version, attempts): (u64, u32),
) -> Result<AskId, EngineError> {
    let renewed = vec![
        worked(&services.journal, item, "", WorkState::Proposed.name(), "a person wants another try"),
        Op::Work(WorkOp::Renew { item: item.id, attempts }),
        Op::Work(WorkOp::Move(ItemMove {
            item: item.id,
            version,
            state: WorkState::Proposed,
            is_active: true,
            reason: "its plan waits for an approval".to_owned(),
            at: services.journal.clock.now(),
        })),
    ];
    let asking = services.life.work.begin_asking(item.id);
    services.journal.store.commit(Batch::relaxed(renewed)).await?;
    let again = services.journal.store.work_item(item.id).await?;
    let again = again.ok_or_else(|| WorkError::Unknown(item.id.to_string()))?;
    let asked = ask_about(services, &again).await;
    if let Err(error) = &asked {
        end_unasked(services, &again, error).await?;
    }
    drop(asking);
    services.life.work.call_item(item.id);
    asked
}

fn prepared(
    services: &Services,
    item: &WorkItem,
    asking: &Session,
    branch: Option<String>,
) -> Result<Prepared, EngineError> {
    let (document, label) = (read_document(item)?, Label::new(item.taint));
    let minutes = most_minutes(document.kind);
    let mut plan = Plan {
        title: document.title.clone(),
        steps: planned_steps(services, &document, &label)?,
        minutes,
        max_cost: document.budget.max_cost,
        branch,
        work: Some(Box::new(WorkOrder {
            item: item.id,
            round: item.round,
            session: item.session,
            project: item.project.clone(),
            document,
        })),
    };
    // No origin of the planner's values is known, so what is external is named as such on the card.
    mark_external(&mut plan, &label, None);
    Ok(Prepared {
        action: Action::Plan(plan),
        agent: services.config.agent.clone(),
        session: Some(asking.id),
        turn: None,
        turn_number: 0,
        call: None,
        tool: PROPOSE.to_owned(),
        sinks: Vec::new(),
        label,
        bindings: Default::default(),
        idempotent: false,
        intent: format!("run the plan '{}'", item.title),
    })
}

/// Reads the plan of an item.
///
/// # Errors
///
/// If it is none.
pub(crate) fn read_document(item: &WorkItem) -> Result<PlanDocument, EngineError> {
    serde_json::from_str(&item.document)
        .map_err(|error| EngineError::Work(WorkError::Unreadable(format!("{}: {error}", item.id))))
}

/// Writes a plan as an item holds it.
///
/// # Errors
///
/// If it cannot be written.
pub(crate) fn to_json(document: &PlanDocument) -> Result<String, EngineError> {
    serde_json::to_string(document)
        .map_err(|error| EngineError::Work(WorkError::Unreadable(error.to_string())))
}

/// News about an item, for those who watch the conversation that it comes from, or its own session.
pub(crate) fn news(
    services: &Services,
    item: &WorkItem,
    steps: &[WorkStepRow],
    (state, step, text): (WorkState, &str, &str),
) -> Op {
    let text = services.journal.redactor.mask_text(text).into_owned();
    let news = WorkNews {
        item: item.id,
        name: item.name.clone(),
        title: item.title.clone(),
        state,
        step: step.to_owned(),
        text,
        steps_done: steps.iter().filter(|step| step.state == StepState::Done).count(),
        steps: steps.len(),
    };
    let session = item.origin.unwrap_or(item.session);
    Op::Frame { session, frame: Box::new(ServerFrame::Work(Box::new(news))) }
}

/// Commits operations of an item; its news go to those who watch.
///
/// # Errors
///
/// If a condition does not hold, or the store cannot be written.
pub(crate) async fn commit_news(
    services: &Services,
    item: &WorkItem,
    batch: Batch,
) -> Result<writ_store::batch::Receipt, EngineError> {
    let shown = services.sessions.get(item.origin.unwrap_or(item.session)).await?;
    services.journal.commit_for(&shown.hub, batch).await
}

/// A call as a plan names it.
pub(crate) fn call_of(tool: &str, arguments: &serde_json::Map<String, serde_json::Value>) -> ToolCall {
    let arguments = serde_json::Value::Object(arguments.clone());
    ToolCall { id: PROPOSE.to_owned(), name: tool.to_owned(), arguments }
}
