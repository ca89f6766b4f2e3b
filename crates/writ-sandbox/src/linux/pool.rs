//! Sandboxes that are made in advance. Making one takes several times as long as running a short program in it. A waiting
//! sandbox has nothing of a session or command yet: the session's folders, the network and the job come with a permit. Each
//! sandbox is used once.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::alive::{LiveSandbox, ProcessReport};
use super::mounts;
use super::slot::Slots;
use super::spec::{InitMessage, SandboxBase, Walls};

/// The longest time that a sandbox waits for its use. A change of the host's folders that it has mounted is noticed at once; later
/// mounts below them become visible after this time at the latest.
pub(crate) const IDLE: Duration = Duration::from_secs(60);
/// The longest time that making a sandbox may take.
const MAKE: Duration = Duration::from_secs(10);

/// The waiting sandboxes.
#[derive(Debug)]
pub(crate) struct SandboxPool {
    slots: Arc<Slots>,
    /// The most waiting sandboxes of one kind; 0 turns the pool off.
    most: usize,
    /// The longest time that a sandbox waits.
    idle: Duration,
    state: Mutex<WaitingSandboxes>,
    /// The number of waiting sandboxes.
    number: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct WaitingSandboxes {
    next: u64,
    waiting: BTreeMap<u64, Ready>,
    /// The number of sandboxes that are being made, by kind.
    making: Vec<(SandboxBase, usize)>,
}

/// A waiting sandbox.
#[derive(Debug)]
struct Ready {
    base: SandboxBase,
    taken: Vec<Option<Mark>>,
    alive: LiveSandbox,
}

/// The identity of the file or folder at a path: device, inode and, because inode numbers are reused, the time of its last change of
/// metadata. For folders the time is left out, because it changes with every file in them.
type Mark = (u64, u64, Option<(i64, i64)>);

/// A request to make another sandbox when one has ended.
#[derive(Debug)]
pub(crate) struct RefillOrder {
    pool: Weak<SandboxPool>,
    base: SandboxBase,
}

impl RefillOrder {
    /// Starts making it.
    pub(crate) fn fill_pool(self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.fill_pool(&self.base);
        }
    }
}

impl SandboxPool {
    /// Makes an empty pool.
    pub(crate) fn new(slots: Arc<Slots>, most: usize, idle: Duration) -> Arc<Self> {
        Arc::new(Self { slots, most, idle, state: Mutex::default(), number: watch::Sender::new(0) })
    }

    /// The zygotes.
    pub(crate) const fn zygote_slots(&self) -> &Arc<Slots> {
        &self.slots
    }

    /// The number of waiting sandboxes.
    pub(crate) fn ready_count(&self) -> usize {
        *self.number.borrow()
    }

    /// Returns the request to be carried out after a sandbox of this kind was used.
    pub(crate) fn again(self: &Arc<Self>, base: &SandboxBase) -> RefillOrder {
        RefillOrder { pool: Arc::downgrade(self), base: base.clone() }
    }

    /// Takes a waiting sandbox of this kind whose mounted folders are unchanged on the host. Those with changed folders are ended.
    pub(crate) fn take_ready(&self, base: &SandboxBase) -> Option<LiveSandbox> {
        // The identities are read before the lock: `stat` may wait for a slow file system.
        let now = path_marks(base);
        let mut stale = Vec::new();
        let mut state = self.state();
        let found = loop {
            let id = state.waiting.iter().find(|(_, ready)| ready.base == *base).map(|(id, _)| *id);
            let Some(ready) = id.and_then(|id| state.waiting.remove(&id)) else { break None };
            // A toolchain may have been replaced while it waited.
            if ready.taken == now && !ready.alive.is_gone() {
                break Some(ready.alive);
            }
            stale.push(ready);
        };
        self.update_count(state);
        // Dropped outside the lock, since dropping a sandbox starts a task.
        drop(stale);
        found
    }

