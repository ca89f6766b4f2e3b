//! The owner's servers of tools: `mcp/NAME.toml`, and beside each what was pinned of it.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::SecretString;
use serde::Deserialize;
use writ_mcp::config::{MAX_FILE_BYTES, MAX_SERVERS, ServerName, ServerSpec};
use writ_mcp::definition::Pins;
use writ_runtime::servers::{Server, ServerSource};
use writ_secrets::store::SecretStore;
use writ_types::action::TOOL_LIST;
use writ_types::credential::Reference;
use writ_types::error::{Exit, Report, ToReport};

use super::plain_text::{PlainTextError, read_plain_text};
use crate::home::{Home, HomeError, make_folder};

/// The suffix of a server's file.
const SPEC: &str = "toml";
/// The suffix of the file of its pins.
const PINS: &str = "pins.json";
/// The largest file of pins: what all tools of a server take at most.
const MAX_PINS_BYTES: u64 = 16 * 1024 * 1024;
/// The most entries of the folder that are looked at.
const MAX_ENTRIES: usize = 4 * MAX_SERVERS;

/// A server that cannot be read, or cannot stand.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServersError {
    /// A file or the folder cannot be used.
    #[error("{name} cannot be used: {source}")]
    Unusable {
        /// Its path, relative to the home.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file says something that cannot stand. Its text is not repeated: it may be a secret.
    #[error("{name}: {why}")]
    Wrong {
        /// Its path, relative to the home.
        name: String,
        /// The problem.
        why: String,
    },
    /// Too many servers.
    #[error("mcp/ holds more than {MAX_SERVERS} servers")]
    TooMany,
    /// The folder cannot be made.
    #[error(transparent)]
    Folder(#[from] HomeError),
}

impl ToReport for ServersError {
    fn report(&self) -> Report {
        let hint = match self {
            Self::Unusable { .. } => "check its owner and mode",
            Self::Wrong { .. } => "correct the file, or remove the server with `writ mcp remove`",
            Self::TooMany => "remove some with `writ mcp remove`",
            Self::Folder(error) => return error.report(),
        };
        Report::new(Exit::Config, "mcp.file", self.to_string()).with_hint(hint)
    }
}

fn server_file(home: &Home, name: &ServerName, kind: &str) -> PathBuf {
    home.servers().join(format!("{name}.{kind}"))
}

fn shown_path(name: &ServerName, kind: &str) -> String {
    format!("mcp/{name}.{kind}")
}

/// Every server of a home, by name.
///
/// # Errors
///
/// If any cannot be read or cannot stand.
pub(crate) fn load_servers(home: &Home) -> Result<Vec<Server>, ServersError> {
    let unusable = |source| ServersError::Unusable { name: "mcp".to_owned(), source };
    let entries = match fs::read_dir(home.servers()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(unusable(source)),
    };
    let mut names = Vec::new();
    for (number, entry) in entries.enumerate() {
        // Counted with files that are no servers: the folder may hold anything.
        if number >= MAX_ENTRIES {
            return Err(ServersError::TooMany);
        }
        let name = entry.map_err(unusable)?.file_name();
        let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".toml")) else { continue };
        let wrong = |why: writ_mcp::config::InvalidName| ServersError::Wrong {
            name: format!("mcp/{}.toml", writ_types::visible::escape_line(name)),
            why: why.to_string(),
        };
        names.push(name.parse::<ServerName>().map_err(wrong)?);
    }
    if names.len() > MAX_SERVERS {
        return Err(ServersError::TooMany);
    }
    // The order of a folder is arbitrary; that of the tools offered must not be.
    names.sort();
    names.iter().filter_map(|name| read_server(home, name).transpose()).collect()
}

/// The list of the tools that are not offered.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolList {
    set_aside: BTreeSet<String>,
}

/// The tools of servers that are not offered, by the names that models know; none without a list.
///
/// # Errors
///
/// If the list cannot be read or cannot stand.
fn read_aside(home: &Home) -> Result<BTreeSet<String>, ServersError> {
    let name = format!("agent/{TOOL_LIST}");
    let Some(text) = text_of(&home.agent().join(TOOL_LIST), &name, MAX_FILE_BYTES)? else {
        return Ok(BTreeSet::new());
    };
    let list: ToolList = toml::from_str(&text).map_err(|error| {
        let why = error.message().lines().next().unwrap_or_default().to_owned();
        ServersError::Wrong { name, why }
    })?;
    Ok(list.set_aside)
}

