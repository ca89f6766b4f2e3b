//! Values that the owner has designated: «the address in caterers.txt», «the account that the bill names».
//!
//! Such a value stands in prose, without a structure that attributes it, and others may have written into the
//! same text. It counts only where all of this holds:
//!
//! * The owner's newest words name the *source*: the call that read it was made of known values, and one of them is the owner's own word.
//!
//! * They name the *kind*, as a noun («the address», «their bank account»): an address, a link, an account, an amount. Not within the name of a file, and not after an excluding word. And they hold no value of that kind, or that one would be meant.
//!
//! * All sources that were read for this request have, together, exactly one value that could be of that kind. Candidates are recognised broadly, and values that count strictly: an injection that brings its own makes two, and then the owner is asked.
//!
//! * The agent has not written it anywhere since external content was read.

mod numbers;

use std::collections::BTreeSet;

use serde_json::{Deserializer, Value};
use writ_types::action::SlotKind;

use self::numbers::{find_accounts, find_amounts, parse_decimal};
use super::choice::EXCLUDES;
use super::given::GivenTexts;
use super::link::{find_links, gather_texts, is_host, is_link};
use super::text::{fold_text, mentions};
use super::words::OwnerTexts;

/// The largest source that is looked through, in bytes: in a larger one there may be more values than one.
const MAX_SOURCE_BYTES: usize = 256 * 1024;
/// The most different values that are stored: with two, none is unique.
const MAX_CANDIDATES: usize = 2;
/// Ends of sentences, if white space follows.
const SENTENCE_ENDS: [char; 5] = ['.', ';', ':', '!', '?'];
/// Marks of a cut text: there may have been more values.
const CUTS: [&str; 2] = ["characters left out ...]", "more characters]"];
/// Spellings of an at sign, also for a browser.
const AT: [&str; 8] = ["@", "(at)", "[at]", "{at}", "&#64", "&#x40", "&commat", "%40"];
/// Words before a noun that are no other word of another language: English, German, French, Spanish, Italian,
/// Portuguese, Dutch.
const DETERMINERS: [&str; 61] = [
    "the", "a", "an", "this", "that", "these", "those", "his", "her", "their", "its", "my", "your", "our",
    "whose", "which", "der", "die", "das", "den", "dem", "des", "ein", "eine", "einen", "einem", "einer",
    "seine", "ihre", "deren", "dessen", "welche", "zur", "zum", "vom", "ans", "aufs", "le", "la", "les", "l",
    "une", "du", "aux", "leur", "cette", "cet", "el", "los", "las", "una", "del", "su", "il", "lo", "gli",
    "dell", "sul", "uma", "het", "um",
];
/// Words that never stand between an article and a noun: a verb follows them, or another thing.
const ELSE: [&str; 76] = [
    "and", "or", "but", "to", "into", "in", "on", "for", "of", "at", "with", "by", "from", "as", "than",
    "then", "i", "you", "we", "they", "he", "she", "it", "who", "must", "should", "will", "would", "can",
    "could", "may", "might", "please", "also", "just", "do", "did", "does", "und", "oder", "aber", "zu",
    "an", "auf", "mit", "von", "wir", "sie", "ihr", "man", "et", "ou", "mais", "en", "pour", "avec", "de",
    "nous", "vous", "ils", "y", "o", "pero", "para", "con", "por", "e", "ed", "ma", "per", "che", "si",
    "noi", "maar", "voor", "met",
];
/// Words that exclude a kind besides [`EXCLUDES`], anywhere in its sentence.
const FORBIDS: [&str; 36] = [
    "no",
    "never",
    "nor",
    "neither",
    "avoid",
    "ignore",
    "instead",
    "rather",
    "stop",
    "n\u{e3}o",
    "nao",
    "nie",
    "niemals",
    "kein",
    "keinen",
    "keinem",
    "keiner",
    "keines",
    "keinesfalls",
    "keineswegs",
    "ignoriere",
    "jamais",
    "aucun",
    "aucune",
    "ni",
    "nunca",
    "jam\u{e1}s",
    "mai",
    "nessun",
    "nessuna",
    "n\u{e9}",
    "nooit",
    "geen",
    "cannot",
    "can't",
    "statt",
];

/// A kind of value, with the words by which it is named: English, German, French, Spanish, Italian, Portuguese, Dutch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DesignatedKind {
    Address,
    Link,
    Account,
    Amount,
}

const ADDRESS: [&str; 8] =
    ["address", "adresse", "mailadresse", "dirección", "indirizzo", "endereço", "adres", "mailadres"];
const LINK: [&str; 14] = [
    "link",
    "linked",
    "url",
    "website",
    "webpage",
    "webseite",
    "verlinkt",
    "lien",
    "enlace",
    "collegamento",
    "ligação",
    "koppeling",
    "web page",
    "web address",
];
const ACCOUNT: [&str; 11] = [
    "account",
    "iban",
    "konto",
    "kontonummer",
    "compte",
    "cuenta",
    "conto",
    "conta",
    "rekening",
    "rekeningnummer",
    "bankverbindung",
];
const AMOUNT: [&str; 21] = [
    "amount", "sum", "total", "price", "betrag", "summe", "preis", "montant", "somme", "prix", "importe",
    "suma", "precio", "importo", "somma", "prezzo", "valor", "preço", "bedrag", "prijs", "how much",
];

