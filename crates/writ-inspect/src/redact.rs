//! The redactor: removes secrets of the home, and everything that has the form of a credential, from texts.
//!
//! It looks for two things, each in time that grows with the text alone: the exact values of this home's
//! secrets, in every encoding that programs commonly print (`forms`), and the published formats of
//! credentials (`formats`, the one table). A match is masked with the secret's reference or the format's
//! name, never with a part of it. It does not find a part of a secret, a secret shorter than
//! [`MIN_VALUE_BYTES`], or one that was transformed in another way, such as with other characters between its
//! own. It is the last of several walls and best effort: a sandbox gets no secret that must not be read.
//!
//! A [`Clean`] text is made by a [`Redactor`] alone, so a function that takes one never gets an unredacted
//! text.

mod formats;

mod forms;

mod guard;

mod mask;

mod stream;

mod values;

mod watch;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::{Arc, PoisonError, RwLock};

use secrecy::SecretString;
use serde_json::Value;
use writ_types::chat::{ChatMessage, ModelReply, ModelRequest, Part, Reasoning};
use writ_types::error::Report;

pub use guard::Guarded;
pub use mask::has_mask;
pub use stream::MaskStream;
pub use watch::{ByteStream, SecretWatch};

use mask::{MaskSpan, What};
use values::Values;

/// The shortest value that is looked for, in bytes. Shorter ones are words and numbers that stand everywhere:
/// masking them would break more than it hides, and they are no good secrets.
pub const MIN_VALUE_BYTES: usize = 8;

/// A secret of this home, as the redactor gets it.
#[derive(Clone, Debug)]
pub struct KnownSecret {
    /// Its reference, such as `secret:mail`; it stands in masks, so it must not be secret itself.
    pub name: String,
    /// Its value.
    pub value: SecretString,
}

/// Masks secrets in texts. Clones share what is known: what one learns, all look for from then on.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Arc<RwLock<Arc<Values>>>,
}

impl Redactor {
    /// Looks for these secrets from now on, and for no others; formats are always looked for.
    pub fn learn_secrets(&self, secrets: &[KnownSecret]) {
        // The values are built outside the lock, since making all their forms takes time, and readers wait
        // for the lock.
        let values = Arc::new(Values::new(secrets));
        // A poisoned lock still guards a whole value: redaction goes on rather than stop.
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = values;
    }

    fn values(&self) -> Arc<Values> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Finds the spans to mask, in order, without overlaps.
    fn find_spans(&self, text: &str) -> Vec<MaskSpan> {
        // Values of this home are found in any encoding, credentials of others by their published format.
        let mut spans = self.values().find_values(text.as_bytes());
        spans.extend(formats::find_credentials(text));
        mask::merge_spans(spans)
    }

