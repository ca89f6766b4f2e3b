//! The first choice of a model, where none is configured: tried, written into the owner's configuration, and in use at once.

use std::sync::{Arc, OnceLock};

use tokio::sync::{Mutex, MutexGuard};
use writ_models::Models;
use writ_types::api::model::ModelChoice;
use writ_types::error::Report;

/// Access to the owner's configuration of models.
pub trait ModelSource: std::fmt::Debug + Send + Sync {
    /// Resolves a choice, and stores nothing.
    ///
    /// # Errors
    ///
    /// If a name or an address of it cannot be used, or the configuration says otherwise.
    fn prepare(&self, choice: &ModelChoice) -> Result<Models, Report>;

    /// Writes a choice into the configuration, whole or not at all. It may block.
    ///
    /// # Errors
    ///
    /// If the file cannot be written, or has a form that cannot be extended.
    fn store(&self, choice: &ModelChoice) -> Result<(), Report>;
}

/// The models of an engine. It is empty until one is configured or chosen; a model that is there is never replaced.
#[derive(Debug)]
pub(crate) struct ModelSlot {
    models: OnceLock<Models>,
    source: Mutex<Option<Arc<dyn ModelSource>>>,
}

impl ModelSlot {
    /// Makes the slot; without a source, a model is chosen in the configuration alone.
    pub(crate) fn new(models: Option<Models>, source: Option<Arc<dyn ModelSource>>) -> Self {
        Self { models: models.map_or_else(OnceLock::new, OnceLock::from), source: Mutex::new(source) }
    }

    /// Returns the models, if there are any.
    pub(crate) fn get(&self) -> Option<&Models> {
        self.models.get()
    }

    /// Waits until no other choice is being made.
    pub(crate) async fn begin_choice(&self) -> MutexGuard<'_, Option<Arc<dyn ModelSource>>> {
        self.source.lock().await
    }

    /// Takes models into use, unless there are some.
    pub(crate) fn fill(&self, models: Models) {
        // A second choice waits for the first, and finds its models.
        let _unused = self.models.set(models);
    }
}
