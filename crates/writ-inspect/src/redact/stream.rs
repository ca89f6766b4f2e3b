//! Text on its way out in pieces: what may be the beginning of something to be masked waits for what follows.

use super::formats::{self, MAX_BEFORE, MAX_PEM, MAX_TOKEN};
use super::{Redactor, mask};

/// The most of a word that waits for its end, in bytes: the longest credential that is found as a whole.
const MAX_HELD_WORD: usize = MAX_TOKEN;

/// The most text with line ends in it that waits for the rest of a value, in bytes.
const MAX_HELD_LINES: usize = 4 * 1024;

/// The beginning of a PEM block's first line.
const PEM: &str = "-----BEGIN ";

/// A text that comes in pieces and goes out masked. Holds back at most the longest form of a known secret, a private key
/// or a word, whichever may be under way.
#[derive(Debug)]
pub struct MaskStream {
    redactor: Redactor,
    /// The last text that went out, as it came: it says if the next begins in the middle of a word.
    before: String,
    held: String,
}

impl MaskStream {
    pub(super) const fn new(redactor: Redactor) -> Self {
        Self { redactor, before: String::new(), held: String::new() }
    }

    /// Takes a piece in; what comes out may be shown.
    pub fn push_text(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        match self.settled() {
            0 => String::new(),
            end => self.release_until(end),
        }
    }

    /// The text has ended: what comes out is the rest of it.
    pub fn end_text(&mut self) -> String {
        let end = self.held.len();
        self.release_until(end)
    }

    /// Up to where nothing can change any more.
    fn settled(&self) -> usize {
        let bytes = self.held.as_bytes();
        let word = bytes.iter().rev().take(MAX_HELD_WORD).take_while(|b| is_word(**b)).count();
        // Of a word without end half is let out, so that one that begins late in it is still seen whole.
        let kept = if word < MAX_HELD_WORD { word } else { MAX_HELD_WORD / 2 };
        let mut end = bytes.len() - kept;
        // A value may have begun in what waits, and end in the next piece.
        let values = self.redactor.values();
        // Line ends without end would be held for ever.
        let across = bytes.len().saturating_sub(MAX_HELD_LINES);
        let broken = values.earliest_begun_across_lines(bytes.get(across..).unwrap_or_default());
        let begun = [values.earliest_begun(bytes, 1), broken.map(|begun| across + begun)];
        // The earliest of all beginnings decides, since everything after it may belong to a match.
        end = begun.into_iter().flatten().fold(end, usize::min);
        // A private key has several lines.
        let last = bytes.len().saturating_sub(MAX_PEM);
        let recent = self.held.get(self.held.ceil_char_boundary(last)..).unwrap_or_default();
        if let Some(begun) = recent.rfind(PEM)
            && formats::is_open_pem(recent.get(begun + PEM.len()..).unwrap_or_default().as_bytes())
        {
            end = end.min(self.held.len() - recent.len() + begun);
        }
        self.held.floor_char_boundary(end)
    }

    /// Releases the settled part, and all of any match that begins there.
    fn release_until(&mut self, end: usize) -> String {
        // With what went out before, since a prefix is looked for only where a word begins.
        let whole = format!("{}{}", self.before, self.held);
        let (from, end) = (self.before.len(), self.before.len() + end);
        let mut spans = self.redactor.find_spans(&whole);
        // One that begins in what went out already may hold another one whole: the rest of it is masked.
        spans.retain(|span| span.at.end > from && span.at.start < end);
        // A match that reaches beyond the settled part is complete, or it would have been held back: it goes
        // out whole.
        let end = spans.last().map_or(end, |span| span.at.end.max(end));
        for span in &mut spans {
            span.at = span.at.start.max(from) - from..span.at.end - from;
        }
        let out = whole.get(from..end).unwrap_or_default();
        let masked = mask::apply_masks(out, &spans).into_owned();
        self.held = whole.get(end..).unwrap_or_default().to_owned();
        // Only as much as the search looks back at: the whole past would grow without bound.
        let kept = whole.ceil_char_boundary(end.saturating_sub(MAX_BEFORE));
        self.before = whole.get(kept..end).unwrap_or_default().to_owned();
        masked
    }
}

/// Characters of credentials of one line, and what stands between their parts.
const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+' | b'/' | b'=' | b':')
}
