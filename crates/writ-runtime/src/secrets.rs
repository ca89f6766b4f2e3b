//! The secrets of the home in use: masked in every text, and lent to programs by placeholders.

use std::sync::Arc;

use writ_egress::credential::{BoundCredential, Credentials};

use crate::error::EngineError;
use crate::services::Services;
use crate::session::Session;
/// Reads anew which secrets must stand in no text.
///
/// # Errors
///
/// If they cannot be read; those that were known before still count then.
pub(crate) async fn learn_secrets(core: &Arc<Services>) -> Result<(), EngineError> {
    let core = Arc::clone(core);
    let learnt = tokio::task::spawn_blocking(move || {
        let known = core.outside.secrets.known()?;
        core.journal.redactor.learn_secrets(&known);
        Ok(())
    });
    learnt.await.map_err(|error| EngineError::Machine(error.to_string()))?.map_err(EngineError::Secrets)
}

/// Returns the placeholders for the owner's credentials in a session. A credential without a readable secret
/// has no value.
pub(crate) async fn credentials_of(core: &Arc<Services>, session: &Session) -> Credentials {
    let bindings = &core.config.credentials;
    if bindings.is_empty() {
        return Credentials::default();
    }
    let (core, session) = (Arc::clone(core), session.id.to_string());
    let reading = tokio::task::spawn_blocking(move || {
        let held = core.config.credentials.iter().filter_map(|binding| {
            let value = core.outside.secrets.value(&binding.secret).unwrap_or_else(|report| {
                tracing::warn!(credential = %binding.name, code = report.code, "a secret cannot be read");
                None
            });
            let placeholder = core.outside.egress.session_placeholder(&session, binding.name.as_str())?;
            Some(BoundCredential { binding: binding.clone(), placeholder, value })
        });
        Credentials::new(held.collect())
    });
    reading.await.unwrap_or_default()
}
