//! Tasks for one model, by which a person measures the models of the tiers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use writ_types::error::{Exit, Report, ToReport as _};
use writ_types::unit::{MicroUsd, Tokens};

use super::MAX_QUESTION_BYTES;
use crate::error::{EngineError, PilotError};
use crate::model::ask_sample;
use crate::services::Services;
use crate::session::QuestionTerms;
use crate::{opening, place};

/// A task for one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelTask {
    /// The model, as `provider/name`.
    pub model: String,
    /// The task.
    pub text: String,
    /// The most money; none: that of a session.
    pub max_cost: Option<MicroUsd>,
}

/// The answer of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskAnswer {
    /// Its text, or in words why there is none.
    pub text: Result<String, String>,
    /// The time that it took.
    pub took: Duration,
    /// Tokens that it has read and written.
    pub tokens: Tokens,
    /// The money that it has cost.
    pub cost: MicroUsd,
}

/// Asks, as [`PilotHands::ask_model`](super::PilotHands::ask_model) says.
pub(super) async fn ask_model(
    services: &Arc<Services>,
    project: &Path,
    task: ModelTask,
) -> Result<TaskAnswer, EngineError> {
    let bytes = task.text.len();
    if bytes > MAX_QUESTION_BYTES {
        let (what, most) = ("task of a model", MAX_QUESTION_BYTES);
        return Err(PilotError::TooLarge { what, bytes, most }.into());
    }
    let models = services.outside.models.get().ok_or(EngineError::NoModel)?;
    let route = models.routes().find_offered(&task.model).map_err(|error| {
        let Report { code, outside, hint, .. } = error.report();
        EngineError::Model(Box::new(Report::new(Exit::Usage, &code, outside).with_hint(hint)))
    })?;
    let unshowable = || EngineError::Project("its path has characters that cannot be shown".to_owned());
    let project = project.to_str().ok_or_else(unshowable)?;
    let terms = QuestionTerms { max_cost: task.max_cost };
    let session = opening::open_for_question(services, project, terms).await?;
    let place = place::outside_turn(services, session).await?;
    // A stopping engine waits for it as for a turn.
    let running = services.life.turns.token();
    let cancel = services.life.stop_now.child_token();
    let answer = ask_sample(&place, (models, &route), task.text, &cancel).await;
    drop(running);
    let answer = answer?;
    Ok(TaskAnswer {
        text: answer.text,
        took: answer.took,
        tokens: answer.usage.input.saturating_add(answer.usage.output),
        cost: answer.cost,
    })
}
