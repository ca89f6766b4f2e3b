//! The protocol from the other side: tools of ours, offered to a program that speaks MCP over a pair of streams.
//!
//! Nothing is written before the client's greeting, and nothing but messages. News of the client are never answered, also not such as
//! are unknown. A client may leave out the news that it is ready, as some do. Calls run beside one another, so that a `ping` is answered
//! while one takes its time.

use std::future::Future;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use crate::client::{VERSION, VERSIONS};
use crate::error::McpError;
use crate::line::Lines;
use crate::message::{Incoming, METHOD_NOT_FOUND};

/// The longest message of a client, in bytes.
pub const MAX_REQUEST_BYTES: usize = 1024 * 1024;
/// The most calls that run at once; more are refused.
pub const MAX_CALLS: usize = 16;

/// The numbers of errors, by JSON-RPC and MCP.
const PARSE_ERROR: i64 = -32_700;
const INVALID_REQUEST: i64 = -32_600;
const INVALID_PARAMS: i64 = -32_602;
const NOT_GREETED: i64 = -32_002;
const BUSY: i64 = -32_000;

/// A tool that is offered.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferedTool {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub description: &'static str,
    /// The schema of its arguments.
    pub schema: Value,
}

/// A call that has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallRefusal {
    /// The arguments are none that the tool takes, for this reason.
    Arguments(String),
    /// It has failed, for this reason.
    Failed(String),
}

/// Offers tools to the program at the other end of the streams, until it closes them and its calls have ended.
///
/// # Errors
///
/// If a message is too long, or the streams cannot be used.
pub async fn serve_tools<F>(
    (input, mut output): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    tools: &[OfferedTool],
    call: impl Fn(&'static str, Value) -> F,
) -> Result<(), McpError>
where
    F: Future<Output = Result<Value, CallRefusal>>,
{
    let mut lines = Lines::new(input, MAX_REQUEST_BYTES);
    let mut running = FuturesUnordered::new();
    let (mut is_greeted, mut is_open) = (false, true);
    // What was asked before the end of the input is still answered.
    while is_open || !running.is_empty() {
        let reply = tokio::select! {
            Some(ended) = running.next() => Some(ended),
            line = lines.next_line(), if is_open => match line? {
                None => {
                    is_open = false;
                    None
                }
                Some(line) => match LineReply::of(&line, tools, &mut is_greeted) {
                    LineReply::None => None,
                    LineReply::Now(message) => Some(message),
                    LineReply::Call(id, ..) if running.len() >= MAX_CALLS => {
                        Some(error(&id, BUSY, &format!("{MAX_CALLS} calls run already")))
                    }
                    LineReply::Call(id, tool, arguments) => {
                        let calling = call(tool, arguments);
                        running.push(async move { ended(&id, calling.await) });
                        None
                    }
                },
            },
        };
        if let Some(message) = reply {
            let mut line = message.to_string().into_bytes();
            line.push(b'\n');
            let gone = |why: std::io::Error| McpError::Transport(why.to_string());
            output.write_all(&line).await.map_err(gone)?;
            output.flush().await.map_err(gone)?;
        }
    }
    Ok(())
}

/// The reply to a line.
#[derive(Debug, PartialEq)]
enum LineReply {
    None,
    Now(Value),
    /// That of a tool, once it is done: the id of the request, the tool and its arguments.
    Call(Value, &'static str, Value),
}

impl LineReply {
    fn of(line: &[u8], tools: &[OfferedTool], is_greeted: &mut bool) -> Self {
        let Ok(value) = serde_json::from_slice::<Value>(line) else {
            return Self::Now(error(&Value::Null, PARSE_ERROR, "it is no JSON"));
        };
        let (id, method, params) = match Incoming::of(value) {
            Incoming::Request { id, method, params } => (id, method, params),
            Incoming::Notification { .. } | Incoming::Answer { .. } => return Self::None,
            Incoming::Stray => {
                return Self::Now(error(&Value::Null, INVALID_REQUEST, "it is no request of JSON-RPC 2.0"));
            }
        };
        match method.as_str() {
            "ping" => Self::Now(result(&id, json!({}))),
            "initialize" => {
                *is_greeted = true;
                Self::Now(result(&id, greet(&params)))
            }
            _ if !*is_greeted => Self::Now(error(&id, NOT_GREETED, "`initialize` comes first")),
            "tools/list" => {
                let tools: Vec<Value> = tools.iter().map(describe_tool).collect();
                Self::Now(result(&id, json!({ "tools": tools })))
            }
            "tools/call" => {
                let named = params.get("name").and_then(Value::as_str);
                let found = tools.iter().find(|tool| Some(tool.name) == named);
                let arguments = params.get("arguments").cloned().unwrap_or_else(|| json!({}));
                match found {
                    None => Self::Now(error(&id, INVALID_PARAMS, "there is no tool of this name")),
                    Some(_) if !arguments.is_object() => {
                        Self::Now(error(&id, INVALID_PARAMS, "`arguments` is no object"))
                    }
                    Some(tool) => Self::Call(id, tool.name, arguments),
                }
            }
            _ => Self::Now(error(&id, METHOD_NOT_FOUND, "this method is not offered")),
        }
    }
}

/// The answer to a greeting: in the client's version of the protocol, if that is spoken here.
fn greet(params: &Value) -> Value {
    let asked = params.get("protocolVersion").and_then(Value::as_str);
    let version = VERSIONS.into_iter().find(|version| Some(*version) == asked).unwrap_or(VERSION);
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "writ", "version": env!("CARGO_PKG_VERSION") },
    })
}

