//! The door's stages, in their only order.
//!
//! ```text
//! precheck: shape → keys          decide: verdicts → rules → taint → budget → approval          redeem
//! ```
//!
//! [`precheck`] and [`decide`] are pure. [`Grant::redeem`] writes approval use, nonce, counters, reservation
//! and intent in one transaction, and only then makes the [`Permit`](crate::permit::Permit).

use std::collections::BTreeSet;
use std::time::Duration;

use writ_types::action::{Action, ActionKind};
use writ_types::digest::Digest;
use writ_types::entry::{DenyReason, Fact, GateVerdict, Requester, Risk};
use writ_types::frame::Pattern;
use writ_types::unit::Timestamp;

use crate::approval::{Approval, ApprovalError};
use crate::budget::{self, BudgetFacts, Ceilings, Exhausted};
use crate::keys::Authority;
use crate::keys::limits::{self, UsedToday};
use crate::pattern::standing::Recurring;
use crate::permit::{ApprovalUse, OperationUse, Reservation};
use crate::plan::{self, Planned, StepQuestion};
use crate::rules::{RuleFacts, RuleSet};
use crate::taint;
use writ_inspect::egress::EgressScope;
use writ_inspect::gate;
use writ_inspect::origin::Origins;
use writ_inspect::prepared::Prepared;
use writ_inspect::{reach, scope};

/// The time between decision and performance after which a permit expires.
pub const PERMIT_TTL: Duration = Duration::from_secs(60);
/// The most arguments of a program (Linux itself allows more; no honest command needs them).
pub const MAX_ARGV: usize = 4_096;
/// The most hosts that one command may name: more cannot be read in earnest.
pub const MAX_HOSTS: usize = 64;
/// The most turns that a subscription lasts: what is still needed then is subscribed to again.
pub const MAX_SUBSCRIBED_TURNS: u64 = 100;
/// The most characters that one read of an earlier result takes.
pub const MAX_RESULT_PART: u64 = 20_000;
/// The longest query of a search, in bytes: Brave takes 400 characters, and no honest query needs more.
pub const MAX_QUERY_BYTES: usize = 400;
/// The most results of one search: what both providers give at once.
pub const MAX_SEARCH_RESULTS: u64 = 20;
/// The most bytes of all text in an action.
pub const MAX_ACTION_BYTES: usize = 4 * 1024 * 1024;
/// The most files that one action may change.
pub const MAX_CHANGES: usize = 10_000;

/// The text that a model reads when it requests an action for which there is no plan.
const UNPLANNED: &str = "only what a person has approved as a step of a plan is run or written here, and no approved \
    plan names this: propose one with 'plan_propose'";

/// Says if permitted actions are performed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They are.
    #[default]
    Execute,
    /// They are decided and logged, not performed.
    DryRun,
}

/// Everything that the door must know, as arguments.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The verified keys.
    pub authority: &'a Authority,
    /// Ids of keys that were revoked.
    pub revoked: &'a BTreeSet<String>,
    /// The rules in force.
    pub rules: &'a RuleSet,
    /// The hosts that may be reached: the owner's lists, and those that this session was granted.
    pub egress: &'a EgressScope,
    /// The sources that its arguments may be made of.
    pub origins: &'a Origins,
    /// A strict home: no argument excuses an action that rests on external content.
    pub strict: bool,
    /// A plan that may cover it, and whether there must be one.
    pub plan: Planned<'a>,
    /// Limits and what was spent.
    pub budget: &'a BudgetFacts,
    /// An earlier attempt of its session at the same action has no outcome.
    pub lost: bool,
    /// The amounts that operations of the security proxy have used today; `None` if they are unknown.
    pub used: Option<&'a UsedToday>,
    /// An approval for exactly this, or what was wrong with one that was given.
    pub approval: Option<&'a Result<Approval, ApprovalError>>,
}

/// The verdicts of hooks and gates on an action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Name of the gate, its verdict and its reason.
    pub gates: Vec<(String, GateVerdict, String)>,
}

impl Verdicts {
    /// The strictest that blocks, and why.
    fn first_block(&self) -> Option<Refusal> {
        // A halt ends the turn, a block ends the action: the turn needs to know which it was.
        let (gate, said, why) = gate::strictest_block(&self.gates)?;
        let reason = if said == GateVerdict::Halt { DenyReason::Halt } else { DenyReason::Gate };
        Some((reason, gate.to_owned(), why.to_owned()))
    }
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Hash of the prepared action, when it has one.
    pub prepared: Option<Digest>,
    /// The kind of the requested action.
    pub kind: ActionKind,
    /// The stage, for machines.
    pub reason: DenyReason,
    /// The rule, key, gate or bound that decided.
    pub rule: String,
    /// The explanation for people and the model.
    pub text: String,
}

