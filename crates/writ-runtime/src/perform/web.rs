//! What leaves the machine: programs behind the proxy, fetches, and hosts that a session is granted.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use writ_egress::fetch::FetchError;
use writ_egress::gatekeeper::Gatekeeper;
use writ_egress::proxy::ProxyError;
use writ_policy::permit::Permit;
use writ_sandbox::exec::Listener;
use writ_tools::outcome::PerformedOutcome;
use writ_types::action::{Connect, Fetch};
use writ_types::error::{Exit, Report, ToReport as _};

use super::opened;
use crate::act::Place;
use crate::error::EngineError;
use crate::reach::Gate;

/// The most bytes of an answer that are kept: what fits a context many times over.
const BODY_MAX: u64 = 1024 * 1024;

/// Runs a program with a way out to `hosts`, and what else its session may reach. When it has ended, so have its
/// connections, and all of them are in the ledger.
///
/// # Errors
///
/// If connections could not be written down: then nothing more passed.
pub(super) async fn beside_proxy<T, F: Future<Output = T>>(
    place: &Place,
    hosts: &[String],
    tool: &str,
    run: impl FnOnce(Option<mpsc::Sender<Listener>>) -> F,
) -> Result<T, EngineError> {
    let (sender, mut listeners) = mpsc::channel::<Listener>(1);
    let stop = CancellationToken::new();
    let gate: Arc<dyn Gatekeeper> = Arc::new(Gate::new(place.clone(), hosts));
    let proxy = place.core.proxy.clone();
    let serving = async {
        match listeners.recv().await {
            Some(listener) => proxy.serve(listener.into(), gate, tool, stop.clone()).await,
            // The program was not started.
            None => Ok(()),
        }
    };
    let running = async {
        let done = run(Some(sender)).await;
        stop.cancel();
        done
    };
    let (served, done) = tokio::join!(serving, running);
    match served {
        Ok(()) => Ok(done),
        Err(ProxyError::Listener(why)) => {
            // The program ran without a network and has said so itself.
            tracing::warn!(%why, "a sandbox's way out could not be served");
            Ok(done)
        }
        Err(error @ ProxyError::NotRecorded(_)) => Err(EngineError::Unwritable(error.to_string())),
    }
}

/// Fetches a URL.
///
/// # Errors
///
/// If the connections could not be written down.
pub(super) async fn fetch(
    place: &Place,
    permit: Permit,
    fetch: &Fetch,
) -> Result<PerformedOutcome, EngineError> {
    if fetch.save_to.is_some() {
        opened(place, permit)?;
        let text = "answers cannot be saved to files yet".to_owned();
        return Ok(PerformedOutcome::Failed { report: Report::new(Exit::Usage, "fetch.save_to", text) });
    }
    let gate = Gate::new(place.clone(), &[]);
    match place.core.egress.fetch(permit, place.core.clock.now(), BODY_MAX, &gate).await {
        Ok(fetched) => {
            let media = fetched.headers.iter().find(|(name, _)| name == "content-type");
            Ok(PerformedOutcome::Fetched {
                status: fetched.status,
                url: fetched.url,
                media: media.map(|(_, value)| value.clone()).unwrap_or_default(),
                body: fetched.body,
                truncated: fetched.truncated,
            })
        }
        Err(FetchError::NotRecorded(why)) => Err(EngineError::Unwritable(why.to_string())),
        Err(error) => Ok(PerformedOutcome::Failed { report: error.report() }),
    }
}

/// Grants the session the host that a person has approved.
///
/// # Errors
///
/// If the store cannot be written.
pub(super) async fn connect(
    place: &Place,
    permit: Permit,
    connect: &Connect,
) -> Result<PerformedOutcome, EngineError> {
    opened(place, permit)?;
    match place.core.grant_host(&place.session, connect).await? {
        Ok(()) => Ok(PerformedOutcome::Reachable { host: connect.host.clone(), port: connect.port }),
        Err(why) => Ok(PerformedOutcome::Failed { report: Report::new(Exit::Usage, "connect.host", why) }),
    }
}
