//! The owner's first choice of a model, written into the configuration.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use toml::{Table, Value};
use writ_egress::Egress;
use writ_models::config::{ModelsConfig, ProviderKind, ProviderTable};
use writ_models::{Models, detect};
use writ_runtime::setup::ModelSource;
use writ_types::api::model::ModelChoice;
use writ_types::credential::CredentialRef;
use writ_types::error::{Exit, Report, ToReport as _};

use super::CredentialSources;
use super::credentials::named_references;
use super::live::HomeSettings;
use crate::config::Config;
use crate::context::Context;

/// The longest name of a provider, in bytes.
const MAX_PROVIDER: usize = 40;
/// The longest name of a model, in bytes.
const MAX_MODEL: usize = 200;
/// The longest address, in bytes.
const MAX_URL: usize = 2_000;
/// The beginning of the name of a key's secret: a choice names no other secret, so none is sent to its server.
const KEY_PREFIX: &str = "model-key-";

/// The configuration of models, as the engine was started with it, and its file.
pub(super) struct ConfigModels {
    file: PathBuf,
    models: ModelsConfig,
    /// The credentials that the configuration named at the start: the engine has read them, and masks their values.
    known: BTreeSet<CredentialRef>,
    credentials: Arc<CredentialSources>,
    egress: Arc<Egress>,
    settings: Arc<HomeSettings>,
}

impl ConfigModels {
    /// Returns the configuration of a home.
    pub(super) fn of_home(
        context: &Context,
        config: &Config,
        credentials: &Arc<CredentialSources>,
        egress: &Arc<Egress>,
        settings: &Arc<HomeSettings>,
    ) -> Arc<Self> {
        Arc::new(Self {
            file: context.home.config_file(),
            models: config.models.clone(),
            known: named_references(config),
            credentials: Arc::clone(credentials),
            egress: Arc::clone(egress),
            settings: Arc::clone(settings),
        })
    }
}

impl fmt::Debug for ConfigModels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigModels").field("file", &self.file).finish_non_exhaustive()
    }
}

impl ModelSource for ConfigModels {
    fn prepare(&self, choice: &ModelChoice) -> Result<Models, Report> {
        let mut config = self.models.clone();
        config.models.default = Some(model_name(choice)?);
        let table = provider_table(choice)?;
        let known =
            config.providers.get(&choice.provider).filter(|known| **known != ProviderTable::default());
        if table != ProviderTable::default() {
            if known.is_some() {
                let text = format!("the provider {} has a table in config.toml", choice.provider);
                return Err(refuse(&text, "choose another name, or change its table there"));
            }
            config.providers.insert(choice.provider.clone(), table);
        }
        Models::new(&config, Arc::<CredentialSources>::clone(&self.credentials), Arc::clone(&self.egress))
            .map_err(|error| {
                // A mistake in typed input is wrong usage, not a broken configuration.
                let Report { code, outside, .. } = error.report();
                let hint =
                    "correct what is named: a provider that is not well known needs a kind and an address";
                Report::new(Exit::Usage, &code, outside).with_hint(hint)
            })
    }

    fn read_configured(&self) -> Result<Option<Models>, Report> {
        let config = self.settings.load_config()?;
        if config.models.models.default.is_none() {
            return Ok(None);
        }
        // Variables and vault servers are read at the start, and what was not read is not masked either.
        let is_ready = |key: &CredentialRef| match key {
            CredentialRef::Secret(_) => true,
            CredentialRef::Env(name) => {
                self.known.contains(key) || detect::key_variables().any(|known| known == name)
            }
            CredentialRef::Vault { .. } => self.known.contains(key),
        };
        if let Some(key) = named_references(&config).iter().find(|key| !is_ready(key)) {
            let text = format!("the first model is in use from the next start on, which reads {key}");
            return Err(Report::new(Exit::Config, "models.restart", text)
                .with_hint("end the engine, and start it again"));
        }
        let credentials = Arc::<CredentialSources>::clone(&self.credentials);
        let models = Models::new(&config.models, credentials, Arc::clone(&self.egress))
            .map_err(|error| error.report())?;
        self.settings.note_models(&config);
        Ok(Some(models))
    }

    fn store(&self, choice: &ModelChoice) -> Result<(), Report> {
        let failed = |error: std::io::Error| {
            Report::new(Exit::Blocked, "models.unwritable", "config.toml cannot be written")
                .with_inside(format!("{}: {error}", self.file.display()))
                .with_hint("check owner and mode of the home's config.toml, and free some space")
        };
        // A link to the file of another folder stays one.
        let file = fs::canonicalize(&self.file).map_err(failed)?;
        let text = extend_config(&fs::read_to_string(&file).map_err(failed)?, choice)?;
        let fresh = file.with_extension("toml.new");
        let mut new = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)
            .map_err(failed)?;
        new.write_all(text.as_bytes()).and_then(|()| new.sync_all()).map_err(failed)?;
        // A crash leaves the old file or the new one, never half of one.
        fs::rename(&fresh, &file).map_err(failed)?;
        if let Ok(config) = self.settings.load_config() {
            self.settings.note_models(&config);
        }
        Ok(())
    }
}

fn refuse(text: &str, hint: &str) -> Report {
    Report::new(Exit::Usage, "models.choice", text).with_hint(hint)
}

