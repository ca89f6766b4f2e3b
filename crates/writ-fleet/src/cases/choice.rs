//! The choice of the next agent of a case.

use std::time::Duration;

use writ_runtime::case_keys::AgentBase;

use super::config::FleetAgent;

/// The agent for a case, or the reason why there is none now.
#[derive(Debug)]
pub(crate) enum AgentChoice {
    /// One that may take it.
    Free(Box<(FleetAgent, AgentBase)>),
    /// Those that do this work have as many cases as they may.
    Full,
    /// There is none. For so long another may be found yet: a deployed agent is meant that has no base key in force, or none
    /// that is known does this work.
    None {
        /// The time, from the first look.
        patience: Duration,
    },
}
