//! The configuration of targets: which databases, APIs and mail servers there are. Secrets stand in it by their
//! names.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;
use toml::Spanned;
use writ_egress::deliver::Endpoint;
use writ_egress::host::HostPort;

use super::TIME_LIMIT;
use crate::error::OperationError;
use crate::set::{fault, line_of, read_toml};

/// The longest time limit that can be set, in seconds.
const MAX_LIMIT_SECS: u64 = 300;
/// The port of PostgreSQL.
const POSTGRES_PORT: u16 = 5432;

/// The targets, with their secrets.
#[derive(Debug)]
pub struct TargetsConfig {
    pub(crate) databases: BTreeMap<String, DatabaseConfig>,
    pub(crate) apis: BTreeMap<String, ApiConfig>,
    pub(crate) mail: BTreeMap<String, MailConfig>,
    pub(crate) time_limit: Duration,
}

/// A database.
#[derive(Debug)]
pub(crate) enum DatabaseConfig {
    Sqlite { path: PathBuf },
    Postgres(PostgresConfig),
}

/// A database of PostgreSQL.
#[derive(Debug)]
pub(crate) struct PostgresConfig {
    pub(crate) place: DatabasePlace,
    pub(crate) database: String,
    pub(crate) user: String,
    pub(crate) password: Option<SecretString>,
    pub(crate) schema: String,
}

/// The place of a database's server.
#[derive(Clone, Debug)]
pub(crate) enum DatabasePlace {
    /// A host, with TLS or without.
    Host { host: HostPort, tls: bool },
    /// A Unix socket.
    Socket(PathBuf),
}

/// An API.
#[derive(Debug)]
pub(crate) struct ApiConfig {
    pub(crate) endpoint: Endpoint,
    pub(crate) header: String,
    /// The value of the header.
    pub(crate) credential: Option<SecretString>,
}

/// A mail server.
pub(crate) struct MailConfig {
    pub(crate) server: HostPort,
    pub(crate) tls: MailTls,
    /// The user and the password.
    pub(crate) login: Option<(String, SecretString)>,
    pub(crate) from: lettre::message::Mailbox,
}

impl fmt::Debug for MailConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailConfig")
            .field("server", &self.server)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// The protection of the way to a mail server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MailTls {
    /// TLS from the first byte.
    Implicit,
    /// TLS after `STARTTLS`; a server without it gets nothing.
    Starttls,
    /// None: for a server of this machine.
    None,
}

