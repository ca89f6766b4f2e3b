//! The scripted provider is as strict as the real ones.

use reqwest::Client;
use serde_json::{Value, json};

use super::{ModelServer, Reply, ReplyFault, ServedFormat, ServerOptions, list_of_replies};

async fn post(server: &ModelServer, path: &str, body: &Value) -> (u16, Value) {
    let client = client();
    let mut request = client.post(format!("{}{path}", server.base_url())).json(body);
    request = match path {
        "messages" => request.header("x-api-key", "k").header("anthropic-version", "2023-06-01"),
        _ => request.bearer_auth("k"),
    };
    let response = request.send().await.expect("an answer");
    (response.status().as_u16(), response.json().await.expect("JSON"))
}

fn anthropic(messages: &Value) -> Value {
    let tool = json!({"name": "search", "input_schema": {"type": "object"}});
    json!({"model": "m", "max_tokens": 10, "tools": [tool], "messages": messages})
}

fn openai(messages: &Value) -> Value {
    json!({"model": "m", "messages": messages})
}

#[expect(clippy::disallowed_methods, reason = "the server under test is asked as any program would ask it")]
fn client() -> Client {
    Client::builder().no_proxy().build().expect("a client")
}

#[tokio::test]
async fn anthropic_requests_are_checked() {
    let server = ModelServer::start(list_of_replies([])).await.expect("a server");
    let call = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "search", "input": {}}]});
    let result = |id: &str| json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "r"}]});
    let hi = json!({"role": "user", "content": "hi"});
    let bad = [
        ("first message", anthropic(&json!([call]))),
        ("without `tool_result`", anthropic(&json!([hi, call]))),
        ("without `tool_result`", anthropic(&json!([hi, call, hi]))),
        ("unexpected `tool_use_id`", anthropic(&json!([hi, call, result("t2")]))),
        ("unexpected `tool_use_id`", anthropic(&json!([hi, result("t1")]))),
        ("must be unique", anthropic(&json!([hi, call, result("t1"), call, result("t1")]))),
        ("Unexpected role", anthropic(&json!([{"role": "system", "content": "x"}]))),
        ("non-empty", anthropic(&json!([{"role": "user", "content": ""}]))),
        ("at least one", anthropic(&json!([]))),
        ("max_tokens", json!({"model": "m", "messages": [hi]})),
        ("model", json!({"max_tokens": 1, "messages": [hi]})),
        ("Extra inputs", json!({"model": "m", "max_tokens": 1, "messages": [hi], "banana": 1})),
        ("Extra inputs", json!({"model": "m", "max_tokens": 1, "messages": [hi], "stream_options": {}})),
    ];
    for (word, body) in bad {
        let (status, answer) = post(&server, "messages", &body).await;
        assert_eq!((status, answer["type"].as_str()), (400, Some("error")), "{body}");
        assert_eq!(answer["error"]["type"], "invalid_request_error");
        assert!(answer["error"]["message"].as_str().is_some_and(|m| m.contains(word)), "{word}: {answer}");
    }
    let (status, answer) = post(&server, "messages", &anthropic(&json!([hi, call, result("t1")]))).await;
    assert_eq!((status, answer["stop_reason"].as_str()), (200, Some("end_turn")));
}

#[tokio::test]
async fn openai_requests_are_checked() {
    let server = ModelServer::start(list_of_replies([])).await.expect("a server");
    let function = json!({"name": "search", "arguments": "{}"});
    let call = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": function}]});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "r"});
    let hi = json!({"role": "user", "content": "hi"});
    let bad = [
        ("did not have response", openai(&json!([hi, call]))),
        ("did not have response", openai(&json!([hi, call, hi]))),
        ("must be a response", openai(&json!([hi, call, result("c2")]))),
        ("must be a response", openai(&json!([hi, result("c1")]))),
        ("must be a response", openai(&json!([hi, call, result("c1"), result("c1")]))),
        ("role", openai(&json!([{"role": "king", "content": "x"}]))),
        ("content", openai(&json!([{"role": "user"}]))),
        ("empty", openai(&json!([]))),
        ("model", json!({"messages": [hi]})),
        ("Unrecognized", json!({"model": "m", "messages": [hi], "system": "x"})),
        ("stream_options", json!({"model": "m", "messages": [hi], "stream_options": {}})),
        ("tools", json!({"model": "m", "messages": [hi], "tools": []})),
    ];
    for (word, body) in bad {
        let (status, answer) = post(&server, "chat/completions", &body).await;
        assert_eq!(status, 400, "{body}");
        assert!(answer["error"]["message"].as_str().is_some_and(|m| m.contains(word)), "{word}: {answer}");
    }
    let (status, answer) = post(&server, "chat/completions", &openai(&json!([hi, call, result("c1")]))).await;
    assert_eq!((status, answer["choices"][0]["finish_reason"].as_str()), (200, Some("stop")));
}

