//! The supervisor's checks around the work on a unit: before it begins, while its attempt runs, and after its end.
//!
//! They read what the store, git and the ledger say. What an agent says about itself is no sign of anything.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use writ_autopilot::attempt::RunEnd;
use writ_autopilot::blocker::PauseCause;
use writ_autopilot::failure::FailureCode;
use writ_autopilot::machine::{AttemptReport, UnitEvent};
use writ_autopilot::progress::{ProgressWindow, TurnTrace};
use writ_autopilot::supervise::{Signal, SupervisorLimits, WorkSnapshot, supervise_work};
use writ_runtime::pilot::{AttemptCalls, AttemptSigns, AttemptWait, ContextBudget};
use writ_sandbox::git::commits::{is_ancestor, tree_of};
use writ_sandbox::git::refs::read_ref;
use writ_store::reads::UnitReads as _;
use writ_types::digest::Digest;
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use super::course::SeenBranch;
use super::{PhaseResult, WorkClaim, outcome_name};
use crate::config::PilotConfig;
use crate::error::{AutopilotError, PilotGitError};
use crate::project::OpenProject;
use crate::unit_files::UnitFile;

/// The time after a limit at which an attempt is looked at.
const LOOK_AFTER: Duration = Duration::from_millis(5);

/// Works on a unit in its phase under the eyes of the supervisor.
///
/// # Errors
///
/// If git, the engine or the store fail.
pub(super) async fn run_watched(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    stop: &CancellationToken,
) -> Result<PhaseResult, AutopilotError> {
    let before = read_branches(project, work).await?;
    if let Some(why) = find_divergence(project, work, before.as_ref()).await? {
        return Ok(paused(&why));
    }
    let result = match super::hooks::run_attempt(project, work, stop).await {
        Ok(result) => result,
        Err(error) => {
            // What it has committed is the autopilot's own too; the first error is the one that counts.
            if let Err(also) = note_branch(project, work).await {
                tracing::warn!(error = %also, "the branch of a failed attempt cannot be read");
            }
            return Err(error);
        }
    };
    let used = result.used;
    match judge_result(project, work, before, result).await {
        Ok(judged) => Ok(judged),
        // The attempt is paid for, also where the look at it has failed.
        Err(error) => Ok(PhaseResult { used, ..super::fault_result(&error) }),
    }
}

/// Notes where a unit's branch and its target are now, and returns it.
async fn note_branch(project: &OpenProject, work: &WorkClaim) -> Result<Option<SeenBranch>, AutopilotError> {
    let after = read_branches(project, work).await?;
    let own = project.work_of(work.unit.id).await?;
    project.seen.note_branch(own.branch.as_str(), after.clone());
    Ok(after)
}

/// Looks at what an attempt has left, on its branch and over the attempts before it.
async fn judge_result(
    project: &OpenProject,
    work: &WorkClaim,
    before: Option<SeenBranch>,
    result: PhaseResult,
) -> Result<PhaseResult, AutopilotError> {
    let after = note_branch(project, work).await?;
    // What was done is on the branch, and is judged once a person has looked.
    if let Some((before, after)) = before.zip(after)
        && let Some(why) = find_rewrite(project, &before, &after).await?
    {
        return Ok(PhaseResult { used: result.used, last_error: result.last_error, ..paused(&why) });
    }
    // An attempt that was ended from outside says nothing about its agent.
    let is_void = is_interrupted(&result.event) && !work.course.lost().is_empty();
    if project.hands.draining().is_cancelled() || is_void {
        return Ok(result);
    }
    judge_end(project, work, result).await
}

/// The result of work that waits for a person, since a check of the supervisor wants so.
fn paused(why: &str) -> PhaseResult {
    PhaseResult {
        event: UnitEvent::Pause(PauseCause::Supervisor),
        outcome: outcome_name(RunEnd::Canceled),
        code: Some(FailureCode::CanceledBySupervisor),
        reason: why.to_owned(),
        last_error: None,
        used: (Tokens::ZERO, Tokens::ZERO, MicroUsd::ZERO),
    }
}

/// Returns in words how the branch of a unit or its target has moved since the last step, in another way than by the autopilot itself.
async fn find_divergence(
    project: &OpenProject,
    work: &WorkClaim,
    now: Option<&SeenBranch>,
) -> Result<Option<String>, AutopilotError> {
    let own = project.work_of(work.unit.id).await?;
    // At its first step in this process nothing is known to have moved.
    let Some(seen) = project.seen.branch(own.branch.as_str()) else { return Ok(None) };
    let Some(now) = now else {
        return Ok(Some(format!("git_divergence: the branch '{}' was deleted", own.branch)));
    };
    if now.tip != seen.tip {
        let (was, is) = (seen.tip.short_form(), now.tip.short_form());
        let why =
            format!("the branch '{}' was at {was} and is at {is}: someone else has moved it", own.branch);
        return Ok(Some(format!("git_divergence: {why}")));
    }
    find_rewrite(project, &seen, now).await
}

