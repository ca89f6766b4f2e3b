//! Masks results, by tokens in place of personal data, and puts the values back into the agent's parameters.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use writ_inspect::redact::Redactor;
use writ_operations::{OperationResult, PersonalKind};

use crate::cases::{OpenCase, TokenValues};
use crate::fold::FoldedText;
use crate::kind::{TOKEN_DIGITS, prefixes};
use crate::known::MIN_NUMBER_CHARS;
use crate::search::{Depth, FoundValue, find_personal};
use crate::secret::ProxySecret;

/// The most levels of arrays and objects in the value of a column; deeper ones become null.
const MAX_DEPTH: usize = 32;

/// The longest parameter after its tokens were replaced by values, in bytes.
const MAX_RESTORED_BYTES: usize = 64 * 1024;

/// The reason why values cannot be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutBackError {
    /// The text has a token of another case, or one that the agent invented.
    Foreign,
    /// The text with its values is longer than [`MAX_RESTORED_BYTES`].
    TooLong,
}

/// Replaces the personal data of one case.
pub(crate) struct Masker<'a> {
    secret: &'a ProxySecret,
    redactor: &'a Redactor,
    case: &'a OpenCase,
    /// Values that the case did not know before.
    pub(crate) fresh: TokenValues,
    /// True if columns of free text are replaced as a whole: the case knows no name of its customer that it could find in them.
    pub(crate) hides_text: bool,
    /// All tokens that the masked texts contain.
    pub(crate) tokens: BTreeSet<String>,
    /// The values that the case knew, in small letters, with their tokens: those that were found inside texts.
    pub(crate) found: BTreeMap<String, String>,
}

impl<'a> Masker<'a> {
    pub(crate) fn new(secret: &'a ProxySecret, redactor: &'a Redactor, case: &'a OpenCase) -> Self {
        Self {
            secret,
            redactor,
            case,
            fresh: TokenValues::new(),
            hides_text: false,
            tokens: BTreeSet::new(),
            found: BTreeMap::new(),
        }
    }

    /// Replaces the personal data of a result: declared columns as a whole, then the personal values in all other texts.
    pub(crate) fn mask_result(&mut self, result: &OperationResult) -> Vec<Value> {
        // Declared columns first, so that their values are found in the other texts of the same result.
        let mut rows = self.mask_columns(result);
        self.case.learn_values(self.fresh.clone());
        for (row, masked) in result.rows.iter().zip(&mut rows) {
            for ((_, _, kind), (_, value)) in row.iter().zip(masked) {
                match kind {
                    Some(PersonalKind::Text) if self.hides_text => {
                        *value = self.mask_whole(value, PersonalKind::Text, 0);
                    }
                    Some(PersonalKind::Text) => self.mask_inside(value, Depth::Free, 0),
                    None => self.mask_inside(value, Depth::Plain, 0),
                    Some(_) => {}
                }
            }
        }
        // The values found in texts as well: the agent may use their tokens in its next request.
        self.case.learn_values(self.fresh.clone());
        rows.into_iter().map(|row| Value::Object(row.into_iter().collect())).collect()
    }

    /// Replaces only the declared columns of a result, each as a whole. The case does not learn their values yet.
    pub(crate) fn mask_columns(&mut self, result: &OperationResult) -> Vec<Vec<(String, Value)>> {
        let mut rows = Vec::with_capacity(result.rows.len());
        for row in &result.rows {
            let masked = row.iter().map(|(column, value, kind)| {
                let value = match kind {
                    None | Some(PersonalKind::Text) => value.clone(),
                    Some(kind) => self.mask_whole(value, *kind, 0),
                };
                (column.clone(), value)
            });
            rows.push(masked.collect());
        }
        rows
    }

    /// Replaces a value of a declared column.
    fn mask_whole(&mut self, value: &Value, kind: PersonalKind, depth: usize) -> Value {
        match value {
            Value::Null => Value::Null,
            Value::String(text) if text.trim().is_empty() => Value::String(text.clone()),
            Value::String(text) => Value::String(self.token_of(kind, text)),
            Value::Bool(_) | Value::Number(_) => Value::String(self.token_of(kind, &value.to_string())),
            Value::Array(_) | Value::Object(_) if depth >= MAX_DEPTH => Value::Null,
            Value::Array(items) => {
                items.iter().map(|item| self.mask_whole(item, kind, depth.saturating_add(1))).collect()
            }
            // Names of fields are data as well. Their kind is `Text`, which is never searched for in other texts, since most
            // are plain words.
            Value::Object(fields) => fields
                .iter()
                .map(|(name, field)| {
                    let name = self.token_of(PersonalKind::Text, name);
                    (name, self.mask_whole(field, kind, depth.saturating_add(1)))
                })
                .collect(),
        }
    }

