//! A planner's plan becomes one card.

use std::sync::Arc;

use serde_json::{Value, json};
use writ_inspect::show::ShownText;
use writ_policy::plan as policy;
use writ_tools::def::ToolContext;
use writ_types::action::{Action, Free};
use writ_types::chat::ToolCall;
use writ_types::entry::Fact;
use writ_types::id::AskId;
use writ_types::taint::Label;
use writ_types::work::{PlanDocument, PlannedCall};

use crate::asks;
use crate::door::{Passage, RequestContext};
use crate::error::EngineError;
use crate::passage;
use crate::pending::Pending;
use crate::place::CallPlace;

/// The tool that gives the calls of a plan their form.
const PROPOSE: &str = "plan_propose";
/// Millionths of a dollar in a cent.
const CENT: u64 = 10_000;

/// The result of handing a plan to a person.
#[derive(Debug)]
pub(crate) enum Handed {
    /// A card waits.
    Asked(AskId),
    /// No call of it would ask, so there is nothing to approve yet.
    NothingAsks,
    /// It cannot be asked about, with the reason.
    Refused(String),
}

/// Asks a person about a plan: one card; its approval mints the key of the calls.
///
/// # Errors
///
/// If the store cannot be written.
pub(crate) async fn hand_over(
    place: &CallPlace,
    document: &PlanDocument,
    label: &Label,
    ops: &mut Pending,
) -> Result<Handed, EngineError> {
    let calls: Vec<&PlannedCall> = document.steps.iter().flat_map(|step| &step.calls).collect();
    if calls.is_empty() {
        return Ok(Handed::NothingAsks);
    }
    // The calls are the executor's, so they are prepared with its tools.
    let place = CallPlace { profile: Arc::clone(place.services.profiles.executor()), ..place.clone() };
    let services = &place.services;
    let call = ToolCall {
        id: document.id.clone(),
        name: PROPOSE.to_owned(),
        arguments: arguments(document, &calls),
    };
    let tools = services.servers.registry();
    let toolset = tools.toolset_of(&place.profile.roles, &place.profile.allow_list(&tools));
    let context = ToolContext {
        agent: &place.profile.agent,
        session: Some(place.session.id),
        turn: place.turn,
        turn_number: place.number,
        label,
        config: &services.config.timeouts,
        search: None,
    };
    let mut prepared = match toolset.prepare_call(&call, None, &context) {
        Ok(prepared) => prepared,
        Err(error) => return Ok(Handed::Refused(error.model_message())),
    };
    if let Action::Plan(plan) = &mut prepared.action {
        // No origin of the planner's values is known, so what is external is named as such.
        policy::mark_external(plan, label, None);
    }
    let shown = ShownText::new(&prepared, "").ok();
    let standing = RequestContext::of(&place.authority, place.spent);
    let ask = match Box::pin(passage::pass(services, prepared, standing)).await? {
        Passage::Ask(ask) => *ask,
        Passage::Denied(denial) => return Ok(Handed::Refused(denial.text)),
        // A plan always asks.
        Passage::Permit(_) | Passage::Simulated(_) => return Ok(Handed::NothingAsks),
    };
    let hash = ask.hash;
    match asks::open_ask(services, &place.session, ask, "").await? {
        Ok(id) => {
            let planned = shown.map(|shown| Fact::Planned { plan: hash, text: shown.text().to_owned() });
            ops.extend(planned.map(|fact| services.journal.entry(place.session.id, place.at(), fact)));
            Ok(Handed::Asked(id))
        }
        Err(why) => Ok(Handed::Refused(why)),
    }
}

/// The arguments of the proposal.
fn arguments(document: &PlanDocument, calls: &[&PlannedCall]) -> Value {
    let step = |call: &&PlannedCall| {
        let mut step = json!({ "tool": call.tool, "arguments": call.arguments, "times": call.times });
        let free = match call.free {
            None | Some(Free::Nothing) => None,
            Some(Free::Content) => Some("content"),
            Some(Free::Page) => Some("page"),
        };
        if let (Some(free), Value::Object(map)) = (free, &mut step) {
            map.insert("free".to_owned(), free.into());
        }
        step
    };
    let mut proposal =
        json!({ "title": document.title, "steps": calls.iter().map(step).collect::<Vec<_>>() });
    if let (Some(cost), Value::Object(map)) = (document.budget.max_cost, &mut proposal) {
        map.insert("max_cost_cents".to_owned(), cost.get().div_ceil(CENT).into());
    }
    proposal
}