/// Returns in words how the history of the target was rewritten. A commit on top of it is daily work, which the merge meets.
async fn find_rewrite(
    project: &OpenProject,
    before: &SeenBranch,
    now: &SeenBranch,
) -> Result<Option<String>, AutopilotError> {
    let git = project.git.project();
    if is_ancestor(git, &before.target, &now.target).await.map_err(PilotGitError::from)? {
        return Ok(None);
    }
    let (was, is) = (before.target.short_form(), now.target.short_form());
    let why = format!(
        "the history of '{}' was rewritten: it was at {was}, which {is} does not have",
        project.target
    );
    Ok(Some(format!("git_divergence: {why}")))
}

async fn read_branches(
    project: &OpenProject,
    work: &WorkClaim,
) -> Result<Option<SeenBranch>, AutopilotError> {
    let own = project.work_of(work.unit.id).await?;
    let found = project.git.read_branch(&own.branch).await.ok().flatten();
    let target =
        read_ref(project.git.project(), &project.target.to_ref()).await.map_err(PilotGitError::from)?;
    Ok(found.zip(target).map(|((_, tip), target)| SeenBranch { tip, target }))
}

/// Adds an attempt to the unit's window, and lets the checks judge it.
async fn judge_end(
    project: &OpenProject,
    work: &WorkClaim,
    result: PhaseResult,
) -> Result<PhaseResult, AutopilotError> {
    let (calls, finding) = (work.course.calls(), work.course.finding());
    let mut window = read_window(project, work)?;
    // With a finding its last turn is in the window already.
    if let Some(turn) = trace_calls(work, &calls).filter(|_| finding.is_none()) {
        window.add_turn(turn, read_tree(project, work).await?);
        write_window(project, work, &window)?;
    }
    // What a phase was to bring is there: then it does not matter how often it was tried.
    let moves_on = moves_on(&result.event);
    let found = match finding.filter(|_| !moves_on) {
        Some(why) => Some(why),
        None => find_pause(project, work, (&window, None), |check| check == "blocker" || !moves_on).await?,
    };
    let Some(why) = found else { return Ok(result) };
    let words = if result.reason.is_empty() { why } else { format!("{why}; at the end: {}", result.reason) };
    // Paid is paid, and the next attempt reads what was wrong.
    Ok(PhaseResult { used: result.used, last_error: result.last_error, ..paused(&words) })
}

/// Adds a turn that another one may follow to the unit's window, with the digest of what is changed and in no work tree yet. Returns
/// the finding for which there is none. A context that comes near its compaction is logged.
///
/// # Errors
///
/// If git or the store cannot be read, or the window cannot be written.
pub(super) async fn judge_turn(
    project: &OpenProject,
    work: &WorkClaim,
    (calls, pending): (&AttemptCalls, Option<Digest>),
    context: Option<ContextBudget>,
) -> Result<Option<String>, AutopilotError> {
    let mut window = read_window(project, work)?;
    if let Some(turn) = trace_calls(work, std::slice::from_ref(calls)) {
        let tree = read_tree(project, work).await?;
        let tree = pending.map_or(tree, |pending| Digest::of_bytes(format!("{tree}+{pending}").as_bytes()));
        window.add_turn(turn, tree);
        write_window(project, work, &window)?;
    }
    find_pause(project, work, (&window, context), |_| true).await
}

/// Returns the trace of calls that belong to one turn; `None` if no model has answered: it has neither worked nor talked.
fn trace_calls(work: &WorkClaim, calls: &[AttemptCalls]) -> Option<TurnTrace> {
    let has_answered = calls.iter().any(|one| one.models.iter().any(|(_, answered)| *answered));
    let sum = |of: fn(&AttemptCalls) -> u32| calls.iter().map(of).fold(0_u32, u32::saturating_add);
    let digests: String = calls.iter().map(|one| one.digest.to_string()).collect();
    has_answered.then(|| TurnTrace {
        phase: work.unit.stand.phase,
        calls: sum(|one| one.calls),
        successes: sum(|one| one.successes),
        calls_digest: Digest::of_bytes(digests.as_bytes()),
    })
}

