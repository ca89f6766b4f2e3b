//! The sources of credentials, and the values among them that must stand in no text.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use secrecy::{ExposeSecret as _, SecretString};
use writ_egress::Egress;
use writ_inspect::redact::KnownSecret;
use writ_models::credential::{CredentialError, CredentialSource};
use writ_models::detect;
use writ_models::provider::Routes;
use writ_runtime::secret::SecretSource;
use writ_search::SearchKeys;
use writ_search::error::SearchKeyError;
use writ_secrets::server::Fetched;
use writ_secrets::store::SecretStore;
use writ_types::credential::CredentialRef;
use writ_types::error::{Exit, Report, ToReport as _};

use crate::config::Config;
use crate::context::Context;
use crate::env::Env;
use crate::failure::Failure;
use crate::wiring::vault;

/// The password of the network's proxy. A vault server is no place for it: that is reached through the proxy.
///
/// # Errors
///
/// If it is not there, or cannot be read; in words for people.
pub(crate) fn proxy_password(
    reference: &CredentialRef,
    secrets: &SecretStore,
    env: &Env,
) -> Result<SecretString, String> {
    let found = match reference {
        CredentialRef::Env(name) => env.secret_of(name),
        CredentialRef::Secret(name) => secrets.get_secret(name).map_err(|error| error.to_string())?,
        CredentialRef::Vault { .. } => {
            return Err(format!(
                "'{reference}' cannot be read: a vault server is itself reached through the proxy"
            ));
        }
    };
    found.ok_or_else(|| format!("'{reference}' is not set"))
}

/// The sources of providers' keys: the home's secrets, the environment, or a vault server.
pub(crate) struct CredentialSources {
    pub(crate) secrets: Arc<SecretStore>,
    env: Env,
    vault: Fetched,
}

impl CredentialSources {
    /// Reads what the configuration names of a vault server; the rest is looked up when it is needed.
    ///
    /// # Errors
    ///
    /// If something is named of a vault server and cannot be had.
    pub(crate) async fn gather_sources(
        context: &Context,
        config: &Config,
        secrets: Arc<SecretStore>,
        egress: &Arc<Egress>,
    ) -> Result<Arc<Self>, Failure> {
        let vault = vault::fetch_secrets(context, &named_references(config), egress).await?;
        Ok(Arc::new(Self { secrets, env: context.env.clone(), vault }))
    }

    /// The value that a reference stands for now.
    ///
    /// # Errors
    ///
    /// If it is not there, or cannot be read.
    pub(crate) fn credential_value(&self, key: &CredentialRef) -> Result<SecretString, CredentialError> {
        let found = match key {
            CredentialRef::Env(name) => self.env.secret_of(name),
            CredentialRef::Secret(name) => self
                .secrets
                .get_secret(name)
                .map_err(|error| CredentialError::Unreadable(error.to_string()))?,
            CredentialRef::Vault { .. } => self.vault.get_secret(key),
        };
        // A value that is empty would be sent as a key, and be refused far from here.
        let found = found.map(without_line_end).filter(|value| !value.expose_secret().is_empty());
        found.ok_or(CredentialError::Missing)
    }
}

/// Removes blanks and line ends around a value, as `echo KEY |` or a file leaves them. What is masked is the same
/// value that is sent.
fn without_line_end(value: SecretString) -> SecretString {
    match value.expose_secret().trim() {
        trimmed if trimmed.len() == value.expose_secret().len() => value,
        trimmed => SecretString::from(trimmed),
    }
}

impl CredentialSource for CredentialSources {
    fn resolve<'a>(&'a self, key: &'a CredentialRef) -> BoxFuture<'a, Result<SecretString, CredentialError>> {
        Box::pin(async move { self.credential_value(key) })
    }
}

/// The secrets that must stand in no text: all of the home's, the variables that the configuration names, and what a
/// vault server was asked for, and with.
pub(crate) struct KnownSecrets {
    credentials: Arc<CredentialSources>,
    variables: Vec<String>,
}

