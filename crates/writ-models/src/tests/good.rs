//! Calls that succeed, over all wire formats.

use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, RecordedRequest, Reply, ReplyFault, Stop, list_of_replies};
use writ_types::chat::{ChatMessage, Part, Role, StopReason, ToolCall, ToolSpecs, Usage};
use writ_types::digest::Digest;
use writ_types::error::ToReport as _;
use writ_types::unit::Tokens;

use super::bench::{ALL, Bench, KEY, frame, message, request, result, text, user};
use crate::call::Delta;
use crate::config::{ModelsConfig, ProviderKind, ProviderTable};
use crate::provider::Routes;
use crate::provider::known::WELL_KNOWN;

/// Rows: SCL-010 SCL-017
/// Rows: SIL-296 (in part: the pieces of a model)
#[tokio::test]
async fn text_streams_and_is_whole_at_the_end() {
    for kind in ALL {
        let bench =
            Bench::new(kind, list_of_replies([Reply::text("Hello, wörld of many wörds.").with_usage(12, 7)]))
                .await;
        let (reply, deltas) = bench.ask(request(vec![user("hi")])).await;
        let reply = reply.expect("an answer");
        assert_eq!(reply.text, "Hello, wörld of many wörds.");
        assert_eq!(text(&deltas), reply.text, "the pieces are the whole");
        assert!(deltas.len() > 3, "it was streamed");
        assert_eq!(reply.stop, StopReason::EndTurn);
        assert_eq!(reply.model, "some-model-high", "the provider's own word for the model");
        let usage = Usage { input: Tokens::new(12), output: Tokens::new(7), ..Usage::default() };
        assert_eq!(reply.usage, usage);
    }
}

/// Of at least twenty providers nothing but a key has to be set up, or an address where each account has its own, and each answers a turn in
/// its format. A provider of another name is an error of the configuration.
///
/// Rows: SF-010
#[tokio::test]
async fn every_provider_that_is_known_answers_a_turn() {
    let known = WELL_KNOWN.map(|known| (known.name, known.kind));
    assert!(known.len() >= 20, "{known:?}");
    for name in ["anthropic", "openai", "gemini", "groq", "bedrock", "azure", "ollama"] {
        assert!(known.iter().any(|(known, _)| *known == name), "{name}");
    }
    for (name, kind) in known {
        let bench = Bench::with(kind, list_of_replies([Reply::text("Hello.")]), |config| {
            let scripted = config.providers.remove("scripted").expect("a table");
            config.providers.insert(name.into(), ProviderTable { kind: None, ..scripted });
            config.models.default = Some(format!("{name}/some-model-high"));
        })
        .await;
        let reply =
            bench.ask(request(vec![user("hi")])).await.0.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(reply.text, "Hello.", "{name}");
    }
    for (name, code) in [("nobody/m", "models.unknown_provider"), ("azure/m", "models.unknown_provider")] {
        let mut config = ModelsConfig::default();
        config.models.default = Some(name.into());
        assert_eq!(Routes::new(&config).expect_err("refused").report().code, code, "{name}");
    }
}

#[tokio::test]
async fn usage_tells_cached_tokens_apart() {
    for kind in ALL {
        let mut scripted = Reply::text("ok").with_usage(1_000, 5);
        scripted.cached_tokens = 600;
        scripted.cache_write_tokens = 100;
        let bench = Bench::new(kind, list_of_replies([scripted])).await;
        let usage = bench.ask(request(vec![user("hi")])).await.0.expect("an answer").usage;
        // The others do not say what was written.
        let cache_write = Tokens::new(if kind == ProviderKind::Anthropic { 100 } else { 0 });
        let cache_read = Tokens::new(600);
        assert_eq!(
            usage,
            Usage { input: Tokens::new(1_000), output: Tokens::new(5), cache_read, cache_write }
        );
    }
}

