//! Finding a model where none is configured: a key in its usual place, else a model server on its usual port of this
//! machine. Nothing is sent but the question which models such a server has.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use writ_egress::Egress;
use writ_types::credential::CredentialRef;

use crate::config::{ModelsConfig, ProviderTable};
use crate::credential::CredentialSource;

/// The time that all servers together may take to answer.
pub const LIMIT: Duration = Duration::from_millis(300);

/// A provider that may have a key here: its name, the model to begin with, and the variable of its key.
type Keyed = (&'static str, &'static str, &'static str);

/// In this order. Where a provider has a name for the newest of its models, or for a choice among them, that is
/// taken.
const KEYED: [Keyed; 4] = [
    ("anthropic", "claude-sonnet-4-6", "ANTHROPIC_API_KEY"),
    ("openai", "gpt-5.2", "OPENAI_API_KEY"),
    ("gemini", "gemini-flash-latest", "GEMINI_API_KEY"),
    ("openrouter", "openrouter/auto", "OPENROUTER_API_KEY"),
];

/// A model server on this machine: the provider's name, its usual port, and where it lists its models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LocalServer {
    provider: &'static str,
    port: u16,
    list: &'static str,
}

/// In this order.
const SERVERS: [LocalServer; 4] = [
    LocalServer { provider: "ollama", port: 11434, list: "/api/tags" },
    LocalServer { provider: "lmstudio", port: 1234, list: "/v1/models" },
    LocalServer { provider: "llamacpp", port: 8080, list: "/v1/models" },
    LocalServer { provider: "vllm", port: 8000, list: "/v1/models" },
];

/// A model that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectedModel {
    /// The model, as `provider/name`.
    pub model: String,
    provider: &'static str,
    place: ModelPlace,
}

/// The place where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ModelPlace {
    /// Its provider's key lies here.
    Key(CredentialRef),
    /// A server on this port of this machine has it.
    Port(u16),
}

impl fmt::Display for DetectedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            ModelPlace::Key(key) => write!(f, "{} (its key is {key})", self.model),
            ModelPlace::Port(port) => write!(f, "{} (on port {port} of this machine)", self.model),
        }
    }
}

impl DetectedModel {
    /// Returns the port of the server on this machine that has it; `None`: a key was found.
    pub const fn local_port(&self) -> Option<u16> {
        match self.place {
            ModelPlace::Port(port) => Some(port),
            ModelPlace::Key(_) => None,
        }
    }

    /// Makes it the default model.
    pub fn put_into(&self, config: &mut ModelsConfig) {
        config.models.default = Some(self.model.clone());
        let table = config.providers.entry(self.provider.to_owned()).or_default();
        match &self.place {
            ModelPlace::Key(key) => table.api_key = Some(key.clone()),
            ModelPlace::Port(port) => table.base_url = Some(base_url(self.provider, *port)),
        }
    }
}

fn base_url(provider: &str, port: u16) -> String {
    let path = if provider == "ollama" { "" } else { "v1/" };
    format!("http://127.0.0.1:{port}/{path}")
}

/// Returns true if detection should look: nothing is configured, and looking is not forbidden.
pub fn is_wanted(config: &ModelsConfig) -> bool {
    // A configured role is a decision of the owner, and detection must not add another provider beside it.
    config.models.detect && config.models.default.is_none() && config.models.roles.is_empty()
}

/// The variables in which keys are looked for.
pub fn key_variables() -> impl Iterator<Item = &'static str> {
    KEYED.into_iter().map(|(_, _, variable)| variable)
}

/// Finds a model, if [`is_wanted`].
pub async fn detect_model(
    config: &ModelsConfig,
    credentials: &dyn CredentialSource,
    egress: &Egress,
) -> Option<DetectedModel> {
    if !is_wanted(config) {
        return None;
    }
    // A key is preferred: a local server may be there for another purpose.
    match with_key(config, credentials).await {
        Some(found) => Some(found),
        None => list_served_models(config, egress, &SERVERS).await,
    }
}

