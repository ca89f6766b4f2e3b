//! Which model and provider a call goes to, and what it may cost.

use std::sync::Arc;

use writ_testkit::model_server::{ModelServer, Reply, list_of_replies};
use writ_types::digest::Digest;
use writ_types::error::{Exit, ToReport as _};
use writ_types::unit::{MicroUsd, Tokens};

use super::bench::{ALL, Bench, Keys, request, table, user};
use super::door::NOW;
use crate::call::Models;
use crate::config::{ModelRole, ModelsConfig, ProviderKind};
use crate::provider::{ModelsConfigError, Routes};

/// Reads a configuration. The models of skills, which are no setting yet, are taken from the same text.
fn parsed(text: &str) -> Result<ModelsConfig, toml::de::Error> {
    let mut table: toml::Table = toml::from_str(text)?;
    let models = table.get_mut("models").and_then(toml::Value::as_table_mut);
    let skills = models.and_then(|models| models.remove("skills"));
    let mut config: ModelsConfig = table.try_into()?;
    if let Some(skills) = skills {
        config.models.skills = skills.try_into()?;
    }
    Ok(config)
}

/// As long as there are no skills, a model for one would do nothing: it is no setting.
#[test]
fn a_model_for_a_skill_is_no_setting_as_long_as_there_are_no_skills() {
    let read = toml::from_str::<ModelsConfig>("[models.skills]\ndeploy_check = \"ollama/skill\"");
    assert!(read.expect_err("refused").to_string().contains("skills"));
}

fn routes(text: &str) -> Result<Routes, ModelsConfigError> {
    Routes::new(&parsed(text).expect("valid TOML of the right shape"))
}

#[test]
fn the_configuration_of_the_design_is_understood() {
    let routes = routes(
        r#"
        [models]
        default = "anthropic/claude-sonnet-4-6"
        [models.roles]
        planner = "local/qwen3:8b"
        observer = "openrouter:meta/llama"
        [providers.local]
        kind = "openai"
        base_url = "http://127.0.0.1:11434/v1"
        api_key = "secret:local"
        clearance = "secret"
        "#,
    )
    .expect("resolves");
    let default = routes.route(ModelRole::Proxy);
    assert_eq!(
        (default.provider.host.as_str(), default.model.as_str()),
        ("api.anthropic.com:443", "claude-sonnet-4-6")
    );
    assert_eq!(
        default.provider.key.as_ref().map(ToString::to_string).as_deref(),
        Some("env:ANTHROPIC_API_KEY")
    );
    let planner = routes.route(ModelRole::Planner);
    assert_eq!((planner.provider.host.as_str(), planner.model.as_str()), ("127.0.0.1:11434", "qwen3:8b"));
    assert_eq!(planner.provider.base_url, "http://127.0.0.1:11434/v1/");
    let observer = routes.route(ModelRole::Observer);
    assert_eq!((observer.provider.name.as_str(), observer.model.as_str()), ("openrouter", "meta/llama"));
    assert_eq!(observer.provider.kind, ProviderKind::OpenRouter);
    assert_eq!(routes.all().count(), 3);
}

#[test]
fn providers_that_need_no_table_have_the_formats_and_urls_of_their_documentation() {
    for (name, kind, url, key) in [
        (
            "openai_responses",
            ProviderKind::OpenAiResponses,
            "https://api.openai.com/v1/",
            Some("env:OPENAI_API_KEY"),
        ),
        (
            "openrouter",
            ProviderKind::OpenRouter,
            "https://openrouter.ai/api/v1/",
            Some("env:OPENROUTER_API_KEY"),
        ),
        (
            "gemini",
            ProviderKind::Gemini,
            "https://generativelanguage.googleapis.com/v1beta/",
            Some("env:GEMINI_API_KEY"),
        ),
        ("ollama", ProviderKind::Ollama, "http://127.0.0.1:11434/", None),
        ("lmstudio", ProviderKind::OpenAi, "http://127.0.0.1:1234/v1/", None),
        ("llamacpp", ProviderKind::OpenAi, "http://127.0.0.1:8080/v1/", None),
        ("vllm", ProviderKind::OpenAi, "http://127.0.0.1:8000/v1/", None),
    ] {
        let routes = routes(&format!("[models]\ndefault = \"{name}/m\"\n")).expect("resolves");
        let provider = &routes.route(ModelRole::Proxy).provider;
        assert_eq!((provider.kind, provider.base_url.as_str()), (kind, url), "{name}");
        assert_eq!(provider.key.as_ref().map(ToString::to_string).as_deref(), key, "{name}");
        // The kind may be named for a server elsewhere too.
        if key.is_some() {
            let text = format!(
                "[models]\ndefault = \"mine/m\"\n[providers.mine]\nkind = \"{name}\"\nbase_url = \"http://h/\"\n"
            );
            let named = self::routes(&text).expect("resolves");
            assert_eq!(named.route(ModelRole::Proxy).provider.kind, kind);
        }
    }
}

