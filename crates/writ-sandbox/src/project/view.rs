//! A session's folder on the host: its parts, and what it shows of a project.

use std::path::PathBuf;

use super::git;

/// The parts of a session's folder: the overlay's two layers, the home, a folder or copy in place of an overlay, for the
/// second rung a place for temporary files and one for verification, and the layer over a git directory outside the project.
pub(crate) const FOLDERS: [&str; 7] =
    ["upper", "work", "home", "tree", "scratch", "verify", git::layer::FOLDER];

/// The form in which the work folder is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `upper` has what differs from the project.
    Overlay,
    /// `tree` is a copy of the project, `base.json` the record of its files.
    Copy,
    /// `tree` is all there is.
    Empty,
}

/// A workspace as the host sees it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) dir: PathBuf,
    pub(crate) project: Option<PathBuf>,
    pub(crate) layout: Layout,
    /// True if the modes of its files are the project's own, and not a session's.
    pub(crate) own_modes: bool,
    /// The root of the work tree that the project is a part of, where git has one.
    pub(crate) top: Option<PathBuf>,
}

impl View {
    /// The folder that has what the session wrote.
    pub(crate) fn written_folder(&self) -> PathBuf {
        self.dir.join(match self.layout {
            Layout::Overlay => "upper",
            Layout::Copy | Layout::Empty => "tree",
        })
    }
}
