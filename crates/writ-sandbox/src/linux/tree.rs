//! The processes below a process, as the host's `/proc` shows them.

use std::time::Duration;

/// The most processes that are looked at in one go; a tree with more is over every limit anyway.
const TREE_MAX: usize = 20_000;
/// The place of a process's start in the line of its numbers, counted from behind its name.
const START_FIELD: usize = 19;

/// Every process below this one.
pub(crate) fn descendant_pids(root: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        for child in child_pids(pid) {
            if found.len() >= TREE_MAX {
                return found;
            }
            found.push(child);
            open.push(child);
        }
    }
    found
}

/// The children of one process, of all of its threads.
fn child_pids(pid: i32) -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| {
            list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()
        })
        .collect()
}

/// Processes and resident memory, in bytes, of everything below a process.
pub(crate) fn measure_tree(root: i32) -> (u64, u64) {
    let page = u64::try_from(
        nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096),
    )
    .unwrap_or(4096);
    let pids = descendant_pids(root);
    let pages: u64 = pids.iter().filter_map(|pid| resident_pages(*pid)).sum();
    (u64::try_from(pids.len()).unwrap_or(u64::MAX), pages.saturating_mul(page))
}

/// Returns the time that the processes below a process have computed, with those that have ended and were waited for.
pub(crate) fn computed_time(root: i32) -> Duration {
    let second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    let second = u64::try_from(second).unwrap_or(100).max(1);
    let ticks: u64 = descendant_pids(root).into_iter().chain([root]).filter_map(ticks_of).sum();
    Duration::from_millis(ticks.saturating_mul(1_000) / second)
}

/// The ticks of the clock that a process and its ended children have had.
fn ticks_of(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may hold anything.
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_ascii_whitespace().skip(11).take(4).filter_map(|part| part.parse::<u64>().ok()).sum())
}

/// Returns the time at which a process has started, in ticks since the machine has; `None`: there is no such process.
pub(crate) fn start_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Its name may hold blanks and brackets; the last bracket ends it.
    let (_, numbers) = stat.rsplit_once(')')?;
    numbers.split_whitespace().nth(START_FIELD)?.parse().ok()
}

/// Pages of memory that a process has for itself: what is shared would be counted once for each.
fn resident_pages(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut fields = text.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let resident = fields.next()?.ok()?;
    let shared = fields.next()?.ok()?;
    Some(resident.saturating_sub(shared))
}