/// Rows: SCL-011 SCL-015 WIN-076
/// Rows: WIN-078 (in part: parallel calls)
#[tokio::test]
async fn tool_calls_come_with_id_name_and_arguments() {
    for kind in ALL {
        let scripted = Reply::text("Let me look.")
            .and_call("file_read", json!({"path": "a/ü.rs", "depth": {"n": 3}}))
            .and_raw_call("search", "");
        let bench = Bench::new(kind, list_of_replies([scripted])).await;
        let (reply, deltas) = bench.ask(request(vec![user("look")])).await;
        let reply = reply.expect("an answer");
        assert_eq!(reply.stop, StopReason::ToolUse);
        assert_eq!(reply.text, "Let me look.");
        let [read, search] = reply.calls.as_slice() else { panic!("two calls, found {:?}", reply.calls) };
        assert_eq!(
            (read.name.as_str(), &read.arguments),
            ("file_read", &json!({"path": "a/ü.rs", "depth": {"n": 3}}))
        );
        assert_eq!((search.name.as_str(), &search.arguments), ("search", &json!({})));
        assert!(!read.id.is_empty() && read.id != search.id);
        assert!(deltas.contains(&Delta::Call { id: read.id.clone(), name: "file_read".into() }));
        if kind == ProviderKind::Anthropic {
            let sent = bench.server.recorded_requests().remove(0);
            assert_eq!((sent.path.as_str(), &sent.body["stream"]), ("/v1/messages", &json!(true)));
            let tools = sent.body["tools"].as_array().expect("tools");
            assert!(!tools.is_empty() && tools.iter().all(|tool| tool["input_schema"]["type"] == "object"));
        }
        // A stream that is cut in the middle of a call is no half call.
        let cut = Reply::default()
            .and_call("file_read", json!({ "path": "a" }))
            .with_fault(ReplyFault::CutAfter(2));
        let bench = Bench::new(kind, list_of_replies([cut])).await;
        assert!(bench.ask(request(vec![user("look")])).await.0.is_err(), "{kind:?}");
    }
}

/// Rows: SCL-015
/// Rows: WIN-078 (in part: malformed arguments)
#[tokio::test]
async fn arguments_that_are_no_json_object_are_kept_for_the_tool_to_refuse() {
    for kind in ALL {
        for raw in ["{\"path\": ", "[1]", "7", "\"path\""] {
            let bench = Bench::new(
                kind,
                list_of_replies([Reply::default().and_raw_call("file_read", raw), Reply::text("ok")]),
            )
            .await;
            let reply = bench.ask(request(vec![user("look")])).await.0.expect("an answer");
            assert_eq!(reply.calls.first().map(|call| &call.arguments), Some(&json!(raw)));
            // And the strict provider accepts the conversation with them in it.
            let call = reply.calls.first().cloned().expect("a call");
            let id = call.id.clone();
            let history = vec![
                user("look"),
                message(Role::Assistant, vec![Part::Call(call)]),
                result(&id, "bad arguments"),
            ];
            let next = bench.ask(request(history)).await.0.expect("accepted");
            assert_eq!(next.text, "ok");
        }
    }
}

/// A model that asks for a file, reads the result and answers from it. It is told nothing else.
fn reader(request: &ParsedRequest) -> Reply {
    match request.results().last() {
        None => Reply::call("file_read", json!({"path": "secret.txt"})),
        Some(result) => Reply::text(&format!("{} said: {}", result.name, result.text)),
    }
}

/// Rows: SCL-010 SCL-025
#[tokio::test]
async fn results_go_back_to_the_model_and_the_offered_tools_are_those_of_the_request() {
    for kind in ALL {
        let bench = Bench::new(kind, reader).await;
        let mut history = vec![user("what is in it?")];
        let first = bench.ask(request(history.clone())).await.0.expect("an answer");
        let call = first.calls.first().cloned().expect("a call");
        let id = call.id.clone();
        history.push(message(Role::Assistant, vec![Part::Call(call)]));
        history.push(result(&id, "forty-two"));
        let second = bench.ask(request(history)).await.0.expect("an answer");
        assert_eq!(second.text, "file_read said: forty-two");
        for recorded in bench.server.recorded_requests() {
            let tools = &recorded.body["tools"];
            let gemini = kind == ProviderKind::Gemini;
            let tools = if gemini { &tools[0]["functionDeclarations"] } else { tools };
            let name = |tool: &serde_json::Value| -> String {
                let name = tool.pointer("/function/name").unwrap_or(&tool["name"]);
                name.as_str().expect("a name").to_owned()
            };
            let names: Vec<String> = tools.as_array().expect("tools").iter().map(name).collect();
            assert_eq!(names, ["file_read", "search"]);
        }
    }
}

