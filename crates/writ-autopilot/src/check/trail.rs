//! The scripts that gates run, followed from one to the next. What cannot be followed to its end is named: a check that can be
//! changed unseen is none.

use std::collections::{BTreeMap, BTreeSet};

use super::calls::{CalledFile, files_of_text};
use super::protected::scripts_of;
use super::scripts::{called_scripts, runs_packages};

/// The most scripts that are followed: as many as are read of a commit at once.
pub const MAX_SCRIPTS: usize = 256;
/// The most paths that they name.
const MAX_PATHS: usize = 16_384;

/// The text of a script, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptText<'a> {
    /// Its bytes.
    Read(&'a [u8]),
    /// It is no plain file, or larger than what is read.
    Unread,
}

/// The scripts of gates that are known so far.
#[derive(Clone, Debug, Default)]
pub struct ScriptTrail {
    /// Paths that are protected, whether there is a file or not: one could be put there.
    paths: BTreeSet<String>,
    folders: BTreeSet<String>,
    /// Paths to be looked for next.
    open: BTreeSet<CalledFile>,
    read: BTreeSet<String>,
    /// The commands of gates, and all texts that were read.
    texts: Vec<String>,
    /// The scripts of packages, by the paths of those.
    packages: BTreeMap<String, BTreeMap<String, String>>,
    unread_packages: Vec<String>,
    called: BTreeSet<(String, String)>,
    gaps: Vec<String>,
}

impl ScriptTrail {
    /// Begins with the commands of gates, as texts, and with the files that they run.
    pub fn new(commands: &[String], files: impl IntoIterator<Item = CalledFile>) -> Self {
        let mut trail = Self { texts: commands.to_vec(), ..Self::default() };
        trail.add(files);
        trail
    }

    /// Takes a package: its scripts run files, too, where one of the commands calls them.
    pub fn add_package(&mut self, path: &str, text: ScriptText<'_>) {
        let scripts = match text {
            ScriptText::Read(bytes) => scripts_of(&String::from_utf8_lossy(bytes)),
            ScriptText::Unread => None,
        };
        match scripts {
            Some(scripts) => {
                self.packages.insert(path.to_owned(), scripts);
            }
            None => self.unread_packages.push(path.to_owned()),
        }
    }

    /// Follows the scripts of packages that are called by now, until no further one is.
    fn follow_packages(&mut self) {
        loop {
            let mut fresh = Vec::new();
            for (path, scripts) in &self.packages {
                for name in called_scripts(&self.texts, scripts) {
                    if self.called.insert((path.clone(), name.clone())) {
                        fresh.extend(scripts.get(&name).map(|text| (path.clone(), text.clone())));
                    }
                }
            }
            if fresh.is_empty() {
                break;
            }
            for (path, text) in fresh {
                // A command of a shell, with any first word.
                self.add(files_of_text(&format!("#!/bin/sh\n{text}"), &path));
                self.texts.push(text);
            }
        }
        if let Some(path) = self.unread_packages.first()
            && self.texts.iter().any(|text| runs_packages(text))
        {
            self.note_gap(format!("{path} cannot be read as a package"));
        }
    }

    fn add(&mut self, files: impl IntoIterator<Item = CalledFile>) {
        for file in files {
            if self.paths.len() + self.folders.len() + self.open.len() >= MAX_PATHS {
                self.note_gap(format!("they name more than {MAX_PATHS} files"));
                return;
            }
            match &file {
                CalledFile::At(path) => {
                    self.paths.insert(path.clone());
                }
                CalledFile::In(folder) => {
                    self.folders.insert(folder.clone());
                }
                CalledFile::EndsWith(_) => {}
                CalledFile::Unfollowed => {
                    self.note_gap("they nest more commands than are followed".to_owned());
                    continue;
                }
            }
            self.open.insert(file);
        }
    }

