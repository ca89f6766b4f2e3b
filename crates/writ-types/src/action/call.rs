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
    /// True if it changes anything anywhere; set by the harness, from the owner's file alone.
    pub effect: bool,
    /// True if the owner has declared the arguments that name recipients, places and amounts; set by the
    /// harness.
    pub declared: bool,
    /// True if it passes content on to others, or may, for lack of a declaration; set by the harness.
    pub sends: bool,
    /// The sink arguments that name recipients of the content, as dotted paths; empty: undeclared, so all of
    /// them. Set by the harness, from the owner's file alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub whom: Vec<String>,
    /// The fields of results, `FIELD` of its own server or `SERVER.FIELD`, that an argument may be taken from beside those of
    /// its own name, by its dotted path. Set by the harness, from the owner's word alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub takes: BTreeMap<String, Vec<String>>,
    /// The sink arguments that must belong to a record named in the owner's request, where it names any of
    /// its list, as dotted paths. Set by the harness, from the owner's file alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<String>,
    /// The harm that a wrong approval can do; set by the harness, from the owner's file alone.
    pub risk: Risk,
}
