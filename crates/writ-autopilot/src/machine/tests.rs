use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::phase::causes_between;
use crate::stand::UnitCounters;
use crate::workflow::{built_in_workflows, parse_workflow};

fn flow(name: &str) -> PhaseFlow {
    built_in_workflows().unwrap().into_iter().map(|(flow, _)| flow).find(|flow| flow.name == name).unwrap()
}

fn report(words: &[&str]) -> AttemptReport {
    let has = |word: &str| words.contains(&word);
    let end = RunEnd::ALL
        .into_iter()
        .find(|end| serde_json::to_value(end).unwrap() == words[0])
        .unwrap_or_else(|| panic!("no end {}", words[0]));
    let marker = TurnMarker::ALL
        .into_iter()
        .find(|marker| has(serde_json::to_value(marker).unwrap().as_str().unwrap()));
    AttemptReport { end, marker, has_progress: has("progress"), is_met: has("met") }
}

/// Reads one line of a script.
fn event(line: &str) -> UnitEvent {
    let words: Vec<&str> = line.split_whitespace().collect();
    let named = |text: &str| serde_json::Value::from(text);
    let verdict = |word: &&str| {
        let (gate, verdict) = word.split_once('=').unwrap();
        (gate.to_owned(), serde_json::from_value(named(verdict)).unwrap())
    };
    let reason = || "a reason".to_owned();
    match words[0] {
        "dispatch" => UnitEvent::Dispatch,
        "end" => UnitEvent::End(report(&words[1..])),
        "gates" => UnitEvent::Gates(words[1..].iter().map(verdict).collect()),
        "review" => UnitEvent::Review(serde_json::from_value(named(words[1])).unwrap()),
        "merge" => UnitEvent::Merge(match words[1] {
            "merged" => UnitMergeResult::Merged,
            "conflict" => UnitMergeResult::Conflict,
            "checks" => UnitMergeResult::ChecksFailed,
            _ => UnitMergeResult::BaseMoved,
        }),
        "replan" => UnitEvent::Reassess(ReassessDecision::Replan { plan: reason(), reason: reason() }),
        "abandon" => UnitEvent::Reassess(ReassessDecision::Abandon { reason: reason() }),
        "escalate" => UnitEvent::Reassess(ReassessDecision::Escalate { questions: vec![reason()] }),
        "halt" => UnitEvent::Halt,
        "pause" => UnitEvent::Pause(serde_json::from_value(named(words[1])).unwrap()),
        "resolve" => UnitEvent::Resolve(
            serde_json::from_value(named(words[1])).unwrap(),
            serde_json::from_value(named(words[2])).unwrap(),
        ),
        "cancel" => UnitEvent::Cancel,
        "upstream" => UnitEvent::UpstreamAbandoned,
        "restart" => UnitEvent::Restart,
        other => panic!("no event {other}"),
    }
}

fn blocker_text(blocker: &Blocker) -> String {
    let more = blocker.gate.clone().or_else(|| blocker.pause.map(|cause| format!("{cause:?}")));
    more.map_or_else(|| format!("{:?}", blocker.kind), |more| format!("{:?} {more}", blocker.kind))
}

/// Plays a script, and writes each line with what followed.
fn play(flow: &PhaseFlow, script: &str) -> String {
    let (limits, mut stand, mut out) =
        (UnitLimits::default(), UnitStand::at_start(&flow.phases), String::new());
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let made = match apply_event(flow, &limits, &stand, &event(line)) {
            Ok(made) => made,
            Err(error) => {
                writeln!(out, "{line:<40} ! {error}").unwrap();
                continue;
            }
        };
        let phase = format!("{} {:?}", made.stand.phase, made.stand.status).to_lowercase();
        write!(out, "{line:<40} {phase}").unwrap();
        if let Some(change) = made.change {
            write!(out, ", because {}", change.cause.name()).unwrap();
        }
        for opened in &made.opened {
            write!(out, " +[{}]", blocker_text(opened)).unwrap();
        }
        for (closed, by) in &made.resolved {
            write!(out, " -[{} by {}]", blocker_text(closed), by.recorded_name()).unwrap();
        }
        if made.pauses_loop {
            out.push_str(" loop pauses");
        }
        match made.next {
            NextTry::None => {}
            NextTry::Soon => out.push_str(" soon"),
            NextTry::AfterFailures(count) => write!(out, " after {count} failures").unwrap(),
        }
        out.push('\n');
        stand = made.stand;
    }
    writeln!(out, "{}", serde_json::to_string(&stand.counters).unwrap()).unwrap();
    out
}

