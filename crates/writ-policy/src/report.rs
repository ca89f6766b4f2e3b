//! Reports of this crate's errors: exit codes, stable codes, and the text for those outside.

use writ_types::entry::DenyReason;
use writ_types::error::{Exit, Report, ToReport};

use crate::access::AccessError;
use crate::approval::ApprovalError;
use crate::door::Denial;
use crate::keys::KeyError;
use crate::permit::{PermitExpired, RedeemError};
use crate::principal::AuthError;
use crate::rules::RuleError;

impl ToReport for RuleError {
    fn report(&self) -> Report {
        let code = match self {
            Self::TooLong { .. } => "rules.too_long",
            Self::Syntax { .. } => "rules.syntax",
            Self::Schema { .. } => "rules.schema",
            Self::Id { .. } => "rules.id",
            Self::Widens { .. } => "rules.widens",
            Self::Risk { .. } => "rules.risk",
            Self::Approvers { .. } => "rules.approvers",
            Self::AskingPermit { .. } => "rules.asking_permit",
        };
        Report::new(Exit::Config, code, self.to_string())
            .with_hint("Correct the rules; `writ config check` reads them again.")
    }
}

impl ToReport for AccessError {
    fn report(&self) -> Report {
        let code = match self {
            Self::TooMany(_) => "access.too_many",
            Self::Level { .. } => "access.level",
            Self::Gate { .. } => "access.gate",
        };
        Report::new(Exit::Config, code, self.to_string()).with_hint("Correct [access] in the configuration.")
    }
}

impl ToReport for AuthError {
    fn report(&self) -> Report {
        let (exit, code, hint) = match self {
            Self::Unknown => (
                Exit::Denied,
                "auth.unknown",
                "show the token of the home, or open the page by the link of `writ status --link`",
            ),
            Self::NotAllowed(_) => (Exit::Denied, "auth.not_allowed", "ask the owner of the home"),
            Self::Empty => (Exit::Usage, "auth.empty", "say what you want done"),
            Self::TooLong { .. } => (Exit::Usage, "auth.too_long", "send it in parts, or as a file"),
            Self::ClientId => {
                (Exit::Usage, "auth.client_id", "give each message a short id of characters that can be seen")
            }
            Self::Credential(_) => {
                return Report::new(Exit::Denied, "message.credential", self.to_string()).with_hint(
                    "store it with `writ secrets set NAME`, or POST it to /secrets/NAME, and speak of it as \
                     secret:NAME; where others saw it, change it",
                );
            }
        };
        Report::new(exit, code, self.to_string()).with_hint(hint)
    }
}

impl ToReport for KeyError {
    fn report(&self) -> Report {
        let code = match self {
            // Not a refusal: a key of our own could not be written.
            Self::Build(why) => {
                return Report::new(Exit::Bug, "key.build", "a key could not be made")
                    .with_inside(why.as_str())
                    .with_hint(Exit::Bug.advice());
            }
            Self::TooLarge(_) => "key.too_large",
            Self::Signature => "key.signature",
            Self::Blocks => "key.blocks",
            Self::Content(_) => "key.content",
            Self::Missing(_) => "key.missing",
            Self::Foreign => "key.foreign",
            Self::Mixed => "key.mixed",
            Self::Sealed => "key.sealed",
            Self::Wider(_) => "key.wider",
        };
        // The content of a forged key is not repeated to its sender.
        Report::new(Exit::Denied, code, "the key is not valid here")
            .with_inside(self.to_string())
            .with_hint("`writ keys inspect FILE` says what a key holds")
    }
}

