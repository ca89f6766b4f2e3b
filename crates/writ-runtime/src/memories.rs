//! The memory of the engine: the index of vectors that searches use, and the state of the embedder.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use writ_memory::codes::{CodeIndex, SharedIndex};
use writ_memory::embedder::MAX_BATCH;
use writ_store::batch::{Batch, Op};
use writ_store::memory::VectorSpace;
use writ_store::reads::{MemoryReads as _, SettingReads as _};
use writ_types::api::memory::{CuratedProfile, ProfileView};
use writ_types::unit::Timestamp;

use crate::config::MemorySettings;
use crate::error::EngineError;
use crate::journal::Journal;
use crate::session::Session;

/// Codes that one read brings from the disk.
const CODES_AT_ONCE: usize = 10_000;

/// The time for which an embedder that is away is not asked again: a message does not wait for it each time.
const EMBEDDER_REST: Duration = Duration::from_secs(30);

/// The memory's state in this process.
#[derive(Debug)]
pub(crate) struct Memories {
    journal: Arc<Journal>,
    pub(crate) settings: MemorySettings,
    /// Counts the memories that may want a vector.
    pub(crate) added: Arc<AtomicU64>,
    serving: Mutex<Option<(VectorSpace, Arc<SharedIndex>)>>,
    /// The time until which the embedder is left alone, and why.
    away: Mutex<Option<(Timestamp, String)>>,
    /// The provider that has asked for a wait, and until when.
    asked_wait: Mutex<Option<(String, Timestamp)>>,
    /// The model of the last vectors, and their dimension: a model can change it.
    dimension: Mutex<Option<(String, u32)>>,
    /// The texts of one request that the embedder takes, as far as is known.
    batch_limit: AtomicUsize,
    /// The session under which the engine asks models for itself.
    session: Mutex<Option<Arc<Session>>>,
    /// The curated profile of the owner, once it was read.
    curated: Mutex<Option<Arc<Option<CuratedProfile>>>>,
    /// True once there was a memory: most homes have some.
    has_any: AtomicBool,
    /// Held by a digest: there is one at a time.
    pub(crate) digesting: tokio::sync::Mutex<()>,
}

/// The setting with the curated profile and the last digest.
const DIGEST: &str = "memory.digest";