    /// A text in which everything that was found is masked.
    pub fn mask_text<'text>(&self, text: &'text str) -> Cow<'text, str> {
        mask::apply_masks(text, &self.find_spans(text))
    }

    /// A text in which known secrets are masked and formats are left: for what is performed as it stands, which a mask
    /// would change.
    pub fn mask_values<'text>(&self, text: &'text str) -> Cow<'text, str> {
        mask::apply_masks(text, &mask::merge_spans(self.values().find_values(text.as_bytes())))
    }

    /// A text that holds nothing that is to be masked, and what was masked in it.
    pub fn clean_text(&self, text: impl Into<String>) -> Clean {
        let text = text.into();
        let spans = self.find_spans(&text);
        if spans.is_empty() {
            return Clean { text, secrets: BTreeSet::new() };
        }
        let secrets = spans.iter().filter_map(MaskSpan::secret_name).map(ToString::to_string).collect();
        Clean { text: mask::apply_masks(&text, &spans).into_owned(), secrets }
    }

    /// As [`Self::clean_text`], in place; returns the references of the secrets that were masked.
    pub fn scrub_text(&self, text: &mut String) -> BTreeSet<String> {
        let clean = self.clean_text(std::mem::take(text));
        *text = clean.text;
        clean.secrets
    }

    /// As [`Self::scrub_text`], for a text with its end cut off: a secret that is cut there is masked, too.
    pub fn scrub_cut(&self, text: &mut String) -> BTreeSet<String> {
        let mut spans = self.find_spans(text);
        spans.extend(self.values().begun_at_end(text));
        let spans = mask::merge_spans(spans);
        let masked = mask::apply_masks(text, &spans).into_owned();
        *text = masked;
        spans.iter().filter_map(MaskSpan::secret_name).map(ToString::to_string).collect()
    }

    /// Masks the rest of a secret at the start of a text with its beginning cut off.
    pub fn scrub_begun(&self, text: &mut String) -> BTreeSet<String> {
        let spans: Vec<MaskSpan> = self.values().ended_at_start(text).into_iter().collect();
        let masked = mask::apply_masks(text, &spans).into_owned();
        *text = masked;
        spans.iter().filter_map(MaskSpan::secret_name).map(ToString::to_string).collect()
    }

    /// Returns the references of the secrets with values in a text.
    pub fn secrets_in(&self, text: &str) -> BTreeSet<String> {
        self.values()
            .find_values(text.as_bytes())
            .iter()
            .filter_map(MaskSpan::secret_name)
            .map(ToString::to_string)
            .collect()
    }

    /// Masks known secrets in every string of a JSON value, keys included.
    pub fn mask_json(&self, value: &mut Value) {
        self.mask_json_at(value, 0);
    }

    fn mask_json_at(&self, value: &mut Value, depth: usize) {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => {
                // A borrowed text is the unchanged one: only a masked text is written back.
                if let Cow::Owned(masked) = self.mask_values(text) {
                    *text = masked;
                }
            }
            // The JSON parser refuses deeper nesting, so nothing is lost here.
            Value::Array(_) | Value::Object(_) if depth > MAX_JSON_DEPTH => *value = Value::Null,
            Value::Array(items) => {
                items.iter_mut().for_each(|item| self.mask_json_at(item, depth.saturating_add(1)))
            }
            Value::Object(fields) => {
                // Keys are data of the model or of a server as well as values are, so a secret can stand in
                // one.
                if fields.keys().any(|key| matches!(self.mask_values(key), Cow::Owned(_))) {
                    // Two keys may become the same by masking; the later one then replaces the earlier.
                    let old = std::mem::take(fields);
                    fields.extend(old.into_iter().map(|(key, v)| (self.mask_values(&key).into_owned(), v)));
                }
                fields.values_mut().for_each(|field| self.mask_json_at(field, depth.saturating_add(1)));
            }
        }
    }

    /// Masks a reply of a model. In the arguments of its calls only secrets of the home are masked, since
    /// they are performed as they stand.
    pub fn mask_reply(&self, reply: &mut ModelReply) {
        self.scrub_text(&mut reply.text);
        self.scrub_text(&mut reply.model);
        // Its provider refuses a piece of it as well as a changed one.
        if reply.reasoning.iter().any(|piece| self.leaks_secret(piece)) {
            reply.reasoning.clear();
        }
        for call in &mut reply.calls {
            self.mask_json(&mut call.arguments);
            for name in [&mut call.id, &mut call.name] {
                self.scrub_text(name);
            }
        }
    }

    /// Returns true if a secret stands in reasoning, which cannot be masked: it goes back as it came, or not at all. Patterns are
    /// not looked for, since a signature looks like a key.
    fn leaks_secret(&self, piece: &Reasoning) -> bool {
        piece.any_text(&|text| !self.secrets_in(text).is_empty())
    }

    /// Masks a request to a model: everything was masked when it came in, but a secret may have been added
    /// since.
    pub fn mask_request(&self, request: &mut ModelRequest) {
        self.scrub_text(&mut request.system);
        // Most messages hold nothing to mask. They are shared with the history, and only a changed one is
        // copied.
        for message in &mut request.messages {
            if self.is_unclean(message) {
                self.mask_message(Arc::make_mut(message));
            }
        }
    }

    fn is_unclean(&self, message: &ChatMessage) -> bool {
        message.parts.iter().any(|part| match part {
            Part::Text { text } => !self.find_spans(text).is_empty(),
            Part::Result(result) => !self.find_spans(&result.text).is_empty(),
            Part::Call(call) => {
                // The masking of JSON rebuilds a value, so a copy is compared with the original.
                let mut arguments = call.arguments.clone();
                self.mask_json(&mut arguments);
                arguments != call.arguments
            }
            Part::Reasoning(piece) => self.leaks_secret(piece),
            Part::File(_) => false,
        })
    }

    fn mask_message(&self, message: &mut ChatMessage) {
        let leaks = |part: &Part| matches!(part, Part::Reasoning(piece) if self.leaks_secret(piece));
        // All reasoning of a message goes: a provider refuses one piece without its neighbours.
        if message.parts.iter().any(leaks) {
            message.parts.retain(|part| !matches!(part, Part::Reasoning(_)));
        }
        for part in &mut message.parts {
            match part {
                Part::Text { text } => drop(self.scrub_text(text)),
                Part::Result(result) => drop(self.scrub_text(&mut result.text)),
                Part::Call(call) => self.mask_json(&mut call.arguments),
                Part::Reasoning(_) | Part::File(_) => {}
            }
        }
    }

    /// Masks what an error says, inside and outside.
    pub fn mask_report(&self, mut report: Report) -> Report {
        for text in [&mut report.outside, &mut report.inside, &mut report.hint] {
            self.scrub_text(text);
        }
        report
    }

    /// Judges what a person or program says to the agent, before it is stored.
    pub fn judge_message(&self, text: &str) -> Guarded {
        guard::judge_spans(text, &self.find_spans(text))
    }

    /// Masks a text that comes in pieces.
    pub fn mask_stream(&self) -> MaskStream {
        MaskStream::new(self.clone())
    }
}

