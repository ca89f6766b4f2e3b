//! Sessions as a person keeps them: names, search, history, copies, deletion, and the agent that answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use writ_inspect::show::escape_line;
use writ_store::batch::{Batch, Op};
use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::{LedgerReads as _, SessionReads as _};
use writ_store::sessions::{DELETED_AT, ERASED_AT, SessionRow};
use writ_types::api::session::{
    HistoryMessage, HistoryPage, HistoryQuery, MAX_TITLE_CHARS, NamedAgentList, NamedAgentSummary,
    SessionAgent, SessionDeletion, SessionErasure, SessionFork, SessionHit, SessionHits, SessionName,
    SessionQuery, SessionSummary, SessionTitle, TurnUsage, TurnUsageList,
};
use writ_types::chat::{ChatMessage, Part, Usage};
use writ_types::entry::{Fact, HookEvent};
use writ_types::error::{Exit, Report, ToReport as _};
use writ_types::id::{SessionId, TurnId};
use writ_types::unit::{MicroUsd, Tokens};

use super::sessions::{close_session, session_summary};
use super::{MAX_LISTED, MAX_LISTED_BYTES, to_json};
use crate::erase::{self, DELETED_FOR, deleted_at};
use crate::error::{DirectoryError, EngineError};
use crate::profile::Answering;
use crate::services::Services;
use crate::session::{AGENT, CLOSED_AT, MODEL, ORDER, TITLE, TitleAuthor, TitleRecord};

/// The most hits of a search, and the usual number.
const MAX_HITS: usize = 100;
const USUAL_HITS: usize = 20;
/// The most words of a search.
const MAX_WORDS: usize = 16;
/// The characters of an excerpt before the first word that was found, and in all.
const BEFORE: usize = 60;
const MAX_EXCERPT: usize = 240;
/// The usual number of messages of one part of a history.
const USUAL_MESSAGES: usize = 200;
/// The most turns with their usage in the list, and the most model calls that are added up for it.
const MAX_TURNS: usize = 100;
const MAX_CALLS: usize = 2_000;

fn wrong(method: &str, why: impl Into<String>) -> EngineError {
    EngineError::Params { method: method.to_owned(), why: why.into() }
}

/// Reads a session that was not erased.
pub(super) async fn readable(
    services: &Services,
    session: SessionId,
    method: &str,
) -> Result<SessionRow, EngineError> {
    let row = services.journal.store.session(session).await?.ok_or(EngineError::NoSession(session))?;
    if erase::is_erased(&row) {
        return Err(wrong(method, "the content of this session was erased"));
    }
    Ok(row)
}

async fn note(
    services: &Services,
    session: SessionId,
    key: &str,
    value: Option<Value>,
) -> Result<(), EngineError> {
    let op = Op::SetSessionMetadata { session, key: key.to_owned(), value };
    services.journal.store.commit(Batch::synced(vec![op])).await?;
    Ok(())
}

/// Gives a session another title.
pub(super) async fn rename_session(
    services: &Services,
    SessionTitle { session, title }: SessionTitle,
) -> Result<SessionSummary, EngineError> {
    let row = readable(services, session, "sessions.rename").await?;
    let masked = services.journal.redactor.mask_text(title.trim()).into_owned();
    let text = escape_line(&masked);
    if text.is_empty() || text.chars().count() > MAX_TITLE_CHARS {
        return Err(wrong("sessions.rename", format!("a title has 1 to {MAX_TITLE_CHARS} characters")));
    }
    let title = TitleRecord { text, by: TitleAuthor::Owner };
    note(services, row.id, TITLE, title.to_value()).await?;
    services.sessions.get(session).await?.state().title = Some(title);
    let row = readable(services, session, "sessions.rename").await?;
    session_summary(services, &row).await
}

