//! Searching the web at a provider that the owner has configured.
//!
//! Each provider is a wire format behind one trait, so that tools and engine know none of them: [`config`] says which
//! one and where, `format` is the trait, `brave` and `tavily` speak, and [`search`] performs a permit. The key is
//! fetched for each search and put into its request by the format; it is in no action, no record and no error. What
//! comes back is bounded, and whatever reads it must treat it as external.

pub mod config;

mod format;

mod brave;

mod tavily;

pub mod error;

pub mod search;

#[doc(hidden)]
pub mod fuzzing;

pub use search::{Found, Hit, Search, SearchKeys};
