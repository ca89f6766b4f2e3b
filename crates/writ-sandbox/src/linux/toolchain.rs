//! The toolchains of the host that are shown inside.

use std::fs;
use std::path::{Path, PathBuf};

use crate::project::private::may_be_shown;

/// The programs' path inside, after the toolchains.
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// The folder of cargo's sources of dependencies, below a home.
pub(crate) const REGISTRY: &str = ".cargo/registry";

/// The toolchains that are shown, and the way in which programs find them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Toolchains {
    /// Folders that are bound read-only at their own paths.
    pub(crate) binds: Vec<PathBuf>,
    /// Folders that are bound read-only below the home inside.
    pub(crate) home_binds: Vec<(PathBuf, String)>,
    /// The value of `PATH`.
    pub(crate) path: String,
    /// The folder of rustup's toolchains.
    pub(crate) rustup_home: Option<PathBuf>,
}

/// Looks for toolchains in the usual places of a home and adds the owner's own.
pub(crate) fn find_toolchains(home: Option<&Path>, extra: &[PathBuf]) -> Toolchains {
    let mut found = Toolchains::default();
    let mut path = Vec::new();
    if let Some(home) = home {
        find_rust(home, &mut found, &mut path);
        find_python(home, &mut found, &mut path);
        if let Some(version) = newest_version(&home.join(".nvm/versions/node")) {
            found.add_folder(&version, Some("bin"), &mut path);
        }
    }
    for folder in extra {
        if may_be_shown(folder, home) {
            found.add_folder(folder, folder.join("bin").is_dir().then_some("bin"), &mut path);
        }
    }
    found.add_folder(Path::new("/usr/local/go"), Some("bin"), &mut path);
    // It lies below /usr already.
    found.binds.retain(|bind| !bind.starts_with("/usr"));
    path.extend(SYSTEM_PATH.split(':').map(str::to_owned));
    found.path = path.join(":");
    found
}

impl Toolchains {
    /// Shows a folder and puts one below it on the path.
    fn add_folder(&mut self, folder: &Path, bin: Option<&str>, path: &mut Vec<String>) {
        let Ok(folder) = folder.canonicalize() else { return };
        let bin = bin.map(|bin| folder.join(bin)).filter(|bin| bin.is_dir());
        path.extend(bin.and_then(|bin| bin.to_str().map(str::to_owned)));
        if !self.binds.contains(&folder) {
            self.binds.push(folder);
        }
    }
}

/// The default toolchain directly, so that neither rustup's settings nor its variables are needed.
fn find_rust(home: &Path, found: &mut Toolchains, path: &mut Vec<String>) {
    let rustup = home.join(".rustup");
    let settings = fs::read_to_string(rustup.join("settings.toml")).unwrap_or_default();
    let default = settings.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "default_toolchain").then(|| value.trim().trim_matches('"').to_owned())
    });
    let toolchain = default
        .map(|name| rustup.join("toolchains").join(name))
        .filter(|folder| folder.is_dir())
        .or_else(|| newest_version(&rustup.join("toolchains")));
    if let Some(toolchain) = toolchain {
        found.add_folder(&toolchain, Some("bin"), path);
        found.add_folder(&rustup.join("toolchains"), None, path);
        found.rustup_home = rustup.canonicalize().ok();
    }
    let cargo = home.join(".cargo");
    if cargo.join("bin").is_dir() {
        found.add_folder(&cargo.join("bin"), None, path);
        path.extend(cargo.join("bin").to_str().map(str::to_owned));
    }
    // Sources of dependencies, for builds without a network. Credentials lie beside this folder, not in it.
    if let Ok(registry) = cargo.join("registry").canonicalize() {
        found.home_binds.push((registry, REGISTRY.to_owned()));
    }
}

/// pyenv's chosen version and uv's interpreters.
fn find_python(home: &Path, found: &mut Toolchains, path: &mut Vec<String>) {
    let versions = home.join(".pyenv/versions");
    let chosen = fs::read_to_string(home.join(".pyenv/version")).unwrap_or_default();
    let chosen = chosen.lines().next().map(str::trim).filter(|name| !name.is_empty() && !name.contains('/'));
    let version = chosen.map(|name| versions.join(name)).filter(|folder| folder.is_dir());
    if let Some(version) = version.or_else(|| newest_version(&versions)) {
        found.add_folder(&version, Some("bin"), path);
    }
    if let Some(version) = newest_version(&home.join(".local/share/uv/python")) {
        found.add_folder(&version, Some("bin"), path);
    }
}

/// The folder with the greatest name.
fn newest_version(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let folders = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    folders.max_by_key(|path| version_numbers(path))
}

/// The numbers in a name, so that 3.10 comes after 3.9.
fn version_numbers(path: &Path) -> Vec<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_folders_are_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        for folder in [".ssh", ".cargo/bin", "tools/bin", ".config/x"] {
            fs::create_dir_all(home.join(folder)).unwrap();
        }
        for refused in [
            home.clone(),
            home.join(".ssh"),
            home.join(".config/x"),
            home.join(".cargo"),
            "/".into(),
            "/etc".into(),
        ] {
            assert!(!may_be_shown(&refused, Some(&home)), "{}", refused.display());
        }
        assert!(may_be_shown(&home.join("tools"), Some(&home)));
        let found = find_toolchains(Some(&home), &[home.join(".ssh"), home.join("tools")]);
        assert!(found.binds.contains(&home.join("tools")));
        assert!(found.binds.contains(&home.join(".cargo/bin")));
        assert!(!found.binds.iter().any(|bind| bind.ends_with(".ssh")));
        assert!(found.path.starts_with(&format!(
            "{}/.cargo/bin:{}/tools/bin:",
            home.display(),
            home.display()
        )));
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(version_numbers(Path::new("3.10.1")) > version_numbers(Path::new("3.9.18")));
    }
}
