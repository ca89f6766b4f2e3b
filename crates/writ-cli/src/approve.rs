//! Answering an ask: the complete text is shown, and exactly that is signed.

use std::time::Duration;

use serde_json::Value;
use writ_inspect::reach;
use writ_inspect::show::{escape_text, is_plain};
use writ_policy::approval::{ApprovalClaims, ApprovalToken, Approver, ScopeError, TaskTerms};
use writ_policy::pattern::standing::{self, StandingLimits};
use writ_policy::taint;
use writ_policy::{answer, pattern};
use writ_runtime::methods::{ApprovalsShow, Status};
use writ_types::api::NoParams;
use writ_types::api::approval::AskName;
use writ_types::digest::Digest;
use writ_types::entry::{ApprovalScope, Decision};
use writ_types::error::Exit;
use writ_types::frame::{Card, ClientFrame, ServerFrame};
use writ_types::id::{AskId, InstallationId};
use writ_types::unit::Timestamp;

use crate::client::{EngineClient, refusal_failure};
use crate::clock;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::host::Streams;
use crate::keyring::open_approver_key;
use crate::terminal;

/// The result of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AnswerResult {
    /// `applied`, `simulated`, `failed` or `unknown` after a yes, `denied` after a no, `open` while others must answer, too.
    pub(crate) state: String,
    /// The reason that it was not done, in a few words; empty if it was.
    pub(crate) reason: String,
    /// In words.
    pub(crate) text: String,
    /// The exit code of the command.
    pub(crate) exit: Exit,
}

/// The scope of a person's approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApprovalChoice {
    /// To exactly this.
    Once,
    /// To this and to similar requests, for the task.
    Task,
    /// To exactly this, and what it names is the owner's from then on.
    Values,
    /// To exactly this, and the host that it names is trusted from then on.
    Host,
    /// To requests with the same pattern, within limits, in any session of the agent.
    Standing(StandingLimits),
}

impl ApprovalChoice {
    const fn scope(&self) -> ApprovalScope {
        match self {
            Self::Once => ApprovalScope::Once,
            Self::Task => ApprovalScope::Task,
            Self::Values => ApprovalScope::Values,
            Self::Host => ApprovalScope::Host,
            Self::Standing(_) => ApprovalScope::Standing,
        }
    }

    /// Returns the question that the person confirms.
    const fn question(&self) -> &'static str {
        match self {
            Self::Once => "Approve exactly this?",
            Self::Task => "Approve this, and similar requests later, unseen?",
            Self::Values => "Approve this, and these values are yours?",
            Self::Host => "Approve and trust this host?",
            Self::Standing(_) => "Allow this exact request until it ends?",
        }
    }
}

/// Fetches a card and checks that it is what it says.
///
/// # Errors
///
/// If there is no such ask, or its text is not the one that was hashed.
pub(crate) async fn load_card(client: &mut EngineClient, ask: &AskId) -> Result<Card, Failure> {
    let card = client.ask::<ApprovalsShow>(&AskName { ask: ask.clone() }).await?;
    check_complete(&card)?;
    Ok(card)
}

/// Checks that the signed text is the shown text, and that the shown text is complete.
pub(crate) fn check_complete(card: &Card) -> Result<(), Failure> {
    let unsafe_text = |text: &str| {
        Failure::new(
            Exit::Denied,
            "approval.shown",
            text,
            "do not approve it; `writ audit verify` may tell more",
        )
    };
    if Digest::of_bytes(card.shown.as_bytes()) != card.shown_hash {
        return Err(unsafe_text("the text of this ask does not fit its hash"));
    }
    if !is_plain(&card.shown) {
        return Err(unsafe_text("the text of this ask holds characters that could deceive"));
    }
    Ok(())
}

