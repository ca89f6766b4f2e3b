//! The model router: the formats of OpenAI Chat and Anthropic Messages in, the configured providers out.
//!
//! It serves HTTP/1.1 on a Unix socket that only its owner can open. The launcher of a locked agent adds the two keys to each
//! request; `writ_runtime::routed` verifies them, puts the call before the door and records all of it.
//!
//! - [`server`] takes connections and requests, within bounds;
//! - `openai` and `anthropic` read requests and write answers of their formats, both from and to what `prompt` and the runtime
//!   have in common;
//! - `stream` sends an answer as it comes;
//! - [`within`] serves one program in a sandbox that works in a turn of the engine; `clients` is the difference: it shows no keys.

pub mod server;

mod anthropic;

mod clients;

mod fields;

mod openai;

mod prompt;

mod refusal;

mod stream;

pub mod within;