impl Denial {
    /// The ledger's record of it.
    pub fn denial_fact(&self) -> Fact {
        Fact::Denied {
            prepared: self.prepared,
            kind: self.kind,
            reason: self.reason,
            rule: self.rule.clone(),
            text: self.text.clone(),
            outside: self.outside_text(),
            requester: None,
        }
    }

    /// Returns the ledger's record of it, with the program that asked at the security proxy.
    pub fn denial_fact_for(&self, requester: Option<&Requester>) -> Fact {
        let mut fact = self.denial_fact();
        if let Fact::Denied { requester: of, .. } = &mut fact {
            *of = requester.cloned().map(Box::new);
        }
        fact
    }

    /// Returns the part of the explanation that the model may read: the refusal and its stage, neither a way
    /// around it nor a path of the host.
    pub fn outside_text(&self) -> String {
        let kind = self.kind.as_str();
        let why = match self.reason {
            DenyReason::Shape
            | DenyReason::Gate
            | DenyReason::Halt
            | DenyReason::Budget
            | DenyReason::Taint
            // These texts are written for the model: they name no rule of the owner and no path.
            | DenyReason::Plan => self.text.clone(),
            // The rule or scope that refused is not named, or the model could search for a way around it.
            DenyReason::Capability => format!("the key of this session does not grant '{kind}'"),
            DenyReason::Scope => format!("this is outside what the key of this session grants for '{kind}'"),
            DenyReason::Expired | DenyReason::Revoked | DenyReason::Binding => {
                "the key of this session is not valid for it".to_owned()
            }
            DenyReason::Limit => "an amount is outside the limits of the key".to_owned(),
            DenyReason::UsedUp => "the day's limit of the key is used up".to_owned(),
            DenyReason::Repeated => "it was begun before under the same name".to_owned(),
            DenyReason::Rule => "the rules forbid it".to_owned(),
            DenyReason::Approval => "the approval is not valid for it".to_owned(),
            DenyReason::Person => "a person refused".to_owned(),
            DenyReason::Loop => "the same call was repeated without progress".to_owned(),
        };
        format!("Refused: {why}. Do not try another way; say so, or go on with what is allowed.")
    }
}

/// An action that passed shape and keys.
#[derive(Debug)]
pub struct Checked {
    prepared: Prepared,
    hash: Digest,
    /// The rules that the hash names.
    policy: Digest,
}

impl Checked {
    /// The action.
    pub const fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// Its hash under the rules in force.
    pub const fn hash(&self) -> Digest {
        self.hash
    }
}

/// A question to a person.
#[derive(Debug)]
pub struct Ask {
    /// The action, held until the answer.
    pub prepared: Prepared,
    /// Its hash.
    pub hash: Digest,
    /// The harm that a wrong answer can do.
    pub risk: Risk,
    /// The number of people that must say yes.
    pub approvers: u8,
    /// The names of the rules that ask.
    pub rules: BTreeSet<String>,
    /// The reason for the question.
    pub reason: String,
    /// The pattern that one approval for the task could cover.
    pub pattern: Option<Pattern>,
    /// The patterns that a standing approval could cover.
    pub recurring: Vec<Recurring>,
}

/// A decision of the door.
#[derive(Debug)]
pub enum Decided {
    /// It may be performed.
    Grant(Box<Grant>),
    /// A person must say so first.
    Ask(Box<Ask>),
    /// No.
    Deny(Box<Denial>),
}

/// First stage: shape and bounds, then keys: capability, scope, expiry, revocation, binding.
///
/// # Errors
///
/// The first thing that refuses it.
pub fn precheck(prepared: Prepared, facts: &Facts<'_>, now: Timestamp) -> Result<Checked, Box<Denial>> {
    // The hash is made first, so that a refusal names the action, too.
    let hash = prepared.hash(facts.rules.digest()).ok();
    let kind = prepared.action.kind();
    let deny = |reason, rule: &str, text: String| {
        Box::new(Denial { prepared: hash, kind, reason, rule: rule.to_owned(), text })
    };
    // Without a canonical form there is no hash that a person could approve.
    let Some(hash) = hash else {
        return Err(deny(DenyReason::Shape, "canonical form", "the action cannot be written down".into()));
    };
    // Shape comes before keys: later stages may rely on the bounds.
    shape::check_shape(&prepared.action).map_err(|text| deny(DenyReason::Shape, "bounds", text))?;
    shape::check_slots_first(&prepared).map_err(|text| deny(DenyReason::Shape, "slots", text))?;
    check_keys(&prepared, facts, now).map_err(|(reason, rule, text)| deny(reason, &rule, text))?;
    Ok(Checked { prepared, hash, policy: facts.rules.digest() })
}

