//! The owner's settings of a server: the file `mcp/NAME.toml` of the home.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use writ_egress::deliver::Endpoint;
use writ_inspect::egress::host::HostPattern;
use writ_types::credential::Reference;
use writ_types::entry::Risk;
use writ_types::quarantine::Quarantine;
use writ_types::taint::Taint;

use crate::listing::MAX_TOOLS;

/// The longest name of a server, in bytes.
pub const MAX_SERVER_NAME: usize = 32;
/// The most servers of a home.
pub const MAX_SERVERS: usize = 32;
/// The largest file of a server, in bytes.
pub const MAX_FILE_BYTES: u64 = 256 * 1024;
/// The most arguments and variables that a server is started with.
const MAX_WORDS: usize = 64;
/// The longest of them, in bytes.
const MAX_WORD_BYTES: usize = 4 * 1024;
/// The most hosts that a server may reach.
const MAX_HOSTS: usize = 64;
/// The longest time that a call, or the start of a server, may take, in seconds.
const MAX_SECS: u64 = 600;
/// The most argument paths of one tool.
const MAX_PATHS: usize = 64;
/// The separator between a server's name and a tool's.
pub const SEPARATOR: &str = "__";

/// The name of a server: a lower-case letter or digit, then at most 31 of `a-z`, `0-9`, `-` and single `_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServerName(String);

/// A text that cannot name a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a server's name has 1 to {MAX_SERVER_NAME} characters out of a-z, 0-9, '-' and single '_', and begins and ends with a letter or digit"
)]
pub struct InvalidName;

impl ServerName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ServerName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        // The name and the tool's name are joined by the separator, so it must not occur in the name itself.
        let bytes = text.as_bytes();
        let valid = text.len() <= MAX_SERVER_NAME
            && bytes.first().is_some_and(alphanumeric)
            && bytes.last().is_some_and(alphanumeric)
            && bytes.iter().all(|b| alphanumeric(b) || matches!(b, b'-' | b'_'))
            && !text.contains(SEPARATOR);
        if valid { Ok(Self(text.to_owned())) } else { Err(InvalidName) }
    }
}

impl TryFrom<String> for ServerName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<ServerName> for String {
    fn from(name: ServerName) -> Self {
        name.0
    }
}

/// A server, in its owner's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// The program, as the sandbox finds it; empty where there is a URL.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// The URL at which it is reached over HTTP, instead of a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The token that it wants there: `secret:NAME`, a secret of the home. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// True for the program of a plugin, which sees the folder of that as `$WRIT_PLUGIN`. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plugin: bool,
    /// Its arguments. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its variables; a value `secret:NAME` is a secret of the home, put in when it is started. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The hosts that it may reach, through the proxy. Default: none, and no network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The trust in its results. Default: external.
    #[serde(default, skip_serializing_if = "ServerTaint::is_external")]
    pub taint: ServerTaint,
    /// The results of its tools that are withheld from the model. Default: none.
    #[serde(default, skip_serializing_if = "is_never")]
    pub quarantine: Quarantine,
    /// The longest time of a call, in seconds. Default 60.
    #[serde(default = "default_secs", skip_serializing_if = "is_default_secs")]
    pub timeout_secs: u64,
    /// The longest time of a start until the first answer, in seconds: `npx` and `uvx` download packages at a
    /// first start. Default 60.
    #[serde(default = "default_secs", skip_serializing_if = "is_default_secs")]
    pub start_timeout_secs: u64,
    /// The owner's rules for its tools, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, ToolRule>,
}

