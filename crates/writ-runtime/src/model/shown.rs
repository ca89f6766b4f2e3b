//! Text of an answer on its way to the screens.

use tokio::sync::mpsc;
use writ_models::Delta;
use writ_store::batch::Op;
use writ_types::frame::ServerFrame;

use crate::place::CallPlace;
use crate::segment::Segments;

/// Shows text as it comes, gated by segment; returns the number of pieces, and what was shown.
pub(super) async fn show(
    place: &CallPlace,
    is_shown: bool,
    mut deltas: mpsc::Receiver<Delta>,
) -> (usize, String) {
    let mut pieces = 0_usize;
    if !is_shown {
        while let Some(delta) = deltas.recv().await {
            pieces = pieces.saturating_add(usize::from(matches!(delta, Delta::Text(_))));
        }
        return (pieces, String::new());
    }
    let (mut segments, mut masked) = (Segments::default(), place.services.journal.redactor.mask_stream());
    while let Some(delta) = deltas.recv().await {
        let Delta::Text(text) = delta else { continue };
        pieces = pieces.saturating_add(1);
        release(place, segments.push(&place.services.gates.set, &masked.push_text(&text)));
    }
    let rest = segments.push(&place.services.gates.set, &masked.end_text());
    release(place, rest);
    release(place, segments.end(&place.services.gates.set));
    (pieces, segments.into_released())
}

/// The frame that keeps text which was shown and which no message of the turn repeats: before a call of a tool, or where the
/// answer broke off.
pub(super) fn shown_text(place: &CallPlace, text: String) -> Option<Op> {
    let turn = place.turn.filter(|_| !text.trim().is_empty())?;
    Some(Op::Frame { session: place.session.id, frame: Box::new(ServerFrame::Text { turn, text }) })
}

fn release(place: &CallPlace, text: String) {
    if let Some(turn) = place.turn.filter(|_| !text.is_empty()) {
        place.session.hub.pass(ServerFrame::Delta { turn, text });
    }
}
