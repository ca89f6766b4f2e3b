//! Faults of answers that are not streamed: vectors of texts. Each ends in the vectors or in an error that says so.

use std::collections::BTreeMap;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use writ_testbed::raw_server::{RawAnswer, RawServer};
use writ_types::error::{Exit, ToReport as _};

use super::bench::{PROMPT, models, table};
use super::door::{NOW, permit};
use super::resilience::{PAGE, format_name, write_rows};
use crate::config::{ModelsConfig, ProviderKind};

/// The formats that have vectors.
const WITH_VECTORS: [ProviderKind; 4] =
    [ProviderKind::OpenAi, ProviderKind::OpenAiResponses, ProviderKind::OpenRouter, ProviderKind::Ollama];

/// The bytes of a body that are sent before silence begins.
const HALF: usize = 20;

/// A server's conduct towards a request.
#[derive(Clone)]
enum Conduct {
    Answer(RawAnswer),
    /// It takes the request and says nothing.
    SilentAtOnce,
    /// It sends a head and the beginning of a body, then nothing more.
    SilentInside(String),
    /// It closes the connection before it answers.
    Hangup,
    /// A body without end.
    Endless,
}

fn answer(status: u16, body: impl Into<Vec<u8>>) -> RawAnswer {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    RawAnswer { status, headers, body: body.into(), chunk: 16, cut: false }
}

fn refusal(status: u16, message: &str) -> Conduct {
    let error = json!({ "error": { "message": message, "type": "invalid_request_error" } });
    Conduct::Answer(answer(status, error.to_string()))
}

/// Returns the right answer of a format for two texts.
fn vectors(kind: ProviderKind) -> String {
    let answer = if kind == ProviderKind::Ollama {
        json!({ "model": "some-model", "embeddings": [[0.5, 0.25], [0.25, 0.5]], "prompt_eval_count": 4 })
    } else {
        let vector = |index: u64, embedding: [f64; 2]| json!({ "object": "embedding", "index": index, "embedding": embedding });
        json!({ "object": "list", "model": "some-model", "data": [vector(0, [0.5, 0.25]), vector(1, [0.25, 0.5])],
            "usage": { "prompt_tokens": 4, "total_tokens": 4 } })
    };
    answer.to_string()
}

