//! `writ approvals review`: the open asks in groups, and the approval of the unmarked asks of one group.

use serde_json::{Value, json};
use writ_inspect::show::escape_line;
use writ_runtime::methods::ApprovalsReview;
use writ_types::api::NoParams;
use writ_types::api::approval::{AskGroup, ReviewBand};
use writ_types::entry::Decision;
use writ_types::error::Exit;
use writ_types::frame::Card;
use writ_types::id::AskId;

use crate::approve::{self, AnswerResult, ApprovalChoice};
use crate::client::{EngineClient, is_unanswered};
use crate::cmd::chat::end_with;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;

/// Returns the open asks in groups.
///
/// # Errors
///
/// If the engine does not answer.
pub(super) async fn load_groups(client: &mut EngineClient) -> Result<Vec<AskGroup>, Failure> {
    Ok(client.ask::<ApprovalsReview>(&NoParams {}).await?.groups)
}

/// The groups as lines for people.
pub(super) fn describe_groups(groups: &[AskGroup]) -> Vec<String> {
    if groups.is_empty() {
        return vec!["nothing is asked".to_owned()];
    }
    let mut lines = Vec::new();
    for (n, group) in (1_usize..).zip(groups) {
        lines.push(format!("{n}. {}: {}", escape_line(&group.likeness), group.asks.len()));
        for ask in &group.asks {
            let intent = escape_line(ask.intent.as_deref().unwrap_or_default());
            lines.push(format!("   {}  {}  {intent}", ask.ask_id, band_word(ask.band)));
            lines.extend(ask.anomalies.iter().map(|why| format!("      unusual: {}", escape_line(why))));
            lines.extend(ask.alone.iter().map(|why| format!("      by itself: {}", escape_line(why))));
        }
    }
    lines.push("what of a group is marked by nothing: writ approvals review --approve GROUP".to_owned());
    lines
}

/// Returns the word for how far earlier answers speak for an ask, padded to one width.
const fn band_word(band: ReviewBand) -> &'static str {
    match band {
        ReviewBand::High => "as always",
        ReviewBand::Medium => "known    ",
        ReviewBand::Low => "look     ",
        ReviewBand::Novel => "new      ",
    }
}

/// Shows the unmarked asks of a group, asks once, and signs each of them separately.
///
/// # Errors
///
/// If there is no such group, none of its asks can be approved together, the person does not agree, or an approval is refused or
/// fails: the first error, after all results were printed.
pub(super) async fn approve_group(
    context: &Context,
    config: &Config,
    client: &mut EngineClient,
    (number, yes): (usize, bool),
    reason: &str,
) -> Result<(), Failure> {
    let groups = load_groups(client).await?;
    let none = |text: String| {
        Failure::new(Exit::Usage, "approvals.no_group", text, "`writ approvals review` lists the groups")
    };
    // Groups are counted from one.
    let group = number.checked_sub(1).and_then(|at| groups.get(at));
    let group = group.ok_or_else(|| none(format!("there is no group {number}")))?;
    let mut cards = Vec::new();
    for ask in group.asks.iter().filter(|ask| ask.together) {
        let card = approve::load_card(client, &ask.ask_id).await?;
        for line in approve::describe_card(&card) {
            if context.out.json { context.out.print_remark(line) } else { context.out.print_line(line)? }
        }
        cards.push(card);
    }
    let Some(first) = cards.first() else {
        return Err(none(format!("each ask of group {number} must be answered separately")));
    };
    if !yes {
        approve::confirm_ask(
            &context.host.streams,
            &first.ask_id,
            &format!("Approve exactly these {}?", cards.len()),
        )?;
    }
    let ends = approve_each(&cards, async |card: &Card| {
        let token = approve::sign_approval(context, config, client, (card, &ApprovalChoice::Once)).await?;
        Ok(approve::send_answer(client, &card.ask_id, Decision::Approve, Some(&token), reason).await)
    });
    let ends = ends.await;
    context.out.print_either(&as_json(&ends), |_| as_lines(&ends))?;
    first_failure(ends)
}

