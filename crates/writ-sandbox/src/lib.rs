//! Runs what agents run: the sandbox, the session's work folder in it, its diff, and the host's own git.
//!
//! Read in this order: [`config`] and [`status`] say what can be had, [`exec`] and [`mod@file`] are what is done
//! inside, [`changes`], [`apply`] and [`outbox`] bring work out, [`host`] starts the few processes that run outside,
//! [`git`] works with a user's repository, and [`agent`] locks in a program that is an agent itself, in a [`container`] if that
//! is ordered.
//!
//! Every effect takes a [`Permit`](writ_policy::permit::Permit) by value; only `agent` has none, since a person starts it. The host never runs what the
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

pub mod git;

pub mod agent;

pub mod container;

#[doc(hidden)]
pub mod fuzzing;

mod name;

mod inside;

mod blocking;

#[cfg_attr(
    any(not(target_os = "linux"), writ_other_system),
    expect(dead_code, reason = "no runner of other systems runs anything yet")
)]
mod project;

mod file_request;

mod command;

#[cfg_attr(
    any(not(target_os = "linux"), writ_other_system),
    expect(dead_code, reason = "no runner of other systems runs anything yet")
)]
mod runner;

mod refuse;

#[cfg(all(target_os = "linux", not(writ_other_system)))]
mod linux;

mod workspace;

mod sandbox;

#[cfg(test)]
mod tests;

pub use sandbox::Sandbox;
pub use workspace::{Workspace, forget_back};

#[cfg(all(target_os = "linux", not(writ_other_system)))]
pub use linux::init_main;

/// Does nothing: no process is started as a helper on this system.
#[cfg(any(not(target_os = "linux"), writ_other_system))]
pub const fn init_main() -> Option<std::process::ExitCode> {
    None
}
