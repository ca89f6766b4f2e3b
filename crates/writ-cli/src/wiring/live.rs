//! The settings of a running engine, read again when the home's file changes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use writ_runtime::live::{ChangeableSettings, ReadSettings, SettingsSource};
use writ_types::error::{Report, ToReport as _};

use crate::config::schema::dotted_path;
use crate::config::{Config, ConfigSources, load_config};
use crate::context::Context;
use crate::env::Env;
use crate::home::Home;

/// The settings that a running engine takes over: names, and beginnings of names that end with a dot. The default profile is none of
/// them, since the profiles of agents were made from it.
const LIVE: [&str; 5] = ["approval_ttl_secs", "continue_after_answer", "context.", "limits.", "timeouts."];
/// The most names of settings that need a restart.
const MAX_NAMED: usize = 20;

/// The part of a configuration that may change while the engine runs.
pub(super) fn live_settings(config: &Config) -> ChangeableSettings {
    ChangeableSettings {
        approval_ttl: std::time::Duration::from_secs(config.general.approval_ttl_secs),
        continue_after_answer: config.general.continue_after_answer,
        agent_config: config.turn.clone(),
        timeouts: config.timeouts.clone(),
    }
}

/// The identity of a file's content: device, node, size, and the second and nanosecond of its last change.
type FileStamp = (u64, u64, u64, i64, i64);

/// The configuration of a home, as the engine was started with it, and its sources.
#[derive(Debug)]
pub(super) struct HomeSettings {
    home: Home,
    env: Env,
    flags: Vec<(String, toml::Value)>,
    /// The values at the start, by name.
    begun: BTreeMap<String, String>,
    /// Set if models were configured at the start: a first choice of one is in force at once.
    has_model: bool,
    seen: Mutex<Option<FileStamp>>,
}

impl HomeSettings {
    /// Returns the settings of a home.
    pub(super) fn of_home(context: &Context, config: &Config) -> Arc<Self> {
        let sources = context.config_sources(None);
        let own = Self {
            home: context.home.clone(),
            env: context.env.clone(),
            flags: sources.flags.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            begun: values_of(config),
            has_model: config.models.models.default.is_some(),
            seen: Mutex::default(),
        };
        *own.seen.lock().unwrap_or_else(PoisonError::into_inner) = own.stamp();
        Arc::new(own)
    }

    fn stamp(&self) -> Option<FileStamp> {
        let found = fs::metadata(self.home.config_file()).ok()?;
        Some((found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
    }

    /// Reads the whole configuration as it is now.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or has a mistake.
    pub(super) fn load_config(&self) -> Result<Config, Report> {
        let flags: Vec<(&str, toml::Value)> =
            self.flags.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let sources = ConfigSources { home: &self.home, project: None, env: &self.env, flags: &flags };
        load_config(&sources).map_err(|error| error.report())
    }

    fn read(&self) -> Result<ReadSettings, Report> {
        let config = self.load_config()?;
        let now = values_of(&config);
        let is_live = |name: &str| {
            let is = |live: &&str| name == *live || (live.ends_with('.') && name.starts_with(*live));
            name != "context.default_profile" && LIVE.iter().any(is)
        };
        let names: std::collections::BTreeSet<&String> = self.begun.keys().chain(now.keys()).collect();
        let needs_restart = names
            .into_iter()
            .filter(|name| self.begun.get(*name) != now.get(*name) && !is_live(name))
            .filter(|name| self.has_model || !(name.starts_with("models.") || name.starts_with("providers.")))
            .take(MAX_NAMED)
            .cloned()
            .collect();
        Ok(ReadSettings { live: live_settings(&config), needs_restart })
    }
}

impl SettingsSource for HomeSettings {
    fn read_changed(&self) -> Option<Result<ReadSettings, Report>> {
        let stamp = self.stamp();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == stamp {
            return None;
        }
        *seen = stamp;
        drop(seen);
        Some(self.read())
    }
}

fn values_of(config: &Config) -> BTreeMap<String, String> {
    config.effective.iter().map(|(path, value)| (dotted_path(path), value.value.to_string())).collect()
}
