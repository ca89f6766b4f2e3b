//! The filtering proxy as the engine runs it: it judges each target, and writes each connection to a ledger.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ed25519_dalek::SigningKey;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use writ_egress::connect::{Later, SystemResolver};
use writ_egress::gatekeeper::{Gatekeeper, NotAsked, NotRecorded};
use writ_egress::proxy::{Proxy, ProxyConfig};
use writ_inspect::egress::host::Target;
use writ_inspect::egress::{EgressScope, Pin};
use writ_store::batch::{Batch, Op};
use writ_store::config::StoreConfig;
use writ_store::store::Store;
use writ_types::entry::{ConnectionRecord, Entry, Fact, MAX_CONNECTIONS};
use writ_types::id::{AskId, SessionId, TurnId};
use writ_types::unit::Timestamp;

/// The time at which everything here happens.
const NOW: Timestamp = Timestamp::from_millis(1_750_000_000_000);
/// When it ends, if nobody ends it: longer than any measurement.
const LIFE: Duration = Duration::from_secs(15 * 60);

/// One host may be reached; every connection becomes part of an entry.
#[derive(Debug)]
struct Keeper {
    scope: Arc<EgressScope>,
    store: Store,
}

/// Serves the listener that is standard input, until the process is ended. The first line of output is what a client
/// of that host says first in a tunnel: `{"hello": […]}`.
pub(crate) fn run(folder: &Path, host: &str, port: u16) -> Result<()> {
    let listener = std::io::stdin().as_fd().try_clone_to_owned()?;
    let store = Store::open(
        &StoreConfig::new(folder.join("data/writ.db")),
        Arc::new(SigningKey::from_bytes(&[3; 32])),
    )?;
    let pin = Pin { host: host.parse()?, address: IpAddr::V4(Ipv4Addr::LOCALHOST) };
    let scope = EgressScope {
        allowed: vec![format!("{host}:{port}").parse()?],
        pins: vec![pin],
        ..EgressScope::default()
    };
    let keeper = Arc::new(Keeper { scope: Arc::new(scope), store });
    // How many in a minute is what is measured.
    let config =
        ProxyConfig { host_per_minute: u32::MAX, tool_per_minute: u32::MAX, ..ProxyConfig::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let proxy = Proxy::new(config, Arc::new(SystemResolver));
        let stop = CancellationToken::new();
        let life = stop.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LIFE).await;
            life.cancel();
        });
        println!("{}", json!({ "hello": hello(host)? }));
        proxy.serve(listener, keeper, "shell_exec", stop).await?;
        Ok(())
    })
}

/// The first message of a TLS client that wants to talk to a host.
fn hello(host: &str) -> Result<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), ServerName::try_from(host.to_owned())?)?;
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).context("a hello")?;
    Ok(bytes)
}

impl Gatekeeper for Keeper {
    fn current_scope(&self) -> Later<'_, Arc<EgressScope>> {
        // The engine puts it together for each connection.
        Box::pin(async { Arc::new(EgressScope::clone(&self.scope)) })
    }

    fn ask_person<'a>(&'a self, target: &'a Target) -> Later<'a, Result<AskId, NotAsked>> {
        Box::pin(async move { Err(NotAsked(format!("nobody knows {}", target.host))) })
    }

    fn store_records<'a>(&'a self, batch: Vec<ConnectionRecord>) -> Later<'a, Result<(), NotRecorded>> {
        Box::pin(async move {
            let entry = |some: &[ConnectionRecord]| Entry {
                at: NOW,
                session: Some(SessionId::from_parts(NOW, 1)),
                turn: Some(TurnId::from_parts(NOW, 1)),
                turn_number: 1,
                fact: Fact::Connected { connections: some.to_vec() },
            };
            let entries = batch.chunks(MAX_CONNECTIONS).map(|some| Op::Append(Box::new(entry(some))));
            let kept = self.store.commit(Batch::relaxed(entries.collect())).await;
            kept.map(|_| ()).map_err(|error| NotRecorded(error.to_string()))
        })
    }
}
