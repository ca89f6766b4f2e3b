//! One client: frames in, frames out.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::codec::{Framed, LinesCodec, LinesCodecError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use writ_policy::approval::ApprovalToken;
use writ_policy::principal::Evidence;
use writ_runtime::engine::{Answered, Engine, Join};
use writ_types::entry::Decision;
use writ_types::error::{Exit, Report};
use writ_types::frame::{ClientFrame, MAX_FRAME_BYTES, Numbered, ServerFrame};
use writ_types::id::{AskId, SessionId};

use crate::watch::Watch;

/// Frames that may wait for one client.
const OUTBOX: usize = 512;
/// How long a client may refuse to read before it is let go.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Calls and answers of one client that are worked on at once.
const MAX_CALLS: usize = 16;

/// What a connection knows.
struct Connection {
    engine: Engine,
    evidence: Evidence,
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
pub(crate) async fn run(stream: UnixStream, engine: Engine, stop: CancellationToken) {
    let evidence = stream.peer_cred().map_or(Evidence::None, |cred| Evidence::PeerUid(cred.uid()));
    let (mut sink, mut lines) = Framed::new(stream, LinesCodec::new_with_max_length(MAX_FRAME_BYTES)).split();
    let (outbox, mut waiting) = mpsc::channel::<Numbered>(OUTBOX);
    let gone = CancellationToken::new();
    let guest = engine.guest();
    let mut connection = Connection {
        engine,
        evidence,
        outbox,
        session: None,
        calls: Arc::new(Semaphore::new(MAX_CALLS)),
        tasks: TaskTracker::new(),
        gone: gone.clone(),
        watching: gone.child_token(),
    };
    let writer = tokio::spawn({
        let gone = gone.clone();
        async move {
            while let Some(frame) = waiting.recv().await {
                let Some(line) = line(&frame) else { continue };
                match tokio::time::timeout(WRITE_TIMEOUT, sink.send(line)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => break,
                }
            }
            gone.cancel();
        }
    });
    loop {
        let line = tokio::select! {
            () = stop.cancelled() => break,
            () = gone.cancelled() => break,
            line = lines.next() => line,
        };
        match line {
            Some(Ok(line)) => connection.handle(&line).await,
            Some(Err(LinesCodecError::MaxLineLengthExceeded)) => {
                let text = format!("a frame has more than {MAX_FRAME_BYTES} bytes");
                connection.refuse(None, Report::new(Exit::Usage, "frame.too_large", text)).await;
                break;
            }
            Some(Err(LinesCodecError::Io(error))) if error.kind() == io::ErrorKind::InvalidData => {
                let report = Report::new(Exit::Usage, "frame.invalid", "a frame is not UTF-8");
                connection.refuse(None, report).await;
                break;
            }
            Some(Err(LinesCodecError::Io(_))) | None => break,
        }
    }
    connection.tasks.close();
    if !gone.is_cancelled() {
        // Answers that are under way still go out; watches end.
        gone.cancel();
    }
    connection.tasks.wait().await;
    drop(connection);
    let _ = writer.await;
    drop(guest);
}

impl Connection {
    async fn send(&self, frame: ServerFrame) {
        // A client that is gone needs no answer.
        let _ = self.outbox.send(Numbered { seq: 0, frame }).await;
    }

    async fn refuse(&self, id: Option<u64>, report: Report) {
        self.send(refusal(id, report)).await;
    }

    async fn handle(&mut self, line: &str) {
        let frame = match serde_json::from_str::<ClientFrame>(line) {
            Ok(frame) => frame,
            Err(error) => {
                let report = Report::new(Exit::Usage, "frame.invalid", format!("not a frame: {error}"));
                return self.refuse(None, report).await;
            }
        };
        let done = match frame {
            ClientFrame::Auth { .. } => Ok(()),
            ClientFrame::Resume { session, after_seq, project, write, dry_run } => {
                self.join(Join { session, after_seq, project, write, dry_run }).await
            }
            ClientFrame::Message { text, client_id } => self.message(text, client_id).await,
            ClientFrame::ApprovalResponse { ask_id, decision, signature, reason } => {
                match signature.map(serde_json::from_value::<ApprovalToken>).transpose() {
                    Err(error) => {
                        let text = format!("not an approval: {error}");
                        Err(Report::new(Exit::Usage, "approval.malformed", text))
                    }
                    Ok(token) => {
                        self.answer(ask_id, decision, token, reason).await;
                        Ok(())
                    }
                }
            }
            ClientFrame::Cancel { turn } => self.engine.cancel(self.evidence, turn),
            ClientFrame::Call { id, method, params } => {
                self.call(id, method, params).await;
                Ok(())
            }
        };
        if let Err(report) = done {
            self.refuse(None, report).await;
        }
    }

