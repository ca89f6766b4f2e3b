//! Anthropic Messages, version 2023-06-01.

pub(crate) mod parse;

pub(crate) mod render;
