//! Keys in a vault server: read once with the first login that works, kept in memory, and nowhere else.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::json;
use writ_testbed::vault_server::{VaultScript, VaultServer};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::digest::Digest;
use writ_types::error::Exit;

use super::engine::{Ended, Engine, Link};
use super::turns::{Bench, calls, wire};
use super::{code, text};

/// The key that lies in the vault.
const VALUE: &str = "a-key-that-only-the-vault-has-4711";
/// Its reference.
const REFERENCE: &str = "vault://kv/team/models#api_key";

fn script() -> VaultScript {
    let fields = json!({ "api_key": VALUE, "number": 7, "empty": "" });
    VaultScript {
        tokens: vec!["good-token".to_owned()],
        app_role: Some(("role-1".to_owned(), "secret-of-role-1".to_owned(), "token-of-role".to_owned())),
        secrets: BTreeMap::from([("kv/team/models".to_owned(), fields)]),
        sealed: false,
    }
}

/// A bench whose model's key lies in a vault, and the vault.
fn bench(
    script: VaultScript,
    model: impl FnMut(&ParsedRequest) -> Reply + Send + 'static,
) -> (Bench, VaultServer) {
    let mut bench = Bench::new("anthropic", model);
    let server = bench.runtime.block_on(VaultServer::start(script)).expect("serves");
    bench.home =
        bench.home.with("WRIT_PROVIDERS__TEST__API_KEY", REFERENCE).with("VAULT_ADDR", &server.address());
    (bench, server)
}

/// The files of the home that hold a text.
fn holding(bench: &Bench, text: &str) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![bench.home.root()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("reads") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                let bytes = std::fs::read(&path).expect("reads");
                if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                    found.push(path);
                }
            }
        }
    }
    found
}

/// Rows: SF-524 SF-526
#[test]
fn needs_userns_a_key_of_the_vault_is_read_once_kept_in_memory_and_masked() {
    let mut looks = calls(vec![("shell_exec", json!({ "argv": ["cat", "leaked.txt"] }))], "Done.");
    let (bench, vault) = bench(script(), move |request: &ParsedRequest| match request.last_user_text() {
        "fail" => Reply::status(400),
        _ => looks(request),
    });
    std::fs::write(bench.project().join("leaked.txt"), VALUE).expect("written");
    let engine = Engine::start(&bench.home, &[("VAULT_TOKEN", "good-token")]).expect("starts");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, Some(&bench.project())).expect("joined");
    assert_eq!(link.ask("look", "one").expect("answered").text, "Done.");
    link.ask("again", "two").expect("answered");
    assert_eq!(link.ask("fail", "three").expect("ended").exit, Exit::Model, "a request that fails");
    assert_eq!(vault.seen_requests(), ["lookup", "read kv/team/models"], "once over the whole run");
    let requests = bench.server.recorded_requests();
    let digest = Digest::of_bytes(VALUE.as_bytes()).to_string();
    assert!(
        requests.len() >= 3 && requests.iter().all(|request| request.key_digest.as_ref() == Some(&digest))
    );
    let bodies = bench.requests().concat();
    assert!(bodies.contains(&format!("[masked:{REFERENCE}]")) && !bodies.contains(VALUE), "{bodies}");
    let ended = engine.stop();
    for secret in [VALUE, "good-token"] {
        assert!(!ended.said.contains(secret), "{}", ended.said);
        assert_eq!(holding(&bench, secret), Vec::<PathBuf>::new());
    }
}

