//! What an owner could say once instead of answering again and again, found in what was answered.
//!
//! A suggestion is tested against everything that was asked: each question is judged again by the rules in force, with the
//! suggested host listed, or with the suggested approval in force from the first yes on. One that would have let through
//! anything that was denied is none.
//!
//! What is not kept of a question is taken as it was: a gate, or a rule of a project, that asked then would ask again, and
//! labels say of a call of a foreign tool what they said. Whose words an address was is not kept: it counts as nobody's.

use std::collections::{BTreeMap, BTreeSet};

use writ_types::action::Action;
use writ_types::digest::Digest;
use writ_types::frame::{Card, Pattern};
use writ_types::unit::{Amount, Timestamp};

use crate::door::TAINT_RULE;
use crate::door::asking::{Asking, by_itself};
use crate::door::cover::Alike;
use crate::egress::EgressScope;
use crate::egress::host::{Host, HostPattern, Scheme, Target};
use crate::origin::Origins;
use crate::pattern::standing::Recurring;
use crate::pattern::{digest, standing};
use crate::prepared::Prepared;
use crate::reach::{self, Reach};
use crate::rules::{RuleSet, Standing, of_project};
use crate::taint::Labels;

/// How often somebody must have said yes before anything is suggested: twice can be chance.
pub const MIN_APPROVED: usize = 3;
/// The most suggestions: those that save the most questions.
pub const MAX_SUGGESTIONS: usize = 20;

/// What a person has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Yes.
    Yes,
    /// No.
    No,
    /// Nothing in time.
    Nothing,
}

/// One question of the past.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The card that was shown.
    pub card: &'a Card,
    /// What was asked about.
    pub prepared: &'a Prepared,
    /// What came of it.
    pub said: Said,
}

/// What is in force now.
#[derive(Clone, Copy, Debug)]
pub struct InForce<'a> {
    /// The rules of the home.
    pub rules: &'a RuleSet,
    /// The owner's lists of hosts, and the hosts that are trusted; nothing that a session was granted.
    pub egress: &'a EgressScope,
    /// Whether no argument excuses an action that rests on external content.
    pub strict: bool,
}

/// What could be said once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// List a host: `[egress] allowed`.
    Allow {
        /// The host.
        host: String,
    },
    /// Let the next yes stand, with a total where one argument varies.
    Stand {
        /// What it would cover, in words.
        covers: String,
        /// The argument that varies, and what it has come to.
        total: Option<(String, Amount)>,
    },
}

/// A suggestion, and what it would have meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// What could be said.
    pub advice: Advice,
    /// How often was asked about what it is about.
    pub asked: usize,
    /// How often of these would be asked with it.
    pub would_ask: usize,
}

