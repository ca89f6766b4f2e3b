//! Withheld results: the rule for withholding, and the handles that name them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::taint::Taint;

/// The rule for withholding a tool's result from the model, which is given a [`Handle`] of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quarantine {
    /// Never: the model reads it.
    #[default]
    Never,
    /// If it is external.
    External,
    /// Always.
    Always,
}

impl Quarantine {
    /// Returns true if a result of this taint is withheld.
    pub const fn withholds_taint(self, taint: Taint) -> bool {
        match self {
            Self::Never => false,
            Self::External => matches!(taint, Taint::External),
            Self::Always => true,
        }
    }
}

/// The longest number in a handle, in digits: more results than that no session has.
const MAX_DIGITS: usize = 9;

/// The name of a withheld result in its session: `$r7`; or of one field of it: `$r7.12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    /// The result's number in its session.
    pub result: u64,
    /// The field's place in the result, counted from zero; `None`: its text.
    pub field: Option<usize>,
}

/// A text that is no handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a handle is written like $r7, or $r7.2 for a field")]
pub struct NoHandle;

impl FromStr for Handle {
    type Err = NoHandle;

    fn from_str(text: &str) -> Result<Self, NoHandle> {
        let number = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            // One way of writing each number, so that handles can be compared as text.
            let is_canonical = !text.starts_with('0') || text == "0";
            let fits = is_plain && is_canonical && text.len() <= MAX_DIGITS;
            if fits { text.parse::<u64>().map_err(|_| NoHandle) } else { Err(NoHandle) }
        };
        let rest = text.strip_prefix("$r").ok_or(NoHandle)?;
        let (result, field) = match rest.split_once('.') {
            Some((result, field)) => (result, Some(field)),
            None => (rest, None),
        };
        let field = field.map(|field| usize::try_from(number(field)?).map_err(|_| NoHandle)).transpose()?;
        Ok(Self { result: number(result)?, field })
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field {
            Some(field) => write!(f, "$r{}.{field}", self.result),
            None => write!(f, "$r{}", self.result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_read_as_it_is_written_and_nothing_else_is_one() {
        for text in ["$r1", "$r0", "$r999999999", "$r7.0", "$r7.12"] {
            assert_eq!(text.parse::<Handle>().map(|handle| handle.to_string()), Ok(text.to_owned()));
        }
        for text in [
            "",
            "$r",
            "$r.",
            "$r1.",
            "$r01",
            "$r1.01",
            "$r-1",
            "$r1.2.3",
            "$r1 ",
            " $r1",
            "$R1",
            "$r1234567890",
        ] {
            assert_eq!(text.parse::<Handle>(), Err(NoHandle), "{text:?}");
        }
    }

    #[test]
    fn what_is_external_is_kept_where_that_is_said() {
        let kept = |mode: Quarantine| {
            [Taint::Owner, Taint::Auth, Taint::External].map(|taint| mode.withholds_taint(taint))
        };
        assert_eq!(kept(Quarantine::Never), [false; 3]);
        assert_eq!(kept(Quarantine::External), [false, false, true]);
        assert_eq!(kept(Quarantine::Always), [true; 3]);
    }
}
