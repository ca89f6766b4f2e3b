//! Notices: posted to an address of the owner's, which is a secret.

use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use writ_egress::deliver::{DeliverError, Endpoint};
use writ_types::credential::CredentialRef;
use writ_types::error::{Exit, Report, ToReport};

use crate::secrets::read_secret;
use crate::services::Services;

/// The longest wait for an answer.
const POST_LIMIT: Duration = Duration::from_secs(10);

/// The reason why a notice was not delivered. No variant holds the address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoticeError {
    /// There is no such secret.
    #[error("there is no value for the address '{0}'")]
    NoAddress(String),
    /// The secret cannot be read.
    #[error("the address cannot be read: {0}")]
    Unreadable(String),
    /// The secret is no address that a notice may go to.
    #[error("the address '{0}' is no https address without a query")]
    Address(String),
    /// The other side was not reached, or did not answer.
    #[error("the other side was not reached")]
    Unreachable,
    /// The other side takes no notice now.
    #[error("the other side takes no notice now (HTTP {status})")]
    NotNow {
        /// The HTTP status.
        status: u16,
        /// The time for which it asks not to be called again.
        wait: Option<Duration>,
    },
    /// The other side does not take this notice.
    #[error("the other side refused the notice (HTTP {0})")]
    Refused(u16),
}

impl NoticeError {
    /// Returns true if another try a little later may succeed.
    pub const fn can_pass(&self) -> bool {
        matches!(self, Self::Unreachable | Self::NotNow { .. })
    }

    /// Returns the time for which the other side asks not to be called again.
    pub const fn wait(&self) -> Option<Duration> {
        if let Self::NotNow { wait, .. } = self { *wait } else { None }
    }
}

impl ToReport for NoticeError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            Self::NoAddress(_) | Self::Unreadable(_) => Report::new(Exit::Config, "notice.no_address", text)
                .with_hint("store the address with `writ secrets set NAME`"),
            Self::Address(_) => Report::new(Exit::Config, "notice.address", text)
                .with_hint("store the whole address that the chat shows, with https"),
            Self::Unreachable | Self::NotNow { .. } => Report::new(Exit::Blocked, "notice.not_now", text)
                .with_hint("look if the other side is there"),
            Self::Refused(_) => Report::new(Exit::Config, "notice.refused", text)
                .with_hint("make a new address in the chat, and store it"),
        }
    }
}

/// Posts a notice, once.
pub(super) async fn post(
    services: &Arc<Services>,
    url: &CredentialRef,
    body: Vec<u8>,
) -> Result<(), NoticeError> {
    let secret = read_secret(services, url).await;
    let secret = secret.map_err(|report| NoticeError::Unreadable(report.outside))?;
    let secret = secret.ok_or_else(|| NoticeError::NoAddress(url.to_string()))?;
    let endpoint = Endpoint::path_below(secret.expose_secret(), "").ok().filter(Endpoint::is_private);
    let endpoint = endpoint.ok_or_else(|| NoticeError::Address(url.to_string()))?;
    // Titles and reasons are words of agents.
    let body = services.journal.redactor.mask_text(&String::from_utf8_lossy(&body)).into_owned().into_bytes();
    let egress = &services.outside.egress;
    let posted = egress.post_report(&endpoint, "application/json", None, body, POST_LIMIT).await;
    let receipt = posted.map_err(|error| {
        // Its words could repeat the address.
        tracing::debug!(is_slow = matches!(error, DeliverError::Timeout(_)), "a notice was not delivered");
        NoticeError::Unreachable
    })?;
    match receipt.status {
        200..=299 => Ok(()),
        status @ (408 | 425 | 429 | 500..=599) => {
            Err(NoticeError::NotNow { status, wait: receipt.retry_after })
        }
        status => Err(NoticeError::Refused(status)),
    }
}
