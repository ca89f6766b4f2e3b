//! Models over a scripted server, and how to ask them.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use secrecy::SecretString;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use writ_egress::{Egress, EgressConfig};
use writ_testkit::model_server::{ModelServer, Script, ServedFormat};
use writ_types::chat::{
    ChatMessage, ModelReply, ModelRequest, Part, Role, ToolOutcome, ToolResult, ToolSpec,
};
use writ_types::credential::CredentialRef;
use writ_types::taint::{Label, Taint};
use writ_types::unit::Tokens;

use super::door::{NOW, permit};
use crate::call::{Delta, Models};
use crate::config::{ModelRole, ModelsConfig, ProviderKind, ProviderTable};
use crate::credential::{CredentialError, CredentialSource};
use crate::error::ModelError;
use crate::plan::PlannedCall;

/// The key that the scripted provider expects.
pub(crate) const KEY: &str = "test-key-c0ffee";

/// A secret within prompts, which must not appear in a log or an error.
pub(crate) const PROMPT: &str = "the prompt that nobody else may read";

pub(crate) const ALL: [ProviderKind; 6] = ProviderKind::ALL;

/// The scripted server's name for a format.
pub(crate) const fn wire(kind: ProviderKind) -> ServedFormat {
    match kind {
        ProviderKind::Anthropic => ServedFormat::Anthropic,
        ProviderKind::OpenAi => ServedFormat::OpenAi,
        ProviderKind::OpenAiResponses => ServedFormat::Responses,
        ProviderKind::OpenRouter => ServedFormat::OpenRouter,
        ProviderKind::Gemini => ServedFormat::Gemini,
        ProviderKind::Ollama => ServedFormat::Ollama,
    }
}

/// A frame of a stream in a format.
pub(crate) fn frame(kind: ProviderKind, data: &str) -> String {
    match kind {
        ProviderKind::Anthropic | ProviderKind::OpenAiResponses => {
            let event = data.split('"').nth(3).expect("a type");
            format!("event: {event}\ndata: {data}\n\n")
        }
        ProviderKind::OpenAi | ProviderKind::OpenRouter | ProviderKind::Gemini => format!("data: {data}\n\n"),
        ProviderKind::Ollama => format!("{data}\n"),
    }
}

/// Keys in memory.
pub(crate) struct Keys(pub(crate) BTreeMap<String, &'static str>);

impl CredentialSource for Keys {
    fn resolve<'a>(&'a self, key: &'a CredentialRef) -> BoxFuture<'a, Result<SecretString, CredentialError>> {
        let found = self.0.get(&key.to_string()).map(|key| SecretString::from(*key));
        async move { found.ok_or(CredentialError::Missing) }.boxed()
    }
}

pub(crate) fn keys() -> Arc<Keys> {
    Arc::new(Keys(BTreeMap::from([("env:TEST_KEY".to_owned(), KEY)])))
}

pub(crate) struct Bench {
    pub(crate) server: ModelServer,
    pub(crate) models: Models,
    _runtime: tempfile::TempDir,
}

/// A provider table that leads to a server.
pub(crate) fn table(kind: ProviderKind, base_url: String) -> ProviderTable {
    let api_key = Some("env:TEST_KEY".parse().expect("a reference"));
    ProviderTable { kind: Some(kind), base_url: Some(base_url), api_key, ..ProviderTable::default() }
}

pub(crate) fn models(config: &ModelsConfig) -> (Models, tempfile::TempDir) {
    let runtime = tempfile::tempdir().expect("a folder");
    let egress = Egress::new(&EgressConfig::default(), runtime.path()).expect("egress");
    (Models::new(config, keys(), Arc::new(egress)).expect("models"), runtime)
}

impl Bench {
    pub(crate) async fn new(kind: ProviderKind, script: impl Script) -> Self {
        Self::with(kind, script, |_| {}).await
    }

    /// A bench whose provider has some settings changed.
    pub(crate) async fn with(
        kind: ProviderKind,
        script: impl Script,
        change: impl FnOnce(&mut ModelsConfig),
    ) -> Self {
        let server = ModelServer::start(script).await.expect("a server");
        let mut config = ModelsConfig::default();
        config.providers.insert("scripted".into(), table(kind, server.base_url_for(wire(kind))));
        config.models.default = Some("scripted/some-model-high".into());
        change(&mut config);
        let (models, runtime) = models(&config);
        Self { server, models, _runtime: runtime }
    }

    pub(crate) fn plan(&self, request: ModelRequest) -> PlannedCall {
        self.models.plan(ModelRole::Proxy, Arc::new(request), NOW).expect("a plan")
    }

    /// Makes one attempt and collects all of its deltas.
    pub(crate) async fn ask(&self, request: ModelRequest) -> (Result<ModelReply, ModelError>, Vec<Delta>) {
        self.attempt(&self.plan(request), CancellationToken::new()).await
    }

    pub(crate) async fn attempt(
        &self,
        planned: &PlannedCall,
        cancel: CancellationToken,
    ) -> (Result<ModelReply, ModelError>, Vec<Delta>) {
        let (sender, mut receiver) = mpsc::channel(4);
        let permit = permit(planned.action()).await;
        let call = self.models.call(permit, planned, sender, cancel, NOW);
        let collect = async {
            let mut deltas = Vec::new();
            while let Some(delta) = receiver.recv().await {
                deltas.push(delta);
            }
            deltas
        };
        tokio::join!(call, collect)
    }

    /// Makes one attempt, which must fail, and returns its error.
    pub(crate) async fn fail(&self) -> ModelError {
        self.ask(request(vec![user(PROMPT)])).await.0.expect_err("this must fail")
    }
}

pub(crate) fn message(role: Role, parts: Vec<Part>) -> ChatMessage {
    ChatMessage { role, parts, label: Label::new(Taint::Owner) }
}

pub(crate) fn user(text: &str) -> ChatMessage {
    message(Role::User, vec![Part::Text { text: text.into() }])
}

pub(crate) fn result(call_id: &str, text: &str) -> ChatMessage {
    let result = ToolResult {
        call_id: call_id.into(),
        name: "file_read".into(),
        outcome: ToolOutcome::Done,
        text: text.into(),
        label: Label::new(Taint::External),
        fields: Vec::new(),
        kept: None,
    };
    message(Role::Tool, vec![Part::Result(result)])
}

pub(crate) fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        description: "Reads a file.".into(),
        schema: serde_json::json!({
            "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"],
        }),
    }
}

pub(crate) fn request(messages: Vec<ChatMessage>) -> ModelRequest {
    ModelRequest {
        system: "You are helpful.".into(),
        messages: messages.into_iter().map(std::sync::Arc::new).collect(),
        tools: vec![tool("file_read"), tool("search")].into(),
        max_output_tokens: Tokens::new(1_000),
        form: None,
        effort: None,
    }
}

/// The text of deltas, joined.
pub(crate) fn text(deltas: &[Delta]) -> String {
    let texts = deltas.iter().filter_map(|delta| match delta {
        Delta::Text(text) => Some(text.as_str()),
        Delta::Call { .. } => None,
    });
    texts.collect()
}