#[test]
fn models_of_the_configuration_are_offered_for_texts_and_no_others() {
    let routes = routes(
        "[models]\ndefault = \"openai/a\"\nfallback = [\"openai/b\"]\n\
         [models.roles]\noracle = \"openai/c\"\nscorer = \"openai/a\"\nembedding = \"openai/v\"\n",
    );
    let routes = routes.expect("resolves");
    assert_eq!(routes.offered(), ["openai/a", "openai/b", "openai/c"]);
    assert_eq!(routes.find_offered("openai/c").map(|route| route.model_name()).as_deref(), Ok("openai/c"));
    for other in ["openai/v", "openai/d", "c", ""] {
        assert_eq!(routes.find_offered(other), Err(ModelsConfigError::NotOffered(other.to_owned())));
    }
}

/// Rows: WIN-026
#[test]
fn a_missing_default_is_named_with_three_lines_of_help() {
    let error = routes("[models]\n").expect_err("no default");
    assert!(error.to_string().contains("models.default"));
    let report = error.report();
    assert_eq!(report.exit, Exit::Config);
    assert_eq!(report.hint.lines().count(), 3);
    assert_eq!(
        routes("[models]\ndefault = \"anthropic/claude-opus-4-6\"\n")
            .expect("resolves")
            .route(ModelRole::Oracle)
            .model,
        "claude-opus-4-6"
    );
}

/// Rows: WIN-010 (where each job's calls would go) WIN-027 (its route) WIN-028 (its route)
/// Rows: WIN-029 (its route) SCL-035 (by role)
#[test]
fn each_job_has_its_own_model_and_an_empty_one_the_default() {
    let routes = routes(
        "[models]\ndefault = \"anthropic/claude-sonnet-4-6\"\n[models.roles]\nobserver = \"local/qwen3:8b\"\n\
         oracle = \"anthropic/claude-opus-4-6\"\nembedding = \"local/nomic-embed-text\"\n\
         [providers.local]\nkind = \"openai\"\nbase_url = \"http://127.0.0.1:11434/v1/\"\n",
    )
    .expect("resolves");
    let (local, cloud) = ("127.0.0.1:11434", "api.anthropic.com:443");
    for (role, host, model) in [
        (ModelRole::Executor, cloud, "claude-sonnet-4-6"),
        (ModelRole::Planner, cloud, "claude-sonnet-4-6"),
        (ModelRole::Oracle, cloud, "claude-opus-4-6"),
        (ModelRole::Observer, local, "qwen3:8b"),
        (ModelRole::Embedding, local, "nomic-embed-text"),
    ] {
        let route = routes.route(role);
        assert_eq!((route.provider.host.as_str(), route.model.as_str()), (host, model), "{role}");
    }
}