/// Returns the words of a check, among those that count, which pauses the work on a unit.
async fn find_pause(
    project: &OpenProject,
    work: &WorkClaim,
    (window, context): (&ProgressWindow, Option<ContextBudget>),
    counts: impl Fn(&str) -> bool,
) -> Result<Option<String>, AutopilotError> {
    let (unit, config) = (&work.unit, project.config());
    let now = project.hands.now();
    let mut open = project.hands.store().unit_waits_for(unit.row.key.clone()).await?;
    open.retain(|id| !work.course.passed.contains(id));
    let reopened: Vec<_> = open.iter().filter_map(|id| id.parse().ok()).collect();
    let snapshot = WorkSnapshot {
        unit: unit.id,
        phase: unit.stand.phase,
        // A turn has ended: limits of time are watched while one runs.
        started_at: now,
        last_event_at: now,
        unit_timeout: None,
        progress: window,
        context_used: context.map_or(0, |context| context.used().get()),
        context_max: context.map_or(0, |context| context.max().get()),
        has_diverged: false,
        reopened: &reopened,
        model_fault: None,
        is_circuit_open: false,
        has_other_model: false,
    };
    let findings = supervise_work(&snapshot, &config.supervisor, now);
    for warning in findings.iter().filter(|one| one.signal == Signal::Warn) {
        tracing::warn!(unit = %unit.id, check = warning.check, "the supervisor warns");
    }
    let found = findings.iter().find(|one| one.signal >= Signal::Pause && counts(one.check));
    Ok(found.map(|found| describe(found.check, (window, &config.supervisor), &open)))
}

const fn is_interrupted(event: &UnitEvent) -> bool {
    matches!(event, UnitEvent::End(AttemptReport { end: RunEnd::Interrupted, .. }))
}

/// Returns true for an end that leads on: what a phase was to bring is there.
const fn moves_on(event: &UnitEvent) -> bool {
    if let UnitEvent::End(AttemptReport { end, is_met, .. }) = event {
        return matches!(end, RunEnd::Success) && *is_met;
    }
    true
}

fn describe(check: &str, (window, limits): (&ProgressWindow, &SupervisorLimits), open: &[String]) -> String {
    let why = match check {
        "blocker" => format!("{} is open again", open.join(", ")),
        "abandon_detect" => format!("{} turns in a row without one tool call", window.count_silent()),
        _ if window.count_repeats() >= limits.repeats => {
            format!("the same calls with the same results, {} times", window.count_repeats())
        }
        _ if window.count_fruitless() > limits.fruitless_turns => {
            format!("{} turns in a row without a tool call that succeeded", window.count_fruitless())
        }
        _ => {
            format!("{} turns without a state of the files that was not there before", window.count_idle())
        }
    };
    format!("{check}: {why}")
}

fn read_window(project: &OpenProject, work: &WorkClaim) -> Result<ProgressWindow, AutopilotError> {
    let text = project.files.read_file(work.unit.id, UnitFile::Progress)?;
    if text.trim().is_empty() {
        return Ok(ProgressWindow::default());
    }
    Ok(serde_json::from_str(&text).unwrap_or_else(|error| {
        tracing::warn!(unit = %work.unit.id, %error, "the window of the last attempts cannot be read, and begins anew");
        ProgressWindow::default()
    }))
}

fn write_window(
    project: &OpenProject,
    work: &WorkClaim,
    window: &ProgressWindow,
) -> Result<(), AutopilotError> {
    let text = serde_json::to_string(window).unwrap_or_default();
    project.files.write_file(work.unit.id, UnitFile::Progress, &text)
}

/// The digest of the files of a unit's branch.
async fn read_tree(project: &OpenProject, work: &WorkClaim) -> Result<Digest, AutopilotError> {
    let Some(seen) = read_branches(project, work).await? else { return Ok(Digest::of_bytes(b"")) };
    let tree = tree_of(project.git.project(), &seen.tip).await.map_err(PilotGitError::from)?;
    Ok(Digest::of_bytes(tree.to_string().as_bytes()))
}

/// The time of an attempt: that which it spends waiting for a person or for a place is not its own.
#[derive(Debug)]
pub(super) struct AttemptClock {
    spent: Duration,
    /// The time that it has waited for answers.
    asked: Duration,
    since: tokio::time::Instant,
    was_waiting_for: AttemptWait,
}

impl AttemptClock {
    pub(super) fn start() -> Self {
        let (spent, asked, since) = (Duration::ZERO, Duration::ZERO, tokio::time::Instant::now());
        Self { spent, asked, since, was_waiting_for: AttemptWait::Room }
    }

