//! The protocol of one client: frames in, frames out, over any transport.

mod writer;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::{Sink, Stream, StreamExt as _};
use rand::Rng as _;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use writ_policy::approval::SignedAnswer;
use writ_policy::principal::{BearerProof, Evidence};
use writ_runtime::engine::{Along, Answer, Answered, Engine, GateSaid, Join, Surface};
use writ_types::error::{Exit, Report};
use writ_types::frame::{ClientFrame, NEWS_ONLY, Numbered, ServerFrame};
use writ_types::id::{AskId, SessionId, TurnId};

use crate::http::SHOW_PROOF;
use crate::line::{Shape, error_frame};
use crate::quoted::with_quoted;
use crate::watch::Watch;
use writer::FrameWriter;

/// Frames that may wait for one client.
const OUTBOX: usize = 512;
/// The longest time for the closing message.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Calls and answers of one client that are worked on at once.
const MAX_CALLS: usize = 16;
/// The time that a client has to prove who it is, if the connection does not prove it (SIL-229).
pub(crate) const AUTH_TIMEOUT: Duration = Duration::from_secs(5);

/// The hint of refusals of malformed frames.
const FRAMES: &str = "a frame is one object of JSON with a 'type', as /schemas/client-frame.json says";

/// Input that a transport delivers.
#[derive(Debug)]
pub(crate) enum ClientInput {
    /// The text of a frame.
    Frame(String),
    /// A sign of life that is no frame.
    Alive,
    /// A frame that is larger than this many bytes.
    TooLarge(usize),
    /// Something that is no text.
    NoText,
    /// Text that is not UTF-8.
    NotUtf8,
    /// Something that the transport does not permit.
    Malformed,
}

/// Output that a transport accepts.
#[derive(Debug)]
pub(crate) enum ClientOutput {
    /// The text of a frame.
    Frame(String),
    /// Asks for a sign of life, where the transport can.
    Ping,
    /// The end, and why.
    Close(Close),
}

/// The reason why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    /// The client has left.
    Left,
    /// The engine stops.
    Stopping,
    /// A frame was too large.
    TooLarge,
    /// The client sent something that is no text.
    NoText,
    /// The client sent something that is not UTF-8.
    NotUtf8,
    /// The client has broken the rules of the transport.
    Malformed,
    /// The client has not proven who it is.
    Unproven,
    /// The client was silent for too long.
    Idle,
}

/// Turns the token that a client shows into proof.
pub(crate) type Prove = Arc<dyn Fn(&str) -> Option<BearerProof> + Send + Sync>;
/// Takes one frame's worth of a client's allowance: how long to wait, if there is nothing left.
pub(crate) type Pace = Arc<dyn Fn() -> Result<(), Duration> + Send + Sync>;

/// The facts about a client that its surface knows, and the form of its frames.
pub(crate) struct ClientTerms {
    pub(crate) evidence: Evidence,
    /// Checks the token of the first frame; `None`: the connection alone counts.
    pub(crate) prove: Option<Prove>,
    pub(crate) surface: Surface,
    pub(crate) shape: Shape,
    /// The session that it joins at once.
    pub(crate) session: Option<SessionId>,
    /// After how much silence it is let go; `None`: never.
    pub(crate) idle: Option<Duration>,
    /// Limits the rate of its frames; none: there is no limit.
    pub(crate) pace: Option<Pace>,
}

impl fmt::Debug for ClientTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTerms").field("surface", &self.surface).finish_non_exhaustive()
    }
}

struct Connection {
    engine: Engine,
    terms: ClientTerms,
    outbox: mpsc::Sender<Numbered>,
    session: Option<SessionId>,
    calls: Arc<Semaphore>,
    tasks: TaskTracker,
    /// Ends with the connection: the watch of a session hangs on it.
    gone: CancellationToken,
    /// Ends the watch of the session that is joined.
    watching: CancellationToken,
}

