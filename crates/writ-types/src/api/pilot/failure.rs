//! The classes of the autopilot's failures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The class of a failure of the autopilot. It fixes what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// Settings, templates, models or the repository are not as they must be.
    Config,
    /// The folder of the work, its hooks and its checks.
    Workspace,
    /// The agent and its turns.
    AgentSession,
    /// Traces and other records for people.
    Observability,
}

impl FailureClass {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::Config, Self::Workspace, Self::AgentSession, Self::Observability];

    /// Returns its name, as the log and programs read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Workspace => "workspace",
            Self::AgentSession => "agent_session",
            Self::Observability => "observability",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_read_the_names_of_classes() {
        for class in FailureClass::ALL {
            assert_eq!(serde_json::to_value(class).expect("JSON"), class.name());
        }
    }
}
