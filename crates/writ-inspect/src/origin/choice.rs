//! Records that the owner has not meant.
//!
//! A request for «the mails of the gym» says which ones: those that have this word. A structured result is a
//! list of records, and where the request names some of them by a word, another choice was made by others:
//! perhaps by a text among them, which need not name any («the reminder of the tax office, too», «all the
//! others»). A request that distinguishes none of the records («those that came today») leaves the choice to
//! the model. This gate can only add a question.
//!
//! Words are looked for in the short values of records, not in their long texts, which have too many of them.
//! Words that stand in any text do not count (`stop-words`: the lists of Stopwords ISO, of 58 languages), and
//! neither do words that a request excludes («but not those of the gym»). Scripts without spaces have no
//! words here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use writ_types::chat::Field;

use super::mention::WantedValue;
use super::text::fold_text;
use super::{is_id, name_of};
use crate::owner::MIN_TOKEN_CHARS;

/// The longest value that says what a record is, in bytes, as addresses and most titles do: what is longer is content.
const MAX_NAME_BYTES: usize = 64;
/// The most words of a request that are looked for.
const MAX_WORDS: usize = 256;
/// The fewest characters that two forms of one word share, and the most by which one is longer: `invoice`, `invoices`.
const MIN_STEM_CHARS: usize = 4;
const MAX_ENDING_CHARS: usize = 2;
/// The digits of a year: too many dates share it.
const YEAR_DIGITS: usize = 4;

/// Words that exclude those after them, up to the end of the sentence: English, German, French, Spanish,
/// Italian, Portuguese, Dutch.
pub(super) const EXCLUDES: [&str; 22] = [
    "not",
    "except",
    "excluding",
    "without",
    "don't",
    "nicht",
    "keine",
    "außer",
    "ausser",
    "ohne",
    "sauf",
    "sans",
    "pas",
    "excepto",
    "sin",
    "salvo",
    "non",
    "tranne",
    "senza",
    "exceto",
    "niet",
    "behalve",
];

/// The lists of records that the owner has asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lists(Vec<RecordList>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct RecordList {
    giver: String,
    records: Vec<Record>,
    /// The records of each word; made when a request is first compared.
    index: OnceLock<Index>,
}

/// Words, and the places of the records that have them.
type Places = BTreeMap<String, BTreeSet<usize>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Index {
    words: Places,
    /// Those of ids.
    ids: Places,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Record {
    /// Its own id.
    id: Option<Arc<str>>,
    /// Its short values: their names, and they themselves.
    leaves: Vec<(Arc<str>, Arc<str>)>,
}

impl Lists {
    pub(super) const fn nothing() -> Self {
        Self(Vec::new())
    }

    /// Takes in the values of a structured result.
    pub(super) fn add_result(&mut self, giver: &str, fields: &[Field]) {
        let mut lists: BTreeMap<&str, BTreeMap<usize, Record>> = BTreeMap::new();
        for field in fields.iter().filter(|field| field.value.len() <= MAX_NAME_BYTES) {
            let leaf: (Arc<str>, Arc<str>) = (name_of(&field.path).into(), field.value.as_str().into());
            for (list, place, inner) in list_places(&field.path) {
                let record = lists.entry(list).or_default().entry(place).or_default();
                if inner.eq_ignore_ascii_case("id") {
                    record.id = Some(leaf.1.clone());
                }
                record.leaves.push(leaf.clone());
            }
        }
        // One record is no list: there is no other that could have been meant.
        let lists = lists.into_values().filter(|records| records.len() > 1);
        self.0.extend(lists.map(|records| RecordList {
            giver: giver.to_owned(),
            records: records.into_values().collect(),
            index: OnceLock::new(),
        }));
    }

    /// Finds the word of a request that distinguishes other records from the one with this value; `None` if
    /// the request means that one, or distinguishes none.
    pub(super) fn leaves_out(&self, request: &str, wanted: &WantedValue<'_>) -> Option<String> {
        // Only lists of servers that this value is known from: it may stand in another one by chance.
        let lists = self.0.iter().filter(|list| (wanted.is_of)(&list.giver));
        let mut lists =
            lists.filter(|list| list.records.iter().any(|record| record.holds_value(wanted))).peekable();
        lists.peek()?;
        let asked = asked_for(&fold_text(request));
        let told: Vec<_> = lists.map(|list| list.choice_of(&asked, wanted)).collect();
        // One list in which it is meant is enough: the request may distinguish records of another one.
        if told.contains(&RecordRelation::Meant) {
            return None;
        }
        told.into_iter()
            .find_map(|choice| if let RecordRelation::Other(word) = choice { Some(word) } else { None })
    }
}

/// The relation of a request to a value among the records of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RecordRelation {
    /// Nothing that would tell records apart.
    Open,
    /// It is among those that a word tells from the others.
    Meant,
    /// Others have this word, and it has none.
    Other(String),
}

impl RecordList {
    fn choice_of(&self, asked: &BTreeSet<String>, wanted: &WantedValue<'_>) -> RecordRelation {
        let index = self.index.get_or_init(|| self.build_index());
        let told = self.choice_by(&index.words, asked, wanted);
        // An owner who names one record by its id and others by a word («m-17 and the offers before it») means both.
        let is_worded = asked.iter().any(|word| !places_of(&index.words, word).is_empty());
        if told != RecordRelation::Open || is_worded {
            return told;
        }
        self.choice_by(&index.ids, asked, wanted)
    }

