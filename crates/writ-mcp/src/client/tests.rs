use std::future::Future;

use tokio::io::{AsyncBufReadExt as _, BufReader, DuplexStream};

use super::*;

/// How long a server may take to answer its greeting.
const START: Duration = Duration::from_secs(20);

/// The server's end of a connection.
struct Server {
    from: tokio::io::Lines<BufReader<DuplexStream>>,
    to: DuplexStream,
}

impl Server {
    /// Reads the client's next message.
    async fn heard(&mut self) -> Value {
        serde_json::from_str(&self.from.next_line().await.unwrap().unwrap()).unwrap()
    }

    async fn say(&mut self, text: &str) {
        // A client that has ended the connection reads no more.
        let _written = self.to.write_all(text.as_bytes()).await;
    }

    async fn answer(&mut self, asked: &Value, result: Value) {
        let line = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}).to_string() + "\n";
        self.say(&line).await;
    }

    /// Answers the client's `initialize`, without offering anything.
    async fn greet(&mut self) {
        self.greet_with(json!({})).await;
    }

    /// Answers the client's `initialize` and offers these capabilities.
    async fn greet_with(&mut self, capabilities: Value) {
        let hello = self.heard().await;
        assert_eq!(hello["method"], "initialize");
        assert_eq!(hello["params"]["capabilities"], json!({"elicitation": {}}), "and nothing else");
        self.answer(&hello, json!({"protocolVersion": "2025-06-18", "capabilities": capabilities})).await;
        assert_eq!(self.heard().await["method"], "notifications/initialized");
    }
}

fn pair() -> ((DuplexStream, DuplexStream), Server) {
    let (our_end, to) = tokio::io::duplex(64 * 1024);
    let (from, our_out) = tokio::io::duplex(64 * 1024);
    ((our_end, our_out), Server { from: BufReader::new(from).lines(), to })
}

/// Runs a client against a server that has greeted it.
async fn with<F: Future<Output = ()>>(
    server: impl FnOnce(Server) -> F,
) -> (Client, impl Future<Output = ()>) {
    let ((read, write), mut end) = pair();
    let (client, ()) = tokio::join!(Client::connect(read, write, START), end.greet());
    (client.unwrap(), server(end))
}

async fn call(client: &Client) -> Result<CallResult, McpError> {
    client.call_tool("t", &json!({"a": 1}), Duration::from_secs(60), &CancellationToken::new()).await
}

