//! The provider and model that a name stands for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use writ_egress::http::Url;
use writ_types::chat::Effort;
use writ_types::credential::CredentialRef;
use writ_types::error::{Exit, Report, ToReport};

use crate::config::{Clearance, ModelRole, ModelsConfig, ProviderKind, ProviderTable};

pub(crate) mod known;

use known::WELL_KNOWN;

/// The likeness at which one name is suggested for another, from 0 (nothing alike) to 1 (equal).
const LIKENESS: f64 = 0.7;

/// The most characters of a model's name that an error repeats.
const MAX_NAMED_CHARS: usize = 200;

/// A provider, ready to be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// Its name in the configuration.
    pub name: String,
    /// Its wire format.
    pub kind: ProviderKind,
    /// The URL that paths are appended to; ends with `/`.
    pub base_url: String,
    /// Host and port of that URL.
    pub host: String,
    /// The reference to its key; `None`: it needs none.
    pub key: Option<CredentialRef>,
    /// The most sensitive content that it may be sent.
    pub clearance: Clearance,
}

/// The problems of `[models]` or `[providers]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelsConfigError {
    /// No model is configured.
    #[error("models.default is not set")]
    MissingDefault,
    /// A model is not written as `provider/name`.
    #[error("{setting} is '{value}', which is not provider/name")]
    BadModel {
        /// The setting.
        setting: String,
        /// Its value.
        value: String,
    },
    /// A model names a provider that is not there.
    #[error("{setting} names the provider '{provider}', which is not known")]
    UnknownProvider {
        /// The setting.
        setting: String,
        /// The provider's name as written.
        provider: String,
        /// The known name that is most like it.
        nearest: Option<String>,
    },
    /// A model was chosen that the configuration does not name any more.
    #[error("the chosen model {0} is not in the configuration")]
    NotOffered(String),
    /// A provider that is not well known lacks a setting.
    #[error("providers.{provider}.{setting} is not set")]
    MissingSetting {
        /// The provider.
        provider: String,
        /// The setting.
        setting: &'static str,
    },
    /// A URL cannot be used.
    #[error("providers.{provider}.base_url cannot be used: {why}")]
    BadUrl {
        /// The provider.
        provider: String,
        /// The reason.
        why: &'static str,
    },
}

impl ToReport for ModelsConfigError {
    fn report(&self) -> Report {
        let (code, hint) = match self {
            Self::MissingDefault => (
                "models.no_default",
                "In config.toml, under [models]: default = \"anthropic/claude-sonnet-4-6\", with the key in \
                 ANTHROPIC_API_KEY.\nOr a local server, without a key: default = \"ollama/qwen3:8b\".\nOr see \
                 `writ demo`, which needs no model."
                    .to_owned(),
            ),
            Self::BadModel { .. } => {
                ("models.bad_model", "A model is written as provider/name: \"openai/gpt-5\".".to_owned())
            }
            Self::UnknownProvider { provider, nearest, .. } => {
                let meant = match nearest {
                    Some(nearest) => format!("Did you mean '{nearest}' instead of '{provider}'?"),
                    None => format!("Add a table [providers.{provider}] with kind and base_url."),
                };
                let complete = WELL_KNOWN.iter().filter(|known| known.base_url.is_some());
                let known = complete.map(|known| known.name).collect::<Vec<_>>().join(", ");
                ("models.unknown_provider", format!("{meant} Known without a table: {known}."))
            }
            Self::NotOffered(_) => (
                "models.not_offered",
                "Choose a model that [models] names, or that of the agent: in the page, or with /model.".to_owned(),
            ),
            Self::MissingSetting { .. } => (
                "models.provider_incomplete",
                "A provider that is not well known needs base_url and kind: anthropic, openai, openai_responses, \
                 openrouter, gemini or ollama."
                    .to_owned(),
            ),
            Self::BadUrl { .. } => {
                ("models.bad_url", "Example: base_url = \"http://127.0.0.1:8080/v1/\".".to_owned())
            }
        };
        Report::new(Exit::Config, code, self.to_string()).with_hint(hint)
    }
}

/// A provider and the name of a model there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The provider.
    pub provider: Arc<Provider>,
    /// The model's name at that provider.
    pub model: String,
}

impl Route {
    /// Returns the model as `provider/name`.
    pub fn model_name(&self) -> String {
        format!("{}/{}", self.provider.name, self.model)
    }
}

