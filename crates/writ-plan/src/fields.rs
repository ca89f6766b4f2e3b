//! Reading the fields of a mapping: each by its type, and none that is not known.

use std::str::FromStr;

use writ_types::similar::nearest_name;
use writ_types::unit::MicroUsd;

use crate::error::{PlanError, PlanProblem, quoted};
use crate::yaml::{NodeValue, YamlNode};

/// The most entries of a list of names.
pub(crate) const MAX_NAMES: usize = 64;
/// Millionths in a dollar.
const MICROS: u64 = 1_000_000;

/// The fields of one mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanFields<'a> {
    entries: &'a [(String, YamlNode)],
    at: &'a str,
}

impl<'a> PlanFields<'a> {
    /// Opens a mapping at a path. Its keys must be among `known`.
    pub(crate) fn open(node: &'a YamlNode, at: &'a str, known: &[&'static str]) -> Result<Self, PlanError> {
        let NodeValue::Map(entries) = &node.value else {
            return Err(wrong(at, describe(node), "a mapping of keys and values"));
        };
        // A misspelt key would be dropped silently, and with it what the planner meant.
        for (key, _) in entries {
            if !known.contains(&key.as_str()) {
                let problem = PlanProblem::UnknownKey { key: quoted(key), nearest: find_static(key, known) };
                return Err(PlanError::new(join(at, key), problem));
            }
        }
        Ok(Self { entries, at })
    }

    /// Returns the path of a field.
    pub(crate) fn path(&self, key: &str) -> String {
        join(self.at, key)
    }

    /// Returns a field that is there and not empty.
    pub(crate) fn find(&self, key: &str) -> Option<&'a YamlNode> {
        let (_, node) = self.entries.iter().find(|(name, _)| name == key)?;
        // An empty value of YAML is a field that was left out; a quoted one is a text.
        let is_null = matches!(&node.value, NodeValue::Text { text, is_quoted: false } if matches!(text.as_str(), "" | "~" | "null"));
        (!is_null).then_some(node)
    }

    /// Reads a text, if it is there.
    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, PlanError> {
        self.find(key).map(|node| text_of(node, &self.path(key))).transpose()
    }

    /// Reads a text that must be there.
    pub(crate) fn need_text(&self, key: &'static str) -> Result<String, PlanError> {
        self.text(key)?.ok_or_else(|| PlanError::new(self.at, PlanProblem::Missing(key)))
    }

    /// Reads a whole number, if it is there.
    pub(crate) fn number<T: FromStr>(&self, key: &str) -> Result<Option<T>, PlanError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        // People write `400_000`, and it can mean nothing else.
        let number = text.replace('_', "").parse();
        number
            .map(Some)
            .map_err(|_| wrong(&self.path(key), &text, "a whole number, not negative and in range"))
    }

    /// Reads an amount of US dollars, if it is there.
    pub(crate) fn dollars(&self, key: &str) -> Result<Option<MicroUsd>, PlanError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let expected = "an amount in US dollars, such as 2.00";
        read_dollars(&text).map(Some).ok_or_else(|| wrong(&self.path(key), &text, expected))
    }

    /// Reads a name out of several, if it is there.
    pub(crate) fn choice<T: Copy>(
        &self,
        key: &str,
        choices: &[T],
        name: impl Fn(T) -> &'static str,
    ) -> Result<Option<T>, PlanError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        if let Some(choice) = choices.iter().find(|choice| name(**choice) == text) {
            return Ok(Some(*choice));
        }
        let names: Vec<&str> = choices.iter().map(|choice| name(*choice)).collect();
        Err(wrong(&self.path(key), &text, &format!("one of {}", names.join(", "))))
    }

    /// Reads a list of texts; a single text is a list of one.
    pub(crate) fn texts(&self, key: &str) -> Result<Vec<String>, PlanError> {
        let path = self.path(key);
        match self.find(key).map(|node| (node, &node.value)) {
            None => Ok(Vec::new()),
            Some((node, NodeValue::Text { .. })) => Ok(vec![text_of(node, &path)?]),
            Some((_, NodeValue::List(items))) => {
                check_count("entries", items.len(), MAX_NAMES, &path)?;
                let texts = (0_usize..).zip(items);
                texts.map(|(n, item)| text_of(item, &join(&path, &n.to_string()))).collect()
            }
            Some((node, NodeValue::Map(_))) => Err(wrong(&path, describe(node), "a list of names")),
        }
    }

    /// Reads a list, each item by `read`.
    pub(crate) fn items<T>(
        &self,
        key: &str,
        (what, most): (&'static str, usize),
        read: impl Fn(&YamlNode, &str) -> Result<T, PlanError>,
    ) -> Result<Vec<T>, PlanError> {
        let path = self.path(key);
        let Some(node) = self.find(key) else { return Ok(Vec::new()) };
        let NodeValue::List(items) = &node.value else {
            return Err(wrong(&path, describe(node), "a list"));
        };
        check_count(what, items.len(), most, &path)?;
        (0_usize..).zip(items).map(|(n, item)| read(item, &join(&path, &n.to_string()))).collect()
    }
}

/// Refuses more than `most` of something.
pub(crate) fn check_count(what: &'static str, count: usize, most: usize, at: &str) -> Result<(), PlanError> {
    if count <= most { Ok(()) } else { Err(PlanError::new(at, PlanProblem::TooMany { what, count, most })) }
}

/// Creates the error of a value of the wrong form.
pub(crate) fn wrong(at: &str, found: &str, expected: &str) -> PlanError {
    PlanError::new(at, PlanProblem::Wrong { found: quoted(found), expected: expected.to_owned() })
}

/// Joins the path of a mapping and a key.
pub(crate) fn join(at: &str, key: &str) -> String {
    let key = quoted(key);
    if at.is_empty() { key } else { format!("{at}.{key}") }
}

/// Reads a text.
pub(crate) fn text_of(node: &YamlNode, at: &str) -> Result<String, PlanError> {
    match &node.value {
        NodeValue::Text { text, .. } => Ok(text.clone()),
        NodeValue::List(_) | NodeValue::Map(_) => Err(wrong(at, describe(node), "a text")),
    }
}

/// Names the form of a value, or quotes it.
pub(crate) fn describe(node: &YamlNode) -> &str {
    match &node.value {
        NodeValue::Text { text, .. } => text,
        NodeValue::List(_) => "a list",
        NodeValue::Map(_) => "a mapping",
    }
}

fn find_static(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let nearest = nearest_name(key, known)?;
    known.iter().find(|name| **name == nearest).copied()
}

/// Reads dollars with at most six digits after the point.
fn read_dollars(text: &str) -> Option<MicroUsd> {
    let text = text.strip_prefix('$').unwrap_or(text);
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(part) || part.len() > 6 {
        return None;
    }
    // Digits, not a float: money is exact.
    let micros: u64 = format!("{part:0<6}").parse().ok()?;
    let whole = whole.parse::<u64>().ok()?.checked_mul(MICROS)?;
    whole.checked_add(micros).map(MicroUsd::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_read_to_the_millionth() {
        for (text, micros) in [
            ("2.00", Some(2_000_000)),
            ("0.000001", Some(1)),
            ("$3", Some(3_000_000)),
            ("-1", None),
            ("1e3", None),
            ("two", None),
            (".5", None),
            ("0.0000001", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(read_dollars(text).map(MicroUsd::get), micros, "{text}");
        }
    }
}
