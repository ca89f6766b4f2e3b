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
    in_force: Mutex<SettingsInUse>,
    seen: Mutex<Option<FileStamp>>,
}

/// The settings that the engine uses.
#[derive(Debug)]
struct SettingsInUse {
    /// The values, by name.
    values: BTreeMap<String, String>,
    /// Set if the engine has models: without one, the first that the file names is taken up at once.
    has_model: bool,
}

/// Returns true for a setting of models or of their providers.
fn is_of_models(name: &str) -> bool {
    name.starts_with("models.") || name.starts_with("providers.")
}

impl HomeSettings {
    /// Returns the settings of a home, and whether its engine has models.
    pub(super) fn of_home(context: &Context, config: &Config, has_model: bool) -> Arc<Self> {
        let sources = context.config_sources(None);
        let own = Self {
            home: context.home.clone(),
            env: context.env.clone(),
            flags: sources.flags.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            in_force: Mutex::new(SettingsInUse { values: values_of(config), has_model }),
            seen: Mutex::default(),
        };
        *own.seen.lock().unwrap_or_else(PoisonError::into_inner) = own.stamp();
        Arc::new(own)
    }

    fn stamp(&self) -> Option<FileStamp> {
        let found = fs::metadata(self.home.config_file()).ok()?;
        Some((found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
    }

    /// Notes that the models of a configuration are in use from now on: a later change of them counts from the next start.
    pub(super) fn note_models(&self, config: &Config) {
        let mut now = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        now.values.retain(|name, _| !is_of_models(name));
        now.values.extend(values_of(config).into_iter().filter(|(name, _)| is_of_models(name)));
        now.has_model = true;
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
        let begun = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let names: std::collections::BTreeSet<&String> = begun.values.keys().chain(now.keys()).collect();
        let needs_restart = names
            .into_iter()
            .filter(|name| begun.values.get(*name) != now.get(*name) && !is_live(name))
            .filter(|name| begun.has_model || !is_of_models(name))
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
