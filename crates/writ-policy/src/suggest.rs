//! What an owner could say once instead of answering again and again, found in what was answered.
//!
//! A suggestion is tested against everything that was asked: how often would a person have been asked with it in force
//! from the start? One that would have let through anything that was denied is none.

use std::collections::BTreeMap;

use writ_types::action::Action;
use writ_types::digest::Digest;
use writ_types::frame::{Card, Pattern};
use writ_types::taint::Taint;
use writ_types::unit::Amount;

use crate::egress::host::Target;
use crate::pattern::{digest, standing};
use crate::prepared::Prepared;

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
    /// How often was asked.
    pub asked: usize,
    /// How often would have been asked.
    pub would_ask: usize,
}

/// What could have been said once, the most helpful first. None of it lets through anything that was denied.
pub fn suggest(asked: &[Asked<'_>]) -> Vec<Suggestion> {
    let mut all = hosts(asked);
    all.extend(standing(asked));
    all.sort_by_key(|one| std::cmp::Reverse(one.asked.saturating_sub(one.would_ask)));
    all.truncate(MAX_SUGGESTIONS);
    all
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

/// Hosts that were asked about for themselves: what rests on external content is asked about on listed hosts as well.
fn hosts(asked: &[Asked<'_>]) -> Vec<Suggestion> {
    let mut groups: BTreeMap<String, Answers> = BTreeMap::new();
    for one in asked {
        if let Some(host) = only_host(one.prepared) {
            groups.entry(host).or_default().add(one.said);
        } else if one.said == Said::No {
            // Whatever else would have reached it speaks against it.
            for host in reached(&one.prepared.action) {
                groups.entry(host).or_default().add(Said::No);
            }
        }
    }
    let good = groups.into_iter().filter(|(_, answers)| answers.speaks());
    let suggestion = |(host, answers): (String, Answers)| Suggestion {
        advice: Advice::Allow { host },
        asked: answers.all,
        would_ask: 0,
    };
    good.map(suggestion).collect()
}

/// The hosts that an action would reach, without their ports.
fn reached(action: &Action) -> Vec<String> {
    let plain = |host: &String| host.rsplit_once(':').map_or(host.as_str(), |(host, _)| host).to_owned();
    let of_url = |url: &str| Target::from_url(url).ok().map(|target| target.host.to_string());
    if let Action::Exec(exec) = action {
        return exec.hosts.iter().map(plain).collect();
    }
    if let Action::Connect(connect) = action {
        return vec![connect.host.clone()];
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
    url.and_then(of_url).into_iter().collect()
}

/// The one host that an action would reach, where listing it would have let the action pass.
fn only_host(prepared: &Prepared) -> Option<String> {
    let of_url = |url: &str| Some(Target::from_url(url).ok()?.host.to_string());
    let is_external = prepared.label.taint == Taint::External;
    if matches!(prepared.action, Action::Exec(_)) {
        return if let [host] = reached(&prepared.action).as_slice() { Some(host.clone()) } else { None };
    }
    if let Action::Fetch(fetch) = &prepared.action {
        let plain = fetch.method == "GET" && fetch.body.is_none() && !fetch.large;
        return if plain && !is_external { of_url(&fetch.url) } else { None };
    }
    if let Action::Subscribe(subscribe) = &prepared.action {
        return if is_external { None } else { of_url(subscribe.url()?) };
    }
    None
}

/// A pattern with what was said of it, and what its open argument has come to.
struct Group<'a> {
    pattern: &'a Pattern,
    answers: Answers,
    total: Option<(&'a str, u64)>,
}

/// Actions whose standing patterns are the same. One that leaves an argument open is suggested only where the one that
/// leaves nothing open does not say as much.
fn standing(asked: &[Asked<'_>]) -> Vec<Suggestion> {
    let mut groups: BTreeMap<Digest, Group<'_>> = BTreeMap::new();
    for one in asked {
        let Some(offer) = &one.card.standing else { continue };
        let totals =
            offer.totals.iter().map(|total| (&total.pattern, Some((total.argument.as_str(), total.amount))));
        for (pattern, total) in std::iter::once((&offer.pattern, None)).chain(totals) {
            let Ok(digest) = digest(pattern) else { continue };
            let group = groups.entry(digest).or_insert_with(|| Group {
                pattern,
                answers: Answers::default(),
                total: total.map(|(argument, _)| (argument, 0)),
            });
            group.answers.add(one.said);
            if let (Some((_, sum)), Some((_, amount))) = (&mut group.total, total) {
                *sum = sum.saturating_add(amount.millionths());
            }
        }
    }
    let fixed = |tool: &str| {
        let says = |group: &&Group<'_>| group.total.is_none() && group.answers.speaks();
        groups.values().filter(says).any(|group| group.pattern.tool == tool)
    };
    let good = groups.values().filter(|group| group.answers.speaks());
    let wanted = good.filter(|group| group.total.is_none() || !fixed(&group.pattern.tool));
    let suggestion = |group: &Group<'_>| {
        let total = group
            .total
            .and_then(|(argument, sum)| Some((argument.to_owned(), Amount::from_millionths(sum).ok()?)));
        Suggestion {
            advice: Advice::Stand { covers: standing::words(group.pattern), total },
            asked: group.answers.all,
            // The first yes is the one that stands.
            would_ask: 1,
        }
    };
    wanted.map(suggestion).collect()
}

#[cfg(test)]
mod tests;
