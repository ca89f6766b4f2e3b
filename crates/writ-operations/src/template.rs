//! Texts with placeholders for values: `{name}`; `{{` and `}}` stand for single braces.
//!
//! A text is parsed once, when it is declared. Values are inserted afterwards and never parsed: braces in a value are
//! plain text.

use std::collections::BTreeSet;

/// The longest template, in bytes.
pub(crate) const MAX_TEMPLATE_BYTES: usize = 64 * 1024;

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Place(String),
}

/// A text with placeholders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template(Vec<TemplatePart>);

impl Template {
    /// Reads a template.
    pub(crate) fn read_text(text: &str) -> Result<Self, &'static str> {
        if text.len() > MAX_TEMPLATE_BYTES {
            return Err("the template is too long: the limit is 64 KiB");
        }
        let (mut parts, mut plain) = (Vec::new(), String::new());
        let mut rest = text.chars().peekable();
        while let Some(next) = rest.next() {
            match next {
                '{' | '}' if rest.peek() == Some(&next) => {
                    rest.next();
                    plain.push(next);
                }
                '}' => return Err("a '}' without a '{': write '}}' for a brace"),
                '{' => {
                    let name: String = std::iter::from_fn(|| rest.next_if(|c| *c != '}')).collect();
                    if rest.next().is_none() {
                        return Err("a '{' without a '}': write '{{' for a brace");
                    }
                    if name.is_empty()
                        || !name.bytes().all(|c| c.is_ascii_alphanumeric() || b"_.".contains(&c))
                    {
                        return Err("a placeholder is {NAME}: write '{{' for a brace");
                    }
                    parts.extend((!plain.is_empty()).then(|| TemplatePart::Text(std::mem::take(&mut plain))));
                    parts.push(TemplatePart::Place(name));
                }
                other => plain.push(other),
            }
        }
        parts.extend((!plain.is_empty()).then_some(TemplatePart::Text(plain)));
        Ok(Self(parts))
    }

    /// Returns the names of its placeholders.
    pub(crate) fn place_names(&self) -> BTreeSet<&str> {
        self.0
            .iter()
            .filter_map(|part| if let TemplatePart::Place(name) = part { Some(name.as_str()) } else { None })
            .collect()
    }

    /// Returns the name of its placeholder if the template is one placeholder and nothing else.
    pub(crate) fn sole_place(&self) -> Option<&str> {
        if let [TemplatePart::Place(name)] = self.0.as_slice() { Some(name) } else { None }
    }

    /// Replaces each placeholder by its value; stops at the first error of `value`.
    pub(crate) fn fill_places<E>(
        &self,
        mut value: impl FnMut(&str) -> Result<String, E>,
    ) -> Result<String, E> {
        let mut filled = String::new();
        for part in &self.0 {
            match part {
                TemplatePart::Text(text) => filled.push_str(text),
                TemplatePart::Place(name) => filled.push_str(&value(name)?),
            }
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_read_once_and_values_stay_values() {
        let template = Template::read_text("a {x} {{y}} {x}").expect("a template");
        assert_eq!(template.place_names().into_iter().collect::<Vec<_>>(), ["x"]);
        let filled = template.fill_places(|_| Ok::<_, ()>("{x}}{".to_owned()));
        assert_eq!(filled.as_deref(), Ok("a {x}}{ {y} {x}}{"));
        assert_eq!(Template::read_text("{x}").expect("a template").sole_place(), Some("x"));
        for bad in ["{", "}", "{}", "{a b}", "{x", "{{x}", "{a{b}}"] {
            assert!(Template::read_text(bad).is_err(), "{bad}");
        }
    }
}
