//! The diff and its way into the project. Threat 22.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn told(set: &ChangeSet) -> Vec<(&str, ChangeKind)> {
    set.changes.iter().map(|change| (change.path.as_str(), change.kind)).collect()
}

fn left(set: &ChangeSet) -> Vec<(&str, LeftOutReason)> {
    set.left_out.iter().map(|left| (left.shown.as_str(), left.reason)).collect()
}

#[tokio::test]
async fn creates_changes_deletes_and_renames_are_seen_and_applied() {
    let fixture = Fixture::new().await;
    assert!(fixture.changes().await.is_empty());
    fixture.sh("echo three >> README.md; mv src/a.rs src/c.rs; rm src/b.rs; mkdir bin; echo '#!' > bin/run; chmod +x bin/run").await;
    let set = fixture.changes().await;
    use ChangeKind::{Create, Delete, Modify};
    assert_eq!(
        told(&set),
        [
            ("README.md", Modify),
            ("bin/run", Create),
            ("src/a.rs", Delete),
            ("src/b.rs", Delete),
            ("src/c.rs", Create)
        ]
    );
    let readme = &set.changes[0];
    assert_eq!(
        (readme.before, readme.after),
        (Some(Digest::of_bytes(b"one\ntwo\n")), Some(Digest::of_bytes(b"one\ntwo\nthree\n")))
    );
    assert!(set.changes[1].executable && !readme.executable);
    let text = fixture.workspace.read_diff().await.unwrap().text;
    assert!(
        text.contains("--- a/README.md\n+++ b/README.md\n@@ -1,2 +1,3 @@\n one\n two\n+three\n"),
        "{text}"
    );
    assert!(text.contains("--- a/src/a.rs\n+++ /dev/null\n"), "{text}");

    let applied = fixture.carry(set.changes.clone()).await.unwrap();
    assert_eq!((applied.done.len(), applied.already.len()), (5, 0));
    assert_eq!(fixture.read("README.md"), "one\ntwo\nthree\n");
    assert_eq!(fixture.read("src/c.rs"), "fn a() {}\n");
    assert!(!fixture.project.join("src/a.rs").exists());
    assert_eq!(fs::metadata(fixture.project.join("bin/run")).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fs::metadata(fixture.project.join("README.md")).unwrap().permissions().mode() & 0o777, 0o644);
    assert!(fixture.changes().await.is_empty());
    // The session sees the project again, and so what the owner does to it next.
    fs::write(fixture.project.join("README.md"), "owner\n").unwrap();
    assert_eq!(fixture.sh("cat README.md").await, "owner");
    // A second run of the same, as after a crash, finds it done, but never undoes the owner's work.
    let again = fixture.carry(set.changes[1..].to_vec()).await.unwrap();
    assert_eq!((again.done.len(), again.already.len()), (0, 4));
    assert!(
        matches!(fixture.carry(set.changes).await, Err(ApplyError::Conflict { paths }) if paths == ["README.md"])
    );
}

#[tokio::test]
async fn a_conflict_writes_nothing() {
    let fixture = Fixture::new().await;
    fixture.sh("echo x > README.md; echo y > src/a.rs; echo z > new").await;
    let set = fixture.changes().await;
    fs::write(fixture.project.join("src/a.rs"), "owner's\n").unwrap();
    let refused = fixture.carry(set.changes.clone()).await;
    assert!(matches!(refused, Err(ApplyError::Conflict { paths }) if paths == ["src/a.rs"]));
    assert_eq!(
        (fixture.read("README.md"), fixture.read("src/a.rs")),
        ("one\ntwo\n".into(), "owner's\n".into())
    );
    assert!(!fixture.project.join("new").exists());
    // The next diff does not offer to undo the owner's change.
    let set_now = fixture.changes().await;
    assert_eq!(left(&set_now), [("src/a.rs", LeftOutReason::Stale)]);
    // Nor does what the session changed after the diff go along.
    fixture.sh("echo other > new").await;
    let stale = set.changes.into_iter().filter(|change| change.path == "new").collect();
    assert!(matches!(fixture.carry(stale).await, Err(ApplyError::Conflict { paths }) if paths == ["new"]));
    assert_eq!(fs::read_dir(&fixture.project).unwrap().count(), 3);
}

#[tokio::test]
async fn half_an_apply_can_be_finished() {
    let fixture = Fixture::new().await;
    fixture.sh("echo x > README.md; echo z > new; rm src/a.rs").await;
    let set = fixture.changes().await;
    // As if the first run had ended after its first rename.
    fs::write(fixture.project.join("README.md"), "x\n").unwrap();
    let applied = fixture.carry(set.changes).await.unwrap();
    assert_eq!(
        applied,
        AppliedChanges {
            done: vec!["new".into(), "src/a.rs".into()],
            already: vec!["README.md".into()],
            back: vec![]
        }
    );
    assert_eq!(fixture.read("new"), "z\n");
}

