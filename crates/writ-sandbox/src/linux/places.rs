//! A job's folders on the host, and its paths where nothing is mounted.

use std::path::{Path, PathBuf};

use super::spec::{Spec, Walls};
use crate::config::ShownFolder;
use crate::inside::WORK;
use crate::runner::{FolderAccess, RunRequest};

/// A job's folders on the host. On the second rung programs see them where they are.
pub(crate) struct Places {
    pub(crate) work: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) scratch: PathBuf,
    /// True if they are made anew for this job.
    pub(crate) fresh: bool,
}

impl Places {
    /// Returns the places of a run in a session's folder; `scratch`: of a run without lasting changes.
    pub(crate) fn of(session: &Path, walls: Walls, scratch: bool) -> Self {
        if scratch && walls == Walls::Reduced {
            let base = session.join("verify");
            Self { work: base.join("work"), home: base.join("home"), scratch: base.join("home"), fresh: true }
        } else {
            let [work, home, scratch] = ["tree", "home", "scratch"].map(|name| session.join(name));
            Self { work, home, scratch, fresh: false }
        }
    }

    /// Returns the real place of a path that is meant as on the first rung.
    pub(crate) fn resolve_path(&self, walls: Walls, inside: &str) -> PathBuf {
        let inside = Path::new(inside);
        if walls == Walls::Full {
            return inside.to_owned();
        }
        match (inside.strip_prefix(WORK), inside.strip_prefix("/tmp")) {
            (Ok(below), _) => self.work.join(below),
            (_, Ok(below)) => self.scratch.join(below),
            (Err(_), Err(_)) => inside.to_owned(),
        }
    }

    /// Names what a job of the second rung may use of the host.
    pub(crate) fn open_up(&self, access: FolderAccess, spec: &mut Spec) {
        let order = &mut spec.order;
        order.readable.extend(spec.base.binds.iter().cloned());
        let list = if access == FolderAccess::Read && !self.fresh {
            &mut order.readable
        } else {
            &mut order.writable
        };
        list.push(self.work.clone());
        order.writable.push(self.scratch.clone());
    }
}

/// Returns the folder of the host that the programs of this run see. It is in no verification and no gate: the result
/// would depend on it.
pub(super) fn shown_folder(request: &RunRequest) -> Option<&ShownFolder> {
    let shown = request.folders.shown.as_ref()?;
    // A link would lead to another folder of the owner's.
    let is_folder = std::fs::symlink_metadata(&shown.path).is_ok_and(|meta| meta.is_dir());
    (request.access == FolderAccess::Write && is_folder).then_some(shown)
}
