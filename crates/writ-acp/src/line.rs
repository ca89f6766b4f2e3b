//! Reads a stream line by line. A line that is too long is discarded while it is read.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::bounds::MAX_HEAD_BYTES;

/// The most bytes that one read takes.
const BLOCK: usize = 16 * 1024;

/// A line, or a part of one that is too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AcpLine {
    /// Its bytes, without the line end.
    Read(Vec<u8>),
    /// A part of a line that is too long. Each further part of the line is a value of its own.
    Passed {
        /// The number of bytes in this part.
        bytes: u64,
        /// The beginning of the line; empty for a later part.
        head: Vec<u8>,
    },
}

/// Reads lines. [`next_line`](Self::next_line) is cancel-safe: dropping its future loses no byte.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    from: R,
    /// The bytes that were read and not returned yet: at most `max` and one block.
    held: Vec<u8>,
    /// The number of bytes at the start of `held` that are known to have no line end.
    searched: usize,
    /// True inside a line that is too long.
    is_passing: bool,
    max: usize,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) const fn new(from: R, max: usize) -> Self {
        Self { from, held: Vec::new(), searched: 0, is_passing: false, max }
    }

    /// Returns the next line; `None` at the end of the stream. Bytes after the last line end are dropped: they are an
    /// incomplete message.
    ///
    /// # Errors
    ///
    /// If the stream cannot be read.
    pub(crate) async fn next_line(&mut self) -> io::Result<Option<AcpLine>> {
        loop {
            if let Some(line) = self.take_held() {
                return Ok(Some(line));
            }
            let mut block = [0; BLOCK];
            let read = self.from.read(&mut block).await?;
            if read == 0 {
                return Ok(None);
            }
            self.held.extend_from_slice(block.get(..read).unwrap_or_default());
        }
    }

    fn take_held(&mut self) -> Option<AcpLine> {
        let fresh = self.held.get(self.searched..).unwrap_or_default();
        let Some(at) = fresh.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.held.len();
            if self.held.len() <= self.max {
                return None;
            }
            // The rest of the line is discarded as well, as further parts.
            let is_later = std::mem::replace(&mut self.is_passing, true);
            self.searched = 0;
            return Some(passed_line(&std::mem::take(&mut self.held), is_later));
        };
        let end = self.searched.saturating_add(at);
        let rest = self.held.split_off(end.saturating_add(1));
        let mut line = std::mem::replace(&mut self.held, rest);
        self.searched = 0;
        let is_later = std::mem::take(&mut self.is_passing);
        if is_later || end > self.max {
            return Some(passed_line(&line, is_later));
        }
        line.truncate(end);
        // Programs of other systems end a line with a carriage return before the line feed.
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Some(AcpLine::Read(line))
    }
}

fn passed_line(line: &[u8], is_later: bool) -> AcpLine {
    let head = if is_later { &[] } else { line.get(..MAX_HEAD_BYTES).unwrap_or(line) };
    AcpLine::Passed { bytes: byte_count(line.len()), head: head.to_vec() }
}

fn byte_count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