/// A card as lines for people: everything that they must know, nothing cut.
pub(crate) fn describe_card(card: &Card) -> Vec<String> {
    let mut lines = vec![
        format!("ask {} ({}, risk {:?}, until {})", card.ask_id, card.state, card.risk, card.expires_at)
            // Lower case for the words of the enum, which its debug form writes in capitals.
            .to_lowercase(),
        format!("why: {}", escape_text(&card.rationale)),
    ];
    if let Some(first) = lines.first_mut() {
        // Ids tell upper from lower case.
        *first = first.replacen(&card.ask_id.to_string().to_lowercase(), card.ask_id.as_str(), 1);
    }
    if card.approvers > 1 {
        let by = card.approved_by.iter().map(|by| escape_text(by)).collect::<Vec<_>>().join(", ");
        lines.push(format!("{} of {} people have approved: {by}", card.approved_by.len(), card.approvers));
    }
    lines.extend(card.shown.lines().map(str::to_owned));
    lines.extend(card.choices.iter().filter_map(|choice| {
        let label = answer::answer_label(choice.decision, choice.scope, card);
        // The words describe the signature's scope, not the card's text.
        let (flag, consequence) = match (choice.decision, choice.scope) {
            (Decision::Deny, _) | (Decision::Approve, ApprovalScope::Once) => {
                ("", escape_text(&choice.consequence))
            }
            (Decision::Approve, ApprovalScope::Task) => {
                (" (--task)", pattern::describe_consequence(card.task.as_ref()?))
            }
            (Decision::Approve, ApprovalScope::Values) if card.values.is_empty() => return None,
            (Decision::Approve, ApprovalScope::Values) => {
                (" (--values)", taint::describe_endorsement(&card.values))
            }
            (Decision::Approve, ApprovalScope::Host) => {
                (" (--host)", reach::describe_trust(card.host.as_deref()?))
            }
            (Decision::Approve, ApprovalScope::Standing) => {
                let offer = card.standing.as_ref()?;
                (" (--standing)", standing::describe_consequence(offer, &StandingLimits::default()))
            }
        };
        Some(format!("{label}{flag}: {consequence}"))
    }));
    lines
}

/// The installation and the epoch in force, which everything that is signed names.
///
/// # Errors
///
/// If the engine does not say.
pub(crate) async fn load_installation(client: &mut EngineClient) -> Result<(InstallationId, u64), Failure> {
    here_and_now(client).await.map(|(here, _)| here)
    // A missing part of the status is a bug of the engine, not of the person.
}

/// The same, and the time from which what is signed now counts: a clock that was set back is behind the engine's.
///
/// # Errors
///
/// If the engine does not say.
pub(crate) async fn here_and_now(
    client: &mut EngineClient,
) -> Result<((InstallationId, u64), Timestamp), Failure> {
    let status = client.ask::<Status>(&NoParams {}).await?;
    // Signed with the engine's time: a clock that lags would make the approval old at once.
    let behind = Duration::from_secs(status.clock_behind_secs);
    Ok(((status.installation, status.epoch), clock::now().plus_duration(behind)))
}

/// Returns the lag of the local clock behind the engine's time, by the engine's status.
pub(crate) fn clock_behind(status: &Value) -> Duration {
    Duration::from_secs(status.get("clock_behind_secs").and_then(Value::as_u64).unwrap_or_default())
}

