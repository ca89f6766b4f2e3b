//! The root of the workspace.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::variable;

/// A file that only the root has.
const MARK: &str = "xtask/exceptions.toml";

/// Returns the root of the workspace that cargo runs this in. Clones may share a target directory, so what was true when
/// this was compiled need not be true now.
///
/// # Errors
///
/// If no folder above the package is the root.
pub fn workspace_root() -> Result<PathBuf> {
    let folder = variable("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").to_owned());
    let root = Path::new(&folder).ancestors().find(|above| above.join(MARK).is_file());
    root.map(Path::to_path_buf).with_context(|| format!("no folder above {folder} holds {MARK}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_lies_above_every_package() {
        let root = workspace_root().unwrap();
        assert!(root.join("Cargo.lock").is_file());
        // Not the folder at the time of the build: another clone may have built it.
        let package = variable("CARGO_MANIFEST_DIR").unwrap();
        assert!(Path::new(&package).starts_with(&root));
    }
}
