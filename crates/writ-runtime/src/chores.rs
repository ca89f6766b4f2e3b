//! The chores of the engine: the jobs that it brings along.

use std::sync::Arc;
use std::time::Duration;

use writ_store::batch::{Batch, Op};
use writ_store::outbox::OutboxOp;
use writ_types::calendar::Recurrence;

use crate::asks::tell;
use crate::config::EXPIRY_EVERY;
use crate::deliveries::deliver_messages;
use crate::error::EngineError;
use crate::jobs::{Chore, JobRun, JobTimes, Progress};
use crate::outbox::{DELIVER_EVERY, delivery_job};
use crate::recall::configured_embedder;
use crate::services::Services;
use crate::{digest, erase, noticing, tool_review, upkeep, way_back};

/// The job that erases old payloads of the ledger.
pub(crate) const ERASE: &str = "ledger.erase";

/// The job that consolidates memories.
pub(crate) const CONSOLIDATE: &str = "memory.consolidate";

/// The job that gives vectors to memories.
pub(crate) const EMBED: &str = "memory.embed";

/// The job that distils the memories into the owner's profile.
pub(crate) const DIGEST: &str = "memory.digest";

/// The job that reviews the tools of other programs.
pub(crate) const TOOL_REVIEW: &str = "tools.review";

/// The interval between looks at the file of the settings.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The interval at which old messages of the outbox are deleted.
const PRUNE_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest time that a message stays in the outbox, delivered or not.
const MESSAGE_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Returns the chores of an engine.
pub(crate) fn engine_chores(services: &Arc<Services>) -> Vec<Chore> {
    let mut chores = own_chores(services);
    chores.extend(services.journal.outbox.channels().iter().map(|channel| {
        let (name, channel) = (delivery_job(channel.name()), Arc::clone(channel));
        let delivery = chore(services, &name, DELIVER_EVERY, move |services| {
            let channel = Arc::clone(&channel);
            async move { deliver_messages(&services.journal, channel.as_ref()).await }
        });
        Chore { calls: Some(Arc::clone(&services.journal.outbox.appended)), ..delivery }
    }));
    chores
}

fn own_chores(services: &Arc<Services>) -> Vec<Chore> {
    let minutes = u64::from(services.memories.settings.config.consolidate_minutes);
    let mut chores = vec![
        chore(services, CONSOLIDATE, Duration::from_secs(minutes * 60), |services| async move {
            upkeep::consolidate(&services).await?;
            noticing::notice_preferences(&services).await
        }),
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
        chore(services, "sessions.erase", erase::LOOK_EVERY, |services| async move {
            let erased = erase::erase_deleted(&services).await?;
            if erased > 0 {
                tracing::info!(erased, "the content of sessions was erased that were deleted long ago");
            }
            Ok(Progress::Complete)
        }),
        chore(services, "ledger.copy_heads", EXPIRY_EVERY, |services| async move {
            services.heads.copy_heads_aside().await.map(|()| Progress::Complete)
        }),
        chore(services, "outbox.prune", PRUNE_EVERY, |services| async move {
            let before = services.journal.clock.now().minus_duration(MESSAGE_AGE);
            let prune = Op::Outbox(OutboxOp::Prune { before });
            services.journal.store.commit(Batch::relaxed(vec![prune])).await?;
            Ok(Progress::Complete)
        }),
    ];
    // Also where it is off: its row then names no next run.
    let digest = services.memories.settings.config.digest;
    chores.push(calendar_chore(services, DIGEST, digest, |services| async move {
        digest::run_digest(&services).await
    }));
    let review = services.config.tool_review;
    chores.push(calendar_chore(services, TOOL_REVIEW, review, |services| async move {
        tool_review::run_review(&services).await
    }));
    // Without an embedder there is nothing to do.
    if configured_embedder(services).is_some() {
        let embed = chore(services, EMBED, upkeep::EMBED_EVERY, |services| async move {
            upkeep::embed_new(&services).await
        });
        chores.push(Chore { calls: Some(Arc::clone(&services.memories.added)), ..embed });
    }
    chores
}

/// Makes a row of the table that runs at times of the owner's calendar.
fn calendar_chore<F>(
    services: &Arc<Services>,
    name: &str,
    recurrence: Recurrence,
    run: impl Fn(Arc<Services>) -> F + Send + Sync + 'static,
) -> Chore
where
    F: Future<Output = Result<Progress, EngineError>> + Send + 'static,
{
    let pace = JobTimes::Calendar(recurrence, services.config.time_zone.clone());
    Chore { pace, ..chore(services, name, Duration::ZERO, run) }
}

/// Makes a row of the table from an async function over the services.
fn chore<F>(
    services: &Arc<Services>,
    name: &str,
    interval: Duration,
    run: impl Fn(Arc<Services>) -> F + Send + Sync + 'static,
) -> Chore
where
    F: Future<Output = Result<Progress, EngineError>> + Send + 'static,
{
    let services = Arc::clone(services);
    let name = name.to_owned();
    let run = Box::new(move || -> JobRun { Box::pin(run(Arc::clone(&services))) });
    Chore { name, pace: JobTimes::Every(interval), calls: None, run }
}

/// Looks at the settings until the engine drains.
pub(crate) async fn watch_settings(services: Arc<Services>) {
    let draining = services.life.draining.clone();
    loop {
        tokio::select! {
            () = draining.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let own = Arc::clone(&services);
        match tokio::task::spawn_blocking(move || own.outside.settings.look()).await {
            Ok(false) => {}
            Ok(true) => {
                if let Err(report) = services.outside.models.fill_from_config().await {
                    tracing::error!(error = report.inside, "the configured model cannot be used");
                    services.outside.settings.note_fault(report.outside);
                }
            }
            Err(_) => tracing::error!("the settings could not be read anew"),
        }
    }
}
