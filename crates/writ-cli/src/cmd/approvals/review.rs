//! `writ approvals review`: what waits, in groups, and a yes to what of one is marked by nothing.

use serde::{Deserialize, Serialize};
use serde_json::json;
use writ_policy::show::escape_line;
use writ_types::entry::Risk;
use writ_types::error::Exit;
use writ_types::id::AskId;

use crate::approve::{self, Given};
use crate::client::Client;
use crate::cmd::chat::ended;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;

/// Asks that are alike.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Group {
    likeness: String,
    asks: Vec<Member>,
}

/// An ask of a group.
#[derive(Debug, Serialize, Deserialize)]
struct Member {
    ask_id: AskId,
    intent: Option<String>,
    risk: Option<Risk>,
    /// What is unusual about it.
    anomalies: Vec<String>,
    /// Why it is answered by itself in any case.
    alone: Option<String>,
    /// Whether a yes to its group is one to it.
    together: bool,
}

/// What waits, in groups.
///
/// # Errors
///
/// If the engine does not say.
pub(super) async fn groups(client: &mut Client) -> Result<Vec<Group>, Failure> {
    let mut answer = client.call("approvals.review", json!({})).await?;
    let groups = answer.get_mut("groups").map(serde_json::Value::take).unwrap_or_default();
    serde_json::from_value(groups).map_err(|error| Failure::bug("reading the groups", error))
}

/// The groups as lines for people.
pub(super) fn lines(groups: &[Group]) -> Vec<String> {
    if groups.is_empty() {
        return vec!["nothing is asked".to_owned()];
    }
    let mut lines = Vec::new();
    for (n, group) in (1_usize..).zip(groups) {
        lines.push(format!("{n}. {}: {}", escape_line(&group.likeness), group.asks.len()));
        for ask in &group.asks {
            let intent = escape_line(ask.intent.as_deref().unwrap_or_default());
            lines.push(format!("   {}  {intent}", ask.ask_id));
            lines.extend(ask.anomalies.iter().map(|why| format!("      unusual: {}", escape_line(why))));
            lines.extend(ask.alone.iter().map(|why| format!("      by itself: {}", escape_line(why))));
        }
    }
    lines.push("what of a group is marked by nothing: writ approvals review --approve GROUP".to_owned());
    lines
}

/// Shows what of a group is marked by nothing, asks once, and signs each by itself.
///
/// # Errors
///
/// If there is no such group or nothing of it can be approved together, nobody says yes, or an answer is refused: those
/// before it stand.
pub(super) async fn approve(
    context: &Context,
    config: &Config,
    client: &mut Client,
    (number, yes): (usize, bool),
    reason: &str,
) -> Result<(), Failure> {
    let groups = groups(client).await?;
    let none = |text: String| {
        Failure::new(Exit::Usage, "approvals.no_group", text, "`writ approvals review` lists the groups")
    };
    let group = number.checked_sub(1).and_then(|at| groups.get(at));
    let group = group.ok_or_else(|| none(format!("there is no group {number}")))?;
    let mut cards = Vec::new();
    for ask in group.asks.iter().filter(|ask| ask.together) {
        let card = approve::card(client, &ask.ask_id).await?;
        for line in approve::lines(&card) {
            if context.out.json { context.out.remark(line) } else { context.out.line(line)? }
        }
        cards.push(card);
    }
    let Some(first) = cards.first() else {
        return Err(none(format!("each ask of group {number} is answered by itself")));
    };
    if !yes {
        approve::confirm(&first.ask_id, &format!("Approve exactly these {}?", cards.len()))?;
    }
    let mut done = Vec::new();
    let mut worst = Exit::Done;
    for card in &cards {
        let token = approve::sign(context, config, client, (card, &Given::Once)).await?;
        let approving =
            approve::answer(client, &card.ask_id, writ_types::entry::Decision::Approve, Some(&token), reason);
        let answered = approving.await?;
        if worst == Exit::Done {
            worst = answered.exit;
        }
        done.push(json!({ "ask_id": card.ask_id, "state": answered.state, "text": answered.text }));
    }
    context.out.either(&json!({ "approved": done }), |_| {
        let line = |card: &writ_types::frame::Card| format!("{} is approved", card.ask_id);
        cards.iter().map(line).collect()
    })?;
    ended(worst)
}
