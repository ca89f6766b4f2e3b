//! Paths into JSON: `$`, `.name`, `["name"]`, `[index]`. A part of RFC 9535 that names at most one value.

use serde_json::Value;

/// The most parts of a path.
const MAX_PARTS: usize = 32;

/// A path to one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonPath(Vec<PathPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathPart {
    Name(String),
    Index(usize),
}

impl JsonPath {
    /// Reads a path; none if it is none.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut rest = text.trim().strip_prefix('$')?;
        let mut parts = Vec::new();
        while !rest.is_empty() {
            if parts.len() >= MAX_PARTS {
                return None;
            }
            let (part, after) = if let Some(named) = rest.strip_prefix('.') {
                let end = named.find(['.', '[']).unwrap_or(named.len());
                let (name, after) = named.split_at(end);
                let is_name =
                    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
                (is_name.then(|| PathPart::Name(name.to_owned()))?, after)
            } else {
                let inner = rest.strip_prefix('[')?;
                match inner.chars().next()? {
                    quote @ ('"' | '\'') => {
                        let (name, after) = inner.get(1..)?.split_once(quote)?;
                        (PathPart::Name(name.to_owned()), after.strip_prefix(']')?)
                    }
                    // No wildcard, no slice, no negative index: they name several values, or none for sure.
                    _digit => {
                        let (index, after) = inner.split_once(']')?;
                        (PathPart::Index(index.parse().ok()?), after)
                    }
                }
            };
            parts.push(part);
            rest = after;
        }
        Some(Self(parts))
    }

    /// Returns the value at the path.
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(value, |value, part| match part {
            PathPart::Name(name) => value.as_object()?.get(name),
            PathPart::Index(index) => value.as_array()?.get(*index),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_names_at_most_one_value() {
        let value = json!({"a": {"b c": [10, {"d": null}]}, "e-f": true});
        let find = |path: &str| JsonPath::read(path).and_then(|path| path.find(&value).cloned());
        for (path, found) in [
            ("$", Some(value.clone())),
            ("$.a[\"b c\"][0]", Some(json!(10))),
            ("$.a['b c'][1].d", Some(json!(null))),
            ("$.e-f", Some(json!(true))),
            ("$.a.x", None),
            ("$.a[0]", None),
        ] {
            assert_eq!(find(path), found, "{path}");
        }
        for wrong in ["", "a", "$a", "$.", "$[", "$[x]", "$[-1]", "$..a", "$[*]", "$.a[\"b]", "$[?(@.a)]"] {
            assert_eq!(JsonPath::read(wrong), None, "{wrong}");
        }
    }
}
