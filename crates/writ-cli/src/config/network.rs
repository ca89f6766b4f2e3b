//! The owner's network: its proxy and its certificate authorities. The section `[network]`, and the variables that other
//! programs read for the same.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use writ_egress::trust::{ExtraRoots, MAX_PEM_BYTES, TrustError};
use writ_egress::upstream::{DirectHosts, InvalidDirect, InvalidProxy, ProxyRoutes, Upstream};
use writ_types::credential::CredentialRef;
use writ_types::error::{Exit, Report, ToReport};

use crate::env::Env;

/// The value of `network.proxy` that turns the variables off.
const DIRECT: &str = "direct";
/// The setting's name, as errors show it.
const SETTING: &str = "network.proxy";
/// Variables that a detached engine is started with, so that it goes the same way as the command that started it.
pub(crate) const VARIABLES: [&str; 10] = [
    "https_proxy",
    "HTTPS_PROXY",
    "http_proxy",
    "HTTP_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
    CERT_FILE,
    CERT_DIR,
];
const CERT_FILE: &str = "SSL_CERT_FILE";
const CERT_DIR: &str = "SSL_CERT_DIR";
/// The files in which systems store their certificate authorities.
const SYSTEM_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// The most files of a folder of certificates that are read.
const MAX_FOLDER_FILES: usize = 1024;

/// Settings of the network that this machine is in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NetworkConfig {
    /// The HTTP proxy of every outbound connection, as `http://HOST:PORT`, or `direct`. Default: what `HTTPS_PROXY`,
    /// `HTTP_PROXY` and `ALL_PROXY` say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) proxy: Option<String>,
    /// The user name that the proxy of `proxy` wants. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) proxy_user: Option<String>,
    /// The password of `proxy_user`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) proxy_password: Option<CredentialRef>,
    /// Hosts that are reached without the proxy, besides those of `NO_PROXY`. Default: none.
    pub(crate) no_proxy: Vec<String>,
    /// True if names that this machine cannot look up are left to the proxy. Default: false.
    pub(crate) unchecked_names: bool,
    /// Files with certificate authorities that are trusted besides the system's, in PEM. Default: none.
    pub(crate) ca_file: Vec<PathBuf>,
}

