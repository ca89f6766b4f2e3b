//! Trust in values, and their sources.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::EntrySeq;

/// Trust in a value. Joining two values takes the less trusted of both, so the
/// order of the variants is the order of distrust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Taint {
    /// Written by the owner, proven.
    Owner,
    /// Written by a person with a proven identity who is not the owner.
    Auth,
    /// Anything else: files, command output, web pages, mail, other programs.
    External,
}

impl Taint {
    /// The less trusted of both.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        // The variants are ordered from trusted to untrusted.
        self.max(other)
    }

    /// The name used in records and on screens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Auth => "auth",
            Self::External => "external",
        }
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The secrecy of a value, and the clearance of a recipient: least first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Clearance {
    /// Everybody may read it.
    Public,
    /// The owner's own affairs. The default clearance of recipients.
    #[default]
    Personal,
    /// Secrets: for models on the owner's own machines.
    Secret,
}

impl fmt::Display for Clearance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Personal => "personal",
            Self::Secret => "secret",
        })
    }
}

/// The most sources that a [`Label`] names; past it, [`Label::truncated`] is set.
///
/// Taint itself is never reduced: it is joined before the list is cut.
pub const MAX_SOURCES: usize = 32;

/// The most persons that a [`Label`] names as readers; of more, some are left out, who then count as strangers.
pub const MAX_READERS: usize = 64;

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Source {
    /// The producer: `message`, `model`, or a tool's name.
    pub origin: String,
    /// The resource: a path, a command's first word, a host, a memory id.
    pub detail: String,
    /// The ledger entry that recorded it, when it has one already.
    pub entry: Option<EntrySeq>,
}

/// The harness's knowledge about a value. Computed by the harness, never read from a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// Its trust level.
    pub taint: Taint,
    /// Its sources; at most [`MAX_SOURCES`]. Shared: values derived from it carry the same ones.
    pub sources: Arc<BTreeSet<Source>>,
    /// True if sources were left out.
    pub truncated: bool,
    /// True if it depends on content from outside the sandbox: after that the tools of a request are fixed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
    /// True if it depends on external content that only the owner may be assumed to read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    /// The people besides the owner who can read all that is private in it, as results name them; at most
    /// [`MAX_READERS`].
    #[serde(default, skip_serializing_if = "is_nobody")]
    pub readers: Arc<BTreeSet<String>>,
    /// True if it depends on text that the owner has marked secret: only models that are cleared for secrets
    /// receive it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
}

fn is_nobody(readers: &BTreeSet<String>) -> bool {
    readers.is_empty()
}

impl Label {
    /// Returns the clearance that a model needs to receive it.
    pub const fn clearance(&self) -> Clearance {
        // Secret is stricter than private.
        match (self.secret, self.private) {
            (true, _) => Clearance::Secret,
            (false, true) => Clearance::Personal,
            (false, false) => Clearance::Public,
        }
    }

    /// Creates a label without sources. External content counts as from outside and private, unless the
    /// caller knows better.
    pub fn new(taint: Taint) -> Self {
        // External text may hold orders and may be confidential: both until it is known otherwise.
        let external = taint == Taint::External;
        Self {
            taint,
            sources: Arc::default(),
            truncated: false,
            outside: external,
            private: external,
            readers: Arc::default(),
            secret: false,
        }
    }

    /// A label with one source; otherwise as [`Self::new`].
    pub fn from_source(taint: Taint, source: Source) -> Self {
        Self { sources: Arc::new(BTreeSet::from([source])), ..Self::new(taint) }
    }

    /// Marks content of a sandbox without a network, or of its work folder, as from inside: a tool that stays
    /// inside has read it.
    #[must_use]
    pub fn mark_inside(mut self) -> Self {
        self.outside = false;
        self
    }

    /// The same for what anybody may read.
    #[must_use]
    pub fn mark_public(mut self) -> Self {
        self.private = false;
        self
    }

    /// The same for what these persons can read, too.
    #[must_use]
    pub fn read_by(mut self, readers: impl IntoIterator<Item = String>) -> Self {
        self.readers = Arc::new(readers.into_iter().take(MAX_READERS).collect());
        self
    }

