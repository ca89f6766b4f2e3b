//! Random turns: nothing panics, everything is bounded, and folding is the same as running.

use std::sync::Arc;

use proptest::prelude::*;
use writ_agent::config::{AgentConfig, ContextConfig, TurnLimits};
use writ_agent::effect::Effect;
use writ_agent::event::{Event, EventKind, ModelFailure, StoredEvent, TextVerdict};
use writ_agent::route::{RouteDecision, TurnRoute};
use writ_agent::turn::{Phase, Turn};
use writ_types::chat::{StopReason, ToolCall, ToolOutcome};
use writ_types::error::Exit;
use writ_types::taint::Taint;
use writ_types::unit::{Timestamp, Tokens};

use crate::fixture::{
    Driver, ask, assert_paired, failed, memory, message, opened, reply, result, said, seed,
};

/// What happens next, whatever the phase: a few dice that choose an event and its data.
#[derive(Clone, Debug)]
struct Dice {
    kind: usize,
    fitting: bool,
    small: u8,
    size: usize,
}

fn dice() -> impl Strategy<Value = Dice> {
    (0..EventKind::ALL.len(), prop::bool::weighted(0.8), any::<u8>(), 0..3_000_usize)
        .prop_map(|(kind, fitting, small, size)| Dice { kind, fitting, small, size })
}

fn config() -> AgentConfig {
    let limits = TurnLimits {
        max_tool_calls_per_turn: 4,
        max_model_calls_per_turn: 5,
        max_calls_per_reply: 3,
        max_absorbed_messages: 2,
        max_turn_secs: 10,
        ..TurnLimits::default()
    };
    let (total_tokens, system_max) = (Tokens::new(3_000), Tokens::new(500));
    AgentConfig { context: ContextConfig { total_tokens, system_max, ..ContextConfig::default() }, limits }
}

/// The kind of event that the phase waits for.
fn awaited(phase: Phase, small: u8) -> EventKind {
    match phase {
        Phase::New | Phase::Finished => EventKind::Opened,
        Phase::JudgingInput => EventKind::InputJudged,
        Phase::Recording => EventKind::Recorded,
        Phase::Recalling => EventKind::Recalled,
        Phase::Routing => EventKind::Routed,
        Phase::CallingModel if small > 240 => EventKind::ModelFailed,
        Phase::CallingModel => EventKind::ModelReplied,
        Phase::Acting => EventKind::Acted,
        Phase::JudgingOutput => EventKind::OutputJudged,
        Phase::Delivering => EventKind::Delivered,
    }
}

fn event(dice: &Dice, driver: &Driver) -> Event {
    let Dice { small, size, .. } = *dice;
    let kind = if dice.fitting { awaited(driver.turn.phase(), small) } else { EventKind::ALL[dice.kind] };
    let text = "wörd ".repeat(size);
    let taint = if small % 3 == 0 { Taint::External } else { Taint::Owner };
    let verdict = match small % 8 {
        0 => TextVerdict::Block { reason: text.clone() },
        1 => TextVerdict::Transform { text: text.clone() },
        _ => TextVerdict::Pass,
    };
    let waiting = ask(if small % 2 == 0 { "aaaaaaaa" } else { "bbbbbbbb" });
    match kind {
        EventKind::Opened => {
            let mut seed = seed();
            seed.proxy = small % 2 == 0;
            seed.history =
                (0..small).map(|n| Arc::new(said(writ_types::chat::Role::User, &n.to_string()))).collect();
            opened(vec![message(1, &format!("go {text}"), taint)], seed, config())
        }
        EventKind::InputJudged => Event::InputJudged { verdict },
        EventKind::Recorded => Event::Recorded,
        EventKind::Recalled => Event::Recalled { hits: vec![memory(u128::from(small), &text, taint)] },
        EventKind::Routed => {
            let ways = [TurnRoute::Direct, TurnRoute::Clarify, TurnRoute::Act, TurnRoute::Planner];
            Event::Routed {
                decision: RouteDecision {
                    route: ways[usize::from(small % 4)],
                    reason: text.clone(),
                    response: (small % 3 != 0).then(|| text.clone()),
                    context_profile: (small % 5 == 0).then(|| "coding".to_owned()),
                    ..RouteDecision::without_proxy()
                },
            }
        }
        EventKind::ModelReplied => {
            let stop = match small % 12 {
                0 => StopReason::MaxTokens,
                1 => StopReason::ContentFilter,
                2 => StopReason::Other(text.clone()),
                3 | 4 => StopReason::EndTurn,
                _ => StopReason::ToolUse,
            };
            let names = ["shell_exec", "file_read", "nonsense \u{27e7}", ""];
            let call = |n: u8| ToolCall {
                id: format!("c{}", n % 3),
                name: names[usize::from(small.wrapping_add(n) % 4)].to_owned(),
                arguments: if n % 5 == 4 {
                    serde_json::json!(text)
                } else {
                    serde_json::json!({ "n": small % 3 })
                },
            };
            let calls = if stop == StopReason::EndTurn { 0 } else { small % 6 };
            Event::ModelReplied {
                reply: reply(stop, if small % 2 == 0 { "" } else { &text }, (0..calls).map(call).collect()),
            }
        }
        EventKind::ModelFailed if small % 2 == 0 => {
            Event::ModelFailed { failure: ModelFailure::SessionExhausted }
        }
        EventKind::ModelFailed => failed(Exit::Model, &text, ""),
        EventKind::Acted => {
            let outcomes = [
                ToolOutcome::Done,
                ToolOutcome::Failed,
                ToolOutcome::Denied,
                ToolOutcome::Waiting,
                ToolOutcome::Unknown,
                ToolOutcome::Simulated,
            ];
            let outcome = outcomes[usize::from(small % 6)];
            Event::Acted {
                result: driver.result(outcome, taint, &text),
                ask: (small % 7 != 0).then_some(waiting),
                ends: (small % 11 == 0).then(|| text.clone()),
            }
        }
        EventKind::Answered => {
            let outcome = if small % 4 == 0 { ToolOutcome::Waiting } else { ToolOutcome::Done };
            Event::Answered { ask: waiting, result: result("later", "shell_exec", outcome, taint, &text) }
        }
        EventKind::OutputJudged => Event::OutputJudged { verdict },
        EventKind::Delivered => Event::Delivered,
        EventKind::Arrived => Event::Arrived { message: message(u128::from(small), &text, taint) },
        EventKind::Cancel => Event::Cancel,
        EventKind::DeadlinePassed => Event::DeadlinePassed,
    }
}

