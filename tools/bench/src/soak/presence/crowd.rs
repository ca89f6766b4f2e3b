//! All clients, and the pace at which they speak.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until};

use super::super::random::Random;
use super::client::{Client, Counts, Word};
use super::group::Shared;
use super::kind::Kind;
use crate::socket::Server;

/// Clients of a session, by turns: most people have one device, some two or three.
const DEVICES: [usize; 4] = [1, 2, 3, 2];
/// Messages that may wait for a client.
const WAITING: usize = 64;
/// The pause between two looks for rest.
const LOOK: Duration = Duration::from_millis(20);
/// The time that everything may take to come to rest.
const RESTS_WITHIN: Duration = Duration::from_secs(120);

/// One session's clients.
#[derive(Debug)]
struct Place {
    group: Shared,
    words: Vec<mpsc::Sender<Word>>,
}

/// All clients.
#[derive(Debug)]
pub(super) struct Crowd {
    groups: Vec<Shared>,
    clients: Vec<JoinHandle<()>>,
    speaker: JoinHandle<()>,
    pause: watch::Sender<bool>,
    said: Arc<AtomicUsize>,
    turns: usize,
    counts: Arc<Counts>,
}

impl Crowd {
    /// So many clients; they say so many messages in this time.
    pub(super) fn start(
        sockets: usize,
        (turns, time): (usize, Duration),
        seed: u64,
        server: &watch::Receiver<Option<Server>>,
    ) -> Self {
        let counts = Arc::new(Counts::default());
        let (mut places, mut clients) = (Vec::new(), Vec::new());
        while clients.len() < sockets {
            let devices = DEVICES.get(places.len() % DEVICES.len()).copied().unwrap_or(1);
            let devices = devices.min(sockets - clients.len());
            let group = Shared::new(format!("g{}", places.len()), devices);
            let mut words = Vec::new();
            for number in 0..devices {
                let (sender, receiver) = mpsc::channel(WAITING);
                let client = Client {
                    number,
                    group: group.clone(),
                    by_path: number % 2 == 1,
                    slow: number == 2,
                    server: server.clone(),
                    words: receiver,
                    unacknowledged: VecDeque::new(),
                    random: Random::new(seed ^ (clients.len() as u64).rotate_left(40)),
                    counts: Arc::clone(&counts),
                };
                clients.push(tokio::spawn(client.live()));
                words.push(sender);
            }
            places.push(Place { group, words });
        }
        let groups = places.iter().map(|place| place.group.clone()).collect();
        let (pause, paused) = watch::channel(false);
        let said = Arc::new(AtomicUsize::new(0));
        let speaker = speak(places, (turns, time), Random::new(seed), paused, Arc::clone(&said));
        Self { groups, clients, speaker: tokio::spawn(speaker), pause, said, turns, counts }
    }

    /// The sessions.
    pub(super) fn groups(&self) -> &[Shared] {
        &self.groups
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the number of clients.
    pub(super) fn sockets(&self) -> usize {
        self.clients.len()
    }

    /// Returns the number of sent messages.
    pub(super) fn said(&self) -> usize {
        self.said.load(Ordering::Relaxed)
    }

    /// Returns true if every message was sent.
    pub(super) fn is_done(&self) -> bool {
        self.said() >= self.turns
    }

    /// Returns true if an answer is due.
    pub(super) fn is_busy(&self) -> bool {
        self.groups.iter().any(|group| group.lock().is_busy())
    }

    /// Pauses until [`Self::go_on`], and waits until everything is answered and every client has seen it;
    /// returns the time that this took.
    pub(super) async fn rest(&self) -> Result<Duration> {
        self.pause.send_replace(true);
        let start = Instant::now();
        loop {
            let away = self.sockets() - self.counts.present.load(Ordering::Relaxed).min(self.sockets());
            let waits: Vec<String> = self.groups.iter().filter_map(|group| group.lock().waits()).collect();
            if away == 0 && waits.is_empty() {
                return Ok(start.elapsed());
            }
            self.check()?;
            if start.elapsed() > RESTS_WITHIN {
                bail!("not at rest: {away} clients are away; {}", waits.join("; "));
            }
            sleep(LOOK).await;
        }
    }

    /// Speaks again.
    pub(super) fn go_on(&self) {
        self.pause.send_replace(false);
    }

    /// Fails with what does not fit, and if a client has failed.
    pub(super) fn check(&self) -> Result<()> {
        let wrong: Vec<String> = self.groups.iter().flat_map(|group| group.lock().wrong().to_vec()).collect();
        if !wrong.is_empty() {
            bail!("{}", wrong.join("\n"));
        }
        if self.clients.iter().any(JoinHandle::is_finished) {
            bail!("a client has ended by itself");
        }
        Ok(())
    }

    /// Lets all clients leave.
    pub(super) async fn leave(self) -> Result<()> {
        // The speaker holds the other end of what they wait for.
        self.speaker.abort();
        let _aborted = self.speaker.await;
        for client in self.clients {
            client.await.context("a client failed")?;
        }
        Ok(())
    }
}

/// Says the messages: each at its time, from one session after the other, by any of its clients.
async fn speak(
    places: Vec<Place>,
    (turns, time): (usize, Duration),
    mut random: Random,
    mut paused: watch::Receiver<bool>,
    said: Arc<AtomicUsize>,
) {
    let mut start = Instant::now();
    let share = u32::try_from(turns.max(1)).unwrap_or(u32::MAX);
    for (turn, place) in (0..turns).zip(places.iter().cycle()) {
        let at = start + (time / share).saturating_mul(u32::try_from(turn).unwrap_or(u32::MAX));
        sleep_until(at.into()).await;
        let before = Instant::now();
        if paused.wait_for(|paused| !paused).await.is_err() {
            return;
        }
        // Messages that were due meanwhile are sent later, and not at once: a crowd at one moment is another
        // measurement.
        start += before.elapsed();
        let client = usize::try_from(random.any()).unwrap_or_default() % place.words.len().max(1);
        let word = place.group.lock().say(Kind::of(random.any()));
        said.fetch_add(1, Ordering::Relaxed);
        let Some(client) = place.words.get(client) else { continue };
        if client.send(word).await.is_err() {
            return;
        }
    }
    // Clients live as long as any of them could send a message.
    let _never = paused.wait_for(|_| false).await;
}
