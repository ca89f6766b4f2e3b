//! One task for one model, outside of any turn, by which its owner measures it. The call passes the door, is counted and is written to the
//! ledger like any other.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use writ_agent::event::Event;
use writ_inspect::withhold;
use writ_models::provider::Route;
use writ_models::{ModelRole, Models};
use writ_types::chat::{ChatMessage, ModelRequest, Part, Role, StopReason, ToolSpecs, Usage};
use writ_types::error::ToReport as _;
use writ_types::taint::{Clearance, Label, Taint};
use writ_types::unit::{MicroUsd, Tokens};

use super::clearance::Cleared;
use super::{Account, Tried, attempt, recorded_error};
use crate::budget;
use crate::error::EngineError;
use crate::place::CallPlace;

/// The most tokens of an answer: a plan of one unit, with the reasoning before it.
const MAX_OUTPUT: Tokens = Tokens::new(8_192);

const SYSTEM: &str = "You are being measured. Answer the task with text alone: you have no tools.";

/// The answer of a model to a sample.
#[derive(Debug)]
pub(crate) struct SampleAnswer {
    /// Its text, or in words why there is none.
    pub(crate) text: Result<String, String>,
    /// The time that it took.
    pub(crate) took: Duration,
    /// The tokens that it has used.
    pub(crate) usage: Usage,
    /// The money that it has cost.
    pub(crate) cost: MicroUsd,
}

/// Asks the model of a route, once. The task quotes a project, so a model that is not cleared for that is not asked.
///
/// # Errors
///
/// If the store cannot be used; what the model cannot do is in the answer.
pub(crate) async fn ask_sample(
    place: &CallPlace,
    (models, route): (&Models, &Route),
    task: String,
    cancel: &CancellationToken,
) -> Result<SampleAnswer, EngineError> {
    let services = Arc::clone(&place.services);
    let label = Label::new(Taint::External);
    let message =
        ChatMessage { role: Role::User, parts: vec![Part::Text { text: task }], label: label.clone() };
    let mut request = ModelRequest {
        system: SYSTEM.to_owned(),
        messages: vec![Arc::new(message)],
        tools: ToolSpecs::default(),
        max_output_tokens: MAX_OUTPUT,
        form: None,
        effort: None,
    };
    services.journal.redactor.mask_request(&mut request);
    let unanswered = |why: String| SampleAnswer {
        text: Err(why),
        took: Duration::ZERO,
        usage: Usage::default(),
        cost: MicroUsd::ZERO,
    };
    if !is_cleared(route, &request, &label) {
        return Ok(unanswered("its provider is not cleared for the task".to_owned()));
    }
    let began = services.journal.clock.now();
    let planned = match models.plan_over(route, Arc::new(request), began) {
        Ok(planned) => planned.reason_for_route("its owner measures it"),
        Err(error) => {
            return Ok(unanswered(services.journal.redactor.mask_report(error.report()).outside));
        }
    };
    let cleared = Cleared { label, why: String::new(), hidden: Default::default() };
    let spent = budget::read_spent(&services, &place.session, MicroUsd::ZERO, &[]).await?;
    let place = CallPlace { spent, ..place.clone() };
    let mut account = Account::default();
    // Output of any role but the executor is not shown to clients.
    let asked = (&planned, ModelRole::Proxy);
    let tried = Box::pin(attempt(&place, models, asked, &cleared, cancel, &mut account)).await?;
    let (usage, cost) = (account.usage, account.cost);
    services.journal.commit_for(&place.session.hub, account.ops.into_relaxed()).await?;
    let took = services.journal.clock.now().time_since(began);
    let text = match tried {
        // Half a plan says nothing about the other half.
        Tried::Over(Event::ModelReplied { reply }) if reply.stop == StopReason::MaxTokens => {
            Err(format!("its answer was cut at {MAX_OUTPUT}"))
        }
        Tried::Over(Event::ModelReplied { reply }) => Ok(reply.text),
        Tried::Over(_) => Err("the call was refused".to_owned()),
        Tried::Unaffordable(denial) => Err(denial.outside_text()),
        Tried::Failed(error) => Err(recorded_error(&services, &error)),
    };
    Ok(SampleAnswer { text, took, usage, cost })
}

fn is_cleared(route: &Route, request: &ModelRequest, label: &Label) -> bool {
    let clearance = route.provider.clearance;
    let is_public = clearance == Clearance::Public;
    clearance >= label.clearance() && !(is_public && withhold::is_personal(request))
}