const fn default_secs() -> u64 {
    60
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_default_secs(secs: &u64) -> bool {
    *secs == default_secs()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_never(quarantine: &Quarantine) -> bool {
    matches!(quarantine, Quarantine::Never)
}

/// The trust in the results of a server. Never that of the owner's own words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerTaint {
    /// As any stranger's.
    #[default]
    External,
    /// That of a person with a proven identity.
    Auth,
}

impl ServerTaint {
    /// Returns true for [`Self::External`].
    pub const fn is_external(&self) -> bool {
        matches!(self, Self::External)
    }
}

impl From<ServerTaint> for Taint {
    fn from(taint: ServerTaint) -> Self {
        match taint {
            ServerTaint::External => Self::External,
            ServerTaint::Auth => Self::Auth,
        }
    }
}

/// The readers of a tool's results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readers {
    /// The owner alone.
    #[default]
    Private,
    /// Everybody.
    Public,
    /// The owner alone; of models, only those that are cleared for secrets.
    Secret,
    /// The owner, and the people named in these fields of a record, by their names.
    #[serde(untagged)]
    Named(Vec<String>),
}

/// An owner's rule for a tool. The server's own claims about these things are not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolRule {
    /// True if a call changes anything anywhere. Default: it does.
    pub effect: bool,
    /// The arguments that say who, where, what is touched, as dotted paths; `None`, the default: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sinks: Option<Vec<String>>,
    /// The arguments that are content sent on to others, as dotted paths. Default: none.
    pub content: Vec<String>,
    /// The arguments that may be anything, as dotted paths. Default: none. Where sinks are declared, every
    /// argument that is neither content nor free is a sink, too.
    pub free: Vec<String>,
    /// The sinks that name the recipients of what it passes on, as dotted paths. Default: all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub whom: Vec<String>,
    /// From which fields of results an argument may be taken as it is, besides those of its own name: by its dotted path,
    /// `FIELD` of this server's results or `SERVER.FIELD` of another's. Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub takes: BTreeMap<String, Vec<String>>,
    /// The sinks that must be of records that the owner's request names, where it names any of their list, as
    /// dotted paths. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<String>,
    /// The readers of its results. Default: the owner alone.
    pub readers: Readers,
    /// The withholding of its results from the model. Default: that of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
    /// True if calling it twice is the same as calling it once. Default: it is not.
    pub idempotent: bool,
    /// The harm that a wrong approval of a call can do. Default: medium.
    pub risk: Risk,
    /// True if it is offered at all. Default: it is.
    pub allow: bool,
}

impl Default for ToolRule {
    fn default() -> Self {
        Self {
            effect: true,
            sinks: None,
            content: Vec::new(),
            free: Vec::new(),
            whom: Vec::new(),
            takes: BTreeMap::new(),
            named: Vec::new(),
            readers: Readers::Private,
            quarantine: None,
            idempotent: false,
            risk: Risk::Medium,
            allow: true,
        }
    }
}

/// The problem of a server's file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct SpecError {
    /// The key.
    pub key: String,
    /// The problem of its value. Never the value of a variable.
    pub why: String,
}

impl ServerSpec {
    /// A server that is started with a command and nothing else.
    pub fn of_command(command: String, args: Vec<String>) -> Self {
        Self {
            command,
            url: None,
            token: None,
            plugin: false,
            args,
            env: BTreeMap::new(),
            hosts: Vec::new(),
            taint: ServerTaint::External,
            quarantine: Quarantine::Never,
            timeout_secs: default_secs(),
            start_timeout_secs: default_secs(),
            tools: BTreeMap::new(),
        }
    }

    /// A server that is reached at a URL.
    pub fn of_url(url: String) -> Self {
        Self { url: Some(url), ..Self::of_command(String::new(), Vec::new()) }
    }

    /// Host and port of its URL, if it has a proper one.
    pub fn url_host(&self) -> Option<String> {
        let endpoint = Endpoint::path_below(self.url.as_deref()?, "").ok()?;
        Some(endpoint.host())
    }

    /// The secret that its token is.
    pub fn token_reference(&self) -> Option<Reference> {
        secret_of(self.token.as_deref()?)
    }

