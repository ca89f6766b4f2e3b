//! What names a git directory, and what only seems to: files of the host as git and as others lay them out.

use std::os::unix::fs::symlink;

use super::*;

/// A home with a project in it.
struct Host {
    _temp: tempfile::TempDir,
    home: PathBuf,
    project: PathBuf,
    listed: Vec<PathBuf>,
    user: u32,
}

impl Host {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap().join("home");
        let project = home.join("code/project");
        fs::create_dir_all(&project).unwrap();
        let user = nix::unistd::geteuid().as_raw();
        Self { _temp: temp, home, project, listed: Vec::new(), user }
    }

    fn find_from(&self, project: &Path) -> Result<Option<Repository>, Refusal> {
        let data = self.home.join("data");
        let search =
            Search { project, home: Some(&self.home), data: &data, listed: &self.listed, user: self.user };
        search.find()
    }

    fn find(&self) -> Result<Option<Repository>, Refusal> {
        self.find_from(&self.project)
    }

    /// Makes `.git` of the project a file.
    fn point(&self, text: impl AsRef<[u8]>) {
        fs::write(self.project.join(".git"), text).unwrap();
    }

    /// A linked work tree of `code/main`, as `git worktree add` makes it.
    fn link(&self) -> PathBuf {
        let common = git_at(&self.home.join("code/main/.git"));
        let private = common.join("worktrees/project");
        fs::create_dir_all(&private).unwrap();
        fs::write(private.join("HEAD"), "ref: refs/heads/side\n").unwrap();
        fs::write(private.join("commondir"), "../..\n").unwrap();
        fs::write(private.join("gitdir"), format!("{}/.git\n", self.project.display())).unwrap();
        self.point(format!("gitdir: {}\n", private.display()));
        private
    }
}