/// The result of approving one of several asks.
#[derive(Debug)]
enum AnswerEnd {
    /// The approval was accepted, with the outcome of the action.
    Approved(AnswerResult),
    /// The approval was refused.
    Refused(Failure),
    /// The approval was sent, but the engine has not reported the outcome.
    Unknown(Failure),
    /// The approval was not signed, because of an earlier failure.
    NotTried,
}

/// Approves each ask separately. After a refusal the others are still sent, because the person has approved them, too. If nothing
/// can be signed or the engine does not answer, the rest is not tried.
async fn approve_each(
    cards: &[Card],
    mut approve: impl AsyncFnMut(&Card) -> Result<Result<AnswerResult, Failure>, Failure>,
) -> Vec<(AskId, AnswerEnd)> {
    let mut ends = Vec::new();
    let mut stopped = false;
    for card in cards {
        let end = if stopped {
            AnswerEnd::NotTried
        } else {
            match approve(card).await {
                Ok(Ok(answered)) => AnswerEnd::Approved(answered),
                // An unanswered request may have been performed: nothing further is sent.
                Ok(Err(failure)) if is_unanswered(&failure) => {
                    stopped = true;
                    AnswerEnd::Unknown(failure)
                }
                Ok(Err(refused)) => AnswerEnd::Refused(refused),
                // A key that cannot sign now will not sign the next one either.
                Err(unsigned) => {
                    stopped = true;
                    AnswerEnd::Refused(unsigned)
                }
            }
        };
        ends.push((card.ask_id.clone(), end));
    }
    ends
}

