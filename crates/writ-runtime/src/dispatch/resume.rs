//! Takes a turn up again that was left open.

use std::sync::Arc;

use writ_agent::effect::Effect;
use writ_agent::event::{Event, StoredEvent, TextVerdict};
use writ_agent::turn::Turn;
use writ_store::queue::Leased;
use writ_store::reads::LedgerReads as _;
use writ_types::entry::{Fact, TurnPhase};
use writ_types::id::TurnId;
use writ_types::taint::{Label, Taint};

use super::{agent_for, step};
use crate::access::speaker;
use crate::drive::{Drive, TurnEnding, TurnTally};
use crate::error::EngineError;
use crate::history::read_turn_events;
use crate::services::Services;
use crate::session::Session;
use crate::settle::{self, UnfinishedAttempt};

/// Folds a turn that was left open, and marks what may or may not have happened as unknown.
pub(super) async fn resume(
    services: &Arc<Services>,
    session: &Arc<Session>,
    lease: Leased,
    turn: TurnId,
    number: u64,
) -> Result<Drive, EngineError> {
    let stored = read_turn_events(&services.journal.store, session.id, turn).await?;
    let events = u64::try_from(stored.len()).unwrap_or(u64::MAX);
    let reply = undelivered(&stored);
    let acted = stored.iter().filter(|stored| matches!(stored.event, Event::Acted { .. })).count();
    let is_verdict = |event: &Event| matches!(event, Event::InputJudged { .. } | Event::OutputJudged { .. });
    let judged = stored.iter().filter(|stored| is_verdict(&stored.event)).count();
    // A planner is asked for a readable plan once more, not once more after each restart.
    let is_again =
        |event: &Event| matches!(event, Event::OutputJudged { verdict: TextVerdict::Again { .. } });
    let again = stored.iter().filter(|stored| is_again(&stored.event)).count();
    let plan_tries = u32::try_from(again).unwrap_or(u32::MAX);
    let (machine, due) =
        Turn::recover_turn(stored).map_err(|error| EngineError::Machine(error.to_string()))?;
    let profile = agent_for(services, session, &lease)?;
    let profile = step::profile_of(services, &lease, profile).await?;
    let interrupts = session.begin((turn, number), &profile.consumer, speaker(&lease));
    let resuming = async {
        let before = step::cost_before(services, &profile, &lease).await?;
        let authority = Arc::new(services.keys.resume_authority(session, (turn, number)).await?);
        let resumed =
            Fact::Phase { phase: TurnPhase::Resumed, reason: "the engine was restarted".to_owned() };
        services.journal.append(session.id, Some((turn, number)), resumed).await?;
        let places = (Arc::clone(services), Arc::clone(session), interrupts);
        let mut drive = Drive {
            events,
            tally: TurnTally {
                // Steps before the crash may have changed the folder.
                touched: true,
                tool_calls: u64::try_from(acted).unwrap_or(u64::MAX),
                judged: u64::try_from(judged).unwrap_or(u64::MAX),
                cost: step::cost_so_far(services, turn).await?.saturating_add(before),
            },
            ending: TurnEnding { reply, plan_tries, ..TurnEnding::default() },
            ..Drive::new(profile, places, lease, (turn, number), (machine, due), authority)
        };
        if settle_open_intents(&mut drive).await? {
            // Changes that the interrupted step left behind are not covered by earlier approvals of the owner,
            // nor by this turn's key.
            services.sessions.set_left_behind(session, true).await?;
            drive.authority = Arc::new(services.keys.resume_authority(session, (turn, number)).await?);
        }
        Ok(drive)
    };
    resuming.await.inspect_err(|_: &EngineError| session.end(turn))
}

/// Returns the answer of a turn that was complete, but lacks its last commit because of the crash.
fn undelivered(stored: &[StoredEvent]) -> Option<(String, Label)> {
    let (last, before) = stored.split_last()?;
    if !matches!(last.event, Event::Delivered) {
        return None;
    }
    let (_, due) = Turn::recover_turn(before.to_vec()).ok()?;
    due.into_iter().find_map(|effect| match effect {
        Effect::Deliver { text, label, .. } => Some((text, label)),
        Effect::JudgeInput { .. }
        | Effect::Record { .. }
        | Effect::Recall { .. }
        | Effect::Route { .. }
        | Effect::CallModel { .. }
        | Effect::Act { .. }
        | Effect::CancelModel
        | Effect::CancelTool { .. }
        | Effect::JudgeOutput { .. }
        | Effect::Finish(_) => None,
    })
}

/// Closes the intents that the crash left open. A tool's intent becomes `Unknown`, which the model sees, and
/// the tool does not run again. Returns true if there was such a tool.
async fn settle_open_intents(drive: &mut Drive) -> Result<bool, EngineError> {
    let services = Arc::clone(&drive.services);
    let mut lost_step = false;
    for open in services.journal.store.open_intents().await? {
        let lost = UnfinishedAttempt::new(open.attempt, open.entry);
        let alive = lost.approval.as_ref().is_some_and(|ask| services.life.approved.is_performing(ask));
        if lost.turn != Some(drive.turn) || alive {
            continue;
        }
        drive.tally.cost += lost.cost();
        // A step that waited for its own approval is no step of the turn any more; one that rested on an approval for
        // the task is.
        let acting = drive.due.iter().position(
            |due| matches!(due, Effect::Act { call: acted, .. } if Some(&acted.id) == lost.call.as_ref()),
        );
        let Some(Effect::Act { call, .. }) = acting.and_then(|n| drive.due.remove(n)) else {
            settle::settle(&services, &lost).await?;
            continue;
        };
        let now = services.journal.clock.now();
        let mut label = lost.label.clone();
        // The interrupted step may have read anything.
        label.join(&Label::new(Taint::External));
        drive.tally.count_call();
        let item = drive.session.item_name();
        let result = Turn::unknown_result(&call, label);
        drive
            .feed(
                Event::Acted { result, ask: None, ends: None },
                lost.close(now, services.journal.budget_day(now), item),
            )
            .await?;
        lost_step = true;
    }
    Ok(lost_step)
}
