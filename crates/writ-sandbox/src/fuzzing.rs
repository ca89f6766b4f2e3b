//! The readers of this crate for the targets of `fuzz/`: bytes in, nothing out. For any bytes, nothing
//! panics, and every assertion holds.

#[cfg(all(target_os = "linux", not(writ_other_system)))]
pub use crate::linux::fuzzing::{changed, frame};

/// There is nothing to read here.
#[cfg(any(not(target_os = "linux"), writ_other_system))]
pub fn frame(_bytes: &[u8]) {}

/// There is nothing to show here.
#[cfg(any(not(target_os = "linux"), writ_other_system))]
pub fn changed(_bytes: &[u8]) {}
