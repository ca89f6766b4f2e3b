//! The readers of this crate for the targets of `fuzz/`: any bytes in, nothing out. Nothing panics, and the
//! assertions hold.

use std::collections::BTreeSet;

use writ_types::chat::StopReason;
use writ_types::unit::Tokens;

use crate::config::ProviderKind;
use crate::detect::first_model;
use crate::error::{Failure, MAX_WORDS_CHARS, ProviderWords};
use crate::fold::{AnswerPiece, Fold, MAX_CALLS, MAX_NAME_BYTES, MIN_REPLY_BYTES};
use crate::refusal::{error_in, provider_error};

/// The lowest status that is an error.
const FIRST_ERROR: u16 = 400;

/// A stream of Anthropic Messages.
pub fn fuzz_anthropic(bytes: &[u8]) {
    fold_stream(ProviderKind::Anthropic, bytes);
}

/// A stream of OpenAI Chat Completions, which OpenRouter speaks too.
pub fn fuzz_openai(bytes: &[u8]) {
    fold_stream(ProviderKind::OpenAi, bytes);
}

/// A stream of OpenAI Responses.
pub fn fuzz_responses(bytes: &[u8]) {
    fold_stream(ProviderKind::OpenAiResponses, bytes);
}

/// A stream of Gemini's `streamGenerateContent`.
pub fn fuzz_gemini(bytes: &[u8]) {
    fold_stream(ProviderKind::Gemini, bytes);
}

/// Lines of Ollama's own chat API.
pub fn fuzz_ollama(bytes: &[u8]) {
    fold_stream(ProviderKind::Ollama, bytes);
}

/// Folds a stream: its end has exactly what was sent on the way, within its bounds.
fn fold_stream(kind: ProviderKind, bytes: &[u8]) {
    let stream = String::from_utf8_lossy(bytes);
    // So few tokens have the smallest bound on bytes.
    let mut fold = Fold::new(kind, Tokens::new(1), "call".to_owned());
    let (mut text, mut called) = (String::new(), Vec::new());
    for frame in stream.lines().filter_map(frame) {
        let read = fold.frame(frame);
        for piece in std::mem::take(&mut fold.draft().pieces) {
            match piece {
                AnswerPiece::Text(more) => text.push_str(&more),
                AnswerPiece::Call { id, name } => called.push((id, name)),
            }
        }
        match read {
            Ok(false) => {}
            Ok(true) => break,
            Err(_) => return,
        }
    }
    let Ok(reply) = fold.draft().finish_answer(Tokens::new(1)) else { return };
    for piece in std::mem::take(&mut fold.draft().pieces) {
        match piece {
            AnswerPiece::Text(more) => text.push_str(&more),
            AnswerPiece::Call { id, name } => called.push((id, name)),
        }
    }
    assert_eq!(reply.text, text, "what was told is what is kept");
    assert!(text.len() <= MIN_REPLY_BYTES && reply.calls.len() <= MAX_CALLS);
    assert!(reply.model.chars().count() <= MAX_NAME_BYTES);
    // They are announced when their names come, which need not be in their order.
    let kept: BTreeSet<(String, String)> =
        reply.calls.iter().map(|call| (call.id.clone(), call.name.clone())).collect();
    let called: BTreeSet<(String, String)> = called.into_iter().collect();
    assert_eq!(kept, called, "each call was told, and none besides");
    let ids: BTreeSet<&str> = reply.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids.len(), reply.calls.len(), "no two calls have one id");
    assert!(reply.calls.iter().all(|call| call.arguments.is_object() || call.arguments.is_string()));
    assert!(reply.stop != StopReason::ToolUse || !kept.is_empty());
}

/// The frame on a line: a line of JSON, or the data of an event.
fn frame(line: &str) -> Option<&str> {
    let data = line.strip_prefix("data:").map_or(line, |data| data.strip_prefix(' ').unwrap_or(data));
    let other = ["event:", "id:", "retry:", ":"].iter().any(|field| line.starts_with(field));
    (!data.is_empty() && !other).then_some(data)
}

/// Reads what can come in place of a stream: an error, after a byte for its status, and a list of models.
pub fn fuzz_answer(bytes: &[u8]) {
    let Some((status, body)) = bytes.split_first() else { return };
    let error = error_in(&String::from_utf8_lossy(body));
    let mut failure = provider_error(&error, FIRST_ERROR.saturating_add(u16::from(*status)), None);
    if let Failure::Rejected { code, .. } | Failure::Quota { code, .. } = &failure {
        assert!(code.len() <= 64 && !code.contains(char::is_control), "{code:?}");
    }
    failure.clean_words(None);
    if let Some(said) = failure.provider_words().and_then(ProviderWords::shown) {
        assert!(said.chars().count() <= MAX_WORDS_CHARS && !said.contains(char::is_control), "{said:?}");
    }
    if let Some(model) = first_model(body) {
        assert!(!model.is_empty() && model.chars().all(|c| c.is_ascii_graphic()), "{model:?}");
    }
}
