//! Models, for their owner: what is configured, and whether one works.

use std::sync::Arc;

use serde_json::Value;
use writ_models::{ModelRole, Models};
use writ_types::api::model::{ConfiguredModel, ModelList, ModelName};
use writ_types::api::session::SessionName;
use writ_types::error::{Exit, Report, ToReport as _};

use super::sessions;
use crate::core::Core;
use crate::engine::Surface;
use crate::error::EngineError;
use crate::model::try_model;

fn models(core: &Core) -> Result<&Models, EngineError> {
    core.models.as_ref().ok_or(EngineError::NoModel)
}

/// Lists the models of the configuration.
pub(super) fn list(core: &Core) -> Result<ModelList, EngineError> {
    let (models, now) = (models(core)?, core.clock.now());
    let listed = models
        .routes()
        .all()
        .map(|(role, route)| {
            let info = models.info(route);
            ConfiguredModel {
                role: role.map_or("default", ModelRole::as_str).to_owned(),
                model: format!("{}/{}", route.provider.name, route.model),
                host: route.provider.host.clone(),
                key: route.provider.key.as_ref().map(ToString::to_string),
                clearance: route.provider.clearance,
                known: info.known,
                window: models.room(route, now),
                tools: info.tools,
                priced: models.cost_over(route, &Default::default(), now).is_some(),
            }
        })
        .collect();
    Ok(ModelList { models: listed, found: models.found().map(str::to_owned) })
}

/// Tries a model in a session of its own, which is closed afterwards.
pub(super) async fn test(core: &Arc<Core>, wanted: ModelName) -> Result<Value, EngineError> {
    let models = models(core)?;
    let route = match &wanted.model {
        Some(name) => models.routes().find(name).map_err(|error| {
            let Report { code, outside, hint, .. } = error.report();
            EngineError::Model(Box::new(Report::new(Exit::Usage, &code, outside).hint(hint)))
        })?,
        None => models.routes().route(ModelRole::Executor).clone(),
    };
    let session = core.open_session(None, false, true, Surface::Local).await?;
    let id = session.id;
    let place = core.outside_turn(Arc::clone(&session)).await?;
    // A stopping engine waits for it as for a turn.
    let running = core.turns.token();
    let cancel = core.stop_now.child_token();
    let trial = try_model(place, models, &route, &cancel).await;
    drop(running);
    sessions::close(core, SessionName { session: id }).await?;
    super::value(&trial?)
}