/// The routes of a role: the first one, and those to fall back on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    first: Route,
    fallback: Vec<Route>,
}

impl Chain {
    /// Failover never lowers clearance: routes with less than the first one are left out.
    fn new(first: Route, fallback: &[Route]) -> Self {
        let mut chain = Self { first, fallback: Vec::new() };
        for route in fallback {
            // Content that the first provider may read must not reach one that is cleared for less.
            if route.provider.clearance < chain.first.provider.clearance {
                let (provider, model, first) =
                    (&route.provider.name, &route.model, &chain.first.provider.name);
                tracing::warn!(%provider, model, %first, "not a fallback: its clearance is lower");
            // A route that is asked twice would fail twice in the same way.
            } else if chain.all().all(|other| other != route) {
                chain.fallback.push(route.clone());
            }
        }
        chain
    }

    /// Returns the routes with another one before them; of those, the ones with at least its clearance.
    #[must_use]
    pub fn with_first(&self, first: Route) -> Self {
        if first == self.first {
            return self.clone();
        }
        let rest: Vec<Route> = self.all().cloned().collect();
        Self::new(first, &rest)
    }

    /// The first one.
    pub const fn first(&self) -> &Route {
        &self.first
    }

    /// All of them, in the order in which they are asked.
    pub fn all(&self) -> impl Iterator<Item = &Route> {
        std::iter::once(&self.first).chain(&self.fallback)
    }
}

/// The routes of each role and skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    default: Chain,
    roles: BTreeMap<ModelRole, Chain>,
    /// The roles that the owner has named a model for, and not only a tier.
    named: BTreeSet<ModelRole>,
    skills: BTreeMap<String, Chain>,
    effort: BTreeMap<ModelRole, Effort>,
    providers: BTreeMap<String, Arc<Provider>>,
}

impl Routes {
    /// Resolves every model of the configuration.
    ///
    /// # Errors
    ///
    /// If no default is set, a provider is unknown, incomplete or has an unusable URL.
    pub fn new(config: &ModelsConfig) -> Result<Self, ModelsConfigError> {
        let mut providers = BTreeMap::new();
        for name in known_names(config) {
            let table = config.providers.get(&name).cloned().unwrap_or_default();
            providers.insert(name.clone(), Arc::new(build_provider(&name, table)?));
        }
        let models = &config.models;
        let one = |setting: String, model: &String| parse_route(&setting, model, &providers);
        let all = |setting: &str, models: &[String]| {
            models.iter().map(|model| one(setting.to_owned(), model)).collect::<Result<Vec<Route>, _>>()
        };
        let default = models.default.as_ref().ok_or(ModelsConfigError::MissingDefault)?;
        let default = one("models.default".to_owned(), default)?;
        let fallback = all("models.fallback", &models.fallback)?;
        let mut tiers = BTreeMap::new();
        for (tier, model) in &models.tiers {
            tiers.insert(*tier, one(format!("models.tiers.{tier}"), model)?);
        }
        // A role's own model counts before that of its tier.
        let mut firsts = BTreeMap::new();
        for role in ModelRole::ALL {
            let own = models.roles.get(&role).map(|model| one(format!("models.roles.{role}"), model));
            let tier = || role.tier().and_then(|tier| tiers.get(&tier)).cloned();
            firsts.extend(own.transpose()?.or_else(tier).map(|route| (role, route)));
        }
        let mut roles = BTreeMap::new();
        for (role, list) in &models.role_fallback {
            let list = all(&format!("models.role_fallback.{role}"), list)?;
            // A role with a list of its own and no model begins with the default one.
            let first = firsts.remove(role).unwrap_or_else(|| default.clone());
            roles.insert(*role, Chain::new(first, &list));
        }
        // Every other role uses the common list, and at last the default model: one that cannot be reached should not stop
        // what another can do. Vectors of another model are of no use, and in place of a proxy the executor answers: those
        // roles have no other.
        let last: Vec<Route> = fallback.iter().cloned().chain([default.clone()]).collect();
        roles.extend(firsts.into_iter().map(|(role, first)| {
            let alone = matches!(role, ModelRole::Embedding | ModelRole::Proxy);
            let rest = if alone { &[] } else { last.as_slice() };
            (role, Chain::new(first, rest))
        }));
        let mut skills = BTreeMap::new();
        for (skill, model) in &models.skills {
            skills.insert(skill.clone(), Chain::new(one(format!("models.skills.{skill}"), model)?, &last));
        }
        let default = Chain::new(default, &fallback);
        let named = models.roles.keys().copied().collect();
        Ok(Self { default, roles, named, skills, effort: models.effort.clone(), providers })
    }

