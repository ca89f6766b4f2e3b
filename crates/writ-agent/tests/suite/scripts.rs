//! Golden scripts: `tests/scripts/NAME.txt` goes in, `tests/scripts/NAME.snap` comes out.
//!
//! One command per line; `#` begins a comment. Texts are JSON strings.
//!
//! ```text
//! set KEY NUMBER                 a limit, before `open`; also `budget.used`, `rehydrated`
//! history ROLE TEXT              an earlier message, before `open`
//! open TAINT TEXT                opens the turn
//! pass | transform TEXT | block TEXT          gates, at the input or at the output
//! recorded | recall [TAINT TEXT]
//! routed ROUTE TEXT [PROFILE]    the proxy's decision; `-`: no text
//! begin TAINT TEXT               open, pass, recorded, recall
//! reply STOP TEXT [NAME ARGUMENTS]...         STOP: end tools max filter other
//! fail EXIT TEXT HINT | fail session | fail daily
//! acted OUTCOME TAINT TEXT | acted waiting ASK TEXT
//! answered ASK OUTCOME TAINT TEXT
//! arrive TEXT | cancel | deadline | delivered
//! crash                          the turn is recovered from its stored events
//! ```

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use writ_agent::config::AgentConfig;
use writ_agent::effect::Effect;
use writ_agent::event::{ContextSeed, Event, ModelFailure, StoredEvent, TextVerdict};
use writ_agent::route::RouteDecision;
use writ_agent::turn::{Phase, Turn};
use writ_types::chat::{ChatMessage, Part, Role, StopReason, ToolCall, ToolSpec};
use writ_types::unit::Tokens;

use crate::fixture::{Driver, ask, failed, memory, message, opened, result, said, seed};

/// Rows: SIL-022 SIL-023 SIL-025 (the machine's part) SIL-032 SIL-034 (the machine's part) SIL-040 SIL-168 SCL-044 SCL-045 SCL-046 SCL-047 WIN-001 WIN-359 WIN-360
#[test]
fn scripts_give_the_committed_transcripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut names: Vec<String> = fs::read_dir(&folder)
        .expect("the folder exists")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter_map(|name| name.strip_suffix(".txt").map(str::to_owned))
        .collect();
    names.sort();
    assert!(names.len() >= 12, "scripts are missing: {names:?}");
    insta::with_settings!({ snapshot_path => "../scripts", prepend_module_to_snapshot => false }, {
        for name in names {
            let script = fs::read_to_string(folder.join(format!("{name}.txt"))).expect("readable");
            insta::assert_snapshot!(name, Script::run(&script));
        }
    });
}

struct Script {
    driver: Driver,
    config: Value,
    seed: ContextSeed,
    transcript: String,
}

impl Script {
    fn run(script: &str) -> String {
        let config = serde_json::to_value(AgentConfig::default()).expect("serialises");
        let mut run = Self { driver: Driver::new(), config, seed: seed(), transcript: String::new() };
        for line in script.lines() {
            if line.is_empty() || line.starts_with('#') {
                writeln!(run.transcript, "{line}").expect("writes");
            } else {
                run.line(line);
            }
        }
        run.transcript
    }

    fn line(&mut self, line: &str) {
        writeln!(self.transcript, "> {line}").expect("writes");
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let before = self.driver.effects.len();
        match words.as_slice() {
            ["set", key, value] => self.set(key, value),
            ["history", role, text] => {
                let role = serde_json::from_value::<Role>(Value::from(*role)).expect("a role");
                self.seed.history.push(Arc::new(said(role, text)));
            }
            ["crash"] => self.crash(),
            ["begin", taint, text] => {
                self.event(&["open", taint, text]);
                self.driver.reach_model();
            }
            words => self.event(words),
        }
        for effect in self.driver.effects.clone().iter().skip(before) {
            self.show(effect);
        }
    }