/// What could have been said once, the most helpful first. None of it lets through anything that was denied.
pub fn suggest(asked: &[Asked<'_>], in_force: &InForce<'_>) -> Vec<Suggestion> {
    let mut all = hosts(asked, in_force);
    all.extend(standing(asked, in_force));
    all.sort_by_key(|one| std::cmp::Reverse(one.asked.saturating_sub(one.would_ask)));
    all.truncate(MAX_SUGGESTIONS);
    all
}

/// What would become of a question.
enum Now {
    /// Nothing asks.
    Passes,
    /// It is refused, and nobody is asked.
    Refused,
    /// A person is asked, who could let it stand like this.
    Asks(Vec<Recurring>),
}

impl InForce<'_> {
    /// Judges a question again, with these lists of hosts.
    fn judge(&self, one: &Asked<'_>, egress: &EgressScope) -> Now {
        let (prepared, action) = (one.prepared, &one.prepared.action);
        let reach = reach::of(action, egress);
        // Nobody wishes a connection to a host that is listed: it is made.
        if matches!(action, Action::Connect(_)) && matches!(reach, Reach::Granted | Reach::Known) {
            return Now::Passes;
        }
        let standing = Standing { preapproved: false, reach, owned: false };
        let labels = Labels { origins: &Origins::default(), strict: self.strict, egress };
        let Ok(asking) = by_itself(prepared, self.rules, standing, labels) else { return Now::Refused };
        let Asking { mut rules, reasons: _, risk, approvers } = asking;
        let is_call = matches!(action, Action::CallTool(_));
        if is_call {
            rules.remove(TAINT_RULE);
        }
        let of_project = |rule: &str| one.card.rationale.contains(&of_project(rule));
        let remains = |rule: &&String| {
            if *rule == TAINT_RULE { is_call } else { !self.rules.has(rule) && of_project(rule) }
        };
        rules.extend(asking_then(one.card).filter(remains).cloned());
        let alike = Alike::of((prepared, self.rules.digest()), &rules, (risk, approvers), egress);
        let is_offered = one.card.task.is_some() || one.card.standing.is_some();
        if !is_offered && (alike.pattern.is_some() || !alike.recurring.is_empty()) {
            // Not the rules alone asked, or nobody was to say yes alone.
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
fn hosts(asked: &[Asked<'_>], in_force: &InForce<'_>) -> Vec<Suggestion> {
    let mut groups: BTreeMap<Host, Vec<Asked<'_>>> = BTreeMap::new();
    for one in asked {
        for host in reached(&one.prepared.action) {
            groups.entry(host).or_default().push(*one);
        }
    }
    groups.into_iter().filter_map(|(host, asked)| listed(host, &asked, in_force)).collect()
}

/// What listing a host would have meant for the questions about what reaches it. Whatever was denied of them speaks against
/// it, and so does a secret that programs use there.
fn listed(host: Host, asked: &[Asked<'_>], in_force: &InForce<'_>) -> Option<Suggestion> {
    let speaks = |one: &&Asked<'_>| one.said == Said::Yes && is_for_the_host(one.prepared);
    let is_bound = in_force.egress.bound.iter().any(|pattern| pattern.covers_host(&host));
    let is_denied = asked.iter().any(|one| one.said == Said::No);
    if is_bound || is_denied || asked.iter().filter(speaks).count() < MIN_APPROVED {
        return None;
    }
    let (name, mut egress) = (host.to_string(), in_force.egress.clone());
    egress.allowed.push(HostPattern::exact(host, None));
    let (mut saved, mut would_ask) = (0_usize, 0_usize);
    for one in asked {
        match in_force.judge(one, &egress) {
            Now::Asks(_) => would_ask = would_ask.saturating_add(1),
            Now::Passes if speaks(&one) && matches!(in_force.judge(one, in_force.egress), Now::Asks(_)) => {
                saved = saved.saturating_add(1);
            }
            Now::Passes | Now::Refused => {}
        }
    }
    let advice = Advice::Allow { host: name };
    (saved >= MIN_APPROVED).then_some(Suggestion { advice, asked: asked.len(), would_ask })
}

/// The hosts that an action would reach.
fn reached(action: &Action) -> BTreeSet<Host> {
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

/// Whether a yes to an action says something of the one host that it would reach.
fn is_for_the_host(prepared: &Prepared) -> bool {
    if let Action::Fetch(fetch) = &prepared.action {
        return fetch.method == "GET" && fetch.body.is_none() && !fetch.large;
    }
    let reaches = matches!(prepared.action, Action::Exec(_) | Action::Subscribe(_));
    reaches && reached(&prepared.action).len() == 1
}

/// How a group of questions was answered.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    yes: usize,
    no: usize,
    all: usize,
}

impl Answers {
    const fn add(&mut self, said: Said) {
        match said {
            Said::Yes => self.yes = self.yes.saturating_add(1),
            Said::No => self.no = self.no.saturating_add(1),
            Said::Nothing => {}
        }
        self.all = self.all.saturating_add(1);
    }

    const fn speaks(self) -> bool {
        self.no == 0 && self.yes >= MIN_APPROVED
    }
}

/// Questions that one standing approval could have covered, and what that approval would have come to.
struct Group {
    pattern: Pattern,
    answers: Answers,
    total: Option<(String, u64)>,
    would_ask: usize,
    /// When the approval was given, and how often it was used.
    stands: Option<(Timestamp, u32)>,
}

impl Group {
    fn new(pattern: Pattern, total: Option<&str>) -> Self {
        let total = total.map(|argument| (argument.to_owned(), 0));
        Self { pattern, answers: Answers::default(), total, would_ask: 0, stands: None }
    }

    /// The next question, and what counts of it against the total.
    fn add(&mut self, one: &Asked<'_>, amount: Option<Amount>) {
        self.answers.add(one.said);
        if let (Some((_, sum)), Some(amount)) = (&mut self.total, amount) {
            *sum = sum.saturating_add(amount.millionths());
        }
        let at = one.card.asked_at;
        if let Some((since, uses)) = &mut self.stands
            && at < since.plus(standing::MAX_TTL)
            && *uses < standing::MAX_USES
        {
            *uses = uses.saturating_add(1);
            return;
        }
        self.would_ask = self.would_ask.saturating_add(1);
        if one.said == Said::Yes {
            // This yes is the one that stands.
            self.stands = Some((at, 1));
        }
    }

    fn suggestion(&self) -> Suggestion {
        let total = self.total.as_ref();
        let total =
            total.and_then(|(argument, sum)| Some((argument.clone(), Amount::from_millionths(*sum).ok()?)));
        Suggestion {
            advice: Advice::Stand { covers: standing::words(&self.pattern), total },
            asked: self.answers.all,
            would_ask: self.would_ask,
        }
    }
}

/// Questions whose standing patterns are the same under the rules in force. One that leaves an argument open is suggested
/// only where the one that leaves nothing open does not say as much.
fn standing(asked: &[Asked<'_>], in_force: &InForce<'_>) -> Vec<Suggestion> {
    let mut in_order: Vec<&Asked<'_>> = asked.iter().collect();
    in_order.sort_by_key(|one| one.card.asked_at);
    let mut groups: BTreeMap<Digest, Group> = BTreeMap::new();
    for one in in_order {
        let Now::Asks(recurring) = in_force.judge(one, in_force.egress) else { continue };
        let Some(offer) = standing::offer(&recurring) else { continue };
        let totals =
            offer.totals.iter().map(|total| (&total.pattern, Some((total.argument.as_str(), total.amount))));
        for (pattern, total) in std::iter::once((&offer.pattern, None)).chain(totals) {
            let Ok(digest) = digest(pattern) else { continue };
            let (argument, amount) = total.unzip();
            let group = groups.entry(digest).or_insert_with(|| Group::new(pattern.clone(), argument));
            group.add(one, amount);
        }
    }
    let fixed = |tool: &str| {
        let says = |group: &&Group| group.total.is_none() && group.answers.speaks();
        groups.values().filter(says).any(|group| group.pattern.tool == tool)
    };
    let good = groups.values().filter(|group| group.answers.speaks());
    let wanted = good.filter(|group| group.total.is_none() || !fixed(&group.pattern.tool));
    wanted.map(Group::suggestion).collect()
}

#[cfg(test)]
mod tests;
