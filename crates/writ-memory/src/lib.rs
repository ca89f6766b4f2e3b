//! Memory: which memories belong to a text, and what becomes of memories over time.
//!
//! The crate has no statement of SQL and no socket: rows come from the reads of `writ-store`, vectors from an
//! [`embedder::Embedder`], and the time is an argument.
//!
//! Read in this order: [`config`] chooses the embedder; [`embedder`] is its port, and [`local`] one that reads a model
//! from a folder. [`codes`] is the quantised index, [`window`] reads the time that a text names, [`fusion`] joins
//! the rankings, and [`search`] does all of it. [`words`] compares texts; [`contradiction`],
//! [`consolidation`], [`links`] and [`preferences`] rest on that. [`digest`] is what a model distils into the owner's profile. [`bundle`] is the format of export and import.

pub mod config;

pub mod embedder;

pub mod local;

pub mod codes;

pub mod window;

pub mod fusion;

pub mod search;

pub mod words;

pub mod contradiction;

pub mod consolidation;

pub mod links;

pub mod preferences;

pub mod digest;

pub mod bundle;
