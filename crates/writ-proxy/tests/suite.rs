//! The proxy in the test's own process: real keys, a real door, ledger and database, and real sockets.

#[cfg(test)]
#[path = "suite/bed.rs"]
mod bed;

#[cfg(test)]
#[path = "suite/keys.rs"]
mod keys;

#[cfg(test)]
#[path = "suite/limits.rs"]
mod limits;

#[cfg(test)]
#[path = "suite/logic.rs"]
mod logic;

#[cfg(test)]
#[path = "suite/masking.rs"]
mod masking;

#[cfg(test)]
#[path = "suite/restart.rs"]
mod restart;

#[cfg(test)]
#[path = "suite/sockets.rs"]
mod sockets;
