//! The vocabulary of Writ: ids, units, labels, actions, ledger entries, chat and frames.
//!
//! Everything here is data. Nothing here decides, performs or knows a vendor. Read in this order:
//! [`mod@unit`] and [`id`] name things, [`taint`] labels their trust, [`action`] lists the requests of
//! agents, [`entry`] the records of the ledger, [`chat`] the messages of models, [`frame`] those of clients, [`api`] the calls of clients,
//! [`credential`] names secrets, [`error`] reports failures, [`visible`] escapes foreign text, [`quarantine`]
//! names results that models do not read, [`schema`] brings foreign schemas into one form, [`similar`]
//! suggests names, [`calendar`] has recurring times, [`encoding`] reads and writes text files, [`interaction`] has the labels of turns, [`work`] has the plans and checks of work items.

pub mod unit;
pub mod zone;

pub mod calendar;

pub mod id;

pub mod digest;

pub mod taint;

pub mod action;

pub mod chat;

pub mod entry;

pub mod form;

pub mod interaction;

pub mod frame;

pub mod api;

pub mod credential;

pub mod error;

pub mod visible;

pub mod encoding;

pub mod quarantine;
pub mod recipient;

pub mod schema;

pub mod similar;

pub mod work;
