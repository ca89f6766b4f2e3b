//! The store: one SQLite database per home, one writer, and the ledger in it.
//!
//! Everything is written by [`store::Store::commit`]: a [`batch::Batch`] of typed operations becomes one
//! [`batch::Receipt`], or a typed error and nothing. Batches that wait together share one transaction and one
//! sync. Reads are async traits, one per noun, in [`mod@reads`]: a bounded pool of threads answers them, so
//! that no thread of an async runtime waits for a connection. [`store::Store::blocking`] has the same reads
//! for callers that may block.
//!
//! The [`ledger`] is an RFC 6962 Merkle tree over signed rows with payloads that can be erased; its heads are
//! signed in every commit that appends, and [`ledger::verify`] names the first bad leaf.
//!
//! Three tables carry work between the parts of an engine: the [`queue`] gives each consumer (an agent or loop) its own
//! messages, in order per session; [`jobs`] are run again and again, by name; the [`outbox`] holds messages to
//! recipients, which each channel delivers at least once from its own cursor.
//!
//! All SQL on Writ's own database is in this crate; no business rule is.

pub mod config;

pub mod reads;

pub mod error;

pub mod batch;

pub mod store;

pub mod journal;

pub mod lock;

pub mod ledger;

pub mod queue;

pub mod jobs;

pub mod tools;

pub mod outbox;

pub mod turns;

pub mod sessions;

pub mod files;

pub mod kept;

pub mod compaction;

pub mod undo;

pub mod usage;

pub mod approvals;

pub mod keys;

pub mod memory;

pub mod operations;

pub mod fleet;

pub mod work;

pub mod units;

pub mod settings;

pub mod backup;

mod bounds;
mod codec;
mod filesystem;
mod marks;
mod pool;
mod readers;
mod restore;
mod schema;
mod writer;

#[cfg(test)]
mod testing;
