//! The table `[memory]` of the configuration.

use std::path::PathBuf;

use jiff::civil::Weekday;
use serde::{Deserialize, Serialize};
use writ_types::calendar::{DayTime, Recurrence};

/// The source of the vectors of memories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmbedderKind {
    /// None: memories are found by their words.
    #[default]
    None,
    /// The model of `models.roles.embedding`, asked over the network.
    Model,
    /// A model that is read from a folder of this machine.
    Local,
}

/// The time of the digest, unless another is set: the early morning of Sunday.
const DIGEST_TIME: Recurrence = match DayTime::new(4, 0) {
    Some(four) => Recurrence::Weekly(Weekday::Sunday, four),
    None => Recurrence::Off,
};

/// Settings of the memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryConfig {
    /// The embedder. Default: none.
    pub embedder: EmbedderKind,
    /// The folder of the local model, with `config.json`, `model.safetensors` and `tokenizer.json` or `vocab.txt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// The most memories that are put into a context for one message. Default: 8.
    pub recall_limit: u32,
    /// The time between two consolidations, in minutes. Default: 30 (SIL-390).
    pub consolidate_minutes: u32,
    /// The age from which a memory that nothing used is archived, in days. Default: 60 (WIN-332).
    pub stale_days: u32,
    /// The number of uses from which the owner is asked to verify a memory. Default: 5.
    pub promote_uses: u32,
    /// The time at which the memories are distilled into the owner's profile. Default: Sunday at four (WIN-328).
    pub digest: Recurrence,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            embedder: EmbedderKind::None,
            folder: None,
            recall_limit: 8,
            consolidate_minutes: 30,
            stale_days: 60,
            promote_uses: 5,
            digest: DIGEST_TIME,
        }
    }
}

/// The reason why the settings do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryConfigError {
    /// The local embedder has no folder.
    #[error("'memory.embedder' is \"local\" and 'memory.folder' is not set")]
    NoFolder,
}

impl MemoryConfig {
    /// Checks that the settings fit together.
    ///
    /// # Errors
    ///
    /// If a local embedder has no folder.
    pub fn check_settings(&self) -> Result<(), MemoryConfigError> {
        match (self.embedder, &self.folder) {
            (EmbedderKind::Local, None) => Err(MemoryConfigError::NoFolder),
            // Other embedders leave the folder unused; it may stay in the file.
            (EmbedderKind::None | EmbedderKind::Model, _) | (EmbedderKind::Local, Some(_)) => Ok(()),
        }
    }
}
