//! The owner's plugins: `plugins/NAME/`, each with the manifest that its author wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use writ_mcp::config::{MAX_SERVERS, ServerName};
use writ_types::error::{Exit, Report, ToReport};

use super::plain_text::{PlainTextError, open_plain, read_plain_text};
use crate::home::{Home, HomeError, make_folder};

/// The version of the interface that plugins are written for.
pub(crate) const API_VERSION: u32 = 1;
/// The kind of a plugin that offers tools.
const TOOLS: &str = "tools";
/// The name of a manifest.
pub(crate) const MANIFEST: &str = "plugin.toml";
/// The largest manifest, in bytes.
const MAX_MANIFEST_BYTES: u64 = 64 * 1024;
/// The most files and folders of a plugin.
const MAX_ENTRIES: usize = 2_000;
/// The most bytes of a plugin's files.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// The longest unknown kind that an error shows, in characters.
const MAX_SHOWN_CHARS: usize = 60;
/// The deepest folder of a plugin.
const MAX_DEPTH: usize = 16;
/// The longest version and the longest word of the command, in bytes.
const MAX_WORD: usize = 1024;
/// The most words of the command, and the most tools.
const MAX_WORDS: usize = 64;

/// A plugin that cannot be read or loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PluginError {
    /// A file or folder cannot be used.
    #[error("{path} cannot be used: {source}")]
    Unusable {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The folder has no manifest.
    #[error("{folder} has no {MANIFEST}")]
    NoManifest {
        /// The folder.
        folder: PathBuf,
    },
    /// The manifest says something that cannot stand.
    #[error("{path}: {why}")]
    Wrong {
        /// Its path.
        path: PathBuf,
        /// The problem.
        why: String,
    },
    /// It is written for another version of the interface.
    #[error("{path}: it is written for api_version {found}, and this is api_version {API_VERSION}")]
    OtherVersion {
        /// The path of the manifest.
        path: PathBuf,
        /// The version that it names.
        found: u32,
    },
    /// Its files are no plugin's.
    #[error("{path}: {why}")]
    Files {
        /// The file or folder.
        path: PathBuf,
        /// The problem.
        why: String,
    },
    /// The folder of plugins cannot be made.
    #[error(transparent)]
    Folder(#[from] HomeError),
}

impl ToReport for PluginError {
    fn report(&self) -> Report {
        let (exit, hint) = match self {
            Self::Unusable { .. } => (Exit::Config, "check its owner and mode"),
            Self::NoManifest { .. } => (Exit::Usage, "name the folder in which the manifest lies"),
            Self::Wrong { .. } => (Exit::Config, "correct the manifest; the guide of plugins shows one"),
            Self::OtherVersion { .. } => (Exit::Config, "ask its author for a version that fits"),
            Self::Files { .. } => (Exit::Config, "a plugin has plain files and folders, and few of them"),
            Self::Folder(error) => return error.report(),
        };
        Report::new(exit, "plugins.file", self.to_string()).with_hint(hint)
    }
}

/// The manifest of a plugin.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PluginManifest {
    /// The plugin itself.
    pub(crate) plugin: PluginHead,
    /// Its tools. Default: none.
    #[serde(default)]
    pub(crate) tools: Vec<PluginTool>,
    /// Settings that its program is given as JSON in `$WRIT_PLUGIN_CONFIG`. Default: none.
    #[serde(default)]
    pub(crate) config: toml::Table,
}

/// What a manifest says of the plugin itself.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PluginHead {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// The version of the interface that it is written for.
    pub(crate) api_version: u32,
    /// Its description. Default: none.
    #[serde(default)]
    pub(crate) description: String,
    /// Its kind. Default: [`TOOLS`], the only one.
    #[serde(default = "usual_kind")]
    pub(crate) kind: String,
    /// The program and its arguments, as they are found in its folder.
    pub(crate) command: Vec<String>,
}

fn usual_kind() -> String {
    TOOLS.to_owned()
}

/// A tool of a plugin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PluginTool {
    /// Its name.
    pub(crate) name: String,
    /// Its description. Default: none.
    #[serde(default)]
    pub(crate) description: String,
}

/// A plugin that is there, with what its manifest has beyond what is known.
#[derive(Clone, Debug)]
pub(crate) struct Plugin {
    pub(crate) name: ServerName,
    pub(crate) manifest: PluginManifest,
    pub(crate) warnings: Vec<String>,
}

/// The keys of the parts of a manifest.
const KNOWN: [(&str, &[&str]); 2] = [
    ("plugin", &["name", "version", "api_version", "description", "kind", "command"]),
    ("tools", &["name", "description"]),
];

