//! Patterns of standing approvals: the common parts of actions that one approval covers, in any session of
//! the agent, for days.
//!
//! The digest of such a pattern covers the agent, the tool, all recipients, places and objects, the rules
//! that ask and the rules in force. A later task of an unattended agent is covered if all of that is as it
//! was signed, and is asked about otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use writ_types::action::{Action, CallTool};
use writ_types::digest::{Digest, NotCanonical};
use writ_types::entry::Risk;
use writ_types::frame::{Card, Pattern, StandingOffer, TotalOffer};
use writ_types::taint::Taint;
use writ_types::unit::Amount;

use super::{Parameters, of_exec, pattern_digest};
use crate::approval::{ScopeError, StandingTerms, TaskTerms};
use crate::reasons::TAINT_RULE;
use writ_inspect::egress::EgressScope;
use writ_inspect::prepared::{Prepared, Sink};
use writ_inspect::{reach, show};

/// The most uses of a standing approval: more frequent work deserves a rule.
pub const MAX_USES: u32 = 1_000;
/// The longest lifetime of a standing approval: after a quarter its owner looks again.
pub const MAX_TTL: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// The number of uses if none is named.
pub const USES: u32 = 10;
/// The lifetime if none is named.
pub const TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The most arguments of one action for which a total is offered.
const MAX_TOTALS: usize = 4;

/// The parameter of a pattern that names the variable argument.
const TOTAL: &str = "total of";
const URL: &str = "url";

/// A pattern of an action, and how much the action counts against a total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recurring {
    /// The common parts.
    pub pattern: Pattern,
    /// Of the argument that the pattern leaves open.
    pub amount: Option<Amount>,
}

/// The limits that a person signs: uses, lifetime, and total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandingLimits {
    /// The number of uses, the first included.
    pub uses: u32,
    /// The lifetime.
    pub ttl: Duration,
    /// The argument with a bounded sum in place of a fixed value, and the bound.
    pub total: Option<(String, Amount)>,
}

impl Default for StandingLimits {
    fn default() -> Self {
        Self { uses: USES, ttl: TTL, total: None }
    }
}

/// Derives the patterns of an action that `asking` rules ask about under the rules with digest `policy`:
/// first the exact one. Without a pattern each such action is asked about alone.
pub fn standing_patterns(
    prepared: &Prepared,
    policy: Digest,
    asking: &BTreeSet<String>,
    egress: &EgressScope,
) -> Vec<Recurring> {
    let Some((parameters, free)) = standing_parameters(prepared, egress) else { return Vec::new() };
    let (mut taint, mut rules) = (prepared.label.taint, asking.clone());
    if matches!(prepared.action, Action::Exec(_) | Action::Fetch(_)) {
        // The very same words, to the very same place: what has been read meanwhile is in none of them.
        taint = Taint::External;
        rules.remove(TAINT_RULE);
    }
    let pattern = |parameters: BTreeMap<String, String>| Pattern {
        agent: prepared.agent.clone(),
        session: None,
        tool: prepared.tool.clone(),
        action: prepared.action.kind().as_str().to_owned(),
        parameters,
        taint,
        rules: rules.clone(),
        policy,
    };
    // Besides the exact pattern one for each number, which is counted instead of fixed.
    let totals = free.into_iter().map(|(argument, amount)| {
        let mut parameters = parameters.clone();
        // The argument is not fixed then; it must not stay in the pattern with its value of today.
        parameters.remove(&argument_name(&argument));
        parameters.insert(TOTAL.to_owned(), argument);
        Recurring { pattern: pattern(parameters), amount: Some(amount) }
    });
    let totals: Vec<_> = totals.collect();
    std::iter::once(Recurring { pattern: pattern(parameters), amount: None }).chain(totals).collect()
}

/// The argument that a pattern leaves open within a total.
pub(crate) fn open_argument(pattern: &Pattern) -> Option<&str> {
    pattern.parameters.get(TOTAL).map(String::as_str)
}

/// Builds the offer of a card from these patterns.
pub fn standing_offer(recurring: &[Recurring]) -> Option<StandingOffer> {
    let (first, rest) = recurring.split_first()?;
    let total = |recurring: &Recurring| {
        let (argument, amount) = (open_argument(&recurring.pattern)?.to_owned(), recurring.amount?);
        Some(TotalOffer { argument, pattern: recurring.pattern.clone(), amount })
    };
    Some(StandingOffer {
        pattern: first.pattern.clone(),
        totals: rest.iter().filter_map(total).collect(),
        max_uses: MAX_USES,
        max_secs: MAX_TTL.as_secs(),
    })
}

