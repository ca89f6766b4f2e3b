//! Every event in every phase.

use writ_agent::event::{ContextSeed, Event, EventKind, ModelFailure, TextVerdict};
use writ_agent::route::RouteDecision;
use writ_agent::turn::{Phase, Why};
use writ_types::chat::{StopReason, ToolOutcome};
use writ_types::taint::Taint;

use crate::fixture::{Driver, ask, message, opened, reply, seed};

const PHASES: [Phase; 10] = [
    Phase::New,
    Phase::JudgingInput,
    Phase::Recording,
    Phase::Recalling,
    Phase::Routing,
    Phase::CallingModel,
    Phase::Acting,
    Phase::JudgingOutput,
    Phase::Delivering,
    Phase::Finished,
];

/// A turn in the given phase; from `CallingModel` on with one open ask.
fn in_phase(phase: Phase) -> Driver {
    if phase == Phase::New {
        return Driver::new();
    }
    let mut driver = Driver::new();
    let seed = ContextSeed { proxy: phase == Phase::Routing, ..seed() };
    driver.feed(opened(vec![message(1, "do it", Taint::Owner)], seed, Default::default()));
    for _ in 0..20 {
        let acts = driver.acts().len();
        let asked = phase < Phase::CallingModel || acts > usize::from(phase == Phase::Acting);
        if driver.turn.phase() == phase && asked {
            return driver;
        }
        match driver.turn.phase() {
            Phase::JudgingInput => driver.feed(Event::InputJudged { verdict: TextVerdict::Pass }),
            Phase::Recording => driver.feed(Event::Recorded),
            Phase::Recalling => driver.feed(Event::Recalled { hits: Vec::new() }),
            Phase::CallingModel if acts == 0 || phase == Phase::Acting => {
                driver.call("shell_exec", serde_json::json!({ "n": acts }));
            }
            Phase::CallingModel => driver.reply(StopReason::EndTurn, "done", Vec::new()),
            Phase::Acting => driver.wait_for(&ask("aaaaaaaa"), "asked"),
            Phase::JudgingOutput => driver.feed(Event::OutputJudged { verdict: TextVerdict::Pass }),
            Phase::Delivering => driver.feed(Event::Delivered),
            Phase::Routing => driver.feed(Event::Routed { decision: RouteDecision::without_proxy() }),
            Phase::New | Phase::Finished => {}
        }
    }
    panic!("{phase} was not reached");
}

/// An event of the kind, as fitting as it can be.
fn sample(kind: EventKind, driver: &Driver) -> Event {
    let verdict = TextVerdict::Pass;
    match kind {
        EventKind::Opened => opened(vec![message(9, "again", Taint::Owner)], seed(), Default::default()),
        EventKind::InputJudged => Event::InputJudged { verdict },
        EventKind::Recorded => Event::Recorded,
        EventKind::Recalled => Event::Recalled { hits: Vec::new() },
        EventKind::Routed => Event::Routed { decision: RouteDecision::without_proxy() },
        EventKind::ModelReplied => {
            Event::ModelReplied { reply: reply(StopReason::EndTurn, "hi", Vec::new()) }
        }
        EventKind::ModelFailed => Event::ModelFailed { failure: ModelFailure::SessionExhausted },
        EventKind::Acted => Event::Acted {
            result: driver.result(ToolOutcome::Done, Taint::Owner, "ok"),
            ask: None,
            ends: None,
        },
        EventKind::Answered => {
            let result = driver.result(ToolOutcome::Done, Taint::Owner, "ok");
            Event::Answered { ask: ask("aaaaaaaa"), result }
        }
        EventKind::OutputJudged => Event::OutputJudged { verdict },
        EventKind::Delivered => Event::Delivered,
        EventKind::Arrived => Event::Arrived { message: message(8, "and this", Taint::Owner) },
        EventKind::Cancel => Event::Cancel,
        EventKind::DeadlinePassed => Event::DeadlinePassed,
    }
}

/// One line per phase, one word per event: the phase that it leads to, `=` if none, `-` if it is illegal.
#[test]
fn every_pair_is_decided() {
    let mut table = String::new();
    for phase in PHASES {
        table.push_str(&format!("{phase}\n"));
        for kind in EventKind::ALL {
            let mut driver = in_phase(phase);
            assert_eq!(driver.turn.phase(), phase);
            if let Some(deadline) = driver.turn.deadline() {
                driver.now = deadline;
            }
            let event = sample(kind, &driver);
            let effects = driver.effects.len();
            let word = match driver.try_feed(event) {
                Ok(()) if driver.turn.phase() == phase && driver.effects.len() == effects => "=".to_owned(),
                Ok(()) => driver.turn.phase().to_string(),
                Err(illegal) => {
                    assert_eq!((illegal.phase, illegal.event), (phase, kind));
                    if illegal.why == Why::Order { "-".to_owned() } else { illegal.why.to_string() }
                }
            };
            table.push_str(&format!("  {:<15} {word}\n", kind.to_string()));
        }
    }
    insta::with_settings!({ snapshot_path => "../scripts", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("pairs", table);
    });
}
