//! The meaning of a provider's error: its status, its code and its message, as many servers write them.

mod feature;

mod message;

mod too_long;

use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::error::{Failure, ProviderWords};
use crate::retry::retry_after;

pub(crate) use message::error_in;

/// Words that mean an account without balance. Waiting does not help then, though the status is 429, as for a rate
/// limit.
const USED_UP: [&str; 6] = [
    "insufficient_quota",
    "insufficient_balance",
    "credit_balance_too_low",
    "billing_not_active",
    "billing_hard_limit_reached",
    "exceeded_current_quota_error",
];

/// Words that mean that a filter of the provider stopped the request.
const FILTERED: [&str; 6] = [
    "content_filter",
    "content_policy_violation",
    "moderation_blocked",
    "data_inspection_failed",
    "ResponsibleAIPolicyViolation",
    "PROHIBITED_CONTENT",
];

/// Returns the failure that a provider's error means. The error is an object, or a text alone; `wait` is the wait from
/// the headers of the response, if they have one.
pub(crate) fn provider_error(error: &Value, status: u16, wait: Option<Duration>) -> Failure {
    let message = message::find_message(error);
    // Some servers answer 200 or 500 and write the real status into the error.
    let code = error.get("code").and_then(read_number).filter(|code| (400..600).contains(code));
    let status = code.unwrap_or(status);
    let said = ProviderWords::raw(&message);
    let wait = wait.or_else(|| retry_delay(error));
    let field = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default();
    let words = [field("type"), field("code"), field("status"), read_reason(error)];
    let says = |known: &[&str]| words.iter().any(|word| known.contains(word));
    // Before the rate limit: an account without balance comes with the same status.
    if let Some(word) = words.iter().find(|word| USED_UP.contains(word)) {
        return Failure::Quota { status, code: read_identifier(word), said };
    }
    // Anthropic has no word of its own for it, and 402 means nothing else.
    if status == 402 || message.to_lowercase().contains("credit balance is too low") {
        let word = [field("code"), field("type")].into_iter().find(|word| is_word(word));
        return Failure::Quota { status, code: read_identifier(word.unwrap_or_default()), said };
    }
    if says(&["rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED"]) || status == 429 {
        return Failure::RateLimited { retry_after: wait, said };
    }
    // Before `Unavailable`: some servers answer 500 for a conversation that is too long.
    if let Some(sizes) = too_long::recognise_size(error, &words, &message, status) {
        return Failure::ContextLength { sizes, said };
    }
    if says(&FILTERED) {
        return Failure::Filtered { status, said };
    }
    if let Some(feature) = feature::recognise_feature(&message, status) {
        return Failure::Unsupported { feature, status, said };
    }
    if says(&["overloaded_error"]) {
        return Failure::Unavailable { status: 529, retry_after: wait, said };
    }
    if says(&["authentication_error", "permission_error", "API_KEY_INVALID"]) || matches!(status, 401 | 403) {
        return Failure::Unauthorized { status, said };
    }
    if status >= 500 {
        return Failure::Unavailable { status, retry_after: wait, said };
    }
    let word = ["code", "type", "status"].map(field).into_iter().find(|word| is_word(word));
    Failure::Rejected { status, code: read_identifier(word.unwrap_or_default()), said }
}

/// Returns true if a code is a word: some servers write the status as their code once more.
fn is_word(word: &str) -> bool {
    word.contains(|c: char| !c.is_ascii_digit())
}

/// Reads a number, which some servers write as a text.
fn read_number(value: &Value) -> Option<u16> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    u16::try_from(number).ok()
}

/// The details of an error in Google's form.
fn read_details(error: &Value) -> impl Iterator<Item = &Value> {
    error.get("details").and_then(Value::as_array).into_iter().flatten()
}

/// Google's reason for an error: its status alone calls a wrong key a bad argument.
fn read_reason(error: &Value) -> &str {
    read_details(error).find_map(|detail| detail.get("reason")?.as_str()).unwrap_or_default()
}

/// Returns the wait in an error of Google's form: `"34s"`.
fn retry_delay(error: &Value) -> Option<Duration> {
    let delay = read_details(error).find_map(|detail| detail.get("retryDelay")?.as_str())?;
    retry_after(delay.strip_suffix('s')?, SystemTime::UNIX_EPOCH)
}

/// Returns the provider's error code if it is a plain identifier; else a fixed one.
fn read_identifier(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    // Shown in messages and counted, so only a plain word of bounded length.
    if !word.is_empty() && word.len() <= 64 && word.chars().all(plain) {
        word.to_owned()
    } else {
        "no code".to_owned()
    }
}
