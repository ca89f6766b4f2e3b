//! Servers of tools: which the owner has named, which run, and whether they are still what was pinned.
//!
//! A server is started by the first call that needs it, in a sandbox and a folder of its own, one for each session. That
//! is an `Action::Exec` of the harness, which passes the door as any other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use secrecy::SecretString;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use writ_mcp::client::Client;
use writ_mcp::config::{ServerName, ServerSpec};
use writ_mcp::definition::{Definition, Drift, Pins};
use writ_tools::registry::Registry;
use writ_types::credential::Reference;
use writ_types::error::Report;
use writ_types::id::SessionId;

use crate::approved::WorkGuard;

use offered::{UnofferedTool, by_name, registry};

pub use none::NoServers;
pub use offered::{check, row};

mod none;

mod offered;

/// The time after which a server without calls is stopped.
pub const SERVER_IDLE: Duration = Duration::from_secs(5 * 60);
/// The most servers that run at once, of all sessions: the one that was called longest ago makes room.
pub const MAX_RUNNING_SERVERS: usize = 16;
/// The prefix of the name under which the harness starts a server; the server's name follows.
pub(crate) const STARTER: &str = "mcp:";

/// A server as its owner has named it, with what was pinned of its tools.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Its name.
    pub name: ServerName,
    /// The owner's settings for the server.
    pub spec: ServerSpec,
    /// The tools that the owner trusts, as they were described then.
    pub pins: Pins,
}

/// Access to the owner's list of tool servers and to their secrets.
pub trait ServerSource: std::fmt::Debug + Send + Sync {
    /// Reads what stands there now.
    ///
    /// # Errors
    ///
    /// If any of it cannot stand.
    fn load(&self) -> Result<Vec<Server>, Report>;

    /// The value of a secret that a server's variable names.
    ///
    /// # Errors
    ///
    /// If there is none, or it cannot be read.
    fn secret(&self, name: &Reference) -> Result<SecretString, Report>;

    /// Reads the names of the tools that are not offered, as models know them.
    ///
    /// # Errors
    ///
    /// If the list cannot be read.
    fn set_aside(&self) -> Result<BTreeSet<String>, Report> {
        Ok(BTreeSet::new())
    }
}

/// A server of one session.
pub(crate) type Key = (SessionId, ServerName);
/// The place of a server that runs or is being started.
pub(crate) type Slot = Arc<tokio::sync::Mutex<Option<Arc<LiveServer>>>>;

/// Everything about servers that the engine knows.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) source: Arc<dyn ServerSource>,
    pub(crate) idle: Duration,
    /// Our own tools.
    own: Registry,
    known: Mutex<ServerTable>,
    slots: Mutex<BTreeMap<Key, Slot>>,
    /// The tasks that end them.
    pub(crate) keepers: TaskTracker,
}

/// The owner's word, and what is offered by it.
#[derive(Clone, Debug)]
struct ServerTable {
    servers: BTreeMap<ServerName, Arc<Server>>,
    /// Tools with a description that differs from their pin; they are not offered until the owner trusts them
    /// again.
    drifted: BTreeSet<(ServerName, String)>,
    /// Tools that are not offered since their owner has set them aside.
    aside: BTreeSet<String>,
    registry: Arc<Registry>,
    /// The trusted tools that cannot be offered, each with why.
    left_out: Vec<UnofferedTool>,
}