/// Finds messages by their words.
pub(super) async fn search_sessions(
    services: &Services,
    SessionQuery { q, limit }: SessionQuery,
) -> Result<SessionHits, EngineError> {
    let words: Vec<String> = q.split_whitespace().map(str::to_lowercase).collect();
    if words.is_empty() || words.len() > MAX_WORDS {
        return Err(wrong("sessions.search", format!("name 1 to {MAX_WORDS} words")));
    }
    let limit = limit.unwrap_or(USUAL_HITS).clamp(1, MAX_HITS);
    let found = services.journal.store.search_chronicle(&words, limit).await?;
    let mut titles: BTreeMap<SessionId, Option<String>> = BTreeMap::new();
    let mut hits = Vec::with_capacity(found.rows.len());
    for (session, row) in found.rows {
        let title = match titles.get(&session) {
            Some(title) => title.clone(),
            None => {
                let listed = services.journal.store.session(session).await?;
                let title =
                    listed.and_then(|row| TitleRecord::of_metadata(&row.metadata)).map(|title| title.text);
                titles.insert(session, title.clone());
                title
            }
        };
        hits.push(SessionHit {
            session,
            title,
            turn_number: row.turn_number,
            at: row.at,
            role: row.message.role,
            excerpt: excerpt(&row.message.said_text(), words.first().map_or("", String::as_str)),
        });
    }
    Ok(SessionHits { hits, more: found.more })
}

/// The part of a text around a word, in one line.
fn excerpt(text: &str, word: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // Lower case may have another length: the place is counted in characters and is only about where.
    let found = line.to_lowercase().find(word).unwrap_or(0);
    let place = line.to_lowercase().get(..found).map_or(0, |before| before.chars().count());
    let from = place.saturating_sub(BEFORE);
    let cut: String = line.chars().skip(from).take(MAX_EXCERPT).collect();
    let (begins, ends) = (from == 0, from.saturating_add(MAX_EXCERPT) >= line.chars().count());
    let (before, after) = (if begins { "" } else { "\u{2026}" }, if ends { "" } else { "\u{2026}" });
    format!("{before}{}{after}", escape_line(cut.trim()))
}

/// Shows a part of a session's history.
pub(super) async fn show_history(
    services: &Services,
    HistoryQuery { session, after, limit }: HistoryQuery,
) -> Result<HistoryPage, EngineError> {
    readable(services, session, "sessions.history").await?;
    let limit = limit.unwrap_or(USUAL_MESSAGES).clamp(1, MAX_LISTED);
    let rows = services.journal.store.chronicle_page(session, after, limit).await?;
    let (mut messages, mut bytes, mut whole) = (Vec::with_capacity(rows.len()), 0_usize, rows.len() < limit);
    for row in rows {
        let message = HistoryMessage {
            n: row.n,
            turn: row.turn,
            turn_number: row.turn_number,
            at: row.at,
            role: row.message.role,
            text: services.journal.redactor.mask_text(&shown_text(&row.message)).into_owned(),
            taint: row.message.label.taint,
        };
        bytes = bytes.saturating_add(to_json(&message)?.to_string().len());
        // At least one, so that a reader who goes on advances.
        if bytes > MAX_LISTED_BYTES && !messages.is_empty() {
            whole = false;
            break;
        }
        messages.push(message);
    }
    let next = messages.last().filter(|_| !whole).map(|last: &HistoryMessage| last.n);
    Ok(HistoryPage { messages, next })
}

/// The text of a message for a person: tools are named, and their results are left to the ledger.
fn shown_text(message: &ChatMessage) -> String {
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.clone()),
        Part::Call(call) => Some(format!("[{}]", call.name)),
        Part::Result(result) => {
            Some(format!("[{}: {}]", result.name, crate::outcome::outcome_name(result.outcome)))
        }
        Part::Reasoning(_) => None,
        Part::File(attached) => Some(format!("[{}]", attached.file.name)),
    });
    parts.collect::<Vec<_>>().join("\n")
}

/// Copies a session up to a turn. The copy goes on from there; nothing that was granted to the first holds in it.
pub(super) async fn fork_session(
    services: &Services,
    SessionFork { session, turn }: SessionFork,
) -> Result<SessionSummary, EngineError> {
    let row = readable(services, session, "sessions.fork").await?;
    if row.metadata.contains_key(ORDER) {
        return Err(wrong(
            "sessions.fork",
            "a session under a standing order is not copied: open the order again",
        ));
    }
    let running =
        services.sessions.get(session).await?.state().turns.iter().map(|running| running.number).min();
    // A turn that runs has no answer yet.
    let last = running.map_or(row.turn_number, |running| running.saturating_sub(1));
    let until = turn.unwrap_or(last);
    if until > last {
        return Err(wrong("sessions.fork", format!("the last turn that has ended is {last}")));
    }
    let forked = services.sessions.fork(&row, until).await?;
    services.gates.tell_of_session(&forked, HookEvent::SessionCreated).await?;
    let row = readable(services, forked.id, "sessions.fork").await?;
    session_summary(services, &row).await
}