/// What runs of real agents leave behind: a call that was cancelled, a result whose call was evicted, a tool
/// that never existed, a conversation whose beginning is gone. Strict providers must accept all of it.
#[tokio::test]
async fn a_damaged_conversation_is_still_accepted() {
    let call = |id: &str, name: &str| {
        Part::Call(ToolCall { id: id.into(), name: name.into(), arguments: json!({"path": "a"}) })
    };
    let damaged: Vec<Vec<ChatMessage>> = vec![
        vec![
            user("go"),
            message(Role::Assistant, vec![call("a", "search")]),
            user("stop, do something else"),
        ],
        vec![
            user("go"),
            message(Role::Assistant, vec![call("a", "search"), call("b", "search")]),
            result("b", "found"),
        ],
        vec![result("gone", "a result without its call"), user("go on")],
        vec![
            user("go"),
            message(Role::Assistant, vec![call("x:1/é", "rm -rf")]),
            result("x:1/é", "unknown tool"),
        ],
        vec![message(Role::Assistant, vec![Part::Text { text: "as I said".into() }]), user("yes")],
        vec![
            user("go"),
            message(Role::Assistant, vec![]),
            user(""),
            message(Role::System, vec![Part::Text { text: "note".into() }]),
        ],
        vec![],
    ];
    for kind in ALL {
        for (index, history) in damaged.iter().enumerate() {
            let bench = Bench::new(kind, list_of_replies([Reply::text("fine")])).await;
            let reply = bench.ask(request(history.clone())).await.0;
            assert_eq!(reply.unwrap_or_else(|e| panic!("case {index} of {kind:?}: {e}")).text, "fine");
        }
        let bench = Bench::new(kind, list_of_replies([Reply::text("fine")])).await;
        let mut without_tools =
            request(vec![user("go"), message(Role::Assistant, vec![call("a", "search")]), result("a", "r")]);
        without_tools.tools = ToolSpecs::default();
        assert_eq!(bench.ask(without_tools).await.0.expect("accepted").text, "fine");
    }
}

/// Rows: SCL-026
#[tokio::test]
async fn stop_reasons_are_unified_over_the_wire() {
    for kind in ALL {
        for (scripted, expected) in [
            (Stop::EndTurn, StopReason::EndTurn),
            (Stop::MaxTokens, StopReason::MaxTokens),
            (Stop::ContentFilter, StopReason::ContentFilter),
            (Stop::Raw("sudden_insight".into()), StopReason::Other("sudden_insight".into())),
        ] {
            let bench = Bench::new(kind, list_of_replies([Reply::text("so").with_stop(scripted)])).await;
            let reply = bench.ask(request(vec![user("hi")])).await.0.expect("an answer");
            assert_eq!(reply.stop, expected);
        }
    }
}

/// Rows: SCL-014 SCL-019 WIN-012 (in part: the header)
/// Rows: SCL-033 SCL-164 (in part: max_tokens, and no temperature)
#[tokio::test]
async fn the_request_on_the_wire_is_what_the_provider_documents() {
    for kind in ALL {
        let bench = Bench::new(kind, list_of_replies([Reply::text("ok")])).await;
        bench.ask(request(vec![user("hi")])).await.0.expect("an answer");
        let recorded = bench.server.recorded_requests();
        let [sent] = recorded.as_slice() else { panic!("one request") };
        assert_eq!(
            sent.key_digest,
            Some(Digest::of_bytes(KEY.as_bytes()).to_string()),
            "the key that was configured"
        );
        check_head(kind, sent);
        check_body(kind, sent);
        assert!(
            !sent.headers.contains_key("accept-encoding"),
            "compressed answers would escape the byte limits"
        );
    }
}

