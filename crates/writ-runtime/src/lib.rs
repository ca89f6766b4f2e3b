//! The imperative shell: drives the pure cores, gathers facts and verdicts, performs what is permitted.
//!
//! Read in this order: [`config`], [`clock`] and [`core`] say what an engine is made of, [`engine`] what
//! surfaces call; `dispatch` takes messages from the queue, `drive` runs a turn, `act` and `model` are
//! its two kinds of step, `passage` is their way through the door, `perform` what happens behind it;
//! `asks`, `passkeys` and `project` bring people in; `recover` and `settle` are what a restart finds; `calls` answers
//! questions, those that [`methods`] names; `trace` is what all of them tell of their work.

pub mod config;

pub mod clock;

pub mod core;

pub mod secret;

pub mod servers;

pub mod engine;

pub mod error;

mod session;

mod opening;

mod orders;

mod history;

mod hub;

mod commit;

pub mod metrics;

pub mod rules;

mod trace;

mod undo;

mod erase;

mod heads;

mod dispatch;

mod drive;

mod act;

mod model;

mod segment;

mod gates;

mod hooks;

mod access;

mod passage;

mod plans;

mod perform;

mod reach;

mod trust;

mod subscriptions;

mod asks;

mod passkeys;

mod project;

mod quarantine;

mod recover;

mod closing;

mod settle;

mod calls;

pub mod methods;