/// Finds the first model of each model server on the usual ports of this machine.
pub async fn find_local_models(egress: &Egress) -> Vec<DetectedModel> {
    ask_servers(&ModelsConfig::default(), egress, &SERVERS).await.into_iter().flatten().collect()
}

/// Returns true if the owner has configured nothing about a provider that detection could contradict.
fn is_free(config: &ModelsConfig, provider: &str) -> bool {
    config.providers.get(provider).is_none_or(|table| *table == ProviderTable::default())
}

/// Finds a provider with a key in the environment, else in the secrets, under the variable's name in lower
/// case.
async fn with_key(config: &ModelsConfig, credentials: &dyn CredentialSource) -> Option<DetectedModel> {
    for (provider, model, variable) in KEYED.into_iter().filter(|(provider, ..)| is_free(config, provider)) {
        // The environment first, where the usual tools look for it.
        for text in [format!("env:{variable}"), format!("secret:{}", variable.to_ascii_lowercase())] {
            let Ok(key) = text.parse::<CredentialRef>() else { continue };
            if credentials.resolve(&key).await.is_ok() {
                let model = format!("{provider}/{model}");
                return Some(DetectedModel { model, provider, place: ModelPlace::Key(key) });
            }
        }
    }
    None
}

/// The first server, in order, that has a model.
async fn list_served_models(
    config: &ModelsConfig,
    egress: &Egress,
    servers: &[LocalServer],
) -> Option<DetectedModel> {
    // The first in the order of the table counts, not the fastest.
    ask_servers(config, egress, servers).await.into_iter().flatten().next()
}

/// Asks all servers at once for their models.
async fn ask_servers(
    config: &ModelsConfig,
    egress: &Egress,
    servers: &[LocalServer],
) -> Vec<Option<DetectedModel>> {
    // A server under a name that the owner has configured may be elsewhere.
    let free = servers.iter().filter(|server| is_free(config, server.provider));
    let asked = free.map(|server| async move {
        let answer = egress.ask_loopback(server.port, server.list, LIMIT).await?;
        let model = format!("{}/{}", server.provider, first_model(&answer)?);
        Some(DetectedModel { model, provider: server.provider, place: ModelPlace::Port(server.port) })
    });
    futures::future::join_all(asked).await
}

