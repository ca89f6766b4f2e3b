//! Reading the ledger, for surfaces: pages of entries, and proofs.

use serde_json::Value;
use writ_inspect::show;
use writ_store::ledger::rests_on::RestsOn;
use writ_store::ledger::row::{LedgerQuery, LedgerRow};
use writ_store::reads::LedgerReads as _;
use writ_types::action::Action;
use writ_types::api::ledger::{
    EntryName, EntryProof, Erasure, ErasureRequest, LedgerEntry, LedgerFilter, LedgerPage, Provenance,
    ProvenanceStep,
};
use writ_types::entry::{CustomerReading, Decision, Fact};
use writ_types::id::{AskId, EntrySeq};

use super::{MAX_LISTED_BYTES, to_json};
use crate::erase;
use crate::error::EngineError;
use crate::services::Services;

/// The most entries of one page.
const MAX_ENTRIES: usize = 200;
/// Entries of a page, unless asked otherwise.
const PAGE: usize = 50;
/// The longest summary of an entry, in characters.
const MAX_SUMMARY_CHARS: usize = 200;
/// The longest part of an unknown kind that is repeated, in characters; the longest known kind has 14.
const MAX_KIND_CHARS: usize = 64;
/// Fields that best describe an action, in order of preference.
const TELLING: [&str; 9] = ["argv", "path", "url", "model", "query", "text", "to", "name", "tool"];

/// Lists a page of entries, newest first.
pub(super) async fn list_entries(
    services: &Services,
    wanted: LedgerFilter,
) -> Result<LedgerPage, EngineError> {
    if let Some(event) = wanted.event.as_deref().filter(|event| !Fact::EVENTS.contains(event)) {
        return Err(EngineError::NoEvent(event.chars().take(MAX_KIND_CHARS).collect()));
    }
    let query = LedgerQuery {
        event: wanted.event,
        session: wanted.session,
        text: wanted.q.filter(|text| !text.is_empty()),
        before: wanted.before,
        after: wanted.after,
        limit: wanted.limit.unwrap_or(PAGE).clamp(1, MAX_ENTRIES),
        ..LedgerQuery::default()
    };
    let mut bytes = 0_usize;
    let mut entries = Vec::new();
    for row in services.journal.store.ledger_search(&query).await? {
        let entry = ledger_entry(&row);
        bytes = bytes.saturating_add(to_json(&entry)?.to_string().len());
        // At least one, so that a reader who continues from the last one advances.
        if bytes > MAX_LISTED_BYTES && !entries.is_empty() {
            break;
        }
        entries.push(entry);
    }
    Ok(LedgerPage { entries, size: services.journal.store.ledger_size().await? })
}

/// Proves that an entry is in the ledger.
pub(super) async fn prove_entry(services: &Services, name: EntryName) -> Result<EntryProof, EngineError> {
    Ok(services.journal.store.ledger_proof(check_entry(services, name).await?).await?)
}

/// Shows what an entry rests on; nothing if it has no label.
pub(super) async fn rests_on(services: &Services, name: EntryName) -> Result<Provenance, EngineError> {
    Ok(provenance(services.journal.store.entry_rests_on(check_entry(services, name).await?).await?))
}

/// Shows what an ask rests on.
pub(super) async fn ask_rests_on(services: &Services, ask: AskId) -> Result<Provenance, EngineError> {
    Ok(provenance(services.journal.store.ask_rests_on(&ask).await?.ok_or(EngineError::NoAsk(ask))?))
}

/// Escapes the names of sources: what was read may have any name.
fn provenance(found: RestsOn) -> Provenance {
    let rests_on = found.steps.into_iter().map(|mut step| {
        for source in &mut step.sources {
            source.origin = show::escape_line(&source.origin);
            source.detail = show::escape_line(&source.detail);
        }
        ProvenanceStep {
            entry: step.entry,
            event: step.event.to_owned(),
            taint: step.taint,
            outside: step.outside,
            private: step.private,
            sources: step.sources,
            truncated: step.truncated,
        }
    });
    Provenance { rests_on: rests_on.collect(), more: found.more }
}

async fn check_entry(services: &Services, EntryName { seq }: EntryName) -> Result<EntrySeq, EngineError> {
    if seq.0 >= services.journal.store.ledger_size().await? {
        return Err(EngineError::NoEntry(seq));
    }
    Ok(seq)
}

/// Erases payloads of entries for the owner.
pub(super) async fn erase_payloads(
    services: &Services,
    wanted: ErasureRequest,
) -> Result<Erasure, EngineError> {
    Ok(Erasure { erased: erase::erase(services, wanted.entries, "owner", &wanted.reason).await? })
}

fn ledger_entry(row: &LedgerRow) -> LedgerEntry {
    let taint = row.payload.as_ref().and_then(|payload| {
        ["/label/taint", "/record/taint", "/taint"].iter().find_map(|path| payload.pointer(path)).cloned()
    });
    LedgerEntry {
        seq: row.seq,
        at: row.at.to_string(),
        event: row.event.clone(),
        session: row.session,
        turn: row.turn,
        turn_number: row.turn_number,
        taint,
        summary: row
            .entry()
            .map_or_else(|| "erased".to_owned(), |entry| cut_line(&summarise_fact(&entry.fact))),
        payload: row.payload.clone(),
        leaf: row.leaf,
        intact: row.intact,
    }
}

