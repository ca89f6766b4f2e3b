//! Secrets and private keys, by reference.
//!
//! Everything else in Writ names a secret ([`writ_types::credential`]); only this crate reads its value.
//! Values are [`secrecy::SecretString`]: they are not shown by `Debug` or `Display`, are in no error, and are
//! wiped when they are dropped (not wiped: the copies that the JSON parser and the keyring's library make for
//! themselves).
//!
//! A *keys folder* (`keys/` of a home) holds `backend.toml`, which names the place of the values: the keyring
//! of the operating system, files encrypted with a passphrase, or, where that was chosen explicitly, plain
//! files that only their owner may read. There are two documents: [`store::SecretStore`] (named secrets, root
//! and harness key), which the engine opens, and [`approver::ApproverStore`], which only clients open.
//!
//! All functions block (a keyring may ask a person, a passphrase is slow by design): call them off the async
//! threads.

pub mod config;

pub mod contents;

pub mod store;

pub mod approver;

pub mod backend;

pub mod error;

pub mod record;

pub mod server;

mod document;

mod files;

mod keyring;

mod keys;

mod vault;

mod wait;
