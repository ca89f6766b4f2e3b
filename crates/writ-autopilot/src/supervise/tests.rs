use writ_types::digest::Digest;

use super::*;
use crate::progress::TurnTrace;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn snapshot(progress: &ProgressWindow) -> WorkSnapshot<'_> {
    WorkSnapshot {
        unit: UnitId::Task(1, 1, 1),
        phase: PilotPhase::Execute,
        started_at: at(0),
        last_event_at: at(0),
        unit_timeout: default_unit_timeout(PilotPhase::Execute),
        progress,
        context_used: 0,
        context_max: 100_000,
        has_diverged: false,
        reopened: &[],
        model_fault: None,
        is_circuit_open: false,
        has_other_model: false,
    }
}

/// The turns as pairs of calls and successes, each with calls of its own, in one tree.
fn window(turns: &[(u32, u32)]) -> ProgressWindow {
    let mut window = ProgressWindow::default();
    for (n, (calls, successes)) in turns.iter().enumerate() {
        let calls_digest = Digest::of_bytes(n.to_string().as_bytes());
        let turn =
            TurnTrace { phase: PilotPhase::Execute, calls: *calls, successes: *successes, calls_digest };
        window.add_turn(turn, Digest::of_bytes(b"tree"));
    }
    window
}

fn found(work: &WorkSnapshot<'_>, now: i64) -> Vec<(&'static str, Signal, Option<&'static str>)> {
    let findings = supervise_work(work, &SupervisorLimits::default(), at(now));
    findings
        .into_iter()
        .map(|finding| (finding.check, finding.signal, finding.code.map(FailureCode::name)))
        .collect()
}

#[test]
fn nine_checks_are_content_with_a_worker_that_works() {
    assert_eq!(CHECKS.len(), 9);
    let progress = window(&[(3, 2), (1, 1), (0, 0)]);
    assert_eq!(found(&snapshot(&progress), 60), []);
}

/// Rows: SF-179 SF-182 (the checks; the pause: the machine's tests)
#[test]
fn turns_without_a_success_or_without_a_call_pause() {
    let stuck = |turns: &[(u32, u32)]| found(&snapshot(&window(turns)), 1);
    let pause = |check| vec![(check, Signal::Pause, None)];
    assert_eq!(stuck(&[(1, 0); 5]), []);
    assert_eq!(stuck(&[(1, 0); 6]), pause("stuck_loop"));
    assert_eq!(stuck(&[(1, 0), (1, 0), (1, 0), (1, 0), (1, 0), (1, 1), (1, 0)]), [], "one success");
    assert_eq!(stuck(&[(0, 0); 2]), []);
    assert_eq!(stuck(&[(0, 0); 3]), pause("abandon_detect"));
    assert_eq!(stuck(&[(0, 0), (0, 0), (1, 0)]), []);
}

/// Successful calls that show the same again, and turns that leave the same tree, over any number of attempts.
#[test]
fn repeated_success_without_progress_pauses_too() {
    let mut same = ProgressWindow::default();
    for n in 1..=8 {
        let calls_digest = Digest::of_bytes(b"grep");
        same.add_turn(
            TurnTrace { phase: PilotPhase::Research, calls: 1, successes: 1, calls_digest },
            Digest::of_bytes(b"t"),
        );
        let is_stuck = !found(&snapshot(&same), 1).is_empty();
        assert_eq!(is_stuck, n == 8, "{n}");
    }
    let busy = window(&[(1, 1); 41]);
    assert_eq!(found(&snapshot(&busy), 1), []);
    let idle = window(&[(1, 1); 42]);
    assert_eq!(found(&snapshot(&idle), 1), [("stuck_loop", Signal::Pause, None)]);
}

/// Rows: SF-180 (the signal; shown once by the shell)
#[test]
fn a_context_near_its_compaction_warns() {
    let progress = ProgressWindow::default();
    let at_share = |used| found(&WorkSnapshot { context_used: used, ..snapshot(&progress) }, 1);
    assert_eq!(at_share(69_999), []);
    for used in [70_001, 79_999] {
        assert_eq!(at_share(used), [("budget_warning", Signal::Warn, None)]);
    }
    assert_eq!(at_share(80_000), [], "then it is compacted");
    assert_eq!(found(&WorkSnapshot { context_max: 0, ..snapshot(&progress) }, 1), []);
}

/// Rows: SF-181 SF-073 (the signals; the end of the attempt needs the shell) SF-305 (the defaults)
#[test]
fn time_that_is_over_and_silence_end_an_attempt() {
    let progress = ProgressWindow::default();
    let live = |phase, now: i64| {
        let work = snapshot(&progress);
        found(
            &WorkSnapshot {
                phase,
                unit_timeout: default_unit_timeout(phase),
                last_event_at: at(now),
                ..work
            },
            now,
        )
    };
    let timeout = vec![("timeout", Signal::Abort, Some("unit_timeout"))];
    assert_eq!(live(PilotPhase::Execute, 900), []);
    assert_eq!(live(PilotPhase::Execute, 901), timeout);
    assert_eq!(live(PilotPhase::Research, 1_800), []);
    assert_eq!(live(PilotPhase::Research, 1_801), timeout);
    assert_eq!(live(PilotPhase::Uat, 30 * 86_400), []);
    let minutes: Vec<u64> = PilotPhase::ALL
        .iter()
        .map(|phase| default_unit_timeout(*phase).map_or(0, |most| most.as_secs() / 60))
        .collect();
    assert_eq!(minutes, [30, 20, 15, 10, 10, 15, 5, 10, 20, 0]);
    let silent = |now| found(&snapshot(&progress), now);
    assert_eq!(silent(120), []);
    assert_eq!(silent(121), [("stall", Signal::Abort, Some("stalled"))]);
    // A clock that was set back ends nothing.
    assert_eq!(silent(-5_000), []);
}

/// Rows: SF-183 SF-184 (the signals) SF-185 SF-186 (the signals; the calls need the shell)
#[test]
fn branches_upstreams_and_models_are_watched() {
    let progress = ProgressWindow::default();
    let work = || snapshot(&progress);
    let upstream = [UnitId::Task(1, 1, 2)];
    assert_eq!(
        found(&WorkSnapshot { has_diverged: true, ..work() }, 1),
        [("git_divergence", Signal::Pause, None)]
    );
    assert_eq!(found(&WorkSnapshot { reopened: &upstream, ..work() }, 1), [("blocker", Signal::Pause, None)]);
    let fault = |fault| found(&WorkSnapshot { model_fault: Some(fault), ..work() }, 1);
    assert_eq!(
        fault(ModelFault::Unavailable),
        [("model_unavailable", Signal::Abort, Some("model_unavailable"))]
    );
    assert_eq!(fault(ModelFault::Transient), []);
    assert_eq!(fault(ModelFault::Other), []);
    let open = WorkSnapshot { is_circuit_open: true, ..work() };
    assert_eq!(found(&open, 1), [("circuit_breaker", Signal::Abort, Some("circuit_open"))]);
    assert_eq!(found(&WorkSnapshot { has_other_model: true, ..open }, 1), []);
}

#[test]
fn the_strongest_signal_comes_first() {
    let progress = window(&[(0, 0); 6]);
    let work = WorkSnapshot {
        context_used: 75_000,
        model_fault: Some(ModelFault::Unavailable),
        ..snapshot(&progress)
    };
    let signals: Vec<Signal> = found(&work, 1).into_iter().map(|(_, signal, _)| signal).collect();
    assert_eq!(signals, [Signal::Abort, Signal::Pause, Signal::Pause, Signal::Warn]);
}
