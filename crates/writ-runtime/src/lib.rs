//! The imperative shell: drives the pure cores, gathers facts and verdicts, performs what is permitted.
//!
//! From bottom to top, each part uses those above it in this list alone:
//! - [`journal`] writes entries, [`keys`] mints and checks keys, [`door`] decides with both, and needs nothing else;
//! - `session` is one conversation, `sessions` finds them, `rules`, `reach` and `trust` are what is so in one, and
//!   `session_door` puts an action of one before the door;
//! - `gates`, `hooks` and `access` judge; `passage` has them judge before the door decides;
//! - [`services`] holds all of these;
//! - `model` and `act` are the two kinds of a turn's step, `perform` performs what is permitted, `servers` are other
//!   programs' tools;
//! - `coding` has the owner's [`coding_agent`] take turns of the autopilot;
//! - `asks`, `passkeys`, `project` and `undo` bring people in;
//! - `memories` holds the index of vectors, `recall` searches with it, `remembering` decides about new memories, `upkeep` embeds and
//!   consolidates them, `digest` has them distilled into the owner's profile;
//! - `tool_review` reviews the tools of other programs;
//! - `jobs` runs what is done again and again, `chores` is the table of it;
//! - `drive` runs a turn, `dispatch` takes messages from the queue, `recover` and `settle` are the restart;
//! - `proposals` asks about the plan of a work item, `work` runs its steps and has them checked;
//! - [`pilot`] are the hands of the autopilot;
//! - [`engine`] is the interface of surfaces, `calls` its methods.

pub mod clock;
pub mod coding_agent;
pub mod config;
pub mod error;
pub mod fleet;
pub mod forge;
pub mod home_files;

pub mod methods;
pub mod metrics;
pub mod outbox;
pub mod pilot_desk;
pub mod profile;
pub mod secret;
pub mod setup;

mod context_budget;
mod directory;
mod hub;
mod outcome;
pub mod pending;
mod segment;
mod subscription;
mod trace;

pub mod door;
pub mod interface;
mod jobs;
pub mod journal;
pub mod keys;

pub mod agent_records;
pub mod case_keys;

mod access;
mod gates;
mod hooks;
mod orders;
mod passage;
mod passkeys;
mod reach;
pub mod rules;
mod session;
mod session_door;
mod sessions;
mod trust;

mod approved;
mod compaction;
mod heads;

mod estimates;

mod history;
pub mod live;
mod memories;
pub mod servers;
pub mod services;

mod act;
mod answers;
mod asks;
mod breaker;

mod budget;
mod closing;
mod coding;
mod erase;
mod gatekeeper;
mod judging;
mod mcp;
mod model;
mod noticing;
mod opening;
mod oracle;
mod own_call;

mod chapters;
mod perform;
mod place;
mod plan_results;
mod plan_units;
mod planner;
mod plans;
mod project;
mod proposals;
mod quarantine;
mod recall;
mod remembering;
mod secrets;
mod subscriptions;
mod titles;
mod tool_review;
mod undo;
mod upkeep;
mod way_back;
mod work_calls;

mod calls;
mod chores;
mod deliveries;
mod digest;
mod dispatch;
mod drive;
pub mod engine;
pub mod pilot;
mod recover;
pub mod routed;
mod settle;
mod work;