const TO_VERIFY: &str = "dispatch\nend success complete met progress\ndispatch\nend success met\ndispatch\nend success met progress\ndispatch\nend success met\n";

/// A unit that needs nothing twice.
///
/// Rows: SF-077 (the moves; the rows of a run need the store)
#[test]
fn golden_a_clean_run() {
    let script = format!(
        "{TO_VERIFY}dispatch\ngates lint=pass test=pass docs=skip\ndispatch\nreview pass\ndispatch\nmerge merged\ndispatch"
    );
    insta::assert_snapshot!(play(&flow("feature"), &script));
}

/// Rows: SF-078 SF-246 (the move and the blocker; the frame and the row need the shell)
#[test]
fn golden_gates_fail_until_the_limit() {
    let again = "dispatch\nend success met\ndispatch\nend success met\n";
    let fail = "dispatch\ngates lint=pass test=fail\n";
    let script =
        format!("{TO_VERIFY}{fail}{again}{fail}{again}{fail}{again}{fail}dispatch\nreplan\nrestart\n");
    insta::assert_snapshot!(play(&flow("feature"), &script));
}

/// A gate that passes in between starts anew; one that blocks, or proves nothing, does not go on.
///
/// Rows: SF-242 (what follows each verdict)
#[test]
fn golden_gates_of_every_kind() {
    let again = "dispatch\nend success met\ndispatch\nend success met\n";
    let script = format!(
        "{TO_VERIFY}dispatch\ngates lint=fail test=not_run\n{again}dispatch\ngates lint=pass test=fail\n{again}\
         dispatch\ngates lint=skip test=skip\nresolve paused resume\ndispatch\ngates\nresolve paused resume\n\
         dispatch\ngates lint=pass test=block\ndispatch\nreplan"
    );
    insta::assert_snapshot!(play(&flow("feature"), &script));
}

/// Rows: SF-079 (the moves)
#[test]
fn golden_reviews_and_merges() {
    let work = "dispatch\nend success met\ndispatch\nend success met\ndispatch\ngates test=pass\n";
    let script = format!(
        "{TO_VERIFY}dispatch\ngates test=pass\ndispatch\nreview request_changes\n{work}dispatch\nreview block\n\
         dispatch\nresolve paused resume\n{work}dispatch\nreview pass\ndispatch\nmerge moved\ndispatch\nmerge conflict\n\
         dispatch\nresolve merge_conflict resume\nresolve merge_conflict merge-resolve\ndispatch\nmerge checks\n\
         dispatch\nabandon\nend success"
    );
    insta::assert_snapshot!(play(&flow("feature"), &script));
}

/// Rows: SF-094 (the halt; the board needs the shell) SF-095 (the moves)
#[test]
fn golden_a_person_accepts_or_rejects() {
    let review = format!("{TO_VERIFY}dispatch\ngates test=pass\ndispatch\nreview pass\ndispatch\n");
    let accepted = format!(
        "{review}restart\nresolve uat_pending resume\nresolve uat_pending uat-approve\nresolve uat_pending uat-approve"
    );
    let rejected = format!("{review}resolve uat_pending uat-reject\ndispatch\nreplan");
    insta::assert_snapshot!(format!(
        "{}\n{}",
        play(&flow("release"), &accepted),
        play(&flow("release"), &rejected)
    ));
}

/// Rows: SF-103 SF-106 (the counter; the file needs the shell) SF-105 (the pause and its resolution)
#[test]
fn golden_decisions_of_a_reassessment() {
    let lost = "dispatch\nend success giving_up\n";
    let script = format!(
        "{lost}dispatch\nreplan\n{lost}dispatch\nescalate\ndispatch\nresolve paused resume\n\
         resolve paused reassess-resolve\ndispatch\nreplan\n{lost}dispatch\nreplan\nescalate\n\
         resolve paused reassess-resolve\ndispatch\nabandon"
    );
    insta::assert_snapshot!(play(&flow("feature"), &script));
}

/// Failures of the same kind, a crash in between, and no end of clean attempts without progress.
///
/// Rows: SF-141 SF-143 (what follows; the turns need the shell)
#[test]
fn golden_failures_crashes_and_standstill() {
    let script = "dispatch\nend failure\ndispatch\nend stalled\ndispatch\nrestart\ndispatch\nend turn_timeout\n\
                  dispatch\nend unit_timeout\ndispatch\nend failure\ndispatch\nend failure\n\
                  dispatch\nend failure\ndispatch\nreplan\n\
                  dispatch\nend success\ndispatch\nend success complete\ndispatch\nend success progress\n\
                  dispatch\nend success\ndispatch\nend success\ndispatch\nend success\ndispatch\n\
                  resolve paused resume\ndispatch\nhalt\ndispatch\nhalt\nresolve paused resume\ndispatch\nend success blocked\n\
                  cancel\ndispatch\nresolve paused resume\nrestart";
    insta::assert_snapshot!(play(&flow("feature"), script));
}

