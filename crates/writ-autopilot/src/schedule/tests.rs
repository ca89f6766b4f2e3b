use super::*;
use crate::stand::UnitStand;

fn candidate(id: UnitId, phase: PilotPhase) -> Candidate {
    Candidate {
        id,
        phase,
        status: PhaseStatus::Pending,
        priority: None,
        created_at: Timestamp::from_millis(0),
        not_before: None,
        open_upstreams: 0,
        is_held: false,
        is_claimed: false,
    }
}

/// Returns units that are slices; each has a folder of its own, so none waits for another's.
fn units(count: u32, phase: PilotPhase) -> Vec<Candidate> {
    (1..=count).map(|n| candidate(UnitId::Slice(1, n), phase)).collect()
}

fn choose(candidates: &[Candidate], running: &[RunningUnit]) -> TickChoice {
    choose_units(candidates, running, &AgentCaps::default(), false, Timestamp::from_millis(10_000))
}

/// Compares one pair of units for each key of the order; the first of a pair comes first.
///
/// Rows: SF-123
#[test]
fn units_are_ordered_by_five_keys() {
    use PilotPhase::{Execute, Plan, Verify};
    let base = candidate(UnitId::Slice(1, 2), Execute);
    let pairs = [
        // An urgent unit comes first, even if it is blocked, in a later phase or newer; even a low priority comes before none.
        (
            Candidate { priority: Some(1), open_upstreams: 1, phase: Verify, ..base.clone() },
            Candidate { priority: Some(2), ..base.clone() },
        ),
        (Candidate { priority: Some(4), open_upstreams: 1, ..base.clone() }, base.clone()),
        (
            Candidate { phase: Verify, ..base.clone() },
            Candidate { open_upstreams: 2, phase: Plan, ..base.clone() },
        ),
        (Candidate { phase: Plan, created_at: Timestamp::from_millis(9), ..base.clone() }, base.clone()),
        (base.clone(), Candidate { created_at: Timestamp::from_millis(1), ..base.clone() }),
        (Candidate { id: UnitId::Slice(1, 10), ..base.clone() }, base.clone()),
    ];
    for (first, second) in pairs {
        assert_eq!(compare_candidates(&first, &second), Ordering::Less, "{first:?} {second:?}");
        assert_eq!(compare_candidates(&second, &first), Ordering::Greater);
    }
}

/// A change of priority counts at the next tick: no order is carried over.
///
/// Rows: SF-124
#[test]
fn the_order_is_made_anew_each_tick() {
    let mut all = units(6, PilotPhase::Execute);
    let first = choose(&all, &[]).dispatch;
    all[5].priority = Some(1);
    let second = choose(&all, &[]).dispatch;
    assert_ne!(first, second);
    assert_eq!(second.first(), Some(&UnitId::Slice(1, 6)));
}

