//! What one turn does, case by case.

use std::sync::Arc;

use serde_json::{Value, json};
use writ_agent::config::{AgentConfig, TurnLimits};
use writ_agent::effect::{Effect, TurnStatus};
use writ_agent::event::{
    BudgetSeed, ContextSeed, Event, ModelFailure, StoredEvent, SystemSource, SystemText, TextVerdict,
};
use writ_agent::notice::{self, BudgetNote};
use writ_agent::turn::{MAX_QUERY_CHARS, MAX_RECALLED, Phase, RecoverError, Turn, Why};
use writ_types::chat::{
    ChatMessage, Part, Reasoning, ReasoningForm, Role, StopReason, ToolCall, ToolOutcome,
};
use writ_types::error::{Exit, ToReport};
use writ_types::taint::{Label, Taint};
use writ_types::unit::{ByteCount, Timestamp, Tokens};

use crate::fixture::{
    Driver, START, ask, assert_paired, failed, id, memory, message, opened, reply, result, seed, text_of,
    texts_of,
};

fn calling() -> Driver {
    Driver::calling(seed(), AgentConfig::default())
}

fn limited(limits: TurnLimits) -> Driver {
    Driver::calling(seed(), AgentConfig { limits, ..AgentConfig::default() })
}

fn call(n: usize, arguments: serde_json::Value) -> ToolCall {
    ToolCall { id: format!("call_{n}"), name: "shell_exec".to_owned(), arguments }
}

#[test]
fn a_turn_knows_its_session_its_id_and_its_number_once_it_is_opened() {
    let mut turn = Turn::new();
    assert_eq!((turn.session(), turn.id(), turn.number()), (None, None, 0));
    let event = opened(vec![message(1, "hi", Taint::Owner)], seed(), AgentConfig::default());
    let Event::Opened(expected) = event.clone() else { panic!("the fixture opens turns") };
    turn.handle_event(event, START, &mut Vec::new()).expect("opens");
    assert_eq!(turn.session(), Some(expected.session));
    assert_eq!((turn.id(), turn.number()), (Some(expected.turn), expected.number));
}

/// Rows: SCL-032 WIN-038
#[test]
fn twenty_tool_calls_run_and_the_next_ends_the_turn() {
    let mut driver = calling();
    for n in 0..20 {
        driver.call("shell_exec", json!({ "n": n }));
        driver.act(ToolOutcome::Done, Taint::Owner, &format!("result {n}"));
    }
    driver.call("shell_exec", json!({ "n": 20 }));
    assert_eq!(driver.acts().len(), 20);
    let finish = driver.finish();
    assert_eq!((finish.status, finish.exit, finish.tool_calls), (TurnStatus::Incomplete, Exit::Budget, 20));
    let (text, incomplete) = driver.delivered()[0];
    assert!(text.contains("limit of 20 tool calls") && incomplete == Some(text), "{text}");
    assert_paired(&finish.transcript);
}

/// Endless nonsense calls reach no door, so the cap of model calls ends them.
#[test]
fn calls_that_are_never_performed_are_bounded_by_the_model_calls() {
    let mut driver = limited(TurnLimits { max_model_calls_per_turn: 5, ..TurnLimits::default() });
    for n in 0..5 {
        driver.call("no_such_tool", json!({ "n": n }));
    }
    assert_eq!((driver.requests().len(), driver.acts().len()), (5, 0));
    assert_eq!(driver.finish().exit, Exit::Budget);
}

#[test]
fn a_reply_with_ten_thousand_calls_is_answered_in_one_line() {
    let mut driver = limited(TurnLimits { max_tool_calls_per_turn: 100, ..TurnLimits::default() });
    let calls = (0..10_000).map(|n| call(n, json!({ "n": n }))).collect();
    driver.reply(StopReason::ToolUse, "", calls);
    for n in 0..32 {
        driver.act(ToolOutcome::Done, Taint::Owner, &n.to_string());
    }
    assert_eq!(driver.acts().len(), 32);
    let request = driver.request();
    assert_eq!(request.messages.len(), 4, "user, calls, results, one line");
    let line = text_of(&request.messages[3]);
    assert_eq!(line, "[SYSTEM] 9968 more tool calls of that reply were ignored: at most 32 are looked at.");
    assert_paired(&request.messages);
}