/// Names the operations that the security proxy has read for a case.
fn describe_reading(record: &CustomerReading) -> String {
    let read = record.sources.iter().filter(|source| source.failure.is_empty());
    let read: Vec<&str> = read.map(|source| source.operation.as_str()).collect();
    format!("for case {}: {}", record.case, read.join(", "))
}

/// An entry in one line.
fn summarise_fact(fact: &Fact) -> String {
    match fact {
        Fact::Received { record, text, .. } => format!("{}: {text}", record.principal),
        Fact::Gated { gate, reason, .. } => format!("gate {gate}: {reason}"),
        Fact::Shadowed { set, kind, rules, .. } => {
            format!("{set} differs: {} ({})", kind.as_str(), rules.join(", "))
        }
        Fact::Hooked { hook, reason, .. } => format!("hook {hook}: {reason}"),
        Fact::Intent { action, .. } => describe_action(action),
        Fact::Outcome { summary, .. } => summary.clone(),
        Fact::Asked { ask, action, reason, .. } => format!("{ask}: {} ({reason})", describe_action(action)),
        Fact::Answered { ask, decision, by, reason, .. } => {
            format!("{ask}: {} by {by} {reason}", decision_word(*decision))
        }
        Fact::Denied { kind, rule, text, .. } => format!("{}: {text} ({rule})", kind.as_str()),
        Fact::ModelCalled { requested, error, usage, .. } => match error.as_str() {
            "" => format!("{requested}: {}", usage.total_tokens()),
            error => format!("{requested}: {error}"),
        },
        Fact::Keyed { role, change, grants, .. } => format!("{role} key {change}: {grants}"),
        Fact::Planned { text, .. } => text.clone(),
        Fact::Phase { phase, reason } => {
            let phase = serde_json::to_value(phase).ok();
            let phase = phase.as_ref().and_then(Value::as_str).unwrap_or_default();
            format!("{phase} {reason}")
        }
        Fact::Worked { step, state, reason, .. } if step.is_empty() => format!("{state}: {reason}"),
        Fact::Worked { step, state, reason, .. } => format!("{step} {state}: {reason}"),
        Fact::Remembered { memory, forgotten, .. } => {
            format!("{memory} {}", if *forgotten { "forgotten" } else { "remembered" })
        }
        Fact::Escalated { to, reason } => format!("to {to}: {reason}"),
        Fact::CaseMoved { record } => {
            format!("case {} {}: {}", record.case, record.change.as_str(), record.reason)
        }
        Fact::AgentMoved { record } => {
            format!(
                "agent {} version {} {} by {}",
                record.agent,
                record.version,
                record.change.as_str(),
                record.by
            )
        }
        Fact::CustomerRead { record } => describe_reading(record),
        Fact::PolicyChanged { summary, .. } => summary.clone(),
        Fact::Restored { from, .. } => format!("from entry {from}"),
        Fact::Applied { project, files } => {
            format!("{} file{} of {project}", files.len(), if files.len() == 1 { "" } else { "s" })
        }
        Fact::Erased { entries, by, reason } => {
            let count: u64 =
                entries.iter().map(|(first, last)| last.0.saturating_sub(first.0).saturating_add(1)).sum();
            format!("payloads of {count} entries, for {by}: {reason}")
        }
        Fact::Served { requester, .. } => format!("{} to {}", requester.operation, requester.agent),
        Fact::Checkpoint { name } => name.clone(),
        Fact::Compacted { messages, by, .. } => format!("{messages} messages, summarised by {by}"),
        Fact::SandboxReady { rung, reduced } => format!("rung {rung} {reduced}"),
        Fact::Connected { connections } => {
            let each = connections
                .iter()
                .map(|one| format!("{}:{} {} ({})", one.host, one.port, one.verdict.as_str(), one.rule));
            each.collect::<Vec<_>>().join(", ")
        }
        Fact::Replied { from, to, .. } => format!("rests on entries {from} to {to}"),
    }
}

const fn decision_word(decision: Decision) -> &'static str {
    match decision {
        Decision::Approve => "approved",
        Decision::Deny => "denied",
    }
}

/// Describes an action by its kind and its most informative field.
fn describe_action(action: &Action) -> String {
    let fields = serde_json::to_value(action).unwrap_or_default();
    let field = TELLING.iter().find_map(|name| fields.get(name));
    let text = match field {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        Some(_) | None => String::new(),
    };
    format!("{} {text}", action.kind().as_str())
}

/// One line of bounded length without control characters.
fn cut_line(text: &str) -> String {
    let plain = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = plain.clone().take(MAX_SUMMARY_CHARS).collect();
    if plain.count() > MAX_SUMMARY_CHARS {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_one_bounded_line() {
        assert_eq!(cut_line(" a\nb\u{1b}[2J "), "a b [2J");
        let long = cut_line(&"ä".repeat(500));
        assert_eq!(long.chars().count(), MAX_SUMMARY_CHARS + 1);
        assert!(long.ends_with('…'));
    }
}
