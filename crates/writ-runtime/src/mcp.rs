//! Servers of tools, as calls use them: started when needed, compared with what was pinned, and ended when idle.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio_util::sync::CancellationToken;
use writ_mcp::definition::{Definition, Drift};
use writ_types::entry::{Fact, GatePoint, GateVerdict};
use writ_types::error::{Exit, Report};

use crate::error::EngineError;
use crate::place::CallPlace;
use crate::servers::{Busy, Key, LiveServer, MAX_RUNNING_SERVERS, Server, Slot, hold};
use crate::services::Services;
pub(crate) mod elicit;
pub(crate) mod remote;
pub(crate) mod start;

/// Returns a running server of this session, and starts it if necessary. Its tools are listed again if they
/// have changed.
///
/// # Errors
///
/// If the ledger cannot be written. The inner error is the reason that there is no server.
pub(crate) async fn server(
    services: &Arc<Services>,
    place: &CallPlace,
    server: &Arc<Server>,
    cancel: &CancellationToken,
) -> Result<Result<Busy, Report>, EngineError> {
    let key = (place.session.id, server.name.clone());
    let Some(slot) = services.servers.slot(&key) else {
        let text = format!("{MAX_RUNNING_SERVERS} servers work at once already");
        return Ok(Err(Report::new(Exit::Budget, "mcp.too_many", text).with_hint("try again in a moment")));
    };
    // Held until the server runs: calls that come meanwhile wait for it, and start no second one.
    let mut held = slot.lock().await;
    let is_fit = |running: &Arc<LiveServer>| {
        !running.client.is_over() && !running.stop.is_cancelled() && running.spec == server.spec
    };
    let there = held.clone().filter(is_fit);
    let running = match there {
        Some(running) => running,
        None => {
            if let Some(unfit) = held.take() {
                unfit.stop.cancel();
            }
            match start::start_server(services, place, server, cancel).await {
                Ok(Ok((running, ended))) => {
                    *held = Some(Arc::clone(&running));
                    keep_server(services, key, Arc::clone(&slot), Arc::clone(&running), ended);
                    running
                }
                failed => {
                    services.servers.vacate(&key, &slot);
                    return failed.map(|failed| failed.map(|(running, _)| Busy(running)));
                }
            }
        }
    };
    let busy = Busy::new(Arc::clone(&running));
    if running.client.tools_changed() {
        match running.client.list_tools().await {
            Ok(listing) => *hold(&running.live) = listing.tools,
            Err(error) => {
                running.stop.cancel();
                return Ok(Err(writ_types::error::ToReport::report(&error)));
            }
        }
    }
    let live = hold(&running.live).clone();
    note_tools(services, place, server, &live).await?;
    Ok(Ok(busy))
}

/// Withdraws tools that differ from their pins, and records that in the ledger.
///
/// # Errors
///
/// If the ledger cannot be written.
pub(crate) async fn note_tools(
    services: &Services,
    place: &CallPlace,
    server: &Server,
    live: &[Definition],
) -> Result<(), EngineError> {
    for (tool, drift) in services.servers.note(server, live) {
        let tool = writ_types::visible::escape_line(&tool).into_owned();
        let reason = match drift {
            Drift::Changed => "its description or schema is not the one that was pinned",
            Drift::Gone | Drift::None | Drift::New => "its server does not offer it any more",
        };
        tracing::warn!(server = %server.name, tool, "a foreign tool is not offered: {reason}");
        let fact = Fact::Gated {
            point: GatePoint::Access,
            gate: format!("pin of {}/{tool}", server.name),
            verdict: GateVerdict::Block,
            reason: format!("{reason}; `writ mcp trust {}` shows it", server.name),
        };
        services.journal.append(place.session.id, place.at(), fact).await?;
    }
    Ok(())
}

/// Ends a server after an idle time without calls, when it is ordered to stop, and with the engine.
pub(crate) fn keep_server(
    services: &Arc<Services>,
    key: Key,
    slot: Slot,
    running: Arc<LiveServer>,
    ended: writ_sandbox::serve::ServerHandle,
) {
    let keeping = Arc::clone(services);
    services.servers.keepers.spawn(async move {
        let services = keeping;
        loop {
            // Read anew after each `moved`: a sleep that began while it was idle must not end a server that works.
            let idle = running.busy.load(Ordering::Acquire) == 0;
            tokio::select! {
                () = running.client.connect_over() => break,
                () = running.stop.cancelled() => break,
                () = services.life.stop_now.cancelled() => break,
                () = running.moved.notified() => {}
                () = tokio::time::sleep(services.servers.idle), if idle => break,
            }
        }
        // A caller that holds this server gets an error from the call that fails; the next call starts
        // another server.
        running.stop.cancel();
        services.servers.vacate(&key, &slot);
        if let Err(error) = ended.kill().await {
            tracing::warn!(server = %key.1, %error, "a server could not be ended properly");
        }
        tracing::debug!(server = %key.1, "a server has ended");
    });
}
