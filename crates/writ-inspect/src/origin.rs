//! Origins of the arguments of an action, as far as the harness can prove them (design 3.3).
//!
//! External content may have chosen the arguments that a model writes. Two kinds of arguments are certainly not
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
mod fields;
mod given;
mod link;
mod made;
mod mention;
mod reading;
mod secret;
mod slots;
mod text;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use writ_types::chat::{Field, ToolCall};

use crate::prepared::Sink;
use choice::Lists;
use designated::DesignationSources;
use fields::KnownFields;
pub use fields::MAX_KNOWN_FIELDS;
use given::GivenTexts;
use made::CallHistory;
pub use mention::MAX_TOLD_BYTES;
use mention::{ExternalTexts, WantedValue};
use secret::SecretValues;
use slots::SlotResults;
use words::OwnerTexts;

/// The argument in which a call names the tools that come after it.
pub const THEN: &str = "then";
/// The most tools that one call names in [`THEN`].
pub const MAX_THEN: usize = 16;
/// The largest whole number that says too little to direct anything: a page, a count.
const MAX_PLAIN_NUMBER: u64 = 1_000;
/// The most values of a call that are looked up to see whether it was composed; one with more counts as composed.
const MAX_LEAVES: usize = 64;
/// The most small numbers, truth values and nothings in a call that was not composed: many of them say as much as a text.
const MAX_PLAIN: usize = 4;

/// The possible origins of arguments, and the tools that may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    owner: OwnerTexts,
    fields: KnownFields,
    /// The lists of records among the results that the owner asked for.
    lists: Lists,
    tools: BTreeSet<String>,
    /// Servers that were given composed text after external content was read: one may return it as its own.
    spoiled: BTreeSet<String>,
    /// The composed texts that servers were given, where they can be recognised.
    given: GivenTexts,
    /// The tools that change something, as the owner has declared them.
    effects: BTreeSet<String>,
    /// The texts that the owner's request names as the source of a value.
    sources: DesignationSources,
    secrets: SecretValues,
    /// The results that slots of approved plans may take values from.
    results: SlotResults,
    /// The calls made for this request.
    done: CallHistory,
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

impl Origins {
    /// Nothing.
    pub const fn nothing() -> Self {
        Self {
            owner: OwnerTexts::nothing(),
            fields: KnownFields::nothing(),
            lists: Lists::nothing(),
            tools: BTreeSet::new(),
            spoiled: BTreeSet::new(),
            given: GivenTexts::nothing(),
            effects: BTreeSet::new(),
            sources: DesignationSources::nothing(),
            secrets: SecretValues::nothing(),
            results: SlotResults::nothing(),
            done: CallHistory::nothing(),
            tellers: BTreeSet::new(),
            told: ExternalTexts::nothing(),
            confided: false,
        }
    }

    /// Starts with the owner's texts, newest first.
    pub fn new(words: impl IntoIterator<Item = String>) -> Self {
        Self { owner: OwnerTexts::new(words), ..Self::default() }
    }

    /// Accepts only the origins of a strict home: exact values of the owner.
    pub fn restrict_freedoms(&mut self) {
        self.owner.is_narrow = true;
    }

    /// Adds a tool of which the owner has declared that it changes something.
    pub fn declare_effect(&mut self, tool: String) {
        self.effects.insert(tool);
    }

    /// Adds values that the owner has endorsed: they count as if the owner had written them.
    pub fn endorse_values(&mut self, values: impl IntoIterator<Item = String>) {
        self.owner.endorse_values(values);
    }

    /// Adds texts without external content that are not the owner's exact words.
    pub fn trust_texts(&mut self, texts: impl IntoIterator<Item = String>) {
        self.owner.trust_texts(texts);
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
        // Lists share the bound of fields, so that a long conversation cannot grow without end.
        if !self.fields.is_full() {
            self.lists.add_result(giver, fields);
        }
        self.fields.add_fields(giver, private, fields, &self.given);
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
        self.owner.has_value(value)
    }

    /// Adds a server with descriptions of tools that the model reads and the owner does not vouch for.
    pub fn add_unvouched_server(&mut self, server: &str) {
        self.tellers.insert(server.to_owned());
    }

    /// Returns true if the model reads such descriptions of a server other than the tool's own.
    pub fn reads_unvouched_server(&self, tool: &str) -> bool {
        self.tellers.iter().any(|server| server != giver_of(tool))
    }

    /// Returns true if there are sinks, and each is the owner's value, a field value, or a value that the owner designated.
    pub fn knows_sinks(&self, tool: &str, sinks: &[Sink]) -> bool {
        let is_known = |sink: &Sink| {
            self.is_owners(&sink.value)
                || self.fields.may_go(tool, name_of(&sink.argument), &sink.value, &[])
                || self.is_designated(&sink.value)
        };
        !sinks.is_empty() && sinks.iter().all(is_known)
    }

    /// Returns true if the owner has designated a value by its source and its kind, as it is the only one.
    pub fn is_designated(&self, value: &str) -> bool {
        self.sources.designate(&self.owner, &self.given, value)
    }

    /// Returns true if a tool was used for this request with the same recipients, places and objects, and
    /// with other content. An identical call is handled elsewhere (`docs/guides/mcp.md`).
    pub fn repeats_call(&self, tool: &str, arguments: &Value, sinks: &[Sink]) -> bool {
        self.done.repeats_call(tool, arguments, sinks)
    }

    /// Returns true if a call contains a secret of a result.
    pub fn tells_secret(&self, arguments: &Value) -> bool {
        self.secrets.stand_in(arguments)
    }

