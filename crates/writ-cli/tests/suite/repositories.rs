//! Git as people have it: the real git on both sides, with repositories that lie in other places than the project's own folder.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::threats::planted::files;
use super::turns::{Bench, calls};
use super::{Home, code, text};

/// Runs git on the host, as the owner does, and returns what it said.
#[expect(
    clippy::disallowed_types,
    reason = "the repositories are made on the host, as their owner makes them"
)]
fn git(folder: &Path, args: &[&str]) -> String {
    let settings = ["protocol.file.allow=always", "init.defaultBranch=main", "advice.detachedHead=false"];
    let output = std::process::Command::new("git")
        .args(settings.iter().flat_map(|setting| ["-c", setting]))
        .args(args)
        .current_dir(folder)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "Owner")))
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "owner@example.org")))
        .output()
        .expect("git starts");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn write(path: &Path, content: &str) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, content).expect("written");
}

/// A repository with a commit «first» that has these files.
fn repository(folder: &Path, files: &[(&str, &str)]) {
    std::fs::create_dir_all(folder).expect("made");
    git(folder, &["init", "-q"]);
    for (path, content) in files {
        write(&folder.join(path), content);
    }
    git(folder, &["add", "."]);
    git(folder, &["commit", "-q", "-m", "first"]);
}

/// A folder of its own for repositories, beside a home.
struct Place {
    home: Home,
    folder: PathBuf,
}

