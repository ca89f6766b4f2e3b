//! Calls of tools that other programs have.

use std::collections::BTreeMap;

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
    /// Which of the arguments that say who, where and what name those who get the content, as dotted paths; empty: nobody
    /// has said, so all of them. Set by the harness, from the owner's word alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub whom: Vec<String>,
    /// The fields of results, `FIELD` of its own server or `SERVER.FIELD`, that an argument may be taken from beside those of
    /// its own name, by its dotted path. Set by the harness, from the owner's word alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub takes: BTreeMap<String, Vec<String>>,
    /// Which of the arguments that say who, where and what must be of a record that the owner's request names, where it names
    /// any of its list, as dotted paths. Set by the harness, from the owner's word alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<String>,
    /// How much harm a wrong approval can do; set by the harness, from the owner's word alone.
    pub risk: Risk,
}
