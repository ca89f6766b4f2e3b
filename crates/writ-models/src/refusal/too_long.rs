//! Recognises that a conversation is longer than a model can read, and the sizes that the error names.

use serde_json::Value;
use writ_types::unit::Tokens;

use crate::error::ContextSizes;

/// Codes and types with this meaning alone.
const CODES: [&str; 6] = [
    "context_length_exceeded",
    "exceed_context_size_error",
    "request_too_large",
    "string_above_max_length",
    "context_window_exceeded",
    "ContextWindowExceededError",
];

/// Phrases with this meaning alone, in lower case. `docs/compatibility.md` says who writes which.
const PHRASES: [&str; 33] = [
    "prompt is too long",
    "input is too long",
    "exceed context limit",
    "maximum context length",
    "maximum model length",
    "maximum prompt length",
    "longer than the model's context length",
    "max_model_len",
    "context_length_exceeded",
    "context length exceeded",
    "contextwindowexceedederror",
    "exceeds the context window",
    "exceeds the model's context window",
    "exceed context window",
    "exceeds context window",
    "context window exceeded",
    "exceeds the maximum number of tokens allowed",
    "exceeds the available context size",
    "exceed the available context size",
    "context size has been exceeded",
    "greater than the context length",
    "with context length of only",
    "exceeds the context length",
    "exceeds maximum context length",
    "reduce the length of the messages",
    "reduce the length of either one",
    "tokens exceed the configured limit",
    "`inputs` tokens + `max_new_tokens` must be <=",
    "prompt too long; exceeded",
    "context window exceeds limit",
    "exceeded model token limit",
    "range of input length should be",
    "too large for model with",
];

/// Phrases of limits on the tokens of a time. Their errors also speak of requests that are too large.
const OF_A_TIME: [&str; 7] =
    ["per minute", "per min", "per day", "per hour", "per second", "rate limit", "ratelimit"];

/// Phrases after which the size of the model's window stands.
const WINDOW: [&str; 16] = [
    "maximum context length is ",
    "maximum context length: ",
    "maximum context length of ",
    "maximum model length of ",
    "maximum prompt length is ",
    "maximum number of tokens allowed (",
    "configured limit of ",
    "context length of only ",
    "context window of ",
    "n_ctx: ",
    "must be <= ",
    "tokens > ",
    "available context size (",
    "model's context length (",
    "too large for model with ",
    "model token limit: ",
];

/// Phrases after which the size of what was sent stands.
const SENT: [&str; 15] = [
    "prompt is too long: ",
    "input token count (",
    "requested about ",
    "you requested ",
    "requested tokens (",
    "resulted in ",
    "keep the first ",
    "n_keep: ",
    "given: ",
    "your request has ",
    "the request contains ",
    "prompt contains ",
    "decoder prompt (length ",
    "request (",
    "the input (",
];

/// Sizes beyond these are no sizes of a window: the largest that is sold has ten million tokens.
const SENSIBLE: std::ops::RangeInclusive<u64> = 64..=16 * 1024 * 1024;

/// The sizes that an error of this meaning names, as far as it does; `None`: it means something else.
pub(super) fn recognise_size(
    error: &Value,
    words: &[&str],
    message: &str,
    status: u16,
) -> Option<ContextSizes> {
    let lower = message.to_ascii_lowercase();
    // A limit on tokens per minute is no limit of the window, and waiting helps.
    if OF_A_TIME.iter().any(|phrase| lower.contains(phrase)) {
        return None;
    }
    // Errors of a server's own, such as 503, speak of other things with these words. Within a stream there is no status
    // but 500, and some servers send it for this.
    let by_phrase = status <= 500 && PHRASES.iter().any(|phrase| lower.contains(phrase));
    let is_too_long = words.iter().any(|word| CODES.contains(word)) || by_phrase || status == 413;
    is_too_long.then(|| read_sizes(error, &lower))
}

fn read_sizes(error: &Value, lower: &str) -> ContextSizes {
    let field = |key: &str| error.get(key).and_then(Value::as_u64).filter(|size| SENSIBLE.contains(size));
    // Anthropic: "input length and `max_tokens` exceed context limit: 179413 + 32768 > 200000".
    let sum = number_after(lower, &["exceed context limit: "]).zip(number_after(lower, &[" > "]));
    let sent = field("n_prompt_tokens").or(sum.map(|(sent, _)| sent)).or_else(|| number_after(lower, &SENT));
    let window = field("n_ctx").or(sum.map(|(_, window)| window)).or_else(|| number_after(lower, &WINDOW));
    ContextSizes { window: window.map(Tokens::new), sent: sent.map(Tokens::new) }
}

