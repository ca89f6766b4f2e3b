//! Origins of the arguments of an action, as far as the harness can prove them (design 3.3).
//!
//! External content may have told a model which arguments to write. Two kinds of arguments are certainly not
//! invented: *owner values*, which stand in the owner's own words ([`crate::owner`]), and *field values*,
//! which are leaves of a structured result that the owner asked for. And the tools of a request are fixed
//! before it reads anything from outside: those used until then, and those that their calls name in `then`.
//!
//! Besides these there are freedoms that a strict home does not have ([`Origins::restrict_freedoms`]): phrases of the
//! owner's (`words`), values that they have designated (`designated`), and ids of objects that the agent has
//! made (`given`). Content that is sent to others is examined for any recipient: for links (`link`), for
//! secrets (`secret`), and for being one more message (`made`).

mod choice;
mod designated;
mod given;
mod link;
mod made;
mod mention;
mod reading;
mod secret;
mod text;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use unicode_normalization::UnicodeNormalization as _;
use writ_types::chat::{Field, ToolCall};

use crate::owner;
use crate::prepared::Sink;
use choice::Lists;
use designated::DesignationSources;
use given::GivenTexts;
use made::CallHistory;
pub use mention::MAX_TOLD_BYTES;
use mention::{ExternalTexts, WantedValue};
use text::fold_text;

/// The argument in which a call names the tools that come after it.
pub const THEN: &str = "then";
/// The most tools that one call names in [`THEN`].
pub const MAX_THEN: usize = 16;
/// The most field values that are known at once; what comes later is unknown, so it asks.
pub const MAX_KNOWN_FIELDS: usize = 20_000;
/// The largest whole number that says too little to direct anything: a page, a count.
const MAX_PLAIN_NUMBER: u64 = 1_000;
/// The most values of a call that are looked up to see whether it was composed; one with more counts as composed.
const MAX_LEAVES: usize = 64;
/// The most small numbers, truth values and nothings in a call that was not composed: many of them say as much as a text.
const MAX_PLAIN: usize = 4;

/// The possible origins of arguments, and the tools that may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// The owner's texts, in NFC, newest first.
    words: Vec<String>,
    /// The same, folded.
    folded: Vec<String>,
    /// Values that the owner has accepted as their own.
    endorsed: BTreeSet<String>,
    /// Other texts without external content, in NFC: memories.
    trusted: Vec<String>,
    fields: BTreeMap<String, BTreeSet<FieldSource>>,
    /// The lists of records among the results that the owner asked for.
    lists: Lists,
    tools: BTreeSet<String>,
    /// Servers that were given composed text after external content was read: one may return it as its own.
    spoiled: BTreeSet<String>,
    /// The composed texts that servers were given, where they can be recognised.
    given: GivenTexts,
    /// The tools that change something, as the owner has declared them.
    effects: BTreeSet<String>,
    /// The texts that the owner has named as the source of a value, of this request.
    sources: DesignationSources,
    /// Values in results under the name of a secret.
    secrets: BTreeSet<String>,
    /// The calls made for this request.
    done: CallHistory,
    /// Only exact owner values and field values count.
    is_narrow: bool,
    /// The servers with descriptions of tools that the model reads and the owner does not vouch for.
    tellers: BTreeSet<String>,
    /// The external texts: they may point at values.
    told: ExternalTexts,
    /// The model has read something that only the owner may be assumed to read, besides the newest request
    /// and results.
    confided: bool,
}

/// The fields that the owner lets arguments be taken from, by dotted path.
pub type Takes = BTreeMap<String, Vec<String>>;

/// The field of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FieldSource {
    /// The last name of its path.
    name: String,
    /// The server, or the tool, that returned it.
    giver: String,
    /// Only the owner may be assumed to read it.
    private: bool,
}

impl Origins {
    /// Nothing.
    pub const fn nothing() -> Self {
        Self {
            words: Vec::new(),
            folded: Vec::new(),
            endorsed: BTreeSet::new(),
            trusted: Vec::new(),
            fields: BTreeMap::new(),
            lists: Lists::nothing(),
            tools: BTreeSet::new(),
            spoiled: BTreeSet::new(),
            given: GivenTexts::nothing(),
            effects: BTreeSet::new(),
            sources: DesignationSources::nothing(),
            secrets: BTreeSet::new(),
            done: CallHistory::nothing(),
            is_narrow: false,
            tellers: BTreeSet::new(),
            told: ExternalTexts::nothing(),
            confided: false,
        }
    }

