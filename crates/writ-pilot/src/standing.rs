//! Units between the store and the pure machine: rows become a [`UnitStand`], and a move becomes operations of one commit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use writ_autopilot::attempt::RunEnd;
use writ_autopilot::blocker::{Blocker, BlockerKind, BlockerResolver};
use writ_autopilot::machine::UnitMove;
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::stand::{PhaseStatus, UnitCounters, UnitStand};
use writ_autopilot::unit_id::{UnitId, UnitType};
use writ_autopilot::workflow::PhaseFlow;
use writ_runtime::clock::Ids;
use writ_store::batch::Op;
use writ_store::units::{PilotBlocker, UnitDecision, UnitKey, UnitOp, UnitRow, UnitRunEnd, UnitTransition};
use writ_types::api::pilot::PilotShip;
use writ_types::id::{ItemId, PilotId};
use writ_types::unit::Timestamp;

use crate::error::AutopilotError;

/// The prefix of the counters of gates.
const GATE: &str = "gate:";
/// The counter that says that a unit was given up.
const ABANDONED: &str = "abandoned";

/// The most earlier plans of a milestone that stay known.
const MAX_EARLIER_PLANS: usize = 64;

/// The facts about a unit that the store holds as its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitFacts {
    /// The work item of the plan that a person has approved.
    pub plan: Option<ItemId>,
    /// The plans that it had before its words were edited, the oldest first: their attempts are a part of its history.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_plans: Vec<ItemId>,
    /// Units that must be over before it begins, as the plan names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<UnitId>,
    /// Slices that must be merged before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub code_depends_on: Vec<UnitId>,
    /// The branch of its work, from the first time that it was handed out: another title later is no other branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The number of the issue that its goal is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gh_issue: Option<u64>,
    /// The reason for which a person has cancelled it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<String>,
    /// Set once its merged commits were undone by a person's word.
    #[serde(default, rename = "reverted", skip_serializing_if = "std::ops::Not::not")]
    pub is_reverted: bool,
    /// Its request at a forge, once one was to be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ship: Option<PilotShip>,
}

impl UnitFacts {
    /// Puts another plan in the place of the one before, which stays known.
    pub fn renew_plan(&mut self, plan: ItemId) {
        self.earlier_plans.extend(self.plan.replace(plan));
        let more = self.earlier_plans.len().saturating_sub(MAX_EARLIER_PLANS);
        self.earlier_plans.drain(..more);
    }
}

/// A unit as it stands, with the row that says so.
#[derive(Clone, Debug)]
pub struct UnitRecord {
    /// Its id.
    pub id: UnitId,
    /// Its row.
    pub row: UnitRow,
    /// The facts of its metadata.
    pub facts: UnitFacts,
    /// Its state for the machine.
    pub stand: UnitStand,
}

impl UnitRecord {
    /// Writes a unit down for hooks and gates.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let metadata: serde_json::Value = serde_json::from_str(&self.row.metadata).unwrap_or_default();
        serde_json::json!({
            "id": self.id.to_string(),
            "type": self.id.unit_type().name(),
            "title": self.row.title,
            "metadata": metadata,
        })
    }
}

/// Reads the facts of a unit.
///
/// # Errors
///
/// If its metadata are none.
pub fn read_facts(row: &UnitRow) -> Result<UnitFacts, AutopilotError> {
    serde_json::from_str(&row.metadata).map_err(|error| AutopilotError::Unreadable {
        unit: row.key.id.clone(),
        why: format!("its metadata: {error}"),
    })
}

/// Writes the facts of a unit as its metadata.
///
/// # Errors
///
/// If they cannot be written as JSON.
pub fn write_facts(id: UnitId, facts: &UnitFacts) -> Result<String, AutopilotError> {
    serde_json::to_string(facts)
        .map_err(|error| AutopilotError::Unreadable { unit: id.to_string(), why: error.to_string() })
}

