//! The end of a planner's turn: its plan becomes a card, its answer about an item reaches the item.

use writ_agent::effect::{FinishedTurn, TurnStatus};
use writ_agent::event::TextVerdict;
use writ_plan::read::read_plan;
use writ_types::chat::{ChatMessage, Part, Role};
use writ_types::entry::GatePoint;
use writ_types::error::Exit;
use writ_types::taint::Label;
use writ_types::work::PlanDocument;

use super::Drive;
use crate::error::EngineError;
use crate::pending::Pending;
use crate::plan_results::Handed;
use crate::planner::{self, PlannerMessage, answer, results};
use crate::proposals::steps::check_names;

/// The end of a planner's turn, as people read it and as later turns do.
pub(super) struct PlannedEnd {
    pub(super) text: String,
    pub(super) exit: Exit,
    /// The part of the turn that becomes history: the plan, and nothing of how it was found.
    pub(super) transcript: Vec<ChatMessage>,
}

/// Judges the answer of a planner; that of other agents passes.
pub(super) fn judge_plan(drive: &mut Drive, point: GatePoint, text: &str) -> TextVerdict {
    if point != GatePoint::Output || !drive.profile.is_planner() {
        return TextVerdict::Pass;
    }
    let message = &drive.lease.message;
    let check = |plan: &PlanDocument| check_names(&drive.services, plan).map_err(|error| error.to_string());
    let texts = (message.text.as_str(), text);
    let verdict = planner::judge_answer(&message.client_id, texts, drive.ending.plan_tries, &check);
    if matches!(verdict, TextVerdict::Again { .. }) {
        drive.ending.plan_tries = drive.ending.plan_tries.saturating_add(1);
    }
    verdict
}

/// Ends the turn of a planner. After a crash before the turn's last commit this is done again; the same plan of the same turn
/// is not asked about twice.
pub(super) async fn end_planning(
    drive: &mut Drive,
    finish: &FinishedTurn,
    (text, label): (&str, &Label),
    ops: &mut Pending,
) -> Result<PlannedEnd, EngineError> {
    let id = drive.lease.message.client_id.clone();
    let is_done = matches!(finish.status, TurnStatus::Done | TurnStatus::Waiting | TurnStatus::Denied);
    let said = |text: &str| ChatMessage {
        role: Role::Assistant,
        parts: vec![Part::Text { text: text.to_owned() }],
        label: label.clone(),
    };
    let unfinished = |text: &str| PlannedEnd {
        text: format!("The planner has made no plan: {text}"),
        exit: finish.exit,
        transcript: vec![said(&format!("The planner has made no plan: {text}"))],
    };
    let read = PlannerMessage::read_id(&id);
    if matches!(read, Some((PlannerMessage::PilotQuestion, _))) {
        return Ok(PlannedEnd { text: text.to_owned(), exit: finish.exit, transcript: Vec::new() });
    }
    let kind = read.map_or("plan_result", |(kind, _)| kind.name());
    if let Some((kind, trace)) = read.filter(|(kind, _)| kind.is_about_item()) {
        let answered =
            answer::answer_ops(&drive.services, drive.session.id, (kind, trace), (text, is_done)).await?;
        ops.extend(answered);
        return Ok(PlannedEnd { text: text.to_owned(), exit: finish.exit, transcript: Vec::new() });
    }
    let (Some((_, trace)), Ok(plan), true) = (read, read_plan(text), is_done) else {
        return Ok(unfinished(text));
    };
    let (title, request) = (plan.title, &drive.lease.message.record);
    let result = (trace, text, label.taint);
    // The wait is on its own: a long one must not make this task's stack large.
    let handed = results::send_back(&drive.services, &drive.session, request, result);
    let handed = Box::pin(handed).await?;
    let (end, exit) = match handed {
        Handed::Asked(item, ask) => {
            (format!("waits for your approval (ask {ask}). Then it runs as {item}."), Exit::Waiting)
        }
        Handed::Refused(why) => (format!("cannot be asked about: {why}"), Exit::Denied),
    };
    tracing::info!(kind, title, "the planner has answered");
    let text = format!("The plan '{title}' {end}\n\n{text}");
    Ok(PlannedEnd { transcript: vec![said(&text)], text, exit })
}
