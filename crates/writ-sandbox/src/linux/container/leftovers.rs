//! The remains of launchers that were killed: a container that was made and not started yet, and folders on the host. A
//! container that runs ends when its launcher does.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::super::tree::start_of;
use super::engine::ContainerClient;

/// The beginning of all names; the launcher's pid namespace, its id, its start and a number follow.
const PREFIX: &str = "writ-agent-";
/// The most that is removed at one start.
const REMOVED_MAX: usize = 64;

/// Returns the name of a container of this process, and of its folder.
pub(crate) fn fresh_name(number: u64) -> io::Result<String> {
    let own = std::process::id();
    let start = start_of(own).ok_or_else(|| io::Error::other("this process's own start cannot be read"))?;
    Ok(format!("{PREFIX}{}-{own}-{start}-{number}", namespace()?))
}

/// Removes what launchers of this pid namespace have left that have ended.
pub(crate) async fn remove_leftovers(client: &ContainerClient, folder: &Path) {
    let Ok(namespace) = namespace() else { return };
    let ended =
        |name: &str| owner_of(name, namespace).is_some_and(|(pid, start)| start_of(pid) != Some(start));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten().take(REMOVED_MAX) {
        if entry.file_name().to_str().is_some_and(ended) {
            // Another launcher may be at it, too.
            let _removed = fs::remove_dir_all(entry.path());
        }
    }
    let names = client.list_ended(PREFIX).await;
    for name in names.iter().filter(|name| ended(name)).take(REMOVED_MAX) {
        client.remove_container(name).await;
    }
}

/// Returns the launcher of a container by its name, if it is of this pid namespace: others cannot be seen.
fn owner_of(name: &str, namespace: u64) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-').map(|part| part.parse::<u64>().ok());
    let found = [parts.next()??, parts.next()??, parts.next()??, parts.next()??];
    let [space, pid, start, _] = found;
    (parts.next().is_none() && space == namespace).then_some((u32::try_from(pid).ok()?, start))
}

fn namespace() -> io::Result<u64> {
    fs::metadata("/proc/self/ns/pid").map(|found| found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_a_launcher_that_lives_or_cannot_be_seen_stays() {
        let own = fresh_name(7).unwrap();
        let (pid, start) = owner_of(&own, namespace().unwrap()).unwrap();
        assert_eq!((pid, Some(start)), (std::process::id(), start_of(pid)));
        assert_eq!(owner_of(&own, 1), None);
        assert_eq!(owner_of("writ-agent-4-1-2-3", 4), Some((1, 2)));
        for other in
            ["writ-agent-4-1-2", "writ-agent-4-1-2-3-4", "writ-agent-4-x-2-3", "writ-agent-", "postgres", ""]
        {
            assert_eq!(owner_of(other, 4), None, "{other}");
        }
        assert_eq!(start_of(u32::MAX), None);
    }
}