/// A plan that rests on an abandoned unit is made anew; a unit without a plan goes on.
#[test]
fn golden_an_upstream_unit_is_abandoned() {
    let script = "upstream\ndispatch\nupstream\nend success met\ndispatch\nend success met\nupstream\ndispatch\nreplan";
    insta::assert_snapshot!(play(&flow("feature"), script));
    let waiting = format!("{TO_VERIFY}dispatch\ngates test=pass\ndispatch\nreview pass\nupstream");
    insta::assert_snapshot!(play(&flow("release"), &waiting));
}

/// Rows: SF-080 (the status; the row needs the store) SF-074 (no further try)
#[test]
fn cancelling_leaves_the_phase_and_is_never_tried_again() {
    let flow = flow("feature");
    for phase in PilotPhase::ALL.into_iter().filter(|phase| *phase != PilotPhase::Complete) {
        let mut stand = UnitStand::at_start(&flow.phases);
        (stand.phase, stand.status) = (phase, PhaseStatus::Running);
        let made = apply_event(&flow, &UnitLimits::default(), &stand, &UnitEvent::Cancel).unwrap();
        assert_eq!((made.stand.phase, made.stand.status, made.change), (phase, PhaseStatus::Canceled, None));
        assert_eq!(made.next, NextTry::None);
        let again = apply_event(&flow, &UnitLimits::default(), &made.stand, &UnitEvent::Dispatch);
        assert!(matches!(again, Err(MachineError::OutOfPlace { .. })));
    }
}

/// Every event of a worker, of the harness and of a person, at random.
fn any_event() -> impl Strategy<Value = UnitEvent> {
    let verdict = prop_oneof![
        Just(ScriptVerdict::Pass),
        Just(ScriptVerdict::Fail),
        Just(ScriptVerdict::Block),
        Just(ScriptVerdict::Skip),
        Just(ScriptVerdict::NotRun)
    ];
    let gates = prop::collection::vec((prop_oneof!["lint", "test"], verdict), 0..3);
    let report = (0..RunEnd::ALL.len(), prop::option::of(0..3_usize), any::<bool>(), any::<bool>()).prop_map(
        |(end, marker, has_progress, is_met)| AttemptReport {
            end: RunEnd::ALL[end],
            marker: marker.map(|at| TurnMarker::ALL[at]),
            has_progress,
            is_met,
        },
    );
    let line = prop_oneof![
        Just("review pass"),
        Just("review request_changes"),
        Just("review block"),
        Just("merge merged"),
        Just("merge conflict"),
        Just("merge checks"),
        Just("merge moved"),
        Just("replan"),
        Just("abandon"),
        Just("escalate"),
        Just("halt"),
        Just("upstream"),
        Just("restart"),
        Just("pause ceiling"),
    ];
    prop_oneof![
        4 => Just(UnitEvent::Dispatch),
        3 => report.prop_map(UnitEvent::End),
        2 => gates.prop_map(UnitEvent::Gates),
        5 => line.prop_map(event),
    ]
}

/// The slow model: the counters that must hold, counted from the moves alone.
#[derive(Default)]
struct Tally {
    dispatches: u32,
    replans: u32,
    sent_back: u32,
}