    /// Finds the first link in a call that is not from the owner, an untainted text or a designation, and is not a whole value
    /// that the owner asked for and that no other text points at. Values of sinks are judged as sinks.
    pub fn strange_link(&self, arguments: &Value, sinks: &[Sink]) -> Option<String> {
        link::first_strange(arguments, sinks, |link| {
            self.owner.is_trusted(link) || self.is_designated(link) || self.is_whole_value(link)
        })
    }

    /// Returns true if a text is a whole value that the owner asked for, and no other text points at it.
    fn is_whole_value(&self, value: &str) -> bool {
        // A value is one of many in a result; a text that names it may have chosen it.
        let is_free = |wanted: &WantedValue<'_>| {
            !self.told.points_at(wanted) && self.lists.leaves_out(self.owner.request(), wanted).is_none()
        };
        self.fields.with_known(value, is_free).unwrap_or(false)
    }

    /// Returns true if every text in a call is a time, has only words of the owner's newest text besides those too short to say anything, or is
    /// a whole value that they asked for.
    pub fn asks_for(&self, arguments: &Value) -> bool {
        words::every_text(arguments, &|text| {
            words::is_time(text) || self.owner.is_in_request(text) || self.is_whole_value(text)
        })
    }

    /// Finds the first sink that is not the owner's value, from an untainted text, a field value or a designated value.
    pub fn composed_sink<'a>(&self, tool: &str, sinks: &'a [Sink], takes: &Takes) -> Option<&'a Sink> {
        sinks.iter().find(|sink| {
            let from = taken_from(takes, &sink.argument);
            !self.owner.is_trusted(&sink.value)
                && !self.fields.may_go(tool, name_of(&sink.argument), &sink.value, &from)
                && !self.is_designated(&sink.value)
        })
    }

    /// Finds the first sink that is not the owner's, nor of an untainted source, and that an external text
    /// names elsewhere than in its own record: the author of that text may have chosen it.
    pub fn sink_pointed_at<'a>(&self, sinks: &'a [Sink], takes: &Takes) -> Option<&'a Sink> {
        sinks.iter().find(|sink| {
            // A designated value stands in an external text by the owner's own words.
            let is_owners = self.owner.is_trusted(&sink.value) || self.is_designated(&sink.value);
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
        let request = self.owner.request();
        // Only the arguments that the owner's file names are compared with records: others name something
        // new.
        let counts = |sink: &&Sink| named.iter().any(|path| is_within(&sink.argument, path));
        sinks.iter().filter(counts).filter(|sink| !self.owner.is_trusted(&sink.value)).find_map(|sink| {
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
        let is_of = |giver: &str| self.fields.is_from(&sink.value, giver);
        look(&WantedValue { value: &sink.value, fits: &fits, is_of: &is_of })
    }

    /// Finds the first sink that is neither the owner's nor of an untainted source, of those within `whom`,
    /// or of all where that is empty.
    pub fn foreign_sink<'a>(&self, sinks: &'a [Sink], whom: &[String]) -> Option<&'a Sink> {
        let counts =
            |sink: &&Sink| whom.is_empty() || whom.iter().any(|path| is_within(&sink.argument, path));
        sinks.iter().filter(counts).find(|sink| !self.owner.is_trusted(&sink.value))
    }

    /// As [`Self::foreign_sink`], except for `readers`: those who can read everything that the model has read
    /// besides the request. The readers of earlier texts of the owner are unknown.
    pub fn unread_recipient<'a>(
        &self,
        sinks: &'a [Sink],
        whom: &[String],
        readers: &BTreeSet<String>,
    ) -> Option<&'a Sink> {
        // Earlier texts may have been shared with others or not, so their readers are unknown.
        let knows = !self.owner.has_earlier() && !self.confided;
        let counts =
            |sink: &&Sink| whom.is_empty() || whom.iter().any(|path| is_within(&sink.argument, path));
        let others = sinks.iter().filter(counts).filter(|sink| !self.owner.is_trusted(&sink.value));
        // A recipient that a source names may read that source, if nothing else was read.
        let may_be_told =
            |value: &str| readers.contains(value) || (!self.sources.has_others && self.is_designated(value));
        others.into_iter().find(|sink| !(knows && may_be_told(&sink.value)))
    }

    /// Returns true if nothing in a call was composed, so that it returns content that the owner asked for.
    fn is_taken_over(&self, call: &ToolCall) -> bool {
        // A call without an object as arguments is not one that a tool has declared.
        let Some(arguments) = call.arguments.as_object() else { return false };
        let mut left = LookupBudget { leaves: MAX_LEAVES, plain: MAX_PLAIN };
        arguments
            .iter()
            .all(|(name, value)| name == THEN || self.is_known_value(&call.name, name, value, &mut left))
    }

    fn is_known_value(&self, tool: &str, name: &str, value: &Value, left: &mut LookupBudget) -> bool {
        let is_known = |text: &str| {
            self.is_owners(text)
                || self.owner.is_of_owners_words(text)
                || self.fields.may_go(tool, name, text, &[])
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
    // The model chooses the size of a call, so the lookups have a bound.
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

/// The last name of a path, of a field (`/a/0/b`) or of an argument (`a.0.b`); indexes of lists are skipped.
fn name_of(path: &str) -> &str {
    // A number is a place in a list, so `to.0` and `to.1` are the same argument.
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
    // The first name counts also where it is a number: it is that of the argument itself.
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
