//! The terminal: the line editor of `writ chat`, and the rendering of the engine's frames.
//!
//! [`renderer::Renderer`] writes frames to any [`std::io::Write`]; [`editor::LineEditor`] reads lines in a
//! thread of its own, so that the client can print meanwhile through [`editor::Printer`]. All text from a
//! model or a tool passes `writ_types::escape_text::escape_text` before it reaches the terminal. Nothing here reads
//! the environment or decides anything.

pub mod config;

pub mod renderer;

pub mod editor;

pub mod error;

mod card;

mod complete;

mod history;

mod lines;

pub mod screen;

pub mod watch;