/// Signs an approval of a card with the approver key, which only this process opens.
///
/// # Errors
///
/// If the key cannot be opened, or the card offers no such scope.
pub(crate) async fn sign_approval(
    context: &Context,
    config: &Config,
    client: &mut EngineClient,
    (card, given): (&Card, &ApprovalChoice),
) -> Result<ApprovalToken, Failure> {
    // Checked again right before signing: the card may come from another path than the one above.
    check_complete(card)?;
    let ((installation, epoch), now) = here_and_now(client).await?;
    let limits =
        if let ApprovalChoice::Standing(limits) = given { limits.clone() } else { StandingLimits::default() };
    let signed = TaskTerms::terms_to_sign(card, given.scope(), &limits, now);
    let (task, expires_at) = signed.map_err(|error| match error {
        ScopeError::OnceOnly(_) => Failure::new(
            Exit::Usage,
            "ask.once_only",
            error.to_string(),
            "approve it without --task or --standing",
        ),
        ScopeError::NoValues(_) => {
            Failure::new(Exit::Usage, "ask.no_values", error.to_string(), "approve it without --values")
        }
        ScopeError::NoHost(_) => {
            Failure::new(Exit::Usage, "ask.no_host", error.to_string(), "approve it without --host")
        }
        ScopeError::NoTotal(_) | ScopeError::Limits(_) => Failure::new(
            Exit::Usage,
            "ask.limits",
            error.to_string(),
            "`writ approvals show ASK` says what is offered",
        ),
        ScopeError::NotCanonical(error) => Failure::internal_error("signing the approval", error),
    })?;
    // The key is opened last, after everything that can fail without it.
    let key = open_approver_key(context, config)?.signing_key()?;
    let claims = ApprovalClaims {
        installation,
        epoch,
        ask: card.ask_id.clone(),
        decision: Decision::Approve,
        prepared: card.prepared,
        shown: card.shown_hash,
        // A nonce, so that each signature can be used once.
        nonce: hex::encode(clock::random_bytes()),
        issued_at: now,
        expires_at,
        approver: Approver::Key { public: hex::encode(key.verifying_key().as_bytes()) },
        task,
        values: given.scope() == ApprovalScope::Values,
        host: card.host.clone().filter(|_| given.scope() == ApprovalScope::Host),
    };
    ApprovalToken::sign_claims(claims, &key)
        .map_err(|error| Failure::internal_error("signing the approval", error))
}

/// Returns the scope of a signed answer.
pub(crate) fn scope_of(token: Option<&ApprovalToken>) -> ApprovalScope {
    token.map_or(ApprovalScope::Once, |token| token.claims.answer_scope())
}

/// Sends an answer and waits for what comes of it.
///
/// # Errors
///
/// What the engine refuses.
pub(crate) async fn send_answer(
    client: &mut EngineClient,
    ask: &AskId,
    decision: Decision,
    token: Option<&ApprovalToken>,
    reason: &str,
) -> Result<AnswerResult, Failure> {
    let scope = scope_of(token);
    let signature = token
        .map(serde_json::to_value)
        .transpose()
        .map_err(|error| Failure::internal_error("writing the approval", error))?;
    let frame = ClientFrame::ApprovalResponse {
        ask_id: ask.clone(),
        decision,
        scope,
        signature,
        shown_hash: token.map(|token| token.claims.shown),
        reason: reason.to_owned(),
    };
    client.send_frame(&frame).await?;
    loop {
        let frame = client.receive_frame().await?;
        if let ServerFrame::Error { exit, code, text, hint, .. } = frame.frame {
            return Err(refusal_failure(exit, &code, text, hint));
        }
        // Frames of the session have a number; the answer to this client has none.
        // Other clients may answer the same ask meanwhile.
        if let ServerFrame::ApprovalResolved { ask_id, state, reason, text, exit, .. } = frame.frame
            && ask_id == *ask
            && frame.seq == 0
        {
            return Ok(AnswerResult { state, reason, text, exit });
        }
    }
}

/// Asks the person at the terminal for a yes.
///
/// # Errors
///
/// If no person can be asked, or the answer is no.
pub(crate) fn confirm_ask(streams: &Streams, ask: &AskId, question: &str) -> Result<(), Failure> {
    // Without a terminal the ask stays open, and the exit code shows it.
    if !streams.is_interactive() {
        return Err(Failure::new(
            Exit::Waiting,
            "approval.waiting",
            format!("ask {ask} waits for your answer"),
            format!("writ approvals approve {ask}"),
        ));
    }
    if !terminal::confirm_yes(streams, question)? {
        return Err(Failure::new(
            Exit::Denied,
            "approval.not_given",
            "not approved; the ask stays open",
            format!("writ approvals deny {ask} ends it"),
        ));
    }
    Ok(())
}