    fn event(&mut self, words: &[&str]) {
        let event = match words {
            ["open", taint, text] => {
                let config = serde_json::from_value(self.config.clone()).expect("a config");
                opened(vec![message(1, text, parse(taint))], self.seed.clone(), config)
            }
            ["pass"] => self.judged(TextVerdict::Pass),
            ["transform", text] => self.judged(TextVerdict::Transform { text: (*text).to_owned() }),
            ["block", reason] => self.judged(TextVerdict::Block { reason: (*reason).to_owned() }),
            ["recorded"] => Event::Recorded,
            ["recall"] => Event::Recalled { hits: Vec::new() },
            ["recall", taint, text] => Event::Recalled { hits: vec![memory(1, text, parse(taint))] },
            ["routed", route, text] => routed(route, text, None),
            ["routed", route, text, profile] => routed(route, text, Some(profile)),
            ["reply", stop, text, calls @ ..] => {
                return self.driver.reply(stop_reason(stop), text, to_calls(calls));
            }
            ["fail", "session"] => Event::ModelFailed { failure: ModelFailure::SessionExhausted },
            ["fail", "daily"] => Event::ModelFailed { failure: ModelFailure::DailyExhausted },
            ["fail", exit, text, hint] => failed(parse(exit), text, hint),
            ["acted", "waiting", id, text] => return self.driver.wait_for(&ask(id), text),
            ["acted", outcome, taint, text] => return self.driver.act(parse(outcome), parse(taint), text),
            ["answered", id, outcome, taint, text] => {
                let result = result("later", "shell_exec", parse(outcome), parse(taint), text);
                Event::Answered { ask: ask(id), result }
            }
            ["arrive", text] => {
                self.driver.arrive(text);
                return;
            }
            ["cancel"] => Event::Cancel,
            ["deadline"] => {
                self.driver.now = self.driver.turn.deadline().expect("a deadline");
                Event::DeadlinePassed
            }
            ["delivered"] => Event::Delivered,
            other => panic!("unknown command {other:?}"),
        };
        self.driver.feed(event);
    }

    fn judged(&self, verdict: TextVerdict) -> Event {
        if self.driver.turn.phase() == Phase::JudgingInput {
            Event::InputJudged { verdict }
        } else {
            Event::OutputJudged { verdict }
        }
    }

    fn set(&mut self, key: &str, value: &str) {
        let number: u64 = value.parse().expect("a number");
        match key {
            "budget.used" => self.seed.budget.used = Tokens::new(number),
            "rehydrated" => self.seed.rehydrated = number == 1,
            "proxy" => self.seed.proxy = number == 1,
            "planner" => self.seed.tools = vec![planning_tool()].into(),
            limit => self.config["limits"][limit] = Value::from(number),
        }
    }

    fn crash(&mut self) {
        let json: Vec<String> =
            self.driver.stored.iter().map(|event| event.encode_json().expect("encodes")).collect();
        let events = json.iter().map(|json| StoredEvent::decode_json(json).expect("decodes"));
        let (turn, due) = Turn::recover_turn(events).expect("recovers");
        assert_eq!(turn, self.driver.turn, "folding gives the same turn");
        self.driver.turn = turn;
        self.driver.effects.extend(due);
    }

