//! Refusals of a part of the request that the model or its server does not take.

use crate::error::Feature;

/// Words about a part of requests. The order counts: a message about the form of an answer may name tools as well.
const NAMES: [(Feature, &[&str]); 5] = [
    (
        Feature::Form,
        &[
            "response_format",
            "json_schema",
            "output_config.format",
            "output_config: ",
            "text.format",
            "responsejsonschema",
            "response_json_schema",
            "structured output",
            "json mode",
        ],
    ),
    (
        Feature::Effort,
        &[
            "reasoning_effort",
            "reasoning.effort",
            "output_config.effort",
            "does not support thinking",
            "thinking_budget",
            "thinking_level",
            "thinkingconfig",
            "thinking level",
            "effort parameter",
        ],
    ),
    (Feature::Files, &["pdf", "input_file", "document content", "file content"]),
    (
        Feature::Images,
        &[
            "image_url",
            "image input",
            "input_image",
            "images",
            "image content",
            "vision",
            "multimodal",
            "mmproj",
        ],
    ),
    (
        Feature::Tools,
        &[
            "does not support tools",
            "tool use",
            "tool calling",
            "function calling",
            "tools are not supported",
        ],
    ),
];

/// Words of a refusal, rather than of a mistake within a part that is taken.
const REFUSALS: [&str; 12] = [
    "only supported by",
    "not support",
    "unsupported",
    "not available",
    "unavailable",
    "unknown",
    "unrecognized",
    "not permitted",
    "not enabled",
    "no endpoints found that support",
    "does not accept",
    "is not allowed",
];

/// Words of a refusal that ends by itself: the part is taken again soon.
const PASSING: [&str; 6] =
    ["temporarily", "try again", "retry", "overloaded", "at the moment", "currently unavailable"];

/// Returns the part of the request that a provider's message refuses, if it is about one. Servers have no code for this, so
/// their words decide.
pub(super) fn recognise_feature(message: &str, status: u16) -> Option<Feature> {
    // llama.cpp answers 500 for an image without a projector; a 404 is OpenRouter's for models without a feature.
    if !matches!(status, 400 | 404 | 415 | 422 | 500 | 501) {
        return None;
    }
    let message = message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
    if !says(&REFUSALS) || says(&PASSING) {
        return None;
    }
    let names = |words: &[&str]| words.iter().any(|word| message.contains(word));
    NAMES.iter().find(|(_, words)| names(words)).map(|(feature, _)| *feature)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages are those that users of these servers report.
    #[test]
    fn refusals_of_a_part_are_told_apart() {
        let cases = [
            ("This response_format type is unavailable now", 400, Some(Feature::Form)),
            (
                "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
                400,
                Some(Feature::Form),
            ),
            ("output_config.format: Extra inputs are not permitted", 400, Some(Feature::Form)),
            (
                "Unsupported parameter: 'reasoning_effort' is not supported with this model.",
                400,
                Some(Feature::Effort),
            ),
            ("\"llama3.2\" does not support thinking", 400, Some(Feature::Effort)),
            ("registry.ollama.ai/library/gemma:2b does not support tools", 400, Some(Feature::Tools)),
            ("No endpoints found that support tool use.", 404, Some(Feature::Tools)),
            ("No endpoints found that support image input", 404, Some(Feature::Images)),
            (
                "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
                500,
                Some(Feature::Images),
            ),
            (
                "Invalid content type. image_url is only supported by certain models.",
                400,
                Some(Feature::Images),
            ),
            ("this model does not support PDF input", 400, Some(Feature::Files)),
            ("Invalid schema for response_format 'x': 'required' is missing", 400, None),
            ("the request was refused", 400, None),
            ("The vision service is temporarily unavailable", 500, None),
            ("image input is unavailable, please try again later", 500, None),
            ("This model does not support tools", 401, None),
            ("model 'qwen' not found", 404, None),
        ];
        for (message, status, expected) in cases {
            assert_eq!(recognise_feature(message, status), expected, "{message}");
        }
    }
}
