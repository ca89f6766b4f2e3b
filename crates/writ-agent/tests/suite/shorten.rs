//! A conversation that is longer than the model can read: masked, compacted, explained; never stuck.

use std::sync::Arc;

use serde_json::json;
use writ_agent::config::{AgentConfig, ContextConfig, MIN_ROOM};
use writ_agent::context::{Results, assemble_context, assemble_showing};
use writ_agent::effect::TurnStatus;
use writ_agent::event::{ContextSeed, Event, ModelFailure, StoredEvent};
use writ_agent::turn::{Phase, Turn};
use writ_types::chat::{ChatMessage, ModelRequest, Part, Role, StopReason, ToolCall, ToolOutcome};
use writ_types::error::Exit;
use writ_types::taint::{Label, Taint};
use writ_types::unit::Tokens;

use crate::fixture::{Driver, assert_paired, result, said, seed, text_of, texts_of};

const OUTPUT: Tokens = Tokens::new(1_000);

/// A text of as many estimated tokens.
fn tokens(n: u64) -> String {
    "abcd".repeat(usize::try_from(n).expect("small"))
}

/// A call with its result, of as many tokens.
fn exchange(id: &str, size: u64, taint: Taint) -> [ChatMessage; 2] {
    let call = ToolCall { id: id.to_owned(), name: "file_read".to_owned(), arguments: json!({}) };
    let result = result(id, "file_read", ToolOutcome::Done, taint, &tokens(size));
    let message = |role, part, taint| ChatMessage { role, parts: vec![part], label: Label::new(taint) };
    [
        message(Role::Assistant, Part::Call(call), Taint::Owner),
        message(Role::Tool, Part::Result(result), taint),
    ]
}

/// A seed with a history of messages and results of as many tokens each.
fn long(results: u64, size: u64) -> ContextSeed {
    let mut history = Vec::new();
    for n in 0..results {
        history.push(said(Role::User, &format!("request {n}")));
        history.extend(exchange(&format!("old{n}"), size, Taint::External));
        history.push(said(Role::Assistant, &format!("answer {n}")));
    }
    ContextSeed { history: history.into_iter().map(Arc::new).collect(), ..seed() }
}

fn too_long(room: u64) -> Event {
    let failure = ModelFailure::TooLong {
        room: Tokens::new(room),
        text: "p/m: the conversation is longer than the model can read. The provider says: `too long`"
            .to_owned(),
        noted: Some("p/m: the conversation is longer than the model can read".to_owned()),
    };
    Event::ModelFailed { failure }
}

fn size(request: &ModelRequest) -> usize {
    request.messages.iter().map(|message| text_of(message).len()).sum()
}

/// Rows: SIL-074 (no model is called for it) SIL-075 (in part: when the budget is exceeded, not by age)
#[test]
fn old_results_are_masked_before_any_message_is_evicted() {
    let config = ContextConfig {
        total_tokens: Tokens::new(4_000),
        system_max: Tokens::new(1_000),
        ..ContextConfig::default()
    };
    let seed = long(10, 600);
    let assembled = assemble_context(&config, &seed, &[], &[said(Role::User, "now")], OUTPUT).expect("fits");
    let texts = texts_of(&assembled.request);
    assert_eq!(assembled.evicted, 0, "{texts}");
    assert!(texts.contains("request 0") && texts.contains("answer 9"), "{texts}");
    assert_eq!(texts.matches("This result of 2400 characters was left out").count(), 10, "{texts}");
    assert_paired(&assembled.request.messages);
    assert_eq!(assembled.label.taint, Taint::External, "a masked result still counts");
    // The twin: with room, nothing is masked.
    let whole = assemble_context(&ContextConfig::default(), &seed, &[], &[said(Role::User, "now")], OUTPUT);
    assert!(!texts_of(&whole.expect("fits").request).contains("left out"));
    // Asked for, they are masked all the same.
    let all = (&seed, [].as_slice(), [said(Role::User, "now")].as_slice().to_vec());
    let masked =
        assemble_showing(Results::OfThisTurn, &ContextConfig::default(), (all.0, all.1, &all.2), OUTPUT);
    assert!(texts_of(&masked.expect("fits").request).contains("left out"));
}

