//! The door: every action of an agent is decided here.
//!
//! Pure: no I/O, no runtime, no clock, no randomness; all facts are arguments. Read in this order:
//! [`principal`] authenticates the speaker, [`prepared`](writ_inspect::prepared) is the requested action, [`keys`] hold the
//! grants in dimensions of [`scope`](writ_inspect::scope), [`access`], [`rules`], [`taint`] and [`budget`] judge,
//! [`show`](writ_inspect::show) makes the text and [`approval`] checks the signature of a person, with a key or a passkey
//! (enrolled by [`enrolment`]), [`door`] puts the stages in order, and [`permit`] is the result. The instruments of these
//! stages are in `writ-inspect`.

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

pub mod cadence;
pub mod review;

pub mod enrolment;

pub mod inbound;

pub mod order;

pub mod door;

pub mod permit;

mod reasons;

mod report;

#[cfg(test)]
mod fixture;
