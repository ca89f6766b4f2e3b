//! Replays of sessions: each tool call is put before today's door once more, and nothing is performed or written.
//!
//! The rules, gates and approvers are those of today; the time is that of the call, and the approvals are those that its call
//! rested on then.

use std::collections::BTreeMap;
use std::sync::Arc;

use writ_agent::event::StoredEvent;
use writ_agent::turn::ContextParts;
use writ_inspect::prepared::Prepared;
use writ_inspect::show::escape_line;
use writ_policy::approval::{Approval, ApprovalError, ApprovalToken};
use writ_policy::budget::Spent;
use writ_policy::rules::RuleSet;
use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::{ApprovalReads as _, AskReads as _, LedgerReads as _};
use writ_store::turns::TurnRow;
use writ_tools::def::{SearchTarget, ToolContext};
use writ_types::action::Action;
use writ_types::api::cassette::{CassetteQuery, ReplayPage, ReplayStep, ReplayVerdict};
use writ_types::chat::{ToolCall, ToolOutcome, ToolResult};
use writ_types::entry::{Decision, Fact};
use writ_types::id::AskId;
use writ_types::taint::Label;
use writ_types::unit::Timestamp;

use super::cassette::{Folding, MAX_PAGE_ROWS, StoredStep, page_of_turns, rows_of};
use super::{MAX_LISTED_BYTES, to_json};
use crate::door::{Circumstances, Foreseen, RequestContext};
use crate::drive::origins::origins;
use crate::error::EngineError;
use crate::history::read_turn_events;
use crate::profile::AgentProfile;
use crate::services::Services;
use crate::session::{Session, SessionState};

/// Decides a part of a session's calls again.
pub(super) async fn replay_session(
    services: &Arc<Services>,
    query: CassetteQuery,
) -> Result<ReplayPage, EngineError> {
    let (turns, mut more) = page_of_turns(services, query).await?;
    let rehearsal = Rehearsal::of_session(services, query).await?;
    let (mut steps, mut bytes, mut rows, mut last) = (Vec::new(), 0_usize, 0_usize, None);
    for turn in turns {
        if rows > MAX_PAGE_ROWS {
            more = true;
            break;
        }
        let events = read_turn_events(&services.journal.store, turn.session, turn.id).await?;
        rows = rows.saturating_add(rows_of(&events));
        let read = rehearsal.turn_steps(&turn, events).await?;
        for step in &read {
            bytes = bytes.saturating_add(to_json(step)?.to_string().len());
        }
        if bytes > MAX_LISTED_BYTES && last.is_some() {
            more = true;
            break;
        }
        steps.extend(read);
        last = Some(turn.number);
    }
    Ok(ReplayPage { steps, next: last.filter(|_| more) })
}

/// A session as it would begin today: the same terms, the rules in force now, and nothing granted.
struct Rehearsal<'a> {
    services: &'a Services,
    /// The session of the record.
    session: Arc<Session>,
    /// The same as it was opened: a closed session has no grants left.
    as_opened: Session,
    profile: Arc<AgentProfile>,
    rules: Arc<RuleSet>,
}

impl<'a> Rehearsal<'a> {
    async fn of_session(services: &'a Services, query: CassetteQuery) -> Result<Self, EngineError> {
        let session = services.sessions.get(query.session).await?;
        let answering = session.state().answering.clone();
        let profile = services.profiles.find_answering(&answering)?;
        let named = answering.agent.as_deref().and_then(|name| services.rules.find_agent(name));
        let state = SessionState { answering: answering.clone(), ..SessionState::default() };
        let as_opened = Session::new(session.id, session.terms.clone(), state);
        // Today's, without a word in the ledger that they are in force; where they cannot stand, the last good ones are.
        let rules = match services.rules.session_rules(session.terms.project.as_deref(), named).await {
            Ok(rules) => rules.unwrap_or_else(|| Arc::clone(&services.rules.in_force)),
            Err(_) => services.rules.rules_of(Some(&session)),
        };
        Ok(Self { services, profile, session, as_opened, rules })
    }

