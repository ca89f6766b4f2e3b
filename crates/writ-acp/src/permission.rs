//! The answer to an agent's question for permission, by a rule instead of by a person.
//!
//! The sandbox is the wall, and this is a sign in front of it: a yes lets the agent do nothing that it could not do without asking.
//! Many agents end their turn at a no. So a no is for what cannot come to anything: a change of a file outside the work tree, and
//! another mode.

use serde_json::Value;

use crate::bounds::{MAX_ID_BYTES, MAX_OPTIONS, MAX_PATH_BYTES, MAX_PATHS};

/// The agent's own folders, for files that are none of the work: they end with its sandbox.
const SCRATCH: [&str; 2] = ["/tmp", "/home/agent"];
/// Parts of the ids of answers that end the whole turn.
const ENDS_OF_TURN: [&str; 2] = ["cancel", "abort"];

/// The kind of a tool call, as its agent names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolKind {
    /// Reads a file.
    Read,
    /// Changes a file.
    Edit,
    /// Deletes a file.
    Delete,
    /// Moves a file.
    Move,
    /// Searches files.
    Search,
    /// Runs a command.
    Execute,
    /// Thinks.
    Think,
    /// Gets something from a network.
    Fetch,
    /// Leads into another mode.
    SwitchMode,
    /// Anything else, and what has no name here.
    #[default]
    Other,
}

impl ToolKind {
    /// Every kind, with its name in the protocol.
    pub const NAMES: [(Self, &'static str); 10] = [
        (Self::Read, "read"),
        (Self::Edit, "edit"),
        (Self::Delete, "delete"),
        (Self::Move, "move"),
        (Self::Search, "search"),
        (Self::Execute, "execute"),
        (Self::Think, "think"),
        (Self::Fetch, "fetch"),
        (Self::SwitchMode, "switch_mode"),
        (Self::Other, "other"),
    ];

    /// Returns the kind with a name.
    pub fn from_name(name: &str) -> Self {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind).unwrap_or_default()
    }

    /// Returns its name in the protocol.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(kind, _)| *kind == self).map_or("other", |(_, name)| name)
    }
}

/// The paths that a tool call names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedPaths {
    paths: Vec<String>,
    /// Set if there are more, or one cannot be read: nothing is known then.
    is_cut: bool,
}

impl NamedPaths {
    /// Reads those of a tool call: its places, and the files of its changes.
    pub(crate) fn read_call(call: &Value) -> Self {
        let list =
            |name: &str| call.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let places = list("locations").iter().map(|place| place.get("path"));
        let is_diff = |part: &&Value| part.get("type").and_then(Value::as_str) == Some("diff");
        let changes = list("content").iter().filter(is_diff).map(|part| part.get("path"));
        let mut found = Self::default();
        for path in places.chain(changes) {
            match path.and_then(Value::as_str) {
                Some(path) if path.len() <= MAX_PATH_BYTES && found.paths.len() < MAX_PATHS => {
                    found.paths.push(path.to_owned());
                }
                Some(_) | None => {
                    found.is_cut = true;
                    return found;
                }
            }
        }
        found
    }

    /// Adds paths that were named later.
    pub(crate) fn add_paths(&mut self, later: Self) {
        self.is_cut |= later.is_cut;
        for path in later.paths {
            if self.paths.contains(&path) {
                continue;
            }
            if self.paths.len() >= MAX_PATHS {
                self.is_cut = true;
                return;
            }
            self.paths.push(path);
        }
    }
}

/// Returns true if a path, read by its letters alone, leads to the folder or below it.
pub fn is_inside(folder: &str, path: &str) -> bool {
    if path.contains('\0') || path.split('/').any(|part| part == "..") {
        return false;
    }
    // Relative paths begin in the work tree.
    if !path.starts_with('/') {
        return !path.is_empty() && !path.starts_with('~') && !path.contains("://");
    }
    // A neighbour such as `/workshop` begins with the same letters.
    let folder = folder.trim_end_matches('/');
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Judges a tool call. The error says why it is refused.
///
/// # Errors
///
/// If it would change a file outside the work tree and the agent's scratch space, or lead into another mode.
pub(crate) fn judge_call(folder: &str, kind: ToolKind, paths: &NamedPaths) -> Result<(), &'static str> {
    match kind {
        // The sandbox decides what these reach: it has no network, and shows nothing that the agent may not read.
        ToolKind::Read
        | ToolKind::Search
        | ToolKind::Execute
        | ToolKind::Think
        | ToolKind::Fetch
        | ToolKind::Other => Ok(()),
        ToolKind::Edit | ToolKind::Delete | ToolKind::Move => {
            let is_own =
                |path: &String| is_inside(folder, path) || SCRATCH.iter().any(|own| is_inside(own, path));
            let is_inside = !paths.is_cut && paths.paths.iter().all(is_own);
            if is_inside { Ok(()) } else { Err("it is not inside the work tree") }
        }
        ToolKind::SwitchMode => Err("it works in one mode"),
    }
}

/// Chooses the option that says yes or no once. A yes for ever is never given, since it would be one to what is not known yet.
pub(crate) fn choose_option(params: &Value, is_yes: bool) -> Option<String> {
    let options = params.get("options").and_then(Value::as_array)?;
    let with_kind = |wanted: &str| {
        let is_wanted = |option: &&Value| option.get("kind").and_then(Value::as_str) == Some(wanted);
        let ids = options.iter().take(MAX_OPTIONS).filter(is_wanted);
        let mut ids = ids.filter_map(|option| option.get("optionId").and_then(Value::as_str));
        let first = ids.clone().next()?;
        // Some offer two: one refuses the call, and one ends the whole turn.
        let id = ids.find(|id| !ENDS_OF_TURN.iter().any(|end| id.contains(end))).unwrap_or(first);
        (id.len() <= MAX_ID_BYTES).then(|| id.to_owned())
    };
    if is_yes {
        with_kind("allow_once")
    } else {
        with_kind("reject_once").or_else(|| with_kind("reject_always"))
    }
}
