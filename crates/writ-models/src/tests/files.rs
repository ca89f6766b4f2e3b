//! Images and PDF files, over all wire formats.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use writ_testkit::model_server::{ParsedRequest, Reply, list_of_replies};
use writ_types::chat::{AttachedFile, ChatMessage, FileError, FileRef, MAX_FILE_BYTES, Part, Role};
use writ_types::error::{Exit, ToReport as _};
use writ_types::unit::Tokens;

use super::bench::{ALL, Bench, message, request, user};
use super::door::NOW;
use crate::catalogue::Catalogue;
use crate::config::{ModelRole, ProviderKind};
use crate::error::{Failure, Feature};
use crate::plan::{PlanError, PlannedCall};

pub(crate) const PNG: &[u8] = b"\x89PNG\r\n\x1a\n....IEND\xaeB`\x82";
pub(crate) const PDF: &[u8] = b"%PDF-1.4\n1 0 obj\nendobj\nstartxref\n9\n%%EOF\n";

fn attached(name: &str, bytes: &[u8]) -> Part {
    let file = FileRef::describe_file(name, bytes).expect("a file");
    Part::File(AttachedFile { file, content: Some(STANDARD.encode(bytes).into()) })
}

fn asked(name: &str, bytes: &[u8]) -> ChatMessage {
    message(Role::User, vec![Part::Text { text: "look at this".into() }, attached(name, bytes)])
}

/// The server checks each format as strictly as its provider, and its script sees the bytes. What is no image, or too large, is no
/// attachment of a request.
///
/// Rows: SCL-012
#[tokio::test]
async fn every_format_has_images_in_its_own_way() {
    for kind in ALL {
        let bench = Bench::new(kind, |request: &ParsedRequest| {
            let files = request.files();
            let [file] = files.as_slice() else { return Reply::text("one file was expected") };
            assert_eq!(file.content, PNG);
            // One format says no type.
            assert!(file.media == "image/png" || file.media.is_empty());
            Reply::text(request.last_user_text())
        })
        .await;
        let (reply, _) = bench.ask(request(vec![asked("a.png", PNG)])).await;
        assert_eq!(reply.expect("an answer").text, "look at this", "{kind:?}");
        let sent = bench.server.recorded_requests().remove(0).body.to_string();
        let content = STANDARD.encode(PNG);
        match kind {
            ProviderKind::Anthropic => {
                for part in ["\"type\":\"base64\"", "\"media_type\":\"image/png\"", &content] {
                    assert!(sent.contains(part), "{part}: {sent}");
                }
            }
            ProviderKind::OpenAi => {
                assert!(sent.contains(&format!("\"url\":\"data:image/png;base64,{content}\"")), "{sent}");
            }
            ProviderKind::OpenAiResponses
            | ProviderKind::OpenRouter
            | ProviderKind::Gemini
            | ProviderKind::Ollama => {}
        }
    }
    let huge = [PNG, vec![0; MAX_FILE_BYTES].as_slice()].concat();
    for refused in [b"MZ this is no image".as_slice(), huge.as_slice()] {
        assert!(FileRef::describe_file("a.png", refused).is_err());
    }
}

/// OpenAI's own form of an image is a data URL. A model that is known to read text alone is asked nothing with an image.
///
/// Rows: SCL-016
#[tokio::test]
async fn an_image_is_a_data_url_for_openai_and_a_text_only_model_gets_none() {
    let bench = Bench::new(ProviderKind::OpenAi, list_of_replies([Reply::text("a heron")])).await;
    let request = Arc::new(request(vec![asked("a.png", PNG)]));
    let answered = bench.ask((*request).clone()).await.0.expect("an answer");
    assert_eq!(answered.text, "a heron");
    let sent = bench.server.recorded_requests().remove(0).body;
    let url = format!("data:image/png;base64,{}", STANDARD.encode(PNG));
    let parts = sent["messages"][1]["content"].as_array().or(sent["messages"][0]["content"].as_array());
    let image = parts.and_then(|parts| parts.iter().find(|part| part["type"] == "image_url"));
    assert_eq!(image.map(|image| &image["image_url"]["url"]), Some(&url.into()), "{sent}");

    let plan = |sees: bool| {
        let table = format!(
            "[[model]]\nprovider = \"scripted\"\nname = \"some-model-high\"\ncontext_window = 100000\nmax_output = 1000\nvision = {sees}\nprice = []\n"
        );
        let table = Catalogue::parse_catalogue(&table).expect("a table");
        let route = bench.models.routes().route(ModelRole::Proxy);
        PlannedCall::new(route, Arc::clone(&request), &table, NOW).map(drop)
    };
    assert!(matches!(plan(false), Err(PlanError::NoFile { what: "images", .. })), "{:?}", plan(false));
    assert!(plan(true).is_ok(), "the same model with eyes");
    assert_eq!(bench.server.recorded_requests().len(), 1, "nothing was sent");
}

