//! Checks of gates, compiled from their configuration.

use std::ops::Range;

use regex::{NoExpand, Regex, RegexBuilder};

use super::config::{GateConfig, GateError, GateProvider, Point};
use super::guard::GuardCheck;
use super::subject::Subject;

/// The most memory that one compiled expression may take, in bytes.
const MAX_PATTERN_BYTES: usize = 1024 * 1024;

/// A test that a gate applies to a subject.
#[derive(Clone, Debug)]
pub(super) enum GateCheck {
    Words(WordList),
    Pattern(Regex),
    Range { min: f64, max: f64 },
    Files { below: Vec<String>, extensions: Vec<String>, max_bytes: u64 },
    Guard(GuardCheck),
}

/// A finding of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CheckHit {
    /// The reason, in words that repeat nothing of the text.
    pub(super) why: String,
    /// True if it only advises.
    pub(super) advises: bool,
}

/// Fixed texts that a gate looks for.
#[derive(Clone, Debug)]
pub(super) struct WordList {
    needles: Vec<String>,
    ignore_case: bool,
}

/// Compiles the checks of a configuration.
///
/// # Errors
///
/// If it names no check, or an invalid one.
pub(super) fn compile_checks(gate: &GateConfig) -> Result<Vec<GateCheck>, GateError> {
    let (name, empty) = (gate.name.clone(), |needs| GateError::Empty { name: gate.name.clone(), needs });
    let mut checks = Vec::new();
    // A blank text is found in every text, so it would block everything.
    if gate.contains.iter().any(|text| text.trim().is_empty()) {
        return Err(empty("no text of 'contains' may be blank"));
    }
    if !gate.contains.is_empty() {
        let (needles, ignore_case) = (gate.contains.clone(), gate.ignore_case);
        checks.push(GateCheck::Words(WordList { needles, ignore_case }));
    }
    if let Some(pattern) = &gate.pattern {
        checks.push(GateCheck::Pattern(compile_pattern(gate, pattern)?));
    }
    if gate.min.is_some() || gate.max.is_some() {
        let (min, max) = (gate.min.unwrap_or(f64::NEG_INFINITY), gate.max.unwrap_or(f64::INFINITY));
        // NaN cannot be compared, and is refused as well.
        if !matches!(min.partial_cmp(&max), Some(std::cmp::Ordering::Less | std::cmp::Ordering::Equal)) {
            return Err(GateError::Range(name));
        }
        checks.push(GateCheck::Range { min, max });
    }
    if !gate.below.is_empty() || !gate.extensions.is_empty() || gate.max_bytes.is_some() {
        checks.push(GateCheck::Files {
            below: gate.below.clone(),
            extensions: gate.extensions.iter().map(|ending| ending.to_lowercase()).collect(),
            max_bytes: gate.max_bytes.unwrap_or(u64::MAX),
        });
    }
    for check in &gate.checks {
        let found = GuardCheck::from_name(check).ok_or_else(|| GateError::Check {
            name: name.clone(),
            check: check.clone(),
            known: GuardCheck::ALL.map(GuardCheck::as_str).join(", "),
        })?;
        checks.push(GateCheck::Guard(found));
    }
    match gate.provider {
        // A gate without a check would pass everything while its owner relies on it.
        GateProvider::Predicate if checks.is_empty() => {
            Err(empty("it needs 'contains', 'pattern', 'min', 'max', 'below', 'extensions' or 'max_bytes'"))
        }
        GateProvider::Regex if gate.pattern.is_none() => Err(empty("it needs 'pattern'")),
        GateProvider::Guard if gate.checks.is_empty() => Err(empty("it needs 'checks'")),
        GateProvider::Script if gate.script.as_ref().is_none_or(|script| script.trim().is_empty()) => {
            Err(empty("it needs 'script'"))
        }
        GateProvider::Llm if gate.prompt.as_ref().is_none_or(|prompt| prompt.trim().is_empty()) => {
            Err(empty("it needs 'prompt'"))
        }
        GateProvider::Predicate
        | GateProvider::Regex
        | GateProvider::Guard
        | GateProvider::Script
        | GateProvider::Llm => Ok(checks),
    }
}

fn compile_pattern(gate: &GateConfig, pattern: &str) -> Result<Regex, GateError> {
    let wrong = |why: String| GateError::Pattern { name: gate.name.clone(), why };
    // The engine matches in linear time; the size is bounded, since counted repetitions multiply it.
    let built = RegexBuilder::new(pattern)
        .case_insensitive(gate.ignore_case)
        .size_limit(MAX_PATTERN_BYTES)
        .dfa_size_limit(MAX_PATTERN_BYTES)
        .build();
    let regex = built.map_err(|error| {
        // The last line says what is wrong; those before it draw the place.
        let text = error.to_string();
        wrong(text.lines().last().unwrap_or_default().trim().to_owned())
    })?;
    if regex.is_match("") {
        return Err(wrong("it matches an empty text, and so every text".to_owned()));
    }
    Ok(regex)
}

