//! Suggestions for settings that would answer recurring questions, derived from earlier answers.
//!
//! A suggestion is tested against all earlier questions: each is judged again by the rules in force, with the
//! suggested host listed, or with the suggested approval in force from the first yes on. One that would have
//! let through a denied action is dropped.
//!
//! Facts that are not stored with a question are assumed unchanged: a gate, or a rule of a project, that
//! asked then would ask again, and so would labels on a call of a foreign tool. The author of an address is
//! not stored: it counts as unknown.

use std::collections::{BTreeMap, BTreeSet};

use writ_types::action::Action;
use writ_types::digest::Digest;
use writ_types::frame::{Card, Pattern};
use writ_types::unit::{Amount, Timestamp};

use crate::door::asking::{Asking, judge_rules_and_taint};
use crate::door::cover::Alike;
use crate::pattern::standing::Recurring;
use crate::pattern::{pattern_digest, standing};
use crate::reasons::TAINT_RULE;
use crate::rules::{RuleFacts, RuleSet, of_project};
use crate::taint::Labels;
use writ_inspect::egress::EgressScope;
use writ_inspect::egress::host::{Host, HostPattern, Scheme, Target};
use writ_inspect::origin::Origins;
use writ_inspect::prepared::Prepared;
use writ_inspect::reach::{self, Reach};

/// The fewest approvals before a suggestion: two can be chance.
pub const MIN_APPROVED: usize = 3;
/// The most suggestions: those that save the most questions.
pub const MAX_SUGGESTIONS: usize = 20;

/// The answer of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersonAnswer {
    /// Yes.
    Yes,
    /// No.
    No,
    /// Nothing in time.
    Nothing,
}

/// One question of the past.
#[derive(Clone, Copy, Debug)]
pub struct EarlierQuestion<'a> {
    /// The card that was shown.
    pub card: &'a Card,
    /// The action.
    pub prepared: &'a Prepared,
    /// The answer.
    pub said: PersonAnswer,
}

/// The settings in force.
#[derive(Clone, Copy, Debug)]
pub struct CurrentSettings<'a> {
    /// The rules of the home.
    pub rules: &'a RuleSet,
    /// The owner's lists of hosts, and the hosts that are trusted; nothing that a session was granted.
    pub egress: &'a EgressScope,
    /// A strict home: no argument excuses an action that rests on external content.
    pub strict: bool,
}

/// A suggested setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// List a host: `[egress] allowed`.
    Allow {
        /// The host.
        host: String,
    },
    /// Let the next yes stand, with a total where one argument varies.
    Stand {
        /// The covered actions, in words.
        covers: String,
        /// The number of approvals; unanswered questions do not count.
        uses: u32,
        /// The argument that varies, and its sum over the approved questions.
        total: Option<(String, Amount)>,
        /// The largest value of that argument in an unanswered question, if none as large was approved.
        unanswered: Option<Amount>,
    },
}

/// A suggestion, and what it would have meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// The setting.
    pub advice: Advice,
    /// The number of earlier questions that it concerns.
    pub asked: usize,
    /// The number of them that would still be asked.
    pub would_ask: usize,
}

