//! Ollama's own chat API.

pub(crate) mod parse;

pub(crate) mod render;