impl GateCheck {
    /// Applies the check; `promoted`: a finding that would only advise counts in full.
    pub(super) fn find_hit(
        &self,
        subject: &Subject,
        field: Option<&str>,
        promoted: bool,
    ) -> Option<CheckHit> {
        let hit = |why: &str| Some(CheckHit { why: why.to_owned(), advises: false });
        match self {
            Self::Words(words) => {
                words.find_word(&subject.seen_texts(field).join("\n")).then(|| hit("a text of 'contains'"))?
            }
            Self::Pattern(regex) => {
                regex.is_match(&subject.seen_texts(field).join("\n")).then(|| hit("the pattern"))?
            }
            Self::Range { min, max } => {
                // A value that is not a number fails, like a missing one: the gate requires proof that the bound holds.
                let seen = subject.seen_texts(field);
                let outside = |text: &String| match text.trim().parse::<f64>() {
                    Ok(number) => !(*min..=*max).contains(&number),
                    Err(_) => true,
                };
                (seen.is_empty() || seen.iter().any(outside)).then(|| hit("no number in the range"))?
            }
            Self::Files { below, extensions, max_bytes } => {
                subject.files.iter().find_map(|file| bad_file(file, (below, extensions, *max_bytes)))
            }
            Self::Guard(check) => {
                let found = check.describe_finding(&subject.seen_texts(field).join("\n"))?;
                // With `promote_to_policy` the owner decides that a list of phrases may block.
                Some(CheckHit {
                    why: format!("{}: {found}", check.as_str()),
                    advises: check.only_advises() && !promoted,
                })
            }
        }
    }

    /// Replaces each match of the check in a text.
    pub(super) fn replace_hits(&self, text: &str, replacement: &str) -> String {
        match self {
            Self::Words(words) => words.replace_words(text, replacement),
            Self::Pattern(regex) => regex.replace_all(text, NoExpand(replacement)).into_owned(),
            Self::Guard(check) => replace_spans(text, &check.find_spans(text), replacement),
            // Configurations that would replace these are refused.
            Self::Range { .. } | Self::Files { .. } => text.to_owned(),
        }
    }

    /// Returns true if its findings have a place in the text.
    pub(super) fn can_replace(&self) -> bool {
        match self {
            Self::Words(_) | Self::Pattern(_) => true,
            Self::Guard(check) => check.has_spans(),
            Self::Range { .. } | Self::Files { .. } => false,
        }
    }

    /// Returns the setting that cannot stand at a point, and the reason; `None` if it can.
    pub(super) fn misplaced_setting(&self, point: Point) -> Option<(&'static str, &'static str)> {
        match (self, point) {
            (Self::Files { .. }, Point::Input | Point::Output) => {
                Some(("below, extensions, max_bytes", "look at the files of actions: use 'execution'"))
            }
            (
                Self::Words(_) | Self::Pattern(_) | Self::Range { .. } | Self::Guard(_) | Self::Files { .. },
                Point::Input | Point::Output | Point::Execution | Point::Access,
            ) => None,
        }
    }
}

fn bad_file(
    file: &super::subject::FileSeen,
    (below, extensions, max_bytes): (&[String], &[String], u64),
) -> Option<CheckHit> {
    let hit = |why: &str| Some(CheckHit { why: why.to_owned(), advises: false });
    // The comparison of scopes is used, so that `/work/a` does not cover `/work/ab`.
    let inside = |folder: &String| crate::scope::Dimension::Path.covers_value(folder, &file.path);
    if !below.is_empty() && !below.iter().any(inside) {
        return hit("a file outside the folders");
    }
    let name = file.path.rsplit('/').next().unwrap_or_default().to_lowercase();
    let ends = |ending: &String| {
        let ending = ending.trim_start_matches('.');
        // The dot before the ending is required, or `notes` would have the ending `es`.
        name.strip_suffix(ending).is_some_and(|stem| stem.ends_with('.'))
    };
    if !extensions.is_empty() && !extensions.iter().any(ends) {
        return hit("a file with another ending");
    }
    // Reads name no size, so a file of unknown size passes this check.
    if file.bytes.is_some_and(|bytes| bytes > max_bytes) {
        return hit("a file that is too large");
    }
    None
}

/// Replaces spans of a text, which are sorted by their start.
fn replace_spans(text: &str, spans: &[Range<usize>], replacement: &str) -> String {
    let (mut out, mut from) = (String::with_capacity(text.len()), 0);
    for span in spans.iter().filter(|span| !span.is_empty()) {
        // A span that overlaps the one before it needs no replacement of its own.
        if span.start >= from {
            out.push_str(text.get(from..span.start).unwrap_or_default());
            out.push_str(replacement);
        }
        from = from.max(span.end);
    }
    out.push_str(text.get(from..).unwrap_or_default());
    out
}

impl WordList {
    fn find_word(&self, text: &str) -> bool {
        // White space is folded in text and needle, so that a line end cannot hide a phrase.
        let folded = self.fold_case(text);
        self.needles.iter().any(|needle| folded.contains(&self.fold_case(needle)))
    }

    /// Replaces each run of white space by one space, and folds case if it is ignored.
    fn fold_case(&self, text: &str) -> String {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if self.ignore_case { words.to_lowercase() } else { words }
    }

    fn replace_words(&self, text: &str, replacement: &str) -> String {
        self.needles.iter().fold(text.to_owned(), |text, needle| self.replace_one(&text, needle, replacement))
    }

    fn replace_one(&self, text: &str, needle: &str, replacement: &str) -> String {
        if !self.ignore_case {
            return text.replace(needle, replacement);
        }
        // Lower-casing can change lengths outside ASCII, so case is ignored for ASCII letters only.
        let (lower, needle) = (text.to_ascii_lowercase(), needle.to_ascii_lowercase());
        let spans: Vec<_> = lower.match_indices(&needle).map(|(at, found)| at..at + found.len()).collect();
        replace_spans(text, &spans, replacement)
    }
}