/// Returns the model as `provider/name`.
fn model_name(choice: &ModelChoice) -> Result<String, Report> {
    let ModelChoice { provider, model, .. } = choice;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let begins = provider.starts_with(|c: char| c.is_ascii_lowercase());
    if !begins || provider.len() > MAX_PROVIDER || !provider.chars().all(plain) {
        let hint = format!("use at most {MAX_PROVIDER} of a-z, 0-9, - and _, and begin with a letter");
        return Err(refuse("this is no name of a provider", &hint));
    }
    if model.is_empty() || model.len() > MAX_MODEL || !model.chars().all(|c| c.is_ascii_graphic()) {
        let hint = format!("write it as the provider does, in at most {MAX_MODEL} characters without spaces");
        return Err(refuse("this is no name of a model", &hint));
    }
    Ok(format!("{provider}/{model}"))
}

/// Returns the table that a choice needs; the default one if it needs none.
fn provider_table(choice: &ModelChoice) -> Result<ProviderTable, Report> {
    let kind = choice.kind.as_ref().map(|kind| {
        let known = Value::String(kind.clone()).try_into::<ProviderKind>();
        let hint = "use anthropic, openai, openai_responses, openrouter, gemini or ollama";
        known.map_err(|_| refuse("there is no such kind of provider", hint))
    });
    if choice.base_url.as_ref().is_some_and(|url| url.len() > MAX_URL) {
        return Err(refuse("the address is too long", "such as http://127.0.0.1:8080/v1/"));
    }
    let key =
        choice.has_key.then(|| format!("secret:{KEY_PREFIX}{}", choice.provider).parse::<CredentialRef>());
    let api_key =
        key.transpose().map_err(|_| refuse("this is no name of a provider", "choose a plain name"))?;
    Ok(ProviderTable {
        kind: kind.transpose()?,
        base_url: choice.base_url.clone(),
        api_key,
        ..ProviderTable::default()
    })
}

/// Writes a choice into the text of a configuration. Everything that stands there stays as it is.
fn extend_config(text: &str, choice: &ModelChoice) -> Result<String, Report> {
    let unfit = || {
        let hint = format!(
            "write it there yourself: [models] with default = \"{}/{}\"",
            choice.provider, choice.model
        );
        Report::new(
            Exit::Blocked,
            "models.unwritable",
            "config.toml has [models] in a form that is not extended here",
        )
        .with_hint(hint)
    };
    let (name, table) = (model_name(choice)?, provider_table(choice)?);
    let line = format!("default = {}\n", Value::String(name.clone()));
    let before: Table = text.parse().map_err(|_| unfit())?;
    let mut out = String::new();
    if before.contains_key("models") {
        for part in text.split_inclusive('\n') {
            out.push_str(part);
            if part.trim() == "[models]" {
                out.push_str(&line);
            }
        }
    } else {
        out.push_str(text);
        if !text.is_empty() && !text.ends_with('\n') {
            out.push('\n');
        }
        out.push_str("\n# Chosen in the page.\n[models]\n");
        out.push_str(&line);
    }
    if table != ProviderTable::default() {
        out.push_str(&format!("\n[providers.{}]\n", choice.provider));
        let api_key = table.api_key.as_ref().map(ToString::to_string);
        let set = [("kind", &choice.kind), ("base_url", &choice.base_url), ("api_key", &api_key)];
        for (key, value) in set {
            let Some(value) = value else { continue };
            out.push_str(&format!("{key} = {}\n", Value::String(value.clone())));
        }
    }
    // Read again: what is written says what was chosen, or nothing is written.
    let after: Table = out.parse().map_err(|_| unfit())?;
    let said = after.get("models").and_then(|models| models.get("default")).and_then(Value::as_str);
    if said == Some(name.as_str()) { Ok(out) } else { Err(unfit()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(provider: &str) -> ModelChoice {
        ModelChoice {
            provider: provider.to_owned(),
            model: "small".to_owned(),
            kind: Some("openai".to_owned()),
            base_url: Some("http://127.0.0.1:9/v1/".to_owned()),
            has_key: true,
        }
    }

    /// What the owner has written stays, and a form that cannot be extended is left alone.
    #[test]
    fn a_choice_is_added_to_what_stands_in_the_configuration() {
        let said = "# mine\n[models]\nmax_tries = 2 # few\n\n[budget]\nmax_tokens_per_day = 7\n";
        let extended = extend_config(said, &choice("own")).expect("written");
        assert_eq!(
            extended,
            "# mine\n[models]\ndefault = \"own/small\"\nmax_tries = 2 # few\n\n[budget]\nmax_tokens_per_day = 7\n\n\
             [providers.own]\nkind = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1/\"\napi_key = \"secret:model-key-own\"\n"
        );
        let plain = ModelChoice { kind: None, base_url: None, has_key: false, ..choice("anthropic") };
        let extended = extend_config("#[models]", &plain).expect("written");
        assert_eq!(extended, "#[models]\n\n# Chosen in the page.\n[models]\ndefault = \"anthropic/small\"\n");
        for unfit in [
            "models = { max_tries = 2 }",
            "[models]\ndefault = \"a/b\"",
            "[providers.own]\nkind = \"openai\"",
            "[mod",
        ] {
            assert_eq!(
                extend_config(unfit, &choice("own")).expect_err(unfit).code,
                "models.unwritable",
                "{unfit}"
            );
        }
    }

    #[test]
    fn names_that_could_say_more_are_refused() {
        for name in ["", "Own", "a.b", "a]\nb", "-a", "../a", &"a".repeat(41)] {
            assert_eq!(model_name(&choice(name)).expect_err(name).code, "models.choice", "{name}");
        }
        for model in ["", "a b", "a\nb", "\u{e4}", &"m".repeat(201)] {
            let choice = ModelChoice { model: model.to_owned(), ..choice("own") };
            assert_eq!(model_name(&choice).expect_err(model).code, "models.choice", "{model}");
        }
        let kind = ModelChoice { kind: Some("soap".to_owned()), ..choice("own") };
        assert_eq!(provider_table(&kind).expect_err("no kind").code, "models.choice");
    }
}
