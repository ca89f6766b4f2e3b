//! The form of an answer and the effort of reasoning, in each provider's own way.

use serde_json::{Value, json};
use writ_testkit::model_server::{Reply, ReplyFault, list_of_replies};
use writ_types::chat::{AnswerForm, Effort, ModelRequest};

use super::bench::{ALL, Bench, request, user};
use super::door::NOW;
use crate::config::{ModelRole, ProviderKind};
use crate::error::{Failure, Feature};

/// What old prompts had models write to call a tool.
const ORDER: &str = "Thought: I list it.\nAction: file_read\nAction Input: {\"path\": \"a.txt\"}";

fn formed() -> ModelRequest {
    let schema = json!({
        "type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"], "additionalProperties": false,
    });
    let mut request = request(vec![user("rate this")]);
    request.form = Some(AnswerForm::new("score", schema));
    request
}

/// The form in the body of a request.
fn form_in(kind: ProviderKind, body: &Value) -> &Value {
    match kind {
        ProviderKind::Anthropic => &body["output_config"]["format"]["schema"],
        ProviderKind::OpenAi | ProviderKind::OpenRouter => &body["response_format"]["json_schema"]["schema"],
        ProviderKind::OpenAiResponses => &body["text"]["format"]["schema"],
        ProviderKind::Gemini => &body["generationConfig"]["responseJsonSchema"],
        ProviderKind::Ollama => &body["format"],
    }
}

/// The library has no field for a schema where the format is Ollama's, so its grammar is that of JSON. A text that looks like an order of
/// old prompts is a text.
///
/// Rows: WIN-077
#[tokio::test]
async fn the_form_of_an_answer_is_sent_in_each_providers_own_way() {
    for kind in ALL {
        let replies = [Reply::text("{\"score\": 7}"), Reply::text(ORDER)];
        let bench = Bench::new(kind, list_of_replies(replies)).await;
        assert_eq!(bench.ask(formed()).await.0.expect("an answer").text, "{\"score\": 7}");
        let said = bench.ask(request(vec![user("hi")])).await.0.expect("an answer");
        assert_eq!((said.text.as_str(), said.calls.len()), (ORDER, 0), "{kind:?}");
        let sent = bench.server.recorded_requests();
        let form = form_in(kind, &sent[0].body);
        if kind == ProviderKind::Ollama {
            // The answer is checked in any case.
            assert_eq!((sent[0].path.as_str(), form), ("/api/chat", &"json".into()));
        } else {
            assert_eq!(form["properties"]["score"]["type"], "integer", "{kind:?}: {}", sent[0].body);
        }
        assert!(!sent[0].body["tools"].is_null());
        assert!(form_in(kind, &sent[1].body).is_null(), "{kind:?}: only where it is asked for");
    }
}

/// A server that does not know the form is asked without it, and from then on at once.
#[tokio::test]
async fn a_form_that_is_refused_is_left_out_of_the_next_request() {
    let body = r#"{"error":{"message":"This response_format type is unavailable now","type":"invalid_request_error"}}"#;
    for kind in ALL {
        let refusal = ReplyFault::Response { status: 400, headers: Vec::new(), body: body.to_owned() };
        let script = list_of_replies([
            Reply::default().with_fault(refusal),
            Reply::text("{\"score\": 7}"),
            Reply::text("{\"score\": 8}"),
        ]);
        let bench = Bench::new(kind, script).await;
        for (answer, requests) in [("{\"score\": 7}", 2), ("{\"score\": 8}", 3)] {
            let mut course = bench.models.start_course(ModelRole::Proxy);
            let reply = loop {
                let step = bench.models.next(&course, NOW).expect("it is asked again");
                assert!(step.wait.is_zero());
                let request = std::sync::Arc::new(formed());
                let planned = bench.models.plan_over(&step.route, request, NOW).expect("a plan");
                match bench.attempt(&planned, Default::default()).await.0 {
                    Ok(reply) => break reply,
                    Err(error) => {
                        let feature = Feature::Form;
                        assert!(
                            matches!(&error.failure, Failure::Unsupported { feature: found, .. } if *found == feature)
                        );
                        bench.models.failed(&mut course, &step.route, &error, NOW);
                    }
                }
            };
            assert_eq!(reply.text, answer);
            let sent = bench.server.recorded_requests();
            assert_eq!(sent.len(), requests, "{kind:?}");
            assert!(form_in(kind, &sent[requests - 1].body).is_null());
            let route = bench.models.routes().route(ModelRole::Proxy);
            assert_eq!(bench.models.health_of(route).failures, 0, "that is no fault of the model");
        }
    }
}

#[tokio::test]
async fn the_effort_of_a_role_is_sent_in_each_providers_own_way() {
    for kind in ALL {
        let bench = Bench::with(kind, list_of_replies(vec![Reply::text("ok"); 3]), |config| {
            config.models.effort.insert(ModelRole::Planner, Effort::High);
            // An ending such as `-high` would be read as an effort by the library.
            config.models.default = Some("scripted/some-model".into());
        })
        .await;
        assert_eq!(bench.models.routes().effort(ModelRole::Proxy), None);
        let mut request = request(vec![user("hi")]);
        bench.ask(request.clone()).await.0.expect("an answer");
        request.effort = bench.models.routes().effort(ModelRole::Planner);
        assert_eq!(request.effort, Some(Effort::High));
        request.max_output_tokens = writ_types::unit::Tokens::new(40_000);
        bench.ask(request).await.0.expect("an answer");
        let sent = bench.server.recorded_requests();
        let effort = |body: &Value| match kind {
            ProviderKind::Anthropic => body["thinking"]["budget_tokens"].clone(),
            ProviderKind::OpenAi => body["reasoning_effort"].clone(),
            ProviderKind::OpenRouter | ProviderKind::OpenAiResponses => body["reasoning"]["effort"].clone(),
            ProviderKind::Gemini => body["generationConfig"]["thinkingConfig"]["thinkingBudget"].clone(),
            ProviderKind::Ollama => body["think"].clone(),
        };
        assert!(effort(&sent[0].body).is_null(), "{kind:?}: the provider decides");
        if kind == ProviderKind::Anthropic {
            // A budget that is not smaller than the limit of the answer would be refused.
            let mut small = super::bench::request(vec![user("hi")]);
            (small.effort, small.max_output_tokens) =
                (Some(Effort::High), writ_types::unit::Tokens::new(9_000));
            bench.ask(small).await.0.expect("an answer");
            let sent = bench.server.recorded_requests();
            assert_eq!(effort(&sent[2].body), json!(8_000));
        }
        let high = match kind {
            ProviderKind::Anthropic | ProviderKind::Gemini => json!(24_000),
            ProviderKind::OpenAi
            | ProviderKind::OpenRouter
            | ProviderKind::OpenAiResponses
            | ProviderKind::Ollama => json!("high"),
        };
        assert_eq!(effort(&sent[1].body), high, "{kind:?}: {}", sent[1].body);
    }
}
