//! Texts of guests and people on their way to agents and back: agents read tokens, guests and people the words themselves.

use writ_store::fleet::{CaseMessage, FleetCase};
use writ_types::api::fleet::SentMessage;

use super::error::CaseError;
use super::machine::MAX_REASON_BYTES;
use super::ports::CaseTokenSource;

/// The part that every token has.
const TOKEN_MARK: &str = "_tk_";
/// The reason of an escalation that could not be searched.
const UNSEEN_REASON: &str = "left out: the security proxy could not search it for personal data";

/// Returns a text as agents of a case may read it: with tokens in place of personal data.
///
/// # Errors
///
/// If the proxy does not answer: what could not be searched reaches no agent.
pub(crate) async fn mask_text(
    tokens: &dyn CaseTokenSource,
    case_token: &str,
    text: &str,
) -> Result<String, CaseError> {
    tokens.mask_text(case_token, text).await.map_err(CaseError::Proxy)
}

/// Returns an agent's reason as the ledger may have it. The case changes hands also where the proxy is away; the reason is then
/// left out.
pub(crate) async fn mask_reason(tokens: &dyn CaseTokenSource, row: &FleetCase, reason: String) -> String {
    // It is refused, and recorded nowhere.
    if reason.trim().is_empty() || reason.len() > MAX_REASON_BYTES {
        return reason;
    }
    match tokens.mask_text(&row.case_token, &reason).await {
        Ok(mut masked) => {
            masked.truncate(masked.floor_char_boundary(MAX_REASON_BYTES));
            masked
        }
        Err(error) => {
            tracing::warn!(%error, case = %row.id, "the reason of an escalation is left out");
            UNSEEN_REASON.to_owned()
        }
    }
}

/// Returns messages as the guest and people read them. Where the proxy is away, or the case is closed, tokens stay: after the
/// first request that fails the others are not sent, since each may take as long.
pub(crate) async fn show_messages(
    tokens: &dyn CaseTokenSource,
    row: &FleetCase,
    messages: Vec<CaseMessage>,
) -> Vec<SentMessage> {
    let mut shown = Vec::with_capacity(messages.len());
    let mut is_answered = row.is_open;
    for CaseMessage { n, sender: from, mut text, at } in messages {
        if is_answered && text.contains(TOKEN_MARK) {
            match tokens.restore_text(&row.case_token, &text).await {
                Ok(restored) => text = restored,
                Err(error) => {
                    is_answered = false;
                    tracing::debug!(%error, case = %row.id, "messages are shown with their tokens");
                }
            }
        }
        shown.push(SentMessage { n, from, text, at });
    }
    shown
}
