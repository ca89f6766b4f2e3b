//! What one client can take of a socket: a part of its connections, and only so much time for what it does not read.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// The time in which a client must take the next part of its answer.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The connections of each user.
#[derive(Clone, Debug)]
pub(super) struct UserPlaces {
    most: usize,
    taken: Arc<Mutex<BTreeMap<u32, usize>>>,
}

/// The place of a connection among those of its user.
#[derive(Debug)]
pub(super) struct UserPlace {
    places: UserPlaces,
    uid: u32,
}

impl UserPlaces {
    /// Makes places of which each user has `most`.
    pub(super) fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// Takes a place, unless the user has none left.
    pub(super) fn take_place(&self, uid: u32) -> Option<UserPlace> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.get(&uid).copied().unwrap_or_default();
        if count >= self.most {
            return None;
        }
        taken.insert(uid, count.saturating_add(1));
        Some(UserPlace { places: self.clone(), uid })
    }
}

impl Drop for UserPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.uid) {
            Some(count) if *count > 1 => *count = count.saturating_sub(1),
            Some(_) | None => {
                taken.remove(&self.uid);
            }
        }
    }
}

/// A connection that ends when its client takes nothing for too long.
#[derive(Debug)]
pub(super) struct TimedStream<S> {
    inner: S,
    /// The end of the time for what waits to be written.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedStream<S> {
    pub(super) const fn new(inner: S) -> Self {
        Self { inner, deadline: None }
    }

    /// Passes on what came of writing, or an error if it has waited for too long.
    fn bound_wait<T>(
        deadline: &mut Option<Pin<Box<Sleep>>>,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            *deadline = None;
            return written;
        }
        let limit = || Box::pin(sleep_until(Instant::now() + WRITE_TIMEOUT));
        ready!(deadline.get_or_insert_with(limit).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        Self::bound_wait(&mut self.deadline, cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        Self::bound_wait(&mut self.deadline, cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        Self::bound_wait(&mut self.deadline, cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[test]
    fn a_user_has_so_many_places_and_gets_them_back() {
        let places = UserPlaces::new(2);
        let (first, second) = (places.take_place(1), places.take_place(1));
        assert!(first.is_some() && second.is_some() && places.take_place(1).is_none());
        assert!(places.take_place(2).is_some(), "twin: another user");
        drop(first);
        assert!(places.take_place(1).is_some());
        drop(second);
        assert!(places.taken.lock().expect("not poisoned").is_empty(), "no user is held for nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_cut_off() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut stream = TimedStream::new(near);
        let begun = Instant::now();
        // Each part that is taken begins the time again.
        let reading = async {
            let early = WRITE_TIMEOUT - Duration::from_secs(1);
            let _ = tokio::time::timeout(early, std::future::pending::<()>()).await;
            far.read_exact(&mut [0; 8]).await.expect("reads");
            std::future::pending::<()>().await;
        };
        let written = tokio::select! {
            written = stream.write_all(&[0; 64]) => written,
            () = reading => Ok(()),
        };
        assert_eq!(written.expect_err("ends").kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), WRITE_TIMEOUT * 2 - Duration::from_secs(1));
    }
}
