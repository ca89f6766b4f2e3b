//! The installation that signs the accepted keys, and its revocations.

use std::collections::BTreeSet;

use ed25519_dalek::VerifyingKey;
use writ_policy::keys::Verifier;
use writ_store::error::StoreError;
use writ_store::reads::{RevocationReads as _, SettingReads as _};
use writ_store::store::Store;
use writ_types::id::InstallationId;

/// The source of trust in keys. It is asked at each request.
#[derive(Clone, Debug)]
pub enum Trust {
    /// An engine: its database is read.
    Engine {
        /// Its database, opened to be read only.
        database: Store,
        /// The public key that signs base keys.
        root: VerifyingKey,
        /// The public key that signs task keys.
        router: VerifyingKey,
    },
    /// Fixed keys. Revocations come over the socket for the router alone.
    Fixed(Verifier),
}

impl Trust {
    /// Returns the installation.
    pub fn installation(&self) -> InstallationId {
        match self {
            Self::Engine { database, .. } => database.installation(),
            Self::Fixed(verifier) => verifier.installation,
        }
    }

    /// Returns what verifies keys now: a restored engine has another epoch.
    pub(crate) async fn current_verifier(&self) -> Result<Verifier, StoreError> {
        match self {
            Self::Engine { database, root, router } => Ok(Verifier {
                root: *root,
                router: *router,
                installation: database.installation(),
                epoch: database.epoch().await?,
            }),
            Self::Fixed(verifier) => Ok(verifier.clone()),
        }
    }

    /// Returns true if the engine has revoked one of these ids. The proxy's own list is asked by its door.
    pub(crate) async fn is_any_revoked(&self, ids: &BTreeSet<String>) -> Result<bool, StoreError> {
        match self {
            Self::Engine { database, .. } => {
                let ids: Vec<String> = ids.iter().cloned().collect();
                Ok(!database.revoked_among(&ids).await?.is_empty())
            }
            Self::Fixed(_) => Ok(false),
        }
    }
}
