//! Control groups, where some are delegated to us: one for each zygote, which every sandbox is born into.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::status::Cgroup;

/// The beginning of our groups' names; our process id and a number follow.
const PREFIX: &str = "writ-";
/// The most groups that wait to be removed.
const STALE_MAX: usize = 256;

/// The number of the next group of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A name that no other group has.
fn fresh_name() -> String {
    format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The folders in which groups can be made.
#[derive(Debug)]
pub(crate) struct Cgroups {
    version: Cgroup,
    /// The folders below which groups are made: one on version 2, memory and pids on version 1.
    bases: Vec<PathBuf>,
    stale: Mutex<Vec<PathBuf>>,
}

impl Cgroups {
    /// Looks for what is delegated, by making a group.
    pub(crate) fn detect_groups() -> Arc<Self> {
        let (version, bases) = find_bases();
        for base in &bases {
            remove_leftovers(base);
        }
        Arc::new(Self { version, bases, stale: Mutex::new(Vec::new()) })
    }

    /// Returns the means by which jobs are limited.
    pub(crate) const fn version(&self) -> Cgroup {
        self.version
    }

    /// Makes a group. `None`: there are none here, or none can be made just now.
    pub(crate) fn make_group(self: &Arc<Self>, memory: u64, processes: u64) -> Option<Group> {
        self.remove_ended();
        let name = fresh_name();
        let mut group = Group { folders: Vec::new(), owner: Arc::clone(self) };
        for base in &self.bases {
            let folder = base.join(&name);
            fs::create_dir(&folder).ok()?;
            group.folders.push(folder);
        }
        group.set_limits(memory, processes).ok()?;
        (!group.folders.is_empty()).then_some(group)
    }

    /// Removes groups with a last process that had not quite ended before.
    fn remove_ended(&self) {
        let mut stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        stale.retain(|folder| fs::remove_dir(folder).is_err_and(|why| why.kind() != io::ErrorKind::NotFound));
        stale.truncate(STALE_MAX);
    }
}

/// One group. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Group {
    folders: Vec<PathBuf>,
    owner: Arc<Cgroups>,
}

impl Group {
    /// Sets the limits that the group's controllers have.
    fn set_limits(&self, memory: u64, processes: u64) -> io::Result<()> {
        for folder in &self.folders {
            for (file, value) in
                [("memory.max", memory), ("memory.limit_in_bytes", memory), ("pids.max", processes)]
            {
                let file = folder.join(file);
                // Version 2 of cgroups has `memory.max`, version 1 `memory.limit_in_bytes`: only one of them exists.
                if file.exists() {
                    fs::write(file, value.to_string())?;
                }
            }
            // Without this, a program could go beyond its limit of memory by swapping.
            let swap = folder.join("memory.swap.max");
            if swap.exists() {
                fs::write(swap, "0")?;
            }
        }
        Ok(())
    }

    /// Lets it count the time that its processes compute, where the system offers that.
    pub(crate) fn measure_time(&mut self) {
        // Version 2 counts in any case, version 1 in a hierarchy of its own.
        if self.owner.version != Cgroup::V1 {
            return;
        }
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let name = self.folders.first().and_then(|folder| folder.file_name());
        let folder = own_folder(&own, &mounts, "cpuacct").zip(name).map(|(base, name)| base.join(name));
        self.folders.extend(folder.filter(|folder| fs::create_dir(folder).is_ok()));
    }

    /// Returns the time that its processes have computed together; `None`: nothing counts that.
    pub(crate) fn computed_time(&self) -> Option<Duration> {
        read_time(&self.folders)
    }

    /// Moves a process into it. Slow, a few milliseconds: the kernel waits until no process forks.
    pub(crate) fn admit_process(&self, pid: u32) -> io::Result<()> {
        self.folders.iter().try_for_each(|folder| fs::write(folder.join("cgroup.procs"), pid.to_string()))
    }

    /// Returns the number of kills for want of memory since the group was made.
    pub(crate) fn kill_count(&self) -> u64 {
        read_kills(&self.folders)
    }
}

/// A group that another program has made, for a process that is in it.
#[derive(Debug)]
pub(crate) struct OtherGroup {
    folders: Vec<PathBuf>,
}

impl OtherGroup {
    /// Finds the group of a process, by the process's own list and the mounts of this one.
    pub(crate) fn of_process(pid: i32) -> io::Result<Self> {
        let lists = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let found =
            ["", "memory", "pids", "cpuacct"].map(|controller| own_folder(&lists, &mounts, controller));
        Ok(Self { folders: found.into_iter().flatten().collect() })
    }