impl KnownSecrets {
    pub(crate) fn of_config(config: &Config, credentials: &Arc<CredentialSources>) -> Self {
        // Also those that no setting names: a program that is started could print them.
        let keys = detect::key_variables().map(str::to_owned);
        let logins = vault::VARIABLES.iter().map(|name| (*name).to_owned());
        // Where it is, is no secret.
        let logins = logins.filter(|name| name != vault::ADDRESS && name != vault::NAMESPACE);
        let variables = variable_names(config).into_iter().chain(keys).chain(logins).collect();
        Self { credentials: Arc::clone(credentials), variables }
    }
}

impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownSecrets").field("variables", &self.variables).finish_non_exhaustive()
    }
}

impl SecretSource for KnownSecrets {
    fn known(&self) -> Result<Vec<KnownSecret>, Report> {
        let stored = self.credentials.secrets.all_secrets().map_err(|error| error.report())?;
        let stored = stored.into_iter().map(|(name, value)| KnownSecret {
            name: format!("secret:{name}"),
            value: without_line_end(value),
        });
        let named = self.variables.iter().filter_map(|name| {
            Some(KnownSecret { name: format!("env:{name}"), value: self.credentials.env.secret_of(name)? })
        });
        let fetched = self.credentials.vault.all_secrets();
        let fetched = fetched.map(|(name, value)| KnownSecret {
            name: name.to_string(),
            value: without_line_end(value.clone()),
        });
        Ok(stored.chain(named).chain(fetched).collect())
    }

    fn value(&self, secret: &CredentialRef) -> Result<Option<SecretString>, Report> {
        match self.credentials.credential_value(secret) {
            Ok(value) => Ok(Some(value)),
            Err(CredentialError::Missing) => Ok(None),
            Err(error @ CredentialError::Unreadable(_)) => {
                Err(Report::new(Exit::Blocked, "credential.unreadable", error.to_string())
                    .with_hint("`writ doctor` shows what is wrong with the place where secrets lie."))
            }
        }
    }
}

impl SearchKeys for CredentialSources {
    fn key<'a>(&'a self, key: &'a CredentialRef) -> BoxFuture<'a, Result<SecretString, SearchKeyError>> {
        Box::pin(async move {
            self.resolve(key).await.map_err(|error| match error {
                CredentialError::Missing => SearchKeyError::Missing,
                CredentialError::Unreadable(why) => SearchKeyError::Unreadable(why),
            })
        })
    }
}

/// Every credential that the configuration names.
pub(crate) fn named_references(config: &Config) -> BTreeSet<CredentialRef> {
    let routes = Routes::new(&config.models);
    let keys = routes.iter().flat_map(Routes::all).filter_map(|(_, route)| route.provider.key.clone());
    let others = [&config.telemetry.otlp_token, &config.search.api_key, &config.server.auth_token];
    let bound = config.egress.credentials.iter().map(|binding| binding.secret.clone());
    keys.chain(others.into_iter().flatten().cloned()).chain(bound).collect()
}

/// The environment variables that the configuration names as credentials, and those that a vault server which it names
/// is found and asked with.
pub(super) fn variable_names(config: &Config) -> Vec<String> {
    let mut vault = false;
    let mut names = Vec::new();
    for key in named_references(config) {
        match key {
            CredentialRef::Env(name) => names.push(name),
            CredentialRef::Vault { .. } => vault = true,
            CredentialRef::Secret(_) => {}
        }
    }
    if vault {
        names.extend(vault::VARIABLES.map(str::to_owned));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pipe_leaves_around_a_value_is_removed() {
        for (stored, used) in
            [("sk-1\n", "sk-1"), ("\tsk-1\r\n", "sk-1"), ("a\nb\n", "a\nb"), ("sk-1", "sk-1"), ("\n", "")]
        {
            assert_eq!(without_line_end(SecretString::from(stored)).expose_secret(), used, "{stored:?}");
        }
    }
}
