//! The directory: those that an agent can send something to.

use writ_types::action::Action;
use writ_types::recipient::Recipient;

use crate::error::DirectoryError;

/// The recipients that this engine knows. Today this is the owner alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Directory;

impl Directory {
    /// Checks that the recipients of an action can be reached. An action without one passes.
    ///
    /// # Errors
    ///
    /// If the directory does not have one of them.
    pub(crate) fn check_recipients(&self, action: &Action) -> Result<(), DirectoryError> {
        if let Action::Plan(plan) = action {
            return plan.steps.iter().try_for_each(|step| self.check_recipients(&step.action));
        }
        match Recipient::of_action(action) {
            None | Some(Recipient::Owner) => Ok(()),
            Some(named @ Recipient::Named(_)) => Err(DirectoryError::NoRecipient(named.clone())),
        }
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
        let unknown = Directory.check_recipients(&say("ann")).expect_err("is not in the directory");
        let report = unknown.report();
        assert_eq!((report.exit, report.code.as_str()), (Exit::Denied, "recipient.unknown"));
        assert_eq!(
            (report.outside.as_str(), report.hint.is_empty()),
            ("there is no recipient 'ann' here", false)
        );
    }
}