/// Rows: WIN-073 WIN-080
/// Rows: WIN-074 (in part: the routes)
/// Rows: WIN-084 (in part: the override and where it falls back to)
/// Rows: WIN-081 (in part: the default model ends the list of every role)
#[test]
fn a_skill_counts_before_a_role_a_role_before_its_tier_and_a_tier_before_the_default() {
    let all = [
        "[models]\ndefault = \"ollama/default\"",
        "[models.tiers]\nreasoning = \"ollama/tier\"",
        "[models.roles]\nplanner = \"ollama/role\"",
        "[models.skills]\ndeploy_check = \"ollama/skill\"",
    ];
    let names = |set: &[usize], skill: Option<&str>, role| -> Vec<String> {
        let text: Vec<&str> = set.iter().map(|index| all[*index]).collect();
        let routes = routes(&text.join("\n")).expect("resolves");
        routes.chain_for(skill, role).all().map(|route| route.model.clone()).collect()
    };
    let skill = Some("deploy_check");
    for (set, skill, expected) in [
        (&[0, 1, 2, 3][..], skill, &["skill", "default"][..]),
        (&[0, 1, 2, 3], None, &["role", "default"]),
        (&[0, 1, 2, 3], Some("another_skill"), &["role", "default"]),
        (&[0, 1, 2], skill, &["role", "default"]),
        (&[0, 1, 3], skill, &["skill", "default"]),
        (&[0, 1], skill, &["tier", "default"]),
        (&[0, 3], skill, &["skill", "default"]),
        (&[0, 2], None, &["role", "default"]),
        (&[0], skill, &["default"]),
    ] {
        assert_eq!(names(set, skill, ModelRole::Planner), expected, "{set:?} {skill:?}");
    }
    // The tier is for its own roles alone, and vectors of another model are of no use.
    assert_eq!(names(&[0, 1, 2, 3], None, ModelRole::Oracle), ["tier", "default"]);
    assert_eq!(names(&[0, 1, 2, 3], None, ModelRole::Executor), ["default"]);
    let embedding = "[models]\ndefault = \"ollama/chat\"\n[models.roles]\nembedding = \"ollama/nomic\"";
    let embedding = routes(embedding).expect("resolves");
    assert_eq!(embedding.chain(ModelRole::Embedding).all().count(), 1, "no chat model makes vectors");
}

/// Rows: WIN-075 (in part: an unknown provider of a skill or a tier fails at the start)
/// Rows: SF-342 (in part: another name of a tier is refused)
#[test]
fn tiers_skills_and_prices_are_checked_like_everything_else() {
    for (text, setting) in [
        ("[models]\ndefault = \"ollama/x\"\n[models.tiers]\nfast = \"zzz/y\"", "models.tiers.fast"),
        ("[models]\ndefault = \"ollama/x\"\n[models.skills]\na = \"zzz/y\"", "models.skills.a"),
    ] {
        let error = routes(text).expect_err("unknown");
        let ModelsConfigError::UnknownProvider { setting: found, .. } = &error else { panic!("{error}") };
        assert_eq!(found, setting);
    }
    assert!(parsed("[models.tiers]\nslow = \"a/b\"").is_err(), "there is no such tier");
    assert!(parsed("[models.effort]\nplanner = \"utmost\"").is_err(), "there is no such effort");
    assert!(parsed("[models.prices.\"a/b\"]\ninput = -1\noutput = 1").is_err());
    let prices = parsed("[models.prices.nameless]\ninput = 1\noutput = 1").expect("reads").models.prices;
    let error = crate::catalogue::Catalogue::with_own(&prices).expect_err("no provider");
    assert!(error.to_string().contains("models.prices"), "{error}");
}

/// An own price counts before the shipped one, and makes an unknown model's price known.
#[test]
fn own_prices_count_first() {
    let text = "[models.prices.\"anthropic/claude-sonnet-4-6\"]\ninput = 1000000\noutput = 2000000\n\
                [models.prices.\"local/own\"]\ninput = 10\noutput = 20\ncache_read = 1\n";
    let prices = parsed(text).expect("reads").models.prices;
    let catalogue = crate::catalogue::Catalogue::with_own(&prices).expect("prices");
    let price = |provider, model| catalogue.price_at(provider, model, NOW).map(|price| price.input);
    assert_eq!(price("anthropic", "claude-sonnet-4-6"), Some(1_000_000));
    assert_eq!(price("local", "own"), Some(10));
    assert_eq!(price("local", "other"), None);
    let listed = catalogue.prices_at(NOW);
    assert_eq!(listed.iter().filter(|priced| priced.is_own).count(), 2);
    let sonnets = listed.iter().filter(|priced| priced.model == "claude-sonnet-4-6").count();
    assert_eq!(sonnets, 1, "the shipped one is replaced");
    let own = listed.iter().find(|priced| priced.model == "own").expect("listed").price;
    assert_eq!((own.cache_read, own.cache_write), (1, 13), "a quarter more than input, rounded up");
}

