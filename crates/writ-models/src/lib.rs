//! Calls of models: the choice of the model, the cost limit, the call itself, and its errors.
//!
//! A call has two steps, so that the door can decide between them. [`Models::plan`] resolves role, provider and
//! model and describes the call as a [`writ_types::action::ModelCall`] with host, digest, size and the highest
//! possible cost. [`Models::call`] consumes the permit for exactly that call, performs one attempt, streams the
//! text as it arrives and returns the whole answer or one typed error. After an error, [`failover::Course`]
//! chooses the next route and the time of the next attempt, which needs a permit of its own.
//!
//! The requests are made and sent by `genai`, over a client that `writ-egress` lends for the permitted host.
//! The answer is read from the raw stream frames that `genai` passes on, because its own events do not show
//! which model answered, that a tool call lacks its id, or that a stream ended without a stop reason, and
//! because every part of an answer needs a bound.
//!
//! Read in this order: [`config`] and [`provider`] resolve the model, [`catalogue`] has its limits and prices, [`plan`]
//! and [`call`] are the two steps, [`error`], [`retry`], [`failover`], [`window`] and [`support`] handle failures. [`structured`] asks for
//! an answer of a given form, [`embedding`] for vectors, [`schema`] writes the schemas of tools for each provider, [`detect`] finds a model
//! where none is configured. `rate` keeps what providers state of their limits, for people alone.

pub mod config;

pub mod credential;

pub mod provider;

pub mod catalogue;

pub mod plan;

mod convert;

pub mod schema;

mod fold;

mod refusal;

pub mod call;

pub mod embedding;

pub mod retry;

mod rate;

pub mod failover;

pub mod window;

pub mod support;

pub mod structured;

pub mod detect;

pub mod error;

#[doc(hidden)]
pub mod fuzzing;

pub use call::{Delta, Models};
pub use config::{ModelRole, ModelsConfig};
pub use plan::PlannedCall;

#[cfg(test)]
mod tests;
