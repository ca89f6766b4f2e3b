//! Starts programs and finds the workspace, for the tasks of this repository.

mod program;

mod root;

pub use program::{Ended, Output, Program, Running, exists, on_ci, target_directory, variable};
pub use root::workspace_root;
