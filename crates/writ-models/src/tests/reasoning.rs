//! Reasoning goes back to the model that it came from, to no other one, and never in part.

use serde_json::json;
use writ_testkit::model_server::{Reply, ReplyFault, list_of_replies};
use writ_types::chat::{
    ChatMessage, MAX_REASONING_BYTES, ModelRequest, Part, Reasoning, ReasoningForm, Role, ToolCall,
};

use super::bench::{ALL, Bench, message, request, result, user};
use crate::config::ProviderKind;

fn piece(provider: &str, model: &str, calls_before: usize, form: ReasoningForm) -> Part {
    Part::Reasoning(Reasoning { provider: provider.into(), model: model.into(), calls_before, form })
}

/// All forms of reasoning, of a model.
fn pieces(provider: &str, model: &str) -> Vec<Part> {
    let thinking = json!({ "type": "thinking", "thinking": "opaque", "signature": "opaque" });
    let detail = json!({ "type": "reasoning.text", "text": "opaque", "index": 0 });
    let item = json!({ "type": "reasoning", "encrypted_content": "opaque", "summary": [] });
    let blocks = [thinking, detail, item].map(ReasoningForm::Block);
    let others = [ReasoningForm::Text("opaque".into()), ReasoningForm::CallSignature("opaque".into())];
    blocks.into_iter().chain(others).map(|form| piece(provider, model, 0, form)).collect()
}

/// A conversation in which a call was made after this reasoning.
fn reasoned(parts: Vec<Part>, id: &str) -> Vec<ChatMessage> {
    let call = ToolCall { id: id.into(), name: "file_read".into(), arguments: json!({}) };
    let parts = parts.into_iter().chain([Part::Call(call)]).collect();
    vec![user("look"), message(Role::Assistant, parts), result(id, "found")]
}

async fn sent(kind: ProviderKind, request: ModelRequest) -> String {
    let bench = Bench::new(kind, list_of_replies([Reply::text("ok")])).await;
    bench.ask(request).await.0.expect("an answer");
    bench.server.recorded_requests().pop().expect("a request").body.to_string()
}

#[tokio::test]
async fn another_provider_and_another_model_are_sent_nothing_of_it() {
    for kind in ALL {
        for (provider, model) in [("other", "some-model-high"), ("scripted", "another-model")] {
            let body = sent(kind, request(reasoned(pieces(provider, model), "c1"))).await;
            assert!(body.contains("found") && !body.contains("opaque"), "{kind:?}: {body}");
        }
    }
}

/// Who reasons in plain text wants such a text beside every call, also beside those of the model before.
#[tokio::test]
async fn a_call_of_another_model_has_an_empty_text_where_one_is_wanted() {
    let text = piece("scripted", "some-model-high", 0, ReasoningForm::Text("I look.".into()));
    let earlier = reasoned(pieces("other", "m"), "c1");
    let later = reasoned(vec![text], "c2");
    let body = sent(ProviderKind::OpenAi, request([earlier.clone(), later].concat())).await;
    let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    let found = |n: usize| body.pointer(&format!("/messages/{n}/reasoning_content")).cloned();
    assert_eq!((found(2), found(5)), (Some(json!("")), Some(json!("I look."))), "{body}");
    let body = sent(ProviderKind::OpenAi, request(earlier)).await;
    assert!(!body.contains("reasoning_content"), "no other server is sent the field: {body}");
}

#[tokio::test]
async fn what_is_too_large_is_left_out_whole_and_the_answer_stands() {
    let half = "x".repeat(MAX_REASONING_BYTES / 2 + 1);
    let frame = |text: &str| {
        let delta = json!({ "choices": [{ "index": 0, "delta": { "reasoning_content": text } }] });
        format!("data: {delta}\n\n")
    };
    for (times, kept) in [(1, 1), (2, 0)] {
        let raw = frame(&half).repeat(times);
        let reply = Reply::call("file_read", json!({})).with_fault(ReplyFault::RawAfter(1, raw));
        let bench = Bench::new(ProviderKind::OpenAi, list_of_replies([reply])).await;
        let mut wanted = request(vec![user("hi")]);
        wanted.max_output_tokens = writ_types::unit::Tokens::new(100_000);
        let reply = bench.ask(wanted).await.0.expect("an answer");
        assert_eq!((reply.calls.len(), reply.reasoning.len()), (1, kept));
    }
}

/// Models without reasoning refuse to be asked for it.
#[tokio::test]
async fn encrypted_reasoning_is_asked_of_models_that_have_it() {
    for (model, is_asked) in [
        ("gpt-5.2", true),
        ("openai/gpt-5-mini", true),
        ("o3", true),
        ("o4-mini", true),
        ("codex-mini-latest", true),
        ("gpt-5-chat-latest", false),
        ("gpt-4.1", false),
        ("gpt-4o", false),
        ("gpt-oss:20b", false),
        ("orca", false),
    ] {
        let change = |config: &mut crate::config::ModelsConfig| {
            config.models.default = Some(format!("scripted/{model}"));
        };
        let bench =
            Bench::with(ProviderKind::OpenAiResponses, list_of_replies([Reply::text("ok")]), change).await;
        bench.ask(request(vec![user("hi")])).await.0.expect("an answer");
        let body = bench.server.recorded_requests().pop().expect("a request").body;
        let included = body["include"] == json!(["reasoning.encrypted_content"]);
        assert_eq!(included, is_asked, "{model}: {body}");
    }
}
