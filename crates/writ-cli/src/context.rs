//! The context of every command: the home, the environment, the output.

use std::path::{Path, PathBuf};

use toml::Value;

use crate::args::Global;
use crate::config::{self, Config, ConfigSources};
use crate::env::Env;
use crate::failure::Failure;
use crate::home::Home;
use crate::host::{CommandHost, Streams};
use crate::out::CommandOutput;

/// The context of every command.
#[derive(Debug)]
pub(crate) struct Context {
    /// The home.
    pub(crate) home: Home,
    /// The environment.
    pub(crate) env: Env,
    /// The surroundings that the command was started in.
    pub(crate) host: CommandHost,
    /// The output.
    pub(crate) out: CommandOutput,
    /// Settings from flags.
    flags: Vec<(&'static str, Value)>,
}

impl Context {
    /// Finds the home; touches nothing.
    pub(crate) fn new(global: &Global, host: CommandHost) -> Result<Self, Failure> {
        let env = host.env.clone();
        // `-q` is about standard error; a quiet engine still logs to its file.
        let flags = match global.verbose {
            0 => Vec::new(),
            _ => vec![("log.level", Value::String("debug".to_owned()))],
        };
        // Every command needs a home's path; only some need an existing home.
        let home = Home::find_home_from(&host.folder, global.home.as_deref(), &env)?;
        let out = CommandOutput { json: global.json, quiet: global.quiet, streams: host.streams.clone() };
        Ok(Self { home, env, host, out, flags })
    }

    /// The same, with what flags of a command set of the configuration.
    pub(crate) fn with_flags(mut self, flags: Vec<(&'static str, Value)>) -> Self {
        self.flags.extend(flags);
        self
    }

    /// The same with other streams, for a command that is typed in a conversation.
    pub(crate) fn with_streams(&self, streams: Streams, json: bool) -> Self {
        let host = CommandHost { streams: streams.clone(), ..self.host.clone() };
        let out = CommandOutput { json, quiet: self.out.quiet, streams };
        Self { home: self.home.clone(), env: self.env.clone(), host, out, flags: self.flags.clone() }
    }

    /// The same with another home, for the demo.
    ///
    /// # Errors
    ///
    /// If the path cannot be used.
    pub(crate) fn with_home(home: &Path, other: &Self) -> Result<Self, Failure> {
        // The demo's own home must not read this user's environment.
        let env = Env::default();
        let host = CommandHost { env: env.clone(), ..other.host.clone() };
        let home = Home::find_home_from(&host.folder, Some(home), &env)?;
        Ok(Self { home, env, host, out: other.out.clone(), flags: other.flags.clone() })
    }

    /// Returns a path that was given as an argument, from the current folder of the command.
    pub(crate) fn locate_path(&self, path: &Path) -> PathBuf {
        self.host.folder.join(path)
    }

    /// The configuration, with that of a project.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it.
    pub(crate) fn load_config(&self, project: Option<&Path>) -> Result<Config, Failure> {
        Ok(config::load_config(&self.config_sources(project))?)
    }

    /// Returns the sources of the configuration.
    pub(crate) fn config_sources<'a>(&'a self, project: Option<&'a Path>) -> ConfigSources<'a> {
        ConfigSources { home: &self.home, project, env: &self.env, flags: &self.flags }
    }

    /// The configuration of a home that was set up.
    ///
    /// # Errors
    ///
    /// If `writ init` has not been through with it, or the configuration is not valid.
    pub(crate) fn load_ready_config(&self) -> Result<Config, Failure> {
        self.home.check_set_up()?;
        self.load_config(None)
    }
}