    /// Joins another label into this one.
    pub fn join(&mut self, other: &Self) {
        // Every part of a label can only become stricter.
        self.taint = self.taint.join(other.taint);
        self.outside |= other.outside;
        self.join_readers(other);
        self.secret |= other.secret;
        self.truncated |= other.truncated;
        // The list is full: further sources cannot be named.
        if self.truncated && self.sources.len() >= MAX_SOURCES {
            return;
        }
        // A label that was read may name more than one that was made.
        // Sharing the set is the usual case and costs nothing.
        if self.sources.is_empty() && other.sources.len() <= MAX_SOURCES {
            self.sources = Arc::clone(&other.sources);
            return;
        }
        for source in &*other.sources {
            if self.sources.contains(source) {
                continue;
            }
            if self.sources.len() >= MAX_SOURCES {
                self.truncated = true;
                break;
            }
            Arc::make_mut(&mut self.sources).insert(source.clone());
        }
    }

    /// Keeps the readers of both: content that is not private excludes no reader.
    fn join_readers(&mut self, other: &Self) {
        match (self.private, other.private) {
            (_, false) => {}
            // Only one of them restricts the readers, so its list is the joint one.
            (false, true) => self.readers = Arc::clone(&other.readers),
            (true, true) if self.readers == other.readers => {}
            (true, true) => {
                // Only people who can read both can read the whole.
                self.readers = Arc::new(self.readers.intersection(&other.readers).cloned().collect());
            }
        }
        self.private |= other.private;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SIL-167 (in part: what is combined)
    #[test]
    fn joining_takes_the_less_trusted() {
        assert_eq!(Taint::Owner.join(Taint::External), Taint::External);
        assert_eq!(Taint::Auth.join(Taint::Owner), Taint::Auth);
        let mut label = Label::new(Taint::Owner);
        for n in 0..=MAX_SOURCES {
            let source = Source { origin: "file_read".into(), detail: n.to_string(), entry: None };
            label.join(&Label::from_source(Taint::External, source));
        }
        assert_eq!(label.taint, Taint::External);
        assert_eq!(label.sources.len(), MAX_SOURCES);
        assert!(label.truncated);
    }

    #[test]
    fn what_is_external_is_from_outside_and_private_unless_it_is_known_not_to_be() {
        let mut label = Label::new(Taint::Owner);
        assert_eq!((label.outside, label.private), (false, false));
        label.join(&Label::new(Taint::External).mark_inside().mark_public());
        assert_eq!((label.taint, label.outside, label.private), (Taint::External, false, false));
        label.join(&Label::new(Taint::External).mark_public());
        assert_eq!((label.outside, label.private), (true, false));
        label.join(&Label::new(Taint::External).mark_inside());
        assert_eq!((label.outside, label.private), (true, true));
        let text = serde_json::to_string(&label).expect("writes");
        assert_eq!(serde_json::from_str::<Label>(&text).expect("reads"), label);
    }

    /// Rows: SIL-166 (in part: what is stored)
    #[test]
    fn a_record_without_a_level_fails_to_load() {
        assert!(serde_json::from_str::<Label>(r#"{"sources":[],"truncated":false}"#).is_err());
    }

    #[test]
    fn readers_are_those_who_can_read_all_of_it() {
        let read_by =
            |names: &[&str]| Label::new(Taint::External).read_by(names.iter().map(|n| (*n).to_owned()));
        let joined = |labels: &[Label]| {
            let mut label = Label::new(Taint::Owner);
            labels.iter().for_each(|other| label.join(other));
            label.readers.iter().cloned().collect::<Vec<_>>().join(" ")
        };
        let (ann, both) = (read_by(&["ann"]), read_by(&["ann", "bob"]));
        let public = Label::new(Taint::External).mark_public();
        assert_eq!(
            joined(&[public.clone(), both.clone(), public]),
            "ann bob",
            "what anybody may read excludes nobody"
        );
        assert_eq!(joined(&[both.clone(), ann.clone()]), "ann");
        assert_eq!(joined(&[ann.clone(), both.clone()]), "ann");
        assert_eq!(joined(&[ann.clone(), read_by(&["bob"])]), "", "nobody has read both");
        assert_eq!(
            joined(&[both, Label::new(Taint::External), ann.clone()]),
            "",
            "what the owner alone can read"
        );

        let many = Label::new(Taint::External).read_by((0..=MAX_READERS).map(|n| n.to_string()));
        assert_eq!(many.readers.len(), MAX_READERS);
        let written = serde_json::to_string(&ann).expect("JSON");
        assert_eq!(serde_json::from_str::<Label>(&written).expect("a label"), ann);
        let before: Label =
            serde_json::from_str(&written.replace(r#","readers":["ann"]"#, "")).expect("an older label");
        assert_eq!(before, Label::new(Taint::External));
    }
}
