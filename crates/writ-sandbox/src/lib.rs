//! Runs what agents run: the sandbox, the session's work folder in it, its diff, and the host's own git.
//!
//! Read in this order: [`config`] and [`status`] say what can be had, [`exec`] and [`mod@file`] are what is done
//! inside, [`changes`], [`apply`] and [`outbox`] bring work out, [`host`] starts the few processes that run outside.
//!
//! Every effect takes a [`Permit`](writ_policy::permit::Permit) by value. The host never runs what the
//! sandbox could have written, and there is no function here that would.
//!
//! A binary that uses this crate calls [`init_main`] first in its `main`: the same file, started again, is the
//! zygote that forks sandboxes and the worker that reads files inside them.

pub mod config;

pub mod error;

pub mod status;

pub mod exec;

pub mod serve;

pub mod file;

pub mod changes;

pub mod apply;

pub mod outbox;

pub mod host;

#[doc(hidden)]
pub mod fuzzing;

#[cfg(any(target_os = "linux", test))]
mod name;

#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "linux")]
pub use linux::{Sandbox, Workspace, forget_back, init_main};

#[cfg(not(target_os = "linux"))]
mod refuse;

#[cfg(not(target_os = "linux"))]
pub use refuse::{Sandbox, Workspace, forget_back, init_main};