    /// Returns its bound of memory in bytes and its bound of processes; `None`: there is none, or it cannot be read.
    pub(crate) fn bounds(&self) -> [Option<u64>; 2] {
        [["memory.max", "memory.limit_in_bytes"], ["pids.max", "pids.max"]].map(|names| {
            let files = self.folders.iter().flat_map(|folder| names.map(|name| folder.join(name)));
            // `max` stands for none.
            files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).min()
        })
    }

    /// Returns true if a bound of memory holds for swapped memory, too.
    pub(crate) fn bounds_swap(&self, memory: u64) -> bool {
        // Version 2 counts what is swapped for itself, version 1 with the memory.
        [("memory.swap.max", 0), ("memory.memsw.limit_in_bytes", memory)].into_iter().any(|(name, most)| {
            let files = self.folders.iter().map(|folder| folder.join(name));
            let mut found =
                files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok());
            found.any(|found| found <= most)
        })
    }

    /// Returns the time that its processes have computed together; `None`: nothing counts that.
    pub(crate) fn computed_time(&self) -> Option<Duration> {
        read_time(&self.folders)
    }

    /// Returns the number of kills for want of memory since the group was made.
    pub(crate) fn kill_count(&self) -> u64 {
        read_kills(&self.folders)
    }
}

fn read_time(folders: &[PathBuf]) -> Option<Duration> {
    let read = |name: &str| folders.iter().find_map(|folder| fs::read_to_string(folder.join(name)).ok());
    // If both versions of control groups are mounted, the process may be in the root group of version 2, which counts the whole machine.
    let old = read("cpuacct.usage").and_then(|text| text.trim().parse().ok()).map(Duration::from_nanos);
    old.or_else(|| {
        let text = read("cpu.stat")?;
        let used = text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse().ok());
        used.map(Duration::from_micros)
    })
}

fn read_kills(folders: &[PathBuf]) -> u64 {
    let count = |file: PathBuf| -> u64 {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().filter_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok()).sum()
    };
    let files = folders
        .iter()
        .flat_map(|folder| ["memory.events", "memory.oom_control"].map(|file| folder.join(file)));
    files.map(count).sum()
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in self.folders.drain(..) {
            if fs::remove_dir(&folder).is_err() {
                self.owner.stale.lock().unwrap_or_else(PoisonError::into_inner).push(folder);
            }
        }
    }
}

/// Version 2 where it gives memory and pids, else version 1, else nothing.
fn find_bases() -> (Cgroup, Vec<PathBuf>) {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(base) = own_folder(&own, &mounts, "") {
        let has = |controllers: &str, name: &str| controllers.split_whitespace().any(|found| found == name);
        if probe_base(&base, |folder| {
            let found = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
            has(&found, "memory") && has(&found, "pids")
        }) {
            return (Cgroup::V2, vec![base]);
        }
    }
    let bases: Vec<PathBuf> = [("memory", "memory.limit_in_bytes"), ("pids", "pids.max")]
        .into_iter()
        .filter_map(|(controller, file)| {
            let base = own_folder(&own, &mounts, controller)?;
            probe_base(&base, |folder| fs::OpenOptions::new().write(true).open(folder.join(file)).is_ok())
                .then_some(base)
        })
        .collect();
    // Half of it would leave either memory or processes without a limit.
    if bases.len() == 2 { (Cgroup::V1, bases) } else { (Cgroup::Watchdog, Vec::new()) }
}

/// Makes a group, looks at it and removes it.
fn probe_base(base: &Path, good: impl Fn(&Path) -> bool) -> bool {
    let folder = base.join(fresh_name());
    let made = fs::create_dir(&folder).is_ok();
    let good =
        made && good(&folder) && fs::OpenOptions::new().write(true).open(folder.join("cgroup.procs")).is_ok();
    let _ = fs::remove_dir(&folder);
    good
}

/// The folder of our own group in the hierarchy of a controller; the empty controller is version 2.
fn own_folder(own: &str, mounts: &str, controller: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let controllers = parts.next()?;
        // Version 2 has one line, without the name of a controller: `0::/path`.
        let matches = if controller.is_empty() {
            controllers.is_empty()
        } else {
            controllers.split(',').any(|name| name == controller)
        };
        if matches { parts.next() } else { None }
    })?;
    let (root, at) = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        // In `mountinfo` the kind of file system and its options follow the separator.
        let mut after = after.split(' ');
        let kind = after.next()?;
        let options = after.nth(1).unwrap_or_default();
        let wanted = if controller.is_empty() {
            kind == "cgroup2"
        } else {
            kind == "cgroup" && options.split(',').any(|name| name == controller)
        };
        let mut before = before.split(' ').skip(3);
        wanted.then(|| Some((before.next()?, before.next()?))).flatten()
    })?;
    let below = Path::new(path).strip_prefix(root).ok()?;
    Some(Path::new(at).join(below))
}

/// Removes groups of engines that have ended. Groups with processes in them cannot be removed.
fn remove_leftovers(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let alive = owner.is_none_or(|pid| Path::new("/proc").join(pid).exists());
        if !alive {
            let _ = fs::remove_dir(entry.path());
        }
    }
}
