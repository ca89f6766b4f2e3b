//! Text of an answer on its way to the screens.

use tokio::sync::mpsc;
use writ_models::Delta;
use writ_store::batch::Op;
use writ_types::chat::{Reasoning, estimate_tokens_of_chars};
use writ_types::frame::ServerFrame;
use writ_types::unit::Tokens;

use crate::place::CallPlace;
use crate::segment::Segments;

/// The parts of an answer that came before its end.
#[derive(Debug, Default)]
pub(super) struct HeardAnswer {
    /// The pieces of its text.
    pub(super) pieces: usize,
    /// The estimated tokens of its text.
    pub(super) read: Tokens,
    /// The text that was shown.
    pub(super) released: String,
}

/// Shows text as it comes, gated by segment.
pub(super) async fn show(
    place: &CallPlace,
    is_shown: bool,
    mut deltas: mpsc::Receiver<Delta>,
) -> HeardAnswer {
    let (mut pieces, mut chars) = (0_usize, 0_usize);
    if !is_shown {
        while let Some(delta) = deltas.recv().await {
            place.session.note_heard(place.services.journal.clock.now());
            let Delta::Text(text) = delta else { continue };
            pieces = pieces.saturating_add(1);
            chars = chars.saturating_add(text.chars().count());
        }
        let read = estimate_tokens_of_chars(chars);
        return HeardAnswer { pieces, read, released: String::new() };
    }
    let (mut segments, mut masked) = (Segments::default(), place.services.journal.redactor.mask_stream());
    while let Some(delta) = deltas.recv().await {
        let Delta::Text(text) = delta else { continue };
        pieces = pieces.saturating_add(1);
        chars = chars.saturating_add(text.chars().count());
        release(place, segments.push(&place.services.gates.set, &masked.push_text(&text)));
    }
    let rest = segments.push(&place.services.gates.set, &masked.end_text());
    release(place, rest);
    release(place, segments.end(&place.services.gates.set));
    HeardAnswer { pieces, read: estimate_tokens_of_chars(chars), released: segments.into_released() }
}

/// The most of a reasoning that is shown, in characters: a person reads its beginning at best.
const MAX_SHOWN_REASONING: usize = 32 * 1024;

/// Shows the reasoning of an answer to the clients, masked and gated like its text. It is not stored for them.
pub(super) fn show_reasoning(place: &CallPlace, is_shown: bool, reasoning: &[Reasoning]) {
    let Some(turn) = place.turn.filter(|_| is_shown) else { return };
    let pieces: Vec<String> =
        reasoning.iter().map(Reasoning::readable_text).filter(|text| !text.trim().is_empty()).collect();
    if pieces.is_empty() {
        return;
    }
    let text: String = pieces.join("\n").chars().take(MAX_SHOWN_REASONING).collect();
    let masked = place.services.journal.redactor.mask_text(&text);
    let (mut segments, gates) = (Segments::default(), &place.services.gates.set);
    segments.push(gates, &masked);
    segments.end(gates);
    let text = segments.into_released();
    if !text.trim().is_empty() {
        place.session.hub.pass(ServerFrame::Reasoning { turn, text });
    }
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
