//! Attempts cut off by a crash or an error: each is closed as unknown, and the budget reserved for it counts
//! as used.

use writ_agent::notice;
use writ_store::approvals::StoredAsk;
use writ_store::batch::{Op, UsageDelta, UsageShare};
use writ_store::reads::{AskReads as _, LedgerReads as _, TurnReads as _};
use writ_tools::render::Rendered;
use writ_types::action::Action;
use writ_types::chat::{ToolOutcome, Usage};
use writ_types::digest::Digest;
use writ_types::entry::{Entry, Fact};
use writ_types::error::Exit;
use writ_types::id::{AskId, AttemptId, SessionId, TurnId};
use writ_types::taint::{Label, Taint};
use writ_types::unit::{MicroUsd, Timestamp};

use crate::asks::outcome::AskOutcome;
use crate::asks::tell;
use crate::error::EngineError;
use crate::pending::Pending;
use crate::services::Services;

/// The role of a call that a crash has interrupted: the ledger does not say it.
const UNKNOWN_ROLE: &str = "interrupted";

/// The reason given for an attempt that was under way.
const LOST: &str = "the engine was restarted, or could not go on, while it ran";

/// An intent that has no outcome and will get none.
#[derive(Debug)]
pub(crate) struct UnfinishedAttempt {
    pub(crate) attempt: AttemptId,
    pub(crate) session: Option<SessionId>,
    pub(crate) turn: Option<TurnId>,
    turn_number: u64,
    pub(crate) call: Option<String>,
    pub(crate) approval: Option<AskId>,
    /// The digest of the prepared action.
    prepared: Option<Digest>,
    pub(crate) label: Label,
    /// The possible usage of a model call. The real usage is unknown, so the whole reservation counts as
    /// used.
    model: Option<ModelUse>,
}

#[derive(Debug)]
struct ModelUse {
    requested: String,
    usage: Usage,
    cost: Option<MicroUsd>,
}

impl UnfinishedAttempt {
    /// Collects the known facts of an open intent; its payload may have been erased.
    pub(crate) fn new(attempt: AttemptId, entry: Option<Entry>) -> Self {
        let nothing = Self {
            attempt,
            session: None,
            turn: None,
            turn_number: 0,
            call: None,
            approval: None,
            prepared: None,
            // Without its payload the label is unknown, so the least trusted one stands for it.
            label: Label::new(Taint::External),
            model: None,
        };
        let Some(Entry { session, turn, turn_number, fact, .. }) = entry else { return nothing };
        let Fact::Intent { call, action, approval, prepared, label, .. } = fact else {
            return Self { session, turn, turn_number, ..nothing };
        };
        let model = if let Action::ModelCall(model) = &action {
            let usage =
                Usage { input: model.input_tokens, output: model.max_output_tokens, ..Usage::default() };
            let requested = format!("{}/{}", model.provider, model.model);
            Some(ModelUse { requested, usage, cost: model.ceiling })
        } else {
            None
        };
        let prepared = Some(prepared);
        Self { attempt, session, turn, turn_number, call, approval, prepared, label, model }
    }

    /// Returns the most that the attempt may have cost.
    pub(crate) fn cost(&self) -> MicroUsd {
        self.model.as_ref().and_then(|model| model.cost).unwrap_or_default()
    }

    /// The operations that close it; `day` is on the date that its usage is booked on, `item` the work item of its session.
    pub(crate) fn close(&self, now: Timestamp, day: Timestamp, item: Option<String>) -> Pending {
        let attempt = self.attempt;
        let entry = |fact| {
            let (session, turn, turn_number) = (self.session, self.turn, self.turn_number);
            Op::Append(Box::new(Entry { at: now, session, turn, turn_number, fact }))
        };
        let Some(ModelUse { requested, usage, cost }) = &self.model else {
            return Pending::from([entry(Fact::Outcome {
                attempt,
                outcome: ToolOutcome::Unknown,
                summary: LOST.to_owned(),
                result: Digest::of_bytes(b""),
                label: self.label.clone(),
            })]);
        };
        let called = Fact::ModelCalled {
            attempt,
            requested: requested.clone(),
            actual: String::new(),
            stop: None,
            usage: *usage,
            cost: *cost,
            error: LOST.to_owned(),
            is_lasting: false,
            role: String::new(),
            sealed_reply: None,
        };
        let delta = UsageDelta {
            session: self.session,
            at: day,
            usage: *usage,
            cost: cost.unwrap_or_default(),
            tool_calls: 0,
            model_calls: 1,
        };
        let (role, model) = (UNKNOWN_ROLE.to_owned(), requested.clone());
        let share = UsageShare { delta, role, model, item };
        Pending::from([entry(called), Op::AddUsage(delta), Op::AddUsageShare(Box::new(share))])
    }
}

/// Closes the intents that will not be resumed: those of ended turns, and those of people outside turns.
/// Intents of open turns are settled when these are resumed.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn settle_abandoned(services: &Services) -> Result<(), EngineError> {
    for open in services.journal.store.open_intents().await? {
        let lost = UnfinishedAttempt::new(open.attempt, open.entry);
        let turn = match lost.turn {
            Some(turn) => services.journal.store.turn(turn).await?,
            None => None,
        };
        if turn.is_none_or(|turn| turn.ended_at.is_some()) {
            settle(services, &lost).await?;
        }
    }
    Ok(())
}

