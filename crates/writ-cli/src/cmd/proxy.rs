//! `writ proxy`: the security proxy, a process of its own with its own folder, database, keys and secrets.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ed25519_dalek::VerifyingKey;
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use writ_inspect::redact::Redactor;
use writ_operations::targets::config::TargetsSpec;
use writ_operations::{Targets, TargetsConfig};
use writ_policy::keys::Verifier;
use writ_proxy::config::{ProxyConfig, TrustedKeys};
use writ_proxy::proxy::{Proxy, ProxyParts};
use writ_proxy::secret::{ProxySecret, SECRET_BYTES};
use writ_proxy::server::{ProxyServer, ServerPlaces};
use writ_proxy::trust::Trust;
use writ_runtime::clock::{Clock as _, Ids, SystemClock};
use writ_secrets::error::SecretsError;
use writ_secrets::record::recorded_backend;
use writ_secrets::store::{EngineKey, SecretStore};
use writ_store::config::StoreConfig;
use writ_store::lock::HomeLock;
use writ_store::store::Store;
use writ_types::credential::Reference;
use writ_types::digest::Digest;
use writ_types::error::Exit;
use zeroize::Zeroizing;

use crate::args::{Global, ProxyArgs, ProxyCommand, SecretsCommand};
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::home::{check_folder, make_folder};
use crate::interrupt::threaded_runtime;
use crate::keyring::{KeyRole, ask_passphrase, public_keys};
use crate::ledger::open_to_read;
use crate::parent::NamedParent;
use crate::{log, terminal, wiring};

/// The name of the secret that tokens are made with.
const TOKEN_SECRET: &str = "proxy-tokens";
/// The name of the token that the router shows.
const ROUTER_SECRET: &str = "proxy-router";
/// The largest `proxy.toml`, in bytes.
const MAX_CONFIG_BYTES: u64 = 256 * 1024;
/// The time that the runtime gets to end.
const END_LIMIT: Duration = Duration::from_secs(1);

/// The places of a proxy in its home.
struct ProxyFolder {
    root: PathBuf,
}

impl ProxyFolder {
    fn of(context: &Context) -> Result<Self, Failure> {
        let root = context.home.root().join("proxy");
        make_folder(&root)?;
        // A folder that was there may be open to others, or belong to someone else.
        check_folder(&root)?;
        Ok(Self { root })
    }

    fn keys(&self) -> PathBuf {
        self.root.join("keys")
    }
}

/// Runs the proxy, or changes its secrets.
///
/// # Errors
///
/// If another proxy runs in this home, or any part of it cannot be made.
pub(crate) fn run_proxy(context: &Context, args: &ProxyArgs, global: &Global) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    let folder = ProxyFolder::of(context)?;
    let secrets = open_own_secrets(context, &config, &folder)?;
    match &args.command {
        // Without the lock, so that a secret can be set while a proxy runs; its next start reads it.
        Some(ProxyCommand::Secrets(command)) => run_own_secrets(context, &secrets, command),
        None => serve_proxy(context, &config, (&folder, &secrets), args, global),
    }
}

/// Opens the secrets of the proxy, and makes its keys where they are missing. They lie in a backend of the same kind as those of the home.
fn open_own_secrets(
    context: &Context,
    config: &Config,
    folder: &ProxyFolder,
) -> Result<SecretStore, Failure> {
    let passphrase = ask_passphrase(context, "Passphrase of this home's secrets: ")?;
    let keys = folder.keys();
    let secrets = if recorded_backend(&keys)?.is_some() {
        SecretStore::open(&keys, passphrase, &config.secrets)?
    } else {
        let backend = recorded_backend(&context.home.keys())?.ok_or(SecretsError::NotCreated)?;
        SecretStore::create(&keys, backend, passphrase, &config.secrets)?
    };
    match secrets.generate_key(EngineKey::Harness) {
        // One that is there stays: the entries so far would not verify under another.
        Ok(_) | Err(SecretsError::KeyExists(_)) => {}
        Err(error) => return Err(error.into()),
    }
    write_public_key(&keys.join("harness.pub"), &secrets)?;
    for name in [TOKEN_SECRET, ROUTER_SECRET] {
        let name: Reference = name.parse::<Reference>()?;
        if secrets.get_secret(&name)?.is_none() {
            secrets.set_secret(&name, random_text()?)?;
        }
    }
    Ok(secrets)
}

