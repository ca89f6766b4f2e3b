//! The methods that change something, from every place that may not call them.

use serde_json::{Value, json};
use writ_runtime::methods::{CallAccess, Method, Verb};
use writ_testkit::model_server::{ParsedRequest, Reply};

use super::super::keys::soon;
use super::super::turns::{Bench, calls};
use super::super::{code, text};
use super::Web;

/// More requests than these tests send.
const UNLIMITED: [(&str, &str); 2] =
    [("WRIT_SERVER__REQUESTS_PER_SEC", "100000"), ("WRIT_SERVER__BURST", "100000")];

/// The methods that change something and are not the terminal's alone.
fn changing_methods() -> Vec<Method> {
    let changes = |method: &&Method| matches!(method.access(), CallAccess::Change(_));
    Method::ALL.iter().filter(changes).copied().collect()
}

/// Every path of a method, with a verb and with names that nothing has.
fn paths(method: Method) -> Vec<(&'static str, String)> {
    let Some(route) = method.route() else { return Vec::new() };
    let verb = match route.verb {
        Verb::Get => "GET",
        Verb::Post => "POST",
        Verb::Delete => "DELETE",
    };
    let concrete = |path: &&str| path.replace("{id}", "x").replace("{seq}", "0").replace("{ref}", "x");
    route.paths.iter().map(|path| (verb, concrete(path))).collect()
}

/// A key that an agent of the fleet was given: it proves what the agent may do, and nothing about a person.
fn agents_key(bench: &Bench, document: &Value, args: &[&str], name: &str) -> String {
    let folder = bench.home.dir.path();
    let (file, out) = (folder.join(format!("{name}.json")), folder.join(name));
    std::fs::write(&file, document.to_string()).expect("written");
    let (file, out) = (file.display().to_string(), out.display().to_string());
    let made = bench.home.run(&[args, &[&file, "--out", &out]].concat());
    assert_eq!(code(&made), 0, "{}", text(&made));
    out
}

/// Other pages, agents with keys of their own, guests and strangers change nothing; the owner's page comes through to the method.
#[test]
fn what_changes_something_is_done_for_the_owners_page_and_programs_alone() {
    let mut bench = Bench::new("openai", calls(Vec::new(), "Yes."));
    // The first model is chosen where there is none: then a change of it would matter most.
    bench
        .home
        .env
        .retain(|(name, _)| !name.starts_with("WRIT_MODELS__") && !name.starts_with("WRIT_PROVIDERS__"));
    bench.home.env.push(("WRIT_MODELS__DETECT".to_owned(), "false".to_owned()));
    let web = Web::over(bench, &UNLIMITED);
    let grant = json!({ "agent": "refund-agent", "capabilities": { "escalate_to": ["manager"] }, "expires": soon(86_400) });
    let base = agents_key(&web.bench, &grant, &["keys", "base", "issue"], "base");
    let case = json!({ "task_id": "one", "customer_token": "cust_tk_1", "case_token": "case_tk_1",
        "granted_by": "router", "expires": soon(1_700) });
    let task = agents_key(&web.bench, &case, &["keys", "task", "mint", "--base", &base], "task");
    let read = |path: &str| std::fs::read_to_string(path).expect("reads").trim().to_owned();
    let tokens = [
        read(&base),
        read(&task),
        "cust_tk_1".to_owned(),
        "case_tk_1".to_owned(),
        "guest:relayed".to_owned(),
    ];

    let own = format!("http://localhost:{}", web.port);
    let (bearer, cookie) = (web.bearer(), web.cookie());
    let entries =
        || web.api("GET", "/api/v1/ledger?limit=1", &Value::Null).json()["entries"][0]["seq"].clone();
    let config = || std::fs::read(web.bench.home.root().join("config.toml")).expect("reads");
    let before = (entries(), config());
    let methods = changing_methods();
    assert!(methods.len() >= 32, "{methods:?}");
    let json_type = ("Content-Type", "application/json");
    let (mut over_http, mut over_sockets) = (0, 0);
    for method in &methods {
        for (verb, path) in paths(*method) {
            let asked =
                |headers: &[(&str, &str)]| web.ask(verb, &path, &[headers, &[json_type]].concat(), "{}");
            for origin in ["https://evil.example", "null", "http://localhost:1"] {
                for proof in [("Cookie", cookie.as_str()), ("Authorization", bearer.as_str())] {
                    let refused = asked(&[("Origin", origin), proof]);
                    assert_eq!(
                        (refused.status, refused.code().as_str()),
                        (403, "origin.refused"),
                        "{verb} {path}"
                    );
                }
            }
            // A form of another page says no origin in old browsers, and the cookie comes along.
            for site in ["cross-site", "same-site"] {
                let refused = asked(&[("Cookie", &cookie), ("Sec-Fetch-Site", site)]);
                assert_eq!(refused.status, 403, "{verb} {path} {site}: {refused:?}");
            }
            // What is only read comes by the cookie alone, which browsers send to no other page.
            if verb != "GET" {
                let bare = asked(&[("Cookie", &cookie)]).status;
                assert_eq!(bare, 403, "{verb} {path}: nothing says that the page asks");
            }
            assert_eq!(asked(&[]).status, 401, "{verb} {path}");
            for token in &tokens {
                let refused = asked(&[("Authorization", &format!("Bearer {token}"))]);
                assert!(matches!(refused.status, 401 | 429), "{verb} {path}: {refused:?}");
            }
            let through = asked(&[("Cookie", &cookie), ("Origin", &own)]);
            assert!(!matches!(through.status, 401 | 403 | 429), "twin: {verb} {path}: {through:?}");
            over_http += 1;
        }
        // Without a proof, a socket calls nothing.
        let mut socket = web.socket("/ws", &[]).expect("may prove itself later");
        socket.say(&json!({ "type": "call", "id": 1, "method": method.name(), "params": {} }));
        assert_eq!(socket.hear().expect("said")["code"], "auth.denied", "{}", method.name());
        assert_eq!(socket.closed(), 4401);
        over_sockets += 1;
    }
    for token in &tokens {
        let mut socket = web.socket("/ws", &[]).expect("may prove itself later");
        socket.say(&json!({ "type": "auth", "token": token }));
        assert_eq!(socket.hear().expect("said")["code"], "auth.denied");
        assert_eq!(
            web.socket("/ws", &[("Authorization", &format!("Bearer {token}"))])
                .err()
                .map(|status| matches!(status, 401 | 429)),
            Some(true)
        );
    }
    assert_eq!(
        web.socket("/ws", &[("Origin", "https://evil.example"), ("Cookie", &cookie)]).err(),
        Some(403)
    );
    assert!(over_http > 25 && over_sockets == methods.len(), "{over_http} {over_sockets}");
    assert_eq!((entries(), config()), before, "nothing was done, and nothing written");
}