impl ServerTable {
    pub(crate) fn new(
        own: &Registry,
        servers: BTreeMap<ServerName, Arc<Server>>,
        drifted: BTreeSet<(ServerName, String)>,
        aside: BTreeSet<String>,
    ) -> Result<Self, Report> {
        let (registry, left_out) = registry(own, &servers, &drifted)?;
        let registry = registry.without_foreign(&aside);
        for one in &left_out {
            tracing::warn!(server = %one.server, tool = one.tool, "a foreign tool is not offered: {}", one.why);
        }
        Ok(Self { servers, drifted, aside, registry: Arc::new(registry), left_out })
    }
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct LiveServer {
    pub(crate) client: Client,
    pub(crate) spec: ServerSpec,
    /// The current descriptions of its tools.
    pub(crate) live: Mutex<Vec<Definition>>,
    /// Entries of its tool list that could not be used at its start.
    pub(crate) left_out: Vec<String>,
    /// Calls that it works on.
    pub(crate) busy: AtomicUsize,
    pub(crate) last: Mutex<Instant>,
    /// Something has begun or ended.
    pub(crate) moved: Notify,
    pub(crate) stop: CancellationToken,
    /// That it runs on an approval, where it does.
    pub(crate) _begun: Option<WorkGuard>,
}

/// A call that a server works on: it is not idle meanwhile.
pub(crate) struct Busy(pub(crate) Arc<LiveServer>);

impl Busy {
    pub(crate) fn new(running: Arc<LiveServer>) -> Self {
        running.busy.fetch_add(1, Ordering::AcqRel);
        running.moved.notify_one();
        Self(running)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // Before the count falls: a server that looks idle must not have the time of an older call.
        *hold(&self.0.last) = Instant::now();
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
        self.0.moved.notify_one();
    }
}

/// Every holder leaves what it holds whole, so poison is ignored.
pub(crate) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Servers {
    /// Reads what the owner has named.
    ///
    /// # Errors
    ///
    /// If any of it cannot stand.
    pub(crate) fn new(source: Arc<dyn ServerSource>, own: Registry, idle: Duration) -> Result<Self, Report> {
        let aside = source.set_aside()?;
        let known = Mutex::new(ServerTable::new(&own, by_name(source.load()?), BTreeSet::new(), aside)?);
        let keepers = TaskTracker::new();
        Ok(Self { source, idle, own, known, slots: Mutex::default(), keepers })
    }

    /// The tools that are there now.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&hold(&self.known).registry)
    }

    /// The names of the tools that are not offered since their owner has set them aside.
    pub(crate) fn set_aside(&self) -> BTreeSet<String> {
        hold(&self.known).aside.clone()
    }

    /// The server with this name.
    pub(crate) fn known(&self, name: &str) -> Option<Arc<Server>> {
        let name: ServerName = name.parse().ok()?;
        hold(&self.known).servers.get(&name).cloned()
    }

    /// Every server.
    pub(crate) fn all(&self) -> Vec<Arc<Server>> {
        hold(&self.known).servers.values().cloned().collect()
    }

    /// The trusted tools that cannot be offered, each with why.
    pub(crate) fn left_out(&self) -> Vec<UnofferedTool> {
        hold(&self.known).left_out.clone()
    }

    /// Reads what the owner has named anew, and returns true if it says something else now. Servers that are named
    /// otherwise now are ended. Tools that were found to be others than those pinned are not offered again by this, while
    /// their pins are the same.
    ///
    /// # Errors
    ///
    /// If any of it cannot stand; what was there before stays in force.
    pub(crate) fn reload(&self) -> Result<bool, Report> {
        let (servers, aside) = (by_name(self.source.load()?), self.source.set_aside()?);
        let mut known = hold(&self.known);
        if known.servers == servers && known.aside == aside {
            return Ok(false);
        }
        let pin = |all: &BTreeMap<ServerName, Arc<Server>>, (name, tool): &(ServerName, String)| {
            all.get(name).and_then(|server| server.pins.tools.get(tool)).cloned()
        };
        let mut drifted = known.drifted.clone();
        drifted.retain(|one| pin(&servers, one).is_some_and(|now| Some(now) == pin(&known.servers, one)));
        *known = ServerTable::new(&self.own, servers.clone(), drifted, aside)?;
        drop(known);
        let is_same = |running: &LiveServer, name: &ServerName| {
            servers.get(name).is_some_and(|server| server.spec == running.spec)
        };
        self.stop_where(|(_, name), running| !is_same(running, name));
        Ok(true)
    }