/// A git directory without anything in it.
fn git_at(dir: &Path) -> PathBuf {
    for folder in ["objects", "refs"] {
        fs::create_dir_all(dir.join(folder)).unwrap();
    }
    fs::write(dir.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    dir.to_owned()
}

#[test]
fn a_linked_work_tree_is_found_if_it_is_named_in_turn() {
    let host = Host::new();
    let private = host.link();
    let common = host.home.join("code/main/.git");
    let found = host.find().unwrap().unwrap();
    let wanted = Repository {
        top: host.project.clone(),
        below: PathBuf::new(),
        common: common.clone(),
        private: "worktrees/project".into(),
        at: common.clone(),
    };
    assert_eq!(found, wanted);
    // Relative, as `worktree.useRelativePaths` has it; and the branch's head as a bare id.
    host.point("gitdir: ../main/.git/worktrees/project\n");
    fs::write(private.join("gitdir"), "../../../../project/.git\n").unwrap();
    fs::write(private.join("HEAD"), "0".repeat(40)).unwrap();
    assert_eq!(host.find().unwrap().unwrap(), wanted);
    // By way of a link of the owner's: programs inside look for the path as it is written.
    symlink(host.home.join("code/main"), host.home.join("code/short")).unwrap();
    host.point("gitdir: ../short/.git/worktrees/project\n");
    assert_eq!(host.find().unwrap().unwrap().at, host.home.join("code/short/.git"));
    host.point("gitdir: ../main/.git/worktrees/project\n");
    for (way_back, why) in [
        ("../../../../other/.git\n", "another folder"),
        ("../../../../project\n", "no file named .git"),
        ("", "empty"),
    ] {
        fs::write(private.join("gitdir"), way_back).unwrap();
        assert!(matches!(host.find(), Err(Refusal::NoWayBack { .. })), "{why}");
    }
    fs::remove_file(private.join("gitdir")).unwrap();
    assert!(matches!(host.find(), Err(Refusal::NoWayBack { .. })), "missing");
}

/// A `.git` file that came with a download may name anything.
#[test]
fn a_git_file_shows_nothing_that_is_no_git_directory_of_this_work_tree() {
    let host = Host::new();
    let keys = host.home.join(".ssh");
    fs::create_dir(&keys).unwrap();
    fs::write(keys.join("id_ed25519"), "MARKER").unwrap();
    let notes = host.home.join("notes");
    fs::create_dir(&notes).unwrap();
    for target in [&keys, &notes, &keys.join("id_ed25519"), &host.home, &host.home.join("nothing")] {
        host.point(format!("gitdir: {}\n", target.display()));
        assert!(matches!(host.find(), Err(Refusal::NotGit { .. })), "{}", target.display());
    }
    // Another repository of the owner's, which does not know of this work tree.
    let other = git_at(&host.home.join("code/other/.git"));
    host.point("gitdir: ../other/.git\n");
    assert!(matches!(host.find(), Err(Refusal::NoWayBack { .. })));
    fs::write(other.join("config"), "[core]\n\tworktree = ..\n").unwrap();
    assert!(matches!(host.find(), Err(Refusal::NoWayBack { .. })), "it has a work tree of its own");
    // A folder that claims to be a work tree of that repository, and lies somewhere else.
    let claims = host.home.join("code/claims");
    fs::create_dir(&claims).unwrap();
    fs::write(claims.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(claims.join("commondir"), "../other/.git\n").unwrap();
    fs::write(claims.join("gitdir"), format!("{}/.git\n", host.project.display())).unwrap();
    host.point("gitdir: ../claims\n");
    assert!(matches!(host.find(), Err(Refusal::NotGit { .. })));
    // A git directory among the private parts of the home.
    let private = git_at(&host.home.join(".config/repository"));
    fs::write(private.join("config"), format!("[core]\nworktree = {}\n", host.project.display())).unwrap();
    host.point(format!("gitdir: {}\n", private.display()));
    assert!(matches!(host.find(), Err(Refusal::Private { .. })));
}

#[test]
fn a_git_file_of_another_form_is_refused() {
    let host = Host::new();
    host.link();
    let long = vec![b'a'; usize::try_from(POINTER_MAX).unwrap() + 1];
    for text in [
        &long[..],
        b"",
        b"gitdir: ",
        b"gitdir: \n",
        b"gitdir:../main/.git/worktrees/project\n",
        b"gitdir: a\nb\n",
        b"gitdir: a\0b\n",
        b"\xff\xfe",
    ] {
        host.point(text);
        assert!(matches!(host.find(), Err(Refusal::Pointer { .. })), "{:?}", &text[..text.len().min(40)]);
    }
    let dot = host.project.join(".git");
    fs::remove_file(&dot).unwrap();
    symlink(host.home.join("code/main/.git"), &dot).unwrap();
    assert!(matches!(host.find(), Err(Refusal::Kind { .. })), "a link");
    fs::remove_file(&dot).unwrap();
    nix::unistd::mkfifo(&dot, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(matches!(host.find(), Err(Refusal::Kind { .. })), "a pipe");
}

#[test]
fn a_submodule_and_a_separate_git_directory_name_their_work_tree_or_are_listed() {
    let mut host = Host::new();
    let dir = git_at(&host.home.join("code/.git/modules/project"));
    host.point("gitdir: ../.git/modules/project\n");
    fs::write(dir.join("config"), "[core]\n\tworktree = ../../../project\n").unwrap();
    let found = host.find().unwrap().unwrap();
    assert_eq!((found.common, found.private, found.at), (dir.clone(), PathBuf::new(), dir.clone()));
    // With `extensions.worktreeConfig` it may stand in the second file, which counts last.
    fs::write(dir.join("config"), "[core]\n\tworktree = ..\n").unwrap();
    assert!(matches!(host.find(), Err(Refusal::NoWayBack { .. })));
    fs::write(dir.join("config.worktree"), "[core]\n\tworktree = ../../../project\n").unwrap();
    assert!(host.find().unwrap().is_some());
    // `git init --separate-git-dir` writes no way back: the owner lists the folder, or a folder above it.
    fs::remove_file(dir.join("config.worktree")).unwrap();
    fs::write(dir.join("config"), "[core]\n\tbare = false\n").unwrap();
    assert!(matches!(host.find(), Err(Refusal::NoWayBack { .. })));
    host.listed = vec![host.home.join("code/.git/modules")];
    assert!(host.find().unwrap().is_some());
}

#[test]
fn a_subfolder_has_the_repository_above_it_and_no_further_one_is_searched_for() {
    let host = Host::new();
    assert_eq!(host.find().unwrap(), None, "there is none at all");
    let common = git_at(&host.home.join("code/.git"));
    let found = host.find().unwrap().unwrap();
    assert_eq!((&found.top, &found.below), (&host.home.join("code"), &PathBuf::from("project")));
    assert_eq!((&found.common, &found.at), (&common, &common));
    // A folder of that name that is no git directory is passed over, as by git.
    let deep = host.project.join("a/b");
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir(host.project.join("a/.git")).unwrap();
    assert_eq!(host.find_from(&deep).unwrap().unwrap().below, PathBuf::from("project/a/b"));
    // Its own one lies in it.
    git_at(&host.project.join(".git"));
    assert_eq!(host.find().unwrap(), None);
    assert_eq!(host.find_from(&deep).unwrap().unwrap().below, PathBuf::from("a/b"));
    // A git directory in the project, which its `.git` file names.
    fs::remove_dir_all(host.project.join(".git")).unwrap();
    git_at(&host.project.join(".bare"));
    fs::write(host.project.join(".bare/config"), "[core]\nworktree = ..\n").unwrap();
    host.point("gitdir: ./.bare\n");
    assert_eq!(host.find().unwrap(), None);
}

#[test]
fn a_repository_of_the_whole_home_of_another_user_or_around_the_project_is_not_shown() {
    let mut host = Host::new();
    git_at(&host.home.join(".git"));
    assert!(matches!(host.find(), Err(Refusal::Private { .. })));
    fs::remove_dir_all(host.home.join(".git")).unwrap();
    // A bare repository with its work trees in it.
    let bare = git_at(&host.home.join("code"));
    let private = bare.join("worktrees/project");
    fs::create_dir_all(&private).unwrap();
    fs::write(private.join("HEAD"), "ref: refs/heads/side\n").unwrap();
    fs::write(private.join("commondir"), "../..\n").unwrap();
    fs::write(private.join("gitdir"), format!("{}/.git\n", host.project.display())).unwrap();
    host.point("gitdir: ../worktrees/project\n");
    assert!(matches!(host.find(), Err(Refusal::Around { .. })));
    fs::remove_file(host.project.join(".git")).unwrap();
    git_at(&host.home.join("code/.git"));
    assert!(host.find().unwrap().is_some());
    host.user += 1;
    assert!(matches!(host.find(), Err(Refusal::Foreign { .. })));
}

/// The way to a git directory through a link in the project would be another one once a program has changed the link.
#[test]
fn a_way_through_the_project_is_not_mounted_at() {
    let host = Host::new();
    let dir = git_at(&host.home.join("code/meta/store"));
    fs::write(dir.join("config"), format!("[core]\n\tworktree = {}\n", host.project.display())).unwrap();
    symlink(host.home.join("code/meta"), host.project.join("link")).unwrap();
    host.point("gitdir: link/store\n");
    let found = host.find();
    assert!(matches!(&found, Err(Refusal::Within { path }) if path.ends_with("link/store")), "{found:?}");
    host.point("gitdir: ../meta/store\n");
    assert_eq!(host.find().unwrap().unwrap().common, dir);
}