/// Runs the dice; illegal events are part of it (the driver checks that they change nothing).
fn run(dice: &[Dice]) -> Driver {
    let mut driver = Driver::new();
    for dice in dice {
        driver.now = Timestamp::from_millis(driver.now.as_millis() + i64::from(dice.small));
        let event = event(dice, &driver);
        let legal = driver.try_feed(event).is_ok();
        if dice.fitting && !matches!(driver.turn.phase(), Phase::New | Phase::Finished | Phase::Acting) {
            assert!(legal, "an awaited event is legal");
        }
    }
    driver
}

fn check_effects(driver: &Driver) {
    let config = config();
    let deliveries = driver.delivered().len();
    let finishes = driver.effects.iter().filter(|effect| matches!(effect, Effect::Finish(_))).count();
    assert!(deliveries <= 1 && finishes <= 1, "one answer, one end");
    if let Some(place) = driver.effects.iter().position(|effect| matches!(effect, Effect::Finish(_))) {
        assert_eq!(place + 1, driver.effects.len(), "nothing comes after the end");
        assert_eq!((driver.turn.phase(), driver.turn.deadline()), (Phase::Finished, None));
    }
    assert!(driver.acts().len() <= 4, "the cap of tool calls");
    assert!(driver.requests().len() <= 5, "the cap of model calls");
    for call in driver.acts() {
        assert!(["shell_exec", "file_read"].contains(&call.name.as_str()) && call.arguments.is_object());
    }
    for request in driver.requests() {
        assert_paired(&request.messages);
        let chars: usize =
            request.messages.iter().map(|message| crate::fixture::text_of(message).chars().count()).sum();
        let room = usize::try_from(config.context.eviction_threshold().get() * 4).expect("small");
        assert!(chars <= room, "{chars} characters are more than {room}");
    }
    for effect in &driver.effects {
        if let Effect::Finish(finish) = effect {
            assert_paired(&finish.transcript);
            assert!(finish.answers.len() <= 3);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_turns_are_bounded_and_folding_equals_running(dice in prop::collection::vec(dice(), 1..40), at in any::<prop::sample::Index>()) {
        let driver = run(&dice);
        check_effects(&driver);
        prop_assume!(!driver.stored.is_empty());

        let at = at.index(driver.stored.len()) + 1;
        let stored: Vec<StoredEvent> = driver
            .stored
            .iter()
            .map(|event| StoredEvent::decode_json(&event.encode_json().expect("encodes")).expect("decodes"))
            .collect();
        prop_assert_eq!(&stored, &driver.stored);
        let (mut turn, mut due) = Turn::recover_turn(stored[..at].to_vec()).expect("recovers");
        for event in &stored[at..] {
            let mut out = Vec::new();
            turn.handle_event(event.event.clone(), event.at, &mut out).expect("legal before, legal now");
            if !out.is_empty() {
                due = out;
            }
        }
        prop_assert_eq!(turn, driver.turn);
        prop_assert_eq!(due, driver.due);
    }
}

/// The dice reach every phase: else the property above says little.
#[test]
fn the_dice_reach_every_phase() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let dice = prop::collection::vec(dice(), 1..40).new_tree(&mut runner).expect("a tree").current();
        seen.insert(run(&dice).turn.phase());
    }
    assert_eq!(seen.len(), 10, "{seen:?}");
}
