//! The way back from what was applied.

use std::os::unix::fs::PermissionsExt;

use writ_types::id::AttemptId;
use writ_types::unit::Timestamp;

use super::*;
use crate::workspace::back;

fn attempt(n: u128) -> AttemptId {
    AttemptId::from_parts(Timestamp::from_millis(0), n)
}

impl Fixture {
    /// Applies what the session has changed, as an attempt that is kept.
    async fn apply_as(&self, n: u128) -> AppliedChanges {
        let changes = self.changes().await.changes;
        let keep = Some(back::back_folder(&self.workspace.session_view().dir, attempt(n)));
        self.workspace.carry_changes(self.workspace.session_view(), changes, keep).await.unwrap()
    }

    async fn undo(&self, n: u128, way: &[FileChange]) -> Result<AppliedChanges, ApplyError> {
        let view = back::back_view(
            &self.workspace.session_view().dir,
            self.workspace.session_view().project,
            attempt(n),
        );
        self.workspace.carry_changes(view, way.to_vec(), None).await
    }
}

#[tokio::test]
async fn what_was_applied_is_undone_to_the_byte_and_the_bit() {
    let fixture = Fixture::new().await;
    let run = fixture.project.join("src/b.rs");
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
    let before = [fixture.read("README.md"), fixture.read("src/a.rs"), fixture.read("src/b.rs")];
    fixture.sh("echo three >> README.md; rm src/a.rs; chmod -x src/b.rs; mkdir new; echo x > new/file").await;
    let applied = fixture.apply_as(1).await;
    assert_eq!((applied.done.len(), applied.back.len()), (4, 4));
    assert_eq!(fixture.read("new/file"), "x\n");

    let diff = fixture.workspace.diff_back(attempt(1), &applied.back).await.unwrap();
    assert!(diff.text.contains("-three\n") && diff.text.contains("+++ b/src/a.rs"), "{}", diff.text);
    assert_eq!(fixture.undo(1, &applied.back).await.unwrap().done.len(), 4);
    assert_eq!([fixture.read("README.md"), fixture.read("src/a.rs"), fixture.read("src/b.rs")], before);
    assert_eq!(fs::metadata(&run).unwrap().permissions().mode() & 0o777, 0o755);
    assert!(!fixture.project.join("new/file").exists());
    assert_eq!(fixture.sh("cat README.md src/a.rs; ls new").await, before[..2].concat().trim_end());
    assert!(fixture.changes().await.is_empty(), "the session sees the project as it is");
    // Once more finds it done, and does nothing.
    assert_eq!(fixture.undo(1, &applied.back).await.unwrap().done.len(), 0);
}

/// Nothing of the owner's is ever lost to an undo.
#[tokio::test]
async fn a_file_that_was_changed_since_stops_the_undo_before_anything_is_written() {
    let fixture = Fixture::new().await;
    let before = fixture.read("README.md");
    fixture.sh("echo three >> README.md; echo x > new").await;
    let applied = fixture.apply_as(1).await;
    fs::write(fixture.project.join("new"), "the owner's\n").unwrap();
    let refused = fixture.undo(1, &applied.back).await;
    assert!(matches!(refused, Err(ApplyError::Conflict { paths }) if paths == ["new"]));
    assert_eq!(
        (fixture.read("README.md"), fixture.read("new")),
        (before + "three\n", "the owner's\n".into())
    );
    // What is kept was tampered with: it is not what was there.
    fs::write(fixture.project.join("new"), "x\n").unwrap();
    let kept = back::back_folder(&fixture.workspace.session_view().dir, attempt(1)).join("README.md");
    fs::write(kept, "something else\n").unwrap();
    assert!(matches!(fixture.undo(1, &applied.back).await, Err(ApplyError::Conflict { .. })));
}

#[tokio::test]
async fn what_is_too_much_to_keep_is_applied_without_a_way_back() {
    let fixture = Fixture::new().await;
    fs::write(fixture.project.join("large"), vec![b'a'; 17 * 1024 * 1024]).unwrap();
    fixture.sh("echo x >> large; echo y >> README.md").await;
    let applied = fixture.apply_as(1).await;
    assert_eq!((applied.done.len(), applied.back.len()), (2, 0));
    let kept = back::back_folder(&fixture.workspace.session_view().dir, attempt(1));
    assert!(!kept.exists() && !kept.parent().unwrap().exists(), "nothing half is left");
    // A session that has kept something cannot reach it.
    fixture.sh("echo z >> README.md").await;
    fixture.apply_as(2).await;
    assert!(back::back_folder(&fixture.workspace.session_view().dir, attempt(2)).join("README.md").exists());
    let names = fixture.sh("ls -a / /work \"$HOME\" \"$HOME/..\"").await;
    assert!(names.lines().all(|name| name != "back"), "{names}");
}

/// Where the project is copied, what was undone is a change of the session again.
#[tokio::test]
async fn a_copy_takes_note_of_what_was_undone() {
    let config = SandboxConfig { forbid_user_namespaces: true, ..SandboxConfig::default() };
    let fixture = Fixture::with(config).await;
    assert!(fixture.workspace.is_copy());
    let before = fixture.read("README.md");
    fixture.sh("echo three >> README.md").await;
    let applied = fixture.apply_as(1).await;
    assert!(fixture.changes().await.is_empty());
    fixture.undo(1, &applied.back).await.unwrap();
    assert_eq!(fixture.read("README.md"), before);
    let again = fixture.changes().await.changes;
    assert_eq!(again.iter().map(|change| change.path.as_str()).collect::<Vec<_>>(), ["README.md"]);
    fixture.carry(again).await.unwrap();
    assert_eq!(fixture.read("README.md"), before + "three\n");
}
