//! The errors of calls to models.

mod feature;

mod words;

use std::time::Duration;

use secrecy::SecretString;
use writ_egress::error::{EgressError, Fault};
use writ_types::chat::Usage;
use writ_types::credential::CredentialRef;
use writ_types::error::{Exit, Report, ToReport};
use writ_types::unit::{ByteCount, Tokens};

use crate::credential::CredentialError;

use feature::hint_for;

pub use feature::Feature;
pub(crate) use words::MAX_RAW_CHARS;
pub use words::{MAX_WORDS_CHARS, ProviderWords};

const CHECK_BALANCE: &str = "Check the account's balance with the provider.";

/// The failure of a call.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The key of the provider is not set or cannot be read.
    #[error("the key {key} could not be had: {cause}")]
    NoCredential {
        /// The reference that should name it.
        key: CredentialRef,
        /// The reason why it cannot be read.
        cause: CredentialError,
    },
    /// The permit is for another action.
    #[error("the permit is for another action")]
    OtherPermit,
    /// The way out of the machine (`writ-egress`) refused the connection or has none.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The request could not be made or sent.
    #[error("the request could not be sent: {0}")]
    Unsent(String),
    /// The connection ended before an answer began.
    #[error("the connection ended before an answer began")]
    Dropped,
    /// Nothing came for too long.
    #[error("nothing came for {limit:?}")]
    Timeout {
        /// The limit.
        limit: Duration,
    },
    /// Too many requests were sent, so the provider takes none for a while. The model itself works.
    #[error("too many requests")]
    RateLimited {
        /// The provider's earliest time for another try, as a wait from now; longer ones are capped already.
        retry_after: Option<Duration>,
        /// The provider's message.
        said: ProviderWords,
    },
    /// The provider has a problem of its own.
    #[error("the provider has a problem (status {status})")]
    Unavailable {
        /// The HTTP status, or the one that fits the provider's error code.
        status: u16,
        /// When to try again at the earliest, by the provider; already capped.
        retry_after: Option<Duration>,
        /// The provider's message.
        said: ProviderWords,
    },
    /// The key is not accepted.
    #[error("the key is not accepted (status {status})")]
    Unauthorized {
        /// The HTTP status.
        status: u16,
        /// The provider's message.
        said: ProviderWords,
    },
    /// The request is not accepted.
    #[error("the request is not accepted (status {status}, {code})")]
    Rejected {
        /// The HTTP status.
        status: u16,
        /// The provider's error code: a plain identifier.
        code: String,
        /// The provider's message.
        said: ProviderWords,
    },
    /// The account's balance or its allowance for a longer time is used up. Waiting a little does not help.
    #[error("the account's balance or allowance is used up ({code})")]
    Quota {
        /// The HTTP status.
        status: u16,
        /// The provider's error code: a plain identifier.
        code: String,
        /// The provider's message.
        said: ProviderWords,
    },
    /// The model or its server does not take something that the request has.
    #[error("the model does not take {feature}")]
    Unsupported {
        /// The part that it does not take.
        feature: Feature,
        /// The HTTP status.
        status: u16,
        /// The provider's message.
        said: ProviderWords,
    },
    /// The provider's filter stopped the request. Another model may take it.
    #[error("the provider's filter stopped the request")]
    Filtered {
        /// The HTTP status.
        status: u16,
        /// The provider's message.
        said: ProviderWords,
    },
    /// The conversation is longer than the model can read.
    #[error("the conversation is longer than the model can read")]
    ContextLength {
        /// The sizes that the provider names.
        sizes: ContextSizes,
        /// The provider's message.
        said: ProviderWords,
    },
    /// The answer broke off: it ended without a stop reason. Nothing of it is final.
    #[error("the answer broke off")]
    Cut,
    /// The answer did not end within a bound of size or time.
    #[error("the answer had no end within {limit}")]
    Endless {
        /// The limit that was reached.
        limit: EndlessLimit,
    },
    /// The answer wants more tools than anybody needs.
    #[error("the answer has more than {limit} tool calls")]
    TooManyCalls {
        /// The limit.
        limit: usize,
    },
    /// A tool call has more arguments than anybody needs.
    #[error("a tool call has more than {limit} of arguments")]
    ArgumentsTooLong {
        /// The limit.
        limit: ByteCount,
    },
    /// The answer is not what the format says.
    #[error("the answer is malformed: {what}")]
    Invalid {
        /// The problem with it.
        what: &'static str,
    },
    /// The call was cancelled.
    #[error("the call was cancelled")]
    Cancelled,
}

