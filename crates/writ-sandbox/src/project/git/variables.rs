//! The variables that git gets inside.

use std::path::Path;

use super::uses_lfs;

/// The filters of Git LFS where its program is there: what lies in the work tree counts as the content that it is, and nothing is
/// downloaded when files are checked out.
const LFS: [(&str, &str); 4] = [
    ("filter.lfs.process", "git-lfs filter-process --skip"),
    ("filter.lfs.clean", "git-lfs clean -- %f"),
    ("filter.lfs.smudge", "git-lfs smudge --skip -- %f"),
    ("filter.lfs.required", "true"),
];
/// The same where it is not there: pointer files are plain files. A repository may name the filters as required, and git would stop
/// at each of its files.
const NO_LFS: [(&str, &str); 4] = [
    ("filter.lfs.process", ""),
    ("filter.lfs.clean", ""),
    ("filter.lfs.smudge", ""),
    ("filter.lfs.required", "false"),
];

/// Returns the variables that git needs, which override what a repository's own configuration says. `top` is the work
/// tree's root where the project is a subfolder of it, `path` the `PATH` of programs.
pub(crate) fn git_variables(project: &Path, top: Option<&Path>, path: &str) -> Vec<(String, String)> {
    let mut env = Vec::new();
    let mut set = |name: &str, value: &str| env.push((name.to_owned(), value.to_owned()));
    // A git built below `/usr/local` would look there.
    set("GIT_CONFIG_SYSTEM", "/etc/gitconfig");
    if top.is_some() {
        // A subfolder is mounted apart from the folder with `.git`.
        set("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1");
    }
    if [Some(project), top].into_iter().flatten().any(uses_lfs) {
        let is_there = path.split(':').any(|folder| Path::new(folder).join("git-lfs").is_file());
        let settings = if is_there { LFS } else { NO_LFS };
        set("GIT_CONFIG_COUNT", &settings.len().to_string());
        for (number, (key, value)) in settings.into_iter().enumerate() {
            set(&format!("GIT_CONFIG_KEY_{number}"), key);
            set(&format!("GIT_CONFIG_VALUE_{number}"), value);
        }
    }
    env
}
