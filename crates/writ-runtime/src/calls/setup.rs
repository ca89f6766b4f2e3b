//! The first model of a home, chosen by its owner in the page.

use std::sync::Arc;
use std::time::Duration;

use writ_egress::deliver::{DeliverError, Endpoint};
use writ_models::ModelRole;
use writ_models::detect;
use writ_models::provider::Route;
use writ_types::api::model::{LocalModel, LocalModels, ModelChoice, ModelSetup};
use writ_types::error::{Exit, Report, ToReport as _};

use super::models::try_route;
use crate::error::EngineError;
use crate::services::Services;

/// The time within which a chosen server must answer to a request for its head. A server that first loads the model answers
/// that at once, and may take longer for the model's first words.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Lists the models that servers on this machine have.
pub(super) async fn list_local(services: &Services) -> Result<LocalModels, EngineError> {
    let found = detect::find_local_models(&services.outside.egress).await;
    let models = found.into_iter().filter_map(|found| {
        let (provider, model) = found.model.split_once('/')?;
        Some(LocalModel { provider: provider.to_owned(), model: model.to_owned(), port: found.local_port()? })
    });
    Ok(LocalModels { models: models.collect() })
}

/// Checks that the server of a route gives a sign of life. A server that accepts connections and is silent would otherwise be
/// waited for as long as for a model's answer.
async fn find_server(services: &Services, route: &Route) -> Result<(), Report> {
    // An address that is unusual in any other way is left to the trial.
    let Ok(at) = Endpoint::path_below(&route.provider.base_url, "/") else { return Ok(()) };
    match services.outside.egress.probe_endpoint(&at, ANSWERS_WITHIN).await {
        // Any answer will do: many servers know no such request.
        Ok(_) | Err(DeliverError::Request(_) | DeliverError::Credential) => Ok(()),
        Err(DeliverError::Way(error)) => Err(error.report()),
        Err(DeliverError::Timeout(limit)) => {
            let text = format!("the server {} has not answered within {} s", at.host(), limit.as_secs());
            Err(Report::new(Exit::Model, "models.silent", text).with_hint(
                "check the address and its port, and that the server is not stuck; nothing was written into config.toml",
            ))
        }
    }
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
    find_server(services, &route).await.map_err(refused)?;
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
