//! Calls of tools that other programs have.

use serde::{Deserialize, Serialize};

use crate::entry::Risk;

/// A call of a foreign tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTool {
    /// The server or plugin.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: serde_json::Value,
    /// Host and port that the call goes to, where the server is reached at a URL; set by the harness, from the owner's
    /// word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether it changes anything anywhere; set by the harness, from the owner's word alone.
    pub effect: bool,
    /// Whether the owner has declared which arguments say who, where and what; set by the harness.
    pub declared: bool,
    /// Whether it passes content on to others, or may: nobody has declared what it does; set by the harness.
    pub sends: bool,
    /// How much harm a wrong approval can do; set by the harness, from the owner's word alone.
    pub risk: Risk,
}
