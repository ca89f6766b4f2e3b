//! The model router: the formats of OpenAI Chat and Anthropic Messages in, the configured providers out.
