//! OpenAI Chat Completions.

pub(crate) mod parse;

pub(crate) mod render;
