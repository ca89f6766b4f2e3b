//! Questions of the harness: what it asks a model beside the conversation.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use writ_agent::event::Event;
use writ_models::ModelRole;
use writ_policy::budget::Spent;
use writ_secrets::contents::SEALED_REPLY;
use writ_types::chat::{ModelReply, ModelRequest};
use writ_types::entry::SealedText;
use writ_types::error::ToReport as _;
use writ_types::taint::Label;
use writ_types::unit::MicroUsd;
use zeroize::Zeroizing;

use super::clearance::clear;
use super::{Account, Tried, attempt, experience, recorded_error};
use crate::error::EngineError;
use crate::pending::Pending;
use crate::place::CallPlace;
use crate::services::Services;

/// The longest answer to the harness that is stored, in bytes of JSON: its questions want short answers.
pub(crate) const MAX_SEALED_REPLY: usize = 64 * 1024;

/// The result of a question that the harness asks a model.
#[derive(Debug)]
pub(crate) struct HarnessAnswer {
    /// The answer, or in words why there is none.
    pub(crate) reply: Result<ModelReply, String>,
    /// The operations that the caller must still write to the ledger.
    pub(crate) ops: Pending,
    pub(crate) cost: MicroUsd,
}

/// Asks a model of a role for the harness: nothing of it is shown. Where one cannot answer, the next of its routes is asked at
/// once; none is waited for.
///
/// # Errors
///
/// If the store cannot be used.
pub(crate) async fn ask(
    place: &CallPlace,
    role: ModelRole,
    (request, label): (Arc<ModelRequest>, &Label),
    cancel: &CancellationToken,
) -> Result<HarnessAnswer, EngineError> {
    let (services, mut account) = (&place.services, Account::default());
    let mut place = place.clone();
    let Some(models) = services.outside.models.get() else {
        return Ok(account.unanswered("no model is configured".to_owned()));
    };
    let (mut course, mut request) = (models.start_course(role), Arc::unwrap_or_clone(request));
    // Its texts may be older than a secret that is known now.
    services.journal.redactor.mask_request(&mut request);
    request.effort = request.effort.or(models.routes().effort(role));
    let cleared = match clear(&place, (models, role), (&mut request, label), &mut course) {
        Ok(cleared) => cleared,
        Err(report) => return Ok(account.unanswered(report.outside)),
    };
    let (request, spent_before) = (Arc::new(request), place.spent.turn_cost);
    let mut why = "no model can be asked now".to_owned();
    while let Some(step) = models.next(&course, services.journal.clock.now()) {
        // A person may wait for a turn; what the harness asks beside it has a fallback instead.
        if !step.wait.is_zero() {
            break;
        }
        let planned = match models.plan_over(&step.route, Arc::clone(&request), services.journal.clock.now())
        {
            Ok(planned) => planned.reason_for_route(&cleared.why),
            Err(error) => {
                course.skip_unfit(&step.route, &error.to_string());
                why = services.journal.redactor.mask_report(error.report()).outside;
                continue;
            }
        };
        place.spent = Spent { turn_cost: spent_before.saturating_add(account.cost), ..place.spent };
        let tried =
            Box::pin(attempt(&place, models, (&planned, role), &cleared, cancel, &mut account)).await?;
        match tried {
            Tried::Over(Event::ModelReplied { reply }) => {
                models.answered(&step.route);
                account.ops.extend(experience::store_changes(services, models));
                return Ok(account.answered(Ok(reply)));
            }
            Tried::Unaffordable(denial) => {
                course.skip_unfit(&step.route, &denial.outside_text());
                why = "the call was refused".to_owned();
            }
            Tried::Over(_) => return Ok(account.unanswered("the call was refused".to_owned())),
            Tried::Failed(error) => {
                models.failed(&mut course, &step.route, &error, services.journal.clock.now());
                account.ops.extend(experience::store_changes(services, models));
                why = recorded_error(services, &error);
            }
        }
    }
    Ok(account.unanswered(why))
}

/// Seals an answer to the harness, for cassettes. One that is too long, or that cannot be sealed, is left out: nothing rests on it.
pub(crate) fn seal_reply(services: &Services, reply: &ModelReply) -> Option<SealedText> {
    let plain = Zeroizing::new(serde_json::to_vec(reply).ok()?);
    if plain.len() > MAX_SEALED_REPLY {
        return None;
    }
    let sealed = services.outside.seal.seal_content(SEALED_REPLY, &plain);
    sealed.inspect_err(|error| tracing::warn!(%error, "an answer to the harness cannot be sealed")).ok()
}