    async fn turn_steps(
        &self,
        row: &TurnRow,
        events: Vec<StoredEvent>,
    ) -> Result<Vec<ReplayStep>, EngineError> {
        let recorded = RecordedTurn::of_turn(self.services, row).await?;
        let (mut steps, mut folding) = (Vec::new(), Folding::new());
        for stored in events {
            if let StoredStep::Call(call, label, result, ask) = folding.step_of(&stored.event)? {
                let parts = folding.machine.context_parts();
                let past = PastCall { call, label, result, ask, at: stored.at };
                steps.push(self.decide_again(row, parts, &past, &recorded).await?);
            }
            folding.take(stored)?;
        }
        Ok(steps)
    }

    async fn decide_again(
        &self,
        row: &TurnRow,
        parts: &ContextParts,
        past: &PastCall,
        recorded: &RecordedTurn,
    ) -> Result<ReplayStep, EngineError> {
        let (call, label) = (&past.call, &past.label);
        let approvals = self.approvals_of(past, recorded).await?;
        let did = recorded.verdict(past, !approvals.is_empty());
        let step = |intent: &str, would, rule: &str, why: &str| ReplayStep {
            turn: row.number,
            call: call.id.clone(),
            tool: call.name.clone(),
            intent: escape_line(intent),
            gates: Vec::new(),
            did,
            would,
            rule: rule.to_owned(),
            why: escape_line(&self.services.journal.redactor.mask_text(why)),
        };
        let prepared = match self.prepare(row, call, label, (past.ask.as_ref(), recorded)).await? {
            Ok(prepared) => prepared,
            Err(why) => return Ok(step(&call.name, ReplayVerdict::Unknown, "", &why)),
        };
        let intent = prepared.intent.clone();
        let (verdicts, gates) = self.services.gates.foresee(&prepared, &self.session, &call.arguments);
        let origins = origins((self.services, row.session), parts, call, label).await?;
        let foresee = async |at: Timestamp, approval: Option<&Result<Approval, ApprovalError>>| {
            let authority = self.services.keys.rehearse(&self.as_opened, at)?;
            let standing = RequestContext {
                origins: origins.as_deref(),
                approval,
                ..RequestContext::of(&authority, Spent::default())
            };
            let circumstances = self.services.door.circumstances(&prepared, standing.origins).await?;
            let circumstances = Circumstances { rules: Arc::clone(&self.rules), ..circumstances };
            let door = &self.services.door.door;
            door.foresee(prepared.clone(), standing, &circumstances, (&verdicts, at)).await
        };
        let found = match foresee(past.at, None).await? {
            Foreseen::Permit => step(&intent, ReplayVerdict::Permit, "", ""),
            Foreseen::Deny(denial) => step(&intent, ReplayVerdict::Deny, &denial.rule, &denial.text),
            Foreseen::Ask(ask) => {
                let mut would = ReplayVerdict::Ask;
                for (at, approval) in approvals {
                    if matches!(foresee(at, Some(&Ok(approval))).await?, Foreseen::Permit) {
                        would = ReplayVerdict::Approved;
                        break;
                    }
                }
                let rules: Vec<&str> = ask.rules.iter().map(String::as_str).collect();
                step(&intent, would, &rules.join(", "), &ask.reason)
            }
        };
        Ok(ReplayStep { gates, ..found })
    }

    /// The approvals that a call rested on: the answer to its own question, and an earlier one that covered it; each with the
    /// time at which it counted. One that does not verify with the approvers of today is left out, and so is a no.
    async fn approvals_of(
        &self,
        past: &PastCall,
        recorded: &RecordedTurn,
    ) -> Result<Vec<(Timestamp, Approval)>, EngineError> {
        let store = &self.services.journal.store;
        let earlier = recorded.intents.get(&past.call.id).and_then(|intent| intent.approval.as_ref());
        let mut found = Vec::new();
        for id in past.ask.iter().chain(earlier) {
            let (Some(ask), Some(stored)) = (store.ask(id).await?, store.approval(id).await?) else {
                continue;
            };
            let Ok(token) = serde_json::from_value::<ApprovalToken>(stored.token) else { continue };
            // Its own question was answered after the call, an earlier one before it.
            let is_own = past.ask.as_ref() == Some(id);
            let at = if is_own { ask.resolved_at.unwrap_or(past.at) } else { past.at };
            if let Ok(approval) = self.services.keys.approval_at(&ask, &token, at).await?
                && approval.claims().decision == Decision::Approve
            {
                found.push((at, approval));
            }
        }
        Ok(found)
    }

