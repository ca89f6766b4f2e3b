//! `/v1` as real clients call it: their official libraries, and the requests that they are known to send.

use std::path::{Path, PathBuf};

use super::*;

/// The answer of the scripted model.
const TEXT: &str =
    "The first sentence is said. Then comes another one, so that there is something to stream.";

fn web() -> Web {
    Web::with(calls(Vec::new(), TEXT), &[])
}

fn completion(more: &Value) -> Value {
    let mut body = json!({ "model": "writ", "messages": [{ "role": "user", "content": "hello" }] });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

/// The data of a stream of events, as JSON.
fn chunks(answer: &Answer) -> Vec<Value> {
    let data = answer.body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).expect("JSON")).collect()
}

#[test]
fn every_error_below_v1_has_message_type_code_and_param() {
    let web = web();
    let bearer = web.bearer();
    let own = ("Authorization", bearer.as_str());
    let json_type = ("Content-Type", "application/json");
    let good = completion(&json!({})).to_string();
    let large = "x".repeat(8 * 1024 * 1024 + 1);
    let path = "/v1/chat/completions";
    for (method, path, headers, body, status, kind) in [
        ("GET", "/v1/models", &[][..], "", 401, "authentication_error"),
        (
            "POST",
            path,
            &[("Authorization", "Bearer wrong"), json_type][..],
            &good,
            401,
            "authentication_error",
        ),
        ("GET", "/v1/nothing", &[own], "", 404, "not_found_error"),
        ("POST", "/v1/embeddings", &[own, json_type], "{}", 404, "not_found_error"),
        ("GET", "/v1/models/other", &[own], "", 404, "not_found_error"),
        ("GET", path, &[own], "", 405, "invalid_request_error"),
        ("DELETE", "/v1/models/writ", &[own], "", 405, "invalid_request_error"),
        ("POST", path, &[own, json_type], &large, 413, "invalid_request_error"),
        ("POST", path, &[own, ("Content-Type", "text/plain")], &good, 415, "invalid_request_error"),
        ("POST", path, &[own, json_type], "{", 400, "invalid_request_error"),
        ("POST", path, &[own, json_type], "[]", 400, "invalid_request_error"),
        ("POST", "/v1/responses", &[own, json_type], "null", 400, "invalid_request_error"),
        ("GET", "/v1/models", &[own, ("Origin", "https://evil.example")], "", 403, "permission_error"),
    ] {
        let answer = web.ask(method, path, headers, body);
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        let error = &answer.json()["error"];
        assert_eq!(error["type"], kind, "{method} {path}: {answer:?}");
        for name in ["message", "code", "hint"] {
            assert!(error[name].as_str().is_some_and(|text| !text.is_empty()), "{name}: {answer:?}");
        }
        assert!(error.get("param").is_some(), "{answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/json"), "{answer:?}");
    }
    // Other interfaces keep their form.
    assert!(web.ask("GET", "/api/v1/state", &[], "").json()["error"].get("message").is_none());
}

#[test]
fn one_model_can_be_read_by_each_of_its_names() {
    let web = web();
    for model in web.api("GET", "/v1/models", &Value::Null).json()["data"].as_array().expect("models") {
        let id = model["id"].as_str().expect("an id");
        let read = web.api("GET", &format!("/v1/models/{id}"), &Value::Null);
        assert_eq!((read.status, &read.json()), (200, model));
    }
    let unknown = web.api("GET", "/v1/models/gpt-4o", &Value::Null);
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "model.unknown"));
}