/// The keys of two providers lie in the vault: both are resolved, and each provider is asked with its own.
///
/// Rows: SF-310
#[test]
fn needs_userns_two_providers_have_their_keys_in_the_vault() {
    const OTHER_VALUE: &str = "a-key-of-another-provider-4712";
    let mut both = script();
    both.secrets.insert("kv/team/other".to_owned(), json!({ "key": OTHER_VALUE }));
    let (mut bench, vault) = bench(both, |_: &ParsedRequest| Reply::text("Done."));
    bench.home = bench
        .home
        .with("WRIT_PROVIDERS__OTHER__KIND", "openai")
        .with("WRIT_PROVIDERS__OTHER__BASE_URL", &bench.server.base_url_for(wire("openai")))
        .with("WRIT_PROVIDERS__OTHER__API_KEY", "vault://kv/team/other#key");
    for model in ["test/scripted", "other/scripted"] {
        let env = [("VAULT_TOKEN", "good-token"), ("WRIT_MODELS__DEFAULT", model)];
        let engine = Engine::start(&bench.home, &env).expect("starts");
        let mut link = Link::open(&bench.home).expect("connects");
        link.join(None, Some(&bench.project())).expect("joined");
        assert_eq!(link.ask("look", model).expect("answered").text, "Done.");
        let ended = engine.stop();
        assert!(!ended.said.contains(VALUE) && !ended.said.contains(OTHER_VALUE), "{}", ended.said);
    }
    let reads = vault.seen_requests().into_iter().filter(|one| one.starts_with("read "));
    let own_alone = ["read kv/team/models", "read kv/team/other"];
    assert_eq!(reads.collect::<Vec<_>>(), own_alone, "each run reads the key of the provider that it asks");
    let mut used: Vec<_> =
        bench.server.recorded_requests().into_iter().filter_map(|one| one.key_digest).collect();
    used.dedup();
    let own = [VALUE, OTHER_VALUE].map(|key| Digest::of_bytes(key.as_bytes()).to_string());
    assert_eq!(used, own);
    // A plain key of either ends the start, and nobody sees it.
    for provider in ["TEST", "OTHER"] {
        let name = format!("WRIT_PROVIDERS__{provider}__API_KEY");
        let env = [("VAULT_TOKEN", "good-token"), (name.as_str(), "sk-plain4713")];
        let ended = Engine::start(&bench.home, &env).map(|_| ()).expect_err("refused");
        assert!(ended.code == Some(3) && !ended.said.contains("sk-plain4713"), "{}", ended.said);
    }
}

/// Rows: SF-525
#[test]
fn the_first_login_that_works_is_taken() {
    let begun = |env: &[(&str, &str)], file: Option<&str>| -> (Result<(), Ended>, Vec<String>) {
        let (bench, vault) = bench(script(), calls(Vec::new(), "Done."));
        if let Some(token) = file {
            std::fs::write(bench.home.dir.path().join(".vault-token"), format!("{token}\n"))
                .expect("written");
        }
        let started = Engine::start(&bench.home, env).map(|engine| drop(engine.stop()));
        assert_eq!(holding(&bench, VALUE), Vec::<PathBuf>::new());
        (started, vault.seen_requests())
    };
    let role = [("VAULT_ROLE_ID", "role-1"), ("VAULT_SECRET_ID", "secret-of-role-1")];
    let read = "read kv/team/models";
    let (started, seen) = begun(&[("VAULT_TOKEN", "good-token"), role[0], role[1]], Some("bad-token"));
    assert!(started.is_ok() && seen == ["lookup", read], "the variable first: {seen:?}");
    let (started, seen) = begun(&[("VAULT_TOKEN", "expired-token"), role[0], role[1]], Some("good-token"));
    assert!(started.is_ok() && seen == ["lookup", "lookup", read], "then the file: {seen:?}");
    let (started, seen) = begun(&role, None);
    assert!(started.is_ok() && seen == ["login", read], "then the role: {seen:?}");
    let (started, seen) = begun(&[], None);
    let ended = started.expect_err("nothing to log in with");
    assert!(ended.code == Some(3) && ended.said.contains("VAULT_TOKEN"), "{}", ended.said);
    assert_eq!(seen, Vec::<String>::new());
    let wrong = [("VAULT_TOKEN", "expired-token"), role[0], ("VAULT_SECRET_ID", "wrong-secret")];
    let ended = begun(&wrong, Some("old-token")).0.expect_err("none works");
    let all = "takes none of these: VAULT_TOKEN, ~/.vault-token, AppRole";
    assert!(ended.code == Some(4) && ended.said.contains(all), "{}", ended.said);
    assert!(!ended.said.contains("expired-token") && !ended.said.contains("wrong-secret"));
}

