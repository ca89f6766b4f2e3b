//! The security proxy: a process of its own, through which agents reach databases, interfaces and mail.
//!
//! Each request shows two keys and names a declared operation. The proxy verifies both keys, asks the door of
//! `writ-policy`, counts limits in the transaction that writes the intent, performs the operation within its case, and
//! answers with tokens in place of personal data. Each request leaves one decision in the proxy's own ledger. There is
//! no business logic here: what may be done is in the keys, how it is done in the operations.

pub mod config;

pub mod error;

pub mod events;

pub mod secret;

pub mod trust;

pub mod proxy;

pub mod server;

mod cases;

mod fold;

mod keys;

mod kind;

mod known;

mod learn;

mod mask;
mod naming;

mod once;

mod refusal;

mod search;

mod settle;

pub mod unproven;