/// Reads the plugin of a folder.
///
/// # Errors
///
/// If it has no manifest, or that cannot stand.
pub(crate) fn read_plugin(folder: &Path) -> Result<Plugin, PluginError> {
    let path = folder.join(MANIFEST);
    let text = read_text(&path)?.ok_or_else(|| PluginError::NoManifest { folder: folder.to_owned() })?;
    let wrong = |why: String| PluginError::Wrong { path: path.clone(), why };
    let of_toml = |error: toml::de::Error| {
        let line =
            error.span().and_then(|span| text.get(..span.start)).map_or(0, |text| text.matches('\n').count());
        wrong(format!("line {}: {}", line + 1, error.message().lines().next().unwrap_or_default()))
    };
    let table: toml::Table = toml::from_str(&text).map_err(of_toml)?;
    // The version first: a manifest of another one may have other fields.
    let version = table.get("plugin").and_then(|plugin| plugin.get("api_version"));
    if let Some(found) = version.and_then(toml::Value::as_integer).and_then(|found| u32::try_from(found).ok())
        && found != API_VERSION
    {
        return Err(PluginError::OtherVersion { path, found });
    }
    let manifest: PluginManifest = toml::from_str(&text).map_err(of_toml)?;
    let name = manifest.plugin.name.parse::<ServerName>().map_err(|error| wrong(format!("name: {error}")))?;
    check_manifest(&manifest).map_err(wrong)?;
    Ok(Plugin { name, warnings: unknown_keys(&table), manifest })
}

/// Returns the problem of a manifest.
fn check_manifest(manifest: &PluginManifest) -> Result<(), String> {
    let head = &manifest.plugin;
    let is_word = |word: &String| !word.is_empty() && word.len() <= MAX_WORD && !word.contains('\0');
    if !is_word(&head.version) || head.version.contains(char::is_whitespace) {
        return Err(format!("version: it has 1 to {MAX_WORD} bytes and no spaces"));
    }
    // Which model is asked, which phases work passes and what a workflow says is decided by the engine, from data alone.
    if head.kind != TOOLS {
        let kind: String =
            writ_types::visible::escape_line(&head.kind).chars().take(MAX_SHOWN_CHARS).collect();
        return Err(format!("kind: '{kind}' is none of a plugin; plugins are of the kind '{TOOLS}'"));
    }
    // A word with a NUL would be cut where the program is started.
    if head.command.is_empty() || head.command.len() > MAX_WORDS || !head.command.iter().all(is_word) {
        return Err(format!("command: it has 1 to {MAX_WORDS} words of at most {MAX_WORD} bytes"));
    }
    if manifest.tools.len() > MAX_WORDS {
        return Err(format!("tools: there are more than {MAX_WORDS}"));
    }
    let mut names = BTreeSet::new();
    match manifest.tools.iter().find(|tool| !names.insert(&tool.name)) {
        Some(twice) => {
            Err(format!("tools: '{}' is there twice", writ_types::visible::escape_line(&twice.name)))
        }
        None => Ok(()),
    }
}

/// Returns a warning for each key that is not known. Hooks are the owner's to set up, in `config.toml`.
fn unknown_keys(table: &toml::Table) -> Vec<String> {
    let mut warnings = Vec::new();
    for (part, value) in table {
        // Its keys are the plugin's own.
        if part == "config" {
            continue;
        }
        let Some((_, known)) = KNOWN.iter().find(|(name, _)| name == part) else {
            warnings.push(format!("unknown key '{}'", writ_types::visible::escape_line(part)));
            continue;
        };
        let rows = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
        let keys: BTreeSet<&String> =
            rows.iter().filter_map(toml::Value::as_table).flat_map(|row| row.keys()).collect();
        let unknown = keys.into_iter().filter(|key| !known.contains(&key.as_str()));
        warnings.extend(
            unknown.map(|key| format!("unknown key '{part}.{}'", writ_types::visible::escape_line(key))),
        );
    }
    warnings
}

fn read_text(path: &Path) -> Result<Option<String>, PluginError> {
    read_plain_text(path, MAX_MANIFEST_BYTES).map_err(|error| match error {
        PlainTextError::Io(source) => PluginError::Unusable { path: path.to_owned(), source },
        PlainTextError::Wrong(why) => PluginError::Wrong { path: path.to_owned(), why },
    })
}

