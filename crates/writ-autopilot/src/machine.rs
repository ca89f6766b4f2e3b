//! The machine of one unit: an event in, the state after it and what follows out.
//!
//! Pure: the shell writes the result down in one commit before it acts on it, so a crash between two events loses none. No
//! text of a model is an event: the shell reads markers and answers with this crate, and the machine decides.

use serde::{Deserialize, Serialize};
use writ_types::error::{Exit, Report, ToReport};

use crate::attempt::{RunEnd, TurnMarker};
use crate::blocker::{Blocker, BlockerKind, BlockerResolver, PauseCause};
use crate::check::ScriptVerdict;
use crate::phase::{MoveCause, PilotPhase, RefusedMove, check_move, phase_after};
use crate::reassess::ReassessDecision;
use crate::stand::{PhaseChange, PhaseStatus, UnitStand};
use crate::workflow::PhaseFlow;

mod results;

/// The limits of the machine, from the owner's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitLimits {
    /// Failed attempts in a row in one phase (SF 5.5).
    pub max_attempts: u32,
    /// Clean ends in a row without progress.
    pub max_idle_ends: u32,
    /// Times that one unit is handed out until a person allows more, also where each time something came of it.
    pub max_dispatches: u32,
    /// Tries of a merge in a row that find a moved target.
    pub max_base_moves: u32,
    /// Set if a conflict is reassessed at once, instead of being shown to a person.
    pub reassess_conflicts: bool,
}

impl Default for UnitLimits {
    fn default() -> Self {
        Self {
            max_attempts: 6,
            max_idle_ends: 3,
            // Eight phases with six attempts each; a unit that needs more does not converge.
            max_dispatches: 48,
            max_base_moves: 10,
            reassess_conflicts: false,
        }
    }
}

/// The end of an attempt, as the shell has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptReport {
    /// The recorded end.
    pub end: RunEnd,
    /// The marker of the last turn.
    pub marker: Option<TurnMarker>,
    /// Set if the harness has proven that something new is there: a commit or a file that no attempt before has left.
    pub has_progress: bool,
    /// Set if the conditions of the phase are met, as the harness has checked them.
    pub is_met: bool,
}

/// The verdict of a review's synthesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewVerdict {
    /// Nothing is to be changed.
    Pass,
    /// Something is to be changed.
    RequestChanges,
    /// A mistake of security or correctness: a person looks, too.
    Block,
}

/// The result of a try to merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnitMergeResult {
    /// The target holds the commits, and the merged tree has passed its checks.
    Merged,
    /// Both sides change the same place.
    Conflict,
    /// The merged tree does not pass its checks.
    ChecksFailed,
    /// The target is another one than the one that was checked; nothing was moved.
    BaseMoved,
}

/// An event in the life of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitEvent {
    /// A worker takes it.
    Dispatch,
    /// An attempt has ended.
    End(AttemptReport),
    /// The gates have run, each with its name.
    Gates(Vec<(String, ScriptVerdict)>),
    /// The review has its verdict.
    Review(ReviewVerdict),
    /// A merge was tried.
    Merge(UnitMergeResult),
    /// The decision of a reassessment.
    Reassess(ReassessDecision),
    /// The supervisor ends the attempt.
    Halt,
    /// The unit waits from now on.
    Pause(PauseCause),
    /// A blocker is resolved.
    Resolve(BlockerKind, BlockerResolver),
    /// A person gives it up: its phase stays (SF 4.2).
    Cancel,
    /// A unit that it depends on was abandoned, so its plan may be void.
    UpstreamAbandoned,
    /// The engine has started again.
    Restart,
}

/// The next try of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTry {
    /// None of its own accord.
    None,
    /// At the next tick.
    Soon,
    /// After a pause that grows with the failures in a row.
    AfterFailures(u32),
}

/// The state after an event, with what it brings about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitMove {
    /// The unit after the event.
    pub stand: UnitStand,
    /// The change of phase, to be written down before anything of the next phase is done.
    pub change: Option<PhaseChange>,
    /// Blockers that are opened.
    pub opened: Vec<Blocker>,
    /// Blockers that are resolved.
    pub resolved: Vec<(Blocker, BlockerResolver)>,
    /// Set if the automatic loop pauses.
    pub pauses_loop: bool,
    /// The next try.
    pub next: NextTry,
}

