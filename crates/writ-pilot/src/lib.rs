//! The shell of the autopilot: goals become merged commits, within what a person has approved.
//!
//! Read in this order: [`pilots`] is what people reach, `goal` has a goal planned and asks about it, `drive` hands units to workers and
//! writes down what comes of them by the pure machine of `writ-autopilot`. [`config`], [`prompts`] and [`planning`] read what people and
//! planners write.
//!
//! Of its git service: [`naming`] makes the names of folders, [`service`] opens a repository and cleans up after a crash,
//! [`workspace`] gives each slice a work tree and commits its work, [`mod@merge`] brings slices to the target branch, [`resolve`] and
//! [`revert`] are for conflicts and regrets.
//!
//! Three rules hold everywhere. A reference moves by compare-and-swap, and the target only to a commit that a check has passed as
//! a whole. Nothing is deleted before its commits are proven to be in the target; otherwise it stays below `refs/writ/archive/`. The
//! user's uncommitted work, index, stashes, hooks and configuration are not touched; where the target could not move without that, it
//! stays, and the result says so.

pub mod naming;

pub mod config;

pub mod prompts;

pub mod planning;

pub mod files;

pub mod repo_map;

pub mod findings;

pub mod probe;

pub mod review;

pub mod report;

pub mod standing;

pub mod unit_files;

mod start;

mod session;

mod project;

mod loop_control;

mod settings;

mod goal;

mod show;

mod history;

mod state;

mod refresh;

mod span_queue;

mod chapters;

mod learned;

mod skills;

mod spans;

mod account;

mod trace;

mod orders;

mod rating;

mod circuits;

mod regret;

mod reload;

mod checkup;

pub mod trial;

mod drive;

pub mod pilots;

pub mod error;

pub mod events;

pub mod service;

mod recover;

pub mod workspace;

pub mod merge;

pub mod resolve;

pub mod revert;

pub use error::PilotGitError;
pub use service::PilotGit;
