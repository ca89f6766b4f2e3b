//! The secrets of the home in use: masked in every text, and lent to programs by placeholders.

use std::sync::Arc;

use secrecy::SecretString;
use writ_egress::credential::{BoundCredential, Credentials};
use writ_types::credential::CredentialRef;
use writ_types::error::{Exit, Report};

use crate::error::EngineError;
use crate::services::Services;
use crate::session::Session;
/// Reads anew which secrets must stand in no text.
///
/// # Errors
///
/// If they cannot be read; those that were known before still count then.
pub(crate) async fn learn_secrets(services: &Arc<Services>) -> Result<(), EngineError> {
    let services = Arc::clone(services);
    let learnt = tokio::task::spawn_blocking(move || {
        let known = services.outside.secrets.known()?;
        services.journal.redactor.learn_secrets(&known);
        Ok(())
    });
    learnt.await.map_err(|error| EngineError::Machine(error.to_string()))?.map_err(EngineError::Secrets)
}

/// Returns the value of a secret; `None`: there is none.
///
/// # Errors
///
/// If it cannot be read.
pub(crate) async fn read_secret(
    services: &Arc<Services>,
    secret: &CredentialRef,
) -> Result<Option<SecretString>, Report> {
    let (owned, secret) = (Arc::clone(services), secret.clone());
    // A keyring may ask a person.
    let reading = tokio::task::spawn_blocking(move || owned.outside.secrets.value(&secret));
    let broken = |why: String| {
        Report::new(Exit::Bug, "secrets.reading", "a secret was not read")
            .with_hint("try again")
            .with_inside(why)
    };
    reading.await.map_err(|error| broken(error.to_string()))?
}

/// Returns the placeholders for the owner's credentials in a session. A credential without a readable secret
/// has no value.
pub(crate) async fn credentials_of(services: &Arc<Services>, session: &Session) -> Credentials {
    let bindings = &services.config.credentials;
    if bindings.is_empty() {
        return Credentials::default();
    }
    let (services, session) = (Arc::clone(services), session.id.to_string());
    let reading = tokio::task::spawn_blocking(move || {
        let held = services.config.credentials.iter().filter_map(|binding| {
            let value = services.outside.secrets.value(&binding.secret).unwrap_or_else(|report| {
                tracing::warn!(credential = %binding.name, code = report.code, "a secret cannot be read");
                None
            });
            let placeholder = services.outside.egress.session_placeholder(&session, binding.name.as_str())?;
            Some(BoundCredential { binding: binding.clone(), placeholder, value })
        });
        Credentials::new(held.collect())
    });
    reading.await.unwrap_or_default()
}
