//! `writ policy suggest`: what could be said once.

use std::time::Duration;

use serde_json::{Value, json};
use writ_policy::show::escape_line;
use writ_policy::suggest::{Advice, Asked, MIN_APPROVED, Said, Suggestion};
use writ_store::approvals::{Ask, AskState};

use crate::clock;
use crate::context::Context;
use crate::failure::Failure;
use crate::ledger::open_to_read;

/// The most questions that are looked through.
const MAX_ASKS: usize = 10_000;

/// Looks through what was asked in the last `days` days.
///
/// # Errors
///
/// If the home or its database cannot be read.
pub(super) fn suggest(context: &Context, days: u32) -> Result<(), Failure> {
    let config = context.ready()?;
    let span = Duration::from_secs(u64::from(days).saturating_mul(24 * 60 * 60));
    let asks = open_to_read(context, &config)?.latest_asks(MAX_ASKS)?;
    let now = clock::now();
    let recent: Vec<&Ask> = asks.iter().filter(|ask| ask.card.asked_at.plus(span) >= now).collect();
    let asked: Vec<Asked<'_>> = recent
        .iter()
        .map(|ask| Asked { card: &ask.card, prepared: &ask.prepared, said: said(ask.state) })
        .collect();
    let found = writ_policy::suggest::suggest(&asked);
    let result = json!({ "asked": recent.len(), "suggestions": found.iter().map(shown).collect::<Vec<_>>() });
    context.out.either(&result, |_| {
        let mut lines = vec![format!("asked {} times in {days} days", recent.len())];
        if found.is_empty() {
            lines.push(format!(
                "nothing was approved {MIN_APPROVED} times and never denied: nothing to suggest"
            ));
        }
        lines.extend(found.iter().flat_map(told).map(|line| escape_line(&line)));
        lines
    })
}

const fn said(state: AskState) -> Said {
    match state {
        AskState::Approved | AskState::Used => Said::Yes,
        AskState::Denied => Said::No,
        AskState::Open | AskState::Expired => Said::Nothing,
    }
}

fn shown(one: &Suggestion) -> Value {
    let mut value = json!({ "asked": one.asked, "would_ask": one.would_ask, "say": say(one) });
    let kind = match &one.advice {
        Advice::Allow { host } => json!({ "kind": "allow", "host": host }),
        Advice::Stand { covers, total } => json!({
            "kind": "stand",
            "covers": covers,
            "total": total.as_ref().map(|(argument, sum)| json!({ "argument": argument, "sum": sum.to_string() })),
        }),
    };
    if let (Some(value), Value::Object(kind)) = (value.as_object_mut(), kind) {
        value.extend(kind);
    }
    value
}

/// How it is said.
fn say(one: &Suggestion) -> String {
    match &one.advice {
        Advice::Allow { host } => format!("[egress] allowed = [\"{host}\"]"),
        Advice::Stand { total, .. } => {
            let total = total.as_ref().map(|(argument, sum)| format!(" --total {argument}={sum}"));
            let uses = one.asked;
            format!("writ approvals approve ASK --standing --uses {uses}{}", total.unwrap_or_default())
        }
    }
}

fn told(one: &Suggestion) -> [String; 2] {
    let what = match &one.advice {
        Advice::Allow { host } => format!("reaching {host}"),
        Advice::Stand { covers, .. } => covers.clone(),
    };
    [
        format!(
            "{what}: would have asked {} times instead of {}; lets through none that you denied",
            one.would_ask, one.asked
        ),
        format!("  {}", say(one)),
    ]
}
