//! The chores of the engine: the jobs that it brings along.

use std::sync::Arc;
use std::time::Duration;

use crate::asks::tell;
use crate::config::EXPIRY_EVERY;
use crate::error::EngineError;
use crate::jobs::{Chore, Progress};
use crate::services::Services;
use crate::{erase, way_back};

/// The job that erases old payloads of the ledger.
pub(crate) const ERASE: &str = "ledger.erase";

/// Returns the chores of an engine.
pub(crate) fn engine_chores(services: &Arc<Services>) -> Vec<Chore> {
    vec![
        chore(services, "asks.expire", EXPIRY_EVERY, |services| async move {
            tell::expire_asks(&services).await.map(|()| Progress::Complete)
        }),
        chore(services, "undo.end", EXPIRY_EVERY, |services| async move {
            way_back::end_undos(&services, None).await.map(|()| Progress::Complete)
        }),
        chore(services, ERASE, erase::LOOK_EVERY, |services| async move {
            match erase::erase_old(&services).await? {
                0 => Ok(Progress::Complete),
                erased => {
                    tracing::info!(erased, "old payloads of the ledger were erased");
                    Ok(Progress::Partial)
                }
            }
        }),
        chore(services, "ledger.copy_heads", EXPIRY_EVERY, |services| async move {
            services.heads.copy_heads_aside().await.map(|()| Progress::Complete)
        }),
    ]
}

/// Makes a row of the table from an async function over the services.
fn chore<F>(
    services: &Arc<Services>,
    name: &'static str,
    interval: Duration,
    run: impl Fn(Arc<Services>) -> F + Send + Sync + 'static,
) -> Chore
where
    F: Future<Output = Result<Progress, EngineError>> + Send + 'static,
{
    let services = Arc::clone(services);
    Chore { name, interval, run: Box::new(move || Box::pin(run(Arc::clone(&services)))) }
}
