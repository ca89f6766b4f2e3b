//! Case 17, credential misuse: curl, git and pip as people have them use a secret that they never have.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::error::Exit;

use super::super::engine::{Engine, Link};
use super::super::turns::Bench;
use super::super::{code, text};
use super::mirror::Mirror;
use super::packages::{WORD, mirror, results};
use super::{connections, last_request};

/// The secret.
const SECRET: &str = "kq7Zt-planted/secret+9351";
/// What stands in its place wherever it is told.
const MASK: &str = "[masked:secret:depot]";
/// How what programs have in its place begins.
const PLACEHOLDER: &str = "writ_placeholder_";

/// What the owner binds: a token, and the password of a user.
fn bound(port: u16) -> String {
    format!(
        r#"
[[egress.credentials]]
name = "token"
secret = "secret:depot"
host = "depot.test:{port}"
methods = ["GET"]
paths = ["/echo"]
env = "DEPOT_TOKEN"

[[egress.credentials]]
name = "login"
secret = "secret:depot"
host = "depot.test:{port}"
methods = ["GET"]
paths = ["/repo.git/**", "/simple/**"]
user = "me"
env = "DEPOT_PASSWORD"
"#
    )
}

/// What a model has read of a placeholder.
fn placeholder_in(request: &str) -> Option<String> {
    let from = request.find(&format!("{PLACEHOLDER}token_"))?;
    let word = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    Some(request.get(from..)?.chars().take_while(word).collect())
}

