//! Taint: the effects that external content may have.
//!
//! Effects that stay in the session's sandbox are free; effects that leave or outlast it are not.

use std::borrow::Cow;
use std::collections::BTreeSet;

use writ_types::action::{Action, CallTool, Exec, MemoryTrust, Place, Remember};
use writ_types::entry::Risk;
use writ_types::recipient::Recipient;
use writ_types::taint::{Label, Taint};

use crate::reasons::TAINT_RULE;
use crate::rules::RuleFacts;
use writ_inspect::egress::EgressScope;
use writ_inspect::origin::Origins;
use writ_inspect::prepared::{Prepared, Sink};
use writ_inspect::reach::{self, Reach};
use writ_inspect::show;

mod content;

/// The verdict of taint on an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaintVerdict {
    /// Nothing to object.
    Pass,
    /// A person must look: external content would leave or outlast the session.
    Ask(Cow<'static, str>),
    /// Never, even with an approval.
    Deny(&'static str),
}

const LEAVES: TaintVerdict = TaintVerdict::Ask(Cow::Borrowed(
    "It depends on external content and would leave or outlast this session.",
));

const COMPOSED: TaintVerdict = TaintVerdict::Ask(Cow::Borrowed(
    "It depends on external content, you have not written this URL, and its text is sent to its host.",
));

const SEARCHED: TaintVerdict = TaintVerdict::Ask(Cow::Borrowed(
    "It depends on external content, you have not written these words, and they are sent to the search provider.",
));

const ACTS: TaintVerdict = TaintVerdict::Ask(Cow::Borrowed(
    "It depends on external content, and could change something in your name at a host that a secret of yours is bound to.",
));

const PRIVATE: TaintVerdict = TaintVerdict::Ask(Cow::Borrowed(
    "It would pass on content that only you may be assumed to read, to a recipient that you have not named.",
));

const TOLD: TaintVerdict = TaintVerdict::Ask(Cow::Borrowed(
    "Servers say things of their tools that the model reads, and it would change something, or send information to someone.",
));

const UNCLEARED: TaintVerdict = TaintVerdict::Deny(
    "the model would receive more than its provider is cleared for (providers.*.clearance)",
);

/// The labels of the values in an action, with the settings that they are judged by.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// The sources that its arguments may be made of.
    pub origins: &'a Origins,
    /// A strict home: everything that would leave asks in a tainted turn.
    pub strict: bool,
    /// The reachable hosts, and those where programs use secrets of the owner.
    pub egress: &'a EgressScope,
}

/// Judges a prepared action by the label that its arguments rest on, by what these are made of, and by where it leads.
pub fn judge_taint(prepared: &Prepared, standing: RuleFacts, labels: Labels<'_>) -> TaintVerdict {
    // In a strict home no origin excuses an action.
    let owned = standing.owned && !labels.strict;
    // A memory carries its own label into later sessions, so it is judged under any label.
    if let Action::Remember(remember) = &prepared.action {
        return judge_memory(remember, &prepared.label);
    }
    if let Action::ModelCall(call) = &prepared.action {
        // A model reads only what its provider is cleared for, wherever it comes from.
        return if prepared.label.clearance() <= call.clearance { TaintVerdict::Pass } else { UNCLEARED };
    }
    // Without external content the owner's own words have led here, unless a server's description has.
    if prepared.label.taint != Taint::External {
        if let Action::CallTool(call) = &prepared.action
            && labels.origins.reads_unvouched_server(&prepared.tool)
        {
            return judge_told(prepared, call, labels);
        }
        return TaintVerdict::Pass;
    }
    let action = &prepared.action;
    if let Action::Exec(exec) = action {
        return judge_exec(exec, standing.reach, labels);
    }
    if let Action::CallTool(call) = action {
        return if labels.strict { LEAVES } else { judge_call(prepared, call, labels.origins) };
    }
    if matches!(action, Action::Fetch(_)) {
        // Any part of a URL can carry something out, so a listed host is no excuse.
        return if owned { TaintVerdict::Pass } else { COMPOSED };
    }
    if let Action::Subscribe(subscribe) = action {
        // Files of the work folder, and the end of a subscription, send nothing out.
        return if subscribe.url().is_none() || owned { TaintVerdict::Pass } else { COMPOSED };
    }
    if matches!(action, Action::Search(_)) {
        // The words go to the search provider, which is a way out as any other.
        return if owned { TaintVerdict::Pass } else { SEARCHED };
    }
    // An action that is not known to stay inside counts as leaving, and so does every new kind of action.
    if stays_inside(action) { TaintVerdict::Pass } else { LEAVES }
}