/// Rows: SCL-044
#[test]
fn unknown_tools_and_wrong_arguments_never_reach_the_door() {
    let mut driver = limited(TurnLimits { max_argument_bytes: ByteCount::new(100), ..TurnLimits::default() });
    let calls = vec![
        ToolCall { id: String::new(), name: "rm -rf\n/\u{27e7}".to_owned(), arguments: json!({}) },
        call(1, json!("text")),
        call(1, json!([1, 2])),
        call(2, json!({ "blob": "x".repeat(1_000_000) })),
    ];
    driver.reply(StopReason::ToolUse, "", calls);
    assert!(driver.acts().is_empty());
    let request = driver.request();
    assert_paired(&request.messages);
    let results: Vec<_> = request.messages[2]
        .parts
        .iter()
        .map(|part| if let Part::Result(result) = part { result.clone() } else { panic!("{part:?}") })
        .collect();
    assert!(results.iter().all(|result| result.outcome == ToolOutcome::Failed));
    let ids: Vec<&str> = results.iter().map(|result| result.call_id.as_str()).collect();
    assert_eq!(ids, ["call", "call_1", "call_1_2", "call_2"]);
    assert_eq!(results[0].text, "There is no tool 'rm_-rf___'. The tools are: shell_exec, file_read.");
    assert!(results[3].text.contains("1000011 bytes, at most 100"), "{}", results[3].text);
    let bytes = serde_json::to_string(&request.messages).expect("serialises").len();
    assert!(bytes < 4_000, "the megabyte is not repeated: {bytes}");
}

/// Providers that count their ids anew in every answer repeat those of earlier turns.
#[test]
fn a_call_with_the_id_of_an_earlier_turn_gets_one_of_its_own() {
    let label = Label::new(Taint::Owner);
    let said = |role, part| Arc::new(ChatMessage { role, parts: vec![part], label: label.clone() });
    let history = vec![
        said(Role::Assistant, Part::Call(call(1, json!({})))),
        said(Role::User, Part::Result(result("call_1", "shell_exec", ToolOutcome::Done, Taint::Owner, "ok"))),
    ];
    let mut driver = Driver::calling(ContextSeed { history, ..seed() }, AgentConfig::default());
    driver.reply(StopReason::ToolUse, "", vec![call(1, json!({}))]);
    assert_eq!(driver.acts()[0].id, "call_1_2");
    driver.act(ToolOutcome::Done, Taint::Owner, "ok");
    assert_paired(&driver.request().messages);
}

/// Rows: SCL-046
#[test]
fn calls_beside_a_normal_end_are_performed_and_usage_adds_up() {
    let mut driver = calling();
    driver.reply(StopReason::EndTurn, "", vec![call(1, json!({}))]);
    driver.act(ToolOutcome::Done, Taint::Owner, "ok");
    driver.reply(StopReason::EndTurn, "done", Vec::new());
    let finish = driver.finish();
    assert_eq!((driver.requests().len(), driver.acts().len(), finish.exit), (2, 1, Exit::Done));
    assert_eq!(finish.usage.total_tokens(), Tokens::new(220));
}

#[test]
fn arguments_of_exactly_the_bound_are_performed() {
    let mut driver = limited(TurnLimits { max_argument_bytes: ByteCount::new(20), ..TurnLimits::default() });
    let exact = json!({ "blob": "x".repeat(9) });
    assert_eq!(exact.to_string().len(), 20);
    driver.reply(StopReason::ToolUse, "", vec![call(1, exact.clone())]);
    assert_eq!(driver.acts()[0].arguments, exact);
    driver.act(ToolOutcome::Done, Taint::Owner, "ok");
    driver.reply(StopReason::ToolUse, "", vec![call(2, json!({ "blob": "x".repeat(10) }))]);
    assert_eq!(driver.acts().len(), 1, "one byte more is not");
}

#[test]
fn a_call_without_arguments_gets_an_empty_object() {
    let mut driver = calling();
    driver.call("file_read", serde_json::Value::Null);
    assert_eq!(driver.acts()[0].arguments, json!({}));
}

#[test]
fn a_long_result_is_cut_with_a_mark() {
    let mut driver = limited(TurnLimits { max_result_chars: 500, ..TurnLimits::default() });
    driver.call("shell_exec", json!({}));
    driver.act(ToolOutcome::Done, Taint::Owner, &"long ".repeat(1_000));
    let text = text_of(&driver.request().messages[2]);
    assert!(text.chars().count() <= 500 && text.contains("characters left out"), "{text}");
}

