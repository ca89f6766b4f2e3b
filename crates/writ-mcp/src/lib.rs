//! The client of MCP servers: what an owner says of a server, what is pinned of its tools, and the protocol.
//!
//! A server is somebody else's program, and everything that it sends is hostile until shown otherwise. So the wire is
//! our own: every line has a bound before it is read, what nobody asked for is counted and ends the connection, answers
//! are matched by number alone, and requests of the server are refused but for `ping`, `roots/list` and, while a call of it
//! waits, questions to a person. (The `rmcp` crate
//! reads lines without a bound, logs what it cannot parse, and starts a task for each thing that the peer sends.)
//!
//! Nothing here starts a process or opens a socket: [`client`] speaks over streams that the sandbox's owner gives it,
//! [`http`] over a connection that `writ-egress` lends.
//! Nothing here decides whether a call is allowed.
//!
//! Read in this order: [`config`] is the owner's file, [`definition`] what is pinned, [`listing`] how a server lists its
//! tools, [`client`] the connection,
//! [`result`] what a call gives, [`readers`] who else can read
//! that, [`reading`] the tools for what else a server has, [`elicitation`] what it asks a person.

pub mod config;

pub mod definition;

pub mod listing;

pub mod client;

pub mod http;

pub mod result;

pub mod reading;

pub mod readers;

pub mod elicitation;

pub mod error;

#[doc(hidden)]
pub mod fuzzing;

mod line;

mod message;
