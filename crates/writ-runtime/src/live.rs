//! The settings that a running engine takes over when their file changes.
//!
//! What is read anew is checked as a whole first: a file that cannot stand changes nothing, and the settings of before stay in
//! force. Everything that is not listed here is read once, at the start; a changed value of it is named until the next start.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use writ_agent::config::AgentConfig;
use writ_tools::config::ToolTimeouts;
use writ_types::api::status::SettingsStatus;
use writ_types::error::Report;

/// SettingsInForce that may change while the engine runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangeableSettings {
    /// The time after which an open ask expires.
    pub approval_ttl: Duration,
    /// Opens a new turn if a question is answered after its turn has ended.
    pub continue_after_answer: bool,
    /// Limits of a turn and of its context.
    pub agent_config: AgentConfig,
    /// Time limits of tools.
    pub timeouts: ToolTimeouts,
}

/// SettingsInForce that were read anew.
#[derive(Clone, Debug)]
pub struct ReadSettings {
    /// Those that are taken over.
    pub live: ChangeableSettings,
    /// The names of others that differ from those in force.
    pub needs_restart: Vec<String>,
}

/// The owner's settings, read again.
pub trait SettingsSource: std::fmt::Debug + Send + Sync {
    /// Returns the settings if their file has changed since the last look; the error says why they cannot stand.
    fn read_changed(&self) -> Option<Result<ReadSettings, Report>>;
}

/// SettingsInForce that never change, such as those of an engine inside a test.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedSettings;

impl SettingsSource for FixedSettings {
    fn read_changed(&self) -> Option<Result<ReadSettings, Report>> {
        None
    }
}

/// The settings in force.
#[derive(Debug)]
pub(crate) struct SettingsInForce {
    source: Arc<dyn SettingsSource>,
    now: RwLock<Arc<ChangeableSettings>>,
    status: Mutex<SettingsStatus>,
}

impl SettingsInForce {
    pub(crate) fn new(source: Arc<dyn SettingsSource>, begun: ChangeableSettings) -> Self {
        Self { source, now: RwLock::new(Arc::new(begun)), status: Mutex::default() }
    }

    /// Returns those of this moment. What has begun goes on with those that it began with.
    pub(crate) fn now(&self) -> Arc<ChangeableSettings> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn status(&self) -> SettingsStatus {
        self.lock().clone()
    }

    /// Takes over what has changed; it reads a file. Returns true if the file has changed, and can stand.
    pub(crate) fn look(&self) -> bool {
        let Some(read) = self.source.read_changed() else { return false };
        match read {
            Ok(ReadSettings { live, needs_restart }) => {
                let is_other = *self.now() != live;
                if is_other {
                    *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(live);
                }
                tracing::info!(is_other, ?needs_restart, "the settings were read anew");
                let mut status = self.lock();
                status.changes = status.changes.saturating_add(u64::from(is_other));
                (status.fault, status.needs_restart) = (None, needs_restart);
                true
            }
            Err(report) => {
                tracing::error!(
                    error = report.inside,
                    "the settings cannot stand; those of before stay in force"
                );
                self.lock().fault = Some(report.outside);
                false
            }
        }
    }

    /// Notes why a part of the file is not in force.
    pub(crate) fn note_fault(&self, why: String) {
        self.lock().fault = Some(why);
    }

    fn lock(&self) -> MutexGuard<'_, SettingsStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
