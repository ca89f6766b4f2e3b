//! The readers of this crate for the targets of `fuzz/`: bytes in, nothing out. Whatever they are,
//! nothing panics, and what is asserted holds.

#[cfg(target_os = "linux")]
pub use crate::linux::fuzzing::{changed, frame};

/// There is nothing to read here.
#[cfg(not(target_os = "linux"))]
pub fn frame(_bytes: &[u8]) {}

/// There is nothing to show here.
#[cfg(not(target_os = "linux"))]
pub fn changed(_bytes: &[u8]) {}