/// Finds settings that would answer the questions, the most helpful first. None of them lets through a denied
/// action.
pub fn suggest_settings(asked: &[EarlierQuestion<'_>], in_force: &CurrentSettings<'_>) -> Vec<Suggestion> {
    let mut all = unlisted_hosts(asked, in_force);
    all.extend(suggest_approvals(asked, in_force));
    // Suggestions that save the most questions come first, since the end of the list is cut off.
    all.sort_by_key(|one| std::cmp::Reverse(one.asked.saturating_sub(one.would_ask)));
    all.truncate(MAX_SUGGESTIONS);
    all
}

/// The outcome of a question under other settings.
enum Now {
    /// Nothing asks.
    Passes,
    /// It is refused without a question.
    Refused,
    /// A person is asked, who could let it stand like this.
    Asks(Vec<Recurring>),
}

impl CurrentSettings<'_> {
    /// Judges a question again, with these lists of hosts.
    fn judge_again(&self, one: &EarlierQuestion<'_>, egress: &EgressScope) -> Now {
        let (prepared, action) = (one.prepared, &one.prepared.action);
        let reach = reach::reach_of(action, egress);
        // A connection to a listed host is made without a question.
        if matches!(action, Action::Connect(_)) && matches!(reach, Reach::Granted | Reach::Known) {
            return Now::Passes;
        }
        // The facts of the time are unknown now, so the strictest are assumed: a suggestion never promises
        // too much.
        let standing = RuleFacts { preapproved: false, reach, owned: false };
        let labels = Labels { origins: &Origins::default(), strict: self.strict, egress };
        let Ok(asking) = judge_rules_and_taint(prepared, self.rules, standing, labels) else {
            return Now::Refused;
        };
        let Asking { mut rules, reasons: _, risk, approvers } = asking;
        let is_call = matches!(action, Action::CallTool(_));
        // Calls are asked about by taint for each value, which a list of hosts does not change.
        if is_call {
            rules.remove(TAINT_RULE);
        }
        let of_project = |rule: &str| one.card.rationale.contains(&of_project(rule));
        let remains = |rule: &&String| {
            if *rule == TAINT_RULE { is_call } else { !self.rules.has_rule(rule) && of_project(rule) }
        };
        rules.extend(asking_then(one.card).filter(remains).cloned());
        let alike = Alike::patterns_of((prepared, self.rules.digest()), &rules, (risk, approvers), egress);
        let is_offered = one.card.task.is_some() || one.card.standing.is_some();
        if !is_offered && (alike.pattern.is_some() || !alike.recurring.is_empty()) {
            // Labels or gates asked as well, or several people had to say yes.
            return Now::Asks(Vec::new());
        }
        if rules.is_empty() { Now::Passes } else { Now::Asks(alike.recurring) }
    }
}

/// The rules that asked then, as far as the card's offers name them.
fn asking_then(card: &Card) -> impl Iterator<Item = &String> {
    let task = card.task.iter().flat_map(|offer| &offer.pattern.rules);
    task.chain(card.standing.iter().flat_map(|offer| &offer.pattern.rules))
}