/// The state of the digest, as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DigestState {
    /// What the owner sees of it.
    #[serde(default)]
    pub(crate) view: ProfileView,
    /// The last row of the memories that it has looked at.
    #[serde(default)]
    pub(crate) upto: i64,
    /// The name of the memories that it has read.
    #[serde(default)]
    pub(crate) fingerprint: String,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is replaced whole, so a panic elsewhere leaves none half-written.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memories {
    pub(crate) fn new(journal: Arc<Journal>, settings: MemorySettings) -> Self {
        Self {
            journal,
            settings,
            added: Arc::default(),
            serving: Mutex::default(),
            away: Mutex::default(),
            asked_wait: Mutex::default(),
            dimension: Mutex::default(),
            batch_limit: AtomicUsize::new(MAX_BATCH),
            session: Mutex::default(),
            curated: Mutex::default(),
            has_any: AtomicBool::new(false),
            digesting: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the state of the digest; one that cannot be read counts as none.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) async fn digest_state(&self) -> Result<DigestState, EngineError> {
        let stored = self.journal.store.setting(DIGEST).await?;
        Ok(stored.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default())
    }

    /// Stores the state of the digest together with other operations; contexts have its profile from then on.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    pub(crate) async fn store_digest(
        &self,
        state: &DigestState,
        mut ops: Vec<Op>,
    ) -> Result<(), EngineError> {
        let value = serde_json::to_value(state).map_err(|error| EngineError::Machine(error.to_string()))?;
        ops.push(Op::Set { key: DIGEST.to_owned(), value });
        self.journal.store.commit(Batch::synced(ops)).await?;
        *lock(&self.curated) = Some(Arc::new(state.view.profile.clone()));
        Ok(())
    }

    /// Returns true if there is any memory, or was since the start.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) async fn has_any(&self) -> Result<bool, EngineError> {
        if !self.has_any.load(Ordering::Relaxed) && !self.journal.store.memories_after(0, 1).await?.is_empty()
        {
            self.has_any.store(true, Ordering::Relaxed);
        }
        Ok(self.has_any.load(Ordering::Relaxed))
    }

    /// Returns the curated profile, if there is one.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) async fn curated(&self) -> Result<Arc<Option<CuratedProfile>>, EngineError> {
        if let Some(curated) = lock(&self.curated).clone() {
            return Ok(curated);
        }
        let read = Arc::new(self.digest_state().await?.view.profile);
        // A digest that has ended meanwhile has a newer one.
        Ok(Arc::clone(lock(&self.curated).get_or_insert(read)))
    }

    /// Returns the space that searches use and its index; `None`: there are no vectors. The first call reads the codes.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) async fn serving(&self) -> Result<Option<(VectorSpace, Arc<SharedIndex>)>, EngineError> {
        if let Some(serving) = lock(&self.serving).clone() {
            return Ok(Some(serving));
        }
        let spaces = self.journal.store.vector_spaces().await?;
        match spaces.into_iter().find(|space| space.serving) {
            Some(space) => self.load_index(space).await.map(Some),
            None => Ok(None),
        }
    }

    /// Reads the codes of a space, and lets searches use them.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) async fn load_index(
        &self,
        space: VectorSpace,
    ) -> Result<(VectorSpace, Arc<SharedIndex>), EngineError> {
        let dimension = usize::try_from(space.dimension).unwrap_or(usize::MAX);
        let (mut codes, mut row) = (CodeIndex::new(dimension), 0);
        loop {
            let read = self.journal.store.codes_after(space.id, row, CODES_AT_ONCE).await?;
            for stored in &read {
                codes.put(stored.row, &stored.code);
                row = stored.row;
            }
            if read.len() < CODES_AT_ONCE {
                break;
            }
        }
        let serving = (space.clone(), Arc::new(SharedIndex::new(space.id, codes)));
        *lock(&self.serving) = Some(serving.clone());
        Ok(serving)
    }

    /// Returns why the embedder is not asked now; `None`: it may be.
    pub(crate) fn why_away(&self, now: Timestamp) -> Option<String> {
        let away = lock(&self.away);
        away.as_ref().filter(|(until, _)| now < *until).map(|(_, why)| why.clone())
    }

    /// Notes that the embedder did not answer, or (`None`) that it did.
    pub(crate) fn note_embedder(&self, failed: Option<&str>, now: Timestamp) {
        *lock(&self.away) = failed.map(|why| (now.plus_duration(EMBEDDER_REST), why.to_owned()));
    }

    /// Returns the rest of the wait that a provider of vectors has asked for; `None`: it may be asked.
    pub(crate) fn wait_left(&self, provider: &str, now: Timestamp) -> Option<Duration> {
        let asked = lock(&self.asked_wait);
        let until = asked.as_ref().filter(|(name, until)| name == provider && now < *until)?.1;
        Some(until.time_since(now))
    }

    /// Notes that a provider of vectors has asked for a wait.
    pub(crate) fn note_wait(&self, provider: &str, until: Timestamp) {
        *lock(&self.asked_wait) = Some((provider.to_owned(), until));
    }

    /// Returns the dimension of a model's last vectors, if it has answered since the start.
    pub(crate) fn dimension_of(&self, model: &str) -> Option<u32> {
        lock(&self.dimension).as_ref().filter(|(name, _)| name == model).map(|(_, dimension)| *dimension)
    }

    /// Notes the dimension of a model's vectors.
    pub(crate) fn note_dimension(&self, model: &str, dimension: u32) {
        *lock(&self.dimension) = Some((model.to_owned(), dimension));
    }

    /// Returns the number of texts of one request to the embedder.
    pub(crate) fn batch_limit(&self) -> usize {
        self.batch_limit.load(Ordering::Relaxed)
    }

    /// Lowers that number: some servers take ten texts, others a hundred.
    pub(crate) fn limit_batch(&self, most: usize) {
        self.batch_limit.fetch_min(most.max(1), Ordering::Relaxed);
    }

    /// Removes the codes of memories that are forgotten or put aside from the index, if it was read.
    pub(crate) fn drop_codes(&self, rows: impl IntoIterator<Item = i64>) {
        let serving = lock(&self.serving).clone();
        if let Some((_, index)) = serving {
            index.remove_all(rows);
        }
    }

    /// Returns the session under which vectors are requested, if one is open.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        lock(&self.session).clone()
    }

    /// Replaces that session.
    pub(crate) fn set_session(&self, session: Option<Arc<Session>>) {
        *lock(&self.session) = session;
    }
}