/// An event that the unit does not take. Nothing is changed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// The table or the workflow does not have the move.
    #[error(transparent)]
    Refused(#[from] RefusedMove),
    /// The event belongs to another phase or status.
    #[error("{event} does not fit a unit in {phase} that is {status:?}")]
    OutOfPlace {
        /// The event, as a noun.
        event: &'static str,
        /// The phase.
        phase: PilotPhase,
        /// The status.
        status: PhaseStatus,
    },
    /// Another plan is wanted, and none is left.
    #[error("the unit was planned anew {0} times already; abandon it, or ask a person")]
    NoReplanLeft(u32),
    /// No blocker of this kind accepts this resolution.
    #[error("nothing of this unit is resolved by {}", .0.recorded_name())]
    NothingToResolve(BlockerResolver),
}

impl ToReport for MachineError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            Self::Refused(_) => Report::new(Exit::Bug, "pilot.invalid_transition", text)
                .with_hint("report it with the lines of `writ pilot forensics` about this unit"),
            Self::OutOfPlace { .. } => Report::new(Exit::Usage, "pilot.out_of_place", text)
                .with_hint("`writ pilot status` shows the phase of each unit"),
            Self::NoReplanLeft(_) => Report::new(Exit::Model, "pilot.no_replan_left", text)
                .with_hint("raise `max_reassess` of the workflow for later units"),
            Self::NothingToResolve(_) => Report::new(Exit::Usage, "pilot.nothing_to_resolve", text)
                .with_hint("`writ pilot status` shows the open blockers"),
        }
    }
}

/// Applies an event to a unit.
///
/// # Errors
///
/// If the event does not fit; the unit is unchanged then.
pub fn apply_event(
    flow: &PhaseFlow,
    limits: &UnitLimits,
    stand: &UnitStand,
    event: &UnitEvent,
) -> Result<UnitMove, MachineError> {
    let mut step = UnitStep { flow, limits, made: UnitMove::unchanged(stand) };
    if stand.is_terminal() && !matches!(event, UnitEvent::Restart) {
        return Err(step.out_of_place(event));
    }
    // The end stays as it is for late events, too.
    let is_running = stand.status == PhaseStatus::Running;
    let is_result_of = |phase| is_running && stand.phase == phase;
    match event {
        UnitEvent::Dispatch if stand.phase.has_worker() && !is_running && !stand.is_held() => step.dispatch(),
        UnitEvent::End(report) if is_running => step.end_attempt(*report)?,
        UnitEvent::Gates(gates) if is_result_of(PilotPhase::Verify) => step.judge_gates(gates)?,
        UnitEvent::Review(verdict) if is_result_of(PilotPhase::Review) => step.judge_review(*verdict)?,
        UnitEvent::Merge(result) if is_result_of(PilotPhase::Merge) => step.judge_merge(*result)?,
        UnitEvent::Reassess(decision) if is_result_of(PilotPhase::Reassess) => step.decide(decision)?,
        UnitEvent::Halt if is_running => step.give_up(MoveCause::Halted)?,
        UnitEvent::Pause(cause) => step.pause(*cause),
        UnitEvent::Resolve(kind, by) => step.resolve(*kind, *by)?,
        UnitEvent::Cancel => {
            step.made.stand.status = PhaseStatus::Canceled;
        }
        UnitEvent::UpstreamAbandoned if !is_running => step.lose_upstream()?,
        // A restart is no reason to try what was not under way.
        UnitEvent::Restart => {
            if is_running {
                step.made.stand.status = PhaseStatus::Interrupted;
                step.made.next = NextTry::Soon;
            }
        }
        UnitEvent::Dispatch
        | UnitEvent::End(_)
        | UnitEvent::Gates(_)
        | UnitEvent::Review(_)
        | UnitEvent::Merge(_)
        | UnitEvent::Reassess(_)
        | UnitEvent::Halt
        | UnitEvent::UpstreamAbandoned => return Err(step.out_of_place(event)),
    }
    Ok(step.made)
}

