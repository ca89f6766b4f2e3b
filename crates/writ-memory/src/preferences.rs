//! Preferences that show in what the owner does: the same correction twice, the same choice three times, the same request
//! denied each time.
//!
//! A rule, not a model. It proposes alone: the owner is asked, with the evidence, and nothing applies before the answer. A
//! single signal is none (SIL-394), and one that was also given the other way round is none either.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use writ_types::unit::Timestamp;

use crate::words::{TextWords, fold_whole};

/// The time over which signals are counted.
pub const COUNTED_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The fewest equal corrections: to correct is work, so the second one shows that it matters.
const MIN_CORRECTIONS: usize = 2;

/// The fewest equal choices.
const MIN_CHOICES: usize = 3;

/// The fewest denials of one likeness, without an approval.
const MIN_DENIALS: usize = 3;

/// The most preferences that are inferred at once: a person reads few cards.
pub const MAX_INFERRED: usize = 5;

/// The longest message that is looked at, in bytes: what is longer is pasted, mostly.
const MAX_MESSAGE_BYTES: usize = 4_096;

/// The longest wording, in characters.
const MAX_WORDING_CHARS: usize = 160;

/// The most words of a wording that carry meaning: more are a task, not a preference.
const MAX_WORDING_WORDS: usize = 10;

/// The most reasons of denials that the evidence quotes.
const MAX_REASONS: usize = 2;

/// Beginnings by which a sentence corrects the one before.
const CORRECTIONS: &[&str] = &[
    "no",
    "nope",
    "wrong",
    "not like that",
    "not this way",
    "i said",
    "i told you",
    "as i said",
    "again",
    "nein",
    "falsch",
    "nicht so",
    "ich sagte",
    "ich habe gesagt",
    "wie gesagt",
    "noch einmal",
    "nochmal",
];

/// Words that are polite and mean nothing else.
const POLITE: &[&str] = &["please", "bitte", "and", "und", "but", "aber"];

/// Beginnings of sentences that say how something is to be done. Plain orders such as «write» are tasks.
const CHOICES: &[&str] = &[
    "use",
    "answer",
    "reply",
    "respond",
    "keep it",
    "make it",
    "write in",
    "speak",
    "call me",
    "prefer",
    "i prefer",
    "i like",
    "i'd rather",
    "i would rather",
    "always",
    "never",
    "don't",
    "do not",
    "stop",
    "avoid",
    "benutze",
    "nimm",
    "antworte",
    "mach es",
    "schreib auf",
    "nenn mich",
    "ich bevorzuge",
    "ich mag",
    "lieber",
    "immer",
    "nie",
    "niemals",
    "kein",
    "keine",
    "hör auf",
];

/// Something that the owner has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BehaviourSignal {
    /// A request was answered.
    Answered {
        /// What it has in common with others.
        likeness: String,
        /// True if it was approved.
        approved: bool,
        /// The reason, in the owner's words; may be empty.
        reason: String,
    },
    /// A message was sent.
    Said(String),
}

/// A preference that shows in signals, for the owner to confirm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferredPreference {
    /// Names it: the same signals give the same key, so that the owner is asked once.
    pub key: String,
    /// The text of its memory.
    pub text: String,
    /// The signals that it rests on, for people.
    pub evidence: String,
}

/// Infers preferences of signals with their times, those with the newest signals first.
pub fn infer_preferences(signals: &[(BehaviourSignal, Timestamp)]) -> Vec<InferredPreference> {
    let mut answers: BTreeMap<&str, Vec<(bool, &str, Timestamp)>> = BTreeMap::new();
    let mut wordings: BTreeMap<String, Vec<StatedChoice>> = BTreeMap::new();
    for (signal, at) in signals {
        match signal {
            BehaviourSignal::Answered { likeness, approved, reason } => {
                answers.entry(likeness).or_default().push((*approved, reason, *at));
            }
            BehaviourSignal::Said(text) => {
                for (key, wording) in wordings_of(text, *at) {
                    wordings.entry(key).or_default().push(wording);
                }
            }
        }
    }
    let denied = answers.into_iter().filter_map(|(likeness, answers)| denied_each_time(likeness, answers));
    let said = wordings.into_iter().filter_map(|(key, wordings)| said_again(key, wordings));
    let mut inferred: Vec<(Timestamp, InferredPreference)> = denied.chain(said).collect();
    inferred.sort_by(|left, right| right.0.cmp(&left.0).then(left.1.key.cmp(&right.1.key)));
    inferred.into_iter().map(|(_, preference)| preference).collect()
}

/// A sentence of the owner about how something is to be done.
#[derive(Clone, Debug)]
struct StatedChoice {
    text: String,
    corrects: bool,
    negated: bool,
    at: Timestamp,
}

