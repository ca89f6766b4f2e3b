//! The instruments of the door: everything that it judges with and that knows nothing of it.
//!
//! Pure: no I/O, no runtime, no clock, no randomness. [`prepared`] is an action with everything resolved, [`scope`] what it touches, [`show`] the
//! text of it that a person signs. [`gate`] judges texts and actions by the owner's configuration, [`origin`] and [`owner`] find where values come
//! from, [`egress`] judges connections and [`reach`] says how far an action would reach. [`redact`] keeps secrets out of every text, [`withhold`]
//! replaces what a provider may not read, and [`webauthn`] checks assertions of passkeys.
//!
//! Nothing here permits anything: permits are made in `writ-policy` alone.

#[cfg(test)]
extern crate self as writ_inspect;

pub mod egress;

pub mod gate;

pub mod origin;

pub mod owner;

pub mod prepared;

pub mod reach;

pub mod redact;

pub mod scope;

pub mod show;

pub mod webauthn;

pub mod withhold;

mod report;

#[cfg(test)]
mod fixture;
