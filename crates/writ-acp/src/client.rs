//! Speaks with an agent over two streams, until its turn has ended or cannot.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bounds::{CANCEL_TIME, LATE_SILENCE, LATE_TIME, MAX_LINE_BYTES, MAX_UNREAD, START_TIME};
use crate::error::{AcpError, Moment};
use crate::line::{AcpLine, LineReader};
use crate::talk::{AcpTalk, TurnOrder};
use crate::transcript::{AcpStop, Transcript};

/// The times of a turn. How long it may work is its caller's affair, who cancels it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnTimes {
    /// The time until its session is open.
    pub start: Duration,
    /// The time from the request to end until it has ended.
    pub cancel: Duration,
}

impl Default for TurnTimes {
    fn default() -> Self {
        Self { start: START_TIME, cancel: CANCEL_TIME }
    }
}

/// A turn that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcpTurn {
    /// The agent's reason for its end, or ours.
    pub end: Result<AcpStop, AcpError>,
    /// The remembered part of it; also of one that has broken off.
    pub transcript: Transcript,
}

/// Drives an agent, which was started, through one turn. It is the caller's to end the process: an agent waits for another prompt
/// after its turn.
///
/// When `cancel` fires, the agent is asked to end its turn, and has the time for that.
pub async fn drive_agent<R, W>(
    (read, write): (R, W),
    order: TurnOrder,
    times: TurnTimes,
    cancel: &CancellationToken,
) -> AcpTurn
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (mut talk, first) = AcpTalk::begin_talk(order);
    let (out, unread) = mpsc::channel(MAX_UNREAD);
    let talking = async {
        send_line(&out, first)?;
        hold_talk(&mut talk, LineReader::new(read, MAX_LINE_BYTES), &out, times, cancel).await
    };
    // Both at once, so that an agent which does not read cannot stop itself from being read.
    let end = tokio::select! {
        end = talking => end,
        error = write_lines(write, unread) => Err(error),
    };
    AcpTurn { end, transcript: talk.into_transcript() }
}

async fn hold_talk<R: AsyncRead + Unpin>(
    talk: &mut AcpTalk,
    mut lines: LineReader<R>,
    out: &mpsc::Sender<Vec<u8>>,
    times: TurnTimes,
    cancel: &CancellationToken,
) -> Result<AcpStop, AcpError> {
    let ready = Instant::now() + times.start;
    let mut until: Option<Instant> = None;
    loop {
        if let Some(reason) = talk.stop_reason() {
            hear_rest(talk, &mut lines, out).await;
            return Ok(reason);
        }
        // Work may take as long as its caller lets it.
        let is_starting = talk.moment() != Moment::Work;
        let line = tokio::select! {
            // In this order: an agent that writes without end is stopped, too.
            biased;
            () = cancel.cancelled(), if until.is_none() => {
                // One that does not work yet has nothing to end.
                let Some(line) = talk.cancel_turn() else { return Ok(AcpStop::Cancelled) };
                send_line(out, line)?;
                until = Some(Instant::now() + times.cancel);
                continue;
            }
            () = sleep_until(until) => return Err(AcpError::NotEnded),
            () = tokio::time::sleep_until(ready), if is_starting => {
                return Err(AcpError::NotReady { at: talk.moment(), secs: times.start.as_secs() });
            }
            line = lines.next_line() => line.map_err(|why| AcpError::Transport(why.to_string()))?,
        };
        match line {
            Some(AcpLine::Read(line)) => {
                if let Some(answer) = talk.take_line(&line)? {
                    send_line(out, answer)?;
                }
            }
            Some(AcpLine::Passed { bytes, head }) => {
                if let Some(answer) = talk.pass_over(bytes, &head)? {
                    send_line(out, answer)?;
                }
            }
            // One that ends when it is asked to end its turn has ended it.
            None if until.is_some() => return Ok(AcpStop::Cancelled),
            None => return Err(AcpError::Gone(talk.moment())),
        }
    }
}

/// Reads the words that come after the end of a turn, until there is silence. The turn has ended; what is wrong with them is no matter.
async fn hear_rest<R: AsyncRead + Unpin>(
    talk: &mut AcpTalk,
    lines: &mut LineReader<R>,
    out: &mpsc::Sender<Vec<u8>>,
) {
    let until = Instant::now() + LATE_TIME;
    loop {
        let silence = (Instant::now() + LATE_SILENCE).min(until);
        let Ok(Ok(Some(line))) = tokio::time::timeout_at(silence, lines.next_line()).await else { return };
        let taken = match line {
            AcpLine::Read(line) => talk.take_line(&line),
            AcpLine::Passed { bytes, head } => talk.pass_over(bytes, &head),
        };
        let is_over = match taken {
            Ok(Some(answer)) => send_line(out, answer).is_err(),
            Ok(None) => false,
            Err(_) => true,
        };
        if is_over || Instant::now() >= until {
            return;
        }
    }
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

fn send_line(out: &mpsc::Sender<Vec<u8>>, line: Vec<u8>) -> Result<(), AcpError> {
    out.try_send(line).map_err(|_full| AcpError::Deaf)
}

/// Writes lines as they come. Never returns: an agent that takes none has ended, or is noticed when its lines fill up.
async fn write_lines<W: AsyncWrite + Unpin>(mut write: W, mut unread: mpsc::Receiver<Vec<u8>>) -> AcpError {
    while let Some(line) = unread.recv().await {
        let written = async {
            write.write_all(&line).await?;
            write.flush().await
        };
        if written.await.is_err() {
            // It has mostly ended: what it wrote before, and its end, are read first.
            break;
        }
    }
    std::future::pending().await
}