fn describe_tool(tool: &OfferedTool) -> Value {
    json!({ "name": tool.name, "description": tool.description, "inputSchema": tool.schema })
}

/// The reply to a call that has ended.
fn ended(id: &Value, outcome: Result<Value, CallRefusal>) -> Value {
    let content = |text: String| json!([{ "type": "text", "text": text }]);
    match outcome {
        Ok(value) => result(id, json!({ "content": content(value.to_string()), "structuredContent": value })),
        Err(CallRefusal::Failed(why)) => result(id, json!({ "content": content(why), "isError": true })),
        Err(CallRefusal::Arguments(why)) => error(id, INVALID_PARAMS, &why),
    }
}

fn result(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt as _, BufReader, duplex, split};

    use super::*;

    const TOOLS: [&str; 2] = ["slow", "fast"];

    fn tools() -> Vec<OfferedTool> {
        let tool = |name| OfferedTool { name, description: "A tool.", schema: json!({ "type": "object" }) };
        TOOLS.map(tool).to_vec()
    }

    /// Sends lines to a server, and returns its answers. The slow tool waits until the fast one has been called.
    async fn talk(lines: &[Value]) -> Vec<Value> {
        let (near, far) = duplex(64 * 1024);
        let fast = tokio::sync::Notify::new();
        let call = async |tool: &'static str, arguments: Value| match tool {
            "slow" => {
                fast.notified().await;
                Ok(json!({ "slow": true }))
            }
            _ if arguments.get("fails").is_some() => Err(CallRefusal::Failed("it has failed".to_owned())),
            _ if arguments.get("odd").is_some() => Err(CallRefusal::Arguments("`odd` is unknown".to_owned())),
            _ => {
                fast.notify_one();
                Ok(json!({ "fast": true }))
            }
        };
        let offered = tools();
        let serving = serve_tools(split(far), &offered, call);
        let (reading, mut writing) = split(near);
        let asking = async {
            for line in lines {
                let text = line.as_str().map_or_else(|| line.to_string(), str::to_owned);
                writing.write_all(format!("{text}\r\n").as_bytes()).await.expect("writes");
            }
            writing.shutdown().await.expect("ends");
            let mut heard = Vec::new();
            let mut lines = BufReader::new(reading).lines();
            while let Some(line) = lines.next_line().await.expect("reads") {
                heard.push(serde_json::from_str(&line).expect("JSON"));
            }
            heard
        };
        let (served, heard) = tokio::join!(serving, asking);
        served.expect("ends well");
        heard
    }

    fn request(id: u64, method: &str, params: Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    }

    fn code(answer: &Value) -> Option<i64> {
        answer["error"]["code"].as_i64()
    }

    /// A client is greeted in its own version of the protocol, or in ours where its is unknown; news are never answered, and what is no
    /// message is answered once. Nothing is offered before the greeting but `ping`.
    #[tokio::test]
    async fn a_client_is_greeted_and_nothing_else_is_said() {
        let heard = talk(&[
            request(1, "tools/list", json!({})),
            request(2, "ping", json!({})),
            request(3, "initialize", json!({ "protocolVersion": "2024-11-05", "capabilities": {} })),
            json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
            json!({ "jsonrpc": "2.0", "method": "notifications/unheard-of" }),
            json!("{ this is no JSON"),
            json!([request(4, "ping", json!({}))]),
            request(5, "prompts/list", json!({})),
            request(6, "initialize", json!({ "protocolVersion": "1999-01-01" })),
        ])
        .await;
        assert_eq!(heard.len(), 7, "{heard:#?}");
        assert_eq!(code(&heard[0]), Some(NOT_GREETED));
        assert_eq!(heard[1], json!({ "jsonrpc": "2.0", "id": 2, "result": {} }));
        assert_eq!(heard[2]["result"]["protocolVersion"], "2024-11-05");
        assert_eq!(heard[2]["result"]["capabilities"], json!({ "tools": {} }));
        assert_eq!(
            [3, 4, 5].map(|n| code(&heard[n])),
            [Some(PARSE_ERROR), Some(INVALID_REQUEST), Some(METHOD_NOT_FOUND)]
        );
        assert_eq!(heard[6]["result"]["protocolVersion"], VERSION);
    }

    /// Tools are listed and called; a wrong call is an error of the protocol, one that fails is a result that says so, and after each the
    /// server goes on. A slow call holds up neither another one nor a `ping`.
    #[tokio::test]
    async fn tools_are_called_beside_one_another() {
        let call = |id, params: Value| request(id, "tools/call", params);
        let heard = talk(&[
            request(1, "initialize", json!({})),
            request(2, "tools/list", json!({})),
            call(3, json!({ "name": "slow" })),
            request(4, "ping", json!({})),
            call(5, json!({ "name": "none" })),
            call(6, json!({ "name": "fast", "arguments": [] })),
            call(7, json!({ "name": "fast", "arguments": { "odd": 1 } })),
            call(8, json!({ "name": "fast", "arguments": { "fails": 1 } })),
            call(9, json!({ "name": "fast" })),
            request(10, "ping", json!({})),
        ])
        .await;
        let of = |id: u64| {
            heard.iter().find(|answer| answer["id"] == id).unwrap_or_else(|| panic!("{id}: {heard:#?}"))
        };
        let names: Vec<&Value> =
            of(2)["result"]["tools"].as_array().expect("tools").iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, TOOLS);
        assert_eq!([5, 6, 7].map(|id| code(of(id))), [Some(INVALID_PARAMS); 3]);
        assert_eq!(
            (&of(8)["result"]["isError"], &of(8)["result"]["content"][0]["text"]),
            (&json!(true), &json!("it has failed"))
        );
        assert_eq!(of(9)["result"]["structuredContent"], json!({ "fast": true }));
        let place = |id: u64| heard.iter().position(|answer| answer["id"] == id);
        assert!(place(4) < place(3) && place(9) < place(3), "the slow one holds up none: {heard:#?}");
        assert!(place(10).is_some());
    }
}
