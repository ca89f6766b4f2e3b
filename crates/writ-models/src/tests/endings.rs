//! Answers that end in other ways than their formats say.

use writ_testkit::model_server::{Reply, ReplyFault, list_of_replies};
use writ_types::chat::StopReason;

use super::bench::{Bench, request, user};
use crate::config::ProviderKind;
use crate::error::Failure;

/// After its stop reason a server sends counts and an end mark, or nothing, without closing the connection.
///
/// Rows: SCL-017
#[tokio::test]
async fn silence_after_the_stop_reason_ends_a_whole_answer_and_before_it_fails() {
    let (mut whole, mut failed) = (0, 0);
    for frames in 0..6 {
        let reply = Reply::text("that is all").with_fault(ReplyFault::SilenceAfter(frames));
        let bench = Bench::with(ProviderKind::OpenAi, list_of_replies([reply]), |config| {
            config.models.request_timeout_ms = 100;
        })
        .await;
        match bench.ask(request(vec![user("hi")])).await.0 {
            Ok(reply) => {
                assert_eq!((reply.text.as_str(), reply.stop), ("that is all", StopReason::EndTurn));
                whole += 1;
            }
            Err(error) => {
                assert!(matches!(error.failure, Failure::Timeout { .. }) && whole == 0, "{error}");
                failed += 1;
            }
        }
    }
    assert!(whole > 0 && failed > 0, "{whole} {failed}");
}
