//! Model calls: which model, what it may cost, the call itself, and what can go wrong with it.
//!
//! A call has two steps, so that the door can judge in between. [`Models::plan`] resolves role, provider and
//! model and says what the call would be: a [`writ_types::action::ModelCall`] with host, digest, size and the
//! most it may cost. [`Models::call`] consumes the permit for exactly that call, performs one attempt, sends
//! text as it comes and returns the whole answer or one typed error. Which route is asked next, and when, is a
//! question to [`failover::Course`]; each further attempt needs a permit of its own.
//!
//! The requests are made and sent by `genai`, over a client that `writ-egress` lends for the permitted host.
//! The answer is read from the raw stream frames that `genai` hands out, because correctness needs what its
//! own events leave out: the model that answered, a tool call that lacks its id, a stream that ends without a
//! stop reason, bounds on everything.
//!
//! Read in this order: [`config`] and [`provider`] say where, [`catalogue`] what it costs, [`plan`] and
//! [`call`] do it, [`error`], [`retry`], [`rate`], [`failover`], [`window`] and [`support`] are what follows when it fails. [`structured`] asks for
//! an answer of one form, [`embedding`] for vectors, [`schema`] writes the schemas of tools as each provider takes them, [`detect`] finds a model
//! where none is configured.

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

pub mod rate;

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
