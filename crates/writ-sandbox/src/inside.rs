//! Paths as programs see them, whichever runner they have.

use std::path::{Path, PathBuf};

/// The work folder.
pub(crate) const WORK: &str = "/work";
/// The home of the user that programs run as.
pub(crate) const INNER_HOME: &str = "/home/agent";
/// Folders of the sandbox's own: a project that holds one of them, or lies in one of the first three, is seen at `/work` alone.
pub(crate) const RESERVED: [&str; 8] =
    [WORK, "/proc", "/dev/pts", "/dev/shm", "/dev", "/tmp", "/etc", INNER_HOME];
/// The number of leading entries of [`RESERVED`] in which nothing is attached.
const CLOSED: usize = 3;

/// Returns the path at which a project of the host is seen besides `/work`, if the sandbox has nothing of its own there.
pub(crate) fn own_path(project: &Path) -> Option<PathBuf> {
    // Inside, this folder is a link to the other.
    let place = match project.strip_prefix("/var/tmp") {
        Ok(below) => Path::new("/tmp").join(below),
        Err(_) => project.to_owned(),
    };
    let closed = RESERVED.iter().take(CLOSED).any(|folder| place.starts_with(folder));
    let covers = RESERVED.iter().any(|folder| Path::new(folder).starts_with(&place));
    (place.is_absolute() && !closed && !covers).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_has_its_own_path_where_nothing_of_the_sandbox_lies() {
        for (project, seen) in [
            ("/home/ann/notes", Some("/home/ann/notes")),
            ("/home/agent/notes", Some("/home/agent/notes")),
            ("/srv/a", Some("/srv/a")),
            ("/tmp/a", Some("/tmp/a")),
            ("/var/tmp/a/b", Some("/tmp/a/b")),
            ("/workshop", Some("/workshop")),
            ("/tmp", None),
            ("/var/tmp", None),
            ("/", None),
            ("/home", None),
            ("/work", None),
            ("/work/a", None),
            ("/proc/self", None),
            ("relative", None),
        ] {
            assert_eq!(own_path(Path::new(project)), seen.map(PathBuf::from), "{project}");
        }
    }
}