/// Posts to a path below a format's base; returns the status and the error's text, or the whole answer.
async fn post_as(
    server: &ModelServer,
    format: ServedFormat,
    path: &str,
    body: &Value,
) -> (u16, String, Value) {
    let request = client().post(format!("{}{path}", server.base_url_for(format))).json(body);
    let request = if format == ServedFormat::Gemini {
        request.header("x-goog-api-key", "k")
    } else {
        request.bearer_auth("k")
    };
    let response = request.send().await.expect("an answer");
    let (status, answer) = (response.status().as_u16(), response.json::<Value>().await.expect("JSON"));
    let error = answer.pointer("/error/message").or_else(|| answer.get("error")).and_then(Value::as_str);
    (status, error.unwrap_or_default().to_owned(), answer)
}

#[tokio::test]
async fn responses_requests_are_checked() {
    let server = ModelServer::start(list_of_replies([])).await.expect("a server");
    let hi = json!({"role": "user", "content": "hi"});
    let call = json!({"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{}"});
    let result = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "r"});
    let body = |input: Value| json!({"model": "m", "input": input});
    let chat_tool = json!({"type": "function", "name": "a", "function": {"name": "a"}});
    let bad = [
        ("No tool output found", body(json!([hi, call]))),
        ("No tool call found", body(json!([hi, result("c1")]))),
        ("No tool call found", body(json!([hi, call, result("c1"), result("c1")]))),
        ("role", body(json!([{"role": "tool", "content": "x"}]))),
        (
            "output_text",
            body(json!([{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}])),
        ),
        ("input", json!({"model": "m"})),
        ("Unknown parameter: 'messages'", json!({"model": "m", "messages": [hi]})),
        ("max_output_tokens", json!({"model": "m", "input": "hi", "max_output_tokens": 15})),
        ("function", json!({"model": "m", "input": "hi", "tools": [chat_tool]})),
    ];
    for (word, body) in bad {
        let (status, error, _) = post_as(&server, ServedFormat::Responses, "responses", &body).await;
        assert!(status == 400 && error.contains(word), "{word}: {status} {error}");
    }
    let good = body(json!([hi, call, result("c1")]));
    let (status, _, answer) = post_as(&server, ServedFormat::Responses, "responses", &good).await;
    assert_eq!((status, &answer["status"]), (200, &json!("completed")));
}

#[tokio::test]
async fn gemini_requests_are_checked() {
    let server = ModelServer::start(list_of_replies([])).await.expect("a server");
    let path = "models/m:generateContent";
    let hi = json!({"role": "user", "parts": [{"text": "hi"}]});
    let call = json!({"role": "model", "parts": [{"functionCall": {"name": "search", "args": {}}}]});
    let result = |name: &str| {
        let response = json!({"name": name, "response": {"content": "r"}});
        json!({"role": "user", "parts": [{"functionResponse": response}]})
    };
    let said = json!({"role": "model", "parts": [{"text": "so"}]});
    let body = |contents: Value| json!({ "contents": contents });
    let tool = json!({"functionDeclarations": [{"name": "1st", "parametersJsonSchema": {}}]});
    let bad = [
        ("number of function response parts", body(json!([hi, call]))),
        ("number of function response parts", body(json!([hi, call, hi]))),
        ("immediately after a function call turn", body(json!([hi, call, result("other")]))),
        ("immediately after a function call turn", body(json!([hi, result("search")]))),
        ("immediately after a user turn", body(json!([hi, said, call, result("search")]))),
        ("immediately after a user turn", body(json!([call, result("search")]))),
        ("valid role", body(json!([{"role": "system", "parts": [{"text": "x"}]}]))),
        ("must not be empty", body(json!([{"role": "user", "parts": []}]))),
        ("not specified", json!({})),
        ("Unknown name \"model\"", json!({"contents": [hi], "model": "m"})),
        ("Invalid function name", json!({"contents": [hi], "tools": [tool]})),
    ];
    for (word, body) in bad {
        let (status, error, answer) = post_as(&server, ServedFormat::Gemini, path, &body).await;
        assert!(status == 400 && error.contains(word), "{word}: {status} {error}");
        assert_eq!(answer["error"]["status"], "INVALID_ARGUMENT");
    }
    let good = body(json!([hi, call, result("search")]));
    let (status, _, answer) = post_as(&server, ServedFormat::Gemini, path, &good).await;
    assert_eq!((status, &answer["candidates"][0]["finishReason"]), (200, &json!("STOP")));
    let unstreamed = post_as(&server, ServedFormat::Gemini, "models/m:streamGenerateContent", &good).await;
    assert_eq!(unstreamed.0, 404, "a stream is one of server-sent events");
}

