//! The completions of Tab in a conversation: files of the project after `@`, and commands after `/`.

use std::path::Path;

use crate::editor::Completions;

/// The most entries of a folder that are looked at, and the most that are offered.
const MAX_LOOKED_AT: usize = 5_000;
const MAX_OFFERED: usize = 60;

/// Completes the word before the cursor; returns where it begins, and what may stand in its place.
pub(crate) fn complete_word(completions: &Completions, line: &str, cursor: usize) -> (usize, Vec<String>) {
    let before = line.get(..cursor).unwrap_or(line);
    let begin = before.rfind(char::is_whitespace).map_or(0, |space| space + 1);
    let begin = if before.is_char_boundary(begin) { begin } else { before.len() };
    let word = before.get(begin..).unwrap_or_default();
    if let Some(path) = word.strip_prefix('@') {
        let found = completions.project.as_deref().map(|project| files(project, path)).unwrap_or_default();
        return (begin, found.into_iter().map(|path| format!("@{path}")).collect());
    }
    if begin == 0 && word.starts_with('/') {
        let fits = |command: &&String| command.starts_with(word);
        return (begin, completions.commands.iter().filter(fits).cloned().collect());
    }
    (cursor, Vec::new())
}

/// The files and folders of a project with a path that begins so. Nothing outside it is looked at.
fn files(project: &Path, typed: &str) -> Vec<String> {
    let (folder, name) = typed.rsplit_once('/').unwrap_or(("", typed));
    let is_below = !folder.starts_with('/') && folder.split('/').all(|part| part != "..");
    if !is_below || typed.starts_with('/') {
        return Vec::new();
    }
    let Ok(entries) = std::fs::read_dir(project.join(folder)) else { return Vec::new() };
    let mut found: Vec<String> = entries
        .take(MAX_LOOKED_AT)
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            // Names that cannot be typed as one word are not offered, and hidden files only after a typed dot.
            let is_plain = !file.contains(|c: char| c.is_whitespace() || c.is_control());
            let is_wanted = file.starts_with(name) && (!file.starts_with('.') || name.starts_with('.'));
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let before = if folder.is_empty() { String::new() } else { format!("{folder}/") };
            let after = if is_folder { "/" } else { "" };
            (is_plain && is_wanted).then(|| format!("{before}{file}{after}"))
        })
        .collect();
    found.sort();
    found.truncate(MAX_OFFERED);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing outside the project is offered, and nothing hidden unasked.
    #[test]
    fn paths_of_the_project_and_commands_are_completed() {
        let dir = tempfile::tempdir().expect("temp dir");
        let project = dir.path().join("project");
        std::fs::create_dir_all(project.join("src/deep")).expect("made");
        for file in ["README.md", ".env", "src/main.rs", "src/my file.rs", "src/m\u{fc}ll.rs"] {
            std::fs::write(project.join(file), "").expect("written");
        }
        let commands = vec!["/help".to_owned(), "/memory".to_owned(), "/model".to_owned()];
        let completions = Completions { project: Some(project), commands };
        let complete = |line: &str| complete_word(&completions, line, line.len());
        assert_eq!(complete("look at @src/m"), (8, vec!["@src/main.rs".into(), "@src/m\u{fc}ll.rs".into()]));
        assert_eq!(complete("@"), (0, vec!["@README.md".into(), "@src/".into()]));
        assert_eq!(complete("@.e"), (0, vec!["@.env".into()]));
        assert_eq!(complete("@src/d"), (0, vec!["@src/deep/".into()]));
        for outside in ["@../", "@/etc/", "@src/../../"] {
            assert_eq!(complete(outside).1, Vec::<String>::new(), "{outside}");
        }
        assert_eq!(complete("/m"), (0, vec!["/memory".into(), "/model".into()]));
        assert_eq!(complete("say /m").1, Vec::<String>::new());
        assert_eq!(complete("plain").1, Vec::<String>::new());
        assert_eq!(complete_word(&Completions::default(), "@s", 2), (0, Vec::new()));
    }
}
