//! The door from outside, with what its own tests cannot have: an authenticator in software.

#![expect(clippy::expect_used, reason = "a test that cannot go on ends")]

#[path = "suite/passkeys.rs"]
mod passkeys;