#[test]
fn two_cycles_of_the_same_two_calls_are_a_circle() {
    let mut driver = calling();
    for _ in 0..2 {
        for n in [1, 2] {
            driver.call("shell_exec", json!({ "n": n }));
            driver.act(ToolOutcome::Failed, Taint::Owner, &format!("still {n}"));
        }
    }
    driver.call("shell_exec", json!({ "n": 1 }));
    assert_eq!(driver.acts().len(), 4, "the fifth is refused");
    assert!(texts_of(driver.request()).contains(notice::REPEATED));
    driver.call("shell_exec", json!({ "n": 3 }));
    driver.act(ToolOutcome::Done, Taint::Owner, "something new");
    driver.call("shell_exec", json!({ "n": 1 }));
    assert_eq!(driver.acts().len(), 6, "after progress it may be tried again");
}

#[test]
fn a_result_that_changes_is_no_circle() {
    let mut driver = calling();
    for n in 0..10 {
        driver.call("shell_exec", json!({ "poll": true }));
        driver.act(ToolOutcome::Done, Taint::Owner, &format!("{n}0 %"));
    }
    assert_eq!((driver.acts().len(), driver.turn.phase()), (10, Phase::CallingModel));
}

/// Rows: SCL-043
#[test]
fn the_message_is_kept_when_the_model_fails_and_an_empty_one_is_refused() {
    let mut driver = calling();
    driver.feed(failed(Exit::Model, "unreachable", ""));
    let finish = driver.finish();
    assert_eq!((finish.status, finish.exit), (TurnStatus::Failed, Exit::Model));
    assert_eq!(text_of(&finish.transcript[0]), "do it");
    assert_eq!(driver.delivered(), [("unreachable", Some("unreachable"))], "no empty line without a hint");
    let mut hinted = calling();
    hinted.feed(failed(Exit::Model, "unreachable", "check the address"));
    let text = "unreachable\ncheck the address";
    assert_eq!(hinted.delivered(), [(text, Some(text))]);

    let mut driver = Driver::new();
    let empty = opened(vec![message(1, " \n", Taint::Owner)], seed(), AgentConfig::default());
    let illegal = driver.try_feed(empty).expect_err("empty");
    assert_eq!(illegal.why, Why::EmptyMessage(id(1)));
    assert_eq!(illegal.report().exit, Exit::Usage);
}

#[test]
fn a_failure_that_claims_success_is_a_failure() {
    let mut driver = calling();
    driver.feed(failed(Exit::Done, "all is well", ""));
    assert_eq!(driver.finish().exit, Exit::Model);
}

#[test]
fn a_turn_opens_with_a_number_a_message_and_valid_settings() {
    let no_message = opened(Vec::new(), seed(), AgentConfig::default());
    assert_eq!(Driver::new().try_feed(no_message).expect_err("no message").why, Why::NoMessage);
    let limits = TurnLimits { max_calls_per_reply: 0, ..TurnLimits::default() };
    let event = opened(
        vec![message(1, "hi", Taint::Owner)],
        seed(),
        AgentConfig { limits, ..AgentConfig::default() },
    );
    let illegal = Driver::new().try_feed(event.clone()).expect_err("invalid settings");
    assert_eq!(illegal.report().exit, Exit::Config);
    let Event::Opened(mut zero) = event else { panic!("not opened") };
    (zero.number, zero.config) = (0, AgentConfig::default());
    assert_eq!(Driver::new().try_feed(Event::Opened(zero)).expect_err("zero").why, Why::NumberZero);
}

#[test]
fn a_result_must_be_that_of_the_call_at_work() {
    let mut driver = calling();
    driver.call("shell_exec", json!({}));
    let other = result("other", "shell_exec", ToolOutcome::Done, Taint::Owner, "");
    let illegal =
        driver.try_feed(Event::Acted { result: other, ask: None, ends: None }).expect_err("other call");
    assert_eq!(illegal.why, Why::OtherCall { found: "other".to_owned() });
    let waiting = driver.result(ToolOutcome::Waiting, Taint::Owner, "");
    let illegal =
        driver.try_feed(Event::Acted { result: waiting, ask: None, ends: None }).expect_err("no ask");
    assert_eq!(illegal.why, Why::WaitingWithoutAsk);
    let unknown = result("x", "shell_exec", ToolOutcome::Done, Taint::Owner, "");
    let illegal =
        driver.try_feed(Event::Answered { ask: ask("zzzzzzzz"), result: unknown }).expect_err("no such ask");
    assert_eq!(illegal.why, Why::UnknownAsk(ask("zzzzzzzz")));
}

