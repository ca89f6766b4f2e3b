//! The hooks of a project around the attempts at its units: their kinds, their times, and the meaning of their ends.

use std::time::Duration;

use serde::Deserialize;

use crate::failure::FailureCode;

/// The longest reason that is taken from a hook, in characters.
const MAX_REASON_CHARS: usize = 500;

/// The moment at which a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookKind {
    /// Before a unit is handed out. It can veto that.
    PreDispatch,
    /// When a workspace was made. If it fails, the workspace is removed again.
    AfterCreate,
    /// Before each attempt. If it fails, the attempt does not begin.
    BeforeRun,
    /// After each attempt, however that has ended.
    AfterRun,
    /// When a run has ended and its result is written.
    PostUnit,
    /// When a unit has moved to another phase.
    PhaseChange,
    /// Before a workspace is removed.
    BeforeRemove,
}

impl HookKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::PreDispatch,
        Self::AfterCreate,
        Self::BeforeRun,
        Self::AfterRun,
        Self::PostUnit,
        Self::PhaseChange,
        Self::BeforeRemove,
    ];

    /// Returns its name in settings and rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PreDispatch => "pre_dispatch",
            Self::AfterCreate => "after_create",
            Self::BeforeRun => "before_run",
            Self::AfterRun => "after_run",
            Self::PostUnit => "post_unit",
            Self::PhaseChange => "phase_change",
            Self::BeforeRemove => "before_remove",
        }
    }

    /// Returns the time limit of its scripts, where the settings name none (SF 10.3).
    pub const fn default_time(self) -> Duration {
        Duration::from_secs(match self {
            Self::PreDispatch => 15,
            Self::AfterCreate | Self::BeforeRun => 120,
            Self::AfterRun | Self::PhaseChange | Self::BeforeRemove => 30,
            Self::PostUnit => 60,
        })
    }

    /// Returns true if the scripts behind one that has not passed are left out: what they prepare does not begin.
    pub const fn stops_at_failure(self) -> bool {
        match self {
            Self::PreDispatch | Self::AfterCreate | Self::BeforeRun => true,
            Self::AfterRun | Self::PostUnit | Self::PhaseChange | Self::BeforeRemove => false,
        }
    }

    /// Returns true if a script that ends with a failure ends the session (SF 10.3).
    pub const fn ends_session(self) -> bool {
        matches!(self, Self::PreDispatch | Self::PostUnit)
    }

    /// Returns true for the hooks that run in the workspace of a unit; the others run in the project's own folder.
    pub const fn is_of_workspace(self) -> bool {
        match self {
            Self::AfterCreate | Self::BeforeRun | Self::AfterRun | Self::BeforeRemove => true,
            Self::PreDispatch | Self::PostUnit | Self::PhaseChange => false,
        }
    }
}

/// The end of a hook's script, as the sandbox reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookExit {
    /// It has ended by itself.
    Exited(i32),
    /// A signal has ended it.
    Killed(i32),
    /// Its time was over.
    TimedOut,
    /// It could not be run, for this reason.
    NotRun(String),
}

/// The meaning of a hook's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookJudgement {
    /// It lets everything go on.
    Passed,
    /// It vetoes the dispatch, for this reason.
    Blocked(String),
    /// It has failed.
    Failed(String),
    /// It was ended at its time limit.
    TimedOut(String),
    /// It could not be run.
    NotRun(String),
}

impl HookJudgement {
    /// Returns its name in rows.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Blocked(_) => "blocked",
            Self::Failed(_) => "failed",
            Self::TimedOut(_) => "timed_out",
            Self::NotRun(_) => "not_run",
        }
    }

    /// Returns its reason; empty if it has passed.
    pub fn reason(&self) -> &str {
        match self {
            Self::Passed => "",
            Self::Blocked(why) | Self::Failed(why) | Self::TimedOut(why) | Self::NotRun(why) => why,
        }
    }

    /// Returns the code of the error that it is for an attempt (SF 20.1).
    pub const fn code(&self) -> FailureCode {
        match self {
            Self::TimedOut(_) => FailureCode::HookTimeout,
            Self::Passed | Self::Blocked(_) | Self::Failed(_) | Self::NotRun(_) => FailureCode::HookFailed,
        }
    }
}

