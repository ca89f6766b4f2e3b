//! The arguments of a call as they come: JSON text in pieces.

/// The state of arguments, as JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arguments {
    /// Nothing but blanks.
    Empty,
    /// Something has begun.
    Partial,
    /// One whole object.
    Complete,
}

impl Arguments {
    pub(super) fn of(text: &str) -> Self {
        let mut progress = ArgumentScan::default();
        progress.read(text);
        progress.state()
    }
}

/// Follows brackets and strings, so that each byte of arguments is looked at once.
#[derive(Debug, Default)]
pub(super) struct ArgumentScan {
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
    pub(super) has_begun: bool,
    is_closed: bool,
    /// Something follows the end, or it is no object.
    is_broken: bool,
}

impl ArgumentScan {
    pub(super) fn read(&mut self, more: &str) {
        for byte in more.bytes() {
            // A bracket inside a string is text.
            if self.is_in_string {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.is_in_string = false,
                    _ => {}
                }
                continue;
            }
            if byte.is_ascii_whitespace() {
                continue;
            }
            // An object must come first and alone: two in a row are two calls, or a mistake.
            self.is_broken |= self.is_closed || (!self.has_begun && byte != b'{');
            self.has_begun = true;
            match byte {
                b'"' => self.is_in_string = true,
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.is_closed = self.depth == 0;
                }
                _ => {}
            }
        }
    }

    pub(super) const fn state(&self) -> Arguments {
        match (self.has_begun, self.is_closed && !self.is_broken) {
            (false, _) => Arguments::Empty,
            (true, false) => Arguments::Partial,
            (true, true) => Arguments::Complete,
        }
    }
}
