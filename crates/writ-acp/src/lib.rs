//! The client of coding agents that speak the Agent Client Protocol, version 1
//! (<https://agentclientprotocol.com/protocol/overview>): one prompt goes in, and one turn with a stop reason comes out.
//!
//! The agent is a stranger. It runs in a sandbox, which decides what it can reach; this crate decides what is read of it. Each
//! line, each turn and everything that is remembered of it has a bound. Files and terminals are not offered: the agent has the
//! work tree before it in its sandbox, where the kernel looks after every path and every link, and no path of its ever reaches a
//! process outside. Its questions for permission are answered by a rule.
//!
//! Read in this order: [`bounds`], `message` reads lines, [`permission`] judges, [`transcript`] remembers, [`talk`] is the state
//! of a conversation, without I/O, and [`client`] speaks it over two streams.

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