/// Path and headers.
fn check_head(kind: ProviderKind, sent: &RecordedRequest) {
    let (path, key) = match kind {
        ProviderKind::Anthropic => ("/v1/messages", "x-api-key"),
        ProviderKind::OpenAi => ("/v1/chat/completions", "authorization"),
        ProviderKind::OpenAiResponses => ("/v1/responses", "authorization"),
        ProviderKind::OpenRouter => ("/api/v1/chat/completions", "authorization"),
        ProviderKind::Gemini => ("/v1beta/models/some-model-high:streamGenerateContent", "x-goog-api-key"),
        ProviderKind::Ollama => ("/api/chat", "authorization"),
    };
    assert_eq!(sent.path, path);
    for header in ["authorization", "x-api-key", "x-goog-api-key"] {
        assert_eq!(sent.headers.contains_key(header), header == key, "{header} of {kind:?}");
    }
    let header = |name: &str| sent.headers.get(name).map(String::as_str);
    let version = (kind == ProviderKind::Anthropic).then_some("2023-06-01");
    assert_eq!(header("anthropic-version"), version);
    let title = (kind == ProviderKind::OpenRouter).then_some("Writ");
    assert_eq!(header("x-title"), title);
}

/// What the body says beside the conversation.
fn check_body(kind: ProviderKind, sent: &RecordedRequest) {
    let body = &sent.body;
    let output = match kind {
        ProviderKind::Anthropic | ProviderKind::OpenAi | ProviderKind::OpenRouter => &body["max_tokens"],
        ProviderKind::OpenAiResponses => &body["max_output_tokens"],
        ProviderKind::Gemini => &body["generationConfig"]["maxOutputTokens"],
        ProviderKind::Ollama => &body["options"]["num_predict"],
    };
    assert_eq!(*output, 1_000);
    if kind == ProviderKind::Gemini {
        assert!(body.get("model").is_none() && body.get("stream").is_none(), "both stand in the path");
    } else {
        assert_eq!(body["model"], "some-model-high", "the name is sent as it was written");
        assert_eq!(body["stream"], true);
    }
    for effort in ["reasoning_effort", "reasoning", "think"] {
        assert!(body.get(effort).is_none(), "{effort} was not asked for");
    }
    assert!(body.pointer("/generationConfig/thinkingConfig").is_none());
    let chat = matches!(kind, ProviderKind::OpenAi | ProviderKind::OpenRouter);
    assert_eq!(body["stream_options"]["include_usage"] == true, chat);
    assert_eq!(body["usage"]["include"] == true, kind == ProviderKind::OpenRouter);
    if kind == ProviderKind::OpenAiResponses {
        assert_eq!(body["store"], false, "nothing is left with the provider");
        assert_eq!(body["tools"][0]["strict"], false, "optional arguments stay optional");
    }
}

/// The stable part of a prompt stays byte-identical between calls, so that providers can cache it.
#[tokio::test]
async fn system_and_tools_are_byte_identical_between_calls() {
    for kind in ALL {
        let bench = Bench::new(kind, list_of_replies([Reply::text("one"), Reply::text("two")])).await;
        let answered = |text: &str| message(Role::Assistant, vec![Part::Text { text: text.into() }]);
        bench.ask(request(vec![user("a")])).await.0.expect("an answer");
        bench.ask(request(vec![user("a"), answered("one"), user("b")])).await.0.expect("an answer");
        let recorded = bench.server.recorded_requests();
        let stable = |n: usize| {
            let body = &recorded[n].body;
            let system = match kind {
                ProviderKind::Anthropic => body["system"].clone(),
                ProviderKind::OpenAi | ProviderKind::OpenRouter | ProviderKind::Ollama => {
                    body["messages"][0].clone()
                }
                ProviderKind::OpenAiResponses => body["instructions"].clone(),
                ProviderKind::Gemini => body["systemInstruction"].clone(),
            };
            (system.to_string(), body["tools"].to_string())
        };
        assert_eq!(stable(0), stable(1));
        assert!(stable(0).0.contains("You are helpful."));
    }
}