    /// Counts the time since the last look.
    pub(super) fn look(&mut self, signs: &AttemptSigns) -> Duration {
        let now = tokio::time::Instant::now();
        let passed = now.saturating_duration_since(self.since);
        match self.was_waiting_for {
            AttemptWait::Person | AttemptWait::Room => {}
            AttemptWait::Answer => self.asked = self.asked.saturating_add(passed),
            AttemptWait::Tool | AttemptWait::Program | AttemptWait::Model => {
                self.spent = self.spent.saturating_add(passed);
            }
        }
        self.since = now;
        self.was_waiting_for = signs.waits_for;
        self.spent
    }

    /// Returns the time that the attempt has waited for answers of a person.
    pub(super) const fn asked(&self) -> Duration {
        self.asked
    }
}

/// Returns how an attempt that runs is to end now, with the reason: its time, the time of its turn, or silence.
pub(super) fn find_end(
    config: &PilotConfig,
    (signs, spent, limit): (&AttemptSigns, Duration, Option<Duration>),
    now: Timestamp,
) -> Option<(RunEnd, String)> {
    let over = |what: &str, most: Duration| format!("{what}: {} s are over", most.as_secs());
    if let Some(limit) = limit.filter(|limit| spent >= *limit) {
        return Some((RunEnd::UnitTimeout, over("the time of its phase", limit)));
    }
    let stall = config.supervisor.stall_timeout;
    let turn = config.times.turn;
    match signs.waits_for {
        // A program has the time of its phase: its own commands may be long.
        AttemptWait::Answer | AttemptWait::Person | AttemptWait::Room | AttemptWait::Program => None,
        AttemptWait::Model if now.time_since(signs.last_at) > stall => {
            Some((RunEnd::Stalled, over("nothing has come from its model", stall)))
        }
        // A tool has a limit of its own; the whole turn has one, too.
        AttemptWait::Model | AttemptWait::Tool if now.time_since(signs.answered_at) > turn => {
            Some((RunEnd::TurnTimeout, over("the time of a turn", turn)))
        }
        AttemptWait::Model | AttemptWait::Tool => None,
    }
}

/// Returns the time until a running attempt is looked at again, if nothing comes from it: the supervisor's interval, and less where
/// one of its times is over before.
pub(super) fn next_look(
    config: &PilotConfig,
    (signs, spent, limit): (&AttemptSigns, Duration, Option<Duration>),
    now: Timestamp,
) -> Duration {
    let until = |from: Timestamp, time: Duration| {
        // A moment behind it, since a time is over once it has passed.
        time.saturating_sub(now.time_since(from)).saturating_add(LOOK_AFTER)
    };
    let mut rest = config.times.supervisor_interval;
    if let Some(limit) = limit {
        rest = rest.min(limit.saturating_sub(spent));
    }
    match signs.waits_for {
        AttemptWait::Answer | AttemptWait::Person | AttemptWait::Room | AttemptWait::Program => rest,
        AttemptWait::Model => {
            let silent = until(signs.last_at, config.supervisor.stall_timeout);
            rest.min(silent).min(until(signs.answered_at, config.times.turn))
        }
        AttemptWait::Tool => rest.min(until(signs.answered_at, config.times.turn)),
    }
}

#[cfg(test)]
mod tests {
    use writ_autopilot::phase::PilotPhase;

    use super::*;

    /// An attempt is looked at after the supervisor's interval, and as soon as one of its times is over.
    #[test]
    fn an_attempt_is_looked_at_in_the_supervisor_s_interval() {
        let config = PilotConfig::default();
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        let next = |config: &PilotConfig, waits_for, last_at, answered_at, spent| {
            let signs = AttemptSigns { waits_for, last_at: at(last_at), answered_at: at(answered_at) };
            let limit = Some(Duration::from_secs(900));
            next_look(config, (&signs, Duration::from_secs(spent), limit), at(1_000)).as_millis()
        };
        assert_eq!(next(&config, AttemptWait::Model, 1_000, 1_000, 0), 10_000);
        assert_eq!(next(&config, AttemptWait::Model, 885, 885, 115), 5_005, "soon it is silent for too long");
        assert_eq!(next(&config, AttemptWait::Tool, 885, 885, 115), 10_000);
        assert_eq!(next(&config, AttemptWait::Tool, 702, 702, 298), 2_005);
        assert_eq!(next(&config, AttemptWait::Person, 0, 0, 897), 3_000);
        let mut hasty = config;
        hasty.times.supervisor_interval = Duration::from_secs(1);
        assert_eq!(next(&hasty, AttemptWait::Model, 1_000, 1_000, 0), 1_000);
    }