/// Makes a unit of its rows; `blockers` may be those of all units of the session.
///
/// # Errors
///
/// If a row holds what the machine does not know.
pub fn read_unit(
    row: UnitRow,
    counters: &[(String, u64)],
    blockers: &[PilotBlocker],
) -> Result<UnitRecord, AutopilotError> {
    let wrong = |why: String| AutopilotError::Unreadable { unit: row.key.id.clone(), why };
    let id: UnitId = row.key.id.parse().map_err(|_| wrong("its id".to_owned()))?;
    let phase = PilotPhase::parse_name(&row.phase).map_err(|error| wrong(error.to_string()))?;
    let status = read_status(&row.phase_status).ok_or_else(|| wrong("its status".to_owned()))?;
    let counters: BTreeMap<&str, u32> = counters
        .iter()
        .map(|(name, value)| (name.as_str(), u32::try_from(*value).unwrap_or(u32::MAX)))
        .collect();
    let count = |name: &str| counters.get(name).copied().unwrap_or(0);
    let gates = counters.iter().filter_map(|(name, value)| {
        let gate = name.strip_prefix(GATE)?;
        // A gate that has passed has the count zero: rows of counters are not removed.
        (*value > 0).then(|| (gate.to_owned(), *value))
    });
    let stand = UnitStand {
        phase,
        status,
        counters: UnitCounters {
            dispatches: count("dispatches"),
            extra_dispatches: count("extra_dispatches"),
            failures: count("failures"),
            idle_ends: count("idle_ends"),
            gate_failures: gates.collect(),
            review_rounds: count("review_rounds"),
            replans: count("replans"),
            base_moves: count("base_moves"),
        },
        blockers: read_blockers(&row.key.id, blockers),
        is_abandoned: count(ABANDONED) > 0,
    };
    Ok(UnitRecord { id, facts: read_facts(&row)?, row, stand })
}

fn read_status(name: &str) -> Option<PhaseStatus> {
    PhaseStatus::ALL.into_iter().find(|status| status_name(*status) == name)
}

/// Returns the name of a status in rows.
pub const fn status_name(status: PhaseStatus) -> &'static str {
    match status {
        PhaseStatus::Pending => "pending",
        PhaseStatus::Running => "running",
        PhaseStatus::Succeeded => "succeeded",
        PhaseStatus::Failed => "failed",
        PhaseStatus::Canceled => "canceled",
        PhaseStatus::Interrupted => "interrupted",
    }
}

/// Returns the name of a blocker's kind in rows.
pub const fn event_name(kind: BlockerKind) -> &'static str {
    match kind {
        BlockerKind::GateBlocked => "GateBlocked",
        BlockerKind::MergeConflict => "MergeConflict",
        BlockerKind::Paused => "Paused",
        BlockerKind::UatPending => "UATPending",
    }
}

/// Returns the name of an end in rows.
pub const fn outcome_name(end: RunEnd) -> &'static str {
    match end {
        RunEnd::Success => "success",
        RunEnd::Failure => "failure",
        RunEnd::Abandoned => "abandoned",
        RunEnd::Canceled => "canceled",
        RunEnd::Interrupted => "interrupted",
        RunEnd::UnitTimeout => "unit_timeout",
        RunEnd::TurnTimeout => "turn_timeout",
        RunEnd::Stalled => "stalled",
    }
}

/// The detail of a blocker's row: the blocker for the machine, and words for people.
#[derive(Debug, Serialize, Deserialize)]
struct BlockerDetail {
    blocker: Blocker,
    words: String,
}

fn read_blockers(unit: &str, rows: &[PilotBlocker]) -> Vec<Blocker> {
    let own = rows.iter().filter(|row| row.unit == unit);
    own.filter_map(|row| serde_json::from_str::<BlockerDetail>(&row.detail).ok())
        .map(|detail| detail.blocker)
        .collect()
}

/// Returns the words of a blocker's row.
pub fn blocker_words(row: &PilotBlocker) -> String {
    serde_json::from_str::<BlockerDetail>(&row.detail)
        .map_or_else(|_| row.detail.clone(), |detail| detail.words)
}

