//! Providers that need no table in the configuration.

use crate::config::ProviderKind;

/// A provider of which more is known than its name: its format, and mostly its URL and the variable that holds its key.
pub(crate) struct WellKnown {
    pub(crate) name: &'static str,
    pub(crate) kind: ProviderKind,
    /// None for one with a URL of each account or region: its owner sets that.
    pub(crate) base_url: Option<&'static str>,
    pub(crate) key_variable: Option<&'static str>,
}

/// The well-known providers, with the URLs of their documentation.
pub(crate) const WELL_KNOWN: [WellKnown; 26] = [
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
    open_ai("cerebras", "https://api.cerebras.ai/v1/", Some("CEREBRAS_API_KEY")),
    open_ai("fireworks", "https://api.fireworks.ai/inference/v1/", Some("FIREWORKS_API_KEY")),
    open_ai("perplexity", "https://api.perplexity.ai/", Some("PERPLEXITY_API_KEY")),
    open_ai("nvidia", "https://integrate.api.nvidia.com/v1/", Some("NVIDIA_API_KEY")),
    open_ai("cohere", "https://api.cohere.ai/compatibility/v1/", Some("COHERE_API_KEY")),
    open_ai("moonshot", "https://api.moonshot.ai/v1/", Some("MOONSHOT_API_KEY")),
    open_ai("zai", "https://api.z.ai/api/paas/v4/", Some("ZAI_API_KEY")),
    open_ai("huggingface", "https://router.huggingface.co/v1/", Some("HF_TOKEN")),
    open_ai("sambanova", "https://api.sambanova.ai/v1/", Some("SAMBANOVA_API_KEY")),
    open_ai("deepinfra", "https://api.deepinfra.com/v1/openai/", Some("DEEPINFRA_API_KEY")),
    // Their addresses name an account or a region, so the owner sets them.
    WellKnown { base_url: None, ..open_ai("azure", "", None) },
    WellKnown { base_url: None, ..open_ai("bedrock", "", None) },
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
    WellKnown { name, kind, base_url: Some(base_url), key_variable }
}

const fn open_ai(
    name: &'static str,
    base_url: &'static str,
    key_variable: Option<&'static str>,
) -> WellKnown {
    known_provider(name, ProviderKind::OpenAi, base_url, key_variable)
}
