//! Measures a process: memory, descriptors, threads, children.

use std::path::Path;

use anyhow::{Context as _, Result};

/// The measures of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gauge {
    /// Bytes that are resident: shared pages count in full.
    pub(crate) resident: u64,
    /// Bytes in proportion: shared pages count in parts.
    pub(crate) proportional: u64,
    /// Bytes that no file holds: neither the program's pages nor who else runs it count.
    pub(crate) anonymous: u64,
    /// Open descriptors.
    pub(crate) descriptors: usize,
    /// Threads.
    pub(crate) threads: usize,
    /// Processes that it has started and that live, and theirs.
    pub(crate) children: usize,
}

impl Gauge {
    /// Looks at a process.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let folder = Path::new("/proc").join(pid.to_string());
        let path = folder.join("smaps_rollup");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let bytes = |name: &str| -> Result<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.split_whitespace().next()).context("no such line")?;
            Ok(number.parse::<u64>()? * 1024)
        };
        Ok(Self {
            resident: bytes("Rss:")?,
            proportional: bytes("Pss:")?,
            anonymous: bytes("Anonymous:")?,
            descriptors: std::fs::read_dir(folder.join("fd"))?.count(),
            threads: std::fs::read_dir(folder.join("task"))?.count(),
            children: tree(pid).len() - 1,
        })
    }
}

/// Lists a process and those that descend from it; those that end meanwhile are left out.
pub(crate) fn tree(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        let listed = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let listed: Vec<String> = listed.collect();
        found.extend(
            listed.iter().flat_map(|list| list.split_whitespace()).filter_map(|pid| pid.parse::<u32>().ok()),
        );
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use task_process::Program;

    #[test]
    fn this_process_has_memory_and_the_child_that_it_started() {
        let child = Program::new("cat", &[]).spawn().unwrap();
        let gauge = Gauge::of(std::process::id()).unwrap();
        assert!(gauge.resident >= gauge.proportional && gauge.proportional > 0, "{gauge:?}");
        assert!(gauge.anonymous > 0 && gauge.anonymous <= gauge.resident, "{gauge:?}");
        assert!(gauge.descriptors >= 3 && gauge.threads >= 1 && gauge.children >= 1, "{gauge:?}");
        drop(child);
    }
}