/// Serves one client until it leaves, the engine stops, or it breaks the protocol.
pub(crate) async fn run<H, S>(
    mut heard: H,
    said: S,
    terms: ClientTerms,
    engine: Engine,
    stop: CancellationToken,
) where
    H: Stream<Item = ClientInput> + Unpin,
    S: Sink<ClientOutput> + Unpin + Send + 'static,
{
    let (outbox, waiting) = mpsc::channel::<Numbered>(OUTBOX);
    let (closing, closed) = oneshot::channel();
    let gone = CancellationToken::new();
    // The engine does not end for want of work while a client is connected.
    let guest = engine.guest();
    let writer = FrameWriter { said, shape: terms.shape, ping: terms.idle.map(|idle| idle / 3) };
    let writer = tokio::spawn(writer.serve_client(waiting, closed, gone.clone()));
    let mut connection = Connection {
        engine,
        terms,
        outbox,
        session: None,
        calls: Arc::new(Semaphore::new(MAX_CALLS)),
        tasks: TaskTracker::new(),
        gone: gone.clone(),
        watching: gone.child_token(),
    };
    // Whichever comes first; the frame that is being read when the engine stops is not handled.
    let why = tokio::select! {
        () = stop.cancelled() => Close::Stopping,
        () = gone.cancelled() => Close::Left,
        why = connection.read_frames(&mut heard) => why,
    };
    // No new task begins, so the wait below ends.
    connection.tasks.close();
    // Answers that are under way still go out; watches end.
    gone.cancel();
    connection.tasks.wait().await;
    drop(connection);
    let _ = closing.send(why);
    let _ = writer.await;
    match why {
        Close::Left | Close::Stopping => {}
        // If input is unread when a socket closes, the system discards the output, and with it the closing frame.
        Close::TooLarge
        | Close::NoText
        | Close::NotUtf8
        | Close::Malformed
        | Close::Unproven
        | Close::Idle => {
            // The rest is read and dropped, within a bound.
            let _ = timeout(CLOSE_TIMEOUT, async { while heard.next().await.is_some() {} }).await;
        }
    }
    drop(guest);
}

impl Connection {
    /// Listens to the client until the connection has to end.
    async fn read_frames<H: Stream<Item = ClientInput> + Unpin>(&mut self, heard: &mut H) -> Close {
        // A socket of the system has its proof already; a WebSocket may show it in its first frame.
        if self.terms.evidence == Evidence::None
            && let Some(prove) = self.terms.prove.clone()
        {
            match timeout(AUTH_TIMEOUT, read_token(heard)).await {
                Ok(Ok(token)) => match prove(&token) {
                    Some(proof) => self.terms.evidence = Evidence::Bearer(proof),
                    None => return self.refuse_proof("this is not the token of this home").await,
                },
                Ok(Err(Some(why))) => return why,
                Ok(Err(None)) => return self.refuse_proof("the first frame must be 'auth'").await,
                Err(_) => return self.refuse_proof("no 'auth' frame came in time").await,
            }
        }
        // A client of one session need not ask for it, and gets new frames alone.
        if let Some(session) = self.terms.session {
            let join = Join { session: Some(session), after_seq: u64::MAX, ..Join::default() };
            if let Err(report) = self.join_session(join).await {
                self.refuse(None, report).await;
            }
        }
        loop {
            let next = match self.terms.idle {
                None => heard.next().await,
                Some(idle) => match timeout(idle, heard.next()).await {
                    Ok(next) => next,
                    Err(_) => return Close::Idle,
                },
            };
            match next {
                Some(ClientInput::Frame(text)) => {
                    if !self.handle_frame(&text).await {
                        return Close::Unproven;
                    }
                }
                Some(ClientInput::Alive) => {}
                Some(ClientInput::TooLarge(limit)) => {
                    let text = format!("a frame has more than {limit} bytes");
                    let hint = "send less at once, then connect again";
                    self.refuse(None, Report::new(Exit::Usage, "frame.too_large", text).with_hint(hint))
                        .await;
                    return Close::TooLarge;
                }
                Some(ClientInput::NoText) => {
                    return self.refuse_frame("a frame is no text", Close::NoText).await;
                }
                Some(ClientInput::NotUtf8) => {
                    return self.refuse_frame("a frame is not UTF-8", Close::NotUtf8).await;
                }
                Some(ClientInput::Malformed) => {
                    return self.refuse_frame("a frame breaks the protocol", Close::Malformed).await;
                }
                None => return Close::Left,
            }
        }
    }

    async fn refuse_frame(&self, what: &str, why: Close) -> Close {
        self.refuse(None, Report::new(Exit::Usage, "frame.invalid", what).with_hint(FRAMES)).await;
        why
    }

    async fn refuse_proof(&self, why: &str) -> Close {
        self.refuse(None, Report::new(Exit::Denied, "auth.denied", why).with_hint(SHOW_PROOF)).await;
        Close::Unproven
    }

    async fn send(&self, frame: ServerFrame) {
        self.send_at(0, frame).await;
    }