/// The candidates of each kind in the sources of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DesignationSources {
    addresses: BTreeSet<String>,
    links: BTreeSet<String>,
    accounts: BTreeSet<String>,
    amounts: BTreeSet<String>,
    is_full: bool,
    /// Something external was read besides them.
    pub(super) has_others: bool,
}

impl DesignationSources {
    pub(super) const fn nothing() -> Self {
        Self {
            addresses: BTreeSet::new(),
            links: BTreeSet::new(),
            accounts: BTreeSet::new(),
            amounts: BTreeSet::new(),
            is_full: false,
            has_others: false,
        }
    }

    /// Takes in the answer of a source.
    pub(super) fn add_source(&mut self, text: &str) {
        if text.len() > MAX_SOURCE_BYTES || CUTS.iter().any(|cut| text.contains(cut)) {
            self.is_full = true;
            return;
        }
        // A structured answer is read value by value: in its text a name and a value would run into one word.
        let pieces: Result<Vec<Value>, _> = Deserializer::from_str(text).into_iter::<Value>().collect();
        match pieces {
            Ok(pieces) if pieces.iter().all(|piece| piece.is_object() || piece.is_array()) => {
                pieces.iter().for_each(|piece| self.add_leaves(piece));
            }
            Ok(_) | Err(_) => self.add_prose(text),
        }
    }

    fn add_leaves(&mut self, value: &Value) {
        match value {
            Value::Number(number) => self.add_prose(&number.to_string()),
            Value::Array(items) => items.iter().for_each(|item| self.add_leaves(item)),
            Value::Object(fields) => fields.iter().for_each(|(name, field)| {
                self.add_prose(name);
                self.add_leaves(field);
            }),
            Value::String(text) => self.add_prose(text),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn add_prose(&mut self, text: &str) {
        fn put_candidate(set: &mut BTreeSet<String>, value: String) {
            // Two are enough to know that a value is not the only one of its kind.
            if set.len() < MAX_CANDIDATES {
                set.insert(value);
            }
        }
        find_addresses(text).for_each(|found| put_candidate(&mut self.addresses, found));
        find_links(text).into_iter().for_each(|found| put_candidate(&mut self.links, found.to_owned()));
        find_accounts(text).into_iter().for_each(|found| put_candidate(&mut self.accounts, found));
        find_amounts(text).into_iter().for_each(|found| put_candidate(&mut self.amounts, found));
    }

    /// Notes an answer that a call of known values has brought: a source, if one of them is the owner's own word.
    pub(super) fn note_answer(&mut self, owner: &OwnerTexts, arguments: &Value, texts: &[&str]) {
        let mut values = Vec::new();
        // The tools named for afterwards say nothing about the source.
        if let Value::Object(fields) = arguments {
            fields
                .iter()
                .filter(|(name, _)| *name != super::THEN)
                .for_each(|(_, value)| gather_texts(value, &mut values));
        }
        let is_named =
            |value: &&str| crate::owner::holds_value(owner.request(), value) || owner.is_phrase(value);
        if values.iter().any(is_named) {
            texts.iter().for_each(|text| self.add_source(text));
        } else {
            self.has_others = true;
        }
    }

    /// Returns true if the owner has designated a value by its source and its kind, as it is the only one.
    pub(super) fn designate(&self, owner: &OwnerTexts, given: &GivenTexts, value: &str) -> bool {
        // A source that was cut may hold a second value, so none of its kind is certain.
        if owner.is_narrow || self.is_full {
            return false;
        }
        let Some((kind, value)) = DesignatedKind::kind_of(value) else { return false };
        let request = owner.folded_request();
        if !kind.kind_words().iter().any(|word| names_kind(request, word)) {
            return false;
        }
        // If the request itself contains a value of the kind, the owner means that value.
        let mut own = Self::nothing();
        own.add_prose(owner.request());
        let found = self.candidates_of(kind);
        own.candidates_of(kind).is_empty()
            && found.len() == 1
            && found.contains(&value)
            && !given.any_has_value(&value)
    }

    /// Returns true if the sources hold no address, link or account.
    pub(super) fn directs_nowhere(&self) -> bool {
        !self.is_full && self.addresses.is_empty() && self.links.is_empty() && self.accounts.is_empty()
    }

    /// Returns true if the sources hold one value of its kind, and it is this one.
    pub(super) fn is_only_one(&self, value: &str, kind: SlotKind) -> bool {
        let Some((found, value)) = DesignatedKind::kind_of(value) else { return false };
        let is_kind = match (kind, found) {
            (SlotKind::Account, DesignatedKind::Account)
            | (SlotKind::Address, DesignatedKind::Address)
            | (SlotKind::Link, DesignatedKind::Link)
            | (SlotKind::Amount { .. }, DesignatedKind::Amount) => true,
            (
                SlotKind::Account
                | SlotKind::Address
                | SlotKind::Link
                | SlotKind::Amount { .. }
                | SlotKind::Text,
                _,
            ) => false,
        };
        let candidates = self.candidates_of(found);
        // A source that was cut may hold a second value.
        is_kind && !self.is_full && candidates.len() == 1 && candidates.contains(&value)
    }

    fn candidates_of(&self, kind: DesignatedKind) -> &BTreeSet<String> {
        match kind {
            DesignatedKind::Address => &self.addresses,
            DesignatedKind::Link => &self.links,
            DesignatedKind::Account => &self.accounts,
            DesignatedKind::Amount => &self.amounts,
        }
    }
}

impl DesignatedKind {
    const fn kind_words(self) -> &'static [&'static str] {
        match self {
            Self::Address => &ADDRESS,
            Self::Link => &LINK,
            Self::Account => &ACCOUNT,
            Self::Amount => &AMOUNT,
        }
    }

    /// The kind of a value, and the value as candidates are written.
    fn kind_of(value: &str) -> Option<(Self, String)> {
        // A value with other characters beside spaces could be read as two values.
        if value.contains(char::is_whitespace)
            && !value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b' ')
        {
            return None;
        }
        if let Some((name, host)) = value.split_once('@').filter(|_| !is_link(value)) {
            let is_address = !name.is_empty() && host.contains('.') && !host.contains('@');
            return is_address.then(|| (Self::Address, value.to_owned()));
        }
        if is_link(value) {
            return value.contains("://").then(|| (Self::Link, value.to_owned()));
        }
        // Exactly one account: `1234567 7654321` names two.
        if let [account] = find_accounts(value).as_slice() {
            return Some((Self::Account, account.clone()));
        }
        parse_decimal(value).map(|number| (Self::Amount, number))
    }
}

