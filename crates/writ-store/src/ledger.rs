//! The ledger: signed rows in a Merkle tree, with payloads that can be erased.
//!
//! One row is a header, a signature over it, and a payload apart from it:
//!
//! ```text
//! commitment = SHA-256("writ-payload-v1\n" ‖ salt ‖ payload)          payload: canonical JSON of the fact
//! header     = "writ-entry-v1\n" seq "\n" at "\n" session "\n" turn "\n" turn_number "\n" event "\n" commitment "\n"
//! signature  = Ed25519(header)                                         by the harness
//! leaf       = SHA-256(0x00 ‖ header ‖ signature)                      RFC 6962
//! ```
//!
//! `at` is in milliseconds since 1970, an absent session or turn is an empty line, the commitment is
//! hexadecimal. The tree therefore covers the signatures too: rows below a signed head are checked by hashing
//! alone, and the signatures name the culprit where a head does not fit.

pub mod head;

pub mod proof;

pub mod verify;

pub mod tree;

pub mod row;

pub mod export;

pub mod erase;

pub mod lost;

pub mod rests_on;

pub mod rotation;

pub(crate) mod append;
