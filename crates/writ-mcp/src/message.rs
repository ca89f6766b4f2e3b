//! JSON-RPC 2.0, as far as a client needs it.

use serde_json::{Value, json};

use crate::client::VERSION;

/// The longest id of a server's request that is answered, in bytes: it is sent back.
const MAX_ID_BYTES: usize = 256;
/// The longest name of a method that is looked at, in bytes.
const MAX_METHOD_BYTES: usize = 256;
/// The longest text of an error, in characters.
pub(crate) const MAX_ERROR_CHARS: usize = 1_000;

/// The number of the error for a method that is not offered.
pub(crate) const METHOD_NOT_FOUND: i64 = -32_601;

/// The number of the error for what a method does not take.
const INVALID_PARAMS: i64 = -32_602;
/// The request by which a server asks a person.
pub(crate) const ELICITATION: &str = "elicitation/create";

/// A message of a server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Incoming {
    /// An answer to the request with this number.
    Answer { id: u64, result: Result<Value, RpcError> },
    /// A request of its own, with the id that its answer must have.
    Request { id: Value, method: String, params: Value },
    /// News.
    Notification { method: String },
    /// Nothing that means anything here.
    Stray,
}

/// An error in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    /// The server's words, cut.
    pub(crate) message: String,
}

impl Incoming {
    /// Reads one message. Never fails: what is no message is [`Self::Stray`].
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).map_or(Self::Stray, Self::of)
    }

    /// Reads a message from a JSON value.
    pub(crate) fn of(value: Value) -> Self {
        let Value::Object(mut fields) = value else { return Self::Stray };
        // By JSON-RPC a null id is that of an error which belongs to no request.
        let id = fields.remove("id").filter(|id| !id.is_null());
        // A method makes it a request or news, also with other fields beside it.
        if let Some(method) = fields.get("method") {
            let method = method.as_str().filter(|method| method.len() <= MAX_METHOD_BYTES).map(str::to_owned);
            return match (method, id) {
                (Some(method), None) => Self::Notification { method },
                (Some(method), Some(id)) if is_answerable(&id) => {
                    Self::Request { id, method, params: fields.remove("params").unwrap_or_default() }
                }
                (Some(_) | None, _) => Self::Stray,
            };
        }
        // Our ids are numbers; another one was never asked.
        let Some(id) = id.as_ref().and_then(Value::as_u64) else { return Self::Stray };
        // An error counts more than a result that stands beside it.
        if let Some(error) = fields.get("error").filter(|error| !error.is_null()) {
            return Self::Answer { id, result: Err(RpcError::of(error)) };
        }
        match fields.remove("result") {
            Some(result) => Self::Answer { id, result: Ok(result) },
            None => Self::Stray,
        }
    }
}

impl RpcError {
    fn of(error: &Value) -> Self {
        let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
        Self {
            code: error.get("code").and_then(Value::as_i64).unwrap_or_default(),
            // The text is the server's, and goes into an error of ours.
            message: message.chars().take(MAX_ERROR_CHARS).collect(),
        }
    }
}