/// Finds candidates for mail addresses: words with an at sign, also in other spellings, or «ann at
/// example.org».
fn find_addresses(text: &str) -> impl Iterator<Item = String> + '_ {
    let is_border = |c: char| c.is_whitespace() || "\"'`<>|«»“”„‚‘’,;".contains(c);
    // Folded first, since wide letters and invisible characters would hide an at sign.
    let is_at = |word: &str| {
        let word = fold_text(word);
        AT.iter().any(|at| word.contains(at))
    };
    let trim = |word: &str| word.trim_matches(|c: char| ".:!?()[]{}".contains(c)).to_owned();
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_at_host =
        |host: &str| is_host(fold_text(host).trim_matches(|c: char| !c.is_alphanumeric()), false);
    let spelled: Vec<String> = words
        .array_windows()
        .filter(|[_, at, host]| at.eq_ignore_ascii_case("at") && is_at_host(host))
        .map(|[name, _, host]| format!("{name}@{host}"))
        .collect();
    text.split(is_border).filter(move |word| is_at(word)).map(trim).chain(spelled)
}

/// Returns true if a folded request has the word of a kind as a noun, in a sentence that excludes nothing,
/// and not within a name.
fn names_kind(request: &str, word: &str) -> bool {
    let is_of_name = |c: Option<char>| c.is_some_and(|c| "-_./\\@~".contains(c));
    mentions(request, word).any(|(before, after)| {
        // The end of a sentence is no part of a name.
        let mut next = after.chars();
        let is_within = is_of_name(before.chars().next_back())
            || (is_of_name(next.next()) && next.next().is_some_and(char::is_alphanumeric));
        let said = words_of(split_sentences(before).pop().unwrap_or_default());
        let rest = words_of(split_sentences(after).first().copied().unwrap_or_default());
        let forbids = |word: &&str| EXCLUDES.contains(word) || FORBIDS.contains(word);
        !is_within && (word.contains(' ') || is_noun(&said)) && !said.iter().chain(&rest).any(forbids)
    })
}

/// Returns true if a noun follows these words: an article or pronoun is the last of them, or the last but one
/// before an adjective («the bank account», and not «this into account»).
fn is_noun(said: &[&str]) -> bool {
    let is_determiner = |word: &str| {
        // An article can be shortened before a vowel: «l'adresse».
        let article = word.trim_end_matches('\'').rsplit('\'').next().unwrap_or_default();
        DETERMINERS.contains(&article)
    };
    match said {
        [.., first, between] if !is_determiner(between) => is_determiner(first) && !ELSE.contains(between),
        [.., last] => is_determiner(last),
        [] => false,
    }
}

/// The sentences of a text.
fn split_sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut first = 0;
    for (at, c) in text.char_indices() {
        let after = at + c.len_utf8();
        let next = text.get(after..).and_then(|rest| rest.chars().next());
        if c == '\n' || (SENTENCE_ENDS.contains(&c) && next.is_some_and(char::is_whitespace)) {
            found.push(text.get(first..at).unwrap_or_default());
            first = after;
        }
    }
    found.push(text.get(first..).unwrap_or_default());
    found
}

fn words_of(text: &str) -> Vec<&str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests;
