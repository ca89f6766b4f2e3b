//! The first model of a home, chosen by its owner in the page.

use std::sync::Arc;

use writ_models::ModelRole;
use writ_models::detect;
use writ_types::api::model::{LocalModel, LocalModels, ModelChoice, ModelSetup};
use writ_types::error::{Exit, Report};

use super::models::try_route;
use crate::error::EngineError;
use crate::services::Services;

/// Lists the models that servers on this machine have.
pub(super) async fn list_local(services: &Services) -> Result<LocalModels, EngineError> {
    let found = detect::find_local_models(&services.outside.egress).await;
    let models = found.into_iter().filter_map(|found| {
        let (provider, model) = found.model.split_once('/')?;
        Some(LocalModel { provider: provider.to_owned(), model: model.to_owned(), port: found.local_port()? })
    });
    Ok(LocalModels { models: models.collect() })
}

/// Tries a choice, and takes it into use if it answers.
///
/// # Errors
///
/// If there is a model, the choice cannot be used, or it cannot be written into the configuration.
pub(super) async fn set_up_model(
    services: &Arc<Services>,
    choice: ModelChoice,
) -> Result<ModelSetup, EngineError> {
    let refused = |report: Report| EngineError::Model(Box::new(report));
    // One choice at a time: a second one finds the model of the first.
    let guard = services.outside.models.begin_choice().await;
    let source = guard.as_ref().filter(|_| services.outside.models.get().is_none()).ok_or_else(|| {
        // A page that was opened by another must not lead conversations to another server.
        let text = "a model is configured; only the first one is chosen here";
        refused(
            Report::new(Exit::Denied, "models.configured", text)
                .with_hint("change it in config.toml, and start Writ again"),
        )
    })?;
    let models = source.prepare(&choice).map_err(refused)?;
    let route = models.routes().route(ModelRole::Executor).clone();
    let trial = try_route(services, &models, &route).await?;
    let stored = trial.has_answered();
    if stored {
        let source = Arc::clone(source);
        let written = tokio::task::spawn_blocking(move || source.store(&choice)).await;
        written.map_err(|_| EngineError::Stopping)?.map_err(refused)?;
        services.outside.models.fill(models);
    }
    Ok(ModelSetup { stored, trial: super::to_json(&trial)? })
}