#[tokio::test]
async fn ollama_requests_are_checked() {
    let server = ModelServer::start(list_of_replies([])).await.expect("a server");
    let hi = json!({"role": "user", "content": "hi"});
    let call = |arguments: Value| json!({"role": "assistant", "tool_calls": [{"function": {"name": "search", "arguments": arguments}}]});
    let result = json!({"role": "tool", "content": "r"});
    let body = |messages: Value| json!({"model": "m", "stream": false, "messages": messages});
    let bad = [
        ("no tool message", body(json!([hi, call(json!({}))]))),
        ("no tool message", body(json!([hi, call(json!({})), hi]))),
        ("without its call", body(json!([hi, result]))),
        ("without its call", body(json!([hi, call(json!({})), result, result]))),
        ("cannot unmarshal", body(json!([hi, call(json!("{}")), result]))),
        ("invalid role", body(json!([{"role": "king", "content": "x"}]))),
        ("unknown field", json!({"model": "m", "messages": [hi], "max_tokens": 1})),
        ("nothing is asked", body(json!([]))),
    ];
    for (word, body) in bad {
        let (status, error, _) = post_as(&server, ServedFormat::Ollama, "api/chat", &body).await;
        assert!(status == 400 && error.contains(word), "{word}: {status} {error}");
    }
    let good = body(json!([hi, call(json!({})), result]));
    let (status, _, answer) = post_as(&server, ServedFormat::Ollama, "api/chat", &good).await;
    assert_eq!((status, &answer["done"], &answer["done_reason"]), (200, &json!(true), &json!("stop")));
}

#[tokio::test]
async fn keys_and_models_are_checked_and_keys_are_not_kept() {
    let options =
        ServerOptions { key: Some("right".into()), models: vec!["m".into()], ..ServerOptions::default() };
    let server =
        ModelServer::start_with(options, list_of_replies([Reply::text("ok")])).await.expect("a server");
    let hi = json!([{"role": "user", "content": "hi"}]);
    let (status, answer) = post(&server, "messages", &anthropic(&hi)).await;
    assert_eq!((status, answer["error"]["type"].as_str()), (401, Some("authentication_error")));
    let (status, answer) = post(&server, "chat/completions", &openai(&hi)).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (401, Some("invalid_api_key")));
    let client = client();
    let send = |model: &str| {
        let body = json!({"model": model, "messages": hi});
        client.post(format!("{}chat/completions", server.base_url())).bearer_auth("right").json(&body).send()
    };
    assert_eq!(send("other").await.expect("an answer").status().as_u16(), 404);
    assert_eq!(send("m").await.expect("an answer").status().as_u16(), 200);
    let models: Value = client
        .get(format!("{}models", server.base_url()))
        .send()
        .await
        .expect("sent")
        .json()
        .await
        .expect("JSON");
    assert_eq!(models["data"][0]["id"], "m");
    let recorded = server.recorded_requests();
    assert_eq!(recorded.iter().map(|request| request.status).collect::<Vec<_>>(), [401, 401, 404, 200]);
    assert!(!format!("{recorded:?}").contains("right"), "a key was kept");
}

#[tokio::test]
async fn a_script_sees_what_the_model_sees() {
    let script = |request: &super::ParsedRequest| {
        let result = request.results().last().map_or("none", |result| result.text.as_str());
        Reply::text(&format!(
            "{}|{}|{result}|{}",
            request.system,
            request.last_user_text(),
            request.offers_tool("search")
        ))
    };
    let server = ModelServer::start(script).await.expect("a server");
    let tool_use = json!({"type": "tool_use", "id": "t1", "name": "search", "input": {}});
    let tool_result =
        json!({"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "found"}]});
    let mut body = anthropic(&json!([
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [tool_use]},
        {"role": "user", "content": [tool_result]},
    ]));
    body["system"] = json!([{"type": "text", "text": "sys", "cache_control": {"type": "ephemeral"}}]);
    let (_, answer) = post(&server, "messages", &body).await;
    assert_eq!(answer["content"][0]["text"], "sys|hi|found|true");
    let function = json!({"name": "search", "parameters": {"type": "object"}});
    let calls = json!([{"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}]);
    let mut body = openai(&json!([
        {"role": "system", "content": "sys"}, {"role": "user", "content": "hi"},
        {"role": "assistant", "content": null, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
    ]));
    body["tools"] = json!([{"type": "function", "function": function}]);
    let (_, answer) = post(&server, "chat/completions", &body).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "sys|hi|found|true");
}

#[tokio::test]
async fn a_dropped_server_is_gone() {
    let gone =
        list_of_replies([Reply::text("").with_fault(ReplyFault::Status { status: 418, retry_after: None })]);
    let server = ModelServer::start(gone).await.expect("a server");
    let hi = json!([{"role": "user", "content": "hi"}]);
    assert_eq!(post(&server, "messages", &anthropic(&hi)).await.0, 418);
    let url = server.base_url();
    server.stop().await;
    let client = client();
    client.get(format!("{url}models")).send().await.expect_err("nobody listens");
}
