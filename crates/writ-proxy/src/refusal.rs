//! Refusals: the reason in the answer, and the one in the ledger.

use writ_policy::door::Denial;
use writ_types::entry::DenyReason;

/// A request that is not performed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProxyRefusal {
    /// The status of the answer.
    pub(crate) status: u16,
    /// The reason in the answer: no value, no name of a rule.
    pub(crate) error: String,
    /// The reason in the ledger.
    pub(crate) reason: DenyReason,
    /// The cause in the ledger, one for each.
    pub(crate) rule: String,
    /// The explanation in the ledger.
    pub(crate) text: String,
}

/// The statuses of answers.
pub(crate) mod status {
    /// It is not proven who asks.
    pub(crate) const UNPROVEN: u16 = 401;
    /// It is proven who asks, and not allowed.
    pub(crate) const FORBIDDEN: u16 = 403;
    /// The row that the operation is about is not in the case.
    pub(crate) const MISSING: u16 = 404;
    /// A limit of the day or of the key is used up, or the request was begun before.
    pub(crate) const CONFLICT: u16 = 409;
    /// The parameters are malformed.
    pub(crate) const MALFORMED: u16 = 422;
    /// The agent has too much under way. Nothing was performed.
    pub(crate) const BUSY: u16 = 429;
    /// The ledger cannot be written, or the target is down. Nothing was performed.
    pub(crate) const UNAVAILABLE: u16 = 503;
    /// It may have been performed.
    pub(crate) const UNKNOWN: u16 = 504;
}

impl ProxyRefusal {
    /// Refuses keys that prove nothing. `cause` is a word of its own for each cause.
    pub(crate) fn refuse_unproven(reason: DenyReason, cause: &str, error: &str) -> Self {
        Self {
            status: status::UNPROVEN,
            error: error.to_owned(),
            reason,
            rule: format!("key.{cause}"),
            text: error.to_owned(),
        }
    }

    /// Refuses what the keys do not allow.
    pub(crate) fn refuse_forbidden(reason: DenyReason, rule: &str, error: &str) -> Self {
        let (error, rule) = (error.to_owned(), rule.to_owned());
        Self { status: status::FORBIDDEN, reason, rule, text: error.clone(), error }
    }

    /// Refuses malformed parameters.
    pub(crate) fn refuse_malformed(error: String) -> Self {
        let rule = "parameters".to_owned();
        Self { status: status::MALFORMED, reason: DenyReason::Shape, rule, text: error.clone(), error }
    }

    /// Refuses a path that is not there, or is there for another method.
    pub(crate) fn refuse_path(status: u16, error: &str) -> Self {
        let (error, rule) = (error.to_owned(), "path".to_owned());
        Self { status, reason: DenyReason::Shape, rule, text: error.clone(), error }
    }

    /// Refuses values that a case has no room for.
    pub(crate) fn refuse_full() -> Self {
        let error = "the case has no room for more personal values".to_owned();
        let rule = "values".to_owned();
        Self { status: status::CONFLICT, reason: DenyReason::UsedUp, rule, text: error.clone(), error }
    }

    /// Refuses an agent that has guessed too many values of its case.
    pub(crate) fn refuse_guesses() -> Self {
        let error = "too many values of this case were named without their tokens; the key is revoked";
        Self::refuse_forbidden(DenyReason::Limit, "guesses", error)
    }

    /// Refuses a request that was begun before.
    pub(crate) fn refuse_repeated(error: &str) -> Self {
        let (error, rule) = (error.to_owned(), "name".to_owned());
        Self { status: status::CONFLICT, reason: DenyReason::Repeated, rule, text: error.clone(), error }
    }

    /// Refuses one request too many of an agent that has others under way.
    pub(crate) fn refuse_busy() -> Self {
        let error = "this agent has too many requests under way".to_owned();
        let rule = "busy".to_owned();
        Self { status: status::BUSY, reason: DenyReason::Rule, rule, text: error.clone(), error }
    }

    /// Refuses what the door has refused, and recorded.
    pub(crate) fn refuse_denied(denial: &Denial) -> Self {
        let (status, error) = match denial.reason {
            DenyReason::Expired => (status::UNPROVEN, "a key has expired"),
            DenyReason::Revoked => (status::UNPROVEN, "a key was revoked"),
            DenyReason::Binding => (status::UNPROVEN, "the key belongs to another agent"),
            DenyReason::Shape => (status::MALFORMED, "the request is too large"),
            DenyReason::UsedUp => (status::CONFLICT, "a limit of the key is used up"),
            DenyReason::Repeated => (status::CONFLICT, UNDER_WAY),
            DenyReason::Limit => (status::FORBIDDEN, "a value is outside the limits of the key"),
            DenyReason::Capability => (status::FORBIDDEN, "the key does not grant this operation"),
            DenyReason::Scope => (status::FORBIDDEN, "this is outside the case of the key"),
            DenyReason::Gate
            | DenyReason::Halt
            | DenyReason::Rule
            | DenyReason::Taint
            | DenyReason::Budget
            | DenyReason::Approval
            | DenyReason::Person
            | DenyReason::Loop
            | DenyReason::Plan => (status::FORBIDDEN, "the rules forbid it"),
        };
        let (reason, rule, text) = (denial.reason, denial.rule.clone(), denial.text.clone());
        Self { status, error: error.to_owned(), reason, rule, text }
    }
}

/// The answer to a request that runs, or that no one knows the outcome of.
pub(crate) const UNDER_WAY: &str =
    "the same request is under way, or its outcome is unknown; it is not performed again";
