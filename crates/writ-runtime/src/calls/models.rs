//! Models, for their owner: what is configured, and whether one works.

use std::sync::Arc;

use serde_json::Value;
use writ_models::{ModelRole, Models};
use writ_types::api::model::{ConfiguredModel, ModelList, ModelName};
use writ_types::api::session::SessionName;
use writ_types::error::{Exit, Report, ToReport as _};

use super::sessions;
use crate::engine::Surface;
use crate::error::EngineError;
use crate::model::try_model;
use crate::services::Services;
use crate::{opening, place};

fn configured_models(services: &Services) -> Result<&Models, EngineError> {
    services.outside.models.as_ref().ok_or(EngineError::NoModel)
}

/// Lists the models of the configuration.
pub(super) fn list_models(services: &Services) -> Result<ModelList, EngineError> {
    let (models, now) = (configured_models(services)?, services.journal.clock.now());
    let listed = models
        .routes()
        .all()
        .map(|(role, route)| {
            let info = models.model_info(route);
            ConfiguredModel {
                role: role.map_or("default", ModelRole::as_str).to_owned(),
                model: format!("{}/{}", route.provider.name, route.model),
                host: route.provider.host.clone(),
                key: route.provider.key.as_ref().map(ToString::to_string),
                clearance: route.provider.clearance,
                known: info.known,
                window: models.context_room(route, now),
                tools: info.tools,
                priced: models.cost_over(route, &Default::default(), now).is_some(),
            }
        })
        .collect();
    Ok(ModelList { models: listed, found: models.detected_model().map(str::to_owned) })
}

/// Tries a model in a session of its own, which is closed afterwards.
pub(super) async fn test_model(services: &Arc<Services>, wanted: ModelName) -> Result<Value, EngineError> {
    let models = configured_models(services)?;
    let route = match &wanted.model {
        Some(name) => models.routes().find(name).map_err(|error| {
            let Report { code, outside, hint, .. } = error.report();
            EngineError::Model(Box::new(Report::new(Exit::Usage, &code, outside).with_hint(hint)))
        })?,
        None => models.routes().route(ModelRole::Executor).clone(),
    };
    let session = opening::open_session(services, None, false, true, Surface::Local).await?;
    let id = session.id;
    let place = place::outside_turn(services, Arc::clone(&session)).await?;
    // A stopping engine waits for it as for a turn.
    let running = services.life.turns.token();
    let cancel = services.life.stop_now.child_token();
    let trial = try_model(place, models, &route, &cancel).await;
    drop(running);
    sessions::close_session(services, SessionName { session: id }).await?;
    super::to_json(&trial?)
}