/// The sensible number that stands right after one of these phrases.
fn number_after(lower: &str, phrases: &[&str]) -> Option<u64> {
    let number = |phrase: &&str| {
        let (_, rest) = lower.split_once(phrase)?;
        let digits: String =
            rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(|c| *c != ',').collect();
        // A number outside the sensible range is another one, such as a date or an id.
        digits.parse::<u64>().ok().filter(|size| SENSIBLE.contains(size))
    };
    phrases.iter().find_map(number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(message: &str) -> Option<(Option<u64>, Option<u64>)> {
        let sizes = recognise_size(&json!({ "message": message }), &[], message, 400)?;
        Some((sizes.window.map(Tokens::get), sizes.sent.map(Tokens::get)))
    }

    /// Messages of public reports; the page of compatibility plays most of them over HTTP.
    #[test]
    fn window_and_size_are_read_where_they_are_named() {
        for (message, window, sent) in [
            ("prompt is too long: 200251 tokens > 200000 maximum", Some(200_000), Some(200_251)),
            (
                "input length and `max_tokens` exceed context limit: 179413 + 32768 > 200000, decrease input length or `max_tokens` and try again",
                Some(200_000),
                Some(179_413),
            ),
            (
                "This model's maximum context length is 4097 tokens. However, your messages resulted in 4294 tokens. Please reduce the length of the messages.",
                Some(4_097),
                Some(4_294),
            ),
            (
                "This endpoint's maximum context length is 131072 tokens. However, you requested about 141607 tokens (10535 of text input, 131072 in the output).",
                Some(131_072),
                Some(141_607),
            ),
            (
                "The input token count (3475108) exceeds the maximum number of tokens allowed (1048576).",
                Some(1_048_576),
                Some(3_475_108),
            ),
            (
                "The input token count exceeds the maximum number of tokens allowed (1048576).",
                Some(1_048_576),
                None,
            ),
            (
                "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context length of only 32768 tokens, which is not enough.",
                Some(32_768),
                Some(111_490),
            ),
            (
                "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 13055>= n_ctx: 4096).",
                Some(4_096),
                Some(13_055),
            ),
            ("Requested tokens (516) exceed context window of 512", Some(512), Some(516)),
            (
                "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 477469 tokens.",
                Some(272_000),
                Some(477_469),
            ),
            (
                "`inputs` tokens + `max_new_tokens` must be <= 8192. Given: 6204 `inputs` tokens and 2047 `max_new_tokens`",
                Some(8_192),
                Some(6_204),
            ),
            (
                "The decoder prompt (length 40000) is longer than the maximum model length of 32768.",
                Some(32_768),
                Some(40_000),
            ),
            ("the request exceeds the available context size. try increasing the context size", None, None),
            (
                "request (14429 tokens) exceeds the available context size (8192 tokens), try increasing it",
                Some(8_192),
                Some(14_429),
            ),
            (
                "Your input exceeds the context window of this model. Please adjust your input and try again.",
                None,
                None,
            ),
            ("maximum context length is 999999999999999 tokens", None, None),
            ("maximum context length is 128,000 tokens", Some(128_000), None),
            (
                "Prompt contains 300000 tokens, too large for model with 131072 maximum context length",
                Some(131_072),
                Some(300_000),
            ),
            ("Your request exceeded model token limit: 262144 (requested: 300000)", Some(262_144), None),
            ("prompt too long; exceeded max context length by 4096 tokens", None, None),
            ("invalid params, context window exceeds limit", None, None),
            ("Range of input length should be [1, 30720]", None, None),
        ] {
            assert_eq!(read(message), Some((window, sent)), "{message}");
        }
    }

    #[test]
    fn other_limits_are_not_mistaken_for_the_window() {
        for message in [
            "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 12328, please reduce your message size",
            "This request would exceed your organization's rate limit of 40,000 input tokens per minute. Reduce the prompt length",
            "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens",
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
            "You exceeded your current quota, please check your plan and billing details.",
            "Invalid value for 'content': expected a string, got null.",
            "tools.0.name: String should have at most 128 characters",
        ] {
            assert_eq!(read(message), None, "{message}");
        }
        // The status alone says it, and only this one.
        let by_status = |status| recognise_size(&Value::Null, &[], "", status).is_some();
        assert_eq!([400, 413, 414, 422, 500, 503].map(by_status), [false, true, false, false, false, false]);
        let busy = "the maximum context length cannot be served now";
        assert!(recognise_size(&Value::Null, &[], busy, 503).is_none());
    }
}