/// Tries everything that a program could: the server by address and by name, through a proxy if there is one, with the token of the
/// home in hand, and the engine's own socket.
const TRIES: &str = r#"
import socket, urllib.request
reached = []
def ask(opener, host, method, path):
    request = urllib.request.Request("http://%s:%d%s" % (host, PORT, path), b"{}", method=method,
        headers={"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"})
    try:
        opener.open(request, timeout=5)
        return True
    except urllib.error.HTTPError as error:
        # An answer of the server, whatever it says, or of a proxy.
        return error.headers.get("Cross-Origin-Resource-Policy") is not None
    except OSError:
        return False
openers = [urllib.request.build_opener(urllib.request.ProxyHandler({})), urllib.request.build_opener()]
for method, path in PATHS:
    for host in ("127.0.0.1", "localhost", "[::1]"):
        for opener in openers:
            if ask(opener, host, method, path):
                reached.append(path)
try:
    socket.socket(socket.AF_UNIX).connect(SOCKET)
    reached.append(SOCKET)
except OSError:
    pass
print("tried", len(PATHS), "reached", reached)
"#;

/// A program in an agent's sandbox reaches none of them, also if it has got hold of the token.
#[test]
fn needs_userns_needs_python_a_program_of_the_agent_calls_nothing_that_changes_something() {
    let script = std::sync::Arc::new(std::sync::OnceLock::<String>::new());
    let asked = std::sync::Arc::clone(&script);
    let answer = move |request: &ParsedRequest| match request.results().last() {
        None => Reply::call("python_exec", json!({ "script": asked.get().expect("set") })),
        Some(result) => Reply::text(&result.text),
    };
    let web = Web::with(answer, &[]);
    let control = web.bench.home.root().join("runtime/control.sock").display().to_string();
    let all: Vec<(&str, String)> = changing_methods().into_iter().flat_map(paths).collect();
    let listed = serde_json::to_string(&all).expect("JSON");
    let (port, token) = (web.port, &web.token);
    let head = format!("SOCKET = {control:?}\nPORT = {port}\nTOKEN = {token:?}\nPATHS = {listed}\n");
    script.set(format!("{head}{TRIES}")).expect("once");
    let mut socket = web.own_socket("/ws");
    socket.join(None, 0);
    socket.say(&json!({ "type": "message", "text": "try everything", "client_id": "one" }));
    let found = socket.until("message")["text"].clone();
    let expected = format!("tried {} reached []", all.len());
    assert!(found.as_str().expect("a text").contains(&expected), "{found}");
}
