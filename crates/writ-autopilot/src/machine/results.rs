//! Results that a phase ends by: gates, reviews, merges, decisions, and a person's answers.

use super::{MachineError, NextTry, ReviewVerdict, UnitMergeResult, UnitStep};
use crate::blocker::{Blocker, BlockerKind, BlockerResolver, PauseCause};
use crate::check::ScriptVerdict;
use crate::phase::{MoveCause, PilotPhase};
use crate::reassess::ReassessDecision;
use crate::stand::PhaseStatus;

impl UnitStep<'_> {
    /// Judges the gates of one run: all pass, and at least one has proven something.
    pub(super) fn judge_gates(&mut self, gates: &[(String, ScriptVerdict)]) -> Result<(), MachineError> {
        let mut exhausted = Vec::new();
        let (mut is_failed, mut is_blocked, mut is_proven) = (false, false, false);
        for (gate, verdict) in gates {
            match verdict {
                ScriptVerdict::Pass => {
                    is_proven = true;
                    self.made.stand.counters.gate_failures.remove(gate);
                    self.close(BlockerResolver::Auto, |blocker| blocker.gate.as_ref() == Some(gate));
                }
                ScriptVerdict::Skip => {}
                ScriptVerdict::Block => {
                    is_blocked = true;
                    exhausted.push(gate.clone());
                }
                // A gate that ran nothing has shown nothing.
                ScriptVerdict::Fail | ScriptVerdict::NotRun => {
                    is_failed = true;
                    let failures = self.made.stand.counters.gate_failures.entry(gate.clone()).or_default();
                    *failures += 1;
                    if *failures > self.flow.retries_of(gate) {
                        exhausted.push(gate.clone());
                    }
                }
            }
        }
        if !exhausted.is_empty() {
            let cause = if is_blocked { MoveCause::GateBlocked } else { MoveCause::GatesExhausted };
            self.go_to(PilotPhase::Reassess, cause)?;
            // Opened after the move, which resolves those of earlier rounds.
            exhausted.into_iter().for_each(|gate| self.open(Blocker::of_gate(gate)));
            return Ok(());
        }
        if is_failed {
            return self.go_to(PilotPhase::Execute, MoveCause::GateFailed);
        }
        // Gates that do not apply are no proof: a person decides.
        if !is_proven {
            self.pause(PauseCause::NothingChecked);
            return Ok(());
        }
        self.advance(MoveCause::Advance)
    }

    pub(super) fn judge_review(&mut self, verdict: ReviewVerdict) -> Result<(), MachineError> {
        if verdict == ReviewVerdict::Pass {
            return self.advance(MoveCause::Advance);
        }
        let rounds = &mut self.made.stand.counters.review_rounds;
        *rounds += 1;
        // As with gates: the first round, and so many more.
        if *rounds > self.flow.max_retries {
            self.go_to(PilotPhase::Reassess, MoveCause::ReviewExhausted)?;
        } else {
            self.go_to(PilotPhase::Execute, MoveCause::ChangesRequested)?;
        }
        if verdict == ReviewVerdict::Block {
            // After the move, since the pause holds the next phase.
            self.pause(PauseCause::ReviewBlocked);
            self.made.next = NextTry::None;
        }
        Ok(())
    }

    pub(super) fn judge_merge(&mut self, result: UnitMergeResult) -> Result<(), MachineError> {
        match result {
            UnitMergeResult::Merged => self.advance(MoveCause::Advance),
            UnitMergeResult::ChecksFailed => self.go_to(PilotPhase::Reassess, MoveCause::MergedChecksFailed),
            UnitMergeResult::Conflict if self.limits.reassess_conflicts => {
                self.go_to(PilotPhase::Reassess, MoveCause::MergeConflict)
            }
            UnitMergeResult::Conflict => {
                // The phase stays: a resolution by hand goes on from here.
                self.made.stand.status = PhaseStatus::Pending;
                self.open(Blocker::of_kind(BlockerKind::MergeConflict));
                self.made.pauses_loop = true;
                Ok(())
            }
            UnitMergeResult::BaseMoved => {
                // Another merge was faster: the next try checks the new target.
                let moves = &mut self.made.stand.counters.base_moves;
                *moves += 1;
                if *moves >= self.limits.max_base_moves {
                    self.pause(PauseCause::BaseMoves);
                } else {
                    self.made.stand.status = PhaseStatus::Pending;
                    self.made.next = NextTry::Soon;
                }
                Ok(())
            }
        }
    }

    pub(super) fn decide(&mut self, decision: &ReassessDecision) -> Result<(), MachineError> {
        match decision {
            ReassessDecision::Replan { .. } => {
                let replans = self.made.stand.counters.replans;
                if replans >= self.flow.max_reassess {
                    return Err(MachineError::NoReplanLeft(replans));
                }
                self.made.stand.counters.replans += 1;
                self.go_to(PilotPhase::Plan, MoveCause::Replan)
            }
            ReassessDecision::Abandon { .. } => {
                self.go_to(PilotPhase::Complete, MoveCause::Abandon)?;
                self.made.stand.is_abandoned = true;
                Ok(())
            }
            ReassessDecision::Escalate { .. } => {
                self.pause(PauseCause::Escalated);
                self.made.stand.status = PhaseStatus::Pending;
                Ok(())
            }
        }
    }

    /// Resolves blockers of a kind, and makes the move that belongs to the resolution.
    pub(super) fn resolve(&mut self, kind: BlockerKind, by: BlockerResolver) -> Result<(), MachineError> {
        // The harness resolves its own blockers with the event that ends their reason.
        if by == BlockerResolver::Auto {
            return Err(MachineError::NothingToResolve(by));
        }
        let capped = Blocker::of_pause(PauseCause::DispatchCap);
        let was_capped = self.made.stand.blockers.contains(&capped);
        self.close(by, |blocker| blocker.kind == kind);
        if self.made.resolved.is_empty() {
            return Err(MachineError::NothingToResolve(by));
        }
        let counters = &mut self.made.stand.counters;
        match by {
            BlockerResolver::UatApprove => return self.advance(MoveCause::UatApproved),
            BlockerResolver::UatReject => return self.go_to(PilotPhase::Reassess, MoveCause::UatRejected),
            BlockerResolver::ForceClear if kind == BlockerKind::MergeConflict => {
                return self.go_to(PilotPhase::Reassess, MoveCause::MergeConflict);
            }
            BlockerResolver::Resume => {
                // A person's word is worth another round of the same length.
                if was_capped {
                    counters.extra_dispatches =
                        counters.extra_dispatches.saturating_add(self.limits.max_dispatches);
                }
                (counters.failures, counters.idle_ends, counters.base_moves) = (0, 0, 0);
            }
            BlockerResolver::ForceClear
            | BlockerResolver::Revert
            | BlockerResolver::MergeResolve
            | BlockerResolver::GitHook
            | BlockerResolver::ReassessResolve
            | BlockerResolver::Auto => {}
        }
        let is_free = !self.made.stand.is_held() && self.made.stand.phase.has_worker();
        self.made.next = if is_free { NextTry::Soon } else { NextTry::None };
        Ok(())
    }

    /// Leads a unit with a plan that rests on an abandoned unit to another plan.
    pub(super) fn lose_upstream(&mut self) -> Result<(), MachineError> {
        let phase = self.made.stand.phase;
        // Before its plan it has none that could be void; a reassessment reads the state anyway.
        if matches!(phase, PilotPhase::Research | PilotPhase::Plan | PilotPhase::Reassess) {
            return Ok(());
        }
        // The question for acceptance is void, too.
        let (void, blockers): (Vec<Blocker>, Vec<Blocker>) = std::mem::take(&mut self.made.stand.blockers)
            .into_iter()
            .partition(|blocker| blocker.kind == BlockerKind::UatPending);
        self.made.stand.blockers = blockers;
        self.made.resolved.extend(void.into_iter().map(|blocker| (blocker, BlockerResolver::Auto)));
        self.go_to(PilotPhase::Reassess, MoveCause::UpstreamAbandoned)
    }
}