#[test]
fn how_asks_and_denials_end_a_turn() {
    let end = |steps: &[(ToolOutcome, Option<ToolOutcome>)]| {
        let mut driver = calling();
        for (n, (outcome, answer)) in steps.iter().enumerate() {
            driver.call("shell_exec", json!({ "n": n }));
            if *outcome == ToolOutcome::Waiting {
                driver.wait_for(&ask("aaaaaaaa"), "asked");
            } else {
                driver.act(*outcome, Taint::Owner, "");
            }
            if let Some(answer) = answer {
                let result = result("later", "shell_exec", *answer, Taint::Owner, "");
                driver.feed(Event::Answered { ask: ask("aaaaaaaa"), result });
            }
        }
        driver.reply(StopReason::EndTurn, "so", Vec::new());
        let finish = driver.finish();
        (finish.status, finish.exit)
    };
    use ToolOutcome::{Denied, Done, Failed, Simulated, Unknown, Waiting};
    assert_eq!(end(&[(Done, None)]), (TurnStatus::Done, Exit::Done));
    assert_eq!(end(&[(Failed, None)]), (TurnStatus::Done, Exit::Done));
    assert_eq!(end(&[(Denied, None)]), (TurnStatus::Denied, Exit::Denied));
    assert_eq!(end(&[(Denied, None), (Failed, None), (Unknown, None)]), (TurnStatus::Denied, Exit::Denied));
    assert_eq!(end(&[(Denied, None), (Done, None)]), (TurnStatus::Done, Exit::Done));
    assert_eq!(end(&[(Denied, None), (Simulated, None)]), (TurnStatus::Done, Exit::Done));
    assert_eq!(end(&[(Waiting, None), (Denied, None)]), (TurnStatus::Waiting, Exit::Waiting));
    assert_eq!(end(&[(Waiting, Some(Done))]), (TurnStatus::Done, Exit::Done));
    assert_eq!(end(&[(Waiting, Some(Denied))]), (TurnStatus::Denied, Exit::Denied));
}

#[test]
fn an_answer_to_an_ask_while_the_reply_goes_out_counts_and_is_kept() {
    let mut driver = calling();
    driver.call("shell_exec", json!({}));
    driver.wait_for(&ask("aaaaaaaa"), "asked");
    driver.reply(StopReason::EndTurn, "I have asked.", Vec::new());
    driver.feed(Event::OutputJudged { verdict: TextVerdict::Pass });
    let done = result("later", "shell_exec", ToolOutcome::Done, Taint::Owner, "3 files");
    driver.feed(Event::Answered { ask: ask("aaaaaaaa"), result: done });
    let finish = driver.finish();
    assert_eq!((finish.exit, finish.open_asks.len()), (Exit::Done, 0));
    let last = text_of(finish.transcript.last().expect("a message"));
    assert_eq!(last, "[SYSTEM] Ask aaaaaaaa for 'shell_exec' was answered: it was done.\n3 files");
}

#[test]
fn messages_beyond_the_limit_and_after_the_answer_stay_in_the_queue() {
    let mut driver = limited(TurnLimits { max_absorbed_messages: 2, ..TurnLimits::default() });
    driver.call("shell_exec", json!({}));
    driver.feed(Event::Arrived { message: message(1, "the first again", Taint::Owner) });
    let taken = [driver.arrive("one"), driver.arrive("two")];
    driver.arrive("three");
    assert!(!driver.effects.iter().any(|effect| matches!(effect, Effect::CancelTool { .. })));
    driver.act(ToolOutcome::Done, Taint::Owner, "");
    driver.reach_model();
    driver.reply(StopReason::EndTurn, "done", Vec::new());
    driver.arrive("late");
    driver.feed(Event::OutputJudged { verdict: TextVerdict::Pass });
    driver.arrive("later");
    assert_eq!(driver.finish().answers, [id(1), taken[0], taken[1]]);
}

#[test]
fn several_opening_messages_are_judged_one_by_one() {
    let mut driver = Driver::new();
    let messages = vec![message(1, "DROP TABLE", Taint::Owner), message(2, "list users", Taint::Owner)];
    driver.feed(opened(messages, seed(), AgentConfig::default()));
    driver.feed(Event::InputJudged { verdict: TextVerdict::Block { reason: "no SQL".to_owned() } });
    driver.reach_model();
    assert_eq!(texts_of(driver.request()), "list users");
    driver.reply(StopReason::EndTurn, "Ann.", Vec::new());
    let finish = driver.finish();
    assert_eq!((finish.status, finish.answers.len()), (TurnStatus::Done, 2));
    assert_eq!(driver.delivered(), [("Ann.\n\nno SQL", None)]);
}