/// Sizes that a provider names when a conversation is too long, in its own tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextSizes {
    /// The most that the model takes, request and answer together.
    pub window: Option<Tokens>,
    /// The size of what was sent.
    pub sent: Option<Tokens>,
}

/// The bounds of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndlessLimit {
    /// Its size.
    Size(ByteCount),
    /// Its duration.
    Time(Duration),
}

impl std::fmt::Display for EndlessLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Size(size) => write!(f, "{size}"),
            Self::Time(time) => write!(f, "{time:?}"),
        }
    }
}

/// A call that failed.
#[derive(Debug, thiserror::Error)]
#[error("{provider}/{model}: {failure}")]
pub struct ModelError {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The failure.
    pub failure: Failure,
    /// The usage that the provider had counted by then. It is billed from here, and nowhere else.
    pub usage: Usage,
    /// True if a part of the answer had been shown already. Then the call is not repeated automatically.
    pub begun: bool,
}

/// Statuses that say that this request is not accepted; others, such as 404 for a model that is not there, are true of all.
const NOT_ACCEPTED: [u16; 4] = [400, 413, 414, 422];

impl Failure {
    /// Returns true if the same call may succeed a little later.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::RateLimited { .. } | Self::Unavailable { .. } | Self::Dropped => true,
            Self::Egress(EgressError::Line(fault)) => match fault {
                Fault::Unresolved { .. } | Fault::Unreachable { .. } | Fault::ConnectTimeout { .. } => true,
                // A proxy that is down may be up again; one that refuses goes on refusing.
                Fault::Proxy { why, .. } => why.may_pass(),
                Fault::TooMuchReceived { .. } | Fault::TooMuchSent { .. } | Fault::Certificate { .. } => {
                    false
                }
            },
            Self::NoCredential { .. }
            | Self::OtherPermit
            | Self::Egress(_)
            | Self::Unsent(_)
            | Self::Timeout { .. }
            | Self::Unauthorized { .. }
            | Self::Rejected { .. }
            | Self::Quota { .. }
            | Self::Unsupported { .. }
            | Self::Filtered { .. }
            | Self::ContextLength { .. }
            | Self::Cut
            | Self::Endless { .. }
            | Self::TooManyCalls { .. }
            | Self::ArgumentsTooLong { .. }
            | Self::Invalid { .. }
            | Self::Cancelled => false,
        }
    }

    /// Returns true if the failure belongs to the route: to its provider, model, key or line. Any other failure would
    /// happen on every route, so it does not count against this one.
    pub const fn is_of_the_route(&self) -> bool {
        match self {
            Self::OtherPermit | Self::Cancelled => false,
            Self::Egress(error) => matches!(error, EgressError::Line(_)),
            Self::NoCredential { .. }
            | Self::Unsent(_)
            | Self::Dropped
            | Self::Timeout { .. }
            | Self::RateLimited { .. }
            | Self::Unavailable { .. }
            | Self::Unauthorized { .. }
            | Self::Rejected { .. }
            | Self::Quota { .. }
            | Self::Unsupported { .. }
            | Self::Filtered { .. }
            | Self::ContextLength { .. }
            | Self::Cut
            | Self::Endless { .. }
            | Self::TooManyCalls { .. }
            | Self::ArgumentsTooLong { .. }
            | Self::Invalid { .. } => true,
        }
    }

    /// Returns true if the failure shows something about this request alone: how the route would do with another one is
    /// still unknown.
    pub const fn is_of_the_request(&self) -> bool {
        matches!(self, Self::ContextLength { .. } | Self::Unsupported { .. } | Self::Filtered { .. })
    }

    /// Returns true if another request would fail alike, now and a little later: the failure is one of the route, not of this
    /// request, and does not pass by itself.
    pub const fn is_lasting(&self) -> bool {
        self.is_of_the_route() && !self.is_of_the_request() && !self.is_transient()
    }

    /// Returns true if the provider took exception to the content that was sent, so that it may take other content.
    pub fn is_about_content(&self) -> bool {
        matches!(self, Self::Filtered { .. } | Self::ContextLength { .. })
            || matches!(self, Self::Rejected { status, .. } if NOT_ACCEPTED.contains(status))
    }

    /// Returns the wait that the provider asked for.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after, .. } | Self::Unavailable { retry_after, .. } => *retry_after,
            Self::NoCredential { .. }
            | Self::OtherPermit
            | Self::Egress(_)
            | Self::Unsent(_)
            | Self::Dropped
            | Self::Timeout { .. }
            | Self::Unauthorized { .. }
            | Self::Rejected { .. }
            | Self::Quota { .. }
            | Self::Unsupported { .. }
            | Self::Filtered { .. }
            | Self::ContextLength { .. }
            | Self::Cut
            | Self::Endless { .. }
            | Self::TooManyCalls { .. }
            | Self::ArgumentsTooLong { .. }
            | Self::Invalid { .. }
            | Self::Cancelled => None,
        }
    }

    /// The provider's message, where the failure came with one.
    pub const fn provider_words(&self) -> Option<&ProviderWords> {
        match self {
            Self::RateLimited { said, .. }
            | Self::Unavailable { said, .. }
            | Self::Unauthorized { said, .. }
            | Self::Rejected { said, .. }
            | Self::Quota { said, .. }
            | Self::Unsupported { said, .. }
            | Self::Filtered { said, .. }
            | Self::ContextLength { said, .. } => Some(said),
            Self::NoCredential { .. }
            | Self::OtherPermit
            | Self::Egress(_)
            | Self::Unsent(_)
            | Self::Dropped
            | Self::Timeout { .. }
            | Self::Cut
            | Self::Endless { .. }
            | Self::TooManyCalls { .. }
            | Self::ArgumentsTooLong { .. }
            | Self::Invalid { .. }
            | Self::Cancelled => None,
        }
    }

    /// Makes the provider's message fit to be shown: without the key of the call.
    pub(crate) fn clean_words(&mut self, key: Option<&SecretString>) {
        match self {
            Self::RateLimited { said, .. }
            | Self::Unavailable { said, .. }
            | Self::Unauthorized { said, .. }
            | Self::Rejected { said, .. }
            | Self::Quota { said, .. }
            | Self::Unsupported { said, .. }
            | Self::Filtered { said, .. }
            | Self::ContextLength { said, .. } => said.clean(key),
            Self::NoCredential { .. }
            | Self::OtherPermit
            | Self::Egress(_)
            | Self::Unsent(_)
            | Self::Dropped
            | Self::Timeout { .. }
            | Self::Cut
            | Self::Endless { .. }
            | Self::TooManyCalls { .. }
            | Self::ArgumentsTooLong { .. }
            | Self::Invalid { .. }
            | Self::Cancelled => {}
        }
    }

    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoCredential { .. } => "model.no_key",
            Self::OtherPermit => "model.other_permit",
            Self::Egress(_) => "model.unreachable",
            Self::Unsent(_) => "model.unsent",
            Self::Dropped => "model.dropped",
            Self::Timeout { .. } => "model.timeout",
            Self::RateLimited { .. } => "model.rate_limited",
            Self::Unavailable { .. } => "model.unavailable",
            Self::Unauthorized { .. } => "model.unauthorized",
            Self::Rejected { .. } => "model.rejected",
            Self::Quota { .. } => "model.quota",
            Self::Unsupported { .. } => "model.unsupported",
            Self::Filtered { .. } => "model.filtered",
            Self::ContextLength { .. } => "model.context_length",
            Self::Cut => "model.cut",
            Self::Endless { .. } => "model.endless",
            Self::TooManyCalls { .. } => "model.too_many_calls",
            Self::ArgumentsTooLong { .. } => "model.arguments_too_long",
            Self::Invalid { .. } => "model.invalid",
            Self::Cancelled => "model.cancelled",
        }
    }

    fn hint(&self) -> String {
        let hint = match self {
            Self::NoCredential { key: CredentialRef::Env(name), .. } => {
                return format!("Set the environment variable {name}, or api_key in the provider's table.");
            }
            Self::NoCredential { key: CredentialRef::Secret(name), .. } => {
                return format!("Set it with: writ secrets set {name}");
            }
            Self::NoCredential { key: CredentialRef::Vault { .. }, .. } => {
                "Check that Vault is reachable and unsealed."
            }
            Self::OtherPermit => "This is a bug.",
            Self::Egress(error @ EgressError::Line(Fault::Proxy { .. } | Fault::Certificate { .. })) => {
                return error.report().hint;
            }
            Self::Egress(_) | Self::Unsent(_) | Self::Dropped => {
                "Check base_url, and that the server runs and can be reached."
            }
            Self::Timeout { .. } => "Try again, or raise models.request_timeout_ms.",
            Self::RateLimited { .. } => "Wait, or use another model.",
            Self::Unavailable { .. } => "Try again later, or use another model.",
            Self::Unauthorized { .. } => "Check the provider's key, and that the account may use this model.",
            Self::Rejected { status: 404, .. } => "Check the model's name and base_url.",
            Self::Rejected { status: 402, .. } | Self::Quota { .. } => CHECK_BALANCE,
            Self::Unsupported { feature, .. } => return hint_for(*feature).to_owned(),
            Self::Filtered { .. } => "Say it differently, or name another model in models.fallback.",
            Self::Rejected { status: 300..400, .. } => {
                "The server redirects, and requests are not sent on: set base_url to where the models answer."
            }
            Self::Rejected { said, .. } if said.shown().is_some() => {
                "`writ models test` says which kinds of requests this model takes."
            }
            Self::Rejected { .. } => {
                "The provider gave no reason. `writ models test` says which kinds of requests this model takes."
            }
            Self::ContextLength { .. } => {
                "Send less at once, or use a model with a larger window; a local server can be started with a larger context."
            }
            Self::Cut => "Try again: nothing of the broken answer was used.",
            Self::Endless { .. } | Self::TooManyCalls { .. } | Self::ArgumentsTooLong { .. } => {
                "Nothing of this answer was used. Say it differently, or use another model."
            }
            Self::Invalid { .. } => "Check the provider's base_url and kind, or use another model.",
            Self::Cancelled => "",
        };
        hint.to_owned()
    }
}

