//! A user's repository as the autopilot uses it: typed operations, and no git command of a caller's own.
//!
//! Git runs in two places. All that reads or writes *content* (merges, commits, work trees) runs in a git directory of our own,
//! `<common>/writ/git`, which shares the objects of the repository and has a configuration of our own: no filter, driver, monitor,
//! hook or editor of the user's or an agent's configuration exists there, so none can run. All that is about *names* (references, the
//! list of work trees) runs in the repository itself, where git runs nothing but hooks, and those are switched off.
//!
//! Read in this order: [`open`] finds and judges the repository, [`names`] and [`refs`] are its references, [`commits`] merges and
//! writes commits, [`worktrees`] makes work trees below [`places`], and [`checkouts`] respects those of the user.

pub mod error;

pub mod names;

mod process;

mod lock;

pub mod open;

pub mod refs;

pub mod left_locks;

pub mod commits;

pub mod files;

pub mod history;

pub mod places;

mod indexes;

pub mod worktrees;

pub mod checkouts;

pub mod notes;

pub mod push;

pub use error::GitFault;
pub use names::{BranchName, CommitId, RefName, TreeId};
pub use open::GitProject;
