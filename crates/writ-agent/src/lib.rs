//! The turn machine and the assembly of the context: events in, effects out.
//!
//! A [`turn::Turn`] is one user message and the agent's answer to it. It is a pure machine: its driver feeds
//! [`event::Event`]s and performs the [`effect::Effect`]s that come out. It has no clock, no I/O and no
//! randomness, it knows no provider and no policy. The same events give the same state and the same effects;
//! recovery after a crash only folds the stored events again.

pub mod event;

pub mod effect;

pub mod turn;

pub mod context;

pub mod config;

pub mod route;

pub mod notice;

mod repeat;

mod text;
