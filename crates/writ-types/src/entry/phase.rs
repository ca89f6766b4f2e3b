//! Phases of turns.

use serde::{Deserialize, Serialize};

/// Phases of a turn that are facts of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnPhase {
    /// It began.
    Started,
    /// It was taken up again after a restart.
    Resumed,
    /// It ended with an answer.
    Finished,
    /// It ended without the answer that was wanted.
    Failed,
    /// A person stopped it.
    Cancelled,
}
