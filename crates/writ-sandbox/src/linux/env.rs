//! The variables of a program.

use std::collections::BTreeMap;
use std::path::Path;

use super::NativeRunner;
use super::mounts::TRUST_ALL;
use super::network;
use super::places::{Places, shown_folder};
use super::spec::{Spec, Walls};
use crate::config::has_time_zone;
use crate::exec::PROXY_PORT;
use crate::inside::INNER_HOME;
use crate::project::git;
use crate::runner::{FolderAccess, RunRequest};

/// Returns the environment of a program.
pub(super) fn program_variables(
    native: &NativeRunner,
    spec: &Spec,
    places: &Places,
    request: &RunRequest,
) -> BTreeMap<String, String> {
    let (home, tmp) = match spec.base.walls {
        Walls::Full => (INNER_HOME.to_owned(), "/tmp".to_owned()),
        Walls::Reduced => (places.home.display().to_string(), places.scratch.display().to_string()),
    };
    let path = &native.toolchains.path;
    let mut env = BTreeMap::from([("PATH".to_owned(), path.clone()), ("HOME".to_owned(), home)]);
    if spec.base.walls == Walls::Reduced {
        // There is no `/tmp` of its own in its place, so compilers and tests would have none at all.
        env.insert("TMPDIR".to_owned(), tmp.clone());
    }
    let own = request.variables.clone();
    if request.access == FolderAccess::Scratch {
        // Only a gate has variables of its own, the text that it judges; a verification gets none.
        env.extend(own);
        return env;
    }
    let fixed = [
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
        // Bytecode is looked up by whole seconds and size: an edit right after a run would not be seen.
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("USER", "agent"),
        ("LOGNAME", "agent"),
        ("SHELL", "/bin/sh"),
    ];
    env.extend(fixed.map(|(name, value)| (name.to_owned(), value.to_owned())));
    env.insert("TMPDIR".to_owned(), tmp);
    env.extend(shown_folder(request).map(|shown| {
        let seen = match spec.base.walls {
            Walls::Full => format!("{INNER_HOME}/{}", shown.kind.folder_name()),
            Walls::Reduced => shown.path.display().to_string(),
        };
        (shown.kind.variable().to_owned(), seen)
    }));
    let rustup = native.toolchains.rustup_home.as_ref();
    env.extend(rustup.map(|path| ("RUSTUP_HOME".to_owned(), path.display().to_string())));
    let zone = native.config.time_zone.as_ref();
    env.extend(zone.filter(|zone| has_time_zone(zone)).map(|zone| ("TZ".to_owned(), zone.clone())));
    if spec.setup.trust.is_some() {
        env.extend(network::trust_variables(TRUST_ALL));
    }
    if let (Walls::Full, Some(project)) = (spec.base.walls, &request.folders.project) {
        let top = spec.setup.git.as_ref().and_then(|git| git.top.as_deref());
        env.extend(git::variables::git_variables(project, top, path));
    }
    env.extend(own);
    // Last: a command's own variables do not lead it past its way out.
    let proxied = spec.setup.ports.contains(&PROXY_PORT);
    env.extend(proxied.then(network::proxy_variables).into_iter().flatten());
    env
}

/// Returns true if a folder is there and has an entry.
pub(super) fn has_entries(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}