/// Rows: SCL-024
#[tokio::test]
async fn every_role_has_its_place_in_every_format() {
    for kind in ALL {
        let bench = Bench::new(kind, list_of_replies([Reply::text("ok")])).await;
        let call = ToolCall { id: "c1".into(), name: "search".into(), arguments: json!({}) };
        let history = vec![
            user("question"),
            message(Role::Assistant, vec![Part::Text { text: "let me see".into() }, Part::Call(call)]),
            result("c1", "found"),
            user("and?"),
        ];
        bench.ask(request(history)).await.0.expect("an answer");
        let body = bench.server.recorded_requests().remove(0).body;
        let list = match kind {
            ProviderKind::OpenAiResponses => &body["input"],
            ProviderKind::Gemini => &body["contents"],
            ProviderKind::Anthropic
            | ProviderKind::OpenAi
            | ProviderKind::OpenRouter
            | ProviderKind::Ollama => &body["messages"],
        };
        let messages = list.as_array().expect("messages");
        let roles: Vec<&str> =
            messages.iter().filter_map(|m| m["role"].as_str().or_else(|| m["type"].as_str())).collect();
        match kind {
            ProviderKind::Anthropic => {
                assert_eq!(roles, ["user", "assistant", "user", "user"]);
                assert_eq!(body["system"][0]["text"], "You are helpful.");
                assert_eq!(messages[1]["content"][1]["type"], "tool_use");
                assert_eq!(messages[2]["content"][0]["type"], "tool_result");
            }
            ProviderKind::OpenAi | ProviderKind::OpenRouter => {
                assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
                assert_eq!(messages[2]["tool_calls"][0]["id"], "c1");
                assert_eq!(messages[3]["tool_call_id"], "c1");
            }
            ProviderKind::OpenAiResponses => {
                assert_eq!(roles, ["user", "assistant", "function_call", "function_call_output", "user"]);
                assert_eq!(body["instructions"], "You are helpful.");
                assert_eq!(messages[3]["call_id"], "c1");
            }
            ProviderKind::Gemini => {
                assert_eq!(roles, ["user", "model", "user", "user"]);
                assert_eq!(body["systemInstruction"]["parts"][0]["text"], "You are helpful.");
                assert_eq!(messages[1]["parts"][1]["functionCall"]["name"], "search");
                assert_eq!(messages[2]["parts"][0]["functionResponse"]["name"], "search");
            }
            ProviderKind::Ollama => {
                assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
                assert_eq!(messages[2]["tool_calls"][0]["function"]["name"], "search");
                assert_eq!(messages[3]["content"], "found");
            }
        }
    }
}

/// Several results of one answer come in the order of its calls: some formats tell them apart by nothing else.
#[tokio::test]
async fn results_come_in_the_order_of_their_calls() {
    for kind in ALL {
        let seen = |request: &ParsedRequest| {
            let texts: Vec<&str> = request.results().map(|result| result.text.as_str()).collect();
            Reply::text(&texts.join("|"))
        };
        let bench = Bench::new(kind, seen).await;
        let call = |id: &str| {
            Part::Call(ToolCall { id: id.into(), name: "search".into(), arguments: json!({"q": id}) })
        };
        let history = vec![
            user("go"),
            message(Role::Assistant, vec![call("a"), call("b"), call("c")]),
            result("c", "third"),
            result("a", "first"),
        ];
        let reply = bench.ask(request(history)).await.0.expect("an answer");
        assert_eq!(reply.text, "first|(no result was recorded for this call)|third", "{kind:?}");
    }
}