    async fn join(&mut self, join: Join) -> Result<(), Report> {
        let joined = self.engine.join(self.evidence, join).await?;
        // A client watches one session at a time: nothing of the former comes after the greeting.
        self.watching.cancel();
        self.watching = self.gone.child_token();
        self.session = Some(joined.session);
        self.send(ServerFrame::Hello { session: joined.session, turn: joined.turn, seq: joined.seq }).await;
        let watch = Watch {
            engine: self.engine.clone(),
            session: joined.session,
            last: joined.after_seq,
            live: joined.live,
            outbox: self.outbox.clone(),
            stop: self.watching.clone(),
        };
        self.tasks.spawn(watch.run());
        Ok(())
    }

    /// Answers an ask beside what else the client says: what was approved may take long, and can be stopped.
    async fn answer(&self, ask_id: AskId, decision: Decision, token: Option<ApprovalToken>, reason: String) {
        let Ok(place) = Arc::clone(&self.calls).acquire_owned().await else { return };
        let (engine, evidence, outbox) = (self.engine.clone(), self.evidence, self.outbox.clone());
        self.tasks.spawn(async move {
            let frame = match engine.answer(evidence, ask_id.clone(), decision, token, reason).await {
                Ok(Answered { state, text, exit }) => {
                    ServerFrame::ApprovalResolved { ask_id, state, text, exit }
                }
                Err(report) => refusal(None, report),
            };
            let _ = outbox.send(Numbered { seq: 0, frame }).await;
            drop(place);
        });
    }

    async fn message(&self, text: String, client_id: String) -> Result<(), Report> {
        let Some(session) = self.session else {
            return Err(Report::new(Exit::Usage, "session.none", "no session is joined")
                .hint("send a 'resume' frame first"));
        };
        let entry = self.engine.receive(self.evidence, session, client_id.clone(), text).await?;
        self.send(ServerFrame::Accepted { client_id, entry }).await;
        Ok(())
    }

    async fn call(&self, id: u64, method: String, params: serde_json::Value) {
        let Ok(place) = Arc::clone(&self.calls).acquire_owned().await else { return };
        let (engine, evidence, outbox) = (self.engine.clone(), self.evidence, self.outbox.clone());
        let session = self.session;
        self.tasks.spawn(async move {
            let frame = match engine.call(evidence, session, &method, params).await {
                Ok(result) => ServerFrame::Answer { id, result },
                Err(report) => refusal(Some(id), report),
            };
            let _ = outbox.send(Numbered { seq: 0, frame }).await;
            drop(place);
        });
    }
}

/// A frame as its line. One that the client would refuse is replaced by an error in its place.
fn line(frame: &Numbered) -> Option<String> {
    let line = serde_json::to_string(frame).ok()?;
    if line.len() <= MAX_FRAME_BYTES {
        return Some(line);
    }
    let id = if let ServerFrame::Answer { id, .. } = &frame.frame { Some(*id) } else { None };
    let text = format!("what would be sent has {} bytes; the limit is {MAX_FRAME_BYTES}", line.len());
    let report = Report::new(Exit::Blocked, "frame.too_large", text).hint("ask for less at once");
    serde_json::to_string(&Numbered { seq: frame.seq, frame: refusal(id, report) }).ok()
}

pub(crate) fn refusal(id: Option<u64>, report: Report) -> ServerFrame {
    if report.inside != report.outside {
        tracing::warn!(code = report.code, inside = report.inside, "refused");
    }
    ServerFrame::Error { id, exit: report.exit, code: report.code, text: report.outside, hint: report.hint }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_that_is_too_large_for_a_frame_becomes_an_error() {
        let answer =
            |text: String| Numbered { seq: 0, frame: ServerFrame::Answer { id: 7, result: json!(text) } };
        let fits = line(&answer("x".to_owned())).expect("a line");
        assert!(fits.contains("answer"), "{fits}");
        let cut = line(&answer("x".repeat(MAX_FRAME_BYTES))).expect("a line");
        let cut: Numbered = serde_json::from_str(&cut).expect("a frame");
        assert!(
            matches!(&cut.frame, ServerFrame::Error { id: Some(7), code, .. } if code == "frame.too_large"),
            "{cut:?}"
        );
    }
}