/// The first model of a list that can converse, in Ollama's form or OpenAI's. Names that could not stand in a
/// configuration are passed over.
pub(crate) fn first_model(answer: &[u8]) -> Option<String> {
    let list: Value = serde_json::from_slice(answer).ok()?;
    let models = list.get("models").or_else(|| list.get("data"))?.as_array()?;
    let names = models.iter().filter_map(|model| model.get("name").or_else(|| model.get("id"))?.as_str());
    let usable = |name: &&str| {
        let printable = |c: char| c.is_ascii_graphic();
        // Names are shown and configured, so they must be short and printable; models for embeddings cannot
        // converse.
        !name.is_empty() && name.len() <= 200 && name.chars().all(printable) && !name.contains("embed")
    };
    names.into_iter().find(usable).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use writ_egress::EgressConfig;
    use writ_testkit::model_server::{ModelServer, ServerOptions, list_of_replies};

    use super::*;
    use crate::provider::Routes;
    use crate::tests::Keys;

    fn keys(names: &[&str]) -> Keys {
        Keys(names.iter().map(|name| ((*name).to_owned(), "a key")).collect::<BTreeMap<_, _>>())
    }

    fn egress() -> (Egress, tempfile::TempDir) {
        let runtime = tempfile::tempdir().expect("a folder");
        (Egress::new(&EgressConfig::default(), runtime.path()).expect("egress"), runtime)
    }

    /// Rows: SCL-154 (a key in its usual variable)
    #[tokio::test]
    async fn a_key_in_its_usual_place_is_found_and_named() {
        for (there, model, said) in [
            (
                vec!["env:OPENAI_API_KEY", "env:ANTHROPIC_API_KEY"],
                "anthropic/claude-sonnet-4-6",
                "env:ANTHROPIC_API_KEY",
            ),
            (vec!["secret:gemini_api_key"], "gemini/gemini-flash-latest", "secret:gemini_api_key"),
            (vec!["env:OPENROUTER_API_KEY"], "openrouter/openrouter/auto", "env:OPENROUTER_API_KEY"),
        ] {
            let mut config = ModelsConfig::default();
            let found = with_key(&config, &keys(&there)).await.expect("found");
            assert_eq!(found.model, model);
            assert!(found.to_string().contains(said) && !found.to_string().contains("a key"), "{found}");
            found.put_into(&mut config);
            let routes = Routes::new(&config).expect("resolves");
            let route = routes.route(crate::ModelRole::Executor);
            assert_eq!(route.provider.key.as_ref().map(ToString::to_string).as_deref(), Some(said));
            assert!(route.provider.base_url.starts_with("https://"));
        }
    }

    #[tokio::test]
    async fn what_is_configured_or_forbidden_is_left_alone() {
        let (egress, _runtime) = egress();
        let there = keys(&["env:ANTHROPIC_API_KEY"]);
        let mut forbidden = ModelsConfig::default();
        forbidden.models.detect = false;
        let mut configured = ModelsConfig::default();
        configured.models.default = Some("openai/m".into());
        for config in [forbidden, configured] {
            assert_eq!(detect_model(&config, &there, &egress).await, None);
        }
        let mut elsewhere = ModelsConfig::default();
        let table = ProviderTable { base_url: Some("http://h/".into()), ..ProviderTable::default() };
        elsewhere.providers.insert("anthropic".into(), table);
        assert_eq!(with_key(&elsewhere, &there).await, None, "no key goes to a foreign host unasked");
    }

    #[tokio::test]
    async fn a_model_server_on_this_machine_is_found_and_only_asked_for_its_models() {
        let (egress, _runtime) = egress();
        let models = |names: &[&str]| ServerOptions {
            models: names.iter().map(|name| (*name).to_owned()).collect(),
            ..ServerOptions::default()
        };
        let empty = ModelServer::start_with(models(&[]), list_of_replies([])).await.expect("a server");
        let full = ModelServer::start_with(models(&["nomic-embed-text", "qwen3:8b"]), list_of_replies([]));
        let full = full.await.expect("a server");
        let gone = ModelServer::start(list_of_replies([])).await.expect("a server");
        let nobody = gone.address().port();
        gone.stop().await;
        for (provider, path) in [("ollama", "/api/tags"), ("lmstudio", "/v1/models"), ("vllm", "/v1/models")]
        {
            let server = |port, list| LocalServer { provider, port, list };
            let servers = [
                server(nobody, path),
                server(empty.address().port(), path),
                server(full.address().port(), "/"),
                server(full.address().port(), path),
            ];
            let mut config = ModelsConfig::default();
            let found = list_served_models(&config, &egress, &servers).await.expect("found");
            assert_eq!(found.model, format!("{provider}/qwen3:8b"));
            found.put_into(&mut config);
            let route = Routes::new(&config).expect("resolves").route(crate::ModelRole::Executor).clone();
            assert_eq!(route.provider.host, full.address().to_string());
            assert_eq!((route.provider.key.as_ref(), route.model.as_str()), (None, "qwen3:8b"));
            let mut told = ModelsConfig::default();
            let clearance = crate::config::Clearance::Secret;
            told.providers.insert(provider.into(), ProviderTable { clearance, ..ProviderTable::default() });
            assert_eq!(
                list_served_models(&told, &egress, &servers).await,
                None,
                "the owner has spoken of it"
            );
        }
        assert!(full.recorded_requests().is_empty(), "no model was asked anything");
    }

    #[test]
    fn lists_that_are_none_are_passed_over() {
        for answer in
            ["", "[]", "{}", "{\"data\": 7}", "{\"data\":[{}]}", "{\"data\":[{\"id\":\"a b\"}]}", "<html>"]
        {
            assert_eq!(first_model(answer.as_bytes()), None, "{answer}");
        }
        assert_eq!(first_model(b"{\"data\":[{\"id\":\"org/m\"}]}").as_deref(), Some("org/m"));
    }
}
