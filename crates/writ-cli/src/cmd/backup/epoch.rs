//! The epoch, stored beside the database too, so that no restore can bring an earlier one back.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use writ_store::backup::{DatabaseCopy, peek_epoch};

use super::set::BackupSet;
use super::write_failure;
use crate::config::Config;
use crate::failure::Failure;

/// The longest number that is read.
const MAX_DIGITS: u64 = 20;

/// Chooses an epoch that no database of this home has had, and stores it before anything is exchanged.
pub(super) fn raise_epoch(config: &Config, sets: &[BackupSet], held: &DatabaseCopy) -> Result<u64, Failure> {
    let file = config.data_dir().join("epoch");
    // The highest of every source: a database, a backup or the file alone may be old.
    let known = sets.iter().map(|set| set.manifest.epoch).chain([held.epoch]);
    let highest = known.chain(read_epoch(&file)).chain(peek_epoch(&config.database())).max();
    let next = highest.unwrap_or_default().saturating_add(1);
    write_epoch(&file, next).map_err(|error| write_failure(&file, &error))?;
    Ok(next)
}

fn read_epoch(file: &Path) -> Option<u64> {
    let mut text = String::new();
    fs::File::open(file).ok()?.take(MAX_DIGITS).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn write_epoch(file: &Path, epoch: u64) -> std::io::Result<()> {
    // A file of its own and a rename, so that a crash leaves the old number or the new one.
    let draft = file.with_extension("new");
    let mut opened =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    write!(opened, "{epoch}")?;
    opened.sync_all()?;
    fs::rename(&draft, file)
}
