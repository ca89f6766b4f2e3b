//! Reads a stream line by line. A line that is too long is refused while it is read.

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::error::McpError;

/// The most bytes that one read takes.
const BLOCK: usize = 16 * 1024;

/// Reads lines. [`next_line`](Self::next_line) can stand in a `select!`: when its future is dropped, no byte is lost.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    from: R,
    /// The bytes that were read and not yet given out; never much longer than `max`.
    held: Vec<u8>,
    /// The bytes of `held` that are known to have no line end.
    searched: usize,
    max: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) const fn new(from: R, max: usize) -> Self {
        Self { from, held: Vec::new(), searched: 0, max }
    }

    /// Returns the next line without its line end; `None` at the end of the stream. Bytes behind the last line end are dropped.
    ///
    /// # Errors
    ///
    /// If a line is longer than the bound, or the stream cannot be read.
    pub(crate) async fn next_line(&mut self) -> Result<Option<Vec<u8>>, McpError> {
        loop {
            let fresh = self.held.get(self.searched..).unwrap_or_default();
            if let Some(at) = fresh.iter().position(|byte| *byte == b'\n') {
                let end = self.searched.saturating_add(at);
                // Checked here and below, since a line that is too long can come together with its end.
                if end > self.max {
                    return Err(McpError::TooLarge { limit: self.max });
                }
                let rest = self.held.split_off(end.saturating_add(1));
                let mut line = std::mem::replace(&mut self.held, rest);
                self.searched = 0;
                line.truncate(end);
                // Programs on Windows end a line with a carriage return before the line feed.
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(Some(line));
            }
            self.searched = self.held.len();
            if self.held.len() > self.max {
                return Err(McpError::TooLarge { limit: self.max });
            }
            let mut block = [0; BLOCK];
            let read =
                self.from.read(&mut block).await.map_err(|why| McpError::Transport(why.to_string()))?;
            // A message ends with its line, so an unfinished line is none.
            if read == 0 {
                return Ok(None);
            }
            self.held.extend_from_slice(block.get(..read).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    async fn all(bytes: &[u8], max: usize) -> Result<Vec<Vec<u8>>, McpError> {
        let (mut lines, mut found) = (Lines::new(bytes, max), Vec::new());
        while let Some(line) = lines.next_line().await? {
            found.push(line);
        }
        Ok(found)
    }

    #[tokio::test]
    async fn line_ends_are_cut_off_and_an_unfinished_line_is_dropped() {
        let lines = all(b"a\r\n\nbc\nrest", 10).await.unwrap();
        assert_eq!(lines, [b"a".to_vec(), b"".to_vec(), b"bc".to_vec()]);
    }

    #[tokio::test]
    async fn a_line_at_the_bound_is_read_and_one_above_it_is_not() {
        assert_eq!(all(b"12345\n", 5).await.unwrap(), [b"12345".to_vec()]);
        assert_eq!(all(b"123456\n", 5).await, Err(McpError::TooLarge { limit: 5 }));
        let endless = vec![b'x'; 3 * BLOCK];
        assert_eq!(all(&endless, 5).await, Err(McpError::TooLarge { limit: 5 }));
    }

    proptest! {
        #[test]
        fn any_bytes_are_split_as_a_slice_would_be(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut expected: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            expected.pop();
            for line in &mut expected {
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
            }
            prop_assert_eq!(runtime.block_on(all(&bytes, 1_000)).unwrap(), expected);
        }
    }
}