/// A refusal: the stage for machines, the name of the rule or key, and the explanation.
type Refusal = (DenyReason, String, String);

fn check_keys(prepared: &Prepared, facts: &Facts<'_>, now: Timestamp) -> Result<(), Refusal> {
    let (base, task) = (facts.authority.base(), facts.authority.task());
    let refuse = |reason, rule: String, text: String| Err((reason, rule, text));
    // A key is bound to one agent and session: a copied token is of no use elsewhere.
    if prepared.agent != base.agent || prepared.session != Some(task.session) {
        let text = "the key belongs to another agent or session".to_owned();
        return refuse(DenyReason::Binding, format!("task key {}", task.key), text);
    }
    // One revoked part revokes the whole chain: base key, task key, and the keys and orders below them.
    if facts.authority.revocation_ids().iter().any(|id| facts.revoked.contains(id)) {
        return refuse(DenyReason::Revoked, format!("task key {}", task.key), "the key was revoked".into());
    }
    // Expiry is judged at each use, not when the token is verified.
    if now < task.not_before || now >= task.expires_at || now >= base.expires_at {
        let text = "the key is not valid at this time".to_owned();
        return refuse(DenyReason::Expired, format!("task key {}", task.key), text);
    }
    let kind = prepared.action.kind();
    // Both keys must grant it: the base key bounds the agent, the task key this session.
    for (name, key, grants) in [("base key", base.key, &base.grants), ("task key", task.key, &task.grants)] {
        if !grants.kinds.contains_key(&kind) {
            let text = format!("the {name} does not grant '{}'", kind.as_str());
            return refuse(DenyReason::Capability, format!("{name} {key}"), text);
        }
        for (dimension, value) in scope::attributes_of(&prepared.action) {
            if !grants.covers_value(kind, dimension, &value) {
                let text = format!(
                    "{} '{value}' is outside what the {name} grants for '{}'",
                    dimension.as_str(),
                    kind.as_str()
                );
                return refuse(DenyReason::Scope, format!("{name} {key}: {}", dimension.as_str()), text);
            }
        }
    }
    operation::check_operation(&prepared.action, facts)
}

/// Second stage: verdicts (block is final) → rules → taint → budget → approval. Deny always wins.
///
/// Gathering the verdicts takes time, so the keys are looked at again, and rules that were exchanged
/// meanwhile are a refusal: the hash names the rules.
pub fn decide(checked: Checked, verdicts: &Verdicts, facts: &Facts<'_>, now: Timestamp) -> Decided {
    match judge_action(&checked, verdicts, facts, now) {
        Ok(DoorJudgement::Grant { reservation, approval }) => {
            // A permit outlives neither the decision that it rests on nor its keys.
            let (base, task) = (facts.authority.base(), facts.authority.task());
            // The earliest of the three ends it.
            let expires_at = now.plus_duration(PERMIT_TTL).min(base.expires_at).min(task.expires_at);
            let ceilings = Ceilings::ceilings_of(&checked.prepared.action, facts.budget);
            let keys = facts.authority.revocation_ids().clone();
            let uses = if let Action::Operate(operate) = &checked.prepared.action {
                limits::counted_uses(operate, facts.authority)
            } else {
                Vec::new()
            };
            let operation = OperationUse { uses, once: None };
            let requester = None;
            Decided::Grant(Box::new(Grant {
                checked,
                reservation,
                ceilings,
                approval,
                keys,
                expires_at,
                operation,
                requester,
                only_reads: false,
            }))
        }
        Ok(DoorJudgement::Ask { rules, reason, risk, approvers, alike: Alike { pattern, recurring } }) => {
            // The hash names the rules, so the digest of the policy is not needed in the question.
            let Checked { prepared, hash, policy: _ } = checked;
            Decided::Ask(Box::new(Ask { prepared, hash, risk, approvers, rules, reason, pattern, recurring }))
        }
        Err((reason, rule, text)) => {
            let kind = checked.prepared.action.kind();
            Decided::Deny(Box::new(Denial { prepared: Some(checked.hash), kind, reason, rule, text }))
        }
    }
}

