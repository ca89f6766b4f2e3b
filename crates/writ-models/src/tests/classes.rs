//! The classes of errors, in the words of each provider: limited, used up, passing, not supported, filtered, too long,
//! malformed.

use std::time::Duration;

use serde_json::json;
use writ_testkit::model_server::{Reply, ReplyFault, Stop, list_of_replies};
use writ_types::chat::StopReason;
use writ_types::error::{Exit, ToReport as _};
use writ_types::unit::Timestamp;

use super::bench::{ALL, Bench, request, user};
use crate::config::ProviderKind;
use crate::error::{Failure, Feature};

fn refused(status: u16, headers: &[(&'static str, &str)], body: &str) -> Reply {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Reply::default().with_fault(ReplyFault::Response { status, headers, body: body.to_owned() })
}

/// An account without balance is no rate limit: waiting does not help, and the owner is sent to the provider.
#[tokio::test]
async fn an_account_that_is_used_up_is_not_waited_for() {
    for (kind, status, body) in [
        (
            ProviderKind::Anthropic,
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#,
        ),
        (
            ProviderKind::OpenAi,
            429,
            r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        ),
        (
            ProviderKind::OpenAiResponses,
            429,
            r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        ),
        (ProviderKind::OpenAi, 402, r#"{"error":{"message":"Insufficient Balance","type":"unknown_error"}}"#),
        (ProviderKind::OpenRouter, 402, r#"{"error":{"code":402,"message":"Insufficient credits"}}"#),
        (ProviderKind::Gemini, 402, r#"{"error":{"code":402,"message":"Billing is not enabled"}}"#),
        (ProviderKind::Ollama, 402, r#"{"error":"payment required"}"#),
    ] {
        let bench = Bench::new(kind, list_of_replies([refused(status, &[], body)])).await;
        let error = bench.fail().await;
        assert!(matches!(error.failure, Failure::Quota { .. }), "{kind:?}: {error:?}");
        assert_eq!(bench.models.backoff().wait_before(&error, 1), None);
        let report = error.report();
        assert_eq!((report.exit, report.code.as_str()), (Exit::Model, "model.quota"));
        assert!(report.hint.contains("balance"));
    }
}

/// A request that a filter stopped is not asked again there, counts as no fault of the model, and says so.
#[tokio::test]
async fn a_filtered_request_and_a_filtered_answer_are_told_apart_from_other_ends() {
    for (kind, status, body) in [
        (
            ProviderKind::OpenAi,
            400,
            r#"{"error":{"message":"The response was filtered","type":null,"code":"content_filter","innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
        ),
        (
            ProviderKind::OpenAiResponses,
            400,
            r#"{"error":{"message":"Your request was rejected","type":"image_generation_user_error","code":"moderation_blocked"}}"#,
        ),
        (
            ProviderKind::OpenAi,
            400,
            r#"{"error":{"message":"Input data may contain inappropriate content.","code":"data_inspection_failed"}}"#,
        ),
    ] {
        let bench = Bench::new(kind, list_of_replies([refused(status, &[], body)])).await;
        let error = bench.fail().await;
        assert!(matches!(error.failure, Failure::Filtered { .. }), "{kind:?}: {error:?}");
        assert!(error.failure.is_of_the_request() && !error.failure.is_transient());
        assert_eq!(error.report().code, "model.filtered");
    }
    for kind in ALL {
        let filtered = Reply::text("I").with_stop(Stop::ContentFilter);
        let bench = Bench::new(kind, list_of_replies([filtered])).await;
        let reply = bench.ask(request(vec![user("hi")])).await.0.expect("an answer");
        assert_eq!(reply.stop, StopReason::ContentFilter, "{kind:?}");
    }
}

/// Rows: WIN-079 (in part: a provider that reports no tool calling is not used)
#[tokio::test]
async fn a_model_without_tools_is_told_apart_from_a_wrong_request() {
    for (kind, status, body) in [
        (
            ProviderKind::Ollama,
            400,
            r#"{"error":"registry.ollama.ai/library/gemma:2b does not support tools"}"#,
        ),
        (
            ProviderKind::OpenRouter,
            404,
            r#"{"error":{"code":404,"message":"No endpoints found that support tool use."}}"#,
        ),
        (
            ProviderKind::OpenAi,
            400,
            r#"{"error":{"message":"Function calling is not enabled for this model","type":"invalid_request_error"}}"#,
        ),
        (
            ProviderKind::Gemini,
            400,
            r#"{"error":{"code":400,"message":"Function calling is not enabled for models/x","status":"INVALID_ARGUMENT"}}"#,
        ),
        (
            ProviderKind::Anthropic,
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"tool use is not supported by this model"}}"#,
        ),
        (
            ProviderKind::OpenAiResponses,
            400,
            r#"{"error":{"message":"Tool calling is not supported with this model","type":"invalid_request_error"}}"#,
        ),
    ] {
        let bench = Bench::new(kind, list_of_replies([refused(status, &[], body)])).await;
        let error = bench.fail().await;
        assert!(
            matches!(error.failure, Failure::Unsupported { feature: Feature::Tools, .. }),
            "{kind:?}: {error:?}"
        );
        assert_eq!(error.report().hint, "Choose a model that can call tools.");
    }
}

/// The state of the limits is read from the headers of a refusal, in the words of both families, and is shown for the provider.
///
/// Rows: SF-475 (in part: from refusals, as the engine keeps them)
#[tokio::test]
async fn limits_are_read_from_the_headers_of_a_refusal_and_stay_with_the_provider() {
    for (kind, headers) in [
        (
            ProviderKind::OpenAi,
            [
                ("x-ratelimit-limit-requests", "60"),
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "7s"),
                ("retry-after", "7"),
            ],
        ),
        (
            ProviderKind::Anthropic,
            [
                ("anthropic-ratelimit-requests-limit", "60"),
                ("anthropic-ratelimit-requests-remaining", "0"),
                ("anthropic-ratelimit-requests-reset", "2026-01-01T00:00:00Z"),
                ("retry-after", "7"),
            ],
        ),
    ] {
        let body = r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#;
        let script = list_of_replies([refused(429, &headers, body), Reply::text("there")]);
        let bench = Bench::new(kind, script).await;
        let error = bench.fail().await;
        assert_eq!(error.failure.retry_after(), Some(Duration::from_secs(7)));
        let shown = bench.models.show_rate_limits();
        let limits = serde_json::to_value(&shown).expect("JSON");
        assert_eq!((shown.len(), &limits[0]["provider"]), (1, &json!("scripted")), "{kind:?}");
        assert_eq!(limits[0]["stated"]["requests"]["limit"], 60, "{kind:?}");
        assert_eq!(limits[0]["stated"]["requests"]["remaining"], 0, "{kind:?}");
        assert_eq!(limits[0]["stated"]["headers"].as_object().map(serde_json::Map::len), Some(headers.len()));
        let now = Timestamp::from_millis(1_793_000_000_000);
        let mut course = bench.models.start_course(crate::ModelRole::Proxy);
        let route = bench.models.routes().route(crate::ModelRole::Proxy).clone();
        bench.models.failed(&mut course, &route, &error, now);
        let health = bench.models.health_of(&route);
        assert_eq!(health.held_until, Some(now.plus_duration(Duration::from_secs(7))));
        // An answer ends the wait; the limits stay as they were stated.
        bench.models.answered(&route);
        assert_eq!(bench.models.health_of(&route).held_until, None);
        assert_eq!(bench.models.show_rate_limits(), shown);
    }
}
