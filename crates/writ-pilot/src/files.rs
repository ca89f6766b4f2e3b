//! The files of a project, as the map and the detection of gates see them: those of a commit, so that ignored files and the user's
//! uncommitted work are no part of it.

use std::collections::BTreeMap;

use writ_sandbox::git::files::{CommitFile, FILES_MAX, list_files, read_files};
use writ_sandbox::git::{CommitId, GitFault, GitProject};

/// Names of files that say how a project is built and tested, without their case.
pub(crate) const MANIFESTS: [&str; 25] = [
    "cargo.toml",
    "package.json",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "pytest.ini",
    "tox.ini",
    "requirements.txt",
    "requirements-dev.txt",
    "pipfile",
    "go.mod",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "composer.json",
    "gemfile",
    "mix.exs",
    "cmakelists.txt",
    "meson.build",
    "deno.json",
    "makefile",
    "gnumakefile",
    "justfile",
    ".justfile",
    "dockerfile",
];

/// The names of all files, and the texts of those that say something about the whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectFiles {
    /// The paths of all files, as bytes, in their order.
    pub(crate) paths: Vec<Vec<u8>>,
    /// The texts of manifests and the README, by path.
    pub(crate) texts: BTreeMap<String, String>,
}

impl ProjectFiles {
    /// Takes paths and texts as they are.
    pub fn of_parts(mut paths: Vec<Vec<u8>>, texts: BTreeMap<String, String>) -> Self {
        // Folders are read off neighbours.
        paths.sort();
        Self { paths, texts }
    }

    /// Reads the files of a commit.
    ///
    /// # Errors
    ///
    /// If git cannot read the commit.
    pub async fn read_commit(project: &GitProject, commit: &CommitId) -> Result<Self, GitFault> {
        let all = list_files(project, commit).await?;
        let mut telling: Vec<&CommitFile> = all.iter().filter(|file| is_telling(&file.path)).collect();
        // Those of the whole before those of a part.
        telling.sort_by_key(|file| (count_folders(&file.path), &file.path));
        telling.truncate(FILES_MAX);
        let contents = read_files(project, &telling).await?;
        let mut texts = BTreeMap::new();
        for (file, content) in telling.iter().zip(contents) {
            let path = std::str::from_utf8(&file.path).ok();
            if let (Some(path), Some(text)) =
                (path, content.and_then(|content| String::from_utf8(content).ok()))
            {
                texts.insert(path.to_owned(), text);
            }
        }
        Ok(Self::of_parts(all.into_iter().map(|file| file.path).collect(), texts))
    }

    /// Returns true if a file of this path is there.
    pub(crate) fn has_path(&self, path: &str) -> bool {
        self.paths.binary_search_by(|other| other.as_slice().cmp(path.as_bytes())).is_ok()
    }

    /// Returns the text of a file at the top, by its name without case.
    pub(crate) fn top_text(&self, name: &str) -> Option<&str> {
        let found = self.texts.iter().find(|(path, _)| path.eq_ignore_ascii_case(name));
        found.map(|(_, text)| text.as_str())
    }
}

pub(crate) fn count_folders(path: &[u8]) -> usize {
    path.iter().filter(|byte| **byte == b'/').count()
}

/// Returns the last part of a path.
pub(crate) fn name_of(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    slash.and_then(|slash| path.get(slash + 1..)).unwrap_or(path)
}

pub(crate) fn is_manifest(path: &[u8]) -> bool {
    let name = name_of(path);
    // The length first: a repository may have 100,000 names.
    MANIFESTS.iter().any(|known| known.len() == name.len() && name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Returns true for a README at the top.
pub(crate) fn is_readme(path: &[u8]) -> bool {
    count_folders(path) == 0 && path.get(..6).is_some_and(|begin| begin.eq_ignore_ascii_case(b"readme"))
}

fn is_telling(path: &[u8]) -> bool {
    is_readme(path) || (count_folders(path) <= 2 && is_manifest(path))
}
