//! The first choice of a model, where none is configured: tried, written into the owner's configuration, and in use at once.

use std::sync::{Arc, OnceLock};

use tokio::sync::{Mutex, MutexGuard};
use writ_models::Models;
use writ_types::api::model::ModelChoice;
use writ_types::error::{Exit, Report};

/// Access to the owner's configuration of models.
pub trait ModelSource: std::fmt::Debug + Send + Sync {
    /// Resolves a choice, and stores nothing.
    ///
    /// # Errors
    ///
    /// If a name or an address of it cannot be used, or the configuration says otherwise.
    fn prepare(&self, choice: &ModelChoice) -> Result<Models, Report>;

    /// Returns the models that the configuration names by now; `None`: it names none. It may block.
    ///
    /// # Errors
    ///
    /// If the configuration has a mistake, or its models cannot be used.
    fn read_configured(&self) -> Result<Option<Models>, Report>;

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

    /// Takes the models into use that the configuration names by now, unless there are some: an owner who writes their first model into
    /// the file expects it to answer. Models that are there stay, since turns under way use them.
    ///
    /// # Errors
    ///
    /// If the configuration has a mistake, or its models cannot be used.
    pub(crate) async fn fill_from_config(&self) -> Result<(), Report> {
        let guard = self.source.lock().await;
        let Some(source) = guard.as_ref().filter(|_| self.models.get().is_none()) else { return Ok(()) };
        let source = Arc::clone(source);
        let read = tokio::task::spawn_blocking(move || source.read_configured()).await;
        let broken = |_| {
            Report::new(Exit::Bug, "models.reading", "the configuration was not read")
                .with_hint("start Writ again")
        };
        if let Some(models) = read.map_err(broken)?? {
            tracing::info!("the first model of the configuration is in use");
            self.fill(models);
        }
        Ok(())
    }

    /// Takes models into use, unless there are some.
    pub(crate) fn fill(&self, models: Models) {
        // A second choice waits for the first, and finds its models.
        let _unused = self.models.set(models);
    }
}