impl Tally {
    fn check(&mut self, flow: &PhaseFlow, before: &UnitStand, event: &UnitEvent, made: &UnitMove) {
        let is_dispatch = *event == UnitEvent::Dispatch && made.stand.status == PhaseStatus::Running;
        self.dispatches += u32::from(is_dispatch);
        assert_eq!(made.stand.counters.dispatches, self.dispatches);
        assert!(self.dispatches <= UnitLimits::default().max_dispatches, "no loop without a person");
        let Some(change) = made.change else {
            assert_eq!(made.stand.phase, before.phase);
            return;
        };
        assert_eq!((change.from, change.to), (before.phase, made.stand.phase));
        assert_eq!(check_move(&flow.phases, change.from, change.to, change.cause), Ok(()));
        self.replans += u32::from(change.cause == MoveCause::Replan);
        assert_eq!(made.stand.counters.replans, self.replans);
        assert!(self.replans <= flow.max_reassess);
        // Between two reassessments a gate and the review send back at most so often each.
        if matches!(change.cause, MoveCause::GateFailed | MoveCause::ChangesRequested) {
            self.sent_back += 1;
        } else if change.to == PilotPhase::Reassess {
            self.sent_back = 0;
        }
        // Two gates and the review between two passes of verify.
        assert!(self.sent_back <= flow.max_retries * 2 * (flow.max_retries + 1) + flow.max_retries);
        assert!(made.stand.counters.failures == 0 && made.stand.counters.idle_ends == 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// In any order of events: only moves of the table, no more tries than the limits allow, nothing after the end, and what is refused
    /// changes nothing. A person never acts here, so each script ends.
    ///
    /// Rows: SF-081 (in part: no refused event changes the unit)
    #[test]
    fn no_order_of_events_leaves_the_table_or_the_limits(
        which in 0..5_usize,
        events in prop::collection::vec(any_event(), 1..160),
    ) {
        let flow = built_in_workflows().unwrap().remove(which).0;
        let (limits, mut stand, mut tally) =
            (UnitLimits::default(), UnitStand::at_start(&flow.phases), Tally::default());
        for event in events {
            let before = stand.clone();
            match apply_event(&flow, &limits, &stand, &event) {
                Ok(made) => {
                    prop_assert!(!before.is_terminal() || made.stand == before, "nothing follows the end");
                    prop_assert!(!(before.is_held() && made.stand.status == PhaseStatus::Running
                        && before.status != PhaseStatus::Running), "a held unit is not handed out");
                    tally.check(&flow, &before, &event, &made);
                    let text = serde_json::to_string(&made.stand).unwrap();
                    prop_assert_eq!(&serde_json::from_str::<UnitStand>(&text).unwrap(), &made.stand);
                    stand = made.stand;
                }
                Err(_) => prop_assert_eq!(&stand, &before),
            }
            prop_assert!(stand.phase != PilotPhase::Uat || flow.require_uat);
        }
    }
}

/// The same with workflows of every legal shape.
#[test]
fn a_unit_of_a_workflow_without_gates_and_reviews_ends() {
    let flow = parse_workflow("mine", r#"phases = ["execute", "complete"]"#).unwrap();
    let out = play(&flow, "dispatch\nend success met\ndispatch");
    assert!(out.starts_with("dispatch                                 execute running\n"), "{out}");
    assert!(out.contains("complete succeeded, because advance"), "{out}");
    let lost = play(&flow, "dispatch\nend success giving_up\ndispatch\nreplan\nabandon");
    assert!(lost.contains("planned anew 0 times already"), "{lost}");
    assert!(lost.contains("complete failed, because abandon"), "{lost}");
}

/// The events of workers, gates, reviews, merges, decisions and people that can move a unit.
fn moving_events() -> Vec<UnitEvent> {
    let lines = [
        "end success met",
        "end success giving_up",
        "end failure",
        "gates test=pass",
        "gates test=fail",
        "gates test=block",
        "review pass",
        "review request_changes",
        "merge merged",
        "merge conflict",
        "merge checks",
        "replan",
        "abandon",
        "escalate",
        "halt",
        "upstream",
        "resolve uat_pending uat-approve",
        "resolve uat_pending uat-reject",
        "resolve merge_conflict force-clear",
        "restart",
        "cancel",
        "pause person",
    ];
    lines.into_iter().map(event).collect()
}

/// Of the hundred pairs of phases exactly those of the table come about, whatever happens to a unit in a workflow of just this pair.
/// What is refused is an error of its own type, and leaves nothing to be written or announced: there is no move.
///
/// Rows: SF-081
#[test]
fn no_event_moves_a_unit_between_phases_that_the_table_does_not_have() {
    let (limits, mut seen, mut refused) = (UnitLimits { max_attempts: 1, ..UnitLimits::default() }, 0, 0);
    for from in PilotPhase::ALL {
        for to in PilotPhase::ALL {
            let is_listed = !causes_between(from, to).is_empty();
            let flow = PhaseFlow { phases: vec![from, to], max_retries: 0, ..flow("feature") };
            let patient = PhaseFlow { max_retries: 3, ..flow.clone() };
            let mut stand = UnitStand::at_start(&[from]);
            stand.blockers =
                [BlockerKind::UatPending, BlockerKind::MergeConflict].map(Blocker::of_kind).to_vec();
            let mut is_seen = false;
            for status in PhaseStatus::ALL {
                stand.status = status;
                for (flow, event) in [&flow, &patient]
                    .into_iter()
                    .flat_map(|flow| moving_events().into_iter().map(move |one| (flow, one)))
                {
                    let reassesses = UnitLimits { reassess_conflicts: true, ..limits };
                    match apply_event(flow, &reassesses, &stand, &event) {
                        Ok(made) => {
                            let moved = made.change.map(|change| (change.from, change.to, change.cause));
                            assert_eq!(made.stand.phase, moved.map_or(from, |(_, to, _)| to), "{event:?}");
                            if let Some((was, is, cause)) = moved {
                                assert!(
                                    was == from && causes_between(was, is).contains(&cause),
                                    "{was}>{is}"
                                );
                                is_seen |= is == to;
                            }
                        }
                        Err(MachineError::Refused(error)) => {
                            assert!(
                                !causes_between(error.from, error.to).contains(&error.cause)
                                    || !flow.phases.contains(&error.to),
                                "{error}"
                            );
                            assert_eq!(
                                MachineError::Refused(error).report().code,
                                "pilot.invalid_transition"
                            );
                            refused += 1;
                        }
                        Err(_) => {}
                    }
                }
            }
            assert_eq!(is_seen, is_listed, "{from}>{to}");
            seen += 1;
        }
    }
    assert!(seen == 100 && refused > 0, "{refused}");
}

/// The exit status of a gate's script leads where the protocol says. Its failures are counted for the gate alone, and not for the
/// unit's attempts; a crash of a worker counts for no gate.
///
/// Rows: SF-242 SF-243
#[test]
fn the_exits_of_a_gate_lead_where_the_protocol_says_and_count_apart_from_attempts() {
    use crate::check::{ScriptExit, ScriptRun, judge_script};
    let (flow, limits) = (flow("feature"), UnitLimits::default());
    let at = |phase, counters: &UnitCounters| UnitStand {
        phase,
        status: PhaseStatus::Running,
        counters: counters.clone(),
        ..UnitStand::at_start(&flow.phases)
    };
    let exit = |end| {
        let run = ScriptRun { end, output: b"", reports: &[], runs_tests: false };
        vec![("lint".to_owned(), judge_script(&run).verdict), ("other".to_owned(), ScriptVerdict::Pass)]
    };
    let begun = UnitCounters { dispatches: 7, ..UnitCounters::default() };
    let run = |counters: &UnitCounters, end| {
        let event = UnitEvent::Gates(exit(end));
        let made = apply_event(&flow, &limits, &at(PilotPhase::Verify, counters), &event).unwrap();
        let counters = made.stand.counters.clone();
        assert_eq!((counters.dispatches, counters.failures), (7, 0), "no attempt is counted");
        (made.stand.phase.name(), made.change.map(|change| change.cause.name()), counters)
    };
    for (end, phase, cause, count) in [
        (ScriptExit::Exited(0), "review", "advance", None),
        (ScriptExit::Exited(1), "execute", "gate_failed", Some(1)),
        (ScriptExit::Exited(2), "reassess", "gate_blocked", None),
        (ScriptExit::Exited(3), "review", "advance", None),
        (ScriptExit::Exited(77), "execute", "gate_failed", Some(1)),
        (ScriptExit::Signalled(9), "execute", "gate_failed", Some(1)),
    ] {
        let (found, why, counters) = run(&begun, end);
        assert_eq!((found, why), (phase, Some(cause)), "{end:?}");
        assert_eq!(counters.gate_failures.get("lint").copied(), count, "{end:?}");
    }
    // It counts on over the work that mends, and the fourth failure is one too many.
    let mut counters = begun.clone();
    for n in 1..=3 {
        let (phase, _, after) = run(&counters, ScriptExit::Exited(1));
        assert_eq!((phase, after.gate_failures.get("lint")), ("execute", Some(&n)));
        let mended = UnitEvent::End(report(&["success", "met", "progress"]));
        let made = apply_event(&flow, &limits, &at(PilotPhase::Execute, &after), &mended).unwrap();
        assert_eq!(made.stand.counters.gate_failures, after.gate_failures, "the work does not reset it");
        counters = made.stand.counters;
    }
    let (phase, why, spent) = run(&counters, ScriptExit::Exited(1));
    assert_eq!((phase, why, spent.gate_failures.len()), ("reassess", Some("gates_exhausted"), 0));
    // A pass, and a move out of verify, begin anew.
    assert!(run(&counters, ScriptExit::Exited(0)).2.gate_failures.is_empty());
    for lost in ["end failure", "end stalled", "restart"] {
        let made = apply_event(&flow, &limits, &at(PilotPhase::Verify, &counters), &event(lost)).unwrap();
        assert_eq!(made.stand.counters.gate_failures, counters.gate_failures, "{lost}");
    }
}
