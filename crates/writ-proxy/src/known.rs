//! The personal values that a case knows: found again wherever they stand in a text.

use std::collections::BTreeMap;
use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use writ_operations::PersonalKind;

use crate::fold::fold_text;
use crate::search::FoundValue;

/// The shortest value that is looked for, in characters: shorter ones stand everywhere.
const MIN_CHARS: usize = 3;
/// The shortest number that is looked for, in characters.
pub(crate) const MIN_NUMBER_CHARS: usize = 5;
/// The shortest text that is found inside a word as well: shorter ones are parts of many words.
const MIN_INSIDE_CHARS: usize = 5;
/// The words that say that an id follows.
const ID_WORDS: [&str; 6] = ["customer", "client", "case", "id", "nr", "number"];
/// The words that say so with a full stop behind them.
const SHORT_ID_WORDS: [&str; 2] = ["no", "nr"];

/// The values behind the tokens of one case.
#[derive(Debug, Default)]
pub(crate) struct KnownValues {
    values: BTreeMap<String, (PersonalKind, String)>,
    /// The bytes of values and tokens.
    bytes: usize,
    /// The finders, each for at least twice as many texts as the next: a new value seldom builds the large ones again.
    finders: Vec<ValueFinder>,
}

/// A finder for some of the values.
#[derive(Debug)]
struct ValueFinder {
    /// The texts that are looked for, with their kinds.
    wanted: BTreeMap<String, PersonalKind>,
    kinds: Vec<PersonalKind>,
    /// `None`: it cannot be built, and every text counts as personal.
    finder: Option<AhoCorasick>,
}

impl KnownValues {
    /// Adds values by their tokens.
    pub(crate) fn learn_values(
        &mut self,
        values: impl IntoIterator<Item = (String, (PersonalKind, String))>,
    ) {
        let mut wanted: BTreeMap<String, PersonalKind> = BTreeMap::new();
        for (token, (kind, value)) in values {
            if self.values.contains_key(&token) {
                continue;
            }
            // As the texts are spelled in which it is looked for.
            for part in parts_of(kind, &fold_text(&value)) {
                // The finder ignores the case of ASCII alone; other letters are looked for in both cases.
                for form in [part.to_lowercase(), part.to_uppercase(), part] {
                    wanted.entry(form).or_insert(kind);
                }
            }
            self.bytes = self.bytes.saturating_add(token.len()).saturating_add(value.len());
            self.values.insert(token, (kind, value));
        }
        while let Some(last) = self.finders.pop_if(|last| last.wanted.len() < wanted.len().saturating_mul(2))
        {
            wanted.extend(last.wanted);
        }
        if !wanted.is_empty() {
            self.finders.push(ValueFinder::build(wanted));
        }
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns about the memory that the values take.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the value behind a token.
    pub(crate) fn value(&self, token: &str) -> Option<&str> {
        self.values.get(token).map(|(_, value)| value.as_str())
    }

    /// Returns true if a token is known.
    pub(crate) fn has(&self, token: &str) -> bool {
        self.values.contains_key(token)
    }

    /// Returns true if a name is known that is long enough to be found.
    pub(crate) fn has_name(&self) -> bool {
        let is_name = |(kind, value): &(PersonalKind, String)| {
            *kind == PersonalKind::Name && value.trim().chars().count() >= MIN_CHARS
        };
        self.values.values().any(is_name)
    }

    /// Finds the known values in a text.
    pub(crate) fn find_known(&self, text: &str) -> Vec<FoundValue> {
        self.finders.iter().flat_map(|finder| finder.find_values(text)).collect()
    }
}

impl ValueFinder {
    fn build(wanted: BTreeMap<String, PersonalKind>) -> Self {
        let builder = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            // The other kinds are faster to search, and take a hundred times the memory of the values.
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(wanted.keys());
        Self { kinds: wanted.values().copied().collect(), wanted, finder: builder.ok() }
    }