#[test]
fn null_is_left_out_and_what_is_not_supported_is_refused_by_name() {
    let web = web();
    let nulls = json!({
        "stream": null, "stream_options": null, "user": null, "n": null, "tools": null, "tool_choice": null,
        "functions": null, "function_call": null, "response_format": null, "stop": null, "max_tokens": null,
        "max_completion_tokens": null, "logprobs": null, "top_logprobs": null, "logit_bias": null,
        "temperature": null, "seed": null, "store": null, "metadata": null, "parallel_tool_calls": null,
        "messages": [
            { "role": "developer", "content": [{ "type": "text", "text": "Be brief.", "cache_control": null }] },
            { "role": "user", "content": "look", "name": null },
            { "role": "assistant", "content": null, "refusal": null, "tool_calls": [
                { "id": "1", "type": "function", "function": { "name": "look", "arguments": "{}" } },
            ] },
            { "role": "tool", "tool_call_id": "1", "content": "seen" },
            { "role": "user", "content": "hello", "tool_calls": null },
        ],
    });
    let answer = web.api("POST", "/v1/chat/completions", &completion(&nulls));
    assert_eq!((answer.status, &answer.json()["choices"][0]["message"]["content"]), (200, &json!(TEXT)));
    let nulls = json!({
        "model": "writ", "input": "hello", "instructions": null, "previous_response_id": null, "stream": null,
        "tools": null, "text": null, "max_output_tokens": null, "include": null, "reasoning": null, "user": null,
    });
    assert_eq!(web.api("POST", "/v1/responses", &nulls).status, 200);
    let asked = web.bench.requests().len();
    for (field, value, param) in [
        ("n", json!(2), "n"),
        ("response_format", json!({ "type": "json_schema", "json_schema": {} }), "response_format"),
        ("tools", json!([{ "type": "function", "function": { "name": "look" } }]), "tools"),
        ("tool_choice", json!("required"), "tool_choice"),
        ("logprobs", json!(true), "logprobs"),
        ("modalities", json!(["audio"]), "modalities"),
        ("surprise", json!(1), "surprise"),
        (
            "messages",
            json!([{ "role": "user", "content": [{ "type": "input_audio", "input_audio": { "data": "x" } }] }]),
            "messages[0].content[0].type",
        ),
        (
            "messages",
            json!([{ "role": "user", "content": "x" }, { "role": "tool", "tool_call_id": "1", "content": "y" }]),
            "messages",
        ),
    ] {
        let refused = web.api("POST", "/v1/chat/completions", &completion(&json!({ field: value })));
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(param)), "{refused:?}");
    }
    let background = json!({ "model": "writ", "input": "x", "background": true });
    let refused = web.api("POST", "/v1/responses", &background);
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("background")));
    assert_eq!(web.bench.requests().len(), asked, "what is refused asks no model");
}

#[test]
fn a_stop_and_a_length_cut_what_is_answered() {
    let web = web();
    for stream in [false, true] {
        for (more, shown, reason) in [
            (json!({ "stop": ["nowhere", " Then"] }), "The first sentence is said.", "stop"),
            (json!({ "max_completion_tokens": 1 }), "The", "length"),
            (json!({ "max_tokens": 1_000 }), TEXT, "stop"),
        ] {
            let mut body = completion(&more);
            body["stream"] = stream.into();
            body["stream_options"] = json!({ "include_usage": true });
            let answer = web.api("POST", "/v1/chat/completions", &body);
            assert_eq!(answer.status, 200, "{answer:?}");
            let (text, ended) = if stream {
                let chunks = chunks(&answer);
                let (last, before) = chunks.split_last().expect("chunks");
                assert!(last["usage"]["total_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{last}");
                assert!(before.iter().all(|chunk| chunk["usage"].is_null()), "{before:?}");
                let choices = || before.iter().map(|chunk| &chunk["choices"][0]);
                let text =
                    choices().filter_map(|choice| choice["delta"]["content"].as_str()).collect::<String>();
                let ended = choices().find_map(|choice| choice["finish_reason"].as_str().map(str::to_owned));
                (text, ended)
            } else {
                let choice = answer.json()["choices"][0].clone();
                let text = choice["message"]["content"].as_str().unwrap_or_default().to_owned();
                (text, choice["finish_reason"].as_str().map(str::to_owned))
            };
            // How much text one token is, is an estimate; the cut is a beginning that is no longer than it.
            let is_cut = reason == "length";
            assert!(
                if is_cut { shown.starts_with(text.get(..3).unwrap_or("?")) } else { text == shown },
                "{text}"
            );
            assert!(!is_cut || text.len() <= 8, "{text}");
            assert_eq!(ended.as_deref(), Some(reason), "{answer:?}");
        }
    }
    let short = json!({ "model": "writ", "input": "hello", "max_output_tokens": 1 });
    let cut = web.api("POST", "/v1/responses", &short).json();
    assert_eq!(
        (&cut["status"], &cut["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
}

/// Runs a client's script against the server and returns the line of JSON that it prints.
#[expect(clippy::disallowed_types, reason = "the test starts the client of the server that it tests")]
fn run(web: &Web, program: &Path, script: &str) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/gateway").join(script);
    let output = std::process::Command::new(program)
        .arg(script)
        .env_clear()
        .env("WRIT_TEST_URL", format!("http://localhost:{}/v1", web.port))
        .env("WRIT_TEST_TOKEN", &web.token)
        .env("WRIT_TEST_MODULES", installed("openai-js"))
        // Without it the library asks the network for prices.
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .output()
        .expect("the client starts");
    assert!(output.status.success(), "{}", text(&output));
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(out.lines().last().unwrap_or_default()).unwrap_or_else(|_| panic!("{out}"))
}

fn installed(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder)
}

/// The first program of this name on the path.
fn found(name: &str) -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "the test looks for the program of its client")]
    let path = std::env::var_os("PATH").expect("a path");
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.exists())
        .expect("on the path")
}

