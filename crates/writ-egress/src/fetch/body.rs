//! An answer's body, decompressed as it comes and stored up to a limit: a bomb costs as much as a page.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;

/// The encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// As it is.
    Identity,
    /// Compressed.
    Gzip,
}

impl Coding {
    /// Returns the encoding that the headers name; `None`: one that we did not ask for.
    pub(crate) fn of<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let first = values.next().map(<[u8]>::to_ascii_lowercase);
        match (first.as_deref(), values.next()) {
            (None | Some(b"" | b"identity"), None) => Some(Self::Identity),
            (Some(b"gzip" | b"x-gzip"), None) => Some(Self::Gzip),
            (_, _) => None,
        }
    }
}

/// Collects a body.
#[derive(Debug)]
pub(crate) struct Collector {
    into: Into,
    begun: bool,
}

#[derive(Debug)]
enum Into {
    Plain(BodyPrefix),
    Gzip(Box<MultiGzDecoder<BodyPrefix>>),
}

/// The stored beginning.
#[derive(Debug)]
struct BodyPrefix {
    bytes: Vec<u8>,
    max: usize,
    truncated: bool,
}

impl Write for BodyPrefix {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.max.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        if bytes.len() > room {
            self.truncated = true;
            // Stops the decoder: what would come next is not wanted.
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Collector {
    pub(crate) fn new(coding: Coding, max: u64) -> Self {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let kept = BodyPrefix { bytes: Vec::new(), max, truncated: false };
        let into = match coding {
            Coding::Identity => Into::Plain(kept),
            Coding::Gzip => Into::Gzip(Box::new(MultiGzDecoder::new(kept))),
        };
        Self { into, begun: false }
    }

    /// Takes a piece. What is beyond the limit is no error; what cannot be decompressed is one.
    pub(crate) fn push_bytes(&mut self, piece: &[u8]) -> io::Result<()> {
        self.begun |= !piece.is_empty();
        let written = match &mut self.into {
            Into::Plain(kept) => kept.write_all(piece),
            Into::Gzip(decoder) => decoder.write_all(piece),
        };
        if self.is_full() { Ok(()) } else { written }
    }

    /// Returns true if there is more than the limit.
    pub(crate) fn is_full(&self) -> bool {
        self.stored_prefix().truncated
    }

    /// Says that the body is at its end: compressed data must be whole.
    pub(crate) fn finish_body(&mut self) -> io::Result<()> {
        let finished = match &mut self.into {
            Into::Plain(_) => Ok(()),
            // A HEAD's answer tells an encoding, and has no body.
            Into::Gzip(_) if !self.begun => Ok(()),
            Into::Gzip(decoder) => decoder.try_finish(),
        };
        if self.is_full() { Ok(()) } else { finished }
    }

    /// Returns the stored bytes, and true if there were more.
    pub(crate) fn into_parts(mut self) -> (Vec<u8>, bool) {
        let kept = match &mut self.into {
            Into::Plain(kept) => kept,
            Into::Gzip(decoder) => decoder.get_mut(),
        };
        (std::mem::take(&mut kept.bytes), kept.truncated)
    }

    fn stored_prefix(&self) -> &BodyPrefix {
        match &self.into {
            Into::Plain(kept) => kept,
            Into::Gzip(decoder) => decoder.get_ref(),
        }
    }
}
