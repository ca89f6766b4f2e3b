//! The secrets of a home: which must stand in no text, and what stands for those that programs use.

use std::sync::Arc;

use secrecy::SecretString;
use writ_egress::credential::{Credentials, Held};
use writ_policy::redact::KnownSecret;
use writ_types::credential::CredentialRef;
use writ_types::error::Report;

use crate::core::Core;
use crate::error::EngineError;
use crate::session::Session;

/// Knows the secrets of this home.
pub trait SecretSource: std::fmt::Debug + Send + Sync {
    /// Every secret that is known now. It may block: a keyring may ask a person.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    fn known(&self) -> Result<Vec<KnownSecret>, Report>;

    /// The value of one that the configuration names; `None`: there is none. It may block, too.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    fn value(&self, secret: &CredentialRef) -> Result<Option<SecretString>, Report>;
}

impl Core {
    /// Reads anew which secrets must stand in no text.
    ///
    /// # Errors
    ///
    /// If they cannot be read; those that were known before still count then.
    pub(crate) async fn learn_secrets(self: &Arc<Self>) -> Result<(), EngineError> {
        let core = Arc::clone(self);
        let learnt = tokio::task::spawn_blocking(move || {
            let known = core.secrets.known()?;
            core.redactor.learn(&known);
            Ok(())
        });
        learnt.await.map_err(|error| EngineError::Machine(error.to_string()))?.map_err(EngineError::Secrets)
    }

    /// What stands for the owner's credentials in a session. One whose secret cannot be had stands for nothing.
    pub(crate) async fn credentials_of(self: &Arc<Self>, session: &Session) -> Credentials {
        let bindings = &self.config.credentials;
        if bindings.is_empty() {
            return Credentials::default();
        }
        let (core, session) = (Arc::clone(self), session.id.to_string());
        let reading = tokio::task::spawn_blocking(move || {
            let held = core.config.credentials.iter().filter_map(|binding| {
                let value = core.secrets.value(&binding.secret).unwrap_or_else(|report| {
                    tracing::warn!(credential = %binding.name, code = report.code, "a secret cannot be read");
                    None
                });
                let placeholder = core.egress.placeholder(&session, binding.name.as_str())?;
                Some(Held { binding: binding.clone(), placeholder, value })
            });
            Credentials::new(held.collect())
        });
        reading.await.unwrap_or_default()
    }
}