    /// Each phase ends at its own time and not before; acceptance waits for a person without an end.
    ///
    /// Rows: SF-305
    #[test]
    fn phases_end_at_their_own_times() {
        let config = PilotConfig::default();
        let signs = AttemptSigns {
            waits_for: AttemptWait::Model,
            last_at: Timestamp::from_millis(0),
            answered_at: Timestamp::from_millis(0),
        };
        let minutes = |phase: PilotPhase| {
            let limit = config.times.unit_timeout(phase);
            // A month, in seconds: every limit is shorter.
            let ends_at = |spent: &u64| {
                find_end(&config, (&signs, Duration::from_secs(*spent), limit), signs.last_at)
                    .is_some_and(|(end, _)| end == RunEnd::UnitTimeout)
            };
            (0..=30 * 86_400).step_by(60).find(ends_at).map(|spent| {
                assert!(!ends_at(&(spent - 1)), "{phase:?}");
                spent / 60
            })
        };
        use PilotPhase::{Execute, Merge, Plan, Reassess, Research, Review, Tdd, Uat, Verify};
        let all = [Research, Plan, Execute, Tdd, Verify, Review, Merge, Reassess, Uat].map(minutes);
        let expected = [Some(30), Some(20), Some(15), Some(10), Some(10), Some(15), Some(5), Some(20), None];
        assert_eq!(all, expected);
        assert!(!PilotPhase::Uat.has_worker(), "it holds no worker while it waits");
        let own = crate::config::read_config(&[(
            "f",
            "[pilot]\nunit_timeout = \"2m\"\n[pilot.unit_timeout_by_phase]\nplan = \"90s\"",
        )]);
        let own = own.expect("reads").times;
        let of = |phase| own.unit_timeout(phase).map(|limit| limit.as_secs());
        assert_eq!((of(Plan), of(Execute), of(PilotPhase::Complete)), (Some(90), Some(900), Some(120)));
    }

    /// A silent model, a turn without an end, and an attempt beyond its time are ended; one that waits for a person or a place is
    /// not, however long that takes.
    #[test]
    fn only_an_attempt_that_acts_itself_runs_out_of_time() {
        let config = PilotConfig::default();
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        let ends = |waits_for, last_at, answered_at, spent| {
            let signs = AttemptSigns { waits_for, last_at: at(last_at), answered_at: at(answered_at) };
            let limit = Some(Duration::from_secs(900));
            find_end(&config, (&signs, Duration::from_secs(spent), limit), at(1_000)).map(|(end, _)| end)
        };
        assert_eq!(ends(AttemptWait::Model, 880, 880, 120), None);
        assert_eq!(ends(AttemptWait::Model, 879, 879, 121), Some(RunEnd::Stalled));
        // A long program is no stall; a turn that never ends is one too many.
        assert_eq!(ends(AttemptWait::Tool, 700, 700, 300), None);
        assert_eq!(ends(AttemptWait::Tool, 699, 699, 301), Some(RunEnd::TurnTimeout));
        assert_eq!(ends(AttemptWait::Model, 1_000, 699, 301), Some(RunEnd::TurnTimeout));
        for waits_for in [AttemptWait::Person, AttemptWait::Room, AttemptWait::Program] {
            assert_eq!(ends(waits_for, 0, 0, 0), None);
        }
        for waits_for in [AttemptWait::Model, AttemptWait::Program] {
            assert_eq!(ends(waits_for, 1_000, 1_000, 900), Some(RunEnd::UnitTimeout));
        }
    }

    /// The usual time of a unit ends its attempt, and the time of a phase where that has one of its own.
    ///
    /// Rows: SF-181
    #[test]
    fn an_attempt_has_the_time_of_its_phase_or_that_of_units() {
        use writ_autopilot::phase::PilotPhase;
        let config = PilotConfig::default();
        let now = Timestamp::from_millis(0);
        let signs = AttemptSigns { waits_for: AttemptWait::Tool, last_at: now, answered_at: now };
        let end = |phase, minutes: u64| {
            let spent = Duration::from_secs(minutes * 60);
            find_end(&config, (&signs, spent, config.times.unit_timeout(phase)), now).map(|(end, _)| end)
        };
        // A phase without a time of its own.
        assert_eq!(
            (end(PilotPhase::Complete, 9), end(PilotPhase::Complete, 11)),
            (None, Some(RunEnd::UnitTimeout))
        );
        assert_eq!(
            (end(PilotPhase::Research, 11), end(PilotPhase::Research, 30)),
            (None, Some(RunEnd::UnitTimeout))
        );
    }
}
