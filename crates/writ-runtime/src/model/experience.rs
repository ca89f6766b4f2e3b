//! The experience with models: stored with what it came from, and read at a start, so that a route that failed three times
//! still comes last after a restart.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use writ_models::Models;
use writ_models::failover::StoredHealth;
use writ_store::batch::Op;
use writ_store::reads::SettingReads as _;

use crate::error::EngineError;
use crate::services::Services;

/// The setting that holds it.
const SETTING: &str = "model_routes";

/// The setting that holds how far estimates of tokens are off, by model.
const CORRECTIONS: &str = "model_corrections";

/// Returns the operation that stores how far estimates are off.
pub(super) fn corrections(known: BTreeMap<String, u32>) -> Op {
    Op::Set { key: CORRECTIONS.to_owned(), value: serde_json::json!(known) }
}

/// Returns the operation that stores the experience, if it has changed since the last one.
pub(super) fn store_changes(services: &Services, models: &Models) -> Option<Op> {
    let stored = &services.life.experience.stored;
    let (changes, routes) = models.changed_experience(stored.load(Ordering::Relaxed))?;
    // Two calls may both store the same state, which does no harm.
    stored.store(changes, Ordering::Relaxed);
    let value = serde_json::to_value(routes).ok()?;
    Some(Op::Set { key: SETTING.to_owned(), value })
}

/// Reads it. A value of another form is from another version: then it is learned anew.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn restore_experience(services: &Services) -> Result<(), EngineError> {
    let Some(models) = services.outside.models.get() else { return Ok(()) };
    if let Some(stored) = services.journal.store.setting(CORRECTIONS).await? {
        services.life.experience.estimates.restore(serde_json::from_value(stored).unwrap_or_default());
    }
    let Some(stored) = services.journal.store.setting(SETTING).await? else { return Ok(()) };
    match serde_json::from_value::<Vec<StoredHealth>>(stored) {
        Ok(stored) => models.restore_experience(stored, services.journal.clock.now()),
        Err(error) => {
            tracing::warn!(%error, "the experience with models is of another form: it is learned anew")
        }
    }
    Ok(())
}