/// Returns the plugins of a home, by name, with the reasons against those that cannot be used. A folder without a manifest is none.
///
/// # Errors
///
/// If the folder cannot be read.
pub(crate) fn list_plugins(home: &Home) -> Result<(Vec<Plugin>, Vec<String>), PluginError> {
    let folder = home.plugins();
    let unusable = |source| PluginError::Unusable { path: folder.clone(), source };
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), Vec::new())),
        Err(source) => return Err(unusable(source)),
    };
    let (mut found, mut left_out) = (BTreeMap::new(), Vec::new());
    for entry in entries.take(MAX_SERVERS.saturating_mul(4)) {
        let entry = entry.map_err(unusable)?;
        let kind = entry.file_type().map_err(unusable)?;
        // What a link leads to is not the home's.
        if kind.is_symlink() {
            left_out.push(format!("{}: it is a link", entry.path().display()));
            continue;
        }
        match read_plugin(&entry.path()) {
            Ok(plugin) if entry.file_name().to_str() == Some(plugin.name.as_str()) => {
                found.insert(plugin.name.clone(), plugin);
            }
            Ok(plugin) => {
                left_out.push(format!("{}: its manifest names '{}'", entry.path().display(), plugin.name))
            }
            // A file beside the folders, or a folder of something else.
            Err(PluginError::NoManifest { .. }) => {}
            Err(_) if !kind.is_dir() => {}
            Err(error) => left_out.push(error.to_string()),
        }
    }
    left_out.sort();
    Ok((found.into_values().collect(), left_out))
}

/// Copies the files of a plugin into the home. Whatever is there of that name is no plugin that is loaded, and goes.
///
/// # Errors
///
/// If a file cannot be copied, or is no plain file or folder, or there are too many.
pub(crate) fn copy_plugin(home: &Home, from: &Path, name: &ServerName) -> Result<(), PluginError> {
    make_folder(&home.plugins())?;
    let (place, fresh) = (home.plugins().join(name.as_str()), home.plugins().join(format!(".{name}.new")));
    // A copy that was cut off before.
    remove_folder(&fresh)?;
    let mut room = (MAX_ENTRIES, MAX_BYTES);
    copy_folder(from, &fresh, (&mut room, 0))?;
    remove_folder(&place)?;
    fs::rename(&fresh, &place).map_err(|source| PluginError::Unusable { path: place.clone(), source })
}

fn copy_folder(from: &Path, to: &Path, (room, depth): (&mut (usize, u64), usize)) -> Result<(), PluginError> {
    let unusable = |path: &Path, source| PluginError::Unusable { path: path.to_owned(), source };
    let refuse = |path: &Path, why: String| PluginError::Files { path: path.to_owned(), why };
    if depth > MAX_DEPTH {
        return Err(refuse(from, format!("it lies deeper than {MAX_DEPTH} folders")));
    }
    make_folder(to)?;
    for entry in fs::read_dir(from).map_err(|error| unusable(from, error))? {
        let entry = entry.map_err(|error| unusable(from, error))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        room.0 = room
            .0
            .checked_sub(1)
            .ok_or_else(|| refuse(from, format!("there are more than {MAX_ENTRIES} files")))?;
        let kind = entry.file_type().map_err(|error| unusable(&path, error))?;
        // Its files count with all others.
        if kind.is_dir() {
            copy_folder(&path, &target, (room, depth + 1))?;
            continue;
        }
        if !kind.is_file() {
            return Err(refuse(&path, "it is no plain file".to_owned()));
        }
        let source = open_plain(&path).map_err(|error| unusable(&path, error))?;
        let mode = source.metadata().map_err(|error| unusable(&path, error))?;
        let mut made = File::create_new(&target).map_err(|error| unusable(&target, error))?;
        // One byte more than there is room for shows that there is more.
        let copied = io::copy(&mut source.take(room.1.saturating_add(1)), &mut made);
        let copied = copied.map_err(|error| unusable(&target, error))?;
        room.1 = room
            .1
            .checked_sub(copied)
            .ok_or_else(|| refuse(from, format!("its files have more than {MAX_BYTES} bytes")))?;
        // So that a program of it stays one.
        made.set_permissions(mode.permissions()).map_err(|error| unusable(&target, error))?;
    }
    Ok(())
}

/// Removes the files of a plugin.
///
/// # Errors
///
/// If they cannot be removed.
pub(crate) fn remove_plugin(home: &Home, name: &ServerName) -> Result<(), PluginError> {
    remove_folder(&home.plugins().join(name.as_str()))
}

fn remove_folder(path: &Path) -> Result<(), PluginError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(PluginError::Unusable { path: path.to_owned(), source: error })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