/// Rows: SF-134 SF-135 SF-136 (the choice; section 14's review 4 and merge 1)
/// Rows: SF-306
#[test]
fn no_more_workers_run_than_a_phase_and_all_together_may_have() {
    use PilotPhase::{Execute, Merge, Plan, Reassess, Research, Review, Tdd, Verify};
    for (phase, most) in [
        (Execute, 4),
        (Tdd, 4),
        (Verify, 10),
        (Review, 4),
        (Merge, 1),
        (Plan, 10),
        (Research, 10),
        (Reassess, 10),
    ] {
        let choice = choose(&units(20, phase), &[]);
        assert_eq!(choice.dispatch.len(), most, "{phase}");
    }
    // A phase with no free worker does not hold up the units of another phase.
    let mut mixed = units(10, Execute);
    mixed.extend((11..=14).map(|n| candidate(UnitId::Slice(1, n), Verify)));
    let choice = choose(&mixed, &[]);
    assert_eq!(choice.dispatch.len(), 8);
    assert!(choice.waiting.iter().all(|(_, reason)| *reason == WaitReason::PhaseCap));
    // Units that run already count towards the limits.
    let running: Vec<RunningUnit> =
        (50..59).map(|n| RunningUnit { id: UnitId::Slice(1, n), phase: Verify }).collect();
    let choice = choose(&units(5, Execute), &running);
    assert_eq!(choice.dispatch.len(), 1);
    assert_eq!(choice.waiting.last().map(|(_, reason)| *reason), Some(WaitReason::TotalCap));
    for broken in [
        AgentCaps { max_agents: 0, ..AgentCaps::default() },
        AgentCaps { by_phase: BTreeMap::from([(Plan, 0)]), ..AgentCaps::default() },
    ] {
        assert_eq!(broken.check(), Err(CapsError::Zero));
    }
    let merges = AgentCaps { by_phase: BTreeMap::from([(Merge, 2)]), ..AgentCaps::default() };
    assert_eq!(merges.check(), Err(CapsError::SeveralMerges));
    assert_eq!(AgentCaps::default().check(), Ok(()));
    let bare = AgentCaps { by_phase: BTreeMap::new(), ..AgentCaps::default() };
    assert_eq!(
        choose_units(&units(3, Merge), &[], &bare, false, Timestamp::from_millis(0)).dispatch.len(),
        1
    );
}

/// Rows: SF-125 SF-128 (the choice; the store counts the upstreams)
#[test]
fn each_reason_holds_a_unit_and_nothing_else_does() {
    let free = candidate(UnitId::Slice(1, 1), PilotPhase::Execute);
    assert_eq!(choose(std::slice::from_ref(&free), &[]).dispatch, [free.id]);
    let later = Some(Timestamp::from_millis(10_001));
    for (unit, reason) in [
        (Candidate { status: PhaseStatus::Running, ..free.clone() }, WaitReason::NoWorker),
        (Candidate { status: PhaseStatus::Canceled, ..free.clone() }, WaitReason::NoWorker),
        (Candidate { phase: PilotPhase::Uat, ..free.clone() }, WaitReason::NoWorker),
        (Candidate { phase: PilotPhase::Complete, ..free.clone() }, WaitReason::NoWorker),
        (Candidate { is_held: true, ..free.clone() }, WaitReason::Held),
        (Candidate { is_claimed: true, ..free.clone() }, WaitReason::Claimed),
        (Candidate { open_upstreams: 1, ..free.clone() }, WaitReason::Upstream),
        (Candidate { not_before: later, ..free.clone() }, WaitReason::NotYet),
    ] {
        assert_eq!(choose(std::slice::from_ref(&unit), &[]).waiting, [(free.id, reason)], "{unit:?}");
    }
    let due = Candidate {
        not_before: Some(Timestamp::from_millis(10_000)),
        status: PhaseStatus::Failed,
        ..free.clone()
    };
    assert_eq!(choose(&[due], &[]).dispatch, [free.id]);
    let paused = choose_units(
        std::slice::from_ref(&free),
        &[],
        &AgentCaps::default(),
        true,
        Timestamp::from_millis(0),
    );
    assert_eq!(paused.waiting, [(free.id, WaitReason::LoopPaused)]);
}

#[test]
fn tasks_of_one_slice_work_one_after_another() {
    let task = |slice, n| candidate(UnitId::Task(1, slice, n), PilotPhase::Execute);
    let choice = choose(&[task(1, 1), task(1, 2), task(2, 1)], &[]);
    assert_eq!(choice.dispatch, [UnitId::Task(1, 1, 1), UnitId::Task(1, 2, 1)]);
    assert_eq!(choice.waiting, [(UnitId::Task(1, 1, 2), WaitReason::Workspace)]);
    // A slice and its tasks share one folder; each task without a slice has a folder of its own.
    let running = [RunningUnit { id: UnitId::Slice(1, 2), phase: PilotPhase::Verify }];
    assert_eq!(choose(&[task(2, 1)], &running).waiting, [(UnitId::Task(1, 2, 1), WaitReason::Workspace)]);
    let ad_hoc = [1, 2].map(|n| candidate(UnitId::of_ad_hoc(n), PilotPhase::Execute));
    assert_eq!(choose(&ad_hoc, &[]).dispatch.len(), 2);
}