    async fn send_at(&self, seq: u64, frame: ServerFrame) {
        // A client that has disconnected needs no answer.
        let _ = self.outbox.send(Numbered { seq, frame }).await;
    }

    async fn refuse(&self, id: Option<u64>, report: Report) {
        self.send(error_frame(id, report)).await;
    }

    /// Handles one frame; `false`: the client has shown a wrong token.
    async fn handle_frame(&mut self, text: &str) -> bool {
        // Before parsing: a frame costs work also where it is refused.
        if let Some(Err(wait)) = self.terms.pace.as_ref().map(|pace| pace()) {
            let text = "too much at once";
            let hint = format!("wait {} ms", wait.as_millis());
            self.refuse(None, Report::new(Exit::Blocked, "rate.limited", text).with_hint(hint)).await;
            return true;
        }
        let frame = match parse_frame(text) {
            Ok(frame) => frame,
            Err(report) => {
                self.refuse(None, report).await;
                return true;
            }
        };
        let done = match frame {
            ClientFrame::Auth { token } => match self.terms.prove.as_ref().map(|prove| prove(&token)) {
                Some(Some(_)) => Ok(()),
                Some(None) => {
                    self.refuse_proof("this is not the token of this home").await;
                    return false;
                }
                // Accepting a token that is not checked would look as if it had proven something.
                None => {
                    let text = "this socket takes no token: the process's user is proof enough";
                    Err(Report::new(Exit::Usage, "auth.not_here", text)
                        .with_hint("leave the 'auth' frame out"))
                }
            },
            ClientFrame::Resume { session, after_seq, project, write, dry_run } => {
                let surface = self.terms.surface;
                let join = Join { session, after_seq, project, write, dry_run, surface, ..Join::default() };
                self.join_session(join).await
            }
            ClientFrame::Message { text, quoted, client_id, signature, sender } => {
                let (text, text_taint) = with_quoted(text, &quoted);
                self.receive_message(text, client_id, Along { text_taint, signature, sender }).await
            }
            ClientFrame::ApprovalResponse { ask_id, decision, scope, signature, shown_hash, reason } => {
                match signature.map(SignedAnswer::read_signed).transpose() {
                    Err(error) => {
                        let text = format!("not an approval: {error}");
                        let hint = "`writ approvals approve` and the page sign as it is expected";
                        Err(Report::new(Exit::Usage, "approval.malformed", text).with_hint(hint))
                    }
                    Ok(signed) => {
                        self.answer_ask(
                            ask_id,
                            Answer { decision, scope, signed, shown: shown_hash, reason },
                        )
                        .await;
                        Ok(())
                    }
                }
            }
            ClientFrame::GateResponse { ask_id, decision, reason, answers } => {
                self.engine.answer_gate(self.terms.evidence, ask_id, GateSaid { decision, reason, answers })
            }
            ClientFrame::Checkpoint { name } => self.name_checkpoint(name).await,
            ClientFrame::Cancel { turn } => self.cancel_turn(turn).await,
            ClientFrame::Call { id, method, params } => {
                self.call_method(id, method, params).await;
                Ok(())
            }
        };
        if let Err(report) = done {
            self.refuse(None, report).await;
        }
        true
    }

    async fn join_session(&mut self, join: Join) -> Result<(), Report> {
        let seen = join.after_seq;
        let joined = self.engine.join(self.terms.evidence, join).await?;
        // A client watches one session at a time: nothing of the former comes after the greeting.
        // The old watch ends before the greeting, so that frames of two sessions are never mixed.
        self.watching.cancel();
        self.watching = self.gone.child_token();
        self.session = Some(joined.session);
        let (open, cards): (Vec<_>, Vec<_>) = joined.open.into_iter().unzip();
        let hello = ServerFrame::Hello { session: joined.session, turn: joined.turn, open };
        self.send_at(joined.seq, hello).await;
        // A client that asks for new frames alone has seen none.
        let other = seen > joined.seq && seen < NEWS_ONLY;
        if other {
            let text = "this session has another history than what was seen of it".to_owned();
            self.send(ServerFrame::Reset { text }).await;
        }
        // Open asks are sent before the history.
        for card in cards {
            self.send(card).await;
        }
        let watch = Watch {
            engine: self.engine.clone(),
            session: joined.session,
            last: if other { 0 } else { joined.after_seq },
            live: joined.live,
            outbox: self.outbox.clone(),
            stop: self.watching.clone(),
            gone: self.gone.clone(),
        };
        self.tasks.spawn(watch.watch_session());
        Ok(())
    }

