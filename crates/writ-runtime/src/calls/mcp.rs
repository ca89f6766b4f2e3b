//! Servers of tools, for their owner: trying one before it is named, and reading the files anew.

use std::sync::Arc;

use writ_mcp::definition::Pins;
use writ_tools::foreign::MAX_TOLD_BYTES;
use writ_tools::registry::EmptyMeans;
use writ_types::digest::Digest;
use writ_types::entry::Fact;

use super::MAX_LISTED_BYTES;
use crate::engine::Surface;
use crate::error::EngineError;
use crate::mcp::start;
use crate::methods::params::{ProbeRequest, ProbedServer, ReloadRequest, ReloadedServers, ServerPins};
use crate::servers::Server;
use crate::services::Services;
use crate::{opening, place};

/// The most remarks about what is not offered.
const MAX_REMARKS: usize = 1_000;

/// Starts a server in a session of its own, lists its tools as it describes them, and ends it.
pub(super) async fn probe_server(
    services: &Arc<Services>,
    wanted: ProbeRequest,
) -> Result<ProbedServer, EngineError> {
    let wrong = |why: String| EngineError::Params { method: "mcp.probe".to_owned(), why };
    wanted.spec.check_settings().map_err(|error| wrong(error.to_string()))?;
    let session = opening::open_session(services, None, false, false, Surface::Local).await?;
    let place = place::outside_turn(services, session).await?;
    // A stopping engine waits for it as for a turn.
    let _running = services.life.turns.token();
    let server = Server { name: wanted.name, spec: wanted.spec, pins: Pins::default() };
    let listing = start::try_server(services, &place, &server)
        .await?
        .map_err(|report| EngineError::Server(Box::new(report)))?;
    let listed = serde_json::to_string(&listing.tools).map_err(|error| wrong(error.to_string()))?;
    if listed.len() > MAX_LISTED_BYTES {
        return Err(wrong(format!("its tools take more than {MAX_LISTED_BYTES} bytes to describe")));
    }
    Ok(ProbedServer { tools: listing.tools, left_out: listing.left_out })
}

/// Reads the owner's files again, and records the servers in force if they have changed. The answer names what is not offered.
pub(super) async fn reload_servers(
    services: &Services,
    wanted: &ReloadRequest,
) -> Result<ReloadedServers, EngineError> {
    let failed = |report| EngineError::Server(Box::new(report));
    let is_changed = services.servers.reload().map_err(failed)?;
    if let Some(name) = &wanted.trusted {
        services.servers.trust(name).map_err(failed)?;
    }
    let mut listed = Vec::new();
    let mut summary = Vec::new();
    for server in services.servers.all() {
        let pins = server.pins.to_text().map(|text| Digest::of_bytes(text.as_bytes()));
        let pins = pins.map_err(|error| EngineError::Machine(error.to_string()))?;
        summary.push(format!("{} ({} tools, pins {pins})", server.name, server.pins.tools.len()));
        listed.push(ServerPins { name: server.name.clone(), tools: server.pins.tools.len(), pins });
    }
    let summary = if summary.is_empty() {
        "no servers of tools".to_owned()
    } else {
        format!("servers of tools: {}", summary.join(", "))
    };
    if is_changed {
        let fact = Fact::PolicyChanged { policy: services.rules.in_force.digest(), summary };
        services
            .journal
            .store
            .commit(writ_store::batch::Batch::synced(vec![services.journal.own_entry(fact)]))
            .await?;
    }
    Ok(ReloadedServers { servers: listed, left_out: left_out(services) })
}

/// Lists the trusted tools that models are not shown, each with the reason.
fn left_out(services: &Services) -> Vec<String> {
    let registry = services.servers.registry();
    let allow = registry.allow_list(&services.config.tools, EmptyMeans::All);
    let no_room = allow.map(|allow| registry.without_room(&allow).into_iter().map(str::to_owned).collect());
    let no_room: Vec<String> = no_room.unwrap_or_default();
    let unusable = services.servers.left_out();
    let unusable = unusable.into_iter().map(|one| format!("{}: {}", one.server, one.why));
    let no_room = no_room.into_iter().map(|name| {
        format!("'{name}' is left out: models get at most {MAX_TOLD_BYTES} bytes about foreign tools; allow fewer of them")
    });
    let unlisted = registry.unlisted().iter().map(ToString::to_string);
    unusable.chain(unlisted).chain(no_room).take(MAX_REMARKS).collect()
}