/// One server; `None`: there is none with this name.
///
/// # Errors
///
/// If it cannot be read or cannot stand.
pub(crate) fn read_server(home: &Home, name: &ServerName) -> Result<Option<Server>, ServersError> {
    let Some(text) = text_of(&server_file(home, name, SPEC), &shown_path(name, SPEC), MAX_FILE_BYTES)? else {
        return Ok(None);
    };
    let wrong = |why: String| ServersError::Wrong { name: shown_path(name, SPEC), why };
    let spec: ServerSpec = toml::from_str(&text).map_err(|error| {
        let line = error
            .span()
            .and_then(|span| text.get(..span.start))
            .map_or(0, |before| before.matches('\n').count())
            + 1;
        wrong(format!("line {line}: {}", error.message().lines().next().unwrap_or_default()))
    })?;
    spec.check_settings().map_err(|error| wrong(error.to_string()))?;
    let pins = match text_of(&server_file(home, name, PINS), &shown_path(name, PINS), MAX_PINS_BYTES)? {
        None => Pins::default(),
        Some(text) => Pins::parse_pins(&text)
            .map_err(|error| ServersError::Wrong { name: shown_path(name, PINS), why: error.to_string() })?,
    };
    Ok(Some(Server { name: name.clone(), spec, pins }))
}

/// Reads a file; `None`: there is none.
fn text_of(path: &Path, name: &str, max: u64) -> Result<Option<String>, ServersError> {
    read_plain_text(path, max).map_err(|error| match error {
        PlainTextError::Io(source) => ServersError::Unusable { name: name.to_owned(), source },
        PlainTextError::Wrong(why) => ServersError::Wrong { name: name.to_owned(), why },
    })
}

/// Writes the pins of a server, whole or not at all.
///
/// # Errors
///
/// If they cannot be written.
pub(crate) fn write_pins(home: &Home, name: &ServerName, pins: &Pins) -> Result<(), ServersError> {
    let wrong = |why: String| ServersError::Wrong { name: shown_path(name, PINS), why };
    let text = pins.to_text().map_err(|error| wrong(error.to_string()))?;
    write_server(home, name, PINS, &text)
}

/// Writes a new server: its pins first, so that it is never there without them.
///
/// # Errors
///
/// If it cannot be written.
pub(crate) fn write_new(home: &Home, server: &Server) -> Result<(), ServersError> {
    make_folder(&home.servers())?;
    write_pins(home, &server.name, &server.pins)?;
    let wrong = |why: String| ServersError::Wrong { name: shown_path(&server.name, SPEC), why };
    let text = toml::to_string(&server.spec).map_err(|error| wrong(error.to_string()))?;
    write_server(home, &server.name, SPEC, &text)
}

fn write_server(home: &Home, name: &ServerName, kind: &str, text: &str) -> Result<(), ServersError> {
    let unusable = |source| ServersError::Unusable { name: shown_path(name, kind), source };
    let (path, fresh) = (server_file(home, name, kind), server_file(home, name, &format!("{kind}.new")));
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).clone();
    let mut file = options.open(&fresh).map_err(unusable)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(unusable)?;
    // A crash leaves the old file or the new one, never half of one.
    fs::rename(&fresh, &path).map_err(unusable)
}

/// Removes a server: its file first, so that it is never there without its pins. Says whether it was there.
///
/// # Errors
///
/// If it cannot be removed.
pub(crate) fn remove_server(home: &Home, name: &ServerName) -> Result<bool, ServersError> {
    let gone = |kind: &str| match fs::remove_file(server_file(home, name, kind)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(ServersError::Unusable { name: shown_path(name, kind), source }),
    };
    let was_there = gone(SPEC)?;
    gone(PINS)?;
    Ok(was_there)
}

/// The owner's servers and secrets, for the engine.
pub(crate) struct OwnServers {
    pub(crate) home: Home,
    pub(crate) secrets: Arc<SecretStore>,
}