#[tokio::test]
async fn what_could_be_executed_outside_is_left_out() {
    let fixture = Fixture::new().await;
    fixture
        .sh("mkdir -p .git/hooks vendor/.GIT sub bare/objects bare/refs work; echo '#!/bin/sh' > .git/hooks/pre-commit
            echo x > vendor/.GIT/config; echo 'gitdir: ../evil' > sub/.git; echo x > bare/HEAD; echo x > bare/config
            ln -s /etc/passwd link2; ln -sf elsewhere link; mkfifo pipe; cp /bin/true suid; chmod 4755 suid
            printf x > \"$(printf 'a\\nb')\"; printf x > \"$(printf 'rtl\\342\\200\\256x')\"; printf x > \"$(printf 'bad\\377')\"
            rm -r src; ln -s / src; echo x > .envrc; echo ok > work/fine; python3 -c \"import socket;socket.socket(1).bind('sock')\"")
        .await;
    let set = fixture.changes().await;
    use LeftOutReason::{GitDirectory, HostileName, SetId, Special, SymbolicLink};
    assert_eq!(
        left(&set),
        [
            (".git", GitDirectory),
            ("a\\u{a}b", HostileName),
            ("bad\\xff", HostileName),
            ("bare", GitDirectory),
            ("link", SymbolicLink),
            ("link2", SymbolicLink),
            ("pipe", Special),
            ("rtl\\u{202e}x", HostileName),
            ("sock", Special),
            ("src", SymbolicLink),
            ("sub/.git", GitDirectory),
            ("suid", SetId),
            ("vendor/.GIT", GitDirectory),
        ]
    );
    assert_eq!(told(&set), [(".envrc", ChangeKind::Create), ("work/fine", ChangeKind::Create)]);
    assert_eq!(set.notices.iter().map(|notice| notice.path.as_str()).collect::<Vec<_>>(), [".envrc"]);
    let applied = fixture.carry(set.changes).await.unwrap();
    assert_eq!(applied.done, [".envrc", "work/fine"]);
    assert!(!fixture.project.join(".git").exists() && fixture.project.join("src").is_dir());
}

#[tokio::test]
async fn forged_changes_are_refused() {
    let fixture = Fixture::new().await;
    fixture.sh("mkdir .git; echo x > .git/config; echo x > fine").await;
    let digest = Digest::of_bytes(b"x\n");
    for path in [".git/config", "../out", "/etc/x", "a/.GIT/x", "", "a\nb"] {
        let change = FileChange {
            path: path.into(),
            kind: ChangeKind::Create,
            before: None,
            after: Some(digest),
            executable: false,
            bytes: 2,
        };
        let refused = fixture.carry(vec![change.clone()]).await;
        assert!(matches!(refused, Err(ApplyError::BadPath { .. })), "{path}: {refused:?}");
        let fine = FileChange { path: "fine".into(), ..change };
        assert!(fixture.carry(vec![fine]).await.is_ok());
    }
    // A link in the project's own tree is not followed either.
    std::os::unix::fs::symlink("/tmp", fixture.project.join("exit")).unwrap();
    let change = FileChange {
        path: "exit/writ-escape".into(),
        kind: ChangeKind::Create,
        before: None,
        after: Some(digest),
        executable: false,
        bytes: 2,
    };
    assert!(matches!(fixture.carry(vec![change]).await, Err(ApplyError::Conflict { .. })));
}

#[tokio::test]
async fn replaced_and_ignored_folders_are_understood() {
    let fixture = Fixture::new().await;
    fs::write(fixture.project.join(".gitignore"), "build/\n").unwrap();
    fixture.sh("rm -r src; mkdir src; echo new > src/a.rs; mkdir build cache; echo x > build/x; echo x > cache/CACHEDIR.TAG").await;
    let set = fixture.changes().await;
    assert_eq!(told(&set), [("src/a.rs", ChangeKind::Modify), ("src/b.rs", ChangeKind::Delete)]);
    assert_eq!(left(&set), [("build", LeftOutReason::Ignored), ("cache", LeftOutReason::Ignored)]);
    fixture.carry(set.changes).await.unwrap();
    assert_eq!(told(&fixture.changes().await), []);
    // The folder still hides the project's: what is applied into it stays visible.
    fixture.sh("echo again > src/d.rs").await;
    let set = fixture.changes().await;
    fixture.carry(set.changes).await.unwrap();
    assert_eq!(fixture.sh("cat src/d.rs").await, "again");
    assert_eq!(told(&fixture.changes().await), []);
}

#[tokio::test]
async fn what_is_no_text_is_shown_byte_by_byte_or_named_as_not_shown() {
    let fixture = Fixture::new().await;
    fixture.sh("printf '#!/bin/sh\\n\\000rm -r x\\n' > data; printf 'x\\033[2Jy\\n' > README.md").await;
    let diff = fixture.workspace.read_diff().await.unwrap();
    assert!(diff.text.contains("+#!/bin/sh\n+\\x00rm -r x\n"), "{}", diff.text);
    assert!(diff.text.contains("+x\\u{1b}[2Jy\n") && !diff.text.contains('\x1b'), "{}", diff.text);
    assert_eq!(diff.unshown, Vec::<String>::new());
    fixture.sh("head -c 100000 /dev/zero > data; head -c 600000 /dev/zero | tr '\\0' 'a' > large.txt").await;
    let diff = fixture.workspace.read_diff().await.unwrap();
    assert_eq!(diff.unshown, ["data", "large.txt"]);
    assert!(diff.text.contains("NOT SHOWN: 100000 bytes: none -> "), "{}", diff.text);
}
