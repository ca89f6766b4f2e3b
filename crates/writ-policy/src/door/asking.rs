//! Sources of questions about an action: rules, taint, gates; for a plan, those about its steps.

use std::collections::BTreeSet;

use writ_types::action::{Action, Plan};
use writ_types::entry::{DenyReason, GateVerdict, Risk};
use writ_types::unit::Timestamp;

use super::{Facts, Refusal, Verdicts, check_keys, rule_facts};
use crate::plan;
use crate::reasons::{GATE_RULE, LOST_RULE, TAINT_RULE};
use crate::rules::{RuleFacts, RuleSet, RuleVerdict};
use crate::taint::{self, Labels, TaintVerdict};
use writ_inspect::prepared::{Prepared, leaves_nothing};
use writ_inspect::show;

/// The name under which a plan is asked about: no rule of anybody's lets one pass.
const PLAN_RULE: &str = "plan";

/// The questions about an action.
pub(crate) struct Asking {
    /// By name; empty: nothing asks.
    pub(crate) rules: BTreeSet<String>,
    pub(crate) reasons: BTreeSet<String>,
    pub(crate) risk: Risk,
    pub(crate) approvers: u8,
}

/// Rules, then taint, then what is not known, then gates that want a person.
///
/// # Errors
///
/// If any of them forbids it, or one of its steps.
pub(super) fn gather_questions(
    prepared: &Prepared,
    verdicts: &Verdicts,
    facts: &Facts<'_>,
    now: Timestamp,
) -> Result<Asking, Refusal> {
    let mut asking = judge_alone(prepared, facts)?;
    if let Action::Plan(plan) = &prepared.action {
        of_steps(prepared, plan, facts, now, &mut asking)?;
    }
    // A person or the harness that repeats an action knows of the first attempt, a model does not. If a second performance could
    // double an effect, a person decides.
    if facts.lost && prepared.call.is_some() && !prepared.idempotent && !leaves_nothing(&prepared.action) {
        asking.rules.insert(LOST_RULE.to_owned());
        asking.reasons.insert("It was begun before, and its outcome is unknown.".to_owned());
    }
    // A gate that wants a person asks beside the rules, and its reason is shown with theirs.
    for (gate, _, why) in verdicts.gates.iter().filter(|(_, said, _)| *said == GateVerdict::RequireApproval) {
        asking.rules.insert(format!("{GATE_RULE}{gate}"));
        asking.reasons.insert(why.clone());
    }
    Ok(asking)
}

/// Judges an action by rules and taint under these facts.
fn judge_alone(prepared: &Prepared, facts: &Facts<'_>) -> Result<Asking, Refusal> {
    let labels = Labels { origins: facts.origins, strict: facts.strict, egress: facts.egress };
    judge_rules_and_taint(prepared, facts.rules, rule_facts(prepared, facts), labels)
}

/// Judges an action by rules and taint.
///
/// # Errors
///
/// If one of them forbids it.
pub(crate) fn judge_rules_and_taint(
    prepared: &Prepared,
    rules: &RuleSet,
    standing: RuleFacts,
    labels: Labels<'_>,
) -> Result<Asking, Refusal> {
    let (mut rules, mut reasons, risk, approvers) = match rules.judge_rules(prepared, standing) {
        RuleVerdict::Permit => (BTreeSet::new(), BTreeSet::new(), None, 1),
        RuleVerdict::Ask { rules, reasons, risk, approvers } => (rules, reasons, risk, approvers),
        RuleVerdict::Forbid { rule } => {
            return Err((DenyReason::Rule, rule.clone(), format!("the rules forbid it ({rule})")));
        }
    };
    // The owner has preapproved this kind, so a question by taint is answered; a refusal by taint is not.
    match taint::judge_taint(prepared, standing, labels) {
        TaintVerdict::Pass => {}
        TaintVerdict::Ask(_) if standing.preapproved => {}
        TaintVerdict::Ask(why) => {
            rules.insert(TAINT_RULE.to_owned());
            reasons.insert(why.into_owned());
        }
        TaintVerdict::Deny(why) => return Err((DenyReason::Taint, "taint".to_owned(), why.to_owned())),
    }
    // A rule can only raise it.
    let risk = show::risk_of(&prepared.action).max(risk.unwrap_or(Risk::Low));
    Ok(Asking { rules, reasons, risk, approvers })
}

/// Judges a plan: it is always asked about, with the highest risk of its steps. A step that is refused alone
/// is in no plan.
fn of_steps(
    prepared: &Prepared,
    plan: &Plan,
    facts: &Facts<'_>,
    now: Timestamp,
    // No rule lifts it: a plan is read by a person each time.
    asking: &mut Asking,
) -> Result<(), Refusal> {
    asking.rules.insert(PLAN_RULE.to_owned());
    if asking.reasons.is_empty() {
        asking.reasons.insert("It is a plan.".to_owned());
    }
    // Each step is judged as if it were requested alone, so a plan lets nothing through that its steps would
    // not.
    for (n, step) in (1_u64..).zip(&plan.steps) {
        let of_step = |(reason, rule, text): Refusal| (reason, rule, format!("step {n}: {text}"));
        let requested = plan::step_alone(prepared, step);
        check_keys(&requested, facts, now).map_err(of_step)?;
        let own = judge_alone(&requested, facts).map_err(of_step)?;
        let wide = if plan::is_wide(plan, step) { Risk::High } else { Risk::Low };
        asking.risk = asking.risk.max(own.risk).max(wide);
        asking.approvers = asking.approvers.max(own.approvers);
        asking.reasons.extend(own.reasons.into_iter().map(|why| format!("Step {n}: {why}")));
    }
    Ok(())
}