/// Builds the terms to sign for a standing approval of a card.
///
/// # Errors
///
/// If the card offers none, or none with these limits; if its pattern has no canonical form.
pub fn standing_terms(card: &Card, limits: &StandingLimits) -> Result<TaskTerms, ScopeError> {
    let offer = card.standing.as_ref().ok_or_else(|| ScopeError::OnceOnly(card.ask_id.clone()))?;
    let (pattern, total) = match &limits.total {
        None => (&offer.pattern, None),
        Some((argument, total)) => {
            let offered = offer.totals.iter().find(|offered| offered.argument == *argument);
            let offered = offered.ok_or_else(|| ScopeError::NoTotal(argument.clone()))?;
            // A total below what is shown would end with the very action that is approved.
            if *total < offered.amount {
                return Err(ScopeError::Limits(format!("what is asked about is {} already", offered.amount)));
            }
            (&offered.pattern, Some(*total))
        }
    };
    let terms = TaskTerms {
        pattern: pattern_digest(pattern)?,
        risk: card.risk,
        uses: limits.uses,
        standing: Some(StandingTerms { secs: limits.ttl.as_secs(), total }),
    };
    if !is_bounded(&terms) {
        let days = MAX_TTL.as_secs() / (24 * 60 * 60);
        return Err(ScopeError::Limits(format!("1 to {MAX_USES} uses in up to {days} days can be approved")));
    }
    Ok(terms)
}

/// Returns true if the limits of a standing approval are within bounds.
pub(crate) fn is_bounded(terms: &TaskTerms) -> bool {
    // Both bounds are signed, so both are checked where an answer is verified, too.
    let lasts = |standing: StandingTerms| (1..=MAX_TTL.as_secs()).contains(&standing.secs);
    (1..=MAX_USES).contains(&terms.uses)
        && terms.standing.is_some_and(lasts)
        && terms.risk < Risk::Irreversible
}

/// Describes the consequence of a standing approval, in words that hide nothing: made from the signed
/// content.
pub fn describe_consequence(offer: &StandingOffer, limits: &StandingLimits) -> String {
    let total = limits.total.as_ref();
    let open = total.and_then(|(argument, _)| offer.totals.iter().find(|total| total.argument == *argument));
    let pattern = open.map_or(&offer.pattern, |open| &open.pattern);
    let sum = match total {
        None => String::new(),
        Some((argument, sum)) => format!(", {} {sum} in all", show::quote_argument(argument)),
    };
    format!(
        "It is done, and so is, without asking, in every conversation and unattended: {}. {} times in all{sum}, until {} from now.",
        describe_pattern(pattern),
        limits.uses,
        span_text(limits.ttl),
    )
}

/// A span of time in words.
fn span_text(ttl: Duration) -> String {
    let hours = ttl.as_secs() / (60 * 60);
    match (hours / 24, hours) {
        (0, 0) => format!("{} minutes", ttl.as_secs() / 60),
        (0, hours) => format!("{hours} hours"),
        (days, _) if hours.is_multiple_of(24) => format!("{days} days"),
        (_, hours) => format!("{hours} hours"),
    }
}

/// Describes the actions that a pattern of a standing approval covers, in words that hide nothing.
pub fn describe_pattern(pattern: &Pattern) -> String {
    let shown = |(name, value): (&String, &String)| {
        format!("{} = {}", show::quote_argument(name), show::quote_argument(value))
    };
    let fixed: Vec<String> =
        pattern.parameters.iter().filter(|(name, _)| *name != TOTAL).map(shown).collect();
    let fixed = if fixed.is_empty() { "nothing fixed".to_owned() } else { fixed.join(", ") };
    let open = match (pattern.action.as_str(), pattern.parameters.get(TOTAL)) {
        ("call_tool", Some(total)) => {
            format!("; any {} within the total, and any content", show::quote_argument(total))
        }
        ("call_tool", None) => "; any content".to_owned(),
        ("exec", _) => "; regardless of the other files that it uses".to_owned(),
        _ => String::new(),
    };
    format!("{} with {fixed}{open}", show::quote_argument(&pattern.tool))
}

/// The binding of what an interpreter is given: that it is the same program.
const SCRIPT: &str = "script";

/// The prefix of argument names among the parameters, so that none passes for another parameter.
const ARGUMENT: &str = "argument ";

fn argument_name(argument: &str) -> String {
    format!("{ARGUMENT}{argument}")
}

fn bound_digests(prepared: &Prepared) -> impl Iterator<Item = (String, String)> {
    prepared.bindings.iter().map(|(name, digest)| (format!("bound to {name}"), digest.to_string()))
}

type Free = Vec<(String, Amount)>;

