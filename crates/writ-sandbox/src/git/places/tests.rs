//! Paths that lead out, and those that only seem to.

use std::os::unix::fs::symlink;

use super::*;

fn fixture() -> (tempfile::TempDir, PathBuf, WorkspaceRoot) {
    let temp = tempfile::tempdir().unwrap();
    let top = temp.path().canonicalize().unwrap().join("project");
    fs::create_dir(&top).unwrap();
    let root = WorkspaceRoot::open_root(&top, ".writ/workspaces").unwrap();
    (temp, top, root)
}

/// A folder that is there is used as it is, a plain file is replaced, and a missing folder is made.
///
/// Rows: SF-227
#[test]
fn a_folder_is_found_or_made() {
    let (_temp, top, root) = fixture();
    let made = root.ensure_folder("task_m1_s2_t3").unwrap();
    assert_eq!(made, WorkspaceFolder { path: top.join(".writ/workspaces/task_m1_s2_t3"), created: true });
    fs::write(made.path.join("work"), "done").unwrap();
    assert!(!root.ensure_folder("task_m1_s2_t3").unwrap().created);
    assert_eq!(fs::read_to_string(made.path.join("work")).unwrap(), "done");
    fs::write(root.path().join("other"), "a file").unwrap();
    let other = root.ensure_folder("other").unwrap();
    assert!(other.created && other.path.is_dir());
}

/// Links are followed one by one, and only to where they stay inside.
///
/// Rows: SF-221 SF-222
#[test]
fn a_link_that_leads_out_is_found_wherever_it_is() {
    let (temp, top, root) = fixture();
    let outside = temp.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, root.path().join("out")).unwrap();
    let refused = root.ensure_folder("out");
    assert!(matches!(&refused, Err(GitFault::SymlinkEscape { .. })), "{refused:?}");
    use writ_types::error::ToReport as _;
    assert_eq!(refused.unwrap_err().report().code, "workspace.symlink_escape");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "nothing was made there");
    // In a middle segment, by another link, relative and absolute.
    for (number, target) in [PathBuf::from("../../.."), outside.clone()].into_iter().enumerate() {
        let project = temp.path().join(format!("p{number}"));
        fs::create_dir(&project).unwrap();
        symlink(target, project.join("hop")).unwrap();
        symlink("hop", project.join(".writ")).unwrap();
        let refused = WorkspaceRoot::open_root(&project, ".writ/workspaces");
        assert!(matches!(refused, Err(GitFault::SymlinkEscape { .. })), "{refused:?}");
    }
    assert!(!outside.join("workspaces").exists() && !temp.path().join("workspaces").exists());
    // A sibling whose name begins alike is another folder.
    let evil = temp.path().join("project/.writ/workspaces-evil");
    fs::create_dir(&evil).unwrap();
    symlink(&evil, root.path().join("sibling")).unwrap();
    assert!(matches!(root.ensure_folder("sibling"), Err(GitFault::SymlinkEscape { .. })));
    // One that stays inside is followed.
    let real = root.ensure_folder("real").unwrap();
    symlink("real", root.path().join("alias")).unwrap();
    assert_eq!(root.ensure_folder("alias").unwrap(), WorkspaceFolder { created: false, ..real });
    // A circle ends, and an unreadable way is no missing one.
    symlink("b", root.path().join("a")).unwrap();
    symlink("a", root.path().join("b")).unwrap();
    assert!(matches!(root.ensure_folder("a"), Err(GitFault::Creation { .. })));
    fs::write(top.join("file"), "").unwrap();
    let below_a_file = WorkspaceRoot::open_root(&top, "file/workspaces");
    assert!(matches!(below_a_file, Err(GitFault::Creation { .. })), "{below_a_file:?}");
}

#[test]
fn names_that_are_no_names_of_folders_are_refused() {
    let (_temp, _, root) = fixture();
    for bad in ["", ".", "..", "a/b", "a b", "a\0", "../x", "ä", &"x".repeat(300)] {
        assert!(matches!(root.ensure_folder(bad), Err(GitFault::BadName { .. })), "{bad:?}");
    }
    for bad in ["", "/abs", "../up", "a/../../b"] {
        assert!(WorkspaceRoot::open_root(root.path(), bad).is_err(), "{bad:?}");
    }
    assert!(matches!(root.remove_folder(root.path().parent().unwrap()), Err(GitFault::SymlinkEscape { .. })));
}