fn faults(kind: ProviderKind) -> Vec<(&'static str, Conduct)> {
    let whole = vectors(kind);
    let half = whole[..whole.len() / 2].to_owned();
    let redirect = RawAnswer {
        headers: vec![("location".to_owned(), "http://127.0.0.1:9/".to_owned())],
        ..answer(307, "")
    };
    let invalid = [whole.as_bytes(), b"\xc3\x28"].concat();
    vec![
        ("no fault", Conduct::Answer(answer(200, whole.clone()))),
        ("too many requests (429)", refusal(429, "Rate limit reached")),
        ("balance used up (402)", refusal(402, "Insufficient balance")),
        ("server error (500)", refusal(500, "the server had an error")),
        ("key refused (401)", refusal(401, "Incorrect API key provided")),
        ("request refused (400)", refusal(400, "batch size is invalid")),
        ("no such model (404)", refusal(404, "The model does not exist")),
        ("text too long", refusal(400, "This model's maximum context length is 512 tokens")),
        ("an error with the status 200", refusal(200, "the engine is not ready")),
        ("redirect", Conduct::Answer(redirect)),
        ("a web page instead of an answer", Conduct::Answer(answer(200, "<html>sign in</html>"))),
        ("an answer without a body", Conduct::Answer(answer(200, ""))),
        ("an answer without vectors", Conduct::Answer(answer(200, r#"{"object":"list"}"#))),
        ("text that is no UTF-8", Conduct::Answer(answer(200, invalid))),
        ("connection closed before the answer", Conduct::Hangup),
        (
            "connection cut in the answer",
            Conduct::Answer(RawAnswer { cut: true, ..answer(200, half.clone()) }),
        ),
        ("half of the answer", Conduct::Answer(answer(200, half))),
        ("silence before the answer", Conduct::SilentAtOnce),
        ("silence in the answer", Conduct::SilentInside(whole)),
        ("an answer without end", Conduct::Endless),
    ]
}

/// Serves a conduct that is none of whole answers, until it is aborted.
async fn serve_broken(listener: TcpListener, conduct: Conduct) {
    let mut held = Vec::new();
    while let Ok((mut connection, _)) = listener.accept().await {
        let mut request = [0; 1024];
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99999999\r\n\r\n";
        // The client may have gone, which is for the test to see.
        let _ = connection.read(&mut request).await;
        match &conduct {
            Conduct::Answer(_) | Conduct::Hangup => {}
            Conduct::SilentAtOnce => held.push(connection),
            Conduct::SilentInside(body) => {
                let _ = connection.write_all(head).await;
                let _ = connection.write_all(&body.as_bytes()[..HALF]).await;
                held.push(connection);
            }
            Conduct::Endless => {
                let _ = connection.write_all(head).await;
                while connection.write_all(&[b' '; 8192]).await.is_ok() {}
            }
        }
    }
}

/// Asks for the vectors of two texts and describes the end, as the table has it.
async fn end_of(kind: ProviderKind, conduct: Conduct) -> String {
    let is_silent = matches!(conduct, Conduct::SilentAtOnce | Conduct::SilentInside(_));
    let (address, _raw, broken) = if let Conduct::Answer(answer) = conduct {
        let raw = RawServer::start(answer).await.expect("a server");
        (raw.address(), Some(raw), None)
    } else {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        (
            listener.local_addr().expect("an address"),
            None,
            Some(tokio::spawn(serve_broken(listener, conduct))),
        )
    };
    let mut config = ModelsConfig::default();
    config.providers.insert("scripted".into(), table(kind, format!("http://{address}/v1/")));
    config.models.default = Some("scripted/some-model".into());
    // Only silence is waited for; any other fault has its own end, however busy the machine is.
    config.models.request_timeout_ms = if is_silent { 1_000 } else { 120_000 };
    let (models, _runtime) = models(&config);
    let route = models.routes().find("scripted/some-model").expect("a route");
    let texts = vec![PROMPT.to_owned(), "another".to_owned()];
    let planned = models.plan_embedding(&route, texts, NOW).expect("a plan");
    let permit = permit(planned.action()).await;
    let reply = models.embed(permit, &planned, &CancellationToken::new(), NOW).await;
    if let Some(broken) = broken {
        broken.abort();
    }
    let error = match reply {
        Ok(reply) => {
            assert_eq!(reply.vectors, [[0.5, 0.25], [0.25, 0.5]], "only the whole answer is one");
            return "the vectors".to_owned();
        }
        Err(error) => error,
    };
    let report = error.report();
    assert_eq!(report.exit, Exit::Model, "{error}");
    assert!(!report.outside.is_empty() && !report.hint.is_empty(), "{error} is silent");
    assert!(!error.to_string().contains(PROMPT), "{error}");
    let code = error.failure.code().trim_start_matches("model.").to_owned();
    if error.failure.is_about_content() { format!("{code}: the others") } else { format!("{code}: later") }
}

/// The page is compared with what the client does now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_of_an_answer_that_is_not_streamed_says_so() {
    let mut table = "| fault | formats | the client's conduct |\n| --- | --- | --- |\n".to_owned();
    let names: Vec<&str> = faults(ProviderKind::OpenAi).into_iter().map(|(name, _)| name).collect();
    for (place, name) in names.into_iter().enumerate() {
        let ends = futures::future::join_all(WITH_VECTORS.map(|kind| async move {
            let (_, conduct) = faults(kind).swap_remove(place);
            (format_name(kind), [end_of(kind, conduct).await].into())
        }));
        let ends: BTreeMap<_, _> = ends.await.into_iter().collect();
        write_rows(&mut table, name, &ends);
    }
    // These two have no vectors, and say so before anything is sent.
    for kind in [ProviderKind::Anthropic, ProviderKind::Gemini] {
        assert_eq!(end_of(kind, Conduct::Hangup).await, "unsent: later");
    }
    let page = std::fs::read_to_string(PAGE).expect("docs/reference/resilience.md");
    assert!(page.contains(table.trim()), "the page has another table than this one:\n{table}");
}