/// Rows: SF-524
#[test]
fn what_cannot_be_read_ends_the_start_and_names_path_and_field_alone() {
    let refused = |reference: &str, script: VaultScript, env: &[(&str, &str)]| {
        let (bench, _vault) = bench(script, calls(Vec::new(), "Done."));
        let token = [("VAULT_TOKEN", "good-token"), ("WRIT_PROVIDERS__TEST__API_KEY", reference)];
        let ended = Engine::start(&bench.home, &[&token[..], env].concat()).map(|_| ()).expect_err("refused");
        assert!(!ended.said.contains(VALUE) && !ended.said.contains("good-token"), "{}", ended.said);
        (ended.code, ended.said)
    };
    for (reference, code, why) in [
        ("vault://kv/team/none#api_key", 3, "vault://kv/team/none#api_key: the vault server has nothing"),
        (
            "vault://kv/team/models#other",
            3,
            "vault://kv/team/models#other: the secret at this path has no such",
        ),
        ("vault://kv/team/models#number", 3, "the field is not a text"),
        ("vault://kv/team/models#empty", 3, "the field is not a text"),
    ] {
        let (ended, said) = refused(reference, script(), &[]);
        assert!(ended == Some(code) && said.contains(why), "{reference}: {said}");
    }
    let (ended, said) = refused(REFERENCE, VaultScript { sealed: true, ..script() }, &[]);
    assert!(ended == Some(10) && said.contains("unseal it"), "{said}");
    let (ended, said) = refused(REFERENCE, script(), &[("VAULT_ADDR", "http://127.0.0.1:1")]);
    assert!(ended == Some(10) && said.contains("does not answer"), "{said}");
    for address in ["http://vault.example:8200", "ftp://x", "http://me:pw@127.0.0.1:8200"] {
        let (ended, said) = refused(REFERENCE, script(), &[("VAULT_ADDR", address)]);
        assert!(ended == Some(3) && said.contains("an https address"), "{address}: {said}");
    }
    let (ended, said) = refused(REFERENCE, script(), &[("VAULT_ADDR", "")]);
    assert!(ended == Some(3) && said.contains("set VAULT_ADDR"), "{said}");
}

/// Rows: SIL-382
/// Rows: SCL-154 (none in the configuration: it is refused)
#[test]
fn a_plain_key_in_the_configuration_is_refused_with_the_command_that_mends_it() {
    let bench = Bench::new("anthropic", calls(Vec::new(), "Done."));
    let config = bench.home.root().join("config.toml");
    let key = |value: &str| format!("[providers.test]\napi_key = \"{value}\"\n");
    std::fs::write(&config, key("sk-plain-1234567890-key")).expect("written");
    let mut home = bench.home;
    home.env.retain(|(name, _)| name != "WRIT_PROVIDERS__TEST__API_KEY");
    let refused = home.run(&["status"]);
    let said = text(&refused);
    assert!(code(&refused) == 3 && said.contains("writ secrets set NAME"), "{said}");
    assert!(!said.contains("sk-plain"), "the value is not repeated: {said}");
    std::fs::write(&config, key("secret:model")).expect("written");
    let stored = home.run_with(&["secrets", "set", "model"], b"sk-plain-1234567890-key");
    assert_eq!(code(&stored), 0, "{}", text(&stored));
    let done = home.run(&["chat", "--new", "-m", "hello"]);
    assert!(text(&done).contains("Done."), "twin: {}", text(&done));
    let digest = Digest::of_bytes(b"sk-plain-1234567890-key").to_string();
    assert_eq!(bench.server.recorded_requests().pop().expect("one").key_digest, Some(digest));
}