    fn check_url(&self, url: &str) -> Result<(), SpecError> {
        let wrong = |key: &str, why: &str| Err(SpecError { key: key.to_owned(), why: why.to_owned() });
        // A program and a URL exclude each other, and settings of the one mean nothing for the other.
        if !self.command.is_empty() || !self.args.is_empty() || !self.env.is_empty() || !self.hosts.is_empty()
        {
            return wrong("url", "a server at a URL has no command, args, env and hosts");
        }
        match Endpoint::path_below(url, "") {
            // Over plain HTTP the token and the arguments could be read on their way, except on this machine.
            Ok(endpoint) if endpoint.is_private() && url.len() <= MAX_WORD_BYTES => {}
            Ok(_) => return wrong("url", "what is sent there could be read on its way: use https"),
            Err(_) => {
                return wrong("url", "it is no http or https address without user name, password and query");
            }
        }
        if self.token.is_some() && self.token_reference().is_none() {
            return wrong("token", "it is named as secret:NAME; `writ secrets set NAME` stores it");
        }
        Ok(())
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// The first key with a bad value.
    pub fn check_settings(&self) -> Result<(), SpecError> {
        let wrong = |key: &str, why: String| Err(SpecError { key: key.to_owned(), why });
        match &self.url {
            Some(_) if self.plugin => return wrong("plugin", "it is no program".to_owned()),
            Some(url) => self.check_url(url)?,
            None if self.token.is_some() => {
                return wrong("token", "only a server at a URL has one".to_owned());
            }
            None if self.command.is_empty() => return wrong("command", "it names no program".to_owned()),
            None => {}
        }
        if self.args.len() > MAX_WORDS || self.env.len() > MAX_WORDS {
            return wrong("args", format!("there are more than {MAX_WORDS} of them, or of variables"));
        }
        // A NUL would end the argument for the operating system.
        if !self.args.iter().chain([&self.command]).all(|word| is_word(word)) {
            return wrong("args", format!("one has a NUL character, or more than {MAX_WORD_BYTES} bytes"));
        }
        for (name, value) in &self.env {
            check_variable(name, value)?;
        }
        if self.hosts.len() > MAX_HOSTS {
            return wrong("hosts", format!("there are more than {MAX_HOSTS}"));
        }
        // The text is escaped, since it goes to a terminal.
        if let Some(host) = self.hosts.iter().find(|host| host.parse::<HostPattern>().is_err()) {
            let host = writ_types::visible::escape_line(host);
            return wrong(
                "hosts",
                format!("'{host}' is no host, like api.example.org or api.example.org:8443"),
            );
        }
        for (key, secs) in
            [("timeout_secs", self.timeout_secs), ("start_timeout_secs", self.start_timeout_secs)]
        {
            if !(1..=MAX_SECS).contains(&secs) {
                return wrong(key, format!("it must be 1 to {MAX_SECS}"));
            }
        }
        if self.tools.len() > MAX_TOOLS {
            return wrong("tools", format!("there are more than {MAX_TOOLS}"));
        }
        self.tools.iter().try_for_each(|(name, rule)| rule.check_rule(name))
    }

    /// Returns the rule for a tool, or the default.
    pub fn tool_rule(&self, tool: &str) -> ToolRule {
        self.tools.get(tool).cloned().unwrap_or_default()
    }

    /// Returns the longest time of a call.
    pub const fn call_time(&self) -> Duration {
        Duration::from_secs(self.timeout_secs)
    }

    /// Returns the longest time of its start, until it answers.
    pub const fn start_time(&self) -> Duration {
        Duration::from_secs(self.start_timeout_secs)
    }

    /// The secrets that it is started with, by variable.
    pub fn secret_names(&self) -> impl Iterator<Item = (&str, Reference)> {
        self.env.iter().filter_map(|(name, value)| Some((name.as_str(), secret_of(value)?)))
    }
}

/// The secret that a value of a variable names, if it does.
pub fn secret_of(value: &str) -> Option<Reference> {
    value.strip_prefix("secret:")?.parse().ok()
}

fn is_word(text: &str) -> bool {
    text.len() <= MAX_WORD_BYTES && !text.contains('\0')
}

fn check_variable(name: &str, value: &str) -> Result<(), SpecError> {
    let key =
        // The name is shown, the value never is: it may be a secret that was pasted in.
        || format!("env.{}", writ_types::visible::escape_line(name).chars().take(64).collect::<String>());
    let wrong = |why: &str| Err(SpecError { key: key(), why: why.to_owned() });
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if name.is_empty() || !plain || name.starts_with(|c: char| c.is_ascii_digit()) {
        return wrong("this is no name of a variable");
    }
    if !is_word(value) {
        return wrong("the value has a NUL character, or is too long");
    }
    // Other prefixes look like references, and would be handed to the server as text.
    if value.starts_with("env:") || value.starts_with("vault:") {
        return wrong("only secret:NAME is put in here; `writ secrets set NAME` stores it");
    }
    if value.starts_with("secret:") && secret_of(value).is_none() {
        return wrong("'secret:' is not followed by a secret's name");
    }
    Ok(())
}

impl ToolRule {
    fn check_rule(&self, name: &str) -> Result<(), SpecError> {
        let name: String = writ_types::visible::escape_line(name).chars().take(64).collect();
        let (taken, from) = self.takes_argument();
        let readers = if let Readers::Named(fields) = &self.readers { Some(fields) } else { None };
        // A field is looked up by its last name, so a dotted path would never be found.
        if readers.is_some_and(|fields| fields.iter().any(|field| field.contains('.'))) {
            let why = "a field of readers is one name, without dots: from".to_owned();
            return Err(SpecError { key: format!("tools.{name}.readers"), why });
        }
        for (what, paths) in [
            ("sinks", self.sinks.as_ref()),
            ("content", Some(&self.content)),
            ("free", Some(&self.free)),
            ("whom", Some(&self.whom)),
            ("named", Some(&self.named)),
            ("readers", readers),
            ("takes", Some(&taken)),
            ("takes", Some(&from)),
        ] {
            let Some(paths) = paths else { continue };
            let wrong = |why: String| Err(SpecError { key: format!("tools.{name}.{what}"), why });
            if paths.len() > MAX_PATHS {
                return wrong(format!("there are more than {MAX_PATHS}"));
            }
            // An empty name between two dots matches nothing, so the owner would rely on a rule without
            // effect.
            if paths.iter().any(|path| !is_word(path) || path.split('.').any(str::is_empty)) {
                return wrong(
                    "a path is names of arguments with dots between them, like message.to".to_owned(),
                );
            }
        }
        Ok(())
    }