/// Calls that come without an id are given one that no other answer has.
#[tokio::test]
async fn calls_without_an_id_are_told_apart() {
    for kind in [ProviderKind::Gemini, ProviderKind::Ollama] {
        let twice = || Reply::call("search", json!({"q": 1})).and_call("search", json!({"q": 2}));
        let bench = Bench::new(kind, list_of_replies([twice(), twice()])).await;
        let mut ids = std::collections::BTreeSet::new();
        for text in ["one", "two"] {
            let reply = bench.ask(request(vec![user(text)])).await.0.expect("an answer");
            ids.extend(reply.calls.into_iter().map(|call| call.id));
        }
        assert_eq!(ids.len(), 4, "{ids:?}");
    }
}

/// Frames that real servers send beside the ordinary ones.
#[tokio::test]
async fn thinking_comments_and_unknown_events_are_passed_over() {
    let thinking = [
        r#"{"type":"content_block_start","index":9,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        r#"{"type":"content_block_delta","index":9,"delta":{"type":"thinking_delta","thinking":"hmm"}}"#,
        r#"{"type":"content_block_delta","index":9,"delta":{"type":"signature_delta","signature":"c2ln"}}"#,
        r#"{"type":"content_block_stop","index":9}"#,
        r#"{"type":"an_event_of_the_future","x":1}"#,
    ];
    let chat = [
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":"hmm"},"finish_reason":null}]}"#,
        r#"{"choices":[],"usage":null,"x_groq":{"id":"1"}}"#,
    ];
    let responses = [
        r#"{"type":"response.output_item.added","output_index":9,"item":{"type":"reasoning","summary":[]}}"#,
        r#"{"type":"response.reasoning_summary_text.delta","output_index":9,"delta":"hmm"}"#,
        r#"{"type":"response.output_item.done","output_index":9,"item":{"type":"reasoning","summary":[]}}"#,
        r#"{"type":"response.an_event_of_the_future","x":1}"#,
    ];
    let gemini = [
        r#"{"candidates":[{"content":{"parts":[{"text":"hmm","thought":true}],"role":"model"},"index":0}]}"#,
        r#"{"usageMetadata":{"promptTokenCount":4},"a_field_of_the_future":1}"#,
    ];
    let ollama =
        [r#"{"model":"m","message":{"role":"assistant","content":"","thinking":"hmm"},"done":false}"#];
    for (kind, frames) in [
        (ProviderKind::Anthropic, thinking.as_slice()),
        (ProviderKind::OpenAi, &chat),
        (ProviderKind::OpenRouter, &chat),
        (ProviderKind::OpenAiResponses, &responses),
        (ProviderKind::Gemini, &gemini),
        (ProviderKind::Ollama, &ollama),
    ] {
        let comment = if kind == ProviderKind::Ollama { "" } else { ": keep-alive\n\n" };
        let frames: String = frames.iter().map(|data| frame(kind, data)).collect();
        let raw = format!("{comment}{frames}");
        let bench =
            Bench::new(kind, list_of_replies([Reply::text("said").with_fault(ReplyFault::RawAfter(1, raw))]))
                .await;
        assert_eq!(bench.ask(request(vec![user("hi")])).await.0.expect("an answer").text, "said", "{kind:?}");
    }
}

/// Some compatible servers send each call whole, without an index.
#[tokio::test]
async fn whole_calls_without_an_index_are_understood() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "search", "arguments": "{\"q\":1}"}});
    let frame = json!({"choices": [{"index": 0, "delta": {"tool_calls": [call("a"), call("b")]}, "finish_reason": null}]});
    let reply = Reply::text("x").with_fault(ReplyFault::RawAfter(1, format!("data: {frame}\n\n")));
    let bench = Bench::new(ProviderKind::OpenAi, list_of_replies([reply])).await;
    let reply = bench.ask(request(vec![user("hi")])).await.0.expect("an answer");
    let calls: Vec<(&str, &serde_json::Value)> =
        reply.calls.iter().map(|call| (call.id.as_str(), &call.arguments)).collect();
    assert_eq!(calls, [("a", &json!({"q": 1})), ("b", &json!({"q": 1}))]);
    assert_eq!(reply.stop, StopReason::ToolUse, "it said «stop», but it wants tools");
}
