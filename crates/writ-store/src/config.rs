//! Settings of the store.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ledger::rotation::Rotation;

pub use crate::bounds::{
    BUSY_TIMEOUT_MS, MAX_BATCH_OPS, MAX_GROUP_BATCHES, MAX_READ_ROWS, MAX_TEXT_BYTES, READ_QUEUE,
    READER_CACHE_KIB, READERS, WRITER_CACHE_KIB, WRITER_QUEUE,
};

/// Settings of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreConfig {
    /// The database file. Its folder is made with mode 0700, the file with mode 0600.
    pub path: PathBuf,
    /// The most pages (of 4 KiB) that the database may take; `None`: what the disk has.
    #[serde(default)]
    pub max_pages: Option<u32>,
    /// The rotations that led to the signer's key, for a ledger that was restored and does not record them.
    #[serde(skip)]
    pub rotations: Vec<Rotation>,
    /// The place where the process ends itself, in debug builds only.
    #[cfg(debug_assertions)]
    #[serde(skip)]
    pub kill_point: Option<KillPoint>,
}

impl StoreConfig {
    /// The defaults for a database at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            max_pages: None,
            rotations: Vec::new(),
            #[cfg(debug_assertions)]
            kill_point: None,
        }
    }
}

/// A place in the code where a test ends the process without warning.
///
/// Names: `store.before_commit` and `store.after_commit`, the two sides of every commit boundary.
#[cfg(debug_assertions)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillPoint {
    /// The place.
    pub name: String,
    /// At which pass of the place, counted from one.
    pub pass: u64,
}

/// Text that is not `NAME:PASS`.
#[cfg(debug_assertions)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a kill point is written NAME:PASS, such as store.before_commit:3")]
pub struct InvalidKillPoint;

#[cfg(debug_assertions)]
impl std::str::FromStr for KillPoint {
    type Err = InvalidKillPoint;

    fn from_str(text: &str) -> Result<Self, InvalidKillPoint> {
        let (name, pass) = text.rsplit_once(':').ok_or(InvalidKillPoint)?;
        let pass = pass.parse().ok().filter(|pass| *pass > 0).ok_or(InvalidKillPoint)?;
        Ok(Self { name: name.to_owned(), pass })
    }
}

/// Counts the passes of a kill point; empty in release builds.
#[derive(Debug)]
pub(crate) struct Killer {
    #[cfg(debug_assertions)]
    point: Option<KillPoint>,
    #[cfg(debug_assertions)]
    passes: u64,
}

impl Killer {
    #[cfg(debug_assertions)]
    pub(crate) fn new(config: &StoreConfig) -> Self {
        Self { point: config.kill_point.clone(), passes: 0 }
    }

    #[cfg(not(debug_assertions))]
    pub(crate) fn new(_: &StoreConfig) -> Self {
        Self {}
    }

    /// Ends the process if this is the configured place and pass.
    #[cfg(debug_assertions)]
    pub(crate) fn pass(&mut self, name: &str) {
        if self.due(name) {
            std::process::abort();
        }
    }

    #[cfg(not(debug_assertions))]
    pub(crate) fn pass(&mut self, _: &str) {}

    #[cfg(debug_assertions)]
    fn due(&mut self, name: &str) -> bool {
        let Some(point) = self.point.as_ref().filter(|point| point.name == name) else { return false };
        self.passes += 1;
        self.passes == point.pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(debug_assertions)]
    #[test]
    fn a_kill_point_is_due_once_at_its_pass() {
        let mut config = StoreConfig::new("x");
        config.kill_point = "store.before_commit:2".parse().ok();
        let mut killer = Killer::new(&config);
        let due: Vec<bool> = ["store.before_commit", "store.after_commit", "store.before_commit"]
            .iter()
            .map(|name| killer.due(name))
            .collect();
        assert_eq!(due, [false, false, true]);
        assert!("store.before_commit".parse::<KillPoint>().is_err());
        assert!("x:0".parse::<KillPoint>().is_err());
    }

    #[test]
    fn unknown_settings_are_errors() {
        assert!(serde_json::from_str::<StoreConfig>(r#"{"path":"a.db"}"#).is_ok());
        assert!(serde_json::from_str::<StoreConfig>(r#"{"path":"a.db","pages":1}"#).is_err());
    }
}