    /// The arguments that are taken from fields, and these.
    fn takes_argument(&self) -> (Vec<String>, Vec<String>) {
        (self.takes.keys().cloned().collect(), self.takes.values().flatten().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_bounded() {
        for good in ["a", "crm", "git-hub", "a_b", "0", &"a".repeat(MAX_SERVER_NAME)] {
            assert_eq!(good.parse::<ServerName>().map(|name| name.to_string()), Ok(good.to_owned()));
        }
        let long = "a".repeat(MAX_SERVER_NAME + 1);
        for bad in ["", "A", "a__b", "_a", "a_", "-a", "a-", "a.b", "../a", "a/b", "é", "a\0", "a b", &long]
        {
            assert_eq!(bad.parse::<ServerName>(), Err(InvalidName), "{bad:?}");
        }
    }

    #[test]
    fn what_nobody_declared_has_an_effect_and_only_sinks() {
        let spec = ServerSpec::of_command("server".into(), Vec::new());
        let rule = spec.tool_rule("anything");
        assert_eq!((rule.effect, rule.sinks, rule.idempotent, rule.allow), (true, None, false, true));
        assert_eq!(Taint::from(spec.taint), Taint::External);
    }

    fn spec(change: impl FnOnce(&mut ServerSpec)) -> Result<(), String> {
        let mut spec = ServerSpec::of_command("server".into(), vec!["--stdio".into()]);
        change(&mut spec);
        spec.check_settings().map_err(|error| error.key)
    }

    #[test]
    fn what_cannot_stand_is_named_by_its_key() {
        let variable =
            |name: &str, value: &str| spec(|spec| spec.env = [(name.to_owned(), value.to_owned())].into());
        assert_eq!(spec(|_| {}), Ok(()));
        assert_eq!(variable("TOKEN", "secret:crm"), Ok(()));
        for (name, value) in
            [("TOKEN", "secret:"), ("TOKEN", "env:HOME"), ("TOKEN", "vault://a/b#c"), ("TOKEN", "\0")]
        {
            assert_eq!(variable(name, value), Err("env.TOKEN".into()), "{value}");
        }
        assert_eq!(variable("1A", "x"), Err("env.1A".into()));
        assert_eq!(variable("A=B", "x"), Err("env.A=B".into()));
        assert_eq!(spec(|spec| spec.command.clear()), Err("command".into()));
        let at = |url: &str| ServerSpec::of_url(url.into()).check_settings().map_err(|error| error.key);
        for good in ["https://mcp.example/v1", "http://127.0.0.1:80/mcp", "http://localhost:1/"] {
            assert_eq!(at(good), Ok(()), "{good}");
        }
        for bad in
            ["http://mcp.example/", "https://a:b@mcp.example/", "https://x/?token=5", "file:///etc", "x"]
        {
            assert_eq!(at(bad), Err("url".into()), "{bad}");
        }
        assert_eq!(
            spec(|spec| spec.url = Some("https://mcp.example/".into())),
            Err("url".into()),
            "one or the other"
        );
        assert_eq!(spec(|spec| spec.token = Some("secret:a".into())), Err("token".into()));
        let plain =
            ServerSpec { token: Some("hunter2".into()), ..ServerSpec::of_url("https://mcp.example/".into()) };
        assert!(
            plain
                .check_settings()
                .is_err_and(|error| error.key == "token" && !error.to_string().contains("hunter2"))
        );
        assert_eq!(spec(|spec| spec.args = vec!["a\0".into()]), Err("args".into()));
        assert_eq!(spec(|spec| spec.args = vec!["a".into(); MAX_WORDS + 1]), Err("args".into()));
        assert_eq!(spec(|spec| spec.hosts = vec!["https://x/".into()]), Err("hosts".into()));
        assert_eq!(spec(|spec| spec.timeout_secs = 0), Err("timeout_secs".into()));
        assert_eq!(spec(|spec| spec.timeout_secs = MAX_SECS + 1), Err("timeout_secs".into()));
        assert_eq!(spec(|spec| spec.start_timeout_secs = 0), Err("start_timeout_secs".into()));
        assert_eq!(spec(|spec| spec.start_timeout_secs = MAX_SECS), Ok(()));
        let path = |path: &str| {
            let rule = ToolRule { sinks: Some(vec![path.to_owned()]), ..ToolRule::default() };
            spec(|spec| spec.tools = [("send".to_owned(), rule)].into())
        };
        assert_eq!(path("message.to"), Ok(()));
        let taken = |argument: &str, field: &str| {
            let takes = [(argument.to_owned(), vec![field.to_owned()])].into();
            let rule = ToolRule { takes, ..ToolRule::default() };
            spec(|spec| spec.tools = [("send".to_owned(), rule)].into())
        };
        assert_eq!((taken("to", "from"), taken("to", "contacts.email")), (Ok(()), Ok(())));
        for (argument, field) in [("", "from"), ("to", ""), ("to", "."), ("a..b", "from")] {
            assert_eq!(taken(argument, field), Err("tools.send.takes".into()), "{argument:?} {field:?}");
        }
        let readers = |names: &[&str]| {
            let readers = Readers::Named(names.iter().map(|name| (*name).to_owned()).collect());
            let rule = ToolRule { readers, ..ToolRule::default() };
            spec(|spec| spec.tools = [("look".to_owned(), rule)].into())
        };
        assert_eq!(readers(&["from", "to"]), Ok(()));
        for bad in [&["mail.from"][..], &[""], &["a\0"], &["a"; MAX_PATHS + 1]] {
            assert_eq!(readers(bad), Err("tools.look.readers".into()), "{bad:?}");
        }
        for bad in ["", ".", "a..b", "a."] {
            assert_eq!(path(bad), Err("tools.send.sinks".into()), "{bad:?}");
        }
    }
}
