//! The pure parts of the autopilot: phases, units, workflows, the scheduler's choices, the supervisor's checks, and
//! the results of check scripts.
//!
//! No files, no clock, no runtime: `now` is an argument. The shell around it claims units, runs workers and git, and writes
//! each result of [`machine::apply_event`] down in one commit before it acts on it.

pub mod phase;

pub mod failure;

pub mod attempt;

pub mod blocker;

pub mod stand;

pub mod turns;

pub mod workflow;

pub mod reassess;

pub mod check;

pub mod machine;

pub mod unit_id;

pub mod units;

pub mod outline;

pub mod reconcile;

pub mod unit_plan;

pub mod usage;

pub mod claim;

pub mod routing;

pub mod circuit;

pub mod hook;

pub mod schedule;

pub mod progress;

pub mod supervise;

pub mod abort;

pub mod ceiling;

pub mod names;

pub mod doc_diff;

pub mod chapter;

pub mod learning;

pub mod notice;
