//! Questions to the planner: one turn that reads the project, in a session of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use writ_store::batch::{Batch, Op};
use writ_store::reads::{QueueReads as _, SessionReads as _, UsageReads as _};
use writ_types::error::Exit;
use writ_types::frame::ServerFrame;
use writ_types::taint::Taint;
use writ_types::unit::{MicroUsd, Tokens};

use crate::error::{EngineError, PilotError};
use crate::opening;
use crate::planner::{PlannerMessage, PlannerRequest, request_ops};
use crate::services::Services;
use crate::session::{QuestionTerms, Session};

/// The longest question, in bytes: a goal with the map of a large repository.
pub const MAX_QUESTION_BYTES: usize = 256 * 1024;
/// The most frames of the session of one question that are read: far more than a turn has.
const MAX_FRAMES: usize = 1_000;
/// The most messages that were set aside among which the question is looked for.
const MAX_DEAD: usize = 100;
/// The longest wait before the answer is looked for without a sign of it.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A question to the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannerQuestion {
    /// The project that it may read.
    pub project: PathBuf,
    /// The question.
    pub text: String,
    /// The most money; none: that of a session.
    pub max_cost: Option<MicroUsd>,
}

/// The planner's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannerReply {
    /// Its last text.
    pub text: String,
    /// Tokens read.
    pub input: Tokens,
    /// Tokens written.
    pub output: Tokens,
    /// The money that it has cost.
    pub cost: MicroUsd,
}

/// Asks the planner, and waits for its answer.
pub(super) async fn ask(
    services: &Arc<Services>,
    question: PlannerQuestion,
    stop: &CancellationToken,
) -> Result<PlannerReply, EngineError> {
    if services.life.draining.is_cancelled() {
        return Err(EngineError::Stopping);
    }
    let bytes = question.text.len();
    if bytes > MAX_QUESTION_BYTES {
        let (what, most) = ("question", MAX_QUESTION_BYTES);
        return Err(PilotError::TooLarge { what, bytes, most }.into());
    }
    let unshowable = || EngineError::Project("its path has characters that cannot be shown".to_owned());
    let project = question.project.to_str().ok_or_else(unshowable)?;
    let terms = QuestionTerms { max_cost: question.max_cost };
    let session = opening::open_for_question(services, project, terms).await?;
    let request = PlannerRequest {
        kind: PlannerMessage::PilotQuestion,
        trace: session.id.to_string(),
        text: question.text,
        // It quotes the project.
        taint: Taint::External,
        principal: format!("harness:{}", session.id),
    };
    let client_id = request.kind.write_id(&request.trace);
    let mut frames = session.hub.watch();
    let (_, ops) = request_ops(services, session.id, request).await?;
    services.journal.store.commit(Batch::synced(ops.into())).await?;
    services.life.wake.notify_one();
    let answered = loop {
        if let Some(answered) = find_answer(services, &session, &client_id).await? {
            break answered;
        }
        let now = services.journal.clock.now();
        tokio::select! {
            () = stop.cancelled() => {
                take_back(services, &session).await?;
                return Err(PilotError::NoAnswer("it was stopped".to_owned()).into());
            }
            // Its turn is taken up again at the next start, and its answer is not waited for any more.
            () = services.life.draining.cancelled() => return Err(EngineError::Stopping),
            frame = frames.recv() => {
                if matches!(frame, Err(RecvError::Closed)) {
                    return Err(EngineError::Stopping);
                }
            }
            () = services.journal.clock.wait(now, LOOK_EVERY) => {}
        }
    };
    let text = answered.map_err(PilotError::NoAnswer)?;
    let used = services.journal.store.session_usage(session.id).await?;
    Ok(PlannerReply { text, input: used.usage.input, output: used.usage.output, cost: used.cost })
}

/// Looks for the end of the planner's turn: its answer, or the reason why there is none.
async fn find_answer(
    services: &Services,
    session: &Session,
    client_id: &str,
) -> Result<Option<Result<String, String>>, EngineError> {
    let store = &services.journal.store;
    let message = store.message_by_client_id(session.id, client_id).await?;
    // One that was tried in vain may have been set aside.
    if let Some(message) = message.filter(|message| !message.error.is_empty()) {
        let dead = store.dead_letters(MAX_DEAD).await?;
        if let Some(dead) = dead.iter().find(|dead| dead.record.message == message.record.message) {
            return Ok(Some(Err(dead.error.clone())));
        }
    }
    let frames = store.frames_after(session.id, 0, MAX_FRAMES).await?;
    Ok(frames.into_iter().find_map(|numbered| {
        let ServerFrame::Message { text, exit, last: true, .. } = numbered.frame else { return None };
        let is_done = exit == Exit::Done;
        Some(if is_done {
            Ok(text)
        } else {
            Err(format!("its turn has ended with exit {}: {text}", exit.code()))
        })
    }))
}

/// Stops the turn of a question, and takes its message back if it waits.
async fn take_back(services: &Services, session: &Session) -> Result<(), EngineError> {
    let waiting = services.journal.store.pending_for_session(session.id).await?;
    for message in waiting {
        let (id, error) = (message.record.message, "the autopilot does not wait for it".to_owned());
        let ended = Op::EndMessage { message: id, fence: None, error };
        // One that is worked on is stopped below.
        let _taken = services.journal.store.commit(Batch::relaxed(vec![ended])).await;
    }
    session.stop_turns().await;
    Ok(())
}