    fn note_gap(&mut self, gap: String) {
        if !self.gaps.contains(&gap) {
            self.gaps.push(gap);
        }
    }

    /// Returns the files of a commit that are to be read next, at most [`MAX_SCRIPTS`] in all.
    pub fn take_next<'a>(&mut self, files: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
        self.follow_packages();
        let open = std::mem::take(&mut self.open);
        if open.is_empty() {
            return BTreeSet::new();
        }
        let is_called = |path: &str| {
            // By the parts of the path, so that each is found without a look at all others.
            let ends = path.match_indices('/').map(|(at, _)| &path[at + 1..]).chain([path]);
            let folders = path.match_indices('/').map(|(at, _)| &path[..at]);
            open.contains(&CalledFile::At(path.to_owned()))
                || ends.into_iter().any(|end| open.contains(&CalledFile::EndsWith(end.to_owned())))
                || folders.into_iter().any(|folder| open.contains(&CalledFile::In(folder.to_owned())))
        };
        let mut next = BTreeSet::new();
        for path in files.filter(|path| is_called(path)) {
            if self.read.contains(path) {
                continue;
            }
            if self.read.len() >= MAX_SCRIPTS {
                self.note_gap(format!("there are more than {MAX_SCRIPTS}, and {path} is not followed"));
                break;
            }
            self.read.insert(path.to_owned());
            self.paths.insert(path.to_owned());
            next.insert(path);
        }
        next
    }

    /// Takes the text of a script.
    pub fn add_text(&mut self, path: &str, text: ScriptText<'_>) {
        match text {
            ScriptText::Read(bytes) => {
                // Of a program that is no text nothing can be seen; a sign of another alphabet hides no command.
                let text = String::from_utf8_lossy(bytes).into_owned();
                if !bytes.contains(&0) {
                    self.add(files_of_text(&text, path));
                    self.texts.push(text);
                }
            }
            ScriptText::Unread => self.note_gap(format!("{path} is no plain file, or too large to be read")),
        }
    }

    /// Returns the paths that are protected, the folders of which every file is, the texts of the scripts, and in words what could not be
    /// followed.
    pub fn finish(self) -> TrailEnd {
        TrailEnd {
            paths: self.paths.into_iter().collect(),
            folders: self.folders.into_iter().collect(),
            texts: self.texts,
            gaps: self.gaps,
        }
    }
}

