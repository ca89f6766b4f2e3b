//! Models, for their owner: what is configured, and whether one works.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use writ_models::catalogue::{Price, PricedModel};
use writ_models::provider::Route;
use writ_models::{ModelRole, Models};
use writ_types::api::model::{
    ConfiguredModel, ListedPrice, ModelList, ModelName, ModelState, PriceList, TokenPrice,
};
use writ_types::api::session::SessionName;
use writ_types::error::{Exit, Report, ToReport as _};
use writ_types::unit::Timestamp;

use super::sessions;
use crate::engine::Surface;
use crate::error::EngineError;
use crate::model::{Trial, try_model};
use crate::services::Services;
use crate::{opening, place};

fn configured_models(services: &Services) -> Result<&Models, EngineError> {
    services.outside.models.get().ok_or(EngineError::NoModel)
}

/// Lists the models of the configuration.
pub(super) fn list_models(services: &Services) -> Result<ModelList, EngineError> {
    let (models, now) = (configured_models(services)?, services.journal.clock.now());
    let mut seen = BTreeSet::new();
    let listed = models.routes().all().map(|(role, route)| {
        // The first route of a role is its model; the others are asked where that one cannot answer.
        let fallback = !seen.insert(role.map_or("default", ModelRole::as_str));
        describe_model(models, (role, route, fallback), now)
    });
    let mut listed: Vec<ConfiguredModel> = listed.collect();
    for (skill, chain) in models.routes().skills() {
        let known = describe_model(models, (None, chain.first(), false), now);
        listed.push(ConfiguredModel { role: format!("skill {skill}"), ..known });
    }
    Ok(ModelList { models: listed, found: models.detected_model().map(str::to_owned) })
}

fn describe_model(
    models: &Models,
    (role, route, fallback): (Option<ModelRole>, &Route, bool),
    now: Timestamp,
) -> ConfiguredModel {
    let info = models.model_info(route);
    let health = models.health_of(route);
    let price = models.price_over(route, now).map(to_price);
    ConfiguredModel {
        role: role.map_or("default", ModelRole::as_str).to_owned(),
        model: route.model_name(),
        host: route.provider.host.clone(),
        key: route.provider.key.as_ref().map(ToString::to_string),
        clearance: route.provider.clearance,
        known: info.known,
        window: models.context_room(route, now),
        tools: info.tools,
        priced: price.is_some(),
        fallback,
        tier: role.and_then(ModelRole::tier).map(|tier| tier.to_string()),
        effort: role.and_then(|role| models.routes().effort(role)),
        price,
        state: ModelState {
            failures: health.failures,
            open_until: health.open_until.filter(|until| now < *until),
            held_until: health.held_until.filter(|until| now < *until),
            limits: models.show_rate_limits_of(route),
        },
    }
}

const fn to_price(price: &Price) -> TokenPrice {
    let Price { input, output, cache_read, cache_write, .. } = *price;
    TokenPrice { input, output, cache_read, cache_write }
}

/// Lists the prices that count now: those of the owner, then the shipped table.
pub(super) fn list_prices(services: &Services) -> Result<PriceList, EngineError> {
    let (models, now) = (configured_models(services)?, services.journal.clock.now());
    let routes: Vec<&Route> = models.routes().named().collect();
    let listed = models.prices_at(now).into_iter().map(|PricedModel { provider, model, price, is_own }| {
        let is_named = |route: &&Route| {
            // A dated name has the price of its model.
            route.provider.name == provider
                && models.price_over(route, now) == Some(price)
                && route.model.starts_with(model)
        };
        ListedPrice {
            model: format!("{provider}/{model}"),
            price: to_price(price),
            since: Some(price.since).filter(|_| !is_own),
            source: price.source.clone(),
            own: is_own,
            configured: routes.iter().any(is_named),
        }
    });
    Ok(PriceList { prices: listed.collect() })
}

/// Tries a model.
pub(super) async fn test_model(services: &Arc<Services>, wanted: ModelName) -> Result<Value, EngineError> {
    let models = configured_models(services)?;
    let route = match &wanted.model {
        Some(name) => models.routes().find(name).map_err(|error| {
            let Report { code, outside, hint, .. } = error.report();
            EngineError::Model(Box::new(Report::new(Exit::Usage, &code, outside).with_hint(hint)))
        })?,
        None => models.routes().route(ModelRole::Executor).clone(),
    };
    super::to_json(&try_route(services, models, &route).await?)
}

/// Tries the model of a route in a session of its own, which is closed afterwards.
pub(super) async fn try_route(
    services: &Arc<Services>,
    models: &Models,
    route: &Route,
) -> Result<Trial, EngineError> {
    let session = opening::open_session(services, None, false, true, Surface::Local).await?;
    let id = session.id;
    let place = place::outside_turn(services, Arc::clone(&session)).await?;
    // A stopping engine waits for it as for a turn.
    let running = services.life.turns.token();
    let cancel = services.life.stop_now.child_token();
    let trial = try_model(place, models, route, &cancel).await;
    drop(running);
    sessions::close_session(services, SessionName { session: id }).await?;
    trial
}
