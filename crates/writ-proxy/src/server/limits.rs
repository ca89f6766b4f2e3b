//! What one client can take of a socket: a part of its connections, and only so much time for what it does not read.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// The most connections of one user of the system at once: other users still get in.
pub const MAX_PER_USER: usize = 384;
/// The most connections of one process at once: an agent's launcher has 64, and some more that are about to end.
pub const MAX_PER_LAUNCHER: usize = 80;
/// The connections that a process has where its user has few left.
const FEW_CONNECTIONS: usize = 4;
/// The time in which a client must take the next part of its answer.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The connections of each user of the system, and of each of its processes: an agent's launcher is one.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientPlaces {
    taken: Arc<Mutex<BTreeMap<u32, BTreeMap<i32, usize>>>>,
}

/// The place of a connection among those of its user and process.
#[derive(Debug)]
pub(super) struct ClientPlace {
    places: ClientPlaces,
    uid: u32,
    pid: i32,
}

impl ClientPlaces {
    /// Takes a place, unless its process or its user has none left. The last quarter of a user's is for processes with few.
    pub(super) fn take_place(&self, uid: u32, pid: i32) -> Option<ClientPlace> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = taken.entry(uid).or_default();
        let all: usize = of_user.values().sum();
        let own = of_user.get(&pid).copied().unwrap_or_default();
        let most = if all < MAX_PER_USER / 4 * 3 { MAX_PER_LAUNCHER } else { FEW_CONNECTIONS };
        if all >= MAX_PER_USER || own >= most {
            return None;
        }
        of_user.insert(pid, own.saturating_add(1));
        Some(ClientPlace { places: self.clone(), uid, pid })
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of_user) = taken.get_mut(&self.uid) else { return };
        match of_user.get_mut(&self.pid) {
            Some(count) if *count > 1 => *count = count.saturating_sub(1),
            Some(_) | None => {
                of_user.remove(&self.pid);
            }
        }
        if of_user.is_empty() {
            taken.remove(&self.uid);
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
    fn processes_and_users_have_so_many_places_and_get_them_back() {
        let places = ClientPlaces::default();
        let take =
            |uid, pid, most: usize| (0..most).map_while(|_| places.take_place(uid, pid)).collect::<Vec<_>>();
        let first = take(1, 1, MAX_PER_USER);
        assert_eq!(first.len(), MAX_PER_LAUNCHER, "one process is not all of its user");
        // Many that take all they can leave a place to one that comes late.
        let greedy: Vec<_> = (2..10).map(|pid| take(1, pid, MAX_PER_USER)).collect();
        let held = first.len() + greedy.iter().map(Vec::len).sum::<usize>();
        assert!((MAX_PER_USER / 4 * 3..MAX_PER_USER).contains(&held), "{held}");
        let late = take(1, 10, MAX_PER_USER);
        assert_eq!(late.len(), FEW_CONNECTIONS);
        assert_eq!(take(2, 11, MAX_PER_USER).len(), MAX_PER_LAUNCHER, "twin: another user");
        let rest: Vec<_> = (20..200).map(|pid| take(1, pid, FEW_CONNECTIONS)).collect();
        assert_eq!(held + late.len() + rest.iter().map(Vec::len).sum::<usize>(), MAX_PER_USER);
        assert!(places.take_place(1, 300).is_none());
        drop((greedy, late, rest));
        assert_eq!(take(1, 1, 1).len() + take(1, 2, MAX_PER_USER).len(), MAX_PER_LAUNCHER);
        drop(first);
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