fn as_json(ends: &[(AskId, AnswerEnd)]) -> Value {
    let (mut approved, mut refused, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for (ask, end) in ends {
        match end {
            AnswerEnd::Approved(answered) => approved.push(json!({
                "ask_id": ask, "state": answered.state, "reason": answered.reason, "text": answered.text,
                "exit": answered.exit.code(),
            })),
            AnswerEnd::Refused(failure) => {
                refused.push(json!({ "ask_id": ask, "error": failure.as_json(), "tried": true }));
            }
            AnswerEnd::Unknown(failure) => unknown.push(json!({ "ask_id": ask, "error": failure.as_json() })),
            AnswerEnd::NotTried => refused.push(json!({ "ask_id": ask, "tried": false })),
        }
    }
    json!({ "approved": approved, "not_approved": refused, "unknown": unknown })
}

fn as_lines(ends: &[(AskId, AnswerEnd)]) -> Vec<String> {
    let line = |(ask, end): &(AskId, AnswerEnd)| match end {
        AnswerEnd::Approved(answered) if answered.reason.is_empty() => {
            format!("{ask} was approved: {}", answered.state)
        }
        AnswerEnd::Approved(AnswerResult { state, reason, .. }) => {
            format!("{ask} was approved: {state}: {}", escape_line(reason))
        }
        AnswerEnd::Refused(failure) => {
            format!("{ask} is not approved: {}", escape_line(&failure.to_string()))
        }
        AnswerEnd::Unknown(failure) => {
            format!("{ask} was sent, and its outcome is unknown: {}", escape_line(&failure.to_string()))
        }
        AnswerEnd::NotTried => format!("{ask} is not approved: it was not tried any more"),
    };
    ends.iter().map(line).collect()
}

/// Ends with the first failure.
fn first_failure(ends: Vec<(AskId, AnswerEnd)>) -> Result<(), Failure> {
    // The first failure, in the order of the asks.
    for (_, end) in ends {
        match end {
            AnswerEnd::Approved(answered) => end_with(answered.exit)?,
            AnswerEnd::Refused(failure) | AnswerEnd::Unknown(failure) => return Err(failure),
            AnswerEnd::NotTried => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approve::fixture;

    fn cards() -> Vec<Card> {
        let card = |id: &str| Card { ask_id: id.parse().expect("an id"), ..fixture::card("") };
        ["AAAAAAAA", "BBBBBBBB", "CCCCCCCC", "DDDDDDDD"].map(card).to_vec()
    }

    /// Approves the cards with what comes of each, in order.
    fn ends(mut come: Vec<Result<Result<Exit, Failure>, Failure>>) -> Vec<(AskId, AnswerEnd)> {
        come.reverse();
        futures::executor::block_on(approve_each(&cards(), async |_: &Card| {
            let answered = |exit| {
                let (state, reason) =
                    if exit == Exit::Done { ("applied", "") } else { ("failed", "changed since") };
                AnswerResult { state: state.into(), reason: reason.into(), text: "said".into(), exit }
            };
            come.pop().expect("no further one is tried").map(|answer| answer.map(answered))
        }))
    }

    fn failure(exit: Exit, text: &str) -> Failure {
        Failure::new(exit, "a.b", text, "do this")
    }

    #[test]
    fn what_was_approved_and_what_not_is_told_and_the_first_error_is_how_it_ends() {
        let come = vec![
            Ok(Ok(Exit::Done)),
            Ok(Err(failure(Exit::Denied, "it was answered meanwhile"))),
            Ok(Ok(Exit::Verification)),
            Ok(Ok(Exit::Done)),
        ];
        let ends = ends(come);
        let lines = [
            "AAAAAAAA was approved: applied",
            "BBBBBBBB is not approved: it was answered meanwhile",
            "CCCCCCCC was approved: failed: changed since",
            "DDDDDDDD was approved: applied",
        ];
        assert_eq!(as_lines(&ends), lines);
        let told = as_json(&ends);
        assert_eq!(told["approved"].as_array().map(Vec::len), Some(3));
        assert_eq!(told.pointer("/not_approved/0/ask_id"), Some(&json!("BBBBBBBB")));
        assert_eq!(told.pointer("/not_approved/0/error/code"), Some(&json!("a.b")));
        assert_eq!(first_failure(ends).map_err(|failure| failure.code()), Err(Exit::Denied.code()));
    }

    #[test]
    fn an_answer_that_was_sent_and_not_answered_is_told_as_that_and_ends_it() {
        let silent = Failure::new(Exit::Blocked, "client.silent", "the engine has not answered", "wake it");
        let ends = ends(vec![Ok(Ok(Exit::Done)), Ok(Err(silent))]);
        let lines = as_lines(&ends);
        assert_eq!(lines[1], "BBBBBBBB was sent, and its outcome is unknown: the engine has not answered");
        assert_eq!(lines[2], "CCCCCCCC is not approved: it was not tried any more");
        let told = as_json(&ends);
        assert_eq!(told.pointer("/unknown/0/ask_id"), Some(&json!("BBBBBBBB")));
        assert_eq!(told["not_approved"].as_array().map(Vec::len), Some(2));
        assert_eq!(first_failure(ends).map_err(|failure| failure.code()), Err(Exit::Blocked.code()));
    }

    #[test]
    fn where_nothing_can_be_signed_nothing_further_is_tried() {
        let ends = ends(vec![Ok(Ok(Exit::Done)), Err(failure(Exit::Blocked, "the keyring is locked"))]);
        let lines = [
            "AAAAAAAA was approved: applied",
            "BBBBBBBB is not approved: the keyring is locked",
            "CCCCCCCC is not approved: it was not tried any more",
            "DDDDDDDD is not approved: it was not tried any more",
        ];
        assert_eq!(as_lines(&ends), lines);
        assert_eq!(as_json(&ends).pointer("/not_approved/1/tried"), Some(&json!(false)));
        assert_eq!(first_failure(ends).map_err(|failure| failure.code()), Err(Exit::Blocked.code()));
    }
}
