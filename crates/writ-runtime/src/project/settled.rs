//! Describes the result of a session's changes in words for a person.

use writ_sandbox::changes::{ChangeSet, LeftOutReason};
use writ_types::error::Exit;

/// The most paths that one list names; the rest is counted.
const NAMED_MAX: usize = 20;

/// Final state of the changes when nothing is left to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Changes that were applied, in words.
    pub(crate) applied: Vec<String>,
    /// Changes that were not applied, in words.
    pub(crate) left: Vec<String>,
    /// Exit code of a command with this result: not `Done` if a bound or a change of the project prevents
    /// some of the work.
    pub(crate) exit: Exit,
}

impl Default for Settled {
    fn default() -> Self {
        Self { applied: Vec::new(), left: Vec::new(), exit: Exit::Done }
    }
}

impl Settled {
    /// Notes what a diff left out that has nothing to apply any more.
    pub(super) fn leave(&mut self, set: &ChangeSet) {
        let named = set.left_out.iter().take(NAMED_MAX);
        self.left = named.map(|item| format!("Left out: {}: {}", item.shown, item.reason.as_str())).collect();
        let unnamed = set.left_out.len().saturating_sub(NAMED_MAX);
        let more = set.left_out_more.saturating_add(u64::try_from(unnamed).unwrap_or(u64::MAX));
        if more > 0 {
            self.left.push(format!("Left out: {more} more: see `writ diff`."));
        }
        if set.over_bounds > 0 {
            self.exit = Exit::Blocked;
            self.left.push(format!("Not applied: {} entries are beyond a bound.", set.over_bounds));
        } else if set.left_out.iter().any(|item| item.reason == LeftOutReason::Stale) {
            self.exit = Exit::Verification;
        }
    }

    /// Joins all lines to one text; `None` if there are none.
    pub(crate) fn text(&self) -> Option<String> {
        let lines: Vec<&str> = self.applied.iter().chain(&self.left).map(String::as_str).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// Names the files among changes that other programs execute or obey by themselves.
pub(super) fn obeyed(set: &ChangeSet) -> Option<String> {
    let mut named: Vec<String> = set
        .notices
        .iter()
        .take(NAMED_MAX)
        .map(|notice| format!("{} ({})", notice.path, notice.why))
        .collect();
    match set.notices.len().saturating_sub(NAMED_MAX) {
        0 => {}
        more => named.push(format!("{more} more")),
    }
    (!named.is_empty()).then(|| format!("Other programs obey what was written: {}", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use writ_sandbox::changes::LeftOut;

    use super::*;

    #[test]
    fn what_stays_behind_is_named_and_work_that_is_kept_back_is_not_done() {
        let left = |reason| LeftOut { shown: "a".to_owned(), reason };
        for (reason, over_bounds, exit) in [
            (LeftOutReason::SymbolicLink, 0, Exit::Done),
            (LeftOutReason::Stale, 0, Exit::Verification),
            (LeftOutReason::TooLarge, 1, Exit::Blocked),
        ] {
            let set = ChangeSet { left_out: vec![left(reason)], over_bounds, ..ChangeSet::default() };
            let mut settled = Settled::default();
            settled.leave(&set);
            let said = settled.text().unwrap_or_default();
            assert!(said.starts_with(&format!("Left out: a: {}", reason.as_str())), "{said}");
            assert_eq!(settled.exit, exit, "{reason:?}");
        }
        let left_out = vec![left(LeftOutReason::Special); NAMED_MAX + 3];
        let mut settled = Settled::default();
        settled.leave(&ChangeSet { left_out, left_out_more: 4, ..ChangeSet::default() });
        assert_eq!(settled.left.len(), NAMED_MAX + 1);
        assert_eq!(settled.left.last().map(String::as_str), Some("Left out: 7 more: see `writ diff`."));
        assert_eq!((Settled::default().text(), obeyed(&ChangeSet::default())), (None, None));
    }
}
