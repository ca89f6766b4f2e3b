//! The home's database, opened by commands that need no engine.

use std::path::Path;
use std::sync::Arc;

use ed25519_dalek::SigningKey;
use writ_store::config::StoreConfig;
use writ_store::lock::{HomeLock, LockError};
use writ_store::store::Store;
use writ_types::error::Exit;

use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::keyring::{KeyRole, public_keys, read_rotations};

/// Opens the database to read it. It may be read while the engine runs.
///
/// # Errors
///
/// If there is none, or it cannot be read.
pub(crate) fn open_to_read(context: &Context, config: &Config) -> Result<Store, Failure> {
    let path = config.database();
    require_database(&path)?;
    let keys = public_keys(&context.home, KeyRole::Harness)?;
    // The first key is the present one.
    let newest = keys.first().map(|key| *key.as_bytes()).unwrap_or_default();
    Ok(Store::open_read_only(&path, newest)?)
}

/// The lock of the home and that of its database, which may lie in a folder that another home names too.
pub(crate) type Locks = [HomeLock; 2];

/// Takes both locks: no other process writes the database while they are held.
///
/// # Errors
///
/// If another process holds one of them.
pub(crate) fn take_locks(context: &Context, config: &Config) -> Result<Locks, LockError> {
    // Two locks, since two homes may name the same data folder.
    let beside = config.database().with_extension("db.lock");
    Ok([HomeLock::acquire(&context.home.lock())?, HomeLock::acquire(&beside)?])
}

/// Opens the database to write it, with its locks: no engine runs meanwhile.
///
/// # Errors
///
/// If an engine runs, or the database cannot be opened.
pub(crate) fn open_to_write(
    context: &Context,
    config: &Config,
    harness: SigningKey,
) -> Result<(Locks, Store), Failure> {
    let locks = take_locks(context, config)?;
    let store = Store::open(&store_config(context, &config.database())?, Arc::new(harness))?;
    Ok((locks, store))
}

/// Returns the database at a path, with the rotations of the harness key.
///
/// # Errors
///
/// If the file of rotations cannot be read.
pub(crate) fn store_config(context: &Context, path: &Path) -> Result<StoreConfig, Failure> {
    Ok(StoreConfig { rotations: read_rotations(&context.home)?, ..StoreConfig::new(path) })
}

/// A typed error where there is no database.
pub(crate) fn require_database(path: &Path) -> Result<(), Failure> {
    if path.is_file() {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Config,
        "store.missing",
        "there is no database in this home",
        "`writ init` makes one in a new home; `writ backup restore` puts one back",
    ))
}