/// Deletes a session: it is closed and no longer listed, and can be brought back until its content is erased.
pub(super) async fn delete_session(
    services: &Arc<Services>,
    SessionName { session }: SessionName,
) -> Result<SessionDeletion, EngineError> {
    let row = readable(services, session, "sessions.delete").await?;
    if !row.metadata.contains_key(CLOSED_AT) {
        close_session(services, SessionName { session }).await?;
    }
    let now = services.journal.clock.now();
    if !row.metadata.contains_key(DELETED_AT) {
        note(services, session, DELETED_AT, Some(Value::from(now.to_string()))).await?;
    }
    let since = deleted_at(&row).unwrap_or(now);
    Ok(SessionDeletion { session, erased_after: Some(since.plus_duration(DELETED_FOR).to_string()) })
}

/// Brings a deleted session back. It stays closed: a copy of it goes on.
pub(super) async fn restore_session(
    services: &Services,
    SessionName { session }: SessionName,
) -> Result<SessionDeletion, EngineError> {
    let row = readable(services, session, "sessions.restore").await?;
    if !row.metadata.contains_key(DELETED_AT) {
        return Err(wrong("sessions.restore", "this session is not deleted"));
    }
    note(services, session, DELETED_AT, None).await?;
    Ok(SessionDeletion { session, erased_after: None })
}

/// Erases the content of a deleted session now: its history, and what the ledger holds of it as far as nothing rests on
/// that. The ledger's proofs stay.
pub(super) async fn erase_session(
    services: &Services,
    SessionName { session }: SessionName,
) -> Result<SessionErasure, EngineError> {
    let row = services.journal.store.session(session).await?.ok_or(EngineError::NoSession(session))?;
    // One that has begun is gone on with.
    if row.metadata.contains_key(ERASED_AT) {
        return Err(wrong("sessions.erase", "the content of this session was erased"));
    }
    erase::erase_content(services, session, "owner").await
}

/// Lets another agent or model answer in a session, from its next turn on.
pub(super) async fn choose_agent(
    services: &Services,
    SessionAgent { session, agent, model }: SessionAgent,
) -> Result<SessionSummary, EngineError> {
    let held = services.sessions.open_one(session).await?;
    if held.terms.order.is_some() {
        return Err(wrong("sessions.agent", "a session under a standing order has the agent of the order"));
    }
    let named =
        match &agent {
            None => None,
            Some(name) => {
                let found = services.rules.find_agent(name);
                Some(found.ok_or_else(|| {
                    EngineError::from(DirectoryError::NoAgent(name.chars().take(64).collect()))
                })?)
            }
        };
    let project = held.terms.project.as_deref();
    if let Some(agent) = named.filter(|agent| !agent.works_on(project)) {
        let folders: Vec<String> = agent.folders.iter().map(|folder| folder.display().to_string()).collect();
        let why = format!("the agent '{}' works on {} alone", agent.name, folders.join(", "));
        return Err(wrong("sessions.agent", why));
    }
    if let Some(model) = &model {
        let models = services.outside.models.get().ok_or(EngineError::NoModel)?;
        // The owner's configuration says which providers see conversations: a client chooses among those alone.
        if let Err(error) = models.routes().find_offered(model) {
            let hint = format!("these can be chosen: {}", models.routes().offered().join(", "));
            let Report { code, outside, .. } = error.report();
            return Err(EngineError::Model(Box::new(
                Report::new(Exit::Usage, &code, outside).with_hint(hint),
            )));
        }
    }
    let rules = services.rules.session_rules(project, named).await?;
    let in_force = rules.clone().unwrap_or_else(|| Arc::clone(&services.rules.in_force));
    let mut summary = named.map_or_else(
        || "the usual agent answers".to_owned(),
        |agent| format!("the agent '{}' answers", agent.name),
    );
    if let Some(model) = &model {
        summary.push_str(&format!(", and {model} is asked first"));
    }
    let ops = vec![
        Op::SetSessionMetadata { session, key: AGENT.to_owned(), value: agent.clone().map(Value::from) },
        Op::SetSessionMetadata { session, key: MODEL.to_owned(), value: model.clone().map(Value::from) },
        services.rules.rules_entry(&held, &in_force, &summary),
    ];
    services.journal.store.commit(Batch::synced(ops)).await?;
    {
        let mut state = held.state();
        (state.answering, state.rules) = (Answering { agent, model }, rules);
    }
    let row = readable(services, session, "sessions.agent").await?;
    session_summary(services, &row).await
}

