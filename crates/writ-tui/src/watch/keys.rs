//! The keys of a view, read from the bytes that a terminal sends.

/// Ctrl-C, as a terminal without signals sends it.
const INTERRUPT: u8 = 0x03;
/// Ctrl-D: the end of the input.
const END: u8 = 0x04;
const ESCAPE: u8 = 0x1b;
/// The longest sequence of bytes after Esc that can be a key; a longer one is none, and its rest counts as keys of its own.
const MAX_SEQUENCE: usize = 8;

/// A key that a view knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKey {
    /// `q`, Ctrl-C, or the end of the input.
    Leave,
    /// The unit above.
    Up,
    /// The unit below.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// The first unit.
    First,
    /// The last unit.
    Last,
}

/// Puts bytes together to keys. Bytes that are no known key are passed over.
#[derive(Debug, Default)]
pub struct KeyReader {
    /// The bytes of a sequence that has begun, without its Esc; none: no sequence has begun.
    sequence: Option<Vec<u8>>,
}

impl KeyReader {
    /// Takes the next byte; returns the key that it ends.
    pub fn push_byte(&mut self, byte: u8) -> Option<WatchKey> {
        let Some(mut sequence) = self.sequence.take() else {
            return match byte {
                ESCAPE => {
                    self.sequence = Some(Vec::new());
                    None
                }
                b'q' | b'Q' | INTERRUPT | END => Some(WatchKey::Leave),
                b'k' => Some(WatchKey::Up),
                b'j' => Some(WatchKey::Down),
                b'g' => Some(WatchKey::First),
                b'G' => Some(WatchKey::Last),
                b' ' => Some(WatchKey::PageDown),
                _ => None,
            };
        };
        // `ESC [` and `ESC O` begin a sequence; any other byte after an Esc is a key of its own.
        let begins = sequence.is_empty() && matches!(byte, b'[' | b'O');
        if sequence.is_empty() && !begins {
            return self.push_byte(byte);
        }
        sequence.push(byte);
        let is_last = !begins && (0x40..=0x7e).contains(&byte);
        if !is_last {
            if sequence.len() < MAX_SEQUENCE {
                self.sequence = Some(sequence);
            }
            return None;
        }
        match sequence.get(1..).unwrap_or_default() {
            b"A" => Some(WatchKey::Up),
            b"B" => Some(WatchKey::Down),
            b"5~" => Some(WatchKey::PageUp),
            b"6~" => Some(WatchKey::PageDown),
            b"H" | b"1~" => Some(WatchKey::First),
            b"F" | b"4~" => Some(WatchKey::Last),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<WatchKey> {
        let mut reader = KeyReader::default();
        bytes.iter().filter_map(|byte| reader.push_byte(*byte)).collect()
    }

    /// Both kinds of arrows, letters, and keys one right after the other; what is no key, or never ends, swallows none that follows.
    #[test]
    fn bytes_become_keys() {
        use WatchKey::{Down, First, Last, Leave, PageDown, PageUp, Up};
        assert_eq!(keys(b"\x1b[A\x1b[B\x1bOA\x1bOBkj"), [Up, Down, Up, Down, Up, Down]);
        assert_eq!(
            keys(b"\x1b[5~\x1b[6~\x1b[H\x1b[F\x1b[1~\x1b[4~ "),
            [PageUp, PageDown, First, Last, First, Last, PageDown]
        );
        assert_eq!([keys(b"q"), keys(b"\x03"), keys(b"\x04"), keys(b"\x1bq")].concat(), [Leave; 4]);
        assert_eq!(keys(b"\x1b[1;5A\x1b[<0;1;1Mx\xff\x1b\x1bj"), [Down], "no key of the view but the last");
        assert_eq!(keys(&[b"\x1b[".as_slice(), &[b'1'; 100], b"q"].concat()), [Leave]);
    }
}