    /// Starts with the owner's texts, newest first.
    pub fn new(words: impl IntoIterator<Item = String>) -> Self {
        let words: Vec<String> = words.into_iter().map(|text| text.nfc().collect()).collect();
        let folded = words.iter().map(|text| fold_text(text)).collect();
        Self { words, folded, ..Self::default() }
    }

    /// Takes back the freedoms that a strict home does not have.
    pub fn restrict_freedoms(&mut self) {
        self.is_narrow = true;
    }

    /// Adds a tool of which the owner has declared that it changes something.
    pub fn declare_effect(&mut self, tool: String) {
        self.effects.insert(tool);
    }

    /// Adds values that the owner has endorsed: from then on they are as good as written.
    pub fn endorse_values(&mut self, values: impl IntoIterator<Item = String>) {
        self.endorsed.extend(values);
    }

    /// Adds texts without external content that are not the owner's exact words.
    pub fn trust_texts(&mut self, texts: impl IntoIterator<Item = String>) {
        self.trusted.extend(texts.into_iter().map(|text| text.nfc().collect::<String>()));
    }

    /// Notes that the model has read texts with unknown readers: memories, rules, notes.
    pub fn note_private_reading(&mut self) {
        self.confided = true;
    }

    /// Takes in what a model reads from outside besides its conversation: memories, subscriptions.
    pub fn note_external<'a>(&mut self, texts: impl IntoIterator<Item = &'a str>) {
        texts.into_iter().for_each(|text| self.told.add_text(text, None));
    }

    fn note_fields(&mut self, giver: &str, private: bool, fields: &[Field]) {
        if self.fields.len() < MAX_KNOWN_FIELDS {
            self.lists.add_result(giver, fields);
        }
        self.know_fields(giver, private, fields);
    }

    fn know_fields(&mut self, giver: &str, private: bool, fields: &[Field]) {
        for field in fields.iter().filter(|field| !self.given.has_value(giver, &field.value)) {
            if self.fields.len() >= MAX_KNOWN_FIELDS {
                return;
            }
            let known =
                FieldSource { name: name_of(&field.path).to_owned(), giver: giver.to_owned(), private };
            self.fields.entry(field.value.clone()).or_default().insert(known);
        }
    }

    /// Adds a tool that the owner has approved a call of in this session.
    pub fn approve_tool(&mut self, tool: String) {
        self.tools.insert(tool);
    }

    /// Returns true if a tool may be used after something was read from outside.
    pub fn offers_tool(&self, tool: &str) -> bool {
        self.tools.contains(tool)
    }

    /// Returns true if a value stands in the owner's own words, or was endorsed.
    pub fn is_owners(&self, value: &str) -> bool {
        self.endorsed.contains(value)
            || self
                .words
                .iter()
                .any(|text| owner::holds_value(text, value) || owner::holds_number(text, value))
            || self.is_phrase(value)
    }

    /// Adds a server with descriptions of tools that the model reads and the owner does not vouch for.
    pub fn add_unvouched_server(&mut self, server: &str) {
        self.tellers.insert(server.to_owned());
    }

    /// Returns true if the model reads such descriptions of a server other than the tool's own.
    pub fn reads_unvouched_server(&self, tool: &str) -> bool {
        self.tellers.iter().any(|server| server != giver_of(tool))
    }

    /// Returns true if a value is that of a field that may go to `tool` as the argument `name`: it stood
    /// under the same name, or both are ids, or the owner has configured so. A private value goes back only
    /// to its own server, or where the owner lets it go by name.
    fn is_field(&self, tool: &str, name: &str, value: &str, from: &[&String]) -> bool {
        self.fields.get(value).into_iter().flatten().any(|known| {
            let is_own = known.giver == giver_of(tool);
            let is_taken = from.iter().any(|field| match field.split_once('.') {
                Some((server, field)) => known.giver == server && known.name == field,
                None => is_own && known.name == **field,
            });
            let fits = known.name == name || (is_id(&known.name) && is_id(name));
            // A configuration that names another server's field also permits to pass it on.
            is_taken || (fits && (!known.private || is_own))
        })
    }

    /// Returns true if there are sinks, and every one is the owner's or a field's.
    pub fn knows_sinks(&self, tool: &str, sinks: &[Sink]) -> bool {
        let is_known = |sink: &Sink| {
            self.is_owners(&sink.value)
                || self.is_field(tool, name_of(&sink.argument), &sink.value, &[])
                || self.is_designated(&sink.value)
        };
        !sinks.is_empty() && sinks.iter().all(is_known)
    }

    /// Returns true if a value stands in a text without external content.
    fn is_trusted(&self, value: &str) -> bool {
        self.is_owners(value) || self.trusted.iter().any(|text| owner::holds_value(text, value))
    }

    /// The first sink that is neither the owner's, nor of an untainted source, nor a field value.
    pub fn composed_sink<'a>(&self, tool: &str, sinks: &'a [Sink], takes: &Takes) -> Option<&'a Sink> {
        sinks.iter().find(|sink| {
            let from = taken_from(takes, &sink.argument);
            !self.is_trusted(&sink.value)
                && !self.is_field(tool, name_of(&sink.argument), &sink.value, &from)
                && !self.is_designated(&sink.value)
        })
    }

    /// Finds the first sink that is not the owner's, nor of an untainted source, and that an external text
    /// names elsewhere than in its own record: the author of that text may have chosen it.
    pub fn sink_pointed_at<'a>(&self, sinks: &'a [Sink], takes: &Takes) -> Option<&'a Sink> {
        sinks.iter().find(|sink| {
            // A designated value stands in an external text by the owner's own words.
            let is_owners = self.is_trusted(&sink.value) || self.is_designated(&sink.value);
            !is_owners && self.with_wanted(sink, takes, |wanted| self.told.points_at(wanted))
        })
    }

    /// The first sink within `named` that is neither the owner's nor of an untainted source, and that is of a record beside
    /// those that the owner's newest words name: with the word of theirs that others have.
    pub fn sink_beside<'a>(
        &self,
        sinks: &'a [Sink],
        takes: &Takes,
        named: &[String],
    ) -> Option<(&'a Sink, String)> {
        let request = self.words.first()?;
        let counts = |sink: &&Sink| named.iter().any(|path| is_within(&sink.argument, path));
        sinks.iter().filter(counts).filter(|sink| !self.is_trusted(&sink.value)).find_map(|sink| {
            let word = self.with_wanted(sink, takes, |wanted| self.lists.leaves_out(request, wanted))?;
            Some((sink, word))
        })
    }

    /// Looks for where the value of a sink may have been taken from.
    fn with_wanted<T>(&self, sink: &Sink, takes: &Takes, look: impl FnOnce(&WantedValue<'_>) -> T) -> T {
        let from = taken_from(takes, &sink.argument);
        let argument = name_of(&sink.argument);
        let fits = |name: &str| {
            let is_taken = from.iter().any(|field| field.rsplit('.').next() == Some(name));
            is_taken || name == argument || (is_id(name) && is_id(argument))
        };
        let is_of = |giver: &str| {
            self.fields.get(&sink.value).into_iter().flatten().any(|known| known.giver == giver)
        };
        look(&WantedValue { value: &sink.value, fits: &fits, is_of: &is_of })
    }

    /// Finds the first sink that is neither the owner's nor of an untainted source, of those within `whom`,
    /// or of all where that is empty.
    pub fn foreign_sink<'a>(&self, sinks: &'a [Sink], whom: &[String]) -> Option<&'a Sink> {
        let counts =
            |sink: &&Sink| whom.is_empty() || whom.iter().any(|path| is_within(&sink.argument, path));
        sinks.iter().filter(counts).find(|sink| !self.is_trusted(&sink.value))
    }

    /// As [`Self::foreign_sink`], except for `readers`: those who can read everything that the model has read
    /// besides the request. The readers of earlier texts of the owner are unknown.
    pub fn unread_recipient<'a>(
        &self,
        sinks: &'a [Sink],
        whom: &[String],
        readers: &BTreeSet<String>,
    ) -> Option<&'a Sink> {
        let knows = self.words.len() <= 1 && !self.confided;
        let counts =
            |sink: &&Sink| whom.is_empty() || whom.iter().any(|path| is_within(&sink.argument, path));
        let others = sinks.iter().filter(counts).filter(|sink| !self.is_trusted(&sink.value));
        // A recipient whom a source names may read that source, if nothing else was read.
        let may_be_told =
            |value: &str| readers.contains(value) || (!self.sources.has_others && self.is_designated(value));
        others.into_iter().find(|sink| !(knows && may_be_told(&sink.value)))
    }

    /// Returns true if nothing in a call was composed, so that it returns content that the owner asked for.
    fn is_taken_over(&self, call: &ToolCall) -> bool {
        let Some(arguments) = call.arguments.as_object() else { return false };
        let mut left = LookupBudget { leaves: MAX_LEAVES, plain: MAX_PLAIN };
        arguments
            .iter()
            .all(|(name, value)| name == THEN || self.is_known_value(&call.name, name, value, &mut left))
    }

    fn is_known_value(&self, tool: &str, name: &str, value: &Value, left: &mut LookupBudget) -> bool {
        let is_known = |text: &str| {
            self.is_owners(text)
                || self.is_of_owners_words(text)
                || self.is_field(tool, name, text, &[])
                || self.is_designated(text)
        };
        match value {
            Value::Null | Value::Bool(_) => left.take_plain(),
            Value::Number(number) => {
                let is_plain = number.as_u64().is_some_and(|n| n <= MAX_PLAIN_NUMBER);
                left.take_leaf() && (is_known(&number.to_string()) || (is_plain && left.take_plain()))
            }
            Value::String(text) => left.take_leaf() && is_known(text),
            Value::Array(items) => items.iter().all(|item| self.is_known_value(tool, name, item, left)),
            // A name can be composed as a value can.
            Value::Object(map) => map.iter().all(|(inner, item)| {
                left.take_leaf() && self.is_owners(inner) && self.is_known_value(tool, inner, item, left)
            }),
        }
    }
}