/// Returns true if nothing that rests on external content leaves by an action, or if its owner sees it first.
fn stays_inside(action: &Action) -> bool {
    // A change inside the overlay is seen before it is applied.
    let in_overlay = matches!(action, Action::WriteFile(write) if write.place == Place::Overlay);
    // As with `Say`: a file that rests on external content is marked, and waits until the owner fetches it.
    let to_owner = Recipient::of_action(action) == Some(&Recipient::Owner);
    // Reads stay inside, and so does the owner's own screen. A plan is always asked about, and says what in it comes
    // from outside.
    let inside =
        matches!(action, Action::ReadFile(_) | Action::Recall(_) | Action::Plan(_) | Action::ReadResult(_));
    in_overlay || to_owner || inside
}

fn judge_exec(exec: &Exec, reach: Reach, labels: Labels<'_>) -> TaintVerdict {
    if exec.hosts.is_empty() {
        return TaintVerdict::Pass;
    }
    // The program could follow external content and act there in the owner's name.
    if reach::acts_as_owner(exec, labels.egress) {
        return ACTS;
    }
    // A listed host may receive what a program works on. Registries are needed for work that rests on project files,
    // which are external themselves.
    if matches!(reach, Reach::Granted | Reach::Known) { TaintVerdict::Pass } else { LEAVES }
}

/// Judges a call of a foreign tool: it must be one of the fixed tools, with arguments that were not composed.
fn judge_call(prepared: &Prepared, call: &CallTool, origins: &Origins) -> TaintVerdict {
    let composed = origins.composed_sink(&prepared.tool, &prepared.sinks, &call.takes);
    // A call that only reads is judged by what its arguments reveal to the server.
    // A tool that was fixed before anything external was read was not chosen by it.
    let is_new = call.effect && prepared.label.outside && !origins.offers_tool(&prepared.tool);
    let made_up = composed.map(|sink| {
        format!("'{}' is neither in your own words nor taken as it is from what you asked for", sink.argument)
    });
    // The explanation names both reasons where both apply.
    let why = match (is_new, made_up) {
        (true, made_up) => {
            let rest =
                made_up.unwrap_or_else(|| "nothing in it that says who, where or what is made up".to_owned());
            let tool = &prepared.tool;
            Some(format!(
                "'{tool}' was neither used nor named for this before content from outside was read, and {rest}."
            ))
        }
        (false, Some(made_up)) => Some(format!("It depends on external content, and {made_up}.")),
        (false, None) => None,
    };
    if let Some(why) = why {
        return TaintVerdict::Ask(why.into());
    }
    // A value of a result is one of many, and an injection may choose among them.
    if call.effect
        && call.risk >= Risk::High
        && let Some(sink) = origins.foreign_sink(&prepared.sinks, &[])
    {
        let why = format!(
            "It depends on external content, a wrong one does much harm, and '{}' is not in your own words.",
            sink.argument
        );
        return TaintVerdict::Ask(why.into());
    }
    // Or it chooses by name, and then the name stands in its text.
    if call.effect
        && let Some(sink) = origins.sink_pointed_at(&prepared.sinks, &call.takes)
    {
        let why = format!(
            "It depends on external content, and a text in it names '{}' elsewhere than where it belongs: somebody may have \
             chosen it for you.",
            sink.argument
        );
        return TaintVerdict::Ask(why.into());
    }
    // A record beside the ones that the owner has named was perhaps chosen by a text in the list.
    if let Some((sink, word)) = origins.sink_beside(&prepared.sinks, &call.takes, &call.named) {
        let why = format!(
            "It depends on external content, and '{}' is of nothing that you have named, while '{word}', which you have, stands \
             beside it in the same list.",
            sink.argument
        );
        return TaintVerdict::Ask(why.into());
    }
    // Content that only the owner may read goes to a recipient of theirs, or to a reader of that content.
    if call.sends
        && prepared.label.private
        && origins.unread_recipient(&prepared.sinks, &call.whom, &prepared.label.readers).is_some()
    {
        return PRIVATE;
    }
    content::judge_content(prepared, call, origins)
}

/// The most values that one yes makes the owner's: more are not read.
const MAX_ENDORSED: usize = 16;
/// The shortest value that can be the owner's: what is shorter stands everywhere (design 3.3).
const MIN_ENDORSED_CHARS: usize = 3;
/// The longest one, in characters: what is longer is content.
const MAX_ENDORSED_CHARS: usize = 300;

