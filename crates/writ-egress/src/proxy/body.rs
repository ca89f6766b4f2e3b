//! Bodies on their way through: as they are, looked through for placeholders, or with secrets masked.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use writ_inspect::egress::credential::Misuse;
use writ_inspect::redact::{ByteStream, SecretWatch};
use writ_types::entry::Verdict;

use super::flow::Flow;

/// A body that goes through.
#[derive(Debug)]
pub(crate) struct Passed {
    body: Incoming,
    looking: Option<Looking>,
}

#[derive(Debug)]
struct Looking {
    stream: ByteStream,
    /// The note of a match, which ends the body; `None`: a match is masked.
    found: Option<FoundFlag>,
    ended: bool,
}

/// A note that a placeholder was found in a body, which must not go on.
#[derive(Clone, Debug)]
pub(crate) struct FoundFlag {
    is_set: Arc<AtomicBool>,
    flow: Arc<Flow>,
}

impl FoundFlag {
    /// None yet, in a request of this flow.
    pub(crate) fn none_yet(flow: &Arc<Flow>) -> Self {
        Self { is_set: Arc::default(), flow: Arc::clone(flow) }
    }

    /// One was: the record says so too, though the host may have answered already.
    fn set_found(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        // The record is final before the error makes the exchange end.
        self.flow.end_flow(Verdict::Denied, Misuse::Place.as_str());
    }

    /// Returns true if it was found.
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }
}

impl Passed {
    /// As it is.
    pub(crate) const fn search_whole(body: Incoming) -> Self {
        Self { body, looking: None }
    }

    /// It ends where one of these values stands in it, before the value goes on.
    pub(crate) fn forbidding_body(body: Incoming, values: Option<SecretWatch>, found: &FoundFlag) -> Self {
        let looking = |values: SecretWatch| Looking {
            stream: values.mask_stream(),
            found: Some(found.clone()),
            ended: false,
        };
        Self { body, looking: values.map(looking) }
    }

    /// These values are masked in it, and trailers are left out.
    pub(crate) fn masking_body(body: Incoming, values: &SecretWatch) -> Self {
        Self { body, looking: Some(Looking { stream: values.mask_stream(), found: None, ended: false }) }
    }
}

impl Looking {
    /// Returns the part of a piece, or of the end, that goes on.
    fn look_through(&mut self, piece: Option<&[u8]>) -> Result<Bytes, Box<dyn Error + Send + Sync>> {
        let out = match piece {
            Some(piece) => self.stream.push_bytes(piece),
            None => self.stream.end_bytes(),
        };
        match &self.found {
            Some(found) if !self.stream.found_secrets().is_empty() => {
                found.set_found();
                Err("the body holds a placeholder".into())
            }
            Some(_) | None => Ok(out.into()),
        }
    }
}

impl Body for Passed {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            let this = &mut *self;
            if this.looking.as_ref().is_some_and(|looking| looking.ended) {
                return Poll::Ready(None);
            }
            let frame = match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(frame) => frame.transpose()?,
            };
            let Some(looking) = &mut this.looking else { return Poll::Ready(frame.map(Ok)) };
            let out = match frame {
                None => {
                    looking.ended = true;
                    looking.look_through(None)?
                }
                Some(frame) => match frame.into_data() {
                    Ok(piece) => looking.look_through(Some(&piece))?,
                    // Trailers are dropped: they are not searched, and programs do without them.
                    Err(_trailers) => continue,
                },
            };
            // A piece may be held back whole, since a value could go on in the next one.
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.looking {
            None => self.body.is_end_stream(),
            // Bytes may still be held.
            Some(looking) => looking.ended || (!looking.stream.is_begun() && self.body.is_end_stream()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.looking {
            // Masking changes the length.
            Some(Looking { found: None, .. }) => SizeHint::default(),
            // A body in which something was found is cut off there; otherwise its length is unchanged.
            Some(_) | None => self.body.size_hint(),
        }
    }
}