    /// Fills the pool with sandboxes of a kind, in the background. There are two kinds: for programs of a session, and for the
    /// file worker.
    fn fill_pool(self: &Arc<Self>, base: &SandboxBase) {
        let mut state = self.state();
        // Without namespaces there is hardly anything that could be made in advance.
        if base.walls == Walls::Reduced {
            return;
        }
        let waiting = state.waiting.values().filter(|ready| ready.base == *base).count();
        let making = state.making.iter().find(|(kind, _)| kind == base).map_or(0, |(_, number)| *number);
        let missing = self.most.saturating_sub(waiting + making);
        if missing == 0 {
            return;
        }
        state.making.retain(|(kind, _)| kind != base);
        // Counted before they are made, so that two calls at once do not make too many.
        state.making.push((base.clone(), making + missing));
        drop(state);
        for _ in 0..missing {
            tokio::spawn(make(Arc::downgrade(self), Arc::clone(&self.slots), base.clone()));
        }
    }

    /// Adds a sandbox to the waiting ones, or notes that making it failed. Returns its number.
    fn add_ready(&self, base: &SandboxBase, ready: Option<Ready>) -> Option<u64> {
        let mut state = self.state();
        for (kind, number) in &mut state.making {
            if kind == base {
                *number = number.saturating_sub(1);
            }
        }
        state.making.retain(|(_, number)| *number > 0);
        let ready = ready?;
        let id = state.next;
        state.next += 1;
        state.waiting.insert(id, ready);
        self.update_count(state);
        Some(id)
    }

    /// Ends a sandbox that still waits.
    fn end_one(&self, id: u64) {
        let mut state = self.state();
        let old = state.waiting.remove(&id);
        self.update_count(state);
        drop(old);
    }

    /// Publishes the number of waiting sandboxes.
    fn update_count(&self, state: MutexGuard<'_, WaitingSandboxes>) {
        self.number.send_replace(state.waiting.len());
    }

    fn state(&self) -> MutexGuard<'_, WaitingSandboxes> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a sandbox, lets it wait, and ends it if it is not taken in time.
async fn make(pool: Weak<SandboxPool>, slots: Arc<Slots>, base: SandboxBase) {
    // The identities are read before the sandbox is made: a change in between makes it stale instead of wrong.
    let taken = path_marks(&base);
    let made = tokio::time::timeout(MAKE, async {
        let alive = LiveSandbox::make_aside(&slots, &base).await.ok()?;
        (ProcessReport::default().next_message(alive.control_socket()).await == Some(InitMessage::Ready))
            .then_some(alive)
    });
    let alive = made.await.ok().flatten();
    drop(slots);
    let idle = pool.upgrade().map_or(Duration::ZERO, |pool| pool.idle);
    let handle = alive.as_ref().map(LiveSandbox::exit_handle);
    let ready = alive.map(|alive| Ready { base: base.clone(), taken, alive });
    let id = pool.upgrade().and_then(|pool| pool.add_ready(&base, ready));
    let (Some(id), Some(handle)) = (id, handle) else { return };
    // If it was taken meanwhile, there is nothing to end.
    let _ = tokio::time::timeout(idle, handle.gone()).await;
    if let Some(pool) = pool.upgrade() {
        pool.end_one(id);
    }
}

/// Returns the present identities of the host's paths that a sandbox of this kind mounts.
fn path_marks(base: &SandboxBase) -> Vec<Option<Mark>> {
    let mark = |path| {
        let meta = std::fs::symlink_metadata(path).ok()?;
        let changed = (!meta.is_dir()).then(|| (meta.ctime(), meta.ctime_nsec()));
        Some((meta.dev(), meta.ino(), changed))
    };
    mounts::seen_paths(base).map(mark).collect()
}

#[cfg(test)]
impl SandboxPool {
    /// Returns the number of those that were made.
    pub(crate) fn made_so_far(&self) -> u64 {
        self.state().next
    }

    /// The process ids of those of some kind.
    pub(crate) fn pids_of(&self, kind: impl Fn(&SandboxBase) -> bool) -> Vec<i32> {
        self.state()
            .waiting
            .values()
            .filter(|ready| kind(&ready.base))
            .flat_map(|ready| ready.alive.pids())
            .collect()
    }

    /// The process ids of the zygotes of those that wait, and of their first processes.
    pub(crate) fn pids(&self) -> Vec<i32> {
        self.pids_of(|_| true)
    }

    /// Waits until so many wait.
    pub(crate) async fn filled(&self, number: usize) {
        self.when(|pool| pool.ready_count() == number).await;
    }

    /// Waits until something is so that changes with the number of those that wait.
    pub(crate) async fn when(&self, is_so: impl Fn(&Self) -> bool) {
        let mut changes = self.number.subscribe();
        while !is_so(self) {
            changes.changed().await.unwrap();
        }
    }
}