/// The answer of a hook that may veto.
#[derive(Deserialize)]
struct HookAnswer {
    decision: String,
    #[serde(default)]
    reason: String,
}

/// Judges the end of a hook's script.
pub fn judge_hook(kind: HookKind, exit: &HookExit, stdout: &str, limit: Duration) -> HookJudgement {
    match exit {
        HookExit::Exited(0) if kind == HookKind::PreDispatch => match read_veto(stdout) {
            Some(reason) => HookJudgement::Blocked(reason),
            None => HookJudgement::Passed,
        },
        HookExit::Exited(0) => HookJudgement::Passed,
        HookExit::Exited(code) => HookJudgement::Failed(format!("it has ended with {code}")),
        HookExit::Killed(signal) => HookJudgement::Failed(format!("signal {signal} has ended it")),
        HookExit::TimedOut => HookJudgement::TimedOut(format!("it was ended after {} s", limit.as_secs())),
        HookExit::NotRun(why) => HookJudgement::NotRun(why.clone()),
    }
}

/// Returns the reason of a veto: the last line of JSON that is one.
fn read_veto(stdout: &str) -> Option<String> {
    let line = stdout.lines().rev().find(|line| line.trim_start().starts_with('{'))?;
    let answer: HookAnswer = serde_json::from_str(line.trim()).ok()?;
    let reason: String = answer.reason.chars().filter(|c| !c.is_control()).take(MAX_REASON_CHARS).collect();
    let reason = if reason.is_empty() { "it gives no reason".to_owned() } else { reason };
    (answer.decision == "block").then_some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SF-199 (in part: the limits; there is no doc sync)
    #[test]
    fn each_kind_has_its_time() {
        let times = HookKind::ALL.map(|kind| (kind.name(), kind.default_time().as_secs()));
        assert_eq!(
            times,
            [
                ("pre_dispatch", 15),
                ("after_create", 120),
                ("before_run", 120),
                ("after_run", 30),
                ("post_unit", 60),
                ("phase_change", 30),
                ("before_remove", 30)
            ]
        );
    }

    #[test]
    fn only_a_hook_before_the_dispatch_can_veto() {
        let limit = Duration::from_secs(15);
        let judge = |kind, exit: HookExit, out: &str| judge_hook(kind, &exit, out, limit);
        let block = "checked\n{\"decision\":\"block\",\"reason\":\"not on fridays\"}\n";
        let blocked = HookJudgement::Blocked("not on fridays".to_owned());
        assert_eq!(judge(HookKind::PreDispatch, HookExit::Exited(0), block), blocked);
        for kind in HookKind::ALL.into_iter().filter(|kind| *kind != HookKind::PreDispatch) {
            assert_eq!(judge(kind, HookExit::Exited(0), block), HookJudgement::Passed, "{kind:?}");
        }
        for out in ["", "{", "{\"decision\":\"allow\"}", "{\"reason\":\"block\"}", "decision: block"] {
            assert_eq!(
                judge(HookKind::PreDispatch, HookExit::Exited(0), out),
                HookJudgement::Passed,
                "{out}"
            );
        }
        let failed = judge(HookKind::PreDispatch, HookExit::Exited(3), block);
        assert_eq!(
            (failed.name(), failed.code().name(), failed.reason()),
            ("failed", "hook_failed", "it has ended with 3")
        );
        let late = judge(HookKind::PreDispatch, HookExit::TimedOut, block);
        assert_eq!(
            (late.name(), late.code().name(), late.reason()),
            ("timed_out", "hook_timeout", "it was ended after 15 s")
        );
        let bare = judge(HookKind::PreDispatch, HookExit::Exited(0), "{\"decision\":\"block\"}");
        assert_eq!(bare.reason(), "it gives no reason");
    }
}
