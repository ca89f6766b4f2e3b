//! Surfaces of the engine: `control.sock` for commands of this machine, and HTTP with WebSockets for the page
//! and for programs. Both carry the same frames of [`writ_types::frame`].
//!
//! No decision of an agent is made here, and [`writ_policy::principal`] alone admits a client: the kernel
//! names the user at the other end of the socket, and a secret of the home proves its bearer.

pub mod control;

pub mod http;

mod connection;

mod line;

mod quoted;

mod watch;