/// A name is read when the routes are made, and every use of a provider is of the one instance that was made then.
///
/// Rows: WIN-075
#[test]
fn a_models_name_is_read_at_the_start_and_its_provider_is_made_once() {
    let text = "[models]\ndefault = \"ollama/qwen3:8b\"\n[models.roles]\nplanner = \"ollama/vendor/other:1\"\n\
                [models.skills]\ndeploy_check = \"ollama/third\"\n";
    let config = parsed(text).expect("reads");
    let (models, _runtime) = super::bench::models(&config);
    let first = models.routes().route(ModelRole::Executor);
    assert_eq!((first.provider.name.as_str(), first.model.as_str()), ("ollama", "qwen3:8b"));
    let planner = models.routes().route(ModelRole::Planner);
    assert_eq!((planner.provider.name.as_str(), planner.model.as_str()), ("ollama", "vendor/other:1"));
    for route in models.routes().all().map(|(_, route)| route.clone()).chain([
        models.routes().chain_for(Some("deploy_check"), ModelRole::Executor).first().clone(),
        models.routes().find("ollama/any").expect("a known provider"),
    ]) {
        assert!(Arc::ptr_eq(&route.provider, &first.provider), "{} has an instance of its own", route.model);
    }
    let plan = || models.plan(ModelRole::Executor, Arc::new(request(vec![user("hi")])), NOW).expect("a plan");
    let (one, two) = (plan(), plan());
    assert!(std::ptr::eq(one.provider(), two.provider()), "two calls share it");
    for (wrong, is_known) in [("qwen3", true), ("", true), ("olama/qwen3:8b", false), ("zzz/y", false)] {
        for text in [
            format!("[models]\ndefault = \"{wrong}\"\n"),
            format!("[models]\ndefault = \"ollama/x\"\n[models.roles]\nobserver = \"{wrong}\"\n"),
        ] {
            let error = routes(&text).expect_err("fails at the start");
            let is_right = match is_known {
                // An empty default is none.
                true if text == "[models]\ndefault = \"\"\n" => error == ModelsConfigError::MissingDefault,
                true => matches!(error, ModelsConfigError::BadModel { .. }),
                false => matches!(error, ModelsConfigError::UnknownProvider { .. }),
            };
            assert!(is_right, "{wrong}: {error}");
        }
    }
}

/// The provider of the default model is the one that is named, and a name that is none is answered with those that there are.
///
/// Rows: SCL-145
#[test]
fn a_provider_is_chosen_by_its_name_and_an_unknown_one_is_answered_with_the_known() {
    let chosen = |name: &str| {
        let routes = routes(&format!("[models]\ndefault = \"{name}/some-model\"\n")).expect("resolves");
        let provider = &routes.route(ModelRole::Executor).provider;
        (provider.kind, provider.host.clone())
    };
    assert_eq!(chosen("anthropic"), (ProviderKind::Anthropic, "api.anthropic.com:443".to_owned()));
    assert_eq!(chosen("openai"), (ProviderKind::OpenAi, "api.openai.com:443".to_owned()));
    for unknown in ["zzz", "antropic"] {
        let error = routes(&format!("[models]\ndefault = \"{unknown}/some-model\"\n")).expect_err("unknown");
        let hint = error.report().hint;
        for known in ["anthropic", "openai", "openai_responses", "openrouter", "gemini", "mistral", "ollama"]
        {
            assert!(hint.contains(&format!(" {known},")), "{known}: {hint}");
        }
    }
}