fn said(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

#[tokio::test]
async fn answers_find_their_questions_in_any_order() {
    let (client, server) = with(|mut server| async move {
        let (first, second) = (server.heard().await, server.heard().await);
        assert_eq!(first["params"], json!({"name": "t", "arguments": {"a": 1}}));
        server.answer(&second, said("second")).await;
        server.answer(&json!({"id": 4_711}), said("never asked")).await;
        server.answer(&first, said("first")).await;
    })
    .await;
    let (first, second, ()) = tokio::join!(call(&client), call(&client), server);
    assert_eq!((first.unwrap().text.as_str(), second.unwrap().text.as_str()), ("first", "second"));
}

#[tokio::test]
async fn a_server_that_ends_ends_what_waits_and_what_is_asked_later() {
    let (client, server) = with(|mut server| async move {
        server.heard().await;
    })
    .await;
    let (answer, ()) = tokio::join!(call(&client), server);
    assert_eq!(answer, Err(McpError::Gone));
    assert_eq!(call(&client).await, Err(McpError::Gone));
    assert!(client.is_over() && client.shared.waiting_calls().is_empty());
}

#[tokio::test]
async fn ten_megabytes_are_not_read() {
    let (client, server) = with(|mut server| async move {
        server.heard().await;
        server.say(&"x".repeat(10 * 1024 * 1024)).await;
    })
    .await;
    let (answer, ()) = tokio::join!(call(&client), server);
    assert_eq!(answer, Err(McpError::TooLarge { limit: MAX_MESSAGE_BYTES }));
}

#[tokio::test]
async fn a_flood_of_news_ends_the_connection_and_some_news_do_not() {
    for (times, floods) in [(1_000, false), (MAX_STRAY + 1, true)] {
        let (client, server) = with(|mut server| async move {
            let asked = server.heard().await;
            for _ in 0..times {
                server.say("{\"method\":\"notifications/message\",\"params\":{}}\n").await;
            }
            server.answer(&asked, said("done")).await;
        })
        .await;
        let (answer, ()) = tokio::join!(call(&client), server);
        match answer {
            Ok(answer) => assert!(!floods && answer.text == "done"),
            Err(why) => assert!(floods && matches!(why, McpError::Flooded { .. }), "{why}"),
        }
    }
}

#[tokio::test]
async fn who_never_answers_is_told_that_nobody_waits_and_a_late_answer_means_nothing() {
    let (client, server) = with(|mut server| async move {
        let asked = server.heard().await;
        let cancelled = server.heard().await;
        assert_eq!(cancelled["method"], "notifications/cancelled");
        assert_eq!(cancelled["params"]["requestId"], asked["id"]);
        server.answer(&asked, said("late")).await;
        let again = server.heard().await;
        server.answer(&again, said("in time")).await;
    })
    .await;
    let asking = async {
        let soon = Duration::from_millis(50);
        let never = client.call_tool("t", &json!({}), soon, &CancellationToken::new()).await;
        assert_eq!(never, Err(McpError::Timeout { method: "tools/call", secs: 0 }));
        call(&client).await
    };
    let (answer, ()) = tokio::join!(asking, server);
    assert_eq!(answer.unwrap().text, "in time");
}

#[tokio::test]
async fn a_stopped_call_waits_no_longer() {
    let (client, server) = with(|mut server| async move {
        server.heard().await;
        assert_eq!(server.heard().await["method"], "notifications/cancelled");
    })
    .await;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let nothing = json!({});
    let calling = client.call_tool("t", &nothing, Duration::from_secs(60), &cancel);
    let (answer, ()) = tokio::join!(calling, server);
    assert_eq!(answer, Err(McpError::Cancelled));
}

#[tokio::test]
async fn requests_of_the_server_are_answered_with_no() {
    let (client, server) = with(|mut server| async move {
        let asked = server.heard().await;
        for (id, method) in
            [(1, "sampling/createMessage"), (2, "elicitation/create"), (3, "ping"), (4, "roots/list")]
        {
            server.say(&(json!({"id": id, "method": method, "params": {}}).to_string() + "\n")).await;
            let answer = server.heard().await;
            assert_eq!(answer["id"], id);
            assert_eq!(answer.get("error").is_some(), id < 3, "{method}: {answer}");
        }
        server.answer(&asked, said("done")).await;
    })
    .await;
    let (answer, ()) = tokio::join!(call(&client), server);
    assert_eq!(answer.unwrap().text, "done");
}

/// A person may take longer to answer than a call may last, so its time begins anew after the server has asked them.
#[tokio::test(start_paused = true)]
async fn a_question_goes_to_who_listens_and_its_answer_gives_the_call_its_time_anew() {
    for (pause, in_time) in [(9, true), (11, false)] {
        let (client, server) = with(|mut server| async move {
            let asked = server.heard().await;
            let question = json!({"id": "q", "method": "elicitation/create", "params": {"message": "sure?"}});
            server.say(&format!("{question}\n")).await;
            assert_eq!(
                server.heard().await,
                json!({"jsonrpc": "2.0", "id": "q", "result": {"action": "decline"}})
            );
            tokio::time::advance(Duration::from_secs(pause)).await;
            server.answer(&asked, said("done")).await;
        })
        .await;
        let (cancel, nothing) = (CancellationToken::new(), json!({}));
        let mut listening = client.listen_for_questions().expect("nobody else");
        assert!(client.listen_for_questions().is_none(), "one at a time");
        let asking = async {
            let calling = client.call_tool("t", &nothing, Duration::from_secs(10), &cancel);
            tokio::pin!(calling);
            loop {
                tokio::select! {
                    answer = &mut calling => return answer,
                    question = listening.next_question() => {
                        assert_eq!((question.message.as_str(), question.fields.len()), ("sure?", 0));
                        tokio::time::advance(Duration::from_secs(600)).await;
                        listening.reply(&question, ElicitationReply::Decline);
                    }
                }
            }
        };
        let (answer, ()) = tokio::join!(asking, server);
        match answer {
            Ok(answer) => assert!(in_time && answer.text == "done"),
            Err(why) => assert!(!in_time && matches!(why, McpError::Timeout { .. }), "{why}"),
        }
    }
}

#[tokio::test]
async fn who_asks_and_never_reads_is_left() {
    let ((read, write), mut server) = pair();
    let (client, ()) = tokio::join!(Client::connect(read, write, START), server.greet());
    let client = client.unwrap();
    let long = "y".repeat(200);
    while !client.is_over() {
        server.say(&(json!({"id": long, "method": "ping"}).to_string() + "\n")).await;
    }
    assert_eq!(call(&client).await, Err(McpError::Deaf));
}

#[tokio::test]
async fn pages_are_put_together() {
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let (client, server) = with(|mut server| async move {
        let asked = server.heard().await;
        server.answer(&asked, json!({"tools": [tool("b")], "nextCursor": "2"})).await;
        let asked = server.heard().await;
        assert_eq!(asked["params"]["cursor"], "2");
        server.answer(&asked, json!({"tools": [tool("a")]})).await;
    })
    .await;
    let (listing, ()) = tokio::join!(client.list_tools(), server);
    let listing = listing.expect("a list");
    let names: Vec<_> = listing.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!((names, listing.left_out.len()), (vec!["a", "b"], 0));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_takes_too_long_ends_with_its_reason_and_keeps_what_came() {
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    for first in [true, false] {
        let (client, server) = with(|mut server| async move {
            let asked = server.heard().await;
            if !first {
                server.answer(&asked, json!({"tools": [tool("a")], "nextCursor": "2"})).await;
                server.heard().await;
            }
            assert_eq!(server.heard().await["method"], "notifications/cancelled");
        })
        .await;
        let (listing, ()) = tokio::join!(client.list_tools(), server);
        let late = McpError::SlowList { secs: LIST_TIME.as_secs() };
        if first {
            assert_eq!(listing, Err(late));
            continue;
        }
        let listing = listing.expect("the first page");
        assert_eq!(listing.tools.len(), 1);
        assert_eq!(listing.left_out, [format!("its list broke off, and the rest is left out: {late}")]);
    }
}

/// A server that `npx` downloads first takes 42 to 77 seconds to start in public reports, so the time for the start is
/// a setting apart from the time of a call.
#[tokio::test(start_paused = true)]
async fn a_slow_start_has_a_time_of_its_own_and_its_failure_names_the_setting() {
    for (takes, limit) in [(77, 120), (77, 60)] {
        let ((read, write), mut server) = pair();
        let greeting = async {
            let hello = server.heard().await;
            let _late = tokio::time::timeout(Duration::from_secs(takes), std::future::pending::<()>()).await;
            server.answer(&hello, json!({"protocolVersion": "2025-06-18", "capabilities": {}})).await;
        };
        let (client, ()) = tokio::join!(Client::connect(read, write, Duration::from_secs(limit)), greeting);
        if takes < limit {
            assert!(client.is_ok());
            continue;
        }
        let error = client.expect_err("too late");
        assert_eq!(error, McpError::NotReady { secs: limit });
        let report = writ_types::error::ToReport::report(&error);
        assert!(report.outside.contains("start_timeout_secs") && report.hint.contains("--start-timeout"));
    }
}

#[tokio::test]
async fn news_of_other_tools_are_noted_until_they_are_listed() {
    let (client, server) = with(|mut server| async move {
        let asked = server.heard().await;
        server.say("{\"method\":\"notifications/tools/list_changed\"}\n").await;
        server.answer(&asked, said("done")).await;
        let asked = server.heard().await;
        server.answer(&asked, json!({"tools": []})).await;
    })
    .await;
    let asking = async {
        assert!(!client.tools_changed());
        call(&client).await.unwrap();
        assert!(client.tools_changed());
        assert_eq!(client.list_tools().await, Ok(Listing::default()));
        assert!(!client.tools_changed());
    };
    tokio::join!(asking, server);
}

#[tokio::test]
async fn a_version_that_is_not_known_ends_it() {
    let ((read, write), mut server) = pair();
    let greeting = async {
        let hello = server.heard().await;
        server.answer(&hello, json!({"protocolVersion": "1999-01-01"})).await;
    };
    let (client, ()) = tokio::join!(Client::connect(read, write, START), greeting);
    assert!(matches!(client, Err(McpError::Wrong { method: "initialize", .. })));
}

#[tokio::test]
async fn resources_are_listed_and_read_by_tools_of_ours() {
    let ((read, write), mut end) = pair();
    let greeted = end.greet_with(json!({"resources": {"listChanged": true, "subscribe": true}}));
    let (client, ()) = tokio::join!(Client::connect(read, write, START), greeted);
    let client = client.unwrap();
    let serving = async {
        let asked = end.heard().await;
        assert_eq!(asked["method"], "tools/list");
        end.answer(&asked, json!({"tools": []})).await;
        end.say("{\"method\":\"notifications/resources/list_changed\"}\n").await;
        let first = end.heard().await;
        assert_eq!((&first["method"], &first["params"]), (&json!("resources/list"), &json!({})));
        let one = json!({"uri": "note://1", "name": "One"});
        end.answer(&first, json!({"resources": [one], "nextCursor": "2"})).await;
        let second = end.heard().await;
        assert_eq!(second["params"], json!({"cursor": "2"}));
        end.answer(&second, json!({"resources": []})).await;
        let read = end.heard().await;
        assert_eq!(
            (&read["method"], &read["params"]),
            (&json!("resources/read"), &json!({"uri": "note://1"}))
        );
        end.answer(&read, json!({"contents": [{"uri": "note://1", "text": "It says so."}]})).await;
    };
    let using = async {
        let names: Vec<String> =
            client.list_tools().await.unwrap().tools.into_iter().map(|tool| tool.name).collect();
        assert_eq!(names, ["resources/list", "resources/read", "resources/templates/list"]);
        let ask = |tool: &'static str, arguments: Value| {
            let client = &client;
            async move {
                client.call_tool(tool, &arguments, Duration::from_secs(60), &CancellationToken::new()).await
            }
        };
        let listed = ask("resources/list", json!({})).await.unwrap();
        assert_eq!(listed.structured.unwrap()["resources"][0]["uri"], "note://1");
        let read = ask("resources/read", json!({"uri": "note://1"})).await.unwrap();
        assert_eq!(read.text, "[resource note://1]\nIt says so.");
        assert!(!client.tools_changed(), "nothing of them is kept");
    };
    tokio::join!(serving, using);
}