impl Place {
    fn new() -> Self {
        let home = Home::ready();
        let folder = home.dir.path().canonicalize().expect("is there").join("code");
        std::fs::create_dir(&folder).expect("made");
        Self { home, folder }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    /// Runs a shell script in the sandbox of a project: how it ended, and all that it said.
    fn try_inside(&self, project: &Path, script: &str) -> (i32, String) {
        let project = project.display().to_string();
        let output = self.home.run(&["sandbox", "exec", "--project", &project, "--", "sh", "-ec", script]);
        (code(&output), text(&output))
    }

    /// Runs a shell script that must succeed. The owner's files are the same afterwards.
    fn inside(&self, project: &Path, script: &str) -> String {
        let before = files(&self.folder);
        let (ended, said) = self.try_inside(project, script);
        assert_eq!(ended, 0, "{script}: {said}");
        assert!(files(&self.folder) == before, "{script}: something of the owner's has changed");
        said
    }
}

/// Looks, changes, commits and branches; says what git says.
const WORK: &str = "
git status --porcelain
git log --format=%s
echo two >> a.txt
git diff --stat --relative
git add a.txt
git commit -q -m second
git branch other
git stash list
git log --format=%s
git status --porcelain
git fsck --connectivity-only
";

/// What [`WORK`] says in a clean work tree with one commit.
fn is_worked_on(said: &str) {
    let lines: Vec<&str> =
        said.lines().filter(|line| !line.starts_with("Checking") && !line.starts_with("hint: ")).collect();
    let diff = [" a.txt | 1 +", " 1 file changed, 1 insertion(+)"];
    assert_eq!(lines, [&["first"][..], &diff, &["second", "first"]].concat(), "{said}");
}

#[test]
fn needs_userns_needs_git_a_linked_worktree_is_worked_in_and_the_repository_stays_as_it_was() {
    let place = Place::new();
    repository(&place.at("main"), &[("a.txt", "one\n"), ("secret.env", "")]);
    write(&place.at("main/untracked"), "MARKER\n");
    git(&place.at("main"), &["worktree", "add", "-q", "../linked", "-b", "side"]);
    git(&place.at("main"), &["worktree", "add", "-q", "main-inside", "-b", "inside"]);
    for project in ["linked", "main/main-inside"] {
        is_worked_on(&place.inside(&place.at(project), WORK));
    }
    // Nothing but the git directory is there of the other work tree.
    let said =
        place.inside(&place.at("linked"), "ls -A ../main; cat ../main/untracked 2>/dev/null || echo none");
    assert!(said.starts_with(".git\n") && said.ends_with("none\n"), "{said}");
    git(&place.at("main"), &["worktree", "add", "-q", "--detach", "../loose"]);
    is_worked_on(&place.inside(&place.at("loose"), WORK));
    let said = place.inside(&place.at("loose"), "git symbolic-ref -q HEAD || echo detached");
    assert_eq!(said, "detached\n");
}

#[test]
fn needs_userns_needs_git_a_submodule_is_worked_in_alone_and_in_its_superproject() {
    let place = Place::new();
    repository(&place.at("library"), &[("a.txt", "one\n")]);
    repository(&place.at("super"), &[("b.txt", "one\n")]);
    git(&place.at("super"), &["submodule", "--quiet", "add", "../library", "parts/library"]);
    git(&place.at("super"), &["commit", "-q", "-m", "with a part"]);
    let part = place.at("super/parts/library");
    assert!(part.join(".git").is_file());
    is_worked_on(&place.inside(&part, WORK));
    // Of the superproject there is nothing but what belongs to the submodule.
    let said = place.inside(&part, "ls -A ../..; ls -A ../../.git; ls -A ../../.git/modules/parts");
    assert_eq!(said, ".git\nparts\nmodules\nlibrary\n");
    let said = place.inside(
        &place.at("super"),
        "git submodule status; cd parts/library; echo two >> a.txt; git commit -qam second; cd ../..; git status --porcelain",
    );
    assert!(said.contains(" parts/library (heads/main)\n") && said.ends_with(" M parts/library\n"), "{said}");
}

/// `git init --separate-git-dir` leaves nothing in the git directory that names the work tree: its owner says it once.
#[test]
fn needs_userns_needs_git_a_separate_git_directory_is_used_once_its_owner_says_so() {
    let mut place = Place::new();
    repository(&place.at("project"), &[("a.txt", "one\n")]);
    git(&place.at("project"), &["init", "-q", "--separate-git-dir", "../repository"]);
    let refused = place.try_inside(&place.at("project"), "git status || ls ../repository");
    assert!(refused.0 != 0 && refused.1.contains("not a git repository"), "{refused:?}");
    let project = place.at("project").display().to_string();
    git(&place.at("repository"), &["--git-dir=.", "config", "core.worktree", &project]);
    is_worked_on(&place.inside(&place.at("project"), WORK));
    git(&place.at("repository"), &["--git-dir=.", "config", "--unset", "core.worktree"]);
    let listed = format!("[{:?}]", place.at("repository").display().to_string());
    place.home = place.home.with("WRIT_SANDBOX__READ_ONLY", &listed);
    super::engine::stop_engine_of(&place.home);
    is_worked_on(&place.inside(&place.at("project"), WORK));
}

/// A repository of which a subfolder is the project.
fn with_parts(place: &Place) -> PathBuf {
    let top = place.at("whole");
    let files = [
        (".gitignore", "target/\n*.log\n"),
        (".gitattributes", "*.txt text eol=lf\n"),
        ("README", "read\n"),
        ("other/b.txt", "other\n"),
        ("parts/one/a.txt", "one\n"),
        ("parts/one/deep/c.txt", "deep\n"),
        ("parts/onemore/d.txt", "more\n"),
    ];
    repository(&top, &files);
    write(&top.join("untracked"), "MARKER\n");
    top
}

#[test]
fn needs_userns_needs_git_a_subfolder_is_worked_in_and_the_rest_counts_as_not_checked_out() {
    let place = Place::new();
    let top = with_parts(&place);
    git(&top, &["checkout", "-q", "-b", "elsewhere"]);
    write(&top.join("other/b.txt"), "changed\n");
    write(&top.join("parts/one/deep/c.txt"), "changed\n");
    git(&top, &["commit", "-q", "-a", "-m", "elsewhere"]);
    git(&top, &["checkout", "-q", "main"]);
    let one = top.join("parts/one");
    is_worked_on(&place.inside(&one, WORK));
    // What the root leaves out stays out, also where the file that says so is not there.
    let said = place.inside(
        &one,
        "mkdir target; touch target/x y.log new; git status --porcelain; ls -A ../..; git rev-parse --show-prefix
         git show HEAD:other/b.txt; git ls-files -t | sort",
    );
    let told = "?? parts/one/new\n.git\nparts\nparts/one/\nother\nH a.txt\nH deep/c.txt\n";
    assert_eq!(said, told, "{said}");
    // A commit of everything has the subfolder's changes alone, and another branch is checked out in it.
    let said = place.inside(
        &one,
        "echo two >> a.txt; git add -A; git commit -qm second; git show --stat --format=%s HEAD; git checkout -q elsewhere
         cat deep/c.txt; git status --porcelain; git checkout -q main; cat a.txt deep/c.txt",
    );
    assert!(said.contains("1 file changed, 1 insertion(+)\nchanged\none\ntwo\ndeep\n"), "{said}");
    // The same below a linked work tree.
    git(&top, &["worktree", "add", "-q", "../linked", "-b", "side"]);
    is_worked_on(&place.inside(&place.at("linked/parts/one"), WORK));
}

/// The diff of a subfolder is of that subfolder: neither what git wrote beside it nor what its repository ignores is in it.
#[test]
fn needs_userns_needs_git_the_diff_of_a_subfolder_is_of_that_subfolder() {
    let run = |script: &str| ("shell_exec", json!({"argv": ["sh", "-ec", script]}));
    let list = vec![
        run(
            "echo two >> a.txt; mkdir target node; echo x > target/built; echo y > node/kept; git add -A; git commit -qm second",
        ),
        run("git log --format=%s -1; git show --stat --format= HEAD; git branch later"),
    ];
    let bench = Bench::new("openai", calls(list, "Done."));
    let top = bench.project();
    let kept = [(".gitignore", "target/\n"), ("b.txt", "one\n"), ("part/a.txt", "one\n")];
    repository(&top, &kept);
    let part = top.join("part").display().to_string();
    let before = files(&top.join(".git"));
    let done = bench.home.run(&["chat", "-m", "please", "--project", &part]);
    assert_eq!(code(&done), 5, "{}", text(&done));
    let told = bench.requests().pop().expect("a request");
    assert!(told.contains("second\\n") && told.contains("2 files changed, 2 insertions(+)"), "{told}");
    let shown = text(&bench.home.run(&["diff", "--project", &part]));
    let named: Vec<&str> = shown.lines().filter_map(|line| line.strip_prefix("+++ ")).collect();
    assert_eq!(named, ["b/a.txt", "b/node/kept"], "{shown}");
    let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    assert!(files(&top.join(".git")) == before, "the commit stays in the conversation");
    assert_eq!(git(&top, &["status", "--porcelain"]), " M part/a.txt\n?? part/node/\n");
    assert_eq!(git(&top, &["branch", "--format=%(refname:short)"]), "main\n");
}

#[test]
fn needs_userns_needs_git_heads_without_a_commit_and_without_a_branch_are_worked_on() {
    let place = Place::new();
    let empty = place.at("empty");
    std::fs::create_dir(&empty).expect("made");
    git(&empty, &["init", "-q"]);
    let first =
        "git status --porcelain; echo one > a.txt; git add .; git commit -qm first; git log --format=%s";
    assert_eq!(place.inside(&empty, first), "first\n");
    write(&empty.join("part/b.txt"), "one\n");
    assert_eq!(place.inside(&empty.join("part"), first), "?? part/\nfirst\n");
    repository(&place.at("loose"), &[("a.txt", "one\n"), ("part/a.txt", "one\n")]);
    git(&place.at("loose"), &["checkout", "-q", "--detach"]);
    is_worked_on(&place.inside(&place.at("loose"), WORK));
    is_worked_on(&place.inside(&place.at("loose/part"), WORK));
}

/// A pointer file, as it lies in a work tree without Git LFS.
const POINTER: &str = "version https://git-lfs.github.com/spec/v1\n\
oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

/// Without its program pointer files are plain files, also where the repository's own configuration insists on the filters.
#[test]
fn needs_userns_needs_git_pointer_files_of_lfs_are_clean_with_and_without_the_filters_settings() {
    let place = Place::new();
    let attributes = "*.bin filter=lfs diff=lfs merge=lfs -text\n";
    for (name, part) in [("plain", ""), ("insists", ""), ("subfolder", "part")] {
        let top = place.at(name);
        let project = top.join(part);
        let (a, large) = (project.join("a.txt"), project.join("large.bin"));
        std::fs::create_dir_all(&project).expect("made");
        git(&top, &["init", "-q"]);
        write(&top.join(".gitattributes"), attributes);
        write(&a, "one\n");
        write(&large, POINTER);
        git(&top, &["add", "."]);
        git(&top, &["commit", "-q", "-m", "first"]);
        if name != "plain" {
            git(&top, &["config", "filter.lfs.process", "git-lfs-that-is-not-there filter-process"]);
            git(&top, &["config", "filter.lfs.clean", "git-lfs-that-is-not-there clean -- %f"]);
            git(&top, &["config", "filter.lfs.required", "true"]);
        }
        // Git looks into files whose times have changed.
        is_worked_on(&place.inside(&project, &format!("touch large.bin\n{WORK}")));
    }
}

#[test]
fn needs_userns_needs_git_a_sparse_checkout_stays_sparse() {
    let place = Place::new();
    let top = place.at("whole");
    repository(
        &top,
        &[("a.txt", "one\n"), ("in/b.txt", "one\n"), ("out/c.txt", "one\n"), ("in/x/d.txt", "")],
    );
    for (kind, set) in
        [("cone", &["--cone"][..]), ("patterns", &["--no-cone"]), ("index", &["--cone", "--sparse-index"])]
    {
        let folders = if kind == "patterns" { &["/*", "!/out/"][..] } else { &["in"] };
        git(&top, &[&["sparse-checkout", "set"], set, folders].concat());
        assert!(!top.join("out").exists());
        is_worked_on(&place.inside(&top, WORK));
        let said = place.inside(
            &top.join("in"),
            "git status --porcelain; echo two >> b.txt; git commit -qam x; git show --stat --format=",
        );
        assert!(said.starts_with(" in/b.txt | 1 +\n 1 file changed"), "{kind}: {said}");
    }
    git(&top, &["worktree", "add", "-q", "../linked", "-b", "side"]);
    is_worked_on(&place.inside(&place.at("linked"), WORK));
}

/// What a program in the sandbox writes into the git directory runs nowhere on the host and leads nowhere inside.
#[test]
fn needs_userns_needs_git_what_is_written_into_a_git_directory_stays_inside() {
    let run = |script: String| ("shell_exec", json!({"argv": ["sh", "-c", script]}));
    let folder = tempfile::tempdir().expect("made");
    let code_folder = folder.path().canonicalize().expect("is there");
    let (main, linked, keys) =
        (code_folder.join("main"), code_folder.join("linked"), code_folder.join("keys"));
    write(&keys.join("id_ed25519"), "MARKER-KEY\n");
    let mark = code_folder.join("mark").display().to_string();
    let plant = format!(
        "cd \"$(git rev-parse --git-common-dir)\"
         printf '#!/bin/sh\\ntouch {mark}\\n' > hooks/post-checkout; chmod +x hooks/post-checkout
         git config core.fsmonitor 'touch {mark}'; git config core.hooksPath /tmp; git config core.sshCommand 'touch {mark}'
         echo {keys} > objects/info/alternates; git config alias.status '!touch {mark}'
         cd - > /dev/null; echo 'gitdir: {keys}' > .git",
        keys = keys.display()
    );
    let look = format!("cat .git; ls -A {0}; cat {0}/id_ed25519; git status", keys.display());
    let bench = Bench::new("openai", calls(vec![run(plant), run(look)], "Done."));
    repository(&main, &[("a.txt", "one\n")]);
    git(&main, &["worktree", "add", "-q", "../linked", "-b", "side"]);
    let before = (files(&main), files(&linked));
    let done = bench.home.run(&["chat", "-m", "please", "--project", &linked.display().to_string()]);
    let told = bench.requests().pop().expect("a request");
    assert!(told.contains(&format!("gitdir: {}", keys.display())), "it was rewritten inside: {told}");
    assert!(!told.contains("MARKER-KEY") && told.contains("not a git repository"), "{told}");
    assert_eq!(code(&done), 0, "nothing of it can be applied: {}", text(&done));
    let shown = text(&bench.home.run(&["diff", "--project", &linked.display().to_string()]));
    assert!(shown.contains(".git") && shown.contains("part of a git directory"), "{shown}");
    assert!((files(&main), files(&linked)) == before, "something of the owner's has changed");
    for folder in [&main, &linked] {
        assert_eq!(git(folder, &["status", "--porcelain"]), "");
        git(folder, &["checkout", "-q", "HEAD"]);
    }
    assert!(!Path::new(&mark).exists(), "the host ran what was planted");
}

/// A `.git` file that came with a download shows nothing of the owner's.
#[test]
fn needs_userns_needs_git_a_git_file_that_names_something_else_shows_nothing() {
    let place = Place::new();
    let project = place.at("download");
    write(&project.join("a.txt"), "one\n");
    write(&place.at("keys/id_ed25519"), "MARKER-KEY\n");
    write(&place.at("notes/HEAD"), "MARKER-NOTE\n");
    repository(&place.at("private"), &[("a.txt", "MARKER-PRIVATE\n")]);
    let named = ["keys", "notes", "private/.git", "nothing"];
    let mut texts: Vec<String> =
        named.iter().map(|name| format!("gitdir: {}\n", place.at(name).display())).collect();
    texts.push("gitdir: ../private/.git\n".to_owned());
    texts.push(format!("gitdir: {}\n", "a/".repeat(1024 * 1024)));
    for content in texts {
        write(&project.join(".git"), &content);
        let shown: String = content.chars().take(80).collect();
        let said = place.inside(
            &project,
            "cat a.txt; git status || true; ls -A .. ; cat ../keys/* ../notes/* ../private/.git/config || true; git show || true",
        );
        assert!(said.contains("one\n") && said.contains("download\n"), "{shown}: {said}");
        assert!(!said.contains("MARKER") && !said.contains("repositoryformatversion"), "{shown}: {said}");
        assert!(said.contains("fatal: "), "{shown}: {said}");
    }
}