/// An error in the settings of the network.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    /// The proxy is none that can be used.
    #[error(transparent)]
    Proxy(#[from] InvalidProxy),
    /// A user name or password stands in the setting.
    #[error("network.proxy holds a user name or a password")]
    LoginInSetting,
    /// A user name without a proxy, or a password without a user name.
    #[error("{0} is set without the setting that it belongs to")]
    Lonely(&'static str),
    /// The password cannot be had.
    #[error("network.proxy_password: {0}")]
    Password(String),
    /// A host in `network.no_proxy` is none.
    #[error("network.no_proxy: {0}")]
    Direct(InvalidDirect),
    /// A file or folder of certificates cannot be read.
    #[error("{setting}: {} cannot be read: {cause}", path.display())]
    Unreadable { setting: &'static str, path: PathBuf, cause: io::Error },
    /// A file holds no certificates.
    #[error("{setting}: {}: {cause}", path.display())]
    Trust { setting: &'static str, path: PathBuf, cause: TrustError },
}

impl ToReport for NetworkError {
    fn report(&self) -> Report {
        let code = match self {
            Self::Proxy(_) | Self::LoginInSetting | Self::Lonely(_) | Self::Direct(_) => "network.proxy",
            Self::Password(_) => "network.password",
            Self::Unreadable { .. } | Self::Trust { .. } => "network.ca_file",
        };
        Report::new(Exit::Config, code, self.to_string()).with_hint(self.hint_text())
    }
}

impl NetworkError {
    /// A remedy, for people.
    pub(crate) fn hint_text(&self) -> String {
        match self {
            Self::Proxy(why) => {
                format!("{}; network.proxy = \"direct\" uses none and ignores the variables", why.hint())
            }
            Self::LoginInSetting => "run `writ secrets set proxy`, then set network.proxy_user, and network.proxy_password = \"secret:proxy\"".into(),
            Self::Lonely(_) => "set network.proxy, network.proxy_user and network.proxy_password together".into(),
            Self::Password(_) => "run `writ secrets set proxy` and set network.proxy_password = \"secret:proxy\"".into(),
            Self::Direct(why) => why.hint().into(),
            Self::Unreadable { setting, .. } => {
                format!("correct the path in {setting}, or take it out: the system's authorities are trusted anyway")
            }
            Self::Trust { setting, cause, .. } => format!(
                "{}; then correct {setting}, or take it out: the system's authorities are trusted anyway",
                cause.hint()
            ),
        }
    }
}

/// The certificate authorities of a configuration.
#[derive(Debug, Default)]
pub(crate) struct TrustedAuthorities {
    /// Those that the owner adds.
    pub(crate) added: ExtraRoots,
    /// The system's own, where `SSL_CERT_FILE` or `SSL_CERT_DIR` would otherwise stand in their place.
    pub(crate) system: ExtraRoots,
}

impl NetworkConfig {
    /// Checks what needs neither the environment nor a secret.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub(crate) fn check_settings(&self) -> Result<(), NetworkError> {
        match self.proxy.as_deref() {
            Some(text) if text != DIRECT => {
                if text.contains('@') {
                    return Err(NetworkError::LoginInSetting);
                }
                Upstream::parse(text, SETTING)?;
            }
            Some(_) | None if self.proxy_user.is_some() => {
                return Err(NetworkError::Lonely("network.proxy_user"));
            }
            Some(_) | None => {}
        }
        if self.proxy_user.is_none() && self.proxy_password.is_some() {
            return Err(NetworkError::Lonely("network.proxy_password"));
        }
        match DirectHosts::parse(&self.no_proxy.join(",")).1.into_iter().next() {
            Some(wrong) => Err(NetworkError::Direct(wrong)),
            None => Ok(()),
        }
    }

    /// The proxies in use, by the settings or else by the variables. `password` reads a secret.
    ///
    /// # Errors
    ///
    /// If a proxy is none that can be used, or its password cannot be had.
    pub(crate) fn build_routes(
        &self,
        env: &Env,
        password: impl Fn(&CredentialRef) -> Result<SecretString, String>,
    ) -> Result<ProxyRoutes, NetworkError> {
        self.check_settings()?;
        let (secure, plain) = match self.proxy.as_deref() {
            Some(DIRECT) => (None, None),
            Some(text) => {
                let proxy = self.with_login(Upstream::parse(text, SETTING)?, password)?;
                (Some(Arc::new(proxy.clone())), Some(Arc::new(proxy)))
            }
            None => (from_variable(env, "HTTPS_PROXY")?, from_variable(env, "HTTP_PROXY")?),
        };
        let (_, exceptions) = read_variable(env, "NO_PROXY").unwrap_or_default();
        let own = self.no_proxy.join(",");
        let (direct, wrong) = DirectHosts::parse(&format!("{own},{exceptions}"));
        for wrong in wrong {
            tracing::warn!(%wrong, "NO_PROXY: left out");
        }
        Ok(ProxyRoutes { secure, plain, direct, unchecked_names: self.unchecked_names })
    }

    fn with_login(
        &self,
        proxy: Upstream,
        password: impl Fn(&CredentialRef) -> Result<SecretString, String>,
    ) -> Result<Upstream, NetworkError> {
        let Some(user) = &self.proxy_user else { return Ok(proxy) };
        let value = match &self.proxy_password {
            Some(reference) => password(reference).map_err(NetworkError::Password)?,
            None => SecretString::from(String::new()),
        };
        let value = SecretString::from(value.expose_secret().trim_end_matches(['\r', '\n']).to_owned());
        Ok(proxy.with_login(user, &value)?)
    }

    /// The certificate authorities of settings and variables.
    ///
    /// # Errors
    ///
    /// If a file is missing or holds none.
    pub(crate) fn trusted_authorities(&self, env: &Env) -> Result<TrustedAuthorities, NetworkError> {
        let mut trusted = TrustedAuthorities::default();
        for path in &self.ca_file {
            add_file(&mut trusted.added, "network.ca_file", path)?;
        }
        if let Some(path) = env.path_of(CERT_FILE) {
            add_file(&mut trusted.added, CERT_FILE, &path)?;
        }
        if let Some(folders) = env.path_of(CERT_DIR) {
            for folder in std::env::split_paths(&folders).filter(|folder| !folder.as_os_str().is_empty()) {
                add_folder(&mut trusted.added, &folder)?;
            }
        }
        if !trusted.added.is_empty() {
            let bundle = SYSTEM_BUNDLES.iter().find_map(|path| read_bounded(Path::new(path)).ok());
            trusted.system.add_readable(&bundle.unwrap_or_default());
            // Programs get only those certificates that the system does not trust anyway.
            trusted.added.remove(&trusted.system);
        }
        Ok(trusted)
    }
}

/// A variable by its name in lower or upper case; programs agree that the lower one counts first.
fn read_variable(env: &Env, name: &'static str) -> Option<(String, String)> {
    [name.to_ascii_lowercase(), name.to_owned()]
        .into_iter()
        .find_map(|name| env.text_of(&name).map(str::to_owned).map(|value| (name, value)))
}

fn from_variable(env: &Env, name: &'static str) -> Result<Option<Arc<Upstream>>, NetworkError> {
    match read_variable(env, name).or_else(|| read_variable(env, "ALL_PROXY")) {
        Some((name, text)) => Ok(Some(Arc::new(Upstream::parse(&text, &name)?))),
        None => Ok(None),
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // Without waiting for a pipe's other end.
    let file = File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a file"));
    }
    let most = u64::try_from(MAX_PEM_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn add_file(roots: &mut ExtraRoots, setting: &'static str, path: &Path) -> Result<(), NetworkError> {
    let bytes = read_bounded(path).map_err(|cause| NetworkError::Unreadable {
        setting,
        path: path.to_owned(),
        cause,
    })?;
    match roots.add_pem(&bytes) {
        Ok(_) => Ok(()),
        Err(cause) => Err(NetworkError::Trust { setting, path: path.to_owned(), cause }),
    }
}

/// Adds what is readable in a folder; files of other kinds may lie there.
fn add_folder(roots: &mut ExtraRoots, folder: &Path) -> Result<(), NetworkError> {
    let unreadable = |cause| NetworkError::Unreadable { setting: CERT_DIR, path: folder.to_owned(), cause };
    for entry in std::fs::read_dir(folder).map_err(unreadable)?.take(MAX_FOLDER_FILES).flatten() {
        if let Ok(bytes) = read_bounded(&entry.path()) {
            roots.add_readable(&bytes);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(config: &NetworkConfig, variables: &[(&str, &str)]) -> Result<ProxyRoutes, NetworkError> {
        config.build_routes(&Env::from_pairs(variables), |_| Ok(SecretString::from("hunter2\n".to_owned())))
    }

    fn proxies(config: &NetworkConfig, variables: &[(&str, &str)]) -> [String; 2] {
        let routes = routes(config, variables).expect("proxies");
        [true, false].map(|secure| {
            routes
                .proxy_for("api.example.org", 443, secure)
                .map_or_else(String::new, |proxy| proxy.to_string())
        })
    }

    fn setting(proxy: &str) -> NetworkConfig {
        NetworkConfig { proxy: Some(proxy.to_owned()), ..NetworkConfig::default() }
    }

    #[test]
    fn variables_count_in_both_cases_and_settings_before_them() {
        let none = NetworkConfig::default();
        assert_eq!(proxies(&none, &[]), ["", ""]);
        let both = [
            ("HTTPS_PROXY", "http://upper:1"),
            ("https_proxy", "http://lower:1"),
            ("HTTP_PROXY", "http://plain:1"),
        ];
        assert_eq!(proxies(&none, &both), ["http://lower:1 (https_proxy)", "http://plain:1 (HTTP_PROXY)"]);
        let all = [("ALL_PROXY", "http://all:1"), ("http_proxy", "plain:2")];
        assert_eq!(proxies(&none, &all), ["http://all:1 (ALL_PROXY)", "http://plain:2 (http_proxy)"]);
        // A desktop sets a SOCKS proxy for everything else beside the two of HTTP.
        let desktop =
            [("all_proxy", "socks://s:1"), ("https_proxy", "http://a:1"), ("http_proxy", "http://a:1")];
        assert_eq!(proxies(&none, &desktop), ["http://a:1 (https_proxy)", "http://a:1 (http_proxy)"]);
        assert_eq!(
            proxies(&none, &[("https_proxy", ""), ("HTTPS_PROXY", "http://upper:1")])[0],
            "http://upper:1 (HTTPS_PROXY)"
        );
        let set = setting("http://set:3128");
        assert_eq!(
            proxies(&set, &both),
            ["http://set:3128 (network.proxy)", "http://set:3128 (network.proxy)"]
        );
        assert_eq!(proxies(&setting("direct"), &both), ["", ""]);
        let except = NetworkConfig { no_proxy: vec![".example.org".into()], ..set };
        assert_eq!(proxies(&except, &[]), ["", ""]);
        assert_eq!(proxies(&none, &[both[0], ("no_proxy", "other.example api.example.org:443")]), ["", ""]);
    }

    #[test]
    fn what_cannot_be_used_is_a_typed_error_that_names_its_setting_and_no_password() {
        let none = NetworkConfig::default();
        let shown = |error: NetworkError| {
            let report = error.report();
            assert_eq!(report.exit, Exit::Config);
            let all = format!("{} | {} | {error:?}", report.outside, report.hint);
            assert!(!all.contains("hunter2"), "{all}");
            all
        };
        let socks = shown(routes(&none, &[("ALL_PROXY", "socks5h://u:hunter2@p:1080")]).expect_err("socks"));
        assert!(
            socks.starts_with("ALL_PROXY names a SOCKS proxy") && socks.contains("\"direct\""),
            "{socks}"
        );
        let login = shown(routes(&setting("http://u:hunter2@p:1"), &[]).expect_err("a password"));
        assert!(login.contains("network.proxy_password = \"secret:proxy\""), "{login}");
        let lonely = NetworkConfig { proxy_user: Some("ann".into()), ..NetworkConfig::default() };
        assert!(shown(routes(&lonely, &[]).expect_err("lonely")).starts_with("network.proxy_user"));
        let direct = NetworkConfig { no_proxy: vec!["10.0.0.0/99".into()], ..NetworkConfig::default() };
        assert!(
            shown(routes(&direct, &[]).expect_err("no network")).contains("network.no_proxy: '10.0.0.0/99'")
        );
        let direct =
            NetworkConfig { no_proxy: vec!["::ffff:10.0.0.0/80".into()], ..NetworkConfig::default() };
        let mapped = shown(routes(&direct, &[]).expect_err("a mapped network"));
        assert!(mapped.contains("write the IPv4 network itself"), "{mapped}");
        let missing = NetworkConfig {
            proxy_user: Some("ann".into()),
            proxy_password: Some("secret:gone".parse().expect("a reference")),
            ..setting("http://p:1")
        };
        let error = missing
            .build_routes(&Env::from_pairs(&[]), |_| Err("there is none".to_owned()))
            .expect_err("missing");
        assert!(shown(error).contains("network.proxy_password: there is none"));
        let found = routes(&missing, &[]).expect("a proxy").secure.expect("a proxy");
        assert!(found.has_login() && !format!("{found:?}").contains("hunter2"));
    }

    #[test]
    fn a_file_of_authorities_that_cannot_be_used_names_file_setting_and_remedy() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).expect("written");
            path
        };
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
        for (path, remedy) in [
            (dir.path().join("missing.pem"), "correct the path"),
            (dir.path().to_owned(), "correct the path"),
            (pipe, "correct the path"),
            (write("empty.pem", b""), "BEGIN CERTIFICATE"),
            (write("root.cer", &[0x30, 0x82, 0x03, 0x44, 0x30]), "openssl x509 -inform der"),
            (
                write("key.pem", b"-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n"),
                "private key",
            ),
        ] {
            let config = NetworkConfig { ca_file: vec![path.clone()], ..NetworkConfig::default() };
            let report = config.trusted_authorities(&Env::from_pairs(&[])).expect_err("refused").report();
            let name = path.display().to_string();
            assert!(report.outside.starts_with(&format!("network.ca_file: {name}")), "{}", report.outside);
            assert!(report.hint.contains(remedy), "{}", report.hint);
            let name = path.to_str().expect("UTF-8");
            let report = NetworkConfig::default()
                .trusted_authorities(&Env::from_pairs(&[(CERT_FILE, name)]))
                .expect_err("refused")
                .report();
            assert!(report.outside.starts_with("SSL_CERT_FILE: "), "{}", report.outside);
        }
        let missing = dir.path().join("nowhere");
        let missing = Env::from_pairs(&[(CERT_DIR, missing.to_str().expect("UTF-8"))]);
        assert!(NetworkConfig::default().trusted_authorities(&missing).is_err());
    }
}