fn denied_each_time(
    likeness: &str,
    mut answers: Vec<(bool, &str, Timestamp)>,
) -> Option<(Timestamp, InferredPreference)> {
    answers.sort_by_key(|(.., at)| *at);
    let (first, last) = (answers.first()?.2, answers.last()?.2);
    if answers.len() < MIN_DENIALS || answers.iter().any(|(approved, ..)| *approved) {
        return None;
    }
    let reasons: BTreeSet<&str> =
        answers.iter().map(|(_, reason, _)| reason.trim()).filter(|reason| !reason.is_empty()).collect();
    let reasons: Vec<String> =
        reasons.into_iter().take(MAX_REASONS).map(|reason| format!("«{}»", shorten(reason))).collect();
    let because =
        if reasons.is_empty() { String::new() } else { format!("; you said: {}", reasons.join(", ")) };
    let evidence =
        format!("you denied it {} times from {} to {}{because}", answers.len(), day_of(first), day_of(last));
    let text = format!("The owner does not want this done: {likeness}");
    Some((last, InferredPreference { key: format!("denied {likeness}"), text, evidence }))
}

fn said_again(key: String, mut wordings: Vec<StatedChoice>) -> Option<(Timestamp, InferredPreference)> {
    // A fork of a conversation has copies of its messages, which are one message.
    wordings.sort_by(|left, right| left.at.cmp(&right.at).then(left.text.cmp(&right.text)));
    wordings.dedup_by(|left, right| left.at == right.at && left.text == right.text);
    let (first, last) = (wordings.first()?, wordings.last()?);
    let corrections = wordings.iter().filter(|wording| wording.corrects).count();
    let is_repeated = corrections >= MIN_CORRECTIONS || wordings.len() >= MIN_CHOICES;
    // In both forms, it depends on something else.
    if !is_repeated || wordings.iter().any(|wording| wording.negated != last.negated) {
        return None;
    }
    let corrected =
        if corrections == 0 { String::new() } else { format!(", {corrections} of them to correct") };
    let evidence = format!(
        "you said it {} times{corrected}: {} «{}», {} «{}»",
        wordings.len(),
        day_of(first.at),
        first.text,
        day_of(last.at),
        last.text
    );
    let text = format!("The owner's words about how things are done: «{}»", last.text);
    Some((last.at, InferredPreference { key: format!("said {key}"), text, evidence }))
}

/// Returns the sentences of a message that say how something is to be done, each with the words that others share with it.
fn wordings_of(text: &str, at: Timestamp) -> Vec<(String, StatedChoice)> {
    if text.len() > MAX_MESSAGE_BYTES {
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    let sentences = text.split(['.', '!', '?', ';', '\n']).filter_map(|sentence| wording_of(sentence, at));
    // Twice in one message counts once.
    sentences.filter(|(key, _)| seen.insert(key.clone())).collect()
}

fn wording_of(sentence: &str, at: Timestamp) -> Option<(String, StatedChoice)> {
    let folded = fold_whole(sentence).replace('’', "'");
    let (mut rest, mut corrects) = (folded.as_str(), false);
    loop {
        if let Some(behind) = behind_any(rest, CORRECTIONS) {
            (rest, corrects) = (behind, true);
        } else if let Some(behind) = behind_any(rest, POLITE) {
            rest = behind;
        } else {
            break;
        }
    }
    let is_choice = behind_any(rest, CHOICES).is_some();
    let polite = rest.rsplit_once([' ', ',']).filter(|(_, last)| POLITE.contains(last));
    let rest = polite.map_or(rest, |(text, _)| text);
    let rest = rest.trim_end_matches(|letter: char| !letter.is_alphanumeric());
    if rest.is_empty() || !(corrects || is_choice) || rest.chars().count() > MAX_WORDING_CHARS {
        return None;
    }
    let words = TextWords::of(rest);
    let set = words.set();
    if set.is_empty() || set.len() > MAX_WORDING_WORDS {
        return None;
    }
    let key = set.into_iter().collect::<Vec<_>>().join(" ");
    let negated = words.negations % 2 == 1;
    Some((key, StatedChoice { text: rest.to_owned(), corrects, negated, at }))
}

/// Returns the part of a text behind one of some beginnings, which end with a word.
fn behind_any<'a>(text: &'a str, beginnings: &[&str]) -> Option<&'a str> {
    let behind = beginnings.iter().filter_map(|beginning| text.strip_prefix(beginning));
    let mut whole = behind
        .filter(|behind| !behind.starts_with(|letter: char| letter.is_alphanumeric() || letter == '\''));
    let behind = whole.next()?;
    Some(behind.trim_start_matches(|letter: char| !letter.is_alphanumeric()))
}

fn shorten(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_WORDING_CHARS).collect()
}

/// The date, by UTC.
fn day_of(at: Timestamp) -> String {
    at.to_string().chars().take(10).collect()
}

#[cfg(test)]
mod tests;
