//! What an agent decides by itself, what waits for its person, and what no person is asked at all.

use serde_json::json;
use writ_inspect::gate::{GateConfig, GateSet};
use writ_runtime::engine::Joined;
use writ_store::reads::TurnReads as _;
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::entry::Fact;
use writ_types::error::Exit;
use writ_types::frame::{Choice, ServerFrame};
use writ_types::id::AskId;
use writ_types::interaction::InteractionMode;
use writ_types::taint::Taint;

use crate::harness::{ASK_REMEMBER, OWNER, TestEngine, rules};
use crate::work::approve;

/// A choice is open, and can be undone: the agent takes green, as it was instructed, and offers the other.
fn remembering(request: &ParsedRequest) -> Reply {
    match request.results().next() {
        None => Reply::call("memory_store", json!({ "text": "The tea is green." })),
        Some(_) => Reply::text("The tea is green. Say so if it is to be black."),
    }
}

fn remembered(engine: &TestEngine) -> usize {
    let intents = engine.facts("intent").into_iter();
    intents
        .filter(|fact| matches!(fact, Fact::Intent { action, .. } if action.kind().as_str() == "remember"))
        .count()
}

/// What the owner's rules leave free goes on with the default and offers the change; what they ask about waits, and is done once it
/// is approved.
///
/// Rows: SIL-340
#[test]
fn below_the_threshold_the_default_is_taken_and_above_it_a_person_is_waited_for() {
    let offer = InteractionMode::DefaultAndOffer;
    let free = TestEngine::new("", |_| remembering);
    free.runtime.block_on(async {
        let (exit, text) = free.say(None, "note the tea").await;
        assert_eq!((exit, text.as_str()), (Exit::Done, "The tea is green. Say so if it is to be black."));
        let turn = free.store.newest_turn(None).await.expect("reads").expect("a turn");
        assert_eq!(turn.mode, offer);
    });
    let request = free.server.recorded_requests().swap_remove(0).body.to_string();
    assert!(request.contains(offer.instruction()), "{request}");
    assert_eq!((free.facts("asked").len(), remembered(&free)), (0, 1));
    free.end();

    let asking = TestEngine::new(ASK_REMEMBER, |_| remembering);
    asking.runtime.block_on(async {
        let (exit, _) = asking.say(None, "note the tea").await;
        assert_eq!((exit, remembered(&asking)), (Exit::Waiting, 0), "it waits");
        let asked = asking.facts("asked");
        let [Fact::Asked { ask, .. }] = asked.as_slice() else { panic!("{asked:?}") };
        asking.engine.answer(OWNER, ask.clone(), approve()).await.expect("counts");
        assert_eq!(remembered(&asking), 1);
    });
    asking.end();
}

/// Every question of a conversation that a person sees: of the door, of a gate, and about a plan.
struct Question {
    ask: AskId,
    words: String,
    choices: Vec<Choice>,
}

async fn next_question(joined: &mut Joined) -> Question {
    loop {
        let frame = joined.live.recv().await.expect("a frame").frame.clone();
        if let ServerFrame::ApprovalRequest(card) = frame {
            let words = format!("{} {}", card.intent, card.rationale);
            return Question { ask: card.ask_id, words, choices: card.choices };
        } else if let ServerFrame::GateApproval { ask_id, reason, choices, .. } = frame {
            return Question { ask: ask_id, words: reason, choices };
        }
    }
}

/// True if words have a person choose or set up an agent or a model.
fn is_about_agents(words: &str) -> bool {
    let words = words.to_lowercase();
    let has = |any: &[&str]| any.iter().any(|word| words.contains(word));
    has(&["model", "agent", "provider"]) && has(&["which", "choose", "select", "pick", "set up", "configure"])
}

/// A gate, the door and the planner ask in one conversation: each question is about the work, and is answered with one of the choices
/// that it brings along, without a word and without a model or an agent to choose.
///
/// Rows: SIL-341 (in part: the questions of conversations and plans; the first run of a home asks for a provider's key)
/// Rows: SIL-333 (in part: as frames: each question is answered by a choice alone)
#[test]
fn questions_are_about_the_work_and_take_one_choice_and_no_word() {
    let gate: GateConfig = serde_json::from_value(json!({
        "name": "falcon", "on": "input", "provider": "predicate", "contains": ["falcon"], "action": "ask",
        "reason": "It names the falcon.",
    }))
    .expect("a gate");
    let engine = TestEngine::with(
        |parts| {
            parts.rules = rules(ASK_REMEMBER);
            parts.gates = GateSet::new(vec![gate]).expect("gates");
        },
        |_| remembering,
    );
    const PLAN: &str = "---\nid: move\ntype: task\ntitle: Move the shop\n---\n\n# What to do\n\nMove it.\n";
    engine.runtime.block_on(async {
        let mut joined = engine.engine.join(OWNER, Default::default()).await.expect("joined");
        let (session, text) = (joined.session, "note the falcon's tea".to_owned());
        engine.engine.receive(OWNER, session, "a".to_owned(), text, Taint::Owner).await.expect("stored");
        let by_gate = next_question(&mut joined).await;
        assert_eq!(by_gate.words, "It names the falcon.");
        engine
            .call("gates.answer", json!({ "ask": by_gate.ask, "decision": by_gate.choices[0].decision }))
            .await
            .expect("counts");
        let by_door = next_question(&mut joined).await;
        engine.engine.answer(OWNER, by_door.ask.clone(), approve()).await.expect("counts");
        assert_eq!(remembered(&engine), 1);
        let proposed = engine.call("work.propose", json!({ "plan": PLAN })).await.expect("a plan");
        let shown = engine.call("approvals.show", json!({ "ask": proposed["ask"] })).await.expect("a card");
        let about_plan = Question {
            ask: proposed["ask"].as_str().expect("asked").parse().expect("an ask"),
            words: format!("{} {}", shown["intent"], shown["rationale"]),
            choices: serde_json::from_value(shown["choices"].clone()).expect("choices"),
        };
        for question in [by_gate, by_door, about_plan] {
            assert!(question.choices.len() >= 2, "a yes and a no: {:?}", question.choices);
            let choices = question.choices.iter().map(|choice| choice.consequence.as_str());
            for words in std::iter::once(question.words.as_str()).chain(choices) {
                assert!(!is_about_agents(words), "{words}");
            }
        }
    });
    assert!(is_about_agents("Which model do you want?") && !is_about_agents("write a.txt"));
    engine.end();
}
