//! Text that was shown stays part of the conversation, however the turn goes on.

use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault};
use writ_types::error::Exit;
use writ_types::frame::{ClientFrame, ServerFrame};

use super::engine::{Engine, Link};
use super::turns::Bench;

/// Frames of a stream that bring the first sentence of [`LONG`] and a part of the second.
const FRAMES: usize = 6;
const LONG: &str =
    "The first sentence is said. The second one takes much longer, and its end never comes. Nor does this.";

/// What was streamed before a call of a tool, before a person stopped the turn, and before a provider broke off, is stored, in the
/// order in which it was shown, for those who join later; what the last word of a turn repeats is stored once.
///
/// Rows: SIL-289
#[test]
fn streamed_text_is_stored_before_a_call_at_a_stop_and_where_a_provider_breaks_off() {
    let script = |request: &ParsedRequest| match (request.last_user_text(), request.results().count()) {
        ("look", 0) => Reply::text("I look at it first. ").and_call("memory_search", json!({"query": "tea"})),
        ("look", _) => Reply::text("There is none."),
        ("stop", _) => Reply::text(LONG).with_fault(ReplyFault::SilenceAfter(FRAMES)),
        _ => Reply::text(LONG).with_fault(ReplyFault::ErrorEventAfter(FRAMES)),
    };
    let bench = Bench::new("openai", script);
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, None).expect("joined");
    assert_eq!(link.ask("look", "one").expect("answered").text, "There is none.");
    link.say("stop", "two").expect("sent");
    let turn = link.until(|numbered| {
        let ServerFrame::Delta { turn, text } = numbered.frame else { return None };
        text.contains("sentence").then_some(turn)
    });
    link.send(&ClientFrame::Cancel { turn: turn.expect("it streams") }).expect("sent");
    assert_eq!(link.answer().expect("it ends").exit, Exit::Interrupted);
    assert_eq!(link.ask("break", "three").expect("answered").exit, Exit::Model);
    let mut later = Link::open(&bench.home).expect("connects");
    later.join(Some(session), None).expect("joined");
    let mut shown = Vec::new();
    let mut ended = 0;
    while ended < 3 {
        match later.receive().expect("the history").frame {
            ServerFrame::Text { text, .. } => shown.push(text.trim().to_owned()),
            ServerFrame::Message { last: true, .. } => {
                shown.push("end".to_owned());
                ended += 1;
            }
            ServerFrame::Hello { .. }
            | ServerFrame::Accepted { .. }
            | ServerFrame::Delta { .. }
            | ServerFrame::Reasoning { .. }
            | ServerFrame::Tool { .. }
            | ServerFrame::Message { .. }
            | ServerFrame::File { .. }
            | ServerFrame::Work(_)
            | ServerFrame::GateApproval { .. }
            | ServerFrame::Checkpoint { .. }
            | ServerFrame::Reset { .. }
            | ServerFrame::ApprovalRequest(_)
            | ServerFrame::ApprovalResolved { .. }
            | ServerFrame::Status { .. }
            | ServerFrame::Answer { .. }
            | ServerFrame::Error { .. } => {}
        }
    }
    assert_eq!(shown[..2], ["I look at it first.", "end"], "{shown:?}");
    assert_eq!(shown.len(), 6, "{shown:?}");
    for stopped in [&shown[2], &shown[4]] {
        assert!(stopped.starts_with("The first sentence is said."), "{shown:?}");
    }
    assert_eq!(engine.stop().code, Some(0));
}
