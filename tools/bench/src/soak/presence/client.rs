//! One client: it stays in its session through any number of engines.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::super::random::Random;
use super::group::Shared;
use crate::link::{is, text};
use crate::socket::{Server, Socket};
use task_process::Ended;

/// The longest absence of a client before it connects again.
const AWAY: Duration = Duration::from_millis(500);
/// The longest absence of a client that vanished.
const VANISHED: Duration = Duration::from_secs(2);
/// One piece of an answer in so many makes a client vanish.
const VANISHES: u64 = 25;
/// The pause of a client that waits for a session of another.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The pause of a slow client before each frame.
const SLOW: Duration = Duration::from_millis(40);
/// One ask in so many is denied.
const DENIES: u64 = 4;

/// The counts of all clients.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Clients that are in their session now.
    pub(super) present: AtomicUsize,
    /// Times that a client came into its session.
    pub(super) joined: AtomicU64,
    /// Times that a client vanished in the middle of an answer.
    pub(super) vanished: AtomicU64,
    /// Stored frames, for every client that got them.
    pub(super) kept: AtomicU64,
    /// Pieces of answers.
    pub(super) deltas: AtomicU64,
    pub(super) approved: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) cancelled: AtomicU64,
}

/// A message to send.
pub(super) type Word = (String, Value);

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    /// Its number in its group; the first opens the session and answers what is asked.
    pub(super) number: usize,
    pub(super) group: Shared,
    /// True if it uses the session's own path.
    pub(super) by_path: bool,
    /// True if it reads slowly.
    pub(super) slow: bool,
    pub(super) server: watch::Receiver<Option<Server>>,
    pub(super) words: mpsc::Receiver<Word>,
    pub(super) unacknowledged: VecDeque<Word>,
    pub(super) random: Random,
    pub(super) counts: Arc<Counts>,
}

/// The next step of a client after a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Stay,
    Vanish,
}

impl Client {
    /// Lives until there is nothing to say any more.
    pub(super) async fn live(mut self) {
        loop {
            let server = match self.server.wait_for(Option::is_some).await {
                Ok(server) => server.clone(),
                Err(_) => return,
            };
            let Some(server) = server else { continue };
            match self.visit(&server).await {
                Ok(()) => return,
                Err(error) if error.is::<Ended>() => {}
                Err(error) => self.group.lock().blame(format!("client {}: {error:#}", self.number)),
            }
            sleep(self.random.below(AWAY)).await;
        }
    }

    /// One connection, from its handshake to its end.
    async fn visit(&mut self, server: &Server) -> Result<()> {
        let session = self.session(server).await?;
        let path = if self.by_path { format!("/ws/{session}") } else { "/ws".to_owned() };
        let mut socket = Socket::open(server, &path, self.slow).await?;
        if path != "/ws" {
            // It is greeted at once, and asks for what it has missed then.
            greeting(&mut socket).await?;
        }
        let after = self.group.lock().place(self.number);
        socket.send(&json!({ "type": "resume", "session": session, "after_seq": after })).await?;
        let (seq, greeted) = greeting(&mut socket).await?;
        let asks = {
            let mut group = self.group.lock();
            group.joined(&greeted);
            group.greeted(self.number, seq);
            group.open_asks()
        };
        self.counts.joined.fetch_add(1, Ordering::Relaxed);
        self.counts.present.fetch_add(1, Ordering::Relaxed);
        let stayed = self.stay(&mut socket, asks).await;
        self.counts.present.fetch_sub(1, Ordering::Relaxed);
        if stayed? == Next::Stay {
            return Ok(());
        }
        self.counts.vanished.fetch_add(1, Ordering::Relaxed);
        socket.break_off()?;
        sleep(self.random.below(VANISHED)).await;
        Err(Ended("a client's patience".to_owned()).into())
    }

