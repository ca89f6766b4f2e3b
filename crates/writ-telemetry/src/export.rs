//! Delivering spans in batches. A delivery is repeated where that may help, and never delays a turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use secrecy::SecretString;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use writ_egress::Egress;
use writ_egress::deliver::{DeliveryReceipt, Endpoint};

use crate::collect::Collected;
use crate::otlp::{self, TraceSource};
use crate::span::TraceSpan;

/// The most spans of one request: with the longest attributes it stays below a megabyte.
pub const MAX_BATCH: usize = 256;
/// The time that the first span of a batch waits for others.
pub const BATCH_WAIT: Duration = Duration::from_secs(1);
/// The time limit of one delivery.
pub const DELIVERY_LIMIT: Duration = Duration::from_secs(10);
/// The most tries for one batch.
pub const MAX_TRIES: u32 = 4;
/// The wait before the second try; it doubles with each.
pub const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The time that the engine waits for its last spans before it ends.
pub const END_LIMIT: Duration = Duration::from_secs(3);

/// Delivers spans until the engine ends.
#[derive(Debug)]
pub struct Exporter {
    /// The way out.
    pub egress: Arc<Egress>,
    /// The collector's endpoint.
    pub endpoint: Endpoint,
    /// The bearer token that the endpoint expects, if any.
    pub bearer: Option<SecretString>,
    /// The engine's description of itself, which each request names as the sender of its spans.
    pub resource: TraceSource,
}

/// The result of the last delivery; the log mentions only changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeliveryHealth {
    Good,
    Bad,
}

impl Exporter {
    /// Delivers what is collected until `stop`, then what is left, as far as that can be done in [`END_LIMIT`].
    pub async fn run_export(self, mut collected: Collected, stop: CancellationToken) {
        let mut health = DeliveryHealth::Good;
        let mut reported = 0;
        loop {
            let batch = next_batch(&mut collected, &stop).await;
            if batch.is_empty() {
                return;
            }
            let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
            let delivered = self.deliver_batch(&batch, &stop).await;
            if delivered.is_err() {
                collected.dropped.fetch_add(count, Ordering::Relaxed);
            }
            let dropped = collected.dropped.load(Ordering::Relaxed);
            // Only changes are logged: a collector that is down for a day must not fill the log.
            match (&delivered, health) {
                (Err(why), DeliveryHealth::Good) => {
                    tracing::warn!(why, dropped, "traces cannot be delivered; turns continue without them");
                    health = DeliveryHealth::Bad;
                }
                (Ok(()), DeliveryHealth::Bad) => {
                    tracing::info!(dropped, "traces are delivered again");
                    health = DeliveryHealth::Good;
                }
                (Ok(()), DeliveryHealth::Good) if dropped > reported => {
                    tracing::warn!(dropped, "traces come faster than they can be delivered");
                }
                (Ok(()), DeliveryHealth::Good) | (Err(_), DeliveryHealth::Bad) => {}
            }
            reported = dropped;
            if stop.is_cancelled() && delivered.is_err() {
                return;
            }
        }
    }

    async fn deliver_batch(&self, batch: &[TraceSpan], stop: &CancellationToken) -> Result<(), String> {
        let body = otlp::build_request(&self.resource, batch).map_err(|error| error.to_string())?;
        let mut wait = FIRST_WAIT;
        let mut tries = 1;
        loop {
            // At the end there is less time: the process waits for this.
            let limit = if stop.is_cancelled() { END_LIMIT } else { DELIVERY_LIMIT };
            let (endpoint, bearer) = (&self.endpoint, self.bearer.as_ref());
            let posted =
                self.egress.post_report(endpoint, otlp::CONTENT_TYPE, bearer, body.clone(), limit).await;
            let why = match posted {
                Ok(DeliveryReceipt { status: 200..=299, .. }) => return Ok(()),
                Ok(DeliveryReceipt { status: status @ (429 | 502 | 503 | 504), retry_after }) => {
                    // A server that names a time is not asked before it.
                    wait = retry_after.unwrap_or(wait);
                    format!("the collector answered {status}")
                }
                // Any other status would be answered again for this batch.
                Ok(DeliveryReceipt { status, .. }) => return Err(format!("the collector answered {status}")),
                Err(error) => error.to_string(),
            };
            if tries >= MAX_TRIES || stop.is_cancelled() {
                return Err(why);
            }
            tokio::select! {
                () = sleep(wait) => {}
                () = stop.cancelled() => {}
            }
            tries += 1;
            wait = wait.saturating_mul(2);
        }
    }
}

/// Waits for the next batch of spans. An empty batch: the engine has ended.
async fn next_batch(collected: &mut Collected, stop: &CancellationToken) -> Vec<TraceSpan> {
    let mut batch = Vec::new();
    let first = tokio::select! {
        // Biased: spans that are there are taken before the stop is noticed.
        biased;
        first = collected.spans.recv() => first,
        () = stop.cancelled() => None,
    };
    batch.extend(first);
    let until = Instant::now() + BATCH_WAIT;
    while !batch.is_empty() && batch.len() < MAX_BATCH {
        let more = tokio::select! {
            biased;
            more = timeout_at(until, collected.spans.recv()) => more.ok().flatten(),
            () = stop.cancelled() => None,
        };
        let Some(more) = more else { break };
        batch.push(more);
    }
    batch
}
