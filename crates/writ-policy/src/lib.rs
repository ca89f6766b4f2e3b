//! The door: everything that an agent does to the world passes here.
//!
//! Pure: no I/O, no runtime, no clock, no randomness; what it must know are arguments. Read in this
//! order: [`principal`] says who speaks, [`prepared`] what is wished, [`keys`] and [`scope`] what was
//! granted, [`gate`], [`access`], [`rules`], [`taint`] and [`budget`] what is judged, [`show`] and [`approval`] what
//! a person signs, with a key or a passkey ([`webauthn`], taken in by [`enrolment`]), [`door`] puts them in order,
//! and [`permit`] is what comes out. [`egress`] judges each connection of what a permit lets reach out; [`reach`] and
//! [`origin`] tell the rules beforehand how far an action would reach, and whether the owner named where ([`owner`]). [`redact`]
//! keeps secrets out of every text.

pub mod principal;

pub mod keys;

pub mod access;

pub mod rules;

pub mod suggest;
pub mod taint;

pub mod budget;

pub mod pattern;

pub mod answer;

pub mod approval;

pub mod plan;

pub mod review;

pub mod enrolment;

pub mod inbound;

pub mod order;

pub mod door;

pub mod permit;

pub use writ_inspect::{
    egress, gate, origin, owner, prepared, reach, redact, scope, show, webauthn, withhold,
};

mod report;

#[cfg(test)]
mod fixture;