    fn find_values(&self, text: &str) -> Vec<FoundValue> {
        let Some(finder) = &self.finder else {
            return vec![FoundValue { at: 0..text.len(), kind: PersonalKind::Text }];
        };
        let mut found: Vec<FoundValue> = Vec::new();
        // Each alone: a longer value that does not count here must not hide a shorter one in it.
        for hit in finder.find_overlapping_iter(text) {
            let Some(kind) = self.kinds.get(hit.pattern().as_usize()) else { continue };
            if !counts_here(text, hit.range(), *kind) {
                continue;
            }
            // Hits come by their ends. Those that overlap are joined at once, so that there are at most as many as bytes.
            let (mut at, mut kind) = (hit.range(), *kind);
            while let Some(last) = found.pop_if(|last| last.at.end > at.start) {
                // An address of mail may hold a name, and is an address.
                if last.at.len() > at.len() {
                    kind = last.kind;
                }
                at.start = at.start.min(last.at.start);
            }
            found.push(FoundValue { at, kind });
        }
        found
    }
}

/// Returns true if a known value stands in a text as itself, and not as a part of another word or number.
fn counts_here(text: &str, at: Range<usize>, kind: PersonalKind) -> bool {
    let (value, rest) = (text.get(at.clone()).unwrap_or_default(), text.get(at.end..).unwrap_or_default());
    let before = text.get(..at.start).and_then(|text| text.chars().next_back());
    let touches = |is_of: fn(char) -> bool| {
        let both =
            |edge: Option<char>, beside: Option<char>| edge.is_some_and(is_of) && beside.is_some_and(is_of);
        (both(value.chars().next(), before), both(value.chars().next_back(), rest.chars().next()))
    };
    // A number in a longer one is another number.
    if matches!(touches(char::is_numeric), (true, _) | (_, true)) {
        return false;
    }
    match kind {
        PersonalKind::Name | PersonalKind::Address | PersonalKind::Email | PersonalKind::Text => {
            // «Müllers» and «Müllerstraße» name Müller; of Tim only «Tims» does, and «time» does not.
            let (begins_early, ends_late) = touches(char::is_alphabetic);
            let word: String = rest.chars().take_while(|letter| letter.is_alphabetic()).take(2).collect();
            let is_whole = !begins_early && (!ends_late || word.eq_ignore_ascii_case("s"));
            is_whole || value.chars().count() >= MIN_INSIDE_CHARS
        }
        PersonalKind::Customer | PersonalKind::Case if is_common_id(value) => {
            // It stands in many texts as a word, an amount or a name of something else.
            let is_word = value.chars().all(char::is_alphabetic);
            let never = is_word && (kind == PersonalKind::Case || value.chars().count() < MIN_NUMBER_CHARS);
            let is_alone = touches(char::is_alphanumeric) == (false, false);
            let is_id =
                || text.trim() == value.trim() || names_an_id(text.get(..at.start).unwrap_or_default());
            !never && is_alone && is_id()
        }
        PersonalKind::Phone
        | PersonalKind::Card
        | PersonalKind::Iban
        | PersonalKind::Number
        | PersonalKind::Customer
        | PersonalKind::Case => true,
    }
}

/// Returns true for an id that is too short, or too much like a word, to be one wherever it stands.
fn is_common_id(value: &str) -> bool {
    value.chars().count() < MIN_NUMBER_CHARS || value.chars().all(char::is_alphabetic)
}

/// Returns true if a text ends with a word or a sign that says that an id follows.
fn names_an_id(before: &str) -> bool {
    let before = before.trim_end_matches(|sign: char| sign.is_whitespace() || ":=('\"".contains(sign));
    let (words, is_short) = before.strip_suffix('.').map_or((before, false), |words| (words, true));
    let word = words.rsplit(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
    let is_one_of = |list: &[&str]| list.iter().any(|one| word.eq_ignore_ascii_case(one));
    before.ends_with('#') || is_one_of(&ID_WORDS) || (is_short && is_one_of(&SHORT_ID_WORDS))
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
        // The customer's own id names the customer, however short it is.
        PersonalKind::Customer | PersonalKind::Case => whole.map(ToOwned::to_owned).collect(),
        PersonalKind::Number => {
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

    fn found<'a>(known: &KnownValues, text: &'a str) -> Vec<&'a str> {
        known.find_known(text).into_iter().map(|span| &text[span.at]).collect()
    }

    #[test]
    fn known_values_are_found_as_words() {
        let known = known(&[
            (PersonalKind::Name, "Ann Müller"),
            (PersonalKind::Address, "1 High Street, Anytown"),
            (PersonalKind::Customer, "1"),
            (PersonalKind::Case, "C-7"),
            (PersonalKind::Number, "17"),
            (PersonalKind::Customer, "customer-17"),
        ]);
        let text = "ANN MÜLLER, or Müller, or ann's: 1 high street; annual 17 customer-17 customer-177, customer 1, case C-7; 11 O1 AC-7 C-77";
        assert_eq!(
            found(&known, text),
            ["ANN MÜLLER", "Müller", "ann", "1 high street", "customer-17", "1", "C-7"]
        );
    }

    /// A short id, or a word as an id, is one where it stands alone or is named as one, and corrupts no other text.
    #[test]
    fn a_short_id_is_found_where_it_is_named_as_one() {
        let known = known(&[
            (PersonalKind::Customer, "20"),
            (PersonalKind::Case, "refund"),
            (PersonalKind::Customer, "mueller"),
            (PersonalKind::Case, "C-7"),
        ]);
        for (text, expected) in [
            ("refund 20 for O2, 20 EUR, on 20.11.", &[][..]),
            ("refund", &[]),
            ("case refund", &[]),
            ("a map of mueller and C-7", &[]),
            ("20", &["20"]),
            ("Customer 20, #20, customer_id: 20, no. 20; no 20, kid 20", &["20", "20", "20", "20"]),
            ("client mueller, case (C-7)", &["mueller", "C-7"]),
            ("customer 200, case C-77", &[]),
        ] {
            assert_eq!(found(&known, text), expected, "{text}");
        }
    }

    /// Letters behind a name make no other person of it, and a longer value hides no shorter one.
    ///
    /// Rows: SLO-028 (in part: names in free text)
    #[test]
    fn a_name_is_found_with_letters_behind_it() {
        let known = known(&[
            (PersonalKind::Name, "Ann Müller"),
            (PersonalKind::Name, "Tim"),
            (PersonalKind::Customer, "A-1234"),
        ]);
        for (text, expected) in [
            ("die Müllers", &["Müller"][..]),
            ("MÜLLERSTRASSE", &["MÜLLER"]),
            ("frau_müller_2", &["müller"]),
            ("Ann Mül", &["Ann"]),
            ("Anns, Tims, Tim2", &["Ann", "Tim", "Tim"]),
            ("time annex A-12345", &[]),
            ("2A-1234x", &["A-1234"]),
        ] {
            assert_eq!(found(&known, text), expected, "{text}");
        }
    }

    /// Values that come one by one are all found, and few of the finders are built again for each.
    #[test]
    fn values_that_come_one_by_one_are_found() {
        let mut known = KnownValues::default();
        for n in 0..300 {
            let value = (PersonalKind::Number, format!("number-{n:03}"));
            known.learn_values([(n.to_string(), value.clone()), (n.to_string(), value)]);
            assert_eq!(found(&known, &format!("number-000 number-{n:03}x")).len(), 2, "{n}");
        }
        assert!(known.finders.len() < 12, "{}", known.finders.len());
    }

    /// A value that holds another is of its own kind.
    #[test]
    fn the_longer_of_two_values_says_the_kind() {
        let known = known(&[(PersonalKind::Name, "Ann Example"), (PersonalKind::Email, "ann@example.com")]);
        let kinds =
            |text: &str| known.find_known(text).into_iter().map(|found| found.kind).collect::<Vec<_>>();
        assert_eq!(kinds("(ANN@example.com)"), [PersonalKind::Email]);
        assert_eq!(kinds("Ann Example"), [PersonalKind::Name]);
    }

    /// Where values cannot be looked for, no text is let through.
    #[test]
    fn without_a_finder_every_text_is_personal() {
        let mut known = known(&[(PersonalKind::Name, "Ann")]);
        known.finders[0].finder = None;
        assert_eq!(found(&known, "harmless"), ["harmless"]);
    }
}
