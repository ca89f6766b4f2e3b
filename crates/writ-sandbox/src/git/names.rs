//! Names and ids that git takes as they are: nothing else reaches its command line.

use std::fmt;

use super::GitFault;

/// The longest name of a branch, in bytes: the file of a loose reference has its last part as its name.
pub const BRANCH_BYTES_MAX: usize = 200;

macro_rules! object_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Reads a full id: 40 or 64 small hexadecimal digits.
            ///
            /// # Errors
            ///
            /// If it is anything else.
            pub fn parse_id(text: &str) -> Result<Self, GitFault> {
                let digits = text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
                if digits && matches!(text.len(), 40 | 64) {
                    return Ok(Self(text.to_owned()));
                }
                let name = text.chars().take(100).collect();
                Err(GitFault::BadName { name, why: "it is no full id of an object" })
            }

            /// Returns its digits.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

object_id!(
    /// The id of a commit.
    CommitId
);
object_id!(
    /// The id of a tree.
    TreeId
);

impl CommitId {
    /// Returns the first twelve digits, for names and messages.
    pub fn short_form(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

/// The name of a branch, without `refs/heads/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchName(String);

impl BranchName {
    /// Checks a name by the rules of `git check-ref-format --branch`, and against its options.
    ///
    /// # Errors
    ///
    /// With the rule that it breaks.
    pub fn parse_name(text: &str) -> Result<Self, GitFault> {
        match broken_rule(text) {
            None => Ok(Self(text.to_owned())),
            Some(why) => Err(GitFault::BadName { name: text.chars().take(100).collect(), why }),
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns its reference.
    pub fn to_ref(&self) -> RefName {
        RefName(format!("refs/heads/{}", self.0))
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The full name of a reference: a branch, or one of the harness below `refs/writ/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName(String);

impl RefName {
    /// Makes the name of a reference of the harness, `refs/writ/KIND/NAME`.
    ///
    /// # Errors
    ///
    /// With the rule of git that the name breaks.
    pub fn make_own(kind: &str, name: &str) -> Result<Self, GitFault> {
        let full = BranchName::parse_name(&format!("{kind}/{name}"))?;
        Ok(Self(format!("refs/writ/{full}")))
    }

    /// Reads a full name.
    ///
    /// # Errors
    ///
    /// If it is neither a branch nor below `refs/writ/`.
    pub fn parse_full(text: &str) -> Result<Self, GitFault> {
        let rest = text.strip_prefix("refs/heads/").or_else(|| text.strip_prefix("refs/writ/"));
        let name = || text.chars().take(100).collect();
        let rest = rest.ok_or_else(|| GitFault::BadName { name: name(), why: "it is no branch" })?;
        BranchName::parse_name(rest)?;
        Ok(Self(text.to_owned()))
    }

    /// Returns the full name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if it is below `refs/writ/`, where no one else changes references.
    pub fn is_own(&self) -> bool {
        self.0.starts_with("refs/writ/")
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The rule of `git-check-ref-format(1)` that a name breaks.
fn broken_rule(text: &str) -> Option<&'static str> {
    if text.is_empty() || text.len() > BRANCH_BYTES_MAX {
        return Some("it is empty or too long");
    }
    if text.starts_with('-') || text == "HEAD" || text == "@" {
        return Some("git would take it for something else");
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c)) {
        return Some("it holds a character that references cannot have");
    }
    if text.contains("..") || text.contains("@{") || text.ends_with('.') {
        return Some("it holds a sequence that references cannot have");
    }
    let part_is_bad = |part: &str| part.is_empty() || part.starts_with('.') || part.ends_with(".lock");
    text.split('/').any(part_is_bad).then_some("one of its parts is empty, hidden or a lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_would_read_as_something_else_are_refused() {
        for bad in [
            "", "-d", "HEAD", "@", "a..b", "a b", "a\nb", "a~1", "a^", "a:b", "a?", "a*", "a[", "a\\b",
            "a@{1}",
        ] {
            assert!(BranchName::parse_name(bad).is_err(), "{bad:?}");
        }
        for bad in ["/a", "a/", "a//b", ".a", "a/.b", "a.lock", "a.lock/b", "a.", &"x".repeat(201)] {
            assert!(BranchName::parse_name(bad).is_err(), "{bad:?}");
        }
        for good in ["main", "writ/m1-s2-add-oauth", "a.b", "größe", "@a"] {
            assert_eq!(BranchName::parse_name(good).unwrap().to_ref().as_str(), format!("refs/heads/{good}"));
        }
        assert!(RefName::parse_full("refs/remotes/origin/main").is_err());
        assert!(CommitId::parse_id("HEAD").is_err());
        assert!(CommitId::parse_id(&"A".repeat(40)).is_err());
        assert!(TreeId::parse_id(&"a".repeat(64)).is_ok());
    }
}
