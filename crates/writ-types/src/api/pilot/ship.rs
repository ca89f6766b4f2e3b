//! The request for review of a unit at a forge, as people see it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::AskId;
use crate::unit::Timestamp;

/// The state of a unit's request at a forge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PilotShipState {
    /// It is to be opened: the work is merged.
    Pending,
    /// A person is asked about it.
    Asked,
    /// It is open at the forge.
    Opened,
    /// It was not opened.
    Failed,
}

/// The request of a unit at a forge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotShip {
    /// Its state.
    pub state: PilotShipState,
    /// Its address, once it is open.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The code of the error, where it was not opened.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// The state in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The next thing to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// The question about it, where a person is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<AskId>,
    /// When it came into this state.
    pub at: Timestamp,
}

impl PilotShip {
    /// Makes one in a state without details.
    pub fn in_state(state: PilotShipState, at: Timestamp) -> Self {
        let [url, code, text, hint] = [const { String::new() }; 4];
        Self { state, url, code, text, hint, ask: None, at }
    }
}