    /// Answers an ask beside what else the client says: what was approved may take long, and can be stopped.
    // A place is taken before the task is made, so that waiting calls are bounded by the reading of frames.
    async fn answer_ask(&self, ask_id: AskId, answer: Answer) {
        let Ok(place) = Arc::clone(&self.calls).acquire_owned().await else { return };
        let (engine, evidence, outbox) = (self.engine.clone(), self.terms.evidence, self.outbox.clone());
        self.tasks.spawn(async move {
            let frame = match engine.answer(evidence, ask_id.clone(), answer).await {
                Ok(Answered { state, reason, text, exit }) => {
                    ServerFrame::ApprovalResolved { ask_id, state, reason, text, exit, undo: None }
                }
                Err(report) => error_frame(None, report),
            };
            let _ = outbox.send(Numbered { seq: 0, frame }).await;
            drop(place);
        });
    }

    async fn receive_message(&self, text: String, client_id: String, along: Along) -> Result<(), Report> {
        let session = self.session.ok_or_else(no_session)?;
        // Commands name their messages, so that a message sent twice is recognised.
        let client_id =
            if self.terms.surface == Surface::Local { client_id } else { named_or_new(client_id) };
        let entry =
            self.engine.receive_with(self.terms.evidence, session, client_id.clone(), text, along).await?;
        self.send(ServerFrame::Accepted { client_id, entry }).await;
        Ok(())
    }

    async fn cancel_turn(&self, turn: TurnId) -> Result<(), Report> {
        // No error: that could overtake the turn's own end, and would be taken for it.
        if let Some(text) = self.engine.cancel(self.terms.evidence, turn).await?.told(turn) {
            self.send(ServerFrame::Status { text }).await;
        }
        Ok(())
    }

    async fn name_checkpoint(&self, name: String) -> Result<(), Report> {
        let session = self.session.ok_or_else(no_session)?;
        self.engine.checkpoint(self.terms.evidence, session, name).await
    }

    async fn call_method(&self, id: u64, method: String, params: serde_json::Value) {
        let Ok(place) = Arc::clone(&self.calls).acquire_owned().await else { return };
        let (engine, evidence, outbox) = (self.engine.clone(), self.terms.evidence, self.outbox.clone());
        let session = self.session;
        self.tasks.spawn(async move {
            let frame = match engine.call(evidence, session, &method, params).await {
                Ok(result) => ServerFrame::Answer { id, result },
                Err(report) => error_frame(Some(id), report),
            };
            let _ = outbox.send(Numbered { seq: 0, frame }).await;
            drop(place);
        });
    }
}

fn no_session() -> Report {
    Report::new(Exit::Usage, "session.none", "no session is joined").with_hint("send a 'resume' frame first")
}

/// A frame from its text. The reader of frames would take the members of one in an array, too.
fn parse_frame(text: &str) -> Result<ClientFrame, Report> {
    let invalid = |why: &str| {
        Report::new(Exit::Usage, "frame.invalid", format!("not a frame: {why}")).with_hint(FRAMES)
    };
    if !text.trim_start().starts_with('{') {
        return Err(invalid("it is not an object of JSON"));
    }
    serde_json::from_str(text).map_err(|error| invalid(&error.to_string()))
}

/// The token of the first frame; `Err(None)`: it is another frame.
async fn read_token<H: Stream<Item = ClientInput> + Unpin>(heard: &mut H) -> Result<String, Option<Close>> {
    loop {
        return match heard.next().await {
            Some(ClientInput::Alive) => continue,
            Some(ClientInput::Frame(text)) => match parse_frame(&text) {
                Ok(ClientFrame::Auth { token }) => Ok(token),
                Ok(_) | Err(_) => Err(None),
            },
            // Before the proof nothing of a frame counts but its size and form.
            Some(ClientInput::TooLarge(_)) => Err(Some(Close::TooLarge)),
            Some(ClientInput::NoText) => Err(Some(Close::NoText)),
            Some(ClientInput::NotUtf8) => Err(Some(Close::NotUtf8)),
            Some(ClientInput::Malformed) => Err(Some(Close::Malformed)),
            None => Err(Some(Close::Left)),
        };
    }
}

/// A message's id: the client's, or one of its own where the client gives none.
pub(crate) fn named_or_new(client_id: String) -> String {
    if client_id.is_empty() { format!("{:032x}", rand::rng().random::<u128>()) } else { client_id }
}