/// Returns the phases of a unit of a type: those of its workflow that concern the type.
///
/// A slice with tasks is one branch for all of them, so its tasks have no review, acceptance and merge of their own. A milestone has no
/// work of its own, only gates.
pub fn flow_of(flow: &PhaseFlow, id: UnitId) -> PhaseFlow {
    use PilotPhase::{Complete, Merge, Review, Uat, Verify};
    if id.unit_type() == UnitType::Milestone {
        return PhaseFlow { phases: vec![Verify, Complete], ..flow.clone() };
    }
    let is_part = matches!(id, UnitId::Task(milestone, slice, _) if milestone != 0 || slice != 0);
    let of_slice = |phase: &PilotPhase| matches!(phase, Review | Uat | Merge);
    let phases = flow.phases.iter().copied().filter(|phase| !is_part || !of_slice(phase)).collect();
    PhaseFlow { phases, ..flow.clone() }
}

/// Returns the first phase of a unit. What has parts begins where they have ended: a slice at its gates, a milestone at its end.
pub fn first_phase(flow: &PhaseFlow, id: UnitId, has_parts: bool) -> PilotPhase {
    let own = flow_of(flow, id);
    let is_late = |phase: &&PilotPhase| {
        use PilotPhase::{Complete, Merge, Review, Uat, Verify};
        matches!(phase, Verify | Review | Uat | Merge | Complete)
    };
    let first = match id.unit_type() {
        UnitType::Milestone => None,
        UnitType::Slice if has_parts => own.phases.iter().find(is_late),
        UnitType::Slice | UnitType::Task => own.phases.first(),
    };
    first.copied().unwrap_or(PilotPhase::Complete)
}

/// The claim under which a worker writes, with its run.
#[derive(Clone, Debug)]
pub struct HeldClaim {
    /// The fence.
    pub fence: u64,
    /// The end of the run.
    pub end: Option<UnitRunEnd>,
}

/// The surroundings of a change.
#[derive(Clone, Debug)]
pub struct ChangeContext<'a> {
    /// The session.
    pub session: PilotId,
    /// Now.
    pub now: Timestamp,
    /// The time of the next try.
    pub not_before: Timestamp,
    /// The reason, in words.
    pub reason: &'a str,
}

fn counters_of(stand: &UnitStand, before: &UnitStand) -> Vec<(String, u64)> {
    let of = |counters: &UnitCounters, is_abandoned: bool| {
        let mut all: BTreeMap<String, u64> = BTreeMap::from([
            ("dispatches".to_owned(), u64::from(counters.dispatches)),
            ("extra_dispatches".to_owned(), u64::from(counters.extra_dispatches)),
            ("failures".to_owned(), u64::from(counters.failures)),
            ("idle_ends".to_owned(), u64::from(counters.idle_ends)),
            ("review_rounds".to_owned(), u64::from(counters.review_rounds)),
            ("replans".to_owned(), u64::from(counters.replans)),
            ("base_moves".to_owned(), u64::from(counters.base_moves)),
            (ABANDONED.to_owned(), u64::from(is_abandoned)),
        ]);
        all.extend(counters.gate_failures.iter().map(|(gate, n)| (format!("{GATE}{gate}"), u64::from(*n))));
        all
    };
    let (old, mut new) = (of(&before.counters, before.is_abandoned), of(&stand.counters, stand.is_abandoned));
    // A counter that is not there any more is zero: rows are never removed.
    for gone in old.keys() {
        new.entry(gone.clone()).or_insert(0);
    }
    new.into_iter().filter(|(name, value)| old.get(name).copied().unwrap_or(0) != *value).collect()
}

