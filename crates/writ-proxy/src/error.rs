//! Errors of the proxy itself. Those for agents are in `refusal`.

use std::io;
use std::path::PathBuf;

use writ_policy::keys::KeyError;
use writ_policy::rules::RuleError;
use writ_runtime::error::EngineError;
use writ_store::error::StoreError;
use writ_types::error::{Exit, Report, ToReport};

use crate::secret::SealError;

/// The reason why the proxy cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// Its store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its door cannot be used.
    #[error(transparent)]
    Door(#[from] EngineError),
    /// A value cannot be sealed or opened.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// Its own keys cannot be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Its rules cannot stand: a bug.
    #[error(transparent)]
    Rules(#[from] RuleError),
    /// Operations cannot be used.
    #[error("{file}:{line}: {what}")]
    Operation {
        /// The file.
        file: PathBuf,
        /// The line.
        line: usize,
        /// The defect.
        what: String,
        /// The remedy.
        hint: String,
    },
    /// A socket cannot be opened.
    #[error("cannot listen on {place}: {source}")]
    Listen {
        /// Its path or address.
        place: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("{path}: {why}")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The defect.
        why: String,
    },
    /// A case has a name that none can have.
    #[error("{0}: none, empty or too long")]
    Name(&'static str),
}

impl ToReport for ProxyError {
    fn report(&self) -> Report {
        let config = |code, hint: &str| Report::new(Exit::Config, code, self.to_string()).with_hint(hint);
        match self {
            Self::Store(error) => error.report(),
            Self::Door(error) => error.report(),
            Self::Seal(SealError::NoRandomness) => {
                Report::new(Exit::Blocked, "proxy.random", self.to_string()).with_hint("try again")
            }
            Self::Seal(SealError::Damaged) => config(
                "proxy.sealed",
                "the secret of the proxy is not the one that its database was written with: restore both together",
            ),
            Self::Key(_) | Self::Rules(_) => {
                Report::new(Exit::Bug, "proxy.keys", self.to_string()).with_hint(Exit::Bug.advice())
            }
            Self::Operation { hint, .. } => config("proxy.operation", hint),
            Self::Listen { .. } => config(
                "proxy.listen",
                "check that the folder is there and yours, and that nothing else listens there",
            ),
            Self::Certificate { .. } => config(
                "proxy.certificate",
                "`tls.certificate` and `tls.key` name PEM files that belong together",
            ),
            Self::Name(_) => {
                Report::new(Exit::Usage, "proxy.name", self.to_string()).with_hint("correct the request")
            }
        }
    }
}
