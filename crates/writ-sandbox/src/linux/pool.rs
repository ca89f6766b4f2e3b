//! Sandboxes that are made ahead of their jobs. Making one takes several times as long as running a short
//! program in it, and nothing in it is of a session or a command at first: the folders of the session, the
//! way out and the job come with a permit. Each is used once.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::alive::{LiveSandbox, ProcessReport};
use super::mounts;
use super::slot::Slots;
use super::spec::{InitMessage, SandboxBase, Walls};

/// The time that one waits to be used. Changes of the host at the paths that it has taken are noticed; mounts
/// below them are seen after this time at the latest.
pub(crate) const IDLE: Duration = Duration::from_secs(60);
/// The longest that making one may take.
const MAKE: Duration = Duration::from_secs(10);

/// The sandboxes that wait.
#[derive(Debug)]
pub(crate) struct SandboxPool {
    slots: Arc<Slots>,
    /// The most that wait of one kind; 0: none ever does.
    most: usize,
    /// The time that one waits.
    idle: Duration,
    state: Mutex<WaitingSandboxes>,
    /// The number of those that wait.
    number: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct WaitingSandboxes {
    next: u64,
    waiting: BTreeMap<u64, Ready>,
    /// Kinds of which some are being made, and how many.
    making: Vec<(SandboxBase, usize)>,
}

/// One that waits.
#[derive(Debug)]
struct Ready {
    base: SandboxBase,
    taken: Vec<Option<Mark>>,
    alive: LiveSandbox,
}

/// The identity of the file or folder at a path: device, inode and, since numbers are used again, the time of
/// its last change of name or owner. Folders change with every file in them, so the time is left out for
/// these.
type Mark = (u64, u64, Option<(i64, i64)>);

/// The order to make another sandbox when one has ended.
#[derive(Debug)]
pub(crate) struct RefillOrder {
    pool: Weak<SandboxPool>,
    base: SandboxBase,
}

impl RefillOrder {
    /// Has it made.
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

    /// The number of those that wait.
    pub(crate) fn ready_count(&self) -> usize {
        *self.number.borrow()
    }

    /// Returns the order that follows the use of a sandbox of this kind.
    pub(crate) fn again(self: &Arc<Self>, base: &SandboxBase) -> RefillOrder {
        RefillOrder { pool: Arc::downgrade(self), base: base.clone() }
    }

    /// One of this kind that waits, if the host still shows what it has taken. Those that it does not are ended.
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
        // Ended outside the lock, since dropping one starts a task.
        drop(stale);
        found
    }

    /// Makes as many of a kind as may wait, beside what is going on. There are two kinds: for programs of a session, and
    /// for the file worker.
    fn fill_pool(self: &Arc<Self>, base: &SandboxBase) {
        let mut state = self.state();
        // Without namespaces there is next to nothing that could be made ahead.
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
        // Counted before they are made, so that two calls do not make twice as many.
        state.making.push((base.clone(), making + missing));
        drop(state);
        for _ in 0..missing {
            tokio::spawn(make(Arc::downgrade(self), Arc::clone(&self.slots), base.clone()));
        }
    }

    /// Puts one among those that wait, or notes that making it failed. Returns its number.
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

    /// Ends one that still waits.
    fn end_one(&self, id: u64) {
        let mut state = self.state();
        let old = state.waiting.remove(&id);
        self.update_count(state);
        drop(old);
    }

    /// Says how many wait, now that this is known.
    fn update_count(&self, state: MutexGuard<'_, WaitingSandboxes>) {
        self.number.send_replace(state.waiting.len());
    }

    fn state(&self) -> MutexGuard<'_, WaitingSandboxes> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes one, lets it wait, and ends it when it was not taken.
async fn make(pool: Weak<SandboxPool>, slots: Arc<Slots>, base: SandboxBase) {
    // Before it is made: a change in between makes it stale instead of wrong.
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
    // It may also have been taken meanwhile: then there is nothing to end.
    let _ = tokio::time::timeout(idle, handle.gone()).await;
    if let Some(pool) = pool.upgrade() {
        pool.end_one(id);
    }
}

/// Returns the identities of the paths that a sandbox of this kind takes, as they are now.
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