/// Closes the intents of a turn that is not tried again. Approved actions that are still running end on their
/// own.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn settle_turn(services: &Services, turn: TurnId) -> Result<(), EngineError> {
    let runs = |lost: &UnfinishedAttempt| {
        lost.approval.as_ref().is_some_and(|ask| services.life.approved.is_performing(ask))
    };
    settle_those(services, |lost| lost.turn == Some(turn) && !runs(lost)).await
}

/// Closes the intent of what was approved and could not be carried through. What an approval for the task has covered
/// besides belongs to its turn.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn settle_ask(services: &Services, ask: &StoredAsk) -> Result<(), EngineError> {
    let (id, prepared) = (Some(&ask.card.ask_id), &ask.prepared);
    let is_it = |lost: &UnfinishedAttempt| {
        lost.approval.as_ref() == id && (lost.turn, &lost.call) == (prepared.turn, &prepared.call)
    };
    settle_those(services, is_it).await
}

async fn settle_those(
    services: &Services,
    which: impl Fn(&UnfinishedAttempt) -> bool,
) -> Result<(), EngineError> {
    for open in services.journal.store.open_intents().await? {
        let lost = UnfinishedAttempt::new(open.attempt, open.entry);
        if which(&lost) {
            settle(services, &lost).await?;
        }
    }
    Ok(())
}

/// Records the outcome of an attempt as unknown, and reports that to the people who wait for its approved
/// action.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn settle(services: &Services, lost: &UnfinishedAttempt) -> Result<(), EngineError> {
    let now = services.journal.clock.now();
    let item = match lost.session {
        Some(session) => services.sessions.get(session).await?.item_name(),
        None => None,
    };
    let ops = lost.close(now, services.journal.budget_day(now), item);
    let asked = match &lost.approval {
        Some(ask) => services.journal.store.ask(ask).await?,
        None => None,
    };
    // Only the action that the card showed belongs to the ask; further actions under its approval for the task do not.
    let its_own =
        |ask: &StoredAsk| ask.prepared.session.is_some() && Some(ask.card.prepared) == lost.prepared;
    let Some(ask) = asked.filter(its_own) else {
        services.journal.store.commit(ops.into_synced()).await?;
        return Ok(());
    };
    let text = notice::UNKNOWN.to_owned();
    let text = services.journal.redactor.clean_text(text);
    let rendered = Rendered { text, label: lost.label.clone(), outcome: ToolOutcome::Unknown };
    let reason = "the engine ended while it ran".to_owned();
    let outcome = AskOutcome { rendered, exit: Exit::Verification, reason, undo: None };
    tell::tell(services, &ask, outcome, ops).await
}

#[cfg(test)]
mod tests {
    use writ_types::action::ModelCall;
    use writ_types::unit::Tokens;

    use super::*;

    fn intent(action: Action) -> Entry {
        let attempt = AttemptId::from_parts(Timestamp::from_millis(0), 1);
        let fact = Fact::Intent {
            attempt,
            prepared: Digest::of_bytes(b"prepared"),
            action,
            call: None,
            approval: None,
            idempotent: true,
            label: Label::new(Taint::Owner),
            requester: None,
        };
        Entry { at: Timestamp::from_millis(0), session: None, turn: None, turn_number: 0, fact }
    }

    #[test]
    fn a_lost_model_call_counts_as_what_was_set_aside_for_it() {
        let call = ModelCall {
            provider: "p".to_owned(),
            model: "m".to_owned(),
            host: "h".to_owned(),
            request: Digest::of_bytes(b"request"),
            input_tokens: Tokens::new(100),
            max_output_tokens: Tokens::new(20),
            ceiling: Some(MicroUsd::new(7)),
            clearance: Default::default(),
            why: String::new(),
        };
        let attempt = AttemptId::from_parts(Timestamp::from_millis(0), 1);
        let lost = UnfinishedAttempt::new(attempt, Some(intent(Action::ModelCall(call))));
        assert_eq!(lost.cost(), MicroUsd::new(7));
        let at = Timestamp::from_millis(5);
        let ops = lost.close(at, at, Some("item".to_owned()));
        let [_, Op::AddUsage(delta), Op::AddUsageShare(share)] = ops.as_slice() else { panic!("{ops:?}") };
        assert_eq!((&share.delta, share.model.as_str()), (delta, "p/m"));
        assert_eq!(share.item.as_deref(), Some("item"));
        assert_eq!((delta.usage.total_tokens(), delta.cost), (Tokens::new(120), MicroUsd::new(7)));
        let erased = UnfinishedAttempt::new(attempt, None).close(at, at, None);
        assert!(
            matches!(erased.as_slice(), [Op::Append(entry)]
                if matches!(entry.fact, Fact::Outcome { outcome: ToolOutcome::Unknown, .. })),
            "{erased:?}"
        );
    }
}
