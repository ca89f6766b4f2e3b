//! Recipients: those that something is sent to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use unicode_security::confusable_detection::skeleton;

use crate::action::Action;
use crate::visible::acts_unseen;

/// The longest name of a recipient, in bytes.
pub const MAX_RECIPIENT_BYTES: usize = 128;

/// The name that means the owner, in actions, keys, rules and the ledger.
const OWNER: &str = "owner";

/// A recipient of messages and files. In JSON it is its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Recipient {
    /// The owner of the home.
    Owner,
    /// A person or channel of the directory.
    Named(DirectoryName),
}

/// The name of a person or channel in the directory. It can be read as a [`Recipient`] only, which checks it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryName(String);

/// The reason that a text names no recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecipientError {
    /// It is empty or too long.
    #[error("a recipient has a name of 1 to {MAX_RECIPIENT_BYTES} bytes")]
    Length,
    /// It has spaces around it, or a character that is not seen.
    #[error("the name of a recipient has no spaces around it and no invisible characters")]
    Invisible,
    /// It would be read as the owner.
    #[error("a recipient cannot have the name 'owner' in another spelling")]
    LikeOwner,
}

// === impl Recipient ===

impl Recipient {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Owner => OWNER,
            Self::Named(DirectoryName(name)) => name,
        }
    }

    /// Returns the recipient of an action; `None` if nothing is sent to one.
    pub const fn of_action(action: &Action) -> Option<&Self> {
        if let Action::Say(say) = action {
            return Some(&say.to);
        }
        if let Action::SendFile(send) = action { Some(&send.to) } else { None }
    }

    /// Returns true if a person may take a name for the owner's: it differs in letter case, surrounding space or
    /// letters of the same look alone (Unicode Technical Standard 39, section 4).
    pub fn looks_like_owner(name: &str) -> bool {
        // Lower case before and after: the skeleton of a capital letter may be another letter than that of the small one.
        let shape = |text: &str| skeleton(&text.trim().to_lowercase()).collect::<String>().to_lowercase();
        shape(name) == shape(OWNER)
    }
}

impl FromStr for Recipient {
    type Err = RecipientError;

    fn from_str(name: &str) -> Result<Self, RecipientError> {
        if name == OWNER {
            return Ok(Self::Owner);
        }
        if name.is_empty() || name.len() > MAX_RECIPIENT_BYTES {
            return Err(RecipientError::Length);
        }
        // Before names are compared: an invisible character would make two names look the same.
        if name.chars().any(acts_unseen) {
            return Err(RecipientError::Invisible);
        }
        if Self::looks_like_owner(name) {
            return Err(RecipientError::LikeOwner);
        }
        // After the comparison with the owner's, which leaves out spaces and has the graver error.
        if name.trim() != name {
            return Err(RecipientError::Invisible);
        }
        Ok(Self::Named(DirectoryName(name.to_owned())))
    }
}

impl TryFrom<String> for Recipient {
    type Error = RecipientError;

    fn try_from(name: String) -> Result<Self, RecipientError> {
        name.parse()
    }
}

impl From<Recipient> for String {
    fn from(recipient: Recipient) -> Self {
        match recipient {
            Recipient::Owner => OWNER.to_owned(),
            Recipient::Named(DirectoryName(name)) => name,
        }
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_and_names_are_told_apart_and_stay_the_same_text() {
        for name in ["owner", "ann", "team ä", "#ops", "owners"] {
            let recipient: Recipient = name.parse().expect("a name");
            assert_eq!(recipient == Recipient::Owner, name == "owner", "{name}");
            assert_eq!((recipient.as_str(), recipient.to_string().as_str()), (name, name));
            let json = serde_json::to_string(&recipient).expect("written");
            assert_eq!(json, serde_json::to_string(name).expect("written"));
            assert_eq!(serde_json::from_str::<Recipient>(&json).expect("read"), recipient);
        }
    }

    #[test]
    fn what_is_no_name_or_could_be_taken_for_the_owner_is_refused() {
        let long = "a".repeat(MAX_RECIPIENT_BYTES + 1);
        for (name, error) in [
            ("", RecipientError::Length),
            (long.as_str(), RecipientError::Length),
            ("Owner", RecipientError::LikeOwner),
            (" owner", RecipientError::LikeOwner),
            // Cyrillic o, Greek omicron, and full-width letters.
            ("\u{43e}wner", RecipientError::LikeOwner),
            ("\u{39f}WNER", RecipientError::LikeOwner),
            ("\u{ff4f}\u{ff57}\u{ff4e}\u{ff45}\u{ff52}", RecipientError::LikeOwner),
            ("ann ", RecipientError::Invisible),
            ("an\nn", RecipientError::Invisible),
            ("ow\u{200b}ner", RecipientError::Invisible),
        ] {
            assert_eq!(name.parse::<Recipient>(), Err(error), "{name:?}");
            assert!(serde_json::from_value::<Recipient>(name.into()).is_err(), "{name:?}");
        }
        assert!(long[1..].parse::<Recipient>().is_ok());
    }
}