impl std::fmt::Debug for OwnServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnServers").field("home", &self.home).finish_non_exhaustive()
    }
}

impl ServerSource for OwnServers {
    fn load(&self) -> Result<Vec<Server>, Report> {
        load_servers(&self.home).map_err(|error| error.report())
    }

    fn set_aside(&self) -> Result<BTreeSet<String>, Report> {
        read_aside(&self.home).map_err(|error| error.report())
    }

    fn secret(&self, name: &Reference) -> Result<SecretString, Report> {
        let wrong = |text: String| {
            let hint = format!("`writ secrets set {name}` stores it");
            Report::new(Exit::Config, "mcp.secret", text).with_hint(hint)
        };
        match self.secrets.get_secret(name) {
            Ok(Some(secret)) => Ok(secret),
            Ok(None) => Err(wrong(format!("there is no secret '{name}'"))),
            Err(error) => Err(wrong(format!("the secret '{name}' cannot be read: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;

    fn home() -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().expect("temp dir");
        let home = Home::find_home(Some(dir.path()), &Env::default()).expect("found");
        (dir, home)
    }

    fn write_spec(home: &Home, name: &str, text: &str) {
        fs::create_dir_all(home.servers()).expect("made");
        fs::write(home.servers().join(name), text).expect("written");
    }

    #[test]
    fn a_server_is_read_as_it_was_written_and_removed() {
        let (_dir, home) = home();
        assert!(load_servers(&home).expect("none yet").is_empty());
        let mut spec = ServerSpec::of_command("server".into(), vec!["--stdio".into()]);
        spec.env = [("TOKEN".to_owned(), "secret:crm".to_owned())].into();
        let name: ServerName = "crm".parse().expect("a name");
        let server = Server { name: name.clone(), spec, pins: Pins::default() };
        write_new(&home, &server).expect("written");
        assert_eq!(load_servers(&home).expect("reads"), [server]);
        assert!(remove_server(&home, &name).expect("removed"));
        assert!(!remove_server(&home, &name).expect("nothing left"));
        assert_eq!(fs::read_dir(home.servers()).expect("there").count(), 0);
    }

    #[test]
    fn files_that_cannot_stand_are_named_and_their_values_are_not_repeated() {
        let refused = |name: &str, text: &str| {
            let (_dir, home) = home();
            write_spec(&home, name, text);
            load_servers(&home).expect_err("refused").to_string()
        };
        assert_eq!(
            refused("crm.toml", "command = \"x\"\nplanet = \"hunter2\"\n").split(',').next(),
            Some("mcp/crm.toml: line 2: unknown field `planet`")
        );
        assert_eq!(refused("crm.toml", "command = \"\""), "mcp/crm.toml: command: it names no program");
        let typed = refused("crm.toml", "command = \"x\"\n[env]\nTOKEN = [\"hunter2\"]");
        assert!(typed.starts_with("mcp/crm.toml: line 3: ") && !typed.contains("hunter2"), "{typed}");
        let read_only = "command = \"x\"\n[tools.look]\nreadOnlyHint = true";
        assert!(
            refused("crm.toml", read_only).contains("line 3: unknown field"),
            "what servers say is no word of ours"
        );
        assert!(refused("Crm.toml", "command = \"x\"").starts_with("mcp/Crm.toml: a server's name"));
        assert!(refused("a__b.toml", "command = \"x\"").contains("mcp/a__b.toml"));
    }

    #[test]
    fn pins_that_were_changed_by_hand_and_links_are_refused() {
        let (_dir, home) = home();
        write_spec(&home, "crm.toml", "command = \"x\"");
        write_spec(&home, "crm.pins.json", "{}");
        assert!(load_servers(&home).expect_err("refused").to_string().starts_with("mcp/crm.pins.json: "));
        fs::remove_file(home.servers().join("crm.pins.json")).expect("removed");
        std::os::unix::fs::symlink("/etc/passwd", home.servers().join("crm.pins.json")).expect("linked");
        assert!(matches!(load_servers(&home), Err(ServersError::Unusable { .. })));
    }
}