/// The end of a trail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrailEnd {
    /// The paths that gates run.
    pub paths: Vec<String>,
    /// The folders that are named by a pattern.
    pub folders: Vec<String>,
    /// The commands, and the texts of the scripts.
    pub texts: Vec<String>,
    /// In words, what could not be followed. With any of these nothing says that the checks are as they were.
    pub gaps: Vec<String>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Follows scripts through files with these texts; one without a text cannot be read.
    fn follow(start: &str, files: &BTreeMap<String, Option<String>>) -> TrailEnd {
        let mut trail = ScriptTrail::new(&[start.to_owned()], [CalledFile::At(start.to_owned())]);
        for (path, text) in files.iter().filter(|(path, _)| path.ends_with("package.json")) {
            let text = text.as_ref().map_or(ScriptText::Unread, |text| ScriptText::Read(text.as_bytes()));
            trail.add_package(path, text);
        }
        loop {
            let next = trail.take_next(files.keys().map(String::as_str));
            if next.is_empty() {
                return trail.finish();
            }
            for path in next {
                let text =
                    files[path].as_ref().map_or(ScriptText::Unread, |text| ScriptText::Read(text.as_bytes()));
                trail.add_text(path, text);
            }
        }
    }

    #[test]
    fn a_command_that_is_not_followed_to_its_end_is_a_gap() {
        let end = ScriptTrail::new(&[], [CalledFile::Unfollowed]).finish();
        assert_eq!(end.gaps, ["they nest more commands than are followed"]);
        let text = format!("{}./deep", "bash -c ".repeat(100));
        assert_eq!(follow("run.sh", &files(&[("run.sh", Some(text.as_str()))])).gaps, end.gaps);
    }

    fn files(list: &[(&str, Option<&str>)]) -> BTreeMap<String, Option<String>> {
        list.iter().map(|(path, text)| ((*path).to_owned(), text.map(str::to_owned))).collect()
    }

    #[test]
    fn scripts_are_followed_through_all_that_they_run() {
        let all = files(&[
            ("ci/run.sh", Some("../tools/a.sh\n$HOME/x/last\n")),
            ("tools/a.sh", Some("make -f tools/rules.mk\n")),
            ("tools/rules.mk", Some("all:\n\tpython3 -m tools.go\n")),
            ("tools/go.py", Some("import os\n")),
            ("deep/x/last", Some("./missing.sh\n")),
            ("src/lib.rs", Some("")),
        ]);
        let end = follow("ci/run.sh", &all);
        assert_eq!(end.gaps, [""; 0]);
        for path in
            ["ci/run.sh", "tools/a.sh", "tools/rules.mk", "tools/go.py", "deep/x/last", "deep/x/missing.sh"]
        {
            assert!(end.paths.iter().any(|one| one == path), "{path}: {end:?}");
        }
        assert!(!end.paths.iter().any(|one| one == "src/lib.rs"));
        assert_eq!(end.texts.len(), 1 + 5);
    }

    /// A script of a package is a text of commands, also where a file that it runs calls another one of it.
    #[test]
    fn scripts_of_packages_are_followed_to_their_files() {
        let package = r#"{"scripts": {"check": "node scripts/a.js && npm run deep", "deep": "sh deep/all", "other": "./no.sh"}}"#;
        let mut all = files(&[
            ("ci/all", Some("cd web && npm run check\n")),
            ("web/package.json", Some(package)),
            ("web/scripts/a.js", Some("")),
            ("web/deep/all", Some("true\n")),
            ("web/no.sh", Some("")),
        ]);
        let end = follow("ci/all", &all);
        for path in ["web/scripts/a.js", "web/deep/all"] {
            assert!(end.paths.iter().any(|one| one == path), "{path}: {end:?}");
        }
        assert!(
            !end.paths.iter().any(|one| one.ends_with("no.sh") || one.ends_with("package.json")),
            "{end:?}"
        );
        assert_eq!(end.gaps, [""; 0]);
        all.insert("web/package.json".to_owned(), None);
        assert_eq!(follow("ci/all", &all).gaps, ["web/package.json cannot be read as a package"]);
        all.insert("ci/all".to_owned(), Some("make\n".to_owned()));
        assert_eq!(follow("ci/all", &all).gaps, [""; 0], "no package is meant");
    }

    /// Whatever is too much is said by name, and not left out in silence.
    #[test]
    fn what_cannot_be_followed_is_said() {
        let large = follow("run.sh", &files(&[("run.sh", Some("./big.sh")), ("big.sh", None)]));
        assert_eq!(large.gaps, ["big.sh is no plain file, or too large to be read"]);
        let mut many = files(&[]);
        for n in 0..=MAX_SCRIPTS {
            many.insert(format!("s{n}.sh"), Some(format!("./s{}.sh", n + 1)));
        }
        let end = follow("s0.sh", &many);
        assert_eq!(
            end.gaps,
            [format!("there are more than {MAX_SCRIPTS}, and s{MAX_SCRIPTS}.sh is not followed")]
        );
        many.remove(&format!("s{MAX_SCRIPTS}.sh"));
        assert_eq!(follow("s0.sh", &many).gaps, [""; 0], "as many as there may be, however deep");
        let names: String = (0..=MAX_PATHS).map(|n| format!("./n{n}.sh\n")).collect();
        let wide = follow("run.sh", &files(&[("run.sh", Some(&names))]));
        assert_eq!(wide.gaps, [format!("they name more than {MAX_PATHS} files")]);
    }
}
