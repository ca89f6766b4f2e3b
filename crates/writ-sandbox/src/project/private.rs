//! Folders of the host that are never shown inside: homes, credentials, parts of the system.

use std::path::Path;

/// Folders and files below a home that hold credentials or private matters.
const PRIVATE: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".config",
    ".netrc",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".gitconfig",
    ".password-store",
    ".mozilla",
    ".thunderbird",
    ".writ",
    ".local/share/keyrings",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".cargo/config",
    ".cargo/config.toml",
    ".bash_history",
    ".zsh_history",
];
/// System paths with content of the host's own.
const SYSTEM_PRIVATE: &[&str] =
    &["/etc", "/proc", "/sys", "/dev", "/run", "/boot", "/var/log", "/var/spool", "/var/run"];

/// Returns true if a folder may be shown inside: it neither holds nor lies in a private one.
pub(crate) fn may_be_shown(folder: &Path, home: Option<&Path>) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    let touches = |private: &Path| folder.starts_with(private) || private.starts_with(&folder);
    let home_ok = home.is_none_or(|home| {
        let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
        !home.starts_with(&folder) && !PRIVATE.iter().any(|name| touches(&home.join(name)))
    });
    // The root, and what lies directly in it, such as /var or /home: more than a project.
    let whole_system = folder.components().count() <= 2;
    home_ok && !whole_system && !SYSTEM_PRIVATE.iter().any(|path| folder.starts_with(path))
}
