//! The vocabulary of Writ: ids, units, labels, actions, ledger entries, chat and frames.
//!
//! Everything here is data. Nothing here decides, performs or knows a vendor.
//! Read in this order: [`mod@unit`] and [`id`] name things, [`taint`] says how far
//! to trust them, [`action`] is what an agent may wish, [`entry`] is what the
//! ledger keeps, [`chat`] is what models speak, [`frame`] is what clients
//! speak, [`credential`] is how secrets are named, [`error`] how failure is told, [`visible`] how
//! foreign text is shown, [`quarantine`] how results are named that models do not read, [`schema`] how foreign
//! schemas are brought into one form, [`similar`] which name somebody may have meant,
//! [`encoding`] how text files are read and written.

pub mod unit;
pub mod zone;

pub mod id;

pub mod digest;

pub mod taint;

pub mod action;

pub mod chat;

pub mod entry;

pub mod form;

pub mod frame;

pub mod credential;

pub mod error;

pub mod visible;

pub mod encoding;

pub mod quarantine;

pub mod schema;

pub mod similar;
