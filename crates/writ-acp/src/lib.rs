//! The client of coding agents that speak the Agent Client Protocol, version 1
//! (<https://agentclientprotocol.com/protocol/overview>): one prompt goes in, and one turn with a stop reason comes out.
//!
//! The agent is not trusted. It runs in a sandbox, which decides what it can reach; this crate limits what is read from it: each
//! line, each turn and everything that is stored has a bound. The client offers no methods for files and terminals: the agent
//! has the work tree in its sandbox, where the kernel checks every path and link, and no process outside opens a path that the
//! agent names. Its requests for permission are answered by a rule.
//!
//! Read in this order: [`bounds`]; `line` splits a stream into lines, `message` parses them, [`permission`] answers requests for
//! permission, [`transcript`] records a turn, [`talk`] is the state of a conversation, without I/O, and [`client`] runs it over
//! two streams.

pub mod bounds;

pub mod error;

mod message;

pub mod permission;

pub mod transcript;

pub mod talk;

mod line;

pub mod client;

#[cfg(test)]
mod tests;