fn is_answerable(id: &Value) -> bool {
    match id {
        Value::Number(_) => true,
        // The id is sent back as it came, so its size is bounded.
        Value::String(text) => text.len() <= MAX_ID_BYTES,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Returns the greeting. A server may ask a person while a call of it waits; nothing else is offered. It is
/// the same where a server is only looked at: one that sees a client offer less may list other tools than it
/// is pinned with.
pub(crate) fn greeting_params() -> Value {
    json!({
        "protocolVersion": VERSION,
        "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "writ", "version": env!("CARGO_PKG_VERSION") },
    })
}

/// A request.
pub(crate) fn request_line(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// News for the server.
pub(crate) fn notification_line(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

/// Returns the answer to a server's own request: a client that offers nothing answers `ping` and has no
/// roots.
pub(crate) fn answer_request(id: &Value, method: &str) -> Value {
    let why = match method {
        "ping" => return json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
        "roots/list" => return json!({ "jsonrpc": "2.0", "id": id, "result": { "roots": [] } }),
        // Sampling would let a server use the owner's model, and their money, without the door.
        "sampling/createMessage" => "sampling is refused: servers do not use the models of this client",
        ELICITATION => "elicitation is not available here: no person can be asked now",
        _ => "this client has no such method",
    };
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": METHOD_NOT_FOUND, "message": why } })
}

/// The answer to a server's own request.
pub(crate) fn result_line(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// That a server's own request is none.
pub(crate) fn invalid_params(id: &Value, why: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": INVALID_PARAMS, "message": why } })
}

/// A message as a line.
pub(crate) fn message_line(message: &Value) -> Vec<u8> {
    // JSON text has no line ends of its own.
    let mut bytes = message.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let parse = |text: &str| Incoming::parse(text.as_bytes());
        let ok = Incoming::Answer { id: 7, result: Ok(json!({"a": 1})) };
        assert_eq!(parse(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#), ok);
        let refused = RpcError { code: -5, message: "no".into() };
        let error = r#"{"id":7,"error":{"code":-5,"message":"no"}}"#;
        assert_eq!(parse(error), Incoming::Answer { id: 7, result: Err(refused) });
        let ping = Incoming::Request { id: json!("x"), method: "ping".into(), params: Value::Null };
        assert_eq!(parse(r#"{"id":"x","method":"ping"}"#), ping);
        let news = Incoming::Notification { method: "notifications/progress".into() };
        assert_eq!(parse(r#"{"method":"notifications/progress","id":null}"#), news);
        let odd = [
            "",
            "x",
            "[]",
            "1",
            "{}",
            r#"{"id":7}"#,
            r#"{"id":"7","result":{}}"#,
            r#"{"id":-7,"result":{}}"#,
            r#"{"id":7.5,"result":{}}"#,
            r#"{"id":[1],"method":"ping"}"#,
            r#"{"method":5}"#,
            r#"{"result":{}}"#,
        ];
        for text in odd {
            assert_eq!(parse(text), Incoming::Stray, "{text}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(parse(&deep), Incoming::Stray);
        let long = format!(r#"{{"id":"{}","method":"ping"}}"#, "x".repeat(MAX_ID_BYTES + 1));
        assert_eq!(parse(&long), Incoming::Stray, "what is sent back is bounded");
    }

    #[test]
    fn a_server_may_ask_for_a_sign_of_life_and_for_nothing_else() {
        let asked = |method: &str| answer_request(&json!(3), method);
        assert_eq!(asked("ping"), json!({"jsonrpc": "2.0", "id": 3, "result": {}}));
        assert_eq!(asked("roots/list").pointer("/result/roots"), Some(&json!([])));
        for method in ["sampling/createMessage", "elicitation/create", "tools/list", ""] {
            assert_eq!(asked(method).pointer("/error/code"), Some(&json!(METHOD_NOT_FOUND)), "{method}");
            assert!(asked(method).get("result").is_none(), "{method}");
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-z\"\\\\\u{202e}]{0,8}".prop_map(Value::from),
        ];
        let name = prop_oneof![
            Just("id"),
            Just("method"),
            Just("result"),
            Just("error"),
            Just("code"),
            Just("message")
        ];
        leaf.prop_recursive(4, 32, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn random_bytes_mean_nothing_and_break_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Incoming::parse(&bytes);
        }

        /// Whatever a server sends: an answer has a number of ours, and what is sent back is one line.
        #[test]
        fn what_looks_like_a_message_is_one_or_nothing(value in values()) {
            match Incoming::parse(value.to_string().as_bytes()) {
                Incoming::Answer { id, .. } => prop_assert_eq!(value.get("id").and_then(Value::as_u64), Some(id)),
                Incoming::Request { id, method, .. } => {
                    let sent = message_line(&answer_request(&id, &method));
                    prop_assert_eq!(sent.iter().filter(|byte| **byte == b'\n').count(), 1);
                    prop_assert_eq!(value.get("id"), Some(&id));
                }
                Incoming::Notification { .. } => prop_assert!(value.get("id").is_none_or(Value::is_null)),
                Incoming::Stray => {}
            }
        }
    }
}
