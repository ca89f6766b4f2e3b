//! Models that are chosen in the page: the first one of a home, and the one of a conversation.

use std::io::Read as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply, ServedFormat};

use super::super::turns::Bench;
use super::Web;

/// More than the bound on a silent server, and less than the time of a model's answer.
const SOON: Duration = Duration::from_secs(20);

/// A server that takes every connection and says nothing.
fn silent_server() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("bound");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let (mut stream, mut some) = (stream, [0; 4096]);
                while stream.read(&mut some).is_ok_and(|bytes| bytes > 0) {}
            });
        }
    });
    port
}

/// A model that passes each of the trial's requests.
fn able(request: &ParsedRequest) -> Reply {
    let asked = request.last_user_text();
    if request.results().count() > 0 {
        Reply::text("42")
    } else if asked.contains("add_numbers") {
        Reply::call("add_numbers", json!({ "a": 17, "b": 25 }))
    } else if asked.contains("JSON") {
        Reply::text("{\"answer\": 42}")
    } else {
        Reply::text("ready")
    }
}

/// A chosen server that is silent is given up soon, and the next choice finds nothing of it.
#[test]
fn a_server_that_accepts_and_is_silent_is_no_first_model_and_keeps_nobody_waiting() {
    let mut bench = Bench::new("openai", able);
    let own = bench.server.base_url_for(ServedFormat::OpenAi);
    bench
        .home
        .env
        .retain(|(name, _)| !name.starts_with("WRIT_MODELS__") && !name.starts_with("WRIT_PROVIDERS__"));
    bench.home.env.push(("WRIT_MODELS__DETECT".to_owned(), "false".to_owned()));
    let web = Web::over(bench, &[]);
    let config = || std::fs::read_to_string(web.bench.home.root().join("config.toml")).expect("reads");
    let before = config();
    let choose = |url: &str| {
        let choice = json!({ "provider": "own", "model": "scripted", "kind": "openai", "base_url": url });
        web.api("POST", "/api/v1/models/setup", &choice)
    };
    let (port, began) = (silent_server(), Instant::now());
    let refused = choose(&format!("http://127.0.0.1:{port}/v1/"));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!((refused.status, refused.code().as_str()), (503, "models.silent"), "{refused:?}");
    let said = &refused.json()["error"];
    let text = said["text"].as_str().expect("a text");
    assert!(text.contains(&format!("127.0.0.1:{port} has not answered within 10 s")), "{said}");
    // Nothing listens here.
    let gone = choose("http://127.0.0.1:1/v1/");
    assert_eq!((gone.status, gone.code().as_str()), (503, "egress.unreachable"), "{gone:?}");
    assert_eq!(config(), before, "nothing was written");
    assert_eq!(web.api("GET", "/api/v1/state", &Value::Null).json()["model"], json!(false));
    let taken = choose(&own);
    assert_eq!((taken.status, &taken.json()["stored"]), (200, &json!(true)), "{taken:?}");
    assert!(config().contains("default = \"own/scripted\""), "{}", config());
}

/// Models by the name at their provider, of the requests that were offered tools: those of the conversation.
fn asked(web: &Web) -> Vec<String> {
    let requests = web.bench.server.recorded_requests().into_iter();
    let of_turns = requests.filter(|request| request.body["tools"].is_array());
    of_turns.map(|request| request.body["model"].as_str().expect("a model").to_owned()).collect()
}

/// A conversation is answered by the model that was chosen for it, as long as the configuration names that; no other can be chosen.
#[test]
fn a_conversation_has_a_model_of_its_own_among_those_of_the_configuration() {
    let bench = Bench::new("openai", |_: &ParsedRequest| Reply::text("Heard."));
    let config = bench.home.root().join("config.toml");
    let plain = std::fs::read_to_string(&config).expect("reads");
    let more = "[models.roles]\noracle = \"test/large\"\nembedding = \"test/vectors\"\n";
    std::fs::write(&config, format!("{plain}\n{more}")).expect("written");
    let web = Web::over(bench, &[]);
    let offered = web.api("GET", "/api/v1/agents", &Value::Null).json();
    assert_eq!(offered["models"], json!(["test/scripted", "test/large"]), "none of them makes vectors");
    let mut socket = web.own_socket("/ws");
    let session = socket.join(None, 0);
    let mut say = |text: &str| {
        socket.say(&json!({ "type": "message", "text": text, "client_id": text }));
        socket.until("message")
    };
    let choose = |web: &Web, model: &Value| {
        web.api("POST", "/api/v1/sessions/agent", &json!({ "session": session, "model": model }))
    };
    say("first");
    let chosen = choose(&web, &json!("test/large"));
    assert_eq!((chosen.status, &chosen.json()["model"]), (200, &json!("test/large")), "{chosen:?}");
    say("second");
    assert_eq!(asked(&web), ["scripted", "large"]);
    let view = web.api("GET", &format!("/api/v1/sessions/{session}/context"), &Value::Null).json();
    assert_eq!(view["model"], "test/large", "{view}");
    for other in ["test/other", "test/vectors", "openai/gpt-5.2", "evil/model", "", "test"] {
        let refused = choose(&web, &json!(other));
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (400, "models.not_offered"),
            "{other}: {refused:?}"
        );
        let hint = refused.json()["error"]["hint"].clone();
        assert_eq!(hint, "these can be chosen: test/scripted, test/large");
    }
    // A copy goes on with it.
    let copy = web.api("POST", "/api/v1/sessions/fork", &json!({ "session": session })).json();
    assert_eq!(copy["model"], "test/large", "{copy}");

    // It counts after a restart, and no longer than it is configured.
    let Web { engine, bench, .. } = web;
    assert_eq!(engine.stop().code, Some(0));
    let web = Web::over(bench, &[]);
    let mut socket = web.own_socket("/ws");
    socket.join(Some(&session), u64::MAX);
    let say = |socket: &mut super::Socket, text: &str| {
        socket.say(&json!({ "type": "message", "text": text, "client_id": text }));
        socket.until("message")
    };
    say(&mut socket, "third");
    assert_eq!(asked(&web), ["scripted", "large", "large"]);
    drop(socket);
    let Web { engine, bench, .. } = web;
    assert_eq!(engine.stop().code, Some(0));
    std::fs::write(&config, &plain).expect("written");
    let web = Web::over(bench, &[]);
    let mut socket = web.own_socket("/ws");
    socket.join(Some(&session), u64::MAX);
    let failed = say(&mut socket, "fourth");
    assert!(
        failed["text"]
            .as_str()
            .expect("a text")
            .contains("the chosen model test/large is not in the configuration"),
        "{failed}"
    );
    assert_eq!(asked(&web).len(), 3, "no other was asked in its place");
    assert_eq!(choose(&web, &Value::Null).json()["model"], Value::Null);
    say(&mut socket, "fifth");
    assert_eq!(asked(&web), ["scripted", "large", "large", "scripted"]);
}
