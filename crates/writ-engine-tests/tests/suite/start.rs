//! The start of an engine over a store that an earlier one has left.

use std::time::Duration;

use writ_store::batch::{Batch, Op};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::entry::{Entry, Fact};

use crate::harness::{BEGIN, TestEngine};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Nonces are deleted once they have ended for certain, and not before: one that is forgotten could be used again.
///
/// Rows: SIL-164
#[test]
fn a_start_deletes_the_nonces_that_have_ended_and_no_others() {
    let nonce = |nonce: &str, expires_at| Op::RecordNonce {
        namespace: "test".to_owned(),
        nonce: nonce.to_owned(),
        expires_at,
    };
    let handed = TestEngine::with(
        |parts| {
            let fact = Fact::Checkpoint { name: "earlier".to_owned() };
            let entry = Entry { at: BEGIN, session: None, turn: None, turn_number: 0, fact };
            let ops = vec![
                Op::Append(Box::new(entry)),
                nonce("ended", BEGIN.minus_duration(2 * DAY)),
                nonce("just ended", BEGIN),
                nonce("good", BEGIN.plus_duration(DAY)),
            ];
            parts.store.commit_blocking(Batch::synced(ops)).expect("written");
        },
        |_| |_: &ParsedRequest| Reply::text("Done."),
    );
    let is_known = |name: &str| handed.store.blocking().is_used("test", name).expect("reads");
    assert_eq!(["ended", "just ended", "good"].map(is_known), [false, true, true]);
    handed.end();
}