/// A result that is kept back is asked about by its name, which its text gives.
#[test]
fn a_result_that_is_kept_back_stays_readable() {
    let config = ContextConfig {
        total_tokens: Tokens::new(4_000),
        system_max: Tokens::new(1_000),
        ..ContextConfig::default()
    };
    let mut seed = long(10, 600);
    let handle = format!("kept back as r1; ask about it with result_ask {}", "x".repeat(300));
    for message in seed.history.iter_mut().filter(|message| message.role == Role::Tool).take(1) {
        for part in &mut Arc::make_mut(message).parts {
            if let Part::Result(result) = part {
                result.text.clone_from(&handle);
                result.kept = Some(Box::new(Label::new(Taint::External)));
            }
        }
    }
    let assembled = assemble_context(&config, &seed, &[], &[said(Role::User, "now")], OUTPUT).expect("fits");
    let texts = texts_of(&assembled.request);
    assert_eq!((texts.matches("was left out").count(), texts.contains(&handle)), (9, true), "{texts}");
}

#[test]
fn results_of_the_last_step_are_never_masked() {
    let config = ContextConfig {
        total_tokens: Tokens::new(4_000),
        system_max: Tokens::new(1_000),
        ..ContextConfig::default()
    };
    let mut current = vec![said(Role::User, "now")];
    for n in 0..5 {
        current.extend(exchange(&format!("c{n}"), 700, Taint::Owner));
    }
    let assembled = assemble_context(&config, &seed(), &[], &current, OUTPUT).expect("fits");
    let texts = texts_of(&assembled.request);
    assert_eq!((assembled.evicted, texts.matches("was left out").count()), (0, 4), "{texts}");
    assert!(texts.ends_with(&tokens(700)), "{texts}");
}

#[test]
fn what_was_evicted_is_noted_with_the_beginnings_of_what_the_person_wrote() {
    let config = ContextConfig {
        total_tokens: Tokens::new(4_000),
        system_max: Tokens::new(1_000),
        ..ContextConfig::default()
    };
    let history =
        (0..200).map(|n| said(Role::User, &format!("request {n}\n{}", tokens(100)))).collect::<Vec<_>>();
    let seed = ContextSeed { history: history.into_iter().map(Arc::new).collect(), ..seed() };
    let assembled = assemble_context(&config, &seed, &[], &[said(Role::User, "now")], OUTPUT).expect("fits");
    let texts = texts_of(&assembled.request);
    let evicted = assembled.evicted;
    assert!(texts.contains(&format!("[SYSTEM] {evicted} earlier messages of this conversation")), "{texts}");
    assert!(texts.contains(&format!("\n- request {} abcd", evicted - 1)), "the newest of them: {texts}");
    assert!(!texts.contains("\n- request 0 "), "the oldest are not quoted: {texts}");
    assert!(assembled.total_tokens() <= config.eviction_threshold(), "the note is within the budget");
}

/// The provider reports an overflow once, twice, and for ever.
///
/// Rows: WIN-350
#[test]
fn a_request_that_is_too_long_is_sent_again_without_old_results_and_then_compacted() {
    let mut driver = Driver::calling(long(30, 1_000), AgentConfig::default());
    let first = size(driver.request());
    driver.feed(too_long(20_000));
    let masked = driver.request().clone();
    assert!(size(&masked) < first / 4, "{} of {first}", size(&masked));
    let texts = texts_of(&masked);
    assert!(
        texts.contains("request 0") && texts.contains("was left out"),
        "masked, and no message lost: {texts}"
    );
    assert_eq!(masked.max_output_tokens, Tokens::new(4_000), "a fifth of the room is for the answer");
    driver.feed(too_long(2_048));
    let compacted = driver.request().clone();
    assert!(size(&compacted) < size(&masked), "{} of {}", size(&compacted), size(&masked));
    assert_paired(&compacted.messages);
    driver.reply(StopReason::EndTurn, "There it is.", Vec::new());
    let finish = driver.finish();
    assert_eq!((finish.status, finish.exit, finish.model_calls), (TurnStatus::Done, Exit::Done, 3));
    assert_eq!(driver.delivered(), [("There it is.", None)]);

    let mut driver = Driver::calling(long(30, 1_000), AgentConfig::default());
    driver.feed(too_long(20_000));
    driver.reply(StopReason::EndTurn, "At once.", Vec::new());
    let finish = driver.finish();
    assert_eq!((finish.status, finish.model_calls), (TurnStatus::Done, 2));

    let mut driver = Driver::calling(long(30, 1_000), AgentConfig::default());
    for room in [20_000, 2_048, 2_048] {
        driver.feed(too_long(room));
    }
    let finish = driver.finish();
    assert_eq!((finish.status, finish.exit, finish.model_calls), (TurnStatus::Failed, Exit::Model, 3));
}