/// Finds credentials in a published format: their ranges, and the names of the formats.
pub fn formats_in(text: &str) -> Vec<(Range<usize>, &'static str)> {
    let named = |span: MaskSpan| match span.what {
        What::Format(name) => Some((span.at, name)),
        What::Secret(_) => None,
    };
    formats::find_credentials(text).into_iter().filter_map(named).collect()
}

/// The depth to which JSON is masked; `serde_json` parses no deeper.
const MAX_JSON_DEPTH: usize = 128;

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor")
    }
}

/// A text that a [`Redactor`] has masked, or that the harness has written itself.
///
/// ```compile_fail,E0451
/// let _ = writ_inspect::redact::Clean { text: "sk-ant-...".to_owned(), secrets: Default::default() };
/// ```
///
/// ```compile_fail,E0277
/// let _: writ_inspect::redact::Clean = serde_json::from_str("\"text\"").unwrap();
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Clean {
    text: String,
    secrets: BTreeSet<String>,
}

impl Clean {
    /// A text of the program itself.
    pub fn fixed_text(text: &'static str) -> Self {
        Self { text: text.to_owned(), secrets: BTreeSet::new() }
    }

    /// The references of the secrets that were masked in it.
    pub const fn masked_secrets(&self) -> &BTreeSet<String> {
        &self.secrets
    }

    /// The same text, with what was masked in what it was made from.
    #[must_use]
    pub fn with_masked(mut self, masked: BTreeSet<String>) -> Self {
        self.secrets.extend(masked);
        self
    }

    /// The text.
    pub fn into_string(self) -> String {
        self.text
    }
}

impl Deref for Clean {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Clean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Clean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl PartialEq<str> for Clean {
    fn eq(&self, other: &str) -> bool {
        self.text == other
    }
}

impl PartialEq<&str> for Clean {
    fn eq(&self, other: &&str) -> bool {
        self.text == *other
    }
}

impl PartialEq<String> for Clean {
    fn eq(&self, other: &String) -> bool {
        self.text == *other
    }
}

#[cfg(test)]
mod tests;