#[test]
fn a_tick_looks_at_a_bounded_number_of_units() {
    let many: Vec<Candidate> =
        (1..=5_000).map(|n| candidate(UnitId::Slice(1, n), PilotPhase::Plan)).collect();
    let choice = choose(&many, &[]);
    assert_eq!(choice.dispatch.len() + choice.waiting.len(), MAX_CANDIDATES);
}

/// Rows: SF-138
#[test]
fn the_pause_after_a_failure_doubles_up_to_the_limit() {
    let most = Duration::from_secs(300);
    let seconds: Vec<u64> = (0..=7).map(|failures| backoff_delay(failures, most).as_secs()).collect();
    assert_eq!(seconds, [0, 20, 40, 80, 160, 300, 300, 300]);
    assert_eq!(backoff_delay(u32::MAX, most), most);
    assert_eq!(backoff_delay(2, Duration::from_secs(30)).as_secs(), 30, "attempt 3");
}

/// Rows: SF-137 (the time; the session needs the shell)
#[test]
fn a_clean_end_goes_on_after_a_second_and_a_provider_can_ask_for_more() {
    let (now, most) = (Timestamp::from_millis(1_000), Duration::from_secs(300));
    let at = |next, provider: Option<i64>| {
        next_try_at(next, most, provider.map(Timestamp::from_millis), now).map(Timestamp::as_millis)
    };
    assert_eq!(at(NextTry::Soon, None), Some(2_000));
    assert_eq!(at(NextTry::None, Some(5_000)), None);
    assert_eq!(at(NextTry::AfterFailures(1), None), Some(21_000));
    assert_eq!(at(NextTry::AfterFailures(1), Some(3_600_000)), Some(3_600_000));
    assert_eq!(at(NextTry::AfterFailures(1), Some(0)), Some(21_000), "a provider cannot shorten the wait");
    assert_eq!(at(NextTry::Soon, Some(i64::MAX)), Some(86_401_000));
}

/// Every phase with every status: a unit is over when it is complete or cancelled and at no other place, what is over is never handed
/// out, and what waits for a unit waits until that is over. A unit that is being decided about is none, so it holds others up.
///
/// Rows: SF-126
#[test]
fn nothing_but_complete_and_cancelled_is_an_end() {
    let (upstream, waiting) = (UnitId::Slice(1, 1), UnitId::Slice(1, 2));
    let mut held_up = 0;
    for phase in PilotPhase::ALL {
        for status in PhaseStatus::ALL {
            let stand = UnitStand { status, ..UnitStand::at_start(&[phase]) };
            let is_over = phase == PilotPhase::Complete || status == PhaseStatus::Canceled;
            assert_eq!(stand.is_terminal(), is_over, "{phase:?} {status:?}");
            let own = Candidate { status, ..candidate(upstream, phase) };
            let other = Candidate {
                open_upstreams: u32::from(!stand.is_terminal()),
                ..candidate(waiting, PilotPhase::Execute)
            };
            let choice = choose(&[own, other], &[]);
            assert!(!is_over || !choice.dispatch.contains(&upstream), "{phase:?} {status:?}");
            assert_eq!(choice.dispatch.contains(&waiting), is_over, "{phase:?} {status:?}");
            held_up += usize::from(!is_over);
        }
    }
    assert_eq!(held_up, (PilotPhase::ALL.len() - 1) * (PhaseStatus::ALL.len() - 1));
    let decided = candidate(upstream, PilotPhase::Reassess);
    assert_eq!(choose(&[decided], &[]).dispatch, [upstream], "it is worked on, so it is no end");
}
