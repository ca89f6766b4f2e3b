//! Operations at an API over HTTP.

use std::sync::Mutex;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use tokio::net::TcpListener;

use super::*;

/// A request, as it came: method, address, credential, idempotency key, body.
type SeenRequest = (String, String, Option<String>, Option<String>, Value);

#[derive(Clone)]
struct ApiServer(Arc<(u16, String, Mutex<Vec<SeenRequest>>)>);

async fn answer(
    State(server): State<ApiServer>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let seen =
        (method.to_string(), uri.to_string(), header("authorization"), header("idempotency-key"), body);
    server.0.2.lock().expect("a lock").push(seen);
    (StatusCode::from_u16(server.0.0).expect("a status"), server.0.1.clone())
}

/// Starts an API, and returns it with the configuration that names it.
async fn start(status: u16, body: &str) -> (ApiServer, String) {
    let server = ApiServer(Arc::new((status, body.to_owned(), Mutex::default())));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new().fallback(answer).with_state(server.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (server, format!("apis.payments = {{ url = \"http://{address}/base\", credential = \"planted\" }}"))
}

impl ApiServer {
    fn seen(&self) -> Vec<SeenRequest> {
        self.0.2.lock().expect("a lock").clone()
    }
}

const OPERATIONS: &str = r#"
[[operation]]
name = "refund"
idempotency = "request"
parameters = { order = {}, amount = { role = "amount" }, reason = { optional = true } }
[operation.target.http]
api = "payments"
method = "POST"
path = "/v1/refunds/{order}"
body = { customer = "{customer}", amount = "{amount}", text = "why: {reason}", reason = "{reason}", request = "{request}", fixed = [1, true] }
result = { id = "/refund/id", email = "/customer/email" }
[operation.personal]
email = "email"

[[operation]]
name = "list"
parameters.q = {}
[operation.target.http]
api = "payments"
method = "GET"
path = "/v1/list"
query = { customer = "{customer}", q = "{q}" }
rows = "/items"
result = { name = "/name" }
"#;

/// A listed template works; values stay values of their place, and what the answer has besides declared columns is left
/// out.
///
/// Rows: SLO-063
#[tokio::test]
async fn a_request_is_its_template_and_its_values() {
    let (server, config) =
        start(200, r#"{"refund": {"id": 5}, "customer": {"email": "a@b.example", "iban": "DE1"}}"#).await;
    let world = World::new(OPERATIONS, &config);
    let result =
        world.perform("refund", "7", json!({ "order": "../a?b#c/d", "amount": 5 })).await.expect("a result");
    assert_eq!(result.changed, 1);
    let row: Vec<_> = result.rows.concat();
    assert_eq!(
        row[0],
        ("email".to_owned(), json!("a@b.example"), Some(writ_operations::PersonalKind::Email))
    );
    assert_eq!(row[1], ("id".to_owned(), json!(5), None));
    assert_eq!(row.len(), 2);
    for text in HOSTILE {
        world
            .perform("refund", "7", json!({ "order": "o", "amount": 5, "reason": text }))
            .await
            .expect("a result");
    }
    let seen = server.seen();
    assert_eq!(
        seen[0],
        (
            "POST".to_owned(),
            "/base/v1/refunds/..%2Fa%3Fb%23c%2Fd".to_owned(),
            Some("Bearer pl4nted-s3cret".to_owned()),
            Some("key-1".to_owned()),
            json!({ "customer": "7", "amount": 5, "text": "why: ", "reason": null, "request": "key-1", "fixed": [1, true] }),
        )
    );
    for (text, request) in HOSTILE.iter().zip(&seen[1..]) {
        assert_eq!(request.1, "/base/v1/refunds/o");
        assert_eq!(request.4["reason"], json!(text));
        assert_eq!(request.4["text"], json!(format!("why: {text}")));
    }
    // A segment that would be another place is none.
    for order in ["..", ".", ""] {
        let what = not_performed(world.perform("refund", "7", json!({ "order": order, "amount": 5 })).await);
        assert!(what.contains("path"), "{what}");
    }
    assert_eq!(server.seen().len(), 1 + HOSTILE.len());
}

/// Rows of an answer are read, bounded, and an answer that is no JSON has none.
#[tokio::test]
async fn rows_of_an_answer_are_bounded() {
    let items = (0..2_000).map(|n| json!({ "name": n, "other": "x" })).collect::<Vec<_>>();
    let (server, config) = start(200, &json!({ "items": items }).to_string()).await;
    let world = World::new(OPERATIONS, &config);
    let result = world.perform("list", "a&b", json!({ "q": "1&customer=8" })).await.expect("a result");
    assert_eq!((result.rows.len(), result.truncated, result.changed), (1_000, true, 0));
    assert_eq!(server.seen()[0].1, "/base/v1/list?customer=a%26b&q=1%26customer%3D8");
    let (_, config) = start(200, "<html>").await;
    let result =
        World::new(OPERATIONS, &config).perform("list", "7", json!({ "q": "" })).await.expect("a result");
    assert_eq!(result.rows.len(), 0);
}

/// What did not happen and what is unknown are told apart.
#[tokio::test]
async fn an_outcome_is_unknown_only_where_it_can_have_happened() {
    let refund = json!({ "order": "o", "amount": 5 });
    for (status, is_unknown) in
        [(400, false), (404, false), (422, false), (408, true), (500, true), (503, true), (302, true)]
    {
        let (_, config) = start(status, "{}").await;
        let world = World::new(OPERATIONS, &config);
        let result = world.perform("refund", "7", refund.clone()).await;
        assert_eq!(matches!(result, Err(PerformError::Unknown { .. })), is_unknown, "{status}: {result:?}");
        let read = world.perform("list", "7", json!({ "q": "" })).await;
        assert!(not_performed(read).contains(&status.to_string()));
    }
    // A port that nothing listens on, and a server that takes the request and hangs up.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let config = format!("apis.payments.url = \"http://{}\"", listener.local_addr().expect("an address"));
    let world = World::new(OPERATIONS, &config);
    let taking = async {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut bytes = [0; 16];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut bytes).await.expect("a request");
    };
    let (result, ()) = tokio::join!(world.perform("refund", "7", refund.clone()), taking);
    let what = unknown(result);
    assert!(!what.contains("127.0.0.1"), "{what}");
    drop(listener);
    let what = not_performed(world.perform("refund", "7", refund).await);
    assert!(what.contains("reached"), "{what}");
}
