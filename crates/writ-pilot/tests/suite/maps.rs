//! The files of a commit, as the map and the detection of gates see them.

use writ_pilot::files::ProjectFiles;
use writ_pilot::findings::NamedCount;
use writ_pilot::probe::propose_gates;
use writ_pilot::repo_map::draw_map;
use writ_pilot::trial::begin_project;
use writ_sandbox::git::refs::read_ref;
use writ_sandbox::git::{BranchName, GitProject};

use crate::fixture::Repo;

/// Ignored files, uncommitted work, links and what lies outside are no part of the map.
#[tokio::test]
async fn needs_git_the_map_is_that_of_the_commit() {
    let repo = Repo::new().await;
    repo.write("Cargo.toml", "[package]\nname = \"a\"\n");
    repo.write(".gitignore", "secret.txt\n");
    repo.write("big/package.json", &"x".repeat(200 * 1024));
    std::os::unix::fs::symlink("/etc/passwd", repo.dir.join("pyproject.toml")).unwrap();
    std::fs::write(repo.dir.join(std::ffi::OsString::from("odd \u{1b}.rs")), "").unwrap();
    repo.commit_all("more").await;
    repo.write("secret.txt", "x");
    repo.write("go.mod", "module not_committed\n");
    repo.write("Cargo.toml", "[workspace]\n");
    let project = GitProject::open_project(&repo.dir).await.unwrap();
    let main = BranchName::parse_name("main").unwrap();
    let commit = read_ref(&project, &main.to_ref()).await.unwrap().unwrap();
    let files = ProjectFiles::read_commit(&project, &commit).await.unwrap();
    let map = draw_map(&files);
    assert!(map.contains("manifests: Cargo.toml, pyproject.toml, big/package.json\n"), "{map}");
    assert!(
        map.contains("README, first lines:\none\ntwo\nthree\n") && map.contains("odd \\u{1b}.rs"),
        "{map}"
    );
    assert!(!map.contains("secret.txt") && !map.contains("go.mod") && !map.contains("root:"), "{map}");
    let runs: Vec<String> = propose_gates(&files).into_iter().map(|gate| gate.run.join(" ")).collect();
    assert!(runs.contains(&"cargo test".to_owned()), "{runs:?}");
    assert!(!runs.iter().any(|run| run.contains("--workspace") || run.starts_with("go ")), "{runs:?}");
}

/// The history of five commits by two authors: the folder that most of them change, the newest one, and both authors. `quick` leaves all
/// of it out, and writes the same settings.
///
/// Rows: SF-398 (in part: a folder without git is refused, since the autopilot works on repositories alone)
/// Rows: SF-399 (in part: `--quick` writes the settings and looks for nothing)
#[tokio::test]
async fn needs_git_a_project_begins_with_what_its_history_shows() {
    let repo = Repo::new().await;
    for (path, message) in [("src/b.rs", "second"), ("docs/a.md", "third"), ("src/c.rs", "fourth")] {
        repo.write(path, message);
        repo.commit_all(message).await;
    }
    repo.write("src/d.rs", "x");
    repo.git(&["add", "--all"]).await;
    repo.git(&["commit", "--quiet", "--author=Bob <bob@example.org>", "--message=fifth"]).await;

    let quick = begin_project(&repo.dir, &[], true).await.unwrap();
    assert!(quick.created && quick.findings.is_none(), "{quick:?}");
    let settings = repo.read(".writ/pilot.toml");
    std::fs::remove_file(repo.dir.join(".writ/pilot.toml")).unwrap();
    let begun = begin_project(&repo.dir, &[], false).await.unwrap();
    assert_eq!(repo.read(".writ/pilot.toml"), settings);

    let found = begun.findings.unwrap();
    let counted = |list: &[NamedCount]| -> Vec<(String, usize)> {
        list.iter().map(|one| (one.name.clone(), one.count)).collect()
    };
    assert_eq!(counted(&found.languages)[0], ("Rust".to_owned(), 4));
    let history = found.history.unwrap();
    assert_eq!(history.commits, 5);
    assert_eq!(counted(&history.active)[0], ("src/".to_owned(), 4));
    assert_eq!(counted(&history.contributors), [("Ann".to_owned(), 4), ("Bob".to_owned(), 1)]);
    let recent: Vec<(&str, &str)> =
        history.recent.iter().map(|one| (one.author.as_str(), one.subject.as_str())).collect();
    assert_eq!(recent[..2], [("Bob", "fifth"), ("Ann", "fourth")]);
}