/// Threat 17. The twins: curl, git and pip get what they ask for.
///
/// Rows: WIN-411 (in part: of a secret that they use) SIL-342 (in part: it is in no request to a model, no record, no log)
/// Rows: SIL-343
#[test]
fn needs_userns_needs_curl_needs_pip_needs_git_programs_use_a_secret_that_they_never_have() {
    let folder = tempfile::tempdir().expect("a folder");
    let mirror = mirror(&folder.path().join("www"));
    mirror.guard(format!("Basic {}", BASE64_STANDARD.encode(format!("me:{SECRET}"))));
    let (hosts, port, tls) = (mirror.hosts(), mirror.port, mirror.tls_port);
    let base = format!("depot.test:{tls}");
    let sh =
        move |script: String| json!({ "argv": ["sh", "-c", script], "hosts": hosts, "timeout_secs": 120 });
    let scripts = [
        "echo $DEPOT_TOKEN; env | grep -c planted; ls /etc/writ".to_owned(),
        format!("curl -sS -H \"Authorization: Bearer $DEPOT_TOKEN\" https://{base}/echo"),
        format!("git clone -q https://me:$DEPOT_PASSWORD@{base}/repo.git out 2>&1; cat out/word.txt"),
        format!(
            "/usr/bin/python3 -m pip install --target /work/pip --quiet \
             --index-url https://me:$DEPOT_PASSWORD@{base}/simple tiny-wheel 2>&1
             PYTHONPATH=/work/pip /usr/bin/python3 -c 'import tiny_wheel; print(tiny_wheel.WORD)'"
        ),
        format!(
            "t=$DEPOT_TOKEN; c='curl -sS -o /dev/null -w %{{http_code}}_'
             $c -H \"X-Other: $t\" https://{base}/echo
             $c \"https://{base}/echo?t=$t\"
             $c -X DELETE -H \"Authorization: Bearer $t\" https://{base}/echo
             $c -H \"Authorization: Bearer $t\" https://{base}/repo.git/HEAD
             $c -H \"Authorization: Bearer $t\" http://depot.test:{port}/echo
             $c -d \"$t\" http://depot.test:{port}/x"
        ),
    ];
    // What the last of them tries, and the URL that follows.
    let attempts = scripts.last().map_or(0, |script| script.matches("$c ").count()) + 1;
    let fetched = mirror.url("depot", "/took");
    let mut step = 0;
    let script = move |request: &ParsedRequest| {
        step += 1;
        match scripts.get(step - 1) {
            Some(script) => Reply::call("shell_exec", sh(script.clone())),
            None if step == scripts.len() + 1 => {
                let placeholder = placeholder_in(&format!("{:?}", request.messages)).expect("it was read");
                Reply::call("web_fetch", json!({ "url": format!("{fetched}?t={placeholder}") }))
            }
            None => Reply::text("Done."),
        }
    };
    let mut bench = Bench::new("openai", script);
    mirror.list_in(&bench);
    let config = bench.home.root().join("config.toml");
    let lists = std::fs::read_to_string(&config).expect("reads");
    std::fs::write(&config, format!("{lists}{}", bound(tls))).expect("written");
    let authority = folder.path().join("depot.pem");
    std::fs::write(&authority, &mirror.certificate).expect("written");
    bench.home = bench.home.with("SSL_CERT_FILE", authority.to_str().expect("UTF-8"));
    let set = bench.home.run_with(&["secrets", "set", "depot"], SECRET.as_bytes());
    assert_eq!(code(&set), 0, "{}", text(&set));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, Some(&bench.project())).expect("joined");
    // The diff waits, and so does a URL that the model has composed.
    assert_eq!(link.ask("try them", "one").expect("answered").exit, Exit::Waiting);

    let said = results(&bench);
    assert!(said[0].starts_with(&format!("{PLACEHOLDER}token_")), "{said:?}");
    assert!(said[0].ends_with("0\nauthorities.pem\nauthority.pem"), "{said:?}");
    assert!(said[1].contains(&format!("authorization: Bearer {MASK}")), "{said:?}");
    assert!(said[2].contains(WORD) && said[3].contains(WORD), "{said:?}");
    assert_eq!(said[4], "403_403_403_403_403_403_", "{said:?}");
    let asks = link.asks().expect("asks");
    let fetch = asks.iter().find(|card| card.shown.contains("/took")).expect("it asks");
    let approved = text(&bench.home.run(&["approvals", "approve", fetch.ask_id.as_str(), "--yes"]));
    assert!(approved.contains("placeholder of the credential 'token' was not used"), "{approved}");
    let told = mirror.credentials();
    assert!(told.contains(&format!("Bearer {SECRET}")), "the twin: {told:?}");
    assert!(told.iter().all(|value| !value.contains(PLACEHOLDER)), "{told:?}");
    assert!(!mirror.asked().iter().any(|line| line.contains(PLACEHOLDER)), "{:?}", mirror.asked());
    for request in bench.requests() {
        assert!(!request.contains(SECRET), "{request}");
    }
    let made = connections(&bench);
    let rules = |verdict: &str| -> Vec<&str> {
        made.iter().filter(|one| one["verdict"] == verdict).filter_map(|one| one["rule"].as_str()).collect()
    };
    let mut denied = rules("denied");
    denied.sort_unstable();
    assert_eq!(
        denied,
        [
            "credential.host",
            "credential.host",
            "credential.method",
            "credential.path",
            "credential.place",
            "credential.place",
            "credential.place"
        ],
        "{made:?}"
    );
    let used = |name: &str| made.iter().filter(|one| one["credential"] == name).count();
    assert_eq!(used("token"), 1, "{made:?}");
    assert!(used("login") >= 3, "{made:?}");
    let twins = used("token") + said[2..4].iter().filter(|said| said.contains(WORD)).count();
    println!(
        "THREAT 17 attempts={attempts} refused={} entries={0} entry=connected twins={twins}",
        denied.len()
    );
    let ledger = text(&bench.home.run(&["audit", "tail", "-n", "1000", "--json"]));
    assert!(!ledger.contains(SECRET), "{ledger}");
    assert!(!last_request(&bench).contains(&BASE64_STANDARD.encode(format!("me:{SECRET}"))));
    drop(link);
    let ended = engine.stop();
    assert!(!ended.said.contains(SECRET), "{}", ended.said);
    assert_eq!(code(&bench.home.run(&["audit", "verify", "--every-signature"])), 0);
}