/// Hosts that could be listed.
fn unlisted_hosts(asked: &[EarlierQuestion<'_>], in_force: &CurrentSettings<'_>) -> Vec<Suggestion> {
    let mut groups: BTreeMap<Host, Vec<EarlierQuestion<'_>>> = BTreeMap::new();
    for one in asked {
        for host in hosts_of(&one.prepared.action) {
            groups.entry(host).or_default().push(*one);
        }
    }
    groups.into_iter().filter_map(|(host, asked)| suggest_host(host, &asked, in_force)).collect()
}

/// Evaluates listing a host for the questions about it. A denial of one of them speaks against it, and so
/// does a secret that programs use there.
fn suggest_host(
    host: Host,
    asked: &[EarlierQuestion<'_>],
    in_force: &CurrentSettings<'_>,
) -> Option<Suggestion> {
    let speaks = |one: &&EarlierQuestion<'_>| one.said == PersonAnswer::Yes && is_for_the_host(one.prepared);
    let is_bound = in_force.egress.bound.iter().any(|pattern| pattern.covers_host(&host));
    let is_denied = asked.iter().any(|one| one.said == PersonAnswer::No);
    // One denial shows that the owner does not want it in general.
    if is_bound || is_denied || asked.iter().filter(speaks).count() < MIN_APPROVED {
        return None;
    }
    let (name, mut egress) = (host.to_string(), in_force.egress.clone());
    egress.allowed.push(HostPattern::exact_host(host, None));
    let (mut saved, mut would_ask) = (0_usize, 0_usize);
    for one in asked {
        match in_force.judge_again(one, &egress) {
            Now::Asks(_) => would_ask = would_ask.saturating_add(1),
            Now::Passes
                // Only a question that is asked today can be saved by a setting.
                if speaks(&one) && matches!(in_force.judge_again(one, in_force.egress), Now::Asks(_)) =>
            {
                saved = saved.saturating_add(1);
            }
            Now::Passes | Now::Refused => {}
        }
    }
    let advice = Advice::Allow { host: name };
    (saved >= MIN_APPROVED).then_some(Suggestion { advice, asked: asked.len(), would_ask })
}

/// The hosts that an action would reach.
fn hosts_of(action: &Action) -> BTreeSet<Host> {
    let port = Some(Scheme::Https.default_port());
    let of_name = |text: &str| Some(Target::from_authority(Scheme::Https, text, port).ok()?.host);
    if let Action::Exec(exec) = action {
        return exec.hosts.iter().filter_map(|host| of_name(host)).collect();
    }
    if let Action::Connect(connect) = action {
        return of_name(&connect.host).into_iter().collect();
    }
    let url = if let Action::Fetch(fetch) = action {
        Some(fetch.url.as_str())
    } else if let Action::Browse(browse) = action {
        Some(browse.url.as_str())
    } else if let Action::Subscribe(subscribe) = action {
        subscribe.url()
    } else {
        None
    };
    url.and_then(|url| Target::from_url(url).ok()).map(|target| target.host).into_iter().collect()
}

/// Returns true if a yes to an action also concerns the one host that it would reach.
fn is_for_the_host(prepared: &Prepared) -> bool {
    if let Action::Fetch(fetch) = &prepared.action {
        // Uploads and large downloads are questions of their own, beside the one about the host.
        return fetch.method == "GET" && fetch.body.is_none() && !fetch.large;
    }
    let reaches = matches!(prepared.action, Action::Exec(_) | Action::Subscribe(_));
    reaches && hosts_of(&prepared.action).len() == 1
}

/// Questions that one standing approval could have covered.
struct QuestionGroup {
    pattern: Pattern,
    /// The argument that varies.
    argument: Option<String>,
    /// When each was asked, what came of it, and what counts of it against the total, in the order of time.
    asked: Vec<(Timestamp, PersonAnswer, u64)>,
    is_denied: bool,
}

impl QuestionGroup {
    fn new(pattern: Pattern, argument: Option<&str>) -> Self {
        Self { pattern, argument: argument.map(str::to_owned), asked: Vec::new(), is_denied: false }
    }

    fn add_answer(&mut self, one: &EarlierQuestion<'_>, amount: Option<Amount>) {
        self.asked.push((one.card.asked_at, one.said, amount.map_or(0, Amount::millionths)));
    }

    /// Yields the amounts that count against the total, for the questions with this answer.
    fn amounts_of(&self, said: PersonAnswer) -> impl Iterator<Item = u64> {
        self.asked.iter().filter(move |one| one.1 == said).map(|one| one.2)
    }

    fn has_no_denial(&self) -> bool {
        !self.is_denied && self.amounts_of(PersonAnswer::Yes).count() >= MIN_APPROVED
    }

    fn to_suggestion(&self) -> Suggestion {
        let (uses, sum) = (self.count_uses(), self.sum_amounts());
        let most = |said| self.amounts_of(said).max();
        let unanswered =
            most(PersonAnswer::Nothing).filter(|largest| most(PersonAnswer::Yes) < Some(*largest));
        let amount = |millionths| Amount::from_millionths(millionths).ok();
        Suggestion {
            advice: Advice::Stand {
                covers: standing::describe_pattern(&self.pattern),
                uses,
                total: self.argument.clone().zip(amount(sum)),
                unanswered: unanswered.and_then(amount),
            },
            asked: self.asked.len(),
            would_ask: self.would_ask(uses, sum),
        }
    }

    fn count_uses(&self) -> u32 {
        u32::try_from(self.amounts_of(PersonAnswer::Yes).count()).unwrap_or(u32::MAX).min(standing::MAX_USES)
    }

    fn sum_amounts(&self) -> u64 {
        self.amounts_of(PersonAnswer::Yes).fold(0, u64::saturating_add)
    }

    /// Counts the questions that remain if each approval stands for so many uses, and for so much in all.
    fn would_ask(&self, uses: u32, sum: u64) -> usize {
        let (mut would_ask, mut stands) = (0_usize, None);
        for (at, said, amount) in &self.asked {
            if let Some((since, used, spent)) = &mut stands
                // The approvals are replayed in the order of time, as they would have been used up.
                && *at < Timestamp::plus_duration(*since, standing::MAX_TTL)
                && *used < uses
                && amount.saturating_add(*spent) <= sum
            {
                *used = u32::saturating_add(*used, 1);
                *spent = amount.saturating_add(*spent);
                continue;
            }
            would_ask = would_ask.saturating_add(1);
            if *said == PersonAnswer::Yes {
                stands = Some((*at, 1, *amount));
            }
        }
        would_ask
    }
}

/// Groups the questions by their standing patterns under the rules in force. A pattern that leaves an
/// argument open is suggested only where the exact one covers less.
fn suggest_approvals(asked: &[EarlierQuestion<'_>], in_force: &CurrentSettings<'_>) -> Vec<Suggestion> {
    let mut in_order: Vec<&EarlierQuestion<'_>> = asked.iter().collect();
    // In the order of time, since uses and totals are used up in it.
    in_order.sort_by_key(|one| one.card.asked_at);
    let mut groups: BTreeMap<Digest, QuestionGroup> = BTreeMap::new();
    for one in in_order {
        let Now::Asks(recurring) = in_force.judge_again(one, in_force.egress) else { continue };
        for (digest, pattern, total) in offered_patterns(&recurring) {
            let (argument, amount) = total.unzip();
            let group = groups.entry(digest).or_insert_with(|| QuestionGroup::new(pattern.clone(), argument));
            group.add_answer(one, amount);
        }
    }
    count_denial(&mut groups, asked, in_force);
    // The exact pattern is suggested where it covers enough; an open argument is wider than needed there.
    let fixed = |tool: &str| {
        let says = |group: &&QuestionGroup| group.argument.is_none() && group.has_no_denial();
        groups.values().filter(says).any(|group| group.pattern.tool == tool)
    };
    let good = groups.values().filter(|group| group.has_no_denial());
    let wanted = good.filter(|group| group.argument.is_none() || !fixed(&group.pattern.tool));
    wanted.map(QuestionGroup::to_suggestion).collect()
}

/// A pattern with its digest, and the argument that it leaves open.
type Offered<'a> = (Digest, Pattern, Option<(&'a str, Amount)>);

/// The patterns that a standing approval could name.
fn offered_patterns(recurring: &[Recurring]) -> Vec<Offered<'_>> {
    let all = recurring.iter().filter_map(|one| {
        let total = standing::open_argument(&one.pattern).zip(one.amount);
        Some((pattern_digest(&one.pattern).ok()?, one.pattern.clone(), total))
    });
    all.collect()
}

/// Counts a denial against each pattern that would cover it today, also where its card offered none: another
/// rule may have asked then.
fn count_denial(
    groups: &mut BTreeMap<Digest, QuestionGroup>,
    asked: &[EarlierQuestion<'_>],
    in_force: &CurrentSettings<'_>,
) {
    let rules: BTreeSet<BTreeSet<String>> =
        groups.values().map(|group| group.pattern.rules.clone()).collect();
    for one in asked.iter().filter(|one| one.said == PersonAnswer::No) {
        for rules in &rules {
            let recurring =
                standing::standing_patterns(one.prepared, in_force.rules.digest(), rules, in_force.egress);
            for (digest, _, _) in offered_patterns(&recurring) {
                groups.entry(digest).and_modify(|group| group.is_denied = true);
            }
        }
    }
}

#[cfg(test)]
mod tests;