/// Writes the key that the proxy's ledger is verified with, as the home has its own.
fn write_public_key(path: &Path, secrets: &SecretStore) -> Result<(), Failure> {
    let key = secrets.signing_key(EngineKey::Harness)?.verifying_key();
    fs::write(path, format!("{}\n", hex::encode(key.as_bytes()))).map_err(|error| {
        let text = format!("{}: {error}", path.display());
        Failure::new(
            Exit::Config,
            "proxy.public_key",
            text,
            "check the owner and mode of the folder 'proxy/keys'",
        )
    })
}

fn random_text() -> Result<SecretString, Failure> {
    let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
    OsRng.try_fill_bytes(bytes.as_mut()).map_err(|_| SecretsError::NoRandomness)?;
    Ok(hex::encode(bytes.as_ref()).into())
}

fn run_own_secrets(
    context: &Context,
    secrets: &SecretStore,
    command: &SecretsCommand,
) -> Result<(), Failure> {
    let is_own = |name: &Reference| [TOKEN_SECRET, ROUTER_SECRET].contains(&name.as_str());
    let named = |name: &str| -> Result<Reference, Failure> {
        let name: Reference = name.parse::<Reference>()?;
        // Without them every token of before would name nothing.
        if is_own(&name) {
            let text = format!("'{name}' is the proxy's own");
            return Err(Failure::new(Exit::Usage, "proxy.own_secret", text, "choose another name"));
        }
        Ok(name)
    };
    match command {
        SecretsCommand::Set { name } => {
            let name = named(name)?;
            let prompt = format!("Value of '{name}': ");
            secrets.set_secret(&name, terminal::read_value(&context.host.streams, &prompt)?)?;
            let use_it = format!("secret:{name}");
            context.out.print_either(&json!({ "stored": name, "use": use_it }), |_| {
                vec![format!("stored; write {use_it} in proxy/proxy.toml")]
            })
        }
        SecretsCommand::List => {
            let names: Vec<Reference> =
                secrets.list_names()?.into_iter().filter(|name| !is_own(name)).collect();
            context.out.print_either(&json!({ "secrets": names }), |_| {
                names.iter().map(ToString::to_string).collect()
            })
        }
        SecretsCommand::Remove { name } => {
            let name = named(name)?;
            secrets.remove_secret(&name)?;
            context.out.print_either(&json!({ "removed": name }), |_| vec![format!("removed {name}")])
        }
    }
}

/// Reads `proxy.toml`, with its text; a proxy without one has no targets.
fn load_proxy_config(folder: &ProxyFolder) -> Result<(ProxyConfig, String), Failure> {
    let path = folder.root.join("proxy.toml");
    let wrong = |text: String| {
        let text = format!("{}: {text}", path.display());
        Failure::new(Exit::Config, "proxy.config", text, "`docs/guides/fleet.md` names its settings")
    };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok((ProxyConfig::default(), String::new()));
        }
        Err(error) => return Err(wrong(error.to_string())),
    };
    let mut text = String::new();
    // One byte more than fits shows that it is too large.
    let read = file.take(MAX_CONFIG_BYTES.saturating_add(1)).read_to_string(&mut text);
    let read = read.map_err(|error| wrong(error.to_string()))?;
    if u64::try_from(read).unwrap_or(u64::MAX) > MAX_CONFIG_BYTES {
        return Err(wrong(format!("it is larger than {MAX_CONFIG_BYTES} bytes")));
    }
    let mut config: ProxyConfig = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if let Some(tls) = &mut config.tls {
        // Not from the working folder: a proxy may be started from anywhere.
        tls.certificate = folder.root.join(&tls.certificate);
        tls.key = folder.root.join(&tls.key);
    }
    Ok((config, text))
}