    fn show(&mut self, effect: &Effect) {
        let out = &mut self.transcript;
        match effect {
            Effect::JudgeInput { message } => writeln!(out, "    JudgeInput {:?}", message.text),
            Effect::Record { turn_number, message } => {
                writeln!(out, "    Record turn {turn_number} {:?} [{}]", message.text, message.label.taint)
            }
            Effect::Recall { query } => writeln!(out, "    Recall {query:?}"),
            Effect::Route { question } => {
                writeln!(out, "    Route [{}] plans: {}", question.label.taint, question.plans).expect("writes");
                question.request.messages.iter().try_for_each(|message| write!(out, "{}", shown(message)))
            }
            Effect::CallModel { request, label } => {
                writeln!(out, "    CallModel [{}]", label.taint).expect("writes");
                request.messages.iter().try_for_each(|message| write!(out, "{}", shown(message)))
            }
            Effect::CancelModel => writeln!(out, "    CancelModel"),
            Effect::Act { call, label } => {
                writeln!(out, "    Act {} {} {} [{}]", call.id, call.name, call.arguments, label.taint)
            }
            Effect::CancelTool { call_id } => writeln!(out, "    CancelTool {call_id}"),
            Effect::JudgeOutput { text, label } => writeln!(out, "    JudgeOutput {text:?} [{}]", label.taint),
            Effect::Deliver { text, label, incomplete } => {
                writeln!(out, "    Deliver {text:?} [{}] incomplete: {incomplete:?}", label.taint)
            }
            Effect::Finish(finish) => {
                writeln!(
                    out,
                    "    Finish {:?} exit {} answers {} asks {:?} [{}] model calls {} tool calls {} tokens {}",
                    finish.status,
                    finish.exit.code(),
                    finish.answers.len(),
                    finish.open_asks,
                    finish.label.taint,
                    finish.model_calls,
                    finish.tool_calls,
                    finish.budget_used.get(),
                )
                .expect("writes");
                finish.transcript.iter().try_for_each(|message| write!(out, "{}", shown(message)))
            }
        }
        .expect("writes");
    }
}

fn routed(route: &str, text: &str, profile: Option<&str>) -> Event {
    let response = (text != "-").then(|| text.to_owned());
    let (reason, context_profile) = ("because".to_owned(), profile.map(str::to_owned));
    let decision = RouteDecision {
        route: parse(route),
        reason,
        response,
        context_profile,
        ..RouteDecision::without_proxy()
    };
    Event::Routed { decision }
}

fn planning_tool() -> ToolSpec {
    let (name, description) = ("plan".to_owned(), "Have it planned.".to_owned());
    ToolSpec { name, description, schema: serde_json::json!({"type": "object"}) }
}

fn shown(message: &ChatMessage) -> String {
    let mut lines = String::new();
    for part in &message.parts {
        let part = match part {
            Part::Text { text } => format!("{text:?}"),
            Part::Call(call) => format!("call {} {} {}", call.id, call.name, call.arguments),
            Part::Result(result) => {
                format!("result {} {:?} {:?}", result.call_id, result.outcome, result.text)
            }
            Part::Reasoning(piece) => format!("reasoning {:?}", piece.form),
            Part::File(attached) => format!("file {}", attached.file.name),
        };
        let role = format!("{:?}", message.role).to_lowercase();
        writeln!(lines, "        {role} [{}] {part}", message.label.taint).expect("writes");
    }
    lines
}

/// Splits at blanks; a word that begins with `"` or `{` is JSON.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while let Some(first) = rest.chars().next() {
        let length = if first == '"' || first == '{' || first == '[' {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            let value = values.next().expect("a value").expect("valid JSON");
            words.push(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            values.byte_offset()
        } else {
            let length = rest.find(' ').unwrap_or(rest.len());
            words.push(rest[..length].to_owned());
            length
        };
        rest = rest[length..].trim_start();
    }
    words
}

fn parse<T: serde::de::DeserializeOwned>(word: &str) -> T {
    serde_json::from_value(Value::from(word)).unwrap_or_else(|error| panic!("{word}: {error}"))
}

fn stop_reason(word: &str) -> StopReason {
    match word {
        "end" => StopReason::EndTurn,
        "tools" => StopReason::ToolUse,
        "max" => StopReason::MaxTokens,
        "filter" => StopReason::ContentFilter,
        other => StopReason::Other(other.to_owned()),
    }
}

fn to_calls(words: &[&str]) -> Vec<ToolCall> {
    let call = |(n, pair): (usize, &[&str])| ToolCall {
        id: format!("c{}", n + 1),
        name: pair[0].to_owned(),
        arguments: serde_json::from_str(pair[1]).unwrap_or_else(|_| Value::from(pair[1])),
    };
    words.chunks(2).enumerate().map(call).collect()
}
