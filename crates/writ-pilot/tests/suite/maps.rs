//! The files of a commit, as the map and the detection of gates see them.

use writ_pilot::files::ProjectFiles;
use writ_pilot::probe::propose_gates;
use writ_pilot::repo_map::draw_map;
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