/// Connects to the targets of the configuration, with the proxy's own secrets.
fn open_targets(
    (context, home): (&Context, &Config),
    (spec, text): (TargetsSpec, &str),
    folder: &ProxyFolder,
    secrets: &SecretStore,
) -> Result<Targets, Failure> {
    let known: BTreeMap<String, SecretString> =
        secrets.all_secrets()?.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    let find = |name: &str| known.get(name.strip_prefix("secret:").unwrap_or(name)).cloned();
    let path = folder.root.join("proxy.toml");
    let config = TargetsConfig::resolve_spec(spec, &path, text, &find).map_err(|errors| {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let hint = errors.into_iter().next().map_or_else(String::new, |error| error.hint);
        Failure::new(Exit::Config, "proxy.targets", texts.join("\n"), hint)
    })?;
    let egress = wiring::build_egress(context, home, secrets, &folder.root)?;
    Ok(Targets::open(config, Arc::new(egress)))
}

/// Returns the installation of the accepted keys: the one that `proxy.toml` names, else the home's own.
fn find_trust(context: &Context, config: &Config, keys: Option<&TrustedKeys>) -> Result<Trust, Failure> {
    let Some(keys) = keys else {
        let newest = |role| -> Result<VerifyingKey, Failure> {
            public_keys(&context.home, role)?.first().copied().ok_or_else(|| wrong_key("keys"))
        };
        let (root, router) = (newest(KeyRole::Root)?, newest(KeyRole::Harness)?);
        return Ok(Trust::Engine { database: open_to_read(context, config)?, root, router });
    };
    let public = |key: Digest, name| VerifyingKey::from_bytes(key.as_bytes()).map_err(|_| wrong_key(name));
    Ok(Trust::Fixed(Verifier {
        root: public(keys.root, "keys.root")?,
        router: public(keys.router, "keys.router")?,
        installation: keys.installation,
        epoch: keys.epoch,
    }))
}

fn wrong_key(name: &str) -> Failure {
    let text = format!("{name} is no public key");
    Failure::new(
        Exit::Config,
        "proxy.config",
        text,
        "`keys/root.pub` and `keys/harness.pub` of a home hold them",
    )
}

fn serve_proxy(
    context: &Context,
    config: &Config,
    (folder, secrets): (&ProxyFolder, &SecretStore),
    args: &ProxyArgs,
    global: &Global,
) -> Result<(), Failure> {
    // A server replaces the sockets that it finds: a second one would cut off the first.
    let lock = HomeLock::acquire(&folder.root.join("lock"))?;
    let (proxy_config, text) = load_proxy_config(folder)?;
    let logs = folder.root.join("logs");
    make_folder(&logs)?;
    let run = Ids.run(SystemClock.now()).to_string();
    let target = log::LogTarget { folder: &logs, config: &config.log, run };
    let redactor = Redactor::default();
    let told = log::to_file(log::stderr_level(global), target, None, (&redactor, &context.host));
    let told = told.map_err(|error| {
        let text = format!("the log cannot be written: {error}");
        Failure::new(
            Exit::Config,
            "log.unwritable",
            text,
            "check the owner and mode of the folder 'proxy/logs'",
        )
    })?;
    let places = find_places(context, folder, args, &proxy_config, secrets)?;
    let parts = collect_parts(context, config, (folder, secrets), (proxy_config, &text))?;
    let runtime = threaded_runtime()?;
    let served = runtime.block_on(async {
        // First: a signal that comes while the proxy opens would otherwise end it in the midst.
        let mut stops = context.host.stops.listen_engine()?;
        let parent = NamedParent::open_watch(args.parent)?;
        // Operations that the last end of the proxy cut off are recorded before a socket accepts the first request.
        let proxy = Proxy::open(parts).await?;
        let server = ProxyServer::bind(places).await?;
        let stop = CancellationToken::new();
        let serving = tokio::spawn(server.serve(proxy, stop.clone()));
        context.out.print_remark("proxy ready");
        tokio::select! {
            () = stops.stopped() => {}
            () = parent.until_ended() => tracing::info!("the process that has started this one has ended"),
        }
        stop.cancel();
        serving.await.map_err(|error| Failure::internal_error("serving the proxy", error))
    });
    runtime.shutdown_timeout(END_LIMIT);
    told.end_writer();
    // Last, so that the next proxy finds no one who still writes into its log.
    drop(lock);
    served
}

