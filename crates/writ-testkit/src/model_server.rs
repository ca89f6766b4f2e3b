//! Scripted model servers that speak the real wire formats over HTTP on a loopback port.
//!
//! A [`ModelServer`] serves Anthropic Messages (`POST /v1/messages`), OpenAI Chat Completions
//! (`POST /v1/chat/completions`), OpenAI Responses (`POST /v1/responses`), OpenRouter
//! (`POST /api/v1/chat/completions`), Gemini (`POST /v1beta/models/NAME:streamGenerateContent`), Ollama
//! (`POST /api/chat`) and the lists of models that belong to them, streaming and not. Requests are checked as
//! strictly as the providers do; what passes is handed to a [`Script`], which answers with a [`Reply`]. A reply
//! may carry a [`ReplyFault`]. Every request is recorded, without its secrets.
//!
//! ```no_run
//! # async fn demo() -> std::io::Result<()> {
//! use writ_testkit::model_server::{ModelServer, Reply};
//!
//! let server = ModelServer::start(|request: &writ_testkit::model_server::ParsedRequest| {
//!     match request.results().last() {
//!         None => Reply::call("file_read", serde_json::json!({"path": "src/lib.rs"})),
//!         Some(result) => Reply::text(&format!("It has {} characters.", result.text.len())),
//!     }
//! })
//! .await?;
//! println!("base_url = \"{}\"", server.base_url());
//! # Ok(()) }
//! ```

mod parsed;

mod reply;

mod anthropic;

mod openai;

mod responses;

mod gemini;

mod ollama;

mod files;

mod wire;

mod http;

pub use files::ParsedFile;
pub use http::{ModelServer, ServerOptions};
pub use parsed::{
    ParsedCall, ParsedMessage, ParsedRequest, ParsedResult, ParsedTool, RecordedRequest, ServedFormat,
};
pub use reply::{Reply, ReplyFault, ReplyGate, Script, ScriptedCall, Stop, list_of_replies};

#[cfg(test)]
mod tests;
