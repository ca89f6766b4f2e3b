//! The list of exceptions, which may only shrink.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::Finding;

/// The list, relative to the root.
const FILE: &str = "xtask/exceptions.toml";
/// A reason is at least a short sentence.
const MIN_REASON: usize = 20;

/// The committed list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exceptions {
    /// The number of exceptions; lowered with each that is removed.
    max: usize,
    #[serde(default)]
    exception: Vec<Exception>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    check: String,
    item: String,
    reason: String,
}

/// Reads the list.
pub(super) fn read(root: &Path) -> Result<Exceptions> {
    let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
    toml::from_str(&text).context(FILE)
}

impl Exceptions {
    /// Returns the number of exceptions.
    pub(super) fn len(&self) -> usize {
        self.exception.len()
    }

    /// Takes away what is excused, and adds what is wrong with the list; the number that were in use.
    pub(super) fn apply(&self, findings: Vec<Finding>) -> (Vec<Finding>, usize) {
        let excuses = |exception: &Exception, finding: &Finding| {
            exception.check == finding.check && exception.item == finding.item
        };
        let mut used = 0;
        let mut left = Vec::new();
        for exception in &self.exception {
            let item = format!("{}: {}", exception.check, exception.item);
            if findings.iter().any(|finding| excuses(exception, finding)) {
                used += 1;
            } else {
                left.push(Finding::new("exception", item.clone(), "is stale: take it out of the list"));
            }
            if exception.reason.trim().len() < MIN_REASON {
                left.push(Finding::new("exception", item, "has no reason"));
            }
        }
        if self.max != self.exception.len() {
            let text = format!("`max` is {}, but there are {} exceptions", self.max, self.exception.len());
            left.push(Finding::new("exception", FILE, text));
        }
        left.extend(
            findings
                .into_iter()
                .filter(|finding| !self.exception.iter().any(|exception| excuses(exception, finding))),
        );
        (left, used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str =
        "max = 1\n[[exception]]\ncheck = 'owner'\nitem = 'a.rs'\nreason = 'the kernel offers no other way'\n";

    #[test]
    fn an_exception_excuses_its_finding_only() {
        let list: Exceptions = toml::from_str(LIST).unwrap();
        let findings = vec![Finding::new("owner", "a.rs", "b").at(7), Finding::new("pure", "a.rs", "b")];
        assert_eq!(list.apply(findings), (vec![Finding::new("pure", "a.rs", "b")], 1));
    }

    #[test]
    fn a_stale_unreasoned_or_miscounted_list_is_found() {
        let list = LIST.replace("max = 1", "max = 2").replace("the kernel offers no other way", "why not");
        let list: Exceptions = toml::from_str(&list).unwrap();
        let (findings, used) = list.apply(Vec::new());
        let texts: Vec<&str> = findings.iter().map(|finding| finding.text.as_str()).collect();
        let expected =
            ["is stale: take it out of the list", "has no reason", "`max` is 2, but there are 1 exceptions"];
        assert_eq!((texts.as_slice(), used), (&expected[..], 0));
    }

    #[test]
    fn an_exception_needs_every_field() {
        assert!(toml::from_str::<Exceptions>("max = 1\n[[exception]]\ncheck = 'a'\nitem = 'b'\n").is_err());
    }
}