    /// Replaces what is found inside a value.
    fn mask_inside(&mut self, value: &mut Value, depth: Depth, nested: usize) {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                let text = number.to_string();
                // A short number is left as it is, since any could be the id of the customer. Columns that hold this
                // id are replaced as a whole.
                let masked = if text.len() < MIN_NUMBER_CHARS {
                    text.clone()
                } else {
                    self.mask_text(&text, Depth::Plain)
                };
                // A number becomes text only if a personal value, such as a card number, was found in it.
                if masked != text {
                    *value = Value::String(masked);
                }
            }
            Value::String(text) => *text = self.mask_text(text, depth),
            Value::Array(_) | Value::Object(_) if nested >= MAX_DEPTH => *value = Value::Null,
            Value::Array(items) => {
                items.iter_mut().for_each(|item| self.mask_inside(item, depth, nested.saturating_add(1)));
            }
            Value::Object(fields) => {
                // Keys of a JSON object are data as well.
                let old = std::mem::take(fields);
                for (name, mut field) in old {
                    self.mask_inside(&mut field, depth, nested.saturating_add(1));
                    fields.insert(self.mask_text(&name, depth), field);
                }
            }
        }
    }

    /// Replaces the personal data in a text, and masks credentials.
    pub(crate) fn mask_text(&mut self, text: &str, depth: Depth) -> String {
        let text = self.redactor.clean_text(text).into_string();
        let folded = FoldedText::fold(&text);
        let known = self.case.with_known(|known| known.find_known(folded.as_str()));
        let known = known.into_iter().map(|found| (found, true));
        let found =
            known.chain(find_personal(folded.as_str(), depth).into_iter().map(|found| (found, false)));
        let span =
            |(FoundValue { at, kind }, is_known)| (FoundValue { at: folded.place_of(at), kind }, is_known);
        let mut masked = String::with_capacity(text.len());
        let mut done = 0;
        for (FoundValue { at, kind }, is_known) in join_spans(found.map(span).collect()) {
            let value = text.get(at.clone()).unwrap_or_default();
            let token = self.token_of(kind, value);
            masked.push_str(text.get(done..at.start).unwrap_or_default());
            masked.push_str(&token);
            done = at.end;
            if is_known {
                self.found.insert(value.to_lowercase(), token);
            }
        }
        masked.push_str(text.get(done..).unwrap_or_default());
        masked
    }

    pub(crate) fn token_of(&mut self, kind: PersonalKind, value: &str) -> String {
        // A value that is already a token of this case, such as one that an agent has stored, stays as it is.
        if self.case.with_known(|known| known.has(value)) || self.fresh.contains_key(value) {
            self.tokens.insert(value.to_owned());
            return value.to_owned();
        }
        let token = self.secret.token(&self.case.tenant, kind, &self.case.key(), value);
        let is_own = token == self.case.customer_token || token == self.case.token;
        if !is_own && !self.case.with_known(|known| known.has(&token)) {
            self.fresh.entry(token.clone()).or_insert_with(|| (kind, value.to_owned()));
        }
        self.tokens.insert(token.clone());
        token
    }
}

/// Joins findings that overlap into one, so that no part of a value stays readable. The whole is known if the case knows all of it: a
/// known name inside a longer address is replaced with that address, whether the guess was right or not.
fn join_spans(mut spans: Vec<(FoundValue, bool)>) -> Vec<(FoundValue, bool)> {
    spans.sort_by_key(|(span, _)| (span.at.start, std::cmp::Reverse(span.at.end)));
    let mut joined: Vec<(FoundValue, bool)> = Vec::with_capacity(spans.len());
    for (span, is_known) in spans {
        match joined.last_mut() {
            Some((last, is_last_known)) if span.at.start < last.at.end => {
                if span.at.len() > last.at.len() {
                    last.kind = span.kind;
                }
                match span.at == last.at {
                    true => *is_last_known |= is_known,
                    false if span.at.end > last.at.end => *is_last_known &= is_known,
                    false => {}
                }
                last.at.end = last.at.end.max(span.at.end);
            }
            Some(_) | None => joined.push((span, is_known)),
        }
    }
    joined
}

/// Puts the values of a case back in place of their tokens.
///
/// # Errors
///
/// If a token in the text is not of this case, or the text becomes too long.
pub(crate) fn put_back(text: &str, case: &OpenCase) -> Result<String, PutBackError> {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, token, after)) = next_token(rest) {
        whole.push_str(before);
        let value = case.with_known(|known| known.value(token).map(ToOwned::to_owned));
        whole.push_str(&value.ok_or(PutBackError::Foreign)?);
        rest = after;
        // A short token can stand for a long value, and can occur many times.
        if whole.len().saturating_add(rest.len()) > MAX_RESTORED_BYTES {
            return Err(PutBackError::TooLong);
        }
    }
    whole.push_str(rest);
    Ok(whole)
}

/// Finds the first token in a text, with what stands before and after it.
fn next_token(text: &str) -> Option<(&str, &str, &str)> {
    let places = prefixes().filter_map(|prefix| {
        let mut from = 0;
        // A prefix without the digits of a token is skipped; a real token may follow.
        loop {
            let start = from + text.get(from..)?.find(prefix)?;
            let body = start + prefix.len();
            let end = body + TOKEN_DIGITS;
            let is_token = text
                .get(body..end)
                .is_some_and(|digits| digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
            if is_token {
                return Some((start, end));
            }
            from = body;
        }
    });
    let (start, end) = places.min()?;
    Some((text.get(..start)?, text.get(start..end)?, text.get(end..)?))
}
