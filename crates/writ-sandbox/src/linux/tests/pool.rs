//! Sandboxes that are made before there is something to do for them.

use std::sync::Arc;
use std::time::Duration;

use super::super::pool::{IDLE, SandboxPool};
use super::super::spec::{HostFolder, JobEnd, SandboxBase, SandboxJob, SetupFault, Walls, WorkMount};
use super::*;

/// A fixture with so many of each kind.
async fn with(ready_max: usize) -> Fixture {
    Fixture::with(SandboxConfig { ready_max, ..SandboxConfig::default() }).await
}

impl Fixture {
    fn pool(&self) -> &Arc<SandboxPool> {
        &self.native.pool
    }

    /// Waits until one for programs and one for files are ready; the first one's processes.
    async fn ready(&self) -> Vec<i32> {
        self.pool().filled(2).await;
        self.pool().pids_of(|base| !base.empty_home)
    }
}

/// What a session is to keep lies in its work folder and its home; nothing else of a run is there in the next.
///
/// Rows: SIL-415
#[tokio::test]
async fn each_is_used_once_and_leaves_nothing_to_the_next() {
    let fixture = with(1).await;
    fixture.sh("true").await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let pids = fixture.ready().await;
        let first = *pids.last().unwrap();
        assert!(!seen.contains(&first), "{first} was used before: {seen:?}");
        seen.push(first);
        // What one program leaves in memory, in processes, in names and in its environment, the next does not find.
        let left = fixture
            .sh("ls -A /tmp /dev/shm | grep -v : | grep -v '^.tmp' ; printenv LEFT; \
                 echo x > /tmp/x; echo x > /dev/shm/x; export LEFT=x; sleep 99 &")
            .await;
        assert_eq!(left, "");
        assert!(!fixture.pool().pids().contains(&first));
    }
    assert_eq!(fixture.sandbox.ready_count(), fixture.pool().ready_count());
}

#[tokio::test]
async fn one_that_waits_has_nothing_of_a_session() {
    let fixture = with(1).await;
    fixture.sh("echo mine > mine; echo mine > ~/mine").await;
    let pids = fixture.ready().await;
    let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", pids.last().unwrap())).unwrap();
    assert!(!mounts.contains("/home/agent/.cargo") && !mounts.contains("overlay writ"), "{mounts}");
    assert!(!mounts.contains(fixture.dir.to_str().unwrap()), "{mounts}");
    // So another session can have it.
    let other = open(&fixture.sandbox, &fixture.dir.join("other"), None).await.unwrap();
    fixture.ready().await;
    let list = exec(&["sh", "-c", "ls -A /work ~ | grep mine; cat /proc/self/mountinfo"]);
    let result = other.run_exec(list, ExecOptions::default()).await.unwrap();
    assert_eq!(result.ending, Ending::Exited { code: 0 });
    assert!(!result.stdout.text.contains("mine"), "{result:?}");
    assert!(!result.stdout.text.contains(fixture.project.to_str().unwrap()), "{result:?}");
}

/// The whole recipe: what a program sees of itself does not depend on when its sandbox was made.
#[tokio::test]
async fn one_that_waited_confines_as_one_made_at_once() {
    let (waited, at_once) = (with(1).await, with(0).await);
    // The kernel counts the first mount of an overlay among its options.
    waited.sh("true").await;
    at_once.sh("true").await;
    let look = "grep -vE '^(Pid|Tgid|NSpid|NSpgid|NSsid|Ngid|PPid|Vm|Rss|Hugetlb|.*ctxt|Cpus|Mems|FDSize|SigQ|Threads)' \
                /proc/self/status; ulimit -a; ls -l /proc/self/fd | grep -o '[0-9]* ->.*' | grep -v 'pipe\\|/proc'; \
                ls -A / /dev /etc ~; cut -d' ' -f5- /proc/self/mountinfo | sed -E 's/(master|shared):[0-9]+ //' | \
                sed -E 's#(upper|work|lower)dir=[^, ]*##g' | grep -v ' - proc' | sort; hostname; env | sort; id";
    let mut texts = Vec::new();
    for fixture in [&waited, &at_once] {
        if fixture.pool().ready_count() > 0 {
            fixture.ready().await;
        }
        texts.push(fixture.sh(look).await.replace(fixture.dir.to_str().unwrap(), "DIR"));
    }
    let [one, other] = texts.as_slice() else { panic!("two") };
    assert_eq!(one, other);
    assert_eq!(at_once.pool().ready_count(), 0);
}