    /// The route to a model of any known provider, as `provider/name`, whether or not it is configured for something.
    ///
    /// # Errors
    ///
    /// If the name has another form, or the provider is not known.
    pub fn find(&self, model: &str) -> Result<Route, ModelsConfigError> {
        parse_route("the model", model, &self.providers)
    }

    /// Returns every model that the configuration names for texts, as `provider/name`, the default one first.
    pub fn offered(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        self.offered_routes().map(Route::model_name).filter(|name| seen.insert(name.clone())).collect()
    }

    /// The route to one of the models that the configuration names for texts.
    ///
    /// # Errors
    ///
    /// If it names no such model.
    pub fn find_offered(&self, model: &str) -> Result<Route, ModelsConfigError> {
        let found = self.offered_routes().find(|route| route.model_name() == model);
        found
            .cloned()
            .ok_or_else(|| ModelsConfigError::NotOffered(model.chars().take(MAX_NAMED_CHARS).collect()))
    }

    fn offered_routes(&self) -> impl Iterator<Item = &Route> {
        // A model for vectors cannot answer messages.
        let of_roles =
            self.all().filter(|(role, _)| *role != Some(ModelRole::Embedding)).map(|(_, route)| route);
        of_roles.chain(self.skills.values().map(Chain::first))
    }

    /// The routes of a role, or the default ones.
    pub fn chain(&self, role: ModelRole) -> &Chain {
        self.roles.get(&role).unwrap_or(&self.default)
    }

    /// Returns true if a role has a model of its own that the default one is not.
    pub fn has_own(&self, role: ModelRole) -> bool {
        self.route(role) != self.default.first()
    }

    /// Returns true if the owner has named a model for a role itself, other than the one of another role.
    pub fn names_another(&self, role: ModelRole, than: ModelRole) -> bool {
        self.named.contains(&role) && self.route(role) != self.route(than)
    }

    /// The routes of a call for a skill: those of the skill, else of the role, else the default ones (WIN-073).
    pub fn chain_for(&self, skill: Option<&str>, role: ModelRole) -> &Chain {
        skill.and_then(|skill| self.skills.get(skill)).unwrap_or_else(|| self.chain(role))
    }

    /// Returns the effort that a role's model should make; `None`: the provider decides.
    pub fn effort(&self, role: ModelRole) -> Option<Effort> {
        self.effort.get(&role).copied()
    }

    /// Every route that the configuration names, for roles and for skills.
    pub fn named(&self) -> impl Iterator<Item = &Route> {
        self.all().map(|(_, route)| route).chain(self.skills.values().map(Chain::first))
    }

    /// Returns the skills with a model of their own, with their routes.
    pub fn skills(&self) -> impl Iterator<Item = (&str, &Chain)> {
        self.skills.iter().map(|(skill, chain)| (skill.as_str(), chain))
    }

    /// The first route of a role, or the default.
    pub fn route(&self, role: ModelRole) -> &Route {
        self.chain(role).first()
    }

    /// The routes of roles: those by default first, then those of the roles that have their own, without the default ones
    /// that end their lists.
    pub fn all(&self) -> impl Iterator<Item = (Option<ModelRole>, &Route)> {
        let default = self.default.all().map(|route| (None, route));
        let is_own = |route: &&Route| self.default.all().all(|other| other != *route);
        let roles = self.roles.iter().flat_map(move |(role, chain)| {
            let first = std::iter::once(chain.first());
            first.chain(chain.all().skip(1).filter(is_own)).map(|route| (Some(*role), route))
        });
        default.chain(roles)
    }
}

fn known_names(config: &ModelsConfig) -> Vec<String> {
    // Without an address it is no provider until the owner gives it one.
    let complete =
        WELL_KNOWN.iter().filter(|known| known.base_url.is_some()).map(|known| known.name.to_owned());
    let mut names: Vec<String> = complete.collect();
    let others: Vec<String> = config.providers.keys().filter(|name| !names.contains(name)).cloned().collect();
    names.extend(others);
    names
}

