//! OpenAI Responses.

pub(crate) mod parse;

pub(crate) mod render;
