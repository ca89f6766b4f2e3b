//! Gemini, version v1beta: `generateContent` and `streamGenerateContent`.

pub(crate) mod parse;

pub(crate) mod render;