/// The model's provider reads its text; one that is damaged is an error before that.
///
/// Rows: SIL-402
#[tokio::test]
async fn pdf_files_are_sent_where_the_format_has_a_place_for_them() {
    assert_eq!(FileRef::describe_file("a.pdf", &PDF[..PDF.len() / 2]), Err(FileError::Cut));
    for kind in ALL {
        let bench = Bench::new(kind, |request: &ParsedRequest| {
            let files = request.files();
            let [file] = files.as_slice() else { return Reply::text("one file was expected") };
            assert_eq!((file.media.as_str(), file.content.as_slice()), ("application/pdf", PDF));
            Reply::text("read")
        })
        .await;
        let request = request(vec![asked("a.pdf", PDF)]);
        if kind == ProviderKind::Ollama {
            let error = bench.models.plan(ModelRole::Proxy, Arc::new(request), NOW).expect_err("no place");
            let PlanError::NoFile { what, name, .. } = &error else { panic!("{error}") };
            assert_eq!((*what, name.as_str()), ("PDF files", "a.pdf"));
            assert_eq!((error.report().exit, error.report().code.as_str()), (Exit::Config, "model.no_file"));
            assert!(bench.server.recorded_requests().is_empty(), "nothing was sent");
            continue;
        }
        assert_eq!(bench.ask(request).await.0.expect("an answer").text, "read", "{kind:?}");
    }
}

/// Of a model that the table does not have, its server decides, and its refusal is plain.
#[tokio::test]
async fn a_server_whose_model_sees_nothing_refuses_in_plain_words() {
    let body =
        r#"{"error":{"message":"This model does not support image input","type":"invalid_request_error"}}"#;
    for kind in ALL {
        let refusal = writ_testkit::model_server::ReplyFault::Response {
            status: 400,
            headers: Vec::new(),
            body: body.to_owned(),
        };
        let bench = Bench::new(kind, list_of_replies([Reply::default().with_fault(refusal)])).await;
        let error = bench.ask(request(vec![asked("a.png", PNG)])).await.0.expect_err("refused");
        assert!(matches!(error.failure, Failure::Unsupported { feature: Feature::Images, .. }), "{error:?}");
        assert!(error.report().hint.contains("images"));
    }
}

#[tokio::test]
async fn a_file_counts_for_the_size_and_not_by_its_base64() {
    let bench = Bench::new(ProviderKind::OpenAi, list_of_replies([])).await;
    let size = |messages| bench.plan(request(messages)).model_call().input_tokens;
    let (without, with) = (size(vec![user("look at this")]), size(vec![asked("a.png", PNG)]));
    assert!(with.get() >= without.get() + 1_600, "{without} and {with}");
    let large = [b"GIF89a".as_slice(), &vec![1; 2_000_000], b";"].concat();
    assert!(size(vec![asked("a.gif", &large)]) < Tokens::new(4_000));
}

/// A file that is not stored any more is named, and the conversation goes on.
#[tokio::test]
async fn a_file_whose_bytes_are_gone_is_said_to_be() {
    for kind in ALL {
        let bench = Bench::new(kind, |request: &ParsedRequest| Reply::text(request.last_user_text())).await;
        let Part::File(gone) = attached("a.png", PNG) else { panic!("a file") };
        let part = Part::File(AttachedFile { content: None, ..gone });
        let asked = message(Role::User, vec![Part::Text { text: "look".into() }, part]);
        let reply = bench.ask(request(vec![asked])).await.0.expect("an answer");
        assert!(reply.text.contains("not stored any more"), "{}", reply.text);
    }
}

/// Another file is another request, for which another permit is needed.
#[tokio::test]
async fn the_digest_of_a_request_covers_its_files() {
    let bench = Bench::new(ProviderKind::Anthropic, list_of_replies([])).await;
    let digest = |name, bytes: &[u8]| bench.plan(request(vec![asked(name, bytes)])).model_call().request;
    assert_eq!(digest("a.png", PNG), digest("a.png", PNG));
    let other = [PNG, b"..IEND"].concat();
    assert_ne!(digest("a.png", PNG), digest("a.png", &other));
}