    fn choice_by(
        &self,
        known: &Places,
        asked: &BTreeSet<String>,
        wanted: &WantedValue<'_>,
    ) -> RecordRelation {
        let mut other = None;
        for word in asked {
            let with = places_of(known, word);
            // A word that all records contain does not distinguish them.
            if with.is_empty() || with.len() == self.records.len() {
                continue;
            }
            if with
                .iter()
                .any(|place| self.records.get(*place).is_some_and(|record| record.holds_value(wanted)))
            {
                return RecordRelation::Meant;
            }
            other.get_or_insert_with(|| word.clone());
        }
        other.map_or(RecordRelation::Open, RecordRelation::Other)
    }

    fn build_index(&self) -> Index {
        let mut index = Index::default();
        for (place, record) in self.records.iter().enumerate() {
            for (name, value) in &record.leaves {
                let known = if is_id(name) { &mut index.ids } else { &mut index.words };
                let text = fold_text(value);
                // Addresses and ids as a whole, too.
                for word in telling_words(&text).chain(split_tokens(&text)).filter(|word| !word.is_empty()) {
                    known.entry(word.to_owned()).or_default().insert(place);
                }
            }
        }
        index
    }
}

/// The records that have a word, or the same one with another ending.
fn places_of(known: &Places, word: &str) -> BTreeSet<usize> {
    let longer = known.range(word.to_owned()..).take_while(|(one, _)| one.starts_with(word));
    let longer = longer.filter(|(one, _)| is_same(word, one)).flat_map(|(_, places)| places);
    let shorter = word.char_indices().rev().take(MAX_ENDING_CHARS).filter_map(|(at, _)| word.get(..at));
    let shorter = shorter.filter(|one| is_same(word, one)).filter_map(|one| known.get(one)).flatten();
    longer.chain(shorter).copied().collect()
}

impl Record {
    /// Where an id is looked for, a record with an `id` is identified by it, even if it refers to other ids.
    fn holds_value(&self, wanted: &WantedValue<'_>) -> bool {
        if let Some(id) = self.id.as_deref().filter(|_| (wanted.fits)("id")) {
            return id == wanted.value;
        }
        self.leaves.iter().any(|(name, value)| **value == *wanted.value && (wanted.fits)(name))
    }
}

/// The lists in which a leaf stands, by the numbers in its path: each with its place, and its path within what stands there.
fn list_places(path: &str) -> impl Iterator<Item = (&str, usize, &str)> {
    path.match_indices('/').filter_map(|(at, _)| {
        let rest = path.get(at + 1..)?;
        let (place, inner) = rest.split_once('/').unwrap_or((rest, ""));
        Some((path.get(..at)?, place.parse().ok()?, inner))
    })
}

/// The words by which a folded request can name records.
fn asked_for(request: &str) -> BTreeSet<String> {
    let mut is_excluded = false;
    let mut asked = BTreeSet::new();
    for token in request.split_whitespace() {
        let word = trim_token(token);
        is_excluded |= EXCLUDES.contains(&word);
        if !is_excluded && word.contains(|c: char| !c.is_alphanumeric()) {
            asked.insert(word.to_owned());
        }
        // An address tells by the whole of it: its host is that of many.
        if !is_excluded && !is_compound(word) {
            asked.extend(telling_words(word).filter(|word| !is_common(word)).map(str::to_owned));
        }
        is_excluded &= !token.ends_with(['.', '!', '?', ';']);
        if asked.len() >= MAX_WORDS {
            break;
        }
    }
    asked
}

/// Splits a text at white space, and trims the surrounding marks.
fn split_tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace().map(trim_token)
}

fn trim_token(token: &str) -> &str {
    token.trim_matches(|c: char| !c.is_alphanumeric())
}

/// Returns true if a token is an address, a path or the name of a host.
fn is_compound(token: &str) -> bool {
    token.contains(['@', '/', '.'])
}

/// The words of a folded text that can tell one thing from another.
fn telling_words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| word.chars().count() >= MIN_TOKEN_CHARS && !is_year(word))
}

fn is_year(word: &str) -> bool {
    word.len() == YEAR_DIGITS
        && (word.starts_with("19") || word.starts_with("20"))
        && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true if two words are the same except for an ending; numbers have none.
fn is_same(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    let Some(ending) = long.strip_prefix(short) else { return false };
    ending.is_empty()
        || (short.chars().count() >= MIN_STEM_CHARS
            && ending.chars().count() <= MAX_ENDING_CHARS
            && ending.chars().all(char::is_alphabetic))
}

/// The words that stand in any text, sorted, a line each (`build.rs`).
const COMMON: &str = include_str!(concat!(env!("OUT_DIR"), "/common-words.txt"));

/// Returns true if a word stands in any text.
pub(super) fn is_common(word: &str) -> bool {
    static WORDS: OnceLock<Vec<&str>> = OnceLock::new();
    WORDS.get_or_init(|| COMMON.lines().collect()).binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests;