    /// Offers the tools of a server again that were found to be others than those pinned: its owner has compared them. It is
    /// started anew for that, and what is still another one is found again.
    ///
    /// # Errors
    ///
    /// If its tools cannot stand beside the others; nothing has changed then.
    pub(crate) fn trust(&self, name: &ServerName) -> Result<(), Report> {
        let mut known = hold(&self.known);
        let mut drifted = known.drifted.clone();
        drifted.retain(|(server, _)| server != name);
        if drifted == known.drifted {
            return Ok(());
        }
        *known = ServerTable::new(&self.own, known.servers.clone(), drifted, known.aside.clone())?;
        drop(known);
        self.stop_where(|(_, server), _| server == name);
        Ok(())
    }

    /// Ends every server of a session.
    pub(crate) fn stop_session(&self, session: SessionId) {
        self.stop_where(|(of, _), _| *of == session);
    }

    fn stop_where(&self, is_meant: impl Fn(&Key, &LiveServer) -> bool) {
        for (key, slot) in &*hold(&self.slots) {
            // A server that is still starting stops later, when its idle time is over.
            let running = slot.try_lock().ok().and_then(|running| running.clone());
            if let Some(running) = running.filter(|running| is_meant(key, running)) {
                running.stop.cancel();
            }
        }
    }

    /// Waits until every stopped server has ended; no new ones are tracked after this call.
    pub(crate) async fn ended(&self) {
        self.keepers.close();
        self.keepers.wait().await;
    }

    /// Returns the number of servers that run or are being started.
    pub(crate) fn running(&self) -> usize {
        hold(&self.slots).len()
    }

    /// The place of a server, if there is room for it.
    pub(crate) fn slot(&self, key: &Key) -> Option<Slot> {
        let mut slots = hold(&self.slots);
        if let Some(slot) = slots.get(key) {
            return Some(Arc::clone(slot));
        }
        if slots.len() >= MAX_RUNNING_SERVERS {
            let idle = slots.iter().filter_map(|(key, slot)| {
                // A place that is locked belongs to a server that is being started or asked for: it is not idle.
                let running = slot.try_lock().ok()?.clone()?;
                let is_idle = running.busy.load(Ordering::Acquire) == 0;
                let last = *hold(&running.last);
                is_idle.then(|| (last, key.clone(), running))
            });
            let (_, longest, running) = idle.min_by_key(|(last, ..)| *last)?;
            running.stop.cancel();
            slots.remove(&longest);
        }
        let slot = Slot::default();
        slots.insert(key.clone(), Arc::clone(&slot));
        Some(slot)
    }

    /// Gives the place of a server up that has ended, or was not started.
    pub(crate) fn vacate(&self, key: &Key, slot: &Slot) {
        let mut slots = hold(&self.slots);
        // The place may have another server by now, which came after this one was pushed out.
        if slots.get(key).is_some_and(|held| Arc::ptr_eq(held, slot)) {
            slots.remove(key);
        }
    }

    /// Notes how the tools of a server stand to their pins; what is new of it.
    pub(crate) fn note(&self, server: &Server, live: &[Definition]) -> Vec<(String, Drift)> {
        let found = server.pins.compare_offer(live);
        let mut known = hold(&self.known);
        // The owner may have changed the pins meanwhile; a comparison with old pins is dropped.
        if known.servers.get(&server.name).is_none_or(|now| now.pins != server.pins) {
            return Vec::new();
        }
        let mut news = Vec::new();
        for (tool, drift) in found {
            match drift {
                Drift::None | Drift::New => {}
                Drift::Changed | Drift::Gone => {
                    if known.drifted.insert((server.name.clone(), tool.clone())) {
                        news.push((tool, drift));
                    }
                }
            }
        }
        if !news.is_empty()
            && let Ok(now) =
                ServerTable::new(&self.own, known.servers.clone(), known.drifted.clone(), known.aside.clone())
        {
            *known = now;
        }
        news
    }
}

impl LiveServer {
    /// Reports whether the current description of a tool matches the approved pin.
    pub(crate) fn is_pinned(&self, tool: &str, pin: Option<&writ_types::digest::Digest>) -> bool {
        let live = hold(&self.live);
        let found = live.iter().find(|live| live.name == tool).and_then(Definition::digest);
        found.is_some() && found.as_ref() == pin
    }

    /// Stops the server because it cannot be used any longer.
    pub(crate) fn give_up(&self) {
        self.stop.cancel();
    }
}