/// A role whose provider is away is served by the default model; the log says so, and the one that is away is not asked again.
///
/// Rows: WIN-081
#[tokio::test]
async fn a_provider_that_is_away_gives_way_to_the_default_model_and_the_log_says_so() {
    for is_down in [true, false] {
        let log = super::log::Captured::default();
        let _guard = tracing::subscriber::set_default(log.subscriber());
        let bench = Bench::with(ProviderKind::OpenAi, list_of_replies([Reply::text("Seen.")]), |config| {
            // A port without a listener, or a key that is not set.
            let mut away = table(ProviderKind::Ollama, "http://127.0.0.1:9/".to_owned());
            away.api_key = (!is_down).then(|| "env:MISSING_KEY".parse().expect("a reference"));
            config.providers.insert("away".into(), away);
            config.models.roles.insert(ModelRole::Observer, "away/qwen3:8b".into());
        })
        .await;
        let mut course = bench.models.start_course(ModelRole::Observer);
        let mut asked = Vec::new();
        let reply = loop {
            let step = bench.models.next(&course, NOW).expect("the default model is left");
            asked.push(step.route.model_name());
            assert!(asked.len() < 10, "{asked:?}");
            let request = Arc::new(request(vec![user("what was said?")]));
            let planned = bench.models.plan_over(&step.route, request, NOW).expect("a plan");
            match bench.attempt(&planned, Default::default()).await.0 {
                Ok(reply) => break reply,
                Err(error) => bench.models.failed(&mut course, &step.route, &error, NOW),
            }
        };
        assert_eq!(reply.text, "Seen.");
        assert_eq!(asked, ["away/qwen3:8b", "scripted/some-model-high"]);
        let lines = log.text();
        let line = lines.lines().find(|line| line.contains("another model is asked")).expect("a line");
        assert!(line.contains("away/qwen3:8b") && line.contains("scripted/some-model-high"), "{line}");
    }
}

/// Rows: SIL-012
/// Rows: WIN-075 (in part: an unknown provider) SCL-145 (in part: an unknown provider)
#[test]
fn an_unknown_provider_fails_at_start_with_the_nearest_right_one() {
    let error = routes("[models]\ndefault = \"antropic/claude\"\n").expect_err("a typing error");
    let expected = ModelsConfigError::UnknownProvider {
        setting: "models.default".into(),
        provider: "antropic".into(),
        nearest: Some("anthropic".into()),
    };
    assert_eq!(error, expected);
    assert!(error.report().hint.contains("anthropic"));
    let error = routes("[models]\ndefault = \"openai/x\"\n[models.roles]\noracle = \"zzz/y\"\n")
        .expect_err("unknown");
    assert!(matches!(error, ModelsConfigError::UnknownProvider { nearest: None, .. }), "{error}");
}

/// Rows: SIL-061 (in part: an unknown role is reported)
#[test]
fn bad_configuration_is_a_typed_error() {
    for text in [
        "[models]\ndefualt = \"a/b\"",
        "[providers.x]\nurl = \"y\"",
        "[models.roles]\nking = \"a/b\"",
        "[providers.x]\nkind = \"telepathy\"",
    ] {
        assert!(parsed(text).is_err(), "{text}");
    }
    let error =
        parsed("[providers.x]\napi_key = \"sk-live-12345678\"").expect_err("a key in the configuration");
    assert!(error.message().contains("secret:NAME"), "{error}");
    assert_eq!(routes("[models]\ndefault = \"\"\n").expect_err("none"), ModelsConfigError::MissingDefault);
    for value in ["claude", "/x", "openai/", "openai/a b"] {
        let error = routes(&format!("[models]\ndefault = \"{value}\"\n")).expect_err("malformed");
        assert!(matches!(error, ModelsConfigError::BadModel { .. }), "{value}: {error}");
    }
    for (provider, setting) in [("base_url = \"http://h/\"", "kind"), ("kind = \"openai\"", "base_url")] {
        let text = format!("[models]\ndefault = \"mine/m\"\n[providers.mine]\n{provider}\n");
        let expected = ModelsConfigError::MissingSetting { provider: "mine".into(), setting };
        assert_eq!(routes(&text), Err(expected));
    }
    for url in ["ftp://h/", "no url", "http://user:pw@h/", "http://h/?a=b", "http://h/#x"] {
        let text = format!(
            "[models]\ndefault = \"mine/m\"\n[providers.mine]\nkind = \"openai\"\nbase_url = \"{url}\"\n"
        );
        assert!(matches!(routes(&text), Err(ModelsConfigError::BadUrl { .. })), "{url}");
    }
}