/// The model calls of one turn.
#[derive(Default)]
struct TurnCalls {
    number: u64,
    model: String,
    usage: Usage,
    cost: MicroUsd,
    calls: u64,
    context: Tokens,
}

/// Shows what the latest turns of a session have used.
pub(super) async fn show_usage(
    services: &Services,
    SessionName { session }: SessionName,
) -> Result<TurnUsageList, EngineError> {
    readable(services, session, "sessions.usage").await?;
    let query = LedgerQuery {
        event: Some("model_called".to_owned()),
        session: Some(session),
        limit: MAX_CALLS,
        ..LedgerQuery::default()
    };
    let mut turns: BTreeMap<(u64, TurnId), TurnCalls> = BTreeMap::new();
    for row in services.journal.store.ledger_search(&query).await? {
        let (Some(turn), Some(entry)) = (row.turn, row.entry()) else { continue };
        let Fact::ModelCalled { requested, usage, cost, .. } = entry.fact else { continue };
        let one = turns.entry((row.turn_number, turn)).or_default();
        one.number = row.turn_number;
        one.calls += 1;
        one.usage += usage;
        one.cost = one.cost.saturating_add(cost.unwrap_or_default());
        // Rows come newest first. Gates and titles ask about little: the largest request is the conversation's.
        if usage.input > one.context || one.model.is_empty() {
            (one.context, one.model) = (usage.input, requested);
        }
    }
    let turns = turns.into_iter().rev().take(MAX_TURNS).map(|((_, turn), one)| TurnUsage {
        turn,
        number: one.number,
        window: window_of(services, &one.model),
        model: one.model,
        usage: one.usage,
        cost: one.cost,
        calls: one.calls,
        context: one.context,
    });
    Ok(TurnUsageList { turns: turns.collect() })
}

/// The tokens that a model can take, as far as that is known.
fn window_of(services: &Services, model: &str) -> Option<Tokens> {
    let models = services.outside.models.get()?;
    let route = models.routes().find(model).ok()?;
    let now = services.journal.clock.now();
    let info = models.model_info(&route);
    models.context_room(&route, now).or_else(|| info.known.then_some(info.context_window))
}

/// Lists the named agents, and the models that can be chosen.
pub(super) fn list_named(services: &Services) -> NamedAgentList {
    let agents = services.config.named.iter().map(|agent| NamedAgentSummary {
        name: agent.name.clone(),
        about: escape_line(&agent.about),
        model: agent.model.clone(),
        tools: agent.tools.clone(),
        folders: agent.folders.iter().map(|folder| folder.display().to_string()).collect(),
        narrows: agent.rules.is_some(),
    });
    let models = services.outside.models.get().map(|models| models.routes().offered());
    NamedAgentList { agents: agents.collect(), models: models.unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_around_its_word_and_hides_nothing() {
        let long = format!("{} heron {}", "before ".repeat(40), "after ".repeat(80));
        let cut = excerpt(&long, "heron");
        assert!(cut.starts_with('\u{2026}') && cut.ends_with('\u{2026}') && cut.contains("heron"), "{cut}");
        assert!(cut.chars().count() <= MAX_EXCERPT + 2);
        assert_eq!(excerpt("The Heron\n stands", "heron"), "The Heron stands");
        assert!(!excerpt("a \u{202e}b", "a").contains('\u{202e}'));
    }
}
