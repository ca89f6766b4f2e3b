//! Providers that need no table in the configuration.

use crate::config::ProviderKind;

/// A provider that needs no table: its name, format, URL and the variable that holds its key.
pub(super) struct WellKnown {
    pub(super) name: &'static str,
    pub(super) kind: ProviderKind,
    pub(super) base_url: &'static str,
    pub(super) key_variable: Option<&'static str>,
}

/// The well-known providers, with the URLs of their documentation.
pub(super) const WELL_KNOWN: [WellKnown; 14] = [
    known_provider(
        "anthropic",
        ProviderKind::Anthropic,
        "https://api.anthropic.com/v1/",
        Some("ANTHROPIC_API_KEY"),
    ),
    open_ai("openai", "https://api.openai.com/v1/", Some("OPENAI_API_KEY")),
    known_provider(
        "openai_responses",
        ProviderKind::OpenAiResponses,
        "https://api.openai.com/v1/",
        Some("OPENAI_API_KEY"),
    ),
    known_provider(
        "openrouter",
        ProviderKind::OpenRouter,
        "https://openrouter.ai/api/v1/",
        Some("OPENROUTER_API_KEY"),
    ),
    known_provider(
        "gemini",
        ProviderKind::Gemini,
        "https://generativelanguage.googleapis.com/v1beta/",
        Some("GEMINI_API_KEY"),
    ),
    open_ai("deepseek", "https://api.deepseek.com/v1/", Some("DEEPSEEK_API_KEY")),
    open_ai("groq", "https://api.groq.com/openai/v1/", Some("GROQ_API_KEY")),
    open_ai("together", "https://api.together.xyz/v1/", Some("TOGETHER_API_KEY")),
    open_ai("mistral", "https://api.mistral.ai/v1/", Some("MISTRAL_API_KEY")),
    open_ai("xai", "https://api.x.ai/v1/", Some("XAI_API_KEY")),
    known_provider("ollama", ProviderKind::Ollama, "http://127.0.0.1:11434/", None),
    open_ai("lmstudio", "http://127.0.0.1:1234/v1/", None),
    open_ai("llamacpp", "http://127.0.0.1:8080/v1/", None),
    open_ai("vllm", "http://127.0.0.1:8000/v1/", None),
];

const fn known_provider(
    name: &'static str,
    kind: ProviderKind,
    base_url: &'static str,
    key_variable: Option<&'static str>,
) -> WellKnown {
    WellKnown { name, kind, base_url, key_variable }
}

const fn open_ai(
    name: &'static str,
    base_url: &'static str,
    key_variable: Option<&'static str>,
) -> WellKnown {
    known_provider(name, ProviderKind::OpenAi, base_url, key_variable)
}
