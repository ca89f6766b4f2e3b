//! The session's layer over a git directory: what git writes inside lies there, and never in the owner's git directory.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use writ_types::digest::Digest;

use super::index::{self, Hash};
use super::{Repository, settings, small};
use crate::project::copy;

/// The folder of a session that has the layer.
pub(crate) const FOLDER: &str = "git";
/// The file that says that a layer is whole.
const READY: &str = "ready";
/// The number of a digest's digits that name a layer.
const NAME_DIGITS: usize = 32;
/// The settings that tell git that a work tree has some of its files only.
const SPARSE: &str = "\n[core]\n\tsparseCheckout = true\n\tsparseCheckoutCone = false\n";

/// Makes the layer of a session over a git directory, unless it is there. A session has one: that over
/// another git directory is removed. Nothing of the session may run meanwhile. Returns the folder with
/// `upper` and `work`.
///
/// # Errors
///
/// If it cannot be made, or if the index of a repository with a subfolder as project cannot be narrowed to
/// it.
pub(crate) fn prepare_layer(repository: &Repository, session: &Path) -> io::Result<PathBuf> {
    let folders = session.join(FOLDER);
    let folder = folders.join(layer_name(repository)?);
    if folder.join(READY).is_file() {
        return Ok(folder);
    }
    copy::remove_tree(&folders)?;
    for made in [&folder.join("upper"), &folder.join("work")] {
        make_layer(made)?;
    }
    if !repository.below.as_os_str().is_empty() {
        narrow_layer(repository, &folder.join("upper"))?;
    }
    fs::write(folder.join(READY), "")?;
    Ok(folder)
}

/// A name that is another one for another git directory or subfolder, also at the same path.
fn layer_name(repository: &Repository) -> io::Result<String> {
    let meta = fs::metadata(&repository.common)?;
    let mut text = format!("{}:{}:", meta.dev(), meta.ino()).into_bytes();
    for path in [&repository.common, &repository.private, &repository.below] {
        text.extend_from_slice(path.as_os_str().as_bytes());
        text.push(0);
    }
    let mut name = hex::encode(Digest::of_bytes(&text).as_bytes());
    name.truncate(NAME_DIGITS);
    Ok(name)
}

/// Makes git see the project alone, as in a sparse checkout of it: the files beside it are not inside, and are not deleted.
fn narrow_layer(repository: &Repository, upper: &Path) -> io::Result<()> {
    let read = |folder: &Path, name: &str, max: u64| small(folder, name, max).map_err(io::Error::other);
    let private = repository.common.join(&repository.private);
    let below = repository.below.as_os_str().as_bytes();
    let mut config = read(&repository.common, "config", settings::BYTES_MAX)?.unwrap_or_default();
    let own = read(&private, "config.worktree", settings::BYTES_MAX)?.unwrap_or_default();
    let is_sparse = [&config, &own].iter().any(|text| {
        settings::last_value(text, "core", "sparseCheckout").is_some_and(|value| settings::is_on(&value))
    });
    let hash = match settings::last_value(&config, "extensions", "objectFormat") {
        Some(format) if format.eq_ignore_ascii_case(b"sha256") => Hash::Sha256,
        Some(_) | None => Hash::Sha1,
    };
    make_layer(&upper.join(&repository.private).join("info"))?;
    if let Some(host) = read(&private, "index", index::BYTES_MAX)? {
        let narrowed = index::narrow_index(&host, below, hash).map_err(io::Error::other)?;
        fs::write(upper.join(&repository.private).join("index"), narrowed)?;
    }
    // The owner's own patterns stay: git goes on to keep away what they leave out.
    if !is_sparse {
        let pattern = sparse_pattern(below).ok_or_else(|| io::Error::other("its path holds a line end"))?;
        fs::write(upper.join(&repository.private).join("info/sparse-checkout"), pattern)?;
        config.extend_from_slice(SPARSE.as_bytes());
        fs::write(upper.join("config"), config)?;
    }
    Ok(())
}

/// The pattern of a sparse checkout that takes one folder. `None`: its path cannot be written as one.
fn sparse_pattern(below: &[u8]) -> Option<Vec<u8>> {
    let mut pattern = b"/".to_vec();
    for byte in below {
        match byte {
            b'\n' | b'\r' => return None,
            b'\\' | b'*' | b'?' | b'[' | b']' | b' ' => pattern.extend_from_slice(&[b'\\', *byte]),
            byte => pattern.push(*byte),
        }
    }
    pattern.extend_from_slice(b"/\n");
    Some(pattern)
}

fn make_layer(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}
