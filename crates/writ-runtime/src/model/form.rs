//! A question of the harness with an answer of one form: asked in the provider's own way, checked, asked once more with the
//! error, then answered by the role's fallback.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use writ_models::ModelRole;
use writ_models::structured::{MAX_REQUESTS, Origin, once_more, read_structured};
use writ_policy::budget::Spent;
use writ_types::chat::{AnswerForm, ModelRequest};
use writ_types::taint::Label;
use writ_types::unit::MicroUsd;

use super::{HarnessAnswer, ask};
use crate::budget;
use crate::error::EngineError;
use crate::place::CallPlace;

/// A question, and how its answer is read.
pub(crate) struct FormQuestion<'a, T> {
    /// The role of the model that is asked.
    pub(crate) role: ModelRole,
    /// The request; its form is set from `form`.
    pub(crate) request: ModelRequest,
    /// The trust of its content.
    pub(crate) label: &'a Label,
    /// The form of the answer.
    pub(crate) form: AnswerForm,
    /// Returns an error, for the model, about a value that can be read and is wrong.
    pub(crate) check: &'a (dyn Fn(&T) -> Result<(), String> + Sync),
    /// The value where no answer had the form, or none came: the same for every run.
    pub(crate) fallback: &'a (dyn Fn() -> T + Sync),
}

/// The answer to a question of one form.
#[derive(Debug)]
pub(crate) struct FormAnswer<T> {
    /// The value.
    pub(crate) value: T,
    /// The model's request that gave it, or the fallback.
    pub(crate) origin: Origin,
    /// The reason why no model could be asked; none: one answered, in its form or another.
    pub(crate) unasked: Option<String>,
    /// The cost of the requests.
    pub(crate) cost: MicroUsd,
}

/// Asks, and once more with the error where the answer has another form. The entries of the calls are written.
///
/// # Errors
///
/// If the store cannot be used. A model that does not answer, or not in the form, is no error.
pub(crate) async fn ask_form<T: DeserializeOwned>(
    place: &CallPlace,
    question: FormQuestion<'_, T>,
    cancel: &CancellationToken,
) -> Result<FormAnswer<T>, EngineError> {
    let FormQuestion { role, mut request, label, form, check, fallback } = question;
    request.form = Some(form);
    let (mut wanted, mut cost) = (Arc::new(request), MicroUsd::ZERO);
    for number in 1..=MAX_REQUESTS {
        let mut place = place.clone();
        let turn_cost = place.spent.turn_cost.saturating_add(cost);
        let spent = budget::read_spent_of_call(&place.services, &place.session, turn_cost, &[]).await?;
        place.spent = Spent { turn_tool_calls: place.spent.turn_tool_calls, ..spent };
        let HarnessAnswer { reply, ops, cost: more } =
            ask(&place, role, (Arc::clone(&wanted), label), cancel).await?;
        cost = cost.saturating_add(more);
        place.services.journal.commit_for(&place.session.hub, ops.into_relaxed()).await?;
        let reply = match reply {
            Ok(reply) => reply,
            Err(why) => {
                return Ok(FormAnswer {
                    value: fallback(),
                    origin: Origin::Fallback,
                    unasked: Some(why),
                    cost,
                });
            }
        };
        match read_structured(&reply.text, check) {
            Ok(value) => {
                return Ok(FormAnswer { value, origin: Origin::Model(number), unasked: None, cost });
            }
            Err(error) => wanted = Arc::new(once_more(&wanted, reply.text, &error)),
        }
    }
    Ok(FormAnswer { value: fallback(), origin: Origin::Fallback, unasked: None, cost })
}
