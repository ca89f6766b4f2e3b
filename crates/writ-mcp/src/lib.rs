//! The client of MCP servers: the owner's settings of a server, the pins of its tools, and the protocol.
//!
//! A server is a foreign program, and everything that it sends is hostile until shown otherwise. So the wire
//! is our own: every line has a bound before it is read, unsolicited messages are counted and too many end
//! the connection, answers are matched by number alone, and requests of the server are refused but for
//! `ping`, `roots/list` and, while a call of it waits, questions to a person. (The `rmcp` crate reads lines
//! without a bound, logs what it cannot parse, and starts a task for each thing that the peer sends.)
//!
//! Nothing here starts a process or opens a socket: [`client`] speaks over streams that the sandbox's owner
//! gives it, [`http`] over a connection that `writ-egress` lends. Nothing here decides if a call is allowed.
//!
//! Read in this order: [`config`] is the owner's file, [`definition`] the pins, [`listing`] a server's list
//! of tools, [`client`] the connection, [`result`] the result of a call, [`readers`] the people besides the
//! owner who can read that, [`reading`] the tools for a server's resources and prompts, [`elicitation`] its
//! questions to a person. [`server`] is the other side: tools of ours, offered to a program.

pub mod config;

pub mod definition;

pub mod listing;

pub mod client;

pub mod http;

pub mod result;

pub mod reading;

pub mod readers;

pub mod elicitation;

pub mod server;

pub mod error;

#[doc(hidden)]
pub mod fuzzing;

mod line;

mod message;
