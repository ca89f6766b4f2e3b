//! The supervisor: nine checks over a snapshot of one worker. It decides nothing else and writes nothing.

use std::time::Duration;

use writ_types::unit::Timestamp;

use crate::failure::FailureCode;
use crate::phase::PilotPhase;
use crate::progress::ProgressWindow;
use crate::unit_id::UnitId;

/// The limits of the checks, from the owner's configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SupervisorLimits {
    /// Turns in one phase without a successful call, beyond which the loop pauses.
    pub fruitless_turns: u32,
    /// Turns in one phase without any call.
    pub silent_turns: u32,
    /// The same calls with the same results, over all attempts.
    pub repeats: u32,
    /// Turns of writing phases without a new tree, over all attempts.
    pub idle_turns: u32,
    /// The part of the context at which it is compacted.
    pub compact_at: f64,
    /// The time without an event of the agent.
    pub stall_timeout: Duration,
}

impl Default for SupervisorLimits {
    fn default() -> Self {
        Self {
            fruitless_turns: 5,
            silent_turns: 3,
            repeats: 8,
            idle_turns: 40,
            compact_at: 0.80,
            stall_timeout: Duration::from_secs(120),
        }
    }
}

/// A fault of a model, as its client has classified it. Texts of messages are never compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelFault {
    /// The provider does not have the model.
    Unavailable,
    /// Anything that may be over later: too many requests, a broken connection, an overload.
    Transient,
    /// Another failure that counts for the breaker.
    Other,
}

/// A worker as it stands.
// tidy: plain state
#[derive(Clone, Debug)]
pub struct WorkSnapshot<'a> {
    /// The unit.
    pub unit: UnitId,
    /// Its phase.
    pub phase: PilotPhase,
    /// The beginning of the attempt.
    pub started_at: Timestamp,
    /// The last event of the agent.
    pub last_event_at: Timestamp,
    /// The longest time of an attempt in this phase; none for acceptance.
    pub unit_timeout: Option<Duration>,
    /// The turns of the unit.
    pub progress: &'a ProgressWindow,
    /// The tokens of the context.
    pub context_used: u64,
    /// The most tokens of the context.
    pub context_max: u64,
    /// Set if the base of the branch has moved in another way than by the harness itself.
    pub has_diverged: bool,
    /// Units that it waits for and that are open again.
    pub reopened: &'a [UnitId],
    /// The newest fault of its model.
    pub model_fault: Option<ModelFault>,
    /// Set if the breaker of its model is open.
    pub is_circuit_open: bool,
    /// Set if its tier has another model that is not.
    pub has_other_model: bool,
}

/// The answer of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Nothing to do.
    Ok,
    /// Show it.
    Warn,
    /// Pause the loop, and wait for a person.
    Pause,
    /// End the attempt.
    Abort,
}

/// A check that is not content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckSignal {
    /// The name of the check.
    pub check: &'static str,
    /// Its answer.
    pub signal: Signal,
    /// The error code of the run, for [`Signal::Abort`].
    pub code: Option<FailureCode>,
}

/// A check: a name, and a function from a snapshot to a signal.
pub type Check = (&'static str, fn(&WorkSnapshot<'_>, &SupervisorLimits, Timestamp) -> Signal);

/// The nine checks.
pub const CHECKS: [Check; 9] = [
    ("stuck_loop", check_stuck),
    ("budget_warning", check_context),
    ("timeout", check_timeout),
    ("abandon_detect", check_silence),
    ("git_divergence", check_divergence),
    ("blocker", check_upstreams),
    ("model_unavailable", check_model),
    ("circuit_breaker", check_breaker),
    ("stall", check_stall),
];

/// Runs every check; returns the findings, the strongest first.
pub fn supervise_work(
    work: &WorkSnapshot<'_>,
    limits: &SupervisorLimits,
    now: Timestamp,
) -> Vec<CheckSignal> {
    let run = |(check, function): &Check| {
        let signal = function(work, limits, now);
        (signal != Signal::Ok).then(|| CheckSignal { check, signal, code: abort_code(check, signal) })
    };
    let mut findings: Vec<CheckSignal> = CHECKS.iter().filter_map(run).collect();
    // Of several, the one that ends most decides; the order of the checks settles the rest.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.signal));
    findings
}

