//! The first head on a connection, read and checked before a parser sees it, so that every mistake is
//! answered in one way, and nothing that two readers could read in two ways is parsed at all.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes read at once.
const STEP: usize = 4 * 1024;
/// The end of a head.
const END: &[u8] = b"\r\n\r\n";
/// The first byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 0x16;
/// The first bytes of an HTTP/2 connection.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2";

/// A mistake in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeadFault {
    /// The client left without a word.
    #[error("the connection ended before a request")]
    Empty,
    /// It did not come in time.
    #[error("the request's head did not come in time")]
    Slow,
    /// It is too long.
    #[error("the request's head is too long")]
    TooLong,
    /// It holds a control character or a line end that is none.
    #[error("the request's head contains a byte that is not allowed there")]
    Byte,
    /// It is TLS.
    #[error("this is a plain HTTP proxy: speak HTTP to it, and CONNECT for TLS")]
    Tls,
    /// It is HTTP/2.
    #[error("this proxy speaks HTTP/1.1; HTTP/2 goes through CONNECT")]
    Http2,
}

impl HeadFault {
    /// The status to answer with.
    pub(crate) const fn fault_status(self) -> u16 {
        match self {
            Self::Empty | Self::Byte | Self::Tls | Self::Http2 => 400,
            Self::Slow => 408,
            Self::TooLong => 431,
        }
    }

    /// A stable code.
    pub(crate) const fn fault_code(self) -> &'static str {
        match self {
            Self::Empty => "proxy.empty",
            Self::Slow => "proxy.slow_head",
            Self::TooLong => "proxy.long_head",
            Self::Byte => "proxy.bad_head",
            Self::Tls => "proxy.tls",
            Self::Http2 => "proxy.http2",
        }
    }
}

/// Reads until the head is whole. Returns everything that was read: the beginning of a body may be among it.
pub(crate) async fn read_head(
    from: &mut (impl AsyncRead + Unpin),
    max: usize,
    limit: Duration,
) -> Result<Vec<u8>, HeadFault> {
    let reading = async {
        let mut bytes = Vec::new();
        let mut step = [0; STEP];
        loop {
            let count = from.read(&mut step).await.unwrap_or(0);
            if count == 0 {
                return Err(HeadFault::Empty);
            }
            let seen = bytes.len();
            bytes.extend_from_slice(step.get(..count).unwrap_or_default());
            // The end of the head may lie across two reads.
            let from = seen.saturating_sub(END.len());
            let found =
                bytes.get(from..).and_then(|tail| tail.windows(END.len()).position(|part| part == END));
            let end = found.map(|at| from + at + END.len());
            // Checked as it comes: a wrong first byte is answered at once.
            check_head(bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default())?;
            match end {
                // Bytes of the body that came along are returned with it.
                Some(end) if end <= max => return Ok(bytes),
                None if bytes.len() < max => {}
                Some(_) | None => return Err(HeadFault::TooLong),
            }
        }
    };
    tokio::time::timeout(limit, reading).await.unwrap_or(Err(HeadFault::Slow))
}

/// Looks at every byte of a head, or of its beginning.
fn check_head(head: &[u8]) -> Result<(), HeadFault> {
    if head.first() == Some(&TLS_HANDSHAKE) {
        return Err(HeadFault::Tls);
    }
    if head.starts_with(HTTP2_PREFACE) {
        return Err(HeadFault::Http2);
    }
    let mut previous = 0;
    let mut first_line = true;
    for byte in head {
        let fits = match (previous, *byte) {
            // A lone line end is read in two ways by different servers, so both are refused.
            (b'\r', next) => next == b'\n',
            (_, b'\n') => false,
            (_, b'\r') => true,
            (_, b'\t') => !first_line,
            (_, other) => (b' '..0x7f).contains(&other) || (!first_line && other >= 0x80),
        };
        if !fits {
            return Err(HeadFault::Byte);
        }
        first_line &= *byte != b'\n';
        previous = *byte;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(mut bytes: &[u8]) -> Result<usize, HeadFault> {
        read_head(&mut bytes, 1024, Duration::from_secs(5)).await.map(|read| read.len())
    }

    /// Threat 16, as far as bytes go.
    #[tokio::test]
    async fn heads_are_checked_byte_by_byte() {
        assert_eq!(read_all(b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\nbody\0\n").await, Ok(41));
        assert_eq!(read_all(b"GET http://a/ HTTP/1.1\r\nX:\tcaf\xc3\xa9\r\n\r\n").await, Ok(36));
        for (bytes, fault) in [
            (b"".as_slice(), HeadFault::Empty),
            (b"GET http://a/ HTTP/1.1\r\n", HeadFault::Empty),
            (b"CONNECT evil.com\0.allowed.com:443 HTTP/1.1\r\n\r\n", HeadFault::Byte),
            (b"GET http://a/\x01 HTTP/1.1\r\n\r\n", HeadFault::Byte),
            (b"GET http://a/ HTTP/1.1\nHost: a\n\n", HeadFault::Byte),
            (b"GET http://a/ HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", HeadFault::Byte),
            (b"GET\thttp://a/ HTTP/1.1\r\n\r\n", HeadFault::Byte),
            (b"GET http://\xc3\xa9/ HTTP/1.1\r\n\r\n", HeadFault::Byte),
            (b"GET http://a/ HTTP/1.1\r\nX: \x7f\r\n\r\n", HeadFault::Byte),
            (b"\x16\x03\x01\x02\x00", HeadFault::Tls),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HeadFault::Http2),
        ] {
            assert_eq!(read_all(bytes).await, Err(fault), "{}", String::from_utf8_lossy(bytes));
        }
        let long = [b"GET http://a/ HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 2000], b"\r\n\r\n"].concat();
        assert_eq!(read_all(&long).await, Err(HeadFault::TooLong));
    }

    #[tokio::test]
    async fn a_head_that_drips_is_given_up() {
        let (mut client, mut server) = tokio::io::duplex(64);
        let dripping = async {
            let mut ticks = tokio::time::interval(Duration::from_millis(10));
            loop {
                ticks.tick().await;
                if tokio::io::AsyncWriteExt::write_all(&mut client, b"x").await.is_err() {
                    return;
                }
            }
        };
        let reading = read_head(&mut server, 1024, Duration::from_millis(200));
        let read = tokio::select! { read = reading => Some(read), () = dripping => None };
        assert_eq!(read, Some(Err(HeadFault::Slow)));
    }
}
