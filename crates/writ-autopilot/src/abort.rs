//! The order in which a running tool is ended: asked, then signalled, then killed. Signals are sent only while
//! it is still the same process.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use writ_types::unit::Timestamp;

/// A process, identified by its number and start time: the number alone may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessIdentity {
    /// Its number.
    pub pid: u32,
    /// The time of its start, in the system's own clock ticks since the boot.
    pub started: u64,
}

/// The times of the order (SF 9.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortTimes {
    /// From the request to the signal.
    pub grace: Duration,
    /// From the signal to the kill.
    pub kill: Duration,
}

impl Default for AbortTimes {
    fn default() -> Self {
        Self { grace: Duration::from_secs(5), kill: Duration::from_secs(3) }
    }
}

/// The next thing to do with the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortAction {
    /// Ask it to end.
    Cancel,
    /// Send SIGTERM to its group.
    Terminate,
    /// Send SIGKILL to its group.
    Kill,
    /// Nothing before this time.
    WaitUntil(Timestamp),
    /// Run the hook that follows the attempt, then release the attempt's place.
    Finish,
}

/// An abort under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolAbort {
    process: Option<ProcessIdentity>,
    /// The time of the request to end; none: not made yet.
    cancelled: Option<Timestamp>,
    /// The time of SIGTERM.
    terminated: Option<Timestamp>,
    /// True if SIGKILL was sent.
    killed: bool,
}

impl ToolAbort {
    /// Begins an abort. Without a process there is nothing to signal: the tool runs inside the engine.
    pub const fn of_process(process: Option<ProcessIdentity>) -> Self {
        Self { process, cancelled: None, terminated: None, killed: false }
    }

    /// Returns the next action; `seen` is the process that has the number now, if any.
    pub fn next_action(
        &mut self,
        seen: Option<ProcessIdentity>,
        times: AbortTimes,
        now: Timestamp,
    ) -> AbortAction {
        let Some(cancelled) = self.cancelled else {
            // Also without a process: a tool inside the engine ends by this request alone.
            self.cancelled = Some(now);
            return AbortAction::Cancel;
        };
        // If another process has the number, the tool's own has ended: nothing is sent.
        let is_alive = self.process.is_some() && seen == self.process;
        // Nothing is stronger than SIGKILL: a process that survives it is stuck in the kernel.
        if !is_alive || self.killed {
            return AbortAction::Finish;
        }
        let Some(terminated) = self.terminated else {
            let due = cancelled.plus_duration(times.grace);
            if now < due {
                return AbortAction::WaitUntil(due);
            }
            // Time counts from the decision, not from the sending, so the whole abort has a known end.
            self.terminated = Some(now);
            return AbortAction::Terminate;
        };
        let due = terminated.plus_duration(times.kill);
        if now < due {
            return AbortAction::WaitUntil(due);
        }
        self.killed = true;
        AbortAction::Kill
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOL: ProcessIdentity = ProcessIdentity { pid: 7, started: 100 };

    fn play(
        process: Option<ProcessIdentity>,
        seen: impl Fn(i64) -> Option<ProcessIdentity>,
    ) -> Vec<(i64, AbortAction)> {
        let mut abort = ToolAbort::of_process(process);
        let mut actions = Vec::new();
        for second in 0..20 {
            let now = Timestamp::from_millis(second * 1_000);
            let action = abort.next_action(seen(second), AbortTimes::default(), now);
            if !matches!(action, AbortAction::WaitUntil(_)) {
                actions.push((second, action));
            }
            if action == AbortAction::Finish {
                break;
            }
        }
        actions
    }

    /// Rows: SF-190 SF-191 (the order and its times; the processes need the shell)
    #[test]
    fn a_tool_is_asked_then_signalled_then_killed_after_eight_seconds() {
        use AbortAction::{Cancel, Finish, Kill, Terminate};
        assert_eq!(play(Some(TOOL), |_| Some(TOOL)), [(0, Cancel), (5, Terminate), (8, Kill), (9, Finish)]);
        assert_eq!(play(Some(TOOL), |second| (second < 2).then_some(TOOL)), [(0, Cancel), (2, Finish)]);
        assert_eq!(
            play(Some(TOOL), |second| (second < 7).then_some(TOOL)),
            [(0, Cancel), (5, Terminate), (7, Finish)]
        );
        assert_eq!(play(None, |_| None), [(0, Cancel), (1, Finish)]);
    }

    /// Its number is another program's by now: nothing is sent to it.
    #[test]
    fn a_process_that_only_has_the_number_is_left_alone() {
        let other = ProcessIdentity { started: 900, ..TOOL };
        let actions = play(Some(TOOL), |second| Some(if second < 6 { TOOL } else { other }));
        assert_eq!(
            actions,
            [(0, AbortAction::Cancel), (5, AbortAction::Terminate), (6, AbortAction::Finish)]
        );
    }
}
