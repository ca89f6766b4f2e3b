//! Text on its way to the screen, in segments that the output gates have judged with what came before.

use writ_inspect::gate::GateSet;
use writ_types::entry::GatePoint;

/// The longest that text waits for the end of its sentence, in characters (design 3.4).
const SEGMENT_CHARS: usize = 200;

/// Text that comes in pieces and goes out in judged segments.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    /// Everything that came, as far as it is complete segments.
    whole: String,
    /// Text after the last complete segment.
    rest: String,
    /// Judged text that was shown already.
    released: String,
    /// A gate has stopped the text, or rewritten what was let out already.
    stopped: bool,
}

impl Segments {
    /// Takes a piece in; what comes out may be shown.
    pub(crate) fn push(&mut self, gates: &GateSet, piece: &str) -> String {
        self.rest.push_str(piece);
        let Some(end) = last_end(&self.rest) else { return String::new() };
        let rest = self.rest.split_off(end);
        self.whole.push_str(&std::mem::replace(&mut self.rest, rest));
        self.judge(gates)
    }

    /// The text has ended: what comes out is the rest of it.
    pub(crate) fn end(&mut self, gates: &GateSet) -> String {
        self.whole.push_str(&std::mem::take(&mut self.rest));
        self.judge(gates)
    }

    /// Returns everything that was let out.
    pub(crate) fn into_released(self) -> String {
        self.released
    }

    fn judge(&mut self, gates: &GateSet) -> String {
        if self.stopped || gates.holds_output() {
            return String::new();
        }
        // All of it and not the new part alone: what a gate looks for may lie across two segments.
        let judged = gates.judge_text(GatePoint::Output, &self.whole).text;
        match judged.as_deref().and_then(|text| text.strip_prefix(self.released.as_str())) {
            Some(more) => {
                let more = more.to_owned();
                self.released.push_str(&more);
                more
            }
            None => {
                self.stopped = true;
                String::new()
            }
        }
    }
}

/// Returns the end of the last complete segment: after a sentence, after a line, or at the length limit.
fn last_end(text: &str) -> Option<usize> {
    let sentence = text
        .char_indices()
        .zip(text.chars().skip(1))
        .filter(|((_, c), next)| *c == '\n' || (matches!(c, '.' | '!' | '?' | ':') && next.is_whitespace()))
        .map(|((at, c), _)| at.saturating_add(c.len_utf8()))
        .last();
    let newline = text.ends_with('\n').then_some(text.len());
    let long = (text.chars().count() >= SEGMENT_CHARS).then_some(text.len());
    newline.or(long).or(sentence)
}

#[cfg(test)]
mod tests {
    use writ_inspect::gate::{GateAction, GateConfig, Point};

    use super::*;

    fn gates(action: GateAction) -> GateSet {
        let gate = GateConfig {
            on: Point::Output,
            contains: vec!["the secret".into()],
            action,
            replacement: "it".into(),
            ..GateSet::shipped_gate()
        };
        GateSet::new(vec![gate]).expect("valid")
    }

    fn run(gates: &GateSet, pieces: &[&str]) -> Vec<String> {
        let mut segments = Segments::default();
        let mut out: Vec<String> = pieces.iter().map(|piece| segments.push(gates, piece)).collect();
        out.push(segments.end(gates));
        out
    }

    #[test]
    fn text_goes_out_by_sentence() {
        let out = run(&GateSet::default(), &["Hello", " there. How", " are you"]);
        assert_eq!(out, ["", "Hello there.", "", " How are you"]);
        let long = "x".repeat(SEGMENT_CHARS);
        assert_eq!(run(&GateSet::default(), &[&long]), [long.as_str(), ""]);
    }

    /// Rows: SIL-032
    #[test]
    fn nothing_comes_out_after_a_gate_blocked() {
        let out = run(&gates(GateAction::Block), &["Fine. ", "Now the secret. ", "And more. "]);
        assert_eq!(out.concat(), "Fine.");
    }

    #[test]
    fn rewritten_text_never_takes_back_what_was_shown() {
        let out = run(&gates(GateAction::Replace), &["One. ", "I know the secret. Yes."]);
        assert_eq!(out.concat(), "One. I know it. Yes.");
        // The gate sees the words only when they are complete, in one segment with what came before.
        let out = run(&gates(GateAction::Replace), &["I know the.\n", "secret"]);
        assert_eq!(out.concat(), "I know the.\nsecret");
    }
}
