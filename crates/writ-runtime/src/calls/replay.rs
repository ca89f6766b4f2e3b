//! Replays of sessions: each tool call is put before today's door once more, and nothing is performed or written.

use std::collections::BTreeMap;
use std::sync::Arc;

use writ_agent::event::StoredEvent;
use writ_agent::turn::ContextParts;
use writ_inspect::prepared::Prepared;
use writ_inspect::show::escape_line;
use writ_policy::budget::Spent;
use writ_policy::keys::Authority;
use writ_policy::rules::RuleSet;
use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::{AskReads as _, LedgerReads as _};
use writ_store::turns::TurnRow;
use writ_tools::def::{SearchTarget, ToolContext};
use writ_types::action::Action;
use writ_types::api::cassette::{CassetteQuery, ReplayPage, ReplayStep, ReplayVerdict};
use writ_types::chat::{ToolCall, ToolOutcome, ToolResult};
use writ_types::entry::Fact;
use writ_types::id::AskId;
use writ_types::taint::Label;

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
    profile: Arc<AgentProfile>,
    authority: Authority,
    rules: Arc<RuleSet>,
}

impl<'a> Rehearsal<'a> {
    async fn of_session(services: &'a Services, query: CassetteQuery) -> Result<Self, EngineError> {
        let session = services.sessions.get(query.session).await?;
        let answering = session.state().answering.clone();
        let profile = services.profiles.find_answering(&answering)?;
        let named = answering.agent.as_deref().and_then(|name| services.rules.find_agent(name));
        let state = SessionState { answering: answering.clone(), ..SessionState::default() };
        // A closed session has no grants left: the rehearsal has those that it would be opened with.
        let as_opened = Session::new(session.id, session.terms.clone(), state);
        let authority = services.keys.rehearse(&as_opened)?;
        // Today's, without a word in the ledger that they are in force; where they cannot stand, the last good ones are.
        let rules = match services.rules.session_rules(session.terms.project.as_deref(), named).await {
            Ok(rules) => rules.unwrap_or_else(|| Arc::clone(&services.rules.in_force)),
            Err(_) => services.rules.rules_of(Some(&session)),
        };
        Ok(Self { services, profile, session, authority, rules })
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
                steps.push(
                    self.decide_again(row, parts, (&call, &label), (&result, ask.as_ref()), &recorded)
                        .await?,
                );
            }
            folding.take(stored)?;
        }
        Ok(steps)
    }

    async fn decide_again(
        &self,
        row: &TurnRow,
        parts: &ContextParts,
        (call, label): (&ToolCall, &Label),
        (result, ask): (&ToolResult, Option<&AskId>),
        recorded: &RecordedTurn,
    ) -> Result<ReplayStep, EngineError> {
        let did = recorded.verdict(call, result, ask);
        let step = |intent: &str, would, rule: &str, why: &str| ReplayStep {
            turn: row.number,
            call: call.id.clone(),
            tool: call.name.clone(),
            intent: escape_line(intent),
            did,
            would,
            rule: rule.to_owned(),
            why: escape_line(&self.services.journal.redactor.mask_text(why)),
        };
        let prepared = match self.prepare(row, call, label, (ask, recorded)).await? {
            Ok(prepared) => prepared,
            Err(why) => return Ok(step(&call.name, ReplayVerdict::Unknown, "", &why)),
        };
        let intent = prepared.intent.clone();
        let origins = origins((self.services, row.session), parts, call, label).await?;
        let standing = RequestContext {
            origins: origins.as_deref(),
            ..RequestContext::of(&self.authority, Spent::default())
        };
        let circumstances = self.services.door.circumstances(&prepared, standing.origins).await?;
        let circumstances = Circumstances { rules: Arc::clone(&self.rules), ..circumstances };
        let foreseen = self.services.door.door.foresee(prepared, standing, &circumstances).await?;
        Ok(match foreseen {
            Foreseen::Permit => step(&intent, ReplayVerdict::Permit, "", ""),
            Foreseen::Ask(ask) => {
                let rules: Vec<&str> = ask.rules.iter().map(String::as_str).collect();
                step(&intent, ReplayVerdict::Ask, &rules.join(", "), &ask.reason)
            }
            Foreseen::Deny(denial) => step(&intent, ReplayVerdict::Deny, &denial.rule, &denial.text),
        })
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
        let context = ToolContext {
            agent: &self.profile.agent,
            session: Some(self.session.id),
            turn: Some(row.id),
            turn_number: row.number,
            label,
            config: &self.services.config.timeouts,
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

/// An intent of the ledger.
struct RecordedIntent {
    action: Action,
    idempotent: bool,
    /// True if it rested on an approval.
    is_approved: bool,
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
                intents.insert(call, RecordedIntent { action, idempotent, is_approved: approval.is_some() });
            }
        }
        Ok(Self { intents })
    }

    /// The decision that a call met then.
    fn verdict(&self, call: &ToolCall, result: &ToolResult, ask: Option<&AskId>) -> ReplayVerdict {
        if ask.is_some() {
            return ReplayVerdict::Ask;
        }
        match (result.outcome, self.intents.get(&call.id)) {
            // An earlier approval answered the question.
            (_, Some(intent)) if intent.is_approved => ReplayVerdict::Ask,
            (_, Some(_)) | (ToolOutcome::Simulated, None) => ReplayVerdict::Permit,
            (ToolOutcome::Denied, None) => ReplayVerdict::Deny,
            (_, None) => ReplayVerdict::Unknown,
        }
    }
}