impl ToReport for ApprovalError {
    fn report(&self) -> Report {
        let (code, hint) = match self {
            Self::Signature => ("approval.signature", "Sign it again, with a key that is enrolled."),
            Self::UnknownApprover => ("approval.unknown_approver", "See `writ keys approver`."),
            Self::Foreign => ("approval.foreign", "Ask again: approvals do not outlive a restore."),
            Self::Mismatch(_) => ("approval.mismatch", "What was approved has changed: look at it again."),
            Self::Expired => ("approval.expired", "Ask again."),
            Self::Nonce => ("approval.nonce", "Sign it again: each signature counts once."),
            Self::Passkey(_) => {
                ("approval.passkey", "Try again with a passkey that is enrolled for this page.")
            }
            Self::Challenge => ("approval.challenge", "Ask for a new challenge and sign that."),
            Self::Copied => (
                "approval.copied",
                "Remove the passkey with `writ keys approver remove` unless you know why.",
            ),
            Self::NeedsKey => (
                "approval.needs_key",
                "`writ approvals approve ASK --standing` signs with your approver key.",
            ),
            Self::NeedsKeys => {
                ("approval.needs_keys", "`writ approvals approve ASK` signs with your approver key.")
            }
            Self::Twice => ("approval.twice", "Another person approves it with a key of their own."),
            Self::TooFew { .. } => ("approval.too_few", "It waits for the others."),
            Self::TooRisky(_) => ("approval.too_risky", "`writ doctor` says what can be approved how."),
        };
        Report::new(Exit::Denied, code, self.to_string()).with_hint(hint)
    }
}

impl ToReport for RedeemError {
    fn report(&self) -> Report {
        match self {
            Self::ApprovalSpent(_) => {
                Report::new(Exit::Denied, "approval.spent", self.to_string()).with_hint("Ask again.")
            }
            Self::Revoked => {
                Report::new(Exit::Denied, "denied.revoked", self.to_string()).with_hint("Ask again.")
            }
            Self::Exhausted(limit) => Report::new(Exit::Budget, "denied.budget", self.to_string())
                .with_hint(format!("{} holds the limit.", limit.setting_name())),
            Self::UsedUp(_) => Report::new(Exit::Budget, "denied.used_up", self.to_string())
                .with_hint("The limit of the key is renewed with the next day."),
            Self::Repeated(_) => Report::new(Exit::Denied, "denied.repeated", self.to_string())
                .with_hint("Another request needs a name of its own."),
            Self::Unwritable(why) => Report::new(
                Exit::Blocked,
                "ledger.unwritable",
                "the ledger could not be written; nothing was done",
            )
            .with_inside(why.as_str())
            .with_hint("`writ doctor` says what is wrong with the store."),
        }
    }
}

impl ToReport for PermitExpired {
    fn report(&self) -> Report {
        Report::new(Exit::Denied, "permit.expired", "it was not done in time, so it was not done")
            .with_inside(self.to_string())
            .with_hint("Ask again: a permit is short-lived.")
    }
}

impl ToReport for Denial {
    fn report(&self) -> Report {
        let (exit, code) = match self.reason {
            DenyReason::Shape => (Exit::Denied, "denied.shape"),
            DenyReason::Capability => (Exit::Denied, "denied.capability"),
            DenyReason::Scope => (Exit::Denied, "denied.scope"),
            DenyReason::Expired => (Exit::Denied, "denied.expired"),
            DenyReason::Revoked => (Exit::Denied, "denied.revoked"),
            DenyReason::Binding => (Exit::Denied, "denied.binding"),
            DenyReason::Limit => (Exit::Denied, "denied.limit"),
            DenyReason::Gate => (Exit::Denied, "denied.gate"),
            DenyReason::Halt => (Exit::Denied, "denied.halt"),
            DenyReason::Rule => (Exit::Denied, "denied.rule"),
            DenyReason::Taint => (Exit::Denied, "denied.taint"),
            DenyReason::Budget => (Exit::Budget, "denied.budget"),
            DenyReason::Approval => (Exit::Denied, "denied.approval"),
            DenyReason::Person => (Exit::Denied, "denied.person"),
            DenyReason::Loop => (Exit::Denied, "denied.loop"),
            DenyReason::Plan => (Exit::Denied, "denied.plan"),
            DenyReason::UsedUp => (Exit::Budget, "denied.used_up"),
            DenyReason::Repeated => (Exit::Denied, "denied.repeated"),
        };
        Report::new(exit, code, self.outside_text())
            .with_inside(format!("{} ({})", self.text, self.rule))
            .with_hint(exit.advice())
    }
}

#[cfg(test)]
mod tests;
