//! The answer to an agent's question for permission, by a rule instead of by a person.
//!
//! The sandbox is the wall, and this is a sign in front of it: a yes lets the agent do nothing that it could not do without asking,
//! and a no makes an honest agent look for another way.

use serde_json::Value;

use crate::bounds::{MAX_ID_BYTES, MAX_OPTIONS, MAX_PATH_BYTES, MAX_PATHS};

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

    pub(crate) const fn is_empty(&self) -> bool {
        self.paths.is_empty() && !self.is_cut
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
/// If anything of it lies outside the work tree, or nothing is known about it.
pub(crate) fn judge_call(folder: &str, kind: ToolKind, paths: &NamedPaths) -> Result<(), &'static str> {
    if paths.is_cut || paths.paths.iter().any(|path| !is_inside(folder, path)) {
        return Err("it is not inside the work tree");
    }
    match kind {
        // A command runs in the agent's own sandbox, on the work tree alone.
        ToolKind::Read | ToolKind::Search | ToolKind::Execute | ToolKind::Think => Ok(()),
        ToolKind::Edit | ToolKind::Delete | ToolKind::Move if paths.is_empty() => Err("it names no file"),
        ToolKind::Edit | ToolKind::Delete | ToolKind::Move => Ok(()),
        ToolKind::Fetch => Err("there is no network"),
        ToolKind::SwitchMode => Err("it works in one mode"),
        ToolKind::Other => Err("nothing is known about it"),
    }
}

/// Chooses the option that says yes or no once. A yes for ever is never given, since it would be one to what is not known yet.
pub(crate) fn choose_option(params: &Value, is_yes: bool) -> Option<String> {
    let options = params.get("options").and_then(Value::as_array)?;
    let with_kind = |wanted: &str| {
        let found = options
            .iter()
            .take(MAX_OPTIONS)
            .find(|option| option.get("kind").and_then(Value::as_str) == Some(wanted))?;
        let id = found.get("optionId").and_then(Value::as_str)?;
        (id.len() <= MAX_ID_BYTES).then(|| id.to_owned())
    };
    if is_yes {
        with_kind("allow_once")
    } else {
        with_kind("reject_once").or_else(|| with_kind("reject_always"))
    }
}
