use proptest::prelude::*;
use writ_types::unit::Timestamp;

use super::*;

fn key(n: u128) -> KeyId {
    KeyId::from_parts(Timestamp::from_millis(0), n)
}

fn assign(agent: &str, n: u128) -> CaseEvent {
    CaseEvent::Assign { agent: agent.to_owned(), key: key(n) }
}

fn escalate(target: &str, reason: &str) -> CaseEvent {
    let allowed = ["manager", "human"].map(str::to_owned).into();
    CaseEvent::Escalate { target: target.to_owned(), reason: reason.to_owned(), allowed }
}

fn after(events: Vec<CaseEvent>) -> CaseMachine {
    events.into_iter().fold(CaseMachine::default(), |at, event| at.apply_event(event).expect("applies").next)
}

/// Rows: SLO-008 SLO-049 (in part: as the machine decides)
#[test]
fn an_escalation_goes_where_the_key_says_and_nowhere_else() {
    let held = after(vec![assign("refund", 1)]);
    let step = held.apply_event(escalate("manager", "over $500 limit")).expect("granted");
    assert_eq!(step.next.state(), &CaseState::Escalating { target: Some("manager".into()) });
    assert_eq!(step.ended.as_ref(), held.holder(), "revoked before the next one has a key");
    assert_eq!(step.began, None);
    assert_eq!(
        held.apply_event(escalate("admin", "because")),
        Err(CaseFault::Target { target: "admin".into() })
    );
    assert_eq!(held.apply_event(escalate("manager", " ")), Err(CaseFault::Reason));
    let human = held.apply_event(escalate("human", "asks for a person")).expect("granted").next;
    assert_eq!(human.state(), &CaseState::Queued);
}

/// Rows: SLO-048 (in part: as the machine decides)
#[test]
fn the_agent_that_lost_a_case_is_known_unless_it_did_nothing_wrong() {
    let held = after(vec![assign("refund", 1)]);
    let lost = |cause| held.apply_event(CaseEvent::Lose(cause)).expect("held").next;
    for cause in [LossCause::Crash, LossCause::Silence, LossCause::Revoked, LossCause::Anomaly] {
        assert!(lost(cause).lost().contains("refund"), "{cause:?}");
        assert_eq!(lost(cause).state(), &CaseState::Escalating { target: None });
    }
    let innocent =
        [LossCause::Restart, LossCause::Deployed, LossCause::Taken, LossCause::Ended, LossCause::Full];
    for cause in innocent {
        assert!(lost(cause).lost().is_empty(), "{cause:?}");
    }
}

#[test]
fn a_case_that_goes_round_in_a_circle_ends_with_a_person() {
    let mut machine = CaseMachine::default();
    for n in 0..MAX_HOLDERS {
        machine = machine.apply_event(assign("a", n.into())).expect("another").next;
        machine = machine.apply_event(CaseEvent::Lose(LossCause::Restart)).expect("held").next;
    }
    assert_eq!(machine.apply_event(assign("a", 0)), Err(CaseFault::TooMany));
    let queued = machine.apply_event(CaseEvent::Queue).expect("to people").next;
    let taken = queued.apply_event(CaseEvent::Take { person: "owner".into() }).expect("taken").next;
    assert_eq!(taken.holder(), Some(&CaseHolder::Person { name: "owner".into() }));
}

fn any_event() -> impl Strategy<Value = CaseEvent> {
    let name = prop_oneof![Just("a"), Just("b"), Just("human"), Just("manager"), Just("admin")];
    let key = (0_u128..8).prop_map(key);
    let cause = prop_oneof![
        Just(LossCause::Crash),
        Just(LossCause::Silence),
        Just(LossCause::Revoked),
        Just(LossCause::Restart),
        Just(LossCause::Taken),
        Just(LossCause::Ended),
    ];
    prop_oneof![
        (name.clone(), key.clone())
            .prop_map(|(agent, key)| CaseEvent::Assign { agent: agent.to_owned(), key }),
        key.prop_map(|key| CaseEvent::Renew { key }),
        (name.clone(), prop_oneof![Just("over the limit"), Just("")])
            .prop_map(|(target, reason)| escalate(target, reason)),
        cause.prop_map(CaseEvent::Lose),
        Just(CaseEvent::Queue),
        name.clone().prop_map(|person| CaseEvent::Take { person: person.to_owned() }),
        name.prop_map(|target| CaseEvent::HandBack { target: Some(target.to_owned()) }),
        Just(CaseEvent::Close),
    ]
}

proptest! {
    /// The model has the intervals of holders alone: one ends before the next begins, in every order of events.
    ///
    /// Rows: SLO-050 SLO-053 (in part: as the machine decides)
    #[test]
    fn a_case_never_has_two_holders(events in prop::collection::vec(any_event(), 0..60)) {
        let mut machine = CaseMachine::default();
        let mut holders: Vec<CaseHolder> = Vec::new();
        let mut closed = false;
        for event in events {
            let Ok(step) = machine.apply_event(event) else { continue };
            prop_assert!(!closed, "nothing applies after the end");
            if let Some(ended) = &step.ended {
                let last = holders.pop();
                prop_assert_eq!(last.as_ref(), Some(ended), "only the holder's time ends");
            }
            holders.extend(step.began.clone());
            prop_assert!(holders.len() <= 1);
            prop_assert_eq!(step.next.holder(), holders.first());
            closed = step.next.state() == &CaseState::Closed;
            prop_assert!(!closed || holders.is_empty());
            machine = step.next;
        }
    }
}