/// A program goes on with the secret that there was when it was started; where it was removed meanwhile, the next one has
/// none.
#[test]
fn needs_userns_needs_curl_a_secret_that_is_removed_is_gone_for_the_next_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let mirror = Mirror::start();
    let (hosts, tls, wait) = (mirror.hosts(), mirror.tls_port, mirror.url("depot", "/wait"));
    let curl = format!(
        "curl -sS -o /dev/null -w %{{http_code}} -H \"Authorization: Bearer $DEPOT_TOKEN\" https://depot.test:{tls}/echo"
    );
    let scripts = [format!("curl -sS -o /dev/null {wait}; {curl}"), curl];
    let script = move |request: &ParsedRequest| match scripts.get(request.results().count()) {
        Some(script) => Reply::call("shell_exec", json!({ "argv": ["sh", "-c", script], "hosts": hosts })),
        None => Reply::text("Done."),
    };
    let mut bench = Bench::new("openai", script);
    mirror.list_in(&bench);
    let config = bench.home.root().join("config.toml");
    let lists = std::fs::read_to_string(&config).expect("reads");
    std::fs::write(&config, format!("{lists}{}", bound(tls))).expect("written");
    let authority = folder.path().join("depot.pem");
    std::fs::write(&authority, &mirror.certificate).expect("written");
    bench.home = bench.home.with("SSL_CERT_FILE", authority.to_str().expect("UTF-8"));
    let set = bench.home.run_with(&["secrets", "set", "depot"], SECRET.as_bytes());
    assert_eq!(code(&set), 0, "{}", text(&set));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, Some(&bench.project())).expect("joined");
    std::thread::scope(|scope| {
        let held = mirror.hold();
        let running = scope.spawn(|| link.ask("try it", "one").expect("answered"));
        while !mirror.asked().iter().any(|line| line.contains("/wait")) {
            assert!(!running.is_finished(), "it waits for the host");
            std::thread::yield_now();
        }
        let removed = bench.home.run(&["secrets", "remove", "depot"]);
        assert_eq!(code(&removed), 0, "{}", text(&removed));
        drop(held);
        running.join().expect("ends");
    });
    assert_eq!(results(&bench), ["200", "403"]);
    assert_eq!(mirror.credentials(), [format!("Bearer {SECRET}")]);
    assert!(connections(&bench).iter().any(|one| one["rule"] == "credential.missing"));
    drop(link);
    assert_eq!(engine.stop().code, Some(0));
}

/// What cannot stand is told with its name before anything starts.
#[test]
fn a_credential_that_cannot_stand_is_told() {
    let bench = Bench::new("openai", |_: &ParsedRequest| Reply::text("Done."));
    let config = bench.home.root().join("config.toml");
    let check = |text: &str| {
        std::fs::write(&config, text).expect("written");
        let checked = bench.home.run(&["config", "check"]);
        (code(&checked), super::super::text(&checked))
    };
    let good = bound(8443);
    assert_eq!(check(&good).0, 0, "{}", check(&good).1);
    for (from, to, word) in [
        ("\"GET\"", "\"get\"", "its methods are words such as GET"),
        ("\"/echo\"", "\"echo\"", "its paths begin with '/'"),
        ("depot.test:8443", "*.test", "its host must be one name"),
        ("\"secret:depot\"", "\"kq7Zt-plain-9351\"", "must be a reference"),
        ("env = \"DEPOT_PASSWORD\"", "env = \"DEPOT_TOKEN\"", "another one has this variable"),
        ("user = \"me\"", "user = \"me\"\nplain = true", "must be pinned"),
    ] {
        let (exit, said) = check(&good.replace(from, to));
        assert_eq!(exit, 3, "{to}: {said}");
        assert!(said.contains(word) && !said.contains("kq7Zt-plain"), "{to}: {said}");
    }
}
