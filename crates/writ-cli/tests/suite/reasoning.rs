//! Reasoning that a provider wants back, through the whole engine: with the call's result, in a later turn, after a restart,
//! and not at another provider's.

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault};

use super::engine::stop_engine_of;
use super::turns::Bench;
use super::{code, text};

/// The signature, as an opaque text.
const SIGNED: &str = "EqQBCkgIBRABGAIiQLc4";

/// What a provider sends before a call of a tool that is not there, which needs no sandbox: the reasoning in its format.
fn signed(kind: &str) -> Reply {
    let frame = |event: &str, data: Value| match event {
        "" => format!("data: {data}\n\n"),
        event => format!("event: {event}\ndata: {data}\n\n"),
    };
    let block = |index: u64, block: &Value, delta: &Value| {
        let frames = [
            ("content_block_start", json!({ "content_block": block })),
            ("content_block_delta", json!({ "delta": delta })),
            ("content_block_stop", json!({})),
        ];
        let numbered = frames.into_iter().map(|(kind, mut data)| {
            (data["type"], data["index"]) = (json!(kind), json!(index));
            frame(kind, data)
        });
        numbered.collect::<String>()
    };
    let raw = match kind {
        "gemini" => {
            let call = json!({ "functionCall": { "name": "look", "args": {} }, "thoughtSignature": SIGNED });
            frame("", json!({ "candidates": [{ "content": { "role": "model", "parts": [call] } }] }))
        }
        "anthropic" => {
            let thinking = json!({ "type": "thinking", "thinking": "", "signature": "" });
            block(70, &thinking, &json!({ "type": "signature_delta", "signature": SIGNED }))
        }
        "openai_responses" => {
            let item =
                json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SIGNED });
            let done = json!({ "type": "response.output_item.done", "output_index": 70, "item": item });
            frame("response.output_item.done", done)
        }
        other => panic!("no reasoning of {other} is known"),
    };
    let reply = if kind == "gemini" { Reply::text(" ") } else { Reply::call("look", json!({})) };
    reply.with_fault(ReplyFault::RawAfter(1, raw))
}

/// A provider that answers 400 to a call of its own without its reasoning.
fn strict(kind: &'static str) -> impl FnMut(&ParsedRequest) -> Reply + Send + 'static {
    move |request| {
        let body = request.raw.to_string();
        let calls = request.messages.iter().flat_map(|message| &message.calls).count();
        if body.matches(SIGNED).count() != calls {
            return Reply::status(400);
        }
        if request.last_user_text().contains("look") && request.results().count() == 0 {
            return signed(kind);
        }
        Reply::text("It is there.")
    }
}

#[test]
fn reasoning_goes_back_with_its_call_also_in_later_turns_and_after_a_restart() {
    for kind in ["gemini", "anthropic", "openai_responses"] {
        let bench = Bench::new(kind, strict(kind));
        let first = bench.chat("look there", &[]);
        assert_eq!(
            (code(&first), text(&first).contains("It is there.")),
            (0, true),
            "{kind}: {}",
            text(&first)
        );
        assert!(!text(&first).contains(SIGNED), "{kind}: {}", text(&first));
        stop_engine_of(&bench.home);
        let second = bench.chat("thanks", &[]);
        assert_eq!(
            (code(&second), text(&second).contains("It is there.")),
            (0, true),
            "{kind}: {}",
            text(&second)
        );
        let sent = bench.requests();
        assert_eq!(
            sent.iter().map(|body| body.matches(SIGNED).count()).collect::<Vec<_>>(),
            [0, 1, 1],
            "{kind}"
        );
        let ledger = bench.home.run(&["audit", "search", "-n", "1000", "--json"]);
        assert!(!text(&ledger).contains(SIGNED), "{kind}: the ledger does not hold it");
    }
}

/// Rows: SCL-020
#[test]
fn reasoning_is_left_out_at_another_model() {
    for kind in ["gemini", "anthropic", "openai_responses"] {
        let script = move |request: &ParsedRequest| match (request.model.as_str(), request.results().count())
        {
            ("scripted", 0) => signed(kind),
            ("scripted", _) => Reply::status(500),
            _ => Reply::text("From the second."),
        };
        let mut bench = Bench::new(kind, script);
        bench.home.env.push(("WRIT_MODELS__FALLBACK".to_owned(), "[\"test/other\"]".to_owned()));
        let done = bench.chat("look there", &[]);
        assert_eq!(
            (code(&done), text(&done).contains("From the second.")),
            (0, true),
            "{kind}: {}",
            text(&done)
        );
        let sent = bench.requests();
        let found: Vec<usize> = sent.iter().map(|body| body.matches(SIGNED).count()).collect();
        assert_eq!(found, [0, 1, 0], "{kind}: {sent:?}");
    }
}