/// Shows an ask, asks the person unless `--yes` was given, signs and sends.
///
/// # Errors
///
/// If the person refuses (4), no person can be asked (5), or the engine refuses.
pub(crate) async fn approve_ask(
    context: &Context,
    config: &Config,
    client: &mut EngineClient,
    (card, given): (&Card, &ApprovalChoice),
    yes: bool,
    reason: &str,
) -> Result<AnswerResult, Failure> {
    check_complete(card)?;
    // The text is for the person; with --json the result alone goes to standard output.
    for line in describe_card(card) {
        if context.out.json { context.out.print_remark(line) } else { context.out.print_line(line)? }
    }
    if let (ApprovalChoice::Standing(limits), Some(offer)) = (given, &card.standing) {
        // In the words of what is signed: the card's have the usual limits.
        let line = format!("a standing approval: {}", standing::describe_consequence(offer, limits));
        if context.out.json { context.out.print_remark(line) } else { context.out.print_line(line)? }
    }
    if !yes {
        confirm_ask(&context.host.streams, &card.ask_id, given.question())?;
    }
    let token = sign_approval(context, config, client, (card, given)).await?;
    send_answer(client, &card.ask_id, Decision::Approve, Some(&token), reason).await
}

/// Cards for tests.
#[cfg(test)]
pub(crate) mod fixture {
    use writ_types::digest::Digest;
    use writ_types::entry::{ApprovalScope, Decision, Risk};
    use writ_types::frame::{Card, Choice};
    use writ_types::unit::Timestamp;

    pub(crate) fn card(shown: &str) -> Card {
        Card {
            ask_id: "Ab3dEf9Z".parse().expect("an id"),
            session: None,
            action: "write_file".into(),
            intent: "apply".into(),
            risk: Risk::Medium,
            rationale: "it leaves the\u{1b}[2J sandbox".into(),
            choices: vec![Choice {
                decision: Decision::Deny,
                scope: ApprovalScope::Once,
                consequence: "nothing is written".into(),
            }],
            shown: shown.into(),
            prepared: Digest::of_bytes(b"prepared"),
            shown_hash: Digest::of_bytes(shown.as_bytes()),
            asked_at: Timestamp::from_millis(0),
            expires_at: Timestamp::from_millis(1_000),
            state: "open".into(),
            task: None,
            standing: None,
            values: Vec::new(),
            host: None,
            approvers: 1,
            approved_by: Vec::new(),
            undo_secs: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::card;
    use super::*;

    #[test]
    fn a_text_that_does_not_fit_its_hash_or_could_deceive_is_not_signed() {
        assert!(check_complete(&card("action write_file\n")).is_ok());
        let swapped = Card { shown: "harmless".into(), ..card("rm -rf /") };
        assert_eq!(check_complete(&swapped).map_err(|f| f.code()), Err(Exit::Denied.code()));
        assert!(
            check_complete(&card("+let mark = \"\\u{202e}\";\n")).is_ok(),
            "an escape that can be seen is no danger"
        );
        for hostile in ["a\u{202e}b", "\u{1b}[2J", "a\u{200b}b"] {
            assert_eq!(
                check_complete(&card(hostile)).map_err(|f| f.code()),
                Err(Exit::Denied.code()),
                "{hostile:?}"
            );
        }
    }

    /// The question and the label of the answer name the same requests.
    #[test]
    fn the_question_about_a_task_names_similar_requests_as_its_label_does() {
        let label = answer::answer_label(
            Decision::Approve,
            ApprovalScope::Task,
            &Card { action: "run_command".into(), ..card("") },
        );
        for text in [ApprovalChoice::Task.question(), label.as_str()] {
            assert!(text.contains("similar requests") && text.contains("unseen"), "{text}");
        }
    }

    #[test]
    fn every_line_of_the_text_is_shown_and_nothing_else_can_move_the_cursor() {
        let text: String = (0..500).map(|n| format!("line {n}\n")).collect();
        let shown = describe_card(&card(&text));
        assert!(shown.first().is_some_and(|line| line.starts_with("ask Ab3dEf9Z (open, risk medium")));
        assert!((0..500).all(|n| shown.contains(&format!("line {n}"))));
        assert!(!shown.concat().contains('\u{1b}'));
    }
}