fn standing_parameters(
    prepared: &Prepared,
    egress: &EgressScope,
) -> Option<(BTreeMap<String, String>, Free)> {
    // Without a digest of what it runs, the same words are another program as soon as its file is written again.
    if let Action::Exec(exec) = &prepared.action
        && !reach::is_asked_each_time(exec, egress)
        // The binding of the script is the digest of what is run.
        && prepared.bindings.contains_key(SCRIPT)
    {
        let fixed: Parameters = of_exec(exec)?;
        let mut fixed: BTreeMap<String, String> =
            fixed.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        fixed.extend(bound_digests(prepared));
        return Some((fixed, Vec::new()));
    }
    if let Action::Fetch(fetch) = &prepared.action
        // A page that is only read; where it is saved or sent, it has a second effect.
        && reach::only_reads(&prepared.action)
        && fetch.save_to.is_none()
    {
        let fixed = [(URL.to_owned(), fetch.url.clone()), ("method".to_owned(), fetch.method.clone())];
        return Some((fixed.into(), Vec::new()));
    }
    // A tool that sends external content on has no open arguments: a person reads each text.
    if let Action::CallTool(call) = &prepared.action
        && !(call.sends && prepared.label.taint == Taint::External)
    {
        let mut fixed = of_call(call, &prepared.sinks)?;
        // The digest of its description excludes a tool that was changed since.
        fixed.extend(bound_digests(prepared));
        return Some((fixed, variable_amounts(call, &prepared.sinks)));
    }
    None
}

/// Collects the recipients, places and objects of a call, and the owner's settings of the tool. Arguments
/// that are no sinks are content.
pub(crate) fn of_call(call: &CallTool, sinks: &[Sink]) -> Option<BTreeMap<String, String>> {
    let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for sink in sinks {
        values.entry(&sink.argument).or_default().push(&sink.value);
    }
    let mut fixed: BTreeMap<String, String> = BTreeMap::new();
    for (argument, values) in values {
        // Several values of one argument stand together, since their set is what is approved.
        let value = match values.as_slice() {
            [one] => (*one).to_owned(),
            several => serde_json::to_string(several).ok()?,
        };
        fixed.insert(argument_name(argument), value);
    }
    // A flag is no content: what is neither text nor number is no sink, and says how the rest is meant.
    // A stack instead of recursion, since the depth of the arguments is the model's.
    let mut at: Vec<(String, &Value)> = vec![(String::new(), &call.arguments)];
    while let Some((path, value)) = at.pop() {
        match value {
            Value::Bool(_) | Value::Null => drop(fixed.insert(format!("flag {path}"), value.to_string())),
            Value::Object(fields) => {
                at.extend(fields.iter().map(|(name, value)| (format!("{path}/{name}"), value)));
            }
            Value::Array(items) => {
                at.extend(items.iter().enumerate().map(|(n, value)| (format!("{path}/{n}"), value)));
            }
            Value::Number(_) | Value::String(_) => {}
        }
    }
    // The owner's settings are part of the pattern: after a change of them the approval does not apply.
    fixed.insert("server".to_owned(), call.server.clone());
    fixed.extend(call.host.iter().map(|host| ("host".to_owned(), host.clone())));
    fixed.insert("declared".to_owned(), call.declared.to_string());
    Some(fixed)
}

/// The arguments that are numbers, say what is touched, and could be counted instead.
pub(crate) fn variable_amounts(call: &CallTool, sinks: &[Sink]) -> Free {
    let Value::Object(arguments) = &call.arguments else { return Vec::new() };
    let numbers = arguments.iter().filter_map(|(name, value)| {
        let is_sink = sinks.iter().any(|sink| sink.argument == *name);
        let Value::Number(number) = value else { return None };
        is_sink.then(|| number.to_string().parse().ok().map(|amount| (name.clone(), amount)))?
    });
    // Bounded, since each of them is one more choice on the card.
    numbers.take(MAX_TOTALS).collect()
}

/// Lists the patterns that an answer to a card may sign: their digests, and the amount that the shown action
/// counts for each.
///
/// # Errors
///
/// If a pattern has no canonical form.
pub fn offered_digests(offer: &StandingOffer) -> Result<Vec<(Digest, Option<Amount>)>, NotCanonical> {
    let totals = offer.totals.iter().map(|total| Ok((pattern_digest(&total.pattern)?, Some(total.amount))));
    std::iter::once(pattern_digest(&offer.pattern).map(|digest| (digest, None))).chain(totals).collect()
}

/// The digest that a standing approval must have signed to cover an action, and what the action then counts.
///
/// # Errors
///
/// If a pattern has no canonical form.
pub fn pattern_digests(recurring: &[Recurring]) -> Result<Vec<(Digest, Option<Amount>)>, NotCanonical> {
    recurring.iter().map(|recurring| Ok((pattern_digest(&recurring.pattern)?, recurring.amount))).collect()
}

#[cfg(test)]
mod tests;