/// A room that is named and not smaller than the request, or not named: then it is compacted to half at once.
#[test]
fn where_no_result_can_be_masked_it_is_compacted_at_once() {
    let history = (0..100).map(|n| said(Role::User, &format!("{n} {}", tokens(200)))).collect::<Vec<_>>();
    let seed = ContextSeed { history: history.into_iter().map(Arc::new).collect(), ..seed() };
    let mut driver = Driver::calling(seed, AgentConfig::default());
    let first = size(driver.request());
    driver.feed(too_long(1_000_000));
    assert!(size(driver.request()) <= first / 2, "{} of {first}", size(driver.request()));
    driver.reply(StopReason::EndTurn, "ok", Vec::new());
    assert_eq!(driver.finish().model_calls, 2);
}

#[test]
fn a_message_that_does_not_fit_ends_the_turn_with_what_is_too_large_and_how_to_go_on() {
    let mut driver = Driver::calling(long(3, 2_000), AgentConfig::default());
    driver.feed(too_long(6_000));
    driver.feed(too_long(3_000));
    driver.feed(too_long(2_048));
    let finish = driver.finish();
    assert_eq!((finish.status, finish.exit), (TurnStatus::Failed, Exit::Model));
    assert!(finish.model_calls <= 3, "two more tries at most");
    let (text, _) = driver.delivered()[0];
    for told in [
        "The provider says: `too long`",
        "without old results and older messages",
        "the descriptions of 2 tools (about ",
        "Send a shorter message",
        "--ctx-size",
        "Your next message in this session is answered",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
    let kept = text_of(finish.transcript.last().expect("the notice"));
    assert!(kept.contains("The largest parts are") && !kept.contains("The provider says"), "{kept}");
}

/// A later call of the same turn is shortened from the beginning again.
#[test]
fn each_call_of_a_turn_has_its_own_tries_and_the_turn_is_recovered_as_it_was() {
    let mut driver = Driver::calling(long(20, 1_000), AgentConfig::default());
    for room in [10_000, 8_000] {
        driver.feed(too_long(room));
        driver.call("file_read", json!({ "path": "a" }));
        driver.act(ToolOutcome::Done, Taint::Owner, &tokens(1_000));
    }
    driver.feed(too_long(4_000));
    assert_eq!(driver.turn.phase(), Phase::CallingModel);
    let stored: Vec<StoredEvent> = driver
        .stored
        .iter()
        .map(|event| StoredEvent::decode_json(&event.encode_json().expect("encodes")).expect("decodes"))
        .collect();
    let (recovered, _) = Turn::recover_turn(stored).expect("recovers");
    assert_eq!(recovered, driver.turn);
}

#[test]
fn settings_are_narrowed_to_what_can_still_be_used() {
    let config = AgentConfig::default();
    for room in [0, 1, 2_048, 4_096, 32_768, 1_000_000] {
        let narrow = config.narrow_to(Tokens::new(room));
        narrow.validate_config().expect("valid");
        let context = &narrow.context;
        assert!(context.total_tokens >= MIN_ROOM && context.total_tokens <= config.context.total_tokens);
        let both = context.eviction_threshold().saturating_add(narrow.limits.max_output_tokens);
        assert!(both <= Tokens::new(room).max(MIN_ROOM), "{room}: {both}");
    }
    assert_eq!(config.narrow_to(Tokens::new(1_000_000)), config, "a larger model changes nothing");
}
