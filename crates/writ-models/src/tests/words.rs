//! The provider's own words: shown to people, never with the key, never in the log's form of an error.

use writ_testbed::raw_server::{RawAnswer, RawServer};
use writ_types::error::ToReport as _;

use super::bench::{KEY, models, request, table, user};
use super::door::{NOW, permit};
use crate::config::{ModelRole, ModelsConfig, ProviderKind};
use crate::error::{MAX_WORDS_CHARS, ModelError};

/// The error of a provider that answers so.
async fn refused(kind: ProviderKind, status: u16, body: String) -> ModelError {
    let answer =
        RawAnswer { status, headers: Vec::new(), body: body.into_bytes(), chunk: usize::MAX, cut: false };
    let server = RawServer::start(answer).await.expect("a server");
    let mut config = ModelsConfig::default();
    config.providers.insert("foreign".into(), table(kind, format!("http://{}/v1/", server.address())));
    config.models.default = Some("foreign/some-model".into());
    let (models, _runtime) = models(&config);
    let planned =
        models.plan(ModelRole::Proxy, std::sync::Arc::new(request(vec![user("hi")])), NOW).expect("a plan");
    let (sender, _receiver) = tokio::sync::mpsc::channel(1);
    let permit = permit(planned.action()).await;
    models.call(permit, &planned, sender, Default::default(), NOW).await.expect_err("refused")
}

/// Rows: SCL-014 SCL-019 SCL-023 (the key is in no error)
#[tokio::test]
async fn a_provider_that_echoes_the_key_shows_its_message_without_it() {
    use base64::Engine as _;
    let base64 = base64::engine::general_purpose::STANDARD.encode(KEY);
    let hex: String = KEY.bytes().map(|byte| format!("{byte:02x}")).collect();
    let escaped: String = KEY.bytes().map(|byte| format!("%{byte:02X}")).collect();
    for kind in ProviderKind::ALL {
        for echoed in [KEY, &base64, &hex, &escaped, &format!("Bearer {KEY}")] {
            for status in [400, 401, 429, 500] {
                let message = format!("The key {echoed} may not use this model.");
                let error = refused(kind, status, format!(r#"{{"error":{{"message":"{message}"}}}}"#)).await;
                let report = error.report();
                let all = format!("{} {} {} {error} {error:?}", report.outside, report.inside, report.hint);
                // Where every character of the key was escaped, the whole message is left out.
                let is_shown = report.outside.contains("may not use this model.");
                assert_eq!(is_shown, *echoed != *escaped, "{kind:?} {all}");
                for secret in [KEY, "c0ffee", &base64, &hex, &escaped] {
                    assert!(!all.contains(secret), "{kind:?} {status}: {secret} in {all}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_message_is_one_bounded_line_and_marked_as_the_providers() {
    let flood = format!("first\\nsecond\\u001b[2J\\u202e {}", "x ".repeat(50_000));
    let error = refused(ProviderKind::OpenAi, 400, format!(r#"{{"error":{{"message":"{flood}"}}}}"#)).await;
    let report = error.report();
    let (_, said) = report.outside.split_once("The provider says: `").expect("it is marked");
    assert!(said.starts_with("first second [2J x x"), "{said}");
    assert!(said.chars().count() <= MAX_WORDS_CHARS + 1 && !said.contains(char::is_control), "{said}");
    assert!(
        !error.to_string().contains("first") && !report.inside.contains("first"),
        "the log has no message"
    );
}

/// A balance, a quota or a field that is wrong is told in the provider's words; a guess of ours is not.
#[tokio::test]
async fn a_refusal_without_a_message_says_so() {
    let error = refused(ProviderKind::OpenAi, 400, String::new()).await;
    let report = error.report();
    assert!(report.hint.contains("gave no reason") && !report.hint.contains("balance"), "{report:?}");
    assert!(!report.outside.contains("says"), "{report:?}");
}

/// A refusal that its owner can mend says where: the balance, or the address.
#[tokio::test]
async fn a_used_up_balance_and_a_redirect_name_their_remedy() {
    let body =
        r#"{"error":{"message":"m","type":"insufficient_quota","code":"insufficient_quota"}}"#.to_owned();
    let report = refused(ProviderKind::OpenAi, 429, body).await.report();
    assert!(report.hint.contains("balance"), "{report:?}");
    let report = refused(ProviderKind::OpenAi, 301, String::new()).await.report();
    assert!(report.hint.contains("base_url"), "{report:?}");
}
