//! Surfaces of the engine. Here: `control.sock`, JSON lines of [`writ_types::frame`], for local clients.
//!
//! No decision of an agent is made here, and nobody is let in but by
//! [`writ_policy::principal`]: the kernel names the user at the other end of the socket.

pub mod control;

mod connection;

mod watch;