/// Splits `provider/name`; `provider:name` means the same.
///
/// # Errors
///
/// If it has another form.
pub(crate) fn split_name<'a>(setting: &str, value: &'a str) -> Result<(&'a str, &'a str), ModelsConfigError> {
    let bad = || ModelsConfigError::BadModel {
        setting: setting.to_owned(),
        value: value.chars().take(128).collect(),
    };
    // A model's name may contain both characters, so only the first one separates.
    let (name, model) = value.split_once(['/', ':']).ok_or_else(bad)?;
    let printable = |c: char| !c.is_whitespace() && !c.is_control();
    if name.is_empty() || model.is_empty() || model.len() > 256 || !value.chars().all(printable) {
        return Err(bad());
    }
    Ok((name, model))
}

/// The route of a model's name, see [`split_name`].
fn parse_route(
    setting: &str,
    value: &str,
    providers: &BTreeMap<String, Arc<Provider>>,
) -> Result<Route, ModelsConfigError> {
    let (name, model) = split_name(setting, value)?;
    let provider = providers.get(name).ok_or_else(|| ModelsConfigError::UnknownProvider {
        setting: setting.to_owned(),
        provider: name.to_owned(),
        nearest: nearest_name(name, providers.keys()),
    })?;
    Ok(Route { provider: Arc::clone(provider), model: model.to_owned() })
}

fn nearest_name<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> Option<String> {
    known
        .map(|known| (strsim::jaro_winkler(name, known), known))
        .filter(|(likeness, _)| *likeness >= LIKENESS)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known.clone())
}

fn build_provider(name: &str, table: ProviderTable) -> Result<Provider, ModelsConfigError> {
    let known = WELL_KNOWN.iter().find(|known| known.name == name);
    let missing = |setting| ModelsConfigError::MissingSetting { provider: name.to_owned(), setting };
    let kind = table.kind.or_else(|| known.map(|known| known.kind)).ok_or_else(|| missing("kind"))?;
    let own_url = table.base_url.is_none();
    let url = table
        .base_url
        .or_else(|| known.and_then(|known| known.base_url).map(str::to_owned))
        .ok_or_else(|| missing("base_url"))?;
    let (base_url, host) =
        usable_url(&url, kind).map_err(|why| ModelsConfigError::BadUrl { provider: name.to_owned(), why })?;
    // The key of the well-known provider goes to its own URL alone, never to another one under its name.
    let default_key = known.filter(|_| own_url).and_then(|known| known.key_variable);
    let key = table.api_key.or_else(|| default_key.map(|variable| CredentialRef::Env(variable.to_owned())));
    Ok(Provider { name: name.to_owned(), kind, base_url, host, key, clearance: table.clearance })
}

/// Routes that are appended to `base_url`, with the format that each belongs to. Their documents show them whole, so
/// that they are often copied whole.
const ROUTES: [(&str, &[ProviderKind]); 6] = [
    ("/chat/completions", &[ProviderKind::OpenAi, ProviderKind::OpenRouter]),
    ("/responses", &[ProviderKind::OpenAiResponses]),
    ("/messages", &[ProviderKind::Anthropic]),
    ("/api/chat", &[ProviderKind::Ollama]),
    ("/api/generate", &[ProviderKind::Ollama]),
    ("/models", &ProviderKind::ALL),
];

/// Removes the route from a path that has it, so that it is not appended twice.
fn without_route(path: &str, kind: ProviderKind) -> Result<&str, &'static str> {
    let path = path.trim_end_matches('/');
    // Documents show whole routes, so they are often copied into the URL.
    for (route, kinds) in ROUTES {
        if let Some(base) = path.strip_suffix(route) {
            let other = "it ends in the route of another kind: set the kind that fits, or remove the route";
            return if kinds.contains(&kind) { Ok(base) } else { Err(other) };
        }
    }
    Ok(path)
}

/// Checks a URL; returns it without the route of a request and with a final `/`, and its host and port.
fn usable_url(text: &str, kind: ProviderKind) -> Result<(String, String), &'static str> {
    let mut url = Url::parse(text).map_err(|_| "it is not a URL")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("it is neither http nor https");
    }
    // A password in a URL would be shown wherever the URL is.
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it holds a user name or password: use api_key");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it has a query or fragment");
    }
    // The library appends its route, so the path must end with a slash.
    let path = format!("{}/", without_route(url.path(), kind)?);
    url.set_path(&path);
    let host = url.host_str().ok_or("it has no host")?.to_owned();
    let port = url.port_or_known_default().ok_or("it has no port")?;
    Ok((url.into(), format!("{host}:{port}")))
}
