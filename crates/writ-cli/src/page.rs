//! The server of the page, as commands see it: its parts, and links that open the page.

use std::net::IpAddr;
use std::sync::Arc;

use secrecy::SecretString;
use writ_gateway::http::{self, Http, SecretIntake, SettingRow, TakenPort, link};
use writ_secrets::store::SecretStore;
use writ_types::credential::{CredentialRef, Reference};
use writ_types::error::{Exit, Report, ToReport as _};

use crate::client::EngineClient;
use crate::clock;
use crate::config::Config;
use crate::config::explained::explain_settings;
use crate::config::layer::SettingOrigin;
use crate::config::schema::dotted_path;
use crate::context::Context;
use crate::failure::Failure;
use crate::wiring::CredentialSources;

/// Takes secrets in that the API is given.
struct SecretWriter(Arc<SecretStore>);

impl SecretIntake for SecretWriter {
    fn store(&self, name: &Reference, value: SecretString) -> Result<(), Report> {
        self.0.set_secret(name, value).map_err(|error| error.report())
    }
}

/// Makes the server: it listens, and serves when the engine is there.
///
/// # Errors
///
/// If it may not or cannot listen.
pub(crate) fn bind_server(
    context: &Context,
    config: &Config,
    credentials: &CredentialSources,
    taken_port: TakenPort,
) -> Result<Http, Failure> {
    // Without a token the page is served to this machine alone, which the binding checks.
    let token = match &config.server.auth_token {
        None => None,
        Some(reference) => Some(read_token(credentials, reference)?),
    };
    Ok(Http::bind(http::ServerParts {
        config: config.server.clone(),
        taken_port,
        runtime: context.home.runtime(),
        token,
        secrets: Some(Arc::new(SecretWriter(Arc::clone(&credentials.secrets)))),
        settings: list_settings(config),
    })?)
}

/// Lists the settings in force, each with its origin and explanation. Credentials stand there by reference alone.
fn list_settings(config: &Config) -> Vec<SettingRow> {
    let explained = explain_settings();
    let rows = config.effective.iter().map(|(path, in_force)| {
        let name = dotted_path(path);
        SettingRow {
            about: explained.get(&name).cloned().unwrap_or_default(),
            value: in_force.value.to_string(),
            origin: match &in_force.origin {
                SettingOrigin::Default => None,
                origin @ (SettingOrigin::File { .. } | SettingOrigin::Env(_) | SettingOrigin::Flag) => {
                    Some(origin.to_string())
                }
            },
            name,
        }
    });
    rows.collect()
}

fn read_token(credentials: &CredentialSources, reference: &CredentialRef) -> Result<SecretString, Failure> {
    credentials.credential_value(reference).map_err(|error| {
        let text = format!("the token of server.auth_token: {error}");
        let hint = "store it with `writ secrets set NAME`, or set the environment variable";
        Failure::new(Exit::Config, "server.no_token", text, hint)
    })
}

/// Creates a new link that opens the page.
///
/// # Errors
///
/// If it cannot be stored.
pub(crate) fn create_link(context: &Context, host: IpAddr, port: u16) -> Result<String, Failure> {
    let code = link::mint_link(&context.home.runtime(), clock::now()).map_err(|error| {
        let text = format!("a link to the page cannot be stored: {error}");
        Failure::new(Exit::Blocked, "server.link", text, "check the home's folder 'runtime'")
    })?;
    // A name, not an address: passkeys are bound to names.
    let name = if host.is_loopback() || host.is_unspecified() {
        "localhost".to_owned()
    } else if host.is_ipv6() {
        format!("[{host}]")
    } else {
        host.to_string()
    };
    Ok(format!("http://{name}:{port}/link/{code}"))
}

/// The port of the engine that serves the page, and a connection to it.
///
/// # Errors
///
/// If none does.
pub(crate) async fn find_served(context: &Context) -> Result<(u16, EngineClient), Failure> {
    // A socket without a port belongs to an engine that serves no page.
    if let Some(client) = EngineClient::connect(context).await?
        && let Some(port) = http::running_port(&context.home.runtime())
    {
        return Ok((port, client));
    }
    let text = "no engine is running that serves the page";
    Err(Failure::new(Exit::Blocked, "server.not_running", text, "start one with `writ start`"))
}
