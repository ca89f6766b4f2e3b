//! The directory: those that an agent can send something to, and how each is reached.

use writ_types::action::Action;
use writ_types::recipient::Recipient;

use crate::error::DirectoryError;

/// A way on which a recipient is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The clients of the session from which something is sent.
    Session,
    /// The outbox, for channels that reach the recipient while no client is connected.
    Outbox,
}

/// The recipients that this engine knows. Today this is the owner alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Directory;

impl Directory {
    /// Returns the ways on which a recipient is reached.
    ///
    /// # Errors
    ///
    /// If the directory does not have the recipient.
    pub(crate) fn find_routes(&self, recipient: &Recipient) -> Result<&'static [Route], DirectoryError> {
        match recipient {
            Recipient::Owner => Ok(&[Route::Session, Route::Outbox]),
            Recipient::Named(_) => Err(DirectoryError::NoRecipient(recipient.clone())),
        }
    }

    /// Checks that the recipients of an action can be reached. An action without one passes.
    ///
    /// # Errors
    ///
    /// If the directory does not have one of them.
    pub(crate) fn check_recipients(&self, action: &Action) -> Result<(), DirectoryError> {
        if let Action::Plan(plan) = action {
            return plan.steps.iter().try_for_each(|step| self.check_recipients(&step.action));
        }
        Recipient::of_action(action).map_or(Ok(()), |to| self.find_routes(to).map(|_| ()))
    }
}

#[cfg(test)]
mod tests {
    use writ_types::action::Say;
    use writ_types::error::{Exit, ToReport as _};

    use super::*;

    #[test]
    fn the_owner_is_reached_and_everyone_else_is_unknown() {
        let say = |to: &str| Action::Say(Say { to: to.parse().expect("a name"), text: "hi".to_owned() });
        assert!(Directory.check_recipients(&say("owner")).is_ok());
        assert!(Directory.find_routes(&Recipient::Owner).is_ok_and(|routes| routes.contains(&Route::Outbox)));
        let unknown = Directory.check_recipients(&say("ann")).expect_err("is not in the directory");
        let report = unknown.report();
        assert_eq!((report.exit, report.code.as_str()), (Exit::Denied, "recipient.unknown"));
        assert_eq!(
            (report.outside.as_str(), report.hint.is_empty()),
            ("there is no recipient 'ann' here", false)
        );
    }
}
