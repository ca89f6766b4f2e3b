//! The personal values that a case knows: found again wherever they stand in a text.

use std::collections::BTreeMap;

use aho_corasick::{AhoCorasick, MatchKind};
use writ_operations::PersonalKind;

use crate::search::{FoundValue, stands_alone};

/// The shortest value that is looked for, in characters: shorter ones stand everywhere.
const MIN_CHARS: usize = 3;
/// The shortest number that is looked for, in characters.
const MIN_NUMBER_CHARS: usize = 5;

/// The values behind the tokens of one case.
#[derive(Debug, Default)]
pub(crate) struct KnownValues {
    values: BTreeMap<String, (PersonalKind, String)>,
    finder: Option<AhoCorasick>,
    /// The kinds of what the finder looks for, in its order.
    kinds: Vec<PersonalKind>,
}

impl KnownValues {
    /// Adds values by their tokens.
    pub(crate) fn learn_values(
        &mut self,
        values: impl IntoIterator<Item = (String, (PersonalKind, String))>,
    ) {
        let before = self.values.len();
        self.values.extend(values);
        if self.values.len() != before {
            self.build_finder();
        }
    }

    /// Returns the value behind a token.
    pub(crate) fn value(&self, token: &str) -> Option<&str> {
        self.values.get(token).map(|(_, value)| value.as_str())
    }

    /// Returns true if a token is known.
    pub(crate) fn has(&self, token: &str) -> bool {
        self.values.contains_key(token)
    }

    fn build_finder(&mut self) {
        let mut wanted: BTreeMap<String, PersonalKind> = BTreeMap::new();
        for (kind, value) in self.values.values() {
            for part in parts_of(*kind, value) {
                // The finder ignores the case of ASCII alone; other letters are looked for in both cases.
                for form in [part.to_lowercase(), part.to_uppercase(), part] {
                    wanted.entry(form).or_insert(*kind);
                }
            }
        }
        self.kinds = wanted.values().copied().collect();
        let builder = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::LeftmostLongest)
            .build(wanted.keys());
        self.finder = builder.ok();
    }

    /// Finds the known values in a text, as words of their own.
    pub(crate) fn find_known(&self, text: &str) -> Vec<FoundValue> {
        let Some(finder) = &self.finder else { return Vec::new() };
        let found = finder.find_iter(text).filter(|found| stands_alone(text, found.range()));
        found
            .filter_map(|found| {
                let kind = self.kinds.get(found.pattern().as_usize())?;
                Some(FoundValue { at: found.range(), kind: *kind })
            })
            .collect()
    }
}

/// Returns the texts by which a value is found: people write one word of a name, and one line of an address.
fn parts_of(kind: PersonalKind, value: &str) -> Vec<String> {
    let long = |part: &&str| part.chars().count() >= MIN_CHARS;
    let whole = std::iter::once(value.trim());
    match kind {
        PersonalKind::Name => {
            let words = value.split(|letter: char| !(letter.is_alphanumeric() || letter == '\''));
            whole.chain(words).filter(long).map(ToOwned::to_owned).collect()
        }
        PersonalKind::Address => {
            let lines = value.split([',', '\n', ';']).map(str::trim).filter(|line| line.chars().count() >= 5);
            whole.chain(lines).filter(long).map(ToOwned::to_owned).collect()
        }
        PersonalKind::Email | PersonalKind::Phone | PersonalKind::Card | PersonalKind::Iban => {
            whole.filter(long).map(ToOwned::to_owned).collect()
        }
        PersonalKind::Number | PersonalKind::Customer | PersonalKind::Case => {
            // A short number would be found in every date.
            let telling = |part: &&str| part.chars().count() >= MIN_NUMBER_CHARS;
            whole.filter(telling).map(ToOwned::to_owned).collect()
        }
        // Text that was replaced as a whole is no value of its own.
        PersonalKind::Text => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(values: &[(PersonalKind, &str)]) -> KnownValues {
        let mut known = KnownValues::default();
        let numbered = values.iter().enumerate();
        known.learn_values(numbered.map(|(n, (kind, value))| (n.to_string(), (*kind, (*value).to_owned()))));
        known
    }

    #[test]
    fn known_values_are_found_as_words() {
        let known = known(&[
            (PersonalKind::Name, "Ann Müller"),
            (PersonalKind::Address, "1 High Street, Anytown"),
            (PersonalKind::Customer, "17"),
            (PersonalKind::Customer, "customer-17"),
        ]);
        let text = "ANN MÜLLER, or Müller, or ann's: 1 high street; annual 17 customer-17 customer-177";
        let found: Vec<&str> = known.find_known(text).into_iter().map(|span| &text[span.at]).collect();
        assert_eq!(found, ["ANN MÜLLER", "Müller", "ann", "1 high street", "customer-17"]);
    }
}
