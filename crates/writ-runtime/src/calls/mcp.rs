//! Servers of tools, for their owner: trying one before it is named, and reading the files anew.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use writ_mcp::config::{ServerName, ServerSpec};
use writ_mcp::definition::Pins;
use writ_types::digest::Digest;
use writ_types::entry::Fact;

use super::MAX_LISTED_BYTES;
use crate::core::Core;
use crate::engine::Surface;
use crate::error::EngineError;
use crate::servers::Server;

/// A server that is to be tried.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Probe {
    name: ServerName,
    spec: ServerSpec,
}

/// Starts a server in a session of its own, lists its tools as it describes them, and ends it.
pub(super) async fn probe(core: &Arc<Core>, wanted: Probe) -> Result<Value, EngineError> {
    let wrong = |why: String| EngineError::Params { method: "mcp.probe".to_owned(), why };
    wanted.spec.check().map_err(|error| wrong(error.to_string()))?;
    let session = core.open_session(None, false, false, Surface::Local).await?;
    let place = core.outside_turn(session).await?;
    // A stopping engine waits for it as for a turn.
    let _running = core.turns.token();
    let server = Server { name: wanted.name, spec: wanted.spec, pins: Pins::default() };
    let tools =
        core.try_server(&place, &server).await?.map_err(|report| EngineError::Server(Box::new(report)))?;
    let listed = serde_json::to_value(&tools).map_err(|error| wrong(error.to_string()))?;
    if listed.to_string().len() > MAX_LISTED_BYTES {
        return Err(wrong(format!("its tools take more than {MAX_LISTED_BYTES} bytes to describe")));
    }
    Ok(json!({ "tools": listed }))
}

/// Reads the owner's files anew, and notes what is in force.
pub(super) async fn reload(core: &Core) -> Result<Value, EngineError> {
    core.servers.reload().map_err(|report| EngineError::Server(Box::new(report)))?;
    let mut listed = Vec::new();
    let mut summary = Vec::new();
    for server in core.servers.all() {
        let pins = server.pins.text().map(|text| Digest::of(text.as_bytes()));
        let pins = pins.map_err(|error| EngineError::Machine(error.to_string()))?;
        summary.push(format!("{} ({} tools, pins {pins})", server.name, server.pins.tools.len()));
        listed.push(json!({ "name": server.name, "tools": server.pins.tools.len(), "pins": pins }));
    }
    let summary = if summary.is_empty() {
        "no servers of tools".to_owned()
    } else {
        format!("servers of tools: {}", summary.join(", "))
    };
    let fact = Fact::PolicyChanged { policy: core.rules.digest(), summary };
    core.store.commit(writ_store::batch::Batch::synced(vec![core.own_entry(fact)])).await?;
    Ok(json!({ "servers": listed }))
}
