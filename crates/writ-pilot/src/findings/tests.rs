//! Findings of projects that were made up.

use super::*;

fn files(texts: &[(&str, &str)], more: &[&str]) -> ProjectFiles {
    let paths = texts.iter().map(|(path, _)| *path).chain(more.iter().copied());
    let texts = texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    ProjectFiles::of_parts(paths.map(|path| path.as_bytes().to_vec()).collect(), texts)
}

fn commit(author: &str, subject: &str, paths: &[&str]) -> HistoryCommit {
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    HistoryCommit { seconds: 1, author: author.to_owned(), subject: subject.to_owned(), paths }
}

fn counted(list: &[NamedCount]) -> Vec<(&str, usize)> {
    list.iter().map(|one| (one.name.as_str(), one.count)).collect()
}

/// A project in Rust and Python: both languages, the folders, where its programs begin and what it depends on are found; a manifest
/// that cannot be parsed is listed with the reason, and the others count.
///
/// Rows: SF-397 (in part: manifests are parsed; source files count by their names, since no parser of each language is at hand)
#[test]
fn a_project_in_two_languages_is_mapped() {
    let cargo = "[package]\nname = \"a\"\n[[bin]]\nname = \"tool\"\npath = \"src/main.rs\"\n[dependencies]\nserde = \"1\"\n[dev-dependencies]\nserde = \"1\"\ninsta = { version = \"1\" }\n";
    let python = "[project]\nname = \"b\"\ndependencies = [\"requests>=2\", \"flask[async] ; python_version>'3'\"]\n[project.scripts]\nserve = \"b:main\"\n";
    let node =
        "{ \"main\": \"lib/index.js\", \"dependencies\": { \"react\": \"1\" }, \"bin\": { \"cli\": \"x\" } }";
    let files = files(
        &[
            ("Cargo.toml", cargo),
            ("py/pyproject.toml", python),
            ("web/package.json", node),
            ("broken/Cargo.toml", "[package\nname = 1"),
            ("broken/package.json", "{"),
            ("requirements.txt", "# all\n-r other.txt\nnumpy==1.0\n"),
            ("go.mod", "module x\nrequire (\n\texample.org/a v1\n\t// none\n)\nrequire example.org/b v2\n"),
        ],
        &["src/main.rs", "src/lib.rs", "src/bin/extra.rs", "py/b/__main__.py", "a/b/c/d/e/main.py"],
    );
    let found = find_all(&files, Err("no history".to_owned()));
    assert_eq!(counted(&found.languages)[..2], [("Rust", 3), ("Python", 2)]);
    assert_eq!(counted(&found.folders)[0], ("src/", 3));
    let entries = &found.entry_points;
    for part in [
        "src/main.rs",
        "src/bin/extra.rs",
        "py/b/__main__.py",
        "Cargo.toml: program tool",
        "py/pyproject.toml: program serve",
        "web/package.json: main lib/index.js",
        "web/package.json: program cli",
    ] {
        assert!(entries.iter().any(|entry| entry == part), "{part}: {entries:?}");
    }
    assert!(!entries.iter().any(|entry| entry.contains("e/main.py")), "it lies deep: {entries:?}");
    let named = |manifest: &str| found.dependencies.get(manifest).map(|names| names.join(" "));
    assert_eq!(named("Cargo.toml").as_deref(), Some("serde insta"));
    assert_eq!(named("py/pyproject.toml").as_deref(), Some("requests flask"));
    assert_eq!(named("web/package.json").as_deref(), Some("react"));
    assert_eq!(named("requirements.txt").as_deref(), Some("numpy"));
    assert_eq!(named("go.mod").as_deref(), Some("example.org/a example.org/b"));
    let unreadable: Vec<&str> =
        found.unreadable.iter().map(|line| line.split_once(": ").map_or("", |(path, _)| path)).collect();
    assert_eq!(unreadable, ["broken/Cargo.toml", "broken/package.json"]);
    assert_eq!((found.history, found.history_note.as_str()), (None, "no history"));
}

/// The folder that most commits change comes first, however many files one commit changes elsewhere; names that act unseen are
/// escaped, and lists have an end.
#[test]
fn a_history_shows_active_folders_authors_and_the_newest_changes() {
    let many: Vec<String> = (0..50).map(|n| format!("docs/{n}.md")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let commits = [
        commit("Bob", "newest \u{1b}[2J", &["src/a.rs", "README.md"]),
        commit("Ann", "all documents", &many),
        commit("Ann", "second", &["src/b.rs"]),
    ];
    let found = find_all(&ProjectFiles::default(), Ok(commits.to_vec())).history.expect("a history");
    assert_eq!(counted(&found.active), [("src/", 2), ("./", 1), ("docs/", 1)]);
    assert_eq!(counted(&found.contributors), [("Ann", 2), ("Bob", 1)]);
    assert_eq!((found.commits, found.recent[0].subject.as_str()), (3, "newest \\u{1b}[2J"));
    let crowd: Vec<HistoryCommit> = (0..100).map(|n| commit(&format!("a{n}"), "x", &[])).collect();
    let found = find_all(&ProjectFiles::default(), Ok(crowd)).history.expect("a history");
    assert_eq!((found.contributors.len(), found.recent.len(), found.commits), (MAX_LISTED, MAX_LISTED, 100));
}
