//! `writ policy suggest`: asks that one rule or standing approval could answer.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use writ_inspect::egress::host::HostPattern;
use writ_inspect::show::escape_line;
use writ_policy::pattern::standing::MAX_TTL;
use writ_policy::suggest::{
    Advice, CurrentSettings, EarlierQuestion, MIN_APPROVED, PersonAnswer, Suggestion,
};
use writ_store::approvals::{AskState, StoredAsk};
use writ_store::ledger::row::LedgerQuery;
use writ_store::store::Store;
use writ_types::entry::{Decision, Fact};
use writ_types::frame::Card;
use writ_types::id::AskId;
use writ_types::unit::Timestamp;

use crate::clock;
use crate::config::policies;
use crate::context::Context;
use crate::failure::Failure;
use crate::ledger::open_to_read;

/// The most questions, and the most answers, that are looked through.
const MAX_ASKS: usize = 10_000;
/// One day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Looks through what was asked in the last `days` days.
///
/// # Errors
///
/// If the home, its rules or its database cannot be read.
pub(super) fn run_suggest(context: &Context, days: u32) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    let rules = policies::load_rules(&context.home, None)?;
    let store = open_to_read(context, &config)?;
    let mut egress = config.egress.egress_scope(&config.models);
    // Hosts that a person trusts count as listed.
    egress.trusted.extend(trusted_hosts(&store)?);
    let since = days_ago(days);
    let answers = past_answers(&store)?;
    let asks = store.blocking().latest_asks(MAX_ASKS)?;
    let is_recent = |card: &Card| card.asked_at >= since;
    let recent = asks.iter().filter(|ask| is_recent(&ask.card)).count();
    // A no counts however old it is.
    let asked: Vec<EarlierQuestion<'_>> = asks
        .iter()
        .map(|ask| EarlierQuestion {
            card: &ask.card,
            prepared: &ask.prepared,
            said: answer_to(ask, &answers),
        })
        // A denial of any age forbids the suggestion.
        .filter(|one| one.said == PersonAnswer::No || is_recent(one.card))
        .collect();
    let in_force = CurrentSettings { rules: &rules, egress: &egress, strict: config.general.strict };
    let found = writ_policy::suggest::suggest_settings(&asked, &in_force);
    let shown: Vec<Value> = found.iter().map(|one| suggestion_value(one, days)).collect();
    let result = json!({ "asked": recent, "suggestions": shown });
    context.out.print_either(&result, |_| {
        let mut lines = vec![format!("asked {recent} times in {days} days")];
        if asks.len() >= MAX_ASKS {
            lines.push(format!(
                "only the latest {MAX_ASKS} questions, and what you denied of them, are looked at"
            ));
        }
        if found.is_empty() {
            lines.push(format!(
                "nothing was approved {MIN_APPROVED} times and never denied, and would be asked about less: \
                 nothing to suggest"
            ));
        }
        lines.extend(found.iter().flat_map(|one| describe_effect(one, days)).map(|line| escape_line(&line)));
        lines
    })
}

/// The time `days` days ago.
fn days_ago(days: u32) -> Timestamp {
    let span = i64::try_from(DAY.saturating_mul(days).as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(clock::now().as_millis().saturating_sub(span))
}

/// The hosts that answers have made trusted ones. Whether each signature still counts is not looked at: what does not is
/// asked about, and here it is only not suggested.
fn trusted_hosts(store: &Store) -> Result<Vec<HostPattern>, Failure> {
    let rows = store.blocking().trusted_host_answers()?;
    let host = |token: &Value| token.pointer("/claims/host")?.as_str()?.parse::<HostPattern>().ok();
    Ok(rows.iter().filter_map(|(_, token)| host(token)).collect())
}

/// Reads the answers in the ledger, of any time. A no overrides every earlier answer: an approval may be
/// taken back.
///
/// The table of asks alone holds their subjects: the ledger has the action and the hash, not the values that
/// these depend on.
fn past_answers(store: &Store) -> Result<BTreeMap<AskId, Decision>, Failure> {
    let query = LedgerQuery { event: Some("answered".to_owned()), limit: MAX_ASKS, ..LedgerQuery::default() };
    let mut answers = BTreeMap::new();
    for fact in
        store.blocking().ledger_search(&query)?.iter().filter_map(|row| row.entry()).map(|entry| entry.fact)
    {
        if let Fact::Answered { ask, decision, .. } = fact {
            let known = answers.entry(ask).or_insert(decision);
            // A denial after an approval is the later decision.
            if decision == Decision::Deny {
                *known = decision;
            }
        }
    }
    Ok(answers)
}

/// Returns the answer to an ask: by the ledger, and by the state of the ask where the answer was erased, or
/// where one of several people has given one.
fn answer_to(ask: &StoredAsk, answers: &BTreeMap<AskId, Decision>) -> PersonAnswer {
    let answer = answers.get(&ask.card.ask_id);
    match (answer, ask.state) {
        (Some(Decision::Deny), _) | (_, AskState::Denied) => PersonAnswer::No,
        (_, AskState::Approved | AskState::Used) => PersonAnswer::Yes,
        // With several approvers, one approval decides nothing.
        (Some(Decision::Approve), _) if ask.card.approvers == 1 => PersonAnswer::Yes,
        (_, AskState::Open | AskState::Expired) => PersonAnswer::Nothing,
    }
}

fn suggestion_value(one: &Suggestion, days: u32) -> Value {
    let mut value =
        json!({ "asked": one.asked, "would_ask": one.would_ask, "say": describe_suggestion(one, days) });
    let kind = match &one.advice {
        Advice::Allow { host } => json!({ "kind": "allow", "host": host }),
        Advice::Stand { covers, uses, total, unanswered } => json!({
            "kind": "stand",
            "covers": covers,
            "uses": uses,
            "unanswered": unanswered.map(|most| most.to_string()),
            "total": total.as_ref().map(|(argument, sum)| json!({ "argument": argument, "sum": sum.to_string() })),
        }),
    };
    if let (Some(value), Value::Object(kind)) = (value.as_object_mut(), kind) {
        value.extend(kind);
    }
    value
}

/// Words a suggestion: for as many days as were looked at, and as many uses as were approved, within the
/// limits of standing approvals.
fn describe_suggestion(one: &Suggestion, days: u32) -> String {
    match &one.advice {
        Advice::Allow { host } => format!("[egress] allowed = [\"{host}\"]"),
        Advice::Stand { uses, total, .. } => {
            let total = total.as_ref().map(|(argument, sum)| format!(" --total {argument}={sum}"));
            let days = u64::from(days).clamp(1, MAX_TTL.as_secs() / DAY.as_secs());
            let total = total.unwrap_or_default();
            format!("writ approvals approve ASK --standing --uses {uses} --days {days}{total}")
        }
    }
}

fn describe_effect(one: &Suggestion, days: u32) -> Vec<String> {
    let (what, unanswered) = match &one.advice {
        Advice::Allow { host } => (format!("reaching {host}"), None),
        Advice::Stand { covers, total, unanswered, .. } => {
            (covers.clone(), total.as_ref().map(|(argument, _)| argument).zip(*unanswered))
        }
    };
    let mut lines = vec![format!(
        "{what}: would have asked {} times instead of {}; lets through none that you denied",
        one.would_ask, one.asked
    )];
    lines.extend(unanswered.map(|(argument, most)| {
        format!("  you did not answer one with {argument}={most}, which is more than you have approved")
    }));
    lines.push(format!("  {}", describe_suggestion(one, days)));
    lines
}
