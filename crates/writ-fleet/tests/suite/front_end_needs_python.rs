//! The front end's server: over a real socket, with agents that are real processes.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_util::sync::CancellationToken;
use writ_fleet::cases::front_end::TokenFile;
use writ_fleet::cases::router::CaseRouter;
use writ_fleet::cases::server::{CasePlaces, CaseServer};
use writ_store::reads::FleetReads as _;
use writ_types::id::SessionId;

use super::support::{Fleet, refund_case};

const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/agent.py");
const TOKEN: &str = "the front end's own";
const CASE: &str = r#"{"customer":"Ada Real","case":"order 17","capability":"refund","message":"hello"}"#;

/// A router with one agent, served.
struct Served {
    fleet: Fleet,
    router: CaseRouter,
    socket: PathBuf,
    token: TokenFile,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Served {
    async fn new() -> Self {
        let fleet = Fleet::new().await;
        let router = fleet.start(vec![fleet.agent("one", 500, &["python3", AGENT, "one"])], &[]).await;
        let (socket, file) = (fleet.folder.path().join("cases.sock"), fleet.folder.path().join("token"));
        let token = TokenFile(file);
        token.write_token(TOKEN, false).expect("written");
        let places = CasePlaces { socket: socket.clone(), listen: None, token: token.clone() };
        let server = CaseServer::bind(places).await.expect("binds");
        let stop = CancellationToken::new();
        let serving = tokio::spawn(server.serve_front_end(router.clone(), stop.clone()));
        Self { fleet, router, socket, token, stop, serving }
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let bearer = format!("authorization: Bearer {TOKEN}\r\n");
        ask_as(&self.socket, (method, path), &bearer, body).await
    }

    async fn open(&self) -> SessionId {
        let (status, opened) = self.ask("POST", "/cases", CASE).await;
        assert_eq!(status, 201, "{opened}");
        opened["id"].as_str().expect("an id").parse().expect("an id")
    }

    async fn end(self) {
        self.stop.cancel();
        self.serving.await.expect("ends");
        assert!(!self.socket.exists());
    }
}

async fn ask_as(socket: &Path, (method, path): (&str, &str), headers: &str, body: &str) -> (u16, Value) {
    let mut stream = UnixStream::connect(socket).await.expect("connects");
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: w\r\nconnection: close\r\ncontent-length: {length}\r\n");
    // A body that is too large is refused before its end: what follows is not read, and the rest of the pipe breaks.
    let _sent = stream.write_all(format!("{head}{headers}\r\n{body}").as_bytes()).await;
    let mut answer = Vec::new();
    let _read = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    (head[9..12].parse().expect("a status"), serde_json::from_str(body).unwrap_or(Value::Null))
}

/// Rows: SLO-015 (in part: who may open) SLO-041 (in part: over HTTP)
#[tokio::test]
async fn the_front_end_alone_is_served_and_a_new_token_counts_at_once() {
    let served = Served::new().await;
    for headers in ["", "authorization: Bearer other\r\n", &format!("authorization: {TOKEN}\r\n")] {
        let (status, refused) = ask_as(&served.socket, ("POST", "/cases"), headers, CASE).await;
        assert_eq!(status, 401, "{refused}");
    }
    let twice = format!("authorization: Bearer {TOKEN}\r\nauthorization: Bearer other\r\n");
    assert_eq!(ask_as(&served.socket, ("POST", "/cases"), &twice, CASE).await.0, 401);
    let id = served.open().await;
    served.fleet.until(id, |all| all.iter().any(|one| one.text == "one says: hello")).await;
    let (status, again) = served.ask("POST", "/cases", CASE).await;
    assert_eq!((status, again["code"].is_string()), (409, true), "{again}");
    assert_eq!(served.ask("POST", "/cases", &" ".repeat(1024 * 1024)).await.0, 413);
    assert_eq!(served.ask("POST", "/cases", "{").await.0, 422);
    assert_eq!(served.ask("GET", "/cases", "").await.0, 403, "a person's");
    let messages = format!("/cases/{id}/messages");
    let (status, listed) = served.ask("GET", &messages, "").await;
    assert_eq!((status, &listed["messages"][0]["text"]), (200, &json!("hello")), "{listed}");
    assert!(served.token.write_token("another", false).is_err(), "one is there");
    served.token.write_token("another", true).expect("written");
    assert_eq!(served.ask("GET", &messages, "").await.0, 401);
    let other = "authorization: Bearer another\r\n";
    assert_eq!(ask_as(&served.socket, ("GET", &messages), other, "").await.0, 200);
    served.end().await;
}

/// A client that hangs up does not leave a case without its holder.
#[tokio::test]
async fn a_request_runs_to_its_end_although_its_client_hangs_up() {
    let served = Served::new().await;
    let mut stream = UnixStream::connect(&served.socket).await.expect("connects");
    let head = format!(
        "POST /cases HTTP/1.1\r\nhost: w\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: {}\r\n\r\n{CASE}",
        CASE.len()
    );
    stream.write_all(head.as_bytes()).await.expect("sends");
    drop(stream);
    let id = loop {
        let open = served.fleet.keys.store().open_fleet_cases(None, 1).await.expect("reads");
        if let Some(case) = open.first() {
            break case.id;
        }
        tokio::task::yield_now().await;
    };
    served.fleet.until_held(id, Some("one")).await;
    served.end().await;
}

/// A token that is replaced ends what it has opened: nothing more is read or said with it.
#[tokio::test]
async fn a_web_socket_ends_with_its_token() {
    let served = Served::new().await;
    let id = served.open().await;
    let mut request = format!("ws://cases/cases/{id}/socket").into_client_request().expect("a request");
    let bearer = format!("Bearer {TOKEN}").parse().expect("a header");
    request.headers_mut().insert("authorization", bearer);
    let stream = UnixStream::connect(&served.socket).await.expect("connects");
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.expect("opens");
    while !matches!(socket.next().await.expect("open").expect("a frame"), Message::Text(text) if text.contains("one says: hello"))
    {
    }
    served.token.write_token("another", true).expect("written");
    socket.send(Message::text(r#"{"text":"more"}"#)).await.expect("sends");
    let next = socket.next().await.expect("an end").expect("a frame");
    assert!(matches!(next, Message::Close(Some(_))), "{next:?}");
    let messages = format!("/cases/{id}/messages");
    let (_, listed) =
        ask_as(&served.socket, ("GET", &messages), "authorization: Bearer another\r\n", "").await;
    let texts: Vec<&str> = listed["messages"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["text"].as_str())
        .collect();
    assert!(texts.contains(&"one says: hello") && !texts.contains(&"more"), "{texts:?}");
    served.end().await;
}

/// Rows: SLO-041 (in part: over a WebSocket)
#[tokio::test]
async fn a_web_socket_has_every_message_of_its_case_and_takes_those_of_the_guest() {
    let served = Served::new().await;
    let id = served.open().await;
    let mut request = format!("ws://cases/cases/{id}/socket").into_client_request().expect("a request");
    let stream = UnixStream::connect(&served.socket).await.expect("connects");
    let refused = tokio_tungstenite::client_async(request.clone(), stream).await;
    assert!(refused.is_err(), "without the token");
    let bearer = format!("Bearer {TOKEN}").parse().expect("a header");
    request.headers_mut().insert("authorization", bearer);
    let stream = UnixStream::connect(&served.socket).await.expect("connects");
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.expect("opens");
    let mut heard: Vec<(u64, String)> = Vec::new();
    let mut was_answered = false;
    loop {
        let frame = socket.next().await.expect("open").expect("a frame");
        match frame {
            Message::Text(text) => {
                let frame: Value = serde_json::from_str(&text).expect("JSON");
                if frame["error"].is_string() {
                    was_answered = true;
                    socket.send(Message::text(r#"{"text":"more"}"#)).await.expect("sends");
                    continue;
                }
                let text = frame["text"].as_str().expect("text").to_owned();
                heard.push((frame["n"].as_u64().expect("a number"), text.clone()));
                match text.as_str() {
                    "one says: hello" => socket.send(Message::text("no JSON")).await.expect("sends"),
                    "one says: more" => {
                        served.router.close_case(id, "the guest has left").await.expect("closes");
                    }
                    _ => {}
                }
            }
            Message::Close(frame) => {
                assert_eq!(frame.map(|frame| u16::from(frame.code)), Some(1000), "it has ended");
                break;
            }
            Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_) => {}
        }
    }
    assert!(was_answered, "what is no message is refused");
    let numbers: Vec<u64> = heard.iter().map(|(n, _)| *n).collect();
    let all: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, all, "each once, in order: {heard:?}");
    let stored = served.fleet.messages(id).await;
    assert_eq!(stored.len(), heard.len());
    served.end().await;
}

/// Rows: SLO-048 (in part: the proxy is away)
#[tokio::test]
async fn a_case_that_ends_while_the_proxy_is_away_is_closed_there_later_and_a_reopened_one_is_not() {
    let served = Served::new().await;
    let (fleet, router) = (&served.fleet, &served.router);
    let closed = || fleet.tokens.closed.lock().expect("no panic").len();
    let id = served.open().await;
    fleet.tokens.away.store(true, Ordering::SeqCst);
    assert_eq!(served.ask("POST", &format!("/cases/{id}/close"), "").await.0, 200);
    assert!(router.close_ended().await.is_err(), "it is away");
    fleet.tokens.away.store(false, Ordering::SeqCst);
    router.close_ended().await.expect("closes");
    assert_eq!(closed(), 1);
    router.close_ended().await.expect("has nothing to do");
    assert_eq!(closed(), 1);
    // The same names give the same tokens: what is open again is not closed for what has ended.
    let id = served.open().await;
    fleet.tokens.away.store(true, Ordering::SeqCst);
    router.close_case(id, "over").await.expect("closes");
    let again = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.tokens.away.store(false, Ordering::SeqCst);
    router.close_ended().await.expect("has nothing to close");
    assert_eq!(closed(), 1);
    router.close_case(again, "over").await.expect("closes");
    assert_eq!(closed(), 2);
    let revoked = fleet.tokens.revoked.lock().expect("no panic").len();
    assert_eq!(revoked, 3, "each key that ended was passed on");
    served.end().await;
}

/// A message waits for the proxy, and nothing else of its case does; a page of messages asks an absent proxy once.
#[tokio::test]
async fn a_proxy_that_does_not_answer_keeps_no_case_from_being_closed() {
    let served = Served::new().await;
    let (fleet, router) = (&served.fleet, &served.router);
    let id = served.open().await;
    for text in ["It is Ada Real", "Ada Real again"] {
        router.add_message(id, text).await.expect("takes it");
    }
    let shown = || async { served.ask("GET", &format!("/cases/{id}/messages"), "").await.1.to_string() };
    let page = shown().await;
    assert!(page.contains("It is Ada Real") && page.contains("Ada Real again"), "{page}");
    let asked = fleet.tokens.restores.swap(0, Ordering::SeqCst);
    assert!(asked >= 2, "{asked}");
    fleet.tokens.away.store(true, Ordering::SeqCst);
    let page = shown().await;
    assert!(page.contains("It is name_tk_ada") && page.contains("name_tk_ada again"), "{page}");
    assert_eq!(fleet.tokens.restores.load(Ordering::SeqCst), 1);
    fleet.tokens.hangs.store(true, Ordering::SeqCst);
    tokio::select! {
        biased;
        added = router.add_message(id, "Are you there?") => panic!("the proxy answers nothing: {added:?}"),
        closed = router.close_case(id, "by the owner") => closed.expect("closes"),
    }
    served.end().await;
}
