//! The plan document: read from what a planner wrote, checked, written, put in order; the judge of its checks; and the reader of skills.
//!
//! Pure: no files, no clock, no runtime. A planner is a model, so [`read::read_plan`] bounds everything and reports each
//! mistake with its line and a hint that the model can act on. [`judge::judge_check`] is the only place that turns what
//! a verification run has shown into a verdict.

pub mod read;

pub mod write;

pub mod check;

pub mod order;

pub mod judge;

pub mod run;

pub mod machine;

pub mod protect;

pub mod skill;

pub mod error;

mod body;

mod fields;

mod json_path;

mod yaml;