#[test]
fn needs_jsopenai_the_official_client_of_node_talks_and_streams() {
    let web = web();
    let said = run(&web, &found("node"), "client.mjs");
    assert_eq!(said["models"], json!(["writ", "main"]));
    assert_eq!(said["model"], "writ");
    assert_eq!(said["chat"], json!([TEXT, "stop"]));
    assert_eq!((&said["stream"][0], &said["stream"][1]), (&json!(TEXT), &json!("stop")));
    assert!(said["stream"][2].as_u64().is_some_and(|tokens| tokens > 0), "{said}");
    assert_eq!(said["stop"], json!(["The first sentence is said.", "stop"]));
    assert_eq!(said["response"], json!(["completed", TEXT]));
    assert_eq!(said["events"], json!(["response.completed", TEXT]));
    assert_eq!(said["stranger"], json!([401, null]));
    assert_eq!(said["tools"], json!([400, "tools"]));
    assert_eq!(said["format"], json!([400, "response_format"]));
}

#[test]
fn needs_langchain_it_and_litellm_talk_and_stream() {
    let web = web();
    let said = run(&web, &installed("langchain").join("bin/python"), "frameworks.py");
    for name in ["langchain", "litellm"] {
        assert_eq!(said[name]["chat"], TEXT, "{said}");
        assert_eq!(said[name]["stream"], TEXT, "{said}");
        assert!(said[name]["usage"].as_u64().is_some_and(|tokens| tokens > 0), "{said}");
        let refusal = said[name]["tools"].as_str().unwrap_or_default();
        assert!(refusal.contains("'tools' must be left out"), "{said}");
    }
    assert_eq!(said["langchain"]["responses"], TEXT);
}

/// An image of a program's last message reaches the model; one by address is refused, and so is what is no image.
///
/// Rows: SIL-401 (in part: over the API)
#[test]
fn images_and_files_of_a_message_reach_the_model() {
    let web = Web::with(
        |request: &ParsedRequest| {
            let files: Vec<String> = request.files().into_iter().map(|file| file.media).collect();
            Reply::text(&format!(
                "{} {}",
                files.join(","),
                request.last_user_text().lines().next().unwrap_or_default()
            ))
        },
        &[],
    );
    let image = "data:image/png;base64,iVBORw0KGgouLi4uSUVORK5CYII=";
    let pdf = "data:application/pdf;base64,JVBERi0xLjQKc3RhcnR4cmVmCjkKJSVFT0YK";
    let chat = |part: Value| {
        let content = json!([{ "type": "text", "text": "look" }, part]);
        let body = completion(&json!({ "messages": [{ "role": "user", "content": content }] }));
        web.api("POST", "/v1/chat/completions", &body)
    };
    let said =
        |answer: &Answer| answer.json()["choices"][0]["message"]["content"].as_str().map(str::to_owned);
    let seen = chat(json!({ "type": "image_url", "image_url": { "url": image } }));
    assert_eq!(said(&seen).as_deref(), Some("image/png look"), "{seen:?}");
    let read = chat(json!({ "type": "file", "file": { "filename": "a.pdf", "file_data": pdf } }));
    assert_eq!(said(&read).as_deref(), Some("application/pdf look"), "{read:?}");
    let input = json!([{ "role": "user", "content": [
        { "type": "input_text", "text": "look" }, { "type": "input_image", "image_url": image },
    ] }]);
    let body = json!({ "model": "writ", "input": input });
    let response = web.api("POST", "/v1/responses", &body).json();
    assert_eq!(response["output"][0]["content"][0]["text"], "image/png look", "{response}");
    for (url, param) in [
        ("https://example.org/a.png", "messages[0].content[1].image_url.url"),
        ("data:image/png;base64,!!!", "messages[0].content[1].image_url.url"),
        ("data:image/png;base64,QUJD", "messages[0].content[1].image_url.url"),
    ] {
        let refused = chat(json!({ "type": "image_url", "image_url": { "url": url } }));
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(param)), "{refused:?}");
    }
}