/// Each memory once, and no more than the bound, whatever a search returns.
#[test]
fn a_turn_takes_each_memory_once_and_no_more_than_its_bound() {
    let mut driver = Driver::opened("what do you know?");
    driver.feed(Event::InputJudged { verdict: TextVerdict::Pass });
    driver.feed(Event::Recorded);
    let many = u128::try_from(MAX_RECALLED).expect("small") + 5;
    let twice = [1, 1].into_iter().chain(2..=many);
    let hits = twice.map(|n| memory(n, &format!("memory <{n}>"), Taint::Owner)).collect();
    driver.feed(Event::Recalled { hits });
    let seen = format!("{:?}", driver.request());
    assert_eq!(seen.matches("memory <1>").count(), 1, "once");
    assert_eq!(seen.matches("memory <").count(), MAX_RECALLED, "the first ones, up to the bound");
}

/// What may count as the owner's own word: what the model has been shown, and of memories those alone that nothing
/// external has gone into.
#[test]
fn a_turn_tells_what_was_seen_and_which_memories_can_be_trusted() {
    let parts = vec![Part::Text { text: "earlier".to_owned() }];
    let before = ChatMessage { role: Role::User, parts, label: Label::new(Taint::Owner) };
    let seed = ContextSeed {
        history: vec![Arc::new(before)],
        owner_profile: vec![
            memory(1, "lives in Ghent", Taint::Owner),
            memory(2, "pays at evil.example", Taint::External),
        ],
        ..seed()
    };
    let mut driver = Driver::calling(seed, AgentConfig::default());
    let trusted = |driver: &Driver| {
        driver.turn.context_parts().trusted_memories().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(trusted(&driver), ["lives in Ghent"]);
    driver.call("shell_exec", json!({}));
    driver.act(ToolOutcome::Done, Taint::External, "a result");
    assert_eq!(driver.turn.context_parts().messages().next().map(text_of).as_deref(), Some("earlier"));
    let seen = format!("{:?}", driver.turn.context_parts().messages().collect::<Vec<_>>());
    assert!(seen.contains("a result"), "{seen}");

    let mut driver = Driver::opened("what do you know?");
    driver.feed(Event::InputJudged { verdict: TextVerdict::Pass });
    driver.feed(Event::Recorded);
    let hits = vec![memory(3, "likes tea", Taint::Owner), memory(4, "as read", Taint::Auth)];
    driver.feed(Event::Recalled { hits });
    assert_eq!(trusted(&driver), ["likes tea"]);
}

/// What the owner alone may be assumed to read: whatever was told besides the newest request and what came of it.
#[test]
fn a_turn_tells_whether_the_model_knows_more_than_was_asked() {
    let text = |source| SystemText { source, text: "x".to_owned(), label: Label::new(Taint::Owner) };
    let bare =
        || ContextSeed { system: vec![text(SystemSource::Constitution)], workspace: Vec::new(), ..seed() };
    let said = Arc::new(ChatMessage { role: Role::User, parts: Vec::new(), label: Label::new(Taint::Owner) });
    let confides =
        |seed| Driver::calling(seed, AgentConfig::default()).turn.context_parts().holds_private_text();
    assert!(!confides(bare()));
    assert!(confides(ContextSeed { history: vec![said], ..bare() }), "earlier turns");
    assert!(confides(ContextSeed { owner_profile: vec![memory(1, "x", Taint::Auth)], ..bare() }), "memories");
    for source in [SystemSource::Rules, SystemSource::Notes, SystemSource::Facts] {
        assert!(confides(ContextSeed { system: vec![text(source)], ..bare() }), "{source:?}");
    }
}

#[test]
fn a_turn_without_a_closing_text_says_whether_anything_happened() {
    let said = |outcome: Option<ToolOutcome>| {
        let mut driver = calling();
        match outcome {
            None => {}
            Some(ToolOutcome::Waiting) => {
                driver.call("shell_exec", json!({}));
                driver.wait_for(&ask("aaaaaaaa"), "asked");
            }
            Some(outcome) => {
                driver.call("shell_exec", json!({}));
                driver.act(outcome, Taint::Owner, "");
            }
        }
        driver.reply(StopReason::EndTurn, " \n", Vec::new());
        let finish = driver.finish();
        (driver.delivered()[0].0.contains(notice::NO_CLOSING_TEXT), finish.exit)
    };
    assert_eq!(said(Some(ToolOutcome::Done)), (true, Exit::Done));
    assert_eq!(said(Some(ToolOutcome::Denied)), (true, Exit::Denied), "a refusal alone is something");
    assert_eq!(said(Some(ToolOutcome::Waiting)), (true, Exit::Waiting), "so is a question alone");
    assert_eq!(said(None), (false, Exit::Model));
}

#[test]
fn a_long_message_is_not_a_long_query() {
    let mut driver = Driver::opened(&"word ".repeat(10_000));
    driver.feed(Event::InputJudged { verdict: TextVerdict::Pass });
    driver.feed(Event::Recorded);
    let Some(Effect::Recall { query }) = driver.effects.last() else { panic!("no recall") };
    assert_eq!(query.chars().count(), MAX_QUERY_CHARS);
}

#[test]
fn a_timer_that_fires_early_is_harmless() {
    let mut driver = calling();
    let deadline = driver.turn.deadline().expect("a deadline");
    assert_eq!(deadline, Timestamp::from_millis(START.as_millis() + 3_600_000));
    driver.now = Timestamp::from_millis(deadline.as_millis() - 1);
    driver.feed(Event::DeadlinePassed);
    assert_eq!(driver.turn.phase(), Phase::CallingModel);
    driver.now = deadline;
    driver.feed(Event::DeadlinePassed);
    assert!(driver.effects.contains(&Effect::CancelModel));
    assert_eq!(driver.turn.deadline(), None);
    assert_eq!(driver.finish().exit, Exit::Budget);
}

#[test]
fn an_answer_that_is_not_judged_yet_is_not_final_when_the_turn_is_stopped() {
    let mut driver = calling();
    driver.reply(StopReason::EndTurn, "half-baked", Vec::new());
    driver.feed(Event::Cancel);
    let finish = driver.finish();
    assert_eq!((finish.status, finish.exit), (TurnStatus::Cancelled, Exit::Interrupted));
    assert!(driver.delivered().is_empty());
    assert!(!finish.transcript.iter().any(|message| text_of(message).contains("half-baked")));

    let mut driver = calling();
    driver.reply(StopReason::EndTurn, "final", Vec::new());
    driver.feed(Event::OutputJudged { verdict: TextVerdict::Pass });
    driver.feed(Event::Cancel);
    assert_eq!(driver.finish().exit, Exit::Done, "it is out already");
}

/// Rows: SIL-148 (in part: the tries are bounded, and the draft is not kept)
#[test]
fn an_answer_that_is_withheld_is_asked_for_again_so_often_and_not_kept() {
    let again = |note: Option<&str>| {
        let (reason, note) = ("bad words".to_owned(), note.map(str::to_owned));
        Event::OutputJudged { verdict: TextVerdict::Again { reason, note, attempts: 2 } }
    };
    for note in [Some("bad words"), None] {
        let mut driver = calling();
        for n in 1..=3 {
            driver.reply(StopReason::EndTurn, "half-baked", Vec::new());
            assert_eq!(driver.requests().len(), n);
            driver.feed(again(note));
        }
        assert_eq!(driver.delivered(), [("bad words", Some("bad words"))]);
        let told = texts_of(driver.request());
        assert_eq!(told.contains("withheld, and was not shown: bad words"), note.is_some(), "{told}");
        let finish = driver.finish();
        assert_eq!((finish.status, finish.exit), (TurnStatus::Blocked, Exit::Denied));
        assert!(!finish.transcript.iter().any(|message| text_of(message).contains("half-baked")));
    }
    let mut driver = calling();
    driver.reply(StopReason::EndTurn, "half-baked", Vec::new());
    driver.feed(again(Some("bad words")));
    driver.reply(StopReason::EndTurn, "well done", Vec::new());
    let finish = driver.finish();
    assert_eq!((finish.exit, driver.delivered()), (Exit::Done, vec![("well done", None)]));
    assert!(!finish.transcript.iter().any(|message| text_of(message).contains("withheld")));
}

/// Rows: SIL-144 (in part: the turn ends with the text)
#[test]
fn a_gate_that_answers_ends_the_turn_and_what_was_still_to_be_called_is_not() {
    let mut driver = calling();
    let call =
        |id: &str| ToolCall { id: id.into(), name: "shell_exec".into(), arguments: json!({ "n": id }) };
    driver.reply(StopReason::ToolUse, "", vec![call("a"), call("b")]);
    let result = driver.result(ToolOutcome::Denied, Taint::Owner, "no");
    driver.feed(Event::Acted { result, ask: None, ends: Some("We are closed.".into()) });
    assert_eq!(driver.delivered(), [("We are closed.", Some("We are closed."))]);
    assert_eq!((driver.acts().len(), driver.requests().len()), (1, 1));
    let finish = driver.finish();
    assert_eq!((finish.status, finish.exit), (TurnStatus::Blocked, Exit::Denied));
}

/// Rows: WIN-356 WIN-357 WIN-358 WIN-359
#[test]
fn budget_notes_are_for_the_model_only_and_once_per_session() {
    let at = |used, given| {
        let mut seed = seed();
        seed.budget = BudgetSeed { used: Tokens::new(used), limit: Tokens::new(1_000), given };
        let mut driver = Driver::calling(seed, AgentConfig::default());
        let seen = texts_of(driver.request());
        driver.reply(StopReason::EndTurn, "done", Vec::new());
        let finish = driver.finish();
        assert_eq!(driver.delivered(), [("done", None)]);
        assert!(!finish.transcript.iter().any(|message| text_of(message).contains("Budget")));
        (seen.contains("[System: Budget at"), finish.budget_note)
    };
    assert_eq!(at(699, None), (false, None));
    assert_eq!(at(700, None), (true, Some(BudgetNote::Wrap)));
    assert_eq!(at(849, Some(BudgetNote::Wrap)), (false, Some(BudgetNote::Wrap)));
    assert_eq!(at(850, Some(BudgetNote::Wrap)), (true, Some(BudgetNote::Finish)));
    assert_eq!(at(949, Some(BudgetNote::Finish)), (false, Some(BudgetNote::Finish)));
    assert_eq!(at(950, Some(BudgetNote::Finish)), (true, Some(BudgetNote::Last)));
    assert_eq!(at(990, Some(BudgetNote::Last)), (false, Some(BudgetNote::Last)));
}

/// Rows: WIN-360
#[test]
fn an_exhausted_session_is_told_in_one_message_with_three_ways() {
    let mut driver = calling();
    driver.feed(Event::ModelFailed { failure: ModelFailure::SessionExhausted });
    let finish = driver.finish();
    assert_eq!((finish.status, finish.exit), (TurnStatus::Incomplete, Exit::Budget));
    assert_eq!(text_of(&finish.transcript[0]), "do it", "the history is kept");
    let delivered = driver.delivered();
    assert_eq!(delivered.len(), 1);
    for way in ["another message", "/reset", "[budget].max_tokens_per_session"] {
        assert!(delivered[0].0.contains(way), "{way}");
    }
    let mut driver = calling();
    driver.feed(Event::ModelFailed { failure: ModelFailure::DailyExhausted });
    assert_eq!(driver.finish().exit, Exit::Budget);
    let text = driver.delivered()[0].0;
    assert!(text.contains("tomorrow") && text.contains("[budget].max_tokens_per_day"), "{text}");
}

/// Rows: SIL-168 SIL-171
#[test]
fn external_results_make_the_reply_external_and_only_in_that_turn() {
    let answer = |taint: Option<Taint>, mut driver: Driver| {
        if let Some(taint) = taint {
            driver.call("file_read", json!({ "path": "a" }));
            driver.act(ToolOutcome::Done, taint, "text");
        }
        driver.reply(StopReason::EndTurn, "so", Vec::new());
        driver.finish().label.taint
    };
    // Both turns are open at once.
    let (one, other) = (calling(), calling());
    assert_eq!(answer(Some(Taint::External), one), Taint::External);
    assert_eq!(answer(None, other), Taint::Owner);
    assert_eq!(answer(Some(Taint::Auth), calling()), Taint::Auth);

    let mut driver = Driver::opened("what do I like?");
    driver.feed(Event::InputJudged { verdict: TextVerdict::Pass });
    driver.feed(Event::Recorded);
    driver.feed(Event::Recalled { hits: vec![memory(1, "from a web page", Taint::External)] });
    assert_eq!(answer(None, driver), Taint::External, "memory keeps its label");
}

#[test]
fn the_arguments_of_a_call_rest_on_what_the_model_had_seen() {
    let mut driver = calling();
    driver.reply(StopReason::ToolUse, "", vec![call(1, json!({})), call(2, json!({"n": 2}))]);
    driver.act(ToolOutcome::Done, Taint::External, "page");
    driver.act(ToolOutcome::Done, Taint::Owner, "ok");
    driver.call("shell_exec", json!({ "n": 3 }));
    let label =
        |effect: &Effect| if let Effect::Act { label, .. } = effect { Some(label.taint) } else { None };
    let labels: Vec<Taint> = driver.effects.iter().filter_map(label).collect();
    assert_eq!(labels, [Taint::Owner, Taint::Owner, Taint::External]);
}

/// Rows: SIL-036
#[test]
fn a_recovered_turn_keeps_its_number_and_an_unknown_outcome_is_told() {
    let mut driver = calling();
    driver.call("shell_exec", json!({ "n": 1 }));
    let (turn, due) = Turn::recover_turn(driver.stored.clone()).expect("recovers");
    assert_eq!((&turn, turn.number(), &due), (&driver.turn, 6, &driver.due));
    let [Effect::Act { call, .. }] = due.as_slice() else { panic!("{due:?}") };
    let result = Turn::unknown_result(call, Label::new(Taint::External));
    driver.feed(Event::Acted { result, ask: None, ends: None });
    assert!(texts_of(driver.request()).contains(notice::UNKNOWN));
}

#[test]
fn events_that_do_not_fit_are_named_by_their_place() {
    assert_eq!(Turn::recover_turn(Vec::new()).expect_err("empty"), RecoverError::Empty);
    let mut events = calling().stored;
    events.remove(1);
    let error = Turn::recover_turn(events).expect_err("a hole");
    let RecoverError::Illegal { n, source } = &error else { panic!("{error:?}") };
    assert_eq!((*n, source.phase, &source.why), (1, Phase::JudgingInput, &Why::Order));
    assert_eq!(error.report().exit, Exit::Bug);
}

/// The committed file was written by version 1 of the form: it must stay readable, and what is written must stay the same
/// but for settings that were added.
#[test]
fn stored_events_of_version_1_can_still_be_read() {
    let file = include_str!("../events-v1.jsonl");
    let events: Vec<StoredEvent> =
        file.lines().map(|line| StoredEvent::decode_json(line).expect(line)).collect();
    for (line, event) in file.lines().zip(&events) {
        let mut written: Value = serde_json::from_str(&event.encode_json().expect("encodes")).expect("JSON");
        if let Some(context) = written.pointer_mut("/event/config/context").and_then(Value::as_object_mut) {
            // Settings that were added since, with their defaults.
            for added in ["observation_mask_after_turns", "compact_at_pct", "summaries"] {
                assert!(context.remove(added).is_some(), "{added}");
            }
        }
        assert_eq!(written, serde_json::from_str::<Value>(line).expect("JSON"));
    }
    let (turn, due) = Turn::recover_turn(events).expect("recovers");
    assert_eq!(turn.phase(), Phase::Finished);
    let Some(Effect::Finish(finish)) = due.last() else { panic!("{due:?}") };
    assert_eq!((finish.status, finish.answers.len()), (TurnStatus::Denied, 2));
}

/// Reasoning stands before the call that it came before, though the call has another id now, and goes once its message is cut.
#[test]
fn reasoning_stays_with_its_call() {
    let mut driver = calling();
    let form = ReasoningForm::CallSignature("signed".to_owned());
    let piece = |calls_before, form: &ReasoningForm| Reasoning {
        provider: "p".to_owned(),
        model: "m".to_owned(),
        calls_before,
        form: form.clone(),
    };
    let mut reply = reply(StopReason::ToolUse, "So.", vec![call(1, json!({})), call(1, json!({ "n": 2 }))]);
    reply.reasoning =
        vec![piece(0, &ReasoningForm::Text("I look.".to_owned())), piece(1, &form), piece(9, &form)];
    driver.feed(Event::ModelReplied { reply });
    driver.act(ToolOutcome::Done, Taint::Owner, "one");
    driver.act(ToolOutcome::Done, Taint::Owner, "two");
    let request = driver.request();
    let asking = request.messages.iter().rfind(|message| message.role == Role::Assistant).expect("a message");
    let shapes: Vec<&str> = asking
        .parts
        .iter()
        .map(|part| match part {
            Part::Text { .. } => "text",
            Part::Call(_) => "call",
            Part::Result(_) => "result",
            Part::File(_) => "file",
            Part::Reasoning(piece) => match piece.form {
                ReasoningForm::Text(_) => "reasoning",
                ReasoningForm::CallSignature(_) => "signature",
                ReasoningForm::Block(_) => "block",
            },
        })
        .collect();
    assert_eq!(shapes, ["reasoning", "text", "call", "signature", "call"]);
}