    /// The session of its group: the first client opens it, others wait until it is there.
    async fn session(&self, server: &Server) -> Result<String> {
        loop {
            if let Some(session) = self.group.lock().session() {
                return Ok(session);
            }
            if self.number > 0 {
                sleep(LOOK_AGAIN).await;
                continue;
            }
            let (status, opened) = server.ask("POST", "/api/v1/sessions", &json!({})).await?;
            match (status, opened.get("session").and_then(Value::as_str)) {
                (201, Some(session)) => self.group.lock().joined(session),
                // An engine that stops.
                (503, _) => return Err(Ended("the engine".to_owned()).into()),
                _ => bail!("no session was opened: {status} {opened}"),
            }
        }
    }

    /// Speaks and listens; `Stay`: there is nothing more to say.
    async fn stay(&mut self, socket: &mut Socket, asks: Vec<String>) -> Result<Next> {
        for (_, frame) in &self.unacknowledged {
            socket.send(frame).await?;
        }
        for ask in asks {
            self.answer(socket, &ask).await?;
        }
        loop {
            tokio::select! {
                word = self.words.recv() => match word {
                    Some(word) => {
                        socket.send(&word.1).await?;
                        self.unacknowledged.push_back(word);
                    }
                    None => return Ok(Next::Stay),
                },
                numbered = socket.receive() => {
                    let numbered = numbered?;
                    let next = if numbered.seq > 0 {
                        self.kept(socket, numbered.seq, &numbered.frame).await?;
                        Next::Stay
                    } else {
                        self.passing(socket, &numbered.frame).await?
                    };
                    if next == Next::Vanish {
                        return Ok(next);
                    }
                    if self.slow {
                        sleep(SLOW).await;
                    }
                }
            }
        }
    }

    /// A frame of the session.
    async fn kept(&mut self, socket: &mut Socket, seq: u64, frame: &Value) -> Result<()> {
        self.counts.kept.fetch_add(1, Ordering::Relaxed);
        let ask = self.group.lock().keep(self.number, seq, frame);
        match ask {
            Some(ask) => self.answer(socket, &ask).await,
            None => Ok(()),
        }
    }

    /// Handles a frame that is not stored: for this client alone, or a piece of an answer.
    async fn passing(&mut self, socket: &mut Socket, frame: &Value) -> Result<Next> {
        match text(frame, "type") {
            "accepted" => {
                let word = text(frame, "client_id");
                self.unacknowledged.retain(|(said, _)| said != word);
                self.group.lock().acknowledge(word);
            }
            "delta" => {
                self.counts.deltas.fetch_add(1, Ordering::Relaxed);
                if self.number == 0 && self.group.lock().to_cancel() {
                    self.counts.cancelled.fetch_add(1, Ordering::Relaxed);
                    socket.send(&json!({ "type": "cancel", "turn": text(frame, "turn") })).await?;
                }
                if self.random.one_in(VANISHES) {
                    return Ok(Next::Vanish);
                }
            }
            // An engine that stops takes nothing in; what was answered before is answered.
            "error" if is(frame, "code", "engine.stopping") || is(frame, "code", "ask.closed") => {}
            "error" => bail!("refused: {frame}"),
            _ => {}
        }
        Ok(Next::Stay)
    }

    /// Answers an ask, if this is the client that does.
    async fn answer(&mut self, socket: &mut Socket, ask: &str) -> Result<()> {
        if self.number != 0 {
            return Ok(());
        }
        // An ask is answered the same way however often that takes.
        let denies = ask.bytes().map(u64::from).sum::<u64>().is_multiple_of(DENIES);
        let (decision, count) =
            if denies { ("deny", &self.counts.denied) } else { ("approve", &self.counts.approved) };
        count.fetch_add(1, Ordering::Relaxed);
        socket.send(&json!({ "type": "approval_response", "ask_id": ask, "decision": decision })).await
    }
}

/// Reads the greeting of a session: the number of its last stored frame, and its name.
async fn greeting(socket: &mut Socket) -> Result<(u64, String)> {
    loop {
        let numbered = socket.receive().await?;
        if is(&numbered.frame, "type", "hello") {
            return Ok((numbered.seq, text(&numbered.frame, "session").to_owned()));
        }
        if numbered.seq == 0 && is(&numbered.frame, "type", "error") {
            if is(&numbered.frame, "code", "engine.stopping") {
                return Err(Ended("the engine".to_owned()).into());
            }
            bail!("not let in: {}", numbered.frame);
        }
    }
}