    /// Prepares a call as it would be today; where it depends on a file of then, as it was prepared then.
    async fn prepare(
        &self,
        row: &TurnRow,
        call: &ToolCall,
        label: &Label,
        (ask, recorded): (Option<&AskId>, &RecordedTurn),
    ) -> Result<Result<Prepared, String>, EngineError> {
        let tools = self.services.servers.registry();
        let toolset = tools.toolset_of(&self.profile.roles, &self.profile.allow_list(&tools));
        let needs_file = match toolset.needed_file(call) {
            Ok(needed) => needed.is_some(),
            Err(error) => return Ok(Err(error.to_string())),
        };
        if needs_file {
            return self.prepared_then(row, call, label, (ask, recorded)).await;
        }
        let settings = self.services.outside.settings.now();
        let context = ToolContext {
            agent: &self.profile.agent,
            session: Some(self.session.id),
            turn: Some(row.id),
            turn_number: row.number,
            label,
            config: &settings.timeouts,
            search: self.services.outside.search.as_ref().map(|search| SearchTarget {
                provider: search.provider(),
                host: search.host(),
                max_results: search.max_results(),
            }),
        };
        Ok(toolset.prepare_call(call, None, &context).map_err(|error| error.to_string()))
    }

    async fn prepared_then(
        &self,
        row: &TurnRow,
        call: &ToolCall,
        label: &Label,
        (ask, recorded): (Option<&AskId>, &RecordedTurn),
    ) -> Result<Result<Prepared, String>, EngineError> {
        if let Some(ask) = ask
            && let Some(stored) = self.services.journal.store.ask(ask).await?
        {
            return Ok(Ok(Prepared { label: label.clone(), ..stored.prepared }));
        }
        let Some(intent) = recorded.intents.get(&call.id) else {
            return Ok(Err("it depends on a file as it was then".to_owned()));
        };
        Ok(Ok(Prepared {
            action: intent.action.clone(),
            agent: self.profile.agent.clone(),
            session: Some(self.session.id),
            turn: Some(row.id),
            turn_number: row.number,
            call: Some(call.id.clone()),
            tool: call.name.clone(),
            // Files of the work folder are no sinks.
            sinks: Vec::new(),
            label: label.clone(),
            bindings: BTreeMap::new(),
            idempotent: intent.idempotent,
            intent: format!("{} as it was then", call.name),
        }))
    }
}

/// A call of the record.
struct PastCall {
    call: ToolCall,
    label: Label,
    result: ToolResult,
    /// The ask that it waited for.
    ask: Option<AskId>,
    /// When it came to an end, or began to wait.
    at: Timestamp,
}

/// An intent of the ledger.
struct RecordedIntent {
    action: Action,
    idempotent: bool,
    /// The ask with whose approval it was performed.
    approval: Option<AskId>,
}

/// What the ledger says of the calls of one turn.
struct RecordedTurn {
    /// By the ids of the calls.
    intents: BTreeMap<String, RecordedIntent>,
}

impl RecordedTurn {
    async fn of_turn(services: &Services, row: &TurnRow) -> Result<Self, EngineError> {
        let query = LedgerQuery {
            event: Some("intent".to_owned()),
            turn: Some(row.id),
            limit: writ_store::config::MAX_READ_ROWS,
            ..LedgerQuery::default()
        };
        let mut intents = BTreeMap::new();
        for entry in services.journal.store.ledger_search(&query).await?.iter().filter_map(|row| row.entry())
        {
            if let Fact::Intent { action, call: Some(call), approval, idempotent, .. } = entry.fact {
                intents.insert(call, RecordedIntent { action, idempotent, approval });
            }
        }
        Ok(Self { intents })
    }

    /// The decision that a call met then. `is_approved`: an approval of then let it pass.
    fn verdict(&self, past: &PastCall, is_approved: bool) -> ReplayVerdict {
        let intent = self.intents.get(&past.call.id);
        let rests_on_approval = intent.is_some_and(|intent| intent.approval.is_some());
        if past.ask.is_some() || rests_on_approval {
            return if is_approved { ReplayVerdict::Approved } else { ReplayVerdict::Ask };
        }
        match (past.result.outcome, intent) {
            (_, Some(_)) | (ToolOutcome::Simulated, None) => ReplayVerdict::Permit,
            (ToolOutcome::Denied, None) => ReplayVerdict::Deny,
            (_, None) => ReplayVerdict::Unknown,
        }
    }
}