/// Returns the error code of a run that a check ends.
fn abort_code(check: &str, signal: Signal) -> Option<FailureCode> {
    let code = match check {
        "timeout" => FailureCode::UnitTimeout,
        "stall" => FailureCode::Stalled,
        "model_unavailable" => FailureCode::ModelUnavailable,
        "circuit_breaker" => FailureCode::CircuitOpen,
        _ => FailureCode::CanceledBySupervisor,
    };
    (signal == Signal::Abort).then_some(code)
}

const fn signal_if(is_found: bool, signal: Signal) -> Signal {
    if is_found { signal } else { Signal::Ok }
}

fn check_stuck(work: &WorkSnapshot<'_>, limits: &SupervisorLimits, _: Timestamp) -> Signal {
    let window = work.progress;
    let is_stuck = window.count_fruitless() > limits.fruitless_turns
        || window.count_repeats() >= limits.repeats
        || window.count_idle() > limits.idle_turns;
    signal_if(is_stuck, Signal::Pause)
}

fn check_context(work: &WorkSnapshot<'_>, limits: &SupervisorLimits, _: Timestamp) -> Signal {
    if work.context_max == 0 {
        return Signal::Ok;
    }
    // Beyond 2^53 tokens a fraction is rounded, which no context reaches.
    #[expect(clippy::cast_precision_loss, reason = "numbers of tokens are far below 2^53")]
    let share = work.context_used as f64 / work.context_max as f64;
    signal_if(share >= limits.compact_at - 0.10 && share < limits.compact_at, Signal::Warn)
}

fn check_timeout(work: &WorkSnapshot<'_>, _: &SupervisorLimits, now: Timestamp) -> Signal {
    let is_over = work.unit_timeout.is_some_and(|most| now.time_since(work.started_at) > most);
    signal_if(is_over, Signal::Abort)
}

fn check_silence(work: &WorkSnapshot<'_>, limits: &SupervisorLimits, _: Timestamp) -> Signal {
    signal_if(work.progress.count_silent() >= limits.silent_turns, Signal::Pause)
}

const fn check_divergence(work: &WorkSnapshot<'_>, _: &SupervisorLimits, _: Timestamp) -> Signal {
    signal_if(work.has_diverged, Signal::Pause)
}

const fn check_upstreams(work: &WorkSnapshot<'_>, _: &SupervisorLimits, _: Timestamp) -> Signal {
    signal_if(!work.reopened.is_empty(), Signal::Pause)
}

const fn check_model(work: &WorkSnapshot<'_>, _: &SupervisorLimits, _: Timestamp) -> Signal {
    signal_if(matches!(work.model_fault, Some(ModelFault::Unavailable)), Signal::Abort)
}

const fn check_breaker(work: &WorkSnapshot<'_>, _: &SupervisorLimits, _: Timestamp) -> Signal {
    // Another model of the tier is taken at the next dispatch.
    signal_if(work.is_circuit_open && !work.has_other_model, Signal::Abort)
}

fn check_stall(work: &WorkSnapshot<'_>, limits: &SupervisorLimits, now: Timestamp) -> Signal {
    signal_if(now.time_since(work.last_event_at) > limits.stall_timeout, Signal::Abort)
}

/// Returns the longest time of an attempt in a phase, where the owner sets none (SF 14.2).
pub const fn default_unit_timeout(phase: PilotPhase) -> Option<Duration> {
    let minutes = match phase {
        PilotPhase::Research => 30,
        PilotPhase::Plan | PilotPhase::Reassess => 20,
        PilotPhase::Execute | PilotPhase::Review => 15,
        PilotPhase::Tdd | PilotPhase::Verify | PilotPhase::Complete => 10,
        PilotPhase::Merge => 5,
        // A person takes the time that it takes.
        PilotPhase::Uat => return None,
    };
    Some(Duration::from_secs(minutes * 60))
}

#[cfg(test)]
mod tests;
