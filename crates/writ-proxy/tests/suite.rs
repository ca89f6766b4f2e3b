//! The proxy in the test's own process: real keys, a real door, ledger and database, and real sockets.

#[path = "suite/bed.rs"]
mod bed;

#[path = "suite/keys.rs"]
mod keys;

#[path = "suite/limits.rs"]
mod limits;

#[path = "suite/masking.rs"]
mod masking;

#[path = "suite/restart.rs"]
mod restart;

#[path = "suite/sockets.rs"]
mod sockets;
