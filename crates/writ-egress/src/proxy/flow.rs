//! One connection while it is open: its bytes, its limits, and its record, which is written however it ends.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::OwnedPermit;
use tokio::time::Instant;
use writ_inspect::egress::host::Target;

use writ_types::entry::{ConnectionRecord, Verdict};

/// A reserved place for one record.
pub(crate) type Place = OwnedPermit<ConnectionRecord>;

/// An open connection. When the last holder lets go of it, its record is written.
#[derive(Debug)]
pub(crate) struct Flow {
    began: Instant,
    sent: AtomicU64,
    received: AtomicU64,
    sent_max: u64,
    received_max: u64,
    ending: Mutex<FlowEnd>,
}

#[derive(Debug)]
struct FlowEnd {
    place: Option<Place>,
    host: String,
    port: u16,
    address: Option<IpAddr>,
    verdict: Verdict,
    rule: String,
    credential: Option<String>,
}

impl Flow {
    /// Begins a connection. Until its end is set, it ended before a request was understood.
    pub(crate) fn begin_flow(place: Place, sent_max: u64, received_max: u64) -> Arc<Self> {
        let ending = FlowEnd {
            place: Some(place),
            host: String::new(),
            port: 0,
            address: None,
            verdict: Verdict::Malformed,
            rule: "proxy.empty".to_owned(),
            credential: None,
        };
        Arc::new(Self {
            began: Instant::now(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            sent_max,
            received_max,
            ending: Mutex::new(ending),
        })
    }

    /// Says where it leads.
    pub(crate) fn set_name(&self, target: &Target) {
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        ending.host = target.host.to_string();
        ending.port = target.port;
    }

    /// Says that it was made.
    pub(crate) fn note_connected(&self, address: Option<IpAddr>, rule: &str) {
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        ending.address = address;
        ending.verdict = Verdict::Allowed;
        rule.clone_into(&mut ending.rule);
    }

    /// Says which credential is put into its request.
    pub(crate) fn lend_stream(&self, credential: &str) {
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        ending.credential = Some(credential.to_owned());
    }

    /// Says that it is opened here: each request in it is a connection of its own.
    pub(crate) fn note_opened(&self) {
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        ending.verdict = Verdict::Allowed;
        "opened".clone_into(&mut ending.rule);
    }

    /// Says how it ends. What cut it first stays.
    pub(crate) fn end_flow(&self, verdict: Verdict, rule: &str) {
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        // A cut makes both sides end with errors, which say less than the cut.
        if ending.verdict != Verdict::Cut {
            ending.verdict = verdict;
            rule.clone_into(&mut ending.rule);
        }
    }

    /// Counts bytes that went out.
    fn count_sent(&self, count: usize) -> io::Result<()> {
        self.count_bytes(&self.sent, count, self.sent_max, "limit.sent")
    }

    /// Counts bytes that came in.
    fn count_received(&self, count: usize) -> io::Result<()> {
        self.count_bytes(&self.received, count, self.received_max, "limit.received")
    }

    fn count_bytes(&self, counter: &AtomicU64, count: usize, max: u64, code: &str) -> io::Result<()> {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        if counter.fetch_add(count, Ordering::Relaxed).saturating_add(count) <= max {
            return Ok(());
        }
        self.end_flow(Verdict::Cut, code);
        Err(io::Error::other("too many bytes"))
    }

    fn total_bytes(&self) -> u64 {
        self.sent.load(Ordering::Relaxed).wrapping_add(self.received.load(Ordering::Relaxed))
    }

    /// Ends when no byte has moved for `limit`, at the latest after twice as long.
    async fn idle_time(&self, limit: Duration) {
        // Two samples instead of a timer for each byte.
        let mut seen = self.total_bytes();
        loop {
            tokio::time::sleep(limit).await;
            let now = self.total_bytes();
            if now == seen {
                return;
            }
            seen = now;
        }
    }

    /// Ends, and says why, when the connection has been idle or open for too long.
    pub(crate) async fn is_overdue(&self, idle: Duration, total: Duration) {
        let code = tokio::select! {
            () = self.idle_time(idle) => "limit.idle",
            () = tokio::time::sleep_until(self.began + total) => "limit.time",
        };
        self.end_flow(Verdict::Cut, code);
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let ending = self.ending.get_mut().unwrap_or_else(PoisonError::into_inner);
        let record = ConnectionRecord {
            host: std::mem::take(&mut ending.host),
            port: ending.port,
            address: ending.address,
            verdict: ending.verdict,
            rule: std::mem::take(&mut ending.rule),
            // The last reference is dropped, so both counters are final.
            sent: *self.sent.get_mut(),
            received: *self.received.get_mut(),
            ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            credential: ending.credential.take(),
        };
        // The place was reserved before the connection was accepted: there is room.
        if let Some(place) = ending.place.take() {
            place.send(record);
        }
    }
}

/// The host's side of a connection, counted and bounded.
#[derive(Debug)]
pub(crate) struct Counted<S> {
    stream: S,
    flow: Arc<Flow>,
}

impl<S> Counted<S> {
    pub(crate) const fn new(stream: S, flow: Arc<Flow>) -> Self {
        Self { stream, flow }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        Poll::Ready(self.flow.count_received(into.filled().len().saturating_sub(before)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        Poll::Ready(self.flow.count_sent(count).map(|()| count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