impl ModelError {
    /// The provider's own message, if it sent one.
    pub fn quoted_words(&self) -> Option<&str> {
        self.failure.provider_words().and_then(ProviderWords::shown)
    }

    /// The error in words for people: with the provider's message, marked as such. The log and the ledger get the error
    /// without it ([`std::fmt::Display`]), since it may repeat the prompt.
    pub fn text_for_people(&self) -> String {
        match self.quoted_words() {
            Some(said) => format!("{self}. The provider says: `{said}`"),
            None => self.to_string(),
        }
    }
}

impl ToReport for ModelError {
    fn report(&self) -> Report {
        let exit = match &self.failure {
            // An error of the way out has a report of its own, whose exit code and code are kept: a permit that
            // came too late, for example, is a denial and no failure of the model.
            Failure::Egress(error) => {
                let inner = error.report();
                let outside = format!("{}/{}: {}", self.provider, self.model, inner.outside);
                return Report::new(inner.exit, &inner.code, outside)
                    .with_inside(self.to_string())
                    .with_hint(self.failure.hint());
            }
            Failure::Cancelled => Exit::Interrupted,
            Failure::OtherPermit => Exit::Bug,
            Failure::NoCredential { .. }
            | Failure::Unsent(_)
            | Failure::Dropped
            | Failure::Timeout { .. }
            | Failure::RateLimited { .. }
            | Failure::Unavailable { .. }
            | Failure::Unauthorized { .. }
            | Failure::Rejected { .. }
            | Failure::Quota { .. }
            | Failure::Unsupported { .. }
            | Failure::Filtered { .. }
            | Failure::ContextLength { .. }
            | Failure::Cut
            | Failure::Endless { .. }
            | Failure::TooManyCalls { .. }
            | Failure::ArgumentsTooLong { .. }
            | Failure::Invalid { .. } => Exit::Model,
        };
        Report::new(exit, self.failure.code(), self.text_for_people())
            .with_inside(self.to_string())
            .with_hint(self.failure.hint())
    }
}