#[tokio::test]
async fn what_the_host_has_replaced_is_seen_as_it_is_now() {
    let temp = tempfile::tempdir().unwrap();
    let tool = temp.path().canonicalize().unwrap().join("tool");
    fs::create_dir(&tool).unwrap();
    fs::write(tool.join("version"), "1").unwrap();
    let config = SandboxConfig { read_only: vec![tool.clone()], ready_max: 1, ..SandboxConfig::default() };
    let fixture = Fixture::with(config).await;
    let show = format!("cat {}/version", tool.display());
    assert_eq!(fixture.sh(&show).await, "1");
    let before = fixture.ready().await;
    fs::rename(&tool, temp.path().join("old")).unwrap();
    fs::create_dir(&tool).unwrap();
    fs::write(tool.join("version"), "2").unwrap();
    assert_eq!(fixture.sh(&show).await, "2");
    // The one that had taken the old folder is gone.
    assert!(fixture.ready().await.iter().all(|pid| !before.contains(pid)));
}

/// A sandbox that was made earlier may see another folder at a path: then nothing is mounted and nothing runs.
#[tokio::test]
async fn a_folder_that_is_another_than_was_meant_is_not_used() {
    let fixture = with(1).await;
    fixture.sh("true").await;
    for project in [fixture.dir.join("gone"), fixture.project.clone()] {
        fixture.ready().await;
        let folder = HostFolder { path: project, ..HostFolder::of(&fixture.dir).unwrap() };
        let job = SandboxJob::Exec(vec!["/bin/sh".into(), "-c".into(), "echo ran".into()]);
        let mut spec = fixture.native.spec(
            Walls::Full,
            job,
            WorkMount::Folder { path: folder, access: FolderAccess::Write },
        );
        spec.base.empty_home = false;
        spec.setup.home = Some(HostFolder::of(&fixture.dir.join("data/home")).unwrap());
        let finished = fixture
            .native
            .run_launch(super::super::run::Launch {
                spec,
                stdin: None,
                time: PATIENCE,
                memory: 1024 * MIB,
                keep: MIB,
                kill_above: MIB,
                disk: None,
                options: ExecOptions::default(),
                again: true,
                hold: None,
                talk: None,
            })
            .await
            .unwrap();
        assert!(
            matches!(&finished.event, JobEnd::SetupFailed(fault) if fault.stage == SetupFault::MOVED),
            "{finished:?}"
        );
        assert!(finished.stdout.bytes.is_empty());
    }
    assert_eq!(fixture.sh("echo fine").await, "fine");
}

#[tokio::test]
async fn one_that_nobody_wants_ends() {
    let fixture = with(0).await;
    let slots = Arc::clone(fixture.pool().zygote_slots());
    let (short, long) =
        (SandboxPool::new(Arc::clone(&slots), 2, Duration::from_millis(1)), SandboxPool::new(slots, 2, IDLE));
    let base = fixture.base();
    for (pool, waiting) in [(&long, 2), (&short, 0)] {
        pool.again(&base).fill_pool();
        pool.filled(waiting).await;
    }
    short.when(|short| short.made_so_far() == 2 && short.ready_count() == 0).await;
    assert_eq!(long.ready_count(), 2);
    let pids = long.pids();
    drop(long);
    // With the pool all of them end: their handles say so.
    super::host::wait_for_end(&pids.into_iter().skip(1).step_by(2).collect::<Vec<_>>());
}

impl Fixture {
    fn base(&self) -> SandboxBase {
        let work =
            WorkMount::Folder { path: HostFolder::of(&self.project).unwrap(), access: FolderAccess::Read };
        self.native.spec(Walls::Full, SandboxJob::Exec(Vec::new()), work).base
    }
}

#[tokio::test]
async fn a_burst_takes_those_that_wait_and_makes_the_rest() {
    let fixture = with(2).await;
    fixture.sh("seq 5 | while read n; do echo $n > f$n; done").await;
    let paths = ["f1", "f2", "f3", "f4", "f5"];
    let read = async |path: &str| fixture.workspace.peek_file(path).await.unwrap().unwrap().bytes;
    let [a, b, c, d, e] = paths;
    let found = tokio::join!(read(a), read(b), read(c), read(d), read(e));
    let found = [found.0, found.1, found.2, found.3, found.4].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(found.concat(), "1\n2\n3\n4\n5\n");
    fixture.pool().filled(4).await;
}

/// The second rung has no namespaces to be made beforehand.
#[tokio::test]
async fn the_second_rung_has_none() {
    let config = SandboxConfig { forbid_user_namespaces: true, ready_max: 2, ..SandboxConfig::default() };
    let fixture = Fixture::with(config).await;
    fixture.sh("true").await;
    fixture.workspace.discard_changes().await.unwrap();
    assert_eq!((fixture.sh("echo two").await.as_str(), fixture.pool().ready_count()), ("two", 0));
}
