//! The egress proxy against squid: the same requests, by the same clients, to the same server on loopback.
//!
//! Each proxy is a process of its own; clients and the server of pages are threads of this one. Ours writes every
//! connection to a ledger, as in the engine; squid writes its access log and caches nothing.

mod load;

mod page;

mod squid;

use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::Bench;
use super::row::{Percentile, Row};
use super::stats::{Sample, shown};
use load::{Kind, Route};
use page::Pages;
use squid::Squid;
use task_process::{Program, Running};

/// The most that the proxy may add to one request (design 5).
const ADDED: Duration = Duration::from_millis(1);
/// Requests of one client for each round, of each kind.
const ALONE: u32 = 5;
/// Requests of all clients together for each round, of each kind, in each pass.
const TOGETHER: u32 = 20;
/// Both proxies take turns so often, so that both see the same machine.
const PASSES: u32 = 3;

/// The kinds of requests, and their names in rows.
const KINDS: [(Kind, &str); 3] =
    [(Kind::Single, "GET, new connection"), (Kind::Kept, "GET, kept connection"), (Kind::Tunnel, "CONNECT")];

/// Our proxy, and what a client says first in a tunnel to the server of pages.
#[derive(Debug)]
struct Own {
    _process: Running,
    port: u16,
    hello: Vec<u8>,
}

/// The one line that the proxy prints.
#[derive(Debug, Deserialize)]
struct Ready {
    hello: Vec<u8>,
}

/// The result of many requests at once.
#[derive(Debug, Default)]
struct Burst {
    took: Vec<Duration>,
    all: Duration,
}

/// Measures requests one after the other against none and against squid, and many at once against squid.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let pages = Pages::serve()?;
    let own = Own::start(bench, pages.port())?;
    let peer = if squid::exists() { Some(Squid::start()?) } else { None };
    let mut rows = Vec::new();
    for (kind, name) in KINDS {
        let direct = Route::direct(pages.port(), &own.hello);
        let ours = Route::through(own.port, pages.port(), &own.hello);
        let squids = peer.as_ref().map(|peer| Route::through(peer.port(), pages.port(), &own.hello));
        rows.push(alone(bench, (kind, name), &direct, &ours, squids.as_ref())?);
        let what = format!("proxy: {name}, {} clients", load::CLIENTS);
        rows.push(match &squids {
            Some(squids) => together(bench, kind, &what, &ours, squids)?,
            None => Row::not_run(&what, "squid is not installed"),
        });
    }
    Ok(rows)
}

/// One client.
fn alone(
    bench: &Bench,
    (kind, name): (Kind, &str),
    direct: &Route,
    ours: &Route,
    squids: Option<&Route>,
) -> Result<Row> {
    let mut clients = [Some(direct), Some(ours), squids].map(|route| route.map(|route| route.client(kind)));
    let mut took = [const { Vec::new() }; 3];
    let rounds = bench.rounds * ALONE;
    for round in 0..rounds + rounds / 10 {
        for (client, took) in clients.iter_mut().zip(&mut took) {
            let Some(client) = client else { continue };
            let one = client.ask().with_context(|| format!("{name} by port {}", client.port()))?;
            // The first tenth warms up.
            if round >= rounds / 10 {
                took.push(one);
            }
        }
    }
    let [direct, ours, squids] = took;
    let direct = Sample::new(direct)?;
    let beside = if squids.is_empty() {
        String::new()
    } else {
        format!(", squid {}", shown(Sample::new(squids)?.p50()))
    };
    let against = format!("direct {}{beside}", shown(direct.p50()));
    let target = (Percentile::P50, direct.p50() + ADDED);
    Ok(Row::limit(&format!("proxy: {name}, 1 client"), Sample::new(ours)?, target, against))
}

/// Many clients at once, through one proxy and then through the other.
fn together(bench: &Bench, kind: Kind, what: &str, ours: &Route, squids: &Route) -> Result<Row> {
    let requests = bench.rounds * TOGETHER;
    let (mut own, mut peer) = (Burst::default(), Burst::default());
    for _ in 0..PASSES {
        for (burst, route) in [(&mut own, ours), (&mut peer, squids)] {
            let (took, all) = load::burst(route, kind, requests).with_context(|| what.to_owned())?;
            burst.took.extend(took);
            burst.all += all;
        }
    }
    let target = peer.per_second();
    let squids = Sample::new(peer.took)?;
    let against = format!("squid {target:.0} /s, p50 {}", shown(squids.p50()));
    Ok(Row::rate(what, (own.per_second(), target), Sample::new(own.took)?, against))
}

impl Own {
    /// Starts it on a free port; it may reach the server of pages and nothing else.
    fn start(bench: &Bench, pages: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let folder = bench.scratch.path().join("proxy").display().to_string();
        let arguments = ["proxy", &folder, load::HOST, &pages.to_string()];
        let mut process = Program::new(&bench.helper, &arguments).accepting(listener)?;
        let line = process.line()?;
        let ready: Ready = serde_json::from_str(&line).with_context(|| format!("the proxy said '{line}'"))?;
        Ok(Self { _process: process, port, hello: ready.hello })
    }
}

impl Burst {
    fn per_second(&self) -> f64 {
        self.took.len() as f64 / self.all.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}