/// Rows: WIN-050
#[test]
fn a_base_url_may_be_copied_with_its_route() {
    let url = |kind: &str, url: &str| {
        let text = format!(
            "[models]\ndefault = \"mine/m\"\n[providers.mine]\nkind = \"{kind}\"\nbase_url = \"{url}\"\n"
        );
        routes(&text).map(|routes| routes.route(ModelRole::Proxy).provider.base_url.clone())
    };
    for (kind, given, used) in [
        ("openai", "http://h/v1/chat/completions", "http://h/v1/"),
        ("openai", "http://h/v1/chat/completions/", "http://h/v1/"),
        ("openai", "http://h/chat/completions", "http://h/"),
        ("openai", "http://h/v1//", "http://h/v1/"),
        ("openai", "http://h/v1/models", "http://h/v1/"),
        ("openai", "http://h/openai/v1", "http://h/openai/v1/"),
        ("openrouter", "https://h/api/v1/chat/completions", "https://h/api/v1/"),
        ("openai_responses", "https://h/v1/responses", "https://h/v1/"),
        ("anthropic", "https://h/v1/messages", "https://h/v1/"),
        ("ollama", "http://h:11434/api/chat", "http://h:11434/"),
    ] {
        assert_eq!(url(kind, given).as_deref(), Ok(used), "{kind} {given}");
    }
    for (kind, given) in [
        ("openai", "http://h/v1/responses"),
        ("anthropic", "http://h/v1/chat/completions"),
        ("openai_responses", "http://h/v1/chat/completions"),
    ] {
        let error = url(kind, given).expect_err("the route of another kind");
        assert!(error.to_string().contains("route of another kind"), "{error}");
    }
}

/// Rows: SIL-012 WIN-012 WIN-050
/// Rows: WIN-075 (in part: provider and model of a name) SCL-145 (in part: both providers)
/// Rows: SCL-146 (in part: the model of the request) SIL-045 (in part: of proxy and planner)
#[tokio::test]
async fn each_role_reaches_its_own_server_with_its_own_key() {
    let first = ModelServer::start(list_of_replies([Reply::text("first")])).await.expect("a server");
    let second = ModelServer::start(list_of_replies([Reply::text("second")])).await.expect("a server");
    let mut config = ModelsConfig::default();
    config.providers.insert("one".into(), table(ProviderKind::Anthropic, first.base_url()));
    let mut two = table(ProviderKind::OpenAi, second.base_url());
    two.api_key = Some("secret:two".parse().expect("a reference"));
    config.providers.insert("two".into(), two);
    config.models.default = Some("one/model-a".into());
    config.models.roles.insert(ModelRole::Planner, "two/model-b".into());
    let runtime = tempfile::tempdir().expect("a folder");
    let egress =
        writ_egress::Egress::new(&writ_egress::EgressConfig::default(), runtime.path()).expect("egress");
    let keys = [("env:TEST_KEY".to_owned(), "key-one"), ("secret:two".to_owned(), "key-two")];
    let models = Models::new(&config, Arc::new(Keys(keys.into())), Arc::new(egress)).expect("models");
    for (role, server, answer, model, key) in [
        (ModelRole::Proxy, &first, "first", "model-a", "key-one"),
        (ModelRole::Planner, &second, "second", "model-b", "key-two"),
    ] {
        let planned = models.plan(role, Arc::new(request(vec![user("hi")])), NOW).expect("a plan");
        assert_eq!(planned.model_call().host, server.address().to_string());
        let (sender, _receiver) = tokio::sync::mpsc::channel(1);
        let permit = super::door::permit(planned.action()).await;
        let reply =
            models.call(permit, &planned, sender, tokio_util::sync::CancellationToken::new(), NOW).await;
        assert_eq!(reply.expect("an answer").text, answer);
        let recorded = server.recorded_requests();
        let [sent] = recorded.as_slice() else { panic!("one request each, found {}", recorded.len()) };
        assert_eq!(sent.body["model"], model);
        assert_eq!(sent.key_digest, Some(Digest::of_bytes(key.as_bytes()).to_string()));
    }
}

/// Rows: WIN-050
#[test]
fn no_default_key_goes_to_a_url_that_is_not_the_providers_own() {
    let own = routes("[models]\ndefault = \"openai/m\"\n").expect("resolves");
    assert!(own.route(ModelRole::Proxy).provider.key.is_some());
    let foreign =
        routes("[models]\ndefault = \"openai/m\"\n[providers.openai]\nbase_url = \"http://elsewhere/v1/\"\n");
    assert_eq!(foreign.expect("resolves").route(ModelRole::Proxy).provider.key, None);
}

