//! Secrets and private keys, by reference.
//!
//! Everything else in Writ names a secret ([`writ_types::credential`]); only this
//! crate knows where its value lies. Values are [`secrecy::SecretString`]: they are not shown by
//! `Debug` or `Display`, are in no error, and are wiped when they are dropped (not wiped: what the JSON parser
//! and the keyring's library copy for themselves).
//!
//! A *keys folder* (`keys/` of a home) holds `backend.toml`, which says where the values are: in the
//! keyring of the operating system, in files encrypted with a passphrase, or, where that was chosen
//! explicitly, in plain files that only their owner may read. Two documents are kept apart:
//! [`store::SecretStore`] (named secrets, root and harness key), which the engine opens, and
//! [`approver::ApproverStore`], which only clients open.
//!
//! All functions block (a keyring may ask a person, a passphrase is slow by design): call them off the
//! async threads.

pub mod config;

pub mod store;

pub mod approver;

pub mod backend;

pub mod error;

pub mod server;

mod document;

mod files;

mod keyring;

mod keys;

mod vault;

mod wait;
