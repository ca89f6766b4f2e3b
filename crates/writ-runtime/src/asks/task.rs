//! Approvals for the task, and standing ones: what is alike is not asked about again, for a while.

use writ_inspect::reach;
use writ_policy::approval::ApprovalClaims;
use writ_policy::door::Ask;
use writ_policy::pattern;
use writ_policy::pattern::standing::{self, StandingLimits};
use writ_policy::taint::describe_endorsement;
use writ_types::entry::{ApprovalScope, Decision};
use writ_types::frame::{Card, Choice, Pattern, StandingOffer, TaskOffer};

use crate::session::UNDO;

/// Returns the terms of an approval for the whole task; `None` for an undo or an ask without a pattern.
pub(crate) fn offer(ask: &Ask) -> Option<Box<TaskOffer>> {
    if ask.prepared.tool == UNDO {
        return None;
    }
    let pattern = ask.pattern.clone()?;
    let secs = pattern::TASK_APPROVAL_TTL.as_secs();
    Some(Box::new(TaskOffer { pattern, uses: pattern::MAX_TASK_USES, secs }))
}

/// Returns the terms of a standing approval for this ask; `None` if it cannot be approved for recurring use.
pub(crate) fn standing_offer(ask: &Ask) -> Option<Box<StandingOffer>> {
    standing::standing_offer(&ask.recurring).map(Box::new)
}

/// The answers to a card, in words.
pub(crate) fn choices(
    offer: Option<&TaskOffer>,
    standing: Option<&StandingOffer>,
    values: &[(String, String)],
    host: Option<&str>,
) -> Vec<Choice> {
    let choice = |decision, scope, consequence| Choice { decision, scope, consequence };
    let once = "It is done once, exactly as shown.".to_owned();
    let mut choices = vec![choice(Decision::Approve, ApprovalScope::Once, once)];
    choices.extend(
        offer.map(|offer| {
            choice(Decision::Approve, ApprovalScope::Task, pattern::describe_consequence(offer))
        }),
    );
    if !values.is_empty() {
        choices.push(choice(Decision::Approve, ApprovalScope::Values, describe_endorsement(values)));
    }
    choices
        .extend(host.map(|host| choice(Decision::Approve, ApprovalScope::Host, reach::describe_trust(host))));
    choices.extend(standing.map(|offer| {
        let consequence = standing::describe_consequence(offer, &StandingLimits::default());
        choice(Decision::Approve, ApprovalScope::Standing, consequence)
    }));
    let no = "Nothing is done; the agent is notified.".to_owned();
    choices.push(choice(Decision::Deny, ApprovalScope::Once, no));
    choices
}

/// Describes in words everything an answer covers beyond the action itself; empty if it covers nothing more.
pub(crate) fn covers(card: &Card, claims: &ApprovalClaims) -> String {
    let Some(terms) = claims.task else {
        let trusted = claims.host.as_deref().map(reach::describe_trust).unwrap_or_default();
        return if claims.values { describe_endorsement(&card.values) } else { trusted };
    };
    let sum = terms.standing.and_then(|standing| standing.total);
    let sum = sum.map(|sum| format!(", {sum} in all")).unwrap_or_default();
    let what = meant(card, claims).map(words).unwrap_or_default();
    format!("{what}; {} times{sum}, until {}", terms.uses, claims.expires_at)
}

/// The pattern that signed terms mean.
pub(crate) fn meant<'a>(card: &'a Card, claims: &ApprovalClaims) -> Option<&'a Pattern> {
    let terms = claims.task?;
    let of_task = card.task.iter().map(|offer| &offer.pattern);
    let standing = card.standing.iter();
    let standing = standing.flat_map(|offer| {
        std::iter::once(&offer.pattern).chain(offer.totals.iter().map(|total| &total.pattern))
    });
    let mut all = of_task.chain(standing);
    all.find(|own| pattern::pattern_digest(own).is_ok_and(|digest| digest == terms.pattern))
}

pub(crate) fn words(pattern: &Pattern) -> String {
    if pattern.session.is_some() {
        pattern::describe_pattern(pattern)
    } else {
        standing::describe_pattern(pattern)
    }
}