#[tokio::test]
async fn a_server_without_a_key_gets_none() {
    let bench = Bench::with(ProviderKind::OpenAi, list_of_replies([Reply::text("open")]), |config| {
        config.providers.get_mut("scripted").expect("the table").api_key = None;
    })
    .await;
    assert_eq!(bench.ask(request(vec![user("hi")])).await.0.expect("an answer").text, "open");
    assert!(!bench.server.recorded_requests()[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn a_plan_says_what_the_call_is_and_costs_at_most() {
    for kind in ALL {
        let bench =
            Bench::with(kind, list_of_replies([Reply::text("ok").with_usage(1_000, 100)]), |config| {
                let table = config.providers.remove("scripted").expect("the table");
                config.providers.insert("anthropic".into(), table);
                config.models.default = Some("anthropic/claude-sonnet-4-6".into());
            })
            .await;
        let planned = bench.plan(request(vec![user(&"word ".repeat(1_000))]));
        let call = planned.model_call();
        assert_eq!(planned.requested_model(), "anthropic/claude-sonnet-4-6");
        assert!(
            call.input_tokens >= Tokens::new(1_250),
            "5,000 characters and more, found {}",
            call.input_tokens
        );
        assert_eq!(call.max_output_tokens, Tokens::new(1_000));
        let reply =
            bench.attempt(&planned, tokio_util::sync::CancellationToken::new()).await.0.expect("an answer");
        // $3 and $15 per million tokens.
        let cost = bench.models.call_cost(&planned, &reply.usage, NOW).expect("a known price");
        assert_eq!(cost, MicroUsd::new(3_000 + 1_500));
        assert!(call.ceiling.expect("a known price") > cost);
        // Another request, another digest; the same one, the same.
        let other = bench.plan(request(vec![user("else")]));
        assert_ne!(other.model_call().request, call.request);
        assert_eq!(bench.plan(request(vec![user("else")])).model_call(), other.model_call());
    }
}

/// The configured model is the one of the request, and a warning names it if no table knows it. Without a model, or with an empty
/// text in its place, the provider's default model is asked.
///
/// Rows: SCL-146
#[tokio::test]
async fn the_model_of_a_request_is_the_configured_one_or_the_providers_default() {
    let log = super::log::Captured::default();
    let guard = tracing::subscriber::set_default(log.subscriber());
    let bench = Bench::with(ProviderKind::OpenAi, list_of_replies([Reply::text("ok")]), |config| {
        config.models.default = Some("scripted/heron-9".to_owned());
    })
    .await;
    drop(guard);
    assert!(log.text().contains("unknown model") && log.text().contains("heron-9"), "{}", log.text());
    bench.ask(request(vec![user("hi")])).await.0.expect("an answer");
    assert_eq!(bench.server.recorded_requests()[0].body["model"], "heron-9");

    let runtime = tempfile::tempdir().expect("a folder");
    let egress = Arc::new(
        writ_egress::Egress::new(&writ_egress::EgressConfig::default(), runtime.path()).expect("egress"),
    );
    for text in ["", "[models]\ndefault = \"\"\n", "[models]\ndefault = \" \"\n"] {
        let mut config = parsed(text).expect("valid");
        let keys = Arc::new(Keys([("env:OPENAI_API_KEY".to_owned(), "a key")].into()));
        let found = crate::detect::detect_model(&config, keys.as_ref(), &egress).await.expect("found");
        found.put_into(&mut config);
        let models = Models::new(&config, keys, Arc::clone(&egress)).expect("models");
        let planned =
            models.plan(ModelRole::Proxy, Arc::new(request(vec![user("hi")])), NOW).expect("a plan");
        assert_eq!(planned.requested_model(), "openai/gpt-5.2", "{text:?}");
    }
}

/// Rows: SCL-028
/// Rows: SCL-146 (in part: an unknown model warns)
#[tokio::test]
async fn an_unknown_model_has_no_price_cautious_limits_and_a_warning() {
    let log = super::log::Captured::default();
    let guard = tracing::subscriber::set_default(log.subscriber());
    let bench = Bench::new(ProviderKind::OpenAi, list_of_replies([])).await;
    drop(guard);
    let planned = bench.plan(request(vec![user("hi")]));
    assert_eq!(planned.model_call().ceiling, None);
    assert!(!planned.model_info().known);
    assert!(log.text().contains("unknown model"), "{}", log.text());
}
