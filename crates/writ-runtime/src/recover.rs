//! Work that a start takes over from the run before: leased messages, and approvals that were not used.

use std::sync::Arc;
use std::time::Duration;

use writ_policy::approval::ApprovalToken;
use writ_sandbox::status::Rung;
use writ_store::approvals::AskState;
use writ_store::batch::{Batch, Op};
use writ_store::reads::{
    AskReads as _, LedgerReads as _, QueueReads as _, SettingReads as _, TurnReads as _,
};
use writ_types::action::Action;
use writ_types::entry::{Fact, TurnPhase};
use writ_types::error::{Exit, ToReport as _};
use writ_types::frame::ServerFrame;
use writ_types::unit::Timestamp;

use crate::answers::performing;
use crate::closing;
use crate::dispatch::refuse_over;
use crate::error::EngineError;
use crate::services::Services;

/// The time that nonces stay stored after they expire. The margin covers a clock that ran ahead, even at the
/// ledger's latest entry, and was set right again.
const NONCES_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// The most approved asks that one start performs.
const MAX_APPROVED: usize = 1_000;
/// The most messages tried too often that one start looks at, newest first.
const MAX_GIVEN_UP: usize = 1_000;

/// Makes every leased message ready again and deletes nonces that have expired.
///
/// # Errors
///
/// If the store cannot be written.
pub(crate) async fn requeue(services: &Services) -> Result<(), EngineError> {
    let latest = services
        .journal
        .store
        .ledger_tail(1)
        .await?
        .first()
        .map_or(Timestamp::from_millis(i64::MIN), |row| row.at);
    let ops =
        vec![Op::RequeueLeased, Op::PruneNonces { now: forgotten(services.journal.clock.now(), latest) }];
    let receipt = services.journal.store.commit(Batch::synced(ops)).await?;
    if receipt.changed > 0 {
        tracing::info!(rows = receipt.changed, "taken up again after a restart");
    }
    Ok(())
}

/// Until when the time of a nonce must have ended so that it is forgotten. Not by a clock that is ahead for a moment: what is
/// forgotten could be used again.
fn forgotten(now: Timestamp, latest: Timestamp) -> Timestamp {
    now.min(latest).minus_duration(NONCES_KEPT)
}

/// Ends the messages whose work item is over, and the turns that were open for them, before anything reads what these have used.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn end_over(services: &Services) -> Result<(), EngineError> {
    for id in services.journal.store.waiting_sessions().await? {
        for message in services.journal.store.pending_for_session(id).await? {
            let ended = async {
                let Some(over) = refuse_over(services, &message).await? else { return Ok(()) };
                let session = services.sessions.get(id).await?;
                closing::end_message(services, &session, (&message, &over), None).await
            };
            // The dispatcher tries again.
            if let Err(error) = ended.await {
                tracing::error!(session = %id, %error, "a message of an item that is over could not be ended");
            }
        }
    }
    Ok(())
}

/// Ends the turns of messages that were tried too often, and sends an error to the clients that wait for
/// them.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn give_up(services: &Services) -> Result<(), EngineError> {
    for message in services.journal.store.dead_letters(MAX_GIVEN_UP).await? {
        let Some(turn) = services.journal.store.unfinished_turn_of(message.record.message).await? else {
            continue;
        };
        let now = services.journal.clock.now();
        let reason = format!("given up after {} tries: {}", message.attempts, message.error);
        let at = Some((turn.id, turn.number));
        let frame = ServerFrame::Error {
            id: None,
            exit: Exit::Blocked,
            code: "turn.given_up".to_owned(),
            text: format!("The turn was {reason}."),
            hint: "see 'writ doctor', then send the message again".to_owned(),
            answers: vec![message.client_id],
        };
        let ops = vec![
            services.journal.entry(turn.session, at, Fact::Phase { phase: TurnPhase::Failed, reason }),
            Op::CloseTurn { turn: turn.id, at: now, state: "failed".to_owned() },
            Op::Frame { session: turn.session, frame: Box::new(frame) },
        ];
        services.journal.store.commit(Batch::synced(ops)).await?;
    }
    Ok(())
}

/// What was approved, by the part of the engine that performs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApprovedPart {
    /// What the engine performs itself.
    Own,
    /// What the autopilot has to be there for.
    Autopilot,
}

impl ApprovedPart {
    const fn of_action(action: &Action) -> Self {
        if let Action::Vcs(_) = action { Self::Autopilot } else { Self::Own }
    }
}

/// Performs what was approved and not performed: the engine ended between the answer and the act.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn perform_approved(
    services: &Arc<Services>,
    part: ApprovedPart,
) -> Result<(), EngineError> {
    let approved = services.journal.store.asks_with_approvals(Some(AskState::Approved), MAX_APPROVED).await?;
    for (ask, stored) in approved {
        let Some(stored) = stored.filter(|_| ApprovedPart::of_action(&ask.prepared.action) == part) else {
            continue;
        };
        // A used one had begun: its outcome is unknown, and to do it again needs another answer.
        if stored.executions_used > 0 || stored.revoked {
            continue;
        }
        let Ok(token) = serde_json::from_value::<ApprovalToken>(stored.token) else { continue };
        let approval = services.keys.approval_of(&ask, &token).await?;
        // A failure here (a missing folder, a full disk) must not stop the engine from starting. Each later
        // start tries the action again until its approval expires.
        if let Err(error) = performing::perform_ask(services, &ask, approval).await {
            let report = error.report();
            tracing::error!(ask = %ask.card.ask_id, inside = report.inside, "an approved ask was not performed");
        }
    }
    Ok(())
}

/// The setting that holds the hash of the rules that were in force last.
const POLICY_SETTING: &str = "policy";

/// Notes what is different from the run before: the rules in force, and how well commands are confined here.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn note_surroundings(services: &Services) -> Result<(), EngineError> {
    let policy = services.rules.in_force.digest();
    let known = services.journal.store.setting(POLICY_SETTING).await?;
    let now = serde_json::Value::String(policy.to_string());
    let mut ops = Vec::new();
    if known.as_ref() != Some(&now) {
        let summary = if known.is_some() { "the rules have changed" } else { "the first rules" };
        ops.push(services.journal.own_entry(Fact::PolicyChanged { policy, summary: summary.to_owned() }));
        ops.push(Op::Set { key: POLICY_SETTING.to_owned(), value: now });
    }
    let status = services.outside.sandbox.status().await;
    let rung = match status.rung {
        Rung::Full => 1,
        Rung::Reduced => 2,
        Rung::Refuse => 3,
    };
    ops.push(services.journal.own_entry(Fact::SandboxReady { rung, reduced: status.reduced.join("; ") }));
    services.journal.store.commit(Batch::relaxed(ops)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock is ahead for two starts: the first has written in the ledger, the second prunes.
    #[test]
    fn a_clock_that_runs_ahead_forgets_nothing_that_was_used_just_now() {
        let right = Timestamp::from_millis(1_700_000_000_000);
        let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
        for ahead in [0, 1, 14, 23] {
            let ahead = right.plus_duration(hours(ahead));
            assert!(forgotten(ahead, ahead) < right, "{ahead}");
        }
        assert!(forgotten(right.plus_duration(hours(1_000)), right) < right, "nothing was written by it yet");
        let later = right.plus_duration(NONCES_KEPT);
        assert_eq!(forgotten(later, later), right, "in the end it is");
    }
}