impl UnitMove {
    fn unchanged(stand: &UnitStand) -> Self {
        Self {
            stand: stand.clone(),
            change: None,
            opened: Vec::new(),
            resolved: Vec::new(),
            pauses_loop: false,
            next: NextTry::None,
        }
    }
}

/// An event while it is applied.
struct UnitStep<'a> {
    flow: &'a PhaseFlow,
    limits: &'a UnitLimits,
    made: UnitMove,
}

impl UnitStep<'_> {
    const fn out_of_place(&self, event: &UnitEvent) -> MachineError {
        let name = match event {
            UnitEvent::Dispatch => "a dispatch",
            UnitEvent::End(_) => "the end of an attempt",
            UnitEvent::Gates(_) => "a result of gates",
            UnitEvent::Review(_) => "a verdict of a review",
            UnitEvent::Merge(_) => "a result of a merge",
            UnitEvent::Reassess(_) => "a decision",
            UnitEvent::Halt => "an end by the supervisor",
            UnitEvent::Pause(_) => "a pause",
            UnitEvent::Resolve(..) => "a resolution",
            UnitEvent::Cancel => "a cancellation",
            UnitEvent::UpstreamAbandoned => "the end of another unit",
            UnitEvent::Restart => "a restart",
        };
        let (phase, status) = (self.made.stand.phase, self.made.stand.status);
        MachineError::OutOfPlace { event: name, phase, status }
    }

    /// Hands the unit to a worker, or pauses it where it was handed out as often as it may.
    fn dispatch(&mut self) {
        let counters = &mut self.made.stand.counters;
        let most = self.limits.max_dispatches.saturating_add(counters.extra_dispatches);
        if counters.dispatches >= most {
            return self.pause(PauseCause::DispatchCap);
        }
        // Before it begins: an engine that dies within the attempt has used one, so a crash at each try has an end.
        counters.dispatches += 1;
        self.made.stand.status = PhaseStatus::Running;
    }

    fn end_attempt(&mut self, report: AttemptReport) -> Result<(), MachineError> {
        match report.end {
            // Orders from outside, which say nothing about the work: no failure is counted.
            RunEnd::Canceled | RunEnd::Abandoned => self.made.stand.status = PhaseStatus::Canceled,
            RunEnd::Interrupted => {
                self.made.stand.status = PhaseStatus::Interrupted;
                self.made.next = NextTry::Soon;
            }
            RunEnd::Failure | RunEnd::UnitTimeout | RunEnd::TurnTimeout | RunEnd::Stalled => {
                return self.fail_attempt();
            }
            RunEnd::Success => return self.end_cleanly(report),
        }
        Ok(())
    }

    fn fail_attempt(&mut self) -> Result<(), MachineError> {
        let counters = &mut self.made.stand.counters;
        counters.failures += 1;
        let failures = counters.failures;
        if failures >= self.limits.max_attempts {
            return self.give_up(MoveCause::AttemptsExhausted);
        }
        self.made.stand.status = PhaseStatus::Failed;
        self.made.next = NextTry::AfterFailures(failures);
        Ok(())
    }

    fn end_cleanly(&mut self, report: AttemptReport) -> Result<(), MachineError> {
        match report.marker {
            Some(TurnMarker::GivingUp) => return self.give_up(MoveCause::GaveUp),
            Some(TurnMarker::Blocked) => {
                self.pause(PauseCause::WorkerBlocked);
                return Ok(());
            }
            Some(TurnMarker::Complete) | None => {}
        }
        // These end by a result of their own: a word of the worker proves none.
        let has_result = matches!(
            self.made.stand.phase,
            PilotPhase::Verify | PilotPhase::Review | PilotPhase::Merge | PilotPhase::Reassess
        );
        if report.is_met && !has_result {
            return self.advance(MoveCause::Advance);
        }
        let counters = &mut self.made.stand.counters;
        // A clean end proves nothing: only something new resets a counter.
        counters.failures = if report.has_progress { 0 } else { counters.failures };
        counters.idle_ends = if report.has_progress { 0 } else { counters.idle_ends + 1 };
        if counters.idle_ends >= self.limits.max_idle_ends {
            self.pause(PauseCause::Stuck);
        } else {
            self.made.stand.status = PhaseStatus::Pending;
            self.made.next = NextTry::Soon;
        }
        Ok(())
    }

    /// Leads to another decision; where there is none, to a person.
    fn give_up(&mut self, cause: MoveCause) -> Result<(), MachineError> {
        // Above this decision there is none but a person's.
        if self.made.stand.phase == PilotPhase::Reassess {
            self.pause(if cause == MoveCause::GaveUp {
                PauseCause::WorkerBlocked
            } else if cause == MoveCause::Halted {
                PauseCause::Supervisor
            } else {
                PauseCause::AttemptsExhausted
            });
            return Ok(());
        }
        self.go_to(PilotPhase::Reassess, cause)
    }

    /// Pauses the unit and the automatic loop. A running attempt is to be ended by the shell.
    fn pause(&mut self, cause: PauseCause) {
        if self.made.stand.status == PhaseStatus::Running {
            self.made.stand.status = PhaseStatus::Interrupted;
        }
        // The loop pauses as a whole: a person who looks finds nothing moving.
        self.open(Blocker::of_pause(cause));
        self.made.pauses_loop = true;
    }

    /// Opens a blocker once.
    fn open(&mut self, blocker: Blocker) {
        if !self.made.stand.blockers.contains(&blocker) {
            self.made.stand.blockers.push(blocker.clone());
            self.made.opened.push(blocker);
        }
    }

    /// Closes the blockers that accept a resolution and meet a condition.
    fn close(&mut self, by: BlockerResolver, is_meant: impl Fn(&Blocker) -> bool) {
        let blockers = std::mem::take(&mut self.made.stand.blockers);
        for blocker in blockers {
            if blocker.accepts(by) && is_meant(&blocker) {
                self.made.resolved.push((blocker, by));
            } else {
                self.made.stand.blockers.push(blocker);
            }
        }
    }

    fn advance(&mut self, cause: MoveCause) -> Result<(), MachineError> {
        let from = self.made.stand.phase;
        // The last phase has none after it; the table refuses the move then.
        let to = phase_after(&self.flow.phases, from).unwrap_or(from);
        self.go_to(to, cause)
    }

    /// Changes the phase: the only place where it is set.
    fn go_to(&mut self, to: PilotPhase, cause: MoveCause) -> Result<(), MachineError> {
        let from = self.made.stand.phase;
        // Every event comes through here, so none gets around the table.
        check_move(&self.flow.phases, from, to, cause)?;
        let is_forward = matches!(cause, MoveCause::Advance | MoveCause::UatApproved);
        let counters = &mut self.made.stand.counters;
        (counters.failures, counters.idle_ends, counters.base_moves) = (0, 0, 0);
        // A failed gate sends the unit back, which must not forget the failure.
        if to == PilotPhase::Reassess || (is_forward && from == PilotPhase::Verify) {
            counters.gate_failures.clear();
        }
        if to == PilotPhase::Reassess || (is_forward && from == PilotPhase::Review) {
            counters.review_rounds = 0;
        }
        if to == PilotPhase::Reassess {
            self.close(BlockerResolver::Auto, |blocker| blocker.kind == BlockerKind::GateBlocked);
        }
        self.made.stand.phase = to;
        self.made.stand.status = if to != PilotPhase::Complete {
            PhaseStatus::Pending
        } else if cause == MoveCause::Abandon {
            PhaseStatus::Failed
        } else {
            PhaseStatus::Succeeded
        };
        // A phase of a person's or the harness has no tries of its own.
        self.made.next = if to.has_worker() { NextTry::Soon } else { NextTry::None };
        self.made.change = Some(PhaseChange { from, to, cause });
        if to == PilotPhase::Uat {
            self.open(Blocker::of_kind(BlockerKind::UatPending));
            self.made.pauses_loop = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
