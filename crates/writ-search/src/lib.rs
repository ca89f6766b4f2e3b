//! Searching the web at a provider that the owner has configured.
//!
//! Each provider is a wire format behind one trait, so that tools and engine know none of them: [`config`]
//! chooses one and its address, `format` is the trait, `brave` and `tavily` implement it, and [`search`]
//! performs a permit. The key is fetched for each search and put into its request by the format; it is in no
//! action, no record and no error. Answers are bounded, and their readers must treat them as external.

pub mod config;

mod format;

mod brave;

mod tavily;

pub mod error;

pub mod search;

#[doc(hidden)]
pub mod fuzzing;

pub use search::{SearchClient, SearchHit, SearchKeys, SearchResults};