/// Gathers the facts that rules may use besides the action.
fn rule_facts(prepared: &Prepared, facts: &Facts<'_>) -> RuleFacts {
    RuleFacts {
        // Files that narrow the agent's rights can never be changed under an approval in advance.
        preapproved: facts.authority.task().grants.preapproved.contains(&prepared.action.kind())
            && !taint::changes_rules(&prepared.action),
        reach: reach::reach_of(&prepared.action, facts.egress),
        // Naming a place is leave to read from it, not to send something there.
        owned: reach::only_reads(&prepared.action)
            && facts.origins.knows_sinks(&prepared.tool, &prepared.sinks),
    }
}

/// Compares the rules in force (`home`) with those that are only tried, for an action that has passed its
/// keys. Returns one fact for each different verdict.
pub fn shadow_verdicts(checked: &Checked, home: &RuleSet, facts: &Facts<'_>) -> Vec<Fact> {
    home.shadow_facts((checked.hash, &checked.prepared), rule_facts(&checked.prepared, facts))
}

enum DoorJudgement {
    Grant { reservation: Reservation, approval: Option<ApprovalUse> },
    Ask { rules: BTreeSet<String>, reason: String, risk: Risk, approvers: u8, alike: Alike },
}

fn judge_action(
    checked: &Checked,
    verdicts: &Verdicts,
    facts: &Facts<'_>,
    now: Timestamp,
) -> Result<DoorJudgement, Refusal> {
    let prepared = &checked.prepared;
    // Keys may have been revoked or expired while gates and hooks were judging.
    check_keys(prepared, facts, now)?;
    // The hash that a person signs names the rules, so an exchange of rules ends the decision.
    if checked.policy != facts.rules.digest() {
        return Err((
            DenyReason::Rule,
            "rules".to_owned(),
            "the rules changed while it was judged".to_owned(),
        ));
    }
    // A block by a gate is final: it comes before anything that could ask or permit.
    if let Some(refusal) = verdicts.first_block() {
        return Err(refusal);
    }
    let Asking { rules, reasons, risk, approvers } =
        asking::gather_questions(prepared, verdicts, facts, now)?;
    // Judged before any question: a person is not asked about an action that the budget refuses.
    let reservation = budget::judge_budget(prepared, facts.budget).map_err(exhausted_refusal)?;
    let must_be_planned = facts.plan.only && plan::is_needed(prepared);
    if rules.is_empty() && !must_be_planned {
        // Nothing asks, so an approval that was handed along is not used up.
        return Ok(DoorJudgement::Grant { reservation, approval: None });
    }
    // An approved plan answers questions about its steps before a single approval is looked for.
    if let Some(in_force) = facts.plan.in_force {
        let asked = StepQuestion { rules: &rules, risk, approvers };
        let used = in_force.find_use((prepared, checked.hash), &asked, (facts.authority, facts.origins), now);
        if let Some(used) = used {
            return Ok(DoorJudgement::Grant { reservation, approval: Some(used) });
        }
    }
    // If only planned actions are allowed, an action of the plan that needs a further approval asks, and an action of no plan is
    // refused.
    let is_planned = facts.plan.in_force.is_some_and(|plan| plan.steps_for(prepared).next().is_some());
    let is_approved = matches!(facts.approval, Some(Ok(_)));
    if must_be_planned && !is_approved && (rules.is_empty() || !is_planned) {
        return Err((DenyReason::Plan, "execution".to_owned(), UNPLANNED.to_owned()));
    }
    let alike = Alike::patterns_of((prepared, checked.policy), &rules, (risk, approvers), facts.egress);
    match facts.approval {
        None => {
            let reason = reasons.into_iter().collect::<Vec<_>>().join(" ");
            Ok(DoorJudgement::Ask { rules, reason, risk, approvers, alike })
        }
        // A wrong signature is a denial, not another question: otherwise signatures could be tried without end.
        Some(Err(error)) => Err((DenyReason::Approval, "approval".to_owned(), error.to_string())),
        Some(Ok(approval)) => {
            // The approval is checked against this action again, since it may be one for a pattern.
            let approval = use_of(approval, checked.hash, (&alike, risk, approvers), now)?;
            Ok(DoorJudgement::Grant { reservation, approval: Some(approval) })
        }
    }
}

fn exhausted_refusal(limit: Exhausted) -> Refusal {
    (DenyReason::Budget, limit.setting_name().to_owned(), limit.reason_text())
}

pub use grant::Grant;

use asking::Asking;
use cover::{Alike, use_of};

pub(crate) mod asking;
pub(crate) mod cover;
mod grant;
mod operation;
mod shape;

#[cfg(test)]
mod tests;
