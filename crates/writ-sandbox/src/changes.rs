//! The changes of a session: the diff of its work folder against the project, read by the host from the upper
//! directory alone, without following links.

use serde::{Deserialize, Serialize};
use writ_types::action::FileChange;

/// The most files that one change set lists. Above it, the rest is left out, and a field says so.
pub const CHANGES_MAX: usize = 2_000;
/// The most bytes that all changed files together may have.
pub const CHANGES_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The largest single file that is carried out, in bytes.
pub const CHANGE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The most entries that are listed as left out; the rest is counted.
pub const LEFT_OUT_MAX: usize = 500;
/// The largest text diff of one file, in bytes of both sides; above it sizes and digests are shown.
pub const DIFF_TEXT_MAX: u64 = 512 * 1024;

/// Everything that a session changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSet {
    /// The changes that can be applied, sorted by path.
    pub changes: Vec<FileChange>,
    /// The changes that cannot, sorted by path.
    pub left_out: Vec<LeftOut>,
    /// The number of further entries left out, beyond the [`LEFT_OUT_MAX`] that are listed.
    pub left_out_more: u64,
    /// The number of entries that were left out for a bound alone: too large, or too many.
    pub over_bounds: u64,
    /// Files among `changes` that other programs execute or obey when the project is opened or built.
    pub notices: Vec<Notice>,
}

impl ChangeSet {
    /// Returns true if the session changed nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.left_out.is_empty()
    }
}

/// The changes of a session, with the text that a person is shown: both of the same moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diff {
    /// The changes.
    pub changes: ChangeSet,
    /// The unified diff, and what is left out and why.
    pub text: String,
    /// Changed files that `text` does not show completely: too large, or too large and not text.
    pub unshown: Vec<String>,
}

/// Something that is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its path, escaped so that it can be shown.
    pub shown: String,
    /// The reason.
    pub reason: LeftOutReason,
}

/// The reason why an entry is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOutReason {
    /// A symbolic link.
    SymbolicLink,
    /// A pipe, socket or device.
    Special,
    /// The file has the set-user-id or set-group-id bit.
    SetId,
    /// It belongs to a git directory: hooks and configuration in it would be executed.
    GitDirectory,
    /// Its name has control characters, direction marks, invisible characters, or is not UTF-8.
    HostileName,
    /// It cannot be read by the host.
    Unreadable,
    /// It is larger than a bound.
    TooLarge,
    /// There are more changes than a bound.
    TooMany,
    /// The project's own rules leave this folder out of its work: build results, caches.
    Ignored,
    /// The project's file was changed after the session took it: applying would undo that.
    Stale,
    /// The project has a folder or something else than a file in this place, or the other way round.
    KindChanged,
}

impl LeftOutReason {
    /// The reason in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SymbolicLink => "symbolic link",
            Self::Special => "special file",
            Self::SetId => "set-user-id or set-group-id",
            Self::GitDirectory => "part of a git directory",
            Self::HostileName => "name that cannot be shown",
            Self::Unreadable => "not readable",
            Self::TooLarge => "too large",
            Self::TooMany => "too many changes",
            Self::Ignored => "ignored folder or cache",
            Self::Stale => "changed in the project meanwhile",
            Self::KindChanged => "not the same kind of thing as in the project",
        }
    }
}

/// A changed file that other programs execute or obey by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The file.
    pub path: String,
    /// The programs that obey it.
    pub why: String,
}