/// The remaining work for one call.
struct LookupBudget {
    leaves: usize,
    plain: usize,
}

impl LookupBudget {
    const fn take_leaf(&mut self) -> bool {
        let is_left = self.leaves > 0;
        self.leaves = self.leaves.saturating_sub(1);
        is_left
    }

    const fn take_plain(&mut self) -> bool {
        let is_left = self.plain > 0;
        self.plain = self.plain.saturating_sub(1);
        is_left
    }
}

/// Returns the origin of a tool's answers: its server, or the tool.
fn giver_of(tool: &str) -> &str {
    tool.split_once("__").map_or(tool, |(server, _)| server)
}

/// The last name of a path, of a field (`/a/0/b`) or of an argument (`a.0.b`); numbers of places are no names.
fn name_of(path: &str) -> &str {
    let mut names = path.rsplit(['/', '.']).filter(|name| !name.bytes().all(|byte| byte.is_ascii_digit()));
    names.next().unwrap_or(path)
}

/// The fields that the owner lets an argument be taken from.
fn taken_from<'a>(takes: &'a Takes, argument: &str) -> Vec<&'a String> {
    takes.iter().filter(|(path, _)| is_within(argument, path)).flat_map(|(_, from)| from).collect()
}

/// Returns true if an argument is the one that a dotted path names, or lies below it; places in lists do not
/// count.
pub fn is_within(argument: &str, path: &str) -> bool {
    let mut names = argument.split('.');
    let first = names.next().into_iter();
    let mut names = first.chain(names.filter(|name| !name.bytes().all(|byte| byte.is_ascii_digit())));
    path.split('.').all(|wanted| names.next() == Some(wanted))
}

/// Returns true if a name is that of an id: `id`, `mail_id`, `mailId`, `ids`.
fn is_id(name: &str) -> bool {
    let name = name.strip_suffix('s').unwrap_or(name);
    name.eq_ignore_ascii_case("id") || name.ends_with("_id") || name.ends_with("Id") || name.ends_with("ID")
}

#[cfg(test)]
mod tests;