/// The tables `databases`, `apis` and `mail`, as they are written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TargetsSpec {
    databases: BTreeMap<String, Spanned<DatabaseSpec>>,
    apis: BTreeMap<String, Spanned<ApiSpec>>,
    mail: BTreeMap<String, Spanned<MailServerSpec>>,
    time_limit_secs: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DatabaseSpec {
    kind: String,
    path: Option<PathBuf>,
    host: Option<String>,
    socket: Option<PathBuf>,
    database: Option<String>,
    user: Option<String>,
    password: Option<String>,
    schema: Option<String>,
    tls: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiSpec {
    url: String,
    header: Option<String>,
    scheme: Option<String>,
    credential: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MailServerSpec {
    server: String,
    tls: MailTls,
    user: Option<String>,
    password: Option<String>,
    from: String,
}

/// Returns the secret of a name.
pub type SecretSource<'a> = &'a dyn Fn(&str) -> Option<SecretString>;

/// A mistake and its remedy.
type Flawed = (String, String);

impl TargetsConfig {
    /// Reads the tables `databases`, `apis` and `mail` of a text, with relative paths below `folder`.
    ///
    /// # Errors
    ///
    /// Every mistake, by line: unknown kinds and keys, hosts that are none, secrets that do not exist.
    pub fn read_text(
        file: &Path,
        text: &str,
        secrets: SecretSource<'_>,
    ) -> Result<Self, Vec<OperationError>> {
        let spec = read_toml::<TargetsSpec>(file, text).map_err(|error| vec![error])?;
        Self::resolve_spec(spec, file, text, secrets)
    }

    /// Makes the configuration of tables that were read as a part of `text`.
    ///
    /// # Errors
    ///
    /// As [`Self::read_text`].
    pub fn resolve_spec(
        spec: TargetsSpec,
        file: &Path,
        text: &str,
        secrets: SecretSource<'_>,
    ) -> Result<Self, Vec<OperationError>> {
        let mut errors = Vec::new();
        let folder = file.parent().unwrap_or_else(|| Path::new("."));
        let mut databases = BTreeMap::new();
        for (name, one) in spec.databases {
            let line = line_of(text, one.span().start);
            take(
                &mut databases,
                name,
                resolve_database(one.into_inner(), folder, secrets),
                &mut errors,
                (file, line),
            );
        }
        let mut apis = BTreeMap::new();
        for (name, one) in spec.apis {
            let line = line_of(text, one.span().start);
            take(&mut apis, name, resolve_api(one.into_inner(), secrets), &mut errors, (file, line));
        }
        let mut mail = BTreeMap::new();
        for (name, one) in spec.mail {
            let line = line_of(text, one.span().start);
            take(&mut mail, name, resolve_mail(one.into_inner(), secrets), &mut errors, (file, line));
        }
        let time_limit = match spec.time_limit_secs {
            None => TIME_LIMIT,
            Some(secs @ 1..=MAX_LIMIT_SECS) => Duration::from_secs(secs),
            Some(_) => {
                errors.push(fault(file, 1, "time_limit_secs is out of its range", "it is 1 to 300"));
                TIME_LIMIT
            }
        };
        if errors.is_empty() { Ok(Self { databases, apis, mail, time_limit }) } else { Err(errors) }
    }

    /// Sets the longest time of an operation.
    #[must_use]
    pub const fn with_time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }
}

fn take<T>(
    map: &mut BTreeMap<String, T>,
    name: String,
    resolved: Result<T, Flawed>,
    errors: &mut Vec<OperationError>,
    (file, line): (&Path, usize),
) {
    match resolved {
        Ok(one) => {
            map.insert(name, one);
        }
        Err((what, hint)) => errors.push(fault(file, line, format!("'{name}': {what}"), hint)),
    }
}

fn flawed<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T, Flawed> {
    Err((what.into(), hint.into()))
}

fn resolve_secret(name: Option<String>, secrets: SecretSource<'_>) -> Result<Option<SecretString>, Flawed> {
    let Some(name) = name else { return Ok(None) };
    match secrets(&name) {
        Some(secret) => Ok(Some(secret)),
        // The name could be a password by mistake, so it is not repeated.
        None => flawed("its secret does not exist", "name a secret of the home: writ secrets set NAME"),
    }
}

fn resolve_database(
    spec: DatabaseSpec,
    folder: &Path,
    secrets: SecretSource<'_>,
) -> Result<DatabaseConfig, Flawed> {
    match spec.kind.as_str() {
        "sqlite" => {
            let Some(path) = spec.path else {
                return flawed("a database of SQLite has a path", "path = \"shop.db\"");
            };
            let others = [&spec.host, &spec.database, &spec.user, &spec.password, &spec.schema];
            if others.iter().any(|other| other.is_some()) || spec.socket.is_some() || spec.tls.is_some() {
                return flawed("a database of SQLite has a path and nothing else", "remove the other keys");
            }
            Ok(DatabaseConfig::Sqlite { path: folder.join(path) })
        }
        "postgres" => resolve_postgres(spec, secrets).map(DatabaseConfig::Postgres),
        "mysql" | "mariadb" => flawed("MySQL is not supported", "SQLite and PostgreSQL are"),
        other => flawed(format!("'{other}' is no kind of database"), "kind is \"sqlite\" or \"postgres\""),
    }
}

fn resolve_postgres(spec: DatabaseSpec, secrets: SecretSource<'_>) -> Result<PostgresConfig, Flawed> {
    let (Some(database), Some(user)) = (spec.database, spec.user) else {
        return flawed(
            "a database of PostgreSQL has a database and a user",
            "database = \"shop\", user = \"writ\"",
        );
    };
    let place = match (spec.host, spec.socket) {
        (Some(host), None) => {
            let whole = if host.contains(':') { host } else { format!("{host}:{POSTGRES_PORT}") };
            let host =
                whole.parse().map_err(|_| ("its host is none".to_owned(), "write HOST:PORT".to_owned()))?;
            // A forgotten key must not send the password in the clear.
            DatabasePlace::Host { host, tls: spec.tls.unwrap_or(true) }
        }
        // Servers and their own programs name the folder of the socket.
        (None, Some(folder)) => DatabasePlace::Socket(folder.join(format!(".s.PGSQL.{POSTGRES_PORT}"))),
        (Some(_), Some(_)) | (None, None) => {
            return flawed("a database of PostgreSQL has a host or a socket", "host = \"db.example:5432\"");
        }
    };
    if spec.path.is_some() {
        return flawed("a database of PostgreSQL has no path", "remove it");
    }
    let schema = spec.schema.unwrap_or_else(|| "public".to_owned());
    if !crate::check::is_good_name(&schema) {
        return flawed("its schema is none", "a schema has letters, digits and _");
    }
    Ok(PostgresConfig { place, database, user, password: resolve_secret(spec.password, secrets)?, schema })
}

fn resolve_api(spec: ApiSpec, secrets: SecretSource<'_>) -> Result<ApiConfig, Flawed> {
    let hint = "url = \"https://api.example\", without user name, password and query";
    let endpoint = Endpoint::path_below(&spec.url, "/");
    let endpoint = match endpoint {
        // A credential and personal data go there.
        Ok(endpoint) if endpoint.is_private() => endpoint,
        Ok(_) => return flawed("its address is not private", "use https; plain http is for this machine"),
        Err(why) => return flawed(format!("its address is {why}"), hint),
    };
    let header = spec.header.unwrap_or_else(|| "authorization".to_owned()).to_ascii_lowercase();
    if header.is_empty() || !header.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return flawed("its header is none", "header = \"authorization\"");
    }
    let scheme = spec.scheme.or_else(|| (header == "authorization").then(|| "Bearer".to_owned()));
    let credential = resolve_secret(spec.credential, secrets)?.map(|secret| match scheme {
        Some(scheme) => {
            let text = secrecy::ExposeSecret::expose_secret(&secret);
            SecretString::from(format!("{scheme} {text}"))
        }
        None => secret,
    });
    Ok(ApiConfig { endpoint, header, credential })
}

fn resolve_mail(spec: MailServerSpec, secrets: SecretSource<'_>) -> Result<MailConfig, Flawed> {
    let server: HostPort = spec
        .server
        .parse()
        .map_err(|_| ("its server is none".to_owned(), "server = \"mail.example:587\"".to_owned()))?;
    let is_here = server.host() == "localhost"
        || server.host().parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if spec.tls == MailTls::None && !is_here {
        return flawed(
            "its way is not private",
            "tls = \"starttls\" or \"implicit\"; none is for this machine",
        );
    }
    if spec.user.is_some() != spec.password.is_some() {
        return flawed("it has a user or a password, not both", "give both, or none");
    }
    let Ok(from) = spec.from.parse() else {
        return flawed("its 'from' is no address", "from = \"Shop <shop@example.org>\"");
    };
    let login = spec.user.zip(resolve_secret(spec.password, secrets)?);
    Ok(MailConfig { server, tls: spec.tls, login, from })
}
