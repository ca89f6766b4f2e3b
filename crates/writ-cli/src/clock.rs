//! The wall clock and random numbers of the binary.

use std::time::{SystemTime, UNIX_EPOCH};

use rand::RngCore as _;
use writ_types::unit::Timestamp;

/// Now.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(0).plus_duration(since)
}

/// Random bits for an id.
pub(crate) fn random() -> u128 {
    u128::from_le_bytes(random_bytes())
}

/// 16 random bytes.
pub(crate) fn random_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    rand::rng().fill_bytes(&mut bytes);
    bytes
}