/// Returns the operations of a move. With a claim its worker's hold on the unit ends; without, the unit must be free.
pub fn move_ops(
    unit: &UnitRecord,
    made: &UnitMove,
    claim: Option<HeldClaim>,
    context: &ChangeContext<'_>,
) -> Vec<Op> {
    let mut ops = Vec::new();
    let (key, now) = (unit.row.key.clone(), context.now);
    let counters = counters_of(&made.stand, &unit.stand);
    let cause = made.change.map(|change| change.cause.name());
    let reason = match cause {
        Some(cause) if context.reason.is_empty() => cause.to_owned(),
        Some(cause) => format!("{cause}: {}", context.reason),
        None => context.reason.to_owned(),
    };
    let change = UnitTransition {
        key: key.clone(),
        fence: claim.as_ref().map_or(unit.row.fence, |claim| claim.fence),
        from: unit.stand.phase.name().to_owned(),
        to: made.stand.phase.name().to_owned(),
        status: status_name(made.stand.status).to_owned(),
        is_over: made.stand.is_terminal(),
        reason,
        at: now,
    };
    match claim {
        Some(HeldClaim { fence, end }) => {
            let set = |(counter, value)| UnitOp::SetCounter { key: key.clone(), fence, counter, value };
            ops.extend(counters.into_iter().map(set));
            let status = change.status.clone();
            if made.change.is_some() {
                ops.push(UnitOp::Transition(Box::new(change)));
            }
            ops.extend(end.map(|end| UnitOp::EndRun(Box::new(end))));
            ops.push(UnitOp::Release { key, fence, status, not_before: context.not_before, at: now });
        }
        None => ops.push(UnitOp::Decide(Box::new(UnitDecision {
            change,
            counters,
            not_before: context.not_before,
        }))),
    }
    ops.extend(blocker_ops(unit, made, context));
    ops.into_iter().map(Op::Units).collect()
}

fn blocker_ops(unit: &UnitRecord, made: &UnitMove, context: &ChangeContext<'_>) -> Vec<UnitOp> {
    let id = &unit.row.key.id;
    let mut ops = Vec::new();
    let mut kinds: Vec<(BlockerKind, BlockerResolver)> = Vec::new();
    for (blocker, by) in &made.resolved {
        if !kinds.iter().any(|(kind, _)| *kind == blocker.kind) {
            kinds.push((blocker.kind, *by));
        }
    }
    for (kind, by) in &kinds {
        ops.push(UnitOp::Resolve {
            session: context.session,
            event: event_name(*kind).to_owned(),
            unit: id.clone(),
            by: by.recorded_name().to_owned(),
            at: context.now,
        });
    }
    // A row of a kind ends with all of its kind: those that stay open are written anew.
    let stays = |blocker: &&Blocker| {
        made.opened.contains(blocker) || kinds.iter().any(|(kind, _)| *kind == blocker.kind)
    };
    for blocker in made.stand.blockers.iter().filter(stays) {
        let detail = BlockerDetail { blocker: blocker.clone(), words: context.reason.to_owned() };
        ops.push(UnitOp::Raise(Box::new(PilotBlocker {
            id: Ids.blocker(context.now),
            session: context.session,
            event: event_name(blocker.kind).to_owned(),
            unit: id.clone(),
            detail: serde_json::to_string(&detail).unwrap_or_default(),
            created_at: context.now,
        })));
    }
    ops
}

/// Returns the key of a unit's row.
pub fn key_of(project: &str, id: UnitId) -> UnitKey {
    UnitKey { project: project.to_owned(), id: id.to_string() }
}

#[cfg(test)]
mod tests {
    use writ_autopilot::workflow::parse_workflow;

    use super::*;

    /// A milestone has gates and an end alone, whatever its workflow; it begins at its end, where its parts have led it.
    #[test]
    fn a_milestone_has_no_work_of_its_own() {
        use PilotPhase::{Complete, Execute, Merge, Verify};
        let text = "phases = [\"execute\", \"merge\", \"complete\"]\n";
        let flow = parse_workflow("own", text).expect("reads");
        let milestone = UnitId::Milestone(1);
        assert_eq!(flow_of(&flow, milestone).phases, [Verify, Complete]);
        assert_eq!(first_phase(&flow, milestone, true), Complete);
        assert_eq!(flow_of(&flow, UnitId::Slice(1, 1)).phases, [Execute, Merge, Complete]);
        assert_eq!(flow_of(&flow, UnitId::Task(1, 1, 1)).phases, [Execute, Complete]);
    }
}