/// Lists the values of an action that its owner may endorse, where the question is about values of unknown
/// origin: argument and value. All of them, or none.
pub fn endorsable_values(prepared: &Prepared, asking: &BTreeSet<String>) -> Vec<(String, String)> {
    let subscribes = matches!(&prepared.action, Action::Subscribe(subscribe) if subscribe.url().is_some());
    let leads = matches!(prepared.action, Action::CallTool(_) | Action::Fetch(_) | Action::Search(_));
    // A person has to recognise the value as theirs, so it must be short and fully visible.
    let fits = |sink: &Sink| {
        let chars = sink.value.chars().count();
        (MIN_ENDORSED_CHARS..=MAX_ENDORSED_CHARS).contains(&chars) && show::is_plain(&sink.value)
    };
    let sinks = &prepared.sinks;
    let by_values = (leads || subscribes) && asking.contains(TAINT_RULE);
    // All of them or none: a yes to a part would leave the rest unread.
    if !by_values || sinks.len() > MAX_ENDORSED || !sinks.iter().all(fits) {
        return Vec::new();
    }
    sinks.iter().map(|sink| (sink.argument.clone(), sink.value.clone())).collect()
}

/// Describes the consequence of a yes that endorses these values, in words that hide nothing.
pub fn describe_endorsement(values: &[(String, String)]) -> String {
    let shown = |(argument, value): &(String, String)| {
        format!("{} = {}", show::quote_argument(argument), show::quote_argument(value))
    };
    let values: Vec<String> = values.iter().map(shown).collect();
    format!(
        "It is done once, and in this conversation these count as if you had written them, also as a place to send \
         things to: {}.",
        values.join(", ")
    )
}

/// A call of a foreign tool where nothing external was read but what other servers say of their own tools: that can be an
/// order, too. Tools are not fixed by it, or none could be used; and what only reads would ask all the time.
fn judge_told(prepared: &Prepared, call: &CallTool, labels: Labels<'_>) -> TaintVerdict {
    if labels.strict {
        // A strict home asks about any effect, and about any argument that is not the owner's.
        let tells = call.effect || labels.origins.foreign_sink(&prepared.sinks, &[]).is_some();
        return if tells { TOLD } else { TaintVerdict::Pass };
    }
    // An address can carry something out, wherever it is only read from.
    let leads_out = |sink: &Sink| sink.value.contains("://");
    match labels.origins.composed_sink(&prepared.tool, &prepared.sinks, &call.takes) {
        Some(sink) if call.effect || leads_out(sink) => {
            let why = format!(
                "'{}' is not in your own words, and servers say things of their tools that the model reads.",
                sink.argument
            );
            TaintVerdict::Ask(why.into())
        }
        Some(_) | None => TaintVerdict::Pass,
    }
}

/// Returns true if an action changes the folder that holds a project's rules.
pub(crate) fn changes_rules(action: &Action) -> bool {
    let Action::WriteFile(write) = action else { return false };
    // The first real part of the path decides, so `./.writ/x` and `//.writ/x` are found, too.
    let is_kept = |path: &str| path.split('/').find(|name| !name.is_empty() && *name != ".") == Some(".writ");
    write.place == Place::Project && write.changes.iter().any(|change| is_kept(&change.path))
}

/// Judges a memory, which carries its taint with it: it may not be stored as more trusted than its sources,
/// external content never becomes a truth, and only models that could read it before may read it.
fn judge_memory(remember: &Remember, rests_on: &Label) -> TaintVerdict {
    // A memory that claims to be more trusted than its sources would launder them.
    if remember.taint < rests_on.taint {
        return TaintVerdict::Deny("a memory cannot be more trusted than what it rests on");
    }
    // The mark has to travel with the memory, or a model without clearance could read it later.
    if rests_on.secret && !remember.secret {
        return TaintVerdict::Deny("a memory that rests on what is secret is secret");
    }
    match (remember.taint, remember.trust) {
        (Taint::External, MemoryTrust::Verified | MemoryTrust::Constitutional) => {
            TaintVerdict::Deny("external content cannot become a verified or constitutional memory")
        }
        (Taint::External, MemoryTrust::Working) | (Taint::Owner | Taint::Auth, _) => TaintVerdict::Pass,
    }
}

#[cfg(test)]
mod tests;