fn find_places(
    context: &Context,
    folder: &ProxyFolder,
    args: &ProxyArgs,
    config: &ProxyConfig,
    secrets: &SecretStore,
) -> Result<ServerPlaces, Failure> {
    let tls = match (args.tls, &config.tls) {
        (Some(address), Some(tls)) => Some((address, tls.clone())),
        (Some(_), None) => {
            let text = "--tls needs a certificate".to_owned();
            let hint = "set tls.certificate and tls.key in proxy/proxy.toml";
            return Err(Failure::new(Exit::Usage, "proxy.certificate", text, hint));
        }
        (None, _) => None,
    };
    let socket = args.socket.as_ref().map(|path| context.locate_path(path));
    let token = secrets.get_secret(&ROUTER_SECRET.parse::<Reference>()?)?;
    let router_token = token.ok_or(SecretsError::NotCreated)?;
    write_router_token(&folder.root.join("router.token"), &router_token)?;
    Ok(ServerPlaces {
        socket: socket.unwrap_or_else(|| folder.root.join("agents.sock")),
        // Users that run as agents are named in the configuration, and the system tells one from another.
        shared: config.agents.values().any(|agent| !agent.uids.is_empty()),
        tls,
        router: folder.root.join("router.sock"),
        router_token,
    })
}

/// Writes the token for the router, which runs as the same user.
fn write_router_token(path: &Path, token: &SecretString) -> Result<(), Failure> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let new = path.with_extension("new");
    let written = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
    // Renamed when it is complete, so that a router never reads half a token.
    let written = written.and_then(|mut file| {
        file.write_all(token.expose_secret().as_bytes())?;
        fs::rename(&new, path)
    });
    written.map_err(|error| {
        let text = format!("{}: {error}", path.display());
        Failure::new(Exit::Config, "proxy.token", text, "check the owner and mode of the folder 'proxy'")
    })
}

fn collect_parts(
    context: &Context,
    config: &Config,
    (folder, secrets): (&ProxyFolder, &SecretStore),
    (proxy_config, text): (ProxyConfig, &str),
) -> Result<ProxyParts, Failure> {
    let signer = secrets.signing_key(EngineKey::Harness)?;
    let store_config = StoreConfig::new(folder.root.join("proxy.db"));
    let store = Store::open(&store_config, Arc::new(signer.clone()))?;
    let hidden = secrets.get_secret(&TOKEN_SECRET.parse::<Reference>()?)?.ok_or(SecretsError::NotCreated)?;
    let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
    hex::decode_to_slice(hidden.expose_secret(), bytes.as_mut()).map_err(|_| SecretsError::Damaged {
        name: format!("the secret {TOKEN_SECRET}"),
        reason: "it has a wrong form",
    })?;
    Ok(ProxyParts {
        store,
        signer,
        clock: Arc::new(SystemClock),
        secret: ProxySecret::from_bytes(*bytes),
        trust: find_trust(context, config, proxy_config.keys.as_ref())?,
        operations: context.home.operations(),
        targets: open_targets((context, config), (proxy_config.targets, text), folder, secrets)?,
        agents: proxy_config.agents,
    })
}
